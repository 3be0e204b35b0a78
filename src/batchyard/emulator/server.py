"""`batchyard emulate`: builds the endpoint, serves it and runs its jobs until a signal comes."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from batchyard.batch.jobs import Resources
from batchyard.batch.scheduler import Scheduler
from batchyard.embedded.lock import RunLock
from batchyard.embedded.loop import Loop
from batchyard.embedded.machine import allow_open_files
from batchyard.embedded.processes import ProcessRunner
from batchyard.embedded.spawner import Spawner
from batchyard.embedded.store import Store
from batchyard.emulator import access, http_server, log_groups, names, restoring
from batchyard.emulator.docker_flags import Volume
from batchyard.emulator.ecs.container_tasks import EcsContainerTasks
from batchyard.emulator.ecs.job_members import TASK_ID
from batchyard.emulator.ecs.records import EcsState
from batchyard.emulator.ecs.task_events import TaskEvents
from batchyard.emulator.endpoint import Endpoint
from batchyard.emulator.faults import OBSERVER_KEY, FaultInjector, FaultSettings
from batchyard.emulator.http_application import METADATA_PATH, HttpApplication
from batchyard.emulator.job_events import RegionalJobEvents
from batchyard.emulator.job_reporter import JobReporter
from batchyard.emulator.job_tasks import ContainerTasks, TaskSettings, inherited_environment
from batchyard.emulator.log_files import LogFiles
from batchyard.emulator.log_times import PRIVATE_MODE, TimedLogBook
from batchyard.emulator.reclaims import RandomReclaims, Reclaims
from batchyard.emulator.regions import Regions
from batchyard.emulator.state import Document, EndpointState, HostDelays
from batchyard.errors import InputError, RunLockedError, from_os_error
from batchyard.folder import RunFolder, emulator_in

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer

    from batchyard.embedded.containers import ContainerRunner

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Open files that each child needs, and the endpoint with its connections.
_FILES_PER_VCPU, _ENDPOINT_FILES = 6, 512
#: Tasks of ECS may request no vCPUs at all, so their number is not bounded by those.
_FILES_FOR_TASKS = 8192
_REGION_VARIABLES = ("AWS_DEFAULT_REGION", "AWS_REGION")
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
    #: Whether jobs have AWS_REGION and AWS_DEFAULT_REGION.
    has_job_region: bool = False
    faults: FaultSettings = field(default_factory=FaultSettings)
    #: Volumes of every container.
    volumes: tuple[Volume, ...] = ()
    host_delays: HostDelays = field(default_factory=HostDelays)
    #: Reclaims of Spot instances at random; None for none.
    random_reclaims: RandomReclaims | None = None


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
    from batchyard.emulator import moto_adapter, moto_events
    from batchyard.emulator.moto_ecs import MotoSurroundings
    from batchyard.emulator.moto_instances import MotoInstances
    from batchyard.emulator.moto_logs import MotoLogGroups

    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
        # moto makes sessions of boto3 in this process, which fail if the profile does not exist.
        os.environ.pop(name, None)
    needed_files = options.capacity.vcpus * _FILES_PER_VCPU + _ENDPOINT_FILES
    allow_open_files(needed_files, at_best=_FILES_FOR_TASKS)
    _make_private(folder.database)
    store = Store.open(folder.database, create=True)
    # The loop writes beside requests, so it has its own connection to the same file.
    loop_store = Store.open(folder.database)
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
            faults = FaultInjector(options.faults)
            reporter = JobReporter(report)
            scheduler = Scheduler(
                [], [], machine=options.capacity, new_host_id=names.new_instance_id
            )
            loop = Loop(
                scheduler,
                runner,
                loop_store,
                logs,
                reporter,
                commits_beside_turns=True,
                starts_series=options.runner != "docker",
            )
            job_numbers = count(1 + max((row.number for row in store.jobs()), default=-1))

            def task_settings(region: str) -> TaskSettings:
                return TaskSettings(
                    environ=inherited_environment(environ, os.path.dirname(sys.executable)),
                    client_variables=_job_variables(options, client_variables, region),
                    metadata_address=f"{address}{metadata_path}",
                    token=token,
                    salt=salt,
                    gpu_numbers=options.gpu_numbers,
                    emulated_gpus=options.emulated_gpus,
                    read_secret=lambda value_from: moto_adapter.read_secret(value_from, region),
                    open_log_group=lambda job: log_groups.open_for_job(regions.state(region), job),
                    has_images=options.runner == "docker",
                    volumes=options.volumes,
                    faults=faults,
                )

            def make_state(region: str) -> EndpointState:
                settings = task_settings(region)
                return EndpointState(
                    scheduler=scheduler,
                    loop=loop,
                    store=store,
                    log_files=LogFiles(folder),
                    region=region,
                    machine=options.capacity,
                    task_maker=lambda number, document: _make_tasks(number, document, settings),
                    salt=salt,
                    faults=faults,
                    user_log_groups=MotoLogGroups(region),
                    ecs=EcsState(MotoSurroundings(region), runner.probe),
                    host_delays=options.host_delays,
                    zone_of_subnet=lambda subnet: moto_adapter.zone_of_subnet(subnet, region),
                    job_numbers=job_numbers,
                )

            regions = Regions(options.region, make_state)
            with runner.lock:
                restoring.restore(regions)
            reclaims = Reclaims(regions, options.random_reclaims)
            endpoint = Endpoint(
                regions,
                f"{metadata_path}/",
                client_variables,
                reclaims,
                MotoInstances,
                report,
            )
            sender = moto_events.EventSender(report)
            events = RegionalJobEvents(regions, sender.has_rules, sender.send)
            task_events = TaskEvents(regions, sender.has_rules, sender.send)

            def on_tick() -> None:
                endpoint.on_tick()
                task_events.on_tick()

            reporter.attach(regions, on_tick, events.on_changes)
            moto_adapter.use_batch(endpoint.perform_batch)
            moto_adapter.use_ecs(endpoint.perform_ecs)
            moto_adapter.use_endpoint(address, options.token or OBSERVER_KEY)
            application = HttpApplication(
                endpoint,
                moto_adapter.application(),
                options.token,
                faults,
                reset_moto=lambda: _reset_moto(regions),
            )
            server = http_server.make(listener, application)
            _run(loop, server, spawner, lambda: on_ready(client_variables))
        finally:
            runner.close()
            logs.close()
            loop_store.close()
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


def _make_private(path: Path) -> None:
    """Let only this user read the database, in which jobs may have secrets as variables.

    The write-ahead log of SQLite gets the permissions of the database.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_MODE))
        os.chmod(path, PRIVATE_MODE)
    except OSError as exc:
        raise from_os_error(exc, "make", path) from exc


def _identity(store: Store) -> tuple[str, str]:
    """Return the mark of all processes of this endpoint, and the salt of its task ids.

    Both stay the same after a restart.
    """
    token = store.value(_TOKEN_KEY) or f"by{secrets.token_hex(16)}"
    salt = store.value(_SALT_KEY) or secrets.token_hex(8)
    store.commit(values=[(_TOKEN_KEY, token), (_SALT_KEY, salt)])
    return token, salt


def _client_variables(options: EndpointOptions, address: str) -> dict[str, str]:
    """Return the environment variables of clients."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": options.token or "batchyard",
        "AWS_SECRET_ACCESS_KEY": "batchyard",
        **{name: options.region for name in _REGION_VARIABLES},
    }


def _job_variables(
    options: EndpointOptions, client_variables: dict[str, str], region: str
) -> dict[str, str]:
    """Return the variables of clients that the jobs of a region have."""
    variables = {k: v for k, v in client_variables.items() if k not in _REGION_VARIABLES}
    if options.has_job_region:
        variables |= dict.fromkeys(_REGION_VARIABLES, region)
    return variables


def _make_tasks(number: int, document: Document, settings: TaskSettings) -> ContainerTasks:
    make = EcsContainerTasks if TASK_ID in document else ContainerTasks
    return make(number, document, settings)


def _reset_moto(regions: Regions) -> None:
    from batchyard.emulator import moto_adapter
    from batchyard.emulator.moto_logs import MotoLogGroups

    moto_adapter.reset()
    for state in regions.states():
        state.user_log_groups = MotoLogGroups(state.region)


def _make_runner(
    options: EndpointOptions,
    spawner: Spawner,
    folder: RunFolder,
    token: str,
    environ: Mapping[str, str],
) -> ProcessRunner | ContainerRunner:
    if options.runner != "docker":
        return ProcessRunner(spawner, enforces_memory=True)
    from batchyard.embedded import containers, docker

    place = docker.ContainerDefaults("emulator", token, Path.cwd(), folder.lists)
    return containers.ContainerRunner(spawner, place, environ)
