"""Reports on classes of successors: what one user moves, what is released, how it is read, and when it is asked."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles_spotlight as oracle
from discreet import catalog
from discreet.agents import classes as classes_module
from discreet.agents.classes import READ, Coarse, Record, by_value, outcomes_of, read_with_classes, wide
from discreet.agents.knowledge import Knowledge
from discreet.agents.reading import Evidence, Reading, branchings, read
from discreet.agents.spotlight import Spotlight
from discreet.envs import generators
from discreet.envs.rewards import RewardLaw
from discreet.envs.tabular import riverswim
from discreet.mdp import FiniteMDP
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes, MDPSimulator
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import Balanced, DiscreteLaplace, NoiseSource
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.reports import Reports, alphabet_of
from discreet.problem import Problem, PublicStructure
from discreet.releases.items import Items
from discreet.releases.reports import Targets
from discreet.runs.simulation import Clock, play, rollouts
from discreet.session import Session

THREE = PublicStructure(initial=np.array([1.0, 0.0, 0.0]))
MAPS = ([0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [2, 0, 1])


def asked(alphabet, cells, classes):
    plan = oracle.announced(alphabet, cells)
    return replace(plan, announcement=replace(plan.announcement, classes=np.array(classes)))


# What one user moves ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("reports", [1, 2])
def test_every_pair_of_episodes_is_within_epsilon_whatever_the_classes(pooled, reports):
    """All episodes of three states, two actions and two steps: at most m unit vectors, at the classes' own sub-cells;
    the exact log-ratio of any release is at most ε for every pair of them, and ε is attained."""
    spec = CountSpec(3, 2, 2, pooled, 1.0)
    alphabet = alphabet_of(spec, THREE)
    episodes = oracle.all_episodes(3, 2, 2)
    scale = Reports(Budget.pure(1.0), reports=reports).entry().scale
    for classes in MAPS:
        targets = asked(alphabet, range(alphabet.num_rows), classes).announcement
        vectors = oracle.contributions(episodes, spec, alphabet, targets, reports, NoiseSource.seeded(0))
        distinct = np.unique(vectors, axis=0)
        assert distinct.sum(axis=1).max() == reports
        columns = np.flatnonzero(distinct.any(axis=0)) % 6
        assert columns.max() < 2 * (max(classes) + 1)
        ratios = [oracle.worst_ratio(scale, one, other) for one, other in itertools.combinations(distinct, 2)]
        assert max(ratios) == pytest.approx(1.0, abs=1e-6)
        assert max(ratios) <= 1.0 + 1e-12


def test_without_noise_the_release_is_the_sum_over_each_class():
    spec = CountSpec(3, 2, 4, True, 1.0)
    rng = np.random.default_rng(1)
    episodes = Episodes(rng.integers(3, size=(60, 5)), rng.integers(2, size=(60, 4)), np.ones((60, 4)))
    found = []
    for classes in (None, [1, 0, 1]):
        stream = Reports(Budget.pure(math.inf), structure=THREE).open(spec, 60, NoiseSource.seeded(0))
        plan = oracle.announced(stream.alphabet, (1, 4))
        stream.begin(plan if classes is None else asked(stream.alphabet, (1, 4), classes))
        stream.add(episodes)
        found.append(stream.release().histogram)
    single, coarse = found
    assert np.array_equal(coarse[:, :2], single[:, 2:4])
    assert np.array_equal(coarse[:, 2:4], single[:, :2] + single[:, 4:])
    assert not coarse[:, 4:].any()
    assert single.sum() == coarse.sum() > 20


def test_every_class_carries_one_noise_of_the_stated_law_visited_or_not():
    """Both classes and bits, balanced over all eight: accepts the scale 2/ε, rejects a sum of two noises."""
    spec = CountSpec(3, 2, 2, True, 1.0)
    stream = Reports(Budget.pure(1.0), structure=THREE).open(spec, 3000, NoiseSource.seeded(3))
    plan = asked(stream.alphabet, (0, 3), [0, 1, 1])
    user = Episodes(np.array([[0, 0, 0]]), np.array([[0, 0]]), np.zeros((1, 2)))
    values = np.empty((3000, 2, 6))
    for i in range(3000):
        stream.begin(plan)
        stream.add(user)
        values[i] = stream.release().histogram
    values[:, 0, 0] -= 1
    assert not values[:, :, 4:].any()
    variance, flat = Balanced(2.0, 8).variance, values[:, :, :4].reshape(3000, -1)
    assert stream.release().variance == pytest.approx(variance)
    for sample in (flat**2).T:
        error = sample.std() / math.sqrt(sample.size)
        assert abs(sample.mean() - variance) < 5 * error
        assert abs(sample.mean() - 2 * variance) > 5 * error
    correlation = np.corrcoef(flat.T) - np.eye(8) + (1 - np.eye(8)) / 8
    assert np.abs(correlation).max() < 5 / math.sqrt(3000)


def test_outcomes_that_cannot_occur_are_in_no_class():
    successors = np.ones((1, 3, 2, 3), dtype=bool)
    successors[0, 0, 0, 1:] = False  # of cell 0 only state 0 can follow
    facts = PublicStructure(THREE.initial, successors)
    stream = Reports(Budget.pure(1.0), structure=facts).open(CountSpec(3, 2, 2, True, 1.0), 50, NoiseSource.seeded(0))
    found = []
    for _ in range(50):
        stream.begin(asked(stream.alphabet, (0, 1), [0, 1, 1]))
        stream.add(Episodes(np.array([[0, 2, 0]]), np.zeros((1, 2), int), np.zeros((1, 2))))
        found.append(stream.release().histogram)
    drawn = np.any(found, axis=0)
    assert drawn.tolist() == [[True, True, False, False, False, False], [True, True, True, True, False, False]]


def test_classes_that_are_none_and_streams_that_do_not_take_them_are_refused():
    spec = CountSpec(3, 2, 2, True, 1.0)
    curator = Reports(Budget.pure(1.0), structure=THREE)
    stream = curator.open(spec, 5, NoiseSource.seeded(0))
    assert stream.release().takes_classes
    for bad in ([0, 1], [0, 0, 2], [-1, 0, 1], [[0, 0, 1]]):
        with pytest.raises(ValueError, match="for each of 3 states"):
            stream.begin(asked(stream.alphabet, (0,), bad))
    good = asked(stream.alphabet, (0,), [0, 0, 1])
    at_home = LocalReports(Budget.pure(1.0), THREE).open(spec, 5, NoiseSource.seeded(0))
    assert not at_home.release().takes_classes
    with pytest.raises(ValueError, match="without classes"):
        at_home.begin(good)
    with pytest.raises(ValueError, match="without classes"):
        curator.form(spec, good, 5)  # a device sends single outcomes, and nobody would add them up
    assert not curator.released(spec, 5, ()).takes_classes


def test_classes_are_part_of_the_version():
    cells, policy = np.ones(4, dtype=bool), np.full((2, 2, 2), 0.5)
    maps = (None, np.array([0, 0]), np.array([0, 1]), np.array([1, 0]))
    assert len({Targets(cells, classes=classes).version(policy) for classes in maps}) == 4


# Classes ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=7), st.integers(1, 3))
def test_classes_have_the_least_variance_of_all_cuts(values, k):
    x = np.array(values)
    found = by_value(x, k)
    numbers = found.max() + 1
    assert np.array_equal(np.unique(found), np.arange(numbers))
    assert numbers <= k
    order = np.argsort(x, kind="stable")
    assert (np.diff(found[order]) >= 0).all()

    def within(classes):
        return sum(((x[classes == c] - x[classes == c].mean()) ** 2).sum() for c in np.unique(classes))

    best = min(
        within(np.searchsorted(cuts, np.argsort(order), side="right"))
        for cuts in itertools.combinations(range(1, x.size), numbers - 1)
    )
    assert within(found) <= best + 1e-9


def test_states_that_are_worth_the_same_are_one_class():
    assert by_value(np.full(5, 0.7)).tolist() == [0] * 5
    assert by_value(np.array([0.2, 0.9, 0.2, 0.9])).tolist() == [0, 1, 0, 1]
    assert by_value(np.array([0.0, 5.0, 0.1, 9.0, 0.0])).tolist() == [0, 1, 0, 2, 0]


# Reading ------------------------------------------------------------------------------------------------------------


def nothing_read(S, cells):
    return Reading.nothing(np.ones((cells, 2 * S), dtype=bool))


def test_totals_add_up_whatever_the_classes_were():
    """n = 27 predicted reports against variance 9: weight .75 from the second epoch of a cell on."""
    first = Record(np.array([0, 2]), np.array([0, 0]), np.array([[[5.0, 1.0]], [[7.0, 0.0]]]), 9.0, np.full(2, 30.0))
    then = Record(np.array([2]), np.array([0, 1]), np.array([[[2.0, 4.0], [6.0, 8.0]]]), 9.0, np.array([27.0]))
    nothing = Coarse.nothing(3)
    both = nothing.added(first).added(then)
    assert both.totals.tolist() == [[5.0, 1.0], [0.0, 0.0], [7.0 + 0.75 * 8, 0.75 * 12]]
    assert both.noise.tolist() == [9.0, 0.0, 9.0 + 0.75**2 * 18.0]
    assert both.variances.tolist() == [9.0, np.inf, 9.0 + 0.75**2 * 9.0]
    assert both.expected.tolist() == [30.0, 0.0, 30.0 + 0.75 * 27.0]
    assert both.asked.tolist() == [True, False, True]
    assert not nothing.totals.any()


def test_rows_follow_least_squares_with_matrices():
    """One cell, two epochs with different classes: the same as the gain D·Cᵀ(C·D·Cᵀ + R)⁻¹ written out."""
    S, v, rng = 5, 4.0, np.random.default_rng(2)
    prior = rng.dirichlet(np.ones(S))
    plain = replace(nothing_read(S, 1), prior=prior[None])
    records = [
        Record(np.array([0]), np.array(m), rng.uniform(5, 40, size=(1, max(m) + 1, 2)), v, np.array([n]))
        for m, n in (([0, 1, 1, 2, 0], 80.0), ([1, 0, 0, 0, 1], 120.0))
    ]
    coarse = Coarse.nothing(1).added(records[0]).added(records[1])
    found = read_with_classes(plain, coarse, np.array([False]), np.ones((1, 2 * S), dtype=bool))
    r, n_all = found.means[0], found.counts[0]
    length = r * r + (1 - r) ** 2
    q = prior.copy()
    D = np.diag(q * (1 - q)) / (1 + outcomes_of(plain))
    for record in records:
        n = n_all / coarse.expected[0] * record.predicted[0]
        C = (np.arange(record.sums.shape[1])[:, None] == record.classes).astype(float)
        x = record.sums[0] @ [1 - r, r] / length / n
        m = C @ q
        R = np.diag(v / length / n**2 + np.maximum(m * (1 - m), 0.25 / n) / n)
        gain = D @ C.T @ np.linalg.inv(C @ D @ C.T + R)
        q = np.maximum(q + gain @ (x - m), 0.0)
        q /= q.sum()
        D = np.diag(np.diag(D - gain @ C @ D))
    assert found.soft[0] == pytest.approx(q)
    d = np.diag(D)
    assert found.spreads[0] == pytest.approx(np.maximum(d - q * (1 - q) / n_all, 0.1 * d) * n_all**2)


def test_one_class_tells_reports_and_reward_and_leaves_the_row():
    S = 6
    plain = nothing_read(S, 2)
    record = Record(np.array([1]), np.zeros(S, dtype=int), np.array([[[60.0, 180.0]]]), 1.0, np.array([240.0]))
    found = read_with_classes(plain, Coarse.nothing(2).added(record), np.zeros(2, bool), np.ones((2, 2 * S), bool))
    assert found.soft[1] == pytest.approx(plain.prior[1])
    assert found.counts[1] == pytest.approx(240.0, abs=3.0)
    assert found.means[1] == pytest.approx(0.75, abs=0.01)
    assert found.counts[0] == found.means[0] == 0.0
    assert not found.branching[0].any()


def two_epochs(cells=12, S=9):
    """A plain reading, one epoch of reports on classes of all cells but the last, and another one on two of them."""
    rng = np.random.default_rng(8)
    plain = replace(nothing_read(S, cells), prior=rng.dirichlet(np.ones(S), size=cells))
    classes, n = rng.permutation(np.arange(S) % 3), np.full(cells - 1, 60.0)
    table = rng.uniform(5, 20, size=(cells - 1, 3, 2))
    table[::2, :, 1] = 0.0  # every second one never pays
    first = Record(np.arange(cells - 1), classes, table, 4.0, n)
    then = Record(np.array([3, 8]), np.roll(classes, 1), 2.0 * table[[3, 8]], 4.0, 2.0 * n[:2])
    return plain, Coarse.nothing(cells).added(first), then


def test_only_what_has_changed_is_read_again_with_every_report_it_ever_had():
    plain, coarse, then = two_epochs()
    nowhere, admitted = np.zeros(12, bool), np.ones((12, 18), bool)
    before = read_with_classes(plain, coarse, nowhere, admitted)
    both = coarse.added(then)
    everything = read_with_classes(plain, both, nowhere, admitted)
    found = read_with_classes(plain, both, nowhere, admitted, before, then.cells)
    others = np.setdiff1d(np.arange(12), then.cells)
    for name in READ:
        new, old, whole = (getattr(reading, name) for reading in (found, before, everything))
        assert np.array_equal(new[others], old[others])
        assert new[then.cells] == pytest.approx(whole[then.cells], rel=0.01, abs=1e-3)
    assert (np.abs(found.soft - before.soft).max(axis=1) > 0.01).tolist() == np.isin(
        np.arange(12), then.cells
    ).tolist()
    assert (found.counts[then.cells] > 1.5 * before.counts[then.cells]).all()


def test_single_outcomes_of_a_changed_cell_count_whether_or_not_it_has_classes():
    """Cell 3 has both, cell 11 single reports alone."""
    plain, coarse, _ = two_epochs()
    admitted = np.ones((12, 18), bool)
    before = read_with_classes(plain, coarse, np.zeros(12, bool), admitted)
    single = np.isin(np.arange(12), (3, 11))
    sums = np.zeros((12, 18))
    sums[single, 4:6] = [30.0, 10.0]
    evidence = Evidence(sums, np.where(single, 4.0, np.inf), np.full(12, 40.0), admitted)
    plain = read(evidence, plain, np.flatnonzero(single))
    found = read_with_classes(plain, coarse, single, admitted, before, np.flatnonzero(single))
    assert np.array_equal(found.soft[11], plain.soft[11])
    assert found.counts[11] == plain.counts[11] > 0.0
    assert found.counts[3] == pytest.approx(before.counts[3] + plain.counts[3], rel=0.01)
    assert found.soft[3, 2] > before.soft[3, 2] + 0.1
    assert np.array_equal(found.soft[~single], before.soft[~single])


def test_an_epoch_reads_its_own_cells_and_all_of_them_only_when_users_grew_by_a_fifth(monkeypatch):
    """Work grows with what people report, not with all that was ever asked."""
    asked, read_again, original = [], [], classes_module._totals_of

    def spied(before, coarse, admitted, cells):
        asked.append(int(coarse.asked.sum()))
        read_again.append(cells.size)
        return original(before, coarse, admitted, cells)

    monkeypatch.setattr(classes_module, "_totals_of", spied)
    announced_in(broad(), people=20_000)
    everything = sum(one == other for one, other in zip(asked, read_again, strict=True))
    assert len(asked) > 25
    assert 1 < everything < 0.5 * len(asked)
    assert sum(read_again) < 0.6 * sum(asked)


def test_cells_without_reports_on_classes_are_read_as_before():
    plain = nothing_read(3, 4)
    assert read_with_classes(plain, Coarse.nothing(4), np.zeros(4, bool), np.ones((4, 6), bool)) is plain


def test_a_cell_that_never_pays_by_declaration_has_no_reward():
    S = 4
    admitted = np.ones((1, 2 * S), dtype=bool)
    admitted[:, 1::2] = False
    record = Record(np.array([0]), np.zeros(S, dtype=int), np.array([[[30.0, 0.0]]]), 8.0, np.array([34.0]))
    found = read_with_classes(Reading.nothing(admitted), Coarse.nothing(1).added(record), np.zeros(1, bool), admitted)
    assert found.means[0] == found.pays[0] == 0.0
    assert found.counts[0] > 20.0


def test_noise_that_outweighs_every_count_leaves_the_row_as_it_was():
    prior = np.array([0.5, 0.5, 0.0, 0.0])
    plain = replace(nothing_read(4, 1), prior=prior[None])
    record = Record(np.array([0]), np.array([0, 1, 1, 1]), np.full((1, 2, 2), -90.0), 8.0, np.array([30.0]))
    found = read_with_classes(plain, Coarse.nothing(1).added(record), np.zeros(1, bool), np.ones((1, 8), bool))
    assert found.soft[0].tolist() == prior.tolist()
    assert (found.spreads[0] >= 0.0).all()


def test_wide_cells_are_read_better_by_classes_than_by_outcomes():
    """Forty outcomes, 34 reports at ε = 1, 60 cells of which a third pay: errors of the reward and of PV."""
    S, cells, n, rng = 40, 60, 34, np.random.default_rng(5)
    P = rng.dirichlet(np.full(S, 0.5), size=cells)
    r = np.where(rng.random(cells) < 1 / 3, rng.uniform(0.3, 1.0, cells), 0.0)
    V = rng.random(S) ** 3
    outcomes = np.stack([rng.multinomial(n, row) for row in P])
    paid = rng.binomial(outcomes, r[:, None])
    table = np.stack([outcomes - paid, paid], axis=2).astype(float)
    noise, scale = NoiseSource.seeded(1), Reports(Budget.pure(1.0)).entry().scale
    v = DiscreteLaplace(scale).variance
    admitted = np.ones((cells, 2 * S), dtype=bool)
    single = table.reshape(cells, -1) + noise.laplace(scale, (cells, 2 * S))
    evidence = Evidence(single, np.full(cells, v), np.full(cells, float(n)), admitted)
    by_outcomes = read(evidence, Reading.nothing(admitted), np.arange(cells), 3)
    classes = by_value(V)
    sums = np.stack([table[:, classes == k].sum(axis=1) for k in range(3)], axis=1) + noise.laplace(
        scale, (cells, 3, 2)
    )
    record = Record(np.arange(cells), classes, sums, v, np.full(cells, float(n)))
    plain = replace(Reading.nothing(admitted), branching=by_outcomes.branching)  # how wide cells are is known
    found = read_with_classes(plain, Coarse.nothing(cells).added(record), np.zeros(cells, bool), admitted)

    def error(guess, truth):
        return math.sqrt(np.mean((guess - truth) ** 2))

    assert error(found.means, r) < 0.6 * error(by_outcomes.means, r)
    assert error(found.soft @ V, P @ V) < 0.8 * error(by_outcomes.soft @ V, P @ V)
    assert abs(found.counts - n).mean() < abs(by_outcomes.counts - n).mean()


# When they are asked ------------------------------------------------------------------------------------------------


#: Variance of the noise on every sub-cell.
NOISE = np.full(12, 9.0)


def with_outcomes(*numbers, prior=None):
    """Twelve cells of forty states, of which some were read with so many outcomes."""
    reading, sizes = nothing_read(40, 12), branchings(40)
    table = np.zeros((12, sizes.size))
    for cell, number in enumerate(numbers):
        table[cell, sizes.tolist().index(number)] = 1.0
    return replace(reading, branching=table, prior=reading.prior if prior is None else np.tile(prior, (12, 1)))


def test_cells_are_wide_where_most_of_those_read_have_many_outcomes():
    assert outcomes_of(with_outcomes()) == 1.0
    assert outcomes_of(with_outcomes(1, 5, 13)) == pytest.approx(5.0)
    assert wide(with_outcomes(*[40] * 3, *[8] * 3, *[2] * 4), NOISE)
    assert not wide(with_outcomes(*[40] * 9), NOISE)  # too few cells to tell
    assert not wide(with_outcomes(*[40] * 4, *[5] * 6), NOISE)


def test_many_outcomes_within_a_prior_of_few_are_few():
    local = np.where(np.arange(40) < 3, 0.95 / 3, 0.05 / 37)
    assert outcomes_of(with_outcomes(*[40] * 12, prior=local)) == pytest.approx(3 * 0.97 + 37 * 40 * 0.05 / 37)
    assert not wide(with_outcomes(*[40] * 12, prior=local), NOISE)


def test_cells_that_show_their_outcomes_are_not_wide_whatever_else_they_may_have():
    """Thirty reports do not exclude that a cell has many outcomes beside the three that they show."""
    reading = with_outcomes(*[40] * 12)
    hidden, shown = np.full(12, 20.0), np.full(12, 24.0)  # standard deviation 3
    assert wide(replace(reading, counts=hidden), NOISE)
    assert not wide(replace(reading, counts=shown), NOISE)
    assert not wide(replace(reading, counts=np.append(hidden[:4], shown[:8])), NOISE)


def announced_in(mdp, trust="joint", seed=0, epsilon=1.0, people=3000):
    """All plans of a run."""
    structure = PublicStructure(initial=mdp.initial)
    facts = Problem(
        mdp.num_states, mdp.num_actions, mdp.horizon, people, True, epsilon=epsilon, trust=trust, structure=structure
    )
    session = Session.open(catalog.algorithm("spotlight").build(facts), facts, NoiseSource.seeded(seed))
    users = MDPSimulator(mdp, RewardLaw(), seed)
    return [epoch.plan for epoch in play(session, rollouts(users), Clock())]


def broad(S=20):
    rng = np.random.default_rng(4)
    rows = rng.dirichlet(np.full(S, 2.0), size=(1, S, 2))
    return FiniteMDP(rows, rng.random((1, S, 2)), np.eye(S)[0], 8)


def test_unknown_cells_are_asked_for_by_classes_where_rows_are_wide_and_singly_afterwards():
    plans = announced_in(broad())
    modes = [(plan.focus.mode, plan.announcement.classes) for plan in plans]
    assert modes[0][1] is None  # nothing is known of rows yet
    exploring = [classes for mode, classes in modes if mode == "explore"]
    assert sum(classes is not None for classes in exploring) > len(exploring) / 2
    assert all(classes is None for mode, classes in modes if mode != "explore")
    assert max(classes.max() for classes in exploring if classes is not None) == 2
    knowledge = plans[-1].knowledge
    assert knowledge.coarse.asked.any()
    both = knowledge.coarse.asked & np.isfinite(knowledge.variances)
    assert both.any()
    assert (knowledge.noise[both] > knowledge.variances[both]).all()
    assert (knowledge.predicted[both] > knowledge.expected[both]).all()


def test_narrow_rows_are_never_asked_for_by_classes():
    assert all(plan.announcement.classes is None for plan in announced_in(riverswim(6, 12)))


@pytest.mark.parametrize("seed", [0, 5, 6])
def test_near_moves_among_many_states_are_learned_one_by_one(seed):
    """Classes do not say which of hundreds of states is the neighbour that comes next."""
    plans = announced_in(generators.birth_death(200, 20)(100 + seed), seed=seed)
    assert all(plan.announcement.classes is None for plan in plans)


def test_whoever_does_not_take_classes_is_never_asked_for_them(monkeypatch):
    """The same releases, from a stream in which people randomise single items."""
    seen, original = [], Spotlight.plan

    def spied(self, release, previous):
        plan = original(self, release, previous)
        if plan.announcement.classes is not None:
            seen.append(original(self, replace(release, takes_classes=False), previous))
        return plan

    monkeypatch.setattr(Spotlight, "plan", spied)
    announced_in(broad())
    assert len(seen) > 3
    assert all(plan.announcement.classes is None for plan in seen)
    assert all(plan.announcement.classes is None for plan in announced_in(broad(10), "local"))


def test_knowledge_starts_with_no_classes():
    nothing = Knowledge.nothing(Items.of(2, 2, 3, True, PublicStructure(np.array([1.0, 0.0]))))
    assert not nothing.coarse.asked.any()
    assert np.isinf(nothing.noise).all()
    assert not nothing.predicted.any()
