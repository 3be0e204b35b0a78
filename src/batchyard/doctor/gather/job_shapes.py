"""DescribeJobs' and ListJobs' answers as facts. Pure.

An array's parent is PENDING for nearly all of its life, whatever its children do: its state here is that of the
children, as far as they are what somebody waits for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from batchyard.doctor.facts import ConsumableRequest, Dependency, Ending, Job, Missing

_INSTANCE = re.compile(r"\bi-[0-9a-f]+")
#: how a container ends that is told to stop
_STOPPED = (None, 137, 143)


def bare(arn: str) -> str:
    """The name or id at the end of an ARN; a name as it is."""
    return arn.rpartition("/")[2] if arn.startswith("arn:") else arn


def job_id_of(arn: str) -> str:
    """`…:job/ID:3` -> `ID:3`."""
    return arn.partition(":job/")[2] or arn


def job_of(
    detail: Mapping[str, Any],
    others: Mapping[str, Any] | None = None,
    failed: Sequence[Mapping[str, Any]] | Missing = (),
    runnable: Sequence[Mapping[str, Any]] = (),
    started_ms: int | None = None,
) -> Job:
    """``others``: its dependencies by id; ``failed``, ``runnable``: children of an array, as ListJobs gives them;
    ``started_ms``: when the task of a job that is STARTING was made."""
    others = others or {}
    container = _container(detail)
    asked = _asked(detail)
    array = detail.get("arrayProperties", {})
    size = 0 if "index" in array else int(array.get("size", 0))
    counts = array.get("statusSummary", {})
    status = state_of(detail["status"], counts)
    return Job(
        detail["jobId"],
        status,
        name=detail.get("jobName", ""),
        status_reason=_reason(detail, runnable),
        since_ms=started_ms if status == "STARTING" else _since(detail, others, runnable),
        vcpus=asked["VCPU"],
        memory_mib=int(asked["MEMORY"]),
        gpus=int(asked["GPU"]),
        size=size,
        nodes=int(detail.get("nodeProperties", {}).get("numNodes", 0)),
        platform="FARGATE" if "FARGATE" in detail.get("platformCapabilities", ()) else "EC2",
        image=container.get("image", ""),
        log_driver=container.get("logConfiguration", {}).get("logDriver", ""),
        assigns_public_ip=container.get("networkConfiguration", {}).get("assignPublicIp")
        == "ENABLED",
        attempts=int(detail.get("retryStrategy", {}).get("attempts", 1)),
        depends_on=_dependencies(detail, others),
        endings=_endings_of_children(detail, failed) if size else _endings(detail),
        failed=int(counts.get("FAILED", 0)),
        is_stopped=_is_stopped(detail),
        log_group=container.get("logConfiguration", {})
        .get("options", {})
        .get("awslogs-group", "/aws/batch/job"),
        consumables=_consumables(detail),
        share=detail.get("shareIdentifier", ""),
    )


def state_of(status: str, counts: Mapping[str, int]) -> str:
    if status in ("SUCCEEDED", "FAILED") or not counts:
        return status
    for state in ("RUNNING", "STARTING", "RUNNABLE"):
        if counts.get(state):
            return state
    return status


def _reason(detail: Mapping[str, Any], runnable: Sequence[Mapping[str, Any]]) -> str:
    """The job's own; of an array that waits, what AWS says of the child at the front."""
    said = [str(child["statusReason"]) for child in runnable if child.get("statusReason")]
    return said[0] if said else str(detail.get("statusReason", ""))


def _since(
    detail: Mapping[str, Any], others: Mapping[str, Any], runnable: Sequence[Mapping[str, Any]]
) -> int | None:
    """AWS does not say since when a job is RUNNABLE: since it was made, its dependencies ended, its attempt failed."""
    waited_for = [
        others[d["jobId"]] for d in detail.get("dependsOn", ()) if d.get("jobId") in others
    ]
    times = [
        detail.get("createdAt"),
        *(attempt.get("stoppedAt") for attempt in detail.get("attempts", ())),
    ]
    times += [other.get("stoppedAt") for other in waited_for]
    times += [child.get("createdAt") for child in runnable[-1:]]
    known = [int(time) for time in times if time]
    return max(known, default=None)


# -- what it asks for --------------------------------------------------------------------------------------------


def _containers(detail: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Its container; of a job with several, all of them; of a multi-node job, those of the largest group."""
    groups = detail.get("nodeProperties", {}).get("nodeRangeProperties", ())
    for owner in (*groups, detail):
        tasks = owner.get("ecsProperties", {}).get("taskProperties", ())
        if tasks:
            return list(tasks[0].get("containers", ()))
        if owner.get("container"):
            return [owner["container"]]
    return []


def _container(detail: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(iter(_containers(detail)), {})


def _asked(detail: Mapping[str, Any]) -> dict[str, float]:
    found = {"VCPU": 0.0, "MEMORY": 0.0, "GPU": 0.0}
    for container in _containers(detail):
        wanted = {
            entry["type"]: float(entry["value"])
            for entry in container.get("resourceRequirements", ())
        }
        # The members from before resourceRequirements.
        wanted = {
            "VCPU": float(container.get("vcpus") or 0),
            "MEMORY": float(container.get("memory") or 0),
        } | wanted
        for kind in found:
            found[kind] += wanted.get(kind, 0.0)
    return found


def _consumables(detail: Mapping[str, Any]) -> tuple[ConsumableRequest, ...]:
    entries = detail.get("consumableResourceProperties", {}).get("consumableResourceList", ())
    return tuple(
        ConsumableRequest(bare(entry["consumableResource"]), int(entry["quantity"]))
        for entry in entries
    )


def _dependencies(detail: Mapping[str, Any], others: Mapping[str, Any]) -> tuple[Dependency, ...]:
    ids = [entry["jobId"] for entry in detail.get("dependsOn", ()) if entry.get("jobId")]
    return tuple(Dependency(job_id, others.get(job_id, {}).get("status", "")) for job_id in ids)


# -- how it ended ------------------------------------------------------------------------------------------------


def _endings(detail: Mapping[str, Any]) -> tuple[Ending, ...]:
    job_id, reason = detail["jobId"], detail.get("statusReason", "")
    attempts = list(detail.get("attempts", ()))
    found = [_ending(attempt, attempt.get("container", {}), job_id) for attempt in attempts]
    is_failed = detail["status"] == "FAILED"
    if is_failed and found and _is_stopped(detail):
        # Whoever stopped it knows; what the container made of the signal is no cause.
        found = found[:-1] if found[-1].exit_code in _STOPPED else found
    elif is_failed and reason not in {ending.status_reason for ending in found}:
        found.append(_ending(detail, {}, job_id))
    return grouped(ending for ending in found if ending.exit_code != 0)


def _endings_of_children(
    parent: Mapping[str, Any], children: Sequence[Mapping[str, Any]] | Missing
) -> tuple[Ending, ...] | Missing:
    if isinstance(children, Missing):
        return children
    found = [
        (child, _ending(child, child.get("container", {}), child["jobId"])) for child in children
    ]
    return grouped(
        ending
        for child, ending in found
        if not ((_is_stopped(parent) or _is_stopped(child)) and ending.exit_code in _STOPPED)
    )


def _is_stopped(document: Mapping[str, Any]) -> bool:
    """By somebody's hand."""
    return bool(document.get("isTerminated") or document.get("isCancelled"))


def _ending(outer: Mapping[str, Any], container: Mapping[str, Any], job_id: str) -> Ending:
    reasons = outer.get("statusReason", ""), container.get("reason", "")
    return Ending(
        container.get("exitCode"), *reasons, 1, job_id, container.get("logStreamName", "")
    )


def grouped(endings: Iterable[Ending]) -> tuple[Ending, ...]:
    """The same but for the name of the host is the same; the first of each stands for all, the largest group first."""
    groups: dict[tuple[object, str, str], list[Ending]] = {}
    for ending in endings:
        texts = (_INSTANCE.sub("i-", text) for text in (ending.status_reason, ending.reason))
        groups.setdefault((ending.exit_code, *texts), []).append(ending)  # type: ignore[arg-type]
    merged = [replace(some[0], count=len(some)) for some in groups.values()]
    return tuple(sorted(merged, key=lambda ending: -ending.count))
