"""Requests to AWS as values: which operation one is for, and which rights IAM would ask for. Pure.

The rights are those of AWS's service authorization reference. https://docs.aws.amazon.com/service-authorization
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from policies import Call, call

from batchyard.emulator import api_models

ACCOUNT, REGION = "123456789012", "us-east-1"
_S3_OPERATIONS = {
    # method, whether a key is named, the word of the query that tells it: what comes first wins
    ("PUT", True, "uploadId"): "UploadPart",
    ("PUT", True, ""): "PutObject",
    ("POST", True, "uploads"): "CreateMultipartUpload",
    ("POST", True, "uploadId"): "CompleteMultipartUpload",
    ("DELETE", True, "uploadId"): "AbortMultipartUpload",
    ("DELETE", True, ""): "DeleteObject",
    ("GET", True, ""): "GetObject",
    ("HEAD", True, ""): "HeadObject",
    ("GET", False, "list-type"): "ListObjectsV2",
    ("GET", False, "versions"): "ListObjectVersions",
    ("POST", False, "delete"): "DeleteObjects",
}
#: S3's operation -> the action that it is called in IAM
_S3_ACTIONS = {
    "UploadPart": "s3:PutObject",
    "PutObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "ListObjectVersions": "s3:ListBucketVersions",
}
#: what AWS Batch's other operations are about: the member of the request that names it, and its
#: kind
_BATCH_RESOURCES = {
    "TerminateJob": ("jobId", "job"),
    "CancelJob": ("jobId", "job"),
    "GetJobQueueSnapshot": ("jobQueue", "job-queue"),
    "DescribeConsumableResource": ("consumableResource", "consumable-resource"),
    "DeregisterJobDefinition": ("jobDefinition", "job-definition"),
}
_ROLES = {"jobRoleArn": "ecs-tasks.amazonaws.com", "executionRoleArn": "ecs-tasks.amazonaws.com"}


@dataclass(frozen=True)
class Request:
    """One HTTP request of an AWS client."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        pairs = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        return {name: values[-1] for name, values in pairs.items()}

    @property
    def service(self) -> str:
        """By its signature: ``Credential=key/day/region/service/aws4_request``."""
        found = re.search(
            r"Credential=[^/]+/\d+/[^/]+/([^/]+)/", self.headers.get("authorization", "")
        )
        assert found, f"{self.method} {self.target} is not signed"
        return found[1]

    @property
    def operation(self) -> str:
        return _operation(self)[0]

    @property
    def members(self) -> dict[str, Any]:
        return _operation(self)[1]


def _operation(request: Request) -> tuple[str, dict[str, Any]]:
    """The operation's name and what is asked, as far as a right depends on it."""
    if request.service == "s3":
        bucket, _, key = unquote(request.path).lstrip("/").partition("/")
        for (method, has_key, word), name in _S3_OPERATIONS.items():
            if (method, has_key) == (request.method, bool(key)) and (
                not word or word in request.query
            ):
                return name, {
                    "bucket": bucket,
                    "key": key,
                    "prefix": request.query.get("prefix", ""),
                }
        raise AssertionError(
            f"an operation of S3 that is not in the table: {request.method} {request.target}"
        )
    if request.service == "batch":
        found = api_models.find_operation("batch", request.method, request.path)
        assert found, (
            f"an operation of AWS Batch that there is not: {request.method} {request.target}"
        )
        return found[0], {**json.loads(request.body or b"{}"), **found[1]}
    if "x-amz-target" in request.headers:
        return request.headers["x-amz-target"].rpartition(".")[2], json.loads(request.body)
    members = {name: values[-1] for name, values in parse_qs(request.body.decode()).items()}
    return members["Action"], members


# -- rights --------------------------------------------------------------------------------------


def rights(request: Request, tags: Mapping[str, Mapping[str, str]] | None = None) -> list[Call]:
    """All that must be allowed. ``tags``: of the consumable resources that there are, by name."""
    known = {
        "s3": _s3,
        "batch": _batch,
        "logs": _logs,
        "cloudformation": _cloudformation,
        "ecr": _ecr,
        "ecs": _ecs,
    }
    return known.get(request.service, _other)(request, tags or {})


def _s3(request: Request, _: object) -> list[Call]:
    asked, action = request.members, _S3_ACTIONS[request.operation]
    bucket = f"arn:aws:s3:::{asked['bucket']}"
    if not asked["key"] and action != "s3:DeleteObject":
        return [call(action, bucket, s3__prefix=asked["prefix"])]
    if not asked["key"]:
        keys = re.findall(rb"<Key>([^<]*)</Key>", request.body)
        return [call(action, f"{bucket}/{key.decode()}") for key in keys]
    found = [call(action, f"{bucket}/{asked['key']}")]
    if action == "s3:GetObject":
        # Who may not list gets 403 instead of 404 for what is not there; AWS takes the key for
        # the prefix.
        found.append(call("s3:ListBucket", bucket, s3__prefix=asked["key"]))
    return found


def _batch(request: Request, tags: Mapping[str, Mapping[str, str]]) -> list[Call]:
    operation, asked = request.operation, request.members
    action = f"batch:{operation}"
    if operation == "SubmitJob":
        # The job and its counters are resources of the call as well; the job's id is not known
        # before.
        about = [
            _arn("job-queue", asked["jobQueue"]),
            _arn("job-definition", asked["jobDefinition"]),
            _arn("job", "new"),
        ]
        about += [_arn("consumable-resource", name) for name in _counters(asked)]
        found = [call(action, arn) for arn in about]
        return found + (
            [call("batch:TagResource", _arn("job", "new"))] if asked.get("tags") else []
        )
    if operation == "RegisterJobDefinition":
        arn = _arn("job-definition", asked["jobDefinitionName"])
        container = asked["containerProperties"]
        privileged = {"batch__Privileged": "true"} if container.get("privileged") else {}
        found = [call(action, arn, **privileged)]
        found += [call("batch:TagResource", f"{arn}:1")] if asked.get("tags") else []
        passed = [
            (container[role], service) for role, service in _ROLES.items() if container.get(role)
        ]
        return found + [
            call("iam:PassRole", role, iam__PassedToService=service) for role, service in passed
        ]
    if operation == "CreateConsumableResource":
        arn = _arn("consumable-resource", asked["consumableResourceName"])
        given = {f"aws:RequestTag/{name}": value for name, value in asked.get("tags", {}).items()}
        return [call(action, arn, **given), call("batch:TagResource", arn)]
    if operation == "DeleteConsumableResource":
        name = asked["consumableResource"]
        there = {f"aws:ResourceTag/{key}": value for key, value in tags.get(name, {}).items()}
        return [call(action, _arn("consumable-resource", name), **there)]
    if operation in _BATCH_RESOURCES:
        member, kind = _BATCH_RESOURCES[operation]
        return [call(action, _arn(kind, asked[member]))]
    assert operation.startswith(("Describe", "List")), f"{operation} is not in the table"
    return [call(action)]


def _counters(submission: Mapping[str, Any]) -> list[str]:
    given = submission.get("consumableResourcePropertiesOverride", {}).get(
        "consumableResourceList", []
    )
    return [one["consumableResource"] for one in given]


def _arn(kind: str, name: str) -> str:
    return name if name.startswith("arn:") else f"arn:aws:batch:{REGION}:{ACCOUNT}:{kind}/{name}"


def _logs(request: Request, _: object) -> list[Call]:
    asked = request.members
    if request.operation == "DescribeLogGroups":
        return [call("logs:DescribeLogGroups")]
    group = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{asked['logGroupName']}"
    about = (
        f"{group}:log-stream:{asked['logStreamName']}"
        if request.operation == "GetLogEvents"
        else f"{group}:*"
    )
    return [call(f"logs:{request.operation}", about)]


def _cloudformation(request: Request, _: object) -> list[Call]:
    action, asked = f"cloudformation:{request.operation}", request.members
    if request.operation.startswith(("ListExports", "ListImports", "ListStacks")):
        return [call(action)]
    name = asked.get("StackName") or asked["ChangeSetName"]
    if name.startswith("arn:"):
        return [call(action, name)]
    found = [call(action, f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{name}/*")]
    if "Transform: AWS::Serverless" in asked.get("TemplateBody", ""):
        found.append(
            call(action, f"arn:aws:cloudformation:{REGION}:aws:transform/Serverless-2016-10-31")
        )
    return found


def _ecr(request: Request, _: object) -> list[Call]:
    name = request.members.get("repositoryName")
    about = f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/{name}" if name else "*"
    return [call(f"ecr:{request.operation}", about)]


#: member of a request of ECS with the things that it is about -> their kind
_ECS_MEMBERS = {
    "tasks": "task",
    "task": "task",
    "services": "service",
    "containerInstances": "container-instance",
    "clusters": "cluster",
}


def _ecs(request: Request, _: object) -> list[Call]:
    operation, asked = request.operation, request.members
    action = f"ecs:{operation}"
    cluster = asked.get("cluster", "default").rpartition("/")[2]
    context = {"ecs__cluster": _ecs_arn("cluster", cluster)}
    if operation == "RunTask":
        definition = _ecs_arn("task-definition", asked["taskDefinition"])
        revision = "" if definition.rpartition("/")[2].count(":") else ":1"
        found = [call(action, definition + revision, **context)]
        return found + _ecs_tags(asked, operation, _ecs_arn("task", f"{cluster}/new"))
    if operation == "RegisterTaskDefinition":
        found = [call(action)]
        arn = _ecs_arn("task-definition", f"{asked['family']}:1")
        found += _ecs_tags(asked, operation, arn)
        roles = [asked[role] for role in ("taskRoleArn", "executionRoleArn") if asked.get(role)]
        service = {"iam__PassedToService": "ecs-tasks.amazonaws.com"}
        return found + [call("iam:PassRole", role, **service) for role in roles]
    if operation == "ListTasks":
        return [call(action, **context)]
    for member, kind in _ECS_MEMBERS.items():
        if member in asked:
            names = asked[member] if isinstance(asked[member], list) else [asked[member]]
            inside = "" if kind == "cluster" else f"{cluster}/"
            return [call(action, _ecs_arn(kind, name, inside), **context) for name in names]
    return [call(action)]


def _ecs_arn(kind: str, name: str, inside: str = "") -> str:
    is_arn = name.startswith("arn:")
    return name if is_arn else f"arn:aws:ecs:{REGION}:{ACCOUNT}:{kind}/{inside}{name}"


def _ecs_tags(asked: Mapping[str, Any], operation: str, arn: str) -> list[Call]:
    return [call("ecs:TagResource", arn, ecs__CreateAction=operation)] if asked.get("tags") else []


def _other(request: Request, _: object) -> list[Call]:
    """What is looked at by doctors and administrators, and knows no resource or is asked for by
    its kind only.
    """
    if request.operation == "CreateServiceLinkedRole":
        service = request.members["AWSServiceName"]
        role = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{service}/AWSServiceRoleForIt"
        return [call("iam:CreateServiceLinkedRole", role, iam__AWSServiceName=service)]
    prefix = {"monitoring": "cloudwatch", "service-quotas": "servicequotas"}.get(
        request.service, request.service
    )
    return (
        [] if request.operation == "GetCallerIdentity" else [call(f"{prefix}:{request.operation}")]
    )
