"""embedded/short_runs: programs that end within milliseconds, with compiled code and without."""

from __future__ import annotations

import _ctypes
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchyard.embedded.posix_spawn import NO_FILE, Environ, Program, SharedEnviron
from batchyard.embedded.short_runs import OutputBuffer, Series, ShortRun, find_library

ENVIRON = {b"PATH": os.environb[b"PATH"]}
#: Never, in these tests.
LATER_MS = 10**6

MakeSeries = Callable[..., Series]


@pytest.fixture(params=["library", "python"])
def make_series(request: pytest.FixtureRequest) -> Iterator[MakeSeries]:
    """Makes series of programs. What still runs at the end of the test is killed."""
    if request.param == "library" and find_library() is None:
        pytest.skip("short_runs.c is not compiled: there was no C compiler")
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    made: list[Series] = []

    def make(
        *programs: Program | None, stdout: int = NO_FILE, report_after_ms: int = LATER_MS
    ) -> Series:
        series = Series(
            [(program, stdout) for program in programs],
            null,
            report_after_ms=report_after_ms,
            uses_library=request.param == "library",
        )
        made.append(series)
        return series

    yield make
    for series in made:
        for run in series.runs:
            if run.pid and not run.is_over:
                end(run)
    os.close(null)


def shell(script: str) -> Program:
    return Program("/bin/sh", ("sh", "-c", script), ENVIRON)


def run_soon(make_series: MakeSeries, *scripts: str, stdout: int = NO_FILE) -> Series:
    """Return a series whose programs ended in time. On a busy machine, many may not."""
    for _ in range(200):
        series = make_series(*(shell(script) for script in scripts), stdout=stdout)
        series.run(OutputBuffer())
        if series.count_ended() == series.count_taken():
            return series
    raise AssertionError("no series has ended in time")


def end(run: ShortRun) -> None:
    """Kill a process that still runs, and close its pipe."""
    os.killpg(run.pid, signal.SIGKILL)
    os.waitpid(run.pid, 0)
    run.is_over = 1
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


def outputs(series: Series) -> list[bytes]:
    return [series.output_of(run) for run in series.runs[: series.count_ended()]]


def test_the_library_is_there_if_it_can_be_made() -> None:
    """Else the tests of it would be left out without a word."""
    if shutil.which("cc") is None or os.environ.get("BATCHYARD_PURE"):
        pytest.skip("batchyard was installed without a C compiler")
    assert find_library() is not None


def test_a_library_of_another_version_is_not_used(tmp_path: Path) -> None:
    """Its structures could have other fields."""
    (tmp_path / "text.so").write_text("no library")
    for path in (tmp_path / "missing.so", tmp_path / "text.so", Path(_ctypes.__file__)):
        assert find_library(path) is None


# -- one program ----------------------------------------------------------------------------------


def test_a_process_that_ends_in_time(make_series: MakeSeries) -> None:
    files = open_files()
    series = run_soon(make_series, "echo out; echo error >&2; exit 7")
    run = series.runs[0]
    assert os.waitstatus_to_exitcode(run.status) == 7
    assert outputs(series) == [b"out\nerror\n"]
    assert 0 < run.started_us <= run.ended_us
    assert run.max_rss_kib > 0 and run.user_us + run.system_us > 0
    assert (run.read_end, run.write_end) == (NO_FILE, NO_FILE)
    with pytest.raises(ChildProcessError):  # it is reaped
        os.waitpid(run.pid, os.WNOHANG)
    assert open_files() <= files


def test_a_signal_is_the_end_of_a_process(make_series: MakeSeries) -> None:
    run = run_soon(make_series, "kill -SEGV $$").runs[0]
    assert os.waitstatus_to_exitcode(run.status) == -signal.SIGSEGV


def test_variables_of_its_own_and_shared_ones(make_series: MakeSeries) -> None:
    environ = Environ({b"OWN": b"1", b"EMPTY": b""}, SharedEnviron({b"A": b"x=y", b"B": b" "}))
    for _ in range(200):
        series = make_series(Program("/usr/bin/env", ("env",), environ))
        series.run(OutputBuffer())
        if series.count_ended():
            break
    assert sorted(outputs(series)[0].splitlines()) == [b"A=x=y", b"B= ", b"EMPTY=", b"OWN=1"]


def test_a_full_pipe_is_read_to_its_end(make_series: MakeSeries) -> None:
    assert outputs(run_soon(make_series, "head -c 65536 /dev/zero")) == [bytes(65536)]


def test_output_that_is_larger_than_the_buffer_stays_in_the_pipe(make_series: MakeSeries) -> None:
    """The caller waits for the process, and reads the pipe to its end."""
    series = make_series(shell("head -c 1000 /dev/zero"), shell("echo never"))
    series.run(OutputBuffer(size=999))
    run = series.runs[0]
    assert (series.count_ended(), series.count_taken(), run.is_over) == (0, 1, 0)
    os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT)
    assert os.read(run.read_end, 2000) == bytes(1000)


def test_a_process_that_goes_on_keeps_its_pipe(make_series: MakeSeries) -> None:
    series = make_series(shell("echo out; exec sleep 600"), shell("echo never"))
    series.run(OutputBuffer())
    run = series.runs[0]
    assert (series.count_ended(), series.count_taken()) == (0, 1)
    assert not run.is_over and not run.error and is_alive(run.pid)
    deadline = time.monotonic() + 60
    while True:
        try:
            assert os.read(run.read_end, 100) == b"out\n"
            break
        except BlockingIOError:  # reads never wait
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_output_goes_to_a_file_that_is_open_already(
    make_series: MakeSeries, tmp_path: Path
) -> None:
    with open(tmp_path / "output", "wb") as file:
        series = run_soon(make_series, "echo out", stdout=file.fileno())
    run = series.runs[0]
    assert outputs(series) == [b""] and (run.read_end, run.write_end) == (NO_FILE, NO_FILE)
    assert (tmp_path / "output").read_bytes().endswith(b"out\n")


def test_what_a_process_leaves_in_its_group_is_killed(make_series: MakeSeries) -> None:
    pid = int(outputs(run_soon(make_series, "sleep 600 & echo $!"))[0])
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_nobody_waits_for_a_process_that_has_left_the_group(
    make_series: MakeSeries, tmp_path: Path
) -> None:
    """It has the pipe open, so that the pipe has no end."""
    note = tmp_path / "pid"
    # Its pid is known before the shell ends, and the shell does not wait for the new session.
    script = f"setsid sh -c 'echo $$ > {note}; exec sleep 600' & while ! [ -s {note} ]; do :; done"
    pids = []
    for _ in range(200):
        note.unlink(missing_ok=True)
        series = make_series(shell(script + "; echo out"))
        series.run(OutputBuffer())
        if not series.count_ended():
            os.waitid(os.P_PID, series.runs[0].pid, os.WEXITED | os.WNOWAIT)
        pids.append(int(note.read_text()))
        if series.count_ended():
            break
    try:
        assert outputs(series) == [b"out\n"]
        assert is_alive(pids[-1])
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_a_program_that_cannot_be_started(make_series: MakeSeries, tmp_path: Path) -> None:
    files = open_files()
    missing = Program(str(tmp_path / "missing"), ("missing",), ENVIRON)
    for program, message in ((missing, "No such file or directory"), (None, "Invalid argument")):
        series = make_series(program, shell("echo never"))
        series.run(OutputBuffer())
        assert os.strerror(series.runs[0].error) == message
        assert (series.count_ended(), series.count_taken()) == (0, 1)
    assert open_files() <= files


def test_another_program_in_the_place_of_one_that_cannot_be_started(
    make_series: MakeSeries, tmp_path: Path
) -> None:
    """Also if the series was withdrawn meanwhile: this program was not."""
    for _ in range(200):
        series = make_series(Program(str(tmp_path), ("folder",), ENVIRON), shell("echo never"))
        series.run(OutputBuffer())
        assert series.runs[0].error
        assert series.withdraw() == 1
        series.replace(0, shell("echo out"))
        series.run(OutputBuffer())
        assert series.count_taken() == 1 and not series.runs[0].error
        if series.count_ended():
            break
    assert outputs(series) == [b"out\n"]


def test_too_many_open_files(make_series: MakeSeries) -> None:
    series = make_series(shell(":"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free_number = os.dup(0)
    os.close(free_number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free_number + 1, limits[1]))
    try:
        series.run(OutputBuffer())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert os.strerror(series.runs[0].error) == "Too many open files"


# -- several programs -----------------------------------------------------------------------------


def test_each_program_has_its_own_output(make_series: MakeSeries) -> None:
    series = run_soon(make_series, "echo first program", ":", "echo third")
    assert outputs(series) == [b"first program\n", b"", b"third\n"]
    assert series.count_ended() == 3
    ends = [run.ended_us for run in series.runs]
    assert ends == sorted(ends) and series.runs[1].started_us >= ends[0]


def test_nothing_follows_a_failure(make_series: MakeSeries) -> None:
    series = run_soon(make_series, ":", "exit 3", "echo never")
    assert (series.count_ended(), series.count_taken(), series.runs[2].pid) == (2, 2, 0)


def test_a_full_buffer_must_be_read_before_the_series_goes_on(make_series: MakeSeries) -> None:
    script = "head -c 65536 /dev/zero"
    for _ in range(200):
        series, buffer = make_series(*[shell(script)] * 6), OutputBuffer()
        series.run(buffer)
        if series.count_ended() < series.count_taken():
            continue
        first = outputs(series)
        series.forget_output()
        series.run(buffer)
        if series.count_ended() == 6:
            break
    assert first == [bytes(65536)] * 4
    assert outputs(series)[4:] == [bytes(65536)] * 2


def test_ends_are_reported_after_some_time(make_series: MakeSeries) -> None:
    """Here at once: ``run`` returns after each program but the first of a call."""
    for _ in range(200):
        series = make_series(*[shell(":")] * 4, report_after_ms=0)
        counts = []
        while series.count_ended() == series.count_taken() < 4:
            series.run(OutputBuffer())
            counts.append(series.count_ended())
        if counts[-1] == 4:
            break
    assert counts == [2, 4]


def test_what_is_withdrawn_does_not_start(make_series: MakeSeries) -> None:
    series = make_series(*[shell(":")] * 3)
    assert series.take(0)
    assert (series.withdraw(), series.is_withdrawn) == (1, True)
    assert not series.take(1)
    series.run(OutputBuffer())
    assert series.count_taken() == 1 and series.runs[0].pid and not series.runs[1].pid


def test_a_withdrawal_while_the_series_runs_counts_what_has_started(
    make_series: MakeSeries,
) -> None:
    """Each program either runs or is withdrawn, never both, at whatever moment that comes."""
    for round in range(20):
        series = make_series(*[shell(":")] * 16)
        thread = threading.Thread(target=series.run, args=(OutputBuffer(),))
        thread.start()
        time.sleep(round * 0.0005)
        taken = series.withdraw()
        thread.join()
        assert series.count_taken() == taken
        assert [bool(run.pid) for run in series.runs] == [n < taken for n in range(16)]
