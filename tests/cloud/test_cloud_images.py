"""Images from the shipped recipes: built on a Debian base, pushed to a registry, used by runs."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cloud_lab import ENVIRONMENTS, Lab, opened, run_of, until
from emulator_endpoint import Endpoint

import recipe_image
from recipe_image import CACHE, IMAGE, make_or_skip

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.usefixtures("docker_engine")]

PIPELINE = f"""\
name: boxed
image: {IMAGE}
defaults: {{memory: 256MiB}}
steps:
  - name: cut
    array: 3
    commands_file: cut.txt
    inputs: ["raw/*"]
    outputs: ["cut/*"]
  - name: glue
    needs: [cut]
    command: cat cut/* > glued.txt; head -1 /etc/os-release
    inputs: ["cut/*"]
    outputs: [glued.txt]
"""


def make_registry() -> None:
    """Debian's docker-registry, unpacked and not installed: nothing of it is left in the system."""
    where = CACHE / "docker-registry"
    if where.exists():
        return
    unfinished = where.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    # apt as a user of its own may not write to a folder of root's, and says so.
    command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", "docker-registry"]
    subprocess.run(command, cwd=unfinished, check=True, capture_output=True)
    (package,) = unfinished.glob("*.deb")
    subprocess.run(["dpkg", "-x", str(package), str(unfinished)], check=True, capture_output=True)
    unfinished.rename(where)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, docker_engine: None) -> str:
    folder = tmp_path_factory.mktemp("image")
    name = recipe_image.build(folder)
    assert "NVIDIA_VISIBLE_DEVICES" not in (folder / "Dockerfile.cpu").read_text()
    return name


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Endpoint]:
    """An endpoint that runs jobs as containers."""
    it = opened(
        tmp_path_factory.mktemp("boxes"), "--runner", "docker", "--cpus", "4", "--memory", "4GiB"
    )
    try:
        yield it
    finally:
        it.stop(signal.SIGTERM)


@pytest.fixture
def box_lab(tmp_path: Path, boxes: Endpoint) -> Lab:
    lab = Lab(tmp_path / "lab", boxes)
    lab.write("pipeline.yaml", PIPELINE)
    lab.write(
        "cut.txt", "".join(f"mkdir -p cut; tr a-z A-Z < raw/{n} > cut/{n}\n" for n in range(6))
    )
    for n in range(6):
        lab.write(f"raw/{n}", f"line {n}\n")
    return lab


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Its address: on this machine, plain HTTP, which Docker takes for 127.0.0.1."""
    make_or_skip("Debian's docker-registry", make_registry)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    file = tmp_path / "registry.yml"
    storage = {"filesystem": {"rootdirectory": str(tmp_path / "registry")}}
    file.write_text(json.dumps({"version": "0.1", "storage": storage, "http": {"addr": address}}))
    command = [CACHE / "docker-registry/usr/bin/docker-registry", "serve", str(file)]
    with (tmp_path / "registry.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}/v2/") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    until(answers)
    yield address
    process.terminate()
    process.wait()


def test_a_pipeline_with_a_list_in_containers_of_the_recipe(box_lab: Lab) -> None:
    done = box_lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")
    assert "SUCCEEDED" in done.stdout
    assert (box_lab.folder / "glued.txt").read_text() == "".join(f"LINE {n}\n" for n in range(6))
    # Not this machine's.
    assert "trixie" in box_lab("logs", "last", "glue").stdout


def test_an_image_that_is_missing_is_said(box_lab: Lab) -> None:
    box_lab.write("pipeline.yaml", PIPELINE.replace(IMAGE, "127.0.0.1:1/nobodys:image"))
    done = box_lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lab", code=1)
    assert "CannotPullContainerError" in done.stdout and "batchyard image push" in done.stdout


def test_a_run_is_pinned_to_the_digest_that_was_pushed(box_lab: Lab, registry: str) -> None:
    assert "has no repository" in box_lab("image", "push", IMAGE, "--env", "lab", code=2).stderr
    repository = f"{registry}/team/recon"
    box_lab.write(".batchyard/environments.yaml", f"{ENVIRONMENTS}    repository: {repository}\n")
    pinned = box_lab("image", "push", IMAGE, "--env", "lab").stdout.strip()
    assert pinned.startswith(f"{repository}@sha256:")
    known = json.loads((box_lab.folder / ".batchyard/images.json").read_text())
    assert known == {"lab": {IMAGE: pinned}}
    try:
        done = box_lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")
        run = run_of(done)
        jobs = box_lab.patient("batch").list_jobs(
            jobQueue="spot", filters=[{"name": "JOB_NAME", "values": [f"{run}-glue"]}]
        )
        assert (
            box_lab.endpoint.job(jobs["jobSummaryList"][0]["jobId"])["container"]["image"] == pinned
        )
    finally:
        for name in (pinned, f"{repository}:batchyard-recipe-test"):
            subprocess.run(["docker", "image", "rm", name], capture_output=True)
    said = box_lab("image", "push", "nobodys:image", "--env", "lab", code=2).stderr
    assert "no image nobodys:image here" in said and "image build --tag nobodys:image" in said
