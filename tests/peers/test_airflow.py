"""Airflow from PyPI with its BatchOperator: each job is a process.

The operator is executed as a worker of Airflow does, without Airflow's scheduler and database.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

from peer_clients import HERE, Peer, said


def run_operator(peer: Peer, *command: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(HERE / "workflows" / "airflow_task.py", peer.folder)
    peer.endpoint.definition("airflow", "true")
    home = str(peer.folder / "airflow")
    return peer.run("python", "airflow_task.py", *command, AIRFLOW_HOME=home)


def test_a_task(begin: Callable[..., Peer]) -> None:
    peer = begin("airflow", "process")
    done = run_operator(peer, "echo", "from airflow")
    assert done.returncode == 0, said(done)
    (job,) = peer.jobs()
    assert f"finished {job['jobId']}" in done.stdout
    assert (job["status"], job["jobName"]) == ("SUCCEEDED", "airflow")
    assert peer.endpoint.output(job["jobId"]) == ["from airflow"]


def test_a_task_that_fails(begin: Callable[..., Peer]) -> None:
    peer = begin("airflow", "process")
    done = run_operator(peer, "sh", "-c", "exit 3")
    (job,) = peer.jobs()
    assert done.returncode == 1, said(done)
    assert f"AWS Batch job ({job['jobId']}) failed" in done.stdout + done.stderr
    assert [attempt["container"]["exitCode"] for attempt in job["attempts"]] == [3, 3]
