"""Resource types that moto 5.2.5 has no CloudFormation model for; a placeholder for all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from moto.ecs.models import ecs_backends
from moto.s3.models import s3_backends
from moto.utilities.utils import get_partition

from batchyard.emulator.moto_cloudformation.resource_model import (
    AccountRegion,
    Document,
    ReplacementError,
    ResourceError,
    ResourceModel,
    document_text,
)


class Placeholder(ResourceModel):
    """A resource of a type that this endpoint does not know: a name for Ref, and nothing else.

    moto 5.2.5: a Ref to such a resource resolves to nothing.
    """

    def __init__(self, name: str, resource_type: str) -> None:
        super().__init__(name)
        self.resource_type = resource_type

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        raise ResourceError(
            f"this endpoint does not know {self.resource_type}, so the resource was not created "
            f"and has no attribute {attribute_name}"
        )

    def delete(self, location: AccountRegion) -> None:
        pass


class CapacityProvider(ResourceModel):
    TYPE = "AWS::ECS::CapacityProvider"
    NAME_PROPERTY = "Name"

    def __init__(self, name: str, properties: Document) -> None:
        super().__init__(name)
        self.name = name
        self.properties = properties

    @classmethod
    def create(
        cls, name: str, properties: Document, location: AccountRegion, logical_id: str
    ) -> Self:
        provider = _to_api_names(properties.get("AutoScalingGroupProvider", {}))
        tags = _to_api_names(properties.get("Tags", []))
        _ecs(location).create_capacity_provider(name, provider, tags)
        return cls(name, properties)

    def update(self, name: str, properties: Document, location: AccountRegion) -> Self:
        old, new = (p.get("AutoScalingGroupProvider", {}) for p in (self.properties, properties))
        is_renamed = properties.get("Name") != self.properties.get("Name")
        if is_renamed or old.get("AutoScalingGroupArn") != new.get("AutoScalingGroupArn"):
            if name == self.name:
                raise ReplacementError(name)
            return self.create(name, properties, location, self.logical_resource_id)
        _ecs(location).update_capacity_provider(self.name, _to_api_names(new))
        self.properties = properties
        return self

    def delete(self, location: AccountRegion) -> None:
        backend = _ecs(location)
        if self.name in backend.capacity_providers:
            backend.delete_capacity_provider(self.name)


class ClusterCapacityProviderAssociations(ResourceModel):
    """The capacity providers of a cluster, whose name or ARN is the physical id."""

    TYPE = "AWS::ECS::ClusterCapacityProviderAssociations"

    @classmethod
    def create(
        cls, name: str, properties: Document, location: AccountRegion, logical_id: str
    ) -> Self:
        _ecs(location).put_cluster_capacity_providers(
            properties["Cluster"],
            properties.get("CapacityProviders", []),
            _to_api_names(properties["DefaultCapacityProviderStrategy"]),
        )
        return cls(properties["Cluster"])

    def delete(self, location: AccountRegion) -> None:
        backend = _ecs(location)
        if self.physical_id.split("/")[-1] in backend.clusters:
            backend.put_cluster_capacity_providers(self.physical_id, [], [])


class BucketPolicy(ResourceModel):
    """The policy of a bucket, whose name is the physical id."""

    TYPE = "AWS::S3::BucketPolicy"

    @classmethod
    def create(
        cls, name: str, properties: Document, location: AccountRegion, logical_id: str
    ) -> Self:
        policy = document_text(properties["PolicyDocument"])
        _s3(location).put_bucket_policy(properties["Bucket"], policy.encode())
        return cls(properties["Bucket"])

    def delete(self, location: AccountRegion) -> None:
        backend = _s3(location)
        if self.physical_id in backend.buckets:
            backend.delete_bucket_policy(self.physical_id)


MODELS: tuple[type[ResourceModel], ...] = (
    CapacityProvider,
    ClusterCapacityProviderAssociations,
    BucketPolicy,
)


def _ecs(location: AccountRegion) -> Any:
    return ecs_backends[location.account_id][location.region_name]


def _s3(location: AccountRegion) -> Any:
    return s3_backends[location.account_id][get_partition(location.region_name)]


def _to_api_names(value: Any) -> Any:
    """Return properties as the API names them: `autoScalingGroupArn` for `AutoScalingGroupArn`."""
    if isinstance(value, list):
        return [_to_api_names(member) for member in value]
    if isinstance(value, Mapping):
        return {key[0].lower() + key[1:]: _to_api_names(member) for key, member in value.items()}
    return value
