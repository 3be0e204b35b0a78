"""Gathering from a stand-in for AWS: the calls made, what refusals become, the limit of calls."""

from __future__ import annotations

import base64
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from batchyard.aws import ecs
from batchyard.doctor import facts_json
from batchyard.doctor.facts import (
    MAX_HOSTS,
    Environment,
    Facts,
    Host,
    Instance,
    Job,
    LaunchTemplate,
    Missing,
    Profile,
    Quota,
    SpotPrice,
)
from batchyard.doctor.finding import Report
from batchyard.doctor.gather.subjects import MAX_CALLS, Gatherer, is_absent
from batchyard.doctor.judge import judge
from batchyard.ec2_prices import Prices, load_prices

NOW = 1_700_000_000_000
LAUNCHED = datetime.fromtimestamp(NOW / 1000 - 3600, UTC)
ECS_POLICY = "arn:aws:iam::aws:policy/service-role/AmazonEC2ContainerServiceforEC2Role"
UUID = "0a95f22d-7108-3c4e-99f7-2fd92e1a8941"
ACCOUNT = "111122223333"


def arn(service: str, rest: str) -> str:
    return f"arn:aws:{service}:eu-west-1:{ACCOUNT}:{rest}"


USER_DATA = (
    'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n--B\n'
    'Content-Type: text/x-shellscript; charset="us-ascii"\n\n#!/bin/bash\necho hello\n\n--B--\n'
)

#: a healthy queue with a job that has waited for ten minutes: operation -> answer
HEALTHY: dict[str, Any] = {
    "describe_jobs": {
        "jobs": [
            {
                "jobId": "j",
                "jobName": "recon",
                "jobQueue": arn("batch", "job-queue/gpu"),
                "status": "RUNNABLE",
                "createdAt": NOW - 600_000,
                "container": {
                    "image": "recon:latest",
                    "resourceRequirements": [
                        {"type": "VCPU", "value": "4"},
                        {"type": "MEMORY", "value": "14336"},
                        {"type": "GPU", "value": "1"},
                    ],
                },
                "platformCapabilities": ["EC2"],
                "consumableResourceProperties": {
                    "consumableResourceList": [{"consumableResource": "licence", "quantity": 1}]
                },
            }
        ]
    },
    "describe_job_queues": {
        "jobQueues": [
            {
                "jobQueueName": "gpu",
                "jobQueueArn": arn("batch", "job-queue/gpu"),
                "state": "ENABLED",
                "status": "VALID",
                "schedulingPolicyArn": arn("batch", "scheduling-policy/fair"),
                "computeEnvironmentOrder": [
                    {"order": 1, "computeEnvironment": arn("batch", "compute-environment/spot")},
                    {"order": 2, "computeEnvironment": arn("batch", "compute-environment/od")},
                ],
            }
        ]
    },
    "describe_compute_environments": {
        "computeEnvironments": [
            {
                "computeEnvironmentName": name,
                "type": "MANAGED",
                "state": "ENABLED",
                "status": "VALID",
                "ecsClusterArn": arn("ecs", f"cluster/AWSBatch-{name}-{UUID}"),
                "computeResources": {
                    "type": kind,
                    "allocationStrategy": strategy,
                    "maxvCpus": 64,
                    "desiredvCpus": 4,
                    "instanceTypes": ["g5.xlarge", "g6.xlarge"],
                    "ec2Configuration": [{"imageType": "ECS_AL2023_NVIDIA"}],
                    "subnets": ["subnet-a"],
                    "securityGroupIds": ["sg-1"],
                    "instanceRole": f"arn:aws:iam::{ACCOUNT}:instance-profile/nodes",
                    "launchTemplate": {"launchTemplateId": "lt-1"},
                },
            }
            # in another order than the queue's
            for name, kind, strategy in (
                ("od", "EC2", "BEST_FIT_PROGRESSIVE"),
                ("spot", "SPOT", "SPOT_PRICE_CAPACITY_OPTIMIZED"),
            )
        ]
    },
    "get_job_queue_snapshot": {
        "frontOfQueue": {
            "jobs": [{"jobArn": arn("batch", "job/j"), "earliestTimeAtPosition": NOW - 500_000}]
        },
        "queueUtilization": {
            "totalCapacityUsage": [{"capacityUnit": "VCPU", "quantity": 8.0}],
            "fairshareUtilization": {"topCapacityUtilization": [{"shareIdentifier": "a"}]},
        },
    },
    "describe_scheduling_policies": {
        "schedulingPolicies": [{"fairsharePolicy": {"computeReservation": 50}}]
    },
    "describe_consumable_resource": {
        "consumableResourceName": "licence",
        "totalQuantity": 4,
        "inUseQuantity": 1,
        "availableQuantity": 3,
    },
    "describe_launch_template_versions": {
        "LaunchTemplateVersions": [
            {
                "LaunchTemplateId": "lt-1",
                "VersionNumber": 3,
                "LaunchTemplateData": {"UserData": base64.b64encode(USER_DATA.encode()).decode()},
            }
        ]
    },
    "get_instance_profile": {
        "InstanceProfile": {
            "Roles": [{"RoleName": "nodes", "Arn": f"arn:aws:iam::{ACCOUNT}:role/nodes"}]
        }
    },
    "simulate_principal_policy": {
        "EvaluationResults": [{"EvalActionName": "ecs:Poll", "EvalDecision": "allowed"}]
    },
    "list_attached_role_policies": {"AttachedPolicies": [{"PolicyArn": ECS_POLICY}]},
    "list_roles": {"Roles": [{"RoleName": "AWSServiceRoleForEC2Spot"}]},
    "describe_auto_scaling_groups": {
        "AutoScalingGroups": [
            {
                "AutoScalingGroupName": f"AWSBatch-{name}-asg-{UUID}",
                "Instances": [
                    {
                        "InstanceId": f"i-{name}",
                        "InstanceType": "g5.xlarge",
                        "AvailabilityZone": "z1",
                    }
                ],
            }
            for name in ("od", "spot", "od-other")
        ]
    },
    "describe_scaling_activities": {
        "Activities": [{"StatusCode": "Successful", "Description": "Launching a new EC2"}]
    },
    "list_container_instances": {"containerInstanceArns": ["arn:1"]},
    "describe_container_instances": {
        "containerInstances": [
            {
                "ec2InstanceId": "i-od",
                "agentConnected": True,
                "attributes": [
                    {"name": "ecs.instance-type", "value": "g5.xlarge"},
                    {"name": "com.amazonaws.ecs.capability.logging-driver.awslogs"},
                ],
                "registeredResources": [
                    {"name": "CPU", "integerValue": 4096},
                    {"name": "MEMORY", "integerValue": 15384},
                    {"name": "GPU", "stringSetValue": ["GPU-1"]},
                ],
            }
        ]
    },
    "describe_instances": {
        "Reservations": [
            {
                "Instances": [
                    {
                        "InstanceId": "i-od",
                        "InstanceType": "g5.xlarge",
                        "Placement": {"AvailabilityZone": "z1"},
                        "LaunchTime": LAUNCHED,
                    }
                ]
            }
        ]
    },
    "describe_instance_type_offerings": {
        "InstanceTypeOfferings": [{"InstanceType": "g5.xlarge", "Location": "z1"}]
    },
    "describe_subnets": {
        "Subnets": [
            {
                "SubnetId": "subnet-a",
                "VpcId": "vpc-1",
                "AvailabilityZone": "z1",
                "AvailableIpAddressCount": 200,
            }
        ]
    },
    "describe_route_tables": {
        "RouteTables": [
            {
                "VpcId": "vpc-1",
                "Associations": [{"Main": True}],
                "Routes": [
                    {
                        "DestinationCidrBlock": "0.0.0.0/0",
                        "NatGatewayId": "nat-1",
                        "State": "active",
                    }
                ],
            }
        ]
    },
    "describe_vpc_endpoints": {"VpcEndpoints": []},
    "describe_network_acls": {"NetworkAcls": []},
    "describe_security_groups": {
        "SecurityGroups": [
            {
                "GroupId": "sg-1",
                "IpPermissionsEgress": [
                    {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
                ],
            }
        ]
    },
    "get_service_quota": {
        "Quota": {"Value": 64.0, "QuotaName": "Running On-Demand G and VT instances"}
    },
    "describe_spot_price_history": {"SpotPriceHistory": []},
    "describe_instance_types": {"InstanceTypes": []},
    "describe_spot_fleet_requests": {"SpotFleetRequestConfigs": []},
    "describe_tasks": {"tasks": [{"createdAt": datetime.fromtimestamp(NOW / 1000 - 120, UTC)}]},
}

Trouble = Callable[[str], Exception]


class StandIn:
    """A session to an AWS with these answers, and trouble with some operations."""

    region = "eu-west-1"

    def __init__(self, answers: dict[str, Any] | None = None, **trouble: Trouble) -> None:
        self.answers = {**HEALTHY, **(answers or {})}
        self.trouble = trouble
        self.made: list[str] = []

    def client(self, service: str, *, repeats: bool = True) -> StandIn:
        return self

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        if operation not in self.answers:
            raise AttributeError(operation)

        def call(**request: Any) -> Any:
            self.made.append(operation)
            if operation in self.trouble:
                raise self.trouble[operation](operation)
            answer = self.answers[operation]
            return answer(request) if callable(answer) else deepcopy(answer)

        return call


def error(code: str, status: int = 400) -> Trouble:
    response = {
        "Error": {"Code": code, "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return lambda operation: ClientError(response, operation.title().replace("_", ""))


denied = error("AccessDeniedException", 403)


def gather(aws: StandIn, max_calls: int = MAX_CALLS) -> Facts:
    gatherer = Gatherer(aws, lambda: NOW, max_calls)  # type: ignore[arg-type]
    facts = gatherer.job("j")
    assert gatherer.calls.count == len(aws.made)
    return facts


def environments(facts: Facts) -> dict[str, Environment]:
    assert isinstance(facts.environments, tuple)
    return {environment.name: environment for environment in facts.environments}


def job_with(**changes: Any) -> dict[str, Any]:
    return {"describe_jobs": {"jobs": [HEALTHY["describe_jobs"]["jobs"][0] | changes]}}


# -- all of it -----------------------------------------------------------------------------------


def test_a_healthy_queue_has_no_findings_and_nothing_unseen() -> None:
    aws = StandIn()
    report = judge(gather(aws), dwell_s=60)
    assert [finding.id for finding in report.findings] == []
    assert [(u.kind.id, u.reason) for u in report.unseen] == []
    assert len(aws.made) <= MAX_CALLS


def test_the_facts_are_those_of_aws() -> None:
    facts = gather(StandIn())
    assert facts.job == Job(
        "j",
        "RUNNABLE",
        name="recon",
        queue="gpu",
        since_ms=NOW - 600_000,
        vcpus=4,
        memory_mib=14336,
        gpus=1,
        image="recon:latest",
        consumables=facts.job.consumables,  # type: ignore[union-attr]
    )
    assert list(environments(facts)) == ["spot", "od"]  # in the queue's order
    od = environments(facts)["od"]
    assert od.hosts == (Host("i-od", "g5.xlarge", True, 4, 15384, 1, True),)
    assert od.profile == Profile("nodes", role="nodes")
    assert od.instances == (
        Instance("i-od", "g5.xlarge", "z1"),
    )  # it has joined: since when does not matter
    assert facts.subnets[0].default_route == "nat-1"  # type: ignore[index,union-attr]
    assert facts.policy.active_shares == ("a",)  # type: ignore[union-attr]
    assert facts_json.load(facts_json.dump(facts)) == facts


def test_the_profile_that_environments_share_is_asked_about_once() -> None:
    aws = StandIn()
    gather(aws)
    assert (
        aws.made.count("get_instance_profile"),
        aws.made.count("simulate_principal_policy"),
    ) == (1, 1)


def test_the_launch_templates_of_some_types_are_asked_for_too() -> None:
    documents = deepcopy(HEALTHY["describe_compute_environments"])
    for document in documents["computeEnvironments"]:
        override = {
            "launchTemplateName": "bad",
            "version": "$Latest",
            "targetInstanceTypes": ["g6.xlarge"],
        }
        document["computeResources"]["launchTemplate"]["overrides"] = [override]

    def versions(request: dict[str, Any]) -> dict[str, Any]:
        if request.get("LaunchTemplateName") != "bad":
            return deepcopy(HEALTHY["describe_launch_template_versions"])
        assert request["Versions"] == ["$Latest"]
        data = {"UserData": base64.b64encode(b"#!/bin/bash\nsystemctl restart ecs\n").decode()}
        version = {"LaunchTemplateId": "lt-bad", "VersionNumber": 7, "LaunchTemplateData": data}
        return {"LaunchTemplateVersions": [version]}

    aws = StandIn(
        {"describe_compute_environments": documents, "describe_launch_template_versions": versions}
    )
    facts = gather(aws)
    for environment in environments(facts).values():
        assert (
            isinstance(environment.launch_template, LaunchTemplate)
            and environment.launch_template.id == "lt-1"
        )
        assert environment.overrides == (
            LaunchTemplate(
                "lt-bad", "7", "#!/bin/bash\nsystemctl restart ecs\n", target_types=("g6.xlarge",)
            ),
        )
    assert aws.made.count("describe_launch_template_versions") == 2  # the environments share both
    deadlock = next(finding for finding in judge(facts).findings if finding.id == "BY101")
    assert deadlock.place == "user data of lt-bad:2"
    assert deadlock.evidence[-1] == "launch template lt-bad is for g6.xlarge"


def test_a_job_that_is_over_costs_one_call() -> None:
    aws = StandIn(job_with(status="SUCCEEDED"))
    report = judge(gather(aws))
    assert aws.made == ["describe_jobs"]
    assert (report.exit_code, report.findings, report.unseen) == (0, (), ())


# -- refusals ------------------------------------------------------------------------------------

DENIED = [
    ("describe_job_queues", "batch:DescribeJobQueues", "BY002"),
    ("describe_compute_environments", "batch:DescribeComputeEnvironments", "BY004"),
    ("get_job_queue_snapshot", "batch:GetJobQueueSnapshot", "BY011"),
    ("describe_scheduling_policies", "batch:DescribeSchedulingPolicies", "BY045"),
    ("describe_consumable_resource", "batch:DescribeConsumableResource", "BY044"),
    ("describe_launch_template_versions", "ec2:DescribeLaunchTemplateVersions", "BY101"),
    ("get_instance_profile", "iam:GetInstanceProfile", "BY035"),
    ("describe_auto_scaling_groups", "autoscaling:DescribeAutoScalingGroups", "BY026"),
    ("describe_scaling_activities", "autoscaling:DescribeScalingActivities", "BY027"),
    ("list_container_instances", "ecs:ListContainerInstances", "BY037"),
    ("describe_container_instances", "ecs:DescribeContainerInstances", "BY024"),
    ("describe_instances", "ec2:DescribeInstances", "BY038"),
    ("describe_instance_type_offerings", "ec2:DescribeInstanceTypeOfferings", "BY029"),
    ("describe_subnets", "ec2:DescribeSubnets", "BY040"),
    ("describe_route_tables", "ec2:DescribeRouteTables", "BY031"),
    ("describe_network_acls", "ec2:DescribeNetworkAcls", "BY034"),
    ("describe_security_groups", "ec2:DescribeSecurityGroups", "BY033"),
    ("get_service_quota", "servicequotas:GetServiceQuota", "BY025"),
    ("get_service_quota", "servicequotas:GetServiceQuota", "BY058"),
    ("describe_instances", "ec2:DescribeInstances", "BY058"),
]


@pytest.mark.parametrize(("operation", "action", "kind"), DENIED)
def test_what_is_denied_is_said_with_the_action_that_is_missing(
    operation: str, action: str, kind: str
) -> None:
    report = judge(gather(StandIn(**{operation: denied})), dwell_s=60)
    unseen = {u.kind.id: u for u in report.unseen}
    assert (unseen[kind].reason, unseen[kind].action) == ("access denied", action)
    assert kind not in {right.id for right in report.passed}
    assert report.findings == ()
    assert report.exit_code == 0  # the rest was looked at


#: the same cluster, with hosts that nobody launches
UNMANAGED = {
    "describe_compute_environments": {
        "computeEnvironments": [
            {
                "computeEnvironmentName": "od",
                "type": "UNMANAGED",
                "state": "ENABLED",
                "status": "VALID",
                "ecsClusterArn": arn("ecs", f"cluster/AWSBatch-od-{UUID}"),
            }
        ]
    }
}


def shape_at_own_hosts(memory_mib: int, **trouble: Trouble) -> Report:
    """A step that asks for so much, at the queue of the unmanaged environment."""
    step = Job("", "SUBMITTED", name="s", vcpus=4, memory_mib=memory_mib, gpus=1)
    return judge(Gatherer(StandIn(UNMANAGED, **trouble), lambda: NOW).queue("gpu", step))  # type: ignore[arg-type]


def test_what_hosts_of_ones_own_registered_is_compared_with_a_step() -> None:
    assert shape_at_own_hosts(15_384).fits == ("step s fits od: i-od (g5.xlarge)",)
    assert shape_at_own_hosts(15_384).findings == ()
    (found,) = shape_at_own_hosts(15_385).findings
    assert (found.id, found.place) == ("BY015", "step s")
    assert "i-od (g5.xlarge) registers 4 vCPUs, 15,384 MiB, 1 GPUs" in found.evidence


@pytest.mark.parametrize(
    ("operation", "action"),
    [
        ("list_container_instances", "ecs:ListContainerInstances"),
        ("describe_container_instances", "ecs:DescribeContainerInstances"),
    ],
)
def test_who_may_not_see_the_hosts_hears_which_action_is_missing(
    operation: str, action: str
) -> None:
    report = shape_at_own_hosts(15_385, **{operation: denied})
    assert report.findings == ()
    unseen = {u.kind.id: (u.reason, u.action) for u in report.unseen}
    assert unseen["BY015"] == ("access denied", action)


def test_as_many_hosts_are_asked_for_as_the_checks_believe() -> None:
    assert ecs.MAX_HOSTS == MAX_HOSTS


def test_who_may_not_look_at_the_job_could_not_look() -> None:
    aws = StandIn(describe_jobs=denied)
    report = judge(gather(aws))
    assert (report.exit_code, report.blind_reason) == (2, "access denied (batch:DescribeJobs)")
    assert aws.made == ["describe_jobs"]


def test_the_roles_of_spot_are_asked_for_where_no_spot_instance_shows_that_they_are_there() -> None:
    aws = StandIn()
    assert judge(gather(aws)).unseen == () and "list_roles" not in aws.made
    empty = {"list_container_instances": {"containerInstanceArns": []}}
    unseen = {u.kind.id: u for u in judge(gather(StandIn(empty, list_roles=denied)), 60).unseen}
    assert (unseen["BY041"].reason, unseen["BY041"].action) == ("access denied", "iam:ListRoles")
    unsure = gather(StandIn({"list_roles": {"Roles": []}}, list_container_instances=denied))
    assert "BY041" in [finding.id for finding in judge(unsure, 60).findings]
    # AWS makes them at the first request: before a fleet had its time they may be missing.
    assert "BY041" not in [finding.id for finding in judge(unsure).findings]


def test_without_the_right_to_simulate_the_attached_policy_is_enough() -> None:
    facts = gather(StandIn(simulate_principal_policy=denied))
    assert environments(facts)["od"].profile == Profile("nodes", role="nodes")
    facts = gather(StandIn(simulate_principal_policy=denied, list_attached_role_policies=denied))
    unseen = {u.kind.id: u.action for u in judge(facts).unseen}
    assert unseen["BY036"] == "iam:SimulatePrincipalPolicy"
    assert "BY035" not in unseen


def test_a_role_that_may_not_register_is_found() -> None:
    refused = {
        "EvaluationResults": [{"EvalActionName": "ecs:Poll", "EvalDecision": "implicitDeny"}]
    }
    report = judge(gather(StandIn({"simulate_principal_policy": refused})))
    assert "BY036" in [finding.id for finding in report.findings]


@pytest.mark.parametrize("code", ["NotImplemented", "UnknownOperationException", "InvalidAction"])
@pytest.mark.parametrize("status", [400, 501])
def test_what_an_endpoint_does_not_have_is_said_and_the_rest_is_asked(
    code: str, status: int
) -> None:
    aws = StandIn(describe_subnets=error(code, status))
    facts = gather(aws)
    assert facts.subnets == Missing("this endpoint does not offer it")
    assert "get_service_quota" in aws.made


def test_a_problem_of_awss_own_ends_one_question_only() -> None:
    aws = StandIn(
        describe_subnets=error("InternalError", 500), get_service_quota=error("ThrottlingException")
    )
    facts = gather(aws)
    assert (
        isinstance(facts.subnets, Missing) and "AWS has an internal problem" in facts.subnets.reason
    )
    assert isinstance(facts.quotas, Missing) and "throttles" in facts.quotas.reason
    assert isinstance(facts.security_groups, tuple)


@pytest.mark.parametrize(
    "trouble",
    [
        lambda operation: NoCredentialsError(),
        lambda operation: EndpointConnectionError(endpoint_url="http://x"),
        error("ExpiredTokenException", 403),
    ],
)
def test_where_nobody_answers_nobody_is_asked_again(trouble: Trouble) -> None:
    aws = StandIn(describe_jobs=trouble)
    report = judge(gather(aws))
    assert aws.made == ["describe_jobs"]
    assert report.exit_code == 2 and "could not describe the jobs" in report.blind_reason
    # The same in the middle of it.
    aws = StandIn(list_container_instances=trouble)
    facts = gather(aws)
    assert aws.made[-1] == "list_container_instances"
    assert isinstance(facts.subnets, Missing) and "could not list the hosts" in facts.subnets.reason


# -- what is not there ---------------------------------------------------------------------------


def test_a_job_that_aws_does_not_know() -> None:
    report = judge(gather(StandIn({"describe_jobs": {"jobs": []}})))
    assert report.exit_code == 2 and "does not know the job j" in report.blind_reason


def test_a_profile_that_does_not_exist() -> None:
    facts = gather(StandIn(get_instance_profile=error("NoSuchEntity", 404)))
    assert environments(facts)["od"].profile == Profile("nodes", exists=False)


def test_an_environment_that_does_not_exist_is_absent_and_a_denied_one_is_not() -> None:
    none = StandIn({"describe_compute_environments": {"computeEnvironments": []}})
    assert is_absent(Gatherer(none, lambda: NOW).environment("x"))  # type: ignore[arg-type]
    shut = StandIn(describe_compute_environments=denied)
    assert not is_absent(Gatherer(shut, lambda: NOW).environment("x"))  # type: ignore[arg-type]


def test_a_queue_that_does_not_exist() -> None:
    aws = StandIn({"describe_job_queues": {"jobQueues": []}})
    report = judge(Gatherer(aws, lambda: NOW).queue("x"))  # type: ignore[arg-type]
    assert (report.exit_code, report.blind_reason) == (2, "AWS Batch has no job queue x here")


def test_what_is_no_id_of_a_job_is_told_what_is() -> None:
    none = StandIn({"describe_jobs": {"jobs": []}})
    report = judge(Gatherer(none, lambda: NOW).job("last"))  # type: ignore[arg-type]
    assert (
        report.exit_code == 2
        and "it takes the id of a job" in report.blind_reason
        and "status last" in report.blind_reason
    )
    for job_id in (UUID, f"{UUID}:17"):
        report = judge(Gatherer(none, lambda: NOW).job(job_id))  # type: ignore[arg-type]
        assert (
            "more than a week ago" in report.blind_reason
            and "status last" not in report.blind_reason
        )


# -- the number of calls -------------------------------------------------------------------------


def test_it_stops_at_the_number_of_calls_and_says_so() -> None:
    aws = StandIn()
    facts = gather(aws, max_calls=8)
    assert len(aws.made) == 8
    assert facts.quotas == Missing("not asked: 8 calls are the most for one examination")
    assert isinstance(facts.job, Job)


def array(**counts: int) -> dict[str, Any]:
    return job_with(
        status="PENDING" if not counts.get("FAILED") == 10_000 else "FAILED",
        statusReason="Array Child Job failed",
        arrayProperties={"size": 10_000, "statusSummary": counts},
    )


def child(index: int, **more: Any) -> dict[str, Any]:
    return {"jobId": f"j:{index}", "createdAt": NOW - 300_000, **more}


def test_the_children_of_an_array_are_one_page_grouped_by_cause() -> None:
    def children(request: dict[str, Any]) -> dict[str, Any]:
        assert (request["arrayJobId"], request["jobStatus"]) == ("j", "FAILED")
        lost = [
            child(i, statusReason=f"Host EC2 (instance i-0{i:x}) terminated.", container={})
            for i in range(600)
        ]
        bad = [
            child(i, statusReason="Essential container in task exited", container={"exitCode": 3})
            for i in (7, 8)
        ]
        return {"jobSummaryList": [*bad, *lost], "nextToken": "more"}

    aws = StandIn({**array(FAILED=10_000), "list_jobs": children})
    report = judge(gather(aws))
    # The last call looks for the log stream of a child with an exit code.
    assert aws.made == ["describe_jobs", "list_jobs", "describe_jobs"]
    evidence = {finding.id: finding.evidence[0] for finding in report.findings}
    assert evidence["BY063"].startswith("600 children of 10,000")
    assert evidence["BY060"].startswith("2 children of 10,000, exit code 3")
    assert all("602 of the 10,000 that failed were looked at" in text for text in evidence.values())


def test_an_array_that_waits_is_as_runnable_as_its_children() -> None:
    said = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - x"
    listed = {"jobSummaryList": [child(0, statusReason=said), child(1)]}
    facts = gather(StandIn({**array(RUNNABLE=9_999, SUCCEEDED=1), "list_jobs": listed}))
    assert isinstance(facts.job, Job)
    assert (facts.job.status, facts.job.status_reason) == ("RUNNABLE", said)
    assert facts.job.since_ms == NOW - 300_000
    assert [finding.id for finding in judge(facts, 60).findings] == ["BY027"]


def test_who_may_not_list_children_is_told_so() -> None:
    aws = StandIn({**array(FAILED=10_000), "list_jobs": {}}, list_jobs=denied)
    unseen = {u.kind.id: u.action for u in judge(gather(aws)).unseen}
    assert unseen["BY060"] == "batch:ListJobs"


# -- single questions ----------------------------------------------------------------------------


def test_since_when_a_job_is_starting_is_what_its_task_says() -> None:
    task = arn("ecs", f"task/AWSBatch-od-{UUID}/abc")
    starting = job_with(status="STARTING", container={"taskArn": task, "image": "x"})
    facts = gather(StandIn(starting))
    assert isinstance(facts.job, Job) and facts.job.since_ms == NOW - 120_000
    assert "BY071" in [finding.id for finding in judge(facts, dwell_s=60).findings]
    facts = gather(StandIn(starting, describe_tasks=denied))
    assert isinstance(facts.job, Job) and facts.job.since_ms is None
    assert "BY071" not in [finding.id for finding in judge(facts, dwell_s=60).findings]


def test_an_instance_that_has_not_joined_is_asked_about() -> None:
    late = deepcopy(HEALTHY["describe_instances"])
    late["Reservations"][0]["Instances"][0]["InstanceId"] = "i-spot"
    facts = gather(StandIn({"describe_instances": late}))
    assert environments(facts)["spot"].instances == (
        Instance("i-spot", "g5.xlarge", "z1", round(LAUNCHED.timestamp() * 1000)),
    )
    assert "BY038" in [finding.id for finding in judge(facts).findings]


@pytest.mark.parametrize(
    "more", [{}, {"NextToken": "more"}], ids=["another quota's", "on another page"]
)
def test_an_instance_that_is_not_among_those_of_the_quotas_is_asked_about_by_its_id(
    more: dict[str, Any],
) -> None:
    asked = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        names = {entry["Name"]: entry["Values"] for entry in request["Filters"]}
        asked.append(names)
        if "instance-id" not in names:
            return {**HEALTHY["describe_instances"], **more}
        instance = {
            "InstanceId": "i-spot",
            "InstanceType": "x2idn.16xlarge",
            "LaunchTime": LAUNCHED,
        }
        return {
            "Reservations": [{"Instances": [{**instance, "Placement": {"AvailabilityZone": "z1"}}]}]
        }

    facts = gather(StandIn({"describe_instances": answer}))
    assert [names.get("instance-id") for names in asked] == [None, ["i-spot"]]
    launched_ms = round(LAUNCHED.timestamp() * 1000)
    assert environments(facts)["spot"].instances == (
        Instance("i-spot", "x2idn.16xlarge", "z1", launched_ms),
    )
    assert "BY038" in [finding.id for finding in judge(facts).findings]


def test_a_launch_that_was_refused_is_found_and_old_ones_are_not() -> None:
    refused = {
        "StatusCode": "Failed",
        "StatusMessage": "VcpuLimitExceeded: You have requested more vCPU capacity",
    }
    launched = {"StatusCode": "Successful", "Description": "Launching a new EC2 instance: i-1"}

    def found(*activities: Any) -> list[str]:
        aws = StandIn({"describe_scaling_activities": {"Activities": list(activities)}})
        return [finding.id for finding in judge(gather(aws)).findings]

    assert "BY026" in found(refused, launched)
    assert found(launched, refused) == []


def test_endpoints_are_asked_about_where_there_is_no_route() -> None:
    nowhere = {"describe_route_tables": {"RouteTables": []}}
    aws = StandIn(nowhere)
    assert "BY031" in [finding.id for finding in judge(gather(aws)).findings]
    services = ("ecs", "ecs-agent", "ecs-telemetry", "ecr.api", "ecr.dkr", "logs", "s3")
    documents = [
        {"VpcId": "vpc-1", "ServiceName": f"com.amazonaws.eu-west-1.{name}", "State": "available"}
        for name in services
    ]
    healthy = StandIn({**nowhere, "describe_vpc_endpoints": {"VpcEndpoints": documents}})
    assert judge(gather(healthy)).findings == ()
    unseen = {
        u.kind.id: u.action
        for u in judge(gather(StandIn(nowhere, describe_vpc_endpoints=denied))).unseen
    }
    assert unseen["BY031"] == "ec2:DescribeVpcEndpoints"


def with_types(
    *names: str, kind: str = "EC2", strategy: str = "BEST_FIT_PROGRESSIVE"
) -> dict[str, Any]:
    answer = deepcopy(HEALTHY["describe_compute_environments"])
    for document in answer["computeEnvironments"]:
        document["computeResources"] |= {
            "instanceTypes": names,
            "type": kind,
            "allocationStrategy": strategy,
        }
    return {"describe_compute_environments": answer}


def test_aws_is_asked_about_types_that_the_catalogue_does_not_know() -> None:
    new = {
        "InstanceType": "g99.xlarge",
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 65536},
        "GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA", "Count": 1}]},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    }
    offered = {"InstanceTypeOfferings": [{"InstanceType": "g99.xlarge", "Location": "z1"}]}
    aws = StandIn(
        {
            **with_types("g99"),
            "describe_instance_types": {"InstanceTypes": [new]},
            "describe_instance_type_offerings": offered,
        }
    )
    assert judge(gather(aws)).findings == ()
    aws = StandIn(with_types("g99.xlarge"))
    assert "BY030" in [finding.id for finding in judge(gather(aws)).findings]
    unseen = {
        u.kind.id: u.action
        for u in judge(gather(StandIn(with_types("g99"), describe_instance_types=denied))).unseen
    }
    assert unseen["BY017"] == "ec2:DescribeInstanceTypes"


# -- quotas and prices ---------------------------------------------------------------------------


def up(name: str, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"InstanceId": f"i-{name}-{i}", "InstanceType": name, **more} for i in range(count)]


def running(*instances: dict[str, Any], **more: Any) -> dict[str, Any]:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        names = {entry["Name"]: entry["Values"] for entry in request["Filters"]}
        if "instance-id" in names:
            return {"Reservations": []}
        assert names == {
            "instance-type": ["g*", "vt*"],
            "instance-state-name": ["pending", "running"],
        }
        return {"Reservations": [{"Instances": list(instances)}], **more}

    return {"describe_instances": answer}


def limits(on_demand: float, spot: float) -> dict[str, Any]:
    values = {"L-DB2E81BA": on_demand, "L-3819A6DF": spot}
    return {
        "get_service_quota": lambda request: {
            "Quota": {"Value": values[request["QuotaCode"]], "QuotaName": "G"}
        }
    }


def test_what_is_in_use_of_each_quota_is_counted() -> None:
    spot = {"InstanceLifecycle": "spot"}
    aws = StandIn(
        running(
            *up("g5.xlarge", 3),
            *up("g4dn.12xlarge", 1, **spot),
            *up("g99.large", 1, CpuOptions={"CoreCount": 1, "ThreadsPerCore": 2}),
            # of neither quota
            *up("g5.48xlarge", 1, Placement={"Tenancy": "host"}),
            *up("g5.48xlarge", 1, InstanceLifecycle="capacity-block"),
        )
        | limits(64, 100)
    )
    facts = gather(aws)
    assert facts.quotas == (Quota("L-3819A6DF", 100, "G", 48), Quota("L-DB2E81BA", 64, "G", 14))
    assert judge(facts, dwell_s=60).findings == ()


def test_a_quota_that_is_used_up_and_one_that_allows_nothing_are_found() -> None:
    facts = gather(StandIn(running(*up("g5.xlarge", 16)) | limits(64, 0)))
    found = {(f.id, f.place): f.evidence[0] for f in judge(facts, dwell_s=60).findings}
    assert found == {
        (
            "BY025",
            "compute environment spot",
        ): "quota L-3819A6DF G: 0 vCPUs; g5.xlarge needs 4",
        (
            "BY058",
            "compute environment od",
        ): "quota L-DB2E81BA G: 64 vCPUs, 64 in use, 4 of them by od; g5.xlarge needs 4",
    }
    # Before the fleet had its time, a quota that others use up is no finding; one of zero is.
    assert [f.id for f in judge(facts).findings] == ["BY025"]


def test_more_than_a_read_page_instances_is_at_least_so_much() -> None:
    facts = gather(StandIn(running(*up("g5.xlarge", 2), NextToken="more") | limits(64, 64)))
    unseen = {u.kind.id: u.reason for u in judge(facts, dwell_s=60).unseen}
    assert "more runs in this account" in unseen["BY058"]
    facts = gather(StandIn(running(*up("g5.xlarge", 16), NextToken="more") | limits(64, 400)))
    (found,) = judge(facts, dwell_s=60).findings
    assert "at least 64 in use" in found.evidence[0]


def bidding(percentage: int) -> dict[str, Any]:
    answer = deepcopy(HEALTHY["describe_compute_environments"])
    answer["computeEnvironments"][1]["computeResources"]["bidPercentage"] = percentage
    return {"describe_compute_environments": answer}


def sold(*prices: tuple[str, str, str, int]) -> dict[str, Any]:
    keys = ("InstanceType", "AvailabilityZone", "SpotPrice")
    history = [
        dict(zip(keys, rest, strict=True)) | {"Timestamp": datetime.fromtimestamp(age, UTC)}
        for *rest, age in prices
    ]
    return {"describe_spot_price_history": {"SpotPriceHistory": history}}


PRICES = Prices({"g5.xlarge": 1.0, "g6.xlarge": 0.8}, "eu-west-1")


def gather_with_prices(aws: StandIn, prices: Prices = PRICES) -> Facts:
    return Gatherer(aws, lambda: NOW, MAX_CALLS, prices).job("j")  # type: ignore[arg-type]


def test_spot_prices_are_asked_for_where_somebody_bids_less_than_on_demand() -> None:
    for percentage, count in ((100, 0), (70, 1)):
        aws = StandIn(bidding(percentage))
        gather_with_prices(aws)
        assert aws.made.count("describe_spot_price_history") == count
        assert len(aws.made) <= MAX_CALLS


def test_a_bid_under_every_price_of_now_is_found() -> None:
    old, new = ("g5.xlarge", "z1", "0.30", 100), ("g5.xlarge", "z1", "0.75", 200)
    aws = StandIn(bidding(70) | sold(new, old, ("g6.xlarge", "z1", "0.64", 200)))
    facts = gather_with_prices(aws)
    assert facts.spot_prices == (
        SpotPrice("g5.xlarge", "z1", 0.75, 1.0),
        SpotPrice("g6.xlarge", "z1", 0.64, 0.8),
    )
    (found,) = judge(facts, dwell_s=60).findings
    assert (
        found.id == "BY028"
        and "bids $0.7000" in found.evidence[1]
        and "$0.7500 now" in found.evidence[1]
    )
    cheap = StandIn(bidding(70) | sold(new, ("g6.xlarge", "z1", "0.50", 200)))
    assert judge(gather_with_prices(cheap), dwell_s=60).findings == ()


def test_a_price_that_cannot_be_compared_is_said_to_be_so() -> None:
    dear = sold(("g5.xlarge", "z1", "0.75", 1), ("g6.xlarge", "z1", "0.60", 1))

    def unseen(aws: StandIn, prices: Prices = PRICES) -> tuple[str, str]:
        report = judge(gather_with_prices(aws, prices), dwell_s=60)
        assert report.findings == ()
        (found,) = [u for u in report.unseen if u.kind.id == "BY028"]
        return found.reason, found.action

    denied_prices = StandIn(bidding(70), describe_spot_price_history=denied)
    assert unseen(denied_prices) == ("access denied", "ec2:DescribeSpotPriceHistory")
    assert (
        "g6.xlarge is not in the built-in list"
        in unseen(StandIn(bidding(70) | dear), Prices({"g5.xlarge": 1.0}))[0]
    )
    elsewhere = Prices(PRICES.usd_h, "us-east-1")
    assert "are those of us-east-1" in unseen(StandIn(bidding(70) | dear), elsewhere)[0]
    # Where it would be too low anywhere it is a finding.
    (found,) = judge(
        gather_with_prices(StandIn(bidding(30) | dear), elsewhere), dwell_s=60
    ).findings
    assert found.id == "BY028" and "by the list of us-east-1" in found.evidence[1]


def test_the_built_in_list_of_prices_is_of_the_region_that_is_said() -> None:
    assert f", {load_prices().region}," in load_prices().source


def test_a_spot_fleet_is_known_by_the_cluster_in_its_user_data() -> None:
    told = base64.b64encode(
        f"echo ECS_CLUSTER=AWSBatch-od-{UUID} >> /etc/ecs/ecs.config".encode()
    ).decode()
    fleets = [
        {
            "SpotFleetRequestId": "sfr-other",
            "SpotFleetRequestConfig": {"LaunchSpecifications": [{"UserData": ""}]},
        },
        {
            "SpotFleetRequestId": "sfr-1",
            "SpotFleetRequestConfig": {"LaunchSpecifications": [{"UserData": told}]},
        },
    ]

    def history(request: dict[str, Any]) -> dict[str, Any]:
        assert request["SpotFleetRequestId"] == "sfr-1"
        info = {
            "EventSubType": "spotInstanceCountLimitExceeded",
            "EventDescription": "MaxSpotInstanceCountExceeded",
        }
        return {"HistoryRecords": [{"EventInformation": info, "Timestamp": LAUNCHED}]}

    aws = StandIn(
        {
            **with_types("g5.xlarge", "g6.xlarge", kind="SPOT", strategy="BEST_FIT"),
            "describe_spot_fleet_requests": {"SpotFleetRequestConfigs": fleets},
            "describe_spot_fleet_request_history": history,
        }
    )
    found = environments(gather(aws, max_calls=60))
    assert (
        isinstance(found["od"].failures, tuple)
        and "MaxSpotInstanceCountExceeded" in found["od"].failures[0].message
    )
    assert found["spot"].failures == Missing("no Spot Fleet of spot was found")


def test_the_last_lines_of_the_log_of_a_failed_job_are_evidence() -> None:
    attempt = {
        "statusReason": "Essential container in task exited",
        "container": {"exitCode": 1, "logStreamName": "recon/default/1"},
    }
    failed = job_with(status="FAILED", statusReason=attempt["statusReason"], attempts=[attempt])

    def lines(request: dict[str, Any]) -> dict[str, Any]:
        assert request["logStreamName"] == "recon/default/1" and not request["startFromHead"]
        return {"events": [{"message": "loading"}, {"message": "KeyError: 'lr'"}]}

    report = judge(gather(StandIn({**failed, "get_log_events": lines})))
    (finding,) = report.findings
    assert finding.id == "BY060"
    assert finding.evidence[-2:] == ("log: loading", "log: KeyError: 'lr'")


def test_a_log_that_may_not_be_read_leaves_the_finding_as_it_is() -> None:
    attempt = {
        "statusReason": "Essential container in task exited",
        "container": {"exitCode": 1, "logStreamName": "recon/default/1"},
    }
    failed = job_with(status="FAILED", statusReason=attempt["statusReason"], attempts=[attempt])
    aws = StandIn({**failed, "get_log_events": {}}, get_log_events=denied)
    (finding,) = judge(gather(aws)).findings
    assert finding.id == "BY060" and not any("log: " in line for line in finding.evidence)
    assert "aws logs get-log-events" in finding.remedy[-1]
