"""Line plots as small SVG files, drawn by hand: readable on light and on dark, and by ear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 44, 52
COLOURS = ("#3a86d4", "#d9772b", "#3c9d63", "#a566c9")
"""Of middling lightness, so that they stand out against white and against near-black."""
DASHES = ("", "7 4", "2 4", "10 3 2 3")
INK, LINE = "#808080", "#80808055"
TICKS_MAX = 6


@dataclass(frozen=True, slots=True)
class Series:
    """A named line; points are (x, y) in the units of the axes."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis says, and how its marks are written."""

    title: str
    text: Callable[[float], str] = lambda value: f"{value:g}"
    top: float | None = None
    """Lines that go higher are cut off here."""


def percent(value: float) -> str:
    """Write a share."""
    return f"{value:.0%}"


def line_plot(
    title: str,
    told: str,
    across: Axis,
    up: Axis,
    series: Sequence[Series],
    *,
    mark: tuple[float, str] | None = None,
) -> str:
    """Draw lines over common axes.

    Args:
        told: the plot in a sentence, for who can't see it.
        mark: a height at which a thin line with a name is drawn.
    """
    xs = [x for line in series for x, _ in line.points]
    ys = [y for line in series for _, y in line.points] + ([mark[0]] if mark else [])
    x_marks = round_marks(min(xs), max(xs))
    highest = max(ys) if up.top is None else min(max(ys), up.top)
    y_marks = round_marks(0.0, highest)
    x_low, x_high = min(min(xs), x_marks[0]), max(max(xs), x_marks[-1])
    y_high = max(highest, y_marks[-1])

    def at_x(value: float) -> float:
        return LEFT + (value - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def at_y(value: float) -> float:
        return HEIGHT - BOTTOM - min(value, y_high) / y_high * (HEIGHT - TOP - BOTTOM)

    parts = [_frame(across, up, [(at_x(x), x) for x in x_marks], [(at_y(y), y) for y in y_marks])]
    if mark is not None:
        y = at_y(mark[0])
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{INK}" stroke-dasharray="3 3"/>'
            + _text(WIDTH - RIGHT, y - 5, mark[1], anchor="end")
        )
    for index, line in enumerate(series):
        parts.append(_line(index, [(at_x(x), at_y(y)) for x, y in sorted(line.points)]))
    parts.append(_legend(series))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="none">'
        f"<title>{escape(title)}</title><desc>{escape(told)}</desc>{''.join(parts)}</svg>\n"
    )


def round_marks(low: float, high: float) -> list[float]:
    """Return up to TICKS_MAX marks at 1, 2 or 5 times a power of ten within [low, high]."""
    span = (high - low) or 1.0
    step = 10.0 ** (len(f"{span:.0f}") - 1) / 1000
    factors = (2.0, 2.5, 2.0)
    turn = 0
    while span / step >= TICKS_MAX:
        step *= factors[turn % 3]
        turn += 1
    first = -(-low // step) * step
    return [first + step * index for index in range(int((high - first) / step + 1e-9) + 1)]


def _frame(
    across: Axis,
    up: Axis,
    x_marks: Sequence[tuple[float, float]],
    y_marks: Sequence[tuple[float, float]],
) -> str:
    bottom = HEIGHT - BOTTOM
    parts = []
    for y, value in y_marks:
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{LINE}"/>')
        parts.append(_text(LEFT - 8, y + 4, up.text(value), anchor="end"))
    for x, value in x_marks:
        parts.append(f'<path d="M{x:.1f} {bottom}v5" stroke="{INK}"/>')
        parts.append(_text(x, bottom + 20, across.text(value), anchor="middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, across.title, anchor="middle"))
    parts.append(_text(8, 16, up.title))
    return "".join(parts)


def _line(index: int, points: Sequence[tuple[float, float]]) -> str:
    colour, dash = COLOURS[index % 4], DASHES[index % 4]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{path}" stroke="{colour}" stroke-width="2"{dashed}/>{dots}'


def _legend(series: Sequence[Series]) -> str:
    parts, x = [], LEFT
    for index, line in enumerate(series):
        colour, dash = COLOURS[index % 4], DASHES[index % 4]
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<path d="M{x} 30h26" stroke="{colour}" stroke-width="2"{dashed}/>')
        parts.append(_text(x + 32, 34, line.name))
        x += 52 + 7 * len(line.name)
    return "".join(parts)


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}">{escape(text)}</text>'
    )
