"""Compile a pipeline to a plan: the jobs of a run, in AWS Batch's terms. Pure.

A plan can be printed, compared and stored as JSON. ``batchyard plan`` prints the same object that
``batchyard run`` executes. Lists of commands are stored beside the jobs, since they can have a
million lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from itertools import groupby, pairwise
from typing import Any

from batchyard import shard
from batchyard.batch.jobs import Action, EvaluateOnExit, Resources, RetryStrategy
from batchyard.command_lengths import Expectation
from batchyard.errors import InputError
from batchyard.paired_children import GroupRange, find_group_ranges, order_by_groups
from batchyard.pipeline import ExitRule, Mount, Need, Pipeline, SpotRule, Step, sort_by_needs
from batchyard.quick_dataclasses import dataclass

#: More than the number of any child or command has.
_MAX_INDEX_DIGITS = 15


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job of a plan: an array job if ``is_array``, else a job with a single child."""

    step: str
    #: number of children
    size: int
    is_array: bool
    resources: Resources
    #: the command of every child; None if the children share a list
    command: str | None = None
    #: number of commands that the job runs: the length of the list, or one for each child
    command_count: int = 1
    needs: tuple[Need, ...] = ()
    retry: RetryStrategy = field(default_factory=RetryStrategy)
    timeout_s: int | None = None
    #: usual seconds of a command, as the pipeline file has them
    expect_s: int | None = None
    max_running: int | None = None
    keep_going: bool = False
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    #: value of BATCHYARD_DEVICE: "gpu", or "cpu", also for a GPU step that runs without GPUs
    device: str = "cpu"
    shm_mib: int | None = None
    #: number of each child in the step's array, if a retry has left children out or has changed
    #: their order; else None
    indices: tuple[int, ...] | None = None
    #: size of the step's array, also if a retry has left children out
    step_size: int = 1
    #: how the children share the list: a word of shard.SHARE_OUTS
    share_out: str = shard.STATIC
    #: of a dynamic step: how many children share the list; None: as many as there is room for
    dynamic_children: int | None = None
    #: of a dynamic step: whether its commands are handed out by falling length
    has_lengths: bool = False
    #: the only command that its child runs, if a retry repeats a single command
    only_command: int | None = None
    #: globs of workspace files: downloaded by a child, uploaded by it, and saved on a reclaim
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    checkpoint: tuple[str, ...] = ()
    #: globs of the files that the earlier steps of the run write; a retry keeps them
    earlier_outputs: tuple[str, ...] = ()
    #: the rules of the pipeline file, for engines that can follow more of them than AWS Batch
    retry_on: tuple[str, ...] = ("any",)
    fail_on: tuple[str, ...] = ()
    #: variable -> ARN
    secrets: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    share: str | None = None
    priority: int | None = None
    log_mode: str = "blocking"
    mounts: tuple[Mount, ...] = ()
    ulimits: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None

    @property
    def has_list(self) -> bool:
        return self.command is None

    @property
    def has_several_commands(self) -> bool:
        """Whether a child may run several commands, so that each of them has a record."""
        return self.has_list and not self.is_dynamic and self.command_count > self.step_size

    @property
    def is_dynamic(self) -> bool:
        """Whether commands are handed out one after the other, to children that are free."""
        return self.has_list and self.share_out == shard.DYNAMIC

    @property
    def has_limit(self) -> bool:
        """Whether the children that run at once are counted: `scale` can limit a dynamic step."""
        return self.max_running is not None or self.is_dynamic

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the job's children in the step's array."""
        return range(self.size) if self.indices is None else self.indices

    @property
    def is_in_order(self) -> bool:
        """Whether the children of the job are in the order of their numbers."""
        return self.indices is None or all(a < b for a, b in pairwise(self.indices))

    def index_in_step(self, child: int) -> int:
        """Return the number of a child of this job in the step's array.

        Children that `scale` has added follow those of the plan.
        """
        if child >= self.size:
            return self.step_size + child - self.size
        return child if self.indices is None else self.indices[child]

    def commands_of(self, child: int) -> range:
        """Return the numbers, in the step's list, of the commands that the child runs.

        A dynamic step must have a child for each command (``with_child_per_command``).
        """
        return self.commands_of_index(self.index_in_step(child))

    def commands_of_index(self, index: int) -> range:
        """Return the commands of the child with this number in the step's array."""
        if not self.has_list or self.is_dynamic:
            return range(index, index + 1)
        if self.only_command is not None:
            return range(self.only_command, self.only_command + 1)
        return shard.commands_of(self.command_count, index, self.step_size, self.share_out)


def is_index(text: str) -> bool:
    """Return whether the text can be the number of a child or a command."""
    # int() refuses digits like ², and thousands of digits.
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_INDEX_DIGITS


@dataclass(frozen=True, slots=True)
class RunPart:
    """A part of a run: a step, one child of it, or one of its commands."""

    step: str
    #: the child's number in the step
    index: int | None = None
    #: number of a command in the step's list; of a step without a list, of the child
    command: int | None = None

    def __str__(self) -> str:
        if self.command is not None:
            return f"command {self.step}:{self.command}"
        return self.step if self.index is None else f"{self.step}:{self.index}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The jobs of a run, each after the jobs it needs."""

    pipeline: str
    jobs: tuple[PlannedJob, ...]
    fail_fast: bool = False
    #: when children on spot instances go on, on demand; None is never
    spot: SpotRule | None = None
    #: step -> its list of commands; not part of the JSON
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)
    #: step -> lengths of its commands, see command_lengths; not part of the JSON
    lengths: Mapping[str, Sequence[float]] = field(default_factory=dict, compare=False)
    _by_step: Mapping[str, PlannedJob] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_step", {job.step: job for job in self.jobs})

    def job(self, step: str) -> PlannedJob:
        return self._by_step[step]

    def require_child(
        self, step: str | None, index: int | str | None = None
    ) -> tuple[str, int | None]:
        """Return the step and the number of its child, None for a whole step.

        Raises InputError unless the plan has the step, and the step has the child.
        """
        if step is None:
            steps = ", ".join(self._by_step)
            raise InputError(
                f"of which step is child {index!r} meant?", hint=f"its steps are: {steps}"
            )
        if step not in self._by_step:
            raise InputError(
                f"the run has no step {step!r}", hint=f"its steps are: {', '.join(self._by_step)}"
            )
        job = self.job(step)
        indices = job.numbers
        number = int(index) if isinstance(index, str) and is_index(index) else index
        # Of a step that was scaled, the plan does not know the children that were added.
        may_be_added = job.is_dynamic and job.size < job.command_count
        added = range(job.step_size, job.command_count) if may_be_added else ()
        if number is not None and number not in indices and number not in added:
            raise InputError(
                f"step {step!r} has no child {index!r} in this run",
                hint=f"its children are {min(indices)} to {max(indices)}",
            )
        return step, None if number is None else int(number)


def make(pipeline: Pipeline, *, only: str | None = None, start_from: str | None = None) -> Plan:
    """Return the plan of a pipeline.

    ``only``: of a single step. ``start_from``: of a step and the steps that depend on it. Raises
    InputError if there is no such step, or if both are given.
    """
    steps = _select_steps(pipeline, only, start_from)
    names = {step.name for step in steps}
    earlier_outputs = _find_earlier_outputs(steps)
    jobs = tuple(
        _make_job(step, names, earlier_outputs[step.name]) for step in sort_by_needs(steps)
    )
    lists = {step.name: step.commands for step in steps if step.commands is not None}
    lengths = {step.name: step.weight for step in steps if step.weight and step.is_dynamic}
    return Plan(pipeline.name, jobs, pipeline.fail_fast, pipeline.spot, lists, lengths)


def without_gpus(plan: Plan) -> Plan:
    """Return the plan with no GPUs: the commands of GPU steps get BATCHYARD_DEVICE=cpu."""
    jobs = tuple(
        replace(job, resources=replace(job.resources, gpus=0), device="cpu")
        if job.resources.gpus
        else job
        for job in plan.jobs
    )
    return replace(plan, jobs=jobs)


def with_claiming_children(plan: Plan, default_children: int) -> Plan:
    """Return the plan for an engine whose children claim the commands of dynamic steps.

    A dynamic step gets as many children as its array has, or ``default_children``, and no more than
    it has commands. Strided shares become static ones.
    """
    return replace(
        plan, jobs=tuple(_with_claiming_children(job, default_children) for job in plan.jobs)
    )


def _with_claiming_children(job: PlannedJob, default_children: int) -> PlannedJob:
    if not job.is_dynamic:
        return replace(job, share_out=shard.STATIC)
    size = max(1, min(job.dynamic_children or default_children, job.command_count))
    return replace(job, size=size, step_size=size, is_array=job.is_array or size > 1)


def with_child_per_command(plan: Plan) -> Plan:
    """Return the plan with a child for each command of its dynamic steps.

    For engines that start each command themselves: the scheduler then hands out the commands. At
    most ``dynamic_children`` of them run at once.
    """
    return replace(plan, jobs=tuple(map(_with_child_per_command, plan.jobs)))


def _with_child_per_command(job: PlannedJob) -> PlannedJob:
    if not job.is_dynamic:
        return job
    count = job.command_count
    # A limit that is never reached would only cost time.
    limits = [
        limit
        for limit in (job.dynamic_children, job.max_running)
        if limit is not None and limit < count
    ]
    return replace(job, size=count, step_size=count, max_running=min(limits, default=None))


def limit_at_once(plan: Plan, at_once: int) -> Plan:
    """Return the plan of a list with at most so many commands at once.

    Raises InputError for a plan that is not of one list.
    """
    job = plan.jobs[0]
    if len(plan.jobs) > 1 or not job.has_list:
        raise InputError(
            "-j is for a list of commands",
            hint="in a pipeline, write `max_running:` into a step, or limit the run with "
            "--limit-cpus",
        )
    if job.is_dynamic:
        children = min(at_once, job.dynamic_children or at_once)
        limited = replace(job, dynamic_children=children, is_array=True)
    else:
        limited = replace(job, max_running=min(at_once, job.max_running or at_once))
    return replace(plan, jobs=(limited,))


def find_misfits(
    plan: Plan, capacity: Resources, locate: Callable[[str, str], str] = lambda step, key: ""
) -> list[str]:
    """Return a sentence for each job whose children need more than ``capacity``.

    ``locate`` returns the place of a step's `cpus`, `memory` or `gpus` in the file, or nothing.
    """
    sentences = []
    for job in plan.jobs:
        child = job.resources
        amounts = (
            ("cpus", child.vcpus, capacity.vcpus, "vCPU", "vCPUs"),
            ("memory", child.memory_mib, capacity.memory_mib, "MiB of memory", "MiB of memory"),
            ("gpus", child.gpus, capacity.gpus, "GPU", "GPUs"),
        )
        shortages = {
            key: f"{needed} {noun if needed == 1 else plural}"
            f" and there {'is' if total == 1 else 'are'} {total}"
            for key, needed, total, noun, plural in amounts
            if needed > total
        }
        if shortages:
            place = locate(job.step, next(iter(shortages)))
            texts = ", and for ".join(shortages.values())
            sentences.append(f"{place}step {job.step!r}: a child asks for {texts}")
    return sentences


def find_limits(plan: Plan) -> dict[str, int]:
    """Return step -> children that may run at once, of jobs that have a limit."""
    return {job.step: job.max_running or job.size for job in plan.jobs if job.has_limit}


def count_slots(plan: Plan, capacity: Resources) -> dict[str, int]:
    """Return step -> commands that can run at once with this capacity, of dynamic steps."""
    slots = {}
    for job in plan.jobs:
        if job.is_dynamic:
            child = job.resources
            limits = [job.size, job.max_running or job.size, capacity.vcpus // child.vcpus]
            limits.append(capacity.memory_mib // child.memory_mib)
            if child.gpus:
                limits.append(capacity.gpus // child.gpus)
            slots[job.step] = min(limits)
    return slots


def max_concurrency(plan: Plan, capacity: Resources) -> int:
    """Return the largest number of children that can run at the same time."""
    return min(
        sum(min(job.size, job.max_running or job.size) for job in plan.jobs),
        capacity.vcpus // min(job.resources.vcpus for job in plan.jobs),
    )


def select_unfinished(plan: Plan, unfinished: Mapping[str, Sequence[int]]) -> Plan:
    """Return a plan of the unfinished children, as smaller arrays; children keep their numbers.

    ``unfinished``: step -> numbers of its children in the step. A step without unfinished children
    is left out, and so are the needs of it. With an ``each`` need, a child waits for the child of
    its number if that is unfinished, too; for this, the children are ordered by their groups (see
    ``paired_children``). A step with too many groups waits for the whole step.
    """
    selected = {
        job.step: sorted(unfinished[job.step]) for job in plan.jobs if unfinished.get(job.step)
    }
    links = [link for link in _find_links(plan.jobs) if selected.keys() >= set(link)]
    ordered = order_by_groups(selected, links)
    jobs = []
    for job in plan.jobs:
        if job.step not in selected:
            continue
        indices = tuple(ordered.get(job.step, selected[job.step]))
        needs = tuple(
            Need(need.step, need.each and need.step in ordered)
            for need in job.needs
            if need.step in selected
        )
        is_whole = indices == tuple(range(job.step_size))
        jobs.append(
            replace(job, size=len(indices), needs=needs, indices=None if is_whole else indices)
        )
    return replace(plan, jobs=tuple(jobs))


def find_paired_groups(plan: Plan) -> dict[str, list[GroupRange]]:
    """Return step -> groups of its children that wait child by child, see ``paired_children``."""
    return find_group_ranges({job.step: job.numbers for job in plan.jobs}, _find_links(plan.jobs))


def _find_links(jobs: Iterable[PlannedJob]) -> list[tuple[str, str]]:
    return [(job.step, need.step) for job in jobs for need in job.needs if need.each]


def retry_strategy(
    retries: int, retry_on: Iterable[ExitRule], fail_on: Iterable[ExitRule]
) -> RetryStrategy:
    """Return the rules in AWS Batch's terms.

    ``fail_on`` goes first. An ending that ``retry_on`` does not have is not retried.
    """
    if not retries:
        return RetryStrategy(1)
    retry_on = tuple(retry_on)
    evaluations = [entry for rule in fail_on for entry in _evaluations(rule, Action.EXIT)]
    if not any(rule.word == "any" for rule in retry_on):
        evaluations += [entry for rule in retry_on for entry in _evaluations(rule, Action.RETRY)]
        evaluations.append(EvaluateOnExit(Action.EXIT, on_reason="*"))
    # Ranges may overlap. Of equal rules, the first one decides.
    return RetryStrategy(retries + 1, tuple(dict.fromkeys(evaluations)))


def to_ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as (first, last) of their consecutive runs."""
    ranges = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in group]
        ranges.append((members[0], members[-1]))
    return ranges


# -- JSON ----------------------------------------------------------------------------------------


def describe(
    plan: Plan,
    engine: str,
    requests: Iterable[Mapping[str, Any]] = (),
    expectations: Mapping[str, Expectation] | None = None,
    command_counts: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the JSON of ``plan --json``, which is documented.

    ``command_counts``: step -> number of its commands that would run, if not all of them.
    """
    expected, counts = expectations or {}, command_counts or {}
    return {
        "pipeline": plan.pipeline,
        "engine": engine,
        "jobs": [
            _describe_job(job, expected.get(job.step), counts.get(job.step)) for job in plan.jobs
        ],
        "requests": list(requests),
    }


def count_commands(job: PlannedJob) -> int:
    """Return the number of commands of the job's children."""
    if job.indices is None and job.only_command is None:
        return job.command_count
    return sum(len(job.commands_of(child)) for child in range(job.size))


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the JSON of a plan without its lists, for the record of a run."""
    jobs = []
    for job in plan.jobs:
        fields = asdict(job)
        fields["indices"] = None if job.indices is None else to_ranges(job.indices)
        rules = fields["retry"]["evaluate_on_exit"]
        fields["retry"]["evaluate_on_exit"] = [
            {**rule, "action": rule["action"].value} for rule in rules
        ]
        jobs.append(fields)
    return {
        "pipeline": plan.pipeline,
        "fail_fast": plan.fail_fast,
        "spot": None if plan.spot is None else asdict(plan.spot),
        "jobs": jobs,
    }


def from_json(record: Mapping[str, Any], lists: Mapping[str, Sequence[str]] | None = None) -> Plan:
    """Return the plan that ``to_json`` made, with its lists."""
    jobs = tuple(map(_job_from_json, record["jobs"]))
    # Older versions of batchyard did not write it.
    spot = record.get("spot")
    rule = None if spot is None else SpotRule(**spot)
    return Plan(record["pipeline"], jobs, record["fail_fast"], rule, lists or {})


_TUPLE_FIELDS = ("inputs", "outputs", "checkpoint", "earlier_outputs", "retry_on", "fail_on")


def _job_from_json(fields: Mapping[str, Any]) -> PlannedJob:
    evaluations = tuple(
        EvaluateOnExit(**{**rule, "action": Action(rule["action"])})
        for rule in fields["retry"]["evaluate_on_exit"]
    )
    indices = fields["indices"]
    if indices is not None:
        indices = tuple(i for first, last in indices for i in range(first, last + 1))
    values = {
        **fields,
        "resources": Resources(**fields["resources"]),
        "needs": tuple(Need(**need) for need in fields["needs"]),
        "retry": RetryStrategy(fields["retry"]["attempts"], evaluations),
        "indices": indices,
        "mounts": tuple(Mount(**mount) for mount in fields.get("mounts", ())),
        **{name: tuple(fields[name]) for name in _TUPLE_FIELDS if name in fields},
    }
    return PlannedJob(**values)


# -- helpers -------------------------------------------------------------------------------------


def _select_steps(pipeline: Pipeline, only: str | None, start_from: str | None) -> list[Step]:
    for name in (only, start_from):
        if name is not None:
            _require_step(pipeline, name)
    if only is not None and start_from is not None:
        raise InputError("--only and --from exclude each other", hint="give one of them")
    if only is not None:
        return [pipeline.step(only)]
    if start_from is not None:
        return _with_dependents(pipeline, start_from)
    return list(pipeline.steps)


def _with_dependents(pipeline: Pipeline, name: str) -> list[Step]:
    """Return the step and all steps that need it, directly or through others."""
    selected = {name}
    for step in sort_by_needs(pipeline.steps):
        if any(need.step in selected for need in step.needs):
            selected.add(step.name)
    return [step for step in pipeline.steps if step.name in selected]


def _require_step(pipeline: Pipeline, name: str) -> None:
    names = [step.name for step in pipeline.steps]
    if name in names:
        return
    from difflib import get_close_matches

    matches = get_close_matches(name, names, 1)
    hint = f"did you mean {matches[0]!r}?" if matches else f"the steps are: {', '.join(names)}"
    raise InputError(f"no step is named {name!r}", hint=hint)


def _find_earlier_outputs(steps: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """Return step -> globs of the outputs of all steps that end before it begins."""
    by_name = {step.name: step for step in steps}
    earlier_steps: dict[str, set[str]] = {}
    for step in sort_by_needs(steps):
        needed = {need.step for need in step.needs if need.step in by_name}
        earlier_steps[step.name] = needed.union(*(earlier_steps[name] for name in needed))
    return {
        name: tuple(
            dict.fromkeys(glob for step in steps if step.name in earlier for glob in step.outputs)
        )
        for name, earlier in earlier_steps.items()
    }


def _make_job(step: Step, names: set[str], earlier_outputs: tuple[str, ...]) -> PlannedJob:
    return PlannedJob(
        step=step.name,
        size=step.size,
        is_array=step.array is not None,
        resources=Resources(step.cpus, step.memory_mib, step.gpus),
        command=step.command,
        command_count=len(step.commands) if step.commands is not None else step.size,
        share_out=step.share_out,
        dynamic_children=step.array if step.is_dynamic else None,
        has_lengths=bool(step.weight) and step.is_dynamic,
        needs=tuple(need for need in step.needs if need.step in names),
        retry=retry_strategy(step.retries, step.retry_on, step.fail_on),
        timeout_s=step.timeout_s,
        expect_s=step.expect_s,
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
        earlier_outputs=earlier_outputs,
        retry_on=tuple(map(str, step.retry_on)),
        fail_on=tuple(map(str, step.fail_on)),
        secrets=dict(step.secrets),
        queue=step.queue,
        share=step.share,
        priority=step.priority,
        log_mode=step.log_mode,
        mounts=step.mounts,
        ulimits=dict(step.ulimits),
        user=step.user,
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


def _describe_job(
    job: PlannedJob, expectation: Expectation | None, command_count: int | None
) -> dict[str, Any]:
    return {
        "step": job.step,
        "size": job.size,
        "commands": count_commands(job) if command_count is None else command_count,
        "share_out": job.share_out if job.has_list else None,
        "cpus": job.resources.vcpus,
        "memory_mib": job.resources.memory_mib,
        "gpus": job.resources.gpus,
        "attempts": job.retry.attempts,
        "timeout_s": job.timeout_s,
        "needs": [{"step": need.step, "each": need.each} for need in job.needs],
        "expected_s": round(expectation.expected_s, 1) if expectation else None,
        "lower_bound_s": round(expectation.lower_bound_s, 1) if expectation else None,
    }
