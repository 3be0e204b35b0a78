"""Faults that `batchyard emulate --faults` injects, so that clients can be tested against them."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from enum import Enum

from batchyard.errors import InputError


class Fault(Enum):
    #: Status 429; the request is not performed.
    THROTTLE = "throttle"
    #: Status 500; the request is not performed.
    ERROR = "error"
    #: The connection breaks; the request is not performed.
    RESET = "reset"
    #: The request is performed, and the connection breaks before the answer.
    LOSE = "lose"


@dataclass(frozen=True, slots=True)
class FaultRates:
    """The share of all calls that meets each fault, from 0 to 1."""

    throttle: float = 0.0
    error: float = 0.0
    reset: float = 0.0
    lose: float = 0.0

    @classmethod
    def parse(cls, text: str) -> FaultRates:
        """Parse a text like `throttle=0.3,lose=0.05`. Raises InputError."""
        kinds = [field.name for field in fields(cls)]
        rates = {}
        for entry in filter(None, text.split(",")):
            kind, _, share = entry.partition("=")
            try:
                rate = float(share)
            except ValueError:
                rate = -1.0
            if kind.strip() not in kinds or not 0 <= rate <= 1:
                raise InputError(
                    f"--faults {entry!r} is not a fault and its share of the calls",
                    hint=f"write KIND=PART, like throttle=0.3; kinds are {', '.join(kinds)}",
                )
            rates[kind.strip()] = rate
        return cls(**rates)


class FaultInjector:
    def __init__(self, rates: FaultRates, seed: int | None = None) -> None:
        self._rates = rates
        self._random = random.Random(seed)

    def draw(self) -> Fault | None:
        """Return the fault of the next call, or None."""
        number = self._random.random()
        for fault in Fault:
            number -= getattr(self._rates, fault.value)
            if number < 0:
                return fault
        return None
