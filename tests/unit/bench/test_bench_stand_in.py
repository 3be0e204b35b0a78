"""A CPU that stands in for a GPU: everything says so, and nothing is concluded from it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from bench_values import measurement, results

from batchyard import ec2_prices
from batchyard.bench import charts, comparing, tables
from batchyard.bench.page import page
from batchyard.bench.reading import from_json
from batchyard.bench.result_files import ResultFiles
from batchyard.bench.results import STAND_IN_NOTE, Results, to_json
from batchyard.bench.roofline import roofline

SIZES = (500, 1000, 5000)
OURS = [measurement(size=size, seconds=size / 1000) for size in SIZES]
#: faster only at the largest, so that there would be a break-even size
THEIRS = [
    measurement(size=size, seconds=(0.5 if size > 1000 else 2.0) * size / 1000) for size in SIZES
]
PLAIN = results("cpu", *OURS, instance_type="c7i.4xlarge")
STAND_IN = replace(results("cpu", *THEIRS), stands_for="gpu")
WORDS = "CPU standing in for a GPU"


@pytest.fixture
def compared() -> comparing.Comparison:
    return comparing.compare(PLAIN, STAND_IN, ec2_prices.load_prices())


def test_its_table_says_so_in_its_title_and_below() -> None:
    text = tables.run_text(STAND_IN)
    assert text.startswith(f"batchyard bench: {WORDS}")
    assert STAND_IN_NOTE in text
    assert "batchyard bench: GPU" not in text
    assert STAND_IN_NOTE not in tables.run_text(PLAIN)


def test_each_line_of_its_csv_says_so() -> None:
    lines = tables.csv_text(STAND_IN).splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == [WORDS] * len(SIZES)
    assert tables.csv_text(PLAIN).splitlines()[1].startswith("cpu,")


def test_its_files_are_not_those_of_a_gpu(tmp_path: Path) -> None:
    book = ResultFiles(tmp_path, "cpu", "gpu")
    book.prepare()
    book.write(STAND_IN)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"stand-in-benchmark.{end}" for end in ("json", "csv", "txt")
    }
    assert from_json(book.json_path.read_text(), "x") == STAND_IN


def test_a_result_from_before_there_were_stand_ins_can_be_read() -> None:
    text = to_json(PLAIN).replace(',\n "stands_for": ""', "")
    assert "stands_for" not in text
    assert from_json(text, "x") == PLAIN


def test_it_is_in_the_gpus_place_whichever_is_given_first(compared: comparing.Comparison) -> None:
    assert comparing.compare(STAND_IN, PLAIN, ec2_prices.load_prices()) == compared
    assert (compared.first.label, compared.second.label) == ("CPU", "stand-in")


def test_a_comparison_with_it_concludes_nothing(compared: comparing.Comparison) -> None:
    assert compared.break_evens == ()
    assert [compared.pick(row) for row in compared.rows] == ["", "", ""]
    text = tables.comparison_text(compared, "here")
    assert WORDS in text and STAND_IN_NOTE in text
    assert "GPU time" not in text and "GPU $/1000" not in text
    # 0.5x and 2x would be the speed-ups of this pair, and 1.62x that of its totals.
    assert not re.search(r"\d+(\.\d+)?x\b", text)
    # With a real one, both are there.
    real = comparing.compare(
        PLAIN, replace(STAND_IN, device="gpu", stands_for=""), ec2_prices.load_prices()
    )
    assert real.break_evens and real.pick(real.rows[0])


def test_it_has_no_price_whatever_type_is_given() -> None:
    value = comparing.compare(
        PLAIN,
        replace(STAND_IN, instance_type="g5.xlarge"),
        ec2_prices.load_prices(),
        "",
        "g5.xlarge",
    )
    assert value.second.usd_h is None and value.second.instance_type is None
    assert [row.second_usd for row in value.rows] == [None] * len(SIZES)
    assert all(row.first_usd for row in value.rows)


def test_the_page_and_its_charts_say_so() -> None:
    text = page([STAND_IN, PLAIN], 0, ec2_prices.load_prices())
    assert f"against the {WORDS}" in text
    assert STAND_IN_NOTE in text
    assert "No GPU was measured, so nothing here is about one." in text
    assert ">GPU<" not in text and "GPU faster" not in text
    assert "speed-up, copies" not in text and "Speed-up of" not in text
    assert not re.search(r">[\d.]+x<", text.partition("The choice of the code")[0])
    for drawn in (
        charts.times_chart([STAND_IN]),
        charts.candidates_chart(one_with_candidates()),
        roofline([STAND_IN]),
    ):
        assert WORDS in drawn


def one_with_candidates() -> Results:
    return replace(STAND_IN, measurements=(measurement(),))
