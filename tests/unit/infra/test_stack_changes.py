"""From DescribeChangeSet to what people weigh, and to lines."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.cli.stacks import change_lines
from batchyard.infra import catalogue, changes
from batchyard.infra.changes import Action, Change


def one(action: str, name: str, kind: str, **more: Any) -> dict[str, Any]:
    found = {"Action": action, "LogicalResourceId": name, "ResourceType": kind, **more}
    return {"Type": "Resource", "ResourceChange": found}


def detail(
    path: str, *, before: str, after: str, recreation: str = "Never", by: str = ""
) -> dict[str, Any]:
    target = {
        "Attribute": "Properties",
        "Name": path.split("/")[2],
        "Path": path,
        "RequiresRecreation": recreation,
        "BeforeValue": before,
        "AfterValue": after,
        "AttributeChangeType": "Modify",
    }
    cause = (
        {"ChangeSource": "ParameterReference", "CausingEntity": by}
        if by
        else {"ChangeSource": "DirectModification"}
    )
    return {"Target": target, "Evaluation": "Static", **cause}


#: as AWS answers with IncludePropertyValues
ANSWER = [
    one(
        "Modify",
        "GpuSpot",
        "AWS::Batch::ComputeEnvironment",
        Replacement="Conditional",
        Scope=["Properties"],
        Details=[
            detail(
                "/Properties/ComputeResources/MaxvCpus",
                before="96",
                after="192",
                by="GpuSpotMaxvCpus",
            ),
            # the same once more, as AWS's guess
            {
                "Target": {
                    "Attribute": "Properties",
                    "Name": "ComputeResources",
                    "RequiresRecreation": "Conditionally",
                },
                "Evaluation": "Dynamic",
                "ChangeSource": "DirectModification",
            },
        ],
    ),
    one(
        "Modify",
        "PipelineImages",
        "AWS::ECR::Repository",
        Replacement="True",
        Details=[
            detail("/Properties/RepositoryName", before="dev/a", after="dev/b", recreation="Always")
        ],
    ),
    one("Add", "JobRole", "AWS::IAM::Role"),
    one("Remove", "Old", "AWS::S3::Bucket", PolicyAction="Retain"),
    one("Remove", "FairShare", "AWS::Batch::SchedulingPolicy", PolicyAction="Delete"),
    {"Type": "Hook"},
]


def test_actions() -> None:
    found = changes.from_change_set(ANSWER)
    assert [(change.action, change.name) for change in found] == [
        (Action.CHANGE, "GpuSpot"),
        (Action.REPLACE, "PipelineImages"),
        (Action.ADD, "JobRole"),
        (Action.REMOVE, "Old"),
        (Action.REMOVE, "FairShare"),
    ]
    assert changes.summarize(found) == "1 added, 1 changed, 1 replaced, 2 removed"


def test_what_changes_from_what_to_what_and_why() -> None:
    spot, images, *_ = changes.from_change_set(ANSWER)
    assert spot.details == ("ComputeResources.MaxvCpus: 96 -> 192 (by GpuSpotMaxvCpus)",)
    assert spot.may_replace
    assert images.details == ("RepositoryName: dev/a -> dev/b, replaces it",)
    assert not images.may_replace


def test_long_values_are_cut_and_stay_on_a_line() -> None:
    script = "#!/bin/bash\n" * 50
    answer = [
        one("Modify", "A", "T", Details=[detail("/Properties/UserData", before=script, after="x")])
    ]
    (change,) = changes.from_change_set(answer)
    assert len(change.details[0]) < 90 and "\n" not in change.details[0]


def test_lines_mark_permissions_and_replacements() -> None:
    lines = change_lines(
        "dev-batch", changes.from_change_set(ANSWER), {"GpuSpotMaxvCpus": ("96", "192")}
    )
    text = "\n".join(lines)
    assert lines[0] == "dev-batch: 1 added, 1 changed, 1 replaced, 2 removed"
    assert "  GpuSpotMaxvCpus: 96 -> 192" in lines
    assert "~ GpuSpot         AWS::Batch::ComputeEnvironment  [may be replaced]" in text
    assert "! PipelineImages  AWS::ECR::Repository  [replaced]" in text
    assert "+ JobRole         AWS::IAM::Role  [IAM]" in text
    assert "it leaves the stack, and stays" in text
    assert lines[-1].endswith("permissions change with JobRole")


def test_a_change_of_outputs_alone_is_a_change() -> None:
    assert "only outputs" in change_lines("dev-iam", [], {})[0]


def test_bucket_policies_are_about_permissions_too() -> None:
    assert Change(Action.ADD, "P", "AWS::S3::BucketPolicy").is_about_permissions
    assert not Change(Action.ADD, "B", "AWS::S3::Bucket").is_about_permissions


def test_a_stack_to_be_made_is_shown_with_the_resources_whose_conditions_hold() -> None:
    def names(template: str, **settings: str) -> set[str]:
        entry = catalogue.load_template(template)
        values = catalogue.effective_values(entry, "dev", settings, {})
        return {
            change.name
            for change in changes.from_resources(catalogue.active_resources(entry, values))
        }

    assert "CpuQueue" in names("batch") and "FairShare" not in names("batch")
    assert "FairShare" in names("batch", TeamQueues="true")
    assert "Nat" not in names("network") and "Nat" in names("network", Placement="private")
    assert names("network", ExistingVpc="vpc-1", ExistingSubnets="a,b") == {
        "NodeSecurityGroup",
        "SubnetList",
    }
    assert "Service" not in names("ecs") and "Service" in names("ecs", ServiceTasks="2")


def test_what_was_deployed_counts_for_conditions_unless_it_is_set_anew() -> None:
    template = catalogue.load_template("batch")
    values = catalogue.effective_values(template, "dev", {"Zones": "3"}, {"TeamQueues": "true"})
    assert (values["TeamQueues"], values["Env"], "Zones" in values) == ("true", "dev", False)


@pytest.mark.parametrize(
    ("found", "parameters", "exports"),
    [
        ([Change(Action.ADD, "SubnetC", "AWS::EC2::Subnet")], ["Zones"], ["${Env}-subnets"]),
        (
            [Change(Action.REPLACE, "SubnetA", "AWS::EC2::Subnet")],
            [],
            ["${Env}-first-subnets", "${Env}-subnets"],
        ),
        (
            [Change(Action.REMOVE, "Vpc", "AWS::EC2::VPC")],
            ["ExistingVpc"],
            ["${Env}-first-subnets", "${Env}-subnets", "${Env}-vpc"],
        ),
        ([Change(Action.CHANGE, "SubnetA", "AWS::EC2::Subnet")], ["Placement"], []),
        ([Change(Action.ADD, "Vpc", "AWS::EC2::VPC")], [], []),
    ],
)
def test_the_exports_that_a_change_would_change(
    found: list[Change], parameters: list[str], exports: list[str]
) -> None:
    assert changes.changed_exports(catalogue.load_template("network"), found, parameters) == exports


def test_an_import_adds_a_resource_to_the_stack() -> None:
    (change,) = changes.from_change_set([one("Import", "Bucket", "AWS::S3::Bucket")])
    assert change.action is Action.ADD
