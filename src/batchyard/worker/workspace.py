"""A child's folder: what is fetched into it, what it gives back, what is saved of it when the machine is taken away."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from batchyard import s3_layout
from batchyard.worker.faults import NAME, Fault
from batchyard.worker.globs import Glob, globs, is_safe
from batchyard.worker.moving import Move, Mover
from batchyard.worker.orders import Orders, Place
from batchyard.worker.s3 import Bucket, Found


@dataclass(frozen=True, slots=True)
class State:
    """By which a file that was written again is told from one that was not."""

    size: int
    modified_ns: int
    #: also where a program sets the time back, as tar and cp -p do
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What an earlier attempt saved, whole."""

    #: the command that was cut short
    command: int
    place: Place
    paths: frozenset[str]


@dataclass(slots=True)
class Workspace:
    folder: str
    orders: Orders
    #: the child's number in the step
    number: int
    bucket: Bucket
    mover: Mover
    say: Callable[[str], None]
    #: files that S3 need not be given: it has them, or a command that failed left them
    _known: dict[str, State] = field(default_factory=dict)

    # -- inputs ---------------------------------------------------------------------------------------------------

    def fetch_inputs(self, is_over: Callable[[], bool]) -> None:
        found: dict[str, Found] = {}
        for glob in globs(self.orders.inputs):
            matched = {path: entry for path, entry in self._matched(glob) if not path.endswith("/")}
            if not matched:
                self.say(f"no object matches the input {glob.text} below {self.orders.workspace}")
            found |= matched
        self._fetch(self.orders.workspace, found, is_over)
        # Outputs are often made beside inputs, by the same patterns: what came from S3 need not go back.
        for path in found:
            self._known[path] = _state(os.stat(self._here(path)))

    def _matched(self, glob: Glob) -> Iterator[tuple[str, Found]]:
        """What the pattern matches in S3, by its path. Only what begins as the pattern does is listed."""
        root = self.orders.workspace
        doing = f"list the input {glob.text} in"
        listings: list[Iterable[Found]]
        if glob.is_plain:
            # A key that is a prefix of others is the first of them; then what is below it as a folder.
            first = next(self.bucket.list(root.below(glob.text), doing, most=1), None)
            exact = [first] if first and first.key == root.key + glob.text else []
            listings = [exact, self.bucket.list(root.below(f"{glob.text}/"), doing)]
        else:
            listings = [self.bucket.list(root.below(glob.prefix), doing, flat=glob.stays_in_folder)]
        for listing in listings:
            for entry in listing:
                path = entry.key[len(root.key) :]
                if glob.matches(path):
                    yield path, entry

    def _fetch(self, root: Place, found: dict[str, Found], is_over: Callable[[], bool]) -> None:
        for path in found:
            if not is_safe(path):
                raise Fault(
                    f"the key {path!r} below {root} cannot be a file's path in the workspace; "
                    "give the object another key, or a pattern that leaves it out",
                    NAME,
                )
        moves = [
            Move(root.below(path), self._here(path), one.size, one.etag)
            for path, one in found.items()
        ]
        self.mover.fetch(moves, is_over)

    # -- outputs --------------------------------------------------------------------------------------------------

    def give_outputs(self, is_over: Callable[[], bool]) -> None:
        """Uploads the outputs that have come or changed since they were last looked at."""
        changed = self._changed()
        self._store(self.orders.workspace, changed, is_over)
        self._known |= changed

    def disown_outputs(self) -> None:
        """What a command that failed left is not given back with the outputs of those after it."""
        self._known |= self._changed()

    def _changed(self) -> dict[str, State]:
        return {
            path: state
            for path, state in self._files(self.orders.outputs)
            if self._known.get(path) != state
        }

    def _store(self, root: Place, files: dict[str, State], is_over: Callable[[], bool]) -> None:
        for path in files:
            if not _is_text(path):
                raise Fault(
                    f"the name of the file {path!a} is not UTF-8, and S3 takes no other; rename it",
                    NAME,
                )
        moves = [
            Move(root.below(path), self._here(path), state.size) for path, state in files.items()
        ]
        self.mover.store(moves, is_over)

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def save_checkpoint(self, command: int, attempt: int, is_over: Callable[[], bool]) -> int:
        """Uploads it, and last of all what says that it is whole; gives back the number of files."""
        files = dict(self._files(self.orders.checkpoint))
        # Each in a place of its own: one that was cut short spoils none before it.
        name = s3_layout.checkpoint_name(time.time(), attempt)
        self._store(self._checkpoints.below(s3_layout.checkpoint_files(name)), files, is_over)
        marker = json.dumps({"command": command, "attempt": attempt, "files": sorted(files)})
        marker_place = self._checkpoints.below(s3_layout.checkpoint_marker(name))
        self.bucket.write(marker_place, marker.encode(), "save the checkpoint at")
        return len(files)

    def find_checkpoint(self) -> Checkpoint | None:
        """The newest that is whole."""
        if not self.orders.checkpoint:
            return None
        listed = self.bucket.list(self._checkpoints, "look for a checkpoint in", flat=True)
        newest = s3_layout.newest_checkpoint([entry.key for entry in listed])
        if newest is None:
            return None
        bucket = self._checkpoints.bucket
        marker = Place(bucket, s3_layout.checkpoint_marker(newest))
        document = json.loads(self.bucket.read(marker, "read the checkpoint's record"))
        files = Place(bucket, s3_layout.checkpoint_files(newest))
        return Checkpoint(document["command"], files, frozenset(document["files"]))

    def restore(self, checkpoint: Checkpoint, is_over: Callable[[], bool]) -> None:
        root = checkpoint.place
        listed = {
            one.key[len(root.key) :]: one for one in self.bucket.list(root, "list the checkpoint")
        }
        self._fetch(
            root, {path: one for path, one in listed.items() if path in checkpoint.paths}, is_over
        )
        # A part of an output that was saved so is not in the workspace's own place in S3.
        for path in checkpoint.paths:
            self._known.pop(path, None)

    @property
    def _checkpoints(self) -> Place:
        return self.orders.checkpoints.below(s3_layout.checkpoints_of(self.number))

    # -- this machine ---------------------------------------------------------------------------------------------

    def _here(self, path: str) -> str:
        return os.path.join(self.folder, *path.split("/"))

    def _files(self, texts: tuple[str, ...]) -> Iterator[tuple[str, State]]:
        """The files that the patterns match. Links to files are files; links to folders are not gone into."""
        seen: set[str] = set()
        for glob in globs(texts):
            for path, state in self._candidates(glob):
                if path not in seen and glob.matches(path):
                    seen.add(path)
                    yield path, state

    def _candidates(self, glob: Glob) -> Iterator[tuple[str, State]]:
        if glob.is_plain and not os.path.isdir(self._here(glob.text)):
            yield from _regular(self._here(glob.text), glob.text)
            return
        top = glob.text if glob.is_plain else glob.folder
        root = self._here(top) if top else self.folder
        for where, folders, names in os.walk(root):
            if glob.stays_in_folder:
                folders.clear()
            below = os.path.relpath(where, self.folder)
            for name in names:
                yield from _regular(
                    os.path.join(where, name), name if below == "." else f"{below}/{name}"
                )


def _regular(here: str, path: str) -> Iterator[tuple[str, State]]:
    try:
        found = os.stat(here)
    except OSError:
        return  # gone, or a link to nothing
    if stat.S_ISREG(found.st_mode):
        yield path, _state(found)


def _state(found: os.stat_result) -> State:
    return State(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
