"""Calibration: known scales, agreement with the streams that are run, and a verdict that means something."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from discreet.envs.registry import make
from discreet.envs.rewards import RewardLaw
from discreet.people.counts import CountSpec
from discreet.people.episodes import MDPSimulator
from discreet.planning import uniform_policy
from discreet.privacy.accounting import Budget, rho_of
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.exact import Exact
from discreet.privacy.sums.tree import Tree
from discreet.privacy.trust.local import LocalLaplace, LocalSampled
from discreet.privacy.trust.truncated import TruncatedEpochs, TruncatedLocal, TruncatedTree
from discreet.runs import feasibility
from discreet.runs.feasibility import calibrate, forecast_noise
from discreet.schedules import EveryEpisode, GeometricEpochs


def test_the_tree_of_twenty_thousand_users():
    """L = 15 levels of 19 999 prefixes, and 6·H·L/ε = 1800 on every node."""
    found = calibrate(6, 2, 20, 20_000, 1.0, schedule="every")
    assert found.levels == 15
    assert found.families["N"].scale == pytest.approx(1800, rel=1e-6)
    assert found.families["T"].scale == pytest.approx(1800, rel=1e-6)
    assert found.families["R"].scale * found.grid == pytest.approx(1800, rel=1e-6)
    assert [noise.budget for noise in found.families.values()] == pytest.approx([1 / 3] * 3, rel=1e-12)
    assert (found.families["N"].l1, found.families["N"].l2) == (40.0, math.sqrt(40))
    assert found.guarantee.epsilon == 1.0
    assert not found.forecast.feasible


@pytest.mark.parametrize(
    ("options", "levels", "scale"),
    [
        ({}, 1, 6 * 20 / 1.0),
        ({"neighbours": "zero-out"}, 1, 3 * 20 / 1.0),
        ({"pooled": True}, 1, 6 * 20 / 1.0),
        ({"schedule": "every", "neighbours": "zero-out"}, 15, 3 * 20 * 15 / 1.0),
        ({"model": "local"}, 1, 6 * 20 / 1.0),
        ({"delta": 1e-6}, 1, math.sqrt(2 * 20) * math.sqrt(3 / (2 * rho_of(1.0, 1e-6)))),
        ({"delta": 1e-6, "pooled": True}, 1, math.sqrt(2) * 20 * math.sqrt(3 / (2 * rho_of(1.0, 1e-6)))),
        ({"delta": 1e-6, "schedule": "every"}, 15, math.sqrt(40) * math.sqrt(45 / (2 * rho_of(1.0, 1e-6)))),
    ],
)
def test_scales_by_hand(options, levels, scale):
    found = calibrate(6, 2, 20, 20_000, 1.0, **options)
    assert found.levels == levels
    assert found.families["N"].scale == pytest.approx(scale, rel=1e-8)


@pytest.mark.parametrize(
    ("privatizer", "schedule"),
    [
        (Tree(Budget.pure(1.0)), EveryEpisode()),
        (Epochs(Budget.pure(1.0)), GeometricEpochs()),
        (LocalLaplace(Budget.pure(1.0)), GeometricEpochs()),
        (LocalSampled(Budget.pure(1.0)), GeometricEpochs()),
    ],
)
def test_the_forecast_is_what_a_run_meets(privatizer, schedule):
    """Play real users: the last release has the width and deviation that were announced without any."""
    K, mdp = 40, make("riverswim", 3, 4)
    spec = CountSpec.for_episodes(3, 2, 4, True, K)
    stream = privatizer.open(spec, K, NoiseSource.seeded(5))
    simulator = MDPSimulator(mdp, RewardLaw(), 1)
    done, release = 0, stream.release()
    while done < K:
        users = min(schedule.length(done), K - done)
        stream.add(simulator.rollout(uniform_policy((4, 3, 2)), users))
        done += users
        if done < K:
            release = stream.release()
    announced = forecast_noise(privatizer, spec, K, schedule)
    width = max(float(np.max(release.widths.visits)), float(np.max(release.widths.transitions)))
    assert announced.width_share == pytest.approx(width / K, rel=1e-12)
    local = isinstance(privatizer, (LocalLaplace, LocalSampled))
    expected = float(np.max(release.deviations.visits)) * (math.sqrt(K / release.num_episodes) if local else 1.0)
    assert announced.deviation == pytest.approx(expected, rel=1e-12)
    assert announced.visits == K * 4 / 6


@pytest.mark.parametrize(
    ("options", "feasible"),
    [
        ({"pooled": True}, True),  # RiverSwim: learned, .30 of random
        ({}, False),  # staged: .999
        ({"num_states": 3, "horizon": 6}, True),  # .42
        ({"num_states": 16, "num_actions": 4, "horizon": 15, "pooled": True}, False),  # two rooms: .999
        ({"num_episodes": 200_000}, True),  # .74
        ({"epsilon": 0.2, "pooled": True}, False),  # .89
    ],
)
def test_the_verdict_agrees_with_what_prototypes_learned(options, feasible):
    common = {"num_states": 6, "num_actions": 2, "horizon": 20, "num_episodes": 20_000, "epsilon": 1.0}
    found = calibrate(**{**common, **options})
    assert found.forecast.feasible is feasible
    assert (" can be learned" in found.forecast.verdict) is feasible


def test_the_advice_works():
    """Following either number of the verdict makes it favourable, and half of it does not."""
    verdict = calibrate(6, 2, 20, 20_000, 1.0).forecast.verdict
    users = int(re.search(r"collect about ([0-9,]+) users", verdict)[1].replace(",", ""))
    epsilon = float(re.search(r"raise epsilon to about ([0-9.]+)", verdict)[1])
    assert "pool the steps" in verdict
    assert calibrate(6, 2, 20, users, 1.0).forecast.feasible
    assert not calibrate(6, 2, 20, users // 2, 1.0).forecast.feasible
    assert calibrate(6, 2, 20, 20_000, epsilon).forecast.feasible
    assert not calibrate(6, 2, 20, 20_000, epsilon / 2).forecast.feasible


def test_the_local_model_also_shows_one_sampled_step_per_user():
    """At ε = 10 it has a tenth of the noise of Laplace noise on all steps; other models have no such line."""
    found = calibrate(6, 2, 20, 20_000, 10.0, model="local", pooled=True)
    assert found.sampled == forecast_noise(
        LocalSampled(Budget.pure(10.0)),
        CountSpec.for_episodes(6, 2, 20, True, 20_000),
        20_000,
        GeometricEpochs(),
    )
    assert found.sampled.deviation < 0.1 * found.forecast.deviation
    assert found.to_json()["sampled"]["deviation"] == found.sampled.deviation
    assert calibrate(6, 2, 20, 20_000, 10.0).sampled is None


def test_local_reports_need_the_square_of_the_missing_factor():
    found = calibrate(6, 2, 20, 20_000, 1.0, model="local").forecast
    users = feasibility.users_needed(
        LocalLaplace(Budget.pure(1.0)), CountSpec(6, 2, 20, False), GeometricEpochs(), 20_000
    )
    expected = 20_000 * (feasibility.NEEDED_SIGNAL / found.signal) ** 2
    assert expected * 0.99 <= users <= expected * 1.15  # rounded up to two digits


@pytest.mark.parametrize(
    ("truncated", "plain", "schedule"),
    [
        (TruncatedEpochs(Budget.pure(2.0), "zero-out"), Epochs(Budget.pure(2.0), "zero-out"), GeometricEpochs()),
        (TruncatedTree(Budget.pure(2.0)), Tree(Budget.pure(2.0)), EveryEpisode()),
        (TruncatedLocal(Budget.pure(2.0)), LocalLaplace(Budget.pure(2.0)), GeometricEpochs()),
    ],
)
def test_thresholds_on_rewards_leave_the_noise_on_counts_alone(truncated, plain, schedule):
    spec = CountSpec(3, 2, 4, True)
    unbounded = CountSpec(3, 2, 4, True, reward_range=None)
    assert forecast_noise(truncated, unbounded, 500, schedule) == forecast_noise(plain, spec, 500, schedule)


def test_nothing_can_be_learned_before_anybody_was_seen():
    for schedule in ("every", "epochs"):
        assert not calibrate(2, 2, 1, 1, 1.0, schedule=schedule).forecast.feasible


def test_without_noise_everything_can():
    spec = CountSpec(6, 2, 20, False)
    assert forecast_noise(Exact(), spec, 1000, GeometricEpochs()).feasible


def test_json_is_strict_and_complete():
    found = json.loads(json.dumps(calibrate(6, 2, 20, 1000, math.inf).to_json(), allow_nan=False))
    assert {"levels", "grid", "families", "guarantee", "feasible", "verdict", "width_share"} <= set(found)
    assert set(found["families"]) == {"N", "T", "R"}
    assert {"l1", "l2", "budget", "scale", "width"} <= set(found["families"]["N"])
    assert found["families"]["N"]["budget"] is None  # infinite


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon is 0; it must be positive"),
        ({"epsilon": math.nan}, "epsilon is nan; it must be positive"),
        ({"epsilon": 1.0, "delta": -0.1}, "delta is -0.1"),
        ({"epsilon": 1.0, "delta": math.nan}, "delta is nan"),
        ({"delta": 1.5}, "delta"),
        ({"num_episodes": 0}, "episodes is 0; it must be at least 1"),
        ({"horizon": -1}, "horizon is -1"),
        ({"model": "shuffled"}, "unknown model 'shuffled'"),
        ({"schedule": "never"}, "unknown schedule 'never'"),
        ({"model": "local", "neighbours": "zero-out"}, "must be 'replace'"),
        ({"model": "local", "delta": 1e-6, "rho": 0.1}, "either epsilon (with or without delta) or rho"),
    ],
)
def test_bad_input_is_refused(options, message):
    common = {"num_states": 2, "num_actions": 2, "horizon": 2, "num_episodes": 10, "epsilon": 1.0}
    with pytest.raises(ValueError, match=re.escape(message)):
        calibrate(**{**common, **options})


def test_one_targeted_report_per_user_needs_fewer_users_than_counts():
    """RiverSwim, pooled, 20 000 users: at ε = ½ counts drown and Spotlight does not; its users follow 45·cells/ε."""
    found = calibrate(6, 2, 20, 20_000, 0.5, pooled=True)
    assert found.spotlight is not None
    assert found.spotlight.feasible
    assert found.to_json()["spotlight"]["feasible"] is True
    small = calibrate(6, 2, 20, 500, 0.5, pooled=True).spotlight
    assert small is not None
    assert not small.feasible
    assert "between 890 and 1,400 users" in small.verdict  # 12/0.5 cells·(25 + 12·√b) for b = 1 and 6
    assert calibrate(6, 2, 20, 1000, 1.0, delta=1e-6).spotlight is None  # it spends pure epsilon


def test_whole_loss_tables_move_by_all_their_cells():
    """S=2, A=3, H=4: X·A = 24 cells; 63 prefixes, so 6 levels; a third of ε each: scale 24·6·3 in natural units."""
    found = calibrate(2, 3, 4, 64, 1.0, schedule="every", losses=True)
    losses = found.families["losses"]
    units = 1 / found.grid
    assert losses.l1 == 24 * units
    assert losses.budget == pytest.approx(1 / 3, rel=1e-8)
    assert losses.scale == pytest.approx(24 * 6 * 3 * units, rel=1e-6)
    assert found.families["T"].l1 == 6  # 2(H−1): the last step leads nowhere
    assert found.guarantee.epsilon == 1.0
    assert not found.forecast.feasible
    assert calibrate(2, 3, 4, 10**6, 5.0, losses=True).forecast.feasible
    assert set(found.to_json()["families"]) == {"N", "T", "losses"}
    halves = calibrate(2, 3, 4, 64, 1.0, losses=True)
    assert set(halves.families) == {"T", "losses"}
    assert halves.families["losses"].scale == pytest.approx(24 * 2 * units, rel=1e-6)
