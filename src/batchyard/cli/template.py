"""`batchyard template`."""

from __future__ import annotations

import click

from batchyard.cli.options import example
from batchyard.cli.tables import table


@click.command(epilog=example("batchyard template", "batchyard template batch > batch.yaml"))
@click.argument("name", required=False)
def command(name: str | None) -> int:
    """Print a CloudFormation template of the package, to be read, changed, or deployed by hand.

    Without NAME: list them, each after those that it needs.
    """
    from batchyard.infra import catalogue

    if name is not None:
        click.echo(catalogue.template(name).text, nl=False)
        return 0
    rows = [
        (one.name, one.description.removeprefix(catalogue.MARK).strip().partition(". ")[0])
        for one in catalogue.everything()
    ]
    click.echo("\n".join(table(("template", "what it makes"), rows)))
    return 0
