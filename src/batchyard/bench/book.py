"""Results on disk: written anew after each measurement, so that nothing is lost to whatever comes next."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from batchyard.bench import reading, results, tables
from batchyard.bench.results import Results
from batchyard.errors import InputError, OperationalError, from_os_error

#: beside an older result of the same device; the next ones are .old2, .old3
OLD = ".old"


class Book:
    """The three files of one device: NAME.json, NAME.csv, NAME.txt."""

    def __init__(self, folder: Path, device: str, stands_for: str = "") -> None:
        self.folder = folder
        self._stem = results.stem_of(device, stands_for)
        #: what an earlier run had left there, under its new name
        self.put_aside: list[Path] = []

    @property
    def json_path(self) -> Path:
        return self.folder / f"{self._stem}.json"

    @property
    def text_path(self) -> Path:
        return self.folder / f"{self._stem}.txt"

    def open(self) -> None:
        """Makes the folder. An older result is kept beside the new one."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.put_aside = put_aside(
                [self.folder / f"{self._stem}{ending}" for ending in (".json", ".csv", ".txt")]
            )
        except OSError as exc:
            raise _refused(exc, self.folder) from exc

    def keep(self, value: Results, *, all_candidates: bool = False) -> None:
        self._write(".json", results.to_json(value))
        self._write(".csv", tables.csv_text(value))
        self._write(".txt", tables.run_text(value, all_candidates=all_candidates))

    def _write(self, ending: str, text: str) -> None:
        path = self.folder / f"{self._stem}{ending}"
        half = path.with_name(path.name + ".part")
        try:
            with half.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            half.replace(path)
        except OSError as exc:
            raise _refused(exc, path) from exc


def put_aside(paths: Iterable[Path]) -> list[Path]:
    """Of these files, those that are there get another name, which is returned: one that nothing has yet.

    A result in which nothing was measured yet may be written over: who stops two runs in a row loses nothing by it.
    """
    found = [
        path for path in paths if path.exists() and not _holds_nothing(path.with_suffix(".json"))
    ]
    endings = (OLD if number == 1 else f"{OLD}{number}" for number in count(1))
    ending = next(
        one
        for one in endings
        if not any(path.with_name(path.name + one).exists() for path in found)
    )
    return [path.replace(path.with_name(path.name + ending)) for path in found]


def _holds_nothing(path: Path) -> bool:
    try:
        return not read(path).measurements
    except InputError:
        return False


def read(path: Path) -> Results:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: this is not text", hint="give a file of `batchyard bench run`"
        ) from None
    except OSError as exc:
        raise InputError(
            f"could not read {path}: {exc.strerror or exc}",
            hint="`batchyard bench run` writes cpu-benchmark.json",
        ) from None
    return reading.from_json(text, str(path))


def read_folder(folder: Path) -> list[tuple[Path, Results]]:
    """Every result in it; other JSON files are passed over."""
    if folder.is_file():
        raise InputError(
            f"{folder}: this is a file", hint=f"name the folder that it is in: {folder.parent}"
        )
    try:
        paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    except OSError as exc:
        raise from_os_error(exc, "look into", folder) from exc
    found = [(path, read(path)) for path in paths if _is_ours(path)]
    if not found:
        what = "there are no results in it" if folder.is_dir() else "there is no such folder"
        raise InputError(f"{folder}: {what}", hint="`batchyard bench run --out DIR` makes them")
    return found


def _is_ours(path: Path) -> bool:
    """By its name or its first words, so that one cut short is an error and not overlooked."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return path.name.endswith("-benchmark.json") or results.FORMAT in file.read(100)
    except OSError:
        return True


def _refused(exc: OSError, path: Path) -> OperationalError:
    error = from_os_error(exc, "write the results to", path)
    error.hint = "choose another folder with --out; what was written before is still there"
    return error
