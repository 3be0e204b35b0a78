"""CloudFormation of the endpoint: stacks of AWS Batch's resources, from creation to deletion.

The documentation of the resource types says what AWS does, for example
https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/AWS_Batch.html
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("moto")

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from werkzeug.serving import make_server

from batchyard.emulator import moto_adapter
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.moto_cloudformation import templates

REGION = "us-east-1"
Document = dict[str, Any]


class Batch:
    """The operations of AWS Batch that CloudFormation calls, in memory, with its rules of order."""

    #: kind -> the members that have its name and its ARN
    MEMBERS: ClassVar[dict[str, tuple[str, str, str]]] = {
        "ComputeEnvironment": (
            "computeEnvironmentName",
            "computeEnvironmentArn",
            "compute-environment",
        ),
        "JobQueue": ("jobQueueName", "jobQueueArn", "job-queue"),
        "SchedulingPolicy": ("name", "arn", "scheduling-policy"),
        "ConsumableResource": (
            "consumableResourceName",
            "consumableResourceArn",
            "consumable-resource",
        ),
    }

    def __init__(self) -> None:
        self.calls: list[tuple[str, Document]] = []
        #: ARN -> what was asked for
        self.resources: dict[str, Document] = {}
        self.inactive: list[str] = []

    def __call__(self, region: str, operation: str, request: Document) -> Document:
        assert region == REGION, "the stack is in this region"
        self.calls.append((operation, copy.deepcopy(request)))
        verb, kind = re.match(
            "(Create|Update|Delete|Describe|Register|Deregister|Tag|Untag)(.*?)s?$", operation
        ).groups()  # type: ignore[union-attr]
        answer: Document = getattr(self, f"_{verb.lower()}")(kind, request)
        return answer

    def operations(self) -> list[str]:
        return [operation for operation, _ in self.calls]

    def of(self, kind: str) -> dict[str, Document]:
        return {arn: document for arn, document in self.resources.items() if f":{kind}/" in arn}

    def only(self, kind: str) -> Document:
        (document,) = self.of(kind).values()
        return document

    def _create(self, kind: str, request: Document) -> Document:
        name, arn_member, word = self.MEMBERS[kind]
        arn = f"arn:aws:batch:{REGION}:123456789012:{word}/{request[name]}"
        if arn in self.resources:
            raise InvalidRequestError("Object already exists")
        for entry in request.get("computeEnvironmentOrder", []):
            self._existing(entry["computeEnvironment"])
        self.resources[arn] = {"state": "ENABLED", **request}
        return {name: request[name], arn_member: arn}

    def _existing(self, arn: str) -> Document:
        if arn not in self.resources:
            raise InvalidRequestError(f"{arn} does not exist")
        return self.resources[arn]

    def _arn(self, request: Document) -> str:
        members = ("computeEnvironment", "jobQueue", "arn", "consumableResource")
        return str(next(request[member] for member in members if member in request))

    def _update(self, kind: str, request: Document) -> Document:
        document = self._existing(self._arn(request))
        for entry in request.get("computeEnvironmentOrder", []):
            self._existing(entry["computeEnvironment"])
        resources = {**document.get("computeResources", {}), **request.get("computeResources", {})}
        document.update({**request, **({"computeResources": resources} if resources else {})})
        return {}

    def _delete(self, kind: str, request: Document) -> Document:
        arn = self._arn(request)
        if (
            kind in ("ComputeEnvironment", "JobQueue")
            and self._existing(arn)["state"] != "DISABLED"
        ):
            raise InvalidRequestError("Cannot delete, it must be disabled first")
        if any(
            arn in json.dumps(queue)
            for other, queue in self.of("job-queue").items()
            if other != arn
        ):
            raise InvalidRequestError("Cannot delete, found existing JobQueue relationship")
        del self.resources[arn]
        return {}

    def _describe(self, kind: str, request: Document) -> Document:
        if kind == "ConsumableResource":
            document = self._existing(request["consumableResource"])
            return {
                **document,
                "availableQuantity": document["totalQuantity"],
                "inUseQuantity": 0,
                "createdAt": 1,
            }
        member = kind[0].lower() + kind[1:] + "s"
        return {member: [self.resources[arn] for arn in request[member] if arn in self.resources]}

    def _register(self, kind: str, request: Document) -> Document:
        name = request["jobDefinitionName"]
        if not request.get("containerProperties", {}).get("image"):
            raise InvalidRequestError("containerProperties.image must not be null")
        revision = 1 + len([arn for arn in self.of("job-definition") if f"/{name}:" in arn])
        arn = f"arn:aws:batch:{REGION}:123456789012:job-definition/{name}:{revision}"
        self.resources[arn] = request
        return {"jobDefinitionArn": arn, "revision": revision}

    def _deregister(self, kind: str, request: Document) -> Document:
        self.inactive.append(request["jobDefinition"])
        return {}

    def _tag(self, kind: str, request: Document) -> Document:
        self._existing(request["resourceArn"]).setdefault("tags", {}).update(request["tags"])
        return {}

    def _untag(self, kind: str, request: Document) -> Document:
        for key in request["tagKeys"]:
            del self._existing(request["resourceArn"])["tags"][key]
        return {}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    class Quiet(moto_adapter.request_handler()):  # type: ignore[misc]
        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    server = make_server(
        "127.0.0.1", 0, moto_adapter.application(), threaded=True, request_handler=Quiet
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def batch() -> Batch:
    batch = Batch()
    moto_adapter.use_batch(batch)
    # No task runs, so that no cluster is in use.
    moto_adapter.use_ecs(lambda region, operation, request: {})
    return batch


class Stacks:
    """CloudFormation through boto3, with short words for what the tests do again and again."""

    def __init__(self, port: int, name: str) -> None:
        self.port = port
        self.name = name
        self.api = self.client("cloudformation")

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=f"http://127.0.0.1:{self.port}",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name=REGION,
            config=Config(retries={"max_attempts": 0}),
        )

    def create(self, resources: Document, name: str | None = None, **rest: Any) -> str:
        body = rest.pop("body", None) or text(resources, **rest.pop("blocks", {}))
        self.api.create_stack(StackName=name or self.name, TemplateBody=body, **rest)
        return self.status(name)

    def update(self, resources: Document, name: str | None = None, **rest: Any) -> str:
        body = text(resources, **rest.pop("blocks", {}))
        self.api.update_stack(StackName=name or self.name, TemplateBody=body, **rest)
        return self.status(name)

    def delete(self, name: str | None = None) -> str:
        stack_id = self.describe(name)["StackId"]
        self.api.delete_stack(StackName=name or self.name)
        return self.status(stack_id)

    def describe(self, name: str | None = None) -> Document:
        stack: Document = self.api.describe_stacks(StackName=name or self.name)["Stacks"][0]
        return stack

    def status(self, name: str | None = None) -> str:
        return str(self.describe(name)["StackStatus"])

    def outputs(self, name: str | None = None) -> dict[str, str]:
        return {
            output["OutputKey"]: output["OutputValue"]
            for output in self.describe(name).get("Outputs", [])
        }

    def reasons(self, status: str, name: str | None = None) -> dict[str, str]:
        """Logical id -> reason, of the events with that status."""
        events = self.api.describe_stack_events(StackName=name or self.name)["StackEvents"]
        return {
            e["LogicalResourceId"]: e.get("ResourceStatusReason", "")
            for e in events
            if e["ResourceStatus"] == status
        }

    def physical(self, name: str | None = None) -> dict[str, str]:
        found = self.api.describe_stack_resources(StackName=name or self.name)["StackResources"]
        return {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in found}


@pytest.fixture
def stacks(port: int, batch: Batch) -> Iterator[Stacks]:
    """moto's state is the process's, so each test has names of its own and tidies up."""
    stacks = Stacks(port, f"stack-{uuid.uuid4().hex[:8]}")
    yield stacks
    for _ in range(3):
        for stack in stacks.api.describe_stacks()["Stacks"]:
            stacks.api.delete_stack(StackName=stack["StackId"])
    assert stacks.api.describe_stacks()["Stacks"] == []


def text(resources: Document, **blocks: Any) -> str:
    return json.dumps({"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources, **blocks})


def environment(**properties: Any) -> Document:
    resources = {
        "Type": "EC2",
        "MaxvCpus": 16,
        "Subnets": ["subnet-1"],
        "SecurityGroupIds": ["sg-1"],
        "InstanceRole": "role",
        "InstanceTypes": ["g5"],
        "AllocationStrategy": "BEST_FIT_PROGRESSIVE",
    }
    given = properties.pop("ComputeResources", {})
    return {
        "Type": "AWS::Batch::ComputeEnvironment",
        "Properties": {"Type": "MANAGED", "ComputeResources": {**resources, **given}, **properties},
    }


def queue(**properties: Any) -> Document:
    order = [{"Order": 1, "ComputeEnvironment": {"Ref": "Environment"}}]
    return {
        "Type": "AWS::Batch::JobQueue",
        "Properties": {"Priority": 1, "ComputeEnvironmentOrder": order, **properties},
    }


def definition(image: str = "busybox", **properties: Any) -> Document:
    container = {"Image": image, "ResourceRequirements": [{"Type": "VCPU", "Value": "1"}]}
    return {
        "Type": "AWS::Batch::JobDefinition",
        "Properties": {"Type": "container", "ContainerProperties": container, **properties},
    }


# -- making ----------------------------------------------------------------------------------------


def test_every_resource_of_batch_goes_through_its_api(stacks: Stacks, batch: Batch) -> None:
    body = """
AWSTemplateFormatVersion: 2010-09-09
Parameters:
  Most: {Type: Number, Default: 16}
  Subnets: {Type: CommaDelimitedList, Default: "subnet-1, subnet-2"}
  IsSpot: {Type: String, Default: "no", AllowedValues: ["yes", "no"]}
Conditions:
  Spot: !Equals [!Ref IsSpot, "yes"]
Resources:
  Queue:
    Type: AWS::Batch::JobQueue
    Properties:
      Priority: 7
      ComputeEnvironmentOrder: [{Order: 1, ComputeEnvironment: !Ref Environment}]
      SchedulingPolicyArn: !GetAtt Policy.Arn
      Tags: {team: imaging}
  Environment:
    Type: AWS::Batch::ComputeEnvironment
    Properties:
      Type: MANAGED
      ReplaceComputeEnvironment: false
      UpdatePolicy: {TerminateJobsOnUpdate: true}
      ComputeResources:
        Type: !If [Spot, SPOT, EC2]
        MaxvCpus: !Ref Most
        Subnets: !Ref Subnets
        SecurityGroupIds: [sg-1, !If [Spot, sg-2, !Ref "AWS::NoValue"]]
        InstanceRole: role
        BidPercentage: !If [Spot, 80, !Ref "AWS::NoValue"]
  Policy:
    Type: AWS::Batch::SchedulingPolicy
    Properties:
      FairsharePolicy:
        ShareDecaySeconds: "60"
        ShareDistribution: [{ShareIdentifier: a, WeightFactor: 0.5}]
  Tokens:
    Type: AWS::Batch::ConsumableResource
    Properties: {ConsumableResourceName: tokens, ResourceType: REPLENISHABLE, TotalQuantity: 4}
  Definition:
    Type: AWS::Batch::JobDefinition
    Properties:
      Type: container
      JobDefinitionName: steps
      PlatformCapabilities: [EC2]
      Timeout: {AttemptDurationSeconds: 60}
      ContainerProperties:
        Image: busybox
        ReadonlyRootFilesystem: true
        Environment: [{Name: WHERE, Value: !Sub "${AWS::Region} ${!literal}"}]
        ResourceRequirements: [{Type: VCPU, Value: 1}, {Type: MEMORY, Value: "512"}]
  Other: {Type: AWS::Batch::JobQueue, Condition: Spot, Properties: {Priority: 1}}
Outputs:
  Environment: {Value: !GetAtt Environment.ComputeEnvironmentArn}
  Queue: {Value: !GetAtt Queue.JobQueueArn}
  Definition: {Value: !Ref Definition}
  Tokens: {Value: !GetAtt Tokens.ConsumableResourceArn}
  Free: {Value: !GetAtt Tokens.AvailableQuantity}
"""
    assert stacks.create({}, body=body) == "CREATE_COMPLETE"
    # Each before those that refer to it, whatever their order in the template.
    assert batch.operations().index("CreateComputeEnvironment") < batch.operations().index(
        "CreateJobQueue"
    )
    environment = batch.only("compute-environment")
    assert environment["computeResources"] == {
        "type": "EC2",
        "maxvCpus": 16,
        "subnets": ["subnet-1", "subnet-2"],
        "securityGroupIds": ["sg-1"],
        "instanceRole": "role",
    }
    outputs = stacks.outputs()
    assert batch.only("job-queue") == {
        "state": "ENABLED",
        "jobQueueName": batch.only("job-queue")["jobQueueName"],
        "priority": 7,
        "computeEnvironmentOrder": [{"order": 1, "computeEnvironment": outputs["Environment"]}],
        "schedulingPolicyArn": next(iter(batch.of("scheduling-policy"))),
        "tags": {"team": "imaging"},
    }
    shares = batch.only("scheduling-policy")["fairsharePolicy"]
    assert shares == {
        "shareDecaySeconds": 60,
        "shareDistribution": [{"shareIdentifier": "a", "weightFactor": 0.5}],
    }
    assert batch.only("consumable-resource")["totalQuantity"] == 4
    assert batch.only("job-definition") == {
        "type": "container",
        "jobDefinitionName": "steps",
        "platformCapabilities": ["EC2"],
        "timeout": {"attemptDurationSeconds": 60},
        "containerProperties": {
            "image": "busybox",
            "readonlyRootFilesystem": True,
            "environment": [{"name": "WHERE", "value": f"{REGION} ${{literal}}"}],
            "resourceRequirements": [
                {"type": "VCPU", "value": "1"},
                {"type": "MEMORY", "value": "512"},
            ],
        },
    }
    # A Ref is the ARN; a name that was not given is the logical id and sixteen letters and digits.
    assert outputs["Definition"].endswith(":job-definition/steps:1")
    assert outputs["Tokens"].endswith(":consumable-resource/tokens") and outputs["Free"] == "4"
    assert re.fullmatch(r"arn:.*:job-queue/Queue-[A-Za-z0-9]{16}", outputs["Queue"])
    assert stacks.physical()["Queue"] == outputs["Queue"]
    assert "Other" not in stacks.physical()


@pytest.mark.parametrize("how", ["stack", "change set"])
def test_a_refused_resource_fails_the_stack_and_undoes_it(
    stacks: Stacks, batch: Batch, how: str
) -> None:
    batch.resources["arn:aws:batch:us-east-1:123456789012:job-queue/taken"] = {"state": "ENABLED"}
    bucket = f"{stacks.name}-bucket"
    resources = {
        "Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": bucket}},
        "Environment": environment(),
        "Queue": queue(JobQueueName="taken"),
    }
    if how == "stack":
        assert stacks.create(resources) == "ROLLBACK_COMPLETE"
    else:
        given = {"StackName": stacks.name, "ChangeSetName": "c"}
        stacks.api.create_change_set(**given, ChangeSetType="CREATE", TemplateBody=text(resources))
        stacks.api.execute_change_set(**given)
        assert stacks.status() == "ROLLBACK_COMPLETE"
        assert stacks.api.describe_change_set(**given)["ExecutionStatus"] == "EXECUTE_FAILED"
    message = (
        "Resource handler returned message: "
        '"Object already exists (Service: Batch, Status Code: 400)"'
    )
    assert stacks.reasons("CREATE_FAILED") == {"Queue": message}
    assert message in stacks.describe()["StackStatusReason"]
    assert list(batch.resources) == ["arn:aws:batch:us-east-1:123456789012:job-queue/taken"]
    assert bucket not in [b["Name"] for b in stacks.client("s3").list_buckets()["Buckets"]]
    # Looking at it makes nothing, and it can only be deleted.
    assert stacks.physical() == {} and stacks.outputs() == {}
    with pytest.raises(ClientError, match="is in ROLLBACK_COMPLETE state and can not be updated"):
        stacks.update({"Environment": environment()})
    assert stacks.delete() == "DELETE_COMPLETE"


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (environment(ComputeResources={"MaxVCpus": 4}), "ComputeResources.MaxVCpus"),
        (definition(ContainerPropertys={}), "ContainerPropertys"),
        (definition(ContainerProperties={"Image": "x", "VCpus": 1}), "ContainerProperties.VCpus"),
        (
            queue(ComputeEnvironmentOrder=[{"Order": 1, "Environment": "x"}]),
            "ComputeEnvironmentOrder.Environment",
        ),
    ],
)
def test_a_misspelled_property_is_refused(
    stacks: Stacks, batch: Batch, resource: Document, path: str
) -> None:
    assert stacks.create({"It": resource}) == "ROLLBACK_COMPLETE"
    assert stacks.reasons("CREATE_FAILED")["It"].endswith(
        f"extraneous key [{path}] is not permitted"
    )
    assert batch.calls == []


# -- changing --------------------------------------------------------------------------------------


def test_scaling_changes_an_environment_in_place(stacks: Stacks, batch: Batch) -> None:
    resources = {"Environment": environment(State="DISABLED"), "Queue": queue()}
    stacks.create(resources)
    arn = stacks.physical()["Environment"]
    batch.calls.clear()
    resources["Environment"] = environment(ComputeResources={"MaxvCpus": 64, "MinvCpus": 2})
    assert stacks.update(resources) == "UPDATE_COMPLETE"
    change = {
        "computeEnvironment": arn,
        "state": "ENABLED",
        "computeResources": {"maxvCpus": 64, "minvCpus": 2},
    }
    assert batch.calls == [("UpdateComputeEnvironment", change)]


def test_what_asks_for_new_instances_replaces_an_environment(stacks: Stacks, batch: Batch) -> None:
    resources = {"Environment": environment(), "Queue": queue()}
    stacks.create(resources)
    before = stacks.physical()
    batch.calls.clear()
    resources["Environment"] = environment(ComputeResources={"InstanceTypes": ["g6"]})
    assert stacks.update(resources) == "UPDATE_COMPLETE"
    after = stacks.physical()
    # The queue, unchanged in the template, gets the new environment before the old one is deleted.
    assert after["Environment"] != before["Environment"] and after["Queue"] == before["Queue"]
    assert (
        batch.only("job-queue")["computeEnvironmentOrder"][0]["computeEnvironment"]
        == after["Environment"]
    )
    assert list(batch.of("compute-environment")) == [after["Environment"]]
    assert batch.operations() == [
        "CreateComputeEnvironment",
        "UpdateJobQueue",
        "DescribeComputeEnvironments",
        "UpdateComputeEnvironment",
        "DeleteComputeEnvironment",
    ]


def test_without_replacement_the_environment_is_told_everything(
    stacks: Stacks, batch: Batch
) -> None:
    given = {"ReplaceComputeEnvironment": False}
    stacks.create(
        {
            "Environment": environment(
                **given, ComputeResources={"Ec2KeyPair": "key", "PlacementGroup": "g"}
            )
        }
    )
    arn = stacks.physical()["Environment"]
    batch.calls.clear()
    changed = environment(
        **given, ComputeResources={"InstanceTypes": ["g6"], "Ec2KeyPair": "other"}
    )
    assert stacks.update({"Environment": changed}) == "UPDATE_COMPLETE"
    # What was taken away is said by an empty value, as the API has it.
    resources = {"instanceTypes": ["g6"], "ec2KeyPair": "other", "placementGroup": ""}
    assert batch.calls == [
        ("UpdateComputeEnvironment", {"computeEnvironment": arn, "computeResources": resources})
    ]


@pytest.mark.parametrize(
    "change", [{"Tags": {"a": "b"}}, {"ComputeResources": {"SpotIamFleetRole": "fleet"}}]
)
def test_some_properties_always_replace(stacks: Stacks, batch: Batch, change: Document) -> None:
    stacks.create({"Environment": environment(ReplaceComputeEnvironment=False)})
    before = stacks.physical()["Environment"]
    stacks.update({"Environment": environment(ReplaceComputeEnvironment=False, **change)})
    after = stacks.physical()["Environment"]
    assert after != before
    assert list(batch.of("compute-environment")) == [after]


def test_an_environment_with_a_name_of_its_own_cannot_be_replaced(
    stacks: Stacks, batch: Batch
) -> None:
    named = {"ComputeEnvironmentName": "mine"}
    resources = {"Environment": environment(**named), "Queue": queue(), "Tokens": tokens(4)}
    stacks.create(resources)
    before = copy.deepcopy(batch.resources)
    changed = {
        "Environment": environment(**named, ComputeResources={"InstanceTypes": ["g6"]}),
        "Queue": queue(Priority=5),
        "Tokens": tokens(8),
        "More": definition(),
    }
    assert stacks.update(changed) == "UPDATE_ROLLBACK_COMPLETE"
    assert (
        "custom-named resource requires replacing. Rename mine"
        in stacks.reasons("UPDATE_FAILED")["Environment"]
    )
    # All is as before: what had been changed is changed back, what had been made is gone.
    assert batch.of("compute-environment") == {
        k: v for k, v in before.items() if ":compute-environment/" in k
    }
    assert batch.only("job-queue")["priority"] == 1
    assert batch.only("consumable-resource")["totalQuantity"] == 4
    assert all(arn in batch.inactive for arn in batch.of("job-definition"))
    assert sorted(stacks.physical()) == ["Environment", "Queue", "Tokens"]
    # And from there one can go on.
    resources["Queue"] = queue(Priority=6)
    assert stacks.update(resources) == "UPDATE_COMPLETE"
    assert batch.only("job-queue")["priority"] == 6


def tokens(quantity: int, **properties: Any) -> Document:
    given = {"ResourceType": "REPLENISHABLE", "TotalQuantity": quantity, **properties}
    return {"Type": "AWS::Batch::ConsumableResource", "Properties": given}


def test_a_changed_definition_is_a_new_revision_and_the_old_one_is_deregistered(
    stacks: Stacks, batch: Batch
) -> None:
    blocks = {"Outputs": {"Definition": {"Value": {"Ref": "Definition"}}}}
    stacks.create({"Definition": definition("one")}, blocks=blocks)
    first = stacks.outputs()["Definition"]
    stacks.update({"Definition": definition("two")}, blocks=blocks)
    second = stacks.outputs()["Definition"]
    assert (first[-2:], second[-2:]) == (":1", ":2") and first[:-2] == second[:-2]
    assert batch.inactive == [first]

    kept = {"ResourceRetentionPolicy": {"SkipDeregisterOnUpdate": True}}
    stacks.update({"Definition": definition("three", **kept)}, blocks=blocks)
    assert stacks.outputs()["Definition"].endswith(":3") and batch.inactive == [first]
    assert stacks.delete() == "DELETE_COMPLETE"
    assert batch.inactive == [first, f"{first[:-2]}:3"]


def test_a_definition_that_is_refused_leaves_the_old_revision(stacks: Stacks, batch: Batch) -> None:
    stacks.create({"Definition": definition("one")})
    assert stacks.update({"Definition": definition("")}) == "UPDATE_ROLLBACK_COMPLETE"
    assert "image must not be null" in stacks.reasons("UPDATE_FAILED")["Definition"]
    assert batch.inactive == [] and stacks.physical()["Definition"].endswith(":1")
    # Nor does a revision that goes when the rest of the update fails.
    kept = {"ResourceRetentionPolicy": {"SkipDeregisterOnUpdate": True}}
    nowhere = [{"Order": 1, "ComputeEnvironment": "nowhere"}]
    changed = {
        "Definition": definition("two", **kept),
        "Queue": queue(ComputeEnvironmentOrder=nowhere),
    }
    assert stacks.update(changed) == "UPDATE_ROLLBACK_COMPLETE"
    first = stacks.physical()["Definition"]
    assert first.endswith(":1") and batch.inactive == [f"{first[:-2]}:2"]
    stacks.delete()
    assert batch.inactive[-1] == first


def test_queues_policies_and_consumables_change_in_place(stacks: Stacks, batch: Batch) -> None:
    def policy(decay: int, **properties: Any) -> Document:
        given = {"FairsharePolicy": {"ShareDecaySeconds": decay}, **properties}
        return {"Type": "AWS::Batch::SchedulingPolicy", "Properties": given}

    limits = [
        {"Action": "CANCEL", "MaxTimeSeconds": 600, "Reason": "CAPACITY", "State": "RUNNABLE"}
    ]
    first = {
        "Environment": environment(),
        "Queue": queue(
            State="DISABLED", Tags={"a": "1", "b": "2"}, JobStateTimeLimitActions=limits
        ),
        "Policy": policy(60),
        "Tokens": tokens(4),
    }
    stacks.create(first)
    before = stacks.physical()
    batch.calls.clear()
    second = {
        "Environment": environment(),
        "Queue": queue(Priority=9, Tags={"a": "3"}),
        "Policy": policy(120, Tags={"x": "y"}),
        "Tokens": tokens(8),
    }
    assert stacks.update(second) == "UPDATE_COMPLETE"
    assert stacks.physical() == before
    changed = batch.only("job-queue")
    assert (changed["priority"], changed["state"], changed["tags"]) == (9, "ENABLED", {"a": "3"})
    assert changed["jobStateTimeLimitActions"] == []
    assert batch.only("scheduling-policy")["fairsharePolicy"] == {"shareDecaySeconds": 120}
    assert batch.only("scheduling-policy")["tags"] == {"x": "y"}
    set_to_8 = {"consumableResource": before["Tokens"], "operation": "SET", "quantity": 8}
    assert ("UpdateConsumableResource", set_to_8) in batch.calls
    assert "UpdateComputeEnvironment" not in batch.operations()


def test_what_is_taken_out_of_a_template_goes_after_what_used_it_has_changed(
    stacks: Stacks, batch: Batch
) -> None:
    order = [
        {"Order": n, "ComputeEnvironment": {"Ref": name}}
        for n, name in ((1, "Environment"), (2, "Second"))
    ]
    resources = {
        "Environment": environment(),
        "Second": environment(),
        "Queue": queue(ComputeEnvironmentOrder=order),
    }
    stacks.create(resources)
    kept = stacks.physical()["Environment"]
    assert stacks.update({"Environment": environment(), "Queue": queue()}) == "UPDATE_COMPLETE"
    assert list(batch.of("compute-environment")) == [kept]
    assert sorted(stacks.physical()) == ["Environment", "Queue"]


def test_a_parameter_alone_changes_what_refers_to_it(stacks: Stacks, batch: Batch) -> None:
    resources = {
        "Environment": environment(ComputeResources={"MaxvCpus": {"Ref": "Most"}}),
        "Queue": queue(),
    }
    blocks = {
        "Parameters": {
            "Most": {"Type": "Number", "Default": 16},
            "Zones": {"Type": "CommaDelimitedList"},
        }
    }
    zones = {"ParameterKey": "Zones", "ParameterValue": "a,b"}
    stacks.create(resources, blocks=blocks, Parameters=[zones])
    batch.calls.clear()
    more = [
        {"ParameterKey": "Most", "ParameterValue": "32"},
        {"ParameterKey": "Zones", "UsePreviousValue": True},
    ]
    stacks.api.update_stack(StackName=stacks.name, UsePreviousTemplate=True, Parameters=more)
    assert batch.operations() == ["UpdateComputeEnvironment"]
    assert batch.only("compute-environment")["computeResources"]["maxvCpus"] == 32
    given = {p["ParameterKey"]: p["ParameterValue"] for p in stacks.describe()["Parameters"]}
    assert given == {"Most": "32", "Zones": "a,b"}
    with pytest.raises(ClientError, match="No updates are to be performed"):
        stacks.api.update_stack(StackName=stacks.name, UsePreviousTemplate=True, Parameters=more)


def test_values_that_the_template_does_not_allow_are_refused(stacks: Stacks) -> None:
    mine = {"Fn::Not": [{"Fn::Equals": [{"Ref": "Vpc"}, ""]}]}
    assertion = {
        "Assert": {"Fn::Not": [{"Fn::Contains": [{"Ref": "Nets"}, ""]}]},
        "AssertDescription": "give Nets",
    }
    blocks = {
        "Parameters": {
            "Vpc": {"Type": "String", "Default": "", "AllowedPattern": "(vpc-[0-9a-f]+)?"},
            "Nets": {"Type": "CommaDelimitedList", "Default": ""},
        },
        "Rules": {"Together": {"RuleCondition": mine, "Assertions": [assertion]}},
    }
    resources = {"Bucket": {"Type": "AWS::S3::Bucket"}}

    def given(**values: str) -> list[Document]:
        return [{"ParameterKey": name, "ParameterValue": value} for name, value in values.items()]

    with pytest.raises(ClientError, match="Parameter 'Vpc' failed to satisfy constraint"):
        stacks.create(resources, blocks=blocks, Parameters=given(Vpc="mine"))
    with pytest.raises(ClientError, match="give Nets"):
        stacks.create(resources, blocks=blocks, Parameters=given(Vpc="vpc-1"))
    assert (
        stacks.create(resources, blocks=blocks, Parameters=given(Vpc="vpc-1", Nets="a,b"))
        == "CREATE_COMPLETE"
    )
    with pytest.raises(ClientError, match="give Nets"):
        stacks.update(resources, blocks=blocks, Parameters=given(Vpc="vpc-2", Nets=""))


# -- deleting --------------------------------------------------------------------------------------


def test_deleting_disables_first_and_goes_backwards(stacks: Stacks, batch: Batch) -> None:
    kept = {**tokens(1), "DeletionPolicy": "Retain"}
    stacks.create(
        {"Environment": environment(), "Queue": queue(), "Definition": definition(), "Kept": kept}
    )
    arn = stacks.physical()["Kept"]
    batch.calls.clear()
    assert stacks.delete() == "DELETE_COMPLETE"
    assert list(batch.of("consumable-resource")) == [arn]
    assert list(batch.of("job-definition")) == batch.inactive
    assert batch.of("job-queue") == {} and batch.of("compute-environment") == {}
    steps = [operation for operation in batch.operations() if "Describe" not in operation]
    assert [step for step in steps if "Definition" not in step] == [
        "UpdateJobQueue",
        "DeleteJobQueue",
        "UpdateComputeEnvironment",
        "DeleteComputeEnvironment",
    ]


def test_what_cannot_be_deleted_fails_the_deletion(stacks: Stacks, batch: Batch) -> None:
    bucket = f"{stacks.name}-b"
    resources = {
        "Environment": environment(),
        "Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": bucket}},
    }
    stacks.create(resources)
    arn = stacks.physical()["Environment"]
    order = [{"order": 1, "computeEnvironment": arn}]
    batch(
        REGION,
        "CreateJobQueue",
        {"jobQueueName": "by-hand", "priority": 1, "computeEnvironmentOrder": order},
    )
    s3 = stacks.client("s3")
    s3.put_object(Bucket=bucket, Key="k", Body=b"")
    assert stacks.delete() == "DELETE_FAILED"
    reasons = stacks.reasons("DELETE_FAILED")
    assert "found existing JobQueue relationship" in reasons["Environment"]
    assert "is not empty" in reasons["Bucket"]
    assert sorted(stacks.physical()) == ["Bucket", "Environment"]

    batch.resources = {
        arn: document for arn, document in batch.resources.items() if "by-hand" not in arn
    }
    s3.delete_object(Bucket=bucket, Key="k")
    assert stacks.delete() == "DELETE_COMPLETE"


def test_what_somebody_deleted_by_hand_is_deleted(stacks: Stacks, batch: Batch) -> None:
    stacks.create({"Environment": environment(), "Queue": queue()})
    batch.resources.clear()
    assert stacks.delete() == "DELETE_COMPLETE"


def test_a_bucket_and_a_group_that_somebody_deleted_by_hand_are_deleted(stacks: Stacks) -> None:
    group = {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "a group"}}
    stacks.create({"Bucket": {"Type": "AWS::S3::Bucket"}, "Group": group})
    there = stacks.physical()
    stacks.client("s3").delete_bucket(Bucket=there["Bucket"])
    stacks.client("ec2").delete_security_group(GroupId=there["Group"])
    assert stacks.delete() == "DELETE_COMPLETE"


# -- change sets, outputs, exports -----------------------------------------------------------------


def test_a_change_set_makes_outputs_and_exports_and_imports_them(
    stacks: Stacks, batch: Batch
) -> None:
    export = {"Name": {"Fn::Sub": "${AWS::StackName}-environment"}}
    blocks = {"Outputs": {"Arn": {"Value": {"Ref": "Environment"}, "Export": export}}}
    stacks.api.create_change_set(
        StackName=stacks.name,
        ChangeSetName="first",
        ChangeSetType="CREATE",
        TemplateBody=text({"Environment": environment()}, **blocks),
    )
    assert stacks.status() == "REVIEW_IN_PROGRESS" and batch.calls == []
    described = stacks.api.describe_change_set(StackName=stacks.name, ChangeSetName="first")
    assert [c["ResourceChange"]["Action"] for c in described["Changes"]] == ["Add"]
    stacks.api.execute_change_set(StackName=stacks.name, ChangeSetName="first")
    assert stacks.status() == "CREATE_COMPLETE"
    arn = stacks.outputs()["Arn"]
    exports = {e["Name"]: e["Value"] for e in stacks.api.list_exports()["Exports"]}
    assert exports == {f"{stacks.name}-environment": arn}

    other = f"{stacks.name}-2"
    order = [{"Order": 1, "ComputeEnvironment": {"Fn::ImportValue": f"{stacks.name}-environment"}}]
    stacks.api.create_change_set(
        StackName=other,
        ChangeSetName="first",
        ChangeSetType="CREATE",
        TemplateBody=text({"Queue": queue(ComputeEnvironmentOrder=order)}),
    )
    stacks.api.execute_change_set(StackName=other, ChangeSetName="first")
    assert stacks.status(other) == "CREATE_COMPLETE"
    assert batch.only("job-queue")["computeEnvironmentOrder"][0]["computeEnvironment"] == arn

    # What others use can neither go nor change.
    assert stacks.delete() == "DELETE_FAILED"
    assert (
        f"{stacks.name}-environment cannot be deleted as it is in use by {other}"
        in (stacks.describe()["StackStatusReason"])
    )
    assert stacks.delete(other) == "DELETE_COMPLETE"
    assert stacks.delete() == "DELETE_COMPLETE"
    assert stacks.api.list_exports()["Exports"] == []


def test_an_import_of_nothing_fails_the_stack(stacks: Stacks, batch: Batch) -> None:
    order = [{"Order": 1, "ComputeEnvironment": {"Fn::ImportValue": "nowhere"}}]
    assert stacks.create({"Queue": queue(ComputeEnvironmentOrder=order)}) == "ROLLBACK_COMPLETE"
    assert "No export named nowhere found." in stacks.describe()["StackStatusReason"]


def test_a_change_set_without_changes_fails_and_is_not_executed(
    stacks: Stacks, batch: Batch
) -> None:
    resources = {"Definition": definition()}
    stacks.create(resources)
    batch.calls.clear()
    given = {"StackName": stacks.name, "ChangeSetName": "none"}
    # UPDATE is the type where none is given.
    stacks.api.create_change_set(**given, TemplateBody=text(resources))
    described = stacks.api.describe_change_set(**given)
    assert (described["Status"], described["ExecutionStatus"]) == ("FAILED", "UNAVAILABLE")
    assert "didn't contain changes" in described["StatusReason"]
    with pytest.raises(ClientError, match=r"\(InvalidChangeSetStatus\).*cannot be executed"):
        stacks.api.execute_change_set(**given)
    assert batch.calls == [] and stacks.status() == "CREATE_COMPLETE"


def test_change_sets_belong_to_their_stacks(stacks: Stacks, batch: Batch) -> None:
    other = f"{stacks.name}-2"
    for name, image in ((stacks.name, "one"), (other, "two")):
        stacks.create({"Definition": definition("zero")}, name)
        body = text({"Definition": definition(image), "More": definition(image)})
        stacks.api.create_change_set(StackName=name, ChangeSetName="same", TemplateBody=body)
    described = stacks.api.describe_change_set(StackName=stacks.name, ChangeSetName="same")
    actions = {
        c["ResourceChange"]["LogicalResourceId"]: c["ResourceChange"]["Action"]
        for c in described["Changes"]
    }
    assert actions == {"Definition": "Modify", "More": "Add"}
    stacks.api.execute_change_set(StackName=stacks.name, ChangeSetName="same")
    assert (stacks.status(), stacks.status(other)) == ("UPDATE_COMPLETE", "CREATE_COMPLETE")
    with pytest.raises(ClientError, match=r"\(InvalidChangeSetStatus\)"):
        stacks.api.execute_change_set(StackName=stacks.name, ChangeSetName="same")
    stacks.api.delete_change_set(StackName=other, ChangeSetName="same")
    with pytest.raises(ClientError, match=r"\(ChangeSetNotFound\)"):
        stacks.api.describe_change_set(StackName=other, ChangeSetName="same")


# -- the rest of a template ------------------------------------------------------------------------


def test_networks_providers_and_policies(stacks: Stacks, batch: Batch) -> None:
    body = """
Resources:
  Vpc: {Type: AWS::EC2::VPC, Properties: {CidrBlock: 10.0.0.0/16}}
  Subnet:
    Type: AWS::EC2::Subnet
    Properties:
      VpcId: !Ref Vpc
      CidrBlock: !Select [1, !Cidr [!GetAtt Vpc.CidrBlock, 4, 8]]
      AvailabilityZone: !Select [0, !GetAZs {Ref: "AWS::Region"}]
  Bucket: {Type: AWS::S3::Bucket}
  BucketPolicy:
    Type: AWS::S3::BucketPolicy
    Properties:
      Bucket: !Ref Bucket
      PolicyDocument:
        Version: 2012-10-17
        Statement:
          - {Effect: Allow, Principal: "*", Action: s3:GetObject, Resource: !Sub "${Bucket.Arn}/*"}
  Template:
    Type: AWS::EC2::LaunchTemplate
    Properties: {LaunchTemplateData: {ImageId: ami-12345678, InstanceType: g5.xlarge}}
  Group:
    Type: AWS::AutoScaling::AutoScalingGroup
    Properties:
      MinSize: "0"
      MaxSize: "1"
      VPCZoneIdentifier: [!Ref Subnet]
      LaunchTemplate:
        LaunchTemplateId: !Ref Template
        Version: !GetAtt Template.LatestVersionNumber
  Cluster: {Type: AWS::ECS::Cluster}
  Provider:
    Type: AWS::ECS::CapacityProvider
    Properties:
      AutoScalingGroupProvider:
        AutoScalingGroupArn: !Ref Group
        ManagedScaling: {Status: ENABLED, TargetCapacity: 90}
  Association:
    Type: AWS::ECS::ClusterCapacityProviderAssociations
    Properties:
      Cluster: !Ref Cluster
      CapacityProviders: [!Ref Provider]
      DefaultCapacityProviderStrategy: [{CapacityProvider: !Ref Provider, Weight: 1}]
Outputs:
  Subnet: {Value: !Ref Subnet}
"""
    assert stacks.create({}, body=body) == "CREATE_COMPLETE"
    made = stacks.physical()
    (subnet,) = stacks.client("ec2").describe_subnets(SubnetIds=[made["Subnet"]])["Subnets"]
    assert (subnet["CidrBlock"], subnet["AvailabilityZone"]) == ("10.0.1.0/24", "us-east-1a")
    policy = json.loads(stacks.client("s3").get_bucket_policy(Bucket=made["Bucket"])["Policy"])
    assert policy["Version"] == "2012-10-17"
    assert policy["Statement"][0]["Resource"] == f"arn:aws:s3:::{made['Bucket']}/*"
    ecs = stacks.client("ecs")
    (provider,) = ecs.describe_capacity_providers(capacityProviders=[made["Provider"]])[
        "capacityProviders"
    ]
    assert provider["autoScalingGroupProvider"]["managedScaling"]["targetCapacity"] == 90
    (cluster,) = ecs.describe_clusters(clusters=[made["Cluster"]])["clusters"]
    assert cluster["capacityProviders"] == [made["Provider"]]
    assert cluster["defaultCapacityProviderStrategy"] == [
        {"capacityProvider": made["Provider"], "weight": 1}
    ]

    stacks.api.update_stack(
        StackName=stacks.name, TemplateBody=body.replace("TargetCapacity: 90", "TargetCapacity: 50")
    )
    (provider,) = ecs.describe_capacity_providers(capacityProviders=[made["Provider"]])[
        "capacityProviders"
    ]
    assert provider["autoScalingGroupProvider"]["managedScaling"]["targetCapacity"] == 50
    assert stacks.physical() == made
    assert stacks.delete() == "DELETE_COMPLETE"
    assert (
        ecs.describe_capacity_providers(capacityProviders=[made["Provider"]])["capacityProviders"]
        == []
    )


def test_an_unknown_type_is_passed_over_and_the_events_say_so(stacks: Stacks, batch: Batch) -> None:
    resources = {
        "Odd": {"Type": "AWS::Budgets::Budget", "Properties": {"Budget": {}}},
        "Definition": definition(),
    }
    assert (
        stacks.create(resources, blocks={"Outputs": {"Odd": {"Value": {"Ref": "Odd"}}}})
        == "CREATE_COMPLETE"
    )
    assert "does not know AWS::Budgets::Budget" in stacks.reasons("CREATE_COMPLETE")["Odd"]
    assert stacks.outputs()["Odd"].startswith(f"{stacks.name}-Odd-")

    other = f"{stacks.name}-2"
    resources["Definition"] = definition({"Fn::GetAtt": ["Odd", "Arn"]})  # type: ignore[arg-type]
    assert stacks.create(resources, other) == "ROLLBACK_COMPLETE"
    assert "has no attribute Arn" in stacks.describe(other)["StackStatusReason"]


def test_a_nested_stack(stacks: Stacks, batch: Batch) -> None:
    s3 = stacks.client("s3")
    s3.create_bucket(Bucket="nested-templates")
    inner = text(
        {"Definition": definition({"Ref": "Image"})},  # type: ignore[arg-type]
        Parameters={"Image": {"Type": "String"}},
        Outputs={"Arn": {"Value": {"Ref": "Definition"}}},
    )
    s3.put_object(Bucket="nested-templates", Key="inner.json", Body=inner.encode())
    # The address by number, which moto takes for a bucket called 127.
    url = f"http://127.0.0.1:{stacks.port}/nested-templates/inner.json"

    def outer(image: str) -> Document:
        properties = {"TemplateURL": url, "Parameters": {"Image": image}}
        return {"Inner": {"Type": "AWS::CloudFormation::Stack", "Properties": properties}}

    arn = {"Value": {"Fn::GetAtt": ["Inner", "Outputs.Arn"]}}
    text_of_arn = {"Value": {"Fn::Sub": "${Inner.Outputs.Arn}"}}
    blocks = {"Outputs": {"Arn": arn, "TextOfArn": text_of_arn}}
    assert stacks.create(outer("one"), blocks=blocks) == "CREATE_COMPLETE"
    assert stacks.outputs()["Arn"].endswith(":1")
    assert stacks.outputs()["TextOfArn"] == stacks.outputs()["Arn"]
    assert stacks.update(outer("two"), blocks=blocks) == "UPDATE_COMPLETE"
    assert stacks.outputs()["Arn"].endswith(":2")
    assert stacks.update(outer(""), blocks=blocks) == "UPDATE_ROLLBACK_COMPLETE"
    assert "image must not be null" in stacks.describe()["StackStatusReason"]
    assert stacks.outputs()["Arn"].endswith(":2")

    assert stacks.create(outer(""), f"{stacks.name}-2") == "ROLLBACK_COMPLETE"
    assert len(stacks.api.describe_stacks()["Stacks"]) == 3


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{}", "At least one Resources member must be defined"),
        ("Resources: [", "Template format error"),
        ("Resources: {A: {Properties: {}}}", "must have a Type"),
        (
            "Resources: {A: {Type: 'AWS::S3::Bucket', Properties: {BucketName: !Ref B}}}",
            r"dependencies \[B\]",
        ),
        (
            "Resources: {A: {Type: T, DependsOn: B}, B: {Type: T, DependsOn: A}}",
            "Circular dependency",
        ),
        ("Parameters: {P: {Type: String}}\nResources: {A: {Type: T}}", r"\[P\] must have values"),
        ("Resources: {A: {Type: !!python/object/apply:os.getcwd []}}", "Template format error"),
        ("Resources: {A: {Type: 'AWS::IAM::Role'}}", r"Requires capabilities : \[CAPABILITY_IAM\]"),
    ],
)
def test_a_bad_template_is_refused_before_anything_is_made(
    stacks: Stacks, template: str, message: str
) -> None:
    with pytest.raises(ClientError, match=message):
        stacks.api.create_stack(StackName=stacks.name, TemplateBody=template)
    with pytest.raises(ClientError, match="does not exist"):
        stacks.describe()


def test_templates_are_validated_and_summarised(stacks: Stacks) -> None:
    body = text(
        {
            "Role": {"Type": "AWS::IAM::Role", "Properties": {"RoleName": "r"}},
            "Definition": definition(),
        },
        Description="of two",
        Parameters={"P": {"Type": "Number", "Default": 1}},
    )
    answer = stacks.api.validate_template(TemplateBody=body)
    assert (answer["Description"], answer["Capabilities"]) == ("of two", ["CAPABILITY_NAMED_IAM"])
    assert [parameter["ParameterKey"] for parameter in answer["Parameters"]] == ["P"]
    summary = stacks.api.get_template_summary(TemplateBody=body)
    assert summary["ResourceTypes"] == ["AWS::Batch::JobDefinition", "AWS::IAM::Role"]


@pytest.mark.slow
def test_the_aws_command_deploys_and_deploys_again(
    stacks: Stacks, batch: Batch, tmp_path: Path
) -> None:
    file = tmp_path / "template.json"
    resources = {
        "Environment": environment(ComputeResources={"Subnets": {"Ref": "Subnets"}}),
        "Queue": queue(),
    }
    blocks = {"Parameters": {"Subnets": {"Type": "List<AWS::EC2::Subnet::Id>"}}}
    variables = {
        "PATH": "/usr/bin:/bin",
        "AWS_ENDPOINT_URL": f"http://localhost:{stacks.port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
    }

    def deploy(*args: str) -> subprocess.CompletedProcess[str]:
        file.write_text(text(resources, **blocks))
        words = [
            "cloudformation",
            "deploy",
            "--stack-name",
            stacks.name,
            "--template-file",
            str(file),
            *args,
        ]
        command = [sys.executable, "-m", "awscli", *words]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)

    done = deploy("--parameter-overrides", "Subnets=subnet-1,subnet-2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert batch.only("compute-environment")["computeResources"]["subnets"] == [
        "subnet-1",
        "subnet-2",
    ]
    # The parameters of before are used again.
    resources["Queue"] = queue(Priority=3)
    done = deploy()
    assert done.returncode == 0, done.stdout + done.stderr
    assert batch.only("job-queue")["priority"] == 3
    done = deploy("--no-fail-on-empty-changeset")
    assert done.returncode == 0 and "No changes to deploy" in done.stdout
    resources["Queue"] = queue(
        ComputeEnvironmentOrder=[{"Order": 1, "ComputeEnvironment": "nowhere"}]
    )
    done = deploy()
    assert done.returncode == 255 and stacks.status() == "UPDATE_ROLLBACK_COMPLETE"


# -- templates as values ---------------------------------------------------------------------------


def test_references() -> None:
    value = {
        "a": [{"Ref": "One"}, {"Fn::GetAtt": ["Two", "Arn"]}, {"Fn::GetAtt": "Three.Arn"}],
        "b": {"Fn::Sub": ["${Four}-${given}-${!literal}-${Five.Arn}", {"given": {"Ref": "Six"}}]},
        "DependsOn": ["Seven"],
    }
    assert list(templates.find_references(value)) == [
        "One",
        "Two",
        "Three",
        "Four",
        "Five",
        "Six",
        "Seven",
    ]


def test_changes_between_templates() -> None:
    old = {
        "Resources": {"A": {"Type": "T"}, "B": {"Type": "T"}, "C": {"Type": "T", "P": {"Ref": "X"}}}
    }
    new = {
        "Resources": {"A": {"Type": "U"}, "C": {"Type": "T", "P": {"Ref": "X"}}, "D": {"Type": "T"}}
    }
    assert templates.find_modified(old, new, []) == ["A"]
    assert templates.find_modified(old, new, ["X"]) == ["A", "C"]


def test_a_condition_carries_a_parameters_change_to_what_asks_for_it() -> None:
    conditions = {
        "On": {"Fn::Equals": [{"Ref": "X"}, "1"]},
        "Off": {"Fn::Not": [{"Condition": "On"}]},
    }
    resources = {
        "A": {"Type": "T", "Properties": {"P": [{"Fn::If": ["Off", 1, 2]}]}},
        "B": {"Type": "T", "Properties": {"Condition": {"Bool": {"x": "true"}}}},
    }
    template = {"Conditions": conditions, "Resources": resources}
    assert templates.find_modified(template, template, ["X"]) == ["A"]
    assert templates.find_modified(template, template, ["Y"]) == []
