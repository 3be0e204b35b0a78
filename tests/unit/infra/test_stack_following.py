"""One stack through its states, on a CloudFormation that takes its time: waiting, going on,
making anew, giving way.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from scripted_cloudformation import Listener, Scripted

from batchyard.aws.session import AccessDeniedError, AwsRefusedError
from batchyard.errors import InputError, OperationalError
from batchyard.infra import catalogue, deploying
from batchyard.infra.stacks import DeclinedError, StackFailedError, Stacks

STORAGE = catalogue.load_template("storage")
MADE = [
    ("", "CREATE_IN_PROGRESS", "User Initiated"),
    ("RunBucket", "CREATE_IN_PROGRESS", ""),
    ("RunBucket", "CREATE_IN_PROGRESS", "Resource creation Initiated"),
    ("RunBucket", "CREATE_COMPLETE", ""),
    ("", "CREATE_COMPLETE", ""),
]
CHANGED = [("", "UPDATE_IN_PROGRESS", "User Initiated"), ("", "UPDATE_COMPLETE", "")]


def stacks(aws: Scripted, front: Listener) -> Stacks:
    stand_in: Any = aws
    return Stacks(stand_in, front, sleep=aws.sleep, clock=lambda: 0.0)


def deploy(aws: Scripted, front: Listener) -> int:
    return deploying.deploy(stacks(aws, front), front, [STORAGE], "dev", {})


def test_a_new_stack_is_made_and_followed() -> None:
    aws, front = Scripted(), Listener(True)
    aws.on_execute = MADE
    assert deploy(aws, front) == 1
    assert [call for call in aws.calls if call != "sleep"] == ["make CREATE", "execute"]
    assert front.steps == ["created RunBucket"]
    assert front.said == ["changes of dev-storage", "dev-storage CREATE_COMPLETE 4"]


def test_a_change_set_is_waited_for() -> None:
    aws, front = Scripted(status="CREATE_COMPLETE"), Listener(True)
    aws.change_sets = [
        {"Status": "CREATE_PENDING", "Changes": []},
        {"Status": "CREATE_IN_PROGRESS", "Changes": []},
    ]
    aws.change_sets += [{"Status": "CREATE_COMPLETE", "Changes": []}]
    aws.on_execute = CHANGED
    assert deploy(aws, front) == 1
    assert aws.calls[:4] == ["make UPDATE", "sleep", "sleep", "execute"]


@pytest.mark.parametrize(
    "reason",
    [
        "The submitted information didn't contain changes. Submit different",
        "No updates are to be performed.",
    ],
)
def test_nothing_to_do_is_success_and_asks_nothing(reason: str) -> None:
    aws, front = Scripted(status="UPDATE_COMPLETE"), Listener()
    aws.change_sets = [{"Status": "FAILED", "StatusReason": reason, "Changes": []}]
    assert deploy(aws, front) == 0
    assert (front.asked, front.said) == ([], ["dev-storage: nothing to do"])
    assert aws.calls == ["make UPDATE", "drop"]


def test_a_change_set_that_fails_says_why() -> None:
    aws, front = Scripted(), Listener()
    aws.change_sets = [
        {"Status": "FAILED", "StatusReason": "No export named dev-vpc found", "Changes": []}
    ]
    with pytest.raises(AwsRefusedError, match="No export named dev-vpc found"):
        deploy(aws, front)
    assert aws.calls == ["make CREATE", "drop", "delete"]


# -- somebody else, or an earlier self -----------------------------------------------------------


@pytest.mark.parametrize("status", ["UPDATE_IN_PROGRESS", "CREATE_IN_PROGRESS"])
def test_a_change_in_progress_is_followed_to_its_end_and_then_it_goes_on(status: str) -> None:
    aws, front = Scripted(), Listener(True)
    aws.happen(("", "CREATE_COMPLETE", ""), ("", status, "User Initiated"))
    aws.happen(("RunBucket", status, ""))
    end = status.replace("IN_PROGRESS", "COMPLETE")
    aws.steps = [("RunBucket", end, ""), ("", end, "")]
    aws.on_execute = CHANGED
    assert deploy(aws, front) == 1
    assert front.said[0] == f"dev-storage: a change is in progress ({status}); waiting for its end"
    assert front.said[1] == f"dev-storage {end} 3"
    assert len(front.steps) == 1
    assert aws.calls.index("sleep") < aws.calls.index("make UPDATE")


def test_a_deletion_in_progress_is_waited_for_and_the_stack_is_made() -> None:
    aws, front = Scripted(), Listener(True)
    aws.happen(("", "DELETE_IN_PROGRESS", "User Initiated"))
    aws.steps = [("", "DELETE_COMPLETE", "")]
    aws.on_execute = MADE
    assert deploy(aws, front) == 1
    assert "make CREATE" in aws.calls


OBSOLETE = AwsRefusedError("ChangeSet is OBSOLETE", code="InvalidChangeSetStatus")
NO_CHANGES = {
    "Status": "FAILED",
    "StatusReason": "The submitted information didn't contain changes",
}


def test_of_two_first_deploys_at_once_the_second_waits_and_finds_nothing_to_do() -> None:
    aws, front = Scripted(), Listener(True)
    aws.execute_refuses = OBSOLETE

    def somebody_else_creates_the_stack() -> None:
        aws.happen(MADE[0])
        aws.steps = MADE[1:]
        aws.change_sets = [{**NO_CHANGES, "Changes": []}]

    aws.on_refusal = somebody_else_creates_the_stack
    assert deploy(aws, front) == 0
    assert front.said[1:3] == [
        "dev-storage has been changed by somebody else in the meantime; planning the change again",
        "dev-storage: a change is in progress (CREATE_IN_PROGRESS); waiting for its end",
    ]
    assert front.said[-1] == "dev-storage: nothing to do"
    assert "delete" not in aws.calls, "the stack is the other's"


def test_a_stack_that_others_change_all_the_time_is_an_error() -> None:
    aws, front = Scripted(status="CREATE_COMPLETE"), Listener(*[True] * 5)
    aws.execute_refuses = OBSOLETE
    with pytest.raises(OperationalError, match="changed by others all the time"):
        deploy(aws, front)
    assert aws.calls.count("execute") == 5


@pytest.mark.parametrize(
    "message",
    [
        "Stack [dev-storage] already exists and cannot be created again with the changeSet [x].",
        "Stack:arn is in CREATE_IN_PROGRESS state and can not be updated.",
    ],
)
def test_a_stack_that_appears_while_its_change_is_planned(message: str) -> None:
    aws, front = Scripted(), Listener()
    refusals = [AwsRefusedError(f"could not prepare: {message}", code="ValidationError")]

    class Hasty(Scripted):
        def make_change_set(self, *arguments: Any, **options: Any) -> str:
            if refusals:
                self.happen(*MADE)
                self.change_sets = [{**NO_CHANGES, "Changes": []}]
                raise refusals.pop()
            return super().make_change_set(*arguments, **options)

    aws = Hasty()
    assert deploy(aws, front) == 0
    assert front.said[-1] == "dev-storage: nothing to do"


def test_no_does_not_delete_the_stack_that_somebody_else_makes_from_the_same_empty_one() -> None:
    aws, front = Scripted(), Listener(False)
    ask = front.ask

    def while_somebody_else_executes(question: str) -> bool:
        aws.happen(MADE[0])
        return ask(question)

    front.ask = while_somebody_else_executes  # type: ignore[method-assign]
    with pytest.raises(DeclinedError):
        deploy(aws, front)
    assert aws.calls == ["make CREATE", "drop"]


def test_no_does_not_delete_the_empty_stack_that_somebody_else_looks_at() -> None:
    aws, front = Scripted(), Listener(False)
    aws.names_of_change_sets = ["somebody-else"]
    with pytest.raises(DeclinedError):
        deploy(aws, front)
    assert aws.calls == ["make CREATE", "drop"]


def test_an_interrupted_change_that_aws_has_undone_is_planned_again() -> None:
    aws, front = Scripted(), Listener(True)
    aws.happen(("", "CREATE_COMPLETE", ""), ("", "UPDATE_IN_PROGRESS", "User Initiated"))
    aws.steps = [
        ("RunBucket", "UPDATE_FAILED", "no"),
        ("", "UPDATE_ROLLBACK_IN_PROGRESS", "no"),
        ("", "UPDATE_ROLLBACK_COMPLETE", ""),
    ]
    aws.on_execute = CHANGED
    assert deploy(aws, front) == 1
    assert aws.calls[-4:] == ["make UPDATE", "execute", "sleep", "sleep"]


def test_a_stack_of_somebody_else_is_left_alone() -> None:
    aws, front = Scripted(status="CREATE_COMPLETE", description="Our web shop"), Listener()
    with pytest.raises(InputError, match="not batchyard's"):
        deploy(aws, front)
    assert aws.calls == []


def test_an_interruption_leaves_the_change_to_aws_and_says_so() -> None:
    aws, front = Scripted(), Listener(True)
    aws.on_execute = MADE

    def interrupt() -> None:
        raise KeyboardInterrupt

    front.on_events = interrupt
    with pytest.raises(KeyboardInterrupt):
        deploy(aws, front)
    assert "delete" not in aws.calls and "drop" not in aws.calls
    assert front.said[-1] == "dev-storage: AWS goes on with it; the same command finds it again"


# -- answers -------------------------------------------------------------------------------------


def test_no_leaves_nothing_behind() -> None:
    aws, front = Scripted(), Listener(False)
    with pytest.raises(DeclinedError):
        deploy(aws, front)
    assert aws.calls == ["make CREATE", "drop", "delete"]


def test_no_leaves_an_empty_stack_that_was_there_before() -> None:
    # It may hold the change set of somebody who is looking at it.
    aws, front = Scripted(), Listener(False)
    aws.happen(("", "REVIEW_IN_PROGRESS", "User Initiated"))
    with pytest.raises(DeclinedError):
        deploy(aws, front)
    assert aws.calls == ["make CREATE", "drop"]


def test_an_empty_stack_of_an_interrupted_attempt_is_used() -> None:
    aws, front = Scripted(), Listener(True)
    aws.happen(("", "REVIEW_IN_PROGRESS", "User Initiated"))
    aws.on_execute = MADE
    assert deploy(aws, front) == 1
    assert [call for call in aws.calls if call != "sleep"] == ["make CREATE", "execute"]


# -- failures ------------------------------------------------------------------------------------

FAILED = [
    ("", "CREATE_IN_PROGRESS", "User Initiated"),
    ("JobLogs", "CREATE_FAILED", "Resource creation cancelled"),
    ("RunBucket", "CREATE_FAILED", "dev-runs already exists"),
    (
        "",
        "ROLLBACK_IN_PROGRESS",
        "The following resource(s) failed to create: [JobLogs, RunBucket].",
    ),
    ("", "ROLLBACK_COMPLETE", ""),
]


def test_a_failure_is_told_by_its_cause() -> None:
    aws, front = Scripted(), Listener(True)
    aws.on_execute = FAILED
    with pytest.raises(StackFailedError) as found:
        deploy(aws, front)
    assert (
        found.value.message
        == "dev-storage: RunBucket (AWS::S3::Bucket) could not be created: dev-runs already exists"
    )
    assert found.value.hint
    assert found.value.exit_code == 3


def test_what_could_not_be_made_is_deleted_and_made_anew_after_asking() -> None:
    aws, front = Scripted(), Listener(True, True)
    aws.happen(*FAILED)
    aws.on_execute = MADE
    assert deploy(aws, front) == 1
    assert front.asked[0].startswith("delete what is left of dev-storage")
    assert (
        "RunBucket (AWS::S3::Bucket) could not be created: dev-runs already exists" in front.said[0]
    )
    assert [call for call in aws.calls if call != "sleep"] == ["delete", "make CREATE", "execute"]


def test_what_could_not_be_made_stays_where_the_answer_is_no() -> None:
    aws, front = Scripted(), Listener(False)
    aws.happen(*FAILED)
    with pytest.raises(DeclinedError):
        deploy(aws, front)
    assert aws.calls == []


def test_a_diff_deletes_nothing_and_asks_nothing() -> None:
    aws, front = Scripted(), Listener()
    aws.happen(*FAILED)
    assert deploying.diff(stacks(aws, front), front, [STORAGE], "dev", {}) == 1
    assert aws.calls == [] and front.said[-1] == "changes of dev-storage"


@pytest.mark.parametrize(
    ("status", "hint"),
    [("DELETE_FAILED", "destroy"), ("UPDATE_ROLLBACK_FAILED", "continue-update")],
)
def test_states_that_somebody_must_mend(status: str, hint: str) -> None:
    aws, front = Scripted(status=status), Listener()
    with pytest.raises(OperationalError) as found:
        deploy(aws, front)
    assert hint in found.value.hint


def test_a_deletion_that_ends_in_the_status_of_before_has_failed() -> None:
    aws, front = Scripted(status="UPDATE_COMPLETE"), Listener()
    reason = "Export dev-bucket cannot be deleted as it is in use by lab"
    aws.on_delete = [("", "DELETE_IN_PROGRESS", "User Initiated"), ("", "UPDATE_COMPLETE", reason)]
    with pytest.raises(StackFailedError, match="in use by lab"):
        stacks(aws, front).delete("dev-storage", "id-dev-storage")


def test_a_stack_that_is_being_cleaned_up_is_not_done() -> None:
    aws, front = Scripted(status="CREATE_COMPLETE"), Listener(True)
    aws.on_execute = [
        ("", "UPDATE_IN_PROGRESS", "User Initiated"),
        ("", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", ""),
        ("Old", "DELETE_COMPLETE", ""),
        ("", "UPDATE_COMPLETE", ""),
    ]
    assert deploy(aws, front) == 1
    assert front.steps == ["deleted Old"]


def test_the_roles_of_spot_fleets_are_created_after_the_answer_is_yes() -> None:
    fleet = catalogue.load_template("spotfleet")

    def deploy_fleet(answer: bool, create_role: deploying.CreateRole) -> str:
        aws, front = Scripted(), Listener(answer)
        aws.on_execute = MADE
        with suppress(DeclinedError):
            deploying.deploy(stacks(aws, front), front, [fleet], "dev", {}, create_role=create_role)
        return "\n".join(front.said)

    created: list[str] = []

    def create(service: str) -> bool:
        created.append(service)
        return service == "spotfleet.amazonaws.com"

    deploy_fleet(False, create)
    assert created == []
    said = deploy_fleet(True, create)
    assert created == ["spot.amazonaws.com", "spotfleet.amazonaws.com"]
    assert said.count("created the service-linked role of spotfleet.amazonaws.com") == 1

    def refuse(service: str) -> bool:
        raise AccessDeniedError("no")

    assert "aws iam create-service-linked-role --aws-service-name spot" in deploy_fleet(
        True, refuse
    )
