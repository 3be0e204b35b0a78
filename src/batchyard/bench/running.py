"""A whole run: each workload at each size on one device, one after the other, kept as it is measured."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from batchyard.bench import asking, measuring
from batchyard.bench.discovery import Found
from batchyard.bench.measuring import Bench
from batchyard.bench.results import Measurement, Outcome, Peak, Results, Seconds
from batchyard.bench.timing import QUICK, Clock, Effort
from batchyard.bench.workload import Workload

#: workload whose rate is the peak of operations, and of bytes; with the sizes that show it, full and quick
_PEAKS = {"matmul": (2048, 1024), "triad": (1 << 26, 1 << 22)}


class Watcher(Protocol):
    """Whoever wants to know how far it is."""

    def on_start(self, operation: str) -> None: ...

    def on_done(self, measurement: Measurement) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    operations: tuple[tuple[Workload, int], ...]
    effort: Effort
    seed: int = 0
    is_quick: bool = False
    measures_all: bool = False
    #: the kind of device that is not there, and in whose place another is measured
    stands_for: str = ""


def planned(
    workloads: Sequence[Workload], kind: str, sizes: Sequence[int], quick: bool
) -> list[tuple[Workload, int]]:
    """Smallest first, so that what is far behind there is not tried at the larger ones."""
    chosen = [one for one in workloads if kind in one.kinds]
    return [(one, size) for one in chosen for size in sorted(set(sizes or one.sizes_for(quick)))]


def libraries_of(workloads: Sequence[Workload], kind: str) -> list[str]:
    """Of the candidates that serve this kind of device, in order."""
    return list(
        dict.fromkeys(
            c.kit
            for one in workloads
            for c in one.candidates
            if kind in c.kinds and kind in one.kinds
        )
    )


def run(
    plan: Plan,
    peaks: Sequence[Workload],
    found: Found,
    about: dict[str, Any],
    instance_type: str | None,
    keep: Callable[[Results], None],
    watcher: Watcher,
    begin: float,
    clock: Clock = time.perf_counter,
    raise_if_stopped: Callable[[], None] = lambda: None,
) -> Results:
    """``keep`` is called after each measurement. ``begin``: when the command did, since its set-up counts too."""
    bench = Bench(found, plan.effort, plan.seed, plan.measures_all, clock, raise_if_stopped)
    # What the libraries have made of themselves stays: to look through all of it before each candidate takes a tenth
    # of a second.
    gc.freeze()
    set_up = clock() - begin
    results = Results(
        device=found.kind,
        device_name=found.device_name if found.kind == "gpu" else str(about.get("cpu", "")),
        machine=about,
        started=_now(),
        seed=plan.seed,
        is_quick=plan.is_quick,
        instance_type=instance_type,
        missing=dict(found.missing),
        stands_for=plan.stands_for,
    )
    keep(results)
    probes = _probes(plan, peaks, bench, watcher)
    measurements: list[Measurement] = []
    for workload, size in plan.operations:
        watcher.on_start(f"{workload.title}, {asking.label_of(workload, size)}")
        measured = measuring.measure(workload, size, bench)
        raise_if_stopped()
        measurements.append(measured)
        gc.collect()
        results = replace(
            results,
            measurements=tuple(measurements),
            peak=peak_of(measurements, probes),
            seconds=_seconds(bench, set_up, clock() - begin),
        )
        keep(results)
        watcher.on_done(measured)
    results = replace(results, ended=_now(), seconds=_seconds(bench, set_up, clock() - begin))
    keep(results)
    return results


def _probes(
    plan: Plan, peaks: Sequence[Workload], bench: Bench, watcher: Watcher
) -> list[Measurement]:
    """What the device can do at best, where the run would not show it anyway."""
    planned_names = {workload.name for workload, _ in plan.operations}
    probes = []
    for workload in peaks:
        if workload.name in _PEAKS and (workload.name not in planned_names or plan.is_quick):
            full, quick = _PEAKS[workload.name]
            watcher.on_start(f"the device's peak: {workload.title}")
            brief = Bench(
                bench.found, QUICK, plan.seed, clock=bench.clock, before_call=bench.before_call
            )
            probes.append(measuring.measure(workload, quick if plan.is_quick else full, brief))
            bench.calls.spent_s += brief.calls.spent_s
            bench.inputs.spent_s += brief.inputs.spent_s
            bench.checks.spent_s += brief.checks.spent_s
    return probes


def peak_of(measurements: Sequence[Measurement], probes: Sequence[Measurement] = ()) -> Peak:
    """Operations: the most of anything. Bytes: of the largest triad, since smaller ones may never leave the cache; or
    of the one probed, if that was faster. So the largest row itself is never beyond the peak."""
    good = [one for one in (*measurements, *probes) if one.outcome is Outcome.OK]
    rates = [_largest_triad_gbytes_s(measurements), _largest_triad_gbytes_s(probes)]
    return Peak(
        gflops=max(
            (one.gflops for one in good if one.gflops and not one.is_about_bytes), default=None
        ),
        gbytes_s=max((rate for rate in rates if rate), default=None),
    )


def _largest_triad_gbytes_s(measurements: Sequence[Measurement]) -> float | None:
    triads = [one for one in measurements if one.outcome is Outcome.OK and one.workload == "triad"]
    return max(triads, key=lambda one: one.size).gbytes_s if triads else None


def _seconds(bench: Bench, set_up: float, total: float) -> Seconds:
    return Seconds(total, set_up, bench.inputs.spent_s, bench.checks.spent_s, bench.calls.spent_s)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
