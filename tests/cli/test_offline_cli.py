"""The commands for logs: exact JSON, exit codes, one sentence for a mistake."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from discreet.cli import app
from discreet.envs.registry import make, spec
from discreet.envs.rewards import RewardLaw
from discreet.offline import fitting as offline
from discreet.people.episodes import MDPSimulator
from discreet.people.logs import table_of
from discreet.policy import Policy


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    mdp = make("riverswim")
    episodes = MDPSimulator(mdp, RewardLaw("bernoulli"), 0).rollout(spec("riverswim").behaviour(mdp), 2000)
    path = tmp_path_factory.mktemp("log") / "visits.parquet"
    pyarrow.parquet.write_table(table_of(episodes), path)
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def fit(log, out, *more):
    sizes = ("--states", 6, "--actions", 2, "--horizon", 20)
    return run("fit", log, *sizes, "--out", out, *more)


def test_a_policy_in_one_command_that_verifies_and_can_be_evaluated(log, tmp_path):
    out = tmp_path / "policy"
    done = fit(log, out, "--epsilon", 1, "--pooled", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["guarantee"]["epsilon"] == 1.0
    assert document["folder"] == str(out)
    assert sorted(p.name for p in out.iterdir()) == [
        "certificate.html",
        "certificate.json",
        "digests.json",
        "policy.csv",
        "policy.parquet",
    ]
    assert json.loads((out / "certificate.json").read_text())["guarantee"]["epsilon"] == 1.0
    verified = run("verify", out, "--json")
    assert verified.exit_code == 0
    found = json.loads(verified.stdout)
    assert (found["consistent"], found["valid"]) == (True, False)
    assert found["verdict"] == "consistent (unsigned): anyone may have written it"
    worth = json.loads(run("evaluate", out, "--env", "riverswim", "--json").stdout)
    assert set(worth) == {"value", "value_optimal", "value_random", "gap_ratio"}
    assert worth["gap_ratio"] < 0.2
    own = json.loads(run("evaluate", out, "--json").stdout)
    assert own["value_lower"] >= 0
    assert Policy.load(out).act(0, 0) in (0, 1)
    shown = fit(log, out, "--epsilon", 1, "--pooled", "--initial", 0)
    assert "guarantee: central DP, ε = 1 per user, replace-one, 2,000 users" in shown.stdout
    assert run("evaluate", out, "--env", "riverswim").stdout.startswith("value: ")
    assert "covered state actions" in run("evaluate", out).stdout


def test_an_altered_policy_and_a_simulation_do_not_verify(log, tmp_path):
    out = tmp_path / "policy"
    assert fit(log, out, "--epsilon", 1, "--pooled", "--seed", 3).exit_code == 0
    refused = run("verify", out)
    assert refused.exit_code == 1
    assert "simulation" in refused.stdout
    allowed = run("verify", out, "--allow-simulation")
    assert allowed.exit_code == 0
    assert allowed.stdout == "consistent (unsigned): anyone may have written it\nstates: " + (
        "central DP, ε = 1 per user, replace-one\n"
    )
    (out / "policy.csv").write_text((out / "policy.csv").read_text().replace("0,0,", "0,0,", 1) + "9,9,9\n")
    altered = run("verify", out, "--allow-simulation", "--json")
    assert altered.exit_code == 1
    assert json.loads(altered.stdout)["problems"][0] == "policy.csv differs from its digest"


@pytest.mark.parametrize(("epsilon", "heard"), [(30, True), (10, False)])
def test_a_budget_that_promises_nothing_worth_the_name_is_said_to(log, tmp_path, epsilon, heard):
    done = fit(log, tmp_path / "policy", "--epsilon", epsilon, "--pooled", "--quiet")
    assert done.exit_code == 0
    assert (f"warning: ε = {epsilon} promises next to nothing" in done.stderr) is heard


def test_what_lies_beside_a_certificate_is_named_because_nothing_speaks_of_it(log, tmp_path):
    """Raw rows in the folder would otherwise pass under a guarantee that is not theirs."""
    out = tmp_path / "policy"
    fit(log, out, "--epsilon", 1, "--pooled")
    assert json.loads(run("verify", out, "--json").stdout)["uncovered"] == []
    assert "beside" not in run("verify", out).stdout
    (out / "raw.csv").write_text("user,step\n")
    assert json.loads(run("verify", out, "--json").stdout)["uncovered"] == ["raw.csv"]
    assert "says nothing about what lies beside it: 'raw.csv'\n" in run("verify", out).stdout


def test_names_columns_known_rewards_and_several_files(log, tmp_path):
    table = pyarrow.parquet.read_table(log)
    names = [f"bank {s}" for s in range(6)]
    words = np.array(names)
    for column in ("state", "next_state"):
        i = table.column_names.index(column)
        table = table.set_column(i, column, pyarrow.array(words[np.asarray(table.column(column))]))
    table = table.rename_columns(["swimmer", *table.column_names[1:]])
    for i in range(2):
        pyarrow.csv.write_csv(table.slice(20_000 * i, 20_000), tmp_path / f"part{i}.csv")
    (tmp_path / "states.txt").write_text("\n".join(names))
    rewards = [f"bank {s},{a},{1 if (s, a) == (5, 1) else 0.005 * (s + a == 0)}" for s in range(6) for a in range(2)]
    (tmp_path / "rewards.csv").write_text("\n".join(["state,action,reward", *rewards]))
    out = tmp_path / "policy"
    done = run(
        *("fit", tmp_path / "part*.csv", "--states", tmp_path / "states.txt", "--actions", 2, "--horizon", 20),
        *("--columns", "user=swimmer", "--rewards", tmp_path / "rewards.csv", "--initial", "bank 0"),
        *("--epsilon", 2, "--delta", 1e-6, "--pooled", "--out", out, "--json"),
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["problem"]["rewards_known"] is True
    assert document["guarantee"]["delta"] == 1e-6
    assert document["estimate"]["value_estimate"] > 0.5
    assert run("verify", out).exit_code == 0
    policy = Policy.load(out)
    assert policy.act(0, "bank 5") == 1
    assert "bank 3" in (out / "policy.csv").read_text()


def test_every_declaration_can_be_a_file(log, tmp_path):
    rows = [f"{h},{s},{a},{0.3 if h == 0 else 0.2}" for h in range(20) for s in range(6) for a in range(2)]
    (tmp_path / "rewards.csv").write_text("\n".join(["step,state,action,reward", *rows]))
    (tmp_path / "start.csv").write_text("state,probability\n4,0.5\n5,0.5\n")
    options = ("--rho", 1e5, "--seed", 0, "--algorithm", "dp-apvi", "--rewards", tmp_path / "rewards.csv")
    started = (*options, "--initial", tmp_path / "start.csv")
    found = json.loads(fit(log, tmp_path / "policy", *started, "--json").stdout)
    assert found["problem"]["rewards_known"] is True
    assert found["estimate"]["value_cautious"] == pytest.approx(0.3)  # nobody starts there: what follows is unknown
    (tmp_path / "start.csv").write_text("state,probability\n4,0.5\n5,much\n")
    assert "expected a number" in fit(log, tmp_path / "none", *started).stderr
    (tmp_path / "rewards.csv").write_text("\n".join(["step,state,action,reward", *rows[:-1]]))
    assert "state 5 and action 1 at step 19" in fit(log, tmp_path / "none", *options).stderr


def test_both_forms_of_the_penalty(log, tmp_path):
    high, low = (
        json.loads(fit(log, tmp_path / b, "--rho", 50, "--algorithm", "dp-apvi", "--pooled", *more, "--json").stdout)
        for b, more in (("a", ("--initial", 0)), ("b", ("--initial", 0, "--bonus", "hoeffding")))
    )
    assert high["estimate"]["value_cautious"] > 1.2 * low["estimate"]["value_cautious"] > 0.1
    assert (high["algorithm"]["bonus"], low["algorithm"]["bonus"]) == ("bernstein", "hoeffding")


def test_features_splits_and_scales(log, tmp_path):
    np.save(tmp_path / "phi.npy", np.eye(12).reshape(6, 2, 12))
    options = ("--features", tmp_path / "phi.npy", "--algorithm", "dp-vapvi", "--epsilon", 100, "--delta", 1e-6)
    document = json.loads(fit(log, tmp_path / "a", *options, "--split", "--json").stdout)
    assert document["algorithm"]["split"] is True
    assert {line["users"] for line in document["ledger"]} == {"users for values", "users for variances"}
    assert run("verify", tmp_path / "a").exit_code == 0
    scaled = json.loads(fit(log, tmp_path / "b", *options, "--confidence-scale", 50, "--initial", 0, "--json").stdout)
    assert scaled["algorithm"]["split"] is False
    assert scaled["estimate"]["value_cautious"] == 0
    assert "cautious value: " in fit(log, tmp_path / "c", *options, "--initial", 0).stdout


def test_without_privacy_it_says_so_everywhere(log, tmp_path):
    out = tmp_path / "open"
    shown = fit(log, out, "--algorithm", "apvi", "--pooled")
    assert shown.exit_code == 0, shown.output
    assert "guarantee: no privacy" in shown.stdout
    assert "warning: no privacy" in shown.stderr
    verdict = run("verify", out)
    assert verdict.exit_code == 1
    assert "NOT VALID: no privacy" in verdict.stdout
    assert json.loads(run("evaluate", out, "--env", "riverswim", "--json").stdout)["gap_ratio"] < 0.05


def test_learners_of_the_other_command_are_sent_there(log, tmp_path):
    assert "use discreet run dp-ucbvi" in fit(log, tmp_path, "--epsilon", 1, "--algorithm", "dp-ucbvi").stderr
    assert "dp-ucbvi is a learner and no log" in fit("dp-ucbvi", tmp_path, "--epsilon", 1).stderr
    sent = run("run", "one-hot", "--epsilon", 1)
    assert sent.exit_code == 2
    assert "discreet fit LOGS --algorithm one-hot" in sent.stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "state a budget"),
        (("--algorithm", "apvi", "--epsilon", 1), "takes no budget"),
        (("--epsilon", 1, "--bonus", "azuma"), "bernstein or hoeffding"),
        (("--epsilon", 1, "--split"), "does not make two regressions"),
        (("--epsilon", 1, "--table", "visits"), "is no database"),
        (("--epsilon", 1, "--states", 0), "num_states is 0"),
        (("--epsilon", 1, "--states", 10**12), "counters, too many; pool the steps"),
        (("--epsilon", 1, "--states", 100_000), "2,000 users are far too few for this budget"),
        (("--epsilon", 1, "--horizon", 10**8), "cannot be counted"),
        (("--epsilon", 1, "--users", 0), "num_users is 0"),
        (("--epsilon", 1, "--sign", "absent.pem"), "no readable private key"),
        (("--epsilon", 1, "--initial", "absent.csv"), "absent.csv cannot be read: No such file"),
        (("--epsilon", 1, "--rho", 1), "state a budget"),
        (("--epsilon", -1), "epsilon is -1; it must be positive"),
        (("--epsilon", 1, "--algorithm", "sarsa"), "unknown algorithm 'sarsa'"),
        (("--epsilon", 1, "--neighbours", "friends"), "replace or zero-out"),
        (("--epsilon", 1, "--columns", "user"), "joined by '='"),
        (("--epsilon", 1, "--columns", "user=patient"), "no column 'patient'"),
        (("--epsilon", 1, "--reward-range", "a:b"), "two numbers"),
        (("--epsilon", 1, "--initial", "9"), "no state"),
        (("--epsilon", 1, "--early-end", "drop"), "absorb or keep"),
        (("--epsilon", 1, "--engine", "postgres"), "duckdb or spark"),
        (("--epsilon", 1, "--seed", -1), "at least 0"),
        (("--epsilon", 1, "--users", 5), "more users than the 5 declared"),
        (("--epsilon", 1, "--rewards", "absent.csv"), "cannot be read"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_2(log, tmp_path, more, words):
    done = fit(log, tmp_path / "policy", *more)
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "policy").exists()


TEN = {name: [0] * 10 for name in ("step", "state", "action", "reward", "next_state")} | {"user": list(range(10))}


def column(name, values):
    return pyarrow.table(TEN | {name: values})


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (column("state", [[0]] * 10), "column 'state' holds neither numbers, bools nor text"),
        (column("step", pyarrow.array([0] * 10, pyarrow.timestamp("s"))), "column 'step' holds neither"),
        (column("reward", pyarrow.array([0] * 10, pyarrow.date32())), "column 'reward' holds neither"),
        (
            pyarrow.table({"user": [1], "step": [0]}),
            "no column 'state', 'action', 'reward'; its columns are user, step",
        ),
        (b"this is no parquet file", "cannot be read: it is damaged"),
        (b"", "empty file"),
    ],
)
def test_logs_that_cannot_be_counted_are_refused_in_one_sentence(log, words, tmp_path):
    path = tmp_path / "log.parquet"
    if isinstance(log, bytes):
        path.write_bytes(log)
    else:
        pyarrow.parquet.write_table(log, path)
    done = fit(path, tmp_path / "policy", "--epsilon", 1)
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "policy").exists()


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (column("action", [True] * 10), ""),
        (column("state", ["ill"] * 10), "column 'state': 10 not a whole number"),
        (column("state", [0.5] * 10), "column 'state': 10 not a whole number"),
        (column("state", ["ill"] * 10), "no row of the log can be counted"),
        (column("user", [None, *range(9)]), "1 of these name no user"),
        (column("user", pyarrow.nulls(10, pyarrow.int64())), "no row of the log can be counted"),
        (column("state", [0] * 10).slice(0, 0), "no row of the log can be counted"),
    ],
)
def test_p8_whatever_the_rows_hold_noise_is_released_and_only_the_holder_is_told(log, words, tmp_path):
    pyarrow.parquet.write_table(log, tmp_path / "log.parquet")
    done = fit(tmp_path / "log.parquet", tmp_path / "policy", "--epsilon", 1, "--anyway")
    assert done.exit_code == 0, done.output
    assert words in done.stderr
    assert words == "" or words not in (tmp_path / "policy" / "certificate.json").read_text()
    assert {path.name for path in (tmp_path / "policy").iterdir()} >= {"policy.parquet", "certificate.json"}


def test_one_person_with_very_many_rows_counts_once(tmp_path):
    """A user with 200 000 rows, in episodes of her own, moves the result as much as anybody."""
    n = 200_000
    everybody = {**{name: np.zeros(n + 9, np.int64) for name in TEN}, "episode": np.arange(n + 9)}
    everybody["user"] = np.concatenate([np.arange(1, 10), np.zeros(n, np.int64)])
    pyarrow.parquet.write_table(pyarrow.table(everybody), tmp_path / "log.parquet")
    done = run(
        *("fit", tmp_path / "log.parquet", "--states", 1, "--actions", 1, "--horizon", 1, "--epsilon", "inf"),
        *("--algorithm", "dp-apvi", "--out", tmp_path / "policy", "--repairs", tmp_path / "repairs.json", "--json"),
    )
    document = json.loads(done.stdout)
    assert document["unit"]["users"] == 10
    assert json.loads((tmp_path / "repairs.json").read_text())["cut_rows"] == n - 1


def test_calibrate_offline_counts_users_before_any_data():
    found = json.loads(run("calibrate", "--offline", "--epsilon", 1, "--episodes", 1000, "--pooled", "--json").stdout)
    needed = found["users_needed"]
    assert list(needed) == ["0.1", "0.3", "1", "3", "10"]
    assert needed["0.1"] == pytest.approx(10 * needed["1"], rel=0.01)
    assert found["learners"]["one-hot"]["users_needed"] < found["learners"]["dp-apvi"]["users_needed"]
    shown = run("calibrate", "--offline", "--epsilon", 1)
    assert "verdict for 20,000 users at ε = 1" in shown.stdout


def test_calibrate_offline_for_features():
    asked = ("calibrate", "--offline", "--epsilon", 1, "--delta", 1e-6, "--dimension", 10)
    found = json.loads(run(*asked, "--json").stdout)
    learners = found["learners"]
    assert learners["dp-vapvi"]["users_needed"] == pytest.approx(
        learners["dp-pevi"]["users_needed"] * (39 / 20) ** 0.5, rel=1e-3
    )
    assert found["users_needed"]["1"] == learners["dp-pevi"]["users_needed"]
    assert "10 directions of the features" in run(*asked).stdout
    for more, words in ((("--pooled",), "not --pooled"), (("--delta", 0), "with a --delta")):
        refused = run(*asked, *more)
        assert refused.exit_code == 2
        assert words in refused.stderr
    assert "give --offline too" in run("calibrate", "--epsilon", 1, "--dimension", 3).stderr


def test_folders_that_are_none(tmp_path):
    assert run("verify", tmp_path / "absent").exit_code == 2
    assert run("evaluate", tmp_path, "--env", "riverswim").exit_code == 2
    assert run("evaluate", tmp_path).exit_code == 2
    assert run("verify", tmp_path).exit_code == 1


# What goes wrong outside --------------------------------------------------------------------------------------------


def copied(log, tmp_path):
    path = tmp_path / "visits.parquet"
    path.write_bytes(log.read_bytes())
    return path


def test_p10_json_is_the_certificate_and_holds_nothing_that_is_not_private(log, tmp_path):
    table = pyarrow.parquet.read_table(log)
    states = np.asarray(table.column("state")).copy()
    states[7] = 99
    path = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(table.set_column(2, "state", pyarrow.array(states)), path)
    done = fit(
        path, tmp_path / "policy", "--epsilon", 1, "--pooled", "--json", "--repairs", tmp_path / "repairs.json"
    )
    document = json.loads(done.stdout)
    written = json.loads((tmp_path / "policy" / "certificate.json").read_text())
    del written["digests"]
    assert document == {**written, "folder": str(tmp_path / "policy")}
    assert "not_private" not in done.stdout
    assert "column 'state': 1 " in done.stderr
    repairs = json.loads((tmp_path / "repairs.json").read_text())
    assert repairs["unreadable_rows"] == 1
    assert "not_private" in repairs
    assert "a folder; expected a file" in fit(path, tmp_path / "x", "--epsilon", 1, "--repairs", tmp_path).stderr


def test_every_release_is_recorded_beside_the_log_and_totals_are_kept(log, tmp_path):
    path = copied(log, tmp_path)
    first = fit(path, tmp_path / "a", "--epsilon", 1, "--pooled", "--purpose", "a pilot", "--operator", "Ada")
    assert f"ledger: release 1 in {path}.spent.jsonl; all together: central DP, ε = 1 per user" in first.stderr
    second = fit(path, tmp_path / "b", "--epsilon", 1, "--pooled", "--total-epsilon", 2, "--json")
    assert "all together: central DP, ε = 2 per user, replace-one; declared as the most: ε = 2" in second.stderr
    assert "1 of the earlier ones were of exactly this log" in second.stderr
    assert json.loads(second.stdout)["spending"]["releases_before"] == 1
    origin = json.loads((tmp_path / "a" / "certificate.json").read_text())["origin"]
    assert (origin["operator"], origin["purpose"]) == ("Ada", "a pilot")
    assert "a pilot" in (tmp_path / "a" / "certificate.html").read_text()
    third = fit(path, tmp_path / "c", "--epsilon", 0.5, "--pooled")
    assert third.exit_code == 2
    assert "would come to central DP, ε = 2.5 per user, replace-one, more than the total epsilon of 2" in third.stderr
    assert not (tmp_path / "c").exists()
    elsewhere = fit(path, tmp_path / "c", "--epsilon", 0.5, "--pooled", "--ledger", tmp_path / "other.jsonl")
    assert "release 1 in" in elsewhere.stderr
    absent = fit(path, tmp_path / "d", "--epsilon", 1, "--ledger", tmp_path / "absent" / "ledger.jsonl")
    assert absent.exit_code == 2
    assert "cannot be written: No such file or directory" in absent.stderr


def test_a_log_that_only_can_be_read_is_fitted_with_a_notice(log, tmp_path, monkeypatch):
    path = copied(log, tmp_path)
    real = os.open

    def refusing(name, flags, *more, **named):
        if str(name).endswith(".spent.jsonl"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(name))
        return real(name, flags, *more, **named)

    monkeypatch.setattr(os, "open", refusing)
    done = fit(path, tmp_path / "policy", "--epsilon", 1, "--pooled")
    assert done.exit_code == 0
    assert (
        f"notice: nothing records this release, for {path}.spent.jsonl cannot be written; give --ledger"
        in done.stderr
    )
    strict = fit(path, tmp_path / "other", "--epsilon", 1, "--pooled", "--total-epsilon", 3)
    assert strict.exit_code == 2
    assert "cannot be written: Read-only file system" in strict.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            KeyboardInterrupt(),
            130,
            "interrupted; the budget of this release is spent ({ledger}); nothing was written",
        ),
        (RuntimeError("Query interrupted"), 130, "interrupted; the budget of this release is spent"),
        (OSError(errno.ENOSPC, "x", "scratch"), 2, "Error: scratch: No space left on device; the budget of this"),
        (OSError(errno.EIO, "x"), 2, "Error: Input/output error; the budget of this release is spent"),
        (MemoryError(), 2, "Error: there is not enough memory for"),
        (UnicodeDecodeError("utf-8", b"secret \xff", 7, 8, "bad"), 2, "Error: a file is not text in utf-8 (byte 7)"),
    ],
)
def test_what_goes_wrong_is_one_sentence_that_says_what_was_spent(log, tmp_path, monkeypatch, error, code, words):
    path = copied(log, tmp_path)

    def failing(task):
        raise error

    monkeypatch.setitem(offline.FROM_LOGS, "one-hot", replace(offline.FROM_LOGS["one-hot"], learn=failing))
    done = fit(path, tmp_path / "policy", "--epsilon", 1, "--pooled")
    assert done.exit_code == code
    assert words.format(ledger=f"{path}.spent.jsonl") in done.stderr
    assert "the budget of this release is spent" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "secret" not in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["visits.parquet", "visits.parquet.spent.jsonl"]


def test_a_disk_that_fills_up_while_the_policy_is_written(log, tmp_path, monkeypatch):
    path = copied(log, tmp_path)

    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Policy, "save", full)
    done = fit(path, tmp_path / "policy", "--epsilon", 1, "--pooled")
    assert done.exit_code == 2
    assert f"Error: {tmp_path / 'policy'} cannot be written: No space left on device; the budget of" in done.stderr
    assert not (tmp_path / "policy").exists()


def test_an_interrupt_before_anything_was_spent_says_so_by_not_saying_it(log, tmp_path, monkeypatch):
    path = copied(log, tmp_path)

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(offline, "LoggedData", stop)
    done = fit(path, tmp_path / "policy", "--epsilon", 1, "--pooled")
    assert done.exit_code == 130
    assert done.stderr == "interrupted; nothing was written\n"
    assert os.listdir(tmp_path) == ["visits.parquet"]


def test_names_in_another_encoding_are_one_sentence(log, tmp_path):
    (tmp_path / "states.txt").write_bytes("Fl\xe4che\n".encode("latin-1") * 6)
    done = run(
        *("fit", log, "--states", tmp_path / "states.txt", "--actions", 2, "--horizon", 20, "--epsilon", 1),
        *("--out", tmp_path / "policy"),
    )
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_names_may_be_given_with_commas_between_them(tmp_path):
    from discreet.cli.logs import listed

    (tmp_path / "names").write_text("wait\ntreat\n")
    assert (
        listed("--actions", "wait, treat") == listed("--actions", str(tmp_path / "names")) == (2, ("wait", "treat"))
    )
    for wrong, words in (("a,b,a", "'a' twice"), (",", "no names"), ("absent", "names such as a,b,c")):
        with pytest.raises(ValueError, match=words):
            listed("--actions", wrong)


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_in_a_real_process(times, log, tmp_path):
    """In the middle of a query, which then stops, also where somebody does not wait for that."""
    script = (
        "import os, signal, threading, time\n"
        "from discreet.offline import fitting\n"
        "from discreet.cli import main\n"
        "from discreet.people.engines import DuckDB\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # whoever started the tests may ignore it
        "def slow(*_, **__):\n"
        "    def stop():\n"
        "        time.sleep(0.5)\n"
        f"        for _ in range({times}):\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "            time.sleep(0.01)\n"
        "    threading.Thread(target=stop, daemon=True).start()\n"
        "    DuckDB().fetch('SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b')\n"
        "fitting.LoggedData = slow\n"
        "main()\n"
    )
    arguments = ["fit", log, "--states", 6, "--actions", 2, "--horizon", 20, "--epsilon", 1, "--out", tmp_path / "p"]
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr == "interrupted; nothing was written\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_output_that_nobody_reads_is_no_error(more):
    command = [sys.executable, "-c", "from discreet.cli import main; main()", "algorithms", *more]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=100)
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == ""


def test_exit_codes_of_verify_are_what_its_help_says(log, tmp_path):
    out = tmp_path / "policy"
    assert fit(copied(log, tmp_path), out, "--epsilon", 1, "--pooled").exit_code == 0
    assert run("verify", out).exit_code == 0
    assert run("verify", out, "--require-signature").exit_code == 1
    strict = run("verify", out, "--require-signature", "--json")
    assert strict.exit_code == 1
    assert json.loads(strict.stdout)["consistent"] is True
    assert "Exit codes 0 valid or consistent" in " ".join(run("verify", "--help").stdout.replace("│", " ").split())
