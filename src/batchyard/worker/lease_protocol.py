"""The lease protocol: how children claim, renew, complete, release and take over blocks. Pure.

A block has one object in S3: lease and records in one. Each write has a condition: a claim needs
that there is no object yet, and every other write that the object is still the one that was read
or written last. So a block has one owner at a time, and who lost it cannot overwrite anything.

An operation is a value: it names the request to perform next, and its answer leads to the next
operation or to the result. No operation waits. docs/semantics.md explains the protocol, and
tests/properties/test_lease_model.py tries all its interleavings.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import field, replace
from itertools import islice
from typing import NamedTuple

from batchyard.quick_dataclasses import dataclass
from batchyard.worker.leases import LEASE_S, BlockState, Lease, Owner
from batchyard.worker.scale import Scale

#: Blocks without owner that are tried before the list is read again, which is old by then.
_MAX_TRIES = 3
#: The blocks to try are chosen among this many of the first unclaimed ones. Early blocks are large,
#: and where lengths are known they have the longest commands: one that is left for late keeps the
#: step from ending. So there are few choices, twice as many after each claim that another child
#: was faster with, and at most so many for each child.
MIN_CHOICES = 4
_MAX_CHOICES_PER_CHILD = 2


# -- requests to the store of blocks, and their answers --------------------------------------------


class ListBlocks(NamedTuple):
    #: blocks below this number are not of interest
    first: int


class ReadBlock(NamedTuple):
    number: int


class WriteBlock(NamedTuple):
    number: int
    lease: Lease
    #: ETag that the object must have; None if there must be no object
    etag: str | None


Request = ListBlocks | ReadBlock | WriteBlock


class Entry(NamedTuple):
    """A block in a list."""

    state: BlockState
    etag: str
    #: time since the last write, by the clock of S3
    age_s: float


class Listing(NamedTuple):
    """Answer to ListBlocks."""

    #: number of a block that has an object -> what the list shows of it
    entries: Mapping[int, Entry]
    #: None if the step was never scaled
    scale: Scale | None = None


class StoredBlock(NamedTuple):
    """Answer to ReadBlock."""

    lease: Lease
    etag: str
    age_s: float


class WrittenBlock(NamedTuple):
    """Answer to WriteBlock: the object was written."""

    etag: str


class RefusedWrite(NamedTuple):
    """Answer to WriteBlock: the condition was not met."""

    #: whether the request was sent once, so that no earlier try of it can have met the condition
    was_sent_once: bool = False


Answer = Listing | StoredBlock | WrittenBlock | RefusedWrite


# -- operations ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """Result: the block is leased by the one who asked, or was until this write."""

    number: int
    lease: Lease
    etag: str


@dataclass(frozen=True, slots=True)
class LostBlock:
    """Result: someone else has written the block."""

    number: int


@dataclass(frozen=True, slots=True)
class NothingLeft:
    """Result: every block is complete or leased by someone else, or the child is dismissed."""

    #: whether the step was scaled, so that the child asks before it ends
    is_scaled: bool = False


@dataclass(frozen=True, slots=True)
class Saving:
    """Writes a block. Results: HeldBlock or LostBlock.

    A refused write can be one's own that was repeated because its answer was lost. So the object is
    read, and counts as written if it has this content. It can also have an earlier write of the
    same owner, who gave that write up: then the block is still the owner's, and is written again.
    """

    number: int
    lease: Lease
    etag: str | None
    is_checking: bool = False

    @property
    def request(self) -> Request:
        if self.is_checking:
            return ReadBlock(self.number)
        return WriteBlock(self.number, self.lease, self.etag)

    def receive(self, answer: Answer) -> Saving | HeldBlock | LostBlock:
        if isinstance(answer, WrittenBlock):
            return HeldBlock(self.number, self.lease, answer.etag)
        if isinstance(answer, RefusedWrite):
            if answer.was_sent_once and self.etag is None:
                return LostBlock(self.number)  # someone else has claimed it
            return replace(self, is_checking=True)
        assert isinstance(answer, StoredBlock)
        if answer.lease.owners != self.lease.owners:
            return LostBlock(self.number)
        if answer.lease == self.lease or answer.lease.state.is_complete:
            return HeldBlock(self.number, answer.lease, answer.etag)
        lease = replace(self.lease, writes=answer.lease.writes + 1)
        return Saving(self.number, lease, answer.etag)


@dataclass(frozen=True, slots=True)
class Claiming:
    """Finds a block and leases it. Results: HeldBlock or NothingLeft.

    First blocks that nobody has claimed, about in order; then blocks that were released, or whose
    lease has expired, or whose owner was an earlier attempt of the same child. A child that the
    scale dismisses takes only the last ones: what its earlier attempts held is its own duty.
    """

    owner: Owner
    #: number of blocks of the step
    total: int
    lease_s: float = LEASE_S
    #: all blocks below this number have been claimed
    first: int = 0
    #: unclaimed block to try first
    preferred: int | None = None
    #: children that claim blocks
    children: int = 1
    #: how many of the first unclaimed blocks to choose from
    choices: int = MIN_CHOICES
    #: whether another child was faster with a block
    was_slower: bool = False
    #: whether the child claims although the scale dismisses it
    ignores_scale: bool = False
    is_dismissed: bool = False
    #: blocks to try; None: the list must be read
    candidates: tuple[int, ...] | None = None
    #: whether all blocks have been claimed, and those of other owners are looked through
    is_last_round: bool = False
    #: (number, ETag) of blocks that were looked at and cannot be taken
    rejected: frozenset[tuple[int, str]] = field(default_factory=frozenset)
    saving: Saving | None = None

    @property
    def request(self) -> Request:
        if self.saving is not None:
            return self.saving.request
        if not self.candidates:
            return ListBlocks(0 if self.is_last_round else self.first)
        if self.is_last_round:
            return ReadBlock(self.candidates[0])
        return WriteBlock(self.candidates[0], self._new_lease, None)

    @property
    def _new_lease(self) -> Lease:
        return Lease((self.owner,))

    def receive(self, answer: Answer) -> Claiming | HeldBlock | NothingLeft:
        if self.saving is not None:
            return self._receive_saving(self.saving, answer)
        if isinstance(answer, Listing):
            return self._receive_list(answer)
        assert self.candidates
        number = self.candidates[0]
        if isinstance(answer, StoredBlock):
            if self._can_take(answer):
                lease = answer.lease.taken_over_by(self.owner)
                return replace(self, saving=Saving(number, lease, answer.etag))
            rejected = self.rejected | {(number, answer.etag)}
            return replace(self, candidates=self.candidates[1:], rejected=rejected)
        return self._receive_saving(Saving(number, self._new_lease, None), answer)

    def _receive_saving(self, saving: Saving, answer: Answer) -> Claiming | HeldBlock:
        result = saving.receive(answer)
        if isinstance(result, HeldBlock):
            return result
        if isinstance(result, Saving):
            return replace(self, saving=result)
        assert self.candidates
        return replace(
            self,
            saving=None,
            candidates=self.candidates[1:],
            choices=self._more_choices,
            was_slower=True,
        )

    @property
    def _more_choices(self) -> int:
        most = max(MIN_CHOICES, _MAX_CHOICES_PER_CHILD * self.children)
        return min(2 * self.choices, most)

    @property
    def next_choices(self) -> int:
        """How many blocks the next claim chooses from: half, if no other child was faster."""
        return self.choices if self.was_slower else max(MIN_CHOICES, self.choices // 2)

    def _can_take(self, block: StoredBlock) -> bool:
        # A worker that holds a block claims the next one. Its own may have expired by then.
        if block.lease.owner == self.owner and block.lease.state is BlockState.LEASED:
            return False
        if self.is_dismissed:
            is_complete = block.lease.state.is_complete
            return not is_complete and block.lease.owner.is_earlier_attempt_of(self.owner)
        return block.lease.can_be_taken(self.owner, block.age_s, self.lease_s)

    def _is_dismissed_by(self, scale: Scale | None) -> bool:
        if scale is None or self.ignores_scale:
            return False
        return not scale.has_child(self.owner.child)

    def _receive_list(self, listing: Listing) -> Claiming | NothingLeft:
        scale = listing.scale
        is_dismissed = self._is_dismissed_by(scale)
        if is_dismissed and self.owner.attempt == 1:
            return NothingLeft(is_scaled=True)
        if is_dismissed != self.is_dismissed:
            return replace(
                self, is_dismissed=is_dismissed, is_last_round=is_dismissed, rejected=frozenset()
            )
        if self.is_last_round:
            candidates = tuple(
                number
                for number, entry in sorted(listing.entries.items())
                if self._is_candidate(number, entry)
            )
            if not candidates:
                return NothingLeft(scale is not None)
            return replace(self, candidates=candidates)
        blocks = range(self.first, self.total)
        unclaimed = (number for number in blocks if number not in listing.entries)
        choices = tuple(islice(unclaimed, self.choices))
        if not choices:
            return replace(self, first=self.total, candidates=None, is_last_round=True)
        return replace(self, first=choices[0], candidates=self._choose(choices))

    def _choose(self, choices: tuple[int, ...]) -> tuple[int, ...]:
        """Return which of the first unclaimed blocks to try, in an order of this owner's own.

        If all tried the same, all but one would be refused where many children are free at the
        same time, as in a step with short commands.
        """
        if self.preferred in choices:
            return (self.preferred,)

        def sort_key(number: int) -> int:
            return zlib.crc32(f"{self.owner.token} {number} {choices[0]}".encode())

        return tuple(sorted(choices, key=sort_key)[:_MAX_TRIES])

    def _is_candidate(self, number: int, entry: Entry) -> bool:
        if entry.state.is_complete or (number, entry.etag) in self.rejected:
            return False
        is_free = entry.state is BlockState.RELEASED or entry.age_s >= self.lease_s
        is_free = is_free and not self.is_dismissed
        # The list does not show the owner, which can be an earlier attempt of this child.
        return is_free or self.owner.attempt > 1


@dataclass(frozen=True, slots=True)
class MayEnd:
    """Result: the child may end."""

    #: a block with failed commands, if all blocks are complete
    failed_block: int | None = None


@dataclass(frozen=True, slots=True)
class MustStay:
    """Result: the child must look again later."""

    #: whether nobody works on any block
    is_idle: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """Decides whether a child of a scaled step may end. Results: MayEnd or MustStay.

    It ends after the last block, or if another child has a block that asks the same later. That is
    never a dismissed child, which may have ended before a last write of it arrived. Steps that wait
    for this one wait for its own children, not for those that were added: so an own child relies on
    own ones.
    """

    owner: Owner
    #: number of blocks of the step
    total: int
    #: number of the step's own children: those that were added have higher indices
    own_children: int
    lease_s: float = LEASE_S
    scale: Scale | None = None
    #: blocks in work that are read to find their owners; None: the list must be read
    candidates: tuple[int, ...] | None = None

    @property
    def request(self) -> Request:
        return ListBlocks(0) if self.candidates is None else ReadBlock(self.candidates[0])

    def receive(self, answer: Answer) -> Ending | MayEnd | MustStay:
        if isinstance(answer, Listing):
            return self._receive_list(answer)
        assert isinstance(answer, StoredBlock) and self.candidates
        lease, child = answer.lease, answer.lease.owner.child
        is_in_work = lease.state is BlockState.LEASED and answer.age_s < self.lease_s
        if is_in_work and self._relies_on(child):
            return MayEnd()
        remaining = self.candidates[1:]
        return replace(self, candidates=remaining) if remaining else MustStay(is_idle=False)

    def _receive_list(self, listing: Listing) -> Ending | MayEnd | MustStay:
        entries, scale = sorted(listing.entries.items()), listing.scale
        if scale is None or self._may_end_at_once(scale):
            return MayEnd()
        if sum(entry.state.is_complete for _, entry in entries) == self.total:
            failed = (number for number, entry in entries if entry.state is BlockState.FAILED)
            return MayEnd(next(failed, None) if self._has_waiting_steps(scale) else None)
        in_work = tuple(
            number
            for number, entry in entries
            if entry.state is BlockState.LEASED and entry.age_s < self.lease_s
        )
        if not in_work:
            return MustStay(is_idle=True)
        return replace(self, scale=scale, candidates=in_work)

    def _has_waiting_steps(self, scale: Scale) -> bool:
        """Return whether other steps wait for the end of this child."""
        return scale.has_dependents and self.owner.child < self.own_children

    def _may_end_at_once(self, scale: Scale) -> bool:
        is_dismissed = not scale.has_child(self.owner.child)
        return is_dismissed and not self._has_waiting_steps(scale)

    def _relies_on(self, child: int) -> bool:
        assert self.scale is not None
        if child == self.owner.child or not self.scale.has_child(child):
            return False
        return child < self.own_children or not self._has_waiting_steps(self.scale)


Operation = Claiming | Saving | Ending
Result = HeldBlock | LostBlock | NothingLeft | MayEnd | MustStay
