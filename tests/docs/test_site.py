"""The documentation site: it builds without a warning, fetches nothing, and every link leads somewhere."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
import time
from functools import cache
from html import unescape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest

from built_site import built

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "website"))

import gathering  # noqa: E402
import hooks  # noqa: E402
import mathematics  # noqa: E402
import pictures  # noqa: E402
import reference  # noqa: E402
import sessions  # noqa: E402

PATIENCE = 300.0


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once, also by several workers: the first one builds, the others wait."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    made, done = shared / "site", shared / "site.done"
    try:
        (shared / "site.claimed").mkdir()
    except FileExistsError:
        until = time.monotonic() + PATIENCE
        while not done.exists():
            assert time.monotonic() < until, "the other worker did not build the site"
            time.sleep(0.1)
    else:
        said = shared / "site.said"
        said.write_text(built(made))
        said.rename(done)
    assert done.read_text() == ""
    return made


class Links(NamedTuple):
    """What a page names, what can be linked to in it, and what a browser would fetch for it."""

    links: frozenset[str]
    anchors: frozenset[str]
    fetched: frozenset[str]


@cache
def read(page: Path) -> Links:
    text = page.read_text()
    loaded = re.findall(r'<link\b[^>]*rel="(?:stylesheet|icon|preload)[^>]*', text)
    return Links(
        frozenset(re.findall(r'<a\b[^>]*?\shref="([^"]*)"', text)),
        frozenset(re.findall(r'\s(?:id|name)="([^"]*)"', text)),
        frozenset(re.findall(r'\ssrc="([^"]*)"', text)) | frozenset(re.findall(r'href="([^"]*)"', " ".join(loaded))),
    )


def test_every_link_and_anchor_leads_somewhere(site):
    """README and CONTRIBUTING are pages of the site, so theirs are among them."""
    pages = sorted(site.rglob("*.html"))
    assert {"readme.html", "contributing.html", "index.html"} <= {page.name for page in pages}
    for page in pages:
        if page.name == "404.html":  # its links start at the server's root
            continue
        for link in read(page).links:
            path, _, anchor = unquote(unescape(link)).partition("#")
            if re.match(r"(https?|mailto):", path):
                continue
            goal = (page.parent / path).resolve() if path else page
            goal = goal / "index.html" if goal.is_dir() else goal
            assert goal.is_file(), (page.name, link)
            if anchor and goal.suffix == ".html":
                assert anchor in read(goal).anchors, (page.name, link)


def test_every_page_is_once_in_the_navigation():
    named = re.findall(r"[\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1], re.M)
    assert sorted(named) == sorted(set(named))


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        for target in read(page).fetched:
            assert not re.match(r"(https?:)?//", target), (page.name, target)
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text()), sheet.name


def test_every_proof_note_is_a_page_with_its_formulas_rendered(site):
    for page in hooks.notes().values():
        text = (site / page).with_suffix(".html").read_text()
        assert "arithmatex" not in text, page
        assert "<math" in text, page


def test_no_list_code_or_formula_is_left_as_it_was_typed(site):
    """A list needs an empty line before it, a dollar sign its partner, and code a language that is one word."""
    for page in site.rglob("*.html"):
        if "source" in page.relative_to(site).parts:
            continue
        text = re.sub(r"<(pre|code|script|annotation)\b.*?</\1>", "", page.read_text(), flags=re.S)
        assert not re.search(r"<p>[^<]*\n[-*] ", text), page.name
        assert "```" not in re.sub(r"<pre.*?</pre>", "", page.read_text(), flags=re.S), page.name
        assert not re.search(r"\$\$|\$[^<\n]{1,80}\$|\\[a-z]{2,}", text), page.name


def test_pictures_are_those_that_the_code_draws(site):
    for name, drawn in pictures.PICTURES.items():
        assert (ROOT / "docs" / "pictures" / f"{name}.svg").read_text() == drawn(), "run make docs"
    assert (site / "concepts.html").read_text().count('<figure class="drawn"><svg') == len(pictures.PICTURES)


def test_guesses_are_no_better_than_the_table_says():
    """e^ε/(1 + e^ε), rounded up; and the errors that the answer on ε promises."""
    page = (ROOT / "docs" / "concepts.md").read_text()
    budgets, most = (re.findall(r"[\d.]+", line) for line in re.findall(r"^\| (?:ε|a guess).*", page, re.M))
    assert len(budgets) == len(most) == 6
    for epsilon, bound in zip(map(float, budgets), map(float, most), strict=True):
        exact = 100 / (1 + math.exp(-epsilon))
        assert exact <= bound <= exact + 0.1
    assert all(1 / (1 + math.exp(epsilon)) >= 1 / often for epsilon, often in ((1, 4), (4, 56), (8, 3000)))
    answer = (ROOT / "docs" / "faq.md").read_text()
    assert "once in four times; at ε = 4 once in 56, at ε = 8 once in three thousand" in answer.replace("\n", " ")


def test_systems_errata_and_audits_are_gathered_from_what_was_measured(site):
    errata = (site / "errata.html").read_text().replace("<wbr>", "")
    assert errata.count("<strong>refuted</strong>") == len(gathering.PRINTED)
    for paper in gathering.PAPERS:
        page = (ROOT / "docs" / "papers" / f"{paper}.md").read_text()
        assert f"papers/{paper}.html" in errata
        for name in re.findall(r"`(test_\w+)`", page.split("## Errata")[1].split("## ")[0]):
            assert name in errata
    assert "0.374 ± 0.216" in (site / "systems" / "dp-ucbvi.html").read_text()
    with pytest.raises(ValueError, match="no row of"):
        gathering.rows("| a |\n|---|\n| b |\n", "c", "page.md")
    assert gathering.rows("| a |\n|---|\n| b |\n| c |\n", "c", "page.md") == "| a |\n|---|\n| c |\n"


def test_links_to_source_lead_to_the_line_of_the_symbol():
    line = hooks.line_of("src/discreet/privacy/sums/tree.py", "Tree")
    assert (ROOT / "src/discreet/privacy/sums/tree.py").read_text().splitlines()[line - 1].startswith("class Tree")


def test_a_formula_with_an_unknown_command_is_refused():
    assert "<mfrac>" in mathematics.mathml(r"\frac{Δ_1}{b}", True)
    with pytest.raises(ValueError, match="foo"):
        mathematics.mathml(r"\foo x", False)


# What commands print ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [each for each in sessions.every() if each.exact], ids=lambda each: each.name)
def test_commands_print_what_the_site_shows(session):
    again = sessions.played(session)
    assert sessions.comparable(again.text()) == sessions.comparable(session.text()), "run make docs"


def test_every_command_is_shown_with_what_it_printed():
    for path, _ in reference.commands():
        shown = list(reference.examples(path))
        assert shown, f"discreet {' '.join(path)} is in no session"
        assert any(step.printed.strip() for _, step in shown), path


@pytest.mark.parametrize("session", [each for each in sessions.every() if not each.exact], ids=lambda each: each.name)
def test_sessions_that_are_kept_still_name_options_that_exist(session):
    known = {
        path: {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)}
        for path, command in reference.commands()
    }
    assert session.kind.startswith("kept: ")
    for step in session.steps:
        program, *words = shlex.split(step.command)
        if program == "discreet":
            path = next(path for path in known if tuple(words[: len(path)]) == path)
            assert {word for word in words if word.startswith("--")} <= known[path], step.command
        assert not re.search(r"[\w-]{40,}", "\n".join(re.findall(r"token: .*", step.printed))), "a token is shown"


def test_servers_of_sessions_hide_their_tokens():
    stage = sessions._Stage(Path("/somewhere"))
    assert (
        stage.shown("app token: " + "a" * 43 + "\nstore: /somewhere/x.db\n")
        == "app token: aaaaaaaa…\nstore: /home/you/x.db\n"
    )
