"""What the shares of a fair-share queue have used recently. Bookkeeping; callers pass the time.

A share's recent use is the number of vCPUs that it has now plus its average over the decay window,
which fades exponentially. AWS documents that recent use counts and decays, but not how
(facts, 7.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class _Usage:
    vcpus: int = 0
    average_vcpus: float = 0.0
    updated_ms: int = 0
    #: when the share last started or ended something
    last_used_ms: int = 0


class ShareUsage:
    __slots__ = ("_by_share", "_decay_ms")

    def __init__(self, decay_s: int) -> None:
        self._decay_ms = decay_s * 1000
        self._by_share: dict[str, _Usage] = {}

    def change(self, share: str, vcpus: int, now_ms: int) -> None:
        """Add ``vcpus`` (negative: subtract) to what the share has from now on."""
        usage = self._update_average(share, now_ms)
        usage.vcpus += vcpus
        usage.last_used_ms = max(usage.last_used_ms, now_ms)

    def recent_vcpus(self, share: str, now_ms: int) -> float:
        usage = self._update_average(share, now_ms)
        return usage.vcpus + usage.average_vcpus

    def active_shares(self, now_ms: int) -> set[str]:
        """Return the shares that run something, or did within the decay window."""
        return {
            share
            for share, usage in self._by_share.items()
            if usage.vcpus or (usage.last_used_ms and now_ms - usage.last_used_ms < self._decay_ms)
        }

    def set_decay(self, decay_s: int) -> None:
        """Set the decay window from now on; averages stay as they are."""
        self._decay_ms = decay_s * 1000

    def _update_average(self, share: str, now_ms: int) -> _Usage:
        usage = self._by_share.setdefault(share, _Usage(updated_ms=now_ms))
        if self._decay_ms and now_ms > usage.updated_ms:
            weight = math.exp((usage.updated_ms - now_ms) / self._decay_ms)
            usage.average_vcpus = usage.average_vcpus * weight + usage.vcpus * (1 - weight)
        usage.updated_ms = max(usage.updated_ms, now_ms)
        return usage
