"""A pretended reclaim: the notice at the job's metadata address, then the end of its host, and
what follows."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from emulator_endpoint import BATCHYARD, Endpoint, until
from gates import Gate, no_traceback

import prestarted

#: asks for a token first, as version 2 of the service wants it, and then for the notice until there
#: is one
WATCH = """
import os, sys, time, urllib.error, urllib.request
base = os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"]
def ask(path, method="GET", **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(base + path, method=method, headers=headers)
    return urllib.request.urlopen(request).read().decode()
token = ask("/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60")
print("instance", ask("/latest/meta-data/instance-id", X_aws_ec2_metadata_token=token), flush=True)
while True:
    try:
        path = "/latest/meta-data/spot/instance-action"
        print("notice", ask(path, X_aws_ec2_metadata_token=token), flush=True)
        break
    except urllib.error.HTTPError as exc:
        assert exc.code == 404
    time.sleep(0.05)
time.sleep(600)
"""


def reclaim(endpoint: Endpoint, job_id: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return prestarted.run(
        [BATCHYARD, "emulate", "reclaim", job_id, *arguments],
        env=endpoint.environ,
        capture_output=True,
        text=True,
        timeout=300,
    )


def reclaimed(endpoint: Endpoint, job_id: str, notice: str = "0") -> Any:
    done = reclaim(endpoint, job_id, "--notice", notice)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_first_the_notice_then_the_end(endpoint: Endpoint) -> None:
    """facts, 1.8 and 1.2: `Host EC2 (instance i-...) terminated.`, and no exit code, as no
    container exited."""
    job_id = endpoint.run("python3", "-c", WATCH)
    endpoint.wait(job_id, "RUNNING")
    (line,) = until(lambda: endpoint.output(job_id), bool)
    instance = line.removeprefix("instance ")
    asked_ms = time.time() * 1000
    answer = reclaimed(endpoint, job_id, "4.5")
    assert answer == {"jobId": job_id, "instanceId": instance, "notice": 4.5}
    (_, notice) = until(lambda: endpoint.output(job_id), lambda lines: len(lines) == 2)
    announced = json.loads(notice.removeprefix("notice "))
    assert announced["action"] == "terminate"
    at = datetime.strptime(announced["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    # The time of the notice has whole seconds.
    assert asked_ms + 3_500 <= at.timestamp() * 1000
    job = endpoint.wait(job_id)
    assert asked_ms + 4_499 <= job["stoppedAt"]
    assert (job["status"], job["statusReason"]) == (
        "FAILED",
        f"Host EC2 (instance {instance}) terminated.",
    )
    assert "exitCode" not in job["container"] and "exitCode" not in job["attempts"][0]["container"]
    assert "reason" not in job["container"]
    assert job["attempts"][0]["statusReason"] == job["statusReason"]
    assert (job["isCancelled"], job["isTerminated"]) == (False, False)


def test_a_lost_host_is_retried_by_default(endpoint: Endpoint) -> None:
    """facts, 1.3: host failure, spot too, is a trigger; the next attempt is on another host."""
    script = "test $AWS_BATCH_JOB_ATTEMPT = 2 || sleep 600"
    job_id = endpoint.run("sh", "-c", script, retryStrategy={"attempts": 2})
    endpoint.wait(job_id, "RUNNING")
    reclaimed(endpoint, job_id)
    job = endpoint.wait(job_id)
    assert job["status"] == "SUCCEEDED"
    lost, good = job["attempts"]
    assert (
        lost["statusReason"].startswith("Host EC2 (instance i-")
        and "exitCode" not in lost["container"]
    )
    assert good["container"]["exitCode"] == 0
    assert lost["container"]["containerInstanceArn"] != good["container"]["containerInstanceArn"]


@pytest.mark.parametrize(
    ("rules", "state"),
    [
        (
            [
                {"action": "RETRY", "onStatusReason": "Host EC2*"},
                {"action": "EXIT", "onReason": "*"},
            ],
            "SUCCEEDED",
        ),
        ([{"action": "EXIT", "onStatusReason": "Host EC2*"}], "FAILED"),
        # A missing exit code matches no pattern (facts, 1.4.9), so this one goes on to "nothing
        # matches": RETRY.
        ([{"action": "EXIT", "onExitCode": "*"}], "SUCCEEDED"),
    ],
)
def test_evaluate_on_exit_decides(
    endpoint: Endpoint, rules: list[dict[str, str]], state: str
) -> None:
    """facts, 1.4.10: the idiom for spot is onStatusReason "Host EC2*"."""
    script = "test $AWS_BATCH_JOB_ATTEMPT = 2 || sleep 600"
    job_id = endpoint.run(
        "sh", "-c", script, retryStrategy={"attempts": 3, "evaluateOnExit": rules}
    )
    endpoint.wait(job_id, "RUNNING")
    reclaimed(endpoint, job_id)
    job = endpoint.wait(job_id)
    assert (job["status"], len(job["attempts"])) == (state, 2 if state == "SUCCEEDED" else 1)


def test_one_child_loses_its_host_and_its_siblings_do_not(endpoint: Endpoint) -> None:
    job_id = endpoint.run("sleep", "600", arrayProperties={"size": 2})
    endpoint.wait(f"{job_id}:0", "RUNNING")
    endpoint.wait(f"{job_id}:1", "RUNNING")
    reclaimed(endpoint, f"{job_id}:1")
    assert endpoint.wait(f"{job_id}:1")["statusReason"].startswith("Host EC2 (instance i-")
    assert endpoint.job(f"{job_id}:0")["status"] == "RUNNING"
    done = reclaim(endpoint, f"{job_id}:1")
    assert done.returncode == 2 and "is not running" in done.stderr
    endpoint.batch.terminate_job(jobId=job_id, reason="seen")
    endpoint.wait(job_id)


def test_nothing_that_the_job_started_outlives_its_host(endpoint: Endpoint) -> None:
    job_id = endpoint.run("sh", "-c", "trap '' TERM; (trap '' TERM; sleep 661) & echo $!; wait")
    endpoint.wait(job_id, "RUNNING")
    (pid,) = until(lambda: endpoint.output(job_id), bool)
    reclaimed(endpoint, job_id)
    endpoint.wait(job_id)
    ps = ["ps", "-o", "stat=", "-p", pid]
    until(
        lambda: subprocess.run(ps, capture_output=True, text=True).stdout.strip(),
        lambda process_state: process_state in ("", "Z"),
    )


def test_who_ends_in_time_has_not_lost_anything(endpoint: Endpoint, tmp_path: Path) -> None:
    """What ends between the notice and its time has ended by itself."""
    gate = Gate(tmp_path / "gate")
    job_id = endpoint.run(*gate.shell("exit 75"))
    endpoint.wait(job_id, "RUNNING")
    reclaimed(endpoint, job_id, "60")
    gate.open()
    job = endpoint.wait(job_id)
    gate.close()
    assert (job["statusReason"], job["container"]["exitCode"]) == (
        "Essential container in task exited",
        75,
    )


def test_a_second_attempt_has_no_notice(endpoint: Endpoint) -> None:
    """Each attempt is on a host of its own, and the second one's was not announced."""
    watch = WATCH.replace(
        "assert exc.code == 404",
        "os.environ['AWS_BATCH_JOB_ATTEMPT'] == '2' and sys.exit(exc.code - 404)",
    )
    job_id = endpoint.run("python3", "-c", watch, retryStrategy={"attempts": 2})
    endpoint.wait(job_id, "RUNNING")
    until(lambda: endpoint.output(job_id), bool)
    reclaimed(endpoint, job_id, "0.2")
    job = endpoint.wait(job_id)
    assert job["status"] == "SUCCEEDED"
    first, second = (attempt["container"]["logStreamName"] for attempt in job["attempts"])
    outputs = [
        endpoint.logs.get_log_events(logGroupName="/aws/batch/job", logStreamName=s)["events"]
        for s in (first, second)
    ]
    assert [event["message"].partition(" ")[0] for event in outputs[1]] == ["instance"]
    assert outputs[0][0]["message"] != outputs[1][0]["message"]


def test_the_metadata_service_wants_a_token(endpoint: Endpoint) -> None:
    """facts, 10.4: version 2; and a path that nobody was told leads nowhere."""
    script = "echo $AWS_EC2_METADATA_SERVICE_ENDPOINT; sleep 600"
    job_id = endpoint.run("sh", "-c", script)
    endpoint.wait(job_id, "RUNNING")
    (address,) = until(lambda: endpoint.output(job_id), bool)

    def status(url: str, method: str = "GET", **headers: str) -> int:
        request = urllib.request.Request(
            url, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code

    assert status(f"{address}/latest/meta-data/instance-id") == 401
    assert (
        status(f"{address}/latest/meta-data/instance-id", X_aws_ec2_metadata_token="forged") == 401
    )
    assert status(f"{address}/latest/api/token", "PUT") == 400
    assert (
        status(f"{address}/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60")
        == 200
    )
    assert (
        status(f"{address}/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="x")
        == 400
    )
    assert status(f"{address}/latest/api/token", "PUT", X_Forwarded_For="1.2.3.4") == 403
    endpoint.batch.terminate_job(jobId=job_id, reason="seen")


def test_boto3_finds_its_credentials_there(endpoint: Endpoint) -> None:
    """The service is what it pretends to be: botocore's own client of it is content."""
    script = (
        "import botocore.utils as u, os, botocore.session as s;"
        "url = os.environ['AWS_EC2_METADATA_SERVICE_ENDPOINT'] + '/';"
        "f = u.InstanceMetadataFetcher(base_url=url);"
        "print(f.retrieve_iam_role_credentials()['access_key'])"
    )
    from sys import executable

    job_id = endpoint.run(executable, "-c", script)
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    assert endpoint.output(job_id) == ["batchyard"]


# -- mistakes -------------------------------------------------------------------------------------


def test_ids_that_cannot_be_reclaimed(endpoint: Endpoint) -> None:
    """Exit code 2 and a sentence; nothing happens to anybody."""
    over = endpoint.run("true")
    endpoint.wait(over)
    single = endpoint.run("sleep", "600")
    endpoint.wait(single, "RUNNING")
    waiting = endpoint.run("true", dependsOn=[{"jobId": single}])
    array = endpoint.run("sleep", "600", arrayProperties={"size": 2})
    for job_id, text in (
        ("nonsense", "no job has the id nonsense"),
        ("00000000-0000-0000-0000-000000000000", "no job has the id"),
        (f"{single}:0", "no job has the id"),
        (f"{array}:2", "no job has the id"),
        (f"{array}:x", "no job has the id"),
        (array, f"name one of its children, as in {array}:0"),
        (over, "is not running"),
        (waiting, "is not running"),
    ):
        done = reclaim(endpoint, job_id)
        assert (done.returncode, done.stdout) == (2, "") and text in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    assert [endpoint.job(job_id)["status"] for job_id in (single, f"{array}:0")] == [
        "RUNNING",
        "RUNNING",
    ]
    for job_id in (single, array):
        endpoint.batch.terminate_job(jobId=job_id, reason="seen")


def test_a_notice_has_bounds(endpoint: Endpoint) -> None:
    for notice in ("-1", "3601", "soon"):
        done = reclaim(endpoint, "x", "--notice", notice)
        assert done.returncode == 2 and "--notice" in done.stderr


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"jobId": 5}',
        b'{"jobId": "x", "notice": "soon"}',
        b'{"jobId": "x", "notice": null}',
        b'{"jobId": "x", "notice": -1}',
        b'{"jobId": "x", "notice": NaN}',
        b'{"jobId": "x", "notice": true}',
    ],
)
def test_whatever_comes_to_the_address_of_the_command(endpoint: Endpoint, body: bytes) -> None:
    request = urllib.request.Request(f"{endpoint.url}/_batchyard/reclaim", body, method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=300)
    with caught.value as answer:
        assert answer.code == 400 and json.load(answer)["message"]


def test_no_endpoint_answers(endpoint: Endpoint, tmp_path: Any) -> None:
    """Exit code 3: the surroundings; what is no address at all is bad input."""
    done = reclaim(endpoint, "x", "--endpoint", "http://127.0.0.1:9")
    assert done.returncode == 3 and "no endpoint answers at http://127.0.0.1:9" in done.stderr
    done = reclaim(endpoint, "x", "--endpoint", "nonsense")
    assert done.returncode == 2 and "--endpoint nonsense is not a URL" in done.stderr


def test_nothing_of_this_has_shaken_the_endpoint(endpoint: Endpoint) -> None:
    no_traceback(endpoint)
