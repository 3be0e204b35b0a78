"""Named AWS set-ups, from a file or from what is deployed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchyard import environments
from batchyard.errors import InputError

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
    with pytest.raises(InputError, match="no cpu_on_demand queue"):
        lab.queue(needs_gpu=False, on_demand=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "not YAML: this bracket is never closed"),
        ("a: 1", "expected `environments:`"),
        ("environments: {lab: 3}", "must be a mapping"),
        ("environments: {lab: {bucket: b, queues: {cpu: q}}}", "has no region"),
        ("environments: {lab: {region: r, queues: {cpu: q}}}", "has no bucket"),
        ("environments: {lab: {region: r, bucket: b}}", "`queues` must map"),
        ("environments: {lab: {region: r, bucket: b, queues: {tpu: q}}}", "`queues` must map"),
        ("environments: {lab: {region: r, bucket: 3, queues: {cpu: q}}}", "bucket must be text"),
        (
            "environments: {lab: {region: r, bucket: b, queues: {cpu: q}, bukket: c}}",
            "unknown key 'bukket'",
        ),
    ],
)
def test_what_is_wrong_in_it_is_said(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "environments.yaml").write_text(text)
    with pytest.raises(InputError, match=said):
        environments.load(tmp_path, "lab", lambda name: {})


@pytest.mark.parametrize(
    ("settings", "said", "hint"),
    [
        (
            "bucket: s3://lab-runs",
            "'s3://lab-runs' is not the name of a bucket",
            "write `bucket: lab-runs`",
        ),
        (
            "bucket: s3://lab-runs/team/x",
            "not the name of a bucket",
            "write `bucket: lab-runs` and `prefix: team/x`",
        ),
        (
            'bucket: "Bad Bucket!"',
            "'Bad Bucket!' is not the name of a bucket",
            "3 to 63 lower-case",
        ),
        ("bucket: lab_runs", "not the name of a bucket", "lower-case"),
        ("bucket: ab", "not the name of a bucket", "3 to 63"),
        ("bucket: 10.0.0.1", "not the name of a bucket", ""),
        ("bucket: a..b", "not the name of a bucket", ""),
        ("bucket: lab-runs/team", "not the name of a bucket", ""),
        (
            "{region: eu-central1, bucket: lab-runs}",
            "region is 'eu-central1', which is not a region",
            "us-east-1",
        ),
        (
            "job_role: lab-job",
            "job_role is 'lab-job', which is not the ARN of a role",
            "arn:aws:iam::",
        ),
        ("execution_role: arn:aws:iam::123456789012:user/me", "execution_role is", "arn:aws:iam::"),
        ("repository: https://x/y", "not the address of a repository", ""),
        ("repository: x/y:latest", "not the address of a repository", ""),
        ("prefix: s3://lab-runs/x", "prefix is", "team/runs"),
        ("assign_public_ip: sometimes", "which is not ENABLED or DISABLED", "DISABLED"),
        ("share: a-b", "share is 'a-b'", ""),
        ("queues: {cpu: my queue}", "queues.cpu is 'my queue'", "name or its ARN"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_done_with_it(
    tmp_path: Path, settings: str, said: str, hint: str
) -> None:
    import yaml

    given = {
        "region": "eu-central-1",
        "bucket": "lab-runs",
        "queues": {"cpu": "q"},
        **yaml.safe_load(settings),
    }
    (tmp_path / "environments.yaml").write_text(yaml.safe_dump({"environments": {"lab": given}}))
    with pytest.raises(InputError) as caught:
        environments.load(tmp_path, "lab", lambda name: {})
    assert said in caught.value.message and hint in caught.value.hint


@pytest.mark.parametrize(
    "settings",
    [
        {"bucket": "lab.runs-1"},
        {"bucket": "arn:aws:s3:us-west-2:123456789012:accesspoint:lab"},
        {"bucket": "lab-abc123-s3alias"},
        {"bucket": "Old_Lab", "region": "us-east-1"},
        {"region": "us-gov-west-1", "job_role": "arn:aws-us-gov:iam::123456789012:role/team/lab"},
        {
            "region": "eusc-de-east-1",
            "queues": {"cpu": "arn:aws:batch:us-east-1:123456789012:job-queue/lab_cpu"},
        },
        {"repository": "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/lab"},
        {"repository": "localhost:5000/lab"},
        {
            "prefix": "/team/x/",
            "log_group": "/lab/jobs",
            "share": "vision",
            "definition_prefix": "lab-1",
        },
        {"prefix": ""},
        {"assign_public_ip": "DISABLED"},
    ],
)
def test_what_can_be_is_taken(settings: dict[str, Any]) -> None:
    given = {"region": "eu-central-1", "bucket": "lab-runs", "queues": {"cpu": "q"}, **settings}
    environments.from_mapping("lab", given, "f")


def test_stacks_stand_in_where_the_file_has_no_such_name(tmp_path: Path) -> None:
    outputs = {
        "CpuQueue": "arn:q",
        "Bucket": "b",
        "JobRoleArn": "arn:r",
        "Region": "us-west-2",
        "Other": "x",
    }
    found = environments.load(tmp_path, "prod", lambda name: outputs)
    assert (found.name, found.region, found.queues, found.job_role) == (
        "prod",
        "us-west-2",
        {"cpu": "arn:q"},
        "arn:r",
    )
    with pytest.raises(InputError, match="deployed in part"):
        environments.load(tmp_path, "prod", lambda name: {"Bucket": "b", "Region": "r"})
    (tmp_path / "environments.yaml").write_text(GOOD)
    with pytest.raises(InputError, match="no environment 'lap'") as caught:
        environments.load(tmp_path, "lap", lambda name: {})
    assert caught.value.hint == "did you mean 'lab'?"


def test_a_name_near_to_a_deployed_one_is_offered_before_a_deployment(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        environments.load(tmp_path, "prodd", lambda name: {}, lambda: ["prod", "dev"])
    assert caught.value.hint == "did you mean 'prod'?"
    with pytest.raises(InputError) as caught:
        environments.load(tmp_path, "other", lambda name: {}, lambda: ["prod", "dev"])
    assert caught.value.hint == "`batchyard deploy --env other` creates one"


def test_an_environment_may_have_an_ecs_cluster_instead_of_queues(tmp_path: Path) -> None:
    settings = {"region": "us-east-1", "bucket": "lab-runs", "cluster": "lab-ecs"}
    lab = environments.from_mapping("lab", settings, "file")
    assert (lab.cluster, lab.capacity_provider, dict(lab.queues)) == ("lab-ecs", None, {})
    with pytest.raises(InputError, match="cluster is 'lab ecs', which is not the name or ARN"):
        environments.from_mapping("lab", {**settings, "cluster": "lab ecs"}, "file")


def test_the_cluster_of_the_stack_ecs_goes_before_that_of_spotfleet() -> None:
    outputs = {"Region": "us-east-1", "Bucket": "b", "SpotFleetCluster": "dev-spotfleet"}
    fleet = environments.from_outputs("dev", outputs)
    assert (fleet.cluster, fleet.capacity_provider) == ("dev-spotfleet", None)
    outputs |= {
        "EcsCluster": "dev-ecs",
        "EcsCapacityProvider": "dev-gpu-nodes",
        "EcsTaskRoleArn": "arn:aws:iam::123456789012:role/dev-ecs-TaskRole-1",
        "EcsLogGroup": "/batchyard/dev/ecs",
    }
    both = environments.from_outputs("dev", outputs)
    assert (both.cluster, both.capacity_provider) == ("dev-ecs", "dev-gpu-nodes")
    assert (both.task_role, both.task_log_group) == (
        outputs["EcsTaskRoleArn"],
        "/batchyard/dev/ecs",
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("queues: {cpu: q}, subnets: [subnet-1]", "subnets without a cluster"),
        ("cluster: c, capacity_provider: p, launch_type: EC2", "both capacity_provider and"),
        ("cluster: c, launch_type: FARGATE", "launch_type FARGATE and no subnets"),
        ("cluster: c, launch_type: LAMBDA", "not EC2, FARGATE or EXTERNAL"),
        ("cluster: c, subnets: subnet-1", "subnets is 'subnet-1'"),
        ("cluster: c, security_groups: [x]", r"security_groups is \['x'\]"),
    ],
)
def test_settings_of_a_cluster_go_together(tmp_path: Path, settings: str, sentence: str) -> None:
    path = tmp_path / "environments.yaml"
    path.write_text(f"environments: {{lab: {{region: us-east-1, bucket: runs, {settings}}}}}\n")
    with pytest.raises(InputError, match=sentence):
        environments.read(path)


def test_subnets_of_a_cluster_go_through_json(tmp_path: Path) -> None:
    path = tmp_path / "environments.yaml"
    path.write_text(
        "environments: {lab: {region: us-east-1, bucket: runs, cluster: c, launch_type: FARGATE,"
        " subnets: [subnet-1, subnet-2]}}\n"
    )
    (environment,) = environments.read(path).values()
    assert environment.subnets == ("subnet-1", "subnet-2")
    assert environments.from_json(environments.to_json(environment)) == environment
