"""The few findings that the doctor can mend by itself, and what that costs. Nothing is done unasked.

What to propose is decided here, from facts and findings; ``perform`` does one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from batchyard.doctor.facts import Facts, Job, Queue
from batchyard.doctor.finding import Finding, Report
from batchyard.doctor.gather.batch_calls import BatchCalls

#: as the job and its queue are now, it can never start
_NEVER = frozenset(["BY012", "BY014", "BY015", "BY016", "BY017", "BY047", "BY048"])
#: what is only an estimate does not end a job
_SURE = 80
_NOT_STARTED = ("SUBMITTED", "PENDING", "RUNNABLE")
#: which they are AWS does not say: a job knows what it depends on, not what depends on it
_COST_OF_CANCEL = "jobs that depend on it then fail, and stay failed"
_UNDO_CANCEL = "submit it again, and with it each job that depended on it: those have failed"


class Act(StrEnum):
    ENABLE_QUEUE = "enable the queue"
    ENABLE_ENVIRONMENT = "enable the compute environment"
    CANCEL = "cancel the job"


@dataclass(frozen=True, slots=True)
class Fix:
    act: Act
    target: str
    #: why it is proposed
    because: str
    #: how to take it back
    undo: str
    #: what cannot be taken back
    cost: str = ""

    @property
    def question(self) -> str:
        return f"{self.act} {self.target}? ({'; '.join(filter(None, (self.because, self.cost)))})"


def proposals(facts: Facts, report: Report) -> list[Fix]:
    """In the order in which they are asked about."""
    by_id = {finding.id: finding for finding in reversed(report.findings)}
    found = []
    if "BY002" in by_id and isinstance(facts.queue, Queue) and facts.queue.state == "DISABLED":
        name = facts.queue.name
        undo = f"aws batch update-job-queue --job-queue {name} --state DISABLED"
        found.append(Fix(Act.ENABLE_QUEUE, name, by_id["BY002"].id, undo))
    if "BY004" in by_id and isinstance(facts.environments, tuple):
        found += [
            Fix(
                Act.ENABLE_ENVIRONMENT,
                e.name,
                by_id["BY004"].id,
                f"aws batch update-compute-environment --compute-environment {e.name} --state DISABLED",
            )
            for e in facts.environments
            if e.state == "DISABLED"
        ]
    return found + _cancelling(facts, report)


def _cancelling(facts: Facts, report: Report) -> list[Fix]:
    job = facts.job
    if not isinstance(job, Job) or not job.job_id or job.status not in _NOT_STARTED:
        return []
    for finding in report.findings:
        if (finding.id in _NEVER and _is_sure(finding)) or (
            finding.id == "BY044" and _asks_too_much(facts, job)
        ):
            because = f"{finding.id}: as it is, it can never start"
            return [Fix(Act.CANCEL, job.job_id, because, _UNDO_CANCEL, _COST_OF_CANCEL)]
    return []


def _is_sure(finding: Finding) -> bool:
    return -finding.rank[0] >= _SURE


def _asks_too_much(facts: Facts, job: Job) -> bool:
    """Of a consumable resource, more than there is in all."""
    there = (
        {c.name: c.total for c in facts.consumables} if isinstance(facts.consumables, tuple) else {}
    )
    return any(
        wanted.resource in there and wanted.quantity > there[wanted.resource]
        for wanted in job.consumables
    )


def perform(fix: Fix, batch: BatchCalls) -> None:
    match fix.act:
        case Act.ENABLE_QUEUE:
            batch.enable_queue(fix.target)
        case Act.ENABLE_ENVIRONMENT:
            batch.enable_environment(fix.target)
        case Act.CANCEL:
            batch.cancel(fix.target, f"cancelled by batchyard doctor: {fix.because}")
