"""Forged certificates: whoever forges has our code, and writes the page, the digests and the tables anew.

What contradicts itself is refused. What does not is called consistent and never valid, and no signature fits it.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from discreet.cli import app
from discreet.offline import certificate, claimed, claims, wording
from discreet.offline import fitting as offline
from discreet.people.episodes import Episodes
from discreet.people.logs import LogFormat
from discreet.policy import Policy
from discreet.privacy.accounting import Budget, Guarantee

POOLED = LogFormat(3, 2, 4, pooled=True)
STAGED = LogFormat(3, 2, 4)
PHI = np.eye(6).reshape(3, 2, 6)
KINDS = {
    "one-hot": (POOLED, Budget.pure(1.0), {}),
    "gaussian": (POOLED, Budget.approximate(1.0, 1e-6), {}),
    "tilted": (LogFormat(3, 2, 4, True, num_users=5000), Budget.pure(1.0), {}),
    "dp-apvi": (POOLED, Budget.pure(9.0), {"algorithm": "dp-apvi"}),
    "known": (STAGED, Budget.zcdp(0.5), {"algorithm": "dp-apvi", "rewards": np.full((3, 2), 0.5)}),
    "dp-pevi": (STAGED, Budget.zcdp(0.5, 1e-6), {"features": PHI}),
    "dp-vapvi": (STAGED, Budget.zcdp(50.0), {"features": PHI, "algorithm": "dp-vapvi"}),
    "split": (STAGED, Budget.zcdp(50.0), {"features": PHI, "algorithm": "dp-vapvi", "split": True}),
    "successors": (POOLED, Budget.pure(1.0), {"successors": np.ones((3, 2, 3), bool)}),
    "thin": (POOLED, Budget.pure(0.01), {"algorithm": "dp-apvi"}),
    "seeded": (POOLED, Budget.pure(1.0), {"seed": 3}),
    "open": (POOLED, None, {"algorithm": "apvi"}),
}


def fitted(kind: str, **more):
    log, budget, options = KINDS[kind]
    rng = np.random.default_rng(0)
    episodes = Episodes(rng.integers(3, size=(200, 5)), rng.integers(2, size=(200, 4)), rng.random((200, 4)))
    return offline.fit(episodes, log, budget, anyway=True, **options, **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of every kind, with a ledger that has recorded two releases of it."""
    root = tmp_path_factory.mktemp("made")
    for kind in KINDS:
        for _ in range(2):
            found = fitted(kind, ledger=root / f"{kind}.jsonl", operator="the ward", purpose="a test")
        found.save(root / kind)
    return root


def rewritten(folder: Path, document, policy: Policy | None = None) -> None:
    """The work of a forger: every file agrees with every other, as far as the program can make them."""
    if policy is not None:
        policy.save(folder)
    document["digests"] = {name: certificate.digest(folder / name) for name in (certificate.PARQUET, certificate.CSV)}
    (folder / certificate.JSON).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    try:
        page = certificate.page(document, policy or Policy.load(folder, check=False))
    except (KeyError, TypeError, ValueError, AttributeError):
        page = "<html></html>"
    (folder / certificate.HTML).write_text(page)
    listed = {name: certificate.digest(folder / name) for name in certificate.FILES}
    (folder / certificate.DIGESTS).write_text(json.dumps(listed))


@pytest.fixture
def forged(made, tmp_path):
    """Forge a folder of a kind; what `verify` says of it."""

    def forge(kind, change=None, policy=None):
        folder = tmp_path / kind
        fitted_files = {path.name: path.read_bytes() for path in (made / kind).iterdir()}
        folder.mkdir(exist_ok=True)
        for name, content in fitted_files.items():
            (folder / name).write_bytes(content)
        document = json.loads((folder / certificate.JSON).read_text())
        if change is not None:
            change(document)
        rewritten(folder, document, policy)
        return certificate.verify(folder, allow_simulation=True)

    return forge


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_made_is_consistent(forged, kind):
    problems = (wording.NOT_PRIVATE,) if kind == "open" else ()
    assert forged(kind).problems == problems
    assert not forged(kind).valid


# Refused ------------------------------------------------------------------------------------------------------------


def told(document, epsilon, **numbers):
    """State another guarantee, in all the places where it stands."""
    stated = document["guarantee"]
    stated.update(epsilon=epsilon, **numbers)
    again = Guarantee(
        "central", epsilon, stated["delta"], stated["rho"], stated["neighbours"], stated["unit"]
    ).sentence()
    stated["sentence"] = again
    document["spending"] = {
        **dict.fromkeys(document["spending"]),
        "meaning": wording.UNRECORDED,
    }


def disjoint(*labels):
    def change(document):
        for line, label in zip(document["ledger"], labels, strict=True):
            line["users"] = label
        told(document, 3.0)
        document["guarantee"]["assumptions"].append(wording.ONE_PART)

    return change


def dropped(statistic, epsilon=6.0):
    def change(document):
        document["ledger"] = [line for line in document["ledger"] if line["statistic"] != statistic]
        told(document, epsilon)

    return change


def without_rewards(document):
    """Rewards were noised; the forger says that they were known and never counted."""
    dropped("rewards")(document)


def halved(size):
    """Half the horizon, or rewards half as fine: half the sensitivity."""

    def change(document):
        document["problem"][size] //= 2
        line = document["ledger"][0]
        line["sensitivity"] /= 2
        line["cost"] /= 2
        told(document, 0.5)

    return change


def shorter_everywhere(document):
    """Staged: the policy has a row for every step."""
    for line in document["ledger"]:
        line["sensitivity"] /= 2**0.5
        line["cost"] /= 2
    document["problem"].update(horizon=2, planned_steps=2)
    document["unit"].update(steps_per_episode=2, bound=wording.bound_text(True, 1, 2))
    told(document, float("inf"), rho=document["guarantee"]["rho"] / 2)
    document["guarantee"]["epsilon"] = None


def renamed(old, new, factor, epsilon):
    def change(document):
        for line in document["ledger"]:
            if line["statistic"] == old:
                line["statistic"] = new
                line["sensitivity"] *= factor
                line["cost"] *= factor
        told(document, epsilon)

    return change


def unlisted(document):
    document["regressions"] = [line for line in document["regressions"] if "variances" not in line["statistic"]]


def loud_regressions(document):
    for line in document["regressions"]:
        line["matrix_deviation"] *= 2
        line["vector_deviations"] = [2 * sigma for sigma in line["vector_deviations"]]


def all_scaled(document):
    """Ten times the noise, but the learner still reports what it saw."""
    for line in document["ledger"]:
        line["scale"] *= 10
        line["cost"] /= 10
    told(document, document["guarantee"]["epsilon"] / 10)


def edit(*path):
    """Set one entry: edit("unit", "users", 5)."""

    def change(document):
        *keys, last, value = path
        for key in keys:
            document = document[key]
        document[last] = value

    return change


def drop(*path):
    def change(document):
        *keys, last = path
        for key in keys:
            document = document[key]
        del document[last]

    return change


REFUSED = {
    "families relabelled as disjoint parts": ("dp-apvi", disjoint("a", "b", "c")),
    "families relabelled with labels that exist": ("dp-apvi", disjoint("all users", "pilot users", "other users")),
    "families relabelled as users of regressions": (
        "dp-apvi",
        disjoint("users for values", "users for variances", "all users"),
    ),
    "a family dropped": ("dp-apvi", dropped("visits")),
    "rewards dropped": ("dp-apvi", without_rewards),
    "one of two parts dropped": ("tilted", dropped("pilot steps", 1.0)),
    "parts in one": ("tilted", lambda d: [line.update(users="all users") for line in d["ledger"]]),
    "regressions in parts": (
        "dp-vapvi",
        lambda d: [line.update(users=f"users for {line['statistic'].split()[-1]}") for line in d["ledger"]],
    ),
    "coarser rewards": ("one-hot", halved("reward_units")),
    "a shorter horizon": ("one-hot", halved("horizon")),
    "a shorter horizon everywhere": ("known", shorter_everywhere),
    "counts renamed to pilot steps": ("one-hot", renamed("steps", "pilot steps", 0.25 / 2**20, 0.25 / 2**20)),
    "counts renamed to reported steps": ("one-hot", renamed("steps", "reported steps", 0.25, 0.25)),
    "rewards renamed to visits": ("dp-apvi", renamed("rewards", "visits", 2.0**-20, 6.0)),
    "regressions unlisted": ("dp-vapvi", unlisted),
    "no regressions": ("dp-pevi", lambda d: d["regressions"].clear()),
    "a regression of a step that does not exist": ("dp-pevi", edit("regressions", 0, "step", 9)),
    "a regression with another number of targets": ("dp-pevi", edit("regressions", 0, "clipped_at", [])),
    "more noise on regressions": ("dp-pevi", loud_regressions),
    "more noise than the learner saw": ("one-hot", all_scaled),
    "more noise than the learner of counts saw": ("dp-apvi", all_scaled),
    "less noise reported": ("one-hot", edit("algorithm", "noise_per_item", 1.0)),
    "less noise per count reported": ("known", edit("algorithm", "noise_per_visit_count", 1.0)),
    "a seeded run says it is none": ("seeded", edit("simulation", False)),
    "a seeded run without its warning": ("seeded", lambda d: d["warnings"].remove(wording.SIMULATED)),
    "a seeded run without its assumption": (
        "seeded",
        lambda d: d["guarantee"]["assumptions"].remove(wording.SEEDED),
    ),
    "an open learner called private": ("open", edit("algorithm", "name", "dp-apvi")),
    "an open learner that claims": ("open", lambda d: told(d, 1.0, model="central")),
    "an assumption removed": ("tilted", lambda d: d["guarantee"]["assumptions"].pop()),
    "an assumption added": ("one-hot", lambda d: d["guarantee"]["assumptions"].append("nobody looks")),
    "features not public": ("dp-pevi", lambda d: d["guarantee"]["assumptions"].pop(1)),
    "declared successors hidden": ("successors", edit("problem", "successors_known", None)),
    "declared successors of another size": ("successors", edit("problem", "successors_known", "9 of 9, sha256 of")),
    "more protected": ("one-hot", lambda d: d["protected"].append("everything")),
    "less not protected": ("one-hot", lambda d: d["not_protected"].pop()),
    "another meaning": ("one-hot", edit("meaning", "This proves everything.")),
    "another sentence": ("one-hot", edit("guarantee", "sentence", "perfect privacy")),
    "a finer sentence": ("gaussian", edit("guarantee", "sentence", "central DP, ε = 1 per user, replace-one")),
    "another unit": ("one-hot", edit("guarantee", "unit", "episode")),
    "a longer unit": ("one-hot", edit("unit", "steps_per_episode", 8)),
    "another bound": ("one-hot", edit("unit", "bound", "all episodes of every user")),
    "not enforced": ("one-hot", edit("unit", "enforced", False)),
    "other users": ("one-hot", edit("unit", "users", 10**6)),
    "other states": ("one-hot", edit("problem", "states", 30)),
    "other actions": ("one-hot", edit("problem", "actions", 20)),
    "other planned steps": ("one-hot", edit("problem", "planned_steps", 40)),
    "staged": ("gaussian", edit("problem", "pooled", False)),
    "first visits": ("one-hot", edit("problem", "first_visits", True)),
    "no first visits": ("gaussian", edit("problem", "first_visits", False)),
    "rewards known": ("dp-apvi", edit("problem", "rewards_known", True)),
    "rewards unknown": ("known", edit("problem", "rewards_known", False)),
    "epsilon rounded down": ("dp-apvi", lambda d: told(d, 8.9999999)),
    "epsilon rounded down in the last place": ("dp-apvi", lambda d: told(d, 9.0 * (1 - 1e-7))),
    "zero-out": ("dp-apvi", edit("guarantee", "neighbours", "zero-out")),
    "a delta more": ("one-hot", edit("guarantee", "delta", 1e-3)),
    "a delta more, said": ("gaussian", lambda d: told(d, 1.0, delta=1e-3)),
    "rho hidden": ("gaussian", lambda d: told(d, 1.0, rho=None)),
    "rho invented": ("one-hot", lambda d: told(d, 1.0, rho=1e-9)),
    "uses": ("dp-apvi", edit("ledger", 0, "uses", 2)),
    "a mechanism of another name": ("one-hot", edit("ledger", 0, "mechanism", "quantum")),
    "another norm": ("one-hot", edit("ledger", 0, "norm", "l2")),
    "a statistic of another name": ("one-hot", edit("ledger", 0, "statistic", "nothing")),
    "a line twice": ("one-hot", lambda d: d["ledger"].append(dict(d["ledger"][0]))),
    "an unknown learner": ("one-hot", edit("algorithm", "name", "magic")),
    "another learner": ("dp-pevi", edit("algorithm", "name", "dp-vapvi")),
    "another mode": ("one-hot", edit("algorithm", "mode", "paper")),
    "a split that was none": ("dp-vapvi", edit("algorithm", "split", True)),
    "no split": ("split", edit("algorithm", "split", False)),
    "another reason": ("one-hot", edit("algorithm", "why", "it is the best")),
    "a reason for one step": ("one-hot", edit("algorithm", "steps_per_user", "one")),
    "a warning added": ("one-hot", lambda d: d["warnings"].append("none of this matters")),
    "all warnings removed": ("thin", lambda d: d["warnings"].clear()),
    "a mild warning": ("thin", edit("warnings", 0, "only 49 % of the state-action pairs stand out of the noise")),
    "a warning that goes on": ("thin", lambda d: d["warnings"].append(d["warnings"][0] + "; enjoy")),
    "an extra key": ("one-hot", edit("seal", "approved")),
    "an extra key of the guarantee": ("one-hot", edit("guarantee", "approved_by", "an authority")),
    "an extra key of the unit": ("one-hot", edit("unit", "really", "all people")),
    "an extra key of a line": ("one-hot", edit("ledger", 0, "note", "harmless")),
    "an extra key of the learner": ("one-hot", edit("algorithm", "epsilon", 0.1)),
    "regressions where there are none": ("one-hot", edit("regressions", [])),
    "a key less": ("one-hot", drop("unit", "enforced")),
    "a section less": ("one-hot", drop("spending")),
    "a first release": ("one-hot", edit("spending", "releases_before", 0)),
    "cheaper in all": (
        "one-hot",
        lambda d: d["spending"].update(
            total_epsilon_with_this_release=0.5, total="central DP, ε = 0.5 per user, replace-one"
        ),
    ),
    "a total that reads otherwise": ("one-hot", edit("spending", "total", "central DP, ε = 0 per user")),
    "no ledger, but a count": ("one-hot", edit("spending", "ledger_line", None)),
    "another word about the ledger": ("one-hot", edit("spending", "meaning", "nobody was released before")),
    "a whole number that is none": ("one-hot", edit("problem", "horizon", 4.0)),
    "a flag that is none": ("one-hot", edit("problem", "pooled", 1)),
    "an endless range": ("one-hot", edit("problem", "reward_range", [0, 10**400])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_p6_a_forgery_that_contradicts_itself_is_refused(forged, name, tmp_path):
    kind, change = REFUSED[name]
    found = forged(kind, change)
    problems = [text for text in found.problems if text != wording.NOT_PRIVATE]
    assert problems, name
    assert not any("\n" in text for text in problems)
    done = CliRunner().invoke(app, ["verify", str(tmp_path / kind), "--allow-simulation"])
    assert done.exit_code == 1
    assert "NOT VALID: " in done.stdout


def test_p6_two_policies_in_one_folder_are_refused(forged, tmp_path):
    found = forged("one-hot")
    folder = tmp_path / "one-hot"
    text = (folder / "policy.csv").read_text().splitlines(keepends=True)
    cells = text[1].split(",")
    cells[2] = str(1 - int(cells[2]))
    (folder / "policy.csv").write_text(text[0] + ",".join(cells) + "".join(text[2:]))
    rewritten(folder, json.loads((folder / certificate.JSON).read_text()))
    assert found.consistent
    assert certificate.verify(folder).problems == ("policy.csv and policy.parquet are two different policies",)


def test_p6_a_policy_of_another_size_is_refused(forged):
    smaller = Policy(np.zeros((4, 2), int), np.zeros((4, 2)), np.ones((4, 2), bool), 2)
    assert any("the policy has (4, 2, 2) steps" in text for text in forged("one-hot", policy=smaller).problems)
    more_actions = Policy(np.zeros((4, 3), int), np.zeros((4, 3)), np.ones((4, 3), bool), 9)
    assert any("the policy has (4, 3, 9) steps" in text for text in forged("one-hot", policy=more_actions).problems)


def test_a_key_that_stands_twice_is_refused(forged, tmp_path):
    """Programs differ in which of the two they read."""
    forged("dp-apvi")
    path = tmp_path / "dp-apvi" / certificate.JSON
    path.write_text(path.read_text().replace('"epsilon": 9.0,', '"epsilon": 0.1,\n    "epsilon": 9.0,', 1))
    listed = {name: certificate.digest(tmp_path / "dp-apvi" / name) for name in certificate.FILES}
    (tmp_path / "dp-apvi" / certificate.DIGESTS).write_text(json.dumps(listed))
    assert "a key twice" in certificate.verify(tmp_path / "dp-apvi").problems[0]


#: What one edit can change unnoticed, as far as it keeps its form: nothing else in the folder follows from it.
FREE = {
    "version",
    *(f"origin.{key}" for key in claimed.KEYS["origin"]),
    *(f"estimate.{key}" for key in claimed.KEYS["estimate"]),
    *("spending.commitment", "spending.ledger_line", "spending.releases_before"),
    *("algorithm.confidence_scale", "algorithm.hiding", "algorithm.cells_read_over_all_steps", "algorithm.spread"),
    *("algorithm.dimension", "algorithm.penalty_factor", "problem.reward_range.0", "problem.reward_range.1"),
    # What the ended earn moves what is possible only beyond the rewards, and a 0 may be stated up to rounding.
    *("problem.ended_pays", "estimate.possible_values.0", "estimate.possible_values.1"),
}
ROUNDED = "spending.total_rho_with_this_release"  # in digits that the sentence does not show
ENDINGS = ("problem.may_end", "problem.may_lead_nowhere_known")
#: The number of items does not follow where successors were declared; regressions have none.
FREE_IN = {
    "successors": {"algorithm.items", "problem.early_end", "problem.rewards_known", *ENDINGS},
    **{
        kind: {"problem.early_end", "problem.reward_units", ROUNDED, *ENDINGS}
        for kind in ("dp-pevi", "dp-vapvi", "split")
    },
    "known": {"problem.reward_units", ROUNDED},
    "gaussian": {ROUNDED},
}


def leaves(document, path=()):
    """Paths of all entries that are no section."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        if isinstance(value, (dict, list)) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def others(value):
    """Other values of the same kind and of other kinds."""
    if isinstance(value, bool):
        return [not value, None, "yes"]
    if isinstance(value, (int, float)):
        return [value * 2 + 1, value * (1 + 1e-6) + 1e-300, None, str(value), -1]
    if isinstance(value, str):
        return [value + "x", value.upper() + "!", "", None]
    return ["something", 0.5, []] if value is None else [None, ["something"]]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "open"])
def test_p6_every_single_edit_is_found_or_says_nothing_about_privacy(made, kind):
    original = certificate.read(made / kind)
    policy = Policy.load(made / kind)
    assert claims.problems_of(original, policy) == []
    unnoticed = set()
    for path in leaves(original):
        for other in others(_at(original, path)):
            document = copy.deepcopy(original)
            _at(document, path[:-1])[path[-1]] = other
            try:
                found = claims.problems_of(document, policy)
            except certificate.UNREADABLE:
                continue
            if not found and path[0] != "digests":
                unnoticed.add(".".join(map(str, path)))
    assert sorted(unnoticed - FREE - FREE_IN.get(kind, set()) - {"format"}) == []


def _at(document, path):
    for key in path:
        document = document[key]
    return document


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_a_certificate_the_verdict_is_a_verdict(made, data):
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    document = certificate.read(made / kind)
    path = data.draw(st.sampled_from(sorted(leaves(document), key=str)))
    cut = data.draw(st.integers(1, len(path)))
    _at(document, path[: cut - 1])[path[cut - 1]] = data.draw(JSON_VALUES)
    folder = made / "anything"
    folder.mkdir(exist_ok=True)
    for name in certificate.FILES:
        (folder / name).write_bytes((made / kind / name).read_bytes())
    text = json.dumps(document)
    (folder / certificate.JSON).write_text(text)
    (folder / certificate.DIGESTS).write_text(
        json.dumps({name: certificate.digest(folder / name) for name in certificate.FILES})
    )
    done = CliRunner().invoke(app, ["verify", str(folder), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["verdict"] == "altered or inconsistent"


# Consistent, and never valid ----------------------------------------------------------------------------------------


def unseeded(document):
    document["simulation"] = False
    document["warnings"].remove(wording.SIMULATED)
    document["guarantee"]["assumptions"].remove(wording.SEEDED)


def forgotten(document):
    document["spending"].update(
        releases_before=0,
        total_epsilon_with_this_release=1.0,
        total=document["guarantee"]["sentence"],
    )


UNDETECTABLE = {
    "the policy of another run": ("one-hot", None, "seeded"),
    "the policy of a learner without privacy": ("one-hot", None, "open"),
    "a seeded run without any trace of it": ("seeded", unseeded, None),
    "a better estimate": ("one-hot", edit("estimate", "value_lower", 3.9), None),
    "another purpose": ("one-hot", edit("origin", "purpose", "none"), None),
    "another day": ("one-hot", edit("origin", "date", "2001-01-01T00:00:00Z"), None),
    "earlier releases forgotten": ("one-hot", forgotten, None),
}


@pytest.mark.parametrize("name", UNDETECTABLE)
def test_p6_a_forgery_that_agrees_with_itself_is_consistent_but_never_valid(forged, made, name, tmp_path):
    kind, change, policy = UNDETECTABLE[name]
    found = forged(kind, change, None if policy is None else Policy.load(made / policy))
    assert found.problems == ()
    assert not found.valid
    assert found.verdict == "consistent (unsigned): anyone may have written it"
    strict = CliRunner().invoke(app, ["verify", str(tmp_path / kind), "--allow-simulation", "--require-signature"])
    assert strict.exit_code == 1
    assert "NOT VALID: a signature is required" in strict.stdout


@pytest.mark.parametrize("name", UNDETECTABLE)
def test_p6_no_signature_fits_such_a_forgery(made, name, tmp_path):
    kind, change, policy = UNDETECTABLE[name]
    secret, mine = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    key, public = tmp_path / "key.pem", tmp_path / "key.pub"
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(secret.private_bytes(*form))
    public.write_bytes(secret.public_key().public_bytes(form[0], serialization.PublicFormat.SubjectPublicKeyInfo))
    folder = tmp_path / "policy"
    fitted(kind, ledger=tmp_path / "ledger.jsonl").save(folder, key)
    verify = ["verify", str(folder), "--allow-simulation", "--public-key", str(public), "--require-signature"]
    good = CliRunner().invoke(app, verify)
    assert good.exit_code == 0
    assert good.stdout.startswith("valid: signed by ")
    document = certificate.read(folder)
    if change is not None:
        change(document)
    rewritten(folder, document, None if policy is None else Policy.load(made / policy))
    assert CliRunner().invoke(app, verify).exit_code == 1
    forger = certificate.signature(mine, (folder / certificate.DIGESTS).read_text())
    (folder / certificate.SIGNATURE).write_text(json.dumps(forger))  # signed again, by somebody
    found = certificate.verify(folder, True, public)
    assert found.problems == ("the signature was made with another key",)
    unknown = certificate.verify(folder, True)
    assert unknown.consistent
    assert not unknown.valid
    assert unknown.verdict.startswith("consistent (signed by a key nobody vouched for: ")
