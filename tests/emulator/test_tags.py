"""Tags of everything that has an ARN: TagResource, UntagResource, ListTagsForResource (facts, 2
and 5.4)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from emulator_answers import held_to_account, post, refused
from emulator_endpoint import Endpoint


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    yield from held_to_account(endpoint)


@pytest.fixture(scope="module")
def arns(endpoint: Endpoint) -> dict[str, str]:
    """One of each kind, made with the tag `made=here`."""
    tags, batch = {"made": "here"}, endpoint.batch
    environment = batch.create_compute_environment(
        computeEnvironmentName="tagged",
        type="UNMANAGED",
        serviceRole="arn:aws:iam::123456789012:role/b",
        tags=tags,
    )
    queue = batch.create_job_queue(
        jobQueueName="tagged",
        priority=1,
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "tagged"}],
        tags=tags,
    )
    endpoint.definition("tagged", "true", tags=tags)
    return {
        "compute-environment": environment["computeEnvironmentArn"],
        "job-queue": queue["jobQueueArn"],
        "scheduling-policy": batch.create_scheduling_policy(name="tagged", tags=tags)["arn"],
        "job-definition": batch.describe_job_definitions(jobDefinitions=["tagged:1"])[
            "jobDefinitions"
        ][0]["jobDefinitionArn"],
        "consumable-resource": batch.create_consumable_resource(
            consumableResourceName="tagged", tags=tags
        )["consumableResourceArn"],
        "job": batch.submit_job(
            jobName="j",
            jobQueue="queue",
            jobDefinition=endpoint.definition("untagged", "true"),
            tags=tags,
        )["jobArn"],
    }


KINDS = [
    "compute-environment",
    "job-queue",
    "scheduling-policy",
    "job-definition",
    "consumable-resource",
    "job",
]


def tags(endpoint: Endpoint, arn: str) -> dict[str, str]:
    resource_tags: dict[str, str] = endpoint.batch.list_tags_for_resource(resourceArn=arn)["tags"]
    return resource_tags


@pytest.mark.parametrize("kind", KINDS)
def test_tags_come_change_and_go(endpoint: Endpoint, arns: dict[str, str], kind: str) -> None:
    """5.4: also 50 of them, with keys of 128 and values of 256."""
    arn = arns[kind]
    assert f":{kind}/" in arn
    assert tags(endpoint, arn) == {"made": "here"}
    endpoint.batch.tag_resource(resourceArn=arn, tags={"made": "there", "more": ""})
    assert tags(endpoint, arn) == {"made": "there", "more": ""}
    endpoint.batch.untag_resource(resourceArn=arn, tagKeys=["more", "never there"])
    assert tags(endpoint, arn) == {"made": "there"}
    most = {f"{number:0128}": "v" * 256 for number in range(49)}
    endpoint.batch.tag_resource(resourceArn=arn, tags=most)
    assert tags(endpoint, arn) == {"made": "there", **most}
    with refused("50"):
        endpoint.batch.tag_resource(resourceArn=arn, tags={"one": "too many"})
    endpoint.batch.tag_resource(resourceArn=arn, tags={"made": "here"})
    endpoint.batch.untag_resource(resourceArn=arn, tagKeys=list(most)[:49])
    assert tags(endpoint, arn) == {"made": "here"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"k" * 129: ""},
        {"": ""},
        {"k": "v" * 257},
        {"aws:x": ""},
        {str(n): "" for n in range(51)},
        {"k": 1},
    ],
)
def test_tags_that_are_none(
    endpoint: Endpoint, arns: dict[str, str], wrong: dict[str, str]
) -> None:
    """5.4; and wherever tags are given."""
    assert post(endpoint, f"/v1/tags/{arns['job-queue']}", {"tags": wrong})[0] == 400
    for path, request in (
        ("createschedulingpolicy", {"name": "never"}),
        ("createconsumableresource", {"consumableResourceName": "never"}),
        (
            "createcomputeenvironment",
            {"computeEnvironmentName": "never", "type": "UNMANAGED", "serviceRole": "r"},
        ),
    ):
        assert post(endpoint, f"/v1/{path}", {**request, "tags": wrong})[0] == 400
    assert tags(endpoint, arns["job-queue"]) == {"made": "here"}


def test_children_have_no_tags(endpoint: Endpoint) -> None:
    """2: the parent's do not go to its children, and children take none."""
    array = endpoint.run("true", arrayProperties={"size": 2}, tags={"a": "b"})
    arn = endpoint.job(array)["jobArn"]
    assert tags(endpoint, arn) == {"a": "b"}
    assert endpoint.job(f"{array}:0")["tags"] == {}
    with refused("children"):
        endpoint.batch.tag_resource(resourceArn=f"{arn}:0", tags={"a": "b"})


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:batch:us-east-1:123456789012:job-queue/nobody",
        "arn:aws:batch:us-east-1:123456789012:stop/x",
        "arn:aws:batch:us-east-1:123456789012:job-queue/",
        "arn:aws:sqs:us-east-1:123456789012:job-queue/queue",
        "arn:aws:batch",
        "queue",
    ],
)
def test_arns_of_nothing(endpoint: Endpoint, arn: str) -> None:
    for call in (
        lambda: endpoint.batch.tag_resource(resourceArn=arn, tags={"a": "b"}),
        lambda: endpoint.batch.untag_resource(resourceArn=arn, tagKeys=["a"]),
        lambda: tags(endpoint, arn),
    ):
        with refused():
            call()


def test_untag_needs_keys(endpoint: Endpoint, arns: dict[str, str]) -> None:
    status, answer = post(endpoint, f"/v1/tags/{arns['job-queue']}", b"", method="DELETE")
    assert (status, answer["message"]) == (400, "tagKeys must not be null")
    many = "&".join(f"tagKeys={number}" for number in range(51))
    assert post(endpoint, f"/v1/tags/{arns['job-queue']}?{many}", b"", method="DELETE")[0] == 400
