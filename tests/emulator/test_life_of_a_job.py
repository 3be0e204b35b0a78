"""The life of a job: its states, what DescribeJobs and ListJobs tell of it, its timeout, its
reasons."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from emulator_endpoint import TERMINAL, Endpoint, until
from gates import Gate, no_traceback, one_at_a_time, refused, stays

STATES = ["SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING", "SUCCEEDED", "FAILED"]
EXITED = "Essential container in task exited"


class Timed(NamedTuple):
    """Jobs with the shortest timeout that there is and one that will not end, begun with the
    module and looked at in its last tests."""

    #: 0 ends at once when it is asked to, 1 first says so, with exit code 0
    array: str
    #: its first attempt takes 31 s and fails, its second one takes as long
    twice: str
    #: was terminated, and does not listen to SIGTERM
    deaf: str


@pytest.fixture(scope="module", autouse=True)
def timed(endpoint: Endpoint) -> Timed:
    script = """
        if [ $AWS_BATCH_JOB_ARRAY_INDEX = 1 ]; then trap 'echo asked to end; exit 0' TERM; fi
        while :; do sleep 1; done
    """
    strategy = {"attempts": 3, "evaluateOnExit": [{"action": "RETRY", "onReason": "*"}]}
    timeout = {"attemptDurationSeconds": 60}
    array = endpoint.run(
        "sh",
        "-c",
        script,
        arrayProperties={"size": 2},
        retryStrategy=strategy,
        timeout=timeout,
        name="timed-array",
    )
    script = "sleep 31; test $AWS_BATCH_JOB_ATTEMPT = 2"
    twice = endpoint.run(
        "sh", "-c", script, retryStrategy={"attempts": 2}, timeout=timeout, name="timed-twice"
    )
    script = "trap 'echo heard' TERM; echo ready; while :; do sleep 1; done"
    deaf = endpoint.run("sh", "-c", script, name="deaf")
    endpoint.wait(deaf, "RUNNING")
    until(lambda: endpoint.output(deaf), lambda lines: lines == ["ready"])
    endpoint.batch.terminate_job(jobId=deaf, reason="the deaf one")
    return Timed(array, twice, deaf)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    it = Gate(tmp_path / "gate")
    yield it
    it.close()


def ask(
    endpoint: Endpoint, method: str, path: str, body: bytes | str = b"", **headers: str
) -> tuple[int, Any, Any]:
    """As anybody can, without boto3 and unsigned."""
    connection = http.client.HTTPConnection(endpoint.url.removeprefix("http://"), timeout=300)
    connection.request(
        method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content), answer.headers


# -- states ---------------------------------------------------------------------------------------


def test_a_job_goes_through_the_states_in_their_order(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.1: SUBMITTED -> PENDING -> RUNNABLE -> STARTING -> RUNNING -> SUCCEEDED, none
    twice, none backwards."""
    job_id = endpoint.run(*gate.shell())
    seen = []
    until(
        lambda: endpoint.job(job_id)["status"],
        lambda state: seen.append(state) or state == "RUNNING",
    )
    gate.open()
    until(
        lambda: endpoint.job(job_id)["status"],
        lambda state: seen.append(state) or state in TERMINAL,
    )
    assert seen[-1] == "SUCCEEDED" and "RUNNING" in seen
    assert seen == sorted(seen, key=STATES.index)


def test_the_states_are_these_seven(endpoint: Endpoint) -> None:
    """facts, 1.1: exactly these are JobStatus."""
    for state in STATES:
        endpoint.batch.list_jobs(jobQueue="queue", jobStatus=state)
    for state in ("STOPPED", "running", "SCHEDULED"):
        assert "jobStatus should be one of " + ", ".join(STATES) in refused(
            lambda state=state: endpoint.batch.list_jobs(jobQueue="queue", jobStatus=state)
        )


def test_a_job_whose_command_fails_has_failed(endpoint: Endpoint) -> None:
    """facts, 1.1: RUNNING -> FAILED, where the exit code is not 0."""
    job = endpoint.wait(endpoint.run("sh", "-c", "exit 3"))
    assert (job["status"], job["container"]["exitCode"]) == ("FAILED", 3)


def test_a_job_waits_for_capacity_as_runnable_for_as_long_as_it_takes(
    endpoint: Endpoint, gate: Gate
) -> None:
    """facts, 1.1: RUNNABLE has no time limit; STARTING and RUNNING follow when there is room."""
    queue = one_at_a_time(endpoint, "narrow")
    first = endpoint.run(*gate.shell(), queue=queue)
    second = endpoint.run("true", queue=queue)
    endpoint.wait(first, "RUNNING")
    stays(lambda: endpoint.job(second)["status"], "RUNNABLE")
    waiting = endpoint.job(second)
    assert waiting.get("startedAt") is None and "taskArn" not in waiting["container"]
    gate.open()
    assert [endpoint.wait(job_id)["status"] for job_id in (first, second)] == [
        "SUCCEEDED",
        "SUCCEEDED",
    ]


def test_a_retried_job_goes_to_the_front_of_its_queue(endpoint: Endpoint, tmp_path: Path) -> None:
    """facts, 1.1: the second attempt comes before the jobs that were submitted meanwhile."""
    queue = one_at_a_time(endpoint, "in-front")
    note = f"echo $AWS_BATCH_JOB_ID $AWS_BATCH_JOB_ATTEMPT >> {tmp_path}/order"
    first = endpoint.run(
        "sh", "-c", f"{note}; sleep 0.5; exit 1", queue=queue, retryStrategy={"attempts": 2}
    )
    second = endpoint.run("sh", "-c", note, queue=queue)
    endpoint.wait(second)
    assert (tmp_path / "order").read_text().splitlines() == [
        f"{first} 1",
        f"{first} 2",
        f"{second} 1",
    ]


def test_where_a_job_runs_and_logs_is_known_while_it_runs(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.1: taskArn from STARTING on; the stream <definition>/default/<task id> from
    RUNNING on."""
    definition = endpoint.definition("where-it-runs", *gate.shell())
    job_id = endpoint.submit(definition)
    running = endpoint.wait(job_id, "RUNNING")["container"]
    task = running["taskArn"].rpartition("/")[2]
    assert re.fullmatch(
        r"arn:aws:ecs:us-east-1:\d{12}:task/AWSBatch-cpu-[0-9a-f-]{36}/[0-9a-f]{32}",
        running["taskArn"],
    )
    assert running["logStreamName"] == f"where-it-runs/default/{task}"
    assert ":container-instance/AWSBatch-cpu-" in running["containerInstanceArn"]
    gate.open()
    ended = endpoint.wait(job_id)["container"]
    assert {key: ended[key] for key in ("taskArn", "logStreamName", "containerInstanceArn")} == {
        key: running[key] for key in ("taskArn", "logStreamName", "containerInstanceArn")
    }


def test_the_stream_begins_with_128_characters_of_a_definition(endpoint: Endpoint) -> None:
    """facts, 1.1: of the name the first 200 characters, which none has more than 128 of (facts,
    5.4)."""
    job = endpoint.wait(endpoint.submit(endpoint.definition("n" * 128, "true")))
    assert job["container"]["logStreamName"].startswith("n" * 128 + "/default/")


def test_an_ended_attempt_stays_in_the_cluster_that_it_ran_in(
    endpoint: Endpoint, gate: Gate
) -> None:
    """facts, 1.2: taskArn is that of the task; a queue's second environment has a cluster of its
    own."""
    environments = [
        endpoint.environment("first-of-two", vcpus=1),
        endpoint.environment("second-of-two", vcpus=1),
    ]
    queue = endpoint.queue("on-two", *environments)
    jobs = [endpoint.run(*gate.shell(), queue=queue) for _ in range(2)]
    running = [endpoint.wait(job_id, "RUNNING")["container"]["taskArn"] for job_id in jobs]
    assert "AWSBatch-second-of-two-" in running[1]
    gate.open(2)
    assert [endpoint.wait(job_id)["container"]["taskArn"] for job_id in jobs] == running


# -- DescribeJobs ---------------------------------------------------------------------------------


def test_describe_jobs_tells_what_aws_tells(endpoint: Endpoint) -> None:
    """facts, 1.2: the members that JobDetail requires, and those that say how it was submitted."""
    submitted_s = time.time()
    definition = endpoint.definition(
        "told", "echo", "Ref::what", parameters={"what": "x"}, tags={"a": "1"}
    )
    job_id = endpoint.submit(
        definition,
        name="told-job",
        parameters={"what": "y"},
        timeout={"attemptDurationSeconds": 90},
        retryStrategy={"attempts": 2},
        tags={"b": "2"},
    )
    job = endpoint.wait(job_id)
    assert {"jobName", "jobId", "jobQueue", "status", "startedAt", "jobDefinition"} <= set(job)
    assert job["jobArn"] == f"arn:aws:batch:us-east-1:123456789012:job/{job_id}"
    assert job["jobName"] == "told-job"
    assert job["jobQueue"] == "arn:aws:batch:us-east-1:123456789012:job-queue/queue"
    assert job["jobDefinition"] == "arn:aws:batch:us-east-1:123456789012:job-definition/told:1"
    assert job["parameters"] == {"what": "y"}
    assert job["timeout"] == {"attemptDurationSeconds": 90}
    assert job["retryStrategy"]["attempts"] == 2
    assert job["dependsOn"] == []
    assert job["tags"] == {"a": "1", "b": "2"}
    assert job["platformCapabilities"] == []
    assert (job["isCancelled"], job["isTerminated"]) == (False, False)
    assert job["container"]["command"] == ["echo", "Ref::what"]
    assert not [member for member in job if member.startswith("_")]
    assert (
        submitted_s * 1000 - 1
        <= job["createdAt"]
        <= job["startedAt"]
        <= job["stoppedAt"]
        <= time.time() * 1000
    )


def test_times_are_milliseconds_and_there_from_when_they_are_known(
    endpoint: Endpoint, gate: Gate
) -> None:
    """facts, 1.2: startedAt once RUNNING, stoppedAt once over, all in ms since 1970."""
    held = endpoint.run(*gate.shell())
    waiting = endpoint.job(endpoint.run("true", dependsOn=[{"jobId": held}]))
    assert "startedAt" not in waiting and "stoppedAt" not in waiting
    running = endpoint.wait(held, "RUNNING")
    assert abs(running["startedAt"] / 1000 - time.time()) < 30 and "stoppedAt" not in running
    gate.open()
    ended = endpoint.wait(held)
    assert ended["startedAt"] == running["startedAt"] < ended["stoppedAt"]


def test_only_finished_attempts_are_listed(endpoint: Endpoint) -> None:
    """facts, 1.2: attempts[] has container, startedAt, stoppedAt, statusReason of those that are
    over."""
    script = "test $AWS_BATCH_JOB_ATTEMPT = 1 && exit 4; exec sleep 60"
    job_id = endpoint.run("sh", "-c", script, retryStrategy={"attempts": 2})
    job = until(
        lambda: endpoint.job(job_id), lambda job: job["attempts"] and job["status"] == "RUNNING"
    )
    (attempt,) = job["attempts"]
    assert attempt["container"]["exitCode"] == 4
    assert attempt["statusReason"] == EXITED
    assert attempt["startedAt"] <= attempt["stoppedAt"] <= job["startedAt"]
    assert {"containerInstanceArn", "taskArn", "logStreamName", "networkInterfaces"} <= set(
        attempt["container"]
    )
    assert attempt["container"]["taskArn"] != job["container"]["taskArn"]
    assert "exitCode" not in job["container"]
    endpoint.batch.terminate_job(jobId=job_id, reason="enough")
    job = endpoint.wait(job_id)
    assert [attempt["statusReason"] for attempt in job["attempts"]] == [EXITED, "enough"]
    assert job["container"]["taskArn"] == job["attempts"][1]["container"]["taskArn"]


def test_what_cannot_be_started_has_a_reason_and_no_exit_code(endpoint: Endpoint) -> None:
    """facts, 1.2 and 1.8: exitCode only where something exited; container.reason of at most 255
    characters."""
    for command, part in (
        ("no-such-program", "No such file"),
        ("x" * 300, ""),
        ("/etc/passwd", "Permission denied"),
    ):
        job = endpoint.wait(endpoint.run(command))
        assert (job["status"], job["statusReason"]) == ("FAILED", "Task failed to start")
        assert (
            "exitCode" not in job["container"] and "exitCode" not in job["attempts"][0]["container"]
        )
        assert job["container"]["reason"].startswith("CannotStartContainerError: ")
        assert part in job["container"]["reason"] and len(job["container"]["reason"]) <= 255
        assert job["attempts"][0]["container"]["reason"] == job["container"]["reason"]


def test_what_was_never_started_has_no_start(endpoint: Endpoint) -> None:
    """facts, 1.2: startedAt is the moment from STARTING to RUNNING, and this one never came to
    run."""
    job = endpoint.wait(endpoint.run("no-such-program"))
    assert (
        "startedAt" not in job["attempts"][0]
        and "logStreamName" not in job["attempts"][0]["container"]
    )


def test_a_job_without_a_command_does_not_start(endpoint: Endpoint) -> None:
    """A choice: as a process there is no image whose own command could be run."""
    job = endpoint.wait(endpoint.run())
    assert job["statusReason"] == "Task failed to start"
    assert "--runner docker" in job["container"]["reason"]


def test_unknown_ids_are_left_out(endpoint: Endpoint, timed: Timed) -> None:
    """facts, 1.2: no error; also children that an array does not have, or that are spelt
    otherwise than AWS does."""
    job_id = endpoint.run("true")
    endpoint.wait(job_id)
    unknown = [
        "00000000-0000-0000-0000-000000000000",
        "nonsense",
        "",
        f"{job_id}:0",
        f"{job_id}:",
        ":",
        "a:b:c",
    ]
    unknown += [f"{timed.array}:{index}" for index in ("2", "-1", "00", "x", "٣", "9" * 5000)]
    described_jobs = endpoint.batch.describe_jobs(
        jobs=[*unknown, job_id, f"{timed.array}:1", job_id]
    )["jobs"]
    assert [job["jobId"] for job in described_jobs] == [job_id, f"{timed.array}:1"]


def test_describe_jobs_through_the_aws_command(endpoint: Endpoint) -> None:
    answer = endpoint.aws(
        "batch", "submit-job", "--job-name", "by-cli", "--job-queue", "queue", "--job-definition",
        endpoint.definition("by-cli", "true"),
    )  # fmt: skip
    assert set(answer) == {"jobArn", "jobName", "jobId"}
    endpoint.wait(answer["jobId"])
    (job,) = endpoint.aws("batch", "describe-jobs", "--jobs", answer["jobId"])["jobs"]
    assert (job["status"], job["statusReason"]) == ("SUCCEEDED", EXITED)


# -- ListJobs -------------------------------------------------------------------------------------


def test_a_summary_tells_what_aws_tells(endpoint: Endpoint, gate: Gate) -> None:
    """facts, 1.2: members of JobSummary."""
    queue = endpoint.queue("summaries", "cpu")
    job_id = endpoint.run(*gate.shell("exit 5"), queue=queue, name="summed-up")
    endpoint.wait(job_id, "RUNNING")
    (running,) = endpoint.batch.list_jobs(jobQueue=queue)["jobSummaryList"]
    assert (running["jobId"], running["jobName"], running["status"]) == (
        job_id,
        "summed-up",
        "RUNNING",
    )
    assert running["jobArn"].endswith(f":job/{job_id}") and "/any:" in running["jobDefinition"]
    assert running["createdAt"] <= running["startedAt"] and "stoppedAt" not in running
    gate.open()
    endpoint.wait(job_id)
    (ended,) = endpoint.batch.list_jobs(jobQueue=queue, jobStatus="FAILED")["jobSummaryList"]
    assert ended["container"] == {"exitCode": 5}
    assert (ended["statusReason"], ended["startedAt"]) == (EXITED, running["startedAt"])
    assert ended["stoppedAt"] >= ended["startedAt"]
    assert endpoint.batch.list_jobs(jobQueue=queue)["jobSummaryList"] == []


# -- the protocol ---------------------------------------------------------------------------------


def test_operations_are_posts_to_their_names_in_lower_case(endpoint: Endpoint) -> None:
    """facts, 1.2: POST /v1/<operation>, and no other method."""
    status, answer, headers = ask(endpoint, "POST", "/v1/describejobs", json.dumps({"jobs": ["x"]}))
    assert (status, answer) == (200, {"jobs": []})
    assert re.fullmatch(r"[0-9a-f-]{36}", headers["x-amzn-RequestId"])
    job_id = endpoint.run("true")
    for operation in ("canceljob", "terminatejob"):
        assert ask(
            endpoint, "POST", f"/v1/{operation}", json.dumps({"jobId": job_id, "reason": "x"})
        )[:2] == (200, {})


SIGNED = (
    "AWS4-HMAC-SHA256 Credential=batchyard/20260101/{}/batch/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("GET", "/v1/describejobs", "", "no operation GET /v1/describejobs"),
        ("POST", "/v1/nosuch", "{}", "no operation POST /v1/nosuch"),
        ("POST", "/v1/submitservicejob", "{}", "SubmitServiceJob is not an operation of"),
        ("POST", "/v1/describejobs", "{", "not a JSON object"),
        ("POST", "/v1/describejobs", "[]", "not a JSON object"),
        ("POST", "/v1/describejobs", '{"jobs": ["\\ud800"]}', "jobs[0] should be a string"),
        ("POST", "/v1/describejobs", "[" * 100_000, "not a JSON object"),
        ("POST", "/v1/describejobs", '{"jobs": ' + "9" * 5000 + "}", "not a JSON object"),
        ("POST", "/v1/describejobs", b'{"jobs": ["\xff"]}', "not a JSON object"),
        ("POST", "/v1/describejobs", "{}", "jobs must not be null"),
        ("POST", "/v1/describejobs", '{"jobs": null}', "jobs must not be null"),
        ("POST", "/v1/describejobs", '{"jobs": []}', "jobs must not be empty"),
        ("POST", "/v1/describejobs", '{"jobs": "x"}', "jobs should be a list"),
        ("POST", "/v1/describejobs", '{"jobs": [1]}', "jobs[0] should be a string"),
        ("POST", "/v1/listjobs", "{}", "exactly one of jobQueue"),
        ("POST", "/v1/listjobs", '{"jobQueue": "queue", "nextToken": "x"}', "nextToken"),
        (
            "POST",
            "/v1/listjobs",
            '{"jobQueue": "queue", "maxResults": 0}',
            "maxResults should be between 1 and 1000",
        ),
        (
            "POST",
            "/v1/listjobs",
            '{"jobQueue": "queue", "filters": [null]}',
            "filters[0] should be an object",
        ),
        (
            "POST",
            "/v1/listjobs",
            '{"jobQueue": "queue", "filters": [{"values": ["1"]}]}',
            "name must be one of",
        ),
        (
            "POST",
            "/v1/listjobs",
            json.dumps(
                {
                    "jobQueue": "queue",
                    "filters": [{"name": "AFTER_CREATED_AT", "values": ["9" * 5000]}],
                }
            ),
            "a time in milliseconds",
        ),
        ("POST", "/v1/canceljob", '{"jobId": "x"}', "reason must not be null"),
        (
            "POST",
            "/v1/submitjob",
            '{"jobName": "x", "jobQueue": "queue"}',
            "jobDefinition must not be null",
        ),
    ],
)
def test_bad_requests_get_a_client_exception(
    endpoint: Endpoint, method: str, path: str, body: str | bytes, message: str
) -> None:
    """facts, 1.2: ClientException, 400."""
    status, answer, headers = ask(
        endpoint, method, path, body, Authorization=SIGNED.format("us-east-1")
    )
    assert (status, headers["x-amzn-ErrorType"]) == (400, "ClientException")
    assert message in answer["message"]


def test_a_request_whose_length_is_nonsense_is_refused(endpoint: Endpoint) -> None:
    for length in ("-5", "many"):
        status, answer, _ = ask(endpoint, "POST", "/v1/describejobs", Content_Length=length)
        assert status == 400 and "Content-Length" in answer["message"]


# -- reasons --------------------------------------------------------------------------------------


def test_the_reason_of_an_end_is_the_same_for_success_and_failure(endpoint: Endpoint) -> None:
    """facts, 1.8: `Essential container in task exited`, both for exit 0 and for any other."""
    for code, state in ((0, "SUCCEEDED"), (1, "FAILED")):
        job = endpoint.wait(endpoint.run("sh", "-c", f"exit {code}"))
        assert (job["status"], job["statusReason"], job["container"]["exitCode"]) == (
            state,
            EXITED,
            code,
        )


@pytest.mark.parametrize(("signal_flag", "code"), [("-SEGV", 139), ("-TERM", 143), ("-KILL", 137)])
def test_the_exit_codes_of_signals(endpoint: Endpoint, signal_flag: str, code: int) -> None:
    """facts, 1.8: 137, 139, 143."""
    job = endpoint.wait(endpoint.run("sh", "-c", f"kill {signal_flag} $$"))
    assert (job["status"], job["container"]["exitCode"]) == ("FAILED", code)


def test_more_memory_than_asked_for(endpoint: Endpoint) -> None:
    """facts, 1.8 and 5.3: killed, exit code 137, `OutOfMemoryError: Container killed due to
    memory usage`."""
    script = "import time; held = bytearray(200 << 20); time.sleep(60)"
    definition = endpoint.definition("greedy", "python3", "-c", script, memory_mib=100)
    job = endpoint.wait(endpoint.submit(definition))
    assert job["container"]["exitCode"] == 137
    assert job["container"]["reason"] == "OutOfMemoryError: Container killed due to memory usage"


def test_overrides_of_more_than_8192_characters_fail_when_dispatched(endpoint: Endpoint) -> None:
    """facts, 1.8 and 5.4: accepted, then FAILED with AWS's sentence."""
    definition = endpoint.definition("long-overrides", "true")
    overrides = {"environment": [{"name": "LONG", "value": "x" * 8200}]}
    job = endpoint.wait(endpoint.submit(definition, containerOverrides=overrides))
    assert job["statusReason"] == "Container Overrides length must be at most 8192"
    assert "exitCode" not in job["container"]


def test_a_queue_deleted_under_its_jobs(endpoint: Endpoint) -> None:
    """facts, 1.8: `JobQueue deleted`."""
    queue = one_at_a_time(endpoint, "deleted")
    jobs = [endpoint.run("sleep", "60", queue=queue) for _ in range(2)]
    endpoint.wait(jobs[0], "RUNNING")
    endpoint.batch.update_job_queue(jobQueue=queue, state="DISABLED")
    endpoint.batch.delete_job_queue(jobQueue=queue)
    for job_id in jobs:
        job = endpoint.wait(job_id)
        assert (job["status"], job["statusReason"]) == ("FAILED", "JobQueue deleted")


def test_the_head_of_a_queue_says_why_it_is_stuck(endpoint: Endpoint) -> None:
    """facts, 1.8: `MISCONFIGURATION:...` while RUNNABLE, on the head alone."""
    queue = endpoint.queue("stuck", "cpu")
    definition = endpoint.definition("too-large", "true", vcpus=300)
    head, behind = (endpoint.submit(definition, queue) for _ in range(2))
    job = until(lambda: endpoint.job(head), lambda job: "statusReason" in job)
    assert job["status"] == "RUNNABLE" and job["statusReason"].startswith("MISCONFIGURATION:")
    assert "statusReason" not in endpoint.job(behind)
    for job_id in (head, behind):
        endpoint.batch.cancel_job(jobId=job_id, reason="too large")


# -- timeouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [59, 0, -1])
def test_a_timeout_has_at_least_60_seconds(endpoint: Endpoint, seconds: int) -> None:
    """facts, 1.5: at least 60, in definitions and at SubmitJob."""
    timeout = {"attemptDurationSeconds": seconds}
    assert "at least 60" in refused(lambda: endpoint.run("true", timeout=timeout))
    assert "at least 60" in refused(lambda: endpoint.definition("short", "true", timeout=timeout))


def test_a_timeout_has_no_maximum_and_there_is_none_by_default(endpoint: Endpoint) -> None:
    """facts, 1.5."""
    assert "timeout" not in endpoint.job(endpoint.run("true"))
    job = endpoint.wait(endpoint.run("true", timeout={"attemptDurationSeconds": 2**31 - 1}))
    assert (job["status"], job["timeout"]) == ("SUCCEEDED", {"attemptDurationSeconds": 2**31 - 1})


def test_a_timeout_at_submit_replaces_the_definitions(endpoint: Endpoint) -> None:
    """facts, 1.3: no merge."""
    definition = endpoint.definition("timed", "true", timeout={"attemptDurationSeconds": 100})
    assert endpoint.job(endpoint.submit(definition))["timeout"] == {"attemptDurationSeconds": 100}
    job = endpoint.job(endpoint.submit(definition, timeout={"attemptDurationSeconds": 200}))
    assert job["timeout"] == {"attemptDurationSeconds": 200}


@pytest.mark.slow
def test_what_does_not_listen_is_killed_after_30_seconds(endpoint: Endpoint, timed: Timed) -> None:
    """facts, 1.5 and 1.6: SIGTERM, 30 s, SIGKILL, which is exit code 137; so it is with
    TerminateJob and timeouts."""
    job = endpoint.wait(timed.deaf)
    assert (job["status"], job["statusReason"], job["container"]["exitCode"]) == (
        "FAILED",
        "the deaf one",
        137,
    )
    assert (job["isCancelled"], job["isTerminated"]) == (False, True)
    assert 30_000 <= job["stoppedAt"] - job["startedAt"] < 90_000
    assert "heard" in endpoint.output(timed.deaf)


@pytest.mark.slow
def test_at_its_timeout_a_child_is_ended_and_not_tried_again(
    endpoint: Endpoint, timed: Timed
) -> None:
    """facts, 1.5 and 1.3: FAILED, never retried, whatever the strategy says; SIGTERM first; each
    child by itself."""
    parent = endpoint.wait(timed.array)
    assert (parent["status"], parent["statusReason"]) == ("FAILED", "Array Child Job failed")
    for index, code in ((0, 143), (1, 0)):
        child = endpoint.job(f"{timed.array}:{index}")
        assert (child["status"], child["statusReason"]) == (
            "FAILED",
            "Job attempt duration exceeded timeout",
        )
        assert [attempt["container"]["exitCode"] for attempt in child["attempts"]] == [code]
        # By two clocks, that of the day and one that nobody sets; who is not killed has ended
        # before another 30 s.
        assert 59_900 <= child["stoppedAt"] - child["startedAt"] < 90_000
        assert (child["isCancelled"], child["isTerminated"]) == (False, False)
    assert "asked to end" in endpoint.output(f"{timed.array}:1")


@pytest.mark.slow
def test_each_attempt_has_the_whole_time(endpoint: Endpoint, timed: Timed) -> None:
    """facts, 1.5: the clock starts again with each attempt."""
    job = endpoint.wait(timed.twice)
    assert job["status"] == "SUCCEEDED"
    assert [attempt["container"]["exitCode"] for attempt in job["attempts"]] == [1, 0]
    assert job["stoppedAt"] - job["attempts"][0]["startedAt"] > 60_000


def test_nothing_of_this_has_shaken_the_endpoint(endpoint: Endpoint) -> None:
    no_traceback(endpoint)
