"""Heavy tails: rewards in other units change nothing but the units, and no threshold is changed in silence."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from discreet.agents.heavy_tails import HeavyEstimate, HeavyUCBPO, HeavyUCBVI
from discreet.cli import app
from discreet.people.counts import UNBOUNDED_REWARD, CountSpec
from discreet.planning import Plan
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.truncated import Cut, TruncatedEpochs
from discreet.problem import THRESHOLDS, Moments
from discreet.releases.counts import PrivateCounts, Thresholds
from discreet.runs.experiment import Experiment, run

K = 5000


def release_in(unit: float) -> PrivateCounts:
    """Counts that no reward touches, and reward sums with their noise in a unit."""
    stream = TruncatedEpochs(Budget.pure(8.0)).open(
        CountSpec(3, 2, 4, False, 2.0**-13, None), K, NoiseSource.seeded(0)
    )
    random = np.random.default_rng(1)
    visits = random.integers(1, 900, (4, 3, 2)).astype(float)
    moves = visits[..., None] * random.dirichlet(np.ones(3), (4, 3, 2))
    sums = unit * random.uniform(-2, 2, (4, 3, 2)) * visits
    empty = stream.release()
    widths = replace(empty.widths, visits=30.0, transitions=20.0, rewards=40.0 * unit)
    deviations = replace(empty.deviations, visits=20.0, transitions=15.0, rewards=30.0 * unit)
    return replace(
        empty,
        visits=visits,
        transitions=moves,
        reward_sums=sums,
        widths=widths,
        deviations=deviations,
        num_episodes=1000,
    )


def estimate(unit: float, v: float, **options) -> HeavyEstimate:
    moments = Moments(v, 3.0 * unit ** (1 + v), 0.7 * unit)
    return HeavyEstimate(K, moments, 0.004, confidence_scale=0.05, **options)


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("practical", [True, False])
@pytest.mark.parametrize("v", [0.3, 0.5, 1.0])
@pytest.mark.parametrize("unit", [10.0, 0.1, 3.7])
def test_r7_rewards_in_other_units_scale_means_and_bonuses_alike(unit, v, practical, root):
    model, bonus = estimate(1.0, v, practical=practical, root=root)(release_in(1.0))
    scaled, larger = estimate(unit, v, practical=practical, root=root)(release_in(unit))
    np.testing.assert_allclose(scaled.rewards, unit * model.rewards, rtol=1e-9)
    np.testing.assert_allclose(larger.fixed, unit * bonus.fixed, rtol=1e-9)
    assert np.isfinite(bonus.fixed).any()
    assert (model.rewards != 0).any()


@pytest.mark.parametrize("v", [0.4, 1.0])
@pytest.mark.parametrize("learner", [HeavyUCBVI, lambda estimate: HeavyUCBPO(estimate, K)])
def test_r7_plans_do_not_depend_on_the_unit(learner, v):
    plan = learner(estimate(1.0, v)).plan(release_in(1.0), None)
    scaled = learner(estimate(8.0, v)).plan(release_in(8.0), None)
    np.testing.assert_allclose(scaled.policy, plan.policy, atol=1e-9)
    np.testing.assert_allclose(scaled.quality, 8.0 * plan.quality, rtol=1e-9)
    np.testing.assert_allclose(scaled.announcement.values, 8.0 * plan.announcement.values, rtol=1e-9)
    assert len(np.unique(plan.quality)) > 4


def test_r7_the_practical_bonus_by_hand():
    """Rewards cut at B = (c·u·n)^{1/(1+v)} have a second moment of at most u·B^{1−v}; for v = 1 that is u."""
    release = release_in(1.0)
    _, _, n = release.model()
    known = n >= 60
    iota = np.log(3 * 2 * 4 * np.log2(K) / 0.1)
    moves = 0.7 * 4 * np.sqrt(iota / (2 * n[known]))
    for v in (0.5, 1.0):
        _, bonus = estimate(1.0, v)(release)
        second = 3.0 * (0.004 * 3.0 * n[known]) ** ((1 - v) / (1 + v))
        np.testing.assert_allclose(bonus.fixed[known], 0.05 * (moves + 2 * np.sqrt(second / n[known])), rtol=1e-12)


def test_r7_what_is_announced_is_what_is_in_force():
    """Also where B_n is beyond the thresholds that can be kept."""
    for rate, limit in zip((1e-9, 1e9), THRESHOLDS, strict=True):
        plan = HeavyUCBVI(replace(estimate(1.0, 1.0), rate=rate)).plan(release_in(1.0), None)
        cut = Cut(CountSpec(3, 2, 4, False, 2.0**-13, None))
        cut.announce(plan)
        np.testing.assert_array_equal(plan.announcement.values, limit)
        np.testing.assert_array_equal(cut.levels, plan.announcement.values)


@pytest.mark.parametrize("value", [THRESHOLDS[0] / 2, THRESHOLDS[1] * 2])
def test_r7_a_threshold_that_cannot_be_kept_is_refused_and_not_changed(value):
    cut, nothing = Cut(CountSpec(3, 2, 4, False, 2.0**-13, None)), np.zeros((4, 3, 2))
    with pytest.raises(ValueError, match=r"outside \[0.015625, 4096\]"):
        cut.announce(Plan(nothing, nothing[0], nothing, announcement=Thresholds(np.full((4, 3, 2), value))))
    assert cut.levels is None
    assert THRESHOLDS[1] == UNBOUNDED_REWARD


def test_r7_released_counts_beyond_all_steps_raise_no_threshold():
    release = release_in(1.0)
    wild = replace(release, visits=np.full((4, 3, 2), 1e12))
    found = estimate(1.0, 1.0).thresholds(wild, None).values
    assert found == pytest.approx(2.0 ** (np.ceil(2 * np.log2((0.004 * 3 * K * 4) ** 0.5)) / 2))


@pytest.mark.parametrize(("bound", "key"), [(1e9, "largest_thresholds"), (1e-9, "smallest_thresholds")])
def test_r7_a_run_says_how_many_thresholds_are_at_a_limit(bound, key):
    mean = min(1.0, bound**0.5)
    said = {"moment_bound": bound, "mean_bound": mean, "reward_law": "gaussian", "pooled": True, "episodes": 500}
    found = run(Experiment("heavy-ucbvi", states=3, horizon=4, **said), 0).diagnostics
    other = ({"largest_thresholds", "smallest_thresholds"} - {key}).pop()
    assert (found[key] > 0, found[other]) == (True, 0)
    usual = run(Experiment("heavy-ucbvi", states=3, horizon=4, **{**said, "moment_bound": 2.0, "mean_bound": 1.0}), 0)
    assert (usual.diagnostics[key], usual.diagnostics[other]) == (0, 0)
    assert key not in run(Experiment("ucbvi", states=3, horizon=4, episodes=50), 0).diagnostics


# Limits of thresholds -----------------------------------------------------------------------------------------------


def heavy_run(*more: str):
    said = "run heavy-ucbvi --states 3 --horizon 4 --pooled --reward-law gaussian --episodes 500 --json"
    return CliRunner().invoke(app, [*said.split(), *more])


def test_r7_thresholds_at_a_limit_are_said_on_stderr_and_in_json():
    """A moment bound of 10¹² asks for thresholds far above the largest; one of 10⁻¹⁰ for some below the smallest."""
    for bound, limit, which in (("1e12", 4096.0, "at_largest"), ("1e-10", 2.0**-6, "at_smallest")):
        result = heavy_run("--moment-bound", bound, "--mean-bound", "1e-6")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)["thresholds"]
        assert found["limits"] == [2.0**-6, 4096.0]
        assert found[which][0] > 0
        assert "thresholds for rewards stay within" in result.stderr
        assert f" at {limit:g}" in result.stderr


def test_r7_without_a_limit_in_force_nothing_is_said():
    result = heavy_run("--moment-bound", "2", "--mean-bound", "1")
    found = json.loads(result.stdout)["thresholds"]
    assert (found["at_smallest"], found["at_largest"]) == ([0], [0])
    assert "thresholds" not in result.stderr
    other = CliRunner().invoke(app, ["run", "ucbvi", "--states", "3", "--horizon", "3", "--episodes", "20", "--json"])
    assert "thresholds" not in json.loads(other.stdout)
