"""CloudWatch Logs of jobs: what clients ask, as botocore sends it, over rows and files as the
engine leaves them."""

from __future__ import annotations

import json
import os
import random
import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.validate import ParamValidator

from batchyard.batch.changes import Start
from batchyard.batch.jobs import Job, Resources
from batchyard.batch.queues import ComputeEnvironment, Queue
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded.loop import Loop
from batchyard.embedded.processes import ProcessRunner
from batchyard.embedded.runner import Task
from batchyard.embedded.spawner import Spawner
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.emulator import api_models, names
from batchyard.emulator.api_errors import ApiError
from batchyard.emulator.log_events import MAX_MESSAGE_BYTES
from batchyard.emulator.log_files import LogFiles
from batchyard.emulator.log_groups import is_job_log_group, list_job_log_groups, log_group_of
from batchyard.emulator.log_operations import (
    describe_log_streams,
    filter_log_events,
    get_log_events,
)
from batchyard.emulator.log_times import TimedLogBook, times_path
from batchyard.emulator.state import JOB, LOG_GROUP, EndpointState
from batchyard.folder import RunFolder
from batchyard.shard import Turn

SALT = "5a175a175a175a17"
GROUP = "/aws/batch/job"
#: when the jobs of these tests begin
T0 = 1_772_368_496_000

Request = dict[str, Any]


@dataclass
class Bench:
    """A yard whose jobs are told what they have written and when. The rows, the files and the
    endpoint are real; what the loop and the scheduler know is what the test says."""

    folder: RunFolder
    store: Store
    now_ms: int = T0
    tasks: dict[tuple[str, int], SimpleNamespace] = field(default_factory=dict)
    rows: dict[str, JobRow] = field(default_factory=dict)
    recorded: list[set[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.book = TimedLogBook(self.folder, lambda: (self.now_ms + 0.5) / 1000)
        self.files: dict[tuple[str, int, int], int] = {}
        self.state = EndpointState(
            scheduler=SimpleNamespace(placed_children=lambda: list(self.tasks)),
            loop=SimpleNamespace(
                row=self.rows.__getitem__,
                record=lambda ids: self.recorded.append(set(ids)),
                find_running_task=lambda job_id, child: self.tasks.get((job_id, child)),
            ),
            store=self.store,
            log_files=LogFiles(self.folder),
            region="us-east-1",
            machine=Resources(1, 1),
            task_maker=lambda number, document: None,
            salt=SALT,
            clock=lambda: self.now_ms / 1000,
        )

    def job(
        self,
        job_id: str = "job-a",
        size: int = 1,
        log: Request | None = None,
        definition: str = "train",
    ) -> str:
        container = {} if log is None else {"logConfiguration": log}
        document = {
            "jobId": job_id,
            "createdAt": self.now_ms,
            "container": container,
            "_definition": definition,
        }
        self.state.put(JOB, job_id, document)
        group = log_group_of(document)
        if group not in (None, GROUP):
            self.state.put(LOG_GROUP, group, {"createdAt": self.now_ms})
        self.rows[job_id] = JobRow(
            len(self.rows), job_id, job_id, size, "RUNNABLE", "", (), 0, self.now_ms
        )
        return job_id

    def name(
        self, job_id: str = "job-a", child: int = 0, attempt: int = 1, prefix: str = "train"
    ) -> str:
        key = names.AttemptKey(self.rows[job_id].number, child, attempt)
        return f"{prefix}/default/{names.task_id(key, SALT)}"

    def start(self, job_id: str = "job-a", child: int = 0, attempt: int = 1, at: int = 0) -> None:
        self.tasks[job_id, child] = SimpleNamespace(
            child=child, attempt=attempt, started_ms=T0 + at
        )

    def write(
        self, data: bytes, at: int, job_id: str = "job-a", child: int = 0, attempt: int = 1
    ) -> None:
        """What a long child writes, ``at`` milliseconds after T0."""
        self.now_ms = T0 + at
        key = (job_id, child, attempt)
        if key not in self.files:
            self.files[key] = self.book.open_child_log(*key)
        self.book.write(self.files[key], data)

    def end(
        self,
        at: int,
        job_id: str = "job-a",
        child: int = 0,
        attempt: int = 1,
        short: bytes | None = None,
    ) -> None:
        task = self.tasks.pop((job_id, child))
        self.now_ms = T0 + at
        if (fd := self.files.pop((job_id, child, attempt), None)) is not None:
            os.close(fd)
        offset = None if short is None else self.book.add_short(short)
        self.book.flush()
        row = AttemptRow(
            self.rows[job_id].number,
            child,
            attempt,
            "SUCCEEDED",
            0,
            "",
            "",
            task.started_ms,
            self.now_ms,
        )
        length = len(short) if short is not None else 0
        self.store.commit(attempts=[row._replace(log_offset=offset, log_length=length)])

    def short(
        self,
        data: bytes,
        start: int,
        end: int,
        job_id: str = "job-a",
        child: int = 0,
        attempt: int = 1,
    ) -> None:
        self.start(job_id, child, attempt, start)
        self.end(end, job_id, child, attempt, data)

    # -- asking -----------------------------------------------------------------------------------

    def get(self, name: str | None = None, **request: Any) -> Request:
        name = self.name() if name is None else name
        members = {"logGroupName": GROUP, "logStreamName": name, **request}
        return checked("GetLogEvents", members, partial(get_log_events, self.state))

    def filter(self, **request: Any) -> Request:
        return checked(
            "FilterLogEvents",
            {"logGroupName": GROUP, **request},
            partial(filter_log_events, self.state),
        )

    def describe(self, **request: Any) -> Request:
        return checked(
            "DescribeLogStreams",
            {"logGroupName": GROUP, **request},
            partial(describe_log_streams, self.state),
        )

    def close(self) -> None:
        for fd in self.files.values():
            os.close(fd)
        self.state.log_files.close()
        self.book.close()
        self.store.close()


def checked(operation: str, request: Request, act: Any) -> Request:
    """Asks; both the request and the answer must be what botocore's model says."""
    model = api_models.service_model("logs").operation_model(operation)
    request = {key: value for key, value in request.items() if value is not None}
    assert set(request) <= set(model.input_shape.members)
    answer: Request = json.loads(json.dumps(act(request)))
    assert ParamValidator().validate(answer, model.output_shape).generate_report() == ""
    assert set(answer) <= set(model.output_shape.members)
    return answer


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    folder = RunFolder(tmp_path)
    it = Bench(folder, Store.open(folder.database, create=True))
    yield it
    it.close()


def messages(answer: Request) -> list[str]:
    return [event["message"] for event in answer["events"]]


def timed(answer: Request) -> list[tuple[str, int]]:
    return [(event["message"], event["timestamp"] - T0) for event in answer["events"]]


def refused(act: Any, *args: Any, **request: Any) -> tuple[str, str]:
    with pytest.raises(ApiError) as caught:
        act(*args, **request)
    return caught.value.code, caught.value.message


def is_left_to_moto(operation: Any, bench: Bench) -> bool:
    """Whether moto answers a request for a group that no job logs to."""
    return operation(bench.state, {"logGroupName": "/other"}) is None


BAD_TOKEN = ("InvalidParameterException", "The specified nextToken is invalid.")
NO_STREAM = ("ResourceNotFoundException", "The specified log stream does not exist.")


# -- lines and their times ------------------------------------------------------------------------


def test_a_short_child_has_its_lines_at_its_end(bench: Bench) -> None:
    bench.job()
    bench.short(b"one\ntwo\n", 10, 60)
    assert timed(bench.get()) == [("one", 60), ("two", 60)]
    assert bench.get()["events"][0]["ingestionTime"] == T0 + 60


def test_a_long_child_has_each_line_when_it_was_whole(bench: Bench) -> None:
    bench.job()
    bench.start()
    bench.write(b"one\ntw", 200)
    assert timed(bench.get()) == [("one", 200)], "an unfinished line is none yet"
    bench.write(b"o\n", 300)
    bench.write(b"three", 400)
    assert timed(bench.get()) == [("one", 200), ("two", 300)]
    bench.end(500)
    assert timed(bench.get()) == [("one", 200), ("two", 300), ("three", 500)]


def test_empty_lines_are_no_events(bench: Bench) -> None:
    bench.job()
    bench.short(b"\n\none\n\n \n\n", 0, 1)
    assert messages(bench.get()) == ["one", " "]


def test_what_is_no_utf_8_is_replaced(bench: Bench) -> None:
    bench.job()
    bench.short("grün ".encode() + b"\xff\n", 0, 1)
    assert messages(bench.get()) == ["grün �"]


def test_a_long_line_is_cut(bench: Bench) -> None:
    line = "".join(f"{number:09d}" for number in range(2 * MAX_MESSAGE_BYTES // 9 + 1_000))
    bench.job()
    bench.start()
    bench.write(b"before\n" + line.encode(), 200)
    bench.write(b"\nafter\n", 300)
    bench.end(400)
    forward = bench.get(startFromHead=True)
    assert [len(message) for message in messages(forward)] == [
        6,
        MAX_MESSAGE_BYTES,
        MAX_MESSAGE_BYTES,
        len(line) - 2 * MAX_MESSAGE_BYTES,
        5,
    ]
    assert "".join(messages(forward)[1:-1]) == line
    # What could be seen at 200 has that time, and the rest is when the line was whole.
    assert [at for _, at in timed(forward)] == [200, 200, 200, 300, 300]
    assert bench.get() == forward
    assert bench.get(limit=3)["events"] == forward["events"][-3:]


def test_a_long_line_is_cut_while_it_is_being_written(bench: Bench) -> None:
    bench.job()
    bench.start()
    bench.write(b"x" * (MAX_MESSAGE_BYTES + 10), 200)
    assert messages(bench.get()) == ["x" * MAX_MESSAGE_BYTES]
    token = bench.get()["nextForwardToken"]
    bench.write(b"y\n", 300)
    assert timed(bench.get(nextToken=token)) == [("x" * 10 + "y", 300)]


def test_a_line_as_long_as_an_event(bench: Bench) -> None:
    bench.job()
    bench.short(b"x" * MAX_MESSAGE_BYTES + b"\nnext\n", 0, 50)
    assert [len(message) for message in messages(bench.get())] == [MAX_MESSAGE_BYTES, 4]


def test_an_attempt_whose_engine_died(bench: Bench) -> None:
    """Its file is older than its start; what came after the crash is in short.log."""
    bench.job()
    bench.start()
    bench.write(b"before\nhal", 200)
    bench.start(at=1_000)
    bench.end(1_050, short=b"f\nafter\n")
    assert timed(bench.get()) == [("before", 1_000), ("half", 1_050), ("after", 1_050)]
    assert bench.get(startTime=T0 + 1_000)["events"] == bench.get()["events"]
    assert timed(bench.get(startTime=T0 + 1_001)) == [("half", 1_050), ("after", 1_050)]


def test_a_file_without_times_has_that_of_the_start(bench: Bench) -> None:
    bench.job()
    bench.start(at=100)
    bench.write(b"one\ntwo\nthree", 200)
    times_path(bench.folder.log_of("job-a", 0, 1)).unlink()
    assert timed(bench.get()) == [("one", 100), ("two", 100)]
    bench.end(500)
    assert timed(bench.get()) == [("one", 100), ("two", 100), ("three", 500)]
    assert messages(bench.get(startTime=T0 + 101)) == ["three"]


def test_output_that_a_power_cut_took(bench: Bench) -> None:
    bench.job()
    bench.short(b"one\ntwo\n", 0, 50)
    os.truncate(bench.folder.short_log, 4)
    assert messages(bench.get()) == ["one"]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_written_is_read_from_either_end(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    lengths = rng.choices(
        [0, 1, 7, 300, 5_000, 70_000], weights=[3, 3, 9, 5, 2, 1], k=rng.randrange(1, 120)
    )
    lines = [rng.choice("abc") * length for length in lengths]
    data = "\n".join(lines).encode()
    bench.job()
    bench.start()
    at = 100
    while data:
        size = rng.choice([1, 10, 1_000, 100_000])
        bench.write(data[:size], at)
        data, at = data[size:], at + rng.randrange(20)
    bench.end(at, short=rng.choice([None, b"", b"\nshort\n"]))
    expected = [line for line in "\n".join(lines).split("\n") if line]
    forward, answer = [], bench.get(startFromHead=True, limit=7)
    while answer["events"]:
        forward += answer["events"]
        answer = bench.get(startFromHead=True, limit=7, nextToken=answer["nextForwardToken"])
    backward, answer = [], bench.get(limit=11)
    while answer["events"]:
        backward = answer["events"] + backward
        answer = bench.get(limit=11, nextToken=answer["nextBackwardToken"])
    assert forward == backward
    texts = [event["message"] for event in forward]
    assert texts in (expected, [*expected, "short"])
    times = [event["timestamp"] for event in forward]
    assert times == sorted(times)
    # A time cuts the events in two, wherever it falls.
    for ms in rng.choices(range(T0, T0 + at + 2), k=10):
        early, late = bench.get(endTime=ms)["events"], bench.get(startTime=ms)["events"]
        in_page = sum(len(event["message"]) + 27 for event in forward) < 1 << 20
        assert not in_page or early + late == forward
        assert all(event["timestamp"] < ms for event in early)
        assert all(event["timestamp"] >= ms for event in late)


# -- GetLogEvents ---------------------------------------------------------------------------------


def test_the_last_events_come_unless_asked_for_the_first(bench: Bench) -> None:
    bench.job()
    bench.short(b"".join(b"%d\n" % number for number in range(10)), 0, 1)
    assert messages(bench.get(limit=3)) == ["7", "8", "9"]
    assert messages(bench.get(limit=3, startFromHead=False)) == ["7", "8", "9"]
    assert messages(bench.get(limit=3, startFromHead=True)) == ["0", "1", "2"]


@pytest.mark.parametrize("limit", [1, 3, 1_000])
def test_forward_to_the_end_and_back(bench: Bench, limit: int) -> None:
    lines = [str(number) for number in range(10)]
    bench.job()
    bench.start()
    for at in range(10):
        bench.write(b"%d\n\n" % at, 100 + at)
    bench.end(500)
    answer = bench.get(limit=limit, startFromHead=True)
    seen = messages(answer)
    while (token := answer["nextForwardToken"]) and (
        answer := bench.get(limit=limit, startFromHead=True, nextToken=token)
    )["nextForwardToken"] != token:
        seen += messages(answer)
    assert seen == lines
    assert answer["events"] == []
    back = []
    while (token := answer["nextBackwardToken"]) and (
        answer := bench.get(limit=limit, nextToken=token)
    )["nextBackwardToken"] != token:
        back = messages(answer) + back
    assert back == lines


def test_going_on_from_the_end_finds_what_has_come_since(bench: Bench) -> None:
    bench.job()
    bench.start()
    assert bench.get()["events"] == []
    first = bench.get(startFromHead=True)["nextForwardToken"]
    bench.write(b"one\n", 200)
    answer = bench.get(nextToken=first)
    assert messages(answer) == ["one"]
    assert (
        bench.get(nextToken=answer["nextForwardToken"])["nextForwardToken"]
        == answer["nextForwardToken"]
    )
    bench.write(b"two\n", 300)
    assert messages(bench.get(nextToken=answer["nextForwardToken"])) == ["two"]


def test_a_page_holds_10_000_events(bench: Bench) -> None:
    bench.job()
    bench.short(b"".join(b"%d\n" % number for number in range(10_010)), 0, 1)
    answer = bench.get()
    assert messages(answer) == [str(number) for number in range(10, 10_010)]
    assert messages(bench.get(nextToken=answer["nextBackwardToken"])) == [
        str(number) for number in range(10)
    ]


def test_a_page_holds_a_megabyte(bench: Bench) -> None:
    bench.job()
    bench.start()
    for number in range(300):
        bench.write(b"%d %s\n" % (number, b"x" * 99_995), 200 + number)
    bench.end(1_000)
    answer = bench.get()
    assert [int(message.split()[0]) for message in messages(answer)] == list(range(290, 300))
    answer = bench.get(nextToken=answer["nextBackwardToken"])
    assert [int(message.split()[0]) for message in messages(answer)] == list(range(280, 290))


def test_a_range_of_time(bench: Bench) -> None:
    bench.job()
    bench.start()
    for at in (100, 200, 300, 400):
        bench.write(b"%d a\n%d b\n" % (at, at), at)
    bench.write(b"unfinished", 450)
    bench.end(500)

    def between(start: int | None, end: int | None, **members: Any) -> list[str]:
        times = {"startTime": start, "endTime": end}
        return messages(
            bench.get(**{key: T0 + ms for key, ms in times.items() if ms is not None}, **members)
        )

    assert between(200, None) == [
        "200 a",
        "200 b",
        "300 a",
        "300 b",
        "400 a",
        "400 b",
        "unfinished",
    ]
    assert between(201, 400) == ["300 a", "300 b"]  # the end is not in it
    assert between(401, None) == ["unfinished"]
    assert between(None, 500) == [
        "100 a",
        "100 b",
        "200 a",
        "200 b",
        "300 a",
        "300 b",
        "400 a",
        "400 b",
    ]
    assert between(501, None) == []
    assert between(None, 100) == []
    assert between(400, 200) == []
    assert between(200, 401, limit=1) == ["400 b"]
    assert between(200, 401, limit=1, startFromHead=True) == ["200 a"]
    token = bench.get(startTime=T0 + 200, endTime=T0 + 300, startFromHead=True)["nextForwardToken"]
    second_answer = bench.get(
        startTime=T0 + 200, endTime=T0 + 300, startFromHead=True, nextToken=token
    )
    assert (second_answer["events"], second_answer["nextForwardToken"]) == ([], token)


def test_a_group_by_its_arn(bench: Bench) -> None:
    bench.job()
    bench.short(b"one\n", 0, 1)
    arn = f"arn:aws:logs:us-east-1:123456789012:log-group:{GROUP}"
    for identifier in (arn, f"{arn}:*", GROUP):
        assert messages(bench.get(logGroupName=None, logGroupIdentifier=identifier)) == ["one"]
    assert refused(bench.get, logGroupIdentifier=arn)[0] == "InvalidParameterException"
    assert refused(bench.get, logGroupName=None)[0] == "InvalidParameterException"


def test_what_is_not_there(bench: Bench) -> None:
    bench.job(size=2)
    bench.job("job-b", log={"logDriver": "awslogs", "options": {"awslogs-group": "mine"}})
    bench.short(b"one\n", 0, 1)
    bench.short(b"two\n", 0, 1, "job-b")
    assert is_left_to_moto(get_log_events, bench)
    for name in (
        "nothing",
        bench.name(child=1),
        bench.name(attempt=2),
        bench.name(prefix="other"),
        bench.name()[:-1] + "8",
        bench.name("job-b"),
        f"train/default/{names.task_id(names.AttemptKey(77, 0, 1), SALT)}",
    ):
        assert refused(bench.get, name) == NO_STREAM
    assert messages(bench.get(bench.name("job-b"), logGroupName="mine")) == ["two"]


def test_an_attempt_that_never_ran_has_no_stream(bench: Bench) -> None:
    bench.job()
    bench.store.commit(
        attempts=[AttemptRow(0, 0, 1, "FAILED", None, "CannotPullContainerError", "", None, T0 + 5)]
    )
    assert refused(bench.get) == NO_STREAM
    assert bench.describe()["logStreams"] == []
    bench.tasks["job-a", 0] = SimpleNamespace(child=0, attempt=2, started_ms=None)
    assert refused(bench.get, bench.name(attempt=2)) == NO_STREAM


def test_tokens_that_are_none(bench: Bench) -> None:
    bench.job()
    bench.short(b"one\n", 0, 1)
    for token in ("x", "f/", "f/abc", "f/99999", "c/0", "b/-1"):
        assert refused(bench.get, nextToken=token) == BAD_TOKEN
    for token in ("x", "e30=", "W10=", "é"):
        assert refused(bench.filter, nextToken=token) == BAD_TOKEN
        assert refused(bench.describe, nextToken=token) == BAD_TOKEN


@pytest.mark.parametrize("limit", [0, 10_001])
def test_limits(bench: Bench, limit: int) -> None:
    bench.job()
    bench.short(b"one\n", 0, 1)
    for act in (bench.get, bench.filter, bench.describe):
        assert refused(act, limit=limit)[0] == "InvalidParameterException"
    assert refused(bench.describe, limit=51)[1].endswith(
        "Member must have value less than or equal to 50"
    )


def test_the_tail_of_a_gigabyte_is_there_at_once(bench: Bench) -> None:
    bench.job()
    bench.start()
    bench.write(b"first\n", 100)
    log = bench.folder.log_of("job-a", 0, 1)
    os.truncate(log, 1 << 30)  # a hole, which reads as one line of zeros
    with log.open("ab") as file:
        file.write(b"\n" + b"".join(b"%d\n" % number for number in range(100_000)))
    bytes_before = read_bytes()
    assert messages(bench.get(limit=2)) == ["99998", "99999"]
    assert messages(bench.get(limit=1, startFromHead=True)) == ["first"]
    assert messages(bench.get(limit=1, startTime=T0 + 50)) == ["99999"]
    assert read_bytes() - bytes_before < 4 << 20


def read_bytes() -> int:
    """What this process has read, from files or elsewhere."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


# -- FilterLogEvents ------------------------------------------------------------------------------


def pages(bench: Bench, **request: Any) -> list[Request]:
    """As botocore's paginator asks for them."""
    answers = [bench.filter(**request)]
    while "nextToken" in answers[-1]:
        answers.append(bench.filter(**request, nextToken=answers[-1]["nextToken"]))
        assert len(answers) < 1_000
    return answers


def all_events(bench: Bench, **request: Any) -> list[Request]:
    return [event for page in pages(bench, **request) for event in page["events"]]


@pytest.fixture
def array(bench: Bench) -> Bench:
    """A long child, two short ones, one that runs."""
    bench.job(size=4)
    bench.start(child=0, at=0)
    bench.write(b"long 1\n", 100, child=0)
    bench.short(b"short a\nshort b\n", 150, 180, child=1)
    bench.write(b"long 2\n", 200, child=0)
    bench.start(child=3, at=210)
    bench.short(b"other ERROR\n", 240, 250, child=2)
    bench.write(b"running 1\nrunn", 300, child=3)
    bench.write(b"long 3\nrest", 310, child=0)
    bench.end(400, child=0)
    return bench


ARRAY_EVENTS = [
    ("long 1", 100),
    ("short a", 180),
    ("short b", 180),
    ("long 2", 200),
    ("other ERROR", 250),
    ("running 1", 300),
    ("long 3", 310),
    ("rest", 400),
]


def test_events_of_all_streams_in_order_of_time(array: Bench) -> None:
    answer = array.filter(interleaved=True)
    assert timed(answer) == ARRAY_EVENTS
    assert answer["searchedLogStreams"] == []
    assert answer["events"][1]["logStreamName"] == array.name(child=1)
    assert len({event["eventId"] for event in answer["events"]}) == len(ARRAY_EVENTS)
    assert array.recorded[-1] == {"job-a"}, "what has ended since the last commit must be seen"


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_of_events(array: Bench, limit: int) -> None:
    answers = pages(array, limit=limit)
    assert all(len(page["events"]) <= limit for page in answers)
    assert (
        timed({"events": [event for page in answers for event in page["events"]]}) == ARRAY_EVENTS
    )
    falling = all_events(array, limit=limit, startFromHead=False)
    assert falling == all_events(array)[::-1]


def test_events_of_some_streams(array: Bench) -> None:
    names_wanted = [array.name(child=2), array.name(child=1)]
    assert messages(array.filter(logStreamNames=names_wanted)) == [
        "short a",
        "short b",
        "other ERROR",
    ]
    assert messages(array.filter(logStreamNamePrefix=array.name(child=2))) == ["other ERROR"]
    assert messages(array.filter(logStreamNamePrefix="train/default/")) == [
        message for message, _ in ARRAY_EVENTS
    ]
    assert messages(array.filter(logStreamNamePrefix="nothing")) == []
    assert refused(array.filter, logStreamNames=["nothing"]) == NO_STREAM
    assert (
        refused(array.filter, logStreamNames=["a"], logStreamNamePrefix="a")[0]
        == "InvalidParameterException"
    )
    assert is_left_to_moto(filter_log_events, array)


def test_events_in_a_range_of_time(array: Bench) -> None:
    assert messages(array.filter(startTime=T0 + 180, endTime=T0 + 250)) == [
        "short a",
        "short b",
        "long 2",
        "other ERROR",  # the end is in it, unlike that of GetLogEvents
    ]
    assert messages(array.filter(startTime=T0 + 310)) == ["long 3", "rest"]
    assert messages(array.filter(endTime=T0 + 99)) == []
    assert messages(
        array.filter(startTime=T0 + 180, endTime=T0 + 250, startFromHead=False, limit=2)
    ) == [
        "other ERROR",
        "long 2",
    ]


def test_the_newest_first_only_since_2024(array: Bench) -> None:
    assert (
        refused(array.filter, startFromHead=False, startTime=1_700_000_000_000)[0]
        == "InvalidParameterException"
    )
    assert messages(array.filter(startFromHead=False, limit=1)) == ["rest"]


def test_events_that_match(array: Bench) -> None:
    assert messages(array.filter(filterPattern="ERROR")) == ["other ERROR"]
    assert messages(array.filter(filterPattern='?"short a" ?rest')) == ["short a", "rest"]
    assert [event["message"] for event in all_events(array, filterPattern="long", limit=1)] == [
        "long 1",
        "long 2",
        "long 3",
    ]
    expected = ("InvalidParameterException", "Invalid filter pattern")
    assert refused(array.filter, filterPattern="{ broken") == expected


def test_an_answer_may_be_empty_and_not_the_last(bench: Bench) -> None:
    """A search goes through so much at once, and no more."""
    bench.job()
    bench.start()
    bench.write(b"hay\n" * 60_000 + b"needle\n", 200)
    bench.end(300)
    answers = pages(bench, filterPattern="needle")
    assert [messages(page) for page in answers] == [[], ["needle"]]


def test_a_job_that_was_over_before_is_not_looked_into(bench: Bench) -> None:
    bench.job()
    bench.short(b"old\n", 0, 50)
    bench.rows["job-a"] = bench.rows["job-a"]._replace(ended_ms=T0 + 50)
    assert messages(bench.filter(startTime=T0 + 50)) == ["old"]
    bench.folder.short_log.write_bytes(b"")
    assert messages(bench.filter(startTime=T0 + 51)) == []


def test_following_as_the_aws_command_does(bench: Bench) -> None:
    """`aws logs tail --follow` asks for everything since the newest event it has seen, and drops
    those it has shown. Whatever appears later must not be older than what could be seen before."""
    bench.job(size=50)
    printed_lines: list[str] = []
    newest, seen = T0, set()

    def poll() -> None:
        nonlocal newest, seen
        for event in all_events(bench, interleaved=True, startTime=newest):
            if event["eventId"] in seen:
                continue
            printed_lines.append(event["message"])
            seen = {event["eventId"]} if event["timestamp"] > newest else seen | {event["eventId"]}
            newest = event["timestamp"]

    bench.start(child=0, at=0)
    for number in range(1, 50):
        # Those that start first do not end first; all the time one is writing; several things share
        # a millisecond.
        at = 100 + 3 * number
        bench.start(child=number, at=at - (number * 7) % 60)
        bench.write(b"line %d\nhalf" % number, at, child=0)
        poll()
        bench.end(at, child=number, short=b"child %d\n" % number)
        if number % 2:
            poll()
        bench.write(b" %d\n" % number, at + number % 3, child=0)
    bench.end(1_000, child=0)
    poll()
    expected = [f"{word} {number}" for number in range(1, 50) for word in ("line", "child", "half")]
    assert sorted(printed_lines) == sorted(expected)


def test_more_streams_than_files_may_be_open(bench: Bench) -> None:
    bench.job(size=300)
    for child in range(300):
        bench.start(child=child)
        bench.write(b"one %d\n" % child, 200, child=child)
        bench.end(400, child=child)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
    try:
        assert len(all_events(bench)) == 300
        assert len(bench.describe(orderBy="LastEventTime")["logStreams"]) == 50
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_search_through_10_000_short_children_is_quick(bench: Bench) -> None:
    bench.job(size=10_000)
    rows = []
    for child in range(10_000):
        data = b"child %d begins\nchild %d ends\n" % (child, child)
        row = AttemptRow(0, child, 1, "SUCCEEDED", 0, "", "", T0 + child, T0 + child + 20)
        rows.append(row._replace(log_offset=bench.book.add_short(data), log_length=len(data)))
    bench.book.flush()
    bench.store.commit(attempts=rows)
    began = time.process_time()
    answers = pages(bench, filterPattern="ends")
    took_s = time.process_time() - began
    assert sum(len(page["events"]) for page in answers) == 10_000
    # A tenth of this on an idle machine; the answers are also checked against the model here.
    assert took_s < 10
    began = time.process_time()
    assert messages(bench.get(bench.name(child=9_999), limit=1)) == ["child 9999 ends"]
    assert time.process_time() - began < took_s / 5, (
        "one child's lines are found without a look at the others"
    )


# -- DescribeLogStreams ---------------------------------------------------------------------------


def test_streams_by_name(array: Bench) -> None:
    answer = array.describe()
    assert [stream["logStreamName"] for stream in answer["logStreams"]] == [
        array.name(child=c) for c in range(4)
    ]
    assert "nextToken" not in answer
    first = answer["logStreams"][0]
    assert (
        first["arn"]
        == f"arn:aws:logs:us-east-1:123456789012:log-group:{GROUP}:log-stream:{array.name()}"
    )
    assert (first["creationTime"], first["storedBytes"]) == (T0, 0)
    assert (first["firstEventTimestamp"], first["lastEventTimestamp"]) == (T0 + 100, T0 + 400)
    assert first["lastIngestionTime"] == T0 + 400
    assert first["uploadSequenceToken"].isdigit()
    names_down = [
        stream["logStreamName"] for stream in array.describe(descending=True)["logStreams"]
    ]
    assert names_down == [array.name(child=c) for c in (3, 2, 1, 0)]


@pytest.mark.parametrize("is_falling", [False, True])
@pytest.mark.parametrize("order", ["LogStreamName", "LastEventTime"])
def test_pages_of_streams(array: Bench, order: str, is_falling: bool) -> None:
    seen, token = [], None
    for _ in range(4):
        answer = array.describe(orderBy=order, descending=is_falling, limit=1, nextToken=token)
        seen += [stream["logStreamName"] for stream in answer["logStreams"]]
        token = answer.get("nextToken")
    assert token is None
    children = [0, 1, 2, 3] if order == "LogStreamName" else [1, 2, 3, 0]
    expected = [array.name(child=child) for child in children]
    assert seen == (expected[::-1] if is_falling else expected)


def test_streams_by_prefix(array: Bench) -> None:
    array.job("job-b", definition="other")
    array.short(b"x\n", 0, 1, "job-b")
    streams = array.describe(logStreamNamePrefix="other/")["logStreams"]
    assert [stream["logStreamName"] for stream in streams] == [array.name("job-b", prefix="other")]
    wrong = refused(array.describe, orderBy="LastEventTime", logStreamNamePrefix="x")
    assert wrong == (
        "InvalidParameterException",
        "Cannot order by LastEventTime with a logStreamNamePrefix.",
    )
    assert is_left_to_moto(describe_log_streams, array)


def test_a_stream_without_events(bench: Bench) -> None:
    bench.job(size=2)
    bench.short(b"", 10, 50, child=0)
    bench.start(child=1, at=20)
    for stream in bench.describe(orderBy="LastEventTime")["logStreams"]:
        assert not {"firstEventTimestamp", "lastEventTimestamp", "lastIngestionTime"} & set(stream)
    assert bench.get()["events"] == []


def test_each_attempt_has_a_stream(bench: Bench) -> None:
    bench.job()
    bench.short(b"first\n", 0, 10, attempt=1)
    bench.short(b"second\n", 20, 30, attempt=2)
    assert messages(bench.get(bench.name(attempt=1))) == ["first"]
    assert messages(bench.get(bench.name(attempt=2))) == ["second"]
    assert len(bench.describe()["logStreams"]) == 2


# -- groups ---------------------------------------------------------------------------------------


def test_groups(bench: Bench) -> None:
    bench.now_ms = T0 + 7
    bench.job("job-a", log={"logDriver": "awslogs", "options": {"awslogs-group": "/mine"}})
    bench.job("job-b", log={"logDriver": "json-file"})
    bench.job("job-c", log={"logDriver": "awslogs", "options": {"awslogs-stream-prefix": "pre"}})
    bench.job("job-d", log={"logDriver": "awslogs"})
    groups = list_job_log_groups(bench.state, "")
    assert [group["logGroupName"] for group in groups] == [GROUP, "/mine"]
    assert groups[1]["creationTime"] == T0 + 7
    assert groups[1]["arn"] == "arn:aws:logs:us-east-1:123456789012:log-group:/mine:*"
    model = api_models.service_model("logs").operation_model("DescribeLogGroups").output_shape
    assert ParamValidator().validate({"logGroups": groups}, model).generate_report() == ""
    assert [group["logGroupName"] for group in list_job_log_groups(bench.state, "/m")] == ["/mine"]
    assert is_job_log_group(bench.state, "/mine")
    assert is_job_log_group(bench.state, GROUP)
    assert is_job_log_group(bench.state, "arn:aws:logs:us-east-1:123456789012:log-group:/mine:*")
    assert not is_job_log_group(bench.state, "/other")
    for job_id in ("job-a", "job-b", "job-c", "job-d"):
        bench.short(job_id.encode(), 10, 20, job_id)
    assert messages(bench.filter()) == ["job-c", "job-d"]
    assert messages(bench.filter(logGroupName="/mine")) == ["job-a"]
    assert messages(bench.get(bench.name("job-c", prefix="pre"))) == ["job-c"]
    assert refused(bench.get, bench.name("job-b")) == NO_STREAM


def test_the_default_group_is_there_before_any_job(bench: Bench) -> None:
    assert bench.describe() == {"logStreams": []}
    assert bench.filter()["events"] == []
    assert [group["creationTime"] for group in list_job_log_groups(bench.state)] == [T0]


# -- over the engine itself -----------------------------------------------------------------------


@dataclass
class Commands:
    """Children that run one command each."""

    job_id: str
    commands: list[str]
    done: set[int] = field(default_factory=set)

    def task(self, start: Start, slot: int) -> Task:
        return Task(
            job_number=0,
            job_id=self.job_id,
            step=self.job_id,
            child=start.child,
            index_in_step=start.child,
            attempt=start.attempt,
            turn=Turn(range(1)),
            command=lambda number: self.commands[start.child],
            environ={
                b"PATH": os.environb[b"PATH"],
                b"BATCHYARD_TOKEN": b"logs.0.%d.1." % start.child,
            },
            engine_variables=(),
            resources=Resources(1, 1),
            mark=b"logs.0.%d.1." % start.child,
        )


class Nobody:
    def on_tick(self, changed: list[JobRow]) -> None: ...

    def on_failure(self, task: Task, row: AttemptRow) -> None: ...


def test_a_running_child_can_be_read_and_so_can_what_ended_a_moment_ago(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    store = Store.open(folder.database, create=True)
    book = TimedLogBook(folder)
    spawner = Spawner(book)
    runner = ProcessRunner(spawner)
    scheduler = Scheduler([Queue("q", ("here",))], [ComputeEnvironment("here", Resources(2, 2))])
    loop = Loop(scheduler, runner, store, book, Nobody())
    job = Job("job-a", "job", "q", Resources(1, 1), array_size=2)
    row = JobRow(0, "job-a", "job-a", 2, "PENDING", "", (0,) * 7, 0, T0)
    store.commit(new_jobs=[row])
    scheduler.submit(job)
    gate = tmp_path / "gate"
    waiting = f"echo begun; while [ ! -e {gate} ]; do sleep 0.01; done; printf done"
    loop.add(job, Commands("job-a", ["echo quick", waiting]), row)
    state = EndpointState(
        scheduler,
        loop,
        store,
        LogFiles(folder),
        "us-east-1",
        Resources(2, 2),
        lambda *_: None,
        SALT,
    )
    state.put(
        JOB, "job-a", {"jobId": "job-a", "createdAt": T0, "container": {}, "_definition": "train"}
    )
    thread = threading.Thread(target=loop.run)
    before_ms = int(time.time() * 1000)
    thread.start()

    def ask(act: Any, **request: Any) -> list[str]:
        with spawner.lock:
            return messages(act({"logGroupName": GROUP, **request}))

    try:
        deadline = time.monotonic() + 300
        # On a busy machine the quick one may be the later one.
        while sorted(ask(partial(filter_log_events, state), startTime=before_ms)) != [
            "begun",
            "quick",
        ]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        name = f"train/default/{names.task_id(names.AttemptKey(0, 1, 1), SALT)}"
        assert ask(partial(get_log_events, state), logStreamName=name) == ["begun"]
    finally:
        gate.touch()
        thread.join(300)
    assert ask(partial(get_log_events, state), logStreamName=name) == ["begun", "done"]
    events = filter_log_events(state, {"logGroupName": GROUP})["events"]
    [ended] = [row for row in store.attempts(0) if row.child == 1]
    assert events[-1]["timestamp"] == ended.ended_ms
    assert before_ms <= events[0]["timestamp"] <= events[-1]["timestamp"] <= int(time.time() * 1000)
    state.log_files.close()
    runner.close()
    book.close()
    store.close()
