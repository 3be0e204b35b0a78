"""Pipelines and lists that are built in Python: the same mistakes as a file, printed as a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchyard import Pipeline, Step
from batchyard.engines.memory import MemoryEngine, Result
from batchyard.errors import InputError, PipelineFileError

PRINTED = """\
name: demo
params:
  slices: '64'
steps:
- name: cut
  commands:
  - ./cut 64 a
  - ./cut 64 b
  array: 2
  memory: 2GiB
- name: train
  command: |-
    make
    ./train
  array: 2
  needs:
  - step: cut
    each: true
  gpus: 1
  timeout: 1h
  retry_on:
  - oom
  - 64-78
"""


def make_demo() -> Pipeline:
    return Pipeline(
        "demo",
        [
            Step("cut", commands=("./cut ${params.slices} a", "./cut ${params.slices} b"), array=2),
            Step(
                "train",
                command="make\n./train",
                array=2,
                needs=[{"step": "cut", "each": True}],
                gpus=1,
                memory="512MiB",
                timeout="1h",
                retry_on=["oom", "64-78"],
            ),
        ],
        params={"slices": 64},
        defaults={"memory": "2GiB"},
    )


def test_a_pipeline_prints_as_its_file(tmp_path: Path) -> None:
    demo = make_demo()
    printed = str(demo)
    assert printed == PRINTED
    (tmp_path / "demo.yaml").write_text(printed)
    loaded = Pipeline.load(tmp_path / "demo.yaml")
    assert loaded.model.steps == demo.model.steps and str(loaded) == printed


def reload(pipeline: Pipeline, folder: Path) -> Pipeline:
    (folder / "printed.yaml").write_text(str(pipeline))
    return Pipeline.load(folder / "printed.yaml")


def test_weights_of_any_size_are_printed_as_a_file_has_them(tmp_path: Path) -> None:
    weights = (0.00001, 0.1 + 0.2, 1e16, 1 / 3e4, 5e-324, 1.7976931348623157e308)
    step = Step("a", commands=["x"] * len(weights), share_out="dynamic", weight=weights)
    pipeline = Pipeline("demo", [step])
    assert pipeline.model.steps[0].weight == weights
    assert reload(pipeline, tmp_path).model.steps == pipeline.model.steps


@pytest.mark.parametrize("weight", [float("inf"), float("nan"), "1e999", -1.0, "1e", "e5"])
def test_weights_that_are_no_finite_numbers(weight: object) -> None:
    with pytest.raises(PipelineFileError, match="write a number, 0 or more"):
        Pipeline("demo", [Step("a", commands=["x"], share_out="dynamic", weight=[weight])])


def test_params_of_a_printed_pipeline_are_filled_in_once(tmp_path: Path) -> None:
    steps = [
        Step("a", command="echo ${params.x}"),
        Step("b", commands=["echo ${params.x} ${params.y}", "$x"]),
    ]
    pipeline = Pipeline("demo", steps, params={"x": "${params.y}", "y": "z", "dollar1": "w"})
    assert pipeline.model.steps[0].command == "echo ${params.y}"
    again = reload(pipeline, tmp_path)
    assert again.model.steps == pipeline.model.steps
    assert str(again) == str(pipeline)


def test_a_pipeline_runs_in_the_current_folder() -> None:
    run = make_demo().run(engine=MemoryEngine())
    assert run.wait() == "SUCCEEDED"
    assert make_demo().model.folder == Path.cwd()


def test_the_mistakes_are_those_of_the_file() -> None:
    with pytest.raises(PipelineFileError) as caught:
        Pipeline("demo", [Step("a", comand="x", cpus="many"), Step("b", command="y", needs=["z"])])
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        '<pipeline>:4:3: unknown key "comand" in a step; did you mean "command"?',
        '<pipeline>:5:9: cpus is "many"; write a whole number from 1 to 100,000',
        '<pipeline>:9:5: there is no step "z"; the other steps are a',
    ]


def test_values_that_no_file_has() -> None:
    with pytest.raises(InputError, match="steps: env: X is <object object"):
        Pipeline("demo", [Step("a", command="x", env={"X": object()})])


def test_commands_from_python_are_a_plain_list() -> None:
    pipeline = Pipeline.commands(
        ["echo 1", "false", "echo ${params.n}"], name="Two words", retries=1, params={"n": "3"}
    )
    assert pipeline.name == "two-words"
    run = pipeline.run(engine=MemoryEngine(lambda call: Result(int(call.command == "false"))))
    assert run.wait() == "FAILED"
    assert run.status()["steps"][0]["commands"] == {"total": 3, "succeeded": 2, "failed": 1}
    assert [(c["command"], c["attempts"]) for c in run.commands(failed=True)] == [(1, 2)]
    planned = run.plan_retry()["commands"]
    assert [(entry["command"], entry["reason"]) for entry in planned] == [
        (1, "no success record: exit code 1")
    ]
    assert [entry["command"] for entry in run.plan_retry(command=2)["commands"]] == [2]
    again = Pipeline("list", [Step("list", commands=["a"], share_out="dynamic", keep_going=True)])
    assert Pipeline.commands(["a"]).model.steps == again.model.steps


def test_a_child_to_repeat_has_a_step() -> None:
    pipeline = Pipeline("demo", [Step("a", command="x", array=3)])
    run = pipeline.run(engine=MemoryEngine(lambda call: Result(1)))
    assert run.wait() == "FAILED"
    for repeat in (run.retry, run.plan_retry):
        with pytest.raises(InputError, match="of which step is child 1 meant") as caught:
            repeat(index=1)
        assert caught.value.hint == "its steps are: a"
    with pytest.raises(InputError, match="a command is a part of its own"):
        run.plan_retry(index=1, command=2)
    assert [entry["index"] for entry in run.plan_retry("a", "1")["commands"]] == [1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("commands", "mistake"),
    [
        ([], "commands: there is no command; write at least one"),
        (["a", "b\nc"], "commands: command 1 is 'b\\nc'; write one line of text"),
        ("ls", "commands: they are the text 'ls'; write a list of texts"),
        ([7], "commands: command 0 is 7; write one line of text"),
        (["a\0"], "commands: command 0 is 'a\\x00'; write one line of text"),
        (["${params.x}"], 'commands: there is no parameter "x"; write it under params'),
    ],
)
def test_commands_that_are_no_list(commands: list[str] | str, mistake: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        Pipeline.commands(commands)
    assert str(caught.value) == mistake


def test_settings_of_a_list_that_have_another_type() -> None:
    with pytest.raises(PipelineFileError) as caught:
        Pipeline.commands(["a"], array="3", cpus=1.5, gpus=True, memory_mib=0, timeout_s="3m")  # type: ignore[arg-type]
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        "commands: --array is '3'; write a whole number from 1 to 1,000,000",
        "commands: --cpus is 1.5; write a whole number from 1 to 100,000",
        "commands: --gpus is True; write a whole number from 0 to 100,000",
        "commands: memory_mib is 0; write a whole number of MiB, 1 or more",
        "commands: timeout_s is '3m'; write a whole number of seconds, 1 or more",
    ]
    params: dict[str, str] = {"x": 5}  # type: ignore[dict-item]
    assert Pipeline.commands(["echo ${params.x}"], params=params).model.steps[0].commands == (
        "echo 5",
    )


@pytest.mark.parametrize("digits", ["²", "٣", "9" * 5000])
def test_digits_that_are_no_number(digits: str) -> None:
    run = Pipeline.commands(["true"], name="c").run(engine=MemoryEngine())
    with pytest.raises(InputError, match="step 'c' has no child"):
        run.plan_retry("c", digits)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the run has no command"):
        run.plan_retry(command=f"c:{digits}")
