"""Job definitions by boto3: revisions, and what may be in one (facts, 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from emulator_answers import held_to_account, post, refused
from emulator_endpoint import Endpoint

VCPU, MEMORY = {"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}
CONTAINER: dict[str, Any] = {
    "image": "busybox",
    "command": ["true"],
    "resourceRequirements": [VCPU, MEMORY],
}
NO_ENTRIES: dict[str, Any] = {
    name: [] for name in ("environment", "mountPoints", "volumes", "ulimits", "secrets")
}
ROLE = "arn:aws:iam::123456789012:role/execution"


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    yield from held_to_account(endpoint)


def register(
    endpoint: Endpoint, name: str = "any", container: dict[str, Any] | None = None, **members: Any
) -> Any:
    request = {
        "jobDefinitionName": name,
        "type": "container",
        "containerProperties": container or CONTAINER,
    }
    return endpoint.batch.register_job_definition(**{**request, **members})


def described(endpoint: Endpoint, **request: Any) -> Any:
    return endpoint.batch.describe_job_definitions(**request)["jobDefinitions"]


def needing(**amounts: str) -> dict[str, Any]:
    return {
        **CONTAINER,
        "resourceRequirements": [{"type": kind, "value": value} for kind, value in amounts.items()],
    }


# -- revisions ------------------------------------------------------------------------------------


def test_revisions_go_up_by_one_and_none_comes_back(endpoint: Endpoint) -> None:
    """5.4: they start at 1; also behind one that is INACTIVE."""
    arn = "arn:aws:batch:us-east-1:123456789012:job-definition/counted"
    for number in (1, 2):
        answer = register(endpoint, "counted", parameters={"n": str(number)})
        assert (answer["jobDefinitionName"], answer["revision"]) == ("counted", number)
        assert answer["jobDefinitionArn"] == f"{arn}:{number}"
    endpoint.batch.deregister_job_definition(jobDefinition="counted:2")
    endpoint.batch.deregister_job_definition(jobDefinition=f"{arn}:1")
    assert [
        definition["status"] for definition in described(endpoint, jobDefinitionName="counted")
    ] == [
        "INACTIVE",
        "INACTIVE",
    ]
    assert register(endpoint, "counted")["revision"] == 3


def test_one_as_it_is_described(endpoint: Endpoint) -> None:
    """5.4. A definition that names no platform is for EC2, and is described without one."""
    register(
        endpoint, "plain", tags={"a": "b"}, schedulingPriority=9999, retryStrategy={"attempts": 10}
    )
    (definition,) = described(endpoint, jobDefinitions=["plain:1"])
    assert definition == {
        "jobDefinitionName": "plain",
        "jobDefinitionArn": "arn:aws:batch:us-east-1:123456789012:job-definition/plain:1",
        "revision": 1,
        "status": "ACTIVE",
        "type": "container",
        "parameters": {},
        "containerProperties": {**CONTAINER, **NO_ENTRIES},
        "tags": {"a": "b"},
        "schedulingPriority": 9999,
        "retryStrategy": {"attempts": 10, "evaluateOnExit": []},
        "containerOrchestrationType": "ECS",
    }


def test_describe_by_name_revision_arn_and_status(endpoint: Endpoint) -> None:
    """6: the filter `status`, at most 100 names, pages of 1 to 100."""
    for _ in range(3):
        register(endpoint, "looked-for")
    endpoint.batch.deregister_job_definition(jobDefinition="looked-for:2")
    for status, revisions in (("ACTIVE", [3, 1]), ("INACTIVE", [2])):
        definitions = described(endpoint, jobDefinitionName="looked-for", status=status)
        assert [definition["revision"] for definition in definitions] == revisions
    arn = "arn:aws:batch:us-east-1:123456789012:job-definition/looked-for"
    assert [
        definition["revision"]
        for definition in described(endpoint, jobDefinitions=[f"{arn}:1", "looked-for:3"])
    ] == [3, 1]
    first = endpoint.batch.describe_job_definitions(jobDefinitionName="looked-for", maxResults=2)
    second_page = endpoint.batch.describe_job_definitions(
        jobDefinitionName="looked-for", nextToken=first["nextToken"]
    )
    assert [
        definition["revision"]
        for definition in first["jobDefinitions"] + second_page["jobDefinitions"]
    ] == [
        3,
        2,
        1,
    ]
    assert described(endpoint, jobDefinitions=["nobody:1"]) == []
    with refused("100"):
        described(endpoint, jobDefinitions=["x:1"] * 101)
    with refused("maxResults should be between 1 and 100"):
        described(endpoint, maxResults=101)


def test_a_revision_must_be_named_to_be_deregistered(endpoint: Endpoint) -> None:
    register(endpoint, "kept")
    with refused("a revision must be named"):
        endpoint.batch.deregister_job_definition(jobDefinition="kept")
    assert described(endpoint, jobDefinitionName="kept")[0]["status"] == "ACTIVE"
    endpoint.batch.deregister_job_definition(jobDefinition="kept:99")


# -- what may be in one ---------------------------------------------------------------------------

REFUSED_DEFINITIONS = {
    "5.3 the value is a string": (
        {"resourceRequirements": [{"type": "VCPU", "value": 1}, MEMORY]},
        "a string",
    ),
    "5.3 VCPU is required": ({"resourceRequirements": [MEMORY]}, "vCPU is required."),
    "5.3 MEMORY is required": ({"resourceRequirements": [VCPU]}, "Memory is required."),
    "5.3 at least 1 VCPU": (
        needing(VCPU="0", MEMORY="64"),
        "vCPU must be at least 1, got 0.",
    ),
    "5.3 whole VCPUs on EC2": (
        needing(VCPU="0.5", MEMORY="64"),
        "Value 0.5 for type VCPU in resourceRequirement is not valid.",
    ),
    "5.3 no point in a number": (
        needing(VCPU="1.0", MEMORY="64"),
        "Error executing request, Exception : Value 1.0 for type VCPU in resourceRequirement is "
        "not valid. Please provide a numeric value., RequestId: ",
    ),
    "5.3 at least 4 MiB": (
        needing(VCPU="1", MEMORY="3"),
        "Memory must be at least 4 Mib, got 3 Mib.",
    ),
    "5.3 MEMORY that is no number": (
        needing(VCPU="1", MEMORY="1GiB"),
        "for type MEMORY in resourceRequirement is not valid. Please provide a numeric value.",
    ),
    "5.3 MEMORY that is no number here": (
        needing(VCPU="1", MEMORY="1_000"),
        "for type MEMORY in resourceRequirement is not valid. Please provide a numeric value.",
    ),
    "5.3 MEMORY of 400 digits": (
        needing(VCPU="1", MEMORY="9" * 400),
        "for type MEMORY in resourceRequirement is not valid. Please provide a numeric value.",
    ),
    "5.3 MEMORY of 400 digits and a point": (
        needing(VCPU="1", MEMORY="9" * 400 + ".0"),
        "for type MEMORY in resourceRequirement is not valid. Please provide a numeric value.",
    ),
    "5.3 whole GPUs": (needing(VCPU="1", MEMORY="64", GPU="0.5"), "Value 0.5 for type GPU"),
    "5.3 no GPU is none": (
        needing(VCPU="1", MEMORY="64", GPU="0"),
        "GPU must be at least 1, got 0.",
    ),
    "5.3 one type twice": (
        {"resourceRequirements": [VCPU, VCPU, MEMORY]},
        "Cannot provide duplicates in resourceRequirements.",
    ),
    "5.3 a type that is none": (
        {"resourceRequirements": [VCPU, MEMORY, {"type": "TPU", "value": "1"}]},
        "GPU",
    ),
    "5.3 an image is required": ({"image": ""}, "image"),
    "5.3 an image of 256 characters": ({"image": "i" * 256}, "at most 255"),
    "5.3 a log driver that is none": ({"logConfiguration": {"logDriver": "printer"}}, "awslogs"),
    "5.3 a mount of no volume": (
        {"mountPoints": [{"sourceVolume": "v", "containerPath": "/v"}]},
        "no volume named 'v'",
    ),
    "5.3 a mount of nothing": (
        {"mountPoints": [{"containerPath": "/v"}], "volumes": [{}]},
        "no volume named",
    ),
    "5.3 a mount to nowhere": (
        {"mountPoints": [{"sourceVolume": "v"}], "volumes": [{"name": "v"}]},
        "containerPath",
    ),
    "5.3 secrets need a role": (
        {"secrets": [{"name": "S", "valueFrom": "arn:aws:ssm:us-east-1:123456789012:parameter/s"}]},
        "executionRoleArn must be provided when secrets are specified",
    ),
    "5.3 so do a log driver's": (
        {
            "logConfiguration": {
                "logDriver": "splunk",
                "secretOptions": [{"name": "t", "valueFrom": "arn:x"}],
            }
        },
        "executionRoleArn must be provided",
    ),
    "3 a reserved variable": ({"environment": [{"name": "AWS_BATCH_X", "value": ""}]}, "AWS_BATCH"),
    "5.2 a variable without a name": ({"environment": [{"value": "x"}]}, "must have a name"),
    "5.2 a variable with = in its name": ({"environment": [{"name": "a=b", "value": "x"}]}, "no ="),
    "5.2 a NUL in a word": ({"command": ["a\0b"]}, "command[0] should be a string"),
    "5.2 half of a surrogate pair": ({"command": ["\ud800"]}, ""),
}


@pytest.mark.parametrize("case", REFUSED_DEFINITIONS)
def test_what_no_container_can_be(endpoint: Endpoint, case: str) -> None:
    change, text = REFUSED_DEFINITIONS[case]
    request = {
        "jobDefinitionName": "never",
        "type": "container",
        "containerProperties": {**CONTAINER, **change},
    }
    status, answer = post(endpoint, "/v1/registerjobdefinition", request)
    assert status == 400
    assert text in answer["message"]
    assert described(endpoint, jobDefinitionName="never") == []


REFUSED_REQUESTS = {
    "5.2 neither kind of properties": (
        {"containerProperties": None},
        "containerProperties or ecsProperties",
    ),
    "5.4 a type that is none": ({"type": "pod"}, "container, multinode"),
    "5.4 several nodes are not served": (
        {"type": "multinode"},
        "multinode job definitions are not for it",
    ),
    "5.2 EKS is not served": ({"eksProperties": {}}, "eksProperties is not for it"),
    "5.4 managed instances are not served": (
        {"platformCapabilities": ["MANAGED_INSTANCES"]},
        "MANAGED_INSTANCES",
    ),
    "5.4 two platforms": (
        {"platformCapabilities": ["EC2", "FARGATE"]},
        "Exactly 1 capability must be provided.",
    ),
    "5.4 a platform that is none": ({"platformCapabilities": ["MAINFRAME"]}, "EC2, FARGATE"),
    "5.4 a name with a dot": ({"jobDefinitionName": "a.b"}, "jobDefinitionName"),
    "5.4 a name of 129": ({"jobDefinitionName": "a" * 129}, "jobDefinitionName"),
    "5.4 priority over 9999": ({"schedulingPriority": 10000}, "between 0 and 9999"),
    "5.4 negative priority": ({"schedulingPriority": -1}, "between 0 and 9999"),
    "5.4 51 tags": ({"tags": {str(number): "" for number in range(51)}}, "50"),
    "5.4 a key of 129": ({"tags": {"k" * 129: ""}}, "128"),
    "5.4 a value of 257": ({"tags": {"k": "v" * 257}}, "256"),
    "1.3 eleven attempts": ({"retryStrategy": {"attempts": 11}}, "between 1 and 10"),
    "1.4 six rules": (
        {"retryStrategy": {"attempts": 2, "evaluateOnExit": [{"action": "RETRY"}] * 6}},
        "at most 5",
    ),
    "1.5 a timeout of 59 seconds": ({"timeout": {"attemptDurationSeconds": 59}}, "at least 60"),
    "7.3 a resource that is not there": (
        {
            "consumableResourceProperties": {
                "consumableResourceList": [{"consumableResource": "x", "quantity": 1}]
            }
        },
        "does not exist",
    ),
}


@pytest.mark.parametrize("case", REFUSED_REQUESTS)
def test_what_no_definition_can_be(endpoint: Endpoint, case: str) -> None:
    change, text = REFUSED_REQUESTS[case]
    request = {
        "jobDefinitionName": "never",
        "type": "container",
        "containerProperties": CONTAINER,
        **change,
    }
    status, answer = post(endpoint, "/v1/registerjobdefinition", request)
    assert status == 400
    assert text in answer["message"]
    assert described(endpoint, jobDefinitionName="never") == []


def test_everything_that_a_container_can_have(endpoint: Endpoint) -> None:
    """5.3: the other fields of a container, as they are given so they are described."""
    container = {
        "image": "i" * 255,
        "command": ["echo", "Ref::x"],
        "jobRoleArn": ROLE,
        "executionRoleArn": ROLE,
        "environment": [{"name": "A", "value": "1"}, {"name": "EMPTY"}],
        "resourceRequirements": [*needing(VCPU="4", MEMORY="4", GPU="2")["resourceRequirements"]],
        "linuxParameters": {
            "initProcessEnabled": True,
            "sharedMemorySize": 1024,
            "tmpfs": [{"containerPath": "/t", "size": 8}],
            "devices": [{"hostPath": "/dev/fuse"}],
            "maxSwap": 0,
            "swappiness": 0,
        },
        "privileged": True,
        "readonlyRootFilesystem": True,
        "user": "nobody",
        "ulimits": [{"name": "nofile", "softLimit": 10, "hardLimit": 10}],
        "secrets": [{"name": "S", "valueFrom": "arn:aws:ssm:us-east-1:123456789012:parameter/s"}],
        "volumes": [
            {"name": "host", "host": {"sourcePath": "/data"}},
            {"name": "efs", "efsVolumeConfiguration": {"fileSystemId": "fs-1"}},
        ],
        "mountPoints": [{"sourceVolume": "host", "containerPath": "/data", "readOnly": True}],
        "logConfiguration": {
            "logDriver": "awslogs",
            "options": {"awslogs-group": "/mine"},
            "secretOptions": [],
        },
    }
    register(endpoint, "everything", container)
    assert (
        described(endpoint, jobDefinitionName="everything")[0]["containerProperties"] == container
    )


def test_the_old_keys_of_a_container(endpoint: Endpoint) -> None:
    """5.2: vcpus and memory are deprecated, and still good."""
    register(
        endpoint, "old-keys", {"image": "busybox", "command": ["true"], "vcpus": 1, "memory": 64}
    )
    assert endpoint.wait(endpoint.submit("old-keys"))["status"] == "SUCCEEDED"


def test_a_definition_of_24_kib_and_one_of_more(endpoint: Endpoint) -> None:
    """5.4 and 6."""
    register(endpoint, "large", {**CONTAINER, "command": ["x" * (24 * 1024 - 300)]})
    with refused("24 KiB"):
        register(endpoint, "larger", {**CONTAINER, "command": ["x" * 24 * 1024]})
    # Bytes count, not the characters of some notation: each of these has two.
    register(endpoint, "umlauts", {**CONTAINER, "command": ["ä" * 12 * 1000]})
    with refused("24 KiB"):
        register(endpoint, "more-umlauts", {**CONTAINER, "command": ["ä" * 12 * 1024]})


# -- Fargate (5.3) --------------------------------------------------------------------------------

PAIRS = {
    "0.25": [512, 1024, 2048],
    "0.5": range(1024, 4097, 1024),
    "1": range(2048, 8193, 1024),
    "2": range(4096, 16385, 1024),
    "4": range(8192, 30721, 1024),
    "8": range(16384, 61441, 4096),
    "16": range(32768, 122881, 8192),
}


@pytest.mark.parametrize("vcpus", PAIRS)
def test_fargate_has_these_pairs(endpoint: Endpoint, vcpus: str) -> None:
    """5.3: the first and the last of each row, the ones beside them, and what is between two
    steps."""
    sizes = list(PAIRS[vcpus])
    members = {"platformCapabilities": ["FARGATE"]}
    for size in (sizes[0], sizes[1], sizes[-1]):
        container = {**needing(VCPU=vcpus, MEMORY=str(size)), "executionRoleArn": ROLE}
        register(endpoint, "fargate", container, **members)
    step = sizes[-1] - sizes[-2]
    for size in (sizes[0] // 2, sizes[0] + 1, sizes[-1] + step):
        with refused(f"Fargate resource requirements ({float(vcpus):.2f} vCPU, {size} MiB) not"):
            register(
                endpoint,
                "never",
                {**needing(VCPU=vcpus, MEMORY=str(size)), "executionRoleArn": ROLE},
                **members,
            )


def test_what_fargate_asks_for(endpoint: Endpoint) -> None:
    """5.3: an execution role, no GPU, and vCPUs of its own sizes."""
    fargate: dict[str, Any] = {"platformCapabilities": ["FARGATE"]}
    with refused("executionRoleArn"):
        register(endpoint, "never", needing(VCPU="1", MEMORY="2048"), **fargate)
    with refused("GPU"):
        register(endpoint, "never", needing(VCPU="1", MEMORY="2048", GPU="1"), **fargate)
    for vcpus in ("3", "0"):
        with refused(f"Fargate resource requirements ({vcpus}.00 vCPU, 2048 MiB) not valid."):
            register(endpoint, "never", needing(VCPU=vcpus, MEMORY="2048"), **fargate)
    for vcpus in ("nan", "inf", "one", "1e0", "-1"):
        with refused(f"Value {vcpus} for type VCPU in resourceRequirement is not valid."):
            register(endpoint, "never", needing(VCPU=vcpus, MEMORY="2048"), **fargate)
    task = {
        "containers": [{"name": "c", **needing(VCPU="1", MEMORY="2048")}],
        "executionRoleArn": ROLE,
    }
    answer = endpoint.batch.register_job_definition(
        jobDefinitionName="fargate-task",
        type="container",
        ecsProperties={"taskProperties": [task]},
        **fargate,
    )
    assert answer["revision"] == 1


ONLY_EC2 = {
    "privileged": (
        True,
        "Fargate requires that the 'privileged' setting be 'false' at the container level.",
    ),
    "ulimits": (
        [{"name": "nofile", "softLimit": 1, "hardLimit": 1}],
        "ulimits is not applicable for Fargate.",
    ),
    "linuxParameters": (
        {"sharedMemorySize": 64},
        "linuxParameter.sharedMemorySize is not allowed for Fargate.",
    ),
    "volumes": (
        [{"name": "v", "host": {"sourcePath": "/v"}}],
        "host.sourcePath should not be set for volumes in Fargate.",
    ),
    "logConfiguration": (
        {"logDriver": "syslog"},
        "Log driver for Fargate is not valid: syslog",
    ),
    "ephemeralStorage": (
        {"sizeInGiB": 20},
        "Ephemeral storage for Fargate tasks can be only between range 21 GiB to 200 GiB",
    ),
}
ONLY_FARGATE = {
    "networkConfiguration": (
        {"assignPublicIp": "ENABLED"},
        "networkConfiguration not applicable for EC2.",
    ),
    "fargatePlatformConfiguration": (
        {"platformVersion": "LATEST"},
        "fargatePlatformConfiguration not applicable for EC2.",
    ),
    "ephemeralStorage": ({"sizeInGiB": 30}, "ephemeralStorage not applicable for EC2."),
    "runtimePlatform": (
        {"cpuArchitecture": "X86_64"},
        "runtimePlatform is not applicable for EC2.",
    ),
}


@pytest.mark.parametrize("member", ONLY_EC2)
def test_what_fargate_does_not_have(endpoint: Endpoint, member: str) -> None:
    value, text = ONLY_EC2[member]
    container = {**needing(VCPU="1", MEMORY="2048"), "executionRoleArn": ROLE, member: value}
    with refused(f"Error executing request, Exception : {text}, RequestId: "):
        register(endpoint, "never", container, platformCapabilities=["FARGATE"])


@pytest.mark.parametrize("member", ONLY_FARGATE)
def test_what_only_fargate_has(endpoint: Endpoint, member: str) -> None:
    value, text = ONLY_FARGATE[member]
    for members in ({}, {"platformCapabilities": ["EC2"]}):
        with refused(f"Error executing request, Exception : {text}, RequestId: "):
            register(endpoint, "never", {**CONTAINER, member: value}, **members)
    container = {**needing(VCPU="1", MEMORY="2048"), "executionRoleArn": ROLE, member: value}
    register(endpoint, "only-fargate", container, platformCapabilities=["FARGATE"])


# -- ecsProperties (5.2) --------------------------------------------------------------------------

ONE = {"name": "main", **CONTAINER}


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"taskProperties": []}, "exactly one element"),
        ({"taskProperties": [{"containers": [ONE]}] * 2}, "exactly one element"),
        ({"taskProperties": [{"containers": []}]}, "one container"),
        ({"taskProperties": [{"containers": [ONE, {**ONE, "name": "b"}]}]}, "one container"),
        ({"taskProperties": [{"containers": [{**ONE, "essential": False}]}]}, "essential"),
    ],
)
def test_ecs_properties_of_one_container(
    endpoint: Endpoint, properties: dict[str, Any], text: str
) -> None:
    """5.2: one task; AWS takes ten containers, this endpoint one, and says so."""
    with refused(text):
        endpoint.batch.register_job_definition(
            jobDefinitionName="never", type="container", ecsProperties=properties
        )


def test_ecs_properties_exclude_container_properties(endpoint: Endpoint) -> None:
    """5.2."""
    with refused("Cannot use both ECS containerProperties and ecsProperties"):
        register(endpoint, "never", ecsProperties={"taskProperties": [{"containers": [ONE]}]})
