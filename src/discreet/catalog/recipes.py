"""How every learner of the catalog is built from public facts, with its tuned constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from discreet.agents.heavy_tails import HeavyEstimate, HeavyUCBPO, HeavyUCBVI, exact_rate, joint_rate, local_rate
from discreet.agents.policy_elimination import PolicyElimination
from discreet.agents.policy_optimization import PolicyOptimization
from discreet.agents.sparse_spotlight import SparseSpotlight
from discreet.agents.spotlight import OPTIMISM, Spotlight
from discreet.agents.ucbvi import UCBVI
from discreet.bonuses import Azar, BonusKind, ChowdhuryZhou, Practical, QiaoWang, ShaniEfroni, Vietri
from discreet.catalog import Triple
from discreet.people.counts import CountSpec
from discreet.planning import Agent, Estimator
from discreet.privacy.families import calibrated
from discreet.privacy.protocol import Privatizer
from discreet.privacy.sums.epochs import Epochs
from discreet.privacy.sums.exact import Exact
from discreet.privacy.sums.tree import Tree
from discreet.privacy.trust.local import LocalGaussian, LocalLaplace, LocalSampled
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.reports import Reports
from discreet.privacy.trust.shuffle import Shuffle, ShuffleBatches
from discreet.privacy.trust.shuffle_reports import ShuffleReports
from discreet.privacy.trust.sparse_reports import SparseReportNoise
from discreet.privacy.trust.truncated import TruncatedEpochs, TruncatedExact, TruncatedLocal, TruncatedTree
from discreet.privacy.trust.two_servers import TwoServerReports
from discreet.problem import Moments, Problem
from discreet.releases.counts import PrivateCounts
from discreet.releases.reports import PrivateReports
from discreet.releases.sparse import dense
from discreet.schedules import EveryEpisode, GeometricEpochs, Schedule

# Without privacy ----------------------------------------------------------------------------------------------------


def plain_schedule(problem: Problem) -> Schedule:
    return EveryEpisode() if problem.paper or problem.schedule == "every" else GeometricEpochs()


def _azar(problem: Problem, kind: BonusKind, default: float) -> Triple:
    scale = problem.scale(1.0 if problem.paper else default)
    agent = UCBVI(
        Azar(problem.num_episodes, kind, scale, problem.failure), monotone=scale >= 1.0, tie_seed=problem.tie_seed
    )
    return Triple(agent, Exact(), plain_schedule(problem))


def ucbvi(problem: Problem) -> Triple:
    return _azar(problem, "hoeffding", 0.001)


def ucbvi_bernstein(problem: Problem) -> Triple:
    return _azar(problem, "bernstein", 0.003)


def oppo(problem: Problem) -> Triple:
    scale, rate = (problem.scale(1.0), 1.0) if problem.paper else (problem.scale(0.003), 10.0)
    estimate = ShaniEfroni(problem.num_episodes, scale, problem.failure)
    agent = PolicyOptimization(estimate, problem.num_episodes, problem.rate(rate), own_release=problem.paper)
    return Triple(agent, Exact(), plain_schedule(problem))


# Count-based private learners ---------------------------------------------------------------------------------------


def count_privatizer(problem: Problem) -> Privatizer[PrivateCounts]:
    """The release of counts: a tree where a policy follows every episode, fresh noise per epoch elsewhere."""
    beta, calibration = problem.width_failure(1 / 3), problem.calibration
    if problem.trust == "local":
        if problem.gaussian and problem.noise == "true":
            return LocalGaussian(problem.budget, beta=beta)
        if problem.local_reports == "laplace" or problem.noise == "printed":
            return LocalLaplace(problem.budget, beta=beta, calibration=calibration)
        return LocalSampled(problem.budget, beta)
    if problem.schedule == "every":
        return Tree(problem.budget, problem.neighbours, beta=beta, calibration=calibration)
    return Epochs(problem.budget, problem.neighbours, beta=beta, window="restart", calibration=calibration)


def count_schedule(problem: Problem) -> Schedule:
    """Every episode, or epochs that start at twice the standard deviation of the noise: shorter ones say nothing.

    Local noise grows with the users, so local epochs double instead.
    """
    if problem.schedule == "every":
        return EveryEpisode()
    if problem.trust == "local":
        return GeometricEpochs(growth=1.5, first=max(1, problem.num_episodes // 200))
    return GeometricEpochs(growth=1.2, first=max(1, min(int(2 * _spread(problem)), problem.num_episodes // 20)))


def _spread(problem: Problem) -> float:
    """Standard deviation of the noise on a count of one epoch; with a delta, that of Laplace noise at its epsilon."""
    if problem.epsilon is None:
        spec = CountSpec(1, 1, problem.horizon, problem.pooled)
        return calibrated(problem.budget, "gaussian", problem.neighbours, spec)[0].deviation
    return math.sqrt(2) * (6 if problem.neighbours == "replace" else 3) * problem.horizon / problem.epsilon


def _private(problem: Problem, paper: Estimator, practical: Estimator, monotone: bool = False) -> Triple:
    if problem.paper:
        agent = UCBVI(paper, monotone, problem.tie_seed)
        return Triple(
            agent, count_privatizer(replace(problem, schedule="every", local_reports="laplace")), EveryEpisode()
        )
    agent = UCBVI(practical, tie_seed=problem.tie_seed)
    return Triple(agent, count_privatizer(problem), count_schedule(problem))


def dp_ucbvi(problem: Problem) -> Triple:
    K, facts = problem.num_episodes, problem.structure
    paper = QiaoWang(K, problem.bonus, problem.scale(1.0), problem.failure, facts)
    practical = Practical(K, problem.bonus, problem.scale(1.0), beta=problem.failure, structure=facts)
    return _private(problem, paper, practical, monotone=True)


def private_ucb_vi(problem: Problem) -> Triple:
    K, facts = problem.num_episodes, problem.structure
    paper = ChowdhuryZhou(K, False, problem.scale(1.0), problem.failure, facts)
    practical = Practical(K, "hoeffding", problem.scale(0.1), beta=problem.failure, structure=facts)
    return _private(problem, paper, practical)


def pucb(problem: Problem) -> Triple:
    K, facts = problem.num_episodes, problem.structure
    paper, beta = Vietri(K, problem.scale(1.0), problem.failure, facts), problem.failure
    practical = Practical(K, "hoeffding", problem.scale(0.1), unknown_below=2.0, beta=beta, structure=facts)
    return _private(problem, paper, practical)


def private_ucb_po(problem: Problem) -> Triple:
    K, facts = problem.num_episodes, problem.structure
    if problem.paper:
        paper = ChowdhuryZhou(K, True, problem.scale(1.0), problem.failure, facts)
        privatizer = count_privatizer(replace(problem, schedule="every", local_reports="laplace"))
        agent = PolicyOptimization(paper, K, problem.rate(1.0), own_release=True)
        return Triple(agent, privatizer, EveryEpisode())
    estimate = Practical(K, "bernstein", problem.scale(1.0), beta=problem.failure, structure=facts)
    return Triple(
        PolicyOptimization(estimate, K, problem.rate(10.0)), count_privatizer(problem), count_schedule(problem)
    )


# Heavy-tailed rewards -----------------------------------------------------------------------------------------------


def heavy(problem: Problem, policy_optimisation: bool, private: bool) -> Triple:
    shape = problem.shape
    K, beta, local = problem.num_episodes, problem.failure, problem.trust == "local"
    every = problem.paper or problem.schedule == "every"
    privatizer: Privatizer[PrivateCounts] = TruncatedExact()
    schedule: Schedule = EveryEpisode() if every else GeometricEpochs()
    rate = exact_rate(shape, K, beta)
    if private:
        if problem.gaussian:
            raise ValueError("heavy-tailed learners spend pure epsilon: leave delta and rho out")
        assert problem.epsilon is not None
        rate = (local_rate if local else joint_rate)(shape, K, problem.epsilon, beta)
        rate *= 1.0 if problem.paper else 10.0  # the printed thresholds cut off most of what they should count
        schedule = EveryEpisode() if every else count_schedule(problem)
        widths = problem.width_failure(1.0)
        if local:
            privatizer = TruncatedLocal(problem.budget, widths, calibration=problem.calibration)
        elif every:
            privatizer = TruncatedTree(
                problem.budget, problem.neighbours, beta=widths, calibration=problem.calibration
            )
        else:
            privatizer = TruncatedEpochs(
                problem.budget, problem.neighbours, beta=widths, window="restart", calibration=problem.calibration
            )
    estimate = HeavyEstimate(
        K,
        problem.moments or Moments(),
        rate,
        root=private and local,
        practical=not problem.paper,
        policy_optimisation=policy_optimisation,
        confidence_scale=problem.scale(1.0 if problem.paper else 0.1 if private else 0.03),
        beta=beta,
        structure=problem.structure,
    )
    if policy_optimisation:
        step = problem.rate(1.0 if problem.paper else 30.0)
        return Triple(HeavyUCBPO(estimate, K, step, own_release=problem.paper), privatizer, schedule)
    return Triple(HeavyUCBVI(estimate, problem.tie_seed), privatizer, schedule)


#: A curator gets another report of every user for so much of ε (replace): with less noise on a single one, sampling
#: hides more than the noise.
EPSILON_PER_REPORT = 4.0


def reports_each(problem: Problem) -> int:
    """A public number: reports of a user to a curator. Who is asked by an app sends one, whatever ε would pay for."""
    if problem.epsilon is None or problem.one_by_one:
        return 1
    worth = {"replace": 1.0, "zero-out": 2.0}[problem.neighbours] * problem.epsilon
    return max(1, int(min(problem.horizon, worth / EPSILON_PER_REPORT)))


#: Who adds the noise to reports, by whom people trust.
REPORTS: Mapping[str, Callable[[Problem], Privatizer[PrivateReports]]] = {
    "joint": lambda p: Reports(p.budget, p.neighbours, reports_each(p), p.structure),
    "two-servers": lambda p: TwoServerReports(p.budget, p.neighbours, structure=p.structure),
    "local": lambda p: LocalReports(p.budget, p.structure, p.neighbours),
    "shuffle": lambda p: ShuffleReports(p.budget, p.neighbours, p.structure, p.honest),
}


def reports_are_dense(problem: Problem) -> bool:
    """Whether all sub-cells of reports are held: a public rule, the same on every machine."""
    stages = 1 if problem.pooled else problem.horizon
    return dense(2 * stages * problem.num_states**2 * problem.num_actions, True)


def spotlight(problem: Problem) -> Triple:
    K, facts = problem.num_episodes, problem.structure
    if problem.trust == "joint" and not reports_are_dense(problem):
        sparse = SparseSpotlight(K, facts.initial, problem.scale(OPTIMISM), tie_seed=problem.tie_seed)
        return Triple(
            sparse, SparseReportNoise(problem.budget, problem.neighbours, structure=facts), GeometricEpochs()
        )
    agent = Spotlight.configured(K, facts, problem.confidence_scale, problem.tie_seed)
    return Triple(agent, REPORTS[problem.trust](problem), GeometricEpochs())


# Shuffled bits ------------------------------------------------------------------------------------------------------


def _bits(problem: Problem) -> Literal["exact", "paper"]:
    return "paper" if problem.noise == "printed" else "exact"


def shuffle_ucbvi(problem: Problem) -> Triple:
    """Batches that grow by a fifth, from eight standard deviations of their noise on: smaller ones say nothing."""
    K, facts = problem.num_episodes, problem.structure
    privatizer = Shuffle(
        problem.budget,
        problem.neighbours,
        problem.honest,
        problem.width_failure(1 / 3),
        window="restart",
        calibration=_bits(problem),
    )
    spec = CountSpec(problem.num_states, problem.num_actions, problem.horizon, problem.pooled)
    deviation = math.sqrt(privatizer.law(spec).variance(max(K, 2)))
    schedule = GeometricEpochs(1.2, max(2, min(int(8 * deviation), K // 20)))
    if problem.paper:
        paper = QiaoWang(K, problem.bonus, problem.scale(1.0), problem.failure, facts)
        return Triple(UCBVI(paper, True, problem.tie_seed), privatizer, schedule)
    estimate = Practical(K, problem.bonus, problem.scale(1.0), beta=problem.failure, structure=facts)
    return Triple(UCBVI(estimate, tie_seed=problem.tie_seed), privatizer, schedule)


def elimination(problem: Problem, private: bool) -> Triple:
    """Printed constants, or scaled ones that still keep the best policy (docs/shuffle.md)."""
    if problem.pooled:
        raise ValueError("policies are eliminated on counts per step; leave --pooled out")
    K, facts = problem.num_episodes, problem.structure
    if problem.paper:
        agent = PolicyElimination(K, facts, problem.scale(1.0), roots=not private)
    else:
        first = min(128 * problem.horizon * problem.num_states * problem.num_actions, K // 8)
        agent = PolicyElimination(K, facts, problem.scale(0.1), 1e-3, 1e-3, shift=False, exploit=True, first=first)
    agent = replace(agent, beta=problem.failure)
    agent.policies(problem.shape)
    budget = problem.budget if private else None
    privatizer = ShuffleBatches(
        budget, problem.neighbours, problem.honest, problem.width_failure(1.0), calibration=_bits(problem)
    )
    return Triple(agent, privatizer, GeometricEpochs(2.0, 2))


# Somebody else's ----------------------------------------------------------------------------------------------------


def own_agent(problem: Problem, agent: Agent[PrivateCounts]) -> Triple:
    """An agent on counts: exact ones without a budget, and else those of the practical learners."""
    if not problem.private:
        return Triple(agent, Exact(), plain_schedule(problem))
    return Triple(agent, count_privatizer(problem), count_schedule(problem))


def own_triple(problem: Problem, agent: Agent[Any], privatizer: Privatizer[Any], schedule: Schedule) -> Triple:
    """A triple as it is."""
    return Triple(agent, privatizer, schedule)
