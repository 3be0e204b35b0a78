"""examples/gpu-notebook as a service on a spot fleet of the endpoint, as a container."""

from __future__ import annotations

import shutil
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulator_endpoint import Endpoint, until
from site_of_stacks import Site

import recipe_image

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpu-notebook"

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture
def site(tmp_path: Path, docker_engine: None) -> Iterator[Site]:
    flags = ("--runner", "docker", "--cpus", "8", "--memory", "32GiB", "--gpus", "1")
    endpoint = Endpoint(tmp_path / "endpoint", *flags)
    try:
        yield Site(endpoint, tmp_path)
    finally:
        endpoint.stop()


def test_the_notebook_stays_up(site: Site) -> None:
    shutil.copytree(EXAMPLE, site.folder / "example")
    image = recipe_image.build_with_wheels(
        site.folder / "example",
        "cuda",
        "batchyard-example-notebook:test",
        ["jupyterlab==4.*", "numpy>=1.26"],
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Containers have the network of this machine, where 8888 may be in use.
    text = (EXAMPLE / "service.yaml").read_text().replace("8888", str(port))
    text = text.replace("gpu-notebook:1", image)
    command = f"command: jupyter lab --ip 127.0.0.1 --port {port} --no-browser --allow-root\n"
    (site.folder / "service.yaml").write_text(text + command)
    site.about("deploy", "network", "storage", "registry", "iam", "--yes")
    site.about("deploy", "spotfleet", "--yes", "--set", "Nodes=1")
    up = site("service", "up", "service.yaml", "--env", site.env, "--yes")
    assert up.stdout == "notebook is up\n"

    def read_log() -> str:
        return site("service", "logs", "notebook", "--env", site.env).stdout

    log = until(read_log, lambda log: f":{port}/lab?token=" in log)
    token = log.rpartition("?token=")[2].split()[0]
    address = f"http://127.0.0.1:{port}/api/contents?token={token}"
    with urllib.request.urlopen(address) as answer:
        assert b'"gputest.ipynb"' in answer.read()
    down = site("service", "down", "notebook", "--env", site.env, "--yes")
    assert down.stdout == "notebook: deleted\n"
