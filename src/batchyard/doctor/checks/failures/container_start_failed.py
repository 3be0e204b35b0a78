"""BY066: Docker could not start the container."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY066", Severity.ERROR, 93, "the container was started")
CAUSE = Cause(
    KIND,
    mentions(
        "cannotstartcontainer",
        "cannotcreatecontainer",
        "cannotinspectcontainer",
        "dockertimeouterror",
    ),
    "Docker could not start the container: "
    "the entrypoint, a missing nvidia runtime, or a host in trouble",
    lambda job, _: (
        f"batchyard doctor host --gpu-container {job.image or 'IMAGE'}   # on such a host",
    ),
)
