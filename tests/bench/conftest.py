"""Where the endpoint and the lab of the other tests are."""

from __future__ import annotations

import sys
from pathlib import Path

for _folder in ("emulator", "cloud"):
    sys.path.insert(0, str(Path(__file__).parents[1] / _folder))
