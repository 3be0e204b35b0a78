"""The commands of a run that have ended: by the records of their workers, or their attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from batchyard.aws.s3 import S3
from batchyard.batch.jobs import JobState
from batchyard.engines.aws import definitions, share_records
from batchyard.engines.aws.success_records import SuccessRecords
from batchyard.engines.base import AttemptDetail, CommandDetail
from batchyard.plan import Plan, PlannedJob
from batchyard.sampling import samples
from batchyard.sampling.samples import AttemptUse, SampledStep, SampledUse
from batchyard.worker.leases import Owner

#: Returns the number of a child in its step and the attempt of the owner of a block.
FindAttempt = Callable[[Owner], tuple[int, int]]


class RunCommands:
    def __init__(
        self,
        plan: Plan,
        s3: S3,
        records: SuccessRecords,
        address: str,
        find_attempt: FindAttempt | None = None,
    ) -> None:
        """``address``: the run's prefix in S3.

        ``find_attempt``: where workers do not know which child they are; None: they do.
        """
        self._plan = plan
        self._s3 = s3
        self._records = records
        self._address = address
        self._find_attempt = find_attempt

    def find(
        self,
        attempts: Iterable[AttemptDetail],
        step: str | None,
        number: int | None,
        *,
        failed_only: bool,
    ) -> Iterator[CommandDetail]:
        """Return the commands that have ended. See RunEngine.commands.

        ``attempts``: the attempts of the run, or only failed ones.
        """
        # Attempts of a child follow each other; the last one decides.
        last_by_child = {(attempt.step, attempt.index): attempt for attempt in attempts}
        # A retry may have changed the order of the children.
        steps = {job.step: position for position, job in enumerate(self._plan.jobs)}
        keys = sorted(last_by_child, key=lambda key: (steps[key[0]], key[1]))
        yield from self._find_in_attempts(
            [
                last_by_child[key]
                for key in keys
                if step in (None, key[0]) and number in (None, key[1])
            ],
            number,
            failed_only=failed_only,
        )
        for job in self._plan.jobs:
            if step not in (None, job.step):
                continue
            if job.is_dynamic:
                yield from self._find_in_blocks(job.step, number, failed_only=failed_only)
            elif job.has_several_commands:
                yield from share_records.read_commands(
                    self._s3, self._address, job, number, failed_only=failed_only
                )

    def _find_in_attempts(
        self, attempts: Iterable[AttemptDetail], number: int | None, *, failed_only: bool
    ) -> Iterator[CommandDetail]:
        """Return the commands of children with one command, with what their workers measured."""
        records: dict[str, Mapping[int, Mapping[str, Any]]] = {}
        for attempt in attempts:
            planned = self._plan.job(attempt.step)
            if planned.has_several_commands or planned.is_dynamic:
                continue
            if attempt.step not in records:
                records[attempt.step] = {} if failed_only else self._measurements(planned, number)
            detail = CommandDetail.of_attempt(attempt, attempt.index)
            record = records[attempt.step].get(attempt.index)
            if record is not None and attempt.state is JobState.SUCCEEDED:
                detail = share_records.with_measurements(detail, record)
            yield detail

    def _measurements(
        self, job: PlannedJob, number: int | None = None
    ) -> Mapping[int, Mapping[str, Any]]:
        if not definitions.needs_worker(job):
            return {}
        return share_records.read_measurements(self._s3, self._address, job, number)

    def step_uses(self) -> dict[str, SampledStep]:
        """Return step -> what its commands have used, by some of the records of its workers."""
        uses = {}
        for job in self._plan.jobs:
            sampled = [
                AttemptUse(job.step, index, attempt, use)
                for index, attempt, use in self._find_uses(job)
                if use is not None
            ]
            total = samples.combine(entry.use for entry in sampled)
            if total is not None:
                longest = max(sampled, key=lambda entry: entry.use.seconds)
                uses[job.step] = SampledStep(total, longest)
        return uses

    def _find_uses(self, job: PlannedJob) -> Iterator[tuple[int, int, SampledUse | None]]:
        """Return child, attempt and use of commands that succeeded."""
        if job.is_dynamic:
            for command in self._find_in_blocks(job.step, None, failed_only=False):
                yield command.index, command.child_attempt, command.use
        else:
            for record in self._measurements(job).values():
                yield record["child"], record["attempt"], samples.from_json(record.get("use"))

    def _find_in_blocks(
        self, step: str, number: int | None, *, failed_only: bool
    ) -> Iterator[CommandDetail]:
        # Complete blocks without failed commands need not be read to find failed ones.
        step_blocks = self._records.blocks_of_step(step, is_thorough=not failed_only)
        for command, owner in step_blocks.details():
            is_wanted = not failed_only or command.state is JobState.FAILED
            if number in (None, command.number) and is_wanted:
                if self._find_attempt is not None:
                    index, attempt = self._find_attempt(owner)
                    command = replace(command, index=index, child_attempt=attempt)
                yield command

    def durations(self, step: str) -> Iterator[tuple[int, float]]:
        """Return (number, seconds) of commands that succeeded. See RunEngine.durations."""
        if not self._plan.job(step).is_dynamic:
            return iter(())
        leases = self._records.blocks_of_step(step, is_thorough=True).leases.values()
        return iter(
            [
                (record.command, record.seconds)
                for lease in leases
                for record in lease.records
                if not record.exit_code
            ]
        )
