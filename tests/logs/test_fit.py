"""From a log to a policy: which learner and why, what is said about the result, and values that hold."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from discreet.envs.registry import make, spec
from discreet.envs.rewards import RewardLaw
from discreet.offline import certificate
from discreet.offline import fitting as offline
from discreet.people.counting import StepCounts
from discreet.people.episodes import MDPSimulator
from discreet.people.logs import LogFormat, table_of
from discreet.planning import policy_value, policy_values, true_model
from discreet.policy import Policy
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.trust.one_hot import OneHot
from discreet.releases.items import Items
from discreet.runs.experiment import Experiment
from discreet.runs.forecasts import forecast_fit
from discreet.valuation import Scale, Start, counted_values, histogram_lower_values, start_of, worth

ONE = Budget.pure(1.0)


def played(env: str, n: int, seed: int = 0):
    mdp = make(env)
    return mdp, MDPSimulator(mdp, RewardLaw("bernoulli"), seed).rollout(spec(env).behaviour(mdp), n)


def described(mdp, **options) -> LogFormat:
    return LogFormat(mdp.num_states, mdp.num_actions, mdp.horizon, **options)


@pytest.mark.parametrize(
    ("budget", "users", "options", "name", "tilted", "word"),
    [
        (ONE, 2399, {}, "one-hot", False, "below 2400"),
        (ONE, 2400, {}, "one-hot", True, "reaches 2400"),
        (ONE, 47_999, {"pooled": False}, "one-hot", False, "below 48000"),
        (Budget.pure(2.1), 10**5, {}, "one-hot", False, "above 2"),
        (Budget.zcdp(1.0), 10**5, {}, "one-hot", False, "Gaussian"),
        (ONE, 10**9, {}, "one-hot", True, "reaches 2400"),  # a larger log gets no other mechanism
        (ONE, 10**5, {"enforce": False, "early_end": "keep"}, "one-hot", False, "not enforced"),
    ],
)
def test_the_learner_is_chosen_by_public_numbers(budget, users, options, name, tilted, word):
    log = LogFormat(6, 2, 20, **{"pooled": True, **options})
    choice = offline.choose("auto", log, budget, "replace", users)
    assert (choice.algorithm, choice.tilted) == (name, tilted)
    assert word in choice.why


def test_zero_out_needs_half_the_users_and_names_are_checked():
    log = LogFormat(6, 2, 20, pooled=True)
    assert offline.choose("auto", log, ONE, "zero-out", 1200).tilted
    assert offline.choose("auto", log, ONE, "replace", 10, "paper").algorithm == "dp-apvi"
    for arguments, words in (
        (("ppo", log, ONE, "replace", 9), "unknown algorithm"),
        (("auto", log, ONE, "replace", 9, "tuned"), "practical or paper"),
        (("one-hot", log, ONE, "replace", 9, "paper"), "in no paper"),
        (("dp-ucbvi", log, ONE, "replace", 9), "use discreet run dp-ucbvi"),
        (("auto", log, None, "replace", 9), "state a budget, or name a learner without privacy: apvi, pevi, vapvi"),
        (("dp-apvi", log, None, "replace", 9), "dp-apvi is private and needs a budget"),
        (("apvi", log, ONE, "replace", 9), "apvi is not private and takes no budget; its private form is dp-apvi"),
        (("vapvi", log, None, "replace", 9), "learns from features"),
    ):
        with pytest.raises(ValueError, match=words):
            offline.choose(*arguments)
    staged, loose = LogFormat(6, 2, 20), Budget.zcdp(1.0)
    assert offline.choose("auto", staged, loose, "replace", 9, "paper", linear=True).algorithm == "dp-vapvi"
    assert offline.choose("auto", staged, loose, "replace", 9, linear=True).algorithm == "dp-pevi"


def test_the_catalog_lists_what_fit_knows():
    assert list(offline.FROM_LOGS) == [
        "one-hot",
        "columns",
        "dp-apvi",
        "dp-pevi",
        "dp-vapvi",
        "apvi",
        "pevi",
        "vapvi",
    ]
    for name, entry in offline.FROM_LOGS.items():
        assert (entry.twin is not None) == entry.private == (name not in offline.OPEN)
        if entry.private:
            twin = offline.FROM_LOGS[entry.twin]
            assert twin.features == entry.features
            assert name in ("one-hot", "columns") or twin.learn == entry.learn
        with pytest.raises(ValueError, match=f"discreet fit LOGS --algorithm {name}"):
            Experiment(name, epsilon=1.0 if entry.private else None)


@pytest.mark.parametrize("mode", ["practical", "paper"])
def test_a_twin_is_its_private_form_without_noise_and_promises_nothing(mode, tmp_path):
    mdp, episodes = played("riverswim", 500)
    log = described(mdp, pooled=True)
    twin = offline.fit(episodes, log, algorithm="apvi", mode=mode)
    free = offline.fit(episodes, log, Budget.pure(math.inf), algorithm="dp-apvi", mode=mode, allow_pooled=True)
    assert np.array_equal(twin.policy.values, free.policy.values)
    assert twin.policy.values.max() > 0
    assert twin.certificate["guarantee"]["sentence"] == "no privacy"
    assert twin.certificate["ledger"] == twin.certificate["protected"] == []
    for found in (twin, free):
        assert found.warnings[0] == certificate.NOT_PRIVATE
        found.save(tmp_path)
        assert certificate.verify(tmp_path).problems == (certificate.NOT_PRIVATE,)
        assert certificate.NOT_PRIVATE in (tmp_path / "certificate.html").read_text()


@pytest.mark.parametrize("pooled", [True, False])
def test_a_hoeffding_term_takes_off_more(pooled):
    mdp, episodes = played("riverswim", 3000)
    values = {
        bonus: offline.fit(episodes, described(mdp, pooled=pooled), algorithm="apvi", bonus=bonus).policy.values
        for bonus in ("bernstein", "hoeffding")
    }
    assert (values["hoeffding"] <= values["bernstein"] + 1e-12).all()
    assert values["hoeffding"][0, 0] < 0.8 * values["bernstein"][0, 0]
    some = offline.fit(episodes, described(mdp, pooled=pooled), algorithm="apvi", confidence_scale=0.1)
    assert (some.policy.values <= values["bernstein"]).all()
    assert values["hoeffding"][0, 0] < some.policy.values[0, 0] < values["bernstein"][0, 0]


@pytest.mark.parametrize(
    ("algorithm", "options", "words"),
    [
        ("one-hot", {"bonus": "hoeffding"}, "no Hoeffding form"),
        ("dp-apvi", {"bonus": "bennett"}, "bernstein or hoeffding"),
        ("dp-apvi", {"split": True}, "does not make two regressions"),
        ("dp-apvi", {"confidence_scale": -1.0}, "at least 0"),
        ("dp-pevi", {"features": np.ones((6, 2, 1)), "rewards": np.ones((6, 2))}, "leave the known rewards out"),
        ("dp-pevi", {"features": np.ones((6, 2, 1)), "split": True}, "dp-vapvi and vapvi do"),
    ],
)
def test_what_a_learner_would_ignore_is_refused(algorithm, options, words):
    mdp, episodes = played("riverswim", 10)
    with pytest.raises(ValueError, match=words):
        offline.fit(episodes, described(mdp), Budget.zcdp(1.0), algorithm=algorithm, seed=0, **options)


@pytest.mark.parametrize("options", [{}, {"algorithm": "dp-apvi"}])
def test_without_noise_fit_finds_the_policy_that_planning_finds(options):
    mdp, episodes = played("riverswim", 5000)
    found = offline.fit(episodes, described(mdp, pooled=True), Budget.pure(math.inf), seed=0, **options)
    worth = offline.evaluate(found.policy, mdp)
    assert worth["gap_ratio"] < 0.01
    assert worth["value_optimal"] == pytest.approx(3.3973, abs=1e-4)
    assert worth["value_random"] == pytest.approx(0.0438, abs=1e-4)
    assert worth["value"] == policy_value(mdp, found.policy.actions)
    assert found.certificate["guarantee"]["epsilon"] is None


def test_a_seed_repeats_a_fit_and_secure_noise_does_not():
    mdp, episodes = played("riverswim", 300)
    log = described(mdp, pooled=True)
    a, b, c = (offline.fit(episodes, log, ONE, seed=s).policy for s in (1, 1, 2))
    assert np.array_equal(a.values, b.values)
    assert not np.array_equal(a.values, c.values)
    x, y = (offline.fit(episodes, log, ONE) for _ in range(2))
    assert not np.array_equal(x.policy.values, y.policy.values)
    assert x.certificate["simulation"] is False


def test_one_step_per_user_is_two_parts_of_which_each_costs_the_budget():
    mdp, episodes = played("riverswim", 3000)
    found = offline.fit(table_of(episodes), described(mdp, pooled=True), ONE, seed=0)
    assert [line["users"] for line in found.certificate["ledger"]] == ["pilot users", "other users"]
    assert [line["cost"] for line in found.certificate["ledger"]] == pytest.approx([1.0, 1.0])
    assert found.certificate["guarantee"]["epsilon"] == 1.0
    assert offline.evaluate(found.policy, mdp)["gap_ratio"] < 0.2


def test_people_who_leave_early_are_counted_as_gone():
    """State 1 pays 1 per step, but half the people leave from it at once: what they forgo is known."""
    n, H = 4000, 6
    rng = np.random.default_rng(0)
    action = rng.integers(2, size=n)
    rows = {name: [] for name in ("user", "step", "state", "action", "reward", "next_state")}
    for i in range(n):
        for h in range(H):
            paid = 0.5 if action[i] == 0 else 0.7
            for name, value in zip(rows, (i, h, 0, action[i], paid, 0), strict=True):
                rows[name].append(value)
            if action[i] == 1 and rng.random() < 0.5:
                break
    for pooled in (True, False):
        log = LogFormat(1, 2, H, pooled)
        for algorithm in ("one-hot", "dp-apvi"):
            found = offline.fit(rows, log, Budget.pure(5.0), algorithm=algorithm, seed=0, initial=np.ones(1)).policy
            assert found.actions[:-1, 0].tolist() == [0] * (H - 1)  # staying for 0.5 beats 0.7 and leaving
            assert found.actions[-1, 0] == 1
    kept = offline.fit(rows, LogFormat(1, 2, H, True, early_end="keep"), Budget.pure(5.0), seed=0).policy
    assert kept.actions[0, 0] == 1  # the rows alone do not say that people left


def test_lower_values_hold_and_say_something_with_enough_users():
    mdp, episodes = played("riverswim", 20_000)
    log = described(mdp, pooled=True, early_end="keep")
    counts = StepCounts.of(episodes, log.spec)
    cells = Items.of(6, 2, 20, True)
    actions = np.ones((20, 6), dtype=np.int64)
    policy = np.zeros((20, 6, 2))
    policy[..., 1] = 1.0
    truth, _ = policy_values(true_model(mdp), policy)
    best = 0.0
    for seed in range(20):
        stream = OneHot(Budget.pure(50.0)).open(log.spec, cells, 20_000, NoiseSource.seeded(seed))
        stream.add(counts)
        lower = histogram_lower_values(stream.release(), actions, 400_000)
        one = OneShot(Budget.pure(50.0)).open(log.spec, 20_000, NoiseSource.seeded(seed))
        one.add(counts.counts())
        plain, other = counted_values(one.release(), actions)
        for bound in (lower, other):
            assert (bound <= truth + 1e-9).all()
            best = max(best, bound[0, 0] / truth[0, 0])
        assert plain[0] == pytest.approx(truth[0], rel=0.3)
    assert best > 0.3


def test_warnings_say_what_the_release_cannot_carry():
    mdp, episodes = played("riverswim", 50)
    found = offline.fit(episodes, described(mdp), Budget.pure(0.1), seed=0, anyway=True)
    assert any("vacuous" in line and "are needed" in line for line in found.warnings)
    assert found.certificate["estimate"]["covered_state_actions"] < 0.2
    enough = offline.fit(played("riverswim", 20_000)[1], described(mdp, pooled=True), Budget.zcdp(2.0), seed=0)
    assert not any("vacuous" in line for line in enough.warnings)
    assert enough.certificate["estimate"]["covered_state_actions"] == 1.0


def test_a_public_start_gives_a_value_and_a_staged_release_its_own():
    mdp, episodes = played("riverswim", 5000)
    budget = Budget.zcdp(20.0)
    staged = offline.fit(episodes, described(mdp), budget, seed=0).certificate["estimate"]
    declared = offline.fit(episodes, described(mdp), budget, seed=0, initial=mdp.initial).certificate["estimate"]
    assert staged["value_estimate"] == pytest.approx(declared["value_estimate"], rel=0.05)
    assert declared["value_lower"] <= declared["value_estimate"] == pytest.approx(3.4, rel=0.1)
    assert declared["width"] == declared["value_estimate"] - declared["value_lower"]
    open_start = offline.fit(episodes, described(mdp, pooled=True), budget, seed=0).certificate["estimate"]
    assert open_start["value_estimate"] is None


def test_repairs_are_told_to_the_holder_and_kept_out_of_the_certificate():
    mdp, episodes = played("riverswim", 200)
    table = table_of(episodes)
    states = np.asarray(table.column("state")).copy()
    states[:37] = 99
    found = offline.fit(table.set_column(2, "state", pa.array(states)), described(mdp), ONE, seed=0)
    assert found.notices[0].startswith("37 rows")
    assert "not private" in found.notices[-1]
    assert "unreadable_rows" not in str(found.certificate)
    assert found.notices[0] not in str(found.certificate)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"initial": np.ones(3) / 3}, "initial has shape"),
        ({"initial": np.ones(6)}, "sum to 1"),
        ({"rewards": np.ones((2, 2))}, "rewards have shape"),
        ({"rewards": np.full((6, 2), 2.0)}, "all in"),
    ],
)
def test_declarations_that_do_not_fit_are_refused(options, words):
    mdp, episodes = played("riverswim", 10)
    with pytest.raises(ValueError, match=words):
        offline.fit(episodes, described(mdp), ONE, seed=0, **options)


def test_a_policy_for_another_problem_cannot_be_evaluated():
    policy = Policy(np.zeros((2, 2), int), np.zeros((2, 2)), np.ones((2, 2), bool), 2)
    with pytest.raises(ValueError, match="riverswim has 6, 2 and 20"):
        offline.evaluate(policy, make("riverswim"))


def test_forecasts_follow_the_noise():
    log = LogFormat(6, 2, 20, pooled=True)
    one = forecast_fit(log, ONE, 1000)
    ten = forecast_fit(log, Budget.pure(10.0), 1000)
    assert one.users_needed == pytest.approx(10 * ten.users_needed, rel=0.02)
    assert one.deviation == pytest.approx(40 * math.sqrt(2))
    assert ten.verdict.startswith("enough")
    assert forecast_fit(log, ONE, 10).verdict.startswith("too few")
    assert forecast_fit(log, ONE, 1000, algorithm="dp-apvi").deviation == pytest.approx(120 * math.sqrt(2), rel=1e-4)
    staged = forecast_fit(LogFormat(6, 2, 20), ONE, 1000)
    assert staged.users_needed == pytest.approx(20 * one.users_needed, rel=0.05)


def test_a_forecast_for_features_needs_each_direction_above_the_noise():
    log, budget = LogFormat(6, 2, 20), Budget.zcdp(1.0)
    one, two = (forecast_fit(log, budget, 1000, algorithm=name, dimension=10) for name in ("dp-pevi", "dp-vapvi"))
    assert one.visits == 100
    assert one.deviation == pytest.approx(math.sqrt(20 * 2.25 / 2), rel=1e-6)  # μ = ρ/H/(1 + ½)², s² = 1/(2μ)
    assert two.deviation == pytest.approx(one.deviation * math.sqrt(39 / 20))
    assert one.users_needed == math.ceil(50 * one.needed_visits)
    assert "directions of the features" in forecast_fit(log, budget, 10**6, algorithm="dp-pevi", dimension=10).verdict


def test_an_estimated_start_is_doubted_as_much_as_noise_and_chance_require():
    """Half the L1 distance from the true start stays within the stated doubt, of which it uses a good part."""
    truth = np.array([0.5, 0.3, 0.2])
    rng = np.random.default_rng(3)
    for users, width in ((50, 0.0), (2000, 0.0), (2000, 60.0), (10**6, 60.0)):
        used = []
        for _ in range(200):
            exact = rng.multinomial(users, truth)
            noisy = exact + rng.uniform(-width, width, 3)
            found = start_of(noisy, width, users)
            used.append(0.5 * np.abs(found.shares - truth).sum() / found.doubt)
        assert max(used) <= 1.0
        assert max(used) > 0.2
    assert start_of(np.zeros(3), 1.0, 10) is None
    assert start_of(np.array([1.0, -5.0, 2.0]), 3.0, 10).doubt == 1.0


def test_a_doubted_start_lowers_the_lower_value_down_to_the_worst_start():
    lower = np.array([[1.0, 3.0], [0.0, 0.0]])
    shares = np.array([0.25, 0.75])
    scale = Scale(0.0, 1.0, 5)
    values = [worth(lower, lower, lower, Start(shares, doubt), scale)["value_lower"] for doubt in (0.0, 0.2, 1.0)]
    assert values == pytest.approx([2.5, 2.1, 1.0])
    assert worth(lower, lower, lower, None, scale)["value_lower"] == 1.0


def test_l3_values_are_in_the_units_of_the_log_and_never_impossible():
    """Rewards between −2 and 6 over 3 steps; whoever left earns 8 a step: 1.25 in scaled units."""
    scale = Scale(-2.0, 6.0, 3, 1.25)
    values = np.array([[1.0, 9.0], [0.5, -9.0], [0.0, 0.0], [0.0, 0.0]])
    assert scale.in_units(values).tolist() == [[2.0, 66.0], [0.0, -76.0], [-2.0, -2.0], [0.0, 0.0]]
    found = worth(values, values - 9.0, values + 9.0, Start(np.array([0.5, 0.5])), scale)
    assert found["possible_values"] == [-6.0, 6.0 + 2 * 8.0]
    assert found["value_lower"] == -6.0
    assert found["value_estimate"] == found["value_cautious"] == 22.0
    assert Scale(-2.0, 6.0, 3).possible()[1].tolist() == [3.0, 2.0, 1.0, 0.0]
    assert Scale(1.0, 2.0, 3, -1.0).possible()[0].tolist() == [-2.0, -1.0, 0.0, 0.0]
