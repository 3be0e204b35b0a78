"""What is shown while a stack changes: lines that stay, and on a terminal what is going on."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

from batchyard.aws.holdings import Holding
from batchyard.cli.stacks import holding_text, running_lines, step_line
from batchyard.infra.events import Progress, Step

SCRIPT = """
import time
from batchyard.cli.stacks import Terminal
from batchyard.infra.events import Event, Progress
now = time.time()
def event(name, status, ago):
    return Event(name + status, now - ago, name, "AWS::EC2::NatGateway", status, "", False)
front, progress = Terminal(), Progress()
front.show_events("dev-network", progress.take([event("Nat", "CREATE_IN_PROGRESS", 90)]), progress)
time.sleep(4.2)
done = progress.take([event("Other", "CREATE_IN_PROGRESS", 9), event("Nat", "CREATE_COMPLETE", 30)])
front.show_events("dev-network", done, progress)
front.show_end("dev-network", "CREATE_COMPLETE", 61)
"""


def on_a_terminal(script: str) -> str:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", script], stderr=follower, env={**os.environ, "TERM": "xterm"}
    ) as it:
        os.close(follower)
        shown = b""
        while True:
            try:
                more = os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            shown += more
    os.close(leader)
    assert it.returncode == 0, shown.decode()
    return shown.decode()


def test_a_terminal_shows_what_is_going_on_and_since_when() -> None:
    shown = on_a_terminal(SCRIPT)
    # It goes on counting while nothing happens.
    assert len(set(re.findall(r"\.\.\. Nat \(AWS::EC2::NatGateway\) (1m3\ds)", shown))) > 1
    assert "Nat (AWS::EC2::NatGateway)\r\n" in shown
    assert "dev-network: " in shown and "CREATE_COMPLETE" in shown


def test_elsewhere_there_are_lines_only() -> None:
    script = SCRIPT.replace("time.sleep(4.2)", "")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stderr.splitlines() == [
        "      1m  created    Nat (AWS::EC2::NatGateway)",
        "dev-network: CREATE_COMPLETE after 1m1s",
    ]


def test_a_cascade_is_shown_without_its_empty_reason() -> None:
    assert step_line(Step("A", "T", "cancelled", 1.0, "Resource creation cancelled")).endswith(
        "A (T)"
    )
    assert step_line(Step("A", "T", "failed", 1.0, "no")).endswith("A (T): no")


def test_what_is_running() -> None:
    progress = Progress()
    progress.running["Vpc"] = (100.0, "AWS::EC2::VPC")
    assert running_lines(progress, 175.2) == ["Vpc (AWS::EC2::VPC) 1m15s"]


def test_what_is_held_in_words() -> None:
    assert (
        holding_text(Holding("bucket", "b", 100_000, 5 * 2**30, is_more=True))
        == "more than 100,000 objects, 5.0 GiB"
    )
    assert holding_text(Holding("repository", "r", 3, 2**20)) == "3 images, 1.0 MiB"
    assert holding_text(Holding("queue", "q", 2)) == "2 jobs that are not over"
    assert holding_text(Holding("log group", "g", 1)) == "1 log stream"
