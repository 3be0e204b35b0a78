"""docs/README.md leads to every page of the folder, and to every how-to."""

from __future__ import annotations

import re

from test_docs import DOCS


def test_every_page_is_in_the_table() -> None:
    rows = [
        line
        for line in (DOCS / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| [")
    ]
    links = [link for row in rows for link in re.findall(r"\]\(([^)#]+)\)", row)]
    pages = [*DOCS.glob("*.md"), *DOCS.glob("how-to/*.md")]
    names = {str(page.relative_to(DOCS)) for page in pages} - {"README.md"}
    assert sorted(link for link in links if not link.startswith("../")) == sorted(names)
