"""Comparison of two results: speed-ups, dollars, break-even, unknown prices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench_values import measurement, on_gpu
from bench_values import results as made
from hypothesis import given
from hypothesis import strategies as st

from batchyard import ec2_prices
from batchyard.bench import comparing, tables
from batchyard.bench.break_evens import BreakEven, Measure
from batchyard.bench.page import page
from batchyard.bench.results import Outcome, Results
from batchyard.errors import InputError

LISTED = ec2_prices.load_prices()


def pair(
    times: tuple[tuple[int, float, float, float], ...] = ((1000, 1.0, 0.1, 0.5),), **fields: object
) -> tuple[Results, Results]:
    """(size, CPU seconds, GPU seconds, GPU seconds with copies)."""
    ours = [measurement(size=size, seconds=cpu) for size, cpu, _, _ in times]
    theirs = [
        on_gpu(one, bare, copied) for one, (_, _, bare, copied) in zip(ours, times, strict=True)
    ]
    return (
        made("cpu", *ours, **{"instance_type": "c7i.4xlarge", **fields}),
        made("gpu", *theirs, **{"instance_type": "g5.xlarge", **fields}),
    )


def text_of(value: comparing.Comparison) -> str:
    return tables.comparison_text(value, LISTED.source)


def faster(value: comparing.Comparison) -> BreakEven:
    """The only break-even in time."""
    (even,) = [one for one in value.break_evens if one.measure is Measure.TIME]
    return even


def cheaper(value: comparing.Comparison) -> BreakEven:
    """The only break-even in dollars."""
    (even,) = [one for one in value.break_evens if one.measure is Measure.DOLLARS]
    return even


def test_speed_up_counts_the_copies_and_dollars_the_instance() -> None:
    value = comparing.compare(*pair(), LISTED)
    row = value.rows[0]
    assert row.speed_up == pytest.approx(2) and row.bare_speed_up == pytest.approx(10)
    assert row.first_usd == pytest.approx(1000 * 1.0 / 3600 * 0.714)
    assert row.second_usd == pytest.approx(1000 * 0.5 / 3600 * 1.006)
    assert value.pick(row) == "GPU (cheaper)"
    assert value.total_s() == pytest.approx((1.0, 0.5))
    text = text_of(value)
    assert "CPU: c7i.4xlarge, $0.714 an hour" in text and "2.00x" in text and "2026-08-22" in text


def test_faster_and_still_not_the_one_to_pick() -> None:
    value = comparing.compare(*pair(((1000, 1.0, 0.1, 0.9),)), LISTED)
    assert value.rows[0].speed_up and value.rows[0].speed_up > 1
    assert value.pick(value.rows[0]) == "CPU (cheaper)"


def test_with_spot_prices_the_pick_and_the_break_even_say_the_same() -> None:
    # Twice as fast at both sizes, at 4.3 times the price.
    spot = ec2_prices.load_prices(spot=True)
    value = comparing.compare(*pair(((10, 2.0, 1.0, 1.0), (20, 4.0, 2.0, 2.0))), spot)
    assert [value.pick(row) for row in value.rows] == ["CPU (cheaper)"] * 2
    text = tables.comparison_text(value, spot.source)
    assert "GPU is not cheaper at any size measured, 10 x 10 to 20 x 20" in text
    assert "GPU is faster at all sizes measured, 10 x 10 to 20 x 20" in text
    assert "wins" not in text


@given(
    st.lists(st.floats(0.1, 30), min_size=2, max_size=5),
    st.sampled_from(["m5.xlarge", "c7i.4xlarge", "g5.xlarge", "p4d.24xlarge"]),
    st.booleans(),
)
def test_dollars_are_judged_alike_in_the_table_and_below_it(
    speed_ups: list[float], gpu_type: str, is_spot: bool
) -> None:
    cpu, gpu = pair(ups(*speed_ups))
    value = comparing.compare(cpu, gpu, ec2_prices.load_prices(spot=is_spot), "", gpu_type)
    wins = [value.pick(row) == "GPU (cheaper)" for row in value.rows]
    even = cheaper(value)
    if "is cheaper at all" in even.verdict:
        assert all(wins)
    elif even.size is not None:
        assert wins == [row.first.size > even.size for row in value.rows]
    elif "is not cheaper" in even.verdict or "neither cheaper nor dearer" in even.verdict:
        assert not any(wins)
    else:
        assert any(wins) and not all(wins)


def test_the_break_even_in_dollars_is_at_a_larger_size_than_that_in_time() -> None:
    # Speed-ups 0.5 and 8; a g5.xlarge costs 1.409 times a c7i.4xlarge.
    value = comparing.compare(*pair(((100, 1.0, 1.0, 2.0), (10_000, 8.0, 1.0, 1.0))), LISTED)
    assert faster(value).size == pytest.approx(316, rel=0.01)
    assert cheaper(value).size == pytest.approx(316 * 1.409 ** (1 / 0.602), rel=0.01)


@pytest.mark.parametrize(("price", "picked"), [("g5.xlarge=0", "GPU"), ("c7i.4xlarge=0", "CPU")])
def test_what_costs_nothing_is_cheaper(price: str, picked: str) -> None:
    free = ec2_prices.add_prices(LISTED, [price])
    value = comparing.compare(*pair(((10, 1.0, 1.0, 1.0), (20, 1.0, 1.0, 1.0))), free)
    assert {value.pick(row) for row in value.rows} == {f"{picked} (cheaper)"}
    both = ec2_prices.add_prices(LISTED, ["g5.xlarge=0", "c7i.4xlarge=0"])
    value = comparing.compare(*pair(), both)
    assert value.pick(value.rows[0]) == "either"


def test_the_region_and_the_date_of_prices_are_always_shown() -> None:
    value = comparing.compare(*pair(), LISTED)
    text = tables.comparison_text(value, LISTED.source)
    assert "prices: EC2 on-demand, us-east-1, Linux, seen 2026-08-22" in text
    lines = ec2_prices.list_prices(["c7i.4xlarge", "no.such"])
    assert lines == [
        "c7i.4xlarge: $0.714 an hour on demand, $0.1222 an hour on spot",
        "no.such: ? dollars an hour on demand, ? dollars an hour on spot",
    ]
    assert lines[0] in tables.comparison_text(value, LISTED.source, lines)


def test_the_order_of_the_files_does_not_matter() -> None:
    cpu, gpu = pair()
    swapped = comparing.compare(gpu, cpu, LISTED, "p4d.24xlarge", "m5.xlarge")
    assert (swapped.first.device, swapped.second.device) == ("cpu", "gpu")
    assert (swapped.first.instance_type, swapped.second.instance_type) == (
        "m5.xlarge",
        "p4d.24xlarge",
    )
    assert any("one of 8 GPUs was used" in note for note in swapped.notes)


@pytest.mark.parametrize("instance", [None, "x9.nano"])
def test_an_unknown_price_is_a_question_mark(instance: str | None) -> None:
    value = comparing.compare(*pair(instance_type=instance), LISTED)
    row = value.rows[0]
    assert row.first_usd is row.second_usd is None
    assert value.total_usd() == (None, None) and value.pick(row) == "GPU (faster)"
    text = text_of(value)
    assert "$" not in text.split("\n\n")[1].replace("$/1000", "") and " ? " in text
    assert any("?" in note for note in value.notes)


def test_a_price_of_the_users_own_wins() -> None:
    own = ec2_prices.add_prices(LISTED, ["g5.xlarge=0.5", "x9.nano=2"])
    assert own.of("g5.xlarge") == 0.5 and own.of("x9.nano") == 2 and own.of("c7i.4xlarge") == 0.714
    assert own.of("nothing") is None and own.of(None) is None
    assert "given: g5.xlarge 0.5" in own.source
    assert ec2_prices.load_prices(spot=True).of("g5.xlarge") == 0.5302


@pytest.mark.parametrize(
    "given", ["g5.xlarge", "g5.xlarge=", "=1", "g5.xlarge=nan", "g5.xlarge=-1", "g5.xlarge=cheap"]
)
def test_a_price_that_is_none(given: str) -> None:
    with pytest.raises(InputError, match="TYPE=DOLLARS"):
        ec2_prices.add_prices(LISTED, [given])


def test_break_even_is_interpolated_between_two_named_points() -> None:
    # Speed-ups 0.5 and 2: even in the middle, on logarithmic axes.
    value = comparing.compare(*pair(((100, 1.0, 1.0, 2.0), (10_000, 4.0, 1.0, 2.0))), LISTED)
    even = faster(value)
    assert even.size == pytest.approx(1000)
    assert even.verdict == "is faster from about 1,000: 0.50x at 100 x 100, 2.00x at 10000 x 10000"


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (
            ((1, 2.0, 1.0, 1.0), (2, 3.0, 1.0, 1.0)),
            "is faster at all sizes measured, 1 x 1 to 2 x 2",
        ),
        (
            ((1, 0.5, 1.0, 1.0), (2, 0.9, 1.0, 1.0)),
            "is not faster at any size measured, 1 x 1 to 2 x 2",
        ),
        (((1, 2.0, 1.0, 1.0), (2, 0.5, 1.0, 1.0)), "is faster at small sizes only"),
        (((1, 2.0, 1.0, 1.0), (2, 1.0, 1.0, 1.0)), "is faster at small sizes only"),
        (
            ((1, 1.0, 1.0, 1.0), (2, 1.04, 1.0, 1.0)),
            "is neither faster nor slower at any size measured, 1 x 1 to 2 x 2",
        ),
        (
            ((1, 0.5, 1.0, 1.0), (2, 1.04, 1.0, 1.0)),
            "is not faster at any size measured, 1 x 1 to 2 x 2",
        ),
        (
            ((1, 1.04, 1.0, 1.0), (2, 2.0, 1.0, 1.0)),
            "is faster at 2 x 2, and at 1 x 1 neither is: 1.04x at 1 x 1, 2.00x at 2 x 2",
        ),
    ],
)
def test_no_break_even_is_made_up_beyond_what_was_measured(
    times: tuple[tuple[int, float, float, float], ...], message: str
) -> None:
    even = faster(comparing.compare(*pair(times), LISTED))
    assert even.size is None and even.verdict == message


def ups(*speed_ups: float) -> tuple[tuple[int, float, float, float], ...]:
    return tuple((10**n, up, 1.0, 1.0) for n, up in enumerate(speed_ups, 2))


@pytest.mark.parametrize(
    ("speed_ups", "message"),
    [
        (
            (2.0, 0.5, 4.0, 8.0),
            "has no single break-even:"
            " it stops being faster between 100 x 100 (2.00x) and 1000 x 1000 (0.50x), "
            "becomes faster between 1000 x 1000 (0.50x) and 10000 x 10000 (4.00x)",
        ),
        (
            (0.25, 2.0, 0.5, 0.4),
            "has no single break-even:"
            " it becomes faster between 100 x 100 (0.25x) and 1000 x 1000 (2.00x), "
            "stops being faster between 1000 x 1000 (2.00x) and 10000 x 10000 (0.50x)",
        ),
        (
            (0.5, 2.0, 1.0),
            "has no single break-even:"
            " it becomes faster between 100 x 100 (0.50x) and 1000 x 1000 (2.00x), "
            "stops being faster between 1000 x 1000 (2.00x) and 10000 x 10000 (1.00x)",
        ),
    ],
)
def test_who_wins_and_loses_by_turns_has_no_single_break_even(
    speed_ups: tuple[float, ...], message: str
) -> None:
    both = pair(ups(*speed_ups))
    value = comparing.compare(*both, LISTED)
    even = faster(value)
    assert even.size is None and even.verdict == message
    assert f"GPU {message}" in text_of(value) and f"the GPU {message}" in page(both, 0, LISTED)


@given(st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0]), min_size=2, max_size=6))
def test_what_is_said_about_sizes_is_true_of_every_size_measured(speed_ups: list[float]) -> None:
    even = faster(comparing.compare(*pair(ups(*speed_ups)), LISTED))
    wins = [up > 1.05 for up in speed_ups]
    if even.size is not None:
        assert wins == [10**n > even.size for n in range(2, 2 + len(wins))]
    elif even.verdict == "is faster at small sizes only":
        assert wins[0] and not wins[-1] and wins == sorted(wins, reverse=True)
    elif even.verdict.startswith("is faster at all"):
        assert all(wins)
    elif even.verdict.startswith("is faster at"):
        assert wins[-1] and wins == sorted(wins)
    elif even.verdict.startswith("has no single"):
        assert wins not in (sorted(wins), sorted(wins, reverse=True))
    else:
        assert not any(wins)


def test_a_result_against_itself_has_no_winner() -> None:
    same = made("cpu", measurement(size=10), measurement(size=20, seconds=2.0))
    value = comparing.compare(same, same, LISTED)
    assert [value.pick(row) for row in value.rows] == ["either", "either"]
    text = text_of(value)
    assert "CPU B is neither faster nor slower at any size" in text and "is faster" not in text


@pytest.mark.parametrize(
    ("slow_s", "picked", "winner"), [(1.7, "unclear (spread)", 0), (3.0, "CPU B (faster)", 1)]
)
def test_a_difference_within_the_spread_has_no_winner(
    slow_s: float, picked: str, winner: int
) -> None:
    # From half to one and a half: the middle four fifths count, so the spread is 0.8.
    noisy = {"warm_s": tuple(0.5 + n / 10 for n in range(11))}
    ours = [measurement(size=size, seconds=slow_s) for size in (10, 20)]
    theirs = [measurement(size=size, **noisy) for size in (10, 20)]
    value = comparing.compare(made("cpu", *ours), made("cpu", *theirs), LISTED)
    assert [value.pick(row) for row in value.rows] == [picked] * 2
    assert [row.winner(Measure.TIME) for row in value.rows] == [winner] * 2
    assert ("is faster at all sizes" in text_of(value)) is bool(winner)


def test_the_spread_that_counts_is_of_the_times_with_copies() -> None:
    cpu, gpu = pair(((10, 1.5, 1.0, 1.0), (20, 1.5, 1.0, 1.0)))
    wide = [replace(one, with_copies_s=(0.6, 1.0, 1.4)) for one in gpu.measurements]
    for second, winners in ((gpu, [1, 1]), (made("gpu", *wide), [0, 0])):
        rows = comparing.compare(cpu, second, LISTED).rows
        assert [row.winner(Measure.TIME) for row in rows] == winners


def test_results_with_nothing_in_common_are_refused() -> None:
    with pytest.raises(
        InputError, match="no operation in common: one has matmul 1000, the other blur 7"
    ):
        comparing.compare(made("cpu"), made("gpu", measurement("blur", 7)), LISTED)


def test_what_only_one_has_is_listed_and_not_counted() -> None:
    cpu, gpu = pair()
    more = made(
        "cpu", *cpu.measurements, measurement("blur", 9, 100.0), instance_type="c7i.4xlarge"
    )
    value = comparing.compare(more, gpu, LISTED)
    assert value.one_sided == (("CPU", "Blur, 9 x 9"),) and value.total_s()[0] == pytest.approx(1)
    assert "Blur, 9 x 9: only CPU has it" in text_of(value)


def test_other_inputs_are_not_compared() -> None:
    cpu, _ = pair()
    gpu = made("gpu", on_gpu(measurement(inputs_crc=18), 0.1, 0.2))
    value = comparing.compare(cpu, gpu, LISTED)
    assert value.rows[0].speed_up is None and value.comparable_rows == []
    assert "not compared: not the same inputs" in text_of(value)


def test_a_failed_side_is_not_compared_and_says_why() -> None:
    cpu, _ = pair()
    failed = measurement(
        outcome=Outcome.FAILED, reason="5 of 9 values are NaN or infinite", warm_s=()
    )
    text = text_of(comparing.compare(cpu, made("gpu", failed), LISTED))
    assert "not compared: GPU failed: 5 of 9 values are NaN" in text


def test_two_cpus_are_never_called_a_gpu() -> None:
    a, b = (
        made("cpu", measurement(seconds=2.0)),
        made("cpu", measurement(seconds=1.0), instance_type="c7i.4xlarge"),
    )
    value = comparing.compare(a, b, LISTED)
    text = text_of(value)
    assert (value.first.label, value.second.label) == ("CPU A", "CPU B")
    assert "both are CPU results: this is no comparison with a GPU" in text
    assert "GPU" not in text.replace("no comparison with a GPU", "")


def test_interrupted_and_quick_results_say_so() -> None:
    cpu, gpu = pair(ended="", is_quick=True)
    notes = comparing.compare(cpu, gpu, LISTED).notes
    assert any("interrupted" in note for note in notes) and any("--quick" in note for note in notes)


def test_a_small_difference_is_none() -> None:
    a, b = made("cpu", measurement(seconds=1.0)), made("cpu", measurement(seconds=1.03))
    value = comparing.compare(a, b, LISTED)
    assert value.pick(value.rows[0]) == "either"


def test_the_list_of_prices_has_its_date_and_source() -> None:
    assert (
        "2026-08-22" in LISTED.source
        and "us-east-1" in LISTED.source
        and "https://" in LISTED.source
    )
    assert all(usd > 0 for usd in LISTED.usd_h.values())
