"""`batchyard submit`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from batchyard.cli.options import env_option, example, home_of, home_option, json_option, print_json
from batchyard.cli.render import colour_state
from batchyard.cli.tables import table
from batchyard.errors import InputError

_TERMINAL = ("SUCCEEDED", "FAILED")


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
    help="AWS region, if --env is not given (default: that of your profile).",
)
@click.option(
    "--watch", is_flag=True, help="Follow the jobs until they end; exit with 1 if a job failed."
)
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
    from batchyard.aws.batch import Batch, shape_problems
    from batchyard.aws.environment_lookup import find_environment
    from batchyard.aws.session import AwsSession

    if env and region:
        raise InputError(
            "--region goes without --env, which has a region of its own",
            hint="leave one of them out",
        )
    requests = submissions.parse(_text_of(file), "stdin" if file == "-" else file)
    where = find_environment(home_of(home), env) if env else None
    batch = Batch(AwsSession(where.region, where.profile) if where else AwsSession(region))
    resources = submissions.AwsResources(
        queues=batch.queues(queues) if (queues := submissions.queues_of(requests)) else {},
        definitions=batch.usable_definitions(submissions.definitions_of(requests)),
        jobs=batch.describe(submissions.dependencies_of(requests)),
        missing_consumables=batch.missing_consumables(submissions.consumables_of(requests)),
    )
    problems = submissions.find_problems(requests, resources, shape_problems)
    order = submissions.order(requests, problems)
    if problems:
        raise InputError(f"{file}: nothing was submitted:\n  " + "\n  ".join(problems))
    ids: dict[str, str] = {}
    submitted = []
    for request in (requests[number] for number in order):
        name = request["jobName"]
        # Names are the user's, and may have been used before: if an answer is lost, the job is the one that is new.
        others = batch.find_by_name(request["jobQueue"], name)
        job_id = ids[name] = batch.submit(submissions.replace_references(request, ids), others)
        submitted.append((name, job_id))
        if not as_json:
            click.echo(f"{request['jobName']}\t{job_id}")
    states = _watched(batch, [job_id for _, job_id in submitted]) if watch else {}
    if as_json:
        print_json(
            [
                {"jobName": n, "jobId": i, **({"status": states[i]} if watch else {})}
                for n, i in submitted
            ]
        )
    elif watch:
        rows = [(name, job_id, colour_state(states[job_id])) for name, job_id in submitted]
        click.echo("\n".join(table(("job", "id", "state"), rows)), err=True)
    return 1 if "FAILED" in states.values() else 0


def _text_of(file: str) -> str:
    from batchyard.pipeline_file.mistakes import Mistakes
    from batchyard.pipeline_file.text_files import unreadable_problem

    if not file:
        raise InputError("the name of FILE is empty", hint="name a file, or - for stdin")
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as exc:
        raise InputError(
            f"{file} is no UTF-8 text: byte {exc.start + 1} is none", hint="save it as UTF-8"
        ) from exc
    except OSError as exc:
        problem, suggestion = unreadable_problem(Path(file), exc, Mistakes(file))
        raise InputError(f"{file}: {problem}", hint=suggestion) from None


def _watched(batch: object, ids: list[str]) -> dict[str, str]:
    """Job -> its final state."""
    from batchyard.aws.batch import Batch
    from batchyard.engines.base import Backoff, Polling

    assert isinstance(batch, Batch)
    backoff = Backoff(Polling(1.0, 30.0))
    while True:
        states = {job_id: job["status"] for job_id, job in batch.describe(ids).items()}
        if all(states.get(job_id) in _TERMINAL for job_id in ids):
            return states
        time.sleep(backoff.next_delay_s(sorted(states.items())))
