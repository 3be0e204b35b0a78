"""`--runner docker` through the command line, with containers of an image of .ci/docker-engine."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from command_yard import Yard

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine", "image")]

IMAGE = "batchyard-test:latest"
SHELLS = ("busybox", "dash", "bash")
#: Each command holds a lock until it dies. A lock that is taken means two commands at once.
CHECKED = """\
exec 9> locks/$1 || exit 1
flock -n 9 || { echo "$1" >> overlaps; exit 1; }
sleep 0.05
echo x >> done/$1
"""


class Row(NamedTuple):
    child: int
    attempt: int
    state: str | None
    exit_code: int | None
    reason: str
    status_reason: str
    started_ms: int | None
    ended_ms: int


@pytest.fixture(scope="session")
def image(docker_engine: None) -> None:
    if docker("image", "inspect", IMAGE, check=False).returncode:
        problem = f"the engine has no image {IMAGE}: .ci/docker-engine makes it"
        if os.environ.get("BATCHYARD_REQUIRE_DOCKER"):
            pytest.fail(problem)
        pytest.skip(problem)


@pytest.fixture(autouse=True)
def nothing_is_left(yard: Yard) -> Iterator[None]:
    """After every test: no container of its runs is there any more, running or not."""
    yield
    runs = [
        path.name for path in yard.folder.parent.rglob("runs/*") if (path / "run.json").exists()
    ]
    # The engine removes the containers at its end, a moment after the end of the run.
    with suppress(AssertionError):
        yard.wait_for(lambda: not any(map(containers_of, runs)))
    remaining = {run: containers_of(run) for run in runs}
    for names in remaining.values():
        if names:
            docker("rm", "--force", *names)
    assert not any(remaining.values()), remaining


def docker(*args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *args], capture_output=True, text=True, check=check, timeout=300
    )


def containers_of(run: str, *flags: str) -> list[str]:
    listed = docker(
        "ps", "--all", "--filter", f"label=batchyard.run={run}", "--format", "{{.Names}}", *flags
    )
    return listed.stdout.split()


def attempts(yard: Yard, run: str, step: int = 0) -> list[Row]:
    columns = ", ".join(Row._fields)
    with closing(sqlite3.connect(yard.folder / ".batchyard" / "runs" / run / "state.db")) as db:
        rows = db.execute(
            f"SELECT {columns} FROM attempt WHERE job = ? ORDER BY child, attempt", (step,)
        )
        return [Row(*row) for row in rows]


def run_list(yard: Yard, commands: str, *flags: str, code: int = 0) -> str:
    """Runs the lines as a list of commands in containers; returns the run's id."""
    yard.write("list.txt", commands)
    flags = ("--runner", "docker", "--image", IMAGE, "--share-out", "static", *flags)
    return str(yard.json("run", "list.txt", *flags, code=code)["run"])


def start_pipeline(yard: Yard, text: str, path: str | None = None) -> str:
    yard.write("p.yaml", f"name: p\nimage: {IMAGE}\n{text}")
    environ = os.environ | ({"PATH": path} if path else {})
    return yard("run", "p.yaml", "--runner", "docker", "--detach", env=environ).stdout.strip()


def one(yard: Yard, command: str, extra: str = "") -> str:
    step = f"steps: [{{name: s, command: {json.dumps(command)}{', ' + extra if extra else ''}}}]"
    return start_pipeline(yard, step)


def wait_for_end(yard: Yard, run: str) -> str:
    yard.wait_for(lambda: yard.json("status", run)["state"] != "RUNNING", seconds=90)
    return str(yard.json("status", run)["state"])


def log_of(yard: Yard, run: str, *child: str) -> bytes:
    command = yard.command("logs", run, *(child or ("list:0",)))
    return subprocess.run(
        command, cwd=yard.folder, capture_output=True, check=True, timeout=300
    ).stdout


def fake_docker(yard: Yard, script: str) -> str:
    """A PATH whose docker is a shell script; $real is the real one."""
    real = shutil.which("docker")
    path = yard.write("fake/docker", f'#!/bin/sh\nreal="{real}"\n{script}\nexec "$real" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{path.parent}:{os.environ['PATH']}"


# -- environment and files of a child ------------------------------------------------------------


def test_the_environment_is_that_of_a_process_but_for_the_machines_own(yard: Yard) -> None:
    step = """\
name: p
image: batchyard-test:latest
env:
  {LINES: "one\\ntwo=2", EMPTY: "", UMLAUT: "ü", HOME: /somewhere, DOCKER_HOST: "unix:///nowhere"}
steps:
  - {name: s, array: 2, commands: ["env -0 > env-$AWS_BATCH_JOB_ARRAY_INDEX", "env -0 > env-1"]}
"""
    yard.write("p.yaml", step)
    environs = {}
    for runner in ("process", "docker"):
        yard("run", "p.yaml", "--runner", runner, env=os.environ | {"OF_THE_ENGINE": "x"})
        text = (yard.folder / "env-1").read_bytes().decode()
        environs[runner] = dict(line.split("=", 1) for line in text.rstrip("\0").split("\0"))
    prefixes = ("AWS_BATCH_", "BATCHYARD_", "ARRAY_SIZE", "LIST_FILE", "CUDA_")
    prefixes += ("LINES", "EMPTY", "UMLAUT", "HOME", "DOCKER_HOST")
    changing = {"AWS_BATCH_JOB_ID", "BATCHYARD_RUN", "BATCHYARD_TOKEN", "LIST_FILE_S3_PATH"}
    names = {
        name
        for name in environs["process"]
        if name.startswith(prefixes) and not name.startswith("BATCHYARD_REQUIRE_")
    }
    assert {name for name in environs["docker"] if name.startswith(prefixes)} == names
    assert {n: environs["docker"][n] for n in names - changing} == {
        n: environs["process"][n] for n in names - changing
    }
    assert environs["docker"]["LINES"] == "one\ntwo=2"
    assert "OF_THE_ENGINE" in environs["process"]
    assert "OF_THE_ENGINE" not in environs["docker"]
    assert "TINI_KILL_PROCESS_GROUP" not in environs["docker"]


@pytest.mark.parametrize("lines", [1, 2])
def test_values_do_not_show_in_ps(yard: Yard, lines: int) -> None:
    path = fake_docker(yard, f"echo \"$@\" >> '{yard.folder}/calls'")
    commands = ["test $PASSWORD = hush"] * lines
    text = f"env: {{PASSWORD: hush}}\nsteps: [{{name: s, commands: {commands}}}]"
    assert wait_for_end(yard, start_pipeline(yard, text, path)) == "SUCCEEDED"
    calls = (yard.folder / "calls").read_text()
    assert "--env PASSWORD" in calls
    assert "PASSWORD=" not in calls


def test_files_are_written_in_the_workspace(yard: Yard) -> None:
    (yard.folder / "inner, with:signs").mkdir()
    run_list(yard, "pwd > where; echo hello > greeting\n", "--workspace", "inner, with:signs")
    inner = yard.folder / "inner, with:signs"
    assert (inner / "where").read_text().strip() == str(inner)
    assert (inner / "greeting").stat().st_uid == os.getuid()


def test_the_list_is_readable_where_home_is_elsewhere(yard: Yard, tmp_path: Path) -> None:
    yard.write("list.txt", "cat ${LIST_FILE_S3_PATH#file://} > copy\n")
    yard(
        "run",
        "list.txt",
        "--runner",
        "docker",
        "--image",
        IMAGE,
        "--home",
        str(tmp_path / "elsewhere"),
    )
    assert (yard.folder / "copy").read_text() == (yard.folder / "list.txt").read_text()


def test_limits_are_those_of_aws(yard: Yard) -> None:
    run = one(yard, "sleep 600", "cpus: 2, memory: 100MiB, shm: 10MiB")
    yard.wait_for(lambda: containers_of(run, "--filter", "status=running"))
    (name,) = containers_of(run)
    host = json.loads(docker("inspect", "--format", "{{json .HostConfig}}", name).stdout)
    assert (host["Memory"], host["MemorySwap"]) == (100 << 20, 100 << 20)
    assert (host["CpuShares"], host["ShmSize"], host["NetworkMode"], host["Init"]) == (
        2048,
        10 << 20,
        "host",
        True,
    )
    assert name.startswith(f"batchyard-{run}-s-0-1-")
    yard("stop", run, "--grace", "1")


def test_mounts_limits_and_user_of_a_step(yard: Yard) -> None:
    shared = yard.folder / "shared folder"
    shared.mkdir()
    shared.joinpath("x").write_text("from the host\n")
    script = (
        "cat /data/x; touch /data/y || echo read-only; ulimit -n; id -u; "
        "df /scratch >/dev/null && echo scratch"
    )
    mounts = f"[{{path: /data, host: '{shared}', read_only: true}}, "
    mounts += "{path: /scratch, instance_store: true}]"
    keys = f"mounts: {mounts}, ulimits: {{nofile: '64:128'}}, user: '1234'"
    run = one(yard, script, keys)
    assert wait_for_end(yard, run) == "SUCCEEDED"
    lines = yard("logs", run).stdout.splitlines()
    assert [line for line in lines if "touch" not in line] == [
        "from the host",
        "read-only",
        "64",
        "1234",
        "scratch",
    ]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_files_belong_to_the_caller(yard: Yard) -> None:
    """As somebody whom the image does not know, and who may use Docker by a group."""
    socket = Path("/var/run/docker.sock")
    if os.environ.get("DOCKER_HOST") or not socket.exists() or not shutil.which("setpriv"):
        pytest.skip("needs /var/run/docker.sock and setpriv")
    yard.write("list.txt", "id > who; echo x > $HOME/x; echo $USER >> who\necho two >> who\n")
    for path in (yard.folder, *yard.folder.parents):
        if path.stat().st_mode & 0o777 == 0o700:  # those that pytest has made
            path.chmod(0o755)
    os.chown(yard.folder, 12345, 54321)
    # The right to read keeps Python reachable where it is in root's home.
    become = [
        "setpriv",
        "--reuid",
        "12345",
        "--regid",
        "54321",
        "--groups",
        f"{socket.stat().st_gid},777",
    ]
    become += ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    for array in ("1", "2"):
        command = yard.command(
            *("run", "list.txt", "--runner", "docker", "--image", IMAGE),
            *("--array", array, "--share-out", "static"),
        )
        done = subprocess.run(
            [*become, *command],
            cwd=yard.folder,
            capture_output=True,
            text=True,
            env=os.environ | {"HOME": "/"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
    written = (yard.folder / "who").stat()
    assert (written.st_uid, written.st_gid) == (12345, 54321)
    text = (yard.folder / "who").read_text()
    assert "uid=12345 gid=54321" in text
    assert "777" in text


# -- commands ----------------------------------------------------------------------------------


def test_output_that_is_late_belongs_to_its_command(yard: Yard) -> None:
    # Docker keeps no order between stdout, with the exit codes, and stderr, with the output.
    late = yard.write(
        "late/docker",
        f"""#!/bin/bash
[[ $2 != --attach ]] || exec 2> >(while IFS= read -rd '' -n 1 c || [[ $c ]]; do
    sleep 0.02; if [[ $c ]]; then printf %s "$c"; else printf '\\0'; fi; done >&2)
exec {shutil.which("docker")} "$@"
""",
    )
    late.chmod(0o755)
    commands = "".join(f"echo line {number}\n" for number in range(3))
    yard.write("list.txt", commands)
    flags = ("--runner", "docker", "--image", IMAGE, "--share-out", "static", "--array", "1")
    environ = os.environ | {"PATH": f"{late.parent}:{os.environ['PATH']}"}
    yard("run", "list.txt", *flags, env=environ)
    for number in range(3):
        output = yard("logs", "last", "--command", str(number)).stdout
        assert output == f"line {number}\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_several_commands_share_one_container(yard: Yard, shell: str) -> None:
    lines = [
        "echo $AWS_BATCH_JOB_ID > /tmp/shared",
        "cat /tmp/shared >> first; cat",
        """echo 'single' "double $((1 + 1))" it\\'s \\\\ `echo back` # not this""",
        "echo ünï; cd /; x=1; exec 3>&1 4>&2; echo on-stderr >&2",
        'echo "x is ${x-unset} in $PWD" | cat; (exit 0)',
        "cat /tmp/shared >> first",
    ]
    step = f"{{name: s, commands: {json.dumps(lines)}}}"
    text = f"env: {{PATH: '/shells/{shell}:/bin'}}\nsteps: [{step}]"
    run = start_pipeline(yard, text)
    assert wait_for_end(yard, run) == "SUCCEEDED"
    first = (yard.folder / "first").read_text().split()
    assert len(first) == 2
    assert len(set(first)) == 1
    expected = f"single double 2 it's \\ back\nünï\non-stderr\nx is unset in {yard.folder}\n"
    assert log_of(yard, run, "s:0").decode() == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_exit_codes(yard: Yard, shell: str) -> None:
    yard.write("not-executable", "")
    cases: list[tuple[list[str], int]] = [
        (["exit 3"], 3),
        (["no-such-program-anywhere"], 127),
        (["./not-executable"], 126),
        (["kill -9 $$"], 137),
        (["true", "exit 4", "touch never"], 4),
        (["true", "no-such-program-anywhere", "touch never"], 127),
        (["kill -15 $$", "touch never"], 143),
    ]
    steps = [{"name": f"s{n}", "commands": commands} for n, (commands, _) in enumerate(cases)]
    run = start_pipeline(yard, f"env: {{PATH: '/shells/{shell}:/bin'}}\nsteps: {json.dumps(steps)}")
    assert wait_for_end(yard, run) == "FAILED"
    rows = [attempts(yard, run, step=n)[0] for n in range(len(cases))]
    assert [row.exit_code for row in rows] == [code for _, code in cases]
    assert {(row.reason, row.status_reason) for row in rows} == {
        ("", "Essential container in task exited")
    }
    assert not (yard.folder / "never").exists()


def test_keep_going_runs_the_rest(yard: Yard) -> None:
    text = "steps: [{name: s, keep_going: true, commands: [touch a, exit 5, exit 6, touch b]}]"
    run = start_pipeline(yard, text)
    assert wait_for_end(yard, run) == "FAILED"
    assert attempts(yard, run)[0].exit_code == 5
    assert (yard.folder / "b").exists()


def test_many_commands_cost_little_each(yard: Yard) -> None:
    path = fake_docker(yard, f"echo \"$1\" >> '{yard.folder}/calls'")
    text = f"steps: [{{name: s, array: 2, commands: {['echo x >> count'] * 500}}}]"
    assert wait_for_end(yard, start_pipeline(yard, text, path)) == "SUCCEEDED"
    assert (yard.folder / "count").read_text() == "x\n" * 500
    # `docker exec` for each of them would take 35 s and more.
    calls = (yard.folder / "calls").read_text().split()
    assert calls.count("start") == 2 and len(calls) < 50, calls


def test_a_command_longer_than_a_pipe_holds(yard: Yard) -> None:
    long = "x" * 100_000
    run = run_list(yard, f"echo {long} | wc -c\n" * 3)
    assert log_of(yard, run) == b"100001\n" * 3


def test_what_a_child_leaves_behind_ends_with_it(yard: Yard) -> None:
    run = run_list(yard, "setsid sh -c 'sleep 9; touch never' &\ntrue\n", "--array", "2")
    assert not containers_of(run)
    time.sleep(9.5)
    assert not (yard.folder / "never").exists()


@pytest.fixture
def greeting_image() -> Iterator[str]:
    """The entrypoint prints a page and then executes the command, as in NVIDIA's images."""
    name = "batchyard-test:greeting"
    entrypoint = json.dumps(["sh", "-c", 'echo WELCOME; printf unended; SET=up exec "$@"', "greet"])
    container = docker("create", "--network", "host", IMAGE).stdout.strip()
    docker("commit", "--change", f"ENTRYPOINT {entrypoint}", container, name)
    docker("rm", container)
    yield name
    docker("rmi", name)


@pytest.mark.parametrize("lines", [1, 2])
def test_the_images_entrypoint_is_kept(yard: Yard, greeting_image: str, lines: int) -> None:
    yard.write("list.txt", "echo set $SET\n" * lines)
    flags = ("--runner", "docker", "--image", greeting_image, "--share-out", "static")
    run = yard.json("run", "list.txt", *flags)["run"]
    assert log_of(yard, run) == b"WELCOME\nunended" + b"set up\n" * lines


# -- output ------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", ["", "true\n"])
def test_output_is_kept_byte_for_byte(yard: Yard, extra: str) -> None:
    run = run_list(yard, "head -c 3000000 /dev/urandom | tee bytes; printf 'no newline'\n" + extra)
    assert log_of(yard, run) == (yard.folder / "bytes").read_bytes() + b"no newline"


@pytest.mark.parametrize("extra", ["", "true\n"])
def test_stdout_and_stderr_keep_their_order(yard: Yard, extra: str) -> None:
    run = run_list(yard, "for i in $(seq 2000); do echo out $i; echo err $i >&2; done\n" + extra)
    expected = "".join(f"out {n}\nerr {n}\n" for n in range(1, 2001))
    assert log_of(yard, run).decode() == expected


def test_output_can_be_followed_while_it_runs(yard: Yard) -> None:
    run = one(yard, "echo early; sleep 600")
    yard.wait_for(lambda: log_of(yard, run, "s:0") == b"early\n")
    yard("stop", run, "--grace", "1")


# -- failures and retries ----------------------------------------------------------------------


def test_a_failed_child_is_tried_again_without_what_it_has_done(yard: Yard) -> None:
    lines = ["echo x >> first", "test $AWS_BATCH_JOB_ATTEMPT = 3", "echo x >> last"]
    run = start_pipeline(yard, f"steps: [{{name: s, retries: 2, commands: {json.dumps(lines)}}}]")
    assert wait_for_end(yard, run) == "SUCCEEDED"
    assert [(row.attempt, row.exit_code) for row in attempts(yard, run)] == [(1, 1), (2, 1), (3, 0)]
    assert (yard.folder / "first").read_text() == "x\n"
    assert (yard.folder / "last").read_text() == "x\n"


def test_retry_runs_what_is_left_in_containers_again(yard: Yard) -> None:
    run_list(yard, "echo x >> first\ntest -e mended\ntest -e /shells\n", "--array", "2", code=1)
    yard.write("mended", "")
    assert yard.json("retry", "last")["state"] == "SUCCEEDED"
    assert (yard.folder / "first").read_text() == "x\n"


@pytest.mark.parametrize("commands", [["tail /dev/zero"], ["true", "tail /dev/zero"]])
def test_memory_is_a_hard_limit(yard: Yard, commands: list[str]) -> None:
    text = f"steps: [{{name: s, memory: 32MiB, retries: 1, retry_on: [oom], commands: {commands}}}]"
    run = start_pipeline(yard, text)
    assert wait_for_end(yard, run) == "FAILED"
    rows = attempts(yard, run)
    assert [row.exit_code for row in rows] == [137, 137]
    assert {row.reason for row in rows} == {
        "OutOfMemoryError: Container killed due to memory usage"
    }


def test_an_image_that_is_not_there(yard: Yard) -> None:
    step = "{name: s, command: 'true', retries: 1}"
    text = f"name: p\nimage: nobody.invalid/nothing:1\nsteps: [{step}]\n"
    yard.write("p.yaml", text)
    run = yard.json("run", "p.yaml", "--runner", "docker", code=1)["run"]
    rows = attempts(yard, run)
    assert [(row.attempt, row.exit_code, row.started_ms) for row in rows] == [
        (1, None, None),
        (2, None, None),
    ]
    assert all(
        row.reason.startswith("CannotPullContainerError: Error response from daemon: ")
        for row in rows
    )
    assert "nobody.invalid" in rows[0].reason
    assert rows[0].status_reason == "Task failed to start"


def test_a_container_that_cannot_be_made_or_started(yard: Yard) -> None:
    run = one(yard, "true", "memory: 4MiB")  # less than Docker allows
    assert wait_for_end(yard, run) == "FAILED"
    assert attempts(yard, run)[0].reason.startswith(
        "CannotCreateContainerError: Error response from daemon: "
    )
    path = fake_docker(
        yard, '[ "$1" != create ] || { shift; exec "$real" create --runtime "$RUNTIME" "$@"; }'
    )
    yard.write("p.yaml", f"name: p\nimage: {IMAGE}\nsteps: [{{name: s, command: 'true'}}]\n")
    environ = os.environ | {"PATH": path, "RUNTIME": "no-such-runtime"}
    done = yard("run", "p.yaml", "--runner", "docker", "--json", code=1, env=environ)
    (row,) = attempts(yard, json.loads(done.stdout)["run"])
    assert (row.exit_code, row.status_reason) == (None, "Task failed to start")
    assert "no-such-runtime" in row.reason


def test_no_engine_is_told_before_the_run_is_recorded_commands(yard: Yard) -> None:
    yard.write("list.txt", "true\n")
    flags = ("run", "list.txt", "--runner", "docker", "--image", IMAGE)
    done = yard(
        *flags, code=3, env=os.environ | {"DOCKER_HOST": f"unix://{yard.folder}/nobody.sock"}
    )
    assert "no Docker engine answers" in done.stderr
    assert "systemctl start docker" in done.stderr
    done = yard(*flags, code=3, env=os.environ | {"PATH": str(yard.folder)})
    assert "install" in done.stderr
    assert not (yard.folder / ".batchyard").exists()


def test_an_engine_that_goes_away_costs_no_child_an_attempt(yard: Yard) -> None:
    path = fake_docker(
        yard, f"""[ ! -e '{yard.folder}/gone' ] || exec "$real" --host unix:///nobody.sock "$@" """
    )
    yard.write("list.txt", "touch gone; sleep 0.1\ntrue\n")
    flags = ("--runner", "docker", "--image", IMAGE, "--array", "2", "--max-running", "1")
    done = yard("run", "list.txt", *flags, code=3, env=os.environ | {"PATH": path})
    assert "no Docker engine answers" in done.stderr
    (yard.folder / "gone").unlink()
    assert yard.json("status", "last")["state"] == "RUNNING"
    done = yard("resume", "last", code=None, env=os.environ | {"PATH": path})
    (yard.folder / "gone").unlink(missing_ok=True)
    if (
        done.returncode == 3
    ):  # the first command was not recorded, has run again, and has done it again
        yard("resume", "last")
    run = yard.json("status", "last")
    assert run["state"] == "SUCCEEDED"
    assert all(row.exit_code == 0 and row.attempt == 1 for row in attempts(yard, run["run"]))


# -- stopping ----------------------------------------------------------------------------------

PATIENT = "trap 'echo saved > saved; exit 9' TERM; touch ready; while :; do sleep 0.1; done"
STUBBORN = "trap '' TERM; touch ready; sleep 60"
#: what ends because it was asked to ends sooner: who does not is killed after 30 s
SOON_S = 25


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("later_commands", [[], ["touch never"]])
def test_stop_lets_a_child_save_its_work(yard: Yard, shell: str, later_commands: list[str]) -> None:
    step = f"{{name: s, commands: {json.dumps([PATIENT, *later_commands])}}}"
    text = f"env: {{PATH: '/shells/{shell}:/bin'}}\nsteps: [{step}]"
    run = start_pipeline(yard, text)
    yard.wait_for((yard.folder / "ready").exists)
    began = time.monotonic()
    yard("stop", run)
    assert time.monotonic() - began < SOON_S
    assert (yard.folder / "saved").read_text() == "saved\n"
    assert not (yard.folder / "never").exists()
    (row,) = attempts(yard, run)
    assert (row.state, row.exit_code, row.status_reason) == ("FAILED", 9, "stopped by the user")
    assert yard.json("status", run)["state"] == "STOPPED"


@pytest.mark.parametrize("later_commands", [[], ["touch never"]])
def test_stop_reaches_a_plain_program(yard: Yard, later_commands: list[str]) -> None:
    """One that is not the container's first process, and has no handler."""
    run = start_pipeline(
        yard, f"steps: [{{name: s, commands: {['touch ready; sleep 60; true', *later_commands]}}}]"
    )
    yard.wait_for((yard.folder / "ready").exists)
    began = time.monotonic()
    yard("stop", run)
    assert time.monotonic() - began < SOON_S
    assert attempts(yard, run)[0].exit_code == 143


@pytest.mark.parametrize("later_commands", [[], ["touch never"]])
def test_what_ignores_sigterm_is_killed(yard: Yard, later_commands: list[str]) -> None:
    run = start_pipeline(
        yard, f"steps: [{{name: s, commands: {json.dumps([STUBBORN, *later_commands])}}}]"
    )
    yard.wait_for((yard.folder / "ready").exists)
    yard("stop", run, "--grace", "1")
    assert attempts(yard, run)[0].exit_code == 137
    assert not (yard.folder / "never").exists()
    assert not containers_of(run, "--filter", "status=running")


@pytest.mark.parametrize("lines", [1, 2])
def test_stop_at_the_moment_of_the_start(yard: Yard, lines: int) -> None:
    """A signal to a container that is still starting is refused by docker, and sent again."""
    path = fake_docker(
        yard, f"""[ "$1" != start ] || {{ touch '{yard.folder}/starting'; sleep 1; }}"""
    )
    run = start_pipeline(yard, f"steps: [{{name: s, commands: {['sleep 60'] * lines}}}]", path)
    yard.wait_for((yard.folder / "starting").exists)
    began = time.monotonic()
    yard("stop", run)
    assert time.monotonic() - began < SOON_S
    assert attempts(yard, run)[0].status_reason == "stopped by the user"


def test_stop_ends_a_pull(yard: Yard) -> None:
    path = fake_docker(
        yard, f"""[ "$1" != create ] || {{ touch '{yard.folder}/pulling'; sleep 60; }}"""
    )
    run = start_pipeline(yard, "steps: [{name: s, command: 'true'}]", path)
    yard.wait_for((yard.folder / "pulling").exists)
    began = time.monotonic()
    yard("stop", run)
    assert time.monotonic() - began < SOON_S
    (row,) = attempts(yard, run)
    assert (row.exit_code, row.started_ms, row.status_reason) == (None, None, "stopped by the user")


def test_an_interrupted_run_leaves_nothing(yard: Yard) -> None:
    yard.write("list.txt", "touch ready; sleep 60\nsleep 60\n")
    process = yard.start("run", "list.txt", "--runner", "docker", "--image", IMAGE)
    yard.wait_for((yard.folder / "ready").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(SOON_S) == 130


def test_the_timeout_counts_from_the_start_and_not_from_the_pull(yard: Yard) -> None:
    path = fake_docker(yard, '[ "$1" != create ] || sleep 9')
    text = (
        "steps:\n  - {name: quick, timeout: 8s, command: 'true'}\n"
        "  - {name: slow, timeout: 8s, command: sleep 60}\n"
    )
    run = start_pipeline(yard, text, path)
    assert wait_for_end(yard, run) == "FAILED"
    (quick,) = attempts(yard, run, step=0)
    assert quick.state == "SUCCEEDED"
    (slow,) = attempts(yard, run, step=1)
    assert slow.status_reason == "Job attempt duration exceeded timeout"
    assert slow.exit_code == 143
    assert slow.started_ms is not None
    assert 7_900 < slow.ended_ms - slow.started_ms < 8_000 + SOON_S * 1000


# -- kill -9 -----------------------------------------------------------------------------------


def test_the_engines_death_ends_its_containers_after_the_command_that_runs(yard: Yard) -> None:
    yard.write("list.txt", "touch ready; until test -e go; do sleep 0.1; done\ntouch never\n")
    flags = ("--runner", "docker", "--image", IMAGE, "--share-out", "static")
    process = yard.start("run", "list.txt", *flags)
    yard.wait_for((yard.folder / "ready").exists)
    process.kill()
    process.wait()
    run = yard.json("status", "last")["run"]
    yard.write("go", "")
    yard.wait_for(lambda: not containers_of(run, "--filter", "status=running"))
    assert not (yard.folder / "never").exists()
    yard("resume", "last")
    assert (yard.folder / "never").exists()


def test_resume_ends_what_is_left_before_it_begins(yard: Yard) -> None:
    once = "test -e again || sleep 600"
    yard.write("list.txt", f"exec 9> lock; flock -n 9 || touch overlap; echo $$ >> ready; {once}\n")
    process = yard.start("run", "list.txt", "--runner", "docker", "--image", IMAGE)
    yard.wait_for((yard.folder / "ready").exists)
    process.kill()
    process.wait()
    run = yard.json("status", "last")["run"]
    assert len(containers_of(run)) == 1
    yard.write("again", "")
    yard("resume", "last")
    assert not (yard.folder / "overlap").exists()
    assert len((yard.folder / "ready").read_text().split()) == 2


@pytest.mark.slow
def test_sigkill_at_random_moments(yard: Yard) -> None:
    """Every command runs, no success is recorded without a run, and none runs twice at once."""
    for folder in ("locks", "done"):
        (yard.folder / folder).mkdir()
    yard.write("one.sh", CHECKED)
    yard.write("wide.txt", "".join(f"sh one.sh wide-{n}\n" for n in range(60)))
    yard.write(
        "p.yaml",
        f"""\
name: p
image: {IMAGE}
steps:
  - {{name: wide, commands_file: wide.txt, array: 6, memory: 64MiB}}
  - {{name: single, array: 8, memory: 64MiB, command: sh one.sh single-$AWS_BATCH_JOB_ARRAY_INDEX}}
""",
    )
    moments = random.Random(20261116)
    for _ in range(10):
        command = (
            ("resume", "last") if yard.json("runs") else ("run", "p.yaml", "--runner", "docker")
        )
        process = yard.start(*command)
        time.sleep(moments.uniform(0.3, 1.5))
        process.kill()
        process.wait()
        done = {path.name for path in (yard.folder / "done").iterdir()}
        assert _recorded_commands(yard) <= done
    # On a very slow machine no moment may have been late enough for there to be a run.
    yard(
        *(("resume", "last") if yard.json("runs") else ("run", "p.yaml", "--runner", "docker")),
        code=None,
    )
    assert yard.json("status", "last")["state"] == "SUCCEEDED"
    expected = {f"wide-{n}" for n in range(60)} | {f"single-{n}" for n in range(8)}
    assert {path.name for path in (yard.folder / "done").iterdir()} == expected
    assert not (yard.folder / "overlaps").exists()


def _recorded_commands(yard: Yard) -> set[str]:
    names = set()
    # Not `*`, which would also find the draft of a run that was killed before it became one.
    for database in yard.folder.glob(".batchyard/runs/[!.]*/state.db"):
        with closing(sqlite3.connect(database)) as db:
            names |= {
                f"wide-{n}" for (n,) in db.execute("SELECT number FROM command WHERE job = 0")
            }
            rows = db.execute("SELECT child FROM attempt WHERE job = 1 AND state = 'SUCCEEDED'")
            names |= {f"single-{n}" for (n,) in rows}
    return names
