"""The theorems as numbers: values by hand, how they grow, what rewards in other units do, and the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from discreet import catalog, theory
from discreet.cli import app
from discreet.envs import linear, make, spec, tabular
from discreet.mdp import FiniteMDP
from discreet.people.counts import CountSpec
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.tree import Tree
from discreet.problem import Moments
from discreet.runs import bounds
from discreet.runs.experiment import Experiment, run
from discreet.theory import Coverage, Errors, Facts, Features

SMALL = Facts(2, 3, 4, 100, epsilon=0.5)  # T = 400
HEAVY = replace(SMALL, moments=Moments(0.5, 2.0, 0.7))


def value(theorem: theory.Theorem, facts: Facts) -> float:
    return theorem(facts).value


# By hand ------------------------------------------------------------------------------------------------------------


def test_r10_the_bounds_of_private_value_iteration():
    """√(2·3·16·400) = 195.96; 4·3·64/½ = 1536; 4·3·√(1024·400)/½ = 15360."""
    local = replace(SMALL, model="local")
    assert value(theory.dp_ucbvi_private, SMALL) == pytest.approx(195.9592 + 1536, abs=1e-4)
    assert value(theory.dp_ucbvi_private, local) == pytest.approx(195.9592 + 15360, abs=1e-4)
    assert value(theory.private_ucb_vi, SMALL) == pytest.approx(391.9184 + 1536, abs=1e-4)
    assert value(theory.private_ucb_po, local) == pytest.approx(math.sqrt(4 * 3 * 64 * 400) + 15360)
    assert theory.dp_ucbvi_private(SMALL).trivial == 400
    assert theory.dp_ucbvi_private(local).theorem == "[QW23] Thm. 5.7"


def test_r10_the_constants_of_the_proof_are_those_of_lemma_c9():
    """ι = ln(30·4·2·3·400/0.1) = ln 2 880 000 = 14.8733; E = 10."""
    facts = replace(SMALL, errors=Errors(counts=10.0))
    iota = 14.873307
    expected = 1000 * (195.95918 * iota + 4 * 3 * 16 * 10 * iota**2 + 4 * 3 * 64 * iota**2)
    assert value(theory.dp_ucbvi_proved, facts) == pytest.approx(expected, rel=1e-6)
    assert value(theory.dp_ucbvi, facts) == pytest.approx(195.95918 + 1920, rel=1e-6)
    assert value(theory.dp_ucbvi, SMALL) == pytest.approx(value(theory.dp_ucbvi_private, SMALL))
    assert "in force" in theory.dp_ucbvi(facts).notes[0]
    assert "in force" not in theory.dp_ucbvi(SMALL).notes[0]


def test_r10_the_lower_bounds_for_bounded_rewards():
    assert value(theory.no_learner, SMALL) == pytest.approx(195.95918)
    joint = 4 * math.sqrt(600) + 2 * 3 * 4 * math.log(100) / 0.5
    assert value(theory.no_private_learner, SMALL) == pytest.approx(joint)
    local = replace(SMALL, model="local")
    assert value(theory.no_private_learner, local) == pytest.approx(4 * math.sqrt(600) / 0.6487213, rel=1e-6)
    assert value(theory.no_private_learner, replace(local, epsilon=3.0)) == pytest.approx(4 * math.sqrt(600))


def test_r10_the_bounds_for_heavy_tails():
    """v = ½: u^{2/3} = 2^{2/3}; (2·3·16/½)^{1/3}·400^{2/3}; locally (2·3·64/¼)^{1/6}·400^{5/6}."""
    tail = 2 ** (2 / 3) * 192 ** (1 / 3) * 400 ** (2 / 3)
    first, price = 0.7 * math.sqrt(2 * 3 * 64 * 400), 0.7 * 1536
    assert value(theory.heavy_ucbvi, HEAVY) == pytest.approx(first + price + tail)
    assert value(theory.heavy_ucbpo, HEAVY) == pytest.approx(math.sqrt(2) * first + price + tail)
    local = replace(HEAVY, model="local")
    tail = 2 ** (2 / 3) * 1536 ** (1 / 6) * 400 ** (5 / 6)
    assert value(theory.heavy_ucbvi, local) == pytest.approx(first + 0.7 * 15360 + tail)
    assert theory.heavy_ucbvi(HEAVY).trivial == pytest.approx(2 * 0.7 * 400)
    assert theory.heavy_ucbpo(local).theorem == "[WZCW23] Thm. 6"


def test_the_tail_term_of_one_step_is_the_lower_bound():
    """With H = 1 the upper bound's last term is the lower bound of the same theorem's setting, S and all."""
    facts = replace(HEAVY, horizon=1)
    assert theory.heavy_tail_term(facts).value == pytest.approx(value(theory.no_heavy_learner, facts))
    two = replace(HEAVY, horizon=2)
    ratio = theory.heavy_tail_term(two).value / value(theory.no_heavy_learner, two)
    assert ratio == pytest.approx(2 ** (2 * (0.5 / 1.5) + 1 / 1.5))


def test_r10_the_local_lower_bound_that_the_proof_leaves():
    """L = 4, A = 2, K = 1000, ε = ½, v = 1: γ² = 8/8000; ½·√0.001·1000·(1 − ⅛ − (e^½ − 1)·√(2/8)) = 8.706."""
    facts = Facts(9, 2, 3, 1000, 0.5, "local", moments=Moments(1.0, 1.0, 0.1), leaves=4)
    assert value(theory.no_heavy_learner_proved, facts) == pytest.approx(8.706, abs=1e-3)
    assert value(theory.no_heavy_learner, facts) == pytest.approx(math.sqrt(18 / 0.25 * 1000))
    assert theory.no_heavy_learner_proved(replace(facts, epsilon=20.0)).vacuous
    assert theory.local_leaves(replace(facts, leaves=None)) == 3.5


def test_r10_the_joint_lower_bound_at_the_printed_gap_is_nothing_and_at_the_best_one_something():
    """n = 4, A = 3, K = 8·10⁴, ε = ½, v = 1: printed Δ = √(8/40000), which leaves e^{−60} of KΔ/16.

    The best gap solves 60·ε(K/n)Δ²/(A−1) = ½, that is Δ² = ½/(60·5000).
    """
    facts = Facts(6, 3, 1, 80_000, 0.5, moments=Moments(1.0, 1.0, 0.05))
    assert theory.printed_joint_gap(facts) == pytest.approx(math.sqrt(0.0002))
    printed = theory.joint_lower_bound(facts, theory.printed_joint_gap(facts))
    assert printed == pytest.approx(5000 * math.sqrt(0.0002) * math.exp(-60))
    best = theory.best_joint_gap(facts)
    assert best == pytest.approx(math.sqrt(0.5 / 300_000))
    assert value(theory.no_heavy_learner_proved, facts) == pytest.approx(5000 * best * math.exp(-0.5))
    around = [theory.joint_lower_bound(facts, best * factor) for factor in (0.9, 1.0, 1.1)]
    assert max(around) == around[1]
    assert theory.printed_joint_gap(facts) == pytest.approx(tabular.heavy_joint_gap(4, 3, 80_000, 0.5, 1.0))


def test_r10_the_bounds_for_adversarial_losses():
    """X = 9, A = 2, H = 3, K = 400, C_M = 5: 3·5·20 = 300; X²AH²/ε = 81·2·9 = 1458; AH√(X³K) = 6·540 = 3240."""
    facts = Facts(4, 2, 3, 400, positions=9, support=5.0)
    assert value(theory.uc_o_reps_private, facts) == pytest.approx(300 + 1458)
    assert value(theory.uob_lbps_private, facts) == pytest.approx(300 + 6 * math.sqrt(729 * 400))
    local = replace(facts, model="local")
    assert value(theory.uc_o_reps_private, local) == pytest.approx(300 + 1458 * 20)
    assert value(theory.uob_lbps_private, local) == pytest.approx(300 + 6561 * 2 * 9 * 20)
    forced = replace(facts, errors=Errors(counts=10.0, loss_range=7.0, losses=2.0))
    assert value(theory.uc_o_reps, forced) == pytest.approx(300 + 3 * 81 * 2 * 10 + 21)
    assert value(theory.uob_lbps, forced) == pytest.approx(300 + 3 * 6561 * 2 * 10 + 2 * 2 * math.sqrt(729 * 400))
    assert value(theory.uc_o_reps_regularised, forced) == pytest.approx(6 * math.sqrt(400 * math.log(6)) + 21)
    assert value(theory.no_adversarial_learner, facts) == pytest.approx(math.sqrt(9 * 2 * 3 * 400))
    assert value(theory.no_bandit_learner, facts) == pytest.approx(3 * math.sqrt(9 * 2 * 400))
    assert theory.printed_loss_error(facts) == pytest.approx(9 * 2 * math.log(400))


def test_r11_the_local_theorem_says_that_its_assumption_fails():
    notes = theory.uc_o_reps_private(replace(SMALL, model="local")).notes
    assert any("Assumption 3.2 fails" in each for each in notes)
    assert not any("Assumption 3.2" in each for each in theory.uc_o_reps_private(SMALL).notes)


def test_r10_the_bounds_of_policy_elimination():
    """S = 2, A = 2, H = 2: √(32·4·2·K) = 16√K; 8·4·64/ε. The sum of Eq. 29 at K = 20: stages of 2, 4 and 4."""
    facts = Facts(2, 2, 2, 400, model="shuffle")
    assert value(theory.sdp_pe_private, facts) == pytest.approx(320 + 2048)
    assert value(theory.sdp_pe, replace(facts, errors=Errors(counts=10.0))) == pytest.approx(320 + 8 * 4 * 32 * 10)
    few = replace(facts, episodes=20, errors=Errors(counts=3.0))
    iota = math.log(2 * 2 * 2 * 20 / 0.1)
    learning = 8 * 4 * math.sqrt(256 * iota / 2) + 8 * 4 * math.sqrt(256 * iota / 4)
    noise = 8 * 4 * 1024 * 3 * iota * (1 / 2 + 1 / 4)
    assert value(theory.sdp_pe_summed, few) == pytest.approx(8 + learning + noise)
    assert value(theory.no_shuffle_learner, facts) == pytest.approx(math.sqrt(8 * 4 * 400))


def test_r10_the_offline_bounds():
    """H = 2, S = 3, A = 2, n = 400, β = 0.12: ι = ln 100; E = 6, d̄_m = 0.1: (8 + 12·6)/40 = 2."""
    facts = Facts(3, 2, 2, 400, beta=0.12, rho=0.5, coverage=Coverage(0.1, 0.3, 0.8), errors=Errors(counts=6.0))
    main = 4 * math.sqrt(2) * 0.3 * math.sqrt(math.log(100) / 400)
    assert value(theory.dp_apvi, facts) == pytest.approx(main + 2.0)
    assert value(theory.dp_apvi_hoeffding, facts) == pytest.approx(0.8 / 20 + 72 / 40)
    assert theory.dp_apvi(facts).trivial == 2
    assert theory.dp_apvi_burn_in(facts) == pytest.approx(6 * math.log(100) / 0.1)
    assert theory.dp_apvi(facts).holds is True
    assert theory.dp_apvi(replace(facts, episodes=200)).holds is False
    printed = replace(facts, errors=Errors())
    assert theory.printed_offline_error(printed) == pytest.approx(
        4 * math.sqrt(2 * math.log(4 * 2 * 9 * 2 / 0.12) / 0.5)
    )
    assert theory.printed_offline_error(replace(printed, rho=None)) == 2.0


def test_r10_the_linear_bound():
    """d = 4, H = 2, ρ = ½, κ = ¼, K = 100: L, E and D by their formulas."""
    facts = Facts(2, 2, 2, 100, rho=0.5, features=Features(4, 0, 0.25, lambda users: 20 / math.sqrt(users)))
    L = 4 * math.sqrt(5 * 2 * 4 * math.log(800) / 0.5)
    E = math.sqrt(10 * 2 * 4 / 0.5) * (2 + (math.log(100) / 4) ** (2 / 3))
    assert theory.vapvi_noise(facts) == (pytest.approx(L), pytest.approx(E))
    D = 4 * L / 0.25 + 16 * E * 2 / 0.125 + 8 * 2
    assert value(theory.dp_vapvi, facts) == pytest.approx(2 * 2.0 + D * 2 / 100)
    assert value(theory.dp_vapvi, replace(facts, reward=3.0)) == pytest.approx(3 * (4.0 + D * 2 / 100))
    assert theory.dp_vapvi(replace(facts, reward=3.0)).trivial == 6.0
    needed = theory.vapvi_burn_in(facts)
    log = math.log(160)
    assert needed["M1"] == pytest.approx(128 * 16 * log * 16)
    assert needed["M2"] == pytest.approx(max(2**12 * 64, 2**14 * 4) * 4**5)
    assert needed["M3"] == pytest.approx(512 * 16 * log * 16)
    assert needed["M4"] == pytest.approx(max(4 * L**2 / 1, 64 * E**2 * 16))
    assert theory.dp_vapvi(facts).holds is False


def test_r10_budgets_divide_what_privacy_costs():
    """Half the budget doubles the price term, and only it."""
    adversarial = Facts(4, 2, 3, 400, positions=9, support=5.0)
    priced = [
        (theory.uc_o_reps_private, adversarial, 1458.0),
        (theory.uc_o_reps_private, replace(adversarial, model="local"), 1458.0 * 20),
        (theory.uob_lbps_private, adversarial, 3240.0),
        (theory.uob_lbps_private, replace(adversarial, model="local"), 6561.0 * 2 * 9 * 20),
        (theory.sdp_pe_private, Facts(2, 2, 2, 400, 1.0, "shuffle"), 2048.0),
    ]
    for theorem, facts, price in priced:
        half = replace(facts, epsilon=0.5)
        assert value(theorem, half) - value(theorem, facts) == pytest.approx(price), theorem.__name__
    assert theory.printed_loss_error(replace(adversarial, epsilon=0.5)) == pytest.approx(18 * 2 * math.log(400))
    assert theory.printed_offline_error(Facts(3, 2, 2, 400, 0.5)) == 4.0


def test_r10_the_printed_errors():
    """S = 2, A = 3, H = 4, K = 100, ε = ½, β = 0.1: E1 = 24·ln^{1.5}(100)·ln(72000); locally 48·√(100·ln 144000)."""
    assert theory.printed_count_error(SMALL) == 8.0
    local = replace(SMALL, model="local")
    assert theory.printed_count_error(local) == 80.0
    assert theory.printed_loss_range(local) == 80.0
    root = math.log(100) ** 1.5
    assert theory.printed_heavy_error(SMALL, False) == pytest.approx(24 * root * math.log(72_000))
    assert theory.printed_heavy_error(SMALL, True) == pytest.approx(24 * root * math.log(144_000))
    assert theory.printed_heavy_error(local, False) == pytest.approx(48 * math.sqrt(100 * math.log(144_000)))
    assert theory.printed_heavy_error(local, True) == pytest.approx(48 * math.sqrt(100 * math.log(288_000)))


def test_r10_the_joint_lower_bound_with_heavier_tails():
    """v = ½, n = 2, A = 3, K = 1000, ε = ¼: rate 12·25·¼·1000/(2·2) = 18750; at Δ = 0.01, Δ³ = 10⁻⁶."""
    facts = Facts(4, 3, 1, 1000, 0.25, moments=Moments(0.5, 1.0, 0.1))
    assert theory.joint_lower_bound(facts, 0.01) == pytest.approx(0.625 * math.exp(-0.01875))
    assert theory.best_joint_gap(facts) == pytest.approx((1 / 3 / 18750) ** (1 / 3))
    assert (
        theory.no_heavy_learner(facts).trivial == theory.no_heavy_learner_proved(facts).trivial == pytest.approx(200)
    )


def test_bounds_are_stated_for_small_budgets_only_where_print_says_so():
    for theorem in (theory.heavy_ucbvi, theory.heavy_ucbpo, theory.no_heavy_learner):
        assert theorem(replace(HEAVY, epsilon=1.0)).holds is True
        assert theorem(replace(HEAVY, epsilon=1.01)).holds is False
    assert theory.heavy_ucbvi(replace(HEAVY, epsilon=1.01, episodes=10**9)).vacuous
    assert theory.sdp_pe_private(replace(SMALL, epsilon=0.99)).holds is True
    assert theory.sdp_pe_private(replace(SMALL, epsilon=1.0)).holds is False
    assert theory.dp_ucbvi_private(replace(SMALL, epsilon=9.0)).holds is None


def test_what_every_policy_has():
    assert SMALL.steps == 400
    assert SMALL.x == 8
    assert SMALL.effective_support == pytest.approx(8 * math.sqrt(3))
    assert replace(SMALL, positions=5).x == 5
    for theorem in (theory.no_learner, theory.no_bandit_learner, theory.dp_ucbvi_proved):
        assert theorem(replace(SMALL, reward=2.0)).trivial == 800


def test_each_part_of_the_linear_burn_in_can_be_the_largest():
    """Sizes at which the other alternatives of M₁ … M₄ decide."""

    def needed(H: int, d: int, kappa: float, rho: float, ridge: float = 1.0) -> dict[str, float]:
        return theory.vapvi_burn_in(
            Facts(2, 2, H, 100, rho=rho, features=Features(d, 0, kappa, lambda K: 1.0)), ridge
        )

    L, E = theory.vapvi_noise(Facts(2, 2, 1, 100, rho=1e-9, features=Features(2, 0, 0.5, lambda K: 1.0)))
    tiny = needed(1, 2, 0.5, 1e-9)
    assert tiny["M1"] == pytest.approx(math.sqrt(2) * L / 1.0)
    assert tiny["M4"] == pytest.approx(max(L**2, 4 * E**2))
    assert needed(1, 2, 50.0, 1e9)["M1"] == pytest.approx(128 * math.log(40))
    assert needed(1, 2, 50.0, 1e9, 1e6)["M1"] == pytest.approx(2e6)
    assert needed(2, 2, 0.5, 1.0, 1e9)["M3"] == pytest.approx(4e9 * 4 / 0.5)
    assert needed(9, 2, 0.5, 1.0)["M2"] == pytest.approx(9**14 * 2 * 32)
    assert needed(2, 2, 1e9, 1e9)["M4"] == pytest.approx(16e9)


# Quantities of problems ---------------------------------------------------------------------------------------------


def test_the_effective_support_by_hand():
    """Layer 0 moves to two states evenly, C = (½+½)² = 1, or surely to one, 0; layer 1 with ¼, ¾: (2√(3/16))² = ¾."""
    P = np.zeros((3, 2, 2, 2))
    P[0, :, 0], P[0, :, 1] = [0.5, 0.5], [1.0, 0.0]
    P[1:] = [0.25, 0.75]
    mdp = FiniteMDP(P, np.zeros((3, 2, 2)), np.array([1.0, 0.0]), 3)
    assert theory.effective_support(mdp, [[0], [0, 1], [0, 1]]) == pytest.approx(1 + math.sqrt(4 * 0.75))


@pytest.mark.parametrize("name", ["layered", "layered-large", "lock"])
def test_the_effective_support_is_at_most_its_worst_case(name):
    mdp = make(name)
    layers = tabular.layers(mdp)
    worst = sum(map(len, layers)) * math.sqrt(mdp.num_actions)
    assert 0 < theory.effective_support(mdp, layers) <= worst


def test_coverage_by_hand():
    """Two steps. Action 0 earns nothing and leads to states 0 and 1 evenly, where action 0 earns 1 in state 1 only.

    V*₁ = (0, 1), Var = ¼ at the first step, 0 later. Behaviour plays action 0 with ¾, so d^μ₀ = ¾ and d^μ₁ = 3/8 for
    the best actions; the least seen is ¼·½ = ⅛ at step 1.
    """
    P, r = np.full((2, 2, 2, 2), 0.5), np.zeros((2, 2, 2))
    r[1, 1, 0] = 1.0
    r[0, 0, 0] = 0.001  # so that action 0 is the only optimal one at the first step
    r[1, 0, 0] = 0.0005
    mdp = FiniteMDP(P, r, np.array([1.0, 0.0]), 2)
    found = theory.coverage(mdp, np.broadcast_to([0.75, 0.25], (2, 2, 2)))
    spread = (1.0 - 0.0005) / 2
    assert found.least == pytest.approx(0.125)
    assert found.bernstein == pytest.approx(spread / math.sqrt(0.75))
    assert found.hoeffding == pytest.approx(2 * (1 / math.sqrt(0.75) + 2 * 0.5 / math.sqrt(0.375)))
    never = np.zeros((2, 2, 2))
    never[..., 1] = 1.0
    assert theory.coverage(mdp, never).bernstein == math.inf


def test_the_printed_features_leave_a_coordinate_unused():
    """The first of eight binary digits is 0 for all hundred actions, so λ_min of the printed covariance is 0."""
    process = linear.two_state_linear(20)
    assert (process.features[..., 0] == 0).all()
    mdp = process.to_finite()
    found = theory.features(process.features, mdp, spec("linear").behaviour(mdp))
    assert (found.dimension, found.unused) == (9, 1)
    assert 0.003 < found.kappa < 0.02


def test_the_features_of_cells_give_the_rates_of_cells():
    """One-hot features: κ = d̄_m and φᵀΛ⁻¹φ = 1/(K·d^μ + 1) where the variance of V* is below 1."""
    mdp = make("riverswim", 3, 2)
    behaviour = tabular.favouring(mdp, 1, 0.8)
    P = mdp.transitions.copy()
    P[..., :] = 1 / 3
    even = FiniteMDP(P, mdp.rewards, np.full(3, 1 / 3), 2)
    phi = np.eye(6).reshape(3, 2, 6)
    found = theory.features(phi, even, behaviour)
    assert found.kappa == pytest.approx(theory.coverage(even, behaviour).least)
    best = theory.optimal_plan(even).policy
    seen = np.where(best > 0, behaviour / 3, np.inf)
    by_hand = float((best / 3 / np.sqrt(50 * np.where(best > 0, seen, 1.0) + 1)).sum())
    assert found.spread(50) == pytest.approx(by_hand)


# How bounds grow ----------------------------------------------------------------------------------------------------

ONLINE = sorted({theorem for name in theory.THEOREMS for theorem in theory.THEOREMS[name]}, key=lambda t: t.__name__)
OFFLINE = [theory.dp_apvi, theory.dp_apvi_hoeffding, theory.dp_vapvi]
ONLINE = [theorem for theorem in ONLINE if theorem not in OFFLINE]
UPPER = [theorem for theorem in ONLINE if not theorem.__name__.startswith("no_")]
ANY = st.builds(
    Facts,
    st.integers(3, 30),
    st.integers(2, 6),
    st.integers(1, 20),
    st.integers(10, 10**7),
    st.floats(0.05, 1.0),
    st.sampled_from(["joint", "local"]),
    moments=st.builds(
        lambda v, u, share: Moments(v, u, share * u ** (1 / (1 + v))),
        st.floats(0.1, 1.0),
        st.floats(0.5, 5.0),
        st.floats(0.1, 0.99),
    ),
)


@pytest.mark.parametrize("theorem", UPPER, ids=lambda t: t.__name__)
@settings(max_examples=25, deadline=None)
@given(facts=ANY)
def test_upper_bounds_grow_with_the_problem_and_fall_with_the_budget(theorem, facts):
    here = value(theorem, facts)
    for bigger in ("states", "actions", "horizon", "episodes"):
        assert value(theorem, replace(facts, **{bigger: 2 * getattr(facts, bigger)})) >= here * (1 - 1e-12)
    assert value(theorem, replace(facts, epsilon=2 * facts.epsilon)) <= here
    many, more = (replace(facts, episodes=factor * max(facts.episodes, 1000)) for factor in (1, 100))  # full stages
    assert value(theorem, many) / many.steps >= value(theorem, more) / more.steps


@pytest.mark.parametrize("theorem", ONLINE, ids=lambda t: t.__name__)
@settings(max_examples=25, deadline=None)
@given(facts=ANY, factor=st.floats(0.1, 10.0))
def test_rewards_in_other_units_scale_every_bound(theorem, facts, factor):
    """Rewards × c: the range and τ become c times as large, u becomes c^{1+v} times as large; so do bounds, × c."""
    v, u, tau = facts.moments.order, facts.moments.bound, facts.moments.mean
    other = replace(facts, reward=factor, moments=Moments(v, factor ** (1 + v) * u, factor * tau))
    assert value(theorem, other) == pytest.approx(factor * value(theorem, facts), rel=1e-9)
    assert theorem(other).trivial == pytest.approx(factor * theorem(facts).trivial)


@pytest.mark.parametrize("theorem", OFFLINE[:2], ids=lambda t: t.__name__)
def test_offline_bounds_fall_with_the_log(theorem):
    facts = Facts(3, 2, 4, 1000, coverage=Coverage(0.1, 0.3, 0.8))
    assert value(theorem, facts) > value(theorem, replace(facts, episodes=2000)) > 0
    assert value(theorem, replace(facts, reward=3.0)) == pytest.approx(3 * value(theorem, facts))


def test_where_a_bound_begins_to_say_something():
    """√(SAH²·KH) + S²AH³/ε < KH: with S = A = H = 1 and ε = 1, √K + 1 < K from K = 2.618 on."""
    facts = Facts(1, 1, 1, 1)
    found = theory.informative_from(theory.dp_ucbvi_private, lambda K: replace(facts, episodes=K))
    assert found == pytest.approx((3 + math.sqrt(5)) / 2, rel=0.011)
    never = Facts(1000, 100, 100, 1, 1e-6)
    assert theory.informative_from(theory.dp_ucbvi_proved, lambda K: replace(never, episodes=K)) is None


# Noise in force -----------------------------------------------------------------------------------------------------


def test_the_error_in_force_is_four_widths_of_the_tree():
    found = bounds.case("dp-ucbvi", states=3, actions=2, horizon=4, episodes=1000, beta=0.02).now
    tree = Tree(Budget.pure(1.0), beta=0.02).open(CountSpec(3, 2, 4, False, 1.0), 1000, NoiseSource.seeded(0))
    widths = tree.release().widths
    assert found.errors.transitions == float(np.max(widths.transitions))
    assert found.errors.counts == 4 * float(np.max(widths.transitions))
    half = bounds.case("dp-ucbvi", states=3, actions=2, horizon=4, episodes=1000, beta=0.02, neighbours="zero-out")
    assert half.now.errors.counts == pytest.approx(found.errors.counts / 2, rel=0.01)


def test_errors_grow_as_the_failure_probability_shrinks():
    errors = [bounds.case("dp-ucbvi", beta=beta).now.errors.counts for beta in (0.5, 0.1, 0.001)]
    assert errors == sorted(errors)
    assert errors[0] < errors[-1]


@pytest.mark.parametrize("terms", [1, 9, 300])
def test_the_expected_range_of_loss_noise_covers_a_simulation_closely(terms):
    rng, scale, cells = np.random.default_rng(terms), 12.0, 18
    q = math.exp(-1 / scale)
    draws = rng.geometric(1 - q, (2000, cells, terms)) - rng.geometric(1 - q, (2000, cells, terms))
    sums = draws.sum(axis=-1)
    measured = float((sums.max(axis=1) - sums.min(axis=1)).mean())
    assert measured < bounds.expected_range(scale, terms, cells) < 1.25 * measured


def test_the_loss_errors_are_those_of_the_calibration():
    """Bandit: one loss carries DLap(2H/(ε/3)), so E' is about 6H·ln(2·XAK·3/β)/ε."""
    found = bounds.case("private-uob-lbps", env="layered", episodes=1000, beta=0.03).now
    assert found.errors.losses == pytest.approx(18 * math.log(18 * 1000 / 0.01), rel=0.02)
    full = bounds.case("private-uc-o-reps", env="layered", episodes=1000).now
    assert full.errors.losses is None
    assert full.errors.loss_range > 18 * 3 * 10  # at least one node's scale


def test_the_case_of_an_experiment_reads_its_problem():
    experiment = Experiment("private-heavy-ucbvi", env="heavy-local:depth=2,arms=3", model="local", epsilon=1.0)
    facts = bounds.case_of(experiment).facts
    assert (facts.states, facts.actions, facts.horizon, facts.leaves, facts.model) == (15, 3, 3, 9, "local")
    plain = bounds.case_of(Experiment("dp-ucbvi", env="riverswim", epsilon=0.5, episodes=77)).facts
    assert (plain.states, plain.horizon, plain.episodes, plain.epsilon, plain.reward) == (6, 20, 77, 0.5, 1.0)
    with pytest.raises(ValueError, match="private learners"):
        bounds.case_of(Experiment("ucbvi"))


def test_no_local_learner_beats_the_lower_bound_that_is_proved():
    """Over all places of the best leaf, at the critical gap; the mean over places is what the theorem bounds."""
    K, env = 4000, "heavy-local:depth=1,arms=2,v=1,users=4000,epsilon=1.0"
    told = {"env": env, "episodes": K, "epsilon": 1.0, "model": "local", "moment_bound": 1.0}
    places = {int(make(env, instance=i).rewards[0, 1:3].argmax()): i for i in range(20)}
    assert len(places) == 4
    played = [run(Experiment("private-heavy-ucbvi", instance=i, **told), 0) for i in places.values()]
    facts = bounds.case_of(Experiment("private-heavy-ucbvi", **told)).facts
    assert np.mean([each.regret[-1] for each in played]) > value(theory.no_heavy_learner_proved, facts) > 0


# The command --------------------------------------------------------------------------------------------------------


def invoke(*words: str, code: int = 0):
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == code, found.output
    return found


@pytest.mark.parametrize("name", theory.THEOREMS)
def test_every_learner_with_a_theorem_is_answered(name):
    entry = catalog.algorithm(name)
    env = {"adversarial": "layered", "offline": "linear" if entry.features else "riverswim"}.get(entry.runner)
    place = ["--env", env] if env else ["--states", "3", "--horizon", "3"]
    for model in entry.models:
        found = json.loads(invoke("bound", name, *place, "--model", model, "--json").stdout)
        assert (found["algorithm"], found["model"]) == (name, model)
        kinds = [each["kind"] for each in found["bounds"]]
        assert "upper" in kinds
        assert all(each["constants"] and each["terms"] for each in found["bounds"])
        assert found["quantities"]
        text = invoke("bound", name, *place, "--model", model).stdout
        assert all(each["theorem"] in text for each in found["bounds"])
        for each in found["bounds"]:
            if each["kind"] == "upper" and not each["vacuous"]:
                assert each["informative_from"] <= 20_000 * 1.01


def test_bounds_stand_beside_what_was_measured(tmp_path):
    rest = ("--states", 3, "--horizon", 3, "--episodes", 300, "--epsilon", 1, "--out", tmp_path)
    invoke("run", "dp-ucbvi", "--pooled", "--seeds", "0:2", *rest)
    invoke("run", "spotlight", *rest)
    found = json.loads(invoke("bound", "--results", tmp_path, "--json").stdout)["comparisons"]
    assert [each["algorithm"] for each in found] == ["dp-ucbvi"]
    first = found[0]["bounds"][0]
    assert first["value"] == pytest.approx(math.sqrt(3 * 2 * 9 * 900) + 9 * 2 * 27)
    assert first["times_measured"] == pytest.approx(first["value"] / found[0]["regret"])
    shown = invoke("bound", "--results", tmp_path).stdout
    assert "times measured" in shown
    assert "measured regret" in shown
    told = invoke("bound", "pucb", "--results", tmp_path)
    assert "no theorem speaks of a run" in told.output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("bound", "name a learner"),
        ("bound spotlight", "there is no theorem on spotlight"),
        ("bound dp-ucbvi --model shuffle", "has no shuffle form"),
        ("bound dp-ucbvi --epsilon 0", "epsilon is 0"),
        ("bound dp-ucbvi --epsilon inf", "epsilon is inf"),
        ("bound dp-ucbvi --beta 1", "beta is 1"),
        ("bound dp-ucbvi --delta 1", "delta is 1"),
        ("bound dp-ucbvi --episodes 1", "episodes is 1"),
        ("bound dp-ucbvi --states -3", "states is -3"),
        ("bound dp-ucbvi --env riverswim --actions 3", "leave --actions out"),
        ("bound dp-ucbvi --neighbours both", "--neighbours is 'both'"),
        ("bound dp-apvi", "name an environment"),
        ("bound dp-vapvi --env riverswim", "take --env linear"),
        ("bound dp-vapvi --env linear --delta 0", "give a delta above 0"),
        ("bound private-heavy-ucbvi --moment-order 2", "--moment-order is 2"),
        ("bound private-heavy-ucbvi --moment-bound -1", "--moment-bound is -1"),
        ("bound private-heavy-ucbvi --env heavy-joint --moment-order .5", "together"),
        ("bound --results nowhere", "nowhere"),
    ],
)
def test_what_cannot_be_bounded_is_refused_in_one_sentence(line, told):
    found = CliRunner().invoke(app, line.split())
    assert found.exit_code != 0
    output = (
        found.output if found.exception is None or isinstance(found.exception, SystemExit) else str(found.exception)
    )
    assert told in " ".join(output.split())


def test_the_list_names_every_theorem():
    told = invoke("bound", "--list", "--json").stdout
    found = json.loads(told)["theorems"]
    assert set(found) == set(theory.THEOREMS)
    assert all("Source: [" in line for lines in found.values() for line in lines)
