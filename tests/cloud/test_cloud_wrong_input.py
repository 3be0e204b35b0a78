"""AWS commands with invalid input: the message names the place, the problem and the remedy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cloud_lab import BUCKET, ENVIRONMENTS, PATH, Lab

PIPELINE = """\
name: small
image: busybox
defaults: {memory: 64MiB}
steps:
  - {name: a, command: echo a}
"""
JOB = '{"jobName": "x", "jobQueue": "spot", "jobDefinition": "nobodys"}'


@pytest.fixture(autouse=True)
def files(lab: Lab) -> None:
    lab.write("pipeline.yaml", PIPELINE)
    lab.write("job.json", JOB)


def told(lab: Lab, *words: str, code: int, **more: object) -> tuple[str, str]:
    """Return the error and the hint of a command: its last two lines, the hint being indented."""
    done = lab(*words, code=code, **more)  # type: ignore[arg-type]
    lines = done.stderr.splitlines()
    assert len(lines) >= 2 and not lines[-2].startswith(" ") and lines[-1].startswith("  "), (
        done.stderr
    )
    assert done.stdout == ""
    return lines[-2], lines[-1].strip()


# -- something else than AWS answers ---------------------------------------------------------------


@contextmanager
def web_server(status: int) -> Iterator[str]:
    """What stands at a wrong port, or between a laptop and the network of a hotel."""

    class Page(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b"<html><body>Welcome. Please log in.</body></html>"
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        # The names are those that http.server looks for.
        # http.server looks up these names.
        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [200, pytest.param(404, marks=pytest.mark.slow)])
def test_a_web_page_is_not_taken_for_aws(lab: Lab, status: int) -> None:
    run = lab.run("--detach")
    lab.ended(run)
    commands = [
        "run pipeline.yaml --engine aws --env lab",
        f"logs {run}",
        f"report {run}",
        f"fetch {run} --to here",
        "status small-20200101-abcdef --env lab",
        "runs --env lab",
        "submit job.json",
        "image push busybox --env deployed",
        "deploy --env other --yes",
        "diff --env other",
        "outputs --env other",
        "destroy --env other --yes",
        "environments --home elsewhere",
    ]
    with web_server(status) as url:
        for command in commands:
            what, hint = told(lab, *command.split(), code=3, environ={"AWS_ENDPOINT_URL": url})
            assert (
                f"the server that answers is not AWS: it sent a web page (HTTP {status})" in what
            ), command
            assert what.startswith("batchyard: could not ") and "AWS_ENDPOINT_URL" in hint
        # What is kept here is shown all the same.
        assert "SUCCEEDED" in lab("status", run, environ={"AWS_ENDPOINT_URL": url}).stdout


def test_a_redirection_is_not_followed_in_a_circle(lab: Lab) -> None:
    with web_server(302) as url:
        for command in (
            "runs --env lab",
            "status small-20200101-abcdef --env lab",
            "outputs --env other",
        ):
            assert (
                "(HTTP 302)"
                in told(lab, *command.split(), code=3, environ={"AWS_ENDPOINT_URL": url})[0]
            )


def test_a_page_that_a_run_has_made_is_fetched(lab: Lab) -> None:
    """HTML is no proof that it is not AWS: S3 says of it what it was told."""
    lab.write(
        "pipeline.yaml",
        PIPELINE.replace("command: echo a", 'commands: ["true"], outputs: ["*.html"]'),
    )
    lab.write(
        "pipeline.yaml", (lab.folder / "pipeline.yaml").read_text().replace("64MiB", "256MiB")
    )
    run = lab.run()
    key = f"team/runs/{run}/workspace/page.html"
    lab.endpoint.client("s3").put_object(
        Bucket=BUCKET, Key=key, Body=b"<html></html>", ContentType="text/html"
    )
    lab("fetch", run, "--to", "here")
    assert (lab.folder / "here/page.html").read_text() == "<html></html>"


# -- the file of environments ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said", "hinted"),
    [
        (b"", "expected `environments:`", "for example `environments: {lab: "),
        (b"environments:\n", "expected `environments:`", "for example"),
        (b"environments:\n  lab:\n", "'lab' must be a mapping", "region, bucket and queues"),
        (b"\xff\xfe", "is not UTF-8 text: byte 1 is invalid", "save it as UTF-8"),
        (
            ENVIRONMENTS.replace("us-east-1", "2001-99-99").encode(),
            "is not valid YAML",
            "put text in quotes",
        ),
    ],
)
def test_what_is_wrong_in_the_file(lab: Lab, text: bytes, said: str, hinted: str) -> None:
    (lab.folder / ".batchyard/environments.yaml").write_bytes(text)
    for words in (("environments", "--local"), ("runs", "--env", "lab")):
        what, hint = told(lab, *words, code=2)
        assert ".batchyard/environments.yaml" in what and said in what and hinted in hint


def test_a_file_that_is_no_yaml_is_told_with_its_place(lab: Lab) -> None:
    lab.write(".batchyard/environments.yaml", "environments:\n  lab: {region: x\n  bucket: y\n")
    done = lab("environments", "--local", code=2)
    (line,) = done.stderr.splitlines()
    assert ".batchyard/environments.yaml:2:8: not YAML: " in line and "; " in line


def test_a_folder_in_its_place_is_told_so(lab: Lab) -> None:
    (lab.folder / ".batchyard/environments.yaml").unlink()
    (lab.folder / ".batchyard/environments.yaml").mkdir()
    what, hint = told(lab, "runs", "--env", "lab", code=3)
    assert "Is a directory" in what and hint == "that is a folder: name a file"


# -- flags -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "run pipeline.yaml --engine aws --env lab",
        "runs",
        "status last",
        "logs last",
        "report last",
        "fetch last",
        "submit job.json --env lab",
        "environments",
        "emulate --port 0",
    ],
)
def test_a_home_that_is_a_file(lab: Lab, command: str) -> None:
    what, hint = told(lab, *command.split(), "--home", "job.json", code=2)
    assert (
        what == "batchyard: --home job.json is not a folder" and ".batchyard folder itself" in hint
    )


def test_a_home_from_the_environment_that_is_a_file(lab: Lab) -> None:
    what, _ = told(lab, "runs", code=2, environ={"BATCHYARD_HOME": "job.json"})
    assert what == "batchyard: BATCHYARD_HOME job.json is not a folder"


def test_an_environment_whose_name_is_empty(lab: Lab) -> None:
    for command in (
        "run pipeline.yaml --engine aws",
        "runs",
        "status last",
        "image push x",
        "submit job.json",
    ):
        what, hint = told(lab, *command.split(), "--env", "", code=2)
        assert what == "batchyard: --env is empty" and "`batchyard environments`" in hint


def test_a_workspace_without_a_bucket(lab: Lab) -> None:
    for where in ("s3://", "s3:///folder"):
        what, hint = told(
            lab,
            "run",
            "pipeline.yaml",
            "--engine",
            "aws",
            "--env",
            "lab",
            "--workspace",
            where,
            code=2,
        )
        assert f"'{where}' names no bucket" in what and "s3://bucket" in hint
    lab.write("pipeline.yaml", PIPELINE + "workspace: s3://\n")
    assert (
        "names no bucket"
        in told(lab, "run", "pipeline.yaml", "--engine", "aws", "--env", "lab", code=2)[0]
    )
    assert lab.json("runs") == []


def test_a_flag_of_this_machine_says_what_to_do(lab: Lab) -> None:
    _, hint = told(
        lab, "run", "pipeline.yaml", "--engine", "aws", "--env", "lab", "--limit-gpus", "2", code=2
    )
    assert hint == "leave --limit-gpus out"


def test_a_run_that_is_not_here(lab: Lab) -> None:
    for command in ("status", "logs", "stop", "retry", "resume", "report", "fetch"):
        _, hint = told(lab, command, "last", code=2)
        assert hint == "start one with `batchyard run FILE`, or give --home"
        _, hint = told(lab, command, "small-20200101-abcdef", code=2)
        assert "--env NAME finds a run on AWS that another machine began" in hint


# -- submit ----------------------------------------------------------------------------------------


def test_files_that_are_no_requests(lab: Lab) -> None:
    lab.write("empty.json", "")
    lab.write("half.json", '{"jobName": ')
    (lab.folder / "latin.json").write_bytes(b'{"jobName": "\xfc"}')
    skeleton = "--generate-cli-skeleton"
    what, hint = told(lab, "submit", "empty.json", code=2)
    assert what == "batchyard: empty.json is empty" and skeleton in hint
    what, hint = told(lab, "submit", "-", code=2)
    assert what == "batchyard: stdin is empty" and skeleton in hint
    what, hint = told(lab, "submit", "half.json", code=2)
    assert "half.json is not valid JSON: " in what and "line 1" in what and skeleton in hint
    what, hint = told(lab, "submit", "latin.json", code=2)
    assert "byte 14 is invalid" in what and hint == "save it as UTF-8"
    assert "FILE is empty" in told(lab, "submit", "", code=2)[0]


def test_each_problem_of_a_request_says_what_to_do(lab: Lab) -> None:
    said = lab("submit", "job.json", code=2).stderr
    assert "no job definition nobodys" in said and "register it first" in said
    lab.write("job.json", JOB.replace("spot", "nobodys"))
    assert "check its name, --env and --region" in lab("submit", "job.json", code=2).stderr
    what, hint = told(lab, "submit", "job.json", "--env", "lab", "--region", "us-east-1", code=2)
    assert "--region and --env exclude each other" in what and "leave one" in hint


# -- images, stacks, the endpoint ------------------------------------------------------------------


def test_images_without_docker(lab: Lab) -> None:
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS + "    repository: registry.example/x\n")
    bare = {"PATH": str(lab.folder)}
    what, hint = told(lab, "image", "push", "x", "--env", "lab", code=3, environ=bare)
    assert (
        what.startswith("batchyard: `image push` needs the docker command")
        and "--runner" not in hint
    )
    assert "`image build`" in told(lab, "image", "build", "--tag", "x", code=3, environ=bare)[0]
    what, hint = told(lab, "image", "init", "job.json/below", code=3)
    assert "Not a directory" in what and "a file, not a folder" in hint


def test_stacks_without_a_region(lab: Lab) -> None:
    # Set and empty, as `export AWS_REGION=$REGION` leaves it, is as good as not set.
    nowhere = {"AWS_REGION": "", "AWS_DEFAULT_REGION": ""}
    for command in ("deploy --yes", "diff", "outputs", "destroy --yes"):
        what, hint = told(lab, *command.split(), "--env", "other", code=2, environ=nowhere)
        assert "no AWS region is set, so the stacks of environment 'other' cannot be found" in what
        assert "set AWS_REGION" in hint and "--env" not in hint
    assert (
        told(lab, "deploy", "--env", "other", "--set", "Zones", code=2)[1]
        == "for example --set GpuSpotMaxvCpus=192"
    )


def test_no_environment_in_this_region(lab: Lab) -> None:
    said = lab("environments", "--home", "elsewhere", environ={"AWS_REGION": "eu-west-3"}).stderr
    assert said == (
        "there are no environments in eu-west-3; `batchyard deploy --env NAME` creates one\n"
    )


def test_a_reclaim_that_cannot_be(lab: Lab) -> None:
    what, hint = told(lab, "emulate", "reclaim", "x", code=2)
    assert "no job has the id x" in what and "describe-jobs" in hint
    what, hint = told(lab, "emulate", "reclaim", "x", "--endpoint", "localhost:4577", code=2)
    assert "is not a URL" in what and "http://" in hint
    for status in (200, 404):
        with web_server(status) as url:
            what, hint = told(lab, "emulate", "reclaim", "x", "--endpoint", url, code=2)
            assert "is not a `batchyard emulate`" in what and "--endpoint" in hint
    _, hint = told(lab, "emulate", "reclaim", "x", "--endpoint", "http://127.0.0.1:9", code=3)
    assert "batchyard emulate" in hint


def test_an_address_that_is_not_this_machines(lab: Lab) -> None:
    what, hint = told(
        lab,
        "emulate",
        "--port",
        "0",
        "--host",
        "nowhere.invalid",
        "--token",
        "x",
        code=3,
        environ={"PATH": PATH},
    )
    assert "could not listen on nowhere.invalid" in what and "--host" in hint
    port = lab.endpoint.url.rpartition(":")[2]
    assert "--port" in told(lab, "emulate", "--port", port, "--home", "elsewhere", code=3)[1]
