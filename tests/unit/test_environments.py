"""Named AWS set-ups, from a file or from what is deployed."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchyard import environments
from batchyard.errors import BadInput

GOOD = """
environments:
  lab:
    region: eu-central-1
    bucket: lab-runs
    prefix: /team/x/
    queues: {cpu: lab-cpu, gpu: lab-gpu}
    job_role: arn:aws:iam::123456789012:role/lab
"""


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "environments.yaml").write_text(GOOD)
    lab = environments.load(tmp_path, "lab", lambda name: {})
    assert (lab.region, lab.prefix, lab.queues["gpu"]) == ("eu-central-1", "team/x/", "lab-gpu")
    assert lab.run_address("r") == "s3://lab-runs/team/x/runs/r/"
    assert environments.from_json(environments.to_json(lab)) == lab
    assert lab.queue(needs_gpu=True) == "lab-gpu"
    with pytest.raises(BadInput, match="no cpu_on_demand queue"):
        lab.queue(needs_gpu=False, on_demand=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "no YAML"),
        ("a: 1", "expected `environments:`"),
        ("environments: {lab: 3}", "must be a mapping"),
        ("environments: {lab: {bucket: b, queues: {cpu: q}}}", "has no region"),
        ("environments: {lab: {region: r, queues: {cpu: q}}}", "has no bucket"),
        ("environments: {lab: {region: r, bucket: b}}", "`queues` must map"),
        ("environments: {lab: {region: r, bucket: b, queues: {tpu: q}}}", "`queues` must map"),
        ("environments: {lab: {region: r, bucket: 3, queues: {cpu: q}}}", "bucket must be text"),
        ("environments: {lab: {region: r, bucket: b, queues: {cpu: q}, bukket: c}}", "unknown key 'bukket'"),
    ],
)
def test_what_is_wrong_in_it_is_said(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "environments.yaml").write_text(text)
    with pytest.raises(BadInput, match=said):
        environments.load(tmp_path, "lab", lambda name: {})


def test_stacks_stand_in_where_the_file_has_no_such_name(tmp_path: Path) -> None:
    outputs = {"CpuQueue": "arn:q", "Bucket": "b", "JobRoleArn": "arn:r", "Region": "us-west-2", "Other": "x"}
    found = environments.load(tmp_path, "prod", lambda name: outputs)
    assert (found.name, found.region, found.queues, found.job_role) == ("prod", "us-west-2", {"cpu": "arn:q"}, "arn:r")
    with pytest.raises(BadInput, match="deployed in part"):
        environments.load(tmp_path, "prod", lambda name: {"Bucket": "b", "Region": "r"})
    (tmp_path / "environments.yaml").write_text(GOOD)
    with pytest.raises(BadInput, match="no environment 'lap'") as caught:
        environments.load(tmp_path, "lap", lambda name: {})
    assert caught.value.hint == "did you mean 'lab'?"


def test_a_name_near_to_a_deployed_one_is_offered_before_a_deployment(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        environments.load(tmp_path, "prodd", lambda name: {}, lambda: ["prod", "dev"])
    assert caught.value.hint == "did you mean 'prod'?"
    with pytest.raises(BadInput) as caught:
        environments.load(tmp_path, "other", lambda name: {}, lambda: ["prod", "dev"])
    assert caught.value.hint == "`batchyard deploy --env other` makes one"
