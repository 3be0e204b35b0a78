"""BY046: the image is built for another architecture than the host's."""

from __future__ import annotations

from batchyard.doctor.checks.failures.cause import Cause, mentions
from batchyard.doctor.finding import Kind, Severity

KIND = Kind("BY046", Severity.ERROR, 80, "the image matches the host's architecture")
CAUSE = Cause(
    KIND,
    mentions(
        "exec format error", "no matching manifest", "does not match the detected host platform"
    ),
    "the image is built for another architecture than the host's",
    lambda job, _: (
        f"docker buildx build --platform linux/amd64 -t {job.image or 'IMAGE'} --push ."
        "   # or linux/arm64, as the hosts are",
    ),
)
