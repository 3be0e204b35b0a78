"""quick_dataclasses: its classes are those of the standard library in all that is used."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from batchyard.quick_dataclasses import NamedTuple, dataclass


@dataclass(frozen=True, slots=True)
class Point:
    kind: ClassVar[str] = "point"
    x: int
    y: int = 0
    labels: list[str] = field(default_factory=list)
    note: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Line(Point):
    """A class with a base, a value that is made, and its own text."""

    end: int = 9
    length: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", self.end - self.x)

    def __repr__(self) -> str:
        return f"{self.x}..{self.end}"


@dataclass(slots=True)
class Counter:
    count: int = 0


@dataclass(slots=True, eq=False)
class Token:
    name: str


class Span(NamedTuple):
    """A tuple with a default, a method and a property."""

    start: int
    end: int = 9

    @property
    def length(self) -> int:
        return self.end - self.start

    def moved(self, by: int) -> Span:
        return self._replace(start=self.start + by, end=self.end + by)


def test_arguments_and_defaults() -> None:
    point = Point(1, labels=["a"])
    assert (point.x, point.y, point.labels, point.note, point.kind) == (1, 0, ["a"], "", "point")
    assert Point(1).labels is not Point(1).labels
    line = Line(2, 3, end=5)
    assert (line.x, line.y, line.end, line.length) == (2, 3, 5, 3)


@pytest.mark.parametrize(
    "call", [lambda: Point(), lambda: Point(1, 2, [], "", 5), lambda: Point(1, z=2)]
)
def test_wrong_arguments_are_named_as_usual(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"Point\.__init__\(\)"):
        call()


def test_the_signature_is_known_before_the_first_instance() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        size: int
        unit: str = "MiB"

    assert list(inspect.signature(Fresh).parameters) == ["size", "unit"]
    assert Fresh.__match_args__ == ("size", "unit")
    assert inspect.signature(Line).parameters["end"].annotation == "int"


def test_the_first_instances_are_as_all_others() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh(Point):
        end: int = 9
        length: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "length", self.end - self.x)

    for x in range(20):
        fresh = Fresh(x, labels=["a"], end=30)
        assert (fresh.x, fresh.y, fresh.labels, fresh.end, fresh.length) == (
            x,
            0,
            ["a"],
            30,
            30 - x,
        )
        assert Fresh(x).labels is not Fresh(x).labels


def test_wrong_arguments_of_the_first_instance_are_named_as_usual() -> None:
    def make(*values: object, **named_values: object) -> object:
        @dataclass(slots=True)
        class Fresh:
            size: int
            unit: str = "MiB"
            total: int = field(init=False)

        return Fresh(*values, **named_values)  # type: ignore[arg-type]

    for call, message in (
        (lambda: make(), "missing 1 required positional argument: 'size'"),
        (lambda: make(1, "GiB", 3), "takes from 2 to 3 positional arguments but 4 were given"),
        (lambda: make(1, size=2), "got multiple values for argument 'size'"),
        (lambda: make(1, total=2), "got an unexpected keyword argument 'total'"),
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_equality_hash_and_text() -> None:
    assert Point(1, 2, note="a") == Point(1, 2, note="b") != Point(2, 2)
    assert Point(1) != Line(1) and Point(1) != (1, 0, [])
    assert repr(Point(1)) == "Point(x=1, y=0, labels=[])"
    assert repr(Line(1)) == "1..9"
    assert Counter(1) == Counter(1) and Token("a") != Token("a")
    labels: Any = ()
    assert hash(Point(1, labels=labels)) == hash(Point(1, labels=labels, note="b"))
    assert len({Token("a"), Token("a")}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter())


def test_only_a_frozen_value_refuses_changes() -> None:
    point: Any = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    with pytest.raises(AttributeError):
        counter.other = 1  # type: ignore[attr-defined]


def test_the_functions_of_dataclasses_take_them() -> None:
    line = Line(1, labels=["a"])
    assert dataclasses.replace(line, x=4) == Line(4, labels=["a"])
    assert dataclasses.replace(line, x=4).length == 5
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 0, "labels": [], "note": ""}
    assert [f.name for f in dataclasses.fields(Point)] == ["x", "y", "labels", "note"]
    assert [(f.name, f.type) for f in dataclasses.fields(Line)][-2:] == [
        ("end", "int"),
        ("length", "int"),
    ]


@pytest.mark.parametrize("value", [Point(1, 2, ["a"]), Line(1), Counter(3)])
def test_values_can_be_copied(value: object) -> None:
    copies = [copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))]
    assert copies == [value] * 3


def test_what_is_not_supported_is_refused() -> None:
    for unsupported in (field(kw_only=True), field(init=False, default=1)):
        with pytest.raises(TypeError, match=r"Odd\.value: use dataclasses\.dataclass"):
            dataclass(slots=True)(
                type("Odd", (), {"__annotations__": {"value": int}, "value": unsupported})
            )
    with pytest.raises(ValueError, match=r"Odd\.values: use field\(default_factory=\.\.\.\)"):
        dataclass(slots=True)(type("Odd", (), {"__annotations__": {"values": list}, "values": []}))


def test_a_named_tuple_is_that_of_the_standard_library() -> None:
    span = Span(2)
    assert (span, span.length, span.moved(1)) == ((2, 9), 7, Span(start=3, end=10))
    assert repr(span) == "Span(start=2, end=9)"
    assert (Span._fields, Span._field_defaults) == (("start", "end"), {"end": 9})
    assert Span.__annotations__ == {"start": "int", "end": "int"}
    assert (Span.__doc__, Span.__module__) == (
        "A tuple with a default, a method and a property.",
        __name__,
    )
    assert pickle.loads(pickle.dumps(span)) == copy.copy(span) == span
    with pytest.raises(TypeError, match="start"):
        Span()  # type: ignore[call-arg]
