"""Runs against adversarial losses: users play, streams release at public times, regret is exact in hindsight."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.agents.oreps import (
    AdversarialAgent,
    AdversarialPlan,
    BanditDescent,
    Blocks,
    ConfidenceBoxes,
    Estimator,
    Leader,
    RegularisedLeader,
)
from discreet.envs.adversaries import LossSequence, adversary
from discreet.envs.rewards import RewardLaw
from discreet.envs.tabular import layers as reachable
from discreet.mdp import FiniteMDP, Floats, Ints
from discreet.occupancies import Layers
from discreet.people.episodes import MDPSimulator
from discreet.people.losses import Feedback, LossSpec
from discreet.planning import occupancy, optimal_plan, uniform_policy
from discreet.privacy.accounting import Budget, Guarantee, Neighbours
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.local_losses import LocalLosses
from discreet.privacy.trust.losses import CentralLosses, ExactLosses, LossPrivatizer

if TYPE_CHECKING:
    from discreet.runs.experiment import Experiment, Progress, RunResult

#: Loss tables read at once.
CHUNK = 8192
#: Forecast noise σ/K above which hardly anything is learned (measured: 0.02 → 0.12 of the uniform policy's regret,
#: 0.05 → 0.27, 0.1 → 0.55).
NOISE_WARNING = 0.1
#: Bandit blocks below which hardly anything is learned.
FEWEST_BANDIT_BLOCKS = 20


@dataclass(frozen=True)
class Learner:
    """Everything that is decided before anyone plays."""

    agent: AdversarialAgent
    privatizer: LossPrivatizer
    blocks: Blocks
    feedback: Feedback


@dataclass(frozen=True, eq=False)
class Played:
    """What a run of `play` leaves behind; losses are those of the true model, hence simulation only."""

    checkpoints: Ints
    loss: Floats  # cumulative expected loss of the played policies
    comparator: Floats  # of the best fixed policy in hindsight (over all recorded episodes), at the same times
    uniform: Floats  # of the uniform policy
    policies: int
    last: AdversarialPlan
    guarantee: Guarantee
    seconds: float
    final_loss: float  # mean loss per episode of the last policy over all recorded episodes
    stopped: str | None = None  # why the losses ended early

    @property
    def regret(self) -> Floats:
        return self.loss - self.comparator

    @property
    def episodes(self) -> int:
        return int(self.checkpoints[-1]) if len(self.checkpoints) else 0


def public_layers(mdp: FiniteMDP) -> Layers:
    """The layers of an MDP, which whoever declares them knows without anyone's data."""
    return Layers(reachable(mdp), mdp.initial, mdp.num_actions)


def play(
    mdp: FiniteMDP,
    sequence: LossSequence,
    learner: Learner,
    seed: int | None = 0,
    progress: Callable[[int], None] | None = None,
    points: int = 100,
) -> Played:
    """Let one user after another play. Losses may end early: what was recorded is kept and `stopped` says why."""
    from discreet.runs.experiment import generators
    from discreet.runs.simulation import Clock

    K = sequence.num_episodes
    if sequence.shape != (mdp.horizon, mdp.num_states, mdp.num_actions):
        shape = (mdp.horizon, mdp.num_states, mdp.num_actions)
        raise ValueError(f"the losses have shape {sequence.shape}; expected (H, S, A) = {shape}")
    layers = public_layers(mdp)
    environment, noise = generators(seed)
    simulator = MDPSimulator(mdp, RewardLaw("deterministic"), environment)
    spec = LossSpec.for_episodes(layers, learner.feedback, K)
    clock = Clock()
    with clock:
        stream = learner.privatizer.open(spec, noise)
        plan = learner.agent.plan(stream.release(), None)
    ledger = _Ledger(mdp, K, points)
    counts, losses = iter(learner.blocks.count_ends()), iter(learner.blocks.loss_ends())
    next_count, next_loss = next(counts, K), next(losses, K)
    done, policies, stopped = 0, 1, None
    while done < K and stopped is None:
        end = min(next_count, next_loss, K)
        measure = occupancy(mdp, plan.policy)
        for start, stop in ledger.portions(done, end):
            try:
                tables = sequence.losses(start, stop)
                _checked(tables, (stop - start, *sequence.shape), start)
            except Exception as error:  # whatever a user's function raises ends the run, not the record
                stopped = f"the losses of episodes {start} to {stop - 1} failed: {error}"
                break
            with clock:
                stream.add(simulator.rollout(plan.policy, stop - start), tables)
            ledger.add(measure, tables.sum(axis=0), stop)
            if progress is not None:
                progress(stop - start)
        done = ledger.done
        if stopped is not None or done >= K:
            break
        with clock:
            if done == next_count:
                stream.close_counts()
                next_count = next(counts, K)
            if done == next_loss:
                stream.close_losses()
                next_loss = next(losses, K)
            following = learner.agent.plan(stream.release(), plan)
        policies += not np.array_equal(following.policy, plan.policy)
        plan = following
    loss, comparator, uniform, final = ledger.curves(plan.policy)
    return Played(
        ledger.times[: len(loss)],
        loss,
        comparator,
        uniform,
        policies,
        plan,
        stream.guarantee,
        clock.seconds,
        final,
        stopped,
    )


def _checked(tables: Floats, shape: tuple[int, ...], start: int) -> None:
    if tables.shape != shape:
        raise ValueError(f"tables have shape {tables.shape}; expected {shape}")
    if not ((tables >= 0.0) & (tables <= 1.0)).all():
        raise ValueError("a loss lies outside [0, 1]")


class _Ledger:
    """Exact cumulative losses at checkpoints, for the learner and, at the end, for any fixed policy."""

    def __init__(self, mdp: FiniteMDP, num_episodes: int, points: int) -> None:
        self.mdp, self.done = mdp, 0
        self.times = np.unique(np.geomspace(1, num_episodes, points).round().astype(np.int64))
        self._shape = (mdp.horizon, mdp.num_states, mdp.num_actions)
        self._total = np.zeros(self._shape)
        self._loss, self._losses, self._tables = 0.0, [], []  # type: float, list[float], list[Floats]

    def portions(self, start: int, end: int) -> list[tuple[int, int]]:
        """Cut start..end at checkpoints and into chunks."""
        cuts = {start, end, *range(start, end, CHUNK), *(int(t) for t in self.times if start < t < end)}
        return list(itertools.pairwise(sorted(cuts)))

    def add(self, measure: Floats, table: Floats, stop: int) -> None:
        self._total += table
        self._loss += float((measure * table).sum())
        self.done = stop
        if stop in self.times:
            self._losses.append(self._loss)
            self._tables.append(self._total.copy())

    def curves(self, last: Floats) -> tuple[Floats, Floats, Floats, float]:
        """(learner, best fixed policy, uniform policy) at the checkpoints reached; the last policy's mean loss."""
        if self.done and (not self._losses or self.done != self.times[len(self._losses) - 1]):
            self.times = np.append(self.times[: len(self._losses)], self.done)
            self._losses.append(self._loss)
            self._tables.append(self._total.copy())
        if not self.done:
            return np.empty(0), np.empty(0), np.empty(0), math.nan
        staged = self.mdp.staged()
        whole = FiniteMDP(staged.transitions, -self._total, staged.initial, staged.horizon)
        best = occupancy(self.mdp, optimal_plan(whole).policy)
        even = occupancy(self.mdp, uniform_policy(self._shape))
        tables = np.stack(self._tables)
        axes = (1, 2, 3)
        final = float((occupancy(self.mdp, last) * self._total).sum()) / self.done
        return np.array(self._losses), (tables * best).sum(axis=axes), (tables * even).sum(axis=axes), final


# Configurations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Public facts a learner is configured with."""

    layers: Layers
    num_episodes: int
    epsilon: float | None = None  # None: no privacy
    delta: float = 0.0
    model: str = "joint"
    neighbours: Neighbours = "replace"
    mode: str = "practical"
    public_losses: bool = False
    estimator: Estimator = "corrected"
    confidence_scale: float | None = None

    @property
    def paper(self) -> bool:
        return self.mode == "paper"

    @property
    def budget(self) -> Budget:
        assert self.epsilon is not None
        return Budget.approximate(self.epsilon, self.delta) if self.delta > 0 else Budget.pure(self.epsilon)

    @property
    def confidence(self) -> ConfidenceBoxes:
        scale = 0.3 if self.confidence_scale is None else self.confidence_scale
        return ConfidenceBoxes(self.layers, self.num_episodes, scale, self.paper)


#: Loss blocks of the practical modes, and updates of the non-private twins.
PURE_BLOCKS, GAUSSIAN_BLOCKS, EXACT_UPDATES = 100, 300, 1000


def _blocks(problem: Problem, number: int) -> Blocks:
    K = problem.num_episodes
    return Blocks(K, max(1, math.ceil(K / number)))


def _every(problem: Problem) -> Blocks:
    """Counts and losses after every episode."""
    return Blocks(problem.num_episodes, 1, 1.0)


def uc_o_reps(problem: Problem) -> Learner:
    """Full information: Private-UC-O-REPS, or UC-O-REPS without a budget."""
    agent = RegularisedLeader(problem.confidence, 1.0 if problem.paper else 10.0)
    if problem.epsilon is None:
        blocks = _every(problem) if problem.paper else _blocks(problem, EXACT_UPDATES)
        return Learner(agent, ExactLosses(), blocks, "full")
    if problem.model == "local":
        blocks = _every(problem) if problem.paper else _blocks(problem, PURE_BLOCKS)
        privatizer: LossPrivatizer = LocalLosses(problem.budget, problem.public_losses, laplace=problem.paper)
        return Learner(agent, privatizer, blocks, "full")
    if problem.paper:
        blocks = _every(problem)
        return Learner(
            agent,
            CentralLosses(
                problem.budget,
                problem.neighbours,
                counts="tree",
                losses="constant-tree",
                num_count_blocks=blocks.num_count_blocks,
                num_loss_blocks=blocks.num_loss_blocks,
                public_losses=problem.public_losses,
                visits=True,
            ),
            blocks,
            "full",
        )
    gaussian = problem.delta > 0
    number = EXACT_UPDATES if problem.public_losses else GAUSSIAN_BLOCKS if gaussian else PURE_BLOCKS
    blocks = _blocks(problem, number)
    privatizer = CentralLosses(
        problem.budget,
        problem.neighbours,
        losses="toeplitz" if gaussian and not problem.public_losses else "blocks",
        num_count_blocks=blocks.num_count_blocks,
        num_loss_blocks=blocks.num_loss_blocks,
        public_losses=problem.public_losses,
    )
    return Learner(agent, privatizer, blocks, "full")


def uob(problem: Problem, regulariser: str = "barrier") -> Learner:
    """Bandit feedback: Private-UOB-LBPS, or UOB-LBPS (barrier) and UOB-REPS (entropy) without a budget."""
    layers, K = problem.layers, problem.num_episodes
    X = layers.num_cells / layers.num_actions
    widest = max(len(layer) for layer in layers.states) * layers.num_actions
    theory = math.sqrt(X / K)
    if problem.epsilon is None:
        blocks = _every(problem) if problem.paper else _blocks(problem, EXACT_UPDATES)
        rate, implicit = theory * (1.0 if problem.paper else 10.0), 0.0
        if regulariser == "entropy":  # [JJLSY20]: η = γ = √(H ln(HXA/δ)/(K·X·A))
            H, XA = layers.horizon, layers.num_cells
            rate = math.sqrt(H * math.log(H * XA * K) / (K * XA)) * (1.0 if problem.paper else 3.0)
            implicit = rate if problem.paper else 0.1 * rate
        agent = BanditDescent(
            problem.confidence,
            rate,
            problem.estimator,
            "entropy" if regulariser == "entropy" else "barrier",
            implicit,
        )
        return Learner(agent, ExactLosses(), blocks, "bandit")
    if problem.paper:
        blocks = _every(problem)
        spec = LossSpec.for_episodes(layers, "bandit", K)
        privatizer: LossPrivatizer
        if problem.model == "local":
            privatizer = LocalLosses(problem.budget, problem.public_losses, laplace=True)
        else:
            privatizer = CentralLosses(
                problem.budget,
                problem.neighbours,
                counts="tree",
                num_count_blocks=blocks.num_count_blocks,
                num_loss_blocks=blocks.num_loss_blocks,
                public_losses=problem.public_losses,
                visits=True,
            )
        width = privatizer.open(spec, NoiseSource.seeded(0)).release().loss_width
        rate = theory if problem.estimator == "paper" else min(theory, 0.5 / (1.0 + width))
        return Learner(BanditDescent(problem.confidence, rate, problem.estimator), privatizer, blocks, "bandit")
    if problem.model == "local":
        q = 1.0 / (math.exp(problem.epsilon) + 1.0)
        spread = layers.horizon * math.sqrt(q * (1.0 - q)) / (0.5 - q) * math.sqrt(max(len(s) for s in layers.states))
        # Noise of a block of n users is spread·√n: a block long enough that losses of a cell stand out.
        length = min(max(int((2.0 * spread * widest) ** 2), K // 100, 1), max(K // 5, 1))
        noise = spread * math.sqrt(length)
        privatizer = LocalLosses(problem.budget, problem.public_losses)
    else:
        probe = CentralLosses(problem.budget, problem.neighbours, public_losses=problem.public_losses)
        family = probe.families(LossSpec.for_episodes(layers, "bandit", K))["losses"]
        noise = family.deviation / math.sqrt(2.0) * LossSpec.for_episodes(layers, "bandit", K).grid
        length = min(max(int(10.0 * noise * widest), math.ceil(K / 100), 1), max(K // 5, 1))
        privatizer = probe
    blocks = Blocks(K, length)
    number = blocks.num_loss_blocks
    if isinstance(privatizer, CentralLosses):
        privatizer = replace(privatizer, num_count_blocks=blocks.num_count_blocks, num_loss_blocks=number)
    rate = min(10.0 * theory, 3.5 / (noise * math.sqrt(number)))
    return Learner(BanditDescent(problem.confidence, rate, problem.estimator), privatizer, blocks, "bandit")


def follow_the_leader(problem: Problem) -> Learner:
    """The baseline without regularisation, full information, after every episode."""
    return Learner(Leader(problem.layers), ExactLosses(), Blocks(problem.num_episodes), "full")


LEARNERS: dict[str, Callable[[Problem], Learner]] = {
    "private-uc-o-reps": uc_o_reps,
    "private-uob-lbps": uob,
    "uc-o-reps": uc_o_reps,
    "uob-lbps": uob,
    "uob-reps": lambda problem: uob(problem, "entropy"),
    "follow-the-leader": follow_the_leader,
}


def warning(learner: Learner, layers: Layers, num_episodes: int) -> str | None:
    """What is known to go wrong before anyone plays: the noise of the losses beside the number of users."""
    spec = LossSpec.for_episodes(layers, learner.feedback, num_episodes)
    if learner.feedback == "bandit":
        number = learner.blocks.num_loss_blocks
        if isinstance(learner.privatizer, ExactLosses) or number >= FEWEST_BANDIT_BLOCKS:
            return None
        return (
            f"with {num_episodes:,} users there are only {number} blocks whose losses stand out of their noise "
            f"({FEWEST_BANDIT_BLOCKS} are needed to learn much); raise epsilon or collect about "
            f"{math.ceil(num_episodes * FEWEST_BANDIT_BLOCKS / number):,} users or more"
        )
    share = learner.privatizer.noise_share(spec)
    if share <= NOISE_WARNING:
        return None
    return (
        f"with {num_episodes:,} users the noise of a cumulative loss is {share:.2g} of the number of users "
        f"(above {NOISE_WARNING:g} hardly anything is learned); raise epsilon, allow a delta, or collect about "
        f"{math.ceil(num_episodes * share / 0.02):,} users"
    )


def checked(experiment: Experiment, mdp: FiniteMDP) -> str | None:
    """Build everything but the run, so that whatever is wrong is said first; returns a warning, if there is one."""
    experiment = experiment.resolved
    assert experiment.adversary is not None
    problem = problem_of(experiment, mdp)
    learner = LEARNERS[experiment.entry.name](problem)
    spec = LossSpec.for_episodes(problem.layers, learner.feedback, experiment.episodes)
    learner.privatizer.open(spec, NoiseSource.seeded(0))
    adversary(experiment.adversary, mdp, experiment.episodes, experiment.instance)
    return warning(learner, problem.layers, experiment.episodes)


def run(experiment: Experiment, seed: int | None = 0, progress: Progress | None = None) -> RunResult:
    """The adversarial form of `experiment.run`: the same result, with regret in hindsight and losses for values."""
    from discreet.runs.experiment import RunResult, Setting, also_assuming

    experiment = experiment.resolved
    assert experiment.adversary is not None
    mdp = Setting.of(experiment).mdp
    sequence = adversary(experiment.adversary, mdp, experiment.episodes, experiment.instance)
    problem = problem_of(experiment, mdp)
    learner = LEARNERS[experiment.entry.name](problem)
    played = play(mdp, sequence, learner, seed, progress)
    K = played.episodes
    regret, random_regret = played.regret, float(played.uniform[-1] - played.comparator[-1])
    diagnostics: dict[str, Any] = {
        "regret_per_step": float(regret[-1]) / (K * mdp.horizon),
        "solves": played.last.solves,
        "unsolved": played.last.unsolved,
        "largest_gap": played.last.largest_gap,
        "largest_violation": played.last.largest_violation,
        "loss_blocks": learner.blocks.num_loss_blocks,
        "count_blocks": learner.blocks.num_count_blocks,
        "loss": [float(value) for value in played.loss],
        "comparator_loss": [float(value) for value in played.comparator],
        "warning": warning(learner, problem.layers, experiment.episodes),
    }
    return RunResult(
        experiment,
        seed,
        played.checkpoints,
        regret,
        random_regret if random_regret > 1e-9 * K else 0.0,  # 0 where every policy is as good, up to rounding
        float(played.comparator[-1]) / K,
        float(played.uniform[-1]) / K,
        played.final_loss,
        played.policies - 1,
        also_assuming(played.guarantee, ASSUMPTIONS if experiment.epsilon is not None else ()),
        played.seconds,
        diagnostics,
    )


#: What every learner of this module is told, and its user therefore declares to be public.
ASSUMPTIONS = (
    "the initial distribution is public",
    "the states that can occur at each step are public",
)


def problem_of(experiment: Experiment, mdp: FiniteMDP) -> Problem:
    """The public facts of an experiment."""
    said = experiment.resolved
    told = ("epsilon", "delta", "model", "neighbours", "mode", "estimator", "confidence_scale")
    return Problem(
        public_layers(mdp),
        said.episodes,
        public_losses=said.losses == "public",
        **{name: value for name in told if (value := getattr(said, name)) is not None},
    )
