"""`batchyard environments`."""

from __future__ import annotations

import click

from batchyard.cli.options import example, home_of, home_option, json_option, print_json
from batchyard.cli.render import table
from batchyard.errors import BatchyardError


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
    from batchyard.aws.door import Door
    from batchyard.infra import catalogue, deploying

    listed = [
        {"name": name, "source": "file", "region": one.region, "templates": [], "missing": []}
        for name, one in environments.read(home_of(home) / environments.FILE_NAME).items()
    ]
    aws = CloudFormation(Door(None))
    try:
        deployed = {} if local else deploying.deployed_environments(aws.exports())
    except BatchyardError as exc:
        if not listed:
            raise
        # Who brings an environment in the file may have nothing to do with stacks.
        click.echo(f"only those of the file: {exc.message}", err=True)
        deployed = {}
    for name, templates in deployed.items():
        lacking = [core for core in catalogue.CORE if core not in templates]
        listed.append(
            {"name": name, "source": "deployed", "region": aws.region, "templates": templates, "missing": lacking}
        )
    if as_json:
        print_json(listed)
        return 0
    if not listed:
        click.echo("there are none; `batchyard deploy --env NAME` makes one", err=True)
        return 0
    rows = [
        (
            str(one["name"]),
            str(one["source"]),
            str(one["region"]),
            ", ".join(one["templates"]) or "-",
            f"in part only: {', '.join(one['missing'])} missing" if one["missing"] else "",
        )
        for one in listed
    ]
    click.echo("\n".join(table(("environment", "from", "region", "templates", ""), rows)))
    return 0
