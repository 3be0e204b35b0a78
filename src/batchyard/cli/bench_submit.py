"""`batchyard bench submit`: the benchmark on AWS Batch, on a CPU queue and a GPU queue, compared at the end."""

from __future__ import annotations

import ipaddress
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from batchyard.cli import benching
from batchyard.cli.options import env_option, example, find_run, home_of, home_option
from batchyard.errors import InputError, from_os_error
from batchyard.folder import home_flag

if TYPE_CHECKING:
    from batchyard.aws.s3 import S3
    from batchyard.aws.session import AwsSession
    from batchyard.bench.request import Request
    from batchyard.bench.results import Results
    from batchyard.bench.submission import Shape
    from batchyard.engines.base import RunRecord, RunSetup
    from batchyard.environments import Environment
    from batchyard.pipeline import Pipeline
    from batchyard.status import RunStatus


@click.command(
    epilog=example(
        "batchyard bench submit --env lab --quick",
        "batchyard bench submit --env lab --cpu-type c7i.4xlarge --gpu-type g5.xlarge --out results",
        "batchyard bench submit --run benchmark-20260102-0a1b2c",
    )
)
@env_option
@click.option(
    "--cpu-type",
    default="",
    metavar="TYPE",
    help="Instance type of the CPU queue to measure (default: detected).",
)
@click.option(
    "--gpu-type",
    default="",
    metavar="TYPE",
    help="Instance type of the GPU queue to measure (default: detected).",
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="With Python 3.11 and NumPy; default: PyTorch's own, with CUDA.",
)
@click.option("--on-demand", is_flag=True, help="Not on spot instances.")
@click.option("--detach", is_flag=True, help="Return once it is submitted, and print the run's id.")
@click.option("--run", "run_id", metavar="RUN", help="Go on with one: wait for it, fetch, compare.")
@benching.measuring_options
@home_option
def command(
    env: str | None,
    cpu_type: str,
    gpu_type: str,
    image: str | None,
    on_demand: bool,
    detach: bool,
    run_id: str | None,
    home: str | None,
    out: str,
    **given: Any,
) -> int:
    """Measure on AWS Batch: one job on the CPU queue, one on the GPU queue, then fetch both results and compare them.

    The benchmark's code is sent along, so the image needs only Python and NumPy. An instance type is a choice of the
    queue: the job asks for as much as the whole of it has, and what it really ran on counts. At an endpoint on this
    machine, the CPU stands in for a GPU that is not there, and everything says so.
    """
    if run_id is not None:
        record = _known(find_run(home, run_id, env))
    else:
        if env is None:
            raise InputError(
                "`bench submit` needs an environment",
                hint="name it with --env; `batchyard environments` lists them",
            )
        request = benching.request_of(out=out, **given)
        record = _begin(
            request, home_of(home), env, {"cpu": cpu_type, "gpu": gpu_type}, image, on_demand
        )
    return _go(record, Path(out), detach=detach)


# -- beginning --------------------------------------------------------------------------------------------------


def _begin(
    request: Request,
    home: Path,
    env: str,
    types: Mapping[str, str],
    image: str | None,
    on_demand: bool,
) -> RunRecord:
    from batchyard import engines, operations
    from batchyard import plan as planning
    from batchyard.aws.environment_lookup import find_environment
    from batchyard.aws.session import AwsSession
    from batchyard.bench import submission
    from batchyard.engines.base import RunRequest

    submission.refuse_missing(request)
    benching.refuse_unknown_workloads(request)
    where = find_environment(home, env)
    pipeline = _pipeline(
        request, where, AwsSession(where.region, where.profile), types, image, on_demand
    )
    order = RunRequest(
        planning.make(pipeline), pipeline, home, environment=env, on_demand=on_demand
    )
    engine = engines.load(engines.AWS_BATCH)
    prepared = engine.prepare(order)
    with _packed(request, home) as code:
        record, _ = operations.begin(engine, order, prepared)
        try:
            code.rename(record.folder.path / submission.CODE)
        except OSError as exc:
            raise from_os_error(exc, "record the run in", home) from exc
    return record


@contextmanager
def _packed(request: Request, home: Path) -> Iterator[Path]:
    """The code, before there is a run that it belongs to: without it nobody could go on with that."""
    from batchyard.bench import submission
    from batchyard.folder import runs_in

    # Beside the runs, so that it can be renamed into one, and by a name that is cleaned away if we do not come to it.
    folder = runs_in(home)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = tempfile.TemporaryDirectory(prefix=".new-", dir=folder)
    except OSError as exc:
        raise from_os_error(exc, "record the run in", home) from exc
    with draft:
        code = Path(draft.name) / submission.CODE
        submission.pack(code, request)
        yield code


def _pipeline(
    request: Request,
    where: Environment,
    session: AwsSession,
    given: Mapping[str, str],
    image: str | None,
    on_demand: bool,
) -> Pipeline:
    from batchyard.aws.batch import Batch
    from batchyard.bench import submission
    from batchyard.embedded import machine

    is_here = is_loopback(str(session.client("batch").meta.endpoint_url))
    stands_in = is_here and not machine.find_gpus()
    queues = {kind: _queue(where, kind, on_demand) for kind in submission.STEPS}
    types, shapes = {}, {}
    for kind, queue in queues.items():
        fleet = Batch(session).instance_types(queue)
        if given[kind] or not (stands_in and kind == "gpu"):
            problem = submission.type_problem(kind, given[kind], fleet, queue)
            if problem:
                hint = "a type is a choice of the queue's compute environments: add it there, or name one they have"
                raise InputError(f"environment {where.name!r}: {problem}", hint=hint)
        types[kind] = given[kind] or ("" if is_here else submission.only_type(fleet) or "")
        shapes[kind] = _shape(kind, types[kind], request, is_here=is_here)
    if stands_in:
        _say(
            "note: the endpoint is on this machine, which has no GPU: the CPU stands in for it, labelled so"
        )
    # A container sees its limit from inside; a process of the endpoint does not.
    memory_mib = shapes["cpu"].memory_mib if is_here else request.memory_mib
    return submission.pipeline(
        replace(request, stand_in=is_here, memory_mib=memory_mib),
        image or submission.IMAGE,
        shapes,
        types,
        gpu_queue=queues["gpu"] if stands_in else None,
        # Never into a Python of this machine.
        install=() if is_here or image else submission.IMAGE_LACKS,
    )


def _shape(kind: str, instance_type: str, request: Request, *, is_here: bool) -> Shape:
    from batchyard.bench import submission

    shape = submission.asked(kind, instance_type, request, is_here=is_here)
    if not is_here and submission.shape_of(instance_type) is None:
        asked = f"{shape.cpus} vCPUs and {shape.memory_mib} MiB"
        more = (
            "its size is not in the list"
            if instance_type
            else f"--{kind}-type asks for the whole of one"
        )
        _say(
            f"note: the {kind.upper()} job asks for {asked}, and may share its machine with others: {more}"
        )
    return shape


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _queue(where: Environment, kind: str, on_demand: bool) -> str:
    name = kind + ("_on_demand" if on_demand else "")
    if name not in where.queues:
        raise InputError(
            f"environment {where.name!r} has no {name} queue, and the benchmark needs one of each kind",
            hint=f"it has {', '.join(sorted(where.queues)) or 'none'}; `batchyard bench run` measures one device alone",
        )
    return where.queues[name]


# -- going on ---------------------------------------------------------------------------------------------------


def _known(record: RunRecord) -> RunRecord:
    from batchyard.bench import submission

    if not all(submission.TYPE_VARIABLE in job.env for job in record.plan.jobs):
        raise InputError(
            f"run {record.run_id} is no benchmark",
            hint="name one that `batchyard bench submit` began, with --run",
        )
    return record


def _go(record: RunRecord, out: Path, *, detach: bool) -> int:
    from batchyard.cli.following import follow

    flags = home_flag(record.folder, Path.cwd())
    again = f"`batchyard bench submit --run {record.run_id}{flags}`"
    stop = f"`batchyard stop {record.run_id}{flags}`"
    _say(f"run {record.run_id}")
    try:
        _send(record)
    except KeyboardInterrupt:
        _say(f"not all of it is submitted; {again} goes on, {stop} ends what is there")
        return 130
    if detach:
        click.echo(record.run_id)
        _say(f"{again} waits for it, fetches the results and compares them")
        return 0
    try:
        shown = follow(record, quiet=False)
    except KeyboardInterrupt:
        _say(
            f"the benchmark goes on without us; {again} waits for it, fetches and compares; {stop} ends it"
        )
        return 130
    return _finish(record, shown, out)


def _send(record: RunRecord) -> None:
    from batchyard.bench import submission

    engine = record.open()
    if not engine.overview().is_interrupted:
        return
    code = record.folder.path / submission.CODE
    if not code.exists():
        raise InputError(
            f"run {record.run_id} was not submitted whole, and its code is on the machine that began it",
            hint="go on with it there, or begin another",
        )
    setup = engine.setup()
    _s3(setup).upload([(code, setup.workspace_address + submission.CODE)])
    engine.start(_say)


# -- results ----------------------------------------------------------------------------------------------------


def _finish(record: RunRecord, shown: RunStatus, out: Path) -> int:
    """Fetches what there is, compares what can be, and says what is missing; the exit code is the run's."""
    from batchyard.bench import book, submission
    from batchyard.cli import render
    from batchyard.cli.run import EXIT_CODES

    code = 3 if shown.is_interrupted else EXIT_CODES[shown.state]
    if code:
        lines = render.status_lines(
            shown, int(time.time() * 1000), home_flag(record.folder, Path.cwd())
        )
        click.echo("\n".join(lines), err=True)
    found: dict[str, Results] = {}
    notes = []
    for kind, paths in _fetched(record, out).items():
        for path in (one for one in paths if one.suffix == ".json"):
            job = next((one for one in record.plan.jobs if one.step == kind), record.plan.jobs[0])
            wanted = job.env[submission.TYPE_VARIABLE] if job.step == kind else ""
            is_here = submission.is_pretended(job.command)
            found[kind], note = submission.with_type(book.read(path), wanted, is_here=is_here)
            notes += [note] if note else []
    missing = [kind.upper() for kind in submission.STEPS if kind not in found]
    if missing:
        kept = "; the other's is kept" if found else ""
        _say(
            f"there is no result of the {' and the '.join(missing)} job, so nothing is compared{kept}"
        )
    else:
        _compare(found["cpu"], found["gpu"], notes, out)
    if found:
        benching.write(
            out / benching.PAGE, benching.page_of(list(found.values())), "write the report"
        )
        _say(f"written: {out / benching.PAGE}")
    return code or (1 if missing else 0)


def _compare(cpu: Results, gpu: Results, notes: list[str], out: Path) -> None:
    from batchyard.bench import comparing, prices, tables

    listed = prices.listed()
    value = comparing.compare(cpu, gpu, listed)
    text = tables.comparison_text(
        replace(value, notes=(*value.notes, *notes)), listed.source, prices=True
    )
    click.echo(text, nl=False)
    benching.write(out / benching.SUMMARY, text, "write the summary")
    _say(f"written: {out / benching.SUMMARY}")


def _fetched(record: RunRecord, out: Path) -> dict[str, list[Path]]:
    """kind -> its files, now in ``out``; those of an earlier run are kept beside them."""
    from batchyard.aws.s3 import Place
    from batchyard.bench import submission
    from batchyard.bench.book import put_aside

    setup = record.open().setup()
    s3 = _s3(setup)
    address = setup.workspace_address + submission.RESULTS
    prefix = Place.of(address)
    wanted: dict[str, list[tuple[str, Path]]] = {}
    for found in s3.list(address):
        kind, _, name = found.key.removeprefix(prefix.key).partition("/")
        if kind in submission.STEPS and name and "/" not in name:
            wanted.setdefault(kind, []).append((f"{address}{kind}/{name}", out / name))
    try:
        out.mkdir(parents=True, exist_ok=True)
        for old in put_aside([path for pairs in wanted.values() for _, path in pairs]):
            _say(f"an older result is kept as {old}")
    except OSError as exc:
        raise from_os_error(exc, "write the results to", out) from exc
    count = s3.download([pair for pairs in wanted.values() for pair in pairs])
    if count:
        _say(f"fetched {count} files into {out}")
    return {kind: [path for _, path in pairs] for kind, pairs in wanted.items()}


def _s3(setup: RunSetup) -> S3:
    from batchyard.aws.s3 import S3
    from batchyard.aws.session import AwsSession

    assert setup.environment is not None
    return S3(AwsSession(setup.environment.region, setup.environment.profile))


def _say(text: str) -> None:
    click.echo(text, err=True)
