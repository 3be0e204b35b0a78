"""The findings that the doctor can fix, and what each fix costs.

``propose_fixes`` decides from facts and findings; ``apply_fix`` performs one fix, after the user
has agreed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from batchyard.doctor.checks.fit import kinds as fit
from batchyard.doctor.checks.jobs import (
    consumable_resource_used_up,
    fargate_size_unknown,
    multi_node_without_on_demand,
)
from batchyard.doctor.checks.queues import disabled as queue_disabled
from batchyard.doctor.checks.queues import no_environment_enabled
from batchyard.doctor.facts import Facts, Job, Queue
from batchyard.doctor.finding import Finding, Kind, Report
from batchyard.doctor.gather.batch_calls import BatchCalls

#: A job with one of these findings can never start, unless its queue or definition changes.
_NEVER_STARTS = frozenset(
    {
        fit.MAX_VCPUS_TOO_SMALL,
        fit.NOT_ENOUGH_VCPUS,
        fit.NOT_ENOUGH_MEMORY,
        fit.NOT_ENOUGH_GPUS,
        fit.NO_GPUS,
        multi_node_without_on_demand.KIND,
        fargate_size_unknown.KIND,
    }
)
#: A finding with a lower likelihood is an estimate, which is no reason to cancel a job.
_MIN_LIKELIHOOD = 80
_NOT_STARTED = ("SUBMITTED", "PENDING", "RUNNABLE")
# The jobs are not named: AWS Batch lists what a job depends on, not what depends on the job.
_CANCEL_COST = "jobs that depend on it then fail, and stay failed"
_CANCEL_UNDO = "submit it again, and with it each job that depended on it: those have failed"


class Action(StrEnum):
    ENABLE_QUEUE = "enable the queue"
    ENABLE_ENVIRONMENT = "enable the compute environment"
    CANCEL = "cancel the job"


@dataclass(frozen=True, slots=True)
class Fix:
    action: Action
    target: str
    #: the finding that the fix is for
    reason: str
    #: how to take the fix back
    undo: str
    #: what cannot be taken back
    cost: str = ""

    @property
    def question(self) -> str:
        reasons = "; ".join(filter(None, (self.reason, self.cost)))
        return f"{self.action} {self.target}? ({reasons})"


def propose_fixes(facts: Facts, report: Report) -> list[Fix]:
    """Return the fixes in the order in which the user is asked about them."""
    kinds = {finding.kind for finding in report.findings}
    return [
        *_enable_queue(facts, kinds),
        *_enable_environments(facts, kinds),
        *_cancel_job(facts, report),
    ]


def _enable_queue(facts: Facts, kinds: set[Kind]) -> list[Fix]:
    if queue_disabled.KIND not in kinds or not isinstance(facts.queue, Queue):
        return []
    if facts.queue.state != "DISABLED":
        return []
    name = facts.queue.name
    undo = f"aws batch update-job-queue --job-queue {name} --state DISABLED"
    return [Fix(Action.ENABLE_QUEUE, name, queue_disabled.KIND.id, undo)]


def _enable_environments(facts: Facts, kinds: set[Kind]) -> list[Fix]:
    if no_environment_enabled.KIND not in kinds or not isinstance(facts.environments, tuple):
        return []
    return [
        Fix(
            Action.ENABLE_ENVIRONMENT,
            environment.name,
            no_environment_enabled.KIND.id,
            "aws batch update-compute-environment "
            f"--compute-environment {environment.name} --state DISABLED",
        )
        for environment in facts.environments
        if environment.state == "DISABLED"
    ]


def _cancel_job(facts: Facts, report: Report) -> list[Fix]:
    job = facts.job
    if not isinstance(job, Job) or not job.job_id or job.status not in _NOT_STARTED:
        return []
    for finding in report.findings:
        if _never_starts(facts, job, finding):
            reason = f"{finding.id}: as it is, it can never start"
            return [Fix(Action.CANCEL, job.job_id, reason, _CANCEL_UNDO, _CANCEL_COST)]
    return []


def _never_starts(facts: Facts, job: Job, finding: Finding) -> bool:
    if finding.kind is consumable_resource_used_up.KIND:
        return _exceeds_a_total(facts, job)
    return finding.kind in _NEVER_STARTS and finding.effective_likelihood >= _MIN_LIKELIHOOD


def _exceeds_a_total(facts: Facts, job: Job) -> bool:
    """Whether the job requests more of a consumable resource than exists."""
    if not isinstance(facts.consumables, tuple):
        return False
    totals = {resource.name: resource.total for resource in facts.consumables}
    return any(
        request.resource in totals and request.quantity > totals[request.resource]
        for request in job.consumables
    )


def apply_fix(fix: Fix, batch: BatchCalls) -> None:
    match fix.action:
        case Action.ENABLE_QUEUE:
            batch.enable_queue(fix.target)
        case Action.ENABLE_ENVIRONMENT:
            batch.enable_environment(fix.target)
        case Action.CANCEL:
            batch.cancel(fix.target, f"cancelled by batchyard doctor: {fix.reason}")
