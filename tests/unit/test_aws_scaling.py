"""Which children a scale lets go on, and which jobs it adds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from batchyard.batch.jobs import Resources
from batchyard.engines.aws.scaling import decide_scale
from batchyard.plan import PlannedJob
from batchyard.worker import scale as scale_format
from batchyard.worker.scale import AddedJob, Scale

JOB = PlannedJob(
    step="a",
    size=4,
    is_array=True,
    resources=Resources(1, 256),
    command_count=100,
    step_size=4,
    share_out="dynamic",
)


def decide(scale: Scale | None, children: list[int], count: int, job: PlannedJob = JOB) -> Scale:
    return decide_scale(
        job, scale, children, count, has_dependents=False, has_needs=False, token=""
    )


def test_the_children_that_are_missing_are_added_after_all_others() -> None:
    scale = decide(None, [0, 1, 2, 3], 6)
    assert scale == Scale(((0, 5),), (AddedJob(4, 2, False),))
    scale = decide(scale, [0, 1, 2, 3, 4, 5], 7)
    assert scale == Scale(((0, 6),), (AddedJob(4, 2, False), AddedJob(6, 1, False)))


def test_those_that_work_stay_before_those_that_wait() -> None:
    assert decide(None, [2, 3, 0, 1], 1) == Scale(((2, 2),))
    assert decide(None, [2, 3, 0, 1], 3) == Scale(((0, 0), (2, 3)))


def test_a_child_that_was_dismissed_ends_and_is_replaced() -> None:
    lowered = decide(None, [0, 1, 2, 3], 1)
    raised = decide(lowered, [0, 1, 2, 3], 3)
    assert raised == Scale(((0, 0), (4, 5)), (AddedJob(4, 2, False),))


def test_children_that_have_ended_are_replaced() -> None:
    assert decide(None, [2], 2) == Scale(((2, 2), (4, 4)), (AddedJob(4, 1, False),))


def test_a_retried_job_counts_positions_from_its_own_size() -> None:
    job = replace(JOB, size=2, indices=(1, 3))
    scale = decide(None, [1, 3], 3, job)
    assert scale == Scale(((1, 1), (3, 4)), (AddedJob(2, 1, False),))
    assert [job.index_in_step(position) for position in range(4)] == [1, 3, 4, 5]


def test_more_children_than_an_array_can_have_are_several_jobs() -> None:
    scale = decide(None, [0, 1, 2, 3], 20_005)
    assert scale.added == (
        AddedJob(4, 10_000, False),
        AddedJob(10_004, 10_000, False),
        AddedJob(20_004, 1, False),
    )


def test_a_scale_is_read_as_it_was_written() -> None:
    scale = Scale(((0, 3), (7, 9)), (AddedJob(4, 2, True),), has_dependents=True, token="x")
    assert scale_format.decode(scale_format.encode(scale)) == scale
    for index, is_in in ((0, True), (3, True), (4, False), (9, True), (10, False)):
        assert scale.has_child(index) is is_in


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format":2}', b'{"format":1}', b"\xff"])
def test_other_content_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        scale_format.decode(data)
