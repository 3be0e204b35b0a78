"""The files that the steps of a run take from this machine: their upload, and their list in S3."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchyard import folder as folder_paths
from batchyard import s3_layout
from batchyard.aws.content_files import ContentFile, ContentFiles
from batchyard.aws.s3 import S3
from batchyard.engines.aws import inputs
from batchyard.engines.aws.input_hashes import InputHashes
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.aws.target import Target
from batchyard.engines.aws.workspace_files import check_files, list_names
from batchyard.engines.base import RunRecord, Say
from batchyard.errors import InputError
from batchyard.plan import Plan
from batchyard.units import pluralize


@dataclass(frozen=True, slots=True)
class InputFiles:
    """The input files of a run, by their content."""

    #: step -> path in the workspace -> content
    by_step: Mapping[str, Mapping[str, ContentFile]] = field(default_factory=dict)

    def of_step(self, step: str) -> list[list[object]]:
        """Return [path, SHA-256, size] of the step's files, as the worker reads them."""
        return [[path, *content] for path, content in sorted(self.by_step.get(step, {}).items())]


def to_json(files: InputFiles) -> dict[str, Any]:
    """Return the JSON of ``inputs.json``. A file that many steps take is in it once."""
    content = {path: file for step in files.by_step.values() for path, file in step.items()}
    return {
        "files": {path: list(file) for path, file in sorted(content.items())},
        "steps": {step: sorted(paths) for step, paths in files.by_step.items()},
    }


def from_json(document: Mapping[str, Any]) -> InputFiles:
    content = {path: ContentFile(*file) for path, file in document["files"].items()}
    return InputFiles(
        {step: {path: content[path] for path in paths} for step, paths in document["steps"].items()}
    )


class RunInputs:
    """The input files of one run: uploaded when it starts, and listed in its ``inputs.json``."""

    def __init__(self, record: RunRecord, s3: S3, files: RunFiles) -> None:
        self._record = record
        self._target: Target = record.settings
        self._s3 = s3
        self._files = files

    def load(self) -> InputFiles | None:
        """Return the stored input files; None before, and where the workspace is in S3."""
        document = self._files.read(s3_layout.INPUT_FILES)
        return None if document is None else from_json(document)

    def store(self, plan: Plan, say: Say) -> None:
        """Upload the inputs that are not in S3 yet, and list them all in ``inputs.json``.

        ``plan``: with its lists. Where ``inputs.json`` exists, nothing is left to do.
        """
        if not self._target.has_own_workspace or self.load() is not None:
            return
        retried = self._load_retried()
        folder = Path(self._record.workspace) if self._record.workspace else None
        if folder is not None and not folder.is_dir():
            folder = None
        is_lost = folder is None and (retried is None or not retried.by_step)
        if is_lost and any(job.inputs for job in plan.jobs):
            run_id = self._record.run_id
            raise InputError(
                f"run {run_id} was begun on another machine, and its input files are there",
                hint=f"`batchyard resume {run_id}` on that machine",
            )
        environment = self._target.environment
        address = s3_layout.content_address(environment.bucket, environment.prefix, plan.pipeline)
        content_files = ContentFiles(self._s3, address)
        hashes_file = folder_paths.hashes_file(self._record.home)
        files = store_inputs(content_files, plan, folder, hashes_file, retried)
        if content_files.uploaded:
            say(f"uploaded {pluralize(len(content_files.uploaded), 'input file')} to {address}")
        self._files.write(s3_layout.INPUT_FILES, to_json(files))

    def _load_retried(self) -> InputFiles | None:
        """Return the files of the run that this one is a retry of; None if it is no retry."""
        if self._record.retry_of is None:
            return None
        address = self._target.environment.run_address(self._record.retry_of)
        data = self._s3.get(address + s3_layout.INPUT_FILES)
        return InputFiles() if data is None else from_json(json.loads(data))


def store_inputs(
    content_files: ContentFiles,
    plan: Plan,
    workspace: Path | None,
    hashes_file: Path,
    retried: InputFiles | None = None,
) -> InputFiles:
    """Upload the inputs of a run that are not in S3, and return all of them.

    ``retried``: the files of the retried run. A file that is not in the workspace any more is
    taken from these. Raises InputError where its content is not in S3 any more.
    """
    by_step: dict[str, dict[str, ContentFile]] = {job.step: {} for job in plan.jobs}
    if retried is not None:
        by_step = {step: dict(retried.by_step.get(step, {})) for step in by_step}
    if workspace is not None:
        selected = inputs.select_inputs(plan, list_names(workspace), by_step if retried else None)
        names = {name for step in selected.values() for name in step.names}
        hashes = _store_files(content_files, workspace, names, hashes_file)
        for step, step_inputs in selected.items():
            by_step[step] |= {name: hashes[name] for name in step_inputs.names if name in hashes}
    files = InputFiles(by_step)
    _require_stored(content_files, files)
    return files


def _store_files(
    content_files: ContentFiles, workspace: Path, names: Iterable[str], hashes_file: Path
) -> dict[str, ContentFile]:
    """Upload files of the workspace where their content is new; return name -> content."""
    checked = check_files(workspace, names).files
    states = {workspace / name: state for name, state in checked.items()}
    memory = InputHashes(hashes_file)
    hashes = memory.recall(states)
    content_files.store(states, hashes)
    memory.remember(states, hashes)
    return {name: hashes[workspace / name] for name in checked}


def _require_stored(content_files: ContentFiles, files: InputFiles) -> None:
    needed = {
        content.sha256: path for step in files.by_step.values() for path, content in step.items()
    }
    missing = [path for sha256, path in needed.items() if sha256 not in content_files.stored]
    if missing:
        raise InputError(
            f"{pluralize(len(missing), 'input file')} of the retried run ({missing[0]}"
            f"{', ...' if len(missing) > 1 else ''}) are neither here nor in "
            f"{content_files.address} any more",
            hint="start the run anew from its file",
        )
    content_files.refresh(needed)
