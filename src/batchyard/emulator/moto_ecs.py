"""moto's ECS clusters, EC2 instances and Auto Scaling groups, as the tasks of ECS see them."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC
from functools import lru_cache
from typing import Any, NamedTuple

from batchyard.emulator import names
from batchyard.emulator.ecs.surroundings import Cluster, Ec2Instance, NetworkInterface, Provider

#: `ECS_CLUSTER=name` of /etc/ecs/ecs.config, or a function that writes it: `set ECS_CLUSTER name`.
_CLUSTER = re.compile(r"""\bECS_CLUSTER['"]?[= ]\s*['"]?([A-Za-z0-9_-]+)""")
#: The same in the settings of Bottlerocket, which are TOML.
_ATTRIBUTES = re.compile(r"""\bECS_INSTANCE_ATTRIBUTES['"]?[= ]\s*['"]?(\{[^{}]*\})""")
_BOTTLEROCKET = re.compile(r"""\[settings\.ecs\][^\[]*?\bcluster\s*=\s*["']([A-Za-z0-9_-]+)""")


class _UserData(NamedTuple):
    """What the user data of an instance says to the agent of ECS."""

    #: Empty for none.
    cluster: str
    attributes: dict[str, str]


def find_cluster_name(user_data: str) -> str:
    """Return the ECS cluster that user data names; empty for none."""
    match = _CLUSTER.search(user_data) or _BOTTLEROCKET.search(user_data)
    return match[1] if match else ""


def find_attributes(user_data: str) -> dict[str, str]:
    """Return the attributes of ECS_INSTANCE_ATTRIBUTES, a JSON object; none if it is not one."""
    match = _ATTRIBUTES.search(user_data)
    try:
        attributes = json.loads(match[1].replace('\\"', '"')) if match else {}
    except ValueError:
        return {}
    return {name: str(value) for name, value in attributes.items()}


class MotoSurroundings:
    """The surroundings of one region."""

    def __init__(self, region: str) -> None:
        self._region = region
        #: By instance id.
        self._user_data: dict[str, _UserData] = {}

    # -- clusters and capacity providers ----------------------------------------------------------

    def find_cluster(self, name: str) -> Cluster | None:
        backend = self._loaded("ecs")
        cluster = None if backend is None else backend.clusters.get(name)
        if cluster is None:
            return None
        strategy = cluster.default_capacity_provider_strategy or []
        is_active, providers = cluster.status == "ACTIVE", cluster.capacity_providers or []
        return Cluster(cluster.name, cluster.arn, is_active, strategy, providers)

    def list_providers(self) -> list[Provider]:
        ecs, groups = self._loaded("ecs"), self._loaded("autoscaling")
        if ecs is None or groups is None:
            return []
        providers = []
        # A copy: requests that moto answers change the providers at the same time.
        for provider in list(ecs.capacity_providers.values()):
            # A provider of managed instances has no group.
            details = provider.auto_scaling_group_provider or {}
            arn = details.get("autoScalingGroupArn", "")
            group = groups.autoscaling_groups.get(arn.rpartition("autoScalingGroupName/")[2])
            if group is not None:
                scaling = details.get("managedScaling", {})
                providers.append(_to_provider(provider.name, group, scaling))
        return providers

    def describe_providers(self) -> list[dict[str, Any]]:
        backend = self._loaded("ecs")
        providers = [] if backend is None else list(backend.capacity_providers.values())
        documents = []
        for provider in providers:
            document = {
                "capacityProviderArn": provider.capacity_provider_arn,
                "name": provider.name,
                "status": provider.status,
                "autoScalingGroupProvider": provider.auto_scaling_group_provider,
                "updateStatus": provider.update_status,
                "tags": provider.tags or [],
            }
            documents.append({key: value for key, value in document.items() if value is not None})
        return documents

    def set_desired(self, group: str, count: int) -> None:
        # moto has an exception for each part of a launch template that does not exist.
        with suppress(Exception):
            self._launch(group, count)

    def _launch(self, group: str, count: int) -> None:
        self._backend("autoscaling").set_desired_capacity(group, count)
        moto_group = self._backend("autoscaling").autoscaling_groups[group]
        for state in moto_group.instance_states:
            # moto 5.2.5: gives instances the type of the launch template, not of the overrides.
            state.instance.instance_type = _type_of(moto_group)
            state.instance.lifecycle = "spot" if _is_spot(moto_group) else state.instance.lifecycle

    # -- instances --------------------------------------------------------------------------------

    def list_instances(self) -> list[Ec2Instance]:
        return [
            Ec2Instance(
                instance.id,
                cluster,
                str(instance.instance_type or ""),
                str(instance.availability_zone),
                instance.lifecycle == "spot",
                instance.launch_time.replace(tzinfo=UTC).timestamp(),
                _group_of(instance),
                self._user_data_of(instance).attributes,
            )
            for instance in self._running()
            if (cluster := self._user_data_of(instance).cluster)
        ]

    def find_instance_type(self, instance_id: str) -> str:
        matches = (instance for instance in self._running() if instance.id == instance_id)
        return next((str(instance.instance_type or "unknown") for instance in matches), "")

    def end_instance(self, instance_id: str, *, is_replaced: bool) -> None:
        instance = next((i for i in self._running() if i.id == instance_id), None)
        if instance is None:
            return
        with suppress(Exception):  # The group may have been deleted since.
            if _group_of(instance):
                groups = self._backend("autoscaling")
                groups.terminate_instance(instance_id, should_decrement=not is_replaced)
            else:
                self._backend("ec2").terminate_instances([instance_id])
                fleet = self._backend("ec2").get_spot_fleet_request(instance._spot_fleet_id)
                # A fleet that was cancelled may keep its instances, and launches no others.
                if fleet is not None and fleet.state == "active" and is_replaced:
                    fleet.create_spot_requests(1)

    def _running(self) -> Iterator[Any]:
        backend = self._loaded("ec2")
        if backend is None:
            return
        for reservation in list(backend.reservations.values()):
            for instance in list(reservation.instances):
                if instance.state in ("pending", "running"):
                    yield instance

    def _user_data_of(self, instance: Any) -> _UserData:
        if instance.id not in self._user_data:
            self._user_data[instance.id] = _read_user_data(str(instance.user_data or ""))
        return self._user_data[instance.id]

    # -- network interfaces -----------------------------------------------------------------------

    def add_interface(
        self, subnet: str, groups: list[str], *, is_public: bool
    ) -> NetworkInterface | None:
        from moto.ec2.exceptions import EC2ClientError

        backend = self._backend("ec2")
        try:
            moto_subnet = backend.get_subnet(subnet)
            interface = backend.create_network_interface(
                moto_subnet, None, group_ids=groups, public_ip_auto_assign=is_public
            )
        except (EC2ClientError, KeyError):
            return None
        return NetworkInterface(
            interface.id, subnet, interface.mac_address, interface.private_ip_address
        )

    def remove_interface(self, interface_id: str) -> None:
        self._backend("ec2").enis.pop(interface_id, None)

    # -- backends ---------------------------------------------------------------------------------

    def _loaded(self, service: str) -> Any:
        """Return a backend of moto; None if no request has used its service yet."""
        models = sys.modules.get(f"moto.{service}.models")
        if models is None:
            return None
        backends = getattr(models, f"{service}_backends", None)
        # Looked up without []: that would make a backend, for which moto reads the AWS profile.
        regions = {} if backends is None else dict.get(backends, names.ACCOUNT_ID, {})
        return dict.get(regions, self._region)

    def _backend(self, service: str) -> Any:
        from moto.backends import get_backend

        return get_backend(service)[names.ACCOUNT_ID][self._region]  # type: ignore[call-overload]


@lru_cache(maxsize=256)
def _read_user_data(user_data: str) -> _UserData:
    text = _decode(user_data)
    return _UserData(find_cluster_name(text), find_attributes(text))


def _decode(user_data: str) -> str:
    try:
        return base64.b64decode(user_data, validate=True).decode(errors="replace")
    except ValueError:
        return user_data


def _group_of(instance: Any) -> str:
    group = getattr(instance, "autoscaling_group", None)
    return "" if group is None else str(group.name)


def _to_provider(name: str, group: Any, scaling: dict[str, Any]) -> Provider:
    return Provider(
        name,
        str(group.name),
        _type_of(group),
        scaling.get("status") == "ENABLED",
        int(group.min_size or 0),
        int(group.max_size or 0),
        int(group.desired_capacity or 0),
        str(next(iter(group.availability_zones), "")),
        _read_user_data(str(group.user_data or "")).attributes,
    )


def _type_of(group: Any) -> str:
    """Return the first instance type of a group, which moto launches."""
    policy = group.mixed_instances_policy or {}
    overrides = policy.get("LaunchTemplate", {}).get("Overrides", [])
    return str((overrides[0].get("InstanceType") if overrides else None) or group.instance_type)


def _is_spot(group: Any) -> bool:
    distribution = (group.mixed_instances_policy or {}).get("InstancesDistribution", {})
    is_all_spot = int(distribution.get("OnDemandPercentageAboveBaseCapacity", 100)) == 0
    return is_all_spot and int(distribution.get("OnDemandBaseCapacity", 0)) == 0
