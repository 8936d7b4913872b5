"""The printed noise of DP-VAPVI: the scales of its Algorithm 2, and what they truly cost beside what is claimed."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import discreet
from discreet.cli import app
from discreet.offline.claims import problems_of
from discreet.privacy.accounting import Budget, epsilon_of
from discreet.privacy.trust.linear import LinearMoments, printed_bounds, printed_noise
from oracles_offline import as_csv, random_log

H, S, A = 4, 2, 2
ONE = Budget.zcdp(1.0)
FEATURES = np.eye(S * A).reshape(S, A, S * A)
LOG = random_log(S, A, H, 300)


def fitted(budget: Budget = ONE, **more) -> discreet.Fitted:
    log = discreet.LogFormat(S, A, H, episodes_per_user=more.pop("episodes_per_user", 1))
    said = {"algorithm": "dp-vapvi", "features": FEATURES, "seed": 0, "noise": "printed", "anyway": True} | more
    return discreet.fit(LOG, log, budget, **said)


def pair_cost(rho: float, horizon: int, part: str, step: int, split: int, rng: np.random.Generator) -> float:
    """What replacing one row costs, by the noise that is added: ‖ΔM‖²_F/(4s²) + Σ‖Δv‖²/(2σ²)."""
    s, sigmas = printed_noise(rho, horizon, part)
    bounds = printed_bounds(horizon, part, step)
    one, two = rng.standard_normal((2, 5))
    one, two = one / np.linalg.norm(one), two / np.linalg.norm(two)
    if split:
        two = one * 0.3 + two * math.sqrt(1 - 0.09)
        two /= np.linalg.norm(two)
    signs = (1.0, -1.0) if rng.random() < 0.5 else (1.0, 1.0)
    moved = np.linalg.norm(np.outer(one, one) - np.outer(two, two)) ** 2 / (4 * s**2)
    for bound, sigma in zip(bounds, sigmas, strict=True):
        moved += np.linalg.norm(signs[0] * bound * one - signs[1] * bound * two) ** 2 / (2 * sigma**2)
    return float(moved)


def test_the_printed_scales():
    """ρ₀ = ρ/(5H): 1/(4ρ₀) off the diagonal, 2H⁴/ρ₀ for V², 2H²/ρ₀ for V and r + V."""
    rho0 = 1.5 / (5 * H)
    s, (squares, means) = printed_noise(1.5, H, "variances")
    assert (s**2, squares**2, means**2) == pytest.approx((1 / (4 * rho0), 2 * H**4 / rho0, 2 * H**2 / rho0))
    assert printed_noise(1.5, H, "values") == (pytest.approx(s), (pytest.approx(means),))


@pytest.mark.parametrize("horizon", [1, 2, 5, 20])
def test_f5_printed_regressions_cost_less_than_they_claim(horizon):
    """Although a matrix costs 2ρ₀ and not ρ₀: unsplit at most 0.903ρ, split at most 0.51ρ."""
    for split, most in ((False, 0.93), (True, 0.6)):
        private = LinearMoments(Budget.zcdp(1.0), "replace", True, split, calibration="paper")
        true = private.true_budget(horizon).rho
        assert 0.2 < true < most
        half = LinearMoments(Budget.zcdp(1.0), "zero-out", True, split, calibration="paper").true_budget(horizon).rho
        assert half == pytest.approx(true / 2, rel=0.02)


@pytest.mark.parametrize("part", ["values", "variances"])
def test_no_pair_of_rows_costs_more_than_is_stated(part):
    rng = np.random.default_rng(0)
    stated = LinearMoments(Budget.zcdp(1.0), "replace", True, calibration="paper").printed_costs(H, part)
    for step, cost in enumerate(stated):
        found = [pair_cost(1.0, H, part, step, i % 2, rng) for i in range(2000)]
        assert max(found) <= cost * (1 + 1e-9)
        assert max(found) > 0.9 * cost


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("mode", ["practical", "paper"])
@pytest.mark.parametrize("budget", [Budget.zcdp(1.0), Budget.approximate(2.0, 1e-6), Budget.zcdp(0.5, 1e-5)])
def test_a_printed_fit_states_its_true_guarantee_and_its_claim_and_verifies(split, mode, budget):
    fit = fitted(budget, split=split, mode=mode)
    found = json.loads(json.dumps(fit.certificate))
    guarantee, claimed = found["guarantee"], budget.total("gaussian")
    true = LinearMoments(budget, "replace", True, split, calibration="paper").true_budget(H).rho
    assert guarantee["rho"] == pytest.approx(true, rel=1e-9)
    assert guarantee["rho"] < 0.95 * claimed
    assert guarantee.get("claimed_rho") == budget.rho
    assert guarantee.get("claimed_epsilon") == budget.epsilon
    assert "claimed in print" in guarantee["sentence"]
    if budget.delta:
        assert guarantee["epsilon"] == pytest.approx(epsilon_of(true, budget.delta), rel=1e-9)
    assert found["algorithm"]["noise"] == "printed"
    s, _ = printed_noise(claimed, H, "values")
    assert {line["matrix_deviation"] for line in found["regressions"]} == {s}
    assert problems_of(found | {"digests": {}}, fit.policy) == []


def test_a_forged_claim_or_noise_is_found():
    fit = fitted()
    found = json.loads(json.dumps(fit.certificate)) | {"digests": {}}

    def forged(base: dict = found, **sections) -> list[str]:
        changed = json.loads(json.dumps(base))
        for section, values in sections.items():
            target = changed[section][0] if isinstance(changed[section], list) else changed[section]
            target.update(values)
        try:
            return problems_of(changed, fit.policy)
        except ValueError as error:
            return [str(error)]

    assert forged(guarantee={"claimed_rho": 2.0})
    assert forged(regressions={"matrix_deviation": 0.1})
    assert forged(regressions={"clipped_at": [100.0]})
    assert forged(algorithm={"noise": "none"})
    plain = json.loads(json.dumps(fitted(noise="true").certificate)) | {"digests": {}}
    assert forged(plain, algorithm={"noise": "printed"})


def test_several_episodes_cost_their_square():
    one, two = (fitted(episodes_per_user=m).certificate["guarantee"]["rho"] for m in (1, 2))
    assert two == pytest.approx(4 * one)


def test_noise_does_not_move_the_constants_of_a_fit():
    true, printed = (fitted(noise=noise).certificate["algorithm"] for noise in ("true", "printed"))
    assert true == {key: value for key, value in printed.items() if key != "noise"}


def test_the_ledger_beside_a_log_records_what_is_truly_spent(tmp_path):
    path, out = tmp_path / "log.csv", tmp_path / "policy"
    path.write_text(as_csv(LOG))
    np.save(tmp_path / "phi.npy", FEATURES)
    said = (
        f"fit {path} --states 2 --actions 2 --horizon 4 --algorithm dp-vapvi --rho 1 --noise printed --anyway "
        f"--features {tmp_path / 'phi.npy'} --seed 0 --out {out}"
    )
    result = CliRunner().invoke(app, said.split())
    assert result.exit_code == 0, result.output
    found = json.loads((out / "certificate.json").read_text())
    assert found["spending"]["total_rho_with_this_release"] == pytest.approx(found["guarantee"]["rho"])
    verdict = CliRunner().invoke(app, ["verify", str(out), "--allow-simulation"])
    assert verdict.exit_code == 0, verdict.output


def test_printed_noise_without_printed_regressions_is_refused():
    with pytest.raises(ValueError, match="values and variances"):
        LinearMoments(Budget.zcdp(1.0), calibration="paper")
    with pytest.raises(ValueError, match="no paper at hand prints a scale for the noise of dp-pevi"):
        fitted(algorithm="dp-pevi")
