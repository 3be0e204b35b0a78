"""From what a user asked to results on disk: finds workloads and devices, measures one device after the other.

Changes its own process on the way: threads of the libraries, and how malloc keeps buffers.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from batchyard.bench import discovery, machine, memory, metadata
from batchyard.bench.book import Book
from batchyard.bench.results import Measurement, Results
from batchyard.bench.timing import FULL, QUICK
from batchyard.bench.workload import CPU, GPU
from batchyard.errors import BadInput, Surroundings

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Request:
    device: str = AUTO
    only: tuple[str, ...] = ()
    #: instead of each workload's own
    sizes: tuple[int, ...] = ()
    quick: bool = False
    out: Path = Path("benchmark")
    #: files of the user's own workloads
    files: tuple[Path, ...] = ()
    #: a folder of pictures for the workload `images`
    images: Path | None = None
    #: None: as many as there are CPUs
    threads: int | None = None
    all_candidates: bool = False
    seed: int = 0
    #: None: asked of the metadata service
    instance_type: str | None = None
    #: leave malloc as the system has it
    plain_malloc: bool = False


class Teller(Protocol):
    """Whoever is told what happens."""

    def say(self, line: str) -> None: ...

    def on_plan(self, book: Book, operations: int) -> None: ...

    def on_start(self, operation: str) -> None: ...

    def on_done(self, measurement: Measurement) -> None: ...


def fulfil(request: Request, environ: Mapping[str, str], teller: Teller, done: Callable[[Book, Results], None]) -> None:
    """``done`` is called for each device with its results."""
    begin = time.perf_counter()
    threads = request.threads or discovery.cpus()
    if request.threads:
        machine.use_threads(request.threads)
    keeps_buffers = not request.plain_malloc and memory.keep_buffers()
    _require_numpy()
    # NumPy is imported by these, so they come after the threads were set.
    from batchyard.bench import loading, running

    ours = loading.ours(request.images)
    own = [one for path in request.files for one in loading.from_file(path)]
    # Somebody who brings a workload wants that one measured; ours as well, if they are named.
    chosen = own if own and not request.only else loading.select([*ours, *own], request.only)
    peaks = [one for one in ours if one.name in ("matmul", "triad")]
    instance = request.instance_type or metadata.instance_type(environ)
    kinds = [CPU, GPU] if request.device == AUTO else [request.device]
    for kind in kinds:
        operations = running.planned(chosen, kind, request.sizes, request.quick)
        if not operations and request.device != AUTO:
            raise BadInput(f"none of what was asked for runs on a {kind.upper()}", hint="choose others with --only")
        found = discovery.find(kind, running.libraries_of([*chosen, *peaks], kind), threads)
        if kind == GPU and not found.kits:
            if request.device == GPU:
                discovery.require_gpu(found)
            teller.say(f"no GPU is measured: {_reasons(found)}")
            continue
        if not operations:
            continue
        book = Book(request.out, kind)
        book.open()
        for path in book.put_aside:
            teller.say(f"an older result is kept as {path}")
        effort = QUICK if request.quick else FULL
        plan = running.Plan(tuple(operations), effort, request.seed, request.quick, request.all_candidates)
        about = machine.describe(found, threads, keeps_buffers, environ)
        teller.on_plan(book, len(operations))
        results = running.run(
            *(plan, peaks, found, about, instance),
            partial(book.keep, all_candidates=request.all_candidates),
            teller,
            begin,
        )
        done(book, results)
        begin = time.perf_counter()


def _require_numpy() -> None:
    try:
        importlib.import_module("numpy")
    except ImportError as exc:
        raise Surroundings(
            f"`batchyard bench run` needs NumPy: {exc}", hint="install it with: pip install 'batchyard[bench]'"
        ) from None


def _reasons(found: discovery.Found) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in found.missing.items()) or "no workload has code for one"
