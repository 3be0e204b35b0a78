"""The examples of workloads in the documentation are measured as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench_yard import batchyard, read

from only_numpy import hide_other_libraries

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "benchmark.md"
HOW_TO = DOCS / "how-to" / "add-a-workload.md"


@pytest.mark.parametrize(
    ("page", "name", "line", "sizes"),
    [
        (PAGE, "distances.py", "Distances of all pairs, 400", [200, 400]),
        (HOW_TO, "row_norms.py", "Norms of rows, 512 x 512", [256, 512]),
    ],
    ids=["benchmark", "how-to"],
)
def test_an_example_of_a_workload_can_be_measured(
    tmp_path: Path, page: Path, name: str, line: str, sizes: list[int]
) -> None:
    text = page.read_text(encoding="utf-8")
    match = re.search(rf"(?ms)^```python {re.escape(name)}\n(.*?)^```$", text)
    assert match
    (tmp_path / name).write_text(match[1], encoding="utf-8")
    hide_other_libraries(tmp_path)
    args = ("bench", "run", "--device", "cpu", "--quick", "--workload", name, "--out", "mine")
    assert line in batchyard(tmp_path, *args).stdout
    measurements = read(tmp_path / "mine" / "cpu-benchmark.json")["measurements"]
    outcomes = [(measurement["size"], measurement["outcome"]) for measurement in measurements]
    assert outcomes == [(size, "ok") for size in sizes]


def test_every_workload_is_on_the_page(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    message = batchyard(tmp_path, "bench", "run", "--device", "cpu", "--only", "zzz", code=2).stderr
    names = message.rpartition("there are ")[2].strip().split(", ")
    assert len(names) >= 10
    assert not [name for name in names if f"`{name}`" not in text]


def test_it_is_installed_from_a_clone() -> None:
    """The package is on no index."""
    text = PAGE.read_text(encoding="utf-8")
    assert "pip install '.[bench]'" in text and "batchyard[" not in text
