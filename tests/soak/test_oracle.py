"""The judge of the soak finds each kind of fault, and nothing where kills explain what happened."""

from __future__ import annotations

import random

from oracle import (
    UNSAVED_S,
    UNSENT_S,
    BatchJob,
    CaseFacts,
    Disturbances,
    check_logs,
    find_violations,
    judge_safely,
    parse_events,
)
from random_pipelines import (
    Expectation,
    SoakCommand,
    SoakStep,
    expect,
    make_pipeline,
)

from batchyard.worker.headings import describe_succeeded

STEP = SoakStep("a", None, ((SoakCommand("a-0-0", 0.1), SoakCommand("a-0-1", 0.1)),), is_list=True)
EXPECTED = expect((STEP,), b"data")
CALM = """\
start a-0-0 run-1 job 1 10.0 -
end a-0-0 run-1 job 1 11.0 0
start a-0-1 run-1 job 1 11.1 -
end a-0-1 run-1 job 1 12.0 0
"""
#: The first attempt is cut short in its second command.
CUT_SHORT = CALM.replace("end a-0-1 run-1 job 1 12.0 0\n", "")
AGAIN = """\
start a-0-1 run-1 job 2 14.0 -
end a-0-1 run-1 job 2 15.0 0
"""


def judge(
    text: str,
    *exit_codes: int | None,
    state: str = "SUCCEEDED",
    disturbances: Disturbances | None = None,
    expectation: Expectation = EXPECTED,
    outputs: dict[str, bytes] | None = None,
) -> list[str]:
    return find_violations(
        CaseFacts(
            expectation=expectation,
            events=parse_events(text),
            state=state,
            jobs=[BatchJob("job", "run-1-a", "SUCCEEDED", exit_codes=exit_codes)],
            disturbances=disturbances or Disturbances(),
            outputs=outputs or {},
        )
    )


def test_a_calm_run_is_right() -> None:
    assert judge(CALM, 0) == []


def test_a_command_that_is_missing() -> None:
    first_only = "".join(CALM.splitlines(keepends=True)[:2])
    assert judge(first_only, 0) == ["a-0-1 never succeeded"]


def test_a_command_that_never_ends() -> None:
    assert judge(CUT_SHORT, 0) == ["a-0-1 never succeeded"]


def test_a_command_that_runs_twice_without_a_reason() -> None:
    (violation,) = judge(CALM + AGAIN, 0, 0)
    assert violation == "a-0-1 ran again, and nothing had disturbed attempt ('run-1', 'job', 1)"


def test_a_command_that_runs_again_after_a_reclaim_is_right() -> None:
    for exit_code in (None, 75, 137, 143):
        assert judge(CUT_SHORT + AGAIN, exit_code, 0) == []
        # It may also have ended before its success was recorded.
        assert judge(CALM + AGAIN, exit_code, 0) == []


def test_a_success_before_the_last_command_is_for_good() -> None:
    again = "start a-0-0 run-1 job 2 13.0 -\nend a-0-0 run-1 job 2 13.5 0\n"
    (violation,) = judge(CUT_SHORT + again + AGAIN, None, 0)
    assert violation == "a-0-0 ran again after its success in attempt ('run-1', 'job', 1)"


def test_a_killed_engine_explains_what_was_running_and_not_what_had_ended_before() -> None:
    same_attempt = AGAIN.replace("job 2", "job 1")
    during = Disturbances(engine_kills=((12.5, 13.0),))
    assert judge(CUT_SHORT + same_attempt, 0, disturbances=during) == []
    assert judge(CALM + same_attempt, 0, disturbances=during) == []
    later = CALM + same_attempt.replace("14.0", "64.0").replace("15.0", "65.0")
    long_after = Disturbances(engine_kills=((60.0, 61.0),))
    assert len(judge(later, 0, disturbances=long_after)) == 1
    # Commands go on while no engine is there, and start again under the next one.
    absent = Disturbances(engine_kills=((9.5, 13.0),))
    assert judge(CUT_SHORT + same_attempt, 0, disturbances=absent) == []
    before = Disturbances(engine_kills=((8.0, 9.0),))
    assert len(judge(CUT_SHORT + same_attempt, 0, disturbances=before)) == 1


def test_a_killed_local_engine_may_not_have_saved_the_last_successes() -> None:
    again = CALM.replace("10.0", "34.0").replace("11.0", "34.5").replace("11.1", "34.6")
    again = again.replace("12.0", "35.0")

    def judge_local(killed_s: float) -> list[str]:
        kill = Disturbances(engine_kills=((killed_s, killed_s + 1),))
        events = parse_events(CUT_SHORT + again)
        return find_violations(CaseFacts(EXPECTED, events, "SUCCEEDED", disturbances=kill))

    assert judge_local(11.2) == []
    assert len(judge_local(11.0 + UNSAVED_S + 0.1)) == 1


def test_a_stopped_run_and_a_killed_worker_explain_a_repetition() -> None:
    stopped = Disturbances(stopped_runs=frozenset(["run-1"]))
    assert judge(CUT_SHORT + AGAIN, 0, 0, disturbances=stopped) == []
    killed = Disturbances(worker_kills=frozenset([("job", 1)]))
    assert judge(CUT_SHORT + AGAIN, 0, 0, disturbances=killed) == []


def test_a_command_that_runs_twice_at_once() -> None:
    text = CALM + "twice a-0-1 run-1 job 2 11.5 -\n"
    assert "a-0-1 ran twice at once in run-1" in judge(text, None, 0)


def test_a_wrong_state() -> None:
    assert judge(CALM, 0, state="FAILED") == ["the last run is FAILED, and should be SUCCEEDED"]


def test_an_attempt_that_ends_as_no_command_does() -> None:
    assert "attempt 1 of run-1-a ended with 70: " in judge(CALM, 70)
    assert "attempt 1 of run-1-a ended with 1: " in judge(CALM, 1)


def test_a_command_that_is_killed_in_its_last_attempt() -> None:
    killed = Disturbances(worker_kills=frozenset([("job", 1)]))
    assert judge(CALM, 1, disturbances=killed) == []


def test_a_job_that_exists_twice_or_is_not_over() -> None:
    jobs = [BatchJob(job_id, "run-1-a", "SUCCEEDED", exit_codes=(0,)) for job_id in ("job", "two")]
    facts = CaseFacts(EXPECTED, parse_events(CALM), "SUCCEEDED", jobs)
    assert find_violations(facts) == ["AWS Batch has 2 jobs run-1-a"]
    facts.jobs = [BatchJob("job", "run-1-a", "RUNNING")]
    assert find_violations(facts) == ["run-1-a is RUNNING after the end"]


def test_outputs_that_are_missing_wrong_or_too_many() -> None:
    step = SoakStep("a", None, ((SoakCommand("a-0-0", 0.1),),), has_output=True)
    expectation = expect((step,), b"data")
    text = "".join(CALM.splitlines(keepends=True)[:2])
    (name,) = expectation.outputs
    assert judge(text, 0, expectation=expectation, outputs=expectation.outputs) == []
    assert judge(text, 0, expectation=expectation) == [f"{name} was not fetched"]
    (violation,) = judge(text, 0, expectation=expectation, outputs={name: b"other"})
    assert "wrong content" in violation
    extra = {**expectation.outputs, "out/b": b""}
    (violation,) = judge(text, 0, expectation=expectation, outputs=extra)
    assert violation == "out/b was fetched, and nothing should have made it"


def test_what_needs_a_failed_command_must_never_start() -> None:
    first = SoakStep("a", 2, ((SoakCommand("a-0-0", 0.1, 5),), (SoakCommand("a-1-0", 0.1),)))
    each = SoakStep(
        "b",
        2,
        ((SoakCommand("b-0-0", 0.1),), (SoakCommand("b-1-0", 0.1),)),
        needs=((first, True),),
    )
    expectation = expect((first, each), b"")
    assert expectation.state == "FAILED"
    assert expectation.succeeded == {"a-1-0", "b-1-0"}
    assert expectation.failed == {"a-0-0"}
    assert expectation.never_started == {"b-0-0"}
    text = "start b-0-0 run-1 job 1 10.0 -\nend b-0-0 run-1 job 1 11.0 0\n"
    violations = judge(text, 0, expectation=expectation, state="FAILED")
    assert "b-0-0 ran although what it needs had failed" in violations
    assert "a-0-0, which fails on purpose, never ran" in violations


def test_keep_going_decides_whether_commands_after_a_failure_run() -> None:
    commands = ((SoakCommand("a-0-0", 0.1, 5), SoakCommand("a-0-1", 0.1)),)
    stops = expect((SoakStep("a", None, commands, is_list=True),), b"")
    goes_on = expect((SoakStep("a", None, commands, is_list=True, keep_going=True),), b"")
    assert (stops.never_started, stops.succeeded) == ({"a-0-1"}, set())
    assert (goes_on.never_started, goes_on.succeeded) == (set(), {"a-0-1"})


def test_a_case_that_cannot_be_judged_is_a_violation_with_its_traceback() -> None:
    without_time = "start a-0-0 run-1 job 1  -\n"
    (violation,) = judge_safely(lambda: judge(without_time, 0))
    assert violation.startswith("the case could not be judged:\nTraceback ")
    assert "in parse_events" in violation and "ValueError: could not convert" in violation
    assert judge_safely(lambda: judge(CALM, 0)) == []


def test_a_seed_always_makes_the_same_pipelines() -> None:
    assert make_pipeline(random.Random("7/1")) == make_pipeline(random.Random("7/1"))
    assert len({make_pipeline(random.Random(f"7/{n}")) for n in range(20)}) > 10


# -- logs ------------------------------------------------------------------------------------------

ENDS = parse_events(CALM)
#: The endpoint is killed just after the end of the second command.
KILL = (12.05, 14.0)
SKIPS = f"batchyard-worker: {describe_succeeded([0, 1])}\n"


def test_logs_have_the_line_of_each_command() -> None:
    assert check_logs(EXPECTED, ENDS, "done a-0-0\ndone a-0-1\n") == []
    violation = ["logs has the lines of ['a-0-0']"]
    assert check_logs(EXPECTED, ENDS, "done a-0-0\n") == violation
    assert check_logs(EXPECTED, ENDS, "done a-0-0\n", [KILL]) == violation
    twice = "done a-0-0\ndone a-0-1\ndone a-0-1\n"
    assert check_logs(EXPECTED, ENDS, twice, [KILL]) != []


def test_logs_may_lack_the_line_that_a_killed_endpoint_had_not_written_if_they_say_so() -> None:
    output = f"done a-0-0\n{SKIPS}"
    assert check_logs(EXPECTED, ENDS, output, [KILL]) == []
    assert check_logs(EXPECTED, ENDS, output) == ["logs has the lines of ['a-0-0']"]
    # The first command had ended long before.
    assert check_logs(EXPECTED, ENDS, SKIPS, [KILL]) == ["logs has the lines of []"]
    for kill in ((12.1 + UNSENT_S, 15.0), (5.0, 11.95)):
        assert check_logs(EXPECTED, ENDS, output, [kill]) == ["logs has the lines of ['a-0-0']"]
    of_first = f"done a-0-0\nbatchyard-worker: {describe_succeeded([0])}\n"
    assert check_logs(EXPECTED, ENDS, of_first, [KILL]) == ["logs has the lines of ['a-0-0']"]


def test_the_log_of_another_child_explains_nothing() -> None:
    children = ((SoakCommand("a-0-0", 0.1),), (SoakCommand("a-1-0", 0.1),))
    expectation = expect((SoakStep("a", 2, children),), b"")
    events = parse_events(CALM.replace("a-0-1", "a-1-0"))
    says = f"batchyard-worker: {describe_succeeded([1])}\n"
    output = f"==> a:0 <==\ndone a-0-0\n==> a:1 <==\n{says}"
    assert check_logs(expectation, events, output, [KILL]) == []
    output = f"==> a:0 <==\ndone a-0-0\n{says}"
    assert check_logs(expectation, events, output, [KILL]) != []
