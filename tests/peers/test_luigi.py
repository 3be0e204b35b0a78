"""Luigi from PyPI with its BatchTask: each job is a process in the folder of the tasks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from peer_clients import HERE, QUEUE, Peer, said

DEFINITIONS = {
    "square": "cd {folder} && echo $((Ref::number * Ref::number)) >Ref::file",
    "total": "cd {folder} && cat square-*.txt | paste -sd+ | tee sum.txt && "
    "echo $(($(cat sum.txt))) >Ref::file",
    "broken": "echo no file today; exit 3",
}


def prepared(begin: Callable[..., Peer]) -> Peer:
    peer = begin("luigi", "process")
    shutil.copy(HERE / "workflows" / "luigi_tasks.py", peer.folder)
    for name, script in DEFINITIONS.items():
        peer.endpoint.definition(name, "bash", "-c", script.format(folder=peer.folder))
    return peer


def run_luigi(peer: Peer, task: str) -> tuple[int, str]:
    done = peer.run(
        "luigi", "--module", "luigi_tasks", task, "--local-scheduler", PYTHONPATH=str(peer.folder)
    )
    return done.returncode, said(done)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def test_tasks_and_what_they_require(begin: Callable[..., Peer]) -> None:
    peer = prepared(begin)
    code, text = run_luigi(peer, "Total")
    assert code == 0, text
    assert "This progress looks :)" in text
    assert (read(peer.folder / "square-3.txt"), read(peer.folder / "total.txt")) == ("9", "25")
    jobs = peer.jobs()
    assert [job["status"] for job in jobs] == ["SUCCEEDED"] * 3, jobs
    assert {job["jobQueue"].rpartition("/")[2] for job in jobs} == {QUEUE}


def test_a_task_that_fails(begin: Callable[..., Peer]) -> None:
    """Luigi reads the log stream of the first attempt, and shows its last lines."""
    peer = prepared(begin)
    _, text = run_luigi(peer, "Broken")
    assert "This progress looks :(" in text
    assert "failed: no file today" in text
    (job,) = peer.jobs()
    assert (job["status"], job["container"]["exitCode"]) == ("FAILED", 3)
