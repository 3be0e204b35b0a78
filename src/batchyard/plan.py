"""What a run will do, decided before it does anything: a pipeline compiled to jobs in AWS Batch's words.

Pure. A plan prints, compares and goes through JSON unchanged; ``batchyard plan`` shows the very object that
``batchyard run`` executes. Lists of commands ride beside the jobs, since they can be a million lines long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any

from batchyard import shard
from batchyard.batch.jobs import Action, EvaluateOnExit, Resources, RetryStrategy
from batchyard.errors import InputError
from batchyard.pipeline import ExitRule, Need, Pipeline, Step, in_order


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job to be: an array where ``is_array``, else a single child."""

    step: str
    #: number of children
    size: int
    is_array: bool
    resources: Resources
    #: the same command in every child; None where the children share a list
    command: str | None = None
    #: how many commands will run: the list's length, or one a child
    command_count: int = 1
    needs: tuple[Need, ...] = ()
    retry: RetryStrategy = field(default_factory=RetryStrategy)
    timeout_s: int | None = None
    max_running: int | None = None
    keep_going: bool = False
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    #: what BATCHYARD_DEVICE says: "gpu", or "cpu", also for a GPU step that runs without
    device: str = "cpu"
    shm_mib: int | None = None
    #: where a retry has compacted the array: each child's number in the step's own array
    indices: tuple[int, ...] | None = None
    #: the step's own array size, which its commands are told
    step_size: int = 1
    #: globs: what a child on another machine needs of the workspace, gives back, and saves when a reclaim is announced
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    checkpoint: tuple[str, ...] = ()
    #: the user's own rules, for whoever can follow more than AWS Batch can be told
    retry_on: tuple[str, ...] = ("any",)
    fail_on: tuple[str, ...] = ()
    #: variable -> ARN
    secrets: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    share: str | None = None
    priority: int | None = None

    @property
    def has_list(self) -> bool:
        return self.command is None

    def index_in_step(self, child: int) -> int:
        return child if self.indices is None else self.indices[child]

    def commands_of(self, child: int) -> range:
        """Numbers, in the step's list, of the commands that the child runs."""
        if not self.has_list:
            number = self.index_in_step(child)
            return range(number, number + 1)
        return shard.commands_of(self.command_count, self.index_in_step(child), self.step_size)


@dataclass(frozen=True, slots=True)
class Plan:
    pipeline: str
    jobs: tuple[PlannedJob, ...]
    fail_fast: bool = False
    #: step -> its list of commands; not part of the JSON
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)
    _by_step: Mapping[str, PlannedJob] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_step", {job.step: job for job in self.jobs})

    def job(self, step: str) -> PlannedJob:
        return self._by_step[step]

    def require_child(self, step: str, index: int | str | None = None) -> None:
        """Raises InputError unless there is such a step, and it has such a child."""
        if step not in self._by_step:
            raise InputError(
                f"the run has no step {step!r}", hint=f"its steps are: {', '.join(self._by_step)}"
            )
        job = self.job(step)
        known = range(job.size) if job.indices is None else job.indices
        number = int(index) if isinstance(index, str) and index.isdigit() else index
        if number is not None and number not in known:
            raise InputError(
                f"step {step!r} has no child {index!r} in this run",
                hint=f"its children are {known[0]} to {known[-1]}",
            )


def make(pipeline: Pipeline, *, only: str | None = None, start_from: str | None = None) -> Plan:
    """The jobs of the pipeline, each after what it needs; of one step, or of one step and all that follows it."""
    steps = _selected(pipeline, only, start_from)
    names = {step.name for step in steps}
    jobs = tuple(_job(step, names) for step in in_order(steps))
    lists = {step.name: step.commands for step in steps if step.commands is not None}
    return Plan(pipeline.name, jobs, pipeline.fail_fast, lists)


def without_gpus(plan: Plan) -> Plan:
    """The same work with no GPU asked for: the commands are told BATCHYARD_DEVICE=cpu."""
    jobs = tuple(
        replace(job, resources=replace(job.resources, gpus=0), device="cpu")
        if job.resources.gpus
        else job
        for job in plan.jobs
    )
    return replace(plan, jobs=jobs)


def misfits(plan: Plan, capacity: Resources) -> list[str]:
    """The jobs that could never start in so much room, one sentence each, with the numbers."""
    sentences = []
    for job in plan.jobs:
        asked, has = job.resources, capacity
        short = [
            f"{want} {unit if want == 1 else units} and there {'is' if have == 1 else 'are'} {have}"
            for want, have, unit, units in (
                (asked.vcpus, has.vcpus, "vCPU", "vCPUs"),
                (asked.memory_mib, has.memory_mib, "MiB of memory", "MiB of memory"),
                (asked.gpus, has.gpus, "GPU", "GPUs"),
            )
            if want > have
        ]
        if short:
            sentences.append(f"step {job.step!r}: a child asks for {', and for '.join(short)}")
    return sentences


def most_at_once(plan: Plan, capacity: Resources) -> int:
    """How many children could ever run at the same time."""
    return min(
        sum(min(job.size, job.max_running or job.size) for job in plan.jobs),
        capacity.vcpus // min(job.resources.vcpus for job in plan.jobs),
    )


def only_unfinished(plan: Plan, unfinished: Mapping[str, Sequence[int]]) -> Plan:
    """A plan of the children that have not succeeded, as compact arrays that keep their numbers.

    ``unfinished``: step -> children, by their numbers in the step. A step that is done is left out, and so are the
    needs of it. A child-to-child need cannot survive two arrays compacted differently: it becomes a whole one.
    """
    jobs = []
    for job in plan.jobs:
        left = tuple(unfinished.get(job.step, ()))
        if not left:
            continue
        needs = []
        for need in job.needs:
            if unfinished.get(need.step):
                is_same = tuple(unfinished[need.step]) == left
                needs.append(Need(need.step, need.each and is_same))
        is_whole = len(left) == job.step_size
        jobs.append(
            replace(job, size=len(left), needs=tuple(needs), indices=None if is_whole else left)
        )
    return replace(plan, jobs=tuple(jobs))


def retry_strategy(
    retries: int, retry_on: Iterable[ExitRule], fail_on: Iterable[ExitRule]
) -> RetryStrategy:
    """The user's rules in AWS Batch's terms: fail_on is looked at first; what retry_on does not name is not retried."""
    retry_on = tuple(retry_on)
    rules = [rule for one in fail_on for rule in _evaluations(one, Action.EXIT)]
    if not any(rule.word == "any" for rule in retry_on):
        rules += [rule for one in retry_on for rule in _evaluations(one, Action.RETRY)]
        rules.append(EvaluateOnExit(Action.EXIT, on_reason="*"))
    return RetryStrategy(retries + 1, tuple(rules) if retries else ())


# -- JSON -------------------------------------------------------------------------------------------------------


def shown(plan: Plan, engine: str) -> dict[str, Any]:
    """The documented shape of ``plan --json``."""
    return {
        "pipeline": plan.pipeline,
        "engine": engine,
        "jobs": [_shown_job(job) for job in plan.jobs],
    }


def to_json(plan: Plan) -> dict[str, Any]:
    """All of a plan but its lists, for the run's record."""
    jobs = []
    for job in plan.jobs:
        fields = asdict(job)
        fields["indices"] = None if job.indices is None else ranges(job.indices)
        rules = fields["retry"]["evaluate_on_exit"]
        fields["retry"]["evaluate_on_exit"] = [
            {**rule, "action": rule["action"].value} for rule in rules
        ]
        jobs.append(fields)
    return {"pipeline": plan.pipeline, "fail_fast": plan.fail_fast, "jobs": jobs}


def from_json(record: Mapping[str, Any], lists: Mapping[str, Sequence[str]] | None = None) -> Plan:
    jobs = []
    for fields in record["jobs"]:
        rules = fields["retry"]["evaluate_on_exit"]
        evaluations = tuple(
            EvaluateOnExit(**{**rule, "action": Action(rule["action"])}) for rule in rules
        )
        indices = fields["indices"]
        known = {
            **fields,
            "resources": Resources(**fields["resources"]),
            "needs": tuple(Need(**need) for need in fields["needs"]),
            "retry": RetryStrategy(fields["retry"]["attempts"], evaluations),
            "indices": None
            if indices is None
            else tuple(i for a, b in indices for i in range(a, b + 1)),
            **{name: tuple(fields[name]) for name in _TUPLES if name in fields},
        }
        jobs.append(PlannedJob(**known))
    return Plan(record["pipeline"], tuple(jobs), record["fail_fast"], lists or {})


_TUPLES = ("inputs", "outputs", "checkpoint", "retry_on", "fail_on")


# -- helpers ----------------------------------------------------------------------------------------------------


def _selected(pipeline: Pipeline, only: str | None, start_from: str | None) -> list[Step]:
    names = [step.name for step in pipeline.steps]
    for chosen in (only, start_from):
        if chosen is not None and chosen not in names:
            from difflib import get_close_matches

            near = get_close_matches(chosen, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the steps are: {', '.join(names)}"
            raise InputError(f"no step is named {chosen!r}", hint=hint)
    if only is not None and start_from is not None:
        raise InputError("--only and --from exclude each other", hint="give one of them")
    if only is not None:
        return [pipeline.step(only)]
    if start_from is None:
        return list(pipeline.steps)
    wanted = {start_from}
    for step in in_order(pipeline.steps):
        if any(need.step in wanted for need in step.needs):
            wanted.add(step.name)
    return [step for step in pipeline.steps if step.name in wanted]


def _job(step: Step, names: set[str]) -> PlannedJob:
    return PlannedJob(
        step=step.name,
        size=step.size,
        is_array=step.array is not None,
        resources=Resources(step.cpus, step.memory_mib, step.gpus),
        command=step.command,
        command_count=len(step.commands) if step.commands is not None else step.size,
        needs=tuple(need for need in step.needs if need.step in names),
        retry=retry_strategy(step.retries, step.retry_on, step.fail_on),
        timeout_s=step.timeout_s,
        max_running=step.max_running,
        keep_going=step.keep_going,
        image=step.image,
        env=dict(step.env),
        device="gpu" if step.gpus else "cpu",
        shm_mib=step.shm_mib,
        step_size=step.size,
        inputs=step.inputs,
        outputs=step.outputs,
        checkpoint=step.checkpoint,
        retry_on=tuple(map(str, step.retry_on)),
        fail_on=tuple(map(str, step.fail_on)),
        secrets=dict(step.secrets),
        queue=step.queue,
        share=step.share,
        priority=step.priority,
    )


def _evaluations(rule: ExitRule, action: Action) -> list[EvaluateOnExit]:
    by_word = {
        "spot": EvaluateOnExit(action, on_status_reason="Host EC2*"),
        "oom": EvaluateOnExit(action, on_reason="OutOfMemoryError*"),
        "image": EvaluateOnExit(action, on_reason="CannotPullContainerError*"),
        "any": EvaluateOnExit(action, on_reason="*"),
    }
    if rule.word:
        return [by_word[rule.word]]
    return [
        EvaluateOnExit(action, on_exit_code=str(code)) for code in range(rule.first, rule.last + 1)
    ]


def _shown_job(job: PlannedJob) -> dict[str, Any]:
    return {
        "step": job.step,
        "size": job.size,
        "commands": sum(len(job.commands_of(i)) for i in range(job.size))
        if job.indices
        else job.command_count,
        "cpus": job.resources.vcpus,
        "memory_mib": job.resources.memory_mib,
        "gpus": job.resources.gpus,
        "attempts": job.retry.attempts,
        "timeout_s": job.timeout_s,
        "needs": [{"step": need.step, "each": need.each} for need in job.needs],
    }


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, last) of their unbroken runs."""
    runs = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in group]
        runs.append((members[0], members[-1]))
    return runs
