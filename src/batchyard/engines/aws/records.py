"""Which children succeeded, by what the worker records in S3: known also when AWS has forgotten the jobs.

There is a record for each command, named by its number. A plain command runs without the worker and leaves none: that
it succeeded shows only where something that waited for it has begun.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass

from batchyard import s3_layout
from batchyard.aws.s3 import S3
from batchyard.engines.aws.definitions import needs_worker
from batchyard.engines.aws.kept import Kept
from batchyard.plan import Plan, PlannedJob
from batchyard.s3_layout import SKIPPED_COMMANDS


@dataclass(frozen=True, slots=True)
class Recorded:
    """The success records of one step."""

    commands: Set[int] = frozenset()
    #: when the last of them was written
    last_ms: int | None = None


def read(s3: S3, address: str, step: str) -> Recorded:
    """One call for each thousand records. ``address``: the run's prefix in S3."""
    times: dict[int, float] = {}
    for entry in s3.list(s3_layout.records_address(address, step)):
        command = s3_layout.command_of_record(entry.key)
        if command is None:
            break  # records of failures sort after all success records
        times[command] = entry.modified
    return Recorded(times.keys(), int(max(times.values()) * 1000) if times else None)


def succeeded(
    plan: Plan,
    recorded: Mapping[str, Set[int]],
    skipped: Mapping[str, Set[int]],
    ran: Mapping[str, Set[int]],
    begun: Collection[str] = (),
) -> dict[str, set[int]]:
    """Step -> its children that have succeeded, by their positions in the plan's job.

    ``recorded``: step -> commands with a record of this run; ``skipped``: step -> commands that an earlier run has
    done; ``ran``: step -> children that are known to have begun; ``begun``: steps of which any child has.
    """
    found: dict[str, set[int]] = {job.step: set() for job in plan.jobs}
    for job in reversed(plan.jobs):
        step = job.step
        own = recorded.get(step, frozenset())
        # What has waited for this step, and has begun, is behind it in the plan: it has been noted by now.
        have_begun = {*found[step], *ran.get(step, ()), *_children_with(job, own)}
        for need in job.needs:
            if need.each:
                found[need.step] |= have_begun
            elif have_begun or step in begun:
                found[need.step].update(range(plan.job(need.step).size))
        if step in recorded:
            found[step] |= _children_within(job, own, skipped.get(step, frozenset()))
    return found


def _children_with(job: PlannedJob, commands: Set[int]) -> set[int]:
    """Those with any of these commands."""
    if not commands:
        return set()
    return {
        child
        for child in range(job.size)
        if any(number in commands for number in job.commands_of(child))
    }


def _children_within(job: PlannedJob, commands: Set[int], more: Set[int]) -> set[int]:
    """Those all of whose commands are among these."""
    return {
        child
        for child in range(job.size)
        if all(number in commands or number in more for number in job.commands_of(child))
    }


class Ledger:
    """The records of one run, each step's read once."""

    def __init__(self, plan: Plan, s3: S3, kept: Kept, address: str) -> None:
        self._plan = plan
        self._s3 = s3
        self._kept = kept
        self._address = address
        self._recorded: dict[str, Recorded] = {}
        self._skipped: dict[str, frozenset[int]] | None = None

    @property
    def name(self) -> str:
        return f"the success records in {s3_layout.all_records_address(self._address)}"

    def of(self, step: str) -> Recorded:
        """Nothing where the bucket is gone."""
        if step not in self._recorded:
            self._recorded[step] = Recorded()
            with self._kept.bucket_may_be_gone():
                self._recorded[step] = read(self._s3, self._address, step)
        return self._recorded[step]

    @property
    def skipped(self) -> Mapping[str, Set[int]]:
        """Step -> commands that an earlier run has done."""
        if self._skipped is None:
            kept = self._kept.get(SKIPPED_COMMANDS) or {}
            self._skipped = {step: frozenset(numbers) for step, numbers in kept.items()}
        return self._skipped

    def done(self, step: str) -> list[int]:
        """The step's commands that need not run again."""
        return sorted({*self.of(step).commands, *self.skipped.get(step, ())})

    def succeeded(
        self, steps: Collection[str], ran: Mapping[str, Set[int]], begun: Collection[str] = ()
    ) -> dict[str, set[int]]:
        """As the function; records are read of those of the steps that have any."""
        recorded = {
            step: self.of(step).commands for step in steps if needs_worker(self._plan.job(step))
        }
        return succeeded(self._plan, recorded, self.skipped if recorded else {}, ran, begun)
