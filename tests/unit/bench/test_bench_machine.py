"""What is recorded about a machine: /proc, nvidia-smi and the metadata service, understood."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from bench_values import with_numpy

from batchyard.bench import machine, memory
from batchyard.bench.metadata import instance_type

CPUINFO = """processor\t: 0
model name\t: Intel(R) Xeon(R) Platinum 8488C
cpu MHz\t\t: 2400.000
processor\t: 1
model name\t: Intel(R) Xeon(R) Platinum 8488C
cpu MHz\t\t: 3800.125
"""


def test_the_processor() -> None:
    assert machine.cpu_model(CPUINFO) == "Intel Xeon Platinum 8488C"
    assert machine.cpu_clock_mhz(CPUINFO) == 3800.125
    assert machine.cpu_model("") and machine.cpu_clock_mhz("") is None


def test_gpus() -> None:
    message = (
        "Tesla T4, 535.104.05, 15360 MiB, 300 MHz, 1590 MHz, 405 MHz, 70.00 W\n\nbroken, line\n"
    )
    (gpu,) = machine.parse_gpus(message)
    assert (
        gpu["name"] == "Tesla T4"
        and gpu["driver_version"] == "535.104.05"
        and gpu["clocks.max.sm"] == "1590 MHz"
    )


def test_what_is_recorded() -> None:
    facts = machine.describe(with_numpy(), 3, True, {"OMP_NUM_THREADS": "3", "HOME": "/home/me"})
    assert facts["threads"] == 3 and facts["thread_variables"] == {"OMP_NUM_THREADS": "3"}
    assert facts["cpus"] >= 1 and "NumPy" in facts["libraries"] and "kept" in facts["malloc"]
    assert "/home/me" not in str(facts)


def test_memory() -> None:
    assert memory.meminfo_bytes("MemTotal: 5 kB\nMemAvailable:  7 kB\n", "MemAvailable") == 7168
    assert memory.meminfo_bytes("", "MemAvailable") is None
    assert (
        memory.cgroup_free_bytes("100\n", "30\n") == 70
        and memory.cgroup_free_bytes("max\n", "30\n") is None
    )
    assert memory.cgroup_free_bytes("", "") is None and memory.cgroup_free_bytes("10", "30") == 0
    assert (memory.available_bytes() or 0) > 2**20


def test_the_peak_is_of_what_came_after_the_reset() -> None:
    memory.reset_peak()
    peak_before_bytes = memory.peak_bytes()
    held = bytearray(64 * 2**20)
    peak_after_bytes = memory.peak_bytes()
    assert (
        peak_before_bytes and peak_after_bytes and peak_after_bytes - peak_before_bytes > 48 * 2**20
    )
    del held


class Metadata(BaseHTTPRequestHandler):
    """IMDSv2: no answer without a token."""

    answer = "g5.xlarge"

    def do_PUT(self) -> None:
        self._answer(200, "a-token" if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else "")

    def do_GET(self) -> None:
        is_allowed = self.headers["X-aws-ec2-metadata-token"] == "a-token"
        self._answer(
            200 if is_allowed and self.path == "/latest/meta-data/instance-type" else 401,
            self.answer,
        )

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_instance_type_is_asked_for(endpoint: str) -> None:
    assert instance_type({"AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint}) == "g5.xlarge"


def test_where_nobody_answers_it_is_not_known(endpoint: str) -> None:
    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint}
    assert instance_type({**environ, "AWS_EC2_METADATA_DISABLED": "true"}) is None
    assert instance_type({"AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint + "/elsewhere"}) is None
    assert instance_type({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}) is None
    # On other machines than Amazon's nobody is asked.
    assert instance_type({}, vendor="Some Maker") is None


def test_of_two_jobs_of_one_run_one_waits(tmp_path: Path) -> None:
    waited: list[str] = []
    seen: list[str] = []

    may_end = threading.Event()

    def waits() -> None:
        waited.append("second")
        may_end.set()

    def second() -> None:
        with machine.one_job_at_a_time("r", waits, tmp_path):
            seen.append("second")

    with machine.one_job_at_a_time("r", lambda: waited.append("first"), tmp_path):
        other = threading.Thread(target=second)
        other.start()
        assert may_end.wait(300)
        seen.append("first")
    other.join(300)
    assert (waited, seen) == (["second"], ["first", "second"])
    assert list(tmp_path.iterdir()) == []


def test_jobs_of_two_runs_do_not_wait_for_each_other(tmp_path: Path) -> None:
    waited: list[str] = []
    with (
        machine.one_job_at_a_time("a", lambda: None, tmp_path),
        machine.one_job_at_a_time("b", lambda: waited.append("b"), tmp_path),
    ):
        assert waited == []


def test_where_no_lock_can_be_made_it_goes_on(tmp_path: Path) -> None:
    with machine.one_job_at_a_time("r", lambda: None, tmp_path / "nowhere"):
        pass
