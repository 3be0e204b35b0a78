"""`batchyard doctor`: a group of commands, one a subject."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli.options import F, duration, example, json_option, print_json
from batchyard.errors import BadInput, from_os_error

if TYPE_CHECKING:
    from batchyard.doctor.facts import Facts
    from batchyard.doctor.finding import Report
    from batchyard.doctor.host.facts import HostFacts


@click.group(
    epilog=example(
        "batchyard doctor userdata user-data.sh",
        "batchyard doctor template stack.yaml",
        "batchyard doctor host --gpu-container nvidia/cuda:12.4.1-base-ubuntu22.04",
        "batchyard doctor judge facts.json",
    )
)
def command() -> None:
    """Say why a job is stuck, and whether a node is right: the cause, the evidence, what to do.

    Reads only. Exit codes: 0 healthy, 1 findings, 2 could not look.
    """


def all_option(function: F) -> F:
    text = "List also what was found right, and what could not be checked."
    return click.option("--all", "with_all", is_flag=True, help=text)(function)


@command.command(epilog=example("batchyard doctor userdata user-data.txt", "batchyard doctor userdata - < boot.sh"))
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--for",
    "owner",
    type=click.Choice(["batch", "ecs"]),
    default="batch",
    show_default=True,
    help="Whose nodes it is for: AWS Batch has rules of its own.",
)
@all_option
@json_option
def userdata(file: str, owner: str, with_all: bool, as_json: bool) -> int:
    """Examine user data: what will deadlock at boot, or keep a node from joining.

    FILE is a script, cloud-config or MIME document, as it is or in base64.
    """
    from batchyard.doctor.userdata.examine import examine

    return _answer(examine(_bytes(file), _name(file), owner), with_all, as_json)


@command.command(
    epilog=example("batchyard doctor template stack.yaml", "terraform show -json plan | batchyard doctor template -")
)
@click.argument("file", type=click.Path(allow_dash=True))
@all_option
@json_option
def template(file: str, with_all: bool, as_json: bool) -> int:
    """Examine a template, with the user data in it.

    FILE is a CloudFormation or SAM template, or what `terraform show -json` prints.
    """
    from batchyard.doctor.template.examine import examine

    return _answer(examine(_bytes(file), _name(file)), with_all, as_json)


@command.command(epilog=example("batchyard doctor host", "batchyard doctor host --save host.json"))
@click.option("--gpu-container", metavar="IMAGE", default="", help="Also run nvidia-smi in a container of this image.")
@click.option("--save", metavar="FILE", help="Keep the facts in a file, secrets and account ids masked.")
@click.option("--from", "source", metavar="FILE", help="Judge facts that were saved, instead of this machine.")
@all_option
@json_option
def host(gpu_container: str, save: str | None, source: str | None, with_all: bool, as_json: bool) -> int:
    """Examine this machine: driver, Docker, ECS agent, boot, disk, clock, metadata service."""
    from batchyard.doctor.host.checks import judge as judge_host
    from batchyard.doctor.host.facts import HostFacts
    from batchyard.doctor.host.gather import gather
    from batchyard.doctor.host.machine import ThisMachine

    if source:
        found = _facts(source)
        if not isinstance(found, HostFacts):
            raise BadInput(f"{source} holds no facts of a host", hint=f"`batchyard doctor judge {source}` reads it")
    else:
        found = gather(ThisMachine(), gpu_container)
    if save:
        _keep(found, save)
    return _answer(judge_host(found), with_all, as_json)


@command.command(
    epilog=example("batchyard doctor judge facts.json --all", "batchyard doctor judge facts.json --dwell 5m")
)
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--dwell", callback=duration, default="15m", metavar="TIME", show_default=True,
              help="What a fleet may take to start: a job that has waited less is waiting, not stuck.")  # fmt: skip
@click.option("--save", metavar="FILE", help="Keep the facts in another file, secrets and account ids masked.")
@all_option
@json_option
def judge(file: str, dwell: int, save: str | None, with_all: bool, as_json: bool) -> int:
    """Judge facts that were saved: of a job, a queue, a compute environment or a host."""
    from batchyard.doctor.host.checks import judge as judge_host
    from batchyard.doctor.host.facts import HostFacts
    from batchyard.doctor.judge import judge as judge_facts

    found = _facts(file)
    if save:
        _keep(found, save)
    report = judge_host(found) if isinstance(found, HostFacts) else judge_facts(found, dwell)
    return _answer(report, with_all, as_json)


def _answer(report: Report, with_all: bool, as_json: bool) -> int:
    from batchyard.doctor import show

    if as_json:
        print_json(show.as_json(report))
    else:
        click.echo("\n".join(show.lines(report, with_all)))
    return report.exit_code


def _facts(file: str) -> Facts | HostFacts:
    from batchyard.doctor import facts_json

    return facts_json.load(_bytes(file).decode("utf-8", "replace"), _name(file))


def _keep(found: Any, file: str) -> None:
    from batchyard.doctor import facts_json, masking

    try:
        Path(file).write_text(facts_json.dump(masking.masked(found)), encoding="utf-8")
    except OSError as exc:
        raise from_os_error(exc, "write the facts to", file) from exc


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _bytes(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise BadInput(f"cannot read {file}: {reason}", hint="check the path") from None
