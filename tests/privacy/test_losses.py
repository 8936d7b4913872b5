"""Losses as a statistic and their privatizers: sensitivities by brute force, laws of the noise, ledgers, refusals."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest

from discreet.occupancies import Layers
from discreet.people.episodes import Episodes
from discreet.people.losses import LossSpec
from discreet.privacy.accounting import MARGIN, Budget
from discreet.privacy.families import Blocks, Family
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.toeplitz import ToeplitzSums, square_root
from discreet.privacy.sums.tree import Layout, TreeSums
from discreet.privacy.trust.local_losses import LocalLosses, chosen_cells
from discreet.privacy.trust.losses import CentralLosses, ExactLosses, LossPrivatizer, TableSums

LAYERS = Layers(((0,), (0, 2)), np.array([1.0, 0.0, 0.0]), 2)  # 6 cells, 4 triples


def users(*paths: tuple[tuple[int, int], ...]) -> Episodes:
    """Episodes from ((state, action), …) per step."""
    states = np.array([[s for s, _ in path] + [0] for path in paths])
    actions = np.array([[a for _, a in path] for path in paths])
    return Episodes(states, actions, np.zeros(actions.shape))


def crowd(n: int, seed: int = 0) -> tuple[Episodes, np.ndarray]:
    rng = np.random.default_rng(seed)
    second = rng.choice([0, 2], n)
    states = np.stack([np.zeros(n, dtype=np.int64), second, np.zeros(n, dtype=np.int64)], axis=1)
    episodes = Episodes(states, rng.integers(2, size=(n, 2)), np.zeros((n, 2)))
    return episodes, (rng.random((n, 2, 3, 2)) < 0.3).astype(np.float64)


def spec(feedback: str = "full", num_episodes: int = 1000) -> LossSpec:
    return LossSpec.for_episodes(LAYERS, feedback, num_episodes)  # type: ignore[arg-type]


# The statistic --------------------------------------------------------------------------------------


@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_sensitivities_are_attained_and_never_exceeded(feedback):
    """Every trajectory of the tiny problem with extreme losses, against every other."""
    one = LossSpec(LAYERS, feedback, 1, grid=0.5)
    extremes = [np.zeros((2, 3, 2)), np.ones((2, 3, 2))]
    records = []
    for a, (s, b) in itertools.product(range(2), itertools.product((0, 2), range(2))):
        for losses in extremes:
            records.append(one.contribution(users(((0, a), (s, b))), losses[None]))
    for neighbours in ("replace", "zero-out"):
        stated = one.sensitivity(neighbours)
        for table in ("visits", "transitions", "losses"):
            others = [r[table] for r in records] if neighbours == "replace" else [0 * records[0][table]]
            differences = [r[table] - other for r in records for other in others]
            assert max(np.abs(d).sum() for d in differences) == stated[table].l1
            assert max(np.linalg.norm(d) for d in differences) == pytest.approx(stated[table].l2)


def odd_records() -> list[tuple[Episodes, np.ndarray]]:
    """Records of one user with something wrong in her episode or in her losses."""
    fine, zeros = users(((0, 1), (2, 1))), np.ones((1, 2, 3, 2))
    records = [
        (users(((0, 0), (1, 0))), zeros),  # outside its layer
        (users(((0, 0), (3, 0))), zeros),
        (users(((-1, 0), (2, 0))), zeros),
        (users(((0, 2), (2, 0))), zeros),
        (users(((0, -1), (2, 0))), zeros),
        (users(((0, 0),)), zeros),  # too short
        (users(((0, 0), (2, 0), (0, 0))), zeros),  # too long
        (Episodes([[0, 0.5, 0]], [[0, 0]], [[0.0, 0.0]]), zeros),
        (Episodes([[0, 2, 0]], [[0, 0]], [[0.0, np.nan]]), zeros),
    ]
    for value in (1.5, -0.25, np.nan, np.inf, -np.inf):
        table = np.ones((1, 2, 3, 2))
        table[0, 1, 2, 1] = value
        records.append((fine, table))
    return records


@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_p8_records_with_errors_move_no_table_further_than_others_do(feedback):
    """Every pair of a good or bad record with a good or bad one; what is wrong contributes nothing."""
    one = LossSpec(LAYERS, feedback, 1, grid=0.5)
    records = [one.contribution(*record) for record in odd_records()]
    for losses in (np.zeros((1, 2, 3, 2)), np.ones((1, 2, 3, 2))):
        for a, (s, b) in itertools.product(range(2), itertools.product((0, 2), range(2))):
            records.append(one.contribution(users(((0, a), (s, b))), losses))
    for table, stated in one.sensitivity("replace").items():
        values = np.array([record[table] for record in records])
        assert np.abs(values[:, None] - values).sum(axis=2).max() == stated.l1
        assert np.linalg.norm(values[:, None] - values, axis=2).max() == pytest.approx(stated.l2)
    for (_, losses), found in zip(odd_records(), records, strict=False):
        walked = bool((losses != 1.0).any())  # only the losses are wrong
        assert found["visits"].sum() == (2 if walked else 0)
        assert found["transitions"].sum() == (1 if walked else 0)
        assert found["losses"].sum() == (0 if walked or feedback == "bandit" else 6 * one.units)


def test_p8_public_losses_do_not_show_whose_episode_could_not_be_read():
    """They are released as they are: an episode outside the layers must leave no trace in them."""
    episodes, losses = crowd(4)
    strange = Episodes(np.where(np.arange(4)[:, None] == 2, 1, episodes.states), episodes.actions, episodes.rewards)
    for privatizer in (
        CentralLosses(Budget.pure(1.0), public_losses=True),
        LocalLosses(Budget.pure(1.0), public_losses=True),
        LocalLosses(Budget.pure(1.0), public_losses=True, laplace=True),
    ):
        shown = []
        for people in (episodes, strange):
            stream = privatizer.open(spec(num_episodes=4), NoiseSource.seeded(0))
            stream.add(people, losses)
            stream.close_losses()
            stream.close_counts()
            shown.append(stream.release())
        np.testing.assert_array_equal(shown[0].losses, shown[1].losses)
        assert shown[0].counted == shown[1].counted == 4


@pytest.mark.parametrize("feedback", ["full", "bandit"])
@pytest.mark.parametrize(
    "privatizer",
    [
        CentralLosses(Budget.pure(1.0), visits=True),
        LocalLosses(Budget.pure(1.0)),
        LocalLosses(Budget.pure(1.0), laplace=True),
        ExactLosses(),
    ],
    ids=str,
)
def test_p8_no_record_stops_a_stream_of_losses(privatizer, feedback):
    stream = privatizer.open(spec(feedback, 60), NoiseSource.seeded(0))
    seen = 0
    for record in odd_records():
        stream.add(*record)
        stream.add(*crowd(1))
        seen += 2
    stream.close_counts()
    stream.close_losses()
    assert stream.release().counted == stream.release().num_episodes == seen
    episodes, losses = crowd(9)
    mixed = np.where(np.arange(9)[:, None] % 3 == 1, 7, episodes.states)
    stream.add(Episodes(mixed, episodes.actions, episodes.rewards), np.where(losses < 0.5, losses, np.nan))
    stream.close_counts()
    assert stream.release().counted == seen + 9


@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_p8_a_user_whose_episode_cannot_be_read_reports_no_step(feedback):
    """Locally her message is about no item; the messages of the others are as they would be without her."""
    episodes, losses = crowd(40)
    strange = Episodes(
        np.where(np.arange(40)[:, None] % 4 == 1, 1, episodes.states), episodes.actions, episodes.rewards
    )
    items = [
        LocalLosses(Budget.pure(1.0)).open(spec(feedback, 40), NoiseSource.seeded(3))._items(people, losses)
        for people in (episodes, strange)
    ]
    bad = np.arange(40) % 4 == 1
    assert (items[0] >= 0).all()
    assert (items[1][bad] == -1).all()
    assert np.array_equal(items[0][~bad], items[1][~bad])


def test_f8_whole_loss_tables_move_by_every_cell_and_bandit_losses_by_two_per_step():
    assert spec("full").sensitivity("replace")["losses"].l1 == 6 * spec().units
    assert spec("full").sensitivity("zero-out")["losses"].l1 == 6 * spec().units
    assert spec("bandit").sensitivity("replace")["losses"] == (4 * spec().units, 2.0 * spec().units)
    assert spec().sensitivity("replace")["transitions"] == (2.0, math.sqrt(2.0))  # the last step is not counted


def test_contributions_match_plain_loops():
    episodes, losses = crowd(50)
    losses *= 0.625
    full, bandit = spec("full").contribution(episodes, losses), spec("bandit").contribution(episodes, losses)
    visits, transitions = np.zeros((2, 3, 2)), np.zeros((2, 3, 2, 3))
    seen = np.zeros((2, 3, 2))
    for i in range(50):
        for h in range(2):
            cell = h, episodes.states[i, h], episodes.actions[i, h]
            visits[cell] += 1
            seen[cell] += losses[(i, *cell)]
        transitions[0, 0, episodes.actions[i, 0], episodes.states[i, 1]] += 1
    np.testing.assert_array_equal(spec().unpacked("visits", full["visits"]), visits)
    np.testing.assert_array_equal(spec().unpacked("transitions", full["transitions"]), transitions)
    np.testing.assert_allclose(spec().unpacked("losses", bandit["losses"] * spec().grid), seen, atol=1e-9)
    inside = LAYERS.mask[..., None] * losses.sum(axis=0)
    np.testing.assert_allclose(spec().unpacked("losses", full["losses"] * spec().grid), inside, atol=1e-9)


def test_arrays_of_another_shape_are_refused():
    episodes, losses = crowd(3)
    with pytest.raises(ValueError, match="shape"):
        spec().contribution(episodes, losses[:, :1])
    with pytest.raises(ValueError, match="2 loss tables"):
        spec().contribution(episodes, losses[:2])
    with pytest.raises(ValueError, match="feedback"):
        LossSpec(LAYERS, "none", 10)  # type: ignore[arg-type]


# Calibration and ledgers ----------------------------------------------------------------------------


def test_scales_follow_from_sensitivities_and_budget():
    pure = CentralLosses(Budget.pure(1.0)).families(spec())
    assert pure["losses"].scale == pytest.approx(6 * spec().units / 0.5 * (1 + MARGIN), rel=1e-12)
    assert pure["transitions"].scale == pytest.approx(2 / 0.5 * (1 + MARGIN), rel=1e-12)
    assert pure["visits"].entry is None
    tree = CentralLosses(
        Budget.pure(1.0),
        counts="tree",
        losses="constant-tree",
        num_count_blocks=999,
        num_loss_blocks=999,
        visits=True,
    ).families(spec())
    assert tree["losses"].scale == pytest.approx(10 * 6 * spec().units * 3, rel=1e-9)
    assert tree["visits"].scale == pytest.approx(10 * 4 * 3, rel=1e-9)
    gauss = CentralLosses(Budget.zcdp(0.5)).families(spec())
    assert gauss["losses"].scale == pytest.approx(math.sqrt(6) * spec().units / math.sqrt(2 * 0.25), rel=1e-9)
    public = CentralLosses(Budget.pure(1.0), public_losses=True).families(spec())
    assert public["losses"].entry is None
    assert public["transitions"].scale == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize(
    ("privatizer", "model"),
    [
        (CentralLosses(Budget.pure(0.7)), "joint"),
        (CentralLosses(Budget.pure(0.7), "zero-out", visits=True), "joint"),
        (CentralLosses(Budget.approximate(0.7, 1e-6), losses="toeplitz", num_loss_blocks=20), "joint"),
        (
            CentralLosses(
                Budget.pure(0.7), counts="tree", losses="constant-tree", num_count_blocks=99, num_loss_blocks=99
            ),
            "joint",
        ),
        (CentralLosses(Budget.pure(0.7), public_losses=True), "joint"),
        (LocalLosses(Budget.pure(0.7)), "local"),
        (LocalLosses(Budget.pure(0.7), laplace=True), "local"),
    ],
    ids=str,
)
def test_ledgers_compose_to_the_budget(privatizer: LossPrivatizer, model: str):
    stream = privatizer.open(spec(num_episodes=100), NoiseSource.seeded(0))
    guarantee = stream.guarantee
    assert guarantee.model == model
    assert 0.7 * (1 - 1e-6) <= guarantee.epsilon <= 0.7
    assert stream.ledger
    rho = sum(entry.rho for entry in stream.ledger)
    if guarantee.delta:
        assert guarantee.rho == pytest.approx(rho, rel=1e-6)
    else:
        assert sum(entry.cost for entry in stream.ledger) <= 0.7 * (1 + 1e-12)
    assert any("layers" in line or "can occur" in line for line in guarantee.assumptions)
    public = getattr(privatizer, "public_losses", False)
    assert public == any("loss tables are public" in line for line in guarantee.assumptions)
    assert public != any("loss" in entry.statistic for entry in stream.ledger) or model == "local"


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="cannot be public"):
        CentralLosses(Budget.pure(1.0), public_losses=True).open(spec("bandit"), NoiseSource.seeded(0))
    with pytest.raises(ValueError, match="cannot be public"):
        LocalLosses(Budget.pure(1.0), public_losses=True).open(spec("bandit"), NoiseSource.seeded(0))
    with pytest.raises(ValueError, match="Gaussian"):
        CentralLosses(Budget.pure(1.0), losses="toeplitz")
    with pytest.raises(ValueError, match="on every counter only"):
        LocalLosses(Budget.pure(1.0), calibration="paper")
    stream = CentralLosses(Budget.pure(1.0)).open(spec(num_episodes=5), NoiseSource.seeded(0))
    with pytest.raises(ValueError, match="exceed the 5"):
        stream.add(*crowd(6))
    with pytest.raises(TypeError, match="raw"):
        pickle.dumps(stream)


# Streams --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_without_noise_every_mechanism_equals_the_exact_sums(feedback):
    episodes, losses = crowd(60)
    streams = [
        ExactLosses().open(spec(feedback), NoiseSource.seeded(0)),
        CentralLosses(Budget.pure(math.inf), visits=True).open(spec(feedback), NoiseSource.seeded(0)),
        CentralLosses(Budget.zcdp(math.inf), losses="toeplitz", num_loss_blocks=9, visits=True).open(
            spec(feedback), NoiseSource.seeded(0)
        ),
    ]
    for start in (0, 20, 40):
        part = Episodes(
            *(array[start : start + 20] for array in (episodes.states, episodes.actions, episodes.rewards))
        )
        for stream in streams:
            stream.add(part, losses[start : start + 20])
            stream.close_losses()
        if start == 20:
            for stream in streams:
                stream.close_counts()
    first, *others = (stream.release() for stream in streams)
    for other in others:
        for table in ("visits", "transitions", "losses", "latest"):
            np.testing.assert_allclose(getattr(other, table), getattr(first, table), atol=1e-9)
        assert (other.num_episodes, other.counted, other.block_users, other.num_blocks) == (60, 40, 20, 3)


def test_noise_is_drawn_once_per_block():
    stream = CentralLosses(Budget.pure(1.0)).open(spec(), NoiseSource.seeded(1))
    stream.add(*crowd(30))
    before = stream.release()
    assert (before.losses == 0).all()  # no block has ended, nothing is shown
    stream.close_losses()
    shown = stream.release()
    assert stream.release() is shown
    stream.close_losses()  # nobody new: no new block, no new noise
    assert stream.release() is shown
    stream.add(*crowd(10, 1))
    assert stream.release() is shown
    stream.close_counts()
    later = stream.release()
    np.testing.assert_array_equal(later.losses, shown.losses)
    assert not np.array_equal(later.transitions, shown.transitions)


def test_changing_a_user_under_the_same_noise_moves_releases_by_her_contribution_alone():
    episodes, losses = crowd(40)
    other = losses.copy()
    other[7] = 1.0 - other[7]
    releases = []
    for tables in (losses, other):
        stream = CentralLosses(Budget.pure(1.0), losses="constant-tree", num_loss_blocks=4).open(
            spec(), NoiseSource.seeded(3)
        )
        for start in range(0, 40, 10):
            part = Episodes(
                *(array[start : start + 10] for array in (episodes.states, episodes.actions, episodes.rewards))
            )
            stream.add(part, tables[start : start + 10])
            if start < 30:
                stream.close_losses()
        releases.append(stream.release().losses)
    moved = np.abs(releases[0] - releases[1])
    np.testing.assert_allclose(moved, LAYERS.mask[..., None] * np.ones(2), atol=1e-9)


def test_the_noise_of_blocks_has_the_stated_scale_and_no_other():
    """24 000 values: the variance is known to about 1.5 %, so that 0.7 and 1.3 of the scale are far outside."""
    privatizer = CentralLosses(Budget.pure(2.0))
    episodes, losses = crowd(1)
    stream = privatizer.open(spec("full", 4000), NoiseSource.seeded(5))
    values = []
    for _ in range(4000):
        stream.add(episodes, 0.0 * losses)
        stream.close_losses()
        values.append(stream.release().latest[LAYERS.mask].reshape(-1))
    family = privatizer.families(spec("full", 4000))["losses"]
    expected = 2.0 * (family.scale * spec("full", 4000).grid) ** 2
    assert np.var(values) == pytest.approx(expected, rel=0.08)
    for wrong in (0.7, 1.3):
        assert np.var(values) != pytest.approx(expected * wrong**2, rel=0.3)
    assert stream.release().loss_deviation == pytest.approx(math.sqrt(4000 * expected), rel=1e-3)
    assert (
        np.abs(values).max()
        <= CentralLosses(Budget.pure(2.0), num_loss_blocks=4000)
        .open(spec("full", 4000), NoiseSource.seeded(0))
        .release()
        .loss_width
    )


def test_constant_trees_hold_every_prefix_and_no_leaf_too_often():
    """Nodes in use after t blocks split 1..t by the bits of t; a node keeps its noise; leaves lie in ≤ L nodes."""
    family = Family("losses", (1,), 1.0, "laplace", 3.0, None)
    levels, blocks = 5, 31
    layout = Layout(blocks, levels, None, levels)
    nodes = TreeSums(Blocks([family], NoiseSource.seeded(0)), layout)
    tree = TableSums(family, nodes)
    covered: dict[tuple[int, int], int] = {}
    leaves: dict[int, set[tuple[int, int]]] = {leaf: set() for leaf in range(blocks)}
    kept = []
    for t in range(1, blocks + 1):
        tree.add(np.array([100]))
        tree.close()
        assert sorted(nodes.nodes) == [bit for bit in range(levels) if t >> bit & 1]
        for bit, noise in nodes.nodes.items():
            start = t >> (bit + 1) << (bit + 1)
            node = start, start + (1 << bit)
            assert covered.setdefault(node, id(noise)) == id(noise)
            kept.append(noise)  # so that no address is used twice
            for leaf in range(*node):
                leaves[leaf].add(node)
        assert tree.value[0] == 100 * t + sum(noise[0] for noise in nodes.nodes.values())
    assert max(len(nodes) for nodes in leaves.values()) == levels
    with pytest.raises(ValueError, match="no room"):
        tree.close()
    padded = TableSums(family, TreeSums(Blocks([family], NoiseSource.seeded(0)), layout, constant=True))
    deviations = set()
    for _ in range(blocks):
        padded.close()
        deviations.add(padded.deviation)
    assert len(deviations) == 1


def test_toeplitz_sums_decode_prefixes_and_state_their_noise():
    family = Family("losses", (2000,), 1.0, "gaussian", 50.0, None)
    total = TableSums(family, ToeplitzSums(Blocks([family], NoiseSource.seeded(0)), [square_root(12, 12)], [2000]))
    family_units = 2.0**12
    expected = np.zeros(2000)
    for block in range(12):
        vector = np.full(2000, 10 * (block + 1))
        total.add(vector)
        expected += vector
        total.close()
        error = total.value - expected
        assert abs(error.mean()) <= 4 * total.deviation / math.sqrt(2000)
        assert error.std() == pytest.approx(total.deviation, rel=0.08)  # 5 sd of a standard deviation of 2 000 values
    assert total.deviation < 50.0 / family_units * 12  # better than one noise per block at the same measurement noise
    with pytest.raises(ValueError, match="declared blocks"):
        total.close()


# Local reports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("feedback", "epsilon"), [("full", 1.0), ("full", 6.0), ("bandit", 3.0)])
def test_local_estimates_are_unbiased_with_the_stated_spread(feedback, epsilon):
    n, runs = 400, 150
    episodes, losses = crowd(n)
    exact = spec(feedback, n).contribution(episodes, losses)
    counts, sums = [], []
    for seed in range(runs):
        stream = LocalLosses(Budget.pure(epsilon)).open(spec(feedback, n), NoiseSource.seeded(seed))
        stream.add(episodes, losses)
        stream.close_counts()
        stream.close_losses()
        release = stream.release()
        counts.append(release.transitions[0, 0][:, [0, 2]].reshape(-1))
        sums.append(release.losses[LAYERS.mask].reshape(-1))
    for found, truth, stated in (
        (np.array(counts), exact["transitions"], release.count_deviation),
        (np.array(sums), exact["losses"] * spec(feedback, n).grid, release.loss_deviation),
    ):
        spread = found.std(axis=0)
        assert (np.abs(found.mean(axis=0) - truth) <= 4.5 * spread / math.sqrt(runs)).all()
        assert spread.mean() >= 0.75 * stated * (0.6 if feedback == "bandit" else 1.0)
        assert (spread <= 1.5 * stated + 3.0 * math.sqrt(n)).all()  # noise as stated, and sampling on top of it


def test_messages_drawn_one_by_one_have_the_same_law_as_their_sums():
    """Below the threshold every message is drawn: means over many small crowds agree with the exact counts."""
    episodes, losses = crowd(20)
    found = []
    for seed in range(300):
        stream = LocalLosses(Budget.pure(2.0)).open(spec("bandit", 20), NoiseSource.seeded(seed))
        stream.add(episodes, losses)
        stream.close_counts()
        found.append(stream.release().transitions[0, 0][:, [0, 2]].reshape(-1))
    truth = spec("bandit", 20).contribution(episodes, losses)["transitions"]
    error = np.array(found).mean(axis=0) - truth
    assert (np.abs(error) <= 4.5 * np.array(found).std(axis=0) / math.sqrt(300)).all()


def test_few_cells_are_reported_when_epsilon_is_small_and_more_when_it_is_large():
    assert chosen_cells(0.5, 18) == 1
    assert chosen_cells(1.0, 18) == 1
    assert 2 <= chosen_cells(10.0, 18) <= 10
    assert chosen_cells(500.0, 18) == 18


def test_public_losses_stay_exact_in_the_local_model():
    episodes, losses = crowd(100)
    stream = LocalLosses(Budget.pure(1.0), public_losses=True).open(spec("full", 100), NoiseSource.seeded(0))
    stream.add(episodes, losses)
    stream.close_losses()
    np.testing.assert_allclose(stream.release().losses, LAYERS.mask[..., None] * losses.sum(axis=0), atol=1e-9)


def test_forecasts_need_no_data_and_scale_with_the_budget():
    few = CentralLosses(Budget.pure(1.0), num_loss_blocks=100).noise_share(spec("full", 10_000))
    expected = 6 / 0.5 * math.sqrt(2 * 100) / 10_000
    assert few == pytest.approx(expected, rel=1e-3)
    more = CentralLosses(Budget.pure(10.0), num_loss_blocks=100).noise_share(spec("full", 10_000))
    assert more == pytest.approx(expected / 10, rel=1e-2)
    assert CentralLosses(Budget.pure(1.0), public_losses=True).noise_share(spec()) == 0.0
    assert ExactLosses().noise_share(spec()) == 0.0


def test_the_forecast_of_local_noise_is_what_a_stream_then_states():
    n = 4000
    episodes, losses = crowd(n)
    for privatizer in (LocalLosses(Budget.pure(1.0)), LocalLosses(Budget.pure(1.0), laplace=True)):
        stream = privatizer.open(spec("full", n), NoiseSource.seeded(0))
        stream.add(episodes, losses)
        stream.close_losses()
        assert stream.release().loss_deviation / n == pytest.approx(privatizer.noise_share(spec("full", n)), rel=0.05)
