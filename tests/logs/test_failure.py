"""One failure probability of a fit: in what is taken off and in the widths of noise, divided as in the paper."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import discreet
from discreet.agents.apvi import APVI
from discreet.agents.vapvi import VAPVI
from discreet.cli import app
from discreet.offline.claims import problems_of
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.one_shot import OneShot
from discreet.privacy.tails import symmetric_matrix_width
from discreet.privacy.trust.linear import LinearMoments
from oracles_offline import as_csv, random_log

H, S, A = 3, 2, 2
FEATURES = np.eye(S * A).reshape(S, A, S * A)
LOG = random_log(S, A, H, 200)


def fitted(name: str, **options) -> discreet.Fitted:
    linear = {"features": FEATURES} if "pevi" in name or "vapvi" in name else {}
    budget = Budget.zcdp(1.0) if name.startswith("dp") else None
    return discreet.fit(LOG, discreet.LogFormat(S, A, H), budget, algorithm=name, seed=0, **linear, **options)


@pytest.fixture
def seen(monkeypatch):
    """The failure probabilities that reach agents and privatizers."""
    found = {}
    for kind in (APVI, VAPVI, LinearMoments):
        before = kind.__post_init__

        def after(self, before=before, kind=kind):
            before(self)
            found[kind.__name__] = self.beta

        monkeypatch.setattr(kind, "__post_init__", after)
    restated = OneShot(Budget.pure(1.0)).open(CountSpec(1, 1, 1, False), 1, NoiseSource.seeded(0)).restated.__func__
    from discreet.privacy.sums.streams import CountStream

    monkeypatch.setattr(CountStream, "restated", lambda self, beta: found.update(widths=beta) or restated(self, beta))
    return found


@pytest.mark.parametrize(
    ("options", "beta", "widths"),
    [
        ({}, 0.1, 0.01),
        ({"beta": 0.03}, 0.03, 0.03),
        ({"mode": "paper"}, 0.1, 0.1),
        ({"mode": "paper", "beta": 0.03}, 0.03, 0.03),
    ],
)
def test_r8_counts_of_a_log_have_one_failure_probability(seen, options, beta, widths):
    fitted("dp-apvi", **options)
    assert (seen["APVI"], seen["widths"]) == (beta, widths)


@pytest.mark.parametrize(("name", "statistics"), [("dp-vapvi", 5 * H), ("dp-pevi", 2 * H)])
def test_r8_regressions_take_a_union_over_all_noisy_statistics(seen, name, statistics):
    fitted(name)
    assert (seen["VAPVI"], seen["LinearMoments"]) == (0.1, 0.01)  # our own constants: as before
    fitted(name, mode="paper")
    assert (seen["VAPVI"], seen["LinearMoments"]) == (0.1, pytest.approx(0.1 / statistics))
    fitted(name, mode="paper", beta=0.02)
    assert (seen["VAPVI"], seen["LinearMoments"]) == (0.02, pytest.approx(0.02 / statistics))


def test_r8_the_union_covers_the_39_matrices_of_the_figure():
    """H = 20: all 39 matrices within their widths with 1 − β, which single widths at 0.01 do not give."""
    H, d, trials = 20, 10, 2000
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((trials * 39, d, d))
    norms = np.abs(np.linalg.eigvalsh((noise + noise.transpose(0, 2, 1)) / math.sqrt(2.0))).max(axis=1)
    worst = norms.reshape(trials, 39).max(axis=1)
    each = 0.1 / (5 * H)
    assert 39 * each <= 0.1 < 39 * 0.01
    assert (worst > symmetric_matrix_width(1.0, d, each)).mean() <= 0.1
    assert symmetric_matrix_width(1.0, d, each) > symmetric_matrix_width(1.0, d, 0.01)


def test_r8_the_lower_value_keeps_its_own_failure_probability():
    """The same policy, valued with the same widths, although other ones were relied on when it was planned."""
    plain, said = (fitted("dp-apvi", confidence_scale=0.0, **more) for more in ({}, {"beta": 0.0101}))
    assert np.array_equal(plain.policy.actions, said.policy.actions)
    assert plain.certificate["estimate"]["value_lower"] == said.certificate["estimate"]["value_lower"]
    assert said.certificate["estimate"]["failure_probability_of_the_lower_value"] == 0.05


def test_r8_restated_widths_move_and_numbers_do_not():
    stream = OneShot(Budget.pure(1.0)).open(CountSpec(2, 2, 2, False), 9, NoiseSource.seeded(0))
    stream.add(Episodes([[0, 1, 0]], [[1, 0]], [[1.0, 0.0]]))
    release, wider = stream.release(), stream.restated(1e-6)
    assert np.array_equal(release.visits, wider.visits)
    assert float(np.max(wider.widths.visits)) > float(np.max(release.widths.visits))
    assert (release.beta, wider.beta) == (0.01, 1e-6)
    assert stream.restated(0.01) is release


@pytest.mark.parametrize("name", ["dp-apvi", "apvi", "dp-pevi", "pevi", "dp-vapvi"])
def test_r8_a_certificate_names_the_failure_probability_that_was_said(name):
    said = fitted(name, beta=0.03)
    assert said.certificate["algorithm"]["beta"] == 0.03
    assert "beta" not in fitted(name).certificate["algorithm"]
    written = json.loads(json.dumps(said.certificate)) | {"digests": {}}
    assert problems_of(written, said.policy) == []
    forged = written | {"algorithm": written["algorithm"] | {"beta": 2.0}}
    assert "a failure probability lies between 0 and 1" in problems_of(forged, said.policy)


@pytest.mark.parametrize(
    ("name", "beta", "words"),
    [
        ("dp-apvi", 0.0, "strictly between 0 and 1"),
        ("dp-apvi", math.nan, "strictly between 0 and 1"),
        ("vapvi", 0.1, "vapvi has no failure probability to choose"),
    ],
)
def test_r8_failure_probabilities_without_a_use_are_refused(name, beta, words):
    with pytest.raises(ValueError, match=words):
        fitted(name, beta=beta)
    with pytest.raises(ValueError, match="one-hot has no failure probability"):
        discreet.fit(LOG, discreet.LogFormat(S, A, H), Budget.pure(1.0), algorithm="one-hot", beta=0.1)


def test_r8_fit_takes_beta_on_the_command_line(tmp_path):
    path, out = tmp_path / "log.csv", tmp_path / "policy"
    path.write_text(as_csv(LOG))
    said = f"fit {path} --states 2 --actions 2 --horizon 3 --algorithm dp-apvi --epsilon 1 --constants paper --anyway"
    result = CliRunner().invoke(app, [*said.split(), "--beta", "0.02", "--seed", "0", "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads((out / "certificate.json").read_text())["algorithm"]["beta"] == 0.02
