"""`make bench`, part of `batchyard bench` on the CPU: compare it with direct calls of libraries.

For each operation, the candidate that `bench run` chooses is compared with plain calls of each
installed library, as its users write them. They take turns, one call each, so that other load on
the machine disturbs all of them alike; ratios are computed within a round. Then whole runs of the
command show how much of their time is not spent measuring, and how far a repeat differs. See
docs/benchmark.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import machine
import scores
from batchyard.bench import checking, discovery, loading, measuring, memory, results, trials
from batchyard.bench.timing import Effort
from batchyard.bench.trials import Bench, ReadyCandidate
from batchyard.bench.workload_values import make_inputs
from scores import Bar, Verdict

Direct = Callable[[dict[str, Any]], Callable[[], Any]]

_EFFORT = Effort(min_calls=5, max_calls=25, budget_s=0.6)
#: a library this many times slower than the fastest after this round is not called again
_MAX_FACTOR, _FACTOR_ROUND = 2.5, 2
#: workload -> size (full, with --quick)
_SIZES = {
    "matmul": (2000, 500),
    "convolution": (2048, 256),
    "blur": (2048, 256),
    "fft": (2048, 256),
}
_SIZES |= {"triad": (1 << 25, 1 << 20), "images": (8, 2)}
#: workloads of the whole runs: long enough to be measured, short enough to be repeated
_WHOLE_RUN = ("convolution", "blur", "fft", "triad", "backprojection")
MAX_RATIO, MAX_OVERHEAD, MAX_DIFFERENCE = 1.10, 0.05, 0.10


# -- plain calls --


def _numpy() -> dict[str, Direct]:
    return {
        "matmul, NumPy": lambda arrays: lambda: arrays["a"] @ arrays["b"],
        "fft, NumPy": lambda arrays: lambda: np.fft.rfft2(arrays["image"]),
        "triad, NumPy": lambda arrays: lambda: arrays["b"] + np.float32(3) * arrays["c"],
    }


def _scipy() -> dict[str, Direct]:
    from scipy import fft, ndimage

    workers = discovery.cpu_count()
    return {
        "fft, SciPy": lambda arrays: lambda: fft.rfft2(arrays["image"], workers=workers),
        "blur, SciPy": lambda arrays: (
            lambda: ndimage.gaussian_filter(arrays["image"], (5, 5, 0), mode="mirror")
        ),
    }


def _opencv() -> dict[str, Direct]:
    import cv2

    def convert(data: Any) -> Any:
        image = cv2.imdecode(data, cv2.IMREAD_COLOR)
        small = cv2.resize(image, None, fx=0.625, fy=0.625, interpolation=cv2.INTER_AREA)
        return cv2.imencode(
            ".jpg", cv2.cvtColor(small, cv2.COLOR_BGR2GRAY), [cv2.IMWRITE_JPEG_QUALITY, 90]
        )

    return {
        "matmul, OpenCV": lambda arrays: lambda: cv2.gemm(arrays["a"], arrays["b"], 1, None, 0),
        "blur, OpenCV": lambda arrays: lambda: cv2.GaussianBlur(arrays["image"], (0, 0), 5),
        "fft, OpenCV": lambda arrays: lambda: cv2.dft(arrays["image"]),
        "triad, OpenCV": lambda arrays: lambda: cv2.scaleAdd(arrays["c"], 3.0, arrays["b"]),
        "images, OpenCV": lambda arrays: lambda: [convert(data) for data in arrays.values()],
    }


def _torch() -> dict[str, Direct]:
    import torch
    from torch.nn import functional

    def to_tensors(arrays: dict[str, Any], **layout: Any) -> dict[str, Any]:
        return {
            name: torch.from_numpy(a).to(**layout) if a.ndim == 4 else torch.from_numpy(a)
            for name, a in arrays.items()
        }

    def network(arrays: dict[str, Any], **layout: Any) -> Callable[[], Any]:
        tensors = to_tensors(arrays, **layout)

        def call() -> Any:
            with torch.inference_mode():
                first = functional.relu(
                    functional.conv2d(tensors["image"], tensors["w1"], tensors["b1"], padding=1)
                )
                second = functional.conv2d(first, tensors["w2"], tensors["b2"], padding=1)
                return functional.max_pool2d(functional.relu(second), 2)

        return call

    def simple(function: Callable[..., Any]) -> Direct:
        def direct(arrays: dict[str, Any]) -> Callable[[], Any]:
            tensors = to_tensors(arrays)
            return lambda: function(**tensors)

        return direct

    return {
        "matmul, PyTorch": simple(lambda a, b: a @ b),
        "fft, PyTorch": simple(lambda image: torch.fft.rfft2(image)),
        "triad, PyTorch": simple(lambda b, c: torch.add(b, c, alpha=3)),
        "convolution, PyTorch": network,
        "convolution, PyTorch, channels last": lambda arrays: network(
            arrays, memory_format=torch.channels_last
        ),
    }


def plain_calls() -> tuple[dict[str, Direct], list[str]]:
    """Return the calls of the installed libraries, and the names of the other libraries."""
    calls: dict[str, Direct] = {}
    missing = []
    for name, make_calls in (
        ("NumPy", _numpy),
        ("SciPy", _scipy),
        ("OpenCV", _opencv),
        ("PyTorch", _torch),
    ):
        try:
            calls |= make_calls()
        except ImportError:
            missing.append(name)
    return calls, missing


# -- side by side --


@dataclass(slots=True)
class Contest:
    """The times of one operation: our candidate against direct calls."""

    operation: str
    #: one time per round
    ours_s: list[float] = field(default_factory=list)
    candidate: str = ""
    direct_s: dict[str, list[float]] = field(default_factory=dict)
    problem: str = ""

    @property
    def best(self) -> str:
        """Name of the fastest direct call, of those that were called in every round."""
        complete = {
            name: times for name, times in self.direct_s.items() if len(times) == len(self.ours_s)
        }
        return min(complete, key=lambda name: median(complete[name]))

    @property
    def ratios(self) -> list[float]:
        return [
            ours / theirs
            for ours, theirs in zip(self.ours_s, self.direct_s[self.best], strict=True)
        ]


def side_by_side(rounds: int, is_quick: bool) -> tuple[list[Contest], list[str]]:
    """Return the contests, and the names of the libraries that are not installed."""
    calls, missing = plain_calls()
    workloads = [workload for workload in loading.load_builtin() if workload.name in _SIZES]
    libraries = list(
        dict.fromkeys(candidate.kit for workload in workloads for candidate in workload.candidates)
    )
    bench = Bench(discovery.find_device("cpu", libraries, discovery.cpu_count()), _EFFORT)
    contests = []
    for workload in workloads:
        workload_calls = {
            key: direct for key, direct in calls.items() if key.partition(",")[0] == workload.name
        }
        if workload_calls:
            size = _SIZES[workload.name][is_quick]
            contests.append(_contest(workload, size, workload_calls, bench, rounds))
    return contests, missing


def _contest(
    workload: Any, size: int, calls: dict[str, Direct], bench: Bench, rounds: int
) -> Contest:
    """Choose the fastest candidate as `bench run` does, then call it and the libraries in turns."""
    contest = Contest(f"{workload.title}, {workload.label(size)}")
    chosen = measuring.measure(workload, size, bench)
    ours = _ready(workload, size, chosen.candidate, bench)
    if ours is None:
        contest.problem = chosen.reason
        return contest
    contest.candidate = chosen.candidate
    arrays = make_inputs(workload, size, bench.seed)
    ready = {name: direct(arrays) for name, direct in calls.items()}
    for number in range(rounds):
        contest.ours_s.append(_time_call(ours.call))
        for name in list(ready):
            contest.direct_s.setdefault(name, []).append(_time_call(ready[name]))
        if number == _FACTOR_ROUND:
            middles = {name: median(contest.direct_s[name]) for name in ready}
            ready = {
                name: ready[name]
                for name in ready
                if middles[name] < min(middles.values()) * _MAX_FACTOR
            }
    ours_ms, best_ms = (
        median(times) * 1e3 for times in (contest.ours_s, contest.direct_s[contest.best])
    )
    _say(
        f"{contest.operation}: ours {ours_ms:.2f} ms ({contest.candidate}),"
        f" {contest.best} {best_ms:.2f} ms"
    )
    return contest


def _ready(workload: Any, size: int, name: str, bench: Bench) -> ReadyCandidate | None:
    """Return the named candidate, ready to be called; None if it fails."""
    candidate = next(
        (
            candidate
            for candidate in workload.candidates
            if trials.candidate_name(candidate) == name
        ),
        None,
    )
    if candidate is None:
        return None
    arrays = make_inputs(workload, size, bench.seed)
    check = checking.Check(workload.reference(size, arrays), workload.tolerance)
    attempt = trials.try_candidate(candidate, size, arrays, check, bench)
    return attempt if isinstance(attempt, ReadyCandidate) else None


def _time_call(call: Callable[[], Any]) -> float:
    """Return the duration of the second of two calls.

    During the first, threads of another library may be spinning, and the caches hold its data.
    """
    call()
    begin_s = time.perf_counter()
    call()
    return time.perf_counter() - begin_s


# -- whole runs --


def whole_runs(is_quick: bool) -> tuple[list[dict[str, Any]], float]:
    """Return the results of two runs of the command, and the CPUs that other work kept busy."""
    runs = []
    begin_s, machine_s, command_s = time.monotonic(), machine.busy_s(), sum(os.times()[:4])
    only = [word for name in _WHOLE_RUN for word in ("--only", name)]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            out = Path(folder) / str(number)
            args = ["bench", "run", "--device", "cpu", "--out", str(out), *only]
            args += ["--quick"] if is_quick else []
            _say(f"whole run {number + 1}/2: batchyard {' '.join(args)}")
            subprocess.run(
                [sys.executable, "-m", "batchyard", *args], check=True, stdout=subprocess.DEVNULL
            )
            runs.append(json.loads((out / "cpu-benchmark.json").read_text()))
    other_s = machine.busy_s() - machine_s - (sum(os.times()[:4]) - command_s)
    return runs, other_s / (time.monotonic() - begin_s)


def overhead_of(run: dict[str, Any]) -> float:
    spent = run["seconds"]
    return 1 - (spent["inputs"] + spent["checks"] + spent["calls"]) / spent["total"]


@dataclass(frozen=True, slots=True)
class Repeat:
    """An operation in two runs."""

    operation: str
    #: larger median divided by the smaller, minus 1
    difference: float
    #: whether one of the two runs warned of a large spread
    is_warned: bool


def repeats(first: dict[str, Any], second: dict[str, Any]) -> list[Repeat]:
    times = [
        {f"{m['title']}, {m['label']}": m["warm_s"] for m in run["measurements"] if m["warm_s"]}
        for run in (first, second)
    ]
    pairs = []
    for operation in times[0].keys() & times[1].keys():
        both_s = [times_s[operation] for times_s in times]
        low, high = sorted(map(median, both_s))
        is_warned = any((results.spread_of(times_s) or 0.0) > results.NOISY for times_s in both_s)
        pairs.append(Repeat(operation, high / low - 1, is_warned))
    return sorted(pairs, key=lambda repeat: -repeat.difference)


# -- report --


def contest_bar(contest: Contest) -> Bar:
    if contest.problem:
        return Bar(contest.operation, f"< {MAX_RATIO:.0%}", contest.problem, Verdict.WRONG)
    library = contest.best.partition(", ")[2]
    name = f"{contest.operation}: {contest.candidate}, against {library} called directly"
    return scores.at_most(name, MAX_RATIO, contest.ratios, [], lambda ratio: f"{ratio:.0%}")


def run_bars(runs: Sequence[dict[str, Any]]) -> list[Bar]:
    overheads = [overhead_of(run) for run in runs]
    return [
        scores.at_most(
            "not inputs, checks or calls, of a whole run",
            MAX_OVERHEAD,
            overheads,
            [],
            lambda part: f"{part:.1%}",
        ),
        repeat_bar(repeats(runs[0], runs[1])),
    ]


def repeat_bar(pairs: Sequence[Repeat]) -> Bar:
    """Return the bar about repeats. An operation of which a run warned may differ by more."""
    quiet, noisy = (
        [pair for pair in pairs if pair.is_warned is warned] for warned in (False, True)
    )
    parts = [
        f"{len(group)} {name}: {group[0].difference:.0%} at most ({group[0].operation})"
        for name, group in (("quiet", quiet), ("warned of", noisy))
        if group
    ]
    is_met = all(pair.difference < MAX_DIFFERENCE for pair in quiet)
    return Bar(
        "a repeat's medians differ",
        f"< {MAX_DIFFERENCE:.0%}, or warned of",
        "; ".join(parts),
        Verdict.PASS if is_met else Verdict.MISS,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="The CPU side of `batchyard bench`, beside plain calls."
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works")
    parser.add_argument("--only", choices=("direct", "whole"), help="just this part")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a bar is missed")
    options = parser.parse_args(arguments)
    bars: list[Bar] = []
    parts = [f"{machine.describe(discovery.cpu_count())}."]
    if options.only != "whole":
        # For both sides, as `bench run` does.
        memory.keep_buffers()
        contests, missing = side_by_side(options.rounds, options.quick)
        bars += [contest_bar(contest) for contest in contests]
        parts += [f"Not measured: {name} (not installed)." for name in missing]
    if options.only != "direct":
        runs, other_cpus = whole_runs(options.quick)
        bars += run_bars(runs)
        parts.append(f"Other work kept {other_cpus:.1f} CPUs busy during the whole runs.")
    parts.append(
        scores.table(["bar", "asked", "measured", ""], scores.bar_rows(bars), numbers_from=4)
    )
    print("\n\n".join(parts))
    is_wrong = any(bar.verdict is Verdict.WRONG for bar in bars)
    return int(is_wrong or (options.strict and any(bar.verdict is Verdict.MISS for bar in bars)))


if __name__ == "__main__":
    sys.exit(main())
