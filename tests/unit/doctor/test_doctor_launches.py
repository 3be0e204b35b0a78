"""Launches: missing capacity, maxvCpus, launch templates that only some types use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchyard.doctor import facts_json
from batchyard.doctor.facts import Environment, Facts, Job, LaunchTemplate, Missing, Queue, Subject
from batchyard.doctor.finding import Finding, merge_places
from batchyard.doctor.judge import judge
from batchyard.doctor.userdata.commands import BLOCKING_SERVICE_START

NOW = 1_700_000_000_000
CPU = Environment(
    "cpu", strategy="BEST_FIT_PROGRESSIVE", max_vcpus=64, instance_types=("m6i.large", "m6i.xlarge")
)
QUEUE = Facts(
    Subject("queue", "q"), NOW, queue=Queue("q", environments=("cpu",)), environments=(CPU,)
)
NO_CAPACITY = (
    "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the capacity requested"
)
HEALTHY = (
    'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n'
    "--B\nContent-Type: text/cloud-config\n\n--B--\n"
)


def find(facts: Facts) -> list[Finding]:
    return list(judge(facts).findings)


def with_environment(**changes: Any) -> Facts:
    return replace(QUEUE, environments=(replace(CPU, **changes),))


@pytest.mark.parametrize(
    "environments",
    [(CPU,), (replace(CPU, failures=Missing("denied", "autoscaling:DescribeScalingActivities")),)],
)
def test_aws_says_that_it_has_no_capacity_and_is_believed_unseen(
    environments: tuple[Environment, ...],
) -> None:
    job = Job("j", "RUNNABLE", status_reason=NO_CAPACITY, since_ms=NOW - 7_200_000)
    facts = replace(QUEUE, subject=Subject("job", "j"), job=job, environments=environments)
    [finding] = find(facts)
    assert finding.id == "BY027"
    assert finding.evidence == (NO_CAPACITY, "types m6i.large, m6i.xlarge")
    assert "more instance types" in finding.remedy[0]


def test_the_same_where_the_environments_cannot_be_seen() -> None:
    job = Job("j", "RUNNABLE", status_reason=NO_CAPACITY, since_ms=NOW - 7_200_000)
    facts = replace(QUEUE, subject=Subject("job", "j"), job=job, environments=Missing("denied"))
    assert [f.id for f in find(facts)] == ["BY027"]


def test_a_queue_that_can_never_launch_anything_is_not_healthy() -> None:
    small = with_environment(max_vcpus=1)
    [finding] = find(small)
    assert (finding.id, finding.place) == ("BY012", "compute environment cpu")
    assert finding.evidence == ("maxvCpus 1; m6i.large has 2 vCPUs",)
    assert "the job" not in finding.cause
    assert find(with_environment(max_vcpus=2)) == []


def test_one_environment_that_can_launch_is_enough_and_so_are_hosts_of_ones_own() -> None:
    small = replace(CPU, name="small", max_vcpus=1)
    assert find(replace(QUEUE, environments=(small, CPU))) == []
    unmanaged = Environment("own", is_managed=False, hosts=())
    findings = find(replace(QUEUE, environments=(small, unmanaged)))
    assert "BY012" not in [f.id for f in findings]


def test_without_a_job_nothing_is_said_to_be_right_about_its_size() -> None:
    right = {kind.id for kind in judge(QUEUE).passed}
    assert "BY012" in right and not right & {"BY014", "BY015", "BY016", "BY017"}


def test_the_launch_template_of_some_types_is_examined_too() -> None:
    default = LaunchTemplate("lt-fine", user_data=HEALTHY)
    bad = LaunchTemplate(
        "lt-bad",
        user_data="#!/bin/bash\nsystemctl restart ecs\n",
        hop_limit=1,
        target_types=("m6i.large", "c6i"),
    )
    facts = with_environment(launch_template=default, overrides=(bad,))
    findings = {f.id: f for f in find(facts)}
    assert set(findings) == {"BY056", "BY101", "BY103"}
    for finding in findings.values():
        assert finding.evidence[-1] == "launch template lt-bad is for m6i.large, c6i"
    assert findings["BY101"].place == "user data of lt-bad:2"
    assert (
        find(
            with_environment(
                launch_template=default, overrides=(replace(bad, user_data=HEALTHY, hop_limit=2),)
            )
        )
        == []
    )
    # Where only some types have one.
    assert {f.id for f in find(with_environment(overrides=(bad,)))} == set(findings)
    assert facts_json.load(facts_json.dump(facts)) == facts


def test_a_launch_template_of_some_types_that_cannot_be_seen_is_said_to_be_so() -> None:
    hidden = Missing("denied", "ec2:DescribeLaunchTemplateVersions")
    facts = with_environment(
        launch_template=LaunchTemplate("lt-fine", user_data=HEALTHY), overrides=(hidden,)
    )
    unseen = {u.kind.id: u.action for u in judge(facts).unseen}
    assert unseen["BY101"] == "ec2:DescribeLaunchTemplateVersions"
    assert facts_json.load(facts_json.dump(facts)) == facts


@pytest.mark.parametrize(
    ("places", "joined"),
    [
        (["user data of lt-1:21", "user data of lt-2:32"], "user data of lt-1:21, lt-2:32"),
        (["compute environment a", "compute environment b"], "compute environments a, b"),
        (["queue a", "queue a"], "queue a"),
        (["queue a", "job b"], "queue a, job b"),
    ],
)
def test_several_places_are_named_in_words_that_are_words(places: list[str], joined: str) -> None:
    [finding] = merge_places(Finding(BLOCKING_SERVICE_START, "x", place=place) for place in places)
    assert finding.place == joined
