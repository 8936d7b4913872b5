"""ICU-Sepsis with columns instead of conditions: what a hospital learns that has measurements, not 716 states.

    python benchmarks/results_icu_columns.py [--seeds 2] [--patients 10000 100000]

Prints the table of docs/icu-sepsis.md. The log has the SOFA score of a patient's condition, two of the 47 normalised
measurements that the package publishes without names, the treatment, its probability among clinicians, and 1 in the
last row of a survivor. The policy's exact probability to survive: where it says "as now", clinicians act.
"""

from __future__ import annotations

import argparse
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from discreet import Budget, Declaration, Policy, fit
from discreet.envs import icu
from discreet.envs.registry import make, spec
from discreet.mdp import Floats
from discreet.offline.comparison import compare
from discreet.people.episodes import MDPSimulator
from discreet.planning import policy_value

DECLARED = """
horizon = 20
actions = 25
propensity = "p_action"
reward_range = [0, 1]

[[state]]
name = "sofa"
range = [0, 24]
edges = [2, 4, 6, 8, 10, 12]

[[state]]
name = "m30"
range = [-1, 11]

[[state]]
name = "m9"
range = [-2, 4]
"""
MEASUREMENTS = {"m30": 30, "m9": 9}
ROLLOUT = 0.25


def columns() -> dict[str, Floats]:
    """(S,) of every column."""
    found = find_spec("icu_sepsis")
    assert found is not None
    assert found.origin is not None
    with np.load(Path(found.origin).parent / "envs" / "assets" / "dynamics.npz") as stored:
        centres, sofa = np.array(stored["state_cluster_centers"]), np.array(stored["sofa_scores"])
    return {"sofa": sofa, **{name: centres[:, i] for name, i in MEASUREMENTS.items()}}


def log(seed: int, patients: int, first: int = 0) -> pa.Table:
    mdp = make("icu-sepsis")
    behaviour = np.ascontiguousarray(spec("icu-sepsis").behaviour(mdp))
    played = MDPSimulator(mdp, spec("icu-sepsis").law(mdp), seed).rollout(behaviour, patients)
    who, step = np.nonzero(played.states[:, :-1] < icu.DEAD)
    state, action = played.states[who, step], played.actions[who, step]
    facts = {name: values[state] for name, values in columns().items()}
    chance = icu.tables().clinician[state, action]
    paid = (played.states[who, step + 1] == icu.SURVIVED).astype(np.float64)
    ended = played.states[who, step + 1] >= icu.DEAD
    rows = {"user": who + first, "step": step, **facts, "action": action, "p_action": chance, "reward": paid}
    return pa.table({**rows, "terminated": ended})


def survival(policy: Policy | None) -> float:
    """Exact; beyond the policy's steps it acts as at the first one."""
    mdp, clinician = make("icu-sepsis"), icu.tables().clinician
    table = np.array(np.broadcast_to(clinician, (mdp.horizon, *clinician.shape)))
    if policy is not None:
        facts = columns()
        for s in range(icu.DEAD):
            record = {name: float(values[s]) for name, values in facts.items()}
            for h in range(mdp.horizon):
                action = policy.act(record, step=h)
                if not isinstance(action, str):
                    table[h, s] = np.eye(icu.NUM_ACTIONS)[action]
    return float(policy_value(mdp, table))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--patients", type=int, nargs="+", default=[10_000, 100_000])
    given = parser.parse_args()
    declared = Declaration.from_toml(DECLARED)
    print(f"clinicians: {survival(None):.4f}")
    print("| patients | ε | chosen | survival | others said |\n|---|---|---|---|---|")
    for patients in given.patients:
        for epsilon in (1.0, 10.0):
            for seed in range(given.seeds):
                with tempfile.TemporaryDirectory() as folder:
                    for name, other in (("stays", 0), ("others", 1)):
                        rows = log(1000 * (seed + 1) + other, patients, other * 10**9)
                        pyarrow.parquet.write_table(rows, f"{folder}/{name}.parquet")
                    budget = Budget.pure(epsilon)
                    found = fit(f"{folder}/stays.parquet", declared, budget, seed=seed, anyway=True)
                    found.save(f"{folder}/policy")
                    told = "nothing to ask"
                    if found.policy.known.any():
                        where = f"{folder}/policy", f"{folder}/others.parquet"
                        told = compare(*where, budget, rollout=ROLLOUT, seed=seed).sentence
                    how = found.certificate["algorithm"]["chosen"]
                    print(
                        f"| {patients:,} | {epsilon:g} | {how} | {survival(found.policy):.4f} | {told} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
