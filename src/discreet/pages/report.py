"""A folder of results as one page: a pure function of stored results, which reaches nobody's data."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from discreet.pages import (
    Command,
    Fixed,
    Range,
    charts,
    escaped,
    facts,
    framed,
    listed,
    odds,
    paragraphs,
    table,
)
from discreet.pages.charts import Chart, Line
from discreet.privacy.accounting import Guarantee
from discreet.runs import report
from discreet.runs.report import Summary
from discreet.runs.results import RunResult
from discreet.runs.statistics import Variation

RATIO = "regret / regret of the random policy"
GAP = "gap of the last policy / gap of the random policy"
#: From no trust at all to trust in a curator, then no privacy; settings that go with a model are not compared.
TRUST = ("local", "shuffle", "two-servers", "joint", "none")
OF_THE_MODEL = ("model", "delta", "local_reports", "honest", "neighbours")
#: So many of the worst seeds are named.
MOST_SEEDS = 12
EXACT = (
    "Regrets, values and gaps are exact: they were computed with the true model, which only a simulation knows. They "
    "are measurements of the learners and no private outputs; nothing like them may be published about real people."
)
SEEDED = "All randomness came from seeds, the noise too: these runs can be repeated, and they protect nobody."
SECURE = "Runs without a seed drew their noise from cryptographic randomness."

MECHANISMS = {
    "laplace": "Laplace noise",
    "discrete-laplace": "integer Laplace noise",
    "balanced-laplace": "balanced integer Laplace noise",
    "gaussian": "Gaussian noise",
    "discrete-gaussian": "integer Gaussian noise",
    "randomised-answer": "a randomised answer",
    "randomised-response": "randomised answers",
    "optimised-unary-encoding": "a randomised unary code",
    "shuffled-bits": "the noise bits of a shuffled crowd",
}
MODELS = {
    "joint": "Users trust a curator, who sees their records and adds the noise; everybody else sees noisy sums only.",
    "central": "Users trust a curator, who sees their records and adds the noise.",
    "local": "Users trust nobody: each randomises on her own device, and nothing else leaves it.",
    "shuffle": "Users trust a mixer that forgets who sent what; every device adds a little noise before.",
    "two-servers": "Users trust that two servers do not work together; each sees shares that mean nothing alone.",
}


@dataclass(frozen=True)
class Contents:
    """What the page shows: one picture after the other, by section."""

    found: Sequence[Summary]
    curves: Sequence[Chart]
    losses: Sequence[Chart]
    budgets: Sequence[Chart]
    users: Sequence[Chart]
    trust: Sequence[Chart]

    @property
    def sections(self) -> tuple[Sequence[Chart], ...]:
        """Charts whose lines share their colours."""
        return self.curves, self.losses, self.budgets, self.users, self.trust


def contents(rows: Sequence[RunResult]) -> Contents:
    panels = report.panels(rows)
    return Contents(
        report.summaries(rows),
        [made for title, mine in panels.items() for made in learning(title, mine)],
        [losses(title, mine) for title, mine in report.loss_panels(rows).items()],
        [made for title, mine in panels.items() for made in against("epsilon", title, mine)],
        [made for title, mine in panels.items() for made in against("episodes", title, mine)],
        [made for title, mine in panels.items() for made in side_by_side(title, mine)],
    )


def slug(*words: str) -> str:
    """A name for a file."""
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


# Charts -------------------------------------------------------------------------------------------------------------


def learning(title: str, rows: Sequence[RunResult]) -> list[Chart]:
    """Regret so far over that of the random policy so far, with the range over seeds."""
    found = report.curves(rows)
    lines = tuple(
        Line.of(each.label, zip(each.episodes, each.mean, each.low, each.high, strict=True)) for each in found
    )
    if not lines:
        return []
    return [Chart(slug("regret", title), title, "users", f"{RATIO}, so far", lines, curve=True)]


def losses(title: str, rows: Sequence[RunResult]) -> Chart:
    """Mean loss so far, and that of the best fixed policy in hindsight."""
    lines = []
    for summary in report.summaries(rows):
        users = summary.rows[0].checkpoints
        x = tuple(map(float, users))
        for name, words in (("loss", ""), ("comparator_loss", ", best fixed policy in hindsight")):
            every = [[total / k for total, k in zip(row.diagnostics[name], x, strict=True)] for row in summary.rows]
            points = [
                (k, sum(at) / len(at), min(at), max(at)) for k, at in zip(x, zip(*every, strict=True), strict=True)
            ]
            lines.append(Line.of(summary.label + words, points, flat=bool(words)))
    return Chart(slug("loss", title), title, "users", "mean loss so far", tuple(lines), reference=None, curve=True)


Measure = Callable[[RunResult], float | None]
MEASURES: tuple[tuple[str, str, Measure], ...] = (
    ("ratio", RATIO, lambda row: row.regret_ratio),
    ("gap", GAP, lambda row: row.final_gap),
)


def grouped(found: Iterable[Summary], without: Sequence[str]) -> dict[str, list[Summary]]:
    """Experiments that differ in these settings only, under a label that names the others."""
    groups: dict[tuple[Any, ...], list[Summary]] = {}
    for summary in found:
        left = tuple(sorted((k, repr(v)) for k, v in summary.settings.items() if k not in without))
        groups.setdefault(left, []).append(summary)
    said = {
        repr(key): {k: v for k, v in group[0].settings.items() if k not in without} for key, group in groups.items()
    }
    labels = report.distinct_labels(said)
    return {labels[repr(key)]: group for key, group in groups.items()}


def reached(summary: Summary, measure: Measure) -> tuple[float, float, float] | None:
    """Mean, least and largest over seeds."""
    values = [value for row in summary.rows if (value := measure(row)) is not None]
    return (sum(values) / len(values), min(values), max(values)) if values else None


def against(axis: str, title: str, rows: Sequence[RunResult]) -> list[Chart]:
    """Both measures against a setting of which some experiment has several values; without privacy: a level line."""
    words = {"epsilon": "ε per user", "episodes": "users"}[axis]
    found = report.summaries(rows)
    varied = {
        label: sorted(group, key=lambda s: float(s.settings[axis]))
        for label, group in grouped((s for s in found if s.settings.get(axis) is not None), (axis,)).items()
        if len(group) > 1
    }
    if not varied:
        return []
    spoken = sorted({float(s.settings[axis]) for group in varied.values() for s in group})
    level = grouped((s for s in found if s.guarantee.model == "none"), ()) if axis == "epsilon" else {}
    made = []
    for name, y_label, measure in MEASURES:
        lines = [
            line
            for label, group in varied.items()
            if (line := _line(label, group, [float(s.settings[axis]) for s in group], measure)) is not None
        ]
        for label, (summary, *_) in level.items():
            if (values := reached(summary, measure)) is not None:
                ends = [(at, *values) for at in (spoken[0], spoken[-1])]
                lines.append(Line.of(f"{label} (no privacy)", ends, flat=True))
        if lines:
            made.append(Chart(slug(name, "against", axis, title), title, words, y_label, tuple(lines)))
    return made


def _line(label: str, group: Sequence[Summary], x: Sequence[float], measure: Measure) -> Line | None:
    points = [(at, *values) for at, s in zip(x, group, strict=True) if (values := reached(s, measure)) is not None]
    return Line.of(label, points) if points else None


def side_by_side(title: str, rows: Sequence[RunResult]) -> list[Chart]:
    """Both measures for every model of trust, where one budget and number of users has at least two."""
    found = report.summaries(rows)
    models: dict[tuple[Any, ...], set[str]] = {}
    for each in found:
        if each.guarantee.model != "none":
            models.setdefault(_offer(each), set()).add(each.guarantee.model)
    several = {offer for offer, trusted in models.items() if len(trusted) > 1}
    users = {offer[-1] for offer in several}
    shown = [s for s in found if _offer(s) in several or (s.guarantee.model == "none" and _offer(s)[-1] in users)]
    if not shown:
        return []
    places = tuple(model for model in TRUST if model in {s.guarantee.model for s in shown})
    groups = grouped(shown, OF_THE_MODEL)
    made = []
    for name, y_label, measure in MEASURES:
        lines = []
        for label, group in groups.items():
            here = sorted(group, key=lambda s: places.index(s.guarantee.model))
            x = [float(places.index(s.guarantee.model)) for s in here]
            if (line := _line(label, here, x, measure)) is not None:
                lines.append(line)
        names = tuple("no privacy" if model == "none" else model for model in places)
        chart = Chart(slug(name, "by trust", title), title, "whom users trust", y_label, tuple(lines), names)
        made += [chart] if lines else []
    return made


def _offer(summary: Summary) -> tuple[Any, ...]:
    """The budget and the users: what must be equal for models of trust to be compared."""
    return tuple(summary.settings.get(name) for name in ("epsilon", "rho", "episodes"))


# The page -----------------------------------------------------------------------------------------------------------


def page(rows: Sequence[RunResult], name: str, commands: Mapping[str, str], made_by: Mapping[str, str]) -> str:
    """The whole page. `commands` repeat an experiment, by its id; `made_by` is what wrote the page."""
    inside = contents(rows)

    def pictures(some: Sequence[Chart], otherwise: str) -> str:
        if not some:
            return f"<p class='none'>{escaped(otherwise)}</p>"
        numbers = charts.numbers_of(some)
        return f"<div class='plots'>{''.join(charts.figure(chart, numbers) for chart in some)}</div>"

    return framed(
        "report",
        "summary",
        f"Results in {name}",
        heading(inside.found, rows),
        ["report"],
        warnings=paragraphs_of_warnings(rows),
        summary=_summary_table(inside.found) + _overall(rows),
        curves=pictures(inside.curves, "No learning curves: every policy is optimal in these environments."),
        losses=_section("Losses against an adversary", "losses", pictures(inside.losses, ""))
        if inside.losses
        else "",
        budgets=pictures(
            inside.budgets,
            "All experiments here have one budget. Run a learner with another --epsilon into the same folder, and "
            "this chart appears.",
        ),
        users=pictures(
            inside.users,
            "All experiments here have equally many users. Run a learner with other --episodes into the same folder, "
            "and this chart appears.",
        ),
        trust=pictures(
            inside.trust,
            "All private experiments here trust alike. Run a learner with another --model into the same folder, and "
            "this chart appears.",
        ),
        worst=_worst_seeds(inside.found, commands),
        guarantees=_guarantees(inside.found),
        settings=_settings(inside.found),
        origin=_origin(rows, inside.found, commands, made_by),
    )


def heading(found: Sequence[Summary], rows: Sequence[RunResult]) -> str:
    seeds = sorted({len(summary.rows) for summary in found})
    each = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    days = sorted({row.facts["time"].partition("T")[0] for row in rows if "time" in row.facts})
    when = "" if not days else f" · {days[0]}" if len(days) == 1 else f" · {days[0]} to {days[-1]}"
    return (
        f"{_counted(len(found), 'experiment')} · {each} seed{'s' if seeds[-1] > 1 else ''} each · "
        f"{_counted(len(report.panels(rows)), 'problem')}{when}"
    )


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def paragraphs_of_warnings(rows: Sequence[RunResult]) -> str:
    seeded = {row.simulation for row in rows}
    said = [EXACT, *([SEEDED] if True in seeded else []), *([SECURE] if False in seeded else [])]
    sources = len({row.facts.get("source") for row in rows})
    if sources > 1:
        said.append(f"These results come from {sources} versions of the source; their numbers may not be comparable.")
    return f"<p class='warn'><strong>Simulation.</strong> {' '.join(map(escaped, said))}</p>"


def _section(title: str, name: str, body: str) -> str:
    return f"<section aria-labelledby='{name}'><h2 id='{name}'>{escaped(title)}</h2>{body}</section>"


#: Settings that have a column of their own, or belong to one.
COLUMNS = (*report.PANEL, *OF_THE_MODEL, "epsilon", "rho", "episodes")


def _summary_table(found: Sequence[Summary]) -> str:
    columns = (
        *("learner", "problem", "trust", "ε", "users", "seeds"),
        *("ratio", "sd", "middle half", "95 % interval", "worst", "last gap", "worst gap"),
    )
    titles = list(report.panels(row for summary in found for row in summary.rows))
    names = {s.rows[0].id: label for label, group in grouped(found, COLUMNS).items() for s in group}
    lines = [
        (
            names[summary.rows[0].id],
            _problem(summary, titles),
            summary.guarantee.model,
            _budget(summary.guarantee),
            int(summary.settings["episodes"]),
            len(summary.rows),
            *_fixed(summary.ratio, "mean", "sd", "iqm"),
            _interval(summary.ratio),
            *_fixed(summary.ratio, "worst"),
            *_fixed(summary.gap, "mean", "worst"),
        )
        for summary in found
    ]
    return table("All experiments, the best first", columns, lines)


def _budget(guarantee: Guarantee) -> float | str:
    """ε, or ρ where no ε was asked for."""
    return (
        guarantee.epsilon if guarantee.rho is None or math.isfinite(guarantee.epsilon) else f"ρ = {guarantee.rho:g}"
    )


def _overall(rows: Sequence[RunResult]) -> str:
    """Learners over the problems they were run on, where these are several; resampled within their problem."""
    lines = [
        (
            line["learner"],
            line["environments"],
            line["runs"],
            *(
                None if line[name] is None else Fixed(line[name])
                for name in ("iqm", "low", "high", "worst", "gap_iqm")
            ),
        )
        for line in report.table(rows)
        if line["environment"] == report.ALL and line["environments"] > 1
    ]
    columns = "learner", "problems", "runs", "middle half", "from", "to", "worst", "last gap, middle half"
    return table("Over all problems, with 95 % intervals", columns, lines) if lines else ""


def _interval(spread: Variation | None) -> Range | None:
    """The bootstrap interval of the interquartile mean."""
    found = None if spread is None else spread.interval
    return None if found is None else Range(f"{found.low:.4f}–{found.high:.4f}")


def _problem(summary: Summary, titles: Sequence[str]) -> str:
    """The environment, with its sizes where it has several."""
    (title,), env = report.panels(summary.rows[:1]), str(summary.settings["env"])
    return env if sum(each.partition(",")[0] == env for each in titles) == 1 else title


def _fixed(spread: Variation | None, *names: str) -> list[Fixed | None]:
    values = [getattr(spread, name, None) for name in names]
    return [None if value is None else Fixed(value) for value in values]


def _worst_seeds(found: Sequence[Summary], commands: Mapping[str, str]) -> str:
    """The seeds that are furthest above the median of their experiment."""
    ranked = sorted(
        (
            (ratio - summary.ratio.median, summary, row, ratio)
            for summary in found
            if summary.ratio is not None
            for row in summary.rows
            if (ratio := row.regret_ratio) is not None and ratio > summary.ratio.median
        ),
        key=lambda each: -each[0],
    )[:MOST_SEEDS]
    lines = [
        (
            summary.label,
            "secure" if row.seed is None else row.seed,
            Fixed(ratio),
            Fixed(excess),
            None if row.final_gap is None else Fixed(row.final_gap),
            _at_seed(commands.get(row.id), row.seed),
        )
        for excess, summary, row, ratio in ranked
    ]
    if not lines:
        return "<p class='none'>No seed is worse than another of its experiment.</p>"
    columns = "experiment", "seed", "regret ratio", "above the median by", "last gap", "repeat it"
    return table("Furthest above the median of their experiment", columns, lines)


def _at_seed(command: str | None, seed: int | None) -> Command | None:
    return None if command is None or seed is None else Command(f"{command} --seeds {seed}")


def in_words(guarantee: Guarantee) -> list[str]:
    """What is promised, for people who do not read Greek."""
    if guarantee.model == "none" or (not math.isfinite(guarantee.epsilon) and guarantee.rho is None):
        return ["Nothing is promised: such a learner may give away what anybody did."]
    relation = "replaced by anybody else’s" if guarantee.neighbours == "replace" else "left out"
    lines = [MODELS[guarantee.model]]
    if math.isfinite(guarantee.epsilon):
        but = f", but for a chance of {guarantee.delta:g}" if guarantee.delta else ""
        lines.append(
            f"Had the records of any one {guarantee.unit} been {relation}, no outcome would have been more than "
            f"{odds.factor(guarantee.epsilon)} times as likely or as unlikely{but}. Whoever found it a toss-up "
            f"whether the records are these or others {odds.certainty(guarantee.epsilon)} after seeing everything."
        )
    return lines


def spent(guarantee: Guarantee) -> list[str]:
    """The ledger in words, a sentence per entry."""
    lines = []
    for entry in guarantee.entries:
        noise = MECHANISMS.get(entry.mechanism, f"the mechanism {entry.mechanism}")
        cost = f"{'ρ' if entry.is_gaussian else 'ε'} = {entry.cost:.4g}" + (
            f", δ = {entry.delta:.4g}" if entry.delta else ""
        )
        times = "one noisy value" if entry.uses == 1 else f"{entry.uses} noisy values"
        # Sums of rewards are counted in whole units so small that their numbers say nothing without the word.
        digits, unit = (",.0f", " units of its grid") if entry.sensitivity >= 2**12 else (",.4g", "")
        lines.append(
            f"{entry.statistic}: one user moves it by at most {entry.sensitivity:{digits}}{unit} "
            f"({entry.norm.upper()}) and enters {times}; {noise} (scale {entry.scale:{digits}}) hides that, at a "
            f"cost of {cost}."
        )
    return lines


def _guarantees(found: Sequence[Summary]) -> str:
    """Every different promise once, with what was spent on it and what it rests on."""
    groups: dict[str, list[Summary]] = {}
    for summary in found:
        groups.setdefault(summary.guarantee.sentence(), []).append(summary)
    parts = []
    for sentence, group in groups.items():
        ledgers: dict[tuple[str, ...], list[str]] = {}
        for summary in group:
            ledgers.setdefault(tuple(spent(summary.guarantee)), []).append(summary.label)
        told = "".join(
            f"<p>{escaped('; '.join(labels))}</p>{listed(ledger)}" for ledger, labels in ledgers.items() if ledger
        )
        rests = list(dict.fromkeys(chain.from_iterable(summary.guarantee.assumptions for summary in group)))
        parts.append(
            f"<article><h3>{escaped(sentence)}</h3>{paragraphs(in_words(group[0].guarantee))}"
            f"<p class='facts'>{escaped(', '.join(dict.fromkeys(str(s.settings['algorithm']) for s in group)))}</p>"
            + (f"<details><summary>What was spent on what</summary>{told}</details>" if told else "")
            + (f"<details><summary>What it rests on</summary>{listed(rests)}</details>" if rests else "")
            + "</article>"
        )
    return "".join(parts)


def _settings(found: Sequence[Summary]) -> str:
    """What all experiments share, and the settings in which they differ."""
    names = list(dict.fromkeys(chain.from_iterable(summary.settings for summary in found)))
    values = {name: {repr(summary.settings.get(name)) for summary in found} for name in names}
    shared = {
        n.replace("_", " "): found[0].settings[n] for n in names if len(values[n]) == 1 and values[n] != {"None"}
    }
    differing = [n for n in names if len(values[n]) > 1]
    said = f"<h3>The same in all experiments</h3>{facts(shared)}" if shared else ""
    if not differing:
        return said
    lines = [tuple(summary.settings.get(name) for name in differing) for summary in found]
    return said + table("In which they differ", [name.replace("_", " ") for name in differing], lines)


def _origin(
    rows: Sequence[RunResult], found: Sequence[Summary], commands: Mapping[str, str], made_by: Mapping[str, str]
) -> str:
    known = ("version", "source", "python", "numpy", "numba")
    versions = {name: sorted({row.facts[name] for row in rows if name in row.facts}) for name in known}
    versions = {name: values for name, values in versions.items() if values}
    told = dict.fromkeys(row.facts["command"] for row in rows if row.facts.get("command"))
    repeat = [
        f"{commands[s.rows[0].id]}{_seeds([row.seed for row in s.rows])}" for s in found if s.rows[0].id in commands
    ]
    own = [s.label for s in found if s.rows[0].id not in commands]
    return (
        f"<h3>Written with</h3>{facts(versions)}"
        f"<h3>As it was called</h3><pre>{escaped(chr(10).join(told) or 'not recorded')}</pre>"
        + (f"<h3>Commands that repeat it</h3><pre>{escaped(chr(10).join(repeat))}</pre>" if repeat else "")
        + (
            f"<p>With a model or a learner of one’s own, which only what was called above makes again: "
            f"{escaped('; '.join(own))}.</p>"
            if own
            else ""
        )
        + f"<h3>This page</h3>{facts(made_by)}"
    )


def _seeds(seeds: Sequence[int | None]) -> str:
    given = [seed for seed in seeds if seed is not None]
    if not given:
        return " --secure"
    whole = given == list(range(given[0], given[-1] + 1))
    return f" --seeds {f'{given[0]}:{given[-1] + 1}' if whole else ','.join(map(str, given))}"
