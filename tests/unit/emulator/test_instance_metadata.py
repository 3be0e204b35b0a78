"""The metadata service of a pretended host, by hand and with botocore's own fetchers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.utils import IMDSFetcher, InstanceMetadataFetcher, InstanceMetadataRegionFetcher

from batchyard.emulator.instance_metadata import Credentials, Host, answer

#: 2026-03-01T12:34:56Z
NOW = 1_772_368_496.0
HOST = Host(
    instance_id="i-0123456789abcdef0",
    instance_type="g5.xlarge",
    region="eu-central-1",
    zone="eu-central-1b",
    token_key=b"a key",
    credentials=Credentials("ecsInstanceRole", "AKIDEXAMPLE", "a secret", "a session"),
)
TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"


def token(host: Host = HOST, ttl: str = "60", now_s: float = NOW) -> str:
    status, headers, body = answer(host, "PUT", "/latest/api/token", {TTL: ttl}, now_s)
    assert status == 200
    assert headers["X-Aws-Ec2-Metadata-Token-Ttl-Seconds"] == ttl
    return body.decode()


def get(path: str, host: Host = HOST, now_s: float = NOW) -> str | None:
    """What is there; None where it is 404."""
    status, headers, body = answer(host, "GET", path, {TOKEN: token(host, now_s=now_s)}, now_s)
    if status == 404:
        assert headers["Content-Type"] == "text/html"
        assert b"<title>404 - Not Found</title>" in body
        return None
    assert (status, headers["Content-Type"]) == (200, "text/plain")
    return body.decode()


# -- tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ttl", ["0", "21601", "-1", "", "1.5", "x", "999999999999"])
def test_a_token_lives_from_a_second_to_six_hours(ttl: str) -> None:
    assert answer(HOST, "PUT", "/latest/api/token", {TTL: ttl}, NOW)[0] == 400
    assert token(ttl="1") and token(ttl="21600")


def test_no_token_is_given_out_without_its_life() -> None:
    assert answer(HOST, "PUT", "/latest/api/token", {}, NOW)[0] == 400


def test_a_token_that_came_through_a_proxy_is_refused() -> None:
    headers = {TTL: "60", "X-Forwarded-For": "10.0.0.1"}
    assert answer(HOST, "PUT", "/latest/api/token", headers, NOW)[0] == 403


@pytest.mark.parametrize(
    "headers", [{}, {TOKEN: ""}, {TOKEN: "nonsense"}, {TOKEN: "é"}, {TOKEN: "AAAA" * 10}]
)
def test_nothing_is_said_without_a_token(headers: dict[str, str]) -> None:
    assert answer(HOST, "GET", "/latest/meta-data/instance-id", headers, NOW)[0] == 401


def test_a_token_expires() -> None:
    it = token(ttl="60")
    status, headers, _ = answer(HOST, "GET", "/latest/meta-data/", {TOKEN: it}, NOW + 59)
    assert (status, headers["X-Aws-Ec2-Metadata-Token-Ttl-Seconds"]) == (200, "1")
    assert answer(HOST, "GET", "/latest/meta-data/", {TOKEN: it}, NOW + 60)[0] == 401


def test_a_token_is_good_for_its_host_alone() -> None:
    other = replace(HOST, token_key=b"another key")
    assert answer(other, "GET", "/latest/meta-data/", {TOKEN: token(HOST)}, NOW)[0] == 401
    # A notice changes the value, not the host.
    assert (
        answer(
            replace(HOST, reclaimed_at_s=NOW),
            "GET",
            "/latest/meta-data/",
            {TOKEN: token(HOST)},
            NOW,
        )[0]
        == 200
    )


def test_the_case_of_a_header_does_not_matter() -> None:
    status, _, body = answer(HOST, "PUT", "/latest/api/token", {TTL.upper(): "60"}, NOW)
    assert status == 200
    headers = {TOKEN.lower(): body.decode()}
    assert answer(HOST, "GET", "/latest/meta-data/instance-id", headers, NOW)[0] == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/latest/api/token"), ("POST", "/latest/meta-data/"), ("PUT", "/latest/meta-data/")],
)
def test_other_methods(method: str, path: str) -> None:
    assert answer(HOST, method, path, {TOKEN: token(), TTL: "60"}, NOW)[0] == 405


def test_head_has_no_body() -> None:
    assert answer(HOST, "HEAD", "/latest/meta-data/instance-id", {TOKEN: token()}, NOW)[::2] == (
        200,
        b"",
    )


# -- what there is --------------------------------------------------------------------------------


def test_the_host() -> None:
    base = "/latest/meta-data/"
    assert get(base + "instance-id") == "i-0123456789abcdef0"
    assert get(base + "instance-type") == "g5.xlarge"
    assert get(base + "instance-life-cycle") == "spot"
    assert get(base + "placement/availability-zone") == "eu-central-1b"
    assert get(base + "placement/region") == "eu-central-1"
    assert get(base + "placement/availability-zone/") == "eu-central-1b"
    assert get("/2021-07-15/meta-data/instance-id") == "i-0123456789abcdef0"
    image, address, name = (get(base + path) for path in ("ami-id", "local-ipv4", "hostname"))
    assert image is not None and image.startswith("ami-0") and len(image) == 21
    assert address is not None and address.startswith("10.") and address.count(".") == 3
    assert name == f"ip-{address.replace('.', '-')}.eu-central-1.compute.internal"
    assert get(base + "local-hostname") == name
    in_virginia = get(base + "hostname", replace(HOST, region="us-east-1"))
    assert in_virginia is not None and in_virginia.endswith(".ec2.internal")


def test_each_host_has_its_own_address() -> None:
    hosts = [replace(HOST, instance_id=f"i-{number:017x}") for number in range(20)]
    assert len({get("/latest/meta-data/local-ipv4", host) for host in hosts}) == 20


def test_folders_are_listed() -> None:
    assert get("/") == "latest"
    assert get("/latest") == "dynamic\nmeta-data"
    listed = get("/latest/meta-data/")
    assert listed == get("/latest/meta-data")
    assert listed is not None
    for name in listed.split("\n"):
        below = get(f"/latest/meta-data/{name}")
        assert below, name
    assert "placement/" in listed.split("\n") and "instance-id" in listed.split("\n")
    assert get("/latest/meta-data/placement/") == "availability-zone\nregion"
    assert get("/latest/meta-data/iam/") == "info\nsecurity-credentials/"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/latest/user-data",
        "/latest/meta-data/nothing",
        "/latest/meta-data/instance-id/more",
        "/latest/meta-data/iam/security-credentials/another",
        "/latest/meta-data/public-ipv4",
    ],
)
def test_what_is_not_there(path: str) -> None:
    assert get(path) is None


def test_the_identity_document() -> None:
    text = get("/latest/dynamic/instance-identity/document", replace(HOST, launched_s=NOW - 600))
    assert text is not None
    document = json.loads(text)
    assert document["instanceId"] == HOST.instance_id
    assert document["instanceType"] == "g5.xlarge"
    assert (document["region"], document["availabilityZone"]) == ("eu-central-1", "eu-central-1b")
    assert document["accountId"] == "123456789012"
    assert document["privateIp"] == get("/latest/meta-data/local-ipv4")
    assert document["imageId"] == get("/latest/meta-data/ami-id")
    assert document["pendingTime"] == "2026-03-01T12:24:56Z"


@pytest.mark.parametrize(
    ("instance_type", "architecture"),
    [
        ("g5.xlarge", "x86_64"),
        ("g4dn.xlarge", "x86_64"),
        ("p4d.24xlarge", "x86_64"),
        ("m7i.large", "x86_64"),
        ("m6g.large", "arm64"),
        ("g5g.xlarge", "arm64"),
        ("c7gn.large", "arm64"),
        ("a1.large", "arm64"),
    ],
)
def test_the_architecture_follows_the_type(instance_type: str, architecture: str) -> None:
    text = get(
        "/latest/dynamic/instance-identity/document", replace(HOST, instance_type=instance_type)
    )
    assert text is not None and json.loads(text)["architecture"] == architecture


def test_a_role_and_its_credentials() -> None:
    base = "/latest/meta-data/iam/"
    assert get(base + "security-credentials/") == "ecsInstanceRole"
    keys = get(base + "security-credentials/ecsInstanceRole")
    info = get(base + "info")
    assert keys is not None and info is not None
    assert json.loads(keys) == {
        "Code": "Success",
        "LastUpdated": "2026-03-01T12:00:00Z",
        "Type": "AWS-HMAC",
        "AccessKeyId": "AKIDEXAMPLE",
        "SecretAccessKey": "a secret",
        "Token": "a session",
        "Expiration": "2026-03-01T18:00:00Z",
    }
    assert (
        json.loads(info)["InstanceProfileArn"]
        == "arn:aws:iam::123456789012:instance-profile/ecsInstanceRole"
    )


def test_a_host_without_a_role() -> None:
    bare = replace(HOST, credentials=None)
    assert get("/latest/meta-data/iam/info", bare) is None
    assert get("/latest/meta-data/iam/security-credentials/", bare) is None


SPOT_PATHS = ("spot/instance-action", "spot/termination-time", "events/recommendations/rebalance")


def test_before_a_notice_there_is_none() -> None:
    for path in SPOT_PATHS:
        assert get(f"/latest/meta-data/{path}") is None
    listed = get("/latest/meta-data/")
    assert listed is not None and "spot/" not in listed


def test_a_notice() -> None:
    noticed = replace(HOST, reclaimed_at_s=NOW + 120)
    action, time, advice = (get(f"/latest/meta-data/{path}", noticed) for path in SPOT_PATHS)
    assert action is not None and advice is not None
    assert json.loads(action) == {"action": "terminate", "time": "2026-03-01T12:36:56Z"}
    assert time == "2026-03-01T12:36:56Z"
    assert json.loads(advice) == {"noticeTime": "2026-03-01T12:34:56Z"}
    listed = get("/latest/meta-data/", noticed)
    assert listed is not None and "spot/" in listed


# -- botocore -------------------------------------------------------------------------------------


@dataclass
class Service:
    """The service under an address as a job is given it."""

    url: str = ""
    host: Host = HOST
    requests: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture
def service() -> Iterator[Service]:
    it = Service()
    prefix = "/imds/key/0000000000000001"

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            path = self.path.removeprefix(prefix)
            it.requests.append((self.command, path))
            status, headers, body = answer(it.host, self.command, path, dict(self.headers), NOW)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = handle_any  # noqa: N815 - http.server looks for these names

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    it.url = f"http://127.0.0.1:{server.server_address[1]}{prefix}"
    yield it
    server.shutdown()
    thread.join()
    server.server_close()


def config(service: Service) -> dict[str, object]:
    """What botocore makes of AWS_EC2_METADATA_SERVICE_ENDPOINT; falling back to version 1 would
    be an error."""
    return {"ec2_metadata_service_endpoint": service.url, "ec2_metadata_v1_disabled": True}


def test_botocore_gets_credentials(service: Service) -> None:
    fetcher = InstanceMetadataFetcher(timeout=60, num_attempts=1, env={}, config=config(service))
    credentials = fetcher.retrieve_iam_role_credentials()
    assert (credentials["role_name"], credentials["access_key"]) == (
        "ecsInstanceRole",
        "AKIDEXAMPLE",
    )
    assert (credentials["secret_key"], credentials["token"]) == ("a secret", "a session")
    assert service.requests == [
        ("PUT", "/latest/api/token"),
        ("GET", "/latest/meta-data/iam/security-credentials/"),
        ("GET", "/latest/meta-data/iam/security-credentials/ecsInstanceRole"),
    ]


def test_botocore_gets_no_credentials_where_there_is_no_role(service: Service) -> None:
    service.host = replace(HOST, credentials=None)
    fetcher = InstanceMetadataFetcher(timeout=60, num_attempts=1, env={}, config=config(service))
    assert fetcher.retrieve_iam_role_credentials() == {}


def test_botocore_gets_the_region(service: Service) -> None:
    fetcher = InstanceMetadataRegionFetcher(
        timeout=60, num_attempts=1, env={}, config=config(service)
    )
    assert fetcher.retrieve_region() == "eu-central-1"


class Watcher(IMDSFetcher):
    """As a job looks out for a reclaim with botocore's means."""

    def instance_action(self) -> tuple[int, str]:
        response = self._get_request(
            "latest/meta-data/spot/instance-action",
            lambda response: False,
            self._fetch_metadata_token(),
        )
        return response.status_code, response.text


def test_botocore_sees_a_notice_come(service: Service) -> None:
    watcher = Watcher(timeout=60, env={}, config=config(service))
    assert watcher.instance_action()[0] == 404
    service.host = replace(HOST, reclaimed_at_s=NOW + 120)
    assert watcher.instance_action() == (
        200,
        '{"action": "terminate", "time": "2026-03-01T12:36:56Z"}',
    )


def test_the_partition_is_that_of_the_region() -> None:
    chinese = replace(HOST, region="cn-north-1", zone="cn-north-1a")
    assert get("/latest/meta-data/services/partition") == "aws"
    assert get("/latest/meta-data/services/partition", chinese) == "aws-cn"
    assert get("/latest/meta-data/services/domain", chinese) == "amazonaws.com.cn"
