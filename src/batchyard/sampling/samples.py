"""Samples of what a child uses, and their summary, whose size does not grow with time. Pure."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

#: Points of a series at most. A full series is halved: each point then covers twice the time.
MAX_POINTS = 48
_KIB_PER_MIB = 1024


class GpuReading(NamedTuple):
    """The GPUs of a child at one moment. None: the driver does not measure it."""

    #: Mean over the GPUs: percent of the last moments in which a program ran on them.
    percent: float | None = None
    #: Memory in use of the GPU that has most in use.
    memory_mib: int | None = None
    #: The whole memory of that GPU.
    total_mib: int | None = None


class Reading(NamedTuple):
    """One look at a child."""

    #: Seconds of a clock that never goes back.
    at_s: float
    #: CPU time that the processes of the child have used so far.
    cpu_s: float
    memory_kib: int
    gpu: GpuReading | None = None


class Series(NamedTuple):
    """How the use of a child changed with time: points at equal distances."""

    #: Busy CPUs, the mean of each point.
    cpus: tuple[float, ...] = ()
    #: The peak of each point.
    memory_mib: tuple[int, ...] = ()
    #: The mean of each point, in percent; empty for a child without a measured GPU.
    gpu_percent: tuple[float | None, ...] = ()
    #: The peak of each point.
    gpu_memory_mib: tuple[int | None, ...] = ()


class SampledUse(NamedTuple):
    """What an attempt, a command or a step has used, from its samples."""

    #: Number of samples, and the seconds that they cover.
    samples: int
    seconds: float
    #: Busy CPUs: 1.5 is one and a half.
    mean_cpus: float
    peak_cpus: float
    #: Of all processes of the child together.
    peak_memory_kib: int
    mean_gpu_percent: float | None = None
    peak_gpu_percent: float | None = None
    #: Of the GPU of the child that had most in use, and the whole memory of that GPU.
    peak_gpu_memory_mib: int | None = None
    gpu_memory_mib: int | None = None
    #: Empty for the use of a step.
    series: Series = Series()

    def without_series(self) -> SampledUse:
        return self._replace(series=Series())


class AttemptUse(NamedTuple):
    """What one attempt has used, or has used so far."""

    step: str
    #: Number of the child in its step.
    index_in_step: int
    attempt: int
    use: SampledUse


class SampledStep(NamedTuple):
    """What the sampled attempts of a step have used."""

    #: All of them together, without a series.
    total: SampledUse
    #: The attempt with the longest samples.
    longest: AttemptUse


class _Point:
    """Consecutive samples of a child, combined."""

    __slots__ = ("cpu_s", "gpu_memory_mib", "gpu_s", "gpu_weighted", "memory_kib", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_s = 0.0
        self.memory_kib = 0
        #: Seconds with a measured use of the GPUs, and the sum of percent times seconds.
        self.gpu_s = 0.0
        self.gpu_weighted = 0.0
        self.gpu_memory_mib: int | None = None

    def add(self, seconds: float, cpu_s: float, memory_kib: int, gpu: GpuReading | None) -> None:
        self.seconds += seconds
        self.cpu_s += cpu_s
        self.memory_kib = max(self.memory_kib, memory_kib)
        if gpu is None:
            return
        if gpu.percent is not None:
            self.gpu_s += seconds
            self.gpu_weighted += gpu.percent * seconds
        self.gpu_memory_mib = _max_known(self.gpu_memory_mib, gpu.memory_mib)

    def absorb(self, later: _Point) -> None:
        self.seconds += later.seconds
        self.cpu_s += later.cpu_s
        self.memory_kib = max(self.memory_kib, later.memory_kib)
        self.gpu_s += later.gpu_s
        self.gpu_weighted += later.gpu_weighted
        self.gpu_memory_mib = _max_known(self.gpu_memory_mib, later.gpu_memory_mib)

    @property
    def cpus(self) -> float:
        return self.cpu_s / self.seconds if self.seconds else 0.0

    @property
    def gpu_percent(self) -> float | None:
        return self.gpu_weighted / self.gpu_s if self.gpu_s else None


class Samples:
    """The samples of one attempt or command so far. Its size is bounded.

    One thread adds samples while another may summarize them.
    """

    def __init__(self, began_s: float, began_cpu_s: float = 0.0) -> None:
        """``began_s``: when the attempt began. ``began_cpu_s``: CPU time before that."""
        self._lock = threading.Lock()
        self._last_s = began_s
        self._last_cpu_s = began_cpu_s
        #: Memory of a look at which the CPU time fell; it counts at the next look.
        self._held_memory_kib: int | None = None
        self._count = 0
        self._points: list[_Point] = []
        #: Samples of a full point, and of the last one.
        self._stride = 1
        self._filled = 0
        self._peak_cpus = 0.0
        self._peak_gpu_percent: float | None = None
        self._gpu_memory_mib: int | None = None

    def add(self, reading: Reading) -> None:
        """Add a sample: the use since the last one. Two readings of one moment are one."""
        with self._lock:
            self._add(reading)

    def _add(self, reading: Reading) -> None:
        seconds = reading.at_s - self._last_s
        if seconds <= 0:
            return
        # A process that ends during a look, after the look at the one that waits for it, is missing
        # in the sum. Its CPU time is back at the next look, and is not counted again.
        if reading.cpu_s < self._last_cpu_s and self._held_memory_kib is None:
            self._held_memory_kib = reading.memory_kib
            return
        memory_kib = max(reading.memory_kib, self._held_memory_kib or 0)
        self._held_memory_kib = None
        # CPU time of a process that nobody waits for is lost at its end: the sum stays lower.
        cpu_s = max(0.0, reading.cpu_s - self._last_cpu_s)
        self._last_s, self._last_cpu_s = reading.at_s, reading.cpu_s
        self._count += 1
        self._peak_cpus = max(self._peak_cpus, cpu_s / seconds)
        if reading.gpu is not None:
            self._peak_gpu_percent = _max_known(self._peak_gpu_percent, reading.gpu.percent)
            self._gpu_memory_mib = _max_known(self._gpu_memory_mib, reading.gpu.total_mib)
        self._next_point().add(seconds, cpu_s, memory_kib, reading.gpu)
        self._filled += 1

    def _next_point(self) -> _Point:
        if self._points and self._filled < self._stride:
            return self._points[-1]
        if len(self._points) == MAX_POINTS:
            self._halve()
        self._points.append(_Point())
        self._filled = 0
        return self._points[-1]

    def _halve(self) -> None:
        for earlier, later in zip(self._points[::2], self._points[1::2], strict=True):
            earlier.absorb(later)
        self._points = self._points[::2]
        self._stride *= 2

    def summarize(self) -> SampledUse | None:
        """Return the use so far; None without a sample."""
        with self._lock:
            return self._summarize()

    def _summarize(self) -> SampledUse | None:
        if not self._count:
            return None
        total = _Point()
        for point in self._points:
            total.absorb(point)
        return SampledUse(
            samples=self._count,
            seconds=total.seconds,
            mean_cpus=total.cpus,
            peak_cpus=self._peak_cpus,
            peak_memory_kib=total.memory_kib,
            mean_gpu_percent=total.gpu_percent,
            peak_gpu_percent=self._peak_gpu_percent,
            peak_gpu_memory_mib=total.gpu_memory_mib,
            gpu_memory_mib=self._gpu_memory_mib,
            series=_make_series(self._points),
        )


def _make_series(points: Sequence[_Point]) -> Series:
    has_gpu = any(point.gpu_s or point.gpu_memory_mib is not None for point in points)
    return Series(
        cpus=tuple(round(point.cpus, 2) for point in points),
        memory_mib=tuple(round(point.memory_kib / _KIB_PER_MIB) for point in points),
        gpu_percent=tuple(_round(point.gpu_percent) for point in points) if has_gpu else (),
        gpu_memory_mib=tuple(point.gpu_memory_mib for point in points) if has_gpu else (),
    )


def combine(uses: Iterable[SampledUse]) -> SampledUse | None:
    """Return the use of several attempts together: means by time, and the largest peaks.

    Returns None without any use.
    """
    total, count = _Point(), 0
    peak_cpus, peak_gpu, gpu_memory = 0.0, None, None
    for use in uses:
        count += use.samples
        gpu = GpuReading(use.mean_gpu_percent, use.peak_gpu_memory_mib)
        total.add(use.seconds, use.mean_cpus * use.seconds, use.peak_memory_kib, gpu)
        peak_cpus = max(peak_cpus, use.peak_cpus)
        peak_gpu = _max_known(peak_gpu, use.peak_gpu_percent)
        gpu_memory = _max_known(gpu_memory, use.gpu_memory_mib)
    if not count:
        return None
    return SampledUse(
        samples=count,
        seconds=total.seconds,
        mean_cpus=total.cpus,
        peak_cpus=peak_cpus,
        peak_memory_kib=total.memory_kib,
        mean_gpu_percent=total.gpu_percent,
        peak_gpu_percent=peak_gpu,
        peak_gpu_memory_mib=total.gpu_memory_mib,
        gpu_memory_mib=gpu_memory,
    )


def combine_steps(
    ended: Mapping[str, SampledStep], running: Iterable[AttemptUse]
) -> dict[str, SampledStep]:
    """Return step -> what its attempts have used: those that have ended, and those that run."""
    by_step = dict(ended)
    for attempt in running:
        earlier = by_step.get(attempt.step)
        if earlier is None:
            by_step[attempt.step] = SampledStep(attempt.use.without_series(), attempt)
            continue
        total = combine([earlier.total, attempt.use])
        assert total is not None
        longest = max(earlier.longest, attempt, key=lambda entry: entry.use.seconds)
        by_step[attempt.step] = SampledStep(total, longest)
    return by_step


def _max_known(first: Any, second: Any) -> Any:
    """Return the larger of two numbers; of one number and None, the number."""
    if first is None or second is None:
        return second if first is None else first
    return max(first, second)


def _round(number: float | None, digits: int = 0) -> float | None:
    if number is None:
        return None
    return round(number, digits) if digits else round(number)


# -- as JSON ---------------------------------------------------------------------------------------


def to_json(use: SampledUse) -> dict[str, Any]:
    """Return the use as a document. Members that were not measured are left out."""
    document = {
        "samples": use.samples,
        "seconds": round(use.seconds, 1),
        "mean_cpus": round(use.mean_cpus, 2),
        "peak_cpus": round(use.peak_cpus, 2),
        "peak_memory_kib": use.peak_memory_kib,
        "mean_gpu_percent": _round(use.mean_gpu_percent, 1),
        "peak_gpu_percent": _round(use.peak_gpu_percent, 1),
        "peak_gpu_memory_mib": use.peak_gpu_memory_mib,
        "gpu_memory_mib": use.gpu_memory_mib,
    }
    document = {name: value for name, value in document.items() if value is not None}
    series = series_to_json(use.series)
    return {**document, "series": series} if series else document


def series_to_json(series: Series) -> dict[str, list[Any]]:
    return {name: list(values) for name, values in series._asdict().items() if values}


def from_json(document: object) -> SampledUse | None:
    """Return the use of a document; None for a text of another version, or of another program."""
    if not isinstance(document, Mapping):
        return None
    members = {name: document.get(name) for name in SampledUse._fields if name != "series"}
    if any(not _is_number(members[name]) for name in _REQUIRED):
        return None
    if not all(map(_is_number_or_none, members.values())):
        return None
    return SampledUse(**members, series=series_from_json(document.get("series")))  # type: ignore[arg-type]


def series_from_json(document: object) -> Series:
    """Return the series of a document. What is no series of this version is left out."""
    if not isinstance(document, Mapping):
        return Series()
    columns = [_parse_column(document.get(name)) for name in Series._fields]
    is_valid = None not in columns and len(columns[0] or ()) == len(columns[1] or ())
    if not is_valid or None in (*(columns[0] or ()), *(columns[1] or ())):
        return Series()
    return Series(*columns)  # type: ignore[arg-type]


def _parse_column(values: object) -> tuple[float | None, ...] | None:
    """Return numbers and gaps, or nothing for a missing column; None if it is no column."""
    if values is None:
        return ()
    if not isinstance(values, list) or len(values) > MAX_POINTS:
        return None
    return tuple(values) if all(map(_is_number_or_none, values)) else None


_REQUIRED = ("samples", "seconds", "mean_cpus", "peak_cpus", "peak_memory_kib")


def _is_number_or_none(value: object) -> bool:
    return value is None or _is_number(value)


def _is_number(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < math.inf  # type: ignore[operator]
