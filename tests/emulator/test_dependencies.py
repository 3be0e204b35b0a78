"""Dependencies between jobs and between children (facts, 1.7 and 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import Endpoint, until
from gates import Gate, no_traceback, refused, stays

FAILED_FOR_ANOTHER = ("FAILED", "Dependent Job failed")
NOBODY = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    it = Gate(tmp_path / "gate")
    yield it
    it.close()


def ended(endpoint: Endpoint, job_id: str) -> tuple[str, str]:
    job = endpoint.wait(job_id)
    return job["status"], job["statusReason"]


def children(endpoint: Endpoint, job_id: str, size: int) -> list[Any]:
    return list(
        endpoint.batch.describe_jobs(jobs=[f"{job_id}:{index}" for index in range(size)])["jobs"]
    )


def states(endpoint: Endpoint, job_id: str, size: int) -> list[str]:
    return [child["status"] for child in children(endpoint, job_id, size)]


# -- on whole jobs --------------------------------------------------------------------------------


def test_a_job_waits_as_pending_until_all_dependencies_have_succeeded(
    endpoint: Endpoint, gate: Gate
) -> None:
    """facts, 1.7 and 1.1: PENDING -> RUNNABLE when every one has SUCCEEDED."""
    first, second = endpoint.run(*gate.shell()), endpoint.run("true")
    third = endpoint.run("true", dependsOn=[{"jobId": first}, {"jobId": second}])
    endpoint.wait(second)
    stays(lambda: endpoint.job(third)["status"], "PENDING")
    gate.open()
    job = endpoint.wait(third)
    assert job["status"] == "SUCCEEDED"
    assert job["startedAt"] >= endpoint.job(first)["stoppedAt"]
    assert job["dependsOn"] == [{"jobId": first}, {"jobId": second}]


def test_at_most_20_dependencies(endpoint: Endpoint) -> None:
    """facts, 1.7 and 5.4: `Job cannot have more than 20 dependencies`."""
    done = endpoint.run("true")
    endpoint.wait(done)
    assert (
        endpoint.wait(endpoint.run("true", dependsOn=[{"jobId": done}] * 20))["status"]
        == "SUCCEEDED"
    )
    message = refused(lambda: endpoint.run("true", dependsOn=[{"jobId": done}] * 21))
    assert "Job cannot have more than 20 dependencies" in message
    assert (
        message.startswith("Error executing request, Exception : ") and ", RequestId: " in message
    )


def test_a_dependency_may_be_in_another_queue(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.7: nothing ties it to the same queue."""
    other = endpoint.queue("other", endpoint.environment("other"))
    first = endpoint.run(*gate.shell(), queue=other)
    second = endpoint.run("true", dependsOn=[{"jobId": first}])
    stays(lambda: endpoint.job(second)["status"], "PENDING", 0.2)
    gate.open()
    assert endpoint.wait(second)["status"] == "SUCCEEDED"


def test_a_failure_fails_all_that_follow(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.7: PENDING -> FAILED by itself, `Dependent Job failed`, on and on, never retried."""
    first = endpoint.run(*gate.shell("exit 1"))
    second = endpoint.run("true", dependsOn=[{"jobId": first}], retryStrategy={"attempts": 3})
    third = endpoint.run("true", dependsOn=[{"jobId": second}])
    array = endpoint.run("true", dependsOn=[{"jobId": third}], arrayProperties={"size": 2})
    gate.open()
    for job_id in (second, third, array):
        assert ended(endpoint, job_id) == FAILED_FOR_ANOTHER
    assert endpoint.job(second)["attempts"] == [] and "startedAt" not in endpoint.job(second)
    assert [(child["status"], child["statusReason"]) for child in children(endpoint, array, 2)] == [
        FAILED_FOR_ANOTHER,
        FAILED_FOR_ANOTHER,
    ]


def test_a_retried_dependency_has_not_failed_yet(endpoint: Endpoint) -> None:
    """facts, 1.7: what counts is the job, not its attempts."""
    first = endpoint.run(
        "sh", "-c", "exit $((2 - AWS_BATCH_JOB_ATTEMPT))", retryStrategy={"attempts": 2}
    )
    assert (
        endpoint.wait(endpoint.run("true", dependsOn=[{"jobId": first}]))["status"] == "SUCCEEDED"
    )


def test_a_dependency_that_is_over_already(endpoint: Endpoint) -> None:
    """facts, 1.7: SUCCEEDED is satisfied at once; a choice: of one that has FAILED the dependent
    fails."""
    good, bad = endpoint.run("true"), endpoint.run("false")
    endpoint.wait(good), endpoint.wait(bad)
    assert endpoint.wait(endpoint.run("true", dependsOn=[{"jobId": good}]))["status"] == "SUCCEEDED"
    assert ended(endpoint, endpoint.run("true", dependsOn=[{"jobId": bad}])) == FAILED_FOR_ANOTHER


@pytest.mark.parametrize(
    "entry",
    [
        {"jobId": NOBODY},
        {"jobId": "nonsense"},
        {"jobId": ""},
        {},
        {"jobId": NOBODY, "type": "N_TO_N"},
    ],
)
def test_an_unknown_dependency_is_refused(endpoint: Endpoint, entry: dict[str, str]) -> None:
    """facts, 1.7: a choice, as AWS does not say: the submit is refused, and no job is left of
    it."""
    jobs_before = endpoint.batch.list_jobs(
        jobQueue="queue", filters=[{"name": "JOB_NAME", "values": ["lost"]}]
    )
    refused(lambda: endpoint.run("true", name="lost", dependsOn=[entry]))
    jobs_after = endpoint.batch.list_jobs(
        jobQueue="queue", filters=[{"name": "JOB_NAME", "values": ["lost"]}]
    )
    assert jobs_before["jobSummaryList"] == jobs_after["jobSummaryList"] == []


# -- on arrays and children -----------------------------------------------------------------------


def test_a_whole_array_must_succeed(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 2: {jobId: an array} waits for all of its children."""
    array = endpoint.run(*gate.shell(), arrayProperties={"size": 2})
    dependent = endpoint.run("true", dependsOn=[{"jobId": array}])
    gate.open()
    until(
        lambda: sorted(states(endpoint, array, 2)),
        lambda child_states: child_states == ["RUNNING", "SUCCEEDED"],
    )
    stays(lambda: endpoint.job(dependent)["status"], "PENDING", 0.2)
    gate.open()
    assert endpoint.wait(dependent)["status"] == "SUCCEEDED"
    bad = endpoint.run("sh", "-c", "exit $AWS_BATCH_JOB_ARRAY_INDEX", arrayProperties={"size": 2})
    assert ended(endpoint, endpoint.run("true", dependsOn=[{"jobId": bad}])) == FAILED_FOR_ANOTHER


def test_one_child_can_be_waited_for(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 2: a choice: {jobId: "P:1"} waits for that child only."""
    script = f"if [ $AWS_BATCH_JOB_ARRAY_INDEX != 1 ]; then {gate.shell()[2]} fi"
    array = endpoint.run("sh", "-c", script, arrayProperties={"size": 3})
    assert (
        endpoint.wait(endpoint.run("true", dependsOn=[{"jobId": f"{array}:1"}]))["status"]
        == "SUCCEEDED"
    )
    assert endpoint.job(array)["status"] == "PENDING"
    gate.open(2)
    endpoint.wait(array)
    for index in ("3", "-1", "x", "", "9" * 5000):
        refused(lambda index=index: endpoint.run("true", dependsOn=[{"jobId": f"{array}:{index}"}]))
    single = endpoint.run("true")
    refused(lambda: endpoint.run("true", dependsOn=[{"jobId": f"{single}:0"}]))


def test_sequential_children_come_one_after_the_other(endpoint: Endpoint, tmp_path: Path) -> None:
    """facts, 2: child i waits for child i-1 of the same array; 0 goes first."""
    script = (
        f"echo begin $AWS_BATCH_JOB_ARRAY_INDEX >> {tmp_path}/o; "
        f"sleep 0.05; echo end >> {tmp_path}/o"
    )
    job_id = endpoint.run(
        "sh", "-c", script, arrayProperties={"size": 5}, dependsOn=[{"type": "SEQUENTIAL"}]
    )
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    order = (tmp_path / "o").read_text().splitlines()
    assert order == [line for index in range(5) for line in (f"begin {index}", "end")]
    assert endpoint.job(job_id)["dependsOn"] == [{"type": "SEQUENTIAL"}]


def test_a_failed_child_of_a_sequence_takes_the_rest_along(endpoint: Endpoint) -> None:
    """facts, 2: by cascade, without an attempt."""
    script = "test $AWS_BATCH_JOB_ARRAY_INDEX -lt 2"
    job_id = endpoint.run(
        "sh", "-c", script, arrayProperties={"size": 6}, dependsOn=[{"type": "SEQUENTIAL"}]
    )
    parent = endpoint.wait(job_id)
    assert (parent["status"], parent["statusReason"]) == ("FAILED", "Array Child Job failed")
    child_jobs = children(endpoint, job_id, 6)
    assert [child["status"] for child in child_jobs] == ["SUCCEEDED"] * 2 + ["FAILED"] * 4
    assert [len(child["attempts"]) for child in child_jobs] == [1, 1, 1, 0, 0, 0]
    assert [child["statusReason"] for child in child_jobs[3:]] == ["Dependent Job failed"] * 3


def test_child_for_child(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 2: N_TO_N: child i waits for child i of the other array only."""
    script = f"if [ $AWS_BATCH_JOB_ARRAY_INDEX = 1 ]; then {gate.shell()[2]} fi"
    first = endpoint.run("sh", "-c", script, arrayProperties={"size": 3})
    second = endpoint.run(
        "true", arrayProperties={"size": 3}, dependsOn=[{"jobId": first, "type": "N_TO_N"}]
    )
    until(
        lambda: states(endpoint, second, 3),
        lambda child_states: child_states == ["SUCCEEDED", "PENDING", "SUCCEEDED"],
    )
    assert endpoint.job(first)["status"] == "PENDING"
    gate.open()
    assert endpoint.wait(second)["status"] == "SUCCEEDED"


def test_a_failure_child_for_child(endpoint: Endpoint) -> None:
    """facts, 2: only the same index fails, the others go on, and the follower's parent fails at
    the end."""
    first = endpoint.run(
        "sh", "-c", "test $AWS_BATCH_JOB_ARRAY_INDEX != 1", arrayProperties={"size": 3}
    )
    second = endpoint.run(
        "true", arrayProperties={"size": 3}, dependsOn=[{"jobId": first, "type": "N_TO_N"}]
    )
    assert ended(endpoint, second) == ("FAILED", "Array Child Job failed")
    child_jobs = children(endpoint, second, 3)
    assert [child["status"] for child in child_jobs] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert (child_jobs[1]["statusReason"], child_jobs[1]["attempts"]) == (
        "Dependent Job failed",
        [],
    )
    # And where the first one is over already.
    third = endpoint.run(
        "true", arrayProperties={"size": 3}, dependsOn=[{"jobId": first, "type": "N_TO_N"}]
    )
    endpoint.wait(third)
    assert states(endpoint, third, 3) == ["SUCCEEDED", "FAILED", "SUCCEEDED"]


def test_both_kinds_together(endpoint: Endpoint, gate: Gate, tmp_path: Path) -> None:
    """facts, 2: {jobId: X} and {type: SEQUENTIAL} both hold."""
    first = endpoint.run(*gate.shell())
    job_id = endpoint.run(
        "sh",
        "-c",
        f"echo $AWS_BATCH_JOB_ARRAY_INDEX >> {tmp_path}/order",
        arrayProperties={"size": 3},
        dependsOn=[{"jobId": first}, {"type": "SEQUENTIAL"}],
    )
    stays(lambda: endpoint.job(job_id)["arrayProperties"]["statusSummary"]["PENDING"], 3, 0.3)
    gate.open()
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    assert (tmp_path / "order").read_text().split() == ["0", "1", "2"]


def test_what_is_refused_about_arrays(endpoint: Endpoint) -> None:
    """facts, 2: choices: different sizes, a type on a single job, SEQUENTIAL with a job, N_TO_N
    without one."""
    array, single = endpoint.run("true", arrayProperties={"size": 3}), endpoint.run("true")
    for size, entry in (
        (2, {"jobId": array, "type": "N_TO_N"}),
        (3, {"jobId": single, "type": "N_TO_N"}),
        (3, {"jobId": f"{array}:0", "type": "N_TO_N"}),
        (3, {"type": "N_TO_N"}),
        (3, {"jobId": array, "type": "SEQUENTIAL"}),
        (None, {"jobId": array, "type": "N_TO_N"}),
        (None, {"type": "SEQUENTIAL"}),
        (3, {"jobId": array, "type": "SOMETIMES"}),
    ):
        members: dict[str, Any] = {"arrayProperties": {"size": size}} if size else {}
        refused(
            lambda entry=entry, members=members: endpoint.run("true", dependsOn=[entry], **members)
        )


def test_sequential_with_the_job_before_a_single_job(endpoint: Endpoint) -> None:
    """facts, 2: not documented; clients mean the job that they name."""
    failing = endpoint.run("false")
    follower = endpoint.run("true", dependsOn=[{"jobId": failing, "type": "SEQUENTIAL"}])
    job = endpoint.wait(follower)
    assert (job["status"], job["statusReason"]) == ("FAILED", "Dependent Job failed")
    assert job["dependsOn"] == [{"jobId": failing, "type": "SEQUENTIAL"}]


def test_through_the_aws_command(endpoint: Endpoint) -> None:
    definition = endpoint.definition("by-cli", "true")

    def submit(*arguments: str) -> str:
        words = ("--job-name", "x", "--job-queue", "queue", "--job-definition", definition)
        return str(endpoint.aws("batch", "submit-job", *words, *arguments)["jobId"])

    first = submit("--array-properties", "size=2")
    second = submit(
        "--array-properties",
        "size=2",
        "--depends-on",
        f"jobId={first},type=N_TO_N",
        "type=SEQUENTIAL",
    )
    assert endpoint.wait(second)["status"] == "SUCCEEDED"
    assert endpoint.job(second)["dependsOn"] == [
        {"jobId": first, "type": "N_TO_N"},
        {"type": "SEQUENTIAL"},
    ]


def test_a_long_chain(endpoint: Endpoint) -> None:
    """A failure goes down a chain of any length."""
    first = last = endpoint.run("sh", "-c", "sleep 0.5; exit 1")
    definition = endpoint.definition("link", "true")
    for _ in range(100):
        last = endpoint.submit(definition, dependsOn=[{"jobId": last}])
    assert endpoint.wait(first)["status"] == "FAILED"
    assert ended(endpoint, last) == FAILED_FOR_ANOTHER


def test_nothing_of_this_has_shaken_the_endpoint(endpoint: Endpoint) -> None:
    no_traceback(endpoint)
