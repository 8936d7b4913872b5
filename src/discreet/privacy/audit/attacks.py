"""Attacks on our own mechanisms, by name: what can be proved to leak, beside what is claimed. See attacks.md."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import stats

from discreet.device import Tables
from discreet.device.bits import BitEncoder, CountBits
from discreet.mdp import Floats, Ints
from discreet.people.counting import StepCounts
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy import binomial
from discreet.privacy.accounting import Budget
from discreet.privacy.audit.games import (
    AuditResult,
    CountTables,
    Game,
    ReleasePattern,
    Settings,
    audited,
    balanced_score,
    counts_game,
    laplace_loss,
    laplace_score,
    matches,
    noisy_game,
)
from discreet.privacy.families import samplable
from discreet.privacy.noise import NoiseSource
from discreet.privacy.protocol import Privatizer
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.sums.toeplitz import Toeplitz
from discreet.privacy.sums.tree import Tree
from discreet.privacy.trust.behaviour import BehaviourTree, split_scores
from discreet.privacy.trust.gains import (
    LEAST_GAIN,
    RETURN_BINS,
    UNITS,
    GainChoice,
    GainMoments,
    ReturnHistogram,
    noisy,
)
from discreet.privacy.trust.local import LocalGaussian, LocalLaplace, LocalSampled
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.noisy_max import noisy_max
from discreet.privacy.trust.one_hot import OneHot
from discreet.privacy.trust.reports import Reports, alphabet_of
from discreet.privacy.trust.shuffle import Shuffle
from discreet.privacy.trust.shuffler import noise_sums
from discreet.privacy.trust.two_servers import TwoServerReports
from discreet.releases.counts import PrivateCounts
from discreet.releases.items import Items
from discreet.releases.reports import Targets


def _counts(
    pattern: ReleasePattern,
    make: Callable[[Settings], Privatizer[PrivateCounts]],
    delta: bool = False,
    exact: bool = True,
) -> Callable[[Settings], Game]:
    """`exact`: the pattern says which noisy values make up the releases, so that what the pair costs is known."""

    def game(s: Settings) -> Game:
        sizes = {"horizon": s.horizon, "episodes": s.episodes, "states": s.states, "actions": s.actions}
        found = counts_game(make(s), s.epsilon, pattern, delta=s.delta if delta else 0.0, **sizes)
        return found if exact else replace(found, exact=None)

    return game


def _local(make: Callable[[Settings], LocalLaplace | LocalGaussian]) -> Callable[[Settings], Game]:
    """One user's report, replaced."""

    def game(s: Settings) -> Game:
        tables = CountTables(s.horizon, s.states, s.actions)
        walks, privatizer = tables.walks, make(s)
        stream = privatizer.open(tables.spec(), 1, NoiseSource.secure())
        encoder, gaussian = stream.encoder, privatizer.mechanism == "gaussian"
        visits, transitions, rewards = (entry.scale for entry in stream.ledger)
        scales = tables.by_table((visits, transitions, rewards))

        def views(world: int, trials: int, noise: NoiseSource) -> Floats:
            return encoder.randomise(walks[np.full(trials, world)], noise).astype(np.float64)

        return noisy_game(s.epsilon, views, walks, scales, s.delta if gaussian else None)

    return game


def _local_sampled(s: Settings) -> Game:
    """One user's sampled step, replaced: whatever step she draws, her items in the two worlds differ."""
    spec = CountTables(s.horizon, s.states, s.actions).spec()
    encoder = LocalSampled(Budget.pure(s.epsilon)).open(spec, 1, NoiseSource.secure()).encoder
    tables = encoder.tables
    assert isinstance(tables, Tables)
    cells = ((0, 0), (s.states - 1, s.actions - 1))
    # item (s, a, s, 1) of the pooled table
    item = [2 * ((x * s.actions + a) * s.states + x) + 1 for x, a in cells]

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        x, a = cells[world]
        states = np.full((trials, s.horizon + 1), x)
        actions = np.full((trials, s.horizon), a)
        items = tables.items(states, actions, np.ones(actions.shape), noise)
        return encoder.randomise(items, noise).astype(np.float64)

    def scores(view: Floats) -> Floats:
        return np.asarray(view[:, item[1]] - view[:, item[0]])[:, None]

    return Game(s.epsilon, views, scores, encoder.epsilon)


def _one_hot(budget: Callable[[Settings], Budget]) -> Callable[[Settings], Game]:
    """Replace the one user of a log whose steps are released as a histogram of items; copies as in `CountTables`."""

    def game(s: Settings) -> Game:
        tables = CountTables(s.horizon, s.states, s.actions)
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
            cells = Items.of(S, spec.num_actions, s.horizon, pooled=True)
            steps = np.tile(walks[world, ..., 1], (1, trials, 1))[None]  # one user in each copy
            stream = private.open(spec, cells, trials, noise)
            stream.add(StepCounts(steps, steps.copy(), trials))
            values = stream.release().values.reshape(S, trials, -1)
            return np.ascontiguousarray(values.transpose(1, 0, 2)).reshape(trials, -1)

        return noisy_game(s.epsilon, views, worlds, scales, s.delta if gaussian else None)

    return game


def winners_game(scale: float, scores: Ints, claimed: float) -> Game:
    """The winner of a noisy max whose scores (2, candidates) one person changes."""

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        won = noisy_max(np.tile(scores[world], (trials, 1)), scale, noise)
        return np.asarray(won[:, None] == np.arange(scores.shape[1]), dtype=np.float64)

    return Game(claimed, views, lambda view: np.concatenate([view, -view], axis=1))


def _splits(s: Settings) -> Game:
    """Replace one person: two splits are equally good in one world, in the other apart by twice her steps.

    Two columns of two bins. The others take action 1 where both are low and action 0 where both are high. Her steps
    with action 1 lie where only the first column is low, or only the second, and add to the side that is low.
    """
    tree = BehaviourTree(1, s.horizon, s.epsilon, math.inf)
    crowd = [*[(0, 0, 1)] * 9, *[(1, 1, 0)] * (9 * s.horizon), *[(1, 0, 1)] * s.horizon]
    found = []
    for own in ((0, 1, 1), (1, 0, 1)):
        steps = np.array([*crowd, *[own] * s.horizon], dtype=np.int64)
        node, splits = np.zeros(len(steps), dtype=np.int64), (np.array([0, 1]), np.array([0, 0]))
        found.append(split_scores(steps[:, :2].astype(np.uint8), steps[:, 2], node, 1, *splits)[0])
    return winners_game(tree.split_scale, np.array(found), s.epsilon)


def _choice(s: Settings) -> Game:
    """Replace one person whose gains are the largest for one policy and the least for the other."""
    choice = GainChoice(s.epsilon, 0.01)
    best, worst = choice.utilities(np.array([math.inf, -math.inf]), 1.0)
    gap = best - worst  # the others have made up for her in world 0
    return winners_game(choice.scale, np.array([[-gap, best, worst + gap], [-gap, worst, best + gap]]), s.epsilon)


def _comparison(s: Settings) -> Game:
    """Replace one person in a comparison with current practice: her return, her gain and its square."""
    third = s.epsilon / 3.0
    histogram, moments = ReturnHistogram(third), GainMoments(third, third)
    bare, source = GainMoments(math.inf, math.inf), NoiseSource.seeded(0)
    worlds = []
    for rate, gain in ((0.0, -LEAST_GAIN), (1.0, 0.0)):
        counts = ReturnHistogram(math.inf).release(np.array([rate]), 0.0, 1.0, source)
        sums = np.array(bare.release(np.array([gain]), 1.0, source)[:2]) * UNITS
        worlds.append(np.concatenate([counts, sums]).astype(np.int64))
    scales = np.array([*[histogram.scale] * RETURN_BINS, *moments.scales])
    both = np.array(worlds)

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        rows = np.tile(both[world], (trials, 1))
        parts = [noisy(rows[:, :RETURN_BINS], histogram.noise, histogram.scale, noise)]
        parts += [noisy(rows[:, [RETURN_BINS + i]], moments.noise, moments.scales[i], noise) for i in (0, 1)]
        return np.concatenate(parts, axis=1).astype(np.float64)

    return replace(noisy_game(s.epsilon, views, both, scales), exact=None)


def _paper_losses(s: Settings) -> Game:
    """A user's whole loss table, S states in each of H layers, with the noise of H losses: all of them may change."""
    scale = samplable("losses", s.horizon / s.epsilon)
    return _noisy_table(s, np.outer([0, 1], np.ones(s.horizon * s.states * s.actions, dtype=np.int64)), scale)


def _noisy_table(s: Settings, worlds: Ints, scale: float) -> Game:
    """A table of numbers, one of two, each with Laplace noise of one scale."""

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        return np.asarray(worlds[world] + noise.laplace(scale, (trials, worlds.shape[1])), dtype=np.float64)

    return noisy_game(s.epsilon, views, worlds, np.full(worlds.shape[1], scale))


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
    return _noisy_table(s, worlds, scale)


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
        encoder = BitEncoder(CountBits(stacked.tables), s.users, bits.each, bits.flips)
        sums = noise_sums(encoder, s.users, noise).reshape(trials, -1) + walks[world]
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
        generator = noise.generator()
        seen = np.zeros((trials, each + 2), dtype=np.int64)
        seen[:, : each + 1] = generator.multinomial(s.users - 1, law / law.sum(), trials)
        own = generator.binomial(each, p, trials) + world
        seen[np.arange(trials), own] += 1
        return seen.astype(np.float64)

    def scores(view: Floats) -> Floats:
        return np.stack([view[:, -1], view @ np.arange(each + 2)], axis=1)

    return Game(s.epsilon, views, scores, math.inf if law[-1] > s.delta else None, s.delta)


def server_game(private: Reports, claimed: float, items: int) -> Game:
    """Replace the one user of an epoch whose report one corrupt server of two wants to know.

    It takes its shares, which are uniform whatever she reports, and its own noise off what both publish.
    """
    worlds = np.eye(items, dtype=np.int64)[[0, -1]]

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        noises = private.drawn(trials * items, noise)
        own = noises[0] if private.noises > 1 else 0
        published = np.tile(worlds[world], trials) + noises.sum(axis=0)
        return np.asarray(published - own, dtype=np.float64).reshape(trials, items)

    return noisy_game(claimed, views, worlds, np.full(items, private.entry().scale))


def reports_game(private: Reports, s: Settings) -> Game:
    """Replace the one user of an epoch in which every cell is asked for; at least two steps, so that a report has a
    successor. Each round is an epoch, as noise may be balanced over its sub-cells.
    """
    tables = CountTables(max(s.horizon, 2), s.states, s.actions)
    H, S, A = tables
    cells = ((0, 0), (S - 1, A - 1))
    worlds = np.zeros((2, S, A, 2 * S), dtype=np.int64)
    for world, (x, a) in enumerate(cells):
        worlds[world, x, a, 2 * x + 1] = 1  # she stays, and is paid
    flat, spec, scale = worlds.reshape(2, -1), tables.spec(), private.entry().scale
    scales, plan = np.full(flat.shape[1], scale), asking_for_all(spec, private)

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        x, a = cells[world]
        she = Episodes(np.full((1, H + 1), x), np.full((1, H), a), np.ones((1, H)))
        stream, seen = private.open(spec, trials, noise), np.empty((trials, flat.shape[1]))
        for row in seen:
            stream.begin(plan)
            stream.add(she)
            row[:] = stream.release().histogram.reshape(-1)
        return seen

    def scores(view: Floats) -> Floats:
        ways = balanced_score(view, flat, scale), laplace_score(view, flat, scales), matches(view, flat)
        return np.stack(ways, axis=1)

    return Game(s.epsilon, views, scores, laplace_loss(flat, scales))


def asking_for_all(spec: CountSpec, private: Reports | LocalReports) -> Plan:
    """A plan whose users report on every cell; where they start is not asked for."""
    alphabet = alphabet_of(spec, private.structure)
    wanted = np.arange(alphabet.num_rows) < spec.num_states * spec.num_actions
    nothing = np.zeros((0, 0, 0))
    return Plan(nothing, nothing, nothing, announcement=Targets(wanted))


def _local_reports(s: Settings) -> Game:
    """One user's message about her first visit, replaced."""
    private, spec = LocalReports(pure(s)), CountTables(max(s.horizon, 2), s.states, s.actions).spec()
    encoder = private.form(spec, asking_for_all(spec, private), 1)
    answers = [2 * ((x * s.actions + a) * s.states + x) + 1 for x, a in ((0, 0), (s.states - 1, s.actions - 1))]

    def views(world: int, trials: int, noise: NoiseSource) -> Floats:
        said = encoder.randomise(np.full(trials, answers[world]), noise)
        told = said if encoder.method == "unary" else said[:, None] == np.arange(encoder.num_items + 1)
        return np.asarray(told, dtype=np.float64)

    def scores(view: Floats) -> Floats:
        return np.asarray(view[:, answers[1]] - view[:, answers[0]])[:, None]

    return Game(s.epsilon, views, scores, encoder.epsilon)


def _two_servers(s: Settings) -> Game:
    return server_game(TwoServerReports(pure(s)), s.epsilon, 2 * s.states * s.states * s.actions)


class Audited(NamedTuple):
    description: str
    game: Callable[[Settings], Game]


GAUSSIAN = "the same with Gaussian noise and (epsilon, delta)"


def pure(s: Settings) -> Budget:
    return Budget.pure(s.epsilon)


def approximate(s: Settings) -> Budget:
    return Budget.approximate(s.epsilon, s.delta)


#: Everything that can be audited by name.
MECHANISMS: dict[str, Audited] = {
    "local": Audited(
        "one user's tables with Laplace noise, randomised at home", _local(lambda s: LocalLaplace(pure(s)))
    ),
    "local-gaussian": Audited(GAUSSIAN, _local(lambda s: LocalGaussian(approximate(s)))),
    "local-sampled": Audited("one sampled step of one user in optimised unary encoding", _local_sampled),
    "tree": Audited(
        "counts after every episode, Laplace noise on a binary tree, later users react to releases",
        _counts("tree", lambda s: Tree(pure(s))),
    ),
    "tree-gaussian": Audited(GAUSSIAN, _counts("tree", lambda s: Tree(approximate(s)), delta=True)),
    "tree-honaker": Audited(
        "the tree with nodes averaged over their children",
        _counts("tree", lambda s: Tree(pure(s), variant="honaker"), exact=False),
    ),
    "tree-smooth": Audited(
        "the tree over labels with equally many ones",
        _counts("tree", lambda s: Tree(pure(s), variant="smooth"), exact=False),
    ),
    "toeplitz": Audited(
        "counts after every episode through a square root of the matrix of sums, Gaussian noise",
        _counts("epochs", lambda s: Toeplitz(approximate(s), num_blocks=s.episodes), delta=True, exact=False),
    ),
    "epochs": Audited(
        "counts per epoch with fresh Laplace noise, later users react to releases",
        _counts("epochs", lambda s: Epochs(pure(s))),
    ),
    "one-shot": Audited(
        "one release of the counts of all users with Laplace noise", _counts("one-shot", lambda s: OneShot(pure(s)))
    ),
    "one-shot-gaussian": Audited(GAUSSIAN, _counts("one-shot", lambda s: OneShot(approximate(s)), delta=True)),
    "one-hot": Audited("the steps of a log as one histogram with Laplace noise", _one_hot(pure)),
    "one-hot-gaussian": Audited(GAUSSIAN, _one_hot(approximate)),
    "splits": Audited("splits of a tree by the largest of noisy scores, geometric noise", _splits),
    "choice": Audited("the best of two policies and none by noisy gains, geometric noise", _choice),
    "comparison": Audited("returns and gains over current practice with Laplace noise", _comparison),
    "reports": Audited(
        "one report per user to a curator, what spotlight releases", lambda s: reports_game(Reports(pure(s)), s)
    ),
    "local-reports": Audited("one report of one user, randomised at home", _local_reports),
    "two-servers": Audited("one report per user, as one corrupt server of two sees it", _two_servers),
    "shuffle": Audited("counts of shuffled bits, the noise comes from all users of a batch", _shuffle),
    "paper-local": Audited(
        "local noise as printed, 3H/epsilon: two episodes may share no cell",
        _local(lambda s: LocalLaplace(pure(s), calibration="paper")),
    ),
    "paper-tree": Audited(
        "tree noise as printed, 3H·log2(K)/epsilon: two episodes may share no cell",
        _counts("tree", lambda s: Tree(pure(s), calibration="paper")),
    ),
    "paper-integers": Audited(
        "shuffled numbers, a bit plus noise each, as printed: a large number can only be the user's", _paper_integers
    ),
    "paper-losses": Audited(
        "a whole loss table with noise H/epsilon as printed: every entry may change", _paper_losses
    ),
    "paper-truncation": Audited(
        "reward sums truncated by raw visit counts as printed: one user changes what is kept of the others",
        _paper_truncation,
    ),
}

#: What the games of some of them attack.
ATTACKED: dict[type, str] = {
    Reports: "reports",
    TwoServerReports: "two-servers",
    LocalReports: "local-reports",
    LocalSampled: "local-sampled",
    Epochs: "epochs",
    Shuffle: "shuffle",
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
