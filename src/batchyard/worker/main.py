"""`batchyard-worker`: run the attempt that AWS Batch's environment variables describe.

No other module of the worker reads the environment.
"""

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

from batchyard.worker import errors, notices, orders, records, s3
from batchyard.worker.attempt import Attempt
from batchyard.worker.errors import WorkerError
from batchyard.worker.processes import CommandRunner
from batchyard.worker.rules import Verdict
from batchyard.worker.stop_requests import StopRequests
from batchyard.worker.transfers import Transfers
from batchyard.worker.workspace import Workspace

#: time between SIGTERM and SIGKILL, unless the ECS agent of the host has another setting
_STOP_S = 30


def main() -> None:
    code = run(os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit at once: threads of a cancelled transfer can wait for the network for long.
    os._exit(code)


def run(environ: Mapping[str, str]) -> int:
    """Run the attempt and return the worker's exit code."""
    try:
        stop_requests = StopRequests()
        _watch_for_stop(stop_requests, environ)
        verdict = run_attempt(environ, stop_requests, _log)
    except WorkerError as error:
        _log(str(error))
        return error.exit_code
    except OSError as exc:
        _log(str(errors.from_os_error("continue with", exc)))
        return errors.EXIT_MACHINE
    except Exception as exc:
        _log_bug(exc, environ)
        return errors.EXIT_BUG
    if verdict.remark:
        _log(verdict.remark)
    return verdict.exit_code


def run_attempt(
    environ: Mapping[str, str], stop_requests: StopRequests, log: Callable[[str], None]
) -> Verdict:
    """Run the attempt that the environment describes."""
    child, place = orders.child_of(environ), orders.orders_place(environ)
    bucket = s3.connect()
    step_orders = orders.read(bucket.read(place, "read the orders"), place)
    number = step_orders.number_of(child.position)
    with _workspace_folder(environ) as folder:
        return Attempt(
            orders=step_orders,
            number=number,
            attempt=child.attempt,
            records=records.Records(bucket, step_orders, child, number),
            workspace=Workspace(folder, step_orders, number, bucket, Transfers(bucket.client), log),
            runner=CommandRunner(
                folder,
                orders.command_environment(environ, step_orders, child, number, folder),
                stop_requests,
                has_checkpoint=bool(step_orders.checkpoint),
            ),
            command=records.command_reader(bucket, step_orders, step_orders.commands_of(number)),
            stop_requests=stop_requests,
            log=log,
        ).run()


def _watch_for_stop(stop_requests: StopRequests, environ: Mapping[str, str]) -> None:
    """Add a stop request for SIGTERM, for SIGINT, and for a spot notice of EC2."""
    stop_s = errors.read_variable(environ, "BATCHYARD_STOP_S", _STOP_S)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(
            number,
            lambda signum, frame: stop_requests.add(
                f"stopped by {signal.Signals(signum).name}", stop_s
            ),
        )
    address = notices.metadata_address(environ)
    if address is not None:
        metadata = notices.Metadata(address)
        reason = "EC2 takes this machine away"
        thread = threading.Thread(
            target=notices.watch,
            args=(metadata, lambda remaining_s: stop_requests.add(reason, remaining_s)),
            name="notices",
            daemon=True,
        )
        thread.start()


@contextmanager
def _workspace_folder(environ: Mapping[str, str]) -> Iterator[str]:
    """The child's workspace on this machine: BATCHYARD_WORKDIR, or a temporary folder."""
    folder = environ.get("BATCHYARD_WORKDIR", "")
    if folder:
        os.makedirs(folder, exist_ok=True)
        yield os.path.abspath(folder)
        return
    temporary = tempfile.mkdtemp(prefix="batchyard-")
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _log(text: str) -> None:
    print(f"batchyard-worker: {text}", file=sys.stderr, flush=True)


def _log_bug(exc: Exception, environ: Mapping[str, str]) -> None:
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    line = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    _log(
        f"a bug of the worker: {type(exc).__name__} at {line}: {exc}; "
        "set BATCHYARD_DEBUG=1 to see the traceback"
    )
    if environ.get("BATCHYARD_DEBUG"):
        traceback.print_exception(exc)
