"""A report as SARIF 2.1.0, the format in which CI systems and editors take findings. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, NamedTuple
from urllib.parse import quote

from batchyard.doctor.finding import Finding, Kind, Report, Unseen

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
VERSION = "2.1.0"
#: "stack.yaml:12 (Nodes, user data line 3)"
_PLACE = re.compile(r"(.*?)(?::(\d+))?(?: \(([^,()]+)[^()]*\))?", re.DOTALL)


class Place(NamedTuple):
    """The place of a finding in a file; ``line`` is 0 and ``resource`` empty if unknown."""

    file: str
    line: int
    resource: str


def split_place(place: str) -> Place:
    """Return the parts of the place of a finding about user data or a template."""
    match = _PLACE.fullmatch(place)
    if match is None:
        return Place(place, 0, "")
    return Place(match[1], int(match[2] or 0), match[3] or "")


def to_sarif(report: Report, tool_version: str) -> dict[str, Any]:
    """Return the report as a SARIF log with one run."""
    kinds = list(dict.fromkeys([*_kinds_of(report.findings), *_kinds_of(report.unseen)]))
    notifications = [
        {
            "descriptor": {"id": unseen.kind.id},
            "level": "note",
            "message": {"text": f"could not be checked: {unseen.kind.title}: {unseen.reason}"},
        }
        for unseen in report.unseen
    ]
    if report.blind_reason:
        text = f"could not examine: {report.blind_reason}"
        notifications.append({"level": "error", "message": {"text": text}})
    return {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "batchyard doctor",
                        "version": tool_version,
                        "rules": [_rule(kind) for kind in kinds],
                    }
                },
                "invocations": [
                    {
                        "executionSuccessful": not report.blind_reason,
                        "toolExecutionNotifications": notifications,
                    }
                ],
                "results": [_result(finding, kinds) for finding in report.findings],
            }
        ],
    }


def _kinds_of(entries: Iterable[Finding | Unseen]) -> list[Kind]:
    return [entry.kind for entry in entries]


def _rule(kind: Kind) -> dict[str, Any]:
    return {
        "id": kind.id,
        "shortDescription": {"text": kind.title},
        "help": {"text": f"batchyard doctor explain {kind.id}"},
        "defaultConfiguration": {"level": str(kind.severity)},
    }


def _result(finding: Finding, kinds: list[Kind]) -> dict[str, Any]:
    lines = [
        finding.cause,
        *(f"- {line}" for line in finding.evidence),
        *(f"> {line}" for line in finding.remedy),
    ]
    return {
        "ruleId": finding.id,
        "ruleIndex": kinds.index(finding.kind),
        "level": str(finding.kind.severity),
        "message": {"text": "\n".join(lines)},
        "locations": [_location(split_place(finding.place))],
    }


def _location(place: Place) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(place.file)}}
    if place.line:
        physical["region"] = {"startLine": place.line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if place.resource:
        location["logicalLocations"] = [{"name": place.resource, "kind": "resource"}]
    return location


def _uri(file: str) -> str:
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
