"""Tutorials and notebooks are walked through as a reader would; what they show is what comes out."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from discreet import Declaration, Policy, results
from discreet.offline import heldout
from walked_pages import ROOT, agrees, blocks, typed, walk

TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = sorted(TUTORIALS.glob("*.md"))


def walked(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(folder)
    return walk((TUTORIALS / name).read_text(), folder)


def test_an_mdp_becomes_a_figure(tmp_path, monkeypatch):
    walked("mdp-to-figure.md", tmp_path, monkeypatch)
    drawn, shown = (matplotlib.image.imread(path) for path in ("coach.png", TUTORIALS / "coach.png"))
    assert drawn.shape == shown.shape
    assert np.abs(drawn - shown).mean() < 0.02  # letters may be set a little differently elsewhere


def test_a_learner_gets_a_private_twin(tmp_path, monkeypatch):
    walked("own-learner.md", tmp_path, monkeypatch)


def test_a_privatizer_gets_a_proof(tmp_path, monkeypatch):
    walked("privatizer-with-proof.md", tmp_path, monkeypatch)
    titles = re.findall(r"^## .*", Path("window.md").read_text(), re.M)
    assert titles == re.findall(r"^## .*", (ROOT / "src/discreet/privacy/sums/one_shot.md").read_text(), re.M)


def test_a_log_becomes_a_certificate(tmp_path, monkeypatch):
    walked("log-to-certificate.md", tmp_path, monkeypatch)
    answer = Policy.load("policy/").act({"map": 58, "lactate": 3.2, "age": 70}, step=0)
    assert answer in ("nothing", "fluids", "vasopressors", "both", "as now")
    document = json.loads(Path("policy", "certificate.json").read_text())
    (comparison,) = document["comparisons"]
    assert comparison["people"] == heldout.CHECKED
    assert document["declaration"]["text"] == Declaration.from_toml(Path("stays.toml").read_text()).text
    page = Path("policy", "certificate.html").read_text()
    assert "Better than now by at least" in page
    assert "@page" in page  # it is set for paper
    assert "vasopressors" in page


def test_two_servers_learn_from_people_they_cannot_read(tmp_path, monkeypatch):
    walked("two-servers.md", tmp_path, monkeypatch)
    rows = Path("certificate", "policy.csv").read_text().splitlines()
    assert len(rows) == 1 + 6 * 3


def test_a_sweep_is_killed_on_a_cluster_and_continued(tmp_path, monkeypatch):
    walked("sweep-on-a-cluster.md", tmp_path, monkeypatch)
    assert results.load("results/").num_rows == 40


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "docs/notebooks/index.md"], ids=lambda page: page.parent.name + page.stem
)
def test_links_of_tutorials_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert targets
    for target in targets:
        assert (page.parent / target).exists(), target


# Notebooks ---------------------------------------------------------------------------------------------------------


def calculated(name: str, **sliders: float) -> dict[str, Any]:
    """What a notebook's cells define once its sliders are where they are put; a cell that fails raises."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "notebooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    notebook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(notebook)
    _, names = notebook.app.run(defs={slider: SimpleNamespace(value=value) for slider, value in sliders.items()})
    return dict(names)


def test_the_notebook_shows_what_epsilon_buys():
    weak, strong = (calculated("what_epsilon_buys", epsilon=epsilon, users=1000) for epsilon in (8.0, 0.1))
    assert strong["scale"] == pytest.approx(80 * weak["scale"])
    assert (weak["noise"].std(), strong["noise"].std()) == pytest.approx((14.8, 1188), rel=0.1)  # √2 × scale
    name = "Spotlight: one step per person"
    assert weak["price"][name]["regret of random"] < 0.1 < 0.5 < strong["price"][name]["regret of random"]
    assert strong["price"][name]["guarantee"] == "joint DP, ε = 0.1 per user, replace-one"
    assert strong["price"]["without privacy"] == weak["price"]["without privacy"]


def test_the_notebook_goes_from_a_log_to_a_policy_one_can_defend(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = calculated("log_to_policy", epsilon=4.0)
    assert found["learned"][0] == {"adherence": "below 25", "do": "call"}
    assert found["answer"].lower > 0
    assert found["verdict"].consistent
    assert "certificate.html" in found["files"]


# The walk itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        (["a", "b"], ["a", "b"], True),
        (["a"], ["a", "b"], False),
        (["a", "b"], ["a"], False),
        ([], ["a"], False),
        (["a", "…"], ["a"], True),
        (["a", "…", "d"], ["a", "b", "c", "d"], True),
        (["a", "…", "d"], ["a", "b", "c"], False),
        (["took … s"], ["took 3.2 s"], True),
        (["took … s"], ["took 3.2 s", "more"], False),
        (["took … s"], ["took", "3 s"], False),
        (["a.c"], ["abc"], False),
    ],
)
def test_what_is_shown_is_all_that_may_be_printed(shown, printed, same):
    assert agrees(shown, printed) is same


def test_blocks_are_files_programs_and_commands():
    shown = "<!-- not run -->\n```python\nboom()\n```\n"
    page = f'```toml title="a.toml"\nx = 1\n```\n\n{shown}```console\n$ a \\\n  b\nc\n$ d\n```\n'
    first, second = blocks(page)
    assert (first.kind, first.title, first.body) == ("toml", "a.toml", "x = 1\n")
    assert typed(second.body) == [("a \\\n  b", ["c"]), ("d", [])]


@pytest.mark.parametrize(
    "page",
    [
        "```console\n$ echo one\ntwo\n```\n",
        "```console\n$ echo one\n```\n",
        "```console\n$ false\n```\n",
        "```console\n$ true  # exits with 1\n```\n",
        "```console\n$ exit 3\n```\n",
        "```python\nprint(1)\n```\n",
        "```python\nprint(1)\n```\n```text\n2\n```\n",
        "```python\nprint(1)\n```\n```python\nx = 1\n```\n```text\n1\n```\n",
    ],
)
def test_a_page_that_is_wrong_fails(tmp_path, page):
    with pytest.raises(AssertionError):
        walk(page, tmp_path)


def test_a_page_that_is_right_is_walked_in_one_shell_and_one_program(tmp_path):
    page = (
        '```text title="given"\nhere\n```\n'
        "```console\n$ place=$(cat given)\n$ (sleep 1000; echo never) &\n$ echo $place; false  # exits with 1\nhere\n"
        "$ { sleep .3; echo awake; sleep 1000; } &\nawake\n$ printf 'no line break'\nno line break\n```\n"
        "```python\nx = 1\n```\n```python\nprint(x)\n```\n```text\n1\n```\n"
    )
    assert len(walk(page, tmp_path)) == 5


def test_a_page_holds_whether_or_not_its_commands_are_the_first_to_compile(tmp_path):
    program = (
        "import numba\nfrom discreet.cli.terminal import compilation_notice\n"
        "with compilation_notice():\n    numba.njit(lambda: 1)()\nprint('done')\n"
    )
    page = f'```python title="first.py"\n{program}```\n```console\n$ python first.py{{}}\ndone\n```\n'
    walk(page.format(""), tmp_path)
    walk(page.format(" 2> said && grep -c compiling said").replace("\ndone\n", "\ndone\n1\n"), tmp_path)
