"""The lease protocol as a model: all interleavings of three workers and two blocks.

The explorer visits every state that can be reached, breadth first. Besides the workers' own steps,
at any moment: a lease expires whether or not its owner is alive (which covers stalled workers, and
clocks that differ by any amount; that of a dead owner expires without a budget), the answer to a
write is lost, a write arrives late, a worker crashes and AWS Batch starts its next attempt, a
worker is told to stop, or the step is scaled: the last worker is added then, and some of the others
are dismissed. Budgets bound how often.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

import pytest

from batchyard.worker.lease_protocol import (
    Claiming,
    Ending,
    Entry,
    HeldBlock,
    ListBlocks,
    Listing,
    LostBlock,
    MayEnd,
    MustStay,
    NothingLeft,
    Operation,
    ReadBlock,
    RefusedWrite,
    Result,
    Saving,
    StoredBlock,
    WriteBlock,
    WrittenBlock,
)
from batchyard.worker.leases import (
    LEASE_S,
    BlockState,
    Lease,
    Owner,
    Record,
    encode,
)
from batchyard.worker.scale import Scale

#: (first, last) of the children that go on after a scale, of two own ones and an added one
SCALES = (((0, 2),), ((1, 2),), ((2, 2),), ((0, 0),))
#: block -> its commands
COMMANDS = ((0, 1), (2,))

Part = TypeVar("Part", "Worker", "StoredObject")
#: equal parts of states are one object, so that states are compared by the ids of their parts
_PARTS: dict[object, object] = {}


class Budgets(NamedTuple):
    expiries: int = 0
    lost_answers: int = 0
    late_writes: int = 0
    crashes: int = 0
    stops: int = 0
    #: renewals whose answers are all lost, so that the owner goes on without having renewed
    given_up: int = 0
    #: changes of the scale; the last worker is one that is added by the first of them
    scales: int = 0
    #: whether other steps wait for the scaled step, as 0 or 1
    has_dependents: int = 1
    #: claims before the last block is written as complete
    claims_ahead: int = 0


class StoredObject(NamedTuple):
    lease: Lease
    is_old: bool = False

    @property
    def etag(self) -> str:
        return etag_of(self.lease)

    @property
    def age_s(self) -> float:
        return LEASE_S if self.is_old else 0.0


class Worker(NamedTuple):
    """A child: its present attempt, and what it is doing."""

    child: int
    attempt: int
    #: None after its end; Saving: it holds a block, and this is its next write
    operation: Operation | None
    #: the block that it holds, as its last write that it knows of
    held: HeldBlock | None = None
    #: the last write of a block that is done, which follows the claim of the next one
    completion: Saving | None = None
    #: the result of that claim
    next_block: HeldBlock | NothingLeft | None = None

    @property
    def owner(self) -> Owner:
        return Owner("job", self.child, self.attempt, f"{self.child}.{self.attempt}")

    @property
    def has_exited(self) -> bool:
        return self.operation is None


class State(NamedTuple):
    objects: tuple[StoredObject | None, ...]
    workers: tuple[Worker, ...]
    budgets: Budgets
    #: writes that S3 has not performed yet, and whose senders do not wait for them
    late_writes: frozenset[WriteBlock] = frozenset()
    scale: Scale | None = None

    @property
    def own_workers(self) -> tuple[Worker, ...]:
        """The step's own children, without the added one."""
        return self.workers[:-1] if self.scale else self.workers

    @property
    def awaited_workers(self) -> tuple[Worker, ...]:
        """The children whose end lets other steps, or the run, take this step as done."""
        has_dependents = self.scale is not None and self.scale.has_dependents
        return self.own_workers if has_dependents else self.workers


def canonical(part: Part) -> Part:
    return _PARTS.setdefault(part, part)  # type: ignore[return-value]


def key_of(state: State) -> tuple[object, ...]:
    objects, workers, budgets, late_writes, scale = state
    return (*map(id, objects), *map(id, workers), budgets, late_writes, scale)


@lru_cache(maxsize=100_000)
def etag_of(lease: Lease) -> str:
    """As S3 makes it: equal contents have equal ETags."""
    return hashlib.md5(encode(lease), usedforsecurity=False).hexdigest()


class ViolationError(AssertionError):
    pass


# -- S3 --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Store:
    """S3 as it is, or with a fault that the explorer must notice."""

    ignores_conditions: bool = False

    def write(self, state: State, request: WriteBlock) -> tuple[State, bool]:
        """Perform a write; return whether S3 has accepted it."""
        stored = state.objects[request.number]
        stored_etag = None if stored is None else stored.etag
        if stored_etag != request.etag and not self.ignores_conditions:
            return state, False
        if stored is not None:
            check_successor(stored.lease, request.lease)
        objects = list(state.objects)
        objects[request.number] = canonical(StoredObject(request.lease))
        return state._replace(objects=tuple(objects)), True


def check_successor(old: Lease, new: Lease) -> None:
    """Raise if a content of a block must not follow another one."""
    if old.state.is_complete:
        raise ViolationError("a complete block was written again")
    if new.owners[: len(old.owners)] != old.owners or new.epoch > old.epoch + 1:
        raise ViolationError(f"epoch {new.epoch} has two owners: {old.owners} and {new.owners}")
    if new.epoch > old.epoch and new.owner == old.owner:
        raise ViolationError(f"{new.owner} has taken over its own block")
    if not set(old.records) <= set(new.records):
        raise ViolationError(f"records were lost: {old.records} and then {new.records}")
    commands = [record.command for record in new.records]
    if len(set(commands)) != len(commands):
        raise ViolationError(f"a command has two records: {new.records}")


# -- steps -----------------------------------------------------------------------------------------


def first_state(budgets: Budgets, workers: int) -> State:
    children = [canonical(start(child, 1)) for child in range(workers)]
    if budgets.scales:
        children[-1] = canonical(Worker(workers - 1, 0, None))
    return State((None,) * len(COMMANDS), tuple(children), budgets)


def start(child: int, attempt: int) -> Worker:
    worker = Worker(child, attempt, None)
    return worker._replace(operation=Claiming(worker.owner, len(COMMANDS), preferred=child))


def next_states(state: State, store: Store) -> Iterator[State]:
    for worker in state.workers:
        if worker.operation is not None:
            yield from worker_steps(state, worker, worker.operation, store)
    yield from environment_steps(state, store)


def worker_steps(
    state: State, worker: Worker, operation: Operation, store: Store
) -> Iterator[State]:
    request = operation.request
    if state.budgets.crashes:
        crashed = spend(put(state, start(worker.child, worker.attempt + 1)), "crashes")
        yield crashed
        if isinstance(request, WriteBlock):
            # The write was sent before the crash, and can still arrive.
            yield crashed._replace(late_writes=state.late_writes | {request})
    if isinstance(request, ListBlocks):
        entries = {
            number: Entry(stored.lease.state, stored.etag, stored.age_s)
            for number, stored in enumerate(state.objects)
            if stored is not None and number >= request.first
        }
        yield from proceed(state, worker, operation.receive(Listing(entries, state.scale)))
    elif isinstance(request, ReadBlock):
        stored = state.objects[request.number]
        assert stored is not None
        answer = StoredBlock(stored.lease, stored.etag, stored.age_s)
        yield from proceed(state, worker, operation.receive(answer))
    else:
        yield from write_steps(state, worker, operation, request, store)


def write_steps(
    state: State, worker: Worker, operation: Operation, request: WriteBlock, store: Store
) -> Iterator[State]:
    written, is_accepted = store.write(state, request)
    answer = WrittenBlock(etag_of(request.lease)) if is_accepted else RefusedWrite()
    yield from proceed(written, worker, operation.receive(answer))
    # Without an answer, the worker repeats the request.
    if state.budgets.lost_answers and is_accepted:
        yield spend(written, "lost_answers")
    if state.budgets.given_up and worker.held is not None and is_renewal(request):
        for after in {state, written}:
            yield from steps_with_block(spend(after, "given_up"), worker, worker.held)
    if state.budgets.late_writes:
        late = state._replace(late_writes=state.late_writes | {request})
        yield spend(late, "late_writes")


def is_renewal(request: WriteBlock) -> bool:
    return request.etag is not None and request.lease.state is BlockState.LEASED


def proceed(state: State, worker: Worker, outcome: Operation | Result) -> Iterator[State]:
    """Yield the states after an answer: with a block, the worker can do several things next."""
    if isinstance(outcome, Claiming | Saving | Ending):
        yield put(state, worker._replace(operation=outcome))
    elif worker.next_block is not None:
        # The completion was written, or the block was lost.
        yield from proceed(state, worker._replace(next_block=None), worker.next_block)
    elif worker.completion is not None:
        assert isinstance(outcome, HeldBlock | NothingLeft)
        completion = worker.completion
        yield put(state, worker._replace(operation=completion, completion=None, next_block=outcome))
    elif isinstance(outcome, NothingLeft) and outcome.is_scaled:
        ending = Ending(worker.owner, len(COMMANDS), len(state.own_workers))
        yield put(state, worker._replace(operation=ending, held=None))
    elif isinstance(outcome, NothingLeft | MayEnd):
        yield put(state, worker._replace(operation=None, held=None))
    elif isinstance(outcome, MustStay):
        for ignores_scale in {False, outcome.is_idle}:
            claiming = Claiming(worker.owner, len(COMMANDS), ignores_scale=ignores_scale)
            yield put(state, worker._replace(operation=claiming))
    elif isinstance(outcome, LostBlock) or outcome.lease.state.is_complete:
        claiming = Claiming(worker.owner, len(COMMANDS))
        yield put(state, worker._replace(operation=claiming, held=None))
    elif outcome.lease.state is BlockState.RELEASED:
        yield put(state, start(worker.child, worker.attempt + 1))
    else:
        yield from steps_with_block(state, worker, outcome)


def steps_with_block(state: State, worker: Worker, held: HeldBlock) -> Iterator[State]:
    """Yield the writes that can be next: after some commands a renewal, or a release; at last
    that the block is complete."""
    lease = held.lease
    recorded = {record.command for record in lease.records}
    left = [command for command in COMMANDS[held.number] if command not in recorded]
    for count in range(len(left) + 1):
        new_records = tuple(
            Record(command, 0, 1, 0, 0.0, 0.0, 0.0, 0, False, lease.epoch)
            for command in left[:count]
        )
        saved = replace(lease, records=lease.records + new_records, writes=lease.writes + 1)
        if count == len(left):
            complete = replace(saved, state=BlockState.COMPLETE)
            yield put_saving(state, worker, held, complete)
            if state.budgets.claims_ahead:
                completion = Saving(held.number, complete, held.etag)
                claiming = Claiming(worker.owner, len(COMMANDS))
                ahead = worker._replace(operation=claiming, held=None, completion=completion)
                yield spend(put(state, ahead), "claims_ahead")
        elif count:
            yield put_saving(state, worker, held, saved)
        if state.budgets.stops:
            released = replace(saved, state=BlockState.RELEASED)
            yield spend(put_saving(state, worker, held, released), "stops")


def put_saving(state: State, worker: Worker, held: HeldBlock, lease: Lease) -> State:
    saving = Saving(held.number, lease, held.etag)
    return put(state, worker._replace(operation=saving, held=held))


def environment_steps(state: State, store: Store) -> Iterator[State]:
    for write in state.late_writes:
        arrived, _ = store.write(state, write)
        yield arrived._replace(late_writes=state.late_writes - {write})
    if state.budgets.scales and not is_end(state):
        yield from scale_steps(state)
    for number, stored in enumerate(state.objects):
        if stored is None or stored.lease.state is not BlockState.LEASED or stored.is_old:
            continue
        objects = list(state.objects)
        objects[number] = canonical(stored._replace(is_old=True))
        expired = state._replace(objects=tuple(objects))
        if not is_alive(state, stored.lease.owner):
            yield expired
        elif state.budgets.expiries:
            yield spend(expired, "expiries")


def is_alive(state: State, owner: Owner) -> bool:
    return any(worker.owner == owner and not worker.has_exited for worker in state.workers)


def scale_steps(state: State) -> Iterator[State]:
    """Yield the states after `scale`, which lets at least one child go on that has not ended."""
    added = state.workers[-1]
    for children in SCALES:
        scaled = state._replace(
            scale=Scale(children, has_dependents=bool(state.budgets.has_dependents))
        )
        if state.scale is None:
            scaled = put(scaled, start(added.child, 1))
        staying = [
            worker
            for worker in scaled.workers
            if scaled.scale.has_child(worker.child)
            and not worker.has_exited
            and (state.scale is None or state.scale.has_child(worker.child))
        ]
        if staying:
            yield spend(scaled, "scales")


def put(state: State, worker: Worker) -> State:
    workers = list(state.workers)
    workers[worker.child] = canonical(worker)
    return state._replace(workers=tuple(workers))


def spend(state: State, name: str) -> State:
    budgets = state.budgets
    return state._replace(budgets=budgets._replace(**{name: getattr(budgets, name) - 1}))


# -- what must hold --------------------------------------------------------------------------------


def check_state(state: State) -> None:
    leases = [
        (block.number, block.lease.epoch)
        for worker in state.workers
        for block in (worker.operation, worker.completion, worker.next_block)
        if isinstance(block, Saving | HeldBlock)
    ]
    if len(set(leases)) != len(leases):
        raise ViolationError(f"two workers hold a block in the same epoch: {leases}")
    # With its own children the job ends in AWS Batch, and the steps that wait for it start.
    if all(worker.has_exited for worker in state.awaited_workers):
        for commands, stored in zip(COMMANDS, state.objects, strict=True):
            if stored is None or stored.lease.state is not BlockState.COMPLETE:
                raise ViolationError(f"all workers have exited, and {commands} are not done")
            if {record.command for record in stored.lease.records} != set(commands):
                raise ViolationError(f"{commands} are not all recorded: {stored.lease.records}")


def is_end(state: State) -> bool:
    return all(worker.has_exited for worker in state.workers)


def explore(budgets: Budgets, workers: int, store: Store | None = None) -> int:
    """Visit all states and check them; return their number."""
    store = store or Store()
    beginning = first_state(budgets, workers)
    numbers = {key_of(beginning): 0}
    predecessors: list[list[int]] = [[]]
    ends: list[int] = []
    queue = deque([(0, beginning)])
    while queue:
        number, state = queue.popleft()
        check_state(state)
        if is_end(state):
            ends.append(number)
        for successor in next_states(state, store):
            successor_number = numbers.setdefault(key_of(successor), len(numbers))
            if successor_number == len(predecessors):
                predecessors.append([])
                queue.append((successor_number, successor))
            predecessors[successor_number].append(number)
    check_ends(predecessors, ends)
    return len(numbers)


def check_ends(predecessors: list[list[int]], ends: list[int]) -> None:
    """Raise if there is a state from which the step can no longer end."""
    can_end, stack = set(ends), list(ends)
    while stack:
        for number in predecessors[stack.pop()]:
            if number not in can_end:
                can_end.add(number)
                stack.append(number)
    if len(can_end) != len(predecessors):
        raise ViolationError(f"{len(predecessors) - len(can_end)} states lead to no end")


# -- tests -----------------------------------------------------------------------------------------


def test_three_workers_without_trouble() -> None:
    assert explore(Budgets(claims_ahead=2), 3) > 1000


@pytest.mark.parametrize(
    "budgets",
    [
        Budgets(expiries=1, lost_answers=1),
        Budgets(late_writes=1),
        Budgets(crashes=1),
        Budgets(stops=1),
        Budgets(given_up=1, expiries=1),
        Budgets(claims_ahead=2, expiries=1, lost_answers=1),
        # Crashes and claims ahead are also explored separately, above, in less time.
        pytest.param(Budgets(claims_ahead=1, crashes=1), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_two_workers_with_trouble(budgets: Budgets) -> None:
    assert explore(budgets, 2) > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "budgets",
    [
        Budgets(expiries=1, lost_answers=1),
        Budgets(late_writes=1),
        Budgets(crashes=1),
        Budgets(stops=1),
        Budgets(given_up=1),
        Budgets(claims_ahead=1, expiries=1),
    ],
    ids=str,
)
def test_three_workers_with_trouble(budgets: Budgets) -> None:
    assert explore(budgets, 3) > 1000


@pytest.mark.parametrize("has_dependents", [0, 1])
def test_workers_of_a_scaled_step(has_dependents: int) -> None:
    budgets = Budgets(scales=1, has_dependents=has_dependents, claims_ahead=1)
    assert explore(budgets, 2) > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "budgets"),
    [
        (3, Budgets(scales=1)),
        (3, Budgets(scales=1, has_dependents=0)),
        (2, Budgets(scales=1, stops=1)),
        (2, Budgets(scales=2, crashes=1)),
        (2, Budgets(scales=1, crashes=1, has_dependents=0)),
    ],
    ids=str,
)
def test_workers_of_a_scaled_step_with_trouble(workers: int, budgets: Budgets) -> None:
    assert explore(budgets, workers) > 1000


def test_the_explorer_notices_a_store_that_ignores_conditions() -> None:
    with pytest.raises(ViolationError):
        explore(Budgets(), 2, Store(ignores_conditions=True))
