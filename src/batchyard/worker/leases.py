"""The content of a block's object in S3: its lease, and the records of its commands. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, NamedTuple

from batchyard.quick_dataclasses import dataclass
from batchyard.sampling import samples
from batchyard.sampling.samples import SampledUse
from batchyard.worker.rules import EXIT_KILLED

#: A lease expires when its object was not written for so long, by the clock of S3.
LEASE_S = 60.0
#: So an owner misses two renewals, and has time for a third, before anyone takes its block.
RENEW_S = LEASE_S / 3
FORMAT = 1
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
    #: what its samples show, without the series; None if it was not sampled
    use: SampledUse | None = None


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
        "records": [_encode_record(record) for record in lease.records],
    }
    data = json.dumps(document, separators=(",", ":")).encode()
    padding = (lease.state - len(data)) % len(BlockState)
    return data + b" " * padding


def _encode_record(record: Record) -> list[object]:
    """Return the record as a list, which has the use only if there is one."""
    if record.use is None:
        return list(record[:-1])
    return [*record[:-1], samples.to_json(record.use)]


def _decode_record(members: Sequence[Any]) -> Record:
    record = Record(*members)
    return record._replace(use=samples.from_json(record.use))


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
            records=tuple(_decode_record(record) for record in document["records"]),
            writes=document["writes"],
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"it is not a block: {exc}") from exc
