"""`make bench`, part about AWS: count the calls of AWS Batch that a run makes.

The run is a pipeline of four steps, with 1,000 and with 10,000 children; calls to submit it and
calls of a poll are counted at the emulator. The table also has the calls of other tools from the
last `make bench-peers` (peer_calls.py).

Prints a Markdown table to stdout, progress to stderr. Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BIN = Path(sys.executable).parent
MAX_TO_SUBMIT, MAX_PER_POLL = 12, 1
WATCH_S = 8.0
#: calls for 20 jobs in all; measured by `make bench-peers`, whose table is in docs/performance.md
PEERS = {"redun": 24, "Snakemake's plugin": 529, "Metaflow": 3534}
ENVIRONMENTS = """\
environments:
  bench: {region: us-east-1, bucket: bench, queues: {cpu: bench}}
"""
PIPELINE = """\
name: wide
image: busybox
defaults: {{memory: 4MiB}}
steps:
  - {{name: a, array: {each}, command: sleep 600}}
  - {{name: b, needs: [{{step: a, each: true}}], array: {each}, command: "true", timeout: 1h}}
  - {{name: c, needs: [b], array: {each}, commands_file: words.txt}}
  - {{name: d, needs: [c], array: {each}, commands_file: words.txt, cpus: 2}}
"""


@contextmanager
def endpoint(folder: Path) -> Iterator[dict[str, str]]:
    """Start the emulator, and return the variables for its clients."""
    command = [
        BIN / "batchyard",
        "emulate",
        "--port",
        "0",
        "--cpus",
        "4",
        "--home",
        str(folder / "endpoint"),
    ]
    # Jobs find the worker beside this Python.
    environ = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().removeprefix("export ").strip() for _ in range(5)]
        yield dict(line.split("=", 1) for line in lines)
    finally:
        process.terminate()
        process.wait()


def prepare(variables: dict[str, str]) -> None:
    import boto3

    keys = {
        "endpoint_url": variables["AWS_ENDPOINT_URL"],
        "region_name": variables["AWS_REGION"],
        "aws_access_key_id": variables["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": variables["AWS_SECRET_ACCESS_KEY"],
    }
    boto3.client("s3", **keys).create_bucket(Bucket="bench")
    batch = boto3.client("batch", **keys)
    resources = {
        "type": "EC2",
        "minvCpus": 0,
        "maxvCpus": 4,
        "subnets": ["subnet-0a"],
        "securityGroupIds": ["sg-0a"],
    }
    resources |= {"instanceRole": "ecsInstanceRole", "instanceTypes": ["m6i"]}
    batch.create_compute_environment(
        computeEnvironmentName="bench", type="MANAGED", computeResources=resources
    )
    order = [{"order": 1, "computeEnvironment": "bench"}]
    batch.create_job_queue(jobQueueName="bench", priority=1, computeEnvironmentOrder=order)


def calls(variables: dict[str, str]) -> Counter[str]:
    with urllib.request.urlopen(f"{variables['AWS_ENDPOINT_URL']}/_batchyard/calls") as answer:
        return Counter(
            {name: n for name, n in json.load(answer).items() if name.startswith("batch:")}
        )


@contextmanager
def yard() -> Iterator[tuple[Path, dict[str, str]]]:
    """Return a folder with the environment `bench` of a new emulator, and the variables for it.

    Each measurement has its own: existing job definitions would not be registered again.
    """
    with tempfile.TemporaryDirectory() as name, endpoint(Path(name)) as variables:
        prepare(variables)
        folder = Path(name, "yard")
        (folder / ".batchyard").mkdir(parents=True)
        (folder / ".batchyard" / "environments.yaml").write_text(ENVIRONMENTS)
        yield folder, variables


@dataclass(frozen=True)
class Measured:
    """The calls of one run of batchyard."""

    to_submit: int
    a_poll: float
    #: operation -> calls, from the submission to the last poll
    by_operation: Counter[str]
    #: whether the run was followed to its end
    is_whole: bool

    @property
    def passes(self) -> bool:
        return self.to_submit <= MAX_TO_SUBMIT and self.a_poll <= MAX_PER_POLL


def run(folder: Path, variables: dict[str, str], watch_s: float | None) -> Measured:
    """Submit the pipeline in the folder and watch it for ``watch_s``, or to its end if None."""
    environ = {**os.environ, **variables, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}

    def batchyard(*arguments: str) -> str:
        command = [BIN / "batchyard", *arguments]
        return subprocess.run(
            command, cwd=folder, env=environ, check=True, capture_output=True, text=True
        ).stdout

    at_start = calls(variables)
    run_id = batchyard(
        "run", "pipeline.yaml", "--engine", "aws", "--env", "bench", "--detach"
    ).strip()
    submitted = calls(variables)
    watcher = subprocess.Popen(
        [BIN / "batchyard", "status", run_id, "--watch"],
        cwd=folder,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        polls = count_polls(variables, submitted, watcher, watch_s)
    finally:
        watcher.terminate()
        code = watcher.wait()
    watched = calls(variables)
    to_submit, watching = (submitted - at_start).total(), (watched - submitted).total()
    is_whole = watch_s is None
    if is_whole:
        assert code == 0, f"the run ended with {code}"
    else:
        batchyard("stop", run_id)
    return Measured(to_submit, watching / polls, watched - at_start, is_whole)


def count_polls(
    variables: dict[str, str],
    submitted: Counter[str],
    watcher: subprocess.Popen[bytes],
    watch_s: float | None,
) -> int:
    """Return the number of bursts of calls; polls are at least a second apart."""
    polls, last_s, call_count = 0, 0.0, submitted.total()
    deadline = None if watch_s is None else time.monotonic() + watch_s
    while watcher.poll() is None and (deadline is None or time.monotonic() < deadline):
        new_count = calls(variables).total()
        if new_count > call_count:
            polls += time.monotonic() - last_s > 0.5
            last_s, call_count = time.monotonic(), new_count
        time.sleep(0.02)
    return polls


def of_children(children: int) -> Measured:
    """Measure a pipeline of four steps with this many children, without waiting for its end."""
    with yard() as (folder, variables):
        (folder / "words.txt").write_text("true\n" * (children // 4))
        (folder / "pipeline.yaml").write_text(PIPELINE.format(each=children // 4))
        return run(folder, variables, WATCH_S)


def row(name: str, measured: Measured) -> str:
    in_all = measured.by_operation.total() if measured.is_whole else ""
    verdict = "PASS" if measured.passes else "**MISS**"
    return f"| {name} | {measured.to_submit} | {measured.a_poll:g} | {in_all} | {verdict} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Calls of AWS Batch that a run costs, beside those of the peers."
    )
    parser.add_argument("--quick", action="store_true", help="1,000 children only")
    options = parser.parse_args()
    measured_by_size = {
        children: of_children(children)
        for children in ((1_000,) if options.quick else (1_000, 10_000))
    }
    print(f"Bars: at most {MAX_TO_SUBMIT} calls to submit, at most {MAX_PER_POLL} a poll.\n")
    print(
        "| calls of AWS Batch | to submit | a poll | in all |  |\n| --- | --- | --- | --- | --- |"
    )
    for children, measured in measured_by_size.items():
        print(row(f"batchyard, 4 steps, {children:,} children", measured))
    for peer, count in PEERS.items():
        print(f"| {peer}, 20 jobs (`make bench-peers`, docs/performance.md) | | | {count} | |")
    return 0 if all(measured.passes for measured in measured_by_size.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
