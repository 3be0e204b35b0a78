"""`batchyard environments`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchyard.cli.options import (
    account_options,
    example,
    home_of,
    home_option,
    json_option,
    print_json,
)
from batchyard.cli.tables import table
from batchyard.errors import BatchyardError
from batchyard.folder import environments_file

if TYPE_CHECKING:
    from batchyard.infra.listing import DeployedEnvironment


@click.command(epilog=example("batchyard environments", "batchyard environments --json"))
@click.option(
    "--local", is_flag=True, help="List only the environments of the file, without calls to AWS."
)
@account_options
@home_option
@json_option
def command(local: bool, home: str | None, as_json: bool) -> int:
    """List the environments that `--env` accepts.

    These are the environments in .batchyard/environments.yaml, and those deployed in the region of
    your AWS profile. If a name is in both, the environment in the file is used.
    """
    from batchyard import environments
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.session import AwsSession
    from batchyard.infra import listing

    in_file = environments.read(environments_file(home_of(home)))
    aws = CloudFormation(AwsSession(None))
    try:
        deployed = {} if local else listing.find_environments(aws.summaries())
    except BatchyardError as exc:
        if not in_file:
            raise
        # Users with an environment in the file may not use stacks at all.
        click.echo(f"only the environments in the file are listed: {exc.message}", err=True)
        deployed = {}
    if as_json:
        print_json(
            [
                _to_json(name, "file", environment.region, listing.DeployedEnvironment({}))
                for name, environment in in_file.items()
            ]
            + [
                _to_json(name, "deployed", aws.region, environment)
                for name, environment in deployed.items()
            ]
        )
        return 0
    rows = [(name, "file", environment.region, "-", "") for name, environment in in_file.items()]
    rows += [_to_row(name, aws.region, environment) for name, environment in deployed.items()]
    if rows:
        click.echo("\n".join(table(("environment", "from", "region", "templates", ""), rows)))
    else:
        place = "in the file" if local else f"in {aws.region}"
        click.echo(
            f"there are no environments {place}; `batchyard deploy --env NAME` creates one",
            err=True,
        )
    return 0


def _to_row(
    name: str, region: str, environment: DeployedEnvironment
) -> tuple[str, str, str, str, str]:
    from batchyard.infra import listing

    templates = ", ".join(environment.templates) or "-"
    problem = listing.describe_problem(name, environment)
    return (name, "deployed", region, templates, problem)


def _to_json(
    name: str, source: str, region: str, environment: DeployedEnvironment
) -> dict[str, Any]:
    is_file = source == "file"
    return {
        "name": name,
        "source": source,
        "region": region,
        "templates": environment.templates,
        "missing": [] if is_file else environment.missing,
        "unfinished": environment.unfinished,
    }
