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
#: Signals that Python ignores. A child would inherit that.
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
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


_ATTRIBUTES = _attributes()


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

    @property
    def pointers(self) -> ctypes.Array[ctypes.c_char_p]:
        """C's array of all variables."""
        own, shared = self.own, self.shared
        if not shared.keys().isdisjoint(own):
            return _pointers(_encode_variables({**shared, **own}))
        count = len(shared)
        texts: list[ctypes.c_char_p | bytes | None] = [*_encode_variables(own)]
        pointers = (ctypes.c_char_p * (count + len(own) + 1))()
        ctypes.memmove(pointers, shared.pointers, count * _POINTER_SIZE)
        pointers[count:-1] = texts
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

    ``stdout`` is also its stderr. Raises ValueError for arguments or variables that no program can
    have.
    """

    __slots__ = ("_arguments", "_path", "_pid")

    def __init__(
        self,
        path: str,
        argv: Sequence[str],
        environ: Mapping[bytes, bytes],
        stdin: int,
        stdout: int,
    ) -> None:
        self._path = path
        self._pid = ctypes.c_int()
        encoded_path, arguments = _encode_command(path, tuple(argv))
        #: Arguments of the C function.
        self._arguments = (
            ctypes.byref(self._pid),
            encoded_path,
            _file_actions(stdin, stdout),
            _ATTRIBUTES,
            arguments,
            environ.pointers
            if isinstance(environ, Environ)
            else _pointers(_encode_variables(environ)),
        )

    def start(self) -> int:
        """Start the program, and return its pid. Raises OSError if it cannot be started."""
        error = _posix_spawn(*self._arguments)
        if error:
            raise OSError(error, os.strerror(error), self._path)
        return self._pid.value


def spawn(
    program: str, argv: Sequence[str], environ: Mapping[bytes, bytes], stdin: int, stdout: int
) -> int:
    """Start a program, see ``Program``, and return its pid. Raises OSError or ValueError."""
    return Program(program, argv, environ, stdin, stdout).start()
