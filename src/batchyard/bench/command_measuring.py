"""Measure a command of the user on this machine, with and without its GPU, several times in turns.

Results are written after each run, so that an interrupt loses only the run that it ends.
"""

from __future__ import annotations

import os
import platform
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from batchyard import ec2_prices
from batchyard.bench import machine, memory, metadata
from batchyard.bench.command_request import (
    AUTO,
    DEVICE_VARIABLE,
    CommandRequest,
    require_command,
)
from batchyard.bench.command_runs import Ended, Launch, run_process
from batchyard.bench.discovery import cpu_count
from batchyard.bench.result_files import ResultFiles
from batchyard.bench.results import COMMAND, Measurement, Outcome, Results, Seconds
from batchyard.bench.workload import CPU, GPU
from batchyard.errors import OperationalError

#: hide the GPUs of NVIDIA and AMD from a command
_HIDDEN_GPUS = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "ROCR_VISIBLE_DEVICES": "",
}
#: set by ``bootstrap`` in a job: the folder and the PYTHONPATH before the benchmark's code came
FOLDER_VARIABLE, PYTHONPATH_VARIABLE = "BENCHMARK_FOLDER", "BENCHMARK_PYTHONPATH"


Runner: TypeAlias = Callable[[Launch], Ended]


@dataclass(slots=True)
class _Side:
    """One device, the measurements on it and the files of its results."""

    kind: str
    results: Results
    files: ResultFiles
    measurements: dict[int | None, Measurement] = field(default_factory=dict)

    def write(self) -> None:
        self.results = replace(self.results, measurements=tuple(self.measurements.values()))
        self.files.write(self.results)


def measure_command(
    request: CommandRequest,
    environ: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda line: None,
    *,
    run: Runner | None = None,
    find_gpus: Callable[[], Sequence[Mapping[str, str]]] = machine.nvidia_gpus,
    raise_if_stopped: Callable[[], None] = lambda: None,
) -> dict[str, Results]:
    """Run the command with and without the GPU of this machine; return the results by device.

    ``say`` is called with a line after each run; ``raise_if_stopped`` raises KeyboardInterrupt if
    the user wants to stop. A run that fails is part of the results. Raises InputError if the
    request has a mistake or the program cannot be started, OperationalError if there is no GPU and
    the request names it.
    """
    require_command(request)
    environ = os.environ if environ is None else environ
    begin_s = time.perf_counter()
    sides = _make_sides(request, environ, list(find_gpus()), say)
    sizes: list[int | None] = [*sorted(set(request.sizes))] or [None]
    for size in sizes:
        for number in range(request.runs):
            for side in sides:
                raise_if_stopped()
                _run_once(request, side, size, number, environ, run or run_process, say)
    for side in sides:
        total_s = time.perf_counter() - begin_s
        calls_s = sum(sum(_times_s(measurement)) for measurement in side.measurements.values())
        side.results = replace(
            side.results, ended=_timestamp(), seconds=Seconds(total_s, calls=min(calls_s, total_s))
        )
        side.write()
    return {side.kind: side.results for side in sides}


# -- sides --


def _make_sides(
    request: CommandRequest,
    environ: Mapping[str, str],
    gpus: Sequence[Mapping[str, str]],
    say: Callable[[str], None],
) -> list[_Side]:
    """Return the devices to measure. Raises OperationalError if there is no requested GPU."""
    # The user may have hidden the GPUs from this process.
    if environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        gpus = ()
    kinds = [CPU, GPU] if request.device == AUTO else [request.device]
    if GPU in kinds and not gpus and not request.stand_in:
        if request.device == GPU:
            raise OperationalError(
                "there is no GPU here to run the command with: nvidia-smi finds none",
                hint="run it without one (--device cpu), or on AWS Batch (--env NAME)",
            )
        say("no GPU is measured: nvidia-smi finds none")
        kinds.remove(GPU)
    detected_type = None if request.stand_in else metadata.instance_type(environ)
    return [_make_side(kind, request, environ, gpus, detected_type, say) for kind in kinds]


def _make_side(
    kind: str,
    request: CommandRequest,
    environ: Mapping[str, str],
    gpus: Sequence[Mapping[str, str]],
    detected_type: str | None,
    say: Callable[[str], None],
) -> _Side:
    """Return one device to measure; without a GPU, the CPU stands for it."""
    stands_for = GPU if kind == GPU and not gpus else ""
    device = CPU if stands_for else kind
    files = ResultFiles(request.out, device, stands_for)
    files.prepare()
    for path in files.renamed_files:
        say(f"an older result is kept as {path}")
    instance_type = None if stands_for else request.instance_types.get(kind) or detected_type
    side = _Side(kind, _empty_results(device, stands_for, instance_type, gpus, environ), files)
    side.write()
    return side


def _empty_results(
    device: str,
    stands_for: str,
    instance_type: str | None,
    gpus: Sequence[Mapping[str, str]],
    environ: Mapping[str, str],
) -> Results:
    description = _describe_machine(device, gpus)
    listed = ec2_prices.load_prices()
    description["price"] = {"usd_h": listed.of(instance_type), "source": listed.source}
    name = str(gpus[0].get("name", "")) if device == GPU and gpus else str(description["cpu"])
    return Results(
        device=device,
        device_name=name,
        machine=description,
        started=_timestamp(),
        instance_type=instance_type,
        stands_for=stands_for,
    )


def _describe_machine(device: str, gpus: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    cpuinfo, meminfo = (machine.read_text(path) for path in ("/proc/cpuinfo", "/proc/meminfo"))
    facts: dict[str, Any] = {
        "cpu": machine.cpu_model(cpuinfo),
        "cpus": cpu_count(),
        "cpu_clock_mhz": machine.cpu_clock_mhz(cpuinfo),
        "memory_bytes": memory.meminfo_bytes(meminfo, "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
    }
    if device == GPU:
        facts["gpus"] = [dict(gpu) for gpu in gpus]
    return facts


# -- runs --


def _run_once(
    request: CommandRequest,
    side: _Side,
    size: int | None,
    number: int,
    environ: Mapping[str, str],
    run: Runner,
    say: Callable[[str], None],
) -> None:
    """Run the command once on one device, and add the run to the results."""
    measurement = side.measurements.get(size) or _new_measurement(request, size)
    if measurement.outcome is Outcome.FAILED:
        return
    ended = run(_make_launch(request, side.kind, size, environ))
    side.measurements[size] = add_run(measurement, ended, number)
    side.write()
    label = f"{side.results.kind}{'' if size is None else f', size {size}'}"
    result = f"failed: {ended.problem}" if ended.problem else f"{ended.seconds:.3g} s"
    say(f"{label}, run {number + 1} of {request.runs}: {result}")


def _new_measurement(request: CommandRequest, size: int | None) -> Measurement:
    return Measurement(
        COMMAND,
        request.title,
        1 if size is None else size,
        "one run" if size is None else f"size {size:,}",
        Outcome.SKIPPED,
        # Only results of the same command are compared.
        inputs_crc=zlib.crc32("\0".join(request.words).encode("utf-8", "surrogateescape")),
    )


def add_run(measurement: Measurement, ended: Ended, number: int) -> Measurement:
    """Return the measurement with one more run; ``number`` counts from 0.

    The first run is the cold one. Where there is no other, it is the only time there is.
    """
    if ended.problem:
        return replace(
            measurement,
            outcome=Outcome.FAILED,
            reason=f"run {number + 1} {ended.problem}",
        )
    # The clock may not have advanced.
    seconds = max(ended.seconds, 1e-9)
    if measurement.cold_s is None:
        return replace(measurement, outcome=Outcome.OK, cold_s=seconds, warm_s=(seconds,))
    warm_s = (seconds,) if number == 1 else (*measurement.warm_s, seconds)
    return replace(measurement, warm_s=warm_s)


def _times_s(measurement: Measurement) -> tuple[float, ...]:
    return (measurement.cold_s or 0.0, *measurement.warm_s)


def _make_launch(
    request: CommandRequest, kind: str, size: int | None, environ: Mapping[str, str]
) -> Launch:
    variables = {**environ, **request.env, DEVICE_VARIABLE: kind}
    if PYTHONPATH_VARIABLE in variables:
        # The benchmark's own code must not be found by the command.
        original = variables.pop(PYTHONPATH_VARIABLE)
        variables.pop("PYTHONPATH", None)
        variables |= {"PYTHONPATH": original} if original else {}
    if kind == CPU:
        variables |= _HIDDEN_GPUS
    folder = request.folder or Path(environ.get(FOLDER_VARIABLE) or Path.cwd())
    return Launch(tuple(request.words_for(size)), folder, variables)


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
