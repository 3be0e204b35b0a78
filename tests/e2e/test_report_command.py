"""`batchyard report`: the page of a failed run, and the errors of the command."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser

import pytest

from command_yard import Yard

PIPELINE = """
name: demo
steps:
  - name: prepare
    array: 4
    command: echo preparing
  - name: work
    needs: [prepare]
    array: 3
    retries: 1
    commands_file: list.txt
  - name: after
    needs: [work]
    array: 5
    command: "true"
"""
COMMANDS = """echo fine
echo '<script>alert(1)</script> broken & lost'; exit 3
sleep 0.3; test "$AWS_BATCH_JOB_ATTEMPT" = 2
"""


class Reader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.data = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")
        ]

    def handle_data(self, data: str) -> None:
        self.data += data


@pytest.fixture
def failed_run(yard: Yard) -> str:
    yard.write("list.txt", COMMANDS)
    yard.write("p.yaml", PIPELINE)
    run: str = yard.json("run", "p.yaml", "--cpus", "4", code=1)["run"]
    return run


def test_the_page_of_a_failed_run(yard: Yard, failed_run: str) -> None:
    done = yard("report", "last")
    assert done.stdout == f"{failed_run}.html\n" and done.stderr == ""
    page = Reader((yard.folder / f"{failed_run}.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert set(page.links) <= {"#failures", "data:,"}
    for words in (
        failed_run,
        "FAILED",
        "6 of 12 children succeeded",
        "work:1",
        "exit code 3",
        "Retries",
    ):
        assert words in page.data
    assert "<script>alert(1)</script> broken & lost" in page.data
    assert "$ echo '<script>alert(1)</script> broken & lost'; exit 3" in page.data
    assert "after: 5 children: Dependent Job failed" in page.data
    assert str(yard.folder / "p.yaml") in page.data
    # Of the retries, one child succeeded in the end.
    assert re.search(r"exit code 1\D*1\D*1\D*1", page.data[page.data.index("Retries") :])


def test_where_the_page_goes(yard: Yard, failed_run: str) -> None:
    assert yard("report", failed_run[:9], "--out", "my päge.html").stdout == "my päge.html\n"
    page = (yard.folder / "my päge.html").read_bytes()
    on_stdout = subprocess.run(
        yard.command("report", "last", "--out", "-"), cwd=yard.folder, capture_output=True
    )
    assert on_stdout.stdout.startswith(b"<!doctype html>") and on_stdout.stdout.endswith(
        b"</html>\n"
    )
    made_at = re.compile(rb"at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\.")
    assert made_at.sub(b"", on_stdout.stdout) == made_at.sub(b"", page)
    assert not (yard.folder / "-").exists()


@pytest.mark.parametrize(
    ("out", "reason"), [("no/such/folder.html", "No such file"), (".", "Is a directory")]
)
def test_a_path_that_cannot_be_written(yard: Yard, failed_run: str, out: str, reason: str) -> None:
    done = yard("report", "last", "--out", out, code=3)
    assert (
        "could not write the report" in done.stderr
        and reason in done.stderr
        and "--out" in done.stderr
    )
    assert done.stdout == ""


def test_no_such_run(yard: Yard) -> None:
    assert "no runs" in yard("report", "last", code=2).stderr


def test_a_run_that_is_under_way_and_then_interrupted(yard: Yard) -> None:
    yard.write("list.txt", "echo quick\nsleep 60\n")
    process = yard.start("run", "list.txt", "--array", "2", "--cpus", "2")
    yard.wait_for(lambda: '"succeeded": 1' in yard("status", "last", "--json", code=None).stdout)
    page = Reader(yard("report", "last", "--out", "-").stdout).data
    assert (
        "RUNNING" in page and "1 of 2 children succeeded, 1 running when this page was made" in page
    )
    process.kill()
    process.wait()
    page = Reader(yard("report", "last", "--out", "-").stdout).data
    assert "INTERRUPTED" in page and "batchyard resume" in page
    yard.start("resume", "last")
    yard.wait_for(lambda: "RUNNING" in Reader(yard("report", "last", "--out", "-").stdout).data)
    yard("stop", "last")
    yard.wait_for(lambda: "STOPPED" in Reader(yard("report", "last", "--out", "-").stdout).data)


def test_before_anything_has_ended(yard: Yard) -> None:
    yard.write("list.txt", "sleep 60\n")
    yard.start("run", "list.txt")
    yard.wait_for(lambda: '"running": 1' in yard("status", "last", "--json", code=None).stdout)
    assert "No attempt has ended yet." in Reader(yard("report", "last", "--out", "-").stdout).data
    yard("stop", "last")
    yard.wait_for(lambda: "STOPPED" in yard("status", "last").stdout)


def test_help_has_an_example(yard: Yard) -> None:
    assert "batchyard report last" in yard("report", "--help").stdout
