"""Faults that `batchyard emulate --faults` injects, so that clients can be tested against them."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

from batchyard.errors import InputError


class Fault(Enum):
    #: The request is refused because of its rate, and not performed.
    THROTTLE = "throttle"
    #: Status 500; the request is not performed.
    ERROR = "error"
    #: The connection breaks; the request is not performed.
    RESET = "reset"
    #: The request is performed, and the connection breaks before the answer.
    LOSE = "lose"
    #: The request is performed, and the connection breaks in the middle of the answer's body.
    CUT = "cut"
    #: A write to S3 with a condition is refused with status 409, and not performed.
    CONFLICT = "conflict"
    #: The request is refused because its credentials have expired, and not performed.
    EXPIRE = "expire"


class TaskFault(Enum):
    """Faults of tasks of ECS, which have the family of a task definition as their target."""

    #: RunTask finds no free GPU: the failure RESOURCE:GPU.
    NO_GPU = "no-gpu"
    #: RunTask finds no connected agent: the failure AGENT.
    NO_AGENT = "no-agent"
    #: The image of a container does not exist: CannotPullContainerError.
    NO_IMAGE = "no-image"


@dataclass(frozen=True, slots=True)
class FaultRule:
    """How often a fault happens."""

    fault: Fault | TaskFault
    #: An operation, a service, or both as in `batch:SubmitJob`; None for all calls. For a
    #: TaskFault the family of a task definition, or None for all tasks.
    target: str | None = None
    #: The share of the calls that meet the fault, from 0 to 1.
    share: float = 0.0
    #: If this is not 0, the next calls up to this number meet the fault, instead of a share.
    next_calls: int = 0

    def applies_to(self, service: str, operation: str) -> bool:
        return self.target in (None, operation, service, f"{service}:{operation}")


@dataclass(frozen=True, slots=True)
class FaultSettings:
    rules: tuple[FaultRule, ...] = ()
    #: Seconds that DescribeJobs and ListJobs do not show a job after its submission.
    describe_lag: float = 0.0
    list_lag: float = 0.0
    #: Seconds between the start of an attempt and its log stream.
    log_lag: float = 0.0
    #: Seconds between the writing of a line and its log event.
    event_lag: float = 0.0
    #: Seconds that an operation stays throttled after a throttled call.
    burst: float = 0.0
    #: Lifetime in seconds of the credentials of jobs; 0 for credentials that do not expire.
    credentials: float = 0.0
    #: Seconds that a task of ECS waits for capacity of its provider; 0 for ten minutes.
    provision_wait: float = 0.0
    #: Share of the lines that the non-blocking log mode loses.
    drop_logs: float = 0.0
    #: Makes the drawn faults the same in each run.
    seed: int | None = None

    @classmethod
    def parse(cls, text: str) -> FaultSettings:
        """Parse a text like `throttle=0.3,lose@SubmitJob=1x,list-lag=2`. Raises InputError."""
        settings = cls()
        for entry in filter(None, (part.strip() for part in text.split(","))):
            settings = _add_entry(settings, entry)
        return settings


#: Name -> the text that it stands for.
PRESETS = {
    "unkind": "throttle=0.02,error=0.01,reset=0.01,lose=0.01,cut=0.02,describe-lag=0.4,"
    "list-lag=0.4,log-lag=0.4,credentials=3600,drop-logs=0.3",
}
#: Calls with this access key meet no faults and no lags, so that tests can look on.
OBSERVER_KEY = "observer"
#: Whether the call that is performed in this context is an observer's.
is_observing: ContextVar[bool] = ContextVar("is_observing", default=False)
_KINDS: dict[str, Fault | TaskFault] = {fault.value: fault for fault in (*Fault, *TaskFault)}
_DROP_LOGS = "drop-logs"
_DURATIONS = tuple(
    field.name.replace("_", "-")
    for field in fields(FaultSettings)
    if field.default == 0.0 and field.name != "drop_logs"
)
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")


def _add_entry(settings: FaultSettings, entry: str) -> FaultSettings:
    if entry in PRESETS:
        for part in PRESETS[entry].split(","):
            settings = _add_entry(settings, part)
        return settings
    name, _, value = (part.strip() for part in entry.partition("="))
    kind, _, target = name.partition("@")
    if kind in _KINDS:
        return replace(settings, rules=(*settings.rules, _parse_rule(entry, kind, target, value)))
    if name == _DROP_LOGS:
        return replace(settings, drop_logs=_parse_share(entry, name, value))
    if name in _DURATIONS:
        if not _NUMBER.fullmatch(value):
            raise InputError(
                f"--faults {entry!r}: {name} is a number of seconds", hint=f"write {name}=2"
            )
        members: dict[str, Any] = {name.replace("-", "_"): float(value)}
        return replace(settings, **members)
    if name == "seed":
        if not re.fullmatch(r"[0-9]{1,18}", value):
            raise InputError(f"--faults {entry!r}: the seed is a whole number", hint="write seed=1")
        return replace(settings, seed=int(value))
    names = ", ".join((*PRESETS, *_KINDS, *_DURATIONS, _DROP_LOGS, "seed"))
    raise InputError(
        f"--faults {entry!r}: there is no fault {name!r}",
        hint=f"write KIND=VALUE, like throttle=0.3; kinds are {names}",
    )


def _parse_rule(entry: str, kind: str, target: str, value: str) -> FaultRule:
    fault = _KINDS[kind]
    if re.fullmatch(r"[0-9]{1,9}x", value):
        return FaultRule(fault, target or None, next_calls=int(value[:-1]))
    share = _parse_share(entry, kind, value, f", or {kind}=2x for the next two calls")
    return FaultRule(fault, target or None, share)


def _parse_share(entry: str, name: str, value: str, other_hint: str = "") -> float:
    if _NUMBER.fullmatch(value) and float(value) <= 1:
        return float(value)
    raise InputError(
        f"--faults {entry!r}: {name} is a share",
        hint=f"write a share from 0 to 1, like {name}=0.3{other_hint}",
    )


class FaultInjector:
    """Draws the faults of calls. The settings can be replaced while the endpoint serves."""

    def __init__(
        self,
        settings: FaultSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Kind of fault -> number of calls that met it.
        self._counts: Counter[str] = Counter()
        self.use(settings or FaultSettings())

    @property
    def settings(self) -> FaultSettings:
        return self._settings

    @property
    def counts(self) -> dict[str, int]:
        """Kind of fault -> number of calls that met it so far."""
        with self._lock:
            return dict(sorted(self._counts.items()))

    def use(self, settings: FaultSettings) -> None:
        with self._lock:
            self._settings = settings
            self._random = random.Random(settings.seed)
            #: Rule -> number of calls that are still to meet its fault.
            self._next_calls = [rule.next_calls for rule in settings.rules]
            #: (service, operation) -> end of its throttling.
            self._throttled_until: dict[tuple[str, str], float] = {}

    def draw(self, service: str, operation: str) -> Fault | None:
        """Return the fault of the next call, or None."""
        if not self._settings.rules:
            return None
        with self._lock:
            fault = self._draw_next(service, operation)
            if fault is not None:
                self._counts[fault.value] += 1
            return fault

    def draw_for_task(self, fault: TaskFault, family: str) -> bool:
        """Return whether the next task of this family meets a fault."""
        with self._lock:
            for number, rule in enumerate(self._settings.rules):
                if rule.fault is not fault or rule.target not in (None, family):
                    continue
                if self._next_calls[number] or self._random.random() < rule.share:
                    self._next_calls[number] = max(0, self._next_calls[number] - 1)
                    self._counts[fault.value] += 1
                    return True
            return False

    def _draw_next(self, service: str, operation: str) -> Fault | None:
        if self._throttled_until.get((service, operation), 0.0) > self._clock():
            return Fault.THROTTLE
        fault = self._draw_counted(service, operation) or self._draw_share(service, operation)
        if fault is Fault.THROTTLE and self._settings.burst:
            end = self._clock() + self._settings.burst
            self._throttled_until[service, operation] = end
        return fault

    def _draw_counted(self, service: str, operation: str) -> Fault | None:
        for number, rule in enumerate(self._settings.rules):
            if not isinstance(rule.fault, Fault) or not rule.applies_to(service, operation):
                continue
            if self._next_calls[number]:
                self._next_calls[number] -= 1
                return rule.fault
        return None

    def _draw_share(self, service: str, operation: str) -> Fault | None:
        number = self._random.random()
        for rule in self._settings.rules:
            if isinstance(rule.fault, Fault) and rule.applies_to(service, operation):
                number -= rule.share
                if number < 0:
                    return rule.fault
        return None
