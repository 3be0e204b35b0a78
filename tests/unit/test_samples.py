"""Samples of a child become a summary of bounded size."""

from __future__ import annotations

import json

import pytest

from batchyard.sampling import samples
from batchyard.sampling.samples import (
    MAX_POINTS,
    AttemptUse,
    GpuReading,
    Reading,
    SampledStep,
    SampledUse,
    Samples,
    Series,
    combine,
    combine_steps,
    from_json,
    to_json,
)


def take(*readings: Reading, began_s: float = 0.0) -> SampledUse:
    taken = Samples(began_s)
    for reading in readings:
        taken.add(reading)
    use = taken.summarize()
    assert use is not None
    return use


def test_a_child_without_a_sample_has_no_use() -> None:
    assert Samples(10.0).summarize() is None


def test_means_are_by_time_and_peaks_are_the_largest() -> None:
    use = take(
        Reading(2.0, 4.0, 1024, GpuReading(50.0, 100, 1000)),
        Reading(6.0, 6.0, 3072, GpuReading(95.0, 900, 1000)),
        Reading(8.0, 6.0, 2048, GpuReading(0.0, 300, 1000)),
    )
    assert use.samples == 3
    assert use.seconds == 8.0
    assert use.mean_cpus == 0.75
    assert use.peak_cpus == 2.0
    assert use.peak_memory_kib == 3072
    assert use.mean_gpu_percent == (50 * 2 + 95 * 4) / 8
    assert use.peak_gpu_percent == 95.0
    assert use.peak_gpu_memory_mib == 900
    assert use.gpu_memory_mib == 1000
    assert use.series == Series(
        cpus=(2.0, 0.5, 0.0),
        memory_mib=(1, 3, 2),
        gpu_percent=(50, 95, 0),
        gpu_memory_mib=(100, 900, 300),
    )


def test_cpu_time_before_the_command_is_not_its_own() -> None:
    taken = Samples(100.0, began_cpu_s=50.0)
    taken.add(Reading(102.0, 53.0, 1))
    use = taken.summarize()
    assert use is not None
    assert use.mean_cpus == 1.5


def test_cpu_time_that_is_lost_with_a_process_counts_as_none() -> None:
    use = take(*(Reading(float(at), cpu_s, 1) for at, cpu_s in enumerate((5.0, 3.0, 4.0, 5.0), 1)))
    assert use.series.cpus == (5.0, 0.0, 1.0)
    assert use.seconds == 4.0


def test_cpu_time_that_one_look_missed_is_not_counted_twice() -> None:
    """The program whose 100 s were missed at 4 s ended while the processes were looked at."""
    use = take(
        Reading(2.0, 100.0, 1), Reading(4.0, 2.0, 5000), Reading(6.0, 104.0, 1), began_s=-98.0
    )
    assert use.peak_cpus == 1.0
    assert use.mean_cpus == pytest.approx(1.0)
    assert (use.samples, use.peak_memory_kib) == (2, 5000)


def test_two_readings_of_one_moment_are_one() -> None:
    assert take(Reading(1.0, 1.0, 1), Reading(1.0, 9.0, 9)).samples == 1


def test_a_gpu_that_is_lost_in_the_middle_keeps_what_was_seen() -> None:
    use = take(Reading(1.0, 0.0, 1, GpuReading(80.0, 700, 1000)), Reading(3.0, 0.0, 1, None))
    assert use.mean_gpu_percent == 80.0
    assert use.peak_gpu_memory_mib == 700
    assert use.series.gpu_percent == (80, None)
    assert from_json(json.loads(json.dumps(to_json(use)))) is not None


def test_a_part_of_a_gpu_has_memory_without_utilization() -> None:
    use = take(Reading(1.0, 0.0, 1, GpuReading(None, 700, 1000)))
    assert use.mean_gpu_percent is None
    assert use.peak_gpu_memory_mib == 700
    assert use.series.gpu_memory_mib == (700,)


@pytest.mark.parametrize("count", [1, MAX_POINTS, MAX_POINTS + 1, 1000, 43_200])
def test_a_day_is_not_larger_than_a_minute(count: int) -> None:
    gpu = GpuReading(100.0, 81_559, 81_559)
    use = take(*(Reading(2.0 * n, 2.0 * 191.57 * n, 1 << 31, gpu) for n in range(1, count + 1)))
    assert use.samples == count
    assert len(use.series.cpus) <= MAX_POINTS
    assert len(use.series.cpus) >= min(count, MAX_POINTS // 2)
    assert len(json.dumps(to_json(use), separators=(",", ":"))) < 1500
    assert use.mean_cpus == pytest.approx(191.57)
    assert use.seconds == 2.0 * count


def test_halving_keeps_peaks_of_memory_and_means_of_cpus() -> None:
    use = take(
        *(Reading(float(n), float(n), 1024 * (500 if n == 7 else 1)) for n in range(1, 1001))
    )
    assert max(use.series.memory_mib) == 500
    assert set(use.series.cpus) == {1.0}


def test_uses_of_several_attempts_are_combined_by_time() -> None:
    first = SampledUse(1, 10.0, 1.0, 2.0, 100, 50.0, 60.0, 7, 16)
    second = SampledUse(3, 30.0, 3.0, 3.0, 50)
    assert combine([]) is None
    assert combine([first, second]) == SampledUse(4, 40.0, 2.5, 3.0, 100, 50.0, 60.0, 7, 16)


def test_json_keeps_what_was_measured_and_leaves_out_the_rest() -> None:
    use = take(Reading(2.0, 3.0, 2048))
    document = to_json(use)
    assert document == {
        "samples": 1,
        "seconds": 2.0,
        "mean_cpus": 1.5,
        "peak_cpus": 1.5,
        "peak_memory_kib": 2048,
        "series": {"cpus": [1.5], "memory_mib": [2]},
    }
    assert from_json(document) == use
    assert to_json(use.without_series()).keys() == document.keys() - {"series"}


@pytest.mark.parametrize(
    "document",
    [None, [], "use", {}, {"samples": 1}, {**to_json(take(Reading(1, 1, 1))), "seconds": "1"}],
)
def test_a_document_of_another_program_is_no_use(document: object) -> None:
    assert from_json(document) is None


@pytest.mark.parametrize(
    "series",
    [
        None,
        7,
        {"cpus": "1"},
        {"cpus": [1.0], "memory_mib": []},
        {"cpus": ["<b>"], "memory_mib": [1]},
        {"cpus": [None], "memory_mib": [1]},
        {"cpus": [float("inf")], "memory_mib": [1]},
        {"cpus": [1], "memory_mib": [1], "gpu_percent": [-1]},
        {"cpus": [1] * 49, "memory_mib": [1] * 49},
    ],
)
def test_a_series_of_another_program_is_left_out(series: object) -> None:
    assert samples.series_from_json(series) == Series()


def test_attempts_that_run_count_with_those_that_have_ended() -> None:
    ended = SampledUse(1, 10.0, 1.0, 1.0, 100)
    running = AttemptUse("a", 1, 1, SampledUse(3, 30.0, 2.0, 2.0, 50, series=Series((2.0,), (1,))))
    first = SampledStep(ended, AttemptUse("a", 0, 1, ended))
    assert combine_steps({"a": first}, []) == {"a": first}
    combined = combine_steps({"a": first}, [running])["a"]
    assert combined == SampledStep(SampledUse(4, 40.0, 1.75, 2.0, 100), running)
    alone = combine_steps({}, [running])["a"]
    assert alone == SampledStep(running.use.without_series(), running)
