"""The package's templates as values: parameters, exports, imports, and the order that follows from them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any

from batchyard import cfn_yaml, infra
from batchyard.errors import InputError
from batchyard.units import quote

#: what `deploy` makes where nothing is named: all that pipelines need
CORE = ("network", "storage", "iam", "registry", "batch")
#: what every template's description begins with: a stack that lacks it is not ours
MARK = "batchyard:"

_ENV = "Env"
_VARIABLE = re.compile(r"[$][{]([A-Za-z][A-Za-z0-9.]*)[}]")


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    kind: str
    description: str
    #: None: it must be given
    default: str | None
    allowed: tuple[str, ...] = ()
    pattern: str | None = None
    #: CloudFormation's own words for what the pattern means
    explained: str = ""
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    name: str
    kind: str
    #: it is there only if this condition of the template holds
    condition: str | None


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    text: str
    description: str
    parameters: Mapping[str, Parameter]
    resources: tuple[Resource, ...]
    #: with `${Env}` in them
    exports: frozenset[str]
    imports: frozenset[str]
    #: export -> the parameters and resources that its value is made of
    export_sources: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def stack_of(self, environment: str) -> str:
        return f"{environment}-{self.name}"

    def exports_of(self, environment: str) -> frozenset[str]:
        return frozenset(name.replace("${Env}", environment) for name in self.exports)

    def imports_of(self, environment: str) -> frozenset[str]:
        return frozenset(name.replace("${Env}", environment) for name in self.imports)


# -- reading --------------------------------------------------------------------------------------------------------


def parse(name: str, text: str) -> Template:
    document = cfn_yaml.load(text)
    outputs = [one for one in document.get("Outputs", {}).values() if "Export" in one]
    conditions = document.get("Conditions", {})
    return Template(
        name=name,
        text=text,
        description=" ".join(document.get("Description", "").split()),
        parameters={
            key: _parameter(key, entry) for key, entry in document.get("Parameters", {}).items()
        },
        resources=tuple(
            Resource(key, entry["Type"], entry.get("Condition"))
            for key, entry in document["Resources"].items()
        ),
        exports=frozenset(_plain(output["Export"]["Name"]) for output in outputs),
        imports=frozenset(_imports(document["Resources"])),
        export_sources={
            _plain(output["Export"]["Name"]): frozenset(_sources(output["Value"], conditions))
            - {_ENV}
            for output in outputs
        },
    )


def _parameter(name: str, entry: Mapping[str, Any]) -> Parameter:
    return Parameter(
        name=name,
        kind=entry["Type"],
        description=" ".join(entry.get("Description", "").split()),
        default=None if "Default" not in entry else _text(entry["Default"]),
        allowed=tuple(map(_text, entry.get("AllowedValues", ()))),
        pattern=entry.get("AllowedPattern"),
        explained=" ".join(entry.get("ConstraintDescription", "").split()),
        least=entry.get("MinValue"),
        most=entry.get("MaxValue"),
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _imports(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _imports(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key == "Fn::ImportValue":
                yield _plain(item)
            else:
                yield from _imports(item)


def _sources(value: Any, conditions: Mapping[str, Any]) -> Iterator[str]:
    """Names of the parameters and resources in a value, those included on which its conditions hang."""
    if isinstance(value, list):
        for item in value:
            yield from _sources(item, conditions)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key == "Ref":
                yield str(item)
            elif key == "Fn::GetAtt":
                yield str(item).split(".")[0] if isinstance(item, str) else str(item[0])
            elif key == "Fn::Sub":
                yield from (
                    name.split(".")[0]
                    for name in _VARIABLE.findall(item if isinstance(item, str) else item[0])
                )
            elif key == "Condition":
                yield from _sources(conditions[item], conditions)
            elif key == "Fn::If":
                yield from _sources([conditions[item[0]], *item[1:]], conditions)
            else:
                yield from _sources(item, conditions)


def _plain(name: Any) -> str:
    """A name's text; the templates write names with Fn::Sub and nothing else."""
    return str(name["Fn::Sub"]) if isinstance(name, Mapping) else str(name)


@cache
def template(name: str) -> Template:
    """One of the package's. Raises InputError."""
    if name not in infra.EVERY:
        # Who writes only how it begins means that one, whatever else is as long.
        begun = [one for one in infra.EVERY if name and one.startswith(name)]
        near = begun or get_close_matches(name, infra.EVERY, 1)
        hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(infra.EVERY)}"
        raise InputError(f"there is no template {quote(name)}", hint=hint)
    return parse(name, infra.template(name))


def chosen(names: Sequence[str]) -> list[Template]:
    """Those of these names, or the core, each after those whose exports it imports."""
    return ordered([template(name) for name in dict.fromkeys(names or CORE)])


def everything() -> list[Template]:
    return ordered([template(name) for name in infra.EVERY])


def ordered(templates: Sequence[Template]) -> list[Template]:
    """Each after those whose exports it imports; otherwise as the package lists them."""
    waiting = sorted(templates, key=lambda one: infra.EVERY.index(one.name))
    found: list[Template] = []
    while waiting:
        is_next = next(
            one for one in waiting if not any(one.imports & other.exports for other in waiting)
        )
        found.append(is_next)
        waiting.remove(is_next)
    return found


def missing(
    templates: Sequence[Template], environment: str, exports: frozenset[str]
) -> dict[str, list[str]]:
    """Template -> the templates that it imports from and that are neither deployed nor among these."""
    there = exports.union(*(one.exports_of(environment) for one in templates))
    maker = {export: one.name for one in everything() for export in one.exports_of(environment)}
    lacking = {
        one.name: sorted({maker[name] for name in one.imports_of(environment) - there})
        for one in templates
    }
    return {name: others for name, others in lacking.items() if others}


def completed(
    templates: Sequence[Template], environment: str, exports: frozenset[str]
) -> list[Template]:
    """These, with all that they need and that is not deployed, in order."""
    found = {one.name: one for one in templates}
    while lacking := missing(list(found.values()), environment, exports):
        found |= {name: template(name) for others in lacking.values() for name in others}
    return ordered(list(found.values()))


# -- what the user gives --------------------------------------------------------------------------------------------


def check_environment(name: str) -> None:
    """Raises InputError where it can be no environment's name."""
    problem = _problem(template("network").parameters[_ENV], name)
    if problem:
        raise InputError(f"--env {quote(name)} is no name for an environment: {problem}")


def check_settings(templates: Sequence[Template], settings: Mapping[str, str]) -> None:
    """Raises InputError for the first `--set` that none of the templates takes, or whose value none accepts."""
    known = {name for one in templates for name in one.parameters} - {_ENV}
    for name, value in settings.items():
        if name == _ENV:
            raise InputError("--set Env: the environment's name is given with --env")
        if name not in known:
            raise InputError(
                f"no template of this deployment has a parameter {quote(name)}",
                hint=_nearest(name, known),
            )
        for one in templates:
            if name in one.parameters:
                problem = _problem(one.parameters[name], value)
                if problem:
                    described = one.parameters[name].description
                    raise InputError(
                        f"--set {name}={value}: {problem}", hint=f"{one.name}: {described}"
                    )


def _nearest(name: str, known: set[str]) -> str:
    elsewhere = [one.name for one in everything() if name in one.parameters]
    if elsewhere:
        return f"the template {' and '.join(elsewhere)} has it: name it, as in `batchyard deploy {elsewhere[0]} ...`"
    lower = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), lower, 1)
    return f"did you mean {lower[near[0]]}?" if near else f"there is {', '.join(sorted(known))}"


def _problem(parameter: Parameter, value: str) -> str:
    """What CloudFormation would find wrong with a value; empty where it is right."""
    if parameter.allowed and value not in parameter.allowed:
        return f"it must be one of {', '.join(parameter.allowed)}"
    if parameter.kind == "Number":
        try:
            number = float(value)
        except ValueError:
            return "it must be a number"
        if parameter.least is not None and number < parameter.least:
            return f"it must be at least {parameter.least}"
        if parameter.most is not None and number > parameter.most:
            return f"it must be at most {parameter.most}"
    if parameter.pattern is not None and not re.fullmatch(parameter.pattern, value):
        return (
            f"it must be {parameter.explained}"
            if parameter.explained
            else f"it must match {parameter.pattern}"
        )
    return ""


def request_parameters(
    wanted: Template, environment: str, settings: Mapping[str, str], deployed: Mapping[str, str]
) -> list[dict[str, Any]]:
    """As CloudFormation takes them. What was set once stays set: a parameter that is not given keeps its value."""
    found: list[dict[str, Any]] = []
    for name in wanted.parameters:
        value = environment if name == _ENV else settings.get(name)
        if value is not None:
            found.append({"ParameterKey": name, "ParameterValue": value})
        elif name in deployed:
            found.append({"ParameterKey": name, "UsePreviousValue": True})
    return found


def changed_parameters(
    wanted: Template, settings: Mapping[str, str], deployed: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Name -> before and after, of those that differ from the deployed ones."""
    return {
        name: (deployed[name], value)
        for name, value in settings.items()
        if name in wanted.parameters and name in deployed and deployed[name] != value
    }
