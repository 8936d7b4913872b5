"""What strangers typed for their first results is typed again, in empty folders, and shows what the page shows."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from discreet import Policy
from walked_pages import ROOT, walk

PAGE = (ROOT / "docs" / "walkthroughs.md").read_text()
SECTIONS = {text.split("\n", 1)[0]: text for text in re.split(r"^## ", PAGE, flags=re.M)[1:]}


def test_there_are_four():
    assert len(SECTIONS) == 4


@pytest.mark.parametrize("title", SECTIONS)
def test_a_stranger_gets_what_the_page_shows(title, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert walk(SECTIONS[title], tmp_path)
    for made in re.findall(r"^(?:learning curves are|the report is) in (\S+)$", SECTIONS[title], re.M):
        assert (tmp_path / made).is_file(), made
    if "analyst" in title:
        assert len(json.loads(Path("policy", "certificate.json").read_text())["comparisons"]) == 1
        assert "renal ward" in Path("policy", "certificate.html").read_text()
        answer = Policy.load("policy/").act({"Kreatinin (mg/dl)": 5.0, "Station": "Intensiv"}, step=0)
        assert answer in ("keine", "Diuretikum", "Dialyse", "as now")
    if "app" in title:
        assert len(list(csv.DictReader(Path("certificate", "policy.csv").read_text().splitlines()))) == 5 * 4
        assert len(Path("certificate", "log.jsonl").read_text().splitlines()) > 10
