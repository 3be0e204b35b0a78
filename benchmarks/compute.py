"""`make bench`, the CPU side of `batchyard bench`: is what it reports as fast as the best library called directly?

What `bench run` would choose for an operation, and plain calls of each library that is installed, as its users write
them: in rounds, a call each, so that what else the machine does disturbs all alike; the ratio is made within a round.
Then whole runs of the command: how much of their time is not measuring, and how far a repeat differs. See
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
from batchyard.bench import checking, discovery, loading, measuring, memory, results
from batchyard.bench.measuring import Bench
from batchyard.bench.timing import Effort
from scores import Bar, Verdict

Direct = Callable[[dict[str, Any]], Callable[[], Any]]

_EFFORT = Effort(min_calls=5, max_calls=25, budget_s=0.6)
#: a library this many times behind after so many rounds is not called again
_BEHIND, _LOOK_AFTER = 2.5, 2
#: operation: workload -> size; with --quick
_SIZES = {
    "matmul": (2000, 500),
    "convolution": (2048, 256),
    "blur": (2048, 256),
    "fft": (2048, 256),
}
_SIZES |= {"triad": (1 << 25, 1 << 20), "images": (8, 2)}
#: for the bars about whole runs: large enough to take some time, small enough to be repeated
_WHOLE = (
    "--only",
    "convolution",
    "--only",
    "blur",
    "--only",
    "fft",
    "--only",
    "triad",
    "--only",
    "backprojection",
)
WITHIN, OVERHEAD, REPEAT = 1.10, 0.05, 0.10


# -- plain calls ------------------------------------------------------------------------------------------------


def _numpy(found: dict[str, Direct]) -> None:
    found["matmul, NumPy"] = lambda given: lambda: given["a"] @ given["b"]
    found["fft, NumPy"] = lambda given: lambda: np.fft.rfft2(given["image"])
    found["triad, NumPy"] = lambda given: lambda: given["b"] + np.float32(3) * given["c"]


def _scipy(found: dict[str, Direct]) -> None:
    from scipy import fft, ndimage

    workers = discovery.cpus()
    found["fft, SciPy"] = lambda given: lambda: fft.rfft2(given["image"], workers=workers)
    found["blur, SciPy"] = lambda given: (
        lambda: ndimage.gaussian_filter(given["image"], (5, 5, 0), mode="mirror")
    )


def _opencv(found: dict[str, Direct]) -> None:
    import cv2

    def one(data: Any) -> Any:
        image = cv2.imdecode(data, cv2.IMREAD_COLOR)
        small = cv2.resize(image, None, fx=0.625, fy=0.625, interpolation=cv2.INTER_AREA)
        return cv2.imencode(
            ".jpg", cv2.cvtColor(small, cv2.COLOR_BGR2GRAY), [cv2.IMWRITE_JPEG_QUALITY, 90]
        )

    found["matmul, OpenCV"] = lambda given: lambda: cv2.gemm(given["a"], given["b"], 1, None, 0)
    found["blur, OpenCV"] = lambda given: lambda: cv2.GaussianBlur(given["image"], (0, 0), 5)
    found["fft, OpenCV"] = lambda given: lambda: cv2.dft(given["image"])
    found["triad, OpenCV"] = lambda given: lambda: cv2.scaleAdd(given["c"], 3.0, given["b"])
    found["images, OpenCV"] = lambda given: lambda: [one(data) for data in given.values()]


def _torch(found: dict[str, Direct]) -> None:
    import torch
    from torch.nn import functional

    def tensors(given: dict[str, Any], **form: Any) -> dict[str, Any]:
        return {
            name: torch.from_numpy(a).to(**form) if a.ndim == 4 else torch.from_numpy(a)
            for name, a in given.items()
        }

    def network(given: dict[str, Any], **form: Any) -> Callable[[], Any]:
        held = tensors(given, **form)

        def call() -> Any:
            with torch.inference_mode():
                first = functional.relu(
                    functional.conv2d(held["image"], held["w1"], held["b1"], padding=1)
                )
                return functional.max_pool2d(
                    functional.relu(functional.conv2d(first, held["w2"], held["b2"], padding=1)), 2
                )

        return call

    def simple(function: Callable[..., Any]) -> Direct:
        def direct(given: dict[str, Any]) -> Callable[[], Any]:
            held = tensors(given)
            return lambda: function(**held)

        return direct

    found["matmul, PyTorch"] = simple(lambda a, b: a @ b)
    found["fft, PyTorch"] = simple(lambda image: torch.fft.rfft2(image))
    found["triad, PyTorch"] = simple(lambda b, c: torch.add(b, c, alpha=3))
    found["convolution, PyTorch"] = network
    found["convolution, PyTorch, channels last"] = lambda given: network(
        given, memory_format=torch.channels_last
    )


def plain_calls() -> tuple[dict[str, Direct], list[str]]:
    """Of the libraries that are there, and the names of those that are not."""
    found: dict[str, Direct] = {}
    missing = []
    for name, add in (
        ("NumPy", _numpy),
        ("SciPy", _scipy),
        ("OpenCV", _opencv),
        ("PyTorch", _torch),
    ):
        try:
            add(found)
        except ImportError:
            missing.append(name)
    return found, missing


# -- side by side -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Contest:
    operation: str
    #: of each round
    ours_s: list[float] = field(default_factory=list)
    candidate: str = ""
    direct_s: dict[str, list[float]] = field(default_factory=dict)
    problem: str = ""

    @property
    def best(self) -> str:
        whole = {
            name: times for name, times in self.direct_s.items() if len(times) == len(self.ours_s)
        }
        return min(whole, key=lambda name: median(whole[name]))

    @property
    def ratios(self) -> list[float]:
        return [
            ours / theirs
            for ours, theirs in zip(self.ours_s, self.direct_s[self.best], strict=True)
        ]


def side_by_side(rounds: int, is_quick: bool) -> tuple[list[Contest], list[str]]:
    calls, missing = plain_calls()
    workloads = {one.name: one for one in loading.load_builtin() if one.name in _SIZES}
    libraries = list(dict.fromkeys(c.kit for one in workloads.values() for c in one.candidates))
    bench = Bench(discovery.find_device("cpu", libraries, discovery.cpus()), _EFFORT)
    contests = []
    for name, workload in workloads.items():
        own = {key: direct for key, direct in calls.items() if key.partition(",")[0] == name}
        if own:
            size = _SIZES[name][is_quick]
            contests.append(_contest(workload, size, own, bench, rounds))
    return contests, missing


def _contest(
    workload: Any, size: int, calls: dict[str, Direct], bench: Bench, rounds: int
) -> Contest:
    """The fastest is chosen as `bench run` does it; then each has a call at a time, in turns."""
    contest = Contest(f"{workload.title}, {workload.label(size)}")
    chosen = measuring.measure(workload, size, bench)
    ours = _ready(workload, size, chosen.candidate, bench)
    if ours is None:
        contest.problem = chosen.reason
        return contest
    contest.candidate = chosen.candidate
    given = measuring.inputs_of(workload, size, bench.seed)
    ready = {name: direct(given) for name, direct in calls.items()}
    for number in range(rounds):
        contest.ours_s.append(_timed(ours.call))
        for name in list(ready):
            contest.direct_s.setdefault(name, []).append(_timed(ready[name]))
        if number == _LOOK_AFTER:
            middles = {name: median(contest.direct_s[name]) for name in ready}
            ready = {
                name: ready[name]
                for name in ready
                if middles[name] < min(middles.values()) * _BEHIND
            }
    middle, least = (
        median(times) * 1e3 for times in (contest.ours_s, contest.direct_s[contest.best])
    )
    _say(
        f"{contest.operation}: ours {middle:.2f} ms ({contest.candidate}), {contest.best} {least:.2f} ms"
    )
    return contest


def _ready(workload: Any, size: int, name: str, bench: Bench) -> measuring.Ready | None:
    candidate = next((one for one in workload.candidates if measuring.candidate_name(one) == name), None)
    if candidate is None:
        return None
    given = measuring.inputs_of(workload, size, bench.seed)
    check = checking.Check(workload.reference(size, given), workload.tolerance)
    tried = measuring.try_candidate(
        candidate, bench.found.kits[candidate.kit], size, given, check, bench
    )
    return tried if isinstance(tried, measuring.Ready) else None


def _timed(call: Callable[[], Any]) -> float:
    """The second of two calls: the first finds another library's threads still spinning, and its data in the caches."""
    call()
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


# -- whole runs -------------------------------------------------------------------------------------------------


def whole_runs(is_quick: bool) -> tuple[list[dict[str, Any]], float]:
    """Two runs of the command, and how many CPUs the rest of the machine used meanwhile."""
    runs = []
    begin, busy, own = time.monotonic(), machine.busy_s(), sum(os.times()[:4])
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            out = Path(folder) / str(number)
            args = [
                "bench",
                "run",
                "--device",
                "cpu",
                "--out",
                str(out),
                *_WHOLE,
                *(["--quick"] if is_quick else []),
            ]
            _say(f"whole run {number + 1}/2: batchyard {' '.join(args)}")
            subprocess.run(
                [sys.executable, "-m", "batchyard", *args], check=True, stdout=subprocess.DEVNULL
            )
            runs.append(json.loads((out / "cpu-benchmark.json").read_text()))
    used = machine.busy_s() - busy - (sum(os.times()[:4]) - own)
    return runs, used / (time.monotonic() - begin)


def overhead_of(run: dict[str, Any]) -> float:
    spent = run["seconds"]
    return 1 - (spent["inputs"] + spent["checks"] + spent["calls"]) / spent["total"]


@dataclass(frozen=True, slots=True)
class Repeat:
    operation: str
    #: how far the larger median is above the smaller
    apart: float
    #: one of the two runs said that the machine was not quiet
    is_warned: bool


def repeats(first: dict[str, Any], second: dict[str, Any]) -> list[Repeat]:
    times = [
        {f"{m['title']}, {m['label']}": m["warm_s"] for m in run["measurements"] if m["warm_s"]}
        for run in (first, second)
    ]
    found = []
    for operation in times[0].keys() & times[1].keys():
        pair = [one[operation] for one in times]
        low, high = sorted(map(median, pair))
        is_warned = any((results.spread_of(one) or 0.0) > results.NOISY for one in pair)
        found.append(Repeat(operation, high / low - 1, is_warned))
    return sorted(found, key=lambda one: -one.apart)


# -- telling ----------------------------------------------------------------------------------------------------


def contest_bar(contest: Contest) -> Bar:
    asked = f"< {WITHIN:.0%}"
    if contest.problem:
        return Bar(contest.operation, asked, contest.problem, Verdict.WRONG)
    name = f"{contest.operation}: {contest.candidate}, against {contest.best.partition(', ')[2]} called directly"
    return scores.at_most(name, WITHIN, contest.ratios, [], lambda ratio: f"{ratio:.0%}")


def run_bars(runs: Sequence[dict[str, Any]]) -> list[Bar]:
    overheads = [overhead_of(run) for run in runs]
    return [
        scores.at_most(
            "not inputs, checks or calls, of a whole run",
            OVERHEAD,
            overheads,
            [],
            lambda part: f"{part:.1%}",
        ),
        repeat_bar(repeats(runs[0], runs[1])),
    ]


def repeat_bar(found: Sequence[Repeat]) -> Bar:
    """Where the run itself has said that the machine was not quiet, a repeat may differ: that is what it has said."""
    quiet, noisy = ([one for one in found if one.is_warned is warned] for warned in (False, True))
    parts = (
        [f"{len(quiet)} quiet: {quiet[0].apart:.0%} at most ({quiet[0].operation})"]
        if quiet
        else []
    )
    parts += (
        [f"{len(noisy)} warned of: {noisy[0].apart:.0%} at most ({noisy[0].operation})"]
        if noisy
        else []
    )
    asked = f"< {REPEAT:.0%}, or warned of"
    is_met = all(one.apart < REPEAT for one in quiet)
    return Bar(
        "a repeat's medians differ",
        asked,
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
    given = parser.parse_args(arguments)
    bars: list[Bar] = []
    parts = [f"{machine.describe(discovery.cpus())}."]
    if given.only != "whole":
        # Both sides have it: as the command does for itself.
        memory.keep_buffers()
        contests, missing = side_by_side(given.rounds, given.quick)
        bars += [contest_bar(one) for one in contests]
        parts += [f"Not measured: {name} (not installed)." for name in missing]
    if given.only != "direct":
        runs, others = whole_runs(given.quick)
        bars += run_bars(runs)
        parts.append(f"Other work kept {others:.1f} CPUs busy during the whole runs.")
    parts.append(
        scores.table(["bar", "asked", "measured", ""], scores.bar_rows(bars), numbers_from=4)
    )
    print("\n\n".join(parts))
    is_wrong = any(bar.verdict is Verdict.WRONG for bar in bars)
    return int(is_wrong or (given.strict and any(bar.verdict is Verdict.MISS for bar in bars)))


if __name__ == "__main__":
    sys.exit(main())
