"""What a user sees of the commands of a run: status, commands, logs --command, the report."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from command_yard import Yard

FAILING = (7, 20, 33)
LINES = [f"echo output of {number}; exit {5 if number in FAILING else 0}" for number in range(40)]
PIPELINE = """\
name: forty
steps:
  - {name: work, commands_file: forty.txt, array: 4, keep_going: true, share_out: SHARE_OUT}
"""


@pytest.fixture(params=["static", "strided", "dynamic"])
def ran(yard: Yard, request: pytest.FixtureRequest) -> Yard:
    """Forty commands in four children, of which three fail."""
    yard.write("forty.txt", "\n".join(LINES) + "\n")
    yard.write("p.yaml", PIPELINE.replace("SHARE_OUT", request.param))
    yard("run", "p.yaml", code=1)
    return yard


def test_status_names_the_commands_that_failed(ran: Yard) -> None:
    failures = ran.json("status", "last")["failures"]
    failures.sort(key=lambda failure: LINES.index(failure["text"]))
    assert [failure["text"] for failure in failures] == [LINES[number] for number in FAILING]
    assert [failure["log_tail"] for failure in failures] == [
        [f"output of {number}"] for number in FAILING
    ]
    assert {failure["reason"] for failure in failures} == {"exit code 5"}
    shown = ran("status", "last").stdout
    for number in FAILING:
        assert f"  $ {LINES[number]}\n  | output of {number}\n" in shown
    assert "output of 8" not in shown


def test_commands_are_listed(ran: Yard) -> None:
    commands = ran.json("commands", "last")
    assert [command["command"] for command in commands] == list(range(40))
    assert [command["text"] for command in commands] == LINES
    assert [command["command"] for command in commands if command["exit_code"]] == list(FAILING)
    assert all(command["attempts"] == 1 and command["seconds"] >= 0 for command in commands)
    assert ran.json("commands", "last", "work", "--failed") == [commands[n] for n in FAILING]
    longest = ran.json("commands", "last", "--sort", "seconds")
    assert [c["seconds"] for c in longest] == sorted((c["seconds"] for c in commands), reverse=True)
    rows = list(csv.DictReader(io.StringIO(ran("commands", "last", "--csv").stdout)))
    assert [row["text"] for row in rows] == LINES
    table = ran("commands", "last", "--failed").stdout.splitlines()
    assert [line.split()[:2] for line in table[1:]] == [[f"work:{n}", "5"] for n in FAILING]


def test_the_output_of_one_command(ran: Yard) -> None:
    for number in (0, 7, 39):
        for name in (str(number), f"work:{number}", LINES[number]):
            assert ran("logs", "last", "--command", name).stdout == f"output of {number}\n"


def test_the_report_shows_the_commands_that_failed_and_no_others(ran: Yard) -> None:
    ran("report", "last", "--out", "page.html")
    page = (Path(ran.folder) / "page.html").read_text(encoding="utf-8")
    assert all(f"$ {LINES[number]}" in page for number in FAILING)
    assert page.count("$ echo") == len(FAILING)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("commands", "last", "nowhere"), "the run has no step 'nowhere'"),
        (("commands", "last", "--csv", "--json"), "--csv and --json exclude each other"),
        (("logs", "last", "--command", "2"), "step 'echoes' has no command 2"),
        (("logs", "last", "--command", "echo x"), "the run has no command 'echo x'"),
        (("logs", "last", "--command", "0", "-f"), "--command shows one command that has ended"),
    ],
)
def test_mistakes(yard: Yard, words: tuple[str, ...], sentence: str) -> None:
    yard.write("echoes.txt", "echo a\necho b\n")
    yard("run", "echoes.txt")
    assert sentence in yard(*words, code=2).stderr


def test_a_command_that_a_retry_did_not_repeat_is_looked_for_in_the_run_before(yard: Yard) -> None:
    yard.write("two.txt", "echo a\ntest -e mended\n")
    yard("run", "two.txt", code=1)
    yard.write("mended", "")
    first = yard.json("status", "last")["run"]
    yard("retry", "last")
    message = yard("logs", "last", "--command", "0", code=2).stderr
    advice = f"if the command succeeded before this retry: batchyard logs {first} --command two:0\n"
    assert message.endswith(advice)
    assert yard("logs", first, "--command", "two:0").stdout == "a\n"
