"""Invalid input through the command: a message with place, problem and remedy, and exit code 2."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

from batchyard.pipeline import ExitRule
from batchyard.plan import retry_strategy
from command_yard import Yard

STEP = "name: p\nsteps:\n  - name: a\n    command: 'true'\n"

#: what is in the file, and what the sentence must hold
MISTAKES = [
    ("steps: [", "p.yaml:1"),
    ("- 1\n- 2\n", "p.yaml:1:1: the file is a list, not a pipeline"),
    ("name: p\nsteps: 7\n", "p.yaml:2:8"),
    (STEP + "    cpus: many\n", "p.yaml:5:11"),
    (STEP + "    comand: x\n", "command"),
    (STEP + "  - name: a\n    command: x\n", "p.yaml:5:"),
    (STEP + "    needs: [b]\n  - {name: b, command: x, needs: [a]}\n", "a -> b -> a"),
    (STEP + "    needs: [nowhere]\n", "nowhere"),
    (STEP + "    array: 0\n", "array"),
    (STEP + "    array: -1\n", "array"),
    (STEP + "    array: 1000001\n", "1,000,000"),
    (STEP + "    array: ten\n", "array"),
    (
        STEP
        + "    array: 3\n  - {name: b, command: x, array: 4, needs: [{step: a, each: true}]}\n",
        "3",
    ),
    (STEP + "    memory: 2 gigs\n", "2GiB"),
    ("name: p\nsteps:\n  - name: a\n    commands_file: empty.txt\n", "empty.txt"),
    ("name: p\nsteps:\n  - name: a\n    commands_file: latin.txt\n", "latin.txt:2"),
    ("name: p\nsteps:\n  - name: a\n    commands_file: missing.txt\n", "missing.txt"),
    ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n" + STEP, "p.yaml:1"),
    (STEP + "    env: {A: !!python/object/apply:os.system ['touch ran']}\n", "p.yaml:5"),
    (STEP + "    command: echo ${params.nothing}\n", "p.yaml:5"),
]


@pytest.mark.parametrize(("text", "expected"), MISTAKES)
@pytest.mark.parametrize("command", ["validate", "run", "plan"])
def test_mistakes_in_the_file(yard: Yard, command: str, text: str, expected: str) -> None:
    yard.write("p.yaml", text)
    yard.write("empty.txt", "# nothing\n\n")
    (yard.folder / "latin.txt").write_bytes(b"echo one\necho caf\xe9\n")
    done = yard(command, "p.yaml", code=2)
    assert expected in done.stderr and done.stdout == ""
    assert not (yard.folder / ".batchyard").exists()
    assert not (yard.folder / "ran").exists()


def test_all_mistakes_at_once_each_with_its_place(yard: Yard) -> None:
    yard.write(
        "p.yaml", "name: P!\nsteps:\n  - name: a\n    array: 0\n    memory: lots\n    nedes: [b]\n"
    )
    lines = yard("validate", "p.yaml", code=2).stderr.splitlines()
    places = {line.split(": ")[0] for line in lines}
    assert {"p.yaml:1:7", "p.yaml:4:12", "p.yaml:5:13", "p.yaml:6:5"} <= places


@pytest.mark.parametrize("name", ["missing.yaml", "missing.txt", "."])
def test_a_missing_file(yard: Yard, name: str) -> None:
    assert name in yard("run", name, code=2).stderr


def test_a_file_of_jobs_that_is_none(yard: Yard) -> None:
    """Said before AWS is asked for anything: no credentials are here."""
    yard.write("jobs.json", "{}")
    yard.write("squares.yaml", STEP)
    stderr = yard("submit", "job.json", code=2).stderr
    assert (
        "job.json: there is no such file" in stderr
        and 'did you mean "jobs.json"?' in stderr
        and "Errno" not in stderr
    )
    assert "this is a folder" in yard("submit", ".", code=2).stderr
    stderr = yard("submit", "squares.yaml", code=2).stderr
    assert (
        "squares.yaml looks like a pipeline" in stderr
        and "batchyard run squares.yaml --engine aws" in stderr
    )


def test_billion_laughs(yard: Yard) -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    yard.write("p.yaml", "\n".join(lines) + f"\nname: p\nsteps: *l{11}\n")
    assert "p.yaml:" in yard("validate", "p.yaml", code=2).stderr


def write_hostile_files(folder: Path) -> None:
    ranges = ", ".join(f"{first % 200 + 1}-255" for first in range(20_000))
    (folder / "rules.yaml").write_text(
        f"name: p\nsteps: [{{name: a, command: x, retries: 1, retry_on: [{ranges}]}}]\n"
    )
    (folder / "pipe.yaml").write_text("name: p\nsteps: [{name: a, commands_file: pipe}]\n")
    os.mkfifo(folder / "pipe")
    (folder / "zero.yaml").write_text("name: p\nsteps: [{name: a, commands_file: /dev/zero}]\n")
    with (folder / "long.txt").open("wb") as file:
        file.write(b"true\n" * 1_000_000 + b"x" * (100 << 20) + b"\ntrue\n")


@pytest.mark.parametrize(
    ("command", "mistake"),
    [
        ("validate rules.yaml", "rules.yaml:2:53: retry_on has 20,000 items; write at most 256"),
        ("validate pipe.yaml", 'pipe.yaml:2:34: commands_file "pipe": this is a pipe or a device'),
        ("validate zero.yaml", 'zero.yaml:2:34: commands_file "/dev/zero": this is a pipe or a'),
        ("run long.txt", "long.txt:1000001:1: the line is longer than 6 MiB"),
        ("run /dev/zero", "/dev/zero: more than 256 MiB came through the pipe"),
    ],
)
def test_hostile_files_take_little_time_and_memory(
    tmp_path: Path, command: str, mistake: str
) -> None:
    write_hostile_files(tmp_path)
    # 500 MB of memory, and 20 times 2 s of CPU time.
    limited = f'ulimit -v 500000 -t 40; exec "$0" -m batchyard {command}'
    done = subprocess.run(
        ["bash", "-c", limited, sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2, done.stderr[-2000:]
    assert mistake in done.stderr


def test_overlapping_exit_rules_become_one_rule_for_each_code() -> None:
    rules = [ExitRule(first=first, last=255) for first in range(1, 256)]
    assert len(retry_strategy(1, rules, rules).evaluate_on_exit) == 2 * 255 + 1


def test_a_million_commands(yard: Yard) -> None:
    yard.write("many.txt", "true\n" * 1_000_000)
    plan = yard.json("plan", "many.txt", "--array", "1000000")
    assert plan["jobs"][0]["commands"] == plan["jobs"][0]["size"] == 1_000_000


def test_crlf_is_fine(yard: Yard) -> None:
    (yard.folder / "p.yaml").write_bytes(
        b"name: p\r\nsteps:\r\n  - name: a\r\n    commands_file: list.txt\r\n"
    )
    (yard.folder / "list.txt").write_bytes(b"# a list\r\n\r\necho one\r\necho two\r\n")
    yard("run", "p.yaml")
    assert yard("logs", "last").stdout == "one\ntwo\n"


def test_a_command_that_cannot_be_found(yard: Yard) -> None:
    yard.write("list.txt", "no-such-program --flag\n")
    status = yard.json("run", "list.txt", code=1)
    assert status["failures"][0]["exit_code"] == 127
    assert "not found" in status["failures"][0]["reason"]


def test_a_child_that_can_never_fit(yard: Yard) -> None:
    yard.write("p.yaml", STEP + "    cpus: 9999\n    memory: 900TiB\n")
    stderr = yard("run", "p.yaml", code=2).stderr
    assert "9999 vCPUs" in stderr and "943718400 MiB" in stderr
    assert "p.yaml:5:11: step 'a': a child asks for" in stderr
    done = yard("run", "p.yaml", "--cpus", "9999", "--memory", "1000TiB", "--only", "a")
    assert done.returncode == 0


def test_a_step_that_can_never_fit_is_located_also_by_the_defaults(yard: Yard) -> None:
    yard.write(
        "p.yaml", "name: p\ndefaults:\n  memory: 900TiB\nsteps:\n  - {name: a, command: x}\n"
    )
    assert "p.yaml:3:11: step 'a': a child asks for" in yard("run", "p.yaml", code=2).stderr


def test_flags(yard: Yard) -> None:
    yard.write("p.yaml", STEP)
    yard.write("list.txt", "true\n")
    cases = [
        (("run", "p.yaml", "--array", "2"), "only for a plain list"),
        (("run", "list.txt", "--set", "a=1"), "only for a pipeline"),
        (("run", "p.yaml", "--set", "a"), "NAME=VALUE"),
        (("run", "p.yaml", "--set", "a=1"), "a"),
        (("run", "p.yaml", "--only", "b"), "no step is named 'b'"),
        (("run", "p.yaml", "--memory", "2 gigs"), "2GiB"),
        (("run", "p.yaml", "--cpus", "0"), "0"),
        (("run", "p.yaml", "--workspace", "nowhere"), "not a folder"),
        (("run", "p.yaml", "--runner", "docker"), "image"),
        (("run", "p.yaml", "--nonsense"), "--nonsense"),
        (("stats", "last"), "Did you mean 'status'?"),
        (("status", "last"), "no runs"),
        (("clean", "--older-than", "soon", "--keep", "1"), "soon"),
    ]
    for args, expected in cases:
        assert expected in yard(*args, code=2).stderr, args


def test_naming_a_run(yard: Yard) -> None:
    yard.write("list.txt", "true\n")
    first, second = (yard.json("run", "list.txt")["run"] for _ in range(2))
    assert yard.json("status", first)["run"] == first
    assert yard.json("status", "last")["run"] == second
    assert "could be any of 2 runs" in yard("status", "list-", code=2).stderr
    assert "no run begins with" in yard("status", "x", code=2).stderr
    assert "no step 'b'" in yard("logs", "last", "b", code=2).stderr
    assert "has no child '7'" in yard("logs", "last", "list:7", code=2).stderr


def test_home_is_found_upward_or_said(yard: Yard, tmp_path: Path) -> None:
    yard.write("list.txt", "true\n")
    run = yard.json("run", "list.txt")["run"]
    below = Yard(yard.folder / "a" / "b")
    below.folder.mkdir(parents=True)
    assert below.json("status", "last")["run"] == run
    elsewhere = Yard(tmp_path)
    home = str(yard.folder / ".batchyard")
    assert elsewhere.json("status", "last", "--home", home)["run"] == run
    status = elsewhere("status", "last", env=os.environ | {"BATCHYARD_HOME": home})
    assert run in status.stdout


def test_init_makes_a_pipeline_that_runs_and_overwrites_nothing(yard: Yard) -> None:
    advice = yard("init", "new one").stdout.splitlines()[-1]
    assert advice == "next: cd 'new one' && batchyard run pipeline.yaml"
    made = Yard(yard.folder / "new one")
    made("validate", "pipeline.yaml")
    assert made.json("run", "pipeline.yaml")["state"] == "SUCCEEDED"
    assert (made.folder / "result.txt").read_text().count("part") == 12
    assert "exists already" in yard("init", "new one", code=2).stderr
    first_line = (made.folder / "pipeline.yaml").read_text().splitlines()[0]
    schema = re.fullmatch(r"# yaml-language-server: \$schema=file://(\S+)", first_line)
    assert schema is not None
    assert json.loads(Path(unquote(schema[1])).read_text())["title"]


def test_help_has_an_example_for_every_command(yard: Yard) -> None:
    from batchyard.cli.main import COMMAND_GROUPS, cli

    listed = yard("--help").stdout
    for name in [name for group in COMMAND_GROUPS.values() for name in group]:
        assert f"  {name} " in listed
        result = CliRunner().invoke(cli, [name, "--help"])
        assert result.exit_code == 0 and "Examples:" in result.output, name


def test_completion(yard: Yard) -> None:
    yard.write("list.txt", "true\n")
    run = yard.json("run", "list.txt")["run"]
    assert "_BATCHYARD_COMPLETE" in yard("completion", "bash").stdout
    request = {
        "_BATCHYARD_COMPLETE": "bash_complete",
        "COMP_WORDS": "batchyard status l",
        "COMP_CWORD": "2",
    }
    words = yard(env=os.environ | request).stdout
    assert run in words and "last" in words
