"""Figures and tables of the papers, made again: `FIGURES` by name. Runs are kept, so that a stopped one continues."""

from __future__ import annotations

import csv
import difflib
import io
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from discreet import provenance, theory
from discreet.mdp import Floats
from discreet.people.episodes import MDPSimulator
from discreet.planning import occupancy, uniform_policy
from discreet.runs import bounds, results, verdicts
from discreet.runs.experiment import Experiment, Setting, generators, run_seeds
from discreet.runs.results import RunResult
from discreet.runs.statistics import Variation
from discreet.runs.verdicts import Row

#: Constants are chosen on seeds from here on; tables are made of others.
TUNING = 5000
TUNING_SEEDS = tuple(range(TUNING, TUNING + 3))
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Work:
    """How a figure is made: where its runs are kept, on which seeds, and how large it is."""

    out: Path
    seeds: tuple[int, ...]
    quick: bool = False
    jobs: int = 1
    sizes: tuple[int, ...] = ()  # users; empty: those of the figure

    def __post_init__(self) -> None:
        if high := [seed for seed in self.seeds if seed >= TUNING]:
            raise ValueError(f"seed {high[0]} is one on which constants are chosen; take seeds below {TUNING}")
        if any(size < 2 for size in self.sizes):
            raise ValueError(f"episodes are {', '.join(map(str, self.sizes))}; each must be at least 2")


@dataclass(frozen=True)
class FigureOutcome:
    """A table, and how it is drawn."""

    rows: tuple[Row, ...]
    draw: Callable[[], Any] | None = None  # → a matplotlib figure


@dataclass(frozen=True)
class Figure:
    """One figure or table of a paper."""

    name: str
    title: str
    claim: str  # the paper's, in our words
    setting: str  # what is run here, and how constants were chosen
    judge: Callable[[Sequence[Row]], tuple[str, ...]]  # what a table says of the claim
    make: Callable[[Work, Advance], FigureOutcome]
    total: Callable[[Work], int]  # of runs


def figure(name: str) -> Figure:
    if name in FIGURES:
        return FIGURES[name]
    near = difflib.get_close_matches(name, FIGURES, n=1, cutoff=0.0)[0]
    raise ValueError(f"there is no figure {name!r}; did you mean {near!r}? Known are {', '.join(FIGURES)}")


# Figure 4 of [WZCW23] -----------------------------------------------------------------------------------------------

LEARNERS = {"value iteration": "heavy-ucbvi", "policy optimisation": "heavy-ucbpo"}
EPSILONS = (0.5, 1.0)


class Constants(NamedTuple):
    """What is tuned: c scales all bonuses, the rate is policy optimisation's in multiples of the theorem's η."""

    c: float
    rate: float | None  # value iteration has none


@dataclass(frozen=True)
class Search:
    """Every c with every rate, by regret on these seeds."""

    scales: tuple[float, ...]
    rates: tuple[float, ...]
    seeds: tuple[int, ...] = TUNING_SEEDS

    def constants(self, learner: str) -> tuple[Constants, ...]:
        rates = self.rates if learner == "policy optimisation" else (None,)
        return tuple(itertools.starmap(Constants, itertools.product(self.scales, rates)))

    def __str__(self) -> str:
        scales, rates = (", ".join(f"{x:g}" for x in values) for values in (self.scales, self.rates))
        seeds = f"seed {self.seeds[0]}" if len(self.seeds) == 1 else f"seeds {self.seeds[0]} to {self.seeds[-1]}"
        return f"c in {{{scales}}} and, for policy optimisation, η in {{{rates}}} times the theorem's, on {seeds}"


#: For practical forms around their defaults; for the printed one, which is slow, from the theorem on, on one seed.
SEARCHES = {
    "pooled": Search((0.01, 0.03, 0.1, 0.3, 1.0), (3.0, 10.0, 30.0, 100.0, 300.0)),
    "printed": Search((0.001, 0.01, 0.1, 1.0), (1.0, 100.0), TUNING_SEEDS[:1]),
}
QUICK = Search((0.03, 0.1, 0.3), (10.0, 30.0, 100.0))


@dataclass(frozen=True)
class Cell:
    """One curve of the figure."""

    form: str  # printed (staged, the paper's constants × c), staged, pooled (ours)
    learner: str
    model: str  # none, joint, local
    epsilon: float | None

    def search(self, quick: bool) -> Search:
        return SEARCHES["printed"] if self.form == "printed" else QUICK if quick else SEARCHES["pooled"]

    def experiment(self, episodes: int, constants: Constants) -> Experiment:
        name, budget = LEARNERS[self.learner], {}
        if self.model != "none":
            name, budget = f"private-{name}", {"epsilon": self.epsilon, "model": self.model}
        return Experiment(
            name,
            states=6,
            horizon=20,
            episodes=episodes,
            pooled=self.form == "pooled",
            mode="paper" if self.form == "printed" else "practical",
            confidence_scale=constants.c,
            rate_scale=constants.rate,
            reward_law="alpha-stable",
            alpha=2.0,
            **budget,  # type: ignore[arg-type]
        )


def cells(quick: bool) -> Iterator[Cell]:
    """Every curve; what is printed releases after every episode and is too slow for a minute."""
    for form in ("staged", "pooled") if quick else ("printed", "staged", "pooled"):
        for learner in LEARNERS:
            yield Cell(form, learner, "none", None)
            for model in ("joint", "local"):
                for epsilon in EPSILONS:
                    yield Cell(form, learner, model, epsilon)


def kept(experiment: Experiment, seeds: Sequence[int], work: Work, advance: Advance) -> list[RunResult]:
    """The runs of these seeds: those that this source has left in the folder, and the others, which are kept."""
    folder = work.out / "runs"
    found = results.stored_seeds(results.prepare(folder), experiment.id, provenance.source_digest())
    missing = [seed for seed in seeds if seed not in found]
    advance(len(seeds) - len(missing))

    def finished(result: RunResult) -> None:
        results.write(result, folder)
        advance(1)

    if missing:
        found |= {
            row.seed: row for row in run_seeds(experiment, missing, work.jobs, None, finished) if row.seed is not None
        }
    return [found[seed] for seed in seeds]


def tuned(cell: Cell, episodes: int, work: Work, advance: Advance) -> Constants:
    """The constants with the least mean regret on the tuning seeds; the first of those that are equally good."""
    search, regret = cell.search(work.quick), {}
    for constants in search.constants(cell.learner):
        rows = kept(cell.experiment(episodes, constants), search.seeds, work, advance)
        regret[constants] = math.fsum(float(row.regret[-1]) for row in rows)
    return min(regret, key=lambda constants: regret[constants])


def late_ratio(run: RunResult) -> float:
    """Regret in the second half of the episodes over that of the random policy in as many."""
    half = run.checkpoints[-1] / 2
    before = float(np.interp(half, run.checkpoints, run.regret))
    return (float(run.regret[-1]) - before) / (run.random_regret / 2)


def heavy_row(cell: Cell, constants: Constants, runs: Sequence[RunResult]) -> Row:
    measured = {
        "regret": [float(run.regret[-1]) for run in runs],
        "ratio": [float(run.regret[-1]) / run.random_regret for run in runs],
        "late": [late_ratio(run) for run in runs],
    }
    episodes = int(runs[0].checkpoints[-1])
    counted = {"seeds": len(runs), **spread(measured), **hidden(cell, episodes)}
    return {**asdict(cell), **constants._asdict(), **counted}


@cache
def hidden(cell: Cell, episodes: int) -> Mapping[str, float]:
    """How often the random policy visits the pair that pays most, at its best step, and the sd of that count's noise
    if all users come in one epoch (printed: in the tree that releases every episode)."""
    setting = Setting.of(cell.experiment(episodes, Constants(1.0, None)))
    mdp, triple, (environment, noise) = setting.mdp, setting.triple(0), generators(0)
    anywhere = uniform_policy((mdp.horizon, mdp.num_states, mdp.num_actions))
    privatizer: Any = triple.privatizer  # of counts, with thresholds
    stream = privatizer.open(setting.spec, episodes + 1, noise)  # a tree does not publish its end
    stream.begin(triple.agent.plan(stream.release(), None))
    stream.add(MDPSimulator(mdp, setting.law, environment, None).rollout(anywhere, episodes))
    spreads = np.asarray(stream.release().deviations.visits, dtype=np.float64)
    visits = episodes * occupancy(mdp, anywhere)
    visits = visits.sum(axis=0, keepdims=True) if cell.form == "pooled" else visits
    best = np.broadcast_to(mdp.rewards == mdp.rewards.max(), visits.shape)
    return {"count": float(visits[best].max()), "noise": float(spreads.max())}


def spread(measured: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
    """name and name_sd for every list of numbers."""
    told: dict[str, float | None] = {}
    for name, values in measured.items():
        found = Variation.of(values)
        told |= {name: found.mean, f"{name}_sd": found.sd}
    return told


def _heavy_episodes(work: Work) -> int:
    if len(work.sizes) > 1:
        raise ValueError("this figure has one number of episodes; give one")
    return work.sizes[0] if work.sizes else 20_000


def _heavy_total(work: Work) -> int:
    searches = ((cell, cell.search(work.quick)) for cell in cells(work.quick))
    return sum(len(x.seeds) * len(x.constants(cell.learner)) + len(work.seeds) for cell, x in searches)


def _heavy(work: Work, advance: Advance) -> FigureOutcome:
    K, rows, curves = _heavy_episodes(work), [], {}
    for cell in cells(work.quick):
        constants = tuned(cell, K, work, advance)
        runs = kept(cell.experiment(K, constants), work.seeds, work, advance)
        rows.append(heavy_row(cell, constants, runs))
        curves[cell] = runs
    return FigureOutcome(tuple(rows), lambda: _draw_heavy(curves))


def _draw_heavy(curves: Mapping[Cell, Sequence[RunResult]]) -> Any:
    forms = list(dict.fromkeys(cell.form for cell in curves))
    drawing, panels = _panels(len(forms), len(LEARNERS))
    for (form, learner), axes in zip(((f, x) for f in forms for x in LEARNERS), panels, strict=True):
        for cell, runs in curves.items():
            if (cell.form, cell.learner) == (form, learner):
                label = cell.model if cell.epsilon is None else f"{cell.model}, ε = {cell.epsilon:g}"
                _band(axes, runs[0].checkpoints, np.array([run.regret for run in runs]), label)
        axes.axline((0, 0), slope=_slope(curves), color="0.6", linestyle="--", linewidth=1, label="random policy")
        axes.set(title=f"{learner}, {form}", xlabel="episodes", ylabel="cumulative regret", xlim=0, ylim=0)
        axes.legend(fontsize="small", title="mean ± sd over seeds", title_fontsize="small")
    return drawing


def _slope(curves: Mapping[Cell, Sequence[RunResult]]) -> float:
    run = next(iter(curves.values()))[0]
    return run.random_regret / float(run.checkpoints[-1])


def _panels(lines: int, columns: int) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(6.0 * columns, 4.2 * lines), layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing, [drawing.add_subplot(lines, columns, i + 1) for i in range(lines * columns)]


def _band(axes: Any, x: Any, values: Floats, label: str, style: str = "-") -> None:
    mean, sd = values.mean(axis=0), values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    (line,) = axes.plot(x, mean, style, linewidth=1.6, label=label)
    axes.fill_between(x, mean - sd, mean + sd, color=line.get_color(), alpha=0.15, linewidth=0)


# Figure 1 of [QW22] -------------------------------------------------------------------------------------------------

USERS = (5, 20, 100, 300, 1000, 10_000)  # print has 5 to 1000
INSTANCES = (0, 1)
#: Factor on the penalty of PEVI, from {.01, .003, .001, .0003, 0} on seeds 5000 to 5004 of instance 0.
PEVI_FACTOR = 0.001
BUDGETS = (0.1, 1.0, 10.0)


@dataclass(frozen=True)
class Fit:
    """One policy from one log."""

    learner: str  # pevi, pevi tuned, vapvi, dp-vapvi
    form: str  # printed, practical
    rho: float | None
    instance: int
    users: int


def _sizes(work: Work) -> tuple[int, ...]:
    return work.sizes or ((20, 100, 1000) if work.quick else USERS)


def fits(panel: str, work: Work) -> Iterator[Fit]:
    curves: list[tuple[str, str, float | None]] = [("vapvi", "printed", None), ("vapvi", "practical", None)]
    if panel == "a":
        curves = [("pevi", "printed", None), ("pevi tuned", "printed", None), *curves]
    for budget in (1.0,) if panel == "a" else BUDGETS:
        curves += [("dp-vapvi", "printed", budget), ("dp-vapvi", "practical", budget)]
    for instance in INSTANCES:
        for learner, form, rho in curves:
            yield from (Fit(learner, form, rho, instance, users) for users in _sizes(work))


def fitted(fit: Fit, seed: int) -> dict[str, Any]:
    """Gap of one policy, exact. The log depends on instance, size and seed, and not on who learns from it."""
    from discreet.envs.linear import two_state_behaviour, two_state_linear
    from discreet.envs.rewards import RewardLaw
    from discreet.offline import fitting
    from discreet.people.episodes import MDPSimulator
    from discreet.people.logs import LogFormat
    from discreet.privacy.accounting import Budget

    linear = two_state_linear(20, instance=fit.instance)
    mdp = linear.to_finite()
    sequence = np.random.SeedSequence([seed, fit.instance, 1])
    log = MDPSimulator(mdp, RewardLaw("bernoulli"), sequence).rollout(two_state_behaviour(linear), fit.users)
    policy = fitting.fit(
        log,
        LogFormat(mdp.num_states, mdp.num_actions, mdp.horizon, early_end="keep"),
        None if fit.rho is None else Budget.zcdp(fit.rho),
        algorithm=fit.learner.removesuffix(" tuned"),
        mode="paper" if fit.form == "printed" else "practical",
        confidence_scale=PEVI_FACTOR if fit.learner == "pevi tuned" else None,
        features=linear.features,
        seed=1_000_003 * seed + fit.instance,
        anyway=True,  # the figure begins where nothing can be learned
    ).policy
    worth = fitting.evaluate(policy, mdp)
    best = worth["value_optimal"]
    return {**asdict(fit), "seed": seed, "gap": best - worth["value"], "random_gap": best - worth["value_random"]}


def kept_fits(wanted: Sequence[tuple[Fit, int]], work: Work, advance: Advance) -> dict[tuple[Fit, int], Row]:
    """One JSON line per finished fit; a line of another source, or one that was cut off, is not read."""
    from joblib import Parallel, delayed

    store, source = results.prepare(work.out) / "fits.jsonl", provenance.source_digest()
    found = {place: row for place, row in _stored(store, source) if place in set(wanted)}
    advance(len(found))
    missing = [place for place in wanted if place not in found]
    with store.open("a") as file:
        for place, row in zip(
            missing,
            Parallel(n_jobs=work.jobs, return_as="generator")(delayed(fitted)(*place) for place in missing),
            strict=True,
        ):
            file.write("\n" + json.dumps({**row, "source": source}))
            file.flush()
            found[place] = row
            advance(1)
    return found


def _stored(store: Path, source: str) -> Iterator[tuple[tuple[Fit, int], Row]]:
    if not store.is_file():
        return
    for line in store.read_text().splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:  # empty, or cut off
            continue
        if row.pop("source", None) == source:
            yield (Fit(**{name: row[name] for name in Fit.__dataclass_fields__}), row["seed"]), row


def linear_row(fit: Fit, rows: Sequence[Row]) -> Row:
    measured = {"gap": [row["gap"] for row in rows]}
    return {**asdict(fit), "seeds": len(rows), **spread(measured), "random_gap": rows[0]["random_gap"]}


def _linear(panel: str) -> Callable[[Work, Advance], FigureOutcome]:
    def make(work: Work, advance: Advance) -> FigureOutcome:
        chosen = list(fits(panel, work))
        found = kept_fits([(fit, seed) for fit in chosen for seed in work.seeds], work, advance)
        values = {fit: [found[fit, seed] for seed in work.seeds] for fit in chosen}
        rows = tuple(linear_row(fit, mine) for fit, mine in values.items())
        return FigureOutcome(rows, lambda: _draw_linear(values))

    return make


def _judged_linear(last: Callable[[Sequence[Row]], tuple[str, ...]]) -> Callable[[Sequence[Row]], tuple[str, ...]]:
    return lambda rows: (*verdicts.linear_summary(rows), *last(rows), *verdicts.linear_price(rows))


def _draw_linear(values: Mapping[Fit, Sequence[Row]]) -> Any:
    drawing, panels = _panels(1, len(INSTANCES))
    curves = dict.fromkeys((fit.learner, fit.form, fit.rho) for fit in values)
    for instance, axes in zip(INSTANCES, panels, strict=True):
        for learner, form, rho in curves:
            mine = [
                fit
                for fit in values
                if (fit.learner, fit.form, fit.rho, fit.instance) == (learner, form, rho, instance)
            ]
            gaps = np.array([[row["gap"] for row in values[fit]] for fit in mine]).T
            label = f"{learner}, {form}" + ("" if rho is None else f", ρ = {rho:g}")
            _band(axes, [fit.users for fit in mine], gaps, label, "--" if form == "printed" else "-")
        axes.set(title=f"instance {instance}", xlabel="users", ylabel="optimal value − value", xscale="log", ylim=0)
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    panels[-1].legend(fontsize="small", title="mean ± sd over seeds", title_fontsize="small", **beside)
    return drawing


# Tables of theorems -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One line of a table of theorems, for every model for which print has it."""

    setting: str
    learner: str
    theorem: theory.Theorem
    models: tuple[str, ...] = ("joint", "local")
    bonus: str | None = None


REWARDS, SEEN, MET = "bounded rewards", "all losses seen", "losses on the way"
STOCHASTIC = (
    Line(REWARDS, "PUCB", theory.private_ucb_po, ("joint",), "Hoeffding"),
    Line(REWARDS, "LDP-OBI", theory.private_ucb_po, ("local",), "Hoeffding"),
    Line(REWARDS, "Private-UCB-PO", theory.private_ucb_po, bonus="Hoeffding"),
    Line(REWARDS, "Private-UCB-VI", theory.private_ucb_vi, bonus="Hoeffding"),
    Line(REWARDS, "DP-UCBVI", theory.dp_ucbvi_private, bonus="Bernstein"),
    Line(REWARDS, "every learner", theory.no_learner),
)
ADVERSARIAL = (
    Line(SEEN, "Private-UC-O-REPS", theory.uc_o_reps_private),
    Line(SEEN, "every learner", theory.no_adversarial_learner),
    Line(MET, "Private-UOB-LBPS", theory.uob_lbps_private),
    Line(MET, "every learner", theory.no_bandit_learner),
)


def promise(line: Line, case: bounds.Case) -> Row:
    """One entry of a table: the bound, what is true of every policy, and from how many users on it says something."""
    found = line.theorem(case.facts)
    start = theory.informative_from(line.theorem, case.at, case.largest) if found.kind == "upper" else None
    return {
        "setting": line.setting,
        "learner": line.learner,
        "bonus": line.bonus,
        "model": case.facts.model,
        "kind": found.kind,
        "formula": " + ".join(term.formula for term in found.terms),
        "users": case.facts.episodes,
        "value": found.value,
        "every_policy": found.trivial,
        "vacuous": found.vacuous,
        "says_something_from": start,
    }


def _theorems(lines: Sequence[Line], name: str, env: str | None) -> dict[str, Any]:
    def make(work: Work, advance: Advance) -> FigureOutcome:
        rows = []
        for line in lines:
            for model in line.models:
                for users in work.sizes or (20_000, 1_000_000):
                    case = bounds.case(name, env=env, episodes=users, model=model)
                    rows.append(promise(line, case))
            advance(1)
        return FigureOutcome(tuple(rows))

    return {"make": make, "total": lambda work: len(lines)}


# All of them --------------------------------------------------------------------------------------------------------

_LINEAR = (
    "two states, 100 actions, ten features divided by √7 so that the stated ρ holds, H = 20, two instances, "
    "behaviour plays action 0 in 60 % of the steps, data not split, exact gaps; printed and practical forms; print "
    "does not say its budgets"
)
FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        each.name: each
        for each in (
            Figure(
                "wzcw23-figure-4",
                "[WZCW23] Figure 4: cumulative regret with heavy-tailed rewards",
                "under joint privacy the price of privacy becomes negligible as episodes go by, under local "
                "privacy it stays high, and a smaller ε costs more",
                "RiverSwim, 6 states, horizon 20, symmetric α-stable rewards with α = 2; printed = staged with the "
                "paper's constants × c, staged and pooled = our practical form; for each curve the constants of "
                f"least regret, {SEARCHES['pooled']} (printed: {SEARCHES['printed']}; quick: {QUICK}, not printed)",
                lambda rows: (*verdicts.heavy_summary(rows), *verdicts.heavy(rows)),
                _heavy,
                _heavy_total,
            ),
            Figure(
                "qw22-figure-1a",
                "[QW22] Figure 1(a): gaps of PEVI, VAPVI and DP-VAPVI on a linear problem",
                "DP-VAPVI is slightly worse than VAPVI, converges to it as logs grow, and in most cases is ahead of "
                "PEVI, which is not private",
                f"{_LINEAR}; ρ = 1; pevi tuned is PEVI with {PEVI_FACTOR:g} of its penalty, searched in .01, .003, "
                ".001, .0003 and 0 on seeds 5000 to 5004 of instance 0",
                _judged_linear(verdicts.linear_order),
                _linear("a"),
                lambda work: len(list(fits("a", work))) * len(work.seeds),
            ),
            Figure(
                "qw22-figure-1b",
                "[QW22] Figure 1(b): gaps of DP-VAPVI with several budgets",
                "the larger the budget, the nearer DP-VAPVI is to VAPVI, to which it converges as logs grow",
                f"{_LINEAR}, so that ρ is one of {', '.join(f'{rho:g}' for rho in BUDGETS)} here",
                _judged_linear(verdicts.linear_budgets),
                _linear("b"),
                lambda work: len(list(fits("b", work))) * len(work.seeds),
            ),
            Figure(
                "qw23-table-1",
                "[QW23] Table 1: regret bounds under joint and local privacy",
                "DP-UCBVI has the best regret, and under joint privacy matches the lower bound up to lower orders",
                "S = 6, A = 2, H = 20, ε = 1; no run, computed from the theorems",
                verdicts.promises,
                **_theorems(STOCHASTIC, "dp-ucbvi", None),
            ),
            Figure(
                "bzzdtcc24-table-1",
                "[BZZDTCC24] Table 1: regret bounds against adversarial losses",
                "regret grows like √K under joint and local privacy, and privacy costs a lower order with all losses "
                "seen under joint privacy",
                "the environment layered with its C_M, ε = 1; no run, computed from the theorems",
                verdicts.promises,
                **_theorems(ADVERSARIAL, "private-uc-o-reps", "layered"),
            ),
        )
    }
)


# What is left on the disk -------------------------------------------------------------------------------------------


def as_csv(rows: Sequence[Row]) -> str:
    """Every number in full; what does not exist is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def from_csv(text: str) -> list[Row]:
    """The table again, with its numbers: the inverse of `as_csv`."""

    def value(cell: str) -> Any:
        if cell in ("", "True", "False"):
            return {"": None, "True": True, "False": False}[cell]
        for kind in (int, float):
            try:
                return kind(cell)
            except ValueError:
                continue
        return cell

    return [{name: value(cell) for name, cell in row.items()} for row in csv.DictReader(io.StringIO(text))]


def written(chosen: Figure, outcome: FigureOutcome, out: Path) -> list[Path]:
    """The table as CSV, the claim and the verdict as text, and the picture; each there in full or not at all."""
    text = [chosen.title, "", f"Claim: {chosen.claim}.", f"Here: {chosen.setting}.", ""]
    text += [*chosen.judge(outcome.rows), ""]
    parts: dict[str, Callable[[Path], object]] = {
        "csv": lambda path: path.write_text(as_csv(outcome.rows)),
        "txt": lambda path: path.write_text("\n".join(text)),
    }
    if (draw := outcome.draw) is not None:
        parts["png"] = lambda path: draw().savefig(path, format="png", dpi=80)
    made = []
    for ending, write in parts.items():
        made.append(results.replaced(results.prepare(out) / f"{chosen.name}.{ending}", write))
    return made
