"""The programs of children, which are looked for once."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from batchyard.batch.jobs import Outcome, Resources
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.processes import ProcessRunner
from batchyard.embedded.runner import Ended, Task
from batchyard.embedded.spawner import Spawner
from batchyard.folder import RunFolder
from batchyard.shard import Turn


def make_task(program: str, folder: Path) -> Task:
    mark = b"lookup%d." % os.getpid()
    return Task(
        job_number=0,
        job_id="id",
        step="work",
        child=0,
        index_in_step=0,
        attempt=1,
        turn=Turn(range(1)),
        command=lambda _: (program,),
        environ={b"PATH": os.fsencode(folder), b"BATCHYARD_TOKEN": mark},
        engine_variables=(),
        resources=Resources(1, 64),
        mark=mark,
    )


def run_to_end(runner: ProcessRunner, task: Task) -> Outcome:
    deadline = time.monotonic() + 10
    with runner.lock:
        runner.start(task)
        while time.monotonic() < deadline:
            runner.wait(0.01)
            for event in runner.take_events():
                if isinstance(event, Ended):
                    return event.outcome
    raise AssertionError("the attempt does not end")


def test_a_program_that_was_missing_is_looked_for_again(tmp_path: Path) -> None:
    """An endpoint lives for days, in which its user installs what was missing."""
    runner = ProcessRunner(Spawner(LogBook(RunFolder(tmp_path))))
    try:
        missing = run_to_end(runner, make_task("tool", tmp_path))
        assert missing.reason.startswith("CannotStartContainerError"), missing
        shutil.copy("/bin/true", tmp_path / "tool")
        assert run_to_end(runner, make_task("tool", tmp_path)).exit_code == 0
    finally:
        runner.close()


def test_a_program_that_was_missing_in_a_probe_is_looked_for_again(tmp_path: Path) -> None:
    runner, codes = ProcessRunner(Spawner(LogBook(RunFolder(tmp_path)))), list[int]()
    task = make_task("", tmp_path)
    try:
        with runner.lock:
            with pytest.raises(OSError):
                runner.probe(task, ("late-tool",), codes.append)
            shutil.copy("/bin/true", tmp_path / "late-tool")
            runner.probe(task, ("late-tool",), codes.append)
            deadline = time.monotonic() + 10
            while not codes and time.monotonic() < deadline:
                runner.wait(0.05)
        assert codes == [0]
    finally:
        runner.close()
