"""The instances of the lower bounds, by name: gaps, tails, depths, reference instances and critical gaps, by hand."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from discreet.cli import app
from discreet.envs import make, spec, tabular
from discreet.planning import optimal_plan, policy_value, uniform_policy
from discreet.runs.experiment import Experiment, run


def values(name: str, instance: int = 0) -> tuple[float, float]:
    mdp = make(name, instance=instance)
    shape = mdp.horizon, mdp.num_states, mdp.num_actions
    return float(mdp.initial @ optimal_plan(mdp).value[0]), policy_value(mdp, uniform_policy(shape))


def test_r10_the_tree_of_figure_2_has_the_value_of_its_best_leaf():
    """S = 15, A = 3. With v = 1 and gap ½γ = 0.2: γ = 0.4, P(+) = γ² = 0.16 at the best leaf and 0.08 elsewhere."""
    mdp = make("heavy-local:depth=2,arms=3,v=1,gap=0.2")
    assert (mdp.num_states, mdp.num_actions, mdp.horizon) == (15, 3, 3)
    optimal, uniform = values("heavy-local:depth=2,arms=3,v=1,gap=0.2")
    assert optimal == pytest.approx(0.16 / 0.4)
    assert uniform == pytest.approx((26 * 0.08 + 0.16) / 27 / 0.4)
    assert tabular.two_point_law(mdp).scale == pytest.approx(1 / 0.4)


def test_r10_no_policy_regrets_anything_in_the_reference_instance_of_figure_2():
    optimal, uniform = values("heavy-local:depth=2,arms=3,v=1,gap=0.2,reference")
    assert optimal == pytest.approx(0.08 / 0.4)
    assert uniform == pytest.approx(optimal)
    played = run(Experiment("ucbvi", env="heavy-local:reference", episodes=50), 0)
    np.testing.assert_allclose(played.regret, 0.0, atol=1e-12)
    assert played.regret_ratio is None


def test_r10_the_first_arm_is_best_in_the_reference_instance_of_the_bandits():
    """v = 1, gap 0.1: γ = 0.5, means are 5/10, 3/10 or 7/10 times γ, that is 2.5, 1.5 or 3.5 gaps."""
    mdp = make("heavy-joint:gap=0.1,v=1,arms=4,reference")
    np.testing.assert_allclose(mdp.rewards[0, :4], [[0.25, 0.15, 0.15, 0.15]] * 4)
    optimal, uniform = values("heavy-joint:gap=0.1,v=1,arms=4,reference")
    assert optimal == pytest.approx(0.25)
    assert uniform == pytest.approx((0.25 + 3 * 0.15) / 4)
    other = make("heavy-joint:gap=0.1,v=1,arms=4", instance=3)
    best = np.where(other.rewards[0, :4].argmax(axis=1) == 0, 0.25, 0.35)
    np.testing.assert_allclose(other.rewards[0, :4].max(axis=1), best)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("arms", [2, 4])
def test_the_depth_is_that_of_the_leaves(depth: int, arms: int):
    mdp = make(f"heavy-local:depth={depth},arms={arms}")
    assert [len(layer) for layer in tabular.layers(mdp)] == [arms**d for d in range(depth + 1)]
    assert tabular.heavy_local_size(depth, arms) == (mdp.num_states, arms**depth)


@pytest.mark.parametrize("v", [0.3, 1.0])
def test_the_gap_is_what_the_best_leaf_earns_above_the_others(v: float):
    mdp = make(f"heavy-local:gap=0.17,v={v}", instance=2)
    means = np.unique(np.round(mdp.rewards[0, 3:7].ravel(), 12))
    assert means[1] - means[0] == pytest.approx(0.17)
    assert means[1] == pytest.approx(2 * means[0])


def test_the_critical_gaps_are_those_of_the_lower_bounds():
    """Bandits: n = 4, A = 3, K = 8·10⁴, ε = ½, v = 1: Δ = (8/4·10⁴)^½ = 0.014142; γ = 5Δ, means 2.5Δ and 3.5Δ.

    Tree: L = 4, A = 2, K = 1000, ε = ½: γ^{1+v} = 8/(32·250) = 0.001; v = 1: the best leaf earns γ = √0.001.
    """
    mdp = make("heavy-joint:users=80000,epsilon=0.5,v=1", instance=1)
    means = np.sort(mdp.rewards[0, :4], axis=1)
    np.testing.assert_allclose(means[:, -1] - means[:, -2], 0.0002**0.5)
    eight = make("heavy-joint:users=80000,epsilon=0.5,v=1", states=10)
    wide = np.sort(eight.rewards[0, :8], axis=1)
    np.testing.assert_allclose(wide[:, -1] - wide[:, -2], 0.0004**0.5)
    assert values("heavy-local:users=1000,epsilon=0.5,v=1")[0] == pytest.approx(0.001**0.5)


def test_one_instance_has_one_name():
    names = ("heavy-local:v=1,gap=.2", "heavy-local: gap = 0.2 , v=1.0,depth=2", "heavy-local:gap=2e-1,v=1,arms=2")
    assert len({spec(name).name for name in names}) == 1
    assert len({Experiment("ucbvi", env=name, episodes=10).id for name in names}) == 1
    assert spec("heavy-joint:gap=0.1,arms=3").name == spec("heavy-joint:").name == "heavy-joint"
    assert Experiment("ucbvi", env="heavy-joint:gap=.1").id == Experiment("ucbvi", env="heavy-joint").id
    assert Experiment("ucbvi", env="heavy-joint:gap=.05").id != Experiment("ucbvi", env="heavy-joint").id


def test_a_hard_instance_is_played_from_the_command_line():
    line = ["run", "private-heavy-ucbvi", "--env", "heavy-joint:users=20000,epsilon=1,v=1", "--epsilon", "1"]
    found = CliRunner().invoke(app, [*line, "--episodes", "200", "--moment-bound", "1", "--json"])
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert document["env"] == "heavy-joint:epsilon=1.0,users=20000,v=1.0"
    gap = (2 * 4 / 20000) ** 0.5
    assert 2.5 * gap <= document["value_optimal"] <= 3.5 * gap


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("heavy-local:x=1", "it takes gap="),
        ("heavy-local:v=1,v=1", "at most once"),
        ("heavy-joint:depth=2", "it takes gap="),
        ("heavy-joint:reference=yes", "reference, users="),
        ("heavy-joint:gap", "it takes gap="),
        ("heavy-local:v=one", "it must be a number"),
        ("heavy-local:depth=1.5", "it must be a whole number"),
        ("heavy-local:depth=0", "depth is 0"),
        ("heavy-local:depth=99", "more than 5000 states"),
        ("heavy-local:arms=1", "arms is 1"),
        ("heavy-local:gap=-1,v=.3", "gap is -1"),
        ("heavy-local:gap=.6", "it must lie in (0, 0.45428]"),
        ("heavy-local:gap=nan", "gap is nan"),
        ("heavy-joint:gap=.2", "gap is 0.2"),
        ("heavy-joint:v=2", "v is 2"),
        ("heavy-joint:users=100", "give both"),
        ("heavy-joint:users=100,epsilon=inf", "epsilon is inf"),
        ("heavy-joint:users=100,epsilon=1,gap=.1", "not both"),
        ("heavy-local:users=1,epsilon=1,gap=.1", "not both"),
        ("heavy-joint:users=10,epsilon=1", "too few for the lower bound"),
        ("heavy-local:users=1,epsilon=.1", "too few for the lower bound"),
        ("riverswim:gap=1", "unknown environment"),
    ],
)
def test_what_no_instance_has_is_refused_in_one_sentence(name: str, told: str):
    with pytest.raises(ValueError, match=re.escape(told)) as refused:
        make(name)
    assert "\n" not in str(refused.value)


def test_a_reference_instance_is_not_random():
    with pytest.raises(ValueError, match="not random"):
        make("heavy-local:reference", instance=1)
