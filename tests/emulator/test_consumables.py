"""Consumable resources (facts, 7.3): licences and the like that jobs hold while they run, or use
up."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from emulator_answers import assert_no_traceback, held_to_account, refused
from emulator_endpoint import Endpoint, until


@pytest.fixture(scope="module", autouse=True)
def as_described(endpoint: Endpoint) -> Iterator[None]:
    yield from held_to_account(endpoint)


def create(endpoint: Endpoint, name: str, total: int, kind: str = "REPLENISHABLE") -> str:
    answer = endpoint.batch.create_consumable_resource(
        consumableResourceName=name, totalQuantity=total, resourceType=kind
    )
    return str(answer["consumableResourceArn"])


def needs(**quantities: int) -> dict[str, Any]:
    return {
        "consumableResourceList": [
            {"consumableResource": name.replace("_", "-"), "quantity": quantity}
            for name, quantity in quantities.items()
        ]
    }


def amounts(endpoint: Endpoint, name: str) -> tuple[int, int, int]:
    """In all, in use, available."""
    resource = endpoint.batch.describe_consumable_resource(consumableResource=name)
    return resource["totalQuantity"], resource["inUseQuantity"], resource["availableQuantity"]


def held(endpoint: Endpoint, gate: Path, properties: dict[str, Any], **members: Any) -> str:
    definition = endpoint.definition(
        "holds", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done"
    )
    return endpoint.submit(definition, consumableResourcePropertiesOverride=properties, **members)


def running(endpoint: Endpoint, array: str, expected: int) -> None:
    """So many children run, and stay so many."""

    def count() -> int:
        return int(endpoint.job(array)["arrayProperties"]["statusSummary"]["RUNNING"])

    until(count, lambda job_count: job_count == expected)
    time.sleep(0.2)
    assert count() == expected


# -- the operations -------------------------------------------------------------------------------


def test_one_as_it_is_described(endpoint: Endpoint) -> None:
    """7.3: REPLENISHABLE unless it says otherwise."""
    arn = "arn:aws:batch:us-east-1:123456789012:consumable-resource/licence"
    answer = endpoint.batch.create_consumable_resource(
        consumableResourceName="licence", totalQuantity=3, tags={"a": "b"}
    )
    assert (answer["consumableResourceName"], answer["consumableResourceArn"]) == ("licence", arn)
    resource = endpoint.batch.describe_consumable_resource(consumableResource=arn)
    assert time.time() * 1000 - 60_000 < resource.pop("createdAt") <= time.time() * 1000
    del resource["ResponseMetadata"]
    assert resource == {
        "consumableResourceName": "licence",
        "consumableResourceArn": arn,
        "totalQuantity": 3,
        "inUseQuantity": 0,
        "availableQuantity": 3,
        "resourceType": "REPLENISHABLE",
        "tags": {"a": "b"},
    }


def test_set_add_and_remove(endpoint: Endpoint) -> None:
    """7.3: with a token, the same call does it once."""
    create(endpoint, "counted", 5)

    def update(**change: Any) -> int:
        return int(
            endpoint.batch.update_consumable_resource(consumableResource="counted", **change)[
                "totalQuantity"
            ]
        )

    assert update(operation="ADD", quantity=2) == 7
    assert update(operation="REMOVE", quantity=3) == 4
    assert update(operation="SET", quantity=10) == 10
    assert [update(operation="ADD", quantity=1, clientToken="token") for _ in range(2)] == [11, 11]
    assert update(operation="ADD", quantity=1, clientToken="another") == 12
    assert amounts(endpoint, "counted") == (12, 0, 12)
    for change, text in (
        ({"operation": "REMOVE", "quantity": 13}, "only 12"),
        ({"operation": "ADD", "quantity": -1}, "negative"),
        ({"operation": "DOUBLE", "quantity": 1}, "SET, ADD or REMOVE"),
        ({"operation": "SET"}, "quantity must be provided"),
    ):
        with refused(text):
            update(**change)
    assert amounts(endpoint, "counted") == (12, 0, 12)


def test_what_is_refused(endpoint: Endpoint) -> None:
    create(endpoint, "taken", 1)
    for request, text in (
        ({"consumableResourceName": "taken"}, "Object already exists"),
        ({"consumableResourceName": "a b"}, "consumableResourceName"),
        ({"consumableResourceName": "never", "totalQuantity": -1}, "negative"),
        (
            {"consumableResourceName": "never", "resourceType": "SOLID"},
            "REPLENISHABLE, NON_REPLENISHABLE",
        ),
    ):
        with refused(text):
            endpoint.batch.create_consumable_resource(**request)
    for call in (
        lambda: endpoint.batch.describe_consumable_resource(consumableResource="nobody"),
        lambda: endpoint.batch.update_consumable_resource(
            consumableResource="nobody", operation="SET", quantity=1
        ),
        lambda: endpoint.batch.list_jobs_by_consumable_resource(consumableResource="nobody"),
        lambda: endpoint.run("true", consumableResourcePropertiesOverride=needs(nobody=1)),
    ):
        with refused("nobody"):
            call()
    with refused("at least 1"):
        endpoint.run("true", consumableResourcePropertiesOverride=needs(taken=0))
    with refused("twice"):
        twice = {"consumableResourceList": needs(taken=1)["consumableResourceList"] * 2}
        endpoint.run("true", consumableResourcePropertiesOverride=twice)
    endpoint.batch.delete_consumable_resource(consumableResource="nobody")


def test_lists(endpoint: Endpoint) -> None:
    """7.3 and 6: by name, without regard to case, with a final *; pages of 1 to 100."""
    for name in ("list-A", "list-B", "unlisted"):
        create(endpoint, name, 1)

    def names(**request: Any) -> list[str]:
        resources = endpoint.batch.list_consumable_resources(**request)["consumableResources"]
        return [resource["consumableResourceName"] for resource in resources]

    def by_name(*values: str) -> list[dict[str, Any]]:
        return [{"name": "CONSUMABLE_RESOURCE_NAME", "values": list(values)}]

    assert names(filters=by_name("LIST-*")) == ["list-A", "list-B"]
    assert names(filters=by_name("list-b")) == ["list-B"]
    assert names(filters=by_name("list")) == []
    assert {"list-A", "list-B", "unlisted"} <= set(names())
    first = endpoint.batch.list_consumable_resources(filters=by_name("list-*"), maxResults=1)
    second_page = endpoint.batch.list_consumable_resources(
        filters=by_name("list-*"), nextToken=first["nextToken"]
    )
    assert [
        resource["consumableResourceName"] for resource in second_page["consumableResources"]
    ] == ["list-B"]
    with refused("CONSUMABLE_RESOURCE_NAME"):
        names(filters=[{"name": "COLOUR", "values": ["red"]}])
    with refused("maxResults should be between 1 and 100"):
        names(maxResults=101)


# -- what they do ---------------------------------------------------------------------------------


def test_children_hold_it_while_they_run(endpoint: Endpoint, tmp_path: Path) -> None:
    """7.3: per child of an array; given back at the end. Who waits for it does not block others."""
    create(endpoint, "tokens", 3)
    gate = tmp_path / "gate"
    array = held(endpoint, gate, needs(tokens=1), arrayProperties={"size": 6})
    running(endpoint, array, 3)
    assert amounts(endpoint, "tokens") == (3, 3, 0)
    assert endpoint.wait(endpoint.run("true"))["status"] == "SUCCEEDED"
    gate.touch()
    assert endpoint.wait(array)["status"] == "SUCCEEDED"
    assert amounts(endpoint, "tokens") == (3, 0, 3)


def test_more_of_it_lets_more_run(endpoint: Endpoint, tmp_path: Path) -> None:
    """7.3: an update counts at once. Less of it takes nothing away from those that run."""
    create(endpoint, "growing", 1)
    gate = tmp_path / "gate"
    array = held(endpoint, gate, needs(growing=1), arrayProperties={"size": 4})
    running(endpoint, array, 1)
    endpoint.batch.update_consumable_resource(
        consumableResource="growing", operation="SET", quantity=3
    )
    running(endpoint, array, 3)
    endpoint.batch.update_consumable_resource(
        consumableResource="growing", operation="SET", quantity=1
    )
    running(endpoint, array, 3)
    assert amounts(endpoint, "growing") == (1, 3, 0)
    gate.touch()
    assert endpoint.wait(array)["status"] == "SUCCEEDED"
    assert amounts(endpoint, "growing") == (1, 0, 1)


def test_several_and_more_than_one_of_each(endpoint: Endpoint, tmp_path: Path) -> None:
    """7.3: all of them or none."""
    create(endpoint, "many", 5)
    create(endpoint, "few", 1)
    gate = tmp_path / "gate"
    first, second = (held(endpoint, gate, needs(many=2, few=1)) for _ in range(2))
    endpoint.wait(first, "RUNNING")
    time.sleep(0.2)
    assert endpoint.job(second)["status"] == "RUNNABLE"
    assert (amounts(endpoint, "many"), amounts(endpoint, "few")) == ((5, 2, 3), (1, 1, 0))
    gate.touch()
    assert endpoint.wait(second)["status"] == "SUCCEEDED"
    assert endpoint.job(second)["consumableResourceProperties"] == needs(many=2, few=1)


def test_the_definition_says_it_unless_the_submission_does(endpoint: Endpoint) -> None:
    create(endpoint, "wanted", 2)
    definition = endpoint.definition("wants", "true", consumableResourceProperties=needs(wanted=2))
    assert endpoint.wait(endpoint.submit(definition))["consumableResourceProperties"] == needs(
        wanted=2
    )
    job_id = endpoint.submit(definition, consumableResourcePropertiesOverride=needs(wanted=1))
    assert endpoint.wait(job_id)["consumableResourceProperties"] == needs(wanted=1)


@pytest.mark.parametrize("command", ["true", "false"])
def test_some_are_used_up(endpoint: Endpoint, command: str) -> None:
    """7.3: NON_REPLENISHABLE is not given back, however the job ends; more can be added."""
    name = f"fuel-{command}"
    create(endpoint, name, 2, "NON_REPLENISHABLE")
    definition = endpoint.definition("burns", command)

    def burn() -> str:
        return endpoint.submit(
            definition, consumableResourcePropertiesOverride=needs(**{name.replace("-", "_"): 1})
        )

    for remaining in (1, 0):
        endpoint.wait(burn())
        assert amounts(endpoint, name)[2] == remaining
    waiting = burn()
    time.sleep(0.2)
    assert endpoint.job(waiting)["status"] == "RUNNABLE"
    endpoint.batch.update_consumable_resource(consumableResource=name, operation="ADD", quantity=1)
    endpoint.wait(waiting)
    assert amounts(endpoint, name) == (3, 3, 0)


def test_who_uses_it(endpoint: Endpoint, tmp_path: Path) -> None:
    """7.3: ListJobsByConsumableResource, newest first; filters JOB_STATUS and JOB_NAME."""
    create(endpoint, "asked-for", 1)
    gate = tmp_path / "gate"
    ended = endpoint.run(
        "true", name="Ended", consumableResourcePropertiesOverride=needs(asked_for=1)
    )
    endpoint.wait(ended)
    runs = held(endpoint, gate, needs(asked_for=1), name="runs")
    endpoint.wait(runs, "RUNNING")
    waits = held(endpoint, gate, needs(asked_for=1), name="waits")

    def listed(*filters: dict[str, Any], **members: Any) -> list[Any]:
        return endpoint.batch.list_jobs_by_consumable_resource(
            consumableResource="asked-for", filters=list(filters), **members
        )["jobs"]

    summaries = listed()
    assert [summary["jobArn"].rpartition("/")[2] for summary in summaries] == [waits, runs, ended]
    assert [summary["jobStatus"] for summary in summaries] == ["RUNNABLE", "RUNNING", "SUCCEEDED"]
    assert [summary["quantity"] for summary in summaries] == [1, 1, 1]
    assert summaries[1]["startedAt"] == endpoint.job(runs)["startedAt"]
    assert "startedAt" not in summaries[0]
    names = [
        summary["jobName"]
        for summary in listed({"name": "JOB_STATUS", "values": ["RUNNING", "RUNNABLE"]})
    ]
    assert names == ["waits", "runs"]
    assert [
        summary["jobName"] for summary in listed({"name": "JOB_NAME", "values": ["ENDED", "wai*"]})
    ] == ["waits", "Ended"]
    with refused("JOB_STATUS or JOB_NAME"):
        listed({"name": "COLOUR", "values": ["red"]})
    gate.touch()
    endpoint.wait(waits)


# -- when it goes away ----------------------------------------------------------------------------


def test_deleted_while_a_job_holds_it(endpoint: Endpoint, tmp_path: Path) -> None:
    """A choice, as AWS does not say: what runs goes on, what waits goes on waiting. One that is
    made again by the name counts what is still held of the old one."""
    create(endpoint, "gone", 2)
    gate = tmp_path / "gate"
    runs = held(endpoint, gate, needs(gone=1))
    endpoint.wait(runs, "RUNNING")
    waits = held(endpoint, gate, needs(gone=2))
    endpoint.batch.delete_consumable_resource(consumableResource="gone")
    with refused("ConsumableResource gone not found."):
        amounts(endpoint, "gone")
    assert endpoint.job(runs)["status"] == "RUNNING"
    create(endpoint, "gone", 2)
    assert amounts(endpoint, "gone") == (2, 1, 1)
    gate.touch()
    assert endpoint.wait(runs)["status"] == "SUCCEEDED"
    assert endpoint.wait(waits)["status"] == "SUCCEEDED"
    assert amounts(endpoint, "gone") == (2, 0, 2)


def test_what_was_used_up_of_one_is_not_missing_in_the_next(endpoint: Endpoint) -> None:
    create(endpoint, "refilled", 3, "NON_REPLENISHABLE")
    endpoint.wait(endpoint.run("true", consumableResourcePropertiesOverride=needs(refilled=2)))
    assert amounts(endpoint, "refilled")[2] == 1
    endpoint.batch.delete_consumable_resource(consumableResource="refilled")
    create(endpoint, "refilled", 3, "NON_REPLENISHABLE")
    assert amounts(endpoint, "refilled") == (3, 0, 3)


def test_one_that_is_given_back_in_the_place_of_one_that_was_not(endpoint: Endpoint) -> None:
    create(endpoint, "other-kind", 3, "NON_REPLENISHABLE")
    endpoint.batch.delete_consumable_resource(consumableResource="other-kind")
    create(endpoint, "other-kind", 3)
    endpoint.wait(endpoint.run("true", consumableResourcePropertiesOverride=needs(other_kind=2)))
    assert amounts(endpoint, "other-kind") == (3, 0, 3)


def test_after_a_restart(start: Callable[..., Endpoint], tmp_path: Path) -> None:
    """What is used up stays used up, each attempt for itself; what was held is held again by who
    runs again."""
    endpoint = start("--cpus", "4", "--memory", "1GiB")
    endpoint.queue("queue", endpoint.environment("cpu"))
    create(endpoint, "fuel", 10, "NON_REPLENISHABLE")
    create(endpoint, "licence", 2)
    retry = {"attempts": 2}
    job_id = endpoint.run(
        "false", retryStrategy=retry, consumableResourcePropertiesOverride=needs(fuel=3)
    )
    endpoint.wait(job_id)
    assert amounts(endpoint, "fuel") == (10, 6, 4)
    array = held(endpoint, tmp_path / "gate", needs(licence=1), arrayProperties={"size": 3})
    running(endpoint, array, 2)
    endpoint.stop(signal.SIGKILL)
    endpoint = start("--cpus", "4", "--memory", "1GiB")
    assert amounts(endpoint, "fuel") == (10, 6, 4)
    running(endpoint, array, 2)
    assert amounts(endpoint, "licence") == (2, 2, 0)
    (tmp_path / "gate").touch()
    assert endpoint.wait(array)["status"] == "SUCCEEDED"
    assert amounts(endpoint, "licence") == (2, 0, 2)
    endpoint.batch.delete_consumable_resource(consumableResource="fuel")
    create(endpoint, "fuel", 10, "NON_REPLENISHABLE")
    endpoint.stop()
    endpoint = start("--cpus", "4", "--memory", "1GiB")
    assert amounts(endpoint, "fuel") == (10, 0, 10)
    assert_no_traceback(endpoint)
