"""Read a JSON file of SubmitJob requests, check all of them, order and submit them.

A file has one request, or `{"jobs": [...]}`. `dependsOn` can name another job of the file as
`${jobName}`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from batchyard.aws.batch import Batch, shape_problems
from batchyard.aws.submit_job import JobSubmitter, make_look_delays
from batchyard.batch import limits, validation
from batchyard.engines.base import Backoff, Polling, Say, say_nothing
from batchyard.engines.busy_service import PatientCaller
from batchyard.errors import InputError

_REFERENCE = re.compile(r"\$\{([^}]+)\}")
#: a reference to a job of the file, or to one child of an array
_WHOLE_REFERENCE = re.compile(r"\$\{[^}]+\}(:[0-9]+)?")
#: the member of a request in botocore's messages about wrong shapes
_MEMBER = re.compile(
    r"(?:Missing required parameter in|Unknown parameter in|Invalid \w+ for parameter) (\w+)"
)
#: NUL ends a text in C, and half of a surrogate pair cannot be encoded
_INVALID_TEXT = re.compile("[\0\ud800-\udfff]")
#: member of a request -> member of the job definition that it overrides
_OVERRIDDEN = {
    "containerOverrides": "containerProperties",
    "ecsPropertiesOverride": "ecsProperties",
    "eksPropertiesOverride": "eksProperties",
    "nodeOverrides": "nodeProperties",
}
#: the shape of all ids of AWS Batch; other texts are no ids
_JOB_ID = re.compile(r"[a-f0-9]{8}(-[a-f0-9]{4}){3}-[a-f0-9]{12}")
_MAX_DEPTH = 50
_POLLING = Polling(first_s=1.0, longest_s=30.0)
_TERMINAL_STATES = ("SUCCEEDED", "FAILED")

#: hint for a file that has no request
_SKELETON = "`aws batch submit-job --generate-cli-skeleton` prints a request to fill in"

Request = dict[str, Any]


def parse(text: str, file_name: str) -> list[Request]:
    """Return the requests of a file. Raises InputError if the file has none."""
    document = _parse_json(text.removeprefix("\ufeff"), file_name)
    if isinstance(document, dict) and "steps" in document:
        raise _pipeline_error(file_name)
    entries = document
    if isinstance(document, dict) and "jobs" in document:
        entries = document["jobs"]
        if ignored := [repr(key) for key in document if key != "jobs"]:
            raise InputError(
                f"{file_name}: beside 'jobs' there is {', '.join(ignored)}, which would be ignored",
                hint="move it into a request, which is an entry of `jobs`",
            )
    if isinstance(entries, dict):
        entries = [entries]
    if not _is_list_of_objects(entries):
        raise InputError(
            f'{file_name}: expected a SubmitJob request, or {{"jobs": [...]}} with requests',
            hint=_SKELETON,
        )
    requests: list[Request] = entries
    return requests


def _parse_json(text: str, file_name: str) -> Any:
    try:
        document = json.loads(text)
    except RecursionError:
        raise _depth_error(file_name) from None
    except ValueError as exc:
        if file_name.lower().endswith((".yaml", ".yml")):
            raise _pipeline_error(file_name) from None
        if not text.strip():
            raise InputError(f"{file_name} is empty", hint=_SKELETON) from None
        raise InputError(f"{file_name} is not valid JSON: {exc}", hint=_SKELETON) from None
    if _is_too_deep(document):
        raise _depth_error(file_name)
    return document


def _is_list_of_objects(entries: Any) -> bool:
    return (
        isinstance(entries, list)
        and bool(entries)
        and all(isinstance(entry, dict) for entry in entries)
    )


def _pipeline_error(file_name: str) -> InputError:
    return InputError(
        f"{file_name} looks like a pipeline, and `submit` takes SubmitJob requests in JSON",
        hint=f"`batchyard run {file_name} --engine aws --env NAME` runs a pipeline",
    )


def _depth_error(file_name: str) -> InputError:
    return InputError(
        f"{file_name} is nested more than {_MAX_DEPTH} levels deep, and no SubmitJob request is",
        hint=_SKELETON,
    )


def _is_too_deep(document: Any) -> bool:
    level = [document]
    for _ in range(_MAX_DEPTH):
        containers = (
            value.values() if isinstance(value, dict) else value
            for value in level
            if isinstance(value, (dict, list))
        )
        level = [member for container in containers for member in container]
    return bool(level)


def order(requests: Sequence[Request], problems: list[str]) -> list[int]:
    """Return the numbers of the requests, each after the ones it depends on.

    Adds a problem for each name that does not exist or is not unique, and for a circle.
    """
    graph_problems = _duplicate_problems(requests)
    by_name: dict[str, int] = {}
    for number, request in enumerate(requests):
        by_name.setdefault(str(request.get("jobName", "")), number)
    graph: dict[int, set[int]] = {number: set() for number in range(len(requests))}
    for number, request in enumerate(requests):
        for name in _references(request):
            if name in by_name:
                graph[number].add(by_name[name])
                continue
            graph_problems.append(
                f"jobs[{number}]: dependsOn names ${{{name}}}, and no job of the file has that name"
            )
    problems += graph_problems
    if graph_problems:
        return []
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as exc:
        circle = " -> ".join(str(requests[number].get("jobName")) for number in exc.args[1])
        problems.append(f"the jobs depend on each other in a circle: {circle}")
        return []


def _duplicate_problems(requests: Sequence[Request]) -> list[str]:
    """Return a problem for each repeated name that another job depends on."""
    referenced = {name for request in requests for name in _references(request)}
    names: set[str] = set()
    problems = []
    for number, request in enumerate(requests):
        name = str(request.get("jobName", ""))
        if name in names and name in referenced:
            problems.append(
                f"jobs[{number}]: two jobs are named {name!r}, and another depends on that name"
            )
        names.add(name)
    return problems


@dataclass(frozen=True, slots=True)
class AwsResources:
    """What the requests name, as AWS describes it."""

    #: by name and by ARN
    queues: Mapping[str, Any]
    #: definitions that can be used, by the name that the requests have
    definitions: Mapping[str, Any]
    #: by id
    jobs: Mapping[str, Any] = field(default_factory=dict)
    #: names of consumable resources that do not exist
    missing_consumables: Container[str] = ()


def find_problems(
    requests: Sequence[Request],
    resources: AwsResources,
    find_shape_problems: Callable[[Request], Sequence[str]] = shape_problems,
) -> list[str]:
    """Return everything in the requests that AWS would refuse."""
    sizes = {
        f"${{{request.get('jobName')}}}": _array_size(request) for request in reversed(requests)
    }
    parents = {name: (name[2:-1], size) for name, size in sizes.items()}
    parents |= {
        job_id: (job.get("jobName", job_id), _array_size(job))
        for job_id, job in resources.jobs.items()
    }
    return [
        f"jobs[{number}] ({request.get('jobName', '?')}): {problem}"
        for number, request in enumerate(requests)
        for problem in _problems_of(request, resources, parents, find_shape_problems(request))
    ]


def _problems_of(
    request: Request,
    resources: AwsResources,
    parents: Mapping[str, tuple[str, int | None]],
    shape_problems: Sequence[str],
) -> list[str]:
    queue_type = resources.queues.get(str(request.get("jobQueue")), {}).get("jobQueueType")
    is_fargate = queue_type == "ECS_FARGATE" if queue_type else None
    well_shaped = _drop_misshapen_members(request, shape_problems)
    checkable = _drop_bad_references(well_shaped, parents)
    return [
        *shape_problems,
        *_text_problems(request),
        *_limit_problems(request),
        *_reference_problems(well_shaped),
        *validation.request_problems(checkable, parents, is_fargate=is_fargate),
        *_queue_problems(request, resources.queues),
        *_missing_resource_problems(well_shaped, resources),
        *_override_problems(well_shaped, resources.definitions),
    ]


def replace_references(request: Request, ids: Mapping[str, str]) -> Request:
    """Return the request with job ids instead of `${jobName}`. ``ids``: job name -> id."""
    depends_on = [
        {**entry, "jobId": _REFERENCE.sub(lambda match: ids[match[1]], entry["jobId"])}
        if "jobId" in entry
        else entry
        for entry in request.get("dependsOn", [])
    ]
    return {**request, "dependsOn": depends_on} if depends_on else request


def check(
    requests: Sequence[Request],
    batch: Batch,
    file_name: str,
    lag_s: float = 0.0,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Request]:
    """Return the requests in the order of submission. Raises InputError with all problems.

    ``lag_s``: seconds after which AWS shows a new job, which requests may depend on.
    """
    queues = queues_of(requests)
    resources = AwsResources(
        queues=batch.queues(queues) if queues else {},
        definitions=batch.usable_definitions(definitions_of(requests)),
        jobs=_describe_dependencies(dependencies_of(requests), batch, lag_s, sleep),
        missing_consumables=batch.missing_consumables(consumables_of(requests)),
    )
    problems = find_problems(requests, resources)
    numbers = order(requests, problems)
    if problems:
        raise InputError(f"{file_name}: nothing was submitted:\n  " + "\n  ".join(problems))
    return [requests[number] for number in numbers]


def _describe_dependencies(
    job_ids: Sequence[str], batch: Batch, lag_s: float, sleep: Callable[[float], None]
) -> dict[str, Any]:
    """Return the jobs by id. Waits for jobs that AWS does not show yet."""
    jobs = batch.describe(job_ids)
    possible_ids = list(filter(_JOB_ID.fullmatch, job_ids))
    for delay_s in make_look_delays(lag_s):
        if all(job_id in jobs for job_id in possible_ids):
            break
        sleep(delay_s)
        jobs = batch.describe(job_ids)
    return jobs


def submit(
    ordered_requests: Sequence[Request], batch: Batch, submitter: JobSubmitter
) -> Iterator[tuple[str, str]]:
    """Submit the requests one after the other; yield name and id of each job."""
    ids: dict[str, str] = {}
    for request in ordered_requests:
        name = request["jobName"]
        # The user chooses the names, so that older jobs may have the same name. A job with tags is
        # recognised by one of them.
        older_ids = () if request.get("tags") else batch.find_by_name(request["jobQueue"], name)
        ids[name] = submitter.submit(replace_references(request, ids), older_ids=older_ids)
        yield name, ids[name]


def wait_until_over(
    job_ids: Sequence[str],
    batch: Batch,
    say: Say = say_nothing,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Wait until all jobs have ended, and return job id -> SUCCEEDED or FAILED."""
    backoff = Backoff(_POLLING)
    caller = PatientCaller(say, sleep, was_answered=True)
    while True:
        jobs = caller.call(lambda: batch.describe(job_ids))
        states = {job_id: job["status"] for job_id, job in jobs.items()}
        if all(states.get(job_id) in _TERMINAL_STATES for job_id in job_ids):
            return states
        sleep(backoff.next_delay_s(sorted(states.items())))


def definitions_of(requests: Sequence[Request]) -> list[str]:
    return sorted(
        {
            name
            for request in requests
            if isinstance(name := request.get("jobDefinition"), str) and name
        }
    )


def dependencies_of(requests: Sequence[Request]) -> list[str]:
    """Return the ids of jobs outside the file that requests depend on, without child indices."""
    ids = {
        text.partition(":")[0]
        for request in requests
        for text in _ids_of(request)
        if "${" not in text
    }
    return sorted(ids - {""})


def consumables_of(requests: Sequence[Request]) -> list[str]:
    return sorted({name for request in requests for name in _consumables(request)})


def queues_of(requests: Sequence[Request]) -> list[str]:
    return sorted({str(request["jobQueue"]) for request in requests if request.get("jobQueue")})


def _references(request: Request) -> list[str]:
    return [name for text in _ids_of(request) for name in _REFERENCE.findall(text)]


def _ids_of(request: Request) -> list[str]:
    entries = request.get("dependsOn", [])
    if not isinstance(entries, list):
        return []
    ids = [entry.get("jobId") for entry in entries if isinstance(entry, dict)]
    return [job_id for job_id in ids if isinstance(job_id, str)]


def _consumables(request: Request) -> list[str]:
    override = request.get("consumableResourcePropertiesOverride")
    entries = override.get("consumableResourceList") if isinstance(override, dict) else None
    names = [entry.get("consumableResource") for entry in entries or () if isinstance(entry, dict)]
    return [name for name in names if isinstance(name, str) and name]


def _array_size(job: Mapping[str, Any]) -> int | None:
    array = job.get("arrayProperties")
    size = array.get("size") if isinstance(array, dict) else None
    return size if isinstance(size, int) else None


def _drop_misshapen_members(request: Request, shape_problems: Sequence[str]) -> Request:
    """Return the request without the members of wrong shape, which other checks cannot read."""
    misshapen = {match[1] for line in shape_problems if (match := _MEMBER.match(line))}
    if "arrayProperties" in misshapen:
        misshapen.add("dependsOn")
    return {name: value for name, value in request.items() if name not in misshapen}


def _reference_problems(request: Request) -> list[str]:
    return [
        f"dependsOn: jobId must be an id, ${{name}}, or ${{name}}:index; got {text!r}"
        for text in _ids_of(request)
        if "${" in text and not _WHOLE_REFERENCE.fullmatch(text)
    ]


def _drop_bad_references(request: Request, parents: Container[str]) -> Request:
    """Return the request without malformed and unknown `${name}`, which are reported elsewhere."""
    if "dependsOn" not in request:
        return request
    depends_on = [
        entry
        for entry in request["dependsOn"]
        if "${" not in (text := entry.get("jobId", ""))
        or (_WHOLE_REFERENCE.fullmatch(text) and text.partition(":")[0] in parents)
    ]
    return {**request, "dependsOn": depends_on}


def _missing_resource_problems(request: Request, resources: AwsResources) -> Iterator[str]:
    definition = request.get("jobDefinition")
    if isinstance(definition, str) and definition not in resources.definitions:
        yield (
            f"there is no job definition {definition}, or none of its revisions is ACTIVE: "
            "register it first"
        )
    for name in _consumables(request):
        if name in resources.missing_consumables:
            yield f"there is no consumable resource {name} in this region: create it first"


def _override_problems(request: Request, definitions: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem for each override of something that the definition does not have."""
    definition = definitions.get(str(request.get("jobDefinition")))
    for override, overridden in _OVERRIDDEN.items():
        if definition is not None and request.get(override) and overridden not in definition:
            name = definition["jobDefinitionName"]
            yield f"{override} needs a job definition with {overridden}, which {name} does not have"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)


def _text_problems(request: Request) -> Iterator[str]:
    for text in _texts(request):
        if _INVALID_TEXT.search(text):
            yield f"{text!a} has a NUL, or half of a surrogate pair"
    name = request.get("jobName")
    if isinstance(name, str) and not limits.NAME_PATTERN.fullmatch(name):
        yield (
            f"jobName must be up to {limits.MAX_NAME_CHARS} letters, digits, - and _, "
            "the first a letter or a digit"
        )


def _limit_problems(request: Request) -> Iterator[str]:
    size = len(json.dumps(request, separators=(",", ":")).encode())
    if size > limits.MAX_REQUEST_BYTES:
        yield (
            f"the request has {size:,} bytes, and AWS takes {limits.MAX_REQUEST_BYTES:,}: "
            "put lists into S3"
        )
    entries = request.get("dependsOn")
    if isinstance(entries, list) and len(entries) > limits.MAX_DEPENDENCIES:
        yield f"{len(entries)} dependencies, and AWS takes {limits.MAX_DEPENDENCIES}"
    array_size = _array_size(request)
    if array_size is not None and array_size not in limits.ARRAY_SIZES:
        yield f"an array has 2 to {limits.MAX_CHILDREN:,} children, not {array_size}"


def _queue_problems(request: Request, queues: Mapping[str, Any]) -> Iterator[str]:
    name = request.get("jobQueue")
    if not isinstance(name, str):
        return  # reported as a problem of the shape
    queue = queues.get(name)
    if queue is None:
        yield f"there is no job queue {name} in this region: check its name, --env and --region"
        return
    if queue["state"] != "ENABLED":
        yield f"job queue {name} is {queue['state']}: it takes no jobs until it is enabled"
    if queue.get("schedulingPolicyArn") and not request.get("shareIdentifier"):
        yield f"job queue {name} has a fair-share policy: add shareIdentifier"
    if not queue.get("schedulingPolicyArn") and request.get("shareIdentifier"):
        yield f"job queue {name} has no fair-share policy: remove shareIdentifier"
