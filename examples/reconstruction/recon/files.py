"""The paths of all files of the example, and the functions that read and write them.

Each projection and each slice has its own file. The files are therefore the same however the work
is divided into commands and children, and however often a command is repeated. Files are written
atomically: a file exists completely or not at all.
"""

from __future__ import annotations

import io
import json
import os
import struct
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .scan import InputError


@dataclass(frozen=True, slots=True)
class Work:
    """The folder that all steps read from and write to."""

    root: Path

    @property
    def scan(self) -> Path:
        return self.root / "raw" / "scan.json"

    def raw(self, kind: str) -> Path:
        return self.root / "raw" / f"{kind}.npy"

    @property
    def truth(self) -> Path:
        return self.root / "truth" / "truth.json"

    def corrected(self, turn: int) -> Path:
        return self.root / "corrected" / f"projection-{turn:04d}.npy"

    def filtered(self, number: int) -> Path:
        return self.root / "filtered" / f"sinogram-{number:04d}.npy"

    @property
    def centre(self) -> Path:
        return self.root / "calibration" / "centre.json"

    def slice_values(self, number: int) -> Path:
        return self.root / "slices" / f"slice-{number:04d}.npy"

    def slice_picture(self, number: int) -> Path:
        return self.root / "slices" / f"slice-{number:04d}.png"

    @property
    def figure(self) -> Path:
        return self.root / "figure" / "reconstruction.png"

    @property
    def summary(self) -> Path:
        return self.root / "figure" / "summary.json"


def write_bytes(path: Path, content: bytes) -> None:
    """Write a temporary file and rename it, so that no reader ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_array(path: Path, array: np.ndarray) -> None:
    content = io.BytesIO()
    np.save(content, array)
    write_bytes(path, content.getvalue())


def read_array(path: Path) -> np.ndarray:
    """Map the array into memory: a step that needs one slice of a file reads only that slice."""
    try:
        return np.load(path, mmap_mode="r")
    except FileNotFoundError:
        raise _missing(path) from None


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _missing(path) from None


def grey_png(image: np.ndarray, black: float, white: float) -> bytes:
    """Return an image as an 8-bit greyscale PNG.

    The PNG is written without a picture library, which every small command would have to import.
    """
    grey = np.clip((image - black) * (255 / (white - black)) + 0.5, 0, 255).astype(np.uint8)
    height, width = grey.shape
    lines = np.zeros(
        (height, width + 1), dtype=np.uint8
    )  # each line starts with filter type 0: none
    lines[:, 1:] = grey
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(kind, body) for kind, body in chunks)


def _png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _missing(path: Path) -> InputError:
    return InputError(f"{path} is not there; the step that writes it must run before this one")
