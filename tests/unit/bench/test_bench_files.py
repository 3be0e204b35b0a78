"""Files of the benchmark: results, workloads of users, and mistakes in them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from bench_values import measurement, toy, way
from bench_values import results as made

from batchyard.bench import loading, result_files, running, tables
from batchyard.bench.result_files import ResultFiles
from batchyard.bench.results import Measurement, Outcome
from batchyard.errors import InputError, OperationalError


def test_three_files_are_kept(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path / "new" / "folder", "cpu")
    files.prepare()
    files.write(made())
    names = sorted(path.name for path in files.folder.iterdir())
    assert names == ["cpu-benchmark.csv", "cpu-benchmark.json", "cpu-benchmark.txt"]
    assert result_files.read(files.json_path) == made()


def test_an_older_result_is_put_aside(tmp_path: Path) -> None:
    for ended in ("first", "second"):
        files = ResultFiles(tmp_path, "cpu")
        files.prepare()
        files.write(made(ended=ended))
    assert [path.name for path in files.renamed_files][:1] == ["cpu-benchmark.json.old"]
    assert result_files.read(tmp_path / "cpu-benchmark.json.old").ended == "first"
    assert [results.ended for _, results in result_files.read_folder(tmp_path)] == ["second"]


def test_runs_that_were_stopped_lose_nothing_that_was_measured(tmp_path: Path) -> None:
    many = made("cpu", measurement(), measurement(size=2))
    for value in (
        many,
        made(measurements=()),
        made(measurements=()),
        made("cpu", measurement(size=3)),
        made(),
    ):
        files = ResultFiles(tmp_path, "cpu")
        files.prepare()
        files.write(value)
    measurements_by_name = {
        path.name: result_files.read(path).measurements for path in tmp_path.glob("*.json*")
    }
    assert measurements_by_name == {
        "cpu-benchmark.json.old": many.measurements,
        "cpu-benchmark.json.old2": (measurement(size=3),),
        "cpu-benchmark.json": made().measurements,
    }
    assert {path.name for path in files.renamed_files} == {
        f"cpu-benchmark.{end}.old2" for end in ("json", "csv", "txt")
    }


def test_a_file_that_is_no_result_is_put_aside_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "cpu-benchmark.json").write_text("mine")
    (tmp_path / "cpu-benchmark.txt.old").write_text("older")
    (tmp_path / "cpu-benchmark.txt").write_text("old")
    ResultFiles(tmp_path, "cpu").prepare()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "cpu-benchmark.json.old2": "mine",
        "cpu-benchmark.txt.old": "older",
        "cpu-benchmark.txt.old2": "old",
    }


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperationalError, match="could not write the results") as caught:
        ResultFiles(tmp_path / "file", "cpu").prepare()
    assert "--out" in caught.value.hint


def test_reading_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results in it"):
        result_files.read_folder(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        result_files.read_folder(tmp_path / "none")
    (tmp_path / "package.json").write_text("{}")
    with pytest.raises(InputError, match="no results in it"):
        result_files.read_folder(tmp_path)
    # One of ours that was cut short is an error, not overlooked.
    (tmp_path / "cpu-benchmark.json").write_text('{"form')
    with pytest.raises(InputError, match="cut short"):
        result_files.read_folder(tmp_path)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not text"):
        result_files.read(tmp_path / "a.json")
    with pytest.raises(InputError, match="No such file"):
        result_files.read(tmp_path / "none.json")


# -- text and CSV --


def test_the_table_names_the_fastest_and_what_was_wrong() -> None:
    failed = measurement(
        "blur", 5, outcome=Outcome.FAILED, reason="3 of 9 values are NaN or infinite", warm_s=()
    )
    text = tables.run_text(
        made("cpu", measurement(seconds=0.0123), failed, missing={"OpenCV": "not installed"})
    )
    assert (
        "NumPy, matmul" in text and "12.3 ms" in text and "163 GFLOP/s" in text and "33 %" in text
    )
    assert "Blur, 5 x 5: FAILED: 3 of 9 values are NaN" in text
    assert "PyTorch, mm FAILED: RuntimeError: no" in text
    assert "not tried, and might be faster: OpenCV: not installed" in text
    assert "OpenCV, gemm" not in text
    assert "OpenCV, gemm" in tables.run_text(made(), all_candidates=True)


def test_noise_is_said_aloud() -> None:
    quiet, noisy = (
        measurement(warm_s=(1.0, 1.01, 1.02)),
        measurement(size=2, warm_s=(1.0, 1.2, 1.5)),
    )
    assert "warning" not in tables.run_text(made("cpu", quiet))
    text = tables.run_text(made("cpu", quiet, noisy))
    assert "warning: 1 of 2 spread by more than 15 %" in text and " !" in text


def test_an_unfinished_run_says_so() -> None:
    assert "not finished" in tables.run_text(made(ended=""))
    assert "nothing has been measured yet" in tables.run_text(made(ended="", measurements=()))


def test_csv_has_all_of_it() -> None:
    rows = list(csv.DictReader(io.StringIO(tables.csv_text(made()))))
    assert (
        rows[0]["workload"] == "matmul"
        and float(rows[0]["median_s"]) == 1.0
        and rows[0]["calls"] == "3"
    )
    assert list(rows[0]) == list(tables.CSV_HEAD)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (2.5e-6, "2.50 µs"),
        (9.996e-4, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (1.5, "1.50 s"),
        (7200, "2h"),
    ],
)
def test_times(seconds: float | None, text: str) -> None:
    assert tables.time_text(seconds) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [(None, "?"), (0.0, "$0"), (12.345, "$12.35"), (0.0123, "$0.012"), (2e-7, "$2.0e-07")],
)
def test_dollars(usd: float | None, text: str) -> None:
    assert tables.dollars_text(usd) == text


@pytest.mark.parametrize(
    ("factor", "text"),
    [(None, "-"), (123.4, "123x"), (1.0, "1.00x"), (0.5, "0.50x"), (0.0026, "0.0026x")],
)
def test_factors(factor: float | None, text: str) -> None:
    assert tables.times_text(factor) == text


def test_the_tolerance_stands_beside_the_error() -> None:
    assert " 1e-07, 1e-04\n" in tables.run_text(made())
    (row,) = csv.DictReader(io.StringIO(tables.csv_text(made())))
    assert (float(row["error"]), float(row["tolerance"])) == (1e-7, 1e-4)


# -- workloads of one's own --

MINE = """
import numpy as np
from batchyard.bench import Candidate, Workload

WORKLOAD = Workload(
    name="{name}", title="Mine", sizes={sizes}, inputs=lambda size, rng: {{"x": rng.random(size)}},
    reference=lambda size, arrays: arrays["x"],
    candidates=(Candidate("", "{kit}", lambda kit, size: lambda x: x),),
    {fields}
)
"""


def mine(
    folder: Path, name: str = "mine", sizes: str = "(3,)", kit: str = "numpy", fields: str = ""
) -> Path:
    path = folder / "mine.py"
    path.write_text(MINE.format(name=name, sizes=sizes, kit=kit, fields=fields))
    return path


def test_a_workload_of_ones_own(tmp_path: Path) -> None:
    (workload,) = loading.load_file(mine(tmp_path))
    assert workload.name == "mine" and workload.sizes_for(quick=True) == (3,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "My Own"}, "is no name"),
        ({"sizes": "()"}, "no sizes"),
        ({"kit": "jax"}, "no such library 'jax'"),
        ({"sizes": "('a',)"}, "mine: sizes: 'a' is no size"),
        ({"sizes": "(1.5,)"}, "mine: sizes: 1.5 is no size"),
        ({"sizes": "(2**80,)"}, "is no size"),
        ({"sizes": "1000"}, "mine: sizes is 1000, and must be a tuple"),
        ({"fields": "quick_sizes=(-1,)"}, "mine: quick_sizes: -1 is no size"),
        ({"fields": "kinds=('tpu',)"}, "no such kind of device 'tpu'"),
        ({"fields": "kinds='cpu'"}, "mine: kinds is 'cpu', and must be a tuple"),
        ({"fields": "tolerance=float('nan')"}, "mine: tolerance is nan"),
        ({"fields": "tolerance=-1"}, "mine: tolerance is -1"),
        ({"fields": "tolerance=None"}, "mine: tolerance: TypeError"),
        ({"fields": ")\nWORKLOADS = 5 + (0"}, "WORKLOADS is 5, and must be a tuple"),
        ({"fields": ")\nWORKLOADS = (WORKLOAD.sizes"}, "WORKLOADS: 3 is no Workload"),
        ({"fields": ")\nWORKLOAD = (7"}, "WORKLOAD: 7 is no Workload"),
    ],
)
def test_mistakes_in_it_are_told(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    path = mine(tmp_path, **changes)
    with pytest.raises(InputError, match=message) as caught:
        loading.load_file(path)
    assert caught.value.message.startswith(f"{path}: ")


def test_sizes_may_be_numbers_of_numpy(tmp_path: Path) -> None:
    (workload,) = loading.load_file(
        mine(tmp_path, sizes="np.array([3, 5])", fields="quick_sizes=[np.int64(2)]")
    )
    assert (workload.sizes, workload.quick_sizes) == ((3, 5), (2,))
    assert {type(size) for size in (*workload.sizes, *workload.quick_sizes)} == {int}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "no workload"),
        ("x = (\n", "mine.py:1: "),
        ("import nonsuch\n", "nonsuch"),
        ("1 / 0\n", "ZeroDivision"),
        (
            "import sys; sys.exit(3)\n",
            r"mine.py: it fails when it is imported: it called sys.exit\(3\)",
        ),
        ("x = '\0'\n", "mine.py: .*null bytes"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        loading.load_file(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        loading.load_file(tmp_path / "none.py")
    with pytest.raises(InputError, match="not a Python file"):
        loading.load_file(tmp_path / "none.txt")


def test_choosing() -> None:
    ours = loading.load_builtin()
    assert [workload.name for workload in loading.select(ours, ["conv*", "blur"])] == [
        "convolution",
        "convolution-batch2",
        "blur",
    ]
    assert loading.select(ours, []) == ours
    with pytest.raises(InputError, match="no such workload") as caught:
        loading.select(ours, ["matmull"])
    assert caught.value.hint == "did you mean matmul?"
    with pytest.raises(InputError, match="two workloads are called matmul"):
        loading.select([*ours, toy(way("a", abs), name="matmul")], [])


def test_smallest_sizes_first() -> None:
    workload = toy(way("a", abs), sizes=(9, 3), quick_sizes=(1,))
    assert [size for _, size in running.plan_operations([workload], "cpu", (), False)] == [3, 9]
    assert [size for _, size in running.plan_operations([workload], "cpu", (), True)] == [1]
    assert [size for _, size in running.plan_operations([workload], "cpu", (5, 5, 2), True)] == [
        2,
        5,
    ]
    assert running.plan_operations([toy(way("a", abs), kinds=("gpu",))], "cpu", (), False) == []


def test_the_peak_of_bytes_is_that_of_the_largest_triad() -> None:
    def triad(size: int, seconds: float) -> Measurement:
        return measurement("triad", size, seconds, is_about_bytes=True, traffic_bytes=12e9)

    peak = running.peak_of([triad(10, 0.1), triad(100, 1.0), measurement(size=1000, seconds=0.01)])
    assert peak.gbytes_s == pytest.approx(12) and peak.gflops == pytest.approx(200)
    assert running.peak_of([]).gflops is None


def test_the_largest_triad_of_a_run_is_never_beyond_its_peak() -> None:
    def triad(size: int, gbytes_s: float) -> Measurement:
        return measurement("triad", size, 1.0, is_about_bytes=True, traffic_bytes=gbytes_s * 1e9)

    # As with --quick: one small triad that stays in the cache, and a larger one that was probed.
    row, probe = triad(1 << 20, 22.5), triad(1 << 22, 5.46)
    peak = running.peak_of([row], [probe])
    assert peak.fraction(row) == pytest.approx(1)
    assert running.peak_of([triad(1 << 20, 4.0)], [probe]).gbytes_s == pytest.approx(5.46)
    assert running.peak_of([], [probe]).gbytes_s == pytest.approx(5.46)
    # A smaller one beside it may come from the cache.
    assert running.peak_of([triad(1 << 22, 40.0), triad(1 << 26, 10.0)]).gbytes_s == pytest.approx(
        10
    )
