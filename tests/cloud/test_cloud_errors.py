"""Errors around a run are printed as one sentence and a hint, never as a traceback."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cloud_lab import ENVIRONMENTS, Lab, run_of

PIPELINE = """\
name: small
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: a, commands: ["echo a"]}
  - {name: b, needs: [a], command: echo b}
"""
RUN = ("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")


@pytest.fixture(autouse=True)
def pipeline(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)


def test_no_credentials(lab: Lab) -> None:
    nothing = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    nothing["AWS_SHARED_CREDENTIALS_FILE"] = "/dev/null"
    said = lab(*RUN, code=3, environ=nothing).stderr
    assert (
        "no usable AWS credentials" in said
        and "aws sso login" in said
        and "batchyard emulate" in said
    )
    said = lab(*RUN, environ={"AWS_PROFILE": "nobody"}, code=2).stderr
    assert "nobody" in said


def test_an_environment_that_is_unknown(lab: Lab) -> None:
    said = lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lap", code=2).stderr
    assert "no environment 'lap'" in said and "did you mean 'lab'" in said
    said = lab("run", "pipeline.yaml", "--engine", "aws", "--env", "quite-other", code=2).stderr
    assert "batchyard deploy --env quite-other" in said
    assert "--env NAME" in lab("run", "pipeline.yaml", "--engine", "aws", code=2).stderr
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS.replace("bucket:", "buckit:"))
    assert "did you mean 'bucket'" in lab(*RUN, code=2).stderr


def test_a_queue_that_is_not_there_or_takes_no_jobs(lab: Lab) -> None:
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS.replace("cpu: spot", "cpu: sport"))
    said = lab(*RUN, code=2).stderr
    assert "no job queue sport in us-east-1" in said and "check the queues and the region" in said
    lab.endpoint.queue("closed", "spot-fleet", state="DISABLED")
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS.replace("cpu: spot", "cpu: closed"))
    assert "no job queue closed" not in (said := lab(*RUN, code=2).stderr)
    assert "job queue closed is DISABLED" in said
    assert (
        "aws batch update-job-queue --job-queue closed --state ENABLED --region us-east-1" in said
    )
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS.replace(", cpu_on_demand: steady", ""))
    assert "has no cpu_on_demand queue" in lab(*RUN, "--on-demand", code=2).stderr
    # None of these runs is there: what cannot be is refused before it is recorded.
    assert lab.json("runs") == []


def test_a_bucket_that_is_not_there(lab: Lab) -> None:
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS.replace("lab-runs", "nobodys-runs"))
    done = lab(*RUN, code=2)
    said = done.stderr
    assert (
        "could not" in said
        and "nobodys-runs" in said
        and "check the environment's `bucket:`" in said
    )
    # It is recorded, and goes on once there is one.
    assert f"not all jobs are submitted: `batchyard resume {run_of(done)}` submits" in said
    assert not [name for name in lab.job_names() if name.startswith("small-") and "nobody" in name]
    said = lab("runs", "--env", "lab", code=2).stderr
    assert "nobodys-runs" in said


def test_a_step_without_an_image(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace("image: busybox\n", ""))
    said = lab(*RUN, code=2).stderr
    assert (
        "step 'a' has no image" in said
        and "step 'b' has no image" in said
        and "add `image:`" in said
    )


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://nowhere.invalid"])
def test_nobody_answers(lab: Lab, url: str) -> None:
    said = lab(*RUN, code=3, environ={"AWS_ENDPOINT_URL": url}).stderr
    assert "AWS cannot be reached" in said and "AWS_ENDPOINT_URL" in said


def test_a_region_that_is_none(lab: Lab) -> None:
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS.replace("us-east-1", "us-nowhere-7"))
    said = lab(
        *RUN,
        code=3,
        environ={"AWS_ENDPOINT_URL": "", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
    ).stderr
    assert "could not describe the job queues" in said and "region" in said
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS.replace("us-east-1", "not a region"))
    assert "not a region" in lab(*RUN, code=2).stderr
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS)
    said = lab(*RUN, code=2, environ={"AWS_ENDPOINT_URL": "localhost:4577"}).stderr
    assert "Invalid endpoint: localhost:4577" in said and "AWS_ENDPOINT_URL" in said


class _Denying(BaseHTTPRequestHandler):
    """Answers as AWS does where a policy is missing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(
            json.dumps(
                {"message": "User: arn:aws:iam::123456789012:user/eve is not authorized"}
            ).encode()
        )

    def do_GET(self) -> None:
        text = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self._answer(text.encode())

    def _answer(self, body: bytes, status: int = 403) -> None:
        self.send_response(status)
        self.send_header("x-amzn-ErrorType", "AccessDeniedException")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _ReadOnly(_Denying):
    """An empty bucket that may be read."""

    def do_GET(self) -> None:
        if "list-type=2" in self.path:
            self._answer(b"<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>", 200)
        else:
            self._answer(b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>", 404)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        _Denying.do_GET(self)


@contextmanager
def denying(kind: type[_Denying] = _Denying) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_access_denied_names_the_action(lab: Lab) -> None:
    run = lab.run("--detach")
    with denying() as url:
        batch = {"AWS_ENDPOINT_URL_BATCH": url}
        said = lab(*RUN, code=3, environ=batch).stderr
        assert "access denied for batch:DescribeJobQueues" in said and "ask for the action" in said
        assert "batch:DescribeJobs:" in lab("status", run, code=3, environ=batch).stderr
        said = lab(*RUN, code=3, environ={"AWS_ENDPOINT_URL_S3": url}).stderr
        assert "could not read s3://lab-runs/team/runs/small-" in said and "s3:GetObject" in said
        assert (
            "s3:ListBucket"
            in lab("runs", "--env", "lab", code=3, environ={"AWS_ENDPOINT_URL_S3": url}).stderr
        )
        assert lab.ended(run) == "SUCCEEDED"
        assert (
            "logs:FilterLogEvents"
            in lab("logs", run, code=3, environ={"AWS_ENDPOINT_URL_CLOUDWATCH_LOGS": url}).stderr
        )


def test_what_could_not_be_stopped_is_named(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace('"echo a"', '"sleep 600"'))
    run = lab.run("--detach")

    class MayNotStop(_Denying):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path.endswith("/terminatejob"):
                self._answer(b'{"message": "not today"}')
                return
            request = urllib.request.Request(
                lab.endpoint.url + self.path, body, dict(self.headers.items())
            )
            with urllib.request.urlopen(request) as answer:
                self._answer(answer.read(), 200)

    with denying(MayNotStop) as url:
        said = lab("stop", run, code=3, environ={"AWS_ENDPOINT_URL_BATCH": url}).stderr
    assert (
        "could not stop all jobs" in said
        and "batch:TerminateJob" in said
        and "stop the run again" in said
    )
    assert f"{run}-a (" in said and f"{run}-b (" in said
    assert lab("stop", run).stdout == f"run {run}: STOPPED\n"


def test_inputs_that_may_not_be_uploaded(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace('"echo a"]', '"cat raw.txt"], inputs: [raw.txt]'))
    lab.write("raw.txt", "raw\n")
    with denying(_ReadOnly) as url:
        said = lab(*RUN, code=3, environ={"AWS_ENDPOINT_URL_S3": url}).stderr
    assert "could not upload" in said and "raw.txt: access denied for s3:PutObject" in said


@pytest.mark.slow
def test_outputs_that_cannot_be_written(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace('"echo a"]', '"echo a > a.txt"], outputs: [a.txt]'))
    run = lab.run()
    lab.write("taken", "a file\n")
    said = lab("fetch", run, "--to", "taken", code=3).stderr
    assert "could not write" in said and "taken/a.txt" in said and "--to DIR" in said


def test_rules_that_aws_cannot_be_told_are_refused(lab: Lab) -> None:
    lab.write(
        "pipeline.yaml",
        PIPELINE.replace("command: echo b", "command: echo b, timeout: 5s") + "fail_fast: true\n",
    )
    said = lab(*RUN, code=2).stderr
    assert "AWS Batch takes 60 s or more" in said and "fail_fast" in said
    assert lab.json("runs") == []


def test_flags_of_this_machine_are_refused(lab: Lab) -> None:
    assert "about this machine" in lab(*RUN, "--cpus", "2", code=2).stderr
    run = lab.run("--detach")
    assert "about this machine" in lab("retry", run, "--cpus", "2", code=2).stderr
    assert "--engine aws" in lab("run", "pipeline.yaml", "--env", "lab", code=2).stderr


@pytest.mark.slow
def test_a_step_with_no_room_for_the_worker_is_told_so(lab: Lab) -> None:
    assert "MiB of memory" not in lab(*RUN).stderr
    lab.write("pipeline.yaml", PIPELINE.replace("256MiB", "64MiB"))
    said = lab(*RUN, "--detach").stderr
    assert (
        "note: a: of its 64 MiB of memory the worker alone takes up to 160 MiB" in said
        and "note: b: of" not in said
    )
