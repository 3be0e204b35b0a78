"""``dataclass`` of the standard library, whose methods are compiled when they are first used.

The standard library compiles up to six methods of a class when the class is defined. A command that
needs fifty classes spent a third of its start-up with that, for methods that it hardly ever called.
The modules that `run` and `status` import use this one; everything of ``dataclasses`` (``field``,
``replace``, ``fields``, ``asdict``) works with its classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen=False, slots=True, eq=True):
        """Decorate a class as ``dataclasses.dataclass`` does. All such classes have slots.

        ``field(kw_only=True)`` and defaults with ``field(init=False)`` raise TypeError: no class
        needs them.
        """
        assert slots
        return lambda cls: _decorate(cls, frozen, eq)


_collect_fields = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)


def _decorate(cls: type, is_frozen: bool, has_equality: bool) -> type:
    own_names = set(cls.__dict__)
    # Otherwise the standard library derives the text from the signature, which takes 5 ms.
    cls.__doc__ = cls.__doc__ or cls.__name__
    cls = _collect_fields(cls)
    for field in dataclasses.fields(cls):
        if field.kw_only or not (field.init or _is_required(field)):
            raise TypeError(f"{cls.__name__}.{field.name}: use dataclasses.dataclass")
    _Method(cls, "__init__", _make_init)
    methods: dict[str, Any] = {"__repr__": _make_repr}
    if has_equality:
        methods["__eq__"] = _make_equality
        methods["__hash__"] = _make_hash if is_frozen else None
    for name in methods.keys() - own_names:
        if methods[name] is None:
            setattr(cls, name, None)
        else:
            _Method(cls, name, methods[name])
    if is_frozen:
        for name in ("__setattr__", "__delattr__", "__getstate__", "__setstate__"):
            setattr(cls, name, _Frozen.__dict__[name])
    return cls


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


class _Method:
    """A method that is compiled at its first use, and then replaces this descriptor."""

    __slots__ = ("_cls", "_make", "_name")

    def __init__(self, cls: type, name: str, make: Callable[[type], Callable[..., Any]]) -> None:
        self._cls, self._name, self._make = cls, name, make
        setattr(cls, name, self)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self._make(self._cls)
        method.__name__ = self._name
        method.__qualname__ = f"{self._cls.__qualname__}.{self._name}"
        setattr(self._cls, self._name, method)
        return method.__get__(instance, owner)  # type: ignore[attr-defined]


def _make_init(cls: type) -> Callable[..., None]:
    """Return ``__init__``. It sets slots directly, since a frozen class refuses assignments."""
    parameters, lines = [], []
    scope: dict[str, Any] = {"_MISSING": dataclasses.MISSING}
    for field in dataclasses.fields(cls):
        if not field.init:
            continue  # __post_init__ sets it
        name, value = field.name, field.name
        scope[f"_set_{name}"] = getattr(cls, name).__set__
        if field.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_MISSING")
            value = f"_make_{name}() if {name} is _MISSING else {name}"
        else:
            parameters.append(name)
        lines.append(f" _set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    source = f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(lines or [" pass"])
    exec(source, scope)
    init: Callable[..., None] = scope["__init__"]
    init.__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init}
    return init


def _make_repr(cls: type) -> Callable[[Any], str]:
    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    def represent(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return represent


def _make_equality(cls: type) -> Callable[[Any, Any], Any]:
    values_of = _compared_values(cls)

    def equals(self: Any, other: Any) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return values_of(self) == values_of(other)

    return equals


def _make_hash(cls: type) -> Callable[[Any], int]:
    values_of = _compared_values(cls)
    return lambda self: hash(values_of(self))


def _compared_values(cls: type) -> Callable[[Any], Any]:
    """Return the function that returns the values of the fields that are compared."""
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    return attrgetter(*names) if names else lambda instance: ()


class _Frozen:
    """Methods of a class whose instances do not change; they can be copied and pickled."""

    def __setattr__(self: Any, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self: Any, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self: Any) -> list[object]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def __setstate__(self: Any, state: list[object]) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)
