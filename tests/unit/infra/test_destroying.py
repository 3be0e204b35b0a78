"""`destroy` where a job writes to the bucket until its queue is deleted."""

from __future__ import annotations

from typing import Any, cast

import pytest
from scripted_cloudformation import Listener, Scripted

from batchyard.aws.cloudformation import CloudFormation
from batchyard.aws.holdings import Holdings
from batchyard.infra import catalogue, destroying
from batchyard.infra.stacks import StackFailedError, Stacks

FAILED = [("", "DELETE_IN_PROGRESS", "User Initiated"), ("", "DELETE_FAILED", "not empty")]
DELETED = [("", "DELETE_IN_PROGRESS", "User Initiated"), ("", "DELETE_COMPLETE", "")]


class Bucket:
    """A bucket with ``counts`` objects, one number for each time it is emptied."""

    def __init__(self, scripted: Scripted, *counts: int) -> None:
        self.scripted = scripted
        self.counts = list(counts)

    def empty_bucket(self, name: str) -> int:
        if len(self.counts) == 1:
            self.scripted.on_delete = DELETED
        return self.counts.pop(0)


def destroy(*counts: int) -> Listener:
    aws, listener = Scripted("dev-storage", "CREATE_COMPLETE"), Listener()
    aws.on_delete = FAILED
    stacks = Stacks(cast(CloudFormation, aws), listener, aws.sleep)
    template = catalogue.load_template("storage")
    entry = destroying.StackToDelete(
        template, "dev-storage", "id-dev-storage", aws.status, (), ("runs",), ()
    )
    holdings: Any = Bucket(aws, *counts)
    destroying.destroy(
        stacks,
        cast(Holdings, holdings),
        listener,
        [entry],
        "dev",
        empty_buckets=True,
        delete_images=False,
    )
    return listener


def test_a_bucket_that_was_written_to_meanwhile_is_emptied_again() -> None:
    listener = destroy(2, 1)
    assert [line for line in listener.said if "from runs" in line] == [
        "dev-storage: 2 objects deleted from runs",
        "dev-storage: 1 object deleted from runs",
    ]
    assert listener.said[-1].startswith("dev-storage DELETE_COMPLETE")


def test_a_deletion_that_fails_for_another_reason_is_not_repeated() -> None:
    with pytest.raises(StackFailedError):
        destroy(2, 0, 0)
