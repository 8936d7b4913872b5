"""One learner among people: plan → announce → add people → release, pushed by whoever has people.

A simulation (`runs/`), `learn`, a game against an adversary and a deployment all call the same session. It owns the
stream, and with it the guarantee; how many people have come; and the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from discreet.agents.sparse_spotlight import bytes_needed
from discreet.catalog import Triple
from discreet.device.losses import Feedback
from discreet.mdp import Floats, distributions
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.people.losses import LossSpec
from discreet.planning import Agent, Announcement, Plan
from discreet.privacy.accounting import Guarantee
from discreet.privacy.noise import NoiseSource
from discreet.privacy.protocol import Announced, Stream
from discreet.problem import Problem
from discreet.releases.reports import Targets
from discreet.runs import memory
from discreet.schedules import Schedule, TwoClocks

#: Rows of a policy may miss 1 by this much: they may have been computed in single precision.
POLICY_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Epoch:
    """What is public before the people of an epoch arrive: what they follow, and how many they are."""

    plan: Plan
    start: int  # people before it
    users: int

    @property
    def announcement(self) -> Announcement | None:
        return self.plan.announcement

    @property
    def targets(self) -> Targets | None:
        """Those with another policy for after the report; None where everybody follows one policy throughout."""
        told = self.plan.announcement
        return told if isinstance(told, Targets) and told.after is not None else None

    @property
    def played(self) -> tuple[Any, ...]:
        """(policy, users), and the targets where there are some; actions (H, S) where they say all of the policy."""
        plan, targets = self.plan, self.targets
        if targets is not None:
            return plan.policy, self.users, targets
        return (plan.policy if plan.actions is None else plan.actions), self.users

    @property
    def instructions(self) -> tuple[Any, ...]:
        """The policy, and the targets where they say when to leave it: what a `Simulator` lets people follow."""
        targets = self.targets
        return (self.plan.policy,) if targets is None else (self.plan.policy, targets)


def statistic(problem: Problem, feedback: Feedback | None = None) -> CountSpec | LossSpec:
    """What an episode becomes: sums of visits, transitions and rewards, or of an adversary's losses."""
    if feedback is None:
        sizes = problem.num_states, problem.num_actions, problem.horizon
        return CountSpec.for_episodes(*sizes, problem.pooled, problem.num_episodes, problem.reward_range)
    return LossSpec.for_episodes(problem.layers, feedback, problem.num_episodes)


def _followable(plan: Any) -> Plan:
    """A learner's plan, refused unless people could follow it: probabilities, and how many are to follow."""
    if not hasattr(plan, "users"):
        raise ValueError(f"the learner planned a {type(plan).__name__}; expected a discreet.Plan")
    users = plan.users
    if users is not None and not (isinstance(users, (int, np.integer)) and users > 0):
        raise ValueError(f"the plan is for {users} people; expected a whole number above 0, or None")
    if type(plan) is Plan and plan.actions is None:  # other kinds are ours, and actions are a policy by themselves
        sums = plan.policy.sum(axis=-1)
        if not (plan.policy.min() >= 0 and np.abs(sums - 1.0).max() <= POLICY_TOLERANCE):
            distributions("policy", plan.policy)
    return plan  # type: ignore[no-any-return]


class Session:
    """`announce` an epoch, `add` its people one or many at a time, `release` once all have come; again, until
    `num_episodes` people have come and the session has `ended`.

    An epoch's plan and size are fixed before anybody arrives, and its places are filled in any portions: whoever
    leaves without a record is added as one who contributes nothing (`Episodes.silent`). Every step checks that it is
    its turn. What is announced depends on releases only, so that `announce` needs no privacy.
    """

    def __init__(
        self,
        agent: Agent[Any],
        stream: Stream[Any],
        schedule: Schedule,
        num_episodes: int,
        told: Sequence[str] = (),
    ) -> None:
        self.num_episodes, self.done = num_episodes, 0
        self.room = 0  # how many people the open epoch still waits for
        self._agent, self._stream, self._schedule, self._told = agent, stream, schedule, told
        self._last: Any = None  # release
        self._plan: Plan | None = None
        self._epoch: Epoch | None = None
        self._announced = isinstance(stream, Announced)

    @classmethod
    def open(cls, learner: Triple, problem: Problem, noise: NoiseSource, feedback: Feedback | None = None) -> Session:
        """Open the learner's stream; `feedback`: what is seen of an adversary's losses, where there is one."""
        privatizer: Any = learner.privatizer
        spec, K = statistic(problem, feedback), problem.num_episodes
        needed = bytes_needed(learner.agent, problem.shape, 1 if problem.pooled else problem.horizon)
        advice = "take fewer states or steps, pool the steps, or trust one curator, who need not hold all reports"
        memory.require(needed, f"reports on {problem.num_states:,} states and {problem.num_actions} actions", advice)
        stream = privatizer.open(*((spec,) if isinstance(spec, LossSpec) else (spec, K)), noise)
        return cls(learner.agent, stream, learner.schedule, K, problem.assumptions())

    @property
    def plan(self) -> Plan | None:
        """What people follow, or followed last; None before anything was announced."""
        return self._plan

    @property
    def guarantee(self) -> Guarantee:
        """That of the stream people enter, with what the learner was told beside its own assumptions."""
        own = self._stream.guarantee
        return replace(own, assumptions=tuple(dict.fromkeys((*own.assumptions, *self._told))))

    @property
    def ended(self) -> bool:
        """Whether everybody has come. The last epoch may still be released; nobody is left to play another."""
        return self.done == self.num_episodes

    def announce(self) -> Epoch:
        """The open epoch, planned from the last release; the same until it is released."""
        if self._epoch is None:
            if self.ended:
                raise ValueError(f"all {self.num_episodes:,} people have come; nobody is left for another epoch")
            if self._plan is None:
                self._last = self._stream.release()
            plan = _followable(self._agent.plan(self._last, self._plan))
            users = min(plan.users or self._schedule.length(self.done), self.num_episodes - self.done)
            if self._announced:
                self._stream.begin(plan)  # type: ignore[attr-defined]
            self._plan, self._epoch, self.room = plan, Epoch(plan, self.done, users), users
        return self._epoch

    def add(self, people: Episodes | Counts, *losses: Floats) -> None:
        """People of the open epoch who have not been seen before; against an adversary, with their loss tables."""
        if self.ended:
            raise ValueError(f"all {self.num_episodes:,} people have come; nobody else can be added")
        if self._epoch is None:
            raise ValueError("no epoch is open; announce one before people are added")
        users = people.num_episodes if isinstance(people, Counts) else len(people)
        if users > self.room:
            raise ValueError(f"{users:,} came and the open epoch has room for {self.room:,}; nobody was added")
        self._stream.add(people, *losses)
        self.done += users
        self.room -= users

    def release(self) -> Any:
        """Close the open epoch, whose noise is drawn here, once; its release, on which the next plan rests."""
        if self._epoch is None:
            raise ValueError("no epoch is open; announce one and add its people before it is released")
        if self.room:
            raise ValueError(
                f"the open epoch still waits for {self.room:,} of {self._epoch.users:,} people; add those who do not "
                f"report as people who contribute nothing"
            )
        if isinstance(self._schedule, TwoClocks):
            counts, losses = self._schedule.due(self.done)
            if counts:
                self._stream.close_counts()  # type: ignore[attr-defined]
            if losses:
                self._stream.close_losses()  # type: ignore[attr-defined]
        self._epoch, self._last = None, self._stream.release()
        return self._last

    def __repr__(self) -> str:
        return f"Session({self.done:,} of {self.num_episodes:,} people)"
