"""ICU-Sepsis: the published model of sepsis treatment in intensive care, 713 conditions of a patient, 25 treatments.

The tables are read from the installed package `icu-sepsis` without importing it: importing would load a retired
simulator library. Nothing but the files is needed (`pip install --no-deps icu-sepsis`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from discreet.mdp import FiniteMDP, Floats, frozen
from discreet.problem import Mask

DEAD, SURVIVED, GONE = 713, 714, 715
NUM_STATES, NUM_ACTIONS = 716, 25
#: Of the best policy's value, steps beyond these are worth 10⁻⁴.
HORIZON = 100

MISSING = (
    "icu-sepsis needs the tables of the package of that name: install the extra discreet[icu], or only the "
    "tables with pip install --no-deps icu-sepsis"
)


@dataclass(frozen=True, eq=False)
class SepsisTables:
    """What is published. An inadmissible treatment acts like an admissible one drawn at random."""

    transitions: Floats  # (S, A, S)
    initial: Floats  # (S,)
    clinician: Floats  # (S, A)
    admissible: Mask  # (S, A)


def installed() -> bool:
    return find_spec("icu_sepsis") is not None


@lru_cache(maxsize=1)
def tables() -> SepsisTables:
    found = find_spec("icu_sepsis")
    if found is None or found.origin is None:
        raise ValueError(MISSING)
    folder = Path(found.origin).parent / "envs" / "assets"
    try:
        with np.load(folder / "dynamics.npz", allow_pickle=False) as stored:
            P, initial, clinician = (np.array(stored[name]) for name in ("tx_mat", "d_0", "expert_policy"))
        lines = (folder / "admissible_actions.txt").read_text(encoding="ascii").splitlines()
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"the installed icu-sepsis has other files than version 2: {error}") from None
    shapes = [array.shape for array in (P, initial, clinician)]
    if shapes != [(NUM_STATES, NUM_ACTIONS, NUM_STATES), (NUM_STATES,), (NUM_STATES, NUM_ACTIONS)]:
        raise ValueError(f"the installed icu-sepsis has tables of the shapes {shapes}; expected those of version 2")
    admissible = np.zeros((NUM_STATES, NUM_ACTIONS), dtype=np.bool_)
    for s in range(DEAD):
        admissible[s, [int(a) for a in lines[1 + s].split()]] = True
    admissible[DEAD:, 0] = True  # nobody is treated there: one name for doing nothing
    clinician[DEAD:] = np.eye(NUM_ACTIONS)[0]
    return SepsisTables(frozen(P), frozen(initial), frozen(clinician), frozen(admissible, np.bool_))


def rewards() -> Floats:
    """(S, A): 1 in the state of those who survived, which is left at once; 0 elsewhere."""
    paid = np.zeros((NUM_STATES, NUM_ACTIONS))
    paid[SURVIVED] = 1.0
    return paid


def icu_sepsis(horizon: int = HORIZON) -> FiniteMDP:
    """The value of a policy is the probability to survive within `horizon` − 1 treatments (of four hours each)."""
    published = tables()
    return FiniteMDP(published.transitions[None], rewards()[None], published.initial, horizon, "icu-sepsis")


def clinician(mdp: FiniteMDP) -> Floats:
    """(H, S, A): what clinicians did."""
    return np.broadcast_to(tables().clinician, (mdp.horizon, NUM_STATES, NUM_ACTIONS))


def successors(published: bool) -> Mask:
    """(S, A, S) that may be declared: admissible treatments lead anywhere, or only where the published model says.

    The second is no innocent declaration: which successors the publishers have seen says much about a treatment.
    """
    found = tables()
    anywhere = np.ones((NUM_STATES, NUM_ACTIONS, NUM_STATES), dtype=np.bool_)
    anywhere[:DEAD, :, GONE] = False
    anywhere[DEAD:, :, :GONE] = False
    support: Mask = (found.transitions > 0.0 if published else anywhere) & found.admissible[..., None]
    return support
