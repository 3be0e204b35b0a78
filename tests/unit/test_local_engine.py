"""The engine of this machine, as a caller in the same process sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from pathlib import Path
from batchyard import Offer, Pipeline, engines, operations
from batchyard import plan as planning
from batchyard.cli.progress import Silent
from batchyard.engines.base import RunRequest

model = Pipeline.load("pipeline.yaml").model
request = RunRequest(planning.make(model), model, Path("home").absolute(), Offer(workspace="data"))
record, _ = operations.begin(engines.load("local"), request)
run = record.open()
run.execute(Silent())
print(run.overview().state, Path.cwd())
"""


def test_a_run_in_this_process_leaves_the_current_folder_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "pipeline.yaml").write_text("name: p\nsteps:\n  - {name: a, command: pwd > pwd}\n")
    # In a process of its own: the engine makes its process the parent of all orphans.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["SUCCEEDED", str(tmp_path)]
    assert (tmp_path / "data" / "pwd").read_text().strip() == str(tmp_path / "data")
