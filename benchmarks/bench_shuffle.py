"""Policy enumeration, the noise of shuffled bits, and the speed of a shuffler."""

from __future__ import annotations

import math

import numpy as np

from discreet.agents.policy_elimination import Policies
from discreet.people.counts import CountSpec
from discreet.privacy.accounting import Budget
from discreet.privacy.binomial import fewest_fair_bits, printed_bits
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.shuffle import Shuffle
from discreet.privacy.trust.shuffler import Shuffler, tally
from discreet.problem import PublicStructure
from measuring import Row, cpu_seconds, row


def enumeration() -> Row:
    """All 2¹⁹ deterministic policies of S=6, A=2, H=4 from one start."""
    H, S, A = shape = 4, 6, 2
    rng = np.random.default_rng(0)
    rows, rewards = rng.dirichlet(np.ones(S), size=(H, S, A)), rng.random(shape)
    policies = Policies.of(shape, PublicStructure(np.eye(S)[0]))
    policies.values(rows, rewards)
    seconds = cpu_seconds(lambda: policies.values(rows, rewards), 5)
    return row("policies evaluated, S=6 A=2 H=4", policies.count / seconds, 1e6, "fixed", "policies/s", 1.0)


def noise() -> list[Row]:
    """Standard deviations at H = 3, ε = 1, δ = 10⁻⁶; smaller is better, so the ratio is theirs over ours."""
    down = up = 9
    exact = math.sqrt(fewest_fair_bits(down, up, 1.0, 1e-6)) / 2.0
    share = 1.0 / (down + up), 1e-6 / (down + up)  # basic composition
    found = []
    for bits, name, target in (
        (fewest_fair_bits(1, 0, *share), "basic composition, exact single counters", 4.0),
        (printed_bits(*share), "basic composition of the printed τ", 15.0),
    ):
        other = math.sqrt(bits) / 2.0
        what = "noise sd of shuffled counts, H=3, ε=1, δ=1e-6"
        found.append(row(what, exact, other, name, "sd", target, less=True))
    return found


def protocol() -> Row:
    """Messages through all three roles in one process: encode, shuffle, verify and count."""
    spec, users = CountSpec(3, 2, 6, True, 1.0), 400
    encoder = Shuffle(Budget.approximate(1.0, 1e-6)).open(spec, users, NoiseSource.secure()).encoder(users)
    source = NoiseSource.secure()
    states, actions, rewards = np.zeros(7, dtype=np.int64), np.zeros(6, dtype=np.int64), np.ones(6)

    def work() -> None:
        shuffler = Shuffler(encoder, source)
        for _ in range(users):
            messages = encoder.encode(states, actions, rewards, source, epsilon_at_most=1.0, delta_at_most=1e-6)
            shuffler.submit(messages, encoder.form)
        tally(encoder, shuffler.flush())

    work()
    rate = users * encoder.messages_per_user / cpu_seconds(work)
    return row("messages encoded, shuffled and counted", rate, 2.5e5, "fixed", "messages/s", 1.0)


def rows() -> list[Row]:
    return [enumeration(), *noise(), protocol()]


if __name__ == "__main__":
    for line in rows():
        print(line)
