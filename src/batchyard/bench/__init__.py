"""Compare CPU and GPU: measure workloads on devices, compare times and dollars, draw charts.

- workload: what a workload is; workloads/: the built-in ones; loading: finds and checks workloads
- workload_values, checking: what a workload's functions return; whether a result is right
- kits: one adapter per library; discovery: which libraries and devices this machine can use
- timing, trials, measuring: measure one operation; running: all operations of a device
- request, interrupts: carry out a request; stop it on a signal
- results, reading, result_files: measurements as values, read from JSON, written to disk
- machine, metadata, memory, gpu_clocks: facts of the machine
- comparing, break_evens: compare two results, with prices
- tables, axes, charts, roofline, page: text and CSV, SVG charts, one HTML page
- command_request, command_runs, command_measuring, command_report: a command of the user
- submission, packing: the benchmark as two jobs, and what is sent with them; bootstrap: what runs
  first in such a job

NumPy is imported when something is measured; comparing and reporting need only Python.
"""

from __future__ import annotations

from batchyard.bench.workload import Candidate, Sample, Workload

__all__ = ["Candidate", "Sample", "Workload"]
