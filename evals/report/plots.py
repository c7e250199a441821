"""Draw plots as inline SVG; colours are classes that the page's style sheet defines for light and dark mode."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evals.report.markup import Markup, element, joined
from evals.timing import percentile

WIDTH, HEIGHT = 420, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 14, 12, 36
_BINS = 24
_CALIBRATION_BINS = 10
_ROW = 34

Point = tuple[float, float]


class Interval(NamedTuple):
    """A row of a forest plot: a difference with its 95 % interval; `tone` is "good", "bad" or ""."""

    label: str
    mean: float
    low: float
    high: float
    tone: str


def _x(share: float) -> float:
    return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 2)


def _y(share: float) -> float:
    return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 2)


def _figure(title: str, *shapes: object, height: float = HEIGHT) -> Markup:
    return element(
        "svg", element("title", title), shapes, viewBox=f"0 0 {WIDTH} {height:g}", role="img", aria_label=title
    )


def _text(x: float, y: float, text: object, *, anchor: str = "middle", class_: str = "tick") -> Markup:
    return element("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def _shares_axis(name: str) -> Markup:
    """Return the lines and numbers of an axis from 0 at the bottom to 1."""
    ticks = [0, 0.25, 0.5, 0.75, 1]
    lines = [_line(_x(0), _y(one), _x(1), _y(one), "rule") for one in ticks]
    return joined(lines, (_text(_LEFT - 6, _y(one) + 4, f"{one:g}", anchor="end") for one in ticks), _name(name))


def _name(name: str) -> Markup:
    return _text(_x(0.5), HEIGHT - 4, name, class_="axis")


def curves(title: str, name: str, lines: Mapping[str, Sequence[Point]]) -> Markup:
    """Draw lines over a logarithmic axis from 1, with a legend; the last line is on top.

    Args:
        lines: points (x >= 1, value in [0, 1]) by label, sorted by x.
    """
    most = max(point[0] for points in lines.values() for point in points)
    scale = math.log(most) if most > 1 else 1.0
    ticks = [one for one in (1, 2, 5, 10, 20, 50, 100) if one <= most]
    shapes = [_text(_x(math.log(one) / scale), HEIGHT - _BOTTOM + 16, one) for one in ticks]
    for number, points in enumerate(lines.values()):
        place = " ".join(f"{_x(math.log(depth) / scale)},{_y(value)}" for depth, value in points)
        shapes.append(element("polyline", points=place, class_=f"line s{number}"))
    legend = (
        element("span", element("i", class_=f"swatch s{number}"), label, class_="key")
        for number, label in enumerate(lines)
    )
    return joined(_figure(title, _shares_axis(name), shapes), element("p", legend, class_="legend"))


def histogram(title: str, values: Sequence[float], marks: Mapping[str, float]) -> Markup:
    """Draw a histogram from 0 to about the 99th percentile; larger values count in the last bin.

    Args:
        values: >= 0, at least one.
        marks: values to mark, by label.
    """
    top = max(percentile(values, 0.99), *marks.values(), 1e-9) * 1.02
    counts = [0] * _BINS
    for value in values:
        counts[min(int(value / top * _BINS), _BINS - 1)] += 1
    most, width = max(counts), (WIDTH - _LEFT - _RIGHT) / _BINS
    bars = [
        element(
            "rect",
            element("title", f"{top * n / _BINS:.0f} to {top * (n + 1) / _BINS:.0f} ms: {count}"),
            x=round(_x(n / _BINS) + 1, 2), y=_y(count / most * 0.9), width=round(width - 2, 2),
            height=round(_y(0) - _y(count / most * 0.9), 2), rx=2, class_="bar",
        )
        for n, count in enumerate(counts)
        if count
    ]  # fmt: skip
    lines = []
    for number, (label, value) in enumerate(marks.items()):
        x, is_right = _x(min(value / top, 1.0)), value > 0.7 * top
        lines.append(_line(x, _TOP, x, _y(0), "mark"))
        place = (x - 4, "end") if is_right else (x + 4, "start")
        lines.append(_text(place[0], _TOP + 10 + 14 * number, label, anchor=place[1], class_="label"))
    ticks = [_text(_x(share), HEIGHT - _BOTTOM + 16, f"{top * share:.0f}") for share in (0, 0.25, 0.5, 0.75, 1)]
    return _figure(title, bars, lines, _line(_x(0), _y(0), _x(1), _y(0), "rule"), ticks, _name("milliseconds"))


def calibration(title: str, stated: Sequence[tuple[float, bool]]) -> Markup:
    """Draw the share of right conditions by their probability; a dot's area grows with their number.

    Args:
        stated: (probability, whether it is right) of each condition.
    """
    bins: dict[int, list[tuple[float, bool]]] = {}
    for probability, right in stated:
        bins.setdefault(min(int(probability * _CALIBRATION_BINS), _CALIBRATION_BINS - 1), []).append(
            (probability, right)
        )
    points = []
    for held in (bins[number] for number in sorted(bins)):
        sure = sum(probability for probability, _ in held) / len(held)
        points.append((sure, sum(right for _, right in held) / len(held), len(held)))
    dots = [
        element(
            "circle", element("title", f"{count} read with {sure:.2f}: {right:.0%} right"), cx=_x(sure), cy=_y(right),
            r=round(3 + 9 * math.sqrt(count / len(stated)), 2), class_="dot",
        )
        for sure, right, count in points
    ]  # fmt: skip
    place = " ".join(f"{_x(sure)},{_y(right)}" for sure, right, _ in points)
    ticks = [_text(_x(one), HEIGHT - _BOTTOM + 16, f"{one:g}") for one in (0, 0.25, 0.5, 0.75, 1)]
    shapes = (_line(_x(0), _y(0), _x(1), _y(1), "ideal"), element("polyline", points=place, class_="line s0"), dots)
    return _figure(title, _shares_axis("probability that was read"), shapes, ticks)


def forest(title: str, rows: Sequence[Interval]) -> Markup:
    """Draw differences with their intervals, one below the other, around a line at zero."""
    reach = max(0.01, *(max(abs(row.low), abs(row.high), abs(row.mean)) for row in rows)) * 1.1
    left, right = 14, WIDTH - 14

    def x(value: float) -> float:
        return round(left + (value + reach) / (2 * reach) * (right - left), 2)

    height = _ROW * len(rows) + 26
    shapes = [_line(x(0), 4, x(0), height - 22, "zero")]
    for number, row in enumerate(rows):
        y = _ROW * number + 26
        shapes += [
            _text(left, y - 10, row.label, anchor="start", class_="label"),
            _text(right, y - 10, f"{row.mean:+.3f}", anchor="end", class_="label"),
            _line(x(row.low), y, x(row.high), y, f"whisker {row.tone}"),
            element("circle", cx=x(row.mean), cy=y, r=4.5, class_=f"point {row.tone}"),
        ]
    ticks = [_text(x(value), height - 6, f"{value:+.2f}" if value else "0") for value in (-reach / 1.1, 0, reach / 1.1)]
    return _figure(title, shapes, ticks, height=height)


def bar(share: float, tone: str = "") -> Markup:
    """Return an inline bar for a share in [0, 1]."""
    width = f"width:{100 * min(max(share, 0.0), 1.0):.1f}%"
    return element("span", element("span", style=width, class_=tone or None), class_="meter")


def stacked(title: str, parts: Sequence[tuple[str, int, str]]) -> Markup:
    """Return counts as parts of one bar with a legend; a part is (label, count, CSS class)."""
    whole = sum(count for _, count, _ in parts) or 1
    bars = (
        element("span", style=f"width:{100 * count / whole:.2f}%", class_=tone, title=f"{label}: {count}")
        for label, count, tone in parts
        if count
    )
    legend = (
        element("span", element("i", class_=f"swatch {tone}"), f"{label} ", element("b", count), class_="key")
        for label, count, tone in parts
    )
    drawn = element("div", bars, class_="stack", role="img", aria_label=title)
    return joined(drawn, element("p", legend, class_="legend"))
