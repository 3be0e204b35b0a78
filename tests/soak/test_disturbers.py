"""The disturbers of a soak kill the process that they name, and no other."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from disturbers import MARK, find_processes, kill_worker
from emulator_endpoint import until


@pytest.mark.parametrize("seed", range(6))
def test_a_fork_that_is_no_other_program_yet_is_not_taken_for_a_command(
    tmp_path: Path, seed: int
) -> None:
    os.mkfifo(tmp_path / "never")
    script = tmp_path / "task.sh"
    script.write_text(f"(read -r line < '{tmp_path}/never') & wait\n")
    mark = f"{tmp_path}"
    environ = {MARK: mark, "AWS_BATCH_JOB_ID": "job", "AWS_BATCH_JOB_ATTEMPT": "2"}
    command = subprocess.Popen(["/bin/sh", script], env=environ, start_new_session=True)
    try:
        until(lambda: len(list(find_processes(mark))), lambda count: count == 2)
        assert kill_worker(mark, random.Random(seed), 1.0) == ("job", 2)
        assert command.wait(60) == -signal.SIGKILL
    finally:
        with suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)
        command.wait()
