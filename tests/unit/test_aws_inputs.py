"""Inputs that neither the workspace nor a step before gives."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from batchyard import plan as planning
from batchyard.engines.aws import inputs
from batchyard.errors import BadInput
from batchyard.pipeline_file import reading
from batchyard.worker.globs import globs

PIPELINE = """\
name: p
image: x
steps:
  - {name: make, command: 'true', inputs: [raw], outputs: ["work/cut/*.txt", log]}
  - {name: middle, needs: [make], command: 'true'}
  - {name: use, needs: [middle], command: 'true', inputs: [INPUT]}
  - {name: beside, command: 'true', outputs: ["beside/**"]}
"""


def require(folder: Path, pattern: str, only: str | None = None) -> None:
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE.replace("INPUT", f'"{pattern}"'))
    inputs.require(planning.make(reading.load(file, {}), only=only), folder)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name in ("raw/1.txt", "other/a.dat", ".batchyard/hidden.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "pattern",
    ["raw", "raw/*.txt", "./raw/1.txt", "**", "other/**", "work/cut/7.txt", "work/**", "work", "*/cut/?.txt", "log/x"],
)
def test_what_is_here_or_may_come_from_a_step_before_is_fine(workspace: Path, pattern: str) -> None:
    require(workspace, pattern)


@pytest.mark.parametrize(
    "pattern",
    ["rwa/*.txt", "raw/*.dat", "raw/2.txt", "work/out/*.txt", "work/cut/a.dat", "logs", "beside/x", "hidden.txt"],
)
def test_what_nothing_gives_is_refused(workspace: Path, pattern: str) -> None:
    with pytest.raises(BadInput) as caught:
        require(workspace, pattern)
    assert f"step 'use': no file here matches the input {pattern}, and no step before it gives it" in str(caught.value)
    assert "'make'" not in str(caught.value) and str(workspace) in str(caught.value)


def test_a_step_alone_needs_its_files_here(workspace: Path) -> None:
    with pytest.raises(BadInput, match="no file here matches"):
        require(workspace, "work/cut/7.txt", only="use")
    (workspace / "work" / "cut").mkdir(parents=True)
    (workspace / "work" / "cut" / "7.txt").write_text("")
    require(workspace, "work/cut/7.txt", only="use")


def test_patterns_that_meet_are_never_taken_for_apart() -> None:
    """All small patterns against all small paths."""
    names = ["a", "b", "ab", "a*", "*b", "?", "[ab]", "[!a]b", "**", "a**"]
    texts = ["/".join(parts) for count in (1, 2, 3) for parts in product(names, repeat=count)][:400]
    paths = ["/".join(parts) for count in (1, 2, 3) for parts in product(("a", "b", "ab", "bb"), repeat=count)]
    patterns = globs(texts)
    matched = [frozenset(path for path in paths if one.matches(path)) for one in patterns]
    apart = 0
    for one, mine in zip(patterns, matched, strict=True):
        for other, its in zip(patterns, matched, strict=True):
            if not inputs.may_meet(one, other):
                apart += 1
                assert mine.isdisjoint(its), (one.text, other.text)
    assert apart > len(patterns)  # it does tell some apart
