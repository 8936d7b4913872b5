"""Constants and noise are two switches: neither moves the other, and printed noise states what it truly gives."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import discreet
from discreet.agents.apvi import APVI
from discreet.agents.oreps import ConfidenceBoxes
from discreet.agents.policy_optimization import PolicyOptimization, learning_rate, mirror_step
from discreet.agents.vapvi import VAPVI
from discreet.bonuses import ShaniEfroni
from discreet.catalog import ALGORITHMS
from discreet.cli import app
from discreet.cli.listing import forms
from discreet.envs.registry import make
from discreet.envs.tabular import layers
from discreet.occupancies import Layers
from discreet.people.counts import CountSpec
from discreet.people.episodes import MDPSimulator
from discreet.people.losses import LossSpec
from discreet.planning import policy_values
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.trust.local_losses import LocalLosses
from discreet.privacy.trust.losses import CentralLosses
from discreet.privacy.trust.truncated import TruncatedEpochs, TruncatedLocal, TruncatedTree
from discreet.releases.counts import PerTable, PrivateCounts
from discreet.releases.regressions import PrivateRegression
from discreet.runs import results
from discreet.runs.experiment import Experiment, Setting, run
from discreet.runs.simulation import Clock, play, rollouts
from discreet.schedules import EveryEpisode
from discreet.session import Session

ONE = Budget.pure(1.0)
PRINTED = [name for name, entry in ALGORITHMS.items() if "noise" in entry.options]
TINY = {"env": "nonstationary-dirichlet", "states": 2, "horizon": 2, "episodes": 600}
FORMS = [(name, model) for name in PRINTED for model in ALGORITHMS[name].models]


def settings(name: str, model: str, **more: object) -> dict:
    size = {"episodes": 1024} if ALGORITHMS[name].runner == "adversarial" else TINY
    env = {"env": "layered"} if ALGORITHMS[name].runner == "adversarial" else {}
    shuffled = {"delta": 1e-6} if model == "shuffle" else {}
    return {"epsilon": 1.0, "model": model, **size, **env, **shuffled, **more}


def opened(name: str, model: str, **more: object) -> Session:
    setting = Setting.of(Experiment(name, **settings(name, model, **more)))
    return Session.open(setting.triple(), setting.problem, NoiseSource.seeded(0), setting.entry.feedback)


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize(("name", "model"), FORMS)
def test_r1_constants_do_not_move_the_guarantee(name, model):
    for constants in ("practical", "paper"):
        promised = opened(name, model, mode=constants).guarantee
        assert (promised.epsilon, promised.claimed_epsilon) == (1.0, None)


@pytest.mark.parametrize(("name", "model"), FORMS)
@pytest.mark.parametrize("constants", ["practical", "paper"])
def test_r1_printed_noise_states_its_true_guarantee_beside_the_claim(name, model, constants):
    promised = opened(name, model, mode=constants, noise="printed").guarantee
    assert promised.claimed_epsilon == 1.0
    costs = math.fsum(entry.cost for entry in promised.entries)
    assert promised.epsilon == pytest.approx(costs, rel=1e-9)
    assert abs(promised.epsilon - 1.0) > 0.3  # less for shuffled bits, more elsewhere
    assert "claimed in print: ε = 1)" in promised.sentence()
    assert promised.to_json()["claimed_epsilon"] == 1.0


@pytest.mark.parametrize(("name", "model"), FORMS)
def test_r1_noise_does_not_move_the_constants(name, model):
    """Constants reach a learner through its agent; what an agent knows of the noise comes with releases."""
    if name == "private-uob-lbps":  # its practical rate is a formula of the noise
        return
    for constants in ("practical", "paper"):
        one, other = (
            Setting.of(Experiment(name, **settings(name, model, mode=constants, noise=noise))).triple().agent
            for noise in ("true", "printed")
        )
        assert repr(one) == repr(other)


@pytest.mark.parametrize("name", [n for n, entry in ALGORITHMS.items() if entry.runner != "offline"])
def test_a_learner_without_a_printed_scale_says_so(name):
    if name in PRINTED:
        return
    env = "layered" if ALGORITHMS[name].runner == "adversarial" else "riverswim"
    budget = {"epsilon": 1.0} if ALGORITHMS[name].private else {}
    words = "no paper at hand prints a scale" if ALGORITHMS[name].private else "adds no noise"
    with pytest.raises(ValueError, match=f"{words}.*; leave noise out$"):
        Experiment(name, env=env, noise="printed", **budget)


def test_two_words_for_the_same_constants_give_one_id():
    said = ["run", "dp-ucbvi", "--epsilon", "1", "--states", "3", "--horizon", "3", "--episodes", "40", "--json"]
    found = [
        json.loads(CliRunner().invoke(app, [*said, *more.split()]).stdout)
        for more in ("--mode paper", "--constants paper", "--constants paper --noise true")
    ]
    assert len({each["id"] for each in found}) == 1
    assert {each["mode"] for each in found} == {"paper"}
    assert {each["noise"] for each in found} == {"true"}


def test_r1_printed_noise_on_the_command_line():
    said = "run dp-ucbvi --constants paper --noise printed --epsilon 1 --states 3 --horizon 3 --episodes 64 --json"
    found = json.loads(CliRunner().invoke(app, said.split()).stdout)["guarantee"]
    assert found["claimed_epsilon"] == 1.0
    assert found["epsilon"] == pytest.approx(2.0, rel=1e-9)  # L = log₂ 64


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("spotlight --epsilon 1 --noise printed", "no paper at hand prints a scale for the noise of spotlight"),
        ("ucbvi --noise printed", "ucbvi adds no noise"),
        ("dp-ucbvi --epsilon 1 --noise loud", "unknown noise 'loud'; choose one of true, printed"),
        ("dp-ucbvi --epsilon 1 --constants loud", "unknown mode 'loud'"),
        ("dp-ucbvi --epsilon 1 --delta 1e-6 --noise printed", "Laplace noise only; state epsilon alone"),
        ("dp-ucbvi --epsilon 1 --model local --noise printed --local-reports sampled", "is on every counter"),
    ],
)
def test_printed_noise_that_nobody_printed_is_refused(arguments, words):
    assert words in refused("run", *arguments.split(), "--episodes", "20")


def test_a_claim_survives_its_file(tmp_path):
    done = run(Experiment("dp-ucbvi", **settings("dp-ucbvi", "local", episodes=20, noise="printed")), 0)
    results.write(done, tmp_path)
    (again,) = results.read(tmp_path)
    assert again.guarantee == done.guarantee
    assert again.guarantee.claimed_epsilon == 1.0


# The printed scales -------------------------------------------------------------------------------------------------


def test_printed_epochs_have_half_the_noise_and_twice_the_cost():
    spec = CountSpec(3, 2, 4, False)
    stream = Epochs(ONE, calibration="paper").open(spec, 100, NoiseSource.seeded(0))
    assert [entry.scale for entry in stream.ledger] == pytest.approx([12.0, 12.0, 12.0 * spec.reward_units])
    assert stream.guarantee.epsilon == pytest.approx(2.0, rel=1e-9)
    with pytest.raises(ValueError, match="Laplace noise only"):
        Epochs(Budget.zcdp(1.0), calibration="paper")
    with pytest.raises(ValueError, match="calibration"):
        Epochs(ONE, calibration="loose")


@pytest.mark.parametrize("kind", [TruncatedTree, TruncatedEpochs, TruncatedLocal])
def test_f3_printed_noise_of_truncated_rewards_costs_five_thirds(kind):
    K, H = 1024, 3
    levels = 10 if kind is TruncatedTree else 1
    spec = CountSpec(2, 2, H, False, reward_range=None)
    stream = kind(ONE, calibration="paper").open(spec, K, NoiseSource.seeded(0))
    scales = [entry.scale for entry in stream.ledger]
    assert scales == pytest.approx([3 * H * levels, 3 * H * levels, 6 * H * levels * spec.reward_units], rel=1e-6)
    assert stream.guarantee.epsilon == pytest.approx(5 / 3, rel=1e-6)
    assert stream.guarantee.claimed_epsilon == 1.0


def loss_spec(feedback: str, K: int = 1024) -> LossSpec:
    mdp = make("layered")
    return LossSpec.for_episodes(Layers(layers(mdp), mdp.initial, mdp.num_actions), feedback, K)


@pytest.mark.parametrize("feedback", ["full", "bandit"])
@pytest.mark.parametrize("local", [False, True])
def test_printed_noise_of_losses(feedback, local):
    """3H/ε for every table, times log K in a tree. A loss table moves by XA, so that (2H + 2(H−1) + XA)/(3H) ε."""
    K, spec = 1024, loss_spec(feedback)
    H, XA = spec.layers.horizon, spec.layers.num_cells
    if local:
        stream = LocalLosses(ONE, laplace=True, calibration="paper").open(spec, NoiseSource.seeded(0))
        trees = dict.fromkeys(("visits", "transitions", "losses"), 1.0)
    else:
        tree = "constant-tree" if feedback == "full" else "blocks"
        central = CentralLosses(
            ONE, counts="tree", losses=tree, num_count_blocks=K - 1, num_loss_blocks=K - 1, visits=True,
            calibration="paper",
        )  # fmt: skip
        stream = central.open(spec, NoiseSource.seeded(0))
        trees = {"visits": 10.0, "transitions": 10.0, "losses": 10.0 if feedback == "full" else 1.0}
    scales = {entry.statistic: entry.scale for entry in stream.ledger}
    units = {"visits": 1, "transitions": 1, "losses": spec.units}
    assert scales == pytest.approx({name: 3 * H * trees[name] * units[name] for name in units})
    moved = 2 * H + 2 * (H - 1) + (XA if feedback == "full" else 2 * H)
    assert stream.guarantee.epsilon == pytest.approx(moved / (3 * H), rel=1e-6)
    assert stream.guarantee.claimed_epsilon == 1.0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: CentralLosses(Budget.zcdp(1.0), calibration="paper"), "Laplace noise only"),
        (lambda: CentralLosses(ONE, calibration="loose"), "calibration"),
        (lambda: LocalLosses(ONE, calibration="paper"), "on every counter only"),
    ],
)
def test_losses_without_a_printed_scale_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()


# From logs ----------------------------------------------------------------------------------------------------------


def fitted(pooled: bool = False, **options: object) -> discreet.Fitted:
    rng, K, H = np.random.default_rng(0), 300, 2
    states = rng.integers(0, 2, (K, H + 1))
    log = {
        "user": np.repeat(np.arange(K), H),
        "step": np.tile(np.arange(H), K),
        "state": states[:, :-1].ravel(),
        "action": rng.integers(0, 2, K * H),
        "reward": rng.random(K * H),
        "next_state": states[:, 1:].ravel(),
    }
    return discreet.fit(log, discreet.LogFormat(2, 2, H, pooled), ONE, seed=1, anyway=True, **options)


def test_the_printed_noise_of_dp_apvi_is_the_true_one():
    known = np.full((2, 2), 0.5)
    for constants in ("practical", "paper"):
        true, printed = (
            fitted(algorithm="dp-apvi", mode=constants, rewards=known, noise=noise) for noise in ("true", "printed")
        )
        assert true.certificate["guarantee"] == printed.certificate["guarantee"]
        assert [line["scale"] for line in printed.certificate["ledger"]] == pytest.approx([8.0, 8.0])  # 4H/ε
        assert (true.policy.actions == printed.policy.actions).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": "dp-apvi"}, "for known rewards; declare them"),
        ({"algorithm": "one-hot"}, "no paper at hand prints a scale for the noise of one-hot"),
        ({}, "no paper at hand prints a scale for the noise of one-hot"),
    ],
)
def test_logs_have_no_other_printed_noise(options, words):
    with pytest.raises(ValueError, match=words):
        fitted(noise="printed", **options)
    with pytest.raises(ValueError, match="noise is 'loud'; it must be true or printed"):
        fitted(noise="loud")


# As printed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["joint", "local"])
def test_r2_paper_constants_have_the_printed_estimator_and_rate(model):
    said = settings("private-uob-lbps", model, mode="paper")
    plain = Experiment("private-uob-lbps", **said)
    assert plain.resolved.estimator == "paper"
    assert plain.id == Experiment("private-uob-lbps", estimator="paper", **said).id
    agent = Setting.of(plain).triple().agent
    spec = loss_spec("bandit")
    states = sum(len(layer) for layer in spec.layers.states)
    assert (agent.estimator, agent.rate) == ("paper", pytest.approx(math.sqrt(states / 1024)))
    corrected = Setting.of(Experiment("private-uob-lbps", estimator="corrected", **said)).triple().agent
    assert corrected.rate < agent.rate / 3
    practical = Experiment("private-uob-lbps", **settings("private-uob-lbps", model))
    assert practical.resolved.estimator == "corrected"


@pytest.mark.parametrize("name", [n for n, entry in ALGORITHMS.items() if "rate_scale" in entry.options])
@pytest.mark.parametrize("constants", ["practical", "paper"])
def test_r9_rates_are_tunable_and_one_is_the_theorem(name, constants):
    entry = ALGORITHMS[name]
    adversarial = entry.runner == "adversarial"
    said = {"env": "layered", "episodes": 1024} if adversarial else TINY
    budget = {"epsilon": 1.0} if entry.private else {}

    def rate(scale: float) -> float:
        experiment = Experiment(name, mode=constants, rate_scale=scale, **said, **budget)
        agent = Setting.of(experiment).triple().agent
        return agent.rate if adversarial else agent.rate_scale

    assert rate(3.0) == pytest.approx(3.0 * rate(1.0))
    if not adversarial:
        assert rate(1.0) == 1.0
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"rate-scale is .*; it must be a number above 0"):
            rate(wrong)


def test_r9_paper_constants_refuse_pooled_counts_unless_allowed():
    pooled = {"epsilon": 1.0, "mode": "paper", "pooled": True}
    with pytest.raises(ValueError, match="counts of every step, unless --allow-pooled is said; leave pooled out"):
        Experiment("dp-ucbvi", **pooled)
    allowed = Experiment("dp-ucbvi", allow_pooled=True, **pooled)
    assert allowed.resolved.resolved == allowed.resolved
    assert not allowed.resolved.twin.allow_pooled
    for others in ({"pooled": True}, {"mode": "paper"}, {}):
        with pytest.raises(ValueError, match="printed constants on pooled counts; leave allow-pooled out"):
            Experiment("dp-ucbvi", epsilon=1.0, allow_pooled=True, **others)
    Experiment("ucbvi", mode="paper", pooled=True)  # [AOM17] pools
    with pytest.raises(ValueError, match="printed constants of dp-apvi are for counts of every step"):
        fitted(algorithm="dp-apvi", mode="paper", pooled=True)
    assert fitted(algorithm="dp-apvi", mode="paper", pooled=True, allow_pooled=True).policy is not None


def test_r9_a_policy_is_evaluated_on_the_release_that_it_was_made_from():
    """π² = π¹·exp(η·Q̃¹), where Q̃¹ is of π¹ on the empty release: all optimistic, so that π² is uniform as well."""
    shape, K = (2, 2, 2), 100
    empty = PrivateCounts(np.zeros(shape), np.zeros((*shape, 2)), np.zeros(shape), 2, 0)
    visits = np.full(shape, 40.0)
    rewards = np.zeros(shape)
    rewards[:, :, 1] = 40.0  # the second action pays
    seen = PrivateCounts(visits, np.full((*shape, 2), 20.0), rewards, 2, 1)
    later = PrivateCounts(visits, np.full((*shape, 2), 20.0), rewards, 2, 2)
    estimate = ShaniEfroni(K, 0.001)
    printed, ours = (PolicyOptimization(estimate, K, own_release=own) for own in (True, False))
    first = printed.plan(empty, None)
    second = printed.plan(seen, first)
    assert second.policy == pytest.approx(np.full(shape, 0.5))
    assert (ours.plan(seen, ours.plan(empty, None)).policy[..., 1] > 0.5).all()
    model, bonus = estimate(seen)
    _, quality = policy_values(model, second.policy, bonus, (0.0, 1.0))
    assert printed.plan(later, second).policy == pytest.approx(
        mirror_step(second.policy, quality, learning_rate(2, 2, K))
    )


def test_r5_counts_below_zero_are_zero_before_they_are_projected():
    """A row (−50, 30 | total 60 ± 10): the nearest valid counts of the positive parts sum to 50 at least."""
    shape = (1, 2, 1)
    transitions = np.zeros((*shape, 2))
    transitions[0, 0, 0] = (-50.0, 30.0)
    release = PrivateCounts(
        np.full(shape, 60.0), transitions, np.zeros(shape), 1, 100, widths=PerTable(10.0, 10.0, 5.0)
    )
    known = np.zeros(shape)
    model, _ = APVI("paper", rewards=known).estimate(release)
    positive = dataclasses.replace(release, transitions=np.maximum(transitions, 0.0))
    assert model.transitions == pytest.approx(positive.model().transitions)
    assert model.transitions[0, 0, 0] != pytest.approx(release.model().transitions[0, 0, 0])


def test_r5_unknown_rewards_are_charged_in_the_printed_penalty():
    shape, e = (1, 1, 1), 10.0
    n, E = 1000.0, 2 * e
    release = PrivateCounts(
        np.full(shape, n), np.full((*shape, 1), n), np.full(shape, 300.0), 1, 1000, widths=PerTable(e, e, 7.0)
    )
    _, without = APVI("paper", rewards=np.full(shape, 0.3)).estimate(release)
    _, with_rewards = APVI("paper").estimate(release)
    sampled = math.sqrt((n + E) * math.log(2 / 0.1) / 2)
    assert without.fixed - with_rewards.fixed == pytest.approx((sampled + E + 7.0) / n)
    assert (without.per_std == with_rewards.per_std).all()


def test_r9_baselines_say_what_they_are():
    for name, whose in (("uc-o-reps", "RM19"), ("uob-reps", "JJLSY20"), ("apeve", "QYMW22"), ("pucb", "VBKW20")):
        assert ALGORITHMS[name].source == f"[{whose}], recalled"
    for name in ("heavy-ucbvi", "heavy-ucbpo", "uob-lbps"):
        assert "without noise" in ALGORITHMS[name].source


def test_r6_every_practical_form_is_named_as_ours():
    for entry in ALGORITHMS.values():
        two = entry.runner == "offline" or "mode" in entry.options
        assert (entry.practical == "discreet's own learner") == (two and entry.source != "ours")
        assert ("practical: discreet's own learner" in forms(entry)) == (entry.practical is not None)
    assert sum(entry.practical is not None for entry in ALGORITHMS.values()) > 15


def test_r6_the_readme_says_of_every_learner_what_is_printed_and_what_is_ours():
    page = (Path(__file__).parents[2] / "README.md").read_text()
    table = page[page.index("| learners | paper |") :]
    rows = [line.strip("|").split("|") for line in table[: table.index("\n\n")].splitlines()[2:]]
    told = {name: (trust, last) for names, _, trust, _, last in rows for name in re.findall("`([^`]+)`", names)}
    assert set(told) == set(ALGORITHMS)
    for name, entry in ALGORITHMS.items():
        trust, last = told[name]
        assert ("discreet's own" in last or "without noise" in last) == (entry.practical is not None)
        models = {
            model.strip().replace("two servers", "two-servers") for model in re.sub(r"\(.*", "", trust).split(",")
        }
        if name == "pucb":
            assert "`pucb`: joint" in trust
        elif entry.runner == "offline" and entry.private:
            assert models == {"the log's holder"}
        else:
            assert models == (set(entry.models) if entry.private else {"–"})
    assert f"{sum(entry.private for entry in ALGORITHMS.values())} private learners" in page


#: Of β, what the widths of noise may fail with: [QW23] Asm. 3.1; [WZCW23] Asm. 1; [BTZCC25] Asm. 4; [BZZDTCC24]
#: Asm. 2.3 and 4.1 (2δ for counts and δ for losses).
SHARES = {
    "dp-ucbvi": 1 / 3,
    "shuffle-ucbvi": 1 / 3,
    "private-heavy-ucbvi": 1.0,
    "private-heavy-ucbpo": 1.0,
    "sdp-pe": 1.0,
    "private-uc-o-reps": 3.0,
    "private-uob-lbps": 3.0,
}


@pytest.mark.parametrize(("name", "model"), [form for form in FORMS if form[0] in SHARES])
@pytest.mark.parametrize("constants", ["practical", "paper"])
def test_r8_one_failure_probability_is_divided_as_in_the_paper(name, model, constants):
    setting = Setting.of(Experiment(name, **settings(name, model, mode=constants, beta=0.03)))
    agent, privatizer, _ = setting.triple()
    assert privatizer.beta == pytest.approx(0.03 * SHARES[name])
    relied = getattr(agent, "confidence", None) or getattr(agent, "estimate", None) or agent
    assert relied.beta == 0.03


def test_r8_a_smaller_failure_probability_is_paid_for_in_bonus_and_width():
    def paid(beta: float | None) -> tuple[float, float]:
        said = Experiment("dp-ucbvi", **settings("dp-ucbvi", "joint", mode="paper", beta=beta))
        setting = Setting.of(said)
        triple = setting.triple()
        release = triple.privatizer.open(setting.spec, said.episodes, NoiseSource.seeded(0)).release()
        _, found = triple.agent.estimate(release)
        return float(found.fixed.min()), float(release.largest_width.max())

    (bonus, width), (larger_bonus, larger_width) = paid(0.1), paid(0.001)
    assert bonus < larger_bonus
    assert width < larger_width
    assert paid(None) == (bonus, width)


@pytest.mark.parametrize(("name", "model"), [form for form in FORMS if form[0] in SHARES])
def test_r8_printed_constants_have_one_failure_probability_when_none_is_said(name, model):
    """0.1, or the XA/K of the theorems on losses; our own constants keep theirs."""
    setting = Setting.of(Experiment(name, **settings(name, model, mode="paper")))
    adversarial = setting.entry.runner == "adversarial"
    beta = setting.problem.layers.num_cells / setting.said.episodes if adversarial else 0.1
    agent, privatizer, _ = setting.triple()
    relied = getattr(agent, "confidence", None) or getattr(agent, "estimate", None) or agent
    assert relied.beta == pytest.approx(beta)
    assert privatizer.beta == pytest.approx(SHARES[name] * beta)
    assert Setting.of(Experiment(name, **settings(name, model))).triple().privatizer.beta == 0.01


@pytest.mark.parametrize("name", ["private-uc-o-reps", "private-uob-lbps"])
def test_r8_with_hardly_any_users_the_failure_probability_of_losses_stays_below_one(name):
    setting = Setting.of(Experiment(name, env="layered", epsilon=1.0, mode="paper", episodes=4))
    agent, privatizer, _ = setting.triple()
    assert privatizer.beta == pytest.approx(0.5)
    assert agent.confidence.beta == pytest.approx(1 / 6)


def test_r8_confidence_sets_take_the_same_failure_probability():
    spec = loss_spec("full")
    K, XA = 1024, spec.layers.num_cells
    assert ConfidenceBoxes(spec.layers, K).log_iota == pytest.approx(2 * math.log(K))
    assert ConfidenceBoxes(spec.layers, K, beta=XA / K).log_iota == pytest.approx(2 * math.log(K))
    assert ConfidenceBoxes(spec.layers, K, beta=0.01).log_iota == pytest.approx(math.log(XA * K / 0.01))


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.1, math.nan])
def test_r8_failure_probabilities_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match="the failure probability must lie strictly between 0 and 1"):
        Experiment("dp-ucbvi", epsilon=1.0, beta=wrong)


# As printed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, entry in ALGORITHMS.items() if {"mode", "schedule"} <= entry.options])
def test_r9_printed_constants_replan_after_every_episode(name):
    budget = {"epsilon": 1.0} if ALGORITHMS[name].private else {}
    said = Experiment(name, mode="paper", states=3, horizon=3, episodes=40, **budget)
    assert said.resolved.schedule == "every"
    assert isinstance(Setting.of(said).triple().schedule, EveryEpisode)
    with pytest.raises(ValueError, match=r"in paper mode .* plans after every episode; leave schedule out"):
        Experiment(name, mode="paper", schedule="epochs", **budget)


def test_r9_printed_ucbvi_follows_every_release():
    """A plan per user: the loop that is run step by step has as many epochs as users."""
    said = Experiment("ucbvi", mode="paper", states=3, horizon=3, episodes=40)
    assert sum(1 for _ in episodes_of(said)) == 40
    assert sum(1 for _ in episodes_of(Experiment("ucbvi", states=3, horizon=3, episodes=40))) < 40


def episodes_of(said: Experiment):
    setting = Setting.of(said)
    session = Session.open(setting.triple(), setting.problem, NoiseSource.seeded(0))
    simulator = MDPSimulator(setting.mdp, setting.law, np.random.SeedSequence(0), setting.problem.reward_range)
    return play(session, rollouts(simulator), Clock())


@pytest.mark.parametrize("h", [0, 1, 2])
def test_r9_printed_variances_are_cut_at_what_is_left_to_earn(h):
    """Print: ⟨φ,β⟩ in [0, (H−h+1)²] and ⟨φ,θ⟩ in [0, H−h+1], steps counted from 1; here H = 4 and h from 0."""
    H, agent = 4, VAPVI(np.ones((1, 1, 1)), True, "paper", ridge=1.0)
    asked = agent._deviations(h, np.array([0.0, H - h - 1.0]), H - h - 1.0, float(H - h))
    next(asked)
    for square, mean in ((1e9, -1e9), (1e9, 1e9), (3.0, 1.0)):
        asked = agent._deviations(h, np.array([0.0, H - h - 1.0]), H - h - 1.0, float(H - h))
        next(asked)
        found = PrivateRegression(
            np.zeros((1, 1)), (np.array([square]), np.array([mean])), 0.0, 1, 0.0, (0.0, 0.0), 1
        )
        with pytest.raises(StopIteration) as done:
            asked.send(found)
        expected = min(square, (H - h) ** 2) - min(max(mean, 0.0), H - h) ** 2
        assert done.value.value[0, 0] == pytest.approx(math.sqrt(max(1.0, expected)))


def test_r9_at_the_last_step_the_printed_clips_leave_no_variance():
    """[0, 1] and [0, 1]: whatever the two regressions are, σ² = max(1, x − y²) = 1."""
    x, y = np.meshgrid(np.linspace(0, 1, 101), np.linspace(0, 1, 101))
    assert (np.maximum(1.0, x - y**2) == 1.0).all()
    questions = VAPVI(np.eye(2).reshape(2, 1, 2), True, "paper").questions(1, 2, 10)
    assert next(questions).part == "values"
