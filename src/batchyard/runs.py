"""What was run where: the record from which status, logs, stop, retry, resume and report start.

A record is written once, whole, before anything is submitted: the folder is made under another name and renamed, so
that a half-written run is never seen. What happened since is asked of the engine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchyard import plan as planning
from batchyard.batch.jobs import Resources
from batchyard.engines.base import RunEngine
from batchyard.engines.local.engine import LocalEngine, Setting
from batchyard.errors import (
    BrokenStoreError,
    InputError,
    NewerStoreError,
    RunNotFoundError,
    from_os_error,
)
from batchyard.folder import HOME_NAME, RunFolder, runs_in
from batchyard.plan import Plan

if TYPE_CHECKING:
    from batchyard.engines.aws.engine import AwsEngine
    from batchyard.engines.aws.render import Target

RECORD_FORMAT = 1
_HALF_AGE_S = 86_400
_RUN_ID = re.compile(r"[a-z][a-z0-9-]*-\d{8}-[0-9a-f]{6}")


@dataclass(frozen=True, slots=True)
class Record:
    """One run, as it was begun."""

    folder: RunFolder
    plan: Plan
    #: where it executes: on this machine, or on AWS
    place: Setting | Target
    engine: str
    created_ms: int
    #: the pipeline file; None where the pipeline was made in Python
    file: str | None = None
    #: the run whose unfinished part this is
    retry_of: str | None = None
    #: the folder whose files the commands work on
    workspace: str = ""

    @property
    def run_id(self) -> str:
        return self.folder.run_id

    @property
    def setting(self) -> Setting:
        """Of a run on this machine."""
        if not isinstance(self.place, Setting):
            raise InputError(f"run {self.run_id} is not on this machine: it runs on {self.engine}")
        return self.place

    @property
    def is_local(self) -> bool:
        return isinstance(self.place, Setting)

    @property
    def workspace_here(self) -> Path | None:
        """The folder on this machine that the files of a run on AWS came from, and go back to."""
        folder = Path(self.workspace) if self.workspace else None
        return folder if folder is not None and folder.is_dir() else None

    @property
    def is_from_elsewhere(self) -> bool:
        """Whether a run on AWS has such a folder, and it is not here."""
        assert not isinstance(self.place, Setting)
        # The files of a folder are among the runs, at the run's own address or at that of the one it retries.
        among_runs = self.place.environment.runs_address
        return self.place.workspace.startswith(among_runs) and self.workspace_here is None

    def open_engine(self) -> RunEngine:
        return self.open_local() if self.is_local else self.open_aws()

    def open_local(self) -> LocalEngine:
        return LocalEngine(self.folder, self.plan)

    def open_aws(self) -> AwsEngine:
        from batchyard.engines.aws.engine import AwsEngine

        assert not isinstance(self.place, Setting)
        return AwsEngine(self.folder, self.plan, self.place)


def find_home(start: Path, given: str | None = None) -> Path:
    """`.batchyard/`: the one that was given, or the nearest from ``start`` upward, or the one to be made in it."""
    if given:
        return Path(given).absolute()
    start = start.absolute()
    for folder in (start, *start.parents):
        if (folder / HOME_NAME).is_dir():
            return folder / HOME_NAME
    return start / HOME_NAME


def home_beside(folder: Path, given: str | None = None) -> Path:
    """Where a new run is kept: beside its pipeline file, unless another place was given."""
    return Path(given).absolute() if given else folder.absolute() / HOME_NAME


def begin(
    home: Path,
    plan: Plan,
    place: Setting | Target,
    *,
    file: Path | None = None,
    retry_of: str | None = None,
    done: Mapping[str, Sequence[int]] | None = None,
    workspace: Path | None = None,
) -> Record:
    """Records a new run. One on this machine has its jobs submitted with it, and nothing executes yet; one for AWS has
    still to be submitted. ``done``: commands that need not run again."""
    is_local = isinstance(place, Setting)
    run_id = new_id(plan) if isinstance(place, Setting) else place.run_id
    folder = RunFolder(runs_in(home) / run_id)
    where = str(file.absolute()) if file else None
    engine_name = LocalEngine.name if is_local else "aws"
    record = Record(
        folder,
        plan,
        place,
        engine_name,
        int(time.time() * 1000),
        where,
        retry_of,
        str(workspace) if workspace else "",
    )
    draft = RunFolder(runs_in(home) / f".new-{run_id}")
    try:
        draft.lists.mkdir(parents=True)
        for step, commands in plan.lists.items():
            _write_synced(draft.list_of(step), "".join(f"{command}\n" for command in commands))
        _write_synced(draft.record, to_text(record))
        if is_local:
            engine = LocalEngine(draft, plan)
            engine.submit(plan, done)
            engine.close()
        else:
            _write_synced(
                draft.skip,
                json.dumps({step: list(numbers) for step, numbers in (done or {}).items()}),
            )
        os.rename(draft.path, folder.path)
    except OSError as exc:
        raise from_os_error(exc, "record the run in", home) from exc
    finally:
        if draft.path.exists():
            shutil.rmtree(draft.path, ignore_errors=True)
    return record


def new_id(plan: Plan) -> str:
    return f"{plan.pipeline}-{time.strftime('%Y%m%d')}-{os.urandom(3).hex()}"


def take_over(home: Path, run_id: str, text: str) -> Record:
    """Makes a run of this machine's of a record that another one wrote."""
    folder = RunFolder(runs_in(home) / run_id)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        _write_synced(folder.record, text)
    except OSError as exc:
        raise from_os_error(exc, "record the run in", home) from exc
    return read(folder)


def load(home: Path, name: str) -> Record:
    """The run called ``name``: an id, the beginning of one, or `last`."""
    return read(RunFolder(runs_in(home) / _resolved(home, name)))


def read(folder: RunFolder) -> Record:
    try:
        fields = json.loads(folder.record.read_text(encoding="utf-8"))
        if fields["format"] > RECORD_FORMAT:
            raise NewerStoreError(
                f"{folder.record} was written by a newer batchyard", hint="upgrade batchyard"
            )
        plan = planning.from_json(fields["plan"])
        return Record(
            folder,
            plan,
            _place(fields),
            fields["engine"],
            fields["created_ms"],
            fields["file"],
            fields["retry_of"],
            fields.get("workspace", ""),
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise BrokenStoreError(
            f"{folder.record} cannot be read: {exc}", hint="remove the folder, or restore it"
        ) from exc
    except OSError as exc:
        raise from_os_error(exc, "read", folder.record) from exc


def is_id(name: str) -> bool:
    """Whether it is the whole id of some run, here or elsewhere."""
    return _RUN_ID.fullmatch(name) is not None


def names(home: Path) -> list[str]:
    """The ids of the runs, newest first."""
    try:
        with os.scandir(runs_in(home)) as entries:
            found = [entry.name for entry in entries if is_id(entry.name)]
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise from_os_error(exc, "list the runs in", home) from exc
    by_creation = [(_created_ms(runs_in(home) / name), name) for name in found]
    return [name for _, name in sorted(by_creation, reverse=True)]


def delete_halves(home: Path) -> None:
    """What an interrupted `run` or `clean` has left of a run, if it is not of today: nobody can be at it any more."""
    for half in (*runs_in(home).glob(".new-*"), *runs_in(home).glob(".old-*")):
        try:
            is_old = time.time() - half.stat().st_mtime > _HALF_AGE_S
        except OSError:
            continue
        if is_old:
            shutil.rmtree(half, ignore_errors=True)


def delete(record: Record) -> None:
    """The run with its logs. Renamed first, so that an interrupted delete leaves no half of a run to be seen."""
    gone = record.folder.path.with_name(f".old-{record.run_id}")
    try:
        os.rename(record.folder.path, gone)
        shutil.rmtree(gone)
    except OSError as exc:
        raise from_os_error(exc, "delete", record.folder.path) from exc


def _resolved(home: Path, name: str) -> str:
    known = names(home)
    if not known:
        raise RunNotFoundError(
            f"there are no runs in {home}",
            hint="start one with `batchyard run FILE`, or give --home",
        )
    if name == "last":
        return known[0]
    if name in known:
        return name
    matches = [run_id for run_id in known if run_id.startswith(name)]
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
    """From the record's head, without reading all of it: `runs` and `last` look at every run."""
    try:
        with (path / "run.json").open("rb") as file:
            found = re.search(rb'"created_ms": (\d+),', file.read(1024))
        # A record that cannot be read is as old as its folder.
        return int(found.group(1)) if found else int(path.stat().st_ctime * 1000)
    except OSError:
        return 0


def _place(fields: Mapping[str, Any]) -> Setting | Target:
    if "target" in fields:
        from batchyard.engines.aws import render

        return render.target_from_json(fields["target"])
    setting = {**fields["setting"], "workspace": Path(fields["setting"]["workspace"])}
    setting["capacity"] = Resources(**setting["capacity"])
    setting["gpu_numbers"] = tuple(setting["gpu_numbers"])
    return Setting(**setting)


def _place_to_json(place: Setting | Target) -> dict[str, Any]:
    if isinstance(place, Setting):
        return {"setting": {**asdict(place), "workspace": str(place.workspace)}}
    from batchyard.engines.aws import render

    return {"target": render.target_to_json(place)}


def to_text(record: Record) -> str:
    """The record as it is written."""
    return json.dumps(_to_json(record), indent=1)


def _to_json(record: Record) -> dict[str, Any]:
    return {
        "format": RECORD_FORMAT,
        "created_ms": record.created_ms,
        "run": record.run_id,
        "engine": record.engine,
        "file": record.file,
        "retry_of": record.retry_of,
        **_place_to_json(record.place),
        "workspace": record.workspace,
        "plan": planning.to_json(record.plan),
    }


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
