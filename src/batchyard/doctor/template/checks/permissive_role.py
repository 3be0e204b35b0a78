"""BY203: a role may do far more than a batch job needs."""

from __future__ import annotations

from collections.abc import Iterator

from batchyard.doctor.finding import Finding, Findings, Kind, Severity, Unseen
from batchyard.doctor.template.checks.base import TemplateCheck
from batchyard.doctor.template.resources import (
    NOTHING,
    UNKNOWN_LINE,
    Resource,
    Template,
    function_call,
)
from batchyard.doctor.template.unknown_values import explain_unknown
from batchyard.yaml_positions import Mapping, Node

KIND = Kind("BY203", Severity.WARNING, 60, "no role may do everything")

_PERMISSIVE_POLICIES = ("AdministratorAccess", "PowerUserAccess", "IAMFullAccess")
#: Services of which nobody needs every action on every resource.
_SENSITIVE_SERVICES = frozenset(
    {"iam", "sts", "s3", "ec2", "kms", "secretsmanager", "ssm", "lambda", "organizations"}
)
_TYPES_WITH_POLICIES = (
    "AWS::IAM::Role",
    "AWS::IAM::User",
    "AWS::IAM::Group",
    "AWS::IAM::Policy",
    "AWS::IAM::ManagedPolicy",
    "AWS::IAM::RolePolicy",
    "AWS::IAM::UserPolicy",
    "AWS::IAM::GroupPolicy",
    "AWS::Serverless::Function",
    "AWS::Serverless::StateMachine",
)
_MAX_LISTED = 4


def find(template: Template) -> Findings:
    for resource in template.of_type(*_TYPES_WITH_POLICIES):
        for node, evidence in (
            *_find_managed_policies(template, resource),
            *_find_statements(template, resource),
        ):
            yield Finding(
                KIND,
                f"{resource.name} may do far more than a batch job needs",
                (evidence,),
                ("name the actions and the resources that are needed",),
                template.place(resource, node),
            )


def _find_managed_policies(template: Template, resource: Resource) -> Iterator[tuple[Node, str]]:
    policies = resource.get("Policies")
    for arn in (*resource.get("ManagedPolicyArns").items, *(policies.items or [policies])):
        name = (template.text(arn) or template.lines(arn).text).rsplit("/", 1)[-1]
        if name in _PERMISSIVE_POLICIES:
            yield arn, f"the policy {name} is attached"


def _find_statements(template: Template, resource: Resource) -> Iterator[tuple[Node, str]]:
    for statement in _allow_statements(template, resource):
        targets = template.known_texts(statement.get("Resource") or NOTHING)
        if "*" not in targets and statement.get("NotResource") is None:
            continue
        actions = _describe_actions(template, statement)
        if actions:
            yield statement, f"allows {actions} on every resource"


def _describe_actions(template: Template, statement: Node) -> str:
    """Return the permissive actions of a statement; empty if it has none."""
    excluded = template.known_texts(statement.get("NotAction") or NOTHING)
    if excluded:
        return f"everything but {', '.join(excluded[:_MAX_LISTED])}"
    actions = template.known_texts(statement.get("Action") or NOTHING)
    return ", ".join([action for action in actions if _is_permissive(action)][:_MAX_LISTED])


def _allow_statements(template: Template, resource: Resource) -> Iterator[Node]:
    for document in _find_documents(resource):
        statements = document.get("Statement") or NOTHING
        for statement in statements.items or [statements]:
            effect = template.text_of(statement, "Effect") or "Allow"
            if isinstance(statement, Mapping) and effect == "Allow":
                yield statement


def _find_documents(resource: Resource) -> Iterator[Node]:
    policies = resource.get("Policies")
    for policy in policies.items or [policies]:
        # In SAM a policy of the list is the document itself.
        yield policy.get("PolicyDocument") or policy
    yield resource.get("PolicyDocument")


def _is_permissive(action: str) -> bool:
    service, _, verb = action.lower().partition(":")
    return action == "*" or (verb == "*" and (service == "*" or service in _SENSITIVE_SERVICES))


def _find_unchecked(template: Template) -> Iterator[Unseen]:
    """Yield the policies in which a whole action, or a whole resource, is unknown.

    An ARN of which only a part is unknown still names one resource.
    """
    for resource in template.of_type(*_TYPES_WITH_POLICIES):
        for statement in _allow_statements(template, resource):
            for node in _deciding_nodes(template, statement):
                is_unknown = UNKNOWN_LINE.fullmatch(template.lines(node).text)
                reason = explain_unknown(template, node) if is_unknown else ""
                if reason:
                    yield Unseen(KIND, f"a policy of {resource.name}: {reason}")


def _deciding_nodes(template: Template, statement: Node) -> list[Node]:
    """Return the actions of a statement, and its resources if they matter."""
    actions = statement.get("Action") or NOTHING
    is_permissive = statement.get("NotAction") is not None or any(
        map(_is_permissive, template.known_texts(actions))
    )
    targets = _items_or_node(statement.get("Resource") or NOTHING) if is_permissive else []
    return [*_items_or_node(actions), *targets]


def _items_or_node(node: Node) -> list[Node]:
    return node.items if function_call(node) is None and node.items else [node]


check = TemplateCheck(
    (KIND,),
    find,
    (
        ("AWS::IAM::Role", "ManagedPolicyArns"),
        ("AWS::IAM::User", "ManagedPolicyArns"),
        ("AWS::IAM::Group", "ManagedPolicyArns"),
        *((kind, "PolicyDocument") for kind in _TYPES_WITH_POLICIES),
        *((kind, "Policies.*.PolicyDocument") for kind in _TYPES_WITH_POLICIES),
    ),
    _find_unchecked,
)
