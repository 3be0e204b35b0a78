"""Bars of ratios to a lower bound, as SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_COLOURS = {"static": "#b8b8b8", "dynamic": "#5b8db8", "longest first": "#2f6b3a"}
_LEFT, _SCALE, _BAR, _GAP = 320, 130, 14, 16


def draw(bars: Sequence[tuple[str, str, float]]) -> str:
    """Return the chart of (case, way, ratio). Each case is a group; 1 is the lower bound."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for case, way, ratio in bars:
        groups.setdefault(case, []).append((way, ratio))
    width = _LEFT + int(_SCALE * max(ratio for *_, ratio in bars)) + 60
    parts, y = [], 34
    for case, entries in groups.items():
        middle = y + len(entries) * _BAR // 2 + 4
        parts.append(f'<text x="{_LEFT - 10}" y="{middle}" text-anchor="end">{escape(case)}</text>')
        for way, ratio in entries:
            length = _SCALE * ratio
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{length:.0f}" height="{_BAR - 2}" '
                f'fill="{_COLOURS[way]}"/>'
                f'<text x="{_LEFT + length + 5:.0f}" y="{y + 10}">{ratio:.2f}</text>'
            )
            y += _BAR
        y += _GAP
    bound = _LEFT + _SCALE
    parts.append(f'<path d="M{bound} 28V{y - _GAP + 4}" stroke="#000" stroke-dasharray="3 3"/>')
    for number, (way, colour) in enumerate(_COLOURS.items()):
        x = 12 + number * 110
        parts.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15}" y="17">{way}</text>')
    parts.append(f'<text x="{bound}" y="22" text-anchor="middle">lower bound</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" '
        f'height="{y}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{y}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
