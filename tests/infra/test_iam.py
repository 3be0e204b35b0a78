"""Who may not do what, and what else holds of the policies as they are written.

That they allow what people really do, and nothing besides, is seen on recorded calls:
tests/deploy/test_rights.py.
"""

from __future__ import annotations

import json
from typing import Any

import cfn
import pytest
from policies import Call, allowed, as_list, call

ACCOUNT = "123456789012"
BATCH = f"arn:aws:batch:us-east-1:{ACCOUNT}"
BUCKET = "arn:aws:s3:::dev-storage-runbucket-1a2b"
LOGS = f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/batchyard/dev/jobs"
ROLES = f"arn:aws:iam::{ACCOUNT}:role"
STACKS = f"arn:aws:cloudformation:us-east-1:{ACCOUNT}:stack"
COUNTER = f"{BATCH}:consumable-resource/recon-20260101-abcdef-reconstruct"
VALUES = {
    "Env": "dev",
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::AccountId": ACCOUNT,
    "AWS::URLSuffix": "amazonaws.com",
    "JobRole.Arn": f"{ROLES}/dev-iam-JobRole-1",
    "ExecutionRole.Arn": f"{ROLES}/dev-iam-ExecutionRole-1",
    "dev-bucket-arn": BUCKET,
    "dev-log-group": "/batchyard/dev/jobs",
    "dev-repository-arn": f"arn:aws:ecr:us-east-1:{ACCOUNT}:repository/dev/pipelines",
    "dev-benchmark-repository-arn": f"arn:aws:ecr:us-east-1:{ACCOUNT}:repository/dev/benchmark",
}


#: what people who only run pipelines are not to do
NOT_A_RUN = [
    call("batch:SubmitJob", f"{BATCH}:job-queue/prod-gpu"),
    call("batch:SubmitJob", f"{BATCH}:job-queue/dev-2-gpu"),
    call("batch:SubmitJob", f"{BATCH}:job-definition/prod_recon-3f2a:1"),
    call("batch:RegisterJobDefinition", f"{BATCH}:job-definition/dev-2_recon"),
    call(
        "batch:RegisterJobDefinition", f"{BATCH}:job-definition/dev_recon", batch__Privileged="true"
    ),
    call("batch:DeregisterJobDefinition", f"{BATCH}:job-definition/dev_recon:1"),
    call("batch:UpdateComputeEnvironment", f"{BATCH}:compute-environment/dev-gpu"),
    call("batch:CreateJobQueue", f"{BATCH}:job-queue/dev-mine"),
    call("batch:CreateConsumableResource", f"{BATCH}:consumable-resource/licences"),
    call("batch:DeleteConsumableResource", f"{BATCH}:consumable-resource/licences"),
    call(
        "batch:UpdateConsumableResource",
        COUNTER,
        **{"aws:ResourceTag/batchyard:run": "recon-20260101-abcdef"},
    ),
    call("iam:PassRole", VALUES["JobRole.Arn"], iam__PassedToService="ec2.amazonaws.com"),
    call("iam:PassRole", f"{ROLES}/admin", iam__PassedToService="ecs-tasks.amazonaws.com"),
    call("iam:CreateRole", f"{ROLES}/dev-mine"),
    call("s3:PutObject", f"{BUCKET}/elsewhere"),
    call("s3:ListBucket", BUCKET, s3__prefix=""),
    call("s3:GetObject", "arn:aws:s3:::another/runs/x"),
    call("s3:DeleteObject", f"{BUCKET}/runs/recon-20260101-abcdef/results/0"),
    call("s3:DeleteBucket", BUCKET),
    call(
        "logs:GetLogEvents",
        f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/aws/lambda/x:log-stream:y",
    ),
    call("logs:DeleteLogGroup", f"{LOGS}:*"),
    call("cloudformation:DeleteStack", f"{STACKS}/dev-batch/1f"),
    call("ec2:RunInstances"),
]


def policy(name: str) -> list[dict[str, Any]]:
    document = cfn.resources("iam", "AWS::IAM::ManagedPolicy")[name]["PolicyDocument"]
    statements: list[dict[str, Any]] = cfn.render(document, VALUES)["Statement"]
    return statements


def role(name: str) -> list[dict[str, Any]]:
    policies = cfn.resources("iam", "AWS::IAM::Role")[name]["Policies"]
    return [
        statement
        for entry in cfn.render(policies, VALUES)
        for statement in entry["PolicyDocument"]["Statement"]
    ]


ECS = f"arn:aws:ecs:us-east-1:{ACCOUNT}"
TASK_ROLE = f"{ROLES}/dev-ecs-TaskRole-1a2b"
TO_TASKS = {"iam__PassedToService": "ecs-tasks.amazonaws.com"}
#: what people who only run tasks are not to do
NOT_A_TASK = [
    call("ecs:RunTask", f"{ECS}:task-definition/dev_x:1", ecs__cluster=f"{ECS}:cluster/prod-ecs"),
    call("ecs:RunTask", f"{ECS}:task-definition/prod_x:1", ecs__cluster=f"{ECS}:cluster/dev-ecs"),
    call("ecs:StopTask", f"{ECS}:task/dev-2-ecs/1f"),
    call("ecs:TagResource", f"{ECS}:task/dev-ecs/1f", ecs__CreateAction="CreateService"),
    call("ecs:ListTasks", ecs__cluster=f"{ECS}:cluster/prod-ecs"),
    call("ecs:UpdateService", f"{ECS}:service/dev-ecs/dev-notebook"),
    call("ecs:DeleteCluster", f"{ECS}:cluster/dev-ecs"),
    call("iam:PassRole", TASK_ROLE, iam__PassedToService="ec2.amazonaws.com"),
    call("iam:PassRole", f"{ROLES}/dev-2-ecs-TaskRole-1a2b", **TO_TASKS),
    call("logs:GetLogEvents", f"{LOGS.replace('dev/jobs', 'dev-2/ecs')}:log-stream:x"),
    call(
        "ssm:StartSession",
        f"arn:aws:ec2:us-east-1:{ACCOUNT}:instance/i-1",
        **{"ssm:resourceTag/batchyard:environment": "prod"},
    ),
    call("ssm:StartSession", "arn:aws:ssm:us-east-1::document/SSM-SessionManagerRunShell"),
]


@pytest.mark.parametrize(
    "asked", NOT_A_TASK, ids=lambda asked: f"{asked.action} {asked.resource.split(':')[-1]}"
)
def test_who_runs_tasks_may_do_nothing_else(asked: Call) -> None:
    assert not allowed(policy("TaskSubmitterPolicy"), asked)


def test_who_runs_tasks_may_pass_the_role_of_tasks() -> None:
    assert allowed(policy("TaskSubmitterPolicy"), call("iam:PassRole", TASK_ROLE, **TO_TASKS))


@pytest.mark.parametrize(
    "asked", NOT_A_RUN, ids=lambda asked: f"{asked.action} {asked.resource.split(':')[-1]}"
)
def test_who_submits_may_do_nothing_else(asked: Call) -> None:
    assert not allowed(policy("SubmitterPolicy"), asked)


def test_jobs_touch_the_files_of_runs_and_nothing_else() -> None:
    statements = role("JobRole")
    inside = f"{BUCKET}/runs/recon-20260101-abcdef/x"
    actions = ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")
    assert all(allowed(statements, call(action, inside)) for action in actions)
    assert not any(allowed(statements, call(action, f"{BUCKET}/x")) for action in actions)
    assert {action for statement in statements for action in as_list(statement["Action"])} == {
        *actions,
        "s3:ListBucket",
    }
    assert not allowed(statements, call("s3:ListBucket", BUCKET, s3__prefix=""))


def test_secrets_of_other_environments_are_out_of_reach() -> None:
    secrets = f"arn:aws:secretsmanager:us-east-1:{ACCOUNT}:secret"
    assert allowed(
        role("ExecutionRole"), call("secretsmanager:GetSecretValue", f"{secrets}:dev/token-AbCdEf")
    )
    assert not allowed(
        role("ExecutionRole"),
        call("secretsmanager:GetSecretValue", f"{secrets}:dev-2/token-AbCdEf"),
    )


def test_who_deploys_is_bound_to_the_environment_where_aws_has_names() -> None:
    statements = policy("AdministratorPolicy")
    assert allowed(statements, call("cloudformation:CreateChangeSet", f"{STACKS}/dev-batch/1f"))
    assert not allowed(statements, call("cloudformation:DeleteStack", f"{STACKS}/prod-batch/1f"))
    assert allowed(statements, call("iam:CreateRole", f"{ROLES}/dev-iam-JobRole-1"))
    assert not allowed(statements, call("iam:CreateRole", f"{ROLES}/prod-iam-JobRole-1"))
    assert not allowed(statements, call("iam:CreateUser", f"arn:aws:iam::{ACCOUNT}:user/dev-mine"))
    assert not allowed(statements, call("s3:DeleteObject", "arn:aws:s3:::prod-storage-runbucket/x"))
    service = {"iam__AWSServiceName": "batch.amazonaws.com"}
    slr = f"{ROLES}/aws-service-role/batch.amazonaws.com/AWSServiceRoleForBatch"
    assert allowed(statements, call("iam:CreateServiceLinkedRole", slr, **service))
    assert not allowed(
        statements,
        call("iam:CreateServiceLinkedRole", slr, iam__AWSServiceName="organizations.amazonaws.com"),
    )


@pytest.mark.parametrize("name", cfn.resources("iam", "AWS::IAM::ManagedPolicy"))
def test_a_policy_is_within_the_limit(name: str) -> None:
    # IAM counts the characters of the document without white space. The longest names that an
    # environment, a region and a partition can have.
    longest = VALUES | {
        "Env": "e" * 20,
        "AWS::Region": "ap-southeast-99",
        "AWS::Partition": "aws-cn",
    }
    longest |= {key.replace("dev-", "e" * 20 + "-"): value for key, value in VALUES.items()}
    longest["Env"] = "e" * 20
    document = cfn.resources("iam", "AWS::IAM::ManagedPolicy")[name]["PolicyDocument"]
    assert len(json.dumps(cfn.render(document, longest), separators=(",", ":"))) < 6144 - 200


def test_roles_are_for_their_services_only_and_bounded_where_asked() -> None:
    for name, properties in cfn.resources("iam", "AWS::IAM::Role").items():
        (trust,) = cfn.render(properties["AssumeRolePolicyDocument"], VALUES)["Statement"]
        service = trust["Principal"]["Service"]
        assert service == (
            "ec2.amazonaws.com" if name == "InstanceRole" else "ecs-tasks.amazonaws.com"
        )
        assert properties["PermissionsBoundary"]["Fn::If"][0] == "HasBoundary"
