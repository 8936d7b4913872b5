"""Attacks on our own mechanisms: how much ε an adversary can prove has leaked, beside what is claimed.

A game fixes two neighbouring worlds and what the adversary sees in each. She picks an event on one half of the
trials; on the other half its probabilities p₁, p₀ are bounded (Clopper–Pearson), and (ε, δ)-DP would imply
ε ≥ ln((p₁ − δ)/p₀). A mechanism that is as private as claimed is refuted with probability at most 1 − confidence.
How the games are built, and what an audit cannot show, is in audit.md.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from discreet.data.counting import StepCounts
from discreet.histograms import Cells
from discreet.mdp import Floats, Ints
from discreet.privacy import binomial
from discreet.privacy.accounting import Budget
from discreet.privacy.epochs import Epochs
from discreet.privacy.families import samplable
from discreet.privacy.local import LocalLaplace, LocalSampled, unary_cost
from discreet.privacy.noise import DiscreteLaplace, NoiseSource
from discreet.privacy.one_hot import OneHot
from discreet.privacy.one_shot import OneShot
from discreet.privacy.protocol import Privatizer
from discreet.privacy.shuffle import Shuffle
from discreet.privacy.shuffle_law import tables_of
from discreet.privacy.shuffler import BitEncoder, CountBits
from discreet.privacy.streams import CountStream
from discreet.privacy.sums import RawSums
from discreet.privacy.toeplitz import Toeplitz
from discreet.privacy.tree import Tree
from discreet.releases import PrivateCounts
from discreet.statistics import Counts, CountSpec

#: Most copies of a game that are played side by side in one stream, and least streams per half and world: noise that
#: copies share would look like a property of the world if there were one stream only.
COPIES, STREAMS = 2**13, 32
#: Rows per world, evenly spaced, from which the linear discriminant is fitted.
FITTED = 2**14
#: Excess over a claim that counts as rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Game:
    """Two neighbouring worlds, 0 and 1, and what an adversary sees of a mechanism in each.

    `views(world, trials, noise)` plays independent rounds, one row each, in which nothing but the world is secret;
    `scores` maps rows to one column per way of ranking them, larger where world 1 is likelier.
    """

    claimed: float
    views: Callable[[int, int, NoiseSource], Floats]
    scores: Callable[[Floats], Floats]
    exact: float | None = None  # largest log-ratio of a view between the two worlds, where it is known
    delta: float = 0.0


@dataclass(frozen=True)
class AuditResult:
    """What was claimed and what was shown. `lower_bound` holds with probability `confidence`."""

    mechanism: str
    claimed: float
    lower_bound: float
    confidence: float
    exact: float | None
    refuted: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# From trials to a bound ---------------------------------------------------------------------------------------------


def epsilon_bound(hits: Ints, alarms: Ints, trials: int, confidence: float, delta: float = 0.0) -> Floats:
    """Lower bound on ε when an event happened `hits` times in one world and `alarms` times in the other.

    ln((p₁ − δ)/p₀) at the Clopper–Pearson ends of p₁ (from below) and p₀ (from above), half the error each.
    """
    error = (1.0 - confidence) / 2.0
    hits, alarms = np.asarray(hits), np.asarray(alarms)
    low = np.where(hits > 0, stats.beta.ppf(error, np.maximum(hits, 1), trials - np.maximum(hits, 1) + 1), 0.0)
    high = np.ones(alarms.shape)
    some = alarms < trials
    high[some] = stats.beta.ppf(1.0 - error, alarms[some] + 1, trials - alarms[some])
    return np.log(np.maximum((low - delta) / high, 1.0))


class _Event(NamedTuple):
    column: int
    threshold: float
    sign: float  # 1: a hit is a large score in world 1; −1: a small score in world 0


def _choose(scores: tuple[Floats, Floats], confidence: float, delta: float) -> _Event:
    """The event that would give the largest bound on these trials."""
    trials = scores[0].shape[0]
    ranks = np.unique(np.geomspace(1, trials, 300).astype(np.int64))
    best, event = -1.0, _Event(0, math.inf, 1.0)
    for column in range(scores[0].shape[1]):
        for sign in (1.0, -1.0):
            mine, other = (np.sort(sign * scores[world][:, column]) for world in ((1, 0) if sign > 0 else (0, 1)))
            candidates = np.unique(mine[trials - ranks])
            gap = 1e-9 * (1.0 + float(np.abs(mine).max()))  # equal scores must not be split by rounding
            hits = trials - np.searchsorted(mine, candidates - gap)
            alarms = trials - np.searchsorted(other, candidates - gap)
            bounds = epsilon_bound(hits, alarms, trials, confidence, delta)
            top = int(np.argmax(bounds))
            if bounds[top] > best:
                best, event = float(bounds[top]), _Event(column, float(candidates[top] - gap), sign)
    return event


def _discriminant(views: tuple[Floats, Floats]) -> Floats:
    """The direction Σ⁻¹(μ₁ − μ₀) that separates the worlds best: finds noise that cancels in some combination."""
    rows = [v[:: max(1, len(v) // FITTED)] for v in views]
    means = [v.mean(axis=0) for v in rows]
    centred = np.concatenate([v - m for v, m in zip(rows, means, strict=True)])
    covariance = centred.T @ centred / centred.shape[0]
    ridge = 1e-10 * max(float(np.trace(covariance)) / covariance.shape[0], 1e-6)
    return np.asarray(np.linalg.solve(covariance + ridge * np.eye(covariance.shape[0]), means[1] - means[0]))


def leaked(game: Game, trials: int, confidence: float = 0.999, seed: int = 0) -> float:
    """Lower bound on ε from `trials` rounds in each world: events chosen on one half, counted on the other."""
    half = trials // 2
    copies = min(COPIES, -(-half // STREAMS))
    direction: Floats | None = None

    def play(part: int, world: int, keep: bool) -> tuple[Floats, Floats]:
        views, scores = [], []
        noise = NoiseSource.seeded(np.random.SeedSequence([seed, part, world]))
        for start in range(0, half, copies):
            view = game.views(world, min(copies, half - start), noise)
            views.append(view if keep else view[:0])
            extra = [] if direction is None else [(view @ direction)[:, None]]
            scores.append(np.concatenate([game.scores(view), *extra], axis=1))
        return np.concatenate(views), np.concatenate(scores)

    (view0, score0), (view1, score1) = play(0, 0, True), play(0, 1, True)
    direction = _discriminant((view0, view1))
    first = tuple(
        np.concatenate([s, (v @ direction)[:, None]], axis=1) for s, v in ((score0, view0), (score1, view1))
    )
    strict = 1.0 - (1.0 - confidence) / 1000.0  # hundreds of events compete: do not fall for the luckiest
    event = _choose((first[0], first[1]), strict, game.delta)
    happened = []
    for world in (0, 1):
        score = play(1, world, False)[1][:, event.column]
        happened.append(int(np.count_nonzero(event.sign * score >= event.threshold)))
    hits, alarms = (happened[1], happened[0]) if event.sign > 0 else (happened[0], happened[1])
    return float(epsilon_bound(np.array([hits]), np.array([alarms]), half, confidence, game.delta)[0])


def audited(name: str, game: Game, trials: int, confidence: float = 0.999, seed: int = 0) -> AuditResult:
    """Play a game and compare what leaked with what was claimed."""
    bound = leaked(game, trials, confidence, seed)
    shown = max(bound, game.exact if game.exact is not None else 0.0)
    refuted = shown > game.claimed * (1.0 + ROUNDING)
    return AuditResult(name, game.claimed, bound, confidence, game.exact, refuted)


# Games on tables of counts ------------------------------------------------------------------------------------------


class StackedSums(RawSums):
    """A vault that takes one user of each of many games at once, where the real one takes one user."""

    def _check(self, counts: Counts) -> None:
        pass


class _Tables(NamedTuple):
    """Two walks that share no cell: (0, 0) → 0 and (S−1, A−1) → S−1, all H steps with reward 1."""

    horizon: int
    states: int
    actions: int

    @property
    def walks(self) -> Ints:
        """What each walk adds to (visits, transitions, rewards) of its own game, flat: one row per walk."""
        H, S, A = self
        rows = []
        for s, a in ((0, 0), (S - 1, A - 1)):
            visits, transitions = np.zeros((S, A), np.int64), np.zeros((S, A, S), np.int64)
            visits[s, a], transitions[s, a, s] = H, H
            rows.append(np.concatenate([visits.ravel(), transitions.ravel(), visits.ravel()]))
        return np.array(rows)

    def spec(self, copies: int = 1) -> CountSpec:
        """Copies live side by side in disjoint blocks of actions: no number a privatizer calibrates to changes."""
        return CountSpec(self.states, self.actions * copies, self.horizon, pooled=True, grid=1.0)

    def by_table(self, values: tuple[float, float, float]) -> Floats:
        """One number per table, repeated for each of its counters."""
        pairs = self.states * self.actions
        return np.repeat(np.array(values, dtype=np.float64), [pairs, pairs * self.states, pairs])

    def stacked(self, rows: Ints) -> Counts:
        """One row of counters per copy, as the tables of all copies."""
        _, S, A = self
        n, pairs = rows.shape[0], S * A
        visits, transitions, rewards = np.split(rows, [pairs, pairs + pairs * S], axis=1)
        return Counts(
            np.ascontiguousarray(visits.reshape(n, S, A).transpose(1, 0, 2)).reshape(1, S, n * A),
            np.ascontiguousarray(transitions.reshape(n, S, A, S).transpose(1, 0, 2, 3)).reshape(1, S, n * A, S),
            np.ascontiguousarray(rewards.reshape(n, S, A).transpose(1, 0, 2)).reshape(1, S, n * A),
            num_episodes=1,
        )

    def rows(self, visits: Floats, transitions: Floats, rewards: Floats) -> Floats:
        """The inverse of `stacked` for released tables."""
        _, S, A = self
        n = visits.shape[2] // A
        parts = (
            visits.reshape(S, n, A).transpose(1, 0, 2),
            transitions.reshape(S, n, A, S).transpose(1, 0, 2, 3),
            rewards.reshape(S, n, A).transpose(1, 0, 2),
        )
        return np.concatenate([part.reshape(n, -1) for part in parts], axis=1)


def _laplace_score(values: Floats, worlds: Ints, scales: Floats) -> Floats:
    """Σ_c (|y_c − x⁰_c| − |y_c − x¹_c|)/b_c: the log-likelihood ratio of the worlds under Laplace noise."""
    return np.asarray(((np.abs(values - worlds[0]) - np.abs(values - worlds[1])) / scales).sum(axis=-1))


def _gaussian_score(values: Floats, worlds: Ints, scales: Floats) -> Floats:
    """The same under Gaussian noise."""
    squares = (values - worlds[0]) ** 2 - (values - worlds[1]) ** 2
    return np.asarray((squares / (2.0 * scales**2)).sum(axis=-1))


def _matches(values: Floats, worlds: Ints) -> Floats:
    """How many more counters equal world 1 exactly than world 0: sees counters without noise."""
    return np.asarray(((values == worlds[1]).sum(axis=-1) - (values == worlds[0]).sum(axis=-1)).astype(np.float64))


Plan = Literal["tree", "epochs", "one-shot"]


def measurements(plan: Plan, episodes: int) -> list[tuple[int, int]]:
    """(first, last) users of every noisy value as (base, t), users base+1..t: release t less release base.

    Tree: prefix t is prefix t − lowbit(t) plus one node, t < K. Epochs: one user each. One shot: all users.
    """
    if plan == "tree":
        return [(t - (t & -t), t) for t in range(1, episodes)]
    if plan == "epochs":
        return [(t - 1, t) for t in range(1, episodes + 1)]
    return [(0, episodes)]


def counts_game(
    privatizer: Privatizer[PrivateCounts],
    claimed: float,
    plan: Plan,
    horizon: int = 1,
    episodes: int = 4,
    states: int = 2,
    actions: int = 2,
    victim: int = 0,
    delta: float = 0.0,
) -> Game:
    """Replace user `victim` of a stream of counts; everybody else reacts to what has been released.

    Her two walks share no cell. Each later user takes the walk that was visited less according to the last release,
    so her data depend on the victim's through releases only, which the adversary sees and subtracts.
    """
    tables = _Tables(horizon, states, actions)
    walks = tables.walks
    steps = measurements(plan, episodes)
    if not any(base <= victim < t for base, t in steps):
        raise ValueError(
            f"the audit needs more episodes than {episodes}: nothing that contains its victim is released"
        )
    times = {t: i for i, (_, t) in enumerate(steps)}
    probe = privatizer.open(tables.spec(), episodes, NoiseSource.secure())
    scale_of = {entry.statistic: entry.scale for entry in probe.ledger}
    gaussian = any(entry.is_gaussian for entry in probe.ledger)
    b = (scale_of["visits"], scale_of["transitions"], scale_of["rewards"])
    scales = tables.by_table(b)
    nodes = [(times.get(base), times[t]) for base, t in steps if base <= victim < t]
    left, right = 0, states * actions - 1  # counters of visits

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        spec = tables.spec(trials)
        stream = privatizer.open(spec, episodes, noise)
        if not isinstance(stream, CountStream):
            raise TypeError(f"{type(stream).__name__} holds no sums of counts, so this game cannot be played on it")
        stream._sums = StackedSums(spec, episodes)
        others = np.zeros((trials, walks.shape[1]), dtype=np.int64)
        choice = np.zeros(trials, dtype=np.int64)
        seen = []
        for user in range(max(times)):
            row = walks[np.full(trials, world)] if user == victim else walks[choice]
            stream.add(tables.stacked(row))
            if user != victim:
                others += row
            if user + 1 in times:
                release = stream.release()
                values = tables.rows(release.visits, release.transitions, release.reward_sums)
                choice = (values[:, left] > values[:, right]).astype(np.int64)
                seen.append(values - others)
        return np.concatenate(seen, axis=1)

    def scores(view: Floats) -> Floats:
        values = view.reshape(view.shape[0], len(steps), -1)
        likelihood, exact = np.zeros(view.shape[0]), np.zeros(view.shape[0])
        for base, t in nodes:
            node = values[:, t] if base is None else values[:, t] - values[:, base]
            likelihood += (_gaussian_score if gaussian else _laplace_score)(node, walks, scales)
            exact += _matches(node, walks)
        return np.stack([likelihood, exact], axis=1)

    return Game(claimed, views, scores, None if gaussian else len(nodes) * _laplace_loss(walks, scales), delta)


def _laplace_loss(worlds: Ints, scales: Floats) -> float:
    """Σ_c |x¹_c − x⁰_c| × the log-ratio of the noise of c per unit: attained, so it is what the pair costs."""
    ratios = np.array([DiscreteLaplace(scale).log_ratio for scale in scales])
    return float((np.abs(worlds[1] - worlds[0]) * ratios).sum())


# The list of mechanisms ---------------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """What an audit may vary; `users` and `delta` matter to mechanisms that have them."""

    epsilon: float
    horizon: int = 1
    episodes: int = 4
    states: int = 2
    actions: int = 2
    users: int = 1000
    delta: float = 1e-6


def _counts(
    plan: Plan, make: Callable[[Settings], Privatizer[PrivateCounts]], delta: bool = False, exact: bool = True
) -> Callable[[Settings], Game]:
    """`exact`: the plan says which noisy values make up the releases, so that what the pair costs is known."""

    def game(s: Settings) -> Game:
        found = counts_game(
            make(s), s.epsilon, plan, s.horizon, s.episodes, s.states, s.actions, 0, s.delta if delta else 0.0
        )
        return found if exact else replace(found, exact=None)

    return game


def _local(calibration: Literal["true", "paper"]) -> Callable[[Settings], Game]:
    """One user's report, replaced."""

    def game(s: Settings) -> Game:
        tables = _Tables(s.horizon, s.states, s.actions)
        walks = tables.walks
        privatizer = LocalLaplace(Budget.pure(s.epsilon), calibration=calibration)
        encoder = privatizer.open(tables.spec(), 1, NoiseSource.secure()).encoder
        scales = tables.by_table(encoder.scales)

        def views(world: int, trials: int, noise: NoiseSource) -> Floats:
            return encoder.randomise(walks[np.full(trials, world)], noise).astype(np.float64)

        def scores(view: Floats) -> Floats:
            return np.stack([_laplace_score(view, walks, scales), _matches(view, walks)], axis=1)

        return Game(s.epsilon, views, scores, _laplace_loss(walks, scales))

    return game


def _local_sampled(s: Settings) -> Game:
    """One user's sampled step, replaced: whatever step she draws, her items in the two worlds differ."""
    spec = _Tables(s.horizon, s.states, s.actions).spec()
    encoder = LocalSampled(Budget.pure(s.epsilon)).open(spec, 1, NoiseSource.secure()).encoder
    cells = ((0, 0), (s.states - 1, s.actions - 1))
    # item (s, a, s, 1) of the pooled table
    item = [2 * ((x * s.actions + a) * s.states + x) + 1 for x, a in cells]

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        x, a = cells[world]
        states = np.full((trials, s.horizon + 1), x)
        actions = np.full((trials, s.horizon), a)
        items = encoder.items(states, actions, np.ones(actions.shape), noise)
        return encoder.randomise(items, noise).astype(np.float64)

    def scores(view: Floats) -> Floats:
        return np.asarray(view[:, item[1]] - view[:, item[0]])[:, None]

    return Game(s.epsilon, views, scores, unary_cost(encoder.flips))


def _one_hot(budget: Callable[[Settings], Budget]) -> Callable[[Settings], Game]:
    """Replace the one user of a log whose steps are released as a histogram of items; copies as in `_Tables`."""

    def game(s: Settings) -> Game:
        tables = _Tables(s.horizon, s.states, s.actions)
        S, A = s.states, s.actions
        private = OneHot(budget(s))
        scale = private.entry(tables.spec()).scale
        walks = np.zeros((2, S, A, S, 2), dtype=np.int64)
        walks[0, 0, 0, 0, 1] = walks[1, -1, -1, -1, 1] = s.horizon  # all steps are paid
        worlds = walks.reshape(2, -1)
        scales = np.full(worlds.shape[1], scale)
        gaussian = private.mechanism == "gaussian"

        def views(world: int, trials: int, noise: NoiseSource) -> Floats:
            spec = tables.spec(trials)
            cells = Cells.of(S, spec.num_actions, s.horizon, pooled=True)
            steps = np.tile(walks[world, ..., 1], (1, trials, 1))[None]  # one user in each copy
            stream = private.open(spec, cells, trials, noise)
            stream.add(StepCounts(steps, steps.copy(), trials))
            values = stream.release().values.reshape(S, trials, -1)
            return np.ascontiguousarray(values.transpose(1, 0, 2)).reshape(trials, -1)

        def scores(view: Floats) -> Floats:
            likelihood = (_gaussian_score if gaussian else _laplace_score)(view, worlds, scales)
            return np.stack([likelihood, _matches(view, worlds)], axis=1)

        exact = None if gaussian else _laplace_loss(worlds, scales)
        return Game(s.epsilon, views, scores, exact, s.delta if gaussian else 0.0)

    return game


def _paper_losses(s: Settings) -> Game:
    """A user's whole loss table, S states in each of H layers, with the noise of H losses: all of them may change."""
    scale = samplable("losses", s.horizon / s.epsilon)
    worlds = np.outer([0, 1], np.ones(s.horizon * s.states * s.actions, dtype=np.int64))
    scales = np.full(worlds.shape[1], scale)

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        noisy = worlds[world] + noise.laplace(scale, (trials, worlds.shape[1]))
        return np.asarray(noisy, dtype=np.float64)

    def scores(view: Floats) -> Floats:
        return np.stack([_laplace_score(view, worlds, scales), _matches(view, worlds)], axis=1)

    return Game(s.epsilon, views, scores, _laplace_loss(worlds, scales))


#: Rewards under truncation are whole multiples of 2⁻¹⁰.
TRUNCATION_GRID = 2**10


def truncated_sums(cells: Ints, rewards: Ints, thresholds: Ints) -> Ints:
    """Σ of rewards per cell, each kept if at most the threshold of the visits its cell had before (at least 1)."""
    visits, sums = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    for cell, reward in zip(cells, rewards, strict=True):
        if reward <= thresholds[max(visits[cell], 1)]:
            sums[cell] += reward
        visits[cell] += 1
    return sums


def _paper_truncation(s: Settings) -> Game:
    """Rewards truncated at B_n = √n, n the raw number of earlier visits; noise for rewards of at most B_K.

    The first user visits one cell or the other; user j then holds the reward B_{j−1}, kept only if the first user is
    among the j−1 before her in her cell.
    """
    K = s.episodes
    thresholds = np.floor(TRUNCATION_GRID * np.sqrt(np.arange(K + 1))).astype(np.int64)
    rewards = thresholds[np.maximum(np.arange(K), 1)]
    worlds = np.array(
        [
            np.tile(truncated_sums(np.array([first] + [0] * (K - 1)), rewards, thresholds), s.horizon)
            for first in (1, 0)
        ]
    )
    scale = samplable("rewards", 2.0 * s.horizon * float(thresholds[K]) / s.epsilon)
    scales = np.full(worlds.shape[1], scale)

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        noisy = worlds[world] + noise.laplace(scale, (trials, worlds.shape[1]))
        return np.asarray(noisy, dtype=np.float64)

    def scores(view: Floats) -> Floats:
        return np.stack([_laplace_score(view, worlds, scales), _matches(view, worlds)], axis=1)

    return Game(s.epsilon, views, scores, _laplace_loss(worlds, scales))


def _shuffle(s: Settings) -> Game:
    """One of many users, counted per step in shuffled bits: her two walks share no counter.

    The adversary knows everybody else's data and sees all sums: the true bits of the others are left out.
    """
    H, S, A = s.horizon, s.states, s.actions
    law = Shuffle(Budget.approximate(s.epsilon, s.delta)).law(CountSpec(S, A, H, pooled=False, grid=1.0))
    bits = law.bits(s.users)
    M, p = s.users * bits.each, bits.probability
    cells, rows = H * S * A, H * S * A * S
    walks = np.zeros((2, cells + rows + cells), dtype=np.int64)
    for world, (x, a) in enumerate(((0, 0), (S - 1, A - 1))):
        for h in range(H):
            cell = (h * S + x) * A + a
            walks[world, [cell, cells + cell * S + x, cells + rows + cell]] = 1
    changed = np.flatnonzero(walks[0] != walks[1])
    signs = (walks[1] - walks[0])[changed]

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        stacked = CountSpec(S, A * trials, H, pooled=False, grid=1.0)  # all copies in one batch, side by side
        encoder = BitEncoder(CountBits(tables_of(stacked)), s.users, bits.each, bits.flips)
        sums = encoder.noise_sums(s.users, noise).reshape(trials, -1) + walks[world]
        return np.asarray(sums[:, changed] - M * p, dtype=np.float64)

    def scores(view: Floats) -> Floats:
        v = view + M * p
        with np.errstate(divide="ignore"):  # ln P(v−1)/P(v) of the noise: infinite where one of them cannot be
            ratio = np.log(np.maximum(v, 0.0) * (1.0 - p)) - np.log(np.maximum(M - v + 1.0, 0.0) * p)
        return np.asarray((np.clip(ratio, -100.0, 100.0) * signs).sum(axis=1))[:, None]

    return Game(s.epsilon, views, scores, None, s.delta)


def _paper_integers(s: Settings) -> Game:
    """One counter as printed: every user sends one number, her bit plus her noise, and the shuffler shows them all.

    Everybody else holds 0. A number above the most noise there can be gives her away.
    """
    tau = binomial.printed_bits(s.epsilon, s.delta)
    each = math.ceil(tau / s.users) if s.users <= tau else 1
    p = 0.5 if s.users <= tau else tau / (2.0 * s.users)
    law = stats.binom.pmf(np.arange(each + 1), each, p)

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        generator = np.random.Generator(np.random.PCG64(int.from_bytes(noise.words(4).tobytes(), "little")))
        seen = np.zeros((trials, each + 2), dtype=np.int64)
        seen[:, : each + 1] = generator.multinomial(s.users - 1, law / law.sum(), trials)
        own = generator.binomial(each, p, trials) + world
        seen[np.arange(trials), own] += 1
        return seen.astype(np.float64)

    def scores(view: Floats) -> Floats:
        return np.stack([view[:, -1], view @ np.arange(each + 2)], axis=1)

    return Game(s.epsilon, views, scores, math.inf if law[-1] > s.delta else None, s.delta)


class Mechanism(NamedTuple):
    description: str
    game: Callable[[Settings], Game]


#: Everything that can be audited by name.
MECHANISMS: dict[str, Mechanism] = {
    "local": Mechanism("one user's tables with Laplace noise, randomised at home", _local("true")),
    "local-sampled": Mechanism("one sampled step of one user in optimised unary encoding", _local_sampled),
    "tree": Mechanism(
        "counts after every episode, Laplace noise on a binary tree, later users react to releases",
        _counts("tree", lambda s: Tree(Budget.pure(s.epsilon))),
    ),
    "tree-gaussian": Mechanism(
        "the same with Gaussian noise and (epsilon, delta)",
        _counts("tree", lambda s: Tree(Budget.approximate(s.epsilon, s.delta)), delta=True),
    ),
    "tree-honaker": Mechanism(
        "the tree with nodes averaged over their children",
        _counts("tree", lambda s: Tree(Budget.pure(s.epsilon), variant="honaker"), exact=False),
    ),
    "tree-smooth": Mechanism(
        "the tree over labels with equally many ones",
        _counts("tree", lambda s: Tree(Budget.pure(s.epsilon), variant="smooth"), exact=False),
    ),
    "toeplitz": Mechanism(
        "counts after every episode through a square root of the matrix of sums, Gaussian noise",
        _counts(
            "epochs",
            lambda s: Toeplitz(Budget.approximate(s.epsilon, s.delta), s.episodes),
            delta=True,
            exact=False,
        ),
    ),
    "epochs": Mechanism(
        "counts per epoch with fresh Laplace noise, later users react to releases",
        _counts("epochs", lambda s: Epochs(Budget.pure(s.epsilon))),
    ),
    "one-shot": Mechanism(
        "one release of the counts of all users with Laplace noise",
        _counts("one-shot", lambda s: OneShot(Budget.pure(s.epsilon))),
    ),
    "one-shot-gaussian": Mechanism(
        "the same with Gaussian noise and (epsilon, delta)",
        _counts("one-shot", lambda s: OneShot(Budget.approximate(s.epsilon, s.delta)), delta=True),
    ),
    "one-hot": Mechanism(
        "the steps of a log as one histogram with Laplace noise", _one_hot(lambda s: Budget.pure(s.epsilon))
    ),
    "one-hot-gaussian": Mechanism(
        "the same with Gaussian noise and (epsilon, delta)",
        _one_hot(lambda s: Budget.approximate(s.epsilon, s.delta)),
    ),
    "shuffle": Mechanism("counts of shuffled bits, the noise comes from all users of a batch", _shuffle),
    "paper-local": Mechanism("local noise as printed, 3H/epsilon: two episodes may share no cell", _local("paper")),
    "paper-tree": Mechanism(
        "tree noise as printed, 3H·log2(K)/epsilon: two episodes may share no cell",
        _counts("tree", lambda s: Tree(Budget.pure(s.epsilon), calibration="paper")),
    ),
    "paper-integers": Mechanism(
        "shuffled numbers, a bit plus noise each, as printed: a large number can only be the user's", _paper_integers
    ),
    "paper-losses": Mechanism(
        "a whole loss table with noise H/epsilon as printed: every entry may change", _paper_losses
    ),
    "paper-truncation": Mechanism(
        "reward sums truncated by raw visit counts as printed: one user changes what is kept of the others",
        _paper_truncation,
    ),
}


def audit(
    mechanism: str,
    epsilon: float,
    trials: int,
    horizon: int = 1,
    episodes: int = 4,
    states: int = 2,
    actions: int = 2,
    users: int = 1000,
    delta: float = 1e-6,
    confidence: float = 0.999,
    seed: int = 0,
) -> AuditResult:
    """Attack a mechanism of `MECHANISMS` in `trials` rounds per world and compare with the ε it claims."""
    if mechanism not in MECHANISMS:
        near = difflib.get_close_matches(mechanism, MECHANISMS, n=1, cutoff=0.0)[0]
        raise ValueError(f"there is no mechanism {mechanism!r} to audit; did you mean {near!r}?")
    if not (epsilon > 0.0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon is {epsilon}; it must be positive and finite")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta is {delta}; it must lie strictly between 0 and 1")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is {confidence}; it must lie strictly between 0 and 1")
    if trials < 100:
        raise ValueError(f"trials is {trials}; fewer than 100 show nothing")
    for name, value in (("horizon", horizon), ("episodes", episodes), ("users", users)):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    if min(states, actions) < 1 or states * actions < 2:
        raise ValueError(f"{states} states and {actions} actions are one cell; two users need two to differ in")
    game = MECHANISMS[mechanism].game(Settings(epsilon, horizon, episodes, states, actions, users, delta))
    return audited(mechanism, game, trials, confidence, seed)
