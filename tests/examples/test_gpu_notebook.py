"""examples/gpu-notebook: the notebook to its end, without a GPU and with a pretended one."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from example_tools import require

import recipe_image
from batchyard.services import reading

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpu-notebook"
PRODUCT = "CPU: correct, relative error"

#: Executes the notebook and prints what its cells print.
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read("gputest.ipynb", as_version=4)
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        sys.stdout.write(output.get("text", ""))
"""
#: nvidia-smi of a machine with one GPU, which is always half busy.
DRIVER = """#!/bin/sh
case "$1" in
  *name*) echo "0, Tesla T4, 15360, 550.54.15" ;;
  *) echo "50, 1024" ;;
esac
"""
#: CuPy that computes with NumPy.
CUPY = """
from types import SimpleNamespace
import numpy
__version__ = "0"
asarray = asnumpy = numpy.asarray
cuda = SimpleNamespace(
    runtime=SimpleNamespace(getDeviceCount=lambda: 1),
    Device=lambda: SimpleNamespace(synchronize=lambda: None),
)
"""


def execute(folder: Path, path: str) -> str:
    """Return what the notebook prints; the test fails if a cell does."""
    require(modules=("nbclient", "ipykernel"))
    shutil.copy(EXAMPLE / "gputest.ipynb", folder)
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE],
        cwd=folder,
        env={
            "PATH": path,
            "HOME": str(folder),
            "PYTHONPATH": str(folder),
            # A driver of this machine is not asked.
            "MATRIX_SIZE": "256",
            "LOAD_SECONDS": "1.2",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.outside
def test_without_a_gpu_it_says_so_and_runs_to_its_end(tmp_path: Path) -> None:
    output = execute(tmp_path, str(Path(sys.executable).parent))
    assert "No GPU: there is no nvidia-smi here, so the container has no GPU." in output
    assert PRODUCT in output
    assert re.search(r"RESULT: no GPU was used \(.+\)\. All was computed on the CPU\.", output)


@pytest.mark.outside
def test_with_a_driver_that_finds_no_gpu(tmp_path: Path) -> None:
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho No devices were found\nexit 6\n")
    driver.chmod(0o755)
    output = execute(tmp_path, f"{tmp_path}:{os.environ['PATH']}")
    assert "No GPU: nvidia-smi finds no GPU: No devices were found." in output
    assert "RESULT: no GPU was used" in output


@pytest.mark.outside
def test_with_a_gpu_it_compares_and_watches(tmp_path: Path) -> None:
    driver = tmp_path / "nvidia-smi"
    driver.write_text(DRIVER)
    driver.chmod(0o755)
    (tmp_path / "cupy.py").write_text(CUPY)
    output = execute(tmp_path, f"{tmp_path}:{os.environ['PATH']}")
    assert "GPU 0: Tesla T4, 15360 MiB, driver 550.54.15" in output
    assert "CPU and GPU agree: relative difference" in output
    assert re.search(r"\n +0\.\d +50 +1024\n", output)
    assert "RESULT: the GPU is used, up to 50 %, and computes as the CPU does." in output


@pytest.mark.docker
def test_the_image_serves_the_notebook(tmp_path: Path, docker_engine: None) -> None:
    """The image without CUDA: on a Debian base, with the wheels that this machine's pip finds."""
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder)
    image = recipe_image.build_with_wheels(
        folder, "cuda", "batchyard-example-notebook:test", ["jupyterlab==4.*", "numpy>=1.26"]
    )
    execute_it = "jupyter nbconvert --to notebook --execute gputest.ipynb --stdout"
    shell = f"{execute_it} | grep -o 'RESULT: no GPU was used (there is no nvidia-smi'"
    output = recipe_image.docker(
        *("run", "--rm", "--network", "host", "-e", "MATRIX_SIZE=256", image, "sh", "-c", shell)
    )
    assert output == "RESULT: no GPU was used (there is no nvidia-smi\n"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    container = recipe_image.docker(
        *("run", "--detach", "--network", "host", "-e", "JUPYTER_TOKEN=secret", image),
        *("jupyter", "lab", "--ip", "127.0.0.1", f"--port={port}", "--no-browser", "--allow-root"),
    ).strip()
    try:
        assert '"gputest.ipynb"' in fetch(f"http://127.0.0.1:{port}/api/contents?token=secret")
    finally:
        recipe_image.docker("rm", "--force", container)


def fetch(address: str) -> str:
    """Return what a server answers that has just been started."""
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(address) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < deadline, f"{address} does not answer"
            time.sleep(0.5)


def test_the_service_file_is_valid() -> None:
    service = reading.load(EXAMPLE / "service.yaml")
    assert (service.name, service.gpus, service.ports) == ("notebook", 1, (8888,))
    assert service.health is not None and "8888/api" in service.health.command
