"""Every count-based learner on a release written by hand: library, independent oracle and stored file agree."""

from __future__ import annotations

import json

import numpy as np
import pytest

from discreet.agents.heavy_tails import HeavyEstimate, HeavyUCBPO, HeavyUCBVI
from discreet.agents.policy_optimization import PolicyOptimization
from discreet.agents.ucbvi import UCBVI
from discreet.bonuses import ChowdhuryZhou, Practical, QiaoWang, Vietri
from discreet.problem import Moments
from discreet.releases.counts import PerTable, PrivateCounts
from oracles_learners import GOLDEN, REWARDS, TRANSITIONS, VISITS, configurations, finite, golden

NAMES = sorted(configurations())


def release_of(config):
    visits, transitions, rewards = config["widths"]
    sd = config["deviation"]
    return PrivateCounts(
        np.array(VISITS),
        np.array(TRANSITIONS),
        np.array(REWARDS),
        horizon=3,
        num_episodes=200,
        widths=PerTable(visits, transitions, rewards),
        deviations=PerTable(sd, sd, sd),
    )


def learner(config):
    """The library's agent, rebuilt from the file alone."""
    K, beta, c = config["num_episodes"], config["beta"], config["scale"]
    kind = config["kind"]
    if kind.startswith("qiao-wang"):
        return UCBVI(QiaoWang(K, kind.removeprefix("qiao-wang-"), c, beta))
    if kind.startswith("practical"):
        return UCBVI(Practical(K, kind.removeprefix("practical-"), c, config["unknown_below"], beta))
    if kind == "vietri":
        return UCBVI(Vietri(K, c, beta))
    if kind == "chowdhury-zhou-vi":
        return UCBVI(ChowdhuryZhou(K, False, c, beta))
    if kind == "chowdhury-zhou-po":
        return PolicyOptimization(ChowdhuryZhou(K, True, c, beta), K)
    estimate = HeavyEstimate(
        K,
        Moments(**config["moments"]),
        config["rate"],
        root=config["root"],
        practical=kind == "heavy-practical",
        policy_optimisation=kind == "heavy-po",
        confidence_scale=c,
        unknown_below=config.get("unknown_below", 0.0),
        shrink_below=config.get("shrink_below", 0.0),
        beta=beta,
    )
    return HeavyUCBPO(estimate, K) if kind == "heavy-po" else HeavyUCBVI(estimate)


def test_every_configuration_has_its_file():
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_library_oracle_and_file_agree(name):
    stored = json.loads((GOLDEN / f"{name}.json").read_text())
    assert stored == json.loads(json.dumps(golden(name)))
    agent, release = learner(stored["config"]), release_of(stored["config"])
    _, bonus = agent.estimate(release)
    assert [cell == "unknown" for cell in np.array(stored["bonus"], dtype=object).ravel()] == list(
        np.isinf(bonus.fixed).ravel()
    )
    known = np.isfinite(bonus.fixed)
    expected = np.array([0.0 if x == "unknown" else x for x in np.array(stored["bonus"], dtype=object).ravel()])
    np.testing.assert_allclose(bonus.fixed[known], expected[known.ravel()], rtol=1e-9)
    plan = agent.plan(release, None)
    np.testing.assert_allclose(plan.quality, stored["quality"], rtol=1e-9, atol=1e-9)
    assert finite(stored["quality"]) == stored["quality"]


@pytest.mark.parametrize("name", NAMES)
def test_the_golden_case_tests_something(name):
    """Some Q lies strictly inside its bounds, and cells differ: a constant answer would not pass."""
    quality = np.array(json.loads((GOLDEN / f"{name}.json").read_text())["quality"])
    ceiling = np.arange(3, 0, -1)[:, None, None] * np.ones_like(quality)
    assert ((quality < ceiling - 1e-9) & (quality > 1e-9)).sum() >= 2
    assert len(np.unique(np.round(quality, 9))) >= 4
