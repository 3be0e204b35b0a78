"""Commands about runs, on the engine in memory: what they print and how they exit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from batchyard.cli.main import main
from batchyard.engines import memory
from batchyard.engines.memory import MemoryEngine

PIPELINE = """\
name: p
steps:
  - {name: a, command: work, array: 3, retries: 1}
  - {name: b, needs: [a], command: collect}
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[MemoryEngine]:
    """The engine that the command line loads, set to record its runs."""
    memory.ENGINE.is_recorded = True
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    yield memory.ENGINE
    memory.ENGINE.is_recorded, memory.ENGINE.script = False, {}


class Done(NamedTuple):
    exit_code: object
    stdout: str
    stderr: str


Invoke = Callable[..., Done]


@pytest.fixture
def invoke(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Invoke:
    """Calls the command in this process."""

    def call(*words: str) -> Done:
        with pytest.raises(SystemExit) as exit:
            main([*words, "--home", str(tmp_path / ".batchyard")])
        return Done(exit.value.code, *capfd.readouterr())

    return call


@pytest.fixture
def run(tmp_path: Path, invoke: Invoke) -> Invoke:
    file = str(tmp_path / "pipeline.yaml")
    return lambda *words: invoke("run", file, "--engine", "memory", *words)


def test_run_status_and_logs_of_a_failure(
    engine: MemoryEngine, invoke: Invoke, run: Invoke
) -> None:
    engine.script = {"a:1": memory.Result(9, b"disk full\n")}
    ran = run()
    assert ran.exit_code == 1
    assert "a:1 attempt 1 failed: exit code 9; retrying" in ran.stderr
    assert "a:1 (attempt 2): exit code 9\n  | disk full" in ran.stdout
    status = invoke("status", "last", "--json")
    assert status.exit_code == 0
    steps = {step["name"]: step for step in json.loads(status.stdout)["steps"]}
    assert (steps["a"]["succeeded"], steps["a"]["failed"]) == (2, 1)
    assert steps["b"]["reason"] == "Dependent Job failed"
    assert invoke("logs", "last", "a:1").stdout == "disk full\ndisk full\n"
    assert "==> a:1 (attempt 2) <==" in invoke("logs", "last", "--failed").stdout


def test_retry_resume_and_stop_of_runs_that_are_over(
    engine: MemoryEngine, invoke: Invoke, run: Invoke
) -> None:
    engine.script = {"b": 1}
    assert run("--json").exit_code == 1
    assert "is over already: FAILED" in invoke("stop", "last").stdout
    assert invoke("resume", "last").exit_code == 2
    engine.script = {}
    again = invoke("retry", "last")
    assert again.exit_code == 0 and "\nb  " in again.stdout and "\na  " not in again.stdout
    assert invoke("retry", "last").exit_code == 2


def test_stop_of_a_run_that_waits_and_of_a_step_that_is_not_there(
    engine: MemoryEngine, invoke: Invoke, run: Invoke
) -> None:
    engine.script = {"a:0": memory.HOLD}
    assert run("--detach").exit_code == 0
    wrong = invoke("stop", "last", "nope")
    assert wrong.exit_code == 2 and "its steps are: a, b" in wrong.stderr
    stopped = invoke("stop", "last")
    assert stopped.exit_code == 0 and stopped.stdout.endswith(": STOPPED\n")


def test_the_report_of_a_run_in_memory(
    engine: MemoryEngine, invoke: Invoke, run: Invoke, tmp_path: Path
) -> None:
    engine.script = {"a:1": memory.Result(9, b"disk <full>\n")}
    run()
    page = tmp_path / "report.html"
    assert invoke("report", "last", "--out", str(page)).exit_code == 0
    assert "disk &lt;full&gt;" in page.read_text()


def test_clean_deletes_what_is_over_and_fetch_refuses(
    engine: MemoryEngine, invoke: Invoke, run: Invoke
) -> None:
    assert run().exit_code == 0
    assert invoke("fetch", "last").exit_code == 2
    assert "1 run deleted" in invoke("clean", "--keep", "0").stdout
    assert "no runs in" in invoke("runs").stderr


def test_a_current_folder_that_is_deleted(
    invoke: Invoke, run: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    for done in (run(), invoke("status", "last")):
        assert done.exit_code == 3
        assert "the current folder no longer exists" in done.stderr


def test_a_rehearsal_cannot_be_detached(run: Invoke, tmp_path: Path) -> None:
    """No other process would know the run that the printed id names."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    done = run("--detach")
    assert done.exit_code == 2 and done.stdout == ""
    assert "leave --detach out" in done.stderr


def test_a_home_that_cannot_be_looked_at(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its name is too long: an error that root gets too, unlike one of permissions."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    home = str(tmp_path / ("x" * 300))
    for words in (("run", str(file)), ("runs",), ("clean", "--keep", "0"), ("status", "last")):
        with pytest.raises(SystemExit) as exit:
            main([*words, "--home", home])
        said = capfd.readouterr().err
        assert exit.value.code == 3 and "File name too long" in said, said
        assert "a bug in batchyard" not in said
