"""Results as values and as JSON: written, read back, and refused if they are wrong."""

from __future__ import annotations

import json

import pytest
from bench_values import measurement, on_gpu
from bench_values import results as made
from hypothesis import given
from hypothesis import strategies as st

from batchyard.bench import results
from batchyard.bench.reading import from_json
from batchyard.bench.results import Outcome, Peak, Seconds, spread_of, to_json
from batchyard.errors import InputError

WHOLE = made(
    "cpu",
    measurement(),
    measurement(size=2000, outcome=Outcome.SKIPPED, reason="memory", warm_s=()),
)


def test_what_is_written_is_read_back() -> None:
    gpu = made(
        "gpu",
        on_gpu(measurement(), 0.01, 0.03),
        instance_type="g5.xlarge",
        missing={"CuPy": "not installed"},
    )
    for value in (WHOLE, gpu):
        assert from_json(to_json(value), "a.json") == value


@given(st.integers(0, len(to_json(WHOLE)) - 3))
def test_a_file_cut_short_anywhere_is_said_to_be(length: int) -> None:
    with pytest.raises(InputError) as caught:
        from_json(to_json(WHOLE)[:length], "a.json")
    assert "a.json" in caught.value.message
    assert "cut short" in caught.value.message or "empty" in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("hello", "not JSON"),
        ("[1, 2]", "not a result"),
        ('{"format": "other"}', "not a result"),
        ('{"format": "batchyard-bench", "version": 99}', "file format 99 is not supported"),
        ('{"format": "batchyard-bench", "version": 1}', "edited: .* is missing"),
    ],
)
def test_what_is_no_result_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_json(text, "a.json")


@pytest.mark.parametrize("time", [float("nan"), -1.0, 0.0, "x", None])
def test_a_time_that_cannot_be_is_refused(time: object) -> None:
    value = json.loads(to_json(WHOLE))
    value["measurements"][0]["warm_s"][0] = time
    with pytest.raises(InputError, match="was edited: measurements"):
        from_json(json.dumps(value), "a.json")


def test_nan_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_json(made("cpu", measurement(error=float("nan"))))


def test_spread() -> None:
    assert spread_of([1.0]) is None
    assert spread_of([2.0] * 9) == 0
    assert spread_of([1.0, 2.0, 3.0]) == pytest.approx((2.8 - 1.2) / 2)
    # One outlier of many is no spread.
    assert spread_of([1.0] * 30 + [50.0]) == 0


def test_rates_and_the_part_of_the_peak() -> None:
    measured = measurement(size=1000, seconds=0.01)
    assert measured.gflops == pytest.approx(200) and measured.gbytes_s == pytest.approx(1.2)
    assert Peak(400.0, 10.0).fraction(measured) == pytest.approx(0.5)
    about_bytes = measurement(seconds=0.01, is_about_bytes=True)
    assert Peak(400.0, 10.0).fraction(about_bytes) == pytest.approx(0.12)
    assert Peak().fraction(measured) is None


def test_copies_count_where_there_are_any() -> None:
    assert measurement(seconds=2.0).median_with_copies_s == 2.0
    assert on_gpu(measurement(), 0.1, 0.3).median_with_copies_s == 0.3


def test_overhead_is_what_is_left() -> None:
    assert Seconds(100, 2, 10, 5, 84).overhead == pytest.approx(0.01)
    assert Seconds().overhead == 0


def test_the_format_is_named_in_the_first_characters() -> None:
    assert results.FORMAT in to_json(WHOLE)[:100]
