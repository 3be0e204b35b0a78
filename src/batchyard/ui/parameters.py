"""The values of a request, checked before anything is done with them.

No text of a client becomes a part of a path: a run must be one of the runs of the folder, a step
and a child must be in the plan of the run, and everything else is a number, a state or a
search text.
"""

from __future__ import annotations

from collections.abc import Mapping

from batchyard.engines.base import RunRecord, RunState
from batchyard.errors import BatchyardError, InputError
from batchyard.plan import is_index
from batchyard.ui.answers import RefusedError


class Parameters:
    """The parameters of one request. Each method raises RefusedError for a wrong value."""

    def __init__(self, values: Mapping[str, str], *names: str) -> None:
        """``names``: all parameters that the address has."""
        self._values = values
        for name in values:
            if name not in names:
                raise RefusedError(400, "this address does not have such a parameter")

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, longest: int = 200) -> str:
        value = self._values.get(name, "")
        if not value or len(value) > longest:
            raise RefusedError(400, f"{name} must have 1 to {longest} characters")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if value is None or not is_index(value):
            raise RefusedError(400, f"{name} must be a whole number")
        return int(value)

    def state(self) -> RunState:
        """Return the state of a run."""
        try:
            return RunState(self.text("state"))
        except ValueError:
            raise RefusedError(400, f"state must be one of {', '.join(RunState)}") from None

    def step(self, record: RunRecord) -> str:
        """Return the name of a step of the run."""
        try:
            return record.plan.require_child(self.text("step"))[0]
        except InputError as exc:
            raise RefusedError(404, exc.message) from None

    def child(self, record: RunRecord) -> tuple[str, int]:
        """Return a step of the run, and the number of a child of it."""
        try:
            step, index = record.plan.require_child(self.text("step"), self.number("index"))
        except InputError as exc:
            raise RefusedError(404, exc.message) from None
        assert index is not None
        return step, index


def to_refusal(error: BatchyardError) -> RefusedError:
    """Return the answer to a request that could not be carried out."""
    hint = f"; {error.hint}" if error.hint else ""
    return RefusedError(400 if isinstance(error, InputError) else 503, f"{error.message}{hint}")
