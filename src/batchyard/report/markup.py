"""HTML and SVG elements as strings. Pure.

Every text is escaped unless it is ``Markup``. Other modules make ``Markup`` only from literals, so
that the text of a user or of a command can never become a tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import TypeAlias

#: elements of HTML without an end tag
_VOID = frozenset({"br", "link", "meta"})
#: control sequences of terminals: colours, cursor movements, titles
_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])"
)
#: control characters, which HTML forbids -> their symbols; C1 controls have no symbol
_CONTROLS = {code: 0x2400 + code for code in range(32) if code not in (9, 10)}
_CONTROLS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
#: characters that change the direction of text
_CONTROLS |= dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)


class Markup(str):
    """Text that is HTML, and is not escaped again."""

    __slots__ = ()


Content: TypeAlias = "str | int | Iterable[Content] | None"


def tag(name: str, *content: Content, **attributes: str | int | float | None) -> Markup:
    """Return an element. An attribute ``class_`` is named `class`, ``stroke_width`` `stroke-width`.

    An attribute with the value None is left out.
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(make_visible(_number(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{attribute_text}>")
    return Markup(f"<{name}{attribute_text}>{join(content)}</{name}>")


def join(content: Content) -> Markup:
    """Return the content as one text, escaped where it is not Markup; None is empty."""
    if content is None:
        return Markup()
    if isinstance(content, Markup):
        return content
    if isinstance(content, str | int):
        return Markup(escape(make_visible(str(content)), quote=False))
    return Markup("".join(map(join, content)))


def make_visible(text: str) -> str:
    """Return the text without control sequences, and with symbols for control characters."""
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPE_SEQUENCE.sub("", text).translate(_CONTROLS)
    # Python has bytes of a file name that are not UTF-8 as lone surrogates.
    return text.encode("utf-8", "replace").decode()


def px(value: float) -> str:
    """Return a coordinate in pixels, to one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def _number(value: str | int | float) -> str:
    return px(value) if isinstance(value, float) else str(value)
