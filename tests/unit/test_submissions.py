"""Jobs as plain JSON: read, checked all at once, put in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchyard import submissions
from batchyard.aws.batch import shape_problems
from batchyard.errors import InputError

QUEUES: dict[str, Any] = {
    "q": {"state": "ENABLED", "jobQueueType": "ECS"},
    "fargate": {"state": "ENABLED", "jobQueueType": "ECS_FARGATE"},
    "fair": {"state": "ENABLED", "schedulingPolicyArn": "arn:..."},
    "off": {"state": "DISABLED"},
}
DEFINITIONS: dict[str, Any] = {
    "d": {"jobDefinitionName": "d", "containerProperties": {}},
    "ecs": {"jobDefinitionName": "ecs", "ecsProperties": {}},
}
#: those outside of the file
JOBS: dict[str, Any] = {
    "id": {"jobName": "one"},
    "id-3": {"jobName": "three", "arrayProperties": {"size": 3, "statusSummary": {}}},
}


def job(name: str, *needs: str, **more: Any) -> dict[str, Any]:
    found = {"jobName": name, "jobQueue": "q", "jobDefinition": "d", **more}
    return {**found, "dependsOn": [{"jobId": need} for need in needs]} if needs else found


def problems(*requests: dict[str, Any], missing: tuple[str, ...] = ()) -> list[str]:
    resources = submissions.AwsResources(QUEUES, DEFINITIONS, JOBS, missing)
    return submissions.find_problems(requests, resources, shape_problems)


def test_one_request_or_several() -> None:
    assert submissions.parse(json.dumps(job("a")), "f") == [job("a")]
    assert submissions.parse(json.dumps({"jobs": [job("a"), job("b")]}), "f") == [
        job("a"),
        job("b"),
    ]
    assert submissions.parse(json.dumps([job("a")]), "f") == [job("a")]


@pytest.mark.parametrize(
    "text", ["", "{", "3", "[]", '{"jobs": []}', '{"jobs": [1]}', '{"jobs": "x"}']
)
def test_what_is_no_file_of_jobs_is_said(text: str) -> None:
    with pytest.raises(InputError, match=r"jobs\.json"):
        submissions.parse(text, "jobs.json")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("name: squares\nsteps: []\n", "squares.yaml"),
        ('{"name": "x", "steps": []}', "squares.json"),
    ],
)
def test_a_pipeline_is_told_where_it_belongs(text: str, where: str) -> None:
    with pytest.raises(InputError, match=f"{where} looks like a pipeline") as caught:
        submissions.parse(text, where)
    assert f"`batchyard run {where} --engine aws" in caught.value.hint
    # What is in a file counts, not its name.
    assert submissions.parse(json.dumps(job("a")), "job.yaml") == [job("a")]


def test_each_comes_after_what_it_names() -> None:
    requests = [job("c", "${a}", "${b}"), job("b", "${a}"), job("a")]
    assert submissions.order(requests, []) == [2, 1, 0]
    assert submissions.replace_references(requests[0], {"a": "1", "b": "2"})["dependsOn"] == [
        {"jobId": "1"},
        {"jobId": "2"},
    ]
    child = job("c", "${a}:3")
    assert submissions.replace_references(child, {"a": "1"})["dependsOn"] == [{"jobId": "1:3"}]
    assert submissions.replace_references(job("a"), {}) == job("a")


def test_names_that_are_not_there_and_circles() -> None:
    missing: list[str] = []
    assert submissions.order([job("a", "${x}")], missing) == []
    assert missing == [
        "jobs[0]: dependsOn names ${x}, and no job of the file has that name",
    ]
    circle: list[str] = []
    assert submissions.order([job("a", "${b}"), job("b", "${a}")], circle) == []
    assert "in a circle: " in circle[0] and len(circle) == 1
    twice: list[str] = []
    assert submissions.order([job("a"), job("a"), job("b", "${a}")], twice) == []
    assert twice == ["jobs[1]: two jobs are named 'a', and another depends on that name"]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    requests = [
        job("bad name"),
        job("b", jobQueue="nowhere"),
        job("c", jobQueue="off"),
        job("d", jobQueue="fair"),
        job("e", shareIdentifier="x"),
        job("f", arrayProperties={"size": 1}),
        job("g", *["id"] * 21),
        job("h", parameters={"p": "x" * 31_000}),
        {"jobName": "i", "jobQueue": "q"},
        job("j", arrayProperties={"size": "many"}),
        job("k", jobDefinition="other:3"),
    ]
    found = problems(*requests)
    for number, part in enumerate(
        (
            "jobName must be",
            "no job queue nowhere",
            "is DISABLED",
            "add shareIdentifier",
            "remove shareIdentifier",
            "2 to 10,000",
            "21 dependencies",
            "bytes",
            "jobDefinition",
            "arrayProperties.size",
            "no job definition other:3",
        )
    ):
        assert any(f"jobs[{number}]" in one and part in one for one in found), (number, part, found)
    # What is no number is said once.
    assert not any("jobs[9]" in one and "2 to 10,000" in one for one in found)


def test_a_right_file_has_no_problems() -> None:
    requests = [
        job("a", arrayProperties={"size": 10}),
        job("b", "${a}", jobQueue="fair", shareIdentifier="x"),
    ]
    assert problems(*requests) == []


@pytest.mark.parametrize(
    ("entries", "size", "words"),
    [
        (
            [{"jobId": "${a}", "type": "N_TO_N"}],
            4,
            "N_TO_N needs two arrays of one size: 'b' has 4 children, 'a' has 3",
        ),
        ([{"jobId": "${a}", "type": "N_TO_N"}], None, "N_TO_N is for array jobs, and 'b' is none"),
        ([{"jobId": "${one}", "type": "N_TO_N"}], 4, "'one' has none"),
        ([{"jobId": "id-3", "type": "N_TO_N"}], 4, "'three' has 3"),
        ([{"jobId": "${a}:1", "type": "N_TO_N"}], 3, "N_TO_N is about a whole array"),
        ([{"type": "N_TO_N"}], 3, "jobId must be provided"),
        ([{}], 3, "jobId must be provided"),
        ([{"jobId": "id", "type": "n_to_n"}], 3, "type must be N_TO_N or SEQUENTIAL"),
        ([{"type": "SEQUENTIAL"}], None, "SEQUENTIAL is for array jobs"),
        (
            [{"jobId": "x${a}y"}],
            None,
            "jobId must be an id, ${name}, or ${name}:index; got 'x${a}y'",
        ),
        ([{"jobId": "${a}${one}"}], None, "jobId must be an id"),
        ([{"jobId": "${a}:3"}], None, "no job has the id ${a}:3"),
        ([{"jobId": "${one}:0"}], None, "no job has the id ${one}:0"),
        ([{"jobId": "gone"}], None, "no job has the id gone"),
        ([{"jobId": "id-3:3"}], None, "no job has the id id-3:3"),
    ],
)
def test_dependencies_that_cannot_be(
    entries: list[dict[str, str]], size: int | None, words: str
) -> None:
    array = {"arrayProperties": {"size": size}} if size else {}
    b = job("b", dependsOn=entries, **array)
    (found,) = problems(b, job("one"), job("a", arrayProperties={"size": 3}))
    assert found.startswith("jobs[0] (b): ") and words in found


def test_dependencies_that_can_be() -> None:
    entries = [
        {"jobId": "${a}", "type": "N_TO_N"},
        {"type": "SEQUENTIAL"},
        {"jobId": "id"},
        {"jobId": "id-3:2"},
    ]
    entries += [{"jobId": "${a}:2"}, {"jobId": "id-3", "type": "N_TO_N"}]
    b = job("b", dependsOn=entries, arrayProperties={"size": 3})
    assert problems(b, job("a", arrayProperties={"size": 3})) == []
    assert submissions.dependencies_of([b, job("c", "${a}")]) == ["id", "id-3"]


def overriding(**overrides: Any) -> dict[str, Any]:
    return {"containerOverrides": overrides}


def retrying(*rules: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"retryStrategy": {"evaluateOnExit": list(rules), **more}}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"timeout": {"attemptDurationSeconds": 59}}, "at least 60"),
        ({"retryStrategy": {"attempts": 0}}, "between 1 and 10"),
        ({"retryStrategy": {"attempts": 11}}, "between 1 and 10"),
        (retrying(*[{"action": "EXIT"}] * 6, attempts=2), "at most 5 entries; got 6"),
        (retrying({"action": "EXIT"}), "RetryAttempts must be provided"),
        (
            retrying({"action": "EXIT", "onReason": "a*b"}, attempts=2),
            "onReason must be at most 512",
        ),
        (
            retrying({"action": "EXIT", "onStatusReason": "a*b"}, attempts=2),
            "onStatusReason must be at most 512",
        ),
        (
            retrying({"action": "EXIT", "onExitCode": "x"}, attempts=2),
            "onExitCode must be at most 512 digits",
        ),
        (retrying({"action": "STOP"}, attempts=2), "action must be RETRY or EXIT"),
        (
            overriding(environment=[{"name": "AWS_BATCH_X", "value": "1"}]),
            "must not start with AWS_BATCH",
        ),
        (overriding(environment=[{"value": "1"}]), "must have a name"),
        (overriding(command=["echo", ""]), "must not have empty strings"),
        (
            overriding(resourceRequirements=[{"type": "DISK", "value": "1"}]),
            "type must be VCPU, MEMORY, GPU",
        ),
        (
            overriding(resourceRequirements=[{"type": "VCPU", "value": "0.5"}]),
            "VCPU must be a whole number",
        ),
        (
            overriding(resourceRequirements=[{"type": "MEMORY", "value": "1GiB"}]),
            "MEMORY must be a whole number",
        ),
        (
            overriding(resourceRequirements=[{"type": "GPU", "value": "0"}]),
            "GPU must be a whole number",
        ),
        (overriding(command=["x" * 8_200]), "characters, and AWS takes 8,192"),
        ({"jobQueue": "fair", "shareIdentifier": "x-y"}, "letters and digits"),
        ({"schedulingPriorityOverride": 10_000}, "between 0 and 9999"),
        ({"tags": {f"t{number}": "" for number in range(51)}}, "at most 50 tags"),
        (
            {"nodeOverrides": {"numNodes": 2}},
            "nodeOverrides needs a job definition with nodeProperties, which d does not have",
        ),
        (
            {"jobDefinition": "ecs", **overriding(command=["x"])},
            "containerOverrides needs a job definition with containerProperties, which ecs",
        ),
        ({"parameters": {"a": "x\0y"}}, r"'x\x00y' has a NUL, or half of a surrogate pair"),
        ({"parameters": {"a": "\ud800"}}, r"'\ud800' has a NUL, or half of a surrogate pair"),
        ({"tags": {"aws:x": ""}}, "does not start with aws:"),
        (
            {
                "consumableResourcePropertiesOverride": {
                    "consumableResourceList": [{"consumableResource": "c"}]
                }
            },
            "quantity",
        ),
    ],
)
def test_what_the_service_alone_would_refuse(members: dict[str, Any], words: str) -> None:
    found = problems(job("a"), job("b", **members))
    assert len(found) == 1 and found[0].startswith("jobs[1] (b): ") and words in found[0], found


def test_what_the_service_takes_is_not_refused() -> None:
    quarter = overriding(resourceRequirements=[{"type": "VCPU", "value": "0.25"}])
    entry = {"consumableResource": "c", "quantity": 1}
    assert not problems(
        job("a", jobQueue="fargate", **quarter),
        job("b", **overriding(resourceRequirements=[{"type": "GPU", "value": "2"}], command=["x"])),
        job("c", **retrying({"action": "retry", "onStatusReason": "Host EC2*"}, attempts=3)),
        job("d", consumableResourcePropertiesOverride={"consumableResourceList": [entry]}),
    )
    assert submissions.consumables_of(
        [job("d", consumableResourcePropertiesOverride={"consumableResourceList": [entry]})]
    )


def test_a_consumable_resource_that_is_not_there() -> None:
    entry = {"consumableResource": "c", "quantity": 1}
    one = job("d", consumableResourcePropertiesOverride={"consumableResourceList": [entry]})
    (found,) = problems(one, missing=("c",))
    assert "there is no consumable resource c" in found


def test_what_is_of_the_wrong_shape_hides_nothing_else() -> None:
    one = job(
        "a",
        tiemout=3,
        timeout={"attemptDurationSeconds": 5},
        tags=[],
        retryStrategy={"attempts": "2"},
    )
    found = problems(one)
    assert len(found) == 4 and any("at least 60" in line for line in found), found


@pytest.mark.parametrize("depth", [60, 5_000, 200_000])
def test_what_is_nested_too_deep_is_a_sentence(depth: int) -> None:
    text = '{"jobs": [' + '{"a":' * depth + "1" + "}" * depth + "]}"
    with pytest.raises(InputError, match="nested more than 50 levels"):
        submissions.parse(text, "f")


def test_a_mark_of_the_byte_order_is_no_text_and_what_is_beside_jobs_is_named() -> None:
    assert submissions.parse("\ufeff" + json.dumps(job("a")), "f") == [job("a")]
    with pytest.raises(InputError, match="beside 'jobs' there is 'jobQueue', 'jobz'"):
        submissions.parse(json.dumps({"jobQueue": "q", "jobs": [job("a")], "jobz": []}), "f")
