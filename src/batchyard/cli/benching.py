"""What the commands of `batchyard bench` have in common: what to measure, and writing what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli.options import F, memory
from batchyard.errors import InputError, from_os_error

if TYPE_CHECKING:
    from batchyard.bench.request import Request
    from batchyard.bench.results import Results

SUMMARY = "benchmark-summary.txt"
PAGE = "benchmark.html"


def _sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    if value is None:
        return ()
    parts = value.replace(",", " ").split()
    if not parts or not all(part.isascii() and part.isdigit() and _is_size(part) for part in parts):
        raise click.BadParameter(
            f"{value!r} is no list of sizes; write whole numbers like 1000,5000"
        )
    return tuple(int(part) for part in parts)


def _is_size(digits: str) -> bool:
    from batchyard.bench.workload import MAX_SIZE

    # Python reads no number with thousands of digits.
    return len(digits) < 30 and 0 < int(digits) <= MAX_SIZE


_OPTIONS = [
    click.option(
        "--only",
        multiple=True,
        metavar="NAME",
        help="A workload, or a pattern like 'conv*'; may be repeated.",
    ),
    click.option(
        "--sizes", callback=_sizes, metavar="N,N,...", help="Instead of each workload's own sizes."
    ),
    click.option("--quick", is_flag=True, help="Small sizes, few repeats: shows that it works."),
    click.option(
        "--out",
        default="benchmark",
        metavar="DIR",
        help="Where the results go.  [default: benchmark]",
    ),
    click.option(
        "--all-candidates",
        is_flag=True,
        help="Measure and show every way to do it, not only the fastest.",
    ),
    click.option(
        "--workload",
        "files",
        multiple=True,
        metavar="FILE.py",
        help="A workload of your own; may be repeated.",
    ),
    click.option(
        "--images", metavar="DIR", help="Pictures for the workload `images`, instead of made ones."
    ),
    click.option(
        "--memory",
        "memory_mib",
        callback=memory,
        metavar="AMOUNT",
        help="Of the machine's memory, at most so much, like 16GiB: larger sizes are skipped.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(1, 4096),
        help="Threads on the CPU, instead of one for each CPU.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0),
        default=0,
        help="Of the inputs; equal seeds, equal inputs.",
    ),
    click.option(
        "--plain-malloc",
        is_flag=True,
        help="Let malloc return large buffers to the system, as it does by default.",
    ),
]


def measuring_options(function: F) -> F:
    """What to measure, and how: of `run`, here, and of `submit`, in the jobs."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def request_of(out: str, images: str | None, files: Sequence[str], **given: Any) -> Request:
    from batchyard.bench.request import Request

    return Request(
        out=Path(out),
        images=None if images is None else Path(images),
        files=tuple(Path(path) for path in files),
        **given,
    )


def write(path: Path, text: str, doing: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        error = from_os_error(exc, doing, path)
        error.hint = "name another place with --out"
        raise error from exc


def page_of(found: Sequence[Results]) -> str:
    from batchyard.bench import page

    return page.page(found, int(time.time() * 1000))


def refuse_unknown_workloads(request: Request) -> None:
    """Before anything is submitted, if NumPy is here to read ours; a user's own files are not executed here."""
    if request.files or not request.only:
        return
    try:
        from batchyard.bench import loading

        ours = loading.ours()
    except ImportError:
        return
    chosen = loading.select(ours, request.only)
    lacking = [
        kind.upper() for kind in ("cpu", "gpu") if not any(kind in one.kinds for one in chosen)
    ]
    if lacking:
        raise InputError(
            f"none of what was asked for runs on a {' or '.join(lacking)}, so there is nothing to compare",
            hint="choose others with --only",
        )
