"""What the shares of a fair-share queue have used recently. Bookkeeping; callers pass the time.

A share's recent use is the vCPU-time of its children, which fades exponentially over the decay
window, and the time that those that run will probably still take: the mean of the queue. AWS
documents that recent vCPU-time counts and decays, but not how (facts, 7.1).
"""

from __future__ import annotations

import math

from batchyard.quick_dataclasses import dataclass

#: The window of a policy without one: "a default minimum of 600 seconds", says the API.
_DEFAULT_WINDOW_S = 600
#: Time that a child is expected to take as long as none of the queue has ended.
_FIRST_MEAN_S = 1.0
_LEAST_MEAN_S = 0.001


@dataclass(slots=True)
class _Usage:
    vcpus: int = 0
    vcpu_s: float = 0.0
    updated_ms: int = 0
    #: when the share last started or ended something
    last_used_ms: int = 0


class ShareUsage:
    __slots__ = ("_by_share", "_decay_ms", "_ended_vcpus", "_total_vcpu_s")

    def __init__(self, decay_s: int) -> None:
        self._decay_ms = decay_s * 1000
        self._by_share: dict[str, _Usage] = {}
        #: vCPUs of all children that have ended, and the vCPU-time of all children
        self._ended_vcpus = 0
        self._total_vcpu_s = 0.0

    def change(self, share: str, vcpus: int, now_ms: int) -> None:
        """Add ``vcpus`` (negative: subtract) to what the share has from now on."""
        usage = self._update(share, now_ms)
        usage.vcpus += vcpus
        self._ended_vcpus += max(0, -vcpus)
        usage.last_used_ms = max(usage.last_used_ms, now_ms)

    def recent_vcpu_s(self, share: str, now_ms: int) -> float:
        usage = self._update(share, now_ms)
        return usage.vcpu_s + usage.vcpus * self._mean_s()

    def active_shares(self, now_ms: int) -> set[str]:
        """Return the shares that run something, or did within the decay window."""
        return {
            share
            for share, usage in self._by_share.items()
            if usage.vcpus or (usage.last_used_ms and now_ms - usage.last_used_ms < self._decay_ms)
        }

    def set_decay(self, decay_s: int) -> None:
        """Set the decay window from now on; what was used so far stays as it is."""
        self._decay_ms = decay_s * 1000

    def _mean_s(self) -> float:
        if not self._ended_vcpus:
            return _FIRST_MEAN_S
        return max(_LEAST_MEAN_S, self._total_vcpu_s / self._ended_vcpus)

    def _update(self, share: str, now_ms: int) -> _Usage:
        usage = self._by_share.setdefault(share, _Usage(updated_ms=now_ms))
        elapsed_ms = now_ms - usage.updated_ms
        if elapsed_ms > 0:
            window_ms = self._decay_ms or _DEFAULT_WINDOW_S * 1000
            used_vcpu_s = usage.vcpus * elapsed_ms / 1000
            usage.vcpu_s = usage.vcpu_s * math.exp(-elapsed_ms / window_ms) + used_vcpu_s
            self._total_vcpu_s += used_vcpu_s
            usage.updated_ms = now_ms
        return usage
