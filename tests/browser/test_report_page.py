"""The report as a person meets it in a browser."""

from __future__ import annotations

import json

import pytest

WIDTHS = ((1100, False), (1100, True), (390, False), (390, True))


@pytest.fixture
def tab(browser, report):
    found = browser.open(report.as_uri())
    yield found
    assert found.complaints() == []
    assert found.requests() == [report.as_uri()]  # and nothing else was ever asked for
    found.close()


@pytest.mark.parametrize(("width", "dark"), WIDTHS)
def test_the_page_fits_and_can_be_read(browser, report, width, dark):
    tab = browser.open(report.as_uri(), width, dark=dark)
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.complaints() == []
    paper = channels(tab.run("getComputedStyle(document.body).backgroundColor"))
    assert (sum(paper) < 150) == dark
    for element in ("body", "nav a", ".warn", "td", ".facts", "svg text"):
        colour = "fill" if "svg" in element else "color"
        ink = channels(tab.run(f"getComputedStyle(document.querySelector('{element}')).{colour}"))
        assert contrast(ink, paper) >= 4.5, element
    assert (
        tab.run(
            "parseFloat(getComputedStyle(document.querySelector('svg .y')).fontSize) * "
            "document.querySelector('svg').getBoundingClientRect().width / 640"
        )
        > 9
    )  # pixels on the screen
    tab.close()


def channels(colour):
    return [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]


def contrast(a, b):
    """Of the web's accessibility guidelines."""

    def light(colour):
        parts = [c / 255 for c in colour]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dim = sorted((light(a), light(b)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_the_marks_are_there_and_seen(tab):
    charts = tab.run(
        "[...document.querySelectorAll('svg.chart')].map(c => [c.querySelectorAll('.mean').length, "
        "c.querySelectorAll('.band').length, c.querySelectorAll('.dot').length])"
    )
    # Six curves; ratio and gap against ε (a line, and one to compare with), against users, and by trust.
    assert charts == [[6, 6, 0], [2, 1, 2], [2, 1, 2], [1, 1, 2], [1, 1, 2], [0, 0, 4], [0, 0, 4]]
    boxes = tab.run("[...document.querySelectorAll('.mean')].map(m => m.getBoundingClientRect().width)")
    assert min(boxes) > 100
    strokes = tab.run(
        "[...document.querySelectorAll('svg.chart:first-of-type .mean')].map(m => getComputedStyle(m).stroke)"
    )
    assert len(set(strokes[:6])) == 6
    assert "none" not in strokes


def test_the_legend_hides_a_line_and_shows_it_again(tab):
    label = tab.run("document.querySelector('.key').dataset.series")
    shown = f"getComputedStyle(document.querySelector('g[data-series={json.dumps(label)}]')).display !== 'none'"
    others = (
        "[...document.querySelectorAll('svg.chart')[0].querySelectorAll('g')]"
        ".filter(g => getComputedStyle(g).display === 'none').length"
    )
    assert tab.run(shown)
    tab.click(".key")
    assert not tab.run(shown)
    assert tab.run(others) == 1
    assert tab.run("document.querySelector('.key').getAttribute('aria-pressed')") == "false"
    tab.click(".key")
    assert tab.run(shown)
    tab.click(".key")
    tab.click(".all")
    assert tab.run(shown)
    assert tab.run(others) == 0


def column(tab, number):
    return tab.run(
        f"[...document.querySelectorAll('table.sortable')[0].tBodies[0].rows].map(r => r.cells[{number}]).map("
        "c => c.dataset.value === undefined ? c.textContent : Number(c.dataset.value.replace('inf', '1e99')))"
    )


def test_headings_sort(tab):
    before = column(tab, 6)
    assert before == sorted(before)  # the best first
    for number, words in ((4, "users"), (3, "ε"), (0, "learner")):
        heading = f"table.sortable th:nth-child({number + 1})"
        tab.click(f"{heading} button")
        values = column(tab, number)
        assert values == sorted(values), words
        assert len(set(values)) > 1
        assert tab.run(f"document.querySelector('{heading}').ariaSort") == "ascending"
        tab.click(f"{heading} button")
        assert column(tab, number) == sorted(values, reverse=True)
    assert tab.run("document.querySelectorAll('[aria-sort]').length") == 1
    assert sorted(column(tab, 6)) == before


def test_the_pointer_shows_the_stored_values(tab):
    box = tab.run(
        "(c => { c.scrollIntoView({block: 'center', behavior: 'instant'}); const b = c.getBoundingClientRect(); "
        "return [b.x, b.y, b.width, b.height] })(document.querySelectorAll('svg.chart')[1])"
    )
    assert tab.run("document.getElementById('values').hidden")
    tab.move(box[0] + 0.95 * box[2], box[1] + 0.5 * box[3])  # the right end: ε = 2
    told = tab.until(lambda: tab.run("document.getElementById('values').innerText"))
    assert told.startswith("ε per user: 2\n")
    line = tab.run("JSON.parse(document.querySelectorAll('svg.chart')[1].querySelector('g').dataset.y)[1]")
    assert f": {float(f'{line:.4g}'):g} (" in told
    tab.move(2, 2)
    assert tab.until(lambda: tab.run("document.getElementById('values').hidden"))


def test_everything_can_be_reached_and_used_with_the_keyboard(tab):
    seen = []
    for _ in range(200):
        tab.press("Tab", 9)
        seen.append(tab.run("(e => e.id || e.className.baseVal || e.className || e.tagName)(document.activeElement)"))
        if seen[-1] == "chart":
            break
    assert seen[0] == "skip"
    assert "theme" in seen
    assert seen.count("BUTTON") == 13  # the headings of the summary
    outline = tab.run("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    tab.press("End", 35)
    assert tab.run("document.getElementById('values').innerText").startswith("users: 1600")
    tab.press("ArrowLeft", 37)
    assert not tab.run("document.getElementById('values').innerText").startswith("users: 1600")
    tab.press("Escape", 27)
    assert tab.run("document.getElementById('values').hidden")
    tab.press("Tab", 9)
    assert tab.run("document.activeElement.className").startswith("key")
    tab.press("Space", 32)
    assert tab.run("document.activeElement.getAttribute('aria-pressed')") == "false"


def test_the_button_turns_the_light_off_and_on(tab):
    paper = "getComputedStyle(document.body).backgroundColor"
    light = tab.run(paper)
    tab.click("#theme")
    assert tab.run(paper) != light
    tab.click("#theme")
    assert tab.run(paper) == light


def test_it_prints_light_without_buttons_to_press(browser, report, tmp_path):
    tab = browser.open(report.as_uri(), dark=True)
    tab.ask("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert tab.run("getComputedStyle(document.getElementById('theme')).display") == "none"
    assert tab.paper(tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    tab.close()


def test_a_name_that_is_markup_stays_text_in_the_browser(browser, tmp_path):
    """Whatever a results folder is called or holds, only our own script runs."""
    from discreet.pages import report as pages
    from discreet.runs.experiment import Experiment, run

    nasty = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>"
    row = run(Experiment("ucbvi", states=3, horizon=3, episodes=50), 0)
    row = type(row)(**{**vars(row), "settings": {**row.settings, "algorithm": nasty, "env": nasty}})
    made = tmp_path / "nasty.html"
    made.write_text(pages.page([row], nasty, {row.id: nasty}, {"command": nasty}), "utf-8")
    tab = browser.open(made.as_uri())
    assert tab.run("document.title") == f"Results in {nasty}"
    assert tab.run("document.querySelectorAll('img').length") == 0
    assert tab.run("document.querySelector('g.series').dataset.series").startswith(nasty)
    assert tab.complaints() == []
    tab.close()
