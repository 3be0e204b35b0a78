"""Who may do what: the calls that a run makes are allowed, and nothing besides.

The calls are those of a whole run through AWS Batch: look the environment up, send lists and inputs, register
definitions, submit, watch, read logs, fetch results, stop, clean up.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import cfn
import pytest

ACCOUNT = "123456789012"
BATCH = f"arn:aws:batch:us-east-1:{ACCOUNT}"
BUCKET = "arn:aws:s3:::dev-storage-runbucket-1a2b"
LOGS = f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/batchyard/dev/jobs"
ROLES = f"arn:aws:iam::{ACCOUNT}:role"
STACKS = f"arn:aws:cloudformation:us-east-1:{ACCOUNT}:stack"
JOB = f"{BATCH}:job/0b1c2d3e-0000-4000-8000-000000000000"
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


class Call(NamedTuple):
    action: str
    resource: str = "*"
    context: tuple[tuple[str, str], ...] = ()


def call(action: str, resource: str = "*", **context: str) -> Call:
    return Call(action, resource, tuple((key.replace("__", ":"), value) for key, value in context.items()))


#: every call of a run, with what it is about
A_RUN = [
    call("cloudformation:DescribeStacks", f"{STACKS}/dev-batch/1f"),
    call("cloudformation:ListExports"),
    call("batch:DescribeJobQueues"),
    call("batch:DescribeComputeEnvironments"),
    call("batch:DescribeJobDefinitions"),
    call("batch:RegisterJobDefinition", f"{BATCH}:job-definition/dev_step-3f2a"),
    call("batch:TagResource", f"{BATCH}:job-definition/dev_step-3f2a:1"),
    call("iam:PassRole", VALUES["JobRole.Arn"], iam__PassedToService="ecs-tasks.amazonaws.com"),
    call("iam:PassRole", VALUES["ExecutionRole.Arn"], iam__PassedToService="ecs-tasks.amazonaws.com"),
    call("s3:PutObject", f"{BUCKET}/runs/recon-20260101-abcdef/lists/one"),
    call("s3:AbortMultipartUpload", f"{BUCKET}/runs/recon-20260101-abcdef/inputs/large"),
    *(
        call("batch:SubmitJob", f"{BATCH}:job-queue/dev-{queue}")
        for queue in ("cpu", "gpu", "cpu-on-demand", "gpu-on-demand", "team-cpu", "team-gpu", "unmanaged-gpu")
    ),
    call("batch:SubmitJob", f"{BATCH}:job-definition/dev_step-3f2a"),
    call("batch:SubmitJob", f"{BATCH}:job-definition/dev_step-3f2a:1"),
    call("batch:SubmitJob", JOB),
    call("batch:TagResource", JOB),
    call("batch:CreateConsumableResource", COUNTER, **{"aws:RequestTag/batchyard:run": "recon-20260101-abcdef"}),
    call("batch:TagResource", COUNTER),
    call("batch:SubmitJob", COUNTER),
    call("batch:DeleteConsumableResource", COUNTER, **{"aws:ResourceTag/batchyard:run": "recon-20260101-abcdef"}),
    call("batch:DescribeJobs"),
    call("batch:ListJobs"),
    call("batch:GetJobQueueSnapshot", f"{BATCH}:job-queue/dev-gpu"),
    call("logs:GetLogEvents", f"{LOGS}:log-stream:dev_step-3f2a/default/0f"),
    call("logs:FilterLogEvents", f"{LOGS}:*"),
    call("s3:ListBucket", BUCKET, s3__prefix="runs/recon-20260101-abcdef/"),
    call("s3:GetObject", f"{BUCKET}/runs/recon-20260101-abcdef/results/0"),
    call("batch:TerminateJob", JOB),
    call("batch:CancelJob", JOB),
    call("batch:DeregisterJobDefinition", f"{BATCH}:job-definition/dev_step-3f2a:1"),
    call("s3:DeleteObject", f"{BUCKET}/runs/recon-20260101-abcdef/results/0"),
]
#: what people who only run pipelines are not to do
NOT_A_RUN = [
    call("batch:SubmitJob", f"{BATCH}:job-queue/prod-gpu"),
    call("batch:SubmitJob", f"{BATCH}:job-queue/dev-2-gpu"),
    call("batch:SubmitJob", f"{BATCH}:job-definition/prod_recon-3f2a:1"),
    call("batch:RegisterJobDefinition", f"{BATCH}:job-definition/dev-2_recon"),
    call("batch:RegisterJobDefinition", f"{BATCH}:job-definition/dev_recon", batch__Privileged="true"),
    call("batch:UpdateComputeEnvironment", f"{BATCH}:compute-environment/dev-gpu"),
    call("batch:CreateJobQueue", f"{BATCH}:job-queue/dev-mine"),
    call("batch:CreateConsumableResource", f"{BATCH}:consumable-resource/licences"),
    call("batch:DeleteConsumableResource", f"{BATCH}:consumable-resource/licences"),
    call("batch:UpdateConsumableResource", COUNTER, **{"aws:ResourceTag/batchyard:run": "recon-20260101-abcdef"}),
    call("iam:PassRole", VALUES["JobRole.Arn"], iam__PassedToService="ec2.amazonaws.com"),
    call("iam:PassRole", f"{ROLES}/admin", iam__PassedToService="ecs-tasks.amazonaws.com"),
    call("iam:CreateRole", f"{ROLES}/dev-mine"),
    call("s3:PutObject", f"{BUCKET}/elsewhere"),
    call("s3:ListBucket", BUCKET, s3__prefix=""),
    call("s3:GetObject", "arn:aws:s3:::another/runs/x"),
    call("s3:DeleteBucket", BUCKET),
    call("logs:GetLogEvents", f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:/aws/lambda/x:log-stream:y"),
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
    return [statement for entry in cfn.render(policies, VALUES) for statement in entry["PolicyDocument"]["Statement"]]


def as_list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def actions_of(statements: list[dict[str, Any]]) -> set[str]:
    return {action for statement in statements for action in as_list(statement["Action"])}


def holds(condition: dict[str, dict[str, Any]], context: dict[str, str]) -> bool:
    for operator, wanted in condition.items():
        assert operator in ("StringEquals", "StringLike", "BoolIfExists", "Null"), operator
        for key, patterns in wanted.items():
            value = context.get(key)
            if operator == "Null":
                if (value is None) != (patterns == "true"):
                    return False
                continue
            if value is None and operator.endswith("IfExists"):
                continue
            if value is None or not any(fnmatchcase(value, pattern) for pattern in as_list(patterns)):
                return False
    return True


def allows(statement: dict[str, Any], asked: Call) -> bool:
    assert statement["Effect"] == "Allow"
    return (
        any(fnmatchcase(asked.action, pattern) for pattern in as_list(statement["Action"]))
        and any(fnmatchcase(asked.resource, pattern) for pattern in as_list(statement["Resource"]))
        and holds(statement.get("Condition", {}), dict(asked.context))
    )


def allowed(statements: list[dict[str, Any]], asked: Call) -> bool:
    return any(allows(statement, asked) for statement in statements)


@pytest.mark.parametrize("asked", A_RUN, ids=lambda asked: f"{asked.action} {asked.resource.split(':')[-1]}")
def test_who_submits_may_do_every_call_of_a_run(asked: Call) -> None:
    assert allowed(policy("SubmitterPolicy"), asked)


@pytest.mark.parametrize("asked", NOT_A_RUN, ids=lambda asked: f"{asked.action} {asked.resource.split(':')[-1]}")
def test_who_submits_may_do_nothing_else(asked: Call) -> None:
    assert not allowed(policy("SubmitterPolicy"), asked)


def test_every_right_of_who_submits_is_needed_by_a_run() -> None:
    statements = policy("SubmitterPolicy")
    assert actions_of(statements) == {asked.action for asked in A_RUN}
    # Each statement, and each resource in one, is there for some call.
    for statement in statements:
        for resource in as_list(statement["Resource"]):
            narrowed = {**statement, "Resource": resource}
            assert any(allows(narrowed, asked) for asked in A_RUN), (statement["Sid"], resource)


def test_jobs_touch_the_files_of_runs_and_nothing_else() -> None:
    statements = role("JobRole")
    inside = f"{BUCKET}/runs/recon-20260101-abcdef/x"
    actions = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
    assert all(allowed(statements, call(action, inside)) for action in actions)
    assert not any(allowed(statements, call(action, f"{BUCKET}/x")) for action in actions)
    assert {action for statement in statements for action in as_list(statement["Action"])} == {
        *actions,
        "s3:ListBucket",
    }
    assert not allowed(statements, call("s3:ListBucket", BUCKET, s3__prefix=""))


def test_secrets_of_other_environments_are_out_of_reach() -> None:
    secrets = f"arn:aws:secretsmanager:us-east-1:{ACCOUNT}:secret"
    assert allowed(role("ExecutionRole"), call("secretsmanager:GetSecretValue", f"{secrets}:dev/token-AbCdEf"))
    assert not allowed(role("ExecutionRole"), call("secretsmanager:GetSecretValue", f"{secrets}:dev-2/token-AbCdEf"))


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
        statements, call("iam:CreateServiceLinkedRole", slr, iam__AWSServiceName="organizations.amazonaws.com")
    )


@pytest.mark.parametrize("name", cfn.resources("iam", "AWS::IAM::ManagedPolicy"))
def test_a_policy_is_within_the_limit(name: str) -> None:
    # IAM counts the characters of the document without white space.
    assert len(json.dumps(policy(name), separators=(",", ":"))) < 6144 - 200


def test_roles_are_for_their_services_only_and_bounded_where_asked() -> None:
    for name, properties in cfn.resources("iam", "AWS::IAM::Role").items():
        (trust,) = cfn.render(properties["AssumeRolePolicyDocument"], VALUES)["Statement"]
        service = trust["Principal"]["Service"]
        assert service == ("ec2.amazonaws.com" if name == "InstanceRole" else "ecs-tasks.amazonaws.com")
        assert properties["PermissionsBoundary"]["Fn::If"][0] == "HasBoundary"
