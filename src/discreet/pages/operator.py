"""The operator's page: what is public about a running deployment, and nothing else. A pure function of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from discreet.mdp import Floats
from discreet.pages import escaped, facts, framed, listed, paragraphs, table

#: Entries and epochs that are shown, the last ones first.
SHOWN = 30
#: Colours of actions; further ones repeat them, and every field has its name.
COLOURS = 8
#: Steps, or groups of equal ones, that get a column of the plan.
MOST_COLUMNS = 12


@dataclass(frozen=True)
class OpenEpoch:
    """An epoch that is not released yet."""

    number: int
    size: int
    out: int  # tickets
    repeats: int | None = None
    deadline: str | None = None  # when the last ticket expires, once all are out


@dataclass(frozen=True)
class Cell:
    """What is known about an action in a state, at a step where steps are not pooled."""

    step: int | None
    state: str
    action: str
    reports: float  # that it has been credited with
    width: float
    reward: float
    reward_width: float
    known: bool
    predicted: float | None = None  # reports of the last epoch that asked for it, and those that came
    came: float | None = None
    alarm: bool = False


@dataclass(frozen=True, eq=False)
class Overview:
    """All that the page says."""

    name: str
    guarantee: str
    model: str
    learner: str
    epsilon: float
    status: str
    users: int  # most tickets
    tickets: int  # handed out
    releases: int
    open: tuple[OpenEpoch, ...]
    states: tuple[str, ...]
    actions: tuple[str, ...]
    plan: Floats  # (H, S, A)
    before: Floats | None  # the plan that was replaced
    cells: tuple[Cell, ...]
    alarms: tuple[str, ...]
    epochs: tuple[Mapping[str, Any], ...]
    log: tuple[Mapping[str, Any], ...]
    head: str
    number: int
    trust: tuple[str, ...]
    charter: Mapping[str, Any]
    as_of: str
    age: str | None = None  # of the head
    spectators: int | None = None
    latency: str | None = None  # of the store

    @property
    def epoch(self) -> int:
        return max((each.number for each in self.open), default=self.releases)


def operator_page(told: Overview) -> str:
    """The whole page."""
    return framed(
        "operator",
        "now",
        f"{told.name}: a private learner at work",
        f"{told.model} model · {told.learner} · {told.status} · as of {told.as_of}",
        ["report", "operator"],
        guarantee=escaped(told.guarantee),
        alarms="".join(f"<p class='warn'>{escaped(line)}</p>" for line in told.alarms),
        tiles="".join(tile(*each) for each in tiles(told)),
        open=open_epochs(told.open),
        policy=plan_table(told),
        cells=cell_table(told),
        epochs=_rows(
            "The last ones first; noise, never numbers of reports", told.epochs, "no epoch was announced yet"
        ),
        trust=listed(told.trust) + facts(told.charter),
        log=f"<p>Head of entry {told.number}: <code class='head'>{escaped(told.head)}</code></p>"
        + _rows("The last entries first", told.log, "the log is empty"),
    )


def tiles(told: Overview) -> list[tuple[str, str, str]]:
    """(name, value, remark)"""
    share = 100 * told.tickets / told.users
    found = [
        ("privacy", f"ε = {told.epsilon:g}", f"{told.model} model, per user"),
        ("epoch", f"{told.epoch:,}", f"{told.releases:,} released"),
        ("tickets out", f"{told.tickets:,}", f"of {told.users:,}: {share:.1f} %"),
        ("log", f"{told.number + 1:,} entries", "" if told.age is None else f"the last {told.age} ago"),
    ]
    if told.spectators is not None:
        found.append(("spectators", f"{told.spectators:,}", "since the server was started"))
    if told.latency is not None:
        found.append(("store", told.latency, "until a write is durable"))
    return found


def tile(name: str, value: str, remark: str) -> str:
    small = f"<small>{escaped(remark)}</small>" if remark else ""
    return f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}{small}</dd></div>"


def open_epochs(epochs: Sequence[OpenEpoch]) -> str:
    if not epochs:
        return "<p class='none'>No epoch is open: everybody who comes is a spectator.</p>"
    lines = []
    for epoch in epochs:
        what = f"Epoch {epoch.number:,}"
        what += "" if epoch.repeats is None else f", which repeats epoch {epoch.repeats:,}"
        state = f"{epoch.out:,} of {epoch.size:,} tickets are out"
        if epoch.deadline is not None:
            state += f"; it is released after {epoch.deadline}, whoever reported"
        share = 100 * epoch.out / epoch.size
        lines.append(
            f"<p>{escaped(what)}: {escaped(state)}.</p><div class='bar' role='img' "
            f"aria-label='{share:.0f} % of the tickets are out'><i style='width:{share:.1f}%'></i></div>"
        )
    return "".join(lines)


# The plan -----------------------------------------------------------------------------------------------------------


def plan_table(told: Overview) -> str:
    """States by steps; equal steps share a column, and what the last release has changed is framed."""
    plan, before = told.plan, told.before
    H = plan.shape[0]
    runs = [
        (steps[0], steps[-1])
        for _, group in groupby(
            range(H), key=lambda h: (plan[h].tobytes(), b"" if before is None else before[h].tobytes())
        )
        for steps in (list(group),)
    ]
    shown = runs[:MOST_COLUMNS]
    head = "".join(f"<th scope='col'>{_steps(first, last)}</th>" for first, last in shown)
    body = "".join(
        f"<tr><th scope='row'>{escaped(state)}</th>" + "".join(_field(told, first, s) for first, _ in shown) + "</tr>"
        for s, state in enumerate(told.states)
    )
    changed = 0 if before is None else int((np.abs(plan - before).max(axis=2) > 0.0).sum())
    caption = f"{changed:,} of {H * len(told.states):,} fields were changed by the last release; they are framed."
    if before is None:
        caption = "Nothing was released yet, or nothing before it: there is no earlier plan to compare with."
    if len(runs) > len(shown):
        caption += f" Steps after {shown[-1][1] + 1} are left out."
    return (
        f"<div class='wide'><table class='plan'><caption>{escaped(caption)}</caption><thead><tr><th scope='col'>state"
        f"</th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _steps(first: int, last: int) -> str:
    return f"step {first + 1}" if first == last else f"steps {first + 1}–{last + 1}"


def _field(told: Overview, step: int, state: int) -> str:
    row = told.plan[step, state]
    name, colour = _doing(row, told.actions)
    changed = told.before is not None and bool(np.abs(row - told.before[step, state]).max() > 0.0)
    was = ""
    if changed:
        assert told.before is not None
        was = f"<small>was {escaped(_doing(told.before[step, state], told.actions)[0])}</small>"
    look = " ".join(filter(None, (colour, "changed" if changed else "")))
    return f"<td{f' class={chr(39)}{look}{chr(39)}' if look else ''}>{escaped(name)}{was}</td>"


def _doing(row: Floats, names: Sequence[str]) -> tuple[str, str]:
    """In words, and its colour: nothing where several actions are played."""
    best = int(row.argmax())
    if row[best] == 1.0:
        return names[best], f"c{best % COLOURS}"
    if float(row.max() - row.min()) < 1e-6:
        return "any", ""
    return ", ".join(f"{names[a]} {100 * p:.0f} %" for a, p in enumerate(row) if p > 0.005), ""


# Cells, epochs and the log ------------------------------------------------------------------------------------------


def cell_table(told: Overview) -> str:
    if not told.cells:
        return "<p class='none'>Nothing was released yet.</p>"
    staged = any(cell.step is not None for cell in told.cells)
    columns = ("state", *(("step",) if staged else ()), "action", "reports", "± noise", "reward", "±", "known")
    columns += ("predicted last", "came, about", "alarm")
    lines = []
    for cell in told.cells:
        where = (cell.state, *((None if cell.step is None else cell.step + 1,) if staged else ()), cell.action)
        asked = cell.predicted, cell.came
        numbers = cell.reports, cell.width, cell.reward, cell.reward_width
        lines.append((*where, *numbers, cell.known, *asked, "ALARM" if cell.alarm else ""))
    return table("Rewards scaled to [0, 1]; ±: 95 % of cases", columns, lines)


def _rows(caption: str, rows: Sequence[Mapping[str, Any]], nothing: str) -> str:
    if not rows:
        return "".join(paragraphs([f"{nothing[0].upper()}{nothing[1:]}."]))
    return table(caption, list(rows[0]), [list(row.values()) for row in rows])
