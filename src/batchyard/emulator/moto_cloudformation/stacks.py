"""Stacks and change sets as moto's operations use them. They keep the last change that succeeded.

moto 5.2.5: computes a stack's outputs and exports whenever somebody reads them, from whatever the
last change left behind, and compares templates without parameters and conditions.
"""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlparse

from moto.cloudformation import models, parsing
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.utils import get_stack_from_s3_url
from moto.utilities.utils import get_partition

from batchyard.emulator.moto_cloudformation import templates
from batchyard.emulator.moto_cloudformation.resource_model import ResourceError
from batchyard.emulator.moto_cloudformation.stack_resources import StackResources

Document = dict[str, Any]


class Stack(models.Stack):
    """A stack with the resources, outputs and exports of its last successful change."""

    stack_status_reason: str | None = None
    resource_map: StackResources
    #: resources of a change that waits for one of them; None if no change waits
    unsettled_resources: StackResources | None = None

    def __init__(self, **members: Any) -> None:
        self.saved_outputs: list[Document] = []
        self.saved_exports: list[parsing.Export] = []
        super().__init__(template={}, **members)

    def _create_resource_map(self) -> StackResources:
        return self.load_resources({}, self.parameters)

    def load_resources(self, template: Document, parameters: dict[str, Any]) -> StackResources:
        """Return the resources that a template describes; raise if it or a parameter is invalid."""
        backend = models.cloudformation_backends[self.account_id][self.region_name]
        resources = StackResources(
            stack_id=self.stack_id,
            stack_name=self.name,
            parameters=parameters,
            tags=self.tags,
            account_id=self.account_id,
            region_name=self.region_name,
            template=template,
            cross_stack_resources=backend.exports,
        )
        resources.load()
        return resources

    @property
    def template_description(self) -> str | None:
        """The description that ListStacks shows, also of a stack whose creation failed."""
        description: str | None = self.description
        return description

    @property
    def outputs(self) -> list[Document] | None:
        return self.saved_outputs or None

    @property
    def exports(self) -> list[parsing.Export]:
        return self.saved_exports

    @property
    def stack_parameters(self) -> Document:
        """The parameters as the caller gave them, for UsePreviousValue."""
        return dict(self.resource_map.input_parameters)

    def changed_values(self, template: Document, parameters: Document) -> list[str]:
        """Return the parameters of SSM whose values have changed since they were resolved.

        CloudFormation resolves them anew for each change. moto 5.2.5: compares their names.
        """
        declared = template.get("Parameters", {})
        names = [name for name in declared if declared[name]["Type"].startswith("AWS::SSM::")]
        if not names:
            return []
        new_values = self.load_resources(template, parameters).resolved_parameters
        old_values = self.resource_map.resolved_parameters
        return [name for name in names if new_values[name] != old_values.get(name)]

    @property
    def parameter_list(self) -> list[Document]:
        # moto 5.2.5: shows the value of a NoEcho parameter.
        hidden = self.resource_map.no_echo_parameter_keys
        return [
            {"ParameterKey": name, "ParameterValue": "****" if name in hidden else value}
            for name, value in self.stack_parameters.items()
        ]

    def begin_operation(self, status: str, reason: str = "User Initiated") -> None:
        self.status = status
        self._add_stack_event(status, reason)

    def end_operation(self, status: str, reason: str | None = None) -> None:
        self.status, self.stack_status_reason = status, reason
        self._add_stack_event(status, reason)

    def roll_back(self, verb: str, reason: str, *, is_undone: bool) -> None:
        """Take the status and events of a change that failed; ``verb`` is CREATE or UPDATE."""
        rollback = "ROLLBACK" if verb == "CREATE" else "UPDATE_ROLLBACK"
        self.begin_operation(f"{rollback}_IN_PROGRESS", reason)
        self.end_operation(f"{rollback}_{'COMPLETE' if is_undone else 'FAILED'}", reason)

    def add_event(
        self, logical_id: str, physical_id: str, resource_type: str, status: str, reason: str
    ) -> None:
        """Add an event of a resource, or of the stack itself where ``logical_id`` is empty."""
        self.events.append(
            models.Event(
                stack_id=self.stack_id,
                stack_name=self.name,
                logical_resource_id=logical_id or self.name,
                physical_resource_id=physical_id,
                resource_type=resource_type or "AWS::CloudFormation::Stack",
                resource_status=status,
                resource_status_reason=reason or None,
                resource_properties=None,
            )
        )

    def save_change(
        self, text: str, template: Document, resources: StackResources, outputs: parsing.OutputMap
    ) -> None:
        """Take over the template, resources, outputs and exports of a change that succeeded."""
        self.template, self.template_dict = text, template
        self.description = template.get("Description")
        self.resource_map, self.output_map = resources, outputs
        self.parameters = resources.caller_parameters
        export_names = {export.value: export.name for export in outputs.exports}
        self.saved_exports = outputs.exports
        self.saved_outputs = [
            {
                "OutputKey": output.key,
                "OutputValue": output.value,
                "Description": output.description,
                "ExportName": export_names.get(output.value),
            }
            for output in outputs.values()
            if output
        ]

    # -- a stack as a resource of another stack ----------------------------------------------------
    # moto 5.2.5: ignores the failure of a nested stack, and replaces it instead of updating it.

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    def is_created(self) -> bool:
        return True

    @property
    def physical_resource_id(self) -> str:
        return self.stack_id

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        for output in self.saved_outputs:
            if attribute_name == f"Outputs.{output['OutputKey']}":
                return output["OutputValue"]
        raise ResourceError(f"the stack {self.name} has no {attribute_name}")

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
        **kwargs: Any,
    ) -> models.Stack:
        properties = cloudformation_json["Properties"]
        partition = get_partition(region_name)
        text = read_template_from_s3(properties["TemplateURL"], account_id, partition)
        backend = models.cloudformation_backends[account_id][region_name]
        # A nested stack does not wait for its services.
        stack = backend.create_stack(  # type: ignore[call-arg]
            name=resource_name,
            template=text,
            parameters=_parameter_texts(properties),
            waits=False,
        )
        assert isinstance(stack, Stack)
        if stack.status != "CREATE_COMPLETE":
            backend.delete_stack(stack.stack_id)
            raise ResourceError(f"the nested stack {stack.name}: {stack.stack_status_reason}")
        return stack

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Document,
        account_id: str,
        region_name: str,
    ) -> Stack:
        properties = cloudformation_json["Properties"]
        partition = get_partition(region_name)
        text = read_template_from_s3(properties["TemplateURL"], account_id, partition)
        backend: Any = models.cloudformation_backends[account_id][region_name]
        stack = original_resource
        assert isinstance(stack, Stack)
        backend.change_stack(stack, text, _parameter_texts(properties), "UPDATE")
        if stack.status != "UPDATE_COMPLETE":
            raise ResourceError(f"the nested stack {stack.name}: {stack.stack_status_reason}")
        return stack


def _parameter_texts(properties: Document) -> dict[str, str]:
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in properties.get("Parameters", {}).items()
    }


class ChangeSet(models.ChangeSet):
    """A change set that also shows what changed parameters and conditions do."""

    def _parse_template(self) -> None:
        self.template_dict = parse_template(self.template)

    def diff(self) -> list[models.Change]:
        old_parameters = self.stack.stack_parameters
        changed_parameters = [
            name for name, value in self.parameters.items() if old_parameters.get(name) != value
        ]
        assert isinstance(self.stack, Stack)
        changed_parameters += self.stack.changed_values(self.template_dict, self.parameters)
        old, new = self.stack.template_dict, self.template_dict
        types = {**old.get("Resources", {}), **new["Resources"]}
        # A resource whose condition is false is not in the stack, though it is in the template.
        new_names = self.stack.load_resources(new, self.parameters).active_names()
        existing = self.stack.resource_map.existing
        modified = templates.find_modified(old, new, changed_parameters)
        names_by_action = {
            "Add": [name for name in new_names if name not in existing],
            "Modify": [name for name in new_names if name in existing and name in modified],
            "Remove": [name for name in existing if name not in new_names],
        }
        return [
            models.Change(action, name, types[name]["Type"])
            for action, names in names_by_action.items()
            for name in names
        ]


def parse_template(text: str) -> Document:
    try:
        return templates.parse(text)
    except templates.TemplateError as exc:
        raise ValidationError(message=str(exc)) from exc


def read_template_from_s3(url: str, account_id: str, partition: str) -> str:
    """Return the text of a template in moto's S3.

    moto 5.2.5: takes the 127 of 127.0.0.1 for a bucket, and does not read `bucket.localhost`.
    """
    parts = urlparse(url)
    host = parts.hostname or ""
    if host.endswith(".localhost"):
        url = f"http://localhost/{host.removesuffix('.localhost')}{parts.path}"
    elif _is_ip_address(host):
        url = f"http://localhost{parts.path}"
    return get_stack_from_s3_url(url, account_id, partition)


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
