"""What the rules work with: an account at an endpoint with a network, a role and a job queue."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

REGION = "us-east-1"
TERMINAL = ("SUCCEEDED", "FAILED")
#: Documents of IAM.
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "batch.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}


class Lab:
    """Clients of one endpoint, and the resources that all rules share."""

    def __init__(self, url: str, image: str, wait_s: float) -> None:
        self.image = image
        self.wait_s = wait_s
        options: dict[str, Any] = {
            "endpoint_url": url,
            "region_name": REGION,
            "aws_access_key_id": "conformance",
            "aws_secret_access_key": "conformance",
            # The rules send requests that botocore's own checks would stop.
            "config": Config(parameter_validation=False, retries={"total_max_attempts": 2}),
        }
        self.batch: Any = boto3.client("batch", **options)
        self.logs: Any = boto3.client("logs", **options)
        self._ec2: Any = boto3.client("ec2", **options)
        self._iam: Any = boto3.client("iam", **options)
        self._prepare()

    def _prepare(self) -> None:
        vpc = self._ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
        subnet = self._ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24")["Subnet"]
        self.subnet = subnet["SubnetId"]
        self.group = self._ec2.create_security_group(
            GroupName=self.name("group"), Description="conformance", VpcId=vpc
        )["GroupId"]
        role = self.name("role")
        answer = self._iam.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(_TRUST))
        self.role = answer["Role"]["Arn"]
        self._iam.create_instance_profile(InstanceProfileName=role)
        self._iam.add_role_to_instance_profile(InstanceProfileName=role, RoleName=role)
        self.profile = self.role.replace(":role/", ":instance-profile/")
        self.environment = self.create_environment()
        self.queue = self.create_queue(self.environment)

    @staticmethod
    def name(prefix: str) -> str:
        return f"{prefix}-{uuid.uuid4().hex[:12]}"

    # -- resources --------------------------------------------------------------------------------

    def resources(self, **changes: Any) -> dict[str, Any]:
        """Return computeResources of type EC2; a change to None leaves a member out."""
        members = {
            "type": "EC2",
            "minvCpus": 0,
            "maxvCpus": 256,
            "desiredvCpus": 0,
            "instanceTypes": ["m6i.large"],
            "subnets": [self.subnet],
            "securityGroupIds": [self.group],
            "instanceRole": self.profile,
            **changes,
        }
        return {member: value for member, value in members.items() if value is not None}

    def fargate(self, **changes: Any) -> dict[str, Any]:
        network = {"subnets": [self.subnet], "securityGroupIds": [self.group]}
        return {"type": "FARGATE", "maxvCpus": 16, **network, **changes}

    def create_environment(self, resources: dict[str, Any] | None = None, **members: Any) -> str:
        name = self.name("environment")
        request = {
            "type": "MANAGED",
            "computeResources": self.resources() if resources is None else resources,
            "serviceRole": self.role,
            **members,
        }
        self.batch.create_compute_environment(
            computeEnvironmentName=name,
            **{member: value for member, value in request.items() if value is not None},
        )
        return name

    def environment_arn(self, name: str) -> str:
        answer = self.batch.describe_compute_environments(computeEnvironments=[name])
        return str(answer["computeEnvironments"][0]["computeEnvironmentArn"])

    def create_queue(self, *environments: str, **members: Any) -> str:
        name = self.name("queue")
        order = [
            {"order": number, "computeEnvironment": self.environment_arn(environment)}
            for number, environment in enumerate(environments, 1)
        ]
        request = {"priority": 1, "state": "ENABLED", "computeEnvironmentOrder": order, **members}
        self.batch.create_job_queue(jobQueueName=name, **request)
        return name

    # -- jobs -------------------------------------------------------------------------------------

    def container(self, *command: str, **changes: Any) -> dict[str, Any]:
        requirements = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
        return {
            "image": self.image,
            "command": list(command) or ["true"],
            "resourceRequirements": requirements,
            **changes,
        }

    def define(self, container: dict[str, Any] | None = None, **members: Any) -> str:
        """Register a job definition; return `name:revision`."""
        request = {
            "jobDefinitionName": self.name("definition"),
            "type": "container",
            "containerProperties": self.container() if container is None else container,
            **members,
        }
        answer = self.batch.register_job_definition(
            **{member: value for member, value in request.items() if value is not None}
        )
        return f"{answer['jobDefinitionName']}:{answer['revision']}"

    def describe_definition(self, name: str) -> Any:
        answer = self.batch.describe_job_definitions(jobDefinitionName=name.partition(":")[0])
        return answer["jobDefinitions"][0]

    def submit(self, definition: str, queue: str | None = None, **members: Any) -> str:
        answer = self.batch.submit_job(
            jobName=members.pop("jobName", "conformance"),
            jobQueue=queue or self.queue,
            jobDefinition=definition,
            **members,
        )
        return str(answer["jobId"])

    def run(self, script: str, **members: Any) -> str:
        """Submit a job that runs a shell script."""
        definition_members = members.pop("definition", {})
        container = self.container("sh", "-c", script, **members.pop("container", {}))
        return self.submit(self.define(container, **definition_members), **members)

    def job(self, job_id: str) -> Any:
        return self.batch.describe_jobs(jobs=[job_id])["jobs"][0]

    def wait(self, job_id: str, *states: str) -> Any:
        """Return the job when it is in one of the states, by default at its end."""
        deadline = time.monotonic() + self.wait_s
        while (job := self.job(job_id))["status"] not in (states or TERMINAL):
            if job["status"] in TERMINAL or time.monotonic() > deadline:
                raise AssertionError(f"{job_id} is {job['status']}: {job.get('statusReason')}")
            time.sleep(0.2)
        return job

    def output(self, job_id: str) -> list[str]:
        """Return the lines of a job's last attempt."""
        stream = self.job(job_id)["container"]["logStreamName"]
        events = self.logs.get_log_events(
            logGroupName="/aws/batch/job", logStreamName=stream, startFromHead=True
        )["events"]
        return [event["message"] for event in events]


@contextmanager
def refusal(*texts: str) -> Iterator[None]:
    """Expect a ClientException whose message has the texts."""
    try:
        yield
    except ClientError as exc:
        error = exc.response["Error"]
        assert error["Code"] == "ClientException", error
        for text in texts:
            assert text in error["Message"], error
        return
    raise AssertionError("the request was accepted")


def holds(check: Callable[[Lab], None], lab: Lab) -> tuple[bool, str]:
    """Return whether an endpoint keeps a rule, and why not."""
    try:
        check(lab)
    except (AssertionError, KeyError, IndexError, TypeError, ClientError, BotoCoreError) as exc:
        return False, f"{type(exc).__name__}: {exc}"
    return True, ""
