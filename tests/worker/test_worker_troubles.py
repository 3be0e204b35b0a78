"""Workers in trouble: reclaims, signals, cut connections, a kill at the worst moment, no rights."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cutting_proxy import cutting
from emulator_endpoint import BATCHYARD, Endpoint, until
from worker_scene import Scene, exit_codes

import prestarted

#: counts, from the number in `state` if there is one; on SIGTERM it saves the number and exits 0
COUNTER = """
n=$(cat ckpt/state 2>/dev/null || echo 0); mkdir -p ckpt; echo "from $n" >> $KEEP/began
trap 'echo $n > ckpt/state; exit 0' TERM
if [ "$n" -gt 0 ]; then echo "$n" > out.txt; exit 0; fi
while true; do n=$((n + 1)); touch $KEEP/counting; sleep 0.05; done
"""


def wait_for(path: Path, within_s: float = 300) -> None:
    until(path.exists, bool, within_s)


# -- reclaims --------------------------------------------------------------------------------------


def test_a_reclaimed_child_goes_on_where_it_was(scene: Scene) -> None:
    commands = ["echo first >> $KEEP/began", COUNTER]
    address = scene.orders(commands, attempts=3, checkpoint=["ckpt/**"], outputs=["out.txt"])
    job_id = scene.submit(address, attempts=3)
    wait_for(scene.folder / "counting")
    reclaim(scene.endpoint, job_id)
    job = scene.endpoint.wait(job_id)
    assert job["status"] == "SUCCEEDED"
    # The first attempt has saved its work by itself, and stayed until the end of its host.
    assert len(job["attempts"]) == 2
    count = int(scene.files()["out.txt"])
    assert count > 0
    assert scene.kept_lines("began") == ["first", "from 0", f"from {count}"]
    assert scene.done() == [0, 1]
    markers = [name for name in scene.names("checkpoint/s/0/") if name.endswith(".json")]
    assert len(markers) == 1
    assert json.loads(scene.get(f"checkpoint/s/0/{markers[0]}"))["files"] == ["ckpt/state"]


def reclaim(endpoint: Endpoint, job_id: str) -> None:
    done = prestarted.run(
        [BATCHYARD, "emulate", "reclaim", job_id, "--notice", "6", "--endpoint", endpoint.url],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


class HostWithNotice:
    """The metadata service of a host that has a notice, and is replaced at its deadline.

    The time of the notice begins when somebody asks: a busy machine may start a worker late.
    """

    def __init__(self, notice_s: int) -> None:
        self.notice_s = notice_s
        self.end_s = 0

    @contextmanager
    def serve(self) -> Iterator[str]:
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.answer(200, b"token")

            def do_GET(self) -> None:
                host.end_s = host.end_s or int(time.time()) + host.notice_s
                end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(host.end_s))
                notice = json.dumps({"action": "terminate", "time": end}).encode()
                self.answer(*((200, notice) if time.time() < host.end_s else (404, b"")))

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()
                thread.join()


#: ends by itself only if the first notice does not come in time
LONG_COMMAND = "echo began >> $KEEP/began; test $AWS_BATCH_JOB_ATTEMPT != 1 || sleep 600"


@pytest.mark.slow
def test_one_notice_costs_one_attempt(scene: Scene) -> None:
    with HostWithNotice(4).serve() as address:
        job = scene.run(
            scene.orders(command=LONG_COMMAND, attempts=3),
            attempts=3,
            AWS_EC2_METADATA_SERVICE_ENDPOINT=address,
        )
    assert exit_codes(job) == [75, 0]


def test_a_worker_that_waits_for_the_end_of_its_host_obeys_a_signal(scene: Scene) -> None:
    with HostWithNotice(3600).serve() as address:
        worker = scene.direct(
            scene.orders(command=LONG_COMMAND, attempts=3),
            AWS_BATCH_JOB_ATTEMPT="1",
            AWS_EC2_METADATA_DISABLED="false",
            AWS_EC2_METADATA_SERVICE_ENDPOINT=address,
        )
        assert worker.stderr is not None
        assert "stays on this host for 1" in next(
            line for line in worker.stderr if "stays on this host" in line
        )
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=300) == 75
        worker.communicate()


def test_a_worker_does_not_wait_for_its_host_until_its_timeout(scene: Scene) -> None:
    # After a timeout AWS Batch would make no other attempt.
    with HostWithNotice(3600).serve() as address:
        worker = scene.direct(
            scene.orders(command=LONG_COMMAND, attempts=3),
            AWS_BATCH_JOB_ATTEMPT="1",
            AWS_EC2_METADATA_DISABLED="false",
            AWS_EC2_METADATA_SERVICE_ENDPOINT=address,
            BATCHYARD_TIMEOUT_S="11",
        )
        _, output = worker.communicate(timeout=300)
    assert worker.returncode == 75, output


def test_a_checkpoint_that_was_not_saved_whole_is_not_used(scene: Scene) -> None:
    scene.put("checkpoint/s/0/20250101T000000Z-01/ckpt/state", b"7")
    scene.put(
        "checkpoint/s/0/20250101T000000Z-01.json",
        json.dumps({"command": 0, "attempt": 1, "files": ["ckpt/state"]}).encode(),
    )
    scene.put("checkpoint/s/0/20250102T000000Z-02/ckpt/state", b"999")  # and no record of it
    job = scene.run(scene.orders(command=COUNTER, checkpoint=["ckpt/**"], outputs=["out.txt"]))
    assert job["status"] == "SUCCEEDED"
    assert scene.files() == {"out.txt": "7\n"}


def test_a_checkpoint_is_for_the_command_that_it_is_of(scene: Scene) -> None:
    scene.put("checkpoint/s/0/20250101T000000Z-01/ckpt/state", b"7")
    scene.put(
        "checkpoint/s/0/20250101T000000Z-01.json",
        json.dumps({"command": 1, "attempt": 1, "files": ["ckpt/state"]}).encode(),
    )
    look = "ls ckpt 2>/dev/null | wc -l >> $KEEP/seen"
    job = scene.run(scene.orders([look, look, look], checkpoint=["ckpt/**"]))
    assert job["status"] == "SUCCEEDED"
    assert scene.kept_lines("seen") == ["0", "1", "1"]


# -- signals ---------------------------------------------------------------------------------------


def test_a_terminated_job_saves_and_is_not_taken_for_done(scene: Scene) -> None:
    job_id = scene.submit(
        scene.orders(command=COUNTER, attempts=3, checkpoint=["ckpt/**"]), attempts=3
    )
    wait_for(scene.folder / "counting")
    scene.endpoint.batch.terminate_job(jobId=job_id, reason="enough")
    job = scene.endpoint.wait(job_id)
    assert (job["status"], job["statusReason"]) == ("FAILED", "enough")
    assert exit_codes(job) == [75]
    assert any(name.endswith("/ckpt/state") for name in scene.names("checkpoint/s/0/"))
    assert scene.done() == []


@pytest.mark.slow
def test_a_command_that_does_not_listen_is_ended_in_time_to_save(scene: Scene) -> None:
    command = (
        "trap '' TERM; mkdir ckpt; echo 41 > ckpt/state; touch $KEEP/begun; "
        "while true; do sleep 0.1; done"
    )
    worker = scene.direct(
        scene.orders(command=command, attempts=2, checkpoint=["ckpt"]), BATCHYARD_STOP_S="12"
    )
    wait_for(scene.folder / "begun")
    worker.send_signal(signal.SIGTERM)
    _, said = worker.communicate(timeout=300)
    assert worker.returncode == 75, said
    assert "saved 1 file of command 0" in said
    assert "stopped by SIGTERM; asks for another attempt" in said
    assert [name.split("/", 1)[1] for name in scene.names("checkpoint/s/0/") if "/" in name] == [
        "ckpt/state"
    ]


def test_a_signal_while_inputs_come_ends_the_worker_at_once(scene: Scene) -> None:
    scene.put("ws/in", b"x" * 100_000)
    reached = threading.Event()
    released = threading.Event()

    def allows(number: int, to_server: bytes, to_client: int) -> bool:
        if b"/ws/in" in to_server and b"GET" in to_server and b"list-type" not in to_server:
            reached.set()
            released.wait(300)
        return True

    with cutting(scene.endpoint.url, allows) as proxy:
        worker = scene.direct(
            scene.orders(command="touch $KEEP/ran", inputs=["in"]), AWS_ENDPOINT_URL_S3=proxy.url
        )
        assert reached.wait(300)
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=300)
        released.set()
    assert worker.returncode == 75, said
    assert scene.kept_lines("ran") == []
    assert "Traceback" not in said


def test_the_rules_may_say_that_a_reclaim_is_the_end(scene: Scene) -> None:
    command = "touch $KEEP/begun; sleep 60"
    worker = scene.direct(scene.orders(command=command, attempts=2, fail_on=["spot"]))
    wait_for(scene.folder / "begun")
    worker.send_signal(signal.SIGTERM)
    _, said = worker.communicate(timeout=300)
    assert worker.returncode == 143, said


def wait_until_taken(pid: int, signum: signal.Signals, within_s: float = 300) -> None:
    """Wait until the signal is pending no more, then a moment for Python's own handler."""
    deadline_s = time.monotonic() + within_s
    while True:
        status = Path(f"/proc/{pid}/status").read_text()
        masks = re.findall(r"(?m)^(?:Sig|Shd)Pnd:\s+([0-9a-f]+)$", status)
        if not any(int(mask, 16) >> (signum - 1) & 1 for mask in masks):
            break
        assert time.monotonic() < deadline_s, status
        time.sleep(0.01)
    time.sleep(0.5)


def test_a_command_that_is_done_when_the_signal_comes_is_recorded(scene: Scene) -> None:
    """SIGTERM during the upload of outputs: it is finished, and the work is not repeated."""
    reached = threading.Event()
    released = threading.Event()

    def allows(number: int, to_server: bytes, to_client: int) -> bool:
        if b"PUT " in to_server and b"/ws/out" in to_server:
            reached.set()
            released.wait(300)
        return True

    with cutting(scene.endpoint.url, allows) as proxy:
        commands = ["echo done > out", "echo never > $KEEP/ran"]
        worker = scene.direct(
            scene.orders(commands, attempts=2, outputs=["out"]), AWS_ENDPOINT_URL_S3=proxy.url
        )
        assert reached.wait(300)
        worker.send_signal(signal.SIGTERM)
        wait_until_taken(worker.pid, signal.SIGTERM)
        released.set()
        _, said = worker.communicate(timeout=300)
    assert worker.returncode == 75, said
    assert scene.files() == {"out": "done\n"}
    assert scene.done() == [0]
    assert scene.kept_lines("ran") == []


# -- S3 --------------------------------------------------------------------------------------------


def test_cut_connections_are_mended(scene: Scene) -> None:
    """Every third connection is cut somewhere, both ways, and all files are right all the same."""
    data = {
        f"ws/in/{n}": os.urandom(size) for n, size in enumerate([1, 70_000, 300_000, 20_000_000])
    }
    for name, content in data.items():
        scene.put(name, content)
    dice = random.Random(7)
    limits: dict[int, int] = {}

    def allows(number: int, to_server: bytes, to_client: int) -> bool:
        limit = limits.setdefault(number, dice.randrange(200_000) if number % 3 == 0 else 1 << 60)
        return to_client <= limit and not (to_server and number % 7 == 2)

    with cutting(scene.endpoint.url, allows) as proxy:
        address = scene.orders(["cp -r in out"], inputs=["in/**"], outputs=["out/**"])
        job = scene.run(address, AWS_ENDPOINT_URL_S3=proxy.url)
    assert job["status"] == "SUCCEEDED", scene.logs(job["jobId"])
    assert proxy.cuts >= 3
    assert {name: scene.get(name.replace("/in/", "/out/")) for name in data} == data
    assert scene.done() == [0]


def test_a_worker_killed_between_output_and_record_does_it_again(scene: Scene) -> None:
    """The record is written last: without it the command is not done, whatever else exists."""
    killed: list[int] = []

    def allows(number: int, to_server: bytes, to_client: int) -> bool:
        if not killed and b"PUT " in to_server and b"/done/" in to_server:
            killed.append(int((scene.folder / "worker").read_text()))
            assert scene.files() == {"out": "attempt 1\n"}
            os.kill(killed[0], signal.SIGKILL)
            return False
        return True

    command = (
        "echo $PPID > $KEEP/worker; echo x >> $KEEP/ran; echo attempt $AWS_BATCH_JOB_ATTEMPT > out"
    )
    with cutting(scene.endpoint.url, allows) as proxy:
        orders = scene.orders([command], attempts=2, outputs=["out"])
        # 137 is not asked for by the worker: here the definition retries whatever happens.
        variables = {
            "AWS_ENDPOINT_URL_S3": proxy.url,
            "BATCHYARD_ORDERS": orders,
            "KEEP": scene.folder,
            "TMPDIR": scene.temporary,
        }
        environ = [f"{name}={value}" for name, value in variables.items()]
        job_id = scene.endpoint.submit(
            scene.definition("env", *environ), retryStrategy={"attempts": 2}
        )
        job = scene.endpoint.wait(job_id)
    assert killed
    assert exit_codes(job) == [137, 0]
    assert len(list(scene.temporary.iterdir())) == 1  # only who is killed leaves a folder
    assert scene.kept_lines("ran") == ["x", "x"]
    assert scene.files() == {"out": "attempt 2\n"}
    assert scene.done() == [0]


@pytest.mark.parametrize(
    ("environ", "code", "said"),
    [
        (
            {"BATCHYARD_ORDERS": "s3://no-such-bucket/orders.json"},
            72,
            "there is no bucket no-such-bucket",
        ),
        (
            {"BATCHYARD_ORDERS": "s3://yard/no/such/orders.json"},
            72,
            "could not read the orders s3://yard/no/such/",
        ),
        ({"BATCHYARD_ORDERS": ""}, 78, "BATCHYARD_ORDERS is not set"),
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "x"}, 78, "AWS_BATCH_JOB_ARRAY_INDEX is 'x'"),
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "9"}, 78, "have no child 9"),
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            77,
            "no AWS credentials; give the job definition",
        ),
        ({"BATCHYARD_WORKDIR": "/proc/nowhere"}, 71, "/proc/nowhere"),
        ({"TMPDIR": "/proc/nowhere", "BATCHYARD_STOP_S": "soon"}, 78, "BATCHYARD_STOP_S is 'soon'"),
    ],
)
def test_what_is_wrong_around_it_is_one_sentence_and_no_request_for_a_retry(
    scene: Scene, environ: dict[str, str], code: int, said: str
) -> None:
    worker = scene.direct(scene.orders(command="true"), **environ)
    out, err = worker.communicate(timeout=300)
    assert (worker.returncode, out) == (code, ""), err
    (line,) = err.splitlines()
    assert line.startswith("batchyard-worker: ")
    assert said in line


@pytest.mark.parametrize(
    ("environ", "code"),
    [
        ({"BATCHYARD_ORDERS": "s3://yard/no/such/orders.json"}, 72),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, 77),
        ({"BATCHYARD_WORKDIR": "/proc/nowhere"}, 71),
    ],
)
def test_an_error_of_the_worker_is_retried_until_the_last_attempt(
    scene: Scene, environ: dict[str, str], code: int
) -> None:
    variables = {"BATCHYARD_RETRIED_ERRORS": "70,71,72,77", "BATCHYARD_ATTEMPTS": "2", **environ}
    orders = scene.orders(command="true", attempts=2, retries=1)
    first = scene.direct(orders, **variables, AWS_BATCH_JOB_ATTEMPT="1")
    _, err = first.communicate(timeout=300)
    assert first.returncode == 75, err
    assert err.splitlines()[-1].endswith(
        f"the rules retry exit code {code}; asks for another attempt"
    )
    last = scene.direct(orders, **variables, AWS_BATCH_JOB_ATTEMPT="2")
    _, err = last.communicate(timeout=300)
    assert last.returncode == code, err


@contextmanager
def answering(status: int, code: str) -> Iterator[str]:
    """An S3 that says the same to everything."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_access_denied_names_the_missing_action(scene: Scene) -> None:
    with answering(403, "AccessDenied") as address:
        worker = scene.direct("s3://yard/runs/a/orders.json", AWS_ENDPOINT_URL_S3=address)
        _, said = worker.communicate(timeout=300)
    assert worker.returncode == 77
    assert (
        "allow s3:GetObject on arn:aws:s3:::yard/runs/a/orders.json in the job role's policy"
        in said
    )


@pytest.mark.slow
def test_an_s3_that_stays_broken_is_asked_patiently_and_then_another_attempt_is(
    scene: Scene,
) -> None:
    with answering(503, "SlowDown") as address:
        began = time.monotonic()
        worker = scene.direct("s3://yard/runs/a/orders.json", AWS_ENDPOINT_URL_S3=address)
        _, said = worker.communicate(timeout=300)
    assert worker.returncode == 75
    assert "SlowDown" in said
    assert time.monotonic() - began > 2
