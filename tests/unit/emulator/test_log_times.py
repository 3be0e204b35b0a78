"""The times of what long children write, and the files they are kept in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchyard.emulator.log_times import TimedLogBook, WriteTimes, times_path
from batchyard.folder import RunFolder


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000

    def __call__(self) -> float:
        return (self.ms + 0.5) / 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


@pytest.fixture
def book(folder: RunFolder, clock: Clock) -> Iterator[TimedLogBook]:
    it = TimedLogBook(folder, clock)
    yield it
    it.close()


def entries(log: Path) -> list[tuple[int, int]]:
    times = WriteTimes(log)
    pairs = [(times.offset(entry), times.time_ms(entry)) for entry in range(times.count)]
    times.close()
    return pairs


def test_each_chunk_has_its_offset_and_its_time(
    book: TimedLogBook, folder: RunFolder, clock: Clock
) -> None:
    fd = book.open_child_log("job", 3, 1)
    for ms, data in ((1_000, b"one\n"), (1_500, b"two\nthree\n"), (2_000, b"four\n")):
        clock.ms = ms
        book.write(fd, data)
    os.close(fd)
    log = folder.log_of("job", 3, 1)
    assert log.read_bytes() == b"one\ntwo\nthree\nfour\n"
    assert entries(log) == [(0, 1_000), (4, 1_500), (14, 2_000)]


def test_a_millisecond_has_one_entry_and_a_clock_set_back_none(
    book: TimedLogBook, folder: RunFolder, clock: Clock
) -> None:
    fd = book.open_child_log("job", 0, 1)
    for ms, data in ((1_000, b"a"), (1_000, b"b"), (900, b"c"), (1_001, b"d")):
        clock.ms = ms
        book.write(fd, data)
    os.close(fd)
    assert entries(folder.log_of("job", 0, 1)) == [(0, 1_000), (3, 1_001)]


def test_short_output_has_no_list_of_times(book: TimedLogBook, folder: RunFolder) -> None:
    assert book.add_short(b"short\n") == 0
    book.flush()
    assert folder.short_log.read_bytes() == b"short\n"
    assert list(folder.logs.iterdir()) == [folder.short_log]


def test_a_descriptor_that_comes_back_stands_for_the_next_log(
    book: TimedLogBook, folder: RunFolder, clock: Clock
) -> None:
    first = book.open_child_log("job", 0, 1)
    book.write(first, b"first\n")
    os.close(first)
    clock.ms = 2_000
    second = book.open_child_log("job", 1, 1)
    assert second == first, "the system gives out the lowest number that is free"
    book.write(second, b"second\n")
    os.close(second)
    assert entries(folder.log_of("job", 0, 1)) == [(0, 1_000)]
    assert entries(folder.log_of("job", 1, 1)) == [(0, 2_000)]


def test_an_attempt_that_goes_on_after_a_crash_appends(folder: RunFolder, clock: Clock) -> None:
    first_book = TimedLogBook(folder, clock)
    fd = first_book.open_child_log("job", 0, 1)
    first_book.write(fd, b"before\n")
    os.close(fd)
    first_book.close()
    with times_path(folder.log_of("job", 0, 1)).open("ab") as file:
        file.write(b"\x07\x00\x00")  # a piece of an entry
    clock.ms = 900  # and the clock was set back
    second_book = TimedLogBook(folder, clock)
    fd = second_book.open_child_log("job", 0, 1)
    second_book.write(fd, b"after\n")
    clock.ms = 1_200
    second_book.write(fd, b"later\n")
    os.close(fd)
    second_book.close()
    assert entries(folder.log_of("job", 0, 1)) == [(0, 1_000), (13, 1_200)]


def test_looking_up_by_offset_and_by_time(
    book: TimedLogBook, folder: RunFolder, clock: Clock
) -> None:
    fd = book.open_child_log("job", 0, 1)
    for ms in range(1_000, 2_000, 10):
        clock.ms = ms
        book.write(fd, b"1234\n")
    os.close(fd)
    times = WriteTimes(folder.log_of("job", 0, 1))
    assert times.count == 100
    assert [times.entry_at(offset) for offset in (0, 4, 5, 499, 10_000)] == [0, 0, 1, 99, 99]
    assert [times.first_since(ms) for ms in (0, 1_000, 1_001, 1_990, 1_991)] == [0, 0, 1, 99, 100]
    times.close()


def test_a_log_without_times(folder: RunFolder, tmp_path: Path) -> None:
    times = WriteTimes(tmp_path / "none.log")
    assert times.count == 0
    assert times.entry_at(7) == -1
    times.close()


def test_the_times_are_no_log_to_those_that_read_logs(
    book: TimedLogBook, folder: RunFolder
) -> None:
    fd = book.open_child_log("job", 0, 1)
    book.write(fd, b"x\n")
    os.close(fd)
    assert [path.name for path in (folder.logs / "job").glob("*.log")] == ["0-1.log"]
    assert times_path(folder.log_of("job", 0, 1)).exists()
