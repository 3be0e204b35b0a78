"""run-benchmarks.sh with the `aws` command, on the stack of gpu-batch-benchmark.yaml."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cloud_lab import PATH, until
from emulator_endpoint import AWS, Endpoint

from batchyard.cli import bench_options

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "run-benchmarks.sh"
TRIAD = ("--", "--quick", "--only", "tri*")


def deployed(folder: Path, *arguments: str) -> Endpoint:
    it = Endpoint(folder, "--cpus", "4", "--memory", "8GiB", *arguments, environ={"PATH": PATH})
    template = ("--template-file", str(ROOT / "gpu-batch-benchmark.yaml"))
    stack = ("--stack-name", "gpu-benchmark", "--capabilities", "CAPABILITY_IAM")
    done = it.aws("cloudformation", "deploy", *template, *stack, check=False)
    assert done.returncode == 0, done.stderr
    return it


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """With one GPU, which is pretended."""
    it = deployed(tmp_path_factory.mktemp("endpoint"), "--gpus", "1")
    try:
        yield it
    finally:
        it.stop()


def script(
    endpoint: Endpoint, folder: Path, *words: str, code: int, **fields: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [SCRIPT, *words],
        cwd=folder,
        env={**endpoint.environ, "PATH": PATH, **fields},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, (
        f"{words} exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
    )
    return done


def started(
    endpoint: Endpoint, folder: Path, log: Path, *words: str, path: str = PATH
) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            [SCRIPT, *words],
            cwd=folder,
            env={**endpoint.environ, "PATH": path},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )


def test_it_submits_waits_fetches_and_compares_with_the_stand_in_labelled(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    done = script(endpoint, tmp_path, "--out", "the results", *TRIAD, code=0)
    out = tmp_path / "the results"
    both = {
        f"{stem}-benchmark.{end}" for stem in ("cpu", "stand-in") for end in ("json", "csv", "txt")
    }
    assert {path.name for path in out.iterdir()} == both | {
        "benchmark-summary.txt",
        "benchmark.html",
    }
    assert done.stdout == (out / "benchmark-summary.txt").read_text()
    assert "stand-in: CPU standing in for a GPU" in done.stdout
    assert re.search(r"^Triad, ", done.stdout, re.MULTILINE)
    assert not re.search(r"\d+(\.\d+)?x\b", done.stdout)
    assert "cpu: SUCCEEDED" in done.stderr and "gpu: SUCCEEDED" in done.stderr
    assert "no GPU was measured: a CPU stood in for it" in done.stderr

    # Whoever was interrupted goes on with the ids that were said; what there was is kept.
    match = re.search(r"^submitted: cpu (\S+)\nsubmitted: gpu (\S+)$", done.stderr, re.MULTILINE)
    assert match
    again = script(
        endpoint, tmp_path, "--out", "the results", "--jobs", f"{match[1]},{match[2]}", code=0
    )
    assert again.stdout == done.stdout
    assert (out / "cpu-benchmark.json.old").read_text() == (out / "cpu-benchmark.json").read_text()


def test_a_job_that_fails_is_told_with_its_reason_and_the_end_of_its_log(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    done = script(endpoint, tmp_path, "--", "--only", "triads", code=1)
    assert "the cpu job failed: Essential container in task exited; exit code 2" in done.stderr
    assert "  | batchyard: --only triads: no such workload" in done.stderr
    assert "the gpu job failed" in done.stderr
    assert "there are not two results to compare" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("no-such-stack",), 2, "there is no stack no-such-stack here; make it with: sam deploy"),
        (("one", "two"), 2, "one stack's name is enough"),
        (("--quick",), 2, "there is no option --quick; options of the benchmark come after --"),
        (("--out",), 2, "--out needs a value"),
        (("--jobs", "one"), 2, "--jobs wants two ids with a comma between"),
        (("--jobs", "one,two"), 2, "AWS Batch does not know these jobs: one, two"),
        (
            ("--", "--workload", "mine.py"),
            2,
            "files of your own are sent by `batchyard bench submit`",
        ),
        (("--", "--device", "cpu"), 2, "--device is the jobs' own business"),
        (("--", "--only", "a b"), 2, "an option may have no spaces"),
        (("--", "--quik"), 2, "the benchmark has no option --quik; it has --quick, --only"),
        (("--", "--quick", "triad"), 2, "the benchmark has no option triad"),
        (("--", "--only"), 2, "--only needs a value"),
        (("--", "--only", "--quick"), 2, "--only needs a value"),
        (
            ("no-such-stack",),
            2,
            "batchyard deploy gpu-batch-benchmark --env NAME, and the stack is then NAME-gpu-batch",
        ),
    ],
)
def test_bad_input_is_told(
    endpoint: Endpoint, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    assert message in script(endpoint, tmp_path, *words, code=code).stderr


def test_the_options_that_it_takes_are_those_of_bench_run(tmp_path: Path) -> None:
    """All options but those that the jobs set. Options are checked before `aws` is needed."""
    ours = {"--out", "--workload", "--images"}
    options = {
        name
        for option in bench_options.measuring_options(click.command()(lambda: None)).params
        for name in option.opts
    }
    message = subprocess.run(
        [SCRIPT, "--", "--no-such"], cwd=tmp_path, capture_output=True, text=True
    ).stderr
    assert set(re.findall(r"--[a-z][a-z-]*", message)) == (options - ours) | {"--no-such"}
    usage = subprocess.run([SCRIPT, "--help"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert options - ours <= set(re.findall(r"--[a-z][a-z-]*", usage))


def test_surroundings_that_lack_something_are_told(endpoint: Endpoint, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "env"):
        (tools / name).symlink_to(shutil.which(name) or name)
    assert "there is no aws command" in script(endpoint, tmp_path, code=3, PATH=str(tools)).stderr
    gone = script(
        endpoint, tmp_path, code=3, AWS_ENDPOINT_URL="http://127.0.0.1:9", AWS_MAX_ATTEMPTS="1"
    )
    assert "the stack gpu-benchmark cannot be asked about: " in gone.stderr
    assert "usage: ./run-benchmarks.sh" in script(endpoint, tmp_path, "--help", code=0).stdout
    assert Path(AWS).exists()


def test_a_stack_of_something_else_is_told(endpoint: Endpoint, tmp_path: Path) -> None:
    template = tmp_path / "other.yaml"
    template.write_text(
        "Resources: {B: {Type: 'AWS::S3::Bucket'}}\nOutputs: {Bucket: {Value: !Ref B}}\n"
    )
    done = endpoint.aws(
        "cloudformation",
        "deploy",
        "--stack-name",
        "other",
        "--template-file",
        str(template),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (
        "the stack other has no output CpuQueue"
        in script(endpoint, tmp_path, "other", code=2).stderr
    )


def test_why_a_job_cannot_start_is_said_and_an_interrupt_leaves_the_jobs(tmp_path: Path) -> None:
    it = deployed(tmp_path / "endpoint", "--gpus", "0")
    log = tmp_path / "log"
    process = started(it, tmp_path, log, *TRIAD)
    try:
        text = until(
            log.read_text, lambda text: "gpu cannot start" in text or process.poll() is not None
        )
        assert "gpu cannot start: CAPACITY:" in text and "batchyard emulate --gpus 1" in text
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130
        match = re.search(r"the jobs go on without us; .*--jobs ([^,\s]+),(\S+)", log.read_text())
        assert match, log.read_text()
        assert it.wait(match[1])["status"] == "SUCCEEDED"
        assert it.job(match[2])["status"] == "RUNNABLE"
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        it.stop()


#: an `aws` that does something before it submits a job: end of the job's name, what to do
AWS_BUT = """\
#!/bin/sh
case " $* " in *" submit-job --job-name gpu-benchmark-%s "*) %s ;; esac
exec %s "$@"
"""


def path_with_aws(folder: Path, device: str, does: str) -> str:
    tools = folder / "bin"
    tools.mkdir()
    (tools / "aws").write_text(AWS_BUT % (device, does, AWS))
    (tools / "aws").chmod(0o755)
    return f"{tools}{os.pathsep}{PATH}"


def test_where_the_second_job_cannot_be_submitted_the_first_is_ended(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    path = path_with_aws(tmp_path, "gpu", "echo no such queue >&2; exit 254")
    done = script(endpoint, tmp_path, "--", "--quick", code=3, PATH=path)
    match = re.search(r"^submitted: cpu (\S+)$", done.stderr, re.MULTILINE)
    assert match, done.stderr
    assert "no such queue\nrun-benchmarks: the gpu job could not be submitted" in done.stderr
    assert f"the cpu job {match[1]} was ended: alone it is of no use" in done.stderr
    job = endpoint.wait(match[1])
    assert (job["status"], job["statusReason"]) == ("FAILED", "the other job was not submitted")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_an_interrupt_while_a_job_is_submitted_loses_none(
    endpoint: Endpoint, tmp_path: Path, device: str
) -> None:
    """As Ctrl-C does it: the script and `aws` are told at once."""
    ids_before = {job["jobId"] for job in jobs_of(endpoint)}
    asked = tmp_path / "asked"
    log = tmp_path / "log"
    told = tmp_path / "told"
    path = path_with_aws(
        tmp_path, device, f"touch {asked}; until test -e {told}; do sleep 0.1; done"
    )
    process = started(endpoint, tmp_path, log, "--", "--quick", "--only", "matmul", path=path)
    try:
        until(lambda: asked.exists() or process.poll() is not None)
        os.killpg(process.pid, signal.SIGINT)
        told.touch()
        assert process.wait(300) == 130, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    new = {job["jobId"]: job for job in jobs_of(endpoint) if job["jobId"] not in ids_before}
    message = log.read_text()
    if device == "cpu":
        assert len(new) == 1 and f"the cpu job {next(iter(new))} was ended" in message
        assert endpoint.wait(next(iter(new)))["statusReason"] == "the other job was not submitted"
    else:
        match = re.search(r"the jobs go on without us; .*--jobs ([^,\s]+),(\S+)", message)
        assert match and set(match.groups()) == set(new), message
        for job_id in new:
            endpoint.batch.terminate_job(jobId=job_id, reason="the test is over")


def test_an_interrupt_between_two_looks_says_how_to_go_on_and_nothing_else(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    """An `aws` that complains when it is interrupted, as one does that is still being loaded."""
    asked, log, tools = tmp_path / "asked", tmp_path / "log", tmp_path / "bin"
    tools.mkdir()
    slow = f"trap 'echo Traceback of aws >&2; exit 130' INT; touch {asked}; sleep 30 & wait"
    (tools / "aws").write_text(
        f'#!/bin/bash\ncase " $* " in *" describe-jobs "*) {slow} ;; esac\nexec \'{AWS}\' "$@"\n'
    )
    (tools / "aws").chmod(0o755)
    process = started(
        endpoint, tmp_path, log, "--jobs", "one,two", path=f"{tools}{os.pathsep}{PATH}"
    )
    try:
        until(lambda: asked.exists() or process.poll() is not None)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(300) == 130, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    again = "./run-benchmarks.sh gpu-benchmark --jobs one,two"
    assert (
        log.read_text()
        == f"the jobs go on without us; to wait for them, fetch and compare: {again}\n"
    )


def test_why_the_jobs_cannot_be_asked_about_is_told(endpoint: Endpoint, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    refuses = "echo some words >&2; echo no permission >&2; exit 254"
    (tools / "aws").write_text(
        f'#!/bin/sh\ncase " $* " in *" describe-jobs "*) {refuses} ;; esac\nexec \'{AWS}\' "$@"\n'
    )
    (tools / "aws").chmod(0o755)
    done = script(
        endpoint, tmp_path, "--jobs", "one,two", code=3, PATH=f"{tools}{os.pathsep}{PATH}"
    )
    assert (
        "the jobs cannot be asked about: no permission; go on with: ./run-benchmarks.sh"
        in done.stderr
    )


def jobs_of(endpoint: Endpoint) -> list[dict[str, str]]:
    every = [{"name": "AFTER_CREATED_AT", "values": ["0"]}]
    queues = ("gpu-benchmark-cpu", "gpu-benchmark-gpu")
    return [
        job
        for queue in queues
        for job in endpoint.batch.list_jobs(jobQueue=queue, filters=every)["jobSummaryList"]
    ]


@pytest.mark.outside
def test_it_has_no_faults_that_a_linter_knows() -> None:
    linter = shutil.which("shellcheck")
    if linter is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([linter, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert os.access(SCRIPT, os.X_OK)
