"""Local losses between devices and a server: messages, the door, and that simulation and messages are one law."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare

from discreet.device import LaplaceEncoder, LossEncoder, LossTables, Noise, Report, SampledEncoder, encoder_from_json
from discreet.device.losses import flipped
from discreet.occupancies import Layers
from discreet.people.episodes import Episodes
from discreet.people.losses import LossSpec
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.local_losses import LocalLosses

LAYERS = Layers(((0,), (0, 2), (1, 2)), np.array([1.0, 0.0, 0.0]), 2)  # 10 cells, 12 triples
H, S, A = 3, 3, 2
EPSILON = 2.0


def spec(feedback: str = "full", users: int = 100, layers: Layers = LAYERS) -> LossSpec:
    return LossSpec(layers, feedback, users, 0.125)  # type: ignore[arg-type]


def crowd(n: int, seed: int = 0) -> tuple[Episodes, np.ndarray]:
    rng = np.random.default_rng(seed)
    states = np.stack([np.zeros(n, int), rng.choice([0, 2], n), rng.choice([1, 2], n), np.zeros(n, int)], axis=1)
    return Episodes(states, rng.integers(A, size=(n, H)), np.zeros((n, H))), rng.random((n, H, S, A))


def record(episodes: Episodes, losses: np.ndarray, feedback: str, i: int) -> tuple[Any, Any, Any]:
    """What the i-th user's device knows, as plain lists."""
    states, actions = episodes.states[i], episodes.actions[i]
    seen = losses[i] if feedback == "full" else losses[i, np.arange(H), states[:H], actions]
    return states.tolist(), actions.tolist(), seen.tolist()


def report(stream: Any, user: str, what: tuple[Any, Any, Any], noise: Any, epsilon: float = EPSILON) -> Report:
    """What a device sends that got its encoder as JSON."""
    encoder = encoder_from_json(json.loads(json.dumps(stream.encoder_for(user).to_json())))
    return encoder.encode(user, *what, noise, epsilon_at_most=epsilon)


# Reading a record ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_the_device_counts_what_the_server_would_count(feedback):
    one = spec(feedback)
    episodes, losses = crowd(50)
    for i in range(50):
        single = Episodes(episodes.states[[i]], episodes.actions[[i]], episodes.rewards[[i]])
        expected = one.contribution(single, losses[[i]])
        found = one.tables.counters(*record(episodes, losses, feedback, i))
        for name, table in zip(("visits", "transitions", "losses"), found, strict=True):
            assert np.array_equal(table, expected[name])


@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_walks_and_losses_that_cannot_be_read_count_as_nothing_and_do_not_touch_each_other(feedback):
    tables = spec(feedback).tables
    walk = [0, 2, 1, 0], [1, 0, 1]
    fine = np.full((H, S, A), 0.5).tolist() if feedback == "full" else [0.5, 0.5, 0.5]
    bad_walks = [
        ([0, 1, 1, 0], [1, 0, 1]),
        ([0, 2, 1, 0], [1, 0, 2]),
        ([0, 2], [1]),
        (None, []),
        ([0, 2.5, 1, 0], [1, 0, 1]),
    ]
    for bad in bad_walks:
        visits, transitions, units = tables.counters(*bad, fine)
        assert not visits.any()
        assert not transitions.any()
        assert units.any() == (feedback == "full")
    for losses in ([0.5, 1.5, 0.5], [0.5, math.nan, 0.5], [], None, [[0.5]], "x", np.full((H, S, A), -0.1).tolist()):
        visits, transitions, units = tables.counters(*walk, losses)
        assert visits.sum() == H
        assert transitions.sum() == H - 1
        assert not units.any()
    assert tables.counters([0, 2, 1], walk[1], fine)[0].sum() == H  # the state after the last step says nothing
    assert tables.counters([0, 2, 1, 99], walk[1], fine)[0].sum() == H


def test_tables_that_cannot_be_are_refused():
    good = {"layers": ((0,), (0, 1)), "num_states": 2, "num_actions": 2, "feedback": "full", "grid": 0.5}
    LossTables(**good)
    for wrong, words in (
        ({"layers": ()}, "at least one"),
        ({"layers": ((0,), ())}, "at least one"),
        ({"layers": ((0,), (1, 0))}, "increasing"),
        ({"layers": ((0,), (0, 2))}, "increasing"),
        ({"layers": ((-1,),)}, "increasing"),
        ({"num_actions": 0}, "at least one"),
        ({"feedback": "half"}, "'full' or 'bandit'"),
        ({"grid": 0.3}, "power of two"),
        ({"grid": 2.0**-61}, "power of two"),
        ({"num_states": 2**20}, "no device"),
        ({"grid": 2.0**-60}, "coarser"),
    ):
        with pytest.raises(ValueError, match=words):
            LossTables(**{**good, **wrong})


def test_cells_that_cannot_be_are_refused():
    tables = spec().tables
    LossEncoder(tables, (0, 9), 1)
    for cells, flips, words in (
        ((), 1, "at least one"),
        ((3, 3), 1, "increasing"),
        ((-1, 3), 1, "outside"),
        ((10,), 1, "outside"),
        ((0,), 2**63, "flips"),
        ((0,), -1, "flips"),
    ):
        with pytest.raises(ValueError, match=words):
            LossEncoder(tables, cells, flips)
    with pytest.raises(ValueError, match="full information"):
        LossEncoder(spec("bandit").tables, (0,), 1)


# Cost ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 2.0, 7.7, 30.0])
@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_an_honest_server_asks_for_the_budget_it_has(epsilon, feedback):
    for laplace in (False, True):
        stream = LocalLosses(Budget.pure(epsilon), laplace=laplace).open(spec(feedback), NoiseSource.seeded(0))
        asked = (
            [stream.encoder]
            if laplace
            else [stream.encoder, *([stream._cells_encoder()] if feedback == "full" else [])]
        )
        for encoder in asked:
            assert 0.999 * epsilon <= encoder.epsilon <= epsilon
            assert encoder.epsilon <= stream.guarantee.epsilon * (1 + 1e-12)


@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_no_two_records_differ_by_more_than_is_charged(feedback):
    """Counters of all walks and extreme losses against each other: the largest distances are `moves`."""
    tables = LossTables(((0,), (0, 1)), 2, 2, feedback, 0.5)
    records = []
    for a in range(2):
        for s in range(2):
            for b in range(2):
                for value in (0.0, 1.0):
                    losses = np.full((2, 2, 2), value) if feedback == "full" else [value, value]
                    records.append(tables.counters([0, s, 0], [a, b], losses))
    records.append(tables.counters(None, None, None))
    for table, moved in zip(range(3), tables.moves, strict=True):
        values = np.array([one[table] for one in records])
        assert np.abs(values[:, None] - values).sum(axis=2).max() == moved


def test_a_bit_has_the_law_that_is_charged():
    """P(on) = q + (1−2q)·u/most at every number of units; a flip of .9·q is rejected."""
    n, most, flips = 40_000, 8, 2**61
    q = flips / 2**64
    for units in (0, 3, 8):
        on = int(flipped(np.full(n, units), most, flips, NoiseSource.seeded(units)).sum())
        assert binomtest(on, n, q + (1 - 2 * q) * units / most).pvalue > 1e-3
        if units != 3:
            assert binomtest(on, n, 0.9 * q + (1 - 1.8 * q) * units / most).pvalue < 1e-6


@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_the_item_of_a_step_has_its_law(feedback):
    """Uniform over the steps that are asked for; in bandit problems with a bit, on as often as the loss says."""
    n, tables = 20_000, spec(feedback).tables
    what = ([0, 2, 1, 0], [1, 0, 1], np.full((H, S, A), 0.25) if feedback == "full" else [0.25, 0.25, 0.25])
    cells, units = tables.read(*what)
    items = tables.items(np.repeat(cells, n, axis=0), np.repeat(units, n, axis=0), NoiseSource.seeded(8))
    seen, counts = np.unique(items, return_counts=True)
    if feedback == "full":
        assert len(seen) == H - 1
        assert chisquare(counts).pvalue > 1e-3
    else:
        assert len(seen) == 2 * H
        expected = np.where(seen % 2 == 1, 0.25, 0.75) * n / H
        assert chisquare(counts, expected).pvalue > 1e-3
    assert seen.max() < tables.num_items


# Simulation and messages --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("feedback", "settings"),
    [("bandit", {}), ("full", {"public_losses": True}), ("bandit", {"laplace": True}), ("full", {"laplace": True})],
)
def test_messages_add_up_to_the_simulated_sums_byte_for_byte(feedback, settings):
    """One user after the other, each device with the words that the simulation reads for her."""
    privatizer = LocalLosses(Budget.pure(EPSILON), **settings)
    episodes, losses = crowd(20)
    words = NoiseSource.seeded(6).words(40_000).tolist()
    simulated = privatizer.open(spec(feedback, 20), NoiseSource.seeded(6))
    received = privatizer.open(spec(feedback, 20), NoiseSource.seeded(0))
    device = Noise.replayed(words)
    for i in range(20):
        simulated.add(Episodes(episodes.states[[i]], episodes.actions[[i]], episodes.rewards[[i]]), losses[[i]])
        message = report(received, str(i), record(episodes, losses, feedback, i), device)
        received.add_report(message, losses[i] if privatizer.public_losses else None)
    for stream in (simulated, received):
        stream.close_counts()
        stream.close_losses()
    ours, theirs = simulated.release(), received.release()
    assert ours.transitions.tobytes() == theirs.transitions.tobytes()
    assert ours.losses.tobytes() == theirs.losses.tobytes()
    assert (ours.num_episodes, ours.count_deviation, ours.loss_deviation) == (
        theirs.num_episodes,
        theirs.count_deviation,
        theirs.loss_deviation,
    )


def test_messages_have_the_law_of_the_simulation_where_coins_decide_what_is_asked():
    """Full information: estimates of both paths are unbiased with the same spread."""
    n, runs = 32, 250
    episodes, losses = crowd(n)
    exact = spec("full", n).contribution(episodes, losses)
    found: dict[str, list[np.ndarray]] = {"simulated": [], "received": []}
    device = NoiseSource.seeded(77)
    for seed in range(runs):
        for path, results in found.items():
            stream = LocalLosses(Budget.pure(EPSILON)).open(spec("full", n), NoiseSource.seeded(1000 + seed))
            if path == "simulated":
                stream.add(episodes, losses)
            else:
                for i in range(n):
                    encoder = stream.encoder_for(str(i))
                    what = record(episodes, losses, "full", i)
                    stream.add_report(encoder.encode(str(i), *what, device, epsilon_at_most=EPSILON))
            stream.close_counts()
            stream.close_losses()
            release = stream.release()
            inside = stream.spec.tables.triple_index >= 0
            results.append(
                np.concatenate([release.transitions[:-1][inside], release.losses[LAYERS.mask].reshape(-1)])
            )
    truth = np.concatenate([exact["transitions"], exact["losses"] * spec().grid])
    spreads = {}
    for path, results in found.items():
        values = np.array(results)
        spreads[path] = values.std(axis=0)
        assert (np.abs(values.mean(axis=0) - truth) <= 4.5 * spreads[path] / math.sqrt(runs)).all(), path
    ratio = spreads["received"] / spreads["simulated"]
    assert ((ratio > 0.75) & (ratio < 1.33)).all()
    assert abs(np.log(ratio).mean()) < 0.05


def test_public_coins_are_fair_and_cells_are_drawn_evenly():
    stream = LocalLosses(Budget.pure(9.0)).open(spec("full", 4000), NoiseSource.seeded(2))
    asked = [stream.encoder_for(str(i)) for i in range(4000)]
    cells = [encoder.cells for encoder in asked if isinstance(encoder, LossEncoder)]
    assert binomtest(len(cells), 4000, 0.5).pvalue > 1e-3
    assert len(cells[0]) > 1
    assert chisquare(np.bincount(np.concatenate(cells), minlength=10)).pvalue > 1e-3
    assert [stream.encoder_for(str(i)) for i in range(4000)] == asked  # asking again changes nothing


# The server's door --------------------------------------------------------------------------------------------------


def sums(stream: Any) -> bytes:
    held = [stream._reports.totals] if hasattr(stream, "_reports") else [stream._ons, stream._loss_sums]
    return b"".join(table.tobytes() for table in [*held, stream._public_sums])


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("first", ["another form", "cut off", "too late"])
def test_a_refused_message_adds_nothing_and_spends_its_user(laplace, first):
    stream = LocalLosses(Budget.pure(EPSILON), laplace=laplace).open(spec("full", 2), NoiseSource.seeded(0))
    what = record(*crowd(1), "full", 0)
    good = report(stream, "ann", what, NoiseSource.seeded(1))
    if first == "too late":
        stream.add(*crowd(2))
    bad = {
        "another form": replace(good, form="0" * 64),
        "cut off": replace(good, payload=good.payload[:-1]),
        "too late": good,
    }[first]
    before = sums(stream)
    with pytest.raises(ValueError, match=r"another form|exceed"):
        stream.add_report(bad)
    with pytest.raises(ValueError, match="already sent"):
        stream.add_report(good)
    assert sums(stream) == before
    assert stream._crowd.size == (2 if first == "too late" else 0)


def test_a_user_answers_what_she_was_asked_and_nothing_else():
    """A message about a step where cells were asked for, or about other cells than hers, is refused."""
    stream = LocalLosses(Budget.pure(EPSILON)).open(spec("full", 50), NoiseSource.seeded(0))
    what = record(*crowd(1), "full", 0)
    asked = {str(i): stream.encoder_for(str(i)) for i in range(50)}
    cells = [user for user, encoder in asked.items() if isinstance(encoder, LossEncoder)]
    steps = [user for user, encoder in asked.items() if isinstance(encoder, SampledEncoder)]
    other = next(user for user in cells if asked[user] != asked[cells[0]])
    before = sums(stream)
    for user, encoder in ((steps[0], asked[cells[0]]), (cells[1], asked[steps[0]]), (cells[0], asked[other])):
        with pytest.raises(ValueError, match="another form"):
            stream.add_report(encoder.encode(user, *what, NoiseSource.seeded(0), epsilon_at_most=EPSILON))
    with pytest.raises(ValueError, match="not been asked"):
        stream.add_report(asked[steps[0]].encode("zoe", *what, NoiseSource.seeded(0), epsilon_at_most=EPSILON))
    assert sums(stream) == before
    assert stream._crowd.size == 0
    stream.add_report(asked[steps[1]].encode(steps[1], *what, NoiseSource.seeded(0), epsilon_at_most=EPSILON))
    assert stream._crowd.size == 1
    assert sums(stream) != before


def test_public_losses_come_from_the_server_and_not_from_the_message():
    stream = LocalLosses(Budget.pure(EPSILON), public_losses=True).open(spec("full", 3), NoiseSource.seeded(0))
    what, table = record(*crowd(1), "full", 0), crowd(1)[1][0]
    message = report(stream, "ann", what, NoiseSource.seeded(1))
    with pytest.raises(ValueError, match="public"):
        stream.add_report(message)
    with pytest.raises(ValueError, match="shape"):
        stream.add_report(message, table[:1])
    stream.add_report(message, table)  # the caller's mistakes spent nobody
    stream.close_losses()
    expected = np.rint(table / 0.125) * 0.125 * LAYERS.mask[..., None]
    np.testing.assert_allclose(stream.release().losses, expected, atol=1e-12)
    private = LocalLosses(Budget.pure(EPSILON)).open(spec("full", 3), NoiseSource.seeded(0))
    with pytest.raises(ValueError, match="public"):
        private.add_report(report(private, "ann", what, NoiseSource.seeded(1)), table)


def test_numbers_that_no_honest_device_sends_are_refused():
    stream = LocalLosses(Budget.pure(EPSILON), laplace=True).open(spec("full", 3), NoiseSource.seeded(0))
    assert isinstance(stream.encoder, LaplaceEncoder)
    huge = np.zeros(sum(stream.encoder.sizes), dtype="<i8")
    huge[3] = 2**62
    with pytest.raises(ValueError, match="no honest device"):
        stream.add_report(Report("eve", stream.encoder.form, huge.tobytes()))
    assert not stream._reports.totals.any()
    assert stream._crowd.size == 0
