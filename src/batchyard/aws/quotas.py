"""Service quotas: one method, one call."""

from __future__ import annotations

from typing import Any

from batchyard.aws.door import Door, told


class Quotas:
    def __init__(self, door: Door) -> None:
        self._door = door

    def ec2(self, code: str) -> Any:
        """A quota of EC2 by its code, like L-1216C47A."""
        with told(f"ask about the quota {code}"):
            return self._door.client("service-quotas").get_service_quota(
                ServiceCode="ec2", QuotaCode=code
            )["Quota"]
