"""The command line: exact JSON, exact exit codes, one sentence per mistake."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from discreet import catalog
from discreet.cli import app, demonstrating
from discreet.cli.listing import markdown_page
from discreet.cli.terminal import compilation_notice, mistake
from discreet.envs.registry import ENVIRONMENTS
from discreet.offline import certificate
from discreet.runs import experiment, results
from discreet.runs.seeds import seed_list

SMALL = ["--states", "3", "--horizon", "3", "--episodes", "200"]
PROGRAM = [sys.executable, "-c", "from discreet.cli import main; main()"]


def invoke(*arguments: str, code: int = 0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def strict(text: str):
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def refused(*arguments: str) -> str:
    """The one sentence on standard error."""
    result = invoke(*arguments, code=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


# Runs ---------------------------------------------------------------------------------------------------------------


def test_json_is_one_object_with_everything_promised():
    found = strict(invoke("run", "ucbvi-bernstein", *SMALL, "--seeds", "0:3", "--json").stdout)
    promised = (
        "algorithm env episodes horizon seeds pooled schedule regret regret_ratio value_optimal value_random "
        "episodes_per_second guarantee ledger"
    )
    assert set(promised.split()) <= set(found)
    assert (found["algorithm"], found["env"], found["episodes"], found["horizon"]) == (
        "ucbvi-bernstein",
        "riverswim",
        200,
        3,
    )
    assert (found["seeds"], found["pooled"], found["schedule"]) == ([0, 1, 2], False, "epochs")
    ratios = found["regret_ratio"]
    gap = found["value_optimal"] - found["value_random"]
    assert ratios["per_seed"] == pytest.approx([r / (200 * gap) for r in found["regret"]])
    assert ratios["mean"] == pytest.approx(sum(ratios["per_seed"]) / 3)
    squares = sum((r - ratios["mean"]) ** 2 for r in ratios["per_seed"])
    assert ratios["sd"] == pytest.approx((squares / 2) ** 0.5)
    guarantee = found["guarantee"]
    assert {"model", "epsilon", "delta", "neighbours", "unit", "simulation", "assumptions"} <= set(guarantee)
    assert (guarantee["model"], guarantee["epsilon"], guarantee["simulation"]) == ("none", None, True)
    assert found["ledger"] == []
    assert found["episodes_per_second"] > 0


def test_json_says_what_the_library_computes():
    found = strict(invoke("run", "ucbvi", *SMALL, "--seeds", "4", "--pooled", "--schedule", "every", "--json").stdout)
    settings = experiment.Experiment("ucbvi", states=3, horizon=3, episodes=200, pooled=True, schedule="every")
    result = experiment.run(settings, 4)
    assert found["regret"] == [float(result.regret[-1])]
    assert found["regret_ratio"]["sd"] is None
    assert found["value_last_policy"] == [result.final_value]
    assert (found["pooled"], found["schedule"]) == (True, "every")


def test_defaults_are_those_of_the_manual():
    found = strict(invoke("run", "ucbvi", "--episodes", "20", "--json").stdout)
    assert (found["env"], found["states"], found["horizon"], found["pooled"]) == ("riverswim", 6, 20, False)
    assert (found["schedule"], found["seeds"]) == ("epochs", [0])


def test_a_secure_run_is_no_simulation_and_has_no_seed():
    found = strict(invoke("run", "ucbvi", *SMALL, "--secure", "--json").stdout)
    assert found["seeds"] == [None]
    assert found["guarantee"]["simulation"] is False
    assert "not a private release" not in invoke("run", "ucbvi", *SMALL, "--secure").output
    assert "--seeds" in refused("run", "ucbvi", *SMALL, "--secure", "--seeds", "1")


def test_where_every_policy_is_optimal_the_ratio_is_null():
    found = strict(invoke("run", "ucbvi", "--states", "3", "--horizon", "1", "--env", "heavy-joint", "--json").stdout)
    assert all(r is not None for r in found["regret_ratio"]["per_seed"])
    flat = strict(invoke("run", "ucbvi", "--env", "frozenlake", "--horizon", "1", "--episodes", "9", "--json").stdout)
    assert flat["regret_ratio"] == {"mean": None, "sd": None, "median": None, "worst": None, "per_seed": [None]}


def test_the_terminal_shows_the_numbers_and_the_guarantee():
    result = invoke("run", "ucbvi", *SMALL, "--seeds", "0:2")
    found = strict(invoke("run", "ucbvi", *SMALL, "--seeds", "0:2", "--json").stdout)
    ratios = found["regret_ratio"]
    assert f"{ratios['mean']:.4f} ± {ratios['sd']:.4f}" in result.stdout
    assert f"{ratios['median']:.4f}, {ratios['worst']:.4f}" in result.stdout
    assert f"{found['value_optimal']:.4f}, {found['value_random']:.4f}" in result.stdout
    line = next(line for line in result.stdout.splitlines() if line.startswith("guarantee: "))
    assert "no privacy" in line
    assert "not a private release" in line


def comparable(text: str):
    found = strict(text)
    found.pop("episodes_per_second")
    return found


def test_the_same_seeds_give_the_same_numbers_in_every_mode(tmp_path):
    command = ["run", "ucbvi", *SMALL, "--seeds", "1,0,5", "--json"]
    alone = comparable(invoke(*command).stdout)
    assert alone["seeds"] == [1, 0, 5]
    assert comparable(invoke(*command, "--jobs", "2").stdout) == alone
    assert comparable(invoke(*command, "--out", tmp_path).stdout) == alone
    assert comparable(invoke(*command, "--out", tmp_path).stdout) == alone  # read back


def test_private_learners_report_their_ledger():
    """Whatever the catalog calls private must show a budget that its ledger explains."""
    for name, entry in catalog.ALGORITHMS.items():
        if not entry.private or entry.runner == "offline":
            continue
        model = ["--model", entry.models[0], *(["--delta", "1e-6"] if entry.models[0] == "shuffle" else [])]
        found = strict(invoke("run", name, *SMALL, *model, "--epsilon", "2", "--json").stdout)
        assert found["guarantee"]["epsilon"] <= 2.0
        assert found["guarantee"]["model"] == entry.models[0]
        assert found["ledger"]
        assert "--json" not in refused("run", name, *SMALL, *model)


# Results ------------------------------------------------------------------------------------------------------------


def test_finished_seeds_are_not_run_again(tmp_path, monkeypatch):
    command = ["run", "ucbvi", *SMALL, "--out", tmp_path]
    invoke(*command, "--seeds", "0:2")
    played = []
    real = experiment.run

    def counted(settings, seed=0, progress=None):
        if settings.episodes == 200:
            played.append(seed)
        return real(settings, seed, progress)

    monkeypatch.setattr(experiment, "run", counted)
    result = invoke(*command, "--seeds", "0:4")
    assert played == [2, 3]
    assert "2 of 4 seeds are in" in result.stderr
    assert len(results.read(tmp_path)) == 4
    invoke(*command, "--seeds", "0:4", "--confidence-scale", "0.5")
    assert played == [2, 3, 0, 1, 2, 3]


def test_naming_a_default_names_the_same_experiment(tmp_path):
    invoke("run", "ucbvi", "--episodes", "20", "--out", tmp_path)
    invoke("run", "ucbvi", "--episodes", "20", "--states", "6", "--horizon", "20", "--out", tmp_path)
    assert len(list(tmp_path.glob("*.parquet"))) == 1


def test_an_interrupted_run_keeps_what_it_has_finished(tmp_path, monkeypatch):
    real = experiment.run

    def interrupted(settings, seed=0, progress=None):
        if settings.episodes == 200 and seed == 2:
            raise KeyboardInterrupt
        return real(settings, seed, progress)

    monkeypatch.setattr(experiment, "run", interrupted)
    invoke("run", "ucbvi", *SMALL, "--seeds", "0:4", "--out", tmp_path, code=130)
    assert [row.seed for row in results.read(tmp_path)] == [0, 1]
    assert len(os.listdir(tmp_path)) == 2


def test_plot_draws_and_says_where(tmp_path):
    invoke("run", "ucbvi", *SMALL, "--out", tmp_path)
    result = invoke("plot", tmp_path)
    picture = tmp_path.parent / f"{tmp_path.name}-regret.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in result.stdout.replace("\n", "")
    invoke("plot", tmp_path, "--out", tmp_path.parent / "pictures" / "curves.svg")
    assert "<svg" in (tmp_path.parent / "pictures" / "curves.svg").read_text()
    assert "lies among the results" in refused("plot", tmp_path, "--out", tmp_path / "pictures" / "curves.svg")
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    assert "broken.parquet" in refused("plot", tmp_path)


def test_the_demo_compares_every_learner(tmp_path):
    out = tmp_path / "demo"
    result = invoke("demo", "--out", out, "--episodes", "60", "--seeds", "0:2")
    assert {row.settings["algorithm"] for row in results.read(out)} == {
        name
        for name, entry in catalog.ALGORITHMS.items()
        if entry.models[0] == "joint" and entry.runner == "online" and not entry.staged
    }
    left = ["demo", "demo-log.parquet", "demo-policy", "demo-report.html"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert "not a private release" in result.stdout
    plain = result.stdout.replace("\n", "")
    assert str(tmp_path / "demo-report.html") in plain
    assert str(tmp_path / "demo-policy" / "certificate.html") in plain
    assert "Learning curves" in (tmp_path / "demo-report.html").read_text()
    assert certificate.verify(tmp_path / "demo-policy", allow_simulation=True).consistent
    budgets = {e.algorithm: e.epsilon for e in demonstrating.learner_experiments(60)}
    assert all((budgets[name] is not None) == catalog.ALGORITHMS[name].private for name in budgets)


def test_the_demo_shows_what_trust_and_budgets_cost(tmp_path):
    """Every trust model and budget beside no privacy, as a table and as JSON, with the same numbers."""
    asked = ["demo", "--out", tmp_path / "demo", "--episodes", "3000", "--seeds", "0"]
    found = strict(invoke(*asked, "--json").stdout)
    cost = {(each["model"], each["epsilon"]): each["regret_ratio"] for each in found["price"]}
    assert set(cost) == {("none", None), *((m, e) for m in demonstrating.TRUSTED for e in demonstrating.EPSILONS)}
    assert cost["none", None] < cost["joint", 1.0] < cost["local", 1.0]
    assert cost["joint", 4.0] < cost["joint", 0.5]
    assert set(found["written"]) == {"report", "certificate", "log", "results"}
    assert all(Path(path).exists() for path in found["written"].values())
    shown = invoke(*asked)
    for (model, _), ratio in cost.items():
        words = "(no privacy)" if model == "none" else f"({model})"
        (line,) = [line for line in shown.stdout.splitlines() if words in line]
        assert f"{ratio:.3f}" in line
    assert [line[:4] for line in shown.stderr.splitlines() if line[1:2] == "/"] == ["1/3 ", "2/3 ", "3/3 "]
    assert invoke(*asked, "--quiet").stderr == ""


def test_the_log_of_the_demo_can_be_learned_from(tmp_path):
    """With the command that the demonstration names."""
    learned = demonstrating.fit(demonstrating.USERS, tmp_path / "policy", tmp_path / "log.parquet")
    assert learned["now"] < 0.2 < 0.99 * learned["best"] < learned["value"] <= learned["best"]
    assert demonstrating.fit(demonstrating.USERS, tmp_path / "policy", tmp_path / "log.parquet") == learned
    sizes = ["--states", "6", "--actions", "2", "--horizon", "20", "--pooled", "--epsilon", "1"]
    invoke("fit", tmp_path / "log.parquet", *sizes, "--out", tmp_path / "mine")
    assert strict(invoke("verify", tmp_path / "mine", "--json").stdout)["consistent"] is True


# Lists --------------------------------------------------------------------------------------------------------------


def test_lists_name_everything():
    shown = invoke("algorithms").stdout
    assert all(name in shown for name in catalog.ALGORITHMS)
    assert [entry["name"] for entry in strict(invoke("algorithms", "--json").stdout)["algorithms"]] == list(
        catalog.ALGORITHMS
    )
    assert [entry["name"] for entry in strict(invoke("envs", "--json").stdout)["environments"]] == list(ENVIRONMENTS)
    assert "riverswim" in invoke("envs").stdout


def test_the_page_of_learners_is_up_to_date():
    page = Path(__file__).parents[2] / "docs" / "algorithms.md"
    assert page.read_text() == markdown_page(), "run `make docs`"


def test_version_and_help():
    assert re.fullmatch(r"discreet \d+\.\d+\.\d+\S*\n", invoke("--version").stdout)
    assert "discreet run ucbvi --users 5000" in invoke("--help").stdout
    assert "discreet run" in invoke().stdout
    for command in ("run", "calibrate", "audit"):
        text = invoke(command, "--help").stdout
        assert "Examples" in text
        assert f"discreet {command}" in text


# Privacy ------------------------------------------------------------------------------------------------------------


def test_calibrate_reports_the_known_scale():
    sizes = ["--states", "6", "--actions", "2", "--horizon", "20", "--episodes", "20000"]
    command = ["calibrate", *sizes, "--epsilon", "1", "--schedule", "every"]
    found = strict(invoke(*command, "--json").stdout)
    assert found["levels"] == 15
    assert found["families"]["N"]["scale"] == pytest.approx(1800, rel=1e-6)
    assert found["guarantee"]["epsilon"] == 1.0
    assert found["feasible"] is False
    text = invoke(*command).stdout
    assert "1,800" in text
    assert "joint DP, ε = 1 per user, replace-one" in text
    assert "cannot be learned" in text


def test_audit_refutes_the_printed_calibration_and_not_ours():
    found = strict(invoke("audit", "paper-local", "--epsilon", "1", "--trials", "20000", "--json").stdout)
    assert {"mechanism", "claimed", "lower_bound", "confidence", "exact", "refuted"} <= set(found)
    assert found["refuted"] is True
    assert 1.0 < found["lower_bound"] <= 2.0
    ours = invoke("audit", "local", "--epsilon", "1", "--trials", "20000").stdout
    assert "claims ε = 1" in ours
    assert "not refuted" in ours
    assert "paper-truncation" in invoke("audit", "--list").stdout


# Mistakes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("run ucbv", "did you mean 'ucbvi'"),
        ("run ucbvi --env rivrswim", "did you mean 'riverswim'"),
        ("run ucbvi --reward-law gausian", "'gaussian'"),
        ("run ucbvi --horizon 0", "at least 1"),
        ("run ucbvi --episodes 0", "at least one"),
        ("run ucbvi --episodes many", "--episodes"),
        ("run ucbvi --env flipswim --pooled", "cannot be pooled"),
        ("run ucbvi --env two-rooms --states 5", "16"),
        ("run ucbvi --env gym:CartPole-v1", "Discrete"),
        ("run ucbvi --reward-law alpha-stable --alpha 0.5", "(1, 2]"),
        ("run ucbvi --confidence-scale nan", "confidence-scale"),
        ("run ucbvi --epsilon 1", "not private"),
        ("run ucbvi --delta 1e-6", "not private"),
        ("run ucbvi --neighbours friends", "replace and zero-out"),
        ("run ucbvi --constants papr", "practical, paper"),
        ("run ucbvi --schedule never", "every, epochs"),
        ("run ucbvi --instance 1", "not random"),
        ("run ucbvi --jobs 0", "--jobs"),
        ("run ucbvi --seeds 5:5", "half-open"),
        ("run ucbvi --seeds 1;2", "half-open"),
        ("run ucbvi --seeds 1,1", "twice"),
        ("run ucbvi --pool", "--pooled"),
        ("run", "name"),
        ("rum ucbvi", "run"),
        ("plot nowhere", "there is no folder"),
        ("calibrate", "--epsilon"),
        ("calibrate --epsilon 0", "positive"),
        ("calibrate --epsilon nan", "positive"),
        ("calibrate --epsilon 1 --delta 1", "delta"),
        ("calibrate --epsilon 1 --neighbours friends", "zero-out"),
        ("audit tre", "did you mean 'tree'"),
        ("audit tree --trials 3", "trials"),
        ("audit", "name a mechanism"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(arguments, words):
    assert words in refused(*arguments.split())


def test_an_unwritable_folder_is_refused_before_anything_is_computed(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(experiment, "run", None)  # would fail
    assert "cannot write results" in refused("run", "ucbvi", *SMALL, "--out", str(tmp_path / "file" / "below"))
    assert "cannot write results" in refused("demo", "--out", str(tmp_path / "file"))


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch):
    import numpy as np

    def broken(*_: object, **__: object) -> None:
        np.zeros((2, 3)).reshape(5)

    monkeypatch.setattr(experiment, "run", broken)
    with pytest.raises(ValueError, match="reshape"):
        invoke("run", "ucbvi", *SMALL)
    assert mistake(RuntimeError("no")) is None


def test_streams_and_exit_codes_of_the_real_program(tmp_path):
    def program(*arguments: str):
        return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, cwd=tmp_path)

    good = program("run", "ucbvi", *SMALL, "--json", "--out", "kept")
    assert good.returncode == 0, good.stderr
    assert strict(good.stdout)["episodes"] == 200
    again = program("run", "ucbvi", *SMALL, "--json", "--out", "kept")
    assert "1 of 1 seeds are in kept already" in again.stderr
    assert comparable(again.stdout) == comparable(good.stdout)
    bad = program("run", "ucbvi", "--horizon", "0")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "Traceback" not in bad.stderr


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0:10", list(range(10))), ("3", [3]), ("1,5,9", [1, 5, 9]), ("7:9", [7, 8]), ("0:2, 5", [0, 1, 5])],
)
def test_seeds(text, seeds):
    assert seed_list(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "-1", "1:", ":3", "0:0", "2:1", "a", "1.5", "1,,2", "0:3,2", "1e3", "²", "0:1:2"]
)
def test_bad_seeds(text):
    with pytest.raises(ValueError, match="--seeds"):
        seed_list(text)


def test_compilation_is_announced_once_and_only_when_it_happens(capsys):
    import numba

    def fresh():
        return numba.njit(lambda x: x + 1)

    ready = fresh()
    ready(1)
    with compilation_notice():
        ready(1)
        assert capsys.readouterr().err == ""
        fresh()(1)
        fresh()(1)
    assert capsys.readouterr().err.count("compiling numerical kernels (first run only)") == 1
