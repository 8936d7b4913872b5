"""What a release says of itself: one version, a citation, a changelog, what is public and for how long."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from setuptools.config.pyprojecttoml import read_configuration
from typer.testing import CliRunner

import discreet
import discreet.client
import discreet.results
from discreet import provenance
from discreet.cli import app
from discreet.live import certificate as deployments
from discreet.offline import certificate, spending
from discreet.runs import results

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
STABILITY = (ROOT / "docs" / "stability.md").read_text()


def citation() -> dict[str, str]:
    """The simple values of CITATION.cff: `key: value` at the beginning of a line."""
    return dict(re.findall(r"^([a-z-]+):[ \n]+(\S.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))


def test_packaging_and_the_program_read_the_one_version():
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    assert read_configuration(ROOT / "pyproject.toml")["project"]["version"] == discreet.__version__
    assert CliRunner().invoke(app, ["--version"]).stdout == f"discreet {discreet.__version__}\n"
    assert provenance.facts()["version"] == discreet.__version__


def test_no_module_says_the_version_a_second_time():
    literal = re.compile(rf"""["']{re.escape(discreet.__version__)}["']""")
    said = [path for path in ROOT.glob("src/**/*.py") if literal.search(path.read_text())]
    assert said == [Path(discreet.__file__)]


def test_the_changelog_has_the_version_and_the_newest_comes_first():
    found = re.findall(r"^## \[(\d+)\.(\d+)\.(\d+)\] ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    versions = [tuple(map(int, each)) for each in found]
    assert versions == sorted(set(versions), reverse=True)
    assert ".".join(map(str, versions[0])) == discreet.__version__


def test_the_citation_has_what_its_schema_asks_for():
    """Required by the Citation File Format 1.2.0: cff-version, message, title, authors; each author has a name."""
    told = citation()
    assert told["cff-version"] == "1.2.0"
    assert told["type"] == "software"
    assert {"message", "title", "authors", "abstract"} <= told.keys()
    assert (told["authors"], told["version"]) == ("- name: The discreet authors", discreet.__version__)
    assert told["license"] == PROJECT["license"]
    assert all(word in (ROOT / "CITATION.cff").read_text() for word in PROJECT["keywords"])


def test_what_is_public_is_listed_and_nothing_else():
    """Whoever adds or removes a public name says so on the page (and in the changelog)."""
    table = "\n".join(re.findall(r"^\| [a-z ]+ \| ((?:`\w+` ?)+)\|$", STABILITY, re.MULTILINE))
    assert sorted(re.findall(r"`(\w+)`", table)) == discreet.__all__


@pytest.mark.parametrize("module", [discreet.results, discreet.client])
def test_the_public_modules_are_listed_with_their_names(module):
    (names,) = re.findall(rf"`{re.escape(module.__name__)}` \((.*?)\)", STABILITY)
    assert sorted(re.findall(r"`(\w+)`", names)) == sorted(module.__all__)


@pytest.mark.parametrize("name", discreet.__all__)
def test_every_public_name_has_a_docstring(name):
    told = getattr(discreet, name).__doc__ or ""
    assert told.strip()
    assert not told.startswith(f"{name}(")  # what a dataclass writes where nobody has


def test_the_formats_of_the_page_are_those_that_are_written():
    told = re.findall(r"^\| [^|]+ \| (?:layout )?`([^`]+)` \|", STABILITY, re.MULTILINE)
    layout = results.LAYOUT.decode()
    assert told == [certificate.FORMAT, deployments.FORMAT, spending.FORMAT, layout, "v1"]
    assert (ROOT / "src/discreet/runs/suite/v1.csv").is_file()


def test_every_extra_is_explained():
    page = (ROOT / "docs" / "installing.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(PROJECT["optional-dependencies"])
