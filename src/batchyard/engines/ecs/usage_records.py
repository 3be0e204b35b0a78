"""Where the tasks of a run ran, stored in usage.json while ECS and EC2 know it.

The attempts and their container instances are in the run's store: only hosts are asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from batchyard.batch.jobs import JobState, Resources
from batchyard.embedded.store import AttemptRow
from batchyard.engines import usage as values
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.base import CommandDetail
from batchyard.engines.ec2_hosts import Hosts, update_hosts
from batchyard.engines.usage import HostUse, PaidHost, Usage
from batchyard.errors import BatchyardError
from batchyard.plan import Plan, PlannedJob
from batchyard.s3_layout import USAGE
from batchyard.units import pluralize

#: ECS and EC2 forget a host an hour after its end.
_MAX_PAUSE_S = 600.0


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """An attempt that has begun, with what its task requested."""

    step: str
    #: number of the child in its step
    index: int
    attempt: int
    requested: Resources
    #: ARN of the container instance, without region and account; empty on Fargate
    instance: str
    started_s: float
    #: None while the attempt runs
    ended_s: float | None = None
    #: False for an attempt whose work was not kept
    counts: bool = True


def read_ended_attempt(job: PlannedJob, row: AttemptRow, instance: str) -> TaskAttempt:
    """Return the attempt of a row; ``instance``: see TaskAttempt."""
    started_ms = row.ended_ms if row.started_ms is None else row.started_ms
    return TaskAttempt(
        job.step,
        job.index_in_step(row.child),
        row.attempt,
        job.resources,
        instance,
        started_ms / 1000,
        row.ended_ms / 1000,
        counts=row.state == JobState.SUCCEEDED,
    )


def read_running_attempt(
    job: PlannedJob, child: int, attempt: int, task: Mapping[str, Any]
) -> TaskAttempt | None:
    """Return the attempt of a task that ECS describes; None if it has no host yet.

    The task may have stopped, if no process was there to record it.
    """
    arn = str(task.get("containerInstanceArn", ""))
    began = task.get("startedAt") or task.get("pullStartedAt") or task.get("createdAt")
    if not arn or began is None:
        return None
    stopped = task.get("stoppedAt")
    return TaskAttempt(
        job.step,
        job.index_in_step(child),
        attempt,
        job.resources,
        _key_of(arn),
        began.timestamp(),
        None if stopped is None else stopped.timestamp(),
    )


class EcsUsage:
    """The hosts and attempts of one run."""

    def __init__(
        self,
        finder: Hosts,
        files: RunFiles,
        plan: Plan,
        list_attempts: Callable[[], Iterable[TaskAttempt]],
        list_commands: Callable[[str], Iterable[CommandDetail]],
        region: str,
        clock: Callable[[], float],
    ) -> None:
        """``list_commands``: step -> its commands that have ended."""
        self._finder = finder
        self._files = files
        self._plan = plan
        self._list_attempts = list_attempts
        self._list_commands = list_commands
        self._region = region
        self._clock = clock
        self._looked_at_s = clock()

    def read_local(self) -> Usage | None:
        """Return what this machine has stored; None if that is nothing."""
        document = self._files.read_local(USAGE)
        return None if document is None else values.from_json(document["usage"])

    def read_host_ids(self) -> Mapping[str, str]:
        """Return ARN of a container instance -> id of its host, as this machine has stored it."""
        with suppress(BatchyardError):  # the attempts of a run matter more than their hosts
            return dict((self._files.read_local(USAGE) or {}).get("host_ids", {}))
        return {}

    def is_due(self) -> bool:
        """Return whether hosts should be looked at, before they are forgotten."""
        return self._clock() - self._looked_at_s > _MAX_PAUSE_S

    def refresh(self, *, is_over: bool) -> Usage:
        """Return the usage until now, and store it."""
        self._looked_at_s = self._clock()
        document = self._files.read_local(USAGE) or {}
        usage = self.read_local() or Usage(self._region)
        if usage.is_final:
            return usage
        host_ids: dict[str, str] = dict(document.get("host_ids", {}))
        attempts = list(self._list_attempts())
        on_hosts = [attempt for attempt in attempts if attempt.instance]
        hosts = {host.id: host for host in usage.hosts}
        new_arns = {entry.instance for entry in on_hosts} - host_ids.keys()
        for arn, host in self._finder.find(sorted(new_arns)).items():
            if host.id:  # hosts outside EC2 have none
                host_ids[_key_of(arn)] = host.id
                hosts[host.id] = host
        uses = tuple(_make_use(entry, host_ids) for entry in on_hosts)
        for use in uses:
            hosts.setdefault(use.host, PaidHost(use.host))
        usage = replace(usage, hosts=tuple(hosts.values()), uses=uses)
        usage = update_hosts(usage, self._finder, self._clock(), is_complete=is_over)
        unknown = self._list_unknown(usage, len(attempts) - len(on_hosts))
        usage = replace(usage, unknown=tuple(unknown))
        if is_over:
            # This reads the record of each command. Until then, lost attempts count as a whole.
            usage = values.add_kept_seconds(usage, self._plan, self._list_commands)
        self._store(usage, host_ids)
        return usage

    def _list_unknown(self, usage: Usage, fargate_count: int) -> Iterator[str]:
        yield from self._finder.refusals
        if fargate_count:
            yield f"{pluralize(fargate_count, 'attempt')} ran on Fargate, which is not counted"
        untyped = sum(not host.type for host in usage.hosts)
        if untyped:
            yield f"the instance type of {pluralize(untyped, 'host')} is not known"

    def store_prices(self, prices: Mapping[str, Any]) -> None:
        document = self._files.read_local(USAGE) or {}
        usage = self.read_local()
        if usage is not None:
            self._store(replace(usage, prices=prices), document["host_ids"])

    def _store(self, usage: Usage, host_ids: Mapping[str, str]) -> None:
        # A user who may only read asks each time.
        with suppress(BatchyardError):
            self._files.write(USAGE, {"usage": values.to_json(usage), "host_ids": dict(host_ids)})


def instance_arn(cluster: str, place: str) -> str:
    """Return the ARN of an attempt's container instance, without region and account.

    ``cluster``: its name or ARN. ``place``: that of the attempt in the store. Empty on Fargate.
    """
    instance = place.removeprefix(cluster).lstrip("/")
    return f"arn:container-instance/{cluster.rpartition('/')[2]}/{instance}" if instance else ""


def _key_of(arn: str) -> str:
    return f"arn:{arn.rpartition(':')[2]}"


def _make_use(entry: TaskAttempt, host_ids: Mapping[str, str]) -> HostUse:
    return HostUse(
        host_ids.get(entry.instance, entry.instance),
        entry.step,
        entry.index,
        entry.attempt,
        entry.started_s,
        entry.ended_s,
        entry.requested,
        counts=entry.counts,
    )
