"""Seeded results of every learner in the catalog stay what they were: a move of code must not move a number.

`python tests/golden/test_seeded.py` writes the file anew; a change that is meant to move numbers says which and why.
Numbers are kept to eight digits, because the last ones depend on the processor.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import discreet
from discreet.catalog import ALGORITHMS, MODES
from discreet.privacy.accounting import Budget

FILE = Path(__file__).with_name("seeded") / "results.json"
SEED, DIGITS = 11, 8
SIZES = {"states": 3, "horizon": 4, "episodes": 400}
#: The states as a column.
DECLARED = discreet.Declaration.from_options(["state:0..3/edges:1,2"], 2, 4)
TINY = {"env": "nonstationary-dirichlet", "states": 2, "horizon": 2, "episodes": 600}  # policies are listed there
#: Divides losses by how likely they were to be seen and takes logarithms, after every user: the last digit of a
#: logarithm grows tenfold in about 20 users. It reaches the 13th digit after 100, and after 400 none is left.
BRIEF = {"uob-reps": {"episodes": 100}}


def online_cases() -> dict[str, dict]:
    """Name → settings, for every learner, model and form that exists."""
    found = {}
    for name, entry in ALGORITHMS.items():
        if entry.runner == "offline":
            continue
        for model in entry.models:
            for mode in MODES if "mode" in entry.options else ("practical",):
                for pooled in (False, True):
                    settings = {"algorithm": name, "mode": mode, **(TINY if entry.staged else SIZES)}
                    settings |= BRIEF.get(name, {})
                    if entry.private:
                        settings |= {"epsilon": 3.0, "model": model}
                    if model == "shuffle" and entry.private:
                        settings["delta"] = 1e-6
                    if pooled and (entry.staged or entry.runner == "adversarial"):
                        continue
                    if pooled:
                        allowed = (
                            {"allow_pooled": True} if mode == "paper" and "allow_pooled" in entry.options else {}
                        )
                        settings |= {"pooled": True, **allowed}
                    label = f"{name} {model if entry.private else 'none'} {mode} {'pooled' if pooled else 'staged'}"
                    found[label] = settings
                    if mode == "paper" and entry.private:  # printed penalties drown everything; scaled ones do not
                        found[f"{label} scaled"] = settings | {"confidence_scale": 0.001}
    for schedule in ("every", "epochs"):
        found[f"dp-ucbvi gaussian {schedule}"] = {
            "algorithm": "dp-ucbvi", "epsilon": 3.0, "delta": 1e-6, "schedule": schedule, **SIZES,
        }  # fmt: skip
    found["dp-ucbvi local laplace"] = {
        "algorithm": "dp-ucbvi", "epsilon": 3.0, "model": "local", "local_reports": "laplace", **SIZES,
    }  # fmt: skip
    found["dp-ucbvi zero-out"] = {"algorithm": "dp-ucbvi", "epsilon": 3.0, "neighbours": "zero-out", **SIZES}
    found["spotlight all declared"] = {
        "algorithm": "spotlight", "epsilon": 3.0, "known_successors": True, "known_zero_rewards": True, **SIZES,
    }  # fmt: skip
    found["private-uc-o-reps gaussian public losses"] = {
        "algorithm": "private-uc-o-reps", "epsilon": 3.0, "delta": 1e-6, "losses": "public", **SIZES,
    }  # fmt: skip
    return found


def offline_cases() -> dict[str, tuple]:
    """Name → (budget, options of the log, options of the fit)."""
    pure, zcdp = Budget.pure(3.0), Budget.zcdp(1.0)
    features = np.eye(6).reshape(3, 2, 6)
    return {
        "one-hot staged": (pure, {}, {"algorithm": "one-hot"}),
        "one-hot gaussian": (zcdp, {}, {"algorithm": "one-hot"}),
        "one-hot tilted": (Budget.pure(2.0), {}, {"algorithm": "one-hot"}),
        "dp-apvi practical": (pure, {}, {"algorithm": "dp-apvi"}),
        "dp-apvi paper": (pure, {}, {"algorithm": "dp-apvi", "mode": "paper"}),
        "dp-pevi": (zcdp, {}, {"algorithm": "dp-pevi", "features": features}),
        "dp-vapvi": (zcdp, {}, {"algorithm": "dp-vapvi", "features": features}),
        "dp-vapvi paper split": (
            zcdp, {}, {"algorithm": "dp-vapvi", "features": features, "mode": "paper", "split": True},
        ),
        "columns": (Budget.pure(20.0), DECLARED, {"algorithm": "columns"}),
        "columns gaussian": (zcdp, DECLARED, {"algorithm": "columns"}),
        "columns safe": (pure, DECLARED, {"algorithm": "columns", "safe": True}),
        "pevi": (None, {}, {"algorithm": "pevi", "features": features}),
        "vapvi": (None, {}, {"algorithm": "vapvi", "features": features}),
    }  # fmt: skip


def rounded(values: object) -> list[str]:
    return [f"{value:.{DIGITS}g}" for value in np.asarray(values, dtype=np.float64).ravel().tolist()]


def digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def online(settings: dict) -> dict[str, str]:
    result = discreet.run(discreet.Experiment(**settings), seed=SEED)
    return {
        "regret": rounded(result.regret[-1])[0],
        "digest": digest(rounded(result.regret), rounded(result.final_value), int(result.switches)),
    }


def logged() -> dict[str, np.ndarray]:
    """500 episodes under the uniform policy, successors included."""
    rng = np.random.default_rng(SEED)
    K, H = 500, 4
    states = rng.integers(0, 3, (K, H + 1))
    actions = rng.integers(0, 2, (K, H))
    rewards = (rng.random((K, H)) < 0.3 + 0.5 * (states[:, :-1] == 2) * actions).astype(float)
    return {
        "user": np.repeat(np.arange(K), H),
        "step": np.tile(np.arange(H), K),
        "state": states[:, :-1].ravel(),
        "action": actions.ravel(),
        "reward": rewards.ravel(),
        "next_state": states[:, 1:].ravel(),
    }


def offline(case: tuple) -> dict[str, str]:
    budget, log_options, options = case
    log = log_options if log_options is DECLARED else discreet.LogFormat(3, 2, 4, **log_options)
    fitted = discreet.fit(logged(), log, budget, seed=SEED, **options)
    policy = fitted.policy
    return {
        "value": rounded(policy.values[0].mean())[0],
        "digest": digest(policy.actions.tolist(), policy.known.tolist(), rounded(policy.values)),
    }


def recorded() -> dict[str, dict[str, str]]:
    return {name: online(settings) for name, settings in online_cases().items()} | {
        f"fit {name}": offline(case) for name, case in offline_cases().items()
    }


STORED = json.loads(FILE.read_text()) if FILE.exists() else {}


def test_every_learner_of_the_catalog_is_recorded():
    expected = {*online_cases(), *(f"fit {name}" for name in offline_cases())}
    assert set(STORED) == expected
    learners = {name.split()[0] for name in online_cases()} | {
        case[2]["algorithm"] for case in offline_cases().values()
    }
    assert learners | {"apvi"} == set(ALGORITHMS)


@pytest.mark.parametrize("name", sorted(online_cases()))
def test_seeded_runs_repeat(name):
    assert online(online_cases()[name]) == STORED[name]


@pytest.mark.parametrize("name", sorted(offline_cases()))
def test_seeded_fits_repeat(name):
    assert offline(offline_cases()[name]) == STORED[f"fit {name}"]


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(recorded(), indent=1, sort_keys=True) + "\n")
    sys.stderr.write(f"wrote {FILE.name}\n")
