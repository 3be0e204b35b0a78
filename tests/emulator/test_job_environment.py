"""What a job finds in its environment (facts, 3): AWS Batch's variables, the definition's, the
endpoint's."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import AWS_WORDS, Endpoint
from gates import no_traceback, refused

PRINT = ("python3", "-c", "import json, os; print(json.dumps(dict(os.environ)))")


def environ(endpoint: Endpoint, job_id: str) -> dict[str, str]:
    """Of a job that prints it."""
    endpoint.wait(job_id)
    (line,) = endpoint.output(job_id)
    variables: dict[str, str] = json.loads(line)
    return variables


def of_batch(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith("AWS_BATCH_")}


def test_a_job_has_these_variables_of_batch_and_no_others(endpoint: Endpoint) -> None:
    """facts, 3: CE, queue, id, attempt; no name of the job, no definition, no array's variables."""
    job_id = endpoint.run(*PRINT, name="has-a-name")
    assert of_batch(environ(endpoint, job_id)) == {
        "AWS_BATCH_CE_NAME": "cpu",
        "AWS_BATCH_JQ_NAME": "queue",
        "AWS_BATCH_JOB_ID": job_id,
        "AWS_BATCH_JOB_ATTEMPT": "1",
    }


def test_a_child_has_two_more(endpoint: Endpoint) -> None:
    """facts, 3: index and size; the id is the child's; no node's variables, which are for
    multi-node jobs."""
    job_id = endpoint.run(*PRINT, arrayProperties={"size": 2})
    endpoint.wait(job_id)
    assert of_batch(environ(endpoint, f"{job_id}:1")) == {
        "AWS_BATCH_CE_NAME": "cpu",
        "AWS_BATCH_JQ_NAME": "queue",
        "AWS_BATCH_JOB_ID": f"{job_id}:1",
        "AWS_BATCH_JOB_ATTEMPT": "1",
        "AWS_BATCH_JOB_ARRAY_INDEX": "1",
        "AWS_BATCH_JOB_ARRAY_SIZE": "2",
    }


def test_the_worker_is_found_beside_the_endpoint_and_nothing_else_is_there_first(
    tmp_path: Path,
) -> None:
    """An endpoint that was started by its full path, from a shell without the venv."""
    endpoint = Endpoint(tmp_path, environ={"PATH": "/usr/bin:/bin"})
    try:
        endpoint.queue("queue", endpoint.environment("cpu"))
        job = endpoint.wait(endpoint.run("batchyard-worker"))
        assert "BATCHYARD_ORDERS is not set" in "".join(endpoint.output(job["jobId"])), job[
            "attempts"
        ]
        (path,) = endpoint.output(endpoint.wait(endpoint.run("sh", "-c", "echo $PATH"))["jobId"])
        assert path == f"/usr/bin:/bin:{Path(sys.executable).parent}"
    finally:
        endpoint.stop()


def test_the_attempt_is_counted_from_one(endpoint: Endpoint) -> None:
    """facts, 3 and 1.1: `1`, and one more for each retry."""
    job_id = endpoint.run(
        "sh", "-c", "echo $AWS_BATCH_JOB_ATTEMPT; exit 1", retryStrategy={"attempts": 3}
    )
    job = endpoint.wait(job_id)
    streams = [attempt["container"]["logStreamName"] for attempt in job["attempts"]]
    answers = [
        endpoint.logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=name)
        for name in streams
    ]
    assert [[event["message"] for event in answer["events"]] for answer in answers] == [
        ["1"],
        ["2"],
        ["3"],
    ]


def test_the_names_are_those_of_the_environment_it_runs_in(endpoint: Endpoint) -> None:
    """facts, 3: names, not ARNs; of a queue with two environments the one that had room."""
    endpoint.environment("small-one", vcpus=1)
    arn = endpoint.batch.describe_compute_environments()["computeEnvironments"][-1][
        "computeEnvironmentArn"
    ]
    assert arn.endswith("/small-one")
    queue = endpoint.queue("two-environments", arn, endpoint.environment("large-one", vcpus=8))
    definition = endpoint.definition("two-vcpus", *PRINT, vcpus=2)
    variables = environ(endpoint, endpoint.submit(definition, queue))
    assert (variables["AWS_BATCH_CE_NAME"], variables["AWS_BATCH_JQ_NAME"]) == (
        "large-one",
        "two-environments",
    )


@pytest.mark.parametrize("name", ["AWS_BATCH_JOB_ID", "AWS_BATCH_", "AWS_BATCH_MINE"])
def test_the_prefix_is_protected(endpoint: Endpoint, name: str) -> None:
    """facts, 3: AWS_BATCH_ is refused in definitions and overrides."""
    mine = {"environment": [{"name": name, "value": "x"}]}
    refused(lambda: endpoint.definition("protected", "true", container=mine))
    definition = endpoint.definition("protected", "true")
    refused(lambda: endpoint.submit(definition, containerOverrides=mine))


def test_the_definitions_variables_and_their_overrides(endpoint: Endpoint) -> None:
    """facts, 3 and 5.2: merged by name; nothing is put in for Ref:: in values, nor for $."""
    variables = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "Ref::b $HOME"},
        {"name": "EMPTY", "value": ""},
    ]
    definition = endpoint.definition(
        "variables", *PRINT, container={"environment": variables}, parameters={"b": "x"}
    )
    overrides = {"environment": [{"name": "A", "value": "2"}, {"name": "C", "value": "ü\nline"}]}
    merged = environ(endpoint, endpoint.submit(definition, containerOverrides=overrides))
    assert [merged[name] for name in ("A", "B", "C", "EMPTY")] == [
        "2",
        "Ref::b $HOME",
        "ü\nline",
        "",
    ]


def test_a_gpu_job_is_told_which_ones(endpoint: Endpoint) -> None:
    """facts, 3: NVIDIA_VISIBLE_DEVICES, as from the ECS agent; there is no variable with their
    number."""
    queue = endpoint.queue("gpu", endpoint.environment("gpu", types=("g5",)))
    both = environ(
        endpoint, endpoint.submit(endpoint.definition("two-gpus", *PRINT, gpus=2), queue)
    )
    assert both["NVIDIA_VISIBLE_DEVICES"] == both["CUDA_VISIBLE_DEVICES"] == "0,1"
    none = environ(endpoint, endpoint.submit(endpoint.definition("no-gpu", *PRINT), queue))
    # A choice: a process is told that there is none, as it would find those of others.
    assert none["CUDA_VISIBLE_DEVICES"] == "" and "NVIDIA_VISIBLE_DEVICES" not in none


def test_whoever_calls_aws_from_a_job_comes_here(endpoint: Endpoint) -> None:
    """The endpoint's address and keys, and the metadata address of the job's own host."""
    job_id = endpoint.run(*PRINT)
    variables = environ(endpoint, job_id)
    regions = ("AWS_REGION", "AWS_DEFAULT_REGION")
    shared = {key: value for key, value in endpoint.variables.items() if key not in regions}
    assert {name: variables[name] for name in shared} == shared
    assert not set(regions) & set(variables)
    address = variables["AWS_EC2_METADATA_SERVICE_ENDPOINT"]
    assert re.fullmatch(re.escape(endpoint.url) + r"/imds/[0-9a-f]{16}/i-0[0-9a-f]{16}", address)
    # facts, 3: what ECS itself adds.
    assert variables["AWS_EXECUTION_ENV"] == "AWS_ECS_EC2"


def test_the_endpoints_own_environment_is_not_the_jobs(start: Any) -> None:
    """What the endpoint was started with about AWS, or about a job that it is itself a part of,
    stays with it."""
    foreign = {
        "AWS_PROFILE": "production",
        "AWS_SESSION_TOKEN": "real",
        "AWS_BATCH_JOB_ARRAY_INDEX": "7",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/x",
        "BATCHYARD_RUN": "other",
        "SOMETHING": "else",
    }
    endpoint = start("--cpus", "2", "--memory", "2GiB", environ=foreign)
    endpoint.queue("queue", endpoint.environment("cpu"))
    variables = environ(endpoint, endpoint.run(*PRINT))
    assert (
        "AWS_PROFILE" not in variables
        and "AWS_SESSION_TOKEN" not in variables
        and "BATCHYARD_RUN" not in variables
    )
    assert (
        "AWS_BATCH_JOB_ARRAY_INDEX" not in variables
        and "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI" not in variables
    )
    # A choice: a process has the rest of the environment, its PATH above all.
    assert variables["SOMETHING"] == "else" and variables["PATH"]


def test_a_job_submits_another(endpoint: Endpoint) -> None:
    """With nothing but its environment and the name of the region."""
    inner = endpoint.definition("inner", "true")
    words = (
        f"batch submit-job --job-name inner --job-queue queue --job-definition {inner} "
        "--query jobId --output text --region us-east-1"
    )
    job_id = endpoint.run("sh", "-c", f"{shlex.join(AWS_WORDS)} {words}")
    job = endpoint.wait(job_id)
    (inner_id,) = endpoint.output(job_id)
    assert job["status"] == "SUCCEEDED" and endpoint.wait(inner_id)["jobName"] == "inner"


def test_nothing_of_this_has_shaken_the_endpoint(endpoint: Endpoint) -> None:
    no_traceback(endpoint)
