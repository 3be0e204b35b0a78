"""``dataclass`` and ``NamedTuple`` of the standard library, which compile nothing at once.

The standard library compiles up to six methods of a class when the class is defined. A command that
needs fifty classes spent a third of its start-up with that, for methods that it hardly ever called.
The modules that `run` and `status` import use this one; everything of ``dataclasses`` (``field``,
``replace``, ``fields``, ``asdict``) works with its classes.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from typing import NamedTuple as NamedTuple
else:

    def dataclass(*, frozen=False, slots=True, eq=True):
        """Decorate a class as ``dataclasses.dataclass`` does. All such classes have slots.

        ``field(kw_only=True)`` and defaults with ``field(init=False)`` raise TypeError: no class
        needs them.
        """
        assert slots
        return lambda cls: _decorate(cls, frozen, eq)

    class _NamedTupleType(type):
        def __new__(cls, name, bases, namespace):
            """Return a subclass of tuple with the annotated names as its fields."""
            names = list(namespace.get("__annotations__", ()))
            defaults = [namespace.pop(field) for field in names if field in namespace]
            module = namespace.pop("__module__")
            made = collections.namedtuple(name, names, defaults=defaults, module=module)
            for attribute, value in namespace.items():
                setattr(made, attribute, value)
            return made

    #: ``typing.NamedTuple`` without its check of the types, which compiles each of them.
    NamedTuple = type.__new__(_NamedTupleType, "NamedTuple", (), {})


#: what a field without a default has in its place
_NO_DEFAULT = dataclasses.MISSING
#: To compile ``__init__`` takes as long as to make some 20 instances without it. Most classes of a
#: short command have one or two.
_INSTANCES_BEFORE_COMPILING = 8


def _decorate(cls: type, is_frozen: bool, has_equality: bool) -> type:
    """Return a class like this one, with slots and with the methods of a dataclass."""
    namespace = dict(cls.__dict__)
    own_names = [name for name, text in cls.__annotations__.items() if not _is_shared(text)]
    own_defaults = {name: namespace.pop(name, _NO_DEFAULT) for name in own_names}
    for name, default in own_defaults.items():
        if isinstance(default, dataclasses.Field) and not _is_supported(default):
            raise TypeError(f"{cls.__name__}.{name}: use dataclasses.dataclass")
        if type(default).__hash__ is None:  # a list, for example, which all instances would share
            raise ValueError(f"{cls.__name__}.{name}: use field(default_factory=...)")
    inherited = {}
    for base in reversed(cls.__mro__[1:]):
        inherited.update(base.__dict__.get("__defaults__", {}))
    defaults = inherited | own_defaults
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    namespace["__qualname__"] = cls.__qualname__
    namespace["__slots__"] = tuple(name for name in own_names if name not in inherited)
    namespace["__match_args__"] = tuple(_select(defaults, "init"))
    namespace["__defaults__"] = defaults
    namespace["__dataclass_fields__"] = _Description(own_defaults)
    namespace["__dataclass_params__"] = _Description(own_defaults)
    namespace["__init__"] = _Init(_make_init)
    namespace.setdefault("__repr__", _Method(_make_repr))
    if has_equality:
        namespace.setdefault("__hash__", _Method(_make_hash) if is_frozen else None)
        namespace.setdefault("__eq__", _Method(_make_equality))
    if is_frozen:
        for name in ("__setattr__", "__delattr__", "__getstate__", "__setstate__"):
            namespace[name] = _Frozen.__dict__[name]
    return type(cls)(cls.__name__, cls.__bases__, namespace)


def _is_shared(annotation: object) -> bool:
    """Return whether an annotation is that of a class variable, which is no field."""
    return str(annotation).startswith(("ClassVar", "typing.ClassVar"))


def _is_supported(field: dataclasses.Field[Any]) -> bool:
    is_required = field.default is field.default_factory is dataclasses.MISSING
    return field.kw_only is not True and (field.init or is_required)


def _select(defaults: Mapping[str, object], purpose: str) -> list[str]:
    """Return the names of the fields for a purpose: init, repr or compare."""
    return [
        name
        for name, default in defaults.items()
        if not isinstance(default, dataclasses.Field) or getattr(default, purpose)
    ]


class _Description:
    """An attribute that the functions of ``dataclasses`` read, made at its first use."""

    __slots__ = ("_cls", "_name", "_own_defaults")

    def __init__(self, own_defaults: Mapping[str, object]) -> None:
        self._own_defaults = own_defaults

    def __set_name__(self, owner: type, name: str) -> None:
        self._cls, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        cls = self._cls
        namespace = {
            "__module__": cls.__module__,
            # Otherwise the standard library derives the text from the signature.
            "__doc__": cls.__name__,
            "__annotations__": cls.__annotations__,
        }
        defaults = {k: v for k, v in self._own_defaults.items() if v is not _NO_DEFAULT}
        described = type(cls)(cls.__name__, cls.__bases__, namespace | defaults)
        described = dataclasses.dataclass(init=False, repr=False, eq=False)(described)
        description = getattr(described, self._name)
        setattr(cls, self._name, description)
        return description


class _Method:
    """A method that is compiled at its first use, and then replaces this descriptor."""

    __slots__ = ("_cls", "_make", "_name")

    def __init__(self, make: Callable[[type], Callable[..., Any]]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._cls, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self._make(self._cls)
        method.__name__ = self._name
        method.__qualname__ = f"{self._cls.__qualname__}.{self._name}"
        setattr(self._cls, self._name, method)
        return method.__get__(instance, owner)  # type: ignore[attr-defined]


class _Init(_Method):
    """``__init__``, which is compiled when a class turns out to have more than a few instances."""

    __slots__ = ("_instances",)

    def __init__(self, make: Callable[[type], Callable[..., Any]]) -> None:
        super().__init__(make)
        self._instances = 0

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        self._instances += 1
        # inspect.signature passes the class as the instance.
        is_inspected = not isinstance(instance, self._cls)
        if is_inspected or self._instances > _INSTANCES_BEFORE_COMPILING:
            return super().__get__(instance, owner)
        return partial(self._initialise, instance)

    def _initialise(self, instance: Any, /, *values: object, **named_values: object) -> None:
        arguments = _complete(self._cls, values, named_values)
        if arguments is None:
            super().__get__(instance)(*values, **named_values)  # raises the usual TypeError
            return
        for name, value in arguments.items():
            object.__setattr__(instance, name, value)
        if hasattr(instance, "__post_init__"):
            instance.__post_init__()


def _complete(
    cls: Any, values: Sequence[object], named_values: Mapping[str, object]
) -> dict[str, object] | None:
    """Return the values of all arguments of ``__init__``; None if some are wrong or missing."""
    names: Sequence[str] = cls.__match_args__
    arguments = {**dict(zip(names, values, strict=False)), **named_values}
    missing = [name for name in names if name not in arguments]
    has_repeated = len(arguments) != len(values) + len(named_values)
    if has_repeated or len(arguments) + len(missing) != len(names):
        return None
    for name in missing:
        default, make_default = _split_default(cls.__defaults__[name])
        if default is make_default is _NO_DEFAULT:
            return None
        arguments[name] = make_default() if default is _NO_DEFAULT else default
    return arguments


def _split_default(default: Any) -> tuple[Any, Any]:
    """Return the default of a field and the function that makes it; one at most exists."""
    if isinstance(default, dataclasses.Field):
        return default.default, default.default_factory
    return default, _NO_DEFAULT


def _make_init(cls: Any) -> Callable[..., None]:
    """Return ``__init__``. It sets slots directly, since a frozen class refuses assignments."""
    parameters, lines = [], []
    scope: dict[str, Any] = {"_NO_DEFAULT": _NO_DEFAULT}
    for name in cls.__match_args__:
        value = name
        default, make_default = _split_default(cls.__defaults__[name])
        scope[f"_set_{name}"] = getattr(cls, name).__set__
        if default is not _NO_DEFAULT:
            scope[f"_default_{name}"] = default
            parameters.append(f"{name}=_default_{name}")
        elif make_default is not _NO_DEFAULT:
            scope[f"_make_{name}"] = make_default
            parameters.append(f"{name}=_NO_DEFAULT")
            value = f"_make_{name}() if {name} is _NO_DEFAULT else {name}"
        else:
            parameters.append(name)
        lines.append(f" _set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    source = f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(lines or [" pass"])
    exec(source, scope)
    init: Callable[..., None] = scope["__init__"]
    types = {k: v for base in reversed(cls.__mro__) for k, v in _annotations(base).items()}
    init.__annotations__ = {name: types[name] for name in cls.__match_args__}
    return init


def _annotations(cls: type) -> Mapping[str, object]:
    return getattr(cls, "__annotations__", {})


def _make_repr(cls: Any) -> Callable[[Any], str]:
    names = _select(cls.__defaults__, "repr")

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


def _compared_values(cls: Any) -> Callable[[Any], Any]:
    """Return the function that returns the values of the fields that are compared."""
    names = _select(cls.__defaults__, "compare")
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
