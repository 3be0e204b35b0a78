"""The workers of a dynamic step as threads of one process, over an S3 in memory.

They run the worker's own code for attempts, leases and blocks. Commands are sleeps, and a request
to S3 takes 0.1 s. So the protocol is measured, and neither the start of workers nor the emulator.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from batchyard.blocks import DispatchOrder
from batchyard.worker import lease_protocol, leases
from batchyard.worker.block_keeper import BlockKeeper
from batchyard.worker.block_store import BlockStore
from batchyard.worker.dynamic_attempt import DynamicAttempt
from batchyard.worker.lease_protocol import (
    Entry,
    ListBlocks,
    Listing,
    ReadBlock,
    RefusedWrite,
    StoredBlock,
    WriteBlock,
    WrittenBlock,
)
from batchyard.worker.processes import CommandResult

REQUEST_S = 0.1


@dataclass
class MemoryS3:
    """The blocks of one step, with conditional writes."""

    objects: dict[int, tuple[bytes, float]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    writes: int = 0

    run = BlockStore.run

    def perform(self, request: lease_protocol.Request) -> lease_protocol.Answer:
        time.sleep(REQUEST_S)
        with self.lock:
            if isinstance(request, ListBlocks):
                return Listing(
                    {
                        number: Entry(leases.state_of_size(len(data)), etag_of(data), age_s(at))
                        for number, (data, at) in self.objects.items()
                        if number >= request.first
                    }
                )
            if isinstance(request, ReadBlock):
                data, at = self.objects[request.number]
                return StoredBlock(leases.decode(data), etag_of(data), age_s(at))
            return self._write(request)

    def _write(self, request: WriteBlock) -> lease_protocol.Answer:
        self.writes += 1
        stored = self.objects.get(request.number)
        if (None if stored is None else etag_of(stored[0])) != request.etag:
            return RefusedWrite()
        data = leases.encode(request.lease)
        self.objects[request.number] = (data, time.monotonic())
        return WrittenBlock(etag_of(data))


def etag_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def age_s(at: float) -> float:
    return time.monotonic() - at


class Nothing:
    """An object whose methods do nothing, in place of a workspace and of requests to stop."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class Sleeper:
    """Runs commands: sleeps."""

    def run(self, text: str, command: int) -> CommandResult:
        started_s = time.time()
        time.sleep(float(text))
        duration_s = time.time() - started_s
        return CommandResult(0, duration_s=duration_s, started_ms=int(started_s * 1000))


def measure_s(
    lengths_s: Sequence[float], order: DispatchOrder, blocks: Sequence[range], children: int
) -> tuple[float, int]:
    """Return the time until all workers have ended, and their writes to S3."""
    s3 = MemoryS3()

    def work(child: int) -> None:
        owner = leases.Owner("job", child, 1, f"token-{child}")
        store: Any = s3
        keeper = BlockKeeper(
            store,
            owner,
            len(blocks),
            own_children=children,
            preferred=child,
            lease_s=leases.LEASE_S,
            on_lost=print,
            log=print,
        )
        nothing: Any = Nothing()
        orders: Any = SimpleNamespace(
            retries=0, retry_on=("any",), fail_on=(), attempts=1, timeout_s=None
        )
        runner: Any = Sleeper()
        DynamicAttempt(
            orders=orders,
            read_numbers=lambda positions: order.command_at,
            blocks=blocks,
            keeper=keeper,
            workspace=nothing,
            runner=runner,
            read_commands=lambda positions: lambda p: str(lengths_s[order.command_at(p)]),
            stop_requests=nothing,
            log=print,
            write_heading=lambda text: None,
        ).run()

    threads = [threading.Thread(target=work, args=(child,)) for child in range(children)]
    started_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - started_s, s3.writes
