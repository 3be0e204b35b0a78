"""What was measured, as values, and written as JSON; ``reading`` reads it. Pure.

The JSON is what `compare` and `report` read, here or years later: names carry units, and nothing in it is rounded.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from statistics import median
from typing import Annotated, Any, TypeAlias

from batchyard.bench.workload import KINDS, MAX_AMOUNT, MAX_SIZE, MIN_AMOUNT
from batchyard.json_fields import OneOf, Range

FORMAT = "batchyard-bench"
VERSION = 1
#: a spread beyond this is said aloud: the machine was not quiet
NOISY = 0.15


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
    OK = "ok"
    #: not measured, for a reason that is no fault: memory, a library that is not there
    SKIPPED = "skipped"
    #: it ran, and what came of it cannot be used: an exception, NaN, a wrong result
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate at one size."""

    candidate: str
    outcome: Outcome
    reason: str = ""
    #: the first call with all that it prepares
    cold_s: Duration | None = None
    #: each warm call, in order
    warm_s: CallTimes = ()
    #: largest difference to the reference, as a part of its largest value
    error: RelativeError | None = None

    @property
    def median_s(self) -> float | None:
        return median(self.warm_s) if self.warm_s else None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One operation on one device: the fastest candidate, and what else was tried."""

    workload: str
    title: str
    size: Annotated[int, Range(1, MAX_SIZE)]
    label: str
    outcome: Outcome
    reason: str = ""
    candidate: str = ""
    cold_s: Duration | None = None
    warm_s: CallTimes = ()
    #: with inputs copied to the device and the result back; empty where the device is the host
    with_copies_s: CallTimes = ()
    to_device_s: Duration | None = None
    to_host_s: Duration | None = None
    flops: Amount | None = None
    traffic_bytes: Amount | None = None
    is_about_bytes: bool = False
    peak_memory_bytes: Count | None = None
    error: RelativeError | None = None
    tolerance: Amount | None = None
    #: CRC-32 of the inputs: equal numbers were computed on equal data
    inputs_crc: Count | None = None
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
    def copied_s(self) -> float | None:
        """The time that counts against another device: with copies, where there are any."""
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
    """The best that was seen on this device."""

    gflops: Rate | None = None
    gbytes_s: Rate | None = None

    def part(self, measurement: Measurement) -> float | None:
        """How much of the peak an operation reached, in the rate that it is about."""
        if measurement.is_about_bytes:
            rate, most = measurement.gbytes_s, self.gbytes_s
        else:
            rate, most = measurement.gflops, self.gflops
        return rate / most if rate and most else None


@dataclass(frozen=True, slots=True)
class Seconds:
    """Where the time of a run went."""

    total: Amount = 0.0
    set_up: Amount = 0.0
    inputs: Amount = 0.0
    checks: Amount = 0.0
    calls: Amount = 0.0

    @property
    def overhead(self) -> float:
        """The part that is neither inputs, checks nor measured calls."""
        return 1 - (self.inputs + self.checks + self.calls) / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Results:
    #: cpu or gpu
    device: DeviceKind
    #: the name of the processor that computed
    device_name: str
    #: what it was measured on: model, threads, versions, driver, clocks
    machine: Mapping[str, Any]
    started: str
    seed: Annotated[int, Range(0, math.inf)] = 0
    is_quick: bool = False
    #: None where it is not known
    instance_type: str | None = None
    measurements: tuple[Measurement, ...] = ()
    peak: Peak = field(default_factory=Peak)
    seconds: Seconds = field(default_factory=Seconds)
    #: libraries that some workload could have used, and why it did not: name -> reason
    missing: Mapping[str, str] = field(default_factory=dict)
    #: empty while it is under way, and for ever if it was interrupted
    ended: str = ""
    #: the kind of device in whose place this one was measured, to see that everything works; its own kind: empty
    stands_for: Annotated[str, OneOf(("", *KINDS))] = ""

    @property
    def good(self) -> list[Measurement]:
        return [one for one in self.measurements if one.outcome is Outcome.OK]

    @property
    def name(self) -> str:
        return self.instance_type or self.device_name

    @property
    def kind(self) -> str:
        """What people call the device: never a GPU where none was measured."""
        own = self.device.upper()
        return f"{own} standing in for a {self.stands_for.upper()}" if self.stands_for else own

    @property
    def stem(self) -> str:
        """Of the names of its files."""
        return stem_of(self.device, self.stands_for)


#: beneath everything that a stand-in has to do with
STOOD_IN = (
    "a CPU stood in for the GPU: this shows that everything works, and says nothing about any GPU"
)


def stem_of(device: str, stands_for: str = "") -> str:
    return "stand-in-benchmark" if stands_for else f"{device}-benchmark"


def spread_of(values: Sequence[float]) -> float | None:
    """From the 10th to the 90th percentile, as a part of the median; None of fewer than two."""
    if len(values) < 2:
        return None
    ordered = sorted(values)
    return (percentile(ordered, 0.9) - percentile(ordered, 0.1)) / median(ordered)


def percentile(ordered: Sequence[float], part: float) -> float:
    place = part * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


# -- JSON -------------------------------------------------------------------------------------------------------


def to_json(results: Results) -> str:
    # NaN is no JSON, and no result either: what is not finite has failed before it gets here.
    return (
        json.dumps(
            {"format": FORMAT, "version": VERSION, **asdict(results)}, indent=1, allow_nan=False
        )
        + "\n"
    )
