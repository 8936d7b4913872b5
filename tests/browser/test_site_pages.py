"""The documentation site as a reader sees it: search, phones, light and dark."""

from __future__ import annotations

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from built_site import built

#: Pages with wide tables, long formulas, terminals, pictures and source.
PAGES = (
    "index.html",
    "concepts.html",
    "errata.html",
    "papers/wzcw23.html",
    "proofs/linear.html",
    "proofs/noise.html",
    "systems/dp-ucbvi.html",
    "results-columns.html",
    "reference/api.html",
    "reference/commands/run.html",
    "source/src/discreet/privacy/sums/tree.py.html",
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *said: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = tmp_path_factory.mktemp("site") / "built"
    assert built(made) == ""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(made))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def look(browser, site):
    """Open a page; when the test is over it has not complained, nor asked for anything from elsewhere."""
    tabs = []

    def opened(page: str, width: int = 1280, dark: bool = False):
        tabs.append(browser.open(f"{site}/{page}", width=width, dark=dark))
        return tabs[-1]

    yield opened
    for tab in tabs:
        assert tab.complaints() == []
        assert [url for url in tab.requests() if not url.startswith((f"{site}/", "data:"))] == []
        tab.close()


def test_a_word_that_is_typed_is_found(look):
    tab = look("index.html")
    tab.run("document.querySelector('.md-search__input').focus()")
    tab.ask("Input.insertText", text="truncation")
    tab.until(lambda: tab.run("document.querySelectorAll('.md-search-result__link').length") > 2)
    found = tab.run("[...document.querySelectorAll('.md-search-result__link')].map(a => a.getAttribute('href'))")
    assert any("errata.html" in link or "wzcw23.html" in link for link in found)
    assert not any("/source/" in link for link in found)


@pytest.mark.parametrize("page", PAGES)
def test_on_a_phone_nothing_is_wider_than_the_screen(look, page):
    tab = look(page, width=390)
    assert tab.run("document.documentElement.scrollWidth") <= 390
    assert tab.run("document.querySelector('.md-content').getBoundingClientRect().width") <= 390
    assert tab.run("document.querySelector('.md-content').innerText.length") > 200


@pytest.mark.parametrize("dark", [False, True])
def test_pictures_and_formulas_can_be_read_on_their_ground(look, dark):
    """Light on dark, or dark on light: letters of drawings and formulas have the colour of the text around them."""
    tab = look("concepts.html", dark=dark)

    def light(element: str, part: str) -> float:
        colour = f"getComputedStyle(document.querySelector('{element}'))['{part}']"
        return tab.run(
            f"(() => {{ const x = document.createElement('canvas').getContext('2d'); x.fillStyle = {colour}; "
            "x.fillRect(0, 0, 1, 1); const [r, g, b] = x.getImageData(0, 0, 1, 1).data; return (r + g + b) / 765 })()"
        )

    ground = light("body", "background-color")
    assert (ground < 0.5) == dark
    for element, part in (("figure.drawn text.strong", "fill"), ("math", "color"), (".md-typeset p", "color")):
        assert abs(light(element, part) - ground) > 0.4, element


def test_formulas_are_drawn_by_the_browser(look):
    tab = look("proofs/linear.html")
    assert tab.run("document.querySelectorAll('math mfrac').length") > 5
    tall, line = tab.run(
        "[document.querySelector('math mfrac').getBoundingClientRect().height,"
        " parseFloat(getComputedStyle(document.querySelector('math')).fontSize)]"
    )
    assert tall > 1.3 * line
