"""`batchyard doctor`: a group of commands, one a subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchyard.cli import doctoring
from batchyard.cli.doctoring import (
    Looked,
    all_option,
    aws_options,
    dwell_option,
    region_option,
    shape_options,
)
from batchyard.cli.options import env_option, example, home_of, json_option
from batchyard.errors import InputError, OperationalError

if TYPE_CHECKING:
    from batchyard.doctor.facts import Job
    from batchyard.environments import Environment


@click.group(
    epilog=example(
        "batchyard doctor job 4c5f4a1e-0b0a-4d3e-9c57-2f1f6f6b7a10",
        "batchyard doctor queue gpu --gpus 1 --memory 14GiB",
        "batchyard doctor pipeline pipeline.yaml --env lab",
        "batchyard doctor userdata user-data.sh",
        "batchyard doctor template stack.yaml",
        "batchyard doctor host --gpu-container nvidia/cuda:12.4.1-base-ubuntu22.04",
        "batchyard doctor judge facts.json",
        "batchyard doctor explain BY042",
    )
)
def command() -> None:
    """Say why a job is stuck, and whether a node is right: the cause, the evidence, what to do.

    Reads only, unless `--fix` is given and you say yes. Exit codes: 0 healthy, 1 findings, 2 could not look.
    """


@command.command(
    epilog=example(
        "batchyard doctor job 4c5f4a1e-0b0a-4d3e-9c57-2f1f6f6b7a10 --env lab",
        "batchyard doctor job 4c5f4a1e-0b0a-4d3e-9c57-2f1f6f6b7a10:17 --all",
        "batchyard doctor job --from facts.json",
    )
)
@click.argument("job_id", required=False)
@env_option
@region_option
@aws_options
def job(job_id: str | None, env: str | None, region: str | None, **flags: Any) -> int:
    """Say why a job does not start, or why it failed; of an array, its children by cause.

    Asks AWS at most 25 times, however large the array is.
    """

    def look() -> Looked:
        session = doctoring.session_of(env, region, flags["home"])
        asking = doctoring.gatherer(session)
        return Looked(asking.job(doctoring.given(job_id, "JOB_ID")), asking.asker.calls, session)

    return doctoring.examine(look, flags)


@command.command(
    epilog=example(
        "batchyard doctor queue gpu", "batchyard doctor queue gpu --cpus 4 --memory 14GiB --gpus 1"
    )
)
@click.argument("name", required=False)
@env_option
@region_option
@shape_options
@aws_options
def queue(name: str | None, env: str | None, region: str | None, **flags: Any) -> int:
    """Examine a job queue before anything is stuck in it: its environments, network, roles, types, quotas.

    With --cpus, --memory or --gpus: whether a step that asks for so much can run there, on which types and where.
    """

    def look() -> Looked:
        session = doctoring.session_of(env, region, flags["home"])
        asking = doctoring.gatherer(session, is_place=True)
        facts = asking.queue(doctoring.given(name, "NAME"), doctoring.shape(flags))
        return Looked(facts, asking.asker.calls, session)

    return doctoring.examine(look, flags)


@command.command(
    epilog=example("batchyard doctor env lab", "batchyard doctor env my-gpu-compute-environment")
)
@click.argument("name", required=False)
@region_option
@shape_options
@aws_options
def env(name: str | None, region: str | None, **flags: Any) -> int:
    """Examine an environment: all its queues. Or one compute environment of AWS Batch, by its name."""
    home = flags["home"]

    def look() -> Looked:
        from batchyard.doctor.gather.subjects import is_absent

        what, shape = doctoring.given(name, "NAME"), doctoring.shape(flags)
        ours = _of_the_file(home, what)
        if ours is None:
            session = doctoring.session_of(None, region, home)
            asking = doctoring.gatherer(session, is_place=True)
            facts = asking.environment(what, shape)
            ours = _deployed(home, what) if is_absent(facts) else None
            if ours is None:
                return Looked(facts, asking.asker.calls, session)
        return doctoring.surveyed("env", what, doctoring.queues_for(shape, ours), ours)

    return doctoring.examine(look, flags)


def _of_the_file(home: str | None, name: str) -> Environment | None:
    from batchyard import environments

    return environments.read(home_of(home) / environments.FILE_NAME).get(name)


def _deployed(home: str | None, name: str) -> Environment | None:
    """None where there is none, or nobody may know."""
    from batchyard.aws.environment_lookup import find_environment

    try:
        return find_environment(home_of(home), name)
    except (InputError, OperationalError):
        return None


@command.command(
    epilog=example(
        "batchyard doctor pipeline pipeline.yaml --env lab",
        "batchyard doctor pipeline pipeline.yaml --env lab --on-demand --set slices=128",
        "batchyard doctor pipeline commands.txt --env lab --array 8 --gpus 1 --memory 14GiB --image recon",
    )
)
@click.argument("file", type=click.Path(), required=False)
@env_option
@doctoring.run_options
@aws_options
def pipeline(file: str | None, env: str | None, **flags: Any) -> int:
    """Examine a whole pipeline against an environment, before it is submitted: each step at its queue.

    FILE is what `run` takes: a pipeline (.yaml, .yml or .json), or any other file with one shell command a line.
    """

    def look() -> Looked:
        from batchyard import engines
        from batchyard.aws.environment_lookup import find_environment
        from batchyard.engines.base import RunRequest
        from batchyard.folder import home_beside

        pipeline, plan = doctoring.planned(doctoring.given(file, "FILE"), flags)
        if env is None:
            raise InputError("which environment is it for?", hint="add --env NAME")
        home = home_beside(pipeline.folder, flags["home"])
        request = RunRequest(plan, pipeline, home, environment=env, on_demand=flags["on_demand"])
        queues = engines.load(engines.AWS_BATCH).prepare(request).queues
        by_queue: dict[str, list[Job]] = {}
        for job in plan.jobs:
            by_queue.setdefault(queues[job.step], []).append(doctoring.shape_of(job))
        environment = find_environment(home, env)
        title = f"{pipeline.name} in {env}"
        return doctoring.surveyed("pipeline", title, by_queue, environment)

    return doctoring.examine(look, flags)


@command.command(
    epilog=example(
        "batchyard doctor userdata user-data.txt", "batchyard doctor userdata - < boot.sh"
    )
)
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--for",
    "owner",
    type=click.Choice(["batch", "ecs"]),
    default="batch",
    show_default=True,
    help="Whose nodes it is for: AWS Batch has rules of its own.",
)
@all_option
@json_option
def userdata(file: str, owner: str, with_all: bool, as_json: bool) -> int:
    """Examine user data: what will deadlock at boot, or keep a node from joining.

    FILE is a script, cloud-config or MIME document, as it is or in base64.
    """
    from batchyard.doctor.userdata.examine import examine

    data, name = doctoring.content(file), doctoring.name_of(file)
    if not data.strip():
        raise InputError(
            f"{name} is empty: there is no user data to examine", hint="name the file that holds it"
        )
    return doctoring.answer(examine(data, name, owner), with_all, as_json)


@command.command(
    epilog=example(
        "batchyard doctor template stack.yaml",
        "terraform show -json plan | batchyard doctor template -",
    )
)
@click.argument("file", type=click.Path(allow_dash=True))
@all_option
@json_option
def template(file: str, with_all: bool, as_json: bool) -> int:
    """Examine a template, with the user data in it.

    FILE is a CloudFormation or SAM template, or what `terraform show -json` prints. Nested stacks whose templates lie
    beside it are examined with it.
    """
    from batchyard.doctor.template.examine import examine

    beside = None if file == "-" else doctoring.beside
    return doctoring.answer(
        examine(doctoring.content(file), doctoring.name_of(file), beside), with_all, as_json
    )


@command.command(epilog=example("batchyard doctor host", "batchyard doctor host --save host.json"))
@click.option(
    "--gpu-container",
    metavar="IMAGE",
    default="",
    help="Also run nvidia-smi in a container of this image.",
)
@click.option(
    "--save", metavar="FILE", help="Keep the facts in a file, secrets and account ids masked."
)
@click.option(
    "--from", "source", metavar="FILE", help="Judge facts that were saved, instead of this machine."
)
@all_option
@json_option
def host(
    gpu_container: str, save: str | None, source: str | None, with_all: bool, as_json: bool
) -> int:
    """Examine this machine: driver, Docker, ECS agent, boot, disk, clock, metadata service."""
    from batchyard.doctor.host.facts import HostFacts
    from batchyard.doctor.host.gather import gather
    from batchyard.doctor.host.judge import judge as judge_host
    from batchyard.doctor.host.machine import ThisMachine

    if source:
        found = doctoring.saved_facts(source)
        if not isinstance(found, HostFacts):
            raise InputError(
                f"{source} holds no facts of a host",
                hint=f"`batchyard doctor judge {source}` reads it",
            )
    else:
        found = gather(ThisMachine(), gpu_container)
    code = doctoring.answer(judge_host(found), with_all, as_json)
    if save:
        doctoring.keep(found, save)
    return code


@command.command(
    epilog=example(
        "batchyard doctor judge facts.json --all", "batchyard doctor judge facts.json --dwell 5m"
    )
)
@click.argument("file", type=click.Path(allow_dash=True))
@dwell_option
@click.option(
    "--save", metavar="FILE", help="Keep the facts in another file, secrets and account ids masked."
)
@all_option
@json_option
def judge(file: str, dwell: int, save: str | None, with_all: bool, as_json: bool) -> int:
    """Judge facts that were saved: of a job, a queue, a compute environment or a host."""
    from batchyard.doctor.host.facts import HostFacts
    from batchyard.doctor.host.judge import judge as judge_host

    found = doctoring.saved_facts(file)
    report = judge_host(found) if isinstance(found, HostFacts) else doctoring.judged(found, dwell)
    code = doctoring.answer(report, with_all, as_json)
    if save:
        doctoring.keep(found, save)
    return code


@command.command(epilog=example("batchyard doctor explain BY042"))
@click.argument("finding", required=False)
def explain(finding: str | None) -> int:
    """Print the page of a finding: what it means, how to see it, what to do.

    Without FINDING: all that the doctor knows, a line each: what is right when it is not found.
    """
    from batchyard.doctor.kinds import BY_ID
    from batchyard.doctor.pages import page_of

    if finding is None:
        lines = [f"{kind.id} {kind.severity:7} {kind.title}" for kind in BY_ID.values()]
        click.echo("\n".join(["finding, severity, what is right when it is not found", *lines]))
    else:
        click.echo(page_of(finding).rstrip())
    return 0
