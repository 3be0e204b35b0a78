"""docs/design.md is true: its map of the code names every module."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Folders with several modules of one kind, which the map names as a whole.
OF_ONE_KIND = (
    "bench/workloads/",
    "cli/",
    "doctor/checks/",
    "doctor/host/checks/",
    "doctor/template/checks/",
)


def test_the_map_of_the_code_names_every_module() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    listing = page[page.index("## The modules") : page.index("## How a pipeline flows")]
    source = ROOT / "src" / "batchyard"
    modules = [path.relative_to(source).with_suffix("") for path in sorted(source.rglob("*.py"))]
    unnamed = [
        module.as_posix()
        for module in modules
        if not module.name.startswith("__")
        and not module.as_posix().startswith(OF_ONE_KIND)
        and not re.search(rf"\b{re.escape(module.name)}\b", listing)
    ]
    assert unnamed == []
