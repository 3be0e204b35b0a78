"""The checks of ``hardware`` over the environments of the facts, and those that need more than one part. Pure."""

from __future__ import annotations

from collections.abc import Callable

from batchyard.doctor import catalogue
from batchyard.doctor.checks import hardware
from batchyard.doctor.checks.common import (
    Found,
    Look,
    Setting,
    described,
    each,
    each_template,
    environments,
    hosted,
    is_over,
    named,
    types_of,
    update_resources,
    waiting_job,
)
from batchyard.doctor.checks.hardware import Types
from batchyard.doctor.checks.kinds import (
    ARCHITECTURES_MIXED,
    GPUS_NOT_REGISTERED,
    INSTANCE_CONFIGURATION_UNSUPPORTED,
    TYPES_NOT_OFFERED_IN_ZONES,
    UNMANAGED_WITHOUT_INSTANCES,
)
from batchyard.doctor.facts import Environment, Facts, known
from batchyard.doctor.finding import Finding

_UNSUPPORTED = "MISCONFIGURATION:EC2_INSTANCE_CONFIGURATION_UNSUPPORTED"


def with_types(look: Callable[[Environment, Types], list[Finding]]) -> Look:
    """A check of one environment and its types, over all environments."""

    def over_all(facts: Facts, setting: Setting) -> Found:
        if is_over(facts) or not hosted(facts):
            return None
        return each(hosted(facts), lambda e: look(e, types_of(e, facts)))

    return over_all


def plainly(look: Callable[[Environment], list[Finding]]) -> Look:
    def over_all(facts: Facts, setting: Setting) -> Found:
        if is_over(facts) or not hosted(facts):
            return None
        return each(hosted(facts), look)

    return over_all


def types_exist(facts: Facts, setting: Setting) -> Found:
    if is_over(facts) or not hosted(facts):
        return None
    return each(hosted(facts), lambda e: hardware.existing_types(e, described(facts)))


def architectures(facts: Facts, setting: Setting) -> Found:
    """Of each environment, and of the environments of a queue together."""
    if is_over(facts) or not hosted(facts):
        return None
    found = each(hosted(facts), lambda e: hardware.one_architecture(e, types_of(e, facts)))
    if found:
        return found
    of = {e.name: {t.architecture for t in types_of(e, facts)} for e in hosted(facts)}
    if len(set().union(*of.values())) < 2:
        return []
    shown = ", ".join(f"{name} {named(sorted(kinds))}" for name, kinds in of.items())
    return [
        Finding(
            ARCHITECTURES_MIXED,
            "the compute environments of the queue differ in architecture: an image runs on only some of them",
            (shown,),
            ("give each architecture a queue of its own",),
        )
    ]


def hop_limit(facts: Facts, setting: Setting) -> Found:
    these = [] if is_over(facts) else hosted(facts)
    return each_template(these, lambda e, template: hardware.hop_limit(e, template.hop_limit))


def unsupported(facts: Facts, setting: Setting) -> Found:
    job = waiting_job(facts)
    if job is None or job.status != "RUNNABLE":
        return None
    if not job.status_reason.startswith(_UNSUPPORTED):
        return []
    types = named(name for e in environments(facts) for name in e.instance_types)
    return [
        Finding(
            INSTANCE_CONFIGURATION_UNSUPPORTED,
            "AWS cannot launch these instance types in these zones, or not with this launch template",
            (job.status_reason, f"instance types: {types or 'none named'}"),
            (
                "aws ec2 describe-instance-type-offerings --location-type availability-zone "
                "--filters Name=instance-type,Values=TYPE",
            ),
            f"job {job.job_id}",
            likelihood=99,
        )
    ]


def offered(facts: Facts, setting: Setting) -> Found:
    """An environment is right when one of its types is offered in one of its zones."""
    if is_over(facts) or not hosted(facts):
        return None
    offers = {(o.type, o.zone) for o in known(facts.offerings)}
    zones = {s.id: s.zone for s in known(facts.subnets)}

    def look(environment: Environment) -> list[Finding]:
        here = sorted({zones[s] for s in environment.subnets if s in zones})
        types = types_of(environment, facts)
        if not here or not types or any((t.name, zone) in offers for t in types for zone in here):
            return []
        elsewhere = sorted({zone for name, zone in offers if name in {t.name for t in types}})
        return [
            Finding(
                TYPES_NOT_OFFERED_IN_ZONES,
                f"none of the instance types of {environment.name} is offered in the zones of its subnets",
                (
                    f"types {named(t.name for t in types)}; zones {named(here)}",
                    f"offered in {named(elsewhere) or 'no zone of this region'}",
                ),
                (
                    update_resources(
                        environment, "subnets=SUBNET   # in a zone where they are offered"
                    ),
                ),
                f"compute environment {environment.name}",
            )
        ]

    return each(hosted(facts), look)


def unmanaged(facts: Facts, setting: Setting) -> Found:
    """Nobody launches instances for these: there must be some."""
    these = (
        []
        if is_over(facts)
        else [e for e in environments(facts) if not e.is_managed and e.state == "ENABLED"]
    )
    if not these:
        return None

    def look(environment: Environment) -> list[Finding]:
        if known(environment.hosts):
            return []
        return [
            Finding(
                UNMANAGED_WITHOUT_INSTANCES,
                f"{environment.name} is UNMANAGED and has no instances: AWS Batch launches none for it",
                ("0 container instances in its cluster",),
                (
                    "raise the desired size of the Auto Scaling group that feeds its cluster, or use a MANAGED one",
                ),
                f"compute environment {environment.name}",
            )
        ]

    return each(these, look)


def gpus_registered(facts: Facts, setting: Setting) -> Found:
    these = [] if is_over(facts) else [e for e in environments(facts) if not e.is_fargate]
    if not these:
        return None

    def look(environment: Environment) -> list[Finding]:
        gpus = {
            t.name: t.gpus
            for t in catalogue.expand([h.type for h in known(environment.hosts)], described(facts))
        }
        blind = [
            h
            for h in known(environment.hosts)
            if h.is_connected and not h.gpus and gpus.get(h.type)
        ]
        if not blind:
            return []
        return [
            Finding(
                GPUS_NOT_REGISTERED,
                f"hosts of {environment.name} joined the cluster without their GPUs",
                tuple(
                    f"{h.instance_id} ({h.type}) registered 0 GPUs; it has {gpus[h.type]}"
                    for h in blind[:4]
                ),
                (
                    "batchyard doctor host   # on such an instance: driver, runtime, ECS_ENABLE_GPU_SUPPORT",
                    update_resources(
                        environment, "'ec2Configuration=[{imageType=ECS_AL2023_NVIDIA}]'"
                    ),
                ),
                f"compute environment {environment.name}",
            )
        ]

    return each(these, look)
