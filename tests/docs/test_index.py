"""docs/README.md leads to every page of the folder."""

from __future__ import annotations

from test_docs import DOCS


def test_every_page_is_in_the_table() -> None:
    rows = [
        line
        for line in (DOCS / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| [")
    ]
    shown = [row.partition("](")[2].partition(")")[0] for row in rows]
    assert sorted(shown) == sorted(
        page.name for page in DOCS.glob("*.md") if page.name != "README.md"
    )
