"""What the exit codes of health checks mean, as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchyard.emulator.ecs.health_checks import Checkup, Health, HealthCheck, combine


class Attempt:
    started_ms = 0


CHECK = HealthCheck.parse({"command": ["CMD", "curl", "-f", "localhost"], "startPeriod": 60})


def test_three_failures_in_a_row_are_too_many() -> None:
    health = Health()
    for age_s in (100, 130):
        health = health.take_result(CHECK, age_s, is_passed=False)
    assert health == Health("UNKNOWN", 2)
    assert health.take_result(CHECK, 160, is_passed=True) == Health("HEALTHY")
    health = health.take_result(CHECK, 160, is_passed=False)
    assert health.status == "UNHEALTHY"
    assert health.take_result(CHECK, 190, is_passed=False).status == "UNHEALTHY"
    assert health.take_result(CHECK, 190, is_passed=True).status == "HEALTHY"


def test_failures_of_the_start_period_do_not_count_before_the_first_success() -> None:
    assert Health().take_result(CHECK, 59, is_passed=False) == Health()
    assert Health("HEALTHY").take_result(CHECK, 59, is_passed=False) == Health("HEALTHY", 1)


def test_the_beginning_of_a_check_says_whether_it_is_in_the_start_period() -> None:
    ends: list[Callable[[int], None]] = []

    def prober(
        task: Any, command: tuple[str, ...], on_end: Callable[[int], None]
    ) -> Callable[[], None]:
        ends.append(on_end)
        return lambda: None

    checkup = Checkup(CHECK)
    attempt: Any = Attempt()
    checkup.advance(prober, attempt, 58)
    ends[0](1)
    checkup.advance(prober, attempt, 61)
    assert checkup.health == Health()


def test_words_after_the_command_of_a_shell_are_its_arguments() -> None:
    """Docker does not join them: `sh -c exit 1` is passed."""
    check = HealthCheck.parse({"command": ["CMD-SHELL", "exit", "1"]})
    assert check.command == ("sh", "-c", "exit", "1")
    check = HealthCheck.parse({"command": ["CMD", "exit", "1"]})
    assert check.command == ("exit", "1")


def test_a_task_is_as_healthy_as_its_worst_container() -> None:
    assert combine([]) == "UNKNOWN"
    assert combine(["HEALTHY", "UNKNOWN"]) == "UNKNOWN"
    assert combine(["HEALTHY", "HEALTHY"]) == "HEALTHY"
    assert combine(["HEALTHY", "UNHEALTHY", "UNKNOWN"]) == "UNHEALTHY"


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"command": ["CMD"]},
        {"command": ["curl", "localhost"]},
        {"command": ["CMD", "true"], "interval": 4},
        {"command": ["CMD", "true"], "timeout": 61},
        {"command": ["CMD", "true"], "startPeriod": 301},
    ],
)
def test_checks_that_ecs_refuses_are_refused(members: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        HealthCheck.parse(members)


def test_a_check_runs_once_an_interval_and_is_killed_when_it_is_late() -> None:
    """With the defaults: every 30 seconds, for at most 5, and three failures."""
    begun: list[Callable[[int], None]] = []
    killed: list[int] = []

    def prober(
        task: Any, command: tuple[str, ...], on_end: Callable[[int], None]
    ) -> Callable[[], None]:
        assert command == ("sh", "-c", "test -e /flag")
        begun.append(on_end)
        return lambda: killed.append(len(begun))

    checkup = Checkup(HealthCheck.parse({"command": ["CMD-SHELL", "test -e /flag"]}))
    attempt: Any = Attempt()
    for now_s in range(29):
        checkup.advance(prober, attempt, now_s)
    assert not begun
    for now_s in (30, 31):
        checkup.advance(prober, attempt, now_s)
    begun[0](0)
    checkup.advance(prober, attempt, 32)
    assert checkup.health == Health("HEALTHY") and len(begun) == 1
    for now_s in range(33, 33 + 3 * 36):
        checkup.advance(prober, attempt, now_s)
    assert (len(begun), killed) == (4, [2, 3, 4])
    assert checkup.health.status == "UNHEALTHY"
    # The container ends while its check runs.
    checkup.advance(prober, attempt, 1000)
    checkup.end()
    assert killed == [2, 3, 4, 5]
