"""Which task of ECS this is: children that one request has started are told apart by it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import replace

from batchyard.worker.errors import EXIT_RETRY, WorkerError
from batchyard.worker.orders import Child

_TIMEOUT_S = 5
_TRIES = 3


def identify(child: Child, children: int, environ: Mapping[str, str]) -> Child:
    """Return the child with the id of its task as its job, and a position that follows from it.

    ``children``: the number of children among which the commands are shared out. Different tasks
    may get the same position, which is only where they begin to look for work. A child with a job
    is returned as it is.
    """
    address = environ.get("ECS_CONTAINER_METADATA_URI_V4", "")
    if child.job_id or not address:
        return child
    task_id = _read_task_id(address)
    return replace(child, job_id=task_id, position=zlib.crc32(task_id.encode()) % children)


def _read_task_id(address: str) -> str:
    # The service is on this machine, so no proxy is used.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    problem: Exception | None = None
    for _ in range(_TRIES):
        try:
            with opener.open(f"{address}/task", timeout=_TIMEOUT_S) as answer:
                return str(json.load(answer)["TaskARN"]).rpartition("/")[2]
        except urllib.error.HTTPError as exc:
            with exc:
                problem = exc
        except (OSError, ValueError, KeyError) as exc:
            problem = exc
    raise WorkerError(
        f"could not read the id of this task from {address}/task: {problem}", EXIT_RETRY
    )
