"""`make bench`, part about handing out: how long a list takes beside the lower bound.

A list of 1,000 commands of lognormal length runs with `share_out: static`, and with `dynamic`
twice: in the first run the lengths are unknown, and the second one knows them from the first.
Sleeps on this machine with 2 to 16 slots, CPU work with as many slots as there are CPUs, and sleeps
with 16 workers: their code in threads over an S3 in memory, and through the emulator and S3. The
lower bound is the sum of what the commands took, divided by the slots, or the longest of them; a
worker counts from its first command on. The ratio is the time from the first start to the last end,
divided by the lower bound. With 16 slots here it is the mean of three lists: without lengths, luck
decides which command of a list begins last.

Prints Markdown tables to stdout, progress to stderr. Exits with 1 if a bar is missed.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import claims
import makespan_chart
import workers_in_memory
from batchyard import command_lengths, runs, shard
from batchyard.blocks import DispatchOrder, cut_blocks
from batchyard.engines.base import CommandDetail

BIN = Path(sys.executable).parent
#: way to share out -> the largest ratio that is asked for
BARS = {"static": None, "dynamic": 1.10, "longest first": 1.05}
ENVIRONMENTS = """\
environments:
  bench: {region: us-east-1, bucket: bench, queues: {cpu: bench}}
"""
PLACES = {
    "local": "this machine",
    "memory": "workers over S3 in memory",
    "aws": "the endpoint and S3",
}
#: burns CPU time, about a millisecond a hundred rounds
BURN = "i=0; while [ $i -lt {rounds} ]; do i=$((i+1)); done"
_ROUNDS_PER_S = 400_000


@dataclass(frozen=True, slots=True)
class Case:
    """What runs where."""

    engine: str
    work: str
    slots: int
    #: the lower bound, if commands take as long as they say
    seconds: float
    #: number of lists, whose mean is the result
    lists: int = 1

    @property
    def name(self) -> str:
        return f"{self.work} on {PLACES[self.engine]}, {self.slots} slots"


@dataclass(frozen=True, slots=True)
class Result:
    case: Case
    #: a key of BARS
    way: str
    ratio: float
    #: ratio of a hand-out in the order of the list that takes no time itself
    ideal_ratio: float
    #: writes to S3
    writes: int = 0

    @property
    def is_good(self) -> bool:
        bar = BARS[self.way]
        return bar is None or self.ratio <= bar


def draw_lengths_s(count: int, slots: int, lower_bound_s: float, seed: int) -> list[float]:
    """Return lognormal lengths whose sum takes the slots so long."""
    generator = random.Random(seed)
    lengths = [generator.lognormvariate(0, 1) for _ in range(count)]
    scale = lower_bound_s * slots / sum(lengths)
    return [round(length * scale, 3) for length in lengths]


def write_pipeline(folder: Path, case: Case, lengths_s: Sequence[float], share_out: str) -> None:
    folder.mkdir(exist_ok=True)
    commands = [f"sleep {s}" for s in lengths_s]
    if case.work == "CPU work":
        commands = [BURN.format(rounds=int(s * _ROUNDS_PER_S)) for s in lengths_s]
    (folder / "commands.txt").write_text("".join(f"{command}\n" for command in commands))
    (folder / "pipeline.yaml").write_text(
        # Another name, so that the static run tells the dynamic one nothing.
        f"name: hand-out-{share_out}\nimage: busybox\nsteps:\n"
        f"  - {{name: a, commands_file: commands.txt, array: {case.slots}, cpus: 1,"
        f" memory: 256MiB, share_out: {share_out}}}\n"
    )
    environments = folder / ".batchyard/environments.yaml"
    environments.parent.mkdir(exist_ok=True)
    environments.write_text(ENVIRONMENTS)


def measure_ratio(folder: Path, case: Case) -> float:
    """Run the pipeline; return the time from the first start to the last end, of the bound."""
    flags = ["--limit-cpus", str(case.slots), "--limit-memory", "64GiB"]
    if case.engine == "aws":
        flags = ["--engine", "aws", "--env", "bench"]
    command = [BIN / "batchyard", "run", "pipeline.yaml", *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}\n{done.stderr}")
    run = runs.load(folder / ".batchyard", "last").open()
    commands = [command for command in run.commands("a") if command.started_ms is not None]
    starts_ms = [command.started_ms or 0 for command in commands]
    ends_ms = [command.ended_ms or 0 for command in commands]
    return (max(ends_ms) - min(starts_ms)) / 1000 / lower_bound_s(commands, case)


def lower_bound_s(commands: Sequence[CommandDetail], case: Case) -> float:
    """Return the shortest time in which the slots could have done what the commands took.

    A worker of AWS Batch begins when its container has started, which is no matter of hand-out.
    """
    lengths_s = [command.duration_s or 0.0 for command in commands]
    first_starts: dict[int, int] = {}
    if case.engine == "aws":
        for command in commands:
            started_ms = command.started_ms or 0
            earlier_ms = first_starts.get(command.index, started_ms)
            first_starts[command.index] = min(started_ms, earlier_ms)
    delays_ms = [start - min(first_starts.values()) for start in first_starts.values()]
    return max((sum(lengths_s) + sum(delays_ms) / 1000) / case.slots, *lengths_s)


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


def measure_case(case: Case, options: argparse.Namespace, folder: Path) -> Iterator[Result]:
    folder.mkdir()
    measured = [
        list(measure_list(case, options.commands, options.seed + number, folder / str(number)))
        for number in range(case.lists)
    ]
    for results in zip(*measured, strict=True):
        ratio = fmean(result.ratio for result in results)
        ideal_ratio = fmean(result.ideal_ratio for result in results)
        yield replace(results[0], ratio=ratio, ideal_ratio=ideal_ratio)


def measure_list(case: Case, commands: int, seed: int, folder: Path) -> Iterator[Result]:
    """Measure each way to share out the list that is drawn with this seed."""
    lengths_s = draw_lengths_s(commands, case.slots, case.seconds, seed)
    folder.mkdir()
    for way in BARS:
        share_out = "static" if way == "static" else "dynamic"
        write_pipeline(folder / share_out, case, lengths_s, share_out)
        before = count_writes(os.environ["AWS_ENDPOINT_URL"]) if case.engine == "aws" else 0
        ratio = measure_ratio(folder / share_out, case)
        after = count_writes(os.environ["AWS_ENDPOINT_URL"]) if case.engine == "aws" else 0
        ideal_s = command_lengths.expected_end_s(lengths_s, case.slots)
        ideal_ratio = ideal_s / command_lengths.lower_bound_s(lengths_s, case.slots)
        yield Result(case, way, ratio, ideal_ratio, after - before)


def measure_in_memory(case: Case, options: argparse.Namespace) -> Iterator[Result]:
    """Measure the lease protocol alone: the worker's code in threads, and requests of 0.1 s."""
    lengths_s = draw_lengths_s(options.commands, case.slots, case.seconds, options.seed)
    bound_s = command_lengths.lower_bound_s(lengths_s, case.slots)
    ideal_ratio = command_lengths.expected_end_s(lengths_s, case.slots) / bound_s
    share = [
        sum(lengths_s[number] for number in shard.commands_of(len(lengths_s), child, case.slots))
        for child in range(case.slots)
    ]
    yield Result(case, "static", max(share) / bound_s, ideal_ratio)
    numbers = command_lengths.sort_longest_first(range(len(lengths_s)), lengths_s)
    weights = [lengths_s[number] for number in numbers]
    for way, order, blocks in (
        ("dynamic", None, cut_blocks(len(lengths_s), case.slots)),
        ("longest first", numbers, cut_blocks(len(lengths_s), case.slots, weights)),
    ):
        dispatch = DispatchOrder(len(lengths_s), (), order)
        time_s, writes = workers_in_memory.measure_s(lengths_s, dispatch, blocks, case.slots)
        yield Result(case, way, time_s / bound_s, ideal_ratio, writes)


def measure_all(options: argparse.Namespace, folder: Path) -> Iterator[Result]:
    cases = [Case("local", "sleeps", slots, options.seconds) for slots in (2, 4, 8)]
    cases.append(Case("local", "sleeps", 16, options.seconds, lists=3))
    cpus = len(os.sched_getaffinity(0))
    cases.append(Case("local", "CPU work", cpus, options.seconds))
    for number, case in enumerate(cases if "local" in options.engines else ()):
        yield from measure_case(case, options, folder / str(number))
    if "memory" in options.engines:
        case = Case("memory", "sleeps", options.children, 3 * options.seconds)
        yield from measure_in_memory(case, options)
    if "aws" in options.engines:
        with endpoint(folder, options.children):
            case = Case("aws", "sleeps", options.children, 3 * options.seconds)
            yield from measure_case(case, options, folder / "aws")


def print_results(results: Sequence[Result], commands: int) -> None:
    print(f"{commands:,} commands of lognormal length, time / lower bound:\n")
    print(f"| | {' | '.join(BARS)} | ideal without lengths | |\n|-|{'-:|' * len(BARS)}-:|-|")
    for case in dict.fromkeys(result.case for result in results):
        row = [result for result in results if result.case == case]
        is_good = all(result.is_good and result.ratio <= row[0].ratio for result in row)
        cells = " | ".join(f"{result.ratio:.2f}" for result in row)
        verdict = "PASS" if is_good else "MISSED"
        print(f"| {case.name} | {cells} | {row[0].ideal_ratio:.2f} | {verdict} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=int, default=1000)
    parser.add_argument("--children", type=int, default=16, help="of the endpoint")
    parser.add_argument("--seconds", type=float, default=20.0, help="the lower bound of a run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engines", nargs="*", default=[*PLACES])
    parser.add_argument("--chart", type=Path, help="write the ratios as SVG to this file")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as name:
        for result in measure_all(options, Path(name)):
            print(f"{result.case.name}, {result.way}: {result.ratio:.3f}", file=sys.stderr)
            results.append(result)
    if results:
        print_results(results, options.commands)
    if options.chart and results:
        bars = [(result.case.name, result.way, result.ratio) for result in results]
        options.chart.write_text(makespan_chart.draw(bars))
    are_claims_good = claims.print_table()
    are_good = all(result.is_good for result in results)
    sys.exit(0 if are_good and are_claims_good else 1)


if __name__ == "__main__":
    main()
