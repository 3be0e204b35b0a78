"""Part of `make bench`: calls of AWS Batch that a run costs, counted at the endpoint, beside those of the peers.

A pipeline of four steps, with 1,000 children and with 10,000: what it takes to submit it, and what a poll takes. The
peers' numbers are of 20 tasks each, counted at the same endpoint by `make bench-peers`.

The table goes to stdout as Markdown, progress to stderr. Exits 1 where a bar is missed.
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
from pathlib import Path

BIN = Path(sys.executable).parent
MOST_TO_SUBMIT, MOST_A_POLL = 12, 1
WATCH_S = 8.0
#: calls for 20 tasks, from SubmitJob to the end (docs/peers.md)
PEERS = {"redun": 22, "Snakemake's plugin": 207, "Metaflow": 773}
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
    """The variables for its clients."""
    command = [BIN / "batchyard", "emulate", "--port", "0", "--cpus", "4", "--home", str(folder / "endpoint")]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
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
    resources = {"type": "EC2", "maxvCpus": 4, "subnets": ["subnet-0a"], "securityGroupIds": ["sg-0a"]}
    resources |= {"instanceRole": "ecsInstanceRole", "instanceTypes": ["m6i"]}
    batch.create_compute_environment(computeEnvironmentName="bench", type="MANAGED", computeResources=resources)
    order = [{"order": 1, "computeEnvironment": "bench"}]
    batch.create_job_queue(jobQueueName="bench", priority=1, computeEnvironmentOrder=order)


def calls(variables: dict[str, str]) -> Counter[str]:
    with urllib.request.urlopen(f"{variables['AWS_ENDPOINT_URL']}/_batchyard/calls") as answer:
        return Counter({name: n for name, n in json.load(answer).items() if name.startswith("batch:")})


def measured(folder: Path, variables: dict[str, str], children: int) -> tuple[int, float]:
    """(calls to submit, calls a poll)."""
    environ = {**os.environ, **variables}

    def batchyard(*arguments: str) -> str:
        command = [BIN / "batchyard", *arguments]
        return subprocess.run(command, cwd=folder, env=environ, check=True, capture_output=True, text=True).stdout

    (folder / "words.txt").write_text("true\n" * (children // 4))
    (folder / "pipeline.yaml").write_text(PIPELINE.format(each=children // 4))
    before = calls(variables)
    run = batchyard("run", "pipeline.yaml", "--engine", "aws", "--env", "bench", "--detach").strip()
    to_submit = calls(variables) - before
    before = calls(variables)
    watcher = subprocess.Popen(
        [BIN / "batchyard", "status", run, "--watch"], cwd=folder, env=environ, stderr=subprocess.DEVNULL
    )
    polls = 0
    try:
        polls = counted_polls(variables, before)
    finally:
        watcher.terminate()
        watcher.wait()
    watching = calls(variables) - before
    batchyard("stop", run)
    return to_submit.total(), watching.total() / polls


def counted_polls(variables: dict[str, str], before: Counter[str]) -> int:
    """How many bursts of calls there are: polls are a second apart, or more."""
    polls, last, seen = 0, 0.0, before.total()
    deadline = time.monotonic() + WATCH_S
    while time.monotonic() < deadline:
        now = calls(variables).total()
        if now > seen:
            polls += time.monotonic() - last > 0.5
            last, seen = time.monotonic(), now
        time.sleep(0.02)
    return polls


def main() -> int:
    parser = argparse.ArgumentParser(description="Calls of AWS Batch that a run costs, beside those of the peers.")
    parser.add_argument("--quick", action="store_true", help="1,000 children only")
    given = parser.parse_args()
    rows, is_good = [], True
    for children in (1_000,) if given.quick else (1_000, 10_000):
        # Each on an endpoint of its own: job definitions that are there already would not be counted.
        with tempfile.TemporaryDirectory() as name, endpoint(Path(name)) as variables:
            prepare(variables)
            folder = Path(name, "yard")
            (folder / ".batchyard").mkdir(parents=True)
            (folder / ".batchyard" / "environments.yaml").write_text(ENVIRONMENTS)
            to_submit, a_poll = measured(folder, variables, children)
        passes = to_submit <= MOST_TO_SUBMIT and a_poll <= MOST_A_POLL
        is_good = is_good and passes
        what = f"batchyard, 4 steps, {children:,} children"
        rows.append(f"| {what} | {to_submit} | {a_poll:g} | | {'PASS' if passes else '**MISS**'} |")
    print(f"Bars: at most {MOST_TO_SUBMIT} calls to submit, at most {MOST_A_POLL} a poll.\n")
    print("| calls of AWS Batch | to submit | a poll | in all |  |\n| --- | --- | --- | --- | --- |")
    print("\n".join(rows))
    for peer, count in PEERS.items():
        print(f"| {peer}, 20 tasks | | | {count} | |")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
