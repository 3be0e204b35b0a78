"""Tunnels to a port of a service through AWS Session Manager, with the `aws` command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from batchyard.errors import InputError, OperationalError
from batchyard.services.states import ServiceState, TaskState

_PLUGIN = "session-manager-plugin"
_INSTALL_PAGE = (
    "https://docs.aws.amazon.com/systems-manager/latest/userguide/"
    "session-manager-working-with-install-plugin.html"
)


@dataclass(frozen=True, slots=True)
class Tunnel:
    #: Id of the EC2 instance that the tunnel goes to.
    node: str
    task_id: str
    local_port: int
    #: Port of the node, or of ``address``.
    remote_port: int
    #: Address of a task that has its own; empty for a port of the node.
    address: str = ""

    def command(self, aws: str = "aws") -> list[str]:
        """Return the words of the command that opens the tunnel until it is interrupted."""
        document = "AWS-StartPortForwardingSession"
        parameters = {
            "portNumber": [str(self.remote_port)],
            "localPortNumber": [str(self.local_port)],
        }
        if self.address:
            document += "ToRemoteHost"
            parameters["host"] = [self.address]
        words = [aws, "ssm", "start-session", "--target", self.node, "--document-name", document]
        return [*words, "--parameters", json.dumps(parameters)]


def find_tunnel(state: ServiceState, port: int, local_port: int | None = None) -> Tunnel:
    """Return the tunnel to a port of the newest running task. Raises InputError."""
    running = [task for task in state.tasks if task.status == "RUNNING" and task.node]
    if not running:
        raise InputError(
            f"no task of {state.name} runs",
            hint=f"`batchyard service status {state.name} --env {state.environment}` says why",
        )
    task = max(running, key=lambda task: task.started_s or 0)
    remote_port = _find_remote_port(task, port)
    if remote_port is None:
        listed = ", ".join(str(binding.container_port) for binding in task.ports)
        raise InputError(
            f"{state.name} has no port {port}",
            hint=f"it has {listed}" if listed else "add `ports:` to the service file, then `up`",
        )
    address = task.address if not task.ports else ""
    return Tunnel(task.node, task.id, local_port or port, remote_port, address)


def _find_remote_port(task: TaskState, port: int) -> int | None:
    if task.address and not task.ports:
        return port
    matches = (entry.host_port for entry in task.ports if entry.container_port == port)
    return next(matches, None)


def require_programs(environ: Mapping[str, str]) -> str:
    """Return the path of the `aws` command. Raises OperationalError if a program is missing."""
    path = environ.get("PATH", os.defpath)
    aws = shutil.which("aws", path=path)
    if aws is None:
        raise OperationalError(
            "`service forward` needs the AWS CLI, and there is no `aws` here",
            hint="install it: https://docs.aws.amazon.com/cli/latest/userguide/"
            "getting-started-install.html",
        )
    if shutil.which(_PLUGIN, path=path) is None:
        raise OperationalError(
            f"`service forward` needs the {_PLUGIN}, and it is not installed",
            hint=f"install it: {_INSTALL_PAGE}",
        )
    return aws


def open_tunnel(tunnel: Tunnel, aws: str, environ: Mapping[str, str]) -> None:
    """Forward the port until the user interrupts. Raises OperationalError if it cannot be opened.

    The `aws` command prints its progress and handles the interruption itself.
    """
    process = subprocess.Popen(tunnel.command(aws), env=dict(environ))
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:
            continue
    if code not in (0, 130, -2):
        raise OperationalError(
            f"the tunnel to {tunnel.node} has ended: `aws ssm start-session` exited with {code}",
            hint="nodes take sessions if the stack iam has SessionManager=true and they were"
            " started after that; you need the right ssm:StartSession (TaskSubmitterPolicy)",
        )
