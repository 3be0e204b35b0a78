"""Dynamic steps on AWS Batch: children claim the commands of a list, block by block."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from cloud_lab import BUCKET, Lab, run_of

HEAD = "name: rows\nimage: busybox\ndefaults: {memory: 256MiB}\nsteps:\n"
#: prints what the engine knows about a run: counts, commands, and the output of one command
LOOK = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from batchyard import runs
run = runs.load(Path(".batchyard"), sys.argv[1]).open()
jobs = [asdict(job)["commands"] for job in run.overview().jobs]
commands = list(run.commands("a"))
failed = [command.number for command in run.commands("a", failed_only=True)]
outputs = {c.number: run.log_reader.read_command(c).decode() for c in commands[:3]}
print(json.dumps([jobs, [asdict(c) for c in commands], failed, outputs]))
"""


def look(lab: Lab, run: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", LOOK, run],
        cwd=lab.folder,
        env={**lab.environ, "AWS_ACCESS_KEY_ID": lab.endpoint.observer_key},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_list(lab: Lab, commands: list[str], **keys: object) -> None:
    lab.write("commands.txt", "".join(f"{command}\n" for command in commands))
    step = {"name": "a", "commands_file": "commands.txt", "share_out": "dynamic", **keys}
    step["env"] = {"YARD": str(lab.folder)}
    after = {"name": "b", "needs": ["a"], "command": f"touch '{lab.folder}/after'"}
    lab.write("pipeline.yaml", f"{HEAD}  - {json.dumps(step)}\n  - {json.dumps(after)}\n")


def ran(lab: Lab) -> list[int]:
    return sorted(map(int, (lab.folder / "ran").read_text().split()))


@pytest.mark.slow
def test_each_command_has_a_record_and_a_retry_runs_those_that_failed(lab: Lab) -> None:
    commands = [f'echo {number} >> "$YARD/ran"; echo said {number}' for number in range(30)]
    for number in (4, 21):
        commands[number] += '; test -e "$YARD/now"'
    write_list(lab, commands, array=3, retries=1)
    run = lab.run(code=1)
    assert ran(lab) == sorted([*range(30), 4, 21])
    assert not (lab.folder / "after").exists()
    (counts, _), records, failed, outputs = look(lab, run)
    assert counts == {"total": 30, "succeeded": 28, "failed": 2}
    assert [record["number"] for record in records] == list(range(30))
    assert failed == [4, 21]
    assert {record["number"]: record["attempts"] for record in records if record["exit_code"]} == {
        4: 2,
        21: 2,
    }
    assert outputs == {str(number): f"said {number}\n" for number in range(3)}
    lab.write("now", "")
    done = lab("retry", run)
    assert ran(lab) == sorted([*range(30), 4, 21, 4, 21])
    assert (lab.folder / "after").exists()
    (counts, _), records, failed, _ = look(lab, run_of(done))
    assert counts == {"total": 2, "succeeded": 2, "failed": 0}
    assert [record["number"] for record in records] == [4, 21]
    (lab.folder / "ran").unlink()
    alone = lab("retry", run, "--command", "a:7")
    assert ran(lab) == [7]
    (counts, *_), records, _, _ = look(lab, run_of(alone))
    assert counts == {"total": 1, "succeeded": 1, "failed": 0}
    assert "handed out at run time" in lab("retry", run, "a:1", code=2).stderr


@pytest.mark.slow
def test_a_list_without_array_gets_children_and_a_note(lab: Lab, calm: None) -> None:
    write_list(lab, [f'echo {number} >> "$YARD/ran"' for number in range(4)])
    done = lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lab")
    assert "a: 4 children share its list; `array: N` sets another number" in done.stderr
    assert ran(lab) == [0, 1, 2, 3]
    keys = lab.patient("s3").list_objects_v2(Bucket=BUCKET, Prefix=f"team/runs/{run_of(done)}/")
    names = [entry["Key"].split("/", 3)[3] for entry in keys["Contents"]]
    assert [name for name in names if name.startswith("blocks/")] == [
        f"blocks/a/{number:07d}" for number in range(4)
    ]
    assert not any(name.startswith("done/") for name in names)


def test_what_a_dynamic_step_cannot_have_is_refused(lab: Lab) -> None:
    write_list(lab, ["cat in.txt"], inputs=["${command.1}"], checkpoint=["state/**"])
    done = lab("run", "pipeline.yaml", "--engine", "aws", "--env", "lab", code=None)
    assert done.returncode
    assert "${command.1} names a command, and with `share_out: dynamic`" in done.stderr
    assert "`share_out: dynamic` cannot have a checkpoint" in done.stderr


@pytest.mark.slow
def test_a_retry_of_a_step_with_weights_runs_what_failed(lab: Lab) -> None:
    commands = [f'echo {number} >> "$YARD/ran"; echo said {number}' for number in range(12)]
    commands[5] += '; test -e "$YARD/now"'
    write_list(lab, commands, array=2, weight=[(number * 7) % 12 for number in range(12)])
    run = lab.run(code=1)
    assert ran(lab) == list(range(12))
    (counts, _), records, failed, _ = look(lab, run)
    assert counts == {"total": 12, "succeeded": 11, "failed": 1}
    assert ([record["number"] for record in records], failed) == (list(range(12)), [5])
    lab.write("now", "")
    done = lab("retry", run)
    assert ran(lab) == sorted([*range(12), 5])
    (counts, _), records, _, _ = look(lab, run_of(done))
    assert counts == {"total": 1, "succeeded": 1, "failed": 0}
    assert [record["number"] for record in records] == [5]
