"""What strangers can do to shuffled bits: odd batch sizes, published numbers that were edited, records that are none,
messages that are none. Nobody else may notice, and no stated epsilon may be exceeded.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.batches import Batch
from discreet.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy import binomial
from discreet.privacy.accounting import Budget
from discreet.privacy.client import Tables
from discreet.privacy.noise import NoiseSource
from discreet.privacy.shuffle import Shuffle, ShuffleBatches, summed_bits
from discreet.privacy.shuffle_law import BitLaw, Changes, printed_guarantee
from discreet.privacy.shuffle_reports import ShuffleReports
from discreet.privacy.shuffler import (
    HALF,
    MESSAGE,
    BadBatch,
    BitEncoder,
    CountBits,
    FirstVisitBits,
    Shuffler,
    main,
    shuffle_files,
    submit_file,
    tally,
)
from discreet.statistics import Counts, CountSpec
from discreet.targets import Targets
from oracles_shuffle import exact_delta, plain_delta
from oracles_streams import every_episode, random_episodes, stacked

EPSILON, DELTA = 1.0, 1e-6
BUDGET = Budget.approximate(EPSILON, DELTA)
ALLOWED = {"epsilon_at_most": EPSILON, "delta_at_most": DELTA}
ANYTHING = {"epsilon_at_most": math.inf, "delta_at_most": 1.0}
STAGED, POOLED = (CountSpec(2, 2, 2, pooled, 0.5) for pooled in (False, True))
FRACTIONS = (1.0, 0.9, 0.7, 0.5, 0.4, 0.15)


def plan_of(announcement, spec):
    H, S, A = spec.horizon, spec.num_states, spec.num_actions
    return Plan(np.full((H, S, A), 1 / A), np.zeros((H + 1, S)), np.zeros((H, S, A)), announcement=announcement)


def reliable_of(users: int, honest: float) -> int:
    """⌊honest·n⌋ in exact decimals."""
    return int(Fraction(str(honest)) * users)


# Batches of every size ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [5, 12, 13])
@pytest.mark.parametrize("honest", FRACTIONS)
def test_p5_the_stated_epsilon_of_printed_noise_holds_for_every_batch_size(honest, tau):
    """All sizes up to 20, below τ and above it, in exact fractions; and the worst of them comes near what is stated."""
    delta = 0.02
    law = BitLaw(30.0, delta, Changes(1, 1), honest, printed=tau)
    for most in (3, 20):
        stated = printed_guarantee(law, most)
        reached = 0.0
        for users in range(1, most + 1):
            reliable = reliable_of(users, honest)
            if users < 2 or reliable < 1:
                with pytest.raises(ValueError, match="at least"):
                    law.bits(users)
                continue
            bits = law.bits(users)
            noise = bits.each * reliable, Fraction(bits.flips, 2**64)
            assert math.isinf(stated) or exact_delta(*noise, 1, 1, stated) <= delta
            reached = max(reached, exact_delta(*noise, 1, 1, 0.97 * stated)) if math.isfinite(stated) else 1.0
        assert reached > delta or most < 1.0 / honest


def printed_roads(honest):
    """Streams of printed noise with few users, and how each makes the encoder of a batch."""
    spec, budget = CountSpec(2, 1, 1, False, 0.5), Budget.approximate(11.0, 1e-3)  # τ = 55, three bits fall and rise
    stream = Shuffle(budget, honest=honest, calibration="paper").open(spec, 20, NoiseSource.seeded(0))
    yield stream.guarantee, stream.encoder, (3, 3)
    batches = ShuffleBatches(budget, honest=honest, calibration="paper").open(spec, 20, NoiseSource.seeded(0))

    def announced(layer):
        def encoder(users):
            batches.begin(plan_of(Batch(1, users, layer), spec))
            return batches.encoder()

        return encoder

    yield batches.guarantee, announced(None), (3, 3)
    yield batches.guarantee, announced(0), (2, 2)


@pytest.mark.parametrize("honest", FRACTIONS)
def test_p5_no_road_announces_a_batch_that_exceeds_what_is_stated(honest):
    """Brute force, whatever the size: the fraction that can be relied on gives at least the stated privacy."""
    for stated, encoder_of, changes in printed_roads(honest):
        assert math.isfinite(stated.epsilon) == (honest > 0.3)  # else 13 users rely on one, and on 5 bits
        for users in range(1, 21) if math.isfinite(stated.epsilon) else ():
            try:
                encoder = encoder_of(users)
            except ValueError:
                assert users < 2 or reliable_of(users, honest) < 1
                continue
            reliable = reliable_of(users, honest)
            assert plain_delta(encoder.noise_bits * reliable, encoder.probability, *changes, stated.epsilon) <= 1e-3


def test_p5_three_users_of_whom_one_counts():
    """The size 3 lies between those that used to be looked at, and has more epsilon than any of them."""
    spec = CountSpec(2, 1, 1, False, 0.5)
    stream = Shuffle(BUDGET, honest=0.5, calibration="paper").open(spec, 400, NoiseSource.seeded(0))
    tau = binomial.printed_bits(1.0 / 3.0, DELTA)
    true = binomial.epsilon_of(math.ceil(tau / 3), 0.5, 3, 3, DELTA)
    assert stream.guarantee.epsilon >= true > 1.2 * binomial.epsilon_of(math.ceil(tau / 2), 0.5, 3, 3, DELTA)
    assert stream.encoder(3).epsilon(DELTA) == true


def test_p5_a_batch_that_exceeds_what_is_stated_is_never_announced():
    """A mutant that states too little: every road refuses, before anybody reports."""
    spec = CountSpec(2, 1, 1, False, 0.5)
    stream = Shuffle(BUDGET, calibration="paper").open(spec, 400, NoiseSource.seeded(0))
    batches = ShuffleBatches(BUDGET, calibration="paper").open(spec, 400, NoiseSource.seeded(0))
    reports = ShuffleReports(BUDGET).open(spec, 400, NoiseSource.seeded(0))
    honest = stream.encoder(20)
    for one in (stream, batches, reports):
        one.guarantee = copy.copy(one.guarantee)
        object.__setattr__(one.guarantee, "epsilon", 0.05)
    reports.begin(plan_of(Targets(np.ones(reports.alphabet.num_rows, dtype=bool)), spec))
    batches.begin(plan_of(Batch(1, 20), spec))
    users = stacked(random_episodes(spec, 20))
    for one in (stream, batches, reports):
        one.add(users)
        with pytest.raises(ValueError, match=r"more than the 0\.05 stated"):
            one.release()
    fresh = Shuffle(BUDGET, calibration="paper").open(spec, 400, NoiseSource.seeded(0))
    fresh.guarantee = stream.guarantee
    with pytest.raises(ValueError, match=r"more than the 0\.05 stated"):
        fresh.collect(honest, np.zeros(0, dtype=MESSAGE))
