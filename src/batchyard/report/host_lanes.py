"""When each slot or host of a run was busy, and its gaps: lanes of a chart as values. Pure.

Times are counted in columns, and many slots or hosts share a few lanes, so that the lanes of
100,000 attempts on 1,000 hosts are as small as those of 100 attempts on 4.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from batchyard.report import lanes
from batchyard.report.figures import AttemptStats, StepFigures

#: Lanes of one drawing. More slots or hosts share them.
MAX_LANES = 32
#: Parts of the time axis. A lane is busy to one degree in each of them.
COLUMNS = 240
#: The degrees in which a lane is busy are 1 to this; none is a gap.
LEVELS = 4
#: A part of a column that does not count: times are rounded to milliseconds.
_NOTHING = 0.01


@dataclass(frozen=True, slots=True)
class HostTimes:
    """What is known of a host: its instance type, and from when to when it was there."""

    type: str = ""
    begin_ms: int | None = None
    end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Columns of a lane with the same degree, and the step that was busiest in them."""

    first: int
    #: the column behind the last one
    stop: int
    #: number of the step
    step: int
    level: int


@dataclass(frozen=True, slots=True)
class Lane:
    """A slot or a host, or several that share a lane."""

    name: str
    attempts: int
    #: most attempts that ran at once
    peak: int
    #: share of its time in which the lane was busy, 0 to 1
    busy: float
    segments: Sequence[Segment]
    #: when its hosts were there; None: all the time
    begin_ms: int | None = None
    end_ms: int | None = None


@dataclass(slots=True)
class _Times:
    """The attempts of a slot or a host, or of several."""

    names: list[str]
    #: number of a step -> starts and ends of its attempts
    by_step: dict[int, tuple[array[int], array[int]]] = field(default_factory=dict)

    def add(self, step: int, starts_ms: Sequence[int], ends_ms: Sequence[int]) -> None:
        starts, ends = self.by_step.setdefault(step, (array("q"), array("q")))
        starts.extend(starts_ms)
        ends.extend(ends_ms)

    @property
    def starts_ms(self) -> list[int]:
        return [start for starts, _ in self.by_step.values() for start in starts]

    @property
    def ends_ms(self) -> list[int]:
        return [end for _, ends in self.by_step.values() for end in ends]


def find_slots(number: int, stats: AttemptStats, begin_ms: int, end_ms: int) -> list[Lane]:
    """Return the lanes of the slots of a step, the first slot first. A slot runs one at a time."""
    by_slot = _group(number, stats, stats.hosts)
    slots = [by_slot[name] for name in sorted(by_slot, key=int)]
    merged = _merge(slots)
    return [
        _measure(times, f"slot {_join_names(times.names)}", len(times.names), begin_ms, end_ms)
        for times in merged
    ]


def find_hosts(
    steps: Sequence[StepFigures], about: Mapping[str, HostTimes], begin_ms: int, end_ms: int
) -> list[Lane]:
    """Return the lanes of all hosts of a run, in the order of their first attempts.

    ``about``: what is known of them. Attempts in slots of this machine, and those whose host is not
    known, are left out.
    """
    hosts: dict[str, _Times] = {}
    for number, step in enumerate(steps):
        names = [name for name in step.stats.hosts if name and not name.isdecimal()]
        for name, times in _group(number, step.stats, names).items():
            merged = hosts.setdefault(name, _Times([name]))
            merged.add(number, *times.by_step[number])
    ordered = sorted(hosts.values(), key=lambda times: min(times.starts_ms))
    return [_measure_host(times, about, begin_ms, end_ms) for times in _merge(ordered)]


def _measure_host(
    times: _Times, about: Mapping[str, HostTimes], begin_ms: int, end_ms: int
) -> Lane:
    known = [about.get(name, HostTimes()) for name in times.names]
    begins = [host.begin_ms for host in known if host.begin_ms is not None]
    ends = [host.end_ms for host in known if host.end_ms is not None]
    # Hosts that share a lane may have several types, and there is no room for more.
    host_type = known[0].type if len(known) == 1 else ""
    name = f"{_join_names(times.names)} {host_type}".rstrip()
    starts_ms, ends_ms = times.starts_ms, times.ends_ms
    peak = lanes.max_concurrency(starts_ms, ends_ms)
    # A host was there while its attempts ran: clocks differ, and it was looked at before.
    first_ms = min(*begins, *starts_ms) if len(begins) == len(known) else None
    last_ms = max(*ends, *ends_ms) if len(ends) == len(known) else None
    return _measure(times, name, peak, begin_ms, end_ms, first_ms, last_ms)


def _group(
    number: int, stats: AttemptStats, names: Sequence[str] | Mapping[str, int]
) -> dict[str, _Times]:
    """Return name of a slot or host -> its attempts of a step."""
    groups = {stats.hosts[name]: (array("q"), array("q")) for name in names}
    for start_ms, end_ms, host in zip(
        stats.starts_ms, stats.ends_ms, stats.host_numbers, strict=True
    ):
        if host in groups:
            starts, ends = groups[host]
            starts.append(start_ms)
            ends.append(end_ms)
    return {name: _Times([name], {number: groups[stats.hosts[name]]}) for name in names}


def _merge(separate: Sequence[_Times]) -> list[_Times]:
    """Return at most MAX_LANES entries; neighbours share one if there are more."""
    share = max(1, -(-len(separate) // MAX_LANES))
    merged = []
    for first in range(0, len(separate), share):
        members = separate[first : first + share]
        together = _Times([name for times in members for name in times.names])
        for times in members:
            for step, (starts, ends) in times.by_step.items():
                together.add(step, starts, ends)
        merged.append(together)
    return merged


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _measure(
    times: _Times,
    name: str,
    capacity: int,
    begin_ms: int,
    end_ms: int,
    first_ms: int | None = None,
    last_ms: int | None = None,
) -> Lane:
    """Return a lane; ``capacity``: attempts at once that are its highest degree."""
    busy_ms = sum(sum(ends) - sum(starts) for starts, ends in times.by_step.values())
    lane_begin_ms = begin_ms if first_ms is None else max(begin_ms, first_ms)
    lane_end_ms = end_ms if last_ms is None else min(end_ms, last_ms)
    return Lane(
        name=name,
        attempts=sum(len(starts) for starts, _ in times.by_step.values()),
        peak=capacity,
        busy=min(1.0, busy_ms / max(1, (lane_end_ms - lane_begin_ms) * max(1, capacity))),
        segments=_find_segments(times, max(1, capacity), begin_ms, end_ms),
        begin_ms=first_ms,
        end_ms=last_ms,
    )


def _find_segments(times: _Times, capacity: int, begin_ms: int, end_ms: int) -> list[Segment]:
    means = {
        step: lanes.mean_concurrency(starts, ends, begin_ms, end_ms, COLUMNS)
        for step, (starts, ends) in times.by_step.items()
    }
    segments: list[Segment] = []
    for column in range(COLUMNS):
        share = sum(values[column] for values in means.values()) / capacity
        if share < _NOTHING:
            continue
        level = min(LEVELS, max(1, round(share * LEVELS)))
        step = max(means, key=lambda number: means[number][column])
        last = segments[-1] if segments else None
        if last is not None and (last.stop, last.step, last.level) == (column, step, level):
            segments[-1] = Segment(last.first, column + 1, step, level)
        else:
            segments.append(Segment(column, column + 1, step, level))
    return segments
