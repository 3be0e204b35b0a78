"""Children that spot instances did not finish, which go on, on demand, in a new run.

AWS Batch cannot move a child to another queue, nor follow a failure by another job. So the child
ends, and a command that watches the run begins a second one with these children. Each child goes on
once: on demand, no host is reclaimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace

from batchyard import s3_layout
from batchyard.engines.aws import retry_rules
from batchyard.engines.aws.definitions import needs_worker
from batchyard.engines.aws.run_files import RunFiles
from batchyard.engines.aws.target import Target
from batchyard.engines.base import (
    AttemptDetail,
    Fallback,
    FallbackRun,
    Overview,
    RunState,
    Unfinished,
)
from batchyard.environments import Environment
from batchyard.plan import Plan, PlannedJob
from batchyard.units import format_duration, pluralize

#: How the status reason of a child begins whose host was reclaimed (facts, 1.8).
_RECLAIMS = ("Host EC2", "Your Spot Task was interrupted")


def require_on_demand_queues(plan: Plan, environment: Environment) -> None:
    """Raise InputError if a step could not go on, on demand, because there is no queue for it."""
    for job in plan.jobs if plan.spot else ():
        if job.queue is None:
            environment.queue(needs_gpu=bool(job.resources.gpus), on_demand=True)


def make_notes(plan: Plan, target: Target) -> Iterator[str]:
    """Return what AWS Batch does by itself, and what needs a command that watches the run."""
    rule = plan.spot
    if rule is None:
        return
    own_queues = [job.step for job in plan.jobs if job.queue is not None]
    if own_queues:
        yield f"spot: {', '.join(own_queues)}: a step with its own `queue` stays in it"
    if rule.reclaims is not None:
        occasion = f"after {pluralize(rule.reclaims, 'reclaim')} of a child"
        yield from _note_later_moves(plan, target, rule.reclaims)
    else:
        occasion = f"after {format_duration(rule.wait_s or 0)} in which no child of a step started"
    yield (
        f"spot: {occasion}, its work goes on, on demand, in a new run that `run`, `retry`, `resume`"
        " or `status --watch` begins when this one is over. Without such a command nothing is"
        " moved; a queue whose second compute environment is on demand takes over by itself where"
        " spot has no capacity"
    )


def _note_later_moves(plan: Plan, target: Target, reclaims: int) -> Iterator[str]:
    """Yield a sentence about steps whose children may be reclaimed more often.

    AWS Batch counts attempts, whatever ended them, so that retries can be used up by reclaims.
    """
    for job in plan.jobs:
        if not can_move(plan, target, job.step) or job.retry.attempts == 1:
            continue
        count = retry_rules.count_attempts(job, target, has_worker=needs_worker(job))
        if count > reclaims:
            yield (
                f"spot: {job.step}: AWS Batch counts reclaims and the {job.retry.attempts - 1} of"
                f" `retries` together: a child that never fails itself goes on, on demand, after"
                f" {count} reclaims, not {reclaims}. It is exact with `retries: 0`"
            )


def find_fallback(
    plan: Plan,
    target: Target,
    failed: Iterable[AttemptDetail],
    waited_steps: Sequence[str],
    unfinished: Unfinished,
) -> Fallback | None:
    """Return what of a failed run goes on; None if nothing does. Pure.

    ``failed``: the last attempts of children that failed. ``waited_steps``: steps that waited too
    long for spot instances. Children that failed otherwise do not go on, nor do those that wait for
    them child by child, and then neither do the steps that never began.
    """
    reclaimed, other_failures = _sort_failures(plan, target, failed)
    moved_steps = [
        job.step for job in plan.jobs if job.step in reclaimed or job.step in waited_steps
    ]
    children: dict[str, Sequence[int]] = {}
    moved: dict[str, int] = {}
    for job in plan.jobs:
        step = job.step
        left = unfinished.children.get(step, ())
        if step not in moved_steps:
            children[step] = () if other_failures else left
            continue
        moving, following = set(left), set[int]()
        # Children of a dynamic step have no commands of their own.
        if not job.is_dynamic:
            waiting = moving - other_failures.get(step, set())
            moving = waiting if step in waited_steps else waiting & reclaimed[step]
            repeated, lost = _sort_needed(job, unfinished.children, children)
            moving, following = moving - lost, (waiting & repeated) - lost - moving
        children[step] = sorted(moving | following)
        moved[step] = len(moving)
    if other_failures:
        children = {step: children[step] for step in moved_steps}
    waited = sum(count for step, count in moved.items() if step not in reclaimed)
    total = sum(moved.values())
    return Fallback(children, tuple(moved_steps), total - waited, waited) if total else None


def _sort_needed(
    job: PlannedJob,
    unfinished: Mapping[str, Sequence[int]],
    children: Mapping[str, Sequence[int]],
) -> tuple[set[int], set[int]]:
    """Return the unfinished children that those of the job wait for child by child.

    First those that go on, then those that do not. ``children``: step -> those that go on.
    """
    needed_steps = [need.step for need in job.needs if need.each]
    repeated = {child for step in needed_steps for child in children[step]}
    lost = {
        child
        for step in needed_steps
        for child in set(unfinished.get(step, ())).difference(children[step])
    }
    return repeated, lost


def _sort_failures(
    plan: Plan, target: Target, failed: Iterable[AttemptDetail]
) -> tuple[dict[str, set[int]], dict[str, set[int]]]:
    """Return step -> children that were reclaimed on spot, and that failed otherwise."""
    reclaimed: dict[str, set[int]] = {}
    other_failures: dict[str, set[int]] = {}
    for attempt in failed:
        is_reclaim = attempt.status_reason.startswith(_RECLAIMS)
        goes_on = is_reclaim and can_move(plan, target, attempt.step)
        (reclaimed if goes_on else other_failures).setdefault(attempt.step, set()).add(
            attempt.index
        )
    return reclaimed, other_failures


def can_move(plan: Plan, target: Target, step: str) -> bool:
    """Return whether a step runs on spot instances, and has another queue to go on in."""
    job = plan.job(step)
    return job.queue is None and not target.is_on_demand(job)


class SpotMoves:
    """The files of a run about its children that leave spot instances."""

    def __init__(self, plan: Plan, target: Target, files: RunFiles) -> None:
        self._plan = plan
        self._target = target
        self._files = files

    def record_waiting(self, step: str) -> None:
        self._files.write(s3_layout.WAITED_STEPS, sorted({*self.read_waited_steps(), step}))

    def read_waited_steps(self) -> list[str]:
        return self._files.read(s3_layout.WAITED_STEPS) or []

    def record_run(self, fallback: FallbackRun) -> bool:
        """Record the run in which children go on. Returns whether it is the first one."""
        is_written = self._files.write_first(s3_layout.FALLBACK, asdict(fallback))
        # S3 also refuses the second try of a write whose answer was lost.
        return is_written or self.read_run() == fallback

    def read_run(self) -> FallbackRun | None:
        document = self._files.read_remote(s3_layout.FALLBACK)
        return None if document is None else FallbackRun(**document)

    def add_to(self, overview: Overview) -> Overview:
        """Return the overview with what has left spot instances, before this run and after it."""
        on_demand_steps = self._target.on_demand_steps
        jobs = [job for job in self._plan.jobs if job.step in on_demand_steps]
        has_failed = self._plan.spot is not None and overview.state is RunState.FAILED
        fallback = self.read_run() if has_failed else None
        if not jobs and fallback is None:
            return overview
        return replace(overview, fallback=fallback, moved_children=sum(job.size for job in jobs))
