"""The architecture picture is drawn from its text, and no box covers another."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

IMAGES = Path(__file__).parents[2] / "docs" / "images"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architecture", IMAGES / "architecture.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_in_step_with_its_text(script: ModuleType) -> None:
    committed = (IMAGES / "architecture.svg").read_text(encoding="utf-8")
    assert committed == script.render_svg(), "run `python docs/images/architecture.py`"


def test_the_picture_is_whole_and_needs_nothing_else(script: ModuleType) -> None:
    text = script.render_svg()
    root = ET.fromstring(text)
    shown = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    boxes, arrows = script.parse_picture(script.PICTURE)
    assert [text for box in boxes for text in box.texts] + [
        arrow.label for arrow in arrows if arrow.label
    ] == shown
    assert text.count("http") == 1 and "@import" not in text and "href" not in text


def test_every_arrow_ends_at_boxes(script: ModuleType) -> None:
    boxes, arrows = script.parse_picture(script.PICTURE)

    def touches(x: int, y: int) -> bool:
        return any(
            (x in (box.x, box.right) and box.y <= y <= box.bottom)
            or (y in (box.y, box.bottom) and box.x <= x <= box.right)
            for box in boxes
        )

    assert not [
        arrow for arrow in arrows if not touches(*arrow.points[0]) or not touches(*arrow.points[-1])
    ]


def test_what_would_look_bad_is_found(script: ModuleType) -> None:
    boxes, _ = script.parse_picture(script.PICTURE)
    assert script.find_problems(boxes) == []
    first = boxes[0]
    for wrong in (
        replace(first, x=script.WIDTH - 10),
        replace(first, x=first.x + 5),
        replace(first, y=2000, texts=("x" * 60,)),
        replace(first, texts=("title", *"abcdefgh")),
        replace(first, kind="none"),
    ):
        assert script.find_problems([*boxes[1:], first, wrong]), wrong
