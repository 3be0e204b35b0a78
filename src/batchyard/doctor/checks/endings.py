"""Why jobs failed: their endings, grouped by cause. Pure.

An array's children come as groups (``Ending.count``); each group is explained once, with how many it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchyard.doctor.checks.common import Found, Setting, job_of
from batchyard.doctor.facts import Ending, Facts, Job, known
from batchyard.doctor.finding import Finding, Kind
from batchyard.doctor.kinds import KINDS

#: what an ending says that is not its own cause: a dependency (BY001), or children that are told of one by one
_SAID_ELSEWHERE = ("Dependent Job failed", "Array Child Job failed")
#: what the command said helps with these
_READ_THE_LOG = (KINDS[60], KINDS[72], KINDS[62], KINDS[65])
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
        KINDS[46],
        _says(
            "exec format error", "no matching manifest", "does not match the detected host platform"
        ),
        "the image is built for another architecture than the host's",
        (
            "docker buildx build --platform linux/amd64 -t IMAGE --push .   # or linux/arm64, as the hosts are",
        ),
    ),
    Cause(
        KINDS[68],
        _says("no space left on device"),
        "the host's disk was full",
        (
            "give the launch template a larger /dev/xvda: BlockDeviceMappings, VolumeSize 100 or more",
        ),
    ),
    Cause(
        KINDS[61],
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
        KINDS[62],
        _says("outofmemory", "killed due to memory usage"),
        "the container used more memory than it asked for and was killed",
        (
            "ask for more memory in the step, or use less: on Amazon Linux 2023 the page cache counts too",
        ),
    ),
    Cause(
        KINDS[63],
        _says("host ec2"),
        "the host went away under the job: a Spot reclaim, a scale-in, or a termination by hand",
        (
            "retries: 2 and retry_on: [spot] in the step; on AWS: evaluateOnExit onStatusReason 'Host EC2*' RETRY",
        ),
    ),
    Cause(
        KINDS[64],
        _says("container overrides length must be at most"),
        "the command and environment given at submission are too long",
        ("put the list in a file or in S3 and give its address: 8,192 characters is the limit",),
    ),
    Cause(
        KINDS[65],
        _says("exceeded timeout"),
        "the attempt took longer than its timeout, which is never retried",
        ("raise the step's timeout, or give each child less to do (a larger array)",),
    ),
    Cause(
        KINDS[69],
        _says("jobstatetimelimit"),
        "a time limit of the queue cancelled the job while it was RUNNABLE",
        (
            "aws batch describe-job-queues --job-queues QUEUE --query 'jobQueues[].jobStateTimeLimitActions'",
        ),
    ),
    Cause(
        KINDS[70],
        _says("jobqueue deleted"),
        "the queue was deleted while the job was in it",
        ("submit it again to a queue that exists: aws batch describe-job-queues",),
    ),
    Cause(
        KINDS[67],
        _says("resourceinitializationerror"),
        "secrets, logs or volumes were not ready: the execution role, or the way to their service",
        (
            "check that the execution role may read each secret, and that the subnets reach its service",
        ),
    ),
    Cause(
        KINDS[66],
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
        KINDS[72],
        lambda e: e.exit_code in (125, 126, 127),
        "the command could not be executed: not found, not executable, or no such shell",
        ("docker run --rm --entrypoint sh IMAGE -c 'command -v PROGRAM'",),
    ),
    Cause(
        KINDS[60],
        lambda e: e.exit_code not in (None, 0),
        "the command itself failed",
        (),
    ),
)
_UNKNOWN = Cause(
    KINDS[73],
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
    if cause.kind is KINDS[62]:
        what.append(f"asked {job.memory_mib:,} MiB")
    if cause.kind is KINDS[63]:
        what.append(f"attempts allowed: {job.attempts}")
    if job.failed > looked_at:
        what.append(f"{looked_at:,} of the {job.failed:,} that failed were looked at")
    texts = [text for text in (ending.status_reason, ending.reason) if text]
    place = ending.example or job.job_id
    remedy = [line.replace("JOB_ID", place) for line in cause.remedy]
    if cause.kind in _READ_THE_LOG:
        remedy.append(_log(job, ending, place))
    if ending.exit_code == 137 and cause.kind is KINDS[60]:
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
