"""The documentation is correct (its examples run as shown) and complete (it has every command).

The pages are docs/*.md and README.md. The words after the fence of a block select its test:

    ```yaml              a whole pipeline if it begins with `name:`. It must load; the lists that
                         it names are created.
    ```yaml a.yaml       the same, and the block is written to a.yaml for the blocks that follow
    ```yaml wrong.yaml   a name that begins with `wrong`: the pipeline must have mistakes
    ```text list.txt     any language with a file name: the block is written to the file
    ```console           a session, see below
    ```python            a program, which must exit with 0
    ```sh and others     not tested

A page has one folder. Its files, sessions and programs are written and executed there from the top
of the page to the bottom, as a reader would do it.

In a session, bash executes each line `$ command`. Lines `> more` continue a command; `cd` affects
the commands that follow, variables do not. A command must exit with 0, unless the next line is a
comment like `# exit 2`. The lines that follow are the expected stdout and stderr; a line `...`
matches any lines, and without expected lines the output is not compared. Run ids, dates, times,
process numbers, the size of the machine and the width of columns may differ. The page's folder is
shown as /home/me.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

import batchyard
from batchyard.batch.jobs import OUT_OF_MEMORY, JobState, StatusReason
from batchyard.cli.main import cli
from batchyard.embedded import children
from batchyard.engines.base import RunState
from batchyard.errors import PipelineFileError
from batchyard.pipeline import RETRY_WORDS
from batchyard.pipeline_file import container_keys, file_keys, key_limits, reading
from batchyard.services import reading as service_reading
from command_yard import Yard
from only_numpy import hide_other_libraries

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]
HOME_IN_DOCS = "/home/me"


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def is_pipeline(self) -> bool:
        lines = [line for line in self.text.splitlines() if line and not line.startswith("#")]
        is_named = self.language == "yaml" and bool(lines) and lines[0].startswith("name:")
        return is_named and not self.is_service

    @property
    def is_service(self) -> bool:
        is_yaml = self.language == "yaml" and self.text.startswith("name:")
        return is_yaml and "\nimage:" in self.text and "steps:" not in self.text


@dataclass(frozen=True)
class Command:
    line: int
    text: str
    code: int
    shown: list[str]


def blocks_of(page: Path) -> Iterator[Block]:
    fence, words, start, inside = "", [""], 0, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if fence and line.strip() == fence:
            yield Block(page, start, words[0], words[1], "".join(f"{one}\n" for one in inside))
            fence = ""
        elif fence:
            inside.append(line)
        elif match := re.match(r"(`{3,})(.*)", line):
            fence, start, inside = match[1], number, []
            words = [*match[2].split(), "", ""][:2]
    assert not fence, f"{page.name}:{start}: this block is not closed"


def commands_of(block: Block) -> Iterator[Command]:
    lines = block.text.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], f"{block}: a session begins with a command"
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        text, code, after = lines[start][2:], 0, lines[start + 1 : end]
        while after and after[0].startswith("> "):
            text += "\n" + after.pop(0)[2:]
        if after and (match := re.fullmatch(r"# exit (\d+)", after[0])):
            code = int(match[1])
            after.pop(0)
        yield Command(block.line + 1 + start, text, code, after)


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PIPELINES = [block for block in BLOCKS if block.is_pipeline]
SERVICES = [block for block in BLOCKS if block.is_service]


# -- what is shown runs ----------------------------------------------------------------------------


@pytest.mark.parametrize("block", PIPELINES, ids=str)
def test_a_pipeline_loads(block: Block, tmp_path: Path) -> None:
    path = tmp_path / (block.file or "pipeline.yaml")
    path.write_text(block.text, encoding="utf-8")
    if path.name.startswith("wrong"):
        with pytest.raises(PipelineFileError):
            reading.load(path)
        return
    for name in re.findall(r"commands_file: *([^\s,}]+)", block.text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("echo hello\n" * 1000)
    assert reading.load(path).steps


@pytest.mark.parametrize("block", SERVICES, ids=str)
def test_a_service_loads(block: Block, tmp_path: Path) -> None:
    path = tmp_path / (block.file or "service.yaml")
    path.write_text(block.text, encoding="utf-8")
    assert service_reading.load(path).name


#: pages whose commands take more than 10 s, or three seconds of CPU time and more
LONG_PAGES = ("benchmark.md", "commands.md", "cost.md", "emulator.md")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page.name in LONG_PAGES else [])
        for page in PAGES
    ],
    ids=lambda page: page.name,
)
def test_what_a_page_shows_happens(page: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for block in blocks_of(page):
        if block.file:
            path = reader.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        if block.language == "console":
            for command in commands_of(block):
                reader.does(command, page)
        elif block.language == "python":
            reader.executes([sys.executable, "-c", block.text], 0, f"{block}: the program")


class Reader:
    """Somebody who types what the page shows."""

    def __init__(self, folder: Path) -> None:
        self.folder = self.cwd = folder / "me"
        self.folder.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        for name, start in (("batchyard", "-m batchyard "), ("python", "")):
            path = programs / name
            path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {start}"$@"\n')
            path.chmod(0o755)
        self._cwd_file = folder / "cwd"
        hidden = hide_other_libraries(folder / "hidden")
        # No GPU, also where there is one: what a page shows is the same on every machine.
        self._environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(hidden), os.environ.get("PYTHONPATH")])
            ),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CUDA_VISIBLE_DEVICES": "",
            # Nor an account of AWS.
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def does(self, command: Command, page: Path) -> None:
        where = f"{page.name}:{command.line}: $ {command.text}"
        script = f'{command.text}\ncode=$?; pwd > "{self._cwd_file}"; exit $code'
        printed = self.executes(["bash", "-c", script], command.code, where)
        self.cwd = Path(self._cwd_file.read_text().rstrip("\n"))
        if command.shown:
            expected, actual = self._comparable("\n".join(command.shown)), self._comparable(printed)
            assert matches(expected, actual), (
                f"{where}\nthe page shows\n{expected}\nand it printed\n{actual}"
            )

    def executes(self, command: list[str], code: int, where: str) -> str:
        done = subprocess.run(
            command,
            cwd=self.cwd,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
        )
        printed = done.stdout.decode(errors="replace")
        assert done.returncode == code, f"{where}\nexited {done.returncode}, not {code}:\n{printed}"
        return printed

    def _comparable(self, text: str) -> str:
        text = text.replace(str(self.folder), HOME_IN_DOCS)
        for pattern, instead in _VARYING:
            text = re.sub(pattern, instead, text)
        return "\n".join(line.strip() for line in text.strip().splitlines())


#: what is another number each time, and what it is compared as
_VARYING = (
    (r"-\d{8}-[0-9a-f]{6}\b", "-DATE-ID"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"\b\d+\.\d s\b", "N s"),
    (r"process \d+ on [^\s,]+", "process N on HOST"),
    (r"there (is|are) \d+", "there are N"),
    (r"run with \d+ vCPUs?, \d+ MiB", "run with N vCPUs, N MiB"),
    (r" {2,}", "  "),
)


def matches(expected: str, actual: str) -> bool:
    """Line by line, where a line `...` stands for any number of lines."""
    parts = [re.escape(part) for part in re.split(r"(?m)^\.\.\.$", expected)]
    return re.fullmatch("(?s:.*)".join(parts), actual) is not None


def test_three_dots_stand_for_any_lines() -> None:
    assert matches("a\n...\nd", "a\nb\nc\nd")
    assert matches("...", "a\nb")
    assert not matches("a\n...", "b\na\n")
    assert not matches("a. c", "abc")


# -- what there is, is shown -----------------------------------------------------------------------


def rows_of(page: Path) -> dict[str, list[str]]:
    """First cells of the page's tables that are one word of code -> the rows."""
    rows: dict[str, list[str]] = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| `([^`]+)` \|", line):
            rows.setdefault(match[1], []).append(line)
    return rows


def prose_of(page: Path) -> str:
    """The page without its blocks, in which a `#` is a comment and no heading."""
    return re.sub(r"(?ms)^(`{3,}).*?^\1$", "", page.read_text(encoding="utf-8"))


def section_of(page: Path, heading: str) -> str:
    """The text under a heading, up to the next one of its rank or above."""
    match = re.search(
        rf"(?ms)^(#+) {re.escape(heading)}$\n(.*?)(?=^\1 |^#{{1,2}} |\Z)", prose_of(page)
    )
    assert match, f"{page.name} has no heading {heading!r}"
    return match[2]


STEP_TABLES = (file_keys.STEP_KEYS, file_keys.NEED_KEYS, container_keys.MOUNT_KEYS)


def test_every_key_is_in_the_reference() -> None:
    page = DOCS / "pipeline-file.md"
    rows = rows_of(page)
    for keys in (file_keys.FILE_KEYS, *STEP_TABLES):
        assert not keys.keys() - rows.keys()
    for heading, keys in (
        ("Keys of the file", file_keys.FILE_KEYS),
        *(("Keys of a step", keys) for keys in STEP_TABLES),
        ("defaults", file_keys.DEFAULT_KEYS),
        ("Retries", dict.fromkeys(RETRY_WORDS)),
    ):
        section = section_of(page, heading)
        assert not [key for key in keys if f"`{key}`" not in section], heading
    for key, (least, most) in key_limits.LIMITS.items():
        assert any(f"| {least:,} to {most:,} |" in row for row in rows[key]), key


def test_no_key_is_in_the_reference_that_is_not_in_the_program() -> None:
    page = DOCS / "pipeline-file.md"
    for heading, keys in (
        ("Keys of the file", file_keys.FILE_KEYS),
        ("Keys of a step", {name: None for table in STEP_TABLES for name in table}),
    ):
        assert set(re.findall(r"(?m)^\| `([^`]+)` \|", section_of(page, heading))) == set(keys)


def every_command() -> Iterator[tuple[str, click.Command]]:
    with click.Context(cli) as ctx:
        for name in cli.list_commands(ctx):
            command = cli.get_command(ctx, name)
            assert command is not None
            yield name, command


def test_every_command_and_flag_is_in_the_reference() -> None:
    page = DOCS / "commands.md"
    for name, command in every_command():
        section = section_of(page, f"batchyard {name}")
        if name in ("plan", "run"):
            section += section_of(page, "Flags of plan and run")
        flags = [
            flag
            for option in command.params
            if isinstance(option, click.Option)
            for flag in option.opts
        ]
        missing = [
            flag
            for flag in flags
            if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", section)
        ]
        assert not missing, f"batchyard {name}"


def test_every_flag_of_the_program_itself_is_in_the_reference() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    flags = [flag for option in cli.params for flag in option.opts]
    assert not [flag for flag in flags if f"`{flag}`" not in text]


@pytest.mark.parametrize("owner", [batchyard.Pipeline, batchyard.Run, batchyard.Service])
def test_every_member_of_the_python_interface_is_in_the_reference(owner: type) -> None:
    section = section_of(DOCS / "commands.md", "From Python")
    for name, member in inspect.getmembers(owner):
        if name.startswith("_"):
            continue
        row = re.search(rf"(?m)^\| `{owner.__name__}\.{name}\b.*$", section)
        assert row, name
        if callable(member):
            names = list(inspect.signature(member).parameters)
            given = [one for one in names if one not in ("self", "settings")]
            assert not [one for one in given if not re.search(rf"\b{one}\b", row[0])], name


def test_every_field_of_the_json_is_in_the_reference(yard: Yard) -> None:
    yard.write(
        "p.yaml",
        "name: p\nsteps: [{name: a, command: exit 1}, {name: b, needs: [a], command: echo}]\n",
    )
    page = DOCS / "commands.md"
    for heading, value in (
        ("JSON of run, status, retry and resume", yard.json("run", "p.yaml", code=1)),
        ("JSON of plan", yard.json("plan", "p.yaml")),
        ("JSON of runs", yard.json("runs")),
    ):
        section = section_of(page, heading)
        documented = set(re.findall(r"(?m)^\| `([^`]+)` \|", section))
        assert documented == set(paths_in(value)), heading


def paths_in(value: Any, path: str = "") -> Iterator[str]:
    """`steps[].name` and the like, for every field in a JSON value."""
    if isinstance(value, list):
        for one in value:
            yield from paths_in(one, f"{path}[]")
    elif isinstance(value, dict):
        for name, one in value.items():
            own = f"{path}.{name}".removeprefix(".")
            yield own
            yield from paths_in(one, own)


def test_every_environment_variable_is_on_the_page_of_semantics() -> None:
    names = set(re.findall(r'"([A-Z][A-Z0-9_]*[A-Z0-9])"', inspect.getsource(children)))
    assert "AWS_BATCH_JOB_ID" in names and "CUDA_VISIBLE_DEVICES" in names
    assert not names - {"PCI_BUS_ID"} - rows_of(DOCS / "semantics.md").keys()  # a value, not a name


def test_every_state_and_reason_is_on_the_page_of_semantics() -> None:
    text = (DOCS / "semantics.md").read_text(encoding="utf-8")
    reasons = [value for name, value in vars(StatusReason).items() if not name.startswith("_")]
    wanted = [*JobState, *RunState, *reasons, OUT_OF_MEMORY]
    assert not [word for word in wanted if f"`{word}`" not in text]


# -- links -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(target)
    assert not broken


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub makes of headings."""
    headings = re.findall(r"(?m)^#+ (.*)$", prose_of(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
