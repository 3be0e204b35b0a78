"""The EC2 instances behind the container instances of ECS, on which jobs and tasks run.

ECS and EC2 describe an instance until about an hour after its end, then they forget it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from batchyard.aws.ec2 import Ec2
from batchyard.aws.ecs import MAX_HOSTS, Ecs
from batchyard.aws.session import AccessDeniedError, AwsRefusedError, AwsSession
from batchyard.batch.jobs import Resources
from batchyard.engines.usage import PaidHost, Usage, group_uses, paid_until_s

_ENDED = ("shutting-down", "terminated", "stopping", "stopped")
#: code of EC2's reason for an instance that it has interrupted
_SPOT_END = "Server.SpotInstanceTermination"
#: "User initiated (2026-11-17 10:20:30 GMT)"
_TIME = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
#: statusReason of a job of AWS Batch whose host has ended
_LOST_HOST = re.compile(r"Host EC2 \(instance (i-[0-9a-f]+)\) terminated")


class Hosts(Protocol):
    """Where hosts are looked up."""

    #: sentences about calls that the user may not make
    refusals: dict[str, None]

    def find(self, arns: Iterable[str]) -> dict[str, PaidHost]:
        """Return ARN of a container instance -> its host, of those that ECS knows."""

    def update(self, hosts: Sequence[PaidHost], now_s: float) -> dict[str, PaidHost]:
        """Return id -> the host as EC2 shows it now. Hosts that EC2 has forgotten are left out."""


def update_hosts(usage: Usage, finder: Hosts, now_s: float, *, is_complete: bool) -> Usage:
    """Return the usage with its hosts as EC2 shows them now.

    ``is_complete``: whether all attempts of the run are part of it. Then it is final as soon as
    the run pays for no host any more, and everything could be asked.
    """
    usage = _close_uses(usage) if is_complete else usage
    by_host = group_uses(usage.uses)
    hosts = _drop_placeholders(usage.hosts, by_host.keys())
    open_hosts = [host for host in hosts.values() if _may_change(host)]
    updated = finder.update(open_hosts, now_s) if open_hosts else {}
    for host_id, host in updated.items():
        hosts[host_id] = replace(host, ended_s=host.ended_s or hosts[host_id].ended_s)
    lingers = any(
        paid_until_s(hosts[host_id], by_host.get(host_id, ()), now_s) >= now_s
        for host_id in updated
        if hosts[host_id].ended_s is None
    )
    return replace(
        usage,
        hosts=tuple(hosts.values()),
        seen_s=now_s,
        # Someone with more rights may find out more.
        is_final=is_complete and not lingers and not finder.refusals,
    )


def _close_uses(usage: Usage) -> Usage:
    """Return the usage of a run that is over, without attempts that run.

    AWS has forgotten those that nobody saw ending: they count until the last look at the run.
    """
    return replace(
        usage,
        uses=tuple(
            replace(use, ended_s=max(use.started_s, usage.seen_s)) if use.ended_s is None else use
            for use in usage.uses
        ),
    )


def _drop_placeholders(hosts: Iterable[PaidHost], used_ids: Container[str]) -> dict[str, PaidHost]:
    """Return the hosts by id, without container instances whose host was found later."""
    return {
        host.id: host for host in hosts if host.id in used_ids or not host.id.startswith("arn:")
    }


def _may_change(host: PaidHost) -> bool:
    """Return whether EC2 may know more about a host than is recorded."""
    return not host.id.startswith("arn:") and (host.ended_s is None or not host.launched_s)


class HostFinder:
    """Looks up hosts: a call of ECS for a hundred new ones, two of EC2 for two hundred."""

    def __init__(self, session: AwsSession) -> None:
        self._ecs = Ecs(session)
        self._ec2 = Ec2(session)
        #: sentences about calls that the user may not make
        self.refusals: dict[str, None] = {}

    def find(self, arns: Iterable[str]) -> dict[str, PaidHost]:
        """Return ARN of a container instance -> its host, of those that ECS knows."""
        by_cluster: dict[str, list[str]] = {}
        for arn in arns:
            by_cluster.setdefault(cluster_of(arn), []).append(arn)
        hosts: dict[str, PaidHost] = {}
        for cluster, members in by_cluster.items():
            for first in range(0, len(members), MAX_HOSTS):
                for document in self._describe(cluster, members[first : first + MAX_HOSTS]):
                    hosts[document["containerInstanceArn"]] = read_container_instance(document)
        return hosts

    def _describe(self, cluster: str, arns: Sequence[str]) -> list[Any]:
        # A cluster is deleted with its compute environment.
        try:
            return self._ecs.hosts(cluster, [arn.rpartition("/")[2] for arn in arns])
        except AccessDeniedError as exc:
            self.refusals[f"hosts of children: {exc.message}"] = None
        except AwsRefusedError:
            pass
        return []

    def update(self, hosts: Sequence[PaidHost], now_s: float) -> dict[str, PaidHost]:
        """Return id -> the host as EC2 shows it now. Hosts that EC2 has forgotten are left out."""
        by_id = {host.id: host for host in hosts}
        try:
            documents = self._ec2.instances(list(by_id))
        except (AccessDeniedError, AwsRefusedError) as exc:
            self.refusals[f"launch and end of hosts: {exc.message}"] = None
            return {}
        documents = [document for document in documents if document["InstanceId"] in by_id]
        disks = self._find_disks(
            [entry for entry in documents if not by_id[entry["InstanceId"]].disks]
        )
        return {
            host_id: read_instance(by_id[host_id], document, now_s, disks.get(host_id, ()))
            for document in documents
            for host_id in [document["InstanceId"]]
        }

    def _find_disks(
        self, documents: Sequence[Mapping[str, Any]]
    ) -> dict[str, tuple[tuple[str, int], ...]]:
        """Return id of an instance -> its EBS volumes, of instances that have not ended."""
        ids = {
            mapping["Ebs"]["VolumeId"]: document["InstanceId"]
            for document in documents
            for mapping in document.get("BlockDeviceMappings", ())
            if "VolumeId" in mapping.get("Ebs", {})
        }
        disks: dict[str, tuple[tuple[str, int], ...]] = {}
        # A bill without disks says so; it is no reason to ask for more rights.
        with suppress(AccessDeniedError, AwsRefusedError):
            for volume in self._ec2.volumes(list(ids)) if ids else ():
                host_id = ids[volume["VolumeId"]]
                disks[host_id] = (*disks.get(host_id, ()), (volume["VolumeType"], volume["Size"]))
        return disks


def cluster_of(arn: str) -> str:
    """Return the cluster in the ARN of a container instance."""
    return arn.rpartition(":")[2].split("/")[1]


def lost_instance(status_reason: str) -> str:
    """Return the id of the instance whose end ended an attempt; empty for any other reason."""
    match = _LOST_HOST.search(status_reason)
    return match[1] if match else ""


def read_container_instance(document: Mapping[str, Any]) -> PaidHost:
    """Return the host of ECS's description, without its launch and its market."""
    attributes = {entry["name"]: entry.get("value", "") for entry in document["attributes"]}
    return PaidHost(
        id=str(document.get("ec2InstanceId", "")),
        type=str(attributes.get("ecs.instance-type", "")),
        zone=str(attributes.get("ecs.availability-zone", "")),
        capacity=_read_resources(document["registeredResources"]),
    )


def _read_resources(entries: Iterable[Mapping[str, Any]]) -> Resources:
    amounts = {entry["name"]: entry for entry in entries}
    return Resources(
        vcpus=amounts["CPU"]["integerValue"] // 1024,
        memory_mib=amounts["MEMORY"]["integerValue"],
        gpus=len(amounts.get("GPU", {}).get("stringSetValue", ())),
    )


def read_instance(
    host: PaidHost,
    document: Mapping[str, Any],
    now_s: float,
    disks: tuple[tuple[str, int], ...] = (),
) -> PaidHost:
    """Return the host with what EC2's description of it, and of its disks, adds."""
    is_over = document["State"]["Name"] in _ENDED
    is_spot = document.get("InstanceLifecycle") == "spot"
    reason = document.get("StateReason", {}).get("Code", "")
    was_reclaimed = reason == _SPOT_END if is_over and reason else host.was_reclaimed
    return replace(
        host,
        type=host.type or document["InstanceType"],
        zone=host.zone or document.get("Placement", {}).get("AvailabilityZone", ""),
        is_spot=is_spot,
        launched_s=document["LaunchTime"].timestamp(),
        ended_s=_read_end_s(document, now_s) if is_over else None,
        was_reclaimed=is_spot and was_reclaimed,
        has_public_address=host.has_public_address or bool(document.get("PublicIpAddress")),
        disks=disks or host.disks,
    )


def _read_end_s(document: Mapping[str, Any], now_s: float) -> float:
    match = _TIME.search(document.get("StateTransitionReason", ""))
    if match:
        with suppress(ValueError):
            ended = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S")
            return ended.replace(tzinfo=UTC).timestamp()
    return now_s
