"""All kinds of findings by id. An id is never used for another finding.

BY001 to BY099 are about jobs, queues and compute environments, BY101 to BY199 about user data,
BY201 to BY299 about templates and BY301 to BY399 about a host.
"""

from __future__ import annotations

from batchyard.doctor.checks.table import CHECKS
from batchyard.doctor.host.checks.table import CHECKS as HOST_CHECKS
from batchyard.doctor.template.checks.table import CHECKS as TEMPLATE_CHECKS

_KINDS = (
    *(kind for check in CHECKS for kind in check.kinds),
    *(kind for check in TEMPLATE_CHECKS for kind in check.kinds),
    *(check.kind for check in HOST_CHECKS),
)
#: in the order of the ids
BY_ID = {kind.id: kind for kind in sorted(_KINDS, key=lambda kind: kind.id)}
