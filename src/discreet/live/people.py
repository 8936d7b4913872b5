"""Simulated people for a deployment: what happens to somebody depends on her name alone, so that all can be repeated.

They visit over HTTP, as apps do (`visit`), or without any server, one after the other (`simulated_log`).
"""

from __future__ import annotations

import hashlib
import hmac
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from discreet.device import Noise
from discreet.device.announcements import Announcement, Entry, check_chain, decoded
from discreet.device.encoders import first_visit
from discreet.device.sampler import Randomness
from discreet.envs.registry import make
from discreet.live.charter import Charter
from discreet.live.deployment import (
    Enrol,
    State,
    admitted,
    decide,
    due,
    evolve,
    opening,
    recovered,
    seal,
)
from discreet.live.events import Event, Opened, signed
from discreet.live.overview import best_plan, table_of
from discreet.live.shuffling import Passed, analyzer, mixed, shuffled_encoder, statement
from discreet.mdp import FiniteMDP
from discreet.planning import optimal_plan, policy_value, uniform_policy
from discreet.privacy.noise import NoiseSource
from discreet.releases.reports import Targets

#: Why somebody has no ticket now and may have one later.
COME_BACK = ("the last people of an epoch are still reporting", "the next epoch has not been announced")
PAUSE = 0.05


class Person:
    """Somebody in a world: where she starts, where each step leads and whether it pays was settled by her name."""

    def __init__(self, mdp: FiniteMDP, name: str) -> None:
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "big")
        self.mdp, self.name = mdp, name
        self._chances = np.random.default_rng(seed).random((mdp.horizon + 1, 2))
        self._step = 0
        self.state = self._place(mdp.initial, self._chances[mdp.horizon, 0])

    @staticmethod
    def _place(row: Any, chance: float) -> int:
        return min(int((row.cumsum() <= chance).sum()), int(row.size) - 1)

    def step(self, action: int) -> float:
        """Go on; what the step paid."""
        mdp, stage = self.mdp, min(self._step, self.mdp.transitions.shape[0] - 1)
        moves, pays = self._chances[self._step]
        reward = float(pays < mdp.rewards[min(self._step, mdp.rewards.shape[0] - 1), self.state, action])
        self.state = self._place(mdp.transitions[stage, self.state, action], moves)
        self._step += 1
        return reward

    def walk(self, told: Announcement, ticket: bytes) -> tuple[list[int], list[int], list[float]]:
        """Her whole episode under an announcement, as encoders read it."""
        encoder, S, A = told.encoder, self.mdp.num_states, self.mdp.num_actions
        asked = first_visit(encoder)
        wanted = frozenset[int]() if asked is None else asked.wanted
        reported = encoder.tables.cells[0] in wanted  # where she started
        states, actions, rewards = [self.state], list[int](), list[float]()
        for h in range(self.mdp.horizon):
            action = told.action(h, self.state, reported, ticket)
            cell = (min(h, encoder.tables.stages - 1) * S + self.state) * A + action
            reported = reported or cell in wanted
            rewards.append(self.step(action))
            actions.append(action)
            states.append(self.state)
        return states, actions, rewards


# Without a server ---------------------------------------------------------------------------------------------------


def simulated_log(
    charter: Charter,
    mdp: FiniteMDP,
    noise: NoiseSource,
    key: Ed25519PrivateKey,
    *,
    seed: str = "",
    sends: Callable[[str, Announcement, bytes], bytes | None] = lambda name, told, payload: payload,
    coins: Randomness | None = None,
    shuffler: Ed25519PrivateKey | None = None,
) -> list[Entry]:
    """The log of a deployment to which people come one after the other until all tickets are out, each epoch being
    released before the next begins. A simulation: the noise is the caller's. `sends`: what somebody sends in place of
    her report; None if she leaves. `shuffler`: where the charter has one, its key."""
    state: State | None = None
    entries, coins = list[Entry](), Noise() if coins is None else coins

    def write(*events: Event) -> State:
        nonlocal state
        for event in events:
            number, head = (0, bytes(32)) if state is None else (state.number, state.head)
            entries.append(signed(key, number, head, event))
            state = evolve(state, entries[-1])
        assert state is not None
        return state

    hpke = None if shuffler is None else X25519PrivateKey.generate()
    sealed_for = None if hpke is None else hpke.public_key().public_bytes_raw()
    current, now, people = write(Opened(charter, key.public_key().public_bytes_raw(), sealed_for)), 0, 0
    payloads, between = list[bytes](), None if shuffler is None else SimulatedShuffler(shuffler, noise)
    while True:
        announcement = opening(current)
        if announcement is not None:
            current, payloads = write(announcement), []
        user = people.to_bytes(16, "big")
        decision = decide(current, Enrol(user, None), now)
        if decision.ticket is None:
            return entries
        current = state = admitted(current, decision.ticket)
        epoch = current.open[-1]
        told, name, ticket = epoch.announcement, f"{seed}/{people}", hmac.digest(b"ticket", user, "sha256")[:16]
        sent = sends(name, told, told.encoder.payload(*Person(mdp, name).walk(told, ticket), coins))
        payloads += [] if sent is None else [sent]
        people += 1
        if epoch.full:
            now = epoch.deadline
            assert due(current, now) is epoch
            if between is None or hpke is None:
                current = write(seal(current, epoch, payloads, noise))
                continue
            between.payloads += payloads
            told_in = next(entry for entry in reversed(entries) if entry.head == epoch.head)
            current = write(analyzer(between, hpke)(current, epoch, told_in, ()))


@dataclass
class SimulatedShuffler:
    """A shuffler that needs no network and keeps nothing on a disk."""

    key: Ed25519PrivateKey
    noise: NoiseSource
    payloads: list[bytes] = field(default_factory=list)
    came: int = 0

    def closed(self, announced: Entry) -> Passed | None:
        told = Announcement.from_event(announced.event)
        encoder, self.came = shuffled_encoder(told), self.came + told.size
        if self.came < encoder.bits.users:
            return None
        batch = mixed(encoder, self.payloads, self.noise)
        self.payloads, self.came = [], 0
        said = statement(encoder.task, hashlib.sha256(batch).digest(), encoder.batch_size)
        return Passed(batch, self.key.sign(said))


# What it was worth --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Worth:
    """Exact values in the world that people lived in: for simulations, never a private output."""

    best: float
    random: float
    learned: float  # by the plan after the last release
    regret_ratio: float  # of ticket holders, over that of acting at random
    releases: int


def worth(entries: Sequence[Entry], mdp: FiniteMDP) -> Worth:
    """What a log's instructions were worth to the people who followed them, and what was learned in the end."""
    shape = H, S, A = mdp.shape
    best, random = float(mdp.initial @ optimal_plan(mdp).value[0]), policy_value(mdp, uniform_policy(shape))
    state = recovered(entries, {})
    lost, people = 0.0, 0
    values: dict[bytes, float] = {}
    for entry in entries:
        if entry.event["event"] != "announced":
            continue
        told = Announcement.from_event(entry.event)
        known = repr((told.policy, told.after, told.encoder)).encode()
        if known not in values:
            values[known] = _value(told, mdp, (H, S, A))
        lost, people = lost + told.size * (best - values[known]), people + told.size
    ratio = lost / (people * (best - random)) if people else 1.0
    return Worth(
        best, random, policy_value(mdp, np.ascontiguousarray(best_plan(state.course))), ratio, state.released
    )


def _value(told: Announcement, mdp: FiniteMDP, shape: tuple[int, int, int]) -> float:
    asked = first_visit(told.encoder)
    policy = np.ascontiguousarray(table_of(told.policy, shape))
    if told.after is None or asked is None:
        return policy_value(mdp, policy)
    stages = asked.tables.stages
    cells = np.zeros(stages * shape[1] * shape[2] + asked.has_start, dtype=np.bool_)
    cells[sorted(asked.wanted)] = True
    return policy_value(mdp, policy, Targets(cells, table_of(told.after, shape), 1, stages))


# Over HTTP ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Visit:
    """What became of people who visited."""

    people: int
    tickets: int
    spectators: dict[str, int]  # by reason
    mean_return: float | None  # of ticket holders
    seconds: float
    entries: int
    worth: Worth

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        rate = self.people / max(self.seconds, 1e-9)
        lines = [f"{self.people:,} people came, {rate:,.0f} per second, {self.tickets:,} of them with a ticket"]
        lines += [f"spectators: {number:,} because {reason}" for reason, number in self.spectators.items()]
        found = self.worth
        lines.append(
            f"after {found.releases:,} releases the plan is worth {found.learned:.3f} (best {found.best:.3f}, at "
            f"random {found.random:.3f}); ticket holders had {found.regret_ratio:.3f} of the random policy's regret"
        )
        return lines


def visit(
    url: str,
    token: str,
    people: int,
    env: str | FiniteMDP = "riverswim",
    instance: int = 0,
    threads: int = 8,
    first: int = 0,
    came: Callable[[], None] = lambda: None,
) -> Visit:
    """So many people, some at the same time. Those who find an epoch draining come back until it is over."""
    from discreet.client import connect

    began = time.monotonic()
    opening_entry = published(url, token, 0, 1)[0]
    charter = Charter.from_document(opening_entry.event["charter"])
    mdp = world(charter, env, instance)
    with (
        tempfile.TemporaryDirectory(prefix="discreet-visit-") as folder,
        connect(
            url,
            token,
            epsilon_at_most=charter.epsilon,
            delta_at_most=charter.delta,
            honest=charter.honest,
            default=0,
            cache=folder,
        ) as agent,
    ):
        play = partial(_visited, agent, mdp, came)
        with ThreadPoolExecutor(threads) as pool:
            outcomes = list(pool.map(play, (f"{mdp.name}-{first + i}" for i in range(people))))
        agent.deliver()
    seconds = time.monotonic() - began
    time.sleep(charter.patience / 1000 + 1.0)  # so that the last epoch is released, if it is full
    entries = published(url, token)
    check_chain(entries, decoded("key", opening_entry.event["key"]))
    returns = [earned for reason, earned in outcomes if reason is None]
    reasons = Counter(reason for reason, _ in outcomes if reason is not None)
    mean = float(np.mean(returns)) if returns else None
    return Visit(people, len(returns), dict(reasons), mean, seconds, len(entries), worth(entries, mdp))


def published(url: str, token: str, start: int = 0, most: int | None = None) -> list[Entry]:
    """The public log of the deployment that is served there."""
    from discreet.client.service import Down, Rejected, Service

    service, entries = Service(url, token, 30.0, 0.0, True), list[Entry]()
    try:
        while most is None or len(entries) < most:
            count = 1000 if most is None else most - len(entries)
            found = service.get(f"/v1/log?from={start + len(entries)}&count={count}")["entries"]
            if not found:
                break
            entries += map(Entry.from_json, found)
    except (Down, Rejected, KeyError):
        raise ValueError(f"no deployment answers at {url}; start it with: discreet serve FILE.toml") from None
    finally:
        service.close()
    return entries


def world(charter: Charter, env: str | FiniteMDP, instance: int = 0) -> FiniteMDP:
    """An environment with the sizes of a charter."""
    mdp = make(env, charter.num_states, charter.horizon, instance)
    if mdp.num_actions != charter.num_actions:
        raise ValueError(
            f"{mdp.name} has {mdp.num_actions} actions, and the charter {charter.num_actions}; "
            "name another world (--env)"
        )
    return mdp


def _visited(agent: Any, mdp: FiniteMDP, came: Callable[[], None], name: str) -> tuple[str | None, float]:
    """(why she was a spectator, what she earned)"""
    while True:
        with agent.episode(name) as episode:
            if episode.spectator in COME_BACK:
                time.sleep(PAUSE)
                continue
            person, earned = Person(mdp, name), 0.0
            for _ in range(mdp.horizon):
                action = agent.terms.action(episode.act(person.state))
                reward = person.step(action)
                episode.reward(reward)
                earned += reward
            episode.end(person.state)
            came()
            return episode.spectator, earned
