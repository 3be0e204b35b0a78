"""Every command that works on a run, executed against an emulated AWS Batch."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from cloud_lab import BUCKET, Lab, batch_calls, calls, run_of, until
from emulator_endpoint import Endpoint

PIPELINE = """\
name: shop
image: busybox
defaults: {memory: 256MiB}
steps:
  - name: cut
    commands_file: cut.txt
    array: 3
    inputs: ["raw/*.txt"]
    outputs: ["cut/**"]
  - name: glue
    needs: [cut]
    command: cat cut/* > glued.txt; echo glued $BATCHYARD_STEP
    inputs: ["cut/**"]
    outputs: ["glued.txt"]
  - name: tell
    needs: [glue]
    array: 2
    command: echo told $AWS_BATCH_JOB_ARRAY_INDEX of $ARRAY_SIZE
"""
CUT = "".join(
    f"mkdir -p cut; tr a-z A-Z < raw/{n}.txt > cut/{n}.txt; echo cut {n}\n" for n in range(6)
)

#: fails in two of its five children until there is an object `good` beside the inputs
FLAKY = """\
name: flaky
image: busybox
defaults: {memory: 256MiB}
steps:
  - name: list
    array: 5
    commands_file: list.txt
    keep_going: true
    inputs: ["good*"]
    outputs: ["seen/**"]
  - name: plain
    array: 4
    command: echo plain $AWS_BATCH_JOB_ARRAY_INDEX;
      test $((AWS_BATCH_JOB_ARRAY_INDEX % 2)) = 0 || test -e MARK
  - name: after
    needs: [list, plain]
    command: echo after
"""


#: the worker of the first attempt is killed, as the kernel kills a whole container
KILLED = """\
name: killed
image: busybox
defaults: {memory: 256MiB, retries: 1}
steps:
  - {name: any, commands: ["test $AWS_BATCH_JOB_ATTEMPT != 1 || kill -9 $PPID"]}
  - {name: named, retry_on: [3], commands: ["test $AWS_BATCH_JOB_ATTEMPT != 1 || kill -9 $PPID"]}
"""


class FinishedRun(NamedTuple):
    lab: Lab
    #: The command that has followed the run to its end.
    done: subprocess.CompletedProcess[str]


def shop(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    lab.write("cut.txt", CUT)
    for n in range(6):
        lab.write(f"raw/{n}.txt", f"line {n}\n")


def flaky(lab: Lab) -> Path:
    """Ten commands in five children, of which 3 and 7 fail until `good` is there."""
    mark = lab.folder / "mark"
    lab.write("goods", "")  # a pattern must match something from the beginning
    lab.write("pipeline.yaml", FLAKY.replace("MARK", f"'{mark}'"))
    lines = []
    for n in range(10):
        test = f"echo look {n}; test -e good; " if n in (3, 7) else ""
        lines.append(
            f"{test}mkdir -p seen && "
            f"echo $AWS_BATCH_JOB_ARRAY_INDEX/$ARRAY_SIZE > seen/{n}.$BATCHYARD_RUN\n"
        )
    lab.write(
        "list.txt",
        "".join(line.replace("; test -e good; ", "; test -e good && ") for line in lines),
    )
    return mark


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, endpoint: Endpoint) -> FinishedRun:
    """A run of the shop that has succeeded, in a folder of its own."""
    lab = Lab(tmp_path_factory.mktemp("a yärd"), endpoint)
    shop(lab)
    return FinishedRun(lab, lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lab"))


def test_a_run_from_its_files_to_its_files(finished: FinishedRun) -> None:
    lab, done = finished
    run = run_of(done)
    assert "uploaded 6 input files" in done.stderr and "fetched 7 output files" in done.stderr
    assert (lab.folder / "glued.txt").read_text() == "".join(f"LINE {n}\n" for n in range(6))
    assert "SUCCEEDED" in done.stdout
    shown = lab.status(run)
    assert shown["engine"] == "aws" and shown["state"] == "SUCCEEDED" and shown["ended"]
    assert [(step["name"], step["succeeded"]) for step in shown["steps"]] == [
        ("cut", 3),
        ("glue", 1),
        ("tell", 2),
    ]
    # once each, and the parts that AWS knows are named by the run
    assert {
        f"{run}-{step}": 1 for step in ("cut", "glue", "tell")
    }.items() <= lab.job_names().items()


def test_the_logs_of_a_finished_run(finished: FinishedRun) -> None:
    """Of all children, of a step and of one child."""
    lab, run = finished.lab, run_of(finished.done)
    whole = lab("logs", run).stdout
    assert "==> cut:1 <==\ncut 2\ncut 3\n" in whole and "glued glue\n" in whole
    assert lab("logs", run, "tell:1").stdout == "told 1 of 2\n"
    assert lab("logs", run, "glue").stdout == "==> glue <==\nglued glue\n"
    assert "no child '7'" in lab("logs", run, "tell:7", code=2).stderr
    assert lab("logs", run, "--failed").stdout == ""


def test_what_is_left_of_a_finished_run(finished: FinishedRun, tmp_path: Path) -> None:
    """Its report, its place in the list of runs, and its files."""
    lab, run = finished.lab, run_of(finished.done)
    page = Path(lab.folder, lab("report", run).stdout.strip()).read_text()
    assert run in page and "glue" in page
    assert [one["run"] for one in lab.json("runs")] == [run]
    assert run in lab.json("runs", "--env", "lab")
    lab("fetch", run, "--to", str(tmp_path / "elsewhere"))
    assert (tmp_path / "elsewhere" / "glued.txt").read_bytes() == (
        lab.folder / "glued.txt"
    ).read_bytes()
    assert "0 files fetched" in lab("fetch", run).stderr


def test_a_finished_run_stays_as_it_is(finished: FinishedRun) -> None:
    lab, run = finished.lab, run_of(finished.done)
    assert "over already: SUCCEEDED" in lab("stop", run).stdout
    assert "everything in it succeeded" in lab("retry", run, code=2).stderr
    lab("resume", run)
    assert lab.job_names()[f"{run}-cut"] == 1


@pytest.mark.slow
def test_retry_runs_only_what_failed(lab: Lab, calm: None) -> None:
    mark = flaky(lab)
    run = lab.run(code=1)
    shown = lab.status(run)
    assert shown["state"] == "FAILED"
    by_step = {step["name"]: step for step in shown["steps"]}
    assert (by_step["list"]["succeeded"], by_step["list"]["failed"]) == (3, 2)
    assert (by_step["plain"]["succeeded"], by_step["plain"]["failed"]) == (2, 2)
    assert by_step["after"]["state"] == "FAILED"
    assert {(f["step"], f["index"]) for f in shown["failures"]} == {
        ("list", 1),
        ("list", 3),
        ("plain", 1),
        ("plain", 3),
    }
    assert ["plain 1"] in [f["log_tail"] for f in shown["failures"]]
    failed = lab("logs", run, "--failed").stdout
    assert (
        "look 3\n" in failed
        and "look 7\n" in failed
        and "plain 1\n" in failed
        and "plain 0\n" not in failed
    )

    lab.write("good", "")
    mark.touch()
    lab.write("list.txt", "echo another list\n")  # a retry is of the first run's commands
    done = lab("retry", run, "--on-demand")
    again = run_of(done)
    shown = lab.status(again)
    assert shown["state"] == "SUCCEEDED" and shown["retry_of"] == run
    assert {step["name"]: step["size"] for step in shown["steps"]} == {
        "list": 2,
        "plain": 2,
        "after": 1,
    }
    assert {f"{again}-{step}" for step in ("list", "plain", "after")} <= set(
        lab.job_names("steady")
    )
    # Only the commands that failed ran again, and each saw the numbers of its step.
    assert sorted(path.name for path in (lab.folder / "seen").glob(f"*.{again}")) == [
        f"{n}.{again}" for n in (3, 7)
    ]
    assert (lab.folder / "seen" / f"3.{again}").read_text() == "1/5\n"
    assert (lab.folder / "seen" / f"7.{again}").read_text() == "3/5\n"
    assert (
        lab("logs", again, "plain").stdout == "==> plain:1 <==\nplain 1\n==> plain:3 <==\nplain 3\n"
    )
    assert "everything in it succeeded" in lab("retry", again, code=2).stderr


def test_retry_of_a_run_that_is_not_over_is_refused(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: slow\nimage: x\nsteps: [{name: a, memory: 64MiB, command: sleep 600}]\n",
    )
    run = lab.run("--detach")
    assert "still running" in lab("retry", run, code=2).stderr
    lab("stop", run)


def test_stop_ends_everything_and_says_so(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: long\nimage: x\ndefaults: {memory: 64MiB}\nsteps:\n"
        "  - {name: a, array: 3, command: sleep 600, max_running: 2}\n"
        "  - {name: b, needs: [a], command: echo never}\n",
    )
    run = lab.run("--detach")
    until(lambda: lab.status(run)["steps"][0]["running"], lambda running: running == 2)
    watcher = lab.start("status", run, "--watch")
    assert "STOPPED" in lab("stop", run).stdout
    assert watcher.wait(300) == 130
    shown = lab.status(run)
    assert shown["state"] == "STOPPED" and "stopped by the user" in {
        step["reason"] for step in shown["steps"]
    }
    assert "over already: STOPPED" in lab("stop", run).stdout
    # What held the children back is not left in the account.
    left = lab.patient("batch").list_consumable_resources()["consumableResources"]
    assert not [one for one in left if run in one["consumableResourceName"]]


def test_whoever_sees_a_run_end_first_tidies_up_after_it(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: short\nimage: x\ndefaults: {memory: 64MiB}\n"
        "steps: [{name: a, array: 2, command: echo hello, max_running: 1}]\n",
    )
    run = lab.run("--detach")

    def counters() -> list[str]:
        found = lab.patient("batch").list_consumable_resources()["consumableResources"]
        return [
            one["consumableResourceName"] for one in found if run in one["consumableResourceName"]
        ]

    assert len(counters()) == 1
    until(lambda: lab.status(run)["state"], lambda state: state == "SUCCEEDED")
    assert counters() == []


def test_stop_of_one_step_fails_what_needs_it(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: part\nimage: x\ndefaults: {memory: 64MiB}\nsteps:\n"
        "  - {name: a, command: sleep 600}\n  - {name: b, needs: [a], command: echo never}\n"
        "  - {name: c, command: sleep 2}\n",
    )
    run = lab.run("--detach")
    # It may have ended before the answer.
    assert re.search("a is (being )?stopped", lab("stop", run, "a").stdout)
    assert lab.ended(run) == "FAILED"
    assert [step["state"] for step in lab.status(run)["steps"]] == ["FAILED", "FAILED", "SUCCEEDED"]


@pytest.mark.slow
def test_ctrl_c_while_following_leaves_the_run_going(lab: Lab) -> None:
    waits = f"until [ -e '{lab.folder}/go' ]; do sleep 0.1; done; echo on"
    lab.write(
        "pipeline.yaml",
        f'name: going\nimage: x\nsteps: [{{name: a, memory: 64MiB, command: "{waits}"}}]\n',
    )
    process = lab.start(
        "run", "pipeline.yaml", "--engine", "aws", "--env", "lab", output=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    lines = iter(process.stderr.readline, b"")
    assert any(line.startswith(b"a: ") for line in lines)  # it is being followed
    process.send_signal(signal.SIGINT)
    said = process.stderr.read().decode()
    assert process.wait(300) == 130 and "goes on without this command" in said
    process.stdout.close()
    process.stderr.close()
    assert lab.status("last")["state"] == "RUNNING"
    lab.write("go", "")
    assert lab("status", "last", "--watch").stdout.count("SUCCEEDED")
    assert lab("logs", "last").stdout == "on\n"


def test_logs_are_followed_as_they_come_each_line_once(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        "name: talk\nimage: x\ndefaults: {memory: 64MiB}\nsteps:\n"
        "  - {name: a, array: 2, command: 'for n in 1 2 3 4 5; do "
        "echo $AWS_BATCH_JOB_ARRAY_INDEX-$n; sleep 0.4; "
        f'[ $n != 2 ] || until [ -e "{lab.folder}/seen" ]; do sleep 0.1; done; done\'}}\n'
        "  - {name: silent, command: sleep 2}\n"
        "  - {name: b, needs: [a], command: echo last words}\n",
    )
    run = lab.run("--detach")
    out = lab.folder / "followed.txt"
    with out.open("wb") as file:
        process = lab.start("logs", run, "-f", output=file)
        until(lambda: "-2" in out.read_text())
        assert lab.status(run)["state"] == "RUNNING"  # shown while it runs
        lab.write("seen", "")
        assert process.wait(300) == 0
    lines = [line for line in out.read_text().splitlines() if line and not line.startswith("==>")]
    assert sorted(lines) == sorted(
        [f"{i}-{n}" for i in range(2) for n in range(1, 6)] + ["last words"]
    )
    for i in range(2):
        assert [line for line in lines if line.startswith(f"{i}-")] == [
            f"{i}-{n}" for n in range(1, 6)
        ]


@pytest.mark.slow
def test_a_run_is_found_from_another_machine(lab: Lab, tmp_path: Path) -> None:
    shop(lab)
    run = lab.run("--detach")
    other = Lab(tmp_path / "other", lab.endpoint)
    assert "no runs" in other("status", run, code=2).stderr
    assert other("status", run, "--env", "lab", "--watch").stdout.count("SUCCEEDED")
    assert other("logs", run, "tell:1").stdout == "told 1 of 2\n"  # from now on it is known here
    other("fetch", run, "--to", "mine")
    assert (other.folder / "mine" / "glued.txt").read_text().startswith("LINE 0")
    other("resume", run, "--detach")
    assert lab.job_names()[f"{run}-cut"] == 1
    third = tmp_path / "third" / ".batchyard"
    third.mkdir(parents=True)
    (third / "environments.yaml").write_text(
        (other.folder / ".batchyard/environments.yaml").read_text()
    )
    assert "SUCCEEDED" in lab("status", run, "--env", "lab", "--home", str(third)).stdout
    said = lab("status", "shop-20200101-abcdef", "--env", "lab", code=2).stderr
    assert "no run shop-20200101-abcdef" in said and "runs --env" in said


@pytest.mark.slow
def test_another_machine_retries_with_the_lists_in_s3(lab: Lab, tmp_path: Path) -> None:
    mark = flaky(lab)
    run = lab.run(code=1)
    mark.touch()
    lab.write("good", "")
    other = Lab(tmp_path / "other", lab.endpoint)
    again = other("retry", run, "--env", "lab", "--detach").stdout.strip()
    assert other.ended(again) == "SUCCEEDED"
    other("fetch", again, "--to", "mine")
    assert {path.name for path in (other.folder / "mine/seen").glob(f"*.{again}")} == {
        f"{n}.{again}" for n in (3, 7)
    }


@pytest.mark.slow
def test_a_run_that_another_machine_left_half_submitted(lab: Lab, tmp_path: Path) -> None:
    """Nothing but what is in S3 and in the queues tells what has been submitted."""
    shop(lab)
    run = lab.run("--detach")
    lab.ended(run)
    s3 = lab.endpoint.client("s3")
    s3.delete_object(Bucket=BUCKET, Key=f"team/runs/{run}/jobs.json")
    s3.delete_object(Bucket=BUCKET, Key=f"team/runs/{run}/steps/cut.json")
    other = Lab(tmp_path / "other", lab.endpoint)
    other("resume", run, "--env", "lab", "--detach")
    assert [lab.job_names()[f"{run}-{step}"] for step in ("cut", "glue", "tell")] == [1, 1, 1]
    assert other.status(run)["state"] == "SUCCEEDED"


def test_status_shows_who_waits_for_a_host(lab: Lab, calm: None) -> None:
    lab.write(
        "pipeline.yaml",
        "name: full\nimage: x\ndefaults: {memory: 64MiB}\nsteps:\n"
        "  - {name: hold, cpus: 8, command: sleep 600}\n"
        "  - {name: wide, array: 4, cpus: 4, command: 'true'}\n"
        "  - {name: one, cpus: 3, command: 'true'}\n"
        "  - {name: later, needs: [hold], command: 'true'}\n",
    )
    run = lab.run("--detach")
    shown = until(lambda: lab.status(run), lambda shown: len(shown["runnable"]) == 2)
    assert {one["step"]: one["children"] for one in shown["runnable"]} == {"wide": 4, "one": 1}
    text = until(lambda: lab("status", run).stdout, lambda text: "children RUNNABLE for" in text)
    lines = text.splitlines()
    (line,) = [
        number
        for number, line in enumerate(lines)
        if line.startswith("wide: 4 children RUNNABLE for ")
    ]
    # With what it takes to find the job: its region and profile need not be the user's own.
    job_id, _, rest = lines[line + 1].partition("batchyard doctor job ")[2].partition(" ")
    assert rest == "--env lab"
    assert lab.endpoint.job(job_id)["status"] == "RUNNABLE" and ":" in job_id
    before = calls(lab.endpoint)
    lab("status", run)
    assert batch_calls(before, calls(lab.endpoint)) == {
        "batch:DescribeJobs": 1,
        "batch:ListJobs": 1,
    }
    lab("stop", run)
    shown = lab.status(run)
    assert shown["runnable"] == []
    # None of these ever began.
    assert {step["name"]: step["attempts"] for step in shown["steps"]} == {
        "hold": 1,
        "wide": 0,
        "one": 0,
        "later": 0,
    }


@pytest.mark.slow
def test_a_failed_run_of_many_children_is_shown_with_few_calls(lab: Lab, calm: None) -> None:
    lab.write(
        "pipeline.yaml",
        "name: many\nimage: x\nsteps:\n"
        "  - {name: a, array: 1500, memory: 4MiB, command: 'echo no; false'}\n",
    )
    run = lab.run("--on-demand", "--detach")
    assert lab.ended(run) == "FAILED"
    before = calls(lab.endpoint)
    assert len(lab.status(run)["failures"]) == 5
    assert sum(batch_calls(before, calls(lab.endpoint)).values()) <= 25
    before = calls(lab.endpoint)
    assert lab("logs", run, "a:1499").stdout == "no\n"
    assert batch_calls(before, calls(lab.endpoint)) == {"batch:DescribeJobs": 1}


@pytest.mark.slow
def test_a_killed_worker_is_tried_again_where_any_failure_is(lab: Lab) -> None:
    lab.write("pipeline.yaml", KILLED)
    run = lab.run(code=1)
    steps = {step["name"]: step for step in lab.status(run)["steps"]}
    assert (steps["any"]["state"], steps["any"]["attempts"]) == ("SUCCEEDED", 2)
    assert (steps["named"]["state"], steps["named"]["attempts"]) == ("FAILED", 1)
