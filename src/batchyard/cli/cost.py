"""`batchyard cost`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchyard.cli import render_bill
from batchyard.cli.options import (
    example,
    find_run,
    home_option,
    json_option,
    print_json,
    run_argument,
    run_env_option,
)
from batchyard.cli.tables import table
from batchyard.units import format_duration

if TYPE_CHECKING:
    from batchyard.cost.run_cost import RunCost, StepPrice

_HEADINGS = ("step", "used", "lost", "type", "share", "on-demand", "spot")
_NUMBERS = frozenset({1, 2, 4, 5, 6})


@click.command(epilog=example("batchyard cost last", "batchyard cost last --json"))
@run_argument
@run_env_option
@home_option
@json_option
def command(run: str, env: str | None, home: str | None, as_json: bool) -> None:
    """Show what a run has cost, also while it goes on.

    RUN is an id, the beginning of an id, or `last`. Of a run on AWS: what its hosts cost at the
    price of their time, used by attempts that counted, lost by others, or idle; by step, with what
    spot has saved. A run on this machine costs nothing: what its attempts would have cost on the
    instance type on which a child is cheapest.
    """
    from batchyard.cost.run_bill import RunBill, cost_of_run

    cost = cost_of_run(find_run(home, run, env))
    if as_json:
        print_json(cost.to_json())
    elif isinstance(cost, RunBill):
        click.echo("\n".join(render_bill.bill_lines(cost)))
    else:
        _print_assumed(cost)


def _print_assumed(cost: RunCost) -> None:
    from batchyard.cost.run_cost import NOT_COUNTED

    first = "this run has cost nothing; on EC2 it would have cost:"
    if not cost.is_free:
        first = "the hosts of the cluster have other users, too; alone, this run would have cost:"
    click.echo(first)
    rows = [_to_row(step) for step in cost.steps]
    totals = [
        render_bill.show_dollars(cost.total_usd(is_spot=is_spot)) for is_spot in (False, True)
    ]
    click.echo("\n".join(table(_HEADINGS, [*rows, ("all", "", "", "", "", *totals)], _NUMBERS)))
    for line in (*cost.sources, NOT_COUNTED):
        click.echo(line)


def _to_row(step: StepPrice) -> tuple[str, ...]:
    use = step.use
    seconds = use.used_s + use.lost_s
    return (
        use.step,
        format_duration(use.used_s),
        format_duration(use.lost_s),
        step.offer.type.name if step.offer else "?",
        f"{step.share:.0%}" if step.offer else "?",
        render_bill.show_dollars(step.usd(seconds, is_spot=False)),
        render_bill.show_dollars(step.usd(seconds, is_spot=True)),
    )
