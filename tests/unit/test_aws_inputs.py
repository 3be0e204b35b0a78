"""Inputs that neither the workspace nor a step before gives."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from batchyard import plan as planning
from batchyard.engines.aws import inputs, workspace_files
from batchyard.errors import InputError
from batchyard.pipeline_file import reading
from batchyard.plan import Plan
from batchyard.worker.globs import globs

PIPELINE = """\
name: p
image: x
steps:
  - {name: make, command: 'true', inputs: [raw], outputs: ["work/cut/*.txt", log]}
  - {name: middle, needs: [make], command: 'true'}
  - {name: use, needs: [middle], command: 'true', inputs: [INPUT]}
  - {name: beside, command: 'true', outputs: ["beside/**"]}
"""


def plan_of(folder: Path, pattern: str, only: str | None = None) -> Plan:
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE.replace("INPUT", f'"{pattern}"'))
    return planning.make(reading.load(file, {}), only=only)


def require(folder: Path, pattern: str, only: str | None = None) -> None:
    inputs.check_inputs(plan_of(folder, pattern, only), folder)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name in ("raw/1.txt", "other/a.dat", ".batchyard/hidden.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "pattern",
    [
        "raw",
        "raw/*.txt",
        "./raw/1.txt",
        "**",
        "other/**",
        "work/cut/7.txt",
        "work/**",
        "work",
        "*/cut/?.txt",
        "log/x",
    ],
)
def test_what_is_here_or_may_come_from_a_step_before_is_fine(workspace: Path, pattern: str) -> None:
    require(workspace, pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "rwa/*.txt",
        "raw/*.dat",
        "raw/2.txt",
        "work/out/*.txt",
        "work/cut/a.dat",
        "logs",
        "beside/x",
        "hidden.txt",
    ],
)
def test_what_nothing_gives_is_refused(workspace: Path, pattern: str) -> None:
    with pytest.raises(InputError) as caught:
        require(workspace, pattern)
    assert (
        f"step 'use': no file here matches the input {pattern}, and no step before it gives it"
        in str(caught.value)
    )
    assert "'make'" not in str(caught.value) and str(workspace) in str(caught.value)


def test_a_step_alone_needs_its_files_here(workspace: Path) -> None:
    with pytest.raises(InputError, match="no file here matches"):
        require(workspace, "work/cut/7.txt", only="use")
    (workspace / "work" / "cut").mkdir(parents=True)
    (workspace / "work" / "cut" / "7.txt").write_text("")
    require(workspace, "work/cut/7.txt", only="use")


def test_patterns_that_meet_are_never_taken_for_apart() -> None:
    """All small patterns against all small paths."""
    names = ["a", "b", "ab", "a*", "*b", "?", "[ab]", "[!a]b", "**", "a**"]
    texts = ["/".join(parts) for count in (1, 2, 3) for parts in product(names, repeat=count)][:400]
    paths = [
        "/".join(parts)
        for count in (1, 2, 3)
        for parts in product(("a", "b", "ab", "bb"), repeat=count)
    ]
    patterns = globs(texts)
    matched = [frozenset(path for path in paths if one.matches(path)) for one in patterns]
    apart = 0
    for one, mine in zip(patterns, matched, strict=True):
        for other, its in zip(patterns, matched, strict=True):
            if not inputs.can_overlap(one, other):
                apart += 1
                assert mine.isdisjoint(its), (one.text, other.text)
    assert apart > len(patterns)  # it does tell some apart


def test_what_cannot_go_to_s3_is_refused_by_name_and_all_at_once(workspace: Path) -> None:
    (workspace / "raw/old.txt").symlink_to("../gone.txt")
    (workspace / "raw/me").symlink_to("me")
    Path(os.fsdecode(os.fsencode(workspace) + b"/raw/b\xe4d.txt")).write_text("")
    with pytest.raises(InputError) as caught:
        require(workspace, "raw/**")
    said = str(caught.value)
    assert (
        "raw/old.txt: a link to ../gone.txt, which does not exist" in said
        and "raw/me: a link to me" in said
    )
    assert "raw/b\\xe4d.txt: its name is not UTF-8" in said and "1.txt: " not in said.replace(
        "gone.txt", ""
    )
    said.encode()
    assert "repair or remove" in caught.value.hint
    # What no pattern matches may be as it is.
    require(workspace, "other/**", only="use")


def test_links_to_files_are_files_and_what_is_no_file_is_special_files(workspace: Path) -> None:
    (workspace / "raw/linked.txt").symlink_to("1.txt")
    os.mkfifo(workspace / "raw/pipe")
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(os.path.relpath(workspace / "raw/socket"))
        names = [name for name in workspace_files.list_names(workspace) if name[:4] == "raw/"]
        checked = workspace_files.check_files(workspace, names)
    assert sorted(checked.files) == ["raw/1.txt", "raw/linked.txt"]
    assert sorted(checked.special_files) == ["raw/pipe", "raw/socket"]
    notes = inputs.check_inputs(plan_of(workspace, "raw"), workspace)
    assert len(notes) == 2 and "raw/pipe: a FIFO" in "".join(notes)
    with pytest.raises(InputError, match="no file here matches the input raw/pipe"):
        require(workspace, "raw/pipe")


def test_a_step_takes_no_file_from_here_that_an_earlier_step_writes(workspace: Path) -> None:
    plan = plan_of(workspace, "**")
    names = ["raw/1.txt", "work/cut/7.txt", "work/cut/7.dat", "log/old", "beside/x"]
    selected = inputs.select_inputs(plan, names)["use"]
    assert selected.names == {"raw/1.txt", "work/cut/7.dat", "beside/x"}
    assert selected.replaced == {"work/cut/7.txt", "log/old"}
    alone = plan_of(workspace, "**", only="use")
    assert inputs.select_inputs(alone, names)["use"].names == set(names)
    # The patterns survive the record of a run, and a retry of the last step alone.
    stored = planning.from_json(json.loads(json.dumps(planning.to_json(plan))))
    retried = planning.select_unfinished(stored, {"use": [0]})
    assert retried.job("use").earlier_outputs == ("work/cut/*.txt", "log")
    selected = inputs.select_inputs(retried, names, {"use": ["log/old"]})["use"]
    # A file that the retried run took from here was its input, and may be sent again.
    assert selected.names == {"raw/1.txt", "work/cut/7.dat", "beside/x", "log/old"}
    assert selected.replaced == {"work/cut/7.txt"}


ALL_OUTPUTS = """\
name: p
image: x
steps:
  - {name: a, command: 'true', inputs: [settings, seed], outputs: ["**"]}
  - {name: b, needs: [a], command: 'true', inputs: ["**"]}
"""


def test_an_input_of_the_earlier_step_is_one_of_the_later_step_too(tmp_path: Path) -> None:
    """`a` writes `**`; the worker uploads no input that did not change."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(ALL_OUTPUTS)
    names = ["settings", "seed/1", "made"]
    selected = inputs.select_inputs(planning.make(reading.load(file, {})), names)
    assert selected["b"].names == {"settings", "seed/1"} and selected["b"].replaced == {"made"}


PER_CHILD = """\
name: p
image: x
params: {run: night}
steps:
  - {name: a, command: 'true', array: 3, inputs: ["raw/${index}/**", "${params.run}/all"]}
  - name: b
    commands: ["use -n 1 one.txt", "use -n=2 'two words.txt'", "use -n 0 sub/three"]
    array: 2
    inputs: ["raw/${command.-n}/*", "${params.run}/${command.3}"]
"""


def test_children_name_their_own_inputs(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PER_CHILD.replace("-n=2 ", "-n 2 "))
    plan = planning.make(reading.load(file, {}))
    names = [
        *("raw/0/x", "raw/1/y", "raw/10/no", "raw/2/deep/z"),
        *("night/all", "night/one.txt", "night/two words.txt", "night/sub/three/4"),
    ]
    selected = inputs.select_inputs(plan, names)
    assert selected["a"].names == {"raw/0/x", "raw/1/y", "raw/2/deep/z", "night/all"}
    assert selected["b"].names == {
        *("raw/0/x", "raw/1/y", "night/one.txt", "night/two words.txt", "night/sub/three/4")
    }
    assert selected["b"].unmatched == {"raw/2/*": 1}
    retried = planning.select_unfinished(plan, {"a": [2], "b": [0]})
    selected = inputs.select_inputs(retried, names, {})
    assert selected["a"].names == {"raw/2/deep/z", "night/all"}
    assert selected["b"].names == {"raw/1/y", "night/one.txt"}


def test_the_child_without_its_input_is_named(tmp_path: Path) -> None:
    (tmp_path / "raw/1").mkdir(parents=True)
    (tmp_path / "raw/1/y").write_text("")
    (tmp_path / "all").write_text("")
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "name: p\nimage: x\nsteps:\n"
        "  - {name: a, command: 'true', array: 9, inputs: ['raw/${index}/**', all]}\n"
    )
    with pytest.raises(InputError) as caught:
        inputs.check_inputs(planning.make(reading.load(file, {})), tmp_path)
    message = str(caught.value)
    assert "step 'a': no file here matches the input raw/0/** of child 0, and" in message
    assert "raw/1/**" not in message and "step 'a': 3 more inputs without a file" in message
