"""IAM: instance profiles, roles and their permissions. One call per method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchyard.aws.cloudformation import naming_admin_errors
from batchyard.aws.session import AwsRefusedError, AwsSession, naming_errors


class Iam:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def instance_profile(self, name: str) -> Any:
        with naming_errors(f"describe the instance profile {name}"):
            return self._session.client("iam").get_instance_profile(InstanceProfileName=name)[
                "InstanceProfile"
            ]

    def denied_actions(self, role_arn: str, actions: Sequence[str]) -> list[str]:
        """Return the actions that the role does not allow."""
        with naming_errors("simulate the policies of the role"):
            answer = self._session.client("iam").simulate_principal_policy(
                PolicySourceArn=role_arn, ActionNames=list(actions)
            )
        return [
            evaluation["EvalActionName"]
            for evaluation in answer["EvaluationResults"]
            if evaluation["EvalDecision"] != "allowed"
        ]

    def attached_policies(self, role: str) -> list[str]:
        """Return the ARNs of the managed policies of a role."""
        with naming_errors(f"list the policies of {role}"):
            answer = self._session.client("iam").list_attached_role_policies(RoleName=role)
        return [policy["PolicyArn"] for policy in answer["AttachedPolicies"]]

    def service_linked_roles(self) -> list[str]:
        """Return the names of the service-linked roles of the account."""
        with naming_errors("list the service-linked roles"):
            answer = self._session.client("iam").list_roles(
                PathPrefix="/aws-service-role/", MaxItems=1000
            )
        return [role["RoleName"] for role in answer["Roles"]]

    def create_service_linked_role(self, service: str) -> bool:
        """Create the role that a service of AWS has for itself; return False if it exists."""
        try:
            with naming_admin_errors(f"create the service-linked role of {service}", "iam"):
                self._session.client("iam").create_service_linked_role(AWSServiceName=service)
        except AwsRefusedError as exc:
            if "has been taken" in exc.message or exc.code == "EntityAlreadyExists":
                return False
            raise
        return True
