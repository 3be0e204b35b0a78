"""CloudFormation's requests where moto reads or answers them differently from AWS."""

from __future__ import annotations

from typing import Any

from moto.cloudformation import models, responses
from moto.cloudformation.exceptions import CloudFormationError, ValidationError
from moto.core.responses import ActionResult, EmptyResult

from batchyard.emulator.moto_cloudformation import templates
from batchyard.emulator.moto_cloudformation.backend import Backend
from batchyard.emulator.moto_cloudformation.stacks import parse_template, read_template_from_s3

Document = dict[str, Any]


class MissingCapabilitiesError(CloudFormationError):
    code = "InsufficientCapabilitiesException"


class Response(responses.CloudFormationResponse):
    """moto's operations with AWS's defaults, capabilities and reading of templates."""

    def _get_param(self, param_name: str, if_none: Any = None) -> Any:
        # moto 5.2.5: the default of ChangeSetType is CREATE; AWS's is UPDATE.
        return super()._get_param(
            param_name, "UPDATE" if param_name == "ChangeSetType" else if_none
        )

    def _get_stack_from_s3_url(self, template_url: str) -> str:
        return read_template_from_s3(template_url, self.current_account, self.partition)

    def _validate_different_update(self, *args: Any) -> None:
        """Do nothing: the backend compares the templates.

        moto 5.2.5: refuses a change set without changes; AWS creates it as FAILED.
        """

    @property
    def _backend(self) -> Backend:
        backend = self.cloudformation_backend
        assert isinstance(backend, Backend)
        return backend

    def _template(self) -> Document | None:
        text, url = self._get_param("TemplateBody"), self._get_param("TemplateURL")
        if not text and not url:
            return None
        return parse_template(text or self._get_stack_from_s3_url(url))

    # -- moto 5.2.5: does not require capabilities -------------------------------------------------

    def _require_capabilities(self) -> None:
        template = self._template()
        acknowledged = {*self._get_param("Capabilities", [])}
        if "CAPABILITY_NAMED_IAM" in acknowledged:
            acknowledged.add("CAPABILITY_IAM")
        required = set(templates.required_capabilities(template) if template else [])
        if required - acknowledged:
            names = ", ".join(required - acknowledged)
            raise MissingCapabilitiesError(f"Requires capabilities : [{names}]")

    def create_stack(self) -> ActionResult:
        self._require_capabilities()
        return super().create_stack()

    def update_stack(self) -> ActionResult:
        self._require_capabilities()
        return super().update_stack()

    def create_change_set(self) -> ActionResult:
        self._require_capabilities()
        return super().create_change_set()

    # -- moto 5.2.5: finds a change set without regard to its stack --------------------------------

    def describe_change_set(self) -> ActionResult:
        return ActionResult(self._change_set())

    def delete_change_set(self) -> ActionResult:
        self._backend.change_sets.pop(self._change_set().change_set_id)
        return EmptyResult()

    def list_change_sets(self) -> ActionResult:
        name = self._get_param("StackName")
        summaries = [
            change_set
            for change_set in self._backend.change_sets.values()
            if name in (change_set.stack_name, change_set.stack_id)
        ]
        return ActionResult({"Summaries": summaries})

    def _change_set(self) -> models.ChangeSet:
        name, stack_name = self._get_param("ChangeSetName"), self._get_param("StackName")
        return self._backend.find_change_set(name, stack_name)

    # -- moto 5.2.5: does not have this operation --------------------------------------------------

    def list_imports(self) -> ActionResult:
        name = self._get_param("ExportName")
        importers = self._backend.importers_of(name)
        if not importers:
            raise ValidationError(message=f"Export '{name}' is not imported by any stack.")
        return ActionResult({"Imports": importers})

    # -- moto 5.2.5: reads templates with a loader that runs Python code, needs cfn-lint -----------

    def validate_template(self) -> ActionResult:
        template = self._template()
        if template is None:
            raise ValidationError(message="Either Template URL or Template Body must be specified.")
        return ActionResult({**_summary(template), "DeclaredTransforms": []})

    def get_template_summary(self) -> ActionResult:
        template = self._template()
        if template is None:
            template = self._backend.get_stack(self._get_param("StackName")).template_dict
        types = sorted({resource["Type"] for resource in template.get("Resources", {}).values()})
        return ActionResult({**_summary(template), "ResourceTypes": types, "Version": "2010-09-09"})


def _summary(template: Document) -> Document:
    parameters = [
        {
            "ParameterKey": name,
            "DefaultValue": declaration.get("Default"),
            "NoEcho": bool(declaration.get("NoEcho")),
            "Description": declaration.get("Description", ""),
            "ParameterType": declaration.get("Type", "String"),
        }
        for name, declaration in template.get("Parameters", {}).items()
    ]
    has_resources = bool(template.get("Resources"))
    return {
        "Description": template.get("Description", ""),
        "Parameters": parameters,
        "Capabilities": templates.required_capabilities(template) if has_resources else [],
    }
