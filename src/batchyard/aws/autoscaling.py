"""EC2 Auto Scaling: groups and their activities. One call per method."""

from __future__ import annotations

from typing import Any

from batchyard.aws.session import AwsSession, naming_errors

_MAX_PAGE = 100


class AutoScaling:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def groups(self, token: str = "") -> tuple[list[Any], str]:
        """Return a page of the region's groups, and the token of the next page, or ""."""
        next_token = {"NextToken": token} if token else {}
        with naming_errors("list the Auto Scaling groups"):
            answer = self._session.client("autoscaling").describe_auto_scaling_groups(
                MaxRecords=_MAX_PAGE, **next_token
            )
        return list(answer["AutoScalingGroups"]), str(answer.get("NextToken", ""))

    def group(self, name: str) -> Any | None:
        """Return a group; None if there is none of this name."""
        with naming_errors(f"describe the Auto Scaling group {name}"):
            answer = self._session.client("autoscaling").describe_auto_scaling_groups(
                AutoScalingGroupNames=[name]
            )
        return next(iter(answer["AutoScalingGroups"]), None)

    def activities(self, group: str) -> list[Any]:
        """Return the latest activities of a group, newest first."""
        with naming_errors(f"list the activities of {group}"):
            answer = self._session.client("autoscaling").describe_scaling_activities(
                AutoScalingGroupName=group, MaxRecords=_MAX_PAGE
            )
        return list(answer["Activities"])
