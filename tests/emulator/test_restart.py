"""An endpoint that is killed or stopped, and started again in the same folder: nothing is lost,
nothing runs twice."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import BATCHYARD, Endpoint, is_running, until
from gates import Gate, no_traceback, refused, stays

import prestarted

SIZE = ("--cpus", "4", "--memory", "4GiB")
Start = Callable[..., Endpoint]


@pytest.fixture
def gate(tmp_path: Path) -> Any:
    it = Gate(tmp_path / "gate")
    yield it
    it.close()


def begin(start: Start) -> Endpoint:
    endpoint = start(*SIZE)
    endpoint.queue("queue", endpoint.environment("cpu"))
    return endpoint


def again(start: Start, endpoint: Endpoint, signum: int = signal.SIGKILL, *size: str) -> Endpoint:
    """Ends the endpoint and starts another in its place."""
    endpoint.stop(signum)
    return start(*(size or SIZE))


def noting(folder: Path, group_size: int) -> tuple[str, ...]:
    """A command that notes its start and its end, and that it is not the only one of its id
    where that is so. The children go on in groups, as soon as there is a file `go-<group>`."""
    return (
        "sh",
        "-c",
        f"""
        cd '{folder}'; me=$AWS_BATCH_JOB_ARRAY_INDEX
        exec 9>> $me.lock; flock -n 9 || {{ echo $me >> twice; exit 9; }}
        echo $me >> started; until test -e go-$((me / {group_size})); do sleep 0.1; done
        sleep 0.1; echo $me >> ended
        """,
    )


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


@pytest.mark.slow
def test_an_array_outlives_three_kills(start: Start, tmp_path: Path) -> None:
    """The array finishes, no child is lost, none runs twice at once, and what had ended does not
    run again."""
    notes = tmp_path / "notes"
    notes.mkdir()
    endpoint = begin(start)
    job_id = endpoint.run(*noting(notes, 15), arrayProperties={"size": 60})
    dependent = endpoint.run("true", dependsOn=[{"jobId": job_id}])
    #: child that is known to have succeeded -> how often it had been started by then
    seen_attempts: dict[str, int] = {}
    for number in range(1, 4):
        (notes / f"go-{number - 1}").touch()
        # What the endpoint has told of is on disk.
        listed = until(
            lambda endpoint=endpoint: endpoint.batch.list_jobs(
                arrayJobId=job_id, jobStatus="SUCCEEDED"
            )["jobSummaryList"],
            lambda children, number=number: len(children) >= 12 * number,
        )
        started = Counter(lines(notes / "started"))
        for child in listed:
            index = str(child["arrayProperties"]["index"])
            seen_attempts.setdefault(index, started[index])
        endpoint = again(start, endpoint)
        assert endpoint.job(job_id)["status"] == "PENDING"
        assert endpoint.job(dependent)["status"] == "PENDING"
    (notes / "go-3").touch()
    parent = endpoint.wait(job_id)
    assert (parent["status"], parent["arrayProperties"]["statusSummary"]["SUCCEEDED"]) == (
        "SUCCEEDED",
        60,
    )
    assert endpoint.wait(dependent)["status"] == "SUCCEEDED"
    assert lines(notes / "twice") == []
    started, ended = Counter(lines(notes / "started")), Counter(lines(notes / "ended"))
    assert set(ended) == {str(index) for index in range(60)}
    assert (
        len(seen_attempts) > 20
        and {index: started[index] for index in seen_attempts} == seen_attempts
    )
    # An attempt that was cut short is no failure of the job's: it is made again under its number.
    attempts = [endpoint.job(f"{job_id}:{index}")["attempts"] for index in range(60)]
    assert {len(child_attempts) for child_attempts in attempts} == {1}
    assert "resuming 2 jobs from the previous start" in endpoint.said.read_text()
    no_traceback(endpoint)


def test_sigterm_ends_it_in_order_and_the_array_goes_on_afterwards(
    start: Start, tmp_path: Path
) -> None:
    """Exit code 0, and nothing is left running; a child that was stopped with it has not failed."""
    notes = tmp_path / "notes"
    notes.mkdir()
    endpoint = begin(start)
    job_id = endpoint.run(*noting(notes, 6), arrayProperties={"size": 6})
    until(lambda: len(lines(notes / "started")), lambda count: count == 4)
    assert endpoint.stop(signal.SIGTERM) == 0
    pids = subprocess.run(
        ["pgrep", "-f", str(notes)], capture_output=True, text=True
    ).stdout.split()
    assert pids == []
    assert lines(notes / "ended") == []
    (notes / "go-0").touch()
    endpoint = start("--cpus", "2", "--memory", "1GiB")  # on a smaller machine
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    assert sorted(lines(notes / "ended")) == [str(index) for index in range(6)]
    assert lines(notes / "twice") == []
    no_traceback(endpoint)


def test_everything_is_as_it_was(start: Start, gate: Gate) -> None:
    """facts, 1.1: what is over stays describable; resources, definitions, tags, logs, order and
    all."""
    endpoint = begin(start)
    policy = endpoint.batch.create_scheduling_policy(
        name="fair",
        fairsharePolicy={"shareDistribution": [{"shareIdentifier": "a*", "weightFactor": 0.5}]},
    )["arn"]
    endpoint.queue("shared", "cpu", priority=7, schedulingPolicyArn=policy, tags={"of": "queue"})
    endpoint.batch.create_consumable_resource(
        consumableResourceName="licence", totalQuantity=3, resourceType="REPLENISHABLE"
    )
    for revision in range(3):
        endpoint.definition("kept", "echo", str(revision), tags={"revision": str(revision)})
    endpoint.batch.deregister_job_definition(jobDefinition="kept:2")
    jobs = [
        endpoint.submit("kept", name=f"job-{number}", tags={"n": str(number)})
        for number in range(5)
    ]
    jobs.append(endpoint.run("sh", "-c", "echo out; exit 3", retryStrategy={"attempts": 2}))
    jobs.append(endpoint.submit("kept", "shared", shareIdentifier="a1"))
    array = endpoint.run("sh", "-c", "exit $AWS_BATCH_JOB_ARRAY_INDEX", arrayProperties={"size": 2})
    doomed = endpoint.run("true", dependsOn=[{"jobId": array}])
    jobs += [array, f"{array}:0", f"{array}:1", doomed]
    for job_id in jobs:
        endpoint.wait(job_id)
    held = endpoint.run(*gate.shell())
    endpoint.wait(held, "RUNNING")
    stopped = endpoint.run("true", dependsOn=[{"jobId": held}])
    endpoint.batch.terminate_job(jobId=stopped, reason="no need")
    jobs.append(stopped)
    arn = endpoint.job(jobs[0])["jobArn"]
    endpoint.batch.tag_resource(resourceArn=arn, tags={"late": "tag"})

    def look(endpoint: Endpoint) -> dict[str, Any]:
        batch = endpoint.batch
        jobs_detail = batch.describe_jobs(jobs=jobs)["jobs"]
        for job in jobs_detail:
            job.get("arrayProperties", {}).pop("statusSummaryLastUpdatedAt", None)
        names = [job["jobId"] for job in jobs_detail if "logStreamName" in job["container"]]
        definitions = batch.describe_job_definitions(jobDefinitionName="kept")["jobDefinitions"]
        environments = batch.describe_compute_environments()["computeEnvironments"]
        for environment in environments:
            del environment["computeResources"]["desiredvCpus"]  # instances end with the endpoint
        return {
            "jobs": jobs_detail,
            "failed": batch.list_jobs(jobQueue="queue", jobStatus="FAILED")["jobSummaryList"],
            "succeeded": batch.list_jobs(jobQueue="queue", jobStatus="SUCCEEDED")["jobSummaryList"],
            "newest first": batch.list_jobs(
                jobQueue="queue", filters=[{"name": "JOB_NAME", "values": ["job-*"]}]
            )["jobSummaryList"],
            "queues": sorted(batch.describe_job_queues()["jobQueues"], key=str),
            "environments": environments,
            "definitions": definitions,
            "policies": batch.describe_scheduling_policies(arns=[policy])["schedulingPolicies"],
            "consumable": batch.describe_consumable_resource(consumableResource="licence")[
                "availableQuantity"
            ],
            "tags": batch.list_tags_for_resource(resourceArn=arn)["tags"],
            "logs": [endpoint.output(job_id) for job_id in names],
        }

    state_before = look(endpoint)
    assert [job["jobName"] for job in state_before["newest first"]] == [
        f"job-{n}" for n in reversed(range(5))
    ]
    assert (
        state_before["tags"] == {"revision": "2", "n": "0", "late": "tag"}
        and len(state_before["logs"]) > 7
    )
    for signum in (signal.SIGKILL, signal.SIGTERM):
        endpoint = again(start, endpoint, signum)
        state_after = look(endpoint)
        for part in state_before:
            assert state_after[part] == state_before[part], part
        refused(lambda endpoint=endpoint: endpoint.submit("kept:2"))
        assert (
            endpoint.definition("kept", "true", tags={})
            == f"kept:{4 if signum == signal.SIGKILL else 5}"
        )
        state_before = look(endpoint)
    endpoint.wait(held, "RUNNING")
    gate.open()
    assert endpoint.wait(held)["status"] == "SUCCEEDED"
    no_traceback(endpoint)


def test_what_was_asked_to_end_ends_after_a_kill(start: Start, gate: Gate, tmp_path: Path) -> None:
    """A cancel that waits for dependencies goes on waiting; a terminate that was under way is
    done."""
    endpoint = begin(start)
    first = endpoint.run(*gate.shell())
    cancelled = endpoint.run("touch", str(tmp_path / "ran"), dependsOn=[{"jobId": first}])
    child = endpoint.run("true", arrayProperties={"size": 2}, dependsOn=[{"jobId": first}])
    endpoint.batch.cancel_job(jobId=cancelled, reason="not that one")
    endpoint.batch.cancel_job(jobId=f"{child}:1", reason="nor this")
    deaf = endpoint.run(
        "sh", "-c", f"trap '' TERM; echo up >> {tmp_path}/up; while :; do sleep 0.1; done"
    )
    until(lambda: lines(tmp_path / "up"), bool)
    endpoint.batch.terminate_job(jobId=deaf, reason="stop at once")
    assert endpoint.job(deaf)["status"] == "RUNNING"
    endpoint = again(start, endpoint)
    job = endpoint.wait(deaf)
    assert (job["status"], job["statusReason"], job["isTerminated"]) == (
        "FAILED",
        "stop at once",
        True,
    )
    assert lines(tmp_path / "up") == ["up"]  # it was not started again for that
    stays(lambda: endpoint.job(cancelled)["status"], "PENDING", 0.3)
    assert endpoint.job(cancelled)["isCancelled"]
    endpoint.wait(first, "RUNNING")
    gate.open(2)  # one line may have gone to the first process
    assert endpoint.wait(first)["status"] == "SUCCEEDED"
    job = endpoint.wait(cancelled)
    assert (job["status"], job["statusReason"]) == ("FAILED", "not that one")
    assert not (tmp_path / "ran").exists()
    endpoint.wait(child)
    assert [endpoint.job(f"{child}:{index}")["status"] for index in (0, 1)] == [
        "SUCCEEDED",
        "FAILED",
    ]
    assert endpoint.job(f"{child}:1")["statusReason"] == "nor this"
    # And once more: what has been carried out is not carried out again.
    endpoint = again(start, endpoint)
    assert endpoint.job(deaf)["statusReason"] == "stop at once"
    assert endpoint.job(cancelled)["statusReason"] == "not that one"
    no_traceback(endpoint)


def test_a_retried_job_goes_on_with_the_attempt_it_was_in(start: Start, gate: Gate) -> None:
    """facts, 1.3: attempts that are over count, also across a restart; the one that was cut
    short is made again."""
    script = (
        "echo attempt $AWS_BATCH_JOB_ATTEMPT; "
        f"test $AWS_BATCH_JOB_ATTEMPT = 2 && {gate.shell()[2]} exit 1"
    )
    endpoint = begin(start)
    job_id = endpoint.run("sh", "-c", script, retryStrategy={"attempts": 3})
    until(
        lambda: endpoint.job(job_id),
        lambda job: job["status"] == "RUNNING" and len(job["attempts"]) == 1,
    )
    attempts_before = endpoint.job(job_id)["attempts"]
    endpoint = again(start, endpoint)
    endpoint.wait(job_id, "RUNNING")
    assert endpoint.job(job_id)["attempts"] == attempts_before
    gate.open(2)
    job = endpoint.wait(job_id)
    assert (job["status"], len(job["attempts"])) == ("FAILED", 3)
    streams = [attempt["container"]["logStreamName"] for attempt in job["attempts"]]
    answers = [
        endpoint.logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=name)
        for name in streams
    ]
    outputs = [[event["message"] for event in answer["events"]] for answer in answers]
    assert (
        outputs[0] == ["attempt 1"]
        and set(outputs[1]) == {"attempt 2"}
        and outputs[2] == ["attempt 3"]
    )
    no_traceback(endpoint)


def test_a_job_is_kept_from_the_moment_its_submission_is_answered(start: Start) -> None:
    """Killed right after the answer: it is there, and it runs."""
    endpoint = begin(start)
    definition = endpoint.definition("kept", "echo", "here I am")
    job_id = endpoint.submit(definition, arrayProperties={"size": 2})
    endpoint = again(start, endpoint)
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    assert endpoint.output(f"{job_id}:1") == ["here I am"]


def test_queues_keep_their_state(start: Start, gate: Gate) -> None:
    """facts, 5.4 and 7: a DISABLED queue finishes what it has and takes nothing new; a deleted
    one stays deleted."""
    endpoint = begin(start)
    job_id = endpoint.run(*gate.shell())
    endpoint.wait(job_id, "RUNNING")
    endpoint.batch.update_job_queue(jobQueue="queue", state="DISABLED")
    endpoint.queue("gone", "cpu")
    lost = endpoint.run("sleep", "60", queue="gone")
    endpoint.batch.update_job_queue(jobQueue="gone", state="DISABLED")
    endpoint.batch.delete_job_queue(jobQueue="gone")
    endpoint = again(start, endpoint)
    refused(lambda: endpoint.run("true"))
    refused(lambda: endpoint.run("true", queue="gone"))
    assert endpoint.wait(lost)["statusReason"] == "JobQueue deleted"
    endpoint.wait(job_id, "RUNNING")
    gate.open(2)
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    no_traceback(endpoint)


def test_two_endpoints_in_one_home_are_refused(start: Start, tmp_path: Path) -> None:
    """Exit code 3, a sentence, and the first one goes on."""
    endpoint = begin(start)
    command = [str(BATCHYARD), "emulate", "--port", "0", "--home", str(tmp_path / "home")]
    done = prestarted.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (3, "")
    assert "another endpoint serves from" in done.stderr and "--home" in done.stderr
    assert endpoint.wait(endpoint.run("true"))["status"] == "SUCCEEDED"


def test_a_port_in_use_and_a_home_that_is_none(start: Start, tmp_path: Path) -> None:
    endpoint = begin(start)
    port = endpoint.url.rpartition(":")[2]
    (tmp_path / "file").touch()
    for words, code, text in (
        (
            ("--port", port, "--home", str(tmp_path / "other")),
            3,
            f"could not listen on 127.0.0.1:{port}",
        ),
        (("--port", "0", "--home", str(tmp_path / "file")), 2, str(tmp_path / "file")),
    ):
        done = prestarted.run(
            [str(BATCHYARD), "emulate", *words], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == code and text in done.stderr and "Traceback" not in done.stderr


def test_tasks_of_ecs_end_with_the_endpoint(start: Callable[..., Endpoint], tmp_path: Path) -> None:
    first = start()
    ecs = first.client("ecs")
    ecs.create_cluster()
    ecs.register_container_instance()
    mark = tmp_path / "runs"
    command = ["sh", "-c", f"echo $$ > {mark}; sleep 600"]
    container = {"name": "main", "image": "busybox", "memory": 64, "command": command}
    ecs.register_task_definition(family="left", containerDefinitions=[container])
    ecs.run_task(taskDefinition="left")
    pid = int(until(lambda: mark.read_text() if mark.exists() else "", lambda text: "\n" in text))
    first.stop(signal.SIGKILL)
    second = start()
    assert "resuming" not in second.said.read_text()
    until(lambda: is_running(pid), lambda is_there: not is_there)
    second.client("ecs").create_cluster()
    assert second.client("ecs").list_tasks()["taskArns"] == []
