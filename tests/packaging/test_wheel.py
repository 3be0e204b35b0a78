"""The wheel of a clean clone, alone in a fresh environment: nothing of the repository is missing.

The build and the installation take packages from PyPI.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

HAS_LIBRARY = (
    "from batchyard.embedded.short_runs import find_library; print(find_library() is not None)"
)

pytestmark = [pytest.mark.slow, pytest.mark.outside]


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel and the libraries that the wheel names, nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    clone, environment = folder / "clone", folder / "environment"
    execute(folder, "git", "clone", "--quiet", "--no-local", str(REPOSITORY), str(clone))
    execute(folder, sys.executable, "-m", "venv", str(environment))
    pip = (str(environment / "bin/pip"), "--quiet", "--disable-pip-version-check")
    execute(folder, *pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(clone))
    (wheel,) = folder.glob("*.whl")
    execute(folder, *pip, "install", str(wheel))
    return environment / "bin"


def execute(folder: Path, *command: str) -> str:
    """Run a command to its successful end, with nothing of this process's Python around it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{command} exited {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def test_init_and_run(bin_folder: Path, tmp_path: Path) -> None:
    batchyard = str(bin_folder / "batchyard")
    execute(tmp_path, batchyard, "init", "first")
    execute(tmp_path / "first", batchyard, "run", "pipeline.yaml")
    status = json.loads(execute(tmp_path / "first", batchyard, "status", "last", "--json"))
    assert status["state"] == "SUCCEEDED"


def test_what_is_imported_is_the_wheel(bin_folder: Path, tmp_path: Path) -> None:
    python = str(bin_folder / "python")
    imported = execute(tmp_path, python, "-c", "import batchyard; print(batchyard.__file__)")
    assert Path(imported.strip()).is_relative_to(bin_folder.parent)


@pytest.mark.parametrize(
    "command",
    [
        ("template", "batch"),
        ("template", "gpu-batch-benchmark"),
        ("doctor", "explain", "BY101"),
        ("completion", "bash"),
    ],
    ids=" ".join,
)
def test_files_that_commands_read_are_in_the_wheel(
    command: tuple[str, ...], bin_folder: Path, tmp_path: Path
) -> None:
    assert execute(tmp_path, str(bin_folder / "batchyard"), *command)


def test_the_page_of_runs_is_in_the_wheel(bin_folder: Path, tmp_path: Path) -> None:
    script = "from batchyard.ui.page_files import load_page_files; print(*load_page_files())"
    listed = execute(tmp_path, str(bin_folder / "python"), "-c", script).split()
    page = REPOSITORY / "src/batchyard/ui/page"
    assert sorted(listed) == sorted(
        [f"/page/{path.name}" for path in page.iterdir()] + ["/page/report.css"]
    )


def test_the_worker_starts_and_says_what_it_needs(bin_folder: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(bin_folder / "batchyard-worker")],
        cwd=tmp_path,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 78 and "BATCHYARD_ORDERS" in done.stderr


def test_the_wheel_has_compiled_code_for_this_platform(bin_folder: Path, tmp_path: Path) -> None:
    (wheel,) = bin_folder.parents[1].glob("*.whl")
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl") or platform.machine() != "x86_64"
    assert execute(tmp_path, str(bin_folder / "python"), "-c", HAS_LIBRARY) == "True\n"


def test_without_a_compiler_the_wheel_is_for_every_platform(
    bin_folder: Path, tmp_path: Path
) -> None:
    """It has no compiled code, and runs commands all the same."""
    clone, environment = bin_folder.parents[1] / "clone", tmp_path / "environment"
    execute(tmp_path, sys.executable, "-m", "venv", str(environment))
    pip = (str(environment / "bin/pip"), "--quiet", "--disable-pip-version-check")
    no_compiler = ("env", "CC=no-compiler-has-this-name")
    build = ("wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(clone))
    execute(tmp_path, *no_compiler, *pip, *build)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    execute(tmp_path, *pip, "install", str(wheel))
    python = str(environment / "bin/python")
    assert execute(tmp_path, python, "-c", HAS_LIBRARY) == "False\n"
    commands = tmp_path / "commands.txt"
    commands.write_text("".join(f"echo line {number}\n" for number in range(100)))
    batchyard = str(environment / "bin/batchyard")
    execute(tmp_path, batchyard, "run", str(commands))
    lines = execute(tmp_path, batchyard, "logs", "last").splitlines()
    assert sorted(line for line in lines if line.startswith("line")) == sorted(
        commands.read_text().replace("echo ", "").splitlines()
    )
