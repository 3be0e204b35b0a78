"""A child's workspace: download inputs, upload outputs, save and restore checkpoints."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import field

from batchyard import s3_layout
from batchyard.quick_dataclasses import dataclass
from batchyard.worker import inputs
from batchyard.worker.errors import EXIT_NAME, WorkerError
from batchyard.worker.globs import Glob, globs, is_safe
from batchyard.worker.inputs import Input
from batchyard.worker.orders import Orders, Place
from batchyard.worker.s3 import Bucket
from batchyard.worker.transfers import FileTransfer, Transfers


@dataclass(frozen=True, slots=True)
class FileState:
    """Size and times of a file, which change when the file is written again."""

    size: int
    modified_ns: int
    #: differs even if a program sets the modification time back, as tar and cp -p do
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint of an earlier attempt."""

    #: the command that was interrupted
    command: int
    place: Place
    paths: frozenset[str]


@dataclass(slots=True)
class Workspace:
    folder: str
    orders: Orders
    #: the child's index in the step
    number: int
    bucket: Bucket
    transfers: Transfers
    log: Callable[[str], None]
    #: files that are not uploaded: S3 has them, or a failed command wrote them
    _ignored: dict[str, FileState] = field(default_factory=dict)

    # -- inputs ------------------------------------------------------------------------------------

    def download_inputs(self, is_over: Callable[[], bool], *, is_continued: bool = False) -> None:
        """Download the inputs. Raises OutOfTimeError when ``is_over`` returns True.

        ``is_continued``: the child has finished commands before, whose outputs may be inputs.
        """
        input_files = inputs.find_inputs(self.bucket, self.orders, is_continued=is_continued)
        for pattern in inputs.find_unmatched(self.orders, input_files):
            self.log(f"no object matches the input {pattern} below {self.orders.workspace}")
        self._download(input_files, is_over)
        # Patterns of outputs often match inputs too, which need not be uploaded again.
        for path in input_files:
            self._ignored[path] = _file_state(os.stat(self._local_path(path)))

    def _download(self, objects: dict[str, Input], is_over: Callable[[], bool]) -> None:
        for path, entry in objects.items():
            if not is_safe(path):
                raise WorkerError(
                    f"the key {path!r} of {entry.place} cannot be a file's path in the workspace; "
                    "give the object another key, or use a pattern that does not match it",
                    EXIT_NAME,
                )
        files = [
            FileTransfer(entry.place, self._local_path(path), entry.size, entry.etag)
            for path, entry in objects.items()
        ]
        self.transfers.download(files, is_over)

    # -- outputs -----------------------------------------------------------------------------------

    def upload_outputs(self, is_over: Callable[[], bool]) -> None:
        """Upload the outputs that are new or have changed since the last call."""
        changed = self._changed_outputs()
        self._upload(self.orders.workspace, changed, is_over)
        self._ignored |= changed

    def ignore_outputs(self) -> None:
        """Do not upload the outputs of a failed command with those of later commands."""
        self._ignored |= self._changed_outputs()

    def _changed_outputs(self) -> dict[str, FileState]:
        return {
            path: state
            for path, state in self._files(self.orders.outputs)
            if self._ignored.get(path) != state
        }

    def _upload(
        self, root: Place, states: dict[str, FileState], is_over: Callable[[], bool]
    ) -> None:
        for path in states:
            if not _is_text(path):
                raise WorkerError(
                    f"the name of the file {path!a} is not UTF-8, as S3 requires; rename it",
                    EXIT_NAME,
                )
        files = [
            FileTransfer(root.below(path), self._local_path(path), state.size)
            for path, state in states.items()
        ]
        self.transfers.upload(files, is_over)

    # -- checkpoints -------------------------------------------------------------------------------

    def save_checkpoint(self, command: int, attempt: int, is_over: Callable[[], bool]) -> int:
        """Upload the checkpoint, and last its marker; return the number of files."""
        files = dict(self._files(self.orders.checkpoint))
        # Every checkpoint has its own folder, so that an incomplete one damages no other.
        name = s3_layout.checkpoint_name(time.time(), attempt)
        self._upload(self._checkpoints.below(s3_layout.checkpoint_files(name)), files, is_over)
        marker = json.dumps({"command": command, "attempt": attempt, "files": sorted(files)})
        marker_place = self._checkpoints.below(s3_layout.checkpoint_marker(name))
        self.bucket.write(marker_place, marker.encode(), "save the checkpoint at")
        return len(files)

    def find_checkpoint(self) -> Checkpoint | None:
        """Return the newest complete checkpoint of this run, or of the runs that it retries."""
        if not self.orders.checkpoint:
            return None
        folders = (self.orders.checkpoints, *self.orders.earlier_checkpoints)
        checkpoints = (self._find_checkpoint_in(folder) for folder in folders)
        return next((checkpoint for checkpoint in checkpoints if checkpoint is not None), None)

    def _find_checkpoint_in(self, checkpoints: Place) -> Checkpoint | None:
        """``checkpoints``: where a run has the checkpoints of the step."""
        folder = checkpoints.below(s3_layout.checkpoints_of(self.number))
        listed = self.bucket.list(folder, "look for a checkpoint in", flat=True)
        newest = s3_layout.newest_checkpoint([entry.key for entry in listed])
        if newest is None:
            return None
        bucket = folder.bucket
        marker = Place(bucket, s3_layout.checkpoint_marker(newest))
        document = json.loads(self.bucket.read(marker, "read the checkpoint's record"))
        files = Place(bucket, s3_layout.checkpoint_files(newest))
        return Checkpoint(document["command"], files, frozenset(document["files"]))

    def restore(self, checkpoint: Checkpoint, is_over: Callable[[], bool]) -> None:
        """Download the files of the checkpoint into the workspace."""
        root = checkpoint.place
        files = {
            entry.key[len(root.key) :]: Input(Place(root.bucket, entry.key), entry.size, entry.etag)
            for entry in self.bucket.list(root, "list the checkpoint")
        }
        self._download(
            {path: file for path, file in files.items() if path in checkpoint.paths}, is_over
        )
        # An output in the checkpoint is not among the uploaded outputs yet.
        for path in checkpoint.paths:
            self._ignored.pop(path, None)

    @property
    def _checkpoints(self) -> Place:
        return self.orders.checkpoints.below(s3_layout.checkpoints_of(self.number))

    # -- files on this machine ---------------------------------------------------------------------

    def _local_path(self, path: str) -> str:
        return os.path.join(self.folder, *path.split("/"))

    def _files(self, texts: tuple[str, ...]) -> Iterator[tuple[str, FileState]]:
        """Yield (path, state) of the files that match. Links to folders are not followed."""
        seen: set[str] = set()
        for glob in globs(texts):
            for path, state in self._candidates(glob):
                if path not in seen and glob.matches(path):
                    seen.add(path)
                    yield path, state

    def _candidates(self, glob: Glob) -> Iterator[tuple[str, FileState]]:
        if glob.is_plain and not os.path.isdir(self._local_path(glob.text)):
            yield from _regular_file(self._local_path(glob.text), glob.text)
            return
        top = glob.text if glob.is_plain else glob.folder
        root = self._local_path(top) if top else self.folder
        for folder, subfolders, names in os.walk(root):
            if glob.stays_in_folder:
                subfolders.clear()
            relative = os.path.relpath(folder, self.folder)
            for name in names:
                path = name if relative == "." else f"{relative}/{name}"
                yield from _regular_file(os.path.join(folder, name), path)


def _regular_file(local_path: str, path: str) -> Iterator[tuple[str, FileState]]:
    try:
        status = os.stat(local_path)
    except OSError:
        return  # deleted, or a link to nothing
    if stat.S_ISREG(status.st_mode):
        yield path, _file_state(status)


def _file_state(status: os.stat_result) -> FileState:
    return FileState(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
