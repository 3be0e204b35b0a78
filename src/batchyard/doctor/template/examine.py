"""A template -> report: its resources, and the user data inside them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from batchyard.doctor.finding import Finding, Kind, Report, Unseen, in_order
from batchyard.doctor.kinds import KINDS
from batchyard.doctor.template import environments, others, scripts
from batchyard.doctor.template.read import read
from batchyard.doctor.template.resources import Template
from batchyard.doctor.userdata import examine as user_data

#: check -> the kinds that it can find
CHECKS: tuple[tuple[Callable[[Template], Iterator[Finding]], tuple[int, ...]], ...] = (
    (environments.examine, (17, 18, 19, 20, 21, 22, 23, 28, 30, 54, 57, 204, 205, 206, 207)),
    (others.launch_configurations, (201,)),
    (others.open_groups, (202,)),
    (others.great_roles, (203,)),
    (others.spot_fleets, (208,)),
    (others.spot_share, (209,)),
    (others.tags, (210,)),
    (others.termination_protection, (211,)),
    (others.retry_rules, (212,)),
    (others.launch_templates, (56, 213)),
)


def examine(data: bytes, name: str) -> Report:
    """Raises BadInput where the file is no template."""
    template = read(data, name)
    findings: list[Finding] = []
    kinds: list[Kind] = []
    for look, numbers in CHECKS:
        findings += look(template)
        kinds += [KINDS[number] for number in numbers]
    findings += scripts.examine(template)
    kinds += [kind for kind, _, _ in user_data.CHECKS]
    why = "the user data of {} is known only when the plan is applied"
    unseen = tuple(Unseen(KINDS[101], why.format(name)) for name in template.unknown)
    seen = {finding.kind for finding in findings} | {one.kind for one in unseen}
    right = tuple(kind for kind in kinds if kind not in seen)
    return Report(f"{template.kind} template {name}", in_order(findings), right, unseen)
