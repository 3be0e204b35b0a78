"""How a run ended, for the commands that show it: its exit code and its recorded bill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchyard.engines.base import RunRecord, RunState
from batchyard.errors import BatchyardError
from batchyard.status import RunStatus

if TYPE_CHECKING:
    from batchyard.cost.run_bill import RunBill

EXIT_CODES = {RunState.SUCCEEDED: 0, RunState.FAILED: 1, RunState.STOPPED: 130}
_INTERRUPTED = 3


def exit_code(final: RunStatus) -> int:
    """Return the exit code of a run that is over or interrupted."""
    return _INTERRUPTED if final.is_interrupted else EXIT_CODES[final.state]


def find_recorded_bill(record: RunRecord, *, asks_prices: bool) -> RunBill | None:
    """Return the bill of what this machine has recorded; None for a run that costs nothing.

    ``asks_prices``: AWS is asked for prices that are not recorded.
    """
    engine = record.open()
    try:
        if engine.usage(asks=False) is None:
            return None
        from batchyard.cost.run_bill import bill_so_far

        return bill_so_far(record, engine, asks=False, asks_prices=asks_prices)
    except BatchyardError:
        return None  # the status of a run matters more than its cost
    finally:
        engine.close()
