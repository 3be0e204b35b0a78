"""Nothing outside engines/ knows an engine: neither by its name nor by its package."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import click
import pytest

import batchyard
from batchyard import engines

ROOT = Path(batchyard.__file__).parent
#: `memory` is also a key of pipeline files and an amount, `ecs` also the service of AWS that AWS
#: Batch itself uses; imports show who uses these engines
NAMES = set(engines.ENGINES) - {"memory", "ecs"}
#: (file, text) where the word is not the name of an engine, and what it is instead
OTHER_MEANINGS = {
    ("bench/packing.py", "aws"): "the package of that name",
    ("doctor/shell/programs.py", "local"): "the builtin of shells",
    ("doctor/facts_json.py", "aws"): "a kind of facts, beside those of a host",
    ("doctor/shell/filters.py", "aws"): "the program of that name",
    ("doctor/template/terraform_references.py", "local"): "a prefix of Terraform's",
    ("services/forwarding.py", "aws"): "the program of that name",
    ("emulator/names.py", "aws"): "AWS's partition, in ARNs",
    ("embedded/children.py", "local"): "AWS_BATCH_JQ_NAME of runs on this machine",
}
#: how a message or an example chooses an engine
CHOICE = re.compile(rf"""engine[ =]["']?({"|".join(engines.ENGINES)})\b""")
#: what a module has that names, chooses or imports an engine: to parse all of them takes seconds
MAY_MATTER = re.compile(rf"""["']({"|".join(sorted(NAMES))})["']|engine[ =]|batchyard[.]engines""")
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
#: by name
MODULES = {
    path.relative_to(ROOT).as_posix(): path
    for path in sorted(ROOT.rglob("*.py"))
    if "engines" not in path.relative_to(ROOT).parts[:1]
}


@cache
def read_module(path: Path) -> tuple[set[str], set[str]]:
    """Return the string literals of a module, and the full names that it imports.

    Of a module that does not matter here, none.
    """
    literals: set[str] = set()
    imported: set[str] = set()
    text = path.read_text(encoding="utf-8")
    if not MAY_MATTER.search(text):
        return literals, imported
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            literals.add(node.value)
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    return literals, imported


def texts(path: Path) -> set[str]:
    """All string literals of a module that are the name of an engine."""
    return read_module(path)[0] & NAMES


def chooses_an_engine(path: Path) -> bool:
    """Whether a text of the module, such as a hint, chooses an engine."""
    return any(map(CHOICE.search, read_module(path)[0]))


def engine_imports(path: Path) -> set[str]:
    """The modules of particular engines that a module imports."""
    packages = tuple(f"{module}." for module, _ in engines.ENGINES.values())
    return {name for name in read_module(path)[1] if f"{name}.".startswith(packages)}


def test_the_modules_outside_the_engines_import_none() -> None:
    assert len(MODULES) > 400
    imports = {name: engine_imports(path) for name, path in MODULES.items()}
    assert {name: modules for name, modules in imports.items() if modules} == {}


def test_the_modules_outside_the_engines_name_none() -> None:
    names = {(name, text) for name, path in MODULES.items() for text in texts(path)}
    assert names - OTHER_MEANINGS.keys() == set()


def test_the_other_meanings_are_still_there() -> None:
    for name, text in OTHER_MEANINGS:
        assert text in texts(ROOT / name), f"{name} has no {text!r} any more: remove its entry"


def test_the_modules_outside_the_engines_choose_none_for_the_user() -> None:
    choosing = {name for name, path in MODULES.items() if chooses_an_engine(path)}
    assert choosing == CHOICES.keys()


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
