"""What the page knows of a run: pure values, without a server or a browser."""

from __future__ import annotations

import json
import os
import resource
import struct
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from large_runs import make_large_run
from small_runs import begin_run, execute
from ui_client import serve

from batchyard import operations
from batchyard import plan as planning
from batchyard.batch.jobs import JobState, Resources
from batchyard.engines.base import AttemptDetail, LogChunk, RunRecord, RunRequest, RunState
from batchyard.engines.log_spool import LogSpool
from batchyard.engines.memory import HOLD, MemoryEngine, Result
from batchyard.errors import BatchyardError, OperationalError
from batchyard.folder import RunFolder
from batchyard.pipeline import Pipeline, Step
from batchyard.plan import PlannedJob
from batchyard.progress import Work, count_work, measure_pace
from batchyard.status import StepStatus
from batchyard.ui import logs
from batchyard.ui.charts import Charts
from batchyard.ui.child_table import ChildState, ChildTable
from batchyard.ui.run_list import RUNS, RunList
from batchyard.ui.run_model import RunModel
from batchyard.ui.run_reader import RUN, RunReader, children_topic
from batchyard.ui.streams import HEARTBEAT_S, MIN_PAUSE_S, Broadcast


def attempt(index: int, number: int = 1, **fields: object) -> AttemptDetail:
    values: dict[str, object] = {
        **{"state": JobState.SUCCEEDED, "exit_code": 0, "reason": ""},
        **{"status_reason": "Essential container in task exited"},
        **{"started_ms": 1000, "ended_ms": 3500, "max_rss_kib": 2048},
        **fields,
    }
    return AttemptDetail("j", "work", index, number, user_s=1.0, system_s=0.0, **values)  # type: ignore[arg-type]


def table(size: int = 4, indices: tuple[int, ...] | None = None) -> ChildTable:
    return ChildTable(PlannedJob("work", size, True, Resources(1, 512), indices=indices))


def test_a_child_is_twelve_bytes() -> None:
    children = table()
    assert children.record(attempt(2, 1, state=None, exit_code=7)) == 2
    assert children.state_of(2) is ChildState.RETRYING
    assert children.record(attempt(2, 2)) == 2
    assert struct.unpack("<BBhfI", children.pack([2])) == (2, 2, 0, 2.5, 2048)
    assert len(children.pack()) == 4 * 12 and children.attempts == 2
    # The same attempts again are no news.
    assert children.record(attempt(2, 2)) is None and children.record(attempt(2, 1)) is None
    assert children.record(attempt(9)) is None


def test_values_that_do_not_fit_are_bounded() -> None:
    children = table()
    huge = attempt(0, 1000, exit_code=2**31, max_rss_kib=2**40)
    children.record(huge)
    assert struct.unpack("<BBhfI", children.pack([0])) == (2, 255, -1, 2.5, 2**32 - 1)


def test_running_children_and_those_that_never_start() -> None:
    children = table()
    children.record(attempt(0))
    children.record(attempt(1, state=None))
    assert children.set_running([0, 1, 3]) == {1, 3}  # what has ended does not run
    assert children.state_of(3) is ChildState.RUNNING
    assert children.set_running([]) == {1, 3}
    assert [children.state_of(p) for p in (1, 3)] == [ChildState.RETRYING, ChildState.WAITING]
    assert children.end_all() == {1, 2, 3}
    assert children.state_of(2) is ChildState.NEVER_STARTED and children.end_all() == set()


def test_a_retry_has_some_children() -> None:
    children = table(2, (5, 9))
    assert children.record(attempt(9)) == 1 and children.record(attempt(0)) is None
    assert children.position_of(5) == 0 and children.position_of(1) is None


def test_failures_are_counted_by_reason(tmp_path: Path) -> None:
    record = begin_run(tmp_path / ".batchyard", Step("work", command="x", array=5))
    model = RunModel(record)
    model.add_attempts(attempt(i, state=JobState.FAILED, exit_code=7 - i // 3) for i in range(5))
    engine = record.open()
    groups = model.document(engine.overview(), 0, (), ())["failures"]
    engine.close()
    assert [(g["children"], g["exit_code"], g["index"]) for g in groups] == [(3, 7, 0), (2, 6, 3)]


def test_a_tab_gets_everything_once_and_then_what_is_new(tmp_path: Path) -> None:
    record = make_large_run(tmp_path / ".batchyard", 1000)
    reader = RunReader(record)
    events = reader.follow([RUN, children_topic("work")], heartbeat_s=10)
    data = b""
    while b"event: children" not in data:
        data += next(events)
    assert data.count(b"event: run") == 1 and data.count(b"event: children") == 1
    assert len(data) < 1000 * 12 * 4 / 3 + 5000  # in base64
    assert reader.tabs == 1
    second = reader.follow([RUN])
    assert next(second).count(b"event: run") == 1
    for stream in (events, second):
        stream.close()  # type: ignore[attr-defined]
    assert reader.tabs == 0


def read_events(data: bytes) -> list[tuple[str, Any]]:
    """Return the names and values of server-sent events."""
    lines = [line.partition(b": ")[2] for line in data.split(b"\n") if line]
    return [
        (name.decode(), json.loads(value)) for name, value in zip(*[iter(lines)] * 2, strict=True)
    ]


class WatchedReader(RunReader):
    """Records what a tab gets that comes after each event."""

    def __init__(self, record: RunRecord) -> None:
        super().__init__(record)
        self.snapshots: list[bytes] = []

    def publish(self, events: dict[str, bytes]) -> None:
        super().publish(events)
        self.snapshots.append(b"".join(self.snapshot([RUN, children_topic("collect")])))


def test_the_numbers_of_a_large_run_are_sent_before_its_children(tmp_path: Path) -> None:
    reader = WatchedReader(make_large_run(tmp_path / ".batchyard", 3000))
    assert reader.read_once() is None
    numbers, whole = map(read_events, reader.snapshots)
    # A tab that comes meanwhile gets no children that seem to wait.
    assert [name for name, _ in numbers] == ["run"]
    assert not numbers[0][1]["is_whole"] and numbers[0][1]["steps"][1]["counts"][5] == 2965
    assert [name for name, _ in whole] == ["run", "children"]
    assert whole[0][1]["is_whole"] and whole[0][1]["failures"]
    # The children of a step without any attempt are sent, too, to a tab that has the numbers.
    steps = ("prepare", "work", "collect")
    assert set(reader._changes[-1].events) == {RUN, *map(children_topic, steps)}


class Ticker(Broadcast):
    """A state that changes with each read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[float] = []

    def read_once(self) -> float:
        self.reads.append(time.monotonic())
        self.publish({"tick": b"tick"})
        return 0.0

    def snapshot(self, topics: Sequence[str]) -> list[bytes]:
        return [b"tick"]


def test_one_reader_for_all_tabs_at_most_two_pushes_a_second() -> None:
    ticker = Ticker()
    tabs = [ticker.follow(["tick"]) for _ in range(20)]
    for _ in range(3):
        assert [next(tab) for tab in tabs] == [b"tick"] * 20
    pauses = [later - earlier for earlier, later in pairwise(ticker.reads)]
    assert len(ticker.reads) <= 4 and min(pauses) >= MIN_PAUSE_S
    for tab in tabs:
        tab.close()  # type: ignore[attr-defined]
    # A closed tab costs nothing: the thread that reads ends.
    while ticker._thread is not None:
        time.sleep(0.05)
    read_count = len(ticker.reads)
    time.sleep(2 * MIN_PAUSE_S)
    assert len(ticker.reads) == read_count and ticker.tabs == 0


class FailingTicker(Ticker):
    """A state that cannot be read."""

    def read_once(self) -> float:
        raise OSError(24, "Too many open files")

    def describe_error(self, error: BatchyardError) -> None:
        self.publish({"tick": error.message.encode()})


def test_an_error_of_the_system_does_not_end_the_reader() -> None:
    ticker = FailingTicker()
    assert ticker._read_and_time(0.0) == HEARTBEAT_S
    assert ticker._changes[-1].events == {"tick": b"could not read the state: Too many open files"}


def test_search_finds_what_crosses_the_border_of_pieces() -> None:
    border = 1 << 20
    data = b"x" * (border - 3) + b"NEEDLE" + b"x" * border + b"needle"
    spool = LogSpool(lambda step, index: [LogChunk("a", 0, 1, data)] if not chunks else [])
    chunks: list[int] = []
    assert spool.sizes("a", 0) == {1: len(data)}
    chunks.append(1)
    answer = logs.search(spool, "a", 0, 1, "Needle", 0, len(data))  # type: ignore[arg-type]
    assert answer == {"places": [border - 3, len(data) - 6], "next": None}
    answer = logs.search(spool, "a", 0, 1, "needle", border, len(data))  # type: ignore[arg-type]
    assert answer["places"] == [len(data) - 6]
    assert spool.sizes("a", 0) == {1: len(data)} and spool.read_part("a", 0, 2, 0, 9) == b""


def test_output_of_many_children_needs_one_open_file() -> None:
    """The output of 200 children, two attempts each, which comes in turn and in three parts."""
    rounds = range(3)
    turn = [0]

    def read_new(step: str, index: int) -> list[LogChunk]:
        return [LogChunk(step, index, number, text_of(index, number, turn[0])) for number in (1, 2)]

    def text_of(index: int, number: int, part: int) -> bytes:
        return f"child {index}, attempt {number}, part {part}\n".encode() * (1 + index % 3)

    spool = LogSpool(read_new)
    before = len(os.listdir("/proc/self/fd"))
    for turn[0] in rounds:
        sizes = [spool.sizes("a", index) for index in range(200)]
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    for index in range(200):
        for number in (1, 2):
            whole = b"".join(text_of(index, number, part) for part in rounds)
            assert sizes[index][number] == len(whole)
            assert spool.read_part("a", index, number, 0, 10_000) == whole
            # A part that begins and ends inside of what came with different reads.
            assert spool.read_part("a", index, number, 20, len(whole) - 30) == whole[20:-10]
    assert spool.read_part("a", 0, 1, 10_000, 10) == b""


def test_a_full_disk_does_not_mix_the_output_of_children() -> None:
    size = 200_000
    spool = LogSpool(lambda step, index: [LogChunk(step, index, 1, b"%d" % index * size)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            spool.sizes("a", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert spool.sizes("a", 2) == {1: size}
    assert spool.read_part("a", 2, 1, 0, size) == b"2" * size


def test_charts_from_before_the_end_are_not_shown_after_it(tmp_path: Path) -> None:
    record = begin_run(tmp_path / ".batchyard", Step("work", command="true"))
    charts = Charts()
    before = charts.draw(record, RunState.RUNNING)
    execute(record)
    after = charts.draw(record, RunState.SUCCEEDED)
    assert b"No attempt has ended yet" in before and b"No attempt" not in after
    assert charts.draw(record, RunState.SUCCEEDED) is after


def test_a_download_has_a_length_so_that_a_broken_one_is_noticed(tmp_path: Path) -> None:
    record = begin_run(tmp_path / ".batchyard", Step("work", command="yes | head -c 3000000"))
    execute(record)
    child = {"run": record.run_id, "step": "work", "index": 0, "attempt": 1}
    with serve(tmp_path / ".batchyard") as page:
        reply = page.get("/api/log-file", **child)
    assert int(reply.headers["content-length"]) == len(reply.body) == 3_000_000


def test_a_log_that_cannot_be_read_is_answered_with_a_sentence(tmp_path: Path) -> None:
    record = begin_run(tmp_path / ".batchyard", Step("work", command="echo 1"))
    execute(record)
    record.folder.logs.rename(tmp_path / "elsewhere")
    record.folder.logs.write_text("no folder")
    with serve(tmp_path / ".batchyard") as page:
        reply = page.get("/api/log", run=record.run_id, step="work", index=0)
    assert reply.status == 503 and "Not a directory" in reply.text


def test_the_list_of_a_run_is_read_once_for_all_its_children(tmp_path: Path) -> None:
    record = make_large_run(tmp_path / ".batchyard", 10)
    with serve(tmp_path / ".batchyard") as page:
        for index in range(2):
            child = page.get("/api/child", run=record.run_id, step="work", index=index).json()
            assert child["commands"] == [{"number": index, "text": f"simulate --seed {index}"}]
            record.folder.list_of("work").unlink(missing_ok=True)


class SpoolingRun:
    """A run whose output is fetched once, as from a service: `sizes` fetches, `read_part` reads."""

    data = b"0123456789abcdef" * (1 << 17)

    def __init__(self) -> None:
        chunks = [LogChunk("work", 0, 1, self.data)]
        self.log_reader = LogSpool(lambda step, index: [chunks.pop()] if chunks else [])
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        del self.log_reader


class SpoolingEngine:
    def __init__(self) -> None:
        self.runs: list[SpoolingRun] = []

    def open(self, record: RunRecord) -> SpoolingRun:
        self.runs.append(SpoolingRun())
        return self.runs[-1]


def test_a_download_goes_on_while_logs_of_other_runs_are_opened(tmp_path: Path) -> None:
    engine = SpoolingEngine()
    template = begin_run(tmp_path / ".batchyard", Step("work", command="true"))
    records = [
        replace(template, folder=RunFolder(tmp_path / f"run-{number}"), engine=engine)  # type: ignore[arg-type]
        for number in range(7)
    ]
    open_logs = logs.OpenLogs()
    size = len(SpoolingRun.data)
    parts = logs.read_whole(open_logs, records[0], "work", 0, 1, size)
    received = next(parts)
    assert len(received) < size
    for record in records[1:]:
        with open_logs.reader(record) as reader:
            assert reader.sizes("work", 0) == {1: size}
    assert received + b"".join(parts) == SpoolingRun.data
    # Only a few stay open.
    assert [run.is_closed for run in engine.runs] == [False, *[True] * 3, *[False] * 3]
    # Between two requests of a download, its run was closed.
    assert b"".join(logs.read_whole(open_logs, records[1], "work", 0, 1, size)) == SpoolingRun.data


def test_attempts_know_their_slot(tmp_path: Path) -> None:
    record = begin_run(tmp_path / ".batchyard", Step("work", command="sleep 0.2", array=4))
    execute(record)
    run = record.open()
    attempts = list(run.attempts(run.job_ids))
    run.close()
    assert [entry.host for entry in attempts][:2] == ["0", "1"]
    assert {entry.host for entry in attempts} == {"0", "1"}


def test_the_pace_of_a_step() -> None:
    step = StepStatus("a", JobState.RUNNING, 100, 20, 5, 4, 71, 25, "", 10_000, None)
    work = count_work(step)
    assert work == Work(25, 100, 5, False)
    pace = measure_pace(step, work, 20_000)
    assert pace is not None and (pace.per_s, pace.left_s) == (2.5, 30.0)


def test_a_list_of_runs_with_one_that_cannot_be_read(tmp_path: Path) -> None:
    home = tmp_path / ".batchyard"
    with serve(home) as page:
        with page.events("/api/runs") as events:
            assert next(events) == ("runs", {"order": [], "rows": {}, "trouble": ""})
        good = make_large_run(home, 10)
        broken = home / "runs/broken-20250101-abcdef"
        broken.mkdir()
        (broken / "run.json").write_text("{")
        with page.events("/api/runs") as events:
            rows: dict[str, Any] = {}
            while set(rows) != {good.run_id, broken.name}:
                rows |= next(events)[1]["rows"]
        assert rows[broken.name]["state"] == "UNREADABLE"
        assert "run.json" in rows[broken.name]["trouble"]
        assert (rows[good.run_id]["state"], rows[good.run_id]["children"]) == ("SUCCEEDED", 12)
        reply = page.get("/api/run", run=broken.name)
        assert reply.status == 503 and "cannot be read" in reply.text


def test_what_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    """A record that was broken for a moment, and a bucket that could not be listed."""
    home = tmp_path / ".batchyard"
    record_file = begin_run(home, Step("work", command="true")).folder.record
    text = record_file.read_text()
    run, remote = record_file.parent.name, "far-20250101-abcdef"
    answers: list[list[str]] = []
    now_s = [0.0]

    def list_remote() -> list[str]:
        if not answers:
            raise OperationalError("the bucket does not answer")
        return answers[-1]

    def read_states(at_s: float) -> dict[str, str]:
        now_s[0] = at_s
        run_list.read_once()
        rows = json.loads(run_list.snapshot([RUNS])[0].partition(b"data: ")[2])["rows"]
        return {name: row["state"] for name, row in rows.items()}

    def read_trouble() -> str:
        return str(json.loads(run_list.snapshot([RUNS])[0].partition(b"data: ")[2])["trouble"])

    run_list = RunList(home, list_remote, lambda: now_s[0])
    record_file.write_text("{")
    # The runs of this machine are there before the bucket is asked.
    assert read_states(0) == {run: "UNREADABLE"} and read_trouble() == ""
    assert read_states(1) == {run: "UNREADABLE"}
    assert read_trouble() == "the bucket does not answer"
    record_file.write_text(text)
    assert read_states(2) == {run: "UNREADABLE"}
    assert read_states(12)[run] != "UNREADABLE"
    for at_s, run_ids in ((62, [remote]), (123, [])):
        answers.append(run_ids)
        assert set(read_states(at_s)) == {run, *run_ids} and read_trouble() == ""


def test_a_run_of_any_engine(tmp_path: Path) -> None:
    """The engine in memory holds a child, so that it can be seen running, and then ends it."""
    engine = MemoryEngine({"a:1": HOLD})
    pipeline = Pipeline("any", (Step("a", command="x", array=3),))
    request = RunRequest(planning.make(pipeline), pipeline, tmp_path)
    record, _ = operations.begin(engine, request)
    operations.start(record)
    reader = RunReader(record)
    assert reader.read_once() is not None
    states = [reader._model.tables["a"].state_of(position) for position in range(3)]
    assert states == [ChildState.SUCCEEDED, ChildState.RUNNING, ChildState.SUCCEEDED]
    engine.release(record.run_id, "a", 1, Result(exit_code=9, output=b"bad"))
    assert reader.read_once() is None
    document = json.loads(reader.snapshot([RUN])[0].partition(b"data: ")[2])
    assert document["state"] == "FAILED" and document["failures"][0]["reason"] == "exit code 9"
