"""Measure each workload at each size on one device, and write the results after each of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from batchyard.bench import measuring, workload_values
from batchyard.bench.discovery import Device
from batchyard.bench.gpu_clocks import ClockLog
from batchyard.bench.results import Measurement, Outcome, Peak, Results, Seconds
from batchyard.bench.timing import QUICK, Clock, Effort
from batchyard.bench.trials import Bench
from batchyard.bench.workload import GPU, Workload

#: workloads that show the peak rates of a device -> their sizes (full, quick)
_PEAK_SIZES = {"matmul": (2048, 1024), "triad": (1 << 26, 1 << 22)}


class OperationListener(Protocol):
    """Is notified of the progress."""

    def on_start(self, operation: str) -> None: ...

    def on_done(self, measurement: Measurement) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The operations to measure on one device, and how."""

    operations: tuple[tuple[Workload, int], ...]
    effort: Effort
    seed: int = 0
    is_quick: bool = False
    measures_all: bool = False
    #: the kind of device for which this device stands in; empty if it is no stand-in
    stands_for: str = ""


def plan_operations(
    workloads: Sequence[Workload], kind: str, sizes: Sequence[int], quick: bool
) -> list[tuple[Workload, int]]:
    """Return workloads with their sizes, smallest first.

    A candidate that is far too slow at a small size is then not tried at a larger one.
    """
    return [
        (workload, size)
        for workload in workloads
        if kind in workload.kinds
        for size in sorted(set(sizes or workload.sizes_for(quick)))
    ]


def libraries_of(workloads: Sequence[Workload], kind: str) -> list[str]:
    """Return the keys of the libraries that have candidates for this kind of device."""
    return list(
        dict.fromkeys(
            candidate.kit
            for workload in workloads
            for candidate in workload.candidates
            if kind in candidate.kinds and kind in workload.kinds
        )
    )


def run_plan(
    plan: Plan,
    peaks: Sequence[Workload],
    device: Device,
    description: dict[str, Any],
    instance_type: str | None,
    write: Callable[[Results], None],
    listener: OperationListener,
    begin_s: float,
    clock: Clock = time.perf_counter,
    raise_if_stopped: Callable[[], None] = lambda: None,
) -> Results:
    """Measure the plan's operations on the device and return the results.

    ``peaks``: workloads that show the device's peak rates; ``description``: of the machine;
    ``write`` is called after each measurement; ``begin_s``: when the command began, since its
    set-up counts too; ``raise_if_stopped`` raises KeyboardInterrupt if the user wants to stop.
    """
    bench = Bench(
        *(device, plan.effort, plan.seed, plan.measures_all, plan.is_quick),
        ClockLog() if device.kind == GPU else None,
        clock,
        raise_if_stopped,
    )
    try:
        return _run_operations(
            plan, peaks, bench, description, instance_type, write, listener, begin_s
        )
    finally:
        if bench.gpu_clocks is not None:
            bench.gpu_clocks.close()


def _run_operations(
    plan: Plan,
    peaks: Sequence[Workload],
    bench: Bench,
    description: dict[str, Any],
    instance_type: str | None,
    write: Callable[[Results], None],
    listener: OperationListener,
    begin_s: float,
) -> Results:
    device, clock = bench.device, bench.clock
    # Without this, the garbage collector would look at all objects of the imported libraries before
    # each candidate, which takes a tenth of a second.
    gc.freeze()
    set_up_s = clock() - begin_s
    results = Results(
        device=device.kind,
        device_name=device.name if device.kind == GPU else str(description.get("cpu", "")),
        machine=description,
        started=_timestamp(),
        seed=plan.seed,
        is_quick=plan.is_quick,
        instance_type=instance_type,
        missing=dict(device.missing),
        stands_for=plan.stands_for,
    )
    write(results)
    probes = _probe_peaks(plan, peaks, bench, listener)
    measurements: list[Measurement] = []
    for workload, size in plan.operations:
        listener.on_start(f"{workload.title}, {workload_values.label_of(workload, size)}")
        measurement = measuring.measure(workload, size, bench)
        bench.before_call()
        measurements.append(measurement)
        gc.collect()
        results = replace(
            results,
            measurements=tuple(measurements),
            peak=peak_of(measurements, probes),
            seconds=_seconds(bench, set_up_s, clock() - begin_s),
        )
        write(results)
        listener.on_done(measurement)
    results = replace(
        results, ended=_timestamp(), seconds=_seconds(bench, set_up_s, clock() - begin_s)
    )
    write(results)
    return results


def _probe_peaks(
    plan: Plan, peaks: Sequence[Workload], bench: Bench, listener: OperationListener
) -> list[Measurement]:
    """Measure the peak rates of the device that the plan itself would not show."""
    planned_names = {workload.name for workload, _ in plan.operations}
    probes = []
    for workload in peaks:
        if workload.name in _PEAK_SIZES and (workload.name not in planned_names or plan.is_quick):
            full_size, quick_size = _PEAK_SIZES[workload.name]
            listener.on_start(f"the device's peak: {workload.title}")
            brief = Bench(
                *(bench.device, QUICK, plan.seed, False, True),
                clock=bench.clock,
                before_call=bench.before_call,
            )
            size = quick_size if plan.is_quick else full_size
            probes.append(measuring.measure(workload, size, brief))
            bench.calls.spent_s += brief.calls.spent_s
            bench.inputs.spent_s += brief.inputs.spent_s
            bench.checks.spent_s += brief.checks.spent_s
    return probes


def peak_of(measurements: Sequence[Measurement], probes: Sequence[Measurement] = ()) -> Peak:
    """Return the highest rates of the device.

    Operations: the highest rate of any operation. Bytes: the rate of the largest triad, because
    smaller ones may run from the cache; or the rate of the probed triad if it was faster. So the
    largest triad of a run never exceeds the peak.
    """
    gflops = [
        measurement.gflops
        for measurement in (*measurements, *probes)
        if measurement.outcome is Outcome.OK
        and measurement.gflops
        and not measurement.is_about_bytes
    ]
    rates = [_largest_triad_gbytes_s(measurements), _largest_triad_gbytes_s(probes)]
    return Peak(
        gflops=max(gflops, default=None),
        gbytes_s=max((rate for rate in rates if rate), default=None),
    )


def _largest_triad_gbytes_s(measurements: Sequence[Measurement]) -> float | None:
    triads = [
        measurement
        for measurement in measurements
        if measurement.outcome is Outcome.OK and measurement.workload == "triad"
    ]
    return max(triads, key=lambda triad: triad.size).gbytes_s if triads else None


def _seconds(bench: Bench, set_up_s: float, total_s: float) -> Seconds:
    return Seconds(
        total_s, set_up_s, bench.inputs.spent_s, bench.checks.spent_s, bench.calls.spent_s
    )


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
