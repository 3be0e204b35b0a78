"""Where the children of a run ran, stored in usage.json while AWS knows it.

AWS Batch tells the container instance of each attempt for a week; ECS and EC2 tell what it was for
an hour after its end. Those who watch a run ask about its jobs again and again, and one call
describes a hundred jobs: children that have ended fill the rest of such a call. Others are
described when their job is over, a hundred in a call, or when somebody asks for the usage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from math import ceil
from typing import Any

from batchyard import s3_layout
from batchyard.aws.batch import Batch
from batchyard.aws.ecs import MAX_HOSTS
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
_BEGUN = (*_RUNNING, *_ENDED)
#: ECS and EC2 forget a host an hour after its end: new hosts are looked up after this time, and
#: children that no call had room for after the second one.
_HOSTS_PAUSE_S, _MAX_PAUSE_S = 600.0, 1800.0

#: A child of a part: its job's id, and its number in the job.
_Child = tuple[Part, str, int]


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
        #: children that ran when they were described: (id of a job, number), latest last
        self._running: dict[tuple[str, int], None] = {}
        #: id -> child, of those that the next look at the run's jobs is to describe, too
        self._next_children: dict[str, _Child] = {}
        self._recorded_at_s = self._looked_at_hosts_s = clock()
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
        self._describe(self._choose(overview, is_thorough=True))
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

    @property
    def next_ids(self) -> Sequence[str]:
        """Ids of children that the next look at the run's jobs should describe, if it has room."""
        return list(self._next_children)

    def record(self, overview: Overview, answers: Mapping[str, Any] | None = None) -> None:
        """Record children that have ended: one call for each hundred of them at most.

        ``answers``: id -> description, of children that were described with the jobs of the run.
        Those of a job that goes on wait for such a look; if none has room for them, they are
        described in the next half hour.
        """
        ended_count = sum(job.count(*_ENDED) for job in overview.jobs)
        if not ended_count or self._count_recorded() >= ended_count:
            self._next_children = {}
            if self._list_new_hosts() and self._is_host_look_due():
                self._look_at_hosts(overview)
                self._store()
            return
        self._load()
        before = self._count_recorded()
        self._read_answers(self._next_children, answers or {})
        is_over = overview.state is not RunState.RUNNING
        is_due = is_over or self._clock() - self._recorded_at_s > _MAX_PAUSE_S
        children = self._choose(overview, is_thorough=False)
        if not is_over:
            children = children[: len(children) // MAX_DESCRIBED_JOBS * MAX_DESCRIBED_JOBS]
            if is_due:
                # Whole calls: nobody knows which of the children that have begun have ended.
                calls = ceil((ended_count - self._count_recorded()) / MAX_DESCRIBED_JOBS)
                children = self._choose_next(overview, calls * MAX_DESCRIBED_JOBS)
        self._describe(children)
        if is_due or self._count_recorded() > before:
            self._recorded_at_s = self._clock()
        self._next_children = {
            _id_of(child): child for child in self._choose_next(overview, MAX_DESCRIBED_JOBS)
        }
        if is_due or self._is_host_look_due():
            self._look_at_hosts(overview)
            self._store()

    def _is_host_look_due(self) -> bool:
        """Return whether ECS may forget hosts, or a whole call of them is new."""
        age_s = self._clock() - self._looked_at_hosts_s
        return len(self._list_new_hosts()) >= MAX_HOSTS or age_s > _HOSTS_PAUSE_S

    def _list_new_hosts(self) -> list[str]:
        """Return the container instances whose hosts are not known, each once."""
        uses = self._usage.uses
        return list(dict.fromkeys(use.host for use in uses if use.host.startswith("arn:")))

    def _count_recorded(self) -> int:
        return sum(map(len, self._recorded.values()))

    def _choose(self, overview: Overview, *, is_thorough: bool) -> list[_Child]:
        """Return children that are not recorded, of jobs that are over: they have ended.

        ``is_thorough``: also of jobs that go on, as many as have ended by their counts.
        """
        children: list[_Child] = []
        was_cut_short = overview.state is RunState.STOPPED or bool(overview.held)
        for part, job in self._list_jobs(overview.jobs):
            if job.state.is_terminal:
                numbers = self._list_ended(part, job, was_cut_short=was_cut_short)
            elif is_thorough:
                numbers = self._list_begun(part, job)[: self._count_missing(job)]
            else:
                continue
            children += [(part, job.id, number) for number in numbers]
        return children

    def _choose_next(self, overview: Overview, at_most: int) -> list[_Child]:
        """Return children that have ended, and then those that may have ended."""
        ended: list[_Child] = []
        begun: list[_Child] = []
        for part, job in self._list_jobs(overview.jobs):
            if job.state.is_terminal:
                numbers = self._list_ended(part, job, was_cut_short=False)
                ended += [(part, job.id, number) for number in numbers]
            else:
                begun += [(part, job.id, number) for number in self._list_begun(part, job)]
        return [*ended, *begun][:at_most]

    def _list_jobs(self, jobs: Sequence[JobDetail]) -> Iterator[tuple[Part, JobDetail]]:
        """Yield the jobs with children that have ended and are not recorded."""
        by_id = {job.id: job for job in jobs}
        for part, job_id in self._list_parts():
            job = by_id.get(job_id)
            if job is None or job_id.startswith(UNSUBMITTED):
                continue
            recorded = self._recorded.setdefault(job_id, set())
            if job.status_reason == StatusReason.DEPENDENCY_FAILED and not job.count(_ENDED[0]):
                recorded.update(range(part.size))
            if self._count_missing(job) > 0:
                yield part, job

    def _count_missing(self, job: JobDetail) -> int:
        return job.count(*_ENDED) - len(self._recorded.get(job.id, ()))

    def _list_ended(self, part: Part, job: JobDetail, *, was_cut_short: bool) -> list[int]:
        """Return the children of a job that is over, and that are not recorded.

        ``was_cut_short``: nearly all children may have ended without a start. A call lists a
        thousand of them, and describes a hundred.
        """
        recorded = self._recorded[job.id]
        if was_cut_short and job.count(JobState.FAILED) > MAX_DESCRIBED_JOBS:
            ids = self._batch.unstarted_children(job.id, JobState.FAILED)
            recorded.update(map(number_of, ids))
        return [number for number in range(part.size) if number not in recorded]

    def _list_begun(self, part: Part, job: JobDetail) -> list[int]:
        """Return children of a job that goes on which have begun, as far as that can be told.

        AWS tends to start children in the order of their numbers. Those that ran when they were
        described come last, so that each is described again after all others.
        """
        recorded = self._recorded[job.id]
        seen = [number for job_id, number in self._running if job_id == job.id]
        unseen = (
            number
            for number in range(part.size)
            if number not in recorded and (job.id, number) not in self._running
        )
        unseen_count = job.count(*_BEGUN) - len(recorded) - len(seen)
        return [*islice(unseen, max(0, unseen_count)), *seen]

    def _list_running(self, jobs: Sequence[JobDetail]) -> Iterator[_Child]:
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

    def _describe(self, children: Sequence[_Child]) -> None:
        for first in range(0, len(children), MAX_DESCRIBED_JOBS):
            group = {_id_of(child): child for child in children[first : first + MAX_DESCRIBED_JOBS]}
            answers = self._batch.describe(list(group))
            # Before the next call, which may fail: these children are not asked about again.
            self._read_answers(group, answers)
            for child_id in group.keys() - answers.keys():
                _, job_id, number = group[child_id]
                self._recorded.setdefault(job_id, set()).add(number)
                self._forgotten_count += 1

    def _read_answers(self, children: Mapping[str, _Child], answers: Mapping[str, Any]) -> None:
        """Take what AWS Batch has answered about these children."""
        uses: list[HostUse] = []
        for child_id, child in children.items():
            if child_id in answers:
                uses += self._read_child(*child, answers[child_id])
        if uses:
            self._usage = values.merge(self._usage, replace(self._usage, uses=tuple(uses)))

    def _read_child(
        self, part: Part, job_id: str, number: int, job: Mapping[str, Any]
    ) -> Iterator[HostUse]:
        state = JobState(job["status"])
        self._running.pop((job_id, number), None)
        if state.is_terminal:
            self._recorded.setdefault(job_id, set()).add(number)
        else:
            self._running[job_id, number] = None
        index = from_aws.index_of(part, self._plan.job(part.step), job["jobId"])
        uses, attempts_on_fargate = from_aws.read_uses(part.step, index, job)
        # Before its end, a child may be described again and again.
        self._fargate_count += attempts_on_fargate if state.is_terminal else 0
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
        self._looked_at_hosts_s = self._clock()
        self._find_new_hosts()
        is_over = overview.state is not RunState.RUNNING
        usage = update_hosts(
            self._usage,
            self._finder,
            self._clock(),
            is_complete=is_over and not any(self._list_jobs(overview.jobs)),
        )
        self._usage = replace(usage, unknown=tuple(self._list_unknown(usage.hosts)))

    def _find_new_hosts(self) -> None:
        """Find the hosts of uses that name a container instance."""
        arns = self._list_new_hosts()
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


def _id_of(child: _Child) -> str:
    part, job_id, number = child
    return job_id if part.size == 1 else f"{job_id}:{number}"
