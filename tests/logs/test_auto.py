"""The learner for declared columns: its parts and their price, what it finds, and what its certificate says."""

from __future__ import annotations

import gc
import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from discreet.agents.practice import AS_NOW, merge_states
from discreet.offline import auto, certificate, fitting
from discreet.offline.claims import problems_of
from discreet.offline.declaration import Column, Declaration, Grid
from discreet.people import stays as people_stays
from discreet.people.counting import LoggedData
from discreet.people.logs import LogFormat
from discreet.people.stays import DeclaredLog, StoredStays, read_stays
from discreet.policy import Policy
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource

ONE = Budget.pure(1.0)
COLUMNS = (Column("x", 0.0, 1.0, edges=(0.25, 0.5, 0.75)), Column("y", 0.0, 1.0), Column("ward", names=("A", "B")))


def declared(**changes) -> Declaration:
    facts = {"propensity": "p", "episodes_per_user": 1} | changes
    return Declaration(COLUMNS, ("wait", "treat", "harm"), 4, **facts)


def people(users: int, seed: int = 0, good: bool = True) -> dict[str, np.ndarray]:
    """People do as the rule says half of the time: treat above .5. That pays, if it is `good`; harm never does."""
    rng = np.random.default_rng(seed)
    n = users * 4
    x, y = rng.random(n), rng.random(n)
    rule = (x > 0.5).astype(int)
    action = np.where(rng.random(n) < 0.5, rule, rng.integers(0, 3, n))
    p = np.where(action == rule, 0.5 + 1 / 6, 1 / 6)
    right = (action == rule) if good else (action == 1 - rule)
    reward = (rng.random(n) < 0.2 + 0.6 * right).astype(float)
    return {
        "user": np.repeat(np.arange(users), 4),
        "step": np.tile(np.arange(4), users),
        "action": np.array(["wait", "treat", "harm"])[action],
        "reward": reward,
        "p": p,
        "x": x,
        "y": y,
        "ward": np.array(["A", "B"])[rng.integers(0, 2, n)],
    }


def log(users: int, seed: int = 0, good: bool = True) -> pa.Table:
    return pa.table(people(users, seed, good))


def plan(users: int, budget: Budget = ONE, **changes) -> auto.Design:
    options = {key: changes.pop(key) for key in ("neighbours", "safe") if key in changes}
    declaration = declared(**changes)
    neighbours = options.get("neighbours", "replace")
    return auto.Design(declaration, declaration.grid(users, budget, neighbours), users, budget, **options)


# Parts and their price ----------------------------------------------------------------------------------------------


def test_the_public_rule_says_how_the_budget_is_divided():
    fewest, few, many = plan(1_999), plan(4_999), plan(5_000)
    assert few.parts == many.parts == ("behaviour", "steps", "returns", "choice")
    assert fewest.share == pytest.approx({"behaviour": 0.6, "returns": 0.1, "choice": 0.3})
    assert plan(2_000).share == few.share
    assert few.share == pytest.approx({"behaviour": 0.4, "steps": 0.35, "returns": 0.05, "choice": 0.2})
    assert many.share == pytest.approx({"behaviour": 0.17, "steps": 0.65, "returns": 0.03, "choice": 0.15})
    assert plan(4_999, neighbours="zero-out").share == many.share
    assert plan(100, safe=True).share == {"behaviour": 1.0}
    worth = math.sqrt(8 * 4 * 0.02)  # of ρ = .02 with four steps
    assert plan(math.ceil(5_000 / worth), Budget.zcdp(0.02)).share["steps"] == pytest.approx(0.65 * 0.02)
    assert plan(math.ceil(5_000 / worth) - 1, Budget.zcdp(0.02)).share["steps"] == pytest.approx(0.35 * 0.02)
    assert [plan(n).depth for n in (10_000, 50_000, 500_000)] == [3, 4, 5]


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize("episodes", [1, 3])
@pytest.mark.parametrize("users", [1_000, 20_000])
@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize(
    "budget", [Budget.pure(0.7), Budget.zcdp(0.02), Budget.zcdp(0.02, 1e-6), Budget.approximate(1.0, 1e-6)]
)
def test_all_parts_together_cost_exactly_the_budget(budget, safe, users, episodes, neighbours):
    made = plan(users, budget, safe=safe, episodes_per_user=episodes, neighbours=neighbours)
    found = made.guarantee(NoiseSource.secure())
    assert found.neighbours == neighbours
    assert found.unit == f"user ({episodes} episode{'s' if episodes > 1 else ''})"
    if budget.kind == "pure":
        assert (found.epsilon, found.delta) == (0.7, 0.0)
        spent = sum(entry.cost for entry in found.entries)
        assert 0.7 * (1 - 1e-8) < spent <= 0.7
    else:
        total = budget.total("gaussian")
        assert total * (1 - 1e-8) < sum(entry.rho for entry in found.entries) <= total * (1 + 1e-12)
        assert budget.epsilon is None or found.epsilon == 1.0


def test_shares_are_those_of_the_design():
    cost = {entry.statistic: entry.cost for entry in plan(20_000).entries()}
    assert cost == pytest.approx(
        {"splits": 0.75 * 0.17, "leaf actions": 0.25 * 0.17, "steps": 0.65, "returns": 0.03, "choice": 0.15}
    )
    rho = {entry.statistic: entry.rho for entry in plan(20_000, Budget.zcdp(0.1)).entries()}
    assert rho == pytest.approx({name: share * 0.1 for name, share in cost.items()})


def test_too_few_users_are_refused_before_anything_is_spent(tmp_path):
    made = plan(300)
    assert made.too_few is not None
    assert plan(made.grid.users_needed).too_few is None
    path = tmp_path / "log.parquet"
    pq.write_table(log(300), path)
    with pytest.raises(ValueError, match=r"300 users are too few for .* nothing was spent; go on with --anyway"):
        fitting.fit(path, declared(), Budget.pure(1.0))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.parquet"]
    fitted = fitting.fit(path, declared(), Budget.pure(1.0), anyway=True)
    assert fitted.certificate["algorithm"]["name"] == "columns"
    assert "users × ε is below 2000" in fitted.certificate["algorithm"]["why"]


# Counting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("gaussian", [True, False])
def test_steps_are_counted_as_the_database_counts_them(gaussian, pooled):
    """Two stays per user of unequal length, of which some end early."""
    table = people(60)
    table["episode"] = table["step"] // 2
    table["step"] = table["step"] % 2
    kept = np.random.default_rng(3).random(240) < 0.8
    table = pa.table({name: column[kept] for name, column in table.items()})
    declaration = replace(declared(episodes_per_user=2, pooled=pooled), horizon=3)
    budget = Budget.zcdp(1e4) if gaussian else Budget.pure(1e3)
    grid = declaration.grid(60, budget)
    made = auto.Design(declaration, grid, 60, budget)
    opened = DeclaredLog(table, declaration)
    engine, form = opened.gridded(grid)
    form = replace(form, first_visits=made.first_visits)
    data = LoggedData(engine, form)
    expected = data.counts()
    made = replace(made, ends=data.log.has_ended, unknown=data.log.has_unknown)
    found = auto.step_counts(opened.stays(), made)
    assert found.first_visits == expected.first_visits
    np.testing.assert_array_equal(found.transitions, expected.transitions)
    np.testing.assert_array_equal(found.reward_sums, expected.reward_sums)


def in_blocks(monkeypatch, source, declaration, block=50):
    """Rows that are too many to be held at once, and all of them."""
    whole = read_stays(source, declaration)
    monkeypatch.setattr(people_stays, "BLOCK", block)
    monkeypatch.setattr(people_stays, "BATCH", 7)
    stored = DeclaredLog(source, declaration).held()
    assert isinstance(stored, StoredStays)
    return stored, whole


def test_l9_rows_that_are_held_some_people_at_a_time_are_the_same_rows(monkeypatch):
    """Several stays per user, some of whom have no row that counts."""
    table = people(200)
    table["episode"] = table["step"] // 2
    table["x"][::7] = np.nan
    stored, whole = in_blocks(monkeypatch, pa.table(table), declared(episodes_per_user=2))
    blocks, first = list(stored.blocks), 0
    assert len(blocks) > 5
    assert (stored.num_users, stored.episodes_per_user, len(stored)) == (200, 2, len(whole))
    assert stored.repairs == whole.repairs
    for name in ("user", "step", "action", "reward", "propensity", "bins", "leads"):
        np.testing.assert_array_equal(np.concatenate([getattr(b, name) for b in blocks]), getattr(whole, name))
    for before, block in pairwise(blocks):
        first += len(before)
        assert 30 <= len(before) <= 70
        assert block.user[0] == before.user[-1] + 1  # nobody is in two
        assert np.isin(first + block.offsets, whole.offsets).all()


@pytest.mark.parametrize("budget", [Budget.pure(2.0), Budget.zcdp(0.5)], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("propensity", ["p", None])
def test_l9_what_is_learned_does_not_depend_on_how_many_rows_are_held_at_once(monkeypatch, budget, propensity):
    declaration = declared(propensity=propensity)
    stored, whole = in_blocks(monkeypatch, log(2_000), declaration, 1_000)
    made = auto.Design(declaration, declaration.grid(2_000, budget), 2_000, budget)
    assert "steps" in made.parts
    one, other = (auto.learn(stays, made, NoiseSource.seeded(3)) for stays in (stored, whole))
    assert one.settings == other.settings
    for name in ("actions", "values", "known"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for found in zip(step_tables(stored, made), step_tables(whole, made), strict=True):
        np.testing.assert_array_equal(*found)


def step_tables(stays, made):
    found = auto.step_counts(stays, made)
    return found.transitions, found.reward_sums


def test_l9_stored_rows_are_gone_with_what_was_learned_from_them(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stored, _ = in_blocks(monkeypatch, log(100), declared())
    (folder,) = [path for path in tmp_path.iterdir() if list(path.glob("*.npz"))]
    assert folder.stat().st_mode & 0o077 == 0  # for nobody else's eyes
    del stored
    gc.collect()
    assert not folder.exists()


# What is learned ----------------------------------------------------------------------------------------------------


def followed(policy: Policy, rule) -> float:
    """How often a policy does as a rule says."""
    rng = np.random.default_rng(9)
    records = [{"x": float(x), "y": float(y), "ward": "B"} for x, y in rng.random((300, 2))]
    return float(np.mean([policy.act(record, step=0) == rule(record["x"]) for record in records]))


def sensible(x: float) -> str:
    return "treat" if x >= 0.5 else "wait"


def test_a_good_practice_is_followed_and_a_bad_one_is_left():
    good = fitting.fit(log(8_000), declared(), Budget.pure(2.0), seed=1)
    assert good.certificate["algorithm"]["chosen"] in ("mode", "one-hot")
    assert followed(good.policy, sensible) > 0.95
    bad = fitting.fit(log(8_000, good=False), declared(), Budget.pure(8.0), seed=1)
    assert bad.certificate["algorithm"]["chosen"] == "one-hot"
    assert followed(bad.policy, lambda x: "wait" if x >= 0.5 else "treat") > 0.85
    safe = fitting.fit(log(8_000, good=False), declared(), Budget.pure(2.0), seed=1, safe=True)
    assert followed(safe.policy, sensible) > 0.95  # what most people do, good or bad


def test_without_propensities_they_are_estimated_from_the_tree():
    found = fitting.fit(log(8_000), declared(propensity=None), Budget.pure(2.0), seed=2)
    assert found.certificate["algorithm"]["propensities"] == "estimated"
    assert followed(found.policy, sensible) > 0.95


def test_where_everything_is_worse_people_do_as_now(monkeypatch):
    monkeypatch.setattr(auto.GainChoice, "choose", lambda self, gains, unit, source: 0)
    found = fitting.fit(log(6_000), declared(), Budget.pure(1.0), seed=2)
    assert found.certificate["algorithm"]["chosen"] == "as now"
    assert found.policy.act({"x": 0.9, "y": 0.1, "ward": "A"}, step=0) == "as now"


def test_people_without_a_row_that_counts_are_people_still():
    table = people(6_000)
    table["x"][:400] = np.nan  # the first hundred
    stays = read_stays(pa.table(table), declared())
    assert stays.num_users == 6_000
    found = auto.learn(stays, plan(6_000), NoiseSource.seeded(0))
    assert (found.actions >= AS_NOW).all()


def test_a_log_in_which_nothing_counts_is_learned_from():
    table = people(40)
    table["x"][:] = np.nan
    for safe in (False, True):
        stays = read_stays(pa.table(table), declared())
        found = auto.learn(stays, plan(40, Budget.pure(200.0), safe=safe), NoiseSource.seeded(0))
        assert found.actions.shape[0] == 4


def test_names_are_split_off_one_by_one_and_gaps_with_them():
    """Range: after every fine bin. Two names: one split says all. Three, or two and what is missing: each alone."""
    states = (
        Column("x", 0.0, 1.0, edges=(0.5,)),
        Column("two", names=("A", "B")),
        Column("gaps", names=("A", "B"), missing=True),
        Column("three", names=("A", "B", "C")),
    )
    columns, thresholds = auto.candidates(replace(declared(), states=states))
    by_column = [thresholds[columns == c].tolist() for c in range(4)]
    assert by_column == [list(range(states[0].num_fine - 1)), [0], [-1, -2, -3], [-1, -2, -3]]


def test_a_practice_that_depends_on_one_name_is_found_and_its_folder_verifies(tmp_path):
    rng = np.random.default_rng(0)
    n = 4_000 * 4
    ward = rng.integers(0, 5, n)
    table = people(4_000) | {"ward": np.array(["A", "B", "C", "D", "E"])[ward]}
    table["action"] = np.where(ward == 2, "treat", "wait")
    what = replace(declared(), states=(Column("ward", names=("A", "B", "C", "D", "E")), *COLUMNS[:2]))
    fitted = fitting.fit(pa.table(table), what, Budget.pure(2.0), safe=True)
    answers = [fitted.policy.act({"ward": name, "x": 0.3, "y": 0.3}, step=0) for name in "ABCDE"]
    assert answers == ["wait", "wait", "treat", "wait", "wait"]
    fitted.save(tmp_path / "policy")
    assert certificate.verify(tmp_path / "policy").problems == ()


# Coarser readings ---------------------------------------------------------------------------------------------------


def test_coarser_readings_are_a_public_rule():
    """Five and three bins, one for what is missing, and names: edges are taken out, names and gaps are not merged."""
    states = (
        Column("x", 0.0, 1.0, edges=(0.2, 0.4, 0.6, 0.8)),
        Column("y", 0.0, 1.0, edges=(0.3, 0.6), missing=True),
        Column("ward", names=("A", "B", "C")),
    )
    what = replace(declared(), states=states)
    grid = Grid(what, tuple(column.cuts(bins) for column, bins in zip(states, (5, 3, 3), strict=True)))
    assert grid.num_states == 5 * 4 * 3
    groups = auto.mergers(grid)
    assert groups[0] is None
    places = np.stack(np.unravel_index(np.arange(60), (5, 4, 3)), axis=1)
    halved = np.array([0, 0, 1, 1, 2]), np.array([0, 0, 1, 2]), np.arange(3)
    everything = np.arange(5), np.arange(4), np.arange(3)
    nothing = np.zeros(5, int), np.zeros(4, int), np.zeros(3, int)
    due = [halved]
    for j in range(3):
        due += [[halved[i] if i == j else everything[i] for i in range(3)]]
        due += [[everything[i] if i == j else nothing[i] for i in range(3)]]
        due += [[nothing[i] if i == j else everything[i] for i in range(3)]]
    codes = [sum(100**i * part[places[:, i]] for i, part in enumerate(parts)) for parts in due]
    partitions = {frozenset(frozenset(np.flatnonzero(code == c)) for c in set(code.tolist())) for code in codes}
    found = {frozenset(frozenset(np.flatnonzero(group == c)) for c in set(group.tolist())) for group in groups[1:]}
    assert found == partitions - {frozenset(frozenset([s]) for s in range(60))}  # names halved are the grid as it is
    assert len(groups) == 1 + len(found) == 10
    assert auto.mergers(Grid(what, ((), (), ()))) == [None]


@pytest.mark.parametrize("pooled", [True, False])
def test_states_that_are_merged_are_counted_together(pooled):
    """Without noise the merged histogram is that of a log in which they were one state all along."""
    what = replace(declared(pooled=pooled), states=COLUMNS[:1])
    free, stays = Budget.pure(math.inf), read_stays(log(300), what)
    fine, coarse = (auto.Design(what, Grid(what, (what.states[0].cuts(n),)), 300, free) for n in (4, 2))
    half = replace(coarse, grid=Grid(what, (what.states[0].cuts(4)[1:2],)))
    release = auto.released_steps(stays, fine, NoiseSource.seeded(0))
    merged = merge_states(release, np.array([0, 0, 1, 1]))
    direct = auto.released_steps(stays, half, NoiseSource.seeded(0))
    np.testing.assert_allclose(merged.values, direct.values, atol=1e-9)
    assert merged.cells.shape == direct.cells.shape
    np.testing.assert_array_equal(merged.cells.admitted, direct.cells.admitted)


def test_coarser_readings_are_asked_about_where_the_choice_can_tell_them_apart(monkeypatch):
    """15 % of ε = 1 and 6,667 people: 1,000. Below, the grid as it is stands alone."""
    asked = []
    monkeypatch.setattr(auto.GainChoice, "choose", lambda self, gains, unit, source: asked.append(len(gains)) or 0)
    for users in (6_600, 6_700):
        made = plan(users)
        auto.learn(read_stays(log(users), made.declaration), made, NoiseSource.seeded(0))
    assert asked == [2, 1 + len(auto.mergers(made.grid))]
    assert not plan(10_000, Budget.approximate(1.0, 1e-6)).asks_much
    assert plan(100_000, Budget.approximate(1.0, 1e-6)).asks_much


def test_noise_of_merged_states_is_that_of_its_parts():
    plan_of = plan(6_000)
    release = auto.released_steps(read_stays(log(6_000), plan_of.declaration), plan_of, NoiseSource.seeded(0))
    S, others = release.cells.num_states, release.cells.num_successors - release.cells.num_states
    group = np.arange(S) // 2
    merged = merge_states(release, group)
    n = int(group.max()) + 1
    assert merged.variance == pytest.approx(release.variance * S / n * (S + others) / (n + others))
    assert merged.width == pytest.approx(release.width * math.sqrt(merged.variance / release.variance))
    assert merged.values.sum() == pytest.approx(release.values.sum())


def test_a_column_that_says_nothing_is_read_away():
    """Two columns that mean nothing thin out the log: the first one alone is read right where all of them are not."""
    made = replace(plan(6_000), budget=Budget.pure(2.0))
    stays = read_stays(log(6_000, good=False), made.declaration)
    release = auto.released_steps(stays, made, NoiseSource.seeded(4))
    best = np.where(np.arange(32) // 8 >= 2, 0, 1)
    right = [(auto.planned_in(release, group).actions == best).mean() for group in auto.mergers(made.grid)]
    assert made.grid.bins == (4, 4, 2)
    assert max(right) == 1.0 > right[0] + 0.2


# The certificate ----------------------------------------------------------------------------------------------------

SHAPES = {
    "pure": (Budget.pure(1.0), {}),
    "few": (Budget.pure(0.5), {}),
    "very few": (Budget.pure(0.3), {}),
    "gaussian": (Budget.approximate(1.0, 1e-6), {}),
    "zero-out": (Budget.zcdp(0.02), {"neighbours": "zero-out"}),
    "safe": (Budget.pure(1.0), {"safe": True}),
}


@pytest.fixture(scope="module", params=SHAPES)
def fitted(request):
    budget, options = SHAPES[request.param]
    return fitting.fit(log(6_000), declared(), budget, seed=3, **options)


def test_the_certificate_is_derived_again(fitted, tmp_path):
    fitted.save(tmp_path / "policy")
    assert certificate.verify(tmp_path / "policy", allow_simulation=True).problems == ()
    assert Policy.load(tmp_path / "policy").grid == fitted.policy.grid


def test_forged_certificates_are_caught(fitted):
    whole = json.loads(json.dumps(fitted.certificate)) | {"digests": {}}
    assert problems_of(whole, fitted.policy) == []

    def ledger(name, **changes):
        return [{**line, **(changes if line["statistic"] == name else {})} for line in whole["ledger"]]

    def settings(**changes):
        return {"algorithm": whole["algorithm"] | changes}

    forgeries = [
        *({"ledger": ledger(line["statistic"], scale=line["scale"] / 2)} for line in whole["ledger"]),
        *({"ledger": ledger(line["statistic"], sensitivity=line["sensitivity"] / 2)} for line in whole["ledger"]),
        *({"ledger": ledger(line["statistic"], cost=line["cost"] / 2)} for line in whole["ledger"]),
        *({"ledger": [other for other in whole["ledger"] if other != line]} for line in whole["ledger"]),
        {"ledger": ledger("splits", uses=1)},
        {"ledger": ledger("splits", mechanism="discrete-laplace")},
        {"ledger": ledger("leaf actions", mechanism="noisy-max")},
        settings(chosen="whatever"),
        settings(parts=["steps"]),
        settings(depth=2),
        settings(noise_per_leaf_count=1.0),
        settings(why="because"),
        settings(propensities="guessed"),
    ]
    for forged in forgeries:
        try:
            found = problems_of(whole | forged, fitted.policy)
        except certificate.UNREADABLE:
            continue
        assert found, forged


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="safe is for declared columns"):
        fitting.fit(log(6_000), declared(), Budget.pure(1.0), safe=True, algorithm="one-hot")
    with pytest.raises(ValueError, match="columns learns from declared columns"):
        fitting.fit(log(6_000), LogFormat(2, 2, 2), Budget.pure(1.0), algorithm="columns")
    with pytest.raises(ValueError, match="is in no paper"):
        fitting.fit(log(6_000), declared(), Budget.pure(1.0), algorithm="columns", mode="paper")
