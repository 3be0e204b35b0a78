"""The files that scripts write, print and run, found again under whatever name. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

#: where a program is looked for by its bare name
BIN = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
#: folders that are there on every node, though no script made them
_FOLDERS = frozenset(
    {"/", "/etc", "/etc/ecs", "/etc/docker", "/etc/systemd/system", "/opt", "/root", "/tmp", *BIN}
)


@dataclass(frozen=True, slots=True)
class File:
    """Text that a script wrote, or hands on; ``line`` is where it stands."""

    content: str
    line: int


class Disk:
    """What lies there by path, and where the shell is: at first in /, as cloud-init's scripts are."""

    def __init__(self, files: dict[str, File]) -> None:
        self.files = files
        self.folder = "/"

    def go(self, folder: str) -> None:
        self.folder = self.path(folder) if folder not in ("-", "~", "") else "${HOME}"

    def path(self, name: str) -> str:
        if not name or name.startswith(("/dev/", "$", "~")):
            return name
        return posixpath.normpath(posixpath.join(self.folder, name))

    def inside(self, target: str, source: str) -> str:
        """What cp and mv make of their last word: a folder keeps the name of what is put into it."""
        path = self.path(target)
        is_folder = (
            target.endswith("/")
            or path in _FOLDERS
            or any(known.startswith(f"{path}/") for known in self.files)
        )
        return posixpath.join(target, posixpath.basename(source)) if is_folder else target

    def matching(self, pattern: str) -> list[str]:
        """The paths that a pattern of the shell stands for."""
        if not {"*", "?", "["} & set(pattern) or len(pattern) > 500:
            return []
        path = self.path(pattern)
        depth = path.count("/")
        return sorted(
            known for known in self.files if known.count("/") == depth and fnmatchcase(known, path)
        )

    def below(self, folder: str) -> list[str]:
        start = self.path(folder).rstrip("/") + "/"
        return sorted(known for known in self.files if known.startswith(start))

    def program(self, name: str, folders: Iterable[str]) -> str | None:
        """The path of a file that is run by its bare name."""
        return next(
            (path for folder in (*folders, *BIN) if (path := f"{folder}/{name}") in self.files),
            None,
        )

    def find(self, name: str) -> File | None:
        """By its path; where a part of the path is not known, by its last part, if there is only one such file."""
        path = self.path(name)
        if path in self.files:
            return self.files[path]
        if found := self.matching(name):
            return self.files[found[0]]
        last = posixpath.basename(path)
        alike = [known for known in self.files if last and posixpath.basename(known) == last]
        alike = [known for known in alike if not (_is_known(known) and _is_known(path))]
        return self.files[alike[0]] if len(alike) == 1 else None


def _is_known(path: str) -> bool:
    return path.startswith("/") and "$" not in path
