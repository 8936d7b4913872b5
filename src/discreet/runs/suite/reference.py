"""What a strong learner without privacy reaches on every instance: the 1 of the scores.

Per problem the best of UCBVI with either bonus and of optimistic Q-learning, each with its bonus scaled by a constant
that was chosen on the tuning instances; with heavy tails and with an adversary, the learners made for them. The
outcomes are part of a version of the suite and are stored beside it (`v1.csv`).
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from discreet.envs.rewards import RewardLaw
from discreet.kernels import q_learning as kernel
from discreet.mdp import FiniteMDP
from discreet.people.episodes import NO_COINS, MDPSimulator
from discreet.planning import policy_value, tie_order
from discreet.runs.experiment import Experiment, generators, run
from discreet.runs.regret import RegretCurve
from discreet.runs.suite.problems import FIRST, SuiteProblem, suite

#: Of the bonus. Learners without noise need far less of it than theory asks for.
SCALES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
Q_LEARNING = "q-learning"


@dataclass(frozen=True)
class Candidate:
    learner: str
    scale: float | None = None


def candidates(problem: SuiteProblem) -> list[Candidate]:
    if problem.adversary is not None:
        names, others = ["uc-o-reps", "uob-lbps"], [Candidate("follow-the-leader")]
    else:
        names, others = ["ucbvi", "ucbvi-bernstein", "heavy-ucbvi" if problem.law else Q_LEARNING], []
    return others + [Candidate(name, scale) for name in names for scale in SCALES]


@dataclass(frozen=True)
class Played:
    """Regret and last gap over those of the uniform policy."""

    ratio: float
    gap: float


def played(problem: SuiteProblem, instance: int, seed: int, candidate: Candidate) -> Played:
    """One run without privacy."""
    mdp = problem.model(instance)
    if candidate.learner == Q_LEARNING:
        return _q_learning(mdp, problem.users, seed, candidate.scale or 1.0)
    result = run(experiment(problem, mdp, candidate.learner, confidence_scale=candidate.scale), seed)
    assert result.regret_ratio is not None
    assert result.final_gap is not None
    return Played(result.regret_ratio, result.final_gap)


def experiment(problem: SuiteProblem, mdp: FiniteMDP, learner: Any, **settings: Any) -> Experiment:
    """A learner on an instance; whether the model stays the same at every step is public."""
    told = {name: value for name, value in settings.items() if value is not None} | dict(problem.law)
    if problem.adversary is not None:
        told["adversary"] = problem.adversary
    draft = Experiment(learner, mdp, episodes=problem.users, **told)
    if mdp.stationary and "pooled" in draft.entry.options:
        told["pooled"] = True
    return Experiment(learner, mdp, episodes=problem.users, **told)


def _q_learning(mdp: FiniteMDP, users: int, seed: int, scale: float) -> Played:
    """Regret from the mean rewards along the episodes: right on average, and sharp over so many of them.

    b_t = scale·√(H³·ln(S·A·H·K/.05)/t), Q₀ = H − h.
    """
    shape = H, S, A = mdp.horizon, mdp.num_states, mdp.num_actions
    simulator = MDPSimulator(mdp, RewardLaw(), generators(seed)[0])
    visits = np.zeros(shape, dtype=np.int64)
    values = np.zeros((H + 1, S))
    values[:H] = (H - np.arange(H))[:, None]
    quality = np.repeat(values[:H, :, None], A, axis=2)
    bonus = scale * math.sqrt(H**3 * math.log(S * A * H * users / 0.05))
    total, chunk = 0.0, 4096
    for start in range(0, users, chunk):
        n = min(chunk, users - start)
        coins = simulator.reward_noise.random((n, H)) if simulator.law.tossed else NO_COINS
        earned = np.zeros(n)
        kernel.optimistic_q(
            *(simulator.cumulative, mdp.rewards, simulator.cumulative_initial, simulator.uniforms(n), coins, bonus),
            *(tie_order(shape, seed), visits, quality, values, earned),
        )
        total += float(earned.sum())
    curve = RegretCurve(mdp, users)
    span = curve.optimal - curve.random
    last = policy_value(mdp, np.eye(A)[quality.argmax(axis=2)])
    return Played((curve.optimal - total / users) / span, (curve.optimal - last) / span)


@dataclass(frozen=True)
class Standard:
    """The reference of one instance."""

    digest: str  # of the model
    learner: str
    scale: float | None
    ratio: float
    gap: float


@cache
def standards(suite: str) -> dict[tuple[str, int], Standard]:
    """(problem, instance) → what stands for 1 there."""
    text = files(__package__).joinpath(f"{suite}.csv").read_text(encoding="utf-8")
    return {
        (row["problem"], int(row["instance"])): Standard(
            row["digest"],
            row["learner"],
            float(row["scale"]) if row["scale"] else None,
            float(row["ratio"]),
            float(row["gap"]),
        )
        for row in csv.DictReader(text.splitlines())
    }


def described(version: str) -> list[dict[str, Any]]:
    """Every problem with the sizes of its first instance and the learner that stands for 1 there."""
    problems = suite(version)
    known, rows, instance = standards(version), [], FIRST["reporting"][0]
    for problem in problems:
        mdp, standard = problem.model(instance), known[problem.name, instance]
        strong = standard.learner + ("" if standard.scale is None else f", bonus × {standard.scale:g}")
        sizes = {"states": mdp.num_states, "actions": mdp.num_actions, "horizon": mdp.horizon, "users": problem.users}
        rows.append({"problem": problem.name, "asks": problem.asks, **sizes, "reference": strong})
    return rows
