"""The Python interface on this machine: what the command refuses, it refuses, in the same words."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from batchyard import Offer, Pipeline
from batchyard.errors import InputError, OperationalError
from command_yard import Yard


@pytest.mark.parametrize(
    ("given", "said", "hint"),
    [
        ({"runner": "dcker"}, "there is no runner 'dcker'", '"process" and "docker"'),
        ({"runner": None}, "there is no runner None", '"process" and "docker"'),
        ({"cpus": 0}, "cpus is 0", "at least 1"),
        ({"cpus": -3}, "cpus is -3", "at least 1"),
        ({"cpus": 1.5}, "cpus is 1.5", "whole number"),
        ({"cpus": True}, "cpus is True", "whole number"),
        ({"gpus": -1}, "gpus is -1", "at least 0"),
        ({"gpus": "1"}, "gpus is '1'", "whole number"),
        ({"memory_mib": "2GiB"}, "memory_mib is '2GiB'", "memory_mib=2048"),
        ({"memory_mib": "lots"}, "memory_mib is 'lots'", "whole number of MiB"),
        ({"memory_mib": 0}, "memory_mib is 0", "4 to 1,073,741,824"),
        ({"memory_mib": 2**30 + 1}, "memory_mib is 1073741825", "4 to 1,073,741,824"),
    ],
)
def test_an_offer_that_nobody_can_have(given: dict[str, Any], said: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        Offer(**given)
    assert said in caught.value.message and hint in caught.value.hint


def test_the_least_and_the_most_of_an_offer_are_fine() -> None:
    assert Offer(cpus=1, memory_mib=4, gpus=0, runner="docker").cpus == 1
    assert Offer(memory_mib=2**30) != Offer()


def test_a_list_of_commands_has_no_params(yard: Yard) -> None:
    path = yard.write("squares.txt", "echo 1\n")
    with pytest.raises(
        InputError, match=r"params are for pipeline files; .*squares\.txt is a list of commands"
    ):
        Pipeline.load(path, params={"n": 3})
    assert Pipeline.load(path, params={}).name == "squares"


def test_logs_of_what_is_not_there_are_refused_at_once(yard: Yard) -> None:
    path = yard.write(
        "p.yaml",
        "name: p\nsteps:\n  - {name: squares, array: 3, commands: [echo 0, echo 1, echo 4]}\n",
    )
    run = Pipeline.load(path).run(offer=Offer(cpus=1))
    assert run.wait(300) == "SUCCEEDED"
    assert [chunk.data for chunk in run.logs("squares", 2)] == [b"4\n"]
    assert len(list(run.logs())) == 3
    for index in (3, 7, -1):
        with pytest.raises(
            InputError, match=f"step 'squares' has no child {index} in this run"
        ) as caught:
            run.logs("squares", index)
        assert caught.value.hint == "its children are 0 to 2"
    with pytest.raises(InputError, match="the run has no step 'cubes'"):
        run.logs("cubes")
    with pytest.raises(InputError, match="of which step is child 1 meant"):
        run.logs(index=1)


def test_stop_ends_an_interrupted_run_and_what_its_process_left(yard: Yard) -> None:
    path = yard.write(
        "p.yaml", "name: p\nsteps:\n  - {name: a, command: 'echo $$ > pid; sleep 300'}\n"
    )
    run = Pipeline.load(path).run()
    orphan = int(wait_for_text(yard.folder / "pid"))
    holder = json.loads((yard.folder / ".batchyard" / "runs" / run.id / "lock").read_text())
    os.kill(holder["pid"], signal.SIGKILL)
    with pytest.raises(OperationalError, match="interrupted"):
        run.wait(300)
    assert is_alive(orphan)
    run.stop(grace_s=1)
    assert run.wait(300) == "STOPPED"
    assert not is_alive(orphan)


def wait_for_text(path: Path) -> str:
    deadline = time.monotonic() + 300
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.02)
    return path.read_text()


def is_alive(pid: int) -> bool:
    """Whether the process runs. One that ended, and that nobody has waited for, does not."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_a_workspace_in_s3_is_not_for_this_machine(yard: Yard) -> None:
    path = yard.write("p.yaml", "name: p\nsteps:\n  - {name: a, command: 'true'}\n")
    with pytest.raises(InputError, match="s3://bucket/data is not on this machine"):
        Pipeline.load(path).run(offer=Offer(workspace="s3://bucket/data"))
