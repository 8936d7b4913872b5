"""What Spotlight knows: the reports of all epochs, weighted and read, and the model they give.

Theory: docs/spotlight.md. All of it is a function of releases and of declared facts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from discreet.agents import classes, steps
from discreet.agents.reading import DENSE, Evidence, Reading, read, shrunk_means, with_row_prior
from discreet.mdp import Floats, Ints
from discreet.problem import Mask
from discreet.releases.items import Items
from discreet.releases.reports import PrivateReports

#: A cell is known from so many standard deviations of reports on, and from LEAST reports.
KNOWN, KNOWN_STAGED, LEAST = 5.5, 4.0, 5.0
#: The same where noise is normal: its tails are lighter than those of one Laplace draw.
KNOWN_NORMAL, KNOWN_NORMAL_STAGED = 4.0, 3.0
#: Sooner by these shares: where more than NARROW of the cells have one outcome; where a step is alike; and where the
#: row prior foretells a cell (`foretold`), a row of less than BROAD outcomes, if it shares at least AS_TOLD of it.
NARROW, SOONER, SOONER_ALIKE, SOONER_TOLD, BROAD, AS_TOLD = 0.8, 0.2, 0.5, 0.5, 5.0, 0.5
#: The cautious plan uses cells from so many on.
USABLE = 3.0
#: A cell starts again at its newest epoch when that alone should have RESTART times the signal-to-noise ratio of all.
RESTART = 1.5
#: A target is short when less than SHORT of its predicted reports came back.
SHORT = 0.3
#: Trust after a short epoch, its recovery per epoch, and what a target needs.
LOSS, RECOVERY, TRUSTED = 0.4, 1.15, 0.5
#: All cells are read again, and the row prior is fitted again, when users grew by this factor.
REREAD = 1.2
#: The prior values unknown cells from this many known ones on.
FEWEST_KNOWN = 6
#: What an unknown cell may pay, once much is found: the mean of known cells and so many root mean squares of them.
HOPE = 0.6

Mode = Literal["start", "explore", "search", "refine"]


class Focus(NamedTuple):
    """What the next epoch asks for, and what it is expected to bring."""

    wanted: Mask  # (rows,)
    rates: Floats  # (rows,): predicted reports per user
    users: int
    mode: Mode
    known: Mask  # (rows,): when it was announced
    gain: float = 0.0  # of the cautious plan over playing evenly, per user, in the model
    loss: float = 0.0  # of searching, per user, in the model
    classes: Ints | None = None  # (S,): of successors, where these are not asked for one by one


@dataclass(frozen=True, eq=False)
class Knowledge:
    """All that was learned from releases so far: a function of them, hence free of privacy cost."""

    sums: Floats  # (rows, 2S): weighted noisy reports per sub-cell
    variances: Floats  # (rows,): of the noise on one sub-cell; infinite where nothing was ever asked
    expected: Floats  # (rows,): predicted reports, weighted like the sums
    trust: Floats  # (rows,): in predictions about a cell
    reading: Reading  # of the cells
    plain: Reading  # of the cells, from reports on single outcomes alone
    coarse: classes.Coarse  # pooled: reports on classes of outcomes
    borrowed: Reading | None = None  # staged: of (s,a) in the sum over steps
    shared: steps.Shared | None = None  # staged: what the other steps say about each one
    reread: int = 0  # users when all cells were read last
    refine: bool = False  # the last exploring epoch came back nearly empty
    late: float = 0.0  # users who searched or refined
    searched: float = 0.0  # users who searched
    lost: float = 0.0  # by searching, in the model
    won: float = 0.0  # by the cautious plan over playing evenly, in the model, if all had played it
    draws: float = 1.0  # Laplace draws that noise is the sum of; infinite: about normal

    @classmethod
    def nothing(cls, alphabet: Items, draws: float = 1.0) -> Knowledge:
        R, C = alphabet.num_rows, alphabet.num_cells
        borrowed = None
        if alphabet.stages > 1:
            borrowed = Reading.nothing(alphabet.admitted[: alphabet.num_states * alphabet.num_actions])
        return cls(
            np.zeros(alphabet.admitted.shape),
            np.full(R, np.inf),
            np.zeros(R),
            np.ones(R),
            Reading.nothing(alphabet.admitted[:C]),
            Reading.nothing(alphabet.admitted[:C]),
            classes.Coarse.nothing(C),
            borrowed,
            draws=draws,
        )

    @property
    def normal(self) -> bool:
        return math.isinf(self.draws)

    @property
    def noise(self) -> Floats:
        """(rows,): variance of the noise on one sub-cell, over all reports; infinite where nothing was ever asked."""
        v, more = self.variances.copy(), self.coarse.variances
        own = v[: more.size]
        own[:] = np.where(self.coarse.asked, np.where(np.isfinite(own), own, 0.0) + more, own)
        return v

    @property
    def predicted(self) -> Floats:
        """(rows,): predicted reports, weighted, over all reports."""
        M = self.expected.copy()
        M[: self.coarse.expected.size] += self.coarse.expected
        return M


class Cells(NamedTuple):
    """A model: the first five are what the kernels take."""

    rows: Floats  # (C, S)
    spreads: Floats  # (C, S)
    means: Floats  # (C,)
    mean_variances: Floats  # (C,)
    counts: Floats  # (C,)
    usable: Mask  # (C,)


class Prospect(NamedTuple):
    """What is thought of cells that nobody has tried."""

    rows: Floats  # (C, S)
    mean: float  # reward
    best_means: Floats  # (C,): rewards, optimistically
    belief: float  # ρ: how far the rows are believed


# Learning from a release --------------------------------------------------------------------------------------------


def learned(release: PrivateReports, past: tuple[Knowledge, Focus] | None) -> Knowledge:
    """What is known after a release: add the epoch to its cells, weighted; read; compare with what was predicted.

    An epoch with n predicted reports on a cell and noise variance σ² has weight n/(n + σ²): nearly 1 where it mostly
    brings signal, proportional to n where it mostly brings noise. n is public, so weights do not bias the sums.
    """
    if past is None or release.targets is None:
        return Knowledge.nothing(release.alphabet, release.noise.draws)
    old, focus = past
    by_class = release.targets.classes is not None
    if by_class:
        added = replace(old, coarse=old.coarse.added(record_of(release, focus)))
    else:
        added = accumulated(old, focus, release)
    new = reread(added, release.alphabet, release.targets.rows, release.num_episodes, by_class)
    return judged(new, old, focus, release)


def record_of(release: PrivateReports, focus: Focus) -> classes.Record:
    """The reports of an epoch on classes of successors."""
    assert release.targets is not None
    assert release.targets.classes is not None
    rows, found = release.targets.rows, release.targets.classes
    sums = release.histogram.reshape(rows.size, -1, 2)[:, : int(found.max()) + 1]
    return classes.Record(rows, found, sums, release.variance, focus.rates[rows] * release.users)


def accumulated(old: Knowledge, focus: Focus, release: PrivateReports) -> Knowledge:
    assert release.targets is not None
    rows, noise = release.targets.rows, release.variance
    predicted = focus.rates[rows] * release.users
    asked = np.isfinite(old.variances[rows])
    past = np.where(asked, old.variances[rows], 0.0)
    weights = np.where(asked & (noise > 0.0), predicted / np.maximum(predicted + noise, 1e-300), 1.0)
    found = np.append(old.plain.counts, 0.0)[np.minimum(rows, old.plain.counts.size)]
    clearer = predicted * np.sqrt(past + weights**2 * noise) > RESTART * (found + weights * predicted) * math.sqrt(
        noise
    )
    restart = ~asked | clearer
    sums, variances, expected = old.sums.copy(), old.variances.copy(), old.expected.copy()
    sums[rows] = np.where(restart[:, None], 0.0, sums[rows]) + weights[:, None] * release.histogram
    variances[rows] = np.where(restart, 0.0, past) + weights**2 * noise
    expected[rows] = np.where(restart, 0.0, expected[rows]) + weights * predicted
    return replace(old, sums=sums, variances=variances, expected=expected)


def evidence_of(knowledge: Knowledge, alphabet: Items) -> Evidence:
    C = alphabet.num_cells
    tables = knowledge.sums[:C], knowledge.variances[:C], knowledge.expected[:C]
    return Evidence(*tables, alphabet.admitted[:C], knowledge.normal)


def reread(knowledge: Knowledge, alphabet: Items, changed: Ints, users: int, by_class: bool = False) -> Knowledge:
    """Read the cells that have changed; all of them, with a new row prior, whenever users grew by a fifth.

    `by_class`: what has changed are their reports on classes of successors, not those on single ones.
    """
    C = alphabet.num_cells
    evidence, everything = evidence_of(knowledge, alphabet), users >= REREAD * knowledge.reread
    cells = changed[changed < C]
    done = users if everything else knowledge.reread
    if alphabet.stages == 1:
        plain = knowledge.plain if by_class else read(evidence, knowledge.plain, cells)
        if everything:
            if alphabet.pooled:
                plain = with_row_prior(evidence, plain, alphabet.num_actions)
            plain = read(evidence, plain, evidence.asked, again=True)
        single = np.isfinite(evidence.variances)
        last = None if everything else knowledge.reading
        reading = classes.read_with_classes(plain, knowledge.coarse, single, evidence.admitted, last, cells)
        return replace(knowledge, reading=reading, plain=plain, reread=done)
    cells = evidence.asked if everything else cells
    reading = read(evidence, knowledge.plain, cells, 1, other_steps(knowledge, alphabet))
    before = knowledge.shared
    known = known_cells(reading, evidence.variances, True, knowledge.draws)
    agreement = 0.5 if before is None else before.agreement
    shared = steps.compared(evidence, reading, known, alphabet.stages, agreement)
    new = replace(knowledge, reading=reading, plain=reading, shared=shared, reread=done)
    return replace(new, borrowed=summed(knowledge, alphabet))


def narrowness(reading: Reading) -> float:
    """The share of cells with one outcome, where these are nearly all: they need fewer reports."""
    share = float(reading.shares()[0])
    return share if share > NARROW else 0.0


def foretold(reading: Reading, draws: float) -> Floats:
    """(C,): how far the row prior tells what a cell does, 0 to 1: belief in it, and how few outcomes it names.

    Not at all where noise is a sum of draws: fewer deviations of it make a cell known as it is.
    """
    if draws > 1.0:
        return np.zeros(reading.counts.size)
    outcomes = 1.0 / (reading.prior**2).sum(axis=1)
    return np.asarray((1.0 - reading.mixture[0]) * np.clip((BROAD - outcomes) / (BROAD - 1.0), 0.0, 1.0))


def known_from_on(staged: bool, draws: float) -> float:
    if math.isinf(draws):
        return KNOWN_NORMAL_STAGED if staged else KNOWN_NORMAL
    return KNOWN_STAGED if staged else KNOWN


def known_cells(reading: Reading, variances: Floats, staged: bool, draws: float = 1.0) -> Mask:
    level = known_from_on(staged, draws)
    level *= 1.0 - SOONER * narrowness(reading)
    told = foretold(reading, draws)
    if told.any():
        told *= np.minimum(reading.rows, reading.prior).sum(axis=1) >= AS_TOLD
    enough = np.maximum(LEAST, level * (1.0 - SOONER_TOLD * told) * np.sqrt(variances))
    return np.asarray(np.isfinite(variances) & (reading.counts >= enough))


def other_steps(knowledge: Knowledge, alphabet: Items) -> Floats:
    """(C, S): mean inclusion of an outcome of (s,a) at the other known steps, −1 where there are none."""
    G, C, S = alphabet.stages, alphabet.num_cells, alphabet.num_states
    known = known_cells(knowledge.reading, knowledge.variances[:C], True, knowledge.draws).reshape(G, -1)
    known[-1] = False  # its reports carry no successor
    shown = np.where(known[..., None], knowledge.reading.inclusions.reshape(G, -1, S), 0.0)
    others = known.sum(axis=0) - known
    mean = (shown.sum(axis=0) - shown) / np.maximum(others, 1)[..., None]
    support = np.where(others[..., None] > 0, mean, -1.0)
    support[-1] = -1.0
    return np.ascontiguousarray(support.reshape(C, S))


def summed(knowledge: Knowledge, alphabet: Items) -> Reading:
    """Cells (s,a) read from the sum over all steps but the last, for plans that exploit."""
    assert knowledge.borrowed is not None
    G = alphabet.stages
    cells = alphabet.num_cells // G
    size = (G - 1) * cells
    variances = knowledge.variances[:size].reshape(G - 1, cells)
    asked = np.isfinite(variances)
    total = np.where(asked, variances, 0.0).sum(axis=0)
    evidence = Evidence(
        knowledge.sums[:size].reshape(G - 1, cells, -1).sum(axis=0),
        np.where(asked.any(axis=0), total, np.inf),
        knowledge.expected[:size].reshape(G - 1, cells).sum(axis=0),
        alphabet.admitted[:cells],
        knowledge.normal,
    )
    return read(evidence, knowledge.borrowed, evidence.asked)


def judged(new: Knowledge, old: Knowledge, focus: Focus, release: PrivateReports) -> Knowledge:
    """Which targets came back short, and what the epoch has cost and won in the model."""
    assert release.targets is not None
    C = release.alphabet.num_cells
    rows = release.targets.rows[release.targets.rows < C]
    predicted = new.predicted
    short = new.reading.counts[rows] < SHORT * predicted[rows]
    trust = np.minimum(1.0, RECOVERY * old.trust)
    trust[rows] = np.where(short, LOSS * old.trust[rows], 1.0)
    unknown = rows[~focus.known[rows]]
    came, announced = new.reading.counts[unknown].sum(), predicted[unknown].sum()
    n = float(release.users)
    late, searching = focus.mode in ("search", "refine"), focus.mode == "search"
    return replace(
        new,
        trust=trust,
        refine=focus.mode == "explore" and bool(came < SHORT * announced),
        late=old.late + n * late,
        searched=old.searched + n * searching,
        lost=old.lost + n * focus.loss,
        won=old.won + n * focus.gain,
    )


# The model ----------------------------------------------------------------------------------------------------------


def model_of(knowledge: Knowledge, alphabet: Items) -> tuple[Cells, Prospect]:
    """The model of known cells, and what the prior says about the others."""
    C = alphabet.num_cells
    pooled = alphabet.stages == 1
    reading, known = known_from(knowledge, alphabet)
    means, variances = reading.means, reading.mean_variances
    best = np.ones(C)
    mean = float(means[known].mean()) if known.any() else 0.0
    if pooled and known.sum() >= FEWEST_KNOWN:
        best = np.full(C, hoped_for(means[known]))
    dense = pooled and reading.paying() > DENSE
    if dense and known.any():
        means, variances, within = shrunk_means(reading, known, alphabet.num_actions)
        table = known.reshape(-1, alphabet.num_actions)
        number = table.sum(axis=1)
        per_state = np.where(table, means.reshape(table.shape), 0.0).sum(axis=1) / np.maximum(number, 1)
        likely = np.where(number > 0, np.minimum(per_state + 2.0 * within, 1.0), 1.0)
        best = np.repeat(likely, alphabet.num_actions)
    belief = float(1.0 - reading.mixture[0]) if pooled and known.sum() >= FEWEST_KNOWN else 0.0
    cells = Cells(reading.rows, reading.spreads, means, variances, reading.counts, known)
    shared = knowledge.shared
    if shared is not None:
        rows, belief = shared.rows_hoped_for(reading.prior), steps.BELIEF * shared.agreement
        return cells, Prospect(rows, mean, shared.hoped_for(), belief)
    return cells, Prospect(reading.prior, mean, best, belief)


def known_from(knowledge: Knowledge, alphabet: Items) -> tuple[Reading, Mask]:
    """The reading of all cells and which are known: where steps are alike, sooner, and with the reports of all."""
    reading, variances, shared = knowledge.reading, knowledge.noise[: alphabet.num_cells], knowledge.shared
    known = known_cells(reading, variances, alphabet.stages > 1, knowledge.draws)
    if shared is not None:
        enough = np.maximum(LEAST, (1.0 - SOONER_ALIKE) * known_from_on(True, knowledge.draws) * np.sqrt(variances))
        known = known | (shared.agreed & (reading.counts >= enough))
    return with_alike(knowledge, known), known


def with_alike(knowledge: Knowledge, known: Mask) -> Reading:
    """The reading with the reports of steps that are alike, where it is known."""
    reading, shared = knowledge.reading, knowledge.shared
    return reading if shared is None else shared.added_to(reading, known)


def hoped_for(means: Floats) -> float:
    """What an unknown cell may pay, given what known ones do: 1 as long as nothing pays, less once much is found.

    (1 − m) + m·min(1, r̄ + .6·√((1 + Σr²)/(1 + n))), m the largest of them: 1 counts as one more cell.
    """
    square = (1.0 + float((means**2).sum())) / (1.0 + means.size)
    largest = float(means.max())
    return 1.0 - largest + largest * min(1.0, float(means.mean()) + HOPE * math.sqrt(square))


def with_borrowed(tested: Cells, knowledge: Knowledge, alphabet: Items) -> Cells:
    """Cells that may be exploited: from USABLE on, and where steps are staged those known in the sum over steps."""
    borrowed = knowledge.borrowed
    enough = np.maximum(LEAST, USABLE * np.sqrt(knowledge.noise[: alphabet.num_cells]))
    soft = with_alike(knowledge, tested.usable).soft
    tested = tested._replace(rows=soft, usable=tested.usable | (tested.counts >= enough))
    if borrowed is None:
        return tested
    G = alphabet.stages
    cells = alphabet.num_cells // G
    variances = knowledge.variances[: (G - 1) * cells].reshape(G - 1, cells)
    total = np.where(np.isfinite(variances), variances, 0.0).sum(axis=0)
    known = known_cells(borrowed, np.where(total > 0.0, total, np.inf), True, knowledge.draws)
    take = ~tested.usable & np.tile(known, G)

    def filled(own: Floats, other: Floats) -> Floats:
        repeated = np.tile(other, (G,) + (1,) * (other.ndim - 1))
        return np.ascontiguousarray(np.where(take.reshape(-1, *(1,) * (own.ndim - 1)), repeated, own))

    return Cells(
        filled(tested.rows, borrowed.soft),
        filled(tested.spreads, borrowed.spreads),
        filled(tested.means, borrowed.means),
        filled(tested.mean_variances, borrowed.mean_variances),
        filled(tested.counts, borrowed.counts),
        tested.usable | take,
    )


def start_of(knowledge: Knowledge, alphabet: Items) -> Floats | None:
    """The initial distribution as read from reports; None while it is unknown."""
    row = slice(alphabet.num_cells, alphabet.num_rows)
    tables = knowledge.sums[row], knowledge.variances[row], knowledge.expected[row]
    evidence = Evidence(*tables, alphabet.admitted[row], knowledge.normal)
    reading = read(evidence, Reading.nothing(evidence.admitted), evidence.asked)
    return reading.rows[0] if known_cells(reading, evidence.variances, False, knowledge.draws)[0] else None
