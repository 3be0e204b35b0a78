"""The content of blocks: sizes that tell the state, takeovers, and commands that kill workers."""

from __future__ import annotations

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchyard.blocks import DispatchOrder, cut_blocks
from batchyard.sampling.samples import SampledUse
from batchyard.worker.lease_protocol import (
    Claiming,
    Entry,
    Listing,
    NothingLeft,
    ReadBlock,
    RefusedWrite,
    StoredBlock,
    WriteBlock,
)
from batchyard.worker.leases import (
    BlockState,
    Lease,
    Owner,
    Record,
    decode,
    encode,
    state_of_size,
)

OWNERS = st.builds(Owner, st.text(), st.integers(0, 10**6), st.integers(1, 10), st.text())
SECONDS = st.floats(0, 1e6)
COUNTS = st.integers(0, 10**9)
RECORDS = st.builds(
    Record,
    *(COUNTS, st.integers(0, 255), COUNTS, COUNTS),
    *(SECONDS, SECONDS, SECONDS),
    *(COUNTS, st.booleans(), COUNTS),
    st.sampled_from(
        [
            None,
            SampledUse(3, 6.0, 1.5, 2.0, 2048),
            SampledUse(3, 6.0, 1.5, 2.0, 2048, 50.5, 99, 1000, 16384),
        ]
    ),
)
LEASES = st.builds(
    Lease,
    st.lists(OWNERS, min_size=1, max_size=3).map(tuple),
    st.sampled_from(BlockState),
    st.none() | COUNTS,
    st.booleans(),
    st.lists(COUNTS, max_size=3).map(tuple),
    st.lists(RECORDS, max_size=4).map(tuple),
    COUNTS,
)


@given(LEASES)
def test_a_lease_is_read_as_it_was_written_and_its_size_is_its_state(lease: Lease) -> None:
    data = encode(lease)
    assert decode(data) == lease
    assert state_of_size(len(data)) is lease.state


def test_a_record_of_a_short_command_is_as_older_workers_wrote_it() -> None:
    record = Record(7, 0, 1, 1000, 0.5, 0.25, 0.125, 64, False, 1)
    lease = Lease((Owner("job", 0, 1),), records=(record,))
    assert b'"records":[[7,0,1,1000,0.5,0.25,0.125,64,false,1]]' in encode(lease)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", b'{"format":2}', b"\xff"])
def test_other_content_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


FIRST, SECOND, THIRD, FOURTH = (Owner("job", child, 1, "") for child in range(4))


def test_a_command_that_kills_two_careful_owners_is_not_run_again() -> None:
    lease = Lease((FIRST,)).taken_over_by(SECOND)
    assert lease.is_careful
    lease = Lease(lease.owners, is_careful=True, running=7).taken_over_by(THIRD)
    assert not lease.has_killed_owners(7, retries=0)
    lease = Lease(lease.owners, is_careful=True, running=7, deaths=lease.deaths)
    lease = lease.taken_over_by(FOURTH)
    assert lease.has_killed_owners(7, retries=1)
    assert not lease.has_killed_owners(7, retries=2)
    assert not lease.has_killed_owners(8, retries=0)


def test_a_released_block_is_not_suspect() -> None:
    lease = Lease((FIRST,), BlockState.RELEASED, running=7).taken_over_by(SECOND)
    assert (lease.is_careful, lease.deaths, lease.running) == (False, (), None)


def test_only_a_later_attempt_of_the_same_child_takes_a_fresh_lease() -> None:
    lease = Lease((Owner("job", 3, 1, "a"),))
    assert lease.can_be_taken(Owner("job", 3, 2, "b"), 0, 60)
    assert not lease.can_be_taken(Owner("job", 3, 1, "b"), 0, 60)
    assert not lease.can_be_taken(Owner("job", 4, 2, "b"), 0, 60)
    assert not lease.can_be_taken(Owner("other", 3, 2, "b"), 0, 60)
    assert not Lease((Owner("", 0, 1, ""),)).can_be_taken(Owner("", 0, 2, ""), 0, 60)


@pytest.mark.parametrize(("total", "choices", "tried"), [(50, 4, 4), (50, 20, 20), (5, 20, 5)])
def test_children_that_are_free_at_the_same_time_try_different_blocks(
    total: int, choices: int, tried: int
) -> None:
    tries = set()
    for child in range(200):
        owner = Owner("job", child, 1, f"token-{child}")
        claiming = Claiming(owner, total, children=10, choices=choices)
        listed = claiming.receive(Listing({}))
        assert isinstance(listed, Claiming)
        assert listed.first == 0 and listed.candidates and len(listed.candidates) == 3
        tries.add(listed.candidates[0])
    # Near the first one, which is the longest where blocks are ordered by length, until the end.
    assert tries == set(range(tried))


def test_each_claim_that_another_child_was_faster_with_doubles_the_choices() -> None:
    claiming = Claiming(FIRST, 50, children=5).receive(Listing({}))
    choices = []
    for _ in range(3):
        assert isinstance(claiming, Claiming)
        choices.append(claiming.choices)
        claiming = claiming.receive(RefusedWrite(was_sent_once=True))
    assert isinstance(claiming, Claiming)
    assert [*choices, claiming.choices] == [4, 8, 10, 10]


@pytest.mark.parametrize("choices", [4, 8, 10])
def test_the_next_claim_has_fewer_choices_only_if_no_other_child_was_faster(choices: int) -> None:
    claiming = Claiming(FIRST, 50, children=5, choices=choices).receive(Listing({}))
    assert isinstance(claiming, Claiming)
    assert claiming.next_choices == max(4, choices // 2)
    slower = claiming.receive(RefusedWrite(was_sent_once=True))
    assert isinstance(slower, Claiming)
    # Also with as many choices as there can be, which do not become more.
    assert slower.next_choices == min(2 * choices, 10)


@pytest.mark.parametrize(("way", "bar"), [("unknown", 1.14), ("known", 1.05)])
def test_sixteen_children_end_at_about_the_same_time(way: str, bar: float) -> None:
    """A large block that is left until late is what keeps a step from ending.

    The mean of ten lists of lognormal length, over the lower bound. Without lengths, a hand-out of
    single commands has 1.08.
    """
    ratios = [simulate_hand_out(seed, knows_lengths=way == "known") for seed in range(10)]
    assert sum(ratios) / len(ratios) <= bar


def simulate_hand_out(seed: int, *, knows_lengths: bool) -> float:
    """Return the time from start to end over the lower bound, where a claim takes no time."""
    generator = random.Random(seed)
    lengths = [generator.lognormvariate(0, 1) for _ in range(1000)]
    order = DispatchOrder(1000)
    if knows_lengths:
        order = DispatchOrder(1000, (), sorted(range(1000), key=lambda n: -lengths[n]))
    seconds = [lengths[order.command_at(position)] for position in range(1000)]
    blocks = cut_blocks(1000, 16, seconds if knows_lengths else None)
    claimed: dict[int, Entry] = {}
    free_at = [(0.0, child) for child in range(16)]
    while len(claimed) < len(blocks):
        now, child = heapq.heappop(free_at)
        preferred = child if len(claimed) < 16 else None
        owner = Owner("job", child, 1, f"token-{child}")
        claiming = Claiming(owner, len(blocks), preferred=preferred, children=16)
        chosen = claiming.receive(Listing(claimed))
        assert isinstance(chosen, Claiming) and chosen.candidates
        number = chosen.candidates[0]
        claimed[number] = Entry(BlockState.LEASED, "etag", 0.0)
        heapq.heappush(free_at, (now + sum(seconds[p] for p in blocks[number]), child))
    return max(end for end, _ in free_at) / max(sum(lengths) / 16, *lengths)


def test_a_worker_does_not_take_over_the_block_that_it_holds() -> None:
    """It claims ahead, and its own lease may have expired when S3 was slow."""
    own = Lease((FIRST,))
    listing = Listing({0: Entry(own.state, "etag", 100.0)})
    claiming = Claiming(FIRST, 1).receive(listing)
    assert isinstance(claiming, Claiming)
    claiming = claiming.receive(listing)
    assert isinstance(claiming, Claiming) and claiming.candidates == (0,)
    claiming = claiming.receive(StoredBlock(own, "etag", 100.0))
    assert isinstance(claiming, Claiming)
    assert isinstance(claiming.receive(listing), NothingLeft)


def test_a_refusal_of_a_claim_that_was_sent_once_needs_no_look_at_the_block() -> None:
    claiming = Claiming(FIRST, 9).receive(Listing({}))
    assert isinstance(claiming, Claiming) and claiming.candidates
    first = claiming.candidates[0]
    again = claiming.receive(RefusedWrite(was_sent_once=True))
    assert isinstance(again, Claiming) and isinstance(again.request, WriteBlock)
    assert again.request.number != first
    unsure = claiming.receive(RefusedWrite())
    assert isinstance(unsure, Claiming) and unsure.request == ReadBlock(first)
