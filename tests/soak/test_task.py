"""The notes of a soak's command are whole lines, whatever is killed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle import parse_events
from random_pipelines import TASK, SoakCommand, SoakStep, write_case


@pytest.fixture
def task(tmp_path: Path) -> Callable[..., int]:
    """Run the command `a-0-0` with stand-ins for programs, and return its exit code."""
    step = SoakStep("a", None, ((SoakCommand("a-0-0", 0.0),),), has_output=True)
    write_case(tmp_path / "case", "case", (step,), b"data", {})
    (tmp_path / "bin").mkdir()

    def run(**programs: str) -> int:
        for name, script in programs.items():
            (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / "bin" / name).chmod(0o755)
        folder = tmp_path / "case"
        environ = {
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "BATCHYARD_RUN": "run-1",
            "AWS_BATCH_JOB_ID": "job",
            "AWS_BATCH_JOB_ATTEMPT": "1",
        }
        done = subprocess.run(["sh", TASK, folder, "a", "0"], cwd=folder, env=environ)
        return done.returncode

    return run


def test_a_command_notes_its_start_and_its_end(task: Callable[..., int], tmp_path: Path) -> None:
    assert task() == 0
    events = parse_events((tmp_path / "case" / "events").read_text())
    assert [(event.kind, event.exit_code) for event in events] == [("start", None), ("end", 0)]


@pytest.mark.parametrize(("program", "kinds"), [("date", []), ("flock", []), ("cat", ["start"])])
def test_a_command_ends_as_killed_where_a_program_that_it_needs_was(
    task: Callable[..., int], tmp_path: Path, program: str, kinds: list[str]
) -> None:
    assert task(**{program: "kill -9 $$"}) == 137
    events = parse_events((tmp_path / "case" / "events").read_text())
    assert [event.kind for event in events] == kinds
