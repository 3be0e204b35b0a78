"""The instances of compute environments in moto's EC2, where DescribeInstances shows them.

They are brought up to date before each request to EC2, so that a job does not wait for moto.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from batchyard.emulator import names
from batchyard.emulator.hosts import Instance

if TYPE_CHECKING:
    from moto.ec2.models.instances import Instance as MotoInstance

_ENDED = ("shutting-down", "terminated")
_MAX_OLD_RESERVATIONS = 200
_SPOT_END = "Server.SpotInstanceTermination"


class MotoInstances:
    """The instances of one region."""

    def __init__(self, region: str) -> None:
        self._region = region
        #: Id of an instance -> the instance in moto, and the id of its reservation there.
        self._by_id: dict[str, tuple[MotoInstance, str]] = {}
        #: Ids of the reservations in moto whose instances are not in ``_by_id`` any more.
        self._old_reservations: deque[str] = deque()

    def show(self, instances: Iterable[Instance]) -> None:
        """Make EC2 show these instances as they are.

        All others ended some time ago, or with their environment. The last of them are still shown.
        """
        current = {instance.instance_id: instance for instance in instances}
        for instance_id in self._by_id.keys() - current.keys():
            moto_instance, reservation_id = self._by_id.pop(instance_id)
            if moto_instance.state not in _ENDED:
                moto_instance.terminate()
            self._old_reservations.append(reservation_id)
        while len(self._old_reservations) > _MAX_OLD_RESERVATIONS:
            self._reservations().pop(self._old_reservations.popleft(), None)
        for instance in current.values():
            moto_entry = self._by_id.get(instance.instance_id) or self._add(instance)
            if moto_entry is None:
                continue
            self._by_id[instance.instance_id] = moto_entry
            if instance.ended_s is not None and moto_entry[0].state not in _ENDED:
                _end(moto_entry[0], instance, instance.ended_s)

    def ended_ids(self) -> list[str]:
        """Return the instances that have ended, also those that a user has terminated."""
        return [
            instance_id
            for instance_id, (moto_instance, _) in self._by_id.items()
            if moto_instance.state in _ENDED
        ]

    def _reservations(self) -> dict[str, Any]:
        from moto.ec2.models import ec2_backends

        reservations: dict[str, Any] = ec2_backends[names.ACCOUNT_ID][self._region].reservations
        return reservations

    def _add(self, instance: Instance) -> tuple[MotoInstance, str] | None:
        """Add an instance to moto; return None if moto has no subnet or no region for it."""
        from moto.ec2.exceptions import EC2ClientError
        from moto.ec2.models import ec2_backends
        from moto.ec2.models.instances import Instance as MotoInstance
        from moto.ec2.models.instances import Reservation
        from moto.ec2.utils import random_reservation_id

        placement: dict[str, Any] = {"placement": instance.zone}
        try:
            backend = ec2_backends[names.ACCOUNT_ID][self._region]
            if any(instance.subnet in subnets for subnets in backend.subnets.values()):
                placement = {"subnet_id": instance.subnet}
            moto_instance = MotoInstance(  # type: ignore[abstract]
                backend,
                f"ami-0{names.ACCOUNT_ID}",
                None,
                [],
                instance_type=instance.type_name,
                region_name=self._region,
                lifecycle="spot" if instance.is_spot else None,
                **placement,
            )
        except (EC2ClientError, KeyError):
            return None
        moto_instance.id = instance.instance_id
        launched = datetime.fromtimestamp(instance.launched_s, UTC)
        moto_instance.launch_time = launched.replace(tzinfo=None)
        moto_instance.add_tags({"AWSBatchServiceTag": "batch", **_tags(instance)})
        reservation = Reservation(random_reservation_id(), names.ACCOUNT_ID)
        reservation.instances = [moto_instance]
        backend.reservations[reservation.id] = reservation
        return moto_instance, reservation.id


def _end(moto_instance: MotoInstance, instance: Instance, ended_s: float) -> None:
    """End an instance in moto, with the time and the reason of its end."""
    from moto.ec2.models.instances import StateReason

    moto_instance.terminate()
    actor = "Service" if instance.was_reclaimed else "User"
    ended = datetime.fromtimestamp(ended_s, UTC)
    moto_instance._reason = f"{actor} initiated ({ended:%Y-%m-%d %H:%M:%S} GMT)"
    if instance.was_reclaimed:
        moto_instance.state_reason = StateReason(
            f"{_SPOT_END}: Spot instance termination", _SPOT_END
        )


def _tags(instance: Instance) -> dict[str, str]:
    tags: dict[str, str] = instance.environment.get("computeResources", {}).get("tags", {})
    return tags
