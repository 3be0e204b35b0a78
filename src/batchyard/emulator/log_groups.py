"""The CloudWatch log groups of jobs, which exist beside the groups that users create.

A group of jobs has a document: when it was created, and when it was deleted before. Retention, tags
and filters of such a group are moto's, which gets to know the group when a request needs it there.
"""

from __future__ import annotations

from batchyard.emulator import names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.state import LOG_GROUP, Document, EndpointState


def open_for_job(state: EndpointState, job: Document) -> bool:
    """Return whether the log group of a job that starts exists.

    AWS Batch creates its own group, and `awslogs-create-group` any group.
    """
    name = log_group_of(job)
    if name is None or is_job_log_group(state, name):
        return True
    options = job["container"].get("logConfiguration", {}).get("options", {})
    may_create = options.get("awslogs-create-group", "").lower() == "true"
    is_default = name == names.DEFAULT_LOG_GROUP
    if not (is_default or may_create or state.user_log_groups.has_group(name)):
        return False
    _set_created(state, name)
    return True


def _set_created(state: EndpointState, name: str) -> None:
    document = state.get(LOG_GROUP, name) or {}
    state.put(LOG_GROUP, name, {**document, "createdAt": state.now_ms()})
    state.save()
    state.user_log_groups.add_group(name)


def _created_ms(state: EndpointState, name: str) -> int | None:
    """Return when a group of jobs was created; None for any other group, or a deleted one.

    The default group exists before the first job.
    """
    if state.user_log_groups.was_deleted(name):
        return None
    document = state.get(LOG_GROUP, name)
    if document is not None:
        created_ms: int | None = document["createdAt"]
        return created_ms
    return state.created_ms if name == names.DEFAULT_LOG_GROUP else None


def is_job_log_group(state: EndpointState, name_or_arn: str) -> bool:
    return _created_ms(state, log_group_name(name_or_arn)) is not None


def deleted_ms(state: EndpointState, name: str) -> int:
    """Return when a group was last deleted, with all its streams; -1 if never."""
    deleted: int = (state.get(LOG_GROUP, name) or {}).get("deletedAt", -1)
    return deleted


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
    return names.arn("logs", state.region, f"log-group:{name}")


# -- operations -----------------------------------------------------------------------------------


def create_log_group(state: EndpointState, request: Document) -> None:
    name = request["logGroupName"]
    if is_job_log_group(state, name):
        raise ApiError("ResourceAlreadyExistsException", "The specified log group already exists")
    document = state.get(LOG_GROUP, name)
    if document is not None:
        created = {"deletedAt": state.now_ms(), **document, "createdAt": state.now_ms()}
        state.put(LOG_GROUP, name, created)
        state.save()


def delete_log_group(state: EndpointState, request: Document) -> Document | None:
    name = request["logGroupName"]
    if not is_job_log_group(state, name):
        return None
    state.put(LOG_GROUP, name, {"createdAt": None, "deletedAt": state.now_ms()})
    state.save()
    return None if state.user_log_groups.has_group(name) else {}


def let_moto_answer(state: EndpointState, request: Document) -> None:
    """Leave a request about a log group to moto, which must know the group if it is one of jobs."""
    members = ("logGroupName", "logGroupIdentifier", "resourceArn")
    for name in (log_group_name(request[member]) for member in members if request.get(member)):
        if is_job_log_group(state, name):
            state.user_log_groups.add_group(name)


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
    group_names = {names.DEFAULT_LOG_GROUP} | {name for name, _ in state.items(LOG_GROUP)}
    return [
        _describe(state, name, created_ms)
        for name in sorted(group_names)
        if name.startswith(prefix) and (created_ms := _created_ms(state, name)) is not None
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
