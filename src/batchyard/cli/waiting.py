"""When `logs -f` says what a run waits for, while there is no output. Pure."""

from __future__ import annotations

_MAX_GAP_S = 1800.0


class ReminderTimer:
    """Decides when a reminder is due: after a silence, then after twice as long each time."""

    def __init__(self, patience_s: float, now_s: float) -> None:
        self._patience_s = patience_s
        self.restart(now_s)

    def restart(self, now_s: float) -> None:
        """Begin a new silence, since output has been written."""
        self._gap_s = self._patience_s
        self._due_s = now_s + self._gap_s

    def is_due(self, now_s: float) -> bool:
        """Return True once for each reminder. Call it often."""
        if now_s < self._due_s:
            return False
        self._gap_s = max(self._patience_s, min(2 * self._gap_s, _MAX_GAP_S))
        self._due_s = now_s + self._gap_s
        return True
