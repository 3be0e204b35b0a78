"""Lets the tests of this folder import the soak's own modules, and what those import."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "emulator"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cloud"))
sys.path.insert(0, str(Path(__file__).parent))
