"""`batchyard run -- COMMAND`: its output is on stdout, and its exit code is that of `run`."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from batchyard import Pipeline
from batchyard.errors import PipelineFileError
from command_yard import Yard


def test_the_output_and_the_exit_code_are_those_of_the_command(yard: Yard) -> None:
    done = yard("run", "--set-env", "X=a b", "--", "sh", "-c", 'echo "$X"; exit 7', code=7)
    assert done.stdout == "a b\n"
    assert done.stderr.startswith("run sh-")
    assert yard.json("status", "last", code=None)["state"] == "FAILED"


def test_a_single_text_is_for_the_shell(yard: Yard) -> None:
    assert yard("run", "--", "echo one; echo two").stdout == "one\ntwo\n"


def test_flags_behind_the_dashes_belong_to_the_command(yard: Yard) -> None:
    assert yard("run", "--", "echo", "--engine", "$X", "--").stdout == "--engine $X --\n"


def test_output_is_shown_while_the_command_runs(yard: Yard) -> None:
    process = subprocess.Popen(
        yard.command("run", "--", "echo early; until test -e go; do sleep 0.1; done"),
        cwd=yard.folder,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == b"early\n"
    yard.write("go", "")
    assert process.wait(300) == 0
    process.stdout.close()


def test_an_interrupted_command_exits_130(yard: Yard) -> None:
    process = yard.start("run", "--", "touch begun; sleep 600")
    while not (yard.folder / "begun").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--"], "there is no command"),
        ([], "Missing argument 'FILE', or a command behind '--'"),
        (["a.txt", "--", "ls"], "both a file, a.txt, and a command"),
        (["--array", "3", "-j", "2", "--", "ls"], "-j, --array: not for a single command"),
        (["--set-env", "X", "--", "ls"], "--set-env 'X' is not of the form NAME=VALUE"),
        (["--set-env", "AWS_BATCH_JOB_ID=1", "--", "ls"], "the engine sets this variable itself"),
    ],
)
def test_what_cannot_be_run_is_refused(yard: Yard, arguments: list[str], sentence: str) -> None:
    assert sentence in yard("run", *arguments, code=2).stderr


def test_variables_of_all_steps_of_a_pipeline_and_a_list(yard: Yard) -> None:
    yard.write(
        "p.yaml", "name: p\nsteps: [{name: a, command: echo $X $Y > out, env: {X: 1, Y: 2}}]\n"
    )
    yard.write("list.txt", "echo $X > listed\n")
    yard("run", "p.yaml", "--set-env", "X=3")
    yard("run", "list.txt", "--set-env", "X=4")
    assert (yard.folder / "out").read_text() == "3 2\n"
    assert (yard.folder / "listed").read_text() == "4\n"


def test_one_command_from_python(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(yard.folder)
    pipeline = Pipeline.command("sh", "-c", "echo $X", env={"X": 1}).with_env({"X": 2})
    run = pipeline.run(home=yard.folder / ".batchyard")
    assert run.wait() == "SUCCEEDED"
    assert b"".join(chunk.data for chunk in run.logs()) == b"2\n"
    with pytest.raises(PipelineFileError, match="there is no command"):
        Pipeline.command()
