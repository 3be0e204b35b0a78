"""Write results to disk after each measurement, keep older results, and read results back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from batchyard.bench import reading, results, tables
from batchyard.bench.results import Results
from batchyard.errors import InputError, OperationalError, from_os_error

#: appended to the name of an older result; the next ones are .old2, .old3
_OLD = ".old"


class ResultFiles:
    """The three files of one device: NAME.json, NAME.csv, NAME.txt."""

    def __init__(self, folder: Path, device: str, stands_for: str = "") -> None:
        self.folder = folder
        self._stem = results.file_stem(device, stands_for)
        #: files of an earlier run, under their new names
        self.renamed_files: list[Path] = []

    @property
    def json_path(self) -> Path:
        return self._path(".json")

    @property
    def text_path(self) -> Path:
        return self._path(".txt")

    def prepare(self) -> None:
        """Make the folder, and rename the files of an older result. Raises OperationalError."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.renamed_files = rename_old_files(map(self._path, (".json", ".csv", ".txt")))
        except OSError as exc:
            raise _write_error(exc, self.folder) from exc

    def write(self, value: Results, *, all_candidates: bool = False) -> None:
        """Write the three files; each is complete or unchanged. Raises OperationalError."""
        self._write(".json", results.to_json(value))
        self._write(".csv", tables.csv_text(value))
        self._write(".txt", tables.run_text(value, all_candidates=all_candidates))

    def _path(self, extension: str) -> Path:
        return self.folder / f"{self._stem}{extension}"

    def _write(self, extension: str, text: str) -> None:
        path = self._path(extension)
        draft = path.with_name(path.name + ".part")
        try:
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as exc:
            raise _write_error(exc, path) from exc


def rename_old_files(paths: Iterable[Path]) -> list[Path]:
    """Rename the existing ones of these files, and return their new paths, which are unused names.

    A result without any measurement keeps its name and may be overwritten: two interrupted runs in
    a row must not displace the last complete result.
    """
    old_paths = [
        path for path in paths if path.exists() and not _is_empty(path.with_suffix(".json"))
    ]
    for number in count(1):
        suffix = _OLD if number == 1 else f"{_OLD}{number}"
        new_paths = [path.with_name(path.name + suffix) for path in old_paths]
        if not any(path.exists() for path in new_paths):
            break
    return [old.replace(new) for old, new in zip(old_paths, new_paths, strict=True)]


def _is_empty(path: Path) -> bool:
    try:
        return not read(path).measurements
    except InputError:
        return False


def read(path: Path) -> Results:
    """Return the results in a JSON file. Raises InputError."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: this is not text", hint="give a file that `batchyard bench run` wrote"
        ) from None
    except OSError as exc:
        raise InputError(
            f"could not read {path}: {exc.strerror or exc}",
            hint="`batchyard bench run` writes cpu-benchmark.json",
        ) from None
    return reading.from_json(text, str(path))


def read_folder(folder: Path) -> list[tuple[Path, Results]]:
    """Return all results in a folder with their paths; other JSON files are ignored.

    Raises InputError if there are none, or if one of them cannot be read.
    """
    if folder.is_file():
        raise InputError(
            f"{folder}: this is a file", hint=f"name the folder that it is in: {folder.parent}"
        )
    try:
        paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    except OSError as exc:
        raise from_os_error(exc, "look into", folder) from exc
    results_by_path = [(path, read(path)) for path in paths if _is_result(path)]
    if not results_by_path:
        problem = "there are no results in it" if folder.is_dir() else "there is no such folder"
        raise InputError(f"{folder}: {problem}", hint="`batchyard bench run --out DIR` makes them")
    return results_by_path


def _is_result(path: Path) -> bool:
    """Whether the name or the beginning is that of a result, so that a truncated file counts."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return path.name.endswith("-benchmark.json") or results.FORMAT in file.read(100)
    except OSError:
        return True


def _write_error(exc: OSError, path: Path) -> OperationalError:
    error = from_os_error(exc, "write the results to", path)
    error.hint = "choose another folder with --out; earlier results are still there"
    return error
