"""`make bench`, part about handing out: how long a list takes beside the lower bound.

A list of sleeps of lognormal length, unknown to the engine, runs with `share_out: static` and
`dynamic`: on this machine, and through the emulator and S3 with workers. The lower bound is the sum
of the sleeps divided by the children, or the longest sleep. The ratio is the time from the first
start to the last end, divided by the lower bound.

Prints a Markdown table to stdout, progress to stderr. Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from batchyard import runs

BIN = Path(sys.executable).parent
MAX_RATIO = 1.10
ENVIRONMENTS = """\
environments:
  bench: {region: us-east-1, bucket: bench, queues: {cpu: bench}}
"""


@dataclass(frozen=True, slots=True)
class Result:
    engine: str
    share_out: str
    ratio: float
    #: seconds of work of a child for each write to S3; 0 without S3
    s_per_write: float = 0.0


def draw_lengths_s(count: int, children: int, lower_bound_s: float, seed: int) -> list[float]:
    """Return lognormal lengths whose sum takes the children so long."""
    generator = random.Random(seed)
    lengths = [generator.lognormvariate(0, 1) for _ in range(count)]
    scale = lower_bound_s * children / sum(lengths)
    return [round(length * scale, 3) for length in lengths]


def write_pipeline(folder: Path, lengths_s: list[float], children: int, share_out: str) -> None:
    folder.mkdir()
    (folder / "commands.txt").write_text("".join(f"sleep {s}\n" for s in lengths_s))
    (folder / "pipeline.yaml").write_text(
        "name: hand-out\nimage: busybox\nsteps:\n"
        f"  - {{name: a, commands_file: commands.txt, array: {children}, cpus: 1,"
        f" memory: 256MiB, share_out: {share_out}}}\n"
    )
    environments = folder / ".batchyard/environments.yaml"
    environments.parent.mkdir()
    environments.write_text(ENVIRONMENTS)


def measure_s(folder: Path, *flags: str) -> float:
    """Run the pipeline; return the time from the first start to the last end."""
    command = [BIN / "batchyard", "run", "pipeline.yaml", *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}\n{done.stderr}")
    run = runs.load(folder / ".batchyard", "last").open()
    commands = list(run.commands("a"))
    if commands:
        starts = [command.started_ms for command in commands if command.started_ms is not None]
        ends = [command.ended_ms for command in commands if command.ended_ms is not None]
        return (max(ends) - min(starts)) / 1000
    (job,) = run.overview().jobs
    assert job.started_ms is not None and job.ended_ms is not None
    return (job.ended_ms - job.started_ms) / 1000


@contextmanager
def endpoint(folder: Path, children: int) -> Iterator[str]:
    """Start the emulator with room for all children, and set the variables for its clients."""
    process = subprocess.Popen(
        [
            BIN / "batchyard",
            "emulate",
            "--port",
            "0",
            "--cpus",
            str(children),
            "--memory",
            "64GiB",
            "--home",
            str(folder / "endpoint"),
        ],
        # Jobs find the worker beside this Python.
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        for _ in range(5):
            line = process.stdout.readline().removeprefix("export ").strip()
            name, _, value = line.partition("=")
            os.environ[name] = value
        create_resources(children)
        yield os.environ["AWS_ENDPOINT_URL"]
    finally:
        process.terminate()
        process.wait()


def create_resources(children: int) -> None:
    import boto3

    batch = boto3.client("batch")
    batch.create_compute_environment(
        computeEnvironmentName="bench",
        type="MANAGED",
        computeResources={
            "type": "EC2",
            "minvCpus": 0,
            "maxvCpus": children,
            "instanceTypes": ["m6i"],
            "subnets": ["subnet-0a"],
            "securityGroupIds": ["sg-0a"],
            "instanceRole": "ecsInstanceRole",
        },
    )
    batch.create_job_queue(
        jobQueueName="bench",
        priority=1,
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "bench"}],
    )
    boto3.client("s3").create_bucket(Bucket="bench")


def count_writes(url: str) -> int:
    with urllib.request.urlopen(f"{url}/_batchyard/calls") as answer:
        return int(json.load(answer).get("s3:PUT", 0))


def measure_all(options: argparse.Namespace, folder: Path) -> Iterator[Result]:
    lengths_s = draw_lengths_s(options.commands, options.children, options.seconds, options.seed)
    bound_s = max(sum(lengths_s) / options.children, max(lengths_s))
    print(f"lower bound {bound_s:.1f} s, longest {max(lengths_s):.1f} s", file=sys.stderr)
    for share_out in ("static", "dynamic"):
        if "local" in options.engines:
            here = folder / f"local-{share_out}"
            write_pipeline(here, lengths_s, options.children, share_out)
            flags = ("--cpus", str(options.children), "--memory", "64GiB")
            yield Result("local", share_out, measure_s(here, *flags) / bound_s)
        if "aws" in options.engines:
            here = folder / f"aws-{share_out}"
            write_pipeline(here, lengths_s, options.children, share_out)
            with endpoint(here, options.children) as url:
                before = count_writes(url)
                time_s = measure_s(here, "--engine", "aws", "--env", "bench")
                writes = count_writes(url) - before
            s_per_write = sum(lengths_s) / max(1, writes)
            yield Result("aws", share_out, time_s / bound_s, s_per_write)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=int, default=1000)
    parser.add_argument("--children", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0, help="the lower bound")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engines", nargs="+", default=["local", "aws"])
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as name:
        for result in measure_all(options, Path(name)):
            print(result, file=sys.stderr)
            results.append(result)
    print(f"{options.commands:,} sleeps of lognormal length, {options.children} children:\n")
    print("| engine | share_out | time / lower bound | s of work per write to S3 |\n|-|-|-|-|")
    for result in results:
        writes = f"{result.s_per_write:.1f}" if result.s_per_write else ""
        print(f"| {result.engine} | {result.share_out} | {result.ratio:.3f} | {writes} |")
    ratios = [result.ratio for result in results if result.share_out == "dynamic"]
    sys.exit(0 if all(ratio <= MAX_RATIO for ratio in ratios) else 1)


if __name__ == "__main__":
    main()
