"""Examples as tasks of an ECS cluster: the same results as here, through S3."""

from __future__ import annotations

import csv
import importlib.util
import io
import shutil
from pathlib import Path

import pytest
from cloud_lab import BUCKET, ENVIRONMENTS, TASKS, Lab, add_cluster, run_of
from emulator_endpoint import Endpoint

EXAMPLE = Path(__file__).parents[2] / "examples" / "recommendations"
RATINGS = f"s3://{BUCKET}/data/ratings.csv"


@pytest.fixture(scope="module", autouse=True)
def cluster(endpoint: Endpoint) -> None:
    add_cluster(endpoint)


def make_ratings() -> bytes:
    """Return a set of ratings: users like every third item."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("user", "item", "rating"))
    for user in range(60):
        for item in range(user % 2, 30, 2):
            writer.writerow((f"u{user}", f"i{item}", 5 if (user + item) % 3 == 0 else 2))
    return text.getvalue().encode()


@pytest.mark.slow
def test_the_recommendations_are_the_same_here_and_on_ecs(lab: Lab) -> None:
    pytest.importorskip("numpy", reason="the example needs batchyard[examples]")
    has_ranks = importlib.util.find_spec("mpi4py") and shutil.which("mpirun")
    settings = [f"--set=ratings={RATINGS}", f"--set=ranks={2 if has_ranks else 1}"]
    settings += ["--set=epochs=10", "--no-gpu"]
    lab.write(".batchyard/environments.yaml", ENVIRONMENTS + TASKS)
    lab.patient("s3").put_object(Bucket=BUCKET, Key="data/ratings.csv", Body=make_ratings())
    for name in ("here", "there"):
        ignored = shutil.ignore_patterns("work", "__pycache__", ".batchyard")
        shutil.copytree(EXAMPLE, lab.folder / name, ignore=ignored)
    lab("run", "here/pipeline.yaml", *settings)
    shutil.copytree(lab.folder / ".batchyard", lab.folder / "there" / ".batchyard")
    done = lab("run", "there/pipeline.yaml", "--engine", "ecs", "--env", "tasks", *settings)
    assert "SUCCEEDED" in done.stdout
    run = run_of(done)
    predictions = Path("work") / "predictions.csv"
    here, there = (lab.folder / name / predictions for name in ("here", "there"))
    assert here.read_bytes() == there.read_bytes()
    stored = lab.patient("s3").get_object(
        Bucket=BUCKET, Key=f"team/runs/{run}/workspace/{predictions}"
    )
    assert stored["Body"].read() == here.read_bytes()
    log = lab("logs", run, "train", "--home", "there/.batchyard").stdout
    assert "epoch 10 of 10" in log
    # Again, with other settings: the tasks get them as they are started.
    again = lab(
        *("run", "there/pipeline.yaml", "--engine", "ecs", "--env", "tasks"),
        *settings,
        "--set=epochs=3",
    )
    log = lab("logs", run_of(again), "train", "--home", "there/.batchyard").stdout
    assert "epoch 3 of 3" in log
