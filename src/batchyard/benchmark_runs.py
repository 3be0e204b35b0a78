"""Run the benchmark on AWS Batch: begin a run, submit it, fetch its results and compare them.

The command line and Python programs both call these functions. ``say`` receives notes for the user.
"""

from __future__ import annotations

import ipaddress
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from batchyard import ec2_prices, engines, operations
from batchyard import plan as planning
from batchyard.aws.batch import Batch
from batchyard.aws.environment_lookup import find_environment
from batchyard.aws.s3 import S3, Place, S3Object, naming_file_errors
from batchyard.aws.session import AwsSession
from batchyard.bench import (
    command_report,
    comparing,
    packing,
    reports,
    result_files,
    submission,
    tables,
)
from batchyard.bench.command_request import CommandRequest
from batchyard.bench.packing import JobRequest
from batchyard.bench.results import Results
from batchyard.bench.workload import CPU, GPU
from batchyard.embedded import machine
from batchyard.engines.base import RunRecord, RunRequest, RunSetup, Say, say_nothing
from batchyard.environments import Environment
from batchyard.errors import InputError, from_os_error
from batchyard.folder import DRAFT_PREFIX, runs_in
from batchyard.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """What to measure on AWS Batch, and where."""

    request: JobRequest
    home: Path
    #: name of the AWS environment
    environment: str
    #: kind of device -> instance type to measure; empty: the type of the queue
    instance_types: Mapping[str, str] = field(default_factory=dict)
    #: container image; None: submission.IMAGE, to which jobs add CPU libraries
    image: str | None = None
    on_demand: bool = False


@dataclass(frozen=True, slots=True)
class FetchedResults:
    """The results of a run by kind of device, and notes about their instance types."""

    by_kind: dict[str, Results]
    notes: tuple[str, ...] = ()
    #: whether the jobs asked for spot hosts, whose prices count then
    is_spot: bool = False

    @property
    def missing_kinds(self) -> list[str]:
        return [kind for kind in submission.STEPS if kind not in self.by_kind]


# -- begin --


def begin(request: SubmitRequest, say: Say = say_nothing) -> RunRecord:
    """Record a new run with its code; ``submit`` submits it. Raises InputError."""
    packing.require_request(request.request)
    environment = find_environment(request.home, request.environment)
    pipeline = _make_pipeline(request, environment, say)
    run_request = RunRequest(
        planning.make(pipeline),
        pipeline,
        request.home,
        environment=request.environment,
        on_demand=request.on_demand,
    )
    engine = engines.load(engines.AWS_BATCH)
    # The steps share no folder of this machine: their only input is the code.
    prepared = replace(engine.prepare(run_request), workspace=None)
    # The code is packed before the run is recorded: a run without its code could not be submitted.
    with _packed_code(request.request, request.home) as code:
        record, _ = operations.begin(engine, run_request, prepared)
        try:
            code.rename(record.folder.benchmark_code)
        except OSError as exc:
            raise from_os_error(exc, "record the run in", request.home) from exc
    return record


@contextmanager
def _packed_code(request: JobRequest, home: Path) -> Iterator[Path]:
    """Pack the code into a temporary folder beside the runs, from which it can be renamed."""
    folder = runs_in(home)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # `batchyard clean` deletes folders with this prefix if they are left behind.
        draft = tempfile.TemporaryDirectory(prefix=DRAFT_PREFIX, dir=folder)
    except OSError as exc:
        raise from_os_error(exc, "record the run in", home) from exc
    with draft:
        code = Path(draft.name) / submission.CODE
        packing.pack(code, request)
        yield code


def _make_pipeline(request: SubmitRequest, environment: Environment, say: Say) -> Pipeline:
    session = AwsSession(environment.region, environment.profile)
    is_emulated = is_loopback(str(session.client("batch").meta.endpoint_url))
    has_stand_in = is_emulated and not machine.find_gpus()
    queues = _queues(environment, request.on_demand)
    types: dict[str, str] = {}
    shapes: dict[str, submission.Shape] = {}
    for kind, queue in queues.items():
        queue_types = Batch(session).instance_types(queue)
        requested_type = request.instance_types.get(kind, "")
        # A stand-in for the GPU runs on any type.
        if requested_type or kind == CPU or not has_stand_in:
            _require_type(environment, kind, requested_type, queue, queue_types)
        types[kind] = requested_type or _detect_type(queue_types, is_emulated)
        shapes[kind] = _choose_shape(request.request, kind, types[kind], is_emulated, say)
    if has_stand_in:
        say(
            "note: the endpoint is on this machine, which has no GPU:"
            " the CPU stands in for it, and is labelled so"
        )
    return submission.make_pipeline(
        _request_for_jobs(request.request, shapes[CPU], is_emulated),
        request.image or submission.IMAGE,
        shapes,
        types,
        gpu_queue=queues[GPU] if has_stand_in else None,
        installs_extras=_needs_extras(request, is_emulated),
    )


def _detect_type(queue_types: Sequence[str], is_emulated: bool) -> str:
    """Return the only type of a queue; empty if it has several. The emulator's are invented."""
    return "" if is_emulated else submission.only_type(queue_types) or ""


def _choose_shape(
    request: JobRequest, kind: str, instance_type: str, is_emulated: bool, say: Say
) -> submission.Shape:
    shape = submission.requested_shape(kind, instance_type, request, is_emulated=is_emulated)
    if not is_emulated and submission.whole_machine_shape(instance_type) is None:
        say(_shared_machine_note(kind, instance_type, shape))
    return shape


def _request_for_jobs(
    request: JobRequest, shape: submission.Shape, is_emulated: bool
) -> JobRequest:
    """Return the request of `bench` in the jobs.

    A container sees its memory limit. A process of the emulator does not, so it is told.
    """
    if not is_emulated:
        return replace(request, stand_in=False)
    return replace(request, stand_in=True, memory_mib=shape.memory_mib)


def _needs_extras(request: SubmitRequest, is_emulated: bool) -> bool:
    """Whether jobs install libraries. The emulator's jobs use this machine's Python."""
    is_command = isinstance(request.request, CommandRequest)
    return not is_emulated and not request.image and not is_command


def _queues(environment: Environment, on_demand: bool) -> dict[str, str]:
    """Return the queue of each kind of device. Raises InputError if there is none."""
    queues = {}
    for kind in submission.STEPS:
        name = kind + ("_on_demand" if on_demand else "")
        if name not in environment.queues:
            raise InputError(
                f"environment {environment.name!r} has no {name} queue,"
                " and the benchmark needs one of each kind",
                hint=f"it has {', '.join(sorted(environment.queues)) or 'none'};"
                " `batchyard bench run` measures one device alone",
            )
        queues[kind] = environment.queues[name]
    return queues


def _require_type(
    environment: Environment,
    kind: str,
    requested_type: str,
    queue: str,
    queue_types: Sequence[str],
) -> None:
    problem = submission.type_problem(kind, requested_type, queue_types, queue)
    if problem:
        raise InputError(
            f"environment {environment.name!r}: {problem}",
            hint="the queue's compute environments choose the type:"
            " add it to them, or name one that they have",
        )


def _shared_machine_note(kind: str, instance_type: str, shape: submission.Shape) -> str:
    if instance_type:
        reason = f"the size of {instance_type} is not listed"
    else:
        reason = f"--{kind}-type requests a whole machine"
    return (
        f"note: the {kind.upper()} job requests {shape.cpus} vCPUs and {shape.memory_mib} MiB,"
        f" and may share its machine with other jobs: {reason}"
    )


def is_loopback(url: str) -> bool:
    """Whether the host of a URL is this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


# -- submit --


def require_benchmark(record: RunRecord) -> None:
    """Raise InputError if ``begin`` did not make this run."""
    if not all(submission.TYPE_VARIABLE in job.env for job in record.plan.jobs):
        raise InputError(
            f"run {record.run_id} is no benchmark",
            hint="name a run that `batchyard bench submit` began, with --run",
        )


def submit(record: RunRecord, say: Say = say_nothing) -> None:
    """Upload the code and submit the jobs, unless that is done. Raises InputError."""
    engine = record.open()
    is_submitted = not engine.overview().is_interrupted
    code = record.folder.benchmark_code
    if not is_submitted and not code.exists():
        raise InputError(
            f"run {record.run_id} is not completely submitted,"
            " and its code is on the machine that began it",
            hint="continue the run there, or begin another",
        )
    if not is_submitted:
        setup = engine.setup()
        with naming_file_errors("read", code):
            _s3(setup).put(setup.workspace_address + submission.CODE, code.read_bytes())
    # Opens the run again, under its lock: another process may have submitted jobs meanwhile.
    operations.start(record, say)


# -- results --


def fetch_results(record: RunRecord, out: Path, say: Say = say_nothing) -> FetchedResults:
    """Download the result files to ``out``; files of an earlier run there are renamed."""
    by_kind: dict[str, Results] = {}
    notes = []
    jobs = {job.step: job for job in record.plan.jobs}
    for kind, paths in _download(record, out, say).items():
        # A retry has only the step that failed; the other step's result is that of the first run.
        requested_type = jobs[kind].env[submission.TYPE_VARIABLE] if kind in jobs else ""
        command = jobs.get(kind, record.plan.jobs[0]).command
        for path in paths:
            if path.suffix == ".json":
                by_kind[kind], note = submission.add_instance_type(
                    result_files.read(path),
                    requested_type,
                    is_emulated=submission.is_stand_in_command(command),
                )
                notes += [note] if note else []
    is_spot = not record.open().setup().on_demand
    return FetchedResults(by_kind, tuple(notes), is_spot)


def _download(record: RunRecord, out: Path, say: Say) -> dict[str, list[Path]]:
    """Return the downloaded files by kind of device."""
    setup = record.open().setup()
    s3 = _s3(setup)
    address = setup.workspace_address + submission.RESULTS
    results_by_kind = _list_results(s3, address)
    paths_by_kind = {
        kind: [out / _file_name(result) for result in results]
        for kind, results in results_by_kind.items()
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path in result_files.rename_old_files(
            path for paths in paths_by_kind.values() for path in paths
        ):
            say(f"an older result is kept as {path}")
    except OSError as exc:
        raise from_os_error(exc, "write the results to", out) from exc
    bucket = Place.of(address).bucket
    results = [result for results in results_by_kind.values() for result in results]
    count = s3.download((bucket, result, out / _file_name(result)) for result in results)
    if count:
        say(f"fetched {count} files into {out}")
    return paths_by_kind


def _list_results(s3: S3, address: str) -> dict[str, list[S3Object]]:
    """Return the result files in S3 by kind of device."""
    prefix = Place.of(address).key
    results_by_kind: dict[str, list[S3Object]] = {}
    for entry in s3.list(address):
        kind, _, name = entry.key.removeprefix(prefix).partition("/")
        if kind in submission.STEPS and name and "/" not in name:
            results_by_kind.setdefault(kind, []).append(entry)
    return results_by_kind


def _file_name(result: S3Object) -> str:
    return result.key.rpartition("/")[2]


def _s3(setup: RunSetup) -> S3:
    assert setup.environment is not None
    return S3(AwsSession(setup.environment.region, setup.environment.profile))


def write_reports(
    fetched: FetchedResults, out: Path, say: Say = say_nothing, assignments: Sequence[str] = ()
) -> str:
    """Write the comparison and the HTML page to ``out``, and return the text of the comparison.

    The text is empty, and no comparison is written, if a result of workloads is missing.
    ``assignments``: prices of the user, each as TYPE=USD.
    """
    text = ""
    listed = ec2_prices.load_prices(spot=fetched.is_spot)
    listed = ec2_prices.add_prices(listed, assignments)
    if any(results.is_command for results in fetched.by_kind.values()):
        markets = command_report.load_markets(assignments)
        text = command_report.command_text(fetched.by_kind, markets, fetched.notes)
    elif fetched.missing_kinds:
        names = " and the ".join(kind.upper() for kind in fetched.missing_kinds)
        kept_note = "; the other result is kept" if fetched.by_kind else ""
        say(f"there is no result of the {names} job, so nothing is compared{kept_note}")
    else:
        comparison = comparing.compare(fetched.by_kind[CPU], fetched.by_kind[GPU], listed)
        comparison = replace(comparison, notes=(*comparison.notes, *fetched.notes))
        text = tables.comparison_text(comparison, listed.source)
    if text:
        reports.write_summary(out / reports.SUMMARY, text)
        say(f"written: {out / reports.SUMMARY}")
    if fetched.by_kind:
        reports.write_page(out / reports.PAGE, list(fetched.by_kind.values()), listed)
        say(f"written: {out / reports.PAGE}")
    return text
