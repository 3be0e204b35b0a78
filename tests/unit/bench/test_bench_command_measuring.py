"""A command of the user: how often it runs, with which devices, what is kept, which to take."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchyard.bench.command_measuring import measure_command
from batchyard.bench.command_report import command_text, load_markets, run_usd
from batchyard.bench.command_request import CommandRequest, request_of_step
from batchyard.bench.command_runs import Ended, Launch, describe_start_error, run_process
from batchyard.bench.reading import from_json
from batchyard.bench.result_files import read
from batchyard.bench.results import STAND_IN_NOTE, Outcome, Results
from batchyard.errors import InputError, OperationalError
from batchyard.pipeline import Pipeline, Step

GPUS = ({"name": "Some GPU", "driver_version": "1"},)
TYPES = {"cpu": "c7i.4xlarge", "gpu": "g5.xlarge"}
#: no EC2 instance, whatever machine the tests run on
ENVIRON = {"AWS_EC2_METADATA_DISABLED": "true", "PATH": os.environ["PATH"]}


class Runs:
    """Runs that take as long as is written down: (device, size) -> seconds of each run."""

    def __init__(self, seconds: Mapping[tuple[str, str], Sequence[float | str]]) -> None:
        self._seconds = {key: list(values) for key, values in seconds.items()}
        self.launches: list[Launch] = []

    def __call__(self, launch: Launch) -> Ended:
        self.launches.append(launch)
        value = self._seconds[launch.environ["BATCHYARD_DEVICE"], launch.words[-1]].pop(0)
        return Ended(1.0, value) if isinstance(value, str) else Ended(value)

    @property
    def order(self) -> list[tuple[str, str]]:
        return [(one.environ["BATCHYARD_DEVICE"], one.words[-1]) for one in self.launches]


def measured(
    folder: Path,
    runs: Runs,
    gpus: Sequence[Mapping[str, str]] = GPUS,
    environ: Mapping[str, str] = ENVIRON,
    /,
    **fields: Any,
) -> dict[str, Results]:
    request = CommandRequest(("train", "1"), out=folder, instance_types=TYPES)
    request = replace(request, **fields)
    return measure_command(request, environ, run=runs, find_gpus=lambda: gpus)


def steady(cpu: float, gpu: float, runs: int = 5) -> Runs:
    return Runs({("cpu", "1"): [cpu] * runs, ("gpu", "1"): [gpu] * runs})


# -- runs --


def test_devices_take_turns_and_the_first_run_is_apart(tmp_path: Path) -> None:
    runs = Runs({("cpu", "1"): [9.0, 4.0, 6.0], ("gpu", "1"): [5.0, 1.0, 1.0]})
    both = measured(tmp_path, runs, runs=3)
    assert runs.order == [("cpu", "1"), ("gpu", "1")] * 3
    (cpu,), (gpu,) = both["cpu"].measurements, both["gpu"].measurements
    assert (cpu.cold_s, cpu.warm_s, cpu.median_s) == (9.0, (4.0, 6.0), 5.0)
    assert (gpu.cold_s, gpu.warm_s) == (5.0, (1.0, 1.0))
    assert both["gpu"].device_name == "Some GPU" and both["gpu"].instance_type == "g5.xlarge"


def test_without_the_gpu_means_that_the_command_cannot_see_it(tmp_path: Path) -> None:
    runs = steady(1, 1, 1)
    environ = {**ENVIRON, "CUDA_VISIBLE_DEVICES": "2", "MINE": "kept"}
    measured(tmp_path, runs, GPUS, environ, runs=1, env={"STEP": "s"})
    cpu, gpu = (launch.environ for launch in runs.launches)
    assert (cpu["CUDA_VISIBLE_DEVICES"], gpu["CUDA_VISIBLE_DEVICES"]) == ("", "2")
    assert all(one["MINE"] == "kept" and one["STEP"] == "s" for one in (cpu, gpu))


def test_in_a_job_the_command_finds_its_own_folder_and_path(tmp_path: Path) -> None:
    runs = steady(1, 1, 1)
    job = {"BENCHMARK_FOLDER": "/app", "PYTHONPATH": "/code:/own", "BENCHMARK_PYTHONPATH": "/own"}
    measured(tmp_path, runs, GPUS, {**ENVIRON, **job}, runs=1)
    assert runs.launches[0].folder == Path("/app")
    assert runs.launches[0].environ["PYTHONPATH"] == "/own"
    runs = steady(1, 1, 1)
    measured(
        tmp_path, runs, GPUS, {**ENVIRON, **job, "BENCHMARK_PYTHONPATH": ""}, runs=1, folder="own"
    )
    assert runs.launches[0].folder == "own" and "PYTHONPATH" not in runs.launches[0].environ


def test_results_are_files_like_those_of_workloads(tmp_path: Path) -> None:
    both = measured(tmp_path, steady(2.0, 1.0))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{kind}-benchmark.{end}" for kind in TYPES for end in ("txt", "json", "csv")}
    for kind in TYPES:
        assert read(tmp_path / f"{kind}-benchmark.json") == both[kind]
        text = (tmp_path / f"{kind}-benchmark.txt").read_text()
        assert "train 1, one run" in text and "GFLOP" not in text


def test_a_run_that_fails_ends_its_device_and_not_the_other(tmp_path: Path) -> None:
    runs = Runs({("cpu", "1"): [3.0, "exited with 1: no CUDA"], ("gpu", "1"): [1.0] * 3})
    both = measured(tmp_path, runs, runs=3)
    (cpu,) = both["cpu"].measurements
    assert cpu.outcome is Outcome.FAILED and cpu.reason == "run 2 exited with 1: no CUDA"
    assert runs.order.count(("cpu", "1")) == 2 and both["gpu"].successes
    text = command_text(both, load_markets())
    assert "CPU, one run: FAILED: run 2 exited with 1: no CUDA" in text
    assert "not compared: CPU failed" in text and "take" not in text


def test_an_interrupt_keeps_what_was_measured(tmp_path: Path) -> None:
    runs = steady(2.0, 1.0, 5)
    calls = 0

    def stop_in_the_middle() -> None:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_command(
            CommandRequest(("train", "1"), out=tmp_path),
            ENVIRON,
            run=runs,
            find_gpus=lambda: GPUS,
            raise_if_stopped=stop_in_the_middle,
        )
    cpu, gpu = (read(tmp_path / f"{kind}-benchmark.json") for kind in TYPES)
    assert (len(cpu.measurements[0].warm_s), len(gpu.measurements[0].warm_s)) == (2, 1)
    assert cpu.ended == gpu.ended == ""
    assert "CPU was interrupted" in command_text({"cpu": cpu, "gpu": gpu}, load_markets())


@pytest.mark.parametrize("hidden", [None, "", "-1"])
def test_no_gpu_here(tmp_path: Path, hidden: str | None) -> None:
    gpus = () if hidden is None else GPUS
    environ = ENVIRON if hidden is None else {**ENVIRON, "CUDA_VISIBLE_DEVICES": hidden}
    with pytest.raises(OperationalError, match="no GPU here"):
        measured(tmp_path, steady(1, 1), gpus, environ, device="gpu")
    only = measured(tmp_path, steady(1, 1), gpus, environ)
    assert list(only) == ["cpu"]
    assert "only the CPU was measured" in command_text(only, load_markets())


def test_a_stand_in_says_so_and_nothing_is_concluded(tmp_path: Path) -> None:
    both = measured(tmp_path, steady(2.0, 1.0), (), stand_in=True)
    assert both["gpu"].stands_for == "gpu" and both["gpu"].instance_type is None
    assert (tmp_path / "stand-in-benchmark.json").exists()
    text = command_text(both, load_markets())
    assert STAND_IN_NOTE in text and "take" not in text and "a GPU pays" not in text
    assert "2.00x" not in text


# -- requests --


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"words": ()}, "no command"),
        ({"words": ("",)}, "no command"),
        ({"device": "tpu"}, "no such device"),
        ({"runs": 0}, "between 1 and"),
        ({"sizes": (1, 2)}, "needs {size} in the command"),
        ({"words": ("train", "{size}")}, "there are no sizes"),
        ({"instance_types": {"gpu": "fast"}}, "--gpu-type 'fast' is no instance type"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        measured(tmp_path / "out", steady(1, 1), **fields)
    assert message in caught.value.message and not (tmp_path / "out").exists()


def test_other_commands_are_not_compared(tmp_path: Path) -> None:
    cpu = measured(tmp_path / "a", steady(2.0, 1.0))["cpu"]
    gpu = measured(
        tmp_path / "b", Runs({("gpu", "2"): [1.0] * 5}), words=("train", "2"), device="gpu"
    )["gpu"]
    assert "not the same inputs" in command_text({"cpu": cpu, "gpu": gpu}, load_markets())


PIPELINE = Pipeline(
    "lab",
    (
        Step("train", command="python train.py | tee log", image="img", env={"A": "1"}, gpus=1),
        Step("many", commands=("first one", "second"), array=2),
    ),
    path=Path("/work/pipeline.yaml"),
    workspace="data",
)


def test_a_step_brings_its_command_variables_image_and_folder() -> None:
    request = request_of_step(PIPELINE, "train", CommandRequest((), runs=2))
    assert request.words == ("sh", "-c", "python train.py | tee log") and request.runs == 2
    assert request.title == "python train.py | tee log"
    assert (dict(request.env), request.image) == ({"A": "1"}, "img")
    assert request.folder == Path("/work/data")
    own = request_of_step(PIPELINE, "train", CommandRequest((), image="mine", folder=Path("x")))
    assert (own.image, own.folder) == ("mine", Path("x"))


def test_of_a_list_the_first_command_is_measured_as_the_first_child() -> None:
    request = request_of_step(PIPELINE, "many", CommandRequest(()))
    assert request.words == (
        *("env", "AWS_BATCH_JOB_ARRAY_INDEX=0", "ARRAY_SIZE=2"),
        *("sh", "-c", "first one"),
    )


def test_a_step_that_is_not_there() -> None:
    with pytest.raises(InputError, match="has no step 'tarin'") as caught:
        request_of_step(PIPELINE, "tarin", CommandRequest(()))
    assert "train, many" in caught.value.hint


def test_a_long_command_is_shortened_and_harmless() -> None:
    assert len(CommandRequest(("x" * 500,)).title) == 80
    assert "\x1b" not in CommandRequest(("\x1b[31m",)).title


# -- the report --


def text_of(tmp_path: Path, cpu: float, gpu: float, *prices: str) -> str:
    return command_text(measured(tmp_path, steady(cpu, gpu, 5)), load_markets(prices))


def test_seconds_dollars_and_which_to_take_on_demand_and_on_spot(tmp_path: Path) -> None:
    # Three times as fast; the GPU's hour costs 1.41 times as much on demand, 4.34 times on spot.
    text = text_of(tmp_path, 3600.0, 1200.0)
    rows = [line.split() for line in text.splitlines() if line.startswith("one run")]
    assert rows[0][2:] == ["CPU", "c7i.4xlarge", "1h", "1h", "0", "%", "5", "$0.71", "$0.12"]
    assert rows[1][-2:] == ["$0.34", "$0.18"]
    assert "take on demand: GPU (cheaper): the GPU costs 2.13x less and is 3.00x faster" in text
    assert "take on spot: CPU (cheaper): the GPU costs 1.45x more and is 3.00x faster" in text
    assert "a GPU pays on demand from a speed-up of 1.41x ($1.006 against $0.714 an hour)" in text
    assert "a GPU pays on spot from a speed-up of 4.34x" in text and "measured: 3.00x" in text
    assert text.count("us-east-1, Linux, seen 2026-08-22") == 2
    assert run_usd(1800.0, 2.0) == 1.0 and run_usd(None, 1.0) is run_usd(1.0, None) is None


def test_a_price_of_the_user_counts_on_both_markets(tmp_path: Path) -> None:
    text = text_of(tmp_path, 3.0, 1.0, "g5.xlarge=10")
    assert text.count("CPU (cheaper)") == 2 and "given: g5.xlarge 10" in text


def test_an_unknown_price_is_a_question_mark_and_the_faster_is_taken(tmp_path: Path) -> None:
    both = measured(tmp_path, steady(3.0, 1.0, 5), instance_types={"gpu": "x9.nano"})
    text = command_text(both, load_markets())
    assert "no price is known for x9.nano, so it is ?; give --price TYPE=USD" in text
    assert "CPU: the instance type is not known" in text and "--cpu-type TYPE" in text
    assert "take on demand: GPU (faster): the GPU is 3.00x faster" in text
    assert "$" not in text.partition("take")[0] and "a GPU pays" not in text


def test_sizes_have_a_break_even_in_dollars_and_in_time(tmp_path: Path) -> None:
    # Speed-ups 0.5 and 8; on spot the GPU's hour costs 4.34 times as much.
    runs = Runs(
        {
            **{("cpu", "100"): [1.0] * 3, ("gpu", "100"): [2.0] * 3},
            **{("cpu", "10000"): [80.0] * 3, ("gpu", "10000"): [10.0] * 3},
        }
    )
    both = measured(tmp_path, runs, words=("train", "{size}"), sizes=(10000, 100), runs=3)
    assert runs.order[0] == ("cpu", "100")
    text = command_text(both, load_markets())
    assert "the GPU is faster from about 316: 0.50x at size 100, 8.00x at size 10,000" in text
    assert "on demand: the GPU is cheaper from about 559" in text
    assert "on spot: the GPU is cheaper from about 3,6" in text
    assert "take on spot, size 100: CPU (cheaper)" in text
    assert "take on spot, size 10,000: GPU (cheaper)" in text


def test_one_run_has_no_spread(tmp_path: Path) -> None:
    both = measured(tmp_path, steady(3.0, 1.0, 1), runs=1)
    text = command_text(both, load_markets())
    assert "too few runs for a spread" in text and "take on demand: GPU" in text


# -- processes --


def launch(*words: str, folder: Path | None = None) -> Launch:
    return Launch(words, folder or Path.cwd(), dict(os.environ))


def test_a_process_is_timed_and_its_failure_described() -> None:
    assert run_process(launch(sys.executable, "-c", "pass")).problem == ""
    assert run_process(launch(sys.executable, "-c", "pass")).seconds > 0
    failed = run_process(launch("sh", "-c", "echo one; echo two >&2; exit 7"))
    assert failed.problem == "exited with 7: one | two"
    killed = run_process(launch("sh", "-c", "kill -9 $$"))
    assert killed.problem == "was ended by SIGKILL"


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no-such-program: No such file"):
        run_process(launch("no-such-program"))
    with pytest.raises(InputError, match="there is no such folder"):
        run_process(launch("sh", folder=tmp_path / "none"))
    with pytest.raises(InputError, match="cannot be started"):
        run_process(launch("sh", "-c", "a\0b"))


def test_a_folder_of_path_that_cannot_be_searched_is_not_the_reason(tmp_path: Path) -> None:
    (tmp_path / "text").touch(mode=0o600)
    denied = PermissionError(errno.EACCES, "Permission denied")
    for program, reason in (("no-such-program", "No such file"), ("text", "Permission denied")):
        words = Launch((program,), tmp_path, {"PATH": str(tmp_path)})
        assert f": {program}: {reason}" in str(describe_start_error(words, denied))


def test_an_interrupt_ends_the_command_and_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {note}.part; mv {note}.part {note}; kill -INT $PPID; wait"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_process(launch("sh", "-c", script))
    finally:
        signal.signal(signal.SIGINT, before)
    pid = int(note.read_text())
    deadline_s = time.monotonic() + 300
    while is_running(pid):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether a process runs; a killed one that nobody has reaped is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def test_a_file_of_a_command_can_be_read_back(tmp_path: Path) -> None:
    measured(tmp_path, steady(1, 1))
    text = (tmp_path / "cpu-benchmark.json").read_text()
    assert from_json(text, "x").is_command
    assert json.loads(text)["measurements"][0]["workload"] == "command"
