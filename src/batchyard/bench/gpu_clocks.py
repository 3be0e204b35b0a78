"""Read the clocks of the GPU while it is measured, with one nvidia-smi that repeats its query."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from statistics import median
from typing import IO

from batchyard.bench.results import GpuClocks

#: milliseconds between two readings: several in the shortest measurement
_INTERVAL_MS = 150
_FIELDS = ("clocks.sm", "clocks.max.sm")


def make_command(environ: Mapping[str, str]) -> list[str]:
    """Return the nvidia-smi that prints the clocks of the measured GPU again and again."""
    # CUDA's first device is the first of the visible ones.
    visible = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return [
        "nvidia-smi",
        f"--id={visible or 0}",
        f"--query-gpu={','.join(_FIELDS)}",
        "--format=csv,noheader,nounits",
        f"--loop-ms={_INTERVAL_MS}",
    ]


def parse_clocks(text: str) -> GpuClocks | None:
    """Return the clocks in the lines of nvidia-smi; None if no line has a clock.

    A line that was not printed to its end, or is no reading, is ignored.
    """
    readings = [_parse_line(line) for line in text.split("\n")[:-1]]
    numbers = [reading for reading in readings if reading is not None]
    if not numbers:
        return None
    clocks = [clock for clock, _ in numbers]
    return GpuClocks(
        float(median(clocks)), min(clocks), max(highest for _, highest in numbers), len(clocks)
    )


def _parse_line(line: str) -> tuple[float, float] | None:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(_FIELDS) or not cells[0].isdigit():
        return None
    # The highest clock is [N/A] on some virtual GPUs.
    return float(cells[0]), float(cells[1]) if cells[1].isdigit() else 0.0


class ClockLog:
    """The readings of a running nvidia-smi; empty where it cannot be started."""

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                command or make_command(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=self._file,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            pass  # without readings

    def position(self) -> int:
        """Return where the next reading will be."""
        return os.fstat(self._file.fileno()).st_size

    def since(self, position: int) -> GpuClocks | None:
        """Return the clocks since a position; None if there was no reading."""
        text = os.pread(self._file.fileno(), self.position() - position, position)
        return parse_clocks(text.decode("ascii", "replace"))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._file.close()
