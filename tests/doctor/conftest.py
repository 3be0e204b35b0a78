"""The tests at the endpoint use the harness of the emulator's own tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "emulator"))
