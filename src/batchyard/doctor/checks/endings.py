"""Why jobs failed: their endings, grouped by cause. Pure.

An array's children come as groups (``Ending.count``); each group is explained once, with how many it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchyard.doctor.checks.common import Found, Setting, job_of
from batchyard.doctor.checks.kinds import (
    COMMAND_FAILED,
    COMMAND_NOT_EXECUTABLE,
    CONTAINER_START_FAILED,
    FAILURE_UNEXPLAINED,
    HOST_DISK_FULL,
    HOST_LOST,
    IMAGE_ARCHITECTURE_WRONG,
    IMAGE_PULL_FAILED,
    OUT_OF_MEMORY,
    OVERRIDES_TOO_LONG,
    QUEUE_DELETED,
    QUEUE_TIME_LIMIT,
    RESOURCES_NOT_READY,
    TIMED_OUT,
)
from batchyard.doctor.facts import Ending, Facts, Job, known
from batchyard.doctor.finding import Finding, Kind

#: what an ending says that is not its own cause: a dependency (BY001), or children that are told of one by one
_SAID_ELSEWHERE = ("Dependent Job failed", "Array Child Job failed")
#: what the command said helps with these
_READ_THE_LOG = (COMMAND_FAILED, COMMAND_NOT_EXECUTABLE, OUT_OF_MEMORY, TIMED_OUT)
SIGNALS = {
    132: "SIGILL",
    134: "SIGABRT",
    135: "SIGBUS",
    137: "SIGKILL",
    139: "SIGSEGV",
    143: "SIGTERM",
}


@dataclass(frozen=True, slots=True)
class Cause:
    kind: Kind
    is_it: Callable[[Ending], bool]
    sentence: str
    remedy: tuple[str, ...]


def _says(*words: str) -> Callable[[Ending], bool]:
    return lambda e: any(word in f"{e.status_reason}\n{e.reason}".lower() for word in words)


#: in the order in which they are asked: the first that matches an ending explains it
CAUSES = (
    Cause(
        IMAGE_ARCHITECTURE_WRONG,
        _says(
            "exec format error", "no matching manifest", "does not match the detected host platform"
        ),
        "the image is built for another architecture than the host's",
        (
            "docker buildx build --platform linux/amd64 -t IMAGE --push .   # or linux/arm64, as the hosts are",
        ),
    ),
    Cause(
        HOST_DISK_FULL,
        _says("no space left on device"),
        "the host's disk was full",
        (
            "give the launch template a larger /dev/xvda: BlockDeviceMappings, VolumeSize 100 or more",
        ),
    ),
    Cause(
        IMAGE_PULL_FAILED,
        _says(
            "cannotpullcontainer",
            "cannotpullecrcontainer",
            "pull access denied",
            "manifest unknown",
        ),
        "the image could not be pulled: its name, its tag, the right to it, or the way to its registry",
        (
            "aws ecr describe-images --repository-name NAME --image-ids imageTag=TAG",
            "batchyard doctor queue QUEUE   # routes and endpoints of its subnets",
        ),
    ),
    Cause(
        OUT_OF_MEMORY,
        _says("outofmemory", "killed due to memory usage"),
        "the container used more memory than it asked for and was killed",
        (
            "ask for more memory in the step, or use less: on Amazon Linux 2023 the page cache counts too",
        ),
    ),
    Cause(
        HOST_LOST,
        _says("host ec2"),
        "the host went away under the job: a Spot reclaim, a scale-in, or a termination by hand",
        (
            "retries: 2 and retry_on: [spot] in the step; on AWS: evaluateOnExit onStatusReason 'Host EC2*' RETRY",
        ),
    ),
    Cause(
        OVERRIDES_TOO_LONG,
        _says("container overrides length must be at most"),
        "the command and environment given at submission are too long",
        ("put the list in a file or in S3 and give its address: 8,192 characters is the limit",),
    ),
    Cause(
        TIMED_OUT,
        _says("exceeded timeout"),
        "the attempt took longer than its timeout, which is never retried",
        ("raise the step's timeout, or give each child less to do (a larger array)",),
    ),
    Cause(
        QUEUE_TIME_LIMIT,
        _says("jobstatetimelimit"),
        "a time limit of the queue cancelled the job while it was RUNNABLE",
        (
            "aws batch describe-job-queues --job-queues QUEUE --query 'jobQueues[].jobStateTimeLimitActions'",
        ),
    ),
    Cause(
        QUEUE_DELETED,
        _says("jobqueue deleted"),
        "the queue was deleted while the job was in it",
        ("submit it again to a queue that exists: aws batch describe-job-queues",),
    ),
    Cause(
        RESOURCES_NOT_READY,
        _says("resourceinitializationerror"),
        "secrets, logs or volumes were not ready: the execution role, or the way to their service",
        (
            "check that the execution role may read each secret, and that the subnets reach its service",
        ),
    ),
    Cause(
        CONTAINER_START_FAILED,
        _says(
            "cannotstartcontainer",
            "cannotcreatecontainer",
            "cannotinspectcontainer",
            "dockertimeouterror",
        ),
        "Docker could not start the container: the entrypoint, a missing nvidia runtime, or a host in trouble",
        ("batchyard doctor host --gpu-container IMAGE   # on such a host",),
    ),
    Cause(
        COMMAND_NOT_EXECUTABLE,
        lambda e: e.exit_code in (125, 126, 127),
        "the command could not be executed: not found, not executable, or no such shell",
        ("docker run --rm --entrypoint sh IMAGE -c 'command -v PROGRAM'",),
    ),
    Cause(
        COMMAND_FAILED,
        lambda e: e.exit_code not in (None, 0),
        "the command itself failed",
        (),
    ),
)
_UNKNOWN = Cause(
    FAILURE_UNEXPLAINED,
    lambda _: True,
    "the job failed, for a reason that the doctor does not know",
    ("aws batch describe-jobs --jobs JOB_ID   # all that AWS Batch says of it",),
)


def endings(facts: Facts, setting: Setting) -> Found:
    """A job that runs or waits may have failed attempts behind it: they are explained too."""
    job = job_of(facts)
    if (
        job is None
        or not job.job_id
        or job.status == "SUCCEEDED"
        or not (job.endings or job.status == "FAILED")
    ):
        return None
    groups = known(job.endings) or (Ending(None, job.status_reason),)
    looked_at = sum(ending.count for ending in groups)
    explained = [(ending, _cause(job, ending)) for ending in groups]
    return [_finding(job, ending, cause, looked_at) for ending, cause in explained if cause]


def _cause(job: Job, ending: Ending) -> Cause | None:
    """None where another finding says it, or whoever stopped the job knows."""
    found = next((cause for cause in CAUSES if cause.is_it(ending)), None)
    if found or job.is_stopped or job.status != "FAILED":
        return found
    return None if ending.status_reason in _SAID_ELSEWHERE else _UNKNOWN


def _finding(job: Job, ending: Ending, cause: Cause, looked_at: int) -> Finding:
    of = f" of {job.size:,}" if job.size else ""
    one, many = ("child", "children") if job.size else ("attempt", "attempts")
    what = [f"{ending.count:,} {one if ending.count == 1 else many}{of}"]
    if ending.exit_code is not None:
        signal = SIGNALS.get(ending.exit_code)
        what.append(f"exit code {ending.exit_code}" + (f" ({signal})" if signal else ""))
    if cause.kind is OUT_OF_MEMORY:
        what.append(f"asked {job.memory_mib:,} MiB")
    if cause.kind is HOST_LOST:
        what.append(f"attempts allowed: {job.attempts}")
    if job.failed > looked_at:
        what.append(f"{looked_at:,} of the {job.failed:,} that failed were looked at")
    texts = [text for text in (ending.status_reason, ending.reason) if text]
    place = ending.example or job.job_id
    remedy = [line.replace("JOB_ID", place) for line in cause.remedy]
    if cause.kind in _READ_THE_LOG:
        remedy.append(_log(job, ending, place))
    if ending.exit_code == 137 and cause.kind is COMMAND_FAILED:
        remedy.append("SIGKILL is often the kernel's, for memory: batchyard doctor explain BY062")
    return Finding(
        cause.kind, cause.sentence, (", ".join(what), *texts), tuple(remedy), f"job {place}"
    )


def _log(job: Job, ending: Ending, job_id: str) -> str:
    """ListJobs, which tells of an array's children, does not know their streams."""
    if ending.log_stream:
        where = f"--log-group-name {job.log_group} --log-stream-name {ending.log_stream}"
        return f"aws logs get-log-events {where} --query 'events[].message' --output text   # what it said"
    query = "--query 'jobs[].attempts[].container.logStreamName' --output text"
    return f"aws batch describe-jobs --jobs {job_id} {query}   # the stream of its log in {job.log_group}"
