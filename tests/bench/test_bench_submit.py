"""`bench submit` with the emulator: two real jobs, with the CPU in the GPU's place."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_yard import SLOW
from cloud_lab import BUCKET, PATH, Lab, opened, run_of, until
from emulator_endpoint import Endpoint

pytestmark = pytest.mark.slow

SUBMIT = ("bench", "submit", "--env", "lab")
TRIAD = ("--quick", "--only", "triad", "--out", "results")
#: cannot be imported in the job on the GPU queue, until a file is there
HALF_BROKEN = """
import os
assert os.environ.get("BATCHYARD_STEP") != "gpu" or os.path.exists({mended!r}), "not on this one"
from batchyard.bench import Candidate, Workload

WORKLOAD = Workload(
    name="mine", title="Mine", sizes=(4,), inputs=lambda size, rng: {{"x": rng.random(size)}},
    reference=lambda size, arrays: arrays["x"],
    candidates=(Candidate("", "numpy", lambda kit, size: lambda x: x),),
)
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """With a GPU queue, and no GPU at all."""
    it = opened(
        tmp_path_factory.mktemp("endpoint"), "--cpus", "4", "--memory", "8GiB", "--gpus", "0"
    )
    try:
        yield it
    finally:
        it.stop()


@pytest.fixture
def lab(tmp_path: Path, endpoint: Endpoint) -> Iterator[Lab]:
    folder = tmp_path / "a yärd"
    folder.mkdir()
    it = Lab(folder, endpoint)
    yield it
    for process in it.started:
        if process.poll() is None:
            process.kill()
        process.wait()


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_both_are_measured_fetched_and_compared_and_the_stand_in_says_so(lab: Lab) -> None:
    done = lab(*SUBMIT, *TRIAD, "--cpu-type", "m6i.large")
    out = lab.folder / "results"
    both = {
        f"{stem}-benchmark.{end}" for stem in ("cpu", "stand-in") for end in ("json", "csv", "txt")
    }
    assert names_in(out) == both | {"benchmark-summary.txt", "benchmark.html"}
    assert done.stdout == (out / "benchmark-summary.txt").read_text()
    # The jobs were on spot, and so are the prices.
    assert "prices: EC2 spot" in done.stdout
    assert "Prices: EC2 spot" in (out / "benchmark.html").read_text()
    assert "stand-in: CPU standing in for a GPU" in done.stdout
    assert re.search(r"^Triad", done.stdout, re.MULTILINE), done.stdout
    assert not re.search(r"\d+(\.\d+)?x\b", done.stdout), done.stdout
    assert "m6i.large was requested, but is not what was measured" in done.stdout
    assert "CPU standing in for a GPU" in (out / "benchmark.html").read_text()
    assert "the CPU stands in for it, and is labelled so" in done.stderr
    for stem, stands_for in (("cpu", ""), ("stand-in", "gpu")):
        value = json.loads((out / f"{stem}-benchmark.json").read_text())
        assert (value["device"], value["stands_for"]) == ("cpu", stands_for)
        # The endpoint's metadata service says m6i.large, which this machine is not.
        assert value["instance_type"] is None
        assert value["ended"]
    # Again: what there was is kept.
    second = lab("bench", "submit", "--run", run_of(done), "--out", "results")
    assert second.stdout == done.stdout
    assert "an older result is kept as" in second.stderr
    assert "cpu-benchmark.json.old" in names_in(out)


def test_a_command_runs_in_both_jobs_among_its_files(lab: Lab) -> None:
    lab.write("train.py", "import os, sys; print(os.environ['BATCHYARD_DEVICE'], sys.argv[1])")
    done = lab(
        *("bench", "command", "--env", "lab", "--runs", "2", "--file", "train.py"),
        *("--out", "results", "--", "python3", "train.py", "7"),
    )
    assert "batchyard bench command: python3 train.py 7" in done.stdout
    assert re.search(r"^one run +CPU ", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^one run +stand-in ", done.stdout, re.MULTILINE), done.stdout
    assert "take" not in done.stdout
    out = lab.folder / "results"
    assert (out / "benchmark-summary.txt").read_text() == done.stdout
    for stem in ("cpu", "stand-in"):
        value = json.loads((out / f"{stem}-benchmark.json").read_text())
        assert len(value["measurements"][0]["warm_s"]) == 1 and value["ended"]
    # A command that fails on both is told with its output.
    failed = lab(
        *("bench", "command", "--env", "lab", "--runs", "2", "--out", "failed"),
        *("--", "sh", "-c", "echo boom; exit 4"),
        code=1,
    )
    assert "CPU, one run: FAILED: run 1 exited with 4: boom" in failed.stdout


def test_it_can_be_left_and_picked_up_from_another_machine(lab: Lab, tmp_path: Path) -> None:
    run = lab(*SUBMIT, *TRIAD, "--detach").stdout.strip()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = Lab(elsewhere, lab.endpoint)("bench", "submit", "--env", "lab", "--run", run)
    assert "stand-in: CPU standing in for a GPU" in done.stdout
    assert "stand-in-benchmark.json" in names_in(elsewhere / "benchmark")
    assert lab.status(run)["state"] == "SUCCEEDED"


def test_where_one_job_fails_the_others_result_is_kept_and_the_reason_told(lab: Lab) -> None:
    mended = lab.folder / "mended"
    lab.write("own/half broken.py", HALF_BROKEN.format(mended=str(mended)))
    done = lab(*SUBMIT, "--quick", "--workload", "own/half broken.py", code=1)
    assert {name for name in names_in(lab.folder / "benchmark") if name.endswith(".json")} == {
        "cpu-benchmark.json"
    }
    measured = json.loads((lab.folder / "benchmark" / "cpu-benchmark.json").read_text())[
        "measurements"
    ]
    assert [measurement["workload"] for measurement in measured] == ["mine"]
    assert "there is no result of the GPU job" in done.stderr
    assert "not on this one" in done.stderr  # the end of the job's log
    assert done.stdout == ""
    # Only what failed runs again, and is then compared with what was kept.
    mended.touch()
    retried = run_of(lab("retry", run_of(done)))
    assert [step["name"] for step in lab.status(retried)["steps"]] == ["gpu"]
    both = lab("bench", "submit", "--run", retried)
    assert re.search(r"^Mine, 4 ", both.stdout, re.MULTILINE)
    assert (
        json.loads((lab.folder / "benchmark" / "cpu-benchmark.json").read_text())["measurements"]
        == measured
    )


def test_what_is_interrupted_goes_on_and_what_is_stopped_keeps_what_it_had(lab: Lab) -> None:
    lab.write("slow.py", SLOW)
    log = lab.folder / "log"
    with log.open("wb") as file:
        process = lab.start(*SUBMIT, "--workload", "slow.py", output=file)
    until(lambda: log.read_text(), lambda text: "gpu: started" in text)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130
    message = log.read_text()
    match = re.search(
        r"`batchyard bench submit --run (benchmark-\d{8}-[0-9a-f]{6})` waits for it", message
    )
    assert match, message
    run = match[1]
    assert lab.status(run)["state"] == "RUNNING"
    # The job that measures first uploads one operation and sleeps in the next; the other waits.
    prefix = f"team/runs/{run}/workspace/results/"
    names = ("cpu/cpu-benchmark.json", "gpu/stand-in-benchmark.json")
    until(lambda: any(is_measured(lab, prefix + name) for name in names))
    lab("stop", run)
    done = lab("bench", "submit", "--run", run, code=130)
    assert re.search(
        r"there is no result of the (CPU|GPU) job, so nothing is compared;"
        r" the other result is kept",
        done.stderr,
    )
    (path,) = (lab.folder / "benchmark").glob("*.json")
    value = json.loads(path.read_text())
    assert [measurement["label"] for measurement in value["measurements"]] == ["1"]
    assert value["ended"] == ""
    assert "not finished" in path.with_suffix(".txt").read_text()


def is_measured(lab: Lab, key: str) -> bool:
    s3 = lab.patient("s3")
    try:
        body = s3.get_object(Bucket="lab-runs", Key=key)["Body"].read()
    except s3.exceptions.NoSuchKey:
        return False
    return bool(json.loads(body)["measurements"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--quick",), "needs an environment"),
        (("--env", "lub"), "there is no environment 'lub'"),
        (("--env", "cpu-only"), "has no gpu queue, and the benchmark needs one of each kind"),
        (("--env", "lab", "--on-demand"), "has no gpu_on_demand queue"),
        (
            ("--env", "lab", "--gpu-type", "g5.xlarge"),
            "queue spot has m3.medium, m6i, and no g5.xlarge",
        ),
        (("--env", "lab", "--cpu-type", "huge"), "'huge' is no instance type"),
        (("--env", "gone"), "there is no job queue nowhere"),
        (("--env", "lab", "--only", "triads"), "did you mean triad?"),
        (("--env", "lab", "--only", "copy*"), "none of the selected workloads runs on a CPU"),
        (("--env", "lab", "--workload", "none.py"), "there is no such Python file"),
        (("--env", "lab", "--sizes", "1,x"), "is no list of sizes"),
        (("--run", "nothing"), "there are no runs"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_submitted(
    lab: Lab, words: tuple[str, ...], message: str
) -> None:
    other = "\n  cpu-only: {region: us-east-1, bucket: lab-runs, queues: {cpu: spot}}\n"
    other += "  gone: {region: us-east-1, bucket: lab-runs, queues: {cpu: spot, gpu: nowhere}}\n"
    file = lab.folder / ".batchyard" / "environments.yaml"
    file.write_text(file.read_text() + other)
    names_before = lab.job_names()
    done = lab("bench", "submit", *words, code=2)
    assert message in done.stderr
    assert lab.job_names() == names_before
    assert not (lab.folder / ".batchyard" / "runs").exists()


def test_where_its_code_cannot_be_packed_no_run_is_left_behind(lab: Lab) -> None:
    pictures = lab.folder / "pictures"
    pictures.mkdir()
    (pictures / "broken.jpg").symlink_to("/proc/self/mem")  # a file whose beginning nobody can read
    names_before = lab.job_names()
    done = lab(*SUBMIT, "--quick", "--only", "images", "--images", "pictures", code=3)
    assert list((lab.folder / ".batchyard" / "runs").iterdir()) == []
    assert "could not read pictures/broken.jpg: Input/output error" in done.stderr
    assert "there are no runs" in lab("bench", "submit", "--run", "last", code=2).stderr
    assert lab.job_names() == names_before


def test_more_memory_than_the_endpoint_gives_a_job_is_not_asked_for(lab: Lab) -> None:
    run = lab(*SUBMIT, *TRIAD, "--memory", "100GiB", "--detach").stdout.strip()
    record = json.loads((lab.folder / ".batchyard" / "runs" / run / "run.json").read_text())
    assert [job["resources"]["memory_mib"] for job in record["plan"]["jobs"]] == [1024, 1024]
    assert all("--memory 1024MiB" in job["command"] for job in record["plan"]["jobs"])
    assert lab.ended(run) == "SUCCEEDED"
    # Nothing but what is part of a run is left beside it.
    assert names_in(lab.folder / ".batchyard" / "runs") == {run}
    assert (lab.folder / ".batchyard" / "runs" / run / "code.zip").exists()


def test_another_run_is_no_benchmark(lab: Lab) -> None:
    lab.write("pipeline.yaml", "name: p\nimage: i\nsteps: [{name: s, command: 'true'}]\n")
    run = lab.run()
    assert f"run {run} is no benchmark" in lab("bench", "submit", "--run", run, code=2).stderr


def test_an_image_that_lacks_what_is_needed_is_told_by_the_job(lab: Lab, tmp_path: Path) -> None:
    """A Python with neither boto3 nor pip; the end of the job's log is what the command shows."""
    bare = tmp_path / "bare"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=300
    )
    path = f"{bare / 'bin'}:{PATH}"
    it = Endpoint(tmp_path / "endpoint", "--cpus", "2", "--memory", "4GiB", environ={"PATH": path})
    try:
        it.queue("spot", it.environment("fleet"))
        it.client("s3").create_bucket(Bucket=BUCKET)
        done = Lab(lab.folder, it)(*SUBMIT, *TRIAD, code=1)
    finally:
        it.stop()
    assert (
        "this image has no boto3, and pip could not install it: put boto3 into the image"
        in done.stderr
    )
    assert "there is no result of the CPU and the GPU job, so nothing is compared\n" in done.stderr
