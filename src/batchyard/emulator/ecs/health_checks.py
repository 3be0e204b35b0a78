"""Health checks of containers: commands beside them, and what their exit codes mean.

``Health`` decides and is pure; a ``Checkup`` starts and ends the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from batchyard.embedded.runner import Prober, Task

UNKNOWN, HEALTHY, UNHEALTHY = "UNKNOWN", "HEALTHY", "UNHEALTHY"
#: Member of a check -> its least and its largest value.
_LIMITS = {"interval": (5, 300), "timeout": (2, 60), "retries": (1, 10), "startPeriod": (0, 300)}


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """`healthCheck` of a container definition; times are in seconds."""

    command: tuple[str, ...]
    interval: int
    timeout: int
    retries: int
    #: Failures of checks that begin so soon after the start of the container do not count.
    start_period: int

    @classmethod
    def parse(cls, members: Mapping[str, Any]) -> HealthCheck:
        """Return the check. Raises ValueError with AWS's limits in its message."""
        kind, *words = members.get("command", ()) or ("",)
        if kind not in ("CMD", "CMD-SHELL") or not words:
            raise ValueError("'command' must begin with CMD or CMD-SHELL")
        for member, (least, largest) in _LIMITS.items():
            if not least <= members.get(member, least) <= largest:
                raise ValueError(f"'{member}' must be between {least} and {largest}")
        return cls(
            # As Docker does it: words after the first one are $0, $1 ... of the shell.
            ("sh", "-c", *words) if kind == "CMD-SHELL" else tuple(words),
            members.get("interval", 30),
            members.get("timeout", 5),
            members.get("retries", 3),
            members.get("startPeriod", 0),
        )


class Health(NamedTuple):
    status: str = UNKNOWN
    #: Failures since the last check that was passed.
    failures: int = 0

    def take_result(self, check: HealthCheck, age_s: float, *, is_passed: bool) -> Health:
        """Return the health after a check that began at this age of the container."""
        if is_passed:
            return Health(HEALTHY)
        if self.status == UNKNOWN and age_s < check.start_period:
            return self
        failures = self.failures + 1
        return Health(UNHEALTHY if failures >= check.retries else self.status, failures)


def combine(statuses: Iterable[str]) -> str:
    """Return the health of a task from those of its essential containers that have a check."""
    present = set(statuses)
    if UNHEALTHY in present:
        return UNHEALTHY
    return HEALTHY if present == {HEALTHY} else UNKNOWN


class Probe:
    """A check that runs."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        #: None while it runs.
        self.exit_code: int | None = None
        self.kill: Callable[[], None] = lambda: None

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


class Checkup:
    """The health of one container, and the check that runs."""

    def __init__(self, check: HealthCheck) -> None:
        self._check = check
        self.health = Health()
        self._probe: Probe | None = None
        #: End of the last check; at first the start of the container.
        self._checked_s: float | None = None

    def advance(self, prober: Prober, task: Task, now_s: float) -> None:
        """Begin the next check of a container that runs, or take the result of the last one."""
        if task.started_ms is None:
            return
        started_s = task.started_ms / 1000
        if self._probe is None:
            if now_s - (self._checked_s or started_s) >= self._check.interval:
                self._probe = _begin(prober, task, self._check.command, now_s)
            return
        is_late = now_s - self._probe.began_s > self._check.timeout
        if self._probe.exit_code is None and not is_late:
            return
        age_s, is_passed = self._probe.began_s - started_s, self._probe.exit_code == 0
        self.end()
        self._checked_s = now_s
        self.health = self.health.take_result(self._check, age_s, is_passed=is_passed)

    def end(self) -> None:
        """End the check that runs."""
        if self._probe is not None and self._probe.exit_code is None:
            self._probe.kill()
        self._probe = None


def _begin(prober: Prober, task: Task, command: tuple[str, ...], now_s: float) -> Probe:
    probe = Probe(now_s)
    try:
        probe.kill = prober(task, command, probe.finish)
    except (OSError, ValueError):
        probe.finish(1)
    return probe
