"""What the commands of `batchyard doctor` have in common: flags, files of facts, asking AWS, the answer, mending."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchyard.cli.options import F, duration, home_of, home_option, json_option, memory, print_json
from batchyard.errors import InputError, OperationalError

if TYPE_CHECKING:
    from batchyard.aws.session import AwsSession
    from batchyard.doctor.facts import Facts, Job, Survey
    from batchyard.doctor.finding import Report
    from batchyard.doctor.gather.subjects import Gatherer
    from batchyard.doctor.host.facts import HostFacts
    from batchyard.environments import Environment
    from batchyard.pipeline import Pipeline
    from batchyard.plan import Plan, PlannedJob

#: the region of the built-in list of prices
PRICES_OF = "us-east-1"

# -- flags -------------------------------------------------------------------------------------------------------


def all_option(function: F) -> F:
    text = "List also what was found right, and what could not be checked."
    return click.option("--all", "with_all", is_flag=True, help=text)(function)


def dwell_option(function: F) -> F:
    text = "What a fleet may take to start: a job that has waited less is waiting, not stuck."
    option = click.option(
        "--dwell", callback=duration, default="15m", metavar="TIME", show_default=True, help=text
    )
    return option(function)


def region_option(function: F) -> F:
    text = "Without --env: the region, instead of your profile's."
    return click.option("--region", metavar="NAME", help=text)(function)


def aws_options(function: F) -> F:
    """Of the commands that ask AWS: for ``examine``."""
    for option in (
        json_option,
        all_option,
        click.option(
            "--fix",
            is_flag=True,
            help="Offer to mend what can be mended safely; asks first, each time.",
        ),
        dwell_option,
        click.option(
            "--from",
            "source",
            metavar="FILE",
            help="Judge facts that were saved, instead of asking AWS.",
        ),
        click.option(
            "--save",
            metavar="FILE",
            help="Keep the facts in a file, secrets and account ids masked.",
        ),
        home_option,
    ):
        function = option(function)
    return function


def shape_options(function: F) -> F:
    """What a step asks for: for ``shape``."""
    for option in (
        click.option(
            "--gpus", type=click.IntRange(0), help="Check for a step with this many GPUs."
        ),
        click.option(
            "--memory",
            callback=memory,
            metavar="AMOUNT",
            help="Check for a step with this much memory, like 14GiB.",
        ),
        click.option(
            "--cpus", type=click.IntRange(1), help="Check for a step with this many vCPUs."
        ),
    ):
        function = option(function)
    return function


def run_options(function: F) -> F:
    """What `run` takes that changes what is submitted: for ``chosen``. Its `--from STEP` is not among them."""
    for option in (
        click.option("--image", help="List only: container image of the children."),
        click.option(
            "--keep-going",
            is_flag=True,
            default=None,
            help="List only: continue with the next command after a failed one.",
        ),
        click.option(
            "--max-running",
            type=click.IntRange(1),
            help="List only: largest number of children that run at once.",
        ),
        click.option(
            "--timeout",
            callback=duration,
            metavar="TIME",
            help="List only: longest time of an attempt, like 30m.",
        ),
        click.option(
            "--retries", type=click.IntRange(0, 9), help="List only: extra attempts of a child."
        ),
        click.option("--gpus", type=click.IntRange(0), help="List only: GPUs of each child."),
        click.option(
            "--memory",
            callback=memory,
            metavar="AMOUNT",
            help="List only: memory of each child, like 14GiB.",
        ),
        click.option("--cpus", type=click.IntRange(1), help="List only: vCPUs of each child."),
        click.option(
            "--array",
            type=click.IntRange(1, 1_000_000),
            help="List only: number of children that share the list.",
        ),
        click.option(
            "--no-gpu",
            is_flag=True,
            help="Examine GPU steps as CPU steps, as `run --no-gpu` runs them.",
        ),
        click.option(
            "--on-demand",
            is_flag=True,
            help="Examine the on-demand queues, which `run --on-demand` uses.",
        ),
        click.option("--only", metavar="STEP", help="Examine only this step."),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="NAME=VALUE",
            help="Override a value of `params` in the file. May be repeated.",
        ),
    ):
        function = option(function)
    return function


def planned(file: str, flags: dict[str, Any]) -> tuple[Pipeline, Plan]:
    """FILE as `run --engine aws` would read it: a pipeline, or a plain list of commands."""
    from batchyard import plan as planning
    from batchyard.cli import pipelines

    chosen = pipelines.chosen(file, flags | {"runner": "process", "workspace": None})
    offer = chosen.offer
    if (offer.cpus, offer.memory_mib, offer.gpus) != (None, None, None):
        raise InputError(
            f"--cpus, --memory and --gpus go with a list of commands; {file} is a pipeline",
            hint="say it in the file",
        )
    pipelines.show_warnings(chosen.pipeline)
    plan = planning.make(chosen.pipeline, only=flags["only"])
    return chosen.pipeline, planning.without_gpus(plan) if flags["no_gpu"] else plan


def shape(flags: dict[str, Any]) -> Job | None:
    from batchyard.doctor.facts import Job

    cpus, memory_mib, gpus = flags["cpus"], flags["memory"], flags["gpus"]
    if cpus is None and memory_mib is None and gpus is None:
        return None
    return Job("", "SUBMITTED", vcpus=cpus or 1, memory_mib=memory_mib or 0, gpus=gpus or 0)


def shape_of(planned: PlannedJob) -> Job:
    """What a child of a step asks for."""
    from batchyard.doctor.facts import Job

    asked = planned.resources
    return Job(
        "",
        "SUBMITTED",
        name=planned.step,
        vcpus=asked.vcpus,
        memory_mib=asked.memory_mib,
        gpus=asked.gpus,
        size=planned.size if planned.is_array else 0,
        image=planned.image or "",
        log_driver="awslogs",
        attempts=planned.retry.attempts,
    )


def given(value: str | None, name: str) -> str:
    """An argument that is needed unless facts were saved."""
    if not value:
        raise InputError(f"{name} is missing", hint=f"give {name}, or saved facts with --from FILE")
    return value


# -- asking AWS --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Looked:
    facts: Facts | Survey
    #: how many times AWS was asked
    calls: int
    #: for mending
    session: AwsSession


def examine(look: Callable[[], Looked], flags: dict[str, Any]) -> int:
    """Gathers or reads facts, judges them, says what was found, and mends where that is wanted."""
    looked = None if flags["source"] else _look(look)
    facts = looked.facts if looked else _saved(flags["source"], flags["fix"])
    report = judged(facts, flags["dwell"])
    code = answer(report, flags["with_all"], flags["as_json"], looked.calls if looked else None)
    # After the answer: what was found is said, whatever becomes of the file.
    if flags["save"]:
        keep(facts, flags["save"])
    if looked and flags["fix"]:
        _mend(facts, flags["dwell"], looked.session)
    return code


def _look(look: Callable[[], Looked]) -> Looked:
    try:
        return look()
    except OperationalError as exc:
        # Whatever it is, the doctor could not look: 2 is its code for that.
        raise InputError(exc.message, hint=exc.hint) from exc


def _saved(source: str, wants_fix: bool) -> Facts | Survey:
    from batchyard.doctor.host.facts import HostFacts

    if wants_fix:
        raise InputError(
            "--fix does not go with --from: what was saved may be over",
            hint="leave one of them out",
        )
    found = saved_facts(source)
    if isinstance(found, HostFacts):
        raise InputError(
            f"{source} holds the facts of a host",
            hint=f"`batchyard doctor host --from {source}` reads it",
        )
    return found


def gatherer(session: AwsSession, *, is_place: bool = False) -> Gatherer:
    from batchyard.bench import prices
    from batchyard.doctor.gather.market import PriceList
    from batchyard.doctor.gather.subjects import MAX_CALLS, MAX_CALLS_WITHOUT_JOB, Gatherer

    max_calls = MAX_CALLS_WITHOUT_JOB if is_place else MAX_CALLS
    listed = PriceList(prices.listed().usd_h, PRICES_OF)
    return Gatherer(session, lambda: int(time.time() * 1000), max_calls, listed)


def surveyed(kind: str, name: str, queues: dict[str, list[Job]], where: Environment) -> Looked:
    """Queues, and the shapes that are to run in each."""
    from batchyard.aws.session import AwsSession
    from batchyard.doctor.facts import Place, Subject, Survey

    session = AwsSession(where.region, where.profile)
    places, calls = [], 0
    for queue, shapes in queues.items():
        asking = gatherer(session, is_place=True)
        places.append(Place(asking.queue(queue), tuple(shapes)))
        calls += asking.calls.count
    return Looked(Survey(Subject(kind, name, where.region), tuple(places)), calls, session)


def queues_for(shape: Job | None, where: Environment) -> dict[str, list[Job]]:
    """All queues of an environment; the shape at those where a step like that would go."""
    kind = "gpu" if shape and shape.gpus else "cpu"
    found: dict[str, list[Job]] = {}
    for name, queue in where.queues.items():
        shapes = found.setdefault(queue, [])
        if shape and name.startswith(kind) and not shapes:
            shapes.append(shape)
    if shape and not any(found.values()):
        where.queue(needs_gpu=bool(shape.gpus))  # says that there is none
    return found


def session_of(env: str | None, region: str | None, home: str | None) -> AwsSession:
    from batchyard.aws.environment_lookup import find_environment
    from batchyard.aws.session import AwsSession

    where = find_environment(home_of(home), env) if env else None
    return AwsSession(where.region, where.profile) if where else AwsSession(region)


def _mend(found: Facts | Survey, dwell_s: int, session: AwsSession) -> None:
    """Asks about each; without an answer nothing is done."""
    from batchyard.doctor import fixes
    from batchyard.doctor.facts import Survey
    from batchyard.doctor.gather.batch_calls import BatchCalls

    places = [place.facts for place in found.places] if isinstance(found, Survey) else [found]
    offers = [fix for facts in places for fix in fixes.proposals(facts, judged(facts, dwell_s))]
    if not offers:
        click.echo("there is nothing that can be mended from here", err=True)
    for fix in dict.fromkeys(offers):
        try:
            is_wanted = click.confirm(fix.question, default=False, err=True)
        except click.Abort:
            click.echo("\nno answer: nothing more is changed", err=True)
            return
        if is_wanted:
            fixes.perform(fix, BatchCalls(session))
            click.echo(f"done; to take it back: {fix.undo}", err=True)


# -- facts and answers -------------------------------------------------------------------------------------------


def judged(facts: Facts | Survey, dwell_s: int) -> Report:
    from batchyard.doctor import judge
    from batchyard.doctor.facts import Survey

    return (
        judge.judge_survey(facts, dwell_s)
        if isinstance(facts, Survey)
        else judge.judge(facts, dwell_s)
    )


def answer(report: Report, with_all: bool, as_json: bool, calls: int | None = None) -> int:
    from batchyard.doctor import show

    if as_json:
        print_json(show.as_json(report) | ({} if calls is None else {"calls": calls}))
    else:
        click.echo("\n".join(show.lines(report, with_all)))
    return report.exit_code


def saved_facts(file: str) -> Facts | Survey | HostFacts:
    from batchyard.doctor import facts_json

    return facts_json.load(content(file).decode("utf-8", "replace"), name_of(file))


def keep(found: Any, file: str) -> None:
    from batchyard.doctor import facts_json, masking

    text = facts_json.dump(masking.masked(found))
    try:
        Path(file).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as exc:
        # Whatever it is: 2 is the doctor's code for what it could not do.
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        hint = "free some space, or name a file elsewhere, and ask again"
        is_full = isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT)
        raise InputError(
            f"could not write the facts to {file}: {reason}",
            hint=hint if is_full else "name a file that can be written with --save",
        ) from exc


def name_of(file: str) -> str:
    return "standard input" if file == "-" else file


def content(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise InputError(f"cannot read {file}: {reason}", hint="check the path") from None


def beside(path: str) -> bytes | None:
    """A file that a template names; None where there is none, or none that could be a template."""
    from batchyard.doctor.template.read import MAX_BYTES

    file = Path(path)
    try:
        # Nothing that a template names may be waited for, as a pipe would be.
        return file.read_bytes() if file.is_file() and file.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError):
        return None
