"""What `make bench-peers` makes of its numbers. That it measures is seen by running it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from peer_clients import Peer

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import aws_calls
import peer_calls


def never(peer: Peer) -> subprocess.CompletedProcess[str]:
    raise AssertionError("it was run without being installed")


def test_a_peer_that_cannot_be_installed_is_not_measured_and_says_why() -> None:
    with pytest.raises(peer_calls.NotMeasuredError) as caught:
        peer_calls.count_calls("no-such-client", "process", never)
    row = peer_calls.client_row("Nobody", caught.value)
    assert (
        row.startswith("| Nobody | not measured: it could not be installed: ")
        and "no-such-client.txt" in row
    )
    assert row.count("|") == 7


def test_calls_are_shown_by_kind() -> None:
    calls = Counter(
        {"submitjob": 20, "describejobs": 281, "registerjobdefinition": 20, "terminatejob": 20}
    )
    assert (
        peer_calls.client_row("x", peer_calls.Counted(calls, 206.4))
        == "| x | 341 | 20 | 281 | 40 | 206 |"
    )


@pytest.mark.parametrize(
    ("to_submit", "a_poll", "passes"), [(12, 1.0, True), (13, 1.0, False), (12, 1.5, False)]
)
def test_a_bar_is_met_or_missed(to_submit: int, a_poll: float, passes: bool) -> None:
    measured = aws_calls.Measured(to_submit, a_poll, Counter({"batch:SubmitJob": 9}), is_whole=True)
    assert measured.passes is passes
    assert ("PASS" in aws_calls.row("ours", measured)) is passes and "| 9 |" in aws_calls.row(
        "ours", measured
    )
