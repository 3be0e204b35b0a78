"""The workload that docs/benchmark.md shows as an example of one's own is measured as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from bench_yard import batchyard, read

PAGE = Path(__file__).parents[2] / "docs" / "benchmark.md"


def test_the_example_of_a_workload_of_ones_own(tmp_path: Path) -> None:
    match = re.search(
        r"(?ms)^```python distances\.py\n(.*?)^```$", PAGE.read_text(encoding="utf-8")
    )
    assert match
    (tmp_path / "distances.py").write_text(match[1], encoding="utf-8")
    args = (
        "bench",
        "run",
        "--device",
        "cpu",
        "--quick",
        "--workload",
        "distances.py",
        "--out",
        "mine",
    )
    assert "Distances of all pairs, 400" in batchyard(tmp_path, *args).stdout
    measurements = read(tmp_path / "mine" / "cpu-benchmark.json")["measurements"]
    assert [(one["size"], one["outcome"]) for one in measurements] == [(200, "ok"), (400, "ok")]


def test_every_workload_is_on_the_page(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    said = batchyard(tmp_path, "bench", "run", "--device", "cpu", "--only", "zzz", code=2).stderr
    names = said.rpartition("there are ")[2].strip().split(", ")
    assert len(names) >= 10
    assert not [name for name in names if f"`{name}`" not in text]


def test_it_is_installed_from_a_clone() -> None:
    """The package is on no index."""
    text = PAGE.read_text(encoding="utf-8")
    assert "pip install '.[bench]'" in text and "batchyard[" not in text
