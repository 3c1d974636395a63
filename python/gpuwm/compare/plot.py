"""Bars of times, as SVG, that are readable on a light and on a dark page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

COLOURS = ("#8da0cb", "#e5c494", "#66a61e", "#d95f02")
WIDTH, LABEL, RIGHT, ROW, TOP, BOTTOM = 960, 330, 90, 30, 84, 16  # pixels


def bars(title: str, subtitle: str, parts: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """rows: [{label, seconds, parts: {part: seconds}}]. One bar a row, of its parts in their
    order."""
    longest = max((sum(row["parts"].values()) for row in rows), default=0) or 1
    scale = (WIDTH - LABEL - RIGHT) / longest
    height = TOP + ROW * len(rows) + BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
        f'  width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="13">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="14" y="24" font-size="15" font-weight="bold">{html.escape(title)}</text>',
        f'<text x="14" y="44" fill="#555">{html.escape(subtitle)}</text>',
    ]
    at = 14
    for colour, part in zip(COLOURS, parts, strict=True):
        out.append(f'<rect x="{at}" y="56" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{at + 17}" y="67" fill="#555">{html.escape(part)}</text>')
        at += 40 + 8 * len(part)
    for number, row in enumerate(rows):
        out += _bar(row, parts, scale, TOP + ROW * number)
    return "\n".join([*out, "</svg>", ""])


def _bar(row: dict[str, Any], parts: Sequence[str], scale: float, top: int) -> list[str]:
    label = html.escape(row["label"])
    out = [f'<text x="{LABEL - 10}" y="{top + 19}" text-anchor="end">{label}</text>']
    at = float(LABEL)
    for colour, part in zip(COLOURS, parts, strict=True):
        width = row["parts"].get(part, 0.0) * scale
        out.append(
            f'<rect x="{at:.1f}" y="{top + 5}" width="{width:.1f}" height="{ROW - 10}"'
            f' fill="{colour}"/>'
        )
        at += width
    out.append(f'<text x="{at + 6:.1f}" y="{top + 19}">{row["seconds"]:.2f} s</text>')
    return out
