"""Simulated people: pushed into a session, or, for UCBVI without noise, through one compiled loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from discreet.agents.ucbvi import UCBVI
from discreet.bonuses import Azar
from discreet.catalog import Triple
from discreet.envs.rewards import RewardLaw
from discreet.kernels import loop as kernel
from discreet.mdp import Ints
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import NO_COINS, MDPSimulator, Simulator
from discreet.planning import tie_order
from discreet.privacy.sums.exact import Exact
from discreet.schedules import EveryEpisode
from discreet.session import Epoch, Session

#: Episodes simulated at once: bounds memory, changes no number.
CHUNK = 16_384
#: Epochs, and people, after which what was played is handed over: the clock is read that often.
BATCH, PORTION = 64, 2048
#: Numbers in the policies of such epochs: with very many states fewer epochs wait.
HELD = 1 << 23
#: Who comes next: at most so many people (the number) of an epoch; None when nobody comes any more.
Arrivals: TypeAlias = Callable[[Epoch, int], tuple[Any, ...] | None]


class Clock:
    """CPU seconds of the loop; what happens while it is stopped does not count."""

    def __init__(self) -> None:
        self.seconds, self._since = 0.0, 0.0

    def __enter__(self) -> None:
        self._since = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time() - self._since

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()


def rollouts(simulator: Simulator) -> Arrivals:
    """Simulated people, who are always there."""

    def arrive(epoch: Epoch, room: int) -> tuple[Any, ...]:
        policy, *targets = epoch.instructions
        return (simulator.rollout(policy, min(room, CHUNK), *targets),)

    return arrive


def play(session: Session, arrive: Arrivals, clock: Clock) -> Iterator[Epoch]:
    """Push people until the session has ended, or nobody comes any more; the epochs, once they were played.

    Epochs are handed over in batches, outside the clock (reading it is slow on some systems).
    """
    coming = True
    while coming and not session.ended:
        played, start, held = list[Epoch](), session.done, 0
        with clock:
            while (
                coming
                and not session.ended
                and len(played) < BATCH
                and session.done - start < PORTION
                and held < HELD
            ):
                played.append(session.announce())
                held += played[-1].plan.policy.size
                while coming and session.room:
                    people = arrive(played[-1], session.room)
                    if people is None:
                        coming = False
                    else:
                        session.add(*people)
                if coming and not session.ended:  # nobody is left who could follow another plan
                    session.release()
        yield from played


def compilable(triple: Triple, spec: CountSpec, law: RewardLaw, num_episodes: int) -> bool:
    """Whether the compiled loop computes exactly what a session would."""
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
) -> Iterator[tuple[Ints, int]]:
    """What `play` does with Exact counts and a plan for every user, without leaving compiled code: policies, and how
    many consecutive users played each."""
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
        yield from zip(policies[:filled], lengths[:filled].tolist(), strict=True)
