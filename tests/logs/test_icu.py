"""Declared successors and plans beyond what is counted, and the case study that needs both: ICU-Sepsis."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import oracles_offline as oracle
from discreet.cli import app
from discreet.envs import ENVIRONMENTS, icu, make, registry, spec
from discreet.envs.rewards import RewardLaw
from discreet.offline import certificate
from discreet.offline import fitting as offline
from discreet.people.counting import LoggedData, StepCounts
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes, MDPSimulator
from discreet.people.logs import LogFormat, table_of
from discreet.planning import optimal_plan, policy_value, uniform_policy
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.one_hot import OneHot
from discreet.problem import PublicStructure
from discreet.releases.items import Items
from discreet.runs.forecasts import forecast_fit

EXACT = Budget.pure(math.inf)
needs_tables = pytest.mark.skipif(not icu.installed(), reason="the extra icu is not installed")


def some_support(stages: int) -> np.ndarray:
    """Two states, two actions: (0, 0) leads to 0 only, (0, 1) anywhere, (1, 0) to 1 only, (1, 1) is impossible."""
    support = np.zeros((stages, 2, 2, 2), dtype=bool)
    support[:, 0, 0, 0] = support[:, 1, 0, 1] = True
    support[:, 0, 1] = True
    return support


def items(counts: StepCounts, spec_: CountSpec, cells: Items, num_users: int, first_visits: bool = False):
    """What the noise is added to, in grid units: the release without noise."""
    private = OneHot(EXACT, first_visits=first_visits)
    stream = private.open(spec_, cells, num_users, NoiseSource.seeded(0))
    stream.add(counts)
    return stream.release().values / spec_.grid


# Declared successors: privacy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_sensitivity_by_enumeration_with_steps_outside_the_support(pooled, known):
    """All pairs of episodes, most of which leave the declared support: the bound is met and never crossed."""
    spec_ = CountSpec(2, 2, 2, pooled, grid=0.5)
    cells = Items.of(2, 2, 2, pooled, PublicStructure(successors=some_support(spec_.stages)), known_rewards=known)
    rows = set()
    for states in itertools.product(range(2), repeat=3):
        for actions in itertools.product(range(2), repeat=2):
            for paid in itertools.product((0.0, 0.5, 1.0), repeat=2):
                one = StepCounts.of(Episodes([list(states)], [list(actions)], [list(paid)]), spec_)
                found = items(one, spec_, cells, 1)
                whole = oracle.histogram(one.transitions, one.reward_sums, spec_.reward_units, cells)
                assert np.array_equal(found, np.where(cells.admitted, whole, 0))
                rows.add(tuple(found.reshape(-1).tolist()))
    gaps = [np.subtract(a, b) for a, b in itertools.combinations(sorted(rows), 2)]
    l1, l2 = OneHot(Budget.pure(1.0)).sensitivity(spec_)
    assert max(np.abs(gap).sum() for gap in gaps) == l1 == 2 * 2 * 2
    assert max(math.sqrt((gap**2).sum()) for gap in gaps) == pytest.approx(l2)
    assert any(not any(row) for row in rows)  # somebody whose every step lies outside says nothing


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("early_end", ["keep", "absorb"])
def test_one_person_moves_only_her_own_steps_whatever_lies_outside(pooled, early_end):
    """Through the counting of files: replace one person, with steps inside, outside and unreadable."""
    rng = np.random.default_rng(3)
    horizon = 3
    budgets = [(Budget.pure(1.0), False), (Budget.zcdp(1.0), pooled)]
    for budget, first_visits in budgets:
        log = LogFormat(2, 2, horizon, pooled, early_end=early_end, grid=0.25, first_visits=first_visits)
        structure = PublicStructure(successors=some_support(log.spec.stages))
        cells = Items.of(2, 2, horizon, pooled, structure, absorbing=early_end == "absorb")
        private = OneHot(budget, first_visits=first_visits)
        l1, l2 = private.sensitivity(log.spec)

        def person(i):
            n = rng.integers(1, horizon + 1)
            return {
                "user": np.full(n, i),
                "step": np.arange(n),
                "state": rng.integers(0, 3, n),  # 2 is no state
                "action": rng.integers(0, 2, n),
                "reward": rng.choice([0.0, 0.25, 1.0], n),
                "next_state": rng.integers(0, 2, n),
            }

        def histogram(people, log=log, cells=cells, first_visits=first_visits):
            columns = {name: np.concatenate([p[name] for p in people]) for name in people[0]}
            return items(LoggedData(columns, log).counts(), log.spec, cells, len(people), first_visits)

        def steady(s, a, y):
            same = {"state": s, "action": a, "reward": 0.0, "next_state": y}
            rest = {name: np.full(horizon, value) for name, value in same.items()}
            return {"user": np.full(horizon, 3), "step": np.arange(horizon), **rest}

        pairs = [(person(3), person(3)), (steady(0, 1, 1), steady(1, 1, 0)), (steady(0, 1, 1), steady(1, 0, 1))]
        for pair in pairs:
            others = [person(i) for i in range(3)]
            others[0]["state"][:] = 0  # so that something can be counted
            alone, one, two = (histogram(people) for people in (others, *([*others, last] for last in pair)))
            assert not one[~cells.admitted].any()
            assert (one >= alone).all()
            assert (two >= alone).all()
            assert np.abs(one - two).sum() <= l1
            assert math.sqrt(((one - two) ** 2).sum()) <= l2 * (1 + 1e-12)
        assert first_visits or np.abs(one - two).sum() == l1  # the last pair is as far apart as two people can be


def test_impossible_pairs_have_no_items_and_no_noise():
    support = some_support(2)
    for pooled in (True, False):
        declared = PublicStructure(successors=support[: 1 if pooled else 2])
        cells = Items.of(2, 2, 2, pooled, declared, absorbing=True)
        assert cells.possible.tolist() == [[[True, True], [True, False]]] * (1 if pooled else 2)
        sizes = cells.admitted.sum(axis=1).tolist()
        assert sizes[:4] == [4, 6, 4, 0]  # successors and having left, paid or not
        assert pooled or sizes[4:] == [2, 2, 2, 0]
        assert cells.sizes.min() == 1
    nobody = StepCounts(np.zeros((2, 3, 2, 3), int), np.zeros((2, 3, 2, 3), int), 1)
    stream = OneHot(Budget.pure(1.0)).open(LogFormat(2, 2, 2).spec, cells, 1, NoiseSource.seeded(1))
    stream.add(nobody)
    values = stream.release().values
    assert np.array_equal(values != 0.0, cells.admitted)


# Declared successors: fit -------------------------------------------------------------------------------------------


def swim(n: int, seed: int = 0):
    mdp = make("riverswim")
    episodes = MDPSimulator(mdp, RewardLaw("bernoulli"), seed).rollout(spec("riverswim").behaviour(mdp), n)
    return mdp, table_of(episodes), np.asarray(mdp.transitions[0] > 0)


def test_fewer_items_teach_more_and_the_certificate_says_what_was_declared(tmp_path):
    mdp, table, support = swim(300)
    log = LogFormat(6, 2, 20, True)
    plain, declared = (
        [
            offline.evaluate(offline.fit(table, log, Budget.pure(1.0), seed=s, **more).policy, mdp)["gap_ratio"]
            for s in range(10)
        ]
        for more in ({}, {"successors": support})
    )
    assert np.mean(declared) < np.mean(plain) - 0.05
    found = offline.fit(table, log, Budget.pure(1.0), seed=0, successors=support)
    problem = found.certificate["problem"]
    assert problem["successors_known"].startswith(f"{support.sum()} of 72, sha256")
    lines = found.certificate["guarantee"]["assumptions"]
    assert "the possible successors of every state and action are public" in lines
    other = support.copy()
    other[0, 0, 5] = True
    again = offline.fit(table, log, Budget.pure(1.0), seed=0, successors=other).certificate["problem"]
    assert again["successors_known"].split()[-1] != problem["successors_known"].split()[-1]
    found.save(tmp_path)
    assert certificate.verify(tmp_path, allow_simulation=True).consistent


def test_what_lies_outside_changes_nothing_and_impossible_actions_are_never_taken():
    rng = np.random.default_rng(0)
    n = 6000
    columns = {
        "user": np.arange(n),
        "step": np.zeros(n, int),
        "state": rng.integers(0, 3, n),
        "action": rng.integers(0, 3, n),
        "reward": rng.random(n),
        "next_state": rng.integers(0, 3, n),
    }
    support = np.zeros((3, 3, 3), dtype=bool)
    support[:2, 1:, :2] = True  # nothing is possible in state 2, nor with action 0
    outside = ~support[columns["state"], columns["action"], columns["next_state"]]
    moved = {**columns, "reward": np.where(outside, 1.0 - columns["reward"], columns["reward"])}
    log = LogFormat(3, 3, 4, True, early_end="keep")
    for options in ({}, {"rewards": np.full((3, 3), 1.0)}):
        one, two = (
            offline.fit(rows, log, Budget.pure(1.0), algorithm="one-hot", seed=2, successors=support, **options)
            for rows in (columns, moved)
        )
        assert np.array_equal(one.policy.values, two.policy.values)
        assert (one.policy.actions[:, :2] > 0).all()
        assert not one.policy.values[:, 2].any()  # no reward is promised for what cannot be done
        assert one.certificate["estimate"]["covered_state_actions"] == 1.0  # of the possible pairs
    assert one.certificate["algorithm"]["items"] == 4 * 2


def test_gaussian_noise_on_first_visits_and_one_step_per_user_respect_the_support():
    _, table, support = swim(4000)
    log = LogFormat(6, 2, 20, True)
    for budget in (Budget.zcdp(0.5), Budget.pure(1.0)):
        found = offline.fit(table, log, budget, seed=0, successors=support)
        assert found.certificate["algorithm"]["items"] == 2 * (support.sum() + 12)
        assert offline.evaluate(found.policy, make("riverswim"))["gap_ratio"] < 0.05
    assert found.certificate["algorithm"]["steps_per_user"] == "one"


def test_forecasts_count_what_is_possible():
    log = LogFormat(6, 2, 20, pooled=True)
    half = np.zeros((1, 6, 2, 6), dtype=bool)
    half[:, :, 0, :3] = True
    all_, some = forecast_fit(log, Budget.pure(1.0), 1000), forecast_fit(log, Budget.pure(1.0), 1000, successors=half)
    assert some.visits == pytest.approx(2 * all_.visits)
    assert some.needed_visits < all_.needed_visits
    assert some.deviation == all_.deviation


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"successors": np.ones((6, 2), bool)}, "successors have shape"),
        ({"successors": np.ones((6, 2, 6))}, "of bool"),
        ({"successors": np.zeros((6, 2, 6), bool)}, "every step impossible"),
        ({"successors": np.ones((6, 2, 6), bool), "algorithm": "dp-apvi"}, "counts all successors"),
        ({"plan_horizon": 30, "algorithm": "dp-apvi"}, "needs the one-hot learner"),
        ({"plan_horizon": 0}, "at least 1"),
    ],
)
def test_declarations_that_do_not_fit_are_refused(options, words):
    _, table, _ = swim(20)
    with pytest.raises(ValueError, match=words):
        offline.fit(table, LogFormat(6, 2, 20, True), Budget.pure(1.0), seed=0, **options)
    with pytest.raises(ValueError, match="pooled counts"):
        offline.fit(table, LogFormat(6, 2, 20), Budget.pure(1.0), seed=0, plan_horizon=30)


# Planning further than is counted -----------------------------------------------------------------------------------


def test_few_counted_steps_cost_little_and_plans_reach_further(tmp_path):
    """Starts anywhere, so that few steps show everything: noise for 4 steps, a plan for 20."""
    mdp = make("riverswim")
    rng = np.random.default_rng(0)
    n, counted = 5000, 4
    state = rng.integers(0, 6, n)
    rows = {name: [] for name in ("user", "step", "state", "action", "reward", "next_state")}
    for h in range(20):
        action = rng.integers(0, 2, n)
        draw = rng.random((n, 1)) < np.cumsum(mdp.transitions[0, state, action], axis=1)
        following = draw.argmax(axis=1)
        paid = (rng.random(n) < mdp.rewards[0, state, action]).astype(float)
        for name, values in zip(rows, (np.arange(n), np.full(n, h), state, action, paid, following), strict=True):
            rows[name].append(values)
        state = following
    log = {name: np.concatenate(parts) for name, parts in rows.items()}
    found = offline.fit(
        log, LogFormat(6, 2, counted, True, early_end="keep"), Budget.pure(3.0), seed=0, plan_horizon=20
    )
    assert found.policy.horizon == 20
    assert offline.evaluate(found.policy, mdp)["gap_ratio"] < 0.01
    (line,) = found.certificate["ledger"]
    assert line["sensitivity"] == 2 * counted * 2**20
    assert found.certificate["problem"]["planned_steps"] == 20
    assert found.certificate["unit"]["steps_per_episode"] == counted
    found.save(tmp_path)
    assert certificate.verify(tmp_path, allow_simulation=True).consistent


def test_the_command_line_takes_both_declarations(tmp_path):
    _, table, support = swim(2000)
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    np.save(tmp_path / "support.npy", support)
    np.save(tmp_path / "numbers.npy", support.astype(float))

    def run(*arguments):
        return CliRunner().invoke(app, [str(a) for a in arguments])

    sizes = ("--states", 6, "--actions", 2, "--horizon", 10, "--pooled", "--epsilon", 3, "--out", tmp_path / "p")
    begin = ("fit", tmp_path / "log.parquet", *sizes)
    done = run(*begin, "--successors", tmp_path / "support.npy", "--plan-horizon", 20, "--json")
    assert done.exit_code == 0, done.output
    problem = json.loads(done.stdout)["problem"]
    assert (problem["horizon"], problem["planned_steps"]) == (10, 20)
    assert problem["successors_known"].startswith(f"{support.sum()} of 72")
    assert run("verify", tmp_path / "p").exit_code == 0
    worth = json.loads(run("evaluate", tmp_path / "p", "--env", "riverswim", "--json").stdout)
    assert worth["value"] > 0.5 * worth["value_optimal"]
    for name, words in (("numbers.npy", "expected an array of bools"), ("nothing.npy", "holds no array")):
        refused = run(*begin, "--successors", tmp_path / name)
        assert refused.exit_code != 0
        assert words in refused.output + str(refused.exception)


# The published model ------------------------------------------------------------------------------------------------


def test_without_the_tables_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(icu, "find_spec", lambda name: None)
    icu.tables.cache_clear()
    with pytest.raises(ValueError, match=r"discreet\[icu\]"):
        icu.icu_sepsis()
    monkeypatch.setattr(registry, "ENVIRONMENTS", {k: v for k, v in ENVIRONMENTS.items() if k != "icu-sepsis"})
    with pytest.raises(ValueError, match=r"discreet\[icu\]"):
        make("icu-sepsis")


def test_tables_of_another_version_are_refused(monkeypatch, tmp_path):
    class Found:
        origin = str(tmp_path / "__init__.py")

    monkeypatch.setattr(icu, "find_spec", lambda name: Found)
    icu.tables.cache_clear()
    with pytest.raises(ValueError, match="other files"):
        icu.tables()
    folder = tmp_path / "envs" / "assets"
    folder.mkdir(parents=True)
    np.savez(folder / "dynamics.npz", tx_mat=np.ones((2, 1, 2)), d_0=np.ones(2), expert_policy=np.ones((2, 1)))
    (folder / "admissible_actions.txt").write_text("1 1\n0\n0\n")
    with pytest.raises(ValueError, match="expected those of version 2"):
        icu.tables()


@needs_tables
def test_the_package_itself_is_never_imported():
    script = "from discreet.envs import make; import sys; make('icu-sepsis'); print('icu_sepsis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@needs_tables
def test_published_values():
    """The publishers' figures are .78, .78 and .88; what 99 treatments leave out is less than 10⁻⁴."""
    mdp = make("icu-sepsis")
    assert mdp.initial @ optimal_plan(mdp).value[0] == pytest.approx(0.87504, abs=1e-5)
    assert policy_value(mdp, spec("icu-sepsis").behaviour(mdp)) == pytest.approx(0.78182, abs=1e-5)
    shape = (mdp.horizon, mdp.num_states, mdp.num_actions)
    assert policy_value(mdp, uniform_policy(shape)) == pytest.approx(0.78004, abs=1e-5)


@needs_tables
def test_what_the_published_tables_mean():
    found, paid = icu.tables(), icu.rewards()
    P, admissible = found.transitions, found.admissible
    assert (P[icu.DEAD :, :, icu.GONE] == 1.0).all()
    assert paid.sum() == paid[icu.SURVIVED].sum() == icu.NUM_ACTIONS
    assert found.initial[icu.DEAD :].sum() == 0.0
    assert found.clinician.sum(axis=1) == pytest.approx(np.ones(icu.NUM_STATES))
    assert admissible[: icu.DEAD].sum() == 2238
    assert admissible.any(axis=1).all()
    for s in (0, 100, 712):  # an inadmissible treatment acts like a random admissible one
        mean = P[s, admissible[s]].mean(axis=0)
        for a in np.flatnonzero(~admissible[s]):
            assert P[s, a] == pytest.approx(mean, abs=1e-12)
    wide, narrow = icu.successors(False), icu.successors(True)
    assert not (narrow & ~wide).any()
    assert np.array_equal(wide.any(axis=-1), admissible)
    assert np.array_equal(narrow.any(axis=-1), admissible)


@needs_tables
def test_patients_stay_inside_what_is_declared_and_a_log_without_noise_beats_the_clinicians():
    mdp = make("icu-sepsis", horizon=30)
    played = MDPSimulator(mdp, spec("icu-sepsis").law(mdp), 0).rollout(
        np.ascontiguousarray(spec("icu-sepsis").behaviour(mdp)), 20_000
    )
    who, step = np.nonzero(played.states[:, :-1] < icu.DEAD)
    state, action = played.states[who, step], played.actions[who, step]
    following = played.states[who, step + 1]
    allowed = icu.tables().admissible[state, action]
    assert icu.successors(True)[state, action, following][allowed].all()
    assert 0.1 < (~allowed).mean() < 0.2  # clinicians also did what too few of them did to be modelled
    log = {
        "user": who,
        "step": step,
        "state": state,
        "action": action,
        "reward": np.zeros(who.size),
        "next_state": following,
    }
    found = offline.fit(
        log,
        LogFormat(icu.NUM_STATES, icu.NUM_ACTIONS, 30, True, early_end="keep"),
        EXACT,
        rewards=icu.rewards(),
        successors=icu.successors(True),
        seed=0,
    )
    clinician = policy_value(mdp, np.ascontiguousarray(spec("icu-sepsis").behaviour(mdp)))
    assert policy_value(mdp, found.policy.actions) > clinician + 0.02
    assert found.certificate["algorithm"]["items"] == icu.successors(True).sum()
