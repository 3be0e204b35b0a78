"""The form of a check of templates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from batchyard.doctor.finding import Finding, Kind, Unseen
from batchyard.doctor.template.resources import Template

ENVIRONMENT = "AWS::Batch::ComputeEnvironment"
JOB_DEFINITION = "AWS::Batch::JobDefinition"


def _find_nothing(_: Template) -> Iterator[Unseen]:
    return iter(())


@dataclass(frozen=True, slots=True)
class TemplateCheck:
    """A check: the kinds of its findings, its function, and the properties that decide it."""

    kinds: tuple[Kind, ...]
    find: Callable[[Template], Iterator[Finding]]
    #: (type of the resource, path of the property); "*" in a path is each item of a list.
    #: If the value of one is unknown, the kinds are reported as not checked.
    properties: tuple[tuple[str, str], ...] = ()
    #: Finds further reasons why the check could not be made.
    find_unchecked: Callable[[Template], Iterator[Unseen]] = _find_nothing
