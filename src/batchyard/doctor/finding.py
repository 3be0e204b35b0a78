"""Findings, and the report that holds them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

#: the folder of the pages in a checkout
PAGES = "docs/findings"


class Severity(StrEnum):
    ERROR = "error"  # it cannot work
    WARNING = "warning"  # it works now, and will fail at some time
    NOTE = "note"  # worth knowing


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding. Its page is docs/findings/<id>.md."""

    id: str
    severity: Severity
    #: how often this is the cause of a stuck job, 0 to 100; likely findings are shown first
    likelihood: int
    #: what is true when the check passes, as `--all` lists it
    title: str


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    #: one sentence
    cause: str
    #: facts that show the cause, with numbers
    evidence: tuple[str, ...] = ()
    #: commands to copy, or sentences where there is no command
    remedy: tuple[str, ...] = ()
    #: a file with a line number, or the name of a job, queue or environment
    place: str = ""
    #: replaces the likelihood of the kind, if not negative; 100 where AWS states the cause
    likelihood: int = -1

    @property
    def id(self) -> str:
        return self.kind.id

    @property
    def page(self) -> str:
        return f"{PAGES}/{self.kind.id}.md"

    @property
    def effective_likelihood(self) -> int:
        return self.kind.likelihood if self.likelihood < 0 else self.likelihood

    @property
    def rank(self) -> tuple[int, int, str, list[tuple[int, str]]]:
        """The sort key of findings: likely and severe ones first, then by id and place."""
        # Numbers in a place are compared as numbers: a:9 is before a:10.
        place = [
            (int(part), "") if part.isdecimal() else (-1, part)
            for part in re.split(r"(\d{1,9})", self.place)
        ]
        severity = list(Severity).index(self.kind.severity)
        return (-self.effective_likelihood, severity, self.kind.id, place)


#: What a check returns: a finding, or several; an empty list where the check passed, None where it
#: does not apply.
Verdict = Finding | list[Finding] | None
Findings = Iterator[Finding]


@dataclass(frozen=True, slots=True)
class Unseen:
    """A check that could not run."""

    kind: Kind
    reason: str
    #: the IAM action that would allow the check; empty where a permission is not the reason
    action: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    #: what was examined, like "job 4c5f4a1e"
    subject: str
    findings: tuple[Finding, ...] = ()
    #: the kinds whose checks passed
    passed: tuple[Kind, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    #: the state of a job, like RUNNABLE; empty for other subjects
    status: str = ""
    #: why a job without findings still waits; empty where it does not wait
    waiting: str = ""
    #: AWS Batch's reason why a job is RUNNABLE; empty where a finding or ``waiting`` has it
    status_reason: str = ""
    #: why the subject could not be described; empty where it could
    blind_reason: str = ""
    #: where a requested shape can run: types, zones and quota, a line for each environment
    fits: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0: healthy, 1: findings, 2: could not examine."""
        if self.findings:
            return 1
        return 2 if self.blind_reason or (self.unseen and not self.passed) else 0


def merge_places(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Merge findings that differ in their place only into one that names all places."""
    places: dict[Finding, list[str]] = {}
    for finding in findings:
        places.setdefault(replace(finding, place=""), []).append(finding.place)
    return tuple(
        replace(finding, place=_join_places(all_places)) for finding, all_places in places.items()
    )


def _join_places(places: list[str]) -> str:
    """Return, for example, "queues a, b" for "queue a" and "queue b".

    "user data of a:1" and "user data of a:2" become "user data of a:1, a:2".
    """
    distinct = list(dict.fromkeys(places))
    nouns = {place.rpartition(" ")[0] for place in distinct}
    if len(distinct) == 1 or len(nouns) > 1 or "" in nouns:
        return ", ".join(filter(None, distinct))
    noun = nouns.pop()
    plural = "" if noun.endswith(" of") else "s"
    return f"{noun}{plural} {', '.join(place.rpartition(' ')[2] for place in distinct)}"


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the distinct findings, most likely first."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.rank))
