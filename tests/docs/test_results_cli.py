"""`discreet results`, and the page about sweeps: what it shows is run."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from test_documents import block
from typer.testing import CliRunner

from discreet.cli import app, sweeping
from discreet.runs import report, results, statistics
from discreet.runs.experiment import Experiment, run
from discreet.runs.sweeps import read_sweep

ROOT = Path(__file__).parents[2]
PLACES = ({"states": 3, "horizon": 4}, {"env": "dirichlet", "states": 3, "horizon": 4})
LEARNERS = ({"algorithm": "ucbvi"}, {"algorithm": "dp-ucbvi", "epsilon": 1.0}, {"algorithm": "oppo"})


def invoke(*arguments, code=0):
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == code, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("some") / "results"
    for learner in LEARNERS:
        for place in PLACES:
            for seed in (0, 1, 2, 50):
                made = run(Experiment(**learner, **place, episodes=300), seed)
                results.write(replace(made, role="tuning" if seed == 50 else "reporting"), path)
    return path


def ratios(folder, learner, env, measure="regret_ratio"):
    return {
        row.seed: getattr(row, measure)
        for row in results.read(folder)
        if row.settings["algorithm"] == learner and row.settings["env"] == env and row.role == "reporting"
    }


def test_the_table_has_every_number_of_reporting_seeds_only(folder):
    lines = {(line["environment"].partition(",")[0], line["learner"]): line for line in table(folder)}
    assert len(lines) == 9
    for env in ("riverswim", "dirichlet"):
        for learner, label in (("ucbvi", "ucbvi"), ("dp-ucbvi", "dp-ucbvi, ε = 1"), ("oppo", "oppo")):
            line, values = lines[env, label], list(ratios(folder, learner, env).values())
            spread = statistics.Variation.of(values)
            assert (line["runs"], line["mean"], line["sd"]) == (3, spread.mean, spread.sd)
            assert (line["median"], line["worst"], line["iqm"]) == (spread.median, spread.worst, spread.iqm)
            assert (line["low"], line["high"]) == spread.interval
            gaps = list(ratios(folder, learner, env, "final_gap").values())
            assert (line["gap_mean"], line["gap_worst"]) == (pytest.approx(sum(gaps) / 3), max(gaps))
    line = lines["all environments", "oppo"]
    strata = [list(ratios(folder, "oppo", env).values()) for env in ("dirichlet", "riverswim")]
    assert (line["runs"], line["environments"]) == (6, 2)
    assert (line["low"], line["high"]) == statistics.bootstrap(strata)
    assert (lines["all environments", "dp-ucbvi, ε = 1"]["privacy"], line["privacy"]) == ("joint", "none")


def table(folder, *more):
    return json.loads(invoke("results", folder, "--json", *more).stdout)["table"]


def test_the_plain_table_names_its_columns_and_environments(folder):
    shown = invoke("results", folder).stdout
    for words in (
        "mean ± sd",
        "median",
        "worst",
        "IQM",
        "95 % interval",
        "last gap",
        "all environments",
        "riverswim",
    ):
        assert words in shown
    line = next(line for line in table(folder) if line["learner"] == "oppo")
    assert f"{line['mean']:.3f} ± {line['sd']:.3f}" in shown
    assert f"[{line['low']:.3f}, {line['high']:.3f}]" in shown
    assert f"{line['gap_mean']:.3f}" in shown


def test_tuning_seeds_are_shown_alone_and_never_as_reported(folder, tmp_path):
    shown = invoke("results", folder, "--only", "tuning").stdout
    assert shown.startswith("seeds for tuning, not to be reported: ")
    assert {line["runs"] for line in table(folder, "--only", "tuning")} == {1, 2}
    only = tmp_path / "only"
    results.write(replace(results.read(folder)[0], role="tuning"), only)
    for command in ("results", "plot", "report"):
        assert "are for tuning, and none may be reported" in invoke(command, only, code=2).stderr
    made = invoke("plot", folder, "--out", tmp_path / "a.svg").stdout
    assert "3 seeds each" in made
    assert "last gap" in made


def test_differences_at_equal_seeds_by_hand(folder):
    lines = {line["learner"]: line for line in table(folder, "--against", "ucbvi")}
    assert lines.keys() == {"oppo", "dp-ucbvi, ε = 1"}
    pairs, better = [], []
    for env in ("riverswim", "dirichlet"):
        ours, theirs = ratios(folder, "oppo", env), ratios(folder, "ucbvi", env)
        pairs += [ours[seed] - theirs[seed] for seed in ours]
        better.append(sum((a < b) + (a == b) / 2 for a in ours.values() for b in theirs.values()) / 9)
    line = lines["oppo"]
    assert line["pairs"] == 6
    assert line["difference"] == pytest.approx(sum(pairs) / 6)
    assert line["probability"] == pytest.approx(sum(better) / 2)
    assert line["low"] <= line["difference"] <= line["high"]
    assert "P(better)" in invoke("results", folder, "--against", "ucbvi").stdout
    assert (
        "nobody here is 'pucb'; choose one of: dp-ucbvi"
        in invoke("results", folder, "--against", "pucb", code=2).stderr
    )


def test_a_baseline_is_met_with_the_same_users_and_budget(tmp_path):
    for users in (100, 200):
        for budget in (1.0, 2.0):
            for name in ("dp-ucbvi", "private-ucb-vi"):
                made = Experiment(name, states=3, horizon=3, episodes=users, epsilon=budget)
                for seed in (0, 1):
                    results.write(run(made, seed), tmp_path)
        results.write(run(Experiment("ucbvi", states=3, horizon=3, episodes=users), 0), tmp_path)
    rows = results.read(tmp_path)
    assert len(report.against(rows, "dp-ucbvi, episodes 100, ε = 1")) == 9
    with pytest.raises(
        ValueError, match=r"'dp-ucbvi' ran with several settings; choose one of: dp-ucbvi, episodes .00, ε = 1"
    ):
        report.against(rows, "dp-ucbvi")  # ucbvi has no budget that would choose one
    private = [row for row in rows if row.settings["algorithm"] != "ucbvi"]
    met = {(line["learner"], line["against"]) for line in report.against(private, "dp-ucbvi")}
    assert met == {
        (f"private-ucb-vi, episodes {users}, ε = {budget}", f"dp-ucbvi, episodes {users}, ε = {budget}")
        for users in (100, 200)
        for budget in (1, 2)
    }
    assert {line["against"] for line in report.against(rows, "ucbvi")} == {
        "ucbvi, episodes 100",
        "ucbvi, episodes 200",
    }


def test_secure_runs_are_in_the_table_but_in_no_pair(tmp_path):
    for name in ("ucbvi", "oppo"):
        made = Experiment(name, states=3, horizon=3, episodes=100)
        for seed in (0, None, None):
            results.write(run(made, seed), tmp_path)
    rows = results.read(tmp_path)
    assert [line["runs"] for line in report.table(rows)] == [3, 3]
    (line,) = report.against(rows, "ucbvi")
    first = {row.settings["algorithm"]: row.regret_ratio for row in rows if row.seed == 0}
    assert line["pairs"] == 1
    assert line["difference"] == pytest.approx(first["oppo"] - first["ucbvi"])


def test_sql_sees_every_run(folder):
    query = (
        "select algorithm, count(*) as n, max(seed) as seed, avg(final_gap) as gap from results group by 1 order by 1"
    )
    rows = table(folder, "--sql", query)
    assert [(row["algorithm"], row["n"], row["seed"]) for row in rows] == [
        ("dp-ucbvi", 8, 50),
        ("oppo", 8, 50),
        ("ucbvi", 8, 50),
    ]
    stored = [row.final_gap for row in results.read(folder) if row.settings["algorithm"] == "oppo"]
    assert rows[1]["gap"] == pytest.approx(sum(stored) / 8)
    assert "dp-ucbvi" in invoke("results", folder, "--sql", query).stdout
    parsed = list(csv.DictReader(io.StringIO(invoke("results", folder, "--sql", query, "--csv").stdout)))
    assert [row["n"] for row in parsed] == ["8", "8", "8"]
    assert "guarantee_epsilon" in invoke("results", folder, "--sql", "describe results").stdout
    nothing = ["--sql", "select seed from results where seed > 99"]
    assert invoke("results", folder, *nothing, "--csv").stdout == "seed\n"
    assert table(folder, *nothing) == []
    assert "seed" in invoke("results", folder, *nothing).stdout


def test_csv_has_all_digits(folder):
    rows = list(csv.DictReader(io.StringIO(invoke("results", folder, "--csv").stdout)))
    expected = table(folder)
    assert [float(row["iqm"]) for row in rows] == [line["iqm"] for line in expected]
    assert [row["learner"] for row in rows] == [line["learner"] for line in expected]


def test_latex_is_a_table(folder):
    text = invoke("results", folder, "--latex").stdout
    lines = text.strip().splitlines()
    assert lines[0] == r"\begin{tabular}{llrrrrrrr}"
    assert [lines[1], lines[3], lines[-2], lines[-1]] == [r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}"]
    body = [line for line in lines if line.endswith(r"\\")]
    assert len(body) == 10
    assert {line.count("&") for line in body} == {8}
    assert r"95 \% interval" in lines[2]
    assert r"dp-ucbvi, $\varepsilon$ = 1" in text
    assert not re.search(r"(?<!\\)%|[±ε_]", text)
    assert sweeping.latex_text([{"a_b": r"x\y & {z}"}]).splitlines()[4] == r"x\textbackslash{}y \& \{z\} \\"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--csv", "--latex"], "--csv, --latex and --json exclude each other"),
        (["--only", "all"], "--only is 'all'; choose one of tuning, reporting"),
        (["--sql", "select x from results"], "the query failed: Binder Error"),
        (["--sql", ""], "the query returns no table; expected a select"),
        (["--sql", "select 1", "--against", "ucbvi"], "--sql sees every run"),
    ],
)
def test_bad_requests_are_refused_in_one_sentence(folder, arguments, sentence):
    told = invoke("results", folder, *arguments, code=2).stderr
    assert told.startswith("Error: ")
    assert sentence in told


def test_an_empty_folder_is_refused(tmp_path):
    assert "there are no results in" in invoke("results", tmp_path, code=2).stderr
    assert "there are no results in" in invoke("results", tmp_path, "--sql", "select 1", code=2).stderr


def test_a_table_of_two_sources_says_so(folder, tmp_path):
    first, second = results.read(folder)[:2]
    results.write(first, tmp_path)
    results.write(replace(second, facts={**second.facts, "source": "0" * 64}), tmp_path)
    assert "come from 2 versions of the source" in invoke("results", tmp_path).stderr


@pytest.mark.parametrize(
    ("seconds", "worked", "left", "told"),
    [
        (10, 100, 50, "about 5 s"),
        (60, 10, 20, "about 2 min 0 s"),
        (3600, 10, 25, "about 2 h 30 min"),
        (9, 0, 5, "about 0 s"),
    ],
)
def test_the_time_that_is_left_goes_with_users(seconds, worked, left, told):
    assert sweeping.eta(seconds, worked, left) == told


def test_progress_is_told_on_standard_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeping, "PAUSE", 0.0)
    (tmp_path / "a.toml").write_text("algorithms=['ucbvi']\nusers=60\nsizes=[[3, 3]]\nseeds='0:3'")
    done = invoke("sweep", tmp_path / "a.toml", "--out", tmp_path / "out")
    assert [line.partition(";")[0] for line in done.stderr.splitlines() if " cells; " in line] == [
        "1 of 3 cells",
        "2 of 3 cells",
        "3 of 3 cells",
    ]
    assert "3 of 3 cells; about 0 s left" in done.stderr
    assert "cells;" not in done.stdout


def test_only_one_role_is_run_when_asked_for(tmp_path):
    text = "algorithms=['ucbvi']\nusers=60\nsizes=[[3, 3]]\nseeds={tuning='7:9', reporting='0:3'}"
    (tmp_path / "a.toml").write_text(text)
    command = ["sweep", tmp_path / "a.toml", "--out", tmp_path / "out"]
    assert "seeds for tuning, not to be reported" in invoke(*command, "--only", "tuning").stdout
    assert {row.role for row in results.read(tmp_path / "out")} == {"tuning"}
    assert "--only is 'both'; choose one of tuning, reporting" in invoke(*command, "--only", "both", code=2).stderr
    dry = json.loads(invoke(*command, "--dry-run", "--json").stdout)
    assert (len(dry["cells"]), len(dry["stored"])) == (5, 2)
    (tmp_path / "a.toml").write_text(text.replace("tuning='7:9', ", ""))
    assert "has no seeds for tuning" in invoke(*command, "--only", "tuning", code=2).stderr


def test_the_commands_of_the_page_are_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sweep.toml").write_text(block("docs/sweeps.md", "toml"))
    commands = block("docs/sweeps.md", "console").splitlines()
    assert {command.split()[1] for command in commands} == {"sweep", "results"}
    for command in commands:
        arguments = shlex.split(command)[1:]
        arguments[-1:] = (
            ["1"] if arguments[-2:] == ["--jobs", "2"] else arguments[-1:]
        )  # processes are tested elsewhere
        assert invoke(*arguments).stdout or "--dry-run" in arguments
    assert len(results.read("results")) == 24 * 5
    assert sorted(each.name for each in Path().iterdir()) == ["results", "sweep.toml"]


def test_the_python_of_the_page_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(block("docs/sweeps.md", "python sweep"), {"__name__": "page"})
    assert capsys.readouterr().out == "8 8\n"


def test_the_sweep_of_the_readme_can_be_run_and_was_tuned_on_nothing_in_it():
    found = read_sweep(ROOT / "sweeps" / "readme.toml")
    assert len(found.experiments) == 4 * 15
    assert (found.tuning, len(found.reporting), found.skipped) == ((), 10, ())
    assert {each.settings["confidence_scale"] for each in found.experiments} == {None}


def test_the_main_table_of_the_readme_is_what_its_sweep_found():
    text = (ROOT / "README.md").read_text()
    rows = list(csv.DictReader((ROOT / "sweeps" / "readme.csv").read_text().splitlines()))
    titles = {"two rooms": "two-rooms", "lakes": "lake-4", "routing": "routing-3x3", "Garnet": "garnet-10"}
    titles |= {"deep sea": "deep-sea-8", "bandits": "bandit-10", "dirichlet": "dirichlet-10"}
    titles |= {"birth and death": "birth-death-8"}
    start = text.index("| learner | two rooms |")
    head, _, *lines = text[start : text.index("\n\n", start)].splitlines()
    names = ("spotlight, ε = 1", "dp-ucbvi, ε = 1", "private-ucb-po, ε = 1", "ucbvi-bernstein")
    for name, line in zip(names, lines, strict=True):
        mine = [row for row in rows if row["learner"] == name]
        cells = dict(zip(head.split(" | ")[1:-2], line.split(" | ")[1:-2], strict=True))
        assert cells.keys() == titles.keys()
        for title, cell in cells.items():
            values = [float(row["mean"]) for row in mine if row["environment"].startswith(titles[title] + "-")]
            assert float(cell) == pytest.approx(sum(values) / len(values), abs=0.0051 if float(cell) >= 1 else 5.1e-4)
        (every,) = (row for row in mine if row["environment"] == "all environments")
        told = [float(each) for each in re.findall(r"\.\d+", line)[-4:]]
        assert told == pytest.approx([float(every[key]) for key in ("iqm", "low", "high", "gap_mean")], abs=5.1e-4)


def test_the_readme_tells_the_scores_of_the_suite():
    from discreet.runs.suite.scores import board, overall, published

    means = {name: overall(axes) for name, axes in board(published()).items()}
    line = re.search(
        r"\| Spotlight on .* \| (\.\d+) \| (\.\d+) \| (\.\d+) \| (\.\d+) \|\n", (ROOT / "README.md").read_text()
    )
    told = dict(zip(("joint", "two-servers", "shuffle", "local"), map(float, line.groups()), strict=True))
    assert told == {model: pytest.approx(means[f"spotlight, {model}"], abs=0.0051) for model in told}
