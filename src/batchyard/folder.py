"""Where everything lies in `.batchyard/`: the one module that makes these paths. Touches no disk.

.batchyard/
  runs/<run>/run.json           the record: plan and setting; written once
             state.db           the embedded engine's own state
             lock               held by the process that executes the run
             lists/<step>.txt   the commands as they were when the run began, one a line
             logs/short.log     output of children that ended before the first look at them
             logs/<step>/<index>-<attempt>.log    output of all others
             engine.log         what a detached engine had to say
             submitted.jsonl    AWS: what was submitted, and its ids
             skip.json          AWS: commands that an earlier run has finished
             final.json         AWS: what its jobs came to, and whether it was stopped, since AWS forgets them
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HOME_NAME = ".batchyard"


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def record(self) -> Path:
        return self.path / "run.json"

    @property
    def database(self) -> Path:
        return self.path / "state.db"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def journal(self) -> Path:
        return self.path / "submitted.jsonl"

    @property
    def skip(self) -> Path:
        return self.path / "skip.json"

    @property
    def engine_log(self) -> Path:
        return self.path / "engine.log"

    @property
    def lists(self) -> Path:
        return self.path / "lists"

    def list_of(self, step: str) -> Path:
        return self.lists / f"{step}.txt"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def short_log(self) -> Path:
        return self.logs / "short.log"

    def log_of(self, step: str, index: int, attempt: int) -> Path:
        """``index`` is the child's number in its step."""
        return self.logs / step / f"{index}-{attempt}.log"


def runs_in(home: Path) -> Path:
    return home / "runs"
