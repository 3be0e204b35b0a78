"""The Python interface on the engine in memory: whatever a command can do, Python can do too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchyard import Offer, Pipeline, Run, engines, operations, runs
from batchyard import plan as planning
from batchyard.engines import memory
from batchyard.engines.base import RetryRequest, RunRecord, RunRequest, Say, say_nothing
from batchyard.engines.memory import HOLD, MemoryEngine, MemoryRun, Result
from batchyard.errors import InputError, OperationalError, PipelineFileError, RunNotFoundError
from batchyard.folder import RunFolder

PIPELINE = """\
name: p
steps:
  - {name: a, command: work, array: 2}
  - {name: b, command: work, gpus: 1}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    return Pipeline.load(path)


# -- beginning --


def test_a_run_has_the_notes_that_the_command_prints(pipeline: Pipeline) -> None:
    run = pipeline.run(engine=MemoryEngine())
    assert run.notes == ("this is a rehearsal: no command is executed",)


class EngineThatSubmitsAPart(MemoryEngine):
    """Its runs cannot be started at first."""

    is_reachable = False

    def open(self, record: RunRecord) -> MemoryRun:
        return _PartOfARun(record, self)


class _PartOfARun(MemoryRun):
    def start(self, say: Say = say_nothing) -> None:
        if self._engine.is_reachable:  # type: ignore[attr-defined]
            say("the rest is submitted")
            return super().start(say)
        say(f"`batchyard resume {self._record.run_id}` submits the rest")
        raise OperationalError("the network is down", hint="try again")


def test_a_run_that_cannot_be_started_is_named_in_the_error(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    engine = EngineThatSubmitsAPart(is_recorded=True)
    with pytest.raises(OperationalError, match="the network is down") as caught:
        pipeline.run(engine=engine)
    (folder,) = (tmp_path / ".batchyard" / "runs").iterdir()
    assert caught.value.hint == f"try again; `batchyard resume {folder.name}` submits the rest"
    record = replace(runs.read(RunFolder(folder)), engine=engine)
    engine.is_reachable = True
    run = Run(record)
    run.resume()
    assert run.wait(0) == "SUCCEEDED" and run.notes == ("the rest is submitted",)


def test_a_pipeline_has_the_warnings_that_the_command_prints(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("name: p\nsteps:\n  - {name: a, commands: [x], array: 2}\n")
    (warning,) = Pipeline.load(path).warnings
    assert warning.startswith(f"{path}:3:") and "warning: " in warning


def test_a_list_takes_what_the_command_has_as_flags(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("echo 0\necho 1\n")
    pipeline = Pipeline.load_list(path, array=2, gpus=1, retries=3, timeout_s=90)
    (job,) = pipeline.plan(offer=Offer(gpus=1))["jobs"]
    assert (job["size"], job["gpus"], job["attempts"], job["timeout_s"]) == (2, 1, 4, 90)
    with pytest.raises(PipelineFileError, match="--array is 0"):
        Pipeline.load_list(path, array=0)


def test_a_plan_without_gpus_is_that_of_the_run(pipeline: Pipeline) -> None:
    gpus = [job["gpus"] for job in pipeline.plan(offer=Offer(use_gpus=False))["jobs"]]
    assert gpus == [0, 0]


def test_a_plan_that_this_machine_cannot_run_is_shown_with_the_reason(pipeline: Pipeline) -> None:
    request = RunRequest(
        plan=planning.make(pipeline.model),
        pipeline=pipeline.model,
        home=Path("/nowhere"),
        offer=Offer(workspace="/nowhere"),
    )
    preview = operations.preview(engines.load("local"), request)
    assert preview.plan == request.plan and preview.notes and not preview.requests


def test_the_folder_of_the_runs_is_that_of_the_commands(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "elsewhere"
    monkeypatch.setenv("BATCHYARD_HOME", str(home))
    engine = MemoryEngine(is_recorded=True)
    run = pipeline.run(engine=engine)
    assert [path.name for path in (home / "runs").iterdir()] == [run.id]
    assert Run.find("last").id == run.id
    other = pipeline.run(engine=engine, home=tmp_path / "own")
    assert Run.find(home=tmp_path / "own").id == other.id


def test_a_file_is_no_folder_of_runs(pipeline: Pipeline, tmp_path: Path) -> None:
    for begin in (pipeline.run, Run.find):
        with pytest.raises(InputError, match=r"pipeline\.yaml is not a folder"):
            begin(home=tmp_path / "pipeline.yaml")


@pytest.mark.parametrize("wrong", [None, MemoryEngine, 3])
def test_what_is_no_engine_is_refused(pipeline: Pipeline, wrong: Any) -> None:
    with pytest.raises(InputError, match="engine is ") as caught:
        pipeline.run(engine=wrong)
    assert "MemoryEngine()" in caught.value.hint


def test_the_number_of_a_child_may_be_a_text_as_in_a_command(pipeline: Pipeline) -> None:
    run = pipeline.run(engine=MemoryEngine(lambda call: Result(output=b"%d" % call.index)))
    number: Any = "1"
    assert [chunk.data for chunk in run.logs("a", number)] == [b"1"]


@pytest.mark.parametrize("engine", ["local", "memory"])
def test_an_environment_without_a_name_is_not_ignored(pipeline: Pipeline, engine: str) -> None:
    with pytest.raises(InputError, match="for runs on AWS"):
        pipeline.run(engine=engine, environment="")


def test_a_workspace_may_be_a_path_and_is_never_empty(tmp_path: Path) -> None:
    path: Any = tmp_path
    assert Offer(workspace=path).workspace == str(tmp_path)
    wrong: Any
    for wrong in ("", 3):
        with pytest.raises(InputError, match=f"workspace is {wrong!r}"):
            Offer(workspace=wrong)


# -- ending --


def test_one_step_can_be_stopped(pipeline: Pipeline) -> None:
    engine = MemoryEngine({"a:0": HOLD, "b": HOLD})
    run = pipeline.run(engine=engine)
    run.stop(step="b")
    assert [step["state"] for step in run.status()["steps"]] == ["RUNNING", "FAILED"]
    with pytest.raises(InputError, match="the run has no step 'c'") as caught:
        run.stop(step="c")
    assert caught.value.hint == "its steps are: a, b"


@pytest.mark.parametrize("grace_s", [-1, float("nan"), float("inf"), "5"])
def test_a_grace_that_is_no_time_is_refused(pipeline: Pipeline, grace_s: Any) -> None:
    run = pipeline.run(engine=MemoryEngine({"b": HOLD}))
    with pytest.raises(InputError, match="the grace is"):
        run.stop(grace_s)
    assert run.status()["state"] == "RUNNING"


def test_a_retry_takes_another_capacity(pipeline: Pipeline) -> None:
    engine = MemoryEngine({"a": 1})
    run = pipeline.run(engine=engine, offer=Offer(cpus=2))
    again = run.retry(cpus=1)
    starts = [attempt.started_ms for attempt in _attempts(again)]
    assert len(starts) == 2 and len(set(starts)) == 2  # one after the other
    with pytest.raises(InputError, match="on-demand"):
        run.retry(on_demand=True)


def _attempts(run: Run) -> Any:
    opened = run._record.open()
    return opened.attempts(opened.job_ids)


@pytest.mark.parametrize("wrong", [{"cpus": 0}, {"cpus": 1.5}, {"memory_mib": "2GiB"}])
def test_a_retry_with_an_amount_that_nobody_can_have(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="retry: "):
        RetryRequest(**wrong)


def test_old_runs_are_deleted_by_age_and_number(pipeline: Pipeline, tmp_path: Path) -> None:
    engine = memory.ENGINE
    engine.is_recorded = True
    try:
        ids = [pipeline.run(engine=engine).id for _ in range(2)]
        engine.script = {"a:0": HOLD}
        ids.append(pipeline.run(engine=engine).id)
        home, said = tmp_path / ".batchyard", list[str]()
        with pytest.raises(InputError, match="no runs are selected"):
            operations.delete_runs(home)
        assert operations.delete_runs(home, older_than_s=3600, say=said.append).deleted == 0
        assert operations.delete_runs(home, older_than_s=0, keep=3) == operations.Deletion(0, 0)
        assert said == []
        assert operations.delete_runs(home, keep=0, say=said.append) == operations.Deletion(2, 0)
        assert said == [f"{ids[2]} is not over, so it is kept: `batchyard stop {ids[2]}` first"]
    finally:
        engine.is_recorded, engine.script = False, {}


# -- finding --


class EngineElsewhere(MemoryEngine):
    """Knows an environment, and no run in it."""

    def download_record(self, home: Path, environment: str, run_id: str) -> str | None:
        raise RunNotFoundError(f"{run_id} is not elsewhere")


class EngineWithRuns(MemoryEngine):
    """Has every run that is asked for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def download_record(self, home: Path, environment: str, run_id: str) -> str | None:
        return self._text


def test_a_run_is_looked_for_on_all_engines(pipeline: Pipeline, tmp_path: Path) -> None:
    run = pipeline.run(engine=MemoryEngine(is_recorded=True))
    text = run._record.folder.record.read_text()
    home = tmp_path / "other"
    elsewhere = EngineElsewhere()
    both = [elsewhere, EngineWithRuns(text)]
    assert operations.download_run(both, home, run.id, "lab").run_id == run.id
    with pytest.raises(RunNotFoundError, match="is not elsewhere"):
        operations.download_run([elsewhere, MemoryEngine()], tmp_path / "third", run.id, "lab")


def test_the_hint_about_a_missing_run_is_also_for_python(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.run(engine=MemoryEngine(is_recorded=True))
    with pytest.raises(RunNotFoundError) as caught:
        Run.find("p-20250131-000000", tmp_path / ".batchyard")
    assert 'environment="NAME" does in Python' in caught.value.hint


@pytest.mark.parametrize("wrong", [{"cpus": 0}, {"cpus": True}, {"gpus": -1}, {"gpus": 1.5}])
def test_an_offer_that_no_machine_can_make(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))} is"):
        Offer(**wrong)
