"""Arguments of the docker command and the meaning of its output; short calls of it.

A container has the properties that AWS Batch gives to the same child (facts, 1.8, 5.3 and 10.1):
the host's network, CPU shares for vCPUs, memory as a hard limit, whole GPUs, the image's
entrypoint. The differences:

- The workspace is mounted at the same path and is the working directory, since no S3 is used.
- ``--init``, and signals to the whole process group. Otherwise a shell would be process 1, which
  ignores SIGTERM, and every stop would take its full grace period.
- The user, unless the step names one. If root runs batchyard, the image decides, as on AWS.
  Otherwise containers run with the caller's uid, gid and groups, so that files in the workspace
  belong to the caller. Such a user is unknown to the image, and gets a writable HOME, /tmp, and a
  USER. With a rootless engine, root of the container is the caller, and no flag is needed.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from batchyard.batch.limits import MAX_CONTAINER_REASON_CHARS
from batchyard.embedded.runner import Task
from batchyard.errors import ContainerEngineError, OperationalError

TOKEN_LABEL = "batchyard.token"
#: Makes the program of --init pass signals to the whole process group. Unset for commands.
GROUP_SIGNALS = "TINI_KILL_PROCESS_GROUP"
#: Runs the command $0. stdout and stderr are one pipe in the container, to keep their order.
RUN_ONE = f'unset {GROUP_SIGNALS}; exec sh -c "$0" 2>&1'

_SHARES_PER_VCPU = 1024
#: Limit of the kernel.
_MAX_SHARES = 262144
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
_ANSWER_TIMEOUT_S = 20.0
_REMOVAL_TIMEOUT_S = 60.0

#: Variables, or prefixes of them, that change the docker command itself. The values of a step
#: must not be in its environment.
_CLIENT_NAMES = ("PATH", "HOME", "TMPDIR", "DOCKER_", "LD_", "GO", "SSL_CERT_", "XDG_")


@dataclass(frozen=True, slots=True)
class ContainerDefaults:
    """Settings that all containers of a run share."""

    run_id: str
    token: str
    workspace: Path
    #: Folder with the lists of commands, which children may read.
    lists: Path


@dataclass(frozen=True, slots=True)
class User:
    """The user of containers."""

    #: Flags of `docker create`; empty where the image decides.
    flags: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class State:
    """State of a container, from `docker inspect`."""

    status: str
    exit_code: int
    was_out_of_memory: bool
    error: str

    @property
    def never_started(self) -> bool:
        return self.status == "created"

    @property
    def is_over(self) -> bool:
        return self.status in ("exited", "dead", "removing")


# -- arguments ---------------------------------------------------------------------------------


def create_argv(
    task: Task, name: str, defaults: ContainerDefaults, user: User, environ: Mapping[str, str]
) -> list[str]:
    """Return the arguments of `docker create`, up to the image.

    ``environ``: the environment of the container, from ``environ_of``.
    """
    memory = f"{task.resources.memory_mib}m"
    shares = min(_SHARES_PER_VCPU * task.resources.vcpus, _MAX_SHARES)
    argv = ["create", "--name", name, "--network", "host", "--log-driver", "none"]
    argv += [
        "--label",
        f"{TOKEN_LABEL}={defaults.token}",
        "--label",
        f"batchyard.run={defaults.run_id}",
    ]
    argv += ["--cpu-shares", str(shares), "--memory", memory, "--memory-swap", memory]
    if task.container_flags is None:
        argv += [
            "--init",
            "--workdir",
            str(defaults.workspace),
            *_mount(defaults.workspace),
            *(user_of_step(task.user) if task.user else user.flags),
        ]
        argv += _step_flags(task)
        argv += ["--env", f"{GROUP_SIGNALS}=1"]
        if not defaults.lists.is_relative_to(defaults.workspace):
            argv += _mount(defaults.lists, is_read_only=True)
    else:
        argv += task.container_flags
    if task.shm_mib:
        argv += ["--shm-size", f"{task.shm_mib}m"]
    if task.gpus:
        # Docker needs the inner quotes: without them the comma would end the value.
        argv += ["--gpus", f'"device={environ["NVIDIA_VISIBLE_DEVICES"]}"']
    if task.has_several_commands:
        argv.append("--interactive")
    for variable, value in environ.items():
        # The name alone: docker reads the value from its environment, since `ps` shows arguments
        # to all users.
        argv += ["--env", f"{variable}={value}" if _changes_docker(variable) else variable]
    return [*argv, task.image or ""]


def command_argv(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments after the image. A command that is a text is run by a shell."""
    return ("sh", "-c", RUN_ONE, command) if isinstance(command, str) else command


def environ_of(task: Task, user: User) -> dict[str, str]:
    """Return the variables of the task's container, without those that its image sets."""
    is_caller = bool(user.flags) and task.container_flags is None and not task.user
    environ = {"HOME": "/tmp", "USER": user.name} if is_caller else {}
    environ |= task.engine_environ
    if task.gpus:
        # A container has only its own GPUs, with numbers from 0.
        environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(task.gpus))))
    return environ


def client_environ(base: Mapping[bytes, bytes], environ: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return the environment of a `docker create` that passes ``environ`` to the container."""
    variables = {
        os.fsencode(name): os.fsencode(value)
        for name, value in environ.items()
        if not _changes_docker(name)
    }
    return {**base, **variables}


def user_flags(uid: int, gid: int, groups: Iterable[int], *, is_rootless: bool) -> tuple[str, ...]:
    if uid == 0 or is_rootless:
        return ()
    group_flags = [f"--group-add={group}" for group in groups if group != gid]
    return ("--user", f"{uid}:{gid}", *group_flags)


def mount_flags(source: str | None, target: str, *, is_read_only: bool = False) -> list[str]:
    """Return the flags of a mount. Without a source it is a new, anonymous volume of Docker."""
    fields = [f"type={'bind' if source else 'volume'}"]
    fields += [f"source={source}"] if source else []
    fields.append(f"target={target}")
    fields += ["readonly"] if is_read_only else []
    # --volume cannot take a path with a colon. --mount takes any path that is quoted as in CSV.
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return ["--mount", text.getvalue()]


def ulimit_flags(name: str, soft: object, hard: object) -> list[str]:
    return ["--ulimit", f"{name}={soft}:{hard}"]


def user_of_step(user: str) -> list[str]:
    """Return the flags for a user that the pipeline or the job definition names."""
    return ["--user", user]


def _step_flags(task: Task) -> list[str]:
    flags: list[str] = []
    for mount in task.mounts:
        # Disks of the host for temporary files are an anonymous volume here.
        flags += mount_flags(mount.host, mount.path, is_read_only=mount.read_only)
    for name, limit in sorted(task.ulimits.items()):
        flags += ulimit_flags(name, *limit.split(":"))
    return flags


def _mount(path: Path, *, is_read_only: bool = False) -> list[str]:
    return mount_flags(str(path), str(path), is_read_only=is_read_only)


def _changes_docker(variable: str) -> bool:
    return variable.startswith(_CLIENT_NAMES)


# -- output ------------------------------------------------------------------------------------


def parse_state(text: str) -> State:
    """Parse the output of `docker inspect --format '{{json .State}}'`."""
    fields = json.loads(text)
    return State(fields["Status"], fields["ExitCode"], fields["OOMKilled"], fields.get("Error", ""))


def parse_container_id(output: str) -> str:
    """Return the id in the output of `docker create`, behind the progress of a pull.

    Empty if there is none.
    """
    lines = output.split()
    return lines[-1] if lines and _CONTAINER_ID.fullmatch(lines[-1]) else ""


def creation_failure_reason(output: str) -> str:
    """Return container.reason for the output of a failed `docker create`."""
    # Docker looks for the image, and pulls it if it is missing. Other errors come before or after.
    was_pulling = "Unable to find image" in output and "Downloaded newer image" not in output
    error_name = "CannotPullContainerError" if was_pulling else "CannotCreateContainerError"
    return format_reason(error_name, _extract_error(output))


def format_reason(error_name: str, text: str) -> str:
    """Return container.reason in the form of AWS, cut to its limit."""
    return f"{error_name}: {' '.join(text.split())}"[:MAX_CONTAINER_REASON_CHARS]


def _extract_error(output: str) -> str:
    """Return the error of docker's output, without progress and warnings before it."""
    lines = [line for line in output.splitlines() if line.strip() and "--help'" not in line]
    errors = [n for n, line in enumerate(lines) if "error" in line.lower()]
    return "\n".join(lines[errors[-1] if errors else 0 :]).removeprefix("docker: ")


# -- short calls -------------------------------------------------------------------------------


def require_engine(environ: Mapping[str, str] = os.environ, user: str = "--runner docker") -> str:
    """Return the path of the docker command. Raises ContainerEngineError if no engine answers.

    ``user``: the flag or command that needs docker, for the message.
    """
    client = shutil.which("docker", path=environ.get("PATH"))
    if client is None:
        raise ContainerEngineError(
            f"{user} needs the docker command, and there is none in PATH",
            hint="install it (on Debian and Ubuntu: `apt-get install docker.io`)"
            + (f", or leave {user} out" if user.startswith("--") else ""),
        )
    _ask(client, environ, "version", "--format", "{{.Server.Version}}")
    return client


def find_current_user(client: str, environ: Mapping[str, str]) -> User:
    """Return the user of containers that this process starts."""
    uid = os.getuid()
    security = (
        "" if uid == 0 else _ask(client, environ, "info", "--format", "{{json .SecurityOptions}}")
    )
    flags = user_flags(uid, os.getgid(), os.getgroups(), is_rootless="name=rootless" in security)
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return User(flags, name)


def remove_all(client: str, environ: Mapping[str, str], token: str) -> int:
    """Remove all containers of a run, also running ones, and return their number."""
    removed: set[str] = set()
    deadline = time.monotonic() + _REMOVAL_TIMEOUT_S
    while containers := _ask(
        client,
        environ,
        "ps",
        "--all",
        "--quiet",
        "--no-trunc",
        "--filter",
        f"label={TOKEN_LABEL}={token}",
    ).split():
        if time.monotonic() > deadline:
            raise OperationalError(
                "Docker does not remove the containers that an earlier process of the run left: "
                + ", ".join(containers),
                hint="`docker rm --force` shows why",
            )
        removed.update(containers)
        # `docker rm` fails for a container that another call is removing, so the loop checks the
        # list of containers again.
        with suppress(subprocess.TimeoutExpired):
            command = [client, "rm", "--force", "--volumes", *containers]
            subprocess.run(
                command, env=dict(environ), capture_output=True, timeout=_REMOVAL_TIMEOUT_S
            )
    return len(removed)


def _ask(client: str, environ: Mapping[str, str], *argv: str) -> str:
    """Return the output of a docker command. Raises ContainerEngineError."""
    try:
        completed = subprocess.run(
            [client, *argv],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise ContainerEngineError(
            f"the Docker engine has not answered for {_ANSWER_TIMEOUT_S:.0f} s",
            hint="`docker info` shows its state",
        ) from None
    except OSError as exc:
        raise ContainerEngineError(f"the docker command cannot be started: {exc}") from exc
    if completed.returncode == 0:
        return completed.stdout
    problem = " ".join(completed.stderr.split())
    problem = problem or f"`docker {argv[0]}` exited with {completed.returncode}"
    is_forbidden = "permission denied" in problem
    raise ContainerEngineError(
        f"no Docker engine answers: {problem}",
        hint="let your user in with `sudo usermod -aG docker $USER`, then log in again"
        if is_forbidden
        else "start it with `sudo systemctl start docker` (or `sudo dockerd &` without systemd)",
    )
