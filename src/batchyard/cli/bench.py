"""`batchyard bench run`, `compare` and `report`; the others are in ``bench_*``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli import bench_command, bench_options, bench_submit
from batchyard.cli.options import example

if TYPE_CHECKING:
    from rich.progress import Progress

    from batchyard.bench.result_files import ResultFiles
    from batchyard.bench.results import Measurement, Results


@click.group(
    epilog=example(
        "batchyard bench run --quick",
        "batchyard bench run --device gpu --out results",
        "batchyard bench compare results/cpu-benchmark.json results/gpu-benchmark.json",
        "batchyard bench report results",
        "batchyard bench submit --env lab --gpu-type g5.xlarge",
        "batchyard bench command -- python train.py --steps 100",
    )
)
def command() -> None:
    """Measure the same work on CPU and GPU, and compare times and prices."""


command.add_command(bench_submit.command, "submit")
command.add_command(bench_command.command, "command")


# -- run --


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
    help="Device to measure; auto: both, if there is a GPU (default: auto).",
)
@bench_options.measuring_options
@click.option(
    "--instance-type",
    metavar="TYPE",
    help="EC2 instance type of this machine (default: from the metadata service).",
)
@click.option(
    "--stand-in",
    is_flag=True,
    help="If there is no GPU, measure the CPU in its place, and label the results so.",
)
def run(device: str, **fields: Any) -> int:
    """Measure workloads on this machine, and write the results as text, JSON and CSV.

    The files are cpu-benchmark and gpu-benchmark in the folder for the results. They are written
    after each operation: an interrupt loses only the operation that is being measured. Exits with 1
    if a result is wrong.
    """
    from batchyard.bench.interrupts import StopSignals
    from batchyard.bench.request import run_request

    request = bench_options.make_request(device=device, **fields)
    progress = BarProgress() if sys.stderr.isatty() else LineProgress()
    failure_count = 0

    def show_results(files: ResultFiles, results: Results) -> None:
        nonlocal failure_count
        failure_count += results.failure_count
        progress.close()
        click.echo(files.text_path.read_text(encoding="utf-8"))
        click.echo(f"written: {files.text_path}, .json and .csv")

    # SIGTERM too: it ends a container, and comes before a spot host is reclaimed.
    stop_signals = StopSignals()
    stop_signals.install()
    try:
        run_request(request, os.environ, progress, show_results, stop_signals.raise_if_requested)
    except KeyboardInterrupt:
        stop_signals.finish()
        progress.close()
        if progress.files is not None:
            click.echo(f"stopped; what was measured is in {progress.files.text_path}", err=True)
        return 130
    finally:
        progress.close()
    return 1 if failure_count else 0


class LineProgress:
    """Prints one line per operation to stderr."""

    def __init__(self) -> None:
        self.files: ResultFiles | None = None
        self._operations = self._number = 0

    def say(self, line: str) -> None:
        click.echo(line, err=True)

    def on_plan(self, files: ResultFiles, operations: int) -> None:
        self.files, self._operations, self._number = files, operations, 0

    def on_start(self, operation: str) -> None: ...

    def on_done(self, measurement: Measurement) -> None:
        self._number += 1
        self.say(f"{self._number}/{self._operations} {_summary_line(measurement)}")

    def close(self) -> None: ...


class BarProgress(LineProgress):
    """Shows a progress bar with the current operation, below the lines of the finished ones."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Progress | None = None

    def say(self, line: str) -> None:
        if self._bar is None:
            super().say(line)
        else:
            self._bar.console.print(line, markup=False, highlight=False)

    def on_plan(self, files: ResultFiles, operations: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        super().on_plan(files, operations)
        columns = (
            BarColumn(30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
        )
        # No automatic refresh: a thread that draws would disturb the measurement.
        self._bar = Progress(
            *columns, console=Console(stderr=True), transient=True, auto_refresh=False
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


def _summary_line(measurement: Measurement) -> str:
    from batchyard.bench.tables import percent_text, rate_text, time_text

    if measurement.median_s is None:
        return f"{measurement.operation}: {measurement.outcome.value}: {measurement.reason}"
    parts = [f"{time_text(measurement.median_s)} ({measurement.candidate})"]
    if measurement.spread is not None:
        parts.append(f"spread {percent_text(measurement.spread)}")
    return f"{measurement.operation}: {', '.join([*parts, rate_text(measurement)])}"


# -- compare --


@command.command(
    epilog=example(
        "batchyard bench compare cpu-benchmark.json gpu-benchmark.json",
        "batchyard bench compare a.json b.json --a-type c7i.4xlarge --b-type g5.xlarge --spot",
        "batchyard bench compare a.json b.json --price g5.xlarge=0.82",
    )
)
@click.argument("a", metavar="A.json", type=click.Path(path_type=Path))
@click.argument("b", metavar="B.json", type=click.Path(path_type=Path))
@click.option("--prices", is_flag=True, help="List the prices of both types on demand and on spot.")
@bench_options.price_options
@click.option(
    "--a-type", default="", metavar="TYPE", help="Instance type of A (default: from the file)."
)
@click.option(
    "--b-type", default="", metavar="TYPE", help="Instance type of B (default: from the file)."
)
@click.option(
    "--out",
    default="benchmark-summary.txt",
    metavar="FILE",
    help="File for the comparison (default: benchmark-summary.txt).",
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
    """Compare two results: times, speed-up, dollars per 1,000 operations, and which to pick.

    Also shows from which size the GPU is cheaper, and from which it is faster. A speed-up includes
    the copies to the GPU and back. A price that is not known is shown as ?. Region and date of the
    prices are below the table.
    """
    from batchyard import ec2_prices
    from batchyard.bench import comparing, reports, result_files, tables

    known_prices = ec2_prices.add_prices(ec2_prices.load_prices(spot=spot), price)
    comparison = comparing.compare(
        result_files.read(a), result_files.read(b), known_prices, a_type, b_type
    )
    types = (side.instance_type for side in (comparison.first, comparison.second))
    price_lines = ec2_prices.list_prices(filter(None, types)) if prices else []
    text = tables.comparison_text(comparison, known_prices.source, price_lines)
    click.echo(text, nl=False)
    reports.write_summary(Path(out), text)
    click.echo(f"written: {out}", err=True)


# -- report --


@command.command(
    epilog=example(
        "batchyard bench report results",
        "batchyard bench report results --cpu-type c7i.4xlarge --gpu-type g5.xlarge --spot",
        "batchyard bench report results --price g5.xlarge=0.82 --out bench.html",
    )
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@bench_options.price_options
@click.option(
    "--cpu-type",
    default="",
    metavar="TYPE",
    help="Instance type of the CPU results (default: from the files).",
)
@click.option(
    "--gpu-type",
    default="",
    metavar="TYPE",
    help="Instance type of the GPU results (default: from the files).",
)
@click.option(
    "--out",
    metavar="FILE.html",
    help="File for the page; `-` is stdout (default: DIR/benchmark.html).",
)
def report(
    folder: Path,
    spot: bool,
    price: tuple[str, ...],
    cpu_type: str,
    gpu_type: str,
    out: str | None,
) -> None:
    """Write one HTML page with charts of all results in a folder, and print its path.

    The page contains everything it needs, and can be opened without a network.
    """
    from batchyard import ec2_prices
    from batchyard.bench import reports, result_files

    known_prices = ec2_prices.add_prices(ec2_prices.load_prices(spot=spot), price)
    types = {"cpu": cpu_type, "gpu": gpu_type}
    all_results = [results.on_type(types) for _, results in result_files.read_folder(folder)]
    if out == "-":
        click.echo(reports.make_page(all_results, known_prices), nl=False)
        return
    path = folder / reports.PAGE if out is None else Path(out)
    reports.write_page(path, all_results, known_prices)
    click.echo(os.fsencode(path))
