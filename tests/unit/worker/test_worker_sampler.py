"""The worker samples the command that runs, and its record has what was seen."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from batchyard.sampling.processes import ProcessUse
from batchyard.sampling.sampler import Readers, Sampler, Subject, next_delay_s
from batchyard.sampling.samples import GpuReading
from batchyard.worker.command_sampler import CommandSampler
from batchyard.worker.processes import CommandRunner
from batchyard.worker.stop_requests import StopRequests


class ScriptedHost:
    """A host whose only process uses one CPU more at each look."""

    def __init__(self) -> None:
        self.looks = 0
        self.gpus: list[Sequence[str]] = []

    def measure_processes(self, leaders: Iterable[int]) -> dict[int, ProcessUse]:
        self.looks += 1
        return {leader: ProcessUse(float(self.looks), 1000 * self.looks) for leader in leaders}

    def read_gpus(self, devices: Sequence[str]) -> GpuReading:
        self.gpus.append(devices)
        return GpuReading(50.0, 100, 200)

    @property
    def readers(self) -> Readers:
        return Readers(self.measure_processes, lambda container_id: None, self.read_gpus)


def test_a_command_has_the_samples_between_its_beginning_and_its_end() -> None:
    host = ScriptedHost()
    environ = {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
    # An hour passes between two looks of the test. The sampler's own thread waits for a real one.
    hours = itertools.count()
    sampler = CommandSampler(
        environ, readers=host.readers, interval_s=3600.0, clock=lambda: 3600.0 * next(hours)
    )
    sampler.take_samples()
    sampler.begin(7)
    sampler.take_samples()
    sampler.take_samples()
    use = sampler.end()
    assert use is not None
    assert (use.samples, use.peak_memory_kib, use.peak_gpu_memory_mib) == (2, 2000, 100)
    assert host.gpus == [("GPU-1",), ("GPU-1",)]
    sampler.take_samples()
    sampler.begin(8)
    assert sampler.end() is None
    assert host.looks == 2


def test_a_command_that_ends_within_the_first_interval_is_not_looked_at() -> None:
    host = ScriptedHost()
    sampler = CommandSampler({}, readers=host.readers, interval_s=3600.0)
    sampler.begin(7)
    sampler.take_samples()
    assert sampler.end() is None
    assert host.looks == 0


def test_the_result_of_a_command_has_its_use(tmp_path: Path) -> None:
    host = ScriptedHost()
    sampler = CommandSampler({}, readers=host.readers, interval_s=0.001)

    class Watched(CommandSampler):
        def begin(self, leader: int) -> None:
            sampler.begin(leader)
            while not host.looks:
                pass
            (tmp_path / "seen").touch()

        def end(self) -> object:  # type: ignore[override]
            return sampler.end()

    runner = CommandRunner(
        str(tmp_path), os.environ, StopRequests(), False, lambda: 0, sampler=Watched({})
    )
    result = runner.run("until test -e seen; do sleep 0.01; done", 0)
    assert result.exit_code == 0
    assert result.use is not None
    assert result.use.peak_memory_kib >= 1000


def test_a_look_that_takes_long_is_repeated_later() -> None:
    assert next_delay_s(0.001, 2.0) == 2.0
    assert next_delay_s(0.1, 2.0) == 20.0


def test_an_error_costs_one_look_and_not_the_others() -> None:
    looks: list[float] = []
    has_looked_again = threading.Event()

    def list_subjects(min_age_s: float) -> Sequence[Subject]:
        looks.append(min_age_s)
        if len(looks) == 1:
            raise MemoryError
        has_looked_again.set()
        return ()

    sampler = Sampler(list_subjects, interval_s=0.001)
    sampler.start()
    assert has_looked_again.wait(10)
    sampler.close()


def test_a_child_that_is_gone_gets_no_sample() -> None:
    readers = Readers(lambda leaders: {}, lambda container_id: None, lambda gpus: None)
    subject = Subject((), leader=7, gpus=("0",))
    seen: list[Sequence[Subject]] = []
    sampler = Sampler(lambda min_age_s: [subject], seen.append, readers)
    sampler.take_samples()
    assert seen == [[subject]]
