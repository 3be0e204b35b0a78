"""What the doctor says: findings, and the report that holds them. Pure values; imports nothing of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

PAGES = "docs/findings"


class Severity(StrEnum):
    ERROR = "error"  # it cannot work
    WARNING = "warning"  # it works until it does not
    NOTE = "note"  # worth knowing


@dataclass(frozen=True, slots=True)
class Kind:
    """A cause that the doctor knows. Its page is docs/findings/<id>.md."""

    id: str
    severity: Severity
    #: how often this is the reason, 0 to 100: the order of the findings
    likelihood: int
    #: what is looked at, as `--all` names it
    title: str


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    #: one sentence
    cause: str
    #: with numbers
    evidence: tuple[str, ...] = ()
    #: commands to copy, or a sentence where no command does it
    remedy: tuple[str, ...] = ()
    #: a file with its line, or the name of what is examined
    place: str = ""
    #: instead of the kind's: 100 where AWS itself says so
    likelihood: int = -1

    @property
    def id(self) -> str:
        return self.kind.id

    @property
    def page(self) -> str:
        return f"{PAGES}/{self.kind.id}.md"

    @property
    def rank(self) -> tuple[int, int, str, list[tuple[int, str]]]:
        """Findings are shown in this order."""
        likelihood = self.kind.likelihood if self.likelihood < 0 else self.likelihood
        # a:9 before a:10
        place = [
            (int(part), "") if part.isdecimal() else (-1, part)
            for part in re.split(r"(\d{1,9})", self.place)
        ]
        return (-likelihood, list(Severity).index(self.kind.severity), self.kind.id, place)


@dataclass(frozen=True, slots=True)
class Unseen:
    """A check that could not be done, and what would let it be done."""

    kind: Kind
    reason: str
    #: the IAM action that is missing, where that is the reason
    action: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    #: what was examined, for people
    subject: str
    findings: tuple[Finding, ...] = ()
    right: tuple[Kind, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    #: of a job: RUNNABLE, RUNNING ...
    status: str = ""
    #: a sentence, where nothing is wrong but the time has not come
    waiting: str = ""
    #: AWS's own reason why a job waits, where no finding has it
    says: str = ""
    #: why the subject itself could not be looked at; empty where it could
    blind: str = ""
    #: a shape that was asked about: on which types, in which zones, within which quota it can run, a line each
    fits: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 findings, 2 could not look."""
        if self.findings:
            return 1
        return 2 if self.blind or (self.unseen and not self.right) else 0


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


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the distinct findings, most likely first."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.rank))
