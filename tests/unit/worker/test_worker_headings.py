"""The output of one command in the log of a child that runs many."""

from __future__ import annotations

from batchyard.worker.headings import describe_succeeded, make_heading, select_output

LOG = ["hello", make_heading(3), "a", "b", make_heading(30), "c" + make_heading(4), "d"]


def test_the_output_of_a_command_ends_at_the_next_heading() -> None:
    assert select_output(LOG, 3) == ["a", "b"]
    assert select_output(LOG, 4) == ["d"]


def test_a_last_line_without_newline_belongs_to_the_command() -> None:
    assert select_output(LOG, 30) == ["c"]


def test_the_last_execution_of_a_command_counts() -> None:
    assert select_output([*LOG, make_heading(3), "again"], 3) == ["again"]


def test_a_command_that_did_not_run_has_no_output() -> None:
    assert select_output(LOG, 5) == []


def test_other_messages_of_the_worker_are_no_output() -> None:
    lines = [
        make_heading(1),
        "said 1",
        "batchyard-worker: command 21 ended with exit code 1",
        "more",
    ]
    assert select_output(lines, 1) == ["said 1", "more"]


def test_commands_that_succeeded_earlier_are_named_by_ranges() -> None:
    assert describe_succeeded([7]).startswith("command 7 succeeded earlier and is not run again; ")
    several = describe_succeeded({9, 3, 4, 5, 11, 10})
    assert several.startswith("commands 3-5, 9-11 succeeded earlier and are not run again; ")
    assert describe_succeeded([2, 0]).startswith("commands 0, 2 succeeded ")
