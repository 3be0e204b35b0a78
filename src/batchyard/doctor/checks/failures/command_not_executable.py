"""BY072: the command could not be executed."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY072", Severity.ERROR, 92, "the command could be executed")
#: of a shell or of Docker: the command cannot be started, is not executable, is not found
_NOT_EXECUTED = (125, 126, 127)
CAUSE = Cause(
    KIND,
    lambda ending: ending.exit_code in _NOT_EXECUTED,
    "the command could not be executed: not found, not executable, or no such shell",
    ("docker run --rm --entrypoint sh IMAGE -c 'command -v PROGRAM'",),
    is_in_log=True,
)
