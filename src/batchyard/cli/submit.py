"""`batchyard submit`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchyard.cli.options import env_option, example, home_of, home_option, json_option, print_json
from batchyard.cli.render import colour_state
from batchyard.cli.tables import table
from batchyard.errors import InputError

if TYPE_CHECKING:
    from batchyard.aws.session import AwsSession


@click.command(
    epilog=example(
        "batchyard submit jobs.json --env lab",
        "batchyard submit jobs.json --watch",
        "jq '.jobs[0]' jobs.json | batchyard submit - --env lab",
    )
)
@click.argument("file", type=click.Path(allow_dash=True))
@env_option
@click.option(
    "--region",
    metavar="NAME",
    help="AWS region, if --env is not given (default: the region of your AWS profile).",
)
@click.option("--watch", is_flag=True, help="Wait until the jobs end; exit with 1 if a job failed.")
@home_option
@json_option
def command(
    file: str, env: str | None, region: str | None, watch: bool, home: str | None, as_json: bool
) -> int:
    """Submit jobs to AWS Batch from plain JSON, in the form of SubmitJob requests.

    FILE contains one request, or {"jobs": [...]}. `dependsOn` may name another job of the file as
    ${jobName}. All requests are checked before the first one is submitted. Prints the name and id
    of each job.
    """
    from batchyard import submissions
    from batchyard.aws.batch import Batch
    from batchyard.aws.submit_job import JobSubmitter

    if env and region:
        raise InputError(
            "--region and --env exclude each other: an environment has its own region",
            hint="leave one of them out",
        )
    requests = submissions.parse(_read_text(file), "stdin" if file == "-" else file)
    session = _open_session(home, env, region)
    batch, submitter = Batch(session), JobSubmitter(session)
    jobs = []
    ordered_requests = submissions.check(requests, batch, file, submitter.lag_s)
    for name, job_id in submissions.submit(ordered_requests, batch, submitter):
        jobs.append((name, job_id))
        if not as_json:
            click.echo(f"{name}\t{job_id}")
    job_ids = [job_id for _, job_id in jobs]
    states = submissions.wait_until_over(job_ids, batch, _say) if watch else {}
    _print_jobs(jobs, states, as_json)
    return 1 if "FAILED" in states.values() else 0


def _say(text: str) -> None:
    click.echo(text, err=True)


def _print_jobs(jobs: Sequence[tuple[str, str]], states: Mapping[str, str], as_json: bool) -> None:
    """Print the jobs as JSON, or a table of their final states if these are known."""
    if as_json:
        print_json([_to_json(name, job_id, states.get(job_id)) for name, job_id in jobs])
    elif states:
        rows = [(name, job_id, colour_state(states[job_id])) for name, job_id in jobs]
        click.echo("\n".join(table(("job", "id", "state"), rows)), err=True)


def _open_session(home: str | None, env: str | None, region: str | None) -> AwsSession:
    from batchyard.aws.environment_lookup import find_environment
    from batchyard.aws.session import AwsSession

    if not env:
        return AwsSession(region)
    environment = find_environment(home_of(home), env)
    return AwsSession(environment.region, environment.profile)


def _to_json(name: str, job_id: str, state: str | None) -> dict[str, str]:
    job = {"jobName": name, "jobId": job_id}
    return job if state is None else {**job, "status": state}


def _read_text(file: str) -> str:
    from batchyard.pipeline_file.mistakes import Mistakes
    from batchyard.pipeline_file.text_files import unreadable_problem

    if not file:
        raise InputError("the name of FILE is empty", hint="name a file, or - for stdin")
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as exc:
        raise InputError(
            f"{file} is not UTF-8 text: byte {exc.start + 1} is invalid", hint="save it as UTF-8"
        ) from exc
    except OSError as exc:
        problem, suggestion = unreadable_problem(Path(file), exc, Mistakes(file))
        raise InputError(f"{file}: {problem}", hint=suggestion) from None
