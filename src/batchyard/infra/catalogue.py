"""The templates of the package: parameters, exports, imports, and order of deployment. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any

from batchyard import cfn_conditions, cfn_yaml, infra
from batchyard.errors import InputError
from batchyard.units import quote

#: The templates that `deploy` uses by default: those that pipelines need.
CORE = ("network", "storage", "iam", "registry", "batch")
#: Prefix of the description of each template: stacks without it belong to someone else.
MARK = "batchyard:"

#: Prefix of the description of the stack of a service.
SERVICE_MARK = f"{MARK} the service "

#: The tag that all resources have; its value is the name of the environment.
ENVIRONMENT_TAG = "batchyard:environment"
#: AWS accepts 50 tags for a stack, and one is ours.
_MAX_TAGS = 49
_MAX_TAG_NAME_CHARS, _MAX_TAG_VALUE_CHARS = 128, 256

_ENV = "Env"
#: A parameter with the name of the SSM parameter that the stack `network` writes.
_SUBNETS = "Subnets"
_VARIABLE = re.compile(r"[$][{]([A-Za-z][A-Za-z0-9.]*)[}]")


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    kind: str
    description: str
    #: None if the parameter is required.
    default: str | None
    allowed: tuple[str, ...] = ()
    pattern: str | None = None
    #: The template's description of the pattern.
    pattern_description: str = ""
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    name: str
    kind: str
    #: Name of the condition under which the resource is created; None for always.
    condition: str | None


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    text: str
    description: str
    parameters: Mapping[str, Parameter]
    resources: tuple[Resource, ...]
    #: Names with `${Env}` in them.
    exports: frozenset[str]
    imports: frozenset[str]
    #: export -> the parameters and resources that its value depends on
    export_sources: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: name of a condition -> the condition, as the template has it
    conditions: Mapping[str, Any] = field(default_factory=dict)
    #: The command that deletes the stack, without --env; empty for `destroy NAME`.
    delete_command: str = ""

    @property
    def title(self) -> str:
        """The beginning of the description, which the stack of any version of the template has."""
        return re.split(r"[,.]", self.description)[0]

    def stack_of(self, environment: str) -> str:
        return f"{environment}-{self.name}"

    def exports_of(self, environment: str) -> frozenset[str]:
        return frozenset(name.replace("${Env}", environment) for name in self.exports)

    def imports_of(self, environment: str) -> frozenset[str]:
        return frozenset(name.replace("${Env}", environment) for name in self.imports)


# -- reading -------------------------------------------------------------------------------------


def parse(name: str, text: str) -> Template:
    document = cfn_yaml.load(text)
    outputs = [output for output in document.get("Outputs", {}).values() if "Export" in output]
    conditions = document.get("Conditions", {})
    return Template(
        name=name,
        text=text,
        description=" ".join(document.get("Description", "").split()),
        parameters={
            key: _parse_parameter(key, entry)
            for key, entry in document.get("Parameters", {}).items()
        },
        resources=tuple(
            Resource(key, entry["Type"], entry.get("Condition"))
            for key, entry in document["Resources"].items()
        ),
        exports=frozenset(_read_name(output["Export"]["Name"]) for output in outputs),
        imports=frozenset(_find_imports(document["Resources"])),
        export_sources={
            _read_name(output["Export"]["Name"]): frozenset(
                _find_sources(output["Value"], conditions)
            )
            - {_ENV}
            for output in outputs
        },
        conditions=conditions,
    )


def _parse_parameter(name: str, entry: Mapping[str, Any]) -> Parameter:
    return Parameter(
        name=name,
        kind=entry["Type"],
        description=" ".join(entry.get("Description", "").split()),
        default=None if "Default" not in entry else _to_text(entry["Default"]),
        allowed=tuple(map(_to_text, entry.get("AllowedValues", ()))),
        pattern=entry.get("AllowedPattern"),
        pattern_description=" ".join(entry.get("ConstraintDescription", "").split()),
        minimum=entry.get("MinValue"),
        maximum=entry.get("MaxValue"),
    )


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _find_imports(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _find_imports(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key == "Fn::ImportValue":
                yield _read_name(item)
            else:
                yield from _find_imports(item)


def _find_sources(value: Any, conditions: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parameters and resources that a value and its conditions refer to."""
    if isinstance(value, list):
        for item in value:
            yield from _find_sources(item, conditions)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _sources_of_entry(key, item, conditions)


def _sources_of_entry(key: str, item: Any, conditions: Mapping[str, Any]) -> Iterator[str]:
    if key == "Ref":
        yield str(item)
    elif key == "Fn::GetAtt":
        yield str(item[0])
    elif key == "Fn::Sub":
        text = item if isinstance(item, str) else item[0]
        yield from (name.split(".")[0] for name in _VARIABLE.findall(text))
    elif key == "Condition":
        yield from _find_sources(conditions[item], conditions)
    elif key == "Fn::If":
        yield from _find_sources([conditions[item[0]], *item[1:]], conditions)
    else:
        yield from _find_sources(item, conditions)


def _read_name(name: Any) -> str:
    """Return the text of an export's name; the templates write names with Fn::Sub only."""
    return str(name["Fn::Sub"]) if isinstance(name, Mapping) else str(name)


@cache
def load_template(name: str) -> Template:
    """Return a template of the package. Raises InputError if there is none of that name."""
    if name not in infra.EVERY:
        # The beginning of a name is more likely meant than a name of similar letters.
        completions = [other for other in infra.EVERY if name and other.startswith(name)]
        matches = completions or get_close_matches(name, infra.EVERY, 1)
        hint = f"did you mean {matches[0]}?" if matches else f"there is {', '.join(infra.EVERY)}"
        raise InputError(f"there is no template {quote(name)}", hint=hint)
    return parse(name, infra.read_template(name))


def select_templates(names: Sequence[str]) -> list[Template]:
    """Return the named templates (default: the core set), each after the ones it imports from."""
    return sort_by_imports([load_template(name) for name in dict.fromkeys(names or CORE)])


def all_templates() -> list[Template]:
    return sort_by_imports([load_template(name) for name in infra.EVERY])


def sort_by_imports(templates: Sequence[Template]) -> list[Template]:
    """Sort the templates so that each follows the ones it imports from; else as in infra.EVERY."""
    remaining = sorted(templates, key=lambda template: infra.EVERY.index(template.name))
    in_order: list[Template] = []
    while remaining:
        exports = frozenset[str]().union(*(template.exports for template in remaining))
        following = next(template for template in remaining if not template.imports & exports)
        in_order.append(following)
        remaining.remove(following)
    return in_order


def find_missing(
    templates: Sequence[Template], environment: str, exports: frozenset[str]
) -> dict[str, list[str]]:
    """Return template -> the templates it imports from that are neither deployed nor listed."""
    available = exports.union(*(template.exports_of(environment) for template in templates))
    exporters = {
        export: template.name
        for template in all_templates()
        for export in template.exports_of(environment)
    }
    missing = {
        template.name: sorted(
            {exporters[name] for name in template.imports_of(environment) - available}
        )
        for template in templates
    }
    return {name: names for name, names in missing.items() if names}


def add_missing(
    templates: Sequence[Template], environment: str, exports: frozenset[str]
) -> list[Template]:
    """Return the templates and all that they need and is not deployed, in order."""
    complete = {template.name: template for template in templates}
    while missing := find_missing(list(complete.values()), environment, exports):
        complete |= {name: load_template(name) for names in missing.values() for name in names}
    return sort_by_imports(list(complete.values()))


# -- arguments -----------------------------------------------------------------------------------


def check_stack_name(name: str) -> None:
    """Raise InputError if CloudFormation does not allow the name for a stack."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,127}", name):
        raise InputError(
            f"--env {quote(name)} is no name for a stack: it must begin with a letter, and have at"
            " most 128 letters, digits and hyphens"
        )


def check_environment(name: str) -> None:
    """Raise InputError if the name is not valid for an environment."""
    problem = find_problem(load_template("network").parameters[_ENV], name)
    if problem:
        raise InputError(f"--env {quote(name)} is no name for an environment: {problem}")


def all_parameters() -> dict[str, list[Parameter]]:
    """Return name -> its declarations in all templates, without the environment's name."""
    parameters: dict[str, list[Parameter]] = {}
    for template in all_templates():
        for name, parameter in template.parameters.items():
            if name != _ENV:
                parameters.setdefault(name, []).append(parameter)
    return parameters


def drop_foreign(
    settings: Mapping[str, str], from_file: Collection[str], templates: Sequence[Template]
) -> dict[str, str]:
    """Return the settings without those of a parameter file that are about other templates."""
    declared = {name for template in templates for name in template.parameters}
    return {
        name: value for name, value in settings.items() if name in declared or name not in from_file
    }


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise InputError for the first tag that AWS does not accept."""
    for name, value in tags.items():
        problem = find_tag_problem(name, value)
        if problem:
            raise InputError(f"--tag {name}={value}: {problem}")
    if len(tags) > _MAX_TAGS:
        raise InputError(f"{len(tags)} tags are too many: AWS accepts {_MAX_TAGS}")


def find_tag_problem(name: str, value: str) -> str:
    """Return why AWS does not accept a tag; empty if it does."""
    if name.lower().startswith("aws:"):
        return "names that begin with aws: are AWS's own"
    if name == ENVIRONMENT_TAG:
        return "batchyard sets it to the environment's name"
    if not 1 <= len(name) <= _MAX_TAG_NAME_CHARS or len(value) > _MAX_TAG_VALUE_CHARS:
        return (
            f"a name has 1 to {_MAX_TAG_NAME_CHARS} characters, a value at most"
            f" {_MAX_TAG_VALUE_CHARS}"
        )
    if not re.fullmatch(r"[\w\s+=.:/@-]+", name) or not re.fullmatch(r"[\w\s+=.:/@-]*", value):
        return "it may have letters, digits, spaces and _ . : / = + - @"
    return ""


def check_settings(templates: Sequence[Template], settings: Mapping[str, str]) -> None:
    """Raise InputError for the first `--set` with an unknown parameter or an invalid value."""
    parameters = {name for template in templates for name in template.parameters} - {_ENV}
    for name, value in settings.items():
        if name == _ENV:
            raise InputError("--set Env: the environment's name is given with --env")
        if name not in parameters:
            raise InputError(
                f"no template of this deployment has a parameter {quote(name)}",
                hint=_suggest_parameter(name, parameters),
            )
        for template in templates:
            if name in template.parameters:
                _check_value(template, template.parameters[name], value)


def _check_value(template: Template, parameter: Parameter, value: str) -> None:
    problem = find_problem(parameter, value)
    if problem:
        raise InputError(
            f"--set {parameter.name}={value}: {problem}",
            hint=f"{template.name}: {parameter.description}",
        )


def _suggest_parameter(name: str, parameters: set[str]) -> str:
    templates = [template.name for template in all_templates() if name in template.parameters]
    if templates:
        return (
            f"the template {' and '.join(templates)} has it: name it, as in"
            f" `batchyard deploy {templates[0]} ...`"
        )
    by_lower = {parameter.lower(): parameter for parameter in parameters}
    matches = get_close_matches(name.lower(), by_lower, 1)
    if matches:
        return f"did you mean {by_lower[matches[0]]}?"
    return f"there is {', '.join(sorted(parameters))}"


def find_problem(parameter: Parameter, value: str) -> str:
    """Return why CloudFormation would refuse the value; empty if it is valid."""
    if parameter.allowed and value not in parameter.allowed:
        return f"it must be one of {', '.join(parameter.allowed)}"
    problem = _find_number_problem(parameter, value) if parameter.kind == "Number" else ""
    if problem:
        return problem
    if parameter.pattern is None or re.fullmatch(parameter.pattern, value):
        return ""
    if parameter.pattern_description:
        return f"it must be {parameter.pattern_description}"
    return f"it must match {parameter.pattern}"


def _find_number_problem(parameter: Parameter, value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        return "it must be a number"
    if parameter.minimum is not None and number < parameter.minimum:
        return f"it must be at least {parameter.minimum}"
    if parameter.maximum is not None and number > parameter.maximum:
        return f"it must be at most {parameter.maximum}"
    return ""


def effective_values(
    template: Template, environment: str, settings: Mapping[str, str], deployed: Mapping[str, str]
) -> dict[str, str]:
    """Return parameter -> the value that the stack has after the deployment.

    Required parameters that nobody has set are left out.
    """
    defaults = {
        name: parameter.default
        for name, parameter in template.parameters.items()
        if parameter.default is not None
    }
    chosen = {name: value for name, value in settings.items() if name in template.parameters}
    kept_values = {name: value for name, value in deployed.items() if name in template.parameters}
    own_values = {
        name: value for name in template.parameters if (value := _own_value(name, environment))
    }
    return {**defaults, **kept_values, **own_values, **chosen}


def _own_value(name: str, environment: str) -> str | None:
    """Return the value of a parameter that follows from the environment's name; else None."""
    return {_ENV: environment, _SUBNETS: f"/{environment}/subnets"}.get(name)


def active_resources(template: Template, values: Mapping[str, str]) -> tuple[Resource, ...]:
    """Return the resources whose conditions hold with these values of the parameters."""
    typed_values = {
        name: value.split(",") if "List" in template.parameters[name].kind else value
        for name, value in values.items()
    }
    return tuple(
        resource
        for resource in template.resources
        if resource.condition is None
        or cfn_conditions.holds(
            template.conditions[resource.condition], typed_values, template.conditions
        )
    )


def request_parameters(
    template: Template, environment: str, settings: Mapping[str, str], deployed: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the parameters in CloudFormation's shape. Parameters not set keep their value."""
    parameters: list[dict[str, Any]] = []
    for name in template.parameters:
        value = settings.get(name, _own_value(name, environment))
        if value is not None:
            parameters.append({"ParameterKey": name, "ParameterValue": value})
        elif name in deployed:
            parameters.append({"ParameterKey": name, "UsePreviousValue": True})
    return parameters


def changed_parameters(
    template: Template, settings: Mapping[str, str], deployed: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return name -> (deployed value, new value) of the parameters that change."""
    return {
        name: (deployed[name], value)
        for name, value in settings.items()
        if name in template.parameters and name in deployed and deployed[name] != value
    }
