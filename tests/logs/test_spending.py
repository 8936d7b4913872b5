"""The budget ledger: what is spent is written down first, by one process at a time, and cannot be edited unseen."""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest

from discreet.offline import certificate, spending
from discreet.offline import fitting as offline
from discreet.people.episodes import Episodes
from discreet.people.logs import LogFormat, table_of
from discreet.privacy.accounting import Budget, Guarantee, compose_sequential, epsilon_of, no_privacy

ONE = Budget.pure(1.0)
LOG = LogFormat(3, 2, 4, pooled=True)
DIGEST = b"d" * 32


def release(cost=ONE, **facts):
    return spending.Release(spending.cost_of(cost, "replace"), "5e" * 16, "2026-01-01T00:00:00Z", **facts)


def people(seed=0):
    rng = np.random.default_rng(seed)
    return Episodes(rng.integers(3, size=(50, 5)), rng.integers(2, size=(50, 4)), rng.random((50, 4)))


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "visits.parquet"
    pyarrow.parquet.write_table(table_of(people()), path)
    return path


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger.jsonl"


def lines(path: Path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# What releases come to ----------------------------------------------------------------------------------------------


def test_pure_budgets_add_up():
    total = spending.composed([spending.cost_of(Budget.pure(x), "replace") for x in (0.5, 1.0, 0.25)])
    assert (total.epsilon, total.delta, total.rho) == (1.75, 0.0, None)
    assert total.sentence() == "central DP, ε = 1.75 per user, replace-one"


def test_gaussian_budgets_add_up_in_rho_at_all_their_deltas():
    """Two fits at (1, 10⁻⁶) cost less than ε = 2 at 2·10⁻⁶, and what they cost is the conversion of 2ρ."""
    cost = spending.cost_of(Budget.approximate(1.0, 1e-6), "replace")
    total = spending.composed([cost, cost])
    assert total.delta == 2e-6
    assert total.rho == pytest.approx(2 * Budget.approximate(1.0, 1e-6).total("gaussian"))
    assert total.epsilon == pytest.approx(epsilon_of(total.rho, 2e-6))
    assert 1.0 < total.epsilon < 1.5


def test_a_rho_without_delta_has_no_epsilon_until_another_release_brings_a_delta():
    alone = spending.composed([spending.cost_of(Budget.zcdp(0.5), "replace")])
    assert (alone.epsilon, alone.rho) == (math.inf, 0.5)
    both = spending.composed([alone, spending.cost_of(Budget.zcdp(0.5, 1e-6), "replace")])
    assert both.epsilon == pytest.approx(epsilon_of(1.0, 1e-6))


def test_zero_out_counts_twice_beside_replace():
    """A replaced person is one taken out and another put in: 2ε, or 4ρ."""
    zero, one = spending.cost_of(ONE, "zero-out"), spending.cost_of(ONE, "replace")
    assert spending.composed([zero, zero]).epsilon == 2.0
    assert spending.composed([zero, zero]).neighbours == "zero-out"
    mixed = spending.composed([zero, one])
    assert (mixed.epsilon, mixed.neighbours) == (3.0, "replace")
    gaussian = spending.composed([spending.cost_of(Budget.zcdp(0.1, 1e-6), "zero-out"), one])
    assert gaussian.rho == pytest.approx(0.4 + 0.5)
    assert gaussian.epsilon <= epsilon_of(0.4, 1e-6) + 1.0


@pytest.mark.parametrize("budget", [None, Budget.pure(math.inf), Budget.zcdp(math.inf)])
def test_one_release_without_privacy_leaves_none(budget):
    total = spending.composed([spending.cost_of(ONE, "replace"), spending.cost_of(budget, "replace")])
    assert total.model == "none"
    assert total.sentence() == "no privacy"


def test_the_recorded_cost_is_at_least_what_the_fit_says_it_cost(tmp_path):
    budgets = (ONE, Budget.zcdp(0.3), Budget.zcdp(0.3, 1e-5), Budget.approximate(2.0, 1e-6))
    for number, budget in enumerate(budgets):
        found = offline.fit(people(), LOG, budget, ledger=tmp_path / f"{number}.jsonl")
        stated, total = found.certificate["guarantee"], found.recorded.total
        for name in ("epsilon", "delta", "rho"):
            spent = getattr(total, name)
            assert (stated[name] or 0.0) <= (math.inf if spent is None else spent) * (1 + 1e-9)


# The file -----------------------------------------------------------------------------------------------------------


def test_every_release_is_a_line_that_names_the_line_before(ledger):
    first = spending.spend(ledger, release(operator="Ada", purpose="a pilot", algorithm="one-hot"), DIGEST)
    second = spending.spend(ledger, release(Budget.zcdp(0.1, 1e-6)), DIGEST)
    texts = ledger.read_bytes().splitlines()
    found = lines(ledger)
    assert [line["previous"] for line in found] == [spending.FIRST, hashlib.sha256(texts[0]).hexdigest()]
    assert second.line == hashlib.sha256(texts[1]).hexdigest()
    kept = {name: found[0][name] for name in ("who", "purpose", "algorithm", "epsilon", "delta", "rho", "neighbours")}
    assert kept == {
        "who": "Ada",
        "purpose": "a pilot",
        "algorithm": "one-hot",
        "epsilon": 1.0,
        "delta": 0.0,
        "rho": None,
        "neighbours": "replace",
    }
    assert (first.before, second.before) == (0, 1)
    expected = compose_sequential([spending.cost_of(b, "replace") for b in (ONE, Budget.zcdp(0.1, 1e-6))])
    assert second.total.epsilon == expected.epsilon
    assert os.stat(ledger).st_mode & 0o077 == 0  # it holds the salts


def test_logs_are_recognised_by_their_bytes_and_only_their_holder_is_told(ledger):
    first = spending.spend(ledger, release(), DIGEST)
    assert len(first.sentences()) == 1  # nothing is said of earlier ones where there are none
    spending.spend(ledger, release(), b"e" * 32)
    third = spending.spend(ledger, release(), DIGEST)
    assert (third.before, third.same) == (2, 1)
    assert (third.total.epsilon, third.same_total.epsilon) == (3.0, 2.0)
    assert "1 of the earlier ones were of exactly this log" in third.sentences()[1]
    commitments = {line["commitment"] for line in lines(ledger)}
    assert len(commitments) == 3  # fresh salts: certificates cannot be compared with each other
    assert DIGEST.hex() not in ledger.read_text()


def test_what_the_certificate_says_does_not_depend_on_what_the_log_holds(ledger, tmp_path):
    """Whether the log changed since the last release is a fact about whoever's rows changed."""
    sections = []
    for seed in (0, 1):
        path = tmp_path / f"{seed}.jsonl"
        offline.fit(people(0), LOG, ONE, ledger=path)
        found = offline.fit(people(seed), LOG, ONE, ledger=path)
        assert found.recorded.same == 1 - seed
        random = ("commitment", "ledger_line")
        sections.append({key: value for key, value in found.certificate["spending"].items() if key not in random})
    assert sections[0] == sections[1]
    assert sections[0]["releases_before"] == 1
    assert sections[0]["total_epsilon_with_this_release"] == 2.0


def test_the_salt_is_in_the_ledger_and_nowhere_else(log, tmp_path):
    offline.fit(log, LOG, ONE).save(tmp_path / "policy")
    (line,) = lines(spending.beside(log))
    salt = bytes.fromhex(line["salt"])
    assert len(salt) == 32
    document = certificate.read(tmp_path / "policy")
    assert document["spending"]["commitment"] == line["commitment"]
    assert document["spending"]["commitment"] == spending.commitment(salt, spending.log_digest(log))
    assert document["origin"]["serial"] == line["serial"]
    for path in (tmp_path / "policy").iterdir():
        for secret in (salt, salt.hex().encode(), spending.log_digest(log), spending.log_digest(log).hex().encode()):
            assert secret not in path.read_bytes()


def test_a_changed_line_breaks_the_chain(ledger):
    for _ in range(3):
        spending.spend(ledger, release(), DIGEST)
    original = ledger.read_bytes()
    texts = original.splitlines(keepends=True)
    altered = {
        "a smaller epsilon": original.replace(b'"epsilon": 1.0', b'"epsilon": 0.1', 1),
        "a line taken out": texts[0] + texts[2],
        "the first line taken out": texts[1] + texts[2],
        "lines swapped": texts[1] + texts[0] + texts[2],
        "an unknown kind": original.replace(b'"release"', b'"refund"', 1),
        "an impossible epsilon": texts[0] + texts[1] + texts[2].replace(b'"epsilon": 1.0', b'"epsilon": -1.0'),
        "no JSON": texts[0] + b"nothing\n" + texts[1],
        "a blank line": texts[0] + b"\n" + texts[1],
    }
    for name, content in altered.items():
        ledger.write_bytes(content)
        with pytest.raises(ValueError, match="no budget ledger that can be trusted: line"):
            spending.spend(ledger, release(), DIGEST)
        with pytest.raises(ValueError, match="no budget ledger that can be trusted: line"):
            spending.check(ledger, no_privacy())
        assert ledger.read_bytes() == content, name


def test_somebody_elses_file_is_left_alone(ledger):
    for content in (b"dear diary", b"dear diary\n", b'{"a": 1}\n', b"\xff\xfe", b'{"kind": "release"}\n'):
        ledger.write_bytes(content)
        with pytest.raises(ValueError, match="no budget ledger that can be trusted: line 1"):
            spending.spend(ledger, release(), DIGEST)
        assert ledger.read_bytes() == content


def test_an_unfinished_last_line_is_dropped_and_a_finished_one_without_its_end_counts(ledger):
    for _ in range(2):
        spending.spend(ledger, release(), DIGEST)
    whole = ledger.read_bytes()
    first = whole.index(b"\n") + 1
    for end in (first + 1, first + 11, first + 100, len(whole) - 2):  # a crash in the middle of the second line
        ledger.write_bytes(whole[:end])
        found = spending.spend(ledger, release(), DIGEST)
        assert found.repaired
        assert (found.before, found.total.epsilon) == (1, 2.0)
        assert "never made" in found.sentences()[2]
        assert len(lines(ledger)) == 2
    ledger.write_bytes(whole[:-1])  # an editor took the end of the line away
    found = spending.spend(ledger, release(), DIGEST)
    assert not found.repaired
    assert (found.before, found.total.epsilon) == (2, 3.0)
    assert spending.spend(ledger, release(), DIGEST).before == 3


def test_a_full_disk_leaves_the_ledger_as_it_was(ledger):
    spending.spend(ledger, release(), DIGEST)
    before = ledger.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
    try:
        with pytest.raises(ValueError, match="cannot be written: File too large; nothing was released"):
            spending.spend(ledger, release(), DIGEST)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ledger.read_bytes() == before


def _spend_often(path, times, accepted):
    for _ in range(times):
        try:
            spending.spend(Path(path), release(Budget.pure(0.125)), DIGEST, 2.0)
        except ValueError:
            continue
        with accepted.get_lock():
            accepted.value += 1


def test_two_processes_at_once_spend_no_more_than_was_declared(ledger):
    """Four processes want 4 × 10 × ⅛ of a total of 2: sixteen releases are admitted, and the chain holds."""
    context = multiprocessing.get_context("fork")
    accepted = context.Value("i", 0)
    processes = [context.Process(target=_spend_often, args=(ledger, 10, accepted)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert accepted.value == 16
    releases = [line for line in lines(ledger) if line["kind"] == "release"]
    assert len(releases) == 16
    assert sum(line["kind"] == "limit" for line in lines(ledger)) == 1
    spending.check(ledger, spending.cost_of(Budget.pure(1e-12), "replace"))
    with pytest.raises(ValueError, match="more than the total epsilon of 2"):
        spending.check(ledger, spending.cost_of(Budget.pure(0.01), "replace"))


# Limits -------------------------------------------------------------------------------------------------------------


def test_the_smallest_total_ever_declared_holds(ledger):
    spending.spend(ledger, release(), DIGEST, 5.0)
    spending.spend(ledger, release(), DIGEST, 3.0)
    spending.spend(ledger, release(), DIGEST, 9.0)
    for limit in (None, 9.0):
        with pytest.raises(ValueError, match="ε = 4 per user, replace-one, more than the total epsilon of 3"):
            spending.spend(ledger, release(), DIGEST, limit)
    assert [line["total_epsilon"] for line in lines(ledger) if line["kind"] == "limit"] == [5.0, 3.0]


def test_a_total_is_met_exactly_despite_rounding(ledger):
    for _ in range(3):
        spending.spend(ledger, release(Budget.pure(0.1)), DIGEST, 0.3)
    with pytest.raises(ValueError, match="more than"):
        spending.spend(ledger, release(Budget.pure(1e-6)), DIGEST)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (None, "would come to no privacy, more than"),
        (Budget.zcdp(0.1), "has an epsilon only at a delta"),
        (Budget.pure(1.1), "more than the total epsilon of 1"),
    ],
)
def test_what_does_not_fit_is_refused_before_and_at_the_release(ledger, budget, words):
    for refused in (
        lambda: spending.check(ledger, spending.cost_of(budget, "replace"), 1.0),
        lambda: spending.spend(ledger, release(budget), DIGEST, 1.0),
    ):
        with pytest.raises(ValueError, match=words):
            refused()
    assert not ledger.exists() or ledger.read_bytes() == b""


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf])
def test_totals_that_mean_nothing_are_refused(ledger, limit):
    with pytest.raises(ValueError, match="must be positive"):
        offline.fit(people(), LOG, ONE, ledger=ledger, total_epsilon=limit)


# The log's bytes ----------------------------------------------------------------------------------------------------


def test_digests_of_files_see_every_byte_and_no_name(tmp_path):
    one, other, both = tmp_path / "a.csv", tmp_path / "b.csv", [tmp_path / "a.csv", tmp_path / "b.csv"]
    one.write_bytes(b"xy")
    other.write_bytes(b"z")
    found = spending.log_digest(both)
    assert found == spending.log_digest([str(other), str(one)]) == spending.log_digest(tmp_path / "*.csv")
    one.write_bytes(b"x")
    other.write_bytes(b"yz")  # the same bytes in other files
    assert spending.log_digest(both) != found
    (tmp_path / "moved.csv").write_bytes(b"x")
    assert spending.log_digest(one) == spending.log_digest(tmp_path / "moved.csv")


class Frame:
    """What pandas and Polars frames have in common: they hand their columns to Arrow."""

    __module__ = "polars.dataframe"

    def __init__(self, table: pa.Table) -> None:
        self.__arrow_c_stream__ = table.__arrow_c_stream__


def test_digests_of_tables_see_every_value():
    table = table_of(people())
    found = {
        "arrow": spending.log_digest(table),
        "polars": spending.log_digest(Frame(table)),
        "mapping": spending.log_digest({name: np.asarray(table.column(name)) for name in table.column_names}),
        "episodes": spending.log_digest(people()),
        "dataset": spending.log_digest(pyarrow.dataset.dataset(table)),
    }
    assert None not in found.values()
    assert found["arrow"] == found["mapping"] == found["episodes"] == found["polars"]
    rewards = np.asarray(table.column("reward")).copy()
    rewards[-1] += 1e-9
    changed = table.set_column(table.column_names.index("reward"), "reward", pa.array(rewards))
    assert spending.log_digest(changed) != found["arrow"]
    assert spending.log_digest(Frame(changed)) != found["polars"]
    assert spending.log_digest(object()) is None
    assert spending.log_digest({"mixed": np.array([1, "a", object()], dtype=object)}) is None


def test_ledgers_are_kept_beside_the_log(tmp_path):
    for name in ("a.csv", "b.csv", "c/d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("user\n")
    assert spending.beside(tmp_path / "a.csv") == tmp_path / "a.csv.spent.jsonl"
    assert spending.beside([str(tmp_path / "*.csv")]) == tmp_path / ".spent.jsonl"
    assert spending.beside(tmp_path / "**" / "*.csv") == tmp_path / ".spent.jsonl"
    (tmp_path / "link.csv").symlink_to(tmp_path / "c" / "d.csv")
    assert spending.beside(tmp_path / "link.csv") == tmp_path / "c" / "d.csv.spent.jsonl"
    assert spending.beside(people()) is None
    assert spending.beside(tmp_path / "absent.csv") is None


# Fits ---------------------------------------------------------------------------------------------------------------


def test_p10_two_fits_of_one_log_are_recorded_as_two(log):
    first, second = (offline.fit(log, LOG, ONE) for _ in range(2))
    said = [found.certificate["spending"] for found in (first, second)]
    assert [s["releases_before"] for s in said] == [0, 1]
    assert [s["total_epsilon_with_this_release"] for s in said] == [1.0, 2.0]
    assert [s["total"] for s in said] == [f"central DP, ε = {n} per user, replace-one" for n in (1, 2)]
    assert second.recorded.same == 1
    assert len(lines(spending.beside(log))) == 2
    assert first.certificate["origin"]["serial"] != second.certificate["origin"]["serial"]


GAUSSIAN = Budget.approximate(1.0, 1e-6)


@pytest.mark.parametrize(
    ("before", "budget"),
    [
        ((None,), GAUSSIAN),
        ((None,), Budget.zcdp(0.3, 1e-6)),
        ((Budget.zcdp(0.01, 1e-4),), Budget.zcdp(0.3, 1e-9)),  # ε of both, at the larger δ, is smaller
        ((Budget.approximate(0.01, 0.05),), Budget.pure(0.1)),
        ((ONE, Budget.zcdp(0.3)), GAUSSIAN),
        ((GAUSSIAN, ONE), Budget.zcdp(0.3)),
    ],
)
def test_p6_whatever_was_released_before_the_certificate_of_a_fit_is_consistent(log, tmp_path, before, budget):
    for earlier in before:
        offline.fit(log, LOG, earlier, algorithm="apvi" if earlier is None else "one-hot", seed=0)
    fitted = offline.fit(log, LOG, budget, seed=0)
    fitted.save(tmp_path / "policy")
    assert fitted.certificate["spending"]["releases_before"] == len(before)
    assert certificate.verify(tmp_path / "policy", allow_simulation=True).problems == ()


@pytest.mark.parametrize("algorithm", ["one-hot", "dp-apvi"])
@pytest.mark.parametrize("largest", [Budget.pure(1e3), Budget.approximate(1e3, 1e-6), Budget.zcdp(5e5)])
def test_u3_the_largest_budget_of_a_fit_is_spent_as_it_was_stated(log, tmp_path, algorithm, largest):
    offline.fit(log, LOG, largest, algorithm=algorithm, seed=0).save(tmp_path / "policy")
    assert certificate.verify(tmp_path / "policy", allow_simulation=True).problems == ()


@pytest.mark.parametrize("budget", [Budget.pure(1e9), Budget.approximate(1001.0, 1e-6), Budget.zcdp(1e6)])
def test_u3_more_than_the_largest_budget_of_a_fit_is_refused_and_not_recorded(log, budget):
    with pytest.raises(ValueError, match="nothing is promised"):
        offline.fit(log, LOG, budget)
    assert not spending.beside(log).exists()


def test_simulations_and_learners_without_privacy_are_recorded_too(log):
    offline.fit(log, LOG, ONE, seed=1)
    found = offline.fit(log, LOG, algorithm="apvi")
    assert [line["simulation"] for line in lines(spending.beside(log))] == [True, False]
    assert found.certificate["spending"]["total"] == "no privacy"
    after = offline.fit(log, LOG, ONE)
    assert after.certificate["spending"]["total_epsilon_with_this_release"] is None
    assert after.certificate["spending"]["total"] == "no privacy"


def test_nothing_is_spent_on_what_is_refused(log, tmp_path):
    for options in (
        {"algorithm": "sarsa"},
        {"table": "visits"},
        {"plan_horizon": 0},
        {"operator": "two\nlines"},
        {"purpose": "x" * 201},
    ):
        with pytest.raises(ValueError, match=r"\w"):
            offline.fit(log, LOG, ONE, **options)
    with pytest.raises(ValueError, match="no column"):
        offline.fit(log, replace(LOG, columns={"user": "patient"}), ONE)
    assert not spending.beside(log).exists()
    with pytest.raises(ValueError, match="say where that is kept"):
        offline.fit(people(), LOG, ONE, total_epsilon=1.0)


def test_a_refused_fit_reads_no_data(log, monkeypatch):
    offline.fit(log, LOG, ONE, total_epsilon=1.5)

    def reads(*_):
        raise AssertionError("the log was read")

    monkeypatch.setattr(offline, "LoggedData", reads)
    with pytest.raises(ValueError, match=r"more than the total epsilon of 1\.5"):
        offline.fit(log, LOG, ONE)


def test_the_budget_is_spent_before_noise_is_drawn_and_stays_spent(log, monkeypatch):
    seen = []

    def crash(task):
        seen.append(len(lines(spending.beside(log))))
        raise KeyboardInterrupt

    entry = replace(offline.FROM_LOGS["one-hot"], learn=crash)
    monkeypatch.setitem(offline.FROM_LOGS, "one-hot", entry)
    with pytest.raises(KeyboardInterrupt) as stopped:
        offline.fit(log, LOG, ONE, seed=0)
    assert seen == [1]
    assert "the budget of this release is spent" in stopped.value.__notes__[0]
    assert len(lines(spending.beside(log))) == 1
    monkeypatch.undo()
    assert offline.FROM_LOGS["one-hot"].learn is not crash
    assert offline.fit(log, LOG, ONE).certificate["spending"]["releases_before"] == 1


def test_sources_in_memory_have_a_ledger_where_one_is_named(ledger):
    assert offline.fit(people(), LOG, ONE).recorded is None
    found = offline.fit(people(), LOG, ONE, ledger=ledger)
    assert found.recorded.commitment == lines(ledger)[0]["commitment"]
    again = offline.fit(people(), LOG, ONE, ledger=ledger)
    assert again.recorded.same == 1


def test_a_folder_that_cannot_be_written_has_no_ledger_unless_one_is_demanded(log, monkeypatch, tmp_path):
    real = os.open

    def refusing(path, flags, *more, **named):
        if str(path).endswith(spending.SUFFIX) and flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refusing)
    found = offline.fit(log, LOG, ONE)
    assert found.recorded is None
    assert found.certificate["spending"]["releases_before"] is None
    found.save(tmp_path / "policy")
    assert certificate.verify(tmp_path / "policy").consistent
    for options in ({"total_epsilon": 2.0}, {"ledger": tmp_path / f"other{spending.SUFFIX}"}):
        with pytest.raises(ValueError, match="cannot be written: Permission denied"):
            offline.fit(log, LOG, ONE, **options)
    spending.beside(log).write_bytes(b"")  # there is one: what it says may not be passed over
    with pytest.raises(ValueError, match="cannot be written: Permission denied"):
        offline.fit(log, LOG, ONE)


def test_a_total_of_everything_is_never_less_than_its_parts():
    costs = [
        spending.cost_of(budget, relation)
        for budget in (ONE, Budget.approximate(0.5, 1e-6), Budget.zcdp(0.2, 1e-5))
        for relation in ("replace", "zero-out")
    ]
    for i in range(1, len(costs) + 1):
        total: Guarantee = spending.composed(costs[:i])
        assert all(total.epsilon >= cost.epsilon * (1 - 1e-12) for cost in costs[:i])
