"""The commands of a run that have ended: their records with their texts, selected and sorted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from batchyard.command_texts import CommandTexts
from batchyard.engines.base import CommandDetail, RunEngine, RunRecord
from batchyard.errors import InputError
from batchyard.plan import PlannedJob, RunPart, is_index
from batchyard.quick_dataclasses import dataclass
from batchyard.sampling.samples import to_json as use_to_json
from batchyard.status import iso

#: Name of an order -> the key that it sorts by. Values that are missing come last.
_ORDERS = {
    "number": lambda command: (),
    "seconds": lambda command: (-(command.detail.duration_s or 0.0),),
    "memory": lambda command: (-command.detail.peak_memory_kib,),
    "started": lambda command: (command.detail.started_ms is None, command.detail.started_ms or 0),
}
ORDERS = tuple(_ORDERS)


@dataclass(frozen=True, slots=True)
class Command:
    """A command that has ended."""

    detail: CommandDetail
    #: The command itself; empty if the run's list is not on this machine.
    text: str


def list_commands(
    record: RunRecord,
    step: str | None = None,
    *,
    failed_only: bool = False,
    order: str = "number",
) -> list[Command]:
    """Return the commands of a run, or of one step, that have ended.

    ``failed_only``: only commands that failed and are not tried again. ``order``: a word of ORDERS.
    Raises InputError for a step that the run does not have, or an unknown order.
    """
    if step is not None:
        record.plan.require_child(step)
    if order not in _ORDERS:
        raise InputError(f"there is no order {order!r}", hint=f"orders are: {', '.join(ORDERS)}")
    texts = CommandTexts(record)
    engine = record.open()
    try:
        commands = [
            Command(detail, texts.text_of(detail.step, detail.number))
            for detail in engine.commands(step, failed_only=failed_only)
        ]
    finally:
        engine.close()
    return sorted(commands, key=_ORDERS[order]) if order != "number" else commands


def find_command(record: RunRecord, engine: RunEngine, name: str) -> CommandDetail:
    """Return the last execution of one command.

    ``name``: `NUMBER` in a run with one step, `STEP:NUMBER`, or the text of the command. Raises
    InputError if no command, or more than one, is meant, or if the command has not ended yet.
    """
    step, number = parse_name(record, name)
    command = next(iter(engine.commands(step, number)), None)
    if command is None:
        hint = "`batchyard logs` shows the output of children that still run"
        if record.retry_of is not None:
            earlier = f"batchyard logs {record.retry_of} --command {step}:{number}"
            hint += f"; if the command succeeded before this retry: {earlier}"
        raise InputError(f"command {step}:{number} has not ended in this run", hint=hint)
    return command


def find_part(
    record: RunRecord, step: str | None, index: int | None, command: str | None
) -> RunPart | None:
    """Return the part of a run that a user names; None for the whole run.

    ``command``: as ``name`` of ``find_command``. Raises InputError.
    """
    if command is not None:
        if step is not None or index is not None:
            raise InputError(
                "a command is a part of its own", hint="leave STEP out, and write STEP:NUMBER"
            )
        step, number = parse_name(record, command)
        return RunPart(step, command=number)
    if step is None and index is None:
        return None
    return RunPart(*record.plan.require_child(step, index))


def parse_name(record: RunRecord, name: str) -> tuple[str, int]:
    """Return step and number of a command; see ``find_command``."""
    jobs = record.plan.jobs
    step, colon, digits = name.rpartition(":")
    if colon and is_index(digits) and any(job.step == step for job in jobs):
        return step, _require_number(record.plan.job(step), int(digits))
    if is_index(name):
        if len(jobs) > 1:
            steps = ", ".join(job.step for job in jobs)
            raise InputError(
                f"of which step is command {name} meant?",
                hint=f"write STEP:{name}; the steps are: {steps}",
            )
        return jobs[0].step, _require_number(jobs[0], int(name))
    matches = list(_find_text(record, name))
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise InputError(
            f"the run has no command {name!r}", hint="`batchyard commands RUN` lists them"
        )
    places = ", ".join(f"{step}:{number}" for step, number in matches[:5])
    raise InputError(f"{len(matches)} commands are {name!r}", hint=f"name one of them: {places}")


def _require_number(planned: PlannedJob, number: int) -> int:
    if number >= planned.command_count:
        raise InputError(
            f"step {planned.step!r} has no command {number}",
            hint=f"its commands are 0 to {planned.command_count - 1}",
        )
    return number


def _find_text(record: RunRecord, text: str) -> Iterator[tuple[str, int]]:
    texts = CommandTexts(record)
    for job in record.plan.jobs:
        for number in range(job.command_count):
            if texts.text_of(job.step, number) == text:
                yield job.step, number


def to_json(command: Command) -> dict[str, Any]:
    """Return the document that ``commands --json`` prints for one command."""
    detail = command.detail
    return {
        "step": detail.step,
        "command": detail.number,
        "text": command.text,
        "state": None if detail.state is None else detail.state.value,
        "exit_code": detail.exit_code,
        "reason": detail.reason,
        "seconds": detail.duration_s,
        "attempts": detail.attempts,
        "index": detail.index,
        "host": detail.host,
        "started": iso(detail.started_ms),
        "ended": iso(detail.ended_ms),
        "cpu_seconds": round(detail.cpu_s, 3),
        "memory_kib": detail.peak_memory_kib,
        "use": None if detail.use is None else use_to_json(detail.use),
    }


def to_csv(commands: Sequence[Command]) -> str:
    """Return the commands as CSV, with the members of ``to_json`` but ``use`` as columns."""
    import csv
    import io

    rows: list[Mapping[str, Any]] = [to_json(command) for command in commands]
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


_COLUMNS = (
    "step",
    "command",
    "text",
    "state",
    "exit_code",
    "reason",
    "seconds",
    "attempts",
    "index",
    "host",
    "started",
    "ended",
    "cpu_seconds",
    "memory_kib",
)
