"""Who may talk to the endpoint: programs of this machine, no web page, and from elsewhere only
with the token."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from emulator_endpoint import AWS, BATCHYARD, Endpoint, until
from gates import no_traceback

import prestarted

Headers = dict[str, str | None]
#: whatever there is: AWS Batch, the logs, somebody else's service, our own command's address
ADDRESSES: tuple[tuple[str, str, Headers], ...] = (
    ("POST", "/v1/describejobs", {}),
    ("POST", "/", {"X-Amz-Target": "Logs_20140328.DescribeLogGroups"}),
    ("GET", "/", {}),
    ("POST", "/_batchyard/reclaim", {}),
)


def ask(endpoint: Endpoint, method: str, path: str, headers: Headers) -> tuple[int, str]:
    """With exactly these headers; None leaves one out that would be there."""
    host, _, port = endpoint.url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=300)
    connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
    body = json.dumps({"jobs": ["x"]}).encode() if method == "POST" else b""
    for name, value in {**headers, "Content-Length": str(len(body))}.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    connection.close()
    return answer.status, text


def signed(key: str, service: str = "batch") -> str:
    scope = f"20260101/us-east-1/{service}/aws4_request"
    return f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders=host, Signature=0"


@pytest.fixture(scope="module")
def metadata_path(endpoint: Endpoint) -> str:
    """Where the metadata service of a running job's host is."""
    job_id = endpoint.run("sh", "-c", "echo $AWS_EC2_METADATA_SERVICE_ENDPOINT; sleep 600")
    endpoint.wait(job_id, "RUNNING")
    (address,) = until(lambda: endpoint.output(job_id), bool)
    return str(address).removeprefix(endpoint.url)


# -- on loopback ----------------------------------------------------------------------------------


FOREIGN = [
    *(
        "evil.example",
        "evil.example:4577",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "notlocalhost",
    ),
    *("192.168.0.1", "[::1].evil.example", "[::2]", "", None, "127.0.0.1@evil"),
]


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_refused_everywhere(
    endpoint: Endpoint, metadata_path: str, host: str | None
) -> None:
    """A page that lets its own name point to 127.0.0.1 sends its name."""
    for method, path, headers in (*ADDRESSES, ("PUT", f"{metadata_path}/latest/api/token", {})):
        status, body = ask(endpoint, method, path, {**headers, "Host": host})
        # A request without Host is none to HTTP itself.
        assert status == 403, (path, status)
        assert "runs commands" in body or "refused" in body


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://127.0.0.1:4577", "http://localhost", "null"]
)
def test_a_browsers_origin_is_refused_everywhere(
    endpoint: Endpoint, metadata_path: str, origin: str
) -> None:
    """Whatever it is: a program sends none."""
    for method, path, headers in (*ADDRESSES, ("PUT", f"{metadata_path}/latest/api/token", {})):
        status, body = ask(endpoint, method, path, {**headers, "Origin": origin})
        assert status == 403 and "Origin" in body, path


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:80",
        "localhost",
        "LocalHost:4577",
        "bucket.localhost:4577",
        "[::1]",
        "[::1]:4577",
    ],
)
def test_names_of_this_machine_are_welcome(
    endpoint: Endpoint, metadata_path: str, host: str
) -> None:
    assert ask(endpoint, "POST", "/v1/describejobs", {"Host": host}) == (200, '{"jobs": []}')
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    assert (
        ask(endpoint, "PUT", f"{metadata_path}/latest/api/token", {"Host": host, **ttl})[0] == 200
    )


def test_the_refusal_is_one_that_clients_understand(endpoint: Endpoint) -> None:
    """boto3 makes an AccessDeniedException of it."""
    port = endpoint.url.rpartition(":")[2]
    client = boto3.client(
        "batch",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}),
    )

    def add_origin(request: Any, **_: Any) -> None:
        request.headers["Origin"] = "https://evil.example"

    client.meta.events.register("before-sign.batch.*", add_origin)
    with pytest.raises(ClientError) as caught:
        client.describe_jobs(jobs=["x"])
    assert caught.value.response["Error"]["Code"] == "AccessDeniedException"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_a_metadata_address_that_nobody_was_given_is_none(endpoint: Endpoint) -> None:
    """The path has a key; without it the request is somebody else's."""
    for path in ("/imds/", "/imds/0123456789abcdef/x/latest/meta-data/instance-id"):
        status, body = ask(endpoint, "GET", path, {})
        assert "i-0" not in body and status != 200


def test_it_listens_on_loopback_alone(endpoint: Endpoint) -> None:
    port = int(endpoint.url.rpartition(":")[2])
    addresses = {
        info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    }
    for address in addresses - {"127.0.0.1", "127.0.1.1"}:
        with socket.socket() as connection, pytest.raises(OSError):
            connection.settimeout(5)
            connection.connect((str(address), port))


# -- beyond loopback ------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_beyond_loopback_a_token_is_wanted(tmp_path: Path, host: str) -> None:
    """Exit code 2, before anything is opened."""
    command = [
        str(BATCHYARD),
        "emulate",
        "--port",
        "0",
        "--host",
        host,
        "--home",
        str(tmp_path / "home"),
    ]
    done = prestarted.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (2, "") and "--token" in done.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("token", ["", "has space", "a/b", "a,b", "line\nbreak", "ü"])
def test_a_token_must_be_usable_as_an_access_key(tmp_path: Path, token: str) -> None:
    command = [str(BATCHYARD), "emulate", "--port", "0", "--host", "0.0.0.0", "--token", token]
    done = prestarted.run(
        [*command, "--home", str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (2, "") and "--token" in done.stderr


def test_a_host_that_is_not_ours(tmp_path: Path) -> None:
    command = [
        str(BATCHYARD),
        "emulate",
        "--port",
        "0",
        "--host",
        "192.0.2.1",
        "--token",
        "x",
        "--home",
        str(tmp_path),
    ]
    done = prestarted.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 3 and "could not listen on 192.0.2.1:0" in done.stderr


def test_with_a_token_the_right_key_is_let_in_and_no_other(start: Callable[..., Endpoint]) -> None:
    """From anywhere, under any name; jobs have the key, and get at their metadata without one."""
    endpoint = start(
        "--cpus", "2", "--memory", "1GiB", "--host", "0.0.0.0", "--token", "s3cret-token"
    )
    assert endpoint.variables["AWS_ACCESS_KEY_ID"] == "s3cret-token"
    assert endpoint.url.startswith("http://127.0.0.1:")
    endpoint.queue("queue", endpoint.environment("cpu"))

    for method, path, headers in ADDRESSES:
        for key in (
            None,
            signed("batchyard"),
            signed("s3cret-toke"),
            signed("s3cret-token2"),
            "s3cret-token",
        ):
            assert ask(endpoint, method, path, {**headers, "Authorization": key})[0] == 403, (
                path,
                key,
            )
    for path in ("/?X-Amz-Credential=wrong/20260101/us-east-1/s3/aws4_request", "/v1/tags/x"):
        assert ask(endpoint, "GET", path, {})[0] == 403
    right = {"Authorization": signed("s3cret-token")}
    for host in ("build-server.example:4577", "127.0.0.1", "[2001:db8::1]:4577"):
        assert ask(endpoint, "POST", "/v1/describejobs", {**right, "Host": host}) == (
            200,
            '{"jobs": []}',
        )
    assert (
        ask(endpoint, "POST", "/v1/describejobs", {**right, "Origin": "https://evil.example"})[0]
        == 403
    )

    bucket = "by-signed-address"
    s3 = endpoint.client("s3")
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="k", Body=b"1")
    address = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    assert ask(endpoint, "GET", address.removeprefix(endpoint.url), {}) == (200, "1")

    script = (
        "test $AWS_ACCESS_KEY_ID = s3cret-token; "
        "python3 -c 'import os, urllib.request as u; print(u.urlopen(u.Request("
        'os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"] + "/latest/api/token", method="PUT", '
        'headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})).status)\''
    )
    job_id = endpoint.run("sh", "-ec", script)
    assert endpoint.wait(job_id)["status"] == "SUCCEEDED"
    assert endpoint.output(job_id) == ["200"]

    job_id = endpoint.run("sleep", "60")
    endpoint.wait(job_id, "RUNNING")
    command = [
        str(BATCHYARD),
        "emulate",
        "reclaim",
        job_id,
        "--notice",
        "0",
        "--endpoint",
        endpoint.url,
    ]
    without = prestarted.run(
        command, env=endpoint.environ, capture_output=True, text=True, timeout=300
    )
    assert without.returncode == 2 and "token" in without.stderr
    done = prestarted.run(
        [*command, "--token", "s3cret-token"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert endpoint.wait(job_id)["statusReason"].startswith("Host EC2")
    no_traceback(endpoint)


def test_ipv6_loopback(tmp_path: Path) -> None:
    """Its address is one that the shell must be spared: brackets."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    command = [
        str(BATCHYARD),
        "emulate",
        "--port",
        "0",
        "--host",
        "::1",
        "--home",
        str(tmp_path / "home"),
    ]
    with (tmp_path / "said").open("w") as output:
        process = prestarted.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)
    with process:
        try:
            assert process.stdout is not None
            words = [shlex.split(process.stdout.readline())[1].partition("=") for _ in range(5)]
            variables = {name: value for name, _, value in words}
            assert variables["AWS_ENDPOINT_URL"].startswith("http://[::1]:")
            words = [str(AWS), "batch", "describe-jobs", "--jobs", "x"]
            done = prestarted.run(
                words, env=os.environ | variables, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0 and json.loads(done.stdout) == {"jobs": []}
            connection = http.client.HTTPConnection(
                "::1", int(variables["AWS_ENDPOINT_URL"].rpartition(":")[2])
            )
            connection.request("POST", "/v1/describejobs", "{}", {"Host": "evil.example"})
            assert connection.getresponse().status == 403
            connection.close()
        finally:
            process.terminate()
    assert process.returncode == 0 and "Traceback" not in (tmp_path / "said").read_text()


def test_nothing_of_this_has_shaken_the_endpoint(endpoint: Endpoint) -> None:
    no_traceback(endpoint)
