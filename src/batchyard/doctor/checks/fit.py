"""Whether any host that the queue has or can launch is large enough for the job. Pure.

The questions are asked in turn of the types that are left: GPUs, vCPUs, memory, maxvCpus. The first that leaves none is
the finding; a queue with one environment that fits is right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from batchyard.batch.hosts import RESERVED_MIB, registered_mib
from batchyard.doctor import catalogue
from batchyard.doctor.checks import own_hosts
from batchyard.doctor.checks.common import (
    Found,
    Setting,
    asks,
    has_gpus,
    hosted,
    named,
    place_of,
    types_of,
    update_resources,
    waiting_job,
)
from batchyard.doctor.checks.kinds import (
    MAX_VCPUS_TOO_SMALL,
    MAX_VCPUS_USED_UP,
    NO_GPUS,
    NOT_ENOUGH_GPUS,
    NOT_ENOUGH_MEMORY,
    NOT_ENOUGH_VCPUS,
)
from batchyard.doctor.facts import CannotSee, Environment, Facts, InstanceType, Job, Missing, Quota
from batchyard.doctor.finding import Finding, Kind
from batchyard.units import show_memory

_TOO_LARGE = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT"
_MAX_VCPUS = "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A type that an environment may launch."""

    environment: Environment
    type: InstanceType

    @property
    def memory_mib(self) -> int:
        """What such a host registered, else the estimate."""
        return self.registered_mib or registered_mib(self.type.memory_mib, self.type.name)

    @property
    def registered_mib(self) -> int:
        hosts = self.environment.hosts
        seen = (
            [h.memory_mib for h in hosts if h.type == self.type.name]
            if isinstance(hosts, tuple)
            else []
        )
        return max(seen, default=0)

    @property
    def memory_text(self) -> str:
        about = "registers" if self.registered_mib else "registers about"
        return f"{self.type.name} {about} {self.memory_mib:,} MiB"


def candidates(facts: Facts) -> list[Candidate]:
    return [Candidate(e, t) for e in hosted(facts) for t in types_of(e, facts)]


def fitting(job: Job, these: list[Candidate]) -> list[Candidate]:
    return [
        c
        for c in these
        if c.type.gpus >= job.gpus and c.type.vcpus >= job.vcpus and c.memory_mib >= job.memory_mib
    ]


def fits(facts: Facts, setting: Setting) -> Found:
    found = _found(facts)
    return (
        None
        if found is None
        else [finding for finding in found if finding.kind is not MAX_VCPUS_TOO_SMALL]
    )


def has_room(facts: Facts, setting: Setting) -> Found:
    """For the job; where none is asked about, for anything at all."""
    found = _launches(facts) if facts.job is None else _found(facts)
    return (
        None
        if found is None
        else [finding for finding in found if finding.kind is MAX_VCPUS_TOO_SMALL]
    )


def _found(facts: Facts) -> Found:
    job = waiting_job(facts)
    if job is None or job.platform == "FARGATE":
        return None
    if own_hosts.own(facts):
        return _on_own_hosts(job, facts)
    if not hosted(facts):
        return None
    these = candidates(facts)
    if not these:
        return None  # none of its types exists, which is a finding of its own
    found = _first_that_fails(job, these)
    if found:
        return [_said(found, job.status_reason)] if _is_said(job) else [found]
    return _what_aws_says(job)


def _launches(facts: Facts) -> Found:
    if own_hosts.own(facts) or not hosted(facts):
        return None
    these = candidates(facts)
    if not these:
        return None
    if any(c.type.vcpus <= c.environment.max_vcpus for c in these):
        return []
    return [_no_room(min(these, key=lambda c: c.type.vcpus), "that it may launch")]


def _on_own_hosts(job: Job, facts: Facts) -> Found:
    """Of a queue with UNMANAGED environments: on a host that is there, or on one that AWS Batch could launch."""
    own = own_hosts.own(facts)
    if _is_said(job):
        return [own_hosts.said_by_aws(job, own)]
    if own_hosts.is_held(job, own):
        return []
    these = candidates(facts)
    launched = _first_that_fails(job, these) if these else None
    if these and not launched:
        return []
    found = own_hosts.too_small(job, own)
    # Where nothing is found there are no hosts, which is a finding of its own.
    return [*found, *([launched] if launched else [])] or None


def _is_said(job: Job) -> bool:
    return job.status_reason.startswith((_TOO_LARGE, _MAX_VCPUS))


def _first_that_fails(job: Job, left: list[Candidate]) -> Finding | None:
    if job.gpus and not has_gpus(c.type for c in left):
        return _no_gpus(job, left)
    with_gpus = [c for c in left if c.type.gpus >= job.gpus]
    if not with_gpus:
        most = max(left, key=lambda c: c.type.gpus)
        return _short(
            NOT_ENOUGH_GPUS,
            job,
            f"{job.gpus} GPUs",
            f"{most.type.name} has {most.type.gpus}, the most of all",
            left,
        )
    with_vcpus = [c for c in with_gpus if c.type.vcpus >= job.vcpus]
    if not with_vcpus:
        most = max(with_gpus, key=lambda c: c.type.vcpus)
        return _short(
            NOT_ENOUGH_VCPUS,
            job,
            f"{job.vcpus:g} vCPUs",
            f"{most.type.name} has {most.type.vcpus}, the most",
            left,
        )
    with_memory = [c for c in with_vcpus if c.memory_mib >= job.memory_mib]
    if not with_memory:
        return _no_memory(job, max(with_vcpus, key=lambda c: c.memory_mib), left)
    if all(c.type.vcpus > c.environment.max_vcpus for c in with_memory):
        return _no_room(min(with_memory, key=lambda c: c.type.vcpus), "that the job fits on")
    return None


def _no_gpus(job: Job, left: list[Candidate]) -> Finding:
    names = named(name for c in left for name in (c.environment.instance_types or ("optimal",)))
    environment = left[0].environment if left else Environment("NAME")
    return Finding(
        NO_GPUS,
        "the job asks for GPUs and no compute environment of its queue has any",
        (f"asks {job.gpus} GPU{'s' if job.gpus > 1 else ''}", f"instance types: {names}, 0 GPUs"),
        (
            update_resources(environment, "instanceTypes=g5.xlarge,g5.2xlarge,g6.xlarge"),
            "or submit to a queue whose environment has GPUs: `optimal` never has",
        ),
        place_of(job),
    )


def _short(kind: Kind, job: Job, asked: str, most: str, left: list[Candidate]) -> Finding:
    names = named(c.type.name for c in left)
    return Finding(
        kind,
        f"no instance type of the queue is large enough: the job asks for {asked}",
        (f"asks {asked}; {most}", f"types: {names}"),
        (_with_larger(job, left[0].environment), "or ask for less"),
        place_of(job),
    )


def _no_memory(job: Job, most: Candidate, left: list[Candidate]) -> Finding:
    asked = f"{job.memory_mib:,} MiB ({_as_asked(job.memory_mib)})"
    is_sure = bool(most.registered_mib) or job.memory_mib > most.type.memory_mib - RESERVED_MIB
    is_nominal = job.memory_mib <= most.type.memory_mib
    why = "; a host never registers all the memory it is sold with" if is_nominal else ""
    return Finding(
        NOT_ENOUGH_MEMORY,
        f"no instance type of the queue registers the {_as_asked(job.memory_mib)} that the job asks for{why}",
        (f"asks {asked}; {most.memory_text}", f"its nominal size is {most.type.memory_mib:,} MiB"),
        (
            f"ask for at most {int(most.type.memory_mib * 0.9):,} MiB (90 %) to fit {most.type.name}",
            _with_larger(job, most.environment),
        ),
        place_of(job),
        likelihood=-1 if is_sure else 70,
    )


def _with_larger(job: Job, environment: Environment) -> str:
    """The command that adds the smallest type that would do, of a family that the environment has; else any."""
    families = {catalogue.family_of(name) for name in environment.instance_types}
    these = [
        t
        for t in catalogue.TYPES.values()
        if catalogue.family_of(t.name) in families and ".metal" not in t.name
    ]
    would_do = [c.type for c in fitting(job, [Candidate(environment, t) for t in these])]
    if not would_do:
        return _with_type(environment, "TYPE") + "   # TYPE: one that is large enough"
    return _with_type(environment, min(would_do, key=lambda t: (t.vcpus, t.memory_mib)).name)


def _with_type(environment: Environment, name: str) -> str:
    """The list is replaced as a whole, so that the types of now have to be in it."""
    return update_resources(
        environment, f"instanceTypes={','.join((*environment.instance_types, name))}"
    )


def _as_asked(memory_mib: int) -> str:
    """Whole GiB as they are: 2000GiB are not 2TiB."""
    is_whole = memory_mib % 1024 == 0 and memory_mib % 1024**2
    return f"{memory_mib // 1024}GiB" if is_whole else show_memory(memory_mib)


def _no_room(smallest: Candidate, which: str) -> Finding:
    environment = smallest.environment
    return Finding(
        MAX_VCPUS_TOO_SMALL,
        f"maxvCpus of {environment.name} is smaller than the smallest instance {which}",
        (
            f"maxvCpus {environment.max_vcpus}; {smallest.type.name} has {smallest.type.vcpus} vCPUs",
        ),
        (update_resources(environment, f"maxvCpus={smallest.type.vcpus}"),),
        f"compute environment {environment.name}",
    )


def _what_aws_says(job: Job) -> list[Finding]:
    """Nothing is wrong as far as the numbers go; AWS may know better."""
    if job.status_reason.startswith(_MAX_VCPUS):
        kind, cause = MAX_VCPUS_TOO_SMALL, "AWS says that maxvCpus is too small for the job"
    elif job.status_reason.startswith(_TOO_LARGE):
        kind, cause = NOT_ENOUGH_GPUS if job.gpus else NOT_ENOUGH_MEMORY, own_hosts.MORE_THAN_ANY
    else:
        return []
    remedy = ("raise maxvCpus, or name instance types that are larger, or ask for less",)
    return [
        Finding(kind, cause, (job.status_reason, asks(job)), remedy, place_of(job), likelihood=99)
    ]


def _said(found: Finding, reason: str) -> Finding:
    return replace(found, evidence=(*found.evidence, f"AWS says: {reason}"), likelihood=100)


def used_up(facts: Facts, setting: Setting) -> Found:
    """All environments are as large as they may get, and the job still waits."""
    job = waiting_job(facts)
    if job is None or job.status != "RUNNABLE" or setting.is_early or not hosted(facts):
        return None
    full = [e for e in hosted(facts) if e.desired_vcpus >= e.max_vcpus > 0]
    if len(full) < len(hosted(facts)):
        return []
    return [
        Finding(
            MAX_VCPUS_USED_UP,
            f"{e.name} is as large as it may get: the job waits until another ends",
            (f"desiredvCpus {e.desired_vcpus} of maxvCpus {e.max_vcpus}",),
            (update_resources(e, f"maxvCpus={e.max_vcpus * 2}"),),
            f"compute environment {e.name}",
        )
        for e in full
    ]


def where(facts: Facts) -> tuple[str, ...]:
    """For a shape that is asked about: where it can run, an environment a line; nothing where that cannot be said."""
    if (
        not isinstance(facts.job, Job)
        or facts.job.job_id
        or isinstance(facts.environments, Missing)
    ):
        return ()
    zones = {s.id: s.zone for s in facts.subnets} if isinstance(facts.subnets, tuple) else {}
    offers = (
        {(o.type, o.zone) for o in facts.offerings} if isinstance(facts.offerings, tuple) else set()
    )
    quotas = {q.code: q for q in facts.quotas} if isinstance(facts.quotas, tuple) else {}
    found = []
    for environment in hosted(facts):
        try:
            these = [Candidate(environment, t) for t in types_of(environment, facts)]
        except CannotSee:
            continue
        fit = [
            c.type.name for c in fitting(facts.job, these) if c.type.vcpus <= environment.max_vcpus
        ]
        if not fit:
            continue
        here = sorted({zones[s] for s in environment.subnets if s in zones})
        offered = [zone for zone in here if any((name, zone) in offers for name in fit)]
        quota = quotas.get(catalogue.quota_code(fit[0], environment.is_spot))
        parts = [f"{place_of(facts.job)} fits {environment.name}: {named(fit)}"]
        parts += [f"in {', '.join(offered)}"] if offered else []
        parts += [_quota_text(quota)] if quota else []
        found.append("; ".join(parts))
    return (*found, *own_hosts.where(facts))


def _quota_text(quota: Quota) -> str:
    used = "" if isinstance(quota.used_vcpus, Missing) else f", {quota.used_vcpus:g} in use"
    return f"quota {quota.vcpus:g} vCPUs{used}"
