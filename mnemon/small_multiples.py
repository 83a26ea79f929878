"""Small multiples as inline SVG: a panel for each model on common axes, its own line on top of everyone's in grey.

Colours are those of the page's style, so that a dark scheme turns them too. No scripts, no network.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 220, 132
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 22, 24
"""Of a panel and its margins, in pixels."""
NEAR = 0.1
"""How near to 0 a range of positive values begins, of its end, to be drawn from 0."""


@dataclass(frozen=True)
class Point:
    """Where a line passes, and how sure that is."""

    x: float
    y: float
    interval: float = 0.0


Lines = Mapping[str, Sequence[Point]]
"""By model, from left to right."""


@dataclass(frozen=True)
class Axis:
    """From values to pixels, on a scale: straight, `math.log`, or `math.asinh`, which is logarithmic on both sides of
    0."""

    low: float
    high: float
    start: float
    end: float
    scale: Callable[[float], float] = float

    def __call__(self, value: float) -> float:
        low, high, value = map(self.scale, (self.low, self.high, value))
        share = 0.5 if high == low else (value - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 1)


def panels(lines: Lines, *, name: str, logarithmic: bool = False, orders: bool = False) -> str:
    """All panels of a figure, as HTML; `name` makes the figure's own names unique on a page. logarithmic: across.
    orders: up, values of either sign that are orders of magnitude apart."""
    xs = [point.x for points in lines.values() for point in points]
    across = Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, math.log if logarithmic and min(xs) > 0 else float)
    up = Axis(*drawn_range(lines, robust=not orders), HEIGHT - BOTTOM, TOP, math.asinh if orders else float)
    frame = _frame(across, up, sorted(set(xs)))
    everyone = "".join(f'<path class="other" d="{_path(points, across, up)}"/>' for points in lines.values())
    shared = f'<symbol id="{name}" viewBox="0 0 {WIDTH} {HEIGHT}">{frame}{everyone}</symbol>'
    drawn = [f'<svg width="0" height="0" aria-hidden="true" style="position: absolute">{shared}</svg>']
    drawn += [_panel(model, points, across, up, name) for model, points in lines.items()]
    return f'<div class="panels">{"".join(drawn)}</div>\n'


def drawn_range(lines: Lines, robust: bool = True) -> tuple[float, float]:
    """As far as values and their intervals reach, within the robust range if so asked. Where none is negative, as of
    errors, 0 is the end if it is near: an interval may reach below, and a value of 0 is one to see."""
    points = [point for points in lines.values() for point in points]
    ends = [end for point in points for end in _ends(point)]
    robust_low, robust_high = robust_range(lines) if robust else (-math.inf, math.inf)
    low, high = max(robust_low, min(ends)), min(robust_high, max(ends))
    return (0.0, high) if min(point.y for point in points) >= 0 and low < NEAR * high else (low, high)


def robust_range(lines: Lines) -> tuple[float, float]:
    """The range that is drawn: all values, unless a few models lie so far off that the others would be one line.

    What lies farther from the middle seven tenths than these are wide is cut off at the edge, and its panel says so.
    """
    values = sorted(point.y for points in lines.values() for point in points)
    low, high = (values[round(share * (len(values) - 1))] for share in (0.15, 0.85))
    reach = high - low
    return (low - reach, high + reach) if reach > 0 else (values[0], values[-1])


def _ends(point: Point) -> tuple[float, float]:
    return point.y - point.interval, point.y + point.interval


def _clipped(value: float, up: Axis) -> float:
    return up(min(max(value, up.low), up.high))


def _path(points: Sequence[Point], across: Axis, up: Axis) -> str:
    return "M" + " L".join(f"{across(point.x):g},{_clipped(point.y, up):g}" for point in points)


def _band(points: Sequence[Point], across: Axis, up: Axis) -> str:
    """The intervals as an area."""
    above = [f"{across(point.x):g},{_clipped(point.y + point.interval, up):g}" for point in points]
    below = [f"{across(point.x):g},{_clipped(point.y - point.interval, up):g}" for point in reversed(points)]
    return "M" + " L".join(above + below) + " Z"


def _panel(model: str, points: Sequence[Point], across: Axis, up: Axis, name: str) -> str:
    told = "; ".join(f"{point.x:g}: {point.y:.4g}" for point in points)
    beyond = any(not up.low <= point.y <= up.high for point in points)
    place = f'x="{WIDTH - RIGHT}" y="{TOP + 10}" text-anchor="end"'
    warned = f'<text class="tick" {place}>beyond the axis</text>' if beyond else ""
    marks = "".join(f'<circle r="2" cx="{across(p.x):g}" cy="{_clipped(p.y, up):g}"/>' for p in points)
    return (
        f'<svg class="panel" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(model)}: {told}">'
        f"<title>{html.escape(model)}: {told}</title>"
        f'<use href="#{name}"/><path class="band" d="{_band(points, across, up)}"/>'
        f'<path class="own" d="{_path(points, across, up)}"/><g class="marks">{marks}</g>'
        f'<text class="name" x="{LEFT}" y="14">{html.escape(model)}</text>{warned}</svg>'
    )


def _frame(across: Axis, up: Axis, xs: Sequence[float]) -> str:
    """Axes with the ends of the range, 0 where it has room between them, and the values at which x was measured as far
    as they have room."""
    bottom = HEIGHT - BOTTOM
    lines = f'<path class="axis" d="M{LEFT},{TOP} L{LEFT},{bottom} L{WIDTH - RIGHT},{bottom}"/>'
    heights = [up.low, up.high]
    if up.low < 0 < up.high and min(abs(up(0) - up(end)) for end in heights) > 12:
        heights.append(0.0)
    labels = [f'<text class="tick" x="{LEFT - 4}" y="{up(y) + 4:g}" text-anchor="end">{_short(y)}</text>'
              for y in heights]  # fmt: skip
    last = -math.inf
    for x in xs:
        if across(x) - last >= 28 or (x == xs[-1] and across(x) - last >= 22):
            last = across(x)
            at, anchor = (WIDTH, "end") if x == xs[-1] else (last, "middle")  # the last one would be cut off
            labels.append(f'<text class="tick" x="{at:g}" y="{HEIGHT - 9}" text-anchor="{anchor}">{_short(x)}</text>')
    return lines + "".join(labels)


def _short(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:.0f}k"
    return f"{value:.4g}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1 else f"{value:.2g}"
