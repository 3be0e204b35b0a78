"""Jobs that wait until the test lets them go on, and other things that several tests of jobs
need."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from emulator_endpoint import Endpoint


class Gate:
    """A named pipe: a job that reads a line from it waits until somebody opens the gate for it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        # Open for both, so that neither side ever waits for the other to come.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def shell(self, then: str = "") -> tuple[str, ...]:
        """The command of a job that waits at the gate and then does this."""
        return ("sh", "-c", f"read _ < '{self._path}'; {then}")

    def open(self, jobs: int = 1) -> None:
        """Lets so many jobs through, there now or still to come."""
        os.write(self._fd, b"\n" * jobs)

    def close(self) -> None:
        os.close(self._fd)


def one_at_a_time(endpoint: Endpoint, name: str) -> str:
    """A queue with room for one job of one vCPU."""
    return endpoint.queue(name, endpoint.environment(name, vcpus=1))


def refused(call: Callable[[], Any]) -> str:
    """The message of the ClientException that the call is answered with."""
    with pytest.raises(ClientError) as caught:
        call()
    response = caught.value.response
    assert response["Error"]["Code"] == "ClientException"
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return str(response["Error"]["Message"])


def no_traceback(endpoint: Endpoint) -> None:
    """The endpoint is well, and has not said anything that is for its authors only."""
    assert endpoint.process.poll() is None
    assert "Traceback" not in endpoint.said.read_text()


def stays(look: Callable[[], Any], expected: Any, for_s: float = 0.5) -> None:
    """What is so, and is still so a while later."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert look() == expected
        time.sleep(0.05)
