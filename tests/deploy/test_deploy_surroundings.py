"""Without credentials, without rights, without AWS: one sentence, and what to do."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest
from site_of_stacks import Site

WHO = (
    '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
    "<Arn>arn:aws:iam::123456789012:user/dev</Arn><UserId>U</UserId><Account>123456789012</Account>"
    "</GetCallerIdentityResult></GetCallerIdentityResponse>"
)


class Denying(BaseHTTPRequestHandler):
    """AWS as somebody meets it who may only ask who he is."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        action = parse_qs(body)["Action"][0]
        if action == "GetCallerIdentity":
            return self._answer(200, WHO)
        message = (
            f"User: arn:aws:iam::123456789012:user/dev is not authorized to perform: "
            f"cloudformation:{action} because "
            f"no identity-based policy allows the cloudformation:{action} action"
        )
        return self._answer(
            403,
            '<ErrorResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><Error><Type>Sender</Type>'
            f"<Code>AccessDenied</Code><Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>",
        )

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def denying() -> Iterator[dict[str, str]]:
    """The environment of a command that talks to it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Denying)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield {
        **os.environ,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("words", "action"),
    [
        (("deploy", "--yes"), "cloudformation:ListExports"),
        (("diff",), "cloudformation:DescribeStacks"),
        (("destroy", "--yes"), "cloudformation:DescribeStacks"),
        (("outputs",), "cloudformation:DescribeStacks"),
    ],
)
def test_a_missing_right_is_named_with_the_policy_that_grants_it(
    site: Site, denying: dict[str, str], words: tuple[str, ...], action: str
) -> None:
    done = site.about(*words, environ=denying, code=3)
    said, hint = done.stderr.splitlines()[-2:]
    assert f"access denied for {action}" in said
    assert hint.startswith(
        f"  ask for the action {action}: the environment's administrator policy grants it"
    )


def nothing_of_aws(**more: str) -> dict[str, str]:
    base = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **base,
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
        **more,
    }


@pytest.mark.parametrize(
    "words", [("deploy", "--yes"), ("diff",), ("outputs",), ("destroy", "--yes")]
)
def test_no_credentials(site: Site, words: tuple[str, ...]) -> None:
    done = site.about(*words, environ=nothing_of_aws(AWS_DEFAULT_REGION="eu-central-1"), code=3)
    assert "there are no usable AWS credentials" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_no_region(site: Site) -> None:
    done = site.about(
        "deploy", environ=nothing_of_aws(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x"), code=2
    )
    assert "region" in done.stderr and len(done.stderr.splitlines()) <= 2


def test_aws_cannot_be_reached(site: Site) -> None:
    environ = nothing_of_aws(
        AWS_DEFAULT_REGION="eu-central-1",
        AWS_ACCESS_KEY_ID="x",
        AWS_SECRET_ACCESS_KEY="x",
        AWS_ENDPOINT_URL="http://127.0.0.1:9",
    )
    done = site.about("deploy", environ=environ, code=3)
    assert "AWS cannot be reached" in done.stderr and "the region's name" in done.stderr


def test_a_file_of_environments_needs_no_aws(site: Site) -> None:
    (site.folder / ".batchyard").mkdir()
    (site.folder / ".batchyard/environments.yaml").write_text(
        "environments:\n  lab:\n    region: eu-central-1\n    bucket: lab-runs\n"
        "    queues: {cpu: lab-cpu}\n"
    )
    done = site("environments", environ=nothing_of_aws(AWS_DEFAULT_REGION="eu-central-1"))
    assert "lab" in done.stdout and "only the environments in the file are listed" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("deploy", "--set", "CpuSpotMaxCpus=3"), "did you mean CpuSpotMaxvCpus?"),
        (("deploy", "--set", "Zones=9"), "one of 2, 3, 4"),
        (("deploy", "--set", "Zones"), "NAME=VALUE"),
        (("deploy", "bach"), "did you mean batch?"),
        (("deploy", "--set", "GpuInstanceTypes=p3.2xlarge"), "does not support the GPU of p3"),
        (("diff", "--set", "GpuInstanceTypes=optimal"), "families without GPUs"),
        (("diff", "network", "--set", "CpuSpotMaxvCpus=3"), "the template batch has it"),
    ],
)
def test_mistakes_are_found_without_asking_aws(
    site: Site, words: tuple[str, ...], said: str
) -> None:
    assert said in site.about(*words, environ=nothing_of_aws(), code=2).stderr


def test_an_environment_must_be_named(site: Site) -> None:
    for command in ("deploy", "diff", "outputs", "destroy"):
        assert "--env" in site(command, code=2).stderr
    assert "lower-case" in site("deploy", "--env", "Dev", environ=nothing_of_aws(), code=2).stderr
