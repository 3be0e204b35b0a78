"""A thread that takes samples of all children of this process that run, every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from batchyard.sampling import processes
from batchyard.sampling.processes import ProcessUse
from batchyard.sampling.samples import GpuReading, Reading, Samples

#: Time between two samples. A child that ends earlier is never looked at.
INTERVAL_S = 2.0
#: The part of a CPU that the thread may use. On a machine with very many processes a look takes
#: long, and the next one is later.
MAX_CPU_SHARE = 0.005
_CLOSE_PATIENCE_S = 1.0


class Subject(NamedTuple):
    """A child that runs, and where its samples go."""

    #: The attempt, and its command if that is recorded by itself.
    samples: tuple[Samples, ...]
    #: The first process of the child; or the id of its container.
    leader: int | None = None
    container_id: str = ""
    #: CPU time of earlier processes of the child, which have ended.
    earlier_cpu_s: float = 0.0
    #: Its GPUs, as in CUDA_VISIBLE_DEVICES.
    gpus: tuple[str, ...] = ()


class Readers:
    """Where measured values come from."""

    def __init__(
        self,
        measure_processes: Callable[
            [Iterable[int]], Mapping[int, ProcessUse]
        ] = processes.measure_processes,
        measure_container: Callable[[str], ProcessUse | None] | None = None,
        read_gpus: Callable[[Sequence[str]], GpuReading | None] | None = None,
    ) -> None:
        self._measure_processes = measure_processes
        self._measure_container = measure_container or processes.ContainerCgroups().measure
        self._read_gpus = read_gpus

    def add_readings(self, subjects: Sequence[Subject], at_s: float) -> None:
        """Measure all subjects, and add a reading to their samples."""
        leaders = [subject.leader for subject in subjects if subject.leader is not None]
        by_leader = self._measure_processes(leaders) if leaders else {}
        for subject in subjects:
            use: ProcessUse | None
            if subject.leader is not None:
                use = by_leader.get(subject.leader)
            else:
                use = self._measure_container(subject.container_id)
            if use is None:
                continue
            gpu = self._read(subject.gpus) if subject.gpus else None
            reading = Reading(at_s, subject.earlier_cpu_s + use.cpu_s, use.memory_kib, gpu)
            for samples in subject.samples:
                samples.add(reading)

    def _read(self, gpus: Sequence[str]) -> GpuReading | None:
        if self._read_gpus is None:
            self._read_gpus = _make_gpu_reader()
        return self._read_gpus(gpus)


def _make_gpu_reader() -> Callable[[Sequence[str]], GpuReading | None]:
    """Return what measures GPUs: nothing, for a Python without ctypes."""
    try:
        # Only children with GPUs need ctypes and the driver's library.
        from batchyard.sampling.nvml import GpuReader
    except ImportError:
        return lambda gpus: None
    return GpuReader().read


class Sampler:
    """The thread. It is the only one of a process, however many children run."""

    def __init__(
        self,
        list_subjects: Callable[[float], Sequence[Subject]],
        on_samples: Callable[[Sequence[Subject]], None] = lambda subjects: None,
        readers: Readers | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """``list_subjects``: the children that have run for so many seconds at least.

        ``on_samples`` is called in the thread after each look at children.
        """
        self._list_subjects = list_subjects
        self._on_samples = on_samples
        self._readers = readers or Readers()
        self._interval_s = interval_s
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)

    def start(self) -> None:
        """Start the thread. Where the system allows no further thread, nothing is sampled."""
        with suppress(RuntimeError):
            self._thread.start()

    def close(self) -> None:
        """End the thread. A thread that waits for the driver of a lost GPU is left alone."""
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_PATIENCE_S)

    def _work(self) -> None:
        delay_s = self._interval_s
        while not self._is_closing.wait(delay_s):
            began_s = time.thread_time()
            # Nothing depends on samples: an error, as of a full memory, costs one look.
            with suppress(Exception):
                self.take_samples()
            delay_s = next_delay_s(time.thread_time() - began_s, self._interval_s)

    def take_samples(self) -> None:
        subjects = self._list_subjects(self._interval_s)
        if subjects:
            self._readers.add_readings(subjects, time.monotonic())
        self._on_samples(subjects)


def next_delay_s(cpu_s: float, interval_s: float) -> float:
    """Return the seconds until the next look. ``cpu_s``: CPU time of the last one."""
    return max(interval_s, cpu_s / MAX_CPU_SHARE)
