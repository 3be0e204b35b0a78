"""A stack's events: what is done and how long it took, and of a failure the first real cause with what helps. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_STACK = "AWS::CloudFormation::Stack"
#: what CloudFormation says of resources that did nothing wrong, but for which it went no further
_CASCADE = re.compile(
    r"resource (creation|update|deletion) cancell?ed|the following resource\(s\) failed to|rollback requested by user"
    r"|did not attempt|user initiated",
    re.IGNORECASE,
)
_BEGINNINGS = (
    "CREATE_IN_PROGRESS",
    "UPDATE_IN_PROGRESS",
    "DELETE_IN_PROGRESS",
    "REVIEW_IN_PROGRESS",
)
#: how newer resource types wrap what a service said
_WRAPPED = re.compile(
    r'^Resource handler returned message: "(?P<said>.*)" \(RequestToken: .*\)$', re.DOTALL
)
_NUMBERS = re.compile(
    r"[,;] ?(Request ID|S3 Extended Request ID|Proxy|HostId|SDK Attempt Count): [^;,)]*"
)
_VERBS = {"CREATE": "created", "UPDATE": "changed", "DELETE": "deleted", "IMPORT": "taken in"}


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    #: seconds since 1970
    time_s: float
    #: logical id, or the stack's name
    name: str
    kind: str
    status: str
    reason: str
    #: about the stack itself
    is_stack: bool

    @property
    def is_failure(self) -> bool:
        return self.status.endswith("_FAILED")

    @property
    def is_over(self) -> bool:
        return not self.status.endswith("_IN_PROGRESS")


def from_aws(events: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Of DescribeStackEvents' entries, in their order."""
    return [
        Event(
            id=one["EventId"],
            time_s=one["Timestamp"].timestamp(),
            name=one["LogicalResourceId"],
            kind=one["ResourceType"],
            status=one["ResourceStatus"],
            reason=one.get("ResourceStatusReason") or "",
            is_stack=one["ResourceType"] == _STACK and one["LogicalResourceId"] == one["StackName"],
        )
        for one in events
    ]


def of_last_operation(events: Sequence[Event]) -> list[Event]:
    """Of a stack's whole history, oldest first, what belongs to the change that was begun last."""
    begun = [n for n, event in enumerate(events) if event.is_stack and event.status in _BEGINNINGS]
    return list(events[begun[-1] if begun else 0 :])


def outcome(events: Iterable[Event]) -> str:
    """The status that the stack came to; empty while it is on its way."""
    last = [event for event in events if event.is_stack][-1:]
    return last[0].status if last and last[0].is_over else ""


# -- durations ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """A resource that was made, changed or deleted, or could not be."""

    name: str
    kind: str
    #: created, changed, deleted, kept, failed, cancelled
    verb: str
    #: None where its beginning was not seen
    duration_s: float | None
    reason: str


class Progress:
    """What is being done to a stack, from its events in their order."""

    def __init__(self) -> None:
        #: resource -> when it began, and its type
        self.running: dict[str, tuple[float, str]] = {}

    def take(self, events: Iterable[Event]) -> list[Step]:
        """The steps that these events complete."""
        done = []
        for event in events:
            if event.is_stack:
                continue
            if not event.is_over:
                # The second event of a creation ("initiated") is not a second beginning.
                self.running.setdefault(event.name, (event.time_s, event.kind))
                continue
            begun = self.running.pop(event.name, None)
            took = max(0.0, event.time_s - begun[0]) if begun else None
            done.append(Step(event.name, event.kind, _verb(event), took, said(event.reason)))
        return done


def _verb(event: Event) -> str:
    if event.is_failure:
        return "cancelled" if _CASCADE.search(event.reason) else "failed"
    if event.status == "DELETE_SKIPPED":
        return "kept"
    return _VERBS.get(event.status.partition("_")[0], event.status.lower())


# -- causes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cause:
    #: resource, and its type; empty where the stack itself is at fault
    name: str
    kind: str
    #: "could not be created", or the like; empty where the stack itself is at fault
    what: str
    reason: str
    hint: str

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}) {self.what}: {self.reason}" if self.name else self.reason


def first_cause(events: Sequence[Event]) -> Cause | None:
    """Of one operation's events, oldest first: the failure that began it, not those that followed from it."""
    failures = [event for event in events if event.is_failure and not event.is_stack]
    real = [event for event in failures if event.reason and not _CASCADE.search(event.reason)]
    if real:
        return _cause(real[0], real[0].name)
    # Then the stack itself: an export that others use, an output, a limit of CloudFormation.
    of_stack = [
        event
        for event in events
        if event.is_stack and event.reason and not _CASCADE.search(event.reason)
    ]
    if of_stack:
        return _cause(of_stack[0], "")
    return _cause(failures[0], failures[0].name) if failures else None


def _cause(event: Event, name: str) -> Cause:
    reason = said(event.reason) or "AWS gave no reason"
    if not name:
        return Cause("", "", "", reason, hint_for(reason))
    verb = _VERBS.get(event.status.partition("_")[0], "changed")
    return Cause(name, event.kind, f"could not be {verb}", reason, hint_for(reason))


def said(reason: str) -> str:
    """What the service said, without CloudFormation's wrapping and the numbers that only AWS's support can use."""
    text = " ".join(reason.split())
    wrapped = _WRAPPED.match(text)
    text = wrapped["said"] if wrapped else text
    return _NUMBERS.sub("", text).strip()


_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"not authorized to perform:? ?(?P<action>[a-z0-9-]+:[A-Za-z]+)?|AccessDenied|UnauthorizedOperation",
        "ask for the action {action}; the administrator policy (output AdministratorPolicyArn of the stack iam) grants "
        "what deploying needs",
    ),
    (
        r"service-linked role",
        "AWS makes this role once an account, and these credentials may not: deploy once as somebody with "
        "iam:CreateServiceLinkedRole",
    ),
    (
        r"route identified by .* already exists",
        "a route of that destination was made by hand, or by an older template: delete it, then run the same command",
    ),
    (
        r"in use by (?P<users>.+?)[.]?$",
        "the stack {users} uses it: change or delete that one first",
    ),
    (r"bucket you tried to delete is not empty", "`--empty-buckets` deletes what is in it"),
    (r"still contains images|RepositoryNotEmpty", "`--delete-images` deletes them"),
    (
        r"No export named (?P<export>\S+) found",
        "the stack that exports it is not deployed; `batchyard deploy` without templates makes all of them",
    ),
    (
        r"custom-named resource requires replacing",
        "its name is taken by the old one: destroy that stack, then deploy it anew",
    ),
    (
        r"already exists",
        "something of that name is there and belongs to no stack of this environment: delete it, or choose another "
        "environment's name",
    ),
    (
        r"maximum number of|limit ?exceeded|quota|too many",
        "a quota of the account is reached: delete what is unused, or ask for more (docs/deploy.md, quotas); a VPC of "
        "yours can be used with --set ExistingVpc=... ExistingSubnets=...",
    ),
    (
        r"did not stabilize|NotStabilized|INVALID",
        "`batchyard doctor` says why a compute environment is not valid",
    ),
    (
        r"has a dependent object|has dependencies and cannot be deleted|mapped public address|in use",
        "something outside the stack still uses it, such as a node that is being terminated: try again in some minutes",
    ),
    (
        r"JobQueue relationship|must be disabled|being modified",
        "AWS Batch is still busy with it: try again in some minutes",
    ),
    (
        r"conflicts with another subnet|InvalidSubnet|invalid for the (vpc|subnet)|CidrBlock",
        "the subnets must lie inside VpcCidr and not overlap: see VpcCidr and the Subnet...Cidr parameters of network",
    ),
    (
        r"Fn::Select cannot select|availability ?zone",
        "the region has fewer zones than asked for: --set Zones=2, or another region",
    ),
    (
        r"Unable to fetch parameters|ParameterNotFound|parameter store",
        "the SSM parameter is not there in this region: check its name, and that the image was published",
    ),
    (
        r"instance ?type",
        "the region does not have that type, or AWS Batch does not take it: see CpuInstanceTypes and GpuInstanceTypes",
    ),
    (r"rate exceeded|throttl", "AWS asks to go slower: run the same command again, it goes on"),
    (r"security token|expired", "log in again, then run the same command: it goes on"),
)


def hint_for(reason: str) -> str:
    """What helps against a reason that AWS gave; empty where nothing is known."""
    for pattern, hint in _HINTS:
        found = re.search(pattern, reason, re.IGNORECASE)
        if found:
            return hint.format(
                **{
                    key: value or "that the reason names"
                    for key, value in found.groupdict().items()
                }
            )
    return ""
