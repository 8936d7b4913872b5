"""Local reports: exact ratios over all answers, the law of sums, and messages that are not counted."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from discreet.device import Report, ReportEncoder, Tables
from discreet.people.counts import Counts, CountSpec
from discreet.people.episodes import Episodes
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust import local
from discreet.privacy.trust.local import kept_words, summed_messages, unary_flips
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.reports import encoded
from discreet.problem import PublicStructure
from discreet.releases.reports import Targets, UserNoise
from discreet.runs.experiment import Experiment, run
from oracles_spotlight import announced

WORD = 2**64
TABLES = Tables(2, 2, 2, 1, 1.0, (0.0, 1.0))
KNOWN_START = PublicStructure(initial=np.array([1.0, 0.0]))


def encoder_of(method: str, size: int, epsilon: float) -> ReportEncoder:
    words = unary_flips(epsilon) if method == "unary" else kept_words(epsilon, size + 1)
    return ReportEncoder(TABLES, tuple(range(size)), method, words, "v1")


def message_law(encoder: ReportEncoder, answer: int) -> dict[tuple[int, ...], Fraction]:
    """Exact probability of every message, from the words the encoder compares with."""
    size = len(encoder.items)
    share = Fraction(encoder.words, WORD)
    if encoder.method == "response":
        stray = (1 - share) / (size + 1)
        truth = size if answer < 0 else answer
        return {(m,): stray + (share if m == truth else 0) for m in range(size + 1)}
    law = {}
    for bits in itertools.product((0, 1), repeat=size):
        p = Fraction(1)
        for place, bit in enumerate(bits):
            on = Fraction(1, 2) if place == answer else share
            p *= on if bit else 1 - on
        law[bits] = p
    return law


@pytest.mark.parametrize("method", ["unary", "response"])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_worst_ratio_over_all_messages_and_answers_is_epsilon(method, size, epsilon):
    encoder = encoder_of(method, size, epsilon)
    laws = [message_law(encoder, answer) for answer in range(-1, size)]
    assert all(sum(law.values()) == 1 for law in laws)
    worst = max(p[m] / q[m] for p in laws for q in laws for m in p)
    assert math.log(worst) <= epsilon
    assert math.log(worst) == pytest.approx(epsilon, abs=1e-9)
    assert encoder.epsilon == pytest.approx(math.log(worst), abs=1e-12)


@pytest.mark.parametrize(("method", "size"), [("unary", 5), ("response", 3)])
def test_messages_follow_that_law(method, size):
    """Chi-square of 20 000 messages per answer against the exact law; of another ε it is refuted."""
    encoder, other = encoder_of(method, size, 1.0), encoder_of(method, size, 1.3)
    n = 20_000
    for answer in (-1, 0, size - 1):
        messages = encoder.randomise(np.full(n, answer), NoiseSource.seeded(answer + 5))
        keys = [tuple(int(b) for b in np.atleast_1d(m)) for m in messages]
        law, wrong = message_law(encoder, answer), message_law(other, answer)

        def distance(law, keys=keys):
            return sum((keys.count(k) - n * float(p)) ** 2 / (n * float(p)) for k, p in law.items())

        degrees = len(law) - 1
        assert distance(law) < degrees + 5 * math.sqrt(2 * degrees)
        assert distance(wrong) > degrees + 10 * math.sqrt(2 * degrees)


@pytest.mark.parametrize("method", ["unary", "response"])
def test_estimates_are_unbiased(method):
    """Put the exact expectation of the tally in, get the users at every item out."""
    encoder = encoder_of(method, 3, 1.0)
    users = {-1: 50, 0: 30, 1: 20, 2: 0}
    expected = np.zeros(3)
    for answer, count in users.items():
        for message, p in message_law(encoder, answer).items():
            named = np.array(message) if method == "unary" else np.eye(4)[message[0]][:3]
            expected += count * float(p) * named
    assert encoder.unbiased(expected, 100) == pytest.approx([30.0, 20.0, 0.0], abs=1e-9)


@pytest.mark.parametrize("method", ["unary", "response"])
def test_sums_drawn_at_once_have_the_law_of_sums_of_messages(method, monkeypatch):
    """Means, variances and covariances of 3 000 tallies, one path against the other; half the users would be seen."""
    encoder = encoder_of(method, 3, 1.0)
    answers = np.array([-1] * 10 + [0] * 25 + [1] * 5)
    rounds = 3000

    def tallies(seed):
        noise = NoiseSource.seeded(seed)
        return np.array([summed_messages(encoder, answers, noise) for _ in range(rounds)], dtype=float)

    quick = tallies(1)
    monkeypatch.setattr(local, "COMPOUND", 10**9)
    slow = tallies(2)
    error = np.sqrt((quick.var(axis=0) + slow.var(axis=0)) / rounds)
    assert (np.abs(quick.mean(axis=0) - slow.mean(axis=0)) < 5 * error).all()
    assert (np.abs(quick.mean(axis=0) / 2 - slow.mean(axis=0)) > 50 * error).all()
    spread = np.cov(slow.T)
    scale = np.sqrt(np.outer(np.diag(spread), np.diag(spread)))
    assert (np.abs(np.cov(quick.T) - spread) < 5 * scale * math.sqrt(4 / rounds)).all()
    assert (np.abs(0.7 * np.diag(spread) - np.diag(spread)) > 5 * np.diag(scale) * math.sqrt(4 / rounds)).all()


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_smaller_variance_is_chosen_in_public(epsilon):
    law, ratio = UserNoise(epsilon), math.exp(epsilon)
    for items in range(1, 200):
        unary, response = 4 * ratio / (ratio - 1) ** 2, (items - 1 + ratio) / (ratio - 1) ** 2
        assert law.per_user(items) == pytest.approx(min(unary, response))
        assert law.unary(items) == (items + 1 >= 3 * ratio + 2)


def opened(epsilon=1.0, limit=60_000, pooled=True):
    spec = CountSpec(2, 2, 2, pooled, 1.0)
    return LocalReports(Budget.pure(epsilon), KNOWN_START).open(spec, limit, NoiseSource.seeded(0)), spec


@pytest.mark.parametrize(("epsilon", "cells"), [(1.0, (0, 1, 2)), (3.0, (0,))])
def test_released_counts_have_the_stated_noise(epsilon, cells):
    """Nobody is at item s'=1, bit=1 of cell 0: its estimates scatter around 0 with variance ν·n."""
    stream, _ = opened(epsilon)
    n, rounds = 50, 1000
    episodes = Episodes(np.zeros((n, 3), int), np.zeros((n, 2), int), np.zeros((n, 2)))
    seen = []
    for _ in range(rounds):
        stream.begin(announced(stream.alphabet, cells))
        stream.add(episodes)
        release = stream.release()
        seen.append(release.histogram[0])
    values = np.array(seen)
    error = np.sqrt(values.var(axis=0) / rounds)
    assert (np.abs(values.mean(axis=0) - [n, 0, 0, 0]) < 5 * error).all()
    assert release.variance == pytest.approx(stream._law.per_user(4 * len(cells)) * n)
    share = values[:, 3].var() / release.variance
    assert abs(share - 1) < 5 * math.sqrt(2 / rounds)
    assert release.users == n


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("public_start", [True, False])
def test_the_device_finds_the_answer_the_simulation_finds(pooled, public_start):
    S, A, H = 3, 2, 4
    spec = CountSpec(S, A, H, pooled, 1.0, (-1.0, 1.0))
    rng = np.random.default_rng(4)
    facts = PublicStructure(initial=np.eye(S)[0] if public_start else None)
    stream = LocalReports(Budget.pure(1.0), facts).open(spec, 100, NoiseSource.seeded(0))
    episodes = Episodes(
        rng.integers(S, size=(60, H + 1)), rng.integers(A, size=(60, H)), 2.0 * rng.integers(2, size=(60, H)) - 1.0
    )
    for round_ in range(6):
        cells = np.flatnonzero(rng.random(stream.alphabet.num_rows) < 0.3)
        cells = np.append(cells, stream.alphabet.num_rows - 1) if round_ == 0 else cells[:3]
        if not cells.size:
            continue
        stream.begin(announced(stream.alphabet, cells))
        wanted = np.zeros(stream.alphabet.num_rows, dtype=bool)
        wanted[cells] = True
        items = encoded(episodes, spec, stream.alphabet, Targets(wanted), 1, NoiseSource.seeded(1))[:, 0]
        device = ReportEncoder.from_json(stream.encoder.to_json())
        for i, item in enumerate(items):
            answer = device.answer(
                episodes.states[i], episodes.actions[i], episodes.rewards[i], NoiseSource.seeded(2)
            )
            assert (-1 if answer < 0 else device.items[answer]) == item


@pytest.mark.parametrize(("epsilon", "method"), [(0.2, "unary"), (4.0, "response")])
def test_messages_from_devices_are_counted_like_simulated_users(epsilon, method):
    stream, _ = opened(epsilon)
    stream.begin(announced(stream.alphabet, (0, 1)))
    assert stream.encoder.method == method
    noise = NoiseSource.seeded(9)
    total = np.zeros(8)
    for i in range(300):
        message = stream.encoder.encode(f"user {i}", [0, 0, 0], [0, 0], [0.0, 0.0], noise, epsilon_at_most=9.0)
        message = Report.from_bytes(message.to_bytes())
        total += stream.encoder.values(message)
        stream.add_report(message)
    assert np.array_equal(stream._tally, total)
    release = stream.release()
    assert release.users == release.num_episodes == 300
    assert abs(release.histogram[0, 0] - 300) < 6 * math.sqrt(release.variance + 300)


def test_messages_for_other_targets_or_policies_and_second_ones_are_refused():
    stream, _ = opened()
    H, S, A = 2, 2, 2
    first = np.full((H, S, A), 0.5)
    second = first.copy()
    second[0, 0] = [0.9, 0.1]
    noise = NoiseSource.seeded(1)
    stream.begin(announced(stream.alphabet, (0,), first))
    late = stream.encoder.encode("late", [0, 0, 0], [0, 0], [0.0, 0.0], noise, epsilon_at_most=9.0)
    stream.begin(announced(stream.alphabet, (1,), first))  # other targets
    with pytest.raises(ValueError, match="other targets or another policy"):
        stream.add_report(late)
    stream.begin(announced(stream.alphabet, (0,), second))  # the same targets, another policy
    with pytest.raises(ValueError, match="other targets or another policy"):
        stream.add_report(replace(late, user="as late"))
    fine = stream.encoder.encode("anna", [0, 0, 0], [0, 0], [0.0, 0.0], noise, epsilon_at_most=9.0)
    stream.add_report(fine)
    with pytest.raises(ValueError, match="already sent"):
        stream.add_report(fine)
    again = stream.encoder.encode("anna", [0, 1, 0], [0, 1], [0.0, 1.0], noise, epsilon_at_most=9.0)
    stream.release()
    stream.begin(announced(stream.alphabet, (0,), second))
    with pytest.raises(ValueError, match="already sent"):
        stream.add_report(again)  # nor in a later epoch
    good = stream.encoder.encode("bert", [0, 0, 0], [0, 0], [0.0, 0.0], noise, epsilon_at_most=9.0)
    for name, payload in (("carl", b""), ("dora", good.payload + b"\0"), ("emil", b"\xff" * len(good.payload))):
        with pytest.raises(ValueError, match="other targets or another policy"):
            stream.add_report(Report(name, good.form, payload))
    stream.add_report(good)
    with pytest.raises(ValueError, match="have reported"):
        stream.begin(announced(stream.alphabet, (1,), second))


def test_what_has_no_local_form_is_refused():
    with pytest.raises(ValueError, match="any two users"):
        LocalReports(Budget.pure(1.0), neighbours="zero-out")
    with pytest.raises(ValueError, match="pure"):
        LocalReports(Budget.approximate(1.0, 1e-6))
    stream, spec = opened(limit=1)
    with pytest.raises(ValueError, match="no targets"):
        stream.add(Episodes(np.zeros((1, 3), int), np.zeros((1, 2), int), np.zeros((1, 2))))
    with pytest.raises(ValueError, match="empty"):
        stream.begin(announced(stream.alphabet, ()))
    stream.begin(announced(stream.alphabet, (0,)))
    with pytest.raises(ValueError, match="exceed the 1"):
        stream.add(Episodes(np.zeros((2, 3), int), np.zeros((2, 2), int), np.zeros((2, 2))))
    with pytest.raises(TypeError, match="Episodes"):
        stream.add(Counts.zeros(spec))
    for wrong in ({"items": (1, 1)}, {"items": ()}, {"method": "hash"}, {"words": 2**63}):
        with pytest.raises(ValueError, match="must be"):
            ReportEncoder(**{**encoder_of("unary", 2, 1.0).__dict__, **wrong})
    assert stream.guarantee.model == "local"
    assert stream.guarantee.epsilon == 1.0


def test_it_learns_without_a_curator():
    experiment = Experiment(
        "spotlight", env="riverswim", states=3, horizon=6, episodes=10_000, pooled=True, epsilon=4.0, model="local"
    )
    ratios = [run(experiment, seed).regret_ratio for seed in range(3)]
    assert max(ratios) < 0.12  # measured: .03; the random policy has 1
