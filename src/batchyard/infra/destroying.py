"""Delete the stacks of an environment and their contents, in the reverse order of imports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchyard.aws.cloudformation import CloudFormation
from batchyard.aws.holdings import Holding, Holdings
from batchyard.aws.session import AccessDeniedError
from batchyard.infra import STANDALONE, catalogue
from batchyard.infra.catalogue import Template
from batchyard.infra.stacks import Dialog, StackFailedError, Stacks
from batchyard.units import pluralize

_DELETED = "DELETE_COMPLETE"


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
