"""Tables and learning curves, made of stored results only."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from discreet.mdp import Floats, Ints
from discreet.privacy.accounting import Guarantee
from discreet.runs import results
from discreet.runs.results import RunResult
from discreet.runs.statistics import Variation

#: File endings that `plot` writes.
FORMATS = (".pdf", ".png", ".svg")
#: After so many curves the colours repeat, and the line style changes.
COLOURS = 10
PANEL = ("env", "states", "horizon", "instance")


@dataclass(frozen=True, eq=False)
class Summary:
    """One experiment over its seeds."""

    label: str
    rows: tuple[RunResult, ...]
    ratio: Variation | None  # None where the random policy is optimal
    gap: Variation | None  # of the last policy, as `RunResult.final_gap`
    regret: Variation
    episodes_per_second: float | None

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.rows[0].settings

    @property
    def guarantee(self) -> Guarantee:
        return self.rows[0].guarantee


@dataclass(frozen=True, eq=False)
class Curve:
    """Regret so far over that of the random policy so far: mean, least and largest over seeds."""

    label: str
    episodes: Ints
    mean: Floats
    low: Floats
    high: Floats


def summaries(rows: Iterable[RunResult]) -> list[Summary]:
    """One summary per experiment, the best first."""
    groups: dict[str, list[RunResult]] = {}
    for row in rows:
        groups.setdefault(row.id, []).append(row)
    labels = distinct_labels({name: group[0].settings for name, group in groups.items()})
    found = [_summary(labels[name], tuple(group)) for name, group in groups.items()]
    return sorted(found, key=lambda s: (s.ratio.mean if s.ratio is not None else np.inf, s.label))


def _summary(label: str, rows: tuple[RunResult, ...]) -> Summary:
    ratios = [ratio for row in rows if (ratio := row.regret_ratio) is not None]
    gaps = [gap for row in rows if (gap := row.final_gap) is not None]
    rates = [row.settings["episodes"] / row.seconds for row in rows if row.seconds > 0]
    return Summary(
        label,
        rows,
        Variation.of(ratios) if ratios else None,
        Variation.of(gaps) if gaps else None,
        Variation.of([float(row.regret[-1]) for row in rows]),
        statistics.median(rates) if rates else None,
    )


def distinct_labels(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A short name for each experiment: its algorithm, and the settings in which experiments differ."""
    names = {name for values in settings.values() for name in values} - {"algorithm"}
    varying = sorted(name for name in names if _varies(name, list(settings.values())))
    return {key: _label(values, varying) for key, values in settings.items()}


def _varies(name: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a setting tells experiments apart; that other learners do not have it does not, but for epsilon."""
    said = {repr(value) for values in settings if (value := values.get(name)) is not None and value is not False}
    own = {(values["algorithm"], repr(values.get(name))) for values in settings}
    learners = {values["algorithm"] for values in settings}
    return (
        len(said) > 1 or len(own) > len(learners) or (name in ("epsilon", "rho") and len(settings) > 1 and bool(said))
    )


def _label(values: Mapping[str, Any], varying: Sequence[str]) -> str:
    parts = [str(values["algorithm"])]
    for name in varying:
        value = values.get(name)
        if value is None:
            continue
        if isinstance(value, bool):
            parts += [name.replace("_", " ")] if value else []
        elif name in ("epsilon", "rho"):
            parts.append(f"{'ε' if name == 'epsilon' else 'ρ'} = {value:g}")
        elif name == "delta":
            parts += [f"δ = {value:g}"] if value else []
        elif isinstance(value, str):
            parts.append(value)
        else:
            parts.append(f"{name.replace('_', ' ')} {value:g}")
    return ", ".join(parts)


def curves(rows: Iterable[RunResult]) -> list[Curve]:
    """Σ_{j≤k} (V* − V^{π_j}) / (k·(V* − V^random)) at the checkpoints k, one curve per experiment, best end first."""
    return [_curve(summary) for summary in summaries(rows) if summary.ratio is not None]


def _curve(summary: Summary) -> Curve:
    episodes = summary.rows[0].checkpoints
    # Values may be losses, so the random policy's regret decides, not the order of the two values.
    ratios = np.array([row.regret / (episodes * row.random_regret / episodes[-1]) for row in summary.rows])
    return Curve(summary.label, episodes, ratios.mean(axis=0), ratios.min(axis=0), ratios.max(axis=0))


def panels(rows: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    """Rows by environment, which do not share a picture, under a title in words."""
    groups: dict[str, list[RunResult]] = {}
    for row in rows:
        env, states, horizon, instance = (row.settings.get(name) for name in PANEL)
        sizes = [f"{states} states" if states else "", f"horizon {horizon}" if horizon else ""]
        which = [f"instance {instance}" if instance else ""]
        title = ", ".join(part for part in (str(env), *sizes, *which) if part)
        groups.setdefault(title, []).append(row)
    return dict(sorted(groups.items()))


def plot(folder: str | Path, out: str | Path) -> Path:
    """Draw the learning curves of all runs in a folder; the ending of `out` says in which format.

    Runs against an adversary also get a panel of their losses beside those of the best fixed policy in hindsight.
    """
    path = Path(out)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"cannot draw to {str(path)!r}: its ending must be one of {', '.join(FORMATS)}")
    rows = results.read(folder)
    if not rows:
        raise ValueError(f"there are no results in {str(folder)!r}; make some with `discreet run … --out {folder}`")
    results.prepare(path.parent)
    figure = _figure(panels(rows))
    form = path.suffix.lower().removeprefix(".")
    return results.replaced(path, lambda part: figure.savefig(part, format=form, dpi=150))


def _figure(groups: Mapping[str, Sequence[RunResult]]) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    against = loss_panels(row for rows in groups.values() for row in rows)
    columns = min(len(groups) + len(against), 3)
    lines = -(-(len(groups) + len(against)) // columns)
    figure = Figure(figsize=(1.5 + 6.0 * columns, 4.6 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    panel = (figure.add_subplot(lines, columns, position) for position in itertools.count(1))
    for (title, rows), axes in zip(groups.items(), panel, strict=False):
        axes.axhline(1.0, color="0.6", linewidth=1, linestyle="--", label="random policy")
        drawn = curves(rows)
        for number, curve in enumerate(drawn):
            style = ("-", "--", ":")[number // COLOURS % 3]
            (line,) = axes.plot(curve.episodes, curve.mean, style, linewidth=1.8, label=curve.label)
            axes.fill_between(curve.episodes, curve.low, curve.high, color=line.get_color(), alpha=0.18, linewidth=0)
        axes.set_ylim(bottom=0.0)
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if len(drawn) > 6 else {}
        legend = {"title": "mean, and range over seeds", "title_fontsize": "small", **beside}
        _finish(axes, title, "regret so far / regret of the random policy", legend)
    for (title, rows), axes in zip(against.items(), panel, strict=False):
        for summary in summaries(rows):
            episodes = summary.rows[0].checkpoints
            (line,) = axes.plot(episodes, _mean_loss(summary, "loss") / episodes, linewidth=1.8, label=summary.label)
            best = _mean_loss(summary, "comparator_loss") / episodes
            axes.plot(episodes, best, "--", linewidth=1.2, color=line.get_color())
        _finish(axes, title, "mean loss so far (dashed: best fixed policy)", {})
    return figure


def _finish(axes: Any, title: str, measured: str, legend: Mapping[str, Any]) -> None:
    axes.set(title=title, xscale="log", xlabel="episodes", ylabel=measured)
    axes.grid(alpha=0.25)
    axes.legend(fontsize="small", **legend)


def loss_panels(rows: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    """Rows of runs against an adversary, by environment and adversary."""
    groups: dict[str, list[RunResult]] = {}
    for title, panel in panels(row for row in rows if "comparator_loss" in row.diagnostics).items():
        for row in panel:
            groups.setdefault(f"{title}, {row.settings['adversary']} losses", []).append(row)
    return groups


def _mean_loss(summary: Summary, name: str) -> Floats:
    """Cumulative losses at the checkpoints, averaged over seeds."""
    return np.asarray(np.mean([row.diagnostics[name] for row in summary.rows], axis=0), dtype=np.float64)
