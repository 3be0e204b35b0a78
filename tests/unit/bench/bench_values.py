"""Made-up results and workloads for the tests of the benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from batchyard.bench.discovery import Device
from batchyard.bench.kits import Kit
from batchyard.bench.results import Measurement, Outcome, Peak, Results, Seconds, Trial
from batchyard.bench.workload import Candidate, Workload


def measurement(
    workload: str = "matmul", size: int = 1000, seconds: float = 1.0, **fields: Any
) -> Measurement:
    """Three warm calls around ``seconds``."""
    warm = (seconds * 0.98, seconds, seconds * 1.02)
    values: dict[str, Any] = {
        "title": workload.capitalize(),
        "label": f"{size} x {size}",
        "outcome": Outcome.OK,
        "candidate": "NumPy, matmul",
        "cold_s": seconds * 2,
        "warm_s": warm,
        "flops": 2.0 * size**3,
        "traffic_bytes": 12.0 * size**2,
        "error": 1e-7,
        "tolerance": 1e-4,
        "inputs_crc": 17,
        "peak_memory_bytes": 2**28,
        "tried": (
            Trial("NumPy, matmul", Outcome.OK, "", seconds * 2, warm, 1e-7),
            Trial("OpenCV, gemm", Outcome.OK, "", seconds * 3, (seconds * 2.5,), 1e-7),
            Trial("PyTorch, mm", Outcome.FAILED, "RuntimeError: no"),
        ),
    }
    return Measurement(workload, size=size, **{**values, **fields})


def results(device: str = "cpu", *measurements: Measurement, **fields: Any) -> Results:
    value = Results(
        device=device,
        device_name="Some Processor" if device == "cpu" else "Made-up GPU",
        machine={
            "cpu": "Some Processor",
            "cpus": 8,
            "threads": 8,
            "libraries": {"NumPy": "2.0"},
            "python": "3.11",
        },
        started="2026-01-02T03:04:05Z",
        ended="2026-01-02T03:14:05Z",
        measurements=measurements or (measurement(),),
        peak=Peak(500.0, 20.0),
        seconds=Seconds(100.0, 2.0, 10.0, 5.0, 84.0),
    )
    return replace(value, **fields)


def on_gpu(measured: Measurement, seconds: float, with_copies: float) -> Measurement:
    return replace(
        measured,
        candidate="PyTorch, mm",
        warm_s=(seconds * 0.98, seconds, seconds * 1.02),
        with_copies_s=(with_copies * 0.98, with_copies, with_copies * 1.02),
        tried=(),
    )


def toy(*candidates: Candidate, **fields: Any) -> Workload:
    """Twice the input."""
    values: dict[str, Any] = {
        "name": "toy",
        "title": "Toy",
        "sizes": (8,),
        "inputs": lambda size, rng: {"x": rng.random(size, dtype=np.float32)},
        "reference": lambda size, arrays: 2 * arrays["x"].astype(np.float64),
        "candidates": candidates,
        "flops": float,
    }
    return Workload(**{**values, **fields})


def way(name: str, function: Callable[[Any], Any], kit: str = "numpy", **fields: Any) -> Candidate:
    return Candidate(name, kit, lambda kit, size: lambda x: function(x), **fields)


def doubled(x: Any) -> Any:
    return x * 2


def with_numpy(kind: str = "cpu") -> Device:
    return Device(kind, {"numpy": Kit("numpy", "NumPy", np, np.__version__, 2)})


class Ticks:
    """A clock on which calls take as long as they say: they call ``pass_``."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds
