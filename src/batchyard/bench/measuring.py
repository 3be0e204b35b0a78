"""Measure one operation: try and check every candidate, time the close ones in turns.

Computes on the device that it is given; the clock is a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from batchyard.bench import checking, memory, timing
from batchyard.bench.discovery import LIBRARIES, Device
from batchyard.bench.results import Measurement, Outcome, Trial
from batchyard.bench.timing import Finalist
from batchyard.bench.trials import Bench, ReadyCandidate, memory_problem, scout, try_candidates
from batchyard.bench.workload import Candidate, Workload
from batchyard.bench.workload_values import (
    WORKLOAD_ERRORS,
    call_amount,
    crc_of,
    describe_error,
    describe_operation,
    label_of,
    make_inputs,
    make_reference,
)


def measure(workload: Workload, size: int, bench: Bench) -> Measurement:
    """Return the measurement of one operation. Errors are part of it; raises only interrupts."""
    operation = Measurement(
        workload.name, workload.title, size, label_of(workload, size), Outcome.SKIPPED
    )
    try:
        operation = describe_operation(workload, size)
        needed_bytes = call_amount("memory_bytes", workload.memory_bytes, size)
    except WORKLOAD_ERRORS as exc:
        return replace(
            operation,
            outcome=Outcome.FAILED,
            reason=f"its description cannot be used: {describe_error(exc)}",
        )
    candidates = [
        candidate
        for candidate in workload.candidates
        if bench.device.kind in candidate.kinds and candidate.kit in bench.device.kits
    ]
    if not candidates:
        return replace(operation, reason=_no_candidate_reason(workload, bench.device))
    if reason := memory_problem(needed_bytes, memory.available_bytes(), "this machine has"):
        return replace(operation, reason=reason)
    return _measure_candidates(workload, operation, candidates, needed_bytes, bench)


def _measure_candidates(
    workload: Workload,
    operation: Measurement,
    candidates: Sequence[Candidate],
    needed_bytes: float | None,
    bench: Bench,
) -> Measurement:
    size, stage = operation.size, "inputs"
    try:
        _, arrays = bench.inputs.time(lambda: make_inputs(workload, size, bench.seed))
        _, crc = bench.checks.time(lambda: crc_of(arrays))
        stage = "reference"
        _, expected = bench.checks.time(lambda: make_reference(workload, size, arrays))
        scout(workload, operation, candidates, bench)
    except MemoryError:
        return replace(operation, reason=f"making the {stage} took more memory than there is")
    except WORKLOAD_ERRORS as exc:
        return replace(
            operation,
            outcome=Outcome.FAILED,
            reason=f"its {stage} cannot be used: {describe_error(exc)}",
        )
    if needed_bytes is None:
        needed_bytes = 2.0 * sum(array.nbytes for array in arrays.values())
    operation = replace(operation, inputs_crc=crc)
    check = checking.Check(expected, workload.tolerance)
    trials, ready = try_candidates(
        workload, operation, candidates, arrays, check, needed_bytes, bench
    )
    if not ready:
        return _failed_measurement(operation, trials)
    return _measure_finalists(operation, trials, ready, workload, bench)


def _no_candidate_reason(workload: Workload, device: Device) -> str:
    titles = dict.fromkeys(
        LIBRARIES[candidate.kit].title
        for candidate in workload.candidates
        if device.kind in candidate.kinds
    )
    unusable = [f"{title} ({device.missing[title]})" for title in titles if title in device.missing]
    if unusable:
        return f"it needs {' or '.join(unusable)}"
    return f"there is no way to do it on a {device.kind.upper()}"


# -- finalists --


def _failed_measurement(operation: Measurement, trials: Sequence[Trial]) -> Measurement:
    """Return the measurement of an operation that no candidate could do."""
    failed = [trial for trial in trials if trial.outcome is Outcome.FAILED]
    reason = "; ".join(f"{trial.candidate}: {trial.reason}" for trial in failed or trials)
    outcome = Outcome.FAILED if failed else Outcome.SKIPPED
    return replace(operation, outcome=outcome, reason=reason, tried=tuple(trials))


def _measure_finalists(
    operation: Measurement,
    trials: Sequence[Trial],
    ready: list[ReadyCandidate],
    workload: Workload,
    bench: Bench,
) -> Measurement:
    """Time the candidates in turns, and return the measurement of the fastest."""
    start = bench.gpu_clocks.position() if bench.gpu_clocks else 0
    reason = _time_in_turns(ready, bench)
    best = min(ready, key=lambda candidate: candidate.trial.median_s or 0.0)
    final_trials = {candidate.trial.candidate: candidate.trial for candidate in ready}
    measurement = replace(
        operation,
        outcome=Outcome.OK,
        reason=reason,
        candidate=best.trial.candidate,
        cold_s=best.trial.cold_s,
        warm_s=best.trial.warm_s,
        peak_memory_bytes=best.peak_bytes,
        error=best.trial.error,
        gpu_clocks=bench.gpu_clocks.since(start) if bench.gpu_clocks else None,
        tried=tuple(final_trials.get(trial.candidate, trial) for trial in trials),
    )
    # The other candidates release their memory before copies are measured.
    ready.clear()
    if not best.kit.has_own_memory or workload.copies_included:
        return measurement
    return _measure_copies(measurement, best, bench)


def _time_in_turns(ready: Sequence[ReadyCandidate], bench: Bench) -> str:
    """Put the measured times into the trials. Returns what went wrong, or nothing."""
    finalists = [Finalist(candidate.call, candidate.best_s) for candidate in ready]
    reason = ""
    try:
        timing.time_in_turns(finalists, bench.effort, bench.calls)
    except WORKLOAD_ERRORS as exc:
        # The times of the calls that succeeded count, and the reason is shown beside them.
        reason = f"while it was repeated: {describe_error(exc)}"
    for candidate, finalist in zip(ready, finalists, strict=True):
        if finalist.times_s:
            candidate.trial = replace(candidate.trial, warm_s=tuple(finalist.times_s))
    return reason


@dataclass(frozen=True, slots=True)
class _CopyTimes:
    """Seconds of one call with copies: of the inputs, of the computation, of the result."""

    up: float
    compute: float
    down: float

    @property
    def total(self) -> float:
        return self.up + self.compute + self.down


def _measure_copies(measurement: Measurement, best: ReadyCandidate, bench: Bench) -> Measurement:
    """Add the times of calls with copies of the inputs to the device and of the result back."""
    best.arrays = {}
    times: list[_CopyTimes] = []
    spent_s = 0.0
    try:
        with best.kit.measuring():
            # The first call is not counted: it allocates the buffers.
            group = timing.group_size(_call_with_copies(best, bench).total, bench.effort)
            while not timing.is_enough([trial.total for trial in times], spent_s, bench.effort):
                calls = [_call_with_copies(best, bench) for _ in range(group)]
                spent_s += sum(call.total for call in calls)
                times.append(_mean_times(calls))
    except WORKLOAD_ERRORS as exc:
        return replace(measurement, reason=f"not measured with copies: {describe_error(exc)}")
    return replace(
        measurement,
        with_copies_s=tuple(trial.total for trial in times),
        to_device_s=float(np.median([trial.up for trial in times])),
        to_host_s=float(np.median([trial.down for trial in times])),
    )


def _call_with_copies(best: ReadyCandidate, bench: Bench) -> _CopyTimes:
    up_s, arrays = bench.calls.time(best.copy_inputs)
    compute_s, result = bench.calls.time(partial(best.compute, arrays))
    down_s, _ = bench.calls.time(partial(best.kit.to_host, result))
    return _CopyTimes(up_s, compute_s, down_s)


def _mean_times(calls: Sequence[_CopyTimes]) -> _CopyTimes:
    count = len(calls)
    return _CopyTimes(
        sum(call.up for call in calls) / count,
        sum(call.compute for call in calls) / count,
        sum(call.down for call in calls) / count,
    )
