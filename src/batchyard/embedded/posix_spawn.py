"""posix_spawn that releases the interpreter lock while the new program is loaded.

Loading takes half a millisecond, and os.posix_spawn holds the lock for all of it.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Mapping, Sequence

# POSIX defines only the names of the flags. All C libraries on Linux have these values.
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80
#: Signals that Python ignores. A child would inherit that.
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
#: More than any C library needs for one of its structures.
_STRUCTURE_SIZE = 1024

#: Releases the interpreter lock during a call.
_slow = ctypes.CDLL(None)
#: Holds the lock, since releasing it costs more than a short call.
_quick = ctypes.PyDLL(None)

_Structure = ctypes.c_char * _STRUCTURE_SIZE


def _attributes() -> ctypes.Array[ctypes.c_char]:
    """Return attributes for a new session, with no signal blocked and Python's ones restored."""
    attributes, signals = _Structure(), _Structure()
    _quick.posix_spawnattr_init(attributes)
    _quick.sigemptyset(signals)
    _quick.posix_spawnattr_setsigmask(attributes, signals)
    for number in _RESET_SIGNALS:
        _quick.sigaddset(signals, int(number))
    _quick.posix_spawnattr_setsigdefault(attributes, signals)
    _quick.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID))
    return attributes


_ATTRIBUTES = _attributes()


def _check_strings(
    words: Sequence[bytes], variables: Sequence[bytes], environ: Mapping[bytes, bytes]
) -> None:
    if any(b"\0" in text for text in words) or any(b"\0" in text for text in variables):
        raise ValueError("embedded null byte")
    if any(b"=" in name or not name for name in environ):
        raise ValueError("illegal environment variable name")


def spawn(
    program: str, argv: Sequence[str], environ: Mapping[bytes, bytes], stdin: int, stdout: int
) -> int:
    """Start a program as the leader of a new session, and return its pid.

    ``stdout`` is also its stderr. Raises OSError if the program cannot be started, ValueError for
    arguments or variables that no program can have.
    """
    words = [os.fsencode(word) for word in argv]
    variables = [name + b"=" + value for name, value in environ.items()]
    _check_strings(words, variables, environ)
    argument_list = (ctypes.c_char_p * (len(words) + 1))(*words, None)
    environment = (ctypes.c_char_p * (len(variables) + 1))(*variables, None)
    actions, pid = _Structure(), ctypes.c_int()
    _quick.posix_spawn_file_actions_init(actions)
    try:
        for source, target in ((stdin, 0), (stdout, 1), (stdout, 2)):
            _quick.posix_spawn_file_actions_adddup2(actions, source, target)
        path = os.fsencode(program)
        error = _slow.posix_spawn(
            ctypes.byref(pid), path, actions, _ATTRIBUTES, argument_list, environment
        )
    finally:
        _quick.posix_spawn_file_actions_destroy(actions)
    if error:
        raise OSError(error, os.strerror(error), program)
    return pid.value
