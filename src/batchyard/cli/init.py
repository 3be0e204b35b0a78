"""`batchyard init`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

import batchyard
from batchyard.cli.options import example
from batchyard.errors import InputError, from_os_error
from batchyard.pipeline import MAX_NAME_LENGTH

_PIPELINE = """\
# yaml-language-server: $schema={schema}
# A pipeline: steps in order of what they need. Try: batchyard run pipeline.yaml
name: {name}
params: {{rounds: 20000}}            # ${{params.rounds}} below; --set rounds=1000 overrides
defaults: {{cpus: 1, memory: 256MiB, timeout: 10m}}
steps:
  - name: prepare                  # one job
    command: mkdir -p parts && echo prepared

  - name: work                     # a list of commands, shared out over an array of 4 children
    needs: [prepare]
    commands_file: work.txt
    array: 4
    retries: 1

  - name: check                    # child i starts as soon as child i of `work` is done
    needs: [{{step: work, each: true}}]
    command: ls parts > /dev/null && echo "child $AWS_BATCH_JOB_ARRAY_INDEX of $ARRAY_SIZE"
    array: 4

  - name: collect                  # starts when all of `check` succeeded
    needs: [check]
    command: cat parts/*.txt > result.txt && wc -l result.txt
"""

_COMMAND = (
    "seq 1 ${{params.rounds}} | awk '{{ s += $1 % {n} }} END {{ print \"part {n}\", s }}'"
    " > parts/{n:02}.txt\n"
)
_LIST_HEAD = "# one shell command a line; blank lines and lines that begin with # are skipped\n"


@click.command(epilog=example("batchyard init demo && cd demo && batchyard run pipeline.yaml"))
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(file_okay=False))
def command(folder: str) -> int:
    """Create a small working pipeline to start from.

    Writes pipeline.yaml and work.txt into DIR (default: the current folder). Existing files are not
    overwritten.
    """
    path = Path(folder)
    files = {
        path / "pipeline.yaml": _pipeline_text(path),
        path / "work.txt": _LIST_HEAD + "".join(_COMMAND.format(n=n) for n in range(1, 13)),
    }
    for file in files:
        if file.exists():
            hint = "name another folder: batchyard init DIR"
            raise InputError(f"{file} exists already", hint=hint)
    try:
        path.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            file.write_text(text, encoding="utf-8")
    except OSError as exc:
        error = from_os_error(exc, "write into", path)
        error.hint = "name another folder: batchyard init DIR"
        raise error from exc
    click.echo(f"made {path / 'pipeline.yaml'} and {path / 'work.txt'}")
    cd = "" if folder == "." else f"cd {shlex.quote(_as_argument(folder))} && "
    click.echo(f"next: {cd}batchyard run pipeline.yaml")
    return 0


def _pipeline_text(folder: Path) -> str:
    """Return the pipeline file, named after the folder."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")
    if not re.match("[a-z]", name):
        name = f"p-{name}"
    return _PIPELINE.format(name=name[:MAX_NAME_LENGTH].rstrip("-"), schema=_schema_uri())


def _schema_uri() -> str:
    """Return the address of the installed schema. A URI, since editors end a path at a space."""
    return Path(batchyard.__file__).with_name("pipeline.schema.json").absolute().as_uri()


def _as_argument(folder: str) -> str:
    """Return a path that no program takes for an option."""
    return f"./{folder}" if folder.startswith("-") else folder
