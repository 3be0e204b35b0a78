"""What the shares of a fair-share queue have used of late. Bookkeeping for the scheduler; times come in, no clock.

A share's recent use is the vCPUs it has now plus its average over the decay window, which fades exponentially: AWS says
that recent use counts and that it decays, not how (facts, 7.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class _Use:
    vcpus: int = 0
    average: float = 0.0
    at_ms: int = 0
    #: when it last ran something
    last_ms: int = 0


class ShareUse:
    __slots__ = ("_by_share", "_decay_ms")

    def __init__(self, decay_s: int) -> None:
        self._decay_ms = decay_s * 1000
        self._by_share: dict[str, _Use] = {}

    def change(self, share: str, vcpus: int, now_ms: int) -> None:
        """The share has so many vCPUs more, or less, from now on."""
        use = self._brought_up(share, now_ms)
        use.vcpus += vcpus
        use.last_ms = max(use.last_ms, now_ms)

    def recent(self, share: str, now_ms: int) -> float:
        use = self._brought_up(share, now_ms)
        return use.vcpus + use.average

    def lately(self, now_ms: int) -> set[str]:
        """The shares that run something, or did within the window."""
        return {
            share
            for share, use in self._by_share.items()
            if use.vcpus or (use.last_ms and now_ms - use.last_ms < self._decay_ms)
        }

    def set_decay(self, decay_s: int) -> None:
        """Another window from now on; what has been used stays as it was counted."""
        self._decay_ms = decay_s * 1000

    def _brought_up(self, share: str, now_ms: int) -> _Use:
        use = self._by_share.setdefault(share, _Use(at_ms=now_ms))
        if self._decay_ms and now_ms > use.at_ms:
            kept = math.exp((use.at_ms - now_ms) / self._decay_ms)
            use.average = use.average * kept + use.vcpus * (1 - kept)
        use.at_ms = max(use.at_ms, now_ms)
        return use
