"""`batchyard bench command`: measure a command of the user on CPU and GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli import bench_options, bench_submit
from batchyard.cli.options import env_option, example, home_of, home_option, memory
from batchyard.errors import InputError

if TYPE_CHECKING:
    from batchyard.bench.command_report import Market
    from batchyard.bench.command_request import CommandRequest


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=example(
        "batchyard bench command -- python train.py --steps 100",
        "batchyard bench command --sizes 100,1000 -- python train.py --steps {size}",
        "batchyard bench command --step pipeline.yaml:train --runs 3",
        "batchyard bench command --env lab --image IMAGE --file train.py -- python train.py",
    ),
)
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--step", metavar="FILE:STEP", help="Measure this step of a pipeline file instead of a command."
)
@click.option("--runs", type=int, default=5, metavar="N", help="Runs on each device (default: 5).")
@click.option(
    "--sizes",
    callback=bench_options.parse_sizes,
    metavar="N,N,...",
    help="Sizes to measure; each replaces {size} in the command.",
)
@click.option(
    "--device",
    default="auto",
    metavar="cpu|gpu|auto",
    help="Device on this machine; auto: both, if there is a GPU (default: auto).",
)
@click.option(
    "--out", default="benchmark", metavar="DIR", help="Folder for the results (default: benchmark)."
)
@click.option(
    "--folder", metavar="DIR", help="Folder to run the command in (default: the current one)."
)
@click.option(
    "--cpu-type",
    default="",
    metavar="TYPE",
    help="Instance type of the CPU, for the price (default: detected).",
)
@click.option(
    "--gpu-type",
    default="",
    metavar="TYPE",
    help="Instance type of the GPU, for the price (default: detected).",
)
@click.option(
    "--price",
    multiple=True,
    metavar="TYPE=USD",
    help="Price of an instance type in dollars per hour; repeatable.",
)
@click.option("--stand-in", is_flag=True, help="If there is no GPU, run without one in its place.")
@env_option
@click.option(
    "--image", metavar="IMAGE", help="With --env: container image (default: that of the step)."
)
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="PATH",
    help="With --env: file or folder to send with the jobs, which run among them; repeatable.",
)
@click.option(
    "--memory",
    "memory_mib",
    callback=memory,
    metavar="AMOUNT",
    help="With --env: memory that a job requests at most.",
)
@click.option("--on-demand", is_flag=True, help="With --env: use on-demand instances, not spot.")
@click.option("--detach", is_flag=True, help="With --env: return after the submission.")
@home_option
def command(
    words: tuple[str, ...],
    step: str | None,
    env: str | None,
    out: str,
    folder: str | None,
    cpu_type: str,
    gpu_type: str,
    price: tuple[str, ...],
    on_demand: bool,
    detach: bool,
    files: tuple[str, ...],
    home: str | None,
    **fields: Any,
) -> int:
    """Measure a command of yours on CPU and GPU: seconds, dollars per run, which to take.

    Runs the command several times here, with and without the GPU in turns; or with --env in one
    job on the CPU queue and one on the GPU queue. The environment variable BATCHYARD_DEVICE of the
    command is cpu or gpu. Results are written after each run. Exits with 1 if the command fails.
    """
    from batchyard.bench import command_report
    from batchyard.bench.command_request import CommandRequest

    markets = command_report.load_markets(price)
    request = CommandRequest(
        words,
        out=Path(out),
        folder=None if folder is None else Path(folder),
        files=tuple(map(Path, files)),
        instance_types={"cpu": cpu_type, "gpu": gpu_type},
        **fields,
    )
    if step is not None:
        request = _take_step(request, step)
    if env is None:
        jobs = {"image": fields["image"], "memory": fields["memory_mib"], "file": files}
        _require_env(on_demand=on_demand, detach=detach, **jobs)
        return _measure_here(request, markets)
    if folder is not None or request.device != "auto":
        raise InputError(
            "--folder and --device are for this machine; with --env each device has its job",
            hint="a job runs in the folder of its image, or among the files of --file",
        )
    return _submit(request, home_of(home), env, on_demand, detach, price)


def _take_step(request: CommandRequest, place: str) -> CommandRequest:
    """Return the request with the command of a step. ``place``: FILE:STEP."""
    from batchyard.bench.command_request import request_of_step
    from batchyard.pipeline_file import reading

    if request.words:
        raise InputError("--step and a command cannot both be measured", hint="give one of them")
    path, _, name = place.rpartition(":")
    if not path or not name:
        raise InputError(
            f"--step {place!r} is not of the form FILE:STEP", hint="like --step pipeline.yaml:train"
        )
    return request_of_step(reading.load(Path(path)), name, request)


def _require_env(**flags: Any) -> None:
    """Raise InputError if a flag of jobs is set."""
    for name, value in flags.items():
        if value:
            raise InputError(
                f"--{name.replace('_', '-')} is for jobs on AWS Batch",
                hint="name the environment with --env, or leave the flag out",
            )


def _measure_here(request: CommandRequest, markets: Sequence[Market]) -> int:
    """Measure on this machine and print the report. Returns the exit code."""
    from batchyard.bench import command_report, reports
    from batchyard.bench.command_measuring import measure_command
    from batchyard.bench.interrupts import StopSignals

    stop_signals = StopSignals()
    stop_signals.install()
    try:
        by_kind = measure_command(
            request, os.environ, _say, raise_if_stopped=stop_signals.raise_if_requested
        )
    except KeyboardInterrupt:
        stop_signals.finish()
        _say(f"stopped; what was measured is in {request.out}")
        return 130
    text = command_report.command_text(by_kind, markets)
    click.echo(text, nl=False)
    reports.write_summary(request.out / reports.SUMMARY, text)
    _say(f"written: {request.out / reports.SUMMARY}, and the results as .txt, .json and .csv")
    return 1 if any(results.failure_count for results in by_kind.values()) else 0


def _submit(
    request: CommandRequest,
    home: Path,
    env: str,
    on_demand: bool,
    detach: bool,
    price: tuple[str, ...],
) -> int:
    from batchyard import benchmark_runs

    record = benchmark_runs.begin(
        benchmark_runs.SubmitRequest(
            request, home, env, request.instance_types, request.image, on_demand
        ),
        _say,
    )
    return bench_submit.submit_and_follow(record, request.out, detach=detach, prices=price)


def _say(text: str) -> None:
    click.echo(text, err=True)
