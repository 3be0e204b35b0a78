"""What the sampled steps of a run use, as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from batchyard.cli.tables import table
from batchyard.status import StepUseStatus
from batchyard.units import format_memory


def use_lines(uses: Sequence[StepUseStatus]) -> list[str]:
    """Return a table of what the sampled steps use, with columns for GPUs if a step has some."""
    if not uses:
        return []
    has_gpus = any(entry.use.peak_gpu_memory_mib is not None for entry in uses)
    head = ["step", "busy CPUs", "at most", "memory at most"]
    head += ["GPU", "at most", "GPU memory at most"] if has_gpus else []
    rows = [_use_row(entry)[: len(head)] for entry in uses]
    return ["", *table(head, rows, right=frozenset(range(1, len(head))))]


def _use_row(entry: StepUseStatus) -> tuple[str, ...]:
    use, requested = entry.use, entry.requested
    return (
        entry.step,
        f"{use.mean_cpus:.2f} of {requested.vcpus}",
        f"{use.peak_cpus:.2f}",
        _format_part(-(-use.peak_memory_kib // 1024), requested.memory_mib),
        _format_percent(use.mean_gpu_percent),
        _format_percent(use.peak_gpu_percent),
        _format_part(use.peak_gpu_memory_mib, use.gpu_memory_mib),
    )


def _format_part(used_mib: int | None, whole_mib: int | None) -> str:
    if used_mib is None or whole_mib is None:
        return "-"
    return f"{format_memory(used_mib)} of {format_memory(whole_mib)}"


def _format_percent(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:.0f} %"
