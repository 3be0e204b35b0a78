"""`batchyard emulate`: puts the endpoint together on this machine, serves it, and runs its jobs until it is stopped."""

from __future__ import annotations

import errno
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from batchyard.batch.jobs import JobState, Resources
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded.lock import RunLock
from batchyard.embedded.loop import Loop
from batchyard.embedded.machine import allow_open_files
from batchyard.embedded.processes import ProcessRunner
from batchyard.embedded.runner import Runner, Task
from batchyard.embedded.spawner import Spawner
from batchyard.embedded.store import AttemptRow, JobRow, Store
from batchyard.emulator import access, job_submission
from batchyard.emulator import endpoint as endpoints
from batchyard.emulator.docker_flags import Volume
from batchyard.emulator.endpoint import Endpoint
from batchyard.emulator.faults import Faults
from batchyard.emulator.http_application import METADATA_PATH, Front
from batchyard.emulator.job_tasks import ContainerTasks, Site, inherited
from batchyard.emulator.log_times import TimedLogBook
from batchyard.emulator.state import JOB, Document, EndpointState
from batchyard.errors import InputError, OperationalError, RunLockedError, from_os_error
from batchyard.folder import RunFolder

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: open files: of each child, and of everything else, connections included
_FILES_PER_VCPU, _SPARE_FILES = 6, 512
_TOKEN_KEY, _SALT_KEY = "token", "salt"


@dataclass(frozen=True, slots=True)
class Setting:
    home: Path
    host: str
    port: int
    region: str
    capacity: Resources
    gpu_numbers: tuple[int, ...]
    #: how many of the GPUs are there in name only, the last ones
    pretended_gpus: int
    #: "process" or "docker"
    runner: str
    #: what callers must have as their access key; None on loopback
    token: str | None
    #: trouble on purpose
    faults: Faults | None = None
    #: what every container has of this machine
    volumes: tuple[Volume, ...] = ()


def serve(
    setting: Setting,
    environ: Mapping[str, str],
    ready: Callable[[dict[str, str]], None],
    say: Callable[[str], None],
) -> None:
    """Until SIGINT or SIGTERM. ``ready`` is told the variables that clients need, ``say`` what happens."""
    if setting.host not in _LOOPBACK and not setting.token:
        raise InputError(
            f"--host {setting.host} would let others run commands on this machine",
            hint="give a secret with --token, which clients then use as their access key, or leave --host out",
        )
    if setting.token is not None and not access.is_usable(setting.token):
        raise InputError(
            "--token cannot be an access key: letters, digits and any of _ . ~ + = - are allowed",
            hint="make one with `openssl rand -hex 16`",
        )
    _check_volumes(setting)
    folder = RunFolder((setting.home / "emulator").absolute())
    _make(folder.path)
    try:
        lock = RunLock(folder.lock)
    except RunLockedError as exc:
        raise RunLockedError(
            f"another endpoint serves from {folder.path}", hint="stop it, or give another --home"
        ) from exc
    try:
        _serve(setting, folder, environ, ready, say)
    finally:
        lock.release()


def _serve(
    setting: Setting,
    folder: RunFolder,
    environ: Mapping[str, str],
    ready: Callable[[dict[str, str]], None],
    say: Callable[[str], None],
) -> None:
    from batchyard.emulator import instance_types, moto_adapter

    allow_open_files(setting.capacity.vcpus * _FILES_PER_VCPU + _SPARE_FILES)
    store = Store.open(folder.database, create=True)
    token, salt = _lasting(store)
    with _listening(setting) as listener:
        address = _address(listener)
        aws = _variables(setting, address)
        metadata_path = f"{METADATA_PATH}{secrets.token_hex(8)}"
        logs = TimedLogBook(folder)
        spawner = Spawner(logs)
        runner = _runner(setting, spawner, folder, token, environ)
        try:
            runner.end_leftovers(token)
            here = Site(
                environ=inherited(environ, os.path.dirname(sys.executable)),
                aws=aws,
                metadata_address=f"{address}{metadata_path}",
                token=token,
                salt=salt,
                gpu_numbers=setting.gpu_numbers,
                pretended_gpus=setting.pretended_gpus,
                secret=lambda value_from: moto_adapter.secret(value_from, setting.region),
                has_images=setting.runner == "docker",
                volumes=setting.volumes,
            )
            scheduler = Scheduler([], [], machine=setting.capacity)
            reporter = _Reporter(say)
            loop = Loop(scheduler, runner, store, logs, reporter)
            yard = EndpointState(
                scheduler=scheduler,
                loop=loop,
                store=store,
                region=setting.region,
                machine=setting.capacity,
                instance_type=instance_types.instance_type,
                instance_family=instance_types.instance_family,
                task_maker=lambda number, document: ContainerTasks(number, document, here),
                salt=salt,
            )
            with runner.lock:
                endpoints.restore(yard)
            endpoint = Endpoint(yard, folder, f"{metadata_path}/", aws)
            reporter.attend(yard, endpoint)
            moto_adapter.use_batch(endpoint.batch)
            front = Front(endpoint, moto_adapter.application(), setting.token, setting.faults)
            server = _server(listener, front)
            _run(loop, server, spawner, lambda: ready(aws))
        finally:
            runner.close()
            logs.close()
            store.close()


def _run(loop: Loop, server: BaseWSGIServer, spawner: Spawner, ready: Callable[[], None]) -> None:
    stopping = threading.Event()

    def stop(signum: int, frame: FrameType | None) -> None:
        stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    old_fd = signal.set_wakeup_fd(spawner.wake_fd, warn_on_full_buffer=False)
    thread = threading.Thread(target=server.serve_forever, name="server", daemon=True)
    try:
        thread.start()
        ready()
        loop.run(stopping.is_set)
    finally:
        signal.set_wakeup_fd(old_fd)
        for number, handler in before.items():
            signal.signal(number, handler)
        server.shutdown()
        thread.join(5)
        server.server_close()


class _Reporter:
    """Shows what the endpoint runs: a line for each job that comes, and one for each that ends."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._yard: EndpointState | None = None
        self._endpoint: Endpoint | None = None
        #: jobs whose coming has been told, and of these whose end
        self._told: dict[str, bool] = {}

    def attend(self, yard: EndpointState, endpoint: Endpoint) -> None:
        self._yard, self._endpoint = yard, endpoint
        waiting = sum(not JobState(row.state).is_terminal for row in yard.store.jobs())
        self._told = {row.id: JobState(row.state).is_terminal for row in yard.store.jobs()}
        if waiting:
            self._say(f"goes on with {waiting} {'jobs' if waiting > 1 else 'job'} of before")
        for row in yard.store.jobs():
            if (
                not JobState(row.state).is_terminal
                and (document := yard.get(JOB, row.id)) is not None
            ):
                self._warn(row, document)

    def on_tick(self, changed: list[JobRow]) -> None:
        if self._endpoint is not None:
            self._endpoint.take_hosts()
        for row in changed:
            self._tell(row)

    def on_failure(self, task: Task, row: AttemptRow) -> None:
        """DescribeJobs tells of it."""

    def _tell(self, row: JobRow) -> None:
        assert self._yard is not None
        document = self._yard.get(JOB, row.id)
        if document is None or self._told.get(row.id):
            return
        name = document["jobName"] + (
            f" ({row.size:,} children)" if "arrayProperties" in document else ""
        )
        if row.id not in self._told:
            queue = document["jobQueue"].rpartition("/")[2]
            self._say(f"{row.id}  {name}: submitted to {queue}")
            self._warn(row, document)
        is_over = JobState(row.state).is_terminal
        self._told[row.id] = is_over
        if is_over:
            failed = row.counts[list(JobState).index(JobState.FAILED)]
            how_many = f", {failed:,} failed" if failed and row.size > 1 else ""
            why = (
                f": {row.status_reason}"
                if row.status_reason and row.state == JobState.FAILED
                else ""
            )
            self._say(f"{row.id}  {name}: {row.state}{how_many}{why}")

    def _warn(self, row: JobRow, document: Document) -> None:
        """Of a job that asks for more than there is: it would wait for ever, and nothing else would say so here."""
        assert self._yard is not None
        lack = too_large(job_submission.core(document).resources, self._yard.machine)
        if lack:
            self._say(f"{row.id}  {document['jobName']}: can never be placed here: {lack}")


def too_large(asks: Resources, has: Resources) -> str:
    """What a job asks for that this endpoint has not, and what to do about it; empty where it fits."""
    amounts = (
        ("--cpus", asks.vcpus, has.vcpus, "vCPUs"),
        ("--memory", asks.memory_mib, has.memory_mib, "MiB"),
        ("--gpus", asks.gpus, has.gpus, "GPUs"),
    )
    short = [amount for amount in amounts if amount[1] > amount[2]]
    if not short:
        return ""
    wanted = ", ".join(f"{asked:,} {unit}" for _, asked, _, unit in short)
    there = ", ".join(f"{there:,} {unit}" for _, _, there, unit in short)
    return f"asks {wanted}, this endpoint has {there}; start it with more: {', '.join(flag for flag, *_ in short)}"


# -- parts ------------------------------------------------------------------------------------------------------


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise from_os_error(exc, "make", path) from exc


def _check_volumes(setting: Setting) -> None:
    if setting.volumes and setting.runner != "docker":
        raise InputError(
            "--volume is for jobs that are containers: a process sees the whole machine",
            hint="add --runner docker, or leave --volume out",
        )
    for volume in setting.volumes:
        if not os.path.exists(volume.source):
            raise InputError(
                f"--volume: there is no {volume.source} here",
                hint="make it first, or name another one",
            )


def _lasting(store: Store) -> tuple[str, str]:
    """What marks everything that this endpoint starts, and the end of its task ids: the same after a restart."""
    token = store.value(_TOKEN_KEY) or f"by{secrets.token_hex(16)}"
    salt = store.value(_SALT_KEY) or secrets.token_hex(8)
    store.commit(values=[(_TOKEN_KEY, token), (_SALT_KEY, salt)])
    return token, salt


def _variables(setting: Setting, address: str) -> dict[str, str]:
    """What clients and jobs must have in their environment."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": setting.token or "batchyard",
        "AWS_SECRET_ACCESS_KEY": "batchyard",
        "AWS_DEFAULT_REGION": setting.region,
        "AWS_REGION": setting.region,
    }


@contextmanager
def _listening(setting: Setting) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in setting.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((setting.host, setting.port))
        listener.listen(128)
    except OSError as exc:
        listener.close()
        raise OperationalError(
            f"could not listen on {setting.host}:{setting.port}: {exc.strerror}",
            hint="give another --port, or --port 0 for a free one"
            if exc.errno in (errno.EADDRINUSE, errno.EACCES)
            else "check --host: it must be an address of this machine",
        ) from exc
    with listener:
        yield listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    # Whoever listens everywhere is reached here by loopback.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _runner(
    setting: Setting, spawner: Spawner, folder: RunFolder, token: str, environ: Mapping[str, str]
) -> Runner:
    if setting.runner != "docker":
        return ProcessRunner(spawner, enforces_memory=True)
    from batchyard.embedded import containers, docker

    place = docker.Place("emulator", token, Path.cwd(), folder.lists)
    return containers.ContainerRunner(spawner, place, environ)


def _server(listener: socket.socket, front: Front) -> BaseWSGIServer:
    from werkzeug.serving import make_server

    from batchyard.emulator import moto_adapter

    class Handler(moto_adapter.request_handler()):  # type: ignore[misc]
        #: else "Expect: 100-continue", which comes before each upload to S3, waits for an answer in vain
        protocol_version = "HTTP/1.1"
        #: else the second half of an answer waits for the client's acknowledgement, 40 ms
        disable_nagle_algorithm = True

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Jobs are told of, not requests."""

    host, port = listener.getsockname()[:2]
    return make_server(
        host, port, front, threaded=True, request_handler=Handler, fd=listener.fileno()
    )
