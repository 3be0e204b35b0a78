"""`batchyard cost`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

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
    from batchyard.cost.run_cost import StepPrice

_HEADINGS = ("step", "used", "lost", "type", "share", "on-demand", "spot")
_NUMBERS = frozenset({1, 2, 4, 5, 6})
_SMALLEST_USD = 0.0001


@click.command(epilog=example("batchyard cost last", "batchyard cost last --json"))
@run_argument
@run_env_option
@home_option
@json_option
def command(run: str, env: str | None, home: str | None, as_json: bool) -> None:
    """Show what a run would have cost on EC2 instances that fit its steps.

    RUN is an id, the beginning of an id, or `last`. The time of all attempts that have ended counts
    with the share of the instance that a child uses, on the type on which a child is cheapest.
    `lost` is time of failed attempts. This is no bill: boot and idle time are not counted.
    """
    from batchyard.cost.market import AwsMarket
    from batchyard.cost.run_cost import NOT_COUNTED, cost_of_run

    cost = cost_of_run(find_run(home, run, env), AwsMarket())
    if as_json:
        print_json(cost.to_json())
        return
    rows = [_to_row(step) for step in cost.steps]
    totals = [_dollars(cost.total_usd(is_spot=is_spot)) for is_spot in (False, True)]
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
        _dollars(step.usd(seconds, is_spot=False)),
        _dollars(step.usd(seconds, is_spot=True)),
    )


def _dollars(usd: float | None) -> str:
    if usd is None:
        return "?"
    return f"${usd:.4f}" if usd >= _SMALLEST_USD or not usd else f"<${_SMALLEST_USD}"
