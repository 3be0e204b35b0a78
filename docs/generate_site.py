"""Copy docs/ to a folder and add references that are generated from the program.

`make docs` calls it, then builds the site from the folder: `python docs/generate_site.py FOLDER`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import click

import batchyard
from batchyard.cli.main import COMMAND_GROUPS, cli
from batchyard.doctor.kinds import BY_ID
from batchyard.engines import memory
from batchyard.engines.base import Engine
from batchyard.pipeline_file.key_reference import TABLES, key_table

DOCS = Path(__file__).parent
#: Links of the pages to files that are not part of the site: they become plain text.
OUTSIDE_LINK = re.compile(r"\[([^\]\n]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)")
#: Heading -> pages, in the order of the site's menu.
MENU = {
    "Using it": ["pipeline-file", "commands", "semantics", "benchmark"],
    "On AWS": ["aws-batch", "ci", "deploy", "security", "doctor", "emulator", "worker"],
    "Reference": [
        "reference/commands",
        "reference/pipeline-keys",
        "reference/python",
        "reference/findings",
    ],
    "Changing it": [
        "how-to/add-a-command",
        "how-to/add-an-engine",
        "how-to/add-an-endpoint-operation",
        "how-to/add-a-finding",
        "how-to/add-a-workload",
    ],
    "Understanding it": [
        "architecture",
        "design",
        "decisions",
        "testing",
        "reliability",
        "performance",
        "peers",
    ],
}
#: A type in a signature, which Python shows in quotes.
QUOTED_TYPE = re.compile(r"(?<=: )'([^']*)'")
MAX_CODE_WIDTH = 80
#: Members of MemoryEngine that only batchyard calls.
INTERNAL = {*vars(Engine), "has_run", "simulation_of"}
#: Heading of a table of keys -> its name in key_reference.
KEY_TABLES = {"The file": "file", "A step": "step", "An item of `needs`": "need"}
#: Import statement -> the public classes of that module.
PYTHON = {
    "from batchyard import": [
        batchyard.Pipeline,
        batchyard.Run,
        batchyard.Offer,
        batchyard.BatchyardError,
    ],
    "from batchyard.engines.memory import": [memory.MemoryEngine, memory.Result, memory.Call],
}


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("generate_*", "__pycache__"))
    for page in folder.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(drop_outside_links(text, page, folder), encoding="utf-8")
    reference = folder / "reference"
    reference.mkdir()
    (reference / "commands.md").write_text(command_reference(), encoding="utf-8")
    (reference / "pipeline-keys.md").write_text(key_reference(), encoding="utf-8")
    (reference / "python.md").write_text(python_reference(), encoding="utf-8")
    (reference / "findings.md").write_text(findings_index(), encoding="utf-8")
    (folder / "index.md").write_text(index_page(folder), encoding="utf-8")
    (folder / "README.md").unlink()


def drop_outside_links(text: str, page: Path, folder: Path) -> str:
    """Return the page with links to files outside the site as plain text."""

    def replace(match: re.Match[str]) -> str:
        target = (page.parent / match[2]).resolve()
        is_inside = target.is_relative_to(folder.resolve()) and target.is_file()
        return match[0] if is_inside else match[1]

    return OUTSIDE_LINK.sub(replace, text)


def index_page(folder: Path) -> str:
    """Return the front page: the introduction of README.md, the overview of docs/, the menu."""
    introduction = (DOCS.parent / "README.md").read_text(encoding="utf-8").partition("\n![")[0]
    overview = (folder / "README.md").read_text(encoding="utf-8").partition("\n")[2]
    start = "```sh\nbatchyard init demo && cd demo && batchyard run pipeline.yaml\n```\n"
    parts = [introduction, start, "## All pages", overview]
    for caption, pages in MENU.items():
        entries = "\n".join(pages)
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n")
    findings = "\n".join(f"findings/{page.stem}" for page in sorted_findings(folder))
    parts.append(f"```{{toctree}}\n:hidden:\n\n{findings}\n```\n")
    return "\n".join(parts)


def sorted_findings(folder: Path) -> list[Path]:
    return sorted((folder / "findings").glob("BY*.md"))


def command_reference() -> str:
    """Return the help of every command, grouped as in `batchyard --help`."""
    parts = ["# Commands: `--help`\n"]
    context = click.Context(cli, info_name="batchyard", **cli.context_settings)
    for group, commands in COMMAND_GROUPS.items():
        parts.append(f"## {group}\n")
        for name in commands:
            command = cli.get_command(context, name)
            assert command is not None
            parts += help_sections(command, click.Context(command, context, name), "###")
    return "\n".join(parts)


def help_sections(command: click.Command, context: click.Context, level: str) -> list[str]:
    sections = [f"{level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            if member is not None and not member.hidden:
                member_context = click.Context(member, context, name)
                sections += help_sections(member, member_context, f"{level}#")
    return sections


def key_reference() -> str:
    """Return the tables of all keys of a pipeline file."""
    parts = ["# Keys of the pipeline file\n"]
    for heading, name in KEY_TABLES.items():
        table = key_table(TABLES[name]).replace("](#", "](../pipeline-file.md#")
        parts.append(f"## {heading}\n\n{table}")
    return "\n".join(parts)


def python_reference() -> str:
    """Return the public classes with their members and docstrings."""
    parts = ["# Python\n"]
    for statement, owners in PYTHON.items():
        for owner in owners:
            parts.append(f"## {owner.__name__}\n\n`{statement} {owner.__name__}`\n")
            parts += class_sections(owner)
    return "\n".join(parts)


def class_sections(owner: type) -> list[str]:
    """Return the docstring of a class, its constructor if users call it, and its members."""
    sections = [f"{inspect.getdoc(owner)}\n"]
    if dataclasses.is_dataclass(owner) or owner is memory.MemoryEngine:
        sections.append(signature_block(owner.__name__, owner))
    for name, member in inspect.getmembers(owner):
        if name.startswith("_") or name in INTERNAL or hasattr(BaseException, name):
            continue
        if isinstance(member, property):
            sections.append(f"### {name}\n\n{inspect.getdoc(member) or ''}\n")
        elif callable(member):
            documentation = inspect.getdoc(member) or ""
            sections.append(f"### {name}\n\n{signature_block(name, member)}\n{documentation}\n")
    return sections


def signature_block(name: str, member: Callable[..., object]) -> str:
    """Return the call of a function or class as code, with a line per parameter if it is long."""
    signature = inspect.signature(member)
    parameters, is_keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword_only:
            is_keyword_only = True
            parameters.append("*")
        if parameter.name != "self":
            parameters.append(QUOTED_TYPE.sub(r"\1", str(parameter)))
    line = f"{name}({', '.join(parameters)})"
    if len(line) > MAX_CODE_WIDTH:
        line = f"{name}(\n" + "".join(f"    {text},\n" for text in parameters) + ")"
    if isinstance(signature.return_annotation, str):
        line += f" -> {signature.return_annotation}"
    return f"```python\n{line}\n```\n"


def findings_index() -> str:
    """Return a table of the doctor's findings, with links to their pages."""
    rows = ["# Findings of the doctor\n"]
    rows += ["| finding | severity | what is true when the check passes |", "|-|-|-|"]
    for kind in BY_ID.values():
        link = f"[{kind.id}](../findings/{kind.id}.md)"
        rows.append(f"| {link} | {kind.severity.value} | {kind.title} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
