"""Judges a pipeline of a soak by what its commands noted and by what AWS Batch tells. Pure.

A command may run again only if its last execution failed, or if a kill or a reclaim hit it. Only
the last command that an attempt started can be hit: those before it have succeeded for good.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from random_pipelines import EXIT_CODES, EXIT_LATER, Expectation

#: Exit codes of an attempt that something from outside ended: the worker's request for another
#: attempt, SIGKILL, SIGTERM. None: its host is gone.
DISTURBED_CODES = (None, 75, 137, 143)
#: Exit code of a worker whose command was killed in its last attempt: with that of the command,
#: AWS Batch would start another one.
EXIT_OF_LAST_ATTEMPT = 1
#: Time before a SIGKILL of the engine in which a success may not be on disk yet.
UNSAVED_S = 5.0
#: Time before a SIGKILL of the endpoint in which output may not be on disk yet.
UNSENT_S = 1.0
#: A heading of `batchyard logs`: the step, and its child if there are several.
_HEADING = re.compile(r"==> (\w+)(?::(\d+))?(?: \(attempt \d+\))? <==")
#: The worker's line about commands that it does not run again.
_SUCCEEDED_EARLIER = re.compile(r"batchyard-worker: commands? ([\d, -]+) succeeded earlier and ")


@dataclass(frozen=True, slots=True)
class Event:
    """A line that a command has noted: task.sh."""

    #: `start`, `end`, or `twice` for a command that found itself running.
    kind: str
    key: str
    run: str
    job_id: str
    attempt: int
    time_s: float
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Execution:
    """One start of a command, and its end if it came to it."""

    start: Event
    end: Event | None

    @property
    def place(self) -> tuple[str, str, int]:
        return self.start.run, self.start.job_id, self.start.attempt

    @property
    def exit_code(self) -> int | None:
        return self.end.exit_code if self.end else None


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job, or the child of an array job, as AWS Batch describes it after its end."""

    job_id: str
    name: str
    state: str
    reason: str = ""
    #: Exit code of each attempt; None if it has none.
    exit_codes: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Disturbances:
    """What the soak itself did."""

    #: From a SIGKILL to the next start, of the endpoint, or for a local run, of its engine; in
    #: seconds since 1970. Commands go on meanwhile, and are ended by the next start.
    engine_kills: tuple[tuple[float, float], ...] = ()
    #: Runs that `batchyard stop` ended.
    stopped_runs: frozenset[str] = frozenset()
    #: (job id, attempt) of SIGKILLs of workers and commands.
    worker_kills: frozenset[tuple[str, int]] = frozenset()


@dataclass(slots=True)
class CaseFacts:
    """All that is known of a pipeline whose runs are over."""

    expectation: Expectation
    events: list[Event]
    #: State of the last run.
    state: str
    #: Without those of earlier runs, if there are none: a local run has no jobs.
    jobs: list[BatchJob] = field(default_factory=list)
    disturbances: Disturbances = field(default_factory=Disturbances)
    #: Fetched file -> its content.
    outputs: Mapping[str, bytes] = field(default_factory=dict)


def parse_events(text: str) -> list[Event]:
    events = []
    for line in text.splitlines():
        kind, key, run, job_id, attempt, time_s, code = line.split(" ")
        exit_code = None if code == "-" else int(code)
        events.append(Event(kind, key, run, job_id, int(attempt), float(time_s), exit_code))
    return events


def judge_safely(judge: Callable[[], list[str]]) -> list[str]:
    """Return the violations that ``judge`` returns; its exception is one, too."""
    try:
        return judge()
    except Exception:
        return [f"the case could not be judged:\n{traceback.format_exc()}"]


def find_violations(facts: CaseFacts) -> list[str]:
    """Return a sentence for everything that is not as it must be."""
    executions = pair_events(facts.events)
    return [
        *(f"{event.key} ran twice at once in {event.run}" for event in _overlaps(facts.events)),
        *_check_ends(facts.expectation, facts.state, executions),
        *_check_executions(facts.expectation, executions),
        *_check_repetitions(facts, executions),
        *_check_jobs(facts.jobs, facts.disturbances),
        *_check_outputs(facts.expectation, facts.outputs),
    ]


def pair_events(events: Iterable[Event]) -> dict[str, list[Execution]]:
    """Return the executions of each command, in the order of their start."""
    executions: dict[str, list[Execution]] = defaultdict(list)
    for event in events:
        if event.kind == "start":
            executions[event.key].append(Execution(event, None))
        elif event.kind == "end":
            last = executions[event.key][-1:]
            if not last or last[0].end is not None:
                raise ValueError(f"{event.key} has ended without a start: {event}")
            executions[event.key][-1] = Execution(last[0].start, event)
    return executions


def missing_commands(expectation: Expectation, events: Iterable[Event]) -> set[str]:
    """Return the commands that must succeed and have not yet."""
    return set(expectation.succeeded) - {
        event.key for event in events if event.kind == "end" and event.exit_code == 0
    }


def check_logs(
    expectation: Expectation,
    events: Iterable[Event],
    output: str,
    endpoint_kills: Iterable[tuple[float, float]] = (),
) -> list[str]:
    """Compare what `batchyard logs` prints for a run without repetitions with its commands.

    The last line of a command may be missing only if the endpoint was killed when the command ended
    and the log has the worker's line about it. Output is in a pipe first: that of a killed endpoint
    takes output until the kernel has closed it.
    """
    lines = re.findall(r"^done (\S+)$", output, re.MULTILINE)
    named = _find_succeeded_earlier(output)
    ends = {event.key: event.time_s for event in events if event.kind == "end"}
    kills = tuple(endpoint_kills)
    lost = {
        key
        for key in expectation.succeeded.difference(lines)
        if key in ends
        and _name_in_log(key) & named
        and any(gone_s - UNSENT_S <= ends[key] <= back_s for gone_s, back_s in kills)
    }
    if sorted([*lines, *lost]) == sorted(expectation.succeeded):
        return []
    return [f"logs has the lines of {sorted(lines)}"]


def _find_succeeded_earlier(output: str) -> set[tuple[str | None, int]]:
    """Return child and number of the commands that workers did not run again.

    The child is None in the log of a run with a single one, which has no headings.
    """
    child: str | None = None
    commands = set()
    for line in output.splitlines():
        if heading := _HEADING.fullmatch(line):
            child = f"{heading[1]}-{heading[2] or 0}"
        elif sentence := _SUCCEEDED_EARLIER.match(line):
            for numbers in sentence[1].split(", "):
                first, _, last = numbers.partition("-")
                commands |= {(child, n) for n in range(int(first), int(last or first) + 1)}
    return commands


def _name_in_log(key: str) -> set[tuple[str | None, int]]:
    """Return how ``_find_succeeded_earlier`` may name a command."""
    child, _, number = key.rpartition("-")
    # A command of each child has the number of its child, and 0 in its key. In a list, only a
    # command of child 0 has the number 0.
    in_step = int(number) or int(child.rpartition("-")[2])
    return {(child, in_step), (None, in_step)}


def _overlaps(events: Iterable[Event]) -> Iterator[Event]:
    return (event for event in events if event.kind == "twice")


def _check_ends(
    expectation: Expectation, state: str, executions: Mapping[str, list[Execution]]
) -> Iterator[str]:
    if state != expectation.state:
        yield f"the last run is {state}, and should be {expectation.state}"
    for key in sorted(expectation.succeeded):
        if not any(execution.exit_code == 0 for execution in executions.get(key, ())):
            yield f"{key} never succeeded"
    for key in sorted(expectation.failed):
        if not executions.get(key):
            yield f"{key}, which fails on purpose, never ran"
    for key in sorted(expectation.never_started):
        if executions.get(key):
            yield f"{key} ran although what it needs had failed"


def _check_executions(
    expectation: Expectation, executions: Mapping[str, list[Execution]]
) -> Iterator[str]:
    known = expectation.succeeded | expectation.failed | expectation.never_started
    for key in sorted(set(executions) - known):
        yield f"{key} ran and is no command of the pipeline"
    for key, all_of_key in sorted(executions.items()):
        for execution in all_of_key:
            if execution.exit_code not in (None, 0, EXIT_LATER, *EXIT_CODES):
                yield f"{key} ended with {execution.exit_code} in {execution.start.run}"


def _check_repetitions(
    facts: CaseFacts, executions: Mapping[str, list[Execution]]
) -> Iterator[str]:
    last_started = _last_of_attempts(executions)
    attempt_codes = {
        (job.job_id, number): code
        for job in facts.jobs
        for number, code in enumerate(job.exit_codes, 1)
    }
    for key, all_of_key in sorted(executions.items()):
        for execution, following in pairwise(all_of_key):
            if execution.exit_code not in (None, 0):
                continue
            is_last = execution in last_started[execution.place]
            if execution.exit_code == 0 and not is_last and not _is_unsaved(facts, execution):
                yield f"{key} ran again after its success in attempt {execution.place}"
            elif not _is_disturbed(facts, execution, following, attempt_codes):
                yield f"{key} ran again, and nothing had disturbed attempt {execution.place}"


def _is_unsaved(facts: CaseFacts, execution: Execution) -> bool:
    """Return whether a local engine was killed before the success was on disk.

    On AWS, the worker goes on only when S3 has the record.
    """
    end = execution.end
    return (
        not facts.jobs
        and end is not None
        and any(
            killed_s - UNSAVED_S <= end.time_s <= back_s
            for killed_s, back_s in facts.disturbances.engine_kills
        )
    )


def _last_of_attempts(
    executions: Mapping[str, list[Execution]],
) -> dict[tuple[str, str, int], list[Execution]]:
    """Return the executions of each attempt that can have been the last when it ended.

    An attempt that the endpoint was killed in starts again with the same number, so it can have
    several: each that has no later success of another command between its end and its repetition.
    """
    by_place: dict[tuple[str, str, int], list[Execution]] = defaultdict(list)
    for execution in (one for all_of_key in executions.values() for one in all_of_key):
        by_place[execution.place].append(execution)
    last: dict[tuple[str, str, int], list[Execution]] = {}
    for place, of_place in by_place.items():
        of_place.sort(key=lambda execution: execution.start.time_s)
        last[place] = [
            execution
            for execution, following in zip_longest(of_place, of_place[1:])
            if following is None or following.start.key == execution.start.key
        ]
    return last


def _is_disturbed(
    facts: CaseFacts,
    execution: Execution,
    following: Execution,
    attempt_codes: Mapping[tuple[str, int], int | None],
) -> bool:
    """Return whether a kill, a reclaim or a stop explains that a command ran again."""
    disturbances = facts.disturbances
    start = execution.start
    for killed_s, back_s in disturbances.engine_kills:
        is_saved = execution.end is not None and execution.end.time_s < killed_s - UNSAVED_S
        if killed_s <= following.start.time_s and start.time_s <= back_s and not is_saved:
            return True
    place = (start.job_id, start.attempt)
    if start.run in disturbances.stopped_runs or place in disturbances.worker_kills:
        return True
    return place in attempt_codes and attempt_codes[place] in DISTURBED_CODES


def _check_jobs(jobs: Iterable[BatchJob], disturbances: Disturbances) -> Iterator[str]:
    jobs = list(jobs)
    for name, count in sorted(Counter(job.name for job in jobs).items()):
        if count > 1:
            yield f"AWS Batch has {count} jobs {name}"
    for job in jobs:
        if job.state not in ("SUCCEEDED", "FAILED"):
            yield f"{job.name} is {job.state} after the end"
        for number, code in enumerate(job.exit_codes, 1):
            was_killed = (job.job_id, number) in disturbances.worker_kills
            if code == EXIT_OF_LAST_ATTEMPT and was_killed:
                continue
            if code not in (0, EXIT_LATER, *EXIT_CODES, *DISTURBED_CODES):
                yield f"attempt {number} of {job.name} ended with {code}: {job.reason}"


def _check_outputs(expectation: Expectation, outputs: Mapping[str, bytes]) -> Iterator[str]:
    for name in sorted(set(expectation.outputs) | set(outputs)):
        if name not in outputs:
            yield f"{name} was not fetched"
        elif name not in expectation.outputs:
            yield f"{name} was fetched, and nothing should have made it"
        elif outputs[name] != expectation.outputs[name]:
            yield f"{name} has the wrong content: {outputs[name]!r}"
