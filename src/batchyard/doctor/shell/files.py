"""The files that scripts write, print and run, and the current folder of the shell. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

#: folders in which a program is looked up by its bare name
BIN = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: folders that exist on every node, though no script made them
_FOLDERS = frozenset(
    {"/", "/etc", "/etc/ecs", "/etc/docker", "/etc/systemd/system", "/opt", "/root", "/tmp", *BIN}
)


@dataclass(frozen=True, slots=True)
class File:
    """Text that a script wrote or passes on; ``line`` is its first line in the user data."""

    content: str
    line: int


class FileSystem:
    """The files by their paths. The current folder is / at first, as for cloud-init's scripts."""

    def __init__(self, files: dict[str, File]) -> None:
        self.files = files
        self.folder = "/"

    def change_folder(self, folder: str) -> None:
        self.folder = self.absolute(folder) if folder not in ("-", "~", "") else "${HOME}"

    def absolute(self, name: str) -> str:
        """Return the absolute path; a name in /dev, or that starts with $ or ~, is unchanged."""
        if not name or name.startswith(("/dev/", "$", "~")):
            return name
        return posixpath.normpath(posixpath.join(self.folder, name))

    def copy_target(self, target: str, source: str) -> str:
        """Return the path that cp and mv write: in a folder, the copy is named as the source."""
        path = self.absolute(target)
        is_folder = (
            target.endswith("/")
            or path in _FOLDERS
            or any(file_path.startswith(f"{path}/") for file_path in self.files)
        )
        return posixpath.join(target, posixpath.basename(source)) if is_folder else target

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that match a shell pattern; none if the text is not a pattern."""
        if not {"*", "?", "["} & set(pattern) or len(pattern) > 500:
            return []
        path = self.absolute(pattern)
        depth = path.count("/")
        return sorted(
            file_path
            for file_path in self.files
            if file_path.count("/") == depth and fnmatchcase(file_path, path)
        )

    def list_below(self, folder: str) -> list[str]:
        start = self.absolute(folder).rstrip("/") + "/"
        return sorted(path for path in self.files if path.startswith(start))

    def find_program(self, name: str, folders: Iterable[str]) -> str | None:
        """Return the path of the file that is run by this bare name."""
        paths = (f"{folder}/{name}" for folder in (*folders, *BIN))
        return next((path for path in paths if path in self.files), None)

    def find(self, name: str) -> File | None:
        """Return the file with this path.

        If a part of the path is unknown, return the only file with the same last part, if any.
        """
        path = self.absolute(name)
        if path in self.files:
            return self.files[path]
        if matches := self.glob(name):
            return self.files[matches[0]]
        last_part = posixpath.basename(path)
        candidates = [
            file_path
            for file_path in self.files
            if last_part
            and posixpath.basename(file_path) == last_part
            and not (_is_complete(file_path) and _is_complete(path))
        ]
        return self.files[candidates[0]] if len(candidates) == 1 else None


def _is_complete(path: str) -> bool:
    return path.startswith("/") and "$" not in path
