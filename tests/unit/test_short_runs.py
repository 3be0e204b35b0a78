"""embedded/short_runs: programs that end within milliseconds, with compiled code and without."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchyard.embedded.posix_spawn import NO_FILE, Program
from batchyard.embedded.short_runs import ShortRun, ShortRunner, find_library

ENVIRON = {b"PATH": os.environb[b"PATH"]}


@pytest.fixture(params=["library", "python"])
def runner(request: pytest.FixtureRequest) -> Iterator[ShortRunner]:
    if request.param == "library" and find_library() is None:
        pytest.skip("short_run.c is not compiled: there was no C compiler")
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    yield ShortRunner(null, uses_library=request.param == "library")
    os.close(null)


def shell(script: str) -> Program:
    return Program("/bin/sh", ("sh", "-c", script), ENVIRON)


def run_until_over(runner: ShortRunner, script: str, stdout: int = NO_FILE) -> ShortRun:
    """Return a run that ended in time. On a busy machine, no single one can be relied on."""
    for _ in range(200):
        run = runner.run(shell(script), stdout)
        if run.is_over:
            return run
        end(run)
    raise AssertionError("no process has ended in time")


def end(run: ShortRun) -> None:
    """Kill a process that still runs, and close its pipe."""
    os.killpg(run.pid, signal.SIGKILL)
    os.waitpid(run.pid, 0)
    for number in (run.read_end, run.write_end):
        if number != NO_FILE:
            os.close(number)


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_the_library_is_there_if_it_can_be_made() -> None:
    """Else the tests of it would be left out without a word."""
    if shutil.which("cc") is None or os.environ.get("BATCHYARD_PURE"):
        pytest.skip("batchyard was installed without a C compiler")
    assert find_library() is not None


def test_a_process_that_ends_in_time(runner: ShortRunner) -> None:
    files = open_files()
    run = run_until_over(runner, "echo out; echo error >&2; exit 7")
    assert os.waitstatus_to_exitcode(run.status) == 7
    assert runner.output == b"out\nerror\n"
    assert run.lasted_us > 0 and run.max_rss_kib > 0 and run.user_us + run.system_us > 0
    assert (run.read_end, run.write_end) == (NO_FILE, NO_FILE)
    with pytest.raises(ChildProcessError):  # it is reaped
        os.waitpid(run.pid, os.WNOHANG)
    assert open_files() <= files


def test_a_signal_is_the_end_of_a_process(runner: ShortRunner) -> None:
    run = run_until_over(runner, "kill -SEGV $$")
    assert os.waitstatus_to_exitcode(run.status) == -signal.SIGSEGV


def test_the_output_of_one_program_is_not_that_of_the_next(runner: ShortRunner) -> None:
    run_until_over(runner, "echo first program")
    run_until_over(runner, "echo second")
    assert runner.output == b"second\n"
    run_until_over(runner, ":")
    assert runner.output == b""


def test_a_full_pipe_is_read_to_its_end(runner: ShortRunner) -> None:
    run_until_over(runner, "head -c 65536 /dev/zero")
    assert runner.output == bytes(65536)


def test_a_process_that_goes_on_keeps_its_pipe(runner: ShortRunner) -> None:
    run = runner.run(shell("echo out; exec sleep 600"), NO_FILE)
    assert not run.is_over and runner.output == b""
    try:
        assert is_alive(run.pid)
        deadline = time.monotonic() + 60
        while True:
            try:
                assert os.read(run.read_end, 100) == b"out\n"
                break
            except BlockingIOError:  # reads never wait
                assert time.monotonic() < deadline
                time.sleep(0.01)
    finally:
        end(run)


def test_output_goes_to_a_file_that_is_open_already(runner: ShortRunner, tmp_path: Path) -> None:
    with open(tmp_path / "output", "wb") as file:
        run = run_until_over(runner, "echo out", file.fileno())
    assert runner.output == b"" and (run.read_end, run.write_end) == (NO_FILE, NO_FILE)
    assert (tmp_path / "output").read_bytes().endswith(b"out\n")


def test_what_a_process_leaves_in_its_group_is_killed(runner: ShortRunner) -> None:
    run_until_over(runner, "sleep 600 & echo $!")
    pid = int(runner.output)
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nobody_waits_for_a_process_that_has_left_the_group(
    runner: ShortRunner, tmp_path: Path
) -> None:
    """It has the pipe open, so that the pipe has no end."""
    note = tmp_path / "pid"
    # Its pid is known before the shell ends, and the shell does not wait for the new session.
    script = f"setsid sh -c 'echo $$ > {note}; exec sleep 600' & while ! [ -s {note} ]; do :; done"
    pids = []
    for _ in range(200):
        note.unlink(missing_ok=True)
        run = runner.run(shell(script + "; echo out"), NO_FILE)
        if not run.is_over:
            os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT)
            end(run)
        pids.append(int(note.read_text()))
        if run.is_over:
            break
    try:
        assert run.is_over and runner.output == b"out\n"
        assert is_alive(pids[-1])
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_a_program_that_cannot_be_started(runner: ShortRunner, tmp_path: Path) -> None:
    files = open_files()
    missing = str(tmp_path / "missing")
    with pytest.raises(FileNotFoundError) as error:
        runner.run(Program(missing, ("missing",), ENVIRON), NO_FILE)
    assert error.value.filename == missing
    assert open_files() <= files


def test_too_many_open_files(runner: ShortRunner) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free_number = os.dup(0)
    os.close(free_number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free_number + 1, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            runner.run(shell(":"), NO_FILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
