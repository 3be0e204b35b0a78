"""A template -> report: its resources, the user data inside them, and the nested stacks that lie beside it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from batchyard.doctor.checks.environments import (
    amazon_linux_2,
    architectures_mixed,
    best_fit_strategy,
    cpu_image_on_gpu_host,
    families_mixed,
    gpu_too_old_for_driver,
    gpus_not_schedulable,
    instance_type_unknown,
    metadata_hop_limit,
    spot_with_single_type,
)
from batchyard.doctor.checks.fit.kinds import NO_GPUS
from batchyard.doctor.checks.launches import spot_bid_too_low
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
            families_mixed.KIND,
            gpus_not_schedulable.KIND,
            cpu_image_on_gpu_host.KIND,
            gpu_too_old_for_driver.KIND,
            amazon_linux_2.KIND,
            architectures_mixed.KIND,
            spot_bid_too_low.KIND,
            instance_type_unknown.KIND,
            best_fit_strategy.KIND,
            spot_with_single_type.KIND,
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
            metadata_hop_limit.KIND,
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
