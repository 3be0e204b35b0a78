"""docs/conformance.md says what conformance/run.py finds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RUN = ROOT / "conformance" / "run.py"
COLUMNS = ROOT / "conformance" / "columns"
BATCHYARD = Path(sys.executable).with_name("batchyard")
#: All rules, on a busy machine.
WITHIN_S = 600


def run_script(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, RUN, *arguments], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_column(name: str) -> Any:
    return json.loads((COLUMNS / f"{name}.json").read_text(encoding="utf-8"))


def test_the_page_is_made_from_the_columns() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    assert page == run_script("page"), "python conformance/run.py page > docs/conformance.md"


@pytest.mark.parametrize("path", sorted(COLUMNS.glob("*.json")), ids=lambda path: path.stem)
def test_every_cell_that_was_read_has_a_source(path: Path) -> None:
    column = json.loads(path.read_text(encoding="utf-8"))
    assert set(column["cells"]) <= set(read_column("batchyard")["cells"])
    assert set(column["cells"].values()) <= {"yes", "no"}
    if not column["measured"]:
        assert set(column["sources"]) == set(column["cells"])


@pytest.mark.slow
def test_the_column_of_the_endpoint_is_what_it_does(tmp_path: Path) -> None:
    endpoint = subprocess.Popen(
        [BATCHYARD, "emulate", "--port", "0", "--home", tmp_path, "--cpus", "16"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert endpoint.stdout is not None
    try:
        url = endpoint.stdout.readline().strip().partition("=")[2]
        flags = ("--endpoint-url", url, "--name", "batchyard", "--wait", "120", "--threads", "8")
        cells = json.loads(run_script("check", *flags))["cells"]
    finally:
        endpoint.send_signal(signal.SIGTERM)
        endpoint.wait(300)
        endpoint.stdout.close()
    assert cells == read_column("batchyard")["cells"]
