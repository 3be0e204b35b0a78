"""Flags that several commands of `batchyard bench` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli.options import F, memory

if TYPE_CHECKING:
    from batchyard.bench.request import Request


def parse_sizes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """Return the sizes of `--sizes N,N,...`."""
    if value is None:
        return ()
    parts = value.replace(",", " ").split()
    if not parts or not all(map(_is_size, parts)):
        raise click.BadParameter(
            f"{value!r} is no list of sizes; write whole numbers like 1000,5000"
        )
    return tuple(int(part) for part in parts)


def _is_size(text: str) -> bool:
    from batchyard.bench.workload import MAX_SIZE

    # int() refuses numbers with thousands of digits.
    return text.isascii() and text.isdigit() and len(text) < 30 and 0 < int(text) <= MAX_SIZE


_OPTIONS = [
    click.option(
        "--only",
        multiple=True,
        metavar="NAME",
        help="Name or pattern (like 'conv*') of workloads to measure (default: all); repeatable.",
    ),
    click.option(
        "--sizes",
        callback=parse_sizes,
        metavar="N,N,...",
        help="Sizes to measure (default: the sizes of each workload).",
    ),
    click.option(
        "--quick",
        is_flag=True,
        help="Measure small sizes with few repeats, to see that it works.",
    ),
    click.option(
        "--out",
        default="benchmark",
        metavar="DIR",
        help="Folder for the results (default: benchmark).",
    ),
    click.option(
        "--all-candidates",
        is_flag=True,
        help="Measure and show every candidate, not only the fastest.",
    ),
    click.option(
        "--workload",
        "files",
        multiple=True,
        metavar="FILE.py",
        help="File with a workload of your own; repeatable.",
    ),
    click.option(
        "--images",
        metavar="DIR",
        help="Folder of pictures for the workload `images` (default: generated pictures).",
    ),
    click.option(
        "--memory",
        "memory_mib",
        callback=memory,
        metavar="AMOUNT",
        help="Memory of the machine to use at most, like 16GiB; larger sizes are skipped.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(1, 4096),
        help="Threads on the CPU (default: one per CPU).",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0),
        default=0,
        help="Seed of the inputs; equal seeds give equal inputs (default: 0).",
    ),
    click.option(
        "--plain-malloc",
        is_flag=True,
        help="Do not let malloc keep large buffers between calls.",
    ),
]


def price_options(function: F) -> F:
    """Add the flags about prices: --spot and --price."""
    function = click.option(
        "--price",
        multiple=True,
        metavar="TYPE=USD",
        help="Price of an instance type in dollars per hour; repeatable.",
    )(function)
    return click.option(
        "--spot", is_flag=True, help="Use spot prices instead of on-demand prices."
    )(function)


def measuring_options(function: F) -> F:
    """Add the flags about what to measure, and how."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def make_request(out: str, images: str | None, files: Sequence[str], **fields: Any) -> Request:
    """Return the request that the flags describe."""
    from batchyard.bench.request import Request

    return Request(
        out=Path(out),
        images=None if images is None else Path(images),
        files=tuple(Path(path) for path in files),
        **fields,
    )
