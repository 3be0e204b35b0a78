"""The lease protocol: how children claim, renew, complete, release and take over blocks. Pure.

A block has one object in S3: lease and records in one. Each write has a condition: a claim needs
that there is no object yet, and every other write that the object is still the one that was read
or written last. So a block has one owner at a time, and who lost it cannot overwrite anything.

An operation is a value: it names the request to perform next, and its answer leads to the next
operation or to the result. No operation waits. docs/semantics.md explains the protocol, and
tests/properties/test_lease_model.py tries all its interleavings.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import islice
from typing import Any, NamedTuple

from batchyard.worker.rules import EXIT_KILLED

#: A lease expires when its object was not written for so long, by the clock of S3.
LEASE_S = 60.0
#: So an owner misses two renewals, and has time for a third, before anyone takes its block.
RENEW_S = LEASE_S / 3
FORMAT = 1
#: Blocks without owner that are tried before the list is read again.
_MAX_CANDIDATES = 32
#: Of the first unclaimed blocks, one of so many is tried first, so that the very first is claimed
#: soon, too: it is the longest where blocks are ordered by length. Of the last ones of a step,
#: which are about equal, any is tried first.
_MAX_CHOICES = 8
#: Owners that must vanish while they run a command before the command counts as their killer.
_MIN_DEATHS = 2


class BlockState(IntEnum):
    """The state of a block that has an object.

    The number of bytes of the object, modulo 4, is this number. So a list of the objects shows the
    states of all blocks, and nobody has to read them one by one.
    """

    LEASED = 0
    RELEASED = 1
    COMPLETE = 2
    #: complete, and commands of it have failed for good
    FAILED = 3

    @property
    def is_complete(self) -> bool:
        return self >= BlockState.COMPLETE


def state_of_size(size_bytes: int) -> BlockState:
    """Return the state of a block from the size of its object."""
    return BlockState(size_bytes % len(BlockState))


class Owner(NamedTuple):
    """An attempt of a child that has leased a block."""

    job: str
    #: index of the child in the step
    child: int
    attempt: int
    #: unique to the process, so that a write can be recognised as one's own
    token: str = ""

    def is_earlier_attempt_of(self, owner: Owner) -> bool:
        is_same_child = (self.job, self.child) == (owner.job, owner.child)
        return bool(self.job) and is_same_child and self.attempt < owner.attempt


class Record(NamedTuple):
    """The last execution of a command."""

    command: int
    exit_code: int
    #: executions that ended by themselves, those by earlier owners included
    attempts: int
    started_ms: int
    seconds: float
    user_s: float
    system_s: float
    max_rss_kib: int
    was_out_of_memory: bool
    #: number of the block's owner that ran it, from 1
    epoch: int


@dataclass(frozen=True, slots=True)
class Lease:
    """The content of a block's object."""

    #: all owners so far; the last one is the present owner
    owners: tuple[Owner, ...]
    state: BlockState = BlockState.LEASED
    #: the command that runs, where ``is_careful``
    running: int | None = None
    #: whether an owner vanished: the next ones write each command before they start it
    is_careful: bool = False
    #: commands that ran when a careful owner vanished
    deaths: tuple[int, ...] = ()
    records: tuple[Record, ...] = ()
    #: number of this write. No two contents of an object are equal, and so no two of its ETags.
    writes: int = 1

    @property
    def epoch(self) -> int:
        """The number of owners so far: each takeover begins a new epoch."""
        return len(self.owners)

    @property
    def owner(self) -> Owner:
        return self.owners[-1]

    def taken_over_by(self, owner: Owner) -> Lease:
        has_vanished = self.state is BlockState.LEASED
        deaths = self.deaths
        if has_vanished and self.running is not None:
            deaths = (*deaths, self.running)
        return replace(
            self,
            owners=(*self.owners, owner),
            state=BlockState.LEASED,
            running=None,
            is_careful=has_vanished,
            deaths=deaths,
            writes=self.writes + 1,
        )

    def has_killed_owners(self, command: int, retries: int) -> bool:
        """Return whether so many owners vanished with this command that it is not run again."""
        return self.deaths.count(command) >= max(_MIN_DEATHS, retries + 1)

    def can_be_taken(self, owner: Owner, age_s: float, lease_s: float) -> bool:
        """Return whether ``owner`` may take the block, whose object was written ``age_s`` ago."""
        if self.state is not BlockState.LEASED:
            return self.state is BlockState.RELEASED
        # AWS Batch starts an attempt after the end of the one before.
        return age_s >= lease_s or self.owner.is_earlier_attempt_of(owner)


def killed_record(command: int, attempts: int, started_ms: int, epoch: int) -> Record:
    """Return the record of a command that killed its owners, as it would kill every other."""
    return Record(command, EXIT_KILLED, attempts, started_ms, 0.0, 0.0, 0.0, 0, True, epoch)


# -- as JSON ---------------------------------------------------------------------------------------


def encode(lease: Lease) -> bytes:
    document = {
        "format": FORMAT,
        "epoch": lease.epoch,
        "state": lease.state.name.lower(),
        "owners": lease.owners,
        "writes": lease.writes,
        "running": lease.running,
        "careful": lease.is_careful,
        "deaths": lease.deaths,
        "records": lease.records,
    }
    data = json.dumps(document, separators=(",", ":")).encode()
    padding = (lease.state - len(data)) % len(BlockState)
    return data + b" " * padding


def decode(data: bytes) -> Lease:
    """Return the lease. Raises ValueError if the content is none of this version."""
    try:
        document: dict[str, Any] = json.loads(data)
        if document["format"] != FORMAT:
            raise ValueError(f"its format is {document['format']!r}")
        return Lease(
            owners=tuple(Owner(*owner) for owner in document["owners"]),
            state=BlockState[document["state"].upper()],
            running=document["running"],
            is_careful=document["careful"],
            deaths=tuple(document["deaths"]),
            records=tuple(Record(*record) for record in document["records"]),
            writes=document["writes"],
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"it is not a block: {exc}") from exc


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


#: answer to ListBlocks: number of a block that has an object -> what the list shows of it
Listing = Mapping[int, Entry]


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
    """Result: every block is complete, or leased by someone else."""


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
    lease has expired, or whose owner was an earlier attempt of the same child.
    """

    owner: Owner
    #: number of blocks of the step
    total: int
    lease_s: float = LEASE_S
    #: all blocks below this number have been claimed
    first: int = 0
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
        if isinstance(answer, Mapping):
            return self._receive_list(answer)
        assert self.candidates
        number = self.candidates[0]
        if isinstance(answer, StoredBlock):
            if answer.lease.can_be_taken(self.owner, answer.age_s, self.lease_s):
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
        return replace(self, saving=None, candidates=self.candidates[1:])

    def _receive_list(self, listing: Listing) -> Claiming | NothingLeft:
        if self.is_last_round:
            candidates = tuple(
                number
                for number, entry in sorted(listing.items())
                if self._is_candidate(number, entry)
            )
            return replace(self, candidates=candidates) if candidates else NothingLeft()
        unclaimed = (number for number in range(self.first, self.total) if number not in listing)
        candidates = tuple(islice(unclaimed, _MAX_CANDIDATES))
        if not candidates:
            return replace(self, first=self.total, candidates=None, is_last_round=True)
        first, start = candidates[0], self._choose_start(candidates)
        return replace(self, first=first, candidates=candidates[start:] + candidates[:start])

    def _choose_start(self, candidates: tuple[int, ...]) -> int:
        """Return which of the first unclaimed blocks to try first, different for each owner.

        If all tried the first one, all but one would be refused where many children are free at
        the same time, as at the end of a step with short commands.
        """
        seed = f"{self.owner.token} {candidates[0]} {len(candidates)}".encode()
        is_end = len(candidates) < _MAX_CANDIDATES
        return zlib.crc32(seed) % (len(candidates) if is_end else _MAX_CHOICES)

    def _is_candidate(self, number: int, entry: Entry) -> bool:
        if entry.state.is_complete or (number, entry.etag) in self.rejected:
            return False
        is_free = entry.state is BlockState.RELEASED or entry.age_s >= self.lease_s
        # The list does not show the owner, which can be an earlier attempt of this child.
        return is_free or self.owner.attempt > 1


Operation = Claiming | Saving
Result = HeldBlock | LostBlock | NothingLeft
