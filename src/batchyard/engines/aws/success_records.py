"""Which children succeeded, by the records that the worker writes to S3.

There is a record for each command, named by its number. The records outlive the jobs, which AWS
forgets. A plain command runs without the worker and leaves no record: that it succeeded shows only
where a step that waited for it has begun.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from itertools import takewhile

from batchyard import s3_layout
from batchyard.aws.s3 import S3
from batchyard.engines.aws.block_records import BlockRecords, StepBlocks
from batchyard.engines.aws.definitions import needs_worker
from batchyard.engines.aws.run_files import RunFiles
from batchyard.paired_children import pair_children
from batchyard.plan import Plan, PlannedJob


@dataclass(frozen=True, slots=True)
class StepRecords:
    """The success records of one step."""

    commands: Set[int] = frozenset()
    #: When the last record was written.
    last_ms: int | None = None


def read_records(s3: S3, address: str, step: str) -> StepRecords:
    """Return a step's records: one call for each thousand. ``address``: the run's prefix in S3."""
    objects = s3.list(s3_layout.records_address(address, step))
    numbered = ((s3_layout.command_of_record(entry.key), entry.modified_s) for entry in objects)
    # Records of failures sort after all success records, and need not be read.
    times_s = {
        command: modified
        for command, modified in takewhile(lambda pair: pair[0] is not None, numbered)
        if command is not None
    }
    last_ms = int(max(times_s.values()) * 1000) if times_s else None
    return StepRecords(times_s.keys(), last_ms)


def find_succeeded(
    plan: Plan,
    recorded: Mapping[str, Set[int]],
    skipped: Mapping[str, Set[int]],
    ran: Mapping[str, Set[int]],
    begun_steps: Collection[str] = (),
) -> dict[str, set[int]]:
    """Return step -> children that have succeeded, by their positions in the plan's job.

    ``recorded``: step -> commands with a record of this run; ``skipped``: step -> commands that an
    earlier run has done; ``ran``: step -> children that are known to have begun; ``begun_steps``:
    steps of which any child has begun.
    """
    succeeded: dict[str, set[int]] = {job.step: set() for job in plan.jobs}
    for job in reversed(plan.jobs):
        step = job.step
        commands = recorded.get(step, frozenset())
        # Steps that wait for this one stand behind it in the plan, and have been looked at.
        begun = {*succeeded[step], *ran.get(step, ()), *_children_with_any(job, commands)}
        for need in job.needs:
            if need.each:
                succeeded[need.step] |= _children_needed(job, plan.job(need.step), begun)
            elif begun or step in begun_steps:
                succeeded[need.step].update(range(plan.job(need.step).size))
        if step in recorded:
            succeeded[step] |= _children_with_all(job, commands | skipped.get(step, frozenset()))
    return succeeded


def _children_needed(job: PlannedJob, needed: PlannedJob, children: Set[int]) -> Set[int]:
    """Return the children of the needed job that these children wait for, child by child."""
    pairs = pair_children(job.numbers, needed.numbers)
    if pairs is None:
        return children
    return {child for child, waiting_child in enumerate(pairs) if waiting_child in children}


def _children_with_any(job: PlannedJob, commands: Set[int]) -> set[int]:
    if not commands or job.is_dynamic:
        return set(range(job.size)) if commands else set()
    return {
        child
        for child in range(job.size)
        if any(number in commands for number in job.commands_of(child))
    }


def _children_with_all(job: PlannedJob, commands: Set[int]) -> set[int]:
    if job.is_dynamic:
        return set(range(job.size)) if len(commands) == job.command_count else set()
    return {
        child
        for child in range(job.size)
        if all(number in commands for number in job.commands_of(child))
    }


class SuccessRecords:
    """The records of one run. Each step's are read once."""

    def __init__(self, plan: Plan, s3: S3, files: RunFiles, address: str) -> None:
        self._blocks = BlockRecords(s3, address)
        self._plan = plan
        self._s3 = s3
        self._files = files
        self._address = address
        self._by_step: dict[str, StepRecords] = {}
        self._skipped: dict[str, frozenset[int]] | None = None

    @property
    def address(self) -> str:
        return s3_layout.all_records_address(self._address)

    def of_step(self, step: str) -> StepRecords:
        """Return the step's records; none where the bucket is gone."""
        if step not in self._by_step:
            self._by_step[step] = StepRecords()
            with self._files.tolerate_missing_bucket():
                self._by_step[step] = self._read_records(step)
        return self._by_step[step]

    def _read_records(self, step: str) -> StepRecords:
        if not self._plan.job(step).is_dynamic:
            return read_records(self._s3, self._address, step)
        step_blocks = self.blocks_of_step(step)
        return StepRecords(step_blocks.succeeded_commands(), step_blocks.last_ms)

    def blocks_of_step(self, step: str, *, is_thorough: bool = False) -> StepBlocks:
        """Return the blocks of a dynamic step as they are now; see BlockRecords."""
        skipped = frozenset(self.skipped.get(step, ()))
        return self._blocks.of_step(self._plan.job(step), skipped, is_thorough=is_thorough)

    @property
    def skipped(self) -> Mapping[str, Set[int]]:
        """Step -> commands that an earlier run has done."""
        if self._skipped is None:
            stored = self._files.read(s3_layout.SKIPPED_COMMANDS) or {}
            self._skipped = {step: frozenset(numbers) for step, numbers in stored.items()}
        return self._skipped

    def finished_commands(self, step: str) -> list[int]:
        """Return the step's commands that need not run again."""
        return sorted({*self.of_step(step).commands, *self.skipped.get(step, ())})

    def find_succeeded(
        self,
        steps: Collection[str],
        ran: Mapping[str, Set[int]],
        begun_steps: Collection[str] = (),
    ) -> dict[str, set[int]]:
        """See the function of this name. Records are read of the ``steps`` that have any."""
        recorded = {
            step: self.of_step(step).commands
            for step in steps
            if needs_worker(self._plan.job(step))
        }
        skipped = self.skipped if recorded else {}
        return find_succeeded(self._plan, recorded, skipped, ran, begun_steps)
