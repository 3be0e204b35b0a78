"""Faults on purpose: kill -9, a full disk, a second process, children that misbehave."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from command_yard import Yard

#: Each command holds a lock while it runs; the kernel releases the lock when the process dies. If
#: the lock is taken, the same command runs twice at the same time.
CHECKED = """\
#!/bin/sh
exec 9> locks/$1 || exit 1
flock -n 9 || { echo "$1" >> overlaps; exit 1; }
sleep 0.02
echo x >> done/$1
"""


@pytest.mark.parametrize("kills", [6, pytest.param(30, marks=pytest.mark.slow)])
def test_sigkill_at_random_moments(yard: Yard, dice: random.Random, kills: int) -> None:
    """Every command runs, none is recorded as succeeded without it, none runs twice at once."""
    for folder in ("locks", "done"):
        (yard.folder / folder).mkdir()
    yard.write("one.sh", CHECKED)
    # Enough for work at most kills. The last step waits for a file, so that the run is never over
    # before the last kill, however late the kills come.
    wide, pairs, tail = 16 * kills, 8 * kills, 8 * kills
    yard.write("wide.txt", "".join(f"sh one.sh wide-{n}\n" for n in range(wide)))
    yard.write(
        "p.yaml",
        f"""\
name: p
steps:
  - {{name: wide, commands_file: wide.txt, array: {pairs}}}
  - name: pairs
    needs: [{{step: wide, each: true}}]
    array: {pairs}
    command: >-
      test -e done/wide-$((AWS_BATCH_JOB_ARRAY_INDEX * 2)) &&
      sh one.sh pairs-$AWS_BATCH_JOB_ARRAY_INDEX
  - {{name: tail, needs: [pairs], array: {tail},
     command: sh one.sh tail-$AWS_BATCH_JOB_ARRAY_INDEX}}
  - {{name: end, needs: [tail], command: "until test -e go; do sleep 0.02; done; sh one.sh end"}}
""",
    )
    for _ in range(kills):
        has_run = bool(yard.json("runs"))
        process = (
            yard.start("resume", "last") if has_run else yard.start("run", "p.yaml", "--cpus", "2")
        )
        time.sleep(dice.uniform(0.05, 0.75))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        _no_success_without_its_work(yard)
    (yard.folder / "go").touch()
    # On a very slow machine no moment may have been late enough for there to be a run.
    yard(*(("resume", "last") if yard.json("runs") else ("run", "p.yaml")), code=None)
    status = yard.json("status", "last")
    assert status["state"] == "SUCCEEDED", status
    expected = {f"wide-{n}" for n in range(wide)} | {f"pairs-{n}" for n in range(pairs)}
    expected |= {f"tail-{n}" for n in range(tail)} | {"end"}
    assert {path.name for path in (yard.folder / "done").iterdir()} == expected
    assert not (yard.folder / "overlaps").exists()


def _no_success_without_its_work(yard: Yard) -> None:
    done = {path.name for path in (yard.folder / "done").iterdir()}
    # Not `*`, which would also find the draft of a run that was killed before it became one.
    for database in yard.folder.glob(".batchyard/runs/[!.]*/state.db"):
        with closing(sqlite3.connect(database)) as db:
            commands = db.execute("SELECT number FROM command WHERE job = 0").fetchall()
            rows = db.execute("SELECT job, child FROM attempt WHERE state = 'SUCCEEDED'").fetchall()
        assert {f"wide-{number}" for (number,) in commands} <= done
        named = {1: "pairs-{}", 2: "tail-{}", 3: "end"}
        assert {named[job].format(child) for job, child in rows if job in named} <= done


def test_resume_ends_what_the_dead_engine_left_running(yard: Yard) -> None:
    # The second attempt must not see a sleeping process of the first attempt, although those use
    # nohup, setsid and an empty environment.
    yard.write(
        "list.txt",
        "test -e second && exit 0; touch second; "
        "(exec setsid sleep 1234.5 &) ; env -i sleep 1234.6 & nohup sleep 1234.7\n",
    )
    process = yard.start("run", "list.txt")
    yard.wait_for(lambda: len(_sleepers(yard)) == 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(_sleepers(yard)) == 3
    assert "INTERRUPTED" in yard("status", "last").stdout
    yard("resume", "last")
    assert _sleepers(yard) == []


def _sleepers(yard: Yard) -> list[str]:
    """Return the sleeping processes that commands of this yard's runs have started.

    The same tests may run at the same time elsewhere on the machine.
    """
    found = subprocess.run(
        ["ps", "-eo", "pid,stat,args"], capture_output=True, text=True, check=True
    ).stdout
    wanted = [line for line in found.splitlines() if "sleep 1234." in line and "sh -c" not in line]
    return [line for line in wanted if _is_at_work_in(yard.folder, *line.split()[:2])]


def _is_at_work_in(folder: Path, pid: str, state: str) -> bool:
    try:
        return "Z" not in state and os.readlink(f"/proc/{pid}/cwd") == str(folder)
    except OSError:  # it has ended meanwhile
        return False


def test_a_second_process_is_told_who_holds_the_run(yard: Yard) -> None:
    yard.write("list.txt", "touch on; sleep 60\n")
    process = yard.start("run", "list.txt")
    yard.wait_for((yard.folder / "on").exists)
    said = yard("resume", "last", code=3).stderr
    assert f"process {process.pid}" in said
    assert "is still running" in yard("retry", "last", code=2).stderr
    yard("stop", "last", "--grace", "1")
    assert process.wait(300) == 130


def test_stop_ends_the_whole_tree_even_of_what_ignores_sigterm(yard: Yard) -> None:
    yard.write(
        "stubborn.sh",
        "trap '' TERM\nsetsid sh -c 'trap \"\" TERM; sleep 1234.8; sleep 1234.8' &\n"
        "touch on\nsleep 1234.9; sleep 1234.9; sleep 1234.9\n",
    )
    yard.write("list.txt", "sh stubborn.sh\n")
    process = yard.start("run", "list.txt")
    yard.wait_for((yard.folder / "on").exists)
    yard("stop", "last", "--grace", "0.5")
    assert process.wait(300) == 130
    yard.wait_for(lambda: _sleepers(yard) == [])
    status = yard.json("status", "last")
    assert status["state"] == "STOPPED"
    assert status["failures"][0]["exit_code"] == 137
    assert status["failures"][0]["reason"] == "stopped by the user"


def test_stop_gives_sigterm_a_chance(yard: Yard) -> None:
    yard.write(
        "polite.sh", "trap 'touch tidied; exit 5' TERM\ntouch on\nwhile :; do sleep 0.05; done\n"
    )
    yard.write("list.txt", "sh polite.sh\n")
    process = yard.start("run", "list.txt")
    yard.wait_for((yard.folder / "on").exists)
    yard("stop", "last")
    assert process.wait(300) == 130
    assert (yard.folder / "tidied").exists()
    assert "is over already: STOPPED" in yard("stop", "last").stdout


def test_stop_of_one_step_fails_what_depends_on_it_and_nothing_else(yard: Yard) -> None:
    yard.write(
        "p.yaml",
        """\
name: p
steps:
  - {name: long, command: touch on; sleep 60}
  - {name: after, needs: [long], command: touch never}
  - {name: other, command: "until test -e go; do sleep 0.05; done"}
""",
    )
    process = yard.start("run", "p.yaml", "--cpus", "2")
    yard.wait_for((yard.folder / "on").exists)
    yard("stop", "last", "long", "--grace", "1")
    (yard.folder / "go").touch()
    assert process.wait(300) == 1
    status = yard.json("status", "last")
    assert [step["state"] for step in status["steps"]] == ["FAILED", "FAILED", "SUCCEEDED"]
    assert [step["reason"] for step in status["steps"][:2]] == [
        "stopped by the user",
        "Dependent Job failed",
    ]


def test_stop_of_a_run_whose_process_died(yard: Yard) -> None:
    yard.write("list.txt", "touch on; sleep 1234.1\n" * 3)
    process = yard.start("run", "list.txt", "--array", "3")
    yard.wait_for((yard.folder / "on").exists)
    process.send_signal(signal.SIGKILL)
    process.wait()
    yard("stop", "last")
    assert yard.json("status", "last")["state"] == "STOPPED"
    yard.wait_for(lambda: _sleepers(yard) == [])
    assert "is over" in yard("resume", "last", code=2).stderr


def test_ctrl_c_stops_the_run(yard: Yard) -> None:
    yard.write("list.txt", "touch on; sleep 60\n" * 10)
    process = yard.start("run", "list.txt", "--array", "10")
    yard.wait_for((yard.folder / "on").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130
    status = yard.json("status", "last")
    assert status["state"] == "STOPPED" and status["steps"][0]["failed"] == 10


def test_a_daemon_ends_with_its_child_but_not_before(yard: Yard) -> None:
    daemon = "setsid sh -c 'sleep 1234.2' > /dev/null 2>&1 & "
    look = "pgrep -f '^sleep 1234[.]2' > seen"
    yard.write("list.txt", f"{daemon} until {look}; do sleep 0.05; done; sleep 0.5; {look}\ntrue\n")
    yard("run", "list.txt", "--share-out", "static")
    assert (yard.folder / "seen").read_text().strip()
    assert _sleepers(yard) == []


@pytest.mark.parametrize("size", [50_000_000, pytest.param(1_000_000_000, marks=pytest.mark.slow)])
def test_much_on_stdout(yard: Yard, size: int) -> None:
    yard.write("list.txt", f"head -c {size} /dev/zero\n")
    yard("run", "list.txt")
    (log,) = yard.folder.glob(".batchyard/runs/*/logs/list/0-1.log")
    assert log.stat().st_size == size
    log.unlink()


def test_a_state_from_a_newer_version(yard: Yard) -> None:
    yard.write("list.txt", "true\n")
    yard("run", "list.txt")
    (database,) = yard.folder.glob(".batchyard/runs/*/state.db")
    with closing(sqlite3.connect(database)) as db:
        db.execute("PRAGMA user_version=99")
    said = yard("status", "last", code=3).stderr
    assert "newer batchyard" in said and "upgrade" in said
    assert yard("runs").returncode == 0


def test_half_written_and_damaged_files(yard: Yard) -> None:
    yard.write("list.txt", "true\n")
    good = yard.json("run", "list.txt")["run"]
    bad = yard.json("run", "list.txt")["run"]
    folder = yard.folder / ".batchyard" / "runs"
    (folder / ".new-list-20260101-abcdef").mkdir()
    record = folder / bad / "run.json"
    record.write_bytes(record.read_bytes()[:40])
    said = yard("status", "last", code=3).stderr
    assert "run.json cannot be read" in said
    (folder / good / "state.db").write_bytes(
        b"not a database at all, but long enough to be looked at" * 40
    )
    assert "cannot be read" in yard("status", good, code=3).stderr
    assert yard.json("runs") == []


def test_an_unusable_home(yard: Yard) -> None:
    yard.write("list.txt", "true\n")
    yard.write("file", "")
    said = yard("run", "list.txt", "--home", "file/home", code=3).stderr
    assert "could not record the run in" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    where = tmp_path / "small"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(where)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


def test_a_full_disk_loses_nothing(yard: Yard, small_disk: Path) -> None:
    yard.write(
        "list.txt", "".join(f"echo {n} >> ran; head -c 100000 /dev/zero\n" for n in range(60))
    )
    said = yard("run", "list.txt", "--array", "60", "--home", str(small_disk), code=3)
    assert "No space left" in said.stderr or "full" in said.stderr
    assert "resume" in said.stderr
    before = yard.json("status", "last", "--home", str(small_disk))["steps"][0]["succeeded"]
    subprocess.run(["mount", "-o", "remount,size=32m", str(small_disk)], check=True)
    status = yard.json("resume", "last", "--home", str(small_disk))
    assert status["state"] == "SUCCEEDED"
    ran = (yard.folder / "ran").read_text().split()
    assert set(ran) == {str(n) for n in range(60)}
    # What had been recorded was not run again.
    assert len(ran) - 60 <= 60 - before


def test_an_unwritable_home(yard: Yard, small_disk: Path) -> None:
    yard.write("list.txt", "true\n")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    said = yard("run", "list.txt", "--home", str(small_disk), code=3).stderr
    assert "read-only" in said.lower() and "--home" in said


def test_the_record_is_there_before_anything_runs(yard: Yard) -> None:
    yard.write("list.txt", "cp .batchyard/runs/$BATCHYARD_RUN/run.json copy.json\n")
    run = yard.json("run", "list.txt")["run"]
    assert json.loads((yard.folder / "copy.json").read_text())["run"] == run


def test_the_environment_of_another_run_does_not_leak(yard: Yard) -> None:
    yard.write("list.txt", "env | grep -c STALE\n")
    stale = {
        "AWS_BATCH_JOB_ARRAY_INDEX": "STALE",
        "BATCHYARD_RUN": "STALE",
        "AWS_BATCH_JOB_NODE_INDEX": "STALE",
    }
    yard("run", "list.txt", code=1, env=os.environ | stale)
    assert yard("logs", "last").stdout == "0\n"


def test_an_engine_that_dies_while_it_stops_a_run_leaves_nothing_untold(yard: Yard) -> None:
    yard.write(
        "p.yaml",
        "name: p\nsteps:\n  - {name: a, command: trap '' TERM; touch on; sleep 60; sleep 60}\n"
        "  - {name: b, needs: [a], command: 'true'}\n",
    )
    process = yard.start("run", "p.yaml")
    yard.wait_for((yard.folder / "on").exists)
    process.send_signal(signal.SIGINT)  # SIGTERM to the child, which ignores it
    yard.wait_for(lambda: yard.json("status", "last")["steps"][1]["state"] == "FAILED")
    process.send_signal(signal.SIGKILL)
    process.wait()
    yard("resume", "last", code=130)
    status = yard.json("status", "last")
    assert status["state"] == "STOPPED"
    assert [step["reason"] for step in status["steps"]] == ["stopped by the user"] * 2


def test_two_signals_in_one_turn_stop_the_run_and_record_no_success(yard: Yard) -> None:
    # On a busy machine the second command may begin before the engine handles the signals. It
    # sleeps, so that it cannot succeed by then.
    yard.write("list.txt", "kill -TERM $PPID; kill -HUP $PPID; exit 0\nsleep 60\n")
    for _ in range(5):
        yard("run", "list.txt", code=130)
        assert yard.json("status", "last")["state"] == "STOPPED"


def test_a_stop_that_comes_while_the_engine_starts_is_heard(yard: Yard) -> None:
    yard.write("list.txt", "sleep 600\n")
    for _ in range(5):
        run = yard("run", "list.txt", "--detach").stdout.strip()
        yard("stop", run, "--grace", "1")
        assert yard.json("status", run)["state"] == "STOPPED"


def test_what_was_running_before_the_engine_is_left_alone(yard: Yard) -> None:
    yard.write("list.txt", "sleep 0.3\ntrue\n")
    command = " ".join(f"'{word}'" for word in yard.command("run", "list.txt"))
    script = f"sleep 600 > /dev/null 2>&1 & echo $! > pid; exec {command}"
    subprocess.run(["sh", "-c", script], cwd=yard.folder, check=True, capture_output=True)
    pid = int((yard.folder / "pid").read_text())
    os.kill(pid, signal.SIGKILL)  # raises if it is gone


def test_a_daemon_s_whole_family_ends_with_the_run(yard: Yard) -> None:
    yard.write("one.sh", "sh two.sh; true\n")
    yard.write("two.sh", "sh three.sh; true\n")
    yard.write("three.sh", "sleep 1234.4; true\n")
    yard.write("list.txt", "setsid sh one.sh > /dev/null 2>&1 & sleep 0.3\n")
    yard("run", "list.txt")
    assert _sleepers(yard) == []


def test_a_second_stop_can_be_less_patient(yard: Yard) -> None:
    yard.write("list.txt", "trap '' TERM; touch on; sleep 600; sleep 600\n")
    process = yard.start("run", "list.txt")
    yard.wait_for((yard.folder / "on").exists)
    patient = yard.start("stop", "last", "--grace", "500")
    yard("stop", "last", "--grace", "0.2")
    assert process.wait(300) == 130 and patient.wait(300) == 0


def test_closed_streams_and_an_odd_path(yard: Yard) -> None:
    yard.write("list.txt", "echo hello\n")
    command = " ".join(f"'{word}'" for word in yard.command("run", "list.txt"))
    for closed in ("2>&-", ">&-", "0<&- >&- 2>&-"):
        subprocess.run(
            ["sh", "-c", f"{command} {closed}"],
            cwd=yard.folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        assert yard.json("status", "last")["state"] == "SUCCEEDED"
        assert yard("logs", "last").stdout == "hello\n"
    odd = os.environb | {b"PATH": os.environb[b"PATH"] + b":/caf\xe9"}
    yard("run", "list.txt", env=odd)


def test_output_larger_than_a_pipe_does_not_wait_for_a_tick(yard: Yard) -> None:
    yard.write("list.txt", "seq 50000\n" * 4)
    yard("run", "list.txt", "--array", "4")
    numbers = "".join(f"{n}\n" for n in range(1, 50001))
    assert yard("logs", "last", "list:3").stdout == numbers


def test_one_of_several_commands_that_cannot_be_started_is_one_that_failed(yard: Yard) -> None:
    long = "echo " + "x" * 200_000 + " > /dev/null"
    yard.write("list.txt", f"{long}\necho after\n")
    status = yard.json("run", "list.txt", "--share-out", "static", code=1)
    assert status["failures"][0]["exit_code"] == 126
    assert "after\n" in yard("logs", "last").stdout


def test_a_run_on_a_read_only_disk_can_be_read(yard: Yard, small_disk: Path) -> None:
    yard.write("list.txt", "echo hello\n")
    yard("run", "list.txt", "--home", str(small_disk))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert yard.json("status", "last", "--home", str(small_disk))["state"] == "SUCCEEDED"
    assert yard("logs", "last", "--home", str(small_disk)).stdout == "hello\n"
