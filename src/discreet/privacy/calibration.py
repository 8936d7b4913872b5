"""Before any data is seen: how much noise a guarantee needs, and whether one can learn with it.

Nothing is computed twice: scales come from the ledger of an opened stream, widths and deviations from its releases.
The stream is fed users who did nothing, so only its public side can show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from discreet.occupancies import Layers
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.people.losses import LossSpec
from discreet.privacy.accounting import Budget, Guarantee, Neighbours
from discreet.privacy.families import chosen_mechanism, union_width
from discreet.privacy.noise import NoiseSource
from discreet.privacy.protocol import Privatizer, Stream
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.tree import Tree
from discreet.privacy.trust.local import LocalLaplace, LocalSampled
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.losses import CentralLosses
from discreet.privacy.trust.reports import SMALL_GAPS, Reports, branching_range
from discreet.privacy.trust.shuffle import Shuffle, ShuffleBatches, most_cells
from discreet.privacy.trust.shuffle_reports import ShuffleReports
from discreet.privacy.trust.truncated import TruncatedEpochs, TruncatedLocal, TruncatedTree, bounded
from discreet.releases.counts import PerTable, PrivateCounts
from discreet.schedules import EveryEpisode, GeometricEpochs, Schedule

FAMILIES = {"N": "visits", "T": "transitions", "R": "rewards"}
MODELS = ("joint", "shuffle", "local")
SCHEDULES = ("every", "epochs")

#: An evenly visited cell must stand out of its noise by this many standard deviations. Prototype measurements in
#: fifteen settings (RiverSwim, random MDPs, two rooms, lake; pooled and staged; ε from 0.2 to 1): learners of counts
#: had at most three quarters of the random policy's regret where it stood out by 9 or more, and 0.7 to 1.0 below 6.
NEEDED_SIGNAL = 8.0
LARGEST_ANSWER = 10**12
#: More than this promises nothing that anybody could notice: nobody is advised to take it, and no run does.
LARGEST_EPSILON = 20.0
#: Losses: blocks of the practical learner, and the share of the users beyond which their noise hides everything.
LOSS_BLOCKS, LOSS_NOISE = 100, 0.1
IDLE_REPORTS = 1000


@dataclass(frozen=True)
class Noise:
    """One family: sensitivity, budget and scale in the integers that are noised; width and sd in natural units."""

    l1: float
    l2: float
    budget: float  # ε of Laplace noise, ρ of Gaussian noise
    scale: float  # of every noisy value
    width: float  # bounds the error of every entry over the whole run with probability 1 − β
    deviation: float  # standard deviation of the noise in the last release


@dataclass(frozen=True)
class Forecast:
    """How far an evenly visited cell stands out of the noise of the last release, and what that means."""

    visits: float  # of a cell when visits are spread evenly
    deviation: float  # standard deviation of the noise on a count
    width_share: float  # largest width of a count over the number of users
    signal: float  # visits / deviation
    feasible: bool
    verdict: str


@dataclass(frozen=True)
class Calibration:
    """Everything a budget implies."""

    levels: int  # noisy values one user enters
    grid: float  # size of one integer of the reward family
    families: Mapping[str, Noise]
    guarantee: Guarantee
    forecast: Forecast
    spotlight: Forecast | None = None  # for one targeted report per user instead of counts (pure epsilon)
    sampled: Forecast | None = None  # local: for one randomly chosen step per user instead of noise on all

    def to_json(self) -> dict[str, Any]:
        """Strict JSON; infinite numbers are null."""
        return {
            "levels": self.levels,
            "grid": self.grid,
            "families": {name: _finite(asdict(noise)) for name, noise in self.families.items()},
            "guarantee": self.guarantee.to_json(),
            **_finite(asdict(self.forecast)),
            "spotlight": None if self.spotlight is None else _finite(asdict(self.spotlight)),
            "sampled": None if self.sampled is None else _finite(asdict(self.sampled)),
        }


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def calibrate(
    num_states: int,
    num_actions: int,
    horizon: int,
    num_episodes: int,
    epsilon: float,
    delta: float = 0.0,
    model: str = "joint",
    schedule: str = "epochs",
    neighbours: Neighbours = "replace",
    pooled: bool = False,
) -> Calibration:
    """The noise of three equal families (visits, transitions, rewards) and a verdict.

    joint, every episode: a tree; joint, epochs: one noise per epoch; local: Laplace noise on every user's report, and
    beside it what one sampled step per user would do;
    shuffle: noise bits of all users, the families together at (ε, δ), in doubling batches.
    """
    for name, value in (
        ("states", num_states),
        ("actions", num_actions),
        ("horizon", horizon),
        ("episodes", num_episodes),
    ):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    if schedule not in SCHEDULES:
        raise ValueError(f"unknown schedule {schedule!r}; choose one of {', '.join(SCHEDULES)}")
    budget = Budget.approximate(epsilon, delta) if delta else Budget.pure(epsilon)
    privatizer = _privatizer(model, schedule, budget, neighbours)
    times: Schedule = EveryEpisode() if schedule == "every" else GeometricEpochs()
    if model == "shuffle":
        times = GeometricEpochs(2.0, max(2, min(200, num_episodes // 20)))
    spec = CountSpec.for_episodes(num_states, num_actions, horizon, pooled, num_episodes)
    stream, release = last_release(privatizer, spec, num_episodes, times)
    names = tuple(FAMILIES.values())
    if model == "shuffle":
        # First visits, rewards as bits: every family moves like visits counted per step, under one ε for all.
        shares = dict.fromkeys(names, epsilon)
        sensitivity = dict.fromkeys(names, Counts.sensitivity(most_cells(spec), neighbours))
        entries = dict.fromkeys(names, stream.ledger[0])
    else:
        shares = budget.split(names, chosen_mechanism(budget, None))
        sensitivity = spec.sensitivity(neighbours)
        entries = {entry.statistic: entry for entry in stream.ledger}
    families = {
        letter: Noise(
            l1=sensitivity[name].l1,
            l2=sensitivity[name].l2,
            budget=shares[name],
            scale=entries[name].scale,
            width=_largest(getattr(release.widths, name)),
            deviation=_largest(getattr(release.deviations, name)),
        )
        for letter, name in FAMILIES.items()
    }
    verdict = _forecast(privatizer, spec, num_episodes, times, stream, release)
    grid = 1.0 if model == "shuffle" else spec.grid
    sampled = forecast(LocalSampled(budget), spec, num_episodes, times) if model == "local" else None
    reports = None
    if budget.kind == "pure" and math.isfinite(epsilon) and model != "shuffle":
        ours = LocalReports(budget) if model == "local" else Reports(budget, neighbours)
        reports = _report_forecast(ours, spec, num_episodes)
    levels = max(e.uses for e in stream.ledger)
    return Calibration(levels, grid, families, stream.guarantee, verdict, reports, sampled)


def calibrate_losses(
    num_states: int,
    num_actions: int,
    horizon: int,
    num_episodes: int,
    epsilon: float,
    delta: float = 0.0,
    schedule: str = "epochs",
    neighbours: Neighbours = "replace",
) -> Calibration:
    """The noise of transitions and of whole loss tables (joint, full information): one user moves a loss table by
    its number of cells, X·A.

    every episode: trees, the losses' padded to constant noise; epochs: one noise per block of `LOSS_BLOCKS`.
    """
    budget = Budget.approximate(epsilon, delta) if delta else Budget.pure(epsilon)
    everywhere = np.full(num_states, 1.0 / num_states)
    spec = LossSpec.for_episodes(Layers.full(horizon, everywhere, num_actions), "full", num_episodes)
    every = schedule == "every"
    blocks = num_episodes if every else min(LOSS_BLOCKS, num_episodes)
    privatizer = CentralLosses(
        budget,
        neighbours,
        counts="tree" if every else "blocks",
        losses="constant-tree" if every else "blocks",
        num_count_blocks=blocks,
        num_loss_blocks=blocks,
    )
    stream = privatizer.open(spec, NoiseSource.seeded(0))
    entries = {entry.statistic: entry for entry in stream.ledger}
    sensitivity, laws = spec.sensitivity(neighbours), privatizer.families(spec)
    families = {}
    for letter, name in (("T", "transitions"), ("losses", "losses")):
        law, entry = laws[name], entries[name]
        terms = entry.uses if every else blocks
        families[letter] = Noise(
            l1=sensitivity[name].l1,
            l2=sensitivity[name].l2,
            budget=entry.cost,
            scale=entry.scale,
            width=union_width(law, [terms], [float(blocks)], privatizer.beta / 2) * law.unit,
            deviation=math.sqrt(terms) * law.deviation * law.unit,
        )
    share = privatizer.noise_share(spec)
    feasible = share <= LOSS_NOISE
    verdict = (
        f"with {num_episodes:,} users the noise of a cumulative loss is {share:.2g} of their number; "
        f"{'losses can be learned' if feasible else 'hardly anything is learned'} (at most {LOSS_NOISE:g} is wanted)"
    )
    if not feasible:
        verdict += (
            f"; raise epsilon, allow a delta, or collect about {math.ceil(num_episodes * share / 0.02):,} users"
        )
    width, deviation = families["losses"].width, families["losses"].deviation
    forecast = Forecast(num_episodes, deviation, width / num_episodes, 1.0 / share, feasible, verdict)
    return Calibration(max(e.uses for e in stream.ledger), spec.grid, families, stream.guarantee, forecast)


def _privatizer(model: str, schedule: str, budget: Budget, neighbours: Neighbours) -> Privatizer[PrivateCounts]:
    if model == "local":
        return LocalLaplace(budget, neighbours=neighbours)
    if model == "shuffle":
        if schedule == "every":
            raise ValueError("shuffled bits are released in batches of many users: use the schedule epochs")
        return Shuffle(budget, neighbours)
    if model != "joint":
        raise ValueError(f"unknown model {model!r}; choose one of {', '.join(MODELS)}")
    return Tree(budget, neighbours) if schedule == "every" else Epochs(budget, neighbours)


def forecast(privatizer: Privatizer[Any], spec: CountSpec, num_episodes: int, schedule: Schedule) -> Forecast:
    """Whether counts of this many users can be learned from under this noise."""
    if isinstance(privatizer, (Reports, LocalReports, ShuffleReports)):
        return _report_forecast(privatizer, spec, num_episodes)
    if isinstance(privatizer, ShuffleBatches):
        privatizer = privatizer.counts()  # a fine batch, as if all batches were added up
    privatizer, spec = _without_thresholds(privatizer, spec)
    stream, release = last_release(privatizer, spec, num_episodes, schedule)
    return _forecast(privatizer, spec, num_episodes, schedule, stream, release)


def _without_thresholds(privatizer: Privatizer[Any], spec: CountSpec) -> tuple[Privatizer[Any], CountSpec]:
    """Truncating rewards changes no noise on visits and transitions: the twin for rewards in [0, 1] shows it."""
    if isinstance(privatizer, TruncatedLocal):
        return LocalLaplace(privatizer.budget, beta=privatizer.beta), bounded(spec)
    for truncated, plain in ((TruncatedEpochs, Epochs), (TruncatedTree, Tree)):
        if isinstance(privatizer, truncated):
            return plain(**{f.name: getattr(privatizer, f.name) for f in fields(plain)}), bounded(spec)
    return privatizer, spec


def _report_forecast(
    privatizer: Reports | LocalReports | ShuffleReports, spec: CountSpec, num_episodes: int
) -> Forecast:
    """Learners of reports lose about so many users per cell before they play well: more for cells with more outcomes.

    Where it is not declared how many they have, both ends are told and the middle decides.
    """
    K, cells = num_episodes, spec.stages * spec.num_states * spec.num_actions
    lost = privatizer.users_lost(spec)
    low, high = (privatizer.users_lost(spec, b) for b in branching_range(spec, privatizer.structure))
    users = f"about {_rounded(lost):,.0f} users pass"
    if low < high:
        users = f"unknown branching: between {_rounded(low):,.0f} and {_rounded(high):,.0f} users pass"
    deviation = math.sqrt(privatizer.open(spec, K, NoiseSource.seeded(0)).variance(K))
    feasible = lost <= K / 2
    verdict = (
        f"with {K:,} user{'s' if K > 1 else ''} and ε = {privatizer.budget.total('laplace'):.6g}, one report each can"
        f"{'' if feasible else 'not'} be learned from: {users} before {cells} cells are known, up to {SMALL_GAPS:g}"
        " times as many where good actions are hardly better than others"
    )
    if not feasible:
        verdict += f"; raise epsilon, declare what is public, or collect about {_rounded(2 * lost):,.0f} users"
    reports = K / cells
    return Forecast(reports, deviation, lost / K, reports / deviation if deviation else math.inf, feasible, verdict)


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
        nothing = Counts.zeros(spec)
        stream.add(Counts(nothing.visits, nothing.transitions, nothing.reward_sums, users))
        stream.release()
        done += users


def idle(spec: CountSpec, users: int) -> Episodes:
    """Users who stayed where they were."""
    states = np.zeros((users, spec.horizon + 1), dtype=np.int64)
    return Episodes(states, states[:, 1:], np.zeros((users, spec.horizon)))


def _largest(value: Any) -> float:
    return float(np.max(value))


def _forecast(
    privatizer: Privatizer[PrivateCounts],
    spec: CountSpec,
    num_episodes: int,
    schedule: Schedule,
    stream: Stream[PrivateCounts],
    release: PrivateCounts,
) -> Forecast:
    S, A, K = spec.num_states, spec.num_actions, num_episodes
    visits = K * (spec.horizon if spec.pooled else 1) / (S * A)
    deviation = _largest(release.deviations.visits)
    signal = _signal(visits, deviation, release)
    share = max(_largest(release.widths.visits), _largest(release.widths.transitions)) / K
    feasible = signal >= NEEDED_SIGNAL
    epsilon, delta = stream.guarantee.epsilon, stream.guarantee.delta
    budget = f"ε = {epsilon:.6g}" + (f", δ = {delta:.6g}" if delta else "")
    which = "pooled" if spec.pooled else "staged"
    facts = (
        f"an evenly visited cell holds {visits:,.0f} visits, {signal:.2g} times the noise of its count "
        f"(sd {deviation:,.0f}; {NEEDED_SIGNAL:g} times are needed), and the width is {share:.0%} of the users"
    )
    users = f"{K:,} user{'s' if K > 1 else ''}"
    verdict = f"with {users} and {budget}, {which} counts {'can' if feasible else 'cannot'} be learned: {facts}"
    if not feasible:
        advice = [] if spec.pooled or spec.horizon == 1 else ["pool the steps if the MDP is stationary"]
        if math.isfinite(epsilon) and signal > 0:
            wanted = _rounded(epsilon * NEEDED_SIGNAL / signal)
            advice += [f"raise epsilon to about {wanted:g}"] if wanted <= LARGEST_EPSILON else []
        needed = users_needed(privatizer, spec, schedule, K, deviation)
        advice.append(f"collect about {needed:,} users" if needed else "no number of users would help")
        verdict += "; " + ", or ".join(advice)
    return Forecast(visits, deviation, share, signal, feasible, verdict)


def _signal(visits: float, deviation: float, release: PrivateCounts) -> float:
    if release.num_episodes == 0:  # nobody has been seen before the last policy is planned
        return 0.0
    return visits / deviation if deviation > 0 else math.inf


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
    return int(_rounded(high))


def _rounded(value: float) -> float:
    """Two significant digits, upwards."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / step - 1e-9) * step
