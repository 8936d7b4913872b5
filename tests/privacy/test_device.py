"""A device trusts no server: what it sends, what it refuses to send, and that any record can be sent."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.device import (
    BitEncoder,
    LaplaceEncoder,
    Refused,
    Report,
    ReportEncoder,
    Reporter,
    SampledEncoder,
    Tables,
    encoder_from_json,
)
from discreet.device.bits import CountBits
from discreet.device.encoders import Encoder
from discreet.occupancies import Layers
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.people.losses import LossSpec
from discreet.planning import Plan
from discreet.privacy.accounting import Budget, LedgerEntry
from discreet.privacy.families import Family
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.tree import Tree
from discreet.privacy.trust.local import LocalLaplace, LocalSampled, kept_words
from discreet.privacy.trust.local_losses import LocalLosses, LocalLossStream
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.losses import CentralLosses
from discreet.privacy.trust.truncated import TruncatedLocal
from discreet.problem import PublicStructure
from discreet.releases.counts import Thresholds
from oracles_spotlight import announced

SPEC = CountSpec(2, 2, 3, False, grid=0.25, reward_range=(-1.0, 2.0))
EPISODE = ([0, 1, 1, 0], [1, 0, 1], [2.0, 0.5, -1.0])
EPSILON = 0.5
START = PublicStructure(initial=np.array([1.0, 0.0]))


class Untouched(NoiseSource):
    """A source that must not be asked for anything."""

    def __init__(self) -> None:
        pass

    def words(self, count: int) -> Any:
        raise AssertionError("noise was drawn")

    def laplace(self, scale: float, shape: Any) -> Any:
        raise AssertionError("noise was drawn")

    gaussian = laplace


def report_encoder(epsilon: float, cells: tuple[int, ...], start: PublicStructure | None = START) -> ReportEncoder:
    stream = LocalReports(Budget.pure(epsilon), start or PublicStructure()).open(SPEC, 9, NoiseSource.seeded(0))
    stream.begin(announced(stream.alphabet, cells))
    return stream.encoder


def encoders(epsilon: float = EPSILON) -> dict[str, Encoder]:
    """One of every kind that a server publishes, at this budget."""
    budget, noise = Budget.pure(epsilon), NoiseSource.seeded(0)
    unary, response = (report_encoder(epsilon, cells) for cells in ((0, 3, 5), (2,)))
    assert epsilon != EPSILON or (unary.method, response.method) == ("unary", "response")
    return {
        "laplace": LocalLaplace(budget).open(SPEC, 9, noise).encoder,
        "laplace without rewards": LocalLaplace(budget, shares=(1, 1, 0)).open(SPEC, 9, noise).encoder,
        "sampled": LocalSampled(budget).open(SPEC, 9, noise).encoder,
        "unary": unary,
        "response": response,
        "with start": report_encoder(epsilon, (0, 12), None),
        **loss_encoders(epsilon),
    }


def loss_encoders(epsilon: float) -> dict[str, Encoder]:
    """One of every kind about losses."""
    layers = Layers(((0,), (0, 1), (1,)), np.array([1.0, 0.0]), 2)
    found: dict[str, Encoder] = {}
    for feedback in ("full", "bandit"):
        spec = LossSpec(layers, feedback, 9, 0.25)  # type: ignore[arg-type]
        for name, laplace in (("step", False), ("counters", True)):
            stream = LocalLosses(Budget.pure(epsilon), laplace=laplace).open(spec, NoiseSource.seeded(0))
            found[f"loss {name} {feedback}"] = stream.encoder
            if name == "step" and feedback == "full":
                assert isinstance(stream, LocalLossStream)
                found["loss cells"] = stream._cells_encoder()
    return found


KINDS = list(encoders())


# A table without a share --------------------------------------------------------------------------------------------


def test_p2_a_table_without_budget_is_not_in_the_message() -> None:
    """Users whose rewards differ, and nothing else, send the same bytes: visits and transitions only."""
    spec = CountSpec(2, 2, 2, False, grid=0.5)
    stream = LocalLaplace(Budget.pure(0.1), shares=(1, 1, 0)).open(spec, 5, NoiseSource.seeded(0))
    payloads = {
        stream.encoder.encode("ann", [0, 1, 0], [1, 0], paid, NoiseSource.seeded(1), epsilon_at_most=0.1).payload
        for paid in ([0.0, 0.0], [1.0, 0.0], [1.0, 1.0])
    }
    assert len(payloads) == 1
    assert len(payloads.pop()) == 8 * (8 + 16)
    assert stream.encoder.epsilon <= 0.1
    stream.add_report(Report("ann", stream.encoder.form, bytes(8 * 24)))
    release = stream.release()
    assert release.num_episodes == 1
    assert not release.reward_sums.any()
    assert release.widths.rewards == release.deviations.rewards == math.inf


def test_p2_the_server_of_such_reports_keeps_nothing_of_that_table() -> None:
    spec = CountSpec(3, 2, 4, False)
    rng = np.random.default_rng(0)
    episodes = Episodes(rng.integers(3, size=(50, 5)), rng.integers(2, size=(50, 4)), rng.random((50, 4)))
    worlds = []
    for users in (episodes, replace(episodes, rewards=1.0 - episodes.rewards)):
        stream = LocalLaplace(Budget.pure(0.1), shares=(1, 1, 0)).open(spec, 50, NoiseSource.seeded(3))
        stream.add(users)
        worlds.append(stream._reports.totals)
    assert np.array_equal(*worlds)


def test_p2_truncated_reports_keep_no_raw_rewards() -> None:
    """Everything the stream holds, written out: no table of raw reward sums in it."""
    spec = CountSpec(2, 2, 1, True, 2.0**-6, reward_range=None)
    stream = TruncatedLocal(Budget.pure(0.1)).open(spec, 4, NoiseSource.seeded(0))
    nothing = np.zeros((1, 1, 1))
    stream.begin(Plan(nothing, nothing[0], nothing, announcement=Thresholds(np.full((1, 2, 2), 8.0))))
    paid = [1.0, 2.0, 3.0, 5.0]
    for state, action in itertools.product(range(2), range(2)):
        stream.add(Episodes([[state, 0]], [[action]], [[paid[2 * state + action]]]))
    assert stream._counts._reports.totals.size == 4 + 8
    for raw in (np.array(paid) * 64, np.array([64, 64, 64, 64])):
        assert raw.astype(np.int64).tobytes() not in pickle.dumps(vars(stream._counts)) + pickle.dumps(stream._sums)


def test_p2_no_noise_is_charged_as_no_privacy_or_refused() -> None:
    for mechanism, norm in (("discrete-laplace", "l1"), ("discrete-gaussian", "l2")):
        with pytest.raises(ValueError, match="scale 0 hides nothing"):
            LedgerEntry("visits", mechanism, norm, 2.0, 0.0, 1, 0.1)  # type: ignore[arg-type]
        free = LedgerEntry("visits", mechanism, norm, 2.0, 0.0, 1, math.inf)  # type: ignore[arg-type]
        assert Family("visits", (2,), 1.0, "laplace", 0.0, free).deviation == 0.0
        with pytest.raises(ValueError, match="ledger charges"):
            Family("visits", (2,), 1.0, "laplace", 0.5, free)
    with pytest.raises(ValueError, match="scale 0 although"):  # as printed: log₂ 1 = 0
        Tree(Budget.pure(1.0), calibration="paper").open(SPEC, 1, NoiseSource.seeded(0))
    losses = LossSpec.for_episodes(Layers(((0,), (0, 1)), np.array([1.0, 0.0]), 2), "full", 10)
    with pytest.raises(ValueError, match="positive"):
        CentralLosses(Budget.pure(1.0), weights={"transitions": 1.0, "losses": 0.0}).open(
            losses, NoiseSource.seeded(0)
        )
    endless = LocalLaplace(Budget.pure(math.inf)).open(SPEC, 3, NoiseSource.seeded(0))
    assert endless.encoder.scales == (0.0, 0.0, 0.0)
    assert endless.encoder.epsilon == endless.guarantee.epsilon == math.inf
    assert "without any privacy" in endless.guarantee.sentence()


# What an encoder costs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stages", "scales"), [(2, (3.0, 5.0, 7.0)), (1, (0.1, 1e12, 2.5)), (2, (3.0, None, 11.0))])
def test_p3_epsilon_of_laplace_reports_is_the_worst_of_all_pairs_of_records(stages: int, scales: tuple) -> None:
    """Brute force over every episode of up to two steps, bad records included: Σ_c |x_c − x'_c|/b, in fractions."""
    tables = Tables(2, 2, 2, stages, 0.5, (0.0, 1.0))
    encoder = LaplaceEncoder(tables, scales)
    records = [([0, 5, 0], [0, 0], [1.0, 1.0]), ([0], [], [])]
    for length in (1, 2):
        records += itertools.product(
            itertools.product(range(2), repeat=length + 1),
            itertools.product(range(2), repeat=length),
            itertools.product((0.0, 1.0, math.inf), repeat=length),
        )
    rates = np.repeat([0.0 if b is None else 1.0 / b for b in scales], encoder.sizes)
    values = np.unique([encoder.contribution(*record) for record in records], axis=0) * rates
    worst = max(float(np.abs(values - one).sum(axis=1).max()) for one in values)
    assert worst <= encoder.epsilon * (1 + 1e-12)
    assert worst == pytest.approx(encoder.epsilon, rel=1e-12)


def test_p3_epsilon_is_exact_and_rounded_up() -> None:
    tables = Tables(2, 2, 3, 3, 2.0**-20, (0.0, 1.0))
    for scales in ((3.0, 7.0, 1e7), (0.1, 0.3, None), (1 / 3, 18.000000003, 12345.678)):
        true = sum(6 * (2**20 if i == 2 else 1) / Fraction(b) for i, b in enumerate(scales) if b is not None)
        found = LaplaceEncoder(tables, scales).epsilon
        assert Fraction(math.nextafter(found, 0.0)) < true <= Fraction(found)
    assert LaplaceEncoder(tables, (0.0, None, None)).epsilon == math.inf


@settings(max_examples=150, deadline=None)
@given(epsilon=st.floats(1e-9, 40.0), answers=st.integers(2, 10**6))
def test_p3_epsilon_of_randomised_answers_covers_the_true_ratio_and_stays_within_the_budget(
    epsilon: float, answers: int
) -> None:
    items = tuple(range(min(answers - 1, 50)))
    words = kept_words(epsilon, len(items) + 1)
    encoder = ReportEncoder(Tables(5, 2, 2, 1, 1.0, (0.0, 1.0)), items, "response", words, "v")
    with mpmath.workdps(60):
        true = mpmath.log(1 + mpmath.mpf(words * (len(items) + 1)) / (2**64 - words))
        assert true <= encoder.epsilon <= epsilon


@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(1e-3, 12.0))
def test_p3_what_our_own_servers_publish_costs_at_most_their_budget(epsilon: float) -> None:
    for kind, encoder in encoders(epsilon).items():
        assert 0.9999 * epsilon < encoder.epsilon <= epsilon, kind


def leaves(message: Any, path: tuple = ()) -> Iterator[tuple]:
    """Paths to everything in a message, containers included."""
    if path:
        yield path
    if isinstance(message, dict):
        for key in message:
            yield from leaves(message[key], (*path, key))
    if isinstance(message, list):
        for i, item in enumerate(message):
            yield from leaves(item, (*path, i))


MISSING = object()


def edits(value: Any) -> list[Any]:
    """What a dishonest server might write in place of a value."""
    fixed = [0, 1, -1, 2**63, 2**64 - 1, 2**64, 10**30, 10**400, 0.0, -0.0, 0.5, 1e-300, 1e300, math.nan, math.inf]
    fixed += [
        str(2**63),
        str(2**64 - 1),
        str(2**64 - 2),
        "0",
        "-1",
        "1e3",
        " 1",
        "0x10",
        "1" * 5000,
        "٣",
        "",
        "unary",
    ]
    fixed += ["response", "laplace", None, True, False, [], {}, [0], [0, 0, 0], {"a": 1}, MISSING]
    if isinstance(value, str) and value.lstrip("-").isdigit():
        n = int(value)
        fixed += [str(n + 1), str(n - 1), str(n // 2), str(2 * n), n]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        fixed += [value + 1, value - 1, -value, value / 2, value * 2, str(value), math.nextafter(value, math.inf)]
    return fixed


def edited(message: dict, path: tuple, value: Any) -> dict:
    changed = copy.deepcopy(message)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if value is MISSING:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return changed


def true_epsilon(message: dict) -> mpmath.mpf:
    """From the numbers of a message, by other means than the encoder's."""
    if message["encoder"] == "loss-cells":
        flips = int(message["flips"])
        one = mpmath.inf if flips == 0 else mpmath.log(mpmath.mpf(2**64 - flips) / flips)
        return len(message["cells"]) * one
    if message["encoder"] == "laplace":
        tables = message["tables"]
        layers = tables.get("layers")
        H = int(tables["horizon"]) if layers is None else len(layers)
        units = 1 / Fraction(tables["grid"])
        moves = (2 * H, 2 * H, 2 * H * units)
        if layers is not None:
            cells = int(tables["num_actions"]) * sum(len(layer) for layer in layers)
            moves = (2 * H, 2 * (H - 1), (cells if tables["feedback"] == "full" else 2 * H) * units)
        told = [(m, Fraction(b)) for m, b in zip(moves, message["scales"], strict=True) if b is not None]
        if any(b == 0 for _, b in told):
            return mpmath.inf
        total = sum((Fraction(m) / b for m, b in told), Fraction(0))
        return mpmath.mpf(total.numerator) / total.denominator
    words = int(message["flips"] if message["encoder"] == "sampled-step" else message["words"])
    if message.get("method") == "response":
        return mpmath.log(1 + mpmath.mpf(words * (len(message["items"]) + 1)) / (2**64 - words))
    return mpmath.inf if words == 0 else mpmath.log(mpmath.mpf(2**64 - words) / words)


@pytest.mark.parametrize("kind", KINDS)
def test_p3_an_edited_encoder_costs_no_more_or_is_refused_before_noise_is_drawn(kind: str) -> None:
    """Every field, every edit. A device given ε never sends at more, and what it computes is true."""
    honest = encoders()[kind]
    message = json.loads(json.dumps(honest.to_json()))
    refused = sent = 0
    for path in leaves(message):
        here: Any = message
        for key in path:
            here = here[key]
        for value in edits(here):
            changed = edited(message, path, value)
            try:
                encoder = encoder_from_json(changed)
            except ValueError:
                refused += 1
                continue
            with mpmath.workdps(60):
                assert true_epsilon(changed) <= encoder.epsilon, (path, value)
            if encoder.epsilon > EPSILON:
                refused += 1
                for record in (EPISODE, ("nonsense", None, [])):
                    with pytest.raises(Refused, match=r"more than the 0\.5"):
                        encoder.encode("ann", *record, Untouched(), epsilon_at_most=EPSILON)
                continue
            sent += 1
            assert encoder.form != honest.form or encoder == honest
            if sum(encoder.tables.cells) < 10**5:
                encoder.encode("ann", *EPISODE, NoiseSource.seeded(0), epsilon_at_most=EPSILON)
    assert refused > 100
    assert sent > 10
    for changed in (
        {**message, "extra": 1},
        {**message, "tables": {**message["tables"], "extra": 1}},
        [],
        None,
        "laplace",
    ):
        with pytest.raises(ValueError):
            encoder_from_json(changed)


@pytest.mark.parametrize("kind", KINDS)
def test_p3_the_limit_is_the_devices_own_and_must_be_stated(kind: str) -> None:
    encoder = encoders()[kind]
    with pytest.raises(TypeError, match="epsilon_at_most"):
        encoder.encode("ann", *EPISODE, NoiseSource.seeded(0))  # type: ignore[call-arg]
    for limit in (math.nextafter(encoder.epsilon, 0.0), 0.0, -1.0, math.nan):
        with pytest.raises(Refused):
            encoder.encode("ann", *EPISODE, Untouched(), epsilon_at_most=limit)
    assert encoder.encode("ann", *EPISODE, NoiseSource.seeded(0), epsilon_at_most=encoder.epsilon).user == "ann"


@pytest.mark.parametrize("kind", KINDS)
def test_p3_names_are_whole_digests_of_what_is_published(kind: str) -> None:
    encoder = encoders()[kind]
    text = json.dumps(encoder.to_json(), sort_keys=True, separators=(",", ":"))
    import hashlib

    assert encoder.form == hashlib.sha256(text.encode()).hexdigest()
    assert encoder_from_json(json.loads(text)) == encoder
    if isinstance(encoder, ReportEncoder):
        assert len(encoder.version) == 64


def test_p3_whole_numbers_beyond_2_to_the_53_travel_as_texts() -> None:
    encoder = SampledEncoder(Tables(2, 2, 2, 1, 0.5, (0.0, 1.0)), 2**62 + 1)
    message = encoder.to_json()
    assert message["flips"] == "4611686018427387905"
    assert encoder_from_json(message) == encoder
    with pytest.raises(ValueError, match="2⁵³"):
        encoder_from_json({**message, "flips": 2**62 + 1})
    for same in (12345, "12345"):
        assert encoder_from_json({**message, "flips": same}) == replace(encoder, flips=12345)


# Once ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [LocalLaplace, LocalSampled])
@pytest.mark.parametrize("first", ["another form", "cut off", "too late"])
def test_p7_a_refused_message_spends_its_user(make: Any, first: str) -> None:
    stream = make(Budget.pure(EPSILON)).open(SPEC, 2, NoiseSource.seeded(0))
    good = stream.encoder.encode("ann", *EPISODE, NoiseSource.seeded(1), epsilon_at_most=EPSILON)
    if first == "too late":
        stream.add(Episodes([[0, 0, 0, 0]] * 2, [[0, 0, 0]] * 2, [[0.0] * 3] * 2))
    bad = {
        "another form": replace(good, form="0" * 64),
        "cut off": replace(good, payload=good.payload[:-1]),
        "too late": good,
    }[first]
    before = stream.release()
    with pytest.raises(ValueError, match=r"another form|exceed"):
        stream.add_report(bad)
    with pytest.raises(ValueError, match="already sent"):
        stream.add_report(good)
    assert np.array_equal(stream.release().transitions, before.transitions)


def test_p7_a_late_report_on_targets_spends_its_user() -> None:
    stream = LocalReports(Budget.pure(EPSILON), START).open(SPEC, 9, NoiseSource.seeded(0))
    stream.begin(announced(stream.alphabet, (0,)))
    late = stream.encoder.encode("ann", *EPISODE, NoiseSource.seeded(1), epsilon_at_most=EPSILON)
    other = stream.encoder.encode("bob", *EPISODE, NoiseSource.seeded(2), epsilon_at_most=EPSILON)
    stream.add_report(other)
    stream.release()
    with pytest.raises(ValueError, match="no targets"):
        stream.add_report(late)
    stream.begin(announced(stream.alphabet, (1,)))
    again = stream.encoder.encode("ann", *EPISODE, NoiseSource.seeded(3), epsilon_at_most=EPSILON)
    with pytest.raises(ValueError, match="already sent"):
        stream.add_report(again)
    assert stream.release().num_episodes == 1


@pytest.mark.parametrize("kind", KINDS)
def test_p7_a_device_reports_once_to_a_deployment_and_remembers(kind: str) -> None:
    encoder, other = encoders()[kind], encoders(0.25)[kind]
    device = Reporter("ann", EPSILON)
    with pytest.raises(Refused, match="more than"):
        device.report("shop", encoders(0.6)[kind], *EPISODE, Untouched())
    assert device.reported == frozenset()  # nothing was sent, nothing is spent
    assert device.report("shop", encoder, *EPISODE, NoiseSource.seeded(0)).form == encoder.form
    device = Reporter("ann", EPSILON, device.reported)  # the device is switched off and on
    for again in (encoder, other):
        with pytest.raises(Refused, match="already reported"):
            device.report("shop", again, *EPISODE, Untouched())
    assert device.report("clinic", other, *EPISODE, NoiseSource.seeded(0)).form == other.form
    assert device.reported == {"shop", "clinic"}
    for nothing in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="positive"):
            Reporter("ann", nothing)


def test_p7_shuffled_bits_are_sent_once_and_within_the_limit() -> None:
    fine = BitEncoder(CountBits(Tables(2, 2, 3, 3, 0.5, (0.0, 1.0))), 8000, 1, 2**63)
    few = replace(fine, users=40, reliable=40)
    device = Reporter("ann", EPSILON)
    for dear, delta in ((few, 1e-6), (fine, 0.0)):
        with pytest.raises(Refused, match=r"more than the 0\.5"):
            device.bits("shop", dear, *EPISODE, Untouched(), delta_at_most=delta)
    assert device.reported == frozenset()
    assert device.bits("shop", fine, *EPISODE, delta_at_most=1e-6).size == fine.messages_per_user
    with pytest.raises(Refused, match="already reported"):
        device.bits("shop", fine, *EPISODE, Untouched(), delta_at_most=1e-6)
    with pytest.raises(Refused, match="already reported"):
        device.report("shop", encoders()["sampled"], *EPISODE, Untouched())
    with pytest.raises(Refused, match="more than"):  # for all she knows, most others stay away
        device.bits("clinic", fine, *EPISODE, Untouched(), delta_at_most=1e-6, honest=0.1)


# Any record can be sent ---------------------------------------------------------------------------------------------

BAD: list[tuple[Any, Any, Any]] = [
    ([0, 2], [0], [0.5]),
    ([0, -1], [0], [0.5]),
    ([0, 1], [3], [0.5]),
    ([0, 1], [0], [math.nan]),
    ([0.5, 1], [0], [0.5]),
    ([0, 1, 0], [0], [0.5]),
    ([0], [0], [0.5]),
    ([0, 1], [0], []),
    ([0, 1, 0, 1, 0], [0, 0, 0, 0], [0.5, 0.5, 0.5, 0.5]),
    (["a", 1], [0], [0.5]),
    ([None, 1], [0], [0.5]),
    ([0, 1], [0], ["much"]),
    ([0, 1], [0], [1 + 2j]),
    ([0, [1, 0]], [0], [0.5]),
    ([[0, 1]], [[0]], [[0.5]]),
    ([2**80, 1], [0], [0.5]),
    ([0, 1], [0], [10**400]),
    ([], [], []),
    (None, None, None),
    ("0", "1", "2"),
    (object(), {}, {1: 2}),
    (7, 7, 7),
    ([math.inf, 1], [0], [0.5]),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("record", BAD)
def test_p8_a_record_that_cannot_be_read_is_sent_as_nothing(kind: str, record: tuple) -> None:
    """The same bytes, from the same noise, as of somebody to whom nothing happened."""
    encoder = encoders()[kind]
    sent = encoder.encode("ann", *record, NoiseSource.seeded(5), epsilon_at_most=EPSILON)
    nothing = encoder.encode("ann", [], [], [], NoiseSource.seeded(5), epsilon_at_most=EPSILON)
    assert sent == nothing
    if kind != "with start":
        assert sent == encoder.encode("ann", [0], [], [], NoiseSource.seeded(5), epsilon_at_most=EPSILON)
    else:
        assert encoder.answer(*record, NoiseSource.seeded(5)) == -1
        assert encoder.answer([0], [], [], NoiseSource.seeded(5)) >= 0
    if isinstance(encoder, LaplaceEncoder):
        assert not encoder.contribution(*record).any()


def test_p8_infinite_rewards_are_clipped_like_others_and_whole_floats_are_whole() -> None:
    encoder = encoders()["laplace"]
    plain = encoder.contribution([0, 1, 0], [1, 0], [2.0, -1.0])
    assert np.array_equal(encoder.contribution([0, 1, 0], [1, 0], [math.inf, -math.inf]), plain)
    assert np.array_equal(encoder.contribution([0.0, 1.0, 0.0], np.array([1, 0], np.uint8), [1e300, -5]), plain)
    assert np.array_equal(encoder.contribution([False, True, False], [True, False], [2.0, -1.0]), plain)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.complex_numbers()
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(states=ANYTHING, actions=ANYTHING, rewards=ANYTHING)
def test_p8_nothing_that_a_record_holds_stops_a_device(states: Any, actions: Any, rewards: Any) -> None:
    for encoder in ENCODERS.values():
        report = encoder.encode("ann", states, actions, rewards, NOISE, epsilon_at_most=EPSILON)
        assert len(report.payload) == LENGTHS[encoder.form]


ENCODERS, NOISE = encoders(), NoiseSource.seeded(1)
LENGTHS = {
    e.form: len(e.encode("", [], [], [], NoiseSource.seeded(0), epsilon_at_most=EPSILON).payload)
    for e in ENCODERS.values()
}
