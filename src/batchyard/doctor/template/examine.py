"""Examine a template: run every check on every variant of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchyard.doctor.finding import Finding, Report, Unseen, sort_findings
from batchyard.doctor.template import conditions, nested, scripts, unchecked
from batchyard.doctor.template.checks.table import CHECKS
from batchyard.doctor.template.nested import ReadFile
from batchyard.doctor.template.read import read
from batchyard.doctor.template.resources import Template

KINDS = (*(kind for check in CHECKS for kind in check.kinds), *unchecked.USER_DATA_KINDS)


def examine(data: bytes, name: str, read_file: ReadFile | None = None) -> Report:
    """Examine a template. Raises InputError if the bytes are not a template.

    ``read_file`` reads the templates of nested stacks; without it they are not followed.
    """
    template = read(data, name)
    examination = _Examination(read_file or (lambda path: None))
    examination.examine(template, 0)
    loops = [
        Unseen(kind, f"the list of the loop {loop} is not known")
        for loop in template.unknown_loops
        for kind in KINDS
    ]
    unseen = unchecked.merge([*examination.unseen, *loops])
    reported = {finding.kind for finding in examination.findings}
    reported |= {entry.kind for entry in unseen}
    right = tuple(kind for kind in KINDS if kind not in reported)
    subject = f"{template.kind} template {name}"
    return Report(subject, sort_findings(examination.findings), right, unseen)


@dataclass(slots=True)
class _Examination:
    read_file: ReadFile
    findings: list[Finding] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    #: Findings of scripts by their text: most variants of a template contain the same scripts.
    scripts: scripts.Examined = field(default_factory=dict)
    #: Nested templates with their parameters that have been examined.
    stacks: set[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=set)

    def examine(self, template: Template, depth: int) -> None:
        for variant in conditions.make_variants(template):
            for check in CHECKS:
                self.findings += check.find(variant)
            stacks = self._examine_stacks(variant, depth)
            for result in scripts.examine(variant, stacks, self.scripts):
                if isinstance(result, Unseen):
                    self.unseen.append(result)
                else:
                    self.findings.append(result)
            self.unseen += unchecked.find_unchecked(variant)
            self.unseen += nested.find_unread(variant, stacks)
        for name in template.unknown_user_data:
            reason = f"the user data of {name} is known only when the plan is applied"
            self.unseen += [Unseen(kind, reason) for kind in unchecked.USER_DATA_KINDS]

    def _examine_stacks(self, template: Template, depth: int) -> frozenset[str]:
        """Examine nested stacks, and return the names of those whose templates could be read."""
        names: set[str] = set()
        if depth >= nested.MAX_DEPTH:
            return frozenset(names)
        for stack in nested.find_stacks(template):
            child = nested.read_template(template, stack, self.read_file)
            if child is None:
                continue
            names.add(stack.name)
            parameters = nested.read_parameters(template, stack)
            key = (child.name, tuple(sorted(parameters.items())))
            if key not in self.stacks:
                self.stacks.add(key)
                self.examine(child, depth + 1)
        return frozenset(names)
