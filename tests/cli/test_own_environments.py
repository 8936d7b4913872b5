"""A problem of one's own, `module:name` in this folder, wherever a command takes an environment; and its mistakes."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from discreet.cli import app

MINE = '''
"""A clinic at which up to two people wait, as arrays; a ward as a Gymnasium environment, with its table or not."""
import discreet
import gymnasium
import numpy as np

P = [[[0.5, 0.5, 0.0], [0.8, 0.2, 0.0]], [[0.1, 0.5, 0.4], [0.6, 0.3, 0.1]], [[0.0, 0.3, 0.7], [0.3, 0.5, 0.2]]]
R = [[0.0, -0.5], [-1.0, -1.5], [-2.0, -2.5]]
mdp = discreet.FiniteMDP(P, R, [0, 1, 0], horizon=4, name="clinic")


def family(instance):
    return discreet.FiniteMDP(P, R, np.eye(3)[instance], horizon=4, name=f"clinic-{instance}")


class Ward(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.full = 0
        return self.full, {}

    def step(self, action):
        reward, self.full = (-2.0 if self.full and action else float(action)), int(action)
        return self.full, reward, False, False, {}


class Table(Ward):
    P = {s: {a: [(1.0, a, -2.0 if s and a else float(a), False)] for a in range(2)} for s in range(2)}


class Readable(Table):
    initial_state_distrib = np.array([1.0, 0.0])


ward, table, readable = Ward(), Table(), Readable()
'''


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Path:
    (tmp_path / "clinic.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "clinic", raising=False)
    return tmp_path


def told(line: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, shlex.split(line))
    assert done.exit_code == code, (line, done.output, done.exception)
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize("env", ["clinic:mdp", "clinic:family"])
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("run spotlight --pooled --epsilon 1 --users 300", "states"),
        ("calibrate --pooled --epsilon 1 --users 3000", "spotlight"),
        ("bound dp-ucbvi --epsilon 1", "bounds"),
        ("poison --model joint --share .1 --seeds 0 --users 300", "rows"),
    ],
)
def test_commands_that_take_an_environment_take_ones_own(desk, env, line, found):
    assert found in json.loads(told(f"{line} --env {env} --json"))


def test_a_policy_from_a_log_is_evaluated_in_a_model_of_ones_own(desk):
    rows = [f"{user},{h},{(user + h) % 3},{user % 2},0" for user in range(300) for h in range(4)]
    Path("log.csv").write_text("\n".join(["user,step,state,action,reward", *rows]))
    told("fit log.csv --states 3 --actions 2 --horizon 4 --pooled --epsilon 1 --seed 0 --out policy")
    assert json.loads(told("evaluate policy --env clinic:mdp --json"))["value"] < 0
    assert "value" in json.loads(told("evaluate policy --env clinic:family --instance 2 --json"))


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ("clinic", "there is a clinic.py here: name what it holds, as in clinic:mdp"),
        ("clinic.py", "there is a clinic.py here: name what it holds, as in clinic:mdp"),
        ("clinic:P", "the environment is a list; expected a name, a FiniteMDP or a Gymnasium environment"),
        ("clinic:ward", "discreet.learn learns on it without one"),
        ("clinic:table", "initial_state_distrib"),
    ],
)
@pytest.mark.parametrize("command", ["run spotlight --pooled --epsilon 1", "calibrate --pooled --epsilon 1"])
def test_what_is_no_environment_is_answered_with_what_would_be_one(desk, command, env, sentence):
    said = told(f"{command} --env {env}", code=2)
    assert sentence in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("env", ["clinic:readable", "clinic:Readable"])
def test_a_gymnasium_environment_with_a_table_is_an_environment_by_its_object_or_class(desk, env):
    found = json.loads(told(f"run ucbvi --env {env} --horizon 4 --users 100 --json"))
    assert (found["states"], found["horizon"]) == (2, 4)
    assert found["value_optimal"] == 2.0  # every other step
