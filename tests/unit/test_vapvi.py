"""Private regressions: exact integers, a joint cost that is met and not crossed, plans against plain solves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from discreet import certificate, offline
from discreet.agents.vapvi import VAPVI
from discreet.data.counting import LoggedData
from discreet.data.logs import LogFormat, table_of
from discreet.envs.linear import two_state_behaviour, two_state_linear
from discreet.envs.rewards import RewardLaw
from discreet.episodes import MDPSimulator
from discreet.moments import PrivateRegression, Target, normalised_features
from discreet.privacy.accounting import Budget, ledger_total
from discreet.privacy.linear import FEATURE_BITS, LinearMoments
from discreet.privacy.noise import NoiseSource

H = 5
LINEAR = two_state_linear(H)
LOG = LogFormat(2, 100, H, early_end="keep")
FREE = Budget.zcdp(math.inf)


def users(n: int, seed: int = 0):
    mdp = LINEAR.to_finite()
    episodes = MDPSimulator(mdp, RewardLaw(), seed).rollout(two_state_behaviour(LINEAR), n)
    return episodes, LoggedData(table_of(episodes), LOG).trajectories()


def opened(n: int, budget=FREE, seed: int = 0, **options):
    return LinearMoments(budget, **options).open(users(n)[1], LOG.spec, 2, NoiseSource.seeded(seed))


def target(bound: float = 3.0) -> Target:
    successor = np.broadcast_to(np.array([-1.25, 1.5]), (2, 100, 2))
    return Target(successor, np.full((2, 100), 0.5), bound)


def test_moments_without_noise_are_the_sums_over_rows():
    episodes, _ = users(300)
    found = opened(300).regress(2, "values", LINEAR.features, [target()])
    phi = np.trunc(LINEAR.features * 2**FEATURE_BITS) / 2**FEATURE_BITS
    M, v = np.zeros((10, 10)), np.zeros(10)
    for i in range(300):
        x = phi[episodes.states[i, 2], episodes.actions[i, 2]]
        M += np.outer(x, x)
        v += x * (0.5 * episodes.rewards[i, 2] + (-1.25, 1.5)[episodes.states[i, 3]])
    assert np.array_equal(found.matrix, M)
    assert found.vectors[0] == pytest.approx(v, abs=1e-9)


@pytest.mark.parametrize("relation", ["replace", "zero-out"])
@pytest.mark.parametrize("theta", [0.5, 1.0, 2.0])
def test_no_pair_of_rows_costs_more_than_a_regression_may_and_some_pair_costs_it(relation, theta):
    rng = np.random.default_rng(0)
    rho, bounds = 0.3, (4.0, 2.0)
    s, sigmas = LinearMoments(Budget.zcdp(1.0), relation, balance=theta).deviations(rho, bounds)

    def cost(x, y, z, w):
        matrix = ((np.outer(x, x) - np.outer(z, z)) ** 2).sum() / (4 * s * s)
        return matrix + sum(((x * a - z * b) ** 2).sum() / (2 * t * t) for a, b, t in zip(y, w, sigmas, strict=True))

    worst = 0.0
    for _ in range(4000):
        x, z = rng.normal(size=(2, 3))
        x, z = x / np.linalg.norm(x), z / np.linalg.norm(z)
        y, w = rng.choice([-1, 1], size=(2, 2)) * bounds
        if rng.random() < 0.3:
            x, y = x * rng.random(), y * rng.random()
        if relation == "zero-out":
            z = np.zeros(3)
        worst = max(worst, cost(x, y, z, w))
    assert worst <= rho
    if relation == "replace":
        k = theta / 2
        x, z = np.array([1.0, 0.0]), np.array([k, math.sqrt(1 - k * k)])
        worst = cost(x, np.array(bounds), z, -np.array(bounds))
    assert worst == pytest.approx(rho, rel=1e-3)


def test_matrix_and_vector_noise_have_the_stated_deviations():
    s, (sigma,) = LinearMoments(Budget.zcdp(0.5)).deviations(0.1, (3.0,))
    above, diagonal, vectors = [], [], []
    for seed in range(6):
        stream, exact = opened(4, Budget.zcdp(0.5), seed), opened(4)
        for h in range(H):
            found = stream.regress(h, "values", LINEAR.features, [target()])
            truth = exact.regress(h, "values", LINEAR.features, [target()])
            assert np.array_equal(found.matrix, found.matrix.T)
            noise = found.matrix - truth.matrix
            above += list(noise[np.triu_indices(10, 1)])
            diagonal += list(np.diag(noise))
            vectors += list(found.vectors[0] - truth.vectors[0])
            assert np.linalg.norm(noise, 2) <= found.matrix_width
    for drawn, deviation in ((above, s), (diagonal, math.sqrt(2) * s), (vectors, sigma)):
        assert stats.kstest(drawn, stats.norm(scale=deviation).cdf).pvalue > 0.01
    for wrong in (0.7, 1.3):
        assert stats.kstest(above, stats.norm(scale=s * wrong).cdf).pvalue < 1e-3


@pytest.mark.parametrize(("variances", "split"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("m", [1, 2])
def test_a_run_spends_its_budget(variances, split, m):
    private = LinearMoments(Budget.zcdp(0.4), variances=variances, split=split, episodes_per_user=m)
    stream = private.open(users(10)[1], LOG.spec, 2, NoiseSource.seeded(0))
    parts = stream.parts()
    assert len(parts) == (2 if split else 1)
    for part in parts.values():
        assert ledger_total(part.entries).rho == pytest.approx(0.4)
    assert stream.guarantee.rho == pytest.approx(0.4)
    noisier = private.deviations(0.1, (1.0,))
    single = LinearMoments(Budget.zcdp(0.4)).deviations(0.1, (1.0,))
    assert noisier[0] == pytest.approx(m * single[0])


def test_split_users_serve_one_regression_only():
    stream = opened(400, variances=True, split=True)
    both = opened(400, variances=True)
    one = [stream.regress(1, part, LINEAR.features, [target()]).matrix for part in ("values", "variances")]
    whole = both.regress(1, "values", LINEAR.features, [target()]).matrix
    assert np.array_equal(one[0] + one[1], whole)
    assert 0.4 < np.trace(one[0]) / np.trace(whole) < 0.6


def test_what_is_not_paid_for_is_refused():
    stream = opened(5, variances=True)
    stream.regress(1, "values", LINEAR.features, [target()])
    for arguments, words in (
        ((1, "values", LINEAR.features, [target()]), "paid for once"),
        ((H, "values", LINEAR.features, [target()]), "do not exist"),
        ((H - 1, "variances", LINEAR.features, [target()]), "nothing varies"),
        ((0, "rewards", LINEAR.features, [target()]), "part is"),
        ((0, "values", 2 * LINEAR.features, [target()]), "longer than 1"),
    ):
        with pytest.raises(ValueError, match=words):
            stream.regress(*arguments)
    with pytest.raises(ValueError, match="no pure epsilon"):
        LinearMoments(Budget.pure(1.0))
    with pytest.raises(TypeError, match="cannot be pickled"):
        stream.__reduce__()


def test_targets_beyond_their_bound_are_clipped():
    wide, narrow = opened(200), opened(200)
    a = wide.regress(0, "values", LINEAR.features, [Target(target().successor, np.zeros((2, 100)), 3.0)])
    b = narrow.regress(0, "values", LINEAR.features, [Target(10 * target().successor, np.zeros((2, 100)), 1.25)])
    assert np.abs(b.vectors[0]).max() <= 1.25 * 200
    assert not np.array_equal(a.vectors[0], b.vectors[0])


class Fixed:
    """Regressions from exact sums of a known list of rows, for plans that can be checked by hand."""

    def __init__(self, phi, rows, horizon):
        self.phi, self.rows, self.horizon, self.num_users, self.num_successors = phi, rows, horizon, 9, phi.shape[0]

    def regress(self, step, part, features, targets):
        M, vectors = np.zeros((features.shape[2],) * 2), [np.zeros(features.shape[2]) for _ in targets]
        for s, a, r, y in self.rows:
            M += np.outer(features[s, a], features[s, a])
            for vector, wanted in zip(vectors, targets, strict=True):
                vector += features[s, a] * (wanted.reward_weight[s, a] * r + wanted.successor[s, a, y])
        return PrivateRegression(M, tuple(vectors), 0.0, tuple(0.0 for _ in targets), 9)


@pytest.mark.parametrize("weighted", [False, True])
def test_plans_against_plain_solves(weighted):
    rng = np.random.default_rng(1)
    S, A, d = 3, 2, 4
    phi = rng.normal(size=(S, A, d))
    phi /= 2 * np.linalg.norm(phi, axis=-1, keepdims=True)
    rows = [(*rng.integers((S, A)), rng.random(), rng.integers(S)) for _ in range(60)]
    plan = VAPVI(phi, weighted, "paper", confidence_scale=0.05).plan(Fixed(phi, rows, 3))
    V = np.zeros(S)
    for h in reversed(range(3)):
        top = 3 - h
        sigma = np.ones((S, A))
        G = np.eye(d) + sum(np.outer(phi[s, a], phi[s, a]) for s, a, _, _ in rows)
        if weighted and h < 2:
            beta = np.linalg.solve(G, sum(phi[s, a] * V[y] ** 2 for s, a, _, y in rows))
            theta = np.linalg.solve(G, sum(phi[s, a] * V[y] for s, a, _, y in rows))
            square, mean = np.clip(phi @ beta, 0, (top - 1) ** 2), np.clip(phi @ theta, 0, top - 1)
            sigma = np.sqrt(np.maximum(1.0, square - mean**2))
        L = np.eye(d) + sum(np.outer(phi[s, a], phi[s, a]) / sigma[s, a] ** 2 for s, a, _, _ in rows)
        w = np.linalg.solve(L, sum(phi[s, a] * (r + V[y]) / sigma[s, a] ** 2 for s, a, r, y in rows))
        width = np.sqrt(np.einsum("sai,ij,saj->sa", phi, np.linalg.inv(L), phi))
        Q = np.clip(phi @ w - 0.05 * math.sqrt(d) * width, 0, top)
        assert plan.quality[h] == pytest.approx(Q)
        V = Q.max(axis=1)


@pytest.mark.parametrize("algorithm", ["dp-pevi", "dp-vapvi"])
def test_fit_from_features_learns_and_verifies(algorithm, tmp_path):
    episodes, _ = users(4000, 1)
    mdp = LINEAR.to_finite()
    found = offline.fit(
        episodes, LOG, Budget.zcdp(20.0), algorithm=algorithm, features=math.sqrt(7) * LINEAR.features, seed=0
    )
    worth = offline.evaluate(found.policy, mdp)
    assert worth["value"] > worth["value_random"] + 0.7 * (worth["value_optimal"] - worth["value_random"])
    assert any("largest norm, 2.64575" in line for line in found.warnings)
    found.save(tmp_path)
    assert certificate.verify(tmp_path, allow_simulation=True).problems == ()
    assert found.certificate["algorithm"]["name"] == algorithm


def test_features_may_be_a_function_and_mistakes_are_refused():
    episodes, _ = users(20)
    named = offline.fit(episodes, LOG, Budget.zcdp(1.0), features=lambda s, a: LINEAR.features[s, a], seed=0)
    table = offline.fit(episodes, LOG, Budget.zcdp(1.0), features=LINEAR.features, seed=0)
    assert np.array_equal(named.policy.actions, table.policy.actions)
    assert "without weights" in named.certificate["algorithm"]["why"]
    phi = LINEAR.features
    for budget, options, words in (
        (Budget.pure(1.0), {"features": phi}, "no pure epsilon"),
        (Budget.zcdp(1.0), {"features": phi[:, :5]}, "features have shape"),
        (Budget.zcdp(1.0), {"algorithm": "dp-vapvi"}, "learns from features"),
        (Budget.zcdp(1.0), {"algorithm": "one-hot", "features": phi}, "does not use features"),
    ):
        with pytest.raises(ValueError, match=words):
            offline.fit(episodes, LOG, budget, seed=0, **options)
    with pytest.raises(ValueError, match="finite numbers"):
        normalised_features(np.full((1, 1, 1), np.nan))
    short = 0.5 * phi
    assert normalised_features(short)[0] is short
