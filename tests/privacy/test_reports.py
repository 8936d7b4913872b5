"""Reports of at most m announced steps: what one user can move, what is noised, what is refused."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.mdp import FiniteMDP
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import Balanced, DiscreteLaplace, NoiseSource
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.reports import Reports, alphabet_of, encoded
from discreet.problem import PublicStructure
from discreet.releases.items import Items
from discreet.releases.reports import Targets
from discreet.runs.feasibility import forecast_noise
from discreet.schedules import GeometricEpochs
from oracles_spotlight import all_episodes, announced, contributions, first_visits, reported_law
from oracles_streams import bad_records

START = np.array([1.0, 0.0])
KNOWN_START = PublicStructure(initial=START)


def tiny(pooled=True, H=2, grid=1.0, reward_range=(0.0, 1.0)) -> CountSpec:
    return CountSpec(2, 2, H, pooled, grid, reward_range)


def some(alphabet, *cells) -> Targets:
    wanted = np.zeros(alphabet.num_rows, dtype=bool)
    wanted[list(cells)] = True
    return Targets(wanted)


# Sensitivity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("reports", [1, 2])
@pytest.mark.parametrize("structure", [KNOWN_START, PublicStructure()])
def test_two_users_differ_by_exactly_twice_the_reports(pooled, reports, structure):
    """All pairs of all episodes of a two-state problem, every non-empty target set of up to three cells and all."""
    spec = tiny(pooled)
    alphabet = alphabet_of(spec, structure)
    episodes = all_episodes(2, 2, 2)
    everything = range(alphabet.num_rows)
    sets = [{c} for c in everything] + [{0, 3}, {1, 2, 3}, set(everything)]
    for cells in sets:
        v = contributions(episodes, spec, alphabet, some(alphabet, *cells), reports, NoiseSource.seeded(0))
        distances = np.abs(v[:, None, :] - v[None, :, :]).sum(axis=2)
        assert distances.max() <= 2 * reports
        assert v.sum(axis=1).max() <= reports
    assert distances.max() == 2 * reports == Reports(Budget.pure(1.0), reports=reports).sensitivity
    assert v.sum(axis=1).max() == reports == Reports(Budget.pure(1.0), "zero-out", reports).sensitivity


def test_the_horizon_does_not_enter_the_noise():
    scales = {Reports(Budget.pure(1.0)).open(tiny(H=H), 9, NoiseSource.seeded(0)).ledger[0].scale for H in (1, 2, 20)}
    assert len(scales) == 1
    assert scales.pop() == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize(
    ("privatizer", "scale"),
    [
        (Reports(Budget.pure(0.5)), 4.0),
        (Reports(Budget.pure(0.5), "zero-out"), 2.0),
        (Reports(Budget.pure(1.0), reports=3), 6.0),
        (Reports(Budget.pure(1.0), episodes_per_user=4), 8.0),
    ],
)
def test_scale_ledger_and_guarantee_agree(privatizer, scale):
    stream = privatizer.open(tiny(), 5, NoiseSource.seeded(0))
    (entry,) = stream.ledger
    assert entry.scale == pytest.approx(scale, rel=1e-9)
    assert entry.cost == pytest.approx(privatizer.sensitivity * privatizer.episodes_per_user / entry.scale, rel=1e-9)
    assert 0.999 * privatizer.budget.epsilon < entry.cost <= privatizer.budget.epsilon
    assert stream.guarantee.model == "joint"
    assert stream.guarantee.neighbours == privatizer.neighbours
    assert stream.guarantee.epsilon == privatizer.budget.epsilon
    assert any("targets" in line for line in stream.guarantee.assumptions)


# The encoder --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 3), st.booleans())
def test_the_encoder_reports_first_visits(seed, pooled, reports, has_start):
    rng = np.random.default_rng(seed)
    S, A, H, n = 3, 2, 4, 5
    spec = CountSpec(S, A, H, pooled, 1.0)
    alphabet = alphabet_of(spec, PublicStructure(initial=None if has_start else np.eye(S)[0]))
    wanted = rng.random(alphabet.num_rows) < 0.4
    episodes = Episodes(
        rng.integers(S, size=(n, H + 1)), rng.integers(A, size=(n, H)), rng.integers(2, size=(n, H)).astype(float)
    )
    items = encoded(episodes, spec, alphabet, Targets(wanted), reports, NoiseSource.seeded(seed))
    start = alphabet.num_cells if has_start else None
    for i in range(n):
        found = first_visits(
            episodes.states[i],
            episodes.actions[i],
            episodes.rewards[i].astype(int),
            set(np.flatnonzero(wanted)),
            pooled,
            A,
            S,
            reports,
            start,
        )
        codes = [c * 2 * S + 2 * y + b for c, y, b in found]
        assert items[i].tolist() == codes + [-1] * (reports - len(codes))


def test_the_bit_is_a_coin_with_the_scaled_reward_as_its_chance():
    """Rewards in [-1, 3]: a reward of 0 is a quarter of the range, and so is the share of ones."""
    spec = CountSpec(1, 1, 1, True, 2.0**-10, (-1.0, 3.0))
    alphabet = alphabet_of(spec, PublicStructure(np.ones(1), zero_rewards=np.ones((1, 1, 1), dtype=bool)))
    assert alphabet.sizes.tolist() == [2]  # 0 is not the lowest reward, so the bit says something
    n = 40_000
    episodes = Episodes(np.zeros((n, 2), int), np.zeros((n, 1), int), np.zeros((n, 1)))
    bits = encoded(episodes, spec, alphabet, some(alphabet, 0), 1, NoiseSource.seeded(3))[:, 0] % 2
    assert abs(bits.mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / n)


def law_of(choose, targets):
    """Law of the reported outcome in a problem where going right pays more from the right state."""
    P = np.array([[[[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.5], [0.1, 0.9]]]])
    mdp = FiniteMDP(P, np.array([[[0.1, 0.4], [0.0, 0.8]]]), START, 3)
    policy = np.broadcast_to(np.array([[0.4, 0.6], [0.3, 0.7]]), (3, 2, 2))
    law = reported_law(mdp, policy, lambda s, a, b: choose(s, a, b, targets))
    worst = 0.0
    for cell, outcomes in law.items():
        s, a = divmod(cell, 2)
        for y in (0, 1):
            for bit in (0, 1):
                r = mdp.rewards[0, s, a]
                truth = P[0, s, a, y] * (r if bit else 1 - r)
                worst = max(worst, abs(outcomes.get((y, bit), 0.0) - truth))
    return worst


def shipped_step(states, actions, bits, targets):
    """The step behind the report of the shipped encoder, of an episode given as tuples."""
    spec = tiny(H=len(actions))
    alphabet = alphabet_of(spec, KNOWN_START)
    episodes = Episodes(np.array([states]), np.array([actions]), np.array([bits], dtype=float))
    item = int(encoded(episodes, spec, alphabet, some(alphabet, *targets), 1, NoiseSource.seeded(0))[0, 0])
    if item < 0:
        return None
    cell = item // 4
    return next(h for h in range(len(actions)) if states[h] * 2 + actions[h] == cell)


def test_reports_are_unbiased_for_their_cell():
    assert law_of(shipped_step, (1, 2)) < 1e-12
    assert law_of(shipped_step, (0, 3)) < 1e-12


def test_a_report_chosen_after_its_outcome_is_biased():
    """The mutant waits for a step that paid: the check above sees it."""

    def paid(states, actions, bits, targets):
        steps = [h for h in range(len(actions)) if states[h] * 2 + actions[h] in targets]
        return next((h for h in steps if bits[h]), steps[0] if steps else None)

    assert law_of(paid, (1, 2)) > 0.04


# Noise --------------------------------------------------------------------------------------------------------------


def noises(privatizer, spec, cells, epochs, seed=0):
    """Released minus true histograms of epochs in which nobody visits a target but the first user's cell 0."""
    stream = privatizer.open(spec, epochs, NoiseSource.seeded(seed))
    user = Episodes(
        np.zeros((1, spec.horizon + 1), int), np.zeros((1, spec.horizon), int), np.zeros((1, spec.horizon))
    )
    found = []
    for _ in range(epochs):
        stream.begin(announced(stream.alphabet, cells))
        stream.add(user)
        table = stream.release().histogram.copy()
        table[0, 0] -= 1  # her first visit: cell 0, s' = 0, no reward
        found.append(table)
    return np.array(found)


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_every_sub_cell_carries_noise_of_the_stated_law(neighbours):
    """Visited and unvisited alike: accepts the scale, rejects 0.7 and 1.3 of it. Balanced noise is correlated between
    sub-cells by −1/8, eight of nine that add up to nothing; other noise is independent."""
    private = Reports(Budget.pure(1.0), neighbours, structure=KNOWN_START)
    values = noises(private, tiny(), (0, 3), 3000).astype(float)
    assert values.shape == (3000, 2, 4)
    flat = values.reshape(3000, 8)
    balanced = neighbours == "replace"
    scale = 2.0 if balanced else 1.0

    def expected(scale):
        return Balanced(scale, 8).variance if balanced else DiscreteLaplace(scale).variance

    for sample in (flat**2).T:
        error = sample.std() / math.sqrt(sample.size)
        assert abs(sample.mean() - expected(scale)) < 5 * error
        assert abs(sample.mean() - expected(0.7 * scale)) > 5 * error
        assert abs(sample.mean() - expected(1.3 * scale)) > 5 * error
    correlation = np.corrcoef(flat.T) - np.eye(8) + (1.0 - np.eye(8)) * balanced / 8
    assert np.abs(correlation).max() < 5 / math.sqrt(3000)
    lagged = np.corrcoef(flat[:-1, 0], flat[1:, 0])[0, 1]
    assert abs(lagged) < 5 / math.sqrt(3000)  # independent between epochs


def test_sub_cells_that_cannot_occur_get_no_noise_and_take_no_reports():
    successors = np.zeros((1, 2, 2, 2), dtype=bool)
    successors[..., 0] = True  # nothing but state 0 can follow: declared, and wrong
    facts = PublicStructure(START, successors, np.ones((1, 2, 2), dtype=bool))
    stream = Reports(Budget.pure(math.inf), structure=facts).open(tiny(), 4, NoiseSource.seeded(0))
    assert stream.alphabet.sizes.tolist() == [1, 1, 1, 1]
    stream.begin(announced(stream.alphabet, (0,)))
    surprising = Episodes(np.array([[0, 1, 0], [0, 0, 0]]), np.zeros((2, 2), int), np.zeros((2, 2)))
    stream.add(surprising)
    assert stream.release().histogram.tolist() == [[1.0, 0.0, 0.0, 0.0]]  # dropped, not replaced by a later visit
    noisy = noises(Reports(Budget.pure(1.0), structure=facts), tiny(), (0, 1), 50)
    assert not noisy[:, :, 1:].any()
    assert noisy[:, :, 0].any(axis=0).all()


def test_without_noise_the_histogram_is_exact():
    spec = CountSpec(3, 2, 4, False, 1.0)
    stream = Reports(Budget.pure(math.inf)).open(spec, 50, NoiseSource.seeded(0))
    rng = np.random.default_rng(1)
    episodes = Episodes(rng.integers(3, size=(50, 5)), rng.integers(2, size=(50, 4)), np.ones((50, 4)))
    cells = (3, 8, 20)
    stream.begin(announced(stream.alphabet, cells))
    stream.add(episodes)
    truth = np.zeros((3, 6))
    for s, a in zip(episodes.states, episodes.actions, strict=True):
        for cell, y, bit in first_visits(s, a, [1] * 4, set(cells), False, 2, 3, 1):
            truth[cells.index(cell), 2 * y + bit] += 1
    release = stream.release()
    assert np.array_equal(release.histogram, truth)
    assert truth.sum() > 10
    assert (release.users, release.num_episodes, release.variance) == (50, 50, 0.0)


def test_swapping_one_user_moves_her_epoch_by_at_most_two_and_no_other():
    def histograms(swapped):
        stream = Reports(Budget.pure(1.0), structure=KNOWN_START).open(tiny(), 40, NoiseSource.seeded(5))
        rng = np.random.default_rng(2)
        tables = []
        for epoch in range(4):
            states, actions = rng.integers(2, size=(10, 3)), rng.integers(2, size=(10, 2))
            states[:, 0] = 0
            actions[7, 0] = 0
            if swapped and epoch == 2:
                actions[7, 0] = 1
            stream.begin(announced(stream.alphabet, range(4)))
            stream.add(Episodes(states, actions, np.ones((10, 2))))
            tables.append(stream.release().histogram)
        return tables

    moved = [np.abs(a - b).sum() for a, b in zip(histograms(False), histograms(True), strict=True)]
    assert moved == [0, 0, 2, 0]


# Protocol -----------------------------------------------------------------------------------------------------------


def opened(num_episodes=6):
    stream = Reports(Budget.pure(1.0), structure=KNOWN_START).open(tiny(), num_episodes, NoiseSource.seeded(0))
    users = Episodes(np.zeros((3, 3), int), np.zeros((3, 2), int), np.zeros((3, 2)))
    return stream, users


def test_a_release_is_drawn_once_and_holds_its_epoch_only():
    stream, users = opened()
    before = stream.release()
    assert (before.users, before.num_episodes, before.targets) == (0, 0, None)
    assert stream.release() is before
    stream.begin(announced(stream.alphabet, (0, 1)))
    assert stream.release() is before  # nobody has reported yet
    stream.add(users)
    first = stream.release()
    assert stream.release() is first
    assert first.targets.rows.tolist() == [0, 1]
    stream.begin(announced(stream.alphabet, (2,)))
    stream.add(users)
    second = stream.release()
    assert second.histogram.shape == (1, 4)
    assert (second.users, second.num_episodes) == (3, 6)


def test_targets_are_announced_before_anyone_acts_and_stay():
    stream, users = opened()
    with pytest.raises(ValueError, match="no targets"):
        stream.add(users)
    stream.begin(announced(stream.alphabet, (0,)))
    stream.begin(announced(stream.alphabet, (1,)))  # nobody has acted: another announcement is fine
    stream.add(users)
    with pytest.raises(ValueError, match="have reported"):
        stream.begin(announced(stream.alphabet, (2,)))
    stream.release()
    with pytest.raises(ValueError, match="no targets"):
        stream.add(users)


def test_what_would_void_the_calibration_is_refused():
    stream, users = opened(2)
    plan = announced(stream.alphabet, (0,))
    stream.begin(plan)
    with pytest.raises(ValueError, match="exceed the 2"):
        stream.add(users)
    with pytest.raises(TypeError, match="Episodes"):
        stream.add(Counts.zeros(tiny()))
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(stream)
    assert stream.release().num_episodes == 0
    assert "2" in repr(stream)
    other = Items.of(3, 2, 2, True, KNOWN_START)
    with pytest.raises(ValueError, match="shape"):
        stream.begin(announced(other, (0,)))
    with pytest.raises(ValueError, match="pure"):
        Reports(Budget.approximate(1.0, 1e-6))
    with pytest.raises(ValueError, match="reports"):
        Reports(Budget.pure(1.0), reports=0)
    with pytest.raises(ValueError, match="reward_range"):
        Reports(Budget.pure(1.0)).open(tiny(reward_range=None), 5, NoiseSource.seeded(0))


def test_an_announcement_that_is_refused_changes_nothing():
    stream, users = opened(2)
    stream.begin(announced(stream.alphabet, (0,)))
    for bad in (announced(stream.alphabet, ()), announced(Items.of(3, 2, 2, True), (0,))):
        with pytest.raises(ValueError, match=r"empty|shape"):
            stream.begin(bad)
    twin, _ = opened(2)
    twin.begin(announced(twin.alphabet, (0,)))
    for each in (stream, twin):
        each.add(Episodes(users.states[:2], users.actions[:2], users.rewards[:2]))
    assert np.array_equal(stream.release().histogram, twin.release().histogram)


def test_the_alphabet_lists_what_can_be_reported():
    S, A, H = 3, 2, 4
    pooled = Items.of(S, A, H, True, PublicStructure(np.eye(S)[0]))
    assert (pooled.num_rows, pooled.num_cells, pooled.restricted) == (6, 6, False)
    assert pooled.sizes.tolist() == [6] * 6
    staged = Items.of(S, A, H, False, PublicStructure(np.eye(S)[0]))
    assert (staged.num_cells, staged.restricted) == (24, False)
    assert staged.sizes.tolist() == [6] * 18 + [2] * 6
    start = alphabet_of(CountSpec(S, A, H, True), PublicStructure())
    assert start.num_rows == 7
    assert start.sizes[-1] == S
    successors = np.ones((1, S, A, S), dtype=bool)
    successors[0, 0, 0, 2] = False
    zero = np.zeros((1, S, A), dtype=bool)
    zero[0, 0] = True
    some_known = Items.of(S, A, H, True, PublicStructure(np.eye(S)[0], successors, zero))
    assert some_known.sizes.tolist() == [2, 3, 6, 6, 6, 6]
    assert some_known.restricted
    successors[0, 1, 1] = False
    with pytest.raises(ValueError, match="at least one"):
        alphabet_of(CountSpec(S, A, H, True), PublicStructure(np.eye(S)[0], successors))


def test_versions_tell_targets_and_policies_apart():
    alphabet = Items.of(2, 2, 2, True, KNOWN_START)
    one, other = some(alphabet, 0), some(alphabet, 1)
    policy = np.full((2, 2, 2), 0.5)
    changed = policy.copy()
    changed[0, 0] = [1.0, 0.0]
    assert len({one.version(policy), other.version(policy), one.version(changed)}) == 3
    assert one.version(policy) == some(alphabet, 0).version(policy.copy())


def test_the_warning_in_advance_counts_users_per_cell_and_outcomes():
    """25 + 12·√b users per cell with b outcomes at ε = 1 under replace, half under zero-out, ten times at ε = .1."""
    spec = CountSpec(6, 2, 20, True)
    one = Reports(Budget.pure(1.0))
    assert one.users_lost(spec, 1.0) == pytest.approx(37 * 12)
    assert one.users_lost(spec, 4.0) == pytest.approx(49 * 12)
    assert Reports(Budget.pure(1.0), "zero-out").users_lost(spec, 4.0) == pytest.approx(49 * 6)
    assert Reports(Budget.pure(0.1)).users_lost(CountSpec(6, 2, 20, False), 4.0) == pytest.approx(490 * 240 * 0.45)
    middle = math.sqrt(37 * (25 + 12 * math.sqrt(6)))
    assert one.users_lost(spec) == pytest.approx(middle * 12)
    fine = forecast_noise(one, spec, 20_000, GeometricEpochs())
    assert fine.feasible
    assert "unknown branching: between 450 and 660 users pass" in fine.verdict  # two digits, rounded up
    assert "up to 5 times as many where good actions are hardly better than others" in fine.verdict
    short = forecast_noise(one, spec, 1000, GeometricEpochs())
    assert not short.feasible
    assert "about 1,100 users" in short.verdict
    successors = np.zeros((1, 6, 2, 6), dtype=bool)
    successors[..., :4] = True
    declared = Reports(Budget.pure(1.0), structure=PublicStructure(np.eye(6)[0], successors))
    assert declared.users_lost(spec) == pytest.approx(49 * 12)
    assert "about 590 users pass" in forecast_noise(declared, spec, 20_000, GeometricEpochs()).verdict
    bandit = CountSpec(6, 2, 1, True)
    assert one.users_lost(bandit) == pytest.approx(37 * 12)  # no successor is reported
    nu = 4 * math.e / (math.e - 1) ** 2
    local = LocalReports(Budget.pure(1.0))
    assert local.users_lost(spec, 3.0) == pytest.approx(12 * (50 + 90 * nu))
    assert forecast_noise(local, spec, 20_000, GeometricEpochs()).feasible
    assert not forecast_noise(local, spec, 7_000, GeometricEpochs()).feasible


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("public_start", [True, False])
def test_p8_reports_of_bad_records_are_none_and_move_nothing_further(pooled, public_start):
    """All records of a tiny problem and all bad ones: any two differ by at most 2 (one report) or 4 (two)."""
    spec = CountSpec(2, 2, 2, pooled, 1.0)
    facts = KNOWN_START if public_start else PublicStructure()
    alphabet = alphabet_of(spec, facts)
    for m in (1, 2):
        vectors = []
        for record in [all_episodes(2, 2, 2), *bad_records(spec)]:
            stream = Reports(Budget.pure(1.0), reports=m, structure=facts).open(spec, 512, NoiseSource.seeded(0))
            stream.begin(announced(alphabet, range(alphabet.num_rows)))
            everything = some(alphabet, *range(alphabet.num_rows))
            found = contributions(spec.readable(record), spec, alphabet, everything, m, NoiseSource.seeded(0))
            assert len(found) == len(record)
            vectors += list(found)
            stream.add(record)
            assert stream.release().users == len(record)
        assert not np.array(vectors[-len(bad_records(spec)) :]).any()
        X = np.unique(vectors, axis=0)
        assert np.abs(X[:, None] - X).sum(axis=2).max() == stream.ledger[0].sensitivity == 2 * m


def test_p8_a_bad_record_among_others_changes_nothing_for_them():
    rng = np.random.default_rng(0)
    states, actions = rng.integers(2, size=(10, 3)), rng.integers(2, size=(10, 2))
    wrong = np.where(np.arange(10)[:, None] == 4, 9, states)
    found = []
    for people in (np.delete(states, 4, axis=0), wrong):
        stream = Reports(Budget.pure(math.inf), structure=KNOWN_START).open(tiny(), 10, NoiseSource.seeded(0))
        stream.begin(announced(stream.alphabet, range(stream.alphabet.num_rows)))
        n = len(people)
        stream.add(Episodes(people, actions if n == 10 else np.delete(actions, 4, axis=0), np.ones((n, 2))))
        found.append(stream.release())
    assert np.array_equal(found[0].histogram, found[1].histogram)
    assert (found[0].users, found[1].users) == (9, 10)
