"""Placement of ECS tasks on container instances. Values in, values out."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_COMPARISON = re.compile(r"attribute:([\w./-]+)\s*(==|!=|=~|in|!in|exists|!exists)\s*(.*)")


class Need(NamedTuple):
    """What a task takes from its container instance."""

    #: 1,024 units are one vCPU
    cpu_units: int = 0
    memory_mib: int = 0
    gpus: int = 0
    ports: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Room:
    """A container instance as placement looks at it: what is free, and what it is."""

    name: str
    cpu_units: int
    memory_mib: int
    gpus: int
    used_ports: frozenset[int] = frozenset()
    task_count: int = 0
    #: Groups of the tasks that are on the instance.
    groups: frozenset[str] = frozenset()
    attributes: dict[str, str] = field(default_factory=dict)
    is_agent_connected: bool = True

    def without(self, need: Need, group: str) -> Room:
        """Return the room that is left beside a task."""
        return Room(
            self.name,
            self.cpu_units - need.cpu_units,
            self.memory_mib - need.memory_mib,
            self.gpus - need.gpus,
            self.used_ports | need.ports,
            self.task_count + 1,
            self.groups | {group},
            self.attributes,
            self.is_agent_connected,
        )


def find_lack(need: Need, room: Room) -> str | None:
    """Return why an instance cannot take a task, as in `failures` of RunTask; None if it can."""
    if not room.is_agent_connected:
        return "AGENT"
    if need.cpu_units > room.cpu_units:
        return "RESOURCE:CPU"
    if need.memory_mib > room.memory_mib:
        return "RESOURCE:MEMORY"
    if need.ports & room.used_ports:
        return "RESOURCE:PORTS"
    if need.gpus > room.gpus:
        return "RESOURCE:GPU"
    return None


@dataclass(frozen=True, slots=True)
class Rules:
    """The placement constraints and strategy of a task or service."""

    #: Expressions of `memberOf`.
    expressions: tuple[str, ...] = ()
    is_distinct: bool = False
    #: (type, field) of each strategy, the first one first.
    strategies: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(
        cls, constraints: Iterable[dict[str, Any]], strategies: Iterable[dict[str, Any]]
    ) -> Rules:
        constraints = list(constraints)
        return cls(
            tuple(
                constraint.get("expression", "")
                for constraint in constraints
                if constraint.get("type") == "memberOf"
            ),
            any(constraint.get("type") == "distinctInstance" for constraint in constraints),
            tuple((entry.get("type", ""), entry.get("field", "").lower()) for entry in strategies),
        )


class Candidate(NamedTuple):
    """A task that is to be placed."""

    need: Need
    rules: Rules = Rules()
    group: str = ""


def find_obstacle(task: Candidate, room: Room) -> str | None:
    """Return which constraint or lack keeps a task from an instance; None for a task that fits."""
    return _find_unmet_constraint(room, task.rules, task.group) or find_lack(task.need, room)


def choose_room(
    task: Candidate, rooms: Sequence[Room]
) -> tuple[Room | None, list[tuple[str, str]]]:
    """Return the instance for a task, or None and (instance, reason) for each that cannot take it.

    Without a strategy, tasks are spread over the instances.
    """
    failures: list[tuple[str, str]] = []
    candidates = []
    for room in rooms:
        obstacle = find_obstacle(task, room)
        if obstacle is None:
            candidates.append(room)
        else:
            failures.append((room.name, obstacle))
    if not candidates:
        return None, failures
    return min(candidates, key=lambda room: _order(room, rooms, task.rules)), []


def _find_unmet_constraint(room: Room, rules: Rules, group: str) -> str | None:
    if rules.is_distinct and group in room.groups:
        return "distinctInstance placement constraint unsatisfied."
    if not all(matches(expression, room.attributes) for expression in rules.expressions):
        return "MemberOf placement constraint unsatisfied."
    return None


def _order(room: Room, rooms: Sequence[Room], rules: Rules) -> tuple[Any, ...]:
    keys: list[Any] = []
    for kind, by in rules.strategies or (("spread", "instanceid"),):
        if kind == "binpack":
            keys.append(room.cpu_units if by == "cpu" else room.memory_mib)
        elif kind == "random":
            keys.append(zlib.crc32(f"{room.name}{room.task_count}".encode()))
        elif by in ("", "host", "instanceid"):
            keys.append(room.task_count)
        else:
            value = room.attributes.get(by.removeprefix("attribute:"), "")
            keys.append(_count_tasks_with(by.removeprefix("attribute:"), value, rooms))
    return (*keys, room.task_count)


def _count_tasks_with(attribute: str, value: str, rooms: Iterable[Room]) -> int:
    return sum(room.task_count for room in rooms if room.attributes.get(attribute, "") == value)


def matches(expression: str, attributes: dict[str, str]) -> bool:
    """Return whether the attributes of an instance satisfy an expression of `memberOf`.

    The comparisons of attributes, joined by `and`, are known; any other expression is False.
    """
    return all(
        _matches_comparison(part.strip(), attributes)
        for part in re.split(r"\s+and\s+|\s*&&\s*", expression)
    )


def _matches_comparison(comparison: str, attributes: dict[str, str]) -> bool:
    match = _COMPARISON.fullmatch(comparison)
    if match is None:
        return False
    name, operator, operand = match.groups()
    value = attributes.get(name)
    if operator in ("exists", "!exists"):
        return (value is not None) == (operator == "exists")
    if operator in ("in", "!in"):
        members = [member.strip(" '\"") for member in operand.strip(" []").split(",")]
        return (value in members) == (operator == "in")
    operand = operand.strip(" '\"")
    if operator == "=~":
        return value is not None and _has_pattern(operand, value)
    return (value == operand) == (operator == "==")


def _has_pattern(pattern: str, value: str) -> bool:
    try:
        return re.fullmatch(pattern, value) is not None
    except re.error:
        return False


def count_missing_instances(
    waiting: Iterable[Candidate], rooms: Iterable[Room], empty: Room, at_most: int
) -> int:
    """Return how many new instances the waiting tasks need.

    ``rooms``: the instances that exist, also those that have not joined yet. ``empty``: a new one.
    """
    free = list(rooms)
    added = 0
    for task in waiting:
        index = next((i for i, room in enumerate(free) if find_obstacle(task, room) is None), None)
        if index is not None:
            free[index] = free[index].without(task.need, task.group)
        elif added < at_most and find_obstacle(task, empty) is None:
            added += 1
            free.append(empty.without(task.need, task.group))
    return added
