"""BY060: the command exited with a code other than 0."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause
from batchyard.doctor.facts import Ending
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY060", Severity.ERROR, 90, "the command exited with 0")
_SIGKILL_EXIT_CODE = 137


def _hint(ending: Ending) -> str:
    if ending.exit_code != _SIGKILL_EXIT_CODE:
        return ""
    return "SIGKILL is often the kernel's, for memory: batchyard doctor explain BY062"


CAUSE = Cause(
    KIND,
    lambda ending: ending.exit_code not in (None, 0),
    "the command itself failed",
    is_in_log=True,
    hint=_hint,
)
