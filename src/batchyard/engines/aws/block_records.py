"""What the commands of dynamic steps have done, by the blocks that workers write to S3.

A list of the blocks shows their states, so only blocks that are in work, or have failed commands,
are read to count commands, and each of them again only after it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from batchyard import s3_layout
from batchyard.aws.s3 import S3, S3Object
from batchyard.batch.jobs import JobState
from batchyard.engines.aws import block_layout
from batchyard.engines.aws.block_layout import BlockLayout
from batchyard.engines.base import CommandCounts, CommandDetail
from batchyard.plan import PlannedJob
from batchyard.worker import leases, rules
from batchyard.worker.leases import BlockState, Lease, Owner, Record

#: Blocks that are read at the same time.
_CONCURRENCY = 16


@dataclass(frozen=True, slots=True)
class StepBlocks:
    """The blocks of a dynamic step, as they were listed."""

    job: PlannedJob
    layout: BlockLayout
    states: Mapping[int, BlockState]
    #: Blocks that were read.
    leases: Mapping[int, Lease]
    #: When the last block was written.
    last_ms: int | None

    def counts(self) -> CommandCounts:
        positions = self.layout.blocks
        succeeded = failed = 0
        for number, state in self.states.items():
            lease = self.leases.get(number)
            if lease is None:
                succeeded += len(positions[number]) if state is BlockState.COMPLETE else 0
                continue
            succeeded += sum(not record.exit_code for record in lease.records)
            failed += sum(is_final_failure(self.job, record) for record in lease.records)
        return CommandCounts(len(self.layout.order), succeeded, failed)

    def succeeded_commands(self) -> set[int]:
        order, positions = self.layout
        commands: set[int] = set()
        for number, state in self.states.items():
            lease = self.leases.get(number)
            if lease is not None:
                commands |= {record.command for record in lease.records if not record.exit_code}
            elif state is BlockState.COMPLETE:
                commands |= set(map(order.command_at, positions[number]))
        return commands

    def details(self) -> Iterator[tuple[CommandDetail, Owner]]:
        """Return the commands of the blocks that were read, by number, with their workers."""
        records = [
            (record, lease.owners[record.epoch - 1])
            for lease in self.leases.values()
            for record in lease.records
        ]
        for record, owner in sorted(records):
            state = JobState.FAILED if is_final_failure(self.job, record) else None
            detail = CommandDetail(
                step=self.job.step,
                number=record.command,
                index=owner.child,
                state=state if record.exit_code else JobState.SUCCEEDED,
                exit_code=record.exit_code,
                reason=_reason_of(self.job, record),
                attempts=record.attempts,
                started_ms=record.started_ms,
                ended_ms=record.started_ms + round(record.seconds * 1000),
                user_s=record.user_s,
                system_s=record.system_s,
                max_rss_kib=record.max_rss_kib,
                host="",
                child_attempt=owner.attempt,
                use=record.use,
            )
            yield detail, owner


class BlockRecords:
    """The blocks of a run's dynamic steps."""

    def __init__(self, s3: S3, address: str) -> None:
        self._s3 = s3
        self._address = address
        #: Key -> ETag and content of the blocks that were read.
        self._read: dict[str, tuple[str, Lease]] = {}
        #: Layouts of steps with lengths, which are read once.
        self._layouts: dict[str, BlockLayout] = {}

    def of_step(
        self, job: PlannedJob, skipped: frozenset[int], *, is_thorough: bool = False
    ) -> StepBlocks:
        """Return the blocks of a step: one call for each thousand, and one for each block in work.

        ``is_thorough``: read complete blocks, too.
        """
        listed = {
            number: entry
            for entry in self._s3.list(s3_layout.blocks_address(self._address, job.step))
            if (number := s3_layout.block_of_key(entry.key)) is not None
        }
        states = {
            number: leases.state_of_size(entry.size_bytes) for number, entry in listed.items()
        }
        requested_blocks = [
            number
            for number, state in states.items()
            if is_thorough or state is not BlockState.COMPLETE
        ]
        contents = self._read_blocks(job.step, requested_blocks, listed)
        last_s = max((entry.modified_s for entry in listed.values()), default=None)
        last_ms = None if last_s is None else int(last_s * 1000)
        return StepBlocks(job, self._layout_of(job, skipped), states, contents, last_ms)

    def _layout_of(self, job: PlannedJob, skipped: frozenset[int]) -> BlockLayout:
        if not job.has_lengths:
            return block_layout.cut(job, skipped)
        if job.step not in self._layouts:
            layout = block_layout.read(self._s3, self._address, job, skipped)
            self._layouts[job.step] = layout
        return self._layouts[job.step]

    def _read_blocks(
        self, step: str, numbers: Sequence[int], listed: Mapping[int, S3Object]
    ) -> dict[int, Lease]:
        changed = [
            number
            for number in numbers
            if self._read.get(listed[number].key, ("",))[0] != listed[number].etag
        ]
        folder = s3_layout.blocks_address(self._address, step)
        if changed:
            with ThreadPoolExecutor(_CONCURRENCY) as pool:
                addresses = [f"{folder}{s3_layout.block_name(number)}" for number in changed]
                for number, data in zip(changed, pool.map(self._s3.get, addresses), strict=True):
                    if data is not None:
                        entry = listed[number]
                        self._read[entry.key] = (entry.etag, leases.decode(data))
        stored = ((number, self._read.get(listed[number].key)) for number in numbers)
        return {number: entry[1] for number, entry in stored if entry is not None}


def is_final_failure(job: PlannedJob, record: Record) -> bool:
    """Return whether a command has failed and is not tried again."""
    if not record.exit_code:
        return False
    step_rules = rules.Rules(job.retry_on, job.fail_on, job.retry.attempts - 1, 1)
    failure = rules.Failure(record.command, record.exit_code, record.was_out_of_memory)
    has_timeout = job.timeout_s is not None
    return rules.is_final(step_rules, failure, record.attempts, has_timeout=has_timeout)


def _reason_of(job: PlannedJob, record: Record) -> str:
    if record.was_out_of_memory:
        return "OutOfMemoryError: Container killed due to memory usage"
    if record.exit_code == rules.EXIT_TIMED_OUT and job.timeout_s is not None:
        return f"command exceeded its timeout of {job.timeout_s} s"
    return ""
