"""The Python interface.

    from batchyard import Pipeline

    run = Pipeline.load("pipeline.yaml").run()
    run.wait()
    print(run.status()["state"])

A run on this machine executes in a process of its own, exactly as with ``batchyard run --detach``:
it survives the end of the program that began it. One on AWS (``run(engine="aws",
environment="lab")``) needs no process here once it is submitted. The commands `status`, `logs` and
`stop` see both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from batchyard import command_records, engines, operations, status
from batchyard import plan as planning
from batchyard.engines.base import (
    DEFAULT_GRACE_S,
    Backoff,
    Engine,
    LogChunk,
    Offer,
    RetryRequest,
    RunRecord,
    RunRequest,
    RunState,
    say_nothing,
)
from batchyard.engines.busy_service import PatientCaller
from batchyard.errors import BatchyardError, InputError, OperationalError
from batchyard.folder import find_home, home_beside
from batchyard.pipeline import Pipeline as Model
from batchyard.pipeline_file import plain_lists, printing, reading
from batchyard.pipeline_file.plain_lists import ListSettings
from batchyard.supervision import Supervisor


def _home(home: str | Path | None) -> str | None:
    """Return the `.batchyard` folder that the caller names, or BATCHYARD_HOME; None for neither.

    Raises InputError if it is a file.
    """
    name = str(home) if home else os.environ.get("BATCHYARD_HOME")
    if name and os.path.exists(name) and not os.path.isdir(name):
        raise InputError(
            f"{name} is not a folder", hint="name the .batchyard folder itself, or leave it out"
        )
    return name


def _load_engine(engine: str | Engine) -> Engine:
    if isinstance(engine, str):
        return engines.load(engine)
    if isinstance(engine, type) or not hasattr(engine, "prepare"):
        raise InputError(
            f"engine is {engine!r}",
            hint="write a name, or an engine object such as MemoryEngine()",
        )
    return engine


def _start(record: RunRecord) -> list[str]:
    """Start or resume a run, and return the sentences that the command prints meanwhile.

    If the run cannot be started, they are part of the error's hint: they say how to resume the run.
    """
    messages: list[str] = []
    try:
        operations.start(record, messages.append)
    except BatchyardError as exc:
        exc.hint = "; ".join([*([exc.hint] if exc.hint else []), *messages])
        raise
    return messages


class Step:
    """A step of a pipeline that is built in Python: its name, and keys of the pipeline file."""

    def __init__(self, name: str, **keys: Any) -> None:
        """``keys``: as in a file, for example ``command="make", memory="2GiB", needs=["a"]``."""
        self.keys = {"name": name, **keys}

    def __repr__(self) -> str:
        return f"Step({', '.join(f'{name}={value!r}' for name, value in self.keys.items())})"


class Pipeline:
    """A pipeline that has been found right, from a file or built in Python.

    ``str`` of it is the pipeline file that it is.
    """

    def __init__(self, name: str, steps: Iterable[Step], **keys: Any) -> None:
        """Build a pipeline; ``keys`` are those of a file, like ``params`` and ``defaults``.

        Its folder is the current one. Raises PipelineFileError with the mistakes that the same
        pipeline has as a file.
        """
        document = {"name": name, **keys, "steps": [step.keys for step in steps]}
        self.model = reading.load_text(printing.print_keys(document), Path.cwd())

    @classmethod
    def _of_model(cls, model: Model) -> Pipeline:
        pipeline = cls.__new__(cls)
        pipeline.model = model
        return pipeline

    def __str__(self) -> str:
        return printing.print_pipeline(self.model)

    @classmethod
    def commands(
        cls, commands: Iterable[str], name: str = "list", **settings: Unpack[ListSettings]
    ) -> Pipeline:
        """Return the pipeline of a plain list with these commands; ``settings`` as ``load_list``.

        Raises PipelineFileError.
        """
        return cls._of_model(plain_lists.make_list(commands, name, **settings))

    @classmethod
    def command(
        cls,
        *words: str,
        env: Mapping[str, object] | None = None,
        **settings: Unpack[ListSettings],
    ) -> Pipeline:
        """Return the pipeline of a single command, as `batchyard run -- WORDS`.

        ``words``: a program with its arguments, or a text for the shell. ``env``: its environment
        variables. ``settings``: `cpus`, `memory_mib`, `gpus`, `retries`, `timeout_s`, `image`.
        Raises PipelineFileError.
        """
        variables = {name: str(value) for name, value in (env or {}).items()}
        return cls._of_model(plain_lists.make_command(words or ("",), variables, **settings))

    @classmethod
    def load(cls, path: str | Path, params: Mapping[str, object] | None = None) -> Pipeline:
        """Read a pipeline file, or a plain list of commands, which has no params.

        Raises PipelineFileError, which lists all mistakes of the file.
        """
        path = Path(path)
        if plain_lists.is_command_list(path):
            if params:
                raise InputError(
                    f"params are for pipeline files; {path} is a list of commands",
                    hint="a list has no params",
                )
            return cls._of_model(plain_lists.load_list(path))
        texts = {name: str(value) for name, value in (params or {}).items()}
        return cls._of_model(reading.load(path, texts))

    @classmethod
    def load_list(cls, path: str | Path, **settings: Unpack[ListSettings]) -> Pipeline:
        """Read a plain list of commands, with what `batchyard run` takes as flags.

        ``settings``: `array`, `share_out`, `max_running`, `keep_going`, `fail_fast`, and of each
        command `cpus`, `memory_mib`, `gpus`, `retries`, `timeout_s` and `image`. What the run may
        use is its ``offer``. Raises PipelineFileError.
        """
        return cls._of_model(plain_lists.load_list(Path(path), **settings))

    def with_env(self, variables: Mapping[str, object]) -> Pipeline:
        """Return the pipeline with further environment variables of all steps, as `--set-env`."""
        texts = {name: str(value) for name, value in variables.items()}
        return self._of_model(plain_lists.override_env(self.model, texts))

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the file: valid entries that are probably mistakes, with line and column."""
        return tuple(str(warning) for warning in self.model.warnings)

    def plan(
        self,
        *,
        only: str | None = None,
        start_from: str | None = None,
        offer: Offer | None = None,
        engine: str | Engine = engines.DEFAULT,
        environment: str | None = None,
        on_demand: bool = False,
        spot: bool = False,
        home: str | Path | None = None,
        commands: bool = False,
    ) -> dict[str, Any]:
        """Return what ``run`` would do, in the shape of `batchyard plan --json`.

        ``commands``: with the commands that would run, as `plan --commands`.
        On AWS, ``requests`` has the requests that ``run`` would send. Raises InputError for a plan
        that AWS Batch would refuse.
        """
        request = replace(
            self._request(only, start_from, offer, home),
            environment=environment,
            on_demand=on_demand,
            spot=spot,
        )
        used_engine = _load_engine(engine)
        preview = operations.preview(used_engine, request)
        return preview.to_json(used_engine.name, with_commands=commands)

    def run(
        self,
        *,
        engine: str | Engine = engines.DEFAULT,
        environment: str | None = None,
        on_demand: bool = False,
        spot: bool = False,
        max_cost_usd: float | None = None,
        stops_at_cap: bool = False,
        only: str | None = None,
        start_from: str | None = None,
        offer: Offer | None = None,
        sampling: bool = True,
        home: str | Path | None = None,
    ) -> Run:
        """Begin a run, and return once it goes on by itself.

        ``engine``: a name, or an engine object such as ``batchyard.engines.memory.MemoryEngine``.
        ``environment``, ``on_demand`` and ``spot`` are for engines on AWS; ``spot``: no child goes
        on, on demand, whatever the file says. ``max_cost_usd``: the most that the run may cost,
        which ``wait`` keeps; ``stops_at_cap``: children that run are ended then. ``offer``: what
        the run may use of this machine; of a run on AWS, only `use_gpus` and `workspace`.
        ``sampling``: whether samples are taken of the CPU, memory and GPUs that children use.
        """
        request = replace(
            self._request(only, start_from, offer, home),
            environment=environment,
            on_demand=on_demand,
            spot=spot,
            max_cost_usd=max_cost_usd,
            stops_at_cap=stops_at_cap,
            is_sampled=sampling,
        )
        record, notes = operations.begin(_load_engine(engine), request)
        return Run(record, [*notes, *_start(record)])

    def _request(
        self,
        only: str | None,
        start_from: str | None,
        offer: Offer | None,
        home: str | Path | None,
    ) -> RunRequest:
        return RunRequest(
            plan=planning.make(self.model, only=only, start_from=start_from),
            pipeline=self.model,
            home=home_beside(self.model.folder, _home(home)),
            offer=offer or Offer(),
        )

    def cost(
        self,
        *,
        engine: str | Engine = engines.DEFAULT,
        environment: str | None = None,
        on_demand: bool = False,
        expect_s: float | None = None,
        home: str | Path | None = None,
        region: str | None = None,
        profile: str | None = None,
    ) -> dict[str, Any]:
        """Return what a run is likely to cost on EC2, as `cost` in `batchyard plan --cost --json`.

        With ``engine`` and ``environment``, as of ``run``: on the hosts of its queues, at the
        prices of its region. ``expect_s``: usual seconds of a command that no earlier run has
        executed.
        """
        from batchyard.cost import market, plan_cost

        request = replace(
            self._request(None, None, None, home), environment=environment, on_demand=on_demand
        )
        if environment is not None:
            loaded_engine = _load_engine(engine)
            prepared = operations.prepare(loaded_engine, request)
            cost = plan_cost.cost_of_prepared(
                prepared,
                request.home,
                loaded_engine.name,
                expect_s=expect_s,
                max_cost_usd=self.model.max_cost_usd,
            )
            if cost is not None:
                return cost.to_json()
        return plan_cost.cost_of_plan(
            planning.make(self.model),
            home_beside(self.model.folder, _home(home)),
            market.AwsMarket(region, profile),
            expect_s,
        ).to_json()

    def advise(
        self,
        *,
        home: str | Path | None = None,
        region: str | None = None,
        profile: str | None = None,
    ) -> dict[str, Any]:
        """Return what each step used in earlier runs, what it needs, and which types fit.

        The shape is that of `advice` in `batchyard plan --advise --json`.
        """
        from batchyard.cost import advice, market

        return advice.advise(
            planning.make(self.model),
            home_beside(self.model.folder, _home(home)),
            market.AwsMarket(region, profile),
        ).to_json()

    def prices(
        self,
        step: str | None = None,
        *,
        architecture: str = "x86_64",
        region: str | None = None,
        profile: str | None = None,
        limit: int | None = 20,
    ) -> dict[str, Any]:
        """Return the instance types that can run a child of the step, cheapest first.

        The shape is that of `batchyard prices --json`. ``step`` may be left out if there is only
        one. ``limit``: the number of types, or None for all. AWS is asked for the prices; where it
        does not answer, they are those of a dated list, and ``sources`` says so.
        """
        from batchyard.cost import market, offers

        return market.price_types(
            offers.resources_of_step(self.model, step),
            market.AwsMarket(region, profile),
            architecture=architecture,
            limit=limit,
        ).to_json()


class Run:
    """A run, wherever it executes."""

    def __init__(self, record: RunRecord, notes: Sequence[str] = ()) -> None:
        self._record = record
        #: Sentences for the user that `batchyard run`, `retry` and `resume` print; empty for a run
        #: that ``find`` returns.
        self.notes = tuple(notes)

    @classmethod
    def find(
        cls,
        name: str = "last",
        home: str | Path | None = None,
        *,
        environment: str | None = None,
    ) -> Run:
        """Return the run of that id, or beginning of one, or `last`, in the nearest `.batchyard`.

        With ``environment``, the id may be that of a run which another machine began there.
        """
        folder = find_home(Path.cwd(), _home(home))
        return cls(operations.find_run(folder, name, environment))

    @property
    def id(self) -> str:
        return self._record.run_id

    def status(self) -> dict[str, Any]:
        """Return the state of the run, in the shape of `batchyard status --json`."""
        return status.to_json(status.of_run(self._record))

    def wait(self, timeout_s: float | None = None) -> str:
        """Wait for the end of the run, and return its final state.

        Raises TimeoutError, or OperationalError where the run is interrupted.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        engine = self._record.open()
        backoff = Backoff(engine.status_polling)

        def pause(delay_s: float) -> None:
            if deadline is not None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"run {self.id} was not over after {timeout_s} s")
                delay_s = min(delay_s, max(0.0, deadline - time.monotonic()))
            time.sleep(delay_s)

        caller = PatientCaller(sleep=pause)
        supervise = Supervisor(self._record, engine, say_nothing)
        while True:
            overview = caller.call(engine.overview)
            if overview.state is not RunState.RUNNING:
                engine.close()
                return overview.state.value
            if overview.is_interrupted:
                engine.close()
                raise OperationalError(
                    f"run {self.id} is interrupted: {overview.interruption}",
                    hint="Run.resume() continues it",
                )
            look_s = caller.call(partial(supervise, overview))
            engine.close()
            pause(min(look_s, backoff.next_delay_s([job.counts for job in overview.jobs])))

    def logs(
        self, step: str | None = None, index: int | None = None, *, failed: bool = False
    ) -> Iterator[LogChunk]:
        """Return what the children have written so far: all of them, a step's, or one child's."""
        if step is not None or index is not None:
            step, index = self._record.plan.require_child(step, index)
        return self._read_logs(step, index, failed)

    def _read_logs(self, step: str | None, index: int | None, failed: bool) -> Iterator[LogChunk]:
        engine = self._record.open()
        try:
            yield from engine.logs(step, index, failed_only=failed)
        finally:
            engine.close()

    def commands(
        self, step: str | None = None, *, failed: bool = False, order: str = "number"
    ) -> list[dict[str, Any]]:
        """Return the commands that have ended, in the shape of `batchyard commands --json`."""
        commands = command_records.list_commands(
            self._record, step, failed_only=failed, order=order
        )
        return [command_records.to_json(command) for command in commands]

    def cost(self, *, region: str | None = None, profile: str | None = None) -> dict[str, Any]:
        """Return what the run has cost, in the shape of `batchyard cost --json`.

        Of a run on this machine: what it would have cost on EC2. ``region`` and ``profile``: where
        prices are asked for; None for those of the run's environment.
        """
        from batchyard.cost import market, run_bill

        prices = market.AwsMarket(region, profile) if region or profile else None
        return run_bill.cost_of_run(self._record, prices).to_json()

    def stop(self, grace_s: float = DEFAULT_GRACE_S, *, step: str | None = None) -> None:
        """Ask for the end of the run, also of one whose process died; ``wait`` waits for it.

        ``step``: only of this step. On AWS the grace is always 30 s.
        """
        operations.stop(self._record, step, grace_s, wait=False)

    def scale(self, step: str, children: int) -> int:
        """Let another number of children work on a dynamic step, while the run goes on.

        Returns how many there is room for at the same time.
        """
        return operations.scale(self._record, step, children).room

    def resume(self) -> None:
        """Continue an interrupted run. What is done or submitted already is not repeated."""
        self.notes += tuple(_start(operations.prepare_resume(self._record, detached=True)))

    def retry(
        self,
        step: str | None = None,
        index: int | None = None,
        *,
        command: int | str | None = None,
        on_demand: bool = False,
        max_cost_usd: float | None = None,
        stops_at_cap: bool = False,
        limit_cpus: int | None = None,
        limit_memory_mib: int | None = None,
        workspace: str | Path | None = None,
        sampling: bool | None = None,
        cpus: int | None = None,
        memory_mib: int | None = None,
    ) -> Run:
        """Begin a new run of only what failed or never ran, in the run or in ``step``.

        With ``index``: of this child of the step; with ``command``: of this command (its number,
        "STEP:NUMBER" or its text). They are repeated also if they succeeded.

        ``on_demand``: not on spot. ``max_cost_usd``: the most that the new run may cost; None for
        the cap of this run. ``limit_cpus`` and ``limit_memory_mib``: what it may use of this
        machine, where that differs from the first run; ``cpus`` and ``memory_mib`` are their old
        names. ``workspace``: the run's folder, if it was moved. ``sampling``: as of ``run``; None
        as in this run.
        """
        notes: list[str] = []
        request = RetryRequest(
            cpus=cpus if limit_cpus is None else limit_cpus,
            memory_mib=memory_mib if limit_memory_mib is None else limit_memory_mib,
            on_demand=on_demand,
            max_cost_usd=max_cost_usd,
            stops_at_cap=stops_at_cap,
            workspace=None if workspace is None else str(workspace),
            part=self._find_part(step, index, command),
            is_sampled=sampling,
        )
        record = operations.begin_retry(self._record, request, notes.append)
        return Run(record, [*notes, *_start(record)])

    def fallback(self) -> Run | None:
        """Begin a run of the children that spot instances did not finish: they go on, on demand.

        None if there are none, or if they go on already. The command `run` does this by itself.
        """
        notes: list[str] = []
        record = operations.begin_fallback(self._record, notes.append)
        return None if record is None else Run(record, [*notes, *_start(record)])

    def plan_retry(
        self,
        step: str | None = None,
        index: int | None = None,
        *,
        command: int | str | None = None,
    ) -> dict[str, Any]:
        """Return what ``retry`` would do, in the shape of `plan --retry RUN --reasons --json`."""
        part = self._find_part(step, index, command)
        preview = operations.preview_retry(self._record, RetryRequest(part=part))
        return preview.to_json(self._record.engine.name, with_commands=True)

    def _find_part(
        self, step: str | None, index: int | None, command: int | str | None
    ) -> planning.RunPart | None:
        name = None if command is None else str(command)
        return command_records.find_part(self._record, step, index, name)

    def fetch(self, to: str | Path | None = None) -> int:
        """Download the results of a run on AWS, and return how many files came.

        ``to``: a folder instead of the run's workspace. Files that are here already are left.
        """
        return operations.fetch(self._record, Path(to) if to else None)[0]
