"""Metaflow from PyPI with `--with batch`: each task is a job, and each job a container."""

from __future__ import annotations

import json
from collections.abc import Callable

from peer_clients import Peer, said
from peer_workflows import prepare_metaflow, run_metaflow

#: asks Metaflow's own client API for what a run has left
LOOK = """\
import json
from metaflow import Run, namespace
namespace(None)
run = Run("PeersFlow/" + open("run_id").read())
tasks = [task for step in run for task in step]
print(json.dumps({
    "successful": run.successful,
    "squares": run.data.squares,
    "total": run.data.total,
    "attempts": {
        task.pathspec.split("/")[2]: task.metadata_dict.get("aws-batch-job-attempt")
        for task in tasks
    },
    "output": [task.stdout for task in run["square"]],
}))
"""


def prepared(begin: Callable[..., Peer], image: str) -> tuple[Peer, dict[str, str]]:
    peer = begin("metaflow", "docker")
    return peer, prepare_metaflow(peer, image)


def test_a_flow(begin: Callable[..., Peer], image: str) -> None:
    peer, settings = prepared(begin, image)
    done = run_metaflow(peer, settings, "--max-workers", "3")
    assert done.returncode == 0, said(done)
    looked = peer.run("python", "-c", LOOK, **settings)
    assert looked.returncode == 0, said(looked)
    found = json.loads(looked.stdout)
    assert (found["successful"], found["squares"], found["total"]) == (True, [0, 1, 4], 5)
    told = [
        line
        for output in found["output"]
        for line in output.splitlines()
        if line.startswith("the square")
    ]
    assert sorted(told) == ["the square is 0", "the square is 1", "the square is 4"]
    # Metaflow's tasks note the attempt that Batch tells them.
    assert found["attempts"] == dict.fromkeys(("start", "square", "join", "end"), "1")

    jobs = peer.jobs()
    assert [job["status"] for job in jobs] == ["SUCCEEDED"] * 6, jobs
    steps = sorted(job["parameters"]["metaflow.step_name"] for job in jobs)
    assert steps == ["end", "join", "square", "square", "square", "start"]
    assert {job["container"]["image"] for job in jobs} == {image}
    assert peer.counted.by_operation["submitjob"] == 6


def test_a_task_that_fails(begin: Callable[..., Peer], image: str) -> None:
    peer, settings = prepared(begin, image)
    # One after the other: Metaflow stops those that run beside the one that fails.
    done = run_metaflow(peer, settings, "--broken", "1", "--max-workers", "1")
    assert done.returncode == 1, said(done)
    assert "ValueError: no square of 1 today" in done.stdout + done.stderr, said(done)

    ended = {(job["parameters"]["metaflow.step_name"], job["status"]): job for job in peer.jobs()}
    assert sorted(ended) == [("square", "FAILED"), ("square", "SUCCEEDED"), ("start", "SUCCEEDED")]
    assert ended["square", "FAILED"]["container"]["exitCode"] == 1
