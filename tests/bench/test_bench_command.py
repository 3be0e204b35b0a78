"""`batchyard bench run`, `compare` and `report` as users call them, and their errors."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from bench_yard import QUICK, SLOW, batchyard, command, read

import prestarted
from batchyard.bench import packing
from batchyard.bench.command_request import CommandRequest
from only_numpy import hide_other_libraries


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a quick result in out/."""
    folder = tmp_path_factory.mktemp("a yärd")
    batchyard(folder, *QUICK)
    return folder


def test_a_run_leaves_a_table_json_and_csv(measured: Path) -> None:
    text = (measured / "out" / "cpu-benchmark.txt").read_text(encoding="utf-8")
    assert "Triad, a = b + 3c, 1 Mi elements" in text and "GB/s" in text and "threads:" in text
    value = read(measured / "out" / "cpu-benchmark.json")
    measurement = value["measurements"][0]
    assert (
        measurement["outcome"] == "ok"
        and len(measurement["warm_s"]) >= 3
        and measurement["candidate"]
        and measurement["cold_s"] > 0
    )
    assert (
        value["machine"]["libraries"]["NumPy"] and value["ended"] and value["peak"]["gbytes_s"] > 0
    )
    assert value["peak"]["gflops"] > 0
    rate = measurement["traffic_bytes"] / statistics.median(measurement["warm_s"]) / 1e9
    assert rate <= value["peak"]["gbytes_s"] * 1.0001
    assert (measured / "out" / "cpu-benchmark.csv").read_text().count("\n") == 2


def test_progress_goes_to_stderr_and_the_table_to_stdout(tmp_path: Path) -> None:
    hide_other_libraries(tmp_path)
    done = batchyard(tmp_path, *QUICK, "--all-candidates", "--threads", "1", "--seed", "5")
    assert done.stderr.startswith("1/1 Triad") and "every candidate:" in done.stdout
    assert "written: out/cpu-benchmark.txt" in done.stdout
    value = read(tmp_path / "out" / "cpu-benchmark.json")
    assert value["machine"]["threads"] == 1 and value["seed"] == 5
    assert value["machine"]["thread_variables"]["OPENBLAS_NUM_THREADS"] == "1"


def test_nothing_is_said_about_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    hide_other_libraries(tmp_path)
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = batchyard(
        tmp_path, "bench", "run", "--quick", "--only", "triad", "--out", "out", env=environ
    )
    assert "no GPU is measured: " in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir())[0] == "cpu-benchmark.csv"
    assert not list((tmp_path / "out").glob("gpu*")) and "GPU" not in done.stdout


def test_no_gpu_where_one_was_asked_for(tmp_path: Path) -> None:
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = batchyard(tmp_path, "bench", "run", "--device", "gpu", "--quick", env=environ, code=3)
    assert "no GPU can be used here: PyTorch: " in done.stderr and "--device cpu" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--device", "tpu"), "--device tpu: there is no such device"),
        (("--only", "matmull"), "did you mean matmul?"),
        (("--sizes", "1000,big"), "no list of sizes"),
        (("--sizes", "0"), "no list of sizes"),
        (("--sizes", "9" * 5000), "no list of sizes"),
        (("--workload", "none.py"), "there is no such file"),
        (("--images", "nowhere"), "No such file or directory"),
        (("--only", "copy*", "--device", "cpu"), "none of the selected workloads runs on a CPU"),
    ],
)
def test_bad_input(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    assert message in batchyard(tmp_path, "bench", "run", *args, code=2).stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    assert "could not write the results" in batchyard(tmp_path, *QUICK, code=3).stderr


def test_a_size_that_does_not_fit_is_skipped_with_the_reason(tmp_path: Path) -> None:
    hide_other_libraries(tmp_path)
    done = batchyard(
        tmp_path,
        "bench",
        "run",
        "--device",
        "cpu",
        "--quick",
        "--only",
        "matmul",
        "--sizes",
        "64,5000000",
    )
    assert "SKIPPED: it needs" in done.stdout and "GiB of memory" in done.stdout
    assert "Matrix multiplication, 64 x 64" in done.stdout


WRONG = """
import numpy as np
from batchyard.bench import Candidate, Workload

WORKLOAD = Workload(
    name="wrong", title="Wrong", sizes=(4,), inputs=lambda size, rng: {"x": rng.random(size)},
    reference=lambda size, arrays: arrays["x"],
    candidates=(Candidate("good", "numpy", lambda kit, size: lambda x: x),
                Candidate("bad", "numpy", lambda kit, size: lambda x: x * np.nan)),
)
"""


def test_nan_fails_the_run_and_loses_nothing(tmp_path: Path) -> None:
    hide_other_libraries(tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    done = batchyard(
        tmp_path, "bench", "run", "--device", "cpu", "--quick", "--workload", "wrong.py", code=1
    )
    assert "NumPy, bad FAILED: 4 of 4 values are NaN or infinite" in done.stdout
    value = read(tmp_path / "benchmark" / "cpu-benchmark.json")
    assert value["measurements"][0]["candidate"] == "NumPy, good" and value["ended"]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 130, marks=pytest.mark.slow),
        (signal.SIGKILL, -9),
    ],
)
def test_what_was_measured_survives(tmp_path: Path, number: signal.Signals, code: int) -> None:
    hide_other_libraries(tmp_path)
    (tmp_path / "slow.py").write_text(SLOW)
    args = (
        "bench",
        "run",
        "--device",
        "cpu",
        "--quick",
        "--workload",
        "slow.py",
        "--sizes",
        "1,2",
        "--out",
        "out",
    )
    process = prestarted.Popen(command(*args), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("1/2 Slow, 1")
        while not (tmp_path / "sleeping").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        stderr = process.communicate(timeout=300)[1]
        assert process.returncode == code
    finally:
        process.kill()
        process.communicate()
    assert "Traceback" not in stderr
    if code == 130:
        assert "stopped; what was measured is in out/cpu-benchmark.txt" in stderr
    value = read(tmp_path / "out" / "cpu-benchmark.json")
    assert [measurement["size"] for measurement in value["measurements"]] == [1]
    assert value["ended"] == ""
    assert "not finished" in (tmp_path / "out" / "cpu-benchmark.txt").read_text(encoding="utf-8")
    assert "out/benchmark.html" in batchyard(tmp_path, "bench", "report", "out").stdout


# -- compare and report --


def test_two_cpu_results_compared_are_labelled_so(measured: Path, tmp_path: Path) -> None:
    path = str(measured / "out" / "cpu-benchmark.json")
    args = ("--a-type", "c7i.4xlarge", "--b-type", "no.such", "--prices")
    done = batchyard(tmp_path, "bench", "compare", path, path, *args)
    assert (
        "CPU A: c7i.4xlarge, $0.714 an hour" in done.stdout
        and "CPU B: no.such, ? dollars an hour" in done.stdout
    )
    assert (
        "no comparison with a GPU" in done.stdout
        and "1.00x" in done.stdout
        and "prices: EC2" in done.stdout
    )
    assert "c7i.4xlarge: $0.714 an hour on demand, $0.1222 an hour on spot" in done.stdout
    assert (tmp_path / "benchmark-summary.txt").read_text(encoding="utf-8") == done.stdout
    # Region and date of the prices are always there.
    plain = batchyard(tmp_path, "bench", "compare", path, path).stdout
    assert "us-east-1, Linux, seen 20" in plain and "on demand" not in plain


def test_a_page_takes_types_and_prices(measured: Path, tmp_path: Path) -> None:
    folder = str(measured / "out")
    args = ("--cpu-type", "c7i.4xlarge", "--spot", "--price", "x9.nano=7.25", "--out", "-")
    shown = batchyard(tmp_path, "bench", "report", folder, *args).stdout
    assert "c7i.4xlarge" in shown and ">0.1222<" in shown
    assert "given: x9.nano 7.25; others: EC2 spot" in shown
    own = batchyard(
        *(tmp_path, "bench", "report", folder, "--cpu-type", "x9.nano"),
        *("--price", "x9.nano=7.25", "--out", "-"),
    ).stdout
    assert ">7.25<" in own
    refused = batchyard(
        tmp_path, "bench", "report", folder, "--price", "x9.nano=cheap", "--out", "-", code=2
    )
    assert "TYPE=DOLLARS" in refused.stderr


def test_results_of_different_workloads(measured: Path, tmp_path: Path) -> None:
    hide_other_libraries(tmp_path)
    batchyard(
        tmp_path,
        "bench",
        "run",
        "--device",
        "cpu",
        "--quick",
        "--only",
        "fft",
        "--sizes",
        "16",
        "--out",
        "o",
    )
    paths = (str(measured / "out" / "cpu-benchmark.json"), "o/cpu-benchmark.json")
    done = batchyard(tmp_path, "bench", "compare", *paths, code=2)
    assert "no operation in common: one has triad 1048576, the other fft 16" in done.stderr


def test_a_file_cut_short(measured: Path, tmp_path: Path) -> None:
    whole = (measured / "out" / "cpu-benchmark.json").read_text(encoding="utf-8")
    (tmp_path / "cut-benchmark.json").write_text(whole[: len(whole) // 2], encoding="utf-8")
    done = batchyard(
        tmp_path, "bench", "compare", "cut-benchmark.json", "cut-benchmark.json", code=2
    )
    assert "was cut short" in done.stderr
    assert "was cut short" in batchyard(tmp_path, "bench", "report", ".", code=2).stderr


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("compare", "a.json", "b.json"), 2, "could not read a.json"),
        (("report", "nowhere"), 2, "there is no such folder"),
        (("report", "."), 2, "there are no results in it"),
    ],
)
def test_nothing_to_read(tmp_path: Path, args: tuple[str, ...], code: int, message: str) -> None:
    assert message in batchyard(tmp_path, "bench", *args, code=code).stderr


def test_where_the_page_goes(measured: Path, tmp_path: Path) -> None:
    folder = str(measured / "out")
    message = batchyard(tmp_path, "bench", "report", f"{folder}/cpu-benchmark.json", code=2).stderr
    assert (
        "cpu-benchmark.json: this is a file" in message
        and f"name the folder that it is in: {folder}\n" in message
    )
    assert batchyard(tmp_path, "bench", "report", folder, "--out", "p.html").stdout == "p.html\n"
    assert batchyard(tmp_path, "bench", "report", folder, "--out", "-").stdout.startswith(
        "<!doctype html>"
    )
    done = batchyard(tmp_path, "bench", "report", folder, "--out", "no/such.html", code=3)
    assert "could not write the report" in done.stderr and "--out" in done.stderr


def test_without_numpy_it_says_what_to_install(tmp_path: Path) -> None:
    # A module that cannot be imported stands in the way of the real one.
    (tmp_path / "numpy.py").write_text("raise ImportError('No module named numpy')\n")
    environ: dict[str, Any] = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = batchyard(tmp_path, *QUICK, env=environ, code=3)
    assert "needs NumPy" in done.stderr and "pip install '.[bench]'" in done.stderr


def test_comparing_and_reporting_need_no_numpy(measured: Path, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('No module named numpy')\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    path = str(measured / "out" / "cpu-benchmark.json")
    batchyard(tmp_path, "bench", "compare", path, path, env=environ)
    batchyard(tmp_path, "bench", "report", str(measured / "out"), "--out", "p.html", env=environ)


def test_help_has_examples(tmp_path: Path) -> None:
    for args in (("bench",), ("bench", "run"), ("bench", "compare"), ("bench", "report")):
        assert "batchyard bench" in batchyard(tmp_path, *args, "--help").stdout


@pytest.mark.slow
def test_the_price_of_an_instance_is_recorded_and_an_unknown_one_is_a_question_mark(
    tmp_path: Path,
) -> None:
    hide_other_libraries(tmp_path)
    message = batchyard(tmp_path, *QUICK, "--instance-type", "g5.xlarge").stdout
    assert re.search(r"(?m)^price: +\$1\.006 an hour \(EC2 on-demand, .*seen 20\d\d-", message)
    assert read(tmp_path / "out" / "cpu-benchmark.json")["machine"]["price"]["usd_h"] == 1.006
    message = batchyard(tmp_path, *QUICK, "--instance-type", "x9.huge").stdout
    assert re.search(r"(?m)^price: +\? dollars an hour$", message)


def test_more_memory_than_is_allowed_is_not_used(tmp_path: Path) -> None:
    hide_other_libraries(tmp_path)
    done = batchyard(tmp_path, *QUICK, "--sizes", "1000,268435456", "--memory", "1500MiB")
    assert re.search(
        r"256 Mi elements: SKIPPED: .*it needs .* GiB of memory, and this machine has [01]\.\d GiB",
        done.stdout,
    )
    outcomes = [
        measurement["outcome"]
        for measurement in read(tmp_path / "out" / "cpu-benchmark.json")["measurements"]
    ]
    assert outcomes == ["ok", "skipped"]


def test_a_stand_in_is_measured_only_where_it_was_asked_for_and_says_so(tmp_path: Path) -> None:
    hide_other_libraries(tmp_path)
    on_gpu = ("bench", "run", "--device", "gpu", "--quick", "--only", "triad", "--out", "out")
    batchyard(tmp_path, *on_gpu, code=3, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert not (tmp_path / "out").exists()
    # What a metadata service says is not asked for, since it would be made up too.
    pretended = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9",
    }
    done = batchyard(tmp_path, *on_gpu, "--stand-in", env=pretended)
    assert done.stdout.startswith("batchyard bench: CPU standing in for a GPU, quick: ")
    assert "the CPU stands in for it, and is labelled so" in done.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"stand-in-benchmark.{end}" for end in ("json", "csv", "txt")
    }


MISTAKES = """
import sys
import numpy as np
from batchyard.bench import Candidate, Workload


def toy(name, **fields):
    values = dict(
        name=name, title=name, sizes=(4,), inputs=lambda size, rng: {"x": rng.random(size)},
        reference=lambda size, arrays: arrays["x"],
        candidates=(Candidate("", "numpy", lambda kit, size: lambda x: x),),
    )
    return Workload(**{**values, **fields})


WORKLOADS = (
    toy("numpys", flops=lambda n: np.int64(2 * n)),
    toy("unlabelled", label=lambda n: 1 / 0),
    toy("uncounted", flops=lambda n: float("nan")),
    toy("leaves", inputs=lambda size, rng: sys.exit(0)),
    toy("ends", candidates=(Candidate("", "numpy", lambda kit, size: sys.exit(0)),)),
    toy("unreal", reference=lambda size, arrays: arrays["x"] * np.nan),
    toy("last"),
)
"""


def test_mistakes_of_one_workload_are_its_own_and_the_others_are_measured(tmp_path: Path) -> None:
    hide_other_libraries(tmp_path)
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    done = batchyard(
        tmp_path, "bench", "run", "--device", "cpu", "--quick", "--workload", "mistakes.py", code=1
    )
    value = read(tmp_path / "benchmark" / "cpu-benchmark.json")
    outcomes = {
        measurement["workload"]: measurement["outcome"] for measurement in value["measurements"]
    }
    assert outcomes == {
        **dict.fromkeys(("numpys", "last"), "ok"),
        **dict.fromkeys(("unlabelled", "uncounted", "leaves", "ends", "unreal"), "failed"),
    }
    assert value["ended"] and "bug" not in done.stderr
    for message in (
        "label(4): ZeroDivisionError",
        "flops(4) is nan",
        "it called sys.exit(0)",
        "4 of 4 values are NaN",
    ):
        assert message in done.stdout, message


#: stops itself at size 2; %s is what it does to be interrupted
INTERRUPTED = """
import os
import signal
from batchyard.bench import Candidate, Workload


class SignalWhenDeleted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)


def work(kit, size):
    def call(x):
        if size > 1:
            %s
        return x
    return call


WORKLOAD = Workload(
    name="interrupted", title="Interrupted", sizes=(1, 2),
    inputs=lambda size, rng: {"x": rng.random(size)},
    reference=lambda size, arrays: arrays["x"], candidates=(Candidate("", "numpy", work),),
)
"""


@pytest.mark.parametrize(
    "interrupt",
    [
        pytest.param("os.kill(os.getpid(), signal.SIGINT)", marks=pytest.mark.slow),
        pytest.param("os.kill(os.getpid(), signal.SIGTERM)", marks=pytest.mark.slow),
        # Python drops an exception that is raised in __del__, so the run must ask for the signal.
        "SignalWhenDeleted()",
    ],
)
def test_reruns_that_are_stopped_leave_what_was_measured(tmp_path: Path, interrupt: str) -> None:
    hide_other_libraries(tmp_path)
    (tmp_path / "interrupted.py").write_text(INTERRUPTED % interrupt)
    workload = ("--workload", "interrupted.py", "--out", "out", "--sizes")
    args = ("bench", "run", "--device", "cpu", "--quick", *workload)
    batchyard(tmp_path, *args, "1")
    for _ in range(2):
        done = prestarted.run(
            command(*args, "2"), cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 130
        assert "stopped; what was measured is in out/cpu-benchmark.txt" in done.stderr
    older = read(tmp_path / "out" / "cpu-benchmark.json.old")
    assert [measurement["size"] for measurement in older["measurements"]] == [1]
    assert read(tmp_path / "out" / "cpu-benchmark.json")["measurements"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"format": "batchyard-bench", "version": 1, "device": null}',
            "a.json: .*edited: device: expected text",
        ),
        ("[" * 100_000, "a.json: .*nested too deeply"),
    ],
)
def test_an_edited_result(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert re.search(
        message, batchyard(tmp_path, "bench", "compare", "a.json", "a.json", code=2).stderr
    )
    (tmp_path / "a.json").rename(tmp_path / "a-benchmark.json")
    assert "a-benchmark.json: " in batchyard(tmp_path, "bench", "report", ".", code=2).stderr


# -- a command of the user --


def test_a_command_is_measured_here(tmp_path: Path) -> None:
    args = ("--runs", "2", "--device", "cpu", "--cpu-type", "c7i.4xlarge", "--out", "o")
    done = batchyard(tmp_path, "bench", "command", *args, "--", "sh", "-c", "exit 0")
    assert "batchyard bench command: sh -c 'exit 0'" in done.stdout
    assert "prices on spot: EC2 spot" in done.stdout and "run 2 of 2" in done.stderr
    assert (tmp_path / "o" / "benchmark-summary.txt").read_text(encoding="utf-8") == done.stdout
    value = read(tmp_path / "o" / "cpu-benchmark.json")
    assert len(value["measurements"][0]["warm_s"]) == 1 and value["ended"]
    # The page and the comparison read it as any other result.
    assert "o/benchmark.html" in batchyard(tmp_path, "bench", "report", "o").stdout
    path = "o/cpu-benchmark.json"
    assert "one run" in batchyard(tmp_path, "bench", "compare", path, path).stdout


def test_a_command_that_fails_exits_with_1_and_shows_its_output(tmp_path: Path) -> None:
    # Words after the first belong to the command, also without `--`.
    args = ("--device", "cpu", "sh", "-c", "echo boom; exit 3")
    done = batchyard(tmp_path, "bench", "command", *args, code=1)
    assert "CPU, one run: FAILED: run 1 exited with 3: boom" in done.stdout


def test_a_step_of_a_pipeline_is_measured(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        'name: p\nsteps:\n- name: train\n  command: test "$COLOUR" = blue && touch made\n'
        "  env: {COLOUR: blue}\n"
    )
    args = ("bench", "command", "--runs", "1", "--device", "cpu", "--step")
    done = batchyard(tmp_path, *args, "p.yaml:train")
    assert 'batchyard bench command: test "$COLOUR" = blue' in done.stdout
    assert (tmp_path / "made").exists()
    assert "has no step" in batchyard(tmp_path, *args, "p.yaml:none", code=2).stderr
    assert "FILE:STEP" in batchyard(tmp_path, *args, "train", code=2).stderr


@pytest.mark.parametrize(
    ("args", "message", "code"),
    [
        ((), "there is no command to measure", 2),
        (("--", "no-such-program"), "cannot be started: no-such-program", 2),
        (("--device", "gpu", "--", "true"), "no GPU here", 3),
        (("--cpu-type", "fast", "--", "true"), "is no instance type", 2),
        (("--price", "g5.xlarge", "--", "true"), "TYPE=DOLLARS", 2),
        (("--image", "i", "--", "true"), "--image is for jobs on AWS Batch", 2),
        (("--step", "p.yaml:a", "--", "true"), "cannot both be measured", 2),
        (("--env", "lab", "--device", "cpu", "--", "true"), "are for this machine", 2),
    ],
)
def test_bad_input_of_a_command(
    tmp_path: Path, args: tuple[str, ...], message: str, code: int
) -> None:
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = batchyard(tmp_path, "bench", "command", *args, code=code, env=environ)
    assert message in done.stderr


def test_what_is_sent_with_a_job_can_measure_a_command(tmp_path: Path) -> None:
    packing.pack(tmp_path / "code.zip", CommandRequest(("true",)))
    with zipfile.ZipFile(tmp_path / "code.zip") as archive:
        archive.extractall(tmp_path / "code")
    words = ("bench", "command", "--device", "cpu", "--runs", "1", "--out", "../out", "--", "true")
    done = subprocess.run(
        # Without the installed packages: only what was packed is there.
        [sys.executable, "-S", "-m", "batchyard", *words],
        cwd=tmp_path / "code",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "code")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "cpu-benchmark.json").exists()


def test_an_interrupted_command_keeps_what_was_measured(tmp_path: Path) -> None:
    script = "if test -e first; then touch second; sleep 600; fi; touch first"
    process = prestarted.Popen(
        command("bench", "command", "--device", "cpu", "--", "sh", "-c", script),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (tmp_path / "second").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=300)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130 and "Traceback" not in stderr
    assert "stopped; what was measured is in benchmark" in stderr
    value = read(tmp_path / "benchmark" / "cpu-benchmark.json")
    assert len(value["measurements"][0]["warm_s"]) == 1 and value["ended"] == ""
