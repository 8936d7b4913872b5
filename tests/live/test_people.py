"""Simulated people of a deployment: repeatable, and learned from as in a simulation, with and without a server."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import discreet
from discreet.live.charter import Charter
from discreet.live.people import Person, simulated_log, world, worth
from discreet.people.episodes import MDPSimulator
from discreet.privacy.noise import NoiseSource
from discreet.runs.experiment import Experiment, Setting
from discreet.runs.regret import RegretCurve
from discreet.runs.simulation import Clock, play, rollouts
from discreet.session import Session
from unsealed import unseal

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
WORLD = discreet.make("riverswim", 4, 8)


SHUFFLER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


def charter(model: str = "joint", users: int = 600, epsilon: float = 4.0, **problem: object) -> Charter:
    told = {"states": 4, "actions": 2, "horizon": 8, "pooled": True, "start": 0} | problem
    privacy: dict[str, object] = {"model": model, "epsilon": epsilon, "users": users}
    document: dict[str, object] = {"name": "river", "problem": told, "privacy": privacy}
    if model == "shuffle":
        privacy["delta"] = 1e-4
        key = SHUFFLER.public_key().public_bytes_raw().hex()
        document["shuffler"] = {"url": "http://127.0.0.1:9", "key": key}
    return Charter.from_document(document)


def test_what_happens_to_somebody_depends_on_her_name_alone():
    def lived(name: str) -> list[tuple[float, int]]:
        person = Person(WORLD, name)
        return [(person.step(1), person.state) for _ in range(8)]

    assert lived("a") == lived("a")
    assert len({tuple(lived(str(i))) for i in range(20)}) > 10


def test_people_move_and_earn_as_their_world_says():
    """4,000 first steps to the right, in the middle of the river: within four standard deviations of its law."""
    moved = np.zeros(4)
    for i in range(4000):
        person = Person(WORLD, str(i))
        person.state = 1
        person.step(1)
        moved[person.state] += 1
    law = WORLD.transitions[0, 1, 1]
    assert (np.abs(moved / 4000 - law) < 4 * np.sqrt(law * (1 - law) / 4000) + 1e-12).all()
    paid = np.zeros(2000)
    for i in range(2000):
        person = Person(WORLD, f"pay {i}")
        person.state = 0
        paid[i] = person.step(0)
    assert abs(paid.mean() - WORLD.rewards[0, 0, 0]) < 4 * np.sqrt(WORLD.rewards[0, 0, 0] / 2000)


def test_a_simulated_log_can_be_repeated_to_the_byte():
    def log(seed: str) -> list[bytes]:
        coins = NoiseSource.seeded(2)
        entries = simulated_log(charter("local", 200), WORLD, NoiseSource.seeded(1), KEY, seed=seed, coins=coins)
        return [entry.head for entry in entries]

    assert log("a") == log("a")
    assert log("a") != log("b")


def simulated(said: Experiment, seed: int) -> float:
    """The regret ratio of a simulation that breaks ties as deployments do, always in the same order."""
    place = Setting.of(said)
    session = Session.open(place.triple(0), place.problem, NoiseSource.seeded(seed))
    people = MDPSimulator(place.mdp, place.law, np.random.SeedSequence(seed).spawn(1)[0])
    curve = RegretCurve(place.mdp, said.episodes)
    for epoch in play(session, rollouts(people), Clock()):
        curve.add(*epoch.played)
    return float(curve.measured()["regret"][-1] / curve.measured()["random_regret"])


@pytest.mark.parametrize(("model", "epsilon"), [("joint", 4.0), ("local", 8.0), ("shuffle", 4.0)])
def test_regret_live_is_regret_simulated(model, epsilon, monkeypatch):
    """Means of twenty simulated logs and of forty simulations, within three standard errors of their difference; were
    rewards told a step late, they would be 28 apart."""
    unseal(monkeypatch)
    terms, shuffle = charter(model, epsilon=epsilon), model == "shuffle"
    live = [
        worth(
            simulated_log(
                terms,
                WORLD,
                NoiseSource.seeded(s),
                KEY,
                seed=str(s),
                coins=NoiseSource.seeded(90 + s),
                shuffler=SHUFFLER if shuffle else None,
            ),
            WORLD,
        ).regret_ratio
        for s in range(20)
    ]
    sizes = {"states": 4, "horizon": 8, "episodes": 600, "pooled": True, "delta": 1e-4 if shuffle else 0.0}
    said = Experiment("spotlight", epsilon=epsilon, model=model, **sizes)
    compared = [simulated(said, s) for s in range(40)]
    error = np.sqrt(np.var(live, ddof=1) / 20 + np.var(compared, ddof=1) / 40)
    assert abs(np.mean(live) - np.mean(compared)) < 3 * error
    assert max(np.mean(live), np.mean(compared)) < 0.7  # something is learned


def test_people_of_another_world_are_refused():
    with pytest.raises(ValueError, match=r"riverswim has 2 actions, and the charter 3; name another world \(--env\)"):
        world(charter(actions=3), "riverswim")
