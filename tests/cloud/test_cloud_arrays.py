"""Arrays as AWS does not have them: of one child, in pairs beyond twenty, compacted with gaps."""

from __future__ import annotations

import re

import pytest
from cloud_lab import Lab, calls

HEAD = "name: rows\nimage: busybox\ndefaults: {memory: 256MiB}\nsteps:\n"


@pytest.mark.slow
def test_an_array_of_one_is_told_its_index(lab: Lab) -> None:
    say = 'echo "idx $AWS_BATCH_JOB_ARRAY_INDEX of $AWS_BATCH_JOB_ARRAY_SIZE $ARRAY_SIZE"'
    steps = (
        f"  - {{name: listed, array: 1, commands: ['{say}']}}\n"
        f"  - {{name: plain, array: 1, command: '{say}'}}\n"
    )
    lab.write("pipeline.yaml", HEAD + steps)
    run = lab.run()
    for step in ("listed", "plain"):
        assert "idx 0 of 1 1" in lab("logs", run, step).stdout


@pytest.mark.slow
def test_child_by_child_on_more_than_aws_takes(lab: Lab) -> None:
    """Of 21 pairs one child fails: its own follower does, the other one runs."""
    names = [f"s{number}" for number in range(21)]
    fails = 'test "$AWS_BATCH_JOB_ARRAY_INDEX" = 0'
    steps = "".join(
        f"  - {{name: {name}, array: 2, command: '{fails if name == 's7' else 'true'}'}}\n"
        for name in names
    )
    needs = ", ".join(f"{{step: {name}, each: true}}" for name in names)
    steps += "  - {name: first, command: 'true'}\n"
    steps += f"  - {{name: last, array: 2, needs: [first, {needs}], command: echo it ran}}\n"
    lab.write("pipeline.yaml", HEAD + steps)
    run = lab.run(code=1)
    (last,) = [step for step in lab.status(run)["steps"] if step["name"] == "last"]
    assert (last["succeeded"], last["failed"]) == (1, 1), last
    assert lab("logs", run, "last").stdout.count("it ran") == 1


@pytest.mark.slow
def test_a_retry_of_scattered_children_of_a_plain_command(lab: Lab, calm: None) -> None:
    """Every second of 300 children fails; the command is long.

    One submission has no room for the indices of all failed children beside so long a command.
    """
    command = (
        "n=$AWS_BATCH_JOB_ARRAY_INDEX; "
        'if test -e "$YARD/now" || test $((n % 2)) = 0; then echo "n $n"'
    )
    lab.write(
        "pipeline.yaml",
        f"{HEAD}  - name: a\n    array: 300\n    env: {{YARD: '{lab.folder}'}}\n"
        f"    command: '{command}; else exit 1; fi; : {'x' * 6_450}'\n",
    )
    run = lab.run(code=1)
    lab.write("now", "")
    before = calls(lab.endpoint)["batch:SubmitJob"]
    lab("retry", run)
    assert 1 < calls(lab.endpoint)["batch:SubmitJob"] - before <= 4
    said = lab("logs", "last", "a").stdout
    assert sorted(int(number) for number in re.findall(r"n (\d+)$", said, re.MULTILINE)) == list(
        range(1, 300, 2)
    )
