"""Commands that watch a run while the network to AWS is lost, and when a user ends them."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cloud_lab import Lab, until

PIPELINE = """\
name: lost
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: a, command: 'echo begun; until [ -e "FOLDER/go" ]; do sleep 0.1; done; echo ended'}
"""
RUN = ("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")
WATCH = ("status", "last", "--watch")
LOGS = ("logs", "last", "-f")


class Network:
    """Carries connections to the endpoint, until it is lost: then connections are refused."""

    def __init__(self, upstream: str) -> None:
        target = urlsplit(upstream)
        self._target = (target.hostname, target.port)
        self._sockets: list[socket.socket] = []
        # Holds the port while nobody listens, so that no other process is given it.
        self._holder = socket.socket()
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self._port = self._holder.getsockname()[1]
        self.restore()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def restore(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._thread = threading.Thread(target=self._serve, args=(self._listener,), daemon=True)
        self._thread.start()

    def lose(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.lose()
        for end in (self._holder, *self._sockets):
            end.close()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, destination: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                destination.sendall(data)
        with suppress(OSError):
            destination.shutdown(socket.SHUT_WR)


@pytest.fixture(autouse=True)
def pipeline(lab: Lab, calm: None) -> None:
    lab.write("pipeline.yaml", PIPELINE.replace("FOLDER", str(lab.folder)))


@pytest.fixture
def network(lab: Lab) -> Iterator[Network]:
    network = Network(lab.endpoint.url)
    lab.environ["AWS_ENDPOINT_URL"] = network.url
    yield network
    network.close()


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.slow
def test_watching_goes_on_through_a_lost_network(lab: Lab, network: Network) -> None:
    """Connections are refused until each command has given up its own repetitions."""
    outputs = [lab.folder / f"{number}.txt" for number in range(3)]
    watchers = []
    for output, command, sign in zip(
        outputs, (RUN, WATCH, LOGS), ("1 running", "1 running", "begun"), strict=True
    ):
        with output.open("wb") as file:
            watchers.append(lab.start(*command, output=file))
        until(lambda output=output, sign=sign: sign in read(output))
    network.lose()
    for output in outputs:
        until(lambda output=output: "AWS cannot be reached" in read(output))
    network.restore()
    lab.write("go", "")
    assert [watcher.wait(300) for watcher in watchers] == [0, 0, 0]
    for output in outputs:
        text = read(output)
        assert text.count("the run goes on, and this command asks again until it answers") == 1
    assert all("SUCCEEDED" in read(output) for output in outputs[:2])
    assert "ended" in read(outputs[2])


def test_a_network_that_was_never_there_is_an_error(lab: Lab, network: Network) -> None:
    run = lab.run("--detach")
    network.lose()
    done = lab("status", run, "--watch", code=3)
    assert "AWS cannot be reached" in done.stderr and "goes on" not in done.stderr
    network.restore()
    lab.write("go", "")
    assert lab.ended(run) == "SUCCEEDED"


@pytest.mark.parametrize(("command", "sign"), [(WATCH, "a"), (LOGS, "begun")])
def test_a_watcher_that_a_user_ends_says_that_the_run_goes_on(
    lab: Lab, command: tuple[str, ...], sign: str
) -> None:
    run = lab.run("--detach")
    output = lab.folder / "output.txt"
    until(lambda: lab.status(run)["steps"][0]["running"])
    with output.open("wb") as file:
        watcher = lab.start(*command, output=file)
    until(lambda: sign in read(output))
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(300) == 130
    assert "the run goes on without this command: `batchyard " in read(output)
    lab.write("go", "")
    assert lab.ended(run) == "SUCCEEDED"
