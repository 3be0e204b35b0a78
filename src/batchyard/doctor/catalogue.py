"""A built-in list of instance types: the GPU families and the common CPU families.

It is used where EC2 was not asked. The memory is nominal: a host registers less with ECS
(``batchyard.batch.hosts``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from batchyard.doctor.facts import InstanceType

ARM = "arm64"
X86 = "x86_64"
GIB = 1024

#: names that stand for families of AWS's choice; none of these has a GPU
WORDS = {
    "optimal": ("m6i", "c6i", "r6i", "c7i"),
    "default_x86_64": ("m6i", "c6i", "r6i", "c7i"),
    "default_arm64": ("m6g", "c6g", "r6g", "c7g"),
}

#: family -> architecture, and size -> (vCPUs, GiB, GPUs)
_GPU: dict[str, tuple[str, dict[str, tuple[int, float, int]]]] = {
    "g3": (X86, {"4xlarge": (16, 122, 1), "8xlarge": (32, 244, 2), "16xlarge": (64, 488, 4)}),
    "g3s": (X86, {"xlarge": (4, 30.5, 1)}),
    "g4dn": (
        X86,
        {
            "xlarge": (4, 16, 1),
            "2xlarge": (8, 32, 1),
            "4xlarge": (16, 64, 1),
            "8xlarge": (32, 128, 1),
            "12xlarge": (48, 192, 4),
            "16xlarge": (64, 256, 1),
            "metal": (96, 384, 8),
        },
    ),
    "g5g": (
        ARM,
        {
            "xlarge": (4, 8, 1),
            "2xlarge": (8, 16, 1),
            "4xlarge": (16, 32, 1),
            "8xlarge": (32, 64, 1),
            "16xlarge": (64, 128, 2),
            "metal": (64, 128, 2),
        },
    ),
    "g6e": (
        X86,
        {
            "xlarge": (4, 32, 1),
            "2xlarge": (8, 64, 1),
            "4xlarge": (16, 128, 1),
            "8xlarge": (32, 256, 1),
            "12xlarge": (48, 384, 4),
            "16xlarge": (64, 512, 1),
            "24xlarge": (96, 768, 4),
            "48xlarge": (192, 1536, 8),
        },
    ),
    "gr6": (X86, {"4xlarge": (16, 128, 1), "8xlarge": (32, 256, 1)}),
    # AMD, and slices of an L4: real accelerators, but none that ECS schedules.
    "g4ad": (
        X86,
        {
            "xlarge": (4, 16, 0),
            "2xlarge": (8, 32, 0),
            "4xlarge": (16, 64, 0),
            "8xlarge": (32, 128, 0),
            "16xlarge": (64, 256, 0),
        },
    ),
    "g6f": (
        X86,
        {"large": (2, 8, 0), "xlarge": (4, 16, 0), "2xlarge": (8, 32, 0), "4xlarge": (16, 64, 0)},
    ),
    "gr6f": (X86, {"4xlarge": (16, 128, 0)}),
    "g7": (
        X86,
        {
            "2xlarge": (8, 32, 1),
            "4xlarge": (16, 64, 1),
            "8xlarge": (32, 128, 1),
            "12xlarge": (48, 192, 2),
            "24xlarge": (96, 384, 4),
            "48xlarge": (192, 768, 8),
        },
    ),
    "g7e": (
        X86,
        {
            "2xlarge": (8, 64, 1),
            "4xlarge": (16, 128, 1),
            "8xlarge": (32, 256, 1),
            "12xlarge": (48, 512, 2),
            "24xlarge": (96, 1024, 4),
            "48xlarge": (192, 2048, 8),
        },
    ),
    "p3": (X86, {"2xlarge": (8, 61, 1), "8xlarge": (32, 244, 4), "16xlarge": (64, 488, 8)}),
    "p3dn": (X86, {"24xlarge": (96, 768, 8)}),
    "p4d": (X86, {"24xlarge": (96, 1152, 8)}),
    "p4de": (X86, {"24xlarge": (96, 1152, 8)}),
    "p5": (X86, {"4xlarge": (16, 256, 1), "48xlarge": (192, 2048, 8)}),
    "p5e": (X86, {"48xlarge": (192, 2048, 8)}),
    "p5en": (X86, {"48xlarge": (192, 2048, 8)}),
    "p6-b200": (X86, {"48xlarge": (192, 2048, 8)}),
    "p6-b300": (X86, {"48xlarge": (192, 4096, 8)}),
    "p6e-gb200": (ARM, {"36xlarge": (144, 960, 4)}),
}
_G5_SIZES = {
    "xlarge": (4, 16.0, 1),
    "2xlarge": (8, 32.0, 1),
    "4xlarge": (16, 64.0, 1),
    "8xlarge": (32, 128.0, 1),
    "12xlarge": (48, 192.0, 4),
    "16xlarge": (64, 256.0, 1),
    "24xlarge": (96, 384.0, 4),
    "48xlarge": (192, 768.0, 8),
}
_GPU["g5"] = _GPU["g6"] = (X86, dict(_G5_SIZES))

#: family -> architecture, GiB a vCPU, sizes in xlarges (0.5 is "large"), vCPUs of "metal"
_CPU: dict[str, tuple[str, float, tuple[float, ...], int]] = {
    "c5": (X86, 2, (0.5, 1, 2, 4, 9, 12, 18, 24), 96),
    "m5": (X86, 4, (0.5, 1, 2, 4, 8, 12, 16, 24), 96),
    "r5": (X86, 8, (0.5, 1, 2, 4, 8, 12, 16, 24), 96),
    "c6i": (X86, 2, (0.5, 1, 2, 4, 8, 12, 16, 24, 32), 128),
    "m6i": (X86, 4, (0.5, 1, 2, 4, 8, 12, 16, 24, 32), 128),
    "r6i": (X86, 8, (0.5, 1, 2, 4, 8, 12, 16, 24, 32), 128),
    "c6a": (X86, 2, (0.5, 1, 2, 4, 8, 12, 16, 24, 32, 48), 192),
    "m6a": (X86, 4, (0.5, 1, 2, 4, 8, 12, 16, 24, 32, 48), 192),
    "r6a": (X86, 8, (0.5, 1, 2, 4, 8, 12, 16, 24, 32, 48), 192),
    "c7i": (X86, 2, (0.5, 1, 2, 4, 8, 12, 16, 24, 48), 0),
    "m7i": (X86, 4, (0.5, 1, 2, 4, 8, 12, 16, 24, 48), 0),
    "r7i": (X86, 8, (0.5, 1, 2, 4, 8, 12, 16, 24, 48), 0),
    "c6g": (ARM, 2, (0.25, 0.5, 1, 2, 4, 8, 12, 16), 64),
    "m6g": (ARM, 4, (0.25, 0.5, 1, 2, 4, 8, 12, 16), 64),
    "r6g": (ARM, 8, (0.25, 0.5, 1, 2, 4, 8, 12, 16), 64),
    "c7g": (ARM, 2, (0.25, 0.5, 1, 2, 4, 8, 12, 16), 64),
    "m7g": (ARM, 4, (0.25, 0.5, 1, 2, 4, 8, 12, 16), 64),
    "r7g": (ARM, 8, (0.25, 0.5, 1, 2, 4, 8, 12, 16), 64),
}
_OLD: dict[str, tuple[str, dict[str, tuple[int, float, int]]]] = {
    "m3": (
        X86,
        {"medium": (1, 3.75, 0), "large": (2, 7.5, 0), "xlarge": (4, 15, 0), "2xlarge": (8, 30, 0)},
    ),
    "m4": (
        X86,
        {
            "large": (2, 8, 0),
            "xlarge": (4, 16, 0),
            "2xlarge": (8, 32, 0),
            "4xlarge": (16, 64, 0),
            "10xlarge": (40, 160, 0),
            "16xlarge": (64, 256, 0),
        },
    ),
}
_LETTERS = re.compile(r"[a-z]+(?=\d)")
_SIZE_NAMES = {0.25: "medium", 0.5: "large", 1: "xlarge"}

#: Every size of these families is listed above: another size does not exist.
WHOLE_FAMILIES = frozenset(_GPU) | {"m3", "m4", "c5", "m5", "r5", "c6i", "m6i", "r6i"}
#: families with a GPU, whether ECS can schedule it or not
GPU_FAMILIES = frozenset(_GPU)
#: families whose accelerators ECS cannot give to a job
UNSCHEDULABLE = frozenset({"g4ad", "g6f", "gr6f"})
#: families whose GPUs are too old for the driver of the AL2023 GPU image
TOO_OLD_FOR_AL2023 = frozenset({"g3", "g3s", "p3", "p3dn"})
#: families whose GPUs are joined by a switch, which fabric manager must start
NVSWITCH = frozenset(
    {"p3dn", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200"}
)


def _list_types() -> dict[str, InstanceType]:
    types = {}
    for family, (architecture, sizes) in (_GPU | _OLD).items():
        for size, (vcpus, gib, gpus) in sizes.items():
            name = f"{family}.{size}"
            types[name] = InstanceType(name, vcpus, int(gib * GIB), gpus, architecture)
    for family, (architecture, gib_per_vcpu, xlarges, metal) in _CPU.items():
        counts = {_SIZE_NAMES.get(n, f"{n:g}xlarge"): int(n * 4) for n in xlarges} | (
            {"metal": metal} if metal else {}
        )
        for size, vcpus in counts.items():
            name = f"{family}.{size}"
            memory_mib = int(vcpus * gib_per_vcpu * GIB)
            types[name] = InstanceType(name, vcpus, memory_mib, 0, architecture)
    return types


#: all types of this list, by name
TYPES = _list_types()


def family_of(name: str) -> str:
    return name.partition(".")[0]


def expand(
    names: Iterable[str], described: Iterable[InstanceType] | None = None
) -> tuple[InstanceType, ...]:
    """Return the types that names in ``instanceTypes`` stand for, smallest first.

    Unknown names are skipped. ``described`` are types as EC2 described them, which take precedence
    over this list; None where EC2 was not asked.
    """
    types = TYPES | {t.name: t for t in described or ()}
    expanded: dict[str, InstanceType] = {}
    for name in names or ("default_x86_64",):
        for family in WORDS.get(name, (name,)):
            if family in types:
                expanded[family] = types[family]
            # The name of a family does not include its bare-metal sizes.
            members = (
                t for t in types.values() if family_of(t.name) == family and ".metal" not in t.name
            )
            expanded.update((t.name, t) for t in members)
    return tuple(sorted(expanded.values(), key=lambda t: (t.vcpus, t.memory_mib, t.name)))


def is_known(name: str, described: Iterable[InstanceType] | None = None) -> bool | None:
    """Whether a type, a family or a name like `optimal` exists; None where it is not known."""
    if name in WORDS or expand((name,), described):
        return True
    if described is not None or family_of(name) in WHOLE_FAMILIES:
        return False
    return None


_STANDARD = ("L-1216C47A", "L-34B43A08")
#: first letters of a family -> the codes of its On-Demand and its Spot quota
_QUOTAS = {
    **dict.fromkeys(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"), _STANDARD),
    **dict.fromkeys(("g", "gr", "vt"), ("L-DB2E81BA", "L-3819A6DF")),
    "p": ("L-417A185B", "L-7212CCBC"),
}
_SPOT_P5 = "L-C4BD4855"


def quota_code(name: str, is_spot: bool) -> str:
    """Return the code of the EC2 quota that a type counts against; empty where it is unknown."""
    family = family_of(name)
    letters = _LETTERS.match(family)
    if is_spot and family.startswith("p5"):
        return _SPOT_P5
    if is_spot and family.startswith("p6"):
        return ""
    return _QUOTAS.get(letters[0] if letters else "", ("", ""))[is_spot]


def quota_patterns(codes: Iterable[str]) -> list[str]:
    """Return patterns for the names of all types that may count against these quotas.

    The patterns match some other types, too.
    """
    requested = set(codes)
    letters = [
        start
        for start, both in _QUOTAS.items()
        if requested & {*both, *([_SPOT_P5] if start == "p" else [])}
    ]
    return [
        f"{start}*" for start in sorted({start[0] if start != "vt" else start for start in letters})
    ]
