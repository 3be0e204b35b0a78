"""Tables as plain text. Apart from `render`, so that commands without runs load no engine."""

from __future__ import annotations

from collections.abc import Sequence

import click


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()
) -> list[str]:
    """Return the lines of a table; the columns with the indexes in ``right`` are right-aligned."""
    all_rows = [head, *rows]
    widths = [max(len(click.unstyle(row[i])) for row in all_rows) for i in range(len(head))]
    lines = []
    for row in all_rows:
        cells = []
        for i, cell in enumerate(row):
            space = " " * (widths[i] - len(click.unstyle(cell)))
            cells.append(space + cell if i in right else cell + space)
        lines.append("  ".join(cells).rstrip())
    return lines
