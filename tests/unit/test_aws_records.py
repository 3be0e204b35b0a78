"""The success records of a run that AWS has forgotten, and the attempt counts at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from batchyard.aws.s3 import S3Object
from batchyard.batch.jobs import JobState, Resources
from batchyard.engines.aws import attempt_counts, success_records
from batchyard.engines.aws.from_aws import UNSUBMITTED
from batchyard.engines.aws.render import Part
from batchyard.engines.aws.run_commands import RunCommands
from batchyard.engines.base import AttemptDetail, JobDetail
from batchyard.pipeline import Need
from batchyard.plan import Plan, PlannedJob

S, F = JobState.SUCCEEDED, JobState.FAILED


def step(
    name: str, size: int = 1, commands: int | None = None, needs: Sequence[str] = (), each: str = ""
) -> PlannedJob:
    """A plain command, or with ``commands``, a list of so many."""
    return PlannedJob(
        step=name,
        size=size,
        is_array=size > 1,
        resources=Resources(1, 4),
        command=None if commands else "true",
        command_count=commands or size,
        needs=(*(Need(one) for one in needs), *((Need(each, True),) if each else ())),
        step_size=size,
    )


def told(*jobs: PlannedJob, recorded: dict[str, set[int]], **more: Any) -> dict[str, set[int]]:
    return success_records.find_succeeded(
        Plan("p", jobs),
        recorded,
        more.get("skipped", {}),
        more.get("ran", {}),
        more.get("begun", ()),
    )


# -- records ---------------------------------------------------------------------------------------


def test_a_child_has_succeeded_when_all_its_commands_have() -> None:
    # 0 to 2 are the first child's, 3 to 5 the second's, 6 to 8 the third's.
    assert told(step("a", 3, 9), recorded={"a": {0, 1, 2, 3, 5, 8}}) == {"a": {0}}
    assert told(step("a", 3, 9), recorded={"a": {3, 5, 8}}, skipped={"a": {4}}) == {"a": {1}}
    assert told(step("a", 3, 9), recorded={"a": set()}) == {"a": set()}


def test_a_child_with_nothing_to_run_has_nothing_left_to_do() -> None:
    assert told(step("a", 3, 2), recorded={"a": {0}}) == {
        "a": {0, 1}
    }  # the middle one's is command 0


def test_a_compacted_array_is_known_by_its_old_numbers() -> None:
    again = replace(step("a", 2, 8), indices=(1, 3), step_size=4)
    assert told(again, recorded={"a": {6, 7}}) == {"a": {1}}


def test_what_something_waited_for_that_has_begun_has_succeeded() -> None:
    chain = (step("a", 2), step("b", needs=["a"]), step("c", 2, 4, needs=["b"]))
    assert told(*chain, recorded={"c": {3}}) == {"a": {0, 1}, "b": {0}, "c": set()}
    assert told(*chain, recorded={"c": set()}) == {"a": set(), "b": set(), "c": set()}
    assert told(*chain, recorded={}, begun=["c"]) == {"a": {0, 1}, "b": {0}, "c": set()}
    assert told(*chain, recorded={}, ran={"b": {0}}) == {"a": {0, 1}, "b": set(), "c": set()}


def test_in_a_retry_a_child_tells_of_the_one_with_its_number() -> None:
    a = replace(step("a", 2), indices=(1, 4), step_size=6)
    b = replace(step("b", 3, 6, each="a"), indices=(4, 1, 5), step_size=6)
    assert told(a, b, recorded={"b": {4, 5}}) == {"a": {1}, "b": {0, 2}}


def test_a_child_that_waited_for_one_other_tells_of_that_alone() -> None:
    pair = (step("a", 3), step("b", 3, 6, each="a"))
    assert told(*pair, recorded={"b": {2}}) == {"a": {1}, "b": set()}
    assert told(*pair, recorded={}, begun=["b"]) == {
        "a": set(),
        "b": set(),
    }  # which one is not known


def test_what_an_earlier_run_did_or_nobody_had_to_do_says_nothing_of_what_was_waited_for() -> None:
    pair = (step("a"), step("b", 2, 1, needs=["a"]))
    assert told(*pair, recorded={"b": set()}, skipped={"b": {0}}) == {"a": set(), "b": {0, 1}}


class Objects:
    """A bucket that counts what is read of a list."""

    def __init__(self, *keys: str) -> None:
        self._keys = sorted(keys)
        self.read = 0

    def list(self, prefix: str) -> Iterator[S3Object]:
        for key in self._keys:
            if f"s3://b/{key}".startswith(prefix):
                self.read += 1
                yield S3Object(key, 1, 100.0 + len(key))


def test_the_records_are_read_up_to_the_last() -> None:
    failures = [f"r/done/a/failures/{n:07d}.json" for n in range(50)]
    objects = Objects("r/done/a/0000000", "r/done/a/0000012", "r/done/ab/0000001", *failures)
    found = success_records.read_records(objects, "s3://b/r/", "a")  # type: ignore[arg-type]
    assert set(found.commands) == {0, 12} and found.last_ms == 116_000
    assert objects.read == 3
    assert success_records.read_records(objects, "s3://b/r/", "c") == success_records.StepRecords(
        set(), None
    )  # type: ignore[arg-type]


# -- the tally -------------------------------------------------------------------------------------


class Children:
    """AWS's word about an array's children; asked for a hundred at a time."""

    def __init__(self, *attempts: int) -> None:
        """Of each child; one with attempts below 0 has succeeded."""
        self._attempts = attempts
        self.asked = 0

    def describe(self, job_ids: Sequence[str]) -> dict[str, Any]:
        assert len(job_ids) <= 100
        self.asked += 1
        numbers = [int(job_id.partition(":")[2]) for job_id in job_ids]
        known = {n: self._attempts[n] for n in numbers if n < len(self._attempts)}
        return {
            f"id-a:{n}": {"status": S if tries < 0 else F, "attempts": [{}] * abs(tries)}
            for n, tries in known.items()
        }


def ended(step: str, state: JobState, size: int, *, job_id: str = "") -> JobDetail:
    return JobDetail(
        job_id or f"id-{step}", step, state, "", size, (0,) * 6 + (size,), size, 1, None, None
    )


def part(step: str, size: int) -> Part:
    return Part(f"run-{step}", step, size, 0, "d", {})


def test_the_attempts_of_a_stopped_array_are_those_that_began() -> None:
    children = Children(-1, -2, 3, *[0] * 247)
    jobs, succeeded = attempt_counts.count_attempts(
        children, Plan("p", (step("a", 250),)), [part("a", 250)], [ended("a", F, 250)]
    )  # type: ignore[arg-type]
    assert jobs[0].attempts == 6 and succeeded == {"id-a": [(0, 1)]} and children.asked == 3
    assert (
        attempt_counts.expand_ranges(succeeded, "id-a") == {0, 1}
        and attempt_counts.expand_ranges(succeeded, "id-b") is None
    )


def test_who_is_asked_about_and_who_need_not_be() -> None:
    children = Children(*[-1] * 10)
    plan = Plan(
        "p",
        (
            step("a", 10),
            step("b", needs=["a"]),
            step("c", 10, needs=["b"]),
            step("d", 10, each="c"),
        ),
    )
    found = [ended("a", S, 10), ended("b", F, 1), ended("c", F, 10), ended("d", F, 10)]
    parts = [part(one.step, one.size) for one in found]
    jobs, succeeded = attempt_counts.count_attempts(children, plan, parts, found)  # type: ignore[arg-type]
    # All of it succeeded, or is one job, or waited for what did not succeed.
    assert children.asked == 0 and [job.attempts for job in jobs] == [10, 1, 0, 0]
    assert succeeded == {"id-c": [], "id-d": []}
    gone = [ended("a", F, 10, job_id=f"{UNSUBMITTED}run-a")]
    assert attempt_counts.count_attempts(
        children, Plan("p", (step("a", 10),)), parts[:1], gone
    ) == (gone, {})  # type: ignore[arg-type]
    assert children.asked == 0


def test_children_whose_needed_child_is_not_repeated_are_asked_about() -> None:
    """c did not begin; child 1 of d waits for it, child 0 waits for none."""
    children = Children(1, 0)
    c = replace(step("c", needs=["b"]), indices=(1,), step_size=2)
    d = replace(step("d", 2, each="c"), indices=(0, 1), step_size=2)
    job_details = [ended("b", F, 1), ended("c", F, 1), ended("d", F, 2)]
    jobs, succeeded = attempt_counts.count_attempts(
        children,  # type: ignore[arg-type]
        Plan("p", (step("b"), c, d)),
        [part(job.step, job.size) for job in job_details],
        job_details,
    )
    assert [job.attempts for job in jobs] == [1, 1, 1] and succeeded == {"id-d": []}


def test_commands_are_in_the_order_of_their_numbers_also_in_a_retry() -> None:
    plan = Plan("p", (step("a"), replace(step("b", 3), indices=(4, 1, 5), step_size=6)))
    attempts = [
        AttemptDetail("j", name, index, 1, S, 0, "", "", 0, 1, 0.0, 0.0, 0)
        for name, index in (("a", 0), ("b", 4), ("b", 1), ("b", 5))
    ]
    commands = RunCommands(plan, None, None, "")  # type: ignore[arg-type]
    found = commands.find(attempts, None, None, failed_only=True)
    assert [(command.step, command.number) for command in found] == [
        *(("a", 0), ("b", 1), ("b", 4), ("b", 5))
    ]


def test_more_than_ten_thousand_children_are_not_asked_about() -> None:
    children = Children(*[0] * 10_000)
    plan = Plan("p", (step("a", 20_000),))
    found = [ended("a", F, 10_000), ended("a", F, 10_000, job_id="id-more")]
    jobs, succeeded = attempt_counts.count_attempts(children, plan, [part("a", 10_000)] * 2, found)  # type: ignore[arg-type]
    assert (
        children.asked == 100
        and [job.attempts for job in jobs] == [0, 10_000]
        and set(succeeded) == {"id-a"}
    )


def test_children_that_aws_does_not_all_know_are_not_counted() -> None:
    found = [ended("a", F, 10)]
    assert attempt_counts.count_attempts(
        Children(1, 1), Plan("p", (step("a", 10),)), [part("a", 10)], found
    ) == (
        found,
        {},
    )  # type: ignore[arg-type]
