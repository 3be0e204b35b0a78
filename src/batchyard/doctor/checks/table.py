"""All checks of jobs, queues and compute environments, in the order of their ids.

They are those of the files in this package: docs/how-to/add-a-finding.md.
"""

from __future__ import annotations

from batchyard.doctor.check_files import find_checks
from batchyard.doctor.checks.base import Check

CHECKS = tuple(
    sorted(find_checks("batchyard.doctor.checks", Check), key=lambda check: check.kinds[0].id)
)
