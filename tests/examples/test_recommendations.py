"""examples/recommendations: the network, the command, the ranks of mpirun, and the image."""

from __future__ import annotations

import csv
import importlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from example_tools import require

import recipe_image
from command_yard import Yard

np = pytest.importorskip("numpy")

EXAMPLE = Path(__file__).parents[2] / "examples" / "recommendations"
MODULES = "settings ratings autoencoder ranks training recommending".split()
SMALL = {"USERS": "120", "ITEMS": "60", "EPOCHS": "15", "BATCH": "50", "HIDDEN": "8"}
#: The README states it: parameters of the models of 1, 2 and 4 ranks differ by less.
TOLERANCE = 1e-9


@pytest.fixture(scope="module")
def recommend() -> Iterator[SimpleNamespace]:
    """The example's modules; the import path and sys.modules are as before afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        yield SimpleNamespace(
            **{name: importlib.import_module(f"recommend.{name}") for name in MODULES}
        )
    for name in [name for name in sys.modules if name.partition(".")[0] == "recommend"]:
        del sys.modules[name]


def copy_example(folder: Path) -> Path:
    ignored = shutil.ignore_patterns("work", "__pycache__", ".batchyard")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=ignored)
    for path in (folder, *folder.rglob("*")):
        # The sources may be read-only.
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return folder


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a command whose `python` is the interpreter under test."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "BATCHYARD_DEVICE": "cpu"}
    return {**os.environ, "PATH": path, **one_thread, **SMALL, **variables}


def run(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=300,
    )


# -- the network ----------------------------------------------------------------------------------


def test_gradients_are_the_slopes_of_the_error(recommend: SimpleNamespace) -> None:
    random = np.random.default_rng(1)
    network = recommend.autoencoder
    parameters = network.initialise(items=6, hidden=3, seed=2)
    is_rated = (random.random((5, 6)) < 0.6).astype(float)
    centred = random.normal(size=(5, 6)) * is_rated
    slopes, square = network.gradients(np, parameters, centred, is_rated)
    assert square > 0

    def half_square() -> float:
        error = (network.predict(np, parameters, centred) - centred) * is_rated
        return float((error * error).sum() / 2)

    for name in network.PARAMETERS:
        place = tuple(0 for _ in parameters[name].shape)
        before = parameters[name][place]
        ends = []
        for step in (1e-6, -1e-6):
            parameters[name][place] = before + step
            ends.append(half_square())
        parameters[name][place] = before
        assert slopes[name][place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4)


def test_gradients_of_two_groups_of_users_add_up(recommend: SimpleNamespace) -> None:
    random = np.random.default_rng(1)
    network = recommend.autoencoder
    parameters = network.initialise(items=6, hidden=3, seed=2)
    is_rated = np.ones((7, 6))
    centred = random.normal(size=(7, 6))
    all_of_them, _ = network.gradients(np, parameters, centred, is_rated)
    parts = [
        network.gradients(np, parameters, centred[part], is_rated[part])[0]
        for part in (slice(0, 4), slice(4, 7))
    ]
    for name in network.PARAMETERS:
        assert np.allclose(parts[0][name] + parts[1][name], all_of_them[name], atol=1e-12)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"EPOCHS": "many"}, "EPOCHS is 'many'; it must be a number"),
        ({"HIDDEN": "0"}, "HIDDEN is 0; it must be at least 1"),
    ],
)
def test_settings_that_cannot_be_used(
    recommend: SimpleNamespace, variables: dict[str, str], words: str
) -> None:
    with pytest.raises(recommend.settings.InputError, match=words):
        recommend.settings.Settings.read(variables)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("user,item,rating\na,b,5\na,c,good\n", "line 3 of"),
        ("a,b,5\n", "line 2 of|has no ratings"),
        ("user,item,rating\n", "has no ratings"),
    ],
)
def test_ratings_that_cannot_be_read(
    recommend: SimpleNamespace, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text(text)
    with pytest.raises(recommend.settings.InputError, match=words):
        recommend.ratings.read(path)


# -- the command ----------------------------------------------------------------------------------


def test_the_pipeline_predicts_better_than_the_means(yard: Yard) -> None:
    copy_example(yard.folder)
    # The ratings of the file are as many as the settings say, and train.sh needs no mpirun for one.
    variables = environment(USERS="300", ITEMS="100", BATCH="50")
    del variables["BATCHYARD_DEVICE"]
    done = yard("run", "pipeline.yaml", "--no-gpu", "--set", "epochs=30", env=variables)
    assert "SUCCEEDED" in done.stdout
    metrics = json.loads((yard.folder / "work" / "metrics.json").read_text())
    assert metrics["error"] < 0.8 * metrics["error_of_item_means"] < metrics["error_of_mean"]
    with (yard.folder / "work" / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 300 * 10
    with (yard.folder / "work" / "ratings.csv").open(newline="") as file:
        known = {(row["user"], row["item"]) for row in csv.DictReader(file)}
    # What a user has rated is not recommended.
    assert not known & {(row["user"], row["item"]) for row in rows}


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    folder = copy_example(tmp_path / "example")
    for command, variables, words in (
        ("train", {}, "work/ratings.csv does not exist; run `python -m recommend ratings` first"),
        ("ratings", {"RATINGS": "nowhere.csv"}, "No such file"),
        ("ratings", {"RATINGS": "s3://bucket"}, "an address in S3 is s3://BUCKET/KEY"),
        ("ratings", {"SEED": "x"}, "SEED is 'x'"),
    ):
        done = run(folder, "python", "-m", "recommend", command, **variables)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr


def train(folder: Path, ranks: int, **variables: str) -> tuple[str, dict[str, Any]]:
    done = run(folder, "sh", "train.sh", RANKS=str(ranks), **variables)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "work" / "model.npz") as arrays:
        return done.stdout, dict(arrays)


@pytest.mark.outside
def test_1_2_and_4_ranks_give_the_same_model(tmp_path: Path) -> None:
    require(modules=("mpi4py",), programs=("mpirun",))
    folder = copy_example(tmp_path / "example")
    assert run(folder, "python", "-m", "recommend", "ratings").returncode == 0
    _, alone = train(folder, 1)
    for ranks in (2, 4):
        output, model = train(folder, ranks)
        for rank in range(ranks):
            assert f"rank {rank} of {ranks} computes on CPU" in output
        assert output.count("epoch 15 of 15") == 1
        for name, value in alone.items():
            assert np.abs(model[name] - value).max() < TOLERANCE, name


@pytest.mark.outside
def test_a_rank_that_fails_ends_the_training(tmp_path: Path) -> None:
    require(modules=("mpi4py",), programs=("mpirun",))
    folder = copy_example(tmp_path / "example")
    done = run(folder, "sh", "train.sh", RANKS="2")
    assert done.returncode == 2
    assert "work/ratings.csv does not exist" in done.stderr


def test_a_rank_for_each_gpu_of_the_task(tmp_path: Path) -> None:
    """train.sh with a mpirun that prints its arguments."""
    folder = copy_example(tmp_path / "example")
    (folder / "mpirun").write_text('#!/bin/sh\necho "mpirun $*"\n')
    (folder / "mpirun").chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    for devices, device, ranks, expected in (
        ("0,1,2,3", "gpu", "", "mpirun -np 4 "),
        ("GPU-aa,GPU-bb", "", "", "mpirun -np 2 "),
        ("0", "gpu", "", "alone"),
        ("void", "", "", "alone"),
        ("0,1", "cpu", "", "alone"),
        ("0,1", "cpu", "3", "mpirun -np 3 "),
    ):
        variables = {"NVIDIA_VISIBLE_DEVICES": devices, "BATCHYARD_DEVICE": device, "RANKS": ranks}
        done = run(folder, "sh", "train.sh", PATH=path, TRAIN_COMMAND="echo alone", **variables)
        assert done.stdout.startswith(expected), (devices, done.stdout, done.stderr)


@pytest.mark.docker
def test_the_image_trains_with_two_ranks(tmp_path: Path, docker_engine: None) -> None:
    """The image without CUDA: on a Debian base, with Debian's Open MPI and mpi4py."""
    folder = copy_example(tmp_path / "example")
    image = recipe_image.build_kind(
        folder, "cuda", "batchyard-example-recommendations:test", GPU_PACKAGES=""
    )
    variables = [
        word for pair in {**SMALL, "RANKS": "2"}.items() for word in ("-e", "=".join(pair))
    ]
    output = recipe_image.docker("run", "--rm", "--network", "host", *variables, image)
    assert "rank 1 of 2 computes on CPU" in output
    assert json.loads(output.splitlines()[-1])["error"] < 1.2
    assert "batchyard-worker" in recipe_image.docker(
        *("run", "--rm", "--network", "host", image, "sh", "-c", "command -v batchyard-worker")
    )
