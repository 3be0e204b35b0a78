"""A worker that is not told which child it is finds out which task of ECS it is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from batchyard.worker.errors import EXIT_RETRY, WorkerError
from batchyard.worker.orders import Child
from batchyard.worker.task_identity import identify

ALIKE = Child(position=0, attempt=2, in_array=False, job_id="")


class Metadata(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_task = self.path == "/v4/abc/task"
        self.send_response(200 if is_task else 404)
        self.end_headers()
        arn = "arn:aws:ecs:us-east-1:123456789012:task/lab/0a1b2c"
        self.wfile.write(json.dumps({"TaskARN": arn}).encode())

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v4"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_job_is_the_task_and_the_position_follows_from_it(address: str) -> None:
    child = identify(ALIKE, 10, {"ECS_CONTAINER_METADATA_URI_V4": f"{address}/abc"})
    assert (child.job_id, child.attempt) == ("0a1b2c", 2)
    assert 0 <= child.position < 10


def test_a_child_that_knows_its_job_asks_nobody() -> None:
    child = Child(position=3, attempt=1, in_array=True, job_id="job:3")
    assert identify(child, 10, {"ECS_CONTAINER_METADATA_URI_V4": "http://127.0.0.1:1"}) is child
    assert identify(ALIKE, 10, {}) is ALIKE


def test_an_answer_without_a_task_asks_for_another_attempt(address: str) -> None:
    with pytest.raises(WorkerError, match="could not read the id of this task") as caught:
        identify(ALIKE, 10, {"ECS_CONTAINER_METADATA_URI_V4": f"{address}/unknown"})
    assert caught.value.exit_code == EXIT_RETRY
