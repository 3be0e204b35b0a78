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

#: family -> architecture, GiB a vCPU, and size in xlarges (0.5 is "large") -> GPUs
_GPU: dict[str, tuple[str, float, dict[float, int]]] = {
    "g3": (X86, 7.625, {4: 1, 8: 2, 16: 4}),
    "g3s": (X86, 7.625, {1: 1}),
    "g4dn": (X86, 4, {1: 1, 2: 1, 4: 1, 8: 1, 12: 4, 16: 1}),
    "g5": (X86, 4, {1: 1, 2: 1, 4: 1, 8: 1, 12: 4, 16: 1, 24: 4, 48: 8}),
    "g5g": (ARM, 2, {1: 1, 2: 1, 4: 1, 8: 1, 16: 2}),
    "g6": (X86, 4, {1: 1, 2: 1, 4: 1, 8: 1, 12: 4, 16: 1, 24: 4, 48: 8}),
    "g6e": (X86, 8, {1: 1, 2: 1, 4: 1, 8: 1, 12: 4, 16: 1, 24: 4, 48: 8}),
    "gr6": (X86, 8, {4: 1, 8: 1}),
    # AMD, and slices of an L4: real accelerators, but none that ECS schedules.
    "g4ad": (X86, 4, {1: 0, 2: 0, 4: 0, 8: 0, 16: 0}),
    "g6f": (X86, 4, {0.5: 0, 1: 0, 2: 0, 4: 0}),
    "gr6f": (X86, 8, {4: 0}),
    "g7": (X86, 4, {2: 1, 4: 1, 8: 1, 12: 2, 24: 4, 48: 8}),
    "g7e": (X86, 8, {2: 1, 4: 1, 8: 1, 12: 2, 24: 4, 48: 8}),
    "p3": (X86, 7.625, {2: 1, 8: 4, 16: 8}),
    "p3dn": (X86, 8, {24: 8}),
    "p4d": (X86, 12, {24: 8}),
    "p4de": (X86, 12, {24: 8}),
    "p5": (X86, 16, {4: 1, 48: 8}),
    "p5e": (X86, 0, {48: 8}),
    "p5en": (X86, 0, {48: 8}),
    "p6-b200": (X86, 0, {48: 8}),
    "p6-b300": (X86, 0, {48: 8}),
    "p6e-gb200": (ARM, 0, {36: 4}),
}
#: type -> GiB, where they do not go with the vCPUs
_MEMORY_GIB = {
    "g7e.12xlarge": 512,
    "g7e.24xlarge": 1024,
    "g7e.48xlarge": 2048,
    **dict.fromkeys(("p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"), 2048),
    "p6-b300.48xlarge": 4096,
    "p6e-gb200.36xlarge": 960,
}
#: bare-metal type of a GPU family -> vCPUs, GPUs
_GPU_METAL = {"g4dn": (96, 8), "g5g": (64, 2)}

#: family -> architecture, GiB a vCPU, sizes in xlarges (0.5 is "large"), vCPUs of "metal"
_CPU: dict[str, tuple[str, float, tuple[float, ...], int]] = {
    "m3": (X86, 3.75, (0.25, 0.5, 1, 2), 0),
    "m4": (X86, 4, (0.5, 1, 2, 4, 10, 16), 0),
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
    types: dict[str, InstanceType] = {}

    def add(family: str, size: str, vcpus: int, gpus: int = 0) -> None:
        name = f"{family}.{size}"
        architecture, gib_per_vcpu = (_GPU.get(family) or _CPU[family])[:2]
        memory_mib = int(_MEMORY_GIB.get(name, vcpus * gib_per_vcpu) * GIB)
        types[name] = InstanceType(name, vcpus, memory_mib, gpus, architecture)

    for family, (_, _, gpus_of_size) in _GPU.items():
        for xlarges, gpus in gpus_of_size.items():
            add(family, _size_name(xlarges), int(xlarges * 4), gpus)
        if family in _GPU_METAL:
            add(family, "metal", *_GPU_METAL[family])
    for family, (_, _, sizes, metal_vcpus) in _CPU.items():
        for xlarges in sizes:
            add(family, _size_name(xlarges), int(xlarges * 4))
        if metal_vcpus:
            add(family, "metal", metal_vcpus)
    return types


def _size_name(xlarges: float) -> str:
    return _SIZE_NAMES.get(xlarges, f"{xlarges:g}xlarge")


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
