"""The benchmark as two jobs: their commands, shapes, instance types and packed code."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_values import results

from batchyard import plan as planning
from batchyard.batch.hosts import registered_mib
from batchyard.bench import packing, submission
from batchyard.bench.command_request import CommandRequest
from batchyard.bench.request import Request
from batchyard.bench.submission import MODEST, SMALL, TINY, Shape
from batchyard.benchmark_runs import is_loopback
from batchyard.cli.bench import run as run_command
from batchyard.cli.bench_command import command as measure_command
from batchyard.ec2_types import TYPES
from batchyard.engines.aws import render
from batchyard.environments import Environment
from batchyard.errors import InputError

EVERYTHING = Request(
    device="gpu",
    only=("conv*", "my own"),
    sizes=(1000, 5000),
    quick=True,
    files=(Path("some where/mine.py"),),
    images=Path("/pictures"),
    threads=3,
    memory_mib=2048,
    all_candidates=True,
    seed=7,
    plain_malloc=True,
    stand_in=True,
)


def understood(words: list[str]) -> dict[str, Any]:
    assert words[0] == "run"
    return run_command.make_context("run", list(words[1:])).params


def test_the_job_measures_what_was_asked_for() -> None:
    params = understood(submission.arguments(EVERYTHING))
    assert params["device"] == "gpu"
    assert params["only"] == ("conv*", "my own")
    assert params["sizes"] == (1000, 5000)
    assert (params["threads"], params["seed"], params["memory_mib"]) == (3, 7, 2048)
    assert all(params[name] for name in ("quick", "all_candidates", "plain_malloc", "stand_in"))
    # Where they lie in the job.
    assert (params["files"], params["images"]) == (("own/mine.py",), "pictures")


def test_what_was_not_asked_for_is_not_said() -> None:
    params = understood(submission.arguments(Request(device="cpu")))
    defaults = understood(["run", "--device", "cpu"])
    assert params == defaults


def test_a_command_is_measured_in_both_jobs_with_its_variables() -> None:
    request = CommandRequest(
        ("python", "train.py", "--steps", "{size}"),
        runs=3,
        sizes=(10, 20),
        files=(Path("somewhere/train.py"),),
        env={"A": "1"},
        stand_in=True,
    )
    words = submission.arguments(replace(request, device="gpu"))
    assert words[0] == "command"
    params = measure_command.make_context("command", words[1:]).params
    assert params["words"] == request.words and params["device"] == "gpu"
    assert (params["runs"], params["sizes"], params["folder"]) == (3, (10, 20), "own")
    assert params["stand_in"] and params["env"] is None
    made = submission.make_pipeline(request, "img", SMALL, {})
    assert [step.env["A"] for step in made.steps] == ["1", "1"]
    assert [step.gpus for step in made.steps] == [0, 1]
    assert submission.arguments(CommandRequest(("true",), device="cpu")) == [
        *("command", "--device", "cpu", "--runs", "5", "--", "true")
    ]


def test_the_files_of_a_command_are_sent_with_their_folders(tmp_path: Path) -> None:
    (tmp_path / "model" / "deep").mkdir(parents=True)
    (tmp_path / "model" / "deep" / "a.txt").write_text("a")
    (tmp_path / "train.py").write_text("b")
    request = CommandRequest(("true",), files=(tmp_path / "model", tmp_path / "train.py"))
    packing.require_request(request)
    packing.pack(tmp_path / "code.zip", request)
    with zipfile.ZipFile(tmp_path / "code.zip") as archive:
        names = {name for name in archive.namelist() if name.startswith("own/")}
    assert names == {"own/model/deep/a.txt", "own/train.py"}
    with pytest.raises(InputError, match="no such file or folder"):
        packing.require_request(CommandRequest(("true",), files=(tmp_path / "none",)))
    with pytest.raises(InputError, match="no command"):
        packing.require_request(CommandRequest(()))


def test_two_steps_and_only_the_gpu_step_asks_for_one() -> None:
    made = submission.make_pipeline(Request(), "img", SMALL, {"cpu": "c6i.4xlarge"})
    cpu, gpu = made.steps
    assert (cpu.name, gpu.name) == ("cpu", "gpu")
    assert (cpu.gpus, gpu.gpus) == (0, 1)
    assert (cpu.needs, gpu.needs) == ((), ())  # one that fails does not keep the other from running
    assert cpu.env == {submission.TYPE_VARIABLE: "c6i.4xlarge"}
    assert gpu.env == {submission.TYPE_VARIABLE: submission.ANY_TYPE}
    assert not submission.is_stand_in_command(gpu.command)


def test_a_stand_in_goes_to_the_gpu_queue_and_asks_for_no_gpu() -> None:
    made = submission.make_pipeline(
        Request(stand_in=True), "img", {"cpu": TINY, "gpu": TINY}, {}, gpu_queue="lab-gpu"
    )
    assert [(step.queue, step.gpus) for step in made.steps] == [(None, 0), ("lab-gpu", 0)]
    assert all(submission.is_stand_in_command(step.command) for step in made.steps)


def test_what_the_image_lacks_is_installed_in_both_jobs() -> None:
    made = submission.make_pipeline(Request(), "img", SMALL, {}, installs_extras=True)
    cpu, gpu = (step.env[submission.INSTALL_VARIABLE].split() for step in made.steps)
    assert {"scipy", "numba", "opencv-python-headless"} <= set(cpu)
    # The best that a user could write on a GPU: CuPy, and OpenCV for what the GPU cannot decode.
    assert {"cupy-cuda12x[ctk]", "opencv-python-headless"} <= set(gpu)
    # torch.compile needs a compiler on both.
    assert [step.env[submission.SYSTEM_INSTALL_VARIABLE] for step in made.steps] == ["g++", "g++"]
    plain = submission.make_pipeline(Request(), "img", SMALL, {})
    assert not any(submission.INSTALL_VARIABLE in step.env for step in plain.steps)


def test_the_jobs_can_be_said_to_aws_and_are_short_enough_to_start() -> None:
    """AWS Batch accepts longer overrides, but the job fails when it starts (facts, 5)."""
    plan = planning.make(submission.make_pipeline(EVERYTHING, "img", SMALL, {}))
    where = Environment("lab", "eu-central-1", "b", {"cpu": "lab-cpu", "gpu": "lab-gpu"})
    target = render.Target(
        where, "benchmark-20260102-0a1b2c", {"cpu": "img", "gpu": "img"}, "s3://b/w/", "me"
    )
    for part in render.render(plan, target).parts:
        assert 1000 < len(str(part.request["containerOverrides"])) < 6000


def test_the_text_that_is_sent_is_python_that_does_what_the_file_does() -> None:
    text = submission.bootstrap_source()
    compile(text, "bootstrap", "exec")
    assert '"""' not in text and "download_file" in text
    words = shlex.split(
        submission.make_pipeline(Request(), "img", SMALL, {}).steps[0].command or ""
    )
    assert words[:5] == ["exec", "python3", "-c", text, "cpu"]


def bootstrapped(call: str, path: str) -> str:
    """Run a function of the bootstrap with this PATH; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", f"from batchyard.bench import bootstrap; bootstrap.{call}"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stderr


def test_what_a_job_cannot_install_is_named_and_the_job_goes_on(tmp_path: Path) -> None:
    lines = bootstrapped("install_system(['g++'])", str(tmp_path))
    assert lines == "batchyard: g++ could not be installed; continuing without\n"
    for name, script in (("g++", "exit 1"), ("apt-get", "echo called >&2; exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    # What is there is not installed again.
    assert bootstrapped("install_system(['g++'])", str(tmp_path)) == ""
    lines = bootstrapped("install_system(['clang'])", str(tmp_path))
    assert lines == "called\nbatchyard: clang could not be installed; continuing without\n"


@pytest.mark.slow
def test_one_package_that_cannot_be_installed_does_not_keep_out_the_others(tmp_path: Path) -> None:
    call = f"install(['{tmp_path}/none-{{}}'.format(n) for n in (1, 2)])"
    lines = bootstrapped(call, os.environ["PATH"]).splitlines()
    refused = [line for line in lines if line.startswith("batchyard: ")]
    assert [line.split()[1].rpartition("/")[2] for line in refused] == ["none-1", "none-2"]


# -- types --


def test_a_job_asks_for_the_whole_of_a_type_that_is_known() -> None:
    assert submission.whole_machine_shape("g4dn.xlarge") == Shape(
        4, 15_182
    )  # AWS Batch offers 15,652 MiB of one
    assert submission.whole_machine_shape("no.such") is None


def test_of_every_type_a_job_asks_for_nearly_all_that_it_offers_and_never_for_more() -> None:
    for name, known in TYPES.items():
        shape, offered_mib = (
            submission.whole_machine_shape(name),
            registered_mib(known.memory_mib, name),
        )
        assert shape is not None and shape.cpus == known.vcpus
        # The estimate is within 2 % of most; what is kept free is no more than it has to be.
        assert 0.96 * offered_mib < shape.memory_mib < 0.98 * offered_mib


@pytest.mark.parametrize(
    ("instance_type", "memory_mib", "is_emulated", "shape"),
    [
        ("g4dn.xlarge", None, False, Shape(4, 15_182)),
        ("g4dn.xlarge", 8192, False, Shape(4, 8192)),
        ("g4dn.xlarge", 65_536, False, Shape(4, 15_182)),  # else it would wait for ever
        ("no.such", 8192, False, SMALL["gpu"]),
        ("no.such", 65_536, False, SMALL["gpu"]),
        ("", None, False, SMALL["gpu"]),
        ("", None, True, MODEST),
        ("", 512, True, Shape(1, 512)),
        ("g4dn.xlarge", 65_536, True, MODEST),
    ],
)
def test_memory_is_what_is_used_at_most_and_makes_no_job_larger(
    instance_type: str, memory_mib: int | None, is_emulated: bool, shape: Shape
) -> None:
    requested = submission.requested_shape(
        "gpu", instance_type, Request(memory_mib=memory_mib), is_emulated=is_emulated
    )
    assert requested == shape


@pytest.mark.parametrize(
    ("kind", "requested_type", "types", "message"),
    [
        ("cpu", "c6i.4xlarge", ["c6i.4xlarge"], ""),
        ("cpu", "c6i.4xlarge", ["m6i", "c6i"], ""),
        ("cpu", "c6i.4xlarge", ["optimal"], ""),
        ("cpu", "c6i.4xlarge", [], ""),
        ("cpu", "c6i.4xlarge", ["c6i.8xlarge"], "queue q has c6i.8xlarge, and no c6i.4xlarge"),
        ("cpu", "large", ["c6i"], "'large' is no instance type"),
        ("gpu", "g5.xlarge", ["g5"], ""),
        ("gpu", "p6-b200.48xlarge", ["p6-b200"], ""),
        ("gpu", "g5.xlarge", ["optimal"], "queue q has optimal, and no g5.xlarge"),
        ("gpu", "m6i.large", ["m6i"], "m6i.large has no GPU"),
        ("gpu", "", ["g6e.xlarge", "g5"], ""),
        ("gpu", "", ["optimal"], "none with a GPU, so the job would wait for ever"),
        ("cpu", "", ["g5"], ""),
    ],
)
def test_which_types_a_queue_can_serve(
    kind: str, requested_type: str, types: list[str], message: str
) -> None:
    problem = submission.type_problem(kind, requested_type, types, "q")
    assert message in problem
    assert bool(problem) == bool(message)


def test_a_queue_of_one_type_says_which() -> None:
    assert submission.only_type(["g5.xlarge", "g5.xlarge"]) == "g5.xlarge"
    assert submission.only_type(["g5.xlarge", "g6.xlarge"]) is None
    assert submission.only_type(["g5"]) is None
    assert submission.only_type([]) is None


def test_what_it_ran_on_counts_and_a_mismatch_is_said() -> None:
    ran, note = submission.add_instance_type(
        results("gpu", instance_type="g5.2xlarge"), "g5.xlarge", is_emulated=False
    )
    assert ran.instance_type == "g5.2xlarge"
    assert note == "GPU: g5.xlarge was requested, but the job ran on g5.2xlarge, which counts"
    assert submission.add_instance_type(ran, "g5.2xlarge", is_emulated=False) == (ran, "")
    assert submission.add_instance_type(ran, submission.ANY_TYPE, is_emulated=False) == (ran, "")


def test_where_the_job_could_not_tell_it_is_what_was_asked_for() -> None:
    ran, note = submission.add_instance_type(results("cpu"), "c6i.4xlarge", is_emulated=False)
    assert ran.instance_type == "c6i.4xlarge"
    assert "could not find out its instance type" in note


def test_a_stand_in_is_never_given_a_type_and_so_no_price() -> None:
    for is_emulated, measured in (
        (True, results("cpu")),
        (False, replace(results("cpu"), stands_for="gpu")),
    ):
        ran, note = submission.add_instance_type(measured, "g5.xlarge", is_emulated=is_emulated)
        assert ran.instance_type is None
        assert "g5.xlarge was requested, but is not what was measured" in note


@pytest.mark.parametrize(
    ("url", "is_it"),
    [
        ("http://127.0.0.1:4577", True),
        ("http://[::1]:4577", True),
        ("http://localhost:4577", True),
        ("https://batch.eu-central-1.amazonaws.com", False),
        ("http://10.0.0.1:4577", False),
        ("http://localhost.example.com", False),
    ],
)
def test_an_endpoint_on_this_machine_is_known_by_its_address(url: str, is_it: bool) -> None:
    assert is_loopback(url) is is_it


# -- code --


def test_all_that_the_job_needs_is_sent_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "pictures" / "deeper").mkdir(parents=True)
    (tmp_path / "pictures" / "one.jpg").write_bytes(b"x")
    mine = tmp_path / "mine.py"
    mine.write_text("WORKLOAD = 1\n")
    request = Request(files=(mine,), images=tmp_path / "pictures")
    packing.require_files(request)
    packing.pack(tmp_path / "code.zip", request)
    with zipfile.ZipFile(tmp_path / "code.zip") as archive:
        names = set(archive.namelist())
    assert {"batchyard/cli/bench.py", "batchyard/ec2_types.json", "click/__init__.py"} <= names
    assert {"own/mine.py", "pictures/one.jpg"} <= names
    assert not [name for name in names if "__pycache__" in name or "emulator" in name]
    assert (tmp_path / "code.zip").stat().st_size < 1_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "there is no such Python file"), ("def (:\n", "mine.py:1: "), ("\0", "mine.py")],
)
def test_a_file_that_cannot_be_sent_is_refused(
    tmp_path: Path, text: str | None, message: str
) -> None:
    mine = tmp_path / "mine.py"
    if text is not None:
        mine.write_text(text)
    with pytest.raises(InputError, match=message):
        packing.require_files(Request(files=(mine,)))


def test_two_files_of_one_name_and_a_folder_that_is_not_there_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text("")
    with pytest.raises(InputError, match="two files are called mine"):
        packing.require_files(Request(files=(tmp_path / "a/mine.py", tmp_path / "b/mine.py")))
    with pytest.raises(InputError, match="there is no such folder"):
        packing.require_files(Request(images=tmp_path / "pictures"))
