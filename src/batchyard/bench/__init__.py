"""CPU against GPU: workloads x devices -> measurements -> tables, charts, dollars. Touches the machine it measures.

- workload: what a workload is, for ours and for a user's own; workloads/: ours, a small file each; loading: finds them
- kits: a library with its way of moving arrays, one class each; discovery: which of them this machine can use
- timing, measuring: how one operation is measured; running: all of them, one after the other
- results, book: what was measured, as values; on disk, kept as it is measured
- machine, metadata, memory: what the numbers were measured on
- prices, comparing: two results, in time and dollars
- tables, charts, page: text, SVG, one HTML page
- submission: all of it as two jobs on AWS Batch; bootstrap: what runs first in such a job

NumPy is imported when something is measured; comparing and reporting need nothing but Python.
"""

from __future__ import annotations

from batchyard.bench.workload import Candidate, Sample, Workload

__all__ = ["Candidate", "Sample", "Workload"]
