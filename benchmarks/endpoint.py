"""`make bench`, part about the emulator: compare it with moto's server and with the engine.

- one job, from SubmitJob to SUCCEEDED, as a client that polls sees it;
- an array of 10,000 children against the same children by `batchyard run`, in turn;
- DescribeJobs of 100 ids while 10,000 children run.

moto's server starts no process here, since it needs Docker and an image: its times are those of
simulated jobs. Prints Markdown tables to stdout, progress to stderr. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import machine

BIN = Path(sys.executable).parent
KEYS = {"aws_access_key_id": "bench", "aws_secret_access_key": "bench", "region_name": "us-east-1"}
ONE_JOB_MS, RATE_SHARE, DESCRIBE_MS = 15, 0.90, 50


def batch_client(url: str) -> Any:
    import boto3

    return boto3.client("batch", endpoint_url=url, **KEYS)


@contextmanager
def ours(folder: Path, slots: int) -> Iterator[str]:
    command = [
        BIN / "batchyard",
        "emulate",
        "--port",
        "0",
        "--cpus",
        str(slots),
        "--home",
        str(folder / "endpoint"),
    ]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip().partition("=")[2]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def moto() -> Iterator[str]:
    import socket
    import urllib.request

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [BIN / "moto_server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            try:
                data = b'{"batch": {"use_docker": false}}'
                urllib.request.urlopen(
                    urllib.request.Request(f"{url}/moto-api/config", data, method="POST")
                )
                break
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def prepare(batch: Any, url: str, slots: int) -> None:
    """Create a compute environment, a queue and a job definition; moto needs roles too."""
    import boto3

    ec2, iam = (boto3.client(name, endpoint_url=url, **KEYS) for name in ("ec2", "iam"))
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    group = ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
    role = iam.create_role(RoleName="bench", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    profile = iam.create_instance_profile(InstanceProfileName="bench")["InstanceProfile"]["Arn"]
    batch.create_compute_environment(
        computeEnvironmentName="bench",
        type="MANAGED",
        state="ENABLED",
        serviceRole=role,
        computeResources={
            "type": "EC2",
            "minvCpus": 0,
            "maxvCpus": max(slots, 2),
            "subnets": [subnet],
            "securityGroupIds": [group],
            "instanceRole": profile,
            "instanceTypes": ["m6i.large"],
        },
    )
    batch.create_job_queue(
        jobQueueName="bench",
        state="ENABLED",
        priority=1,
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "bench"}],
    )
    requirements = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "16"}]
    container = {
        "image": "busybox",
        "command": ["/bin/true"],
        "resourceRequirements": requirements,
    }
    batch.register_job_definition(
        jobDefinitionName="bench",
        type="container",
        containerProperties=container,
        retryStrategy={"attempts": 1},
    )


def submit(batch: Any) -> str:
    return str(batch.submit_job(jobName="one", jobQueue="bench", jobDefinition="bench")["jobId"])


def wait(batch: Any, job_id: str) -> str:
    while True:
        status = batch.describe_jobs(jobs=[job_id])["jobs"][0]["status"]
        if status in ("SUCCEEDED", "FAILED"):
            return str(status)
        time.sleep(0.002)


def one_job_ms(batch: Any, repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        assert wait(batch, submit(batch)) == "SUCCEEDED"
        times.append((time.perf_counter() - began) * 1000)
    return times


def array_rate(batch: Any, children: int, ids: list[str], described_ms: list[float]) -> float:
    """Return the children per second; also time DescribeJobs of 100 ids four times a second."""
    began = time.perf_counter()
    job_id = batch.submit_job(
        jobName="array", jobQueue="bench", jobDefinition="bench", arrayProperties={"size": children}
    )["jobId"]
    job_ids = [job_id, *ids][:100]
    while True:
        look = time.perf_counter()
        answer = batch.describe_jobs(jobs=job_ids)["jobs"]
        if answer[0]["status"] in ("SUCCEEDED", "FAILED"):
            break
        described_ms.append((time.perf_counter() - look) * 1000)
        time.sleep(0.25)
    assert answer[0]["status"] == "SUCCEEDED" and len(answer) == len(job_ids)
    return children / (time.perf_counter() - began)


def engine_rate(folder: Path, children: int) -> float:
    listing = folder / "list.txt"
    listing.write_text("/bin/true\n" * children)
    began = time.perf_counter()
    command = [BIN / "batchyard", "run", str(listing), "--array", str(children), "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr
    return children / (time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="The endpoint beside moto's server, and beside the engine under it."
    )
    parser.add_argument("--quick", action="store_true", help="few children: shows that it works")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    children, repeats, rounds = (500, 5, 1) if options.quick else (10_000, 30, options.rounds)
    slots = len(os.sched_getaffinity(0))
    with (
        tempfile.TemporaryDirectory() as folder,
        ours(Path(folder), slots) as url,
        moto() as moto_url,
    ):
        batch, moto_batch = batch_client(url), batch_client(moto_url)
        prepare(batch, url, slots)
        prepare(moto_batch, moto_url, slots)
        jobs_ms, moto_jobs_ms = one_job_ms(batch, repeats), one_job_ms(moto_batch, 3)
        say(
            f"one job: {median(jobs_ms):.0f} ms;"
            f" moto simulates one in {median(moto_jobs_ms):.0f} ms"
        )
        ids = [submit(batch) for _ in range(99)]
        for job_id in ids:
            wait(batch, job_id)
        shares: list[float] = []
        described: list[float] = []
        for round in range(rounds):
            alone = engine_rate(Path(folder), children)
            served = array_rate(batch, children, ids, described)
            shares.append(served / alone)
            say(
                f"round {round + 1}/{rounds}: engine {alone:,.0f}/s,"
                f" endpoint {served:,.0f}/s, {served / alone:.0%}"
            )
        moto_ids = [submit(moto_batch) for _ in range(100)]
        moto_described = time_calls_ms(lambda: moto_batch.describe_jobs(jobs=moto_ids), 10)
    print(machine.describe(slots) + ".\n")
    print("| bar | asked | measured | moto's server |  |\n| --- | --- | --- | --- | --- |")
    ms, percent = "{:.0f} ms".format, "{:.0%}".format
    row(
        "one job, SubmitJob to SUCCEEDED",
        f"< {ONE_JOB_MS} ms",
        jobs_ms,
        ms,
        median(jobs_ms) < ONE_JOB_MS,
        ms(median(moto_jobs_ms)),
    )
    name = f"array of {children:,} children, of the engine's own rate"
    row(name, f"≥ {RATE_SHARE:.0%}", shares, percent, median(shares) >= RATE_SHARE, "runs none")
    name = f"DescribeJobs of 100 ids while {children:,} children run"
    is_good = median(described) < DESCRIBE_MS
    row(name, f"< {DESCRIBE_MS} ms", described, ms, is_good, f"{ms(median(moto_described))}, idle")
    return 0


def row(
    name: str,
    required: str,
    values: list[float],
    show: Callable[[float], str],
    is_good: bool,
    peer: str,
) -> None:
    spread = f"{show(median(values))} ({show(min(values))} to {show(max(values))})"
    print(f"| {name} | {required} | {spread} | {peer} | {'PASS' if is_good else '**MISS**'} |")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def time_calls_ms(call: Callable[[], object], times: int) -> list[float]:
    durations_ms = []
    for _ in range(times):
        began_s = time.perf_counter()
        call()
        durations_ms.append((time.perf_counter() - began_s) * 1000)
    return durations_ms


if __name__ == "__main__":
    sys.exit(main())
