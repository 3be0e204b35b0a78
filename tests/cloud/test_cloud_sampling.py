"""What commands use on AWS: sampled by the worker, kept in the records that it writes anyway."""

from __future__ import annotations

import json

import pytest
from cloud_lab import ENVIRONMENTS, TASKS, Lab, add_cluster
from emulator_endpoint import Endpoint

pytestmark = pytest.mark.slow

#: Longer than two intervals of the sampler.
PIPELINE = """\
name: used
image: busybox
defaults: {memory: 256MiB}
steps:
  - name: alone
    command: sleep 5 > out.txt
    outputs: [out.txt]
  - name: shared
    array: 1
    share_out: static
    commands: [sleep 5, "true"]
  - name: dynamic
    array: 1
    share_out: dynamic
    commands: [sleep 5, "true"]
"""


@pytest.fixture(scope="module", autouse=True)
def cluster(endpoint: Endpoint) -> None:
    add_cluster(endpoint)


@pytest.mark.parametrize(
    ("engine", "is_sampled"), [("aws", True), ("aws", False), ("ecs", True), ("ecs", False)]
)
def test_records_of_all_kinds_of_steps_have_what_was_sampled(
    lab: Lab, engine: str, is_sampled: bool
) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS + TASKS)
    begin = lab.run if engine == "aws" else lab.run_tasks
    run = begin(*([] if is_sampled else ["--no-sampling"]))
    commands = json.loads(lab("commands", run, "--json").stdout)
    sampled = {f"{one['step']}:{one['command']}" for one in commands if one["use"] is not None}
    assert sampled == ({"alone:0", "shared:0", "dynamic:0"} if is_sampled else set())
    # status sends no request for it, and the report reads the records
    assert json.loads(lab("status", run, "--json").stdout)["uses"] == []
    report = lab("report", run, "--out", "-").stdout
    assert ("<h2>Resources</h2>" in report) is is_sampled
    # alone and shared have a series, dynamic steps have none
    assert report.count("<figure>") == (4 if is_sampled else 0)
