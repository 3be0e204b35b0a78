"""`batchyard prices`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchyard.batch.jobs import Resources
from batchyard.cli.options import account_options, example, json_option, memory, pairs, print_json
from batchyard.cli.pipelines import set_option
from batchyard.cli.tables import table
from batchyard.ec2_types import ARM, X86
from batchyard.errors import InputError
from batchyard.units import format_memory

if TYPE_CHECKING:
    from batchyard.cost.offers import Offer

_HEADINGS = ("type", "vCPUs", "memory", "GPUs", "on-demand", "spot", "zone", "saving", "GPU-hour")
_NUMBERS = frozenset({1, 2, 4, 5, 7, 8})
_UNKNOWN = "?"


@click.command(
    epilog=example(
        "batchyard prices --gpus 1 --cpus 4 --memory 14GiB",
        "batchyard prices --step pipeline.yaml:train --region eu-west-1",
        "batchyard prices --gpus 1 --zones --json",
    )
)
@click.option(
    "--step",
    "place",
    metavar="FILE:STEP",
    help="Price what a child of this step requests. STEP may be left out if there is only one.",
)
@set_option
@click.option("--cpus", type=click.IntRange(1), metavar="N", help="vCPUs (default: 1).")
@click.option(
    "--memory", callback=memory, metavar="AMOUNT", help="Memory, like 16GiB (default: 512MiB)."
)
@click.option("--gpus", type=click.IntRange(0), metavar="N", help="GPUs (default: 0).")
@click.option(
    "--architecture",
    type=click.Choice([X86, ARM]),
    default=X86,
    show_default=True,
    help="Processors that the step's image is built for.",
)
@click.option("--zones", is_flag=True, help="List the spot price of every zone.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="Largest number of instance types.",
)
@account_options
@json_option
def command(
    place: str | None,
    settings: tuple[str, ...],
    cpus: int | None,
    memory: int | None,
    gpus: int | None,
    architecture: str,
    zones: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List the instance types that can run a step, cheapest first.

    Give a step, or --cpus, --memory and --gpus. Prices are dollars per hour of Linux instances,
    and the last column is the lowest price of one GPU. AWS is asked; where it does not answer, a
    dated list in the package is used. The last lines say where the prices come from.
    """
    from batchyard.cost import market

    if place is not None and (cpus, memory, gpus) != (None, None, None):
        raise InputError(
            "--step excludes --cpus, --memory and --gpus", hint="give a step, or the amounts"
        )
    if place is None:
        needed = Resources(cpus or 1, memory or 512, gpus or 0)
    else:
        needed = _read_step(place, settings)
    offers = market.price_types(needed, market.AwsMarket(), architecture=architecture, limit=limit)
    if as_json:
        print_json(offers.to_json())
        return
    rows = [row for offer in offers.offers for row in _to_rows(offer, zones)]
    click.echo("\n".join(table(_HEADINGS, rows, _NUMBERS)))
    if offers.left_out:
        click.echo(f"{offers.left_out} more types are not cheaper; --limit N shows them")
    for source in offers.sources:
        click.echo(source)


def _read_step(place: str, settings: tuple[str, ...]) -> Resources:
    from batchyard.api import Pipeline
    from batchyard.cost.offers import resources_of_step

    file, colon, step = place.rpartition(":")
    pipeline = Pipeline.load(Path(file if colon else place), pairs(settings))
    return resources_of_step(pipeline.model, step if colon else None)


def _to_rows(offer: Offer, zones: bool) -> list[tuple[str, ...]]:
    listed = offer.type
    gpus = f"{listed.gpus} x {listed.gpu} {format_memory(listed.gpu_memory_mib)}"
    known_zones = list(offer.spot_usd_h) if zones else [offer.cheapest_zone or ""]
    first, *other_zones = sorted(known_zones, key=lambda zone: offer.spot_usd_h.get(zone, 0.0)) or [
        ""
    ]
    row = (
        listed.name,
        str(listed.vcpus),
        format_memory(listed.memory_mib),
        gpus if listed.gpus else "-",
        _dollars(offer.on_demand_usd_h),
        _dollars(offer.spot_usd_h.get(first)),
        first or "-",
        _UNKNOWN if offer.saving is None else f"{offer.saving:.0%}",
        _dollars(offer.usd_gpu_h) if listed.gpus else "-",
    )
    return [
        row,
        *(("", "", "", "", "", _dollars(offer.spot_usd_h[z]), z, "", "") for z in other_zones),
    ]


def _dollars(usd_h: float | None) -> str:
    return _UNKNOWN if usd_h is None else f"{usd_h:.4f}"
