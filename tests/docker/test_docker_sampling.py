"""Samples of containers, from their cgroups."""

from __future__ import annotations

import pytest

from command_yard import Yard

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

#: Uses a CPU until the engine has looked at the container.
COMMAND = "until grep -q work .batchyard/runs/$BATCHYARD_RUN/running.json 2> /dev/null; do :; done"


def test_a_container_has_the_use_of_its_cgroup(yard: Yard) -> None:
    yard.write(
        "pipeline.yaml",
        "name: p\nimage: batchyard-test:latest\nsteps:\n"
        f"  - name: work\n    command: '{COMMAND}'\n    memory: 64MiB\n",
    )
    yard("run", "pipeline.yaml", "--runner", "docker")
    (use,) = yard.json("status", "last")["uses"]
    assert use["step"] == "work"
    assert use["mean_cpus"] > 0
    assert 0 < use["peak_memory_kib"] <= 64 * 1024
    (command,) = yard.json("commands", "last")
    assert command["cpu_seconds"] > 0
    assert command["memory_kib"] == use["peak_memory_kib"]
