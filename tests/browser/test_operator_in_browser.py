"""The operator's page in a browser: light, dark, on a phone and on paper, and nothing loaded from elsewhere."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import discreet
from discreet.live import overview
from discreet.live.charter import Charter
from discreet.live.deployment import counted, recovered
from discreet.live.people import simulated_log
from discreet.privacy.noise import NoiseSource


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A deployment in its middle, with an epoch that is half full."""
    states = ["the left bank", *(f"{i} strokes out" for i in range(1, 5)), "the right bank"]
    problem = {"states": states, "actions": ["drift", "swim"], "horizon": 20, "pooled": True, "start": 0}
    told = {"name": "river", "problem": problem, "privacy": {"epsilon": 1.0, "users": 1200}}
    world, key = discreet.make("riverswim", 6, 20), Ed25519PrivateKey.generate()
    log = simulated_log(Charter.from_document(told), world, NoiseSource.seeded(0), key)
    number = [i for i, entry in enumerate(log) if entry.event["event"] == "announced"][-3]
    entries = log[: number + 1]
    state = recovered(entries, {})
    state = counted(state, {state.open[0].epoch: (state.open[0].size // 2, 0)})
    served = overview.Service(now=1_800_000_000_000, since=1_799_999_000_000, spectators=12, latency=(0.8, 4.1))
    path = tmp_path_factory.mktemp("operator") / "page.html"
    path.write_text(overview.page(state, entries, served), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (390, False), (390, True)])
def test_it_fits_every_screen_and_asks_nobody(browser, page, width, dark):
    tab = browser.open(page, width, dark=dark)
    assert tab.run("document.documentElement.scrollWidth") <= width
    white = tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert white != dark
    assert tab.complaints() == []
    assert tab.requests() == [page]
    # Words on the plan can be read on their colours (WCAG AA: 4.5).
    assert tab.run(CONTRAST) >= 4.5
    tab.close()


#: The least contrast of a field of the plan, composed by the browser itself.
CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const light = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(c => c / 255)
      .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  return Math.min(...[...document.querySelectorAll('.plan td[class]')].map(cell => {
    const look = getComputedStyle(cell), two = [light(look.color), light(look.backgroundColor)].sort((a, b) => b - a);
    return (two[0] + .05) / (two[1] + .05);
  }));
})()"""


def test_what_an_operator_looks_for_is_there(browser, page):
    tab = browser.open(page)
    text = tab.run("document.querySelector('main').innerText")
    for fact in ("joint DP, ε = 1 per user, replace-one", "tickets out", "of 1,200", "16 minutes ago", "0.8 ms"):
        assert fact in text
    bars = tab.run("[...document.querySelectorAll('.bar')].map(b => b.firstChild.offsetWidth / b.clientWidth)")
    assert [round(share, 1) for share in bars] == [0.5]
    rows = tab.run("document.querySelectorAll('.plan tbody tr').length")
    assert rows == 6
    assert "swim" in tab.run("document.querySelector('.plan tbody tr:last-child td').innerText")
    tab.close()


def test_cells_can_be_sorted_by_what_is_known(browser, page):
    tab = browser.open(page)
    table = "document.querySelector('section[aria-labelledby=cells] table')"
    column = f"[...{table}.querySelectorAll('thead button')].findIndex(b => b.innerText.startsWith('reports'))"
    tab.run(f"{table}.querySelectorAll('thead button')[{column}].click()")
    values = f"[...{table}.querySelectorAll('tbody tr')].map(r => +r.cells[{column}].dataset.value)"
    found = tab.run(values)
    assert len(found) == 12
    assert found in (sorted(found), sorted(found, reverse=True))
    tab.close()


def test_it_prints_white(browser, page, tmp_path):
    tab = browser.open(page, dark=True)
    tab.ask("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.paper(tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    tab.close()
