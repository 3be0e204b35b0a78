"""`batchyard report`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from batchyard import report
from batchyard.cli.options import example, find_run, home_option, run_argument, run_env_option
from batchyard.errors import from_os_error


@click.command(
    epilog=example(
        "batchyard report last",
        "batchyard report last --out report.html",
        "batchyard report demo-20250131-4f1c2a --out - | ssh host 'cat > report.html'",
    )
)
@run_argument
@click.option(
    "--out",
    metavar="FILE",
    help="File to write (default: RUN.html in the current folder); `-` is stdout.",
)
@run_env_option
@home_option
def command(run: str, out: str | None, env: str | None, home: str | None) -> None:
    """Write an HTML page about a run: steps, timeline, durations, failures.

    RUN is an id, the beginning of an id, or `last`. A run that is not over is shown up to now. The
    page is one file that can be opened without a network. Prints the path of the page.
    """
    record = find_run(home, run, env)
    page = report.of_run(record, int(time.time() * 1000)).encode()
    if out == "-":
        click.echo(page, nl=False)
        return
    path = f"{record.run_id}.html" if out is None else out
    try:
        Path(path).write_bytes(page)
    except OSError as exc:
        error = from_os_error(exc, "write the report", path)
        error.hint = "name another file with --out"
        raise error from exc
    click.echo(os.fsencode(path))
