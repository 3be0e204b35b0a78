"""An environment's stacks together: deploying them in order, what would change, destroying them backwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchyard.aws.cloudformation import CloudFormation
from batchyard.aws.holdings import Holding, Holdings
from batchyard.errors import InputError
from batchyard.infra import catalogue, changes
from batchyard.infra.catalogue import Template
from batchyard.infra.stacks import (
    REVIEW,
    STILLBORN,
    DeclinedError,
    Front,
    Prepared,
    Stacks,
    outputs_of,
)
from batchyard.units import pluralize

_GONE = "DELETE_COMPLETE"
_HELD_HINT = (
    "`batchyard destroy` the stacks that use it, then deploy both; or make another environment"
)


def check(templates: Sequence[Template], environment: str, settings: Mapping[str, str]) -> None:
    """Everything that can be known without AWS. Raises InputError."""
    catalogue.check_environment(environment)
    catalogue.check_settings(templates, settings)


def require_imports(aws: CloudFormation, templates: Sequence[Template], environment: str) -> None:
    """Raises InputError where a template imports what nobody exports."""
    there = frozenset(export["Name"] for export in aws.exports())
    for name, others in catalogue.missing(templates, environment, there).items():
        together = " ".join(one.name for one in catalogue.completed(templates, environment, there))
        raise InputError(
            f"{name} needs what {', '.join(others)} would make, and that is not deployed in {environment!r}",
            hint=f"`batchyard deploy {together} --env {environment}`",
        )


def deploy(
    stacks: Stacks,
    front: Front,
    templates: Sequence[Template],
    environment: str,
    settings: Mapping[str, str],
) -> int:
    """Stack by stack, since each imports what those before it export. Returns how many were changed."""
    changed = 0
    for template in templates:
        prepared = stacks.prepare(template, environment, settings)
        if prepared is None:
            front.say(f"{template.stack_of(environment)}: nothing to do")
            continue
        try:
            front.show_changes(prepared.stack, prepared.changes, prepared.parameters)
            obstacle = _held(stacks, template, prepared, environment)
            if obstacle:
                raise InputError(obstacle, hint=_HELD_HINT)
            if not front.ask(f"make this change to {prepared.stack}?"):
                raise DeclinedError(f"{prepared.stack} is left as it is")
        except BaseException:
            stacks.discard(prepared)
            raise
        stacks.carry_out(prepared)
        changed += 1
    return changed


def diff(
    stacks: Stacks,
    front: Front,
    templates: Sequence[Template],
    environment: str,
    settings: Mapping[str, str],
) -> int:
    """Shows what `deploy` would do, and leaves nothing behind. Returns how many stacks would change."""
    differing = 0
    for template in templates:
        name = template.stack_of(environment)
        stack = stacks.find(template, environment)
        if stack is None or stack["StackStatus"] in (REVIEW, *STILLBORN):
            # From the template: a change set would need an empty stack, and imports may be missing yet.
            if stack and stack["StackStatus"] in STILLBORN:
                front.say(
                    f"{name}: an earlier attempt failed; `deploy` deletes what is left and makes it anew"
                )
            front.show_changes(name, changes.from_template(template), {})
            differing += 1
            continue
        prepared = stacks.prepare(template, environment, settings)
        if prepared is None:
            front.say(f"{name}: nothing to do")
            continue
        try:
            front.show_changes(name, prepared.changes, prepared.parameters)
            obstacle = _held(stacks, template, prepared, environment)
            if obstacle:
                front.say(f"{obstacle}: {_HELD_HINT}")
        finally:
            stacks.discard(prepared)
        differing += 1
    return differing


def _held(stacks: Stacks, template: Template, prepared: Prepared, environment: str) -> str:
    """Why AWS will not make the change: an export that would change is in use. Empty where none is."""
    would_change = changes.changed_exports(template, prepared.changes, prepared.parameters)
    for export, users in stacks.users_of(
        name.replace("${Env}", environment) for name in would_change
    ).items():
        if users:
            return (
                f"{prepared.stack}: AWS does not change {export} while {', '.join(users)} uses it"
            )
    return ""


def outputs(stacks: Stacks, environment: str) -> dict[str, dict[str, str]]:
    """Template -> its stack's outputs, of those that are deployed."""
    found = {
        template.name: stacks.find(template, environment) for template in catalogue.everything()
    }
    return {name: outputs_of(stack) for name, stack in found.items() if stack and outputs_of(stack)}


# -- destroying -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Doomed:
    template: Template
    stack: str
    stack_id: str
    status: str
    holdings: tuple[Holding, ...]
    #: whatever they hold now or then
    buckets: tuple[str, ...]
    repositories: tuple[str, ...]


def survey(
    stacks: Stacks,
    aws: CloudFormation,
    holdings: Holdings,
    templates: Sequence[Template],
    environment: str,
) -> list[Doomed]:
    """The stacks that are there, in the order in which they can go, with what they hold."""
    found = []
    for template in reversed(templates):
        stack = stacks.settled(template, environment) or stacks.find(template, environment)
        if stack is None:
            continue
        resources = [
            (one["ResourceType"], one["PhysicalResourceId"])
            for one in aws.resources(stack["StackId"])
            if one["ResourceStatus"] != _GONE and one.get("PhysicalResourceId")
        ]
        held = tuple(filter(None, (holdings.of(kind, name) for kind, name in resources)))
        buckets = tuple(name for kind, name in resources if kind == "AWS::S3::Bucket")
        repositories = tuple(name for kind, name in resources if kind == "AWS::ECR::Repository")
        found.append(
            Doomed(
                template,
                stack["StackName"],
                stack["StackId"],
                stack["StackStatus"],
                held,
                buckets,
                repositories,
            )
        )
    return found


def outside_users(
    stacks: Stacks, doomed: Sequence[Doomed], environment: str
) -> dict[str, list[str]]:
    """Export -> the stacks that use it and would stay."""
    going = {one.stack for one in doomed}
    ours = (name for one in doomed for name in one.template.exports_of(environment))
    staying = {
        name: [user for user in users if user not in going]
        for name, users in stacks.users_of(ours).items()
    }
    return {name: users for name, users in staying.items() if users}


def obstacles(
    doomed: Sequence[Doomed],
    users: Mapping[str, Sequence[str]],
    *,
    empty_buckets: bool,
    delete_images: bool,
) -> list[str]:
    """What keeps the stacks from being deleted, each with what to do."""
    found = [
        f"the export {name} is in use by {', '.join(others)}: delete or change that first"
        for name, others in users.items()
    ]
    for held in (held for one in doomed for held in one.holdings):
        if held.kind == "bucket" and not empty_buckets:
            found.append(
                f"the bucket {held.name} is not empty: --empty-buckets deletes what is in it"
            )
        if held.kind == "repository" and not delete_images:
            found.append(f"the repository {held.name} holds images: --delete-images deletes them")
    return found


def destroy(
    stacks: Stacks,
    holdings: Holdings,
    front: Front,
    doomed: Sequence[Doomed],
    environment: str,
    *,
    empty_buckets: bool,
    delete_images: bool,
) -> None:
    """Deletes the stacks in this order, what they hold just before each: the last jobs write until their queue is gone.
    Interrupted and begun again, it goes on."""
    for one in doomed:
        for bucket in one.buckets if empty_buckets else ():
            front.say(
                f"{one.stack}: {pluralize(holdings.empty_bucket(bucket), 'object')} deleted from {bucket}"
            )
        for repository in one.repositories if delete_images else ():
            front.say(
                f"{one.stack}: {pluralize(holdings.delete_images(repository), 'image')} deleted from {repository}"
            )
        stacks.delete(one.stack, one.stack_id)
        if one.template.name == "batch":
            # Runs have registered them under the environment's name; no stack knows them.
            count = holdings.deregister(f"{environment}_")
            if count:
                front.say(f"{one.stack}: {pluralize(count, 'job definition')} of runs deregistered")
