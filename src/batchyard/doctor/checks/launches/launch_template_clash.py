"""BY050: the launch template does not go with the instance types."""

from __future__ import annotations

from batchyard.doctor.checks.base import Check, Timing, Verdict
from batchyard.doctor.checks.launches import refusals
from batchyard.doctor.facts import Facts
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY050", Severity.ERROR, 68, "the launch template fits the instance types")


def check(facts: Facts, timing: Timing) -> Verdict:
    cause = "the launch template, placement group or tenancy does not go with the instance types"
    remedy = ("change what the message names in the launch template, then update the environment",)
    return refusals.find_refusals(facts, refusals.TEMPLATE, KIND, cause, remedy)


CHECK = Check(check, (KIND,))
