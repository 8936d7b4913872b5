"""Tables and learning curves, made of stored results only."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from discreet.mdp import Floats, Ints
from discreet.privacy.accounting import Guarantee
from discreet.runs import results, statistics
from discreet.runs.results import RunResult
from discreet.runs.statistics import Variation

#: File endings that `plot` writes.
FORMATS = (".pdf", ".png", ".svg")
#: After so many curves the colours repeat, and the line style changes.
COLOURS = 10
PANEL = ("env", "states", "horizon", "instance")
_DIGEST = re.compile(r"@[0-9a-f]{12}\b")


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
    gap: float  # of the last policy, mean over seeds


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
        float(statistics.median(rates)) if rates else None,
    )


def distinct_labels(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A short name for each experiment: its algorithm, and the settings in which experiments differ."""
    names = {name for values in settings.values() for name in values} - {"algorithm"}
    varying = sorted(name for name in names if _varies(name, list(settings.values())))
    labels = {key: _label(values, varying) for key, values in settings.items()}
    short = spoken(labels.values())
    return {key: short[label] for key, label in labels.items()}


def spoken(titles: Iterable[str]) -> dict[str, str]:
    """Every title without the digests of one's own models and learners, where it still names one thing only."""
    named = {title: _DIGEST.sub("", title) for title in titles}
    often = Counter(named.values())
    return {title: short if often[short] == 1 else title for title, short in named.items()}


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


# Tables of many environments ----------------------------------------------------------------------------------------

ALL = "all environments"


def of_role(rows: Iterable[RunResult], role: str = "reporting") -> list[RunResult]:
    """Runs that may be reported: all but those whose seed was for tuning; or those alone."""
    return [row for row in rows if (row.role == "tuning") == (role == "tuning")]


@dataclass(frozen=True, eq=False)
class Group:
    """One learner with one setting, wherever it ran."""

    label: str
    rows: tuple[RunResult, ...]

    def scores(self, measure: str = "regret_ratio") -> dict[str, dict[int, float]]:
        """Environment → seed → score, as `statistics` takes it; secure runs have negative numbers for seeds."""
        found: dict[str, dict[int, float]] = {}
        for title, rows in panels(self.rows).items():
            secure = itertools.count(-1, -1)
            scored = ((row.seed, getattr(row, measure)) for row in rows)
            known = {next(secure) if seed is None else seed: value for seed, value in scored if value is not None}
            if known:
                found[title] = known
        return found


def grouped(rows: Iterable[RunResult]) -> list[Group]:
    """Runs by everything but their environment and seed."""
    groups: dict[tuple[tuple[str, str], ...], list[RunResult]] = {}
    for row in rows:
        key = tuple((name, repr(value)) for name, value in row.settings.items() if name not in PANEL)
        groups.setdefault(key, []).append(row)
    settings = {
        str(number): {name: value for name, value in each[0].settings.items() if name not in PANEL}
        for number, each in enumerate(groups.values())
    }
    labels = distinct_labels(settings)
    return [Group(labels[str(number)], tuple(each)) for number, each in enumerate(groups.values())]


def table(rows: Iterable[RunResult]) -> list[dict[str, Any]]:
    """One line per environment and learner, the best first, then the learners over all environments.

    `low` and `high` end the interval of the interquartile mean, stratified by environment.
    """
    groups = grouped(rows)
    places = sorted({title for group in groups for title in panels(group.rows)})
    lines = [_line(title, group, [title]) for title in places for group in groups if title in panels(group.rows)]
    if len(places) > 1:
        lines += [_line(ALL, group, places) for group in groups]
    order = {title: number for number, title in enumerate([*places, ALL])}
    lines.sort(key=lambda line: (order[line["environment"]], _last(line["iqm"]), line["learner"]))
    short = spoken(order)
    return [{**line, "environment": short[line["environment"]]} for line in lines]


def _last(value: float | None) -> float:
    return np.inf if value is None else value


def _line(title: str, group: Group, places: Sequence[str]) -> dict[str, Any]:
    inside = panels(group.rows)
    promise = group.rows[0].guarantee
    ratios, gaps = (
        [list(scores[place].values()) for place in places if place in scores]
        for scores in (group.scores(), group.scores("final_gap"))
    )
    return {
        "environment": title,
        "learner": group.label,
        "privacy": promise.model,
        "epsilon": promise.epsilon if promise.epsilon < np.inf else None,
        "runs": sum(len(inside.get(place, ())) for place in places),
        "environments": sum(place in inside for place in places),
        **_numbers(ratios),
        **{f"gap_{name}": value for name, value in _numbers(gaps).items()},
    }


def _numbers(strata: Sequence[Sequence[float]]) -> dict[str, float | None]:
    names = ("mean", "sd", "median", "worst", "iqm", "low", "high")
    if not strata:
        return dict.fromkeys(names)
    found = Variation.of([value for values in strata for value in values])
    low, high = statistics.bootstrap(strata) or (None, None)
    numbers = (found.mean, found.sd, found.median, found.worst, found.iqm, low, high)
    return dict(zip(names, numbers, strict=True))


#: What a problem is made of beside its environment, and what a promise is made of.
_PROBLEM = ("episodes", "discount", "reward_law", *("alpha", "df", "tail_index"), "adversary")
_PROMISE = ("epsilon", "delta", "rho", "model")


def against(rows: Iterable[RunResult], baseline: str, measure: str = "regret_ratio") -> list[dict[str, Any]]:
    """Every learner against one of them: differences at equal environment and seed, and who is better how often.

    `baseline` is a learner, met where the problem (and, if it had several, the budget) is the same; or a label.
    """
    groups = grouped(rows)
    exact = [group for group in groups if group.label == baseline]
    named = exact or [group for group in groups if group.rows[0].settings["algorithm"] == baseline]
    if not named:
        raise ValueError(f"nobody here is {baseline!r}; choose one of: {_labels(groups)}")
    lines = []
    for group in groups:
        if group in named:
            continue
        theirs = exact or _alike(group, named)
        if len(theirs) > 1:
            raise ValueError(f"{baseline!r} ran with several settings; choose one of: {_labels(theirs)}")
        lines += [line for other in theirs if (line := _difference(group, other, measure)) is not None]
    return sorted(lines, key=lambda line: (line["difference"], line["learner"]))


def _labels(groups: Iterable[Group]) -> str:
    return "; ".join(sorted(group.label for group in groups))


def _alike(group: Group, others: Sequence[Group]) -> list[Group]:
    """Those that met the same problem; of several, those that promise the same."""

    def same(names: Sequence[str], among: Sequence[Group]) -> list[Group]:
        mine = group.rows[0].settings
        return [one for one in among if all(one.rows[0].settings.get(n) == mine.get(n) for n in names)]

    found = same(_PROBLEM, others)
    return found if len(found) < 2 else same(_PROMISE, found) or found


def _seeded(scores: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    """Without secure runs, of which no two belong together."""
    return {place: {seed: score for seed, score in each.items() if seed >= 0} for place, each in scores.items()}


def _difference(group: Group, other: Group, measure: str) -> dict[str, Any] | None:
    ours, theirs = group.scores(measure), other.scores(measure)
    difference, better = statistics.paired(_seeded(ours), _seeded(theirs)), statistics.improvement(ours, theirs)
    if difference is None or better is None:
        return None
    low, high = difference.interval or (None, None)
    least, most = better.interval or (None, None)
    return {
        "learner": group.label,
        "against": other.label,
        "environments": better.environments,
        "pairs": difference.pairs,
        "difference": difference.mean,
        "low": low,
        "high": high,
        "probability": better.probability,
        "probability_low": least,
        "probability_high": most,
    }


# Curves and pictures ------------------------------------------------------------------------------------------------


def curves(rows: Iterable[RunResult]) -> list[Curve]:
    """Σ_{j≤k} (V* − V^{π_j}) / (k·(V* − V^random)) at the checkpoints k, one curve per experiment, best end first."""
    return [_curve(summary) for summary in summaries(rows) if summary.ratio is not None]


def _curve(summary: Summary) -> Curve:
    episodes = summary.rows[0].checkpoints
    # Values may be losses, so the random policy's regret decides, not the order of the two values.
    ratios = np.array([row.regret / (episodes * row.random_regret / episodes[-1]) for row in summary.rows])
    assert summary.gap is not None
    spread = ratios.mean(axis=0), ratios.min(axis=0), ratios.max(axis=0)
    return Curve(summary.label, episodes, *spread, summary.gap.mean)


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


def plot(runs: str | Path | Iterable[RunResult], out: str | Path) -> Path:
    """Draw the learning curves of runs, or of all runs in a folder; the ending of `out` says in which format.

    Runs against an adversary also get a panel of their losses beside those of the best fixed policy in hindsight.
    """
    path = Path(out)
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"cannot draw to {str(path)!r}: its ending must be one of {', '.join(FORMATS)}")
    if isinstance(runs, (str, Path)):
        rows = reportable(runs)
        if path.resolve().is_relative_to(Path(runs).resolve()):
            raise ValueError(f"{str(path)!r} lies among the results, which are one table; choose another folder")
    elif not (rows := list(runs)):
        raise ValueError("there are no runs to draw; expected what `run` or `run_seeds` return, or a folder")
    results.prepare(path.parent)
    figure = _figure(panels(rows))
    form = path.suffix.lower().removeprefix(".")
    return results.replaced(path, lambda part: figure.savefig(part, format=form, dpi=150))


def reportable(folder: str | Path) -> list[RunResult]:
    """The runs of a folder that may be reported; refused where there are none."""
    rows = results.read(folder)
    if not rows and (page := Path(folder) / "certificate.html").is_file():
        raise ValueError(f"{str(folder)!r} holds a policy and no runs; its page is {page}")
    if not rows:
        raise ValueError(f"there are no results in {str(folder)!r}; make some with `discreet run … --out {folder}`")
    if not (found := of_role(rows)):
        raise ValueError(f"all seeds in {str(folder)!r} are for tuning, and none may be reported; run others")
    return found


def _figure(groups: Mapping[str, Sequence[RunResult]]) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    against = loss_panels(row for rows in groups.values() for row in rows)
    columns = min(len(groups) + len(against), 3)
    lines = -(-(len(groups) + len(against)) // columns)
    figure = Figure(figsize=(1.5 + 6.0 * columns, 4.6 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    panel = (figure.add_subplot(lines, columns, position) for position in itertools.count(1))
    short = spoken([*groups, *against])
    for (title, rows), axes in zip(groups.items(), panel, strict=False):
        axes.axhline(1.0, color="0.6", linewidth=1, linestyle="--", label="random policy")
        drawn = curves(rows)
        for number, curve in enumerate(drawn):
            style = ("-", "--", ":")[number // COLOURS % 3]
            (line,) = axes.plot(curve.episodes, curve.mean, style, linewidth=1.8, label=curve.label)
            axes.fill_between(curve.episodes, curve.low, curve.high, color=line.get_color(), alpha=0.18, linewidth=0)
            axes.scatter(
                curve.episodes[-1:], [curve.gap], marker="x", color=line.get_color(), clip_on=False, zorder=3
            )
        axes.set_ylim(bottom=0.0)
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if len(drawn) > 6 else {}
        title_of = "mean, and range over seeds\n× gap of the last policy"
        legend = {"title": title_of, "title_fontsize": "small", **beside}
        _finish(axes, short[title], "regret so far / regret of the random policy", legend)
    for (title, rows), axes in zip(against.items(), panel, strict=False):
        for summary in summaries(rows):
            episodes = summary.rows[0].checkpoints
            (line,) = axes.plot(episodes, _mean_loss(summary, "loss") / episodes, linewidth=1.8, label=summary.label)
            best = _mean_loss(summary, "comparator_loss") / episodes
            axes.plot(episodes, best, "--", linewidth=1.2, color=line.get_color())
        _finish(axes, short[title], "mean loss so far (dashed: best fixed policy)", {})
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
