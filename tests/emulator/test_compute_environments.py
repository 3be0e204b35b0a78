"""Compute environments by boto3: what may be made, changed and deleted, and what it answers.
Numbers are of the facts.

What an environment does to jobs is in test_placement.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from emulator_answers import held_to_account, post, refused
from emulator_endpoint import Endpoint

EC2 = {
    "type": "EC2",
    "minvCpus": 0,
    "maxvCpus": 16,
    "subnets": ["subnet-0a"],
    "securityGroupIds": ["sg-0a"],
    "instanceRole": "ecsInstanceRole",
}
FARGATE = {
    "type": "FARGATE",
    "maxvCpus": 4,
    "subnets": ["subnet-0a"],
    "securityGroupIds": ["sg-0a"],
}
UNMANAGED_ONLY = "unmanagedvCpus is not applicable for managed Compute Environments"
SERVICE_LINKED = (
    "arn:aws:iam::123456789012:role/aws-service-role/batch.amazonaws.com/AWSServiceRoleForBatch"
)


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    yield from held_to_account(endpoint)


def create(endpoint: Endpoint, name: str, resources: dict[str, Any] | None, **members: Any) -> Any:
    request = {
        "type": "MANAGED",
        **({} if resources is None else {"computeResources": resources}),
        **members,
    }
    return endpoint.batch.create_compute_environment(computeEnvironmentName=name, **request)


def described(endpoint: Endpoint, name: str) -> Any:
    (environment,) = endpoint.batch.describe_compute_environments(computeEnvironments=[name])[
        "computeEnvironments"
    ]
    return environment


def update(endpoint: Endpoint, name: str, **change: Any) -> Any:
    endpoint.batch.update_compute_environment(computeEnvironment=name, **change)
    return described(endpoint, name)


def test_a_managed_one_as_it_is_described(endpoint: Endpoint) -> None:
    """8.1, 8.2 (BEST_FIT where none is given), 8.3 (`optimal` where there are no types), 8.4
    (ECS_AL2023)."""
    arn = "arn:aws:batch:us-east-1:123456789012:compute-environment/managed"
    answer = create(endpoint, "managed", EC2, tags={"team": "a"})
    assert (answer["computeEnvironmentName"], answer["computeEnvironmentArn"]) == ("managed", arn)
    environment = described(endpoint, arn)
    assert re.fullmatch(
        r"arn:aws:ecs:us-east-1:123456789012:cluster/AWSBatch-managed-[0-9a-f-]{36}",
        environment["ecsClusterArn"],
    )
    assert (environment["type"], environment["state"], environment["status"]) == (
        "MANAGED",
        "ENABLED",
        "VALID",
    )
    assert environment["statusReason"] == "ComputeEnvironment Healthy"
    assert environment["serviceRole"] == SERVICE_LINKED
    assert environment["containerOrchestrationType"] == "ECS"
    assert environment["tags"] == {"team": "a"}
    assert environment["updatePolicy"] == {
        "terminateJobsOnUpdate": False,
        "jobExecutionTimeoutMinutes": 30,
    }
    assert environment["computeResources"] == {
        **EC2,
        "allocationStrategy": "BEST_FIT",
        "minvCpus": 0,
        "desiredvCpus": 0,
        "instanceTypes": ["optimal"],
        "ec2Configuration": [{"imageType": "ECS_AL2023"}],
        "tags": {},
    }


def test_gpu_types_get_the_image_with_drivers(endpoint: Endpoint) -> None:
    """8.4: ECS_AL2023_NVIDIA is the default for GPUs."""
    create(endpoint, "with-gpus", {**EC2, "instanceTypes": ["g5"]})
    assert described(endpoint, "with-gpus")["computeResources"]["ec2Configuration"] == [
        {"imageType": "ECS_AL2023_NVIDIA"}
    ]


def test_spot_fargate_and_unmanaged(endpoint: Endpoint) -> None:
    """8.1: the four types of resources, and environments whose instances are the owner's."""
    create(
        endpoint,
        "spot",
        {**EC2, "type": "SPOT", "allocationStrategy": "SPOT_PRICE_CAPACITY_OPTIMIZED"},
    )
    create(endpoint, "fargate", FARGATE)
    create(endpoint, "fargate-spot", {**FARGATE, "type": "FARGATE_SPOT"})
    create(
        endpoint,
        "own",
        None,
        type="UNMANAGED",
        serviceRole="arn:aws:iam::123456789012:role/b",
        unmanagedvCpus=8,
    )
    assert described(endpoint, "spot")["computeResources"]["type"] == "SPOT"
    assert described(endpoint, "fargate")["computeResources"] == FARGATE
    assert described(endpoint, "own")["unmanagedvCpus"] == 8
    assert "computeResources" not in described(endpoint, "own")


def without(*members: str) -> dict[str, Any]:
    return {name: value for name, value in EC2.items() if name not in members}


#: (what computeResources are, what the refusal says)
REFUSED_RESOURCES = {
    "8.1 maxvCpus is required": (without("maxvCpus"), "maxvCpus"),
    "8.1 subnets are required": (without("subnets"), "subnets"),
    "8.1 no subnets": ({**EC2, "subnets": []}, "subnets"),
    "8.1 security groups are required": (
        without("securityGroupIds"),
        "Exception : Security group ids are required., RequestId: ",
    ),
    "8.1 an instance profile is required": (
        without("instanceRole"),
        "Error executing request, Exception : Instance role is required., RequestId: ",
    ),
    "8.1 minvCpus is required": (
        without("minvCpus"),
        "Error executing request, Exception : Resource minvCpus is required., RequestId: ",
    ),
    "8.1 min is not more than max": ({**EC2, "minvCpus": 17}, "minvCpus"),
    "8.1 a negative min": ({**EC2, "minvCpus": -1}, "minvCpus"),
    "8.1 desired is within min and max": (
        {**EC2, "desiredvCpus": 17},
        "desiredvCpus should be between minvCpus and maxvCpus.",
    ),
    "8.1 desired is not less than min": ({**EC2, "minvCpus": 4, "desiredvCpus": 2}, "desiredvCpus"),
    "8.1 a type that is none": ({**EC2, "type": "LAMBDA"}, "type"),
    "8.1 a type that is not served": (
        {**EC2, "type": "ECS_MANAGED_INSTANCES"},
        "ECS_MANAGED_INSTANCES",
    ),
    "8.1 scale-down delay of 19": (
        {**EC2, "scalingPolicy": {"minScaleDownDelayMinutes": 19}},
        "20 and 10080",
    ),
    "8.1 scale-down delay of 10081": (
        {**EC2, "scalingPolicy": {"minScaleDownDelayMinutes": 10081}},
        "20 and 10080",
    ),
    "8.2 a strategy for spot alone": (
        {**EC2, "allocationStrategy": "SPOT_CAPACITY_OPTIMIZED"},
        "allocationStrategy",
    ),
    "8.2 BEST_FIT on spot needs a fleet role": (
        {**EC2, "type": "SPOT"},
        "compute resource spotIamFleetRole is required.",
    ),
    "8.2 bidPercentage over 100": (
        {**EC2, "type": "SPOT", "spotIamFleetRole": "r", "bidPercentage": 101},
        "Bid percentage must be between 0 to 100.",
    ),
    "8.3 a type nobody knows": ({**EC2, "instanceTypes": ["m6i.gigantic"]}, "m6i.gigantic"),
    "8.3 a family nobody knows": ({**EC2, "instanceTypes": ["zz9"]}, "zz9"),
    "8.3 x86_64 with arm64": (
        {**EC2, "instanceTypes": ["m6i", "m6g.large"]},
        "must not mix x86_64 and arm64",
    ),
    "8.3 x86_64 with arm64, by magic words": (
        {**EC2, "instanceTypes": ["optimal", "default_arm64"]},
        "must not mix x86_64 and arm64",
    ),
    "8.4 three images": (
        {**EC2, "ec2Configuration": [{"imageType": "ECS_AL2023"}] * 3},
        "at most 2",
    ),
    "8.4 Amazon Linux 2 has ended": (
        {**EC2, "ec2Configuration": [{"imageType": "ECS_AL2"}]},
        "use ECS_AL2023",
    ),
    "8.4 Amazon Linux 2 has ended, with GPUs": (
        {**EC2, "ec2Configuration": [{"imageType": "ECS_AL2_NVIDIA"}]},
        "use ECS_AL2023_NVIDIA",
    ),
    "8.1 a launch template by id and name": (
        {**EC2, "launchTemplate": {"launchTemplateId": "lt-1", "launchTemplateName": "x"}},
        "One of LaunchTemplateId and LaunchTemplateName or LaunchTemplate.overrides should be "
        "provided",
    ),
    "8.1 Fargate has no instances": ({**FARGATE, "instanceTypes": ["m6i"]}, "instanceTypes"),
    "8.1 Fargate has no minimum": (
        {**FARGATE, "minvCpus": 0},
        "minvCpus is not applicable for Fargate.",
    ),
    "8.1 Fargate has no instances to tag": (
        {**FARGATE, "tags": {"team": "a"}},
        "Error executing request, Exception : tags is not applicable for Fargate., RequestId: ",
    ),
    "8.1 Fargate needs security groups": (
        {**FARGATE, "securityGroupIds": []},
        "Security group ids are required.",
    ),
    "8.1 Fargate has 5 security groups": (
        {**FARGATE, "securityGroupIds": [f"sg-{n}" for n in range(6)]},
        "Fargate supports a maximum of 5 security groups.",
    ),
    "8.1 Fargate has 16 subnets": (
        {**FARGATE, "subnets": [f"subnet-{n}" for n in range(17)]},
        "Fargate supports a maximum of 16 subnets.",
    ),
}


@pytest.mark.parametrize("case", REFUSED_RESOURCES)
def test_what_no_environment_can_be(endpoint: Endpoint, case: str) -> None:
    resources, text = REFUSED_RESOURCES[case]
    status, answer = post(
        endpoint,
        "/v1/createcomputeenvironment",
        {"computeEnvironmentName": "never", "type": "MANAGED", "computeResources": resources},
    )
    assert status == 400
    assert text in answer["message"]
    assert (
        endpoint.batch.describe_compute_environments(computeEnvironments=["never"])[
            "computeEnvironments"
        ]
        == []
    )


@pytest.mark.parametrize(
    "resources",
    [
        {**EC2, "instanceTypes": ["default_x86_64"]},
        {**EC2, "instanceTypes": ["default_arm64", "c7g.large"]},
        {**EC2, "instanceTypes": ["g5.xlarge", "p4d"]},
        {**EC2, "scalingPolicy": {"minScaleDownDelayMinutes": 20}},
        {**EC2, "scalingPolicy": {"minScaleDownDelayMinutes": 0}},
        {**EC2, "ec2Configuration": [{"imageType": "ECS_AL2", "imageIdOverride": "ami-1"}]},
        {**EC2, "allocationStrategy": "BEST_FIT_PROGRESSIVE", "desiredvCpus": 16},
        {**EC2, "type": "SPOT", "spotIamFleetRole": "r", "bidPercentage": 100},
        {**EC2, "bidPercentage": 50},
    ],
    ids=str,
)
def test_what_an_environment_can_be(endpoint: Endpoint, resources: dict[str, Any]) -> None:
    """8.1 to 8.4, from the other side of the limits."""
    create(endpoint, "may-be", resources)
    try:
        assert described(endpoint, "may-be")["computeResources"].items() >= resources.items()
    finally:
        delete(endpoint, "may-be")


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"type": "MANAGED"}, "computeResources must be provided"),
        ({"type": "UNMANAGED"}, "Exception : ServiceRole is required., RequestId: "),
        (
            {"type": "UNMANAGED", "serviceRole": SERVICE_LINKED},
            "Service Linked Role cannot be used with UNMANAGED Compute Environment",
        ),
        (
            {"type": "MANAGED", "computeResources": EC2, "state": "DISABLED"},
            "Compute Environment must be created in ENABLED state.",
        ),
        (
            {"type": "UNMANAGED", "serviceRole": "r", "computeResources": EC2},
            "computeResources must not be provided",
        ),
        ({"type": "MANAGED", "computeResources": EC2, "unmanagedvCpus": 1}, UNMANAGED_ONLY),
        ({"type": "HANDMADE"}, "MANAGED, UNMANAGED"),
        (
            {
                "type": "MANAGED",
                "eksConfiguration": {"eksClusterArn": "a", "kubernetesNamespace": "b"},
            },
            "eksConfiguration is not for it",
        ),
    ],
)
def test_what_does_not_go_together(endpoint: Endpoint, request_: dict[str, Any], text: str) -> None:
    """8.1."""
    with refused(text):
        endpoint.batch.create_compute_environment(computeEnvironmentName="never", **request_)


@pytest.mark.parametrize("name", ["", "-a", "a b", "a.b", "ä", "a" * 129, "a/b", "a:1"])
def test_names_that_are_none(endpoint: Endpoint, name: str) -> None:
    """5.4: 128 letters, digits, hyphens, underscores; the first a letter or a digit."""
    with refused("computeEnvironmentName"):
        create(endpoint, name, EC2)


def test_a_name_is_taken_once(endpoint: Endpoint) -> None:
    with refused("Object already exists"):
        create(endpoint, "cpu", EC2)


# -- updates (8.10) -------------------------------------------------------------------------------


def test_a_scaling_update(endpoint: Endpoint) -> None:
    """8.10: of the vCPUs, the delay and the state; also where the strategy is BEST_FIT. 8.1:
    desired only goes up."""
    create(endpoint, "scales", EC2)
    resources = update(
        endpoint,
        "scales",
        computeResources={
            "minvCpus": 2,
            "maxvCpus": 32,
            "desiredvCpus": 8,
            "scalingPolicy": {"minScaleDownDelayMinutes": 30},
        },
    )["computeResources"]
    assert (resources["minvCpus"], resources["maxvCpus"], resources["desiredvCpus"]) == (2, 32, 8)
    assert resources["scalingPolicy"] == {"minScaleDownDelayMinutes": 30}
    with refused(
        "Manually scaling down compute environment is not supported.  Disconnecting job queues "
        "from compute environment will cause it to scale-down to minvCpus."
    ):
        update(endpoint, "scales", computeResources={"desiredvCpus": 7})
    with refused("desiredvCpus should be between minvCpus and maxvCpus."):
        update(endpoint, "scales", computeResources={"desiredvCpus": 33})
    with refused("minvCpus (33) must not be more than maxvCpus (32)"):
        update(endpoint, "scales", computeResources={"minvCpus": 33})


INFRASTRUCTURE = [
    {"allocationStrategy": "SPOT_CAPACITY_OPTIMIZED", "type": "SPOT"},
    {"instanceTypes": ["c6i"]},
    {"subnets": ["subnet-0b"]},
    {"securityGroupIds": ["sg-0b"]},
    {"instanceRole": "another"},
    {"ec2KeyPair": "key"},
    {"imageId": "ami-1"},
    {"placementGroup": "pg"},
    {"tags": {"a": "b"}},
    {"launchTemplate": {"launchTemplateName": "lt", "overrides": []}},
    {"ec2Configuration": [{"imageType": "ECS_AL2023_NVIDIA"}]},
]


@pytest.mark.parametrize("change", INFRASTRUCTURE, ids=str)
def test_an_infrastructure_update(endpoint: Endpoint, change: dict[str, Any]) -> None:
    """8.10: allowed, but not with BEST_FIT (8.2) and not without the service-linked role."""
    create(endpoint, "new-instances", {**EC2, "allocationStrategy": "BEST_FIT_PROGRESSIVE"})
    create(endpoint, "best-fit", EC2)
    user_role = "arn:aws:iam::123456789012:role/mine"
    create(
        endpoint,
        "own-role",
        {**EC2, "allocationStrategy": "BEST_FIT_PROGRESSIVE"},
        serviceRole=user_role,
    )
    try:
        assert (
            update(endpoint, "new-instances", computeResources=change)["computeResources"].items()
            >= change.items()
        )
        with refused("BEST_FIT"):
            update(endpoint, "best-fit", computeResources=change)
        with refused("service-linked role"):
            update(endpoint, "own-role", computeResources=change)
    finally:
        for name in ("new-instances", "best-fit", "own-role"):
            delete(endpoint, name)


def test_the_newest_image_is_asked_for_and_not_remembered(endpoint: Endpoint) -> None:
    """8.4: updateToLatestImageVersion goes back to false by itself."""
    create(endpoint, "newest", {**EC2, "allocationStrategy": "BEST_FIT_PROGRESSIVE"})
    resources = update(endpoint, "newest", computeResources={"updateToLatestImageVersion": True})[
        "computeResources"
    ]
    assert "updateToLatestImageVersion" not in resources


def test_what_needs_a_new_environment(endpoint: Endpoint) -> None:
    """8.10: EC2 to Fargate and back; a role for the service-linked one and back."""
    create(endpoint, "stays-ec2", {**EC2, "allocationStrategy": "BEST_FIT_PROGRESSIVE"})
    with refused("cannot change between EC2 and Fargate"):
        update(endpoint, "stays-ec2", computeResources={"type": "FARGATE"})
    with refused("cannot change between EC2 and Fargate"):
        update(endpoint, "fargate", computeResources={"type": "EC2", "instanceRole": "r"})
    with refused("cannot be exchanged"):
        update(endpoint, "stays-ec2", serviceRole="arn:aws:iam::123456789012:role/mine")
    with refused("cannot be exchanged"):
        update(endpoint, "own", serviceRole=SERVICE_LINKED)
    assert update(endpoint, "own", serviceRole="arn:aws:iam::123456789012:role/other")[
        "serviceRole"
    ].endswith("other")
    with refused("computeResources can only be updated for a MANAGED"):
        update(endpoint, "own", computeResources={"maxvCpus": 1})
    with refused("ComputeEnvironment nobody not found."):
        update(endpoint, "nobody", state="DISABLED")


def test_the_update_policy(endpoint: Endpoint) -> None:
    """8.10: what is not given stays. botocore's model allows 7200 minutes, AWS Batch 360."""
    create(endpoint, "policy", EC2)
    assert update(endpoint, "policy", updatePolicy={"terminateJobsOnUpdate": True})[
        "updatePolicy"
    ] == {
        "terminateJobsOnUpdate": True,
        "jobExecutionTimeoutMinutes": 30,
    }
    assert update(endpoint, "policy", updatePolicy={"jobExecutionTimeoutMinutes": 360})[
        "updatePolicy"
    ] == {
        "terminateJobsOnUpdate": True,
        "jobExecutionTimeoutMinutes": 360,
    }
    for minutes in (361, 7200):
        with refused("jobExecutionTimeoutMinutes"):
            update(endpoint, "policy", updatePolicy={"jobExecutionTimeoutMinutes": minutes})


# -- the end, and lists ---------------------------------------------------------------------------


def delete(endpoint: Endpoint, name: str) -> None:
    endpoint.batch.update_compute_environment(computeEnvironment=name, state="DISABLED")
    endpoint.batch.delete_compute_environment(computeEnvironment=name)


def test_the_order_of_deleting(endpoint: Endpoint) -> None:
    """7: disable the queue, delete it, disable the environment, delete it. One that is not there
    is deleted at once."""
    endpoint.queue("in-the-way", endpoint.environment("to-go"))
    with refused("must be disabled first"):
        endpoint.batch.delete_compute_environment(computeEnvironment="to-go")
    with refused("found existing JobQueue relationship"):
        delete(endpoint, "to-go")
    with refused("must be disabled first"):
        endpoint.batch.delete_job_queue(jobQueue="in-the-way")
    endpoint.batch.update_job_queue(jobQueue="in-the-way", state="DISABLED")
    endpoint.batch.delete_job_queue(jobQueue="in-the-way")
    endpoint.batch.delete_compute_environment(computeEnvironment="to-go")
    assert (
        endpoint.batch.describe_compute_environments(computeEnvironments=["to-go"])[
            "computeEnvironments"
        ]
        == []
    )
    endpoint.batch.delete_compute_environment(computeEnvironment="to-go")


def test_describe_by_name_arn_and_page(endpoint: Endpoint) -> None:
    """6: at most 100 names, pages of 1 to 100. Names that nobody has are left out."""
    arn = described(endpoint, "managed")["computeEnvironmentArn"]
    answer = endpoint.batch.describe_compute_environments(
        computeEnvironments=[arn, "cpu", "nobody"]
    )
    assert {
        environment["computeEnvironmentName"] for environment in answer["computeEnvironments"]
    } == {
        "managed",
        "cpu",
    }
    everything = endpoint.batch.describe_compute_environments()["computeEnvironments"]
    paged, token = [], {}
    while True:
        page = endpoint.batch.describe_compute_environments(maxResults=2, **token)
        assert len(page["computeEnvironments"]) <= 2
        paged += page["computeEnvironments"]
        if "nextToken" not in page:
            break
        token = {"nextToken": page["nextToken"]}
    assert paged == everything
    with refused("100"):
        endpoint.batch.describe_compute_environments(computeEnvironments=["x"] * 101)
    for wrong in (0, 101):
        with refused("maxResults should be between 1 and 100"):
            endpoint.batch.describe_compute_environments(maxResults=wrong)
    with refused("nextToken"):
        endpoint.batch.describe_compute_environments(nextToken="made up")


def test_quotas_that_aws_raises_on_request_are_not_counted(endpoint: Endpoint) -> None:
    """6, a choice: 50 environments and 50 queues a region are adjustable quotas, and here nobody
    can ask for more."""
    for number in range(51):
        endpoint.queue(f"many-{number}", endpoint.environment(f"many-{number}"))
    assert len(endpoint.batch.describe_job_queues(maxResults=100)["jobQueues"]) > 50
