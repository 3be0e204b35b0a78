"""AWS's answers as facts: values in, values out."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.doctor.facts import ConsumableRequest, Ending, Endpoint, Missing
from batchyard.doctor.gather import environment_shapes, job_shapes, network_shapes, queue_shapes


def job(**more: Any) -> Any:
    return job_shapes.job_of({"jobId": "j", "status": "RUNNABLE", **more})


# -- jobs ----------------------------------------------------------------------------------------


def test_what_a_job_asks_for_in_every_spelling() -> None:
    wanted = [{"type": "VCPU", "value": "0.25"}, {"type": "MEMORY", "value": "512"}]
    plain = job(container={"resourceRequirements": wanted})
    assert (plain.vcpus, plain.memory_mib, plain.gpus) == (0.25, 512, 0)
    old = job(container={"vcpus": 2, "memory": 2048})
    assert (old.vcpus, old.memory_mib) == (2, 2048)
    several = job(
        ecsProperties={"taskProperties": [{"containers": [{"resourceRequirements": wanted}] * 2}]}
    )
    assert (several.vcpus, several.memory_mib) == (0.5, 1024)
    nodes = {
        "numNodes": 4,
        "nodeRangeProperties": [{"container": {"resourceRequirements": wanted}}],
    }
    assert (job(nodeProperties=nodes).nodes, job(nodeProperties=nodes).memory_mib) == (4, 512)


def test_fargate_and_consumables() -> None:
    entry = {
        "consumableResource": "arn:aws:batch:eu-west-1:1:consumable-resource/licence",
        "quantity": 2,
    }
    found = job(
        platformCapabilities=["FARGATE"],
        container={"networkConfiguration": {"assignPublicIp": "ENABLED"}},
        consumableResourceProperties={"consumableResourceList": [entry]},
    )
    assert (found.platform, found.assigns_public_ip, found.consumables) == (
        "FARGATE",
        True,
        (ConsumableRequest("licence", 2),),
    )


@pytest.mark.parametrize(
    ("status", "counts", "state"),
    [
        ("PENDING", {"RUNNABLE": 5, "SUCCEEDED": 1}, "RUNNABLE"),
        ("PENDING", {"RUNNABLE": 5, "RUNNING": 1}, "RUNNING"),
        ("PENDING", {"RUNNABLE": 5, "STARTING": 1}, "STARTING"),
        ("PENDING", {"PENDING": 5, "FAILED": 1}, "PENDING"),
        ("FAILED", {"RUNNABLE": 5}, "FAILED"),
        ("RUNNABLE", {}, "RUNNABLE"),
    ],
)
def test_an_array_is_what_its_children_are(status: str, counts: dict[str, int], state: str) -> None:
    assert job_shapes.state_of(status, counts) == state


def test_a_child_of_an_array_is_a_plain_job() -> None:
    assert job(jobId="j:3", arrayProperties={"index": 3, "size": 10}).size == 0


def test_it_waits_since_the_last_thing_that_it_waited_for() -> None:
    others = {"a": {"stoppedAt": 50, "status": "SUCCEEDED"}}
    detail: dict[str, Any] = {
        "jobId": "j",
        "status": "RUNNABLE",
        "createdAt": 10,
        "dependsOn": [{"jobId": "a"}],
    }
    assert job_shapes.job_of(detail, others).since_ms == 50
    assert job_shapes.job_of(detail | {"attempts": [{"stoppedAt": 70}]}, others).since_ms == 70
    assert job_shapes.job_of({"jobId": "j", "status": "RUNNABLE"}).since_ms is None


def attempt(code: int | None, reason: str = "Essential container in task exited") -> dict[str, Any]:
    return {"statusReason": reason, "container": {} if code is None else {"exitCode": code}}


def test_equal_attempts_are_one_ending_whatever_the_host() -> None:
    lost = [attempt(None, f"Host EC2 (instance i-0{n}) terminated.") for n in (1, 2)]
    found = job(status="FAILED", statusReason=lost[1]["statusReason"], attempts=[*lost, attempt(1)])
    assert [(ending.exit_code, ending.count) for ending in found.endings] == [(None, 2), (1, 1)]
    assert found.endings[0].status_reason == "Host EC2 (instance i-01) terminated."


def test_the_reason_of_a_job_that_had_no_attempt_is_its_ending() -> None:
    reason = "Container Overrides length must be at most 8192"
    assert job(status="FAILED", statusReason=reason).endings == (Ending(None, reason, "", 1, "j"),)


def test_a_job_stopped_by_hand_has_only_the_endings_before() -> None:
    stopped = {"status": "FAILED", "statusReason": "enough", "isTerminated": True}
    assert job(**stopped, attempts=[attempt(143)]).endings == ()
    assert [e.exit_code for e in job(**stopped, attempts=[attempt(1), attempt(137)]).endings] == [1]


def test_children_stopped_by_hand_are_no_findings() -> None:
    parent = {
        "jobId": "j",
        "status": "FAILED",
        "isTerminated": True,
        "arrayProperties": {"size": 2},
    }
    children = [
        {"jobId": f"j:{n}", "statusReason": "enough", "container": {"exitCode": c}}
        for n, c in ((0, 143), (1, 2))
    ]
    endings = job_shapes.job_of(parent, failed=children).endings
    assert not isinstance(endings, Missing) and [ending.exit_code for ending in endings] == [2]


# -- queues --------------------------------------------------------------------------------------


def test_the_front_of_a_queue_names_children_by_index() -> None:
    jobs = [{"jobArn": "arn:aws:batch:eu-west-1:1:job/abc:7", "earliestTimeAtPosition": 5}]
    (head,) = queue_shapes.front_of(
        {"frontOfQueue": {"jobs": jobs}}, {"abc:7": {"statusReason": "UNDETERMINED - x"}}
    )
    assert (head.job_id, head.since_ms, head.status_reason) == ("abc:7", 5, "UNDETERMINED - x")


def test_a_share_that_waits_is_active_too() -> None:
    snapshot = {
        "queueUtilization": {
            "totalCapacityUsage": [{"capacityUnit": "VCPU", "quantity": 6.0}],
            "fairshareUtilization": {"topCapacityUtilization": [{"shareIdentifier": "a"}]},
        }
    }
    policy = queue_shapes.policy_of({"fairsharePolicy": {"computeReservation": 50}}, snapshot, "b")
    assert (policy.compute_reservation, policy.active_shares, policy.used_vcpus) == (
        50,
        ("a", "b"),
        6.0,
    )


# -- environments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "is_its"),
    [
        ("AWSBatch-gpu-asg-0a95f22d-7108-3c4e-99f7-2fd92e1a8941", True),
        ("gpu-asg-0a95f22d-7108-3c4e-99f7-2fd92e1a8941", True),
        ("AWSBatch-gpu-0a95f22d-7108-3c4e-99f7-2fd92e1a8941", True),
        ("AWSBatch-gpu-large-asg-0a95f22d-7108-3c4e-99f7-2fd92e1a8941", False),
        ("my-gpu-asg-1", False),
        ("gpu", False),
    ],
)
def test_a_group_is_known_by_its_name(group: str, is_its: bool) -> None:
    assert environment_shapes.is_group_of(group, "gpu") is is_its


def test_what_the_launch_template_says_counts_where_the_environment_is_silent() -> None:
    silent = environment_shapes.environment_of(
        {"computeEnvironmentName": "e", "computeResources": {}}
    )
    data = {"ImageId": "ami-1", "NetworkInterfaces": [{"Groups": ["sg-9"]}], "MetadataOptions": {}}
    found = environment_shapes.add_template(
        silent, {"LaunchTemplateId": "lt", "LaunchTemplateData": data}
    )
    assert (found.image_id, found.security_groups) == ("ami-1", ("sg-9",))


def test_user_data_that_is_no_text_stays_as_it_came() -> None:
    assert environment_shapes.user_data_of("H4sIAAAAAAAA/w==") == "H4sIAAAAAAAA/w=="
    assert environment_shapes.user_data_of("#!/bin/sh") == "#!/bin/sh"
    assert environment_shapes.user_data_of("") == ""


# -- the network ---------------------------------------------------------------------------------

SUBNET = {"SubnetId": "s", "VpcId": "v"}


def table(route: dict[str, Any], **association: Any) -> dict[str, Any]:
    return {
        "VpcId": "v",
        "Associations": [association],
        "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", **route}],
    }


def test_a_subnets_own_table_comes_before_the_main_one() -> None:
    main, own = (
        table({"GatewayId": "igw-1"}, Main=True),
        table({"NatGatewayId": "nat-1"}, SubnetId="s"),
    )
    assert network_shapes.default_route(SUBNET, [main, own]) == "nat-1"
    assert network_shapes.default_route(SUBNET, [main]) == "igw-1"
    assert (
        network_shapes.default_route(SUBNET, [table({"GatewayId": "igw-1"}, SubnetId="other")])
        == ""
    )
    # A NAT gateway that was deleted leaves a route that leads nowhere.
    assert (
        network_shapes.default_route(
            SUBNET, [table({"NatGatewayId": "n", "State": "blackhole"}, Main=True)]
        )
        == ""
    )


def acl(*entries: tuple[int, bool, str, str, str, tuple[int, int] | None]) -> list[dict[str, Any]]:
    rules = [
        {
            "RuleNumber": number,
            "Egress": is_egress,
            "RuleAction": action,
            "Protocol": protocol,
            "CidrBlock": block,
            **({"PortRange": {"From": ports[0], "To": ports[1]}} if ports else {}),
        }
        for number, is_egress, action, protocol, block, ports in entries
    ]
    return [{"NetworkAclId": "acl-1", "Associations": [{"SubnetId": "s"}], "Entries": rules}]


LAST = [
    (32767, True, "deny", "-1", "0.0.0.0/0", None),
    (32767, False, "deny", "-1", "0.0.0.0/0", None),
]
OPEN = [
    (100, True, "allow", "-1", "0.0.0.0/0", None),
    (100, False, "allow", "-1", "0.0.0.0/0", None),
]


def test_the_first_rule_that_matches_decides() -> None:
    assert network_shapes.find_blocking_rules("s", acl(*OPEN, *LAST)) == ()  # type: ignore[arg-type]
    assert len(network_shapes.find_blocking_rules("s", acl(*LAST))) == 2  # type: ignore[arg-type]
    https = (50, True, "deny", "6", "0.0.0.0/0", (443, 443))
    assert network_shapes.find_blocking_rules("s", acl(https, *OPEN)) == (
        "acl-1: rule 50 denies TCP 443 out",
    )  # type: ignore[arg-type]
    # Denied is one network only, or another protocol or port; allowed are at least the endpoints'
    # addresses.
    for harmless in (
        (50, True, "deny", "6", "10.0.0.0/8", (443, 443)),
        (50, True, "deny", "17", "0.0.0.0/0", None),
        (50, True, "deny", "6", "0.0.0.0/0", (25, 25)),
    ):
        assert network_shapes.find_blocking_rules("s", acl(harmless, *OPEN, *LAST)) == ()  # type: ignore[arg-type]
    inside = [(10, out, "allow", "6", "10.0.0.0/16", None) for out in (True, False)]
    assert network_shapes.find_blocking_rules("s", acl(*inside, *LAST)) == ()  # type: ignore[arg-type]
    assert network_shapes.find_blocking_rules("other", acl(*LAST)) == ()  # type: ignore[arg-type]


def test_an_endpoint_is_named_by_its_service() -> None:
    document = {"ServiceName": "com.amazonaws.eu-west-1.ecr.dkr", "VpcId": "v"}
    assert network_shapes.endpoint_of(document) == Endpoint("ecr.dkr", "v")


def test_rules_of_a_group_name_their_targets() -> None:
    permissions = [
        {
            "IpProtocol": "tcp",
            "FromPort": 443,
            "ToPort": 443,
            "PrefixListIds": [{"PrefixListId": "pl-1"}],
        },
        {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]},
    ]
    found = network_shapes.group_of({"GroupId": "sg", "IpPermissionsEgress": permissions})
    assert [(rule.protocol, rule.to_port, rule.target) for rule in found.egress] == [
        ("tcp", 443, "pl-1"),
        ("-1", 65535, "0.0.0.0/0"),
    ]
