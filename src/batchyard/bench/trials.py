"""Try the candidates of an operation: call them, check their results, find those that may win."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchyard.bench import checking, memory, timing
from batchyard.bench.discovery import LIBRARIES, Device
from batchyard.bench.gpu_clocks import ClockLog
from batchyard.bench.kits import Kit
from batchyard.bench.results import Measurement, Outcome, Trial
from batchyard.bench.timing import Effort, Stopwatch
from batchyard.bench.workload import Arrays, Candidate, Function, Workload
from batchyard.bench.workload_values import (
    WORKLOAD_ERRORS,
    call_amount,
    describe_error,
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


def try_candidates(
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
