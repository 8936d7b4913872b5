"""Guarantees, budgets, conversion and composition: known answers, exact oracles, and refusals."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from functools import partial

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from discreet.privacy.accounting import (
    Budget,
    Guarantee,
    LedgerEntry,
    compose_parallel,
    compose_sequential,
    epsilon_of,
    gaussian_entry,
    gaussian_sigma,
    group,
    guarantee_of,
    laplace_entry,
    laplace_scale,
    ledger_total,
    no_privacy,
    pld_epsilon,
    rho_of,
    tree_levels,
    unit_text,
)
from oracles_privacy import gaussian_pmf, hockey_stick, laplace_pmf, nodes_of_leaf, product_pair, shifted_pair


def gaussian_delta(noise: float, epsilon: float) -> float:
    """δ(ε) of one Gaussian value with σ = noise · sensitivity, exactly."""
    shift = 1.0 / noise
    return float(
        stats.norm.cdf(shift / 2 - epsilon / shift) - math.exp(epsilon) * stats.norm.cdf(-shift / 2 - epsilon / shift)
    )


class TestGuarantee:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"epsilon": 0.0}, "epsilon"),
            ({"epsilon": -1.0}, "epsilon"),
            ({"epsilon": math.nan}, "epsilon"),
            ({"delta": 1.0}, "delta"),
            ({"delta": -0.1}, "delta"),
            ({"delta": math.nan}, "delta"),
            ({"rho": 0.0}, "rho"),
            ({"rho": math.nan}, "rho"),
            ({"model": "global"}, "model"),
            ({"neighbours": "add"}, "neighbours"),
            ({"model": "local", "neighbours": "zero-out"}, "no zero-out form"),
            ({"model": "none"}, "infinity"),
        ],
    )
    def test_false_statements_are_refused(self, changes, message):
        with pytest.raises(ValueError, match=message):
            Guarantee(**({"model": "joint", "epsilon": 1.0} | changes))

    def test_sentences(self):
        assert Guarantee("joint", 1.0).sentence() == "joint DP, ε = 1 per user, replace-one"
        assert (
            Guarantee("central", 0.5, 1e-6, neighbours="zero-out", unit=unit_text(3)).sentence()
            == "central DP, ε = 0.5, δ = 1e-06 per user (3 episodes), zero-out-one"
        )
        assert Guarantee("central", math.inf, rho=0.25).sentence() == "central zCDP, ρ = 0.25 per user, replace-one"
        assert no_privacy().sentence() == "no privacy"

    @given(st.floats(1e-6, 1e6))
    def test_printed_numbers_are_rounded_up(self, epsilon):
        printed = float(Guarantee("joint", epsilon).sentence().split(" = ")[1].split()[0])
        assert epsilon * (1 - 1e-12) <= printed <= epsilon * (1 + 2e-5)

    def test_json_is_strict(self):
        entries = (laplace_entry("visits", 10, 0.0),)
        text = json.dumps(replace(no_privacy("data as they are"), entries=entries).to_json(), allow_nan=False)
        read = json.loads(text)
        assert read["epsilon"] is None
        assert read["entries"][0]["cost"] is None
        assert read["entries"][0]["uses"] == 1
        assert read["assumptions"] == ["data as they are"]
        assert read["neighbours"] == "replace"

    @pytest.mark.parametrize(
        "fields",
        [
            ("visits", "discrete-laplace", "l2", 1.0, 1.0, 1, 1.0),
            ("visits", "discrete-gaussian", "l1", 1.0, 1.0, 1, 1.0),
            ("visits", "discrete-laplace", "l1", -1.0, 1.0, 1, 1.0),
            ("visits", "discrete-laplace", "l1", 1.0, math.nan, 1, 1.0),
            ("visits", "discrete-laplace", "l1", 1.0, 1.0, 0, 1.0),
            ("visits", "discrete-laplace", "l1", 1.0, 1.0, 1, math.nan),
            ("visits", "discrete-gaussian", "l2", 1.0, 1.0, 1, 1.0, 0.1),
        ],
    )
    def test_impossible_entries_are_refused(self, fields):
        with pytest.raises(ValueError):
            LedgerEntry(*fields)


class TestConversion:
    @pytest.mark.parametrize(
        ("rho", "delta"), [(0.02436, 1e-6), (1e-4, 1e-9), (0.5, 1e-5), (10.0, 1e-12), (1e-6, 0.01)]
    )
    def test_best_order_is_found(self, rho, delta):
        """Against the derivative-free minimum over orders in 40 digits."""
        with mpmath.workdps(40):
            d, r = mpmath.mpf(delta), mpmath.mpf(rho)

            def bound(u):
                a = 1 + mpmath.exp(u)
                return a * r + (mpmath.log(1 / d) + (a - 1) * mpmath.log(1 - 1 / a) - mpmath.log(a)) / (a - 1)

            grid = [mpmath.mpf(i) / 50 for i in range(-400, 1000)]
            best = max(0, float(min(bound(u) for u in grid)))
        found = epsilon_of(rho, delta)
        assert found <= best * (1 + 1e-12) + 1e-300
        assert found >= best * (1 - 1e-3)

    @pytest.mark.parametrize("rho", [1e-3, 0.02, 0.3, 2.0])
    @pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
    def test_holds_for_the_gaussian_mechanism_and_beats_the_textbook_formula(self, rho, delta):
        epsilon = epsilon_of(rho, delta)
        assert gaussian_delta(1 / math.sqrt(2 * rho), epsilon) <= delta
        assert epsilon < rho + 2 * math.sqrt(rho * math.log(1 / delta))

    def test_known_value(self):
        assert rho_of(1.0, 1e-6) == pytest.approx(0.02436, abs=5e-6)

    @given(st.floats(0.01, 30.0), st.floats(1e-12, 0.1))
    def test_rho_of_is_the_inverse_and_errs_on_the_safe_side(self, epsilon, delta):
        rho = rho_of(epsilon, delta)
        assert epsilon_of(rho, delta) <= epsilon
        assert epsilon_of(rho * (1 + 1e-9), delta) >= epsilon * (1 - 1e-9)

    @pytest.mark.parametrize("delta", [0.0, 1.0, math.nan, -1.0])
    def test_needs_a_delta(self, delta):
        with pytest.raises(ValueError, match="delta"):
            epsilon_of(0.1, delta)
        with pytest.raises(ValueError, match="delta"):
            rho_of(0.1, delta)


class TestBudget:
    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
    def test_epsilon_must_be_positive(self, epsilon):
        with pytest.raises(ValueError, match="epsilon"):
            Budget.pure(epsilon)
        with pytest.raises(ValueError, match="epsilon"):
            Budget.approximate(epsilon, 1e-6)

    @pytest.mark.parametrize("delta", [0.0, 1.0, 2.0, math.nan])
    def test_delta_must_be_a_probability(self, delta):
        with pytest.raises(ValueError, match="delta"):
            Budget.approximate(1.0, delta)

    @pytest.mark.parametrize("amount", ["1", True, [1.0]])
    def test_what_is_no_number_is_no_budget(self, amount):
        for name, make in (
            ("delta", partial(Budget.approximate, 1.0)),
            ("rho", Budget.zcdp),
            ("epsilon", Budget.pure),
        ):
            with pytest.raises(ValueError, match=f"{name} is .*; it must be a number"):
                make(amount)

    def test_one_currency_only(self):
        with pytest.raises(ValueError, match="exactly one"):
            Budget(epsilon=1.0, rho=1.0)
        with pytest.raises(ValueError, match="exactly one"):
            Budget()

    def test_pure_budget_buys_no_gaussian_noise(self):
        with pytest.raises(ValueError, match="never gives pure"):
            Budget.pure(1.0).split(["visits"], "gaussian")

    def test_totals_in_the_currency_of_the_noise(self):
        assert Budget.pure(2.0).total("laplace") == 2.0
        assert Budget.approximate(1.0, 1e-6).total("laplace") == 1.0
        assert Budget.approximate(1.0, 1e-6).total("gaussian") == rho_of(1.0, 1e-6)
        assert Budget.zcdp(0.5).total("gaussian") == 0.5
        assert Budget.zcdp(0.5).total("laplace") == pytest.approx(1.0)

    @given(
        st.floats(1e-9, 1e9),
        st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=7),
        st.sampled_from(["pure", "zcdp"]),
    )
    def test_shares_never_exceed_the_whole(self, amount, weights, kind):
        noise = "laplace" if kind == "pure" else "gaussian"
        budget = Budget.pure(amount) if kind == "pure" else Budget.zcdp(amount)
        named = {f"family {i}": w for i, w in enumerate(weights)}
        shares = budget.split(named, noise)
        assert math.fsum(shares.values()) <= amount
        for name, w in named.items():
            assert shares[name] == pytest.approx(amount * w / sum(weights), rel=1e-12)

    @pytest.mark.parametrize("weights", [[], ["a", "a"], {"a": 0.0}, {"a": -1.0, "b": 2.0}, {"a": math.inf}, "abc"])
    def test_senseless_splits_are_refused(self, weights):
        with pytest.raises(ValueError):
            Budget.pure(1.0).split(weights)


class TestCalibration:
    @pytest.mark.parametrize("prefixes", [1, 2, 3, 4, 7, 8, 9, 15, 16, 31, 32, 33, 100])
    def test_levels_are_the_most_nodes_of_any_leaf(self, prefixes):
        assert tree_levels(prefixes) == max(nodes_of_leaf(leaf, prefixes) for leaf in range(1, prefixes + 1))

    def test_levels_at_powers_of_two(self):
        for m in range(1, 12):
            assert tree_levels(2**m - 1) == m
            assert tree_levels(2**m) == m + 1

    def test_published_example(self):
        """S=6 A=2 H=20 K=20000 ε=1, release every episode, replace, three equal families: 6·H·L/ε = 1800."""
        levels = tree_levels(20_000 - 1)
        share = Budget.pure(1.0).split(["visits", "transitions", "rewards"])["visits"]
        assert levels == 15
        assert laplace_scale(2 * 20, share, levels) == pytest.approx(1800.0, rel=1e-9)

    def test_offline_gaussian(self):
        """Visits and transitions, Δ₂² = 2H each, rewards known: variance 2H/ρ [QW22]."""
        shares = Budget.zcdp(0.4).split(["visits", "transitions"], "gaussian")
        for share in shares.values():
            assert gaussian_sigma(math.sqrt(2 * 7), share) ** 2 == pytest.approx(2 * 7 / 0.4, rel=1e-8)

    @given(st.floats(0.1, 1e4), st.floats(1e-3, 1e2), st.integers(1, 40))
    def test_a_sampled_law_slightly_worse_than_the_ideal_stays_within_the_budget(self, sensitivity, epsilon, uses):
        scale = laplace_scale(sensitivity, epsilon, uses)
        assert laplace_entry("visits", sensitivity, scale, uses, log_ratio=(1 + 1e-10) / scale).cost <= epsilon
        sigma = gaussian_sigma(sensitivity, epsilon, uses)
        assert gaussian_entry("visits", sensitivity, sigma, uses).cost * (1 + 2e-10) <= epsilon

    def test_no_budget_no_noise(self):
        assert laplace_scale(2.0, math.inf) == 0.0
        assert laplace_entry("visits", 2.0, 0.0).cost == math.inf
        assert gaussian_sigma(2.0, math.inf) == 0.0
        assert gaussian_entry("visits", 2.0, 0.0).cost == math.inf

    @pytest.mark.parametrize("bad", [{"epsilon": 0.0}, {"epsilon": math.nan}, {"uses": 0}, {"sensitivity_l1": -1.0}])
    def test_bad_parameters(self, bad):
        with pytest.raises(ValueError):
            laplace_scale(**({"sensitivity_l1": 1.0, "epsilon": 1.0, "uses": 1} | bad))


class TestGuaranteeOfLedger:
    families = ("visits", "transitions", "rewards")

    def laplace(self, budget, horizon=5, uses=7, neighbours=2):
        return [
            laplace_entry(f, neighbours * horizon, laplace_scale(neighbours * horizon, share, uses), uses)
            for f, share in budget.split(self.families).items()
        ]

    def gaussian(self, budget, uses=7):
        return [
            gaussian_entry(f, math.sqrt(10), gaussian_sigma(math.sqrt(10), share, uses), uses)
            for f, share in budget.split(self.families, "gaussian").items()
        ]

    def test_calibrated_ledger_gives_back_its_budget(self):
        budget = Budget.pure(0.7)
        guarantee = guarantee_of(self.laplace(budget), "joint", "replace", budget)
        assert (guarantee.epsilon, guarantee.delta, guarantee.rho) == (0.7, 0.0, None)
        budget = Budget.zcdp(0.3, 1e-6)
        guarantee = guarantee_of(self.gaussian(budget), "central", "replace", budget)
        assert (guarantee.rho, guarantee.delta) == (0.3, 1e-6)
        assert guarantee.epsilon == epsilon_of(0.3, 1e-6)
        budget = Budget.approximate(1.0, 1e-6)
        guarantee = guarantee_of(self.gaussian(budget), "central", "replace", budget)
        assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-6)
        assert guarantee.rho == pytest.approx(0.024356, rel=1e-4)

    def test_overspending_is_an_error(self):
        entries = self.laplace(Budget.pure(0.7))
        with pytest.raises(ValueError, match="more than the budget"):
            guarantee_of([*entries, laplace_entry("losses", 1, 1e6)], "joint", "replace", Budget.pure(0.7))
        with pytest.raises(ValueError, match="more than the budget"):
            guarantee_of(self.gaussian(Budget.zcdp(0.301)), "joint", "replace", Budget.zcdp(0.3))
        with pytest.raises(ValueError, match="more than the budget"):
            guarantee_of(self.gaussian(Budget.zcdp(0.3)), "joint", "replace", Budget.pure(1.0))

    def test_excess_of_rounding_size_is_printed_not_hidden(self):
        entry = LedgerEntry("visits", "discrete-laplace", "l1", 1.0, 1.0, 1, 1.0 + 5e-10)
        assert guarantee_of([entry], "joint", "replace", Budget.pure(1.0)).epsilon == 1.0 + 5e-10
        with pytest.raises(ValueError, match="more than the budget"):
            guarantee_of([replace(entry, cost=1.0 + 2e-9)], "joint", "replace", Budget.pure(1.0))

    def test_unspent_budget_is_not_claimed(self):
        assert guarantee_of([laplace_entry("visits", 1, 4.0)], "joint", "replace", Budget.pure(1.0)).epsilon == 0.25

    def test_printed_scales_of_a_paper_get_their_true_guarantee(self):
        """Noise Lap(3H/ε) on three families whose sensitivity is 2H: 2ε [QW23]."""
        H, epsilon = 5, 0.8
        entries = [laplace_entry(f, 2 * H, 3 * H / epsilon) for f in self.families]
        assert guarantee_of(entries, "local").epsilon == pytest.approx(2 * epsilon)

    def test_gaussian_ledger_without_delta_is_zcdp_only(self):
        guarantee = guarantee_of(self.gaussian(Budget.zcdp(0.3)), "joint", "replace", Budget.zcdp(0.3))
        assert (guarantee.epsilon, guarantee.rho, guarantee.delta) == (math.inf, 0.3, 0.0)

    def test_laplace_noise_under_a_rho_budget(self):
        budget = Budget.zcdp(0.5)
        guarantee = guarantee_of(self.laplace(budget, uses=1), "joint", "replace", budget)
        assert guarantee.epsilon == pytest.approx(1.0)
        assert guarantee.rho == pytest.approx(3 * (1 / 3) ** 2 / 2)
        assert guarantee.rho <= 0.5

    def test_mixed_ledger_takes_the_better_route(self):
        entries = [laplace_entry("visits", 1, 10.0), gaussian_entry("rewards", 1, 10.0)]
        total = ledger_total(entries)
        assert total.epsilon == pytest.approx(0.1)
        assert total.gaussian_rho == pytest.approx(0.005)
        assert total.rho == pytest.approx(0.01)
        guarantee = guarantee_of(entries, "central", delta=1e-6)
        assert guarantee.epsilon == pytest.approx(min(0.1 + epsilon_of(0.005, 1e-6), epsilon_of(0.01, 1e-6)))

    def test_deltas_of_shuffled_bits_add(self):
        entry = LedgerEntry("visits", "shuffled-bits", "l1", 2.0, 10.0, 1, 0.4, delta=1e-6)
        guarantee = guarantee_of([entry, entry], "shuffle", "replace", Budget.approximate(0.8, 2e-6))
        assert (guarantee.epsilon, guarantee.delta) == (0.8, 2e-6)
        with pytest.raises(ValueError, match="delta"):
            guarantee_of([entry, entry], "shuffle", "replace", Budget.approximate(0.8, 1e-6))

    def test_users_with_several_episodes_are_charged_for_all_of_them(self):
        budget = Budget.pure(1.0)
        entries = self.laplace(Budget.pure(0.25))
        guarantee = guarantee_of(entries, "joint", "replace", budget, episodes_per_user=4)
        assert guarantee.epsilon == 1.0
        assert guarantee.unit == "user (4 episodes)"
        assert ledger_total(guarantee.entries).epsilon == pytest.approx(1.0)
        with pytest.raises(ValueError, match="more than the budget"):
            guarantee_of(entries, "joint", "replace", budget, episodes_per_user=5)


class TestComposition:
    def test_sequential_adds_in_each_currency(self):
        assert compose_sequential([Guarantee("joint", 0.3), Guarantee("joint", 0.5)]).epsilon == pytest.approx(0.8)
        both = compose_sequential([Guarantee("joint", math.inf, rho=0.1), Guarantee("joint", math.inf, rho=0.2)])
        assert both.rho == pytest.approx(0.3)
        assert both.epsilon == math.inf
        mixed = compose_sequential(
            [Guarantee("joint", 0.2), Guarantee("joint", epsilon_of(0.1, 1e-6), 1e-6, rho=0.1)]
        )
        assert mixed.rho == pytest.approx(0.12)
        assert mixed.epsilon == pytest.approx(min(0.2 + epsilon_of(0.1, 1e-6), epsilon_of(0.12, 1e-6)))
        plain = compose_sequential([Guarantee("joint", 0.2, 1e-6), Guarantee("joint", 0.3, 2e-6)])
        assert (plain.epsilon, plain.delta, plain.rho) == (0.5, pytest.approx(3e-6), None)

    def test_adaptive_composition_by_brute_force(self):
        """Two randomised responses, the second at a level chosen by the first answer: the worst branch counts."""

        def answers(epsilon):
            p = math.exp(epsilon) / (1 + math.exp(epsilon))
            return np.array([[p, 1 - p], [1 - p, p]])  # world × answer

        first, second = answers(0.4), (answers(0.9), answers(0.2))
        joint = np.array(
            [[first[w, a] * second[a][w, b] for a, b in itertools.product((0, 1), repeat=2)] for w in (0, 1)]
        )
        worst = np.abs(np.log(joint[0] / joint[1])).max()
        claimed = compose_sequential([Guarantee("central", 0.4), Guarantee("central", 0.9)]).epsilon
        assert worst == pytest.approx(claimed)

    def test_parallel_takes_the_worst_part(self):
        parts = [Guarantee("joint", 0.3, 1e-6), Guarantee("joint", 0.5)]
        whole = compose_parallel(parts)
        assert (whole.epsilon, whole.delta) == (0.5, 1e-6)
        assert any("one part" in text for text in whole.assumptions)
        rhos = compose_parallel([Guarantee("central", math.inf, rho=0.1), Guarantee("central", math.inf, rho=0.2)])
        assert rhos.rho == 0.2

    @pytest.mark.parametrize("compose", [compose_sequential, compose_parallel])
    @pytest.mark.parametrize(
        "other",
        [
            Guarantee("local", 1.0),
            Guarantee("joint", 1.0, neighbours="zero-out"),
            Guarantee("joint", 1.0, unit=unit_text(2)),
            no_privacy(),
        ],
    )
    def test_unlike_statements_are_never_combined(self, compose, other):
        with pytest.raises(ValueError, match="do not compose"):
            compose([Guarantee("joint", 1.0), other])
        with pytest.raises(ValueError, match="at least one"):
            compose([])

    def test_no_privacy_composes_to_no_privacy(self):
        assert compose_sequential([no_privacy(), no_privacy()]).epsilon == math.inf
        assert compose_parallel([no_privacy(), no_privacy()]).model == "none"


class TestGroup:
    def test_pure_and_concentrated(self):
        assert group(Guarantee("joint", 0.3), 3).epsilon == pytest.approx(0.9)
        grouped = group(Guarantee("joint", math.inf, rho=0.1, entries=(gaussian_entry("visits", 2.0, 5.0),)), 3)
        assert grouped.rho == pytest.approx(0.9)
        assert grouped.entries[0].sensitivity == 6.0
        assert grouped.entries[0].cost == pytest.approx(36.0 / 50.0)
        assert grouped.unit == "user (3 episodes)"

    def test_approximate_by_brute_force(self):
        """Chains of laws whose neighbours are (ε, δ)-close: their ends are as close as claimed, some barely."""
        rng = np.random.default_rng(3)
        epsilon, tightest = 0.5, 0.0
        for _ in range(400):
            chain = rng.dirichlet(np.full(4, 0.7), 3)
            pairs = [(0, 1), (1, 2), (1, 0), (2, 1)]
            delta = max(hockey_stick(chain[a], chain[b], epsilon) for a, b in pairs)
            far = max(hockey_stick(chain[0], chain[2], 2 * epsilon), hockey_stick(chain[2], chain[0], 2 * epsilon))
            if delta * (1 + math.exp(epsilon)) >= 1.0:
                with pytest.raises(ValueError, match="nothing is left"):
                    group(Guarantee("joint", epsilon, delta), 2)
                continue
            claimed = group(Guarantee("joint", epsilon, delta), 2)
            assert claimed.epsilon == 2 * epsilon
            assert claimed.delta == pytest.approx(delta * (1 + math.exp(epsilon)))
            assert far <= claimed.delta + 1e-12
            tightest = max(tightest, far / claimed.delta)
        assert tightest > 0.6

    def test_a_group_of_a_group_is_refused(self):
        with pytest.raises(ValueError, match="one episode per user"):
            group(group(Guarantee("joint", 0.3), 3), 2)
        with pytest.raises(ValueError, match="episodes_per_user"):
            group(Guarantee("joint", 0.3), 0)


class TestPrivacyLoss:
    @pytest.mark.parametrize("mechanism", ["gaussian", "discrete-gaussian"])
    def test_gaussian_composition_is_near_the_exact_value_and_never_below(self, mechanism):
        """n Gaussian values with σ = 20·Δ are one with σ = 20·Δ/√n."""
        entries = [gaussian_entry(f, 3.0, 60.0, 8, mechanism=mechanism) for f in ("visits", "transitions", "rewards")]
        epsilon = pld_epsilon(entries, 1e-6)
        noise = 20.0 / math.sqrt(24)
        assert gaussian_delta(noise, epsilon) <= 1e-6
        assert gaussian_delta(noise, epsilon * 0.99) > 1e-6
        assert epsilon < 0.95 * epsilon_of(ledger_total(entries).rho, 1e-6)

    @pytest.mark.parametrize("shifts", [(1, 1), (2,), (1, 2), (3,)])
    @pytest.mark.parametrize("delta", [1e-3, 1e-6])
    def test_discrete_gaussian_covers_every_integer_shift(self, shifts, delta):
        sigma = 4.0
        entry = gaussian_entry("visits", math.sqrt(sum(s * s for s in shifts)), sigma)
        epsilon = pld_epsilon([entry], delta)
        p, q = product_pair(gaussian_pmf(sigma, 40), shifts)
        assert hockey_stick(p, q, epsilon) <= delta
        assert hockey_stick(p, q, 0.85 * epsilon) > delta

    @pytest.mark.parametrize("shifts", [(1, 1), (1, 3), (2, 2), (1, 1, 2)])
    @pytest.mark.parametrize("scale", [0.5, 2.0])
    def test_one_large_shift_is_the_worst_for_discrete_laplace(self, shifts, scale):
        pmf = laplace_pmf(scale, 30)
        spread, whole = product_pair(pmf, shifts), shifted_pair(pmf, sum(shifts))
        for epsilon in np.linspace(-1.0, sum(shifts) / scale, 25):
            assert hockey_stick(*spread, epsilon) <= hockey_stick(*whole, epsilon) + 1e-12

    def test_discrete_laplace_composition_by_brute_force(self):
        scale, shift, delta = 5.0, 2, 1e-2
        entry = laplace_entry("visits", float(shift), scale, uses=2)
        epsilon = pld_epsilon([entry], delta)
        p, q = product_pair(laplace_pmf(scale, 250), (shift, shift))
        assert hockey_stick(p, q, epsilon) <= delta
        assert hockey_stick(p, q, epsilon - 0.01) > delta
        assert epsilon < entry.cost

    def test_many_laplace_values_are_cheaper_than_their_sum(self):
        entries = [laplace_entry("visits", 4.0, 400.0, 100)]
        assert pld_epsilon(entries, 1e-6) < 0.6 * ledger_total(entries).epsilon
        better = guarantee_of(entries, "joint", delta=1e-6, privacy_loss=True)
        assert (better.epsilon, better.delta) == (pld_epsilon(entries, 1e-6), 1e-6)

    def test_a_rho_budget_may_be_reported_with_the_smaller_epsilon(self):
        budget = Budget.zcdp(0.1, 1e-6)
        entries = [gaussian_entry("visits", 2.0, gaussian_sigma(2.0, 0.1, 3), 3)]
        plain = guarantee_of(entries, "central", "replace", budget)
        better = guarantee_of(entries, "central", "replace", budget, privacy_loss=True)
        assert plain.rho == better.rho == 0.1
        assert better.epsilon == pld_epsilon(entries, 1e-6) < plain.epsilon

    def test_unknown_mechanisms_are_not_guessed(self):
        with pytest.raises(ValueError, match="not known"):
            pld_epsilon([LedgerEntry("visits", "shuffled-bits", "l1", 1.0, 1.0, 1, 0.5)], 1e-6)

    def test_nothing_and_everything(self):
        assert pld_epsilon([], 1e-6) == 0.0
        assert pld_epsilon([laplace_entry("visits", 1.0, 0.0)], 1e-6) == math.inf
