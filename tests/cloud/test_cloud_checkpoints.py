"""A retry goes on from the checkpoints of the runs before it."""

from __future__ import annotations

import pytest
from cloud_lab import Lab, until

PIPELINE = """\
name: steps
image: busybox
defaults: {memory: 64MiB}
steps:
  - name: count
    array: 2
    checkpoint: [progress]
    command: |
      n=$(cat progress 2>/dev/null || echo 0)
      echo "$AWS_BATCH_JOB_ARRAY_INDEX from $n"
      echo $((n + 1)) > progress
      touch "FOLDER/began-$AWS_BATCH_JOB_ARRAY_INDEX-$BATCHYARD_RUN"
      until [ -e "FOLDER/go" ]; do sleep 0.1; done
      test -e "FOLDER/good" || exit 9
"""


def wait_for_children(lab: Lab, run: str) -> None:
    until(lambda: len(list(lab.folder.glob(f"began-*-{run}"))) == 2)


def read_lines(lab: Lab, run: str) -> list[str]:
    lines = lab("logs", run).stdout.splitlines()
    return sorted(line for line in lines if " from " in line)


@pytest.mark.slow
def test_a_retry_of_a_retry_goes_on_from_the_last_checkpoint(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace("FOLDER", str(lab.folder)))
    first = lab.run("--detach")
    wait_for_children(lab, first)
    assert "STOPPED" in lab("stop", first).stdout
    # The next one saves a newer checkpoint, which counts from then on.
    second = lab("retry", first, "--detach").stdout.strip()
    wait_for_children(lab, second)
    assert read_lines(lab, second) == ["0 from 1", "1 from 1"]
    lab("stop", second)
    # A run that fails without any checkpoint of its own leaves that of the run before.
    lab.write("go", "")
    third = lab("retry", second, "--detach").stdout.strip()
    assert lab.ended(third) == "FAILED"
    assert read_lines(lab, third) == ["0 from 2", "1 from 2"]
    lab.write("good", "")
    fourth = lab("retry", third, "--on-demand", "--detach").stdout.strip()
    assert lab.ended(fourth) == "SUCCEEDED"
    assert read_lines(lab, fourth) == ["0 from 2", "1 from 2"]


@pytest.mark.slow
def test_a_retry_on_demand_goes_on_from_the_checkpoint_of_a_stopped_run(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace("FOLDER", str(lab.folder)))
    first = lab.run("--detach")
    wait_for_children(lab, first)
    lab("stop", first)
    lab.write("go", "")
    lab.write("good", "")
    second = lab("retry", first, "--on-demand", "--detach").stdout.strip()
    assert lab.ended(second) == "SUCCEEDED"
    assert read_lines(lab, second) == ["0 from 1", "1 from 1"]
