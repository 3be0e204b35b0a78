"""A template -> report: its resources, the user data inside them, and the nested stacks that lie beside it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from batchyard.doctor.finding import Finding, Kind, Report, Unseen, in_order
from batchyard.doctor.kinds import KINDS
from batchyard.doctor.template import environments, nested, others, scripts, unknown
from batchyard.doctor.template.nested import Beside
from batchyard.doctor.template.read import read
from batchyard.doctor.template.resources import Template
from batchyard.doctor.template.ways import ways
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


def examine(data: bytes, name: str, beside: Beside | None = None) -> Report:
    """``beside`` reads files that the template names. Raises InputError where the file is no template."""
    template = read(data, name)
    looked = _Looked(beside or (lambda path: None))
    looked.look(template, 0)
    kinds = [KINDS[number] for _, numbers in CHECKS for number in numbers] + [
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
        for way in ways(template):
            for look, _ in CHECKS:
                self.findings += look(way)
            followed = self._follow(way, depth)
            self.findings += scripts.examine(way, followed, self.done)
            self.unseen += unknown.unseen(way)
            self.unseen += nested.not_followed(way, followed)
        why = "the user data of {} is known only when the plan is applied"
        self.unseen += [
            Unseen(KINDS[n], why.format(name))
            for name in template.unknown
            for n in unknown.USER_DATA
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
