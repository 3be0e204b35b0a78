"""EC2 Auto Scaling: the groups that AWS Batch keeps, and what they tried. Every method is one call."""

from __future__ import annotations

from typing import Any

from batchyard.aws.session import AwsSession, naming_errors

_MOST_AT_ONCE = 100


class AutoScaling:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def groups(self, token: str = "") -> tuple[list[Any], str]:
        """A page of the region's groups, and the token of the next page; empty after the last."""
        more = {"NextToken": token} if token else {}
        with naming_errors("list the Auto Scaling groups"):
            answer = self._session.client("autoscaling").describe_auto_scaling_groups(
                MaxRecords=_MOST_AT_ONCE, **more
            )
        return list(answer["AutoScalingGroups"]), str(answer.get("NextToken", ""))

    def activities(self, group: str) -> list[Any]:
        """The latest, newest first."""
        with naming_errors(f"ask what {group} did"):
            answer = self._session.client("autoscaling").describe_scaling_activities(
                AutoScalingGroupName=group, MaxRecords=_MOST_AT_ONCE
            )
        return list(answer["Activities"])
