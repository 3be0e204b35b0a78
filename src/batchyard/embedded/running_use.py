"""The file with what the attempts that run now have used so far."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from batchyard.sampling import samples
from batchyard.sampling.samples import AttemptUse


def to_text(uses: Sequence[AttemptUse]) -> str:
    """Return the text of the file."""
    rows = [[*running[:-1], samples.to_json(running.use)] for running in uses]
    return json.dumps(rows, separators=(",", ":"))


def read(path: Path) -> list[AttemptUse]:
    """Return what running attempts use; none if nobody has written it."""
    try:
        return [
            AttemptUse(step, index, attempt, use)
            for step, index, attempt, document in json.loads(path.read_text())
            if (use := samples.from_json(document)) is not None
        ]
    except (OSError, ValueError, TypeError):  # no file, or one of another version
        return []
