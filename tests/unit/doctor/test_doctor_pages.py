"""Every finding has its page, and every page its finding."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from batchyard.doctor.kinds import BY_ID

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {path.stem: path for path in (DOCS / "findings").glob("BY*.md")}


def test_every_finding_has_a_page_and_every_page_a_finding() -> None:
    assert set(PAGES) == set(BY_ID)


@pytest.mark.parametrize("kind", BY_ID)
def test_a_page_says_what_is_checked_what_it_means_and_what_to_do(kind: str) -> None:
    text = PAGES[kind].read_text(encoding="utf-8")
    assert text.startswith(f"# {kind}: ")
    assert BY_ID[kind].title in text
    assert f"Severity: {BY_ID[kind].severity}" in text
    for heading in ("## What it means", "## How to see it", "## What to do"):
        body = text.partition(heading)[2].partition("\n## ")[0]
        assert len(body.strip()) >= 15, f"{kind}: {heading} is nearly empty"


def test_the_index_lists_every_page_with_its_title() -> None:
    text = (DOCS / "doctor.md").read_text(encoding="utf-8")
    listed = dict(
        re.findall(
            r"^\| \[(BY\d{3})\]\(findings/BY\d{3}\.md\) \| \w+ \| (.+?) \|$", text, re.MULTILINE
        )
    )
    assert listed == {kind.id: kind.title for kind in BY_ID.values()}


@pytest.mark.parametrize(
    "file", ["src/batchyard/doctor/checks/queues/disabled.py", "tests/doctor/cases/BY002.json"]
)
def test_the_how_to_page_shows_a_finding_as_it_is(file: str) -> None:
    page = (DOCS / "how-to" / "add-a-finding.md").read_text(encoding="utf-8")
    assert (DOCS.parent / file).read_text(encoding="utf-8") in page
