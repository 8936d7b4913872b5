"""Certificates: whatever is altered is found, whatever is stated can be derived, and signatures name their key."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from discreet.offline import certificate
from discreet.offline import fitting as offline
from discreet.offline.declaration import Column, Declaration
from discreet.people.episodes import Episodes
from discreet.people.logs import LogFormat
from discreet.policy import Policy
from discreet.privacy.accounting import Budget

LOG = LogFormat(3, 2, 4, pooled=True)


def fitted(budget=Budget.pure(1.0), log=LOG, **options):  # noqa: B008
    rng = np.random.default_rng(0)
    episodes = Episodes(rng.integers(3, size=(50, 5)), rng.integers(2, size=(50, 4)), rng.random((50, 4)))
    return offline.fit(episodes, log, budget, **options)


@pytest.fixture
def folder(tmp_path) -> Path:
    fitted().save(tmp_path / "policy")
    return tmp_path / "policy"


def rewritten(folder: Path, change, digests: bool = True) -> None:
    """Alter the certificate as a forger would, who also writes new digests and a new page."""
    path = folder / certificate.JSON
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    if digests:
        (folder / certificate.HTML).write_text(certificate.page(document, Policy.load(folder, check=False)))
        listed = {name: certificate.digest(folder / name) for name in certificate.FILES}
        (folder / certificate.DIGESTS).write_text(json.dumps(listed))


@pytest.mark.parametrize(
    ("budget", "options"),
    [
        (Budget.pure(0.3), {}),
        (Budget.pure(0.3), {"neighbours": "zero-out"}),
        (Budget.pure(2.0), {"algorithm": "dp-apvi"}),
        (Budget.zcdp(0.2), {}),
        (Budget.zcdp(0.2, 1e-6), {"algorithm": "dp-apvi", "mode": "paper", "allow_pooled": True}),
        (Budget.approximate(1.0, 1e-6), {"log": LogFormat(3, 2, 4, episodes_per_user=3)}),
        (Budget.approximate(1.0, 1e-6), {"log": LogFormat(3, 2, 4), "algorithm": "dp-apvi", "bonus": "hoeffding"}),
        (Budget.pure(1.0), {"rewards": np.full((3, 2), 0.5), "algorithm": "dp-apvi"}),
        (Budget.pure(1.0), {"log": LogFormat(1, 1, 1, early_end="keep", num_users=10**6)}),
    ],
)
def test_what_was_written_is_consistent_and_without_a_signature_not_valid(budget, options, tmp_path):
    log = options.pop("log", LOG)
    found = fitted(budget, log, **options)
    found.save(tmp_path)
    verdict = certificate.verify(tmp_path)
    assert verdict.problems == ()
    stated = found.certificate["guarantee"]
    assert verdict.epsilon == stated["epsilon"]
    if budget.epsilon is not None:
        assert stated["epsilon"] == pytest.approx(budget.epsilon)
    else:
        assert stated["rho"] == pytest.approx(budget.rho)
    assert verdict.signed_by is None
    assert not verdict.valid
    assert verdict.verdict == "consistent (unsigned): anyone may have written it"


@pytest.mark.parametrize("name", [*certificate.FILES, certificate.DIGESTS])
def test_a_changed_or_missing_file_is_found(folder, name):
    assert certificate.verify(folder).consistent
    path = folder / name
    original = path.read_bytes()
    middle = len(original) // 2
    path.write_bytes(original[:middle] + bytes([original[middle] ^ 1]) + original[middle + 1 :])
    assert not certificate.verify(folder).consistent
    path.unlink()
    assert not certificate.verify(folder).consistent


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["guarantee"].update(epsilon=0.5),
        lambda d: d["guarantee"].update(epsilon=0.5, sentence=d["guarantee"]["sentence"].replace("ε = 1", "ε = 0.5")),
        lambda d: d["guarantee"].update(delta=1e-9),
        lambda d: d["guarantee"].update(neighbours="zero-out"),
        lambda d: d["guarantee"].update(sentence="perfect privacy"),
        lambda d: d["guarantee"].update(model="local"),
        lambda d: d["guarantee"].update(model="none"),
        lambda d: (d["guarantee"].update(model="none", sentence="no privacy"), d["ledger"].clear()),
        lambda d: d["ledger"][0].update(scale=d["ledger"][0]["scale"] * 2),
        lambda d: d["ledger"][0].update(sensitivity=d["ledger"][0]["sensitivity"] / 2),
        lambda d: d["ledger"][0].update(cost=0.5),
        lambda d: d["ledger"][0].update(mechanism="magic"),
        lambda d: d["ledger"].clear(),
        lambda d: d["problem"].update(horizon=2),
        lambda d: d["unit"].update(episodes_per_user=2),
        lambda d: d["digests"].update({"policy.csv": "0" * 64}),
        lambda d: d.pop("guarantee"),
        lambda d: d.update(format="other"),
    ],
)
def test_a_forger_with_fresh_digests_must_still_forge_the_arithmetic(folder, change):
    def attempt(document):
        change(document)
        for key, empty in (("guarantee", {"sentence": "", "assumptions": [], "epsilon": None}), ("ledger", [])):
            document.setdefault(key, empty)

    rewritten(folder, attempt)
    assert not certificate.verify(folder).consistent


def test_a_policy_from_elsewhere_is_found(folder, tmp_path):
    fitted(seed=9).save(tmp_path / "other")
    (folder / "policy.csv").write_bytes((tmp_path / "other" / "policy.csv").read_bytes() + b"\n")
    listed = {name: certificate.digest(folder / name) for name in certificate.FILES}
    (folder / certificate.DIGESTS).write_text(json.dumps(listed))
    assert "not the one" in certificate.verify(folder).problems[0]


def test_a_simulation_says_so_and_needs_permission(tmp_path):
    found = fitted(seed=1)
    found.save(tmp_path)
    assert found.certificate["simulation"] is True
    assert certificate.SIMULATED in found.warnings
    assert certificate.verify(tmp_path).problems == (certificate.SIMULATED,)
    assert certificate.verify(tmp_path, allow_simulation=True).consistent
    rewritten(tmp_path, lambda d: (d.pop("simulation") and None) or d.update(simulation=None))
    assert not certificate.verify(tmp_path).consistent


def keys(tmp_path, name="key"):
    secret = Ed25519PrivateKey.generate()
    private, public = tmp_path / f"{name}.pem", tmp_path / f"{name}.pub"
    private.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    public.write_bytes(
        secret.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def test_signatures(tmp_path):
    private, public = keys(tmp_path)
    other, other_public = keys(tmp_path, "other")
    folder = tmp_path / "policy"
    fitted().save(folder, private)
    named = certificate.verify(folder)
    assert len(named.signed_by) == 64
    assert (named.consistent, named.valid) == (True, False)
    assert named.verdict == f"consistent (signed by a key nobody vouched for: {named.signed_by})"
    vouched = certificate.verify(folder, public_key=public)
    assert vouched.valid
    assert vouched.verdict == f"valid: signed by {named.signed_by}"
    assert "another key" in certificate.verify(folder, public_key=other_public).problems[0]
    rewritten(folder, lambda d: d["origin"].update(purpose="none at all"))
    assert certificate.verify(folder).problems == ("the signature does not fit the digests",)
    fitted().save(folder)  # written again without a key: the old signature must not stay
    assert certificate.verify(folder).signed_by is None
    assert "no signature" in certificate.verify(folder, public_key=public).problems[0]
    assert "no readable public key" in certificate.verify(_signed(folder, other), public_key=private).problems[0]


def _signed(folder, key):
    fitted().save(folder, key)
    return folder


def test_a_key_of_another_kind_is_refused_before_anything_is_written(tmp_path):
    wrong = tmp_path / "wrong.pem"
    wrong.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    for path, words in ((wrong, "expected an Ed25519 key"), (tmp_path / "absent", "no readable private key")):
        with pytest.raises(ValueError, match=words):
            fitted().save(tmp_path / "policy", path)
    assert not (tmp_path / "policy").exists()


def test_folders_that_cannot_be_ours_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "policy.csv").write_text("mine")
    for folder, words in (("file", "is a file"), ("file/below", "is a file"), ("full", "policy.csv that is not of")):
        with pytest.raises(ValueError, match=words):
            fitted().save(tmp_path / folder)
    assert (tmp_path / "full" / "policy.csv").read_text() == "mine"
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    with pytest.raises(ValueError, match="no permission"):
        fitted().save(tmp_path / "new" / "policy")


def test_the_page_says_it_all_and_escapes_what_it_says(folder):
    document = certificate.read(folder)
    policy = Policy.load(folder)
    nasty = replace(policy, action_names=("<script>", "b"), state_names=("<script src=x>", "s1", "s2"))
    page = certificate.page({**document, "warnings": ["<script>alert(1)</script>"]}, nasty)
    assert "<script" not in page
    for text in (
        document["guarantee"]["sentence"],
        "proves consistency, not origin",
        "discrete-laplace",
        "What is not",
        "at most 74 % sure",  # e/(1 + e), rounded up
        "more than 2.72 times as likely",
        "The 50 people",
        "current practice: not shown",
    ):
        assert text in page
    assert "http" not in page


def test_the_picture_of_the_page_is_the_policy(tmp_path):
    """Every field is what `act` says, and steps are one column exactly where the same is done at all of them."""
    actions = np.array([[0, 1], [0, 1], [1, 1]])
    known = np.array([[True, True], [True, True], [False, True]])
    policy = Policy(actions, np.zeros((3, 2)), known, 2, ("well", "ill"), ("wait", "treat"))
    fitted(log=LogFormat(2, 2, 3)).save(tmp_path)
    page = certificate.page(certificate.read(tmp_path), policy)
    table = page[page.index("<table class=policy>") : page.index("<figcaption>")]
    rows = [re.sub("<[^>]*>", " ", row).split() for row in table.split("<tr>")[1:]]
    assert rows == [["steps", "0–1", "step", "2"], ["well", "wait", "not", "known"], ["ill", "treat", "treat"]]
    many = Policy(np.zeros((1, 100), int), np.zeros((1, 100)), np.arange(100)[None] < 75, 2)
    assert "75 states, 75.0 %" in certificate.page(certificate.read(tmp_path), many)


def test_two_declared_columns_are_a_map_whose_fields_are_what_act_says(tmp_path):
    columns = Column("pulse", 0.0, 200.0, edges=(60.0, 100.0)), Column("ward", names=("A", "B"), missing=True)
    declared = Declaration(columns, ("wait", "treat"), 2)
    grid = declared.grid(10**6, Budget.pure(1.0))
    rng = np.random.default_rng(1)
    actions, known = rng.integers(2, size=(2, grid.num_states)), rng.random((2, grid.num_states)) < 0.7
    policy = Policy(
        actions, np.zeros(actions.shape), known, 2, grid.state_names, ("wait", "treat"), pooled=True, grid=grid
    )
    fitted(log=LogFormat(2, 2, 3)).save(tmp_path)
    page = certificate.page(certificate.read(tmp_path), policy)
    table = page[page.index("<table class=policy>") : page.index("<figcaption>")]
    shown = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in table.split("<tr>")[2:]]
    pulses, wards = (30, 80, 150), ("A", "B", None)
    assert shown == [[policy.act({"pulse": p, "ward": w}, step=0) for w in wards] for p in pulses]
    assert "From step 1 on something else is done" in page


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 5.0])
def test_what_the_page_says_in_odds_is_what_the_guarantee_allows(epsilon, neighbours, tmp_path):
    """Randomised response loses most: Bayes gives its reader what the page says, to a percent and rounded up."""
    found = fitted(Budget.pure(epsilon), neighbours=neighbours)
    found.save(tmp_path)
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    (stated,) = re.findall(r"at most ([\d.]+) % sure", certificate.page(certificate.read(tmp_path), found.policy))
    assert 0.0 <= float(stated) / 100 - truth < 0.01
    assert float(stated) < 100


def test_nothing_to_read_is_said(tmp_path):
    assert "holds no certificate.json" in certificate.verify(tmp_path).problems[0]
    (tmp_path / certificate.JSON).write_text("{")
    assert "not readable JSON" in certificate.verify(tmp_path).problems[0]


# The policy ---------------------------------------------------------------------------------------------------------


def test_a_policy_acts_after_a_round_trip(tmp_path):
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=(3, 2))
    policy = Policy(actions, rng.random((3, 2)), rng.random((3, 2)) < 0.5, 4, ("well", "ill"), ("a", "b", "c", "d"))
    policy.save(tmp_path)
    again = Policy.load(tmp_path, check=False)
    assert np.array_equal(again.actions, actions)
    assert again.values == pytest.approx(policy.values, abs=1e-6)
    assert np.array_equal(again.known, policy.known)
    assert again.num_actions == 4
    assert again.act(1, "ill", guess=True) == again.act(1, 1, guess=True) == "ab"[actions[1, 1]]
    lines = (tmp_path / "policy.csv").read_text().splitlines()
    assert lines[0] == "step,state,action,state_name,action_name,value,known"
    assert len(lines) == 7
    for step, state, words in ((3, 0, "step is 3"), (0, 2, "state is 2"), (0, "dead", "no state named")):
        with pytest.raises(ValueError, match=words):
            again.act(step, state)
    plain = Policy(actions, np.zeros((3, 2)), np.ones((3, 2), bool), 2)
    assert plain.act(0, 0) == int(actions[0, 0])


def test_a_policy_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no policy"):
        Policy.load(tmp_path)
    (tmp_path / "policy.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="cannot be read"):
        Policy.load(tmp_path, check=False)
    with pytest.raises(ValueError, match="an action lies outside"):
        Policy(np.array([[2]]), np.zeros((1, 1)), np.ones((1, 1), bool), 2)


def test_verifying_a_fit_loads_nothing_that_learns():
    """What derives a certificate again shares arithmetic and texts with what made it, and no learner."""
    shown = "import sys, discreet.offline.certificate; print(*(name for name in sys.modules if 'discreet.' in name))"
    done = subprocess.run([sys.executable, "-c", shown], text=True, capture_output=True, check=True)
    learning = ("agents", "catalog", "planning", "runs", "session", "offline.learners", "offline.fitting")
    loaded = done.stdout.split()
    assert "discreet.offline.claims" in loaded
    assert [name for name in loaded if name.removeprefix("discreet.").startswith(learning)] == []
