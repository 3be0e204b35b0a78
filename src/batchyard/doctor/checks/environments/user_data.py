"""BY101 to BY117: the user data of a launch template, examined as `doctor userdata` does.

The findings share this file because ``doctor/userdata`` finds all of them in one pass.
"""

from __future__ import annotations

from batchyard.doctor.checks.base import check_launch_templates
from batchyard.doctor.facts import LaunchTemplate, Missing, MissingFactError
from batchyard.doctor.finding import Finding
from batchyard.doctor.userdata.examine import CHECKS
from batchyard.doctor.userdata.examine import examine as examine_user_data


@check_launch_templates(*(kind for kind, _, _ in CHECKS))
def check(template: LaunchTemplate) -> tuple[Finding, ...]:
    if not template.user_data:
        return ()
    report = examine_user_data(
        template.user_data.encode("utf-8", "replace"),
        f"user data of {template.id}",
        size=template.user_data_bytes,
    )
    if report.unseen and not report.findings:
        # A script in a language that is not followed may hold anything.
        raise MissingFactError(Missing(report.unseen[0].reason))
    return report.findings
