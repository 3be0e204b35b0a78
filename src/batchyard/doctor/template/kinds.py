"""The kinds of findings about templates: BY201 to BY299."""

from __future__ import annotations

from batchyard.doctor.finding import Kind, Severity

LAUNCH_CONFIGURATION = Kind("BY201", Severity.ERROR, 85, "no launch configuration is used")
OPEN_SECURITY_GROUP = Kind("BY202", Severity.WARNING, 60, "no security group is open to the world")
ROLE_ALLOWS_EVERYTHING = Kind("BY203", Severity.WARNING, 60, "no role may do everything")
ROLE_INSTEAD_OF_PROFILE = Kind("BY204", Severity.ERROR, 88, "instanceRole is an instance profile")
DESIRED_VCPUS_SET = Kind("BY205", Severity.WARNING, 45, "desiredvCpus is left to AWS Batch")
LAUNCH_TEMPLATE_CHANGES_IGNORED = Kind(
    "BY206", Severity.WARNING, 40, "changes of the launch template reach the environment"
)
FIXED_NAME_WITH_REPLACEMENT = Kind(
    "BY207", Severity.WARNING, 50, "an environment that is replaced has no fixed name"
)
SPOT_FLEET = Kind("BY208", Severity.WARNING, 40, "no Spot Fleet is used")
SPOT_NEVER_BOUGHT = Kind("BY209", Severity.WARNING, 50, "a group that is meant to use Spot does")
TAGS_AS_LIST = Kind("BY210", Severity.ERROR, 70, "Batch tags are maps")
TERMINATION_PROTECTION_ON_ONE_SIDE = Kind(
    "BY211", Severity.ERROR, 60, "termination protection is set on both sides"
)
RETRY_RULE_REFUSED = Kind(
    "BY212", Severity.ERROR, 75, "evaluateOnExit uses patterns that AWS accepts"
)
MARKET_OPTIONS_IGNORED = Kind(
    "BY213", Severity.NOTE, 30, "no market options in a launch template where they are ignored"
)

ALL = (
    LAUNCH_CONFIGURATION,
    OPEN_SECURITY_GROUP,
    ROLE_ALLOWS_EVERYTHING,
    ROLE_INSTEAD_OF_PROFILE,
    DESIRED_VCPUS_SET,
    LAUNCH_TEMPLATE_CHANGES_IGNORED,
    FIXED_NAME_WITH_REPLACEMENT,
    SPOT_FLEET,
    SPOT_NEVER_BOUGHT,
    TAGS_AS_LIST,
    TERMINATION_PROTECTION_ON_ONE_SIDE,
    RETRY_RULE_REFUSED,
    MARKET_OPTIONS_IGNORED,
)
