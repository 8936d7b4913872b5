"""The report as a document: it says what was stored and needs nothing else, and names cannot become markup."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest
from typer.testing import CliRunner

from discreet.cli import app, showing
from discreet.pages import charts, odds, report, worded
from discreet.privacy.accounting import Guarantee, LedgerEntry, no_privacy
from discreet.runs import results
from discreet.runs.experiment import Experiment, run

MADE_BY = {"version": "0", "command": "discreet report results", "time": "2026-01-01T00:00:00+00:00"}
NASTY = "<script>alert(1)</script>'\"&"


def row(algorithm="spotlight", seed=0, regret=(1.0, 3.0, 4.0), model="joint", epsilon=1.0, episodes=8, **settings):
    checkpoints = np.array([2, 4, 8]) * episodes // 8
    values = {"algorithm": algorithm, "env": "riverswim", "states": 6, "horizon": 20, "instance": 0}
    values |= {"episodes": episodes, "epsilon": epsilon, "model": model if epsilon else None, **settings}
    entry = LedgerEntry("reports", "discrete-laplace", "l1", 2.0, 2.0 / epsilon, 1, epsilon) if epsilon else None
    return results.RunResult(
        id=f"{algorithm}-{sorted(values.items())}",
        settings=values,
        seed=seed,
        checkpoints=checkpoints,
        regret=np.array(regret),
        random_regret=4.0,
        value_optimal=1.0,
        value_random=0.5,
        final_value=0.9 - 0.1 * seed,
        switches=1,
        guarantee=Guarantee(model, epsilon, entries=(entry,)) if entry else no_privacy(),
        seconds=0.5,
        version="0",
        facts={"version": "0", "source": "a" * 64, "command": "discreet run it", "time": "2026-01-02T00:00:00+00:00"},
    )


def many():
    """Two seeds of two learners, three budgets, two sizes, three models, and one without privacy."""
    found = []
    for seed in (0, 1):
        found += [row(seed=seed, epsilon=e, regret=(1.0, 2.0, 2.0 / e + seed)) for e in (0.5, 1.0, 2.0)]
        found += [row(seed=seed, episodes=80, regret=(1.0, 2.0, 3.0))]
        found += [row(seed=seed, model=model, regret=(1.0, 2.0, 3.5)) for model in ("local", "shuffle")]
        found += [row("ucbvi", seed, (0.1, 0.2, 0.2 + seed), "none", None)]
    return found


def page(rows, name="results", commands=None):
    return report.page(rows, name, commands or {}, MADE_BY)


def tree(text):
    """Scripts and styles are no markup; all the rest is well-formed."""
    plain = re.sub(r"<(script|style)>.*?</\1>", "", text.removeprefix("<!doctype html>"), flags=re.S)
    return ElementTree.fromstring(plain)


def words(element):
    return " ".join(" ".join(element.itertext()).split())


def test_u5_the_page_is_well_formed_and_loads_nothing():
    text = page(many())
    root = tree(text)
    assert not re.search(r"(https?:)?//[a-z]", text.replace("// ", ""))
    assert not re.search(r"@import|url\(|<link|<img|<iframe|<object|<embed", text)
    for element in root.iter():
        for name in ("src", "href", "data", "action"):
            assert element.get(name, "#").startswith("#")
    (policy,) = (e.get("content") for e in root.iter("meta") if e.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.partition("style-src")[0]
    names = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(names) == len(set(names))
    targets = {a.get("href") for a in root.iter("a")}
    assert targets <= {f"#{name}" for name in names}


def test_u5_names_cannot_become_markup():
    rows = [replace(r, settings={**r.settings, "env": NASTY, "algorithm": NASTY}) for r in many()]
    rows = [replace(r, facts={**r.facts, "command": NASTY, "version": NASTY}) for r in rows]
    text = page(rows, NASTY, {r.id: NASTY for r in rows})
    assert text.count("<script>") == 1
    assert text.count("</script>") == 1
    root = tree(text)
    assert NASTY in words(root.find("body/header/h1"))
    assert {g.get("data-series") for g in root.iter("g")} >= {f"{NASTY}, episodes 8, ε = 1, local"}
    assert all(json.loads(g.get("data-x")) for g in root.iter("g"))


def test_every_number_of_the_summary_is_that_of_the_results():
    rows = many()
    found = {tuple(cells[:6]): cells[6:] for cells in table_of(page(rows), "All experiments")}
    ratios, gaps = [2.0 / 4.0, 3.0 / 4.0], [0.2, 0.4]
    mean, sd, middle, interval, *others = found["spotlight", "riverswim", "joint", 1.0, 8, 2]
    assert [mean, sd, middle] == pytest.approx([np.mean(ratios), np.std(ratios, ddof=1), np.mean(ratios)])
    assert interval == "0.5000–0.7500"  # of two seeds: a resample may hold one of them twice
    assert others == pytest.approx([max(ratios), np.mean(gaps), max(gaps)])
    assert found["ucbvi", "riverswim", "none", float("inf"), 8, 2][0] == pytest.approx((0.05 + 0.3) / 2)
    assert len(found) == 7


def table_of(text, caption):
    """Rows of a table: exact numbers where cells carry them, else text."""
    for table in tree(text).iter("table"):
        if caption in words(table.find("caption")) if table.find("caption") is not None else False:
            return [
                [float(td.get("data-value")) if td.get("data-value") else words(td) for td in tr]
                for tr in table.find("tbody")
            ]
    raise AssertionError(f"no table {caption!r}")


def lines_of(text, section):
    """Values behind the lines of a section's charts, by chart and label."""
    for found in tree(text).iter("section"):
        if found.get("aria-labelledby") == section:
            return [
                {
                    g.get("data-series"): {k: json.loads(g.get(f"data-{k}")) for k in ("x", "y", "low", "high")}
                    for g in chart.iter("g")
                }
                for chart in found.iter("svg")
            ]
    raise AssertionError(section)


def test_the_charts_hold_the_stored_values():
    text = page(many())
    ratio, gap = lines_of(text, "budgets")
    budgets = ratio["spotlight, episodes 8, joint"]
    assert budgets["x"] == [0.5, 1.0, 2.0]
    assert budgets["y"] == pytest.approx([4.5 / 4, 2.5 / 4, 1.5 / 4])
    assert budgets["low"] == pytest.approx([1.0, 0.5, 0.25])
    assert budgets["high"] == pytest.approx([5 / 4, 0.75, 0.5])
    assert ratio["ucbvi (no privacy)"]["y"] == pytest.approx([0.175, 0.175])
    assert gap["spotlight, episodes 8, joint"]["y"] == pytest.approx([0.3, 0.3, 0.3])
    users, _ = lines_of(text, "users")
    assert users == {
        "spotlight, ε = 1, joint": {"x": [8, 80], "y": [0.625, 0.75], "low": [0.5, 0.75], "high": [0.75, 0.75]}
    }
    trust, _ = lines_of(text, "trust")
    assert trust["spotlight, ε = 1"]["x"] == [0, 1, 2]  # local, shuffle, joint, without privacy
    assert trust["spotlight, ε = 1"]["y"] == pytest.approx([0.875, 0.875, 0.625])
    assert trust["ucbvi"]["x"] == [3]
    (curves,) = lines_of(text, "curves")
    assert len(curves) == 7
    assert curves["ucbvi, episodes 8"]["y"] == pytest.approx([0.1, 0.1, 0.175])


def test_a_run_with_rho_is_private_and_is_not_compared_with_epsilon():
    zcdp = replace(row("ucbvi", epsilon=None), guarantee=Guarantee("joint", np.inf, rho=0.5))
    zcdp = replace(zcdp, settings={**zcdp.settings, "rho": 0.5, "model": "joint"}, id="zcdp")
    text = page([*many(), zcdp])
    ratio, _ = lines_of(text, "budgets")
    assert sum("no privacy" in label for label in ratio) == 1
    trust, _ = lines_of(text, "trust")
    assert not any("ρ" in label for label in trust)
    assert any(cells[2:4] == ["joint", "ρ = 0.5"] for cells in table_of(text, "All experiments"))


def test_learners_are_summed_up_over_problems():
    rows = [row(seed=s, env=env, regret=(1, 2, 1.0 + s)) for env in ("here", "there") for s in (0, 1)]
    ((label, problems, runs, middle, low, high, worst, gap),) = table_of(page(rows), "Over all problems")
    assert (label, problems, runs, worst) == ("spotlight", 2, 4, 0.5)
    assert middle == pytest.approx(0.375)  # of .25, .25, .5, .5 without the least and the largest
    assert low == 0.25
    assert high == 0.5
    assert gap == pytest.approx(0.3)
    assert "Over all problems" not in page([row()])


def test_seeds_for_tuning_are_not_reported(tmp_path):
    for seed, role in ((0, "reporting"), (1, "tuning")):
        done = run(Experiment("ucbvi", states=3, horizon=3, episodes=50), seed)
        results.write(replace(done, role=role), tmp_path / "results")
    made, _ = showing.reported(tmp_path / "results", None)
    ((*_, seeds, _, _, _, _, _, _, _),) = table_of(made.read_text("utf-8"), "All experiments")
    assert seeds == 1


def test_pixels_are_where_the_values_are():
    """The lowest value is the lowest mark, and the random policy's line lies at 1."""
    line = charts.Line.of("a", [(1, 0.0, 0.0, 0.0), (10, 1.0, 1.0, 1.0), (100, 0.5, 0.5, 0.5)])
    chart = charts.Chart("n", "t", "users", "y", (line,))
    root = ElementTree.fromstring(charts.svg(chart, {"a": 0}))
    (group,) = root.iter("g")
    (x0, y0), (x1, y1), (x2, y2) = json.loads(group.get("data-at"))
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y2 == pytest.approx((y0 + y1) / 2, abs=0.1)
    assert y0 == charts.HEIGHT - charts.BOTTOM
    (reference,) = (e for e in root.iter("line") if e.get("class") == "random")
    assert float(reference.get("y1")) == pytest.approx(y1, abs=0.06)
    assert [c.get("cx") for c in root.iter("circle")] == [f"{x:.1f}" for x in (x0, x1, x2)]


@pytest.mark.parametrize("top", [1e-9, 0.013, 0.2, 0.5, 0.99, 1.0, 1.02, 1.7, 3.0, 5.9, 6.0, 42.0, 9.99e7])
def test_ticks_are_few_and_within(top):
    found = charts.even_ticks(top)
    assert found[0] == 0.0
    assert 3 <= len(found) <= 7
    assert found[-1] <= top < found[-1] + 2 * found[1]


def test_sections_without_anything_to_compare_say_so():
    text = page([row()])
    assert lines_of(text, "budgets") == lines_of(text, "users") == lines_of(text, "trust") == []
    for option in ("--epsilon", "--episodes", "--model"):
        assert f"another {option}" in unescape(text) or f"other {option}" in unescape(text)
    assert "No seed is worse" in text


def test_where_every_policy_is_optimal_there_is_no_ratio():
    text = page([replace(row(), random_regret=0.0)])
    assert "every policy is optimal" in text
    ((*_, mean, _, _, _, _, gap, _),) = table_of(text, "All experiments")
    assert mean == gap == "–"


def test_what_is_simulated_is_said_and_what_is_not_too():
    seeded, secure = page([row()]), page([replace(row(), seed=None)])
    for text in (seeded, secure):
        assert report.EXACT in unescape(text)
    assert report.SEEDED in seeded
    assert report.SEEDED not in secure
    assert report.SECURE in secure


def test_results_of_two_sources_are_marked():
    other = replace(row(seed=1), facts={**row().facts, "source": "b" * 64})
    assert "2 versions of the source" in page([row(), other])
    assert "versions of the source;" not in page([row()])


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        (1e-6, "is at most 51 % sure"),
        (math.log(99.0), "is at most 99 % sure"),
        (4.6, "is at most 99.1 % sure"),  # 99.0048
        (5.0, "is at most 99.4 % sure"),  # 99.3307
        (math.log(999.0), "is at most 99.9 % sure"),
        (7.0, "may be more than 99.9 % sure"),  # 99.9089
        (1000.0, "may be more than 99.9 % sure"),
    ],
)
def test_nobody_is_said_to_be_at_most_entirely_sure(epsilon, said):
    assert odds.certainty(epsilon) == said
    assert f"these or others {said} after" in report.in_words(Guarantee("joint", epsilon))[1]


def test_the_guarantee_in_words_is_that_of_randomised_response():
    promise, ledger = Guarantee("joint", 1.0), row().guarantee
    assert "more than 2.72 times" in report.in_words(promise)[1]
    assert f"these or others {odds.certainty(1.0)} after seeing everything" in report.in_words(promise)[1]
    assert odds.certainty(1.0) == "is at most 74 % sure"  # e/(1 + e) = .731, rounded up
    assert report.in_words(no_privacy()) == report.in_words(Guarantee("joint", np.inf))
    assert "but for a chance of 1e-06" in report.in_words(Guarantee("shuffle", 1.0, 1e-6))[1]
    (line,) = report.spent(ledger)
    assert line == (
        "reports: one user moves it by at most 2 (L1) and enters one noisy value; integer Laplace noise (scale 2) "
        "hides that, at a cost of ε = 1."
    )
    sums = replace(ledger.entries[0], statistic="rewards", sensitivity=524288.0, scale=1572864.0003, cost=1 / 3)
    (line,) = report.spent(replace(ledger, entries=(sums,)))
    assert "by at most 524,288 units of its grid (L1)" in line
    assert "(scale 1,572,864)" in line


def test_the_worst_seeds_come_first_with_their_command():
    rows = [row(seed=s, regret=(1, 2, r)) for s, r in enumerate((1.0, 1.0, 3.0))]
    ((_, seed, ratio, excess, _, command),) = table_of(
        page(rows, commands={rows[0].id: "discreet run a"}), "Furthest"
    )
    assert (seed, ratio, excess, command) == (2.0, 0.75, 0.5, "discreet run a --seeds 2")


@pytest.mark.parametrize(
    "experiment",
    [
        Experiment("ucbvi"),
        Experiment("spotlight", epsilon=0.25, pooled=True, episodes=500),
        Experiment("spotlight", epsilon=1.0, model="shuffle", delta=1e-6, public_initial=False, horizon=7),
        Experiment("dp-ucbvi", epsilon=1.0, model="local", confidence_scale=0.3, known_successors=True),
        Experiment("heavy-ucbvi", reward_law="student-t", df=2.5, env="two-rooms"),
        Experiment("uc-o-reps", env="layered", adversary="switch", episodes=300),
        Experiment("dp-ucbvi", epsilon=1.0, mode="paper", beta=0.05),
        Experiment("dp-ucbvi", rho=0.25, pooled=True),
    ],
    ids=lambda e: e.id,
)
def test_the_command_repeats_the_experiment(experiment, monkeypatch):
    """Parsed by the command line it gives the same experiment."""
    command = showing.command_of(experiment.resolved.settings, experiment.id)
    program, run_word, *arguments = shlex.split(command)
    assert (program, run_word) == ("discreet", "run")
    met = []
    monkeypatch.setattr("discreet.cli.running.prepared", lambda e: met.append(e) or exec("raise ValueError"))
    CliRunner().invoke(app, ["run", *arguments])
    assert [e.id for e in met] == [experiment.id]


def test_what_no_command_names_has_none():
    settings = {**Experiment("ucbvi").resolved.settings, "env": "mine@0123456789ab"}
    assert showing.command_of(settings, "x") is None
    assert showing.command_of(Experiment("ucbvi").resolved.settings, "another-id") is None
    text = page([row()])
    assert "which only what was called above makes again: spotlight" in text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "results"
    for name, epsilon in (("ucbvi", None), ("dp-ucbvi", 1.0), ("dp-ucbvi", 4.0)):
        for seed in range(2):
            results.write(run(Experiment(name, states=3, horizon=3, episodes=200, epsilon=epsilon), seed), path)
    return path


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_writes_the_page_beside_the_folder_and_its_figures(folder, tmp_path):
    done = invoke("report", folder, "--figures", tmp_path / "figures")
    assert done.exit_code == 0, done.output
    made = folder.parent / "results-report.html"
    assert f"the report is in {made}" in done.output
    root = tree(made.read_text("utf-8"))
    assert words(root.find("body/header/h1")) == "Results in results"
    assert (
        "discreet run dp-ucbvi --env riverswim --states 3 --horizon 3 --episodes 200 --epsilon 4 --seeds 0:2"
        in words(root)
    )
    assert all(path.suffix == ".parquet" for path in folder.iterdir())
    names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert len(names) == 6  # curves, ratio and gap against ε
    assert {name.rpartition(".")[2] for name in names} == {"png", "svg"}
    for name in names:
        path = tmp_path / "figures" / name
        if path.suffix == ".svg":
            ElementTree.fromstring(path.read_text())
        else:
            assert len(np.unique(matplotlib.image.imread(path).reshape(-1, 4), axis=0)) > 20


def test_what_cannot_be_written_is_refused_in_one_sentence(folder, tmp_path):
    for arguments, said in (
        ((folder, "-o", tmp_path / "x.pdf"), "must be .html"),
        ((folder, "-o", folder / "x.html"), "lies among the results"),
        ((tmp_path,), "there are no results"),
        ((tmp_path / "none",), "there is no folder"),
    ):
        done = invoke("report", *arguments)
        assert done.exit_code == 2
        assert said in done.stderr
    assert all(path.suffix == ".parquet" for path in folder.iterdir())
    assert list(tmp_path.iterdir()) == []


def test_names_with_dollars_and_underscores_are_drawn_as_they_are():
    line = charts.Line.of("_a $x^2", [(1, 0.1, 0.1, 0.1), (2, 0.2, 0.2, 0.2)])
    drawing = charts.drawn(charts.Chart("n", "$", "users", "y", (line,)), {"_a $x^2": 0})
    drawing.canvas.draw()
    assert [text.get_text() for text in drawing.legends[0].get_texts()] == [r"_a \$x^2"]


def test_values_for_the_eye():
    assert [worded(v) for v in (None, True, 12345, 0.25, 123456.7, float("inf"), [1, 2.5])] == [
        *("–", "yes", "12,345", "0.25", "123,457", "∞", "1, 2.5")
    ]
