"""HTML and SVG as values. Pure, and knows nothing of runs.

Text is escaped unless it is ``Markup``, which only this module makes from anything but a literal: what a user or a
child wrote cannot become a tag by being forgotten somewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import TypeAlias

#: HTML's elements that have no end tag
_VOID = frozenset({"br", "link", "meta"})
#: what terminals obey: colours, cursor movements, titles
_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])"
)
#: characters that HTML does not allow, as the pictures of themselves; C1 controls have none
_CONTROLS = {code: 0x2400 + code for code in range(32) if code not in (9, 10)}
_CONTROLS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
#: marks that make text read in another order than it is written
_CONTROLS |= dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content: TypeAlias = "str | int | Iterable[Content] | None"


def tag(name: str, *content: Content, **attributes: str | int | float | None) -> Markup:
    """An element. ``class_`` is `class`, ``stroke_width`` is `stroke-width`; None leaves an attribute out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(plain(_number(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(content)}</{name}>")


def join(content: Content) -> Markup:
    if content is None:
        return Markup()
    if isinstance(content, Markup):
        return content
    if isinstance(content, str | int):
        return Markup(escape(plain(str(content)), quote=False))
    return Markup("".join(map(join, content)))


def plain(text: str) -> str:
    """Without what only a terminal understands, and with what is left of it made visible."""
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPE_SEQUENCE.sub("", text).translate(_CONTROLS)
    # Names of files may hold bytes that are no UTF-8, which Python keeps as lone surrogates.
    return text.encode("utf-8", "replace").decode()


def px(value: float) -> str:
    """A coordinate, short: a tenth of a pixel is finer than anybody sees."""
    return f"{value:.1f}".removesuffix(".0")


def _number(value: str | int | float) -> str:
    return px(value) if isinstance(value, float) else str(value)
