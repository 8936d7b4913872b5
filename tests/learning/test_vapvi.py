"""Private regressions: exact integers, a joint cost that is met and not crossed, plans against plain solves."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from discreet.agents.vapvi import VAPVI, error_factor
from discreet.cli import app
from discreet.envs.linear import two_state_behaviour, two_state_linear
from discreet.envs.rewards import RewardLaw
from discreet.offline import certificate
from discreet.offline import fitting as offline
from discreet.offline.learners import answered
from discreet.people.counting import LoggedData
from discreet.people.episodes import Episodes, MDPSimulator
from discreet.people.logs import LogFormat, table_of
from discreet.policy import Policy
from discreet.privacy.accounting import Budget, ledger_total
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.linear import FEATURE_BITS, LinearMoments, regression_cost
from discreet.releases.regressions import PrivateRegression, Target, normalised_features

H = 5
LINEAR = two_state_linear(H)
LOG = LogFormat(2, 100, H, early_end="keep")
FREE = Budget.zcdp(math.inf)


def users(n: int, seed: int = 0):
    mdp = LINEAR.to_finite()
    episodes = MDPSimulator(mdp, RewardLaw(), seed).rollout(two_state_behaviour(LINEAR), n)
    return episodes, LoggedData(table_of(episodes), LOG).rows()


def opened(n: int, budget=FREE, seed: int = 0, **options):
    return LinearMoments(budget, **options).open(users(n)[1], LOG.spec, 2, NoiseSource.seeded(seed))


def planned(agent: VAPVI, stream):
    """(plan, lower bounds) of an agent whose questions the stream answers."""
    return answered(agent.questions(stream.horizon, stream.num_successors, stream.num_users), stream)


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


def test_f6_split_users_serve_one_regression_only():
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
        return PrivateRegression(M, tuple(vectors), 0.0, 9)


@pytest.mark.parametrize("mode", ["paper", "practical"])
@pytest.mark.parametrize("weighted", [False, True])
def test_plans_against_plain_solves(weighted, mode):
    rng = np.random.default_rng(1)
    S, A, d, steps = 3, 2, 6, 12
    phi = np.linalg.qr(rng.normal(size=(d, d)))[0].reshape(S, A, d)
    drawn = [(*rng.integers((S, A)), rng.random() < 0.85, rng.integers(S)) for _ in range(300)]
    rows = [(s, a, float(s == 0), s if stays else y) for s, a, stays, y in drawn]  # values that vary by more than 1
    c = 1e-4 if mode == "paper" else 0.02
    plan, _ = planned(VAPVI(phi, weighted, mode, confidence_scale=c), Fixed(phi, rows, steps))
    V, used = np.zeros(S), False
    for h in reversed(range(steps)):
        top = steps - h
        sigma = np.ones((S, A))
        G = np.eye(d) + sum(np.outer(phi[s, a], phi[s, a]) for s, a, _, _ in rows)
        if weighted and h < steps - 1:
            middle, half = (0.5 * (V.max() + V.min()), 0.5 * np.ptp(V)) if mode == "practical" else (0.0, 0.0)
            U, shift = V - middle, 0.5 * half**2
            beta = np.linalg.solve(G, sum(phi[s, a] * (U[y] ** 2 - shift) for s, a, _, y in rows))
            theta = np.linalg.solve(G, sum(phi[s, a] * U[y] for s, a, _, y in rows))
            bounds = (half**2, -half, half) if mode == "practical" else ((top - 1) ** 2, 0, top - 1)
            square, mean = np.clip(phi @ beta + shift, 0, bounds[0]), np.clip(phi @ theta, *bounds[1:])
            sigma = np.sqrt(np.maximum(1.0, square - mean**2))
            used |= bool((sigma > 1).any())
        centre = 0.5 * (V.max() + V.min() + 1) if mode == "practical" else 0.0
        L = np.eye(d) + sum(np.outer(phi[s, a], phi[s, a]) / sigma[s, a] ** 2 for s, a, _, _ in rows)
        w = np.linalg.solve(L, sum(phi[s, a] * (r + V[y] - centre) / sigma[s, a] ** 2 for s, a, r, y in rows))
        width = np.sqrt(np.einsum("sai,ij,saj->sa", phi, np.linalg.inv(L), phi))
        theory = mode == "paper" and not weighted
        printed = d * steps * math.sqrt(math.log(2 * d * steps * 9 / 0.1)) if theory else math.sqrt(d)
        Q = np.clip(phi @ w + centre - c * printed * width, 0, top)
        assert plan.quality[h] == pytest.approx(Q, abs=1e-9)
        V = Q.max(axis=1)
    assert used == weighted
    assert V.max() > 0


def test_noisy_matrices_are_shifted_or_floored():
    noisy = PrivateRegression(np.diag([5.0, -3.0]), (np.zeros(2),), 4.0, 9)
    assert np.array_equal(VAPVI(ONE_HOT, mode="paper")._positive(noisy), np.diag([10.0, 2.0]))
    assert VAPVI(ONE_HOT)._positive(noisy) == pytest.approx(np.diag([6.0, 2.0]))
    worse = PrivateRegression(np.diag([5.0, -30.0]), (np.zeros(2),), 4.0, 9)
    assert np.linalg.eigvalsh(VAPVI(ONE_HOT, mode="paper")._positive(worse))[0] == pytest.approx(2.0)


@pytest.mark.parametrize("twin", ["pevi", "vapvi"])
@pytest.mark.parametrize("mode", ["paper", "practical"])
def test_twins_are_private_forms_without_noise(twin, mode, tmp_path):
    episodes, _ = users(300)
    options = {"features": LINEAR.features, "mode": mode}
    plain = offline.fit(episodes, LOG, algorithm=twin, **options)
    free = offline.fit(episodes, LOG, FREE, algorithm=f"dp-{twin}", **options)
    assert np.array_equal(plain.policy.values, free.policy.values)
    assert plain.certificate["guarantee"]["sentence"] == "no privacy"
    plain.save(tmp_path)
    assert certificate.verify(tmp_path).problems == (certificate.NOT_PRIVATE,)


def test_centred_targets_carry_noise_for_what_is_unknown_only():
    episodes, _ = users(2000)
    bounds = {}
    for mode in ("paper", "practical"):
        found = offline.fit(
            episodes, LOG, Budget.zcdp(20.0), algorithm="dp-pevi", features=LINEAR.features, mode=mode, seed=0
        )
        bounds[mode] = {line["step"]: line["clipped_at"][0] for line in found.certificate["regressions"]}
    assert bounds["paper"] == {h: float(H - h) for h in range(H)}
    values = np.vstack([found.policy.values, np.zeros((1, 2))])
    for h in range(H):
        assert bounds["practical"][h] == pytest.approx(0.5 * (np.ptp(values[h + 1]) + 1.0))
    assert bounds["practical"][0] < 0.3 * bounds["paper"][0]


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


# What a certificate of regressions says -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"neighbours": "zero-out"}, {"split": True}, {"m": 3}, {"mode": "paper"}])
def test_the_cost_of_regressions_is_derived_from_their_noise(options, tmp_path):
    options = dict(options)
    log = LogFormat(2, 100, H, early_end="keep", episodes_per_user=options.pop("m", 1))
    budget = Budget.approximate(1.0, 1e-6)
    found = offline.fit(users(50)[0], log, budget, algorithm="dp-vapvi", features=LINEAR.features, seed=0, **options)
    found.save(tmp_path)
    assert certificate.verify(tmp_path, allow_simulation=True).problems == ()
    assert len(found.certificate["regressions"]) == 2 * H - 1
    spent = {}
    for line in found.certificate["regressions"]:
        cost = regression_cost(
            options.get("neighbours", "replace"),
            line["matrix_deviation"],
            line["clipped_at"],
            line["vector_deviations"],
            log.episodes_per_user,
        )
        spent[line["statistic"]] = spent.get(line["statistic"], 0.0) + cost
    total = max(spent.values()) if options.get("split") else sum(spent.values())
    assert total == pytest.approx(found.certificate["guarantee"]["rho"], rel=1e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["ledger"][0].update(sensitivity=0.5 * d["ledger"][0]["sensitivity"]), "one user can move"),
        (lambda d: d["regressions"][0].update(matrix_deviation=1.0), "do not cost the same"),
        (lambda d: d["regressions"][3].update(clipped_at=[9.0]), "do not cost the same"),
        (lambda d: d["regressions"][3]["vector_deviations"].__setitem__(0, 1.0), "do not cost the same"),
        (lambda d: d["guarantee"].update(neighbours="zero-out"), "one user can move"),
        (lambda d: d["unit"].update(episodes_per_user=2), "one user can move"),
        (lambda d: d["ledger"][0].update(uses=1), "one for every step"),
        (lambda d: d["regressions"].append(d["regressions"][0]), "one for every step"),
        (lambda d: d["regressions"].pop(0), "one for every step"),
        (lambda d: d.pop("regressions"), "no 'regressions'"),
        (lambda d: d["ledger"][0].update(statistic="regressions of mood"), "lists something else"),
    ],
)
def test_altered_regressions_are_found(change, words, tmp_path):
    offline.fit(users(50)[0], LOG, Budget.zcdp(1.0), features=LINEAR.features).save(tmp_path)
    path = tmp_path / certificate.JSON
    document = json.loads(path.read_text())
    assert certificate.verify(tmp_path).consistent
    change(document)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    (tmp_path / certificate.HTML).write_text(certificate.page(document, Policy.load(tmp_path)))
    digests = {name: certificate.digest(tmp_path / name) for name in certificate.FILES}
    (tmp_path / certificate.DIGESTS).write_text(json.dumps(digests))
    assert any(words in problem for problem in certificate.verify(tmp_path).problems)
    assert CliRunner().invoke(app, ["verify", str(tmp_path)]).exit_code == 1


# What a policy is worth ---------------------------------------------------------------------------------------------


def lottery(n: int, rng):
    """Two states and actions, H = 2: action 1 leads to state 1 more often, which pays; linear in one-hot features."""
    state = np.zeros((n, 3), dtype=np.int64)
    action = rng.integers(2, size=(n, 2))
    for h in range(2):
        state[:, h + 1] = rng.random(n) < np.array([[0.2, 0.9], [0.5, 0.6]])[state[:, h], action[:, h]]
    paid = rng.random((n, 2)) < np.array([[0.1, 0.2], [0.7, 0.9]])[state[:, :2], action]
    return Episodes(state, action, paid.astype(float))


ONE_HOT = np.eye(4).reshape(2, 2, 4)
BEST = 0.2 + 0.9 * 0.9 + 0.1 * 0.2  # from state 0: action 1 twice


def moments(n: int, seed: int, budget: Budget, **options):
    log = LogFormat(2, 2, 2, early_end="keep")
    data = LoggedData(table_of(lottery(n, np.random.default_rng(seed))), log).rows()
    return LinearMoments(budget, **options).open(data, log.spec, 2, NoiseSource.seeded(seed))


@pytest.mark.parametrize("mode", ["practical", "paper"])
def test_lower_values_of_regressions_hold_and_come_close(mode):
    agent = VAPVI(ONE_HOT, mode=mode, confidence_scale=0.0)
    for n, budget, least in ((400, FREE, 0.0), (200_000, FREE, 0.8), (200_000, Budget.zcdp(5.0), 0.5)):
        for seed in range(3):
            plan, lower = planned(agent, moments(n, seed, budget))
            assert (lower[0] <= BEST + 0.6).all()
            assert least * BEST <= lower[0, 0] <= BEST
            assert (lower <= plan.value[:2] + 1e-9).all() or budget is not FREE
    noisy = planned(agent, moments(400, 0, Budget.zcdp(0.01)))[1]
    assert not noisy.any()


def test_the_error_factor_covers_every_error():
    """Against exact means: the largest error over seeds, in units of its width, stays below the factor."""
    V = np.array([0.3, 1.1])
    truth = np.array([0.1, 0.2, 0.7, 0.9]) + (1 - (p := np.array([0.2, 0.9, 0.5, 0.6]))) * V[0] + p * V[1]
    goal = Target(np.broadcast_to(V, (2, 2, 2)), np.ones((2, 2)), 2.1)
    largest = []
    for seed in range(30):
        found = moments(2000, seed, Budget.zcdp(0.5)).regress(1, "values", ONE_HOT, [goal])
        positive = found.matrix + (1.0 + found.matrix_width) * np.eye(4)
        error = np.linalg.solve(positive, found.vectors[0]) - truth
        width = np.sqrt(np.diag(np.linalg.inv(positive)))
        factor = error_factor(found, positive, 1.0, math.sqrt(4) * 2.1, V, 0.05 / 8)
        largest.append(np.abs(error / width).max() / factor)
    assert 0.05 < max(largest) < 1.0
    exact = moments(2000, 0, FREE).regress(1, "values", ONE_HOT, [goal])
    d, n = 4, 2000
    volume = d * math.log(1 + n / d)
    drawn, followed = (math.sqrt(volume + 2 * math.log(k * 160)) for k in (1, 4))
    by_hand = 4.2 + 0.5 * (drawn + 0.8 * followed) * math.sqrt(1.0)
    rounded = math.sqrt(n) * (2 * 2.0**-12 * 4.2 + 2.0**-15 + 2.0**-20)
    assert error_factor(exact, exact.matrix + np.eye(4), 1.0, 4.2, V, 0.05 / 8) == pytest.approx(
        4.2 / math.sqrt(1 + np.diag(exact.matrix).min()) + by_hand - 4.2 + rounded, rel=1e-6
    )


def test_weighted_steps_have_no_lower_value():
    """Two sticky states, of which one pays: values differ so much that weights differ from 1, except at the end."""
    n, steps, rng = 20_000, 12, np.random.default_rng(0)
    states = np.cumsum(rng.random((n, steps + 1)) < 0.06, axis=1) % 2
    sticky = Episodes(states, rng.integers(2, size=(n, steps)), states[:, :-1].astype(float))
    log = LogFormat(2, 2, steps, early_end="keep")
    lower = {}
    for weighted in (False, True):
        data = LoggedData(table_of(sticky), log).rows()
        stream = LinearMoments(FREE, variances=weighted).open(data, log.spec, 2, NoiseSource.seeded(0))
        lower[weighted] = planned(VAPVI(ONE_HOT, weighted), stream)[1]
    assert np.array_equal(lower[True][-1], lower[False][-1])
    assert lower[True][-1, 1] > 0.5
    assert (lower[False][:-1, 1] > lower[False][-1, 1]).any()
    assert not lower[True][0].any()
    for algorithm in ("pevi", "vapvi"):
        found = offline.fit(sticky, log, algorithm=algorithm, features=ONE_HOT, initial=np.array([0.5, 0.5]))
        estimate = found.certificate["estimate"]
        assert ("were weighted" in estimate["values_are"]) == (algorithm == "vapvi")
        assert estimate["width"] == pytest.approx(estimate["value_cautious"] - estimate["value_lower"])


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


def test_a_log_in_which_nothing_is_paid_has_no_variances_and_verifies(tmp_path):
    nothing = Episodes(np.zeros((20, 3), int), np.zeros((20, 2), int), np.zeros((20, 2)))
    log = LogFormat(1, 1, 2, early_end="keep")
    found = offline.fit(nothing, log, Budget.zcdp(1.0), algorithm="dp-vapvi", features=np.ones((1, 1, 1)))
    statistics = [line["statistic"] for line in found.certificate["regressions"]]
    assert statistics == ["regressions of values"] * 2
    found.save(tmp_path)
    assert certificate.verify(tmp_path).problems == ()
