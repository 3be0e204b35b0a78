"""The files that scripts write, print and run, found again under whatever name. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass


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

    def find(self, name: str) -> File | None:
        """By its path; where a part of the path is not known, by its last part, if there is only one such file."""
        path = self.path(name)
        if path in self.files:
            return self.files[path]
        last = posixpath.basename(path)
        alike = [known for known in self.files if last and posixpath.basename(known) == last]
        alike = [known for known in alike if not (_is_known(known) and _is_known(path))]
        return self.files[alike[0]] if len(alike) == 1 else None


def _is_known(path: str) -> bool:
    return path.startswith("/") and "$" not in path


def printed(name: str, words: tuple[str, ...], line: int, stdin: File | None, disk: Disk) -> File | None:
    """What the few programs that everybody writes files with would print."""
    if name == "echo":
        flags = {"-n", "-e", "-ne", "-en", "-E"}
        texts = [word for at, word in enumerate(words[1:]) if at or word not in flags]
        return File(" ".join(texts).replace("\\n", "\n") + "\n", line)
    if name == "printf" and len(words) > 1:
        text = words[1]
        for value in words[2:]:
            text = text.replace("%s", value, 1) if "%s" in text else f"{text}{value}\n"
        return File(text.replace("\\n", "\n"), line)
    if name == "tee":
        return stdin
    if name == "cat":
        names = [word for word in words[1:] if not word.startswith("-")]
        known = [file for name in names if (file := disk.find(name)) is not None]
        if not names:
            return stdin
        return File("".join(file.content for file in known), known[0].line) if known else None
    return None
