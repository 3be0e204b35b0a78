"""Resource types of CloudFormation that moto passes over though its services have them, and a stand-in for the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.ec2.models import ec2_backends
from moto.ecs.models import ecs_backends
from moto.s3.models import s3_backends
from moto.utilities.utils import get_partition

from batchyard.emulator.moto_cloudformation.own_model import (
    CannotReplace,
    Document,
    OwnModel,
    Place,
    Refused,
)


class Unknown(OwnModel):
    """A resource of a type that nobody here knows. It has a name, so that a Ref to it resolves, and nothing else."""

    def __init__(self, name: str, resource_type: str) -> None:
        self.name = name
        self.resource_type = resource_type

    @property
    def physical_resource_id(self) -> str:
        return self.name

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        raise Refused(
            f"this endpoint does not know {self.resource_type}, so the resource was passed over and has no "
            f"attribute {attribute_name}"
        )

    def delete(self, place: Place) -> None:
        pass


class CapacityProvider(OwnModel):
    TYPE = "AWS::ECS::CapacityProvider"
    NAME_PROPERTY = "Name"

    def __init__(self, name: str, properties: Document) -> None:
        self.name = name
        self.properties = properties

    @property
    def physical_resource_id(self) -> str:
        return self.name

    @classmethod
    def made(cls, name: str, properties: Document, place: Place, logical_id: str) -> Self:
        details = _uncapitalised(properties.get("AutoScalingGroupProvider", {}))
        tags = _uncapitalised(properties.get("Tags", []))
        _ecs(place).create_capacity_provider(name, details, tags)
        return cls(name, properties)

    def changed_to(self, name: str, properties: Document, place: Place) -> Self:
        old, new = (p.get("AutoScalingGroupProvider", {}) for p in (self.properties, properties))
        is_renamed = properties.get("Name") != self.properties.get("Name")
        if is_renamed or old.get("AutoScalingGroupArn") != new.get("AutoScalingGroupArn"):
            if name == self.name:
                raise CannotReplace(name)
            return self.made(name, properties, place, self.logical_resource_id)
        _ecs(place).update_capacity_provider(self.name, _uncapitalised(new))
        self.properties = properties
        return self

    def delete(self, place: Place) -> None:
        backend = _ecs(place)
        if self.name in backend.capacity_providers:
            backend.delete_capacity_provider(self.name)


class ClusterCapacityProviderAssociations(OwnModel):
    TYPE = "AWS::ECS::ClusterCapacityProviderAssociations"

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster

    @property
    def physical_resource_id(self) -> str:
        return self.cluster

    @classmethod
    def made(cls, name: str, properties: Document, place: Place, logical_id: str) -> Self:
        _ecs(place).put_cluster_capacity_providers(
            properties["Cluster"],
            properties.get("CapacityProviders", []),
            _uncapitalised(properties["DefaultCapacityProviderStrategy"]),
        )
        return cls(properties["Cluster"])

    def changed_to(self, name: str, properties: Document, place: Place) -> Self:
        made = self.made(name, properties, place, self.logical_resource_id)
        return self if made.cluster == self.cluster else made

    def delete(self, place: Place) -> None:
        backend = _ecs(place)
        if self.cluster.split("/")[-1] in backend.clusters:
            backend.put_cluster_capacity_providers(self.cluster, [], [])


class BucketPolicy(OwnModel):
    TYPE = "AWS::S3::BucketPolicy"

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket

    @property
    def physical_resource_id(self) -> str:
        return self.bucket

    @classmethod
    def made(cls, name: str, properties: Document, place: Place, logical_id: str) -> Self:
        policy = properties["PolicyDocument"]
        text = policy if isinstance(policy, str) else json.dumps(policy)
        backend = _s3(place)
        backend.put_bucket_policy(properties["Bucket"], text.encode())
        return cls(properties["Bucket"])

    def changed_to(self, name: str, properties: Document, place: Place) -> Self:
        made = self.made(name, properties, place, self.logical_resource_id)
        return self if made.bucket == self.bucket else made

    def delete(self, place: Place) -> None:
        backend = _s3(place)
        if self.bucket in backend.buckets:
            backend.delete_bucket_policy(self.bucket)


class SubnetRouteTableAssociation(OwnModel):
    """moto keeps its own where no describe call finds it, and routes of the subnet's are then nobody's."""

    TYPE = "AWS::EC2::SubnetRouteTableAssociation"
    ATTRIBUTES = ("Id",)

    def __init__(self, association_id: str) -> None:
        self.association_id = association_id

    @property
    def physical_resource_id(self) -> str:
        return self.association_id

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        if attribute_name != "Id":
            raise UnformattedGetAttTemplateException()
        return self.association_id

    @classmethod
    def made(cls, name: str, properties: Document, place: Place, logical_id: str) -> Self:
        backend = ec2_backends[place.account_id][place.region_name]
        return cls(
            backend.associate_route_table(
                properties["RouteTableId"], subnet_id=properties["SubnetId"]
            )
        )

    def changed_to(self, name: str, properties: Document, place: Place) -> Self:
        # A subnet has one table at a time: the old association must go before the new one comes.
        self.delete(place)
        self.association_id = self.made(
            name, properties, place, self.logical_resource_id
        ).association_id
        return self

    def delete(self, place: Place) -> None:
        ec2_backends[place.account_id][place.region_name].disassociate_route_table(
            self.association_id
        )


MODELS: tuple[type[OwnModel], ...] = (
    CapacityProvider,
    ClusterCapacityProviderAssociations,
    BucketPolicy,
    SubnetRouteTableAssociation,
)


def _ecs(place: Place) -> Any:
    return ecs_backends[place.account_id][place.region_name]


def _s3(place: Place) -> Any:
    return s3_backends[place.account_id][get_partition(place.region_name)]


def _uncapitalised(value: Any) -> Any:
    """`AutoScalingGroupArn` -> `autoScalingGroupArn`, all the way down."""
    if isinstance(value, list):
        return [_uncapitalised(item) for item in value]
    if isinstance(value, Mapping):
        return {key[0].lower() + key[1:]: _uncapitalised(item) for key, item in value.items()}
    return value
