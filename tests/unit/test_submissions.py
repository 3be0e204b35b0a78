"""Jobs as plain JSON: read, checked all at once, put in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchyard import submissions
from batchyard.aws.batch import shape_problems
from batchyard.errors import BadInput

QUEUES: dict[str, Any] = {
    "q": {"state": "ENABLED"},
    "fair": {"state": "ENABLED", "schedulingPolicyArn": "arn:..."},
    "off": {"state": "DISABLED"},
}


def job(name: str, *needs: str, **more: Any) -> dict[str, Any]:
    found = {"jobName": name, "jobQueue": "q", "jobDefinition": "d", **more}
    return {**found, "dependsOn": [{"jobId": need} for need in needs]} if needs else found


def test_one_request_or_several() -> None:
    assert submissions.parse(json.dumps(job("a")), "f") == [job("a")]
    assert submissions.parse(json.dumps({"jobs": [job("a"), job("b")]}), "f") == [job("a"), job("b")]
    assert submissions.parse(json.dumps([job("a")]), "f") == [job("a")]


@pytest.mark.parametrize("text", ["", "{", "3", "[]", '{"jobs": []}', '{"jobs": [1]}', '{"jobs": "x"}'])
def test_what_is_no_file_of_jobs_is_said(text: str) -> None:
    with pytest.raises(BadInput, match=r"jobs\.json"):
        submissions.parse(text, "jobs.json")


@pytest.mark.parametrize(
    ("text", "where"), [("name: squares\nsteps: []\n", "squares.yaml"), ('{"name": "x", "steps": []}', "squares.json")]
)
def test_a_pipeline_is_told_where_it_belongs(text: str, where: str) -> None:
    with pytest.raises(BadInput, match=f"{where} looks like a pipeline") as caught:
        submissions.parse(text, where)
    assert f"`batchyard run {where} --engine aws" in caught.value.hint
    # What is in a file counts, not its name.
    assert submissions.parse(json.dumps(job("a")), "job.yaml") == [job("a")]


def test_each_comes_after_what_it_names() -> None:
    requests = [job("c", "${a}", "${b}"), job("b", "${a}"), job("a")]
    assert [one["jobName"] for one in submissions.ordered(requests, "f")] == ["a", "b", "c"]
    assert submissions.resolved(requests[0], {"a": "1", "b": "2"})["dependsOn"] == [{"jobId": "1"}, {"jobId": "2"}]
    child = job("c", "${a}:3")
    assert submissions.resolved(child, {"a": "1"})["dependsOn"] == [{"jobId": "1:3"}]
    assert submissions.resolved(job("a"), {}) == job("a")


def test_names_that_are_not_there_and_circles() -> None:
    with pytest.raises(BadInput, match=r"\$\{x\}.*no job of the file"):
        submissions.ordered([job("a", "${x}")], "f")
    with pytest.raises(BadInput, match="circle"):
        submissions.ordered([job("a", "${b}"), job("b", "${a}")], "f")
    with pytest.raises(BadInput, match="two jobs are named"):
        submissions.ordered([job("a"), job("a"), job("b", "${a}")], "f")


def test_everything_that_is_wrong_is_said_at_once() -> None:
    requests = [
        job("bad name"),
        job("b", jobQueue="nowhere"),
        job("c", jobQueue="off"),
        job("d", jobQueue="fair"),
        job("e", shareIdentifier="x"),
        job("f", arrayProperties={"size": 1}),
        job("g", *["id"] * 21),
        job("h", parameters={"p": "x" * 31_000}),
        {"jobName": "i", "jobQueue": "q"},
        job("j", arrayProperties={"size": "many"}),
        job("k", jobDefinition="other:3"),
    ]
    found = submissions.problems(requests, QUEUES, shape_problems, {"d"})
    for number, part in enumerate(
        (
            "jobName must be",
            "no job queue nowhere",
            "is DISABLED",
            "add shareIdentifier",
            "leave shareIdentifier out",
            "2 to 10,000",
            "21 dependencies",
            "bytes",
            "jobDefinition",
            "arrayProperties.size",
            "no job definition other:3",
        )
    ):
        assert any(f"jobs[{number}]" in one and part in one for one in found), (number, part, found)
    # What is no number is said once.
    assert not any("jobs[9]" in one and "2 to 10,000" in one for one in found)


def test_a_right_file_has_no_problems() -> None:
    requests = [job("a", arrayProperties={"size": 10}), job("b", "${a}", jobQueue="fair", shareIdentifier="x")]
    assert submissions.problems(requests, QUEUES, shape_problems, {"d"}) == []
