"""`discreet doctor` finds sound what is sound, and says in one sentence what is wrong with what is not."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from discreet.cli import app, doctoring
from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource

GOLDEN = Path(__file__).parents[1] / "golden" / "seeded" / "results.json"


def asked(*arguments: str, code: int = 0):
    done = CliRunner().invoke(app, ["doctor", *arguments])
    assert done.exit_code == code, done.output
    return done.stdout


def test_a_sound_installation_is_found_sound():
    found = json.loads(asked("--json"))
    assert found["fine"] is True
    assert [each["what"] for each in found["findings"]] == list(doctoring.CHECKS)
    assert asked().splitlines()[-1] == "all is well"


def test_the_known_run_is_among_the_seeded_results():
    assert json.loads(GOLDEN.read_text())["dp-ucbvi joint practical pooled"]["digest"] == doctoring.KNOWN


def wrong(what: str, words: str) -> None:
    lines = asked(code=1).splitlines()
    (line,) = [line for line in lines if line.startswith(f"{what} ")]
    assert "WRONG: " in line
    assert words in line
    assert f" are wrong: {what}" in lines[-1]


@pytest.mark.parametrize(("law", "name"), [("laplace", "Laplace"), ("gaussian", "Gaussian")])
def test_noise_three_percent_too_small_is_found(monkeypatch, law, name):
    drawn = getattr(NoiseSource, law)
    monkeypatch.setattr(NoiseSource, law, lambda self, scale, shape: drawn(self, 0.97 * scale, shape))
    wrong("noise", f"{name} values do not follow their law")


def test_noise_without_zeros_is_found(monkeypatch):
    drawn = NoiseSource.laplace
    monkeypatch.setattr(NoiseSource, "laplace", lambda self, *a: (x := drawn(self, *a)) + (x == 0))
    wrong("noise", "release nothing from here")


def test_the_chi_square_is_uniform_under_the_law():
    """So that a sound installation is called wrong once in a million times: a third lies below a third."""
    source, laws = NoiseSource.seeded(3), (DiscreteLaplace(7.0), DiscreteGaussian(7.0))
    for law, draw in zip(laws, (source.laplace, source.gaussian), strict=True):
        found = np.array([doctoring.p_value(draw(7.0, 20_000), law.pmf) for _ in range(300)])
        assert abs(np.mean(found < 1 / 3) - 1 / 3) < 4 * np.sqrt(2 / 9 / 300)
        assert found.min() > 1e-5


def test_another_number_is_found(monkeypatch):
    monkeypatch.setattr(doctoring, "SEED", 12)
    wrong("run", "cannot be compared with published ones")


def test_an_old_and_an_absent_package_are_found(monkeypatch):
    real = doctoring.installed
    for version, words in (("1.26.4", "numpy is 1.26.4, and >=2.0 is needed"), (None, "numpy is not installed")):
        monkeypatch.setattr(doctoring, "installed", lambda name, v=version: v if name == "numpy" else real(name))
        wrong("dependencies", words)


def test_a_cache_that_cannot_be_written_is_found(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    wrong("compiler", "set NUMBA_CACHE_DIR")


def test_little_memory_is_found(monkeypatch):
    monkeypatch.setattr("discreet.runs.memory.available", lambda: 2.0**29)
    wrong("memory", "0.5 GiB are free")


def test_every_extra_is_known_and_the_absent_ones_say_how(monkeypatch):
    extras = set(metadata.metadata("discreet").get_all("Provides-Extra") or ())
    assert set(doctoring.EXTRAS) <= extras
    monkeypatch.setattr(doctoring, "installed", lambda name: None)
    assert "pip install 'discreet[live]'" in doctoring.CHECKS["extras"]()


@pytest.mark.parametrize(
    ("version", "bounds", "fine"),
    [("2.0", ">=2.0", True), ("1.9", ">=1.10", False), ("1.26.4", ">=2.0", False), ("3.12.1rc1", ">=3.11", True),
     ("1.14", "<4,>=1.13", True), ("none", "", False)],
)  # fmt: skip
def test_versions_are_compared_as_numbers(version, bounds, fine):
    assert doctoring.examined("x", lambda: doctoring.at_least("x", version, bounds) or "").fine is fine
