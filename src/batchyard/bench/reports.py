"""Write the files that summarise results: the comparison as text, and the HTML page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from batchyard.bench.results import Results
from batchyard.ec2_prices import Prices, load_prices
from batchyard.errors import from_os_error

SUMMARY = "benchmark-summary.txt"
PAGE = "benchmark.html"


def write_summary(path: Path, text: str) -> None:
    """Write the text of a comparison. Raises OperationalError."""
    _write(path, text, "write the summary")


def write_page(path: Path, all_results: Sequence[Results], prices: Prices | None = None) -> None:
    """Write the HTML page about the results. Raises OperationalError."""
    _write(path, make_page(all_results, prices), "write the report")


def make_page(all_results: Sequence[Results], prices: Prices | None = None) -> str:
    """Return the HTML page about the results, with the current time in its footer.

    ``prices``: None for the listed on-demand prices.
    """
    # Not above: it needs modules that are not sent with jobs, which write summaries only.
    from batchyard.bench import page

    return page.page(all_results, int(time.time() * 1000), prices or load_prices())


def _write(path: Path, text: str, action: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        error = from_os_error(exc, action, path)
        error.hint = "name another place with --out"
        raise error from exc
