"""Scheduling policies by boto3 (facts, 7.1): what may be in one. What one does is in
test_placement.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from emulator_answers import held_to_account, refused
from emulator_endpoint import Endpoint


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    yield from held_to_account(endpoint)


def shares(*names: str, weight: float = 1.0) -> dict[str, Any]:
    return {
        "shareDistribution": [{"shareIdentifier": name, "weightFactor": weight} for name in names]
    }


def described(endpoint: Endpoint, *arns: str) -> Any:
    return endpoint.batch.describe_scheduling_policies(arns=list(arns))["schedulingPolicies"]


def test_one_as_it_is_described_changed_and_deleted(endpoint: Endpoint) -> None:
    arn = "arn:aws:batch:us-east-1:123456789012:scheduling-policy/teams"
    policy = {
        "shareDecaySeconds": 604800,
        "computeReservation": 99,
        "shareDistribution": [
            {"shareIdentifier": "UserA*", "weightFactor": 0.125},
            {"shareIdentifier": "UserB"},
        ],
    }
    answer = endpoint.batch.create_scheduling_policy(
        name="teams", fairsharePolicy=policy, tags={"a": "b"}
    )
    assert (answer["name"], answer["arn"]) == ("teams", arn)
    assert described(endpoint, arn) == [
        {"name": "teams", "arn": arn, "fairsharePolicy": policy, "tags": {"a": "b"}}
    ]
    endpoint.batch.update_scheduling_policy(arn=arn, fairsharePolicy={"shareDecaySeconds": 60})
    assert described(endpoint, arn)[0]["fairsharePolicy"] == {"shareDecaySeconds": 60}
    endpoint.queue("bound", "cpu", schedulingPolicyArn=arn)
    with refused("found existing JobQueue relationship"):
        endpoint.batch.delete_scheduling_policy(arn=arn)
    endpoint.batch.update_job_queue(jobQueue="bound", state="DISABLED")
    endpoint.batch.delete_job_queue(jobQueue="bound")
    endpoint.batch.delete_scheduling_policy(arn=arn)
    assert described(endpoint, arn) == []
    endpoint.batch.delete_scheduling_policy(arn=arn)
    with refused(f"SchedulingPolicy {arn} not found."):
        endpoint.batch.update_scheduling_policy(arn=arn, fairsharePolicy={})


REFUSED_POLICIES = {
    "decay over a week": {"shareDecaySeconds": 604801},
    "negative decay": {"shareDecaySeconds": -1},
    "all is reserved": {"computeReservation": 100},
    "negative reservation": {"computeReservation": -1},
    "too little weight": shares("a", weight=0.00009),
    "too much weight": shares("a", weight=1000.0),
    "not alphanumeric": shares("a-b"),
    "an asterisk within": shares("a*b"),
    "too long": shares("a" * 256),
    "no name": shares(""),
    "one share twice": shares("a", "a"),
    "a prefix over a share": shares("UserA*", "UserA1"),
    "a prefix over a prefix": shares("UserA1*", "User*"),
    "everybody, and one": shares("*", "a"),
}


@pytest.mark.parametrize("case", REFUSED_POLICIES)
def test_what_no_policy_can_be(endpoint: Endpoint, case: str) -> None:
    """7.1: decay 0..604800, reservation 0..99, weights 0.0001..999.9999, shares that do not
    overlap."""
    with refused():
        endpoint.batch.create_scheduling_policy(
            name="never", fairsharePolicy=REFUSED_POLICIES[case]
        )
    endpoint.batch.create_scheduling_policy(name="once")
    arn = "arn:aws:batch:us-east-1:123456789012:scheduling-policy/once"
    try:
        with refused():
            endpoint.batch.update_scheduling_policy(arn=arn, fairsharePolicy=REFUSED_POLICIES[case])
        assert described(endpoint, arn)[0]["fairsharePolicy"] == {}
    finally:
        endpoint.batch.delete_scheduling_policy(arn=arn)


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"shareDecaySeconds": 0, "computeReservation": 0},
        shares("a", weight=0.0001),
        shares("a", weight=999.9999),
        shares("a" * 255 + "*"),
        shares("UserA1", "UserA2", "UserB*"),
        shares("A", "a"),
    ],
    ids=str,
)
def test_what_a_policy_can_be(endpoint: Endpoint, policy: dict[str, Any]) -> None:
    """7.1, from the other side of the limits."""
    arn = endpoint.batch.create_scheduling_policy(name="may-be", fairsharePolicy=policy)["arn"]
    assert described(endpoint, arn)[0]["fairsharePolicy"] == policy
    endpoint.batch.delete_scheduling_policy(arn=arn)


def test_names_and_pages(endpoint: Endpoint) -> None:
    """6: at most 100 ARNs, pages of 1 to 100. 5.4: names. 7.3: quota shares are for SageMaker."""
    arns = [
        endpoint.batch.create_scheduling_policy(name=f"p{number}")["arn"] for number in range(3)
    ]
    first = endpoint.batch.list_scheduling_policies(maxResults=2)
    second_page = endpoint.batch.list_scheduling_policies(nextToken=first["nextToken"])
    assert [
        policy["arn"] for policy in first["schedulingPolicies"] + second_page["schedulingPolicies"]
    ] == arns
    assert "nextToken" not in second_page
    assert [
        policy["arn"]
        for policy in described(endpoint, arns[1], "arn:aws:batch:us-east-1:1:scheduling-policy/x")
    ] == [arns[1]]
    with refused("100"):
        described(endpoint, *arns[:1] * 101)
    with refused("Object already exists"):
        endpoint.batch.create_scheduling_policy(name="p0")
    with refused("name"):
        endpoint.batch.create_scheduling_policy(name="p 0")
    with refused("quotaSharePolicy is not for it"):
        endpoint.batch.create_scheduling_policy(
            name="quota", quotaSharePolicy={"idleResourceAssignmentStrategy": "FIFO"}
        )
