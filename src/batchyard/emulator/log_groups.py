"""The CloudWatch log groups of jobs, which exist beside the groups that moto has."""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.state import JOB, Document, EndpointState


def add_job_log_groups(state: EndpointState, request: Document, answer: Document) -> Document:
    """DescribeLogGroups: return moto's answer with the log groups of jobs.

    moto ignores logGroupNamePattern, so this function applies it.
    """
    groups: list[Document] = answer["logGroups"]
    if not request.get("nextToken"):
        moto_names = {group["logGroupName"] for group in groups}
        job_groups = list_job_log_groups(state, request.get("logGroupNamePrefix", ""))
        groups += [group for group in job_groups if group["logGroupName"] not in moto_names]
        groups.sort(key=lambda group: str(group["logGroupName"]))
    pattern = request.get("logGroupNamePattern", "")
    return {**answer, "logGroups": [g for g in groups if pattern in g["logGroupName"]]}


def list_job_log_groups(state: EndpointState, prefix: str = "") -> list[Document]:
    """Return the log groups of jobs as DescribeLogGroups shows them, sorted by name."""
    created_ms: dict[str, int] = {names.DEFAULT_LOG_GROUP: state.created_ms}
    for job in state.documents(JOB):
        name = log_group_of(job)
        if name is not None:
            created_ms[name] = min(created_ms.get(name, job["createdAt"]), job["createdAt"])
    return [
        _describe(state, name, created_ms[name])
        for name in sorted(created_ms)
        if name.startswith(prefix)
    ]


def _describe(state: EndpointState, name: str, created_ms: int) -> Document:
    arn = log_group_arn(state, name)
    return {
        "logGroupName": name,
        "creationTime": created_ms,
        "metricFilterCount": 0,
        "arn": f"{arn}:*",
        "storedBytes": 0,
        "logGroupClass": "STANDARD",
        "logGroupArn": arn,
    }


def is_job_log_group(state: EndpointState, name_or_arn: str) -> bool:
    """Return whether jobs log to a group. The default group exists before the first job."""
    name = log_group_name(name_or_arn)
    return name == names.DEFAULT_LOG_GROUP or any(
        log_group_of(job) == name for job in state.documents(JOB)
    )


def log_group_of(job: Document) -> str | None:
    """Return the log group of a job, or None if the job does not log to CloudWatch Logs."""
    configuration = job["container"].get("logConfiguration", {})
    if configuration.get("logDriver", "awslogs") != "awslogs":
        return None
    group: str = configuration.get("options", {}).get("awslogs-group", names.DEFAULT_LOG_GROUP)
    return group


def log_group_name(name_or_arn: str) -> str:
    """Return the name in the ARN of a log group; return a name as it is."""
    if name_or_arn.startswith("arn:"):
        return name_or_arn.split(":", 6)[-1].removesuffix(":*")
    return name_or_arn


def log_group_arn(state: EndpointState, name: str) -> str:
    return f"arn:aws:logs:{state.region}:{names.ACCOUNT_ID}:log-group:{name}"
