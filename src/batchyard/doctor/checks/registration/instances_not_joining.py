"""BY038: instances were launched and did not join the cluster in time."""

from __future__ import annotations

from batchyard.doctor.checks.base import check_environments
from batchyard.doctor.facts import Environment, Facts, require
from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.units import format_duration

KIND = Kind("BY038", Severity.ERROR, 86, "instances join the cluster in time")
#: the longest time that an instance needs from its launch to its registration
MAX_JOIN_S = 10 * 60
_MAX_INSTANCES_LISTED = 3


@check_environments(KIND)
def check(environment: Environment, facts: Facts) -> Findings:
    now_ms = facts.taken_ms
    instances = require(environment.instances)
    host_ids = {host.instance_id for host in require(environment.hosts)}
    late = [
        (instance, (now_ms - instance.launched_ms) / 1000)
        for instance in instances
        if instance.id not in host_ids
        and instance.launched_ms is not None
        and now_ms - instance.launched_ms > MAX_JOIN_S * 1000
    ]
    if not late:
        return
    yield Finding(
        KIND,
        f"instances of {environment.name} were launched and did not join the cluster",
        (
            f"{len(late)} of {len(instances)} instances, {len(host_ids)} hosts",
            *(
                f"{instance.id} ({instance.type}) launched {format_duration(age_s)} ago"
                for instance, age_s in late[:_MAX_INSTANCES_LISTED]
            ),
        ),
        (
            f"aws ec2 get-console-output --latest --output text --instance-id {late[0][0].id}",
            "batchyard doctor host"
            "   # on it: names a deadlock of user data, a dead agent, no metadata service",
        ),
    )
