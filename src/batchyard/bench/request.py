"""Carry out a benchmark request: find workloads and devices, and measure one device at a time.

Changes this process: the number of threads of the libraries, and how malloc keeps buffers.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from batchyard import ec2_prices
from batchyard.bench import discovery, machine, memory, metadata
from batchyard.bench.discovery import Device
from batchyard.bench.result_files import ResultFiles
from batchyard.bench.results import Measurement, Results
from batchyard.bench.timing import FULL, QUICK
from batchyard.bench.workload import CPU, GPU, KINDS, Workload
from batchyard.errors import InputError, OperationalError

if TYPE_CHECKING:
    from batchyard.bench.running import Plan

AUTO = "auto"
#: variables that name the run of this job: of `bench submit`, of run-benchmarks.sh
_RUN_VARIABLES = ("BATCHYARD_RUN", "BENCHMARK_RUN")
#: workloads that show the peak rates of a device
_PEAK_WORKLOADS = ("matmul", "triad")


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure, and how."""

    #: cpu, gpu, or auto: both if there is a GPU
    device: str = AUTO
    #: names or patterns of workloads; empty: all
    only: tuple[str, ...] = ()
    #: sizes to measure instead of each workload's own
    sizes: tuple[int, ...] = ()
    quick: bool = False
    #: folder for the results
    out: Path = Path("benchmark")
    #: files with workloads of the user
    files: tuple[Path, ...] = ()
    #: folder of pictures for the workload `images`
    images: Path | None = None
    #: CPU threads; None: one per CPU
    threads: int | None = None
    #: measure every candidate as thoroughly as the fastest
    all_candidates: bool = False
    seed: int = 0
    #: EC2 instance type; None: ask the metadata service
    instance_type: str | None = None
    #: leave malloc's settings unchanged
    plain_malloc: bool = False
    #: largest amount of this machine's memory to use; None: what is free
    memory_mib: int | None = None
    #: if there is no GPU, measure the CPU in its place
    stand_in: bool = False


class ProgressListener(Protocol):
    """Is notified of what happens."""

    def say(self, line: str) -> None: ...

    def on_plan(self, files: ResultFiles, operations: int) -> None: ...

    def on_start(self, operation: str) -> None: ...

    def on_done(self, measurement: Measurement) -> None: ...


@dataclass(frozen=True, slots=True)
class _Workloads:
    selected: list[Workload]
    peaks: list[Workload]


@dataclass(frozen=True, slots=True)
class _Subject:
    """Operations on a device, which may stand in for another kind of device."""

    operations: tuple[tuple[Workload, int], ...]
    device: Device
    stands_for: str = ""


def run_request(
    request: Request,
    environ: Mapping[str, str],
    listener: ProgressListener,
    on_results: Callable[[ResultFiles, Results], None],
    raise_if_stopped: Callable[[], None] = lambda: None,
) -> None:
    """Measure what is requested, and call ``on_results`` for each device.

    ``raise_if_stopped`` raises KeyboardInterrupt if the user wants to stop. Raises InputError if
    the request has a mistake, OperationalError if this machine cannot fulfil it.
    """
    if request.device not in (AUTO, *KINDS):
        raise InputError(
            f"--device {request.device}: there is no such device", hint="use cpu, gpu or auto"
        )
    run = next((environ[name] for name in _RUN_VARIABLES if environ.get(name)), "")
    if not request.stand_in or not run:
        return _run(request, environ, listener, on_results, raise_if_stopped)
    with machine.one_job_at_a_time(
        run, lambda: listener.say("waiting until the other job on this machine has measured")
    ):
        return _run(request, environ, listener, on_results, raise_if_stopped)


def _run(
    request: Request,
    environ: Mapping[str, str],
    listener: ProgressListener,
    on_results: Callable[[ResultFiles, Results], None],
    raise_if_stopped: Callable[[], None],
) -> None:
    begin_s = time.perf_counter()
    threads = request.threads or discovery.cpu_count()
    keeps_buffers = _configure_process(request)
    workloads = _load_workloads(request)
    # Imports NumPy, which reads the number of threads when it is imported.
    from batchyard.bench import running

    instance_type = request.instance_type
    # Where the CPU stands in for a GPU, the metadata service is the emulator's.
    if not instance_type and not request.stand_in:
        instance_type = metadata.instance_type(environ)
    listed = ec2_prices.load_prices()
    for kind in [CPU, GPU] if request.device == AUTO else [request.device]:
        subject = _find_subject(request, kind, workloads, threads, listener)
        if subject is None:
            continue
        files = ResultFiles(request.out, subject.device.kind, subject.stands_for)
        files.prepare()
        for path in files.renamed_files:
            listener.say(f"an older result is kept as {path}")
        description = machine.describe(subject.device, threads, keeps_buffers, environ)
        description["price"] = {"usd_h": listed.of(instance_type), "source": listed.source}
        plan = _make_plan(request, subject)
        listener.on_plan(files, len(plan.operations))
        results = running.run_plan(
            *(plan, workloads.peaks, subject.device, description, instance_type),
            partial(files.write, all_candidates=request.all_candidates),
            listener,
            begin_s,
            raise_if_stopped=raise_if_stopped,
        )
        on_results(files, results)
        begin_s = time.perf_counter()


def _configure_process(request: Request) -> bool:
    """Set threads and memory before NumPy is imported. Returns whether malloc keeps buffers."""
    if request.threads:
        machine.use_threads(request.threads)
    if request.memory_mib is not None:
        memory.limit_to(request.memory_mib * 2**20)
    keeps_buffers = not request.plain_malloc and memory.keep_buffers()
    try:
        importlib.import_module("numpy")
    except ImportError as exc:
        raise OperationalError(
            f"`batchyard bench run` needs NumPy: {exc}",
            hint="in the clone of batchyard: pip install '.[bench]'",
        ) from None
    return keeps_buffers


def _load_workloads(request: Request) -> _Workloads:
    """Return the requested workloads.

    With workloads of the user, built-in ones are measured only if they are named.
    """
    from batchyard.bench import loading

    builtin = loading.load_builtin(request.images)
    from_user = [workload for path in request.files for workload in loading.load_file(path)]
    if from_user and not request.only:
        selected = from_user
    else:
        selected = loading.select([*builtin, *from_user], request.only)
    peaks = [workload for workload in builtin if workload.name in _PEAK_WORKLOADS]
    return _Workloads(selected, peaks)


def _make_plan(request: Request, subject: _Subject) -> Plan:
    from batchyard.bench.running import Plan

    return Plan(
        subject.operations,
        QUICK if request.quick else FULL,
        request.seed,
        request.quick,
        request.all_candidates,
        subject.stands_for,
    )


def _find_subject(
    request: Request, kind: str, workloads: _Workloads, threads: int, listener: ProgressListener
) -> _Subject | None:
    """Return what to measure on this kind of device; None if there is nothing to measure.

    Raises InputError or OperationalError if the user named this kind of device.
    """
    from batchyard.bench import running

    operations = tuple(
        running.plan_operations(workloads.selected, kind, request.sizes, request.quick)
    )
    if not operations and request.device != AUTO:
        raise InputError(
            f"none of the selected workloads runs on a {kind.upper()}",
            hint="choose others with --only",
        )
    libraries = running.libraries_of([*workloads.selected, *workloads.peaks], kind)
    device = discovery.find_device(kind, libraries, threads)
    if kind == CPU or device.kits:
        return _Subject(operations, device) if operations else None
    if request.stand_in:
        listener.say(
            f"no GPU can be used here ({_reasons(device)}):"
            " the CPU stands in for it, and is labelled so"
        )
        subject = _find_subject(replace(request, device=CPU), CPU, workloads, threads, listener)
        return None if subject is None else replace(subject, stands_for=GPU)
    if request.device == GPU:
        discovery.require_gpu(device)
    listener.say(f"no GPU is measured: {_reasons(device)}")
    return None


def _reasons(device: Device) -> str:
    return (
        "; ".join(f"{name}: {reason}" for name, reason in device.missing.items())
        or "no workload has code for one"
    )
