"""`batchyard emulate`: builds the endpoint, serves it and runs its jobs until a signal comes."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from batchyard.batch.jobs import Resources
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded.lock import RunLock
from batchyard.embedded.loop import Loop
from batchyard.embedded.machine import allow_open_files
from batchyard.embedded.processes import ProcessRunner
from batchyard.embedded.runner import Runner
from batchyard.embedded.spawner import Spawner
from batchyard.embedded.store import Store
from batchyard.emulator import access, http_server, restoring
from batchyard.emulator.docker_flags import Volume
from batchyard.emulator.endpoint import Endpoint
from batchyard.emulator.faults import FaultInjector
from batchyard.emulator.http_application import METADATA_PATH, HttpApplication
from batchyard.emulator.job_reporter import JobReporter
from batchyard.emulator.job_tasks import ContainerTasks, TaskSettings, inherited_environment
from batchyard.emulator.log_files import LogFiles
from batchyard.emulator.log_times import TimedLogBook
from batchyard.emulator.state import EndpointState
from batchyard.errors import InputError, RunLockedError, from_os_error
from batchyard.folder import RunFolder, emulator_in

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Open files that each child needs, and the endpoint with its connections.
_FILES_PER_VCPU, _ENDPOINT_FILES = 6, 512
_TOKEN_KEY, _SALT_KEY = "token", "salt"


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    home: Path
    host: str
    port: int
    region: str
    capacity: Resources
    gpu_numbers: tuple[int, ...]
    #: Number of emulated GPUs, which are the last ones of ``gpu_numbers``.
    emulated_gpus: int
    #: "process" or "docker"
    runner: str
    #: The access key that clients must use; None for an endpoint on loopback.
    token: str | None
    faults: FaultInjector | None = None
    #: Volumes of every container.
    volumes: tuple[Volume, ...] = ()


def serve(
    options: EndpointOptions,
    environ: Mapping[str, str],
    on_ready: Callable[[dict[str, str]], None],
    report: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM.

    ``on_ready`` is called with the environment variables that clients need, ``report`` with a line
    about each event. Raises InputError for options that do not fit, RunLockedError if another
    endpoint uses the same home.
    """
    _check_token(options)
    _check_volumes(options)
    folder = RunFolder(emulator_in(options.home).absolute())
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise from_os_error(exc, "make", folder.path) from exc
    try:
        lock = RunLock(folder.lock)
    except RunLockedError as exc:
        raise RunLockedError(
            f"another endpoint serves from {folder.path}", hint="stop it, or give another --home"
        ) from exc
    try:
        _serve(options, folder, environ, on_ready, report)
    finally:
        lock.release()


def _serve(
    options: EndpointOptions,
    folder: RunFolder,
    environ: Mapping[str, str],
    on_ready: Callable[[dict[str, str]], None],
    report: Callable[[str], None],
) -> None:
    from batchyard.emulator import moto_adapter

    allow_open_files(options.capacity.vcpus * _FILES_PER_VCPU + _ENDPOINT_FILES)
    store = Store.open(folder.database, create=True)
    token, salt = _identity(store)
    with http_server.listen(options.host, options.port) as listener:
        address = http_server.address_of(listener)
        client_variables = _client_variables(options, address)
        metadata_path = f"{METADATA_PATH}{secrets.token_hex(8)}"
        logs = TimedLogBook(folder)
        spawner = Spawner(logs)
        runner = _make_runner(options, spawner, folder, token, environ)
        try:
            runner.end_leftovers(token)
            settings = TaskSettings(
                environ=inherited_environment(environ, os.path.dirname(sys.executable)),
                client_variables=client_variables,
                metadata_address=f"{address}{metadata_path}",
                token=token,
                salt=salt,
                gpu_numbers=options.gpu_numbers,
                emulated_gpus=options.emulated_gpus,
                read_secret=lambda value_from: moto_adapter.read_secret(value_from, options.region),
                has_images=options.runner == "docker",
                volumes=options.volumes,
            )
            reporter = JobReporter(report)
            scheduler = Scheduler([], [], machine=options.capacity)
            loop = Loop(scheduler, runner, store, logs, reporter)
            state = _make_state(options, scheduler, loop, store, LogFiles(folder), settings)
            with runner.lock:
                restoring.restore(state)
            endpoint = Endpoint(state, f"{metadata_path}/", client_variables)
            reporter.attach(state, endpoint.end_reclaimed)
            moto_adapter.use_batch(endpoint.perform_batch)
            application = HttpApplication(
                endpoint, moto_adapter.application(), options.token, options.faults
            )
            server = http_server.make(listener, application)
            _run(loop, server, spawner, lambda: on_ready(client_variables))
        finally:
            runner.close()
            logs.close()
            store.close()


def _run(
    loop: Loop, server: BaseWSGIServer, spawner: Spawner, on_ready: Callable[[], None]
) -> None:
    stopping = threading.Event()

    def stop(signum: int, frame: FrameType | None) -> None:
        stopping.set()

    signals = (signal.SIGINT, signal.SIGTERM)
    old_handlers = {number: signal.signal(number, stop) for number in signals}
    old_fd = signal.set_wakeup_fd(spawner.wake_fd, warn_on_full_buffer=False)
    thread = threading.Thread(target=server.serve_forever, name="server", daemon=True)
    try:
        thread.start()
        on_ready()
        loop.run(stopping.is_set)
    finally:
        signal.set_wakeup_fd(old_fd)
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        server.shutdown()
        thread.join(5)
        server.server_close()


# -- options --------------------------------------------------------------------------------------


def _check_token(options: EndpointOptions) -> None:
    if options.host not in _LOOPBACK and not options.token:
        raise InputError(
            f"--host {options.host} would let others run commands on this machine",
            hint="give a secret with --token, which clients then use as their access key, "
            "or leave --host out",
        )
    if options.token is not None and not access.is_usable_token(options.token):
        raise InputError(
            "--token cannot be an access key: letters, digits and any of _ . ~ + = - are allowed",
            hint="make one with `openssl rand -hex 16`",
        )


def _check_volumes(options: EndpointOptions) -> None:
    if options.volumes and options.runner != "docker":
        raise InputError(
            "--volume is for jobs that are containers: a process sees the whole machine",
            hint="add --runner docker, or leave --volume out",
        )
    for volume in options.volumes:
        if not os.path.exists(volume.source):
            raise InputError(
                f"--volume: {volume.source} does not exist",
                hint="create it first, or name another folder",
            )


# -- parts ----------------------------------------------------------------------------------------


def _identity(store: Store) -> tuple[str, str]:
    """Return the mark of all processes of this endpoint, and the salt of its task ids.

    Both stay the same after a restart.
    """
    token = store.value(_TOKEN_KEY) or f"by{secrets.token_hex(16)}"
    salt = store.value(_SALT_KEY) or secrets.token_hex(8)
    store.commit(values=[(_TOKEN_KEY, token), (_SALT_KEY, salt)])
    return token, salt


def _client_variables(options: EndpointOptions, address: str) -> dict[str, str]:
    """Return the environment variables of clients and jobs."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": options.token or "batchyard",
        "AWS_SECRET_ACCESS_KEY": "batchyard",
        "AWS_DEFAULT_REGION": options.region,
        "AWS_REGION": options.region,
    }


def _make_state(
    options: EndpointOptions,
    scheduler: Scheduler,
    loop: Loop,
    store: Store,
    log_files: LogFiles,
    settings: TaskSettings,
) -> EndpointState:
    from batchyard.emulator import instance_types

    return EndpointState(
        scheduler=scheduler,
        loop=loop,
        store=store,
        log_files=log_files,
        region=options.region,
        machine=options.capacity,
        instance_resources=instance_types.registered_resources,
        family_types=instance_types.types_of_family,
        task_maker=lambda number, document: ContainerTasks(number, document, settings),
        salt=settings.salt,
    )


def _make_runner(
    options: EndpointOptions,
    spawner: Spawner,
    folder: RunFolder,
    token: str,
    environ: Mapping[str, str],
) -> Runner:
    if options.runner != "docker":
        return ProcessRunner(spawner, enforces_memory=True)
    from batchyard.embedded import containers, docker

    place = docker.ContainerDefaults("emulator", token, Path.cwd(), folder.lists)
    return containers.ContainerRunner(spawner, place, environ)
