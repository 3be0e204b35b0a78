"""Requests to AWS Batch rendered from a plan; each is valid by the model of botocore."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from hypothesis import given, settings
from hypothesis import strategies as st

from batchyard import plan as planning
from batchyard.batch.jobs import Action, EvaluateOnExit, Outcome, RetryStrategy
from batchyard.batch.retry import decide
from batchyard.engines.aws import render
from batchyard.engines.aws import target as targets
from batchyard.engines.aws.render import Rendered
from batchyard.engines.aws.target import Target
from batchyard.environments import Environment
from batchyard.errors import InputError
from batchyard.pipeline import ExitRule, Mount, Need, Pipeline, Step
from batchyard.worker.scale import AddedJob

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
        depends_on = [
            {"jobId": name, **({"type": "N_TO_N"} if each else {})} for name, each in part.needs
        ]
        valid(
            "SubmitJob", {**part.request, "jobDefinition": part.definition, "dependsOn": depends_on}
        )
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
        {one["name"]: one["value"] for one in part.request["containerOverrides"]["environment"]}
        for part in found.parts
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
    assert reached - set(barriers) == {
        part.name for part in found.parts[:-3] if part.step.startswith("s")
    }


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_whatever_is_needed_is_reached(sizes: list[int]) -> None:
    steps = [
        Step(f"s{number}", commands=("x",) * (size * 3000), array=size * 3000)
        for number, size in enumerate(sizes)
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
    assert {
        part.name for part in found.parts if not part.is_barrier and part.step != "last"
    } <= reached


@settings(max_examples=30)
@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from([1, 2, 7, 20_000]))
def test_what_is_needed_child_by_child_is_reached_child_by_child(
    each: int, whole: int, size: int
) -> None:
    pairs = [Step(f"e{number}", command="true", array=size) for number in range(each)]
    others = [Step(f"w{number}", command="true") for number in range(whole)]
    needs = (*(Need(step.name, each=True) for step in pairs), *(Need(step.name) for step in others))
    found = rendered(*pairs, *others, Step("last", command="true", array=size, needs=needs))
    by_name = {part.name: part for part in found.parts}
    for number, last in enumerate(
        part for part in found.parts if part.step == "last" and not part.is_barrier
    ):
        reached: dict[str, set[bool]] = {}
        reached_names: set[str] = set()
        todo = [(last.name, True)]
        while todo:
            waiting, is_each_so_far = todo.pop()
            for name, is_each in by_name[waiting].needs:
                if is_each:
                    assert by_name[name].size == by_name[waiting].size, (
                        "AWS pairs arrays of one size only"
                    )
                reached_names.add(name)
                reached.setdefault(by_name[name].step, set()).add(is_each_so_far and is_each)
                todo += [(name, is_each_so_far and is_each)] if by_name[name].is_barrier else []
        ends = {step: how for step, how in reached.items() if step != "last"}
        assert ends == {step.name: {size > 1} for step in pairs} | {
            step.name: {False} for step in others
        }
        suffix = f"-{number}" if size > 10_000 else ""
        named = {f"demo-20260101-abcdef-{step.name}{suffix}" for step in pairs}
        assert named <= reached_names, "parts of split arrays are pairs"


def test_the_number_of_jobs_grows_with_children_and_steps_and_not_with_their_product() -> None:
    size = 250_000
    steps = [
        Step(f"s{number}", command="true", array=size, needs=(Need(f"s{number - 1}"),))
        for number in range(1, 4)
    ]
    found = rendered(Step("s0", command="true", array=size), *steps)
    assert len(found.parts) == 4 * size / 10_000 + len(steps)
    names = [part.name for part in found.parts]
    assert len(set(names)) == len(names)


def test_a_job_that_only_waits_asks_for_the_least_and_never_for_a_gpu() -> None:
    needed = [Step(f"s{number}", command="true") for number in range(21)]
    last = Step(
        "last",
        commands=("x",),
        needs=tuple(Need(step.name) for step in needed),
        gpus=4,
        cpus=8,
        memory_mib=61_440,
        timeout_s=60,
        retries=0,
    )
    found = rendered(*needed, last)
    (barrier,) = (part for part in found.parts if part.is_barrier)
    definition = found.definitions[barrier.definition]
    assert definition["containerProperties"]["resourceRequirements"] == [
        {"type": "VCPU", "value": "1"},
        {"type": "MEMORY", "value": "64"},
    ]
    assert definition["containerProperties"]["command"] == ["true"]
    assert "sharedMemorySize" not in definition["containerProperties"]["linuxParameters"]
    assert "timeout" not in definition
    # Its failure would be that of the whole rest of the run.
    assert definition["retryStrategy"] == {"attempts": 10}


def test_arrays_that_only_wait_are_said() -> None:
    pairs = [Step(f"e{number}", command="true", array=3) for number in range(21)]
    needs = tuple(Need(step.name, each=True) for step in pairs)
    found = rendered(*pairs, Step("last", command="true", array=3, needs=needs))
    assert any(
        "last: waits child by child for more than 20 steps" in note and "3 children" in note
        for note in found.notes
    )
    assert sum(part.is_barrier for part in found.parts) == 1


def test_definitions_are_named_by_their_content_alone() -> None:
    one = rendered(Step("a", commands=("x",)), Step("b", commands=("y", "z")))
    assert len(one.definitions) == 1, (
        "what the same image runs with the same resources is one definition"
    )
    other = rendered(Step("a", commands=("x",), cpus=2))
    assert not set(one.definitions) & set(other.definitions)
    again = rendered(Step("q", commands=("q",)), run_id="demo-20270101-123456")
    assert set(again.definitions) == set(one.definitions)


def test_all_that_a_step_says_is_in_its_definition_or_its_submission() -> None:
    arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:key-AbCdEf"
    step = Step(
        "a",
        commands=("x", "y"),
        array=2,
        cpus=4,
        memory_mib=2048,
        timeout_s=90,
        retries=2,
        shm_mib=512,
    )
    where = replace(
        ENVIRONMENT, execution_role="arn:aws:iam::123456789012:role/exec", log_group="/lab/jobs"
    )
    found = rendered(
        replace(step, env={"B": "2", "A": "1"}, secrets={"KEY": arn}, queue="mine"),
        environment=where,
    )
    definition, (part,) = definition_of(found, "a"), found.parts
    container = definition["containerProperties"]
    assert (container["jobRoleArn"], container["executionRoleArn"]) == (
        where.job_role,
        where.execution_role,
    )
    assert {one["type"]: one["value"] for one in container["resourceRequirements"]} == {
        "VCPU": "4",
        "MEMORY": "2048",
    }
    assert variables_of(found) == {
        **{"A": "1", "B": "2"},
        **{"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"},
        "BATCHYARD_TIMEOUT_S": "90",
        **{"BATCHYARD_ATTEMPTS": "5", "BATCHYARD_RETRIED_ERRORS": "70,71,72,77"},
    }
    assert container["secrets"] == [{"name": "KEY", "valueFrom": arn}]
    assert container["linuxParameters"] == {"initProcessEnabled": True, "sharedMemorySize": 512}
    assert container["logConfiguration"]["options"]["awslogs-group"] == "/lab/jobs"
    assert (
        definition["timeout"] == {"attemptDurationSeconds": 90}
        and definition["retryStrategy"]["attempts"] == 5
    )
    assert definition["propagateTags"] is True and part.request["propagateTags"] is True
    assert part.request["jobQueue"] == "mine" and part.request["arrayProperties"] == {"size": 2}
    assert part.request["tags"] == {
        "batchyard:run": "demo-20260101-abcdef",
        "batchyard:step": "a",
        "batchyard:pipeline": "demo",
        "batchyard:user": "ada",
        "batchyard:environment": "lab",
    }
    told = {one["name"]: one["value"] for one in part.request["containerOverrides"]["environment"]}
    assert told["LIST_FILE_S3_PATH"] == "s3://bucket/runs/demo-20260101-abcdef/lists/a.txt"
    # The list itself is nowhere in the calls.
    assert "x" not in part.request["containerOverrides"].get("command", [])


def test_gpu_steps_go_to_the_gpu_queue_and_have_shared_memory() -> None:
    found = rendered(
        Step("a", commands=("x",), gpus=2, memory_mib=8192),
        Step("b", commands=("x",), queue="mine"),
    )
    assert [part.request["jobQueue"] for part in found.parts] == ["gpu", "mine"]
    container = definition_of(found, "a")["containerProperties"]
    assert {"type": "GPU", "value": "2"} in container["resourceRequirements"]
    assert container["linuxParameters"]["sharedMemorySize"] == 4096
    found = rendered(Step("a", commands=("x",), gpus=1, shm_mib=123), on_demand=True)
    assert found.parts[0].request["jobQueue"] == "gpu-od"
    assert (
        definition_of(found, "a")["containerProperties"]["linuxParameters"]["sharedMemorySize"]
        == 123
    )


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


@pytest.mark.parametrize(
    ("step", "attempts", "attempts_on_demand"),
    [
        (Step("a", commands=("x",)), 3, 1),
        (Step("a", commands=("x",), retries=1), 4, 2),
        (Step("a", commands=("x",), retries=5), 8, 6),
        (Step("a", commands=("x",), retries=9), 10, 10),
        # AWS Batch counts reclaims and failures of a plain command together.
        (Step("a", command="x"), 3, 1),
        (Step("a", command="x", retries=1), 3, 2),
        (Step("a", command="x", retries=4), 5, 5),
    ],
)
def test_a_step_with_retries_survives_as_many_reclaims_as_a_step_without(
    step: Step, attempts: int, attempts_on_demand: int
) -> None:
    for on_demand, expected in ((False, attempts), (True, attempts_on_demand)):
        strategy = definition_of(rendered(step, on_demand=on_demand), "a")["retryStrategy"]
        assert strategy["attempts"] == expected


ENDINGS = {
    "the worker requests it": Outcome(75),
    "the worker says no": Outcome(3),
    "the worker was killed": Outcome(137),
    "the container was killed for memory": Outcome(137, reason="OutOfMemoryError: Container"),
    "the host is lost": Outcome(None, "Host EC2 (instance i-0a) terminated."),
    "no image": Outcome(None, "Task failed to start", "CannotPullContainerError: x"),
    "docker is slow": Outcome(None, "Task failed to start", "DockerTimeoutError: x"),
    "no start": Outcome(None, "Task failed to start", "CannotStartContainerError: x"),
}
WORKER_KILLED = {"the worker was killed", "the container was killed for memory"}


@pytest.mark.parametrize(
    ("retry_on", "fail_on", "not_retried"),
    [
        (["any"], [], {"the worker says no"}),
        (["any"], ["spot", "image"], {"the worker says no", "the host is lost", "no image"}),
        (["any"], ["oom"], {"the worker says no", *WORKER_KILLED}),
        (["any"], ["137"], {"the worker says no", *WORKER_KILLED}),
        (
            ["any"],
            ["spot", "image", "oom"],
            {"the worker says no", "the host is lost", "no image", *WORKER_KILLED},
        ),
        (["any"], ["any"], set(ENDINGS)),
        (
            ["oom"],
            [],
            {
                "the worker says no",
                "the worker was killed",
                "no image",
                "docker is slow",
                "no start",
            },
        ),
        (["137"], [], {"the worker says no", "no image", "docker is slow", "no start"}),
        (
            ["image", "3"],
            [],
            {"the worker says no", "docker is slow", "no start", *WORKER_KILLED},
        ),
    ],
)
def test_the_rules_of_a_worker_retry_the_endings_that_the_file_names(
    retry_on: list[str], fail_on: list[str], not_retried: set[str]
) -> None:
    def exit_rule(text: str) -> ExitRule:
        return ExitRule(first=int(text), last=int(text)) if text.isdigit() else ExitRule(word=text)

    step = Step(
        "a",
        commands=("x",),
        retries=1,
        retry_on=tuple(map(exit_rule, retry_on)),
        fail_on=tuple(map(exit_rule, fail_on)),
    )
    strategy = definition_of(rendered(step), "a")["retryStrategy"]
    assert len(strategy["evaluateOnExit"]) <= 5
    rules = RetryStrategy(strategy["attempts"], tuple(map(evaluation, strategy["evaluateOnExit"])))
    assert {
        name for name, ending in ENDINGS.items() if decide(rules, 1, ending) is Action.EXIT
    } == not_retried


def evaluation(rule: dict[str, str]) -> EvaluateOnExit:
    return EvaluateOnExit(
        Action(rule["action"].lower()),
        on_status_reason=rule.get("onStatusReason"),
        on_reason=rule.get("onReason"),
        on_exit_code=rule.get("onExitCode"),
    )


def test_every_job_has_the_region_of_its_environment_unless_the_file_has_another() -> None:
    for step in (Step("a", commands=("x",)), Step("a", command="x")):
        assert variables_of(rendered(step)) == {
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        found = rendered(Step("a", command="x", env={name: "eu-west-1"}))
        assert variables_of(found) == {
            "AWS_REGION": "eu-west-1",
            "AWS_DEFAULT_REGION": "eu-west-1",
        }


def variables_of(found: Rendered) -> dict[str, str]:
    environment = definition_of(found, "a")["containerProperties"]["environment"]
    return {entry["name"]: entry["value"] for entry in environment}


def test_the_container_has_the_mounts_limits_and_user_of_the_step() -> None:
    step = Step(
        "a",
        commands=("x",),
        mounts=(
            Mount("/data", efs="fs-0123abcd", folder="/sub", read_only=True),
            Mount("/point", efs="fs-0123abcd", access_point="fsap-0123abcd"),
            Mount("/shared", host="/mnt/shared"),
            Mount("/fast", instance_store=True),
        ),
        ulimits={"nofile": "1024:65536", "memlock": "-1:-1"},
        user="1000:1000",
    )
    plan = planning.make(Pipeline("demo", (step,)))
    assert planning.from_json(json.loads(json.dumps(planning.to_json(plan)))) == plan
    container = definition_of(rendered(step), "a")["containerProperties"]
    assert [volume["name"] for volume in container["volumes"]] == [
        point["sourceVolume"] for point in container["mountPoints"]
    ]
    assert [(point["containerPath"], point["readOnly"]) for point in container["mountPoints"]] == [
        ("/data", True),
        ("/point", False),
        ("/shared", False),
        ("/fast", False),
    ]
    sources = [{**volume, "name": ""} for volume in container["volumes"]]
    efs = {"fileSystemId": "fs-0123abcd", "transitEncryption": "ENABLED"}
    point = {"accessPointId": "fsap-0123abcd"}
    assert sources == [
        {"name": "", "efsVolumeConfiguration": {**efs, "rootDirectory": "/sub"}},
        {
            "name": "",
            "efsVolumeConfiguration": {**efs, "rootDirectory": "/", "authorizationConfig": point},
        },
        {"name": "", "host": {"sourcePath": "/mnt/shared"}},
        {"name": "", "host": {"sourcePath": "/mnt/instance-store"}},
    ]
    assert container["ulimits"] == [
        {"name": "memlock", "softLimit": -1, "hardLimit": -1},
        {"name": "nofile", "softLimit": 1024, "hardLimit": 65536},
    ]
    assert container["user"] == "1000:1000"


def test_a_worker_knows_the_timeout_of_its_attempts() -> None:
    found = rendered(Step("a", commands=("x",), timeout_s=600))
    assert variables_of(found)["BATCHYARD_TIMEOUT_S"] == "600"
    assert "BATCHYARD_TIMEOUT_S" not in variables_of(rendered(Step("a", command="x", timeout_s=60)))


def test_a_worker_knows_which_of_its_own_errors_are_retried() -> None:
    names = {"BATCHYARD_RETRIED_ERRORS", "BATCHYARD_ATTEMPTS"}
    variables = variables_of(rendered(Step("a", commands=("x",), retries=1)))
    assert {name: variables[name] for name in names} == {
        "BATCHYARD_RETRIED_ERRORS": "70,71,72,77",
        "BATCHYARD_ATTEMPTS": "4",
    }
    for step in (Step("a", commands=("x",)), Step("a", command="x", retries=1)):
        assert not names & set(variables_of(rendered(step)))


@pytest.mark.parametrize("choice", ["ENABLED", "DISABLED"])
def test_the_environment_decides_whether_fargate_tasks_get_a_public_address(choice: str) -> None:
    role = "arn:aws:iam::123456789012:role/lab-execution"
    where = replace(ENVIRONMENT, assign_public_ip=choice, execution_role=role)
    found = rendered(
        Step("a", command="x", queue="fargate"),
        environment=where,
        fargate_queues=("fargate",),
    )
    container = definition_of(found, "a")["containerProperties"]
    assert container["networkConfiguration"] == {"assignPublicIp": choice}


def test_no_output_is_dropped_unless_the_file_allows_it() -> None:
    def mode(step: Step) -> str:
        container = definition_of(rendered(step), "a")["containerProperties"]
        return str(container["logConfiguration"]["options"]["mode"])

    assert mode(Step("a", command="x")) == "blocking"
    assert mode(Step("a", command="x", log_mode="non-blocking")) == "non-blocking"


def test_the_workers_rules_fit_in_five_whatever_the_user_says() -> None:
    codes = tuple(ExitRule(first=code, last=code) for code in range(2, 100))
    found = rendered(
        Step("a", commands=("x",), retries=9, retry_on=(ExitRule(word="any"),), fail_on=codes)
    )
    strategy = definition_of(found, "a")["retryStrategy"]
    assert strategy["attempts"] == 10 and len(strategy["evaluateOnExit"]) <= 5


def test_what_aws_cannot_be_told_is_refused_with_all_reasons_at_once() -> None:
    plan = planning.make(
        Pipeline(
            "demo",
            (
                Step(
                    "a",
                    command="true",
                    retries=1,
                    retry_on=(ExitRule(first=64, last=78),),
                    timeout_s=5,
                ),
                Step("b", command="true", share="team"),
            ),
            fail_fast=True,
        )
    )
    with pytest.raises(InputError) as caught:
        render.render(plan, target(images={"a": "image"}))
    said = caught.value.message
    for part in (
        "come to 16",
        "timeout 5 s",
        "'b' has no image",
        "no fair-share policy",
        "fail_fast",
    ):
        assert part in said, part


def test_secrets_need_a_role_that_reads_them() -> None:
    step = Step(
        "a", command="true", secrets={"KEY": "arn:aws:ssm:us-east-1:123456789012:parameter/key"}
    )
    with pytest.raises(
        InputError, match=r"step 'a' has secrets.*'lab' has none: add `execution_role:`"
    ):
        rendered(step)
    rendered(
        step, environment=replace(ENVIRONMENT, execution_role="arn:aws:iam::123456789012:role/exec")
    )


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            Step("a", command=f"echo {'x' * 7_500}"),
            "AWS Batch takes 7,492: put the command into a script",
        ),
        (
            Step("a", commands=("x",), env={"LONG": "x" * 25_000}),
            "bytes, and AWS Batch takes 24,576",
        ),
    ],
)
def test_what_is_too_large_for_aws_is_refused_in_the_plan(step: Step, words: str) -> None:
    with pytest.raises(InputError, match=words):
        rendered(step)


def test_a_list_may_be_of_any_length_and_a_long_command_that_fits_is_taken() -> None:
    rendered(
        Step("a", commands=("x" * 100_000,) * 10, array=5), Step("b", command=f"echo {'x' * 6_500}")
    )


def left_of(step: Step, numbers: list[int], *others: Step) -> Rendered:
    """What a retry of these children is."""
    plan = planning.make(Pipeline("demo", (step, *others)))
    plan = planning.select_unfinished(plan, {one.name: numbers for one in (step, *others)})
    found = render.render(plan, target(images={one.name: "image" for one in (step, *others)}))
    for part in found.parts:
        assert len(str(part.request["containerOverrides"])) < 8_192
    return found


@pytest.mark.parametrize(
    ("size", "numbers", "parts"),
    [
        (3_000, list(range(1, 3_000, 2)), 1),
        (10_000, list(range(1, 10_000, 2)), 2),
        (1_000_000, list(range(0, 1_000_000, 97)), 5),
        (100_000, list(range(0, 100_000, 2)), 16),
        (10_000, [7], 1),
    ],
)
def test_scattered_children_of_a_plain_command_are_few_arrays(
    size: int, numbers: list[int], parts: int
) -> None:
    found = left_of(Step("a", command="echo", array=size), numbers).parts
    assert len(found) <= parts
    assert [part.offset for part in found] == [
        sum(one.size for one in found[:n]) for n in range(len(found))
    ]
    assert (
        sum(part.size for part in found) == len(numbers)
        and max(part.size for part in found) <= 10_000
    )


def test_arrays_that_wait_child_by_child_are_split_alike_whatever_they_are_told() -> None:
    plain = Step("a", command=f"echo {'x' * 6_000}", array=4_000)
    listed = Step("b", commands=("x",) * 4_000, array=4_000, needs=(Need("a", each=True),))
    last = Step("c", command="echo", array=4_000, needs=(Need("b", each=True),))
    found = left_of(plain, list(range(0, 4_000, 2)), listed, last).parts
    sizes = {step: [part.size for part in found if part.step == step] for step in "abc"}
    assert len(sizes["a"]) > 1 and sizes["a"] == sizes["b"] == sizes["c"]
    pairs = [(part.name.rpartition("-")[2], part.needs) for part in found if part.step == "b"]
    assert pairs == [(number, ((f"demo-20260101-abcdef-a-{number}", True),)) for number, _ in pairs]


def test_a_retry_waits_child_by_child_where_the_needed_child_is_repeated() -> None:
    steps = (
        Step("a", command="echo", array=6),
        Step("b", commands=("x",) * 6, array=6, needs=(Need("a", each=True),)),
        Step("c", command="echo", array=6, needs=(Need("b", each=True),)),
        Step("d", command="echo", needs=(Need("c"),)),
    )
    left = {"a": [1, 4], "b": [1, 3, 4], "c": [0, 1, 3, 4, 5], "d": [0]}
    plan = planning.select_unfinished(planning.make(Pipeline("demo", steps)), left)
    rendered_parts = render.render(plan, target(images=dict.fromkeys("abcd", "image"))).parts
    run = "demo-20260101-abcdef"
    assert [(part.name, part.offset, part.size) for part in rendered_parts] == [
        (f"{run}-a", 0, 2),
        (f"{run}-b-0", 0, 1),
        (f"{run}-b-1", 1, 2),
        (f"{run}-c-0", 0, 2),
        (f"{run}-c-1", 2, 1),
        (f"{run}-c-2", 3, 2),
        (f"{run}-d", 0, 1),
    ]
    assert {part.name.removeprefix(f"{run}-"): part.needs for part in rendered_parts} == {
        "a": (),
        "b-0": (),
        "b-1": ((f"{run}-a", True),),
        "c-0": (),
        "c-1": ((f"{run}-b-0", False),),
        "c-2": ((f"{run}-b-1", True),),
        "d": ((f"{run}-c-0", False), (f"{run}-c-1", False), (f"{run}-c-2", False)),
    }


def test_a_part_is_ready_when_the_parts_that_it_waits_for_have_ended() -> None:
    many = [Step(f"x{n}", command="echo") for n in range(30)]
    steps = (
        Step("a", command="echo", array=6),
        Step("b", command="echo", array=6, needs=(Need("a", each=True),)),
        *many,
        Step("c", command="echo", needs=tuple(Need(step.name) for step in many)),
    )
    plan = planning.make(Pipeline("demo", steps))
    left = {step.name: [0] for step in steps} | {"a": [1, 4], "b": [1, 3, 4]}
    plan = planning.select_unfinished(plan, left)
    images = {step.name: "image" for step in steps}
    parts = render.render(plan, target(images=images)).parts
    run = "demo-20260101-abcdef"
    ended_ms = {f"{run}-a": 7_000} | {f"{run}-x{n}": n for n in range(30)}
    ready_ms = render.find_ready_times(parts, ended_ms)
    assert (ready_ms[f"{run}-b-0"], ready_ms[f"{run}-b-1"]) == (0, 7_000)
    # through the jobs that only wait
    assert ready_ms[f"{run}-c"] == 29


def test_groups_of_one_child_share_the_jobs_that_wait_for_a_whole_step() -> None:
    """Step c has 32 parts, and step d has 32 parts of one child that wait for all of them."""
    steps, left = [], {}
    for name, size in (("c", 64), ("d", 32)):
        needed = [Step(f"{name}{bit}", command="echo", array=size) for bit in range(5)]
        needs = [Need(step.name, each=True) for step in needed]
        needs += [Need("c")] if name == "d" else []
        steps += [*needed, Step(name, command="echo", array=size, needs=tuple(needs))]
        left |= {f"{name}{bit}": [n for n in range(size) if n >> bit & 1] for bit in range(5)}
        left[name] = list(range(size))
    plan = planning.select_unfinished(planning.make(Pipeline("demo", tuple(steps))), left)
    images = {step.name: "image" for step in steps}
    parts = render.render(plan, target(images=images)).parts
    assert [sum(part.step == step for part in parts) for step in "cd"] == [32, 33]
    assert sum(part.is_barrier for part in parts) == 1


def test_parts_of_a_step_are_not_named_like_another_step() -> None:
    steps = (
        Step("a", command="echo", array=6),
        Step("a-0", command="echo", needs=(Need("a"),)),
        Step("b", command="echo", array=6, needs=(Need("a", each=True),)),
        Step("b-1", command="echo", needs=(Need("b"),)),
    )
    plan = planning.make(Pipeline("demo", steps))
    plan = planning.select_unfinished(plan, {"a": [4], "a-0": [0], "b": [3, 4], "b-1": [0]})
    images = {step.name: "image" for step in steps}
    parts = render.render(plan, target(images=images)).parts
    run = "demo-20260101-abcdef"
    assert [part.name for part in parts] == [
        *(f"{run}-a", f"{run}-a-0", f"{run}-b-0", f"{run}-b-1_", f"{run}-b-1")
    ]
    assert parts[-1].needs == ((f"{run}-b-0", False), (f"{run}-b-1_", False))


def test_parts_that_scale_adds_are_not_named_like_another_step() -> None:
    requests = rendered(Step("a", command="echo", array=6), Step("a-added1", command="echo"))
    job = planning.make(Pipeline("demo", (Step("a", command="echo", array=6),))).job("a")
    added = [AddedJob(6, 2, False), AddedJob(8, 2, False)]
    run = "demo-20260101-abcdef"
    assert [part.name for part in render.render_added(requests, job, target(), added)] == [
        *(f"{run}-a-added0", f"{run}-a-added1_")
    ]


def test_groups_of_a_retry_are_split_alike_where_they_are_too_large() -> None:
    a = Step("a", command="echo", array=40_000)
    b = Step("b", command="echo", array=40_000, needs=(Need("a", each=True),))
    plan = planning.make(Pipeline("demo", (a, b)))
    plan = planning.select_unfinished(plan, {"a": range(25_000), "b": range(40_000)})
    rendered_parts = render.render(plan, target(images={"a": "image", "b": "image"})).parts
    parts = {step: [part for part in rendered_parts if part.step == step] for step in "ab"}
    assert [part.size for part in parts["a"]] == [8_333, 8_333, 8_334]
    assert [part.size for part in parts["b"]] == [7_500, 7_500, 8_333, 8_333, 8_334]
    needs = [part.needs for part in parts["b"]]
    assert needs == [(), (), *(((part.name, True),) for part in parts["a"])]


def test_a_command_that_could_not_be_retried_is_refused_before_it_runs() -> None:
    for length in (6_900, 7_100, 7_300):
        step = Step("a", command=f"echo {'x' * length}", array=100)
        try:
            rendered(step)
        except InputError as exc:
            assert "put the command into a script" in exc.message
            continue
        left_of(step, [99])
        left_of(step, list(range(0, 100, 2)))
    with pytest.raises(InputError, match="put the command into a script"):
        rendered(Step("a", command=f"echo {'x' * 7_300}", array=100))


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "busybox"])
def test_a_compacted_array_of_a_plain_command_keeps_its_numbers(shell: str) -> None:
    """The shell that finds them, in the shells that images have."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    numbers = [0, 1, 2, 7, 9, 9_000, *range(9_500, 10_000)]
    plan = planning.make(
        Pipeline("demo", (Step("a", command='echo "$AWS_BATCH_JOB_ARRAY_INDEX"', array=10_000),))
    )
    (part,) = render.render(
        planning.select_unfinished(plan, {"a": numbers}), target(images={"a": "image"})
    ).parts
    script = part.request["containerOverrides"]["command"][2].replace(
        "echo ", "set -eu; env | grep BATCH; echo $# "
    )
    assert part.size == len(numbers)
    for child in (0, 2, 3, 4, 5, 6, 505):
        environ = {"AWS_BATCH_JOB_ARRAY_INDEX": str(child), "PATH": os.environ["PATH"]}
        command = [found, *(["sh"] if shell == "busybox" else []), "-c", script]
        said = subprocess.run(
            command, env=environ, capture_output=True, text=True, check=True
        ).stdout
        lines = set(said.split("\n"))
        assert {
            f"AWS_BATCH_JOB_ARRAY_INDEX={numbers[child]}",
            "AWS_BATCH_JOB_ARRAY_SIZE=10000",
        } <= lines
        assert f"0 {numbers[child]}" in lines


def test_every_child_of_every_part_finds_its_number() -> None:
    numbers = sorted({number * number % 499 for number in range(300)})
    step = Step("a", command=f"echo $AWS_BATCH_JOB_ARRAY_INDEX; : {'x' * 6_700}", array=500)
    parts = left_of(step, numbers).parts
    assert len(parts) > 1
    said: list[int] = []
    for part in parts:
        script = part.request["containerOverrides"]["command"][2]
        loop = f"for AWS_BATCH_JOB_ARRAY_INDEX in $(seq 0 {part.size - 1}); do ({script}) ; done"
        said += map(
            int,
            subprocess.run(
                ["sh", "-c", loop], capture_output=True, text=True, check=True
            ).stdout.split(),
        )
    assert said == numbers


def test_a_queue_with_a_policy_gets_the_share() -> None:
    found = rendered(
        Step("a", commands=("x",), share="vision", priority=7), fair_queues=frozenset({"cpu"})
    )
    assert found.parts[0].request["shareIdentifier"] == "vision"
    assert definition_of(found, "a")["schedulingPriority"] == 7
    with pytest.raises(InputError, match="has a fair-share policy"):
        rendered(Step("a", commands=("x",)), fair_queues=frozenset({"cpu"}))


def test_max_running_is_a_consumable_resource() -> None:
    found = rendered(Step("a", commands=("x", "y"), array=2, max_running=1))
    assert found.counters == {"demo-20260101-abcdef-a": 1}
    override = found.parts[0].request["consumableResourcePropertiesOverride"]
    assert override["consumableResourceList"] == [
        {"consumableResource": "demo-20260101-abcdef-a", "quantity": 1}
    ]


def test_a_target_goes_through_json_unchanged() -> None:
    one = target(images={"a": "b"}, fair_queues=frozenset({"cpu"}), on_demand=True)
    assert targets.from_json(targets.to_json(one)) == one
