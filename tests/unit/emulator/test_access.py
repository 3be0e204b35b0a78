"""Who is let in, as values: headers in, a refusal or none out."""

from __future__ import annotations

import pytest

from batchyard.emulator import access

HEADER = (
    "AWS4-HMAC-SHA256 Credential={}/20260101/eu-west-1/batch/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost",
        "LOCALHOST:80",
        "a.localhost",
        "a.b.localhost:9",
        "[::1]",
        "[::1]:4577",
        "::1",
    ],
)
def test_hosts_of_this_machine(host: str) -> None:
    assert access.find_refusal({"HTTP_HOST": host}, None) is None


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.com",
        "127.0.0.1.example.com",
        "localhost.example.com",
        "xlocalhost",
        "127.0.0.2",
        "0.0.0.0",
        "[::1",
        "[::1]example.com",
        "[::1].example.com:80",
        "[::1]:80:80",
        "[127.0.0.1.example.com]",
        "127.0.0.1:80@example.com",
        "localhost:x",
        "127.0.0.1, example.com",
    ],
)
def test_foreign_hosts(host: str) -> None:
    assert access.find_refusal({"HTTP_HOST": host}, None) is not None


def test_a_request_without_host_is_foreign() -> None:
    assert access.find_refusal({}, None) is not None


@pytest.mark.parametrize("token", [None, "key"])
def test_an_origin_is_refused_with_and_without_a_token(token: str | None) -> None:
    headers = {"HTTP_HOST": "127.0.0.1", "HTTP_AUTHORIZATION": HEADER.format("key")}
    assert access.find_refusal(headers, token) is None
    for origin in ("https://example.com", "http://127.0.0.1", "null"):
        assert "Origin" in (access.find_refusal({**headers, "HTTP_ORIGIN": origin}, token) or "")


def test_with_a_token_the_key_decides_and_not_the_host() -> None:
    assert (
        access.find_refusal(
            {"HTTP_HOST": "example.com", "HTTP_AUTHORIZATION": HEADER.format("key")}, "key"
        )
        is None
    )
    for key in ("", "kei", "key2", "KEY"):
        headers = {"HTTP_HOST": "127.0.0.1", "HTTP_AUTHORIZATION": HEADER.format(key)}
        assert "token" in (access.find_refusal(headers, "key") or "")
    assert "token" in (access.find_refusal({"HTTP_HOST": "127.0.0.1"}, "key") or "")


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({"HTTP_AUTHORIZATION": HEADER.format("AKIA1")}, "AKIA1"),
        ({"HTTP_AUTHORIZATION": "AWS4-HMAC-SHA256 Credential=token/-"}, "token"),
        (
            {"QUERY_STRING": "X-Amz-Credential=AKIA2%2F20260101%2Fus-east-1%2Fs3%2Faws4_request"},
            "AKIA2",
        ),
        ({"QUERY_STRING": "AWSAccessKeyId=AKIA3&Signature=x&Expires=1"}, "AKIA3"),
        ({"QUERY_STRING": "X-Amz-Credential="}, None),
        ({"HTTP_AUTHORIZATION": "Basic abc"}, None),
        ({}, None),
    ],
)
def test_the_key_that_a_request_was_signed_with(
    environ: dict[str, object], key: str | None
) -> None:
    assert access.access_key(environ) == key


@pytest.mark.parametrize(
    ("environ", "scope"),
    [
        ({"HTTP_AUTHORIZATION": HEADER.format("k")}, ("eu-west-1", "batch")),
        (
            {"QUERY_STRING": "X-Amz-Credential=k/20260101/us-east-1/s3/aws4_request"},
            ("us-east-1", "s3"),
        ),
        ({"HTTP_AUTHORIZATION": "AWS4-HMAC-SHA256 Credential=token/-"}, None),
        ({}, None),
    ],
)
def test_what_a_request_was_signed_for(
    environ: dict[str, object], scope: tuple[str, str] | None
) -> None:
    assert access.signature_scope(environ) == scope


@pytest.mark.parametrize("token", ["a", "s3cret_token", "A.b~c+d=e-f", "0" * 64])
def test_tokens_that_can_be_an_access_key(token: str) -> None:
    assert access.is_usable_token(token)
    assert access.access_key({"HTTP_AUTHORIZATION": HEADER.format(token)}) == token


@pytest.mark.parametrize("token", ["", " ", "a b", "a/b", "a,b", "a\n", "ä", "a'b"])
def test_tokens_that_cannot(token: str) -> None:
    assert not access.is_usable_token(token)


def test_an_address_with_a_key_of_its_own_needs_no_token_but_is_no_web_pages() -> None:
    assert access.find_refusal({"HTTP_HOST": "10.0.0.1"}, "secret", has_secret_path=True) is None
    assert (
        access.find_refusal(
            {"HTTP_HOST": "10.0.0.1", "HTTP_ORIGIN": "http://a"}, "secret", has_secret_path=True
        )
        is not None
    )
    assert access.find_refusal({"HTTP_HOST": "10.0.0.1"}, None, has_secret_path=True) is not None
