"""Measurement of one operation: the fastest correct candidate, and errors of candidates."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bench_values import Ticks, doubled, results, toy, way, with_numpy

from batchyard.bench import tables, trials
from batchyard.bench.checking import Check
from batchyard.bench.discovery import Device
from batchyard.bench.kits import Kit
from batchyard.bench.measuring import measure
from batchyard.bench.reading import from_json
from batchyard.bench.results import Measurement, Outcome, to_json
from batchyard.bench.timing import Effort
from batchyard.bench.trials import Bench, memory_problem
from batchyard.bench.workload import Candidate, Sample, Workload

EFFORT = Effort(min_calls=2, max_calls=4, budget_s=1.0)


def lasting(
    clock: Ticks, seconds: float, then: Callable[[Any], Any] = doubled
) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        clock.pass_(seconds)
        return then(x)

    return function


def measured(
    workload: Workload, clock: Ticks | None = None, size: int = 8, **fields: Any
) -> Measurement:
    bench = Bench(
        fields.pop("found", None) or with_numpy(), EFFORT, clock=clock or Ticks(), **fields
    )
    return measure(workload, size, bench)


def test_the_fastest_is_kept_and_named_and_the_others_are_on_record() -> None:
    clock = Ticks()
    measurement = measured(
        toy(
            way("slow", lasting(clock, 0.4)),
            way("fast", lasting(clock, 0.1)),
            way("middle", lasting(clock, 0.11)),
        ),
        clock,
    )
    assert measurement.outcome is Outcome.OK and measurement.candidate == "NumPy, fast"
    assert measurement.median_s == pytest.approx(0.1) and measurement.cold_s == pytest.approx(0.1)
    tried = {trial.candidate: trial for trial in measurement.tried}
    assert len(tried["NumPy, fast"].warm_s) == len(tried["NumPy, middle"].warm_s) == 4
    # Too far behind to be measured thoroughly, unless all are.
    assert len(tried["NumPy, slow"].warm_s) == 2


def test_with_all_candidates_each_is_measured_thoroughly() -> None:
    clock = Ticks()
    measurement = measured(
        toy(way("slow", lasting(clock, 0.4)), way("fast", lasting(clock, 0.1))),
        clock,
        measures_all=True,
    )
    assert [len(trial.warm_s) >= EFFORT.min_calls for trial in measurement.tried] == [True, True]


def test_a_wrong_result_never_wins() -> None:
    clock = Ticks()
    measurement = measured(
        toy(way("wrong", lasting(clock, 0.01, lambda x: x)), way("right", lasting(clock, 1.0))),
        clock,
    )
    assert measurement.candidate == "NumPy, right"
    assert (
        measurement.tried[0].outcome is Outcome.FAILED
        and "wrong by 0.5" in measurement.tried[0].reason
    )


@pytest.mark.parametrize(
    ("function", "outcome", "message"),
    [
        (lambda x: x * np.float32("nan"), Outcome.FAILED, "8 of 8 values are NaN or infinite"),
        (lambda x: x[:3] * 2, Outcome.FAILED, "its shape is (3,), and should be (8,)"),
        (lambda x: 1 / 0, Outcome.FAILED, "ZeroDivisionError"),
        (lambda x: (_ for _ in ()).throw(MemoryError("no")), Outcome.SKIPPED, "out of memory"),
        (
            lambda x: (_ for _ in ()).throw(RuntimeError("CUDA out of memory. Tried")),
            Outcome.SKIPPED,
            "CUDA out of memory",
        ),
        (
            lambda x: (_ for _ in ()).throw(ImportError("no", name="cv2")),
            Outcome.SKIPPED,
            "it needs cv2",
        ),
    ],
)
def test_what_goes_wrong_is_told_and_the_others_still_count(
    function: Callable[[Any], Any], outcome: Outcome, message: str
) -> None:
    alone = measured(toy(way("bad", function)))
    assert alone.outcome is outcome and message in alone.reason and alone.warm_s == ()
    beside = measured(toy(way("bad", function), way("good", doubled)))
    assert beside.outcome is Outcome.OK and beside.candidate == "NumPy, good"
    assert beside.tried[0].outcome is outcome and message in beside.tried[0].reason


def test_an_interrupt_is_not_swallowed() -> None:
    def stop(x: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(toy(way("stopped", stop)))


def test_a_candidate_that_fails_later_keeps_what_was_measured() -> None:
    calls = 0

    def twice(x: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 6:
            raise RuntimeError("worn out")
        return x * 2

    measurement = measured(toy(way("tired", twice)), Ticks())
    assert (
        measurement.outcome is Outcome.OK
        and "worn out" in measurement.reason
        and measurement.warm_s
    )


def test_inputs_that_cannot_be_made() -> None:
    measurement = measured(toy(way("a", doubled), inputs=lambda size, rng: {"x": [1, 2]}))
    assert (
        measurement.outcome is Outcome.FAILED and "dictionary of NumPy arrays" in measurement.reason
    )


def test_what_does_not_fit_is_skipped_with_the_reason() -> None:
    measurement = measured(toy(way("a", doubled), memory_bytes=lambda n: 2.0**60))
    assert (
        measurement.outcome is Outcome.SKIPPED
        and "1073741824.0 GiB of memory" in measurement.reason
    )
    assert (
        memory_problem(100, 116, "") == ""
        and memory_problem(None, 1, "") == ""
        and memory_problem(100, None, "") == ""
    )
    assert (
        memory_problem(2**30, 2**29, "the device has")
        == "it needs 1.0 GiB of memory, and the device has 0.5 GiB free"
    )


def test_no_library_for_it() -> None:
    found = Device("gpu", {}, {"PyTorch": "not installed (pip install torch)"})
    measurement = measured(toy(way("a", doubled, kit="torch")), found=found)
    assert (
        measurement.outcome is Outcome.SKIPPED
        and measurement.reason == "it needs PyTorch (not installed (pip install torch))"
    )
    measurement = measured(toy(way("a", doubled)), found=Device("gpu"))
    assert measurement.reason == "there is no way to do it on a GPU"


def test_inputs_depend_on_seed_name_and_size_alone() -> None:
    crcs = [
        measured(workload, size=size, seed=seed).inputs_crc
        for workload, size, seed in (
            (toy(way("a", doubled)), 8, 0),
            (toy(way("b", doubled)), 8, 0),
            (toy(way("a", doubled)), 8, 1),
            (toy(way("a", doubled)), 9, 0),
            (toy(way("a", doubled), name="other"), 8, 0),
        )
    ]
    assert crcs[0] == crcs[1] and len(set(crcs)) == 4


def test_what_is_far_behind_is_not_tried_at_the_next_size() -> None:
    clock = Ticks()
    workload = toy(way("slow", lasting(clock, 9.0)), way("fast", lasting(clock, 0.1)))
    bench = Bench(with_numpy(), EFFORT, clock=clock)
    measure(workload, 8, bench)
    measurement = measure(workload, 16, bench)
    assert measurement.tried[0].reason == "far behind at a smaller size"
    bench.measures_all = True
    assert measure(workload, 16, bench).tried[0].warm_s


class FarKit(Kit):
    """A device whose copies take a second each."""

    has_own_memory = True

    def __init__(self, clock: Ticks) -> None:
        super().__init__("numpy", "NumPy", np, "0")
        self.clock = clock
        self.waited = 0

    def to_device(self, held: Any) -> Any:
        self.clock.pass_(1)
        return held

    def to_host(self, result: Any) -> Any:
        self.clock.pass_(2)
        return result

    def synchronise(self) -> None:
        self.waited += 1
        self.clock.pass_(0.5)


def test_copies_are_measured_apart_and_every_call_is_waited_for() -> None:
    clock = Ticks()
    kit = FarKit(clock)
    workload = toy(way("a", lasting(clock, 0.25)))
    measurement = measured(workload, clock, found=Device("gpu", {"numpy": kit}))
    # The device works on after a call has returned: only waiting for it shows the time.
    assert measurement.median_s == pytest.approx(0.75)
    assert measurement.median_with_copies_s == pytest.approx(1.5 + 0.75 + 2)
    assert measurement.to_device_s == pytest.approx(1.5) and measurement.to_host_s == pytest.approx(
        2
    )
    assert kit.waited > len(measurement.warm_s)
    with_copies = measured(
        toy(way("a", doubled), copies_included=True), clock, found=Device("gpu", {"numpy": kit})
    )
    assert with_copies.with_copies_s == ()


def test_time_is_accounted_for() -> None:
    clock = Ticks()
    bench = Bench(with_numpy(), EFFORT, clock=clock)

    def slow_inputs(size: int, rng: np.random.Generator) -> dict[str, Any]:
        clock.pass_(7)
        return {"x": rng.random(size, dtype=np.float32)}

    measure(toy(way("a", lasting(clock, 0.5)), inputs=slow_inputs), 8, bench)
    assert bench.inputs.spent_s == 7 and bench.calls.spent_s == pytest.approx(clock.now - 7)


def test_checks() -> None:
    check = Check(Sample([((0, slice(2)), np.array([1.0, 2.0]))]), 0.1)
    assert check(np.array([[1.0, 2.1], [9, 9]])).problem == ""
    assert check(np.array([[1.0, 2.3], [9, 9]])).error == pytest.approx(0.15)
    assert "NaN" in check(np.array([[1.0, 2.0], [9, np.inf]])).problem
    assert Check(np.zeros(3), 0.0)(np.zeros(3)).error == 0


def test_names() -> None:
    assert trials.candidate_name(way("tiles", doubled, kit="cv2")) == "OpenCV, tiles"
    assert trials.candidate_name(way("", doubled)) == "NumPy"


def test_what_would_take_minutes_is_left_out_and_says_so() -> None:
    clock = Ticks()

    def by_size(per_element: float) -> Callable[[Kit, int], Callable[[Any], Any]]:
        return lambda kit, size: lambda x: lasting(clock, per_element * size)(x)

    workload = toy(
        Candidate("fast", "numpy", by_size(0.001)),
        Candidate("endless", "numpy", by_size(0.1)),
        quick_sizes=(2, 4),
    )
    measurement = measured(workload, clock, size=100)
    assert measurement.candidate == "NumPy, fast"
    assert measurement.tried[1].reason == "100x behind at 4; a call would take about 10 s"
    # At a size where it costs nothing to try, everything is tried.
    assert measured(workload, clock, size=8).tried[1].warm_s


# -- references, and kinds of numbers --


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (np.full(8, np.nan), "8 of 8 values are NaN or infinite"),
        (np.array([1.0, np.inf]), "1 of 2 values are NaN or infinite"),
        (Sample([(0, np.array(1.0)), (1, np.array(np.nan))]), "1 of 1 values are NaN or infinite"),
        (np.zeros(0), "there is nothing in it"),
        (Sample([]), "there is nothing in it"),
        (None, "it has no numbers"),
    ],
)
def test_a_reference_that_is_none_fails_the_workload(reference: Any, message: str) -> None:
    measurement = measured(
        toy(way("seven", lambda x: x * 0 + 7), reference=lambda size, arrays: reference)
    )
    assert measurement.outcome is Outcome.FAILED and measurement.warm_s == ()
    assert measurement.reason.startswith(f"its reference cannot be used: {message}")


@pytest.mark.parametrize("reference", [np.full(3, np.nan), np.full(3, np.inf), np.full(3, -1e308)])
def test_what_is_no_number_is_no_small_error(reference: Any) -> None:
    checked = Check(reference, 0.5)(np.full(3, 1e308))
    assert checked.problem and checked.error is None


@pytest.mark.parametrize(
    ("expected", "actual", "error"),
    [
        (np.full(5, 200, np.uint8), np.full(5, 199, np.uint8), 0.005),
        (np.full(5, 199, np.uint8), np.full(5, 200, np.uint8), 1 / 199),
        (np.array([True, False]), np.array([True, False]), 0),
        (np.array([True, False]), np.array([True, True]), 1),
        (np.array([-128, 5], np.int8), np.array([-128, 5], np.int8), 0),
        (np.array([100], np.int8), np.array([-100], np.int8), 2),
        (np.array([60000], np.float16), np.array([-60000], np.float16), 2),
        (np.array([3 + 4j]), np.array([3 + 4j], np.complex64), 0),
        (np.array([3 + 4j]), np.array([3 - 4j]), 1.6),
        (np.array([2.0]), np.array([2.0 + 1j]), 0.5),
        (np.array([2**62]), np.array([2**62 + 1]), 2.0**-62),
        (np.array([2**64 - 1], np.uint64), np.array([2**64 - 1], np.uint64), 0),
        (np.float64(3.0), 3.0, 0),
        (np.array([1.0, 2.0]), [1.0, 2.0], 0),
    ],
)
def test_numbers_of_every_kind_are_compared_as_numbers(
    expected: Any, actual: Any, error: float
) -> None:
    assert Check(expected, 10.0)(actual).error == pytest.approx(error, rel=1e-6, abs=0)
    assert bool(Check(expected, error * 0.99)(actual).problem) is bool(error)


# -- workloads of somebody who makes mistakes --


def test_counts_may_be_numbers_of_numpy() -> None:
    clock = Ticks()
    measurement = measured(
        toy(
            way("a", lasting(clock, 1.0)),
            flops=lambda n: np.int64(2 * n),
            traffic_bytes=lambda n: np.float32(n),
            is_about_bytes=np.bool_(True),
            tolerance=np.float32(0.25),
        ),
        clock,
    )
    assert measurement.outcome is Outcome.OK and (
        measurement.flops,
        measurement.traffic_bytes,
        measurement.tolerance,
    ) == (
        16.0,
        8.0,
        0.25,
    )
    assert from_json(to_json(results("cpu", measurement)), "a.json").measurements == (measurement,)


def broken(size: int) -> Any:
    raise RuntimeError("no idea")


def unwritable(*_: Any) -> Any:
    raise RuntimeError("bytes \udcff of a file's name")


def leaving(*_: Any) -> Any:
    sys.exit(5)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        *(
            ({name: broken}, f"{name}(8): RuntimeError: no idea")
            for name in ("label", "flops", "memory_bytes")
        ),
        *(
            ({name: leaving}, f"{name}(8): it called sys.exit(5)")
            for name in ("label", "traffic_bytes")
        ),
        *(
            ({"flops": lambda n, x=x: x}, f"flops(8) is {x!r}, and must be")
            for x in (np.nan, np.inf, -5, "many", "5")
        ),
        ({"traffic_bytes": lambda n: float("nan")}, "traffic_bytes(8) is nan"),
        ({"memory_bytes": lambda n: float("nan")}, "memory_bytes(8) is nan"),
        ({"flops": lambda n: 10**400}, "OverflowError"),
        ({"tolerance": float("nan")}, "its tolerance is nan"),
        ({"inputs": leaving}, "its inputs cannot be used: it called sys.exit(5)"),
        ({"reference": leaving}, "its reference cannot be used: it called sys.exit(5)"),
        ({"candidates": (way("a", leaving),)}, "NumPy, a: it called sys.exit(5)"),
        ({"candidates": (Candidate("a", "numpy", leaving),)}, "NumPy, a: it called sys.exit(5)"),
        (
            {"inputs": unwritable},
            r"its inputs cannot be used: RuntimeError: bytes \udcff of a file's name",
        ),
    ],
)
def test_a_mistake_in_a_workload_is_its_own_failure_and_is_written_down(
    mistake: dict[str, Any], message: str
) -> None:
    measurement = measured(toy(**{"candidates": (way("a", doubled),), **mistake}))
    assert measurement.outcome is Outcome.FAILED and message in measurement.reason
    assert from_json(to_json(results("cpu", measurement)), "a.json").measurements == (measurement,)


def test_an_error_that_cannot_say_what_it_is() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def mute(x: Any) -> Any:
        raise SilentError

    assert measured(toy(way("a", mute))).reason == "NumPy, a: SilentError: SilentError"


def test_counts_of_nothing_at_a_small_size_do_not_end_it() -> None:
    workload = toy(
        way("a", doubled), way("b", doubled), flops=lambda n: max(0, n - 4), quick_sizes=(4,)
    )
    assert measured(workload, size=16).outcome is Outcome.OK


class SilentAboutMemory(Kit):
    """A library that cannot tell how much memory is free."""

    def free_bytes(self) -> int | None:
        raise ValueError("Expected a torch.device with a specified index")


def test_a_library_that_cannot_tell_its_free_memory_is_measured() -> None:
    device = Device("cpu", {"numpy": SilentAboutMemory("numpy", "NumPy", np, np.__version__)})
    one = measure(toy(way("double", doubled)), 8, Bench(device, Effort(2, 4, 0.0)))
    assert one.outcome is Outcome.OK


def test_what_compiles_for_long_is_not_tried_in_a_quick_run() -> None:
    compiling = way("compiled", doubled, compiles=True)
    for is_quick, outcome in ((True, Outcome.SKIPPED), (False, Outcome.OK)):
        bench = Bench(with_numpy(), Effort(2, 4, 0.0), is_quick=is_quick)
        one = measure(toy(way("plain", doubled), compiling), 8, bench)
        assert one.outcome is Outcome.OK
        assert [trial.outcome for trial in one.tried] == [Outcome.OK, outcome]


def test_a_candidate_without_its_compiler_is_named_below_the_table() -> None:
    def needs_compiler(x: Any) -> Any:
        raise ImportError("torch.compile needs one", name="a compiler (g++ or clang++)")

    bench = Bench(with_numpy(), Effort(2, 4, 0.0))
    one = measure(toy(way("plain", doubled), way("compiled", needs_compiler)), 8, bench)
    assert one.outcome is Outcome.OK
    text = tables.run_text(results("cpu", one))
    assert (
        "not tried, and might be faster: NumPy, compiled: it needs a compiler (g++ or clang++),"
        " which is not installed" in text
    )


def test_a_candidate_can_take_its_inputs_on_the_host() -> None:
    class Remote(Kit):
        def to_device(self, held: Any) -> Any:
            raise AssertionError("copied although the candidate copies itself")

    device = Device("cpu", {"numpy": Remote("numpy", "NumPy", np, np.__version__)})
    bench = Bench(device, Effort(2, 4, 0.0))
    one = measure(toy(way("host", doubled, takes_host_arrays=True)), 8, bench)
    assert one.outcome is Outcome.OK


def test_copies_of_short_calls_are_timed_in_groups() -> None:
    clock = Ticks()

    class Device0(Kit):
        has_own_memory = True

        def synchronise(self) -> None:
            clock.pass_(1e-5)

    device = Device("cpu", {"numpy": Device0("numpy", "NumPy", np, np.__version__)})
    effort = Effort(2, 4, 0.0, min_total_s=0.01)
    bench = Bench(device, effort, clock=clock)
    one = measure(toy(way("double", doubled)), 8, bench)
    assert len(one.with_copies_s) >= 2
    before = bench.calls.spent_s
    assert before >= 0.01 + 2 / 4 * 0.01  # the calls alone, and two groups with copies
