"""Runs through the real command line: environment of children, exit codes, printed output."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from command_yard import Yard

PIPELINE = """\
name: small
env: {SHARED: all}
params: {word: hello}
steps:
  - name: first
    command: echo ${params.word} > first.txt
  - name: list
    needs: [first]
    commands_file: list.txt
    array: 3
    env: {OWN: "1"}
  - name: pairs
    needs: [{step: list, each: true}]
    command: cat out-$AWS_BATCH_JOB_ARRAY_INDEX.txt
    array: 3
  - name: last
    needs: [pairs]
    command: cat out-*.txt | sort > all.txt
"""
LIST = "\n".join(f"echo {n} >> out-$AWS_BATCH_JOB_ARRAY_INDEX.txt" for n in range(8))


@pytest.fixture
def small(yard: Yard) -> Yard:
    yard.write("pipeline.yaml", PIPELINE)
    yard.write("list.txt", LIST)
    return yard


def test_a_pipeline_runs_in_order_and_every_command_once(small: Yard) -> None:
    status = small.json("run", "pipeline.yaml")
    assert status["state"] == "SUCCEEDED"
    assert [(s["name"], s["size"], s["succeeded"]) for s in status["steps"]] == [
        ("first", 1, 1),
        ("list", 3, 3),
        ("pairs", 3, 3),
        ("last", 1, 1),
    ]
    assert (small.folder / "all.txt").read_text().split() == [str(n) for n in range(8)]


def test_the_json_shapes_of_the_design(small: Yard) -> None:
    run = small.json("run", "pipeline.yaml")
    assert {"run", "pipeline", "engine", "state", "started", "ended", "steps"} <= set(run)
    step_keys = {
        "name",
        "state",
        "size",
        "succeeded",
        "failed",
        "running",
        "waiting",
        "attempts",
        "reason",
    }
    assert all(step_keys <= set(step) for step in run["steps"])
    assert small.json("status", run["run"]) == run
    (listed,) = small.json("runs")
    assert listed == {k: run[k] for k in ("run", "pipeline", "engine", "state", "started", "ended")}
    plan = small.json("plan", "pipeline.yaml")
    assert plan["jobs"][1] == {
        "step": "list",
        "size": 3,
        "commands": 8,
        "share_out": "static",
        "cpus": 1,
        "memory_mib": 512,
        "gpus": 0,
        "attempts": 1,
        "timeout_s": None,
        "needs": [{"step": "first", "each": False}],
        "expected_s": None,
        "lower_bound_s": None,
    }


def test_what_a_child_is_told(yard: Yard) -> None:
    yard.write("env.txt", "env -0 > env-$AWS_BATCH_JOB_ARRAY_INDEX\n" * 2)
    run = yard.json("run", "env.txt", "--array", "2")["run"]
    text = (yard.folder / "env-1").read_text()
    told = dict(line.split("=", 1) for line in text.rstrip("\0").split("\0"))
    job_id, _, index = told["AWS_BATCH_JOB_ID"].partition(":")
    assert len(job_id) == 36 and index == "1"
    expected = {
        "AWS_BATCH_JOB_ATTEMPT": "1",
        "AWS_BATCH_JOB_ARRAY_INDEX": "1",
        "AWS_BATCH_JOB_ARRAY_SIZE": "2",
        "ARRAY_SIZE": "2",
        "BATCHYARD_RUN": run,
        "BATCHYARD_STEP": "env",
        "BATCHYARD_WORKSPACE": str(yard.folder),
        "BATCHYARD_DEVICE": "cpu",
    }
    assert {name: told.get(name) for name in expected} == expected
    assert told["AWS_BATCH_JQ_NAME"] and told["AWS_BATCH_CE_NAME"]
    assert told["LIST_FILE_S3_PATH"].startswith("file:///")


def test_a_single_job_is_told_of_no_array(yard: Yard) -> None:
    yard.write("p.yaml", "name: p\nsteps:\n  - name: s\n    command: env > env\n")
    yard("run", "p.yaml")
    names = {line.partition("=")[0] for line in (yard.folder / "env").read_text().splitlines()}
    assert "AWS_BATCH_JOB_ARRAY_INDEX" not in names and "AWS_BATCH_JOB_ARRAY_SIZE" not in names


def test_a_failure_is_retried_then_fails_what_depends_on_it(yard: Yard) -> None:
    yard.write(
        "p.yaml",
        """\
name: p
steps:
  - name: bad
    command: echo attempt $AWS_BATCH_JOB_ATTEMPT; exit 7
    retries: 2
  - name: after
    needs: [bad]
    command: touch never
""",
    )
    status = yard.json("run", "p.yaml", code=1)
    bad, after = status["steps"]
    assert (bad["state"], bad["attempts"], bad["reason"]) == (
        "FAILED",
        3,
        "Essential container in task exited",
    )
    assert (after["state"], after["attempts"], after["reason"]) == (
        "FAILED",
        0,
        "Dependent Job failed",
    )
    (failure,) = status["failures"]
    assert failure["exit_code"] == 7 and failure["log_tail"] == ["attempt 3"]
    assert not (yard.folder / "never").exists()
    assert yard("logs", "last", "bad").stdout.count("attempt") == 3 + 2  # three lines, two headings


def test_fail_on_is_looked_at_before_retry_on(yard: Yard) -> None:
    step = "command: exit {}\n    retries: 3\n    retry_on: [75, '1-4']\n    fail_on: [2]"
    for code, attempts in ((75, 4), (3, 4), (2, 1), (9, 1)):
        yard.write("p.yaml", f"name: p\nsteps:\n  - name: s\n    {step.format(code)}\n")
        assert yard.json("run", "p.yaml", code=1)["steps"][0]["attempts"] == attempts


def test_another_attempt_skips_the_commands_that_succeeded(yard: Yard) -> None:
    yard.write("list.txt", "echo a >> seen\ntest $AWS_BATCH_JOB_ATTEMPT = 2\necho c >> seen\n")
    yard("run", "list.txt", "--retries", "1", "--share-out", "static")
    assert (yard.folder / "seen").read_text() == "a\nc\n"


def test_keep_going_runs_the_rest_and_fails_with_the_first_code(yard: Yard) -> None:
    yard.write(
        "p.yaml",
        "name: p\nsteps:\n"
        "  - name: s\n    keep_going: true\n    commands: [exit 3, touch b, exit 4]\n",
    )
    status = yard.json("run", "p.yaml", code=1)
    assert status["failures"][0]["exit_code"] == 3 and (yard.folder / "b").exists()


def test_max_running_and_capacity_bound_what_runs_at_once(yard: Yard) -> None:
    # Each child notes how many others it sees.
    command = (
        "touch on-$AWS_BATCH_JOB_ARRAY_INDEX; ls on-* | wc -l >> seen; sleep 0.05; "
        "rm on-$AWS_BATCH_JOB_ARRAY_INDEX\n"
    )
    yard.write("list.txt", command * 12)
    yard("run", "list.txt", "--array", "12", "--max-running", "1")
    assert set((yard.folder / "seen").read_text().split()) == {"1"}


@pytest.mark.slow
def test_short_commands_need_no_more_open_files_than_long_ones(yard: Yard) -> None:
    yard.write("list.txt", "true\n" * 2000)
    limited = ["bash", "-c", 'ulimit -n 200; exec "$@"', "bash"]
    done = subprocess.run(
        [*limited, *yard.command("run", "list.txt", "-j", "20", "--json")],
        cwd=yard.folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"][0]["succeeded"] == 2000


def test_only_and_from(small: Yard) -> None:
    small("run", "pipeline.yaml", "--only", "first", "--set", "word=bye")
    assert (small.folder / "first.txt").read_text() == "bye\n"
    status = small.json("run", "pipeline.yaml", "--from", "list")
    assert [step["name"] for step in status["steps"]] == ["list", "pairs", "last"]


def test_a_timeout_ends_the_attempt_and_is_not_retried(yard: Yard) -> None:
    yard.write(
        "p.yaml",
        "name: p\nsteps:\n  - name: s\n    command: sleep 60\n    timeout: 1s\n    retries: 3\n",
    )
    done = yard("run", "p.yaml", code=1)
    assert "60" in done.stderr  # the warning that AWS wants at least 60 s
    status = yard.json("status", "last")
    assert status["steps"][0]["attempts"] == 1
    assert status["failures"][0]["reason"] == "Job attempt duration exceeded timeout"


def test_fail_fast_ends_the_run_at_the_first_failure(yard: Yard) -> None:
    yard.write(
        "p.yaml",
        """\
name: p
fail_fast: true
steps:
  - {name: bad, command: exit 1}
  - {name: long, command: sleep 60}
  - {name: after, needs: [long], command: touch never}
""",
    )
    status = yard.json("run", "p.yaml", "--cpus", "2", code=1)
    assert [step["state"] for step in status["steps"]] == ["FAILED"] * 3
    assert "fail_fast" in status["steps"][1]["reason"]


def test_retry_runs_only_what_is_left_and_keeps_the_numbers(yard: Yard) -> None:
    yard.write(
        "list.txt", "".join(f"echo {n} >> ran; test {n} != 5 -o -e fixed\n" for n in range(8))
    )
    first = yard.json("run", "list.txt", "--array", "4", "--share-out", "static", code=1)
    assert first["steps"][0]["failed"] == 1
    (yard.folder / "ran").unlink()
    (yard.folder / "fixed").touch()
    second = yard.json("retry", "last")
    assert second["state"] == "SUCCEEDED" and second["run"] != first["run"]
    assert second["steps"][0]["size"] == 1
    # Child 2 had commands 4 and 5, and 4 had succeeded.
    assert (yard.folder / "ran").read_text() == "5\n"
    assert "nothing to retry" in yard("retry", "last", code=2).stderr


def test_a_retry_after_the_folder_was_moved(yard: Yard) -> None:
    project = Yard(yard.folder / "here")
    project.write("p.yaml", "name: p\nsteps: [{name: a, command: test -e repaired}]\n")
    run = project.json("run", "p.yaml", code=1)["run"]
    moved = Yard(project.folder.rename(yard.folder / "there"))
    moved.write("repaired", "")
    refusal = moved("retry", run, code=2).stderr
    assert f"the workspace of the run, {project.folder}, is not a folder" in refusal
    assert "--workspace DIR" in refusal
    assert [row["state"] for row in moved.json("runs")] == ["FAILED"]
    assert "nowhere is not a folder" in moved("retry", run, "--workspace", "nowhere", code=2).stderr
    assert moved.json("retry", run, "--workspace", ".")["state"] == "SUCCEEDED"


def test_a_retried_child_is_told_its_number_in_the_step(yard: Yard) -> None:
    text = (
        "test $AWS_BATCH_JOB_ARRAY_INDEX -lt 3 -o -e fixed; e=$?; "
        "echo $AWS_BATCH_JOB_ARRAY_INDEX/$ARRAY_SIZE; exit $e"
    )
    yard.write("p.yaml", f"name: p\nsteps:\n  - name: s\n    array: 5\n    command: {text}\n")
    yard("run", "p.yaml", code=1)
    (yard.folder / "fixed").touch()
    yard("retry", "last")
    assert yard("logs", "last", "s:4").stdout == "4/5\n"
    assert "no child '1'" in yard("logs", "last", "s:1", code=2).stderr


def test_logs_are_byte_for_byte(yard: Yard) -> None:
    yard.write(
        "list.txt",
        r"printf '\377\000x\r\n' ; printf err >&2 ; sleep 0.2; echo later > /dev/stderr" + "\n",
    )
    yard("run", "list.txt")
    import subprocess

    shown = subprocess.run(
        yard.command("logs", "last"), cwd=yard.folder, capture_output=True, check=True
    )
    assert shown.stdout == b"\xff\x00x\r\nerrlater\n"


def test_logs_of_failed_children_only(yard: Yard) -> None:
    yard.write("list.txt", "echo good\necho bad; exit 1\n")
    yard("run", "list.txt", "--array", "2", code=1)
    assert yard("logs", "last", "--failed").stdout == "==> list:1 <==\nbad\n"


def test_a_running_list_gets_more_children(yard: Yard) -> None:
    gate = "touch began-{}; while [ ! -e go ]; do sleep 0.1; done"
    yard.write("list.txt", "".join(f"{gate.format(number)}\n" for number in range(4)))
    run = yard("run", "list.txt", "-j", "1", "--detach").stdout.strip()
    yard.wait_for(lambda: list(yard.folder.glob("began-*")))
    assert yard("scale", run, "list", "3").stdout == f"run {run}: list has 3 children now\n"
    yard.wait_for(lambda: len(list(yard.folder.glob("began-*"))) == 3)
    yard.write("go", "")
    yard("status", run, "--watch")
    assert len(list(yard.folder.glob("began-*"))) == 4


def test_a_detached_run_goes_on_by_itself(yard: Yard) -> None:
    yard.write("list.txt", "until test -e go; do sleep 0.1; done; touch done\n")
    run = yard("run", "list.txt", "--detach").stdout.strip()
    assert yard.json("status", run)["state"] == "RUNNING"
    assert "executed by process" in yard("resume", run, code=3).stderr
    (yard.folder / "go").touch()
    assert yard.json("status", run[:-3], "--watch")["state"] == "SUCCEEDED"
    assert (yard.folder / "done").exists()


def test_clean_deletes_the_old_and_keeps_the_newest(yard: Yard) -> None:
    yard.write("list.txt", "true\n")
    ids = [yard.json("run", "list.txt")["run"] for _ in range(3)]
    assert "no runs are selected" in yard("clean", code=2).stderr
    yard("clean", "--older-than", "1h")
    assert len(yard.json("runs")) == 3
    yard("clean", "--keep", "1")
    assert [one["run"] for one in yard.json("runs")] == [ids[-1]]


def test_a_child_with_more_memory_than_it_requested_has_a_warning(yard: Yard) -> None:
    hold = "python3 -c 'import time; block = bytearray(300 << 20); time.sleep(3)'"
    yard.write(
        "p.yaml",
        "name: p\nsteps:\n"
        f'  - {{name: large, memory: 64MiB, command: "{hold}"}}\n'
        "  - {name: small, memory: 4MiB, command: 'true'}\n",
    )
    done = yard("run", "p.yaml")
    assert done.stdout.count("warning: ") == 1
    assert "warning: large: 1 child used more memory than requested (large:0: " in done.stdout
    (excess,) = yard.json("status", "last")["memory_excesses"]
    assert excess["peak_mib"] >= 300
    assert (excess["step"], excess["children"], excess["requested_mib"]) == ("large", 1, 64)
    page = yard("report", "last", "--out", "-").stdout
    assert "<li>large: 1 child used more memory than requested" in page


def test_clean_that_could_not_delete_a_run_exits_with_3(yard: Yard) -> None:
    yard.write("list.txt", "true\n")
    broken, _ = (yard.json("run", "list.txt")["run"] for _ in range(2))
    (yard.folder / ".batchyard" / "runs" / broken / "run.json").write_text("{")
    done = yard("clean", "--keep", "0", code=3)
    assert done.stdout == "1 run deleted\n"
    assert done.stderr.startswith(f"{broken}: ")
    assert "cannot be read" in done.stderr


def test_progress_goes_to_stderr_and_the_answer_to_stdout(small: Yard) -> None:
    done = small("run", "pipeline.yaml")
    assert "list: SUCCEEDED 8/8 succeeded" in done.stderr
    assert done.stdout.startswith("run small-") and "SUCCEEDED" in done.stdout
    assert "list: SUCCEEDED" not in done.stdout


def test_a_reader_that_goes_away_does_not_end_the_run(small: Yard) -> None:
    import subprocess

    process = subprocess.Popen(
        small.command("run", "pipeline.yaml"),
        cwd=small.folder,
        # Unbuffered, nothing would be left to write at the end.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(300) == 0
    assert small.json("status", "last")["state"] == "SUCCEEDED"


def test_gpu_slots_are_handed_out_by_number(yard: Yard) -> None:
    yard.write(
        "p.yaml",
        "name: p\nsteps:\n  - name: g\n    array: 4\n    gpus: 1\n"
        "    command: echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES $BATCHYARD_DEVICE;"
        " sleep 0.1\n",
    )
    assert "no GPU" in yard("run", "p.yaml", "--cpus", "4", code=2).stderr
    done = yard("run", "p.yaml", "--cpus", "4", "--gpus", "2")
    assert "pretended" in done.stderr
    lines = {
        line for line in yard("logs", "last").stdout.splitlines() if not line.startswith("==>")
    }
    assert lines == {"0 0 gpu", "1 1 gpu"}
    done = yard("run", "p.yaml", "--no-gpu")
    assert "BATCHYARD_DEVICE=cpu" in done.stderr
    assert yard("logs", "last", "g:0").stdout.split() == ["cpu"]


def test_the_plan_is_what_the_run_does(small: Yard) -> None:
    plan = small.json("plan", "pipeline.yaml")
    status = small.json("run", "pipeline.yaml")
    assert [(j["step"], j["size"]) for j in plan["jobs"]] == [
        (s["name"], s["size"]) for s in status["steps"]
    ]
    record = json.loads(
        (small.folder / ".batchyard" / "runs" / status["run"] / "run.json").read_text()
    )
    assert [job["step"] for job in record["plan"]["jobs"]] == [job["step"] for job in plan["jobs"]]


def test_a_parent_that_ignores_the_ends_of_its_children_hides_no_failure(yard: Yard) -> None:
    """Some supervisors do. The kernel would then take the exit codes of all children."""
    yard.write("list.txt", "exit 1\ntrue\n" * 20)
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = [sys.executable, "-c", ignoring, *yard.command("run", "list.txt")]
    done = subprocess.run(words, cwd=yard.folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    (step,) = yard.json("status", "last")["steps"]
    assert (step["succeeded"], step["failed"]) == (20, 20)
