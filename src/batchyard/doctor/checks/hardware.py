"""Instance types, images, architectures and strategies of a compute environment: what fits together. Pure.

These need nothing but the environment as it is written, so templates are examined with the same functions.
"""

from __future__ import annotations

from batchyard.doctor import catalogue
from batchyard.doctor.checks.common import named, update_resources
from batchyard.doctor.checks.kinds import (
    AMAZON_LINUX_2,
    ARCHITECTURES_MIXED,
    BEST_FIT_STRATEGY,
    CPU_IMAGE_ON_GPU_HOST,
    GPU_AND_CPU_FAMILIES_MIXED,
    GPU_TOO_OLD_FOR_DRIVER,
    GPUS_NOT_SCHEDULABLE,
    INSTANCE_TYPE_UNKNOWN,
    METADATA_HOP_LIMIT,
    SPOT_BID_TOO_LOW,
    SPOT_WITH_SINGLE_TYPE,
)
from batchyard.doctor.facts import Environment, InstanceType
from batchyard.doctor.finding import Finding

#: a bid under so many percent of the On-Demand price rarely buys a GPU
LOW_BID = 60

Types = tuple[InstanceType, ...]


def mixed_families(environment: Environment, types: Types) -> list[Finding]:
    gpu = [t.name for t in types if t.gpus]
    cpu = [
        t.name
        for t in types
        if not t.gpus and catalogue.family_of(t.name) not in catalogue.GPU_FAMILIES
    ]
    if not gpu or not cpu:
        return []
    return [
        Finding(
            GPU_AND_CPU_FAMILIES_MIXED,
            f"{environment.name} mixes GPU and CPU families: GPU jobs may stay RUNNABLE, CPU jobs may take GPU hosts",
            (f"with GPUs: {named(gpu)}", f"without: {named(cpu)}"),
            (
                update_resources(environment, f"instanceTypes={','.join(gpu[:4])}"),
                "and a second environment for CPU jobs",
            ),
            _place(environment),
        )
    ]


def unschedulable(environment: Environment, types: Types) -> list[Finding]:
    bad = [t.name for t in types if catalogue.family_of(t.name) in catalogue.UNSCHEDULABLE]
    if not bad:
        return []
    return [
        Finding(
            GPUS_NOT_SCHEDULABLE,
            f"{environment.name} has GPUs that ECS cannot give to a job: AMD, or slices of one",
            (f"{named(bad)}: 0 GPUs to schedule",),
            (update_resources(environment, "instanceTypes=g4dn.xlarge,g5.xlarge,g6.xlarge"),),
            _place(environment),
        )
    ]


def image_for_gpus(environment: Environment, types: Types) -> list[Finding]:
    gpu = [t.name for t in types if t.gpus]
    images = environment.image_types
    # With no image type, AWS Batch takes its GPU image for GPU types by itself.
    if not gpu or not images or environment.image_id or any("NVIDIA" in image for image in images):
        return []
    return [
        Finding(
            CPU_IMAGE_ON_GPU_HOST,
            f"{environment.name} launches GPU instances with an image that has no GPU driver",
            (f"imageType {named(images)}; types {named(gpu)}",),
            (update_resources(environment, "'ec2Configuration=[{imageType=ECS_AL2023_NVIDIA}]'"),),
            _place(environment),
        )
    ]


def driver_for_gpus(environment: Environment, types: Types) -> list[Finding]:
    old = [t.name for t in types if catalogue.family_of(t.name) in catalogue.TOO_OLD_FOR_AL2023]
    uses_al2023 = not environment.image_types or any(
        "AL2023" in image for image in environment.image_types
    )
    if not old or not uses_al2023 or environment.image_id:
        return []
    image = named(environment.image_types) or "ECS_AL2023_NVIDIA (the default)"
    return [
        Finding(
            GPU_TOO_OLD_FOR_DRIVER,
            f"{environment.name} has GPUs that are too old for the driver of the Amazon Linux 2023 image",
            (f"imageType {image}; types {named(old)}",),
            (update_resources(environment, "instanceTypes=g4dn.xlarge,g5.xlarge"),),
            _place(environment),
        )
    ]


def old_image(environment: Environment) -> list[Finding]:
    old = [image for image in environment.image_types if "_AL2" in image and "AL2023" not in image]
    if not old:
        return []
    new = old[0].replace("_AL2", "_AL2023")
    return [
        Finding(
            AMAZON_LINUX_2,
            f"{environment.name} uses Amazon Linux 2, whose images get no patches; AWS Batch refuses new environments",
            (f"imageType {named(old)}; refused since 2026-06-30",),
            (update_resources(environment, f"'ec2Configuration=[{{imageType={new}}}]'"),),
            _place(environment),
        )
    ]


def one_architecture(environment: Environment, types: Types) -> list[Finding]:
    evidence: tuple[str, ...]
    arm = [t.name for t in types if t.architecture == catalogue.ARM]
    x86 = [t.name for t in types if t.architecture != catalogue.ARM]
    if arm and x86:
        cause = f"{environment.name} mixes architectures; an environment must have one"
        evidence = (f"arm64: {named(arm)}", f"x86_64: {named(x86)}")
    elif any(t.gpus for t in types) and arm and not environment.image_id:
        cause = f"{environment.name} has arm64 GPU hosts, for which AWS Batch has no image"
        evidence = (f"{named(arm)}, and no image of your own",)
    else:
        return []
    remedy = (update_resources(environment, "instanceTypes=TYPES   # all of one architecture"),)
    return [Finding(ARCHITECTURES_MIXED, cause, evidence, remedy, _place(environment))]


def existing_types(environment: Environment, described: Types | None = None) -> list[Finding]:
    bad = [
        name for name in environment.instance_types if catalogue.is_known(name, described) is False
    ]
    if not bad:
        return []
    sizes = {
        name: [t for t in catalogue.TYPES if catalogue.family_of(t) == catalogue.family_of(name)]
        for name in bad
    }
    evidence = tuple(
        f"{name}: no such type"
        + (f"; {catalogue.family_of(name)} has {named(known, 9)}" if known else "")
        for name, known in sizes.items()
    )
    return [
        Finding(
            INSTANCE_TYPE_UNKNOWN,
            f"{environment.name} names instance types that do not exist",
            evidence,
            (
                "aws ec2 describe-instance-types --query 'InstanceTypes[].InstanceType' --output text",
            ),
            _place(environment),
        )
    ]


def low_bid(environment: Environment) -> list[Finding]:
    bid = environment.bid_percentage
    if not environment.is_spot or environment.is_fargate or bid is None or not 0 < bid < LOW_BID:
        return []
    return [
        Finding(
            SPOT_BID_TOO_LOW,
            f"{environment.name} bids so little that Spot instances may never be bought, without a word from AWS",
            (f"bidPercentage {bid}; 100 is the default and the advice",),
            (update_resources(environment, "bidPercentage=100"),),
            _place(environment),
            likelihood=60,
        )
    ]


def best_fit(environment: Environment) -> list[Finding]:
    if (
        environment.is_fargate
        or not environment.is_managed
        or environment.strategy not in ("", "BEST_FIT")
    ):
        return []
    better = "SPOT_PRICE_CAPACITY_OPTIMIZED" if environment.is_spot else "BEST_FIT_PROGRESSIVE"
    said = environment.strategy or "none given, which means BEST_FIT"
    return [
        Finding(
            BEST_FIT_STRATEGY,
            f"{environment.name} waits for the one best type (BEST_FIT), and its infrastructure cannot be updated",
            (f"allocationStrategy: {said}",),
            (
                f"make a new environment with allocationStrategy {better}: it cannot be changed in this one",
            ),
            _place(environment),
        )
    ]


def alternatives(environment: Environment, types: Types) -> list[Finding]:
    if not environment.is_spot or environment.is_fargate or len(types) != 1:
        return []
    return [
        Finding(
            SPOT_WITH_SINGLE_TYPE,
            f"{environment.name} buys Spot instances of a single type: one shortage stops it",
            (f"1 instance type: {types[0].name}",),
            (
                update_resources(
                    environment, "instanceTypes=TYPE,TYPE,TYPE   # AWS advises ten or more"
                ),
            ),
            _place(environment),
        )
    ]


def hop_limit(environment: Environment, limit: int | None) -> list[Finding]:
    if limit != 1:
        return []
    return [
        Finding(
            METADATA_HOP_LIMIT,
            "the launch template keeps containers from the metadata service",
            ("HttpPutResponseHopLimit 1; a container in bridge mode needs 2",),
            ("set HttpPutResponseHopLimit: 2 in the launch template, or leave it to the image",),
            _place(environment),
        )
    ]


def _place(environment: Environment) -> str:
    return f"compute environment {environment.name}"
