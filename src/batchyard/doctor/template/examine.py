"""A template -> report: its resources, the user data inside them, and the nested stacks that lie beside it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from batchyard.doctor.checks.kinds import (
    AMAZON_LINUX_2,
    ARCHITECTURES_MIXED,
    BEST_FIT_STRATEGY,
    CPU_IMAGE_ON_GPU_HOST,
    GPU_AND_CPU_FAMILIES_MIXED,
    GPU_TOO_OLD_FOR_DRIVER,
    GPUS_NOT_SCHEDULABLE,
    INSTANCE_TYPE_UNKNOWN,
    METADATA_HOP_LIMIT,
    NO_GPUS,
    SPOT_BID_TOO_LOW,
    SPOT_WITH_SINGLE_TYPE,
)
from batchyard.doctor.finding import Finding, Kind, Report, Unseen, in_order
from batchyard.doctor.template import conditions, environments, nested, others, scripts, unknown
from batchyard.doctor.template.kinds import (
    DESIRED_VCPUS_SET,
    FIXED_NAME_WITH_REPLACEMENT,
    LAUNCH_CONFIGURATION,
    LAUNCH_TEMPLATE_CHANGES_IGNORED,
    MARKET_OPTIONS_IGNORED,
    OPEN_SECURITY_GROUP,
    RETRY_RULE_REFUSED,
    ROLE_ALLOWS_EVERYTHING,
    ROLE_INSTEAD_OF_PROFILE,
    SPOT_FLEET,
    SPOT_NEVER_BOUGHT,
    TAGS_AS_LIST,
    TERMINATION_PROTECTION_ON_ONE_SIDE,
)
from batchyard.doctor.template.nested import Beside
from batchyard.doctor.template.read import read
from batchyard.doctor.template.resources import Template
from batchyard.doctor.userdata import examine as user_data

#: check -> the kinds that it can find
CHECKS: tuple[tuple[Callable[[Template], Iterator[Finding]], tuple[Kind, ...]], ...] = (
    (
        environments.examine,
        (
            NO_GPUS,
            GPU_AND_CPU_FAMILIES_MIXED,
            GPUS_NOT_SCHEDULABLE,
            CPU_IMAGE_ON_GPU_HOST,
            GPU_TOO_OLD_FOR_DRIVER,
            AMAZON_LINUX_2,
            ARCHITECTURES_MIXED,
            SPOT_BID_TOO_LOW,
            INSTANCE_TYPE_UNKNOWN,
            BEST_FIT_STRATEGY,
            SPOT_WITH_SINGLE_TYPE,
            ROLE_INSTEAD_OF_PROFILE,
            DESIRED_VCPUS_SET,
            LAUNCH_TEMPLATE_CHANGES_IGNORED,
            FIXED_NAME_WITH_REPLACEMENT,
        ),
    ),
    (others.launch_configurations, (LAUNCH_CONFIGURATION,)),
    (others.open_groups, (OPEN_SECURITY_GROUP,)),
    (others.great_roles, (ROLE_ALLOWS_EVERYTHING,)),
    (others.spot_fleets, (SPOT_FLEET,)),
    (others.spot_share, (SPOT_NEVER_BOUGHT,)),
    (others.tags, (TAGS_AS_LIST,)),
    (others.termination_protection, (TERMINATION_PROTECTION_ON_ONE_SIDE,)),
    (others.retry_rules, (RETRY_RULE_REFUSED,)),
    (
        others.launch_templates,
        (
            METADATA_HOP_LIMIT,
            MARKET_OPTIONS_IGNORED,
        ),
    ),
)


def examine(data: bytes, name: str, beside: Beside | None = None) -> Report:
    """``beside`` reads files that the template names. Raises InputError where the file is no template."""
    template = read(data, name)
    looked = _Looked(beside or (lambda path: None))
    looked.look(template, 0)
    kinds = [kind for _, kinds in CHECKS for kind in kinds] + [
        kind for kind, _, _ in user_data.CHECKS
    ]
    loops = [
        Unseen(kind, f"the list of the loop {loop} is not known")
        for loop in template.loops
        for kind in kinds
    ]
    open_ones = unknown.merged([*looked.unseen, *loops])
    seen: set[Kind] = {finding.kind for finding in looked.findings} | {
        one.kind for one in open_ones
    }
    right = tuple(kind for kind in kinds if kind not in seen)
    return Report(f"{template.kind} template {name}", in_order(looked.findings), right, open_ones)


@dataclass(slots=True)
class _Looked:
    beside: Beside
    findings: list[Finding] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    #: what was examined in another way that the conditions can turn out, and need not be again
    done: scripts.Done = field(default_factory=dict)
    followed: set[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=set)

    def look(self, template: Template, depth: int) -> None:
        for way in conditions.make_variants(template):
            for look, _ in CHECKS:
                self.findings += look(way)
            followed = self._follow(way, depth)
            self.findings += scripts.examine(way, followed, self.done)
            self.unseen += unknown.unseen(way)
            self.unseen += nested.not_followed(way, followed)
        why = "the user data of {} is known only when the plan is applied"
        self.unseen += [
            Unseen(kind, why.format(name))
            for name in template.unknown
            for kind in unknown.USER_DATA
        ]

    def _follow(self, template: Template, depth: int) -> frozenset[str]:
        """The stacks whose templates could be read, and were examined with what they are given."""
        names = set()
        for stack in nested.stacks(template) if depth < nested.MAX_DEPTH else ():
            inner = nested.read_inner(template, stack, self.beside)
            if inner is None:
                continue
            names.add(stack.name)
            key = (inner.name, tuple(sorted(nested.given(template, stack).items())))
            if key not in self.followed:
                self.followed.add(key)
                self.look(inner, depth + 1)
        return frozenset(names)
