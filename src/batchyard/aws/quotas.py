"""Service quotas. One call per method."""

from __future__ import annotations

from typing import Any

from batchyard.aws.session import AwsSession, naming_errors


class Quotas:
    def __init__(self, session: AwsSession) -> None:
        self._session = session

    def ec2(self, code: str) -> Any:
        """Return a quota of EC2 by its code, such as L-1216C47A."""
        with naming_errors(f"read the quota {code}"):
            return self._session.client("service-quotas").get_service_quota(
                ServiceCode="ec2", QuotaCode=code
            )["Quota"]
