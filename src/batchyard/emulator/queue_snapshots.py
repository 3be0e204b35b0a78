"""GetJobQueueSnapshot: the RUNNABLE jobs at the front of a queue, and the use of each share."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.state import JOB, QUEUE, Document, EndpointState

_MAX_JOBS = 100
_MAX_SHARES = 20


def get_snapshot(state: EndpointState, request: Document) -> Document:
    queue = state.require(QUEUE, request["jobQueue"])
    departures = _departures(state, queue)
    if "schedulingPolicyArn" in queue:
        # With fair share, each job that left may have been ahead of any other.
        departures = [(-1, departed_ms) for _, departed_ms in departures]
    front = state.scheduler.front_of(queue["jobQueueArn"], _MAX_JOBS)
    jobs = []
    for job_id, index in front:
        job = state.get(JOB, job_id)
        assert job is not None
        arn = job["jobArn"] if "arrayProperties" not in job else f"{job['jobArn']}:{index}"
        since_ms = _position_since_ms(state, job, index, departures)
        jobs.append({"jobArn": arn, "earliestTimeAtPosition": since_ms})
    return {
        "frontOfQueue": {"jobs": jobs, "lastUpdatedAt": state.now_ms()},
        "queueUtilization": _utilization(state, queue),
    }


def _utilization(state: EndpointState, queue: Document) -> Document:
    used_vcpus: dict[str, float] = {}
    for job_id, _ in state.scheduler.placed_children():
        job = state.get(JOB, job_id)
        if job is not None and job["jobQueue"] == queue["jobQueueArn"]:
            share = job.get("shareIdentifier", "")
            used_vcpus[share] = used_vcpus.get(share, 0.0) + job["_resources"]["vcpus"]
    utilization: Document = {
        "totalCapacityUsage": _capacity(sum(used_vcpus.values())),
        "lastUpdatedAt": state.now_ms(),
    }
    if "schedulingPolicyArn" in queue:
        shares = sorted(used_vcpus, key=lambda share: -used_vcpus[share])
        utilization["fairshareUtilization"] = {
            "activeShareCount": len(shares),
            "topCapacityUtilization": [
                {"shareIdentifier": share, "capacityUsage": _capacity(used_vcpus[share])}
                for share in shares[:_MAX_SHARES]
            ],
        }
    return utilization


def _capacity(vcpus: float) -> list[Document]:
    return [{"capacityUnit": "VCPU", "quantity": vcpus}]


def _departures(state: EndpointState, queue: Document) -> list[tuple[int, int]]:
    """Return (job number, time in ms) of each departure from the line of RUNNABLE jobs.

    Of an array job it has the first child that left, and all children that run.
    """
    arn = queue["jobQueueArn"]
    job_ids = {job["jobId"] for job in state.documents(JOB) if job["jobQueue"] == arn}
    rows = [state.loop.row(job_id) for job_id in job_ids]
    departures = [
        (row.number, departed_ms) for row in rows if (departed_ms := row.started_ms or row.ended_ms)
    ]
    for job_id, index in state.scheduler.placed_children():
        task = state.loop.find_running_task(job_id, index) if job_id in job_ids else None
        if task is not None and task.started_ms:
            departures.append((task.job_number, task.started_ms))
    return departures


def _position_since_ms(
    state: EndpointState, job: Document, index: int, departures: list[tuple[int, int]]
) -> int:
    """Return when a child became RUNNABLE, or when the last one ahead of it left the line."""
    row = state.read_row(job["jobId"])
    times_ms: list[int] = [job["createdAt"]]
    for entry in job["dependsOn"]:
        if "jobId" in entry:
            parent, _ = names.split_child_id(entry["jobId"])
            times_ms.append(state.loop.row(parent).ended_ms or 0)
    if row.attempts:
        attempts = state.read_attempts(job["jobId"], index)
        times_ms += [attempt.ended_ms for attempt in attempts]
    times_ms += [departed_ms for number, departed_ms in departures if number <= row.number]
    return max(times_ms)
