"""A policy that is asked: what it knows, how far it reaches, and that it is the one that was written."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet
import pytest

from discreet.offline import fitting as offline
from discreet.people.logs import LogFormat
from discreet.policy import Policy
from discreet.privacy.accounting import Budget

ACTIONS = np.array([[1, 0], [0, 1], [0, 0]])
KNOWN = np.array([[True, False], [True, True], [False, True]])


def policy(pooled: bool, names=None) -> Policy:
    return Policy(ACTIONS, np.zeros((3, 2)), KNOWN, 2, ("well", "ill"), names, pooled)


@pytest.mark.parametrize("names", [None, ("wait", "treat")])
def test_l6_it_says_not_known_where_the_release_says_nothing(names):
    found = policy(False, names)
    for h, s in np.ndindex(3, 2):
        action = ACTIONS[h, s] if names is None else names[ACTIONS[h, s]]
        assert found.act(h, s) == (action if KNOWN[h, s] else "not known")
        assert found.act(h, s, guess=True) == found.act(h, ("well", "ill")[s], guess=True) == action


@pytest.mark.parametrize(
    ("step", "state"), [(0, 1.0), (0, None), (0, True), (0, np.zeros(1)), (0.5, 0), ("0", 0), (None, 0)]
)
def test_l6_what_is_no_step_or_state_is_refused_in_one_sentence(step, state):
    with pytest.raises(ValueError, match="it must be a whole number"):
        policy(True).act(step, state)


def test_l6_beyond_the_horizon_a_pooled_policy_acts_as_at_its_first_step():
    for step in (3, 4, 10**9):
        assert policy(True).act(step, 0) == 1
        assert policy(True).act(step, "ill") == "not known"
        assert policy(True).act(step, "ill", guess=True) == 0
        with pytest.raises(ValueError, match=r"it must lie in 0\.\.2"):
            policy(False).act(step, 0)
    with pytest.raises(ValueError, match="step is -1"):
        policy(True).act(-1, 0)


def fitted(folder, **options) -> Policy:
    """Nobody is ever in state 1, and the log says so."""
    rng = np.random.default_rng(0)
    n = 3000
    table = {
        "user": np.arange(n),
        "step": np.zeros(n, int),
        "state": np.zeros(n, int),
        "action": rng.integers(2, size=n),
    }
    table |= {"reward": 3.0 + 4.0 * table["action"], "next_state": np.zeros(n, int)}
    log = LogFormat(2, 2, 1, reward_range=(3.0, 7.0), **options)
    found = offline.fit(table, log, Budget.pure(5.0), seed=0)
    found.save(folder)
    return found.policy


def test_l6_a_saved_policy_knows_what_it_knew_and_its_values_are_in_the_units_of_the_log(tmp_path):
    fitted(tmp_path, pooled=True)
    found = Policy.load(tmp_path)
    assert found.pooled
    assert found.act(0, 0) == found.act(9, 0) == 1
    assert found.act(0, 1) == "not known"
    assert found.act(0, 1, guess=True) in (0, 1)
    assert found.values[0, 0] == pytest.approx(7.0, abs=0.2)
    assert found.values[0, 1] == 3.0  # the least that is possible
    facts = pyarrow.parquet.read_schema(tmp_path / "policy.parquet").metadata
    assert facts[b"pooled"] == b"true"
    assert b"units of the log's rewards" in facts[b"values"]
    fitted(tmp_path, pooled=False)
    assert not Policy.load(tmp_path).pooled


def test_values_keep_six_digits_whatever_the_units_are():
    values = np.array([[1.23456789e-9, 0.0]])
    table = Policy(ACTIONS[:1], values, KNOWN[:1], 2, None, None, True).table()
    assert table.column("value").to_pylist() == pytest.approx([1.234568e-9, 0.0], rel=1e-6)


def test_l6_a_table_that_was_altered_or_has_no_digest_is_not_loaded(tmp_path):
    fitted(tmp_path)
    table = pyarrow.parquet.read_table(tmp_path / "policy.parquet")
    other = table.set_column(2, "action", [[0, 0]])
    pyarrow.parquet.write_table(other, tmp_path / "policy.parquet")
    with pytest.raises(ValueError, match="differs from its digest: it was altered"):
        Policy.load(tmp_path)
    assert Policy.load(tmp_path, check=False).act(0, 0) == 0
    for content in ("{}", "[]", "no json", json.dumps({"policy.csv": "0"})):
        (tmp_path / "digests.json").write_text(content)
        with pytest.raises(ValueError, match=r"has no digest of policy\.parquet"):
            Policy.load(tmp_path)
    (tmp_path / "digests.json").unlink()
    with pytest.raises(ValueError, match="load it with check=False"):
        Policy.load(tmp_path)
