"""What other services know about the surroundings of ECS tasks: the seam to moto."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

Document = dict[str, Any]


class Cluster(NamedTuple):
    name: str
    arn: str
    is_active: bool
    #: As in PutClusterCapacityProviders.
    default_strategy: list[Document]
    #: Names of its capacity providers.
    providers: list[str]


class Ec2Instance(NamedTuple):
    """A running EC2 instance whose user data names an ECS cluster."""

    instance_id: str
    cluster: str
    type_name: str
    zone: str
    is_spot: bool
    #: Seconds since 1970.
    launched_s: float
    #: Name of its Auto Scaling group; empty for none.
    group: str = ""
    #: ECS_INSTANCE_ATTRIBUTES of its user data.
    attributes: Mapping[str, str] = {}


class Provider(NamedTuple):
    """A capacity provider with its Auto Scaling group."""

    name: str
    group: str
    #: Instance type of the group.
    type_name: str
    is_managed: bool
    min_size: int
    max_size: int
    desired: int
    #: Zone and ECS_INSTANCE_ATTRIBUTES of a new instance.
    zone: str
    attributes: Mapping[str, str]


class NetworkInterface(NamedTuple):
    interface_id: str
    subnet: str
    mac_address: str
    private_address: str


class Surroundings(Protocol):
    """Clusters, EC2 instances and Auto Scaling groups: the seam to moto, which has them."""

    def find_cluster(self, name: str) -> Cluster | None: ...

    def list_instances(self) -> list[Ec2Instance]:
        """Return the running instances whose user data names an ECS cluster."""

    def find_instance_type(self, instance_id: str) -> str:
        """Return the type of a running EC2 instance; empty for any other id."""

    def list_providers(self) -> list[Provider]: ...

    def describe_providers(self) -> list[Document]:
        """Return all capacity providers in AWS's form."""

    def set_desired(self, group: str, count: int) -> None:
        """Launch instances until an Auto Scaling group has this many."""

    def end_instance(self, instance_id: str, *, is_replaced: bool) -> None:
        """End an instance. ``is_replaced``: whether its group launches another one."""

    def add_interface(
        self, subnet: str, groups: list[str], *, is_public: bool
    ) -> NetworkInterface | None:
        """Create a network interface; None for a subnet that does not exist."""

    def remove_interface(self, interface_id: str) -> None: ...


class NoSurroundings:
    """For tests: one cluster named `default`, and nothing else."""

    def find_cluster(self, name: str) -> Cluster | None:
        arn = f"arn:aws:ecs:us-east-1:123456789012:cluster/{name}"
        return Cluster(name, arn, True, [], []) if name == "default" else None

    def list_instances(self) -> list[Ec2Instance]:
        return []

    def find_instance_type(self, instance_id: str) -> str:
        return ""

    def list_providers(self) -> list[Provider]:
        return []

    def describe_providers(self) -> list[Document]:
        return []

    def set_desired(self, group: str, count: int) -> None:
        pass

    def end_instance(self, instance_id: str, *, is_replaced: bool) -> None:
        pass

    def add_interface(
        self, subnet: str, groups: list[str], *, is_public: bool
    ) -> NetworkInterface | None:
        return None

    def remove_interface(self, interface_id: str) -> None:
        pass
