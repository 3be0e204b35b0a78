"""CancelJob and TerminateJob in every state (facts, 1.6), of jobs, arrays and single children."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import Endpoint, until
from gates import Gate, no_traceback, one_at_a_time, refused, stays


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    it = Gate(tmp_path / "gate")
    yield it
    it.close()


@pytest.fixture(scope="module")
def narrow(endpoint: Endpoint) -> str:
    """A queue in which one job runs, so that what comes after it is RUNNABLE."""
    queue = one_at_a_time(endpoint, "narrow")
    endpoint.wait(endpoint.run("sleep", "600", queue=queue, name="blocker"), "RUNNING")
    return queue


def end(endpoint: Endpoint, verb: str, job_id: str, reason: str = "enough") -> None:
    act = endpoint.batch.cancel_job if verb == "cancel" else endpoint.batch.terminate_job
    answer = act(jobId=job_id, reason=reason)
    assert set(answer) == {"ResponseMetadata"}  # an empty body


def flags(job: Any) -> tuple[bool, bool]:
    return job["isCancelled"], job["isTerminated"]


VERBS = pytest.mark.parametrize("verb", ["cancel", "terminate"])


# -- jobs -----------------------------------------------------------------------------------------


@VERBS
def test_a_runnable_job_fails(endpoint: Endpoint, narrow: str, verb: str) -> None:
    """facts, 1.6: RUNNABLE -> FAILED at once, with the reason; never retried (1.3)."""
    job_id = endpoint.run("true", queue=narrow, retryStrategy={"attempts": 3})
    endpoint.wait(job_id, "RUNNABLE")
    end(endpoint, verb, job_id, f"{verb} it")
    job = endpoint.job(job_id)
    assert (job["status"], job["statusReason"]) == ("FAILED", f"{verb} it")
    assert flags(job) == (verb == "cancel", verb == "terminate")
    assert job["attempts"] == [] and "exitCode" not in job["container"]
    assert "startedAt" not in job and job["stoppedAt"] >= job["createdAt"]


def test_a_cancelled_pending_job_fails_when_its_dependencies_are_over(
    endpoint: Endpoint, gate: Gate
) -> None:
    """facts, 1.6: PENDING -> FAILED, but only after all of its dependencies have finished."""
    first = endpoint.run(*gate.shell())
    second = endpoint.run("true", dependsOn=[{"jobId": first}])
    third = endpoint.run("true", dependsOn=[{"jobId": second}])
    end(endpoint, "cancel", second, "not wanted")
    stays(lambda: endpoint.job(second)["status"], "PENDING")
    assert flags(endpoint.job(second)) == (True, False)
    gate.open()
    job = endpoint.wait(second)
    assert (job["status"], job["statusReason"], job["attempts"]) == ("FAILED", "not wanted", [])
    assert endpoint.job(first)["status"] == "SUCCEEDED"
    assert endpoint.wait(third)["statusReason"] == "Dependent Job failed"


def test_a_terminated_pending_job_fails_at_once(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.6: a choice, as AWS does not say whether it waits too: it does not."""
    first = endpoint.run(*gate.shell())
    second = endpoint.run("true", dependsOn=[{"jobId": first}])
    end(endpoint, "terminate", second)
    job = endpoint.job(second)
    assert (job["status"], job["statusReason"]) == ("FAILED", "enough")
    endpoint.wait(first, "RUNNING")
    gate.open()
    endpoint.wait(first)


def test_cancelling_a_running_job_does_nothing(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.6: the call returns 200, and the job goes on to its end."""
    job_id = endpoint.run(*gate.shell())
    endpoint.wait(job_id, "RUNNING")
    end(endpoint, "cancel", job_id)
    stays(lambda: endpoint.job(job_id)["status"], "RUNNING")
    gate.open()
    job = endpoint.wait(job_id)
    assert (job["status"], job["container"]["exitCode"]) == ("SUCCEEDED", 0)
    assert flags(job) == (False, False)


def test_terminating_a_running_job_stops_it(endpoint: Endpoint) -> None:
    """facts, 1.6: SIGTERM, and FAILED even where it then exits with 0; the reason is the
    caller's."""
    for script, code in (
        ("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done", 0),
        ("echo ready; exec sleep 60", 143),
    ):
        job_id = endpoint.run("sh", "-c", script)
        endpoint.wait(job_id, "RUNNING")
        until(lambda job_id=job_id: endpoint.output(job_id), lambda lines: lines == ["ready"])
        end(endpoint, "terminate", job_id, "stop it")
        job = endpoint.wait(job_id)
        assert (job["status"], job["statusReason"]) == ("FAILED", "stop it")
        assert job["container"]["exitCode"] == code
        assert [attempt["statusReason"] for attempt in job["attempts"]] == ["stop it"]
        assert flags(job) == (False, True)
        assert ("saved" in endpoint.output(job_id)) == (code == 0)


@VERBS
def test_what_is_over_stays_as_it_is(endpoint: Endpoint, verb: str) -> None:
    """facts, 1.6: a choice, as AWS does not say: 200, and nothing happens."""
    for command in ("true", "false"):
        job_id = endpoint.run(command)
        ended_job = endpoint.wait(job_id)
        end(endpoint, verb, job_id)
        assert endpoint.job(job_id) == ended_job


@VERBS
def test_an_unknown_job_is_no_error(endpoint: Endpoint, verb: str) -> None:
    """facts, 1.6: a choice, after the newer operations for many jobs: 200."""
    single = endpoint.run("true")
    array = endpoint.run("true", arrayProperties={"size": 2})
    for job_id in (
        "nonsense",
        "00000000-0000-0000-0000-000000000000",
        f"{single}:0",
        f"{array}:2",
        f"{array}:x",
    ):
        end(endpoint, verb, job_id)
    assert [endpoint.wait(job_id)["status"] for job_id in (single, array)] == [
        "SUCCEEDED",
        "SUCCEEDED",
    ]


@VERBS
def test_a_reason_is_required_and_bounded(endpoint: Endpoint, narrow: str, verb: str) -> None:
    """facts, 1.6: at most 1024 characters."""
    assert "reason" in refused(lambda: end(endpoint, verb, "x", "r" * 1025))
    assert "reason" in refused(lambda: end(endpoint, verb, "x", ""))
    job_id = endpoint.run("true", queue=narrow)
    end(endpoint, verb, job_id, "ü" * 1024)
    assert endpoint.job(job_id)["statusReason"] == "ü" * 1024
    missing = endpoint.aws("batch", f"{verb}-job", "--job-id", "x", check=False)
    assert missing.returncode != 0 and "--reason" in missing.stderr


def test_the_first_reason_stays(endpoint: Endpoint, gate: Gate) -> None:
    """A choice: who asks first is who is quoted; a terminate still ends what a cancel made wait."""
    first = endpoint.run(*gate.shell())
    second = endpoint.run("true", dependsOn=[{"jobId": first}])
    end(endpoint, "cancel", second, "one")
    end(endpoint, "cancel", second, "two")
    gate.open()
    assert endpoint.wait(second)["statusReason"] == "one"
    third = endpoint.run("true", dependsOn=[{"jobId": (held := endpoint.run("sleep", "60"))}])
    end(endpoint, "cancel", third, "one")
    end(endpoint, "terminate", third, "two")
    assert endpoint.job(third)["statusReason"] == "two"
    assert flags(endpoint.job(third)) == (True, True)
    end(endpoint, "terminate", held)


@VERBS
def test_a_job_between_two_attempts_keeps_the_reason(
    endpoint: Endpoint, gate: Gate, verb: str
) -> None:
    """facts, 1.6: it is RUNNABLE, so it fails, with the caller's reason and the attempt that it
    has had."""
    queue = endpoint.queue(f"between-{verb}", endpoint.environment(f"between-{verb}"))
    job_id = endpoint.run(*gate.shell("exit 3"), queue=queue, retryStrategy={"attempts": 3})
    endpoint.wait(job_id, "RUNNING")
    endpoint.batch.update_compute_environment(
        computeEnvironment=f"between-{verb}", state="DISABLED"
    )
    gate.open()
    waiting = endpoint.wait(job_id, "RUNNABLE")
    assert len(waiting["attempts"]) == 1
    end(endpoint, verb, job_id, "no third")
    job = endpoint.job(job_id)
    assert (job["status"], job["statusReason"]) == ("FAILED", "no third")
    assert [attempt["container"]["exitCode"] for attempt in job["attempts"]] == [3]
    assert job["stoppedAt"] == endpoint.job(job_id)["stoppedAt"] >= job["attempts"][0]["stoppedAt"]


@VERBS
def test_through_the_aws_command(endpoint: Endpoint, narrow: str, verb: str) -> None:
    job_id = endpoint.run("true", queue=narrow)
    assert endpoint.aws("batch", f"{verb}-job", "--job-id", job_id, "--reason", "by hand") is None
    assert endpoint.job(job_id)["statusReason"] == "by hand"


# -- arrays ---------------------------------------------------------------------------------------


def states(endpoint: Endpoint, job_id: str, size: int) -> list[str]:
    children = endpoint.batch.describe_jobs(jobs=[f"{job_id}:{index}" for index in range(size)])[
        "jobs"
    ]
    return [child["status"] for child in children]


def test_cancelling_an_array_leaves_what_runs(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.6 and 2: a choice: RUNNING children run on, as single jobs do; the parent ends
    when all are done."""
    queue = one_at_a_time(endpoint, "cancelled-array")
    job_id = endpoint.run(*gate.shell(), queue=queue, arrayProperties={"size": 3})
    endpoint.wait(f"{job_id}:0", "RUNNING")
    end(endpoint, "cancel", job_id, "not the rest")
    assert states(endpoint, job_id, 3) == ["RUNNING", "FAILED", "FAILED"]
    assert endpoint.job(f"{job_id}:1")["statusReason"] == "not the rest"
    assert flags(endpoint.job(f"{job_id}:1")) == (True, False)
    stays(lambda: endpoint.job(job_id)["status"], "PENDING")
    gate.open()
    parent = endpoint.wait(job_id)
    assert parent["status"] == "FAILED" and flags(parent) == (True, False)
    assert states(endpoint, job_id, 3) == ["SUCCEEDED", "FAILED", "FAILED"]


def test_a_cancelled_array_has_the_callers_reason(endpoint: Endpoint, narrow: str) -> None:
    """facts, 1.6: the reason appears as statusReason afterwards, of the job that the call named."""
    job_id = endpoint.run("true", queue=narrow, arrayProperties={"size": 2})
    end(endpoint, "cancel", job_id, "none of it")
    assert endpoint.wait(job_id)["statusReason"] == "none of it"


def test_terminating_an_array_ends_all_children(endpoint: Endpoint) -> None:
    """facts, 1.6 and 2: those that run are stopped, the others never start."""
    queue = one_at_a_time(endpoint, "terminated-array")
    job_id = endpoint.run(
        "sleep", "60", queue=queue, arrayProperties={"size": 3}, retryStrategy={"attempts": 2}
    )
    endpoint.wait(f"{job_id}:0", "RUNNING")
    end(endpoint, "terminate", job_id, "all of it")
    parent = endpoint.wait(job_id)
    assert (parent["status"], parent["statusReason"]) == ("FAILED", "all of it")
    children = endpoint.batch.describe_jobs(jobs=[f"{job_id}:{index}" for index in range(3)])[
        "jobs"
    ]
    assert [(child["status"], child["statusReason"]) for child in children] == [
        ("FAILED", "all of it")
    ] * 3
    assert [len(child["attempts"]) for child in children] == [1, 0, 0]
    assert [flags(child) for child in children] == [(False, True)] * 3


@VERBS
def test_ending_one_child_condemns_the_parent_alone(
    endpoint: Endpoint, gate: Gate, verb: str
) -> None:
    """facts, 2: its siblings go on."""
    queue = one_at_a_time(endpoint, f"one-child-{verb}")
    job_id = endpoint.run(*gate.shell(), queue=queue, arrayProperties={"size": 3})
    endpoint.wait(f"{job_id}:0", "RUNNING")
    end(endpoint, verb, f"{job_id}:1", "just this one")
    child = endpoint.job(f"{job_id}:1")
    assert (child["status"], child["statusReason"]) == ("FAILED", "just this one")
    assert flags(child) == (verb == "cancel", verb == "terminate")
    assert flags(endpoint.job(job_id)) == flags(endpoint.job(f"{job_id}:2")) == (False, False)
    gate.open(2)
    parent = endpoint.wait(job_id)
    assert (parent["status"], parent["statusReason"]) == ("FAILED", "Array Child Job failed")
    assert states(endpoint, job_id, 3) == ["SUCCEEDED", "FAILED", "SUCCEEDED"]


def test_cancelling_a_running_child_does_nothing(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.6: as with a single job."""
    job_id = endpoint.run(*gate.shell(), arrayProperties={"size": 2})
    endpoint.wait(f"{job_id}:1", "RUNNING")
    end(endpoint, "cancel", f"{job_id}:1")
    gate.open(2)
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"


def test_terminating_a_running_child_stops_it_alone(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.6."""
    job_id = endpoint.run(*gate.shell(), arrayProperties={"size": 2})
    for index in (0, 1):
        endpoint.wait(f"{job_id}:{index}", "RUNNING")
    end(endpoint, "terminate", f"{job_id}:1", "this one")
    assert endpoint.wait(f"{job_id}:1")["statusReason"] == "this one"
    assert endpoint.job(f"{job_id}:0")["status"] == "RUNNING"
    gate.open(2)
    assert endpoint.wait(job_id)["status"] == "FAILED"


def test_a_cancelled_array_that_waits_for_another_job(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.6: PENDING children fail when what they wait for is over."""
    first = endpoint.run(*gate.shell())
    job_id = endpoint.run("true", arrayProperties={"size": 3}, dependsOn=[{"jobId": first}])
    end(endpoint, "cancel", job_id, "no more need")
    stays(lambda: endpoint.job(job_id)["arrayProperties"]["statusSummary"]["PENDING"], 3)
    gate.open()
    assert endpoint.wait(job_id)["status"] == "FAILED"
    assert {endpoint.job(f"{job_id}:{index}")["statusReason"] for index in range(3)} == {
        "no more need"
    }


# -- many at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["cancel", "terminate"])
def test_the_operations_for_many_jobs(endpoint: Endpoint, narrow: str, verb: str) -> None:
    """facts, 1.6: CancelJobs and TerminateJobs, at most 50 ids; unknown ones count as success."""
    act = getattr(endpoint.batch, f"{verb}_jobs", None)
    if act is None:
        pytest.skip("this botocore does not know it")
    jobs = [endpoint.run("true", queue=narrow) for _ in range(2)]
    ids = [*jobs, "00000000-0000-0000-0000-000000000000"]
    answer = act(jobs=ids, reason="all of these")
    assert (answer["errors"], answer["successful"]) == ([], ids)
    assert [endpoint.job(job_id)["statusReason"] for job_id in jobs] == ["all of these"] * 2
    refused(lambda: act(jobs=["x"] * 51, reason="too many"))
    refused(lambda: act(jobs=[], reason="none"))


def test_nothing_of_this_has_shaken_the_endpoint(endpoint: Endpoint) -> None:
    no_traceback(endpoint)
