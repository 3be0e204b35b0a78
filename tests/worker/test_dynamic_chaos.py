"""Workers of a dynamic step under kills, stops beyond the lease, and faults of S3, at random.

Each round has three children. A child whose worker ended without success is started again as its
next attempt, as AWS Batch does. BATCHYARD_TESTS_SEED repeats a round, BATCHYARD_CHAOS_ROUNDS sets
their number: 50 rounds are the bar of the protocol.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from emulator_endpoint import Endpoint
from worker_scene import Scene

from batchyard.worker.errors import EXIT_RETRY
from batchyard.worker.leases import BlockState

CHILDREN = 3
COMMANDS = 24
LEASE_S = 2
#: attempts of AWS Batch are ten at most; here a round is longer than its work
MAX_ATTEMPTS = 60
FAULTS = (
    "conflict@s3:PUT=0.1,throttle@s3=0.05,lose@s3=0.05,reset@s3=0.03,cut@s3:GET=0.05,error=0.02"
)
ROUNDS = int(os.environ.get("BATCHYARD_CHAOS_ROUNDS", "1"))
SEED = int(os.environ.get("BATCHYARD_TESTS_SEED", "1"))


@pytest.fixture
def endpoint(worker_endpoint: Endpoint) -> Iterator[Endpoint]:
    yield worker_endpoint
    use_faults(worker_endpoint, "")


def use_faults(endpoint: Endpoint, faults: str) -> None:
    body = json.dumps({"faults": faults}).encode()
    urllib.request.urlopen(f"{endpoint.url}/_batchyard/faults", body).close()


@dataclass
class Child:
    """A child, and the worker of its present attempt."""

    scene: Scene
    address: str
    index: int
    attempt: int = 0
    worker: subprocess.Popen[str] | None = None
    is_done: bool = False

    def proceed(self) -> None:
        """Start the next attempt if the last one has ended without success."""
        if self.is_done or (self.worker is not None and self.worker.poll() is None):
            return
        if self.worker is not None:
            code = self.worker.returncode
            _, said = self.worker.communicate()
            # SIGTERM ends a worker that has not installed its handler yet, as a reclaim does.
            expected = (0, EXIT_RETRY, -signal.SIGKILL, -signal.SIGTERM)
            assert code in expected, f"exit code {code}: {said}"
            if code == 0:
                self.is_done = True
                return
        self.attempt += 1
        assert self.attempt <= MAX_ATTEMPTS, "the children do not end"
        self.worker = self.scene.direct(
            self.address,
            AWS_BATCH_JOB_ARRAY_INDEX=str(self.index),
            AWS_BATCH_JOB_ID=f"job:{self.index}",
            AWS_BATCH_JOB_ATTEMPT=str(self.attempt),
            BATCHYARD_LEASE_S=str(LEASE_S),
        )

    def send(self, signum: int) -> None:
        if self.worker is not None and self.worker.poll() is None:
            self.worker.send_signal(signum)


def trouble(children: list[Child], generator: random.Random) -> None:
    """Kill, stop for longer than a lease, or terminate a worker."""
    child = generator.choice(children)
    kind = generator.choice(["kill", "kill", "sleep", "terminate"])
    if kind == "kill":
        child.send(signal.SIGKILL)
    elif kind == "terminate":
        child.send(signal.SIGTERM)
    else:
        child.send(signal.SIGSTOP)
        deadline_s = time.monotonic() + LEASE_S * 2
        while time.monotonic() < deadline_s:
            for other in children:
                if other is not child:
                    other.proceed()
            time.sleep(0.05)
        child.send(signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(ROUNDS))
def test_no_command_is_lost_in_any_round(scene: Scene, endpoint: Endpoint, number: int) -> None:
    generator = random.Random(SEED * 1000 + number)
    commands = [
        f"sleep {generator.uniform(0, 0.4):.2f}; echo {command} >> $KEEP/ran"
        for command in range(COMMANDS)
    ]
    address = scene.dynamic_orders(commands, CHILDREN, attempts=10, retries=0)
    children = [Child(scene, address, index) for index in range(CHILDREN)]
    use_faults(endpoint, FAULTS)
    troubles = 6
    while not all(child.is_done for child in children):
        for child in children:
            child.proceed()
        time.sleep(generator.uniform(0.1, 1.0))
        if troubles:
            troubles -= 1
            trouble(children, generator)
    use_faults(endpoint, "")
    leases = scene.blocks()
    assert {lease.state for lease in leases} == {BlockState.COMPLETE}
    records = scene.block_records()
    assert sorted(records) == list(range(COMMANDS))
    assert {record.exit_code for record in records.values()} == {0}
    for lease in leases:
        # One owner for each epoch, which nobody takes over from itself, and each record of an
        # epoch that there was.
        assert all(earlier != later for earlier, later in pairwise(lease.owners))
        assert all(1 <= record.epoch <= lease.epoch for record in lease.records)
    # At least once: a command may have run again where its record was not written.
    assert set(map(int, scene.kept_lines("ran"))) == set(range(COMMANDS))
