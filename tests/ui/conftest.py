"""A folder with runs, and a server of the page for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browser_yard import Yard, open_yard
from small_runs import begin_run, execute, small_steps
from ui_client import Page, serve


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that is over, with a failed child."""
    folder = tmp_path_factory.mktemp("ui") / ".batchyard"
    execute(begin_run(folder, *small_steps()))
    return folder


@pytest.fixture(scope="session")
def run_id(home: Path) -> str:
    return next((home / "runs").iterdir()).name


@pytest.fixture
def page(home: Path) -> Iterator[Page]:
    with serve(home) as page:
        yield page


@pytest.fixture(scope="session")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with open_yard(tmp_path_factory.mktemp("browser")) as yard:
        yield yard
