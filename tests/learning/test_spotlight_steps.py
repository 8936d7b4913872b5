"""Staged Spotlight: which steps are alike is told by their own reports, and alike ones share what they found."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from discreet.agents import steps
from discreet.agents.knowledge import Knowledge, known_cells, known_from
from discreet.agents.reading import LOG_RATIOS, RATIOS, Evidence, Reading, read
from discreet.agents.sparse_spotlight import bytes_needed
from discreet.agents.spotlight import Spotlight
from discreet.envs import tabular
from discreet.kernels import reading as kernel
from discreet.mdp import FiniteMDP
from discreet.problem import PublicStructure
from discreet.releases.items import Items
from discreet.runs.experiment import Experiment, run

S, A, G = 3, 2, 6
C = G * S * A
ITEMS = Items.of(S, A, G, False, PublicStructure(initial=np.eye(S)[0]))


def reports(rng, rows, means, n, noise=2.0, asked=None):
    """Noisy sums of n reports per cell; the last step has one outcome."""
    sums = np.zeros((C, 2 * S))
    for c in range(C):
        row = np.eye(S)[0] if c >= C - S * A else rows[c]
        outcomes = rng.multinomial(n, row)
        paid = rng.binomial(outcomes, means[c])
        sums[c, 1::2], sums[c, ::2] = paid, outcomes - paid
    sums = np.where(ITEMS.admitted, sums + rng.laplace(0.0, noise, sums.shape), 0.0)
    variances = np.full(C, 2.0 * noise**2)
    if asked is not None:
        variances[~asked], sums[~asked] = np.inf, 0.0
    return Evidence(sums, variances, np.full(C, float(n)), ITEMS.admitted)


def truth(rng, own_share=0.0):
    """Rows and rewards that are the same at all steps, but for a share of the cells."""
    rows = np.tile(rng.dirichlet(np.full(S, 0.4), size=S * A), (G, 1))
    means = np.tile(rng.random(S * A), G)
    own = rng.random(C) < own_share
    rows[own] = rng.dirichlet(np.full(S, 0.4), size=int(own.sum()))
    means[own] = rng.random(int(own.sum()))
    return rows, means


def comparing(evidence, agreement=0.5):
    reading = read(evidence, Reading.nothing(evidence.admitted), evidence.asked)
    known = known_cells(reading, evidence.variances, True)
    return reading, steps.compared(evidence, reading, known, G, agreement)


# The comparison -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normal", [False, True])
def test_the_likelihood_of_an_alike_step_is_that_of_the_definition(normal):
    rng = np.random.default_rng(1)
    rows, means = truth(rng)
    evidence = reports(rng, rows, means, 20)
    doubts, mean_doubts = rng.random((C, S)) * 0.01, rng.random(C) * 0.01
    cells = np.array([0, 3, 7])
    found = np.empty(3)
    possible = np.ones((C, S), dtype=bool)
    possible[7, 2] = False
    kernel.likelihoods_if_alike(
        cells,
        evidence.sums,
        evidence.variances,
        normal,
        evidence.expected,
        possible,
        rows,
        doubts,
        means,
        mean_doubts,
        RATIOS,
        LOG_RATIOS,
        found,
    )

    def density(x, variance):
        away = x * x / (2.0 * variance) if normal else math.sqrt(2.0 / variance) * abs(x)
        return -away - 0.5 * math.log(2.0 * variance)

    for value, c in zip(found, cells, strict=True):
        r, v = means[c], evidence.variances[c]
        length = math.hypot(r, 1.0 - r)
        total = 0.0
        for ratio, log_ratio in zip(RATIOS, LOG_RATIOS, strict=True):
            N, each = 20.0 * ratio, log_ratio
            for s in np.flatnonzero(possible[c]):
                x0, x1 = evidence.sums[c, 2 * s : 2 * s + 2]
                q = rows[c, s]
                along, across = (r * x1 + (1 - r) * x0) / length, ((1 - r) * x1 - r * x0) / length  # a rotation
                each += density(along - N * q * length, v + length**2 * (N * q + N**2 * doubts[c, s]))
                each += density(across, v + (N * q * r * (1 - r) + (N * q) ** 2 * mean_doubts[c]) / length**2)
                each += math.log(2.0 * v)  # the constants of two noises
            total += math.exp(each)
        assert value == pytest.approx(math.log(total), rel=1e-9)


@pytest.mark.parametrize("normal", [False, True])
def test_the_likelihood_of_a_reading_is_that_of_its_sums(normal):
    """One outcome and no reward: they are noise around n, exponential with mean 40·ratio."""
    tables = np.array([[30.0, 0.0]]), np.array([8.0]), np.array([40.0]), np.array([[True, False]])
    evidence = Evidence(*tables, normal)
    found = read(evidence, Reading.nothing(evidence.admitted), np.array([0])).likelihoods[0]
    n = np.linspace(0.0, 4000.0, 4_000_001)
    total = 0.0

    def density(x):
        return np.exp(-x * x / 16.0) if normal else np.exp(-0.5 * np.abs(x))

    for ratio, log_ratio in zip(RATIOS, LOG_RATIOS, strict=True):
        mean = 40.0 * ratio / kernel.CERTAIN
        slab = float((np.exp(-n / mean) * density(30.0 - n)).sum() * (n[1] - n[0]) / mean)
        total += math.exp(log_ratio) * (kernel.CERTAIN * slab + (1.0 - kernel.CERTAIN) * density(30.0))
    assert found == pytest.approx(math.log(total), abs=1e-4)


def test_steps_that_are_the_same_are_found_to_be():
    rng = np.random.default_rng(2)
    _, shared = comparing(reports(rng, *truth(rng), 60))
    assert shared.agreement > 0.9
    assert np.mean(shared.agreed) > 0.9


def test_steps_of_their_own_are_not_taken_for_alike():
    rng = np.random.default_rng(3)
    _, shared = comparing(reports(rng, *truth(rng, 1.0), 60))
    assert shared.agreement < 0.4
    assert np.mean(shared.agreed) < 0.15


@pytest.mark.parametrize("what", ["row", "reward"])
def test_one_step_that_differs_stands_out_with_few_reports(what):
    """A dozen reports, two fifths of what an unknown cell is asked for, tell it from all others."""
    rng = np.random.default_rng(4)
    rows, means = truth(rng)
    cell = 2 * S * A
    rows[cell :: S * A], means[cell :: S * A] = np.eye(S)[1], 0.1
    evidence = reports(rng, rows, means, 60)
    odd, reward = (np.eye(S)[2], 0.1) if what == "row" else (np.eye(S)[1], 1.0)
    twelve = np.zeros(2 * S)
    twelve[1::2], twelve[::2] = 12.0 * odd * reward, 12.0 * odd * (1.0 - reward)
    expected = evidence.expected.copy()
    expected[cell] = 12.0
    alone = replace(evidence, sums=np.where(np.arange(C)[:, None] == cell, twelve, evidence.sums), expected=expected)
    _, shared = comparing(alone)
    assert shared.agreement > 0.85
    assert not shared.agreed[cell]
    assert np.mean(shared.agreed) > 0.85


def test_cells_without_other_steps_are_not_alike():
    rng = np.random.default_rng(5)
    asked = np.zeros(C, dtype=bool)
    asked[: S * A] = True  # the first step only
    reading, shared = comparing(reports(rng, *truth(rng), 60, asked=asked), 0.7)
    assert not shared.alike[: S * A].any()
    assert shared.agreement == 0.7  # nothing was learned
    assert (shared.alike[S * A :] == 0.7).all()  # untested ones are what the rest is
    assert np.array_equal(shared.added_to(reading, np.ones(C, dtype=bool)).rows[: S * A], reading.rows[: S * A])


# What is shared -----------------------------------------------------------------------------------------------------


def test_other_steps_are_weighted_by_how_near_they_are_and_leave_the_step_itself_out():
    nothing = Reading.nothing(ITEMS.admitted)
    counts, means = np.zeros(C), np.zeros(C)
    first = np.arange(G) * S * A  # (0, 0) at every step
    counts[first], means[first] = 10.0 * (1 + np.arange(G)), np.arange(G) / 10
    rows = np.zeros((C, S))
    rows[first, np.arange(G) % S] = 1.0
    reading = replace(nothing, counts=counts, means=means, rows=rows, spreads=rows, mean_variances=means / 100)
    known = counts > 15.0  # not the first step
    others = steps.other_readings(reading, known, ITEMS.admitted, G)
    near = [0.5 ** abs(2 - h) for h in range(G)]
    use, shown = [1, 3, 4, 5], [1, 3, 4]
    n = {h: near[h] * counts[first[h]] for h in use}
    assert others.counts[first[2]] == pytest.approx(sum(n[h] for h in shown))
    assert others.bits[first[2]] == pytest.approx(sum(n.values()))
    assert others.means[first[2]] == pytest.approx(sum(n[h] * h / 10 for h in use) / sum(n.values()))
    assert others.mean_variances[first[2]] == pytest.approx(
        sum(n[h] ** 2 * h / 1000 for h in use) / sum(n.values()) ** 2
    )
    row = [sum(n[h] for h in shown if h % S == s) / sum(n[h] for h in shown) for s in range(S)]
    assert others.rows[first[2]] == pytest.approx(row)
    assert others.spreads[first[2], 1] == pytest.approx(near[1] ** 2 + near[4] ** 2)


def test_alike_steps_add_their_reports_and_others_do_not():
    nothing = Reading.nothing(ITEMS.admitted)
    rows, elsewhere = np.tile([1.0, 0.0, 0.0], (C, 1)), np.tile([0.0, 1.0, 0.0], (C, 1))
    ones = np.ones(C)
    reading = replace(nothing, rows=rows, soft=rows, counts=10.0 * ones, means=0.2 * ones, mean_variances=0.01 * ones)
    others = steps.Others(elsewhere, elsewhere, 30.0 * ones, 0.6 * ones, 0.02 * ones, 40.0 * ones)
    alike = np.zeros(C)
    alike[:3] = 1.0, 0.95, 0.89  # the last one is not sure enough
    cells = np.ones(C, dtype=bool)
    cells[1] = False  # and this one is not known
    found = steps.Shared(others, alike, 0.5).added_to(reading, cells)
    assert found.counts[:3].tolist() == [40.0, 10.0, 10.0]
    assert found.rows[0] == pytest.approx([0.25, 0.75, 0.0])
    assert found.soft[0] == pytest.approx([0.25, 0.75, 0.0])
    assert found.spreads[0] == pytest.approx([0.0, 1.0, 0.0])
    assert found.means[0] == pytest.approx((10 * 0.2 + 40 * 0.6) / 50)
    assert found.mean_variances[0] == pytest.approx((100 * 0.01 + 1600 * 0.02) / 2500)
    for name in ("rows", "soft", "spreads", "means", "mean_variances"):
        assert np.array_equal(getattr(found, name)[1:], getattr(reading, name)[1:])


def test_an_untested_cell_is_hoped_to_pay_what_it_pays_elsewhere_and_anything_where_nothing_is_known():
    ones = np.ones(C)
    others = steps.Others(np.zeros((C, S)), np.zeros((C, S)), 50.0 * ones, 0.3 * ones, 0.01 * ones, 50.0 * ones)
    others.counts[1] = 0.0
    shared = steps.Shared(others, ones, 0.8)
    assert shared.hoped_for()[0] == pytest.approx(0.3 + math.sqrt(0.01 + (0.21 + 0.005) / 50))
    assert shared.hoped_for()[1] == np.inf
    prior = np.full((C, S), 1.0 / S)
    assert np.array_equal(shared.rows_hoped_for(prior)[:2], [np.zeros(S), prior[1]])


def test_rows_that_a_step_cannot_have_are_not_taken_from_others():
    successors = np.ones((G, S, A, S), dtype=bool)
    successors[1, 0, 0, 1] = False
    items = Items.of(S, A, G, False, PublicStructure(initial=np.eye(S)[0], successors=successors))
    rows = np.tile([0.5, 0.5, 0.0], (C, 1))
    reading = replace(Reading.nothing(items.admitted), rows=rows, counts=np.full(C, 40.0))
    others = steps.other_readings(reading, np.ones(C, dtype=bool), items.admitted, G)
    without = others.counts == 0.0
    assert without.tolist() == (np.arange(C) == S * A).tolist()
    assert (others.bits == 0.0).tolist() == without.tolist()


def test_alike_cells_are_known_from_half_as_many_reports():
    knowledge = Knowledge.nothing(ITEMS)
    counts = np.full(C, 9.0)  # noise of deviation 3: known from 12 on, and from 6 on if alike
    ones = np.ones(C)
    others = steps.Others(np.zeros((C, S)), np.zeros((C, S)), 0 * ones, 0 * ones, 0 * ones, 0 * ones)
    alike = np.where(np.arange(C) < 2, 0.95, 0.5)
    reading = replace(knowledge.reading, counts=counts)
    knowing = replace(knowledge, reading=reading, variances=np.full(C, 9.0), shared=steps.Shared(others, alike, 0.5))
    assert known_from(knowing, ITEMS)[1].tolist() == alike.__ge__(0.9).tolist()
    assert not known_from(replace(knowing, shared=None), ITEMS)[1].any()


# Runs ---------------------------------------------------------------------------------------------------------------


def regret(env: FiniteMDP, seed: int) -> float:
    result = run(Experiment("spotlight", env=env, epsilon=1.0, episodes=20_000), seed)
    assert result.regret_ratio is not None
    return result.regret_ratio


def test_steps_that_are_the_same_cost_less_than_steps_of_their_own(monkeypatch):
    """RiverSwim with a model per step, which nobody told the learner to be one and the same."""
    mdp = tabular.riverswim(4, 10).staged()
    shared = np.mean([regret(mdp, seed) for seed in range(8)])
    monkeypatch.setattr(steps, "AGREED", 2.0)  # no step is ever alike
    monkeypatch.setattr(steps, "BELIEF", 0.0)
    assert shared < 0.88 * np.mean([regret(mdp, seed) for seed in range(8)])  # .78


def test_a_step_that_differs_in_an_action_nobody_plays_is_still_found():
    """One late step pays for what is worthless at all others."""
    mdp = tabular.riverswim(3, 8).staged()
    rewards = mdp.rewards.copy()
    rewards[5, :, 0] = 1.0
    rewards[[0, 1, 2, 3, 4, 6, 7], :, 0] = 0.0
    changed = FiniteMDP(mdp.transitions, rewards, mdp.initial, 8)
    assert max(regret(changed, seed) for seed in range(8)) < 0.1  # .04


def test_what_steps_say_about_each_other_is_counted_before_anything_is_allocated():
    agent = Spotlight(100)
    assert bytes_needed(agent, (20, 50, 3), 20) > 1.3 * 20 * bytes_needed(agent, (20, 50, 3), 1)
