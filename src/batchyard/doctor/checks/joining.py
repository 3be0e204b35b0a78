"""Whether launched instances become hosts: profile, agent, registration, log drivers, user data. Pure."""

from __future__ import annotations

from batchyard.doctor.checks.common import (
    Found,
    Setting,
    each,
    each_template,
    environments,
    hosted,
    is_over,
    job_of,
    named,
)
from batchyard.doctor.checks.kinds import (
    AGENT_DISCONNECTED,
    AWSLOGS_DRIVER_MISSING,
    INSTANCE_PROFILE_UNUSABLE,
    INSTANCE_ROLE_TOO_WEAK,
    INSTANCES_NOT_JOINING,
)
from batchyard.doctor.facts import Environment, Facts, LaunchTemplate, Missing, known
from batchyard.doctor.finding import Finding
from batchyard.doctor.userdata.examine import examine
from batchyard.units import show_duration

#: what an instance needs from its launch to its registration, at most
JOIN_S = 10 * 60
ECS_POLICY = "arn:aws:iam::aws:policy/service-role/AmazonEC2ContainerServiceforEC2Role"


def profile_exists(facts: Facts, setting: Setting) -> Found:
    if is_over(facts) or not hosted(facts):
        return None

    def look(environment: Environment) -> list[Finding]:
        if environment.profile is None:
            name, what = "none", "it names none"
        else:
            profile = known(environment.profile)
            if profile.exists and profile.role:
                return []
            name, what = profile.name, "it has no role" if profile.exists else "it does not exist"
        return [
            Finding(
                INSTANCE_PROFILE_UNUSABLE,
                f"the instance profile of {environment.name} cannot be used: {what}",
                (f"instanceRole {name}",),
                (
                    "aws iam create-instance-profile --instance-profile-name NAME",
                    "aws iam add-role-to-instance-profile --instance-profile-name NAME --role-name ROLE",
                ),
                f"compute environment {environment.name}",
            )
        ]

    return each(hosted(facts), look)


def profile_rights(facts: Facts, setting: Setting) -> Found:
    these = [] if is_over(facts) else [e for e in hosted(facts) if e.profile is not None]
    if not these:
        return None

    def look(environment: Environment) -> list[Finding]:
        profile = known(environment.profile or Missing())
        denied = known(profile.denied)
        if not denied:
            return []
        return [
            Finding(
                INSTANCE_ROLE_TOO_WEAK,
                f"the role of {environment.name}'s instances may not do what the ECS agent does",
                (f"refused to {profile.role or profile.name}: {named(denied)}",),
                (
                    f"aws iam attach-role-policy --role-name {profile.role or 'ROLE'} --policy-arn {ECS_POLICY}",
                ),
                f"compute environment {environment.name}",
            )
        ]

    return each(these, look)


def connected(facts: Facts, setting: Setting) -> Found:
    these = [] if is_over(facts) else [e for e in environments(facts) if not e.is_fargate]
    if not these:
        return None

    def look(environment: Environment) -> list[Finding]:
        hosts = known(environment.hosts)
        lost = [h for h in hosts if not h.is_connected]
        if not lost:
            return []
        return [
            Finding(
                AGENT_DISCONNECTED,
                f"the ECS agent of {len(lost)} of {len(hosts)} hosts of {environment.name} is not connected",
                tuple(f"{h.instance_id} ({h.type}): agentConnected false" for h in lost[:4]),
                ("batchyard doctor host   # on such an instance: is Docker alive, is the agent?",),
                f"compute environment {environment.name}",
            )
        ]

    return each(these, look)


def joined(facts: Facts, setting: Setting) -> Found:
    """Instances that had time to join, and did not."""
    if is_over(facts) or not hosted(facts):
        return None

    def look(environment: Environment) -> list[Finding]:
        instances = known(environment.instances)
        members = {h.instance_id for h in known(environment.hosts)}
        late = [
            (i, (facts.taken_ms - i.launched_ms) / 1000)
            for i in instances
            if i.id not in members
            and i.launched_ms is not None
            and facts.taken_ms - i.launched_ms > JOIN_S * 1000
        ]
        if not late:
            return []
        return [
            Finding(
                INSTANCES_NOT_JOINING,
                f"instances of {environment.name} were launched and did not join the cluster",
                (
                    f"{len(late)} of {len(instances)} instances, {len(members)} hosts",
                    *(
                        f"{i.id} ({i.type}) launched {show_duration(age_s)} ago"
                        for i, age_s in late[:3]
                    ),
                ),
                (
                    f"aws ec2 get-console-output --latest --output text --instance-id {late[0][0].id}",
                    "batchyard doctor host   # on it: names a deadlock of user data, a dead agent, no metadata service",
                ),
                f"compute environment {environment.name}",
            )
        ]

    return each(hosted(facts), look)


def log_driver(facts: Facts, setting: Setting) -> Found:
    job = job_of(facts)
    these = [] if is_over(facts) else [e for e in environments(facts) if not e.is_fargate]
    if not these or (job is not None and job.log_driver not in ("", "awslogs")):
        return None

    def look(environment: Environment) -> list[Finding]:
        without = [h.instance_id for h in known(environment.hosts) if not h.has_awslogs]
        if not without:
            return []
        return [
            Finding(
                AWSLOGS_DRIVER_MISSING,
                f"hosts of {environment.name} lack the awslogs driver: no job that logs to CloudWatch is placed there",
                (f"{len(without)} hosts without it: {named(without)}",),
                (
                    'in the image or user data: echo \'ECS_AVAILABLE_LOGGING_DRIVERS=["json-file","awslogs"]\' '
                    ">> /etc/ecs/ecs.config",
                ),
                f"compute environment {environment.name}",
            )
        ]

    return each(these, look)


def user_data(facts: Facts, setting: Setting) -> Found:
    """What the launch template runs at boot, examined as `doctor userdata` does."""

    def look(environment: Environment, template: LaunchTemplate) -> list[Finding]:
        if not template.user_data:
            return []
        data = template.user_data.encode("utf-8", "replace")
        return list(
            examine(data, f"user data of {template.id}", size=template.user_data_bytes).findings
        )

    return each_template([] if is_over(facts) else hosted(facts), look)
