"""From what a user asked to results on disk: finds workloads and devices, measures one device after the other.

Changes its own process on the way: threads of the libraries, and how malloc keeps buffers.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from batchyard.bench import discovery, machine, memory, metadata, prices
from batchyard.bench.book import Book
from batchyard.bench.results import Measurement, Results
from batchyard.bench.timing import FULL, QUICK
from batchyard.bench.workload import CPU, GPU, Workload
from batchyard.errors import InputError, OperationalError

AUTO = "auto"
#: which jobs belong together: of `bench submit`, of run-benchmarks.sh
_RUN_VARIABLES = ("BATCHYARD_RUN", "BENCHMARK_RUN")


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
    #: of this machine's memory, at most; None: what is free
    memory_mib: int | None = None
    #: where there is no GPU, measure the CPU in its place, to see that everything works
    stand_in: bool = False


class Teller(Protocol):
    """Whoever is told what happens."""

    def say(self, line: str) -> None: ...

    def on_plan(self, book: Book, operations: int) -> None: ...

    def on_start(self, operation: str) -> None: ...

    def on_done(self, measurement: Measurement) -> None: ...


def fulfil(
    request: Request,
    environ: Mapping[str, str],
    teller: Teller,
    done: Callable[[Book, Results], None],
    raise_if_stopped: Callable[[], None] = lambda: None,
) -> None:
    """``done`` is called for each device with its results."""
    run = next((environ[name] for name in _RUN_VARIABLES if environ.get(name)), "")
    if not request.stand_in or not run:
        return _fulfil(request, environ, teller, done, raise_if_stopped)
    with machine.in_turn(
        run, lambda: teller.say("waiting until the other job on this machine has measured")
    ):
        return _fulfil(request, environ, teller, done, raise_if_stopped)


def _fulfil(
    request: Request,
    environ: Mapping[str, str],
    teller: Teller,
    done: Callable[[Book, Results], None],
    raise_if_stopped: Callable[[], None],
) -> None:
    begin = time.perf_counter()
    threads = request.threads or discovery.cpus()
    if request.threads:
        machine.use_threads(request.threads)
    if request.memory_mib is not None:
        memory.use_at_most(request.memory_mib * 2**20)
    keeps_buffers = not request.plain_malloc and memory.keep_buffers()
    _require_numpy()
    # NumPy is imported by these, so they come after the threads were set.
    from batchyard.bench import loading, running

    ours = loading.ours(request.images)
    own = [one for path in request.files for one in loading.from_file(path)]
    # Somebody who brings a workload wants that one measured; ours as well, if they are named.
    chosen = own if own and not request.only else loading.select([*ours, *own], request.only)
    peaks = [one for one in ours if one.name in ("matmul", "triad")]
    # Where something stands in for something else, the metadata service is made up too.
    instance = request.instance_type or (
        None if request.stand_in else metadata.instance_type(environ)
    )
    listed = prices.listed()
    for kind in [CPU, GPU] if request.device == AUTO else [request.device]:
        subject = _subject(request, kind, chosen, peaks, threads, teller)
        if subject is None:
            continue
        book = Book(request.out, subject.found.kind, subject.stands_for)
        book.open()
        for path in book.put_aside:
            teller.say(f"an older result is kept as {path}")
        plan = running.Plan(
            subject.operations,
            QUICK if request.quick else FULL,
            request.seed,
            request.quick,
            request.all_candidates,
            subject.stands_for,
        )
        about = machine.describe(subject.found, threads, keeps_buffers, environ)
        about["price"] = {"usd_h": listed.of(instance), "source": listed.source}
        teller.on_plan(book, len(plan.operations))
        results = running.run(
            *(plan, peaks, subject.found, about, instance),
            partial(book.keep, all_candidates=request.all_candidates),
            teller,
            begin,
            raise_if_stopped=raise_if_stopped,
        )
        done(book, results)
        begin = time.perf_counter()


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is measured: operations on a device, which may stand in for another."""

    operations: tuple[tuple[Workload, int], ...]
    found: discovery.Found
    stands_for: str = ""


def _subject(
    request: Request,
    kind: str,
    chosen: list[Workload],
    peaks: list[Workload],
    threads: int,
    teller: Teller,
) -> _Subject | None:
    """None where there is nothing to measure, and that is no mistake."""
    from batchyard.bench import running

    operations = tuple(running.planned(chosen, kind, request.sizes, request.quick))
    if not operations and request.device != AUTO:
        raise InputError(
            f"none of what was asked for runs on a {kind.upper()}", hint="choose others with --only"
        )
    found = discovery.find(kind, running.libraries_of([*chosen, *peaks], kind), threads)
    if kind == CPU or found.kits:
        return _Subject(operations, found) if operations else None
    if request.stand_in:
        teller.say(
            f"no GPU can be used here ({_reasons(found)}): the CPU stands in for it, and is labelled so"
        )
        its = _subject(replace(request, device=CPU), CPU, chosen, peaks, threads, teller)
        return None if its is None else replace(its, stands_for=GPU)
    if request.device == GPU:
        discovery.require_gpu(found)
    teller.say(f"no GPU is measured: {_reasons(found)}")
    return None


def _require_numpy() -> None:
    try:
        importlib.import_module("numpy")
    except ImportError as exc:
        raise OperationalError(
            f"`batchyard bench run` needs NumPy: {exc}",
            hint="in the clone of batchyard: pip install '.[bench]'",
        ) from None


def _reasons(found: discovery.Found) -> str:
    return (
        "; ".join(f"{name}: {reason}" for name, reason in found.missing.items())
        or "no workload has code for one"
    )
