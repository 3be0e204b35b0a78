"""The worker's orders: what is read, what is refused, and which child and commands they mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchyard.worker.errors import EXIT_ORDERS, WorkerError
from batchyard.worker.orders import (
    Child,
    Orders,
    Place,
    child_of,
    command_environment,
    orders_place,
    parse_place,
    read,
)

ADDRESS = Place("yard", "runs/r/steps/s.json")


def document(**changes: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "run": "r",
        "step": "s",
        "size": 4,
        "indices": None,
        "command": None,
        "command_count": 10,
        "keep_going": False,
        "attempts": 3,
        "retries": 2,
        "retry_on": ["any"],
        "fail_on": [],
        "inputs": ["raw/**"],
        "outputs": [],
        "checkpoint": [],
        "workspace": "s3://yard/ws",
        "list": "s3://yard/runs/r/lists/s.txt",
        "list_index": "s3://yard/runs/r/lists/s.idx",
        "done": "s3://yard/runs/r/done/s/",
        "checkpoints": "s3://yard/runs/r/checkpoint/s/",
        **changes,
    }


def orders(**changes: Any) -> Orders:
    return read(json.dumps(document(**changes)).encode(), ADDRESS)


def test_folders_end_with_a_slash_however_they_are_written() -> None:
    assert orders().workspace == Place("yard", "ws/")
    assert orders(workspace="s3://yard").workspace == Place("yard", "")
    assert str(orders().done) == "s3://yard/runs/r/done/s/"


def test_a_child_has_its_part_of_the_list() -> None:
    parts = [orders().commands_of(orders().number_of(i)) for i in range(4)]
    assert parts == [range(0, 2), range(2, 5), range(5, 7), range(7, 10)]


def test_the_one_command_has_the_childs_number() -> None:
    assert orders(command="x", command_count=4).commands_of(3) == range(3, 4)


def test_a_compact_array_keeps_the_steps_numbers() -> None:
    it = orders(size=100, indices=[[2, 2], [40, 42], [99, 99]])
    assert [it.number_of(position) for position in range(5)] == [2, 40, 41, 42, 99]
    with pytest.raises(WorkerError, match="have no child 5"):
        it.number_of(5)


def test_a_child_beyond_the_step_is_refused() -> None:
    with pytest.raises(WorkerError, match="have no child 4"):
        orders().number_of(4)


def test_what_an_earlier_run_has_finished_is_known_by_ranges() -> None:
    assert orders().skipped_commands(range(0, 10)) == set()
    assert orders(skip=[[0, 3], [8, 8]]).skipped_commands(range(2, 9)) == {2, 3, 8}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"size": 0}, "'size' is 0"),
        ({"size": "4"}, "'size' is \"4\""),
        ({"attempts": True}, "'attempts' is true"),
        ({"command_count": 10_000_001}, "'command_count'"),
        ({"inputs": "raw/**"}, "'inputs'"),
        ({"retry_on": [75]}, "'retry_on'"),
        ({"workspace": "/tmp"}, "'workspace'"),
        ({"done": None}, "'done' is null"),
        ({"indices": [[3, 1]]}, "'indices'"),
        ({"indices": [3]}, "'indices'"),
        ({"keep_going": 0}, "'keep_going'"),
        ({"list": None}, "neither a command nor a list"),
        ({"format": 4}, "format 4"),
    ],
)
def test_orders_that_are_wrong_are_refused_with_what_is_wrong(
    changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(WorkerError) as caught:
        orders(**changes)
    assert named in str(caught.value)
    assert str(ADDRESS) in str(caught.value)
    assert caught.value.exit_code == EXIT_ORDERS


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe\xff", b'"text"'])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(WorkerError) as caught:
        read(data, ADDRESS)
    assert caught.value.exit_code == EXIT_ORDERS


@pytest.mark.parametrize(
    ("environ", "child"),
    [
        ({}, Child(0, 1, False, "")),
        (
            {
                "AWS_BATCH_JOB_ARRAY_INDEX": "7",
                "AWS_BATCH_JOB_ATTEMPT": "2",
                "AWS_BATCH_JOB_ID": "a:7",
            },
            Child(7, 2, True, "a:7"),
        ),
        (
            {"AWS_BATCH_JOB_ARRAY_INDEX": "7", "BATCHYARD_OFFSET": "10000"},
            Child(10007, 1, True, ""),
        ),
        ({"BATCHYARD_OFFSET": "20000"}, Child(20000, 1, False, "")),
    ],
)
def test_a_child_knows_itself_from_the_environment(environ: dict[str, str], child: Child) -> None:
    assert child_of(environ) == child


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "²"])
def test_an_index_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(WorkerError, match="AWS_BATCH_JOB_ARRAY_INDEX"):
        child_of({"AWS_BATCH_JOB_ARRAY_INDEX": text})


@pytest.mark.parametrize("address", ["", "http://x/y", "s3://", "s3://bucket", "s3://bucket/"])
def test_orders_without_an_address_are_refused(address: str) -> None:
    with pytest.raises(WorkerError, match="BATCHYARD_ORDERS") as caught:
        orders_place({"BATCHYARD_ORDERS": address})
    assert caught.value.exit_code == EXIT_ORDERS


def test_an_address_is_a_bucket_and_a_key() -> None:
    assert parse_place("s3://b/c/d e") == Place("b", "c/d e")
    assert parse_place("file:///x") is None


def test_commands_are_told_the_steps_numbers_and_not_the_workers_affairs() -> None:
    environ = {
        "BATCHYARD_ORDERS": "s3://b/k",
        "BATCHYARD_OFFSET": "3",
        "LIST_FILE_S3_PATH": "s3://b/l",
        "HOME": "/",
    }
    told = command_environment(environ, orders(size=100), Child(0, 1, False, "j"), 42, "/w")
    assert told == {
        "HOME": "/",
        "LIST_FILE_S3_PATH": "s3://b/l",
        "BATCHYARD_RUN": "r",
        "BATCHYARD_STEP": "s",
        "BATCHYARD_WORKSPACE": "/w",
        "PWD": "/w",
        "ARRAY_SIZE": "100",
        "AWS_BATCH_JOB_ARRAY_INDEX": "42",
        "AWS_BATCH_JOB_ARRAY_SIZE": "100",
    }


def test_a_step_without_an_array_has_no_index() -> None:
    told = command_environment({}, orders(size=1), Child(0, 1, False, "j"), 0, "/w")
    assert "AWS_BATCH_JOB_ARRAY_INDEX" not in told
    assert told["ARRAY_SIZE"] == "1"


def test_an_array_of_one_is_an_array_to_its_commands() -> None:
    told = command_environment({}, orders(size=1, is_array=True), Child(0, 1, False, "j"), 0, "/w")
    assert (
        told["AWS_BATCH_JOB_ARRAY_INDEX"],
        told["AWS_BATCH_JOB_ARRAY_SIZE"],
        told["ARRAY_SIZE"],
    ) == ("0", "1", "1")
    assert not orders().is_array, "orders of an older batchyard do not say"
    with pytest.raises(WorkerError, match="'is_array' is 3"):
        orders(is_array=3)
