"""Reports of which only what is above a threshold is held: the law of the dense release, and any number of states."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import discreet
from discreet.agents.sparse_spotlight import SparseSpotlight, SparseSpotlightPlan, learned, model_of
from discreet.agents.spotlight import Spotlight
from discreet.catalog.recipes import spotlight
from discreet.kernels import sparse_spotlight as kernel
from discreet.kernels import spotlight as dense_kernel
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust import sparse_reports
from discreet.privacy.trust.reports import Reports
from discreet.privacy.trust.sparse_reports import SparseReportNoise, released
from discreet.problem import Problem, PublicStructure
from discreet.releases.reports import Targets
from discreet.releases.sparse_reports import ReportSpace, SparseTargets
from discreet.runs import memory
from discreet.session import Session

# The law of what is released ----------------------------------------------------------------------------------------

SPACE = ReportSpace(3, 1, 4, True, has_start=True)
TARGETS = SparseTargets(np.array([True, False, True, True]), full=np.array([2, 3]))
#: Items of rows 0, 2 and the start (row 3): some occur, some do not.
COUNTS = {2: 3, 12: 4, 17: 1, 20: 2}


def dense_way(scale, threshold, noise):
    """Noise on every sub-cell of the targets; then all is forgotten that is not released."""
    held = {}
    for row in TARGETS.rows.tolist():
        y = {
            c: COUNTS.get(c, 0) + int(x)
            for c, x in zip(range(6 * row, 6 * row + 6), noise.laplace(scale, 6), strict=True)
        }
        for code, value in y.items():
            if row == 3:
                keep = code % 2 == 0
            else:
                keep = code in TARGETS.full or max(value, y[code ^ 1]) > threshold
            if keep:
                held[code] = value
    return held


def sparse_way(scale, threshold, noise):
    codes = np.array(sorted(COUNTS))
    held, values = released(SPACE, TARGETS, codes, np.array([COUNTS[c] for c in codes]), scale, threshold, noise)
    assert np.all(np.diff(held) > 0)
    return dict(zip(held.tolist(), values.astype(int).tolist(), strict=True))


def same_law(one, other) -> float:
    """The smallest p-value of: which pairs are held together; every number's law where it is held."""

    def table(*samples):
        seen = [Counter(s) for s in samples]
        common = [k for k in set().union(*seen) if sum(c[k] for c in seen) >= 10]
        rows = np.array([[c[k] for k in common] + [sum(c.values()) - sum(c[k] for k in common)] for c in seen])
        return float(stats.chi2_contingency(rows[:, rows.sum(axis=0) > 0]).pvalue)

    found = [table([tuple(sorted(d)) for d in one], [tuple(sorted(d)) for d in other])]
    for code in range(24):
        values = [[d.get(code, "none") for d in sample] for sample in (one, other)]
        if {*values[0], *values[1]} != {"none"}:
            found.append(table(*values))
    pairs = [[(d.get(0), d.get(1)) for d in sample] for sample in (one, other)]  # an empty pair, jointly
    return min(*found, table(*pairs))


@pytest.mark.parametrize(("scale", "threshold"), [(2.0, 2), (1.0, 5), (2.0, 11)])
def test_l7_the_law_is_that_of_the_dense_release_with_what_is_below_forgotten(scale, threshold):
    draws = 3000
    one = [dense_way(scale, threshold, source) for source in [NoiseSource.seeded(1)] for _ in range(draws)]
    other = [sparse_way(scale, threshold, source) for source in [NoiseSource.seeded(2)] for _ in range(draws)]
    assert same_law(one, other) > 1e-4


def unconditional(space, rows, taken, scale, threshold, noise):
    places, values = sparse_reports.excess(noise, "laplace", scale, threshold, rows.size * space.columns)
    codes = rows[places // space.columns] * space.columns + places % space.columns
    codes, values = codes[~np.isin(codes, taken)], values[~np.isin(codes, taken)]
    partners = np.setdiff1d(codes ^ 1, codes)
    return np.concatenate([codes, partners]), np.concatenate([values, np.abs(noise.laplace(scale, partners.size))])


def alone(space, rows, taken, scale, threshold, noise):
    codes, values = unconditional(space, rows, taken, scale, threshold, noise)
    return codes[values > threshold], values[values > threshold]


def nobody(space, rows, taken, scale, threshold, noise):
    return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)


@pytest.mark.parametrize("mutant", [unconditional, alone, nobody])
def test_mutants_have_another_law(mutant, monkeypatch):
    monkeypatch.setattr(sparse_reports, "empty_pairs", mutant)
    one = [dense_way(2.0, 2, source) for source in [NoiseSource.seeded(1)] for _ in range(3000)]
    other = [sparse_way(2.0, 2, source) for source in [NoiseSource.seeded(2)] for _ in range(3000)]
    assert same_law(one, other) < 1e-6


# The stream ---------------------------------------------------------------------------------------------------------


def people(seed: int, n: int, S: int, A: int, H: int) -> Episodes:
    rng = np.random.default_rng(seed)
    return Episodes(
        rng.integers(S, size=(n, H + 1)), rng.integers(A, size=(n, H)), rng.integers(2, size=(n, H)) * 1.0
    )


def plan_with(targets: Targets, H: int, S: int, A: int) -> Plan:
    table = np.full((H, S, A), 1.0 / A)
    return Plan(table, np.zeros((H + 1, S)), table, announcement=targets)


def structures(S: int, A: int, G: int) -> dict[str, PublicStructure]:
    rng = np.random.default_rng(4)
    successors = rng.random((G, S, A, S)) < 0.5
    successors[..., 0] = True
    start = np.full(S, 1.0 / S)
    return {
        "nothing": PublicStructure(),
        "start": PublicStructure(initial=start),
        "successors": PublicStructure(successors=successors),
        "zero rewards": PublicStructure(initial=start, zero_rewards=rng.random((G, S, A)) < 0.5),
    }


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("facts", ["nothing", "start", "successors", "zero rewards"])
def test_without_noise_both_streams_release_the_same(pooled, facts):
    S, A, H, n = 4, 2, 3, 200
    spec = CountSpec.for_episodes(S, A, H, pooled, 2 * n)
    structure = structures(S, A, spec.stages)[facts]
    budget = Budget.pure(math.inf)
    dense = Reports(budget, structure=structure).open(spec, 2 * n, NoiseSource.seeded(0))
    sparse = SparseReportNoise(budget, structure=structure).open(spec, 2 * n, NoiseSource.seeded(0))
    rng = np.random.default_rng(9)
    for epoch in range(2):
        cells = rng.random(dense.alphabet.num_rows) < 0.5
        cells[0] = True
        dense.begin(plan_with(Targets(cells, None, 1, spec.stages), H, S, A))
        sparse.begin(plan_with(SparseTargets(cells, None, 1, spec.stages), H, S, A))
        for part in range(3):
            for stream in (dense, sparse):
                stream.add(people(10 * epoch + part, n // 4, S, A, H))
        whole, held = dense.release(), sparse.release()
        assert sparse.release() is held
        table = np.zeros((dense.alphabet.num_rows, 2 * S))
        table.reshape(-1)[held.codes] = held.values
        np.testing.assert_array_equal(table[np.flatnonzero(cells)], whole.histogram)
        assert (held.users, held.num_episodes) == (whole.users, whole.num_episodes)
    assert held.users == 3 * (n // 4)


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_ledger_noise_and_guarantee_are_those_of_dense_reports(neighbours):
    spec = CountSpec.for_episodes(5, 2, 3, True, 100)
    streams = [
        kind(Budget.pure(0.7), neighbours, reports=2).open(spec, 100, NoiseSource.seeded(0))
        for kind in (Reports, SparseReportNoise)
    ]
    dense, sparse = streams[0].guarantee, streams[1].guarantee
    assert [entry.mechanism for entry in sparse.entries] == ["discrete-laplace"]  # it is never balanced
    independent = [replace(entry, mechanism="discrete-laplace") for entry in dense.entries]
    assert replace(dense, entries=tuple(independent)) == sparse
    assert streams[0].release().variance == streams[1].release().variance


def test_the_threshold_is_public_and_leaves_few_empty_sub_cells():
    """Of the 2S empty sub-cells of a cell, at most .05 are above it on average, and not far fewer."""
    privatizer = SparseReportNoise(Budget.pure(1.0))
    for S in (10, 1000, 100_000):
        t, p = privatizer.threshold(S), math.exp(-0.5)
        above = 2 * S * p ** (t + 1) / (1 + p)
        assert 0.02 < above <= 0.05


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (Targets(np.ones(9, dtype=bool)), "wanted in full"),
        (SparseTargets(np.zeros(9, dtype=bool)), "empty"),
        (SparseTargets(np.ones(8, dtype=bool)), "shape"),
        (SparseTargets(np.eye(9, dtype=bool)[0], full=np.array([8, 9])), "both sub-cells"),
        (SparseTargets(np.ones(9, dtype=bool), full=np.array([4])), "both sub-cells"),
        (SparseTargets(np.ones(9, dtype=bool), full=np.array([-2, -1])), "both sub-cells"),
        (SparseTargets(np.ones(9, dtype=bool), full=np.array([64, 65])), "both sub-cells"),
    ],
)
def test_announcements_that_void_the_calibration_are_refused(targets, message):
    spec = CountSpec.for_episodes(4, 2, 3, True, 10)
    stream = SparseReportNoise(Budget.pure(1.0)).open(spec, 10, NoiseSource.seeded(0))
    with pytest.raises(ValueError, match=message):
        stream.begin(plan_with(targets, 3, 4, 2))


# The learner --------------------------------------------------------------------------------------------------------


def random_model(seed: int, S: int, A: int, G: int):
    rng = np.random.default_rng(seed)
    C = G * S * A
    sizes = rng.integers(1, S, size=C)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    outcomes = np.concatenate([np.sort(rng.choice(S, k, replace=False)) for k in sizes])
    shares = np.concatenate([rng.dirichlet(np.ones(k)) for k in sizes])
    spreads = rng.random(outcomes.size) * 9
    cells = rng.random(C), rng.random(C) / 50, 1 + 50 * rng.random(C)
    known = rng.random(C) < 0.7
    rows, wide = np.zeros((C, S)), np.zeros((C, S))
    row = np.repeat(np.arange(C), sizes)
    rows[row, outcomes], wide[row, outcomes] = shares, spreads
    return (starts, outcomes, shares, spreads), cells, known, rows, wide, rng


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stages", [1, 4])
@pytest.mark.parametrize("searching", [False, True])
def test_plans_are_those_of_the_dense_kernels_on_the_same_outcomes(seed, stages, searching):
    """Cautious plans, and exploring ones without a prior, which the dense kernel takes as belief 0."""
    S, A, H = 5, 3, 4
    sparse, cells, known, rows, wide, rng = random_model(seed, S, A, stages)
    seen = rng.random(S) < 0.8
    sparse[3][~seen[sparse[1]]], wide[:, ~seen] = 0.0, 0.0  # the dense one does not doubt what was never seen
    order = np.argsort(rng.random((H, S, A)), axis=2)
    optimism, hidden = rng.random(known.size), rng.random(known.size) / 5
    actions, values, worth = np.empty((H, S), dtype=np.int64), np.empty((H + 1, S)), np.empty((H, S))
    kernel.values_of(
        *sparse, *cells, known, seen, 0.1, np.zeros(0), hidden, searching, -1.0, order, actions, values, worth
    )
    policy, expected = np.empty((H, S, A)), np.empty((H + 1, S))
    nothing, everywhere = np.zeros((known.size, S)), np.ones(S)
    dense_kernel.cautious_values(
        rows, wide, *cells, known, everywhere, 0.1, nothing, 0.0, 0.0, order,
        np.empty((0, 0), dtype=np.int64), np.zeros(known.size, dtype=bool), np.zeros((H + 1, S)), policy, expected,
    )  # fmt: skip
    np.testing.assert_allclose(values, expected, atol=1e-12)
    sure = actions >= 0
    np.testing.assert_array_equal(actions[sure], policy.argmax(axis=2)[sure])
    assert (policy[~sure] == 1.0 / A).all()
    kernel.values_of(
        *sparse, *cells, known, seen, 0.0, optimism, hidden, searching, 1.0, order, actions, values, worth
    )
    chosen, explored, reported = (np.empty_like(x) for x in (actions, values, worth))
    dense_kernel.exploring_values(
        rows, wide, *cells, known, seen * 1.0, optimism, hidden, searching, 0.0, nothing,
        np.ones(known.size), 0.0, False, order, chosen, explored, reported,
    )  # fmt: skip
    np.testing.assert_allclose(values, explored, atol=1e-12)
    np.testing.assert_array_equal(actions, chosen)


@pytest.mark.parametrize("reports", [1, 2])
@pytest.mark.parametrize("stages", [1, 4])
def test_forward_passes_are_those_of_the_dense_kernels(reports, stages):
    S, A, H = 5, 3, 4
    sparse, _, known, rows, _, rng = random_model(3, S, A, stages)
    actions, wanted = rng.integers(A, size=(H, S)), rng.random(known.size) < 0.3
    initial = rng.dirichlet(np.ones(S))
    mass, rates, expected = np.empty((H, S)), np.empty(known.size), np.empty(known.size)
    kernel.forward(*sparse[:3], known, actions, A, initial, wanted, reports, mass, rates)
    dense_kernel.predicted_reports(rows, known, actions, A, initial, wanted, reports, expected)
    np.testing.assert_allclose(rates, expected, atol=1e-12)
    kernel.forward(*sparse[:3], known, actions, A, initial, np.zeros_like(wanted), reports, mass, rates)
    visits = np.empty((H, S))
    dense_kernel.visits(rows, known, actions, A, initial, visits)
    np.testing.assert_allclose(mass, visits, atol=1e-12)


def test_outcomes_found_are_asked_for_in_full_and_added_up_without_bias():
    """A cell with outcomes .8 and .2, the second found later: its share is by what came since it was found."""
    S = 200
    problem = Problem(S, 1, 2, 10_000, pooled=True, epsilon=1.0, structure=PublicStructure(initial=np.eye(S)[0]))
    agent, noise = SparseSpotlight(10_000, np.eye(S)[0]), NoiseSource.seeded(5)
    stream = SparseReportNoise(problem.budget, structure=problem.structure).open(
        CountSpec.for_episodes(S, 1, 2, True, 10_000), 10_000, noise
    )
    rng, plan = np.random.default_rng(0), agent.plan(stream.release(), None)
    came = 0
    while came + plan.users <= 6000:
        stream.begin(plan)
        full = set(plan.announcement.full.tolist())
        states = np.zeros((plan.users, 3), dtype=np.int64)
        states[:, 1] = np.where(rng.random(plan.users) < 0.8, 7, 9)
        states[:, 2] = states[:, 1]
        stream.add(Episodes(states, np.zeros((plan.users, 2), dtype=np.int64), np.zeros((plan.users, 2))))
        came += plan.users
        release = stream.release()
        assert full <= set(release.codes.tolist())
        plan = agent.plan(release, plan)
    model = model_of(plan.knowledge, S)
    first = slice(*model.starts[:2])
    shares = dict(zip(model.outcomes[first].tolist(), model.shares[first].tolist(), strict=True))
    assert set(shares) >= {7, 9}
    assert shares[7] == pytest.approx(0.8, abs=0.06)
    assert shares[9] == pytest.approx(0.2, abs=0.06)


def test_planning_is_pure_and_refuses_plans_of_others():
    problem = Problem(6, 2, 4, 1000, pooled=True, epsilon=1.0)
    release = SparseReportNoise(problem.budget).open(CountSpec(6, 2, 4, True), 1000, NoiseSource.seeded(0)).release()
    agent = SparseSpotlight(1000)
    one, other = agent.plan(release, None), agent.plan(release, None)
    np.testing.assert_array_equal(one.policy, other.policy)
    assert one.users == other.users
    empty = SparseSpotlightPlan(one.policy, one.value, one.quality)
    with pytest.raises(ValueError, match="carries no knowledge"):
        learned(replace(release, targets=one.announcement), empty)


@pytest.mark.parametrize("pooled", [True, False])
def test_it_learns_on_a_problem_that_both_can_hold(pooled, monkeypatch):
    """RiverSwim with 12 states: playing evenly loses more than .9 of what the best policy earns."""
    monkeypatch.setattr("discreet.releases.sparse.DENSE_ITEMS", 0)
    experiment = discreet.Experiment("spotlight", states=12, episodes=60_000, epsilon=1.0, pooled=pooled)
    result = discreet.run(experiment, seed=3)
    assert result.regret[-1] < 0.6 * 60_000


# Any size -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("states", "sparse"), [(1000, False), (5000, True), (100_000, True)])
def test_l7_the_way_is_chosen_by_public_numbers(states, sparse):
    triple = spotlight(Problem(states, 10, 8, 1000, pooled=True, epsilon=1.0))
    assert isinstance(triple.agent, SparseSpotlight if sparse else Spotlight)
    assert isinstance(triple.privatizer, SparseReportNoise) is sparse


@pytest.mark.parametrize(("trust", "states"), [("joint", 10_000_000), ("local", 5000), ("two-servers", 5000)])
def test_l7_what_does_not_fit_is_said_in_bytes_before_anything_is_allocated(trust, states, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 8e9)
    problem = Problem(states, 10, 8, 1000, pooled=True, epsilon=1.0, trust=trust)
    with pytest.raises(ValueError, match=r"take about [\d,.]+ GB, and 8.0 GB are free; take fewer states"):
        Session.open(spotlight(problem), problem, NoiseSource.seeded(0))


#: Every action leads to one of two places; only one of the ten actions pays, by .7.
PLACES = """
import json, sys
import numpy as np
import discreet
from discreet import Episodes, PublicStructure

class Places:
    num_states, num_actions, horizon = int(sys.argv[1]), 10, 8

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def rollout(self, policy, n, targets=None):
        S, A, H, rng = self.num_states, self.num_actions, self.horizon, self.rng
        states, actions, rewards = np.zeros((n, H + 1), int), np.zeros((n, H), int), np.zeros((n, H))
        done = np.zeros(n, bool)
        for h in range(H):
            s = states[:, h]
            played = policy[h, s] if targets is None else np.where(done[:, None], targets.after[h, s], policy[h, s])
            a = actions[:, h] = (played.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, A - 1)
            rewards[:, h] = (a == 3) & (rng.random(n) < 0.7)
            states[:, h + 1] = np.where(rng.random(n) < 0.8, s * 7 + a * a * 13 + 1, s * 3 + a + 2) % S
            if targets is not None:
                done |= targets.steps(S, A)[0, s, a]
        return Episodes(states, actions, rewards)

places = Places()
facts = PublicStructure(initial=(np.arange(places.num_states) == 0) * 1.0)
found = discreet.learn(places, "spotlight", int(sys.argv[2]), epsilon=1.0, pooled=True, structure=facts, seed=0)
peak = 1024 * int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])  # maxrss would be the parent's
first, last, claim = found.returns[0], found.returns[-1], found.guarantee.epsilon
print(json.dumps({"peak": peak, "first": first, "last": last, "claim": claim}))
"""


def learned_in(states: int, users: int) -> dict[str, float]:
    source = str(Path(discreet.__file__).parents[1])
    answer = subprocess.run(
        [sys.executable, "-c", PLACES, str(states), str(users)],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": source, "OMP_NUM_THREADS": "1", "PATH": ""},
    )  # fmt: skip
    return dict(json.loads(answer.stdout))


def test_l7_five_thousand_states_and_ten_actions_are_learned_within_memory():
    """5·10⁸ sub-cells; evenly .56 are earned, at best 5.6. The first run compiles where nobody has yet."""
    learned_in(5000, 12_000)
    found = learned_in(5000, 12_000)
    assert found["peak"] < 1.5e9
    assert found["last"] > 2.0 > found["first"]
    assert found["claim"] == 1.0


def test_l7_a_hundred_thousand_states_and_ten_actions_start():
    """2·10¹¹ sub-cells."""
    assert learned_in(100_000, 60)["peak"] < 2.5e9
