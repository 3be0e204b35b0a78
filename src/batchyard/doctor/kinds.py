"""Every kind of finding, by its id. An id is never used twice."""

from __future__ import annotations

from batchyard.doctor.checks import kinds as check_kinds
from batchyard.doctor.host import kinds as host_kinds
from batchyard.doctor.template import kinds as template_kinds
from batchyard.doctor.userdata import kinds as user_data_kinds

#: in the order of the ids
BY_ID = {
    kind.id: kind
    for kind in (
        *check_kinds.ALL,
        *user_data_kinds.ALL,
        *template_kinds.ALL,
        *host_kinds.ALL,
    )
}
