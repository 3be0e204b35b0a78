"""Commands as real processes: their codes, their ends, and what they leave."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from batchyard.sampling.samples import SampledUse
from batchyard.worker.command_sampler import CommandSampler
from batchyard.worker.errors import EXIT_MACHINE, WorkerError
from batchyard.worker.memory import count_oom_kills
from batchyard.worker.processes import Abandonment, CommandResult, CommandRunner
from batchyard.worker.stop_requests import StopRequest, StopRequests, kill_time_s


def command_runner(
    folder: Path,
    stop_requests: StopRequests,
    has_checkpoint: bool = True,
    kills: Callable[[], int] = lambda: 0,
) -> CommandRunner:
    return CommandRunner(
        str(folder), {**os.environ, "GREETING": "hello"}, stop_requests, has_checkpoint, kills
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("true", 0),
        ("exit 3", 3),
        ("no-such-program-here", 127),
        ("kill -SEGV $$", 139),
        ("kill -9 $$", 137),
    ],
)
def test_a_command_ends_with_its_code(tmp_path: Path, command: str, code: int) -> None:
    result = command_runner(tmp_path, StopRequests()).run(f"{command} 2> /dev/null", 0)
    assert result.exit_code == code
    assert not result.was_interrupted and not result.was_out_of_memory


def test_it_runs_in_the_folder_with_the_environment_and_an_empty_stdin(tmp_path: Path) -> None:
    result = command_runner(tmp_path, StopRequests()).run(
        'echo "$GREETING $(wc -c)" > out && pwd >> out', 0
    )
    assert result.exit_code == 0
    assert (tmp_path / "out").read_text() == f"hello 0\n{tmp_path}\n"


def test_what_it_leaves_in_its_group_ends_with_it(tmp_path: Path) -> None:
    result = command_runner(tmp_path, StopRequests()).run("sleep 600 & echo $! > pid", 0)
    assert result.exit_code == 0
    assert is_gone(int((tmp_path / "pid").read_text()))


def is_gone(pid: int) -> bool:
    """Killed; its parent, which is not us, may yet have to notice."""
    for _ in range(30_000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def stop_when_begun(stop_requests: StopRequests, file: Path, remaining_s: float) -> None:
    """Add a stop request when the command has begun."""

    def request_stop() -> None:
        while not file.exists():
            time.sleep(0.01)
        stop_requests.add("stopped", remaining_s)

    threading.Thread(target=request_stop, daemon=True).start()


def test_a_ring_asks_the_whole_group_to_end(tmp_path: Path) -> None:
    stop_requests = StopRequests()
    stop_when_begun(stop_requests, tmp_path / "begun", 30)
    child = "trap 'echo too > child; exit' TERM; touch begun; sleep 60 & wait"
    command = f"trap 'wait; echo saved > saved; exit 0' TERM; ({child}) & wait"
    result = command_runner(tmp_path, stop_requests).run(command, 0)
    # It says 0 and has not done its work.
    assert (result.exit_code, result.was_interrupted) == (0, True)
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "child").exists()


def test_who_does_not_end_is_ended_in_time_for_the_upload(tmp_path: Path) -> None:
    stop_requests = StopRequests()
    stop_when_begun(stop_requests, tmp_path / "begun", 10)
    result = command_runner(tmp_path, stop_requests).run("trap '' TERM; touch begun; sleep 600", 0)
    assert (result.exit_code, result.was_interrupted) == (137, True)
    assert not stop_requests.is_too_late()


def test_a_second_request_that_leaves_less_time_counts(tmp_path: Path) -> None:
    stop_requests = StopRequests()
    stop_when_begun(stop_requests, tmp_path / "begun", 120)
    stop_when_begun(stop_requests, tmp_path / "begun", 1)
    result = command_runner(tmp_path, stop_requests).run("trap '' TERM; touch begun; sleep 600", 0)
    assert result.was_interrupted
    assert result.duration_s < 120


def test_a_sigterm_to_everything_may_reach_the_command_first(tmp_path: Path) -> None:
    stop_requests = StopRequests()

    def request_stop() -> None:
        while not (pid := tmp_path / "pid").exists() or not pid.read_text().strip():
            time.sleep(0.01)
        is_gone(int(pid.read_text()))
        stop_requests.add("stopped by SIGTERM", 30)

    threading.Thread(target=request_stop, daemon=True).start()
    result = command_runner(tmp_path, stop_requests).run("echo $$ > pid; kill -TERM $$", 0)
    assert result.was_interrupted


class SamplerAtSigterm(CommandSampler):
    """Gets a stop request at the end of the command, as if a signal had come a moment before."""

    def __init__(self, stop_requests: StopRequests, *, ends_host: bool) -> None:
        super().__init__({})
        self._stop_requests, self._ends_host = stop_requests, ends_host

    def end(self) -> SampledUse | None:
        self._stop_requests.add("stopped", 30, ends_host=self._ends_host)
        return super().end()


@pytest.mark.parametrize("ends_host", [False, True])
def test_a_command_may_exit_0_on_a_sigterm_that_the_worker_has_not_read(
    tmp_path: Path, ends_host: bool
) -> None:
    """Only a signal can have reached the command. A notice for the host is the worker's alone."""
    stop_requests = StopRequests()
    sampler = SamplerAtSigterm(stop_requests, ends_host=ends_host)
    runner = replace(command_runner(tmp_path, stop_requests), sampler=sampler)
    result = runner.run("exit 0", 0)
    assert (result.exit_code, result.was_interrupted) == (0, not ends_host)


def test_a_command_that_ends_itself_by_sigterm_has_failed(tmp_path: Path) -> None:
    result = command_runner(tmp_path, StopRequests()).run("kill -TERM $$", 0)
    assert (result.exit_code, result.was_interrupted) == (143, False)


def test_killed_for_memory_is_told_from_killed(tmp_path: Path) -> None:
    counts = iter([4, 5])
    assert (
        command_runner(tmp_path, StopRequests(), kills=lambda: next(counts))
        .run("kill -9 $$", 0)
        .was_out_of_memory
    )
    counts = iter([4, 5])
    assert (
        not command_runner(tmp_path, StopRequests(), kills=lambda: next(counts))
        .run("exit 1", 0)
        .was_out_of_memory
    )


def test_a_command_that_cannot_be_started_is_a_fault_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="could not start command 4") as caught:
        command_runner(tmp_path / "not there", StopRequests()).run("true", 4)
    assert caught.value.exit_code == EXIT_MACHINE
    with pytest.raises(WorkerError, match="could not start command 4"):
        command_runner(tmp_path, StopRequests()).run("true " + "x" * 3_000_000, 4)


def test_the_time_that_is_left_is_shared_out() -> None:
    assert kill_time_s(StopRequest("", 130), 100, has_upload=True) == pytest.approx(118)
    assert kill_time_s(StopRequest("", 130), 100, has_upload=False) == pytest.approx(127)
    assert kill_time_s(StopRequest("", 90), 100, has_upload=True) == 100


def test_the_first_deadline_counts() -> None:
    now_s = [100.0]
    stop_requests = StopRequests(lambda: now_s[0])
    assert stop_requests.first is None
    assert not stop_requests.is_stopping()
    stop_requests.add("EC2 takes this machine away", 120)
    stop_requests.add("stopped by SIGTERM", 30)
    assert stop_requests.first == StopRequest("stopped by SIGTERM", 130)
    assert not stop_requests.is_too_late()
    now_s[0] = 129.5
    assert stop_requests.is_too_late()


def test_an_end_is_a_value() -> None:
    assert CommandResult(0, 1.0) == CommandResult(
        0, 1.0, was_interrupted=False, was_out_of_memory=False
    )


@pytest.mark.parametrize(
    ("membership", "file"),
    [
        ("0::/", "sys/fs/cgroup/memory.events"),
        ("0::/ecs/abc", "sys/fs/cgroup/ecs/abc/memory.events"),
        ("0::/../outside", "sys/fs/cgroup/memory.events"),
        ("7:memory:/docker/abc", "sys/fs/cgroup/memory/docker/abc/memory.oom_control"),
        ("7:memory:/docker/abc", "sys/fs/cgroup/memory/memory.oom_control"),
        ("3:cpu,memory:/x\n2:pids:/x", "sys/fs/cgroup/memory/x/memory.oom_control"),
    ],
)
def test_kills_for_memory_are_counted_by_the_cgroup(
    tmp_path: Path, membership: str, file: str
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(membership + "\n")
    assert count_oom_kills(tmp_path) == 0
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("low 0\nunder_oom 0\noom 9\noom_kill 3\n")
    assert count_oom_kills(tmp_path) == 3


def test_a_kernel_that_says_nothing_has_killed_nothing(tmp_path: Path) -> None:
    assert count_oom_kills(tmp_path) == 0


def test_what_was_to_end_an_earlier_execution_does_not_end_the_next_one(tmp_path: Path) -> None:
    stop_requests = StopRequests()
    stop_requests.events.put(Abandonment(7))
    assert command_runner(tmp_path, stop_requests).run("sleep 0.05", 7).exit_code == 0


def test_a_stop_that_was_requested_before_the_start_ends_the_command(tmp_path: Path) -> None:
    stop_requests = StopRequests()
    stop_requests.add("reclaimed", 30)
    stop_requests.events.put(Abandonment(7))
    assert command_runner(tmp_path, stop_requests).run("sleep 60", 7).was_interrupted
