"""The catalogue of EC2 instance types: vCPUs, memory, GPUs, architecture, and their quotas. Pure.

The data is `ec2_types.json`, dated prices included (`ec2_prices`). It is used where EC2 was not
asked. The memory is nominal: a host registers less with ECS (`batch.hosts`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

from batchyard.batch.hosts import registered_mib
from batchyard.batch.jobs import Resources

ARM = "arm64"
X86 = "x86_64"


@dataclass(frozen=True, slots=True)
class InstanceType:
    name: str
    vcpus: int
    #: as advertised: a host registers less
    memory_mib: int
    #: GPUs that ECS can schedule: NVIDIA, no fractions
    gpus: int = 0
    architecture: str = X86
    #: model of the GPUs; empty without a GPU, and where nobody asked for it
    gpu: str = ""
    #: memory of one GPU
    gpu_memory_mib: int = 0


def read_data() -> dict[str, Any]:
    """Return the content of `ec2_types.json`."""
    text = resources.files("batchyard").joinpath("ec2_types.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


_DATA = read_data()
_FAMILIES: dict[str, dict[str, Any]] = _DATA["families"]


def _list_types() -> Iterator[InstanceType]:
    for family, facts in _FAMILIES.items():
        for size, (vcpus, memory_mib, gpus) in facts["sizes"].items():
            yield InstanceType(
                *(f"{family}.{size}", vcpus, memory_mib, gpus, facts["architecture"]),
                *(facts.get("gpu", ""), facts.get("gpu_memory_mib", 0)),
            )


def _families_with(trait: str) -> frozenset[str]:
    return frozenset(name for name, facts in _FAMILIES.items() if trait in facts.get("traits", ()))


#: all types, by name; the GPU families come first
TYPES = {t.name: t for t in _list_types()}
#: names that stand for families of AWS's choice; none of these has a GPU
WORDS: dict[str, tuple[str, ...]] = {
    word: tuple(families) for word, families in _DATA["words"].items()
}
#: Every size of these families is listed: another size does not exist.
WHOLE_FAMILIES = frozenset(_DATA["complete_families"])
#: families with a GPU, whether ECS can schedule it or not
GPU_FAMILIES = frozenset(name for name, facts in _FAMILIES.items() if "gpu" in facts)
#: families whose accelerators ECS cannot give to a job: AMD, and slices of a GPU
UNSCHEDULABLE = _families_with("unschedulable")
#: families whose GPUs are too old for the driver of the AL2023 GPU image
TOO_OLD_FOR_AL2023 = _families_with("too_old_for_al2023")
#: families whose GPUs are joined by a switch, which fabric manager must start
NVSWITCH = _families_with("nvswitch")
#: families with accelerators that are no GPUs: inference, video, FPGAs
OTHER_ACCELERATORS = _families_with("other_accelerator")


def family_of(name: str) -> str:
    return name.partition(".")[0]


def is_arm(name: str) -> bool:
    """Return whether a type, a family or a name like `default_arm64` has arm64 processors.

    False for an unknown name.
    """
    family = WORDS.get(name, (family_of(name),))[0]
    return family in _FAMILIES and _FAMILIES[family]["architecture"] == ARM


def registered_resources(name: str) -> Resources | None:
    """Return what an instance of this type registers with ECS, or None for an unknown type."""
    listed = TYPES.get(name)
    if listed is None:
        return None
    return Resources(listed.vcpus, registered_mib(listed.memory_mib, name), listed.gpus)


def list_family(name: str) -> list[str]:
    """Return the types of a family such as `g5`, without metal types (facts, 8.3)."""
    sizes = _FAMILIES.get(name, {}).get("sizes", ())
    return [f"{name}.{size}" for size in sizes if not size.startswith("metal")]


def expand(
    names: Iterable[str], described: Iterable[InstanceType] | None = None
) -> tuple[InstanceType, ...]:
    """Return the types that names in ``instanceTypes`` stand for, smallest first.

    Unknown names are skipped. ``described`` are types as EC2 described them, which take precedence
    over the catalogue; None where EC2 was not asked.
    """
    described_types = {t.name: t for t in described or ()}
    expanded: dict[str, InstanceType] = {}
    for name in names or ("default_x86_64",):
        for family in WORDS.get(name, (name,)):
            # The name of a family does not include its bare-metal sizes.
            members = [
                type_name
                for type_name in described_types
                if family_of(type_name) == family and ".metal" not in type_name
            ]
            for type_name in (family, *list_family(family), *members):
                instance_type = described_types.get(type_name) or TYPES.get(type_name)
                if instance_type:
                    expanded[type_name] = instance_type
    return tuple(sorted(expanded.values(), key=lambda t: (t.vcpus, t.memory_mib, t.name)))


def is_known(name: str, described: Iterable[InstanceType] | None = None) -> bool | None:
    """Whether a type, a family or a name like `optimal` exists; None where it is not known."""
    if name in WORDS or expand((name,), described):
        return True
    if described is not None or family_of(name) in WHOLE_FAMILIES:
        return False
    return None


_LETTERS = re.compile(r"[a-z]+(?=\d)")
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
