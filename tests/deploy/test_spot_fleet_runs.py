"""A pipeline as tasks on the instances of the stack `spotfleet`, by the real command."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulator_endpoint import Endpoint, until
from site_of_stacks import Site

import prestarted

pytestmark = pytest.mark.slow
PIPELINE = """\
name: fleet
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: parts, commands_file: parts.txt, array: 2, inputs: [letters.txt], outputs: ["parts/**"]}
  - {name: train, needs: [parts], gpus: 1, retries: 1, retry_on: [spot], inputs: ["parts/**"],
     outputs: [model.txt],
     command: 'touch "FOLDER/begun-$AWS_BATCH_JOB_ATTEMPT";
       while [ ! -e "FOLDER/go" ]; do sleep 0.1; done; cat parts/* > model.txt'}
"""
PARTS = "".join(f"mkdir -p parts && echo $(cat letters.txt) {n} > parts/{n}\n" for n in range(4))


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    flags = ("--cpus", "8", "--memory", "32GiB", "--gpus", "2")
    it = Endpoint(tmp_path_factory.mktemp("endpoint"), *flags)
    try:
        yield it
    finally:
        it.stop()


def test_a_run_on_a_spot_fleet_waits_for_nodes_and_survives_an_interruption(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    site = Site(endpoint, tmp_path)
    site.about("deploy", "network", "storage", "registry", "iam", "spotfleet", "--yes")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.replace("FOLDER", str(tmp_path)))
    (tmp_path / "parts.txt").write_text(PARTS)
    (tmp_path / "letters.txt").write_text("abc")
    ecs, cluster = endpoint.client("ecs"), f"{site.env}-spotfleet"
    command = [sys.executable, "-m", "batchyard", "run", "pipeline.yaml", "--engine", "ecs"]
    with (
        (tmp_path / "stderr").open("w") as file,
        prestarted.Popen(
            [*command, "--env", site.env],
            cwd=tmp_path,
            env=endpoint.environ,
            stdout=file,
            stderr=file,
        ) as process,
    ):
        # A fleet without nodes is waited for.
        until((tmp_path / "stderr").read_text, lambda text: "has no room now" in text)
        site.about("deploy", "spotfleet", "--yes", "--set", "Nodes=1")
        until(lambda: (tmp_path / "begun-1").exists(), bool)
        (arn,) = ecs.list_tasks(cluster=cluster)["taskArns"]
        site("emulate", "reclaim", arn, "--notice", "0")
        until(lambda: (tmp_path / "begun-2").exists(), bool)
        (tmp_path / "go").touch()
        assert process.wait() == 0, (tmp_path / "stderr").read_text()
    assert (tmp_path / "model.txt").read_text() == "".join(f"abc {n}\n" for n in range(4))
    status = json.loads(site("status", "last", "--json").stdout)
    assert [step["attempts"] for step in status["steps"]] == [2, 2]
    # The bill knows both instances.
    bill = json.loads(site("cost", "last", "--json").stdout)
    assert len(bill["hosts"]) == 2, (bill, site("cost", "last").stdout)
