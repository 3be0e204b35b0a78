"""The ways in which a template's conditions can turn out: each is a template of its own, without Fn::If. Pure.

A condition compares parameters with texts. Each parameter is tried with its default and with every text that it is
compared with, all together, so that no way contradicts itself. What cannot be compared may be either. Maps are looked
up too, since their keys may be parameters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from batchyard.doctor.template.resources import NOTHING, Template, function
from batchyard.doctor.yaml_tree import make_mapping
from batchyard.yaml_positions import Mapping, Node, Sequence

MAX_WAYS = 32
_MAX_DEPTH = 30
NO_VALUE = "AWS::NoValue"
_YES, _NO = "yes", "no"

#: parameter, or comparison that is open -> the value that is tried; None for one that nothing is compared with
Choice = dict[str, str | None]


def ways(template: Template) -> list[Template]:
    """The one of the defaults comes first."""
    if template.kind == "Terraform":
        return [template]
    used = _used(template)
    moving: set[int] = set()
    for resource in template.resources:
        _moving(resource.properties, moving)
        _moving(resource.metadata, moving)
    found: dict[tuple[bool, ...], Template] = {}
    for choice in _choices(_candidates(template, used)):
        chosen = replace(
            template,
            chosen={key: value for key, value in choice.items() if _strays(template, key, value)},
        )
        judge = _Judge(chosen)
        truths = {name: judge.is_true(name) for name in used}
        key = tuple(truths.values())
        if key not in found:
            found[key] = _Way(chosen, truths, moving).settled()
    return list(found.values())


def _strays(template: Template, name: str, value: str | None) -> bool:
    return name not in template.parameters or template.default(name) != value


def _choices(candidates: dict[str, list[str | None]]) -> Iterator[Choice]:
    names, values = list(candidates), list(candidates.values())
    if math.prod(map(len, values)) <= MAX_WAYS:
        for each in itertools.product(*values):
            yield dict(zip(names, each, strict=True))
        return
    first: Choice = {name: options[0] for name, options in candidates.items()}
    yield first
    others = [(name, option) for name, options in candidates.items() for option in options[1:]]
    for name, option in others[: 2 * MAX_WAYS]:
        yield first | {name: option}


# -- conditions ---------------------------------------------------------------------------------------------------


def _used(template: Template) -> list[str]:
    """The conditions that something in a resource hangs on."""
    names = {resource.condition: None for resource in template.resources if resource.condition}
    for resource in template.resources:
        for node in (resource.properties, resource.metadata):
            names.update(dict.fromkeys(_named_in(node)))
    return list(names)


def _named_in(node: Node) -> Iterator[str]:
    call = function(node)
    if call and call[0] == "If" and len(call[1].items) == 3:
        yield call[1].items[0].text or ""
    for inner in _inner(node):
        yield from _named_in(inner)


def _inner(node: Node) -> list[Node]:
    return node.children()


def _call(node: Node) -> tuple[str, Node] | None:
    """As a condition is written: also {Condition: name}."""
    name = node.get("Condition") if len(_inner(node)) == 1 else None
    return ("Condition", name) if name is not None else function(node)


def _candidates(template: Template, used: list[str]) -> dict[str, list[str | None]]:
    compared: dict[str, list[str]] = {}
    open_ones: dict[str, None] = {}
    waiting, seen = list(used), set(used)
    while waiting:
        name = waiting.pop(0)
        if name not in template.conditions:
            open_ones[_open_name(name)] = None
            continue
        for node in _walk(template.conditions[name]):
            call = _call(node)
            if call and call[0] == "Condition" and (other := call[1].text or "") not in seen:
                seen.add(other)
                waiting.append(other)
            elif call and call[0] == "Equals":
                parameter, text = _comparison(template, call[1])
                if parameter:
                    compared.setdefault(parameter, []).append(text)
                elif _equal(template, call[1]) is None:
                    open_ones[_open_name(node)] = None
    found = {name: _options(template, name, texts) for name, texts in compared.items()}
    return found | {name: [_YES, _NO] for name in open_ones}


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for inner in _inner(node):
        yield from _walk(inner)


def _open_name(what: str | Node) -> str:
    return f"? {what if isinstance(what, str) else id(what)}"


def _comparison(template: Template, argument: Node) -> tuple[str, str]:
    """The parameter and the text, where it compares these."""
    sides = argument.items
    for one, other in (sides, sides[::-1]) if len(sides) == 2 else ():
        call = function(one)
        if call and call[0] == "Ref" and function(other) is None and other.text is not None:
            return call[1].text or "", other.text
    return "", ""


def _options(template: Template, name: str, texts: list[str]) -> list[str | None]:
    default = template.default(name)
    listed = template.parameters.get(name, NOTHING).get("AllowedValues") or NOTHING
    allowed = [item.text or "" for item in listed.items]
    options: dict[str | None, None] = {default: None}
    options |= {text: None for text in texts if not allowed or text in allowed}
    if default is not None and default in texts:
        # Something that it is not compared with, if it can be that.
        rest = [value for value in allowed if value not in options]
        options |= {rest[0]: None} if rest else {} if allowed else {None: None}
    return list(options)


def _equal(template: Template, argument: Node) -> bool | None:
    sides = [template.text(side) for side in argument.items]
    return None if len(sides) != 2 or None in sides else sides[0] == sides[1]


@dataclass(slots=True)
class _Judge:
    template: Template
    truths: dict[str, bool] = field(default_factory=dict)

    def is_true(self, name: str, depth: int = 0) -> bool:
        node = self.template.conditions.get(name)
        if node is None or depth > _MAX_DEPTH:
            return self.template.chosen.get(_open_name(name)) == _YES
        if name not in self.truths:
            self.truths[name] = self._holds(node, depth + 1)
        return self.truths[name]

    def _holds(self, node: Node, depth: int) -> bool:
        call = _call(node)
        if call is None or depth > _MAX_DEPTH:
            return False
        name, argument = call
        if name == "Condition":
            return self.is_true(argument.text or "", depth + 1)
        if name == "Equals":
            return self._equals(node, argument)
        inner = [self._holds(item, depth + 1) for item in argument.items]
        if name == "Not":
            return inner == [False]
        return all(inner) if name == "And" else any(inner) if name == "Or" else False

    def _equals(self, node: Node, argument: Node) -> bool:
        if (chosen := self.template.chosen.get(_open_name(node))) is not None:
            return chosen == _YES
        return bool(_equal(self.template, argument))


# -- resources ----------------------------------------------------------------------------------------------------


def _moving(node: Node, found: set[int]) -> bool:
    """Collects the nodes in which anything may turn out in several ways; whether this is one."""
    name, argument = function(node) or ("", NOTHING)
    # All are asked: each collects its own.
    inner = [_moving(one, found) for one in _inner(node)]
    if name in ("If", "FindInMap") or (name == "Ref" and argument.text == NO_VALUE) or any(inner):
        found.add(id(node))
    return id(node) in found


@dataclass(frozen=True, slots=True)
class _Way:
    template: Template
    truths: dict[str, bool]
    moving: set[int]

    def settled(self) -> Template:
        resources = [
            replace(
                resource,
                properties=self._resolved(resource.properties, 0) or NOTHING,
                metadata=self._resolved(resource.metadata, 0) or NOTHING,
            )
            for resource in self.template.resources
            if not resource.condition or self.truths[resource.condition]
        ]
        return replace(self.template, resources=tuple(resources))

    def _resolved(self, node: Node, depth: int) -> Node | None:
        """Without Fn::If, without maps that can be looked up; None for what is not there at all."""
        if id(node) not in self.moving:
            return node
        name, argument = function(node) or ("", NOTHING)
        if name == "Ref" and argument.text == NO_VALUE:
            return None
        instead: Node | None = None
        if name == "If" and len(argument.items) == 3:
            condition, yes, no = argument.items
            instead = yes if self.truths.get(condition.text or "") else no
        elif name == "FindInMap":
            instead = self.template.in_map(argument)
        if instead is not None and depth < 2 * _MAX_DEPTH:
            inner = self._resolved(instead, depth + 1)
            return inner and replace(
                inner, key_line=node.key_line or inner.key_line, line=inner.line or node.line
            )
        if isinstance(node, Mapping):
            named = ((key, self._resolved(item, depth)) for key, item in node.fields().items())
            fields = {key: item for key, item in named if item is not None}
            return replace(node, entries=make_mapping(fields).entries)
        if not isinstance(node, Sequence):
            return node
        items = (self._resolved(item, depth) for item in node.items)
        return replace(node, items=[item for item in items if item is not None])
