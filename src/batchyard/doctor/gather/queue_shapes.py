"""Convert AWS's shapes of queues, policies and consumable resources to facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchyard.doctor.facts import Consumable, FrontJob, Policy, Queue
from batchyard.doctor.gather.job_shapes import job_id_of, name_of

#: Jobs at the front of a queue that are kept as facts.
MAX_FRONT_JOBS = 20


def queue_of(document: Mapping[str, Any]) -> Queue:
    order = sorted(
        document.get("computeEnvironmentOrder", ()), key=lambda entry: int(entry["order"])
    )
    return Queue(
        document["jobQueueName"],
        document.get("state", ""),
        document.get("status", "VALID"),
        document.get("statusReason", ""),
        tuple(name_of(entry["computeEnvironment"]) for entry in order),
    )


def front_of(snapshot: Mapping[str, Any], described: Mapping[str, Any]) -> tuple[FrontJob, ...]:
    """Return the first jobs of the queue; ``described`` are those that were described, by id."""
    return tuple(
        FrontJob(
            job_id,
            described.get(job_id, {}).get("statusReason", ""),
            entry.get("earliestTimeAtPosition"),
        )
        for entry in snapshot.get("frontOfQueue", {}).get("jobs", ())[:MAX_FRONT_JOBS]
        for job_id in (job_id_of(entry["jobArn"]),)
    )


def policy_of(document: Mapping[str, Any], snapshot: Mapping[str, Any], share: str) -> Policy:
    """Return the scheduling policy; ``share`` is the share of the waiting job, also active."""
    rules = document.get("fairsharePolicy", {})
    utilization = snapshot.get("queueUtilization", {})
    top = utilization.get("fairshareUtilization", {}).get("topCapacityUtilization", ())
    active = dict.fromkeys(
        [*(entry["shareIdentifier"] for entry in top), *([share] if share else [])]
    )
    usage = utilization.get("totalCapacityUsage", ())
    used = [float(entry["quantity"]) for entry in usage if entry.get("capacityUnit") == "VCPU"]
    return Policy(
        int(rules.get("computeReservation", 0)),
        tuple(active),
        used[0] if used else None,
        str(document.get("arn", "")),
    )


def consumable_of(document: Mapping[str, Any]) -> Consumable:
    total, in_use = int(document.get("totalQuantity", 0)), int(document.get("inUseQuantity", 0))
    available = int(document.get("availableQuantity", total - in_use))
    return Consumable(document["consumableResourceName"], total, available)
