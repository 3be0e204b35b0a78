"""The process that commands are forked from: see prestarted.py.

    python prestarted_server.py KIND FD

It imports what commands of this kind need, then waits for requests on the socket FD. It ends when
the other end of the socket is closed. It never runs a command itself and has one thread.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import sys
import threading
from typing import Any

#: libraries that a kind of command needs, and the parts of batchyard; NumPy, which starts threads,
#: must not be among what they import
LIBRARIES = {
    "command": (),
    "command on aws": ("boto3", "s3transfer.manager"),
    "endpoint": (
        *("boto3", "werkzeug.serving", "moto.server"),
        *(f"moto.{service}.responses" for service in ("s3", "logs", "iam", "ec2", "sts")),
    ),
    "worker": ("botocore.session", "s3transfer.manager"),
    "aws": ("awscli.clidriver", "awscli.handlers"),
}
#: services whose models, which botocore reads from large JSON files, are parsed beforehand
SERVICES = {
    "command": (),
    "command on aws": (
        *("autoscaling", "batch", "cloudformation", "ec2", "ecr", "ecs", "iam", "logs", "s3"),
        *("service-quotas", "ssm", "sts"),
    ),
    "endpoint": ("batch", "logs"),
    "worker": ("s3",),
    "aws": ("batch", "cloudformation", "logs", "s3"),
}
COMMANDS = ("aws", "batch", "cli", "doctor", "embedded", "engines", "infra", "pipeline_file")
PARTS = {
    "command": COMMANDS,
    "command on aws": COMMANDS,
    "endpoint": ("cli.emulate", "emulator"),
    "worker": ("worker",),
    "aws": (),
}


def main(kind: str, control: socket.socket) -> None:
    variables = dict(os.environ)
    for name in LIBRARIES[kind]:
        importlib.import_module(name)
    for part in PARTS[kind]:
        import_all(f"batchyard.{part}")
    if SERVICES[kind]:
        parse_models(SERVICES[kind])
    if kind == "endpoint":
        ask_moto_once()
    # Some libraries set variables when they are imported.
    added = {name: value for name, value in os.environ.items() if name not in variables}
    assert len(os.listdir("/proc/self/task")) == 1, "an import has started a thread"
    gc.collect()
    gc.freeze()
    request = serve(control)
    if request is not None:
        execute(request, added)


def import_all(name: str) -> None:
    """Import a module, and all modules below it if it is a package."""
    try:
        package = importlib.import_module(name)
    except ImportError:  # it needs a library that is not installed
        return
    for module in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{name}."):
        if not module.name.endswith("__main__"):
            import_all(module.name)


def parse_models(services: tuple[str, ...]) -> None:
    """Parse botocore's models of these services once, for all processes that are forked.

    Each session of botocore parses them again: a third of the CPU time of commands that call AWS.
    """
    import botocore.loaders
    import botocore.session

    load_file = botocore.loaders.JSONFileLoader.load_file
    documents: dict[str, Any] = {}

    def load_once(self: Any, path: str) -> Any:
        if documents.get(path) is None:
            documents[path] = load_file(self, path)
        return documents[path]

    botocore.loaders.JSONFileLoader.load_file = load_once
    session = botocore.session.Session()
    for service in services:
        key = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
        session.create_client(service, region_name="us-east-1", **key)


def ask_moto_once() -> None:
    """Let moto build what it builds at the first request of a service, once for all endpoints.

    It takes more than a second, most of it for the managed policies of AWS in each partition, and
    for the types of instances. The requests change nothing.
    """
    from werkzeug.test import Client

    from batchyard.emulator import moto_adapter

    client = Client(moto_adapter.application())
    for service, version, action in (
        ("iam", "2010-05-08", "ListRoles"),
        ("sts", "2011-06-15", "GetCallerIdentity"),
        # Without a type the answer has 6 MB, which takes 3 s.
        ("ec2", "2016-11-15", "DescribeInstanceTypes&InstanceType.1=m6i.large"),
        ("cloudformation", "2010-05-15", "ListStacks"),
        ("s3", "", ""),
    ):
        scope = f"none/20260101/us-east-1/{service}/aws4_request"
        headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}"}
        if action:
            body = f"Version={version}&Action={action}"
            kind = "application/x-www-form-urlencoded"
            client.post("/", data=body, content_type=kind, headers=headers)
        else:
            client.get("/no-bucket/no-key", headers=headers)


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each request. Returns the request in the new process, None when all is over."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    waiting: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            report_ended(waiting)
        if control not in ready:
            continue
        message, files, _, _ = socket.recv_fds(control, 16, 4)
        if not message:
            stop_all(waiting)
            return None
        status = socket.socket(fileno=files[0])
        request = read_request(status)
        pid = os.fork() if request is not None else None
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for connection in (control, status, *waiting.values()):
                connection.close()
            os.close(woken)
            os.close(wake)
            take_files(files[1:])
            return request
        for fd in files[1:]:
            os.close(fd)
        if pid is None:
            status.close()
            continue
        waiting[pid] = status
        with contextlib.suppress(OSError):  # nobody waits for it any more
            status.sendall(struct.pack("!i", pid))


def stop_all(waiting: dict[int, socket.socket]) -> None:
    """End what is still running: the tests were killed before they could."""
    for pid in waiting:
        os.kill(pid, signal.SIGTERM)


def report_ended(waiting: dict[int, socket.socket]) -> None:
    while waiting:
        pid, wait_status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with waiting.pop(pid) as status:
            try:
                status.sendall(struct.pack("!i", wait_status))
            except OSError:  # nobody waits for it any more
                pass


def read_request(status: socket.socket) -> dict[str, Any] | None:
    """Return the request, None if who sent it was killed meanwhile. Others go on."""
    head = status.recv(4, socket.MSG_WAITALL)
    length = struct.unpack("!I", head)[0] if len(head) == 4 else 0
    body = bytearray()
    while len(body) < length:
        part = status.recv(length - len(body))
        if not part:
            return None
        body += part
    request: dict[str, Any] | None = json.loads(body) if body else None
    return request


def take_files(files: list[int]) -> None:
    """Make these the standard input, output and error, as Python opens them when it starts."""
    # Above 2 first: one of them may be in the place of another.
    files = [os.dup(fd) if fd < 3 else fd for fd in files]
    for number, fd in enumerate(files):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    sys.stdout = sys.__stdout__ = _open_output(1, sys.__stdout__)
    sys.stderr = sys.__stderr__ = _open_output(2, sys.__stderr__)


def _open_output(number: int, before: Any) -> io.TextIOWrapper:
    is_by_line = number == 2 or os.isatty(number)
    return io.TextIOWrapper(
        open(number, "wb", closefd=False),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=is_by_line,
    )


def execute(request: dict[str, Any], added: dict[str, str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update({**request["environ"], **added})
    argv = request["argv"]
    code = 0
    try:
        if argv[1:2] == ["-m"]:
            sys.path.insert(0, request["cwd"])
            sys.argv = argv[2:]
            runpy.run_module(argv[2], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(argv[0]))
            sys.argv = argv
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as exc:
        code = exit_code(exc)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    leave(code)


def exit_code(exc: SystemExit) -> int:
    if exc.code is None or isinstance(exc.code, int):
        return exc.code or 0
    print(exc.code, file=sys.stderr)
    return 1


def leave(code: int) -> None:
    """End as an interpreter does, without taking apart all that was imported."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    os._exit(code & 0xFF)


if __name__ == "__main__":
    del sys.path[0]  # the folder of the tests, which commands do not see
    main(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
