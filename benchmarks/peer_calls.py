"""`make bench-peers`: calls of AWS Batch that other people's clients make for 20 jobs, beside ours.

redun, Snakemake's aws-batch executor and Metaflow, each from PyPI in an environment of its own and with its own
defaults, run 20 small jobs at the endpoint; batchyard runs 20 of the same kind there, and submits 1,000 and 10,000
(aws_calls.py). The workflows, and how the clients are started, are those of tests/peers. How often a client asks
depends on how long its jobs take, so that the seconds stand beside the calls.

The tables go to stdout as Markdown, progress to stderr. Exits 1 where a bar of ours is missed; a peer that cannot be
installed, or whose jobs cannot run here, is not measured, and the table says why.
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
  - {{name: total, needs: [square], command: cat squares/* > total, inputs: ["squares/*"], outputs: [total]}}
"""


class NotMeasured(Exception):
    """Why a peer has no numbers."""


@dataclass(frozen=True)
class Counted:
    """What one client's workflow came to."""

    #: operation, in small letters -> calls
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


#: shown as -> (requirements, runner, what runs it)
PEERS: dict[str, tuple[str, str, Callable[[Peer], subprocess.CompletedProcess[str]]]] = {
    "redun": ("redun", "docker", redun),
    "Snakemake's plugin": ("snakemake", "process", snakemake),
    "Metaflow": ("metaflow", "docker", metaflow),
}


def counted(
    client: str, runner: str, run: Callable[[Peer], subprocess.CompletedProcess[str]]
) -> Counted:
    """Raises NotMeasured."""
    if runner == "docker":
        made = make_image()
        if made.returncode:
            raise NotMeasured(f"no image for its jobs: {last_line(made.stderr)}")
    try:
        with tempfile.TemporaryDirectory() as folder, opened(client, runner, Path(folder)) as peer:
            began = time.monotonic()
            done = run(peer)
            seconds = time.monotonic() - began
            calls = Counter(peer.counted.by_operation)  # the look at its jobs below is ours
            if done.returncode:
                print(said(done), file=sys.stderr)
                raise NotMeasured(f"its workflow ended with exit code {done.returncode}")
            jobs = sum(job.get("arrayProperties", {}).get("size", 1) for job in peer.jobs())
    except subprocess.TimeoutExpired as exc:
        raise NotMeasured(f"it was not done within {exc.timeout:.0f} s") from exc
    except (subprocess.CalledProcessError, OSError) as exc:
        raise NotMeasured(f"it could not be installed: {exc}") from exc
    if jobs != JOBS:
        raise NotMeasured(f"it made {jobs} jobs of what should be {JOBS}")
    return Counted(calls, seconds)


def ours() -> tuple[aws_calls.Measured, Counted]:
    """20 jobs, followed to their end."""
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


def client_row(name: str, found: Counted | NotMeasured) -> str:
    if isinstance(found, NotMeasured):
        return f"| {name} | not measured: {found} | | | | |"
    calls = found.by_operation
    others = calls.total() - calls["submitjob"] - calls["describejobs"]
    numbers = (
        calls.total(),
        calls["submitjob"],
        calls["describejobs"],
        others,
        round(found.seconds),
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
    found: dict[str, Counted | NotMeasured] = {}
    bars: dict[str, aws_calls.Measured] = {}
    if only in (None, "batchyard"):
        print(
            f"batchyard: {JOBS} jobs, and {' and '.join(map('{:,}'.format, CHILDREN))} children",
            file=sys.stderr,
        )
        bars[f"2 steps, {JOBS} jobs, followed to their end"], found["batchyard"] = ours()
        bars |= {
            f"4 steps, {children:,} children": aws_calls.of_children(children)
            for children in CHILDREN
        }
    for name, (client, runner, run) in PEERS.items():
        if only in (None, client):
            print(f"{name}: {JOBS} jobs", file=sys.stderr)
            try:
                found[name] = counted(client, runner, run)
            except NotMeasured as exc:
                found[name] = exc
    print(f"{machine.describe(4)}.\n")
    print(
        f"| calls of AWS Batch for {JOBS} jobs | in all | SubmitJob | DescribeJobs | others | seconds |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    print("\n".join(client_row(name, one) for name, one in found.items()))
    if bars:
        print(
            f"\nBars: at most {aws_calls.MOST_TO_SUBMIT} calls to submit, at most {aws_calls.MOST_A_POLL} a poll.\n"
        )
        print("| batchyard | to submit | a poll | in all |  |\n| --- | ---: | ---: | ---: | --- |")
        print("\n".join(aws_calls.row(what, measured) for what, measured in bars.items()))
    return 0 if all(measured.passes for measured in bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
