"""From a pipeline to jobs: what is planned, in which order, and what of it is unfinished."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchyard import plan as planning
from batchyard.batch.jobs import (
    OUT_OF_MEMORY,
    Action,
    EvaluateOnExit,
    Outcome,
    Resources,
    RetryStrategy,
    StatusReason,
)
from batchyard.batch.retry import decide
from batchyard.errors import InputError
from batchyard.pipeline import ExitRule, Need, Pipeline, Step
from batchyard.plan import Plan, PlannedJob

ANY = (ExitRule(word="any"),)


def step(name: str, *needs: str | Need, **fields: Any) -> Step:
    defaults = {"command": "true"} if "commands" not in fields else {}
    all_needs = tuple(need if isinstance(need, Need) else Need(need) for need in needs)
    return Step(name=name, needs=all_needs, **(defaults | fields))


def each(name: str) -> Need:
    return Need(name, each=True)


def plan_of(*steps: Step, **options: Any) -> Plan:
    return planning.make(Pipeline("recon", steps), **options)


def steps_of(plan: Plan) -> list[str]:
    return [job.step for job in plan.jobs]


# -- make --------------------------------------------------------------------------------------


def test_a_step_s_values_are_the_job_s() -> None:
    made = plan_of(
        step(
            "reconstruct",
            commands=("a", "b", "c"),
            array=2,
            cpus=4,
            memory_mib=16_384,
            gpus=1,
            timeout_s=1_800,
            retries=3,
            max_running=20,
            keep_going=True,
            image="recon:1",
            env={"A": "b"},
            shm_mib=64,
        )
    )
    assert made.pipeline == "recon"
    assert made.jobs == (
        PlannedJob(
            step="reconstruct",
            size=2,
            is_array=True,
            resources=Resources(4, 16_384, 1),
            command=None,
            command_count=3,
            retry=RetryStrategy(4),
            timeout_s=1_800,
            max_running=20,
            keep_going=True,
            image="recon:1",
            env={"A": "b"},
            device="gpu",
            shm_mib=64,
            step_size=2,
        ),
    )
    assert made.lists == {"reconstruct": ("a", "b", "c")}


def test_a_step_without_array_is_one_child_and_no_array() -> None:
    job = plan_of(step("a")).job("a")
    assert (job.size, job.is_array, job.step_size, job.command_count, job.device) == (
        1,
        False,
        1,
        1,
        "cpu",
    )


def test_an_array_of_one_is_an_array_to_its_command() -> None:
    job = plan_of(step("a", array=1)).job("a")
    assert (job.size, job.is_array) == (1, True)


def test_one_command_runs_once_in_every_child() -> None:
    job = plan_of(step("a", command="true", array=3)).job("a")
    assert not job.has_list
    assert job.command_count == 3
    assert [list(job.commands_of(child)) for child in range(3)] == [[0], [1], [2]]


def test_a_list_is_shared_out() -> None:
    job = plan_of(step("a", commands=tuple("abcdefg"), array=3)).job("a")
    assert job.has_list
    assert job.command_count == 7
    assert [list(job.commands_of(child)) for child in range(3)] == [[0, 1], [2, 3], [4, 5, 6]]


def test_each_job_comes_after_what_it_needs_and_ties_keep_the_file_s_order() -> None:
    made = plan_of(step("d", "b", "c"), step("c", "a"), step("z"), step("b", "a"), step("a"))
    assert steps_of(made) == ["z", "a", "c", "b", "d"]


def test_fail_fast_is_handed_on() -> None:
    assert planning.make(Pipeline("p", (step("a"),), fail_fast=True)).fail_fast
    assert not plan_of(step("a")).fail_fast


DIAMOND = (
    step("a"),
    step("b", "a"),
    step("c", "a"),
    step("d", "b", "c"),
    step("e", "c"),
    step("f"),
)


def test_only_plans_one_step_without_what_it_needs() -> None:
    made = plan_of(*DIAMOND, only="d")
    assert steps_of(made) == ["d"]
    assert made.job("d").needs == ()


def test_from_plans_the_step_and_all_that_follows_it() -> None:
    made = plan_of(*DIAMOND, start_from="c")
    assert steps_of(made) == ["c", "d", "e"]
    assert [job.needs for job in made.jobs] == [(), (Need("c"),), (Need("c"),)]


def test_from_finds_followers_whatever_the_file_s_order() -> None:
    made = plan_of(*reversed(DIAMOND), start_from="b")
    assert set(steps_of(made)) == {"b", "d"}


def test_of_steps_that_are_not_planned_no_list_is_kept() -> None:
    steps = (step("a", commands=("x",)), step("b", commands=("y",)))
    assert plan_of(*steps, only="b").lists == {"b": ("y",)}


@pytest.mark.parametrize("option", ["only", "start_from"])
def test_a_step_that_is_not_there_is_bad_input_with_a_hint(option: str) -> None:
    with pytest.raises(InputError, match="no step is named 'recontruct'") as raised:
        plan_of(step("reconstruct"), step("report"), **{option: "recontruct"})
    assert raised.value.hint == "did you mean 'reconstruct'?"
    with pytest.raises(InputError) as raised:
        plan_of(step("reconstruct"), step("report"), **{option: "qqq"})
    assert raised.value.hint == "the steps are: reconstruct, report"


# -- retry strategies --------------------------------------------------------------------------

RETRY, EXIT = Action.RETRY, Action.EXIT
CATCH_ALL = EvaluateOnExit(EXIT, on_reason="*")
SPOT = Outcome(None, "Host EC2 (instance i-0) terminated.")
OOM = Outcome(137, reason=OUT_OF_MEMORY)
NO_IMAGE = Outcome(None, StatusReason.NOT_STARTED, "CannotPullContainerError: gone")


def code(first: int, last: int | None = None) -> ExitRule:
    return ExitRule("", first, first if last is None else last)


def word(name: str) -> ExitRule:
    return ExitRule(name)


def test_attempts_are_the_retries_and_one() -> None:
    assert planning.retry_strategy(0, ANY, ()) == RetryStrategy(1)
    assert planning.retry_strategy(9, ANY, ()) == RetryStrategy(10)


def test_without_retries_there_are_no_rules() -> None:
    assert planning.retry_strategy(0, (code(75),), (code(2),)) == RetryStrategy(1)


@pytest.mark.parametrize(
    ("retry_on", "rules"),
    [
        ((word("any"),), ()),
        ((code(75), word("any")), ()),
        ((word("spot"),), (EvaluateOnExit(RETRY, on_status_reason="Host EC2*"), CATCH_ALL)),
        ((word("oom"),), (EvaluateOnExit(RETRY, on_reason="OutOfMemoryError*"), CATCH_ALL)),
        (
            (word("image"),),
            (EvaluateOnExit(RETRY, on_reason="CannotPullContainerError*"), CATCH_ALL),
        ),
        ((code(75),), (EvaluateOnExit(RETRY, on_exit_code="75"), CATCH_ALL)),
        (
            (code(64, 66),),
            (*(EvaluateOnExit(RETRY, on_exit_code=text) for text in ("64", "65", "66")), CATCH_ALL),
        ),
        ((), (CATCH_ALL,)),
    ],
    ids=str,
)
def test_retry_on_compiles_to_rules(
    retry_on: tuple[ExitRule, ...], rules: tuple[EvaluateOnExit, ...]
) -> None:
    assert planning.retry_strategy(2, retry_on, ()) == RetryStrategy(3, rules)


def test_fail_on_is_looked_at_first() -> None:
    strategy = planning.retry_strategy(2, (code(1, 3),), (code(2), word("oom")))
    assert strategy.evaluate_on_exit[:2] == (
        EvaluateOnExit(EXIT, on_exit_code="2"),
        EvaluateOnExit(EXIT, on_reason="OutOfMemoryError*"),
    )
    assert decide(strategy, 1, Outcome(1)) is RETRY
    assert decide(strategy, 1, Outcome(2)) is EXIT


@pytest.mark.parametrize(
    ("retry_on", "fail_on", "retried"),
    [
        (ANY, (), {"1", "75", "oom", "spot", "image"}),
        (ANY, (code(1),), {"75", "oom", "spot", "image"}),
        (ANY, (word("any"),), set()),
        (ANY, (word("oom"), word("image")), {"1", "75", "spot"}),
        ((word("spot"),), (), {"spot"}),
        ((word("oom"),), (), {"oom"}),
        ((word("image"),), (), {"image"}),
        ((word("spot"), code(64, 78)), (), {"spot", "75"}),
        ((code(0, 255),), (), {"1", "75", "oom"}),
        ((code(0, 255),), (code(70, 80),), {"1", "oom"}),
    ],
    # A set prints in another order in each process, and all processes must name a test alike.
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_what_is_retried_is_what_retry_on_names_and_fail_on_does_not(
    retry_on: tuple[ExitRule, ...], fail_on: tuple[ExitRule, ...], retried: set[str]
) -> None:
    strategy = planning.retry_strategy(1, retry_on, fail_on)
    outcomes = {"1": Outcome(1), "75": Outcome(75), "oom": OOM, "spot": SPOT, "image": NO_IMAGE}
    assert {
        name for name, outcome in outcomes.items() if decide(strategy, 1, outcome) is RETRY
    } == retried


# -- what fits ---------------------------------------------------------------------------------


def test_a_plan_that_fits_has_no_misfits() -> None:
    made = plan_of(step("a", cpus=4, memory_mib=1_000, gpus=1, array=1_000))
    assert planning.find_misfits(made, Resources(4, 1_000, 1)) == []


def test_misfits_say_what_is_asked_for_and_what_there_is() -> None:
    made = plan_of(
        step("a", cpus=8, memory_mib=2_000, gpus=2),
        step("b", cpus=1, memory_mib=2_000),
        step("c", cpus=2, memory_mib=500),
    )
    assert planning.find_misfits(made, Resources(1, 1_000, 0)) == [
        "step 'a': a child asks for 8 vCPUs and there is 1, "
        "and for 2000 MiB of memory and there are 1000, "
        "and for 2 GPUs and there are 0",
        "step 'b': a child asks for 2000 MiB of memory and there are 1000",
        "step 'c': a child asks for 2 vCPUs and there is 1",
    ]


def test_misfits_begin_with_the_place_of_the_first_resource_that_is_short() -> None:
    made = plan_of(step("a", cpus=1, memory_mib=2_000, gpus=1))
    (sentence,) = planning.find_misfits(
        made, Resources(1, 1_000, 0), lambda name, key: f"p.yaml: {name}.{key}: "
    )
    assert sentence.startswith("p.yaml: a.memory: step 'a': a child asks for 2000 MiB")


def test_one_of_a_kind_is_said_in_the_singular() -> None:
    made = plan_of(step("a", gpus=1))
    sentence = "step 'a': a child asks for 1 GPU and there are 0"
    assert planning.find_misfits(made, Resources(1, 1_000, 0)) == [sentence]


@pytest.mark.parametrize(
    ("steps", "cpus", "at_once"),
    [
        ((step("a", array=100),), 8, 8),
        ((step("a", array=3),), 8, 3),
        ((step("a", array=100, max_running=2), step("b", array=3)), 8, 5),
        ((step("a", array=100, cpus=4), step("b", array=100, cpus=2)), 8, 4),
    ],
)
def test_most_at_once_is_what_the_children_and_the_vcpus_allow(
    steps: tuple[Step, ...], cpus: int, at_once: int
) -> None:
    assert planning.max_concurrency(plan_of(*steps), Resources(cpus, 10_000, 0)) == at_once


def test_without_gpus_the_gpu_steps_run_on_the_cpu_and_are_told_so() -> None:
    made = plan_of(step("g", gpus=2, cpus=3), step("c", cpus=2))
    without = planning.without_gpus(made)
    assert without.job("g") == replace(made.job("g"), resources=Resources(3, 512, 0), device="cpu")
    assert without.job("c") == made.job("c")
    assert planning.find_misfits(without, Resources(4, 1_000, 0)) == []


# -- what is left ------------------------------------------------------------------------------


def test_what_is_left_is_a_compact_array_that_keeps_its_numbers() -> None:
    made = plan_of(step("a", commands=tuple("abcdefghij"), array=5))
    job = planning.select_unfinished(made, {"a": [1, 4]}).job("a")
    assert (job.size, job.indices, job.step_size, job.command_count) == (2, (1, 4), 5, 10)
    assert [job.index_in_step(child) for child in range(2)] == [1, 4]
    assert [list(job.commands_of(child)) for child in range(2)] == [[2, 3], [8, 9]]


def test_one_child_that_is_left_is_still_a_child_of_its_array() -> None:
    job = planning.select_unfinished(plan_of(step("a", array=5)), {"a": [3]}).job("a")
    assert (job.size, job.is_array, job.step_size) == (1, True, 5)
    assert list(job.commands_of(0)) == [3]


def test_where_nothing_is_done_nothing_changes() -> None:
    made = plan_of(step("a", array=3), step("b", each("a"), array=3))
    assert planning.select_unfinished(made, {"a": [0, 1, 2], "b": [0, 1, 2]}) == made


def test_a_step_that_is_done_is_left_out_with_the_needs_of_it() -> None:
    made = plan_of(step("a"), step("b", "a"), step("c", "a", "b"))
    unfinished = planning.select_unfinished(made, {"a": [], "b": [0], "c": [0]})
    assert steps_of(unfinished) == ["b", "c"]
    assert [job.needs for job in unfinished.jobs] == [(), (Need("b"),)]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 3], [1, 3]),
        ([0, 1, 2, 3], [0, 1, 2, 3]),
        ([3], [1, 3]),
        ([1, 3], [1, 2]),
        ([0], [1, 2]),
        ([0, 2], [0, 1, 2, 3]),
    ],
)
def test_a_need_child_by_child_stays_one_whatever_is_left(a: list[int], b: list[int]) -> None:
    made = plan_of(step("a", array=4), step("b", each("a"), array=4))
    unfinished = planning.select_unfinished(made, {"a": a, "b": b})
    assert unfinished.job("b").needs == (Need("a", each=True),)
    assert {job.step: sorted(job.numbers) for job in unfinished.jobs} == {"a": a, "b": b}


def test_children_that_wait_for_repeated_ones_follow_one_another_in_all_steps() -> None:
    made = plan_of(step("a", array=6), step("b", each("a"), array=6), step("c", each("b"), array=6))
    left = {"a": [1, 4], "b": [1, 3, 4], "c": [0, 1, 3, 4, 5]}
    unfinished = planning.select_unfinished(made, left)
    assert [job.indices for job in unfinished.jobs] == [(1, 4), (3, 1, 4), (0, 5, 3, 1, 4)]
    groups = planning.find_paired_groups(unfinished)
    (both,) = groups["a"]
    assert [found.size for found in groups["c"]] == [2, 1, 2]
    names = {name: [found.group for found in groups[name]] for name in "abc"}
    assert names["c"][1:] == names["b"] and names["b"][1:] == names["a"] == [both.group]


def test_a_whole_array_in_another_order_keeps_its_numbers() -> None:
    made = plan_of(step("a", array=3), step("b", each("a"), array=3))
    job = planning.select_unfinished(made, {"a": [2], "b": [0, 1, 2]}).job("b")
    assert (job.size, job.step_size) == (3, 3) and sorted(job.numbers) == [0, 1, 2]
    again = planning.from_json(planning.to_json(planning.Plan("p", (job,)))).job("b")
    assert again == job
    with pytest.raises(InputError, match="has no child 3") as refusal:
        planning.Plan("p", (job,)).require_child("b", 3)
    assert refusal.value.hint == "its children are 0 to 2"


def test_a_step_with_too_many_groups_waits_for_the_whole_step() -> None:
    size = 2_048
    needed = [step(f"a{bit}", array=size) for bit in range(11)]
    made = plan_of(*needed, step("b", *(each(found.name) for found in needed), array=size))
    # Every child is in a group of its own.
    left = {f"a{bit}": [n for n in range(size) if n >> bit & 1] for bit in range(11)}
    unfinished = planning.select_unfinished(made, {**left, "b": range(size)})
    assert all(not need.each for need in unfinished.job("b").needs)
    assert unfinished.job("b").indices is None
    assert unfinished.job("a0").indices == tuple(range(1, size, 2))


def test_what_is_left_of_what_was_left_keeps_the_step_s_numbers() -> None:
    made = plan_of(step("a", commands=tuple("abcdefgh"), array=8))
    once = planning.select_unfinished(made, {"a": [2, 5, 7]})
    twice = planning.select_unfinished(once, {"a": [5, 7]})
    assert twice == planning.select_unfinished(made, {"a": [5, 7]})


# -- JSON --------------------------------------------------------------------------------------


def test_the_shown_plan_has_the_documented_shape_and_nothing_else() -> None:
    made = plan_of(
        step("pre", commands=("a", "b", "c"), array=2, retries=2, timeout_s=3_600),
        step("rec", each("pre"), command="x", array=2, gpus=1, cpus=4, memory_mib=16_384),
        step("post", "rec", "pre"),
    )
    described = planning.describe(made, "local")
    assert json.loads(json.dumps(described)) == described
    assert described == {
        "pipeline": "recon",
        "engine": "local",
        "jobs": [
            {
                "step": "pre",
                "size": 2,
                "commands": 3,
                "share_out": "static",
                "cpus": 1,
                "memory_mib": 512,
                "gpus": 0,
                "attempts": 3,
                "timeout_s": 3_600,
                "needs": [],
                "expected_s": None,
                "lower_bound_s": None,
            },
            {
                "step": "rec",
                "size": 2,
                "commands": 2,
                "share_out": None,
                "cpus": 4,
                "memory_mib": 16_384,
                "gpus": 1,
                "attempts": 1,
                "timeout_s": None,
                "needs": [{"step": "pre", "each": True}],
                "expected_s": None,
                "lower_bound_s": None,
            },
            {
                "step": "post",
                "size": 1,
                "commands": 1,
                "share_out": None,
                "cpus": 1,
                "memory_mib": 512,
                "gpus": 0,
                "attempts": 1,
                "timeout_s": None,
                "needs": [{"step": "rec", "each": False}, {"step": "pre", "each": False}],
                "expected_s": None,
                "lower_bound_s": None,
            },
        ],
        "requests": [],
    }


def test_the_shown_plan_counts_only_the_commands_that_are_left() -> None:
    made = plan_of(step("a", commands=tuple("abcdefghij"), array=4), step("b", array=4))
    unfinished = planning.select_unfinished(made, {"a": [1, 3], "b": [0]})
    assert [job["commands"] for job in planning.describe(unfinished, "local")["jobs"]] == [6, 1]


names = st.from_regex(r"[a-z][a-z0-9-]{0,6}", fullmatch=True)
rules = st.sampled_from(["spot", "oom", "image", "any"]).map(ExitRule) | st.tuples(
    st.integers(0, 255), st.integers(0, 3)
).map(lambda pair: code(pair[0], min(255, sum(pair))))


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    steps: list[Step] = []
    for name in draw(st.lists(names, min_size=1, max_size=5, unique=True)):
        needs = (
            draw(st.lists(st.sampled_from(steps), unique_by=lambda s: s.name, max_size=2))
            if steps
            else []
        )
        steps.append(
            step(
                name,
                *(Need(other.name, draw(st.booleans())) for other in needs),
                **(
                    {"commands": ("x", "y")}
                    if draw(st.booleans())
                    else {"command": draw(st.text(max_size=5))}
                ),
                array=draw(st.none() | st.integers(1, 12)),
                cpus=draw(st.integers(1, 64)),
                memory_mib=draw(st.integers(4, 10**6)),
                gpus=draw(st.integers(0, 8)),
                timeout_s=draw(st.none() | st.integers(1, 10**6)),
                retries=draw(st.integers(0, 9)),
                retry_on=tuple(draw(st.lists(rules, min_size=1, max_size=3))),
                fail_on=tuple(draw(st.lists(rules, max_size=3))),
                max_running=draw(st.none() | st.integers(1, 100)),
                keep_going=draw(st.booleans()),
                image=draw(st.none() | names),
                env=draw(st.dictionaries(names, st.text(max_size=5), max_size=2)),
                shm_mib=draw(st.none() | st.integers(4, 100)),
            )
        )
    made = planning.make(Pipeline(draw(names), tuple(steps), fail_fast=draw(st.booleans())))
    if draw(st.booleans()):
        made = planning.select_unfinished(
            made, {s.name: sorted(draw(st.sets(st.integers(0, s.size - 1)))) for s in steps}
        )
    return planning.without_gpus(made) if draw(st.booleans()) else made


@given(plans())
def test_a_plan_comes_back_from_json_as_it_was(made: Plan) -> None:
    text = json.dumps(planning.to_json(made))
    assert planning.from_json(json.loads(text), made.lists) == made
    assert planning.from_json(json.loads(text), made.lists).lists == made.lists


def test_a_million_numbers_are_a_few_ranges_on_disk() -> None:
    made = plan_of(step("a", array=1_000_000))
    unfinished = planning.select_unfinished(made, {"a": [*range(10), *range(500_000, 1_000_000)]})
    assert planning.to_json(unfinished)["jobs"][0]["indices"] == [(0, 9), (500_000, 999_999)]


def test_a_list_with_a_number_of_commands_at_once() -> None:
    commands = ("a", "b", "c", "d")
    dynamic = planning.make(Pipeline("p", (Step("s", commands=commands, share_out="dynamic"),)))
    here = planning.with_child_per_command(planning.limit_at_once(dynamic, 3)).job("s")
    assert (here.size, here.max_running) == (4, 3)
    # A limit that is never reached is left out.
    here = planning.with_child_per_command(planning.limit_at_once(dynamic, 4)).job("s")
    assert (here.size, here.max_running) == (4, None)
    claiming = planning.with_claiming_children(planning.limit_at_once(dynamic, 3), 16).job("s")
    assert (claiming.size, claiming.is_array) == (3, True)
    array = planning.make(
        Pipeline("p", (Step("s", commands=commands, share_out="dynamic", array=2),))
    )
    assert planning.limit_at_once(array, 3).job("s").dynamic_children == 2
    assert planning.limit_at_once(array, 1).job("s").dynamic_children == 1
    static = planning.make(Pipeline("p", (Step("s", commands=commands, array=4, max_running=2),)))
    assert planning.limit_at_once(static, 3).job("s").max_running == 2
    assert planning.limit_at_once(static, 1).job("s").max_running == 1


def test_only_a_list_has_a_number_of_commands_at_once() -> None:
    for steps in ((Step("a", command="x"),), (Step("a", commands=("x",)), Step("b", command="y"))):
        with pytest.raises(InputError, match="-j is for a list of commands"):
            planning.limit_at_once(planning.make(Pipeline("p", steps)), 2)
