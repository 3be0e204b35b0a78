"""The thread that samples the attempts of a runner, and its file."""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from batchyard.embedded.sampled_attempts import AttemptSampler, RunningAttempt


class IdleRunner:
    """A runner without attempts."""

    def __init__(self) -> None:
        self.lock = Lock()

    def list_running(self) -> list[RunningAttempt]:
        return []


def test_a_file_that_cannot_be_removed_does_not_keep_a_run_from_its_end(tmp_path: Path) -> None:
    (tmp_path / "folder").touch()
    AttemptSampler(IdleRunner(), tmp_path / "folder" / "running.json").close()
