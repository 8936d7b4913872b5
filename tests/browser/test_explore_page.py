"""The sliders as a person moves them."""

from __future__ import annotations

import json
import shlex
import threading

import pytest
from typer.testing import CliRunner

from discreet.catalog import TRUST
from discreet.cli import app
from discreet.pages import explore
from discreet.pages.serving import Local
from discreet.runs import exploring


@pytest.fixture(scope="module")
def server():
    worker = exploring.Worker(exploring.shipped(), patience=60.0)
    with Local(*explore.page(exploring.NUMBERS, TRUST, "here"), worker) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()
    worker.close()


@pytest.fixture
def tab(browser, server):
    found = browser.open(server.url)
    settled(found)
    yield found
    assert found.complaints() == []
    assert all(url.startswith(server.url) or url == "data:," for url in found.requests())
    found.close()


def settled(tab):
    tab.until(lambda: tab.run("document.getElementById('answers').getAttribute('aria-busy') === 'false'"))


def slide(tab, name, to_right):
    """With the arrow keys, from where it is."""
    tab.run(f"document.querySelector('[data-name={name}] input[type=range]').focus()")
    for _ in range(abs(to_right)):
        tab.press("ArrowRight" if to_right > 0 else "ArrowLeft", 39 if to_right > 0 else 37)
    settled(tab)


def value(tab, name):
    return float(tab.run(f"document.getElementById('{name}').value"))


def shown(tab, card):
    """What a card says: its mark, and its numbers by name."""
    rows = tab.run(
        f"[...document.querySelectorAll('#{card} .numbers tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    return tab.run(f"document.querySelector('#{card} .mark').textContent"), dict(rows)


def printed(tab):
    """What the command prints that the page names."""
    words = shlex.split(tab.run("document.getElementById('command').textContent"))[1:]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def agrees(tab):
    """The page against the command line, number by number."""
    told = printed(tab)
    mark, counts = shown(tab, "counts")
    assert (mark == "✓ can be learned") == told["feasible"]
    if told["users_needed"] is not None:
        assert counts["users needed, about"] == f"{told['users_needed']:,}"
    assert float(counts["sd of the noise"].replace(",", "")) == pytest.approx(told["deviation"], rel=0.006)
    assert float(counts["times the noise"].replace(",", "")) == pytest.approx(told["signal"], rel=0.006)
    noise = tab.run(
        "[...document.querySelectorAll('#noise tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert [row[0] for row in noise] == ["visits", "transitions", "rewards"]
    for row, family in zip(noise, told["families"].values(), strict=True):
        assert float(row[2].replace(",", "")) == pytest.approx(family["deviation"], rel=0.006)
        assert float(row[3].replace(",", "")) == pytest.approx(family["width"], rel=0.006)
    if told["spotlight"] is not None:
        _, reports = shown(tab, "reports")
        assert reports["users needed, about"] == f"{told['spotlight']['users_needed']:,}"
    return told


@pytest.mark.parametrize("name", list(exploring.NUMBERS))
def test_every_slider_changes_the_numbers_and_they_are_those_of_calibrate(tab, name):
    before = tab.run("document.getElementById('answers').innerText"), value(tab, name)
    agrees(tab)
    slide(tab, name, 2 if name in ("delta", "branching") else -2 if name == "horizon" else 1)
    if name == "delta":  # 2·10⁻⁹ is much noise for the smallest of δ, but it is Gaussian
        assert "pure epsilon" in tab.run("document.querySelector('#reports .verdict').textContent")
    assert value(tab, name) != before[1]
    assert tab.run("document.getElementById('answers').innerText") != before[0]
    agrees(tab)


def test_trust_and_pooling_change_the_numbers_too(tab):
    tab.click("input[value=local]")
    settled(tab)
    assert agrees(tab)["guarantee"]["model"] == "local"
    tab.click("#pooled")
    settled(tab)
    assert "--pooled" not in tab.run("document.getElementById('command').textContent")
    agrees(tab)
    tab.click("input[value=two-servers]")
    settled(tab)
    assert shown(tab, "counts")[0] == "not with this choice"
    assert "two servers take reports" in tab.run("document.querySelector('#counts .verdict').textContent")
    assert int(shown(tab, "reports")[1]["users needed, about"].replace(",", "")) > 0


def test_a_number_can_be_typed_and_a_wrong_one_is_explained(tab):
    def typed(text):
        tab.run("document.getElementById('users').focus(); document.getElementById('users').select()")
        tab.ask("Input.insertText", text=text)
        settled(tab)

    typed("123456")
    assert agrees(tab)["visits"] == pytest.approx(123456 * 20 / 12)
    at = tab.run(
        "JSON.parse(document.querySelector('[data-name=users] [type=range]').dataset.stops)"
        "[document.querySelector('[data-name=users] [type=range]').value]"
    )
    assert at == 100_000  # the slider follows to the nearest round number
    typed("3")
    error = "document.getElementById('error')"
    assert tab.run(f"{error}.textContent") == "users is 3; it must lie between 10 and 1e+08"
    assert not tab.run(f"{error}.hidden")
    typed("5000")
    assert tab.run(f"{error}.hidden")
    # The refusal was an answer of status 400, which the console may mention.
    mentioned = [text for text in tab.complaints() if "400" in text]
    assert tab.complaints() == mentioned
    tab.browser.events.clear()


def test_the_nearest_measurements_follow(tab):
    first = "document.querySelector('#measured tbody th').textContent"
    assert tab.run(first) == "R6"
    slide(tab, "states", 14)
    assert value(tab, "states") == 20
    assert tab.run(first) != "R6"
    sizes = tab.run("[...document.querySelectorAll('#measured tbody tr')].map(r => Number(r.cells[2].textContent))")
    assert min(sizes) > 6


@pytest.mark.parametrize(("width", "dark"), [(1100, True), (390, False), (390, True)])
def test_it_fits(browser, server, width, dark):
    tab = browser.open(server.url, width, dark=dark)
    settled(tab)
    assert tab.run("document.documentElement.scrollWidth") <= width
    paper = tab.run("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") != dark
    assert tab.complaints() == []
    tab.close()


def test_another_page_cannot_read_it(browser, server, tmp_path):
    """A page of another origin that knows the secret, which it cannot, gets no answer all the same."""
    other = tmp_path / "other.html"
    other.write_text("<!doctype html><title>other</title>")
    tab = browser.open(other.as_uri())
    assert tab.run(f"fetch({json.dumps(server.url)}).then(r => r.text()).catch(e => 'refused')") == "refused"
    assert tab.run(
        "new Promise(done => { const f = document.createElement('iframe'); "
        f"f.onload = () => done(f.contentDocument === null); f.src = {json.dumps(server.url)}; "
        "document.body.append(f) })"
    )
    tab.browser.events.clear()
    tab.close()
