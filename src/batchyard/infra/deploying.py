"""Deploy, compare and destroy the stacks of an environment, in the order of their imports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchyard.aws.cloudformation import CloudFormation
from batchyard.aws.holdings import Holding, Holdings
from batchyard.aws.session import AccessDeniedError
from batchyard.errors import InputError, OperationalError
from batchyard.infra import STANDALONE, catalogue, changes
from batchyard.infra.catalogue import Template
from batchyard.infra.stacks import (
    CREATION_FAILED,
    REVIEW,
    DeclinedError,
    Dialog,
    PreparedChange,
    StackFailedError,
    Stacks,
    SupersededError,
    outputs_of,
)
from batchyard.units import pluralize

_DELETED = "DELETE_COMPLETE"
#: How often a change is planned if others change the same stack at the same time.
_MAX_PLANS = 5
_EXPORT_HINT = (
    "deploy the stacks that use it once without this change, since newer templates may not use it;"
    " else `batchyard destroy` them, then deploy both"
)


#: template -> the services of AWS whose own roles it needs, and that only AWS's console creates
_SERVICE_ROLES = {"spotfleet": ("spot.amazonaws.com", "spotfleet.amazonaws.com")}
#: Creates the service-linked role of a service; returns False if the account has it.
CreateRole = Callable[[str], bool]


def check_arguments(
    templates: Sequence[Template], environment: str, settings: Mapping[str, str]
) -> None:
    """Check everything that needs no call of AWS. Raises InputError."""
    catalogue.check_environment(environment)
    catalogue.check_settings(templates, settings)


def require_imports(aws: CloudFormation, templates: Sequence[Template], environment: str) -> None:
    """Raise InputError if a template imports a value that no stack exports."""
    exports = frozenset(export["Name"] for export in aws.exports())
    for name, missing in catalogue.find_missing(templates, environment, exports).items():
        complete = catalogue.add_missing(templates, environment, exports)
        names = " ".join(template.name for template in complete)
        raise InputError(
            f"{name} needs what {', '.join(missing)} would make, and that is not deployed in"
            f" {environment!r}",
            hint=f"`batchyard deploy {names} --env {environment}`",
        )


def deploy(
    stacks: Stacks,
    dialog: Dialog,
    templates: Sequence[Template],
    environment: str,
    settings: Mapping[str, str],
    tags: Mapping[str, str] | None = None,
    *,
    create_role: CreateRole | None = None,
) -> int:
    """Deploy the templates one after the other, and return the number of changed stacks.

    ``create_role`` is called for the service-linked roles that a template needs. Raises
    DeclinedError if the user declines a change, StackFailedError if AWS rolls one back.
    """
    changed = 0
    for template in templates:
        for _ in range(_MAX_PLANS):
            try:
                changed += _deploy_template(
                    stacks, dialog, template, environment, settings, tags, create_role
                )
                break
            except SupersededError as exc:
                dialog.say(f"{exc.message}; planning the change again")
        else:
            raise OperationalError(
                f"{template.stack_of(environment)} is being changed by others all the time",
                hint="run the same command again when nobody else deploys",
            )
    return changed


def _deploy_template(
    stacks: Stacks,
    dialog: Dialog,
    template: Template,
    environment: str,
    settings: Mapping[str, str],
    tags: Mapping[str, str] | None,
    create_role: CreateRole | None,
) -> bool:
    """Deploy a template, and return whether its stack changed.

    Raises SupersededError if somebody else has changed the stack between plan and execution.
    """
    prepared = stacks.prepare(template, environment, settings, tags)
    if prepared is None:
        dialog.say(f"{template.stack_of(environment)}: nothing to do")
        return False
    try:
        dialog.show_changes(prepared.stack, prepared.changes, prepared.parameters)
        obstacle = _find_used_export(stacks, template, prepared, environment)
        if obstacle:
            raise InputError(obstacle, hint=_EXPORT_HINT)
        if not dialog.ask(f"make this change to {prepared.stack}?"):
            raise DeclinedError(f"{prepared.stack} is left as it is")
    except BaseException:
        stacks.discard(prepared)
        raise
    if create_role is not None:
        _create_roles(dialog, template, prepared.stack, create_role)
    stacks.execute(prepared)
    return True


def _create_roles(dialog: Dialog, template: Template, stack: str, create_role: CreateRole) -> None:
    """Create the service-linked roles that a template needs and the account lacks."""
    for service in _SERVICE_ROLES.get(template.name, ()):
        try:
            if create_role(service):
                dialog.say(f"{stack}: created the service-linked role of {service}")
        except AccessDeniedError:
            # The role may exist: AWS does not tell those who may not create it.
            command = f"aws iam create-service-linked-role --aws-service-name {service}"
            dialog.say(
                f"{stack}: you may not create the service-linked role of {service}; if no node"
                f" starts, ask an administrator of the account for `{command}`"
            )


def diff(
    stacks: Stacks,
    dialog: Dialog,
    templates: Sequence[Template],
    environment: str,
    settings: Mapping[str, str],
    tags: Mapping[str, str] | None = None,
) -> int:
    """Show what `deploy` would change, and return the number of stacks that would change."""
    differing = 0
    for template in templates:
        stack = stacks.find(template.stack_of(environment))
        status = stack["StackStatus"] if stack else REVIEW
        if status in (REVIEW, *CREATION_FAILED):
            _show_creation(dialog, template, environment, settings, status)
            differing += 1
            continue
        prepared = stacks.prepare(template, environment, settings, tags)
        if prepared is None:
            dialog.say(f"{template.stack_of(environment)}: nothing to do")
            continue
        try:
            dialog.show_changes(prepared.stack, prepared.changes, prepared.parameters)
            obstacle = _find_used_export(stacks, template, prepared, environment)
            if obstacle:
                dialog.say(f"{obstacle}: {_EXPORT_HINT}")
        finally:
            stacks.discard(prepared)
        differing += 1
    return differing


def _show_creation(
    dialog: Dialog,
    template: Template,
    environment: str,
    settings: Mapping[str, str],
    status: str,
) -> None:
    """Show a stack that does not exist, as its template describes it.

    A change set would need an empty stack, and the imports of the template may not exist yet.
    """
    name = template.stack_of(environment)
    if status in CREATION_FAILED:
        dialog.say(
            f"{name}: an earlier attempt failed; `deploy` deletes what is left and makes it anew"
        )
    values = catalogue.effective_values(template, environment, settings, {})
    resources = catalogue.active_resources(template, values)
    dialog.show_changes(name, changes.from_resources(resources), {})


def _find_used_export(
    stacks: Stacks, template: Template, prepared: PreparedChange, environment: str
) -> str:
    """Return why AWS will refuse the change: an export that changes is in use. Else empty."""
    exports = changes.changed_exports(template, prepared.changes, prepared.parameters)
    names = (export.replace("${Env}", environment) for export in exports)
    for export, importers in stacks.find_importers(names).items():
        if importers:
            users = ", ".join(importers)
            return f"{prepared.stack}: AWS does not change {export} while {users} uses it"
    return _find_used_subnet(stacks, prepared, environment)


def _find_used_subnet(stacks: Stacks, prepared: PreparedChange, environment: str) -> str:
    """Return why a subnet cannot be removed: nodes of other stacks may be in it. Else empty."""
    removed = [
        change.name
        for change in prepared.changes
        if change.kind == "AWS::EC2::Subnet" and change.action is changes.Action.REMOVE
    ]
    nodes = [name for name in removed if name != "NatSubnet"]
    groups = stacks.find_importers([f"{environment}-security-group"]) if nodes else {}
    users = ", ".join(name for names in groups.values() for name in names)
    return f"{prepared.stack}: {', '.join(nodes)} may have nodes of {users}" if users else ""


def read_outputs(stacks: Stacks, environment: str) -> dict[str, dict[str, str]]:
    """Return template -> the outputs of its stack, for all deployed stacks with outputs."""
    outputs = {}
    for template in catalogue.all_templates():
        stack = stacks.find(template.stack_of(environment))
        if stack and outputs_of(stack):
            outputs[template.name] = outputs_of(stack)
    return outputs


# -- destroy -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StackToDelete:
    template: Template
    stack: str
    stack_id: str
    status: str
    #: The contents of its buckets, repositories, log groups and queues.
    holdings: tuple[Holding, ...]
    #: All buckets and repositories, also empty ones: jobs may write until their queue is deleted.
    buckets: tuple[str, ...]
    repositories: tuple[str, ...]
    #: Type and physical id of every resource.
    resources: tuple[tuple[str, str], ...] = ()


def find_stacks_to_delete(
    stacks: Stacks,
    aws: CloudFormation,
    holdings: Holdings,
    templates: Sequence[Template],
    environment: str,
) -> list[StackToDelete]:
    """Return the deployed stacks with their contents, in the order in which they can be deleted."""
    to_delete = []
    named_templates = (
        (name, template)
        for template in reversed(templates)
        for name in _list_stack_names(stacks, template, environment, len(templates) == 1)
    )
    for name, template in named_templates:
        stack = stacks.wait_until_idle(name) or stacks.find(name)
        if stack is None:
            continue
        to_delete.append(describe_stack_to_delete(aws, holdings, template, stack))
    deployed = [entry.template for entry in to_delete]
    services = _find_services_to_delete(stacks, aws, holdings, deployed, environment)
    return [*services, *to_delete]


def _find_services_to_delete(
    stacks: Stacks,
    aws: CloudFormation,
    holdings: Holdings,
    deployed: Sequence[Template],
    environment: str,
) -> list[StackToDelete]:
    """Return the stacks of services on the clusters of these templates."""
    exports = [
        export
        for template in deployed
        for export in template.exports_of(environment)
        if export in (f"{environment}-ecs-cluster", f"{environment}-spotfleet-cluster")
    ]
    importers = {name for names in stacks.find_importers(exports).values() for name in names}
    to_delete = []
    for name in sorted(importers):
        stack = aws.stack(name)
        description = stack.get("Description", "") if stack else ""
        if stack and description.startswith(catalogue.SERVICE_MARK):
            template = Template(name, "", description, {}, (), frozenset(), frozenset())
            to_delete.append(describe_stack_to_delete(aws, holdings, template, stack))
    return to_delete


def describe_stack_to_delete(
    aws: CloudFormation, holdings: Holdings, template: Template, stack: Mapping[str, Any]
) -> StackToDelete:
    """Return a stack with its contents."""
    resources = [
        (resource["ResourceType"], resource["PhysicalResourceId"])
        for resource in aws.resources(stack["StackId"])
        if resource["ResourceStatus"] != _DELETED and resource.get("PhysicalResourceId")
    ]
    contents = [holdings.of(kind, name) for kind, name in resources]
    clusters = [name for kind, name in resources if kind == "AWS::ECS::Cluster"]
    contents += [holding for name in clusters for holding in holdings.services_on(name)]
    return StackToDelete(
        template,
        stack["StackName"],
        stack["StackId"],
        stack["StackStatus"],
        tuple(filter(None, contents)),
        tuple(name for kind, name in resources if kind == "AWS::S3::Bucket"),
        tuple(name for kind, name in resources if kind == "AWS::ECR::Repository"),
        tuple(resources),
    )


def _list_stack_names(
    stacks: Stacks, template: Template, environment: str, is_only: bool
) -> list[str]:
    """Return the names that the stack of a template may have.

    `sam deploy` gives the benchmark's stack a name of the user's choice, without the template's.
    ``is_only``: whether the user named this template alone.
    """
    names = [template.stack_of(environment)]
    if template.name != STANDALONE:
        return names
    try:
        is_named_by_user = stacks.find_by_title(environment, template.title) is not None
    except AccessDeniedError:
        # The administrator policy of an environment is about stacks that begin with `NAME-`.
        if is_only:
            raise
        return names
    return [*names, environment] if is_named_by_user else names


def find_outside_importers(
    stacks: Stacks, to_delete: Sequence[StackToDelete], environment: str
) -> dict[str, list[str]]:
    """Return export -> the stacks that import it and are not deleted."""
    deleted = {entry.stack for entry in to_delete}
    exports = (name for entry in to_delete for name in entry.template.exports_of(environment))
    remaining = {
        export: [importer for importer in importers if importer not in deleted]
        for export, importers in stacks.find_importers(exports).items()
    }
    return {export: importers for export, importers in remaining.items() if importers}


def find_obstacles(
    to_delete: Sequence[StackToDelete],
    importers: Mapping[str, Sequence[str]],
    *,
    empty_buckets: bool,
    delete_images: bool,
) -> list[str]:
    """Return what prevents the deletion of the stacks, each with what to do."""
    obstacles = [
        f"the export {export} is in use by {', '.join(names)}: delete or change that first"
        for export, names in importers.items()
    ]
    for holding in (holding for entry in to_delete for holding in entry.holdings):
        if holding.kind == "bucket" and not empty_buckets:
            obstacles.append(
                f"the bucket {holding.name} is not empty: --empty-buckets deletes what is in it"
            )
        if holding.kind == "repository" and not delete_images:
            obstacles.append(
                f"the repository {holding.name} holds images: --delete-images deletes them"
            )
    return obstacles


def destroy(
    stacks: Stacks,
    holdings: Holdings,
    dialog: Dialog,
    to_delete: Sequence[StackToDelete],
    environment: str,
    *,
    empty_buckets: bool,
    delete_images: bool,
    release: Callable[[StackToDelete], None] = lambda entry: None,
) -> None:
    """Delete the stacks in this order, the contents of each just before it.

    ``release`` is called for each stack before it is deleted, and ends what runs on its cluster.
    The last jobs write until their queue is deleted. After an interruption the same call continues.
    """
    for entry in to_delete:
        _delete_contents(holdings, dialog, entry, empty_buckets, delete_images)
        release(entry)
        try:
            stacks.delete(entry.stack, entry.stack_id)
        except StackFailedError:
            # A job may have written to a bucket of its own stack until its queue was deleted.
            if not _delete_contents(holdings, dialog, entry, empty_buckets, delete_images):
                raise
            stacks.delete(entry.stack, entry.stack_id)
        if entry.template.name == "batch":
            # Runs register job definitions under the environment's name; no stack contains them.
            count = holdings.deregister(f"{environment}_")
            if count:
                definitions = pluralize(count, "job definition")
                dialog.say(f"{entry.stack}: {definitions} of runs deregistered")


def _delete_contents(
    holdings: Holdings,
    dialog: Dialog,
    entry: StackToDelete,
    empty_buckets: bool,
    delete_images: bool,
) -> int:
    """Delete what the stack's buckets and repositories hold; return the number of deletions."""
    deleted = 0
    for bucket in entry.buckets if empty_buckets else ():
        count = holdings.empty_bucket(bucket)
        dialog.say(f"{entry.stack}: {pluralize(count, 'object')} deleted from {bucket}")
        deleted += count
    for repository in entry.repositories if delete_images else ():
        count = holdings.delete_images(repository)
        dialog.say(f"{entry.stack}: {pluralize(count, 'image')} deleted from {repository}")
        deleted += count
    return deleted
