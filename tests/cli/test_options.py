"""What is said to a learner is used or refused, and a result's name is made of what holds."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import shlex
import tracemalloc
from dataclasses import asdict, fields, replace

import numpy as np
import pytest
from typer.testing import CliRunner

from discreet import catalog
from discreet.catalog import ALGORITHMS, OPTIONS, settings_of
from discreet.cli import app, running
from discreet.cli.options import budget_of
from discreet.cli.settings import SETTINGS, useless
from discreet.envs.registry import ENVIRONMENTS, make
from discreet.privacy.sums.epochs import Epochs
from discreet.runs import experiment, memory
from discreet.runs.experiment import Experiment, Setting, run
from discreet.runs.feasibility import LARGEST_EPSILON
from discreet.runs.learning import learn

ONLINE = {name: entry for name, entry in ALGORITHMS.items() if entry.runner != "offline"}
#: A value for every option that is not what holds when nothing is said.
OTHER = {
    "pooled": True,
    "allow_pooled": True,
    "rate_scale": 0.7,
    "beta": 0.03,
    "schedule": "every",
    "confidence_scale": 0.7,
    "bonus": "hoeffding",
    "mode": "paper",
    "noise": "printed",
    "local_reports": "laplace",
    "honest": 0.5,
    "public_initial": False,
    "known_successors": True,
    "known_zero_rewards": True,
    "moment_order": 0.5,
    "moment_bound": 7.0,
    "mean_bound": 0.8,
    "adversary": "switch",
    "losses": "public",
    "estimator": "paper",
}


def budget(name: str, model: str | None = None) -> dict:
    entry = ALGORITHMS[name]
    if not entry.private:
        return {}
    model = model or entry.models[0]
    return {"epsilon": 1.0, "model": model, **({"delta": 1e-6} if model == "shuffle" else {})}


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


# Ids ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"epsilon": 1}, {"epsilon": 1.0}),
        ({"epsilon": 1.0}, {"epsilon": np.float64(1.0)}),
        ({"epsilon": 1.0}, {"epsilon": np.int64(1)}),
        ({"episodes": 500}, {"episodes": np.int64(500)}),
        ({"episodes": 500}, {"episodes": 500.0}),
        ({"pooled": True}, {"pooled": np.bool_(True)}),
        ({"delta": 0.0}, {"delta": -0.0}),
        ({}, {"states": 6}),
        ({}, {"horizon": np.int32(20)}),
        ({"states": 4}, {"states": 4, "horizon": 20}),
        ({}, {"model": "joint", "neighbours": "replace", "mode": "practical", "bonus": "bernstein"}),
        ({}, {"schedule": "epochs", "known_successors": False, "public_initial": False}),
        ({}, {"reward_law": "bernoulli"}),
        ({"reward_law": "alpha-stable"}, {"reward_law": "alpha-stable", "alpha": 2}),
        ({"mode": "paper"}, {"mode": "paper", "schedule": "every"}),
        ({"model": "local"}, {"model": "local", "local_reports": "sampled", "neighbours": "replace"}),
        ({"env": "deep-sea"}, {"env": "deep-sea", "horizon": 10}),
        ({"env": "deep-sea", "states": 5}, {"env": "deep-sea", "horizon": 5}),
    ],
)
def test_u2_two_ways_to_say_the_same_give_one_id(one, other):
    one, other = (Experiment("dp-ucbvi", **{"epsilon": 1.0} | said) for said in (one, other))
    assert one.id == other.id
    assert one.resolved == other.resolved


def test_u2_what_differs_in_effect_differs_in_id():
    said = [
        {},
        {"epsilon": 2.0},
        {"delta": 1e-6},
        {"states": 5},
        {"horizon": 19},
        {"episodes": 5},
        {"pooled": True},
        {"schedule": "every"},
        {"confidence_scale": 0.5},
        {"bonus": "hoeffding"},
        {"mode": "paper"},
        {"noise": "printed"},
        {"mode": "paper", "noise": "printed"},
        {"model": "local"},
        {"model": "local", "local_reports": "laplace"},
        {"neighbours": "zero-out"},
        {"known_successors": True},
        {"known_zero_rewards": True},
        {"env": "chain"},
        {"reward_law": "gaussian"},
        {"reward_law": "alpha-stable", "alpha": 1.5},
        {"reward_law": "alpha-stable", "alpha": 1.6},
    ]
    assert len({Experiment("dp-ucbvi", **{"epsilon": 1.0} | more).id for more in said}) == len(said)


def test_u2_the_command_line_and_the_library_give_one_id():
    for arguments, said in (
        ("ucbvi --states 3 --horizon 3", Experiment("ucbvi", states=3, horizon=3, episodes=30)),
        ("dp-ucbvi --epsilon 1", Experiment("dp-ucbvi", epsilon=np.int64(1), episodes=30)),
        ("follow-the-leader --env layered", Experiment("follow-the-leader", env="layered", episodes=30)),
    ):
        done = CliRunner().invoke(app, ["run", *arguments.split(), "--episodes", "30", "--json"])
        assert json.loads(done.stdout)["id"] == said.id


def test_u2_ids_are_made_of_options_that_have_a_use():
    for name in ONLINE:
        said = Experiment(name, env="layered", **budget(name)).resolved
        for option in set(OPTIONS) - ONLINE[name].options - {"mode", "public_initial"}:
            assert getattr(said, option) in (None, False)
        assert said.resolved == said
        assert said.id == Experiment(name, env="layered", **budget(name)).id
        assert ALGORITHMS[name].private or (said.model is None and said.neighbours is None)


def test_an_experiment_moved_to_another_environment_takes_that_ones_size():
    base = Experiment("ucbvi")
    assert base.resolved.states == 6
    assert replace(base, env="chain").resolved.states == 5


def test_default_sizes_are_those_of_the_model():
    for name, spec in ENVIRONMENTS.items():
        said, mdp = Experiment("ucbvi", env=name).resolved, make(name)
        assert (said.states, said.horizon, spec.actions) == (mdp.num_states, mdp.horizon, mdp.num_actions)


def test_u8_numpy_numbers_run_and_are_stored_as_plain_ones(tmp_path):
    said = Experiment(
        "dp-ucbvi", states=np.int64(3), horizon=np.int8(3), episodes=np.int32(40), epsilon=np.float64(1)
    )
    plain = Experiment("dp-ucbvi", states=3, horizon=3, episodes=40, epsilon=1.0)
    assert said == plain
    assert all(type(a) is type(b) for a, b in zip(asdict(said).values(), asdict(plain).values(), strict=True))
    assert (run(said, 0).regret == run(plain, 0).regret).all()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"episodes": 2.5}, "episodes is 2.5; it must be a whole number"),
        ({"episodes": True}, "whole number"),
        ({"episodes": float("nan")}, "whole number"),
        ({"episodes": float("inf")}, "whole number"),
        ({"states": "six"}, "states is 'six'"),
        ({"epsilon": "1"}, "epsilon is '1'; it must be a number"),
        ({"pooled": "yes"}, "pooled is 'yes'; it must be True or False"),
        ({"states": 0}, "at least 1"),
        ({"horizon": -3}, "at least 1"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(said, words):
    with pytest.raises(ValueError, match=words):
        Experiment("dp-ucbvi", **{"epsilon": 1.0} | said)


# Options that do not apply ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONLINE)
def test_u3_every_option_that_a_learner_does_not_declare_is_refused(name):
    env = "layered" if ONLINE[name].runner == "adversarial" else "riverswim"
    for option in set(OPTIONS) - ONLINE[name].options:
        value = OTHER[option]
        if option == "public_initial":  # some learners cannot do without a start, the others never look at it
            value = ONLINE[name].runner == "online" and not ONLINE[name].staged
        with pytest.raises(ValueError, match=f"leave {catalog.dashed(option)} out$"):
            Experiment(name, env=env, **budget(name), **{option: value})


def made_of(said: Experiment) -> bytes:
    """Everything that a run is built from, as bytes."""
    setting = Setting.of(said)
    return pickle.dumps((setting.triple(), setting.spec, setting.problem.structure.initial, said.resolved.adversary))


@pytest.mark.parametrize("name", ONLINE)
def test_u3_every_option_that_a_learner_declares_makes_a_difference(name):
    entry = ONLINE[name]
    env = "layered" if entry.runner == "adversarial" else "riverswim"
    sizes = {} if entry.runner == "adversarial" else {"states": 2, "horizon": 2}
    for option in entry.options:
        if option == "allow_pooled":  # it changes what is refused and nothing else
            continue
        model = {"honest": "shuffle", "local_reports": "local"}.get(option)
        common = {"env": env, "episodes": 3000, **sizes, **budget(name, model)}
        if (name, option) == ("private-uob-lbps", "losses"):  # bandit losses have no public form; opening says so
            continue
        plain, told = Experiment(name, **common), Experiment(name, **common, **{option: OTHER[option]})
        assert plain.id != told.id
        assert made_of(plain) == made_of(Experiment(name, **common))
        assert made_of(plain) != made_of(told), option


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("dp-ucbvi --epsilon 1 --adversary switch", "dp-ucbvi has no use for adversary"),
        ("spotlight --epsilon 1 --bonus hoeffding", "spotlight has no use for bonus"),
        ("spotlight --epsilon 1 --bonus bernstein", "spotlight has no use for bonus"),
        ("spotlight --epsilon 1 --constants paper", "spotlight has one form only"),
        ("dp-ucbvi --epsilon 1 --alpha 1.5", "alpha belongs to the alpha-stable law"),
        ("dp-ucbvi --epsilon 1 --alpha 2", "alpha belongs to the alpha-stable law"),
        ("ucbvi --reward-law pareto --df 4", "df belongs to the student-t law"),
        ("ucbvi --env heavy-joint --tail-index 4", "tail-index belongs to the pareto law"),
        ("private-uc-o-reps --env layered --epsilon 1 --reward-law gaussian", "losses that an adversary chooses"),
        ("private-uc-o-reps --env layered --epsilon 1 --no-public-initial", "cannot do without a public start"),
        ("sdp-pe --epsilon 1 --delta 1e-6 --no-public-initial", "cannot do without a public start"),
        ("private-uc-o-reps --env layered --epsilon 1 --pooled", "cannot be pooled"),
        ("dp-ucbvi --epsilon 1 --public-initial", "makes no use of where episodes start"),
        (
            "dp-ucbvi --epsilon 1 --constants paper --schedule epochs",
            "in paper mode dp-ucbvi plans after every episode",
        ),
        ("dp-ucbvi --epsilon 1 --local-reports laplace", "for the local model only"),
        ("dp-ucbvi --epsilon 1 --model local --constants paper --local-reports sampled", "noise to every counter"),
        ("dp-ucbvi --epsilon 1 --model local --neighbours zero-out", "local privacy compares any two users"),
        ("ucbvi --model joint", "ucbvi is not private: it takes no model"),
        ("ucbvi --neighbours replace", "ucbvi is not private: it takes no neighbours"),
        ("uc-o-reps --env layered --losses public", "uc-o-reps has no use for losses"),
        ("follow-the-leader --env layered --confidence-scale 1", "has no use for confidence-scale"),
        ("ucbvi --moment-bound 2", "ucbvi has no use for moment-bound"),
    ],
)
def test_u3_an_option_without_a_use_is_refused_in_one_sentence(arguments, words):
    assert words in refused("run", *arguments.split(), "--episodes", "20")


def test_u3_saying_what_holds_anyway_is_no_mistake():
    Experiment("spotlight", epsilon=1.0, mode="practical")
    Experiment("dp-ucbvi", epsilon=1.0, mode="paper", schedule="every", public_initial=False)
    Experiment("private-uc-o-reps", env="layered", epsilon=1.0, public_initial=True)
    Experiment("dp-ucbvi", epsilon=1.0, model="local", neighbours="replace")


@pytest.mark.parametrize("name", [n for n, entry in ONLINE.items() if entry.private and len(entry.models) == 1])
def test_u3_the_only_model_of_a_learner_is_its_default(name):
    said = {"epsilon": 1.0, **({"delta": 1e-6} if ALGORITHMS[name].models == ("shuffle",) else {})}
    (model,) = ALGORITHMS[name].models
    assert Experiment(name, **said).resolved.model == model
    assert Experiment(name, **said).id == Experiment(name, model=model, **said).id


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"epsilon": float("inf")}, "epsilon is infinite, which is no privacy at all; run ucbvi-bernstein"),
        ({"epsilon": float("nan")}, "epsilon is nan; it must be positive"),
        ({"epsilon": 0}, "epsilon is 0; it must be positive"),
        ({"epsilon": -1.0}, "epsilon is -1; it must be positive"),
        ({"epsilon": 1e9}, r"epsilon is 1e\+09, and above 20 nothing worth the name is promised"),
        ({"epsilon": 20.001}, "above 20"),
        ({"delta": float("nan")}, "delta is nan; it must be at least 0 and below 1"),
        ({"delta": -1.0}, "delta is -1; it must be at least 0 and below 1"),
        ({"delta": 1}, "delta is 1; it must be at least 0 and below 1"),
        ({"delta": float("inf")}, "delta is inf"),
    ],
)
def test_u3_nonsense_budgets_have_one_answer_each(said, words):
    for name in ("dp-ucbvi", "spotlight"):
        with pytest.raises(ValueError, match=words):
            Experiment(name, **{"epsilon": 1.0} | said)
        with pytest.raises(ValueError, match=words):
            learn(_Nobody(), name, 10, **{"epsilon": 1.0} | said)
    arguments = [word for name, value in ({"epsilon": 1.0} | said).items() for word in (f"--{name}", str(value))]
    assert refused("run", "dp-ucbvi", *arguments).startswith("Error: ")


class _Nobody:
    num_states, num_actions, horizon = 2, 2, 2

    def rollout(self, policy, num_episodes):
        raise AssertionError("nobody should play")


def test_u3_the_largest_budget_is_spent_as_it_was_stated():
    for name in ("dp-ucbvi", "spotlight", "private-uc-o-reps"):
        env = "layered" if name == "private-uc-o-reps" else "riverswim"
        assert run(Experiment(name, env=env, episodes=40, epsilon=LARGEST_EPSILON), 0).guarantee.epsilon == 20.0


@pytest.mark.parametrize(
    "arguments",
    ["--epsilon inf", "--epsilon 1e9", "--epsilon inf --adversarial", "--epsilon inf --offline", "--epsilon nan"],
)
def test_u3_calibrate_answers_nonsense_budgets(arguments):
    assert "epsilon" in refused("calibrate", *arguments.split())


@pytest.mark.parametrize("option", ["--model local", "--schedule every", "--adversarial"])
def test_u3_calibrating_a_log_takes_no_options_of_runs(option):
    assert f"leave {option.split()[0]} out" in refused("calibrate", "--offline", "--epsilon", "1", *option.split())


# Help ---------------------------------------------------------------------------------------------------------------


def listed(text: str) -> set[str]:
    """The options that a help page has a line for."""
    return set(re.findall(r"^│ +(--[a-z-]+)", text, re.M))


def test_help_shows_the_options_of_the_learner_and_no_others():
    runner = CliRunner(env={"COLUMNS": "200"})
    for name in ("spotlight", "ucbvi", "private-uob-lbps"):
        shown = listed(runner.invoke(app, ["run", name, "--help"]).stdout)
        for setting in SETTINGS:
            expected = setting in settings_of(ALGORITHMS[name])
            flag, *_ = SETTINGS[setting].flags or (f"--{catalog.dashed(setting)}",)
            assert (flag in shown) == expected, setting
        assert {"--seeds", "--secure", "--out", "--json", "--jobs"} <= shown
    everything = listed(runner.invoke(app, ["run", "--help"]).stdout)
    assert {(each.flags or (f"--{catalog.dashed(name)}",))[0] for name, each in SETTINGS.items()} <= everything


def test_the_table_of_options_is_that_of_experiments():
    assert set(SETTINGS) == {field.name for field in fields(Experiment)} - {"algorithm"}
    assert set(OPTIONS) == set(OTHER)
    defaults = {field.name: field.default for field in fields(Experiment)}
    assert all(setting.default == defaults[name] for name, setting in SETTINGS.items())
    assert set(inspect.signature(running.run).parameters) >= set(SETTINGS)
    assert useless(["--help"]) == frozenset()
    assert all(entry.options <= set(OPTIONS) for entry in ALGORITHMS.values())


def test_the_list_of_learners_says_what_they_can_be_told():
    found = json.loads(CliRunner().invoke(app, ["algorithms", "--json"]).stdout)["algorithms"]
    options = {entry["name"]: entry["options"] for entry in found}
    assert "bonus" in options["dp-ucbvi"]
    assert "confidence-scale" in options["spotlight"]
    assert "bonus" not in options["spotlight"]


# What is public, and what was spent ---------------------------------------------------------------------------------


def test_p10_the_reward_range_is_listed_as_public():
    small = {"horizon": 4, "episodes": 40, "epsilon": 1.0}
    said = run(Experiment("dp-ucbvi", states=3, **small), 0).guarantee.assumptions
    assert "public: rewards lie in [0, 1], and what lies outside is moved to its ends" in said
    cliff = run(Experiment("spotlight", env="gym:CliffWalking-v1", **small), 0).guarantee.assumptions
    assert any("rewards lie in [-100, 0]" in line for line in cliff)
    none = run(Experiment("ucbvi", states=3, horizon=4, episodes=40), 0).guarantee.assumptions
    assert not any("rewards lie" in line for line in none)


def test_p10_what_adversarial_learners_cannot_do_without_is_listed_as_public():
    said = run(Experiment("private-uc-o-reps", env="layered", episodes=40, epsilon=1.0), 0).guarantee.assumptions
    assert "the initial distribution is public" in said
    assert "the states that can occur at each step are public" in said


def test_p10_one_stream_is_opened_and_its_guarantee_is_printed(monkeypatch):
    opened = []
    real = Epochs.open

    def counted(self, spec, num_episodes, noise):
        opened.append(real(self, spec, num_episodes, noise))
        return opened[-1]

    monkeypatch.setattr(Epochs, "open", counted)
    result = run(Experiment("dp-ucbvi", states=3, horizon=3, episodes=40, epsilon=1.0), 0)
    assert len(opened) == 1
    assert result.guarantee.entries == opened[0].guarantee.entries
    users = experiment.MDPSimulator(make("riverswim", 3, 3), Setting.of(Experiment("ucbvi")).law, 0)
    learned = learn(users, "dp-ucbvi", 40, epsilon=1.0, seed=0)
    assert len(opened) == 2
    assert learned.guarantee.entries == opened[1].guarantee.entries
    assert any("rewards lie in [0, 1]" in line for line in learned.guarantee.assumptions)


# What is printed ----------------------------------------------------------------------------------------------------


def test_u6_the_gap_of_the_last_policy_is_printed_beside_the_regret():
    command = ["run", "ucbvi-bernstein", "--states", "3", "--horizon", "4", "--episodes", "500", "--seeds", "0:3"]
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    best, even = found["value_optimal"], found["value_random"]
    gaps = [(best - value) / (best - even) for value in found["value_last_policy"]]
    assert found["final_gap"]["per_seed"] == pytest.approx(gaps)
    assert found["final_gap"]["mean"] == pytest.approx(sum(gaps) / 3)
    assert max(gaps) < max(found["regret_ratio"]["per_seed"])
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, command).stdout
    assert f"{found['final_gap']['mean']:.4f} ± {found['final_gap']['sd']:.4f}" in shown
    flat = ["run", "ucbvi", "--env", "frozenlake", "--horizon", "1", "--episodes", "9", "--json"]
    assert json.loads(CliRunner().invoke(app, flat).stdout)["final_gap"]["per_seed"] == [None]


def test_u6_the_last_policy_can_lose_less_than_the_best_fixed_one_and_the_sign_is_kept():
    found = run(Experiment("uc-o-reps", env="layered", episodes=400, adversary="iid"), 0)
    gap = found.final_gap
    assert gap == pytest.approx(
        (found.final_value - found.value_optimal) / (found.value_random - found.value_optimal), abs=1e-12
    )
    assert 0 <= gap < 1


def test_u8_losses_are_called_losses():
    command = ["run", "follow-the-leader", "--env", "lock", "--episodes", "100"]
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, command).stdout
    assert "mean loss of the last policy" in shown
    assert "best fixed, random policy" in shown
    assert "value of the last policy" not in shown
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["values_are"] == "losses"
    returns = ["run", "ucbvi", "--states", "3", "--horizon", "3", "--episodes", "20"]
    assert json.loads(CliRunner().invoke(app, [*returns, "--json"]).stdout)["values_are"] == "returns"
    assert "value of the last policy" in CliRunner(env={"COLUMNS": "200"}).invoke(app, returns).stdout


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("dp-ucbvi", {"env": "two-rooms", "pooled": True, "episodes": 20_000, "epsilon": 1.0}),
        ("dp-ucbvi", {"pooled": True, "episodes": 5000, "epsilon": 3.0, "model": "local"}),
        ("shuffle-ucbvi", {"episodes": 20_000, "epsilon": 1.0, "delta": 1e-6}),
        ("dp-ucbvi", {"episodes": 300, "epsilon": 15.0}),
    ],
)
def test_u8_nobody_is_told_to_collect_the_users_they_have_or_to_take_a_budget_that_is_refused(name, more):
    said = Experiment(name, **more)
    setting = Setting.of(said)
    outlook = setting.forecast()
    assert not outlook.feasible
    (users,) = re.findall(r"collect about ([\d,]+) users", outlook.verdict)
    assert int(users.replace(",", "")) > 1.02 * said.episodes
    for wanted in re.findall(r"raise epsilon to about ([\d.]+)", outlook.verdict):
        assert float(wanted) <= LARGEST_EPSILON


def test_u8_what_does_not_fit_is_said_before_it_is_allocated(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 4e9)
    monkeypatch.setattr(experiment.registry, "make", None)  # nothing may be built
    line = refused("run", "dp-ucbvi", "--states", "1000", "--epsilon", "1")
    assert line == (
        "Error: 1,000 states, 2 actions and 20 steps take about 4.5 GB, and 4.0 GB are free; take fewer states or "
        "steps, or pool the steps"
    )
    with pytest.raises(ValueError, match="pooled steps take about"):
        Setting.of(Experiment("ucbvi", states=20_000, pooled=True))
    with pytest.raises(ValueError, match=r"in 4 runs at once take about .* or fewer jobs"):
        experiment.run_seeds(Experiment("dp-ucbvi", states=500, epsilon=1.0), range(4), jobs=4)


def test_u8_the_estimate_of_memory_is_what_a_run_takes():
    """The peak of a run's allocations is never above the estimate, and no less than a fifth of it."""
    said = Experiment("dp-ucbvi", states=120, horizon=6, episodes=40, epsilon=1.0)
    run(replace(said, states=3), 0)
    tracemalloc.start()
    run(said, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    needed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "require", lambda number, *_: needed.append(number))
        experiment.check_memory(said)
    assert 0.2 * needed[0] < peak < needed[0]


def test_u8_memory_that_is_left_is_a_number_of_bytes():
    assert 1e7 < memory.available() <= float("inf")
    with pytest.raises(ValueError, match=r"a mountain take about 1,000,000\.0 GB, and .* GB are free; walk$"):
        memory.require(1e15, "a mountain", "walk")


def test_u8_memory_that_runs_out_all_the_same_is_no_traceback(monkeypatch):
    def hungry(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(experiment, "run", hungry)
    line = refused("run", "ucbvi", "--states", "3", "--horizon", "3", "--episodes", "20")
    assert "not enough memory" in line


def test_an_epsilon_that_protects_hardly_anybody_is_warned_of():
    """By `calibrate`, before anything is read, and by whatever takes a budget; an infinite one says so itself."""
    sizes = ("--states", "3", "--actions", "2", "--horizon", "4")
    for epsilon, warned in (("100", True), ("10", False)):
        done = CliRunner().invoke(app, ["calibrate", "--offline", "--epsilon", epsilon, "--users", "500", *sizes])
        assert done.exit_code == 0, done.output
        assert ("warning: ε = 100 promises next to nothing" in done.stderr) == warned
    budget_of(float("inf"), 0.0)


@pytest.mark.parametrize(
    "line",
    [
        "run dp-ucbvi --pooled --epsilon 1 --users 500",
        "calibrate --pooled --epsilon 1 --users 500",
        "calibrate --offline --pooled --epsilon 1 --users 500",
    ],
)
@pytest.mark.parametrize(("delta", "heard"), [("0.5", True), ("0.002", True), ("1e-6", False)])
def test_a_delta_at_which_people_could_be_shown_as_they_are_is_doubted(line, delta, heard):
    """(ε, δ) with δ·n ≥ 1 is kept by publishing one person in 1/δ: nothing worth the name is promised."""
    done = CliRunner().invoke(app, shlex.split(f"{line} --delta {delta}"))
    assert done.exit_code == 0, done.output
    assert (f"warning: delta is {delta}: to publish" in done.stderr) is heard


@pytest.mark.parametrize(
    ("learner", "names"),
    [
        ("spotlight", "reports (joint) or two-servers (two-servers) or local-reports (local)"),
        ("dp-ucbvi", "epochs (joint) or local-sampled (local)"),
        ("shuffle-ucbvi", "shuffle (shuffle)"),
    ],
)
def test_who_wants_to_audit_a_learner_is_told_what_it_releases(learner, names):
    done = CliRunner().invoke(app, ["audit", learner])
    assert done.exit_code == 2
    assert done.stderr == f"Error: {learner} is a learner; what it releases is audited as {names}\n"


def test_an_audit_that_refutes_by_computation_says_that_its_trials_do_not():
    said = CliRunner().invoke(app, shlex.split("audit paper-tree --epsilon 1 --trials 1000")).stdout
    assert said.endswith("REFUTED: it leaks more than it claims, as computed; so few trials do not show it\n")
