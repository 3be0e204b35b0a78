"""`batchyard image` with a stand-in for docker, and the launcher of the worker in its folder."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from command_yard import Yard

DIGEST = f"sha256:{'0a' * 32}"
DOCKER = f"""#!/bin/sh
echo "$*" >> "$DOCKER_CALLS"
case $1 in
version) echo 28.0 ;;
push)
    [ -t 1 ] && echo "[====>    ] 1GB/3GB"
    echo "f00d: Pushed"
    [ -z "$DOCKER_FAILS" ] || {{ echo "denied: no such repository" >&2; exit 1; }}
    echo "recon-1: digest: {DIGEST} size: 1234" ;;
esac
"""
ENVIRONMENTS = """\
environments:
  lab:
    region: us-east-1
    bucket: lab-runs
    queues: {cpu: spot}
    repository: registry.example/lab
"""


@pytest.fixture
def environ(yard: Yard) -> dict[str, str]:
    """The environment with the stand-in for docker."""
    yard.write("bin/docker", DOCKER).chmod(0o755)
    yard.write(".batchyard/environments.yaml", ENVIRONMENTS)
    return {
        **os.environ,
        "PATH": f"{yard.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "DOCKER_CALLS": str(yard.folder / "calls"),
    }


def test_an_image_is_built_for_the_platform_of_the_hosts(
    yard: Yard, environ: dict[str, str]
) -> None:
    yard("image", "init", "--kind", "cpu")
    yard("image", "build", "--tag", "recon:1", "--platform", "linux/arm64", env=environ)
    yard("image", "build", "--tag", "recon:1", env=environ)
    builds = [
        line
        for line in (yard.folder / "calls").read_text().splitlines()
        if line.startswith("build ")
    ]
    assert ["--platform linux/arm64" in line for line in builds] == [True, False]


def test_a_push_shows_its_progress_beside_its_result(yard: Yard, environ: dict[str, str]) -> None:
    done = yard("image", "push", "recon:1", "--env", "lab", env=environ)
    assert done.stdout == f"registry.example/lab@{DIGEST}\n"
    assert "f00d: Pushed" in done.stderr and "1GB/3GB" not in done.stderr


def test_a_push_on_a_terminal_has_dockers_bars(yard: Yard, environ: dict[str, str]) -> None:
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        yard.command("image", "push", "recon:1", "--env", "lab"),
        cwd=yard.folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=writer,
    )
    os.close(writer)
    stdout, _ = process.communicate(timeout=300)
    assert (process.returncode, stdout.decode()) == (0, f"registry.example/lab@{DIGEST}\n")
    assert b"1GB/3GB" in os.read(reader, 65536)
    os.close(reader)


def test_a_push_that_fails_is_an_error_with_the_reason(yard: Yard, environ: dict[str, str]) -> None:
    done = yard(
        "image", "push", "recon:1", "--env", "lab", code=3, env={**environ, "DOCKER_FAILS": "1"}
    )
    assert "failed: denied: no such repository" in done.stderr
    assert done.stdout == ""


# -- the launcher ----------------------------------------------------------------------------------


def start_worker(
    yard: Yard, pythons: dict[str, str], **environ: str
) -> subprocess.CompletedProcess[str]:
    """Start the launcher where PATH has only what it needs, and these scripts are interpreters."""
    yard("image", "init", "--kind", "cpu")
    for program in ("sh", "dirname", "readlink"):
        link = yard.folder / "bin" / program
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(str(shutil.which(program)))
    for name, script in pythons.items():
        yard.write(name, script).chmod(0o755)
    return subprocess.run(
        [yard.folder / "batchyard-worker" / "batchyard-worker"],
        env={"PATH": str(yard.folder / "bin"), "HOME": str(yard.folder / "home"), **environ},
        capture_output=True,
        text=True,
    )


PYTHON = f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n"
#: -S: without site-packages, and so without boto3
WITHOUT_BOTO3 = f"#!/bin/sh\nexec '{sys.executable}' -S \"$@\"\n"
CONDA = "home/miniconda3/bin/python3"


def test_the_worker_starts_with_the_python_of_conda(yard: Yard) -> None:
    for pythons in ({CONDA: PYTHON}, {CONDA: PYTHON, "bin/python3": WITHOUT_BOTO3}):
        shutil.rmtree(yard.folder / "bin", ignore_errors=True)
        done = start_worker(yard, pythons)
        assert done.returncode == 78, done.stderr
        assert done.stderr.startswith("batchyard-worker: BATCHYARD_ORDERS is not set")


def test_the_worker_starts_with_the_python_that_a_variable_names(yard: Yard) -> None:
    pythons = {"bin/python3": WITHOUT_BOTO3, "mine/python": PYTHON}
    done = start_worker(yard, pythons, BATCHYARD_PYTHON=str(yard.folder / "mine/python"))
    assert done.returncode == 78, done.stderr


def test_the_launcher_can_be_read_by_every_python(yard: Yard) -> None:
    yard("image", "init", "--kind", "cpu")
    text = Path(yard.folder / "batchyard-worker" / "start.py").read_text()
    # What Python 2.7 and 3.5 do not have.
    assert 'f"' not in text and "->" not in text and ":=" not in text
    compile(text, "start.py", "exec")
