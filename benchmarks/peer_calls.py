"""`make bench-peers`: count the calls of AWS Batch that batchyard and other tools make for 20 jobs.

redun, Snakemake's aws-batch executor and Metaflow, each from PyPI in its own environment and with
its defaults, run 20 small jobs at the emulator. batchyard runs 20 similar jobs, and submits 1,000
and 10,000 (aws_calls.py). The workflows and the start of the clients are those of tests/peers. The
number of polls depends on the duration of the jobs, so the table has the seconds too.

Prints Markdown tables to stdout, progress to stderr. Exits with 1 if batchyard misses a bar. The
table says why a peer could not be measured.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The imports below (E402) need these folders on the path.
sys.path[:0] = [str(ROOT / "tests" / "emulator"), str(ROOT / "tests" / "peers")]

import peer_workflows as workflows  # noqa: E402
from peer_clients import IMAGE, Peer, make_image, opened, said  # noqa: E402

import aws_calls  # noqa: E402
import machine  # noqa: E402

JOBS = 20
CHILDREN = (1_000, 10_000)
#: what the peers' workflows do: squares, and their sum
SQUARES = """\
name: squares
image: busybox
defaults: {{memory: 256MiB}}
steps:
  - {{name: square, array: {squares}, commands_file: squares.txt, outputs: ["squares/*"]}}
  - {{name: total, needs: [square], command: cat squares/* > total,
      inputs: ["squares/*"], outputs: [total]}}
"""


class NotMeasuredError(Exception):
    """A peer could not be measured; the message says why."""


@dataclass(frozen=True)
class Counted:
    """The calls and the duration of one client's workflow."""

    #: operation in lower case -> calls
    by_operation: Counter[str]
    seconds: float


def redun(peer: Peer) -> subprocess.CompletedProcess[str]:
    workflows.prepare_redun(peer, IMAGE)
    # a job for each square, for their sum, and for a script
    count = ("--count", str(JOBS - 2))
    return workflows.run_redun(peer, "main", "--kept-as", "s3://peers/letters.txt", *count)


def snakemake(peer: Peer) -> subprocess.CompletedProcess[str]:
    workflows.prepare_snakemake(peer)
    return workflows.run_snakemake(peer, "--config", f"count={JOBS - 1}", jobs=JOBS)


def metaflow(peer: Peer) -> subprocess.CompletedProcess[str]:
    settings = workflows.prepare_metaflow(peer, IMAGE)
    # beside the squares: start, join, end; the join fetches them all, with a process each
    return workflows.run_metaflow(peer, settings, "--count", str(JOBS - 3), memory_mib=4096)


#: name in the table -> (requirements, runner, function that runs its workflow)
PEERS: dict[str, tuple[str, str, Callable[[Peer], subprocess.CompletedProcess[str]]]] = {
    "redun": ("redun", "docker", redun),
    "Snakemake's plugin": ("snakemake", "process", snakemake),
    "Metaflow": ("metaflow", "docker", metaflow),
}


def count_calls(
    client: str, runner: str, run: Callable[[Peer], subprocess.CompletedProcess[str]]
) -> Counted:
    """Run a client's workflow and count its calls. Raises NotMeasuredError."""
    if runner == "docker":
        made = make_image()
        if made.returncode:
            raise NotMeasuredError(f"no image for its jobs: {last_line(made.stderr)}")
    try:
        with tempfile.TemporaryDirectory() as folder, opened(client, runner, Path(folder)) as peer:
            began = time.monotonic()
            done = run(peer)
            seconds = time.monotonic() - began
            calls = Counter(peer.counted.by_operation)  # without the calls of peer.jobs() below
            if done.returncode:
                print(said(done), file=sys.stderr)
                raise NotMeasuredError(f"its workflow ended with exit code {done.returncode}")
            jobs = sum(job.get("arrayProperties", {}).get("size", 1) for job in peer.jobs())
    except subprocess.TimeoutExpired as exc:
        raise NotMeasuredError(f"it was not finished within {exc.timeout:.0f} s") from exc
    except (subprocess.CalledProcessError, OSError) as exc:
        raise NotMeasuredError(f"it could not be installed: {exc}") from exc
    if jobs != JOBS:
        raise NotMeasuredError(f"it made {jobs} jobs of what should be {JOBS}")
    return Counted(calls, seconds)


def ours() -> tuple[aws_calls.Measured, Counted]:
    """Run 20 jobs with batchyard, and follow them to their end."""
    with aws_calls.yard() as (folder, variables):
        lines = [
            f"mkdir -p squares && echo $(({n} * {n})) > squares/{n}\n" for n in range(JOBS - 1)
        ]
        (folder / "squares.txt").write_text("".join(lines))
        (folder / "pipeline.yaml").write_text(SQUARES.format(squares=JOBS - 1))
        began = time.monotonic()
        measured = aws_calls.run(folder, variables, watch_s=None)
        seconds = time.monotonic() - began
    calls = {name.partition(":")[2].lower(): count for name, count in measured.by_operation.items()}
    return measured, Counted(Counter(calls), seconds)


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it did not say why"])[-1]


def client_row(name: str, outcome: Counted | NotMeasuredError) -> str:
    if isinstance(outcome, NotMeasuredError):
        return f"| {name} | not measured: {outcome} | | | | |"
    calls = outcome.by_operation
    numbers = (
        calls.total(),
        calls["submitjob"],
        calls["describejobs"],
        calls.total() - calls["submitjob"] - calls["describejobs"],
        round(outcome.seconds),
    )
    return f"| {name} | {' | '.join(map(str, numbers))} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=f"Calls of AWS Batch for {JOBS} jobs: the peers', and ours."
    )
    parser.add_argument(
        "--only", choices=["batchyard", *(client for client, _, _ in PEERS.values())]
    )
    only = parser.parse_args().only
    outcomes: dict[str, Counted | NotMeasuredError] = {}
    bars: dict[str, aws_calls.Measured] = {}
    if only in (None, "batchyard"):
        sizes = " and ".join(f"{children:,}" for children in CHILDREN)
        print(f"batchyard: {JOBS} jobs, and {sizes} children", file=sys.stderr)
        bars[f"2 steps, {JOBS} jobs, followed to their end"], outcomes["batchyard"] = ours()
        for children in CHILDREN:
            bars[f"4 steps, {children:,} children"] = aws_calls.of_children(children)
    outcomes |= measure_peers(only)
    print_tables(outcomes, bars)
    return 0 if all(measured.passes for measured in bars.values()) else 1


def measure_peers(only: str | None) -> dict[str, Counted | NotMeasuredError]:
    """Return the calls of each peer, or of the named one."""
    outcomes: dict[str, Counted | NotMeasuredError] = {}
    for name, (client, runner, run) in PEERS.items():
        if only in (None, client):
            print(f"{name}: {JOBS} jobs", file=sys.stderr)
            try:
                outcomes[name] = count_calls(client, runner, run)
            except NotMeasuredError as exc:
                outcomes[name] = exc
    return outcomes


def print_tables(
    outcomes: dict[str, Counted | NotMeasuredError], bars: dict[str, aws_calls.Measured]
) -> None:
    print(f"{machine.describe(4)}.\n")
    operations = "SubmitJob | DescribeJobs | others"
    print(f"| calls of AWS Batch for {JOBS} jobs | in all | {operations} | seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    print("\n".join(client_row(name, outcome) for name, outcome in outcomes.items()))
    if bars:
        print(
            f"\nBars: at most {aws_calls.MAX_TO_SUBMIT} calls to submit,"
            f" at most {aws_calls.MAX_PER_POLL} a poll.\n"
        )
        print("| batchyard | to submit | a poll | in all |  |\n| --- | ---: | ---: | ---: | --- |")
        print("\n".join(aws_calls.row(name, measured) for name, measured in bars.items()))


if __name__ == "__main__":
    sys.exit(main())
