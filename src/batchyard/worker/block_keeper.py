"""Claims and keeps the blocks of a worker, in a thread beside the commands.

The thread performs one request at a time: it renews leases while a command runs, writes that a
block is complete while the next one begins, and claims a block ahead where that is asked for.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TypeVar

from batchyard.worker.block_store import BlockStore
from batchyard.worker.errors import WorkerError
from batchyard.worker.lease_protocol import (
    MIN_CHOICES,
    Claiming,
    Ending,
    HeldBlock,
    ListBlocks,
    Listing,
    MayEnd,
    MustStay,
    NothingLeft,
    Saving,
)
from batchyard.worker.leases import BlockState, Lease, Owner, Record

T = TypeVar("T")


class LeasedBlock:
    """A block of this worker: its records so far, and its object as it was written last."""

    def __init__(self, held: HeldBlock, written_s: float) -> None:
        self.number = held.number
        self.held = held
        #: when the object was written last, or a write of it was tried
        self.written_s = written_s
        #: whether another worker has taken the block
        self.is_lost = False
        #: the command of the block that runs
        self.running: int | None = None
        self._lock = threading.Lock()
        self._records = {record.command: record for record in held.lease.records}

    @property
    def lease(self) -> Lease:
        return self.held.lease

    def record_of(self, command: int) -> Record | None:
        with self._lock:
            return self._records.get(command)

    def add(self, record: Record) -> None:
        with self._lock:
            self._records[record.command] = record

    @property
    def first_failure(self) -> Record | None:
        """The first of its commands that has failed, if any has."""
        with self._lock:
            failures = (record for record in self._records.values() if record.exit_code)
            return next(failures, None)

    def make_saving(self, state: BlockState) -> Saving:
        """Return the write of the block as it is now."""
        with self._lock:
            records = tuple(self._records.values())
        lease = replace(
            self.lease,
            state=state,
            running=self.running if self.lease.is_careful and state is BlockState.LEASED else None,
            records=records,
            writes=self.lease.writes + 1,
        )
        return Saving(self.number, lease, self.held.etag)


class BlockKeeper:
    """All methods are for the main thread. They raise WorkerError where S3 does not answer."""

    def __init__(
        self,
        store: BlockStore,
        owner: Owner,
        total: int,
        *,
        own_children: int,
        preferred: int,
        lease_s: float,
        on_lost: Callable[[int], None],
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``total``: number of blocks. ``own_children``: children of the step without added ones.

        ``preferred``: the block to try first, different for each child.
        ``on_lost`` is called in the keeper's thread when another worker has taken a block, with the
        command of the block that runs.
        """
        self._store, self._owner, self._total = store, owner, total
        self._own_children = own_children
        self._lease_s, self._renew_s = lease_s, lease_s / 3
        self._on_lost, self._log, self._clock = on_lost, log, clock
        self._preferred: int | None = preferred
        #: as the last claim that found nothing has seen it
        self._is_scaled = False
        self._first_unclaimed = 0
        self._choices = MIN_CHOICES
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        #: only the keeper's thread uses it
        self._held: list[LeasedBlock] = []
        self._claim: Future[LeasedBlock | None] | None = None
        self._completions: list[Future[None]] = []
        #: how long the last claim took
        self.claim_s = 0.0
        #: a failed command of a block that this worker has completed
        self.failure: Record | None = None
        self._thread = threading.Thread(target=self._serve, name="blocks", daemon=True)

    def __enter__(self) -> BlockKeeper:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release what is still held, so that other workers go on with it at once."""
        with suppress(WorkerError):
            self._submit(self._release_all).result()
        self._tasks.put(None)
        self._thread.join()

    @property
    def lease_s(self) -> float:
        return self._lease_s

    def claim_ahead(self, *, ignores_scale: bool = False) -> None:
        """Begin to claim the block that ``next_block`` will return."""
        if self._claim is None:
            self._claim = self._submit(lambda: self._claim_block(ignores_scale))

    def next_block(self, *, ignores_scale: bool = False) -> LeasedBlock | None:
        """Claim a block and return it; None if there is none, or the child is dismissed.

        ``ignores_scale``: also where the child is dismissed.
        """
        self.claim_ahead(ignores_scale=ignores_scale)
        assert self._claim is not None
        block = self._claim.result()
        self._claim = None
        self._raise_errors(is_waiting=False)
        return block

    def save(self, block: LeasedBlock) -> None:
        """Write the block now, and wait for it."""
        self._submit(lambda: self._write(block, BlockState.LEASED)).result()

    def complete(self, block: LeasedBlock) -> None:
        """Write that the block is complete, without waiting for it."""
        self._completions.append(self._submit(lambda: self._complete(block)))

    def finish(self) -> None:
        """Wait until all complete blocks are written."""
        self._raise_errors(is_waiting=True)

    def ask_to_end(self) -> MayEnd | MustStay:
        """Return whether the child may end, after ``next_block`` has returned None."""
        if not self._is_scaled:
            return MayEnd()
        return self._submit(self._ask_to_end).result()

    def find_failure_of(self, number: int) -> Record:
        """Return a failed command of a block that has one."""
        return self._submit(lambda: self._find_failure_of(number)).result()

    def find_earlier_failure(self) -> Record | None:
        """Return a failed command of a block that an earlier attempt of this child completed."""
        if self._owner.attempt == 1:
            return None
        return self._submit(self._find_earlier_failure).result()

    def _raise_errors(self, *, is_waiting: bool) -> None:
        while self._completions and (is_waiting or self._completions[0].done()):
            self._completions.pop(0).result()

    def _submit(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def perform() -> None:
            try:
                future.set_result(function())
            except BaseException as exc:
                future.set_exception(exc)

        self._tasks.put(perform)
        return future

    # -- in the keeper's thread --------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=self._time_to_renewal_s())
            except queue.Empty:
                self._renew()
                continue
            if task is None:
                return
            task()

    def _time_to_renewal_s(self) -> float | None:
        if not self._held:
            return None
        oldest_s = min(block.written_s for block in self._held)
        return max(0.0, oldest_s + self._renew_s - self._clock())

    def _renew(self) -> None:
        now_s = self._clock()
        for block in list(self._held):
            if now_s < block.written_s + self._renew_s:
                continue
            try:
                self._write(block, BlockState.LEASED)
            except WorkerError as error:
                # The next renewal, or the write that the block is complete, may succeed.
                self._log(f"{error}; the lease of block {block.number} is not renewed")

    def _claim_block(self, ignores_scale: bool) -> LeasedBlock | None:
        claiming = Claiming(
            self._owner,
            self._total,
            self._lease_s,
            first=self._first_unclaimed,
            preferred=self._preferred,
            children=self._own_children,
            choices=self._choices,
            ignores_scale=ignores_scale,
        )
        self._preferred = None
        started_s = self._clock()
        last, result = self._store.run(claiming)
        assert isinstance(last, Claiming)
        self._first_unclaimed = last.first
        self._choices = last.next_choices
        self.claim_s = self._clock() - started_s
        if isinstance(result, NothingLeft):
            self._is_scaled = result.is_scaled
            return None
        assert isinstance(result, HeldBlock)
        block = LeasedBlock(result, self._clock())
        self._held.append(block)
        return block

    def _complete(self, block: LeasedBlock) -> None:
        if block.is_lost:
            return
        failure = block.first_failure
        self._write(block, BlockState.FAILED if failure else BlockState.COMPLETE)
        if not block.is_lost:
            self._held.remove(block)
            self.failure = self.failure or failure

    def _release_all(self) -> None:
        for block in list(self._held):
            self._write(block, BlockState.RELEASED)
            if not block.is_lost:
                self._held.remove(block)

    def _write(self, block: LeasedBlock, state: BlockState) -> None:
        if block.is_lost:
            return
        block.written_s = self._clock()
        _, result = self._store.run(block.make_saving(state))
        if isinstance(result, HeldBlock):
            block.held = result
            return
        block.is_lost = True
        self._held.remove(block)
        self._log(f"another worker has taken block {block.number}, whose lease had expired")
        if block.running is not None:
            self._on_lost(block.running)

    def _ask_to_end(self) -> MayEnd | MustStay:
        ending = Ending(self._owner, self._total, self._own_children, self._lease_s)
        _, result = self._store.run(ending)
        assert isinstance(result, MayEnd | MustStay)
        return result

    def _find_failure_of(self, number: int) -> Record:
        records = self._store.read(number).lease.records
        return next(record for record in records if record.exit_code)

    def _find_earlier_failure(self) -> Record | None:
        listing = self._store.perform(ListBlocks(0))
        assert isinstance(listing, Listing)
        for number, entry in listing.entries.items():
            if entry.state is not BlockState.FAILED:
                continue
            lease = self._store.read(number).lease
            if lease.owner.is_earlier_attempt_of(self._owner):
                return next(record for record in lease.records if record.exit_code)
        return None
