"""`batchyard-worker`: run the attempt that AWS Batch's environment variables describe.

No other module of the worker reads the environment.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from batchyard.worker import errors, notices, orders, records, rules, s3, task_identity
from batchyard.worker.attempt import Attempt
from batchyard.worker.block_keeper import BlockKeeper
from batchyard.worker.block_store import BlockStore
from batchyard.worker.command_sampler import CommandSampler
from batchyard.worker.dynamic_attempt import DynamicAttempt
from batchyard.worker.errors import WorkerError
from batchyard.worker.host import Host
from batchyard.worker.leases import LEASE_S, Owner
from batchyard.worker.orders import Child, Orders
from batchyard.worker.processes import Abandonment, CommandRunner
from batchyard.worker.rules import Verdict
from batchyard.worker.s3 import Bucket
from batchyard.worker.stop_requests import StopRequests
from batchyard.worker.transfers import Transfers
from batchyard.worker.workspace import Workspace

#: time between SIGTERM and SIGKILL, unless the ECS agent of the host has another setting
_STOP_S = 30
#: time before the timeout of the attempt at which the worker exits, to be retried
_TIMEOUT_MARGIN_S = 10


def main() -> None:
    code = run(os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    # Exit at once: threads of a cancelled transfer can wait for the network for long.
    os._exit(code)


def run(environ: Mapping[str, str]) -> int:
    """Run the attempt and return the worker's exit code."""
    started_s, stop_requests = time.monotonic(), StopRequests()
    exit_code = _run_to_exit_code(environ, stop_requests)
    if exit_code == errors.EXIT_RETRY:
        _hold_slot(stop_requests, environ, started_s)
    return exit_code


def _run_to_exit_code(environ: Mapping[str, str], stop_requests: StopRequests) -> int:
    try:
        host = Host()
        _watch_for_stop(stop_requests, environ, host)
        verdict = run_attempt(environ, stop_requests, host, _log)
    except WorkerError as error:
        _log(str(error))
        verdict = _decide_after_error(error.exit_code, environ)
    except OSError as exc:
        _log(str(errors.from_os_error("continue with", exc)))
        verdict = _decide_after_error(errors.EXIT_MACHINE, environ)
    except Exception as exc:
        _log_bug(exc, environ)
        verdict = _decide_after_error(errors.EXIT_BUG, environ)
    if verdict.remark:
        _log(verdict.remark)
    return verdict.exit_code


def _decide_after_error(exit_code: int, environ: Mapping[str, str]) -> Verdict:
    retried = environ.get("BATCHYARD_RETRIED_ERRORS", "").split(",")
    attempts, attempt = (
        environ.get(name, "") for name in ("BATCHYARD_ATTEMPTS", "AWS_BATCH_JOB_ATTEMPT")
    )
    # The error may be about these very variables.
    is_last = not (attempts.isdigit() and attempt.isdigit()) or int(attempt) >= int(attempts)
    return rules.decide_after_error(
        exit_code, [int(code) for code in retried if code.isdigit()], is_last
    )


def run_attempt(
    environ: Mapping[str, str],
    stop_requests: StopRequests,
    host: Host,
    log: Callable[[str], None],
) -> Verdict:
    """Run the attempt that the environment describes."""
    child, place = orders.child_of(environ), orders.orders_place(environ)
    # botocore itself reads only AWS_DEFAULT_REGION.
    bucket = s3.connect(environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"))
    step_orders = orders.read(bucket.read(place, "read the orders"), place)
    if step_orders.blocks is not None:
        child = task_identity.identify(child, step_orders.children, environ)
    number = step_orders.number_of(child.position)
    with _workspace_folder(environ) as folder:
        if step_orders.blocks is not None:
            return _run_dynamic(
                environ, bucket, step_orders, child, number, folder, stop_requests, log
            )
        child_records = records.Records(bucket, step_orders, child, number, host)
        return _run_static(environ, child_records, folder, stop_requests, log)


def _run_static(
    environ: Mapping[str, str],
    child_records: records.Records,
    folder: str,
    stop_requests: StopRequests,
    log: Callable[[str], None],
) -> Verdict:
    """Run the commands that are the child's by its index."""
    bucket, step_orders = child_records.bucket, child_records.orders
    child, number = child_records.child, child_records.number
    command = records.command_reader(bucket, step_orders, step_orders.commands_of(number))
    step_orders = step_orders.for_child(number, command)
    return Attempt(
        orders=step_orders,
        number=number,
        attempt=child.attempt,
        records=replace(child_records, orders=step_orders),
        workspace=Workspace(folder, step_orders, number, bucket, Transfers(bucket.client), log),
        runner=CommandRunner(
            folder,
            orders.command_environment(environ, step_orders, child, number, folder),
            stop_requests,
            has_checkpoint=bool(step_orders.checkpoint),
            sampler=_make_sampler(environ, step_orders),
        ),
        command=command,
        stop_requests=stop_requests,
        log=log,
    ).run()


def _run_dynamic(
    environ: Mapping[str, str],
    bucket: Bucket,
    step_orders: Orders,
    child: Child,
    number: int,
    folder: str,
    stop_requests: StopRequests,
    log: Callable[[str], None],
) -> Verdict:
    """Run the commands of the blocks that the child claims."""
    assert step_orders.blocks is not None
    child_orders = step_orders.for_child(number, _refuse_command_patterns)
    blocks = step_orders.cut_blocks()
    runner = CommandRunner(
        folder,
        orders.command_environment(environ, step_orders, child, number, folder),
        stop_requests,
        has_checkpoint=False,
        timeout_s=step_orders.timeout_s,
        sampler=_make_sampler(environ, step_orders),
    )
    keeper = BlockKeeper(
        BlockStore(bucket, step_orders.blocks),
        Owner(child.job_id, number, child.attempt, secrets.token_hex(8)),
        len(blocks),
        own_children=step_orders.size,
        preferred=child.position,
        lease_s=errors.read_variable(environ, "BATCHYARD_LEASE_S", int(LEASE_S)),
        on_lost=lambda command: stop_requests.events.put(Abandonment(command)),
        log=log,
    )
    return DynamicAttempt(
        orders=child_orders,
        read_numbers=records.number_reader(bucket, step_orders),
        blocks=blocks,
        keeper=keeper,
        workspace=Workspace(folder, child_orders, number, bucket, Transfers(bucket.client), log),
        runner=runner,
        read_commands=lambda positions: records.command_reader(bucket, step_orders, positions),
        stop_requests=stop_requests,
        log=log,
        write_heading=lambda text: print(text, flush=True),
    ).run()


def _make_sampler(environ: Mapping[str, str], step_orders: Orders) -> CommandSampler | None:
    return CommandSampler(environ) if step_orders.is_sampled else None


def _refuse_command_patterns(number: int) -> str:
    raise WorkerError(
        "the inputs of a step with `share_out: dynamic` cannot name its commands",
        errors.EXIT_ORDERS,
    )


def _watch_for_stop(stop_requests: StopRequests, environ: Mapping[str, str], host: Host) -> None:
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
    if address is None:
        host.give_up()
        return
    thread = threading.Thread(
        target=_ask_metadata,
        args=(notices.Metadata(address), host, stop_requests),
        name="notices",
        daemon=True,
    )
    thread.start()


def _ask_metadata(metadata: notices.Metadata, host: Host, stop_requests: StopRequests) -> None:
    """Read what the host is, and wait for a spot notice."""
    host.read(metadata)
    reason = "EC2 takes this machine away"
    notices.watch(metadata, lambda time_s: stop_requests.add(reason, time_s, ends_host=True))


def _hold_slot(stop_requests: StopRequests, environ: Mapping[str, str], started_s: float) -> None:
    """Stay on a host that is being reclaimed, so that the next attempt starts on another one."""
    wait_s = stop_requests.time_until_host_ends_s()
    # AWS Batch makes no other attempt after a timeout.
    timeout_s = environ.get("BATCHYARD_TIMEOUT_S", "")
    if timeout_s.isdigit():
        wait_s = min(wait_s, started_s + int(timeout_s) - _TIMEOUT_MARGIN_S - time.monotonic())
    if wait_s > 0:
        _log(f"stays on this host for {wait_s:.0f} s, so that the next attempt starts elsewhere")
        stop_requests.wait_until_host_ends(wait_s)


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
