"""`batchyard bench submit`: run the benchmark on a CPU queue and a GPU queue of AWS Batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli import bench_options
from batchyard.cli.options import env_option, example, find_run, home_of, home_option
from batchyard.errors import InputError
from batchyard.folder import home_flag

if TYPE_CHECKING:
    from batchyard.engines.base import RunRecord
    from batchyard.status import RunStatus


@click.command(
    epilog=example(
        "batchyard bench submit --env lab --quick",
        "batchyard bench submit --env lab --cpu-type c7i.4xlarge --gpu-type g5.xlarge",
        "batchyard bench submit --run benchmark-20260102-0a1b2c --out results",
    )
)
@env_option
@click.option(
    "--cpu-type",
    default="",
    metavar="TYPE",
    help="Instance type of the CPU queue to measure (default: detected).",
)
@click.option(
    "--gpu-type",
    default="",
    metavar="TYPE",
    help="Instance type of the GPU queue to measure (default: detected).",
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="Container image with Python 3.11 and NumPy (default: PyTorch's, with CUDA).",
)
@click.option("--on-demand", is_flag=True, help="Use on-demand instances instead of spot.")
@click.option(
    "--detach", is_flag=True, help="Return after the submission, and print the id of the run."
)
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    help="Continue this benchmark: wait for it, fetch and compare its results.",
)
@bench_options.measuring_options
@home_option
def command(
    env: str | None,
    cpu_type: str,
    gpu_type: str,
    image: str | None,
    on_demand: bool,
    detach: bool,
    run_id: str | None,
    home: str | None,
    out: str,
    **fields: Any,
) -> int:
    """Measure on AWS Batch, on the CPU queue and the GPU queue, and compare the results.

    One job runs on each queue. The benchmark's code is sent with them, so the image needs only
    Python and NumPy. A queue chooses the instance type: a job requests a whole machine of the type
    to measure, and the result says on which type it ran. With the emulator on this machine and no
    GPU, the CPU stands in for the GPU, and the results are labelled so.
    """
    from batchyard import benchmark_runs

    if run_id is not None:
        record = find_run(home, run_id, env)
        benchmark_runs.require_benchmark(record)
    elif env is None:
        raise InputError(
            "`bench submit` needs an environment",
            hint="name it with --env; `batchyard environments` lists them",
        )
    else:
        request = benchmark_runs.SubmitRequest(
            bench_options.make_request(out=out, **fields),
            home_of(home),
            env,
            {"cpu": cpu_type, "gpu": gpu_type},
            image,
            on_demand,
        )
        record = benchmark_runs.begin(request, _say)
    return submit_and_follow(record, Path(out), detach=detach)


def submit_and_follow(
    record: RunRecord, out: Path, *, detach: bool, prices: Sequence[str] = ()
) -> int:
    """Submit the run, wait for it and show its results. Returns the exit code.

    ``prices``: of the user, each as TYPE=USD.
    """
    from batchyard import benchmark_runs
    from batchyard.cli.following import follow

    flags = home_flag(record.folder, Path.cwd())
    resume = f"`batchyard bench submit --run {record.run_id}{flags}`"
    stop = f"`batchyard stop {record.run_id}{flags}`"
    _say(f"run {record.run_id}")
    try:
        benchmark_runs.submit(record, _say)
    except KeyboardInterrupt:
        _say(f"the submission is not complete; {resume} completes it, {stop} ends the run")
        return 130
    if detach:
        click.echo(record.run_id)
        _say(f"{resume} waits for it, fetches the results and compares them")
        return 0
    try:
        status = follow(record, quiet=False)
    except KeyboardInterrupt:
        _say(f"the benchmark continues; {resume} waits for it and compares; {stop} ends it")
        return 130
    return _show_results(record, status, out, prices)


def _show_results(record: RunRecord, status: RunStatus, out: Path, prices: Sequence[str]) -> int:
    """Fetch, compare and print the results. Returns the run's exit code, or 1 if one is missing."""
    from batchyard import benchmark_runs
    from batchyard.cli import render
    from batchyard.cli.run_results import EXIT_CODES

    code = 3 if status.is_interrupted else EXIT_CODES[status.state]
    if code:
        flags = home_flag(record.folder, Path.cwd())
        lines = render.status_lines(status, int(time.time() * 1000), flags)
        click.echo("\n".join(lines), err=True)
    fetched = benchmark_runs.fetch_results(record, out, _say)
    click.echo(benchmark_runs.write_reports(fetched, out, _say, prices), nl=False)
    return code or (1 if fetched.missing_kinds else 0)


def _say(text: str) -> None:
    click.echo(text, err=True)
