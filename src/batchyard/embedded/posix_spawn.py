"""posix_spawn that releases the interpreter lock while the new program is loaded.

Loading takes half a millisecond, and os.posix_spawn holds the lock for all of it. What many
processes have in common is made once: an environment of fifty variables costs 0.1 ms.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from functools import cache, cached_property, lru_cache

# POSIX defines only the names of the flags. All C libraries on Linux have these values.
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80
#: Signals that Python ignores, and that of ended children. A child would inherit that.
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)
#: Signals that nobody can handle.
_FIXED_SIGNALS = {signal.SIGKILL, signal.SIGSTOP}
#: More than any C library needs for one of its structures.
_STRUCTURE_SIZE = 1024

#: Releases the interpreter lock during a call.
_slow = ctypes.CDLL(None)
#: Holds the lock, since releasing it costs more than a short call.
_quick = ctypes.PyDLL(None)

_posix_spawn = _slow.posix_spawn

_EQUALS_SIGN = ord("=")
_POINTER_SIZE = ctypes.sizeof(ctypes.c_char_p)
_Structure = ctypes.c_char * _STRUCTURE_SIZE


def _attributes() -> ctypes.Array[ctypes.c_char]:
    """Return attributes for a new session, with no signal blocked and Python's ones restored.

    Other signals that this process ignores stay ignored, as under nohup. All that it does not
    ignore are named: for each other signal, glibc has to ask the kernel first.
    """
    attributes, signals = _Structure(), _Structure()
    _quick.posix_spawnattr_init(attributes)
    _quick.sigemptyset(signals)
    _quick.posix_spawnattr_setsigmask(attributes, signals)
    ignored = {n for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN}
    for number in signal.valid_signals() - ignored.difference(_RESET_SIGNALS) - _FIXED_SIGNALS:
        _quick.sigaddset(signals, int(number))
    _quick.posix_spawnattr_setsigdefault(attributes, signals)
    _quick.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID))
    return attributes


#: The number of a file that is not open.
NO_FILE = -1
#: Attributes of every new process.
ATTRIBUTES = _attributes()


def restore_child_signal() -> None:
    """Let this process see how its children end, also if it was started with SIGCHLD ignored.

    The kernel would reap them. `signal.signal` can be called by the main thread only.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        _quick.signal(ctypes.c_int(signal.SIGCHLD), ctypes.c_void_p(int(signal.SIG_DFL)))


class SharedEnviron(dict[bytes, bytes]):
    """Variables that many processes have. They do not change."""

    @cached_property
    def pointers(self) -> ctypes.Array[ctypes.c_char_p]:
        return _pointers(_encode_variables(self))


class Environ(MutableMapping[bytes, bytes]):
    """The variables of one process: its own, before those that it shares with others."""

    __slots__ = ("own", "shared")

    def __init__(self, own: dict[bytes, bytes], shared: SharedEnviron) -> None:
        self.own = own
        self.shared = shared

    def __getitem__(self, name: bytes) -> bytes:
        return self.own[name] if name in self.own else self.shared[name]

    def __setitem__(self, name: bytes, value: bytes) -> None:
        self.own[name] = value

    def __delitem__(self, name: bytes) -> None:
        del self.own[name]

    @property
    def path(self) -> bytes | None:
        """The folders of programs."""
        return self.own[b"PATH"] if b"PATH" in self.own else self.shared.get(b"PATH")

    def __iter__(self) -> Iterator[bytes]:
        return iter({**self.shared, **self.own})

    def __len__(self) -> int:
        return len({**self.shared, **self.own})

    def encode(self) -> Variables:
        if not self.shared.keys().isdisjoint(self.own):
            return Variables(SharedEnviron({**self.shared, **self.own}))
        return Variables(self.shared, _encode_variables(self.own))


class Variables:
    """The variables of one process, in the form that C needs."""

    __slots__ = ("own", "own_count", "shared", "shared_count")

    def __init__(self, shared: SharedEnviron, own_texts: Sequence[bytes] = ()) -> None:
        """``own_texts``: like b"NAME=value", with names that ``shared`` does not have."""
        #: C's array of the shared variables, which ends with a null pointer.
        self.shared = shared.pointers
        self.shared_count = len(shared)
        #: The own variables, each with a null byte behind it.
        self.own = b"\0".join([*own_texts, b""])
        self.own_count = len(own_texts)

    @property
    def pointers(self) -> ctypes.Array[ctypes.c_char_p]:
        """C's array of all variables."""
        count = self.shared_count
        pointers = (ctypes.c_char_p * (count + self.own_count + 1))()
        ctypes.memmove(pointers, self.shared, count * _POINTER_SIZE)
        own_texts: list[ctypes.c_char_p | bytes | None] = [*self.own.split(b"\0")[:-1]]
        pointers[count:-1] = own_texts
        return pointers


def _encode_variables(environ: Mapping[bytes, bytes]) -> list[bytes]:
    _check_names(tuple(environ))
    return _require_no_null([name + b"=" + value for name, value in environ.items()])


@lru_cache(maxsize=64)
def _check_names(names: tuple[bytes, ...]) -> None:
    """Raise ValueError for names that no variable can have. All children of a job have the same."""
    if any(not name or _EQUALS_SIGN in name for name in names):
        raise ValueError("illegal environment variable name")


def _require_no_null(texts: list[bytes]) -> list[bytes]:
    if 0 in b"".join(texts):  # a number is found much faster than a text
        raise ValueError("embedded null byte")
    return texts


def _pointers(texts: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    """Return C's array of the texts, which ends with a null pointer."""
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)


@lru_cache(maxsize=64)
def _encode_command(
    path: str, argv: tuple[str, ...]
) -> tuple[bytes, ctypes.Array[ctypes.c_char_p]]:
    """Return path and array of arguments for C. The children of an array often have the same."""
    return os.fsencode(path), _pointers(_require_no_null([os.fsencode(word) for word in argv]))


@cache
def _file_actions(stdin: int, stdout: int) -> ctypes.Array[ctypes.c_char]:
    """Return actions that give a process these files, and ``stdout`` also as its stderr.

    There are as many as there are numbers of open files, since the kernel uses numbers again.
    """
    actions = _Structure()
    _quick.posix_spawn_file_actions_init(actions)
    for source, target in ((stdin, 0), (stdout, 1), (stdout, 2)):
        _quick.posix_spawn_file_actions_adddup2(actions, source, target)
    return actions


class Program:
    """A program to start as the leader of a new session, with all that C needs for it.

    Raises ValueError for arguments or variables that no program can have.
    """

    __slots__ = ("arguments", "encoded_path", "path", "variables")

    def __init__(self, path: str, argv: Sequence[str], environ: Mapping[bytes, bytes]) -> None:
        self.path = path
        self.encoded_path, self.arguments = _encode_command(path, tuple(argv))
        self.variables = (
            environ.encode() if isinstance(environ, Environ) else Variables(SharedEnviron(environ))
        )

    def start(self, stdin: int, stdout: int) -> int:
        """Start the program with ``stdout`` also as its stderr, and return its pid.

        Raises OSError if it cannot be started.
        """
        pid = ctypes.c_int()
        error = _posix_spawn(
            ctypes.byref(pid),
            self.encoded_path,
            _file_actions(stdin, stdout),
            ATTRIBUTES,
            self.arguments,
            self.variables.pointers,
        )
        if error:
            raise OSError(error, os.strerror(error), self.path)
        return pid.value


def spawn(
    program: str, argv: Sequence[str], environ: Mapping[bytes, bytes], stdin: int, stdout: int
) -> int:
    """Start a program, see ``Program``, and return its pid. Raises OSError or ValueError."""
    return Program(program, argv, environ).start(stdin, stdout)
