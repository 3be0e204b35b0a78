"""`batchyard-worker`: from the environment that AWS Batch gives to an exit code. The only place that reads it."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from batchyard.worker import faults, notices, orders, records, s3
from batchyard.worker.attempt import Attempt
from batchyard.worker.faults import Fault
from batchyard.worker.moving import Mover
from batchyard.worker.processes import Starter
from batchyard.worker.rules import Verdict
from batchyard.worker.stopping import Bell
from batchyard.worker.workspace import Workspace

#: between SIGTERM and SIGKILL, unless the ECS agent of the host is set otherwise
_STOP_S = 30


def main() -> None:
    code = run(os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    # At once: threads of a transfer that was given up may wait for the network for long.
    os._exit(code)


def run(environ: Mapping[str, str]) -> int:
    try:
        bell = Bell()
        _listen(bell, environ)
        verdict = work(environ, bell, _say)
    except Fault as fault:
        _say(str(fault))
        return fault.exit_code
    except OSError as exc:
        _say(str(faults.from_os_error("go on with", exc)))
        return faults.MACHINE
    except Exception as exc:
        _say_bug(exc, environ)
        return faults.BUG
    if verdict.remark:
        _say(verdict.remark)
    return verdict.exit_code


def work(environ: Mapping[str, str], bell: Bell, say: Callable[[str], None]) -> Verdict:
    """The attempt that the environment describes."""
    child, address = orders.child_of(environ), orders.address_of(environ)
    bucket = s3.connect()
    told = orders.read(bucket.read(address, "read the orders"), address)
    number = told.number_of(child.position)
    with _folder(environ) as folder:
        return Attempt(
            orders=told,
            number=number,
            attempt=child.attempt,
            records=records.Records(bucket, told, child, number),
            workspace=Workspace(folder, told, number, bucket, Mover(bucket.client), say),
            starter=Starter(
                folder,
                orders.told_to_commands(environ, told, child, number, folder),
                bell,
                saves=bool(told.checkpoint),
            ),
            command=records.command_reader(bucket, told, told.commands_of(number)),
            bell=bell,
            say=say,
        ).run()


def _listen(bell: Bell, environ: Mapping[str, str]) -> None:
    """To signals, and to the metadata service."""
    seconds = faults.variable(environ, "BATCHYARD_STOP_S", _STOP_S)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(
            number,
            lambda signum, frame: bell.ring(f"stopped by {signal.Signals(signum).name}", seconds),
        )
    address = notices.address_of(environ)
    if address is not None:
        metadata = notices.Metadata(address)
        why = "EC2 takes this machine away"
        watch = threading.Thread(
            target=notices.watch,
            args=(metadata, lambda left: bell.ring(why, left)),
            name="notices",
            daemon=True,
        )
        watch.start()


@contextmanager
def _folder(environ: Mapping[str, str]) -> Iterator[str]:
    """The child's workspace on this machine: its own, and gone afterwards, unless the environment names one."""
    given = environ.get("BATCHYARD_WORKDIR", "")
    if given:
        os.makedirs(given, exist_ok=True)
        yield os.path.abspath(given)
        return
    made = tempfile.mkdtemp(prefix="batchyard-")
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _say(text: str) -> None:
    print(f"batchyard-worker: {text}", file=sys.stderr, flush=True)


def _say_bug(exc: Exception, environ: Mapping[str, str]) -> None:
    at = traceback.extract_tb(exc.__traceback__)[-1]
    where = f"{os.path.basename(at.filename)}:{at.lineno}"
    _say(
        f"a mistake of the worker's own: {type(exc).__name__} at {where}: {exc}; BATCHYARD_DEBUG=1 shows more"
    )
    if environ.get("BATCHYARD_DEBUG"):
        traceback.print_exception(exc)
