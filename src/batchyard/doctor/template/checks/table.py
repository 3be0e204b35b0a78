"""All checks of templates, in the order of their ids.

They are those of the files in this package: docs/how-to/add-a-finding.md.
"""

from __future__ import annotations

from batchyard.doctor.check_files import find_checks
from batchyard.doctor.template.checks.base import TemplateCheck

CHECKS = tuple(
    sorted(
        find_checks("batchyard.doctor.template.checks", TemplateCheck),
        key=lambda check: check.kinds[0].id,
    )
)
