"""The records of runs in `.batchyard`: writing, finding, reading and deleting them.

A record is written once, whole, before anything is submitted: its folder is made under another
name and renamed, so that a half-written run is never seen. What happened since is asked of the
engine.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchyard import engines
from batchyard import plan as planning
from batchyard.engines.base import Engine, PreparedRun, RunRecord
from batchyard.errors import (
    BrokenStoreError,
    InputError,
    NewerStoreError,
    RunNotFoundError,
    from_os_error,
)
from batchyard.folder import (
    DELETED_PREFIX,
    DRAFT_PREFIX,
    RunFolder,
    draft_of,
    runs_in,
    write_lines_synced,
    write_synced,
)

if TYPE_CHECKING:
    from batchyard.cost_cap import Cap

RECORD_FORMAT = 1
#: Age after which a half-written or half-deleted run is deleted.
_HALF_AGE_S = 86_400
_RUN_ID = re.compile(r"[a-z][a-z0-9-]*-\d{8}-[0-9a-f]{6}")


def begin(
    home: Path,
    engine: Engine,
    prepared: PreparedRun,
    *,
    file: Path | None = None,
    retry_of: str | None = None,
    cap: Cap | None = None,
) -> RunRecord:
    """Record a prepared run. Nothing executes yet."""
    record = RunRecord(
        folder=RunFolder(runs_in(home) / prepared.run_id),
        plan=prepared.plan,
        engine=engine,
        settings=prepared.settings,
        created_ms=int(time.time() * 1000),
        file=str(file.absolute()) if file else None,
        retry_of=retry_of,
        workspace=str(prepared.workspace) if prepared.workspace else "",
        cap=cap,
    )
    if not engine.is_recorded:
        engine.create(record, prepared.commands_done)
        return record
    draft = draft_of(home, record.run_id)
    try:
        draft.lists.mkdir(parents=True)
        for step, commands in record.plan.lists.items():
            write_lines_synced(draft.list_of(step), (f"{command}\n" for command in commands))
        for step, lengths in record.plan.lengths.items():
            write_lines_synced(draft.lengths_of(step), (f"{length:.6g}\n" for length in lengths))
        write_synced(draft.record, _to_text(record))
        engine.create(replace(record, folder=draft), prepared.commands_done)
        os.rename(draft.path, record.folder.path)
    except OSError as exc:
        raise from_os_error(exc, "record the run in", home) from exc
    finally:
        if os.path.lexists(draft.path):
            _delete_tree(draft.path, ignore_errors=True)
    return record


def adopt(home: Path, engine: Engine, run_id: str, text: str) -> RunRecord:
    """Record a run that another machine began, from the text of its run.json."""
    folder = RunFolder(runs_in(home) / run_id)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        write_synced(folder.record, text)
    except OSError as exc:
        raise from_os_error(exc, "record the run in", home) from exc
    record = read(folder)
    engine.adopt(record)
    return record


def load(home: Path, name: str) -> RunRecord:
    """Return the run called ``name``: an id, the beginning of one, or `last`."""
    return read(RunFolder(runs_in(home) / _resolve(home, name)))


def read(folder: RunFolder) -> RunRecord:
    """Return the record in a run's folder. Raises BrokenStoreError or NewerStoreError."""
    try:
        document = json.loads(folder.record.read_text(encoding="utf-8"))
        if document["format"] > RECORD_FORMAT:
            raise NewerStoreError(
                f"{folder.record} was written by a newer batchyard", hint="upgrade batchyard"
            )
        if document["engine"] not in engines.ENGINES:
            raise ValueError(f"there is no engine {document['engine']!r}")
        engine = engines.load(document["engine"])
        return RunRecord(
            folder=folder,
            plan=planning.from_json(document["plan"]),
            engine=engine,
            settings=engine.settings_from_json(document),
            created_ms=document["created_ms"],
            file=document["file"],
            retry_of=document["retry_of"],
            workspace=document.get("workspace", ""),
            cap=_read_cap(document),
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise BrokenStoreError(
            f"{folder.record} cannot be read: {exc}", hint="remove the folder, or restore it"
        ) from exc
    except OSError as exc:
        raise from_os_error(exc, "read", folder.record) from exc


def _read_cap(document: Mapping[str, Any]) -> Cap | None:
    if not document.get("cap"):
        return None
    from batchyard.cost_cap import Cap

    return Cap(**document["cap"])


def is_id(name: str) -> bool:
    """Return whether the name has the form of a whole run id."""
    return _RUN_ID.fullmatch(name) is not None


def pipeline_of(run_id: str) -> str:
    """Return the name of the pipeline that a run id begins with."""
    return run_id.rsplit("-", 2)[0]


def names(home: Path, pipeline: str | None = None) -> list[str]:
    """Return the ids of the runs, newest first. ``pipeline``: only of the runs of this pipeline."""
    try:
        with os.scandir(runs_in(home)) as entries:
            run_ids = [
                entry.name
                for entry in entries
                if is_id(entry.name) and pipeline in (None, pipeline_of(entry.name))
            ]
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise from_os_error(exc, "list the runs in", home) from exc
    by_creation = [(_created_ms(runs_in(home) / name), name) for name in run_ids]
    return [name for _, name in sorted(by_creation, reverse=True)]


def delete_halves(home: Path) -> None:
    """Delete what an interrupted `run` or `clean` left of a run more than a day ago."""
    for half in (
        *runs_in(home).glob(f"{DRAFT_PREFIX}*"),
        *runs_in(home).glob(f"{DELETED_PREFIX}*"),
    ):
        try:
            is_old = time.time() - half.stat().st_mtime > _HALF_AGE_S
        except OSError:
            continue
        if is_old:
            _delete_tree(half, ignore_errors=True)


def delete(record: RunRecord) -> None:
    """Delete the run with its logs."""
    # Renamed first, so that an interrupted delete leaves no half of a run to be seen.
    gone = record.folder.deleted
    try:
        os.rename(record.folder.path, gone)
        _delete_tree(gone)
    except OSError as exc:
        raise from_os_error(exc, "delete", record.folder.path) from exc


def _delete_tree(path: Path, *, ignore_errors: bool = False) -> None:
    import shutil  # slow to import, and `run` and `status` delete nothing

    shutil.rmtree(path, ignore_errors=ignore_errors)


def _resolve(home: Path, name: str) -> str:
    """Return the id of the run called ``name``. Raises RunNotFoundError."""
    run_ids = names(home)
    if not run_ids:
        raise RunNotFoundError(
            f"there are no runs in {home}",
            hint="start one with `batchyard run FILE`, or give --home",
        )
    if name == "last":
        return run_ids[0]
    if name in run_ids:
        return name
    matches = [run_id for run_id in run_ids if run_id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise InputError(
            f"{name!r} could be any of {len(matches)} runs: {', '.join(matches[:5])}",
            hint="write more of it",
        )
    raise RunNotFoundError(
        f"no run begins with {name!r} in {home}", hint="`batchyard runs` lists them"
    )


def _created_ms(path: Path) -> int:
    """Return when the run was begun, from the head of its record.

    `runs` and `last` look at every run, so the record is not read whole.
    """
    try:
        with RunFolder(path).record.open("rb") as file:
            match = re.search(rb'"created_ms": (\d+),', file.read(1024))
        # A record that cannot be read is as old as its folder.
        return int(match.group(1)) if match else int(path.stat().st_ctime * 1000)
    except OSError:
        return 0


def _to_text(record: RunRecord) -> str:
    """Return the text of run.json."""
    document: dict[str, Any] = {
        "format": RECORD_FORMAT,
        "created_ms": record.created_ms,
        "run": record.run_id,
        "engine": record.engine.name,
        "file": record.file,
        "retry_of": record.retry_of,
        "cap": None if record.cap is None else record.cap._asdict(),
        **record.engine.settings_to_json(record.settings),
        "workspace": record.workspace,
        "plan": planning.to_json(record.plan),
    }
    return json.dumps(document, indent=1)
