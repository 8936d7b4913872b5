"""How the learners of adversarial losses are built from public facts, with their tuned constants."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from discreet.agents.oreps import (
    BanditDescent,
    ConfidenceBoxes,
    Leader,
    PublishedSets,
    RegularisedLeader,
    RelativeEntropyDescent,
)
from discreet.catalog import Triple
from discreet.people.losses import LossSpec
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.local_losses import LocalLosses
from discreet.privacy.trust.losses import CentralLosses, ExactLosses, LossPrivatizer
from discreet.problem import Problem
from discreet.schedules import TwoClocks

#: Loss blocks of the practical modes, and updates of the learners without privacy.
PURE_BLOCKS, GAUSSIAN_BLOCKS, EXACT_UPDATES = 100, 300, 1000


def _boxes(problem: Problem) -> ConfidenceBoxes:
    return ConfidenceBoxes(problem.layers, problem.num_episodes, problem.scale(0.3), problem.paper, _failure(problem))


def _clocks(problem: Problem, blocks: int) -> TwoClocks:
    """Losses in so many blocks, counts at geometric epochs; in paper mode both after every episode."""
    K = problem.num_episodes
    return TwoClocks(K, 1, 1.0) if problem.paper else TwoClocks(K, max(1, math.ceil(K / blocks)))


def _failure(problem: Problem) -> float | None:
    """The one δ of a run: the XA/K of the theorems with their constants, unless another is said."""
    if problem.paper and problem.beta is None:
        return min(problem.layers.num_cells / problem.num_episodes, 1.0 / 6.0)
    return problem.beta


def _width_failure(problem: Problem) -> float:
    """2δ for counts and δ for losses."""
    return replace(problem, beta=_failure(problem)).width_failure(3.0)


def _curator(problem: Problem, clocks: TwoClocks) -> CentralLosses:
    """One noise per block; in paper mode trees, and visits beside transitions."""
    return CentralLosses(
        problem.budget,
        problem.neighbours,
        counts="tree" if problem.paper else "blocks",
        num_count_blocks=clocks.num_count_blocks,
        num_loss_blocks=clocks.num_loss_blocks,
        public_losses=problem.losses == "public",
        visits=problem.paper,
        beta=_width_failure(problem),
        calibration=problem.calibration,
    )


def _devices(problem: Problem) -> LocalLosses:
    laplace = problem.paper or problem.noise == "printed"
    beta, public = _width_failure(problem), problem.losses == "public"
    return LocalLosses(problem.budget, public, laplace, beta, problem.calibration)


def _published(problem: Problem, shape: Literal["balls", "boxes"]) -> PublishedSets:
    return PublishedSets(problem.layers, problem.num_episodes, shape, problem.scale(1.0), problem.failure)


def uc_o_reps(problem: Problem) -> Triple:
    """Full information: Private-UC-O-REPS; without a budget UC-O-REPS as published (paper), or ours (practical)."""
    if not problem.private and problem.paper:  # [RM19], as recalled: η = √(ln(XA/H)/K)
        rate = math.sqrt(math.log(problem.layers.num_cells / problem.horizon) / problem.num_episodes)
        descent = RelativeEntropyDescent(_published(problem, "balls"), rate * problem.rate(1.0))
        return Triple(descent, ExactLosses(), _clocks(problem, problem.num_episodes))
    agent = RegularisedLeader(_boxes(problem), problem.rate(1.0 if problem.paper else 10.0))
    if not problem.private:
        return Triple(agent, ExactLosses(), _clocks(problem, EXACT_UPDATES))
    if problem.trust == "local":
        return Triple(agent, _devices(problem), _clocks(problem, PURE_BLOCKS))
    gaussian, public = problem.gaussian, problem.losses == "public"
    clocks = _clocks(problem, EXACT_UPDATES if public else GAUSSIAN_BLOCKS if gaussian else PURE_BLOCKS)
    privatizer = _curator(problem, clocks)
    if problem.paper:
        privatizer = replace(privatizer, losses="constant-tree")
    elif gaussian and not public:
        privatizer = replace(privatizer, losses="toeplitz")
    return Triple(agent, privatizer, clocks)


def uob(problem: Problem, regulariser: str = "barrier") -> Triple:
    """Bandit feedback: Private-UOB-LBPS, or UOB-LBPS (barrier) and UOB-REPS (entropy) without a budget."""
    layers, K, boxes = problem.layers, problem.num_episodes, _boxes(problem)
    theory = math.sqrt(layers.num_cells / layers.num_actions / K)  # √(X/K)
    if not problem.private:
        clocks = _clocks(problem, EXACT_UPDATES)
        if regulariser == "entropy":
            H, XA = layers.horizon, layers.num_cells
            if problem.paper:  # [JJLSY20]: η = γ = √(H·ln(HXA/δ)/(K·X·A))
                rate = math.sqrt(H * math.log(H * XA / problem.failure) / (K * XA)) * problem.rate(1.0)
                agent = BanditDescent(_published(problem, "boxes"), rate, problem.estimator, "entropy", rate)
            else:
                rate = math.sqrt(H * math.log(H * XA * K) / (K * XA)) * problem.rate(3.0)
                agent = BanditDescent(boxes, rate, problem.estimator, "entropy", 0.1 * rate)
        else:
            agent = BanditDescent(boxes, theory * problem.rate(1.0 if problem.paper else 10.0), problem.estimator)
        return Triple(agent, ExactLosses(), clocks)
    spec = LossSpec.for_episodes(layers, "bandit", K)
    privatizer: LossPrivatizer
    if problem.paper:
        clocks = _clocks(problem, K)
        privatizer = _devices(problem) if problem.trust == "local" else _curator(problem, clocks)
        width = privatizer.open(spec, NoiseSource.seeded(0)).release().loss_width
        rate = theory * problem.rate(1.0)
        if problem.estimator == "corrected" and problem.rate_scale is None:
            rate = min(rate, 0.5 / (1.0 + width))  # the printed rate is for estimates in [0, 1]
        return Triple(BanditDescent(boxes, rate, problem.estimator), privatizer, clocks)
    most = max(len(states) for states in layers.states)
    if problem.trust == "local":
        if problem.gaussian:
            deviation = _devices(problem).families(spec)["losses"].deviation * spec.grid
        else:
            q = 1.0 / (math.exp(problem.budget.total("laplace")) + 1.0)
            deviation = layers.horizon * math.sqrt(q * (1.0 - q)) / (0.5 - q) * math.sqrt(most)
        # Noise of a block of n users is deviation·√n: a block long enough that losses of a cell stand out.
        length = min(max(int((2.0 * deviation * most * layers.num_actions) ** 2), K // 100, 1), max(K // 5, 1))
        noise = deviation * math.sqrt(length)
        clocks, privatizer = TwoClocks(K, length), _devices(problem)
    else:
        noise = _curator(problem, TwoClocks(K)).families(spec)["losses"].deviation / math.sqrt(2.0) * spec.grid
        length = min(max(int(10.0 * noise * most * layers.num_actions), math.ceil(K / 100), 1), max(K // 5, 1))
        clocks = TwoClocks(K, length)
        privatizer = _curator(problem, clocks)
    rate = theory * problem.rate(10.0)
    if problem.rate_scale is None:
        rate = min(rate, 3.5 / (noise * math.sqrt(clocks.num_loss_blocks)))
    return Triple(BanditDescent(boxes, rate, problem.estimator), privatizer, clocks)


def follow_the_leader(problem: Problem) -> Triple:
    """The baseline without regularisation, full information, after every episode."""
    return Triple(Leader(problem.layers), ExactLosses(), TwoClocks(problem.num_episodes))
