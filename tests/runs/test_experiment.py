from __future__ import annotations

import numpy as np
import pytest

from discreet.envs import registry
from discreet.planning import optimal_plan, policy_value, uniform_policy
from discreet.runs import experiment as runner
from discreet.runs import regret, simulation
from discreet.runs.experiment import Experiment, run, run_seeds
from discreet.runs.regret import RegretCurve


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("scale", [0.003, 1.0])
@pytest.mark.parametrize("law", ["bernoulli", "deterministic"])
@pytest.mark.parametrize("name", ["ucbvi", "ucbvi-bernstein"])
def test_the_compiled_loop_is_the_general_loop(monkeypatch, name, law, scale, pooled):
    experiment = Experiment(
        name, schedule="every", episodes=400, pooled=pooled, confidence_scale=scale, reward_law=law, horizon=9
    )
    fast = run(experiment, seed=5)
    monkeypatch.setattr(runner, "compilable", lambda *_: False)
    general = run(experiment, seed=5)
    assert (fast.regret == general.regret).all()
    assert (fast.switches, fast.final_value) == (general.switches, general.final_value)
    assert fast.switches > 0 or scale == 1.0


def test_chunks_do_not_change_a_run(monkeypatch):
    experiments = [Experiment(name, episodes=900, horizon=9) for name in ("ucbvi", "oppo")]
    experiments.append(Experiment("ucbvi-bernstein", episodes=900, horizon=9, schedule="every"))
    whole = [run(experiment, 1).regret for experiment in experiments]
    monkeypatch.setattr(simulation, "CHUNK", 70)
    for experiment, expected in zip(experiments, whole, strict=True):
        assert (run(experiment, 1).regret == expected).all()


def test_regret_sums_over_all_episodes_and_checkpoints_only_select():
    """Three policies for 3, 4 and 5 users, in pieces: every checkpoint equals the direct sum."""
    mdp = registry.make("riverswim", 3, 4)
    rng = np.random.default_rng(0)
    policies = [rng.dirichlet(np.ones(2), size=(4, 3)) for _ in range(2)] + [optimal_plan(mdp).actions]
    curve = RegretCurve(mdp, 12)
    for index, users in ((0, 1), (0, 2), (1, 4), (2, 3), (2, 2)):
        curve.add(policies[index], users)
    best = mdp.initial @ optimal_plan(mdp).value[0]
    gaps = np.repeat([best - policy_value(mdp, p) for p in policies], (3, 4, 5))
    np.testing.assert_allclose(curve.regret, np.cumsum(gaps)[curve.checkpoints - 1], atol=1e-12)
    assert curve.checkpoints[-1] == 12
    assert curve.switches == 2
    assert curve.last == pytest.approx(best)


def test_each_distinct_policy_is_evaluated_once(monkeypatch):
    mdp = registry.make("riverswim", 3, 4)
    calls = []
    monkeypatch.setattr(regret, "policy_value", lambda m, p: calls.append(1) or policy_value(m, p))
    curve = RegretCurve(mdp, 100)
    one, two = uniform_policy((4, 3, 2)), np.zeros((4, 3), dtype=np.int64)
    for policy in (one, two, one, two, two, one):
        curve.add(policy, 5)
    assert len(calls) == 3  # the yardstick and the two policies
    assert curve.switches == 4


def test_the_uniform_policy_has_ratio_one():
    mdp = registry.make("riverswim")
    curve = RegretCurve(mdp, 1000)
    curve.add(uniform_policy((20, 6, 2)), 1000)
    assert curve.regret[-1] == pytest.approx(1000 * (curve.optimal - curve.random), rel=1e-12)


@pytest.mark.parametrize(("name", "limit"), [("ucbvi-bernstein", 0.10), ("ucbvi", 0.30), ("oppo", 0.15)])
def test_default_settings_learn_riverswim(name, limit):
    ratios = [run(Experiment(name), seed).regret_ratio for seed in (201, 202, 203)]
    assert max(ratios) <= limit
    assert min(ratios) > 0.0


def test_the_theorems_constant_does_not_learn_in_this_many_episodes():
    assert run(Experiment("ucbvi", confidence_scale=1.0), 0).regret_ratio > 0.95


def test_processes_and_order_do_not_change_a_run():
    experiment = Experiment("ucbvi-bernstein", episodes=2000, horizon=8)
    alone = [run(experiment, seed) for seed in (3, 4, 5)]
    parallel = run_seeds(experiment, [3, 4, 5], jobs=2)
    for one, other in zip(alone, parallel, strict=True):
        assert one.seed == other.seed
        assert (one.regret == other.regret).all()
    assert (alone[0].regret != alone[1].regret).any()


def test_environment_and_noise_are_independent_streams():
    """Drawing more noise must not move the users."""
    environment, noise = runner.generators(7)
    again, _ = runner.generators(7)
    noise.words(1000)
    one, two = np.random.default_rng(environment), np.random.default_rng(again)
    assert (one.random(5) == two.random(5)).all()
    assert noise.simulation
    assert not runner.generators(None)[1].simulation


def test_an_id_names_an_experiment():
    ids = {Experiment("ucbvi").id, Experiment("ucbvi", pooled=True).id, Experiment("ucbvi", episodes=5).id}
    assert len(ids) == 3
    assert Experiment("ucbvi").id == Experiment("ucbvi", env="riverswim").id


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"algorithm": "ucvbi"}, "did you mean 'ucbvi'"),
        ({"algorithm": "ucbvi", "env": "riverswin"}, "riverswim"),
        ({"algorithm": "ucbvi", "episodes": 0}, "episodes is 0"),
        ({"algorithm": "ucbvi", "schedule": "daily"}, "unknown schedule 'daily'"),
        ({"algorithm": "ucbvi", "confidence_scale": -1.0}, "confidence-scale is -1.0"),
        ({"algorithm": "ucbvi", "epsilon": 1.0}, "not private"),
    ],
)
def test_bad_experiments_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Experiment(**fields)


def test_a_staged_process_cannot_be_pooled():
    with pytest.raises(ValueError, match="cannot be pooled"):
        run(Experiment("ucbvi", env="swapswim", pooled=True))
