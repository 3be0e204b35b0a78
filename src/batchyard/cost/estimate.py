"""Estimate what a step will cost, as a range, from the seconds of earlier commands. Pure.

The seconds of commands are taken as log-normal, which median and 95th percentile describe. Then
the range covers about 95 % of runs whose commands are like the earlier ones. It includes that few
earlier commands tell less, the boot of instances, and instances that wait for their last child.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batchyard.batch.jobs import Resources
from batchyard.cost.bill import MIN_BILLED_S

#: standard deviations of a normal distribution: to its 95th percentile, and on each side of the
#: middle 95 %
_TO_P95 = 1.645
_TO_BOUND = 1.96
#: largest ratio of 95th percentile and median that is taken as log-normal
_MAX_RATIO = 12
#: Seconds of an instance before its first child starts, and after its last one ends: launch, boot,
#: pull of the image, and the time until AWS Batch ends it. Low and high.
OVERHEAD_S = (60.0, 600.0)
_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds of commands: median, 95th percentile, and from how many commands they are."""

    median_s: float
    p95_s: float
    #: 0 for a guess of the user
    count: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float

    def scaled(self, factor: float) -> Range:
        return Range(self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Work:
    """A step: its commands, and how its children share instances."""

    commands: int
    children: int
    #: what one child requests
    requested: Resources
    #: largest number of children at once; None for no limit
    max_running: int | None = None


def measure_spread(seconds: Sequence[float]) -> Spread | None:
    """Return the spread of measured seconds; None without any."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return Spread(_quantile(ordered, 0.5), _quantile(ordered, 0.95), len(ordered))


def _quantile(ordered: Sequence[float], fraction: float) -> float:
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def sum_of_commands(spread: Spread, commands: int) -> Range:
    """Return the seconds that this many commands take one after the other."""
    if spread.p95_s > spread.median_s * _MAX_RATIO:
        # Such seconds have no usual distribution: only these bounds are known.
        return Range(commands * spread.median_s, commands * spread.p95_s)
    if not spread.median_s or not commands:
        return Range(0.0, 0.0)
    sigma = math.log(max(spread.p95_s / spread.median_s, 1.0)) / _TO_P95
    mean = spread.median_s * math.exp(sigma**2 / 2)
    deviation = mean * math.sqrt(math.expm1(sigma**2))
    # Of each command, and of the mean itself, which is known from only so many commands.
    variance = deviation**2 * (commands + commands**2 / max(1, spread.count))
    margin = _TO_BOUND * math.sqrt(variance)
    # No command is expected below the 5th percentile, which the two others tell.
    p5_s = spread.median_s**2 / max(spread.p95_s, spread.median_s)
    high = commands * mean + margin
    return Range(min(high, max(commands * p5_s, commands * mean - margin)), high)


def children_per_instance(requested: Resources, capacity: Resources) -> int:
    """Return how many children fit on an instance at once; 0 if none does."""
    counts = [
        capacity.vcpus // requested.vcpus if requested.vcpus else None,
        capacity.memory_mib // requested.memory_mib if requested.memory_mib else None,
        capacity.gpus // requested.gpus if requested.gpus else None,
    ]
    return min((count for count in counts if count is not None), default=0)


def instance_seconds(
    work: Work, spread: Spread, capacity: Resources, max_instances: int | None = None
) -> Range | None:
    """Return the billed seconds of all instances; None if no child fits on one.

    The low end has instances that are full until they end. At the high end, each one waits for
    the longest child.
    """
    fitting = children_per_instance(work.requested, capacity)
    if not fitting or not work.children:
        return None
    at_once = min(work.children, work.max_running or work.children)
    instances = min(math.ceil(at_once / fitting), max_instances or at_once)
    sharing = min(fitting, at_once / instances)
    seconds = sum_of_commands(spread, work.commands)
    longest_s = sum_of_commands(spread, math.ceil(work.commands / work.children)).high
    low, high = OVERHEAD_S
    return Range(
        max(seconds.low / sharing + instances * low, instances * MIN_BILLED_S),
        max(seconds.high / sharing + instances * (high + longest_s), instances * MIN_BILLED_S),
    )


def estimate_usd(
    work: Work,
    spread: Spread,
    capacity: Resources,
    usd_h: float,
    max_instances: int | None = None,
) -> Range | None:
    """Return what the step costs on instances at this price; None if no child fits on one."""
    seconds = instance_seconds(work, spread, capacity, max_instances)
    return None if seconds is None else seconds.scaled(usd_h / _HOUR_S)
