"""Resource types of CloudFormation that moto passes over though its services have them, and a stand-in for the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.ec2.models import ec2_backends
from moto.ecs.models import ecs_backends
from moto.s3.models import s3_backends
from moto.utilities.utils import get_partition

from batchyard.emulator.moto_cloudformation.batch_resources import OwnModel, Refused

Document = dict[str, Any]


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

    def delete(self, account_id: str, region_name: str) -> None:
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

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        raise UnformattedGetAttTemplateException()

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Document, account_id: str, region_name: str, **kwargs: Any
    ) -> CapacityProvider:
        properties = cloudformation_json["Properties"]
        details = _uncapitalised(properties.get("AutoScalingGroupProvider", {}))
        tags = _uncapitalised(properties.get("Tags", []))
        ecs_backends[account_id][region_name].create_capacity_provider(resource_name, details, tags)
        return cls(resource_name, properties)

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> CapacityProvider:
        properties = cloudformation_json["Properties"]
        old, new = (p.get("AutoScalingGroupProvider", {}) for p in (original_resource.properties, properties))
        is_renamed = properties.get("Name") != original_resource.properties.get("Name")
        if is_renamed or old.get("AutoScalingGroupArn") != new.get("AutoScalingGroupArn"):
            if new_resource_name == original_resource.name:
                raise Refused(
                    "CloudFormation cannot update a stack when a custom-named resource requires replacing. Rename "
                    f"{new_resource_name} and update the stack again."
                )
            return cls.create_from_cloudformation_json(new_resource_name, cloudformation_json, account_id, region_name)
        ecs_backends[account_id][region_name].update_capacity_provider(original_resource.name, _uncapitalised(new))
        original_resource.properties = properties
        assert isinstance(original_resource, CapacityProvider)
        return original_resource

    def delete(self, account_id: str, region_name: str) -> None:
        backend = ecs_backends[account_id][region_name]
        if self.name in backend.capacity_providers:
            backend.delete_capacity_provider(self.name)


class ClusterCapacityProviderAssociations(OwnModel):
    TYPE = "AWS::ECS::ClusterCapacityProviderAssociations"

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster

    @property
    def physical_resource_id(self) -> str:
        return self.cluster

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        raise UnformattedGetAttTemplateException()

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Document, account_id: str, region_name: str, **kwargs: Any
    ) -> ClusterCapacityProviderAssociations:
        properties = cloudformation_json["Properties"]
        ecs_backends[account_id][region_name].put_cluster_capacity_providers(
            properties["Cluster"],
            properties.get("CapacityProviders", []),
            _uncapitalised(properties["DefaultCapacityProviderStrategy"]),
        )
        return cls(properties["Cluster"])

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> ClusterCapacityProviderAssociations:
        made = cls.create_from_cloudformation_json(new_resource_name, cloudformation_json, account_id, region_name)
        return original_resource if made.cluster == original_resource.cluster else made

    def delete(self, account_id: str, region_name: str) -> None:
        backend = ecs_backends[account_id][region_name]
        if self.cluster.split("/")[-1] in backend.clusters:
            backend.put_cluster_capacity_providers(self.cluster, [], [])


class BucketPolicy(OwnModel):
    TYPE = "AWS::S3::BucketPolicy"

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket

    @property
    def physical_resource_id(self) -> str:
        return self.bucket

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        raise UnformattedGetAttTemplateException()

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Document, account_id: str, region_name: str, **kwargs: Any
    ) -> BucketPolicy:
        properties = cloudformation_json["Properties"]
        policy = properties["PolicyDocument"]
        text = policy if isinstance(policy, str) else json.dumps(policy)
        backend = s3_backends[account_id][get_partition(region_name)]
        backend.put_bucket_policy(properties["Bucket"], text.encode())
        return cls(properties["Bucket"])

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> BucketPolicy:
        made = cls.create_from_cloudformation_json(new_resource_name, cloudformation_json, account_id, region_name)
        return original_resource if made.bucket == original_resource.bucket else made

    def delete(self, account_id: str, region_name: str) -> None:
        backend = s3_backends[account_id][get_partition(region_name)]
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
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Document, account_id: str, region_name: str, **kwargs: Any
    ) -> SubnetRouteTableAssociation:
        properties = cloudformation_json["Properties"]
        backend = ec2_backends[account_id][region_name]
        made = backend.associate_route_table(properties["RouteTableId"], subnet_id=properties["SubnetId"])
        return cls(made)

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> SubnetRouteTableAssociation:
        # A subnet has one table at a time: the old association must go before the new one comes.
        original_resource.delete(account_id, region_name)
        made = cls.create_from_cloudformation_json(new_resource_name, cloudformation_json, account_id, region_name)
        original_resource.association_id = made.association_id
        assert isinstance(original_resource, SubnetRouteTableAssociation)
        return original_resource

    def delete(self, account_id: str, region_name: str) -> None:
        ec2_backends[account_id][region_name].disassociate_route_table(self.association_id)


MODELS: tuple[type[OwnModel], ...] = (
    CapacityProvider,
    ClusterCapacityProviderAssociations,
    BucketPolicy,
    SubnetRouteTableAssociation,
)


def _uncapitalised(value: Any) -> Any:
    """`AutoScalingGroupArn` -> `autoScalingGroupArn`, all the way down."""
    if isinstance(value, list):
        return [_uncapitalised(item) for item in value]
    if isinstance(value, Mapping):
        return {key[0].lower() + key[1:]: _uncapitalised(item) for key, item in value.items()}
    return value
