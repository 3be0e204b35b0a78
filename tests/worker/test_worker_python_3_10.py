"""The worker on Python 3.10, the oldest it supports: its files as in an image, and real jobs.

`.ci/python310` installs Python 3.10. Without it these tests are skipped, or fail if
BATCHYARD_REQUIRE_PYTHON310=1.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from emulator_endpoint import Endpoint
from test_worker_troubles import COUNTER, reclaim, wait_for
from worker_scene import Scene, exit_codes, name_of

from batchyard.images import recipes

pytestmark = pytest.mark.outside

REPOSITORY = Path(__file__).parents[2]
PYTHON = REPOSITORY / ".cache/python310/usr/bin/python3.10"
REQUIRED = os.environ.get("BATCHYARD_REQUIRE_PYTHON310") == "1"
#: the worker's tests without those that need the emulator, or the Python of this process
UNIT_TESTS = sorted(
    path
    for path in (REPOSITORY / "tests/unit/worker").glob("test_*.py")
    if path.name not in ("test_worker_notices.py", "test_worker_python.py")
)


@pytest.fixture(scope="module")
def worker_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What goes into an image, and nothing else of ours."""
    if not PYTHON.exists():
        refuse = pytest.fail if REQUIRED else pytest.skip
        refuse("there is no Python 3.10; .ci/python310 installs it")
    folder = tmp_path_factory.mktemp("image")
    recipes.write(folder, ())
    return folder / "batchyard-worker"


@pytest.fixture
def scene(
    worker_endpoint: Endpoint, worker_files: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Scene:
    worker = ("env", f"PYTHONPATH={worker_files}", str(PYTHON), "-m", "batchyard.worker")
    return Scene(worker_endpoint, tmp_path, name_of(request.node.name), worker)


def python(worker_files: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"PYTHONPATH": str(worker_files), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [PYTHON, *arguments], env=environ, capture_output=True, text=True, timeout=300
    )


def test_it_starts_with_python_3_10(worker_files: Path) -> None:
    assert python(worker_files, "--version").stdout.startswith("Python 3.10.")
    done = python(worker_files, "-W", "error", "-m", "batchyard.worker")
    assert done.returncode == 78, done.stderr
    assert done.stderr.startswith("batchyard-worker: BATCHYARD_ORDERS is not set")


def test_its_unit_tests_pass(worker_files: Path, tmp_path: Path) -> None:
    # No cache and no conftest, which belong to the Python of this process. Profile ci: hypothesis
    # has no deadline.
    options = (
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        "--noconftest",
        "--hypothesis-profile",
        "ci",
    )
    done = python(
        worker_files,
        "-B",
        "-m",
        "pytest",
        *options,
        f"--basetemp={tmp_path}/base",
        *map(str, UNIT_TESTS),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_whole_job(scene: Scene) -> None:
    large = os.urandom(20 * 1024 * 1024)  # moves in parts, in threads
    scene.put("ws/raw/large", large)
    scene.put("ws/raw/ü small", b"small")
    said = (
        'echo "$AWS_BATCH_JOB_ARRAY_INDEX of $ARRAY_SIZE"; readlink /proc/$PPID/exe > $KEEP/python'
    )
    commands = [
        "mkdir out && cp raw/large out/",
        'mkdir -p out && cp raw/*small "out/sm all"',
        said,
    ]
    job = scene.run(scene.orders(commands, size=2, inputs=["raw/**"], outputs=["out/**"]), size=2)
    assert job["status"] == "SUCCEEDED"
    assert scene.get("ws/out/large") == large
    assert scene.get("ws/out/sm all") == b"small"
    assert scene.done() == [0, 1, 2]
    assert scene.logs(f"{job['jobId']}:0") == []
    assert scene.logs(f"{job['jobId']}:1") == ["1 of 2"]
    assert scene.kept_lines("python") == [str(PYTHON.resolve())]


def test_a_command_that_fails(scene: Scene) -> None:
    job = scene.run(scene.orders(["true", "exit 9"], attempts=2, retries=1), attempts=2)
    assert exit_codes(job) == [75, 9]
    assert scene.done() == [0]
    assert [failure["exit_code"] for failure in scene.failures()] == [9, 9]


def test_a_reclaim(scene: Scene) -> None:
    orders = scene.orders([COUNTER], attempts=2, checkpoint=["ckpt/**"], outputs=["out.txt"])
    job_id = scene.submit(orders, attempts=2)
    wait_for(scene.folder / "counting")
    reclaim(scene.endpoint, job_id)
    # The worker stays until its host is gone, and so has no exit code.
    assert exit_codes(scene.endpoint.wait(job_id)) == [None, 0]
    assert int(scene.files()["out.txt"]) > 0
    assert scene.done() == [0]


@pytest.mark.parametrize(
    ("address", "code", "said"),
    [
        ("s3://no-such-bucket/orders.json", 72, "there is no bucket no-such-bucket"),
        ("s3://yard/no/such/orders.json", 72, "could not read the orders s3://yard/no/such/"),
    ],
)
def test_what_it_cannot_do_is_a_sentence(scene: Scene, address: str, code: int, said: str) -> None:
    process = scene.direct(address)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == code
    assert stderr.startswith("batchyard-worker: ")
    assert said in stderr
    assert len(stderr.splitlines()) == 1
