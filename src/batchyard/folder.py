"""Where everything lies in `.batchyard/`: the one module that makes these paths.

.batchyard/
  environments.yaml             AWS environments that the user has described
  emulator/                     state of `batchyard emulate`
  images.json                   images that were pushed, by environment
  hashes.json                   SHA-256 of input files that did not change since
  runs/<run>/run.json           the record: plan and settings; written once
             state.db           the local engine's own state
             lock               held by the process that executes the run
             lists/<step>.txt   the commands as they were when the run began, one a line
             lists/<step>.lengths    expected lengths of the commands, where they are known
             logs/short.log     output of children that ended before the first look at them
             logs/<step>/<index>-<attempt>.log    output of all other children
             running.json       what the attempts that run now have used so far
             engine.log         output of the process of a detached run
             submitted.jsonl    AWS: which jobs were submitted, with their ids
             jobs.json, skip.json, stopped.json, final.json    AWS: as in S3, see s3_layout
             code.zip           AWS: the code that a benchmark sends along
  runs/.new-<run>, runs/.old-<run>    a run that is being written or deleted
"""

from __future__ import annotations

import os
import shlex
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

from batchyard.line_files import MAX_BYTES_IN_MEMORY, LineFile
from batchyard.quick_dataclasses import dataclass

HOME_NAME = ".batchyard"
#: Prefixes of the folders of runs that are being written, or deleted.
DRAFT_PREFIX, DELETED_PREFIX = ".new-", ".old-"


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
    def benchmark_code(self) -> Path:
        return self.path / "code.zip"

    @property
    def deleted(self) -> Path:
        """Where the folder is moved to before it is deleted."""
        return self.path.with_name(f"{DELETED_PREFIX}{self.run_id}")

    @property
    def running_use(self) -> Path:
        return self.path / "running.json"

    @property
    def engine_log(self) -> Path:
        return self.path / "engine.log"

    @property
    def lists(self) -> Path:
        return self.path / "lists"

    def list_of(self, step: str) -> Path:
        return self.lists / f"{step}.txt"

    def load_list(self, step: str) -> Sequence[str]:
        """Return the step's commands as they were when the run began. Raises OSError."""
        with self.list_of(step).open("rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_BYTES_IN_MEMORY:
                return LineFile(file)
            # Not splitlines(): a command may hold characters that it would take for line ends.
            return file.read().decode("utf-8").removesuffix("\n").split("\n")

    def lengths_of(self, step: str) -> Path:
        return self.lists / f"{step}.lengths"

    def load_lengths(self, step: str) -> Sequence[float] | None:
        """Return the expected lengths of the step's commands.

        None if they are not here: another machine began the run.
        """
        try:
            with self.lengths_of(step).open(encoding="ascii") as file:
                return array("d", map(float, file))
        except (OSError, ValueError):
            return None

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


def environments_file(home: Path) -> Path:
    return home / "environments.yaml"


def images_file(home: Path) -> Path:
    return home / "images.json"


def hashes_file(home: Path) -> Path:
    return home / "hashes.json"


def emulator_in(home: Path) -> Path:
    return home / "emulator"


def draft_of(home: Path, run_id: str) -> RunFolder:
    """Return the folder of a run that is being written."""
    return RunFolder(runs_in(home) / f"{DRAFT_PREFIX}{run_id}")


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


def sync_file(path: Path) -> None:
    """Write the content of a file from memory to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_synced(path: Path, text: str) -> None:
    """Write a file that is on the disk, not only in memory, when this returns."""
    write_lines_synced(path, [text])


def write_lines_synced(path: Path, lines: Iterable[str]) -> None:
    """Write a file as ``write_synced`` does, from lines that have their line feeds."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
