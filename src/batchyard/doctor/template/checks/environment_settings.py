"""The findings about settings of live compute environments and launch templates, in templates."""

from __future__ import annotations

from batchyard.doctor.checks.environments import best_fit_strategy, metadata_hop_limit
from batchyard.doctor.checks.launches import spot_bid_too_low
from batchyard.doctor.finding import Findings
from batchyard.doctor.template.checks.base import ENVIRONMENT, check_template, place_findings
from batchyard.doctor.template.compute_environments import find_managed
from batchyard.doctor.template.launch_templates import find_owners
from batchyard.doctor.template.resources import NOTHING, Template

_LAUNCH_TEMPLATE = "AWS::EC2::LaunchTemplate"


@check_template(
    best_fit_strategy.KIND,
    properties=(
        (ENVIRONMENT, "ComputeResources"),
        (ENVIRONMENT, "ComputeResources.Type"),
        (ENVIRONMENT, "ComputeResources.AllocationStrategy"),
    ),
)
def check_strategy(template: Template) -> Findings:
    for resource, environment in find_managed(template):
        yield from place_findings(template, resource, best_fit_strategy.examine(environment))


@check_template(
    spot_bid_too_low.KIND,
    properties=(
        (ENVIRONMENT, "ComputeResources"),
        (ENVIRONMENT, "ComputeResources.Type"),
        (ENVIRONMENT, "ComputeResources.BidPercentage"),
    ),
)
def check_bid(template: Template) -> Findings:
    for resource, environment in find_managed(template):
        yield from place_findings(template, resource, spot_bid_too_low.examine_bid(environment))


@check_template(
    metadata_hop_limit.KIND,
    properties=((_LAUNCH_TEMPLATE, "LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit"),),
)
def check_hop_limit(template: Template) -> Findings:
    owners = find_owners(template)
    for resource in template.of_type(_LAUNCH_TEMPLATE):
        if resource.name in owners:
            options = resource.get("LaunchTemplateData", "MetadataOptions")
            limit = template.number(options.get("HttpPutResponseHopLimit") or NOTHING)
            yield from place_findings(template, resource, metadata_hop_limit.examine(limit))
