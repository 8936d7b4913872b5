"""Privatizers of shuffled bits: calibration, releases, windows, announced batches, reports, bad input."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

from discreet.agents.spotlight import Spotlight
from discreet.agents.ucbvi import UCBVI
from discreet.bonuses import Practical
from discreet.device.bits import HALF, Changes, CountBits
from discreet.envs.rewards import RewardLaw
from discreet.envs.tabular import riverswim
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes, MDPSimulator
from discreet.planning import Plan
from discreet.privacy import binomial
from discreet.privacy.accounting import Budget
from discreet.privacy.audit.attacks import MECHANISMS, Settings, audit
from discreet.privacy.audit.games import audited
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.shuffle import Shuffle, ShuffleBatches, summed_bits
from discreet.privacy.trust.shuffle_law import BitLaw, honest_epsilon
from discreet.privacy.trust.shuffle_reports import ShuffleNoise, ShuffleReports
from discreet.privacy.trust.shuffler import Shuffler
from discreet.problem import PublicStructure
from discreet.releases.batches import Batch
from discreet.releases.reports import Targets
from discreet.runs.experiment import Experiment, Setting, run
from discreet.runs.feasibility import calibrate, forecast_noise
from discreet.schedules import GeometricEpochs
from oracles_streams import random_episodes, stacked

BUDGET = Budget.approximate(1.0, 1e-6)
ENDLESS = Budget.approximate(math.inf, 1e-6)
ALLOWED = {"epsilon_at_most": 1.0, "delta_at_most": 1e-6}
STAGED, POOLED = (CountSpec(3, 2, 4, pooled, 2.0**-4) for pooled in (False, True))
KINDS = (Shuffle(BUDGET), Shuffle(BUDGET, window="restart"), Shuffle(BUDGET, calibration="paper"))


def flat(release):
    return np.concatenate([release.visits.ravel(), release.transitions.ravel(), release.reward_sums.ravel()])


def plan_of(announcement, spec):
    H, S, A = spec.horizon, spec.num_states, spec.num_actions
    return Plan(np.full((H, S, A), 1 / A), np.zeros((H + 1, S)), np.zeros((H, S, A)), announcement=announcement)


# How much noise -----------------------------------------------------------------------------------------------------


def test_few_users_toss_more_coins_and_many_toss_unfair_ones():
    law = BitLaw(1.0, 1e-6, Changes(1, 1))
    assert [law.bits(n).each for n in (2, 10, 100, 148, 149, 10_000)] == [74, 15, 2, 1, 1, 1]
    for n in (2, 10, 100, 148, 500, 10_000):
        bits = law.bits(n)
        assert binomial.delta_of(bits.each * n, bits.probability, 1, 1, 1.0) <= 1e-6
        assert law.variance(n) == pytest.approx(n * bits.each * bits.probability * (1 - bits.probability))
        assert 6.0 <= math.sqrt(law.variance(n)) <= 6.6
    assert law.bits(10_000).flips < law.bits(500).flips < HALF


def test_f15_changes_follow_the_relation_and_the_batch():
    assert Shuffle(BUDGET).law(STAGED).changes == (12, 12)
    assert Shuffle(BUDGET, "zero-out").law(STAGED).changes == (12, 0)
    assert Shuffle(BUDGET).law(CountSpec(2, 2, 20, True)).changes == (12, 12)  # four cells, each visited first once
    assert Shuffle(BUDGET).law(CountSpec(2, 2, 20, False)).changes == (60, 60)
    assert Shuffle(BUDGET).law(STAGED, layer=True).changes == (2, 2)
    assert ShuffleReports(BUDGET).law().changes == (1, 1)
    assert ShuffleReports(BUDGET, "zero-out").law().changes == (1, 0)
    assert Shuffle(BUDGET, "zero-out").law(STAGED).variance(900) < 0.7 * Shuffle(BUDGET).law(STAGED).variance(900)


def test_impossible_targets_name_the_users_needed():
    law = BitLaw(1.0, 1e-6, Changes(9, 9), most_noise_bits=1)
    fair = binomial.fewest_fair_bits(9, 9, 1.0, 1e-6)
    with pytest.raises(ValueError, match=f"at least {fair} users"):
        law.bits(1000)
    assert law.bits(fair).each == 1
    half = BitLaw(1.0, 1e-6, Changes(9, 9), honest=0.5, most_noise_bits=1)
    with pytest.raises(ValueError, match=f"at least {2 * fair} users"):
        half.bits(fair)
    with pytest.raises(ValueError, match="at least 10 users"):
        BitLaw(1.0, 1e-6, Changes(1, 1), honest=0.1).bits(5)


@pytest.mark.parametrize("users", [0, 1])
def test_batches_of_nobody_or_one_are_refused(users):
    with pytest.raises(ValueError, match="at least 2 users"):
        BitLaw(1.0, 1e-6, Changes(1, 1)).bits(users)


def test_dishonest_users_cost_epsilon_unless_they_were_allowed_for():
    law = BitLaw(1.0, 1e-6, Changes(9, 9))
    spent = [honest_epsilon(law, 5000, g) for g in (1.0, 0.8, 0.5)]
    assert spent[0] <= 1.0001 < spent[1] < spent[2]  # ε is found to 10⁻⁴, upwards
    assert spent[2] / spent[0] == pytest.approx(math.sqrt(2), rel=0.1)
    prepared = BitLaw(1.0, 1e-6, Changes(9, 9), honest=0.8)
    assert honest_epsilon(prepared, 5000, 0.8) <= 1.0001
    assert prepared.variance(5000) == pytest.approx(law.variance(5000) / 0.8, rel=0.02)
    assert honest_epsilon(prepared, 5000, 0.5) > 1.0001
    assert honest_epsilon(law, 5, 0.1) == math.inf


def test_f14_printed_noise_states_the_epsilon_that_is_true_of_it():
    """τ = 96·ln(2/δ)·(3H/ε)²: far more than needed, so ε is smaller than claimed, on both branches of n."""
    spec = CountSpec(2, 2, 2, False, 0.5)
    paper = Shuffle(BUDGET, calibration="paper")
    law = paper.law(spec)
    tau = math.ceil(96 * math.log(2e6) * 36)
    assert law.printed == tau
    assert law.bits(1000) == (math.ceil(tau / 1000), HALF)
    assert law.bits(10 * tau).each == 1
    assert law.bits(10 * tau).probability == pytest.approx(0.05)
    stated = paper.open(spec, 10 * tau, NoiseSource.seeded(0)).guarantee
    assert stated.delta == 1e-6
    assert stated.epsilon < 0.2
    assert stated.epsilon == pytest.approx(binomial.epsilon_of(tau, 0.5, 6, 6, 1e-6), rel=0.01)
    assert honest_epsilon(law, 3 * tau, 1.0) <= stated.epsilon
    assert stated.entries[0].scale == pytest.approx(math.sqrt(tau) / 2)


def test_budgets_without_delta_are_refused():
    for budget in (Budget.pure(1.0), Budget.zcdp(1.0)):
        for kind in (Shuffle, ShuffleReports, ShuffleBatches):
            with pytest.raises(ValueError, match="delta above 0"):
                kind(budget)
    with pytest.raises(ValueError, match="most_noise_bits"):
        Shuffle(BUDGET, most_noise_bits=0)
    with pytest.raises(ValueError, match="fraction"):
        Shuffle(BUDGET, honest=1.5)
    with pytest.raises(ValueError, match="'all' or 'restart'"):
        Shuffle(BUDGET, window="last")
    with pytest.raises(ValueError, match="'exact' or 'paper'"):
        Shuffle(BUDGET, calibration="printed")


def test_guarantees_spell_out_what_they_rest_on():
    guarantee = Shuffle(BUDGET, honest=0.9).open(POOLED, 100, NoiseSource.secure()).guarantee
    assert (guarantee.model, guarantee.epsilon, guarantee.delta) == ("shuffle", 1.0, 1e-6)
    assert guarantee.entries[0].sensitivity == 24
    text = " ".join(guarantee.assumptions)
    assert "permutes" in text
    assert "0.9" in text
    zero = ShuffleReports(BUDGET, "zero-out").open(POOLED, 100, NoiseSource.seeded(0)).guarantee
    assert zero.neighbours == "zero-out"
    assert any("simulation" in line for line in zero.assumptions)


# Sums of bits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [STAGED, POOLED], ids=["staged", "pooled"])
def test_the_simulation_sums_what_devices_send(spec):
    """Rewards 0 and 1 leave nothing to the coin: the vectorised sums equal the devices' own ones."""
    stream = Shuffle(ENDLESS).open(spec, 40, NoiseSource.seeded(0))
    users = [Episodes(e.states, e.actions, np.rint(e.rewards)) for e in random_episodes(spec, 40)]
    stream.add(stacked(users))
    form = CountBits(stream.encoder(40).statistic.tables)
    expected = np.zeros(form.num_counters)
    for one in users:
        expected[form.ones(one.states[0], one.actions[0], one.rewards[0], NoiseSource.seeded(1))] += 1
    release = stream.release()
    assert np.array_equal(flat(release), expected)
    assert math.isinf(stream.guarantee.epsilon)
    if not spec.pooled:  # every step is a first visit: plain counts
        counts = Counts.of(stacked(users), spec)
        assert np.array_equal(release.visits, counts.visits)
        assert np.array_equal(release.transitions, counts.transitions)
        assert np.array_equal(release.reward_sums, counts.reward_sums * spec.grid)


def test_rewards_become_unbiased_bits():
    spec = CountSpec(1, 1, 1, False, 2.0**-10, (-1.0, 3.0))
    n = 40_000
    episodes = Episodes(np.zeros((n, 2), np.int64), np.zeros((n, 1), np.int64), np.full((n, 1), 0.2))
    paid = summed_bits(episodes, spec, NoiseSource.seeded(1))[-1]
    assert abs(paid / n - 0.3) < 4 * math.sqrt(0.21 / n)
    clipped = Episodes(episodes.states, episodes.actions, np.full((n, 1), 9.0))
    assert summed_bits(clipped, spec, NoiseSource.seeded(1))[-1] == n


@pytest.mark.parametrize("kind", KINDS, ids=["all", "restart", "paper"])
@pytest.mark.parametrize("spec", [STAGED, POOLED], ids=["staged", "pooled"])
def test_releases_are_drawn_once_and_reproducible(kind, spec):
    def play(noise):
        stream = kind.open(spec, 40, noise)
        assert np.array_equal(flat(stream.release()), flat(stream.release()))
        stream.add(stacked(random_episodes(spec, 15)))
        first = flat(stream.release())
        assert np.array_equal(first, flat(stream.release()))
        stream.add(stacked(random_episodes(spec, 20, seed=1)))
        assert stream.release().num_episodes == 35
        with pytest.raises(ValueError, match="declared"):
            stream.add(stacked(random_episodes(spec, 6)))
        return flat(stream.release())

    assert np.array_equal(play(NoiseSource.seeded(5)), play(NoiseSource.seeded(5)))
    assert not np.array_equal(play(NoiseSource.seeded(5)), play(NoiseSource.seeded(6)))
    assert not np.array_equal(play(NoiseSource.secure()), play(NoiseSource.secure()))


def test_bad_input_leaves_no_trace():
    one, other = (Shuffle(BUDGET).open(STAGED, 20, NoiseSource.seeded(0)) for _ in range(2))
    with pytest.raises(TypeError, match="Counts"):
        one.add(Counts.of(random_episodes(STAGED, 1)[0], STAGED))
    good = stacked(random_episodes(STAGED, 9))
    one.add(good)
    other.add(good)
    assert np.array_equal(flat(one.release()), flat(other.release()))
    one.add(random_episodes(STAGED, 1)[0])
    with pytest.raises(ValueError, match="at least 2 users"):
        one.release()
    with pytest.raises(ValueError, match="reward_range is None"):
        Shuffle(BUDGET).open(CountSpec(2, 2, 2, False, reward_range=None), 5, NoiseSource.seeded(0))
    with pytest.raises(TypeError, match="raw"):
        pickle.dumps(one)
    assert repr(one) == "ShuffleStream(10 of 20 episodes)"


def test_a_collected_batch_is_a_release_like_any_other():
    stream = Shuffle(BUDGET).open(POOLED, 60, NoiseSource.seeded(0))
    encoder, noise = stream.encoder(20), NoiseSource.seeded(1)
    shuffler = Shuffler(encoder, NoiseSource.seeded(2))
    users = random_episodes(POOLED, 20)
    for one in users:
        messages = encoder.encode(one.states[0], one.actions[0], one.rewards[0], noise, **ALLOWED)
        shuffler.submit(messages, encoder.form)
    messages = shuffler.flush()
    stream.collect(encoder, messages)
    release = stream.release()
    assert release.num_episodes == 20
    truth = flat_truth(users, POOLED)
    width = np.broadcast_to(release.widths.visits, release.visits.shape)
    assert (np.abs(release.visits - truth[: release.visits.size].reshape(release.visits.shape)) <= width).all()
    stream.add(users[0])
    with pytest.raises(ValueError, match="waiting"):
        stream.collect(encoder, messages)


def flat_truth(users, spec):
    """First-visit sums with rewards as they are."""
    stream = Shuffle(ENDLESS).open(spec, len(users), NoiseSource.seeded(0))
    stream.add(stacked(users))
    return flat(stream.release())


def test_a_cell_starts_again_when_the_newest_batch_is_clearer():
    """One cell is visited from the second batch on: its window drops the first, the others keep both."""
    spec = CountSpec(1, 2, 1, False, 1.0)
    stream = Shuffle(BUDGET, window="restart").open(spec, 4000, NoiseSource.seeded(0))
    every = Shuffle(BUDGET).open(spec, 4000, NoiseSource.seeded(0))
    for action in (0, 1):
        actions = np.full((2000, 1), action)
        episodes = Episodes(np.zeros((2000, 2), np.int64), actions, np.zeros((2000, 1)))
        for one in (stream, every):
            one.add(episodes)
            one.release()
    release, both = stream.release(), every.release()
    sd = release.deviations.visits[0, 0]
    assert sd[0] == pytest.approx(math.sqrt(2) * sd[1], rel=1e-6)
    assert release.widths.visits[0, 0, 1] < both.widths.visits[0, 0, 1]
    assert release.visits[0, 0, 0] == both.visits[0, 0, 0]
    assert abs(release.visits[0, 0, 1] - 2000) < 6 * sd[1]


def test_widths_hold_for_all_batches_together():
    """β = 0.1: more than 20 failures in 100 runs have probability 10⁻³; and widths are not idle."""
    spec, K = CountSpec(2, 1, 2, False, 0.25), 30
    users = random_episodes(spec, K)
    failures, largest = 0, 0.0
    truth = {i: np.concatenate([c.visits.ravel(), c.transitions.ravel(), c.reward_sums.ravel() * spec.grid])
             for i in (6, 14, 30) for c in [Counts.of(stacked(users[:i]), spec)]}  # fmt: skip
    for seed in range(100):
        stream = Shuffle(BUDGET, beta=0.1).open(spec, K, NoiseSource.seeded(seed))
        worst, done = 0.0, 0
        for until, sums in truth.items():
            stream.add(stacked(users[done:until]))
            release, done = stream.release(), until
            w = release.widths
            widths = np.concatenate([w.visits.ravel(), w.transitions.ravel(), w.rewards.ravel()])
            worst = max(worst, float((np.abs(flat(release) - sums) / widths).max()))
        failures += worst > 1.0
        largest = max(largest, worst)
    assert failures <= 20
    assert largest > 0.5


# Announced batches --------------------------------------------------------------------------------------------------


def test_batches_close_when_all_their_users_have_played():
    stream = ShuffleBatches(None).open(STAGED, 50, NoiseSource.seeded(0))
    users = random_episodes(STAGED, 20)
    with pytest.raises(ValueError, match="no batch"):
        stream.add(users[0])
    crude = plan_of(Batch(1, 12, 2), STAGED)
    stream.begin(crude)
    stream.add(stacked(users[:5]))
    assert stream.release().num_episodes == 0  # still filling up
    with pytest.raises(ValueError, match="5 of 12"):
        stream.begin(plan_of(Batch(2, 8), STAGED))
    stream.begin(crude)
    with pytest.raises(ValueError, match="12 announced"):
        stream.add(stacked(users[5:15]))
    stream.add(stacked(users[5:12]))
    release = stream.release()
    counts = Counts.of(stacked(users[:12]), STAGED)
    assert np.array_equal(release.visits, counts.visits[2:3])
    assert np.array_equal(release.transitions, counts.transitions[2:3])
    assert not release.reward_sums.any()
    assert release.num_episodes == 12
    stream.begin(plan_of(Batch(2, 8), STAGED))
    stream.add(stacked(users[12:]))
    fine = stream.release()
    assert np.array_equal(fine.visits, Counts.of(stacked(users[12:]), STAGED).visits)
    assert stream.guarantee.sentence() == "no privacy"
    with pytest.raises(ValueError, match="announces no batch"):
        stream.begin(plan_of(None, STAGED))


def test_one_layer_needs_far_less_noise():
    stream = ShuffleBatches(BUDGET).open(STAGED, 50, NoiseSource.seeded(0))
    stream.begin(plan_of(Batch(1, 20, 0), STAGED))
    crude = stream.encoder()
    assert crude.num_counters == 6 + 18
    stream.begin(plan_of(Batch(1, 20), STAGED))
    fine = stream.encoder()
    assert fine.num_counters == 4 * (6 + 18 + 6)
    assert crude.noise_bits * 4 < fine.noise_bits
    noise = NoiseSource.seeded(1)
    messages = np.concatenate(
        [fine.encode(e.states[0], e.actions[0], e.rewards[0], noise, **ALLOWED) for e in random_episodes(STAGED, 20)]
    )
    stream.collect(fine, messages)
    release = stream.release()
    assert release.visits.shape == (4, 3, 2)
    assert release.deviations.visits == pytest.approx(math.sqrt(20 * fine.noise_bits) * 0.5, rel=0.01)
    with pytest.raises(ValueError, match="leave pooling out"):
        ShuffleBatches(BUDGET).open(POOLED, 50, NoiseSource.seeded(0))


# Reports ------------------------------------------------------------------------------------------------------------


def test_reports_without_noise_are_the_histogram_and_messages_agree():
    structure = PublicStructure(np.array([1.0, 0.0, 0.0]))
    users = [Episodes(e.states, e.actions, np.rint(e.rewards)) for e in random_episodes(POOLED, 30)]
    streams = [ShuffleReports(ENDLESS, structure=structure).open(POOLED, 60, NoiseSource.seeded(0)) for _ in range(2)]
    targets = Targets(np.array([1, 0, 1, 1, 0, 0], dtype=bool))
    for stream in streams:
        stream.begin(plan_of(targets, POOLED))
    streams[0].add(stacked(users))
    encoder, noise = streams[1].encoder(30), NoiseSource.seeded(2)
    limits = {"epsilon_at_most": math.inf, "delta_at_most": 0.0}
    bundles = [encoder.encode(e.states[0], e.actions[0], e.rewards[0], noise, **limits) for e in users]
    streams[1].collect(encoder, np.concatenate(bundles))
    one, other = (stream.release() for stream in streams)
    assert np.array_equal(one.histogram, other.histogram)
    assert one.histogram.shape == (3, 6)
    assert one.histogram.sum() == sum(bool(set(zip(e.states[0], e.actions[0], strict=False)) &
                                          {(0, 0), (1, 0), (1, 1)}) for e in users)  # fmt: skip
    assert (one.users, one.num_episodes, one.variance) == (30, 30, 0.0)
    with pytest.raises(ValueError, match="no targets"):
        streams[0].add(users[0])


def test_report_noise_is_that_of_one_falling_and_one_rising_bit():
    stream = ShuffleReports(BUDGET).open(POOLED, 10_000, NoiseSource.seeded(0))
    cells = np.zeros(stream.alphabet.num_rows, dtype=bool)
    cells[:2] = True
    stream.begin(plan_of(Targets(cells), POOLED))
    stream.add(stacked(random_episodes(POOLED, 400)))
    release = stream.release()
    assert release.variance == pytest.approx(BitLaw(1.0, 1e-6, Changes(1, 1)).variance(400))
    assert ShuffleNoise(BitLaw(1.0, 1e-6, Changes(1, 1))).variance(400, 5) == pytest.approx(
        release.variance, rel=0.03
    )
    with pytest.raises(TypeError, match="raw"):
        pickle.dumps(stream)


# Whole runs through the three roles ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "privatizer"),
    [
        (UCBVI(Practical(400)), Shuffle(ENDLESS, window="restart")),
        (Spotlight.configured(400, PublicStructure(np.eye(3)[0])), ShuffleReports(ENDLESS)),
        (Spotlight.configured(400, PublicStructure(np.eye(3)[0])), ShuffleReports(BUDGET)),
    ],
    ids=["counts", "reports", "reports with noise"],
)
def test_a_run_through_messages_is_the_run_of_the_simulation(agent, privatizer):
    """Every user encodes at home, every batch is shuffled and verified. Without noise the plans are the same."""
    if isinstance(privatizer, ShuffleReports):
        privatizer = replace(privatizer, structure=PublicStructure(np.eye(3)[0]))
    mdp, spec, K = riverswim(3, 6), CountSpec(3, 2, 6, True, 1.0), 400

    def played(by_messages: bool):
        stream = privatizer.open(spec, K, NoiseSource.seeded(0))
        simulator, noise = MDPSimulator(mdp, RewardLaw(), 3), NoiseSource.seeded(1)
        limits = {"epsilon_at_most": privatizer.budget.epsilon, "delta_at_most": 1e-6}
        schedule, plan, done, policies = GeometricEpochs(1.5, 20), None, 0, []
        while done < K:
            plan = agent.plan(stream.release(), plan)
            users = min(plan.users or schedule.length(done), K - done)
            if isinstance(privatizer, ShuffleReports):
                stream.begin(plan)
            episodes = simulator.rollout(plan.policy, users)
            if by_messages and users >= 2:
                encoder = stream.encoder(users)
                shuffler = Shuffler(encoder)
                for one in zip(episodes.states, episodes.actions, episodes.rewards, strict=True):
                    shuffler.submit(encoder.encode(*one, noise, **limits), encoder.form)
                stream.collect(encoder, shuffler.flush())
            else:
                stream.add(episodes)
            policies.append((users, plan.policy))
            done += users
        return policies, stream.release()

    (one, last), (other, through_messages) = played(False), played(True)
    assert last.num_episodes == through_messages.num_episodes == K
    if privatizer.budget == ENDLESS:
        assert [users for users, _ in one] == [users for users, _ in other]
        assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(one, other, strict=True))
        assert len(one) > 3


# Through the catalog, calibrate and audit ---------------------------------------------------------------------------


def test_shuffled_learners_learn():
    settings = {"states": 3, "horizon": 6, "pooled": True, "epsilon": 1.0, "delta": 1e-6, "model": "shuffle"}
    counts = np.mean([run(Experiment("shuffle-ucbvi", episodes=200_000, **settings), s).regret_ratio for s in (0, 1)])
    assert counts < 0.2
    reports = np.mean([run(Experiment("spotlight", episodes=20_000, **settings), s).regret_ratio for s in (0, 1, 2)])
    assert reports < 0.05


def test_calibrate_knows_the_shuffle_model():
    found = calibrate(3, 2, 3, 20_000, 1.0, 1e-6, model="shuffle")
    assert found.guarantee.model == "shuffle"
    assert found.families["N"].scale == pytest.approx(math.sqrt(1286) / 2, rel=2e-3)
    assert found.families["T"].l1 == 6.0
    assert found.forecast.feasible
    with pytest.raises(ValueError, match="delta above 0"):
        calibrate(3, 2, 3, 20_000, 1.0, model="shuffle")
    with pytest.raises(ValueError, match="batches"):
        calibrate(3, 2, 3, 20_000, 1.0, 1e-6, model="shuffle", schedule="every")
    small = forecast_noise(ShuffleReports(BUDGET), STAGED, 100, GeometricEpochs())
    assert not small.feasible


def test_f13_integers_are_refuted_and_bits_are_not():
    assert audit("paper-integers", 1.0, 2000).refuted
    assert audit("paper-integers", 1.0, 2000).lower_bound > 2.0
    assert not audit("shuffle", 1.0, 20_000, users=300).refuted


def test_too_little_noise_is_caught():
    """The noise of ε = 8 in the name of ε = 1."""
    game = replace(MECHANISMS["shuffle"].game(Settings(8.0, users=200)), claimed=1.0)
    assert audited("mutant", game, 20_000).refuted


@pytest.mark.parametrize("name", ["shuffle-ucbvi", "sdp-pe", "spotlight"])
def test_users_who_drop_their_noise_are_paid_for_by_the_others(name):
    """From the command's option to the noise: half of the users must do for all, and the guarantee says so."""
    options = {"states": 2, "horizon": 2, "episodes": 4000, "epsilon": 1.0, "delta": 1e-6, "model": "shuffle"}
    streams = []
    for honest in (1.0, 0.5):
        experiment = Experiment(name, honest=honest, **options)
        setting = Setting.of(experiment)
        privatizer = setting.triple().privatizer
        assert privatizer.honest == honest
        streams.append(privatizer.open(setting.spec, 4000, NoiseSource.seeded(0)))
    assert any("at least a fraction 0.5" in line for line in streams[1].guarantee.assumptions)
    assert not any("a fraction" in line for line in streams[0].guarantee.assumptions)
    with pytest.raises(ValueError, match="in the shuffle model only"):
        Experiment("dp-ucbvi", epsilon=1.0, honest=0.5)
