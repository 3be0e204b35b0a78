"""Blocks in S3 through the endpoint: conditions, lost answers, refusals, and ages by S3's clock."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from emulator_endpoint import Endpoint
from worker_scene import BUCKET, Scene

from batchyard.worker.block_store import BlockStore
from batchyard.worker.errors import EXIT_ORDERS, EXIT_RETRY, WorkerError
from batchyard.worker.lease_protocol import (
    Claiming,
    HeldBlock,
    LostBlock,
    NothingLeft,
    RefusedWrite,
    Saving,
    WriteBlock,
    WrittenBlock,
)
from batchyard.worker.leases import (
    BlockState,
    Lease,
    Owner,
)
from batchyard.worker.orders import Place
from batchyard.worker.s3 import Bucket


@pytest.fixture
def store(scene: Scene) -> BlockStore:
    return BlockStore(Bucket(scene.s3, sleep=lambda _: None), Place(BUCKET, f"{scene.root}blocks/"))


@pytest.fixture
def endpoint(worker_endpoint: Endpoint) -> Iterator[Endpoint]:
    yield worker_endpoint
    use_faults(worker_endpoint, "")


def use_faults(endpoint: Endpoint, faults: str) -> None:
    body = json.dumps({"faults": faults}).encode()
    urllib.request.urlopen(f"{endpoint.url}/_batchyard/faults", body).close()


def owner(child: int, attempt: int = 1) -> Owner:
    return Owner(f"job:{child}", child, attempt, f"token-{child}-{attempt}")


def claim(
    store: BlockStore, child: int, total: int, *, attempt: int = 1, lease_s: float = 60
) -> HeldBlock | NothingLeft:
    _, result = store.run(Claiming(owner(child, attempt), total, lease_s))
    assert not isinstance(result, LostBlock)
    return result


def save(store: BlockStore, held: HeldBlock, state: BlockState) -> HeldBlock | LostBlock:
    lease = replace(held.lease, state=state, writes=held.lease.writes + 1)
    _, result = store.run(Saving(held.number, lease, held.etag))
    assert not isinstance(result, NothingLeft)
    return result


def held_claim(store: BlockStore, child: int, total: int, **options: float) -> HeldBlock:
    result = claim(store, child, total, **options)  # type: ignore[arg-type]
    assert isinstance(result, HeldBlock)
    return result


@pytest.mark.slow
def test_of_many_claims_at_once_one_wins(store: BlockStore) -> None:
    requests = [WriteBlock(0, Lease((owner(child),)), None) for child in range(16)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(store.perform, requests))
    assert sum(isinstance(answer, WrittenBlock) for answer in answers) == 1
    assert sum(isinstance(answer, RefusedWrite) for answer in answers) == 15
    winner = next(
        number for number, answer in enumerate(answers) if isinstance(answer, WrittenBlock)
    )
    assert store.read(0).lease.owner == owner(winner)


def test_of_many_takeovers_at_once_one_wins(store: BlockStore) -> None:
    held = save(store, held_claim(store, 0, 1), BlockState.RELEASED)
    assert isinstance(held, HeldBlock)
    requests = [
        WriteBlock(0, held.lease.taken_over_by(owner(child)), held.etag) for child in range(1, 17)
    ]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(store.perform, requests))
    assert sum(isinstance(answer, WrittenBlock) for answer in answers) == 1
    assert store.read(0).lease.epoch == 2


def test_children_claim_different_blocks_until_none_is_left(store: BlockStore) -> None:
    numbers = [held_claim(store, child, 3).number for child in range(3)]
    assert sorted(numbers) == [0, 1, 2]
    assert isinstance(claim(store, 3, 3), NothingLeft)


def test_a_released_block_is_taken_with_its_records(store: BlockStore) -> None:
    save(store, held_claim(store, 0, 1), BlockState.RELEASED)
    taken = held_claim(store, 1, 1)
    assert taken.lease.owners == (owner(0), owner(1))
    assert taken.lease.state is BlockState.LEASED
    assert not taken.lease.is_careful


def test_a_block_is_taken_when_its_lease_has_expired_by_the_clock_of_s3(
    store: BlockStore,
) -> None:
    late = held_claim(store, 0, 1)
    assert isinstance(claim(store, 1, 1), NothingLeft)
    taken = held_claim(store, 1, 1, lease_s=0)
    assert (taken.lease.epoch, taken.lease.is_careful) == (2, True)
    # The late owner cannot overwrite what the new one has.
    assert isinstance(save(store, late, BlockState.COMPLETE), LostBlock)
    assert store.read(0).lease == taken.lease


def test_the_next_attempt_of_a_child_takes_its_block_at_once(store: BlockStore) -> None:
    held_claim(store, 0, 2)
    own = held_claim(store, 1, 2)
    taken = held_claim(store, 1, 2, attempt=2)
    assert taken.number == own.number
    assert isinstance(claim(store, 1, 2, attempt=2), NothingLeft)


def test_a_complete_block_is_never_taken(store: BlockStore) -> None:
    save(store, held_claim(store, 0, 1), BlockState.COMPLETE)
    assert isinstance(claim(store, 0, 1, attempt=2, lease_s=0), NothingLeft)


@pytest.mark.parametrize("fault", ["lose", "conflict", "throttle", "error", "reset"])
def test_a_claim_in_trouble_is_made_once(store: BlockStore, endpoint: Endpoint, fault: str) -> None:
    use_faults(endpoint, f"{fault}@s3:PUT=1x")
    held = held_claim(store, 0, 1)
    stored = store.read(0)
    assert (held.lease, held.etag) == (stored.lease, stored.etag)


@pytest.mark.parametrize("fault", ["lose", "conflict", "throttle"])
def test_a_renewal_in_trouble_counts(store: BlockStore, endpoint: Endpoint, fault: str) -> None:
    held = held_claim(store, 0, 1)
    use_faults(endpoint, f"{fault}@s3:PUT=1x")
    renewed = save(store, held, BlockState.LEASED)
    assert isinstance(renewed, HeldBlock)
    assert renewed.lease.writes == 2
    assert isinstance(save(store, renewed, BlockState.COMPLETE), HeldBlock)


def test_a_renewal_that_was_given_up_and_yet_performed_does_not_lose_the_block(
    store: BlockStore,
) -> None:
    held = held_claim(store, 0, 1)
    renewed = save(store, held, BlockState.LEASED)
    assert isinstance(renewed, HeldBlock)
    # The owner knows only its claim, and goes on from there.
    again = save(store, held, BlockState.LEASED)
    assert isinstance(again, HeldBlock)
    assert again.lease.writes >= renewed.lease.writes
    assert isinstance(save(store, held, BlockState.COMPLETE), HeldBlock)
    assert store.read(0).lease.state is BlockState.COMPLETE
    # Complete is complete, also where the owner did not learn it.
    released = save(store, held, BlockState.RELEASED)
    assert isinstance(released, HeldBlock)
    assert released.lease.state is BlockState.COMPLETE


def test_a_conflict_that_does_not_end_asks_for_another_attempt(
    store: BlockStore, endpoint: Endpoint
) -> None:
    use_faults(endpoint, "throttle@s3:PUT=1")
    with pytest.raises(WorkerError, match=r"write block 0 to s3://.*another attempt") as caught:
        claim(store, 0, 1)
    assert caught.value.exit_code == EXIT_RETRY


def test_a_conflict_is_only_for_writes_with_a_condition(scene: Scene, endpoint: Endpoint) -> None:
    use_faults(endpoint, "conflict=1")
    scene.put("plain", b"text")
    assert scene.get("plain") == b"text"


def test_an_object_that_is_no_block_is_named(store: BlockStore, scene: Scene) -> None:
    scene.put("blocks/0000000", b"{}  ")
    with pytest.raises(WorkerError, match="0000000 is not a block that this worker") as caught:
        store.read(0)
    assert caught.value.exit_code == EXIT_ORDERS
