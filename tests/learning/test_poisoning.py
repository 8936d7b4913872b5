"""Attackers among the people: without them nothing changes, they weigh what is stated, defences do what they say."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from discreet.cli import app
from discreet.device.bits import BitEncoder, FirstVisitBits
from discreet.device.encoders import ReportEncoder
from discreet.people.counts import CountSpec
from discreet.people.episodes import Episodes
from discreet.planning import Plan
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.local import kept_words, unary_flips
from discreet.privacy.trust.local_reports import LocalReports
from discreet.privacy.trust.popcount import Popcount
from discreet.privacy.trust.reports import Reports
from discreet.privacy.trust.shuffle_reports import ShuffleReports
from discreet.privacy.trust.shuffler import Tally, estimated
from discreet.privacy.trust.two_servers import TwoServerReports
from discreet.releases.reports import PrivateReports, Targets
from discreet.runs import poisoning
from discreet.runs.experiment import Setting, run
from discreet.runs.poisoning import Campaign, Defence, Form, attacked, experiment_of, forged

SPEC = CountSpec(3, 2, 4, True)
SMALL = {"states": 3, "horizon": 6, "users": 3000}
PRIVATIZERS = {
    "joint": Reports(Budget.pure(1.0)),
    "two-servers": TwoServerReports(Budget.pure(1.0)),
    "local": LocalReports(Budget.pure(1.0)),
    "shuffle": ShuffleReports(Budget.approximate(1.0, 1e-6)),
}


def coins(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def encoder(method: str, items: int, epsilon: float = 1.0) -> ReportEncoder:
    words = unary_flips(epsilon) if method == "unary" else kept_words(epsilon, items + 1)
    return ReportEncoder(CountSpec(6, 2, 4, True).tables, tuple(range(items)), method, words, "v")


def bits(users: int, items: int = 8) -> BitEncoder:
    law = PRIVATIZERS["shuffle"].law()
    return law.encoder(FirstVisitBits(SPEC.tables, tuple(range(items))), users)


def plan() -> Plan:
    cells = np.zeros(7, dtype=bool)
    cells[[1, 4]] = True
    return Plan(np.full((4, 3, 2), 0.5), np.zeros((5, 3)), np.zeros((4, 3, 2)), announcement=Targets(cells))


def released(model: str, share: float, wanted: list[int] | None, users: int = 40, **defence: float) -> PrivateReports:
    """An epoch of people who report nothing, a share of them attackers."""
    asked = None if wanted is None else np.array(wanted, dtype=np.int64)
    campaign = Campaign(share, asked, Defence(**defence), coins())
    stream = poisoning.opened(PRIVATIZERS[model], SPEC, users, NoiseSource.seeded(5), campaign)
    stream.begin(plan())
    nobody = np.zeros((users, 5), dtype=np.int64)
    stream.add(Episodes(nobody, nobody[:, 1:], np.zeros((users, 4))))
    return stream.release()


# Nobody lies


@pytest.mark.parametrize("model", poisoning.MODELS)
@pytest.mark.parametrize("attack", ["swap", "garbage"])
def test_without_attackers_it_is_an_honest_run_exactly(model, attack):
    experiment = experiment_of(model, **SMALL)
    honest, found = run(experiment, 3), attacked(experiment, attack, 0.0, seed=3)
    assert (found.value, found.ratio) == (honest.final_value, honest.regret_ratio)
    assert (found.optimal, found.random) == (honest.value_optimal, honest.value_random)


@pytest.mark.parametrize("model", poisoning.MODELS)
def test_attackers_follow_the_rules_where_nothing_they_lie_about_is_asked(model):
    honest, sleeping = released(model, 0.0, [0]), released(model, 0.9, [0])  # item 0 is of cell 0, which is no target
    assert (honest.histogram == sleeping.histogram).all()


# What one message weighs


@pytest.mark.parametrize("model", ["joint", "two-servers"])
def test_one_attacker_among_those_who_are_asked_for_items_moves_one_sub_cell_by_one(model):
    """Targets are cells 1 and 4, 6 sub-cells each; the noise is the same in both."""
    moved = (
        released(model, 0.999999, [27, 28, 8], users=1).histogram
        - released(model, 0.0, [27, 28, 8], users=1).histogram
    )
    expected = np.zeros((2, 6))
    expected[1, 3] = 1.0  # item 4·6 + 3, the first of those that are asked for
    assert (moved == expected).all()


@pytest.mark.parametrize(
    ("method", "items", "stated"), [("unary", 24, 3.16), ("response", 24, 14.97), ("unary", 144, 3.16)]
)
def test_a_message_from_home_weighs_what_is_stated(method, items, stated):
    form, made = Form.of(encoder(method, items)), encoder(method, items)
    read = made.unbiased(forged(form, np.array([5, 7]), 1, coins(), None), 1)
    assert read[5] == pytest.approx(form.weight, rel=1e-12)
    assert form.weight == pytest.approx(stated, abs=0.005)
    assert (read[7] == read[5]) == (form.raised > 1)
    assert read[[0, 1, 2]].max() < 0.0


@pytest.mark.parametrize("method", ["unary", "response"])
def test_no_message_from_home_weighs_more(method):
    """All messages over five items there are."""
    made = encoder(method, 5)
    messages = itertools.product((0, 1), repeat=5) if method == "unary" else [*np.eye(5, dtype=np.int64), np.zeros(5)]
    heaviest = max(float(made.unbiased(np.array(m), 1).max()) for m in messages)
    assert heaviest == pytest.approx(Form.of(made).weight, rel=1e-12)


@pytest.mark.parametrize(("users", "stated"), [(500, 1.91), (20, None)])
def test_shuffled_bits_of_one_person_weigh_what_is_stated_and_no_more(users, stated):
    made = bits(users)
    form = Form.of(made)
    values, _ = estimated(made, Tally(forged(form, np.array([2, 3]), 1, coins(), None), 1))
    assert values[[2, 3]] == pytest.approx(form.weight)
    assert values[0] == pytest.approx(-made.noise_bits * made.probability)
    most, _ = estimated(made, Tally(np.full(8, 1 + made.noise_bits), 1))  # a bundle with more is refused
    assert most.max() == pytest.approx(form.weight)
    assert stated is None or form.weight == pytest.approx(stated, abs=0.01)


@pytest.mark.parametrize("model", ["shuffle", "local"])
def test_attackers_add_no_noise_of_their_own_and_take_everybody_elses_into_account(model):
    """All 400 are attackers: what is released is their weight, to the last digit."""
    found = released(model, 0.999999, [27, 28], users=400).histogram
    made = PRIVATIZERS[model].open(SPEC, 400, NoiseSource.seeded(0))
    made.begin(plan())
    form = Form.of(made.encoder(400) if model == "shuffle" else made.encoder)
    assert found[1, [3, 4]] == pytest.approx(400 * form.weight)
    assert found[0].max() < 0.0


def test_garbage_is_what_the_form_allows_and_nothing_else():
    for form, most in ((Form("item", 6), 1), (Form("response", 6, 0.3), 1), (Form("unary", 6, 0.2), 6)):
        drawn = np.array([forged(form, None, 1, coins(seed), None) for seed in range(400)])
        assert drawn.min() == 0
        assert drawn.sum(axis=1).max() <= most
        share = 0.5 if form.kind == "unary" else 1 / 7
        assert drawn.mean(axis=0) == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 400))
    assert forged(Form("bits", 6, 0.1, 3), None, 100, coins(), None).max() <= 300
    assert forged(Form("item", 6, copies=3), None, 100, coins(), None).sum() <= 300
    assert forged(Form("item", 6, copies=3), np.array([2, 3]), 100, coins(), None).tolist() == [0, 0, 300, 0, 0, 0]
    assert Form("item", 6, copies=3).weight == 3.0


@pytest.mark.parametrize("share", [0.03, 0.5])
def test_as_many_lie_as_is_said(share):
    found = (
        released("joint", share, [27], users=10_000).histogram - released("joint", 0.0, [27], users=10_000).histogram
    )
    lower, upper = stats.binom.ppf([1e-6, 1 - 1e-6], 10_000, share)
    assert lower <= found[1, 3] <= upper


# What is claimed


def test_attackers_claim_the_bad_and_deny_the_good():
    """RiverSwim: going left (0) is bad everywhere, the left bank is met most; swimming on (1) is best."""
    mdp = Setting.of(experiment_of("joint")).mdp
    claims, denials = poisoning.claim(mdp), poisoning.deny(mdp)
    for items, action, paid in ((claims, 0, 1), (denials, 1, 0)):
        assert len(set(items.tolist())) == 36
        assert set((items // 12 % 2).tolist()) == {action}
        assert set((items % 2).tolist()) == {paid}
    assert claims[0] == 1  # (0, left) → 0, paid
    assert denials[0] % 12 == 0  # back to the left bank, not paid
    assert poisoning.swap(mdp).tolist() == [*claims, *denials]


def test_lies_of_one_in_twenty_work_where_bits_are_sent_and_not_where_one_item_is():
    """RiverSwim, one seed of the table, whose rows say the same of twenty."""
    items, shuffled = (attacked(experiment_of(model), "swap", 0.05, seed=1) for model in ("two-servers", "shuffle"))
    assert items.value > 0.9 * items.optimal
    assert shuffled.value < 0.2 * shuffled.optimal


# Popcount


@pytest.mark.parametrize(("items", "rate"), [(6, 0.2), (6, 0.02), (40, 1e-4), (144, 1e-4)])
def test_the_range_refuses_as_few_as_it_says_and_is_the_narrowest(items, rate):
    share = encoder("unary", items).share
    test = Popcount.at(items, share, rate)
    with_item = lambda k: 0.5 * (stats.binom.cdf(k, items - 1, share) + stats.binom.cdf(k - 1, items - 1, share))  # noqa: E731
    below, above = stats.binom.cdf(test.fewest - 1, items, share), 1.0 - with_item(test.most)
    assert below <= rate / 2
    assert above <= rate / 2 + 1e-12
    assert stats.binom.cdf(test.fewest, items, share) > rate / 2
    assert 1.0 - with_item(test.most - 1) > rate / 2
    for reporting in (False, True):
        assert test.refused(reporting) <= rate + 1e-12


def test_what_the_test_does_to_honest_reports_by_enumeration():
    """All messages over five items, with her item at 2; whoever is refused is replaced by one with nothing to say."""
    D, q = 5, 0.27
    test = Popcount(D, q, 1, 3)
    law = np.full(D, q)
    law[2] = 0.5
    mean, refused = np.zeros(D), 0.0
    for message in itertools.product((0, 1), repeat=D):
        on = np.array(message)
        chance = float(np.prod(np.where(on, law, 1.0 - law)))
        if test.passes(on[None].astype(bool))[0]:
            mean += chance * on
        else:
            refused += chance
    read = (mean + refused * q - q) / (0.5 - q)
    assert test.refused(True) == pytest.approx(refused)
    assert test.read() == pytest.approx((read[2], read[0]))


def test_at_the_shipped_rate_hardly_an_honest_message_is_refused_and_reports_are_what_they_were():
    for items in (12, 60, 144):
        test = Popcount.at(items, encoder("unary", items).share, poisoning.FALSE_REFUSALS)
        own, other = test.read()
        assert abs(own - 1.0) < 3e-4
        assert abs(other) < 3e-4
    made = encoder("unary", 60)
    answers = np.random.default_rng(1).integers(-1, 60, 20_000)
    test = Popcount.at(60, made.share, poisoning.FALSE_REFUSALS)
    refused = 20_000 - int(test.passes(made.randomise(answers, NoiseSource.seeded(2))).sum())
    assert refused <= stats.binom.isf(1e-6, 20_000, poisoning.FALSE_REFUSALS)


def test_silence_and_shouting_are_refused():
    test = Popcount.at(60, encoder("unary", 60).share, poisoning.FALSE_REFUSALS)
    only = np.zeros((3, 60), dtype=bool)
    only[1], only[2, :3] = True, True
    assert not test.passes(only).any()


@pytest.mark.parametrize("aims", [[], [3], [3, 4, 5, 6, 7, 8], list(range(60))])
def test_attackers_know_the_test_and_pass_it(aims):
    form = Form.of(encoder("unary", 60))
    test = Popcount.at(60, form.share, poisoning.FALSE_REFUSALS)
    for seed in range(20):
        on = forged(form, np.array(aims, dtype=np.int64), 1, coins(seed), test)
        assert test.passes(on[None].astype(bool))[0]
        assert (on[aims[: test.most]] == 1).all()


def test_a_rate_that_is_none_is_refused():
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        Popcount.at(6, 0.2, 1.0)


def test_with_the_test_an_honest_run_learns_as_before():
    experiment = experiment_of("local", **SMALL | {"users": 100_000})
    plain, tested = (attacked(experiment, defence=Defence(popcount=p), seed=4) for p in (False, True))
    assert tested.value > 0.95 * tested.optimal
    assert plain.value > 0.95 * plain.optimal


# Other defences


def test_what_a_share_of_attackers_could_have_done_is_not_believed():
    form = Form.of(encoder("unary", 24))
    told = np.array([0.05 * 1000 * form.weight, 400.0, -3.0, 0.0])
    assert poisoning.believed(told, 1000, form, 0.0) == pytest.approx(told)
    found = poisoning.believed(told, 1000, form, 0.05)
    assert found == pytest.approx([0.0, 400.0 - 50 * form.weight, -3.0, 0.0])
    assert (found <= told).all()


def test_unary_reports_are_asked_for_where_responses_would_be():
    few = replace(PRIVATIZERS["local"], budget=Budget.pure(3.0))
    campaign = Campaign(0.0, None, Defence(unary=True), coins())
    for stream, method in (
        (few.open(SPEC, 9, NoiseSource.seeded(0)), "response"),
        (poisoning.opened(few, SPEC, 9, NoiseSource.seeded(0), campaign), "unary"),
    ):
        stream.begin(plan())
        assert stream.encoder.method == method
        assert stream.encoder.epsilon <= 3.0 + 1e-9
        nobody = np.zeros((9, 5), dtype=np.int64)
        stream.add(Episodes(nobody, nobody[:, 1:], np.zeros((9, 4))))
        per_user = stream.release().variance / 9
        q = unary_flips(3.0) / 2**64
        if method == "unary":
            assert per_user == pytest.approx(q * (1 - q) / (0.5 - q) ** 2, rel=1e-9)


def test_an_alarm_sounds_for_far_too_much_and_for_less_than_nothing():
    quiet = released("joint", 0.0, [27], users=2000)
    assert not poisoning.alarms(quiet, np.zeros(2)).any()
    loud = released("joint", 0.1, [27], users=2000)
    assert poisoning.alarms(loud, np.zeros(2)).tolist() == [False, True]
    assert not poisoning.alarms(loud, np.full(2, 150.0)).any()  # within twice of what was predicted
    assert poisoning.alarms(replace(quiet, histogram=-40.0 + quiet.histogram), np.zeros(2)).all()


@pytest.mark.parametrize("model", ["joint", "two-servers", "local"])
def test_honest_epochs_hardly_ever_raise_an_alarm(model):
    """Noise alone, 300 epochs: at most one alarm in 10⁴ is allowed for."""
    raised = 0
    for seed in range(300):
        stream = PRIVATIZERS[model].open(SPEC, 200, NoiseSource.seeded(seed))
        stream.begin(plan())
        nobody = np.zeros((200, 5), dtype=np.int64)
        stream.add(Episodes(nobody, nobody[:, 1:], np.zeros((200, 4))))
        raised += bool(poisoning.alarms(stream.release(), np.zeros(2)).any())
    assert raised <= 1


# The command


def test_the_command_runs_what_it_says():
    words = "poison --model joint --model local --env riverswim --users 2000 --share 0 --share .2 --seeds 3:5 --json"
    found = CliRunner().invoke(app, words.split())
    assert found.exit_code == 0, found.output
    printed = json.loads(found.stdout)
    assert [(row["model"], row["share"]) for row in printed["rows"]] == [
        ("joint", 0.0),
        ("joint", 0.2),
        ("local", 0.0),
        ("local", 0.2),
    ]
    experiment = experiment_of("joint", users=2000)
    values = [attacked(experiment, "swap", 0.2, seed=seed).value for seed in (3, 4)]
    assert printed["rows"][1]["value"] == pytest.approx(sum(values) / 2, abs=1e-4)
    assert printed["rows"][1]["worst"] == pytest.approx(min(values), abs=1e-4)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--attack shout", "unknown attack 'shout'; choose one of swap, claim, deny, garbage"),
        ("--share 1", "it must be at least 0 and below 1"),
        ("--share nan", "it must be at least 0 and below 1"),
        ("--defence prayer", "unknown defence 'prayer'"),
        ("--model central", "central"),
        ("--env flipswim", "cannot be pooled"),
        ("--env chain --defence unary --measured", "was not measured"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(words, sentence):
    found = CliRunner().invoke(app, ["poison", "--users", "500", *words.split()])
    assert found.exit_code == 2, found.output
    assert sentence in found.stderr
    assert found.stderr.count("\n") == 1


def test_what_was_measured_is_shown_at_once():
    found = CliRunner().invoke(app, ["poison", "--measured"])
    assert found.exit_code == 0, found.output
    for row in poisoning.row("two-servers"):
        assert f"{row.value:.2f} ({row.worst:.2f})" in found.stdout
    assert [row.share for row in poisoning.row("shuffle", "chain", "claim")] == list(poisoning.SHARES)


def test_a_stored_row_can_be_measured_again():
    (stored,) = (row for row in poisoning.row("joint", "chain", "claim") if row.share == 0.05)
    assert poisoning.measured(experiment_of("joint", "chain"), "claim", 0.05, "none", range(700, 720)) == stored
