"""Is a policy better than what people do now? A private answer from people who were not learned from.

The question is about a partial roll-out: at every decision the policy is followed with probability α, else everybody
does as now. With logged propensities β the gain of that is the mean over people of t = (w − 1)·(G − b),
w = Π_h (1 − α + α·π(a_h)/β(a_h)), because w has mean 1 whatever b is. Without them it is not known: estimated ones
made bounds that never held.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from discreet.agents.practice import AS_NOW, Returns
from discreet.kernels.gains import whole_weights
from discreet.mdp import Floats, Ints
from discreet.offline import certificate, heldout, spending
from discreet.offline.auto import Held, asked_of, ended_rate, paid_after, put_means, released_returns
from discreet.offline.declaration import Declaration, Grid
from discreet.people.stays import DeclaredLog, Stays
from discreet.planning import possible_values
from discreet.policy import Policy
from discreet.privacy.accounting import Budget, Guarantee, LedgerEntry, Mechanism, Neighbours, guarantee_of, unit_text
from discreet.privacy.noise import NoiseSource
from discreet.privacy.sums.streams import assumptions
from discreet.privacy.trust.gains import GainMoments, NoisyMoments, ReturnHistogram

SHARES = {"gains": 0.63, "squares": 0.27, "returns": 0.10}
CONFIDENCE = 0.95
#: C = CLIP·sd·max(LEAST_SPREAD, √((1 + α²(A−1))^H − 1)), the deviation of w where all actions are equally likely.
CLIP, LEAST_SPREAD = 3.0, 0.7
NO_PROPENSITIES = (
    "the declaration names no column of propensities, and without knowing how likely people's actions were nobody "
    "can say what others would have led to: with estimated ones, bounds do not hold"
)


@dataclass(frozen=True)
class ComparisonQuestion:
    """What is asked of how many people, at which price: a function of public numbers."""

    declaration: Declaration
    num_users: int
    rollout: float
    budget: Budget
    neighbours: Neighbours = "replace"

    def __post_init__(self) -> None:
        if self.declaration.propensity is None:
            raise ValueError(NO_PROPENSITIES)
        if not 0.0 < self.rollout <= 1.0:
            raise ValueError(f"the roll-out is {self.rollout}; it must be above 0 and at most 1")

    @property
    def noise(self) -> Mechanism:
        return "laplace" if self.budget.kind == "pure" else "gaussian"

    @property
    def share(self) -> dict[str, float]:
        return self.budget.split(SHARES, self.noise)

    @property
    def returns(self) -> ReturnHistogram:
        return ReturnHistogram(self.share["returns"], self.noise, self.neighbours)

    @property
    def moments(self) -> GainMoments:
        return GainMoments(self.share["gains"], self.share["squares"], self.noise, self.neighbours)

    def entries(self) -> tuple[LedgerEntry, ...]:
        return self.returns.entry(), *self.moments.entries()

    def guarantee(self, noise: NoiseSource) -> Guarantee:
        m = self.declaration.episodes_per_user
        rests_on = assumptions(self.num_users * m, noise, "the policy was learned from other people")
        found = guarantee_of(self.entries(), "central", self.neighbours, self.budget, assumptions=rests_on)
        return replace(found, unit=unit_text(m))


@dataclass(frozen=True)
class Answer:
    """Gains per stay over what people do now, in the units of the log's rewards."""

    rollout: float
    gain: float
    lower: float | None  # None: not shown to be above 0
    deviation: float  # of the estimate, noise included
    largest: float  # that is possible
    users: int
    guarantee: Guarantee

    @property
    def shown(self) -> bool:
        return self.lower is not None

    @property
    def sentence(self) -> str:
        return sentence(self.rollout, self.lower)

    def to_json(self) -> dict[str, Any]:
        """With what was promised to those who were asked."""
        stated = self.guarantee.to_json()
        return {
            "rollout": self.rollout,
            "gain": self.gain,
            "lower": self.lower,
            "confidence": CONFIDENCE,
            "deviation": self.deviation,
            "largest_possible": self.largest,
            "shown": self.shown,
            "sentence": self.sentence,
            "users": self.users,
            "guarantee": {key: value for key, value in stated.items() if key != "entries"},
            "ledger": stated["entries"],
        }


def compare(
    folder: str | Path,
    source: Any,
    budget: Budget,
    *,
    rollout: float = 0.25,
    neighbours: Neighbours = "replace",
    propensity: str | None = None,
    num_users: int | None = None,
    table: str | None = None,
    seed: int | None = None,
    ledger: str | Path | None = None,
    total_epsilon: float | None = None,
    learned_from: Sequence[str | Path] = (),
    purpose: str | None = None,
    operator: str | None = None,
    key: Path | None = None,
) -> Answer:
    """Ask a log of other people whether a policy is better than what they do, and write the answer into its folder.

    `propensity`: the column with the probability of the logged action, if the declaration does not name it.
    `learned_from`: folders, logs or ledgers beside which it was written down who was learned from; the folder of this
    log is looked at in any case. `ledger` and others as in `fit`: what is spent is spent on these people.
    """
    folder = Path(folder)
    document, policy = certificate.read(folder), Policy.load(folder)
    if policy.grid is None:
        raise ValueError(
            "the policy was learned from numbered states; only policies of declared columns are compared"
        )
    if not policy.known.any():
        raise ValueError("the policy does as now everywhere: there is nothing to compare, and nothing was spent")
    certificate.check_folder(folder, key)
    if (folder / certificate.SIGNATURE).exists() and key is None:
        raise ValueError("the folder is signed; give the key (--sign), for the answer is written into it")
    declaration = policy.grid.declaration
    if propensity is not None:
        declaration = replace(declaration, propensity=propensity)
    ComparisonQuestion(
        declaration, 1, rollout, budget, neighbours
    )  # refuses what cannot be asked before anything is opened
    cost = spending.cost_of(budget, neighbours)
    if cost.model == "none":
        raise ValueError("a comparison needs a finite budget")
    where = spending.beside(source) if ledger is None else Path(ledger)
    if where is not None:
        spending.check(where, cost, total_epsilon)
    elif total_epsilon is not None:
        raise ValueError("total_epsilon is compared with what a ledger records; say where that is kept")
    log = DeclaredLog(source, declaration, table)
    people = check_people(document, source, log, where, learned_from)
    users = log.num_users if num_users is None else num_users
    question = ComparisonQuestion(declaration, users, rollout, budget, neighbours)
    noise = NoiseSource.secure() if seed is None else NoiseSource.seeded(seed)
    stays = log.held(users)
    serial, date = secrets.token_hex(16), spending.today()
    recorded = None
    if where is not None:
        unit = unit_text(declaration.episodes_per_user)
        release = spending.Release(cost, serial, date, "comparison", unit, noise.simulation, operator, purpose)
        recorded = spending.spend(where, release, spending.log_digest(source), total_epsilon)
    with spending.told(recorded):
        actions = np.where(policy.known, policy.actions, AS_NOW)
        answer = ask(stays, policy.grid, actions, question, noise)
        told = {**answer.to_json(), "people": people, "serial": serial, "date": date, "simulation": noise.simulation}
        rest = {name: value for name, value in document.items() if name not in ("digests", "comparisons")}
        certificate.write(folder, policy, {**rest, "comparisons": [*document.get("comparisons", ()), told]}, key)
    return answer


def check_people(
    document: Mapping[str, Any],
    source: Any,
    log: DeclaredLog,
    ledger: Path | None,
    learned_from: Sequence[str | Path],
) -> str:
    """Refuse people who were learned from, where that can be known; else say how much is known."""
    digest, committed = spending.log_digest(source), document["spending"]["commitment"]
    folders = [path if path.is_dir() else path.absolute().parent for path in map(Path, learned_from)]
    folders += [path.parent for path in spending.files_of(source)] + ([ledger.absolute().parent] if ledger else [])
    for path in sorted({path for folder in folders for path in folder.glob(f"*{spending.SUFFIX}")}):
        if digest is not None and committed is not None and spending.committed_here(path, committed, digest):
            raise ValueError(heldout.SAME)
    found = heldout.records(folders, str(document["origin"]["serial"]))
    if found and heldout.known(found[0], heldout.people_of(log)):
        raise ValueError(heldout.SOME)
    return heldout.CHECKED if found else heldout.UNCHECKED


def sentence(rollout: float, lower: float | None) -> str:
    """What a certificate says."""
    how = "followed at every decision" if rollout == 1.0 else f"followed in {100 * rollout:g} % of all decisions"
    if lower is not None:
        return f"better than now by at least {lower:.4g} per stay with {100 * CONFIDENCE:g} % confidence, {how}"
    return f"not shown to be better than now, {how}"


def ask(stays: Held, states: Grid, actions: Ints, question: ComparisonQuestion, source: NoiseSource) -> Answer:
    """Three noisy statistics of people who were not learned from; `actions` (H, S) with `AS_NOW` where it is so."""
    declaration = question.declaration
    guarantee = question.guarantee(source)
    H = declaration.horizon
    found, gains = released_returns(stays, declaration, question.returns, source), np.zeros(stays.num_users)
    for block in stays.blocks:
        asked, rest = asked_of(block, states, actions), paid_after(block, declaration, found.mean)
        put_means(gains, block, rollout_gains(block, asked, rest, question.rollout, H * found.mean))
    unit = clip_of(found, question.rollout, declaration.num_actions, H)
    moments = question.moments.release(gains, unit, source)
    least, most = (float(bound[0]) for bound in possible_values(H, ended_rate(declaration)))
    bottom, top = declaration.reward_range
    gain, deviation, lower = bound_of(moments, question.num_users, unit, most - least)
    scale = top - bottom
    shown = scale * lower if lower > 0.0 else None
    largest = scale * (most - least)
    return Answer(question.rollout, scale * gain, shown, scale * deviation, largest, question.num_users, guarantee)


def clip_of(found: Returns, rollout: float, num_actions: int, horizon: int) -> float:
    """C, scaled."""
    spread = math.sqrt(math.expm1(horizon * math.log1p(rollout**2 * (num_actions - 1))))
    return CLIP * horizon * found.deviation * max(LEAST_SPREAD, spread)


def rollout_gains(stays: Stays, asked: Ints, rest: Floats, rollout: float, baseline: float) -> Floats:
    """(w − 1)·(G − b) per episode; 0 where nobody knows how likely some action was."""
    with np.errstate(divide="ignore", over="ignore"):
        ratio = np.where(stays.action == asked, 1.0 / stays.propensity, 0.0)
    ratio = np.where(asked == AS_NOW, 1.0, np.where(np.isnan(stays.propensity), np.nan, ratio))
    weights, totals = np.empty(rest.size), np.empty(rest.size)
    whole_weights(stays.offsets[1:], stays.reward, ratio, rest, rollout, weights, totals)
    return np.where(np.isnan(weights), 0.0, (weights - 1.0) * (totals - baseline))


def bound_of(moments: NoisyMoments, num_users: int, unit: float, largest: float) -> tuple[float, float, float]:
    """(gain, its deviation, lower bound), scaled: mean − z·√(second moment/n + noise/n²)."""
    n = max(num_users, 1)
    squares = max(moments.squares + moments.squares_deviation, 0.0) / n
    deviation = unit * math.sqrt(squares / n + (moments.total_deviation / n) ** 2)
    gain = min(max(unit * moments.total / n, -largest), largest)
    return gain, deviation, gain - NormalDist().inv_cdf(CONFIDENCE) * deviation
