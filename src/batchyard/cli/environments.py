"""`batchyard environments`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchyard.cli.options import example, home_of, home_option, json_option, print_json
from batchyard.cli.tables import table
from batchyard.errors import BatchyardError

if TYPE_CHECKING:
    from batchyard.infra.listing import Deployed


@click.command(epilog=example("batchyard environments", "batchyard environments --json"))
@click.option("--local", is_flag=True, help="Only those of the file: AWS is not asked.")
@home_option
@json_option
def command(local: bool, home: str | None, as_json: bool) -> int:
    """List the environments that `--env` can name: those of .batchyard/environments.yaml, and those deployed here.

    Where both have a name, the file's is used.
    """
    from batchyard import environments
    from batchyard.aws.cloudformation import CloudFormation
    from batchyard.aws.session import AwsSession
    from batchyard.infra import listing

    in_file = environments.read(home_of(home) / environments.FILE_NAME)
    aws = CloudFormation(AwsSession(None))
    try:
        deployed = {} if local else listing.deployed_environments(aws.summaries())
    except BatchyardError as exc:
        if not in_file:
            raise
        # Who brings an environment in the file may have nothing to do with stacks.
        click.echo(f"only those of the file: {exc.message}", err=True)
        deployed = {}
    if as_json:
        print_json(
            [
                _entry(name, "file", one.region, listing.Deployed({}))
                for name, one in in_file.items()
            ]
            + [_entry(name, "deployed", aws.region, one) for name, one in deployed.items()]
        )
    elif in_file or deployed:
        rows = [(name, "file", one.region, "-", "") for name, one in in_file.items()]
        for name, found in deployed.items():
            templates = ", ".join(found.templates) or "-"
            rows.append((name, "deployed", aws.region, templates, listing.shortcoming(name, found)))
        click.echo("\n".join(table(("environment", "from", "region", "templates", ""), rows)))
    else:
        where = "in the file" if local else f"in {aws.region}"
        click.echo(f"there are none {where}; `batchyard deploy --env NAME` makes one", err=True)
    return 0


def _entry(name: str, source: str, region: str, found: Deployed) -> dict[str, Any]:
    is_file = source == "file"
    return {
        "name": name,
        "source": source,
        "region": region,
        "templates": found.templates,
        "missing": [] if is_file else found.missing,
        "unfinished": found.unfinished,
    }
