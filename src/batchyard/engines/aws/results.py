"""The files that the steps of a run have written to S3, downloaded to this machine."""

from __future__ import annotations

from pathlib import Path

from batchyard.aws.s3 import S3
from batchyard.engines.aws import staging
from batchyard.engines.aws.target import Target
from batchyard.engines.base import RunRecord, Say
from batchyard.errors import InputError
from batchyard.folder import home_flag
from batchyard.units import pluralize


class RunResults:
    """The output files of one run. They go to the folder that its input files came from."""

    def __init__(self, record: RunRecord, s3: S3) -> None:
        self._record = record
        self._target: Target = record.settings
        self._s3 = s3

    def fetch(self, folder: Path | None = None) -> tuple[int, Path]:
        """Download the files; return their number and folder. Raises InputError. See RunEngine."""
        destination = folder or self._workspace_folder
        if destination is None:
            raise InputError(
                self._why_no_workspace(),
                hint="name a folder: --to DIR, or fetch(to=...) in Python",
            )
        jobs = self._record.plan.jobs
        count = staging.fetch_outputs(self._s3, jobs, destination, self._target.workspace)
        return count, destination

    def fetch_at_end(self, say: Say) -> None:
        """Download the files of a run that is over, where its workspace is on this machine."""
        if self._workspace_folder is not None:
            count, folder = self.fetch()
            if count:
                say(f"fetched {pluralize(count, 'output file')} into {folder}")
        elif self._is_from_elsewhere and any(job.outputs for job in self._record.plan.jobs):
            flags = home_flag(self._record.folder, Path.cwd())
            say(
                "the run's workspace is not on this machine: "
                f"`batchyard fetch {self._record.run_id}{flags} --to DIR` downloads its results"
            )

    @property
    def _workspace_folder(self) -> Path | None:
        """The folder on this machine that the run's files came from, and go back to."""
        folder = Path(self._record.workspace) if self._record.workspace else None
        return folder if folder is not None and folder.is_dir() else None

    @property
    def _is_from_elsewhere(self) -> bool:
        """Whether the run's files came from a folder, and that folder is not on this machine."""
        return self._target.has_own_workspace and self._workspace_folder is None

    def _why_no_workspace(self) -> str:
        run_id, folder = self._record.run_id, self._record.workspace
        if not self._is_from_elsewhere:
            return f"the workspace of run {run_id} is in S3"
        if folder:
            return f"the workspace of run {run_id} is not here: there is no folder {folder}"
        return f"run {run_id} was begun on another machine, and its workspace is there"
