"""Bars of ratios as SVG, readable on light and on dark pages: pure, no library."""

from __future__ import annotations

import math
from html import escape

_LABEL, _BAR, _ROW, _TOP, _RIGHT = 490, 360, 24, 34, 70  # pixels
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.ahead{fill:#1a7f5a}.behind{fill:#b35900}"
    ".line{stroke:#8c959f}@media(prefers-color-scheme:dark){text{fill:#d1d7e0}"
    ".ahead{fill:#3fb68b}.behind{fill:#e08b3a}}"
)
_TEXT_MAX = 64  # characters that the label's column holds


def ratios(rows: list[tuple[str, float]]) -> str:
    """A bar for each ratio on a logarithmic axis; to the left of the line is slower than 1."""
    logs = [math.log2(ratio) for _, ratio in rows]
    low, high = min(0.0, *logs), max(1.0, *logs)
    scale = _BAR / (high - low)
    zero = _LABEL - low * scale
    height = _TOP + _ROW * len(rows) + 10
    width = _LABEL + _BAR + _RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>How many times faster than Kafka</title><style>{_STYLE}</style>",
        f'<text x="{zero:.0f}" y="18" text-anchor="middle">as fast as Kafka (1x)</text>',
    ]
    for number, ((label, ratio), log) in enumerate(zip(rows, logs, strict=True)):
        y = _TOP + _ROW * number
        start, end = sorted((zero, zero + log * scale))
        side = "ahead" if ratio >= 1 else "behind"
        shown = label if len(label) <= _TEXT_MAX else f"{label[: _TEXT_MAX - 1]}…"
        parts += [
            f'<text x="{_LABEL - 10}" y="{y + 14}" text-anchor="end">{escape(shown)}</text>',
            f'<rect class="{side}" x="{start:.1f}" y="{y + 3}" rx="2"'
            f' width="{max(end - start, 1):.1f}" height="{_ROW - 9}"/>',
            f'<text x="{max(end, zero) + 6:.1f}" y="{y + 14}">{ratio:.3g}x</text>',
        ]
    parts.append(
        f'<line class="line" x1="{zero:.1f}" x2="{zero:.1f}" y1="24" y2="{height - 6}"/></svg>\n'
    )
    return "\n".join(parts)
