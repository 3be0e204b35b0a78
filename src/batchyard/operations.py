"""What can be done with runs. The command line and the Python interface both call these functions.

Nothing here depends on an engine: what differs between engines is behind their protocol.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchyard import engines, runs
from batchyard import plan as planning
from batchyard.engines.base import (
    DEFAULT_GRACE_S,
    Engine,
    FallbackRun,
    PreparedRun,
    RetryRequest,
    RunEngine,
    RunRecord,
    RunRequest,
    RunState,
    Say,
    ServiceRequest,
    Watcher,
    say_nothing,
)
from batchyard.errors import (
    BatchyardError,
    BusyServiceError,
    InputError,
    OperationalError,
    RunNotFoundError,
)
from batchyard.folder import RunFolder, runs_in
from batchyard.pipeline import MAX_ARRAY_SIZE, MAX_COST_USD
from batchyard.plan import Plan
from batchyard.quick_dataclasses import dataclass
from batchyard.units import pluralize

if TYPE_CHECKING:
    from batchyard.command_lengths import Expectation
    from batchyard.cost_cap import Cap
    from batchyard.planned_commands import PlannedCommand

_STOP_REASON = "stopped by the user"
_STOP_POLL_S = 0.1


# -- finding runs ------------------------------------------------------------------------------


def find_run(home: Path, name: str, environment: str | None = None) -> RunRecord:
    """Return the run of that name: an id, the beginning of one, or `last`.

    With an environment, the id may be that of a run which another machine began there. Raises
    RunNotFoundError.
    """
    try:
        return runs.load(home, name)
    except RunNotFoundError as exc:
        if environment is None:
            if runs.is_id(name):
                exc.hint += (
                    "; --env NAME finds a run on AWS that another machine began, "
                    'as environment="NAME" does in Python'
                )
            raise
    return download_run(_all_engines(), home, name, environment)


def download_run(
    candidates: Iterable[Engine], home: Path, run_id: str, environment: str
) -> RunRecord:
    """Record a run that another machine began with one of these engines, and return it.

    Raises RunNotFoundError if no engine has the run.
    """
    missing = RunNotFoundError(f"there is no run {run_id} in environment {environment}")
    for engine in candidates:
        try:
            text = engine.download_record(home, environment, run_id)
        except RunNotFoundError as exc:
            missing = exc  # another engine may have the run
            continue
        if text is not None:
            return runs.adopt(home, engine, run_id, text)
    raise missing


def list_remote_runs(home: Path, environment: str) -> list[str]:
    """Return the ids of all runs in the environment, whichever machine began them."""
    lists = (engine.list_runs(home, environment) for engine in _all_engines())
    return sorted({run_id for run_ids in lists for run_id in run_ids or ()})


def _all_engines() -> list[Engine]:
    return [engines.load(name) for name in engines.ENGINES]


# -- a run of one command ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a run of a single command ended."""

    #: That of the command; 1 where it has none, 3 for an interrupted run, 130 for a stopped one.
    exit_code: int
    #: Why the command did not end by itself; empty where its exit code says all.
    reason: str = ""


STOPPED_EXIT_CODE, _FAILED_EXIT_CODE, _INTERRUPTED_EXIT_CODE = 130, 1, 3


def find_end(engine: RunEngine) -> CommandEnd:
    """Return how the only command of a run has ended."""
    overview = engine.overview()
    if overview.is_interrupted:
        return CommandEnd(_INTERRUPTED_EXIT_CODE, f"INTERRUPTED: {overview.interruption}")
    if overview.state is RunState.SUCCEEDED:
        return CommandEnd(0)
    if overview.state is RunState.STOPPED:
        return CommandEnd(STOPPED_EXIT_CODE, "STOPPED")
    attempts = list(engine.attempts(engine.job_ids, failed_only=True))
    if attempts and attempts[-1].exit_code:
        return CommandEnd(attempts[-1].exit_code, attempts[-1].reason)
    reasons = [job.status_reason for job in overview.jobs]
    if attempts:
        reasons = [attempts[-1].status_reason, attempts[-1].reason]
    return CommandEnd(_FAILED_EXIT_CODE, ": ".join(["FAILED", *filter(None, reasons)]))


# -- beginning runs ----------------------------------------------------------------------------


def prepare(engine: Engine, request: RunRequest) -> PreparedRun:
    """Fit a run to its engine, for ``begin``. Raises InputError if it could never succeed there."""
    return engine.prepare(_fit_to_flags(request))


def begin(
    engine: Engine, request: RunRequest, prepared: PreparedRun | None = None
) -> tuple[RunRecord, tuple[str, ...]]:
    """Record a new run, and return it with notes for the user. Nothing executes yet.

    Raises InputError for a run that could never succeed on the engine.
    """
    prepared = prepared or prepare(engine, request)
    if engine.is_recorded:
        from batchyard import earlier_runs

        plan = earlier_runs.with_lengths(prepared.plan, request.home, engine.name)
        prepared = replace(prepared, plan=plan)
    usd = find_max_cost(request)
    cap = _make_cap(engine, prepared, request.home, usd, stops=request.stops_at_cap)
    record = runs.begin(request.home, engine, prepared, file=request.pipeline.path, cap=cap)
    return record, (*prepared.notes, *_note_cap(record, usd))


def find_max_cost(request: RunRequest) -> float | None:
    """Return the most that a run may cost: as asked for, or as in the file; None for no limit."""
    usd = request.max_cost_usd
    return request.pipeline.max_cost_usd if usd is None else usd


def _make_cap(
    engine: Engine, prepared: PreparedRun, home: Path, usd: float | None, *, stops: bool
) -> Cap | None:
    """Return the cap of a new run; None for a run that has no limit, or costs nothing.

    Raises InputError if the engine cannot keep a cap, or the run costs more in any case.
    """
    if usd is None:
        return None
    if not 0 < usd <= MAX_COST_USD:
        raise InputError(
            f"max_cost is {usd!r}", hint=f"write US dollars, above 0 and at most {MAX_COST_USD:,}"
        )
    if engine.cap_keeper:
        # Runs on this machine load nothing about prices.
        from batchyard.cost.caps import make_cap

        return make_cap(prepared, home, engine.name, usd, stops=stops)
    if prepared.environment is not None:
        raise InputError(
            f"what a run on the engine {engine.name} costs is not known while it runs, so that no "
            "cap can be kept",
            hint="leave max_cost out",
        )
    return None


def _note_cap(record: RunRecord, usd: float | None) -> Iterator[str]:
    if usd is not None and record.cap is None:
        yield "max_cost has no effect: this run costs nothing"
    elif record.cap is not None:
        yield f"max_cost ${record.cap.usd:g}: {record.engine.cap_keeper}"


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would do."""

    plan: Plan
    #: Sentences for the user.
    notes: tuple[str, ...] = ()
    #: Requests that would begin the run's jobs.
    requests: Sequence[ServiceRequest] = ()
    #: Step -> when its commands are expected to end, where earlier runs tell how long they take.
    expectations: Mapping[str, Expectation] = field(default_factory=dict)
    #: The commands that would run, which can be read once.
    commands: Iterable[PlannedCommand] = ()
    #: Step -> number of its commands that would run; of other steps all do.
    command_counts: Mapping[str, int] = field(default_factory=dict)
    #: The run as its engine has prepared it; None if this machine refuses it.
    prepared: PreparedRun | None = None
    #: The most that the run may cost; None for no limit.
    max_cost_usd: float | None = None

    def to_json(self, engine: str, *, with_commands: bool = False) -> dict[str, Any]:
        """Return the JSON of `batchyard plan --json`; ``engine`` is the engine's name."""
        requests = [
            {
                "service": request.service,
                "operation": request.operation,
                "request": dict(request.members),
            }
            for request in self.requests
        ]
        document = planning.describe(
            self.plan, engine, requests, self.expectations, self.command_counts
        )
        if with_commands:
            from batchyard import planned_commands

            document["commands"] = [planned_commands.to_json(entry) for entry in self.commands]
        return document


def preview(engine: Engine, request: RunRequest) -> Preview:
    """Return what a run would do on the engine. Nothing is recorded or sent.

    A plan that this machine refuses is returned with a note, since another machine may run it.
    Raises InputError for a plan that another engine refuses.
    """
    from batchyard import earlier_runs, planned_commands

    request = _fit_to_flags(request)
    try:
        prepared = engine.prepare(request)
    except BatchyardError as exc:
        if engine.name != engines.DEFAULT:
            raise
        return Preview(
            request.plan,
            (exc.message, *([exc.hint] if exc.hint else [])),
            commands=planned_commands.of_new_run(request.plan, claims=True),
        )
    expectations = earlier_runs.find_expectations(
        prepared.plan, prepared.slots, request.home, engine.name
    )
    return Preview(
        prepared.plan,
        prepared.notes,
        engine.list_requests(prepared),
        expectations,
        planned_commands.of_new_run(prepared.plan, claims=engine.claims_commands),
        prepared=prepared,
        max_cost_usd=find_max_cost(request),
    )


def preview_retry(old: RunRecord, request: RetryRequest | None = None) -> Preview:
    """Return what a retry would do. Nothing is recorded or sent. Raises as ``begin_retry``."""
    from batchyard import planned_commands

    request = request or RetryRequest()
    notes: list[str] = []
    prepared = old.engine.prepare_retry(old, request, notes.append)
    commands = planned_commands.of_retry(old, prepared.plan, prepared.commands_done, request.part)
    requests = old.engine.list_requests(prepared)
    counts = planned_commands.count_of_retry(
        prepared.plan, prepared.commands_done, claims=old.engine.claims_commands
    )
    return Preview(
        prepared.plan,
        (*notes, *prepared.notes),
        requests,
        commands=commands,
        command_counts=counts,
        prepared=prepared,
        max_cost_usd=request.max_cost_usd or (old.cap.usd if old.cap else None),
    )


def preview_resume(record: RunRecord) -> Preview:
    """Return what a resume would do: all that is not done. Raises as ``prepare_resume``."""
    from batchyard import planned_commands

    prepare_resume(record)
    commands = list(planned_commands.of_resume(record))
    counts = dict.fromkeys((job.step for job in record.plan.jobs), 0)
    for command in commands:
        counts[command.step] += 1
    return Preview(record.plan, commands=commands, command_counts=counts)


def _fit_to_flags(request: RunRequest) -> RunRequest:
    """Return the request with the plan that its offer, and its choice of a market, ask for.

    A plan has at most as many commands at once as the offer says. Where all children are on spot,
    or all on demand, none of them moves from one to the other.
    """
    if request.on_demand and request.spot:
        raise InputError("--on-demand and --spot exclude each other", hint="give one of them")
    plan = request.plan
    if request.on_demand or request.spot:
        plan = replace(plan, spot=None)
    if request.offer.at_once is not None:
        plan = planning.limit_at_once(plan, request.offer.at_once)
    return replace(request, plan=plan)


def begin_retry(
    old: RunRecord, request: RetryRequest | None = None, say: Say = say_nothing
) -> RunRecord:
    """Record a new run of what failed or never ran in the old one. Nothing executes yet.

    With ``request.part``: of this part, also if it succeeded.
    """
    from batchyard import earlier_runs

    prepared = old.engine.prepare_retry(old, request or RetryRequest(), say)
    prepared = replace(prepared, plan=earlier_runs.with_lengths_of(old, prepared.plan))
    file = Path(old.file) if old.file else None
    cap = make_retry_cap(old, request or RetryRequest(), prepared)
    return runs.begin(old.home, old.engine, prepared, file=file, retry_of=old.run_id, cap=cap)


def make_retry_cap(old: RunRecord, request: RetryRequest, prepared: PreparedRun) -> Cap | None:
    """Return the cap of a retry, which counts the new run alone: as asked for, or the old one.

    What it can cost in an hour is that of the children that it has, on its own hosts.
    """
    usd, stops = request.max_cost_usd, request.stops_at_cap
    if usd is None and old.cap is not None:
        usd = old.cap.usd if request.fallback is None else _find_rest_usd(old, old.cap)
        stops = stops or old.cap.stops
    return _make_cap(old.engine, prepared, old.home, usd, stops=stops)


def _find_rest_usd(old: RunRecord, cap: Cap) -> float:
    """Return the cap without what the run has cost: what goes on by itself has no cap of its own.

    Raises InputError if nothing is left.
    """
    from batchyard.cost.caps import count_for_cap
    from batchyard.cost.run_bill import bill_so_far

    run = old.open()
    try:
        bill = bill_so_far(old, run)
    finally:
        run.close()
    rest_usd = cap.usd - (0.0 if bill is None else count_for_cap(bill, cap))
    if rest_usd <= 0:
        raise InputError(
            f"run {old.run_id} has cost as much as it may",
            hint=f"`batchyard retry {old.run_id} --on-demand --max-cost USD` goes on",
        )
    return rest_usd


def begin_fallback(old: RunRecord, say: Say = say_nothing) -> RunRecord | None:
    """Record a run of the children that spot instances did not finish, which go on, on demand.

    None if the run has no such children, if they go on already, or if its cap has held it. Nothing
    executes yet.
    """
    if old.plan.spot is None:
        return None
    run = old.open()
    try:
        if run.overview().held:
            return None
        fallback = run.find_fallback()
        if fallback is None:
            return None
        try:
            record = begin_retry(old, RetryRequest(fallback=fallback), say)
        except InputError as exc:
            # The end of the run is shown in any case.
            say(f"children that spot instances did not finish cannot go on: {exc}")
            return None
        entry = FallbackRun(record.run_id, fallback.reclaimed, fallback.waited)
        if not run.record_fallback(entry):
            # Another command that watches the run was faster.
            runs.delete(record)
            return None
    finally:
        run.close()
    moved = fallback.reclaimed + fallback.waited
    children = pluralize(moved, "child", "children")
    say(
        f"{children} of run {old.run_id} did not end on spot instances ({fallback.reclaimed} "
        f"reclaimed, {fallback.waited} without a host) and go on, on demand, as {record.run_id}"
    )
    return record


def prepare_resume(
    record: RunRecord, request: RetryRequest | None = None, *, detached: bool = False
) -> RunRecord:
    """Return the record of an interrupted run with the changes asked for.

    Raises InputError or RunLockedError where the run cannot be resumed.
    """
    return record.engine.prepare_resume(record, request or RetryRequest(), detached=detached)


def execute(
    record: RunRecord, run: RunEngine, watcher: Watcher, *, carry_out_old_stops: bool = False
) -> None:
    """Execute a run in this process, to its end, and keep its rules about costs meanwhile.

    ``carry_out_old_stops``, and KeyboardInterrupt: see ``RunEngine.execute``.
    """
    from batchyard.supervision import Supervisor

    run.execute(
        watcher,
        carry_out_old_stops=carry_out_old_stops,
        supervise=Supervisor(record, run, watcher.note),
    )


def start(record: RunRecord, say: Say = say_nothing) -> None:
    """Set the run going, so that it goes on without this process."""
    run = record.open()
    try:
        run.start(say)
    finally:
        run.close()


# -- ending runs -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of a request to stop a run."""

    #: State of the run now.
    state: RunState
    #: Whether the run was over before the request.
    was_over: bool = False
    #: False where the jobs were asked to end and still run.
    has_ended: bool = True


def stop(
    record: RunRecord,
    step: str | None = None,
    grace_s: float = DEFAULT_GRACE_S,
    *,
    wait: bool = True,
    sleep: Callable[[float], None] = time.sleep,
) -> Stopped:
    """Stop a run, or one step of it, and wait until it has ended.

    ``grace_s``: seconds from SIGTERM to SIGKILL. Raises InputError for a step that the run does not
    have or a grace that is no time, OperationalError where the run has not ended in time.
    """
    if not (isinstance(grace_s, int | float) and 0 <= grace_s < math.inf):
        raise InputError(f"the grace is {grace_s!r}", hint="write a number of seconds, at least 0")
    if step is not None:
        record.plan.require_child(step)
    run = record.open()
    try:
        overview = run.overview()
        if overview.state is not RunState.RUNNING:
            return Stopped(overview.state, was_over=True)
        job_ids = [job.id for job in overview.jobs if step in (None, job.step)]
        wait_s = run.stop(job_ids, _STOP_REASON, grace_s)
        if not wait or not wait_s:
            state = RunState.RUNNING if wait_s else run.overview().state
            return Stopped(state, has_ended=state is not RunState.RUNNING)
        _wait_until_stopped(run, job_ids if step else None, wait_s, sleep)
        return Stopped(run.overview().state)
    finally:
        run.close()


@dataclass(frozen=True, slots=True)
class Scaled:
    """What became of a request for another number of children."""

    #: Children that were asked for.
    children: int
    #: Children that there is room for at the same time.
    room: int


def scale(record: RunRecord, step: str, children: int) -> Scaled:
    """Let another number of children work on a dynamic step of a run that is not over.

    Raises InputError for a step whose children have fixed commands, or that is over, and for more
    children than the cap of the run counts.
    """
    is_whole = isinstance(children, int) and not isinstance(children, bool)
    if not (is_whole and 1 <= children <= MAX_ARRAY_SIZE):
        raise InputError(
            f"the number of children is {children!r}",
            hint=f"write a whole number from 1 to {MAX_ARRAY_SIZE:,}",
        )
    record.plan.require_child(step)
    if not record.plan.job(step).is_dynamic:
        raise InputError(
            f"step {step!r} is not dynamic: its children have fixed commands, or no list",
            hint="write `share_out: dynamic` into the file before the next run",
        )
    run = record.open()
    try:
        overview = run.overview()
        jobs = [job for job in overview.jobs if job.step == step]
        if overview.state is not RunState.RUNNING or all(job.state.is_terminal for job in jobs):
            subject = f"step {step!r}" if overview.state is RunState.RUNNING else "the run"
            raise InputError(f"{subject} is over: no child of {step!r} starts any more")
        if record.cap is not None:
            require_room_in_cap(record, overview.held, step, children)
        return Scaled(children, run.scale(step, children))
    finally:
        run.close()


def require_room_in_cap(record: RunRecord, held: str, step: str, children: int) -> None:
    """Raise InputError if a run with a cap may not have so many children of a step.

    ``held``: why no further child starts; empty if the run is not held.
    """
    if held:
        raise InputError(
            f"no child of {step!r} starts any more: {held}",
            hint=f"`batchyard retry {record.run_id} --max-cost USD` goes on when the run is over",
        )
    job = record.plan.job(step)
    at_once = min(children, job.max_running or children)
    if at_once > job.size:
        raise InputError(
            f"max_cost of run {record.run_id} was found for {job.size:,} children of {step!r} at "
            f"once: with {at_once:,} the run could pass it",
            hint=f"scale to at most {job.size:,}, or begin a run with more: `array` in the file",
        )


def _wait_until_stopped(
    run: RunEngine, job_ids: list[str] | None, wait_s: float, sleep: Callable[[float], None]
) -> None:
    """Wait for the end of the jobs, or of the whole run where ``job_ids`` is None."""
    deadline = time.monotonic() + wait_s
    poll_s = max(_STOP_POLL_S, run.status_polling.first_s)
    while not _has_stopped_if_answered(run, job_ids):
        if time.monotonic() > deadline:
            raise OperationalError(
                f"the run has not stopped within {wait_s:.0f} s",
                hint="`batchyard status` shows what is left",
            )
        sleep(poll_s)


def _has_stopped_if_answered(run: RunEngine, job_ids: list[str] | None) -> bool:
    """As ``_has_stopped``; False while the service is too busy to answer."""
    try:
        return _has_stopped(run, job_ids)
    except BusyServiceError:
        return False


def _has_stopped(run: RunEngine, job_ids: list[str] | None) -> bool:
    if job_ids is None:
        return run.overview().state is not RunState.RUNNING
    jobs = run.overview().jobs
    is_stopped = all(job.state.is_terminal for job in jobs if job.id in job_ids)
    # A run without other jobs is over a moment after its last job.
    if is_stopped and all(job.state.is_terminal for job in jobs):
        return run.overview().state is not RunState.RUNNING
    return is_stopped


# -- results and old runs ----------------------------------------------------------------------


def fetch(record: RunRecord, folder: Path | None = None) -> tuple[int, Path]:
    """Download what the steps have written. Returns the number of files, and their folder."""
    run = record.open()
    try:
        return run.fetch(folder.absolute() if folder else None)
    finally:
        run.close()


@dataclass(frozen=True, slots=True)
class Deletion:
    """Numbers of the runs that were deleted, and that could not be read or deleted."""

    deleted: int
    failed: int


def delete_runs(
    home: Path,
    *,
    older_than_s: float | None = None,
    keep: int | None = None,
    say: Say = say_nothing,
) -> Deletion:
    """Delete old runs with their logs.

    ``older_than_s``: only runs that began longer ago. ``keep``: all but the newest. ``say`` gets a
    sentence about each of them that is left, because it is not over or cannot be read or deleted.
    Raises InputError if nothing is chosen.
    """
    if older_than_s is None and keep is None:
        raise InputError("no runs are selected", hint="give --older-than 30d, --keep 10, or both")
    now_ms = time.time() * 1000
    deleted = failed = 0
    names = runs.names(home)
    runs.delete_halves(home)
    for name in names[keep or 0 :]:
        try:
            record = runs.read(RunFolder(runs_in(home) / name))
            if older_than_s is not None and now_ms - record.created_ms <= older_than_s * 1000:
                continue
            if not _is_deletable(record):
                say(f"{name} is not over, so it is kept: `batchyard stop {name}` first")
                continue
            runs.delete(record)
            deleted += 1
        except BatchyardError as exc:
            failed += 1
            say(f"{name}: {exc.message}")
    return Deletion(deleted, failed)


def _is_deletable(record: RunRecord) -> bool:
    run = record.open()
    try:
        return run.is_deletable
    finally:
        run.close()
