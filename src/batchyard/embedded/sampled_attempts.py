"""Takes samples of the attempts that run, and writes what they use to a file, for those who look.

The file is replaced after each look. It is not on disk after a power cut, and need not be: what an
attempt has used is recorded with its end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol

from batchyard.embedded import running_use
from batchyard.embedded.attempts import Attempt
from batchyard.embedded.runner import Task
from batchyard.sampling.sampler import INTERVAL_S, Readers, Sampler, Subject
from batchyard.sampling.samples import AttemptUse, Samples

_CUDA_DEVICES = b"CUDA_VISIBLE_DEVICES"


class RunningAttempt(NamedTuple):
    """An attempt that runs, and where its processes are found."""

    attempt: Attempt
    leader: int | None = None
    container_id: str = ""


class SampledRunner(Protocol):
    """A runner whose attempts are processes or containers of this machine."""

    lock: Lock

    def list_running(self) -> list[RunningAttempt]:
        """Return the attempts that run. The caller holds the lock."""


class AttemptSampler:
    """Samples all attempts of a runner."""

    def __init__(
        self,
        runner: SampledRunner,
        path: Path,
        *,
        readers: Readers | None = None,
        interval_s: float = INTERVAL_S,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        """``path``: the file that gets what running attempts use."""
        self._runner = runner
        self._path = path
        self._now_ms = now_ms
        self._attempts: list[Attempt] = []
        self._has_file = False
        self._sampler = Sampler(self.list_subjects, self._write, readers, interval_s)

    def start(self) -> None:
        self._sampler.start()

    def take_samples(self) -> None:
        """Look at all attempts once, in this thread."""
        self._sampler.take_samples()

    def close(self) -> None:
        self._sampler.close()
        with suppress(OSError):
            self._path.unlink()

    def list_subjects(self, min_age_s: float) -> list[Subject]:
        """Return the attempts that have run for ``min_age_s`` or longer."""
        now_ms, now_s = self._now_ms(), time.monotonic()
        latest_ms = now_ms - int(min_age_s * 1000)
        subjects = []
        self._attempts = []
        with self._runner.lock:
            for running in self._runner.list_running():
                started_ms = running.attempt.started_ms
                if started_ms is not None and started_ms <= latest_ms:
                    subjects.append(_make_subject(running, now_ms, now_s, latest_ms))
                    self._attempts.append(running.attempt)
        return subjects

    def _write(self, subjects: Sequence[Subject]) -> None:
        """Replace the file. A full disk does not end a run that writes nothing."""
        uses = [
            AttemptUse(task.step, task.index_in_step, task.attempt, use)
            for attempt in self._attempts
            for task in [attempt.task]
            if attempt.samples is not None and (use := attempt.samples.summarize()) is not None
        ]
        if not uses and not self._has_file:
            return
        self._has_file = bool(uses)
        with suppress(OSError):
            draft = self._path.with_suffix(".new")
            draft.write_text(running_use.to_text(uses))
            os.replace(draft, self._path)


def _make_subject(running: RunningAttempt, now_ms: int, now_s: float, latest_ms: int) -> Subject:
    attempt = running.attempt
    is_container = running.leader is None
    # A container has one account for all its commands, a process has its own.
    earlier_cpu_s = 0.0 if is_container else attempt.user_s + attempt.system_s
    if attempt.samples is None:
        attempt.samples = Samples(now_s - (now_ms - (attempt.started_ms or now_ms)) / 1000)
    series = [attempt.samples]
    if attempt.task.has_several_commands and attempt.command_began_ms <= latest_ms:
        if attempt.command_samples is None and not is_container:
            began_s = now_s - (now_ms - attempt.command_began_ms) / 1000
            attempt.command_samples = Samples(began_s, earlier_cpu_s)
        if attempt.command_samples is not None:
            series.append(attempt.command_samples)
    return Subject(
        tuple(series),
        running.leader,
        running.container_id,
        earlier_cpu_s,
        _list_gpus(attempt.task),
    )


def _list_gpus(task: Task) -> tuple[str, ...]:
    if not task.gpus or _CUDA_DEVICES not in task.environ:
        return ()
    return tuple(task.environ[_CUDA_DEVICES].decode().split(","))
