"""Deploy and compare the stacks of an environment, in the order of their imports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from batchyard.aws.cloudformation import CloudFormation
from batchyard.aws.session import AccessDeniedError
from batchyard.errors import InputError, OperationalError
from batchyard.infra import catalogue, changes
from batchyard.infra.catalogue import Template
from batchyard.infra.stacks import (
    CREATION_FAILED,
    REVIEW,
    DeclinedError,
    Dialog,
    PreparedChange,
    Stacks,
    SupersededError,
    outputs_of,
)

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
