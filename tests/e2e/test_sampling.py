"""Samples of what children use, from the command to its record."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchyard import Pipeline, operations
from batchyard.engines.base import AttemptDetail, CommandDetail, RunEngine
from command_yard import Yard
from nvml_library import build_library

#: Waits until the engine has looked at the step that is its first word.
WAIT = """
import os, pathlib, sys, time
memory = bytearray(64 << 20)
running = pathlib.Path(".batchyard/runs", os.environ["BATCHYARD_RUN"], "running.json")
while not running.exists() or f'"{sys.argv[1]}"' not in running.read_text():
    time.sleep(0.05)
"""
PIPELINE = """
name: train
steps:
  - name: gpu
    gpus: 1
    command: python3 wait.py gpu
  - name: short
    command: "true"
  - name: list
    commands: ["true", python3 wait.py list, "true"]
    array: 1
    share_out: static
"""


@pytest.fixture
def sampled(yard: Yard) -> Yard:
    yard.write("wait.py", WAIT)
    yard.write("pipeline.yaml", PIPELINE)
    return yard


def open_last(yard: Yard) -> RunEngine:
    return operations.find_run(yard.folder / ".batchyard", "last").open()


def read_attempts(engine: RunEngine, index: int | None = None) -> dict[str, AttemptDetail]:
    attempts = engine.attempts(engine.job_ids, index=index)
    return {attempt.step: attempt for attempt in attempts}


def test_attempts_and_commands_keep_what_they_used(sampled: Yard, tmp_path: Path) -> None:
    library = build_library(tmp_path)
    environ = {**os.environ, "BATCHYARD_NVML": str(library)}
    sampled("run", "pipeline.yaml", "--limit-gpus", "1", "--limit-cpus", "8", env=environ)
    engine = open_last(sampled)
    attempts = read_attempts(engine, index=0)
    use = attempts["gpu"].use
    assert use is not None
    assert 64 * 1024 < use.peak_memory_kib < 128 * 1024
    assert 0 < use.mean_cpus <= use.peak_cpus
    assert (use.mean_gpu_percent, use.peak_gpu_percent) == (70.0, 70.0)
    assert (use.peak_gpu_memory_mib, use.gpu_memory_mib) == (6000, 16384)
    assert len(use.series.cpus) == len(use.series.gpu_memory_mib) == use.samples
    assert attempts["short"].use is None
    # without the question for one child, there is no series
    assert read_attempts(engine)["gpu"].use == use.without_series()
    commands: list[CommandDetail] = list(engine.commands("list"))
    assert [command.use is None for command in commands] == [True, False, True]
    assert attempts["list"].use is not None
    totals = {step: entry.total for step, entry in engine.step_uses().items()}
    assert totals == {
        "gpu": use.without_series(),
        "list": attempts["list"].use.without_series(),
    }
    assert not engine.running_uses()
    engine.close()


@pytest.mark.slow
def test_without_sampling_nothing_is_looked_at(yard: Yard) -> None:
    yard.write("list.txt", "sleep 4\n")
    yard("run", "list.txt", "--no-sampling")
    engine = open_last(yard)
    assert read_attempts(engine)["list"].use is None
    totals = {step: entry.total for step, entry in engine.step_uses().items()}
    assert totals == {}
    engine.close()


def test_a_retry_is_sampled_as_its_run_unless_it_is_asked_for(yard: Yard) -> None:
    yard.write("list.txt", "false\n")
    run = Pipeline.load(yard.folder / "list.txt").run(sampling=False)
    run.wait()
    settings = [
        operations.find_run(yard.folder / ".batchyard", retried.id).settings
        for retried in (run, run.retry(), run.retry(sampling=True))
    ]
    assert [setting.is_sampled for setting in settings] == [False, False, True]
