"""Convert the answers of DescribeJobs and ListJobs to facts. Pure.

The parent of an array is PENDING nearly all the time. Its state in the facts is the most advanced
state of its children that are not over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from batchyard.doctor.facts import ConsumableRequest, Dependency, Ending, Job, Missing

_INSTANCE = re.compile(r"\bi-[0-9a-f]+")
#: Exit codes of a container that was stopped.
_STOPPED_CODES = (None, 137, 143)


def name_of(arn: str) -> str:
    """Return the name or id at the end of an ARN; a name is returned as it is."""
    return arn.rpartition("/")[2] if arn.startswith("arn:") else arn


def job_id_of(arn: str) -> str:
    """Return the id at the end of a job's ARN: `ID:3` of `…:job/ID:3`."""
    return arn.partition(":job/")[2] or arn


def job_of(
    detail: Mapping[str, Any],
    details: Mapping[str, Any] | None = None,
    failed: Sequence[Mapping[str, Any]] | Missing = (),
    runnable: Sequence[Mapping[str, Any]] = (),
    started_ms: int | None = None,
) -> Job:
    """Return the facts of a job.

    ``details`` are the jobs that it depends on, by id; ``failed`` and ``runnable`` are children of
    an array, in the shape of ListJobs; ``started_ms`` is when the task of a STARTING job was
    created.
    """
    details = details or {}
    container = next(iter(_containers(detail)), {})
    requested = _sum_requirements(detail)
    array = detail.get("arrayProperties", {})
    size = 0 if "index" in array else int(array.get("size", 0))
    counts = array.get("statusSummary", {})
    status = state_of(detail["status"], counts)
    return Job(
        detail["jobId"],
        status,
        name=detail.get("jobName", ""),
        status_reason=_reason(detail, runnable),
        since_ms=started_ms
        if status == "STARTING"
        else _find_waiting_start(detail, details, runnable),
        vcpus=requested["VCPU"],
        memory_mib=int(requested["MEMORY"]),
        gpus=int(requested["GPU"]),
        size=size,
        nodes=int(detail.get("nodeProperties", {}).get("numNodes", 0)),
        platform="FARGATE" if "FARGATE" in detail.get("platformCapabilities", ()) else "EC2",
        image=container.get("image", ""),
        log_driver=container.get("logConfiguration", {}).get("logDriver", ""),
        assigns_public_ip=container.get("networkConfiguration", {}).get("assignPublicIp")
        == "ENABLED",
        attempts=int(detail.get("retryStrategy", {}).get("attempts", 1)),
        depends_on=_dependencies(detail, details),
        endings=_endings_of_children(detail, failed) if size else _endings(detail),
        failed=int(counts.get("FAILED", 0)),
        is_stopped=_is_stopped(detail),
        log_group=container.get("logConfiguration", {})
        .get("options", {})
        .get("awslogs-group", "/aws/batch/job"),
        consumables=_consumables(detail),
        share=detail.get("shareIdentifier", ""),
        queue=name_of(detail.get("jobQueue", "")),
    )


def state_of(status: str, counts: Mapping[str, int]) -> str:
    if status in ("SUCCEEDED", "FAILED") or not counts:
        return status
    for state in ("RUNNING", "STARTING", "RUNNABLE"):
        if counts.get(state):
            return state
    return status


def _reason(detail: Mapping[str, Any], runnable: Sequence[Mapping[str, Any]]) -> str:
    """Return the reason of the first waiting child of an array, else that of the job."""
    reasons = (str(child["statusReason"]) for child in runnable if child.get("statusReason"))
    return next(reasons, str(detail.get("statusReason", "")))


def _find_waiting_start(
    detail: Mapping[str, Any], details: Mapping[str, Any], runnable: Sequence[Mapping[str, Any]]
) -> int | None:
    """Return since when the job waits, in milliseconds since 1970; None if that is unknown.

    AWS does not report it. It is the last of: the job was created, a dependency ended, an attempt
    failed.
    """
    ids = (dependency.get("jobId") for dependency in detail.get("dependsOn", ()))
    dependencies = [details[job_id] for job_id in ids if job_id in details]
    times = [detail.get("createdAt")]
    times += [attempt.get("stoppedAt") for attempt in detail.get("attempts", ())]
    times += [dependency.get("stoppedAt") for dependency in dependencies]
    times += [child.get("createdAt") for child in runnable[-1:]]
    return max((int(time) for time in times if time), default=None)


# -- requirements --------------------------------------------------------------------------------


def _containers(detail: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return all containers of the job; for a multi-node job, those of the first group."""
    groups = detail.get("nodeProperties", {}).get("nodeRangeProperties", ())
    for owner in (*groups, detail):
        tasks = owner.get("ecsProperties", {}).get("taskProperties", ())
        if tasks:
            return list(tasks[0].get("containers", ()))
        if owner.get("container"):
            return [owner["container"]]
    return []


def _sum_requirements(detail: Mapping[str, Any]) -> dict[str, float]:
    """Return what all containers of the job request together: VCPU, MEMORY (MiB) and GPU."""
    sums = {"VCPU": 0.0, "MEMORY": 0.0, "GPU": 0.0}
    for container in _containers(detail):
        # Old job definitions use vcpus and memory in place of resourceRequirements.
        requirements = {
            "VCPU": float(container.get("vcpus") or 0),
            "MEMORY": float(container.get("memory") or 0),
        }
        for entry in container.get("resourceRequirements", ()):
            requirements[entry["type"]] = float(entry["value"])
        for kind in sums:
            sums[kind] += requirements.get(kind, 0.0)
    return sums


def _consumables(detail: Mapping[str, Any]) -> tuple[ConsumableRequest, ...]:
    entries = detail.get("consumableResourceProperties", {}).get("consumableResourceList", ())
    return tuple(
        ConsumableRequest(name_of(entry["consumableResource"]), int(entry["quantity"]))
        for entry in entries
    )


def _dependencies(detail: Mapping[str, Any], details: Mapping[str, Any]) -> tuple[Dependency, ...]:
    ids = [entry["jobId"] for entry in detail.get("dependsOn", ()) if entry.get("jobId")]
    return tuple(Dependency(job_id, details.get(job_id, {}).get("status", "")) for job_id in ids)


# -- endings -------------------------------------------------------------------------------------


def _endings(detail: Mapping[str, Any]) -> tuple[Ending, ...]:
    job_id, reason = detail["jobId"], detail.get("statusReason", "")
    attempts = list(detail.get("attempts", ()))
    endings = [_ending(attempt, attempt.get("container", {}), job_id) for attempt in attempts]
    is_failed = detail["status"] == "FAILED"
    if is_failed and endings and _is_stopped(detail):
        # Somebody stopped the job: the exit code after the signal is no cause.
        endings = endings[:-1] if endings[-1].exit_code in _STOPPED_CODES else endings
    elif is_failed and reason not in {ending.status_reason for ending in endings}:
        endings.append(_ending(detail, {}, job_id))
    return group_endings(ending for ending in endings if ending.exit_code != 0)


def _endings_of_children(
    parent: Mapping[str, Any], children: Sequence[Mapping[str, Any]] | Missing
) -> tuple[Ending, ...] | Missing:
    if isinstance(children, Missing):
        return children
    endings = []
    for child in children:
        ending = _ending(child, child.get("container", {}), child["jobId"])
        is_stopped = _is_stopped(parent) or _is_stopped(child)
        if not is_stopped or ending.exit_code not in _STOPPED_CODES:
            endings.append(ending)
    return group_endings(endings)


def _is_stopped(document: Mapping[str, Any]) -> bool:
    """Return whether a user stopped the job."""
    return bool(document.get("isTerminated") or document.get("isCancelled"))


def _ending(outer: Mapping[str, Any], container: Mapping[str, Any], job_id: str) -> Ending:
    reasons = outer.get("statusReason", ""), container.get("reason", "")
    return Ending(
        container.get("exitCode"), *reasons, 1, job_id, container.get("logStreamName", "")
    )


def group_endings(endings: Iterable[Ending]) -> tuple[Ending, ...]:
    """Merge equal endings, largest group first. The names of hosts in reasons do not count."""
    groups: dict[tuple[object, str, str], list[Ending]] = {}
    for ending in endings:
        texts = (_INSTANCE.sub("i-", text) for text in (ending.status_reason, ending.reason))
        groups.setdefault((ending.exit_code, *texts), []).append(ending)  # type: ignore[arg-type]
    merged = [replace(group[0], count=len(group)) for group in groups.values()]
    return tuple(sorted(merged, key=lambda ending: -ending.count))
