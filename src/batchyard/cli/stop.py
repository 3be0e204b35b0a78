"""`batchyard stop`."""

from __future__ import annotations

import time

import click

from batchyard import launch
from batchyard.cli.options import env_option, example, find_run, home_option, run_argument
from batchyard.cli.progress import Silent
from batchyard.engines.base import RunState
from batchyard.engines.local.engine import LocalEngine
from batchyard.errors import InputError, OperationalError, RunLockedError
from batchyard.runs import Record

_POLL_S = 0.1
#: beyond the grace, for a busy machine
_PATIENCE_S = 30.0
_AWS_GRACE_S = 30.0


@click.command(
    epilog=example(
        "batchyard stop last", "batchyard stop last reconstruct", "batchyard stop last --grace 5"
    )
)
@run_argument
@click.argument("step", required=False)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds from SIGTERM to SIGKILL.",
)
@env_option
@home_option
def command(run: str, step: str | None, grace: float, env: str | None, home: str | None) -> int:
    """Stop a run, or one step of it, from any terminal: SIGTERM, the grace, SIGKILL, the whole process tree.

    Returns when it has stopped. What depends on a stopped step fails with it. Stopping twice is the same as once.
    """
    record = find_run(home, run, env)
    steps = [job.step for job in record.plan.jobs]
    if step is not None and step not in steps:
        raise InputError(f"the run has no step {step!r}", hint=f"its steps are: {', '.join(steps)}")
    if not record.is_local:
        return _stop_on_aws(record, step)
    engine = record.open_local()
    try:
        if engine.run_state is not RunState.RUNNING:
            click.echo(f"run {record.run_id} is over already: {engine.run_state.value}")
            return 0
        if step is not None and engine.holder is None:
            raise InputError(
                f"run {record.run_id} is interrupted: nothing of it runs",
                hint=f"`batchyard resume {record.run_id}` goes on, `batchyard stop {record.run_id}` ends it all",
            )
        ids = [
            detail.id for detail in engine.describe(engine.job_ids) if step in (None, detail.step)
        ]
        engine.stop(ids, "stopped by the user", grace)
        if engine.holder is None:
            _stop_abandoned(record, engine, ids, grace)
        _wait(engine, ids, grace + _PATIENCE_S)
        click.echo(
            f"run {record.run_id}: " + (f"{step} is stopped" if step else engine.run_state.value)
        )
    finally:
        engine.close()
    return 0


def _stop_on_aws(record: Record, step: str | None) -> int:
    """AWS Batch gives 30 s between SIGTERM and SIGKILL."""
    from batchyard import cloud
    from batchyard.engines.aws.details import UNSUBMITTED

    engine = record.open_aws()
    before = engine.overview()
    if before.state is not RunState.RUNNING:
        click.echo(f"run {record.run_id} is over already: {before.state.value}")
        return 0
    engine.stop(
        [detail.id for detail in before.jobs if step in (None, detail.step)], "stopped by the user"
    )
    if step is not None:
        now = zip(before.jobs, engine.job_ids, strict=True)
        if any(detail.step == step and job_id.startswith(UNSUBMITTED) for detail, job_id in now):
            raise InputError(
                f"not all of {step} is submitted, and what is not cannot be told to stop",
                hint=f"`batchyard stop {record.run_id}` stops the whole run, which is then submitted no further",
            )
        click.echo(f"run {record.run_id}: {step} is told to stop")
        return 0
    if not cloud.wait_until_stopped(record, _AWS_GRACE_S + _PATIENCE_S):
        raise OperationalError(
            "it has not stopped yet", hint="`batchyard status` shows what is left"
        )
    click.echo(f"run {record.run_id}: {engine.overview().state.value}")
    return 0


def _stop_abandoned(record: Record, engine: LocalEngine, ids: list[str], grace: float) -> None:
    """Nobody executes the run: this process does, for as long as it takes to end it."""
    try:
        launch.execute(record, Silent(), carry_out_old_stops=True)
    except RunLockedError:
        # Somebody has resumed it in this moment, and may have begun before the request was there.
        engine.stop(ids, "stopped by the user", grace)


def _wait(engine: LocalEngine, job_ids: list[str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(not detail.state.is_terminal for detail in engine.describe(job_ids)):
        if time.monotonic() > deadline:
            raise OperationalError(
                f"it has not stopped within {seconds:.0f} s",
                hint="`batchyard status` shows what is left",
            )
        time.sleep(_POLL_S)
    # The run itself is over a moment after its last job.
    while engine.run_state is RunState.RUNNING and engine.holder and time.monotonic() < deadline:
        if any(not detail.state.is_terminal for detail in engine.describe(engine.job_ids)):
            return
        time.sleep(_POLL_S)
