"""Nothing outside engines/ knows an engine: neither by its name nor by its package."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

import batchyard
from batchyard import engines

ROOT = Path(batchyard.__file__).parent
#: `memory` is also a key of pipeline files and an amount; imports show who uses that engine
NAMES = set(engines.ENGINES) - {"memory"}
#: (file, text) where the word is not the name of an engine, and what it is instead
OTHER_MEANINGS = {
    ("bench/packing.py", "aws"): "the package of that name",
    ("doctor/shell/programs.py", "local"): "the builtin of shells",
    ("doctor/facts_json.py", "aws"): "a kind of facts, beside those of a host",
    ("doctor/shell/filters.py", "aws"): "the program of that name",
    ("doctor/template/terraform_references.py", "local"): "a prefix of Terraform's",
    ("emulator/names.py", "aws"): "AWS's partition, in ARNs",
    ("embedded/children.py", "local"): "AWS_BATCH_JQ_NAME of runs on this machine",
}
#: how a message or an example chooses an engine
CHOICE = re.compile(rf"""engine[ =]["']?({"|".join(engines.ENGINES)})\b""")
#: file -> why it may show users how to choose an engine
CHOICES = {
    "api.py": "an example in the documentation of the module",
    "cli/deploy.py": "the queues that it has made are those of AWS Batch",
    "cli/doctor_gathering.py": "a docstring: `doctor pipeline` is about runs on AWS Batch",
    "cli/plan.py": "an example in the help",
    "cli/run.py": "an example in the help",
    "submissions.py": "the jobs of its files go to AWS Batch",
    "worker/orders.py": "the worker is part of jobs on AWS Batch",
}
MODULES = [
    path for path in sorted(ROOT.rglob("*.py")) if "engines" not in path.relative_to(ROOT).parts[:1]
]


def texts(path: Path) -> set[str]:
    """All string literals of a module that are the name of an engine."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    literals = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return literals & NAMES


def chooses_an_engine(path: Path) -> bool:
    """Whether a text of the module, such as a hint, chooses an engine."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and CHOICE.search(node.value)
        for node in ast.walk(tree)
    )


def engine_imports(path: Path) -> set[str]:
    """The modules of particular engines that a module imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    packages = tuple(f"{module}." for module, _ in engines.ENGINES.values())
    return {name for name in imported if f"{name}.".startswith(packages)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_outside_the_engines_names_none(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    assert engine_imports(path) == set()
    assert {text for text in texts(path) if (name, text) not in OTHER_MEANINGS} == set()


def test_the_other_meanings_are_still_there() -> None:
    for name, text in OTHER_MEANINGS:
        assert text in texts(ROOT / name), f"{name} has no {text!r} any more: remove its entry"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_outside_the_engines_chooses_none_for_the_user(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    assert chooses_an_engine(path) == (name in CHOICES)


@pytest.mark.parametrize("name", engines.ENGINES)
def test_every_engine_of_the_table_can_be_loaded_and_knows_its_name(name: str) -> None:
    assert engines.load(name).name == name


def test_the_help_describes_every_engine_of_the_table() -> None:
    from batchyard.cli.run import command

    help_text = command.get_help(click.Context(command, terminal_width=10_000))
    for name, entry in engines.ENGINES.items():
        assert f"{name}: {entry.summary}." in help_text


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(batchyard.BatchyardError, match="no engine 'slurm'") as caught:
        engines.load("slurm")
    assert "'local'" in caught.value.hint
