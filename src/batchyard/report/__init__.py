"""The HTML page about a run. This module reads the run; all other modules here are pure.

- figures: from ended attempts to a few numbers for each step; lanes: which attempts overlap
- host_lanes: when slots and hosts were busy
- timeline, lane_chart, durations, tables, failures: from figures to the parts of the page; costs:
  from a bill
- resources: what children use, from their samples
- page: from the parts to the document; style: its style sheet
- markup: HTML and SVG elements, always escaped; amounts: numbers as text, ticks of axes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import batchyard
from batchyard import status
from batchyard.engines.base import RunEngine, RunRecord, RunState
from batchyard.errors import BatchyardError
from batchyard.report.failures import MAX_FAILURES
from batchyard.report.host_lanes import HostTimes
from batchyard.report.page import About, make_charts, make_page
from batchyard.report.resources import make_use_document
from batchyard.sampling.samples import SampledStep, SampledUse, combine_steps
from batchyard.status import RunStatus

if TYPE_CHECKING:
    from batchyard.cost.run_bill import RunBill


def of_run(record: RunRecord, now_ms: int) -> str:
    """Return the page about a run. A run that is not over is shown up to ``now_ms``."""
    run_status = status.of_run(record, max_failures=MAX_FAILURES)
    engine = record.open()
    try:
        about = _make_about(record, engine, run_status, now_ms)
        about = replace(about, cost=_find_bill(record, engine))
        about = replace(about, hosts=_find_hosts(engine), uses=_find_uses(engine))
        return make_page(run_status, engine.attempts(engine.job_ids), about)
    finally:
        engine.close()


def charts_of_run(record: RunRecord, now_ms: int) -> str:
    """Return a document with the charts of the page alone, for the live page."""
    run_status = status.of_run(record, max_failures=0)
    engine = record.open()
    try:
        about = _make_about(record, engine, run_status, now_ms)
        # The page reads bills from time to time: no request is sent for its charts.
        about = replace(about, cost=_find_bill(record, engine, asks=False))
        # What has ended is drawn once, and while a run goes on no request is sent.
        is_over = run_status.state is not RunState.RUNNING
        about = replace(about, hosts=_find_hosts(engine), uses=_find_uses(engine, asks=is_over))
        return make_charts(run_status, engine.attempts(engine.job_ids), about)
    finally:
        engine.close()


def uses_of_child(record: RunRecord, step: str, index: int) -> str:
    """Return a document with what the attempts of a child have used, the one that runs too."""
    engine = record.open()
    try:
        job_ids = [job.id for job in engine.overview().jobs if job.step == step]
        uses = [
            (f"Attempt {attempt.attempt}", attempt.use)
            for attempt in engine.attempts(job_ids, index=index)
            if attempt.use is not None
        ]
        uses += [
            (f"Attempt {running.attempt}, so far", running.use)
            for running in engine.running_uses()
            if (running.step, running.index_in_step) == (step, index)
        ]
        uses = uses or _find_uses_of_commands(record, engine, step, index)
    finally:
        engine.close()
    return make_use_document(uses, record.plan.job(step).resources)


def _find_uses_of_commands(
    record: RunRecord, engine: RunEngine, step: str, index: int
) -> list[tuple[str, SampledUse]]:
    """Return the use of a child's only command, which has its own record on AWS."""
    planned = record.plan.job(step)
    if planned.is_dynamic or planned.has_several_commands:
        return []
    return [
        (f"Attempt {command.child_attempt}", command.use)
        for number in planned.commands_of_index(index)
        for command in engine.commands(step, number)
        if command.use is not None
    ]


def _make_about(record: RunRecord, engine: RunEngine, run_status: RunStatus, now_ms: int) -> About:
    setup = engine.setup()
    return About(
        plan=record.plan,
        capacity=setup.capacity,
        runner=setup.runner,
        workspace=setup.workspace,
        now_ms=now_ms,
        version=batchyard.__version__,
        file=record.file,
        retry_of=record.retry_of,
        commands=_failed_commands(record, run_status),
    )


def _find_hosts(engine: RunEngine) -> dict[str, HostTimes]:
    """Return id -> type and times of the run's hosts, as far as this machine has stored them."""
    try:
        usage = engine.usage(asks=False)
    except BatchyardError:
        usage = None  # the page is still of use
    if usage is None:
        return {}
    from batchyard.engines.usage import group_uses, paid_until_s  # not for runs on this machine

    uses = group_uses(usage.uses)
    times = {}
    for host in usage.hosts:
        end_s = paid_until_s(host, uses.get(host.id, ()), usage.seen_s)
        # Nobody knows yet how long a host stays that was there at the last look.
        end_ms = round(end_s * 1000) if end_s < usage.seen_s else None
        times[host.id] = HostTimes(host.type, round(host.launched_s * 1000) or None, end_ms)
    return times


def _find_uses(engine: RunEngine, *, asks: bool = True) -> dict[str, SampledStep]:
    """Return step -> what its sampled attempts have used, those that run included."""
    try:
        return combine_steps(engine.step_uses(asks=asks), engine.running_uses())
    except BatchyardError:
        return {}  # the page is still of use


def _find_bill(record: RunRecord, engine: RunEngine, *, asks: bool = True) -> RunBill | None:
    """Return what the run has cost; None for a run that costs nothing, and if nobody knows.

    ``asks`` False: as far as this machine has stored it, without a request.
    """
    if engine.setup().environment is None:
        return None
    from batchyard.cost.run_bill import bill_so_far

    try:
        return bill_so_far(record, engine, asks=asks)
    except BatchyardError:
        return None  # the page is still of use


def _failed_commands(
    record: RunRecord, run_status: RunStatus
) -> dict[tuple[str, int], tuple[str, ...]]:
    """Return (step, index) -> the commands of each failed child."""
    lists: dict[str, Sequence[str]] = {}
    commands: dict[tuple[str, int], tuple[str, ...]] = {}
    for failure in run_status.failures:
        step, index = failure.attempt.step, failure.attempt.index
        job = record.plan.job(step)
        if job.command is not None:
            commands[step, index] = (job.command,)
        else:
            if step not in lists:
                lists[step] = _load_list(record, step)
            numbers = job.commands_of_index(index)
            commands[step, index] = tuple(lists[step][number] for number in numbers if lists[step])
    return commands


def _load_list(record: RunRecord, step: str) -> Sequence[str]:
    try:
        return record.folder.load_list(step)
    except (OSError, ValueError):
        # The page is still of use if the list has been removed since.
        return ()
