"""Jobs as plain JSON, in the shapes of AWS's SubmitJob: read, checked all at once, put in order. Pure.

A file holds one request, or `{"jobs": [...]}`; `dependsOn` may name another job of the file as `${jobName}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from batchyard.errors import BadInput

_REFERENCE = re.compile(r"\$\{([^}]+)\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_MOST_BYTES = 30 * 1024
_MOST_DEPENDENCIES = 20
_ARRAY_SIZES = range(2, 10_001)

Request = dict[str, Any]


def parse(text: str, where: str) -> list[Request]:
    """The requests of a file. Raises BadInput where it is none."""
    try:
        document = json.loads(text)
    except ValueError as exc:
        if where.lower().endswith((".yaml", ".yml")):
            raise _is_a_pipeline(where) from None
        raise BadInput(f"{where} is no JSON: {exc}") from None
    if isinstance(document, dict) and "steps" in document:
        raise _is_a_pipeline(where)
    entries = document.get("jobs") if isinstance(document, dict) and "jobs" in document else document
    if isinstance(entries, dict):
        entries = [entries]
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput(f'{where}: expected a SubmitJob request, or {{"jobs": [...]}} with some')
    return entries


def _is_a_pipeline(where: str) -> BadInput:
    return BadInput(
        f"{where} looks like a pipeline, and `submit` takes SubmitJob requests in JSON",
        hint=f"`batchyard run {where} --engine aws --env NAME` runs a pipeline",
    )


def ordered(requests: Sequence[Request], where: str) -> list[Request]:
    """Each after those of the file that it depends on. Raises BadInput for names that are not there, or a circle."""
    problems: list[str] = []
    found = order(requests, problems)
    if problems:
        raise BadInput(f"{where}:\n  " + "\n  ".join(problems))
    return [requests[number] for number in found]


def order(requests: Sequence[Request], problems: list[str]) -> list[int]:
    """Their numbers, each after those that it depends on. What is wrong is added to ``problems``."""
    by_name: dict[str, int] = {}
    before = len(problems)
    for number, request in enumerate(requests):
        name = str(request.get("jobName", ""))
        if name in by_name and any(name in _references(other) for other in requests):
            problems.append(f"jobs[{number}]: two jobs are named {name!r}, and another depends on that name")
        by_name.setdefault(name, number)
    graph: dict[int, set[int]] = {}
    for number, request in enumerate(requests):
        graph[number] = set()
        for name in _references(request):
            if name not in by_name:
                problems.append(f"jobs[{number}]: dependsOn names ${{{name}}}, and no job of the file is called so")
            else:
                graph[number].add(by_name[name])
    if len(problems) == before:
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as exc:
            circle = " -> ".join(str(requests[number].get("jobName")) for number in exc.args[1])
            problems.append(f"the jobs wait for each other in a circle: {circle}")
    return []


def problems(
    requests: Sequence[Request],
    queues: Mapping[str, Any],
    shape_problems: Callable[[Request], Sequence[str]],
    definitions: Container[str],
) -> list[str]:
    """Everything that AWS would refuse, of all requests at once. ``queues``: as AWS describes them, by name and ARN;
    ``definitions``: those that can be used, as the requests name them."""
    found = []
    for number, request in enumerate(requests):
        where = f"jobs[{number}] ({request.get('jobName', '?')})"
        own = [*shape_problems(request), *_problems(request, queues)]
        wanted = request.get("jobDefinition")
        if isinstance(wanted, str) and wanted not in definitions:
            own.append(f"there is no job definition {wanted}, or none of its revisions is ACTIVE")
        found += [f"{where}: {problem}" for problem in own]
    return found


def resolved(request: Request, ids: Mapping[str, str]) -> Request:
    """With the ids of those that it names."""
    depends_on = [
        {**entry, "jobId": _REFERENCE.sub(lambda found: ids[found[1]], entry["jobId"])} if "jobId" in entry else entry
        for entry in request.get("dependsOn", [])
    ]
    return {**request, "dependsOn": depends_on} if depends_on else request


def definitions_of(requests: Sequence[Request]) -> list[str]:
    return sorted({name for request in requests if isinstance(name := request.get("jobDefinition"), str) and name})


def queues_of(requests: Sequence[Request]) -> list[str]:
    return sorted({str(request["jobQueue"]) for request in requests if request.get("jobQueue")})


def _references(request: Request) -> list[str]:
    entries = request.get("dependsOn", [])
    texts = (
        [str(entry.get("jobId", "")) for entry in entries if isinstance(entry, dict)]
        if isinstance(entries, list)
        else []
    )
    return [found for text in texts for found in _REFERENCE.findall(text)]


def _problems(request: Request, queues: Mapping[str, Any]) -> list[str]:
    found = []
    name = request.get("jobName")
    if isinstance(name, str) and not _NAME.fullmatch(name):
        found.append("jobName must be up to 128 letters, digits, - and _, the first a letter or a digit")
    size = len(json.dumps(request, separators=(",", ":")).encode())
    if size > _MOST_BYTES:
        found.append(f"the request has {size:,} bytes, and AWS takes {_MOST_BYTES:,}: put lists into S3")
    entries = request.get("dependsOn")
    if isinstance(entries, list) and len(entries) > _MOST_DEPENDENCIES:
        found.append(f"{len(entries)} dependencies, and AWS takes {_MOST_DEPENDENCIES}")
    array = request.get("arrayProperties")
    if isinstance(array, dict) and isinstance(array.get("size"), int) and array["size"] not in _ARRAY_SIZES:
        found.append(f"an array has 2 to 10,000 children, not {array['size']}")
    found += _queue_problems(request, queues)
    return found


def _queue_problems(request: Request, queues: Mapping[str, Any]) -> list[str]:
    wanted = request.get("jobQueue")
    if not isinstance(wanted, str):
        return []  # the shape says it
    queue = queues.get(wanted)
    if queue is None:
        return [f"there is no job queue {wanted}"]
    found = []
    if queue["state"] != "ENABLED":
        found.append(f"job queue {wanted} is {queue['state']}")
    if queue.get("schedulingPolicyArn") and not request.get("shareIdentifier"):
        found.append(f"job queue {wanted} has a fair-share policy: add shareIdentifier")
    if not queue.get("schedulingPolicyArn") and request.get("shareIdentifier"):
        found.append(f"job queue {wanted} has no fair-share policy: leave shareIdentifier out")
    return found
