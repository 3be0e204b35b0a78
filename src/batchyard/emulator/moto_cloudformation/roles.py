"""Roles of stacks. moto keeps their own policies as Python's text, attaches no others, and updates neither."""

from __future__ import annotations

import json
from typing import Any

from moto.iam.models import Role, iam_backends
from moto.utilities.utils import get_partition

Document = dict[str, Any]


class StackRole(Role):
    """What moto makes, with the rights that the template gives it."""

    @classmethod
    def create_from_cloudformation_json(  # type: ignore[misc]
        cls,
        resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
        **kwargs: Any,
    ) -> Role:
        made = Role.create_from_cloudformation_json(
            resource_name, cloudformation_json, account_id, region_name, **kwargs
        )
        _give(made, cloudformation_json["Properties"], account_id, region_name)
        return made

    @classmethod
    def update_from_cloudformation_json(  # type: ignore[misc]
        cls,
        original_resource: Role,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> Role:
        properties = cloudformation_json["Properties"]
        original_resource.description = properties.get("Description", "")
        original_resource.max_session_duration = properties.get("MaxSessionDuration", 3600)
        original_resource.permissions_boundary_arn = properties.get("PermissionsBoundary", "")
        original_resource.assume_role_policy_document = _text(
            properties["AssumeRolePolicyDocument"]
        )
        _give(original_resource, properties, account_id, region_name)
        return original_resource

    @classmethod
    def delete_from_cloudformation_json(  # type: ignore[misc]
        cls, resource_name: str, cloudformation_json: Document, account_id: str, region_name: str
    ) -> None:
        backend = iam_backends[account_id][get_partition(region_name)]
        # What somebody else has attached keeps the role, as on AWS.
        attached = backend.get_role(resource_name).managed_policies
        for arn in set(cloudformation_json["Properties"].get("ManagedPolicyArns", [])) & set(
            attached
        ):
            backend.detach_role_policy(arn, resource_name)
        Role.delete_from_cloudformation_json(
            resource_name, cloudformation_json, account_id, region_name
        )


def _give(role: Role, properties: Document, account_id: str, region_name: str) -> None:
    """Its own policies and the attached ones are those of the template, and no others."""
    role.policies.clear()
    for policy in properties.get("Policies", []):
        role.put_policy(policy["PolicyName"], _text(policy["PolicyDocument"]))
    backend = iam_backends[account_id][get_partition(region_name)]
    for arn in list(role.managed_policies):
        backend.detach_role_policy(arn, role.name)
    for arn in properties.get("ManagedPolicyArns", []):
        backend.attach_role_policy(arn, role.name)


def _text(document: Any) -> str:
    return document if isinstance(document, str) else json.dumps(document)
