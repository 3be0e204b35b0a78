"""Hold an endpoint to the rules of AWS Batch, and write the table of docs/conformance.md.

    python conformance/run.py check --endpoint-url URL --name NAME [--image IMAGE]
    python conformance/run.py page

`check` needs boto3 and an endpoint. It prints the endpoint's column as JSON, and the reason of each
"no" to stderr. `page` prints docs/conformance.md from the columns in conformance/columns.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lab import Lab, holds
from rules import RULES

COLUMNS = Path(__file__).parent / "columns"
#: The columns of the table, in their order.
ORDER = ("batchyard", "moto", "localstack", "fakecloud", "floci", "ministack")
_INTRODUCTION = """\
# Conformance: rules of AWS Batch, operation by operation

What emulators of AWS Batch do with each rule. A rule is documented by AWS or was observed there;
the number is its section in [the facts](facts/aws-batch.md).

This page is the output of a program. To hold any endpoint to the rules:

```sh
pip install boto3
python conformance/run.py check --endpoint-url http://127.0.0.1:4577 --name mine
```

It prints a column as JSON, and why a rule is not kept. Columns of a *measured* emulator come from
such a run. The other emulators were not run: their cells come from what their source code and
documentation say, and `?` is what they do not say. `python conformance/run.py page` prints this
page from the files in conformance/columns; a test runs the rules against `batchyard emulate` and
compares both.
"""


def check(arguments: argparse.Namespace) -> None:
    lab = Lab(arguments.endpoint_url, arguments.image, arguments.wait)
    with ThreadPoolExecutor(arguments.threads) as pool:
        results = list(pool.map(lambda rule: holds(rule.check, lab), RULES.values()))
    cells = {}
    for name, (is_kept, problem) in zip(RULES, results, strict=True):
        cells[name] = "yes" if is_kept else "no"
        if not is_kept:
            print(f"{name}: {problem}", file=sys.stderr)
    column = {"name": arguments.name, "measured": True, "note": arguments.note, "cells": cells}
    print(json.dumps(column, indent=2))


def make_page() -> str:
    columns = [json.loads((COLUMNS / f"{name}.json").read_text()) for name in ORDER]
    lines = [_INTRODUCTION, "## Who was looked at", ""]
    lines += ["| emulator | how | note |", "|-|-|-|"]
    for column in columns:
        how = "measured" if column["measured"] else "read"
        lines.append(f"| {column['name']} | {how} | {column['note']} |")
    lines += ["", "## Sums", "", _row("", *(column["name"] for column in columns))]
    lines.append(_row(*("-" * (len(columns) + 1))))
    for word in ("yes", "no", "?"):
        counts = (sum(_cell(column, name) == word for name in RULES) for column in columns)
        lines.append(_row(word, *map(str, counts)))
    for subject in dict.fromkeys(rule.subject for rule in RULES.values()):
        lines += ["", f"## {subject}", "", _row("rule", *(column["name"] for column in columns))]
        lines.append(_row(*("-" * (len(columns) + 1))))
        for name, rule in RULES.items():
            if rule.subject == subject:
                cells = (_cell(column, name) for column in columns)
                lines.append(_row(f"{rule.text} ({rule.facts})", *cells))
    lines += ["", "## Sources of the cells that were read", ""]
    for column in columns:
        for name, source in column.get("sources", {}).items():
            lines.append(f"- {column['name']}, {RULES[name].text}: {source}")
    return "\n".join(lines) + "\n"


def _cell(column: dict[str, Any], rule: str) -> str:
    return str(column["cells"].get(rule, "?"))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check", help="hold an endpoint to the rules")
    checking.add_argument("--endpoint-url", required=True, metavar="URL")
    checking.add_argument("--name", required=True, help="name of the column")
    checking.add_argument("--note", default="", help="version and settings of the emulator")
    checking.add_argument("--image", default="busybox", help="image of jobs (default: busybox)")
    checking.add_argument(
        "--wait", type=float, default=60, metavar="SECONDS", help="for a job (default: 60)"
    )
    checking.add_argument("--threads", type=int, default=4, help="rules at once (default: 4)")
    commands.add_parser("page", help="print docs/conformance.md")
    arguments = parser.parse_args()
    if arguments.command == "check":
        check(arguments)
    else:
        sys.stdout.write(make_page())


if __name__ == "__main__":
    main()
