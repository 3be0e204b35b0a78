"""Build images with the docker command, and push them to the repository of an environment."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from batchyard.aws.session import AwsSession, naming_errors
from batchyard.embedded import docker
from batchyard.environments import Environment
from batchyard.errors import InputError, OperationalError, from_os_error
from batchyard.folder import images_file

#: The host of a repository in ECR: account, region.
_ECR = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.[^/]+")
_DIGEST = re.compile(r"digest: (sha256:[0-9a-f]{64})")


def build(
    folder: Path,
    kind: str,
    tag: str,
    environ: Mapping[str, str],
    arguments: Sequence[str] = (),
    platform: str | None = None,
) -> None:
    """Build an image; Docker prints to the terminal. Raises OperationalError if it fails.

    ``platform``: operating system and processor, like linux/arm64; None is that of this machine.
    """
    client = docker.require_engine(environ, "`image build`")
    file = folder / f"Dockerfile.{kind}"
    if not file.exists():
        raise InputError(
            f"there is no {file}", hint=f"`batchyard image init {folder} --kind {kind}` writes one"
        )
    command = [client, "build", "--network", "host", "--file", str(file), "--tag", tag]
    command += [part for argument in arguments for part in ("--build-arg", argument)]
    command += ["--platform", platform] if platform else []
    done = subprocess.run([*command, str(folder)], env=dict(environ))
    if done.returncode:
        raise OperationalError(
            f"docker build of {tag} failed", hint="the output above names the reason"
        )


def push(image: str, environment: Environment, environ: Mapping[str, str], home: Path) -> str:
    """Push an image, pin it for later runs, and return its address with digest."""
    if environment.repository is None:
        raise InputError(
            f"environment {environment.name!r} has no repository for images",
            hint="add `repository: ADDRESS` to it in environments.yaml, or deploy the stack"
            " `registry`",
        )
    client = docker.require_engine(environ, "`image push`")
    host = environment.repository.partition("/")[0]
    ecr = _ECR.fullmatch(host)
    if ecr:
        _log_in(client, host, AwsSession(ecr[2], environment.profile), environ)
    name, tag = _split(image)
    remote = f"{environment.repository}:{name.rpartition('/')[2]}-{tag}"
    try:
        _docker(client, environ, "tag", image, remote)
    except OperationalError as exc:
        if "No such image" not in exc.message:
            raise
        raise InputError(
            f"Docker has no image {image} here",
            hint=f"`batchyard image build --tag {image}` builds it",
        ) from exc
    output = _push(client, environ, remote)
    match = _DIGEST.search(output)
    if match is None:
        raise OperationalError(
            f"docker push did not print the digest of {remote}", hint=f"it printed: {output[-300:]}"
        )
    address = f"{environment.repository}@{match[1]}"
    _pin_image(images_file(home), environment.name, f"{name}:{tag}", address)
    return address


def read_pinned_images(home: Path, environment: str) -> dict[str, str]:
    """Return image -> the address with digest that was pushed last. Raises InputError."""
    try:
        addresses = json.loads(images_file(home).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise InputError(
            f"{images_file(home)} cannot be read: {exc}",
            hint="remove it, and push the images again",
        ) from exc
    pinned = dict(addresses.get(environment, {}))
    # `recon` and `recon:latest` are the same image.
    return {name.removesuffix(":latest"): address for name, address in pinned.items()} | pinned


def _log_in(client: str, host: str, session: AwsSession, environ: Mapping[str, str]) -> None:
    with naming_errors(f"get a password for {host}"):
        answer = session.client("ecr").get_authorization_token()
    token = answer["authorizationData"][0]["authorizationToken"]
    user, _, password = base64.b64decode(token).decode().partition(":")
    # On standard input: other users can read the arguments of a command.
    command = [client, "login", "--username", user, "--password-stdin", host]
    done = subprocess.run(
        command, input=password, env=dict(environ), capture_output=True, text=True
    )
    if done.returncode:
        raise OperationalError(
            f"docker login to {host} failed: {done.stderr.strip()}",
            hint="check the environment's `repository:`, and the network",
        )


def _push(client: str, environ: Mapping[str, str], remote: str) -> str:
    """Push the image while Docker shows its progress on stderr; return what Docker printed."""
    exit_code, output = _run_visibly([client, "push", remote], environ)
    if exit_code:
        raise OperationalError(
            f"docker push {remote} failed: {_last_line(output)}",
            hint="check the environment's `repository:`, and that you may push there",
        )
    return output


def _run_visibly(command: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Run a command, copy its output to stderr meanwhile; return exit code and output."""
    is_terminal = sys.stderr.isatty()
    # Docker draws progress bars only on a terminal.
    reader, writer = pty.openpty() if is_terminal else os.pipe()
    if is_terminal:
        _copy_window_size(sys.stderr.fileno(), writer)
    process = subprocess.Popen(command, env=dict(environ), stdout=writer, stderr=writer)
    os.close(writer)
    chunks = []
    with suppress(OSError):  # how a pseudo-terminal ends
        while chunk := os.read(reader, 65536):
            chunks.append(chunk)
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
    os.close(reader)
    return process.wait(), b"".join(chunks).decode(errors="replace")


def _copy_window_size(terminal: int, copy: int) -> None:
    with suppress(OSError):
        size = fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(copy, termios.TIOCSWINSZ, size)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "Docker printed nothing"


def _docker(client: str, environ: Mapping[str, str], *argv: str) -> str:
    done = subprocess.run([client, *argv], env=dict(environ), capture_output=True, text=True)
    if done.returncode:
        output = (done.stderr or done.stdout).strip()
        raise OperationalError(
            f"docker {argv[0]} {argv[-1]} failed: {output}",
            hint="check the environment's `repository:`, and that you may push there",
        )
    return done.stdout


def _split(image: str) -> tuple[str, str]:
    """Return name and tag: (host:5000/name, tag) for `host:5000/name:tag`."""
    head, colon, tag = image.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (image, "latest")


def _pin_image(path: Path, environment: str, image: str, address: str) -> None:
    try:
        addresses = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        addresses.setdefault(environment, {})[image] = address
        path.parent.mkdir(parents=True, exist_ok=True)
        new_path = path.with_suffix(".new")
        new_path.write_text(json.dumps(addresses, indent=1), encoding="utf-8")
        new_path.replace(path)
    except (OSError, ValueError) as exc:
        if isinstance(exc, OSError):
            raise from_os_error(exc, "write", path) from exc
        raise InputError(
            f"{path} cannot be read: {exc}", hint="remove it, and push the images again"
        ) from exc
