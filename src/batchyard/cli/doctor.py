"""`batchyard doctor`: a group of commands, one for each subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchyard.cli import doctor_gathering as gathering
from batchyard.cli import doctor_reports as reports
from batchyard.cli.doctor_gathering import GatheredFacts, require_argument
from batchyard.cli.doctor_options import (
    all_option,
    aws_options,
    dwell_option,
    region_option,
    run_options,
    sarif_option,
    shape_options,
)
from batchyard.cli.options import account_options, env_option, example, home_of, json_option
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
    """Find out why a job is stuck, and check queues, templates and nodes.

    Each finding names the cause, the evidence and the remedy. The commands only read, unless
    `--fix` is given and you confirm. Exit codes: 0 healthy, 1 findings, 2 could not examine.
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
    """Find out why a job does not start, or why it failed.

    The failed children of an array are grouped by cause. Sends at most 25 requests to AWS,
    however large the array is.
    """

    def gather() -> GatheredFacts:
        session = gathering.open_session(env, region, flags["home"])
        gatherer = gathering.make_gatherer(session)
        facts = gatherer.job(require_argument(job_id, "JOB_ID"))
        return GatheredFacts(facts, gatherer.calls.count, session)

    return reports.examine(gather, flags)


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
    """Examine a job queue: its compute environments, network, roles, types and quotas.

    With --cpus, --memory or --gpus: check also whether a step with these resources can run in
    the queue, on which instance types and in which zones.
    """

    def gather() -> GatheredFacts:
        session = gathering.open_session(env, region, flags["home"])
        gatherer = gathering.make_gatherer(session, is_place=True)
        shape = gathering.shape_from_flags(flags)
        facts = gatherer.queue(require_argument(name, "NAME"), shape)
        return GatheredFacts(facts, gatherer.calls.count, session)

    return reports.examine(gather, flags)


@command.command(
    epilog=example("batchyard doctor env lab", "batchyard doctor env my-gpu-compute-environment")
)
@click.argument("name", required=False)
@account_options
@region_option
@shape_options
@aws_options
def env(name: str | None, region: str | None, **flags: Any) -> int:
    """Examine all queues of an environment, or one compute environment of AWS Batch."""
    home = flags["home"]

    def gather() -> GatheredFacts:
        from batchyard.doctor.gather.subjects import is_absent

        subject, shape = require_argument(name, "NAME"), gathering.shape_from_flags(flags)
        environment = _configured_environment(home, subject)
        if environment is None:
            session = gathering.open_session(None, region, home)
            gatherer = gathering.make_gatherer(session, is_place=True)
            facts = gatherer.environment(subject, shape)
            environment = _deployed_environment(home, subject) if is_absent(facts) else None
            if environment is None:
                return GatheredFacts(facts, gatherer.calls.count, session)
        shapes_by_queue = gathering.queues_with_shape(shape, environment)
        return gathering.gather_survey("env", subject, shapes_by_queue, environment)

    return reports.examine(gather, flags)


def _configured_environment(home: str | None, name: str) -> Environment | None:
    """Return the environment of that name in environments.yaml; None where it is not there."""
    from batchyard import environments
    from batchyard.folder import environments_file

    return environments.read(environments_file(home_of(home))).get(name)


def _deployed_environment(home: str | None, name: str) -> Environment | None:
    """Return the environment of deployed stacks; None without it, or without permission."""
    from batchyard.aws.environment_lookup import find_environment

    try:
        return find_environment(home_of(home), name)
    except (InputError, OperationalError):
        return None


@command.command(
    epilog=example(
        "batchyard doctor pipeline pipeline.yaml --env lab",
        "batchyard doctor pipeline pipeline.yaml --env lab --on-demand --set slices=128",
        "batchyard doctor pipeline commands.txt --env lab --array 8 --gpus 1 --memory 14GiB "
        "--image recon",
    )
)
@click.argument("file", type=click.Path(), required=False)
@env_option
@run_options
@aws_options
def pipeline(file: str | None, env: str | None, **flags: Any) -> int:
    """Examine every step of a pipeline at the queue that it would use, before you submit it.

    FILE is what `run` takes: a pipeline (.yaml, .yml or .json), or any other file with one shell
    command a line.
    """

    def gather() -> GatheredFacts:
        from batchyard import engines
        from batchyard.aws.environment_lookup import find_environment
        from batchyard.engines.base import RunRequest
        from batchyard.folder import home_beside

        pipeline, plan = gathering.load_plan(require_argument(file, "FILE"), flags)
        if env is None:
            raise InputError("the environment is missing", hint="add --env NAME")
        home = home_beside(pipeline.folder, flags["home"])
        request = RunRequest(
            plan,
            pipeline,
            home,
            environment=env,
            on_demand=flags["on_demand"],
            refuses_misfits=False,
        )
        queues = engines.load(engines.AWS_BATCH).prepare(request).queues
        shapes_by_queue: dict[str, list[Job]] = {}
        for job in plan.jobs:
            shapes = shapes_by_queue.setdefault(queues[job.step], [])
            shapes.append(gathering.shape_of_step(job))
        environment = find_environment(home, env)
        subject = f"{pipeline.name} in {env}"
        return gathering.gather_survey("pipeline", subject, shapes_by_queue, environment)

    return reports.examine(gather, flags)


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
    help="Service that launches the nodes: AWS Batch has rules that ECS does not have.",
)
@all_option
@sarif_option
@json_option
def userdata(file: str, owner: str, with_all: bool, as_sarif: bool, as_json: bool) -> int:
    """Examine user data: find what deadlocks at boot or keeps a node from its cluster.

    FILE is a script, a cloud-config or a MIME document, plain or in base64.
    """
    from batchyard.doctor.userdata.examine import examine

    data, name = reports.read_input(file), reports.show_name(file)
    if not data.strip():
        raise InputError(
            f"{name} is empty: there is no user data to examine",
            hint="name the file that holds the user data",
        )
    report = examine(data, name, owner)
    if as_sarif:
        return reports.print_sarif(report, as_json)
    return reports.print_report(report, with_all, as_json)


@command.command(
    epilog=example(
        "batchyard doctor template stack.yaml",
        "batchyard doctor template stack.yaml --sarif > doctor.sarif",
        "terraform show -json plan | batchyard doctor template -",
    )
)
@click.argument("file", type=click.Path(allow_dash=True))
@all_option
@sarif_option
@json_option
def template(file: str, with_all: bool, as_sarif: bool, as_json: bool) -> int:
    """Examine a template and the user data in it.

    FILE is a CloudFormation or SAM template, or the output of `terraform show -json`. Nested
    stacks are examined, too, if their templates are files beside it.
    """
    from batchyard.doctor.template.examine import examine

    read_nested = None if file == "-" else reports.read_nested_template
    report = examine(reports.read_input(file), reports.show_name(file), read_nested)
    if as_sarif:
        return reports.print_sarif(report, as_json)
    return reports.print_report(report, with_all, as_json)


@command.command(epilog=example("batchyard doctor host", "batchyard doctor host --save host.json"))
@click.option(
    "--gpu-container",
    metavar="IMAGE",
    default="",
    help="Run nvidia-smi in a container of this image, too.",
)
@click.option(
    "--save", metavar="FILE", help="Write the facts to a file, with secrets and account ids masked."
)
@click.option(
    "--from",
    "source",
    metavar="FILE",
    help="Examine facts from a file that --save wrote, instead of this machine.",
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

    facts = reports.load_facts(source) if source else gather(ThisMachine(), gpu_container)
    if not isinstance(facts, HostFacts):
        raise InputError(
            f"{source} holds no facts of a host",
            hint=f"`batchyard doctor judge {source}` reads it",
        )
    exit_code = reports.print_report(judge_host(facts), with_all, as_json)
    if save:
        reports.save_facts(facts, save)
    return exit_code


@command.command(
    epilog=example(
        "batchyard doctor judge facts.json --all", "batchyard doctor judge facts.json --dwell 5m"
    )
)
@click.argument("file", type=click.Path(allow_dash=True))
@dwell_option
@click.option(
    "--save",
    metavar="FILE",
    help="Write the facts to another file, with secrets and account ids masked.",
)
@all_option
@json_option
def judge(file: str, dwell: int, save: str | None, with_all: bool, as_json: bool) -> int:
    """Examine saved facts of a job, a queue, a compute environment, a pipeline or a host."""
    from batchyard.doctor.host.facts import HostFacts
    from batchyard.doctor.host.judge import judge as judge_host

    facts = reports.load_facts(file)
    if isinstance(facts, HostFacts):
        report = judge_host(facts)
    else:
        report = reports.judge_facts(facts, dwell)
    exit_code = reports.print_report(report, with_all, as_json)
    if save:
        reports.save_facts(facts, save)
    return exit_code


@command.command(epilog=example("batchyard doctor explain BY042"))
@click.argument("finding", required=False)
def explain(finding: str | None) -> int:
    """Print the page of a finding: its meaning, how to see it, what to do.

    Without FINDING: list all findings with what is true when the check passes.
    """
    from batchyard.doctor.kinds import BY_ID
    from batchyard.doctor.pages import read_page

    if finding is None:
        lines = [f"{kind.id} {kind.severity:7} {kind.title}" for kind in BY_ID.values()]
        click.echo("\n".join(["finding, severity, what is true when the check passes", *lines]))
    else:
        click.echo(read_page(finding).rstrip())
    return 0
