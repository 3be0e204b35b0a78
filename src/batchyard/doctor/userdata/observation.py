"""The form of a check of user data, and its result. ``examine`` makes findings of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from batchyard.doctor.finding import Kind
from batchyard.doctor.userdata.boot import Boot
from batchyard.doctor.userdata.parts import UserData

#: line of the user data (0 for the whole), cause, evidence, remedy
Observation = tuple[int, str, tuple[str, ...], tuple[str, ...]]
Observations = Iterator[Observation]
CheckFunction = Callable[[UserData, Boot], Observations]


class UserDataCheck(NamedTuple):
    kind: Kind
    run: CheckFunction
    #: whether the check is only for nodes of AWS Batch
    is_for_batch: bool


def check_user_data(
    kind: Kind, is_for_batch: bool = False
) -> Callable[[CheckFunction], UserDataCheck]:
    """Make a check of a function."""
    return lambda function: UserDataCheck(kind, function, is_for_batch)
