"""Is it better than what people do now? What is asked, of whom, and what the certificate says about it."""

from __future__ import annotations

import hmac
import json
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from discreet.cli import app
from discreet.offline import auto, certificate, comparison, fitting, heldout, spending
from discreet.offline.claims import problems_of
from discreet.offline.comparison import ComparisonQuestion, ask, bound_of, compare, rollout_gains
from discreet.offline.declaration import Column, Declaration, Grid
from discreet.people.stays import DeclaredLog, StoredStays, read_stays
from discreet.policy import Policy
from discreet.privacy.accounting import Budget
from discreet.privacy.noise import NoiseSource
from discreet.privacy.trust.gains import NoisyMoments

ONE, RICH = Budget.pure(1.0), Budget.pure(50.0)
DECLARATION = Declaration((Column("x", 0.0, 1.0, edges=(0.5,)),), 2, 3, reward_range=(-1.0, 3.0), propensity="p")


def people(users: int, seed: int = 0, first: int = 0) -> pa.Table:
    """Right is 1 above a half and 0 below; people know it in two of three cases. To be right pays 3, else −1."""
    rng = np.random.default_rng(seed)
    n = users * 3
    x = rng.random(n)
    right = (x >= 0.5).astype(int)
    action = np.where(rng.random(n) < 2 / 3, right, 1 - right)
    return pa.table(
        {
            "user": first + np.repeat(np.arange(users), 3),
            "step": np.tile(np.arange(3), users),
            "action": action,
            "reward": np.where(action == right, 3.0, -1.0),
            "p": np.where(action == right, 2 / 3, 1 / 3),
            "x": x,
        }
    )


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    for name, table in (
        ("learned", people(6_000)),
        ("others", people(4_000, 1, 10_000)),
        ("mixed", pa.concat_tables([people(4_000, 2, 20_000), people(1, 3, 17)])),
    ):
        (folder / name).mkdir()
        pq.write_table(table, folder / name / f"{name}.parquet")
    return folder


@pytest.fixture
def policy(logs, tmp_path):
    fitting.fit(logs / "learned" / "learned.parquet", DECLARATION, Budget.pure(2.0), seed=1).save(tmp_path / "policy")
    return tmp_path / "policy"


# The estimate -------------------------------------------------------------------------------------------------------


def test_l9_a_comparison_does_not_depend_on_how_many_rows_are_held_at_once(logs, monkeypatch):
    table = pq.read_table(logs / "learned" / "learned.parquet")
    actions = np.tile([0, 1], (DECLARATION.horizon, 1))
    whole = asked(table, actions, 0.5)
    monkeypatch.setattr("discreet.people.stays.BLOCK", 500)
    monkeypatch.setattr("discreet.people.stays.BATCH", 64)
    stored = DeclaredLog(table, DECLARATION).held()
    assert isinstance(stored, StoredStays)
    question = ComparisonQuestion(DECLARATION, stored.num_users, 0.5, RICH)
    assert ask(stored, Grid(DECLARATION, (CUT,)), actions, question, NoiseSource.seeded(2)) == whole


def asked(table: pa.Table, actions: np.ndarray, rollout: float, budget: Budget = RICH, **options):
    stays = read_stays(table, DECLARATION)
    question = ComparisonQuestion(DECLARATION, stays.num_users, rollout, budget, **options)
    return ask(stays, Grid(DECLARATION, (CUT,)), actions, question, NoiseSource.seeded(2))


CUT = DECLARATION.states[0].cuts(2)
RIGHT, WRONG = np.tile([0, 1], (3, 1)), np.tile([1, 0], (3, 1))


@pytest.mark.parametrize("rollout", [0.1, 0.5, 1.0])
def test_gains_are_those_of_the_roll_out_in_the_units_of_the_log(rollout):
    """Being right α more often of the third in which people are not gains 4·α/3 per step; wrong loses 8·α/3."""
    table = people(30_000)
    right, wrong = asked(table, RIGHT, rollout), asked(table, WRONG, rollout)
    assert right.gain == pytest.approx(3 * 4 * rollout / 3, abs=4 * right.deviation)
    assert right.deviation < 0.04
    assert right.lower == pytest.approx(right.gain - 1.6448536 * right.deviation)
    assert wrong.lower is None
    assert not wrong.shown
    assert -8 * rollout - 0.1 < wrong.gain < -3.5 * rollout  # some of it lies beyond the clip
    assert right.largest == 12.0
    nobody = asked(table, np.full((3, 2), -1), rollout)
    assert nobody.gain == pytest.approx(0.0, abs=0.01)
    assert nobody.lower is None


def test_sentences_say_what_was_shown():
    found = asked(people(5_000), RIGHT, 0.25)
    how = "followed in 25 % of all decisions"
    assert found.sentence == f"better than now by at least {found.lower:.4g} per stay with 95 % confidence, {how}"
    assert asked(people(50), WRONG, 1.0).sentence == "not shown to be better than now, followed at every decision"


def test_estimates_are_never_above_what_is_possible():
    wild = NoisyMoments(1e9, 1.0, 1.0, 1.0)
    assert bound_of(wild, 10, 1.0, 7.0)[0] == 7.0
    gain, deviation, lower = bound_of(NoisyMoments(-1e9, -1e9, 1.0, 1.0), 10, 1.0, 7.0)
    assert (gain, lower < gain, deviation > 0.0) == (-7.0, True, True)
    for seed in range(20):
        found = asked(people(5, seed), RIGHT, 1.0, Budget.pure(0.01))
        assert abs(found.gain) <= found.largest
        assert found.lower is None or found.lower <= found.largest


def test_actions_that_nobody_knows_the_chance_of_change_nothing():
    table = people(2)
    p = np.array(table["p"]).copy()
    p[:3] = [0.0, 0.5, 1.5]
    stays = read_stays(table.set_column(4, "p", pa.array(p)), DECLARATION)
    taken = np.where(np.arange(6) < 3, stays.action, 1 - stays.action)
    gains = rollout_gains(stays, taken, np.zeros(2), 0.5, 0.0)
    assert gains[0] == 0.0
    assert gains[1] == pytest.approx((0.5**3 - 1.0) * stays.reward[3:].sum())
    sure = rollout_gains(replace(stays, propensity=np.full(6, 1e-320)), stays.action, np.zeros(2), 1.0, 0.0)
    assert (sure == np.inf).all()  # clipped like everything that is large


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize("budget", [ONE, Budget.approximate(1.0, 1e-6), Budget.zcdp(0.1)])
def test_a_question_costs_exactly_its_budget(budget, neighbours):
    declaration = replace(DECLARATION, episodes_per_user=2)
    found = ComparisonQuestion(declaration, 100, 0.25, budget, neighbours).guarantee(NoiseSource.secure())
    assert found.unit == "user (2 episodes)"
    assert [entry.statistic for entry in found.entries] == ["returns", "gains", "squared gains"]
    if budget.rho is None:
        assert found.epsilon == 1.0
    spent = sum(entry.cost for entry in found.entries)
    total = budget.total("laplace" if budget.kind == "pure" else "gaussian")
    assert total * (1 - 1e-8) < spent <= total * (1 + 1e-12)


# Who is asked -------------------------------------------------------------------------------------------------------


def test_a_policy_that_does_as_now_everywhere_is_not_compared(logs, policy):
    """Its gain is 0, whatever noise would say about it, and that is public."""
    document, found = certificate.read(policy), Policy.load(policy)
    rest = {name: value for name, value in document.items() if name != "digests"}
    certificate.write(policy, replace(found, known=np.zeros_like(found.known)), rest)
    ledger = logs / "others" / "others.parquet.spent.jsonl"
    before = ledger.read_text() if ledger.exists() else ""
    with pytest.raises(ValueError, match="as now everywhere: there is nothing to compare, and nothing was spent"):
        compare(policy, logs / "others" / "others.parquet", ONE, seed=4, learned_from=[logs / "learned"])
    assert (ledger.read_text() if ledger.exists() else "") == before


def test_the_answer_is_in_the_certificate_and_on_its_page(logs, policy):
    answer = compare(policy, logs / "others" / "others.parquet", ONE, seed=4, learned_from=[logs / "learned"])
    assert answer.shown
    assert 0.3 < answer.lower < 1.0  # the truth is 1
    (told,) = certificate.read(policy)["comparisons"]
    assert told["sentence"] == answer.sentence
    assert told["people"] == heldout.CHECKED
    page = (policy / certificate.HTML).read_text()
    assert answer.sentence[1:] in page  # a sentence begins with a capital there
    found = certificate.verify(policy, allow_simulation=True)
    assert found.problems == ()
    lines = (logs / "others" / "others.parquet.spent.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["algorithm"] == "comparison"
    assert json.loads(lines[-1])["epsilon"] == 1.0
    again = compare(policy, people(3_000, 9, 50_000), ONE, rollout=0.1, seed=5)
    assert [line["sentence"] for line in certificate.read(policy)["comparisons"]] == [answer.sentence, again.sentence]
    assert certificate.read(policy)["comparisons"][1]["people"] == heldout.UNCHECKED
    assert certificate.verify(policy, allow_simulation=True).problems == ()


def test_before_anybody_is_asked_nothing_is_shown(policy):
    assert "not shown, for nobody has been asked" in (policy / certificate.HTML).read_text()


def test_a_seed_makes_the_whole_folder_a_simulation(logs, tmp_path):
    fitted = fitting.fit(people(6_000), DECLARATION, Budget.pure(2.0))
    fitted.save(tmp_path / "policy")
    assert certificate.verify(tmp_path / "policy").consistent
    compare(tmp_path / "policy", people(3_000, 9, 50_000), ONE, seed=5)
    assert not certificate.verify(tmp_path / "policy").consistent
    assert certificate.verify(tmp_path / "policy", allow_simulation=True).consistent


def test_people_who_were_learned_from_are_refused(logs, policy):
    spent = logs / "mixed" / "mixed.parquet.spent.jsonl"
    with pytest.raises(ValueError, match="this is the log that the policy was learned from"):
        compare(policy, logs / "learned" / "learned.parquet", ONE)
    for where in (logs / "learned", logs / "learned" / "learned.parquet"):
        with pytest.raises(ValueError, match="somebody in this log was also learned from") as error:
            compare(policy, logs / "mixed" / "mixed.parquet", ONE, learned_from=[where])
        assert "17" not in str(error.value)
    assert not spent.exists()
    assert "comparisons" not in certificate.read(policy)


def test_names_are_the_same_however_they_are_written(tmp_path):
    from discreet.people.stays import DeclaredLog

    table = people(30)
    key = b"k" * 32
    whole = heldout.hashes(key, heldout.people_of(DeclaredLog(table, DECLARATION)))
    for kind in (pa.float64(), pa.string(), pa.int32()):
        other = table.set_column(0, "user", table["user"].cast(kind))
        found = heldout.hashes(key, heldout.people_of(DeclaredLog(other, DECLARATION)))
        np.testing.assert_array_equal(found, whole)
    assert len(set(map(tuple, whole.tolist()))) == 30


@pytest.mark.parametrize("size", [1, 32])
def test_people_are_kept_as_sorted_hmacs(size):
    names = ["", "17", "Łukasz", "a" * 200, *(f"P{i}" for i in range(300))]
    key = bytes(range(1, size + 1))
    due = sorted(hmac.digest(key, name.encode(), "sha256")[:16] for name in names)
    assert heldout.hashes(key, iter(names)).tobytes() == b"".join(due)
    assert heldout.hashes(key, []).shape == (0, 2)


def test_halves_of_two_hashes_are_nobody(tmp_path):
    """Somebody was learned from only if a whole hash is there: halves of two are nobody."""
    key = b"k" * 32
    one, other = heldout.hashes(key, ["one", "other"])
    (tmp_path / "record").write_bytes(key + np.array([[one[0], other[1]], [other[0], one[1]]]).tobytes())
    assert not heldout.known(tmp_path / "record", ["one", "other"])
    (tmp_path / "record").write_bytes(key + one.tobytes())
    assert heldout.known(tmp_path / "record", ["one", "other"])


def test_the_record_of_people_holds_no_name_and_is_the_holders_alone(logs, policy):
    serial = certificate.read(policy)["origin"]["serial"]
    (record,) = heldout.records([logs / "learned"], serial)
    assert record.stat().st_mode & 0o777 == 0o600
    content = record.read_bytes()
    assert len(content) == 32 + 16 * 6_000
    assert heldout.known(record, ["17"])
    assert not heldout.known(record, ["17.5", "6000", ""])
    text = (policy / certificate.JSON).read_text()
    assert content[:32].hex() not in text  # the key is nowhere else
    other = record.with_name("broken")
    other.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="no record of who was learned from"):
        heldout.known(other, ["17"])
    other.unlink()


# What is refused ----------------------------------------------------------------------------------------------------


def test_without_logged_propensities_nothing_is_compared_and_the_reason_is_told(logs, tmp_path):
    plain = replace(DECLARATION, propensity=None)
    fitting.fit(people(6_000), plain, Budget.pure(2.0), seed=1).save(tmp_path / "policy")
    others = logs / "others" / "others.parquet"
    with pytest.raises(ValueError, match="without knowing how likely people's actions were"):
        compare(tmp_path / "policy", others, ONE)
    assert compare(tmp_path / "policy", others, ONE, propensity="p", seed=1).shown
    with pytest.raises(ValueError, match="no column 'chance'"):
        compare(tmp_path / "policy", others, ONE, propensity="chance")


def test_what_cannot_be_asked_is_refused_before_anything_is_spent(logs, policy, tmp_path):
    others = logs / "others" / "others.parquet"
    for rollout in (0.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="the roll-out is"):
            compare(policy, others, ONE, rollout=rollout)
    with pytest.raises(ValueError, match="finite budget"):
        compare(policy, others, Budget.pure(math.inf))
    with pytest.raises(ValueError, match="more than the total epsilon"):
        compare(policy, others, Budget.pure(3.0), total_epsilon=2.0)
    from discreet.people.logs import LogFormat

    table = people(500).append_column("state", pa.array(np.zeros(1_500, dtype=int)))
    fitting.fit(table, LogFormat(1, 2, 3), ONE, seed=1).save(tmp_path / "numbered")
    with pytest.raises(ValueError, match="only policies of declared columns are compared"):
        compare(tmp_path / "numbered", others, ONE)


def test_a_signed_folder_stays_signed(logs, policy, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    secret = Ed25519PrivateKey.generate()
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    plain = serialization.NoEncryption()
    key.write_bytes(secret.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(secret.public_key().public_bytes(serialization.Encoding.PEM, spki))
    certificate.write(policy, Policy.load(policy), certificate.read(policy), key)
    with pytest.raises(ValueError, match="the folder is signed; give the key"):
        compare(policy, people(3_000, 9, 50_000), ONE)
    compare(policy, people(3_000, 9, 50_000), ONE, key=key, seed=1)
    assert certificate.verify(policy, True, public).valid


def test_forged_comparisons_are_caught(policy):
    compare(policy, people(3_000, 9, 50_000), ONE, seed=5)
    document, table = certificate.read(policy), Policy.load(policy)
    (told,) = document["comparisons"]
    assert problems_of(document, table) == []

    def entry(i, **changes):
        return {"ledger": [{**line, **(changes if i == k else {})} for k, line in enumerate(told["ledger"])]}

    forgeries = [
        {"lower": told["lower"] * 1.01},
        {"lower": told["lower"] * 1.01, "sentence": told["sentence"].replace(f"{told['lower']:.4g}", "9")},
        {"lower": None},
        {"gain": told["gain"] + 0.1},
        {"deviation": told["deviation"] / 2},
        {"sentence": "better than everything"},
        {"shown": False},
        {"rollout": 0.5},
        {"confidence": 0.99},
        {"largest_possible": 100.0},
        {"people": "nobody at all"},
        {"users": 10},
        {"simulation": "no"},
        {"serial": "1"},
        {"ledger": told["ledger"][:2]},
        {"guarantee": told["guarantee"] | {"epsilon": 0.5}},
        {"guarantee": told["guarantee"] | {"assumptions": []}},
        {"other": 1},
        *(entry(i, scale=told["ledger"][i]["scale"] * 2) for i in range(3)),
        *(entry(i, sensitivity=1.0) for i in range(3)),
        *(entry(i, cost=0.01) for i in range(3)),
    ]
    for forged in forgeries:
        try:
            found = problems_of({**document, "comparisons": [{**told, **forged}]}, table)
        except certificate.UNREADABLE:
            continue
        assert found, forged


# The command --------------------------------------------------------------------------------------------------------


def test_the_command_says_it_and_prints_it(logs, policy):
    others = str(logs / "others" / "others.parquet")
    run = CliRunner().invoke
    asked = ["evaluate", str(policy), "--log", others, "--rollout", ".5", "--epsilon", "1", "--seed", "1"]
    said = run(app, [*asked, "--learned-from", str(logs / "learned")])
    assert said.exit_code == 0, said.output
    assert "better than now by at least" in said.output
    assert "95 % lower bound" in said.output
    shown = json.loads(run(app, [*asked, "--json"]).stdout)
    assert shown["rollout"] == 0.5
    assert shown["lower"] < shown["gain"]
    refused = run(app, ["evaluate", str(policy), "--rollout", ".5"])
    assert refused.exit_code != 0
    both = run(app, [*asked, "--env", "riverswim"])
    assert both.exit_code != 0
    plain = run(app, ["evaluate", str(policy), "--json"])
    assert plain.exit_code == 0


def test_commitments_are_recognised_by_whoever_holds_the_ledger(logs, policy):
    ledger = logs / "learned" / "learned.parquet.spent.jsonl"
    digest = spending.log_digest(logs / "learned" / "learned.parquet")
    mine = certificate.read(policy)["spending"]["commitment"]
    assert spending.committed_here(ledger, mine, digest)
    assert not spending.committed_here(ledger, mine, b"x" * 32)
    assert comparison.CONFIDENCE == 0.95


# The page -----------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "comparison.md").read_text()


def test_the_page_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(people(6_000), "stays.parquet")
    pq.write_table(people(4_000, 1, 10_000), "others.parquet")
    Path("stays.toml").write_text(DECLARATION.text)
    (commands,) = re.findall(r"^```\n(.*?)^```", PAGE, re.M | re.S)
    for line in commands.splitlines():
        program, *arguments = shlex.split(line)
        done = CliRunner().invoke(app, arguments)
        assert (program, done.exit_code) == ("discreet", 0), done.output
    assert certificate.read(Path("policy"))["comparisons"][0]["people"] == heldout.CHECKED


def test_the_page_says_what_the_program_does():
    each = [*comparison.SHARES.values(), *(share for plan in auto.SHARES.values() for share in plan.values())]
    shares = [f"{100 * share:g} %" for share in each]
    assert all(share in PAGE for share in shares)
    assert all(f"| {'from' if least == 5000 else 'below'} {least or 2000:g}" in PAGE for least in auto.SHARES)
    assert comparison.CLIP == 3.0
    assert comparison.LEAST_SPREAD == 0.7
