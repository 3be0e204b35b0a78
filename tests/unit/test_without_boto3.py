"""Without boto3 (plain `pip install batchyard`), AWS commands name the package to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from command_yard import Yard

ENVIRONMENTS = (
    "environments: {lab: {region: us-east-1, bucket: lab-runs, queues: {cpu: q, gpu: q}}}\n"
)
#: read by Python at its start: these packages are not there
WITHOUT = """\
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("boto3", "botocore", "s3transfer"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT)
    return {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "AWS_REGION": "us-east-1"}


@pytest.mark.parametrize(
    "command",
    [
        "run pipeline.yaml --engine aws --env lab",
        "run pipeline.yaml --engine aws --env deployed",
        "runs --env lab",
        "environments --home elsewhere",
        "deploy --env prod --yes",
        "outputs --env prod",
        "doctor job 6f2d4a0e-0000-4000-8000-000000000000 --env lab",
        "bench submit --env lab",
        "submit jobs.json --env lab",
    ],
)
def test_every_command_about_aws_says_what_to_install(
    yard: Yard, environ: dict[str, str], command: str
) -> None:
    yard.write(".batchyard/environments.yaml", ENVIRONMENTS)
    yard.write("pipeline.yaml", "name: p\nimage: x\nsteps: [{name: a, command: 'true'}]\n")
    yard.write("jobs.json", '[{"jobName": "a", "jobQueue": "q", "jobDefinition": "d"}]')
    done = yard(*command.split(), code=None, env=environ)
    said = done.stdout + done.stderr
    assert done.returncode == (2 if command.startswith("doctor") else 3), (
        said
    )  # the doctor's code for "cannot look"
    assert "the AWS engine needs boto3" in said and "pip install '.[aws]'" in said
    assert "a bug in batchyard" not in said


def test_environments_of_the_file_are_listed_all_the_same(
    yard: Yard, environ: dict[str, str]
) -> None:
    yard.write(".batchyard/environments.yaml", ENVIRONMENTS)
    done = yard("environments", env=environ)
    assert (
        "lab" in done.stdout
        and "only the environments in the file are listed: the AWS engine needs boto3"
        in done.stderr
    )


def test_from_python_it_is_an_error_of_ours(yard: Yard, environ: dict[str, str]) -> None:
    yard.write(".batchyard/environments.yaml", ENVIRONMENTS)
    yard.write("pipeline.yaml", "name: p\nimage: x\nsteps: [{name: a, command: 'true'}]\n")
    program = """\
from batchyard import Pipeline
from batchyard.errors import OperationalError
try:
    Pipeline.load("pipeline.yaml").run(engine="aws", environment="lab")
except OperationalError as exc:
    print(exc.message, exc.hint)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=yard.folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "the AWS engine needs boto3" in done.stdout and "pip install '.[aws]'" in done.stdout
