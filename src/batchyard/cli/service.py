"""`batchyard service`: up, status, logs, scale, restart, forward, down."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchyard.cli.options import duration, example, home_of, home_option, json_option
from batchyard.cli.stacks import (
    Terminal,
    environment_option,
    holding_lines,
    introduce,
    require_region,
    yes_option,
)
from batchyard.cli.tables import table
from batchyard.units import format_duration, pluralize, show_controls

if TYPE_CHECKING:
    from batchyard.services.operations import Services
    from batchyard.services.states import ServiceState, TaskState

_DEFAULT_SINCE_S = 3600
_SHOWN_EVENTS = 10
_SHOWN_FAILURES = 3

_name_argument = click.argument("name", metavar="NAME")


@click.group(
    epilog=example(
        "batchyard service up notebook.yaml --env lab",
        "batchyard service status notebook --env lab",
        "batchyard service forward notebook 8888 --env lab",
        "batchyard service down notebook --env lab",
    )
)
def command() -> None:
    """Keep a container up on the ECS cluster of an environment: a notebook, an inference server.

    The cluster is that of the stack `ecs` or `spotfleet`. Each service is a CloudFormation stack of
    its own, named ENV-NAME-service.
    """


def _open(env: str, terminal: Terminal) -> Services:
    from batchyard.aws.session import AwsSession
    from batchyard.services.operations import Services

    return Services(AwsSession(None), env, terminal)


@command.command(epilog=example("batchyard service up notebook.yaml --env lab"))
@click.argument("file", metavar="FILE")
@environment_option
@yes_option
@home_option
def up(file: str, env: str, yes: bool, home: str | None) -> int:
    """Create or update the service of a service file, and wait until its tasks run.

    Shows the changes and asks for confirmation. If the tasks of a new version do not stay up, ECS
    returns to the version before, and the command prints why. After an interruption, run the same
    command again.
    """
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.session import AwsSession
    from batchyard.images.registry import read_pinned_images
    from batchyard.services import reading

    service = reading.load(Path(file))
    terminal = Terminal(says_yes=yes)
    services = _open(env, terminal)
    introduce(env, CloudFormation(AwsSession(None)))
    image = read_pinned_images(home_of(home), env).get(service.image, service.image)
    try:
        changed = services.up(service, image)
    finally:
        terminal.close()
    click.echo(f"{service.name} is up" if changed else f"{service.name} is up to date")
    if service.ports:
        port = service.ports[0]
        click.echo(
            f"`batchyard service forward {service.name} {port} --env {env}` brings its port {port}"
            " to this machine",
            err=True,
        )
    return 0


@command.command(
    epilog=example(
        "batchyard service status --env lab", "batchyard service status notebook --env lab"
    )
)
@click.argument("name", metavar="[NAME]", required=False)
@environment_option
@json_option
def status(name: str | None, env: str, as_json: bool) -> int:
    """Show a service: its tasks, its latest events, and why tasks failed.

    Without NAME, lists the services of the environment. The exit code is 1 while fewer tasks run
    than are wanted.
    """
    services = _open(env, Terminal())
    if name is None:
        with require_region(env):
            return _print_list(services.list_states(), env, as_json)
    with require_region(env):
        state = services.status(name)
    if as_json:
        click.echo(json.dumps(state.to_json(), indent=2))
    else:
        _print_state(state, time.time())
    return 0 if state.is_steady else 1


def _print_list(states: Mapping[str, ServiceState | str], env: str, as_json: bool) -> int:
    """Print all services of an environment, and return the exit code."""
    if as_json:
        documents = {
            name: {"problem": state} if isinstance(state, str) else state.to_json()
            for name, state in states.items()
        }
        click.echo(json.dumps(documents, indent=2))
    elif states:
        rows = [_service_row(name, state) for name, state in states.items()]
        for line in table(("service", "cluster", "tasks", "state"), rows):
            click.echo(line)
    else:
        click.echo(f"{env} has no service; `batchyard service up FILE --env {env}` adds one")
    is_steady = all(not isinstance(state, str) and state.is_steady for state in states.values())
    return 0 if is_steady else 1


def _service_row(name: str, state: ServiceState | str) -> tuple[str, str, str, str]:
    if isinstance(state, str):
        return name, "-", "-", state
    return name, state.cluster, f"{state.running} of {state.desired}", _summary(state)


def _summary(state: ServiceState) -> str:
    """Return the state of a service in a few words."""
    if state.is_steady:
        return "up" if state.desired else "scaled to 0"
    if state.status != "ACTIVE":
        return "being deleted"
    if state.failures:
        return f"tasks fail: {state.failures[0]}"
    return f"starting, {pluralize(state.pending, 'task')} pending"


def _print_state(state: ServiceState, now_s: float) -> None:
    click.echo(
        f"{state.name} on {state.cluster}: {state.running} of"
        f" {pluralize(state.desired, 'task')} running; {_summary(state)}"
    )
    if state.tasks:
        click.echo("")
        rows = [_task_row(task, now_s) for task in state.tasks]
        for line in table(("task", "state", "health", "for", "node", "ports", "version"), rows):
            click.echo(line)
    if state.failures:
        click.echo("\ntasks that failed, newest first")
        for failure in state.failures[:_SHOWN_FAILURES]:
            click.echo(f"  {show_controls(failure)}")
    click.echo("\nevents, newest first")
    for event in state.events[:_SHOWN_EVENTS]:
        age = format_duration(max(0, round(now_s - event.time_s)))
        click.echo(f"  {age:>6} ago  {event.text}")


def _task_row(task: TaskState, now_s: float) -> tuple[str, ...]:
    duration_s = None if task.started_s is None else max(0, round(now_s - task.started_s))
    ports = [
        str(p.container_port)
        if p.container_port == p.host_port
        else f"{p.container_port} (node: {p.host_port})"
        for p in task.ports
    ]
    return (
        task.id[:8],
        task.status,
        task.health.lower() if task.health != "UNKNOWN" else "-",
        "-" if duration_s is None else format_duration(duration_s),
        task.node or "-",
        ", ".join(ports) or "-",
        str(task.revision),
    )


@command.command(
    epilog=example(
        "batchyard service logs notebook --env lab",
        "batchyard service logs notebook --env lab -f",
        "batchyard service logs notebook --env lab --since 2d",
    )
)
@_name_argument
@environment_option
@click.option("-f", "--follow", is_flag=True, help="Print new output until you press Ctrl-C.")
@click.option(
    "--since", callback=duration, metavar="TIME", help="Show output of this time (default: 1h)."
)
def logs(name: str, env: str, follow: bool, since: int | None) -> None:
    """Show the output of a service's tasks, each line with the beginning of the task's id."""
    services = _open(env, Terminal())
    start_s = time.time() - (since or _DEFAULT_SINCE_S)
    count = 0
    with require_region(env):
        for task_id, line in services.read_logs(name, start_s, follow=follow):
            click.echo(f"{task_id[:8]}  {show_controls(line)}")
            count += 1
    if not count:
        time_text = format_duration(since or _DEFAULT_SINCE_S)
        click.echo(f"{name} has written nothing in the last {time_text}", err=True)


@command.command(epilog=example("batchyard service scale notebook 0 --env lab"))
@_name_argument
@click.argument("count", metavar="N", type=click.IntRange(0, 5000))
@environment_option
def scale(name: str, count: int, env: str) -> int:
    """Keep N tasks of a service running, and wait until they run.

    0 stops the service and keeps it: nodes that nobody uses end, and `scale NAME 1` starts it
    again. The next `up` keeps N unless the file has `count`.
    """
    terminal = Terminal(says_yes=True)
    services = _open(env, terminal)
    try:
        with require_region(env):
            changed = services.scale(name, count)
    finally:
        terminal.close()
    tasks = pluralize(count, "task")
    click.echo(f"{name} has {tasks}" if changed else f"{name} has {tasks}: nothing to do")
    return 0


@command.command(epilog=example("batchyard service restart notebook --env lab"))
@_name_argument
@environment_option
def restart(name: str, env: str) -> int:
    """Replace all tasks of a service by new ones of the same version, and wait until they run.

    Pulls the image again if its name stands for another one by now.
    """
    terminal = Terminal()
    with require_region(env):
        _open(env, terminal).restart(name)
    click.echo(f"{name} runs new tasks")
    return 0


@command.command(
    epilog=example(
        "batchyard service forward notebook 8888 --env lab",
        "batchyard service forward notebook 8888 --env lab --local-port 9000",
    )
)
@_name_argument
@click.argument("port", metavar="PORT", type=click.IntRange(1, 65535))
@environment_option
@click.option(
    "--local-port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port of this machine (default: PORT).",
)
def forward(name: str, port: int, env: str, local_port: int | None) -> int:
    """Bring a port of a service to this machine, until you press Ctrl-C.

    Tunnels through AWS Session Manager to the node of the newest task, so that no port is open to
    the world. Needs the AWS CLI with its session-manager-plugin here, and SessionManager=true of
    the stack iam.
    """
    from batchyard.services import forwarding

    with require_region(env):
        state = _open(env, Terminal()).status(name)
    tunnel = forwarding.find_tunnel(state, port, local_port)
    aws = forwarding.require_programs(os.environ)
    click.echo(
        f"http://localhost:{tunnel.local_port} is port {port} of task {tunnel.task_id[:8]} on"
        f" {tunnel.node}; Ctrl-C ends it",
        err=True,
    )
    forwarding.open_tunnel(tunnel, aws, os.environ)
    return 0


@command.command(epilog=example("batchyard service down notebook --env lab"))
@_name_argument
@environment_option
@yes_option
def down(name: str, env: str, yes: bool) -> int:
    """Delete a service with its stack, and its output in CloudWatch Logs.

    Lists what is deleted, and asks for confirmation. Volumes and images stay.
    """
    from batchyard.infra.stacks import DeclinedError

    terminal = Terminal(says_yes=yes)
    services = _open(env, terminal)
    try:
        with require_region(env):
            to_delete = services.find_to_delete(name)
        if to_delete is not None:
            click.echo(f"to be deleted: {to_delete.stack}", err=True)
            for line in holding_lines((to_delete.stack, held) for held in to_delete.holdings):
                click.echo(line, err=True)
            if not terminal.ask(f"delete the service {name} of {env}?"):
                raise DeclinedError("nothing was deleted")
            services.down(to_delete)
    finally:
        terminal.close()
    click.echo(f"{name}: deleted")
    return 0
