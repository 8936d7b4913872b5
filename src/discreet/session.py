"""Two ways to let users play: the general loop of every learner, and a compiled one for UCBVI without noise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.agents.ucbvi import UCBVI
from discreet.bonuses import Azar
from discreet.catalog import Triple
from discreet.envs.rewards import RewardLaw
from discreet.kernels import loop as kernel
from discreet.mdp import Floats, Ints
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import NO_COINS, MDPSimulator, Simulator
from discreet.planning import Plan, tie_order
from discreet.privacy.protocol import Announced, Stream
from discreet.privacy.sums.exact import Exact
from discreet.releases.reports import Targets
from discreet.schedules import EveryEpisode

#: Episodes simulated at once by the compiled loop, and at most by one rollout: bounds memory, changes no number.
CHUNK = 16_384
#: Policies handed over at once by the general loop.
BATCH = 256


@dataclass(frozen=True)
class Played:
    """One policy and the number of consecutive users who played it, up to their report where `targets` say so."""

    policy: Floats | Ints  # (H, S, A) probabilities or (H, S) actions
    users: int
    targets: Targets | None = None  # only where they announce another policy for after the report


class Clock:
    """CPU seconds of the loop; what happens while it is stopped does not count."""

    def __init__(self) -> None:
        self.seconds, self._since = 0.0, 0.0

    def __enter__(self) -> None:
        self._since = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._since


def play(
    triple: Triple, stream: Stream[Any], simulator: Simulator, num_episodes: int, clock: Clock
) -> Iterator[Played]:
    """Release, plan, let users play, add: the one loop of every learner. The stream is one that the triple's
    privatizer has opened; its guarantee is that of the run.

    Policies are handed over in batches, outside the clock (reading it is slow on some systems).
    """
    agent, _, schedule = triple
    done, played = 0, list[Played]()
    plan: Plan | None = None
    announced = isinstance(stream, Announced)
    while done < num_episodes:
        with clock:
            while done < num_episodes and len(played) < BATCH:
                plan = agent.plan(stream.release(), plan)
                users = min(plan.users or schedule.length(done), num_episodes - done)
                if announced:
                    stream.begin(plan)  # type: ignore[attr-defined]
                switch = switching(plan)
                for start in range(0, users, CHUNK):
                    stream.add(simulator.rollout(plan.policy, min(CHUNK, users - start), *switch))
                policy = plan.policy if plan.actions is None or switch else plan.actions
                played.append(Played(policy, users, *switch))
                done += users
        yield from played
        played.clear()


def switching(plan: Plan) -> tuple[Targets, ...]:
    """The targets of a plan with another policy for after the report; of other plans nothing."""
    targets = plan.announcement
    return (targets,) if isinstance(targets, Targets) and targets.after is not None else ()


def compilable(triple: Triple, spec: CountSpec, law: RewardLaw, num_episodes: int) -> bool:
    """Whether the compiled loop computes exactly what the general one would."""
    agent, privatizer, schedule = triple
    if not (isinstance(agent, UCBVI) and isinstance(agent.estimate, Azar) and isinstance(privatizer, Exact)):
        return False
    most_visits = num_episodes * (spec.horizon if spec.pooled else 1)
    shape = (spec.horizon, spec.num_states, spec.num_actions)
    saturated = agent.estimate.kind == "hoeffding" or most_visits <= agent.estimate.saturated_until(shape)
    plain = law.bounded and law.scale == 1.0 and spec.reward_range == (0.0, 1.0)
    return isinstance(schedule, EveryEpisode) and saturated and plain


def play_compiled(
    agent: UCBVI, simulator: MDPSimulator, spec: CountSpec, num_episodes: int, clock: Clock
) -> Iterator[Played]:
    """The same run as `play` with Exact counts and a plan for every user, without leaving compiled code."""
    assert isinstance(agent.estimate, Azar)
    shape = H, S, _ = spec.horizon, spec.num_states, spec.num_actions
    coefficients = agent.estimate.coefficients(shape)
    counts = Counts.zeros(spec)
    model = np.full(counts.transitions.shape, 1.0 / S)
    rewards, per_std = np.zeros(counts.visits.shape), np.zeros(counts.visits.shape)
    fixed = np.full(counts.visits.shape, np.inf)
    ceiling = np.full(shape, np.inf)
    actions = np.full((H, S), -1, dtype=np.int64)
    quality, values = np.empty(shape), np.empty((H + 1, S))
    chunk = max(1, min(CHUNK, 4_000_000 // (H * S)))
    for start in range(0, num_episodes, chunk):
        n = min(chunk, num_episodes - start)
        with clock:
            policies = np.empty((n, H, S), dtype=np.int64)
            lengths = np.zeros(n, dtype=np.int64)
            filled = kernel.ucbvi(
                simulator.cumulative,
                simulator.mdp.rewards,
                simulator.cumulative_initial,
                simulator.uniforms(n),
                simulator.reward_noise.random((n, H)) if simulator.law.tossed else NO_COINS,
                spec.grid,
                coefficients,
                agent.monotone,
                tie_order(shape, agent.tie_seed),
                counts.visits,
                counts.transitions,
                counts.reward_sums,
                model,
                rewards,
                fixed,
                per_std,
                ceiling,
                quality,
                values,
                actions,
                policies,
                lengths,
            )
        for i in range(filled):
            yield Played(policies[i], int(lengths[i]))
