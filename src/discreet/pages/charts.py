"""Charts as data, and two ways to draw them: SVG in a page that its script can read, and files for a paper."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from discreet.pages import Fixed, escaped
from discreet.runs import results

#: Colours in `report.css` and below; more lines repeat them with other dashes.
COLOURS = (
    "#2b6cb0",
    "#c2571a",
    "#2f8f4e",
    "#8e44ad",
    "#b3261e",
    "#0f8b8d",
    "#a67c00",
    "#c2388b",
    "#5b6470",
    "#6a9c1f",
)
DASHES = ("", "7 4", "2 3")
WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 26, 58
FORMATS = (".png", ".svg")
#: So few values of x are all named.
MOST_TICKS = 6


@dataclass(frozen=True)
class Line:
    """One curve: the mean, and what lies between the least and the largest."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    flat: bool = False  # something to compare with, drawn without its range

    @classmethod
    def of(cls, label: str, points: Iterable[tuple[float, float, float, float]], flat: bool = False) -> Line:
        """From (x, mean, least, largest), at least one of them."""
        x, y, low, high = (tuple(map(float, column)) for column in zip(*points, strict=True))
        return cls(label, x, y, low, high, flat)


@dataclass(frozen=True)
class Chart:
    """A picture with its words. x is on a logarithmic scale, or counts the `places`."""

    name: str  # of its files
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    places: tuple[str, ...] = ()
    reference: float | None = 1.0
    curve: bool = False  # of many points, drawn without marks


def even_ticks(top: float) -> list[float]:
    """0 and the multiples of 1, 2 or 5 times a power of ten up to `top`: three to six of them."""
    power = 10.0 ** math.floor(math.log10(top))
    step = next(m * power for m in (0.2, 0.5, 1.0, 2.0) if top / (m * power) < 6.0)
    return [i * step for i in range(math.floor(top / step) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between the ends; where there are fewer than two, also their halves and fifths."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    whole = [10.0**p for p in range(first, last + 1)]
    fine = [m * t for t in whole for m in (1.0, 2.0, 5.0)]
    inside = [[t for t in ticks if low * (1 - 1e-9) <= t <= high * (1 + 1e-9)] for ticks in (whole, fine)]
    return inside[0] if len(inside[0]) > 2 else inside[1]


@dataclass(frozen=True)
class Axes:
    """Where values lie in the picture."""

    x: Callable[[float], float]
    y: Callable[[float], float]
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[float]


def axes(chart: Chart) -> Axes:
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    values = [v for line in chart.lines for v in (*line.high, *line.y)]
    top = max([*values, chart.reference or 0.0]) * 1.02 or 1.0
    if chart.places:
        number = len(chart.places)
        ticks = [(float(i), name) for i, name in enumerate(chart.places)]
        place = lambda x: LEFT + wide * (x + 0.5) / number  # noqa: E731
    else:
        low, high = _ends(chart.lines)
        met = sorted({x for line in chart.lines for x in line.x})
        ticks = [(t, short(t)) for t in (met if len(met) <= MOST_TICKS else log_ticks(low, high))]
        place = lambda x: LEFT + wide * math.log(x / low) / math.log(high / low)  # noqa: E731
    return Axes(place, lambda y: TOP + tall * (1.0 - y / top), ticks, even_ticks(top))


def _ends(lines: Iterable[Line]) -> tuple[float, float]:
    """The range of x with some air on both sides where there are few points."""
    xs = [x for line in lines for x in line.x]
    low, high = min(xs), max(xs)
    air = 1.0 if len(set(xs)) > 12 else (high / low) ** 0.06 if high > low else 1.5
    return low / air, high * air if high > low or air > 1.0 else high * 2.0


def short(value: float) -> str:
    """1, 0.05, 20k, 1M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


# In a page ----------------------------------------------------------------------------------------------------------


def svg(chart: Chart, numbers: Mapping[str, int]) -> str:
    """The picture; `numbers` gives every label its colour."""
    at = axes(chart)
    parts = [_grid(chart, at)]
    parts += [_line(line, numbers[line.label], at, chart, place) for place, line in enumerate(chart.lines)]
    told = f"{chart.title}: {chart.y_label} against {chart.x_label}. Arrow keys step through the values."
    return (
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' tabindex='0' aria-label='{escaped(told)}' class='chart' "
        f"data-x-label='{escaped(chart.x_label)}' data-top='{TOP}' data-bottom='{HEIGHT - BOTTOM}'>"
        f"{''.join(parts)}<line class='cross' y1='{TOP}' y2='{HEIGHT - BOTTOM}' x1='-9' x2='-9'/></svg>"
    )


def _grid(chart: Chart, at: Axes) -> str:
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for value in at.y_ticks:
        y = at.y(value)
        parts.append(f"<line class='rule' x1='{LEFT}' x2='{right}' y1='{y:.1f}' y2='{y:.1f}'/>")
        parts.append(f"<text class='y' x='{LEFT - 8}' y='{y + 5:.1f}'>{value:.6g}</text>")
    for value, name in at.x_ticks:
        x = at.x(value)
        parts.append(f"<line class='rule' x1='{x:.1f}' x2='{x:.1f}' y1='{floor}' y2='{floor + 5}'/>")
        parts.append(f"<text class='x' x='{x:.1f}' y='{floor + 22}'>{escaped(name)}</text>")
    if chart.reference is not None:
        y = at.y(chart.reference)
        parts.append(f"<line class='random' x1='{LEFT}' x2='{right}' y1='{y:.1f}' y2='{y:.1f}'/>")
        parts.append(f"<text class='note' x='{right - 4}' y='{y - 6:.1f}'>random policy</text>")
    parts.append(f"<text class='x' x='{(LEFT + right) / 2:.0f}' y='{HEIGHT - 10}'>{escaped(chart.x_label)}</text>")
    return "".join(parts)


def _line(line: Line, number: int, at: Axes, chart: Chart, place: int) -> str:
    # At places, lines stand side by side so that their ranges can be told apart.
    shift = (place - (len(chart.lines) - 1) / 2) * 12.0 if chart.places else 0.0
    xs, ys = [at.x(x) + shift for x in line.x], [at.y(y) for y in line.y]
    data = {"x": line.x, "y": line.y, "low": line.low, "high": line.high}
    told = "".join(f" data-{name}='{json.dumps([_brief(v) for v in values])}'" for name, values in data.items())
    pixels = json.dumps([[round(x, 1), round(y, 1)] for x, y in zip(xs, ys, strict=True)])
    names = f" data-names='{escaped(json.dumps([chart.places[int(x)] for x in line.x]))}'" if chart.places else ""
    body = ""
    if not chart.places:
        if not line.flat:
            band = [
                *zip(xs, map(at.y, line.high), strict=True),
                *reversed([*zip(xs, map(at.y, line.low), strict=True)]),
            ]
            body += f"<polygon class='band' points='{_points(band)}'/>"
        body += f"<polyline class='mean' points='{_points(zip(xs, ys, strict=True))}'/>"
    if not chart.curve and not line.flat:
        if chart.places:
            body += "".join(
                f"<line class='reach' x1='{x:.1f}' x2='{x:.1f}' y1='{at.y(low):.1f}' y2='{at.y(high):.1f}'/>"
                for x, low, high in zip(xs, line.low, line.high, strict=True)
            )
        body += "".join(
            f"<circle class='dot' cx='{x:.1f}' cy='{y:.1f}' r='4.5'/>" for x, y in zip(xs, ys, strict=True)
        )
    look = f"series c{number % len(COLOURS)} d{2 if line.flat else number // len(COLOURS) % len(DASHES)}"
    return f"<g class='{look}' data-series='{escaped(line.label)}'{told}{names} data-at='{pixels}'>{body}</g>"


def _brief(value: float) -> float:
    """Five digits: more than the eye reads."""
    return float(f"{value:.5g}")


def _points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)


def legend(chart: Chart, numbers: Mapping[str, int]) -> str:
    """A button per line, which hides and shows it."""
    buttons = "".join(
        f"<button type='button' class='key c{numbers[line.label] % len(COLOURS)}' aria-pressed='true' "
        f"data-series='{escaped(line.label)}'>{escaped(line.label)}</button>"
        for line in chart.lines
    )
    every = "<button type='button' class='all'>show all</button>"
    return f"<div class='legend' role='group' aria-label='Lines of {escaped(chart.title)}'>{buttons}{every}</div>"


def numbers_of(charts: Iterable[Chart]) -> dict[str, int]:
    """A colour for every label of a group of charts, in the order in which labels appear."""
    labels = dict.fromkeys(line.label for chart in charts for line in chart.lines)
    return {label: place for place, label in enumerate(labels)}


# For a paper --------------------------------------------------------------------------------------------------------


def save(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Every chart as PNG and SVG; a file appears under its name only when it is complete."""
    numbers, made = numbers_of(charts), []
    for chart in charts:
        drawing = drawn(chart, numbers)
        for ending in FORMATS:
            write = partial(drawing.savefig, format=ending[1:], dpi=150)
            made.append(results.replaced(folder / f"{chart.name}{ending}", write))
    return made


def drawn(chart: Chart, numbers: Mapping[str, int]) -> Any:
    """The same picture by matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    handles: list[Any] = []
    if chart.reference is not None:
        axis.axhline(chart.reference, color="0.6", linewidth=1, linestyle="--")
    for place, line in enumerate(chart.lines):
        number = numbers[line.label]
        colour = COLOURS[number % len(COLOURS)]
        style = ":" if line.flat else ("-", "--", ":")[number // len(COLOURS) % 3]
        if chart.places:
            shift = 0.06 * (place - (len(chart.lines) - 1) / 2)
            reach = [
                [y - a for y, a in zip(line.y, line.low, strict=True)],
                [b - y for y, b in zip(line.y, line.high, strict=True)],
            ]
            handles.append(axis.errorbar([x + shift for x in line.x], line.y, reach, fmt="o", color=colour))
            continue
        mark = None if chart.curve or line.flat else "o"
        handles += axis.plot(line.x, line.y, style, marker=mark, color=colour, linewidth=1.8)
        if not line.flat:
            axis.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    if chart.places:
        axis.set_xticks(range(len(chart.places)), chart.places)
    else:
        axis.set_xscale("log")
    axis.set(title=_literal(chart.title), xlabel=chart.x_label, ylabel=chart.y_label)
    axis.set_ylim(bottom=0.0)
    axis.grid(alpha=0.25)
    labels = [_literal(line.label) for line in chart.lines]
    figure.legend(handles, labels, fontsize="small", loc="outside right upper")
    return figure


def _literal(text: str) -> str:
    """Names are no formulas."""
    return text.replace("$", r"\$")


def rows(chart: Chart, most: int = 8) -> list[tuple[Any, ...]]:
    """The numbers behind a chart; of a curve with many points, evenly spread ones and the last."""
    found = []
    for line in chart.lines:
        number = len(line.x)
        chosen = (
            range(number) if number <= most else sorted({round(i * (number - 1) / (most - 1)) for i in range(most)})
        )
        for i in chosen:
            x: Any = chart.places[int(line.x[i])] if chart.places else line.x[i]
            x = int(x) if isinstance(x, float) and x == int(x) else x
            found.append((line.label, x, *map(Fixed, (line.y[i], line.low[i], line.high[i]))))
    return found
