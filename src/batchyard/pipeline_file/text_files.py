"""Read text files that the user names, with messages for files that cannot be read."""

from __future__ import annotations

import os
import stat
from io import RawIOBase
from pathlib import Path

from batchyard.pipeline_file.mistakes import WHOLE_FILE, Mistakes, place_in
from batchyard.units import quote

_CHUNK_BYTES = 2**20


def read_text(path: Path, mistakes: Mistakes, max_bytes: int) -> str | None:
    """Return the text of a UTF-8 file without its byte order mark.

    Returns None after adding a mistake if the file is too large or not UTF-8. Raises OSError if it
    cannot be read; ``unreadable_problem`` explains the error.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        # A read reserves as much memory as it asks for. The size of a pipe is unknown.
        size = status.st_size if stat.S_ISREG(status.st_mode) else max_bytes
        content = file.read(min(size, max_bytes) + 1)
    if len(content) > max_bytes:
        mistakes.add(WHOLE_FILE, f"the file is larger than {max_bytes // 2**20:,} MiB", "split it")
        return None
    return decode_text(content, mistakes)


def read_stream(stream: RawIOBase, max_bytes: int) -> bytearray:
    """Return what a pipe gives until its end, at most ``max_bytes``.

    Waits for more also if the pipe is set not to block. The memory in use grows with what has come.
    """
    content = bytearray()
    while len(content) < max_bytes:
        chunk = stream.read(min(_CHUNK_BYTES, max_bytes - len(content)))
        if chunk is None:  # nothing has come yet, in a pipe that does not block
            _wait_for_content(stream)
            continue
        if not chunk:
            break
        content += chunk
    return content


def _wait_for_content(stream: RawIOBase) -> None:
    import select

    waiting = select.poll()
    waiting.register(stream, select.POLLIN)
    waiting.poll()


def decode_text(content: bytes | bytearray, mistakes: Mistakes) -> str | None:
    """Return UTF-8 as text without its byte order mark, or None after adding a mistake."""
    try:
        return content.decode("utf-8").lstrip("\ufeff")
    except UnicodeDecodeError as exc:
        valid_part = content[: exc.start].decode("utf-8").lstrip("\ufeff")
        is_utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        mistakes.add(
            place_in(valid_part, len(valid_part)),
            f"the byte 0x{content[exc.start]:02x} is not UTF-8",
            "the file looks like UTF-16: save it as UTF-8"
            if is_utf16
            else "save the file as UTF-8",
        )
        return None


def unreadable_problem(
    path: Path, exc: OSError, mistakes: Mistakes, path_text: str = ""
) -> tuple[str, str]:
    """Return why a file cannot be read, and what to do.

    ``path_text`` is the path as the user wrote it, if that is not ``path``.
    """
    if isinstance(exc, IsADirectoryError):
        return "this is a folder", "name a file in it"
    if not isinstance(exc, FileNotFoundError):
        return f"it cannot be read: {exc.strerror or exc}", "check the path and its permissions"
    folder = Path(path_text).parent if path_text else path.parent
    try:
        file_names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        return "there is no such file", f"check the path: there is no folder {quote_path(folder)}"
    # A high likeness, since any two short names that end in .txt are half alike.
    nearest = mistakes.nearest(path.name, file_names, likeness=0.8)
    suggestion = f"did you mean {quote_path(folder / nearest)}?" if nearest else "check the path"
    return "there is no such file", suggestion


def quote_path(path: Path | str) -> str:
    """Return a path in quotes, in full length: a shortened path is of no use."""
    return quote(str(path), max_length=4096)
