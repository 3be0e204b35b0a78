"""SubmitJob: parameters, overrides, resources, names and sizes (facts, 5 and 6). The numbers are
of the facts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from emulator_answers import held_to_account, post, refused
from emulator_endpoint import Endpoint

DEPRECATED = (
    "This value was submitted in a deprecated key and may conflict with the value provided by the "
    "job definition's resource requirements."
)


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    yield from held_to_account(endpoint)


@pytest.fixture(scope="module")
def shared(endpoint: Endpoint) -> str:
    """A queue with a scheduling policy."""
    arn = endpoint.batch.create_scheduling_policy(name="policy")["arn"]
    return endpoint.queue("shared", "cpu", schedulingPolicyArn=arn)


@pytest.fixture(scope="module")
def off(endpoint: Endpoint) -> str:
    """A queue on which nothing ever starts."""
    endpoint.queue("off", endpoint.environment("off"))
    endpoint.batch.update_compute_environment(computeEnvironment="off", state="DISABLED")
    return "off"


def lines(endpoint: Endpoint, job_id: str) -> list[str]:
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    return endpoint.output(job_id)


def variables(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


# -- parameters (5.1) -----------------------------------------------------------------------------


def test_a_parameter_of_the_submission_beats_that_of_the_definition(endpoint: Endpoint) -> None:
    """5.1: defaults, overlaid by what SubmitJob gives; several in one word, and within a word."""
    definition = endpoint.definition(
        "greets",
        "echo",
        "Ref::one",
        "x=Ref::two;Ref::three",
        parameters={"one": "1", "two": "2", "three": "3"},
    )
    assert lines(endpoint, endpoint.submit(definition)) == ["1 x=2;3"]
    job_id = endpoint.submit(definition, parameters={"two": "zwei", "four": "vier"})
    assert lines(endpoint, job_id) == ["1 x=zwei;3"]
    assert endpoint.job(job_id)["parameters"] == {
        "one": "1",
        "two": "zwei",
        "three": "3",
        "four": "vier",
    }
    assert endpoint.job(job_id)["container"]["command"] == [
        "echo",
        "Ref::one",
        "x=Ref::two;Ref::three",
    ]


def test_a_parameter_that_nobody_gives_stays_as_it_is(endpoint: Endpoint) -> None:
    """5.1, a choice: AWS does not say what it does."""
    assert lines(endpoint, endpoint.run("echo", "Ref::nobody", parameters={"somebody": "x"})) == [
        "Ref::nobody"
    ]


def test_parameters_are_for_the_command_alone(endpoint: Endpoint) -> None:
    """5.1: not for variables (nor image, volumes, role); also in the command of an override."""
    definition = endpoint.definition(
        "refers", "echo", container={"environment": variables(A="Ref::x")}
    )
    job_id = endpoint.submit(
        definition,
        parameters={"x": "value"},
        containerOverrides={
            "command": ["sh", "-c", 'echo "$A $B" Ref::x'],
            "environment": variables(B="Ref::x"),
        },
    )
    assert lines(endpoint, job_id) == ["Ref::x Ref::x value"]


def test_a_value_is_not_looked_at_again(endpoint: Endpoint) -> None:
    """5.1: what a parameter stands for is text, whatever it looks like."""
    job_id = endpoint.run("echo", "Ref::a", parameters={"a": "Ref::b $HOME *", "b": "no"})
    assert lines(endpoint, job_id) == ["Ref::b $HOME *"]


def test_no_shell_reads_the_command(endpoint: Endpoint) -> None:
    """5.1: neither $VAR nor $(VAR) nor a semicolon mean anything without a shell."""
    assert lines(endpoint, endpoint.run("echo", "$HOME", "$(HOME)", "a;b", "  c")) == [
        "$HOME $(HOME) a;b   c"
    ]


# -- overrides (5.2) ------------------------------------------------------------------------------


def test_a_command_replaces_and_variables_merge(endpoint: Endpoint) -> None:
    """5.2: the command as a whole, variables by name."""
    definition = endpoint.definition(
        "says", "echo", "old", container={"environment": variables(A="1", B="2")}
    )
    job_id = endpoint.submit(
        definition,
        containerOverrides={
            "command": ["sh", "-c", "echo $A $B $C"],
            "environment": variables(B="zwei", C="drei"),
        },
    )
    assert lines(endpoint, job_id) == ["1 zwei drei"]
    container = endpoint.job(job_id)["container"]
    assert sorted(
        (variable["name"], variable["value"]) for variable in container["environment"]
    ) == [
        ("A", "1"),
        ("B", "zwei"),
        ("C", "drei"),
    ]
    assert container["image"] == "busybox"


def test_requirements_merge_by_type(endpoint: Endpoint, off: str) -> None:
    """5.2: only the type that is named changes."""
    definition = endpoint.definition("needs", "true", vcpus=2, memory_mib=128)
    overrides = {
        "resourceRequirements": [{"type": "MEMORY", "value": "256"}, {"type": "GPU", "value": "1"}]
    }
    container = endpoint.job(endpoint.submit(definition, off, containerOverrides=overrides))[
        "container"
    ]
    amounts = {
        requirement["type"]: requirement["value"]
        for requirement in container["resourceRequirements"]
    }
    assert amounts == {"VCPU": "2", "MEMORY": "256", "GPU": "1"}


@pytest.mark.parametrize(
    "overrides", [{"vcpus": 2}, {"memory": 128}, {"vcpus": 2, "memory": 128}], ids=str
)
def test_deprecated_keys_against_requirements(
    endpoint: Endpoint, overrides: dict[str, int]
) -> None:
    """5.2: AWS refuses or ignores them; here they are refused, with its text."""
    definition = endpoint.definition("modern", "true")
    with refused(DEPRECATED):
        endpoint.submit(definition, containerOverrides=overrides)


def test_deprecated_keys_against_deprecated_keys(endpoint: Endpoint, off: str) -> None:
    """5.2: they act on definitions that use them; a requirement beats them."""
    container = {"vcpus": 1, "memory": 64, "resourceRequirements": []}
    definition = endpoint.definition("old-fashioned", "true", container=container)
    job = endpoint.job(
        endpoint.submit(definition, off, containerOverrides={"vcpus": 3, "memory": 32})
    )
    assert (job["container"]["vcpus"], job["container"]["memory"]) == (3, 32)
    overrides = {"resourceRequirements": [{"type": "VCPU", "value": "64"}]}
    stuck = endpoint.submit(definition, containerOverrides=overrides)
    assert (
        endpoint.wait(stuck, "RUNNABLE")["container"]["resourceRequirements"]
        == overrides["resourceRequirements"]
    )
    endpoint.batch.terminate_job(jobId=stuck, reason="has been seen")


REFUSED_OVERRIDES = {
    "5.2 an empty string in the command": ({"command": ["echo", ""]}, "empty strings"),
    "5.2 an instance type is for several nodes": ({"instanceType": "m6i.large"}, "instanceType"),
    "3 a reserved variable": ({"environment": variables(AWS_BATCH_JOB_ID="x")}, "AWS_BATCH"),
    "5.2 a variable without a name": ({"environment": [{"value": "x"}]}, "must have a name"),
    "5.2 a NUL in a variable": ({"environment": variables(A="a\0b")}, "should be a string"),
    "5.3 no whole VCPU": (
        {"resourceRequirements": [{"type": "VCPU", "value": "0.5"}]},
        "Value 0.5 for type VCPU in resourceRequirement is not valid.",
    ),
    "5.3 less than 4 MiB": (
        {"resourceRequirements": [{"type": "MEMORY", "value": "3"}]},
        "Memory must be at least 4 Mib, got 3 Mib.",
    ),
    "5.3 no GPU is none": (
        {"resourceRequirements": [{"type": "GPU", "value": "0"}]},
        "GPU must be",
    ),
    "5.3 a number where a string belongs": (
        {"resourceRequirements": [{"type": "VCPU", "value": 1}]},
        "a string",
    ),
    "5.3 a type that is none": (
        {"resourceRequirements": [{"type": "TPU", "value": "1"}]},
        "GPU, VCPU, MEMORY",
    ),
}


@pytest.mark.parametrize("case", REFUSED_OVERRIDES)
def test_what_no_override_can_be(endpoint: Endpoint, case: str) -> None:
    overrides, text = REFUSED_OVERRIDES[case]
    definition = endpoint.definition("overridden", "true")
    request = {
        "jobName": "never",
        "jobQueue": "queue",
        "jobDefinition": definition,
        "containerOverrides": overrides,
    }
    status, answer = post(endpoint, "/v1/submitjob", request)
    assert status == 400
    assert text in answer["message"]


def test_nothing_else_can_be_overridden(endpoint: Endpoint) -> None:
    """5.2: image, roles, volumes, log configuration. AWS passes over members that it does not
    know."""
    definition = endpoint.definition("fixed", "true")
    overrides = {
        "image": "other",
        "jobRoleArn": "r",
        "volumes": [],
        "logConfiguration": {"logDriver": "syslog"},
    }
    request = {
        "jobName": "same",
        "jobQueue": "queue",
        "jobDefinition": definition,
        "containerOverrides": overrides,
    }
    status, answer = post(endpoint, "/v1/submitjob", request)
    assert status == 200
    container = endpoint.wait(answer["jobId"])["container"]
    assert container["image"] == "busybox"
    assert "jobRoleArn" not in container and "logConfiguration" not in container


def test_overrides_of_ecs_properties(endpoint: Endpoint) -> None:
    """5.2: ecsPropertiesOverride for ecsProperties, containerOverrides for containerProperties;
    by the name."""
    requirements = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["echo", "old"],
        "resourceRequirements": requirements,
    }
    endpoint.batch.register_job_definition(
        jobDefinitionName="task",
        type="container",
        ecsProperties={"taskProperties": [{"containers": [container]}]},
    )

    def override(*containers: dict[str, Any]) -> dict[str, Any]:
        return {"taskProperties": [{"containers": list(containers)}]}

    assert lines(endpoint, endpoint.submit("task")) == ["old"]
    new = {"name": "main", "command": ["sh", "-c", "echo $A"], "environment": variables(A="new")}
    assert lines(endpoint, endpoint.submit("task", ecsPropertiesOverride=override(new))) == ["new"]
    with refused("named 'main'"):
        endpoint.submit("task", ecsPropertiesOverride=override({**new, "name": "other"}))
    with refused("named 'main'"):
        endpoint.submit("task", ecsPropertiesOverride=override(new, new))
    with refused("use ecsPropertiesOverride"):
        endpoint.submit("task", containerOverrides={"command": ["true"]})
    with refused("use containerOverrides"):
        endpoint.run("true", ecsPropertiesOverride=override(new))
    for member in ("nodeOverrides", "eksPropertiesOverride"):
        with refused(member):
            endpoint.run("true", **{member: {}})


# -- resources (5.3) ------------------------------------------------------------------------------


def test_memory_is_a_hard_limit(endpoint: Endpoint) -> None:
    """5.3: above it the container is killed."""
    eat = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    job = endpoint.wait(
        endpoint.submit(endpoint.definition("eats", "python3", "-c", eat, memory_mib=32))
    )
    assert job["status"] == "FAILED"
    assert job["container"]["exitCode"] == 137
    assert job["container"]["reason"] == "OutOfMemoryError: Container killed due to memory usage"


def test_platforms_do_not_mix(endpoint: Endpoint) -> None:
    """5.4 and 7: a definition for Fargate goes to a queue on Fargate, and runs there."""
    endpoint.batch.create_compute_environment(
        computeEnvironmentName="fargate",
        type="MANAGED",
        computeResources={
            "type": "FARGATE",
            "maxvCpus": 4,
            "subnets": ["subnet-0a"],
            "securityGroupIds": ["sg-0a"],
        },
    )
    endpoint.queue("fargate", "fargate")
    assert (
        endpoint.batch.describe_job_queues(jobQueues=["fargate"])["jobQueues"][0]["jobQueueType"]
        == "ECS_FARGATE"
    )
    requirements = [{"type": "VCPU", "value": "0.25"}, {"type": "MEMORY", "value": "512"}]
    container = {
        "executionRoleArn": "arn:aws:iam::123456789012:role/e",
        "resourceRequirements": requirements,
    }
    definition = endpoint.definition(
        "for-fargate", "true", container=container, platformCapabilities=["FARGATE"]
    )
    job = endpoint.wait(endpoint.submit(definition, "fargate"))
    assert (job["status"], job["platformCapabilities"]) == ("SUCCEEDED", ["FARGATE"])
    with refused("platformCapabilities"):
        endpoint.submit(definition, "queue")
    with refused("platformCapabilities"):
        endpoint.run("true", queue="fargate")
    with refused("Fargate resource requirements (0.25 vCPU, 600 MiB) not valid."):
        overrides = {"resourceRequirements": [{"type": "MEMORY", "value": "600"}]}
        endpoint.submit(definition, "fargate", containerOverrides=overrides)


# -- names, ids, sizes (5.4) ----------------------------------------------------------------------


def test_the_answer_to_a_submission(endpoint: Endpoint) -> None:
    """5.4: jobArn, jobName, jobId; and there is no token, so the same call makes a second job."""
    definition = endpoint.definition("answered", "true")
    request = {"jobName": "a" * 128, "jobQueue": "queue", "jobDefinition": definition}
    first, second = (endpoint.batch.submit_job(**request) for _ in range(2))
    assert set(first) - {"ResponseMetadata"} == {"jobArn", "jobName", "jobId"}
    assert re.fullmatch(r"[a-f0-9]{8}(-[a-f0-9]{4}){3}-[a-f0-9]{12}", first["jobId"])
    assert first["jobArn"] == f"arn:aws:batch:us-east-1:123456789012:job/{first['jobId']}"
    assert first["jobName"] == "a" * 128
    assert first["jobId"] != second["jobId"]


@pytest.mark.parametrize("name", ["", "-a", "_a", "a b", "a.b", "ä", "a" * 129, "a:b", "a\n"])
def test_names_that_are_none(endpoint: Endpoint, name: str) -> None:
    """5.4."""
    with refused("jobName"):
        endpoint.run("true", name=name)


def test_the_newest_active_revision_is_meant(endpoint: Endpoint, off: str) -> None:
    """5.4: by name, name:revision, ARN with and without revision."""
    for number in range(3):
        endpoint.definition("meant", "echo", str(number))
    endpoint.batch.deregister_job_definition(jobDefinition="meant:3")
    arn = "arn:aws:batch:us-east-1:123456789012:job-definition/meant"
    for name, revision in (
        ("meant", 2),
        ("meant:1", 1),
        (arn, 2),
        (f"{arn}:1", 1),
        (f"{arn}:2", 2),
    ):
        assert endpoint.job(endpoint.submit(name, off))["jobDefinition"] == f"{arn}:{revision}"
    elsewhere = arn.replace("us-east-1", "eu-west-1")
    for name in ("meant:3", "meant:4", "nobody", f"{arn}:4", elsewhere, ""):
        with refused(f"JobDefinition name {name} does not exist or is not in ACTIVE status"):
            endpoint.submit(name, off)
    for number in (1, 2):
        endpoint.batch.deregister_job_definition(jobDefinition=f"meant:{number}")
    with refused("JobDefinition name meant does not exist or is not in ACTIVE status"):
        endpoint.submit("meant", off)


def test_queues_that_are_none(endpoint: Endpoint) -> None:
    """5.4, 7: one that is not there, and one that is disabled; by name or ARN."""
    definition = endpoint.definition("sent", "true")
    arn = "arn:aws:batch:us-east-1:123456789012:job-queue/queue"
    assert endpoint.wait(endpoint.submit(definition, arn))["jobQueue"] == arn
    with refused("JobQueue nowhere not found."):
        endpoint.submit(definition, "nowhere")
    endpoint.queue("closed", "cpu", state="DISABLED")
    with refused("DISABLED"):
        endpoint.submit(definition, "closed")


def test_a_submission_of_30_kib(endpoint: Endpoint, off: str) -> None:
    """5.4 and 6: 30 KiB of compact JSON are taken, a byte more is not; with AWS's text around
    AWS's words."""
    definition = endpoint.definition("sized", "true")
    request = {
        "jobName": "j",
        "jobQueue": off,
        "jobDefinition": definition,
        "parameters": {"p": ""},
    }
    empty = len('{"jobName":"j","jobQueue":"off","jobDefinition":"","parameters":{"p":""}}') + len(
        definition
    )
    endpoint.batch.submit_job(**{**request, "parameters": {"p": "x" * (30 * 1024 - empty)}})
    with refused(
        "Error executing request, Exception : Job size must be less than 30 KiB, got 31 KiB, "
        "RequestId: "
    ):
        endpoint.batch.submit_job(**{**request, "parameters": {"p": "x" * (30 * 1024 - empty + 1)}})
    with refused("got 40 KiB"):
        endpoint.batch.submit_job(**{**request, "parameters": {"p": "x" * 40_000}})


def test_overrides_of_more_than_8192_characters(endpoint: Endpoint) -> None:
    """5.4: the job is taken, and fails when it is dispatched. A little less is good."""
    definition = endpoint.definition("long", "true")
    job = endpoint.wait(
        endpoint.submit(definition, containerOverrides={"environment": variables(A="x" * 8192)})
    )
    assert (job["status"], job["statusReason"]) == (
        "FAILED",
        "Container Overrides length must be at most 8192",
    )
    assert "exitCode" not in job["container"]
    job = endpoint.wait(
        endpoint.submit(definition, containerOverrides={"environment": variables(A="x" * 8100)})
    )
    assert job["status"] == "SUCCEEDED"


def test_twenty_dependencies(endpoint: Endpoint, off: str) -> None:
    """5.4 and 6: with AWS's text. 1.7: a dependency that nobody knows is refused, which is a
    choice."""
    definition = endpoint.definition("waits", "true")
    ids = [endpoint.submit(definition, off) for _ in range(21)]
    job_id = endpoint.submit(
        definition, off, dependsOn=[{"jobId": dependency_id} for dependency_id in ids[:20]]
    )
    assert len(endpoint.job(job_id)["dependsOn"]) == 20
    with refused("Job cannot have more than 20 dependencies"):
        endpoint.submit(
            definition, off, dependsOn=[{"jobId": dependency_id} for dependency_id in ids]
        )
    for wrong in ({"jobId": "x"}, {"jobId": ids[0] + ":0"}, {"jobId": ""}, {}, {"type": "N_TO_N"}):
        with refused("Error executing request, Exception : ", ", RequestId: "):
            endpoint.submit(definition, off, dependsOn=[wrong])


def test_a_dependency_on_a_child_of_5000_digits(endpoint: Endpoint, off: str) -> None:
    """1.7: however long a number is, it is answered."""
    array = endpoint.run("true", queue=off, arrayProperties={"size": 2})
    with refused("no job has the id"):
        endpoint.run("true", queue=off, dependsOn=[{"jobId": f"{array}:{'9' * 5000}"}])


@pytest.mark.parametrize("size", [0, 1, -1, 10_001, 2**31 - 1])
def test_sizes_that_no_array_has(endpoint: Endpoint, size: int) -> None:
    """6 and 2: 2 to 10,000."""
    with refused("between 2 and 10000"):
        endpoint.run("true", arrayProperties={"size": size})


def test_the_largest_array(endpoint: Endpoint, off: str) -> None:
    """6."""
    array = endpoint.run("true", queue=off, arrayProperties={"size": 10_000})
    assert endpoint.job(array)["arrayProperties"]["statusSummary"]["RUNNABLE"] == 10_000


def test_submissions_are_not_slowed_down(endpoint: Endpoint, off: str) -> None:
    """6, a choice: AWS takes 50 a second, and answers the rest with an error; here none is."""
    definition = endpoint.definition("fast", "true")
    assert len({endpoint.submit(definition, off) for _ in range(75)}) == 75


def test_fifty_tags(endpoint: Endpoint, off: str) -> None:
    """5.4: 50 tags, keys of 128, values of 256."""
    definition = endpoint.definition("tagged", "true")
    most = {f"{number:0128}": "v" * 256 for number in range(50)}
    job_id = endpoint.submit(definition, off, tags=most)
    assert endpoint.job(job_id)["tags"] == most
    for wrong in (
        {str(number): "" for number in range(51)},
        {"k" * 129: ""},
        {"k": "v" * 257},
        {"aws:mine": ""},
        {"": "v"},
    ):
        request = {"jobName": "j", "jobQueue": off, "jobDefinition": definition, "tags": wrong}
        status, answer = post(endpoint, "/v1/submitjob", request)
        assert status == 400, answer


def test_more_than_fifty_tags_at_the_task(endpoint: Endpoint) -> None:
    """5.4: with propagateTags the job's and the definition's count together, and the job fails;
    SubmitJob's word beats that of the definition."""
    many = {f"d{number}": "" for number in range(40)}
    definition = endpoint.definition("many-tags", "true", tags=many, propagateTags=True)
    other = {f"j{number}": "" for number in range(11)}
    job = endpoint.wait(endpoint.submit(definition, tags=other))
    assert job["status"] == "FAILED"
    assert "50 tags" in job["statusReason"]
    assert (
        endpoint.wait(endpoint.submit(definition, tags=other, propagateTags=False))["status"]
        == "SUCCEEDED"
    )
    # A tag that both have is the job's, and counts once.
    same = {f"d{number}": "job" for number in range(40)}
    job = endpoint.wait(endpoint.submit(definition, tags=same))
    assert (job["status"], job["tags"], job["propagateTags"]) == ("SUCCEEDED", same, True)


def test_a_share_where_there_is_a_policy(endpoint: Endpoint, shared: str) -> None:
    """5.4: required with a policy, forbidden without; letters and digits, 255 at most."""
    definition = endpoint.definition("sharing", "true")
    job_id = endpoint.submit(definition, shared, shareIdentifier="A1" + "x" * 253)
    assert endpoint.wait(job_id)["shareIdentifier"] == "A1" + "x" * 253
    with refused("shareIdentifier must be provided"):
        endpoint.submit(definition, shared)
    with refused("shareIdentifier must be provided"):
        endpoint.submit(definition, shared, shareIdentifier="")
    with refused("shareIdentifier must not be provided"):
        endpoint.submit(definition, shareIdentifier="a")
    for wrong in ("x" * 256, "a-b", "a b", "ä", "a/b"):
        with refused("255 letters and digits"):
            endpoint.submit(definition, shared, shareIdentifier=wrong)


def test_priorities(endpoint: Endpoint, shared: str, off: str) -> None:
    """5.4: 0 to 9999; that of the submission beats that of the definition. A choice: in a queue
    without a policy it is taken and changes nothing, as AWS only says that it affects queues
    with one."""
    definition = endpoint.definition("urgent", "true", schedulingPriority=7)
    assert (
        endpoint.job(endpoint.submit(definition, shared, shareIdentifier="a"))["schedulingPriority"]
        == 7
    )
    for priority in (0, 9999):
        job_id = endpoint.submit(
            definition, shared, shareIdentifier="a", schedulingPriorityOverride=priority
        )
        assert endpoint.job(job_id)["schedulingPriority"] == priority
        assert (
            endpoint.job(endpoint.submit(definition, off, schedulingPriorityOverride=priority))[
                "status"
            ]
            == "RUNNABLE"
        )
    for priority in (-1, 10_000):
        with refused("between 0 and 9999"):
            endpoint.submit(
                definition, shared, shareIdentifier="a", schedulingPriorityOverride=priority
            )


@pytest.mark.slow
def test_a_queue_has_500_active_shares(endpoint: Endpoint) -> None:
    """6: the 501st is refused; one that is active already is not, and a share is free again when
    its jobs are over."""
    arn = endpoint.batch.create_scheduling_policy(name="crowd")["arn"]
    endpoint.environment("crowd-off")
    endpoint.queue("crowd", "crowd-off", schedulingPolicyArn=arn)
    endpoint.batch.update_compute_environment(computeEnvironment="crowd-off", state="DISABLED")
    definition = endpoint.definition("crowded", "true")
    ids = [
        endpoint.submit(definition, "crowd", shareIdentifier=f"s{number}") for number in range(500)
    ]
    with refused("500 active share identifiers"):
        endpoint.submit(definition, "crowd", shareIdentifier="one")
    endpoint.submit(definition, "crowd", shareIdentifier="s0")
    endpoint.batch.terminate_job(jobId=ids[1], reason="makes room")
    endpoint.wait(ids[1])
    endpoint.submit(definition, "crowd", shareIdentifier="one")


def test_what_a_job_has_of_its_definition(endpoint: Endpoint, off: str) -> None:
    """1.3 and 1.5: a retry strategy or a timeout of the submission replaces that of the
    definition."""
    definition = endpoint.definition(
        "inherits",
        "true",
        timeout={"attemptDurationSeconds": 60},
        retryStrategy={"attempts": 3, "evaluateOnExit": [{"onExitCode": "1", "action": "EXIT"}]},
    )
    job = endpoint.job(endpoint.submit(definition, off))
    assert job["timeout"] == {"attemptDurationSeconds": 60}
    assert job["retryStrategy"] == {
        "attempts": 3,
        "evaluateOnExit": [{"onExitCode": "1", "action": "exit"}],
    }
    job = endpoint.job(
        endpoint.submit(
            definition, off, timeout={"attemptDurationSeconds": 90}, retryStrategy={"attempts": 2}
        )
    )
    assert (job["timeout"], job["retryStrategy"]) == (
        {"attemptDurationSeconds": 90},
        {"attempts": 2, "evaluateOnExit": []},
    )


# -- bad input of any kind ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"17",
        b'"x"',
        b"\xff\xfe",
        b"{} {}",
        b'{"jobName": NaN}',
        b"[" * 100_000,
        b'{"a":' * 9999,
    ],
    ids=lambda body: repr(body[:12]),
)
@pytest.mark.parametrize("path", ["submitjob", "listjobs", "createjobqueue"])
def test_bodies_that_are_none(endpoint: Endpoint, path: str, body: bytes) -> None:
    status, answer = post(endpoint, f"/v1/{path}", body)
    assert status == 400
    assert answer["message"]
