"""`logs -f` of a silent run prints what it waits for, on stderr only."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import prestarted
from command_yard import Yard

PIPELINE = """\
name: p
steps:
  - {name: first, array: 3, command: 'touch on; until [ -e end ]; do sleep 0.1; done'}
  - {name: second, needs: [first], command: echo second}
"""


@contextmanager
def followed(yard: Yard, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    out, err = yard.folder / "followed.out", yard.folder / "followed.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = prestarted.Popen(
            yard.command("logs", *arguments), cwd=yard.folder, stdout=stdout, stderr=stderr
        )
        yard.started.append(process)
        yield process, out, err


def test_children_that_wait_for_another_step_or_for_room(yard: Yard) -> None:
    yard.write("p.yaml", PIPELINE)
    yard("run", "p.yaml", "--cpus", "1", "--detach")
    yard.wait_for((yard.folder / "on").exists)
    with followed(yard, "last", "second", "-f", "--patience", "1s") as (process, out, err):
        # A busy machine may look only after the lines were printed again.
        yard.wait_for(lambda: err.read_text().count("\n") >= 3)
        assert err.read_text().splitlines()[:3] == [
            "waiting: 1 child of first is RUNNING",
            "waiting: 2 children of first are RUNNABLE until other children end",
            "waiting: 1 child of second is PENDING until first has ended",
        ]
        assert out.read_bytes() == b""
        yard.write("end", "")
        assert process.wait(300) == 0
    assert out.read_text() == "==> second <==\nsecond\n"


def test_a_run_that_nobody_executes_is_not_followed_in_silence(yard: Yard) -> None:
    yard.write("p.yaml", PIPELINE)
    engine = yard.start("run", "p.yaml")
    yard.wait_for((yard.folder / "on").exists)
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    run = yard.json("runs")[0]["run"]
    done = yard("logs", "last", "-f")
    assert done.stdout == ""
    assert f"the run is INTERRUPTED: `batchyard resume {run}` continues it\n" in done.stderr
    yard("stop", "last", "--grace", "1")
