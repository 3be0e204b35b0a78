"""BY209: an Auto Scaling group names a Spot strategy but never buys Spot instances."""

from __future__ import annotations

from batchyard.doctor.finding import Finding, Findings, Kind, Severity
from batchyard.doctor.template.checks.base import check_template
from batchyard.doctor.template.resources import Template

KIND = Kind("BY209", Severity.WARNING, 50, "a group that is meant to use Spot does")

_SPOT_KEYS = ("SpotAllocationStrategy", "SpotMaxPrice", "SpotInstancePools")


@check_template(KIND)
def check(template: Template) -> Findings:
    for resource in template.of_type("AWS::AutoScaling::AutoScalingGroup"):
        distribution = resource.get("MixedInstancesPolicy", "InstancesDistribution")
        share = distribution.get("OnDemandPercentageAboveBaseCapacity")
        # A parameter here is a choice for whoever creates the stack.
        is_all_on_demand = share is None or share.text == "100"
        if not is_all_on_demand or not any(map(distribution.get, _SPOT_KEYS)):
            continue
        default = "" if share else ", its default"
        yield Finding(
            KIND,
            "the group names a Spot strategy and buys no Spot instance",
            (f"OnDemandPercentageAboveBaseCapacity is 100{default}",),
            ("OnDemandPercentageAboveBaseCapacity: 0",),
            template.place(resource, distribution),
        )
