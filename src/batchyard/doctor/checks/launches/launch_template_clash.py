"""BY050: the launch template does not go with the instance types."""

from __future__ import annotations

from batchyard.doctor.checks.launches import refusals
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY050", Severity.ERROR, 68, "the launch template fits the instance types")

check = refusals.check_refusals(
    KIND,
    refusals.TEMPLATE,
    "the launch template, placement group or tenancy does not go with the instance types",
    ("change what the message names in the launch template, then update the environment",),
)
