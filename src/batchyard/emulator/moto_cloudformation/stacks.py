"""Stacks and change sets as moto's operations handle them, over changes that go through or leave nothing behind."""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlparse

from moto.cloudformation import models, parsing
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.utils import get_stack_from_s3_url
from moto.utilities.utils import get_partition

from batchyard.emulator.moto_cloudformation import templates
from batchyard.emulator.moto_cloudformation.changes import Resources
from batchyard.emulator.moto_cloudformation.own_model import Refused

Document = dict[str, Any]


class Stack(models.Stack):
    """A stack whose resources, outputs and exports are those of its last change that went through."""

    stack_status_reason: str | None = None
    resource_map: Resources

    def __init__(self, **members: Any) -> None:
        self.kept_outputs: list[Document] = []
        self.kept_exports: list[parsing.Export] = []
        super().__init__(template={}, **members)

    def _create_resource_map(self) -> Resources:
        return self.read({}, self.parameters)

    def read(self, template: Document, parameters: dict[str, Any]) -> Resources:
        """The resources that a template asks for; raises where it or a parameter is wrong."""
        resources = Resources(
            stack_id=self.stack_id,
            stack_name=self.name,
            parameters=parameters,
            tags=self.tags,
            account_id=self.account_id,
            region_name=self.region_name,
            template=template,
            cross_stack_resources=models.cloudformation_backends[self.account_id][
                self.region_name
            ].exports,
        )
        resources.load()
        return resources

    @property
    def template_description(self) -> str | None:
        """For ListStacks, which tells it also of a stack that could not be made, and so keeps no template."""
        found: str | None = self.description
        return found

    @property
    def outputs(self) -> list[Document] | None:
        return self.kept_outputs or None

    @property
    def exports(self) -> list[parsing.Export]:
        return self.kept_exports

    @property
    def stack_parameters(self) -> Document:
        """As they were given, so that they can be given again."""
        return dict(self.resource_map.input_parameters)

    @property
    def parameter_list(self) -> list[Document]:
        hidden = self.resource_map.no_echo_parameter_keys
        return [
            {"ParameterKey": name, "ParameterValue": "****" if name in hidden else value}
            for name, value in self.stack_parameters.items()
        ]

    def begin(self, status: str, reason: str = "User Initiated") -> None:
        self.status = status
        self._add_stack_event(status, reason)

    def end(self, status: str, reason: str | None = None) -> None:
        self.status, self.stack_status_reason = status, reason
        self._add_stack_event(status, reason)

    def note(self, logical_id: str, physical_id: str, kind: str, status: str, reason: str) -> None:
        self.events.append(
            models.Event(
                stack_id=self.stack_id,
                stack_name=self.name,
                logical_resource_id=logical_id or self.name,
                physical_resource_id=physical_id,
                resource_type=kind or "AWS::CloudFormation::Stack",
                resource_status=status,
                resource_status_reason=reason or None,
                resource_properties=None,
            )
        )

    def keep(
        self, text: str, template: Document, resources: Resources, outputs: parsing.OutputMap
    ) -> None:
        self.template, self.template_dict = text, template
        self.description = template.get("Description")
        self.resource_map, self.output_map = resources, outputs
        self.parameters = resources.given
        names = {export.value: export.name for export in outputs.exports}
        self.kept_exports = outputs.exports
        self.kept_outputs = [
            {
                "OutputKey": output.key,
                "OutputValue": output.value,
                "Description": output.description,
                "ExportName": names.get(output.value),
            }
            for output in outputs.values()
            if output
        ]

    # -- a stack as a resource of another one ---------------------------------------------------------------

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    def is_created(self) -> bool:
        return True

    @property
    def physical_resource_id(self) -> str:
        return self.stack_id

    def get_cfn_attribute(self, attribute_name: str) -> Any:
        for output in self.kept_outputs:
            if attribute_name == f"Outputs.{output['OutputKey']}":
                return output["OutputValue"]
        raise Refused(f"the stack {self.name} has no {attribute_name}")

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
        text = from_s3(properties["TemplateURL"], account_id, get_partition(region_name))
        backend = models.cloudformation_backends[account_id][region_name]
        made = backend.create_stack(
            name=resource_name, template=text, parameters=_texts(properties)
        )
        assert isinstance(made, Stack)
        if made.status != "CREATE_COMPLETE":
            backend.delete_stack(made.stack_id)
            raise Refused(f"the nested stack {made.name}: {made.stack_status_reason}")
        return made

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
        text = from_s3(properties["TemplateURL"], account_id, get_partition(region_name))
        backend: Any = models.cloudformation_backends[account_id][region_name]
        assert isinstance(original_resource, Stack)
        backend.change(original_resource, text, _texts(properties), "UPDATE")
        if original_resource.status != "UPDATE_COMPLETE":
            raise Refused(
                f"the nested stack {original_resource.name}: {original_resource.stack_status_reason}"
            )
        return original_resource


def _texts(properties: Document) -> dict[str, str]:
    given = properties.get("Parameters", {})
    return {
        name: ",".join(map(str, v)) if isinstance(v, list) else str(v) for name, v in given.items()
    }


class ChangeSet(models.ChangeSet):
    """What a change would do; unlike moto's it sees changed parameters too."""

    def _parse_template(self) -> None:
        self.template_dict = parsed(self.template)

    def diff(self) -> list[models.Change]:
        before = self.stack.stack_parameters
        changed = [name for name, value in self.parameters.items() if before.get(name) != value]
        old, new = self.stack.template_dict, self.template_dict
        types = {**old.get("Resources", {}), **new["Resources"]}
        assert isinstance(self.stack, Stack)
        # What a condition keeps out of a stack is not in it, whatever the template says.
        wanted, there = self.stack.read(new, self.parameters).wanted(), self.stack.resource_map.made
        modified = templates.changes(old, new, changed)["Modify"]
        found = {
            "Add": [name for name in wanted if name not in there],
            "Modify": [name for name in wanted if name in there and name in modified],
            "Remove": [name for name in there if name not in wanted],
        }
        return [
            models.Change(action, name, types[name]["Type"])
            for action, names in found.items()
            for name in names
        ]


def parsed(text: str) -> Document:
    try:
        return templates.parse(text)
    except templates.BadTemplate as exc:
        raise ValidationError(message=str(exc)) from exc


def from_s3(url: str, account_id: str, partition: str) -> str:
    """A template's text from moto's S3, whichever way its address names the bucket."""
    parts = urlparse(url)
    host = parts.hostname or ""
    if host.endswith(".localhost"):
        url = f"http://localhost/{host.removesuffix('.localhost')}{parts.path}"
    elif _is_address(host):
        # moto takes the first part of 127.0.0.1 for a bucket.
        url = f"http://localhost{parts.path}"
    return get_stack_from_s3_url(url, account_id, partition)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
