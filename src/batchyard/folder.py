"""Where everything lies in `.batchyard/`: the one module that makes these paths.

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

import os
import shlex
from collections.abc import Sequence
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
    def home(self) -> Path:
        """The `.batchyard` folder that the run is in."""
        return self.path.parents[1]

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

    def load_list(self, step: str) -> Sequence[str]:
        """Return the step's commands as they were when the run began."""
        # Not splitlines(): a command may hold characters that it would take for line ends.
        return self.list_of(step).read_text(encoding="utf-8").removesuffix("\n").split("\n")

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


def find_home(start: Path, home: str | None = None) -> Path:
    """Return the `.batchyard` folder to use.

    That is ``home`` if there is one, else the nearest from ``start`` upward, else the one that a
    first run would make in ``start``.
    """
    if home:
        return Path(home).absolute()
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / HOME_NAME).is_dir():
            return folder / HOME_NAME
    return start / HOME_NAME


def home_beside(folder: Path, home: str | None = None) -> Path:
    """Return the `.batchyard` folder of a new run: ``home``, or else the one beside its file."""
    return Path(home).absolute() if home else folder.absolute() / HOME_NAME


def home_flag(run: RunFolder, folder: Path) -> str:
    """Return the ` --home DIR` that a command in ``folder`` needs to find the run, often none."""
    return "" if find_home(folder) == run.home else f" --home {shlex.quote(str(run.home))}"


def write_synced(path: Path, text: str) -> None:
    """Write a file that is on the disk, not only in memory, when this returns."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
