"""Names, ARNs and ids: there and back again."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchyard.emulator import names
from batchyard.emulator.api_errors import InvalidRequestError
from batchyard.emulator.names import AttemptKey

SALT = "0123456789abcdef"
keys = st.builds(AttemptKey, st.integers(0, 2**32 - 1), st.integers(0, 9_999), st.integers(1, 10))


@given(keys)
def test_a_task_id_tells_its_attempt(key: AttemptKey) -> None:
    """facts, 1.1: a task id has 32 hexadecimal digits, and ends the name of the log stream."""
    task = names.task_id(key, SALT)
    assert len(task) == 32 and set(task) <= set("0123456789abcdef")
    assert names.parse_task_id(task, SALT) == key
    assert names.parse_task_id(names.log_stream_name("d", task).rpartition("/")[2], SALT) == key


@pytest.mark.parametrize(
    "task", ["", "x" * 32, "0" * 32, "0" * 16 + SALT[::-1], "0" * 15 + SALT, "0" * 17 + SALT]
)
def test_a_task_of_somebody_else_is_none(task: str) -> None:
    assert names.parse_task_id(task, SALT) is None


def test_ids_of_instances_look_like_those_of_ec2() -> None:
    instance_ids = [names.new_instance_id(), names.own_instance_id(str(uuid.uuid4()))]
    assert all(re.fullmatch("i-0[0-9a-f]{16}", instance_id) for instance_id in instance_ids)


@pytest.mark.parametrize(
    ("job_id", "expected"),
    [
        ("a-b", ("a-b", None)),
        ("a-b:0", ("a-b", 0)),
        ("a-b:9999", ("a-b", 9999)),
        ("a-b:", ("a-b", -1)),
        ("a-b:00", ("a-b", -1)),
        ("a-b:-1", ("a-b", -1)),
        ("a-b:+1", ("a-b", -1)),
        ("a-b: 1", ("a-b", -1)),
        ("a-b:1\n", ("a-b", -1)),
        ("a-b:1:1", ("a-b", -1)),
        ("a-b:²", ("a-b", -1)),
        ("a-b:٣", ("a-b", -1)),
        ("a-b:" + "9" * 5000, ("a-b", -1)),
        ("", ("", None)),
    ],
)
def test_the_id_of_a_child(job_id: str, expected: tuple[str, int | None]) -> None:
    """facts, 2: <parent>:<index>, as AWS spells it and not otherwise."""
    assert names.split_child_id(job_id) == expected


@pytest.mark.parametrize("name", ["a", "0", "A-b_9", "x" * 128])
def test_names_that_are_allowed(name: str) -> None:
    """facts, 5.4."""
    assert names.require_name("jobName", name) == name


@pytest.mark.parametrize("name", ["", "-a", "_a", "a b", "a.b", "ä", "x" * 129, "a\n", "a/b"])
def test_names_that_are_not(name: str) -> None:
    """facts, 5.4: first a letter or a digit, then those, hyphens and underscores, 128 at most."""
    with pytest.raises(InvalidRequestError, match="jobName should match"):
        names.require_name("jobName", name)


def test_arns() -> None:
    arn = names.batch_arn("eu-west-1", "job-queue", "q")
    assert arn == "arn:aws:batch:eu-west-1:123456789012:job-queue/q"
    assert (names.strip_arn(arn), names.strip_arn("q"), names.resource_kind(arn)) == (
        "q",
        "q",
        "job-queue",
    )
    definition = names.batch_arn("eu-west-1", "job-definition", "d:3")
    assert (names.strip_arn(definition), names.resource_kind(definition)) == (
        "d:3",
        "job-definition",
    )
    for other in ("", "q", "arn:aws:s3:::bucket", "arn:aws:ecs:r:1:cluster/c", "arn:aws:batch"):
        assert names.resource_kind(other) == ""


def test_streams_of_long_names_and_of_prefixes() -> None:
    """facts, 1.1: the first 200 characters of the definition's name; awslogs-stream-prefix
    stands in for it."""
    assert names.log_stream_name("d" * 250, "t") == "d" * 200 + "/default/t"
    assert names.log_stream_name("d", "t", "mine") == "mine/default/t"
    assert names.log_stream_name("d", "t", "") == "d/default/t"
