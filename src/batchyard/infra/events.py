"""The events of a stack: completed steps with durations, and the first cause of a failure. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_STACK = "AWS::CloudFormation::Stack"
#: Reasons of resources that did not fail themselves, but were cancelled after a failure.
_CASCADE = re.compile(
    r"resource (creation|update|deletion) cancell?ed|the following resource\(s\) failed to"
    r"|rollback requested by user|did not attempt|user initiated",
    re.IGNORECASE,
)
_BEGINNINGS = (
    "CREATE_IN_PROGRESS",
    "UPDATE_IN_PROGRESS",
    "DELETE_IN_PROGRESS",
    "REVIEW_IN_PROGRESS",
)
#: How newer resource types wrap the message of a service.
_WRAPPED = re.compile(
    r'^Resource handler returned message: "(?P<message>.*)" \(RequestToken: .*\)$', re.DOTALL
)
_REQUEST_IDS = re.compile(
    r"[,;] ?(Request ID|S3 Extended Request ID|Proxy|HostId|SDK Attempt Count): [^;,)]*"
)
_VERBS = {"CREATE": "created", "UPDATE": "changed", "DELETE": "deleted", "IMPORT": "taken in"}


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    #: seconds since 1970
    time_s: float
    #: Logical id, or the name of the stack.
    name: str
    kind: str
    status: str
    reason: str
    #: True if the event is about the stack itself.
    is_stack: bool

    @property
    def is_failure(self) -> bool:
        return self.status.endswith("_FAILED")

    @property
    def is_over(self) -> bool:
        return not self.status.endswith("_IN_PROGRESS")


def from_aws(events: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Convert the entries of DescribeStackEvents, in their order."""
    return [
        Event(
            id=event["EventId"],
            time_s=event["Timestamp"].timestamp(),
            name=event["LogicalResourceId"],
            kind=event["ResourceType"],
            status=event["ResourceStatus"],
            reason=event.get("ResourceStatusReason") or "",
            is_stack=event["ResourceType"] == _STACK
            and event["LogicalResourceId"] == event["StackName"],
        )
        for event in events
    ]


def last_operation(events: Sequence[Event]) -> list[Event]:
    """Return the events since the last change of the stack began; ``events`` are oldest first."""
    starts = [
        index
        for index, event in enumerate(events)
        if event.is_stack and event.status in _BEGINNINGS
    ]
    return list(events[starts[-1] if starts else 0 :])


def final_status(events: Iterable[Event]) -> str:
    """Return the status at which the stack came to rest; empty while a change is in progress."""
    last = [event for event in events if event.is_stack][-1:]
    return last[0].status if last and last[0].is_over else ""


# -- durations -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """A resource that was created, changed or deleted, or that failed."""

    name: str
    kind: str
    #: "created", "changed", "deleted", "kept", "failed" or "cancelled"
    verb: str
    #: None if the start was not seen.
    duration_s: float | None
    reason: str


class Progress:
    """The resources of a stack that are being changed, according to its events."""

    def __init__(self) -> None:
        #: resource -> start in seconds since 1970, and its type
        self.running: dict[str, tuple[float, str]] = {}

    def take(self, events: Iterable[Event]) -> list[Step]:
        """Process events in their order, and return the steps that they complete."""
        steps = []
        for event in events:
            if event.is_stack:
                continue
            if not event.is_over:
                # A creation has two events: the second ("initiated") is not a second start.
                self.running.setdefault(event.name, (event.time_s, event.kind))
                continue
            start = self.running.pop(event.name, None)
            duration_s = max(0.0, event.time_s - start[0]) if start else None
            reason = unwrap_reason(event.reason)
            steps.append(Step(event.name, event.kind, _verb_of(event), duration_s, reason))
        return steps


def _verb_of(event: Event) -> str:
    if event.is_failure:
        return "cancelled" if _CASCADE.search(event.reason) else "failed"
    if event.status == "DELETE_SKIPPED":
        return "kept"
    return _VERBS.get(event.status.partition("_")[0], event.status.lower())


# -- causes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cause:
    #: Name and type of the resource; empty if the stack itself failed.
    name: str
    kind: str
    #: Such as "could not be created"; empty if the stack itself failed.
    failure: str
    reason: str
    hint: str

    def __str__(self) -> str:
        if not self.name:
            return self.reason
        return f"{self.name} ({self.kind}) {self.failure}: {self.reason}"


def find_first_cause(events: Sequence[Event]) -> Cause | None:
    """Return the failure that caused all others of an operation; ``events`` are oldest first."""
    failures = [event for event in events if event.is_failure and not event.is_stack]
    # The stack itself fails for an export in use, an output or a limit of CloudFormation.
    about_stack = [event for event in events if event.is_stack]
    for event in (*failures, *about_stack):
        if event.reason and not _CASCADE.search(event.reason):
            return _to_cause(event)
    return _to_cause(failures[0]) if failures else None


def _to_cause(event: Event) -> Cause:
    reason = unwrap_reason(event.reason) or "AWS gave no reason"
    if event.is_stack:
        return Cause("", "", "", reason, find_hint(reason))
    verb = _VERBS.get(event.status.partition("_")[0], "changed")
    return Cause(event.name, event.kind, f"could not be {verb}", reason, find_hint(reason))


def unwrap_reason(reason: str) -> str:
    """Return the message of the service, without CloudFormation's wrapping and request ids."""
    text = " ".join(reason.split())
    wrapped = _WRAPPED.match(text)
    text = wrapped["message"] if wrapped else text
    return _REQUEST_IDS.sub("", text).strip()


_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"not authorized to perform:? ?(?P<action>[a-z0-9-]+:[A-Za-z]+)?"
        r"|AccessDenied|UnauthorizedOperation",
        "ask for the action {action}; the administrator policy (output AdministratorPolicyArn of "
        "the stack iam) grants what deploying needs",
    ),
    (
        r"service-linked role",
        "AWS makes this role once an account, and these credentials may not: deploy once as "
        "somebody with iam:CreateServiceLinkedRole",
    ),
    (
        r"route identified by .* already exists",
        "a route of that destination was made by hand, or by an older template: delete it, then "
        "run the same command",
    ),
    (
        r"in use by (?P<users>.+?)[.]?$",
        "the stack {users} uses it: change or delete that one first",
    ),
    (r"bucket you tried to delete is not empty", "`--empty-buckets` deletes what is in it"),
    (r"still contains images|RepositoryNotEmpty", "`--delete-images` deletes them"),
    (
        r"No export named (?P<export>\S+) found",
        "the stack that exports it is not deployed; `batchyard deploy` without templates makes "
        "all of them",
    ),
    (
        r"custom-named resource requires replacing",
        "its name is taken by the old one: destroy that stack, then deploy it anew",
    ),
    (
        r"already exists",
        "something of that name is there and belongs to no stack of this environment: delete it, "
        "or choose another environment's name",
    ),
    (
        r"maximum number of|limit ?exceeded|quota|too many",
        "a quota of the account is reached: delete what is unused, or ask for more "
        "(docs/deploy.md, quotas); a VPC of yours can be used with "
        "--set ExistingVpc=... ExistingSubnets=...",
    ),
    (
        r"did not stabilize|NotStabilized|INVALID",
        "`batchyard doctor` says why a compute environment is not valid",
    ),
    (
        r"has a dependent object|has dependencies and cannot be deleted|mapped public address"
        r"|in use",
        "something outside the stack still uses it, such as a node that is being terminated: "
        "try again in some minutes",
    ),
    (
        r"JobQueue relationship|must be disabled|being modified",
        "AWS Batch is still busy with it: try again in some minutes",
    ),
    (
        r"conflicts with another subnet|InvalidSubnet|invalid for the (vpc|subnet)|CidrBlock",
        "the subnets must lie inside VpcCidr and not overlap: see VpcCidr and the Subnet...Cidr "
        "parameters of network",
    ),
    (
        r"Fn::Select cannot select|availability ?zone",
        "the region has fewer zones than asked for: --set Zones=2, or another region",
    ),
    (
        r"Unable to fetch parameters|ParameterNotFound|parameter store",
        "the SSM parameter is not there in this region: check its name, and that the image was "
        "published",
    ),
    (
        r"instance ?type",
        "the region does not have that type, or AWS Batch does not take it: see CpuInstanceTypes "
        "and GpuInstanceTypes",
    ),
    (r"rate exceeded|throttl", "AWS throttles the calls: run the same command again, it continues"),
    (r"security token|expired", "log in again, then run the same command: it goes on"),
)


def find_hint(reason: str) -> str:
    """Return what helps against a reason that AWS gave; empty if nothing is known."""
    for pattern, hint in _HINTS:
        match = re.search(pattern, reason, re.IGNORECASE)
        if match:
            groups = match.groupdict().items()
            return hint.format(**{key: text or "that the reason names" for key, text in groups})
    return ""
