"""What is offered to be mended, and reports about several places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from batchyard.doctor import facts_json, show
from batchyard.doctor.facts import (
    Consumable,
    ConsumableRequest,
    Environment,
    Facts,
    Host,
    Job,
    Missing,
    Place,
    Queue,
    Subject,
    Survey,
)
from batchyard.doctor.fixes import Action, Fix, apply_fix, propose_fixes
from batchyard.doctor.judge import judge, judge_survey

NOW = 1_700_000_000_000
CPU = Environment(
    "cpu", strategy="BEST_FIT_PROGRESSIVE", max_vcpus=64, instance_types=("m6i.large",), hosts=()
)
JOB = Job("j", "RUNNABLE", since_ms=NOW - 60_000, memory_mib=512)
FACTS = Facts(Subject("job", "j"), NOW, JOB, Queue("q", environments=("cpu",)), (CPU,))


def offered(**changes: Any) -> list[tuple[Action, str]]:
    facts = replace(FACTS, **changes)
    return [(fix.action, fix.target) for fix in propose_fixes(facts, judge(facts))]


def test_a_healthy_job_is_left_alone() -> None:
    assert offered() == []


def test_what_is_disabled_can_be_enabled() -> None:
    assert offered(queue=Queue("q", state="DISABLED")) == [(Action.ENABLE_QUEUE, "q")]
    off = replace(CPU, state="DISABLED")
    assert offered(environments=(off,)) == [(Action.ENABLE_ENVIRONMENT, "cpu")]
    # One that is enabled is enough: the other may be off for a reason.
    assert offered(environments=(CPU, replace(off, name="other"))) == []


@pytest.mark.parametrize("ask", [{"gpus": 1}, {"vcpus": 4.0}, {"memory_mib": 9000}])
def test_a_job_that_can_never_start_can_be_cancelled(ask: dict[str, Any]) -> None:
    assert offered(job=replace(JOB, **ask)) == [(Action.CANCEL, "j")]


def test_who_cancels_is_told_first_that_jobs_that_depend_on_it_fail() -> None:
    facts = replace(FACTS, job=replace(JOB, gpus=1))
    [fix] = propose_fixes(facts, judge(facts))
    assert fix.question == (
        "cancel the job j? (BY017: as it is, it can never start; jobs that depend on it "
        "then fail, and stay failed)"
    )
    assert "each job that depended on it" in fix.undo
    off = replace(FACTS, queue=Queue("q", state="DISABLED"))
    assert [fix.question for fix in propose_fixes(off, judge(off))] == [
        "enable the queue q? (BY002)"
    ]


def test_an_estimate_does_not_end_a_job() -> None:
    # An m6i.large is said to register about 7,913 MiB.
    facts = replace(FACTS, job=replace(JOB, memory_mib=7950))
    assert [finding.id for finding in judge(facts).findings] == ["BY015"]
    assert propose_fixes(facts, judge(facts)) == []


def test_a_job_too_large_for_ones_own_hosts_is_cancelled_only_where_aws_calls_it_stuck() -> None:
    own = Environment("own", is_managed=False, hosts=(Host("i-1", vcpus=2, memory_mib=8000),))
    large = replace(JOB, memory_mib=9000)
    assert [
        finding.id for finding in judge(replace(FACTS, job=large, environments=(own,))).findings
    ] == ["BY015"]
    assert offered(job=large, environments=(own,)) == []  # a larger one may join
    stuck = replace(large, status_reason="MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - x")
    assert offered(job=stuck, environments=(own,)) == [(Action.CANCEL, "j")]


@pytest.mark.parametrize("status", ["STARTING", "RUNNING", "FAILED"])
def test_a_job_that_has_started_is_never_cancelled(status: str) -> None:
    assert offered(job=replace(JOB, status=status, gpus=1)) == []


def test_a_consumable_resource_that_is_used_up_comes_back_one_that_is_too_small_does_not() -> None:
    def asks(quantity: int) -> list[tuple[Action, str]]:
        job = replace(
            JOB, since_ms=NOW - 3_600_000, consumables=(ConsumableRequest("licence", quantity),)
        )
        return offered(job=job, consumables=(Consumable("licence", 2, 0),))

    assert asks(1) == []
    assert asks(3) == [(Action.CANCEL, "j")]


class Batch:
    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []

    def enable_queue(self, name: str) -> None:
        self.done.append(("queue", name))

    def enable_environment(self, name: str) -> None:
        self.done.append(("environment", name))

    def cancel(self, job_id: str, reason: str) -> None:
        self.done.append(("cancel", job_id, reason))


def test_each_act_does_what_it_says() -> None:
    batch = Batch()
    for action in Action:
        apply_fix(Fix(action, "x", "BY017", ""), batch)  # type: ignore[arg-type]
    assert batch.done == [
        ("queue", "x"),
        ("environment", "x"),
        ("cancel", "x", "cancelled by batchyard doctor: BY017"),
    ]


# -- several places ------------------------------------------------------------------------------

STEP = Job("", "SUBMITTED", name="first", memory_mib=512)
PLACE = replace(FACTS, subject=Subject("queue", "q"), job=None)


def test_every_step_is_judged_at_its_place_and_a_place_once() -> None:
    off = replace(PLACE, environments=(replace(CPU, status="INVALID", status_reason="x"),))
    gpu = replace(STEP, name="second", gpus=1)
    survey = Survey(Subject("pipeline", "p"), (Place(off, (STEP, gpu)), Place(PLACE, (STEP,))))
    report = judge_survey(survey)
    assert [(finding.id, finding.place) for finding in report.findings] == [
        ("BY005", "compute environment cpu"),
        ("BY017", "step second"),
    ]
    assert "BY005" not in {kind.id for kind in report.passed}
    assert report.fits == ("step first fits cpu: m6i.large",)
    assert show.to_lines(report)[:2] == [
        "pipeline p: 2 findings",
        "  step first fits cpu: m6i.large",
    ]


def test_a_place_that_could_not_be_looked_at_is_said_beside_findings() -> None:
    gone = Missing("AWS Batch has no job queue x here")
    nowhere = replace(PLACE, subject=Subject("queue", "x"), queue=gone, environments=gone)
    alone = judge_survey(Survey(Subject("env", "lab"), (Place(nowhere),)))
    assert (alone.exit_code, alone.blind_reason) == (2, gone.reason)
    both = judge_survey(
        Survey(Subject("env", "lab"), (Place(nowhere), Place(PLACE, (replace(STEP, gpus=1),))))
    )
    assert both.exit_code == 1
    assert f"  could not examine: {gone.reason}" in show.to_lines(both)


def test_a_survey_comes_back_from_json_as_it_was() -> None:
    survey = Survey(Subject("pipeline", "p"), (Place(PLACE, (STEP,)),))
    assert facts_json.load(facts_json.dump(survey)) == survey


def test_a_shape_is_told_where_it_fits() -> None:
    facts = replace(PLACE, job=replace(STEP, name=""))
    assert judge(facts).fits == ("the requested shape fits cpu: m6i.large",)
    assert judge(FACTS).fits == ()  # a job that is there is no question


def test_an_environment_of_types_that_do_not_exist_is_one_finding() -> None:
    nothing = replace(CPU, instance_types=("m6i.3xlarge",))
    assert [finding.id for finding in judge(replace(FACTS, environments=(nothing,))).findings] == [
        "BY030"
    ]
