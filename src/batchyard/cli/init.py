"""`batchyard init`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from batchyard.cli.options import example
from batchyard.errors import InputError, from_os_error

_PIPELINE = """\
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

_COMMAND = "seq 1 ${{params.rounds}} | awk '{{ s += $1 % {n} }} END {{ print \"part {n}\", s }}' > parts/{n:02}.txt\n"
_LIST_HEAD = "# one shell command a line; blank lines and lines that begin with # are skipped\n"


@click.command(epilog=example("batchyard init demo && cd demo && batchyard run pipeline.yaml"))
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(file_okay=False))
def command(folder: str) -> int:
    """Make a small, working pipeline folder to start from. Nothing that is there is overwritten."""
    where = Path(folder)
    files = {
        "pipeline.yaml": _pipeline(where),
        "work.txt": _LIST_HEAD + "".join(map(_command, range(1, 13))),
    }
    there = [name for name in files if (where / name).exists()]
    if there:
        raise InputError(
            f"{where / there[0]} is there already", hint="name another folder: batchyard init DIR"
        )
    try:
        where.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (where / name).write_text(text, encoding="utf-8")
    except OSError as exc:
        raise from_os_error(exc, "write into", where) from exc
    click.echo(f"made {where / 'pipeline.yaml'} and {where / 'work.txt'}")
    cd = "" if folder == "." else f"cd {folder} && "
    click.echo(f"next: {cd}batchyard run pipeline.yaml")
    return 0


def _pipeline(folder: Path) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")
    name = words[:40].rstrip("-") if re.match(r"[a-z]", words) else f"p-{words}"[:40].rstrip("-")
    return _PIPELINE.format(name=name)


def _command(number: int) -> str:
    return _COMMAND.format(n=number)
