"""`logs -f` of a silent run prints reminders of what it waits for, on stderr only."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cloud_lab import Lab, batch_calls, calls, until

import prestarted

#: the endpoint has 8 vCPUs: `hold` has them all, until it is told to end
STUCK = """\
name: stuck
image: x
defaults: {memory: 4MiB}
steps:
  - {name: hold, cpus: 8, command: 'until [ -e "END" ]; do sleep 0.2; done'}
  - {name: train, array: 300, command: echo trained}
  - {name: collect, needs: [train], command: echo collected}
"""


@pytest.fixture
def stuck(lab: Lab) -> Iterator[str]:
    """A run of which 300 children cannot start."""
    lab.write("pipeline.yaml", STUCK.replace("END", str(lab.folder / "end")))
    run = lab.run("--detach")
    until(
        lambda: [step["state"] for step in lab.status(run)["steps"][:2]],
        lambda now: now == ["RUNNING", "RUNNABLE"],
    )
    yield run
    lab("stop", run)  # whatever has become of the test: the next one needs the vCPUs


class Followed:
    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process = process
        self._out, self._err = out, err

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def lines(self) -> list[str]:
        """Of stderr."""
        return self._err.read_text().splitlines()


@contextmanager
def followed(lab: Lab, *arguments: str) -> Iterator[Followed]:
    out, err = lab.folder / "followed.out", lab.folder / "followed.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = prestarted.Popen(
            lab.command("logs", *arguments),
            cwd=lab.folder,
            env=lab.environ,
            stdout=stdout,
            stderr=stderr,
        )
        lab.started.append(process)
        yield Followed(process, out, err)


@pytest.mark.slow
def test_children_that_cannot_start_are_told_with_the_command_that_says_why(
    lab: Lab, calm: None, stuck: str
) -> None:
    with followed(lab, stuck, "-f", "--patience", "2s") as it:
        until(lambda: len(it.lines) >= 2)
        before, began = calls(lab.endpoint), time.monotonic()
        until(lambda: len(it.lines) >= 4)
        # Twice as long after the first time, and not at each look.
        assert time.monotonic() - began > 3
        asked = batch_calls(before, calls(lab.endpoint))
        assert asked["batch:DescribeJobs"] > asked["batch:ListJobs"] == 1
        assert it.lines[0] == it.lines[2] == "waiting: 1 child of hold is RUNNING"
        who, _, why = it.lines[1].partition("; ")
        assert re.fullmatch(r"waiting: 300 children of train are RUNNABLE for \d+(\.\d)?s", who)
        found = re.fullmatch(r"`batchyard (doctor job (.*) --env lab)` says why", why)
        assert found and it.out == ""
        # What it suggests can be typed, and is about one of them.
        assert f"job {found[2]}: " in lab(*shlex.split(found[1]), code=1).stdout
        assert lab.endpoint.job(found[2])["status"] == "RUNNABLE"
        lab.write("end", "")
        assert it.process.wait(300) == 0
    assert it.out.count("trained\n") == 300 and "waiting" not in it.out


def test_who_follows_a_later_step_hears_what_it_waits_for(lab: Lab, stuck: str) -> None:
    with followed(lab, stuck, "collect", "-f", "--patience", "1s") as it:
        until(lambda: len(it.lines) >= 2)
        assert it.lines[0].startswith("waiting: 300 children of train are RUNNABLE for ")
        assert it.lines[1] == "waiting: 1 child of collect is PENDING until train has ended"
        lab.write("end", "")
        assert it.process.wait(300) == 0
    assert it.out == "==> collect <==\ncollected\n"


@pytest.mark.slow
def test_by_default_half_a_minute_of_silence_is_nothing_special(lab: Lab, stuck: str) -> None:
    with followed(lab, stuck, "-f") as it:
        time.sleep(4)
        assert it.lines == [] and it.out == ""
        lab("stop", stuck)
        assert it.process.wait(300) == 0


def test_patience_is_for_following(lab: Lab, stuck: str) -> None:
    said = lab("logs", stuck, "--patience", "5s", code=2).stderr
    assert "--patience" in said and "add -f" in said
    assert "not a length of time" in lab("logs", stuck, "-f", "--patience", "soon", code=2).stderr
