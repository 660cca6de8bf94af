"""Draws predicted against measured, and what was measured by interval, as SVG files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from benchmarks.checkpoints.chart import COLOURS, FONT, Chart, Line, svg
from benchmarks.models.evaluate import CHECKPOINT, NORMAL, RECOVERY, Comparison, Pair
from penstock.models.advice import outcome
from penstock.models.job_model import JobModel

_INTERVALS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
WIDTH, HEIGHT = 340, 320
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 34, 46
_FACTOR = 1.25


def draw(comparison: Comparison) -> dict[str, str]:
    """One file with a picture per quantity; on the diagonal a prediction is right."""
    quantities = [q for q in (CHECKPOINT, RECOVERY, NORMAL) if comparison.of(q)]
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {WIDTH * len(quantities)} {HEIGHT}" '
            f'width="{WIDTH * len(quantities)}" height="{HEIGHT}" {FONT} font-size="11">'
        ),
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for number, quantity in enumerate(quantities):
        parts.append(f'<g transform="translate({WIDTH * number},0)">')
        parts += _scatter(quantity, comparison.of(quantity), comparison.median_error(quantity))
        parts.append("</g>")
    parts.append("</svg>")
    found = {"predicted": "\n".join(parts) + "\n"}
    if comparison.model is not None:
        found["interval"] = svg(_curves(comparison.model))
    return found


def _curves(model: JobModel) -> list[Chart]:
    """What each interval leads to, as `penstock advise` computes it."""
    at = [outcome(model, t) for t in _INTERVALS]
    normal = [
        Line(name, [(o.interval_s, seconds) for o, seconds in pairs if seconds is not None])
        for name, pairs in (
            ("worst", [(o, o.normal_worst_s) for o in at]),
            ("mean", [(o, o.normal_mean_s) for o in at]),
        )
    ]
    limited = [Line(line.name, [p for p in line.points if math.isfinite(p[1])]) for line in normal]
    share = Line("C/T", [(o.interval_s, 100 * o.overhead) for o in at if o.overhead > 0])
    size = Line("bytes", [(o.interval_s, o.new_bytes / 1e6) for o in at if o.new_bytes > 0])
    x_label = "interval, s"
    charts = [
        Chart("Back to normal after a failure", x_label, "s", [li for li in limited if li.points]),
        Chart("Capacity for checkpoints", x_label, "%", [share] if share.points else []),
        Chart("Written by a checkpoint", x_label, "MB", [size] if size.points else []),
    ]
    return [chart for chart in charts if chart.lines]


def _scatter(quantity: str, pairs: Sequence[Pair], error: float | None) -> list[str]:
    values = [value for p in pairs for value in (p.predicted, p.measured)]
    low, high = min(values) / 1.3, max(values) * 1.3
    x = _scale(low, high, LEFT, WIDTH - RIGHT)
    y = _scale(low, high, HEIGHT - BOTTOM, TOP)
    middle = (LEFT + WIDTH - RIGHT) / 2
    title = quantity if error is None else f"{quantity}: median error {error:.0%}"
    parts = [
        _text(LEFT, 18, title, weight="bold"),
        _text(middle, HEIGHT - 10, "measured, s", anchor="middle"),
        (
            f'<text transform="translate(14,{HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle" '
            'fill="#1f2328">predicted, s</text>'
        ),
    ]
    for value in _ticks(low, high):
        parts.append(_line(x(value), HEIGHT - BOTTOM, x(value), TOP, "#d0d7de"))
        parts.append(_line(LEFT, y(value), WIDTH - RIGHT, y(value), "#d0d7de"))
        parts.append(_text(x(value), HEIGHT - BOTTOM + 16, f"{value:g}", anchor="middle"))
        parts.append(_text(LEFT - 6, y(value) + 4, f"{value:g}", anchor="end"))
    # Right, and a quarter too much or too little.
    parts.append(_line(x(low), y(low), x(high), y(high), "#57606a"))
    for factor in (_FACTOR, 1 / _FACTOR):
        start, end = max(low, low / factor), min(high, high / factor)
        ends = x(start), y(start * factor), x(end), y(end * factor)
        parts.append(_line(*ends, "#57606a", dashes="4 4"))
    for pair in pairs:
        colour = COLOURS[pair.phase % len(COLOURS)]
        where = f"{escape(pair.setting)}: predicted {pair.predicted:.2f} s, "
        where += f"measured {pair.measured:.2f} s"
        parts.append(
            f'<circle cx="{x(pair.measured):.1f}" cy="{y(pair.predicted):.1f}" r="4" '
            f'fill="{colour}" fill-opacity="0.7"><title>{where}</title></circle>'
        )
    return parts


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = math.log(high / low) or 1.0
    return lambda value: start + math.log(value / low) / span * (end - start)


def _ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [m * 10.0**e for e in powers for m in (1, 2, 3, 5, 7)]
    return [round(v, 6) for v in every if low <= v <= high]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="1"{dashed}/>'
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="#1f2328">{escape(words)}</text>'
    )
