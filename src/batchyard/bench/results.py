"""The results of a benchmark, as values and as JSON; ``reading`` reads the JSON. Pure.

`compare` and `report` read the JSON files, perhaps years later: names carry units, and no number
is rounded.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from statistics import median
from typing import Annotated, Any, TypeAlias

from batchyard.bench.workload import KINDS, MAX_AMOUNT, MAX_SIZE, MIN_AMOUNT
from batchyard.json_fields import OneOf, Range

FORMAT = "batchyard-bench"
VERSION = 1
#: name of the workload in the results of a command of the user
COMMAND = "command"
#: a larger spread is marked in tables: other load disturbed the measurement
NOISY = 0.15
#: a GPU whose clock is below this fraction of its highest one was slowed down
SLOWED = 0.75


#: what a field may hold; checked when a file is read
Amount: TypeAlias = Annotated[float, Range(MIN_AMOUNT, MAX_AMOUNT, allows_zero=True)]
Count: TypeAlias = Annotated[int, Range(0, MAX_SIZE)]
Rate: TypeAlias = Annotated[float, Range(1e-60, 1e60, allows_zero=True)]
#: seconds of a timed call
CallTime: TypeAlias = Annotated[float, Range(1e-12, 1e12)]
CallTimes: TypeAlias = tuple[CallTime, ...]
#: seconds; zero if the clock did not advance
Duration: TypeAlias = Annotated[float, Range(1e-12, 1e12, allows_zero=True)]
RelativeError: TypeAlias = Annotated[float, Range(0, sys.float_info.max)]
DeviceKind: TypeAlias = Annotated[str, OneOf(KINDS)]


class Outcome(StrEnum):
    """How a measurement or a trial ended."""

    OK = "ok"
    #: not measured, because memory or a library is missing
    SKIPPED = "skipped"
    #: the code raised an exception, or its result has NaN or is wrong
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate at one size on one device."""

    candidate: str
    outcome: Outcome
    reason: str = ""
    #: first call, with everything that it prepares
    cold_s: Duration | None = None
    #: warm calls, in order
    warm_s: CallTimes = ()
    #: largest difference to the reference, as a fraction of the reference's largest value
    error: RelativeError | None = None

    @property
    def median_s(self) -> float | None:
        return median(self.warm_s) if self.warm_s else None


@dataclass(frozen=True, slots=True)
class GpuClocks:
    """Clocks of the GPU's processors while an operation was measured."""

    #: median and lowest of the readings, and the highest that the GPU allows
    median_mhz: Amount
    lowest_mhz: Amount
    max_mhz: Amount
    readings: Annotated[int, Range(1, MAX_SIZE)]

    @property
    def fraction(self) -> float | None:
        """The median as a fraction of the highest clock; None if that is unknown."""
        return self.median_mhz / self.max_mhz if self.max_mhz else None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One operation on one device: the times of the fastest candidate, and all trials."""

    workload: str
    title: str
    size: Annotated[int, Range(1, MAX_SIZE)]
    label: str
    outcome: Outcome
    reason: str = ""
    candidate: str = ""
    cold_s: Duration | None = None
    warm_s: CallTimes = ()
    #: calls with copies of inputs and result; empty if the device has no memory of its own
    with_copies_s: CallTimes = ()
    to_device_s: Duration | None = None
    to_host_s: Duration | None = None
    flops: Amount | None = None
    traffic_bytes: Amount | None = None
    is_about_bytes: bool = False
    peak_memory_bytes: Count | None = None
    error: RelativeError | None = None
    tolerance: Amount | None = None
    #: CRC-32 of the inputs; only results of equal inputs are compared
    inputs_crc: Count | None = None
    gpu_clocks: GpuClocks | None = None
    tried: tuple[Trial, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        return self.workload, self.size

    @property
    def operation(self) -> str:
        return f"{self.title}, {self.label}"

    @property
    def median_s(self) -> float | None:
        return median(self.warm_s) if self.warm_s else None

    @property
    def median_with_copies_s(self) -> float | None:
        """Median time of the calls with copies, or of the warm calls if there are no copies."""
        return median(self.with_copies_s) if self.with_copies_s else self.median_s

    @property
    def spread(self) -> float | None:
        return spread_of(self.warm_s)

    @property
    def gflops(self) -> float | None:
        return self.flops / self.median_s / 1e9 if self.flops and self.median_s else None

    @property
    def gbytes_s(self) -> float | None:
        return (
            self.traffic_bytes / self.median_s / 1e9
            if self.traffic_bytes and self.median_s
            else None
        )


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest rates that were measured on this device."""

    gflops: Rate | None = None
    gbytes_s: Rate | None = None

    def fraction(self, measurement: Measurement) -> float | None:
        """Return which fraction of the peak an operation reached; None if unknown."""
        if measurement.is_about_bytes:
            rate, peak_rate = measurement.gbytes_s, self.gbytes_s
        else:
            rate, peak_rate = measurement.gflops, self.gflops
        return rate / peak_rate if rate and peak_rate else None


@dataclass(frozen=True, slots=True)
class Seconds:
    """Where the time of a benchmark went, in seconds."""

    total: Amount = 0.0
    set_up: Amount = 0.0
    inputs: Amount = 0.0
    checks: Amount = 0.0
    calls: Amount = 0.0

    @property
    def overhead(self) -> float:
        """Fraction of the time spent neither on inputs nor on checks nor on measured calls."""
        return 1 - (self.inputs + self.checks + self.calls) / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Results:
    """All measurements of one device."""

    #: cpu or gpu
    device: DeviceKind
    #: the name of the processor that computed
    device_name: str
    #: description of the machine: model, threads, versions, driver, clocks
    machine: Mapping[str, Any]
    started: str
    seed: Annotated[int, Range(0, math.inf)] = 0
    is_quick: bool = False
    #: EC2 instance type; None if unknown
    instance_type: str | None = None
    measurements: tuple[Measurement, ...] = ()
    peak: Peak = field(default_factory=Peak)
    seconds: Seconds = field(default_factory=Seconds)
    #: libraries that a workload could have used -> why they could not be used
    missing: Mapping[str, str] = field(default_factory=dict)
    #: when the benchmark was complete; empty if it is unfinished or was interrupted
    ended: str = ""
    #: the kind of device for which this device stands in; empty if it is no stand-in
    stands_for: Annotated[str, OneOf(("", *KINDS))] = ""

    @property
    def successes(self) -> list[Measurement]:
        """Measurements with the outcome OK."""
        return [
            measurement for measurement in self.measurements if measurement.outcome is Outcome.OK
        ]

    @property
    def failure_count(self) -> int:
        """Number of measurements and trials with the outcome FAILED."""
        outcomes = [measurement.outcome for measurement in self.measurements]
        outcomes += [
            trial.outcome for measurement in self.measurements for trial in measurement.tried
        ]
        return outcomes.count(Outcome.FAILED)

    @property
    def noisy_count(self) -> int:
        """Number of measurements whose spread is beyond NOISY."""
        return sum((measurement.spread or 0) > NOISY for measurement in self.successes)

    @property
    def name(self) -> str:
        return self.instance_type or self.device_name

    @property
    def is_command(self) -> bool:
        """Whether a command of the user was measured, not workloads."""
        return bool(self.measurements) and all(
            measurement.workload == COMMAND for measurement in self.measurements
        )

    @property
    def kind(self) -> str:
        """Kind of the device in words; a stand-in is never called a GPU."""
        kind = self.device.upper()
        return f"{kind} standing in for a {self.stands_for.upper()}" if self.stands_for else kind

    def on_type(self, types: Mapping[str, str]) -> Results:
        """Return the results with the instance type of their kind of device, if there is one.

        A stand-in has no type: the price of a GPU would say nothing about it.
        """
        name = types.get(self.device, "")
        return replace(self, instance_type=name) if name and not self.stands_for else self

    @property
    def stem(self) -> str:
        """File name of the results without its extension."""
        return file_stem(self.device, self.stands_for)


#: note below every table with results of a stand-in
STAND_IN_NOTE = (
    "a CPU stood in for the GPU: this shows that everything works, and says nothing about any GPU"
)


def file_stem(device: str, stands_for: str = "") -> str:
    return "stand-in-benchmark" if stands_for else f"{device}-benchmark"


def spread_of(values: Sequence[float]) -> float | None:
    """Return the range from the 10th to the 90th percentile, divided by the median.

    None if there are fewer than two values.
    """
    if len(values) < 2:
        return None
    ordered = sorted(values)
    return (percentile(ordered, 0.9) - percentile(ordered, 0.1)) / median(ordered)


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Return the value below which this fraction of the sorted values lies, interpolated."""
    position = fraction * (len(ordered) - 1)
    low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
    return low + (high - low) * (position - math.floor(position))


# -- JSON --


def to_json(results: Results) -> str:
    # A result with NaN has failed its check, so no NaN can be here; JSON has no NaN.
    return (
        json.dumps(
            {"format": FORMAT, "version": VERSION, **asdict(results)}, indent=1, allow_nan=False
        )
        + "\n"
    )
