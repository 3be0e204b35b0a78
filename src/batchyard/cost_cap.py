"""What to do about a run at a given cost and cap. Pure, with the standard library alone.

The function on AWS that keeps caps while nobody watches a run has this file in it, too.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

#: Part of the cap at which the user is warned.
WARNING_PART = 0.8
#: Seconds between two looks at the cost, for those who watch a run: near the cap, and far from it.
MIN_LOOK_S, MAX_LOOK_S = 2.0, 60.0
#: EC2 bills at least this many seconds of each host, at once.
_MIN_BILLED_S = 60.0
_HOUR_S = 3600


class CapAction(Enum):
    GO_ON = "go on"
    #: Say that the cap is near.
    WARN = "warn"
    #: Let no further child start. Those that run go on.
    HOLD = "hold"
    #: End the run, with the children that run.
    STOP = "stop"


class Cap(NamedTuple):
    """The most that a run may cost."""

    usd: float
    #: Whether the children that run are ended, too, when the cap is reached.
    stops: bool = False
    #: The most that the run can cost in an hour: with all its children at once.
    rate_usd_h: float = 0.0
    #: The price of the dearest host that the run may start, for hosts without a known price.
    host_usd_h: float = 0.0
    #: Types of hosts that the run may start, with their prices on demand.
    type_usd_h: tuple[tuple[str, float], ...] = ()


class Decision(NamedTuple):
    action: CapAction
    #: Seconds until the next look at the cost, at the latest.
    look_s: float
    #: Why no further child starts, or the run ends; empty if it goes on.
    reason: str = ""


def decide(
    cap: Cap, cost_usd: float, *, min_look_s: float = MIN_LOOK_S, max_look_s: float = MAX_LOOK_S
) -> Decision:
    """Return what to do at this cost.

    What starts between two looks is paid for, each host for a minute at least. So the run is held
    while it cannot reach the cap before the look after the next one, at the most that it can cost
    in an hour: then nothing starts once the cap is reached, and the cap is passed only by what runs
    at that time.
    """
    remaining_usd = cap.usd - cost_usd
    usd_per_s = cap.rate_usd_h / _HOUR_S
    remaining_s = remaining_usd / usd_per_s if usd_per_s else math.inf
    slack_s = remaining_s - _MIN_BILLED_S - 2 * min_look_s
    if remaining_usd <= 0 or slack_s <= 0:
        action = CapAction.STOP if cap.stops else CapAction.HOLD
        return Decision(action, min_look_s, describe(cap, cost_usd))
    look_s = min(max_look_s, max(min_look_s, slack_s / 2))
    is_near = cost_usd >= WARNING_PART * cap.usd
    return Decision(CapAction.WARN if is_near else CapAction.GO_ON, look_s)


def describe(cap: Cap, cost_usd: float) -> str:
    """Return the reason with which children end at the cap."""
    return f"the run has cost ${cost_usd:.4f}, and max_cost is ${cap.usd:g}: nothing more starts"
