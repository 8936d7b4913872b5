"""The pages of the papers: every link, test, audit and source resolves, and what they call wrong is shown wrong."""

from __future__ import annotations

import importlib
import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy import stats

from discreet import theory
from discreet.catalog import ALGORITHMS
from discreet.cli import app
from discreet.envs.linear import two_state_linear
from discreet.occupancies import Layers
from discreet.people.episodes import Episodes
from discreet.people.losses import LossSpec
from discreet.privacy.accounting import Budget
from discreet.privacy.audit.attacks import MECHANISMS
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.local_losses import LocalLosses
from discreet.privacy.trust.losses import CentralLosses
from oracles import tool

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "papers"


paper_index = tool("paper_index")
NAMES = sorted(path.name for path in PAGES.glob("*.md"))


@cache
def names_of_tests() -> frozenset[str]:
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.update(re.findall(r"^def (test_\w+)", path.read_text(), re.M))
    return frozenset(found)


def text(name: str) -> str:
    return (PAGES / name).read_text()


# What pages point to ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#:]+)\)", text(name)):
        assert (PAGES / target).exists(), target


@pytest.mark.parametrize("name", NAMES)
def test_every_symbol_that_is_named_exists_in_its_file(name):
    links = re.findall(r"\[`([\w.]+)`\]\(\.\./\.\./src/([\w/]+)\.py\)", text(name))
    assert links or name == "README.md"
    for symbol, path in links:
        found = importlib.import_module(path.replace("/", ".").removesuffix(".__init__"))
        for part in symbol.split("."):
            assert hasattr(found, part) or part in getattr(found, "__dataclass_fields__", {}), (symbol, path)
            found = getattr(found, part, None)


@pytest.mark.parametrize("name", NAMES)
def test_every_test_and_audit_that_is_named_exists(name):
    for each in re.findall(r"`(test_\w+)`", text(name)):
        assert each in names_of_tests(), each
    for each in re.findall(r"discreet audit ([\w-]+)", text(name)):
        assert each in MECHANISMS, each


def section(name: str, title: str) -> str:
    return text(name).split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def deviations(name: str) -> dict[int, str]:
    """Number → text of the deviations of a page."""
    items = re.findall(r"^(\d+)\. (.*(?:\n {3}.*)*)", section(name, "Deviations of the printed form"), re.M)
    return {int(number): words for number, words in items}


def errata(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"^\| (\d+) \|", section(name, "Errata"), re.M)]


@cache
def options() -> frozenset[str]:
    """Every option of every command."""
    commands = typer.main.get_command(app).commands.values()
    return frozenset(flag for command in commands for each in command.params for flag in each.opts)


@pytest.mark.parametrize("name", sorted(paper_index.PAPERS.values()))
def test_every_row_of_deviations_and_errata_is_numbered_and_resolves(name):
    """Each names where it can be seen: an option, a learner, an erratum, a test or a function, and these exist."""
    found = deviations(name)
    assert list(found) == list(range(1, len(found) + 1)) != []
    assert errata(name) == list(range(1, len(errata(name)) + 1)) != []
    for number, words in found.items():
        flags = re.findall(r"`(--[\w-]+)", words)
        named = [each for each in re.findall(r"`([\w-]+)[ `]", words) if each in ALGORITHMS]
        seen = re.findall(r"errat(?:um|a) (\d+)(?: and (\d+))?", words)
        shown = re.findall(r"`(test_\w+)`|\]\(\.\./\.\./(src/[\w/.]+)\)", words)
        assert flags or named or seen or shown, (number, words)
        assert set(flags) <= options(), (number, flags)
        assert {int(each) for pair in seen for each in pair if each} <= set(errata(name)), (number, seen)


@pytest.mark.parametrize("name", sorted(paper_index.PAPERS.values()))
def test_every_reference_to_a_deviation_or_an_erratum_of_the_page_exists(name):
    page = text(name)
    for word, known in (("deviation", set(deviations(name))), ("errat(?:um|a)", set(errata(name)))):
        for first, second in re.findall(rf"{word}s? (\d+)(?: and (\d+))?", page):
            assert {int(each) for each in (first, second) if each} <= known, (word, first, second)


def test_every_page_is_listed_and_every_paper_has_one():
    listed = set(re.findall(r"\]\(([\w.]+\.md)\)", text("README.md"))) - {"README.md"}
    assert listed == set(paper_index.PAPERS.values()) == set(NAMES) - {"README.md"}


def test_every_source_names_a_paper_that_is_listed():
    known = set(re.findall(r"\| \[(\w+)\] \|", text("README.md")))
    named = {each.paper for each in paper_index.references()}
    assert set(paper_index.PAPERS) <= named
    assert named <= known, named - known


@pytest.mark.parametrize("paper", sorted(paper_index.PAPERS))
def test_the_index_of_a_page_is_that_of_the_docstrings(paper):
    page = text(paper_index.PAPERS[paper])
    assert page == paper_index.written(page, paper), "run make docs"
    assert len(paper_index.index(paper).splitlines()) > 5


def test_every_theorem_says_where_it_is_from():
    for theorems in theory.THEOREMS.values():
        for theorem in theorems:
            source = paper_index.source_of(theorem.__doc__ or "")
            assert source is not None, theorem.__name__
            assert any(f"[{paper}]" in source for paper in paper_index.PAPERS), theorem.__name__


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("b = 1.   Source: [QW23] Thm. 5.2, 5.7.", "[QW23] Thm. 5.2, 5.7."),
        ("One.\n\nSource: [A17] Alg. 1, and\n    [B18].   Differs: 1. not.", "[A17] Alg. 1, and [B18]."),
        ("One.\nSource: [A17] Alg. 1.\nDiffers: 1. not.", "[A17] Alg. 1."),
        ("Nothing of the kind.", None),
    ],
)
def test_sources_are_read_to_their_end(docstring, expected):
    assert paper_index.source_of(docstring) == expected


def test_places_are_told_from_words():
    found = [
        paper_index.place_of(inside, after)
        for _, inside, after in paper_index.REFERENCE.findall(
            "[AB12 Alg. 3] and [CD34] §5.1, [EF56] with bits; [GH78]"
        )
    ]
    assert found == ["Alg. 3", "§5.1", "", ""]


# Nothing is left out -----------------------------------------------------------------------------------------------

#: How many lines every algorithm has in print.
LINES = {
    "qw23.md": {1: 18},
    "wzcw23.md": {1: 14, 2: 12, 3: 16},
    "bzzdtcc24.md": {1: 8, 2: 4, 3: 10, 4: 19},
    "btzcc25.md": {1: 16, 2: 12, 3: 11, 4: 17},
    "qw22.md": {1: 10, 2: 16},
}


@pytest.mark.parametrize("name", sorted(LINES))
def test_every_line_of_every_algorithm_is_faithful_or_a_numbered_deviation(name):
    page = text(name)
    deviations = page.split("## Deviations of the printed form")[1].split("## Errata")[0]
    numbered = {int(n) for n in re.findall(r"^(\d+)\. ", deviations, re.M)}
    assert numbered == set(range(1, len(numbered) + 1))
    errata = {int(n) for n in re.findall(r"^\| (\d+) \|", page.split("## Errata")[1].split("## Measured")[0], re.M)}
    table = page.split("line by line")[1].split("## Deviations")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    found = {number: [] for number in LINES[name]}
    for place, *_, verdict in rows:
        if told := re.fullmatch(r"deviations? ([\d, ]+)", verdict):
            assert {int(n) for n in told[1].split(", ")} <= numbered, place
        else:
            told = re.fullmatch(r"faithful(?: \(erratum (\d+)\))?", verdict)
            assert told is not None, (place, verdict)
            assert told[1] is None or int(told[1]) in errata
        if lines := re.fullmatch(r"Alg\. (\d): (\d+)(?:–(\d+))?", place):
            first, last = int(lines[2]), int(lines[3] or lines[2])
            found[int(lines[1])] += range(first, last + 1)
    assert found == {number: list(range(1, count + 1)) for number, count in LINES[name].items()}


def test_every_finding_about_the_papers_is_on_a_page_with_the_test_that_shows_it():
    """f1 to f20, and r11: the number is in the name of a test that some page cites."""
    cited = {each for name in NAMES for each in re.findall(r"`test_([fr]\d+)_\w+`", text(name))}
    assert {f"f{n}" for n in range(1, 21)} | {"r11"} <= cited


# The page of bounds -------------------------------------------------------------------------------------------------


def test_what_the_page_of_bounds_promises_is_what_is_computed():
    """Every row's computed half, from the trivial bound on; the measured half comes from its benchmark."""
    results_bounds = tool("results_bounds")
    page = (ROOT / "docs" / "bounds.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    found = list(results_bounds.systems())
    assert len(rows) == len(found)
    assert {system.name for system in found} == set(theory.THEOREMS)
    for row, system in zip(rows, found, strict=True):
        assert row.startswith(results_bounds.label(system))
        assert row.endswith(f"| {results_bounds.promises(system)} |"), system.name


def test_the_bounds_on_hard_instances_are_what_is_computed():
    results_bounds = tool("results_bounds")
    page = (ROOT / "docs" / "bounds.md").read_text()
    for model in ("joint", "local"):
        known = [results_bounds.facts(model, e, True) for e in results_bounds.BUDGETS]
        for name, theorem in (("order", theory.no_heavy_learner), ("proved", theory.no_heavy_learner_proved)):
            values = " | ".join(results_bounds.number(results_bounds.stated(theorem, each)) for each in known)
            assert f"| {model}, critical gap | lower bound, {name} | {values} |" in page


# Errata -------------------------------------------------------------------------------------------------------------


def test_f3_the_printed_budgets_add_up_to_five_thirds():
    """Users without a common cell move N and T by 2H, rewards up to B by 2HB; printed scales are 3H/ε and 6HB/ε."""
    H, B, epsilon = 4, 7.0, 1.0
    moved = {"visits": 2 * H, "transitions": 2 * H, "rewards": 2 * H * B}
    scale = {"visits": 3 * H / epsilon, "transitions": 3 * H / epsilon, "rewards": 6 * H * B / epsilon}
    assert sum(moved[name] / scale[name] for name in moved) == pytest.approx(5 / 3 * epsilon)


def test_f5_a_replaced_user_costs_twice_what_the_lemma_states():
    """Noise of variance s² = 1/(4ρ₀) off the diagonal, 2s² on it: D costs Σ_{i<j} D²/(2s²) + Σ D_ii²/(4s²)."""
    rng, rho = np.random.default_rng(0), 0.3
    s2 = 1 / (4 * rho)

    def cost(one: np.ndarray, other: np.ndarray) -> float:
        D = np.outer(one, one) - np.outer(other, other)
        upper = D[np.triu_indices(len(D), 1)]
        return float((upper**2).sum() / (2 * s2) + (np.diag(D) ** 2).sum() / (4 * s2))

    assert cost(np.eye(3)[0], np.eye(3)[1]) == pytest.approx(2 * rho)
    vectors = rng.normal(size=(2000, 2, 3))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1.0)
    assert max(cost(*pair) for pair in vectors) <= 2 * rho + 1e-12
    assert cost(np.eye(3)[0], np.zeros(3)) == pytest.approx(rho)


def test_f7_the_features_of_the_figure_move_a_matrix_by_57():
    phi = math.sqrt(7) * two_state_linear(1).features.reshape(-1, 10)
    norms = (phi**2).sum(axis=1)
    assert norms.max() == pytest.approx(7)
    moved = norms[:, None] ** 2 + norms[None] ** 2 - 2 * (phi @ phi.T) ** 2
    assert moved.max() == pytest.approx(57)


@pytest.mark.parametrize("claim", [0.5, 1.0, 30.0])
def test_f10_noise_of_a_scale_that_depends_on_data_is_private_for_no_epsilon(claim):
    """Lap(b) against Lap(b'), b' > b: at y the logarithm of the ratio is |y|·(1/b − 1/b') + ln(b/b'): no bound."""
    b, other = 6.0, 6.0 * math.sqrt(9 / 8)  # the thresholds of 8 and 9 visits, v = 1
    y = (claim + 1.0 - math.log(b / other)) / (1 / b - 1 / other)
    assert stats.laplace.logpdf(y, scale=other) - stats.laplace.logpdf(y, scale=b) > claim


def test_f19_the_printed_tail_of_few_laplace_noises_is_too_short():
    """One noise: P(|X| > 2b·√(ln(2/β))) = exp(−2√(ln(2/β))), at β = 10⁻⁶ some 492 times β."""
    beta = 1e-6
    assert math.exp(-2 * math.sqrt(math.log(2 / beta))) / beta == pytest.approx(492, rel=0.01)


def test_f20_the_printed_moments_of_laplace_noise_diverge():
    """E e^{λX} = 1/(1 − λ²b²) must stay below e^{2λ²b²} for |λ| < 1/b, and does so up to 1/(1.13b) only."""

    def holds(share: float) -> bool:
        return 1 / (1 - share**2) <= math.exp(2 * share**2)

    assert not holds(0.95)
    assert holds(1 / 1.13)


def test_r11_local_loss_noise_grows_with_k_and_padded_noise_does_not():
    """Variance of the noise in a cumulative loss after 8 and 32 users: fourfold as printed, equal if padded."""
    S, K = 120, 64
    layers = Layers.full(2, np.full(S, 1 / S), 2)
    spec = LossSpec.for_episodes(layers, "full", K)

    def spread(privatizer, users: int) -> float:
        stream = privatizer.open(spec, NoiseSource.seeded(users))
        states = np.zeros((1, 3), dtype=np.int64)
        for _ in range(users):
            stream.add(Episodes(states, states[:, 1:], np.zeros((1, 2))), np.zeros((1, 2, S, 2)))
            stream.close_losses()
        return float(np.var(stream.release().losses))

    printed = LocalLosses(Budget.pure(1.0), laplace=True, calibration="paper")
    padded = LocalLosses(Budget.pure(1.0), laplace=True)
    gaussian = LocalLosses(Budget.zcdp(1.0), laplace=True)
    tree = CentralLosses(
        Budget.pure(1.0), counts="tree", losses="constant-tree", num_count_blocks=K, num_loss_blocks=K
    )
    assert spread(printed, 32) / spread(printed, 8) == pytest.approx(4, rel=0.25)
    for constant in (tree, padded, gaussian):
        assert spread(constant, 32) / spread(constant, 8) == pytest.approx(1, rel=0.25)
    for local in (padded, gaussian):  # K noises, whoever added them
        assert spread(local, 8) == pytest.approx(
            K * (local.families(spec)["losses"].deviation * spec.grid) ** 2, rel=0.25
        )
