"""The audit itself: its bounds, its games, and what it accepts."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import Budget
from discreet.privacy.audit.attacks import MECHANISMS, Settings, audit, truncated_sums
from discreet.privacy.audit.games import (
    Game,
    StackedSums,
    audited,
    counts_game,
    epsilon_bound,
    leaked,
    measurements,
)
from discreet.privacy.noise import DiscreteLaplace, NoiseSource
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.sums.tree import Tree
from discreet.privacy.trust.local import LocalLaplace
from oracles_audit import clopper_pearson, intervals, randomised_response_epsilon, single_scores, worst_shift_ratio

# Bounds -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "alarms", "trials"), [(40, 7, 100), (1, 0, 50), (900, 300, 1000), (100, 3, 100)])
@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_bound_uses_both_ends_of_the_intervals(hits: int, alarms: int, trials: int, delta: float) -> None:
    low, _ = clopper_pearson(hits, trials, 0.025)
    _, high = clopper_pearson(alarms, trials, 0.025)
    expected = math.log(max((low - delta) / high, 1.0))
    found = epsilon_bound(np.array([hits]), np.array([alarms]), trials, 0.95, delta)[0]
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_no_hits_or_only_alarms_show_nothing() -> None:
    assert epsilon_bound(np.array([0, 100, 50]), np.array([0, 100, 100]), 100, 0.99).tolist() == [0.0, 0.0, 0.0]


def response_game(p: float, delta: float = 0.0, secret: float = 0.0) -> Game:
    """Tells the world truthfully with probability p; with probability `secret` it says so aloud."""

    def views(world: int, trials: int, noise: NoiseSource) -> np.ndarray:
        u = noise.words(2 * trials).reshape(trials, 2) / 2.0**64
        answer = np.where(u[:, 0] < p, world, 1 - world)
        return np.stack([answer, np.where(u[:, 1] < secret, 2 * world - 1, 0)], axis=1).astype(float)

    def scores(view: np.ndarray) -> np.ndarray:
        return view[:, :1] + 10 * view[:, 1:]

    return Game(randomised_response_epsilon(p), views, scores, delta=delta)


def test_a_true_claim_is_refuted_as_rarely_as_promised_and_the_bound_is_close() -> None:
    game = response_game(0.75)
    bounds = np.array([leaked(game, 2000, confidence=0.8, seed=seed) for seed in range(60)])
    wrong = int((bounds > math.log(3)).sum())
    assert wrong <= stats.binom.isf(1e-3, 60, 0.2)
    assert np.median(bounds) > math.log(3) - 0.25
    shifted = np.array([leaked(response_game(0.85), 2000, confidence=0.8, seed=seed) for seed in range(20)])
    assert (shifted > math.log(3)).mean() > 0.9


def test_events_are_not_judged_on_the_trials_that_chose_them() -> None:
    """Twenty scores that know nothing of the world: the luckiest one must not count as evidence."""

    def views(world: int, trials: int, noise: NoiseSource) -> np.ndarray:
        return noise.words(20 * trials).reshape(trials, 20) / 2.0**64

    game = Game(0.01, views, lambda view: view)
    bounds = np.array([leaked(game, 1000, confidence=0.8, seed=seed) for seed in range(30)])
    assert (bounds > 0).sum() <= stats.binom.isf(1e-3, 30, 0.2)


def test_delta_pays_for_rare_disasters_and_for_nothing_else() -> None:
    aloud = response_game(0.6, delta=0.0, secret=0.02)
    assert leaked(aloud, 20_000) > 1.5  # pure DP is broken: ln(0.6/0.4) = 0.41
    covered = response_game(0.6, delta=0.021, secret=0.02)
    assert leaked(covered, 20_000) < 0.45
    short = response_game(0.6, delta=0.005, secret=0.02)
    assert leaked(short, 20_000) > 1.0


def test_refutation_compares_with_the_claim_beyond_rounding() -> None:
    game = response_game(0.75)
    assert not audited("x", game, 1000).refuted
    assert audited("x", Game(0.5, game.views, game.scores), 4000).refuted
    assert audited("x", Game(2.0, game.views, game.scores, exact=2.0 + 1e-8), 1000).refuted
    assert not audited("x", Game(2.0, game.views, game.scores, exact=2.0 + 1e-10), 1000).refuted


# Games --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("episodes", [2, 3, 4, 5, 8, 9, 16, 17, 33])
def test_tree_measurements_are_the_nodes_of_the_binary_mechanism(episodes: int) -> None:
    found = measurements("tree", episodes)
    assert set(found) == intervals(episodes - 1)
    depth = [sum(base <= user < t for base, t in found) for user in range(episodes - 1)]
    assert max(depth) == depth[0] == (episodes - 1).bit_length()


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_exact_values_match_brute_force_over_outputs(horizon: int, epsilon: float) -> None:
    s = Settings(epsilon, horizon=horizon)
    levels = 2  # K = 4
    expected = {
        "local": 6 * worst_shift_ratio(6 * horizon / epsilon, horizon),
        "one-shot": 6 * worst_shift_ratio(6 * horizon / epsilon, horizon),
        "epochs": 6 * worst_shift_ratio(6 * horizon / epsilon, horizon),
        "tree": levels * 6 * worst_shift_ratio(6 * horizon * levels / epsilon, horizon),
        "paper-local": 6 * worst_shift_ratio(3 * horizon / epsilon, horizon),
        "paper-tree": levels * 6 * worst_shift_ratio(3 * horizon * 2 / epsilon, horizon),
        "paper-losses": 4 * horizon * worst_shift_ratio(horizon / epsilon, 1),
    }
    for name, value in expected.items():
        assert MECHANISMS[name].game(s).exact == pytest.approx(value, rel=1e-8), name
    for name in ("local", "one-shot", "epochs", "tree"):
        exact = MECHANISMS[name].game(s).exact
        assert exact == pytest.approx(epsilon, rel=1e-9)
        assert exact <= epsilon
    assert expected["paper-local"] == pytest.approx(2 * epsilon, rel=1e-9)
    assert expected["paper-tree"] == pytest.approx(2 * epsilon, rel=1e-9)
    assert expected["paper-losses"] == pytest.approx(4 * epsilon, rel=1e-9)


def test_raw_count_truncation_by_hand() -> None:
    """B = 0, 10, 14, 17, 20: with user 1 in the cell everybody is kept, without her only user 2 is."""
    thresholds, rewards = np.array([0, 10, 14, 17, 20]), np.array([10, 10, 14, 17])
    assert truncated_sums(np.array([0, 0, 0, 0]), rewards, thresholds).tolist() == [51, 0]
    assert truncated_sums(np.array([1, 0, 0, 0]), rewards, thresholds).tolist() == [10, 10]


@pytest.mark.parametrize(("episodes", "at_least"), [(4, 1.28), (16, 4.5), (64, 20.0)])
def test_f9_truncation_leaks_in_proportion_to_the_number_of_users(episodes: int, at_least: float) -> None:
    exact = MECHANISMS["paper-truncation"].game(Settings(1.0, episodes=episodes)).exact
    assert exact is not None
    assert exact > at_least
    # her own reward and users 3..K in one cell: √1 + √2 + … + √(K−1); her own reward in the other: 1; scale 2·√K
    root = np.sqrt(np.arange(1, episodes))
    assert exact == pytest.approx((root.sum() + 1) / (2 * math.sqrt(episodes)), rel=2e-3)


@pytest.mark.parametrize(
    ("privatizer", "plan"),
    [(Tree(Budget.pure(2.0)), "tree"), (Epochs(Budget.pure(2.0)), "epochs"), (OneShot(Budget.pure(2.0)), "one-shot")],
)
def test_stacked_games_have_the_law_of_single_streams(privatizer: object, plan: str) -> None:
    """Copies in blocks of actions against one real stream per round, fed with real episodes."""
    game = counts_game(privatizer, 2.0, plan, episodes=3)
    worlds = [
        Episodes(np.array([[0, 0]]), np.array([[0]]), np.array([[1.0]])),
        Episodes(np.array([[1, 1]]), np.array([[1]]), np.array([[1.0]])),
    ]
    probe = privatizer.open(CountSpec(2, 2, 1, True, 1.0), 3, NoiseSource.secure())
    scales = [entry.scale for entry in probe.ledger]
    for world in (0, 1):
        stacked = game.scores(game.views(world, 4000, NoiseSource.seeded(5)))[:, 0]
        single = np.array(list(single_scores(privatizer, plan, 3, worlds, world, 400, scales)))
        assert stats.ks_2samp(np.round(stacked, 6), np.round(single, 6)).pvalue > 1e-3
        assert stats.ks_2samp(np.round(-stacked, 6), np.round(single, 6)).pvalue < 1e-3


@pytest.mark.parametrize(
    ("privatizer", "plan", "victim"),
    [
        (Tree(Budget.pure(3.0)), "tree", 0),
        (Tree(Budget.pure(3.0)), "tree", 2),
        (Epochs(Budget.pure(3.0)), "epochs", 0),
        (Epochs(Budget.pure(3.0)), "epochs", 3),
        (OneShot(Budget.pure(3.0)), "one-shot", 1),
        (OneShot(Budget.approximate(6.0, 1e-6)), "one-shot", 0),
    ],
)
def test_scores_are_likelihood_ratios(privatizer: object, plan: str, victim: int) -> None:
    """E₁ exp(−ln(p₁/p₀)) = 1 = E₀ exp(ln(p₁/p₀)), for these and for no other multiple or sum."""
    game = counts_game(privatizer, 3.0, plan, victim=victim)
    for world, sign in ((0, 1.0), (1, -1.0)):
        score = game.scores(game.views(world, 40_000, NoiseSource.seeded(8)))[:, 0]
        weights = np.exp(sign * score)
        assert abs(weights.mean() - 1.0) < 4.5 * weights.std() / 200
        assert abs(np.exp(0.8 * sign * score).mean() - 1.0) > 4.5 * weights.std() / 200


def test_f16_later_users_react_to_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    original = StackedSums.add

    def recorded(self: StackedSums, counts: Counts) -> int:
        visits = counts.visits.reshape(2, -1, 2)
        taken.append(visits[1, :, 1].copy())  # 1 where the copy's user takes the second walk
        return original(self, counts)

    monkeypatch.setattr(StackedSums, "add", recorded)
    counts_game(Tree(Budget.pure(9.0)), 9.0, "tree", episodes=4).views(0, 4000, NoiseSource.seeded(1))
    first, second, third = taken
    assert first.sum() == 0
    # After one user on the first walk and noise of scale 4/3 on both cells, the second is released as visited less
    # with probability P(X − Y > −1), X and Y two noises.
    x = np.arange(-80, 81)
    p = DiscreteLaplace(4 / 3).pmf(x)
    less = float((p[:, None] * p[None, :])[x[:, None] - x[None, :] > -1].sum())
    assert second.mean() == pytest.approx(less, abs=4.5 * 0.5 / math.sqrt(4000))
    assert 0.05 < (second != third).mean() < 0.95


def test_a_game_without_the_victim_or_without_sums_is_refused() -> None:
    with pytest.raises(ValueError, match="more episodes"):
        counts_game(Tree(Budget.pure(1.0)), 1.0, "tree", episodes=1)
    game = counts_game(LocalLaplace(Budget.pure(1.0)), 1.0, "one-shot")
    with pytest.raises(TypeError, match="LocalCounterStream"):
        game.views(0, 10, NoiseSource.secure())


# The front door -----------------------------------------------------------------------------------------------------


def test_results_are_json_and_reproducible() -> None:
    first, second = (audit("local", 1.0, 4000, seed=3) for _ in range(2))
    assert first == second
    message = json.loads(json.dumps(first.to_json()))
    assert list(message) == ["mechanism", "claimed", "lower_bound", "confidence", "exact", "refuted"]
    assert message["confidence"] == 0.999
    assert message["refuted"] is False
    assert audit("local", 1.0, 4000, seed=4).lower_bound != first.lower_bound


@pytest.mark.parametrize(
    ("wrong", "near"), [("papr-local", "paper-local"), ("trees", "tree"), ("oneshot", "one-shot"), ("", "local")]
)
def test_an_unknown_name_is_met_with_the_nearest_one(wrong: str, near: str) -> None:
    with pytest.raises(ValueError, match="no mechanism") as caught:
        audit(wrong, 1.0, 1000)
    suggestion = str(caught.value).split("'")[-2]
    assert suggestion in MECHANISMS
    if wrong:
        assert suggestion == near


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"trials": 99},
        {"confidence": 1.0},
        {"delta": 1.0},
        {"horizon": 0},
        {"episodes": 0},
        {"users": 0},
        {"states": 1, "actions": 1},
        {"states": 0},
    ],
)
def test_meaningless_settings_are_refused(settings: dict) -> None:
    with pytest.raises(ValueError):
        audit("local", **{"epsilon": 1.0, "trials": 1000, **settings})


def test_every_mechanism_has_a_description_and_one_cell_per_direction_is_enough() -> None:
    for name, mechanism in MECHANISMS.items():
        assert mechanism.description
        for states, actions in ((1, 2), (2, 1)):
            result = audit(name, 1.0, 400, states=states, actions=actions)
            assert result.lower_bound <= (result.exact or result.claimed) + 0.3
