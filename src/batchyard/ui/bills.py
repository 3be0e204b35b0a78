"""What a run has cost so far, for the page. A run that costs nothing has no bill."""

from __future__ import annotations

import time
from typing import Any

from batchyard.engines.base import RunEngine, RunRecord
from batchyard.errors import BatchyardError

#: Seconds between two looks: each may ask AWS for hosts and prices.
_PAUSE_S = 60.0


class BillReader:
    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._read_at_s = float("-inf")
        self._bill: dict[str, Any] | None = None

    def read(self, engine: RunEngine, *, is_over: bool) -> dict[str, Any] | None:
        """Return the dollars that are paid, used, idle and lost; None if there is no bill."""
        if time.monotonic() - self._read_at_s < _PAUSE_S and not is_over:
            return self._bill
        self._read_at_s = time.monotonic()
        try:
            self._bill = self._ask(engine)
        except BatchyardError:
            pass  # the state of a run matters more than its cost
        return self._bill

    def _ask(self, engine: RunEngine) -> dict[str, Any] | None:
        if engine.usage(asks=False) is None:
            return None
        from batchyard.cost.run_bill import bill_so_far  # a run on this machine needs no prices

        cost = bill_so_far(self._record, engine)
        if cost is None:
            return None
        bill = cost.bill
        return {
            "paid_usd": bill.paid_usd,
            "used_usd": bill.used_usd,
            "idle_usd": bill.idle_usd,
            "lost_usd": bill.lost_usd,
            "until_ms": int(cost.until_s * 1000),
            "is_final": cost.is_final,
            "is_known": not cost.unknown,
        }


def read_stored_usd(record: RunRecord) -> float | None:
    """Return the dollars that a run has cost, as far as this machine has recorded it.

    Sends no request. None for a run that costs nothing, or of which nothing is recorded.
    """
    engine = record.open()
    try:
        if engine.usage(asks=False) is None:
            return None
        from batchyard.cost.run_bill import bill_so_far

        cost = bill_so_far(record, engine, asks=False)
    except BatchyardError:
        return None  # the state of a run matters more than its cost
    finally:
        engine.close()
    return None if cost is None else cost.bill.paid_usd
