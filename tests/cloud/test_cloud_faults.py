"""Faults of the endpoint (throttling, errors, broken connections, lost answers); a killed client.

Every run still ends with the right state, and no job is submitted twice.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cloud_lab import BUCKET, PATH, Lab, opened, run_of, until
from emulator_endpoint import Endpoint

#: Share of calls with each fault: small enough that no call fails twelve times in a row, which is
#: how often clients try.
TROUBLE = "throttle=0.2,reset=0.03,error=0.03,lose=0.03"
KILLS = 20

PIPELINE = """\
name: day
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: first, commands_file: words.txt, array: 4, outputs: ["first/**"]}
  - {name: second, needs: [first], commands_file: words.txt, array: 2, inputs: ["first/**"],
     outputs: ["second/**"]}
  - {name: third, needs: [first], array: 3, command: echo three}
  - {name: fourth, needs: [{step: third, each: true}], array: 3, command: echo four, max_running: 2}
  - {name: fifth, needs: [second, fourth], command: cat first/* second/* > all.txt,
     inputs: ["first/**", "second/**"], outputs: [all.txt]}
"""
STEPS = ("first", "second", "third", "fourth", "fifth")
WORDS = "".join(
    f"mkdir -p $BATCHYARD_STEP && echo word {n} > $BATCHYARD_STEP/{n}\n" for n in range(8)
)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """Set up in peace, then started again with trouble."""
    folder = tmp_path_factory.mktemp("troubled")
    opened(folder, "--cpus", "8", "--memory", "16GiB").stop()
    it = Endpoint(
        folder, "--cpus", "8", "--memory", "16GiB", "--faults", TROUBLE, environ={"PATH": PATH}
    )
    try:
        Lab(folder / "first", it).patient("s3").create_bucket(Bucket=BUCKET)
        yield it
    finally:
        it.stop(signal.SIGKILL)


def prepared(folder: Path, endpoint: Endpoint) -> Lab:
    lab = Lab(folder, endpoint)
    lab.write("pipeline.yaml", PIPELINE)
    lab.write("words.txt", WORDS)
    return lab


@pytest.mark.slow
def test_a_run_on_a_bad_day_ends_right(tmp_path: Path, troubled: Endpoint) -> None:
    lab = prepared(tmp_path / "lab", troubled)
    done = lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")
    run = run_of(done)
    assert "SUCCEEDED" in done.stdout
    assert (lab.folder / "all.txt").read_text() == "".join(f"word {n}\n" for n in range(8)) * 2
    assert {name: count for name, count in lab.job_names().items() if run in name} == expected(run)
    assert lab("logs", run, "third:1").stdout == "three\n"


@pytest.mark.slow
def test_stop_and_retry_on_a_bad_day(tmp_path: Path, troubled: Endpoint) -> None:
    lab = prepared(tmp_path / "lab", troubled)
    mark = tmp_path / "mark"
    lab.write(
        "pipeline.yaml",
        PIPELINE.replace("command: echo three", f"command: test -e {mark} || sleep 600"),
    )
    run = lab.run("--detach")
    assert "STOPPED" in lab("stop", run).stdout
    mark.touch()
    again = lab("retry", run, "--detach").stdout.strip()
    assert lab("status", again, "--watch").stdout.count("SUCCEEDED")
    assert set(lab.job_names().values()) == {1}


@pytest.mark.slow
def test_a_client_killed_at_any_moment_of_submitting(
    tmp_path: Path, endpoint: Endpoint, dice: random.Random
) -> None:
    lab = prepared(tmp_path / "lab", endpoint)
    began = time.monotonic()
    lab.run("--detach")
    whole_s = time.monotonic() - began
    moments: Counter[int] = Counter()
    for number in range(KILLS):
        known = {path.name for path in runs_of(lab)}
        process = lab.start("run", "pipeline.yaml", "--engine", "aws", "--env", "lab", "--detach")
        # Wait for the record of the run: without a record nothing was submitted, and there is
        # nothing to resume.
        until(lambda known=known: {path.name for path in runs_of(lab)} - known)
        # The machine may have become much slower or quicker since it was measured.
        time.sleep(dice.random() * whole_s * (0.2, 0.4, 0.4, 1.2)[number % 4])
        process.send_signal(signal.SIGKILL)
        process.wait()
        (run,) = {path.name for path in runs_of(lab)} - known
        moments[sum(lab.job_names()[name] for name in expected(run))] += 1
        lab("resume", run, "--detach")
        names = lab.job_names()
        assert {name: names[name] for name in expected(run)} == expected(run)
    for path in runs_of(lab):
        assert lab.ended(path.name) == "SUCCEEDED"
    assert len(moments) > 1, f"it was always killed at the same place: {moments}"
    assert set(lab.job_names().values()) == {1}


@pytest.mark.slow
def test_a_client_killed_on_a_bad_day(
    tmp_path: Path, troubled: Endpoint, dice: random.Random
) -> None:
    lab = prepared(tmp_path / "lab", troubled)
    for _ in range(4):
        known = {path.name for path in runs_of(lab)}
        process = lab.start("run", "pipeline.yaml", "--engine", "aws", "--env", "lab", "--detach")
        until(lambda known=known: {path.name for path in runs_of(lab)} - known)
        time.sleep(dice.random() * 4)
        process.send_signal(signal.SIGKILL)
        process.wait()
        (run,) = {path.name for path in runs_of(lab)} - known
        lab("resume", run, "--detach")
        names = lab.job_names()
        assert {name: names[name] for name in expected(run)} == expected(run)
        lab("stop", run)


@pytest.mark.slow
def test_two_at_once_do_not_submit_twice(tmp_path: Path, endpoint: Endpoint) -> None:
    lab = prepared(tmp_path / "lab", endpoint)
    process = lab.start("run", "pipeline.yaml", "--engine", "aws", "--env", "lab", "--detach")
    (path,) = until(lambda: runs_of(lab))
    lab("resume", path.name, "--detach", code=None)
    process.wait(300)
    lab("resume", path.name, "--detach")
    names = lab.job_names()
    assert {name: names[name] for name in expected(path.name)} == expected(path.name)


def expected(run: str) -> dict[str, int]:
    return {f"{run}-{step}": 1 for step in STEPS}


def runs_of(lab: Lab) -> list[Path]:
    return list((lab.folder / ".batchyard" / "runs").glob("day-*"))
