"""The commands that a Python script has run, by its syntax tree. Pure: nothing of it is executed.

A call counts that runs a program (os.system, subprocess.run ...). Names, the parameters of functions among them, are
what the script sets them to, wherever; what is not known stands as ``${}``. A function that nobody mentions runs
nothing, and text that is printed, documented or commented is no call.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

#: values of a name, and readings of a call
MAX_READINGS = 16
MAX_LENGTH = 100_000
MAX_NODES = 20_000
MAX_TEXT = 4_000
UNKNOWN = "${}"

_RUNS = frozenset(
    {
        "system",
        "popen",
        "run",
        "call",
        "check_call",
        "check_output",
        "Popen",
        "getoutput",
        "getstatusoutput",
    }
    | {
        "execv",
        "execvp",
        "execve",
        "execvpe",
        "execl",
        "execlp",
        "spawnv",
        "spawnvp",
        "spawnl",
        "spawnlp",
    }
    | {"create_subprocess_exec", "create_subprocess_shell"}
)
_GOES_ON = frozenset({"Popen", "create_subprocess_exec", "create_subprocess_shell"})
_WAITS = frozenset({"wait", "communicate"})

#: a text, or the items of a list
Value = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    #: the words of a command, or
    words: tuple[str, ...]
    #: a text for the shell
    script: str
    line: int
    is_detached: bool = False


@dataclass(slots=True)
class _Known:
    names: dict[str, list[Value]] = field(default_factory=dict)
    functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = field(default_factory=dict)
    waits: bool = False


def calls(text: str) -> list[Call] | None:
    """None where it is not Python."""
    if len(text) > MAX_LENGTH or "\0" in text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        nodes = list(_nodes(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    known = _learned(nodes)
    live = list(_live(tree, known))
    _bind(live, known)
    found = [call for node in live if isinstance(node, ast.Call) for call in _read(node, known)]
    return sorted(dict.fromkeys(found), key=lambda call: call.line)


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for count, node in enumerate(ast.walk(tree)):
        if count > MAX_NODES:
            return
        yield node


def _learned(nodes: list[ast.AST]) -> _Known:
    known = _Known()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            known.functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Attribute) and node.attr in _WAITS:
            known.waits = True
    return known


def _live(tree: ast.AST, known: _Known) -> Iterator[ast.AST]:
    """What may run: functions only where something that runs mentions them."""
    waiting: list[ast.AST] = [tree]
    seen: set[int] = set()
    count = 0
    while waiting and count <= MAX_NODES:
        node = waiting.pop()
        count += 1
        yield node
        name = (
            node.id
            if isinstance(node, ast.Name)
            else node.attr
            if isinstance(node, ast.Attribute)
            else ""
        )
        for function in known.functions.get(name, ()):
            if id(function) not in seen:
                seen.add(id(function))
                waiting += function.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [*node.decorator_list, *node.args.defaults]
            # Special methods are called without being mentioned.
            if node.name.startswith("__") and id(node) not in seen:
                seen.add(id(node))
                waiting += node.body
        else:
            waiting += ast.iter_child_nodes(node)


def _bind(nodes: list[ast.AST], known: _Known) -> None:
    """Names by assignments, loops and arguments; twice, since one may stand for another."""
    for _ in range(2):
        for node in nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    _learn(target, _values(node.value, known), known)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                _learn(node.target, _values(node.value, known), known)
            elif isinstance(node, ast.For | ast.comprehension):
                items = [
                    item
                    for value in _values(node.iter, known)
                    if isinstance(value, tuple)
                    for item in value
                ]
                _learn(node.target, list[Value](items), known)
            elif isinstance(node, ast.Call):
                _learn_arguments(node, known)


def _learn(target: ast.AST, values: list[Value], known: _Known) -> None:
    if isinstance(target, ast.Name):
        before = known.names.get(target.id, [])
        fresh = [value for value in values if value != UNKNOWN]
        known.names[target.id] = list(dict.fromkeys([*before, *fresh]))[:MAX_READINGS]


def _learn_arguments(node: ast.Call, known: _Known) -> None:
    for function in known.functions.get(_name(node.func), ()):
        names = [
            argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")
        ]
        given = [*zip(names, node.args, strict=False)]
        given += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
        for name, value in given:
            _learn(ast.Name(name), _values(value, known), known)
        if function.args.vararg is not None:
            rest = [
                first
                for argument in node.args[len(names) :]
                for first in _values(argument, known)[:1]
            ]
            words = tuple(
                word for value in rest for word in ((value,) if isinstance(value, str) else value)
            )
            _learn(ast.Name(function.args.vararg.arg), [words], known)


def _name(function: ast.AST) -> str:
    return (
        function.id
        if isinstance(function, ast.Name)
        else function.attr
        if isinstance(function, ast.Attribute)
        else ""
    )


def _read(node: ast.Call, known: _Known) -> Iterator[Call]:
    name = _name(node.func)
    if name not in _RUNS or _is_own(node.func, known):
        return
    arguments, is_many = _command(name, node)
    goes_on = name in _GOES_ON and not known.waits
    goes_on = goes_on or (
        name.startswith("spawn") and bool(node.args) and _name(node.args[0]).startswith("P_NOWAIT")
    )
    if is_many:
        options = list[Value](_products([_values(item, known) for item in arguments]))
    else:
        options = _values(arguments[0], known) if arguments else []
    for value in options:
        if isinstance(value, tuple):
            yield Call(value, "", node.lineno, goes_on)
        elif value != UNKNOWN:
            yield Call((), value, node.lineno, goes_on)


def _is_own(function: ast.AST, known: _Known) -> bool:
    """A function of the script that is only called so: what it runs is seen inside of it."""
    owner = _name(function.value) if isinstance(function, ast.Attribute) else ""
    return _name(function) in known.functions and owner in ("", "self", "cls")


def _command(name: str, node: ast.Call) -> tuple[list[ast.expr], bool]:
    """The arguments that are the command, and whether they are its words, one each."""
    if name.startswith(("exec", "spawn")):
        # Behind the mode, if any, and the program's file.
        given = node.args[1 if name.startswith("exec") else 2 :]
        return given, "l" in name.removeprefix("exec").removeprefix("spawn")
    if name == "create_subprocess_exec":
        return node.args, True
    named = [
        keyword.value for keyword in node.keywords if keyword.arg in ("args", "cmd", "command")
    ]
    return node.args or named, False


# -- values -------------------------------------------------------------------------------------------------------


def _values(node: ast.AST, known: _Known, depth: int = 0) -> list[Value]:
    """What an expression may come to."""
    if depth > 20:
        return [UNKNOWN]
    if isinstance(node, ast.Constant):
        return (
            [node.value[:MAX_TEXT]] if isinstance(node.value, str) else [str(node.value)[:MAX_TEXT]]
        )
    if isinstance(node, ast.Name):
        return known.names.get(node.id) or [UNKNOWN]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return _lists(node.elts, known, depth)
    if isinstance(node, ast.JoinedStr):
        parts = [
            _values(part.value if isinstance(part, ast.FormattedValue) else part, known, depth + 1)
            for part in node.values
        ]
        return ["".join(words)[:MAX_TEXT] for words in _products(parts)]
    if isinstance(node, ast.BinOp):
        return _joined(node, known, depth)
    if isinstance(node, ast.IfExp):
        return [*_values(node.body, known, depth + 1), *_values(node.orelse, known, depth + 1)][
            :MAX_READINGS
        ]
    if isinstance(node, ast.Call):
        return _called(node, known, depth)
    return [UNKNOWN]


def _lists(items: list[ast.expr], known: _Known, depth: int) -> list[Value]:
    parts: list[list[Value]] = []
    for item in items[:200]:
        inner = item.value if isinstance(item, ast.Starred) else item
        parts.append(_values(inner, known, depth + 1))
    return list[Value](_products(parts))


def _products(parts: list[list[Value]]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for choice in product(*parts):
        words = tuple(
            word for value in choice for word in ((value,) if isinstance(value, str) else value)
        )
        found.append(words[:500])
        if len(found) >= MAX_READINGS:
            break
    return found


def _joined(node: ast.BinOp, known: _Known, depth: int) -> list[Value]:
    """a + b, and "%s" % b."""
    left, right = _values(node.left, known, depth + 1), _values(node.right, known, depth + 1)
    found: list[Value] = []
    for a in left[:MAX_READINGS]:
        for b in right[:MAX_READINGS]:
            if isinstance(node.op, ast.Add) and isinstance(a, str) and isinstance(b, str):
                found.append((a + b)[:MAX_TEXT])
            elif isinstance(node.op, ast.Add) and isinstance(a, tuple) and isinstance(b, tuple):
                found.append((*a, *b)[:500])
            elif isinstance(node.op, ast.Mod) and isinstance(a, str):
                found.append(_filled(a, (b,) if isinstance(b, str) else b, "%s"))
    return found[:MAX_READINGS] or [UNKNOWN]


def _filled(text: str, values: tuple[str, ...], mark: str) -> str:
    for value in values:
        text = text.replace(mark, value, 1)[:MAX_TEXT]
    return text


def _called(node: ast.Call, known: _Known, depth: int) -> list[Value]:
    """text.split(), shlex.split(text), text.format(...), " ".join(...)."""
    name = _name(node.func)
    if not isinstance(node.func, ast.Attribute):
        return [UNKNOWN]
    first = _values(node.args[0], known, depth + 1)[0] if node.args else UNKNOWN
    if name == "split" and _name(node.func.value) == "shlex":
        return (
            [tuple(first.replace("'", "").replace('"', "").split())]
            if isinstance(first, str)
            else [UNKNOWN]
        )
    found: list[Value] = []
    for value in _values(node.func.value, known, depth + 1):
        if name == "split" and isinstance(value, str) and not node.args:
            found.append(tuple(value.split()))
        elif name == "format" and isinstance(value, str):
            given = [_values(argument, known, depth + 1)[0] for argument in node.args[:20]]
            found.append(
                _filled(value, tuple(item for item in given if isinstance(item, str)), "{}")
            )
        elif name == "join" and isinstance(value, str) and isinstance(first, tuple):
            found.append(value.join(first)[:MAX_TEXT])
    return found or [UNKNOWN]
