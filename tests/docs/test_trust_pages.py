"""What the pages on trust models and on poisoning say is what was measured."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from types import ModuleType

import pytest

from discreet.runs import poisoning
from discreet.runs.suite.scores import board, overall, published

ROOT = Path(__file__).parents[2]


@pytest.fixture
def trust(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import results_trust

    return results_trust


def rows() -> list[dict[str, str]]:
    with (ROOT / "docs/figures/trust-models.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def block(page: str, name: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (found,) = re.findall(rf"<!-- {name} -->\n\n(.*?)\n\n<!-- end -->", text, re.S)
    return found


def test_the_table_of_four_models_is_that_of_the_rows(trust):
    found = trust.curves(rows())
    assert block("trust-models.md", "four models") == trust.table(found), "run python benchmarks/results_trust.py"
    assert len(rows()) == len(trust.jobs()) == len({tuple(row.values())[:7] for row in rows()})
    assert f"is at {found['none', math.inf]:.3f}".replace("0.", ".") in (ROOT / "docs/trust-models.md").read_text()


def test_the_curves_are_means_that_are_computed_here_again(trust):
    """By hand: mean over seeds, geometric mean over nine problems."""
    found, name = trust.curves(rows()), ("two-servers", 1.0)
    problems = sorted({row["problem"] for row in rows()})
    assert len(problems) == 9
    product = 1.0
    for problem in problems:
        mine = [
            float(r["ratio"])
            for r in rows()
            if (r["problem"], r["model"], r["epsilon"]) == (problem, *map(str, ("two-servers", 1)))
            and r["label"] == "spotlight"
        ]
        assert len(mine) == 6
        product *= sum(mine) / 6
    assert found[name] == pytest.approx(product ** (1 / 9))


def test_problems_seeds_and_instances_of_the_picture_are_fresh(trust, monkeypatch):
    import results_families

    assert {p.split for p in trust.REPORTING} == {"reporting"}
    with results_families.STORED.open(newline="") as file:
        used = list(csv.DictReader(file))
    assert not {row["seed"] for row in rows()} & {row["seed"] for row in used}
    mine, others = ({(row["problem"], row["instance"]) for row in each} for each in (rows(), used))
    assert not mine & others


def test_what_the_page_concludes_is_so(trust):
    """Less trust costs more up to ε = 2, two servers little, nobody much at ε = 1 and less than mixing at 8."""
    found, page = trust.curves(rows()), (ROOT / "docs/trust-models.md").read_text(encoding="utf-8")
    for epsilon in trust.EPSILONS:
        values = [found[model, epsilon] for model in trust.MODELS]
        assert values[1:3] == sorted(values[1:3])
        assert values[0] < values[1] or epsilon >= 4.0
        assert values[3] > values[2] or epsilon == 8.0
    two, nobody = (
        [found[model, epsilon] / found["joint", epsilon] for epsilon in trust.EPSILONS]
        for model in ("two-servers", "local")
    )
    assert "{:.2f} times the regret of a curator at ε = .25, {:.2f} and {:.2f} times".format(*two[:3]) in page
    assert max(two[3:]) < 1.3
    assert f"has {nobody[4]:.2f} times the regret of joint, and at 8 {nobody[5]:.2f} times" in page
    assert f"at ε = 1 it has {nobody[2]:.0f} times the regret of joint" in page
    assert 0.8 * found["shuffle", 8.0] < found["local", 8.0] < found["shuffle", 8.0]


def test_on_the_suite_two_servers_cost_what_the_page_says():
    means = {name: overall(axes) for name, axes in board(published()).items()}
    lost = [1.0 - means[f"spotlight, {model}"] for model in ("two-servers", "joint")]
    assert (
        f"is about {lost[0] / lost[1]:.1f} times what a curator loses" in (ROOT / "docs/trust-models.md").read_text()
    )
    assert lost[0] <= 1.6 * lost[1]


def test_the_price_is_what_the_privatizers_say(trust):
    assert block("trust-models.md", "price") == trust.price(), "run python benchmarks/results_trust.py"


def test_the_picture_is_drawn_from_the_rows(trust, tmp_path):
    trust.draw(trust.curves(rows()), tmp_path / "again.svg")
    there = (ROOT / "docs/figures/trust-models.svg").read_text()
    lines = [re.findall(r'd="M ([\d. L\n-]+)"', text) for text in (there, (tmp_path / "again.svg").read_text())]
    assert lines[0] == lines[1]
    assert "docs/figures/trust-models.svg" in (ROOT / "README.md").read_text()


# People who lie


@pytest.fixture
def lies(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import results_poisoning

    return results_poisoning


def test_the_tables_of_people_who_lie_are_those_of_the_rows(lies):
    page = (ROOT / "docs/poisoning.md").read_text(encoding="utf-8")
    assert page == lies.written(page, poisoning.shipped()), "run python benchmarks/results_poisoning.py --page"
    assert {row.key for row in poisoning.shipped()} == {job.key for job in lies.jobs()}
    assert {row.seeds for row in poisoning.shipped()} == {20}
    assert "–" not in block("poisoning.md", "swap") + block("poisoning.md", "claim")


def kept(env: str, model: str, share: float, defence: str = "none") -> float:
    (row,) = (r for r in poisoning.row(model, env, "swap", defence) if r.share == share)
    return row.value / row.optimal


def test_what_the_page_says_about_people_who_lie_is_so(lies):
    for env in lies.ENVS:
        assert min(kept(env, model, 0.05) for model in ("joint", "two-servers")) >= 0.9
        assert min(kept(env, model, 0.03, "robust") for model in ("joint", "two-servers")) >= 0.945
        assert max(kept(env, model, 0.03) for model in ("shuffle", "local")) < 0.55
    assert kept("riverswim", "shuffle", 0.03) < 0.1
    assert max(kept("riverswim", model, 0.1) for model in lies.MODELS) < 0.5
    for env, least in (("riverswim", 0.99), ("chain", 0.96)):
        assert min(kept(env, model, 0.03, "robust") for model in lies.MODELS) > least
        assert min(kept(env, model, 0.0, "robust") for model in lies.MODELS) > 0.98
    assert kept("dirichlet", "joint", 0.0, "robust") < 0.97
