"""What checks have in common: their form, and the questions that many of them ask of the facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from batchyard.doctor import catalogue
from batchyard.doctor.facts import (
    CannotSee,
    Environment,
    Facts,
    InstanceType,
    Job,
    LaunchTemplate,
    Missing,
    known,
)
from batchyard.doctor.finding import Finding, Kind

#: a job in one of these is not waiting for anything that an environment could lack
OVER = ("RUNNING", "SUCCEEDED", "FAILED")


@dataclass(frozen=True, slots=True)
class Setting:
    #: what a fleet may take to start
    dwell_s: float
    #: the job has not waited so long yet: a symptom is no finding
    is_early: bool = False


#: None: it does not apply here; an empty list: looked at, and right
Found = list[Finding] | None
Look = Callable[[Facts, Setting], Found]


@dataclass(frozen=True, slots=True)
class Check:
    look: Look
    kinds: tuple[Kind, ...]


def job_of(facts: Facts) -> Job | None:
    """The job, or the shape that is asked about; None where it was not about a job."""
    return None if facts.job is None else known(facts.job)


def waiting_job(facts: Facts) -> Job | None:
    """The same, unless it runs or has ended."""
    job = job_of(facts)
    return None if job is None or job.status in OVER else job


def is_over(facts: Facts) -> bool:
    return isinstance(facts.job, Job) and facts.job.status in OVER


def environments(facts: Facts) -> tuple[Environment, ...]:
    return known(facts.environments)


def hosted(facts: Facts) -> list[Environment]:
    """The environments whose instances AWS Batch launches, of those that could take a job now."""
    return [
        e for e in environments(facts) if e.is_managed and not e.is_fargate and e.state == "ENABLED"
    ]


def each(
    these: Iterable[Environment], look: Callable[[Environment], list[Finding]]
) -> list[Finding]:
    return all_of(partial(look, environment) for environment in these)


def all_of(looks: Iterable[Callable[[], list[Finding]]]) -> list[Finding]:
    """All that is found; a part that is missing matters only where nothing else was found."""
    found: list[Finding] = []
    unseen: CannotSee | None = None
    for look in looks:
        try:
            found += look()
        except CannotSee as exc:
            unseen = exc
    if unseen and not found:
        raise unseen
    return found


def templates(environment: Environment) -> list[LaunchTemplate | Missing]:
    """Its own, and those that some of its types have instead."""
    own = [] if environment.launch_template is None else [environment.launch_template]
    return [*own, *environment.overrides]


def each_template(
    these: Iterable[Environment], look: Callable[[Environment, LaunchTemplate], list[Finding]]
) -> Found:
    """The same over all launch templates; of an override, the evidence says which types are launched with it."""

    def one(environment: Environment, template: LaunchTemplate | Missing) -> list[Finding]:
        seen = known(template)
        who = (
            (f"launch template {seen.id} is for {named(seen.target_types)}",)
            if seen.target_types
            else ()
        )
        return [
            replace(finding, evidence=(*finding.evidence, *who))
            for finding in look(environment, seen)
        ]

    pairs = [(e, template) for e in these for template in templates(e)]
    return all_of(partial(one, e, template) for e, template in pairs) if pairs else None


def described(facts: Facts) -> tuple[InstanceType, ...] | None:
    """What AWS said of its types; None where it was not asked, and then the catalogue serves."""
    return None if isinstance(facts.types, Missing) else facts.types


def types_of(environment: Environment, facts: Facts) -> tuple[InstanceType, ...]:
    """The types that the environment may launch, smallest first. Ends the check where a name is not known."""
    types = described(facts)
    for name in environment.instance_types:
        if catalogue.is_known(name, types) is None:
            raise CannotSee(
                Missing(f"{name} is not in the built-in list of types", "ec2:DescribeInstanceTypes")
            )
    return catalogue.expand(environment.instance_types, types)


def has_gpus(types: Iterable[InstanceType]) -> bool:
    return any(t.gpus for t in types)


def named(items: Iterable[str], at_most: int = 4) -> str:
    """ "a, b, c and 3 more"."""
    names = list(dict.fromkeys(items))
    shown = ", ".join(names[:at_most])
    return shown if len(names) <= at_most else f"{shown} and {len(names) - at_most} more"


def update(environment: Environment, settings: str) -> str:
    """The command that changes a compute environment."""
    return (
        f"aws batch update-compute-environment --compute-environment {environment.name} {settings}"
    )


def update_resources(environment: Environment, settings: str) -> str:
    return update(environment, f"--compute-resources {settings}")


def asks(job: Job) -> str:
    return f"asks {job.vcpus:g} vCPUs, {job.memory_mib:,} MiB, {job.gpus} GPUs"


def place_of(job: Job) -> str:
    if job.job_id:
        return f"job {job.job_id}"
    return f"step {job.name}" if job.name else "the shape that is asked about"
