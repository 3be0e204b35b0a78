"""The engine in memory, as a user's own tests use it; the contract suite holds it to the rest."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from batchyard import Offer, Pipeline, runs
from batchyard.batch.jobs import OUT_OF_MEMORY
from batchyard.engines.memory import HOLD, Call, MemoryEngine, Result
from batchyard.errors import InputError, OperationalError

PIPELINE = """\
name: p
steps:
  - {name: prepare, commands: [cut 0, cut 1, cut 2], array: 2, retries: 1}
  - {name: train, needs: [prepare], command: train, gpus: 1, timeout: 10m}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    return Pipeline.load(path)


def test_without_a_script_everything_succeeds_and_nothing_is_written(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    run = pipeline.run(engine=MemoryEngine())
    assert run.wait(0) == "SUCCEEDED"
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]


def test_a_table_scripts_children_by_exit_code_result_or_attempt(pipeline: Pipeline) -> None:
    engine = MemoryEngine({"prepare:1": [7, 0], "train": Result(3, b"no data\n")})
    status = pipeline.run(engine=engine).status()
    assert status["state"] == "FAILED"
    prepare = status["steps"][0]
    assert (prepare["state"], prepare["attempts"]) == ("SUCCEEDED", 3)
    (failure,) = status["failures"]
    assert (failure["exit_code"], failure["log_tail"]) == (3, ["no data"])


def test_a_function_sees_each_command_with_its_environment(pipeline: Pipeline) -> None:
    calls: list[Call] = []

    def script(call: Call) -> Result:
        calls.append(call)
        return Result(output=f"{call.command}\n".encode())

    run = pipeline.run(engine=MemoryEngine(script))
    assert [call.command for call in calls] == ["cut 0", "cut 1", "cut 2", "train"]
    assert calls[1].environ["AWS_BATCH_JOB_ARRAY_INDEX"] == "1"
    assert b"".join(chunk.data for chunk in run.logs("prepare")) == b"cut 0\ncut 1\ncut 2\n"


def test_a_command_that_succeeded_is_not_repeated_in_the_next_attempt(pipeline: Pipeline) -> None:
    commands: list[str] = []

    def script(call: Call) -> Result:
        commands.append(call.command)
        return Result(1 if call.command == "cut 2" and call.attempt == 1 else 0)

    pipeline.run(engine=MemoryEngine(script))
    assert commands.count("cut 1") == 1 and commands.count("cut 2") == 2


def test_a_retry_runs_what_is_left(pipeline: Pipeline) -> None:
    engine = MemoryEngine({"train": 1})
    run = pipeline.run(engine=engine)
    engine.script = {}
    again = run.retry()
    assert [step["name"] for step in again.status()["steps"]] == ["train"]
    assert again.status()["retry_of"] == run.id
    with pytest.raises(InputError, match="nothing to retry"):
        again.retry()


def test_a_held_command_runs_until_it_is_released_or_timed_out(pipeline: Pipeline) -> None:
    engine = MemoryEngine({"prepare:0": HOLD, "train": HOLD})
    run = pipeline.run(engine=engine)
    assert [step["running"] for step in run.status()["steps"]] == [1, 0]
    engine.release(run.id, "prepare")
    # cut 0 has ended; train has a timeout of ten minutes, which pass at once
    status = run.status()
    assert status["state"] == "FAILED"
    assert status["failures"][0]["reason"] == "Job attempt duration exceeded timeout"


def test_a_lost_host_and_a_lack_of_memory_are_told_apart(pipeline: Pipeline) -> None:
    lost = Result(None, status_reason="Host EC2 (instance i-1) terminated.")
    engine = MemoryEngine({"prepare:0": [lost, 0], "train": Result(137, reason=OUT_OF_MEMORY)})
    status = pipeline.run(engine=engine).status()
    assert status["steps"][0]["state"] == "SUCCEEDED"
    assert status["failures"][0]["reason"] == OUT_OF_MEMORY


def test_a_run_can_be_stopped(pipeline: Pipeline) -> None:
    run = pipeline.run(engine=MemoryEngine({"prepare:0": HOLD}))
    run.stop()
    assert run.wait(0) == "STOPPED"
    with pytest.raises(InputError, match="has no files"):
        run.fetch()


def status_of(tmp_path: Path, steps: str, engine: MemoryEngine) -> dict[str, Any]:
    path = tmp_path / "p.yaml"
    path.write_text(f"name: p\n{steps}")
    return Pipeline.load(path).run(engine=engine).status()


def test_a_timeout_also_ends_a_command_that_would_end_by_itself(tmp_path: Path) -> None:
    steps = "steps:\n  - {name: a, command: work, timeout: 10s}\n"
    status = status_of(tmp_path, steps, MemoryEngine({"a": Result(seconds=100)}))
    assert status["state"] == "FAILED"
    assert status["failures"][0]["reason"] == "Job attempt duration exceeded timeout"


def test_output_is_read_once_in_whatever_order_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("name: p\nsteps:\n  - {name: a, command: work, array: 2}\n")
    engine = MemoryEngine({"a:0": HOLD, "a:1": Result(output=b"one")}, is_recorded=True)
    run = Pipeline.load(path).run(engine=engine)
    reader = engine.open(run._record).log_reader
    assert [chunk.data for chunk in reader.read()] == [b"one"]
    engine.release(run.id, "a", 0, Result(output=b"zero"))
    assert [chunk.data for chunk in reader.read()] == [b"zero"]
    assert list(reader.read()) == []


def test_a_released_command_counts_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("name: p\nsteps:\n  - {name: a, commands: [x, y], keep_going: true}\n")
    results = {"x": Result(1), "y": HOLD}
    engine = MemoryEngine(lambda call: results[call.command])
    run = Pipeline.load(path).run(engine=engine)
    engine.release(run.id, "a")
    assert run.wait(0) == "FAILED"  # x has failed
    commands: list[str] = []
    engine.script = lambda call: commands.append(call.command) or Result()  # type: ignore[func-returns-value]
    assert run.retry().wait(0) == "SUCCEEDED" and commands == ["x"]


def test_what_a_stop_cuts_short_is_not_done(tmp_path: Path) -> None:
    steps = "fail_fast: true\nsteps:\n  - {name: a, command: a}\n  - {name: b, command: b}\n"
    engine = MemoryEngine({"a": 1, "b": Result(seconds=1000)})
    status = status_of(tmp_path, steps, engine)
    assert [step["failed"] for step in status["steps"]] == [1, 1]
    started, ended = (datetime.fromisoformat(status[name]) for name in ("started", "ended"))
    assert (ended - started).total_seconds() == 1.0


def test_an_environment_is_not_for_a_rehearsal(pipeline: Pipeline) -> None:
    with pytest.raises(InputError, match="for runs on AWS"):
        pipeline.run(engine=MemoryEngine(), environment="lab")


def test_a_rehearsal_never_times_out_by_itself(tmp_path: Path) -> None:
    commands = [f"cut {number}" for number in range(100)]
    steps = (
        "steps:\n  - {name: a, command: work, timeout: 1s}\n"
        f"  - {{name: b, commands: {commands}, timeout: 10s}}\n"
    )
    assert status_of(tmp_path, steps, MemoryEngine())["state"] == "SUCCEEDED"
    (failure,) = status_of(tmp_path, steps, MemoryEngine({"a": 3}))["failures"]
    assert failure["exit_code"] == 3


@pytest.mark.parametrize(
    ("script", "problem", "hint"),
    [
        ({"trian": 1}, "pipeline p has no such step", "prepare, train"),
        ({3: 1}, "pipeline p has no such step", "prepare, train"),
        ("train", "the script is 'train'", "a table or a function"),
        (lambda call: None, "the script returns None for prepare:0", "return a Result"),
        ({"prepare:2": 1}, "step 'prepare' has no such child", "0 to 1"),
        ({"prepare:-1": 1}, "step 'prepare' has no such child", "0 to 1"),
        ({"prepare:": 1}, "step 'prepare' has no such child", "0 to 1"),
        ({"train": []}, r"the entry 'train' of the script is \[\]", "for each attempt"),
        ({"train": "fail"}, "the entry 'train' of the script is 'fail'", "an exit code"),
        ({"train": [None]}, "the entry 'train' of the script", "an exit code"),
    ],
)
def test_a_script_that_no_command_could_follow(
    pipeline: Pipeline, script: Any, problem: str, hint: str
) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        pipeline.run(engine=MemoryEngine(script))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "wrong", [{"output": "text"}, {"seconds": -1}, {"seconds": float("nan")}], ids=str
)
def test_a_result_that_no_command_can_have(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"Result: {next(iter(wrong))} is"):
        Result(**wrong)


def test_a_script_may_name_a_step_that_the_run_leaves_out(pipeline: Pipeline) -> None:
    run = pipeline.run(engine=MemoryEngine({"prepare:1": 1}), only="train")
    assert run.wait(0) == "SUCCEEDED"


def test_a_function_may_return_an_exit_code(pipeline: Pipeline) -> None:
    status = pipeline.run(engine=MemoryEngine(lambda call: 4)).status()
    assert status["failures"][0]["exit_code"] == 4


def test_only_a_held_command_can_be_released(pipeline: Pipeline) -> None:
    engine = MemoryEngine({"prepare:0": HOLD})
    run = pipeline.run(engine=engine)
    for step, index in (("prepare", 1), ("train", 0), ("nothing", 0)):
        with pytest.raises(InputError, match=f"{step}:{index} holds no command") as caught:
            engine.release(run.id, step, index)
        assert caught.value.hint == "children that do: prepare:0"
    assert run.status()["steps"][0]["running"] == 1


def test_limits_hold_as_on_a_machine(pipeline: Pipeline) -> None:
    run = pipeline.run(engine=MemoryEngine({"prepare": HOLD}), offer=Offer(cpus=1))
    assert run.status()["steps"][0]["running"] == 1
    with pytest.raises(InputError, match="can never run with"):
        pipeline.run(engine=MemoryEngine(), offer=Offer(gpus=0))
    assert pipeline.run(engine=MemoryEngine(), offer=Offer(use_gpus=False)).wait() == "SUCCEEDED"


def workspace_of(pipeline: Pipeline, workspace: str | None) -> str:
    seen: set[str] = set()

    def script(call: Call) -> Result:
        seen.add(call.environ["BATCHYARD_WORKSPACE"])
        return Result()

    pipeline.run(engine=MemoryEngine(script), offer=Offer(workspace=workspace))
    (path,) = seen
    return path


def test_the_workspace_is_that_of_other_engines(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "current"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert workspace_of(pipeline, None) == str(tmp_path)
    assert workspace_of(pipeline, "data") == str(folder / "data")
    assert workspace_of(pipeline, "s3://bucket/data") == "s3://bucket/data"
    for wrong in ("s3://", "s3:///data"):
        with pytest.raises(InputError, match="names no bucket"):
            workspace_of(pipeline, wrong)


def test_a_recorded_rehearsal_of_another_process_can_only_be_deleted(pipeline: Pipeline) -> None:
    run = pipeline.run(engine=MemoryEngine(is_recorded=True))
    record = runs.read(run._record.folder)  # opens it with the engine of the command line
    assert record.settings == run._record.settings
    with pytest.raises(OperationalError, match="in the memory of another process"):
        record.open().overview()
    assert record.open().is_deletable
