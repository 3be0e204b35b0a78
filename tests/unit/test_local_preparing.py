"""Keys about containers in a run on this machine: refused, applied, or without effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchyard import plan as planning
from batchyard.engines.base import Offer, PreparedRun, RunRequest
from batchyard.engines.local import preparing
from batchyard.errors import InputError
from batchyard.pipeline import Mount, Pipeline, Step


def prepare(folder: Path, runner: str, *steps: Step) -> PreparedRun:
    pipeline = Pipeline("p", steps, workspace=str(folder))
    offer = Offer(cpus=1, memory_mib=4096, runner=runner)
    return preparing.prepare(RunRequest(planning.make(pipeline), pipeline, folder, offer))


def test_mounts_that_this_machine_does_not_have_are_refused(tmp_path: Path) -> None:
    mounts = (
        Mount("/data", efs="fs-0123abcd"),
        Mount("/shared", host=str(tmp_path / "missing")),
        Mount("/there", host=str(tmp_path)),
        Mount("/scratch", instance_store=True),
    )
    with pytest.raises(InputError) as error:
        prepare(tmp_path, "docker", Step("a", command="x", image="i", mounts=mounts))
    assert error.value.message.splitlines() == [
        "this machine cannot mount what the pipeline asks for:",
        "  step 'a': /data is the EFS file system fs-0123abcd, which only hosts on AWS can mount",
        f"  step 'a': /shared is the folder {tmp_path}/missing of the host, and this machine has "
        "none",
    ]


def test_keys_of_containers_have_no_effect_on_processes(tmp_path: Path) -> None:
    steps = (
        Step("a", command="x", user="nobody", mounts=(Mount("/data", efs="fs-0123abcd"),)),
        Step("b", command="x", user="nobody"),
        Step("c", command="x"),
    )
    assert prepare(tmp_path, "process", *steps).notes == (
        "`mounts` of a has no effect on processes: --runner docker applies it",
        "`user` of a, b has no effect on processes: --runner docker applies it",
    )
