"""Gather facts from AWS for the commands of `batchyard doctor`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchyard.cli.options import home_of
from batchyard.errors import InputError

if TYPE_CHECKING:
    from batchyard.aws.session import AwsSession
    from batchyard.doctor.facts import Facts, Job, Survey
    from batchyard.doctor.gather.subjects import Gatherer
    from batchyard.environments import Environment
    from batchyard.pipeline import Pipeline
    from batchyard.plan import Plan, PlannedJob


@dataclass(frozen=True, slots=True)
class GatheredFacts:
    facts: Facts | Survey
    #: the number of requests to AWS
    calls: int
    #: for the requests of a fix
    session: AwsSession


def require_argument(value: str | None, name: str) -> str:
    """Return the argument. Raises InputError where it is missing: only --from replaces it."""
    if not value:
        raise InputError(f"{name} is missing", hint=f"give {name}, or saved facts with --from FILE")
    return value


# -- shapes ------------------------------------------------------------------------------------


def load_plan(file: str, flags: dict[str, Any]) -> tuple[Pipeline, Plan]:
    """Read a pipeline, or a plain list of commands, as `run --engine aws` does."""
    from batchyard import plan as planning
    from batchyard.cli import pipelines

    other_flags = ("limit_cpus", "limit_memory", "limit_gpus", "at_once", "workspace")
    source = pipelines.load_source(
        file, flags | dict.fromkeys(other_flags) | {"runner": "process", "variables": ()}
    )
    offer = source.offer
    if (offer.cpus, offer.memory_mib, offer.gpus) != (None, None, None):
        raise InputError(
            f"--cpus, --memory and --gpus are for a list of commands; {file} is a pipeline",
            hint="write the resources of each step in the file",
        )
    pipelines.print_warnings(source.pipeline)
    plan = planning.make(source.pipeline, only=flags["only"])
    return source.pipeline, planning.without_gpus(plan) if flags["no_gpu"] else plan


def shape_from_flags(flags: dict[str, Any]) -> Job | None:
    """Return the shape that --cpus, --memory and --gpus describe; None without these flags."""
    from batchyard.doctor.facts import Job

    cpus, memory_mib, gpus = flags["cpus"], flags["memory"], flags["gpus"]
    if cpus is None and memory_mib is None and gpus is None:
        return None
    return Job("", "SUBMITTED", vcpus=cpus or 1, memory_mib=memory_mib or 0, gpus=gpus or 0)


def shape_of_step(job: PlannedJob) -> Job:
    """Return the resources that a child of a step requests."""
    from batchyard.doctor.facts import Job

    return Job(
        "",
        "SUBMITTED",
        name=job.step,
        vcpus=job.resources.vcpus,
        memory_mib=job.resources.memory_mib,
        gpus=job.resources.gpus,
        size=job.size if job.is_array else 0,
        image=job.image or "",
        log_driver="awslogs",
        attempts=job.retry.attempts,
    )


def queues_with_shape(shape: Job | None, environment: Environment) -> dict[str, list[Job]]:
    """Return all queues of the environment, with the shape at the queues that it would use.

    Raises InputError where the environment has no queue for the shape.
    """
    kind = "gpu" if shape and shape.gpus else "cpu"
    shapes_by_queue: dict[str, list[Job]] = {}
    for name, queue in environment.queues.items():
        shapes = shapes_by_queue.setdefault(queue, [])
        if shape and name.startswith(kind) and not shapes:
            shapes.append(shape)
    if shape and not any(shapes_by_queue.values()):
        environment.queue(needs_gpu=bool(shape.gpus))  # raises InputError
    return shapes_by_queue


# -- AWS ---------------------------------------------------------------------------------------


def open_session(env: str | None, region: str | None, home: str | None) -> AwsSession:
    from batchyard.aws.environment_lookup import find_environment
    from batchyard.aws.session import AwsSession

    if env is None:
        return AwsSession(region)
    environment = find_environment(home_of(home), env)
    return AwsSession(environment.region, environment.profile)


def make_gatherer(session: AwsSession, *, is_place: bool = False) -> Gatherer:
    """``is_place``: for a queue or an environment, which may take more requests than a job."""
    from batchyard.doctor.gather.subjects import MAX_CALLS, MAX_CALLS_WITHOUT_JOB, Gatherer
    from batchyard.ec2_prices import load_prices

    max_calls = MAX_CALLS_WITHOUT_JOB if is_place else MAX_CALLS
    return Gatherer(session, lambda: int(time.time() * 1000), max_calls, load_prices())


def gather_survey(
    kind: str, name: str, shapes_by_queue: dict[str, list[Job]], environment: Environment
) -> GatheredFacts:
    """Gather the facts of several queues. ``kind`` and ``name`` are those of the subject."""
    from batchyard.aws.session import AwsSession
    from batchyard.doctor.facts import Place, Subject, Survey

    session = AwsSession(environment.region, environment.profile)
    places, calls = [], 0
    for queue, shapes in shapes_by_queue.items():
        gatherer = make_gatherer(session, is_place=True)
        places.append(Place(gatherer.queue(queue), tuple(shapes)))
        calls += gatherer.calls.count
    survey = Survey(Subject(kind, name, environment.region), tuple(places))
    return GatheredFacts(survey, calls, session)
