"""Before any data are touched: how much noise a guarantee needs, and whether one can learn with it.

One answer for `calibrate` and `run`; that of `fit` is in `forecasts`. Each asks the learner that would be run, built
by its own recipe. Nothing is computed twice: scales come from the ledger of an opened stream, widths and deviations
from its releases. People who did nothing are fed to it, so only its public side can show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from discreet import catalog
from discreet.device.losses import Feedback
from discreet.occupancies import Layers
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.people.losses import LossSpec
from discreet.privacy.accounting import Guarantee, Neighbours
from discreet.privacy.families import Family, chosen_mechanism, noise_width, union_width
from discreet.privacy.noise import NoiseSource
from discreet.privacy.protocol import Privatizer, Stream
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.tree import Tree
from discreet.privacy.tails import gaussian_union_width
from discreet.privacy.trust.local import LocalLaplace
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.losses import CentralLosses, ExactLosses, LossPrivatizer
from discreet.privacy.trust.reports import SMALL_GAPS, Reports, branching_range
from discreet.privacy.trust.shuffle import Shuffle, ShuffleBatches
from discreet.privacy.trust.shuffle_reports import ShuffleReports
from discreet.privacy.trust.truncated import TruncatedEpochs, TruncatedLocal, TruncatedTree, bounded
from discreet.problem import Problem, PublicStructure
from discreet.releases.counts import PerTable, PrivateCounts
from discreet.runs.forecasts import Forecast, finite
from discreet.schedules import EveryEpisode, Schedule, TwoClocks
from discreet.session import statistic

Build: TypeAlias = Callable[[Problem], tuple[Any, Any, Schedule]]  # agent, privatizer, schedule
OneReport: TypeAlias = Reports | LocalReports | ShuffleReports
Again: TypeAlias = Callable[[float], tuple[Privatizer[Any], Schedule]]
FAMILIES = {"N": "visits", "T": "transitions", "R": "rewards"}

#: Online, an evenly visited cell must stand out of its noise by so many standard deviations: dp-ucbvi in 69 settings
#: (RiverSwim, random MDPs, two rooms; pooled and staged; ε from 0.2 to 8; 5,000 and 20,000 users; seeds 300 to 302):
#: of 29 above, 23 had at most three quarters of the random policy's regret, of 40 below 17. Where nobody gets to by
#: chance is not seen in even visits: two rooms are not learned at 20 either.
NEEDED_SIGNAL = 10.0
#: More than this promises nothing that anybody could notice: nobody is advised to take it, and no run does.
LARGEST_EPSILON = 20.0
#: What that epsilon costs in zCDP, and the delta at which the epsilon of a rho is stated unless one is said.
LARGEST_RHO, STATED_DELTA = LARGEST_EPSILON**2 / 2.0, 1e-6
#: Noise of a cumulative loss over the number of users: above the first hardly anything is learned, with the second
#: much (measured: 0.02 → 0.12 of the uniform policy's regret, 0.05 → 0.27, 0.1 → 0.55).
LOSS_NOISE, LITTLE_LOSS_NOISE = 0.1, 0.02
#: Bandit blocks below which hardly anything is learned.
FEWEST_BANDIT_BLOCKS = 20
LARGEST_ANSWER = 10**12
IDLE_REPORTS = 1000


def _people(number: int) -> str:
    return f"{number:,} user{'s' if number > 1 else ''}"


def rounded(value: float) -> float:
    """Two significant digits, upwards."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / step - 1e-9) * step


# A run --------------------------------------------------------------------------------------------------------------


def forecast_run(
    build: Build, problem: Problem, feedback: Feedback | None = None, branching: float | None = None
) -> Forecast:
    """Whether the people of a problem teach this learner; `branching`: outcomes of a cell, where that is expected."""
    _, privatizer, schedule = build(problem)

    def again(size: float) -> tuple[Privatizer[Any], Schedule]:
        changed: dict[str, Any] = {"epsilon" if problem.rho is None else "rho": size}
        _, other, times = build(replace(problem, **changed))
        return other, times

    return forecast_noise(privatizer, statistic(problem, feedback), problem.num_episodes, schedule, again, branching)


def forecast_noise(
    privatizer: Privatizer[Any] | LossPrivatizer,
    spec: CountSpec | LossSpec,
    num_episodes: int,
    schedule: Schedule,
    again: Again | None = None,
    branching: float | None = None,
) -> Forecast:
    """The same for a privatizer and a schedule; `again` gives those of another epsilon, or rho."""
    if isinstance(spec, LossSpec):
        assert isinstance(privatizer, LossPrivatizer)
        assert isinstance(schedule, TwoClocks)
        return _forecast_losses(privatizer, spec, schedule)
    assert not isinstance(privatizer, LossPrivatizer)
    if learns_from_reports(privatizer):
        return _forecast_reports(privatizer, spec, num_episodes, branching)
    privatizer, spec = _plain(privatizer, spec)
    last = last_release(privatizer, spec, num_episodes, schedule)
    return _forecast_counts(privatizer, spec, num_episodes, schedule, *last, again)


def _plain(privatizer: Privatizer[Any], spec: CountSpec) -> tuple[Privatizer[Any], CountSpec]:
    """The twin without what does not change the noise on an evenly visited cell.

    Truncating rewards changes no noise on visits and transitions; a cell starts again only to stand out more; batches
    of policies are added up, as if all were fine ones.
    """
    if isinstance(privatizer, TruncatedLocal):
        return LocalLaplace(privatizer.budget, beta=privatizer.beta), bounded(spec)
    for truncated, plain in ((TruncatedEpochs, Epochs), (TruncatedTree, Tree)):
        if isinstance(privatizer, truncated):
            twin = plain(**{each.name: getattr(privatizer, each.name) for each in fields(plain)})
            return _plain(twin, bounded(spec))
    if isinstance(privatizer, ShuffleBatches):
        privatizer = Shuffle(**{each.name: getattr(privatizer, each.name) for each in fields(privatizer)})
    if isinstance(privatizer, (Epochs, Shuffle)):
        privatizer = replace(privatizer, window="all")
    return privatizer, spec


def last_release(
    privatizer: Privatizer[PrivateCounts], spec: CountSpec, num_episodes: int, schedule: Schedule
) -> tuple[Stream[PrivateCounts], PrivateCounts]:
    """The release that the last policy is planned from, had nobody done anything.

    A release after every episode is not walked through: only what it holds in the end matters. Local reports are
    independent, so that a thousand show what all of them do: their noise grows with the root of their number.
    """
    stream = privatizer.open(spec, num_episodes, NoiseSource.seeded(0))
    if stream.guarantee.model == "local":
        sample = min(num_episodes, IDLE_REPORTS)
        stream.add(idle(spec, sample))
        release = stream.release()
        factor = math.sqrt(num_episodes / sample)
        deviations = (factor * np.asarray(getattr(release.deviations, name)) for name in FAMILIES.values())
        return stream, replace(release, deviations=PerTable(*deviations))
    done = 0
    while True:
        left = num_episodes - done
        users = left - 1 if isinstance(schedule, EveryEpisode) else schedule.length(done)
        if users < 1 or users >= left:
            return stream, stream.release()
        stream.add(replace(Counts.zeros(spec), num_episodes=users))
        stream.release()
        done += users


def idle(spec: CountSpec, users: int) -> Episodes:
    """Users who stayed where they were."""
    states = np.zeros((users, spec.horizon + 1), dtype=np.int64)
    return Episodes(states, states[:, 1:], np.zeros((users, spec.horizon)))


def _largest(value: Any) -> float:
    return float(np.max(value))


def _signal(visits: float, deviation: float, release: PrivateCounts) -> float:
    if release.num_episodes == 0:  # nobody has been seen before the last policy is planned
        return 0.0
    return visits / deviation if deviation > 0 else math.inf


def _forecast_counts(
    privatizer: Privatizer[PrivateCounts],
    spec: CountSpec,
    num_episodes: int,
    schedule: Schedule,
    stream: Stream[PrivateCounts],
    release: PrivateCounts,
    again: Again | None,
) -> Forecast:
    S, A, K = spec.num_states, spec.num_actions, num_episodes
    visits = K * (spec.horizon if spec.pooled else 1) / (S * A)
    deviation = _largest(release.deviations.visits)
    signal = _signal(visits, deviation, release)
    share = max(_largest(release.widths.visits), _largest(release.widths.transitions)) / K
    feasible = signal >= NEEDED_SIGNAL
    epsilon, delta = stream.guarantee.epsilon, stream.guarantee.delta
    asked = getattr(privatizer, "budget", None)
    rho = None if asked is None else asked.rho
    budget = f"ε = {epsilon:.6g}" + (f", δ = {delta:.6g}" if delta else "") + (f" (ρ = {rho:.6g})" if rho else "")
    which = "pooled" if spec.pooled else "staged"
    verdict = (
        f"with {_people(K)} and {budget}, {which} counts {'can' if feasible else 'cannot'} be learned: an evenly "
        f"visited cell holds {visits:,.0f} visits, {signal:.2g} times the noise of its count (sd {deviation:,.0f}; "
        f"{NEEDED_SIGNAL:g} times are needed), and the width is {share:.0%} of the users"
    )
    needed = None
    if not feasible:
        advice = [] if spec.pooled or spec.horizon == 1 else ["pool the steps if the MDP is stationary"]
        name, size, largest, power = ("epsilon", epsilon, LARGEST_EPSILON, 1.0)
        if rho is not None:
            name, size, largest, power = ("rho", rho, LARGEST_RHO, 2.0)
        if math.isfinite(size) and signal > 0:
            changed = again or (lambda size: (privatizer, schedule))
            wanted = budget_needed(spec, K, size, signal, changed, largest, power)
            advice += [f"raise {name} to about {wanted:g}"] if wanted <= largest else []
        needed = users_needed(privatizer, spec, schedule, K, deviation)
        advice.append(f"collect about {needed:,} users" if needed else "no number of users would help")
        verdict += "; " + ", or ".join(advice)
    return Forecast(visits, deviation, signal, feasible, verdict, share, users_needed=needed)


def budget_needed(
    spec: CountSpec,
    num_episodes: int,
    size: float,
    signal: float,
    again: Again,
    largest: float = LARGEST_EPSILON,
    power: float = 1.0,
) -> float:
    """About the epsilon at which an evenly visited cell stands out, to two digits; the signal is that of `size`.

    With `power` 2 the same of rho. Noise falls like 1/size^(1/power), but shorter epochs come with it: one cell shows
    by how much.
    """
    one = CountSpec(1, 1, spec.horizon, spec.pooled, 1.0)

    def noise(size: float) -> float:
        privatizer, schedule = again(size)
        return _largest(last_release(*_plain(privatizer, one), num_episodes, schedule)[1].deviations.visits)

    before, wanted = noise(size), rounded(size * (NEEDED_SIGNAL / signal) ** power)
    while wanted <= largest and (found := signal * before / noise(wanted)) < NEEDED_SIGNAL:
        wanted = rounded(wanted * max((NEEDED_SIGNAL / found) ** power, 1.01))
    return wanted


def users_needed(
    privatizer: Privatizer[PrivateCounts],
    spec: CountSpec,
    schedule: Schedule,
    at_least: int = 1,
    deviation: float | None = None,
) -> int | None:
    """About how many users make an evenly visited cell stand out, to two digits; None beyond 10¹².

    The noise on a count grows with the users as it does for a single cell, which is all that is looked at;
    `deviation` is that of `at_least` users with all cells, where it is known.
    """
    one = CountSpec(1, 1, spec.horizon, spec.pooled, 1.0)
    per_user = (spec.horizon if spec.pooled else 1) / (spec.num_states * spec.num_actions)

    def alone(users: int) -> tuple[PrivateCounts, float]:
        _, release = last_release(privatizer, one, users, schedule)
        return release, _largest(release.deviations.visits)

    of_one = alone(at_least)[1] if deviation is not None else 0.0
    factor = deviation / of_one if deviation is not None and of_one > 0 else 1.0

    def stands_out(users: int) -> bool:
        release, noise = alone(users)
        return _signal(users * per_user, factor * noise, release) >= NEEDED_SIGNAL

    low, high = max(at_least, 1), max(at_least, 1)
    while not stands_out(high):
        low, high = high, high * 2
        if high > LARGEST_ANSWER:
            return None
    while high / low > 1.02:
        middle = math.isqrt(low * high)
        low, high = (low, middle) if stands_out(middle) else (middle, high)
    return int(rounded(high))


def learns_from_reports(privatizer: Any) -> TypeGuard[OneReport]:
    """Whether every user sends one targeted report."""
    return isinstance(privatizer, (Reports, LocalReports, ShuffleReports))


def _forecast_reports(privatizer: OneReport, spec: CountSpec, num_episodes: int, branching: float | None) -> Forecast:
    """Learners of reports lose about so many users per cell before they play well: more for cells with more outcomes.

    Where it is neither expected nor declared how many they have, both ends are told and the middle decides.
    """
    if branching is not None and not 1 <= branching <= spec.num_states:
        raise ValueError(f"branching is {branching:g}; it must lie between 1 and the {spec.num_states} states")
    K, cells = num_episodes, spec.stages * spec.num_states * spec.num_actions
    branching = None if spec.horizon == 1 else branching  # nobody needs to know what follows the only step
    lost = privatizer.users_lost(spec, branching)
    ends = (branching,) * 2 if branching is not None else branching_range(spec, privatizer.structure)
    low, high = (privatizer.users_lost(spec, b) for b in ends)
    users = f"about {rounded(lost):,.0f} users pass"
    if low < high:
        users = f"unknown branching: between {rounded(low):,.0f} and {rounded(high):,.0f} users pass"
    deviation = math.sqrt(privatizer.open(spec, K, NoiseSource.seeded(0)).variance(K))
    feasible, needed = lost <= K / 2, int(rounded(2 * lost))
    number = privatizer.reports if isinstance(privatizer, Reports) else 1
    each = "one report each" if number == 1 else f"up to {number} reports each"
    verdict = (
        f"with {_people(K)} and ε = {privatizer.budget.total('laplace'):.6g}, {each} can"
        f"{'' if feasible else 'not'} be learned from: {users} before {cells} cells are known, up to {SMALL_GAPS:g}"
        " times as many where good actions are hardly better than others"
    )
    if not feasible:
        verdict += f"; raise epsilon, declare what is public, or collect about {needed:,} users"
    reports = number * K / cells
    signal = reports / deviation if deviation else math.inf
    return Forecast(reports, deviation, signal, feasible, verdict, lost / K, users_needed=needed)


def _forecast_losses(privatizer: LossPrivatizer, spec: LossSpec, clocks: TwoClocks) -> Forecast:
    """The noise of the losses beside the number of users."""
    K, number = spec.num_episodes, clocks.num_loss_blocks
    if spec.feedback == "bandit":
        feasible = isinstance(privatizer, ExactLosses) or number >= FEWEST_BANDIT_BLOCKS
        needed = math.ceil(K * FEWEST_BANDIT_BLOCKS / number)
        verdict = (
            f"with {_people(K)} there are {'' if feasible else 'only '}{number} blocks whose losses stand out of "
            f"their noise ({FEWEST_BANDIT_BLOCKS} are needed to learn much)"
        )
        if not feasible:
            verdict += f"; raise epsilon or collect about {needed:,} users or more"
        return Forecast(K, math.nan, number / FEWEST_BANDIT_BLOCKS, feasible, verdict, users_needed=needed)
    share = privatizer.noise_share(spec)
    feasible, needed = share <= LOSS_NOISE, math.ceil(K * share / LITTLE_LOSS_NOISE)
    verdict = (
        f"with {_people(K)} the noise of a cumulative loss is {share:.2g} of their number; "
        f"{'losses can be learned' if feasible else 'hardly anything is learned'} (at most {LOSS_NOISE:g} is wanted)"
    )
    if not feasible:
        verdict += f"; raise epsilon, allow a delta, or collect about {needed:,} users"
    signal = 1.0 / share if share > 0 else math.inf
    return Forecast(K, share * K, signal, feasible, verdict, users_needed=needed)


# Before there is a learner ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FamilyNoise:
    """One family: sensitivity, budget and scale in the integers that are noised; width and sd in natural units."""

    l1: float
    l2: float
    budget: float  # ε of Laplace noise, ρ of Gaussian noise
    scale: float  # of every noisy value
    width: float  # bounds the error of every entry over the whole run with probability 1 − β
    deviation: float  # standard deviation of the noise in the last release


@dataclass(frozen=True)
class Calibration:
    """Everything a budget implies."""

    levels: int  # noisy values one user enters
    grid: float  # size of one integer of the reward family
    families: Mapping[str, FamilyNoise]
    guarantee: Guarantee
    forecast: Forecast
    spotlight: Forecast | None = None  # for one targeted report per user instead of counts (pure epsilon)
    sampled: Forecast | None = None  # local: for one randomly chosen step per user instead of noise on all

    def to_json(self) -> dict[str, Any]:
        """Strict JSON; infinite numbers are null."""
        return {
            "levels": self.levels,
            "grid": self.grid,
            "families": {name: finite(asdict(noise)) for name, noise in self.families.items()},
            "guarantee": self.guarantee.to_json(),
            **self.forecast.to_json(),
            "spotlight": None if self.spotlight is None else self.spotlight.to_json(),
            "sampled": None if self.sampled is None else self.sampled.to_json(),
        }


def calibrate(
    num_states: int,
    num_actions: int,
    horizon: int,
    num_episodes: int,
    epsilon: float | None = None,
    delta: float = 0.0,
    model: str = "joint",
    schedule: str = "epochs",
    neighbours: Neighbours = "replace",
    pooled: bool = False,
    rho: float | None = None,
    branching: float | None = None,
    losses: bool = False,
) -> Calibration:
    """The noise of three equal families (visits, transitions, rewards) and a verdict: that of dp-ucbvi, or in the
    shuffle model of shuffle-ucbvi. `branching`: outcomes of a cell on average, where that is expected (Spotlight).

    joint, every episode: a tree; joint, epochs: one noise per epoch; local: noise on every user's report, and at pure
    epsilon beside it what one sampled step per user would do; shuffle: noise bits of all users, together at (ε, δ);
    two servers take reports and no counts, see `_calibrate_reports`.
    `losses`: private loss tables instead of rewards, see `_calibrate_losses`.
    """
    sizes = {"states": num_states, "actions": num_actions, "horizon": horizon, "episodes": num_episodes}
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    for name, given, choices in (("schedule", schedule, catalog.SCHEDULES), ("model", model, catalog.TRUST)):
        if given not in choices:
            raise ValueError(f"unknown {name} {given!r}; choose one of {', '.join(choices)}")
    if model == "shuffle" and schedule == "every":
        raise ValueError("shuffled bits are released in batches of many users: use the schedule epochs")
    if model == "two-servers" and schedule == "every":
        raise ValueError("two servers release the reports of many users at once: use the schedule epochs")
    if model == "shuffle" and rho is not None:
        raise ValueError("shuffled bits are not measured in rho; give epsilon and delta")
    if losses and (model != "joint" or pooled):
        raise ValueError("losses are calibrated for the joint model, whose steps are never pooled")
    if losses and branching is not None:
        raise ValueError("losses do not depend on where a cell leads to; leave branching out")
    problem = Problem(
        *(num_states, num_actions, horizon, num_episodes, pooled, schedule),
        **_spent(epsilon, delta, rho),
        trust=model,
        neighbours=neighbours,
        local_reports="laplace",
    )
    if losses:
        return _calibrate_losses(problem)
    if model == "two-servers":
        return _calibrate_reports(problem, branching)
    budget, spec = problem.budget, statistic(problem)
    assert isinstance(spec, CountSpec)
    build = catalog.algorithm("shuffle-ucbvi" if model == "shuffle" else "dp-ucbvi").build
    _, privatizer, times = build(problem)
    stream, release = last_release(*_plain(privatizer, spec), num_episodes, times)  # type: ignore[arg-type]
    names = tuple(FAMILIES.values())
    if model == "shuffle":
        # First visits, rewards as bits: every family moves like visits counted per step, under one ε for all.
        assert epsilon is not None
        shares = dict.fromkeys(names, epsilon)
        sensitivity = dict.fromkeys(names, Counts.sensitivity(spec.tables.most_first_visits, neighbours))
        entries = dict.fromkeys(names, stream.ledger[0])
    else:
        shares = budget.split(names, chosen_mechanism(budget, None))
        sensitivity = spec.sensitivity(neighbours)
        entries = {entry.statistic: entry for entry in stream.ledger}
    families = {
        letter: FamilyNoise(
            *sensitivity[name],
            budget=shares[name],
            scale=entries[name].scale,
            width=_largest(getattr(release.widths, name)),
            deviation=_largest(getattr(release.deviations, name)),
        )
        for letter, name in FAMILIES.items()
    }

    local, pure = model == "local", budget.kind == "pure" and math.isfinite(budget.total("laplace"))
    spotlight, sampled = catalog.algorithm("spotlight").build, replace(problem, local_reports="sampled")
    return Calibration(
        max(entry.uses for entry in stream.ledger),
        1.0 if model == "shuffle" else spec.grid,
        families,
        stream.guarantee,
        forecast_run(build, problem),
        forecast_run(spotlight, problem, branching=branching) if pure and model != "shuffle" else None,
        forecast_run(build, sampled) if local and budget.kind == "pure" else None,
    )


def _calibrate_reports(problem: Problem, branching: float | None) -> Calibration:
    """The noise of one targeted report per user, and the verdict of Spotlight.

    The width holds for every sub-cell of all epochs: there is at most one of them per user.
    """
    triple = catalog.algorithm("spotlight").build(problem)
    spec, K = statistic(problem), problem.num_episodes
    privatizer: Any = triple[1]
    assert isinstance(spec, CountSpec)
    assert isinstance(privatizer, Reports)
    stream, entry = privatizer.open(spec, K, NoiseSource.seeded(0)), privatizer.entry()
    items, beta = int(stream.alphabet.admitted.sum()), problem.width_failure(1.0)
    noise = FamilyNoise(
        entry.sensitivity,
        math.sqrt(privatizer.sensitivity * privatizer.reports),  # all of them on one sub-cell, or on another one
        budget=entry.cost,
        scale=entry.scale,
        width=noise_width("laplace", entry.scale, (privatizer.noises,), (float(K),), items, beta),
        deviation=math.sqrt(stream.variance(K)),
    )
    found = forecast_run(catalog.algorithm("spotlight").build, problem, branching=branching)
    return Calibration(entry.uses, 1.0, {"reports": noise}, stream.guarantee, found, found)


def _spent(epsilon: float | None, delta: float, rho: float | None) -> dict[str, Any]:
    """A budget as `Problem` takes it: the epsilon of rho is stated at some delta."""
    if (epsilon is None) == (rho is None):
        raise ValueError("a budget is either epsilon (with or without delta) or rho; state one of the two")
    return {"epsilon": epsilon, "delta": delta if rho is None else delta or STATED_DELTA, "rho": rho}


def _calibrate_losses(asked: Problem) -> Calibration:
    """The noise of transitions and of whole loss tables (joint, full information), and the verdict of
    private-uc-o-reps: one user moves a loss table by its number of cells, X·A.

    every episode: as in paper mode, with trees, the losses' padded to constant noise; epochs: one noise per block.
    """
    S, A, H, K = asked.num_states, asked.num_actions, asked.horizon, asked.num_episodes
    problem = Problem(
        *(S, A, H, K),
        mode="paper" if asked.schedule == "every" else "practical",
        epsilon=asked.epsilon,
        delta=asked.delta,
        rho=asked.rho,
        neighbours=asked.neighbours,
        structure=PublicStructure(layers=Layers.full(H, np.full(S, 1.0 / S), A)),
    )
    spec = statistic(problem, "full")
    _, privatizer, clocks = catalog.algorithm("private-uc-o-reps").build(problem)
    assert isinstance(spec, LossSpec)
    assert isinstance(privatizer, CentralLosses)
    assert isinstance(clocks, TwoClocks)
    stream, found = privatizer.open(spec, NoiseSource.seeded(0)), _forecast_losses(privatizer, spec, clocks)
    laws, entries = privatizer.families(spec), {entry.statistic: entry for entry in stream.ledger}
    families = {}
    for letter, name in (("N", "visits"), ("T", "transitions"), ("losses", "losses")):
        if name not in entries:
            continue
        law, entry = laws[name], entries[name]
        if name == "losses":  # as many noises as the mechanism leaves in a cumulative loss
            terms, number = (found.deviation / (law.deviation * law.unit)) ** 2, clocks.num_loss_blocks
        else:
            number = clocks.num_count_blocks
            terms = number if privatizer.counts == "blocks" else entry.uses
        families[letter] = FamilyNoise(
            *spec.sensitivity(asked.neighbours)[name],
            budget=entry.cost,
            scale=entry.scale,
            width=_sum_width(law, terms, number, privatizer.beta / len(entries)) * law.unit,
            deviation=math.sqrt(terms) * law.deviation * law.unit,
        )
    forecast = replace(found, width_share=families["losses"].width / K)
    return Calibration(max(entry.uses for entry in stream.ledger), spec.grid, families, stream.guarantee, forecast)


def _sum_width(law: Family, terms: float, number: int, beta: float) -> float:
    """Width of so many sums of `terms` noises; of Gaussian ones a single noise with their variance."""
    if law.mechanism == "gaussian":
        return gaussian_union_width(law.scale * math.sqrt(terms), [1], [float(number)], law.size, beta)
    return union_width(law, [max(round(terms), 1)], [float(number)], beta)
