"""A line chart with logarithmic axes, as a self-contained SVG file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLOURS = ("#1f6feb", "#2da44e", "#bf8700", "#cf222e", "#57606a", "#8250df")
WIDTH, HEIGHT = 420, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 104, 34, 46
FONT = 'font-family="system-ui, sans-serif"'


@dataclass(frozen=True)
class Line:
    """One series of a chart; points in the order of x."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """One picture; both axes are logarithmic, so all values must be above zero."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]


def svg(charts: Sequence[Chart]) -> str:
    """Draw charts side by side."""
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(charts)} {HEIGHT}" '
            f'width="{WIDTH * len(charts)}" height="{HEIGHT}" {FONT} font-size="11">'
        ),
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for number, chart in enumerate(charts):
        parts.append(f'<g transform="translate({WIDTH * number},0)">')
        parts += _draw(chart)
        parts.append("</g>")
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _draw(chart: Chart) -> list[str]:
    points = [point for line in chart.lines for point in line.points]
    x = _scale([p[0] for p in points], LEFT, WIDTH - RIGHT)
    y = _scale([p[1] for p in points], HEIGHT - BOTTOM, TOP)
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts = [
        _text(LEFT, 18, chart.title, weight="bold"),
        _text(middle, HEIGHT - 10, chart.x_label, anchor="middle"),
        (
            f'<text transform="translate(14,{HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle" '
            f'fill="#1f2328">{escape(chart.y_label)}</text>'
        ),
    ]
    for value in sorted({p[0] for p in points}):
        parts.append(_grid(x(value), HEIGHT - BOTTOM, x(value), TOP))
        parts.append(_text(x(value), HEIGHT - BOTTOM + 16, _number(value), anchor="middle"))
    for value in _decades([p[1] for p in points]):
        parts.append(_grid(LEFT, y(value), WIDTH - RIGHT, y(value)))
        parts.append(_text(LEFT - 6, y(value) + 4, _number(value), anchor="end"))
    labels: list[float] = []
    for number, line in enumerate(chart.lines):
        colour = COLOURS[number % len(COLOURS)]
        places = [(x(a), y(b)) for a, b in line.points]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
        )
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in places]
        height = _free(places[-1][1] + 4, labels)
        labels.append(height)
        parts.append(_text(places[-1][0] + 8, height, line.name, colour=colour))
    return parts


def _scale(values: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    span = (high - low) or 1.0
    return lambda value: start + (math.log10(value) - low) / span * (end - start)


def _decades(values: Sequence[float]) -> list[float]:
    """Round numbers within the values: powers of ten, with halves between if there are few."""
    low, high = min(values), max(values)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**e for e in exponents]
    more = [m * ten for ten in tens for m in (1, 2, 5)]
    within = [v for v in tens if low <= v <= high]
    return within if len(within) > 2 else [v for v in more if low <= v <= high]


def _free(wanted: float, taken: Sequence[float]) -> float:
    """Move a label down until it covers no other."""
    height = wanted
    while any(abs(height - other) < 12 for other in taken):
        height += 3
    return height


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def _grid(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#d0d7de" '
        'stroke-width="1"/>'
    )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    weight: str = "normal",
    colour: str = "#1f2328",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{colour}">{escape(words)}</text>'
    )
