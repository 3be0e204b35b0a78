"""Where the children of a run ran, stored in usage.json while AWS knows it.

AWS Batch tells the container instance of each attempt for a week; ECS and EC2 tell what it was for
an hour after its end. Those who watch a run record children soon after their end, a hundred in a
call; whoever asks for the usage records the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from batchyard import s3_layout
from batchyard.aws.batch import Batch
from batchyard.batch.jobs import JobState, StatusReason
from batchyard.batch.limits import MAX_DESCRIBED_JOBS
from batchyard.engines import usage as values
from batchyard.engines.aws import from_aws
from batchyard.engines.aws.attempt_counts import expand_ranges
from batchyard.engines.aws.changed_children import number_of
from batchyard.engines.aws.definitions import needs_worker
from batchyard.engines.aws.from_aws import UNSUBMITTED
from batchyard.engines.aws.render import Part
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.base import CommandDetail, JobDetail, Overview, RunState
from batchyard.engines.ec2_hosts import Hosts, update_hosts
from batchyard.engines.usage import HostUse, PaidHost, Usage
from batchyard.errors import BatchyardError
from batchyard.plan import Plan, to_ranges
from batchyard.s3_layout import USAGE
from batchyard.units import pluralize

_ENDED = (JobState.SUCCEEDED, JobState.FAILED)
_RUNNING = (JobState.STARTING, JobState.RUNNING)
#: ECS and EC2 forget a host an hour after its end.
_MAX_PAUSE_S = 1800.0


class UsageRecords:
    """The hosts and attempts of one run."""

    def __init__(
        self,
        plan: Plan,
        batch: Batch,
        finder: Hosts,
        files: RunFiles,
        list_parts: Callable[[], list[tuple[Part, str]]],
        list_commands: Callable[[str], Iterable[CommandDetail]],
        region: str,
        clock: Callable[[], float],
    ) -> None:
        """``list_parts``: the parts of the run with the ids of their jobs.

        ``list_commands``: step -> its commands that have ended.
        """
        self._plan = plan
        self._batch = batch
        self._finder = finder
        self._files = files
        self._list_parts = list_parts
        self._list_commands = list_commands
        self._clock = clock
        self._is_loaded = False
        self._usage = Usage(region)
        #: ARN of a container instance -> id of its host
        self._host_ids: dict[str, str] = {}
        #: id of a job -> its children that are recorded, by number
        self._recorded: dict[str, set[int]] = {}
        #: children that ran at the last look: (id of a job, number)
        self._running: set[tuple[str, int]] = set()
        self._call_count = 0
        self._recorded_at_s = clock()
        self._forgotten_count = 0
        self._fargate_count = 0

    # -- reading -----------------------------------------------------------------------------------

    def read_local(self) -> Usage | None:
        """Return what this machine has stored; None if that is nothing."""
        document = self._files.read_local(USAGE)
        return None if document is None else values.from_json(document["usage"])

    def read_host_ids(self) -> Mapping[str, str]:
        """Return ARN of a container instance -> id of its host, as this machine has stored it."""
        with suppress(BatchyardError):  # the attempts of a run matter more than their hosts
            return dict((self._files.read_local(USAGE) or {}).get("host_ids", {}))
        return {}

    def refresh(self, overview: Overview) -> Usage:
        """Return the usage until now, and store it."""
        self._load()
        remote = self._files.read_remote(USAGE)
        if remote is not None:
            self._merge(remote)
        if self._usage.is_final:
            if remote is None or not remote["usage"]["is_final"] or self.read_local() is None:
                self._store()
            return self._usage
        self._running.clear()
        if overview.state is RunState.RUNNING:
            self._describe(list(self._list_running(overview.jobs)))
        self._describe(self._choose(overview.jobs, is_thorough=True))
        self._look_at_hosts(overview)
        if overview.state is not RunState.RUNNING:
            # This reads the record of each command. Until then, lost attempts count as a whole.
            self._usage = values.add_kept_seconds(self._usage, self._plan, self._list_commands)
        self._store()
        return self._usage

    def store_prices(self, prices: Mapping[str, Any]) -> None:
        self._load()
        self._usage = replace(self._usage, prices=prices)
        self._store()

    # -- recording ---------------------------------------------------------------------------------

    def record(self, overview: Overview) -> None:
        """Record children that have ended: one call for each hundred of them.

        Fewer are recorded at the end of the run, and once in half an hour.
        """
        ended_count = sum(job.count(*_ENDED) for job in overview.jobs)
        if not ended_count or self._is_recorded(ended_count):
            return
        is_over = overview.state is not RunState.RUNNING
        is_due = is_over or self._clock() - self._recorded_at_s > _MAX_PAUSE_S
        if ended_count < MAX_DESCRIBED_JOBS and not is_due:
            return
        self._load()
        children = self._choose(overview.jobs, is_thorough=is_due)
        if not is_due:
            allowed_calls = ended_count // MAX_DESCRIBED_JOBS - self._call_count
            full_groups = min(allowed_calls, len(children) // MAX_DESCRIBED_JOBS)
            children = children[: max(0, full_groups) * MAX_DESCRIBED_JOBS]
        if not children:
            return
        self._describe(children)
        self._look_at_hosts(overview)
        self._recorded_at_s = self._clock()
        self._store()

    def _is_recorded(self, ended_count: int) -> bool:
        return ended_count <= sum(map(len, self._recorded.values()))

    def _choose(
        self, jobs: Sequence[JobDetail], *, is_thorough: bool = False
    ) -> list[tuple[Part, str, int]]:
        """Return children that have ended, by the counts of their jobs, and are not recorded.

        Of a job that goes on, some others may still run. Unless ``is_thorough``, those that began
        last are left out.
        """
        by_id = {job.id: job for job in jobs}
        children: list[tuple[Part, str, int]] = []
        for part, job_id in self._list_parts():
            job = by_id.get(job_id)
            if job is not None and not job_id.startswith(UNSUBMITTED):
                numbers = self._choose_of_job(part, job, is_thorough)
                children += [(part, job_id, number) for number in numbers]
        return children

    def _choose_of_job(self, part: Part, job: JobDetail, is_thorough: bool) -> Iterable[int]:
        recorded = self._recorded.setdefault(job.id, set())
        missing_count = job.count(*_ENDED) - len(recorded)
        if missing_count <= 0:
            return ()
        if job.status_reason == StatusReason.DEPENDENCY_FAILED and not job.count(_ENDED[0]):
            recorded.update(range(part.size))
            return ()
        numbers: Iterable[int] = range(part.size)
        if job.state is JobState.FAILED and part.size > MAX_DESCRIBED_JOBS:
            # Of a stopped array, nearly all children may have ended without a start.
            numbers = self._list_started(part, job.id)
        unrecorded = (number for number in numbers if number not in recorded)
        if job.state.is_terminal:
            return list(unrecorded)
        # AWS tends to start children in the order of their numbers. Those that began last, and
        # those that ran at the last look, are left to a later look: most of them still run.
        candidates = (number for number in unrecorded if (job.id, number) not in self._running)
        spared_count = 0 if is_thorough else 3 * job.count(*_RUNNING)
        return list(islice(candidates, max(0, missing_count - spared_count)))

    def _list_started(self, part: Part, job_id: str) -> list[int]:
        numbers = {
            number_of(child_id)
            for state in _ENDED
            for child_id in self._batch.started_children(job_id, state)
        }
        self._recorded[job_id].update(set(range(part.size)) - numbers)
        return sorted(numbers)

    def _list_running(self, jobs: Sequence[JobDetail]) -> Iterator[tuple[Part, str, int]]:
        by_id = {job.id: job for job in jobs}
        for part, job_id in self._list_parts():
            job = by_id.get(job_id)
            if job is None or not job.count(*_RUNNING):
                continue
            ids: Iterable[str] = [job_id]
            if part.size > 1:
                ids = self._batch.children(job_id, JobState.RUNNING)
            yield from ((part, job_id, number_of(child_id)) for child_id in ids)

    # -- children ----------------------------------------------------------------------------------

    def _describe(self, children: Sequence[tuple[Part, str, int]]) -> None:
        for first in range(0, len(children), MAX_DESCRIBED_JOBS):
            uses: list[HostUse] = []
            group = children[first : first + MAX_DESCRIBED_JOBS]
            ids = [
                job_id if part.size == 1 else f"{job_id}:{number}" for part, job_id, number in group
            ]
            answers = self._batch.describe(ids)
            self._call_count += 1
            for (part, job_id, number), child_id in zip(group, ids, strict=True):
                if child_id in answers:
                    uses += self._read_child(part, job_id, number, answers[child_id])
                else:
                    self._recorded.setdefault(job_id, set()).add(number)
                    self._forgotten_count += 1
            # Before the next call, which may fail: these children are not asked about again.
            self._usage = values.merge(self._usage, replace(self._usage, uses=tuple(uses)))

    def _read_child(
        self, part: Part, job_id: str, number: int, job: Mapping[str, Any]
    ) -> Iterator[HostUse]:
        state = JobState(job["status"])
        self._running.discard((job_id, number))
        if state.is_terminal:
            self._recorded.setdefault(job_id, set()).add(number)
        else:
            self._running.add((job_id, number))
        index = from_aws.index_of(part, self._plan.job(part.step), job["jobId"])
        uses, attempts_on_fargate = from_aws.read_uses(part.step, index, job)
        self._fargate_count += attempts_on_fargate
        for use, instance_id in uses:
            if instance_id:
                self._host_ids.setdefault(use.host, instance_id)
                self._add_lost_host(instance_id, use)
            yield replace(use, host=self._host_ids.get(use.host, use.host))

    def _add_lost_host(self, instance_id: str, use: HostUse) -> None:
        """Record that a host ended with an attempt: AWS Batch names it in the status reason."""
        host = PaidHost(instance_id, ended_s=use.ended_s, was_reclaimed=True)
        self._usage = values.merge(replace(self._usage, hosts=(host,)), self._usage)

    # -- hosts -------------------------------------------------------------------------------------

    def _look_at_hosts(self, overview: Overview) -> None:
        self._find_new_hosts()
        is_over = overview.state is not RunState.RUNNING
        usage = update_hosts(
            self._usage,
            self._finder,
            self._clock(),
            is_complete=is_over and not self._choose(overview.jobs),
        )
        self._usage = replace(usage, unknown=tuple(self._list_unknown(usage.hosts)))

    def _find_new_hosts(self) -> None:
        """Find the hosts of uses that name a container instance."""
        arns = dict.fromkeys(use.host for use in self._usage.uses if use.host.startswith("arn:"))
        if not arns:
            return
        found_hosts = self._finder.find(arns)
        missing = {arn for arn in arns if arn not in found_hosts}
        found_hosts |= dict(self._read_worker_records(missing))
        self._host_ids.update({arn: host.id for arn, host in found_hosts.items() if host.id})
        new_hosts = [host for host in found_hosts.values() if host.id]
        uses = tuple(
            replace(use, host=self._host_ids.get(use.host, use.host)) for use in self._usage.uses
        )
        new_hosts += [PaidHost(use.host) for use in uses if use.host.startswith("arn:")]
        self._usage = values.merge(self._usage, replace(self._usage, hosts=tuple(new_hosts)))
        self._usage = replace(self._usage, uses=uses)

    def _read_worker_records(self, arns: set[str]) -> Iterator[tuple[str, PaidHost]]:
        """Yield the hosts that ECS has forgotten, as workers have recorded them: one call each."""
        for use in self._usage.uses:
            job = self._plan.job(use.step)
            if use.host not in arns or not use.counts or job.is_dynamic or not needs_worker(job):
                continue
            commands = job.commands_of_index(use.index)
            if not commands:
                continue
            name = s3_layout.records_address("", use.step) + s3_layout.success_record(commands[-1])
            record = self._files.read_remote(name) or {}
            # An earlier attempt may have run the command, on another host.
            if "host" in record and record["attempt"] == use.attempt:
                arns.remove(use.host)
                yield use.host, PaidHost(**record["host"])

    def _list_unknown(self, hosts: Iterable[PaidHost]) -> Iterator[str]:
        yield from self._finder.refusals
        if self._forgotten_count:
            children = pluralize(self._forgotten_count, "child", "children")
            yield f"AWS Batch has forgotten {children}: where they ran is not known"
        if self._fargate_count:
            attempts = pluralize(self._fargate_count, "attempt")
            yield f"{attempts} ran on Fargate, which is not counted"
        untyped = sum(not host.type for host in hosts)
        if untyped:
            yield f"the instance type of {pluralize(untyped, 'host')} is not known"

    # -- storing -----------------------------------------------------------------------------------

    def _load(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True
        document = self._files.read(USAGE)
        if document is not None:
            self._merge(document)
        self._call_count = sum(map(len, self._recorded.values())) // MAX_DESCRIBED_JOBS

    def _merge(self, document: Mapping[str, Any]) -> None:
        """Add what a stored document knows."""
        stored = values.from_json(document["usage"])
        self._usage = stored if stored.is_final else values.merge(stored, self._usage)
        self._host_ids = {**document["host_ids"], **self._host_ids}
        self._forgotten_count = max(self._forgotten_count, document["forgotten"])
        self._fargate_count = max(self._fargate_count, document["fargate"])
        for job_id in document["recorded"]:
            numbers = expand_ranges(document["recorded"], job_id) or set()
            self._recorded.setdefault(job_id, set()).update(numbers)

    def _store(self) -> None:
        document = {
            "usage": values.to_json(self._usage),
            "host_ids": self._host_ids,
            "recorded": {
                job_id: to_ranges(sorted(numbers)) for job_id, numbers in self._recorded.items()
            },
            "forgotten": self._forgotten_count,
            "fargate": self._fargate_count,
        }
        # A user who may only read asks each time.
        with suppress(BatchyardError):
            self._files.write(USAGE, document)
