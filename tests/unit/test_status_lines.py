"""The text of a run's status, from values."""

from __future__ import annotations

import click
import pytest

from batchyard.batch.jobs import JobState, Resources, StatusReason
from batchyard.cli.render import headline, status_lines
from batchyard.cli.render_use import use_lines
from batchyard.engines.aws.preparing import tag_text
from batchyard.engines.base import AttemptDetail, JobDetail, RunState
from batchyard.sampling.samples import SampledUse
from batchyard.status import Failure, RunStatus, StepStatus, StepUseStatus, step_status


def run(state: RunState, ended_ms: int | None = None, *lines: str) -> RunStatus:
    step = StepStatus("a", JobState.FAILED, 1, 0, 1, 0, 0, 1, "", 0, ended_ms)
    attempt = AttemptDetail("id", "a", 0, 1, JobState.FAILED, 1, "", "", 0, 1000, 0.0, 0.0, 0)
    failures = (Failure(attempt, lines),) if lines else ()
    return RunStatus("r", "p", "aws", state, 0, ended_ms, (step,), failures)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (run(RunState.FAILED, 5000), "run r: FAILED after 5.0 s"),
        # AWS no longer has the jobs, so the time of the end is unknown.
        (run(RunState.FAILED), "run r: FAILED"),
        (run(RunState.RUNNING), "run r: RUNNING for 10.0 s"),
    ],
)
def test_the_headline_has_the_duration_if_it_is_known(status: RunStatus, words: str) -> None:
    assert click.unstyle(headline(status, 10_000)) == words


DEPENDENT, EXITED = StatusReason.DEPENDENCY_FAILED, StatusReason.EXITED


@pytest.mark.parametrize(
    ("reasons", "reason"),
    [
        ([""], ""),
        ([DEPENDENT], DEPENDENT),
        ([DEPENDENT, DEPENDENT], DEPENDENT),
        # children that waited for none, beside one that waited for a child that failed
        ([DEPENDENT, ""], StatusReason.CHILD_FAILED),
        ([DEPENDENT, EXITED], EXITED),
        (["", "stopped", DEPENDENT], "stopped"),
    ],
)
def test_a_step_of_several_jobs_has_failed_as_one_array_would(
    reasons: list[str], reason: str
) -> None:
    states = [JobState.FAILED if text else JobState.SUCCEEDED for text in reasons]
    jobs = [
        JobDetail("j", "a", state, text, 1, (0,) * len(JobState), 0, 0, None, None)
        for state, text in zip(states, reasons, strict=True)
    ]
    assert step_status(jobs).reason == reason


def test_a_line_of_a_megabyte_is_cut() -> None:
    lines = status_lines(run(RunState.FAILED, 1000, "x" * 1_000_000, "short"), 1000)
    assert f"  | {'x' * 500}... (999,500 more characters)" in lines and "  | short" in lines


def test_escape_sequences_are_shown_and_not_executed() -> None:
    tail = ("\x1b[31mred\x1b[0m", "\x1b]0;title\x07\tdone\x9b2J", "\u202eabc")
    text = "\n".join(status_lines(run(RunState.FAILED, 1000, *tail), 1000))
    assert "  | ^[[31mred^[[0m\n" in text
    assert "  | ^[]0;title^G\tdone\\x9b2J\n" in text
    assert "  | \\u202eabc" in text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ana", "ana"),
        ("DOM\\user ü*", "DOM_user ü_"),
        ("x" * 300, "x" * 256),
        ("a+b@c.d", "a+b@c.d"),
    ],
)
def test_a_user_name_becomes_a_valid_tag(name: str, text: str) -> None:
    assert tag_text(name) == text


def test_what_sampled_steps_use_is_a_table_of_its_own() -> None:
    cpu = StepUseStatus("a", Resources(2, 512), SampledUse(3, 6.0, 1.5, 2.0, 100))
    gpu = SampledUse(9, 18.0, 0.25, 1.0, 3 << 20, 88.4, 100, 20480, 24576)
    lines = use_lines([cpu, StepUseStatus("train", Resources(4, 16384, 1), gpu)])
    assert lines == [
        "",
        "step   busy CPUs  at most  memory at most   GPU  at most  GPU memory at most",
        "a      1.50 of 2     2.00  1MiB of 512MiB     -        -                   -",
        "train  0.25 of 4     1.00   3GiB of 16GiB  88 %    100 %      20GiB of 24GiB",
    ]
    assert use_lines([cpu])[1] == "step  busy CPUs  at most  memory at most"
    assert use_lines([]) == []
