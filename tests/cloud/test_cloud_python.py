"""The Python interface with runs on AWS Batch: it does what the commands do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cloud_lab import Lab, batch_calls, calls

PIPELINE = """\
name: shop
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: cut, array: 2,
     commands: [tr a-z A-Z < raw.txt | tee cut.0, "test -e good && echo good > cut.1"],
     inputs: [raw.txt, "good*"], outputs: ["cut.*"]}
  - {name: glue, needs: [cut], command: "cat cut.0 cut.1 | tee glued.txt", inputs: ["cut.*"],
     outputs: [glued.txt]}
"""
LONG = (
    "name: long\nimage: x\n"
    "steps: [{name: a, memory: 64MiB, max_running: 1, array: 2, command: sleep 600}]\n"
)


def told(lab: Lab, program: str, code: int = 0) -> Any:
    """What a program prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json\nfrom batchyard import *\n{program}"],
        cwd=lab.folder,
        env=lab.environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout) if done.stdout else None


@pytest.mark.slow
def test_a_run_to_its_files_with_a_retry_on_demand(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    lab.write("raw.txt", "line\n")
    lab.write("goods", "")  # a pattern must match something from the beginning
    first = told(
        lab,
        """
run = Pipeline.load("pipeline.yaml").run(engine="aws", environment="lab")
found = [run.id, run.wait(), run.status()["steps"][0]["failed"]]
print(json.dumps([*found, [chunk.data.decode() for chunk in run.logs("cut", 0)][-1:], run.fetch()]))
""",
    )
    assert first[1:] == ["FAILED", 1, ["LINE\n"], 1]
    assert (lab.folder / "cut.0").read_text() == "LINE\n"
    assert lab.status(first[0])["state"] == "FAILED"  # the commands see it

    lab.write("good", "")
    again = told(
        lab,
        f"""
run = Run.find("{first[0]}").retry(on_demand=True)
print(json.dumps([run.id, run.wait(timeout_s=300), run.fetch(), run.status()["retry_of"]]))
""",
    )
    assert again[1:] == ["SUCCEEDED", 2, first[0]]
    assert (lab.folder / "glued.txt").read_text() == "LINE\ngood\n"
    assert f"{again[0]}-cut" in lab.job_names("steady") and f"{first[0]}-cut" in lab.job_names(
        "spot"
    )


@pytest.mark.slow
def test_stop_timeouts_and_what_another_machine_began(lab: Lab, tmp_path: Path) -> None:
    lab.write("pipeline.yaml", LONG)
    run = told(
        lab,
        """
run = Pipeline.load("pipeline.yaml").run(engine="aws", environment="lab")
try:
    run.wait(timeout_s=2)
except TimeoutError as error:
    print(json.dumps([run.id, str(error)]))
""",
    )
    assert "was not over after 2 s" in run[1]
    other = Lab(tmp_path / "other", lab.endpoint)
    before = calls(lab.endpoint)
    assert told(
        other,
        f"""
run = Run.find("{run[0]}", environment="lab")
run.resume()  # all of it is submitted: nothing happens
run.stop()
run.stop()
print(json.dumps([run.wait(300), run.status()["steps"][0]["reason"]]))
""",
    ) == ["STOPPED", "stopped by the user"]
    assert "batch:SubmitJob" not in batch_calls(before, calls(lab.endpoint))
    # What held the children back is not left in the account.
    left = lab.patient("batch").list_consumable_resources()["consumableResources"]
    assert not [one for one in left if run[0] in one["consumableResourceName"]]


@pytest.mark.slow
def test_a_run_that_was_not_submitted_whole_is_gone_on_with(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    lab.write("raw.txt", "line\n")
    lab.write("good", "")
    given = (lab.folder / ".batchyard/environments.yaml").read_text()
    lab.write(".batchyard/environments.yaml", given.replace("lab-runs", "python-runs"))
    found = told(
        lab,
        """
try:
    Pipeline.load("pipeline.yaml").run(engine="aws", environment="lab")
except BatchyardError as error:
    print(json.dumps([error.message, error.hint, error.exit_code]))
""",
    )
    assert "python-runs" in found[0] and "bucket" in found[1] and found[2] == 2
    lab.endpoint.client("s3").create_bucket(Bucket="python-runs")
    assert told(
        lab,
        """
run = Run.find("last")
try:
    run.wait()
except BatchyardError as error:
    said = error.message
run.resume()
print(json.dumps([said.replace(run.id, "RUN"), run.wait(), run.fetch("mine")]))
""",
    ) == [
        "run RUN is interrupted: not all of it is submitted; what is submitted goes on",
        "SUCCEEDED",
        3,
    ]
    assert (lab.folder / "mine" / "glued.txt").read_text() == "LINE\ngood\n"


def test_what_cannot_be_is_said(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    program = """
pipeline = Pipeline.load("pipeline.yaml")
found = []
for given in (
    {"engine": "aws"},
    {"engine": "awz", "environment": "lab"},
    {"environment": "lab"},
    {"engine": "aws", "environment": "lap"},
    {"engine": "aws", "environment": "lab", "offer": Offer(cpus=2)},
    {"engine": "aws", "environment": "lab", "offer": Offer(workspace="s3://")},
):
    try:
        pipeline.run(**given)
    except BatchyardError as error:
        found.append(f"{error.message} {error.hint}")
print(json.dumps(found))
"""
    found = told(lab, program)
    for said, words in zip(
        found,
        (
            'environment="NAME"',
            "no engine 'awz'",
            'engine="aws"',
            "did you mean 'lab'",
            "about this machine",
            "s3://",
        ),
        strict=True,
    ):
        assert words in said, said
    assert lab.json("runs") == []
