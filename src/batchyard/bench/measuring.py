"""How one operation is measured: every candidate tried and checked, the close ones in turns, the fastest kept.

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
from batchyard.bench.asking import (
    TROUBLE,
    about_of,
    amount,
    crc_of,
    described,
    inputs_of,
    label_of,
    reference_of,
    words,
)
from batchyard.bench.discovery import LIBRARIES, Found
from batchyard.bench.kits import Kit
from batchyard.bench.results import Measurement, Outcome, Trial
from batchyard.bench.timing import Effort, Runner, Stopwatch
from batchyard.bench.workload import Arrays, Candidate, Function, Workload

#: memory is never planned to the last byte
_MARGIN = 1.15
#: (warm calls shorter than this, are so many in the trial): one alone would compare noise
_TRIAL_CALLS = ((0.05, 4), (1.0, 2))
#: at a small size so many times slower than the fastest, and so long for one call at the size that is asked for
_FAR_BEHIND = 10.0
_LONG_S = 2.0


@dataclass(frozen=True, slots=True)
class Scouted:
    """What the candidates of a workload did at a size that takes no time."""

    label: str
    flops: float
    #: candidate -> its best time
    times_s: dict[str, float]


@dataclass(slots=True)
class Bench:
    """What measuring needs beside the workload; sums up where the time goes."""

    found: Found
    effort: Effort
    seed: int = 0
    #: measure every candidate as thoroughly as the fastest
    measures_all: bool = False
    clock: timing.Clock = time.perf_counter
    #: called before each timed call; raises KeyboardInterrupt where the user has asked to stop
    before_call: Callable[[], None] = lambda: None
    calls: Stopwatch = field(init=False)
    inputs: Stopwatch = field(init=False)
    checks: Stopwatch = field(init=False)
    #: (workload, candidate) that were far behind at a smaller size
    hopeless: set[tuple[str, str]] = field(default_factory=set)
    #: workload -> what ``scout`` found
    scouted: dict[str, Scouted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.calls, self.inputs, self.checks = (
            Stopwatch(self.clock, before_call=self.before_call) for _ in range(3)
        )


@dataclass(slots=True)
class Ready:
    """A candidate that was tried and is right: its function, and its inputs on the device."""

    candidate: Candidate
    kit: Kit
    function: Function
    held: dict[str, Any]
    arrays: dict[str, Any]
    trial: Trial
    best_s: float
    peak_bytes: int | None

    def call(self) -> Any:
        with self.kit.measuring():
            result = self.function(**self.arrays)
            self.kit.synchronise()
            return result


def name_of(candidate: Candidate) -> str:
    return (
        f"{LIBRARIES[candidate.kit].title}, {candidate.name}"
        if candidate.name
        else LIBRARIES[candidate.kit].title
    )


def measure(workload: Workload, size: int, bench: Bench) -> Measurement:
    """Whatever happens is in what it returns; only an interrupt gets past."""
    about = Measurement(
        workload.name, workload.title, size, label_of(workload, size), Outcome.SKIPPED
    )
    try:
        about = about_of(workload, size)
        needed = amount("memory_bytes", workload.memory_bytes, size)
    except TROUBLE as exc:
        return replace(
            about,
            outcome=Outcome.FAILED,
            reason=f"what it says of itself cannot be used: {described(exc)}",
        )
    candidates = [one for one in workload.candidates if _serves(one, bench.found)]
    if not candidates:
        return replace(about, reason=_nothing_for(workload, bench.found))
    if reason := too_large(needed, memory.available_bytes(), "this machine has"):
        return replace(about, reason=reason)
    making = "inputs"
    try:
        _, given = bench.inputs.time(lambda: inputs_of(workload, size, bench.seed))
        _, crc = bench.checks.time(lambda: crc_of(given))
        making = "reference"
        _, expected = bench.checks.time(lambda: reference_of(workload, size, given))
        scout(workload, about, candidates, bench)
    except MemoryError:
        return replace(about, reason=f"making the {making} took more memory than there is")
    except TROUBLE as exc:
        return replace(
            about, outcome=Outcome.FAILED, reason=f"its {making} cannot be used: {described(exc)}"
        )
    needed = 2.0 * sum(array.nbytes for array in given.values()) if needed is None else needed
    about = replace(about, inputs_crc=crc)
    trials, ready = _tried(workload, about, candidates, given, expected, needed, bench)
    return _decided(about, trials, ready, workload, bench)


def _serves(candidate: Candidate, found: Found) -> bool:
    return found.kind in candidate.kinds and candidate.kit in found.kits


def _nothing_for(workload: Workload, found: Found) -> str:
    titles = dict.fromkeys(
        LIBRARIES[one.kit].title for one in workload.candidates if found.kind in one.kinds
    )
    able = [f"{title} ({found.missing[title]})" for title in titles if title in found.missing]
    return (
        f"it needs {' or '.join(able)}"
        if able
        else f"there is no way to do it on a {found.kind.upper()}"
    )


def too_large(needed: float | None, free: int | None, whose: str) -> str:
    """Why it does not fit; empty where it does, or nobody can say."""
    if needed is None or free is None or needed * _MARGIN <= free:
        return ""
    return f"it needs {needed / 2**30:.1f} GiB of memory, and {whose} {free / 2**30:.1f} GiB free"


# -- scouting ---------------------------------------------------------------------------------------------------


def scout(
    workload: Workload, about: Measurement, candidates: Sequence[Candidate], bench: Bench
) -> None:
    """Before a large size, every candidate at a small one: some would take minutes for what others do in a second."""
    small = max(workload.quick_sizes, default=about.size)
    if workload.name in bench.scouted or len(candidates) < 2 or small >= about.size:
        return
    flops = amount("flops", workload.flops, small)
    if not flops:
        return
    _, given = bench.inputs.time(lambda: inputs_of(workload, small, bench.seed))
    _, expected = bench.checks.time(lambda: reference_of(workload, small, given))
    check = checking.Check(expected, workload.tolerance)
    tried = [
        try_candidate(one, bench.found.kits[one.kit], small, given, check, bench)
        for one in candidates
    ]
    times_s = {one.trial.candidate: one.best_s for one in tried if isinstance(one, Ready)}
    bench.scouted[workload.name] = Scouted(label_of(workload, small), flops, times_s)


def endless(about: Measurement, name: str, scouted: Scouted | None) -> str:
    """Why a candidate is not even tried; empty where it is."""
    if scouted is None or name not in scouted.times_s or about.flops is None:
        return ""
    share = scouted.times_s[name] / min(scouted.times_s.values())
    expected_s = scouted.times_s[name] * about.flops / scouted.flops
    if share < _FAR_BEHIND or expected_s < _LONG_S:
        return ""
    return f"{share:.0f}x behind at {scouted.label}; a call would take about {expected_s:.0f} s"


# -- trying -----------------------------------------------------------------------------------------------------


def _tried(
    workload: Workload,
    about: Measurement,
    candidates: Sequence[Candidate],
    given: Arrays,
    expected: Any,
    needed: float,
    bench: Bench,
) -> tuple[list[Trial], list[Ready]]:
    trials: list[Trial] = []
    ready: list[Ready] = []
    for candidate in candidates:
        name = name_of(candidate)
        if (workload.name, name) in bench.hopeless and not bench.measures_all:
            trials.append(Trial(name, Outcome.SKIPPED, "far behind at a smaller size"))
            continue
        if reason := endless(about, name, bench.scouted.get(workload.name)):
            trials.append(Trial(name, Outcome.SKIPPED, reason))
            continue
        kit = bench.found.kits[candidate.kit]
        whose = "the device has" if kit.has_own_memory else "this machine has"
        if reason := too_large(needed, kit.free_bytes(), whose):
            trials.append(Trial(name, Outcome.SKIPPED, reason))
            continue
        check = checking.Check(expected, workload.tolerance)
        outcome = try_candidate(candidate, kit, about.size, given, check, bench)
        trials.append(outcome.trial if isinstance(outcome, Ready) else outcome)
        if isinstance(outcome, Ready):
            ready.append(outcome)
            if not bench.measures_all:
                # Those that cannot win give back their memory at once.
                best_s = min(one.best_s for one in ready)
                ready = [one for one in ready if timing.is_close(one.best_s, best_s, bench.effort)]
    _note_hopeless(workload, trials, bench)
    return trials, ready


def try_candidate(
    candidate: Candidate, kit: Kit, size: int, given: Arrays, check: checking.Check, bench: Bench
) -> Ready | Trial:
    name = name_of(candidate)
    gc.collect()
    kit.tidy()
    memory.return_buffers()
    try:
        with kit.measuring():
            _, held = bench.inputs.time(
                lambda: {k: kit.host(a) for k, a in candidate.arrange(given).items()}
            )
            _, arrays = bench.inputs.time(
                lambda: {k: kit.to_device(one) for k, one in held.items()}
            )
            kit.synchronise()
            kit.reset_peak()
            cold_s, (function, result) = bench.calls.time(
                lambda: _first(candidate, kit, size, arrays)
            )
            peak = kit.peak_bytes()
            # Not kept beyond the check: its memory is what the next call reuses.
            on_device = [result]
            del result
            _, checked = bench.checks.time(
                lambda: check(candidate.finish(kit.to_host(on_device.pop())))
            )
            if checked.problem:
                return Trial(name, Outcome.FAILED, checked.problem, cold_s, error=checked.error)
            ready = Ready(
                candidate, kit, function, held, arrays, Trial(name, Outcome.OK), 0.0, peak
            )
            warm_s = _warmed(ready, bench)
    except TROUBLE as exc:
        return _excused(name, exc)
    ready.best_s = min(warm_s)
    ready.trial = Trial(name, Outcome.OK, "", cold_s, tuple(warm_s), checked.error)
    return ready


def _first(
    candidate: Candidate, kit: Kit, size: int, arrays: dict[str, Any]
) -> tuple[Function, Any]:
    function = candidate.prepare(kit, size)
    result = function(**arrays)
    kit.synchronise()
    return function, result


def _warmed(ready: Ready, bench: Bench) -> list[float]:
    times = [bench.calls.time(ready.call)[0]]
    wanted = next((calls for below_s, calls in _TRIAL_CALLS if times[0] < below_s), 1)
    while len(times) < wanted:
        times.append(bench.calls.time(ready.call)[0])
    return times


def _excused(name: str, exc: BaseException) -> Trial:
    if is_out_of_memory(exc):
        return Trial(name, Outcome.SKIPPED, f"out of memory: {words(exc, 120)}")
    if isinstance(exc, ImportError):
        return Trial(
            name, Outcome.SKIPPED, f"it needs {exc.name or words(exc)}, which is not installed"
        )
    return Trial(name, Outcome.FAILED, described(exc))


def is_out_of_memory(exc: BaseException) -> bool:
    """Each library has its own way to say it."""
    if isinstance(exc, MemoryError) or "OutOfMemory" in type(exc).__name__:
        return True
    said = words(exc, 5000).lower()
    signs = (
        "out of memory",
        "can't allocate memory",
        "insufficient memory",
        "mem_object_allocation_failure",
    )
    return any(sign in said for sign in signs)


def _note_hopeless(workload: Workload, trials: Sequence[Trial], bench: Bench) -> None:
    times = {one.candidate: min(one.warm_s) for one in trials if one.warm_s}
    for name, seconds in times.items():
        if timing.is_hopeless(seconds, min(times.values()), bench.effort):
            bench.hopeless.add((workload.name, name))


# -- deciding ---------------------------------------------------------------------------------------------------


def _decided(
    about: Measurement, trials: list[Trial], ready: list[Ready], workload: Workload, bench: Bench
) -> Measurement:
    if not ready:
        failed = [one for one in trials if one.outcome is Outcome.FAILED]
        said = "; ".join(f"{one.candidate}: {one.reason}" for one in failed or trials)
        outcome = Outcome.FAILED if failed else Outcome.SKIPPED
        return replace(about, outcome=outcome, reason=said, tried=tuple(trials))
    runners = [Runner(one.call, one.best_s) for one in ready]
    reason = ""
    try:
        timing.in_turns(runners, bench.effort, bench.calls)
    except TROUBLE as exc:
        # What it was right about once counts; that it did not stay so is told.
        reason = f"while it was repeated: {described(exc)}"
    for one, runner in zip(ready, runners, strict=True):
        if runner.times_s:
            one.trial = replace(one.trial, warm_s=tuple(runner.times_s))
    best = min(ready, key=lambda one: one.trial.median_s or 0.0)
    final = {one.trial.candidate: one.trial for one in ready}
    measured = replace(
        about,
        outcome=Outcome.OK,
        reason=reason,
        candidate=best.trial.candidate,
        cold_s=best.trial.cold_s,
        warm_s=best.trial.warm_s,
        peak_memory_bytes=best.peak_bytes,
        error=best.trial.error,
        tried=tuple(final.get(one.candidate, one) for one in trials),
    )
    ready.clear()
    return _with_copies(measured, best, workload, bench)


def _with_copies(
    measured: Measurement, best: Ready, workload: Workload, bench: Bench
) -> Measurement:
    """Once more, with the inputs copied to the device and the result back: what a job really takes."""
    kit = best.kit
    if not kit.has_own_memory or workload.copies_included:
        return measured
    best.arrays = {}
    wholes: list[float] = []
    ups: list[float] = []
    downs: list[float] = []
    try:
        with kit.measuring():
            while not timing.enough(wholes, sum(wholes), bench.effort):
                up, arrays = bench.calls.time(lambda: _copied(best))
                compute, result = bench.calls.time(partial(_computed, best, arrays))
                down, _ = bench.calls.time(partial(kit.to_host, result))
                wholes.append(up + compute + down)
                ups.append(up)
                downs.append(down)
    except TROUBLE as exc:
        return replace(measured, reason=f"not measured with copies: {described(exc)}")
    return replace(
        measured,
        with_copies_s=tuple(wholes),
        to_device_s=float(np.median(ups)),
        to_host_s=float(np.median(downs)),
    )


def _copied(best: Ready) -> dict[str, Any]:
    arrays = {name: best.kit.to_device(one) for name, one in best.held.items()}
    best.kit.synchronise()
    return arrays


def _computed(best: Ready, arrays: dict[str, Any]) -> Any:
    result = best.function(**arrays)
    best.kit.synchronise()
    return result
