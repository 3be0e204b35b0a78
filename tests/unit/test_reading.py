"""Valid files as pipelines, and messages for files that are missing, too large or not text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import pytest

import cpu_time
from batchyard.errors import PipelineFileError
from batchyard.pipeline import ExitRule, Mount, Need, Pipeline, Step, sort_by_needs
from batchyard.pipeline_file import plain_lists, reading, text_files

HEAD = "name: p\nsteps:\n"


def load(
    folder: Path, text: str | bytes, params: dict[str, str] | None = None, name: str = "p.yaml"
) -> Pipeline:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return reading.load(path, params)


def mistakes(folder: Path, text: str | bytes, params: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(PipelineFileError) as caught:
        load(folder, text, params)
    return [str(mistake).replace(f"{folder}/", "") for mistake in caught.value.mistakes]


def list_mistakes(path: Path, **settings: int | str) -> list[str]:
    with pytest.raises(PipelineFileError) as caught:
        plain_lists.load_list(path, **settings)  # type: ignore[arg-type]
    return [str(mistake).replace(f"{path.parent}/", "") for mistake in caught.value.mistakes]


# -- what a file becomes -----------------------------------------------------------------------


def test_the_smallest_pipeline(tmp_path: Path) -> None:
    pipeline = load(tmp_path, "name: p\nsteps: [{name: a, command: true}]")
    assert pipeline == Pipeline("p", (Step("a", command="true"),), path=tmp_path / "p.yaml")


def test_every_key_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("one\ntwo ${params.slices}\n")
    text = """
name: reconstruction
image: recon:latest
env: {OMP_NUM_THREADS: "1", MODE: fast}
params: {slices: 64}
defaults: {cpus: 1, memory: 2GiB, timeout: 1h, retries: 2}
workspace: data
fail_fast: yes
steps:
  - name: preprocess
    commands_file: list.txt
    array: 2
    inputs: ["raw/**"]
    outputs: ["flat/**"]
  - name: reconstruct
    needs: [{step: preprocess, each: true}]
    command: python r.py ${params.slices} $HOME ${x}
    array: 2
    gpus: 1
    cpus: 4
    memory: 16GiB
    timeout: 30m
    expect: 3m
    retries: 3
    retry_on: [spot, 75, "64-78"]
    fail_on: [2]
    max_running: 20
    keep_going: true
    image: gpu:1
    env: {MODE: exact}
    secrets: {TOKEN: "arn:aws:secretsmanager:x"}
    queue: gpu-spot
    share: teamA
    priority: 50
    checkpoint: [state/*]
    shm: 1GiB
    log_mode: non-blocking
    mounts:
      - {path: /data, efs: fs-0123abcd, access_point: fsap-0123abcd, read_only: true}
      - {path: /fast, instance_store: true}
    ulimits: {nofile: 65536, memlock: -1, stack: "1:2"}
    user: 1000:1000
"""
    pipeline = load(tmp_path, text)
    first = Step(
        "preprocess",
        commands=("one", "two 64"),
        array=2,
        inputs=("raw/**",),
        outputs=("flat/**",),
        memory_mib=2048,
        timeout_s=3600,
        retries=2,
        image="recon:latest",
        env={"OMP_NUM_THREADS": "1", "MODE": "fast"},
    )
    second = Step(
        "reconstruct",
        command="python r.py 64 $HOME ${x}",
        array=2,
        needs=(Need("preprocess", each=True),),
        checkpoint=("state/*",),
        cpus=4,
        memory_mib=16384,
        gpus=1,
        timeout_s=1800,
        expect_s=180,
        retries=3,
        retry_on=(ExitRule(word="spot"), ExitRule(first=75, last=75), ExitRule(first=64, last=78)),
        fail_on=(ExitRule(first=2, last=2),),
        max_running=20,
        keep_going=True,
        image="gpu:1",
        env={"OMP_NUM_THREADS": "1", "MODE": "exact"},
        secrets={"TOKEN": "arn:aws:secretsmanager:x"},
        queue="gpu-spot",
        share="teamA",
        priority=50,
        shm_mib=1024,
        log_mode="non-blocking",
        mounts=(
            Mount("/data", efs="fs-0123abcd", access_point="fsap-0123abcd", read_only=True),
            Mount("/fast", instance_store=True),
        ),
        ulimits={"nofile": "65536:65536", "memlock": "-1:-1", "stack": "1:2"},
        user="1000:1000",
    )
    assert pipeline.steps == (first, second)
    assert (pipeline.workspace, pipeline.fail_fast, pipeline.params) == (
        "data",
        True,
        {"slices": "64"},
    )
    assert pipeline.warnings == ()


def test_values_of_env_and_params_are_the_text_that_was_written(tmp_path: Path) -> None:
    text = (
        "env: {A: yes, B: 1, C: 0.10, D: 1_000, E: '', F: 2001-01-01, G: 0o7}\n"
        + HEAD
        + "- {name: a, command: 'true'}"
    )
    env = load(tmp_path, text).steps[0].env
    assert env == {
        "A": "yes",
        "B": "1",
        "C": "0.10",
        "D": "1_000",
        "E": "",
        "F": "2001-01-01",
        "G": "0o7",
    }


def test_numbers_may_have_underscores_and_truth_may_be_yes(tmp_path: Path) -> None:
    step = load(tmp_path, HEAD + "- {name: a, command: x, array: 1_000_000, keep_going: on}").steps[
        0
    ]
    assert (step.array, step.keep_going) == (1_000_000, True)


def test_a_command_may_be_a_script_of_several_lines(tmp_path: Path) -> None:
    text = HEAD + "- name: a\n  command: |\n    set -e\n    make all\n"
    assert load(tmp_path, text).steps[0].command == "set -e\nmake all"


def test_each_between_single_children_is_a_plain_need(tmp_path: Path) -> None:
    text = HEAD + (
        "- {name: a, command: x}\n- {name: b, command: x, array: 1, needs: [{step: a, each: true}]}"
    )
    assert load(tmp_path, text).steps[1].needs == (Need("a", each=False),)


def test_a_need_may_come_before_its_step(tmp_path: Path) -> None:
    text = HEAD + "- {name: a, command: x, needs: [b]}\n- {name: b, command: x}"
    assert [step.name for step in load(tmp_path, text).steps] == ["a", "b"]


def test_anchors_aliases_and_merges_work(tmp_path: Path) -> None:
    text = (
        HEAD
        + "- &a {name: a, command: &c echo, cpus: 2, env: {X: 1}}\n- {<<: *a, name: b, cpus: 3}\n"
    )
    text += "- {<<: [{gpus: 1}, *a], name: c, command: *c}\n"
    first, second, third = load(tmp_path, text).steps
    assert (second.command, second.cpus, second.env) == ("echo", 3, {"X": "1"})
    assert (third.command, third.cpus, third.gpus) == ("echo", 2, 1)
    assert first.gpus == 0


def test_steps_are_put_in_order_with_ties_as_written(tmp_path: Path) -> None:
    names = {"d": "[b, c]", "c": "[a]", "b": "[a]", "a": "[]", "z": "[]"}
    text = HEAD + "".join(
        f"- {{name: {name}, command: x, needs: {needs}}}\n" for name, needs in names.items()
    )
    assert [step.name for step in sort_by_needs(load(tmp_path, text).steps)] == [
        "a",
        "c",
        "b",
        "d",
        "z",
    ]
    with pytest.raises(ValueError, match="cycle among steps: a, b"):
        sort_by_needs([Step("a", needs=(Need("b"),)), Step("b", needs=(Need("a"),)), Step("c")])


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_endings_and_a_byte_order_mark_do_not_matter(
    ending: str, mark: bytes, tmp_path: Path
) -> None:
    text = ending.join(["name: p", "steps:", "- name: a", "  command: x", ""])
    assert load(tmp_path, mark + text.encode()).steps == (Step("a", command="x"),)


def test_json_is_read_too(tmp_path: Path) -> None:
    content = {
        "name": "p",
        "steps": [
            {
                "name": "a",
                "command": 'echo "\U0001f600" / \\ud83d é',
                "array": 2,
                "keep_going": False,
            }
        ],
    }
    for indent in (None, 2, "\t"):
        step = load(tmp_path, json.dumps(content, indent=indent), name="p.json").steps[0]
        assert (step.command, step.array) == ('echo "\U0001f600" / \\ud83d é', 2)


def test_paths_are_relative_to_the_pipeline_file_and_kept_absolute(tmp_path: Path) -> None:
    folder = tmp_path / "größe und mehr"
    folder.mkdir()
    (folder / "list.txt").write_text("x\n")
    (folder / "p.yaml").write_text(HEAD + "- {name: a, commands_file: list.txt}")
    pipeline = reading.load(Path(os.path.relpath(folder / "p.yaml")))
    assert pipeline.steps[0].commands == ("x",)
    assert pipeline.path is not None and pipeline.path.is_absolute()
    assert pipeline.folder == folder.resolve()


# -- warnings ----------------------------------------------------------------------------------


def test_a_short_timeout_and_idle_children_are_warned_of(tmp_path: Path) -> None:
    pipeline = load(tmp_path, HEAD + "- {name: a, commands: [x, y], array: 3, timeout: 59}")
    assert [str(warning).replace(f"{tmp_path}/", "") for warning in pipeline.warnings] == [
        (
            "p.yaml:3:38: warning: array is 3 for 2 commands: 1 child will have nothing to"
            " do; write at most 2"
        ),
        "p.yaml:3:50: warning: timeout is 59 s, and AWS Batch refuses less than 60 s;"
        " write 60s or more to run it there",
    ]
    assert (
        load(tmp_path, HEAD + "- {name: a, commands: [x, y], array: 2, timeout: 60}").warnings == ()
    )


def test_warnings_are_told_together_with_mistakes(tmp_path: Path) -> None:
    assert mistakes(tmp_path, HEAD + "- {name: a, command: x, timeout: 1s, cpus: 0}") == [
        "p.yaml:3:34: warning: timeout is 1 s, and AWS Batch refuses less than 60 s;"
        " write 60s or more to run it there",
        "p.yaml:3:44: cpus is 0; write a whole number from 1 to 100,000",
    ]


# -- parameters --------------------------------------------------------------------------------


def test_set_overrides_a_parameter(tmp_path: Path) -> None:
    text = "params: {n: 64, m: 1}\n" + HEAD + "- {name: a, command: 'x ${params.n} ${params.m}'}"
    pipeline = load(tmp_path, text, {"n": "128"})
    assert pipeline.steps[0].command == "x 128 1"
    assert pipeline.params == {"n": "128", "m": "1"}


def test_set_of_no_parameter_names_the_nearest(tmp_path: Path) -> None:
    with_params = "params: {slices: 64, angles: 3}\n" + HEAD + "- {name: a, command: x}"
    without = HEAD + "- {name: a, command: x}"
    assert mistakes(tmp_path, with_params, {"slice": "1", "zz": "1"}) == [
        'p.yaml: --set: there is no parameter "slice"; did you mean "slices"?',
        'p.yaml: --set: there is no parameter "zz"; the parameters are slices, angles',
    ]
    assert mistakes(tmp_path, without, {"n": "1"}) == [
        'p.yaml: --set: there is no parameter "n"; the file has no params'
    ]
    assert mistakes(tmp_path, with_params, {"slices": "\udcff"}) == [
        'p.yaml: --set: the value of "slices" is not UTF-8 text; write text'
    ]


def test_only_the_exact_form_is_a_parameter(tmp_path: Path) -> None:
    command = "a ${param.n} $params.n ${params} ${params.n:-3} ${PARAMS.n} ${ params.n } $n"
    text = "params: {n: 1}\n" + HEAD + f"- {{name: a, command: '{command}'}}"
    assert load(tmp_path, text).steps[0].command == command


def test_a_value_is_not_looked_into_for_parameters(tmp_path: Path) -> None:
    text = "params: {a: '${params.b}', b: 2}\n" + HEAD + "- {name: a, commands_file: list.txt}"
    (tmp_path / "list.txt").write_text("x ${params.a} ${params.b}\n")
    assert load(tmp_path, text).steps[0].commands == ("x ${params.b} 2",)


def test_unreadable_params_make_no_further_mistakes(tmp_path: Path) -> None:
    text = "params: [n]\n" + HEAD + "- {name: a, command: 'x ${params.n}'}"
    assert mistakes(tmp_path, text) == [
        "p.yaml:1:9: params is a list; write a mapping, like {slices: 64}"
    ]


# -- commands files ----------------------------------------------------------------------------

WITH_LIST = HEAD + "- {name: a, commands_file: list.txt}"


def test_commands_files_skip_blanks_and_comments(tmp_path: Path) -> None:
    content = "\ufeff# head\r\n\r\n  one  # not a comment\t\r\n\t# comment ${params.none}\r\n"
    content += " \ntwo\u00a0\n#x\nthree"
    (tmp_path / "list.txt").write_bytes(content.encode())
    assert load(tmp_path, WITH_LIST).steps[0].commands == (
        "one  # not a comment",
        "two\u00a0",
        "three",
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "list.txt: there is no command in the file; write one command a line"),
        (b"\n# x\n \r\n", "list.txt: there is no command in the file; write one command a line"),
        (b"one\ntwo \xe9\n", "list.txt:2:5: the byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (
            "one\n".encode("utf-16"),
            (
                "list.txt:1:1: the byte 0xff is not UTF-8; the file looks like UTF-16: save"
                " it as UTF-8"
            ),
        ),
        (b"one\ntw\0o\n", "list.txt:2:3: a NUL byte in the file; remove it"),
        (
            b"one\rtwo\r",
            "list.txt:1:4: a carriage return inside a line; end lines with LF or CR LF",
        ),
        (
            b"# ${params.x}\none\n  two ${params.x}\n${params.x}\n",
            'list.txt:3:7: there is no parameter "x"; write it under params',
        ),
    ],
)
def test_what_is_wrong_in_a_commands_file_is_told_with_its_line(
    content: bytes, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "list.txt").write_bytes(content)
    assert mistakes(tmp_path, WITH_LIST) == [expected]


def test_a_commands_file_of_two_steps_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"")
    text = WITH_LIST + "\n- {name: b, commands_file: list.txt, cpus: 0}"
    assert mistakes(tmp_path, text) == [
        "p.yaml:4:44: cpus is 0; write a whole number from 1 to 100,000",
        "list.txt: there is no command in the file; write one command a line",
    ]


def test_mistakes_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_bytes(b"\xff")
    text = (
        HEAD
        + "- {name: a, commands_file: one.txt}\n- {name: b, commands_file: two.txt}\n- {name: c}\n"
    )
    assert mistakes(tmp_path, text) == [
        'p.yaml:4:28: commands_file "two.txt": there is no such file; check the path',
        'p.yaml:5:3: step "c" has nothing to run; write command:, commands: or commands_file:',
        "one.txt:1:1: the byte 0xff is not UTF-8; save the file as UTF-8",
    ]


# -- files that are no text, or not there ------------------------------------------------------


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yml").write_text("x")
    with pytest.raises(PipelineFileError) as caught:
        reading.load(tmp_path / "pipeline.yaml")
    assert str(caught.value) == (
        f'{tmp_path}/pipeline.yaml: there is no such file; did you mean "{tmp_path}/pipeline.yml"?'
    )


def test_a_folder_is_no_pipeline_file(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError) as caught:
        reading.load(tmp_path)
    assert str(caught.value) == f"{tmp_path}: this is a folder; name a file in it"


def test_a_byte_that_is_not_utf8_has_its_line_and_column(tmp_path: Path) -> None:
    content = "name: p\r\n# größe ".encode() + b"\xe9\nsteps: []\n"
    assert mistakes(tmp_path, content) == [
        "p.yaml:2:9: the byte 0xe9 is not UTF-8; save the file as UTF-8"
    ]


# -- files made to break or to slow a reader ---------------------------------------------------

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
MERGED_LAUGHS = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 12)
)
EXPLODES = "stand for more than 100,000 values; write the file with fewer aliases"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LAUGHS, f"p.yaml:5:45: the aliases up to *a3 {EXPLODES}"),
        (MERGED_LAUGHS, f"p.yaml:6:20: the aliases up to *a4 {EXPLODES}"),
        (
            "[" * 200_000,
            "p.yaml:1:41: lists and mappings nested more than 40 deep; write them flatter",
        ),
        (
            "- " * 200_000,
            "p.yaml:1:81: lists and mappings nested more than 40 deep; write them flatter",
        ),
    ],
    ids=["aliases", "merges", "brackets", "dashes"],
)
def test_files_that_explode_are_refused_at_once(text: str, expected: str, tmp_path: Path) -> None:
    with cpu_time.at_most(5):
        assert mistakes(tmp_path, text) == [expected]


def test_a_tag_that_would_run_code_runs_nothing(tmp_path: Path) -> None:
    text = (
        HEAD
        + f"- name: a\n  command: !!python/object/apply:os.system ['touch {tmp_path}/hacked']\n"
    )
    assert mistakes(tmp_path, text)[0] == (
        'p.yaml:4:12: the tag "!!python/object/apply:os.system" is not allowed:'
        " a pipeline file contains plain values; remove the tag"
    )
    assert not (tmp_path / "hacked").exists()


def test_harmless_tags_are_allowed(tmp_path: Path) -> None:
    step = load(tmp_path, HEAD + "- !!map {name: !!str a, command: ! 5, cpus: !!int 2}").steps[0]
    assert (step.name, step.command, step.cpus) == ("a", "5", 2)


def test_a_file_of_five_thousand_lines_does_not_take_long(tmp_path: Path) -> None:
    entry = "- name: s{}\n  command: echo {}\n  cpus: 2\n  memory: 2GiB\n  needs: [s{}]\n"
    good = (
        HEAD
        + "- {name: s0, command: x}\n"
        + "".join(entry.format(i, i, i - 1) for i in range(1, 1000))
    )
    bad = HEAD + "".join(
        f"- {{name: s{i}, comand{i}: x, cpus: no, needs: [t{i}]}}\n" for i in range(5000)
    )
    with cpu_time.at_most(5):
        assert len(load(tmp_path, good).steps) == 1000
    with cpu_time.at_most(20):
        assert len(mistakes(tmp_path, bad)) >= 15_000


def test_a_circle_of_thousands_of_steps_is_found(tmp_path: Path) -> None:
    steps = (f"- {{name: s{i}, command: x, needs: [s{(i + 1) % 5000}]}}\n" for i in range(5000))
    (message,) = mistakes(tmp_path, HEAD + "".join(steps))
    assert message.startswith(
        "p.yaml:3:34: the steps need each other in a cycle: s0 -> s1 -> s2 ->"
    )
    assert message.endswith("-> s4999 -> s0; remove one of these needs")


def test_a_million_commands_do_not_take_long(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("".join(f"python work.py --slice {i}\n" for i in range(1_000_000)))
    with cpu_time.at_most(20):
        pipeline = plain_lists.load_list(path, array=1000)
    commands = pipeline.steps[0].commands
    assert commands is not None and len(commands) == 1_000_000
    assert commands[-1] == "python work.py --slice 999999"


@pytest.mark.parametrize(
    ("reader", "slow"),
    [
        ("reading", {"yaml", "difflib", "jsonschema"}),
        # A run of one short command would notice the time that these take.
        ("plain_lists", {"batchyard.yaml_positions", "batchyard.pipeline_file.value_types"}),
    ],
)
def test_a_reader_imports_nothing_slow(reader: str, slow: set[str]) -> None:
    code = f"import sys, batchyard.pipeline_file.{reader}; print({slow} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# -- plain lists -------------------------------------------------------------------------------


def test_a_plain_list_is_a_pipeline_of_one_step(tmp_path: Path) -> None:
    path = tmp_path / "commands.txt"
    path.write_text("one\n\n# two\nthree ${params.n}\n")
    pipeline = plain_lists.load_list(
        path,
        array=2,
        cpus=2,
        memory_mib=1024,
        gpus=1,
        retries=3,
        timeout_s=90,
        max_running=None,
        params={"n": "3"},
    )
    step = Step(
        "commands",
        commands=("one", "three 3"),
        array=2,
        cpus=2,
        memory_mib=1024,
        gpus=1,
        retries=3,
        timeout_s=90,
        share_out="dynamic",
        keep_going=True,
    )
    assert pipeline == Pipeline("commands", (step,), path=path, params={"n": "3"})


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("commands.txt", "commands"),
        ("My Commands_v2.txt", "my-commands-v2"),
        ("2024.list", "list-2024"),
        ("Größe.txt", "groe"),
        ("日本.txt", "list"),
        ("-.txt", "list"),
        ("a" * 50, "a" * 32),
    ],
)
def test_a_plain_list_is_named_after_its_file(file: str, name: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text("x\n")
    pipeline = plain_lists.load_list(tmp_path / file)
    assert (pipeline.name, pipeline.steps[0].name) == (name, name)


def test_mistakes_of_flags_and_list_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "commands.txt"
    path.write_bytes(b"one\n\xe9\n")
    assert list_mistakes(path, array=0, cpus=0, retries=10, max_running=-1, timeout_s=5) == [
        "commands.txt: --array is 0; write a whole number from 1 to 1,000,000",
        "commands.txt: --cpus is 0; write a whole number from 1 to 100,000",
        "commands.txt: --retries is 10; write a whole number from 0 to 9",
        "commands.txt: --max-running is -1; write a whole number from 1 to 1,000,000",
        "commands.txt: warning: --timeout is 5 s, and AWS Batch refuses less than 60 s;"
        " write 60s or more to run it there",
        "commands.txt:2:1: the byte 0xe9 is not UTF-8; save the file as UTF-8",
    ]


def test_the_commands_behind_a_failure_of_a_plain_list(tmp_path: Path) -> None:
    path = tmp_path / "commands.txt"
    path.write_text("one\n")
    stopping = plain_lists.load_list(path, fail_fast=True)
    assert stopping.fail_fast and not stopping.steps[0].keep_going
    assert list_mistakes(path, share_out="often") == [
        "commands.txt: --share-out is 'often'; write one of static, strided, dynamic"
    ]


def test_a_pipe_is_a_plain_list_of_the_current_folder(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(plain_lists.load_list, pipe)
        pipe.write_bytes("\ufeffone\n# two\nthree\n".encode())
        pipeline = loading.result(300)
    assert (pipeline.name, pipeline.steps[0].commands) == ("pipe", ("one", "three"))
    assert pipeline.path is None and pipeline.folder == Path.cwd()


def test_a_pipe_that_is_removed_while_it_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(plain_lists.load_list, pipe)
        with pipe.open("w") as writer:
            writer.write("one\n")
            pipe.unlink()
        assert loading.result(300).folder == Path.cwd()


@pytest.mark.parametrize("is_removed", [True, False])
def test_an_open_file_is_a_plain_list_of_the_current_folder(
    is_removed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "commands.txt"
    path.write_text("one\n")
    with path.open() as file:
        if is_removed:
            path.unlink()
        pipeline = plain_lists.load_list(Path(f"/dev/fd/{file.fileno()}"))
    assert (pipeline.name, pipeline.steps[0].commands) == ("list", ("one",))
    assert pipeline.folder == Path.cwd()


def test_a_pipe_that_does_not_block_is_read_to_its_end() -> None:
    reading_end, writing_end = os.pipe()
    os.set_blocking(reading_end, False)
    looked_for_more = threading.Event()

    class Pipe(FileIO):
        def read(self, size: int | None = -1, /) -> bytes | None:  # type: ignore[override]
            chunk = super().read(size)
            if chunk is None:
                looked_for_more.set()
            return chunk

    with ThreadPoolExecutor() as pool, Pipe(reading_end) as pipe:
        with open(writing_end, "wb", buffering=0) as writer:
            writer.write(b"one\n")
            content = pool.submit(text_files.read_stream, pipe, 100)
            assert looked_for_more.wait(300)
            writer.write(b"two\n")
        assert content.result(300) == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("/dev/null", "there is no command in the file; write one command a line"),
        (
            "/dev/zero",
            "more than 256 MiB came through the pipe; write the list to a file, or split it",
        ),
    ],
)
def test_pipes_without_commands_or_without_an_end(name: str, mistake: str) -> None:
    with pytest.raises(PipelineFileError) as caught:
        plain_lists.load_list(Path(name))
    assert str(caught.value) == f"{name}: {mistake}"


def test_a_plain_list_that_is_not_there(tmp_path: Path) -> None:
    assert list_mistakes(tmp_path / "no.txt") == ["no.txt: there is no such file; check the path"]


def test_a_plain_list_has_more_children_than_commands(tmp_path: Path) -> None:
    path = tmp_path / "commands.txt"
    path.write_text("one\n")
    (warning,) = plain_lists.load_list(path, array=1000, share_out="static").warnings
    assert str(warning) == (
        f"{path}: warning: array is 1,000 for 1 command: 999 children will have nothing"
        f" to do; write at most 1"
    )


def test_a_dynamic_step_has_no_idle_children(tmp_path: Path) -> None:
    step = "  - {name: a, commands: [x], array: 8%s}\n"
    assert len(load(tmp_path, HEAD + step % "").warnings) == 1
    assert load(tmp_path, HEAD + step % ", share_out: dynamic").warnings == ()


@pytest.mark.parametrize(
    ("name", "is_list"),
    [
        ("a.txt", True),
        ("a", True),
        ("a.list", True),
        ("a.yaml", False),
        ("a.YML", False),
        ("a.json", False),
    ],
)
def test_a_plain_list_is_told_by_its_name(name: str, is_list: bool) -> None:
    assert plain_lists.is_command_list(Path(name)) is is_list
