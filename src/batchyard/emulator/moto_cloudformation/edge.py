"""CloudFormation's requests where moto reads them otherwise than AWS: defaults, capabilities, templates."""

from __future__ import annotations

from typing import Any

from moto.cloudformation import models, responses
from moto.cloudformation.exceptions import CloudFormationError, ValidationError
from moto.core.responses import ActionResult, EmptyResult

from batchyard.emulator.moto_cloudformation import templates
from batchyard.emulator.moto_cloudformation.operations import Backend
from batchyard.emulator.moto_cloudformation.stacks import from_s3, parsed

Document = dict[str, Any]


class MissingCapabilities(CloudFormationError):
    code = "InsufficientCapabilitiesException"


class Response(responses.CloudFormationResponse):
    """The same operations at the edge of HTTP, where moto reads templates by other means than we do."""

    def _get_param(self, param_name: str, if_none: Any = None) -> Any:
        # AWS's default; moto's is CREATE.
        return super()._get_param(
            param_name, "UPDATE" if param_name == "ChangeSetType" else if_none
        )

    def _get_stack_from_s3_url(self, template_url: str) -> str:
        return from_s3(template_url, self.current_account, self.partition)

    def _validate_different_update(self, *args: Any) -> None:
        """The backend finds out, and knows that a change set without changes is made, and FAILED."""

    def _template(self) -> Document | None:
        text, url = self._get_param("TemplateBody"), self._get_param("TemplateURL")
        if not text and not url:
            return None
        return parsed(text or self._get_stack_from_s3_url(url))

    def _require_capabilities(self) -> None:
        template = self._template()
        granted = {*self._get_param("Capabilities", [])}
        if "CAPABILITY_NAMED_IAM" in granted:
            granted.add("CAPABILITY_IAM")
        missing = set(templates.capabilities(template) if template else []) - granted
        if missing:
            raise MissingCapabilities(f"Requires capabilities : [{', '.join(missing)}]")

    def create_stack(self) -> ActionResult:
        self._require_capabilities()
        return super().create_stack()

    def update_stack(self) -> ActionResult:
        self._require_capabilities()
        return super().update_stack()

    def create_change_set(self) -> ActionResult:
        self._require_capabilities()
        return super().create_change_set()

    def describe_change_set(self) -> ActionResult:
        return ActionResult(self._change_set())

    def delete_change_set(self) -> ActionResult:
        self.cloudformation_backend.change_sets.pop(self._change_set().change_set_id)
        return EmptyResult()

    def _change_set(self) -> models.ChangeSet:
        backend = self.cloudformation_backend
        assert isinstance(backend, Backend)
        return backend.find_change_set(
            self._get_param("ChangeSetName"), self._get_param("StackName")
        )

    def list_imports(self) -> ActionResult:
        name = self._get_param("ExportName")
        backend = self.cloudformation_backend
        assert isinstance(backend, Backend)
        users = backend.users_of(name)
        if not users:
            raise ValidationError(message=f"Export '{name}' is not imported by any stack.")
        return ActionResult({"Imports": users})

    def validate_template(self) -> ActionResult:
        template = self._template()
        if template is None:
            raise ValidationError(message="Either Template URL or Template Body must be specified.")
        return ActionResult({**_summary(template), "DeclaredTransforms": []})

    def get_template_summary(self) -> ActionResult:
        template = self._template()
        if template is None:
            template = self.cloudformation_backend.get_stack(
                self._get_param("StackName")
            ).template_dict
        types = sorted({resource["Type"] for resource in template.get("Resources", {}).values()})
        return ActionResult({**_summary(template), "ResourceTypes": types, "Version": "2010-09-09"})


def _summary(template: Document) -> Document:
    parameters = [
        {
            "ParameterKey": name,
            "DefaultValue": entry.get("Default"),
            "NoEcho": bool(entry.get("NoEcho")),
            "Description": entry.get("Description", ""),
            "ParameterType": entry.get("Type", "String"),
        }
        for name, entry in template.get("Parameters", {}).items()
    ]
    needed = templates.capabilities(template) if template.get("Resources") else []
    return {
        "Description": template.get("Description", ""),
        "Parameters": parameters,
        "Capabilities": needed,
    }
