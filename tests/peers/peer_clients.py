"""A client of another project: its environment, its folder, its AWS Batch calls, its jobs."""

from __future__ import annotations

import hashlib
import http.client
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from emulator_endpoint import Endpoint

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IMAGE = "batchyard-peers:latest"
QUEUE = "peers"
#: folder of a client's home in PATH of its jobs
PROGRAMS = "programs"
STATES = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING", "SUCCEEDED", "FAILED")
#: of a whole workflow, on a busy machine
WITHIN_S = 1200


class CountedCalls:
    """A proxy that passes requests on to the endpoint unchanged and counts the AWS Batch calls.

    Clients use the proxy for AWS Batch (AWS_ENDPOINT_URL_BATCH), and the endpoint for the rest.
    """

    def __init__(self, url: str) -> None:
        self.by_operation: Counter[str] = Counter()
        self._lock = threading.Lock()
        address = urlsplit(url).netloc
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with outer._lock:
                    outer.by_operation[self.path.rpartition("/")[2]] += 1
                connection = http.client.HTTPConnection(address, timeout=60)
                try:
                    connection.request("POST", self.path, body, dict(self.headers.items()))
                    answer = connection.getresponse()
                    content = answer.read()
                finally:
                    connection.close()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("date", "server", "connection"):
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing: the calls are only counted."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@dataclass
class Peer:
    endpoint: Endpoint
    #: of the environment that the client is installed in
    python: Path
    #: where its workflow lies, and where it runs
    folder: Path
    counted: CountedCalls
    path: dict[str, str]

    @staticmethod
    def install(folder: Path, requirements: Path) -> Path:
        """Return the Python of the virtual environment with these requirements.

        The environment is made anew if the requirements have changed.
        """
        digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
        stamp, python = folder / ".installed", folder / "bin" / "python"
        if not stamp.exists() or stamp.read_text() != digest:
            subprocess.run(
                [sys.executable, "-m", "venv", "--clear", folder], check=True, timeout=300
            )
            install = [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "-r",
                requirements,
            ]
            subprocess.run(install, check=True, timeout=1200)
            stamp.write_text(digest)
        return python

    def run(
        self, *command: str, stdin: int = subprocess.DEVNULL, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the client, with the variables that `batchyard emulate` prints."""
        environ = {
            **self.endpoint.environ,
            **self.path,
            "AWS_ENDPOINT_URL_BATCH": self.counted.url,
            "HOME": str(self.folder),
            **variables,
        }
        program = self.python.with_name(command[0])
        return subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=environ,
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )

    def jobs(self, queue: str = QUEUE) -> list[Any]:
        """Wait for the end of all jobs of the queue, and return their descriptions.

        A client may exit before its jobs end.
        """
        pages = self.endpoint.batch.get_paginator("list_jobs")
        ids = [
            job["jobId"]
            for state in STATES
            for page in pages.paginate(jobQueue=queue, jobStatus=state)
            for job in page["jobSummaryList"]
        ]
        # One that went on to its next state in between may be found twice.
        return [self.endpoint.wait(job_id) for job_id in dict.fromkeys(ids)]

    def objects(self, prefix: str, bucket: str = "peers") -> dict[str, bytes]:
        """What lies in the bucket, key -> content."""
        s3 = self.endpoint.client("s3")
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
        return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


@contextmanager
def opened(client: str, runner: str, folder: Path) -> Iterator[Peer]:
    """A client from PyPI that knows the address of an endpoint with a queue and a bucket."""
    python = Peer.install(
        ROOT / ".cache" / "peers" / client, HERE / "requirements" / f"{client}.txt"
    )
    # Jobs that run as processes use the programs of this environment, including python, and those
    # that a workflow writes.
    folders = (str(folder / client / PROGRAMS), str(python.parent), os.environ["PATH"])
    path = {"PATH": os.pathsep.join(folders)}
    size = ("--cpus", "4", "--memory", "16GiB", "--gpus", "0")
    endpoint = Endpoint(
        folder / "endpoint", "--runner", runner, *size, environ={**path, "TMPDIR": str(folder)}
    )
    try:
        endpoint.queue(QUEUE, endpoint.environment("cpu"))
        s3 = endpoint.client("s3")
        s3.create_bucket(Bucket="peers")
        # Snakemake's storage removes a bucket that it leaves empty.
        s3.put_object(Bucket="peers", Key="kept", Body=b"")
        counted = CountedCalls(endpoint.url)
        try:
            home = folder / client
            home.mkdir()
            yield Peer(endpoint, python, home, counted, path)
        finally:
            counted.stop()
    finally:
        endpoint.stop()


def make_image() -> subprocess.CompletedProcess[str]:
    """The image that jobs of redun and Metaflow run in, unless it is there."""
    return subprocess.run([ROOT / ".ci/peers-image"], capture_output=True, text=True, timeout=1200)


def said(done: subprocess.CompletedProcess[str]) -> str:
    return f"exit code {done.returncode}\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
