"""The spawner alone: real processes, no jobs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchyard.embedded import short_programs
from batchyard.embedded.logbook import LogBook
from batchyard.embedded.spawner import Exit, Output, Process, Spawner
from batchyard.folder import RunFolder

ENVIRON = {b"PATH": os.environb[b"PATH"], b"BATCHYARD_TOKEN": b"test.0.0.1."}


@pytest.fixture
def spawner(tmp_path: Path) -> Iterator[Spawner]:
    logs = LogBook(RunFolder(tmp_path))
    it = Spawner(logs)
    with it.lock:
        yield it
    it.close()
    logs.close()


def spawn(spawner: Spawner, command: str) -> Process:
    output = spawner.open_output(("step", 0, 1), b"test.0.0.1.")
    return spawner.spawn("/bin/sh", ("sh", "-c", command), ENVIRON, output, None)


def exits(spawner: Spawner, seconds: float) -> list[Exit]:
    """What ends within so many seconds, or the first that does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        new_exits = spawner.wait(0.05)
        if new_exits:
            return new_exits
    return []


def test_an_exit_code_and_a_signal(spawner: Spawner) -> None:
    spawn(spawner, "exit 7")
    assert [exit.exit_code for exit in exits(spawner, 10)] == [7]
    spawn(spawner, "kill -SEGV $$")
    assert [exit.exit_code for exit in exits(spawner, 10)] == [128 + signal.SIGSEGV]


def test_what_a_killed_process_has_left_in_another_session_ends_with_its_attempt(
    spawner: Spawner, tmp_path: Path
) -> None:
    """Else the next attempt could run beside it; a worker starts commands in other sessions."""
    note = tmp_path / "pid"
    left = f"setsid sh -c 'echo $$ > {note}.part; mv {note}.part {note}; sleep 600'"
    script = f"{left} & until [ -e {note} ]; do sleep 0.01; done; kill -KILL $$"
    process = spawn(spawner, script)
    assert [exit.exit_code for exit in exits(spawner, 10)] == [128 + signal.SIGKILL]
    spawner.finish(process.output)
    spawner.end_leftovers(process.output.mark)
    stat = Path(f"/proc/{note.read_text().strip()}/stat")
    deadline = time.monotonic() + 30
    while stat.exists() and " Z " not in stat.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_output_of_a_short_program_is_kept_only_if_somebody_needs_it(spawner: Spawner) -> None:
    """A health check that prints without end would fill the memory."""
    answers: list[tuple[int, str]] = []
    for keeps_output in (True, False):
        short_programs.start(
            spawner,
            "/bin/sh",
            ("sh", "-c", "echo text; test -c /dev/stdout"),
            ENVIRON,
            lambda *answer: answers.append(answer),
            keeps_output=keeps_output,
        )
        short_programs.handle_ends(exits(spawner, 10))
    assert answers == [(1, "text\n"), (0, "")]


def test_a_file_that_somebody_still_has_open_does_not_speak_for_the_next_process(
    spawner: Spawner,
) -> None:
    # A process between fork and exec still has its parent's files: here it is a copy that we keep.
    first = spawn(spawner, "exit 0")
    number = first.pidfd
    copy = os.dup(number)
    try:
        assert [exit.process for exit in exits(spawner, 10)] == [first]
        spawner.finish(first.output)
        second = spawn(spawner, "sleep 60")
        assert second.pidfd == number, "the test needs the number to be used again"
        assert exits(spawner, 0.3) == []
    finally:
        os.close(copy)


def test_the_same_for_a_pipe_that_is_watched(spawner: Spawner) -> None:
    first = spawn(spawner, "echo out; sleep 0.2")
    spawner.tick()
    copy = os.dup(first.output.read_end)
    try:
        assert [exit.process for exit in exits(spawner, 10)] == [first]
        assert spawner.finish(first.output) == (None, 4)
        assert exits(spawner, 0.2) == []
        second = spawn(spawner, "sleep 60")
        assert exits(spawner, 0.2) == [] and second.output.length == 0
    finally:
        os.close(copy)


def test_a_child_does_not_inherit_ignored_signals(spawner: Spawner) -> None:
    # Python ignores SIGPIPE; with that inherited, `yes | head` would complain.
    output = spawn(spawner, "yes | head -1").output
    assert [exit.exit_code for exit in exits(spawner, 10)] == [0]
    assert spawner.finish(output)[1] == len(b"y\n")


@pytest.mark.parametrize("size", range(1, 12))
def test_separators_are_found_however_the_output_is_cut(size: int) -> None:
    output = Output(("step", 0, 1), b"mark")
    output.separator = b"<end>"
    text, stored = b"one<end><end>tw<eo<end>th<en", b""
    for start in range(0, len(text), size):
        data = output.remove_separators(text[start : start + size])
        output.length += len(data)
        stored += data
    assert stored + output.held_back == b"onetw<eoth<en"
    assert list(output.boundaries) == [3, 3, 8]
