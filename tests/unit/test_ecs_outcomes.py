"""How a stopped task of ECS ended: pasted from DescribeTasks, with the exact strings of AWS."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.batch.jobs import Outcome
from batchyard.engines.ecs.outcomes import is_lack, make_lost_outcome, read_outcome, was_refused


def task(stop_code: str, stopped_reason: str, **container: Any) -> dict[str, Any]:
    containers = [{"name": "main", **container}] if container else []
    return {"stopCode": stop_code, "stoppedReason": stopped_reason, "containers": containers}


EXITED = "Essential container in task exited"


@pytest.mark.parametrize(
    ("stopped", "outcome"),
    [
        (task("EssentialContainerExited", EXITED, exitCode=0), Outcome(0)),
        (task("EssentialContainerExited", EXITED, exitCode=7), Outcome(7)),
        (
            task(
                "EssentialContainerExited",
                EXITED,
                exitCode=137,
                reason="OutOfMemoryError: Container killed due to memory usage",
            ),
            Outcome(137, EXITED, "OutOfMemoryError: Container killed due to memory usage"),
        ),
        (
            task(
                "TaskFailedToStart",
                "Task failed to start",
                reason="CannotPullImageManifestError: pull access denied",
            ),
            Outcome(None, "Task failed to start", "CannotPullContainerError: pull access denied"),
        ),
        (
            task("TaskFailedToStart", "TaskFailedToStart: ATTRIBUTE"),
            Outcome(None, "TaskFailedToStart: ATTRIBUTE"),
        ),
        (
            task("SpotInterruption", "Your Spot Task was interrupted.", exitCode=0),
            Outcome(None, "Host EC2 terminated: Your Spot Task was interrupted."),
        ),
        (
            task("TerminationNotice", "Host EC2 (instance i-0a) terminated.", exitCode=143),
            Outcome(143, "Host EC2 (instance i-0a) terminated."),
        ),
        # Stopped by somebody: an exit code of 0 is no success.
        (
            task("UserInitiated", "Task stopped by user", exitCode=0),
            Outcome(None, "Task stopped by user"),
        ),
        (
            task("EssentialContainerExited", "", lastStatus="STOPPED"),
            Outcome(None, "Task failed to start"),
        ),
        ({}, Outcome(None, "Task failed to start")),
    ],
)
def test_the_outcome_of_a_stopped_task(stopped: dict[str, Any], outcome: Outcome) -> None:
    assert read_outcome(stopped) == outcome


@pytest.mark.parametrize(
    "reason",
    [
        "TaskFailedToStart: RESOURCE:GPU",
        "TaskFailedToStart: AGENT",
        "TaskFailedToStart: NO ACTIVE INSTANCES",
        "TaskFailedToStart: EMPTY CAPACITY PROVIDER",
        "You've reached the limit on the number of vCPUs you can run concurrently",
    ],
)
def test_a_task_without_room_has_not_been_an_attempt(reason: str) -> None:
    assert was_refused(task("TaskFailedToStart", reason))


@pytest.mark.parametrize(
    ("reason", "is_waited_for"),
    [
        ("RESOURCE:CPU", True),
        ("RESOURCE:MEMORY", True),
        ("RESOURCE:GPU", True),
        ("RESOURCE:ENI", True),
        ("RESOURCE:PORTS", True),
        ("AGENT", True),
        # Fargate: apache/airflow#48001.
        (
            "Capacity is unavailable at this time. Please try again later or in a different "
            "availability zone",
            True,
        ),
        ("LOCATION", False),
        ("ATTRIBUTE", False),
        ("MISSING", False),
        ("INACTIVE", False),
        ("MemberOf placement constraint unsatisfied.", False),
    ],
)
def test_which_failures_of_run_task_are_waited_for(reason: str, is_waited_for: bool) -> None:
    assert is_lack(reason) == is_waited_for


def test_a_task_that_ran_was_not_refused() -> None:
    stopped = task("EssentialContainerExited", "RESOURCE:GPU", exitCode=1)
    assert not was_refused(stopped)
    assert not was_refused(task("TaskFailedToStart", "TaskFailedToStart: ATTRIBUTE"))


def test_a_forgotten_task_is_lost_with_its_host() -> None:
    outcome = make_lost_outcome("arn:aws:ecs:us-east-1:1:task/lab/0a1b")
    assert outcome.exit_code is None
    assert outcome.status_reason == "Host EC2 unknown: ECS has forgotten how task 0a1b ended"
