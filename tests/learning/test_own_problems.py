"""Problems and learners that are given as objects are measured like those that have a name."""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import dataclass, field

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

import discreet
from discreet import Experiment, FiniteMDP, GymnasiumUsers, PublicStructure, Triple, learn, run, run_seeds
from discreet.agents.ucbvi import UCBVI
from discreet.bonuses import Azar
from discreet.catalog import Algorithm
from discreet.cli import app
from discreet.envs.rewards import RewardLaw
from discreet.people.episodes import MDPSimulator
from discreet.planning import greedy_plan, optimal_plan, policy_value, uniform_policy
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.exact import Exact
from discreet.problem import Problem
from discreet.runs import results
from discreet.runs.identity import fingerprint
from discreet.schedules import EveryEpisode, GeometricEpochs


def own(name="custom", horizon=5, seed=3) -> FiniteMDP:
    g = np.random.default_rng(seed)
    return FiniteMDP(g.dirichlet(np.ones(4), (4, 2)), g.random((4, 2)), np.eye(4)[0], horizon, name)


@dataclass(frozen=True)
class Greedy:
    """Trusts its counts, and explores at random with a share of its users."""

    share: float = 0.3

    def plan(self, release, previous):
        best = greedy_plan(release.model(), release.horizon, num_episodes=release.num_episodes)
        policy = (1 - self.share) * best.policy + self.share * uniform_policy(release.shape)
        return discreet.Plan(policy, best.value, best.quality, release.num_episodes)


def built_by_hand(problem: Problem) -> Triple:
    scale = 0.003 if problem.confidence_scale is None else problem.confidence_scale
    agent = UCBVI(Azar(problem.num_episodes, "bernstein", scale), tie_seed=problem.tie_seed)
    return Triple(agent, Exact() if problem.epsilon is None else Epochs(problem.budget), GeometricEpochs())


# Models -------------------------------------------------------------------------------------------------------------


def test_u4_a_named_problem_and_the_same_model_as_an_object_give_the_same_numbers():
    settings = {"episodes": 400, "epsilon": 1.0, "pooled": True}
    named = run(Experiment("dp-ucbvi", states=4, horizon=5, **settings), 7)
    given = run(Experiment("dp-ucbvi", env=discreet.make("riverswim", 4, 5), **settings), 7)
    assert (named.regret == given.regret).all()
    assert named.guarantee == given.guarantee
    assert given.value_optimal == named.value_optimal


def test_u4_plain_arrays_are_a_stationary_model():
    g = np.random.default_rng(0)
    P, r = g.dirichlet(np.ones(3), (3, 2)), g.random((3, 2))
    plain, staged = FiniteMDP(P, r, np.eye(3)[1], 4), FiniteMDP(P[None], r[None], np.eye(3)[1], 4)
    assert plain.stationary
    assert plain.transitions.shape == (1, 3, 2, 3)
    assert plain == staged
    assert hash(plain) == hash(staged)
    assert FiniteMDP(P.tolist(), r.tolist(), [0, 1, 0], 4) == plain


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"transitions": np.full((3, 2), 0.5)}, r"transitions have shape \(3, 2\); expected"),
        ({"transitions": np.full((3, 2, 4), 0.25)}, r"transitions have shape \(3, 2, 4\); expected"),
        ({"rewards": np.zeros((3, 2, 3))}, r"rewards have shape \(3, 2, 3\); expected \(S, A\) = \(3, 2\)"),
        ({"transitions": np.full((3, 2, 3), 0.3)}, r"row transitions\[0, 0, 0\] sums to 0.9; it must sum to 1"),
        (
            {"rewards": np.full((3, 2), np.nan)},
            r"rewards\[0, 0, 0\] is nan; every mean reward must be a finite number",
        ),
        ({"transitions": [[[1.0], [0.5, 0.5]]]}, "transitions: expected a table of numbers"),
        ({"rewards": "none"}, "rewards: expected a table of numbers"),
        ({"horizon": "ten"}, "horizon is 'ten'; it must be a whole number"),
        ({"horizon": float("nan")}, "horizon is nan; it must be a whole number"),
    ],
)
def test_u4_arrays_that_are_no_model_are_refused_in_one_sentence(change, words):
    arrays = {
        "transitions": np.full((3, 2, 3), 1 / 3),
        "rewards": np.zeros((3, 2)),
        "initial": np.eye(3)[0],
        "horizon": 4,
    }
    with pytest.raises(ValueError, match=words) as error:
        FiniteMDP(**arrays | change)
    assert "\n" not in str(error.value)


def test_u4_an_object_names_its_results_by_its_content(tmp_path):
    first, again, other = (Experiment("ucbvi", env=own(seed=seed), episodes=50) for seed in (3, 3, 4))
    assert first == again
    assert hash(first) == hash(again)
    assert first.id == again.id == first.resolved.id
    assert first != other
    assert first.id != other.id
    assert Experiment("ucbvi", env=own("a name/with all: sorts"), episodes=50).id.startswith(
        "ucbvi-a-name-with-all-sorts-"
    )
    file = results.write(run(first, 0), tmp_path)
    (row,) = results.read(tmp_path)
    assert file.name == f"{first.id}-seed0.parquet"
    assert row.settings["env"] == f"custom@{own().digest[:12]}"
    assert (row.settings["states"], row.settings["horizon"]) == (4, 5)
    assert row.diagnostics["problem"]["sha256"] == own().digest
    assert row.diagnostics["problem"]["actions"] == 2
    assert results.stored_seeds(tmp_path, first.id).keys() == {0}


@pytest.mark.parametrize("table", ["transitions", "rewards", "initial", "horizon"])
def test_u4_every_number_of_a_model_is_in_its_digest(table):
    base = own()
    parts = {name: getattr(base, name) for name in ("transitions", "rewards", "initial", "horizon")}
    changed = parts[table] + 1 if table == "horizon" else np.roll(parts[table], 1, axis=-1)
    assert FiniteMDP(**parts).digest == base.digest
    assert FiniteMDP(**parts | {table: changed}).digest != base.digest


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"states": 5}, "custom always has states 4; it cannot be built with states 5"),
        ({"horizon": 9}, "custom always has horizon 5; it cannot be built with horizon 9"),
        ({"env": 7}, "the environment is 7; expected a name, a FiniteMDP or a Gymnasium environment"),
        ({"env": np.zeros((2, 2))}, "expected a name, a FiniteMDP or a Gymnasium environment"),
        ({"discount": 0.0}, "discount is 0; it must be above 0 and at most 1"),
        ({"discount": float("nan")}, "discount is nan; it must be above 0"),
        ({"discount": "much"}, "discount is 'much'; it must be a number"),
    ],
)
def test_u4_options_that_contradict_an_object_are_refused(said, words):
    with pytest.raises(ValueError, match=words):
        Experiment("ucbvi", **{"env": own()} | said)


def test_u4_an_instance_of_an_object_is_refused():
    with pytest.raises(ValueError, match="custom is not random, so instance must be left at 0"):
        run(Experiment("ucbvi", env=own(), episodes=10, instance=2))


def test_u4_a_staged_object_cannot_be_pooled():
    with pytest.raises(ValueError, match="custom changes with the step"):
        run(Experiment("ucbvi", env=own().staged(), episodes=10, pooled=True))


def test_u4_rewards_of_an_object_keep_their_range_and_take_any_law():
    mdp = own()
    low = FiniteMDP(mdp.transitions, -mdp.rewards, mdp.initial, 5, "costs")
    result = run(Experiment("dp-ucbvi", env=low, episodes=200, epsilon=1.0, pooled=True), 0)
    bottom = f"[{-mdp.rewards.max():g}, {-mdp.rewards.min():g}]"
    assert any(bottom in line for line in result.guarantee.assumptions)
    flat = FiniteMDP(mdp.transitions, np.full((4, 2), -2.0), mdp.initial, 5, "flat")
    assert run(Experiment("dp-ucbvi", env=flat, episodes=50, epsilon=1.0), 0).regret_ratio is None
    gaussian = Experiment("dp-ucbvi", env=mdp, episodes=200, epsilon=1.0, pooled=True, reward_law="gaussian")
    assert run(gaussian, 0).diagnostics["clipped_rewards"] > 0
    assert gaussian.id != Experiment("dp-ucbvi", env=mdp, episodes=200, epsilon=1.0, pooled=True).id


def test_u4_a_gymnasium_environment_is_its_table():
    env = gymnasium.make("FrozenLake-v1")
    given = Experiment("ucbvi", env=env, horizon=8, episodes=60)
    named = run(Experiment("ucbvi", env="gym:FrozenLake-v1", horizon=8, episodes=60), 2)
    result = run(given, 2)
    assert given.resolved.horizon == 8
    assert (result.regret == named.regret).all()
    with pytest.raises(ValueError, match="Discrete space"):
        Experiment("ucbvi", env=gymnasium.make("CartPole-v1"))


def test_u4_objects_run_in_parallel_and_can_be_pickled():
    experiment = Experiment(Greedy(0.2), env=own(), episodes=80, epsilon=2.0, pooled=True)
    assert pickle.loads(pickle.dumps(experiment)) == experiment
    alone = run_seeds(experiment, [0, 1])
    together = run_seeds(experiment, [0, 1], jobs=2)
    assert all((a.regret == b.regret).all() for a, b in zip(alone, together, strict=True))
    assert all(result.id == experiment.id for result in together)


# Discounts and ends -------------------------------------------------------------------------------------------------


def discounted_value(mdp: FiniteMDP, policy, gamma: float) -> float:
    """Σ_h γ^h·E r_h, step by step."""
    state, total = mdp.initial, 0.0
    for h in range(mdp.horizon):
        total += gamma**h * float((state[:, None] * policy[h] * mdp.rewards[0]).sum())
        state = np.einsum("s,sa,sat->t", state, policy[h], mdp.transitions[0])
    return total


def test_u4_a_discounted_model_has_discounted_values():
    mdp, gamma = own(horizon=12), 0.85
    policy = np.random.default_rng(1).dirichlet(np.ones(2), (12, 4))
    longer = np.concatenate([policy, np.full((12, 1, 2), 0.5)], axis=1)
    ended = mdp.discounted(gamma)
    assert ended.stationary
    assert policy_value(ended, longer) == pytest.approx(discounted_value(mdp, policy, gamma), rel=1e-12)
    assert policy_value(ended, longer) < 0.7 * policy_value(mdp, policy)
    assert mdp.discounted(1) is mdp
    for gamma in (0, -0.5, 1.01, np.nan):
        with pytest.raises(ValueError, match=r"discount is .*; it must be above 0 and at most 1"):
            mdp.discounted(gamma)


def test_u4_an_experiment_with_a_discount_measures_the_discounted_problem():
    mdp = own(horizon=8)
    result = run(Experiment("ucbvi", env=mdp, episodes=60, discount=0.9), 0)
    assert result.value_optimal == pytest.approx(float(mdp.initial @ optimal_plan(mdp.discounted(0.9)).value[0, :4]))
    assert Experiment("ucbvi", discount=1.0).id == Experiment("ucbvi").id
    assert Experiment("ucbvi", discount=0.9).id != Experiment("ucbvi").id
    twin = Experiment("dp-ucbvi", env=mdp, epsilon=1.0, discount=0.9).twin
    assert twin is not None
    assert (twin.env, twin.discount) == (mdp, 0.9)
    with pytest.raises(ValueError, match="uc-o-reps meets losses that an adversary chooses; leave discount out"):
        Experiment("uc-o-reps", env="layered", discount=0.9)


def test_u4_terminal_states_keep_people_and_pay_nothing():
    mdp = own().with_terminal([2])
    assert (mdp.transitions[0, 2, :, 2] == 1).all()
    assert (mdp.rewards[0, 2] == 0).all()
    assert (mdp.transitions[0, 1] == own().transitions[0, 1]).all()
    assert (own().staged().with_terminal([2]).rewards[:, 2] == 0).all()
    with pytest.raises(ValueError, match=r"terminal states are \[4\]; expected some of 0..3"):
        own().with_terminal([4])


# Learners -----------------------------------------------------------------------------------------------------------


def test_u4_an_agent_learns_without_privacy_or_on_the_counts_that_a_budget_allows():
    plain = Experiment(Greedy(), env=own(), episodes=2000, pooled=True)
    exact = run(plain, 0)
    assert exact.guarantee.sentence() == "no privacy"
    assert exact.regret_ratio < 0.5
    private = Experiment(Greedy(), env=own(), episodes=2000, pooled=True, epsilon=2.0)
    assert run(private, 0).guarantee.epsilon == 2.0
    assert private.twin == plain
    local = run(Experiment(Greedy(), env=own(), episodes=200, epsilon=2.0, model="local"), 0)
    assert local.guarantee.sentence().startswith("local DP")
    with pytest.raises(ValueError, match="Greedy has no use for bonus; leave bonus out"):
        Experiment(Greedy(), bonus="bernstein")


def test_u4_a_triple_is_run_as_it_is():
    triple = Triple(Greedy(), Epochs(discreet.Budget.pure(1.5)), GeometricEpochs(first=20))
    result = run(Experiment(triple, env=own(), episodes=300, pooled=True), 0)
    assert result.guarantee.epsilon == 1.5
    same = run(Experiment(tuple(triple), env=own(), episodes=300, pooled=True), 0)
    assert (same.regret == result.regret).all()
    with pytest.raises(ValueError, match="a triple has its budget in its privatizer; leave epsilon out"):
        Experiment(triple, epsilon=1.0)


def test_u4_a_function_is_told_what_is_public():
    ours = run(Experiment("ucbvi-bernstein", env=own(), episodes=300), 4)
    theirs = run(Experiment(built_by_hand, env=own(), episodes=300), 4)
    assert (theirs.regret == ours.regret).all()
    scaled = Experiment(built_by_hand, env=own(), episodes=300, epsilon=1.0, confidence_scale=0.5)
    assert run(scaled, 0).guarantee.epsilon == 1.0
    assert (
        run(Experiment(Algorithm("mine", "by hand", "own", built_by_hand), env=own(), episodes=50), 0).switches >= 0
    )


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (Greedy, r"Greedy is a class; give one of its objects, Greedy\(…\)"),
        ((Greedy(), Exact()), r"a tuple of 2; expected \(agent, privatizer, schedule\)"),
        ((Exact(), Exact(), EveryEpisode()), "the agent is .*; expected an object with the method `plan`"),
        ((Greedy(), Exact, EveryEpisode()), "the privatizer is .*; expected an object with the method `open`"),
        ((Greedy(), Exact(), 5), "the schedule is 5; expected an object with the method `length`"),
        (5, "the learner is 5; expected a name, an agent"),
        ("ucbvy", "unknown algorithm 'ucbvy'; did you mean 'ucbvi'"),
    ],
)
def test_u4_what_is_no_learner_is_refused_in_one_sentence(learner, words):
    with pytest.raises(ValueError, match=words):
        Experiment(learner)


def test_u4_a_function_that_returns_no_triple_is_named():
    with pytest.raises(ValueError, match=r"lambda returned Greedy; expected \(agent, privatizer, schedule\)"):
        run(Experiment(lambda problem: Greedy(), env=own(), episodes=10))


def greedier(share):
    """Two of the same make differ in what they have closed over."""
    return lambda problem: Triple(Greedy(share), Exact(), GeometricEpochs())


@dataclass(frozen=True)
class Tabled:
    table: np.ndarray = field(default_factory=lambda: np.arange(3.0))
    more: dict = field(default_factory=dict)

    def plan(self, release, previous):
        return previous  # only its fields are looked at


def test_u4_learners_are_told_apart_by_code_and_values():
    def renamed():
        class Greedy:
            __qualname__ = "Greedy"

            def plan(self, release, previous):
                return previous

        return Greedy()

    different = [
        Greedy(0.1),
        Greedy(0.2),
        renamed(),
        greedier(0.1),
        greedier(0.2),
        built_by_hand,
        Tabled(),
        Tabled(np.arange(4.0)),
        Tabled(more={"rate": 2}),
        Triple(Greedy(0.1), Exact(), EveryEpisode()),
        Triple(Greedy(0.1), Exact(), GeometricEpochs()),
    ]
    assert len({fingerprint(thing) for thing in different}) == len(different)
    assert fingerprint(greedier(0.1)) == fingerprint(greedier(0.1))
    assert fingerprint(Tabled(more={"a": (1, 2), "b": (1, 2)})) == fingerprint(
        pickle.loads(pickle.dumps(Tabled(more={"b": (1, 2), "a": (1, 2)})))
    )
    itself: dict = {}
    itself["me"] = itself
    assert fingerprint(Tabled(more=itself)) == fingerprint(Tabled(more=itself))


# learn --------------------------------------------------------------------------------------------------------------


def test_u4_learn_simulates_a_model_and_shows_the_curve_of_returns():
    learned = learn(own(), "ucbvi-bernstein", 2000, pooled=True, seed=1)
    assert learned.users[-1] == 2000
    assert (np.diff(learned.users) > 0).all()
    assert len(learned.returns) == len(learned.users)
    weights = np.diff(learned.users, prepend=0)
    assert float(learned.returns @ weights) / 2000 == pytest.approx(learned.mean_return)
    assert learned.clipped_rewards == 0
    value = policy_value(own(), learned.plan.policy)
    best = float(own().initial @ optimal_plan(own()).value[0])
    assert value > 0.98 * best
    assert learned.returns[-1] == pytest.approx(value, abs=5 * 5 / np.sqrt(weights[-1]))
    again = learn(own(), "ucbvi-bernstein", 2000, pooled=True, seed=1)
    assert (again.returns == learned.returns).all()
    assert learn("riverswim", "ucbvi", 50, states=4, horizon=6, seed=0).plan.policy.shape == (6, 4, 2)


def test_u4_learn_takes_constants():
    shy = learn(own(), "ucbvi", 300, seed=0, confidence_scale=0.0)
    bold = learn(own(), "ucbvi", 300, seed=0, confidence_scale=1.0)
    assert not np.array_equal(shy.returns, bold.returns)
    every = learn(own(), "dp-ucbvi", 60, epsilon=1.0, seed=0, schedule="every", bonus="hoeffding")
    epochs = learn(own(), "dp-ucbvi", 60, epsilon=1.0, seed=0)
    assert len(every.returns) > len(epochs.returns)  # a plan for every user
    assert (every.guarantee.entries[0].uses, epochs.guarantee.entries[0].uses) == (6, 1)  # levels of a tree; a block
    with pytest.raises(ValueError, match="unknown option 'confidense_scale'; did you mean 'confidence_scale'"):
        learn(own(), "ucbvi", 60, confidense_scale=1.0)
    with pytest.raises(ValueError, match="ucbvi has no use for bonus; leave bonus out"):
        learn(own(), "ucbvi", 60, bonus="bernstein")


def test_u4_learn_takes_declared_structure():
    mdp = own().with_terminal([3])
    facts = PublicStructure.declared(mdp, True, initial=True, successors=True, zero_rewards=True)
    users = MDPSimulator(mdp, RewardLaw("bernoulli"), 0)
    learned = learn(users, "spotlight", 300, epsilon=1.0, pooled=True, structure=facts, seed=0)
    assert set(facts.assumptions()) <= set(learned.guarantee.assumptions)
    read_off = learn(mdp, "spotlight", 300, epsilon=1.0, pooled=True, known_successors=True, seed=0)
    assert "the possible successors of every state and action are public" in read_off.guarantee.assumptions
    with pytest.raises(
        ValueError, match=r"the declared successors has shape \(1, 4, 2, 4\); expected \(5, 4, 2, 4\)"
    ):
        learn(users, "spotlight", 300, epsilon=1.0, structure=facts)
    with pytest.raises(
        ValueError, match="known-successors is for models, and these users have none; declare it with"
    ):
        learn(users, "spotlight", 300, epsilon=1.0, known_successors=True)
    with pytest.raises(ValueError, match="declared with structure already; leave known-successors out"):
        learn(mdp, "spotlight", 300, epsilon=1.0, structure=facts, known_successors=True)
    with pytest.raises(ValueError, match="discount is for models, and these users have none; leave it out"):
        learn(users, "ucbvi", 300, discount=0.9)


def test_u4_learn_counts_what_it_clips():
    users = MDPSimulator(own(), RewardLaw("bernoulli", scale=4.0), 0)
    with pytest.warns(UserWarning, match=r"rewards lay outside \[0, 1\] .* declare where they lie with reward_range"):
        learned = learn(users, "dp-ucbvi", 100, epsilon=1.0, seed=0)
    assert learn(users, "dp-ucbvi", 100, epsilon=1.0).clipped_rewards > 0  # not of people, of whom it would tell
    assert learn(users, "dp-ucbvi", 100, epsilon=1.0, seed=0, reward_range=(0, 1)).clipped_rewards > 0  # as declared
    twin = MDPSimulator(own(), RewardLaw("bernoulli", scale=4.0), 0)
    wide = learn(twin, "dp-ucbvi", 100, epsilon=1.0, seed=0, reward_range=(0, 4))
    assert 0 < learned.clipped_rewards < 500
    assert wide.clipped_rewards == 0
    for bad in ((1, 0), (0, np.inf), (0, np.nan)):
        with pytest.raises(
            ValueError, match=r"reward_range is .*; expected two finite numbers, the smaller one first"
        ):
            learn(users, "ucbvi", 10, reward_range=bad)


def test_u4_learn_takes_a_gymnasium_environment_or_its_id():
    by_id = learn("gym:FrozenLake-v1", "ucbvi", 30, horizon=6, seed=3)
    by_object = learn(gymnasium.make("FrozenLake-v1", max_episode_steps=6), "ucbvi", 30, horizon=6, seed=3)
    assert (by_id.returns == by_object.returns).all()
    assert by_id.plan.policy.shape == (6, 17, 4)
    users = GymnasiumUsers("FrozenLake-v1", 4, 1)
    with pytest.raises(ValueError, match="these users always take 4 steps; leave horizon out"):
        learn(users, "ucbvi", 30, horizon=5)
    with pytest.raises(ValueError, match="the users are 5; expected a model, a Gymnasium environment or a Simulator"):
        learn(5, "ucbvi", 30)


def test_u4_learn_takes_an_own_learner_and_heavy_tails():
    assert learn(own(), Greedy(), 200, epsilon=1.0, seed=0).guarantee.epsilon == 1.0
    heavy = learn(own(), "private-heavy-ucbvi", 100, epsilon=1.0, seed=0, reward_law="student-t", df=3.0)
    assert heavy.guarantee.epsilon == 1.0
    with pytest.raises(ValueError, match="private-heavy-ucbvi takes rewards without a bound; leave reward_range out"):
        learn(own(), "private-heavy-ucbvi", 100, epsilon=1.0, reward_range=(0, 1))


# By name, from a module ---------------------------------------------------------------------------------------------

MODULE = """
import numpy as np

import discreet

rows = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.0, 1.0]]])
mdp = discreet.FiniteMDP(rows, [[0.0, 0.0], [0.1, 1.0]], [1.0, 0.0], 4, "mine")


def world(instance):
    return discreet.FiniteMDP(rows, [[0.1 * instance, 0.0], [0.1, 1.0]], [1.0, 0.0], 4, f"world-{instance}")


def learner(problem):
    return discreet.catalog.algorithm("ucbvi").build(problem)
"""


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A module of one's own in the folder of the command."""
    (tmp_path / "own_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    yield
    sys.modules.pop("own_module", None)


def ran(*words: str) -> dict[str, object]:
    done = CliRunner().invoke(app, ["run", *words, "--episodes", "100", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_command_line_runs_a_model_and_a_learner_of_a_module_in_its_folder(beside):
    found = ran("ucbvi", "--env", "own_module:mdp")
    import own_module

    expected = run(Experiment("ucbvi", own_module.mdp, episodes=100), 0)
    assert found["regret"] == [float(expected.regret[-1])]
    assert found["env"] == f"mine@{own_module.mdp.digest[:12]}"
    same = ran("own_module:learner", "--env", "own_module:mdp")
    assert same["algorithm"].startswith("learner@")
    assert same["regret"] == found["regret"]


def test_a_function_of_a_module_makes_the_instance_that_is_asked_for(beside):
    found = ran("ucbvi", "--env", "own_module:world", "--instance", "3")
    assert found["env"].startswith("world-3@")


def test_a_module_that_is_missing_is_named_in_one_sentence(beside):
    done = CliRunner().invoke(app, ["run", "ucbvi", "--env", "no_module:mdp"])
    assert done.exit_code == 2
    assert "'no_module:mdp' cannot be imported" in done.output
    done = CliRunner().invoke(app, ["run", "ucbvi", "--env", "own_module:mpd"])
    assert done.exit_code == 2
    assert "own_module has no 'mpd'; did you mean 'mdp'?" in done.output


def test_what_is_returned_is_shown_in_one_line():
    """Arrays of people's plans and of models are not what somebody wants to see who types a name."""
    learned = learn(own(), "spotlight", 300, epsilon=1.0, pooled=True, seed=0)
    found = run(Experiment("spotlight", env=own(), episodes=300, epsilon=1.0, pooled=True), 0)
    sentence = "joint DP, ε = 1 per user, replace-one"
    assert repr(learned) == f"Learned({sentence}; 300 users, {len(learned.users)} plans)"
    assert repr(found).startswith(f"RunResult('{found.id}', seed 0, regret ")
    assert repr(found).endswith(f"; {sentence})")
    assert repr(learned.plan).startswith("SpotlightPlan(5 steps, 4 states, 2 actions; from ")
