"""Figures of the papers: tables are made of the runs beside them, verdicts follow from the numbers."""

from __future__ import annotations

import csv
import json
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from discreet import theory
from discreet.cli import app
from discreet.cli.reproducing import numbers, table
from discreet.runs import figures, results, verdicts
from discreet.runs.figures import Cell, Constants, Fit, Search, Work
from oracles import tool


def invoke(*arguments: object, code: int = 0):
    result = CliRunner().invoke(app, ["reproduce", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def small(monkeypatch):
    """Two forms of one learner, two constants to choose from."""
    chosen = [Cell("pooled", "value iteration", "none", None), Cell("pooled", "value iteration", "joint", 1.0)]
    monkeypatch.setattr(figures, "cells", lambda quick: iter(chosen))
    monkeypatch.setattr(figures, "QUICK", Search((0.03, 3.0), (1.0,), (5000,)))
    return chosen


# Names --------------------------------------------------------------------------------------------------------------


def test_every_figure_is_listed_with_its_claim():
    listed = invoke("--list").stdout.splitlines()
    assert len(listed) == len(figures.FIGURES) == 5
    for line, each in zip(listed, figures.FIGURES.values(), strict=True):
        assert line.startswith(f"{each.name}: ")
        assert line.endswith(f"Claim: {each.claim}.")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["wzcw23-figure4"], "did you mean 'wzcw23-figure-4'?"),
        (["qw22-fig-1b"], "did you mean 'qw22-figure-1b'?"),
        ([], "name a figure"),
        (["qw22-figure-1a", "--jobs", "0"], "--jobs is 0"),
        (["qw22-figure-1a", "--episodes", "10,x"], "--episodes is '10,x'"),
        (["qw22-figure-1a", "--episodes", "10,10"], "--episodes is '10,10'"),
        (["qw22-figure-1a", "--episodes", "1"], "each must be at least 2"),
        (["wzcw23-figure-4", "--episodes", "10,20"], "this figure has one number of episodes"),
        (["wzcw23-figure-4", "--seeds", "5001"], "seed 5001 is one on which constants are chosen"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(tmp_path, arguments, sentence):
    result = invoke(*arguments, "--out", tmp_path / "x", code=2)
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_sizes_are_read():
    assert numbers(None) == ()
    assert numbers("20, 100") == (20, 100)


# Figure 4 of [WZCW23] -----------------------------------------------------------------------------------------------


def test_r3_the_table_is_made_of_the_runs_beside_it(tmp_path, small):
    said = invoke("wzcw23-figure-4", "--quick", "--episodes", 400, "--seeds", "0:2", "--out", tmp_path).stdout
    rows, runs = read(tmp_path / "wzcw23-figure-4.csv"), results.read(tmp_path / "runs")
    assert [(row["model"], row["epsilon"]) for row in rows] == [("none", ""), ("joint", "1.0")]
    for cell, row in zip(small, rows, strict=True):
        by_scale = {c: cell.experiment(400, Constants(c, None)).id for c in (0.03, 3.0)}
        searched = {c: [r.regret[-1] for r in runs if (r.id, r.seed) == (name, 5000)] for c, name in by_scale.items()}
        assert all(len(regret) == 1 for regret in searched.values())
        assert float(row["c"]) == min(searched, key=lambda c: searched[c])
        mine = [r for r in runs if r.id == by_scale[float(row["c"])] and r.seed in (0, 1)]
        assert float(row["ratio"]) == pytest.approx(statistics.fmean(r.regret_ratio for r in mine), rel=1e-12)
        assert float(row["regret_sd"]) == pytest.approx(statistics.stdev(float(r.regret[-1]) for r in mine), rel=1e-9)
        assert float(row["late"]) == pytest.approx(statistics.fmean(map(figures.late_ratio, mine)), rel=1e-12)
    assert (tmp_path / "wzcw23-figure-4.png").read_bytes().startswith(b"\x89PNG")
    assert figures.FIGURES["wzcw23-figure-4"].claim in (tmp_path / "wzcw23-figure-4.txt").read_text()
    assert figures.FIGURES["wzcw23-figure-4"].claim in said


def test_runs_that_are_there_are_not_made_again(tmp_path, small, monkeypatch):
    work = Work(tmp_path, (0, 1), quick=True, sizes=(200,))
    chosen, moved = figures.figure("wzcw23-figure-4"), []
    first = chosen.make(work, moved.append)
    assert sum(moved) == chosen.total(work) == 2 * (2 + 2)
    monkeypatch.setattr(figures, "run_seeds", lambda *_: pytest.fail("a finished run was made again"))
    assert chosen.make(work, moved.append).rows == first.rows
    assert sum(moved) == 2 * chosen.total(work)
    monkeypatch.setattr(figures.provenance, "source_digest", lambda: "another program")
    with pytest.raises(pytest.fail.Exception):
        chosen.make(work, moved.append)


def test_all_learners_budgets_and_forms_are_in_the_figure():
    full, quick = set(figures.cells(False)), set(figures.cells(True))
    assert len(full) == 3 * 2 * 5
    assert len(quick) == 2 * 2 * 5
    assert quick == {cell for cell in full if cell.form != "printed"}
    said = Cell("printed", "policy optimisation", "local", 0.5).experiment(20_000, Constants(0.1, 10.0))
    assert (said.algorithm, said.mode, said.pooled, said.model) == ("private-heavy-ucbpo", "paper", False, "local")
    assert (said.epsilon, said.alpha, said.confidence_scale, said.rate_scale) == (0.5, 2.0, 0.1, 10.0)


def test_r3_every_c_is_tried_with_every_rate_and_the_search_is_stated():
    search = figures.SEARCHES["pooled"]
    assert len(search.constants("value iteration")) == len(search.scales) == 5
    assert len(set(search.constants("policy optimisation"))) == len(search.scales) * len(search.rates) == 25
    assert all(constants.rate is None for constants in search.constants("value iteration"))
    stated = figures.FIGURES["wzcw23-figure-4"].setting
    for each in (*figures.SEARCHES.values(), figures.QUICK):
        assert str(each) in stated
        assert min(each.seeds) >= figures.TUNING
    assert {cell.search(False) for cell in figures.cells(False)} == set(figures.SEARCHES.values())


def test_r3_the_rate_of_policy_optimisation_is_the_one_with_the_least_regret(tmp_path, monkeypatch):
    cell = Cell("pooled", "policy optimisation", "none", None)
    monkeypatch.setattr(figures, "QUICK", Search((0.03,), (0.01, 30.0), (5000,)))
    work = Work(tmp_path, (0,), quick=True)
    assert figures.tuned(cell, 2000, work, lambda _: None) == Constants(0.03, 30.0)
    searched = results.read(tmp_path / "runs")
    assert len(searched) == 2
    regret = {run.id: float(run.regret[-1]) for run in searched}
    slow, fast = (cell.experiment(2000, Constants(0.03, rate)).id for rate in (0.01, 30.0))
    assert regret[fast] < 0.5 * regret[slow]


def test_the_second_half_is_measured_against_the_random_policy_there():
    class Run:
        checkpoints = np.array([1, 50, 100])
        regret = np.array([1.0, 40.0, 45.0])
        random_regret = 100.0

    assert figures.late_ratio(Run()) == pytest.approx(0.1)


def test_what_noise_hides_is_computed_from_the_noise_in_force():
    """Three tables share ε, a count moves by 2H: scale 3·2H/ε, sd √2 of it; locally one such noise per user."""
    joint = figures.hidden(Cell("staged", "value iteration", "joint", 1.0), 400)
    assert joint["noise"] == pytest.approx(np.sqrt(2) * 120, rel=1e-3)
    local = figures.hidden(Cell("staged", "value iteration", "local", 1.0), 400)
    assert local["noise"] == pytest.approx(20 * joint["noise"], rel=1e-3)
    printed = figures.hidden(Cell("printed", "policy optimisation", "joint", 1.0), 400)
    assert printed["noise"] > 9 * joint["noise"]  # nine levels per user
    pooled = figures.hidden(Cell("pooled", "value iteration", "none", None), 400)
    assert pooled["noise"] == 0.0
    assert pooled["count"] > 5 * joint["count"] > 0


def heavy(model, late, ratio, epsilon=None, sd=0.01):
    where = {"form": "staged", "learner": "value iteration", "model": model, "epsilon": epsilon}
    return {**where, "late": late, "ratio": ratio, "ratio_sd": sd, "seeds": 4, "count": 27.0, "noise": 170.0}


def test_r3_verdicts_on_heavy_tails_follow_from_the_numbers():
    good = [heavy("none", 0.01, 0.1), heavy("joint", 0.2, 0.5, 0.5), heavy("joint", 0.05, 0.3, 1.0)]
    said = verdicts.heavy([*good, heavy("local", 0.7, 0.8, 1.0)])
    assert "ε = 0.5: does not come out, the price is not negligible" in said[0]
    assert "ε = 1: comes out, the price is negligible at the end" in said[1]
    assert "local, ε = 1: comes out, the price stays high" in said[2]
    assert "a smaller budget costs more, as claimed" in said[3]
    nothing = verdicts.heavy(
        [heavy("none", 0.01, 0.1), heavy("joint", 1.0, 1.0, 0.5), heavy("joint", 0.99, 1.0, 1.0)]
    )
    assert all("does not come out, nothing is learned under privacy" in line for line in nothing[:2])
    assert "visits the pair that pays most 27 times, under noise of sd 170" in nothing[0]
    assert "no order of budgets" in nothing[2]
    backwards = verdicts.heavy(
        [heavy("none", 0.0, 0.1), heavy("joint", 0.1, 0.2, 0.5), heavy("joint", 0.1, 0.4, 1.0)]
    )
    assert "against the claim" in backwards[2]
    noisy = [heavy("none", 0.0, 0.1), heavy("joint", 0.1, 0.4, 0.5, sd=0.4), heavy("joint", 0.1, 0.2, 1.0, sd=0.4)]
    assert "cannot be told apart" in verdicts.heavy(noisy)[2]
    assert "cannot be told apart" in verdicts.heavy([{**row, "ratio_sd": None} for row in noisy])[2]
    (short,) = verdicts.heavy_summary([*good, heavy("local", 0.7, 0.8, 1.0)])
    assert "negligible at the end in 1 of 2 curves, and nothing is learned in 0" in short
    assert "stays high in 1 of 1, because nothing is learned in 0" in short
    assert "a smaller budget clearly costs more in 1 of 1 pairs" in short
    (short,) = verdicts.heavy_summary(
        [heavy("none", 0.01, 0.1), heavy("joint", 1.0, 1.0, 0.5), heavy("joint", 0.99, 1.0, 1.0)]
    )
    assert "in 0 of 2 curves, and nothing is learned in 2" in short
    assert short.endswith("in 0 of 0 pairs in which anything is learned.")
    (alone,) = verdicts.heavy([heavy("none", 0.99, 1.0), heavy("joint", 0.9, 0.9, 1.0)])
    assert "nothing is learned even without privacy" in alone
    assert "price is negligible" in verdicts.heavy([heavy("none", 0.0, 0.1), heavy("local", 0.04, 0.2, 1.0)])[0]


def test_the_printed_form_goes_the_whole_way(tmp_path, small, monkeypatch):
    chosen = [
        Cell("printed", "policy optimisation", model, epsilon) for model, epsilon in (("none", None), ("joint", 1.0))
    ]
    monkeypatch.setattr(figures, "cells", lambda quick: iter(chosen))
    monkeypatch.setattr(figures, "SEARCHES", {"printed": Search((0.01,), (1.0,), (5000,))})
    invoke("wzcw23-figure-4", "--episodes", 50, "--seeds", "0", "--out", tmp_path)
    assert [row["form"] for row in read(tmp_path / "wzcw23-figure-4.csv")] == ["printed", "printed"]


# Figure 1 of [QW22] -------------------------------------------------------------------------------------------------


def test_r4_gaps_are_those_of_the_fits_beside_them_and_a_torn_line_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "INSTANCES", (0,))
    monkeypatch.setattr(figures, "BUDGETS", (0.1, 10.0))
    order = "qw22-figure-1b", "--episodes", "10,20", "--seeds", "0:2", "--out", tmp_path
    invoke(*order)
    store, table_file = tmp_path / "fits.jsonl", tmp_path / "qw22-figure-1b.csv"
    stored = [json.loads(line) for line in store.read_text().split("\n") if line]
    rows, before = read(table_file), table_file.read_text()
    assert len(rows) == 6 * 2
    assert len(stored) == 2 * len(rows)
    for row in rows:
        place = row["learner"], row["form"], row["rho"], row["users"]
        mine = [
            fit["gap"]
            for fit in stored
            if (fit["learner"], fit["form"], "" if fit["rho"] is None else str(fit["rho"]), str(fit["users"]))
            == place
        ]
        assert len(mine) == 2
        assert float(row["gap"]) == pytest.approx(statistics.fmean(mine), rel=1e-12)
    assert (tmp_path / "qw22-figure-1b.png").is_file()
    store.write_text(store.read_text()[:-30])
    made = []
    honest = figures.fitted
    monkeypatch.setattr(figures, "fitted", lambda fit, seed: made.append(seed) or honest(fit, seed))
    invoke(*order)
    assert len(made) == 1
    assert table_file.read_text() == before


def test_learners_of_a_panel_read_the_same_log_and_a_seed_fixes_everything():
    fit = Fit("dp-vapvi", "practical", 1.0, 1, 20)
    assert figures.fitted(fit, 3) == figures.fitted(fit, 3)
    assert (
        figures.fitted(fit, 3)["random_gap"] == figures.fitted(Fit("pevi", "printed", None, 1, 20), 3)["random_gap"]
    )


def test_both_panels_have_both_instances_and_the_second_several_budgets(tmp_path):
    work = Work(tmp_path, (0,))
    first, second = list(figures.fits("a", work)), list(figures.fits("b", work))
    assert {fit.instance for fit in first} == {fit.instance for fit in second} == {0, 1}
    assert {fit.learner for fit in first} == {"pevi", "pevi tuned", "vapvi", "dp-vapvi"}
    assert {fit.rho for fit in second} == {None, 0.1, 1.0, 10.0}
    assert {5, 1000} <= {fit.users for fit in first}


def linear(learner, gap, users=1000, rho=None, sd=0.1):
    where = {"learner": learner, "form": "printed", "rho": rho, "instance": 0, "users": users}
    return {**where, "gap": gap, "gap_sd": sd, "seeds": 4, "random_gap": 5.0}


@pytest.mark.parametrize(
    ("private", "plain", "verdict"),
    [
        (0.3, 0.1, "converges to VAPVI (gap 0.300 beside 0.100"),
        (0.4, 0.1, "does not converge to VAPVI at this size"),
        (4.9, 0.1, "does not converge to VAPVI, DP-VAPVI has learned nothing"),
        (5.0, 5.1, "nothing is learned even without privacy"),
    ],
)
def test_r4_convergence_is_judged_at_the_largest_log(private, plain, verdict):
    rows = [linear("vapvi", plain), linear("vapvi", 4.0, 5), linear("dp-vapvi", private, rho=1.0)]
    (said,) = verdicts.linear_price([*rows, linear("dp-vapvi", 4.0, 5, rho=1.0)])
    converged = 1 if verdict.startswith("converges") else 0
    (short,) = verdicts.linear_summary([*rows, linear("dp-vapvi", 4.0, 5, rho=1.0)])
    assert short.endswith(f"converged to VAPVI in {converged} of 1 (instance, budget) pairs at 1,000 users.")
    assert "1,000 users" in said
    assert verdict in said


def test_r4_convergence_is_also_judged_at_the_largest_log_of_print():
    sizes = (100, 1000, 10_000)
    rows = [linear("vapvi", 0.1, n) for n in sizes] + [linear("dp-vapvi", 300 / n, n, 1.0) for n in sizes]
    said = verdicts.linear_price(rows)
    assert [re.findall("([0-9,]+) users", line) for line in said] == [["1,000"], ["10,000"]]
    (short,) = verdicts.linear_summary(rows)
    assert "1 of 1 (instance, budget) pairs at 1,000 users and 1 of 1 (instance, budget) pairs at 10,000" in short


def test_r4_the_order_is_counted_against_both_forms_of_pevi():
    rows = [linear("dp-vapvi", 2.0, n, 1.0) for n in (20, 100, 1000)]
    rows += [linear("pevi", 5.0, n) for n in (20, 100, 1000)]
    rows += [linear("pevi tuned", gap, n) for n, gap in ((20, 3.0), (100, 2.01), (1000, 0.1))]
    printed, tuned = verdicts.linear_order(rows)
    assert (
        "is in most places ahead of PEVI with its printed penalty: clearly ahead in 3, clearly behind in 0" in printed
    )
    assert (
        "is not in most places ahead of PEVI with its penalty tuned: clearly ahead in 1, clearly behind in 1" in tuned
    )


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ((4.0, 2.0, 1.0), "a larger budget is nearer to VAPVI ("),
        ((4.0, 1.0, 2.0), "nearer to VAPVI, but not at every step"),
        ((1.0, 2.0, 4.0), "against the claim"),
        ((1.0, 2.0, 1.01), "cannot be told apart"),
    ],
)
def test_r4_budgets_are_compared_at_the_largest_log(gaps, verdict):
    rows = [linear("dp-vapvi", gap, rho=rho) for gap, rho in zip(gaps, (0.1, 1.0, 10.0), strict=True)]
    (said,) = verdicts.linear_budgets([*rows, linear("dp-vapvi", 9.0, 5, 0.1)])
    assert verdict in said


# Tables of theorems -------------------------------------------------------------------------------------------------


def test_the_table_of_dp_ucbvi_is_computed_from_its_theorems(tmp_path):
    said = invoke("qw23-table-1", "--out", tmp_path, "--episodes", "1000000").stdout
    rows = {(row["learner"], row["model"]): row for row in read(tmp_path / "qw23-table-1.csv")}
    assert ("PUCB", "local") not in rows
    assert ("LDP-OBI", "joint") not in rows
    assert len(rows) == 10
    assert {learner: rows[learner, model]["bonus"] for learner, model in rows} == {
        **dict.fromkeys(("PUCB", "LDP-OBI", "Private-UCB-PO", "Private-UCB-VI"), "Hoeffding"),
        "DP-UCBVI": "Bernstein",
        "every learner": "",
    }  # the six lines of the printed table
    S, A, H, T = 6, 2, 20, 20 * 10**6
    assert float(rows["DP-UCBVI", "joint"]["value"]) == pytest.approx((S * A * H**2 * T) ** 0.5 + S**2 * A * H**3)
    local = (S**2 * A * H**3 * T) ** 0.5 + S**2 * A * (H**5 * T) ** 0.5
    assert float(rows["LDP-OBI", "local"]["value"]) == pytest.approx(local)
    assert "the least bound is that of DP-UCBVI, 2.86 times the lower one; it says something" in said
    assert not (tmp_path / "qw23-table-1.png").exists()


def test_the_adversarial_table_reads_the_support_of_its_environment(tmp_path):
    invoke("bzzdtcc24-table-1", "--out", tmp_path, "--episodes", "20000")
    rows = {(row["learner"], row["setting"], row["model"]): row for row in read(tmp_path / "bzzdtcc24-table-1.csv")}
    facts = figures.bounds.case("private-uc-o-reps", env="layered", episodes=20_000, model="joint").facts
    assert facts.support is not None
    found = rows["Private-UC-O-REPS", "all losses seen", "joint"]
    assert float(found["value"]) == pytest.approx(theory.uc_o_reps_private(facts).value)
    assert len(rows) == 8


def test_promises_are_judged_column_by_column():
    def row(learner, kind, value, vacuous=False):
        where = {"setting": "x", "model": "joint", "users": 10}
        return {**where, "learner": learner, "kind": kind, "value": value, "vacuous": vacuous}

    (said,) = verdicts.promises([row("a", "upper", 8.0), row("b", "upper", 4.0, True), row("all", "lower", 2.0)])
    assert said.startswith("x, joint, 10 users: the least bound is that of b, 2 times the lower one; it says nothing")


def test_a_table_for_the_eye_keeps_every_column_whole():
    rows = [
        {"name": "long " * 30, "x": 0.5, "x_sd": 0.25, "n": 1000},
        {"name": "b", "x": 1234.5, "x_sd": None, "n": 2},
    ]
    lines = table(rows).splitlines()
    assert lines[0].split() == ["name", "x", "n"]
    assert "long " * 29 in lines[1]
    assert lines[1].endswith("0.500 ± 0.250  1,000")
    assert lines[2].split() == ["b", "1,234", "2"]


# The page -----------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "figures.md").read_text()
PAGES = tool("results_figures")


@pytest.mark.parametrize("name", ["qw23-table-1", "bzzdtcc24-table-1"])
def test_the_page_has_the_tables_of_theorems_as_computed(tmp_path, name):
    for row in figures.figure(name).make(Work(tmp_path, (0,)), lambda _: None).rows:
        kind = "at most" if row["kind"] == "upper" else "at least"
        start = (
            f"| {row['setting']} | {row['learner']} | {row['model']} | {kind} {row['formula']} | {row['users']:,} |"
        )
        assert f"{start} {row['value']:,.4g} | {row['every_policy']:,.4g} |" in PAGE


@pytest.mark.parametrize("path", list(PAGES.blocks()), ids=lambda path: path.name)
def test_r3_r4_every_claim_about_a_figure_is_what_its_table_says(path):
    """Tables, summaries and verdicts of the pages, from the tables in docs/figures."""
    page = path.read_text()
    assert page == PAGES.written(page, PAGES.blocks()[path]), "run python benchmarks/results_figures.py"
    for picture in re.findall(r"\]\((figures/[\w-]+\.png)\)", page):
        assert (path.parent / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", [PAGES.HEAVY, PAGES.PRICE, PAGES.BUDGETS])
def test_r3_r4_verdicts_in_full_are_what_their_tables_say(name):
    assert (PAGES.TABLES / f"{name}.txt").read_text() == PAGES.told(name)


def test_r3_r4_the_tables_of_the_page_are_whole():
    """All curves of the figure but slow ones that are named; both instances, all sizes and budgets; ten seeds."""
    heavy = PAGES.rows_of("wzcw23-figure-4")
    missing = PAGES.missing_curves(heavy)
    assert all(each.startswith("printed, ") for each in missing)
    assert len(missing) + len(heavy) == len(list(figures.cells(False)))
    assert all(row["seeds"] == 10 for row in heavy if row["form"] != "printed")
    for row in heavy:
        search = figures.SEARCHES["printed" if row["form"] == "printed" else "pooled"]
        assert Constants(row["c"], row["rate"]) in search.constants(row["learner"])
    work = Work(Path(), tuple(range(10)))
    for panel in "ab":
        rows = PAGES.rows_of(f"qw22-figure-1{panel}")
        assert {Fit(*(row[name] for name in Fit.__dataclass_fields__)) for row in rows} == set(
            figures.fits(panel, work)
        )
        assert all(row["seeds"] == 10 for row in rows)


def test_r4_the_page_of_offline_results_agrees_with_the_figure():
    """One instance of Figure 1 stands there as well, with the prose that is read off it."""
    page = (Path(__file__).parents[2] / "docs" / "results-offline.md").read_text()
    rows = [row for row in PAGES.rows_of("qw22-figure-1a") if row["instance"] == 0]
    names = {
        "pevi, theory": ("pevi", "printed"),
        "pevi, theory × .001": ("pevi tuned", "printed"),
        "vapvi, paper": ("vapvi", "printed"),
        "vapvi, practical": ("vapvi", "practical"),
        "dp-vapvi, paper, ρ = 1": ("dp-vapvi", "printed"),
        "dp-vapvi, practical, ρ = 1": ("dp-vapvi", "practical"),
    }
    gaps = {
        label: {row["users"]: row["gap"] for row in rows if (row["learner"], row["form"]) == form}
        for label, form in names.items()
    }
    for label, by_size in gaps.items():
        assert f"| {label} | {' | '.join(f'{by_size[n]:.3f}' for n in sorted(by_size))} |" in page
    private, plain, pevi = gaps["dp-vapvi, paper, ρ = 1"], gaps["vapvi, paper"], gaps["pevi, theory"]
    assert all(plain[n] < private[n] < pevi[n] for n in (300, 1000, 10_000))  # "comes out from 300 users on"
    assert all(private[n] < plain[n] for n in (20, 100))
    assert f"DP-VAPVI is {private[10_000] / plain[10_000]:.0f} times behind" in " ".join(page.split())


def test_what_the_page_says_of_the_search_is_the_search():
    text = " ".join(PAGE.split())
    for search in figures.SEARCHES.values():
        for values in (search.scales, search.rates):
            assert "{" + ", ".join(f"{x:g}".removeprefix("0") for x in values) + "}" in text
    staged = next(row for row in PAGES.rows_of("wzcw23-figure-4") if (row["form"], row["epsilon"]) == ("staged", 1.0))
    assert staged["noise"] > 5 * staged["count"]  # "several times larger"
    pooled = next(row for row in PAGES.rows_of("wzcw23-figure-4") if (row["form"], row["epsilon"]) == ("pooled", 1.0))
    assert (pooled["count"] / staged["count"], pooled["noise"]) == (pytest.approx(10, rel=0.1), staged["noise"])


def test_the_page_has_what_is_measured(tmp_path):
    """Two rows of the first table and one of the others are made again."""
    work = Work(tmp_path, tuple(range(10)))
    for learner in figures.LEARNERS:
        cell = Cell("pooled", learner, "none", None)
        kept = verdicts.one(PAGES.rows_of("wzcw23-figure-4"), form="pooled", learner=learner, model="none")
        assert kept is not None
        constants = Constants(kept["c"], kept["rate"])
        runs = figures.kept(cell.experiment(20_000, constants), work.seeds, work, lambda _: None)
        row = figures.heavy_row(cell, constants, runs)
        for name in ("ratio", "ratio_sd", "late", "late_sd", "count", "noise"):
            assert row[name] == pytest.approx(kept[name], rel=1e-6), name
    fit = Fit("vapvi", "practical", None, 1, 20)
    row = figures.linear_row(fit, [figures.fitted(fit, seed) for seed in work.seeds])
    for name in ("qw22-figure-1a", "qw22-figure-1b"):
        kept = verdicts.one(PAGES.rows_of(name), learner="vapvi", form="practical", instance=1, users=20)
        assert kept is not None
        assert row["gap"] == pytest.approx(kept["gap"], rel=1e-6)


def test_a_table_is_read_back_as_it_was():
    rows = [
        {"name": "a", "n": 3, "x": 0.1, "none": None, "yes": True},
        {"name": "b", "n": 4, "x": 1e-9, "none": None, "yes": False},
    ]
    assert figures.from_csv(figures.as_csv(rows)) == rows


def test_every_command_of_the_page_exists():
    named = re.findall(r"^discreet reproduce (\S+)", PAGE, re.M)
    assert set(named) == {"--list", *figures.FIGURES}
