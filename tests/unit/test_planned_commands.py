"""Which commands a run or a retry would execute, and why, on the memory engine."""

from __future__ import annotations

from pathlib import Path

from batchyard import operations
from batchyard import plan as planning
from batchyard.cli import render
from batchyard.embedded.store import Store
from batchyard.engines.base import Offer, RetryRequest, RunRecord, RunRequest
from batchyard.engines.local import LocalEngine
from batchyard.engines.memory import MemoryEngine, Result
from batchyard.pipeline import Need, Pipeline, Step
from batchyard.plan import RunPart
from batchyard.planned_commands import of_new_run

COMMANDS = ("cut 0", "cut 1", "cut 2", "cut 3")
STEPS = (
    Step("cut", commands=COMMANDS, array=2),
    Step("train", command="train", array=2, needs=(Need("cut"),)),
)


def run_failing(folder: Path, *steps: Step) -> RunRecord:
    """Return a run that is over, in which the third command has failed."""
    pipeline = Pipeline("p", steps or STEPS)
    engine = MemoryEngine(lambda call: Result(3 if call.command == "cut 2" else 0))
    request = RunRequest(
        planning.make(pipeline), pipeline, folder / ".batchyard", Offer(workspace=str(folder))
    )
    record, _ = operations.begin(engine, request)
    operations.start(record)
    return record


def lines(preview: operations.Preview) -> list[tuple[str, int, int | None, str]]:
    return [(entry.step, entry.number, entry.index, entry.reason) for entry in preview.commands]


def test_all_commands_of_a_new_run() -> None:
    plan = planning.make(Pipeline("p", STEPS))
    commands = [(entry.step, entry.index, entry.text) for entry in of_new_run(plan, claims=False)]
    assert commands == [
        ("cut", 0, "cut 0"),
        ("cut", 0, "cut 1"),
        ("cut", 1, "cut 2"),
        ("cut", 1, "cut 3"),
        ("train", 0, "train"),
        ("train", 1, "train"),
    ]


def test_commands_that_are_claimed_have_no_child() -> None:
    step = Step("cut", commands=COMMANDS, array=2, share_out="dynamic")
    plan = planning.with_claiming_children(planning.make(Pipeline("p", (step,))), 16)
    assert [(entry.number, entry.index) for entry in of_new_run(plan, claims=True)] == [
        (number, None) for number in range(4)
    ]


def test_a_retry_has_what_failed_and_what_never_ran(tmp_path: Path) -> None:
    assert lines(operations.preview_retry(run_failing(tmp_path))) == [
        ("cut", 2, 1, "no success record: exit code 3"),
        ("cut", 3, 1, "no success record: never ran"),
        ("train", 0, 0, "no success record: never ran"),
        ("train", 1, 1, "no success record: never ran"),
    ]


def test_a_retry_of_a_dynamic_step(tmp_path: Path) -> None:
    dynamic = Step("cut", commands=COMMANDS, share_out="dynamic")
    assert lines(operations.preview_retry(run_failing(tmp_path, dynamic))) == [
        ("cut", 2, 2, "no success record: exit code 3")
    ]


def test_a_part_is_asked_for(tmp_path: Path) -> None:
    record = run_failing(tmp_path)
    for part, numbers in ((RunPart("cut", 0), [0, 1]), (RunPart("cut", command=1), [1])):
        preview = operations.preview_retry(record, RetryRequest(part=part))
        assert lines(preview) == [("cut", number, 0, "asked for") for number in numbers]


def test_a_resume_has_nothing_of_a_step_that_was_stopped(tmp_path: Path) -> None:
    steps = (Step("stopped", commands=COMMANDS), Step("left", command="train"))
    pipeline = Pipeline("p", steps)
    request = RunRequest(
        planning.make(pipeline), pipeline, tmp_path / ".batchyard", Offer(workspace=str(tmp_path))
    )
    record, _ = operations.begin(LocalEngine(), request)
    assert {line[0] for line in lines(operations.preview_resume(record))} == {"stopped", "left"}
    store = Store.open(record.folder.database)
    row = store.jobs()[0]
    store.commit(jobs=[row._replace(rest_reason="a command has failed")])
    store.close()
    assert lines(operations.preview_resume(record)) == [("left", 0, 0, "not done: never ran")]


def test_a_retry_counts_only_what_would_run(tmp_path: Path) -> None:
    # The second child has succeeded with its second command, and with nothing else.
    step = Step("cut", commands=COMMANDS, array=2, keep_going=True)
    preview = operations.preview_retry(run_failing(tmp_path, step))
    assert dict(preview.command_counts) == {"cut": len(list(preview.commands))} == {"cut": 1}
    assert preview.to_json("memory")["jobs"][0]["commands"] == 1
    assert any(" 1 " in line and line.startswith("cut") for line in plan_lines_of(preview))


def plan_lines_of(preview: operations.Preview) -> list[str]:
    return render.plan_lines(preview.plan, preview.command_counts)


def test_an_end_that_no_run_tells_is_unknown() -> None:
    (_, line) = render.expectation_lines({}, {"cut": 2})
    assert line == "cut: expected end unknown: no earlier run tells how long its commands take"
