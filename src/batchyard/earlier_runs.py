"""What the newest earlier runs of a pipeline tell about its commands, above all their lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from batchyard import command_lengths, runs
from batchyard.command_lengths import Expectation, KnownSeconds, Seconds
from batchyard.engines.base import CommandDetail, RunRecord
from batchyard.errors import BatchyardError, BusyServiceError
from batchyard.folder import RunFolder, runs_in
from batchyard.plan import Plan

#: The newest runs tell most, and each of them costs a look at its records.
_MAX_RUNS = 5
#: Runs of other engines lie between them. More than this many are not searched.
_MAX_SEARCHED_RUNS = 50
#: Commands of a list whose texts are looked up one by one. A longer one must not have changed.
_MAX_LOOKUPS = 200_000
#: Commands of each step that are looked at in a run; and enough not to look at further runs.
_MAX_COMMANDS = 10_000
_ENOUGH_COMMANDS = 30


def find_seconds(
    plan: Plan,
    records: Iterable[RunRecord],
    steps: Sequence[str],
    max_lookups: int = _MAX_LOOKUPS,
) -> dict[str, Seconds]:
    """Return step -> how long its commands took in earlier runs of the pipeline.

    A command is recognised by its text. Steps that no earlier run has executed are left out. A list
    of more than ``max_lookups`` commands must be the same as in the earlier run.
    """
    records = list(records)
    known_seconds: dict[str, Seconds] = {}
    # Each further run would wait as long for a service that does not answer.
    with suppress(BusyServiceError):
        for step in steps:
            seconds = _find_seconds_of_step(plan.lists[step], step, records, max_lookups)
            if seconds is not None:
                known_seconds[step] = seconds
    return known_seconds


def with_lengths(plan: Plan, home: Path, engine: str) -> Plan:
    """Return the plan with the lengths of the commands of its dynamic steps, where runs tell them.

    Weights of the pipeline file are kept. ``engine``: the name of the engine that runs the plan.
    """
    steps = [job.step for job in plan.jobs if _uses_lengths(plan, job.step)]
    records = newest_records(plan, home, engine) if steps else []
    known_seconds = find_seconds(plan, records, steps)
    return _with(
        plan, {**{step: seconds.values for step, seconds in known_seconds.items()}, **plan.lengths}
    )


def _with(plan: Plan, lengths: Mapping[str, Sequence[float]]) -> Plan:
    jobs = tuple(replace(job, has_lengths=job.step in lengths) for job in plan.jobs)
    return replace(plan, jobs=jobs, lengths=lengths)


def with_lengths_of(old: RunRecord, plan: Plan) -> Plan:
    """Return the plan of a retry with the lengths that the old run had."""
    stored = {job.step: old.folder.load_lengths(job.step) for job in plan.jobs if job.has_lengths}
    return _with(plan, {step: lengths for step, lengths in stored.items() if lengths is not None})


def find_expectations(
    plan: Plan, slots: Mapping[str, int], home: Path, engine: str
) -> dict[str, Expectation]:
    """Return step -> when its commands are expected to end. ``slots``: see PreparedRun."""
    records = newest_records(plan, home, engine) if slots else []
    known_seconds = find_seconds(plan, records, list(slots))
    return {
        step: command_lengths.expect(
            range(len(seconds.values)), plan.lengths.get(step, seconds.values), seconds, slots[step]
        )
        for step, seconds in known_seconds.items()
    }


def _uses_lengths(plan: Plan, step: str) -> bool:
    # Without a choice of what goes first, nobody needs the lengths.
    job = plan.job(step)
    return job.is_dynamic and step not in plan.lengths and len(plan.lists.get(step, ())) > 1


def newest_records(plan: Plan, home: Path, engine: str | None = None) -> list[RunRecord]:
    """Return the newest runs of the pipeline that can be read, newest first.

    ``engine``: only the runs of the engine of this name. Others took other times, and a run on
    this machine must not wait for the service of another engine.
    """
    return list(islice(_read_records(plan, home, engine), _MAX_RUNS))


def newest_commands(step: str, records: Iterable[RunRecord]) -> list[CommandDetail]:
    """Return commands of the step that have ended, of the newest runs that have enough of them."""
    commands: list[CommandDetail] = []
    for record in records:
        if len(commands) >= _ENOUGH_COMMANDS:
            break
        # A run whose records are gone tells nothing.
        with suppress(BatchyardError, OSError):
            if any(job.step == step for job in record.plan.jobs):
                commands += _read_commands(record, step)
    return commands


def _read_commands(record: RunRecord, step: str) -> list[CommandDetail]:
    run = record.open()
    try:
        return list(islice(run.commands(step), _MAX_COMMANDS))
    finally:
        run.close()


def _read_records(plan: Plan, home: Path, engine: str | None) -> Iterator[RunRecord]:
    for name in islice(runs.names(home, plan.pipeline), _MAX_SEARCHED_RUNS):
        with suppress(BatchyardError):
            record = runs.read(RunFolder(runs_in(home) / name))
            if engine in (None, record.engine.name):
                yield record


def _find_seconds_of_step(
    commands: Sequence[str], step: str, records: Sequence[RunRecord], max_lookups: int
) -> Seconds | None:
    by_text: dict[str, float] = {}
    mean_s = None
    is_long = len(commands) > max_lookups
    for record in records:
        known, texts = _read_durations(record, step)
        if not known.count:
            continue
        if not by_text and (is_long or known.count == len(commands)):
            if _are_equal(texts, commands):
                return known.fill_in()
        if is_long:
            continue
        if mean_s is None:
            mean_s = known.mean_s
        for number, seconds in known.items():
            by_text.setdefault(texts[number], seconds)
        if all(map(by_text.__contains__, commands)):
            break
    return None if mean_s is None else command_lengths.fill_in(commands, by_text, mean_s)


def _read_durations(record: RunRecord, step: str) -> tuple[KnownSeconds, Sequence[str]]:
    """Return the seconds of a run, and its list. A run whose records are gone tells nothing.

    Raises BusyServiceError.
    """
    if not any(job.step == step and job.has_list for job in record.plan.jobs):
        return KnownSeconds(0), ()
    try:
        texts = record.folder.load_list(step)
        run = record.open()
        try:
            return KnownSeconds(len(texts), run.durations(step)), texts
        finally:
            run.close()
    except BusyServiceError:
        raise
    except (BatchyardError, OSError):
        return KnownSeconds(0), ()


def _are_equal(texts: Sequence[str], commands: Sequence[str]) -> bool:
    return len(texts) == len(commands) and all(map(str.__eq__, texts, commands))
