"""`batchyard bench`: run, compare, report; submit is in ``bench_submit``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli import bench_submit, benching
from batchyard.cli.options import example
from batchyard.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress

    from batchyard.bench.book import Book
    from batchyard.bench.results import Measurement, Results, Trial


@click.group(
    epilog=example(
        "batchyard bench run --quick",
        "batchyard bench run --device gpu --out results",
        "batchyard bench compare results/cpu-benchmark.json results/gpu-benchmark.json",
        "batchyard bench report results",
        "batchyard bench submit --env lab --gpu-type g5.xlarge",
    )
)
def command() -> None:
    """Measure the same work on CPU and GPU: is it worth a GPU, and which?"""


command.add_command(bench_submit.command, "submit")


# -- run --------------------------------------------------------------------------------------------------------


@command.command(
    epilog=example(
        "batchyard bench run --quick",
        "batchyard bench run --device cpu --only matmul --sizes 1000,2000 --all-candidates",
        "batchyard bench run --workload mine.py --out results",
    )
)
@click.option(
    "--device",
    default="auto",
    metavar="cpu|gpu|auto",
    help="What to measure; auto: both, if there is a GPU.",
)
@benching.measuring_options
@click.option(
    "--instance-type", metavar="TYPE", help="The EC2 type, where the metadata service does not say."
)
@click.option(
    "--stand-in",
    is_flag=True,
    help="Where there is no GPU, measure the CPU in its place, labelled so.",
)
def run(device: str, **given: Any) -> int:
    """Measure workloads here, and write cpu-benchmark and gpu-benchmark as text, JSON and CSV.

    What was measured is on disk at once: stopping it loses only the operation that is under way. Exits 1 where a
    result is wrong.
    """
    from batchyard.bench.interrupts import StopSignals
    from batchyard.bench.request import fulfil
    from batchyard.bench.results import Outcome

    if device not in ("cpu", "gpu", "auto"):
        raise InputError(f"--device {device}: there is no such device", hint="use cpu, gpu or auto")
    request = benching.request_of(device=device, **given)
    failed = 0
    teller = BarTeller() if sys.stderr.isatty() else LineTeller()

    def done(book: Book, results: Results) -> None:
        nonlocal failed
        failed += sum(one.outcome is Outcome.FAILED for one in _all_tried(results))
        teller.close()
        click.echo(book.text_path.read_text(encoding="utf-8"))
        click.echo(f"written: {book.text_path}, .json and .csv")

    # SIGTERM too: it ends a container, and comes before a spot host is reclaimed.
    stop_signals = StopSignals()
    stop_signals.install()
    try:
        fulfil(request, os.environ, teller, done, stop_signals.raise_if_requested)
    except KeyboardInterrupt:
        stop_signals.finish()
        teller.close()
        if teller.book is not None:
            click.echo(f"stopped; what was measured is in {teller.book.text_path}", err=True)
        return 130
    finally:
        teller.close()
    return 1 if failed else 0


def _all_tried(results: Results) -> Iterator[Measurement | Trial]:
    for measured in results.measurements:
        yield measured
        yield from measured.tried


class LineTeller:
    """A line for each operation, on stderr."""

    def __init__(self) -> None:
        self.book: Book | None = None
        self._operations = self._number = 0

    def say(self, line: str) -> None:
        click.echo(line, err=True)

    def on_plan(self, book: Book, operations: int) -> None:
        self.book, self._operations, self._number = book, operations, 0

    def on_start(self, operation: str) -> None: ...

    def on_done(self, measurement: Measurement) -> None:
        self._number += 1
        self.say(f"{self._number}/{self._operations} {_in_short(measurement)}")

    def close(self) -> None: ...


class BarTeller(LineTeller):
    """A bar with what is being measured; what was measured scrolls by above it."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Progress | None = None

    def say(self, line: str) -> None:
        if self._bar is None:
            super().say(line)
        else:
            self._bar.console.print(line, markup=False, highlight=False)

    def on_plan(self, book: Book, operations: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        super().on_plan(book, operations)
        shown = (
            BarColumn(30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
        )
        # Drawn only when something has happened: a thread that draws would disturb what is measured.
        self._bar = Progress(
            *shown, console=Console(stderr=True), transient=True, auto_refresh=False
        )
        self._bar.start()
        self._bar.add_task("", total=operations)

    def on_start(self, operation: str) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=operation, refresh=True)

    def on_done(self, measurement: Measurement) -> None:
        super().on_done(measurement)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], advance=1, refresh=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _in_short(one: Measurement) -> str:
    from batchyard.bench.tables import percent, rate_text, time_text

    if one.median_s is None:
        return f"{one.operation}: {one.outcome.value}: {one.reason}"
    spread = f", spread {percent(one.spread)}" if one.spread is not None else ""
    return f"{one.operation}: {time_text(one.median_s)} ({one.candidate}){spread}, {rate_text(one)}"


# -- compare ----------------------------------------------------------------------------------------------------


@command.command(
    epilog=example(
        "batchyard bench compare cpu-benchmark.json gpu-benchmark.json --prices",
        "batchyard bench compare a.json b.json --a-type c7i.4xlarge --b-type g5.xlarge --spot",
        "batchyard bench compare a.json b.json --price g5.xlarge=0.82",
    )
)
@click.argument("a", metavar="A.json", type=click.Path(path_type=Path))
@click.argument("b", metavar="B.json", type=click.Path(path_type=Path))
@click.option("--prices", is_flag=True, help="Also say where the prices are from.")
@click.option("--spot", is_flag=True, help="Count with spot prices instead of on-demand ones.")
@click.option(
    "--price", multiple=True, metavar="TYPE=USD", help="Dollars an hour of a type; may be repeated."
)
@click.option(
    "--a-type", default="", metavar="TYPE", help="A's instance type, where the file does not say."
)
@click.option(
    "--b-type", default="", metavar="TYPE", help="B's instance type, where the file does not say."
)
@click.option(
    "--out",
    default=benching.SUMMARY,
    metavar="FILE",
    help=f"Where to write it.  [default: {benching.SUMMARY}]",
)
def compare(
    a: Path,
    b: Path,
    prices: bool,
    spot: bool,
    price: tuple[str, ...],
    a_type: str,
    b_type: str,
    out: str,
) -> None:
    """Compare two results: times, speed-up, dollars per 1,000 operations, which to pick, and from which size.

    A speed-up counts copies to the GPU and back. A price that is not known is shown as ?.
    """
    from batchyard.bench import book, comparing, tables
    from batchyard.bench import prices as price_list

    known = price_list.with_own(price_list.listed(spot=spot), price)
    value = comparing.compare(book.read(a), book.read(b), known, a_type, b_type)
    text = tables.comparison_text(value, known.source, prices=prices)
    click.echo(text, nl=False)
    benching.write(Path(out), text, "write the summary")
    click.echo(f"written: {out}", err=True)


# -- report -----------------------------------------------------------------------------------------------------


@command.command(
    epilog=example(
        "batchyard bench report results", "batchyard bench report results --out bench.html"
    )
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--out",
    metavar="FILE.html",
    help="Where to write the page instead of DIR/benchmark.html; `-` is stdout.",
)
def report(folder: Path, out: str | None) -> None:
    """Write one HTML page with the charts of all results in a folder. Prints the page's path.

    The page needs nothing but itself: it can be mailed, archived, opened without a network.
    """
    from batchyard.bench import book

    text = benching.page_of([results for _, results in book.read_folder(folder)])
    if out == "-":
        click.echo(text, nl=False)
        return
    path = folder / benching.PAGE if out is None else Path(out)
    benching.write(path, text, "write the report")
    click.echo(os.fsencode(path))
