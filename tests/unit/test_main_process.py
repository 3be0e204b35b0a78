"""`__main__`: how the process of a command ends."""

from __future__ import annotations

import subprocess
import sys

import pytest


def end_of(statement: str) -> tuple[int, str]:
    """Exit code and output of a process that ends after the statement."""
    head = "import atexit, threading\nfrom batchyard.__main__ import _end_process"
    script = f"{head}\n{statement}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize("code", [0, 1, 3, 130])
def test_the_exit_code_is_that_of_the_command(code: int) -> None:
    assert end_of(f"_end_process({code})") == (code, "")


def test_exit_functions_are_called() -> None:
    assert end_of("atexit.register(print, 'called', flush=True)\n_end_process(3)") == (
        3,
        "called\n",
    )


def test_threads_that_are_no_daemons_are_awaited() -> None:
    statement = """
def work():
    main_thread.join(0.1)
    print("done", flush=True)
main_thread = threading.main_thread()
threading.Thread(target=work).start()
_end_process(1)
"""
    assert end_of(statement) == (1, "done\n")
