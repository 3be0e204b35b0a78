"""Typed reading of JSON: values by their annotations, and errors that name the place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest

from batchyard.json_fields import JsonFieldError, OneOf, Range, read, read_field


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Disk:
    path: Path
    size_mib: Annotated[int, Range(1, 1000)]
    label: str = ""


@dataclass(frozen=True)
class Host:
    name: str
    disks: tuple[Disk, ...] = ()
    colour: Colour = Colour.RED
    load: Annotated[float, Range(0.5, 9, allows_zero=True)] | None = None
    kind: Annotated[str, OneOf(("cpu", "gpu"))] = "cpu"
    is_up: bool = True
    tags: Mapping[str, int] | None = None
    other: Any = None


def test_a_document_becomes_values() -> None:
    document = {
        "name": "a",
        "disks": [{"path": "/x", "size_mib": 5}],
        "colour": "blue",
        "load": 1,
        "kind": "gpu",
        "is_up": False,
        "tags": {"b": 2},
        "other": [None, {}],
    }
    host = read(Host, document, "host")
    disks = (Disk(Path("/x"), 5),)
    assert host == Host("a", disks, Colour.BLUE, 1.0, "gpu", False, {"b": 2}, [None, {}])
    assert type(host.load) is float
    assert read(Host, {"name": "a", "load": 0, "tags": None}, "") == Host("a", load=0.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": None}, "host.name: expected text, found null"),
        ({"name": 5}, "host.name: expected text, found 5"),
        ({"nam": "a"}, 'host: unknown field "nam"'),
        ({"disks": {}}, "host.disks: expected a list, found an object"),
        ({"disks": [[]]}, "host.disks[0]: expected an object, found a list"),
        ({"disks": [{"path": "/x"}]}, "host.disks[0].size_mib is missing"),
        (
            {"disks": [{"path": "/x", "size_mib": 0}]},
            "host.disks[0].size_mib: expected a whole number from 1 to 1000, found 0",
        ),
        (
            {"disks": [{"path": "/x", "size_mib": 1.5}]},
            "host.disks[0].size_mib: expected a whole number, found 1.5",
        ),
        (
            {"disks": [{"path": "/x", "size_mib": True}]},
            "host.disks[0].size_mib: expected a whole number, found true",
        ),
        ({"disks": [{"path": 1, "size_mib": 1}]}, "host.disks[0].path: expected text, found 1"),
        ({"load": "1"}, 'host.load: expected a number, found "1"'),
        ({"load": 10**400}, f"host.load: expected a number, found {10**400}"[:96]),
        ({"load": float("nan")}, "host.load: expected a number from 0.5 to 9, found NaN"),
        ({"kind": "tpu"}, 'host.kind: expected cpu or gpu, found "tpu"'),
        ({"colour": []}, "host.colour: expected red or blue, found a list"),
        ({"is_up": 1}, "host.is_up: expected true or false, found 1"),
        ({"tags": {"b": "2"}}, 'host.tags.b: expected a whole number, found "2"'),
        ({"tags": []}, "host.tags: expected an object, found a list"),
    ],
)
def test_an_error_says_where_and_what(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(JsonFieldError) as caught:
        read(Host, {"name": "a", **fields}, "host")
    assert str(caught.value) == message


def test_single_fields() -> None:
    assert read_field({"a": 1}, "a", int) == 1
    assert read_field({}, "a", int, default=7) == 7
    with pytest.raises(JsonFieldError, match=r"^run\.a is missing$"):
        read_field({}, "a", int, "run")
    with pytest.raises(JsonFieldError, match=r"^a: expected text, found 1$"):
        read_field({"a": 1}, "a", str, default="")
    with pytest.raises(JsonFieldError, match=r"^the document: expected an object, found null$"):
        read(Host, None, "")
