"""From columns to a policy: the commands, what the certificate keeps, what `act` says, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from discreet import Budget, Declaration, LogFormat, Policy, fit, verify
from discreet.cli import app
from discreet.offline import wording
from discreet.offline.certificate import DIGESTS, HTML, JSON, digest, dumped, page
from discreet.offline.declaration import COLUMN_KEYS, KEYS, Column, Grid
from discreet.offline.template import template
from discreet.people.checking import check
from oracles_offline import full_stays

H, USERS = 6, 4000
STATES = ("map:20..140/edges:65,75,95", "lactate:0..20/log,missing", "ward:{A,B,C}")
NAMES = ("wait", "fluid", "press")


def sepsis(users: int = USERS, seed: int = 0) -> pa.Table:
    """Low pressure wants the third action, everything else the first; lactate is missing now and then."""
    rng = np.random.default_rng(seed)
    n = users * H
    pressure = rng.normal(75, 18, n)
    action = rng.integers(0, 3, n)
    right = np.where(pressure < 65, 2, 0)
    lactate = np.where(rng.random(n) < 0.2, np.nan, rng.exponential(2.0, n))
    return pa.table(
        {
            "patient": np.repeat(np.arange(users), H),
            "step": np.tile(np.arange(H), users),
            "map": pressure,
            "lactate": pa.array(lactate, from_pandas=True),
            "ward": rng.choice(["A", "B", "C"], n).tolist(),
            "drug": [NAMES[a] for a in action],
            "reward": 2.0 * (action == right) - 1.0,
            "p_action": np.full(n, 1 / 3),
        }
    )


DECLARED = Declaration.from_options(
    STATES,
    NAMES,
    H,
    {"user": "patient", "action": "drug"},
    reward_range=(-1.0, 1.0),
    propensity="p_action",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log, its declaration, the names of actions, and a policy."""
    place = tmp_path_factory.mktemp("columns")
    pyarrow.parquet.write_table(sepsis(), place / "stays.parquet")
    (place / "stays.toml").write_text(DECLARED.text)
    (place / "drugs.txt").write_text("\n".join(NAMES))
    done = run(
        *("fit", place / "stays.parquet", "--declare", place / "stays.toml", "--epsilon", 2),
        *("--algorithm", "one-hot", "--out", place / "policy", "--json"),  # whose bins do not depend on noise
    )
    assert done.exit_code == 0, done.output
    return place


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def refused(*arguments) -> str:
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("Error: "))
    return line


def options(place, *more):
    said = [word for text in STATES for word in ("--state", text)]
    named = ("--columns", "user=patient,action=drug", "--reward-range=-1:1", "--propensity", "p_action")
    return ("fit", place / "stays.parquet", *said, *named, "--actions", place / "drugs.txt", "--horizon", H, *more)


# A policy -----------------------------------------------------------------------------------------------------------


def test_act_takes_a_record_and_answers_with_a_name_or_as_now(tmp_path):
    low = Column("lactate", 0.0, 20.0, edges=(2.0,), missing=True)
    what = replace(DECLARED, states=(DECLARED.states[0], low, replace(DECLARED.states[2], missing=True)))
    fit(sepsis(), what, Budget.pure(2.0), seed=0).save(tmp_path / "p")
    policy = Policy.load(tmp_path / "p")
    assert policy.grid is not None
    assert policy.grid.bins == (4, 2, 0)  # 4000 users at ε = 2: 133 cells, 12 states of 3 actions
    assert policy.act({"map": 50, "lactate": 3.2}, step=0) == "press"
    assert policy.act({"map": 64.9, "lactate": 3.2, "ward": "B"}, step=0) == "press"
    assert policy.act({"map": 71, "lactate": 3.2}, step=0) == "wait"
    assert policy.act({"map": "71", "lactate": None}, step=H + 5) == "wait"  # pooled: beyond the horizon, too
    assert policy.act({"map": 71}, step=0) == policy.act(step=0, state={"map": 71, "lactate": float("nan")}) == "wait"
    assert policy.act(0, {"map": 71, "lactate": 1}) == "wait"
    for nothing in ({"lactate": 3.2}, {"map": None, "lactate": 2}, {"map": "?", "lactate": 2}):
        assert policy.act(nothing, step=0) == "as now"
        assert policy.act(nothing, step=0, guess=True) == "as now"


def test_as_now_is_said_where_the_release_knows_nothing():
    grid = Declaration.from_options(["x:0..10/edges:5"], 2, 1).grid(0, Budget.pure(1.0))
    policy = Policy(
        np.array([[1, 0]]), np.zeros((1, 2)), np.array([[True, False]]), 2, grid.state_names, None, True, grid
    )
    assert policy.act({"x": 4}, step=0) == 1  # actions that were declared by number
    assert policy.act({"x": 5}, step=0) == "as now"
    assert policy.act({"x": 5}, step=0, guess=True) == 0
    assert policy.act(0, 1) == policy.act(0, "x ≥ 5") == "as now"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((({"mpa": 71},), {"step": 0}), "names none of the columns that the policy looks at: map, lactate"),
        ((({"map": 71},), {}), "step is None"),
        (((0, {"map": 71}), {"step": 0}), "two values for step"),
        ((({"map": 71}, 0, True, 1), {}), "4 values were given"),
    ],
)
def test_a_record_that_cannot_be_placed_is_refused(folder, arguments, message):
    where, named = arguments
    with pytest.raises(ValueError, match=message):
        Policy.load(folder / "policy").act(*where, **named)


def test_a_policy_of_states_takes_no_records():
    plain = Policy(np.zeros((1, 2), int), np.zeros((1, 2)), np.ones((1, 2), bool), 2)
    with pytest.raises(ValueError, match="learned from states, not from declared columns"):
        plain.act({"x": 1}, step=0)
    with pytest.raises(ValueError, match="2 states, and its columns 4"):
        Policy(plain.actions, plain.values, plain.known, 2, grid=DECLARED.grid(0, Budget.pure(1.0)))


def test_options_and_file_are_the_same_declaration(folder, tmp_path):
    done = run(*options(folder, "--epsilon", 2, "--out", tmp_path / "p", "--json", "--seed", 1))
    assert done.exit_code == 0, done.output
    declared = json.loads(done.stdout)["declaration"]
    assert declared["digest"] == DECLARED.digest
    assert declared["text"] == DECLARED.text
    assert declared["unused"] == ["ward"]
    assert json.loads((folder / "policy" / JSON).read_text())["declaration"] == declared
    assert declared["columns"][0] == "map: map < 65 | 65 ≤ map < 75 | 75 ≤ map < 95 | map ≥ 95"
    assert declared["columns"][2] == "ward: not used"


def test_the_folder_verifies_and_shows_what_was_declared(folder):
    assert verify(folder / "policy").consistent
    shown = (folder / "policy" / HTML).read_text()
    assert DECLARED.digest in shown
    assert "edges = [65.0, 75.0, 95.0]" in shown
    rows = (folder / "policy" / "policy.csv").read_text().splitlines()
    assert re.match('0,0,[012],"map < 65, lactate < ', rows[1])  # which action the noise left is no one's business
    assert Policy.load(folder / "policy").action_names == NAMES


def test_people_see_the_bins_and_the_unused_columns(folder, tmp_path):
    options = ("--declare", folder / "stays.toml", "--epsilon", 1, "--algorithm", "one-hot", "--out", tmp_path / "p")
    done = run("fit", folder / "stays.parquet", *options)
    assert done.exit_code == 0, done.output
    assert "not used: too few users for it" in done.stdout
    assert "bins for 4,000 users" in done.stdout


def test_a_text_file_learns_the_same_as_a_typed_one(folder, tmp_path):
    pyarrow.csv.write_csv(sepsis(), tmp_path / "stays.csv")
    found = fit(str(tmp_path / "stays.csv"), DECLARED, Budget.pure(2.0), seed=3).policy
    again = fit(str(folder / "stays.parquet"), DECLARED, Budget.pure(2.0), seed=3).policy
    np.testing.assert_array_equal(found.actions, again.actions)
    np.testing.assert_array_equal(found.values, again.values)


def test_the_number_of_users_may_be_declared_and_decides_the_bins(folder):
    one_hot = {"algorithm": "one-hot", "seed": 0}
    found = fit(str(folder / "stays.parquet"), DECLARED, Budget.pure(2.0), num_users=10**5, **one_hot)
    assert found.policy.grid.bins == (4, 10, 3)
    assert found.certificate["unit"]["users"] == 10**5
    with pytest.raises(ValueError, match="more users than the 100 declared"):
        fit(str(folder / "stays.parquet"), DECLARED, Budget.pure(2.0), num_users=100, anyway=True, **one_hot)


@pytest.mark.parametrize("budget", [Budget.zcdp(0.1), Budget.approximate(1.0, 1e-6), Budget.pure(0.3)])
def test_every_budget_verifies(budget, tmp_path):
    for relation in ("replace", "zero-out"):
        found = fit(sepsis(300), DECLARED, budget, neighbours=relation, algorithm="one-hot", anyway=True)
        found.save(tmp_path / relation)
        assert verify(tmp_path / relation).consistent, verify(tmp_path / relation).problems


def test_learners_without_privacy_have_the_finest_bins(tmp_path):
    found = fit(sepsis(300), DECLARED, algorithm="apvi")
    assert found.policy.grid.bins == DECLARED.grid(300, Budget.pure(10.0)).bins
    found.save(tmp_path / "open")
    assert verify(tmp_path / "open").problems == (wording.NOT_PRIVATE,)


def test_what_is_known_of_numbered_states_is_refused_with_columns():
    for name, value in (("rewards", np.zeros((4, 3))), ("initial", np.ones(4) / 4), ("features", np.ones((4, 3, 2)))):
        with pytest.raises(ValueError, match=f"{name} are given by the number of a state"):
            fit(sepsis(50), DECLARED, Budget.pure(1.0), **{name: value})


def test_a_limit_of_the_ledger_is_kept_before_columns_are_looked_at(tmp_path):
    pyarrow.parquet.write_table(sepsis(50), tmp_path / "log.parquet")
    wrong = Declaration.from_options(["nowhere:0..1"], 2, 3)
    with pytest.raises(ValueError, match="total"):
        fit(str(tmp_path / "log.parquet"), wrong, Budget.pure(2.0), total_epsilon=1.0)
    assert not (tmp_path / "log.parquet.spent.jsonl").exists()


def test_a_table_of_a_database_and_names_that_are_missing(tmp_path):
    stays = sepsis(50)
    with duckdb.connect(str(tmp_path / "house.duckdb")) as house:
        house.execute("CREATE TABLE stays AS SELECT * FROM stays")
    what = replace(DECLARED, states=(Column("ward", names=("A", "B")),))
    found = fit(str(tmp_path / "house.duckdb"), what, Budget.pure(1.0), table="stays", seed=0, anyway=True)
    assert any("column 'declared columns'" in line for line in found.notices)
    assert any("discreet check says which" in line for line in found.notices)
    assert found.policy.state_names == ("ward A", "ward B")
    lost = check(str(tmp_path / "house.duckdb"), what, "stays").columns["ward"]
    assert lost == {"not a declared name (row lost)": sum(w == "C" for w in stays.column("ward").to_pylist())}


# Forgeries ----------------------------------------------------------------------------------------------------------


def forged(folder, tmp_path, change) -> tuple[str, ...]:
    """The folder with another certificate, its digests and page written again."""
    out = tmp_path / "forged"
    out.mkdir()
    for path in (folder / "policy").iterdir():
        (out / path.name).write_bytes(path.read_bytes())
    document = json.loads((out / JSON).read_text())
    change(document)
    (out / JSON).write_text(dumped(document))
    (out / HTML).write_text(page(document, Policy.load(out)))
    files = json.loads((out / DIGESTS).read_text())
    (out / DIGESTS).write_text(dumped({name: digest(out / name) for name in files}))
    return verify(out).problems


def another(text: str):
    def change(document):
        what = Declaration.from_toml(text)
        cuts = tuple(tuple(cuts) for cuts in document["declaration"]["cuts"])
        document["declaration"] = wording.declaration_json(Grid(what, cuts))

    return change


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d.pop("declaration"), "columns that its certificate does not name"),
        (lambda d: d["declaration"].update(digest="0" * 64), "written as its content is"),
        (lambda d: d["declaration"].update(columns=["map: by hand"]), "written as its content is"),
        (lambda d: d["declaration"].update(text=DECLARED.text + "\n"), "written as its content is"),
        (lambda d: d["declaration"].update(unused=[]), "written as its content is"),
        (lambda d: d["declaration"].update(note="looked at the data"), "unknown 'note'"),
        (another(DECLARED.text.replace("65.0", "60.0")), "the policy's states are the declared columns'"),
        (another(DECLARED.text.replace("[-1.0, 1.0]", "[0.0, 1.0]")), "rewards and episodes are as declared"),
        (another(DECLARED.text.replace('"press"', '"pills"')), "rewards and episodes are as declared"),
        (another(DECLARED.text.replace("lactate", "laktat")), "the policy's states are the declared columns'"),
        (lambda d: d["declaration"].update(cuts=[[1], [1], []]), "the public rule"),
    ],
)
def test_a_declaration_that_was_changed_afterwards_is_found(folder, tmp_path, change, problem):
    found = forged(folder, tmp_path, change)
    assert any(problem in text for text in found), found


def test_nothing_is_found_where_nothing_was_changed(folder, tmp_path):
    assert forged(folder, tmp_path, lambda document: None) == ()


def test_a_table_whose_columns_cannot_be_read_is_refused(folder, tmp_path):
    table = pyarrow.parquet.read_table(folder / "policy" / "policy.parquet")
    for wrong in ({b"cuts": b"[[1]]"}, {b"cuts": b"{"}, {b"declaration": b"\xff"}, {b"cuts": b'["a", "b", "c"]'}):
        meta = {**table.schema.metadata, **wrong}
        pyarrow.parquet.write_table(table.replace_schema_metadata(meta), tmp_path / "policy.parquet")
        with pytest.raises(ValueError, match=r"grid has cuts|does not say of which columns"):
            Policy.load(tmp_path, check=False)


# The template -------------------------------------------------------------------------------------------------------


def test_a_template_comes_from_the_schema_alone(folder, tmp_path):
    done = run("declare", folder / "stays.parquet")
    assert done.exit_code == 0, done.output
    assert template(sepsis(1, seed=9)) == template(sepsis(50)) == template(sepsis(50).slice(0, 0))
    assert done.stdout == template(sepsis(50))
    said = tomllib.loads(done.stdout)
    assert {role: said[role] for role in ("user", "step", "action", "reward", "propensity")} == {
        "user": "patient",
        "step": "step",
        "action": "drug",
        "reward": "reward",
        "propensity": "p_action",
    }
    out = tmp_path / "stays.toml"
    assert run("declare", folder / "stays.parquet", "--out", out).exit_code == 0
    assert out.read_text() == done.stdout
    assert "is there already" in refused("declare", folder / "stays.parquet", "--out", out)


def test_a_template_that_is_filled_in_is_a_declaration(folder):
    text = template(sepsis(1))
    filled = (
        text.replace('actions = ["…", "…"]', f"actions = {json.dumps(NAMES)}")
        .replace("horizon = 10", f"horizon = {H}")
        .replace("[0, 1]", "[-1, 1]")
        .replace(
            '# [[state]]   # numbers\n# name = "map"\n# range = [LOW, HIGH]',
            '[[state]]\nname = "map"\nrange = [20, 140]',
        )
    )
    found = Declaration.from_toml(filled)
    assert found.states[0].high == 140.0
    assert fit(sepsis(50), found, Budget.pure(1.0), seed=0, anyway=True).policy.grid.declaration == found
    with pytest.raises(ValueError, match="names no column of states"):
        Declaration.from_toml(text.replace('["…", "…"]', "2"))
    with pytest.raises(ValueError, match="twice"):
        Declaration.from_toml(filled.replace(json.dumps(NAMES), '["…", "…"]'))


def test_a_template_of_timestamps_and_of_text(tmp_path):
    import datetime

    day = datetime.datetime(2020, 1, 1)
    table = pa.table(
        {"subject_id": [1], "charttime": [day], "born": [day], "dose": [1], "score": [0.5], "ok": [True]}
    )
    text = template(table)
    assert 'time = "charttime"' in text
    assert 'interval = "4h"' in text
    assert '# "born": a day or a moment, which is no column of states' in text
    assert '# name = "ok"\n# range = [LOW, HIGH]\n' in text
    (tmp_path / "log.csv").write_text("user,step,x,action,reward\nsecret,0,1,2,3\n")
    text = run("declare", tmp_path / "log.csv").stdout
    assert "whose columns have no types" in text
    assert '# name = "x"\n# range = [LOW, HIGH]\n# names = ["…", "…"]   # or\n' in text
    assert "secret" not in text


# Before any data is read --------------------------------------------------------------------------------------------


def test_calibrate_shows_the_grid_the_unused_columns_and_the_users_needed(folder):
    said = [word for text in STATES for word in ("--state", text)]
    plain = run("calibrate", "--offline", "--epsilon", 1, *said, "--actions", 3, "--users", 4000)
    assert plain.exit_code == 0, plain.output
    for text in ("map < 65", "unused columns: ward", "users needed: 3,600 for these bins, 10,800 for all columns"):
        assert text in plain.stdout
    found = json.loads(
        run(
            "calibrate", "--offline", "--epsilon", 1, "--declare", folder / "stays.toml", "--users", 4000, "--json"
        ).stdout
    )
    assert found["grid"] == {
        "states": 20,
        "bins": {"map": 4, "lactate": 4, "ward": 0},
        "unused": ["ward"],
        "users_needed": 3600,
        "users_for_all_columns": 10800,
        "declaration_digest": DECLARED.digest,
    }
    assert found["learners"]["one-hot"]["users_needed"] > 0


def test_options_that_contradict_each_other_are_refused(folder, tmp_path):
    log, toml, out = folder / "stays.parquet", folder / "stays.toml", tmp_path / "p"
    end = ("--epsilon", 1, "--out", out)
    cases = {
        "--horizon is said by the declaration": ("fit", log, "--declare", toml, "--horizon", 3, *end),
        "--state is said by the declaration": ("fit", log, "--declare", toml, "--state", "x:0..1", *end),
        "--states and --state were given": (*options(folder, "--states", 3), *end),
        "--horizon is missing": ("fit", log, "--state", "map:0..1", "--actions", 2, *end),
        "--states is missing; give it, or columns": ("fit", log, *end),
        "--interval is for logs of columns": ("fit", log, "--states", 3, "--interval", "4h", *end),
        "--rewards is for logs of numbered states": (*options(folder, "--rewards", "r.csv"), *end),
        "--trust-bounds is for logs of numbered states": (*options(folder, "--trust-bounds"), *end),
        "nowhere.toml cannot be read": ("fit", log, "--declare", "nowhere.toml", *end),
        "which nobody knows": (*options(folder, "--columns", "state=map"), *end),
        "--declare is for learners from logs": ("calibrate", "--epsilon", 1, "--declare", toml),
        "--pooled is said by the declaration": (
            "calibrate",
            "--offline",
            "--epsilon",
            1,
            "--declare",
            toml,
            "--pooled",
        ),
    }
    for message, arguments in cases.items():
        assert message in refused(*arguments)
    assert not out.exists()


# What a log holds ---------------------------------------------------------------------------------------------------

MESSY = """user,episode,step,map,ward,action,reward,p
a,0,1,70,A,0,0.5,0.5
a,0,2,,A,1,0.5,0
a,0,3,10,Z,1,7,1.5
b,0,1,200,B,0,-3,0.5
b,0,1,60,B,1,0.5,
b,1,1,secret,B,1,0.5,x
,0,1,60,A,0,0.5,0.5
nan,0,1,60,A,0,0.5,0.5
c,0,1,60,A,5,zzz,0.5
c,0,2,60
"""


@pytest.fixture
def messy(tmp_path):
    (tmp_path / "messy.csv").write_text(MESSY)
    return tmp_path / "messy.csv"


def test_check_counts_what_is_lost_by_column_and_reason(messy):
    states = ("--state", "map:20..140/edges:65", "--state", "ward:{A,B}/missing")
    sizes = ("--actions", 2, "--horizon", 3, "--propensity", "p")
    done = run("check", messy, *states, *sizes, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["not_private"].startswith("not private")
    assert (found["rows"], found["users"], found["episodes"]) == (10, 3, 4)
    assert (found["longest_stay"], found["most_episodes"]) == (3, 2)
    assert (found["malformed_lines"], found["nobody_rows"]) == (1, 2)
    assert found["counted_from_one"]
    assert found["columns"] == {
        "map": {
            "missing (row lost)": 1,
            "not a number (row lost)": 1,
            "below 20 (in the first bin)": 1,
            "above 140 (in the last bin)": 1,
        },
        "ward": {"not a declared name (a bin of its own)": 1},
        "p": {
            "missing (no use for what needs it)": 1,
            "0, below it, above 1 or no number (no use for what needs it)": 3,
        },
        "step": {"outside 0..2": 1},
        "action": {"outside 0..1": 1},
        "reward": {"not a number": 1, "below 0, clipped": 1, "above 1, clipped": 1},
    }
    again = json.loads(run("check", messy, *states, *sizes, "--first-step", 1, "--json").stdout)
    assert (again["counted_from_one"], again["repeated_steps"]) == (False, 1)
    assert again["counted_rows"] == 1  # a's first: her second has no pressure, b's first episode a step twice
    assert again["cut_rows"] == 3
    assert not messy.with_name("messy.csv.spent.jsonl").exists()


def test_check_in_words_says_that_it_is_not_private_and_quotes_nothing(messy):
    arguments = ("--state", "map:20..140", "--actions", 2, "--horizon", 3)
    for more in (arguments, (*arguments, "--epsilon", 1), (), ("--json",)):
        done = run("check", messy, *more)
        assert done.exit_code == 0, done.output
        assert "not private" in done.stdout.lower()
        assert "secret" not in done.output
        assert "zzz" not in done.output
    assert "column 'map': 1 missing (row lost)" in run("check", messy, *arguments).stdout


def test_check_without_a_declaration_goes_by_names(messy):
    found = json.loads(run("check", messy, "--json").stdout)
    assert (found["rows"], found["users"], found["malformed_lines"], found["nobody_rows"]) == (10, 3, 1, 2)
    assert found["columns"] == {"map": {"missing": 1}, "p": {"missing": 1}}
    assert (found["repeated_steps"], found["counted_from_one"], found["counted_rows"]) == (1, True, None)
    assert "no column 'patient'" in refused("check", messy, "--columns", "user=patient")


def test_check_of_numbered_states_says_what_fit_says(tmp_path):
    rng = np.random.default_rng(0)
    n, steps = 40, 3
    table = {
        **full_stays(n, steps),
        "state": rng.integers(0, 5, n * steps),
        "action": rng.integers(0, 2, n * steps),
        "reward": rng.normal(0.5, 1, n * steps),
    }
    found = check(table, LogFormat(4, 2, steps))
    told = fit(table, LogFormat(4, 2, steps), Budget.pure(1.0), seed=0).repairs
    assert found.columns == told.columns
    assert found.counted_rows == n * steps - told.unreadable_rows - told.cut_rows
    assert (found.cut_rows, found.users, found.longest_stay) == (told.cut_rows, n, steps)
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "log.parquet")
    sizes = ("--states", 4, "--actions", 2, "--horizon", steps)
    assert json.loads(run("check", tmp_path / "log.parquet", *sizes, "--json").stdout)["columns"] == told.columns


def test_check_counts_rows_of_one_interval_and_says_what_memory_a_budget_needs():
    table = {
        "user": np.array([0, 0, 0, 1]),
        "t": np.array([0.0, 10.0, 70.0, 5.0]),
        "x": np.array([1.0, 2.0, 3.0, 4.0]),
        "y": np.array([1.0, 1.0, np.nan, np.nan]),
        "action": np.zeros(4, int),
        "reward": np.zeros(4),
    }
    what = Declaration.from_options(["x:0..10", "y:0..10"], 3, 2, time="t", interval=60.0)
    found = check(table, what)
    assert (found.rows, found.merged_rows, found.counted_rows, found.memory_bytes) == (4, 1, 1, None)
    assert found.columns == {"y": {"missing (row lost)": 2}}
    assert any("same interval" in line for line in found.sentences())
    assert any("depends on the budget" in line for line in found.sentences())
    small, large = (check(table, what, grid=what.grid(n, Budget.pure(1.0))) for n in (2, 10**7))
    assert small.memory_bytes < large.memory_bytes
    assert small.columns == large.columns == found.columns


def test_check_says_which_episodes_are_beyond_the_bound_and_which_times_are_none(tmp_path):
    """By the names of the log's own columns, of which none is called step."""
    lines = ["who;nr;when;x;action;reward;died"]
    lines += [f"{u};{e};{day};1,5;0;0;nein" for u in "ab" for e in "12" for day in ("31.01.2020", "2020-01-31 12:00")]
    (tmp_path / "german.csv").write_text("\n".join([*lines, "c;1;;1,5;0;0;0", "d;1;2020-01-31;1,5;0;0;0"]))
    named = {"user": "who", "episode": "nr", "time": "when", "terminated": "died"}
    found = check(str(tmp_path / "german.csv"), Declaration.from_options(["x:0..10"], 2, 2, columns=named))
    assert (found.rows, found.counted_rows, found.episodes, found.episodes_beyond) == (10, 1, 6, 2)
    assert found.columns == {
        "when": {
            "missing (row lost)": 1,
            "no time such as 2020-01-31 12:00:00, nor seconds (row lost)": 4,
        },
        "when (as steps)": {"missing": 5},
        "died": {"neither true nor false, neither 1 nor 0": 8},
    }
    said = " ".join(found.sentences())
    assert "2 later episodes than count of a user (episodes_per_user): lost as a whole" in said
    assert "nein" not in said


def test_a_template_finds_the_only_column_of_moments_whatever_it_is_called(tmp_path):
    table = pa.table({"Pat-ID": ["a"], "Zeitpunkt": np.array(["2024-03-01T06:00"], "datetime64[us]"), "tot": [False]})
    text = template(table)
    assert 'time = "Zeitpunkt"' in text
    assert "delete the line where every row is a step" in text
    assert '# terminated = "…"' in text
    assert tomllib.loads(text)["interval"] == "4h"


# The page -----------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "columns.md").read_text()


def test_the_page_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pyarrow.parquet.write_table(sepsis().append_column("stay", pa.array(np.zeros(USERS * H, int))), "stays.parquet")
    Path("drugs.txt").write_text("\n".join(NAMES))
    commands, program, text, options = (body for _, body in re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.M | re.S))
    lines = [*commands.splitlines(), *options.splitlines()]
    assert [line.split()[1] for line in lines] == ["declare", "check", "calibrate", "fit", "verify", "fit"]
    digests = []
    for line in lines:
        program_name, *arguments = shlex.split(line, comments=True)
        assert program_name == "discreet"
        done = run(*arguments)
        assert done.exit_code == 0, (line, done.output)
        if arguments[0] == "declare":
            assert 'user = "patient"' in Path("stays.toml").read_text()
            Path("stays.toml").write_text(text)
        if arguments[0] == "fit":
            digests.append(json.loads(Path("policy", JSON).read_text())["declaration"]["digest"])
    assert len(set(digests)) == 1
    names: dict[str, object] = {}
    exec(program, names)
    assert names["policy"].act({"map": 40, "lactate": 1.0, "ward": "A"}, step=0) in (*NAMES, "as now")


def test_the_page_names_every_key():
    for key in (*KEYS, *COLUMN_KEYS):
        assert f"`{key}`" in PAGE or re.search(rf"^{key} = ", PAGE, re.M), key
