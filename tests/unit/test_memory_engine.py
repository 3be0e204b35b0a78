"""The engine in memory, as a user's own tests use it; the contract suite holds it to the rest."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from batchyard import Pipeline
from batchyard.batch.jobs import OUT_OF_MEMORY
from batchyard.engines.memory import HOLD, Call, MemoryEngine, Result
from batchyard.errors import InputError

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
