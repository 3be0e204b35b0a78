"""`batchyard template`."""

from __future__ import annotations

import click

from batchyard.cli.options import example
from batchyard.cli.tables import table


@click.command(epilog=example("batchyard template", "batchyard template batch > batch.yaml"))
@click.argument("name", required=False)
def command(name: str | None) -> int:
    """Print a CloudFormation template of the package, to read, change or deploy it by hand.

    Without NAME, lists all templates in the order of deployment.
    """
    from batchyard.infra import catalogue

    if name is not None:
        click.echo(catalogue.load_template(name).text, nl=False)
        return 0
    rows = [
        (
            template.name,
            template.description.removeprefix(catalogue.MARK).strip().partition(". ")[0],
        )
        for template in catalogue.all_templates()
    ]
    click.echo("\n".join(table(("template", "what it creates"), rows)))
    return 0
