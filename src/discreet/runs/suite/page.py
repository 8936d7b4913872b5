"""Scores of the suite as one page: a pure function of scored runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping
from typing import Any

from discreet.pages import Fixed, charts, escaped, framed, table
from discreet.pages.charts import Chart, Line
from discreet.runs.suite.problems import BUDGETS, suite
from discreet.runs.suite.reference import described
from discreet.runs.suite.scores import Board, Score, overall


def page(found: Board, version: str, measured: Collection[str]) -> str:
    """The whole page; `measured` contenders were run here, the others' scores came with the suite."""
    some = pictures(found)
    numbers = charts.numbers_of(some)
    runs = sum(score.runs for axes in found.values() for score in axes.values())
    return framed(
        "suite",
        "board",
        f"The suite for private learners, {version}",
        f"{len(found)} contenders · {len(suite(version))} axes · {runs:,} runs",
        ["report", "suite"],
        board=board(found, version, measured),
        budgets="<div class='plots'>"
        + "".join(charts.figure(chart, numbers, "least and largest axis") for chart in some)
        + "</div>",
        axes=intervals(found),
        problems=problems(version),
    )


def board(found: Board, version: str, measured: Collection[str]) -> str:
    """Contenders by axes, the fuller the colour the better."""
    names = [problem.name for problem in suite(version)]
    columns = ("learner and trust model", "mean", *names)
    head = "".join(f"<th scope='col'><button type='button'>{escaped(name)}</button></th>" for name in columns)
    body = "".join(
        f"<tr{' class=own' if contender in measured else ''}><td>{escaped(contender)}</td>"
        + "".join(map(_score, (overall(axes), *(axes[name].mean if name in axes else None for name in names))))
        + "</tr>"
        for contender, axes in found.items()
    )
    caption = "Bold: run here. A dash: the learner cannot play the problem; the mean is over the axes it has"
    return (
        f"<div class='wide'><table class='sortable'><caption>{caption}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _score(value: float | None) -> str:
    if value is None:
        return "<td>–</td>"
    return (
        f"<td class='number score' data-value='{value!r}' style='--score:{min(max(value, 0.0), 1.0):.3f}'>"
        f"{value:.2f}</td>"
    )


def pictures(found: Board) -> list[Chart]:
    """What is lost against ε, one picture per trust model, the mean over axes."""
    made = []
    for model in BUDGETS:
        lines = [
            Line.of(contender.rpartition(", ")[0], points)
            for contender, axes in found.items()
            if contender.endswith(f", {model}") and (points := _points(axes))
        ]
        if lines:
            title = f"Trust model: {model}"
            made.append(Chart(f"suite-{model}", title, "ε", "what is missing to 1: 1 − score", tuple(lines)))
    return made


def _points(axes: Mapping[str, Score]) -> list[tuple[float, float, float, float]]:
    """(ε, mean, least, largest) of 1 − score over the axes."""
    budgets = sorted({epsilon for score in axes.values() for epsilon in score.by_budget if epsilon is not None})
    at: Callable[[float], list[float]] = lambda epsilon: [  # noqa: E731
        max(0.0, 1.0 - score.by_budget[epsilon]) for score in axes.values() if epsilon in score.by_budget
    ]
    return [(epsilon, statistics.fmean(lost), min(lost), max(lost)) for epsilon in budgets for lost in (at(epsilon),)]


def intervals(found: Board) -> str:
    columns = ("learner and trust model", "axis", "score", "95 % from", "to", "worst run", "last gap", "runs")
    lines: list[tuple[Any, ...]] = [
        (
            contender,
            axis,
            Fixed(score.mean),
            *([None, None] if score.interval is None else map(Fixed, score.interval)),
            Fixed(score.worst),
            Fixed(score.gap),
            score.runs,
        )
        for contender, axes in found.items()
        for axis, score in axes.items()
    ]
    return table(
        "Scores over three budgets; the last gap is that of the final policy, 0 optimal, 1 random", columns, lines
    )


def problems(version: str) -> str:
    rows = described(version)
    return table("Sizes of the first instance", list(rows[0]), [list(row.values()) for row in rows])
