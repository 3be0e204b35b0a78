"""The process of the `batchyard` command: `python -m batchyard`, and the script of the package.

A short command would spend a sixth of its time in Python's own bookkeeping: garbage collections
while modules are imported, and the deletion of all objects at the end. Both are left out.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from typing import NoReturn

#: Objects that are created before Python looks for garbage. Imports create some 50,000, none of
#: which is garbage; the default is 700.
_COLLECT_AFTER_OBJECTS = 50_000


def main() -> NoReturn:
    """Run the command of this process's arguments, and end the process with its exit code."""
    gc.set_threshold(_COLLECT_AFTER_OBJECTS, 10, 10)
    from batchyard.cli.main import main as run_command

    code: object = 0
    try:
        run_command()
    except SystemExit as exc:
        code = exc.code
    _end_process(code)


def _end_process(code: object) -> NoReturn:
    """End the process without deleting its objects. The command has flushed stdout and stderr."""
    if not isinstance(code, int) or any(not thread.daemon for thread in _other_threads()):
        sys.exit(code)  # type: ignore[arg-type]
    atexit._run_exitfuncs()
    os._exit(code)


def _other_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread is not threading.main_thread()]


if __name__ == "__main__":
    main()
