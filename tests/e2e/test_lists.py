"""Plain lists of commands: how many run at once, failures, pipes, and the flags about them."""

from __future__ import annotations

import pytest

from command_yard import Yard


def waiting_for_all(count: int) -> str:
    """Return a list whose commands end only if all of them run at the same time."""
    wait = f"until test $(ls on-* | wc -l) = {count}; do sleep 0.02; done"
    return f"touch on-$BATCHYARD_COMMAND; {wait}\n" * count


def test_a_list_uses_all_slots(yard: Yard) -> None:
    yard.write("list.txt", waiting_for_all(3))
    status = yard.json("run", "list.txt", "--limit-cpus", "3")
    assert status["steps"][0]["commands"] == {"total": 3, "succeeded": 3, "failed": 0}


def test_more_commands_at_once_than_the_machine_has_vcpus_and_memory(yard: Yard) -> None:
    yard.write("list.txt", waiting_for_all(12))
    yard("run", "list.txt", "-j", "12", "--memory", "1TiB")


def test_fewer_commands_at_once_than_fit(yard: Yard) -> None:
    seen = "touch on-$BATCHYARD_COMMAND; ls on-* | wc -l >> seen; rm on-$BATCHYARD_COMMAND"
    yard.write("list.txt", f"{seen}\n" * 20)
    yard("run", "list.txt", "-j", "1", "--limit-cpus", "8")
    assert set((yard.folder / "seen").read_text().split()) == {"1"}


def test_a_list_goes_on_after_a_failure(yard: Yard) -> None:
    yard.write("list.txt", "exit 3\ntouch second\nexit 4\ntouch last\n")
    status = yard.json("run", "list.txt", code=1)
    assert [failure["text"] for failure in status["failures"]] == ["exit 3", "exit 4"]
    assert (yard.folder / "second").exists() and (yard.folder / "last").exists()


def test_fail_fast_stops_a_list(yard: Yard) -> None:
    yard.write("list.txt", "exit 3\n" + "sleep 600\n" * 5)
    assert yard.json("run", "list.txt", "--fail-fast", code=1)["steps"][0]["succeeded"] == 0


def test_a_list_from_a_pipe_is_recorded_here_and_can_be_retried(yard: Yard) -> None:
    shown = yard("run", "-", input="echo one\ntest -e repaired\n", code=1)
    assert "list: FAILED 1/2 succeeded, 1 failed" in shown.stderr
    assert (yard.folder / ".batchyard" / "runs").is_dir()
    yard.write("repaired", "")
    status = yard.json("retry", "last")
    assert status["state"] == "SUCCEEDED" and status["steps"][0]["size"] == 1


def test_a_list_from_a_pipe_in_the_background(yard: Yard) -> None:
    run = yard("run", "-", "--detach", input="echo one\n").stdout.strip()
    yard("status", run, "--watch")
    assert yard("logs", run).stdout == "one\n"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "standard input: there is no command in the file; write one command a line"),
        ("a\0b\n", "standard input:1:2: a NUL byte in the file; remove it"),
        ("#!/bin/sh\n", "standard input:1:1: this is a script, not a list of commands"),
    ],
)
def test_mistakes_of_a_list_from_a_pipe(yard: Yard, text: str, mistake: str) -> None:
    for command in ("run", "plan", "validate"):
        assert mistake in yard(command, "-", input=text, code=2).stderr


def test_requests_and_limits_have_flags_of_their_own(yard: Yard) -> None:
    yard.write("p.yaml", "name: p\nsteps: [{name: a, cpus: 3, command: 'true'}]\n")
    old = yard("run", "p.yaml", "--cpus", "3").stderr
    assert "note: for a pipeline, write --limit-cpus for --cpus" in old
    assert "note:" not in yard("run", "p.yaml", "--limit-cpus", "3").stderr
    refusal = yard("run", "p.yaml", "--cpus", "3", "--limit-cpus", "3", code=2).stderr
    assert "--cpus is what each command of a plain list requests" in refusal
    yard.write("list.txt", "true\n")
    refusal = yard("run", "list.txt", "--cpus", "3", "--limit-cpus", "2", code=2).stderr
    assert "a child asks for 3 vCPUs and there are 2" in refusal
    yard.write("list.txt", "test -e repaired\n")
    yard("run", "list.txt", "--cpus", "3", "--limit-cpus", "3", code=1)
    for flag in ("--cpus", "--limit-cpus"):
        assert "there are 2" in yard("retry", "last", flag, "2", code=2).stderr


def test_flags_of_lists_with_a_pipeline(yard: Yard) -> None:
    yard.write("p.yaml", "name: p\nsteps: [{name: a, command: x}, {name: b, command: y}]\n")
    assert "-j is for a list of commands" in yard("run", "p.yaml", "-j", "2", code=2).stderr
    refusal = yard("plan", "p.yaml", "--fail-fast", code=2).stderr
    assert "--fail-fast: only for a plain list" in refusal and "`fail_fast:`" in refusal


def test_one_command_or_child_is_repeated_as_asked(yard: Yard) -> None:
    yard.write("list.txt", "".join(f"echo {n} >> ran; test {n} != 5\n" for n in range(8)))
    run = yard.json("run", "list.txt", "--array", "4", "--share-out", "static", code=1)["run"]
    for arguments, code, numbers in (
        (("--command", "3"), 0, [3]),
        (("--command", "5"), 1, [5]),
        (("list:1",), 0, [2, 3]),
        (("list:2",), 1, [5]),
    ):
        (yard.folder / "ran").unlink()
        yard("retry", run, *arguments, code=code)
        assert (yard.folder / "ran").read_text().split() == [str(number) for number in numbers]
        assert {command["command"] for command in yard.json("commands", "last")} >= set(numbers)
    assert "leave STEP out" in yard("retry", run, "list", "--command", "3", code=2).stderr


def test_what_a_resume_would_run(yard: Yard) -> None:
    yard.write("list.txt", "echo first\nexit 3\ntouch on; sleep 600\necho last\n")
    process = yard.start("run", "list.txt", "-j", "1")
    yard.wait_for((yard.folder / "on").exists)
    yard.wait_for(lambda: len(yard.json("commands", "last")) == 2)
    process.kill()
    process.wait()
    plan = yard.json("plan", "--resume", "last", "--reasons")
    assert [(entry["command"], entry["reason"]) for entry in plan["commands"]] == [
        (2, "not done: never ran"),
        (3, "not done: never ran"),
    ]
    assert "one of FILE, --retry RUN and --resume RUN" in yard("plan", code=2).stderr
    shown = yard("plan", "list.txt", "--commands").stdout
    assert "list:3       3  echo last" in shown
    yard("stop", "last")
