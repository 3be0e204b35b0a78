"""Copy docs/ to a folder and add references that are generated from the program.

`make docs` calls it, then builds the site from the folder: `python docs/generate_site.py FOLDER`.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from pathlib import Path

import click

import batchyard
from batchyard.cli.main import COMMAND_GROUPS, cli
from batchyard.engines import memory

DOCS = Path(__file__).parent
#: Links of the pages to files that are not part of the site: they become plain text.
OUTSIDE_LINK = re.compile(r"\[([^\]\n]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)")
#: Heading -> pages, in the order of the site's menu.
MENU = {
    "Using it": ["pipeline-file", "commands", "semantics", "benchmark"],
    "On AWS": ["aws-batch", "ci", "deploy", "security", "doctor", "emulator", "worker"],
    "Reference": ["reference/commands", "reference/python", "reference/findings"],
    "Understanding it": [
        "architecture",
        "design",
        "decisions",
        "testing",
        "performance",
        "peers",
    ],
    "Changing it": [
        "how-to/add-a-command",
        "how-to/add-an-engine",
        "how-to/add-an-endpoint-operation",
        "how-to/add-a-finding",
        "how-to/add-a-workload",
    ],
}
PYTHON = [
    batchyard.Pipeline,
    batchyard.Run,
    batchyard.Offer,
    memory.MemoryEngine,
    memory.Result,
    memory.Call,
]


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("generate_*", "__pycache__"))
    for page in folder.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(drop_outside_links(text, page, folder), encoding="utf-8")
    reference = folder / "reference"
    reference.mkdir()
    (reference / "commands.md").write_text(command_reference(), encoding="utf-8")
    (reference / "python.md").write_text(python_reference(), encoding="utf-8")
    (reference / "findings.md").write_text(findings_index(folder), encoding="utf-8")
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
    """Return the front page: the overview of docs/README.md, and the menu."""
    parts = [(folder / "README.md").read_text(encoding="utf-8")]
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
    context = click.Context(cli, info_name="batchyard")
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


def python_reference() -> str:
    """Return the public classes with their methods and docstrings."""
    parts = ["# Python\n"]
    for owner in PYTHON:
        parts.append(f"## {owner.__module__}.{owner.__qualname__}\n\n{inspect.getdoc(owner)}\n")
        for name, member in inspect.getmembers(owner):
            if name.startswith("_") or not callable(member):
                continue
            signature = str(inspect.signature(member)).replace("batchyard.", "")
            documentation = inspect.getdoc(member) or ""
            parts.append(f"### {name}\n\n```python\n{name}{signature}\n```\n\n{documentation}\n")
    return "\n".join(parts)


def findings_index(folder: Path) -> str:
    """Return a table of the doctor's findings, with links to their pages."""
    rows = ["# Findings of the doctor\n", "| id | title |", "|-|-|"]
    for page in sorted_findings(folder):
        title = page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        rows.append(f"| [{page.stem}](../findings/{page.name}) | {title} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
