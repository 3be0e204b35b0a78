"""Starts `batchyard`, its worker and `aws` quickly: forked from a process that did the imports.

`run` and `Popen` take the place of those of `subprocess`. A command of batchyard costs 0.3 to 1.2 s
of CPU to start, nearly all of it imports, and the tests start thousands. What runs is still a
process of its own with its own arguments, environment, folder, files and exit status; only its
parent is another one. Set BATCHYARD_TESTS_REAL_START=1 to start every command from the beginning.

The other side is prestarted_server.py. Where pytest runs in several processes, they share the
servers of the first one: `share` and `use_shared`.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("prestarted_server.py")
BIN = Path(sys.executable).parent
IS_OFF = bool(os.environ.get("BATCHYARD_TESTS_REAL_START"))
#: Python reads these when it starts: where they differ, a forked process would not be the same.
READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "COVERAGE")

_servers: dict[str, _Server | _SharedServer] = {}
_shared_address = ""
_starting = threading.Lock()


class _Server:
    """A process that has imported what one kind of command needs."""

    def __init__(self, kind: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), kind, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._lock = threading.Lock()
        atexit.register(self._stop)

    @property
    def control(self) -> socket.socket:
        return self._control

    def start(self, request: Mapping[str, Any], files: Sequence[int]) -> tuple[int, socket.socket]:
        """Start a command. Returns its process id and the socket that its exit status comes on."""
        with self._lock:
            return _request_start(self._control, request, files)

    def _stop(self) -> None:
        # Other processes may hold the socket, too.
        self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        self._process.wait()


class _SharedServer:
    """The server of another process of pytest. A message on its socket is never torn apart."""

    def __init__(self, kind: str, address: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(f"\0{address}")
            connection.send(kind.encode())
            _, (fd,), _, _ = socket.recv_fds(connection, 16, 1)
        os.set_inheritable(fd, False)
        self.control = socket.socket(fileno=fd)
        atexit.register(self.control.close)

    def start(self, request: Mapping[str, Any], files: Sequence[int]) -> tuple[int, socket.socket]:
        return _request_start(self.control, request, files)


def _request_start(
    control: socket.socket, request: Mapping[str, Any], files: Sequence[int]
) -> tuple[int, socket.socket]:
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(control, [b"start"], [theirs.fileno(), *files])
    body = json.dumps(request).encode()
    ours.sendall(struct.pack("!I", len(body)) + body)
    return _receive(ours), ours


def share() -> str:
    """Let other processes use the servers of this one. Returns the address for `use_shared`.

    A server is still started when it is first needed. Each process would need seconds of CPU time
    to start its own.
    """
    address = f"batchyard-tests-{os.getpid()}-{secrets.token_hex(8)}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0{address}")
    listener.listen()
    threading.Thread(target=_hand_out, args=(listener,), daemon=True).start()
    return address


def prepare(kind: str) -> None:
    """Start the server for a kind of command, which is not needed yet."""
    _server(kind)


def use_shared(address: str) -> None:
    """Start commands by the servers of the process that has called `share`."""
    global _shared_address
    _shared_address = address


def _hand_out(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # who asks may be killed meanwhile
            if kind := connection.recv(100).decode():
                socket.send_fds(connection, [b"control"], [_server(kind).control.fileno()])


class Popen(subprocess.Popen[Any]):
    """As subprocess.Popen; the process is forked where that makes no difference."""

    _status: socket.socket | None = None

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any,
                       pass_fds: Any, cwd: Any, env: Any, *rest: Any) -> None:  # fmt: skip
        _, _, shell, *pipes = rest[:9]
        p2cread, _, _, c2pwrite, _, errwrite = pipes
        # restore_signals, gid, gids, uid, umask, start_new_session, process_group
        is_usual = rest[9:] == (True, None, None, None, -1, False, -1)
        environ = dict(os.environ if env is None else env)
        words = [os.fspath(word) for word in args] if isinstance(args, list) else []
        kind = kind_of(words, environ)
        if not (kind and is_usual and is_same_start(environ)) or (
            executable or preexec_fn or pass_fds or shell
        ):
            more = (executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)
            super()._execute_child(args, *more)  # type: ignore[misc]
            return
        request = {
            "argv": words,
            "cwd": os.path.abspath(os.fspath(cwd or ".")),
            "environ": environ,
        }
        files = [p2cread, c2pwrite, errwrite]
        files = [number if fd == -1 else fd for number, fd in enumerate(files)]
        self.pid, self._status = _server(kind).start(request, files)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status is None:
            answer: tuple[int, int] = super()._try_wait(wait_flags)  # type: ignore[misc]
            return answer
        timeout_s = 0 if wait_flags & os.WNOHANG else None
        if not select.select([self._status], [], [], timeout_s)[0]:
            return 0, 0
        wait_status = _receive(self._status)
        self._status.close()
        return self.pid, wait_status

    def _internal_poll(self, *args: Any, **kwargs: Any) -> int | None:
        if self._status is None:
            polled: int | None = super()._internal_poll(*args, **kwargs)  # type: ignore[misc]
            return polled
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def run(
    command: Sequence[Any],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **more: Any,
) -> subprocess.CompletedProcess[Any]:
    """As subprocess.run."""
    if input is not None:
        more["stdin"] = subprocess.PIPE
    if capture_output:
        more["stdout"] = more["stderr"] = subprocess.PIPE
    with Popen(list(command), **more) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def kind_of(argv: list[str], environ: Mapping[str, str]) -> str | None:
    """Return which server can start this command; None if none can.

    Commands that call no AWS have one without boto3: it is a third as large, and forking it takes
    about half as long.
    """
    if argv == [sys.executable, "-m", "batchyard.worker"]:
        return "worker"
    if argv[:3] == [sys.executable, "-m", "batchyard"]:
        words = argv[3:]
    elif argv[:1] == [str(BIN / "batchyard")]:
        words = argv[1:]
    else:
        return "aws" if argv[:1] == [str(BIN / "aws")] else None
    if words[:1] == ["emulate"]:
        return "endpoint"
    return "command on aws" if "AWS_ENDPOINT_URL" in environ else "command"


def is_same_start(environ: Mapping[str, str]) -> bool:
    """Return whether an interpreter starts alike in this environment and in ours."""
    if IS_OFF or not all(isinstance(name, str) for name in environ):
        return False
    return _start_variables(environ) == _start_variables(os.environ)


def _start_variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(READ_AT_START)}


def _server(kind: str) -> _Server | _SharedServer:
    with _starting:
        if kind not in _servers:
            shared = _shared_address
            _servers[kind] = _SharedServer(kind, shared) if shared else _Server(kind)
        return _servers[kind]


def _receive(status: socket.socket) -> int:
    data = status.recv(4, socket.MSG_WAITALL)
    assert len(data) == 4, "the process that starts commands has ended"
    number: int = struct.unpack("!i", data)[0]
    return number
