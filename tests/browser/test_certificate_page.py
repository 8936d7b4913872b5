"""The certificate shares the look of the other pages: light, dark, on a phone and on paper."""

from __future__ import annotations

import pytest

from discreet.cli import demonstrating


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificate") / "policy"
    demonstrating.fit(5000, folder, folder.parent / "log.parquet")
    return (folder / "certificate.html").as_uri()


@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (390, False), (390, True)])
def test_a_board_can_read_it_anywhere(browser, page, width, dark):
    tab = browser.open(page, width, dark=dark)
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run("document.scripts.length") == 0
    white = tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert white != dark
    # What the policy does is dark on a light colour, whatever is around it.
    assert tab.run("getComputedStyle(document.querySelector('.policy td')).color") == "rgb(27, 27, 27)"
    tab.ask("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.complaints() == []
    assert tab.requests() == [page]
    tab.close()
