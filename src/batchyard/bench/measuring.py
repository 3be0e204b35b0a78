"""Measure one operation: try and check every candidate, time the close ones in turns.

Computes on the device that it is given; the clock is a parameter.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from batchyard.bench import checking, memory, timing
from batchyard.bench.discovery import LIBRARIES, Device
from batchyard.bench.gpu_clocks import ClockLog
from batchyard.bench.kits import Kit
from batchyard.bench.results import Measurement, Outcome, Trial
from batchyard.bench.timing import Effort, Finalist, Stopwatch
from batchyard.bench.workload import Arrays, Candidate, Function, Workload
from batchyard.bench.workload_values import (
    WORKLOAD_ERRORS,
    call_amount,
    crc_of,
    describe_error,
    describe_operation,
    label_of,
    make_inputs,
    make_reference,
    safe_line,
)

#: required memory is multiplied by this before it is compared with the free memory
_MEMORY_MARGIN = 1.15
#: (duration of a warm call below which ..., number of calls in the trial): one call alone is noisy
_TRIAL_CALLS = ((0.05, 4), (1.0, 2))
#: a candidate is skipped if it is this many times slower than the fastest at a small size, and one
#: call at the requested size would take at least this long
_FAR_BEHIND = 10.0
_LONG_S = 2.0


@dataclass(frozen=True, slots=True)
class ScoutResult:
    """Times of the candidates of a workload at a small size."""

    label: str
    flops: float
    #: candidate -> its best time
    times_s: dict[str, float]


@dataclass(slots=True)
class Bench:
    """The device, the effort and the clocks of a benchmark, and what is known about candidates."""

    device: Device
    effort: Effort
    seed: int = 0
    #: measure every candidate as thoroughly as the fastest
    measures_all: bool = False
    #: candidates that compile for long are not tried
    is_quick: bool = False
    #: clocks of the GPU while it is measured; None for other devices
    gpu_clocks: ClockLog | None = None
    clock: timing.Clock = time.perf_counter
    #: called before each timed call; raises KeyboardInterrupt if the user wants to stop
    before_call: Callable[[], None] = lambda: None
    calls: Stopwatch = field(init=False)
    inputs: Stopwatch = field(init=False)
    checks: Stopwatch = field(init=False)
    #: (workload, candidate) that were far behind at a smaller size
    hopeless: set[tuple[str, str]] = field(default_factory=set)
    #: workload -> times at a small size
    scouted: dict[str, ScoutResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.calls, self.inputs, self.checks = (
            Stopwatch(self.clock, before_call=self.before_call) for _ in range(3)
        )


@dataclass(slots=True)
class ReadyCandidate:
    """A candidate with a correct result: its function, and its inputs on host and device."""

    candidate: Candidate
    kit: Kit
    function: Function
    host_arrays: dict[str, Any]
    arrays: dict[str, Any]
    trial: Trial
    best_s: float
    peak_bytes: int | None

    def call(self) -> Any:
        with self.kit.measuring():
            return self.compute(self.arrays)

    def compute(self, arrays: dict[str, Any]) -> Any:
        result = self.function(**arrays)
        self.kit.synchronise()
        return result

    def copy_inputs(self) -> dict[str, Any]:
        """Copy the inputs to the device, and wait for it."""
        arrays = {name: self.kit.to_device(array) for name, array in self.host_arrays.items()}
        self.kit.synchronise()
        return arrays


def candidate_name(candidate: Candidate) -> str:
    """Return the name of a candidate in tables, like `PyTorch, channels last`."""
    title = LIBRARIES[candidate.kit].title
    return f"{title}, {candidate.name}" if candidate.name else title


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
    trials, ready = _try_candidates(
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


def memory_problem(needed_bytes: float | None, free_bytes: int | None, owner: str) -> str:
    """Return why an operation does not fit into memory; empty if it fits or that is unknown.

    ``owner``: the beginning of `... has 0.5 GiB free`.
    """
    if needed_bytes is None or free_bytes is None or needed_bytes * _MEMORY_MARGIN <= free_bytes:
        return ""
    return (
        f"it needs {needed_bytes / 2**30:.1f} GiB of memory,"
        f" and {owner} {free_bytes / 2**30:.1f} GiB free"
    )


# -- scouting --


def scout(
    workload: Workload, operation: Measurement, candidates: Sequence[Candidate], bench: Bench
) -> None:
    """Before a large size, time every candidate at a small one.

    Some candidates would take minutes for an operation that others do in a second.
    """
    size = max(workload.quick_sizes, default=operation.size)
    if workload.name in bench.scouted or len(candidates) < 2 or size >= operation.size:
        return
    flops = call_amount("flops", workload.flops, size)
    if not flops:
        return
    _, arrays = bench.inputs.time(lambda: make_inputs(workload, size, bench.seed))
    _, expected = bench.checks.time(lambda: make_reference(workload, size, arrays))
    check = checking.Check(expected, workload.tolerance)
    attempts = [
        try_candidate(candidate, size, arrays, check, bench)
        for candidate in candidates
        if not candidate.compiles
    ]
    times_s = {
        attempt.trial.candidate: attempt.best_s
        for attempt in attempts
        if isinstance(attempt, ReadyCandidate)
    }
    bench.scouted[workload.name] = ScoutResult(label_of(workload, size), flops, times_s)


def slowness_problem(operation: Measurement, name: str, scouted: ScoutResult | None) -> str:
    """Return why a candidate is too slow to be tried; empty if it is tried."""
    if scouted is None or name not in scouted.times_s or operation.flops is None:
        return ""
    factor = scouted.times_s[name] / min(scouted.times_s.values())
    expected_s = scouted.times_s[name] * operation.flops / scouted.flops
    if factor < _FAR_BEHIND or expected_s < _LONG_S:
        return ""
    return f"{factor:.0f}x behind at {scouted.label}; a call would take about {expected_s:.0f} s"


# -- trials --


def _try_candidates(
    workload: Workload,
    operation: Measurement,
    candidates: Sequence[Candidate],
    arrays: Arrays,
    check: checking.Check,
    needed_bytes: float,
    bench: Bench,
) -> tuple[list[Trial], list[ReadyCandidate]]:
    """Return the trials of all candidates, and the candidates that may be the fastest."""
    trials: list[Trial] = []
    ready: list[ReadyCandidate] = []
    for candidate in candidates:
        if reason := _skip_reason(workload, operation, candidate, needed_bytes, bench):
            trials.append(Trial(candidate_name(candidate), Outcome.SKIPPED, reason))
            continue
        attempt = try_candidate(candidate, operation.size, arrays, check, bench)
        if isinstance(attempt, Trial):
            trials.append(attempt)
            continue
        trials.append(attempt.trial)
        ready.append(attempt)
        if not bench.measures_all:
            # Candidates that cannot win release their memory at once.
            ready = _keep_close(ready, bench.effort)
    _note_hopeless(workload, trials, bench)
    return trials, ready


def _skip_reason(
    workload: Workload,
    operation: Measurement,
    candidate: Candidate,
    needed_bytes: float,
    bench: Bench,
) -> str:
    """Return why a candidate is not tried; empty if it is tried."""
    name = candidate_name(candidate)
    if (workload.name, name) in bench.hopeless and not bench.measures_all:
        return "far behind at a smaller size"
    if reason := slowness_problem(operation, name, bench.scouted.get(workload.name)):
        return reason
    if candidate.compiles and bench.is_quick:
        return "not with --quick: it compiles for longer than everything else takes"
    kit = bench.device.kits[candidate.kit]
    owner = "the device has" if kit.has_own_memory else "this machine has"
    return memory_problem(needed_bytes, _free_bytes(kit), owner)


def _free_bytes(kit: Kit) -> int | None:
    """Return the free memory of the kit's device; None if the library cannot tell."""
    try:
        return kit.free_bytes()
    except WORKLOAD_ERRORS:
        return None


def _keep_close(ready: list[ReadyCandidate], effort: Effort) -> list[ReadyCandidate]:
    best_s = min(candidate.best_s for candidate in ready)
    return [candidate for candidate in ready if timing.is_close(candidate.best_s, best_s, effort)]


def try_candidate(
    candidate: Candidate, size: int, arrays: Arrays, check: checking.Check, bench: Bench
) -> ReadyCandidate | Trial:
    """Call a candidate, check its result and warm it up. Returns its trial if it failed."""
    name, kit = candidate_name(candidate), bench.device.kits[candidate.kit]
    gc.collect()
    kit.tidy()
    memory.return_buffers()
    try:
        with kit.measuring():
            _, host_arrays = bench.inputs.time(
                lambda: {key: kit.host(array) for key, array in candidate.arrange(arrays).items()}
            )
            _, device_arrays = bench.inputs.time(
                lambda: (
                    host_arrays
                    if candidate.takes_host_arrays
                    else {key: kit.to_device(array) for key, array in host_arrays.items()}
                )
            )
            kit.synchronise()
            kit.reset_peak()
            cold_s, (function, result) = bench.calls.time(
                lambda: _call_first(candidate, kit, size, device_arrays)
            )
            peak_bytes = kit.peak_bytes()
            # Nothing else may refer to the result: the next call reuses its memory.
            results = [result]
            del result
            _, checked = bench.checks.time(
                lambda: check(candidate.finish(kit.to_host(results.pop())))
            )
            if checked.problem:
                return Trial(name, Outcome.FAILED, checked.problem, cold_s, error=checked.error)
            ready = ReadyCandidate(
                *(candidate, kit, function, host_arrays, device_arrays),
                *(Trial(name, Outcome.OK), 0.0, peak_bytes),
            )
            warm_s = _warm_up(ready, bench)
    except WORKLOAD_ERRORS as exc:
        return _failed_trial(name, exc)
    ready.best_s = min(warm_s)
    ready.trial = Trial(name, Outcome.OK, "", cold_s, tuple(warm_s), checked.error)
    return ready


def _call_first(
    candidate: Candidate, kit: Kit, size: int, arrays: dict[str, Any]
) -> tuple[Function, Any]:
    function = candidate.prepare(kit, size)
    result = function(**arrays)
    kit.synchronise()
    return function, result


def _warm_up(ready: ReadyCandidate, bench: Bench) -> list[float]:
    times_s = [bench.calls.time(ready.call)[0]]
    call_count = next((calls for below_s, calls in _TRIAL_CALLS if times_s[0] < below_s), 1)
    while len(times_s) < call_count:
        times_s.append(bench.calls.time(ready.call)[0])
    return times_s


def _failed_trial(name: str, exc: BaseException) -> Trial:
    if is_out_of_memory(exc):
        return Trial(name, Outcome.SKIPPED, f"out of memory: {safe_line(exc, 120)}")
    if isinstance(exc, ImportError):
        module = exc.name or safe_line(exc)
        return Trial(name, Outcome.SKIPPED, f"it needs {module}, which is not installed")
    return Trial(name, Outcome.FAILED, describe_error(exc))


def is_out_of_memory(exc: BaseException) -> bool:
    """Whether a library ran out of memory; each library reports that in another way."""
    if isinstance(exc, MemoryError) or "OutOfMemory" in type(exc).__name__:
        return True
    message = safe_line(exc, 5000).lower()
    signs = (
        "out of memory",
        "can't allocate memory",
        "insufficient memory",
        "mem_object_allocation_failure",
    )
    return any(sign in message for sign in signs)


def _note_hopeless(workload: Workload, trials: Sequence[Trial], bench: Bench) -> None:
    times_s = {trial.candidate: min(trial.warm_s) for trial in trials if trial.warm_s}
    for name, seconds in times_s.items():
        if timing.is_hopeless(seconds, min(times_s.values()), bench.effort):
            bench.hopeless.add((workload.name, name))


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
            while not timing.is_enough([one.total for one in times], spent_s, bench.effort):
                calls = [_call_with_copies(best, bench) for _ in range(group)]
                spent_s += sum(call.total for call in calls)
                times.append(_mean_times(calls))
    except WORKLOAD_ERRORS as exc:
        return replace(measurement, reason=f"not measured with copies: {describe_error(exc)}")
    return replace(
        measurement,
        with_copies_s=tuple(one.total for one in times),
        to_device_s=float(np.median([one.up for one in times])),
        to_host_s=float(np.median([one.down for one in times])),
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
