"""BY061: the host could not pull the image."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY061", Severity.ERROR, 95, "the image was pulled")
CAUSE = Cause(
    KIND,
    mentions(
        "cannotpullcontainer", "cannotpullecrcontainer", "pull access denied", "manifest unknown"
    ),
    "the image could not be pulled: check its name, its tag, the permissions and the network",
    (
        "aws ecr describe-images --repository-name NAME --image-ids imageTag=TAG",
        "batchyard doctor queue QUEUE   # routes and endpoints of its subnets",
    ),
)
