"""All checks of a host, in the order of their ids.

They are those of the files in this package: docs/how-to/add-a-finding.md.
"""

from __future__ import annotations

from batchyard.doctor.check_files import find_checks
from batchyard.doctor.host.checks.base import HostCheck

CHECKS = tuple(
    sorted(find_checks("batchyard.doctor.host.checks", HostCheck), key=lambda check: check.kind.id)
)
