"""The form of a check, and the questions about facts that many checks ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from batchyard import ec2_types
from batchyard.doctor.facts import (
    Environment,
    Facts,
    Job,
    LaunchTemplate,
    Missing,
    MissingFactError,
    require,
)
from batchyard.doctor.finding import Finding, Findings, Kind, Verdict
from batchyard.ec2_types import InstanceType

#: A job in one of these states does not wait for a compute environment.
RUNNING_OR_OVER = ("RUNNING", "SUCCEEDED", "FAILED")
#: At most this many hosts, subnets or names are listed as evidence.
MAX_LISTED = 4


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a job may wait before its waiting is a symptom."""

    #: the longest time that a fleet needs to start
    dwell_s: float
    #: whether the job has waited less than that
    is_early: bool = False


CheckFunction = Callable[[Facts, Timing], Verdict]
InstanceTypes = tuple[InstanceType, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """A function from facts to findings, and the kinds of findings that it can return."""

    run: CheckFunction
    kinds: tuple[Kind, ...]


# -- the parts of the facts --------------------------------------------------------------------


def job_of(facts: Facts) -> Job | None:
    """Return the job, or the requested shape; None where the facts are not about a job.

    Raises MissingFactError where the job could not be described.
    """
    return None if facts.job is None else require(facts.job)


def waiting_job(facts: Facts) -> Job | None:
    """Return the job, or the requested shape; None where there is none or it is running or over."""
    job = job_of(facts)
    return None if job is None or job.status in RUNNING_OR_OVER else job


def runnable_job(facts: Facts) -> Job | None:
    """Return the job if its state is RUNNABLE, else None."""
    job = waiting_job(facts)
    return job if job is not None and job.status == "RUNNABLE" else None


def is_running_or_over(facts: Facts) -> bool:
    return isinstance(facts.job, Job) and facts.job.status in RUNNING_OR_OVER


def environments_of(facts: Facts) -> tuple[Environment, ...]:
    """Return all compute environments; empty where the job is running or over."""
    return () if is_running_or_over(facts) else require(facts.environments)


def listed_environments(facts: Facts) -> tuple[Environment, ...]:
    """Return the compute environments; empty where they could not be described."""
    return facts.environments if isinstance(facts.environments, tuple) else ()


def ec2_environments(facts: Facts) -> list[Environment]:
    """Return the enabled, managed EC2 environments; empty where the job is running or over."""
    return [
        environment
        for environment in environments_of(facts)
        if environment.is_managed and not environment.is_fargate and environment.state == "ENABLED"
    ]


def host_environments(facts: Facts) -> list[Environment]:
    """Return all environments that are not Fargate; empty where the job is running or over."""
    return [environment for environment in environments_of(facts) if not environment.is_fargate]


def launch_templates_of(environment: Environment) -> list[LaunchTemplate | Missing]:
    """Return the environment's launch template, followed by its overrides for some types."""
    template = environment.launch_template
    return [*([] if template is None else [template]), *environment.overrides]


def described_types(facts: Facts) -> InstanceTypes | None:
    """Return the types that EC2 described; None where EC2 was not asked, or refused."""
    return None if isinstance(facts.types, Missing) else facts.types


def types_of(environment: Environment, facts: Facts) -> InstanceTypes:
    """Return the types that the environment may launch, smallest first.

    Raises MissingFactError where the environment names a type that is not known.
    """
    types = described_types(facts)
    for name in environment.instance_types:
        if ec2_types.is_known(name, types) is None:
            raise MissingFactError(
                Missing(f"{name} is not in the built-in list of types", "ec2:DescribeInstanceTypes")
            )
    return ec2_types.expand(environment.instance_types, types)


# -- checks of functions -----------------------------------------------------------------------


def check_facts(*kinds: Kind) -> Callable[[CheckFunction], Check]:
    """Make a check of a function of all facts."""
    return lambda function: Check(function, kinds)


def check_environments(
    kind: Kind, select: Callable[[Facts], Iterable[Environment]] = ec2_environments
) -> Callable[[Callable[[Environment, Facts], Iterable[Finding]]], Check]:
    """Make a check of a function that examines one of the selected environments."""

    def make(examine: Callable[[Environment, Facts], Iterable[Finding]]) -> Check:
        def run(facts: Facts, timing: Timing) -> Verdict:
            return check_each(select(facts), lambda environment: examine(environment, facts))

        return Check(run, (kind,))

    return make


def check_types(
    kind: Kind,
) -> Callable[[Callable[[Environment, InstanceTypes], Iterable[Finding]]], Check]:
    """Make a check of a function that examines a managed EC2 environment with its types."""

    def make(examine: Callable[[Environment, InstanceTypes], Iterable[Finding]]) -> Check:
        return check_environments(kind)(
            lambda environment, facts: examine(environment, types_of(environment, facts))
        )

    return make


def check_each(
    environments: Iterable[Environment], examine: Callable[[Environment], Iterable[Finding]]
) -> list[Finding] | None:
    """Return the findings about all environments; None where there is no environment.

    A finding without a place gets that of the environment.
    """
    examinations = [
        partial(_examine_in_place, environment, examine) for environment in environments
    ]
    return collect_findings(examinations) if examinations else None


def _examine_in_place(
    environment: Environment, examine: Callable[[Environment], Iterable[Finding]]
) -> list[Finding]:
    return [
        finding if finding.place else replace(finding, place=place_of(environment))
        for finding in examine(environment)
    ]


def collect_findings(examinations: Iterable[Callable[[], list[Finding]]]) -> list[Finding]:
    """Run all examinations and return their findings.

    Raises MissingFactError where an examination lacks a fact and no other found anything.
    """
    findings: list[Finding] = []
    error: MissingFactError | None = None
    for examine in examinations:
        try:
            findings += examine()
        except MissingFactError as exc:
            error = exc
    if error and not findings:
        raise error
    return findings


def check_launch_templates(
    *kinds: Kind,
) -> Callable[[Callable[[LaunchTemplate], Iterable[Finding]]], Check]:
    """Make a check of a function that examines a launch template of a managed EC2 environment.

    Where a template is an override, the evidence names the types that are launched with it.
    """

    def make(examine: Callable[[LaunchTemplate], Iterable[Finding]]) -> Check:
        def examine_part(part: LaunchTemplate | Missing, environment: Environment) -> Findings:
            template = require(part)
            names = join_names(template.target_types)
            override = (f"launch template {template.id} is for {names}",) if names else ()
            for finding in examine(template):
                yield replace(finding, evidence=(*finding.evidence, *override))

        def run(facts: Facts, timing: Timing) -> Verdict:
            examinations = [
                partial(_examine_in_place, environment, partial(examine_part, part))
                for environment in ec2_environments(facts)
                for part in launch_templates_of(environment)
            ]
            return collect_findings(examinations) if examinations else None

        return Check(run, kinds)

    return make


# -- words and commands ------------------------------------------------------------------------


def join_names(names: Iterable[str], max_names: int = MAX_LISTED) -> str:
    """Return distinct names as a text: "a, b, c, d and 3 more"."""
    distinct = list(dict.fromkeys(names))
    text = ", ".join(distinct[:max_names])
    hidden = len(distinct) - max_names
    return f"{text} and {hidden} more" if hidden > 0 else text


def update_command(environment: Environment, options: str) -> str:
    """Return the AWS CLI command that updates the compute environment."""
    return (
        f"aws batch update-compute-environment --compute-environment {environment.name} {options}"
    )


def update_resources_command(environment: Environment, settings: str) -> str:
    """Return the AWS CLI command that updates the compute resources of the environment."""
    return update_command(environment, f"--compute-resources {settings}")


def show_request(job: Job) -> str:
    return f"requests {job.vcpus:g} vCPUs, {job.memory_mib:,} MiB, {job.gpus} GPUs"


def place_of_job(job: Job) -> str:
    if job.job_id:
        return f"job {job.job_id}"
    return f"step {job.name}" if job.name else "the requested shape"


def place_of(environment: Environment) -> str:
    return f"compute environment {environment.name}"
