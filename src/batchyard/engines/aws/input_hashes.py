"""Remembers the SHA-256 of input files, so that an unchanged file is not read again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from batchyard.aws.content_files import ContentFile

#: A file that was written to more recently can change once more within the same time stamp.
_SETTLED_NS = 2 * 10**9


class InputHashes:
    """The hashes of the files of one machine, in a JSON file.

    The file is only a memory: if it cannot be read or written, files are hashed again.
    """

    def __init__(self, path: Path, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._path = path
        self._clock_ns = clock_ns
        #: path of a file -> what identifies its state, and its hash
        self._entries: dict[str, list[object]] = {}
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            self._entries = document if isinstance(document, dict) else {}
        except (OSError, ValueError):
            pass

    def recall(self, states: Mapping[Path, os.stat_result]) -> dict[Path, ContentFile]:
        """Return the hashes of the files that have not changed since they were hashed."""
        hashes = {}
        for path, state in states.items():
            entry = self._entries.get(str(path))
            if isinstance(entry, list) and entry[:-1] == _identify(state):
                hashes[path] = ContentFile(str(entry[-1]), state.st_size)
        return hashes

    def remember(
        self, states: Mapping[Path, os.stat_result], hashes: Mapping[Path, ContentFile]
    ) -> None:
        """Store the hashes of files. ``states``: from before the files were hashed."""
        settled_ns = self._clock_ns() - _SETTLED_NS
        entries = {}
        for path, content in hashes.items():
            state = states[path]
            is_settled = max(state.st_mtime_ns, state.st_ctime_ns) < settled_ns
            if is_settled and state.st_size == content.size_bytes:
                entries[str(path)] = [*_identify(state), content.sha256]
        if all(self._entries.get(path) == entry for path, entry in entries.items()):
            return
        # Files of deleted workspaces are forgotten, so that the memory does not grow for ever.
        old_entries = {path: entry for path, entry in self._entries.items() if os.path.exists(path)}
        self._entries = old_entries | entries
        draft = self._path.with_name(f".{self._path.name}-{os.getpid()}")
        try:
            draft.write_text(json.dumps(self._entries), encoding="utf-8")
            draft.replace(self._path)
        except OSError:
            pass


def _identify(state: os.stat_result) -> list[object]:
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
