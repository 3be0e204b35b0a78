"""What a retry repeats, from values: the whole rest of a run, a step, a child or a command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batchyard import plan as planning
from batchyard import shard
from batchyard.engines.base import Unfinished
from batchyard.engines.repetition import select_jobs
from batchyard.errors import InputError
from batchyard.pipeline import Need, Pipeline, Step
from batchyard.plan import Plan, RunPart

COMMANDS = tuple(f"echo {number}" for number in range(7))


def make_plan(**keys: object) -> Plan:
    work = Step("work", commands=COMMANDS, array=3, **keys)  # type: ignore[arg-type]
    return planning.make(Pipeline("p", (work, Step("end", command="x", needs=(Need("work"),)))))


#: Child 1 (commands 2 and 3) failed after command 2; `end` never ran.
UNFINISHED = Unfinished({"work": [1], "end": [0]}, {"work": [0, 1, 2, 4, 5, 6]})


def test_all_that_has_not_succeeded() -> None:
    repetition = select_jobs(make_plan(), UNFINISHED)
    assert [(job.step, job.indices) for job in repetition.plan.jobs] == [
        ("work", (1,)),
        ("end", None),
    ]
    assert repetition.commands_done == UNFINISHED.commands_done and not repetition.note


def test_the_rest_of_one_step() -> None:
    repetition = select_jobs(make_plan(), UNFINISHED, RunPart("end"))
    (job,) = repetition.plan.jobs
    assert (job.step, job.needs) == ("end", ())
    done = replace(UNFINISHED, children={"work": [], "end": [0]})
    assert not select_jobs(make_plan(), done, RunPart("work")).plan.jobs


def test_a_child_that_failed_skips_what_it_has_done() -> None:
    repetition = select_jobs(make_plan(), UNFINISHED, RunPart("work", 1))
    assert [job.indices for job in repetition.plan.jobs] == [(1,)]
    assert 2 in repetition.commands_done["work"] and not repetition.note


def test_a_child_that_succeeded_runs_whole_and_a_note_says_so() -> None:
    repetition = select_jobs(make_plan(), UNFINISHED, RunPart("work", 2))
    (job,) = repetition.plan.jobs
    assert job.indices == (2,) and list(job.commands_of(0)) == [4, 5, 6]
    assert not {4, 5, 6} & set(repetition.commands_done["work"])
    assert repetition.note.startswith("work:2 has succeeded before")


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("share_out", ["static", "strided"])
def test_a_command_runs_alone_in_its_child(number: int, share_out: str) -> None:
    plan = make_plan(share_out=share_out)
    (job,) = select_jobs(plan, UNFINISHED, RunPart("work", command=number)).plan.jobs
    assert list(job.commands_of(0)) == [number]
    assert number in plan.job("work").commands_of_index(job.index_in_step(0))
    again = planning.from_json(planning.to_json(Plan("p", (job,))))
    assert list(again.jobs[0].commands_of(0)) == [number]


def test_a_command_of_a_worker_that_takes_its_share() -> None:
    repetition = select_jobs(make_plan(), UNFINISHED, RunPart("work", command=5), claims=True)
    assert repetition.commands_done == {"work": [4, 6]}


def test_a_command_of_a_dynamic_step() -> None:
    plan = make_plan(share_out="dynamic")
    here = planning.with_child_per_command(plan)
    (job,) = select_jobs(here, UNFINISHED, RunPart("work", command=5)).plan.jobs
    assert list(job.commands_of(0)) == [5]
    on_aws = planning.with_claiming_children(plan, 16)
    repetition = select_jobs(on_aws, UNFINISHED, RunPart("work", command=5), claims=True)
    assert [job.size for job in repetition.plan.jobs] == [1]
    assert repetition.commands_done == {"work": [0, 1, 2, 3, 4, 6]}


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        (RunPart("nowhere"), "the run has no step 'nowhere'"),
        (RunPart("work", 3), "step 'work' has no child 3 in this run"),
        (RunPart("work", command=7), "step 'work' has no command 7"),
        (RunPart("end", command=1), "step 'end' has no command 1"),
    ],
)
def test_parts_that_the_run_does_not_have(part: RunPart, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        select_jobs(make_plan(), UNFINISHED, part)


def test_a_command_that_an_earlier_run_had() -> None:
    retried = select_jobs(make_plan(), UNFINISHED).plan
    with pytest.raises(InputError, match="command work:6 was not part of this run"):
        select_jobs(retried, UNFINISHED, RunPart("work", command=6))


def test_children_of_a_dynamic_step_on_aws() -> None:
    plan = planning.with_claiming_children(make_plan(share_out="dynamic"), 16)
    with pytest.raises(InputError, match="handed out at run time"):
        select_jobs(plan, UNFINISHED, RunPart("work", 1), claims=True)


def test_the_child_of_each_command() -> None:
    for total in range(1, 30):
        for size in range(1, 35):
            for share_out in ("static", "strided"):
                for index in range(size):
                    for command in shard.commands_of(total, index, size, share_out):
                        assert shard.child_of(total, command, size, share_out) == index
