"""Recorded facts: each sick case has its finding and no other, and its healthy twin has none.

A case changes one of the healthy facts, so that the file shows what makes the difference: `sick`
has the finding, `healthy`, as similar as possible, has none. A change is applied as a JSON merge
patch; a list is changed by index.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from batchyard.doctor import facts_json, masking
from batchyard.doctor.finding import Report
from batchyard.doctor.host.facts import HostFacts
from batchyard.doctor.host.judge import judge as judge_host
from batchyard.doctor.judge import judge
from batchyard.doctor.kinds import BY_ID

HERE = Path(__file__).parent
HEALTHY = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((HERE / "healthy").glob("*.json"))
}
CASES = {
    f"{path.stem}-{number}": (path.stem, case)
    for path in sorted((HERE / "cases").glob("BY*.json"))
    for number, case in enumerate(json.loads(path.read_text(encoding="utf-8")))
}


def apply_change(value: Any, change: Any) -> Any:
    if isinstance(change, dict) and "missing" in change:
        return change
    if isinstance(change, dict) and isinstance(value, list):
        items = list(value)
        for index, inner in change.items():
            items[int(index)] = apply_change(items[int(index)], inner)
        return items
    if isinstance(change, dict) and isinstance(value, dict) and "missing" not in value:
        return {
            **value,
            **{key: apply_change(value.get(key), inner) for key, inner in change.items()},
        }
    return copy.deepcopy(change)


def report_of(base: str, change: Any) -> Report:
    whole = json.loads(HEALTHY[base])
    whole["facts"] = apply_change(whole["facts"], change)
    return judge_text(json.dumps(whole))


def judge_text(text: str) -> Report:
    facts = facts_json.load(text)
    return judge_host(facts) if isinstance(facts, HostFacts) else judge(facts)


@pytest.mark.parametrize("name", CASES)
def test_a_sick_case_gives_its_finding_and_no_other(name: str) -> None:
    kind, case = CASES[name]
    report = report_of(case["base"], case["sick"])
    assert {finding.id for finding in report.findings} == {kind, *case.get("also", ())}
    assert report.exit_code == 1


@pytest.mark.parametrize("name", [name for name, (_, case) in CASES.items() if "says" in case])
def test_its_evidence_says_what_was_seen(name: str) -> None:
    kind, case = CASES[name]
    report = report_of(case["base"], case["sick"])
    evidence = "\n".join(
        text for finding in report.findings if finding.id == kind for text in finding.evidence
    )
    assert case["says"] in evidence


@pytest.mark.parametrize("name", CASES)
def test_its_healthy_twin_gives_none(name: str) -> None:
    _, case = CASES[name]
    report = report_of(case["base"], case["healthy"])
    assert [f"{finding.id} {finding.cause} {finding.evidence}" for finding in report.findings] == []


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_facts_give_no_finding_and_exit_0(name: str) -> None:
    report = judge_text(HEALTHY[name])
    assert [finding.id for finding in report.findings] == []
    assert report.exit_code == 0


@pytest.mark.parametrize("name", CASES)
def test_every_finding_says_what_to_do_and_where_to_read_on(name: str) -> None:
    _, case = CASES[name]
    for finding in report_of(case["base"], case["sick"]).findings:
        assert finding.cause and "\n" not in finding.cause and not finding.cause.endswith(".")
        assert finding.evidence and finding.remedy
        assert finding.page == f"docs/findings/{finding.id}.md"


#: a word in a remedy that the reader has to replace
PLACEHOLDER = re.compile(
    r"(?<![\w/$.-])(?:NAME|ROLE|QUEUE|IMAGE|ID|JOB_ID|ARN|KEY|TABLE|NAT|VPC|REGION|FILE|TYPE|PROGRAM|TAG"
    r"|PACKAGE)(?![\w=-])"
)
#: what is a command, and no sentence
COMMAND = re.compile(r"(?:or: )?(?:aws|docker|batchyard|python3|systemctl|journalctl|for|use) ")
#: values that no fact has: the key of a volume, an environment for an empty queue, a type that is
#: large enough where the list has none, the program behind an exit code
UNKNOWN = {("BY043", "KEY"), ("BY004", "NAME"), ("BY072", "PROGRAM")} | {
    (kind, "TYPE") for kind in ("BY014", "BY015", "BY016", "BY017")
}


@pytest.mark.parametrize("name", CASES)
def test_a_remedy_can_be_pasted(name: str) -> None:
    _, case = CASES[name]
    for finding in report_of(case["base"], case["sick"]).findings:
        for line in finding.remedy:
            command = line.partition("   # ")[0]
            if not COMMAND.match(command):
                continue
            left = {(finding.id, word) for word in PLACEHOLDER.findall(command)}
            assert left <= UNKNOWN, line


def test_a_remedy_names_the_program_that_docker_did_not_find() -> None:
    _, case = CASES["BY072-1"]
    (finding,) = report_of(case["base"], case["sick"]).findings
    assert "command -v trian.py" in finding.remedy[0]
    assert "IMAGE" not in finding.remedy[0]


@pytest.mark.parametrize("name", HEALTHY)
def test_facts_come_back_from_json_as_they_were(name: str) -> None:
    facts = facts_json.load(HEALTHY[name])
    assert facts_json.load(facts_json.dump(facts)) == facts


@pytest.mark.parametrize("name", CASES)
def test_masked_facts_are_judged_the_same(name: str) -> None:
    _, case = CASES[name]
    whole = json.loads(HEALTHY[case["base"]])
    whole["facts"] = apply_change(whole["facts"], case["sick"])
    masked = facts_json.dump(masking.mask_facts(facts_json.load(json.dumps(whole))))
    report = judge_text(json.dumps(whole))
    assert [f.id for f in judge_text(masked).findings] == [f.id for f in report.findings]


def test_every_kind_of_job_queue_environment_and_host_has_a_case() -> None:
    kinds = {kind for kind in BY_ID if not "BY100" < kind < "BY300"}
    assert {kind for kind, _ in CASES.values()} == kinds
