"""The form of a check of templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from batchyard.doctor.finding import Finding, Findings, Kind, Unseen
from batchyard.doctor.template.resources import Resource, Template

ENVIRONMENT = "AWS::Batch::ComputeEnvironment"
JOB_DEFINITION = "AWS::Batch::JobDefinition"


def _find_nothing(_: Template) -> Iterator[Unseen]:
    return iter(())


@dataclass(frozen=True, slots=True)
class TemplateCheck:
    """A check: the kinds of its findings, its function, and the properties that decide it."""

    kinds: tuple[Kind, ...]
    find: Callable[[Template], Findings]
    #: (type of the resource, path of the property); "*" in a path is each item of a list.
    #: If the value of one is unknown, the kinds are reported as not checked.
    properties: tuple[tuple[str, str], ...] = ()
    #: Finds further reasons why the check could not be made.
    find_unchecked: Callable[[Template], Iterator[Unseen]] = _find_nothing


def check_template(
    *kinds: Kind, properties: tuple[tuple[str, str], ...] = ()
) -> Callable[[Callable[[Template], Findings]], TemplateCheck]:
    """Make a check of a function."""
    return lambda function: TemplateCheck(kinds, function, properties)


def place_findings(template: Template, resource: Resource, findings: Iterable[Finding]) -> Findings:
    """Yield findings of a check of live environments with their place in the template."""
    return (replace(finding, place=template.place(resource)) for finding in findings)
