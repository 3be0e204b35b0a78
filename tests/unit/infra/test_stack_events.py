"""Of a stack's events: the first real cause and what helps, and how long things took.

events/*.json are in the form of `aws cloudformation describe-stack-events`, newest first as AWS
gives them; the reasons are worded as AWS words them.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from batchyard.infra import events
from batchyard.infra.events import Cause, Event, Progress

FOLDER = Path(__file__).parent / "events"


def recorded(name: str) -> list[Event]:
    """Oldest first."""
    found = json.loads((FOLDER / f"{name}.json").read_text())["StackEvents"]
    return events.from_aws(
        {**event, "Timestamp": datetime.fromisoformat(event["Timestamp"])}
        for event in reversed(found)
    )


def cause_of(name: str) -> Cause:
    found = events.find_first_cause(events.last_operation(recorded(name)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "resource", "what", "reason", "hint"),
    [
        # the gateway was cancelled a moment before the VPC's failure was told
        (
            "vpc-limit",
            "Vpc",
            "could not be created",
            "The maximum number of VPCs has been reached.",
            "ExistingVpc",
        ),
        (
            "not-authorized",
            "CpuSpot",
            "could not be created",
            "is not authorized",
            "batch:CreateComputeEnvironment;",
        ),
        (
            "not-stabilized",
            "GpuSpot",
            "could not be created",
            "did not stabilize",
            "batchyard doctor",
        ),
        # what failed on the way back is not what began it
        (
            "update-then-rollback-fails",
            "CpuQueue",
            "could not be changed",
            "is being modified",
            "try again",
        ),
        (
            "bucket-not-empty",
            "RunBucket",
            "could not be deleted",
            "is not empty",
            "--empty-buckets",
        ),
        (
            "images-left",
            "PipelineImages",
            "could not be deleted",
            "still contains images",
            "--delete-images",
        ),
        (
            "name-taken",
            "PipelineImages",
            "could not be created",
            "already exists",
            "belongs to no stack",
        ),
    ],
)
def test_the_first_cause_is_named_with_a_hint(
    name: str, resource: str, what: str, reason: str, hint: str
) -> None:
    cause = cause_of(name)
    assert (cause.name, cause.failure) == (resource, what)
    assert reason in cause.reason
    assert hint in cause.hint
    assert "cancelled" not in str(cause) and "failed to" not in str(cause)


def test_a_reason_is_what_the_service_said_and_no_more() -> None:
    text = str(cause_of("vpc-limit"))
    assert text == (
        "Vpc (AWS::EC2::VPC) could not be created: The maximum number of VPCs has been "
        "reached. (Service: Ec2, Status "
        "Code: 400)"
    )
    assert "Request" not in str(cause_of("bucket-not-empty"))


def test_an_export_in_use_is_the_stacks_own_fault_and_names_who_uses_it() -> None:
    # AWS goes back to the status of before, with a reason: the end of this deletion is
    # UPDATE_COMPLETE.
    found = events.last_operation(recorded("export-in-use"))
    assert events.final_status(found) == "UPDATE_COMPLETE"
    cause = cause_of("export-in-use")
    assert str(cause) == "Export dev-subnets cannot be deleted as it is in use by lab-notebooks"
    assert cause.hint.startswith("the stack lab-notebooks uses it")


def test_nothing_failed() -> None:
    assert events.find_first_cause(recorded("all-well")) is None


def test_only_cancelled_resources_are_better_than_nothing() -> None:
    cancelled = Event(
        "1", 0.0, "Vpc", "AWS::EC2::VPC", "CREATE_FAILED", "Resource creation cancelled", False
    )
    cause = events.find_first_cause([cancelled])
    assert cause is not None and cause.name == "Vpc"


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        (
            "API: ec2:CreateVpc You are not authorized to perform this operation.",
            "the action that the reason names",
        ),
        ("No export named dev-subnets found. Rollback requested by user.", "is not deployed"),
        (
            "resource sg-9f14bae0 has a dependent object (Service: AmazonEC2; Status Code: 400)",
            "try again",
        ),
        ("Template error: Fn::Select cannot select nonexistent value at index 3", "Zones=2"),
        (
            "Unable to fetch parameters [/dev/gpu-image] from parameter store for this account.",
            "its name",
        ),
        ("The CIDR '10.0.0.0/19' conflicts with another subnet", "VpcCidr"),
        (
            "CloudFormation cannot update a stack when a custom-named resource requires "
            "replacing. Rename x",
            "anew",
        ),
        ("something that nobody has seen before", ""),
    ],
)
def test_hints(reason: str, hint: str) -> None:
    found = events.find_hint(reason)
    assert hint in found and bool(hint) == bool(found)


def test_the_last_operation_begins_where_somebody_began_it() -> None:
    found = events.last_operation(recorded("update-then-rollback-fails"))
    assert [event.status for event in found if event.is_stack] == [
        "UPDATE_IN_PROGRESS",
        "UPDATE_ROLLBACK_IN_PROGRESS",
        "UPDATE_ROLLBACK_FAILED",
    ]
    assert events.final_status(found) == "UPDATE_ROLLBACK_FAILED"
    assert events.final_status(found[:-1]) == ""


def test_durations_count_from_the_first_beginning() -> None:
    (step,) = Progress().take(recorded("all-well"))
    assert (step.name, step.verb, step.duration_s) == ("RunBucket", "created", 22.5)


def test_what_is_going_on_and_what_was_cancelled() -> None:
    found, progress = recorded("not-authorized"), Progress()
    half = next(n for n, event in enumerate(found) if event.status == "CREATE_COMPLETE") + 1
    assert [step.name for step in progress.take(found[:half])] == ["CpuLaunchTemplate"]
    assert progress.running == {}
    progress.take(found[half : half + 2])
    assert sorted(progress.running) == ["CpuSpot", "GpuSpot"]
    verbs = [(step.name, step.verb) for step in progress.take(found[half + 2 :])]
    assert verbs == [
        ("CpuSpot", "failed"),
        ("GpuSpot", "cancelled"),
        ("CpuLaunchTemplate", "deleted"),
    ]
    assert progress.running == {}


def test_a_resource_that_stays_and_a_failure_without_a_reason() -> None:
    kept = Event("1", 1.0, "Bucket", "AWS::S3::Bucket", "DELETE_SKIPPED", "", False)
    assert [step.verb for step in Progress().take([kept])] == ["kept"]
    failed = Event("2", 2.0, "Queue", "AWS::Batch::JobQueue", "CREATE_FAILED", "", False)
    cause = events.find_first_cause([failed])
    assert cause is not None and cause.reason == "AWS gave no reason"
