"""Pipelines as tasks of an ECS cluster: files, lists, logs, results, and the calls of AWS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from cloud_lab import ENVIRONMENTS, TASKS, Lab, add_cluster, calls, run_of, set_faults
from emulator_endpoint import UNKIND, Endpoint

PIPELINE = """\
name: words
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: first, commands_file: words.txt, array: 2, inputs: [letters.txt], outputs: ["first/**"]}
  - {name: plain, needs: [first], array: 3, command: echo plain $AWS_BATCH_JOB_ARRAY_INDEX}
  - {name: last, needs: [first], command: cat first/* > all.txt, inputs: ["first/**"],
     outputs: [all.txt]}
"""
WORDS = "".join(
    f"mkdir -p first && echo $(cat letters.txt) {n} > first/{n}; echo said {n}\n" for n in range(4)
)


@pytest.fixture(scope="module", autouse=True)
def cluster(endpoint: Endpoint) -> None:
    add_cluster(endpoint)


@pytest.fixture(autouse=True)
def environment(lab: Lab) -> None:
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS + TASKS)


@pytest.fixture
def words(lab: Lab) -> Lab:
    lab.write("pipeline.yaml", PIPELINE)
    lab.write("words.txt", WORDS)
    lab.write("letters.txt", "abc")
    return lab


def test_files_go_through_s3_and_results_come_back(words: Lab) -> None:
    done = words("run", "pipeline.yaml", "--engine", "ecs", "--env", "tasks")
    run = run_of(done)
    assert "SUCCEEDED" in done.stdout
    assert (words.folder / "all.txt").read_text() == "".join(f"abc {n}\n" for n in range(4))
    assert words("logs", run, "plain:2").stdout == "plain 2\n"
    assert words("logs", run, "first:1").stdout.splitlines() == ["said 2", "said 3"]
    assert len(words.tasks_of(run)) == 2 + 3 + 1
    commands = words.json("commands", run, "first")
    assert [command["exit_code"] for command in commands] == [0] * 4


@pytest.mark.parametrize("children", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_a_dynamic_list_starts_its_children_with_one_request(
    lab: Lab, calm: None, children: int
) -> None:
    lab.write("list.txt", "".join(f"echo number {n}\n" for n in range(40)))
    before = calls(lab.endpoint)
    run = lab.run_tasks("--image", "busybox", "--array", str(children), file="list.txt")
    made = Counter(calls(lab.endpoint))
    made.subtract(before)
    assert made["ecs:RunTask"] == 1
    assert len(lab.tasks_of(run)) == children
    status = lab.status(run)
    assert status["steps"][0]["commands"] == {"total": 40, "succeeded": 40, "failed": 0}
    output = lab("logs", run, "--command", "list:17").stdout
    assert output == "number 17\n"


def test_one_task_by_hand(lab: Lab) -> None:
    flags = ("--engine", "ecs", "--env", "tasks", "--image", "busybox")
    done = lab("run", *flags, "--set-env", "X=5", "--", "sh", "-c", "echo $X; exit 3", code=3)
    assert done.stdout == "5\n"


def test_one_job_by_hand(lab: Lab) -> None:
    flags = ("--engine", "aws", "--env", "lab", "--image", "busybox")
    done = lab("run", *flags, "--set-env", "X=5", "--", "sh", "-c", "echo $X; exit 3", code=3)
    assert done.stdout == "5\n"


@pytest.fixture
def ordered_faults(endpoint: Endpoint) -> Iterator[None]:
    """Let tests order failures of tasks, and end them."""
    yield
    set_faults(endpoint, UNKIND[1])


RETRIED = """\
name: retried
image: busybox
defaults: {memory: 64MiB}
steps:
  - {name: a, command: echo ran, retries: 1, retry_on: [WORD], gpus: GPUS}
"""


def test_an_image_that_is_found_at_the_second_time(lab: Lab, ordered_faults: None) -> None:
    lab.write("pipeline.yaml", RETRIED.replace("WORD", "image").replace("GPUS", "0"))
    set_faults(lab.endpoint, "no-image=1x")
    run = lab.run_tasks()
    report = lab.status(run)
    assert report["state"] == "SUCCEEDED" and report["steps"][0]["attempts"] == 2
    assert lab("logs", run).stdout == "ran\n"


def test_an_image_that_is_missing_is_never_a_success(lab: Lab, ordered_faults: None) -> None:
    lab.write("pipeline.yaml", RETRIED.replace("WORD", "oom").replace("GPUS", "0"))
    set_faults(lab.endpoint, "no-image=1x")
    done = lab("run", "pipeline.yaml", "--engine", "ecs", "--env", "tasks", code=1)
    assert "CannotPullContainerError" in done.stdout


def test_a_cluster_without_a_free_gpu_is_waited_for(lab: Lab, ordered_faults: None) -> None:
    lab.write("pipeline.yaml", RETRIED.replace("WORD", "any").replace("GPUS", "1"))
    set_faults(lab.endpoint, "no-gpu=1x")
    done = lab("run", "pipeline.yaml", "--engine", "ecs", "--env", "tasks")
    assert "a: the cluster default has no room now (RESOURCE:GPU); its children wait" in done.stderr
    assert lab.status(run_of(done))["steps"][0]["attempts"] == 1


def test_the_plan_shows_the_requests_and_that_the_process_stays(lab: Lab) -> None:
    lab.write("pipeline.yaml", RETRIED.replace("WORD", "any").replace("GPUS", "0"))
    arguments = ("plan", "pipeline.yaml", "--engine", "ecs", "--env", "tasks")
    operations = [request["operation"] for request in lab.json(*arguments)["requests"]]
    assert operations[-1] == "RunTask" and set(operations) <= {"RegisterTaskDefinition", "RunTask"}
    assert "must stay until the end" in lab(*arguments).stderr


def test_an_environment_without_a_cluster_is_refused(lab: Lab) -> None:
    lab.write("pipeline.yaml", RETRIED.replace("WORD", "any").replace("GPUS", "0"))
    done = lab("run", "pipeline.yaml", "--engine", "ecs", "--env", "lab", code=2)
    assert "environment 'lab' has no ECS cluster" in done.stderr


@pytest.mark.slow
def test_tasks_on_fargate_have_interfaces_of_their_own(lab: Lab) -> None:
    ec2 = lab.patient("ec2")
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    entry = (
        "  fargate: {region: us-east-1, bucket: lab-runs, cluster: default, launch_type: FARGATE,"
        f" subnets: [{subnet}]}}\n"
    )
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS + entry)
    flags = ("--engine", "ecs", "--env", "fargate", "--image", "busybox", "--memory", "1GiB")
    done = lab("run", *flags, "--", "echo on $AWS_EXECUTION_ENV")
    assert done.stdout == "on AWS_ECS_FARGATE\n"
    (task,) = lab.tasks_of(run_of(done))
    assert task["launchType"] == "FARGATE" and task["attachments"]
    lab.write(
        ".batchyard/environments.yaml", (ENVIRONMENTS + entry).replace("default", "none-such")
    )
    refused = lab("run", *flags, "--", "true", code=2)
    assert "there is no ECS cluster none-such in us-east-1" in refused.stderr


@pytest.mark.slow
def test_the_cost_of_a_run_on_a_cluster_is_not_called_nothing(lab: Lab) -> None:
    lab("run", "--engine", "ecs", "--env", "tasks", "--image", "busybox", "--", "sleep 1")
    first_line = lab("cost", "last").stdout.splitlines()[0]
    assert first_line.endswith(": cost unknown"), first_line
