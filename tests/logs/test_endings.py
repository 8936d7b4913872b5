"""Episodes that end: what that is worth in all learners, in the units of the log, and that no last row is lost."""

from __future__ import annotations

import json
import math
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from discreet.cli import app
from discreet.offline import fitting as offline
from discreet.people.counting import LoggedData
from discreet.people.logs import LogFormat
from discreet.policy import Policy
from discreet.privacy.accounting import Budget

H = 6
FREE = Budget.pure(math.inf)
LEARNERS = {
    "one-hot": {"algorithm": "one-hot", "budget": FREE},
    "private one-hot": {"algorithm": "one-hot", "budget": Budget.pure(20.0)},
    "one step per user": {"algorithm": "one-hot", "budget": Budget.pure(2.0)},
    "apvi": {"algorithm": "apvi"},
    "apvi as printed": {"algorithm": "apvi", "mode": "paper"},
    "private dp-apvi": {"algorithm": "dp-apvi", "budget": Budget.pure(60.0)},
    "pevi": {"algorithm": "pevi", "features": np.eye(2).reshape(1, 2, 2)},
    "vapvi": {"algorithm": "vapvi", "features": np.eye(2).reshape(1, 2, 2)},
    "vapvi as printed": {"algorithm": "vapvi", "mode": "paper", "features": np.eye(2).reshape(1, 2, 2)},
}


@cache
def hospital(n: int, shift: float, seed: int = 1) -> dict[str, list[float]]:
    """One state. To discharge pays 1 and ends, to wait pays 0, or −1 and ends, in one case of ten; plus the shift."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[float]] = {name: [] for name in ("user", "step", "state", "action", "reward")}
    for u in range(n):
        for h in range(H):
            action = int(rng.random() < 0.25)
            dead = action == 0 and rng.random() < 0.1
            for name, value in zip(rows, (u, h, 0, action, shift + action - dead), strict=True):
                rows[name].append(value)
            if action or dead:
                break
    return rows


def best(shift: float, ended: float) -> tuple[list[int], float]:
    """Actions at all steps and value from the first one, by hand."""
    value, actions = 0.0, []
    for left in range(H):
        wait = shift - 0.1 + 0.9 * value + 0.1 * left * ended
        discharge = shift + 1.0 + left * ended
        actions.append(int(discharge > wait))
        value = max(wait, discharge)
    return actions[::-1], value


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(
    ("shift", "ended"),
    [
        (0.0, 0.0),  # leaving at once is best, although 0 is in the middle of the range
        (0.0, -1.0),  # those who left lose 1 a step: stay to the last moment
        (0.0, 1.0),
        (3.0, 0.0),  # 0 lies below all rewards
        (-3.0, 0.0),  # and above all of them
        (-3.0, -5.0),
    ],
)
def test_l1_who_has_ended_earns_what_was_declared_whatever_the_range(learner, shift, ended):
    options = dict(LEARNERS[learner])
    pooled = "features" not in options
    log = LogFormat(1, 2, H, pooled, reward_range=(shift - 1.0, shift + 1.0), ended_pays=ended)
    found = offline.fit(
        hospital(4000, shift), log, options.pop("budget", None), seed=0, initial=np.ones(1), **options
    )
    actions, value = best(shift, ended)
    assert found.policy.actions[:, 0].tolist() == actions
    worth = found.certificate["estimate"]
    estimate = worth["value_cautious"] if worth["value_estimate"] is None else worth["value_estimate"]
    # In units of what can be gained or lost; regressions shrink, and what is taken off in print is large.
    closeness = 0.04 if pooled else (0.25 if "printed" in learner else 0.08)
    least, most = worth["possible_values"]
    assert abs(estimate - value) <= closeness * (most - least)
    assert worth["value_lower"] <= value
    assert worth["possible_values"] == pytest.approx(
        [shift - 1 + (H - 1) * min(shift - 1, ended), shift + 1 + (H - 1) * max(shift + 1, ended)]
    )


def test_l1_the_command_says_what_those_who_left_earn(tmp_path):
    table = pa.table(hospital(2000, 0.0))
    path = tmp_path / "log.parquet"
    pa.parquet.write_table(table, path)
    sizes = ("--states", "1", "--actions", "2", "--horizon", str(H), "--reward-range=-1:1", "--initial", "0")

    def run(*more):
        return CliRunner().invoke(app, ["fit", str(path), *sizes, "--epsilon", "5", "--seed", "0", *more])

    for pays, action in (("0", 1), ("-1", 0)):
        out = tmp_path / f"pays{pays}"
        done = run("--ended-pays", pays, "--out", str(out))
        assert done.exit_code == 0, done.output
        assert "in units of the reward, surely at least " in done.stdout
        assert "(possible: -6 to 6)" in done.stdout
        assert Policy.load(out).act(0, 0) == action
        assert json.loads((out / "certificate.json").read_text())["problem"]["ended_pays"] == float(pays)
    shown = json.loads(CliRunner().invoke(app, ["evaluate", str(tmp_path / "pays0"), "--json"]).stdout)
    assert shown["estimate"] == shown["value_estimate"] == pytest.approx(1.0, abs=0.1)
    refused = run("--ended-pays", "nan", "--out", str(tmp_path / "none"))
    assert refused.exit_code == 2
    assert "ended_pays is nan; it must be a number" in refused.stderr


@pytest.mark.parametrize("algorithm", ["one-hot", "dp-apvi"])
def test_l2_a_reward_at_the_last_step_only_is_not_lost_where_steps_are_pooled(algorithm):
    """All episodes have all steps and there is no next_state: nobody knows where the last steps led."""
    n = 4000
    steps = np.tile(np.arange(4), n)
    table = {"user": np.repeat(np.arange(n), 4), "step": steps, "state": steps % 2, "reward": 1.0 * (steps == 3)}
    table["action"] = np.random.default_rng(0).integers(2, size=4 * n)
    for budget in (FREE, Budget.pure(20.0)):
        found = offline.fit(
            table, LogFormat(2, 2, 4, pooled=True), budget, algorithm=algorithm, seed=0, initial=np.array([1.0, 0.0])
        )
        worth = found.certificate["estimate"]
        assert worth["value_estimate"] == pytest.approx(
            1.0, abs=0.07
        )  # two visits to a state that pays half the time
        assert worth["value_lower"] <= 1.0


def stays(n: int, seed: int) -> tuple[pa.Table, float]:
    """Every step pays 1 and ends the stay with probability .3: worth (1 − .7^10)/.3 = 3.24 in ten steps."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(rng.geometric(0.3, size=n), 10)
    user, step = np.repeat(np.arange(n), lengths), np.concatenate([np.arange(k) for k in lengths])
    zeros = np.zeros(user.size, int)
    table = pa.table({"user": user, "step": step, "state": zeros, "action": zeros, "reward": np.ones(user.size)})
    return table, (1 - 0.7**10) / 0.3


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("algorithm", ["one-hot", "dp-apvi"])
def test_l2_rows_kept_as_they_are_prove_nothing_about_what_follows_the_last_one(algorithm, pooled):
    """The lower bound was above what any policy can earn; where ends are said, the estimate is right, too."""
    table, value = stays(20_000, 0)
    log = LogFormat(1, 1, 10, pooled, early_end="keep")
    options = {"algorithm": algorithm, "seed": 0, "initial": np.ones(1)}
    kept = offline.fit(table, log, FREE, **options).certificate["estimate"]
    assert 0.5 * value < kept["value_lower"] <= value
    last = np.append(np.diff(np.asarray(table["user"])) > 0, True)
    for name in ("terminated", "done"):
        said = offline.fit(table.append_column(name, [last]), log, FREE, **options).certificate["estimate"]
        assert said["value_estimate"] == pytest.approx(value, rel=0.03)
        assert 0.5 * value < said["value_lower"] <= value
    ended = offline.fit(table, LogFormat(1, 1, 10, pooled), FREE, **options).certificate["estimate"]
    assert ended["value_estimate"] == pytest.approx(value, rel=0.03)


@pytest.mark.parametrize("algorithm", ["one-hot", "dp-apvi", "apvi"])
@pytest.mark.parametrize("given", [True, False])
def test_l2_a_cut_is_no_end(algorithm, given):
    """Every step pays 1; half of the stays are cut at a random step, which says nothing about what follows."""
    rng = np.random.default_rng(3)
    n = 3000
    lengths = np.where(rng.random(n) < 0.5, rng.integers(1, 6, size=n), 6)
    user, step = np.repeat(np.arange(n), lengths), np.concatenate([np.arange(k) for k in lengths])
    zeros, last = np.zeros(user.size, int), np.append(np.diff(user) > 0, True)
    table = {"user": user, "step": step, "state": zeros, "action": zeros, "reward": np.ones(user.size)}
    table |= {"truncated": last & (step < 5)} | ({"next_state": zeros} if given else {})
    budget = None if algorithm == "apvi" else FREE
    for pooled in (True, False):
        log = LogFormat(1, 1, 6, pooled)
        found = offline.fit(table, log, budget, algorithm=algorithm, seed=0, initial=np.ones(1))
        assert found.certificate["estimate"]["value_estimate"] == pytest.approx(6.0, abs=1e-6)
        assert found.certificate["estimate"]["value_lower"] > 4.0
    without = {name: column for name, column in table.items() if name != "truncated"}
    found = offline.fit(without, LogFormat(1, 1, 6), budget, algorithm=algorithm, seed=0, initial=np.ones(1))
    assert found.certificate["estimate"]["value_estimate"] < 4.7  # else they have left


def leaving(n: int, horizon: int, paid: float, told: str, cut: float = 0.0) -> dict[str, np.ndarray]:
    """One state and action, which pays and ends in three cases of ten. A column says who ended, and so who did not:
    `terminated`, beside it `truncated` (a share `cut` of those who did not end), or `next_state`, missing at ends."""
    rng = np.random.default_rng(0)
    parts, there = [], np.arange(n)
    for h in range(horizon):
        ended = rng.random(len(there)) < 0.3
        stopped = ~ended & (rng.random(len(there)) < cut)
        parts.append(np.stack([there, np.full(len(there), h), ended, stopped], axis=1))
        there = there[~ended & ~stopped]
    user, step, ended, stopped = np.concatenate(parts).T
    rows = {"user": user, "step": step, "state": 0 * user, "action": 0 * user, "reward": np.full(len(user), paid)}
    flags = {"terminated": ended == 1, "truncated": stopped == 1}
    ways = {
        "terminated": flags if cut else {"terminated": ended == 1},
        "next": {"next_state": np.where(ended, np.nan, 0.0)},
    }
    return rows | ways[told]


@pytest.mark.parametrize("algorithm", ["apvi", "one-hot", "dp-apvi"])
@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize(
    ("paid", "told", "cut"), [(-1.0, "terminated", 0.0), (-1.0, "terminated", 0.3), (1.0, "next", 0.0)]
)
def test_l2_whose_successor_is_unknown_because_they_did_not_end_is_no_sample_of_all(
    algorithm, pooled, paid, told, cut
):
    """With so many users a bound that takes the unknown to be like the known is above the value."""
    log = LogFormat(1, 1, 4, pooled=pooled, reward_range=(min(paid, 0.0), max(paid, 0.0)))
    budget = None if algorithm == "apvi" else Budget.pure(20.0)
    source = leaving(100_000, 4, paid, told, cut)
    found = offline.fit(source, log, budget, algorithm=algorithm, initial=np.ones(1), seed=1).certificate["estimate"]
    value = paid * sum(0.7**h for h in range(4))
    assert value - 1.0 < found["value_lower"] < value


def test_l8_plans_that_would_take_for_ever_are_refused_at_once():
    table = hospital(20, 0.0)
    for steps, words in ((10**6, "at most 100,000"), (0, "at least 1")):
        with pytest.raises(ValueError, match=words):
            offline.fit(table, LogFormat(1, 2, H, pooled=True), FREE, seed=0, plan_horizon=steps)
    with pytest.raises(ValueError, match=r"planning takes .* sums .*too many; plan fewer steps"):
        offline.fit(table, LogFormat(300, 2, H, pooled=True), FREE, seed=0, plan_horizon=100_000)
    with pytest.raises(ValueError, match="too many"):
        offline.fit(table, LogFormat(300, 2, 90_000, pooled=True), FREE, seed=0)
    assert offline.fit(table, LogFormat(1, 2, H, pooled=True), FREE, seed=0, plan_horizon=5000).policy.horizon == 5000


@pytest.mark.parametrize("early_end", ["absorb", "keep"])
@pytest.mark.parametrize("nullable", [True, False])
def test_l2_a_successor_that_is_missing_at_the_last_step_is_no_end(tmp_path, early_end, nullable):
    """As logs are written with a shift: states alternate, state 1 pays 1, and the last row has no successor."""
    rows = [(user, step, step % 2, 0, float(step % 2), None if step == 3 else 1 - step % 2)
            for user in range(50) for step in range(4)]  # fmt: skip
    names = ("user", "step", "state", "action", "reward", "next_state")
    if not nullable:
        rows = [(*row[:-1], 0 if row[-1] is None else row[-1]) for row in rows]
    types = [pa.int64()] * 4 + [pa.float64(), pa.int64()]
    schema = pa.schema([pa.field(n, t, nullable=nullable) for n, t in zip(names, types, strict=True)])
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=schema)
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    log = LogFormat(2, 1, 4, pooled=True, early_end=early_end)
    for source in (table, str(tmp_path / "log.parquet")):
        assert LoggedData(source, log).log.has_unknown == nullable
        found = offline.fit(source, log, algorithm="apvi", initial=np.array([1.0, 0.0]), seed=0)
        assert found.certificate["estimate"]["value_estimate"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"reward_range": (-1e308, 1e308)}, "two finite numbers"),
        ({"ended_pays": 1e308, "reward_range": (0.0, 1e-5)}, "ended_pays"),
        ({"ended_pays": 1e300}, "ended_pays"),
    ],
)
def test_l8_rewards_of_no_scale_are_refused_before_anything_is_read(facts, words):
    with pytest.raises(ValueError, match=words):
        LogFormat(1, 2, 3, **facts)


@pytest.mark.parametrize("learner", ["one-hot", "apvi"])
def test_l3_those_who_end_at_the_last_step_are_not_counted_where_survivors_are_unknown(learner):
    """Every step pays 1 and half of the people end: exactly half of 800 at every one of three steps."""
    left = [800, 400, 200]
    rows = {
        "user": np.concatenate([np.arange(n) for n in left]),
        "step": np.repeat(np.arange(3), left),
        "state": np.zeros(sum(left), np.int64),
        "action": np.zeros(sum(left), np.int64),
        "reward": np.ones(sum(left)),
        "terminated": np.concatenate([np.arange(n) >= n // 2 for n in left]),
    }
    log = LogFormat(1, 1, 3, pooled=True)
    found = offline.fit(rows, log, initial=np.ones(1), seed=0, **LEARNERS[learner])
    estimate = found.certificate["estimate"]
    assert estimate["value_estimate"] == pytest.approx(1 + 1 / 2 + 1 / 4)
    assert estimate["value_lower"] < 1.75
