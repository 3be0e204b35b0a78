"""posix_spawn that lets other threads run meanwhile.

It returns when the new program has been loaded, half a millisecond later; os.posix_spawn keeps the interpreter to
itself until then. Knows nothing of jobs.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Mapping, Sequence

# POSIX names the flags, not their values: these are those of every C library on Linux.
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80
#: Python ignores these, and a child would inherit that
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
#: more than any C library needs for one of its structures
_STRUCTURE_SIZE = 1024

#: lets go of the interpreter during a call
_slow = ctypes.CDLL(None)
#: does not, as that costs more than a short call takes
_quick = ctypes.PyDLL(None)

_Structure = ctypes.c_char * _STRUCTURE_SIZE


def _attributes() -> ctypes.Array[ctypes.c_char]:
    """A session of its own, no signal blocked, none ignored that Python ignores."""
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


def spawn(
    program: str, argv: Sequence[str], environ: Mapping[bytes, bytes], stdin: int, stdout: int
) -> int:
    """Starts it as the leader of a session of its own, its stdout and stderr the same. Returns its pid.

    Raises OSError where it cannot be started, ValueError where no program can be given such words.
    """
    words = [os.fsencode(word) for word in argv]
    variables = [name + b"=" + value for name, value in environ.items()]
    if any(b"\0" in text for text in words) or any(b"\0" in text for text in variables):
        raise ValueError("embedded null byte")
    if any(b"=" in name or not name for name in environ):
        raise ValueError("illegal environment variable name")
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
