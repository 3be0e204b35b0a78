"""embedded/posix_spawn: the environment and the arguments of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

from batchyard.embedded import posix_spawn
from batchyard.embedded.posix_spawn import Environ, SharedEnviron


def output_of(*argv: str, environ: Mapping[bytes, bytes]) -> bytes:
    """What a process with this environment prints; it must succeed."""
    read_end, write_end = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        pid = posix_spawn.spawn(argv[0], argv, environ, null, write_end)
    finally:
        os.close(write_end)
        os.close(null)
    with open(read_end, "rb") as output:
        text = output.read()
    assert os.waitpid(pid, 0)[1] == 0
    return text


def test_a_process_has_its_own_variables_and_the_shared_ones() -> None:
    shared = SharedEnviron({b"A": b"shared", b"B": b"shared"})
    for value in (b"1", b"2"):
        environ = Environ({b"OWN": value}, shared)
        lines = output_of("/usr/bin/env", environ=environ).splitlines()
        assert sorted(lines) == [b"A=shared", b"B=shared", b"OWN=" + value]
    assert output_of("/usr/bin/env", environ={b"A": b"1"}) == b"A=1\n"


def test_its_own_value_of_a_shared_variable_is_the_only_one() -> None:
    environ = Environ({b"A": b"own"}, SharedEnviron({b"A": b"shared", b"B": b"shared"}))
    lines = output_of("/usr/bin/env", environ=environ).splitlines()
    assert sorted(lines) == [b"A=own", b"B=shared"]
    assert dict(environ) == {b"A": b"own", b"B": b"shared"}
    assert (len(environ), environ[b"A"], environ.get(b"C")) == (2, b"own", None)


def test_variables_that_no_process_can_have_are_refused() -> None:
    good = SharedEnviron({b"A": b"1"})
    for environ in (
        Environ({b"A=B": b""}, good),
        Environ({b"": b"1"}, good),
        Environ({b"B": b"1\0"}, good),
        Environ({b"B": b"1"}, SharedEnviron({b"": b"1"})),
        {b"A\0": b"1"},
    ):
        with pytest.raises(ValueError, match=r"illegal environment variable name|null byte"):
            output_of("/usr/bin/env", environ=environ)
    with pytest.raises(ValueError, match="null byte"):
        output_of("/usr/bin/printf", "a\0b", environ={})


def test_signals_that_are_ignored_stay_ignored_but_for_those_of_python() -> None:
    """As under nohup. Python itself ignores SIGPIPE and SIGXFSZ, and handles SIGINT."""
    spawn = (
        "import os; from batchyard.embedded import posix_spawn\n"
        "argv = ['/bin/cat', '/proc/self/status']\n"
        "os.waitpid(posix_spawn.spawn(argv[0], argv, {}, 0, 1), 0)"
    )
    command = ["sh", "-c", 'trap "" HUP USR1; exec "$0" -c "$1"', sys.executable, spawn]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    fields = dict(line.split(":\t") for line in lines)
    masks = {name: int(fields[name], 16) for name in ("SigIgn", "SigBlk", "SigCgt")}
    ignored = {number for number in range(1, 32) if masks["SigIgn"] >> (number - 1) & 1}
    assert ignored >= {signal.SIGHUP, signal.SIGUSR1}
    assert ignored.isdisjoint({signal.SIGPIPE, signal.SIGXFSZ})
    assert masks["SigBlk"] == masks["SigCgt"] == 0
