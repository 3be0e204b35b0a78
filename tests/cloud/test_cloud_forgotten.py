"""AWS Batch has forgotten the jobs of a run that nobody watched to its end.

Commands that succeeded are not executed again.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cloud_lab import BUCKET, Lab, calls, run_of, until

# `forget` gives jobs new ids: after a lost answer, the old ones would count as second jobs.
pytestmark = pytest.mark.usefixtures("calm")

DAY_S = 86_400

#: NOTE writes a file on this machine for each command that runs. GOOD fails in child 1 until the
#: file `is-good` exists.
PIPELINE = """\
name: old
image: busybox
defaults: {memory: 256MiB}
steps:
  - {name: first, array: 2, command: NOTE first}
  - name: list
    needs: [first]
    array: 2
    commands_file: list.txt
    keep_going: true
  - name: given
    array: 2
    command: NOTE given && mkdir given && touch given/$AWS_BATCH_JOB_ARRAY_INDEX && GOOD
    outputs: ["given/**"]
  - {name: plain, array: 2, command: NOTE plain && GOOD}
  - {name: after, needs: [list, given], command: NOTE after}
"""
LIST = "".join(f"NOTE list-{n}{' && GOOD' if n == 2 else ''}\n" for n in range(4))
#: what has to run again; of the two commands of the list's child 1 only one
FAILED = ("list-2.1", "given.1", "plain.1", "after.0")


class Notes:
    """What ran, and how often, whatever AWS says."""

    def __init__(self, lab: Lab) -> None:
        tools = lab.folder.parent
        self._folder = tools / "notes"
        self._folder.mkdir()
        self.good = tools / "is-good"
        told = f'mktemp "{self._folder}/$1.${{AWS_BATCH_JOB_ARRAY_INDEX:-0}}.XXXXXXXX" > /dev/null'
        test = f'test "$AWS_BATCH_JOB_ARRAY_INDEX" != 1 || test -e "{self.good}"'
        for name, line in (("NOTE", told), ("GOOD", test)):
            (tools / name).write_text(f"#!/bin/sh\n{line}\n")
            (tools / name).chmod(0o755)
        for file, text in (("pipeline.yaml", PIPELINE), ("list.txt", LIST)):
            lab.write(file, text.replace("NOTE", f"{tools}/NOTE").replace("GOOD", f"{tools}/GOOD"))

    @property
    def counts(self) -> Counter[str]:
        """`step.child` -> how often it ran."""
        return Counter(path.name.rpartition(".")[0] for path in self._folder.iterdir())


def journal_of(lab: Lab, run: str) -> Path:
    return lab.folder / ".batchyard" / "runs" / run / "submitted.jsonl"


def wait_unwatched(lab: Lab, run: str) -> None:
    """Until all jobs of the run are over, without a look of batchyard's that would be kept."""
    lines = map(json.loads, journal_of(lab, run).read_text().splitlines())
    ids = [line["id"] for line in lines if "id" in line]
    until(
        lambda: {job["status"] for job in lab.endpoint.batch.describe_jobs(jobs=ids)["jobs"]},
        lambda states: states <= {"SUCCEEDED", "FAILED"},
    )


def forget(lab: Lab, run: str, days: float = 8) -> None:
    """As it is so many days later: AWS knows none of the ids that were given for the run's jobs."""
    then = time.time() - days * DAY_S
    others: dict[str, str] = {}

    def older(line: dict[str, Any]) -> dict[str, Any]:
        if "id" in line:
            line |= {"id": others.setdefault(line["id"], str(uuid.uuid4())), "at": then}
        return line

    path = journal_of(lab, run)
    lines = [older(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    s3, key = lab.endpoint.client("s3"), f"team/runs/{run}/jobs.json"
    kept = json.loads(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    kept["jobs"] = {name: older(job) for name, job in kept["jobs"].items()}
    s3.put_object(Bucket=BUCKET, Key=key, Body=json.dumps(kept).encode())
    assert not list(path.parent.glob("final.json"))


def an_old_run(lab: Lab) -> tuple[Notes, str]:
    notes = Notes(lab)
    run = lab.run("--on-demand", "--detach")
    wait_unwatched(lab, run)
    assert (
        notes.counts["plain.0"] == notes.counts["list-0.0"] == 1 and "after.0" not in notes.counts
    )
    forget(lab, run)
    return notes, run


@pytest.mark.slow
def test_retry_runs_nothing_that_has_a_success_record(lab: Lab) -> None:
    notes, run = an_old_run(lab)
    before = notes.counts
    notes.good.touch()
    done = lab("retry", run)
    again = run_of(done)
    shown = lab.status(again)
    assert shown["state"] == "SUCCEEDED" and shown["retry_of"] == run
    # `first` has no success records, but `list` began after it, so it has succeeded. `plain` has
    # no success records, and no step needs it, so all of it runs again.
    sizes = {step["name"]: step["size"] for step in shown["steps"]}
    assert sizes == {"list": 1, "given": 1, "plain": 2, "after": 1}
    more = notes.counts - before
    assert more == Counter([*FAILED, "plain.0"])
    # One line says where that comes from.
    (line,) = [line for line in done.stderr.splitlines() if "forgotten" in line]
    assert (
        f"s3://{BUCKET}/team/runs/{run}/done/" in line and "plain" in line and "first" not in line
    )


@pytest.mark.slow
def test_status_shows_what_the_records_tell(lab: Lab) -> None:
    _, run = an_old_run(lab)
    # AWS Batch keeps ended jobs for a week; a younger job that it does not know has not ended.
    forget(lab, run, days=6)
    assert lab.status(run)["state"] == "RUNNING"
    assert "still running" in lab("retry", run, code=2).stderr
    forget(lab, run)
    before = calls(lab.endpoint)
    done = lab("status", run, "--json")
    shown = json.loads(done.stdout)
    asked = calls(lab.endpoint) - before
    assert shown["state"] == "FAILED" and not shown["interrupted"]
    assert {
        step["name"]: (step["state"], step["succeeded"], step["failed"]) for step in shown["steps"]
    } == {
        "first": ("SUCCEEDED", 2, 0),
        "list": ("FAILED", 1, 1),
        "given": ("FAILED", 1, 1),
        "plain": ("FAILED", 0, 2),
        "after": ("FAILED", 0, 1),
    }
    reasons = {step["name"]: step["reason"] for step in shown["steps"]}
    assert "1 of its 2 children" in reasons["list"] and "leaves no" in reasons["plain"]
    assert f"s3://{BUCKET}/team/runs/{run}/done/" in done.stderr
    # A list of records for each step that has them, however many children there are.
    assert sum(count for name, count in asked.items() if "ListObjects" in name) <= 2, asked
    assert "is over already: FAILED" in lab("stop", run).stdout
    assert "leaves no" in Path(lab.folder, lab("report", run).stdout.strip()).read_text()


@pytest.mark.slow
def test_another_machine_finds_the_same(lab: Lab, tmp_path: Path) -> None:
    notes, run = an_old_run(lab)
    before = notes.counts
    notes.good.touch()
    other = Lab(tmp_path / "other", lab.endpoint)
    again = other("retry", run, "--env", "lab", "--detach").stdout.strip()
    assert other.ended(again) == "SUCCEEDED"
    more = notes.counts - before
    assert more == Counter([*FAILED, "plain.0"])


@pytest.mark.slow
def test_a_run_of_which_all_has_a_record_has_nothing_to_retry(lab: Lab) -> None:
    notes = Notes(lab)
    notes.good.touch()
    lab.write(
        "pipeline.yaml",
        Path(lab.folder, "pipeline.yaml").read_text().partition("  - {name: plain")[0],
    )
    run = lab.run("--detach")
    wait_unwatched(lab, run)
    forget(lab, run)
    assert lab.status(run)["state"] == "SUCCEEDED"
    assert "everything in it succeeded" in lab("retry", run, code=2).stderr


@pytest.mark.slow
def test_a_watched_run_that_aws_has_forgotten_is_retried_by_what_was_kept(lab: Lab) -> None:
    notes = Notes(lab)
    run = lab.run("--on-demand", code=1)
    final = journal_of(lab, run).with_name("final.json")
    kept = final.read_text()
    final.unlink()
    forget(lab, run)
    lines = map(json.loads, journal_of(lab, run).read_text().splitlines())
    ids = {line["submitted"]: line["id"] for line in lines if "id" in line}
    for job in json.loads(kept)["jobs"]:
        kept = kept.replace(job["id"], ids[f"{run}-{job['step']}"])
    final.write_text(kept)
    before = notes.counts
    notes.good.touch()
    again = run_of(lab("retry", run))
    assert lab.status(again)["state"] == "SUCCEEDED"
    # Also of the plain commands only what failed.
    more = notes.counts - before
    assert more == Counter(FAILED)


@pytest.mark.slow
def test_a_retry_of_a_retry_knows_what_the_first_run_has_done(lab: Lab, tmp_path: Path) -> None:
    notes = Notes(lab)
    run = lab.run("--on-demand", code=1)
    before = notes.counts
    second = run_of(lab("retry", run, code=1))
    other = Lab(tmp_path / "other", lab.endpoint)  # which has nothing but what is in S3
    notes.good.touch()
    third = other("retry", second, "--env", "lab", "--detach").stdout.strip()
    assert other.ended(third) == "SUCCEEDED"
    more = notes.counts - before
    assert more == Counter([*FAILED, *FAILED]) - Counter(["after.0"])
