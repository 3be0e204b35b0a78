"""BY072: the command could not be executed."""

from __future__ import annotations

import re
import shlex

from batchyard.doctor.checks.failures.cause import Cause
from batchyard.doctor.facts import Ending, Job
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY072", Severity.ERROR, 92, "the command could be executed")
#: of a shell or of Docker: the command cannot be started, is not executable, is not found
_NOT_EXECUTED = (125, 126, 127)
#: how Docker and runc refuse to start a program: `exec: "x": executable file not found in $PATH`,
#: `exec: "./x": permission denied`, `exec /x: no such file or directory`
_REFUSED = re.compile(
    r"\bexec:? \\?\"?([^\s\":\\]+)\\?\"?: (?:stat [^:]+: )?"
    r"(?:executable file not found|permission denied|no such file or directory|is a directory)",
    re.IGNORECASE,
)


def _matches(ending: Ending) -> bool:
    return ending.exit_code in _NOT_EXECUTED or _REFUSED.search(ending.reason) is not None


def _remedy(job: Job, ending: Ending) -> tuple[str, ...]:
    refused = _REFUSED.search(ending.reason)
    program = shlex.quote(refused[1]) if refused else "PROGRAM"
    image = job.image or "IMAGE"
    return (
        f"docker run --rm --entrypoint sh {image} -c 'command -v {program}; ls -l {program}'"
        "   # is it there, and executable?",
    )


CAUSE = Cause(
    KIND,
    _matches,
    "the command could not be executed: not found, not executable, or no such shell",
    _remedy,
    is_in_log=True,
)
