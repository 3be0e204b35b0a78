"""The docker command: what is said to it, and what its answers mean. Starts nothing but short questions.

A container is what AWS Batch would make of the same child (facts, 1.8, 5.3 and 10.1): the host's network, CPU shares
for vCPUs, memory as a hard limit, whole GPUs, the image's own entrypoint. What differs, and why:

- The workspace is mounted at its own path and is the working directory, since there is no S3 in between.
- ``--init``, and signals to the whole process group: without them a shell would be process 1, which ignores SIGTERM,
  and every stop would take its full grace.
- Who it runs as: root's containers run as the image says, as on AWS. Anybody else's run with the caller's own uid, gid
  and groups, so that what they write in the workspace belongs to the caller and they may touch no more than the caller
  may. Such a user is unknown to the image, so it is given a HOME it can write, /tmp, and a USER. With a rootless engine
  the container's root *is* the caller, and nothing needs to be said.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pwd
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
#: makes --init's program pass signals to the whole process group; it is taken out before a command sees it
GROUP_SIGNALS = "TINI_KILL_PROCESS_GROUP"
#: stdout and stderr become one pipe inside already, so that their order is kept; the command is $0
RUN_ONE = f'unset {GROUP_SIGNALS}; exec sh -c "$0" 2>&1'

_SHARES_PER_VCPU = 1024
#: what the kernel takes at most
_MOST_SHARES = 262144
_ANSWER_TIMEOUT_S = 20.0
_REMOVAL_TIMEOUT_S = 60.0

#: names that mean something to the docker command itself: a step's values for them must not reach it
_CLIENT_NAMES = ("PATH", "HOME", "TMPDIR", "DOCKER_", "LD_", "GO", "SSL_CERT_", "XDG_")


@dataclass(frozen=True, slots=True)
class Place:
    """What all containers of a run have in common."""

    run_id: str
    token: str
    workspace: Path
    #: the lists of commands, which children may read
    lists: Path


@dataclass(frozen=True, slots=True)
class User:
    """Whom containers run as."""

    #: for `docker create`; none where the image decides
    flags: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class State:
    """What `docker inspect` knows of a container."""

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


# -- what is said -------------------------------------------------------------------------------------------------


def create_argv(
    task: Task, name: str, place: Place, user: User, environ: Mapping[str, str]
) -> list[str]:
    """`docker create` for the task, up to and with the image. ``environ``: of the container, see ``environ_of``."""
    memory = f"{task.resources.memory_mib}m"
    shares = min(_SHARES_PER_VCPU * task.resources.vcpus, _MOST_SHARES)
    argv = ["create", "--name", name, "--network", "host", "--log-driver", "none"]
    argv += ["--label", f"{TOKEN_LABEL}={place.token}", "--label", f"batchyard.run={place.run_id}"]
    argv += ["--cpu-shares", str(shares), "--memory", memory, "--memory-swap", memory]
    if task.container_flags is None:
        argv += ["--init", "--workdir", str(place.workspace), *_mount(place.workspace), *user.flags]
        argv += ["--env", f"{GROUP_SIGNALS}=1"]
        if not place.lists.is_relative_to(place.workspace):
            argv += _mount(place.lists, "readonly")
    else:
        argv += task.container_flags
    if task.shm_mib:
        argv += ["--shm-size", f"{task.shm_mib}m"]
    if task.gpus:
        # The inner quotes are docker's: without them the comma would end the value.
        argv += ["--gpus", f'"device={environ["NVIDIA_VISIBLE_DEVICES"]}"']
    if task.has_several:
        argv.append("--interactive")
    for variable, value in environ.items():
        # By its name alone, with the value in the docker command's environment: `ps` shows arguments to everybody.
        argv += ["--env", f"{variable}={value}" if _is_clients(variable) else variable]
    return [*argv, task.image or ""]


def command_argv(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """What follows the image: a text is for the shell, a program with its arguments is the image's to run."""
    return ("sh", "-c", RUN_ONE, command) if isinstance(command, str) else command


def environ_of(task: Task, user: User) -> dict[str, str]:
    """The environment of the task's container, beside what its image sets."""
    environ = (
        {"HOME": "/tmp", "USER": user.name} if user.flags and task.container_flags is None else {}
    )
    environ |= task.own_environ
    if task.gpus:
        # A container sees only its own GPUs, and counts them from 0.
        environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(task.gpus))))
    return environ


def client_environ(base: Mapping[bytes, bytes], environ: Mapping[str, str]) -> dict[bytes, bytes]:
    """The environment of the `docker create` that is to pass on ``environ``."""
    passed = {
        os.fsencode(name): os.fsencode(value)
        for name, value in environ.items()
        if not _is_clients(name)
    }
    return {**base, **passed}


def user_flags(uid: int, gid: int, groups: Iterable[int], *, is_rootless: bool) -> tuple[str, ...]:
    if uid == 0 or is_rootless:
        return ()
    others = [f"--group-add={group}" for group in groups if group != gid]
    return ("--user", f"{uid}:{gid}", *others)


def _mount(path: Path, *options: str) -> list[str]:
    # Not --volume: its colons would cut a path that has one. Here a comma does, unless it is quoted as CSV is.
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(
        ["type=bind", f"source={path}", f"target={path}", *options]
    )
    return ["--mount", text.getvalue()]


def _is_clients(variable: str) -> bool:
    return variable.startswith(_CLIENT_NAMES)


# -- what is answered ---------------------------------------------------------------------------------------------


def parse_state(text: str) -> State:
    """The answer to `docker inspect --format '{{json .State}}'`."""
    fields = json.loads(text)
    return State(fields["Status"], fields["ExitCode"], fields["OOMKilled"], fields.get("Error", ""))


def why_not_created(said: str) -> str:
    """container.reason for what a failed `docker create` has said: AWS's word, then docker's own."""
    # It looks for the image first, and pulls what it does not find; any other trouble comes before or after that.
    was_pulling = "Unable to find image" in said and "Downloaded newer image" not in said
    word = "CannotPullContainerError" if was_pulling else "CannotCreateContainerError"
    return reason(word, _last_words(said))


def reason(word: str, text: str) -> str:
    return f"{word}: {' '.join(text.split())}"[:MAX_CONTAINER_REASON_CHARS]


def _last_words(said: str) -> str:
    """From the error on: before it come the progress of a pull and warnings, after it where to find help."""
    lines = [line for line in said.splitlines() if line.strip() and "--help'" not in line]
    errors = [n for n, line in enumerate(lines) if "error" in line.lower()]
    return "\n".join(lines[errors[-1] if errors else 0 :]).removeprefix("docker: ")


# -- short questions ----------------------------------------------------------------------------------------------


def require_engine(environ: Mapping[str, str] = os.environ, who: str = "--runner docker") -> str:
    """The docker command's path. Raises ContainerEngineError unless an engine answers. ``who`` needs it."""
    client = shutil.which("docker", path=environ.get("PATH"))
    if client is None:
        raise ContainerEngineError(
            f"{who} needs the docker command, and there is none in PATH",
            hint="install it (on Debian and Ubuntu: `apt-get install docker.io`)"
            + (f", or leave {who} out" if who.startswith("--") else ""),
        )
    _asked(client, environ, "version", "--format", "{{.Server.Version}}")
    return client


def user_here(client: str, environ: Mapping[str, str]) -> User:
    """The user that containers of this process run as."""
    uid = os.getuid()
    security = (
        "" if uid == 0 else _asked(client, environ, "info", "--format", "{{json .SecurityOptions}}")
    )
    flags = user_flags(uid, os.getgid(), os.getgroups(), is_rootless="name=rootless" in security)
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return User(flags, name)


def remove_all(client: str, environ: Mapping[str, str], token: str) -> int:
    """Ends and removes all containers of a run; returns when they are gone, and says how many they were."""
    removed: set[str] = set()
    deadline = time.monotonic() + _REMOVAL_TIMEOUT_S
    while found := _asked(
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
                f"Docker does not remove the containers that an earlier run of this left: {', '.join(found)}",
                hint="see what `docker rm --force` says about them",
            )
        removed.update(found)
        # Fails for one that another call is removing at this moment, so the list has the last word.
        with suppress(subprocess.TimeoutExpired):
            command = [client, "rm", "--force", "--volumes", *found]
            subprocess.run(
                command, env=dict(environ), capture_output=True, timeout=_REMOVAL_TIMEOUT_S
            )
    return len(removed)


def _asked(client: str, environ: Mapping[str, str], *argv: str) -> str:
    """The engine's answer. Raises ContainerEngineError."""
    try:
        done = subprocess.run(
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
            hint="see what `docker info` says",
        ) from None
    except OSError as exc:
        raise ContainerEngineError(f"the docker command cannot be started: {exc}") from exc
    if done.returncode == 0:
        return done.stdout
    said = " ".join(done.stderr.split()) or f"`docker {argv[0]}` exited with {done.returncode}"
    is_forbidden = "permission denied" in said
    raise ContainerEngineError(
        f"no Docker engine answers: {said}",
        hint="let your user in with `sudo usermod -aG docker $USER`, then log in again"
        if is_forbidden
        else "start it with `sudo systemctl start docker` (or `sudo dockerd &` where there is no systemd)",
    )
