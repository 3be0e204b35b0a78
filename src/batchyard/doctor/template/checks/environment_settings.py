"""The findings about settings of live compute environments and launch templates, in templates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from batchyard.doctor.checks.environments import best_fit_strategy, metadata_hop_limit
from batchyard.doctor.checks.launches import spot_bid_too_low
from batchyard.doctor.facts import Environment
from batchyard.doctor.finding import Finding
from batchyard.doctor.template.checks.base import ENVIRONMENT, TemplateCheck
from batchyard.doctor.template.compute_environments import find_managed
from batchyard.doctor.template.launch_templates import find_owners
from batchyard.doctor.template.resources import Template

_LAUNCH_TEMPLATE = "AWS::EC2::LaunchTemplate"


def _check_strategy(template: Template) -> Iterator[Finding]:
    for resource, environment in find_managed(template):
        for finding in best_fit_strategy.examine(environment):
            yield replace(finding, place=template.place(resource))


def _check_bid(template: Template) -> Iterator[Finding]:
    for resource, environment in find_managed(template):
        for finding in spot_bid_too_low.examine_bid(environment):
            yield replace(finding, place=template.place(resource))


def _check_hop_limit(template: Template) -> Iterator[Finding]:
    owners = find_owners(template)
    for resource in template.of_type(_LAUNCH_TEMPLATE):
        if resource.name not in owners:
            continue
        options = resource.get("LaunchTemplateData", "MetadataOptions", "HttpPutResponseHopLimit")
        limit = template.number(options)
        for finding in metadata_hop_limit.examine(Environment(resource.name), limit):
            yield replace(finding, place=template.place(resource))


CHECKS = (
    TemplateCheck(
        (best_fit_strategy.KIND,),
        _check_strategy,
        (
            (ENVIRONMENT, "ComputeResources"),
            (ENVIRONMENT, "ComputeResources.Type"),
            (ENVIRONMENT, "ComputeResources.AllocationStrategy"),
        ),
    ),
    TemplateCheck(
        (spot_bid_too_low.KIND,),
        _check_bid,
        (
            (ENVIRONMENT, "ComputeResources"),
            (ENVIRONMENT, "ComputeResources.Type"),
            (ENVIRONMENT, "ComputeResources.BidPercentage"),
        ),
    ),
    TemplateCheck(
        (metadata_hop_limit.KIND,),
        _check_hop_limit,
        ((_LAUNCH_TEMPLATE, "LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit"),),
    ),
)
