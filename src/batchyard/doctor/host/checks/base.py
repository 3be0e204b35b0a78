"""The form of a check of a host, and the questions about a host that many checks ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchyard import ec2_types
from batchyard.doctor.finding import Kind, Verdict
from batchyard.doctor.host.facts import HostFacts, Metadata, Unit

#: the longest time that a boot takes
MAX_BOOT_S = 15 * 60
#: Longer lines of output are cut in the evidence.
MAX_LINE_LENGTH = 160


@dataclass(frozen=True, slots=True)
class HostCheck:
    """A function from facts to findings, and the kind of finding that it can return."""

    run: Callable[[HostFacts], Verdict]
    kind: Kind


def check_host(kind: Kind) -> Callable[[Callable[[HostFacts], Verdict]], HostCheck]:
    """Make a check of a function."""
    return lambda function: HostCheck(function, kind)


def is_ecs_node(facts: HostFacts) -> bool:
    """Whether the machine is set up as an ECS instance."""
    unit = find_unit(facts, "ecs.service")
    is_installed = unit is not None and unit.load != "not-found"
    return is_installed or isinstance(facts.ecs_config, str)


def has_gpus(facts: HostFacts) -> bool:
    if isinstance(facts.bus_gpus, int) and facts.bus_gpus:
        return True
    return _gpus_of_type(facts) > 0 or (isinstance(facts.gpus, tuple) and bool(facts.gpus))


def count_gpus(facts: HostFacts) -> int:
    """Return the GPUs on the PCI bus; where it shows none, those of the instance type."""
    on_bus = facts.bus_gpus if isinstance(facts.bus_gpus, int) else 0
    return on_bus or _gpus_of_type(facts)


def instance_type_of(facts: HostFacts) -> str:
    """Return the EC2 instance type; empty where the metadata service did not answer."""
    return facts.metadata.instance_type if isinstance(facts.metadata, Metadata) else ""


def _gpus_of_type(facts: HostFacts) -> int:
    instance_type = ec2_types.TYPES.get(instance_type_of(facts))
    return instance_type.gpus if instance_type else 0


def find_unit(facts: HostFacts, name: str) -> Unit | None:
    units = facts.units if isinstance(facts.units, tuple) else ()
    return next((unit for unit in units if unit.name == name), None)
