"""What a service of ECS starts and stops next."""

from __future__ import annotations

from typing import Any

import pytest

from batchyard.emulator.ecs.service_decisions import (
    CircuitBreaker,
    Counts,
    Plan,
    backoff_s,
    is_complete,
    plan,
)


@pytest.mark.parametrize(
    ("desired", "percents", "new", "old", "expected"),
    [
        # keeps the desired count
        (3, (100, 200), Counts(0, 0), Counts(), Plan(start=3)),
        (3, (100, 200), Counts(1, 1), Counts(), Plan(start=1)),
        (1, (100, 200), Counts(1, 2), Counts(), Plan(stop_new=2)),
        (0, (100, 200), Counts(0, 2), Counts(), Plan(stop_new=2)),
        # starts new tasks beside the old ones, and stops these when the new ones run
        (2, (100, 200), Counts(), Counts(0, 2), Plan(start=2)),
        (2, (100, 200), Counts(2, 0), Counts(0, 2), Plan()),
        (2, (100, 200), Counts(1, 1), Counts(0, 2), Plan(stop_old=1)),
        (2, (100, 200), Counts(0, 2), Counts(0, 2), Plan(stop_old=2)),
        # without room for both, the old ones stop first
        (1, (0, 100), Counts(), Counts(0, 1), Plan(stop_old=1)),
        (1, (0, 100), Counts(), Counts(), Plan(start=1)),
        # half of them at a time
        (4, (50, 100), Counts(), Counts(0, 4), Plan(stop_old=2)),
        (4, (50, 100), Counts(), Counts(0, 2), Plan(start=2)),
        (4, (50, 100), Counts(2, 0), Counts(0, 2), Plan()),
        (4, (50, 100), Counts(0, 2), Counts(0, 2), Plan(stop_old=2)),
        # old tasks that do not run serve nobody
        (2, (100, 200), Counts(), Counts(1, 2), Plan(start=1, stop_old=1)),
    ],
)
def test_the_next_step(
    desired: int, percents: tuple[int, int], new: Counts, old: Counts, expected: Plan
) -> None:
    assert plan(desired, *percents, new, old) == expected


@pytest.mark.parametrize("desired", range(6))
@pytest.mark.parametrize("percents", [(100, 200), (0, 100), (50, 100), (50, 150), (100, 110)])
def test_every_deployment_ends_within_its_bounds(desired: int, percents: tuple[int, int]) -> None:
    new, old = Counts(), Counts(0, desired)
    lower = -(-desired * percents[0] // 100)
    for _ in range(100):
        step = plan(desired, *percents, new, old)
        # Stops happen at once, and the tasks that start run in the next round.
        old = Counts(0, old.total - step.stop_old)
        assert new.running + old.running >= lower
        new = Counts(0, new.total + step.start - step.stop_new)
        if is_complete(desired, new, old):
            return
    # Nothing fits beside the old ones, and all of them must run: such bounds block on AWS too.
    assert lower == desired * percents[1] // 100


def test_failures() -> None:
    assert [backoff_s(n) for n in (0, 2, 3, 4, 5, 8, 9, 1000)] == [0, 0, 1, 2, 4, 32, 60, 60]


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        ({}, [3, 3, 3, 4, 5, 200]),
        ({"type": "BOUNDED_PERCENT", "value": 100}, [3, 3, 6, 7, 10, 200]),
        ({"type": "UNBOUNDED_PERCENT", "value": 50}, [1, 1, 3, 4, 5, 500]),
        ({"type": "COUNT", "value": 2}, [2, 2, 2, 2, 2, 2]),
    ],
)
def test_how_many_failures_break_the_circuit(
    threshold: dict[str, Any], expected: list[int]
) -> None:
    breaker = CircuitBreaker.parse({"enable": True, "thresholdConfiguration": threshold})
    assert [breaker.threshold(desired) for desired in (0, 1, 6, 7, 10, 1000)] == expected
