"""Log events of many streams: each is returned once, ordered by time, and few are read twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from batchyard import plan as planning
from batchyard.batch.jobs import JobState
from batchyard.engines.aws import from_aws
from batchyard.engines.aws.changed_children import ChangedChildren
from batchyard.engines.aws.from_aws import UNSUBMITTED
from batchyard.engines.aws.log_reader import LogReader
from batchyard.engines.aws.log_streams import BatchStreams
from batchyard.engines.aws.render import Part
from batchyard.engines.base import JobDetail
from batchyard.errors import BusyServiceError
from batchyard.pipeline_file import reading


class Cloud:
    """Two children of one array that run, and their log streams."""

    def __init__(self) -> None:
        self.status = JobState.RUNNING
        self.has_forgotten = False
        #: (stream, ms, text)
        self.events: list[tuple[str, int, str]] = []
        #: how many events each look was given
        self.read: list[int] = []
        #: streams that do not exist yet
        self.missing: set[str] = set()
        #: errors of the next reads, the last one first
        self.trouble: list[Exception | None] = []
        self.now_s = 1000.0
        #: when the attempts ended
        self.ended_ms = 0
        #: called with each pause
        self.during: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.during()

    def describe(self, job_ids: Sequence[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.has_forgotten:
            return found
        for job_id in job_ids:
            container = {"logStreamName": f"s{job_id.partition(':')[2]}"}
            attempt = {"container": container, "stoppedAt": self.ended_ms}
            attempts = [attempt] if self.status.is_terminal else []
            found[job_id] = {
                "jobId": job_id,
                "status": self.status,
                "container": container,
                "attempts": attempts,
            }
        return found

    def read_events(
        self, group: str, streams: Sequence[str], start_ms: int
    ) -> tuple[list[Any], set[str]]:
        problem = self.trouble.pop() if self.trouble else None
        if problem is not None:
            raise problem
        found = [
            {"logStreamName": name, "timestamp": at, "message": text, "eventId": str(number)}
            for number, (name, at, text) in enumerate(self.events)
            if name in streams and at >= start_ms and name not in self.missing
        ]
        self.read.append(len(found))
        return found, self.missing & set(streams)

    def details(self) -> list[JobDetail]:
        counts = tuple(2 * (state is self.status) for state in JobState)
        state = self.status if self.status.is_terminal else JobState.PENDING
        return [JobDetail("id", "a", state, "", 2, counts, 0, 1, None, None)]


ARRAY = Part("run-a", "a", 2, 0, "d", {})


def reader(cloud: Cloud, folder: Path, part: Part = ARRAY, job_id: str = "id") -> LogReader:
    file = folder / "pipeline.yaml"
    file.write_text("name: p\nimage: x\nsteps: [{name: a, array: 2, command: 'true'}]\n")
    plan = planning.make(reading.load(file, {}))
    children = ChangedChildren(cloud)  # type: ignore[arg-type]
    streams = BatchStreams(plan, children, lambda: [(part, job_id)], cloud.details)
    return LogReader(
        cloud,  # type: ignore[arg-type]
        "g",
        plan,
        streams,
        lambda: cloud.now_s,
        cloud.sleep,
    )


def followed(one: LogReader, cloud: Cloud) -> list[tuple[int, str]]:
    cloud.read.clear()
    return [(chunk.index, chunk.data.decode().strip()) for chunk in one.follow(cloud.details())]


def test_in_order_of_time_and_each_once(tmp_path: Path) -> None:
    cloud = Cloud()
    one = reader(cloud, tmp_path)
    cloud.events = [("s0", 10_000, "a"), ("s0", 10_002, "c"), ("s1", 10_001, "b")]
    assert followed(one, cloud) == [(0, "a"), (1, "b"), (0, "c")]
    assert followed(one, cloud) == []
    # in the same millisecond as what is known, in one stream and in the other
    cloud.events += [("s1", 10_003, "e"), ("s0", 10_002, "d")]
    assert followed(one, cloud) == [(0, "d"), (1, "e")]
    cloud.status = JobState.SUCCEEDED
    cloud.events.append(("s1", 10_004, "last"))
    assert followed(one, cloud) == [(1, "last")]
    assert followed(one, cloud) == [] and cloud.read == []


def test_one_that_is_silent_does_not_make_the_other_be_read_again(tmp_path: Path) -> None:
    cloud = Cloud()
    one = reader(cloud, tmp_path)
    cloud.events = [("s0", 10_000, "only word")]
    followed(one, cloud)
    for second in range(11, 600):
        cloud.events += [("s1", second * 1_000 + n, f"{second}.{n}") for n in range(10)]
        assert followed(one, cloud) == [(1, f"{second}.{n}") for n in range(10)]
        # the last five seconds at the most, where both had just spoken
        assert sum(cloud.read) <= 62
    assert sum(cloud.read) == 11
    cloud.events.append(("s0", 599_500, "another word"))
    assert followed(one, cloud) == [(0, "another word")]


def test_after_a_gap_nothing_is_lost(tmp_path: Path) -> None:
    """After ten minutes without a look, no event is lost.

    A late event of one child does not hide earlier events of the other.
    """
    cloud = Cloud()
    one = reader(cloud, tmp_path)
    cloud.events = [("s0", 10_000, "a"), ("s1", 20_000, "b")]
    assert followed(one, cloud) == [(0, "a"), (1, "b")]
    cloud.events += [("s0", 100_000, "c"), ("s1", 600_000, "d")]
    assert followed(one, cloud) == [(0, "c"), (1, "d")]
    # nor where only one of them was read in the meantime
    cloud.events += [("s0", 700_000, "e"), ("s1", 1_200_000, "f")]
    assert [chunk.data for chunk in one.read("a", 1)] == [b"f\n"]
    assert followed(one, cloud) == [(0, "e")]
    assert followed(one, cloud) == []


def test_a_whole_read_is_by_child(tmp_path: Path) -> None:
    cloud = Cloud()
    one = reader(cloud, tmp_path)
    cloud.events = [("s0", 1, "a"), ("s1", 2, "b"), ("s0", 3, "c")]
    assert [chunk.data for chunk in one.read()] == [b"a\n", b"c\n", b"b\n"]
    assert list(one.read()) == []
    # What one question leaves out, another is given.
    cloud.events += [("s0", 4, "d"), ("s1", 5, "e")]
    assert [chunk.data for chunk in one.read("a", 1)] == [b"e\n"]
    assert [chunk.data for chunk in one.read()] == [b"d\n"]


def test_what_aws_has_forgotten_is_said(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.status, cloud.has_forgotten = JobState.SUCCEEDED, True
    one = reader(cloud, tmp_path)
    assert (
        list(one.read()) == []
        and "AWS has forgotten" in one.missing
        and "log group g" in one.missing
    )
    cloud.has_forgotten = False
    other = reader(cloud, tmp_path)
    assert list(other.read()) == [] and other.missing == ""


class NothingSubmitted(Cloud):
    """A run that was stopped before its only job was submitted: nobody may be asked about it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.part = Part("run-a", "a", size, 0, "d", {})

    def describe(self, job_ids: Sequence[str]) -> dict[str, Any]:
        assert not job_ids
        return {}

    def children(self, array_id: str, state: str) -> Iterator[str]:
        raise AssertionError(array_id)

    def details(self) -> list[JobDetail]:
        return [
            from_aws.give_up(from_aws.make_job_detail(self.part, f"{UNSUBMITTED}run-a", None, None))
        ]


@pytest.mark.parametrize("failed_only", [False, True])
@pytest.mark.parametrize("size", [1, 2])
def test_what_was_never_submitted_has_nothing_to_say(
    tmp_path: Path, size: int, failed_only: bool
) -> None:
    cloud = NothingSubmitted(size)
    one = reader(cloud, tmp_path, cloud.part, f"{UNSUBMITTED}run-a")
    assert list(one.read(failed_only=failed_only)) == [] and one.missing == ""
    assert list(one.follow(cloud.details(), failed_only=failed_only)) == [] and one.missing == ""


def test_a_stream_that_appears_late_is_waited_for(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.status, cloud.ended_ms = JobState.SUCCEEDED, 999_000
    cloud.events = [("s0", 1, "zero"), ("s1", 2, "one")]
    cloud.missing = {"s0", "s1"}
    cloud.during = lambda: cloud.missing.clear() if cloud.now_s > 1004 else None
    for read in (
        lambda: followed(reader(cloud, tmp_path), cloud),
        lambda: [(c.index, c.data.decode().strip()) for c in reader(cloud, tmp_path).read()],
    ):
        cloud.now_s, cloud.missing = 1000.0, {"s0", "s1"}
        assert read() == [(0, "zero"), (1, "one")]


def test_a_stream_that_never_appears_is_waited_for_half_a_minute(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.status, cloud.ended_ms = JobState.FAILED, 999_000
    cloud.events, cloud.missing = [("s1", 2, "one")], {"s0"}
    assert followed(reader(cloud, tmp_path), cloud) == [(1, "one")]
    assert 1025 < cloud.now_s < 1035
    # Of an attempt that ended longer ago, nothing is waited for.
    cloud.now_s = 2000.0
    assert followed(reader(cloud, tmp_path), cloud) == [(1, "one")]
    assert cloud.now_s == 2000


def test_while_jobs_run_a_missing_stream_is_left_for_the_next_look(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.events, cloud.missing = [("s0", 1, "zero"), ("s1", 2, "one")], {"s0"}
    one = reader(cloud, tmp_path)
    assert followed(one, cloud) == [(1, "one")]
    cloud.missing = set()
    assert followed(one, cloud) == [(0, "zero")]
    assert cloud.now_s == 1000


def test_what_was_read_before_an_error_is_returned_by_the_next_call(tmp_path: Path) -> None:
    cloud = Cloud()
    one = reader(cloud, tmp_path)
    cloud.events = [("s0", 60_000, "first"), ("s1", 2, "first")]
    assert len(followed(one, cloud)) == 2
    # The streams are read by two calls now, since one of them is silent. The second call fails.
    cloud.events += [("s0", 60_001, "second"), ("s1", 60_002, "second")]
    cloud.trouble = [BusyServiceError("busy"), None]
    with pytest.raises(BusyServiceError):
        followed(one, cloud)
    assert followed(one, cloud) == [(0, "second"), (1, "second")]


def test_children_that_aws_does_not_show_yet_are_looked_for_again(tmp_path: Path) -> None:
    cloud = Cloud()
    cloud.status, cloud.events = JobState.SUCCEEDED, [("s0", 1, "zero")]
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: p\nimage: x\nsteps: [{name: a, array: 2, command: 'true'}]\n")
    plan = planning.make(reading.load(file, {}))
    children = ChangedChildren(cloud, lambda part: True)  # type: ignore[arg-type]
    parts = [(ARRAY, "id")]
    streams = BatchStreams(plan, children, lambda: parts, cloud.details)
    one = LogReader(cloud, "g", plan, streams)  # type: ignore[arg-type]
    cloud.has_forgotten = True
    assert followed(one, cloud) == [] and one.missing == ""
    cloud.has_forgotten = False
    assert followed(one, cloud) == [(0, "zero")]
