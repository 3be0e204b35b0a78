"""A plan in AWS Batch's shapes: values in, requests out, and every request is right by botocore's own model."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

from batchyard import plan as planning
from batchyard.engines.aws import render
from batchyard.engines.aws.render import Rendered, Target
from batchyard.environments import Environment
from batchyard.errors import BadInput
from batchyard.pipeline import ExitRule, Need, Pipeline, Step

ENVIRONMENT = Environment(
    "lab",
    "us-east-1",
    "bucket",
    queues={"cpu": "cpu", "gpu": "gpu", "cpu_on_demand": "cpu-od", "gpu_on_demand": "gpu-od"},
    job_role="arn:aws:iam::123456789012:role/job",
)
MODEL = ServiceModel(Loader().load_service_model("batch", "service-2"), "batch")


def target(**more: Any) -> Target:
    fields: dict[str, Any] = {
        "environment": ENVIRONMENT,
        "run_id": "demo-20260101-abcdef",
        "images": {},
        "workspace": "s3://bucket/runs/demo-20260101-abcdef/workspace/",
        "user": "ada",
    }
    return Target(**{**fields, **more})


def rendered(*steps: Step, **more: Any) -> Rendered:
    plan = planning.make(Pipeline("demo", steps))
    images = {step.name: step.image or "image" for step in steps}
    found = render.render(plan, target(images=images, **more))
    for name, request in found.definitions.items():
        assert request["jobDefinitionName"] == name
        valid("RegisterJobDefinition", request)
    known: set[str] = set()
    for part in found.parts:
        assert {name for name, _ in part.needs} <= known, "each comes after what it waits for"
        assert len(part.needs) <= 20
        known.add(part.name)
        depends_on = [{"jobId": name, **({"type": "N_TO_N"} if each else {})} for name, each in part.needs]
        valid("SubmitJob", {**part.request, "jobDefinition": part.definition, "dependsOn": depends_on})
    return found


def valid(operation: str, request: dict[str, Any]) -> None:
    report = ParamValidator().validate(request, MODEL.operation_model(operation).input_shape)
    assert not report.has_errors(), report.generate_report()


def definition_of(found: Rendered, step: str) -> dict[str, Any]:
    part = next(part for part in found.parts if part.step == step)
    return found.definitions[part.definition]


def test_a_step_is_one_job_and_what_it_needs_is_a_dependency() -> None:
    found = rendered(
        Step("a", commands=("x", "y"), array=2),
        Step("b", command="true", needs=(Need("a"),)),
        Step("c", command="true", array=2, needs=(Need("a", each=True),)),
    )
    assert [(part.name, part.size) for part in found.parts] == [
        ("demo-20260101-abcdef-a", 2),
        ("demo-20260101-abcdef-b", 1),
        ("demo-20260101-abcdef-c", 2),
    ]
    assert found.parts[1].needs == (("demo-20260101-abcdef-a", False),)
    assert found.parts[2].needs == (("demo-20260101-abcdef-a", True),)
    assert "arrayProperties" not in found.parts[1].request


def test_an_array_beyond_awss_limit_is_several_jobs_of_which_each_knows_where_it_begins() -> None:
    found = rendered(Step("a", commands=tuple("x" * 25_001), array=25_001))
    assert [part.size for part in found.parts] == [8333, 8334, 8334]
    assert [part.offset for part in found.parts] == [0, 8333, 16667]
    told = [
        {one["name"]: one["value"] for one in part.request["containerOverrides"]["environment"]} for part in found.parts
    ]
    assert [one.get("BATCHYARD_OFFSET") for one in told] == [None, "8333", "16667"]


def test_pairs_of_split_arrays_wait_part_by_part() -> None:
    found = rendered(
        Step("a", commands=tuple("x" * 20_000), array=20_000),
        Step("b", commands=tuple("x" * 20_000), array=20_000, needs=(Need("a", each=True),)),
    )
    assert [part.needs for part in found.parts[2:]] == [
        (("demo-20260101-abcdef-a-0", True),),
        (("demo-20260101-abcdef-a-1", True),),
    ]


def test_more_than_twenty_dependencies_are_tied_together() -> None:
    many = [Step(f"s{number}", command="true") for number in range(45)]
    last = Step("last", command="true", needs=tuple(Need(step.name) for step in many))
    found = rendered(*many, last)
    end = found.parts[-1]
    barriers = {part.name: part for part in found.parts if part.is_barrier}
    assert len(barriers) == 2 and len(end.needs) == 7
    reached: set[str] = set()
    todo = [end]
    while todo:
        for name, _ in todo.pop().needs:
            reached.add(name)
            todo += [barriers[name]] if name in barriers else []
    assert reached - set(barriers) == {part.name for part in found.parts[:-3] if part.step.startswith("s")}


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_whatever_is_needed_is_reached(sizes: list[int]) -> None:
    steps = [
        Step(f"s{number}", commands=("x",) * (size * 3000), array=size * 3000) for number, size in enumerate(sizes)
    ]
    last = Step("last", command="true", needs=tuple(Need(step.name) for step in steps))
    found = rendered(*steps, last)
    by_name = {part.name: part for part in found.parts}
    reached: set[str] = set()
    todo = [found.parts[-1].name]
    while todo:
        for name, _ in by_name[todo.pop()].needs:
            reached.add(name)
            todo.append(name)
    assert {part.name for part in found.parts if not part.is_barrier and part.step != "last"} <= reached


def test_definitions_are_named_by_their_content_alone() -> None:
    one = rendered(Step("a", commands=("x",)), Step("b", commands=("y", "z")))
    assert len(one.definitions) == 1, "what the same image runs with the same resources is one definition"
    other = rendered(Step("a", commands=("x",), cpus=2))
    assert not set(one.definitions) & set(other.definitions)
    again = rendered(Step("q", commands=("q",)), run_id="demo-20270101-123456")
    assert set(again.definitions) == set(one.definitions)


def test_all_that_a_step_says_is_in_its_definition_or_its_submission() -> None:
    arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:key-AbCdEf"
    step = Step("a", commands=("x", "y"), array=2, cpus=4, memory_mib=2048, timeout_s=90, retries=2, shm_mib=512)
    where = replace(ENVIRONMENT, execution_role="arn:aws:iam::123456789012:role/exec", log_group="/lab/jobs")
    found = rendered(replace(step, env={"B": "2", "A": "1"}, secrets={"KEY": arn}, queue="mine"), environment=where)
    definition, (part,) = definition_of(found, "a"), found.parts
    container = definition["containerProperties"]
    assert (container["jobRoleArn"], container["executionRoleArn"]) == (where.job_role, where.execution_role)
    assert {one["type"]: one["value"] for one in container["resourceRequirements"]} == {"VCPU": "4", "MEMORY": "2048"}
    assert container["environment"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert container["secrets"] == [{"name": "KEY", "valueFrom": arn}]
    assert container["linuxParameters"] == {"initProcessEnabled": True, "sharedMemorySize": 512}
    assert container["logConfiguration"]["options"]["awslogs-group"] == "/lab/jobs"
    assert definition["timeout"] == {"attemptDurationSeconds": 90} and definition["retryStrategy"]["attempts"] == 3
    assert definition["propagateTags"] is True and part.request["propagateTags"] is True
    assert part.request["jobQueue"] == "mine" and part.request["arrayProperties"] == {"size": 2}
    assert part.request["tags"] == {
        "batchyard:run": "demo-20260101-abcdef",
        "batchyard:step": "a",
        "batchyard:pipeline": "demo",
        "batchyard:user": "ada",
    }
    told = {one["name"]: one["value"] for one in part.request["containerOverrides"]["environment"]}
    assert told["LIST_FILE_S3_PATH"] == "s3://bucket/runs/demo-20260101-abcdef/lists/a.txt"
    # The list itself is nowhere in the calls.
    assert "x" not in part.request["containerOverrides"].get("command", [])


def test_gpu_steps_go_to_the_gpu_queue_and_have_shared_memory() -> None:
    found = rendered(Step("a", commands=("x",), gpus=2, memory_mib=8192), Step("b", commands=("x",), queue="mine"))
    assert [part.request["jobQueue"] for part in found.parts] == ["gpu", "mine"]
    container = definition_of(found, "a")["containerProperties"]
    assert {"type": "GPU", "value": "2"} in container["resourceRequirements"]
    assert container["linuxParameters"]["sharedMemorySize"] == 4096
    found = rendered(Step("a", commands=("x",), gpus=1, shm_mib=123), on_demand=True)
    assert found.parts[0].request["jobQueue"] == "gpu-od"
    assert definition_of(found, "a")["containerProperties"]["linuxParameters"]["sharedMemorySize"] == 123


def test_a_step_without_retries_survives_two_reclaims_on_spot_and_is_tried_once_on_demand() -> None:
    step = Step("a", commands=("x",))
    assert definition_of(rendered(step), "a")["retryStrategy"] == {
        "attempts": 3,
        "evaluateOnExit": [
            {"onExitCode": "75", "action": "RETRY"},
            {"onStatusReason": "Host EC2*", "action": "RETRY"},
            {"onReason": "*", "action": "EXIT"},
        ],
    }
    assert definition_of(rendered(step, on_demand=True), "a")["retryStrategy"] == {"attempts": 1}
    plain = definition_of(rendered(Step("a", command="true")), "a")["retryStrategy"]
    assert plain["evaluateOnExit"][0] == {"onStatusReason": "Host EC2*", "action": "RETRY"}


def test_the_workers_rules_fit_in_five_whatever_the_user_says() -> None:
    codes = tuple(ExitRule(first=code, last=code) for code in range(2, 100))
    found = rendered(Step("a", commands=("x",), retries=9, retry_on=(ExitRule(word="any"),), fail_on=codes))
    strategy = definition_of(found, "a")["retryStrategy"]
    assert strategy["attempts"] == 10 and len(strategy["evaluateOnExit"]) == 5


def test_what_aws_cannot_be_told_is_refused_with_all_reasons_at_once() -> None:
    plan = planning.make(
        Pipeline(
            "demo",
            (
                Step("a", command="true", retries=1, retry_on=(ExitRule(first=64, last=78),), timeout_s=5),
                Step("b", command="true", share="team"),
            ),
            fail_fast=True,
        )
    )
    with pytest.raises(BadInput) as caught:
        render.render(plan, target(images={"a": "image"}))
    said = caught.value.message
    for part in ("come to 16", "timeout 5 s", "'b' has no image", "no fair-share policy", "fail_fast"):
        assert part in said, part


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step("a", command=f"echo {'x' * 7_500}"), "AWS Batch takes 7,492: put the command into a script"),
        (Step("a", commands=("x",), env={"LONG": "x" * 25_000}), "bytes, and AWS Batch takes 24,576"),
    ],
)
def test_what_is_too_large_for_aws_is_refused_in_the_plan(step: Step, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        rendered(step)


def test_a_list_may_be_of_any_length_and_a_long_command_that_fits_is_taken() -> None:
    rendered(Step("a", commands=("x" * 100_000,) * 10, array=5), Step("b", command=f"echo {'x' * 6_500}"))


def test_so_many_single_children_of_a_plain_command_as_can_be_named() -> None:
    def left(count: int) -> Rendered:
        plan = planning.make(Pipeline("demo", (Step("a", command="echo", array=10_000),)))
        plan = planning.only_unfinished(plan, {"a": list(range(0, 2 * count, 2))})
        return render.render(plan, target(images={"a": "image"}))

    (part,) = left(500).parts
    assert len(str(part.request["containerOverrides"]["command"])) < 8_192
    for count in (2_000, 5_000):
        with pytest.raises(BadInput, match="named one by one"):
            left(count)


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "busybox"])
def test_a_compacted_array_of_a_plain_command_keeps_its_numbers(shell: str) -> None:
    """The shell that finds them, in the shells that images have."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    numbers = [0, 1, 2, 7, 9_000, *range(9_500, 10_000)]
    plan = planning.make(Pipeline("demo", (Step("a", command='echo "$AWS_BATCH_JOB_ARRAY_INDEX"', array=10_000),)))
    (part,) = render.render(planning.only_unfinished(plan, {"a": numbers}), target(images={"a": "image"})).parts
    script = part.request["containerOverrides"]["command"][2].replace("echo ", "set -eu; env | grep BATCH; echo $# ")
    assert part.size == len(numbers)
    for child in (0, 2, 3, 4, 5, 504):
        environ = {"AWS_BATCH_JOB_ARRAY_INDEX": str(child), "PATH": os.environ["PATH"]}
        command = [found, *(["sh"] if shell == "busybox" else []), "-c", script]
        said = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
        lines = set(said.split("\n"))
        assert {f"AWS_BATCH_JOB_ARRAY_INDEX={numbers[child]}", "AWS_BATCH_JOB_ARRAY_SIZE=10000"} <= lines
        assert f"0 {numbers[child]}" in lines


def test_a_queue_with_a_policy_gets_the_share() -> None:
    found = rendered(Step("a", commands=("x",), share="vision", priority=7), fair_queues=frozenset({"cpu"}))
    assert found.parts[0].request["shareIdentifier"] == "vision"
    assert definition_of(found, "a")["schedulingPriority"] == 7
    with pytest.raises(BadInput, match="has a fair-share policy"):
        rendered(Step("a", commands=("x",)), fair_queues=frozenset({"cpu"}))


def test_max_running_is_a_consumable_resource() -> None:
    found = rendered(Step("a", commands=("x", "y"), array=2, max_running=1))
    assert found.counters == {"demo-20260101-abcdef-a": 1}
    override = found.parts[0].request["consumableResourcePropertiesOverride"]
    assert override["consumableResourceList"] == [{"consumableResource": "demo-20260101-abcdef-a", "quantity": 1}]


def test_a_target_goes_through_json_unchanged() -> None:
    one = target(images={"a": "b"}, fair_queues=frozenset({"cpu"}), on_demand=True)
    assert render.target_from_json(render.target_to_json(one)) == one
