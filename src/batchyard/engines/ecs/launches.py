"""The journal of launches, on disk: the intent before each RunTask, the tasks after it.

With it, a process that resumes a run finds the tasks of an earlier one, and the logs of a task are
found after ECS has forgotten the task.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from batchyard.engines.ecs.requests import Launch
from batchyard.engines.json_lines import LineReader, append_line

#: Number of a job, child, and attempt.
AttemptKey = tuple[int, int, int]


class LaunchedTask(NamedTuple):
    """The last task of an attempt."""

    launch: Launch
    #: When the task was about to be started, in seconds since the epoch.
    at_s: float
    #: None while the answer to the RunTask is not known.
    arn: str | None = None
    has_started: bool = False


class Launches:
    """The launches of one run; ``refresh`` reads what another process has written.

    All methods can be called from any thread.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._reader = LineReader(path)
        self._launches: dict[str, Launch] = {}
        self._by_key: dict[AttemptKey, LaunchedTask] = {}
        self._keys: dict[str, AttemptKey] = {}
        self.refresh()

    def refresh(self) -> None:
        with self._lock:
            self._take_new()

    def _take_new(self) -> None:
        for entry in self._reader.read_new():
            if "launch" in entry:
                launch = Launch(
                    entry["launch"], entry["job"], entry["attempt"], tuple(entry["children"])
                )
                self._add(launch, entry["at"])
            elif "tasks" in entry and entry["tasks"] in self._launches:
                self._set_tasks(self._launches[entry["tasks"]], entry["arns"])
            elif "started" in entry:
                self._set_started(entry["started"])

    def intend(self, launch: Launch) -> None:
        """Record that the tasks of the launch are about to be started."""
        self._append(
            {
                "launch": launch.token,
                "job": launch.job,
                "attempt": launch.attempt,
                "children": list(launch.children),
                "at": round(self._clock(), 3),
            }
        )

    def record_tasks(self, launch: Launch, arns: Sequence[str]) -> None:
        """Record the answer: the tasks of the first children. The others have none."""
        self._append({"tasks": launch.token, "arns": list(arns)})

    def record_started(self, arns: Sequence[str]) -> None:
        """Record that the containers of these tasks run, and have log streams."""
        self._append({"started": list(arns)})

    def _append(self, entry: dict[str, Any]) -> None:
        with self._lock:
            append_line(self._path, entry)
            self._take_new()

    def find(self, key: AttemptKey) -> LaunchedTask | None:
        """Return the last task of an attempt; None if none was started."""
        return self._by_key.get(key)

    def find_key(self, task_id: str) -> AttemptKey | None:
        """Return the attempt of a task."""
        return self._keys.get(task_id)

    def list_all(self) -> list[tuple[AttemptKey, LaunchedTask]]:
        """Return the last tasks of all attempts, by job, child and attempt."""
        with self._lock:
            return sorted(self._by_key.items())

    def _add(self, launch: Launch, at_s: float) -> None:
        self._launches[launch.token] = launch
        for child in launch.children:
            self._by_key[launch.job, child, launch.attempt] = LaunchedTask(launch, at_s)

    def _set_tasks(self, launch: Launch, arns: Sequence[str]) -> None:
        for number, child in enumerate(launch.children):
            key = (launch.job, child, launch.attempt)
            if number < len(arns):
                self._by_key[key] = self._by_key[key]._replace(arn=arns[number])
                self._keys[arns[number].rpartition("/")[2]] = key
            else:
                self._by_key.pop(key, None)

    def _set_started(self, arns: Sequence[str]) -> None:
        for arn in arns:
            key = self._keys.get(arn.rpartition("/")[2])
            if key is not None and self._by_key[key].arn == arn:
                self._by_key[key] = self._by_key[key]._replace(has_started=True)
