"""The spot notice, asked for at a metadata service over HTTP that answers as EC2's does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from batchyard.emulator import instance_metadata
from batchyard.worker import notices
from batchyard.worker.host import Host, read_identity
from batchyard.worker.notices import Metadata, NoMetadataError, remaining_s, watch

NOON = 1_700_000_000.0


class Service:
    """A metadata service: what it is asked, and what it says."""

    def __init__(self) -> None:
        self.notice: float | None = None
        self.key = b"first"
        self.asked: list[str] = []

    def answer(self, method: str, path: str, headers: dict[str, str]) -> instance_metadata.Answer:
        self.asked.append(f"{method} {path}")
        host = instance_metadata.Host(
            *("i-0a", "m6i.large", "us-east-1", "us-east-1a", self.key, self.notice),
            launched_s=NOON - 100,
        )
        return instance_metadata.answer(host, method, path.removeprefix("/imds"), headers, NOON)


@contextmanager
def serving(service: Service) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = service.answer(self.command, self.path, dict(self.headers))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET  # noqa: N815 (http.server looks up this name)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/imds/"
        finally:
            server.shutdown()
            thread.join()


def test_there_is_none_until_there_is_one_and_a_token_is_asked_for_once() -> None:
    service = Service()
    with serving(service) as address:
        asked = Metadata(address)
        assert asked.notice() is None
        assert asked.notice() is None
        service.notice = NOON + 120
        notice = asked.notice()
    assert notice is not None
    assert remaining_s(notice, NOON) == 120
    assert service.asked.count("PUT /imds/latest/api/token") == 1
    assert service.asked.count("GET /imds/latest/meta-data/spot/instance-action") == 3


def test_a_token_that_has_expired_is_renewed() -> None:
    service = Service()
    with serving(service) as address:
        asked = Metadata(address)
        assert asked.notice() is None
        service.key = b"second"
        assert asked.notice() is None
    assert service.asked.count("PUT /imds/latest/api/token") == 2


def test_the_host_of_the_worker() -> None:
    service, host = Service(), Host()
    with serving(service) as address:
        host.read(Metadata(address))
    assert host.facts() == {
        "id": "i-0a",
        "type": "m6i.large",
        "zone": "us-east-1a",
        "is_spot": True,
        "launched_s": NOON - 100,
    }
    # Where nobody answers, nothing is known, and nobody waits.
    unknown = Host()
    unknown.read(Metadata(address))
    assert unknown.facts() is None
    assert read_identity("<html>", "spot") is None and read_identity("{}", "spot") is None


def test_no_service_is_no_service() -> None:
    with serving(Service()) as address:
        pass
    with pytest.raises(NoMetadataError):
        Metadata(address).notice()
    with pytest.raises(NoMetadataError):
        Metadata("no address at all").notice()


def test_where_nobody_answers_the_watch_ends_quietly() -> None:
    with serving(Service()) as address:
        pass
    slept: list[float] = []
    announced: list[float] = []
    watch(Metadata(address), announced.append, slept.append)
    assert slept == [2, 2, 2]
    assert announced == []


def test_a_watch_that_was_answered_once_outlives_the_services_absence() -> None:
    class Moody(Metadata):
        def __init__(self) -> None:
            self.answers: list[str | None] = [
                None,
                "gone",
                "gone",
                "gone",
                "gone",
                '{"time": "2023-11-14T22:14:20Z"}',
            ]

        def notice(self) -> str | None:
            answer = self.answers.pop(0)
            if answer == "gone":
                raise NoMetadataError
            return answer

    announced: list[float] = []
    watch(Moody(), announced.append, lambda _: None, lambda: NOON)
    assert announced == [60]


@pytest.mark.parametrize(
    ("notice", "left"),
    [
        ('{"action": "terminate", "time": "2023-11-14T22:15:20Z"}', 120),
        ('{"action": "stop", "time": "2023-11-14T22:13:50Z"}', 30),
        ('{"action": "terminate", "time": "2023-11-14T20:00:00Z"}', 30),
        ('{"action": "terminate", "time": "2033-11-14T20:00:00Z"}', 120),
        ('{"action": "terminate"}', 120),
        ("nonsense", 120),
        ("[]", 120),
    ],
)
def test_how_long_the_machine_has_left(notice: str, left: float) -> None:
    assert remaining_s(notice, NOON) == left


def test_where_the_service_is() -> None:
    assert notices.metadata_address({}) == "http://169.254.169.254"
    assert (
        notices.metadata_address({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://x/y"})
        == "http://x/y"
    )
    assert notices.metadata_address({"AWS_EC2_METADATA_DISABLED": "True"}) is None
