"""Jobs as plain JSON, in the shapes of AWS's SubmitJob: read, checked all at once, put in order. Pure.

A file holds one request, or `{"jobs": [...]}`; `dependsOn` may name another job of the file as `${jobName}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from batchyard.batch import limits, validation
from batchyard.errors import InputError

_REFERENCE = re.compile(r"\$\{([^}]+)\}")
#: as AWS's ids are given: a job, or one child of an array
_WHOLE_REFERENCE = re.compile(r"\$\{[^}]+\}(:[0-9]+)?")
#: the member of a request that botocore's sentence is about
_MEMBER = re.compile(
    r"(?:Missing required parameter in|Unknown parameter in|Invalid \w+ for parameter) (\w+)"
)
#: NUL ends a text wherever it is going to be used, and half of a surrogate pair is no letter
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
#: what overrides -> what of a definition
_OVERRIDDEN = {
    "containerOverrides": "containerProperties",
    "ecsPropertiesOverride": "ecsProperties",
    "eksPropertiesOverride": "eksProperties",
    "nodeOverrides": "nodeProperties",
}
_MOST_LEVELS = 50

#: what to do where a file is nothing like a request
_SKELETON = "`aws batch submit-job --generate-cli-skeleton` prints a request to fill in"

Request = dict[str, Any]


def parse(text: str, where: str) -> list[Request]:
    """The requests of a file. Raises InputError where it is none."""
    text = text.removeprefix("\ufeff")
    try:
        document = json.loads(text)
    except RecursionError:
        raise _is_too_deep(where) from None
    except ValueError as exc:
        if where.lower().endswith((".yaml", ".yml")):
            raise _is_a_pipeline(where) from None
        if not text.strip():
            raise InputError(f"{where} is empty", hint=_SKELETON) from None
        raise InputError(f"{where} is no JSON: {exc}", hint=_SKELETON) from None
    if _is_deep(document):
        raise _is_too_deep(where)
    if isinstance(document, dict) and "steps" in document:
        raise _is_a_pipeline(where)
    entries = document
    if isinstance(document, dict) and "jobs" in document:
        entries = document["jobs"]
        if beside := [repr(key) for key in document if key != "jobs"]:
            raise InputError(
                f"{where}: beside 'jobs' there is {', '.join(beside)}, which would be ignored",
                hint="a request's members go into the request, one of the entries of `jobs`",
            )
    if isinstance(entries, dict):
        entries = [entries]
    if (
        not isinstance(entries, list)
        or not entries
        or not all(isinstance(entry, dict) for entry in entries)
    ):
        raise InputError(
            f'{where}: expected a SubmitJob request, or {{"jobs": [...]}} with some', hint=_SKELETON
        )
    return entries


def _is_a_pipeline(where: str) -> InputError:
    return InputError(
        f"{where} looks like a pipeline, and `submit` takes SubmitJob requests in JSON",
        hint=f"`batchyard run {where} --engine aws --env NAME` runs a pipeline",
    )


def _is_too_deep(where: str) -> InputError:
    return InputError(
        f"{where} is nested more than {_MOST_LEVELS} levels deep, and no SubmitJob request is",
        hint=_SKELETON,
    )


def _is_deep(document: Any) -> bool:
    level = [document]
    for _ in range(_MOST_LEVELS):
        members = (
            one.values() if isinstance(one, dict) else one
            for one in level
            if isinstance(one, (dict, list))
        )
        level = [value for some in members for value in some]
    return bool(level)


def ordered(requests: Sequence[Request], where: str) -> list[Request]:
    """Each after those of the file that it depends on. Raises InputError for names that are not there, or a circle."""
    problems: list[str] = []
    found = order(requests, problems)
    if problems:
        raise InputError(f"{where}:\n  " + "\n  ".join(problems))
    return [requests[number] for number in found]


def order(requests: Sequence[Request], problems: list[str]) -> list[int]:
    """Their numbers, each after those that it depends on. What is wrong is added to ``problems``."""
    by_name: dict[str, int] = {}
    before = len(problems)
    for number, request in enumerate(requests):
        name = str(request.get("jobName", ""))
        if name in by_name and any(name in _references(other) for other in requests):
            problems.append(
                f"jobs[{number}]: two jobs are named {name!r}, and another depends on that name"
            )
        by_name.setdefault(name, number)
    graph: dict[int, set[int]] = {}
    for number, request in enumerate(requests):
        graph[number] = set()
        for name in _references(request):
            if name not in by_name:
                problems.append(
                    f"jobs[{number}]: dependsOn names ${{{name}}}, and no job of the file is called so"
                )
            else:
                graph[number].add(by_name[name])
    if len(problems) == before:
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as exc:
            circle = " -> ".join(str(requests[number].get("jobName")) for number in exc.args[1])
            problems.append(f"the jobs wait for each other in a circle: {circle}")
    return []


@dataclass(frozen=True, slots=True)
class Known:
    """What AWS says of what the requests name."""

    #: as AWS describes them, by name and by ARN
    queues: Mapping[str, Any]
    #: those that can be used, as AWS describes them, by what the requests call them
    definitions: Mapping[str, Any]
    #: as AWS describes them, by id
    jobs: Mapping[str, Any] = field(default_factory=dict)
    #: consumable resources that there are not, as the requests name them
    missing_consumables: Container[str] = ()


def problems(
    requests: Sequence[Request], known: Known, shape_problems: Callable[[Request], Sequence[str]]
) -> list[str]:
    """Everything that AWS would refuse, of all requests at once."""
    found = []
    sizes = {
        f"${{{request.get('jobName')}}}": _array_size(request) for request in reversed(requests)
    }
    others = {name: (name[2:-1], size) for name, size in sizes.items()}
    others |= {
        job_id: (job.get("jobName", job_id), _array_size(job)) for job_id, job in known.jobs.items()
    }
    for number, request in enumerate(requests):
        where = f"jobs[{number}] ({request.get('jobName', '?')})"
        shapes = shape_problems(request)
        queue = known.queues.get(str(request.get("jobQueue")), {})
        kind = queue.get("jobQueueType")
        is_fargate = kind == "ECS_FARGATE" if kind else None
        shapely = _shapely(request, shapes)
        own = [
            *shapes,
            *_problems(request),
            *_reference_problems(shapely),
            *validation.request_problems(
                _without_references(shapely, others), others, is_fargate=is_fargate
            ),
            *_queue_problems(request, known.queues),
            *_unknown(shapely, known),
            *_misfits(shapely, known.definitions),
        ]
        found += [f"{where}: {problem}" for problem in own]
    return found


def resolved(request: Request, ids: Mapping[str, str]) -> Request:
    """With the ids of those that it names."""
    depends_on = [
        {**entry, "jobId": _REFERENCE.sub(lambda found: ids[found[1]], entry["jobId"])}
        if "jobId" in entry
        else entry
        for entry in request.get("dependsOn", [])
    ]
    return {**request, "dependsOn": depends_on} if depends_on else request


def definitions_of(requests: Sequence[Request]) -> list[str]:
    return sorted(
        {
            name
            for request in requests
            if isinstance(name := request.get("jobDefinition"), str) and name
        }
    )


def dependencies_of(requests: Sequence[Request]) -> list[str]:
    """The ids of the jobs outside of the file that they depend on, without the numbers of children."""
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
    return [found for text in _ids_of(request) for found in _REFERENCE.findall(text)]


def _ids_of(request: Request) -> list[str]:
    entries = request.get("dependsOn", [])
    if not isinstance(entries, list):
        return []
    ids = [entry.get("jobId") for entry in entries if isinstance(entry, dict)]
    return [job_id for job_id in ids if isinstance(job_id, str)]


def _consumables(request: Request) -> list[str]:
    override = request.get("consumableResourcePropertiesOverride")
    entries = override.get("consumableResourceList") if isinstance(override, dict) else None
    named = [entry.get("consumableResource") for entry in entries or () if isinstance(entry, dict)]
    return [name for name in named if isinstance(name, str) and name]


def _array_size(job: Mapping[str, Any]) -> int | None:
    array = job.get("arrayProperties")
    size = array.get("size") if isinstance(array, dict) else None
    return size if isinstance(size, int) else None


def _shapely(request: Request, shapes: Sequence[str]) -> Request:
    """The members about whose shape nothing was said: the rules are about these."""
    spoilt = {found[1] for line in shapes if (found := _MEMBER.match(line))}
    if "arrayProperties" in spoilt:
        spoilt.add("dependsOn")
    return {name: value for name, value in request.items() if name not in spoilt}


def _reference_problems(request: Request) -> list[str]:
    return [
        f"dependsOn: jobId must be an id, ${{name}}, or ${{name}}:index; got {text!r}"
        for text in _ids_of(request)
        if "${" in text and not _WHOLE_REFERENCE.fullmatch(text)
    ]


def _without_references(request: Request, others: Container[str]) -> Request:
    """Without those of which is said elsewhere that they are none."""
    if "dependsOn" not in request:
        return request
    good = [
        entry
        for entry in request["dependsOn"]
        if "${" not in (text := entry.get("jobId", ""))
        or (_WHOLE_REFERENCE.fullmatch(text) and text.partition(":")[0] in others)
    ]
    return {**request, "dependsOn": good}


def _unknown(request: Request, known: Known) -> Iterator[str]:
    wanted = request.get("jobDefinition")
    if isinstance(wanted, str) and wanted not in known.definitions:
        yield f"there is no job definition {wanted}, or none of its revisions is ACTIVE: register it first"
    for name in _consumables(request):
        if name in known.missing_consumables:
            yield f"there is no consumable resource {name} in this region: make it first"


def _misfits(request: Request, definitions: Mapping[str, Any]) -> Iterator[str]:
    """Overrides of what the definition does not have."""
    definition = definitions.get(str(request.get("jobDefinition")))
    for override, overridden in _OVERRIDDEN.items():
        if definition is not None and request.get(override) and overridden not in definition:
            name = definition["jobDefinitionName"]
            yield f"{override} does not go with job definition {name}: it has no {overridden}"


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


def _problems(request: Request) -> list[str]:
    found = [
        f"{text!a} has what is no text: a NUL, or half a letter"
        for text in _texts(request)
        if _NO_TEXT.search(text)
    ]
    name = request.get("jobName")
    if isinstance(name, str) and not limits.NAME_PATTERN.fullmatch(name):
        found.append(
            "jobName must be up to 128 letters, digits, - and _, the first a letter or a digit"
        )
    size = len(json.dumps(request, separators=(",", ":")).encode())
    if size > limits.MAX_REQUEST_BYTES:
        found.append(
            f"the request has {size:,} bytes, and AWS takes {limits.MAX_REQUEST_BYTES:,}: put lists into S3"
        )
    entries = request.get("dependsOn")
    if isinstance(entries, list) and len(entries) > limits.MAX_DEPENDENCIES:
        found.append(f"{len(entries)} dependencies, and AWS takes {limits.MAX_DEPENDENCIES}")
    array = request.get("arrayProperties")
    if (
        isinstance(array, dict)
        and isinstance(array.get("size"), int)
        and array["size"] not in limits.ARRAY_SIZES
    ):
        found.append(f"an array has 2 to 10,000 children, not {array['size']}")
    return found


def _queue_problems(request: Request, queues: Mapping[str, Any]) -> list[str]:
    wanted = request.get("jobQueue")
    if not isinstance(wanted, str):
        return []  # the shape says it
    queue = queues.get(wanted)
    if queue is None:
        return [
            f"there is no job queue {wanted} in this region: check its name, --env and --region"
        ]
    found = []
    if queue["state"] != "ENABLED":
        found.append(
            f"job queue {wanted} is {queue['state']}: it takes no jobs until it is enabled"
        )
    if queue.get("schedulingPolicyArn") and not request.get("shareIdentifier"):
        found.append(f"job queue {wanted} has a fair-share policy: add shareIdentifier")
    if not queue.get("schedulingPolicyArn") and request.get("shareIdentifier"):
        found.append(f"job queue {wanted} has no fair-share policy: leave shareIdentifier out")
    return found
