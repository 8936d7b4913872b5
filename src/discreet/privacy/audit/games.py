"""Games against a mechanism: how much ε an adversary can prove has leaked.

A game fixes two neighbouring worlds and what the adversary sees in each. She picks an event on one half of the
trials; on the other half its probabilities p₁, p₀ are bounded (Clopper–Pearson), and (ε, δ)-DP would imply
ε ≥ ln((p₁ − δ)/p₀). A mechanism that is as private as claimed is refuted with probability at most 1 − confidence.
How the games are built, and what an audit cannot show, is in attacks.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from discreet.mdp import Floats, Ints
from discreet.people.counts import Counts, CountSpec
from discreet.privacy.noise import Balanced, DiscreteLaplace, NoiseSource
from discreet.privacy.protocol import Privatizer
from discreet.privacy.sums.raw import RawSums
from discreet.privacy.sums.streams import CountStream
from discreet.releases.counts import PrivateCounts

#: Most copies of a game that are played side by side in one stream, and least streams per half and world: noise that
#: copies share would look like a property of the world if there were one stream only.
COPIES, STREAMS = 2**13, 32
#: Rows per world, evenly spaced, from which the linear discriminant is fitted.
FITTED = 2**14
#: Excess over a claim that counts as rounding.
ROUNDING = 1e-9


class Settings(NamedTuple):
    """What an audit may vary; `users` and `delta` matter to mechanisms that have them."""

    epsilon: float
    horizon: int = 1
    episodes: int = 4
    states: int = 2
    actions: int = 2
    users: int = 1000
    delta: float = 1e-6


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


class CountTables(NamedTuple):
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


def laplace_score(values: Floats, worlds: Ints, scales: Floats) -> Floats:
    """Σ_c (|y_c − x⁰_c| − |y_c − x¹_c|)/b_c: the log-likelihood ratio of the worlds under Laplace noise."""
    return np.asarray(((np.abs(values - worlds[0]) - np.abs(values - worlds[1])) / scales).sum(axis=-1))


def balanced_score(values: Floats, worlds: Ints, scale: float) -> Floats:
    """The same under balanced noise."""
    law = Balanced(scale, worlds.shape[1])
    return law.log_weight(values - worlds[1]) - law.log_weight(values - worlds[0])


def gaussian_score(values: Floats, worlds: Ints, scales: Floats) -> Floats:
    """The same under Gaussian noise."""
    squares = (values - worlds[0]) ** 2 - (values - worlds[1]) ** 2
    return np.asarray((squares / (2.0 * scales**2)).sum(axis=-1))


def matches(values: Floats, worlds: Ints) -> Floats:
    """How many more counters equal world 1 exactly than world 0: sees counters without noise."""
    return np.asarray(((values == worlds[1]).sum(axis=-1) - (values == worlds[0]).sum(axis=-1)).astype(np.float64))


ReleasePattern = Literal["tree", "epochs", "one-shot"]


def measurements(pattern: ReleasePattern, episodes: int) -> list[tuple[int, int]]:
    """(first, last) users of every noisy value as (base, t), users base+1..t: release t less release base.

    Tree: prefix t is prefix t − lowbit(t) plus one node, t < K. Epochs: one user each. One shot: all users.
    """
    if pattern == "tree":
        return [(t - (t & -t), t) for t in range(1, episodes)]
    if pattern == "epochs":
        return [(t - 1, t) for t in range(1, episodes + 1)]
    return [(0, episodes)]


def counts_game(
    privatizer: Privatizer[PrivateCounts],
    claimed: float,
    pattern: ReleasePattern,
    victim: int = 0,
    delta: float = 0.0,
    **sizes: int,
) -> Game:
    """Replace user `victim` of a stream of counts; everybody else reacts to what has been released.

    Her two walks share no cell. Each later user takes the walk that was visited less according to the last release,
    so her data depend on the victim's through releases only, which the adversary sees and subtracts.
    `sizes`: horizon, episodes, states and actions of `Settings`.
    """
    _, horizon, episodes, states, actions, *_ = Settings(claimed, **sizes)
    tables = CountTables(horizon, states, actions)
    walks = tables.walks
    steps = measurements(pattern, episodes)
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
        stream._sums = StackedSums(spec, stream._crowd)
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
            likelihood += (gaussian_score if gaussian else laplace_score)(node, walks, scales)
            exact += matches(node, walks)
        return np.stack([likelihood, exact], axis=1)

    return Game(claimed, views, scores, None if gaussian else len(nodes) * laplace_loss(walks, scales), delta)


def laplace_loss(worlds: Ints, scales: Floats) -> float:
    """Σ_c |x¹_c − x⁰_c| × the log-ratio of the noise of c per unit: attained, so it is what the pair costs."""
    ratios = np.array([DiscreteLaplace(scale).log_ratio for scale in scales])
    return float((np.abs(worlds[1] - worlds[0]) * ratios).sum())


def noisy_game(
    claimed: float,
    views: Callable[[int, int, NoiseSource], Floats],
    worlds: Ints,
    scales: Floats,
    delta: float | None = None,
) -> Game:
    """Two tables (2, m) under noise of these scales, told apart by likelihood and by exact matches.

    The noise is Laplace, or with a delta Gaussian.
    """
    likelihood = laplace_score if delta is None else gaussian_score

    def scores(view: Floats) -> Floats:
        return np.stack([likelihood(view, worlds, scales), matches(view, worlds)], axis=1)

    return Game(claimed, views, scores, laplace_loss(worlds, scales) if delta is None else None, delta or 0.0)
