"""IAM: instance profiles, roles, and what they may do. Every method is one call; AWS's own shapes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchyard.aws.session import AwsSession, naming_errors


class Iam:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def instance_profile(self, name: str) -> Any:
        with naming_errors(f"ask about the instance profile {name}"):
            return self._session.client("iam").get_instance_profile(InstanceProfileName=name)[
                "InstanceProfile"
            ]

    def denied_actions(self, role_arn: str, actions: Sequence[str]) -> list[str]:
        """Those of the actions that the role may not do."""
        with naming_errors("ask what the role may do"):
            answer = self._session.client("iam").simulate_principal_policy(
                PolicySourceArn=role_arn, ActionNames=list(actions)
            )
        return [
            one["EvalActionName"]
            for one in answer["EvaluationResults"]
            if one["EvalDecision"] != "allowed"
        ]

    def attached_policies(self, role: str) -> list[str]:
        """The ARNs of the managed policies of a role."""
        with naming_errors(f"ask about the policies of {role}"):
            answer = self._session.client("iam").list_attached_role_policies(RoleName=role)
        return [policy["PolicyArn"] for policy in answer["AttachedPolicies"]]

    def service_linked_roles(self) -> list[str]:
        """Their names."""
        with naming_errors("list the service-linked roles"):
            answer = self._session.client("iam").list_roles(
                PathPrefix="/aws-service-role/", MaxItems=1000
            )
        return [role["RoleName"] for role in answer["Roles"]]
