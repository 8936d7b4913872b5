"""The theorems of the five papers as numbers: what they promise, at the sizes somebody has.

One function per theorem, of public `Facts`. Where a paper hides constants and logarithms in Õ(·) or Ω(·) they are 1
here and the bound says so; where its proof has them they stand beside it as a bound of their own. T = K·H throughout.
E is the error of private counts: that of the noise in force where `Facts.errors` has it, else the order in print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from discreet.mdp import FiniteMDP, Floats
from discreet.planning import occupancy, optimal_plan
from discreet.problem import Moments

HIDDEN = "hidden constants and logarithms taken as 1"
PROOF = "constants and logarithms as in the proof"


@dataclass(frozen=True)
class Errors:
    """High-probability errors of private statistics under the noise in force; None where nobody has computed it."""

    counts: float | None = None  # E: of counts after the projection (2e offline, 4e elsewhere)
    visits: float | None = None  # E1
    transitions: float | None = None  # E3
    loss_range: float | None = None  # E_ε: E[max Z − min Z] of the noise of a cumulative loss table
    losses: float | None = None  # E': of one noisy loss


@dataclass(frozen=True)
class Coverage:
    """What a behaviour policy sees of a known problem: the quantities of the offline theorems."""

    least: float  # d̄_m = min{d^μ_h(s,a) : d^μ_h(s,a) > 0}
    bernstein: float  # Σ_h Σ_{s,a} d*_h·√(Var_P(V*_{h+1})/d^μ_h)
    hoeffding: float  # H·Σ_h Σ_{s,a} d*_h·√(1/d^μ_h)


@dataclass(frozen=True)
class Features:
    """What a behaviour policy sees of a linear problem."""

    dimension: int  # of the span of all φ(s,a)
    unused: int  # further coordinates, along which every φ(s,a) is 0 and κ with them
    kappa: float  # κ = min_h λ_min(E_μ φφᵀ) on the span
    #: K ↦ Σ_h E_{π*}√(φᵀΛ_h⁻¹φ), Λ_h = K·E_μ[φφᵀ/σ²] + λI, σ² = max{1, Var V*}
    spread: Callable[[float], float]


@dataclass(frozen=True)
class Facts:
    """The public numbers that a theorem reads. Rewards lie in [0, `reward`] where they are bounded."""

    states: int
    actions: int
    horizon: int
    episodes: float
    epsilon: float = 1.0
    model: str = "joint"
    beta: float = 0.1  # failure probability
    rho: float | None = None  # zCDP budget of Gaussian noise
    reward: float = 1.0
    moments: Moments = field(default_factory=Moments)
    positions: int | None = None  # X, the (step, state) pairs of a loop-free problem; S·H where it is not known
    support: float | None = None  # C_M; its largest value X·√A where it is not known
    leaves: int | None = None  # of the tree of the local lower bound; (S−2)/2 where it is not known
    coverage: Coverage | None = None
    features: Features | None = None
    errors: Errors = field(default_factory=Errors)

    @property
    def steps(self) -> float:
        """T = K·H."""
        return self.episodes * self.horizon

    @property
    def x(self) -> int:
        return self.states * self.horizon if self.positions is None else self.positions

    @property
    def effective_support(self) -> float:
        """C_M, at most X·√A."""
        return self.x * math.sqrt(self.actions) if self.support is None else self.support


class Term(NamedTuple):
    """One summand, and how it is written."""

    formula: str
    value: float


@dataclass(frozen=True)
class Bound:
    """A theorem at given sizes: its learner has no more than this (`upper`), or some problem costs everybody that."""

    theorem: str
    kind: Literal["upper", "lower"]
    terms: tuple[Term, ...]
    constants: str
    trivial: float  # what any policy has: K·H for regret, H for one policy's sub-optimality
    notes: tuple[str, ...] = ()
    holds: bool | None = None  # whether its conditions on K and ε are met; None: there are none

    @property
    def value(self) -> float:
        return sum(term.value for term in self.terms)

    @property
    def vacuous(self) -> bool:
        """Whether it says no more than is true of every policy, its conditions fail, or a lower bound is 0."""
        if self.kind == "lower":
            return self.value <= 0.0
        return self.value >= self.trivial or self.holds is False


Theorem = Callable[[Facts], Bound]


def _regret(
    facts: Facts, theorem: str, terms: Sequence[Term], constants: str = HIDDEN, notes: tuple[str, ...] = ()
) -> Bound:
    """A bound on the regret for rewards in [0, 1], stretched to [0, `reward`]."""
    stretched = tuple(Term(formula, facts.reward * value) for formula, value in terms)
    return Bound(theorem, "upper", stretched, constants, facts.reward * facts.steps, notes)


def _at_least(facts: Facts, theorem: str, terms: Sequence[Term], constants: str = HIDDEN, *notes: str) -> Bound:
    stretched = tuple(Term(formula, facts.reward * value) for formula, value in terms)
    return Bound(theorem, "lower", stretched, constants, facts.reward * facts.steps, notes)


# Quantities of a problem --------------------------------------------------------------------------------------------


def effective_support(mdp: FiniteMDP, layers: Sequence[Sequence[int]]) -> float:
    """C_M = Σ_h √(Σ_{x∈X_h,a} C_{x,a}), C_{x,a} = (Σ_y √(P(y|x,a)(1−P(y|x,a))))².

    The last step moves to the one end state and adds nothing.   Source: [BZZDTCC24] Sec. 3.
    """
    found = 0.0
    for h, states in enumerate(layers[:-1]):
        rows = mdp.transitions[min(h, mdp.transitions.shape[0] - 1)][list(states)]
        spread = np.sqrt(np.maximum(rows * (1.0 - rows), 0.0)).sum(axis=-1)
        found += math.sqrt(float((spread**2).sum()))
    return found


def coverage(mdp: FiniteMDP, behaviour: Floats) -> Coverage:
    """d̄_m and the main terms of the tabular bounds, for the optimal policy of a known model.

    Infinite where behaviour never does what the optimal policy does.   Source: [QW22] Thm. 3.4, Eq. 8.
    """
    plan = optimal_plan(mdp)
    best, seen = occupancy(mdp, plan.policy), occupancy(mdp, behaviour)
    least = float(seen[seen > 0].min())
    if ((best > 0) & (seen <= 0)).any():
        return Coverage(least, math.inf, math.inf)
    weight = best / np.sqrt(np.where(seen > 0, seen, 1.0))
    spread = np.sqrt(np.stack([_variance(mdp, h, plan.value[h + 1]) for h in range(mdp.horizon)]))
    return Coverage(least, float((weight * spread).sum()), mdp.horizon * float(weight.sum()))


def _variance(mdp: FiniteMDP, step: int, value: Floats) -> Floats:
    """(S, A) Var_P(V)."""
    rows = mdp.transitions[min(step, mdp.transitions.shape[0] - 1)]
    return np.asarray(np.maximum(rows @ value**2 - (rows @ value) ** 2, 0.0))


def features(phi: Floats, mdp: FiniteMDP, behaviour: Floats, ridge: float = 1.0) -> Features:
    """κ = min_h λ_min(E_μ φφᵀ) and K ↦ Σ_h E_{π*}√(φᵀΛ*_h⁻¹φ), Λ*_h in expectation; on the span of all φ(s,a).

    Source: [QW22] Thm. 4.1.   Differs: directions that no φ(s,a) has are left out, for κ = 0 with them.
    """
    _, sizes, directions = np.linalg.svd(phi.reshape(-1, phi.shape[2]), full_matrices=False)
    span = directions[sizes > 1e-9 * sizes[0]]
    unused, phi = int(phi.shape[2]) - len(span), phi @ span.T
    plan = optimal_plan(mdp)
    best, seen = occupancy(mdp, plan.policy), occupancy(mdp, behaviour)
    kappa, weighted = math.inf, []
    for h in range(mdp.horizon):
        variance = np.maximum(_variance(mdp, h, plan.value[h + 1]), 1.0)
        second = np.einsum("sa,sad,sae->de", seen[h], phi, phi)
        kappa = min(kappa, float(np.linalg.eigvalsh(second)[0]))
        weighted.append(np.einsum("sa,sad,sae->de", seen[h] / variance, phi, phi))

    def spread(users: float) -> float:
        total = 0.0
        for h, second in enumerate(weighted):
            inverse = np.linalg.inv(users * second + ridge * np.eye(len(second)))
            total += float((best[h] * np.sqrt(np.einsum("sad,de,sae->sa", phi, inverse, phi))).sum())
        return total

    return Features(len(span), unused, max(kappa, 0.0), spread)


# Errors of private counts, as printed -------------------------------------------------------------------------------


def printed_count_error(facts: Facts) -> float:
    """E in order: H/ε for joint and shuffle privacy, H·√K/ε for local privacy.   Source: [QW23] Lem. 5.1, 5.6."""
    rate = facts.horizon / facts.epsilon
    return rate * math.sqrt(facts.episodes) if facts.model == "local" else rate


def printed_heavy_error(facts: Facts, transitions: bool) -> float:
    """E1 or E3: 3H·ln^{1.5}K·ln(3SAT/β)/ε jointly, 6H·√(K·ln(6SAT/β))/ε locally; S² for S in E3.

    Source: [WZCW23] Lem. 1, 2.
    """
    S, K = facts.states ** (2 if transitions else 1), facts.episodes
    if facts.model == "local":
        logarithm = math.log(6 * S * facts.actions * facts.steps / facts.beta)
        return 6 * facts.horizon / facts.epsilon * math.sqrt(K * logarithm)
    logarithm = math.log(3 * S * facts.actions * facts.steps / facts.beta)
    return 3 * facts.horizon / facts.epsilon * math.pow(math.log(max(K, 2)), 1.5) * logarithm


def printed_offline_error(facts: Facts) -> float:
    """E_ρ = 4·√(H·ln(4HS²A/β)/ρ); for Laplace noise H/ε in order.   Source: [QW22] Lem. D.2, Sec. 3."""
    if facts.rho is None:
        return facts.horizon / facts.epsilon
    cells = 4 * facts.horizon * facts.states**2 * facts.actions
    return 4 * math.sqrt(facts.horizon * math.log(cells / facts.beta) / facts.rho)


def printed_loss_range(facts: Facts) -> float:
    """E_ε in order: H/ε for joint, H·√K/ε for local privacy.   Source: [BZZDTCC24] Lem. 5.1, 5.7."""
    return printed_count_error(facts)


def printed_loss_error(facts: Facts) -> float:
    """E' = 3H·ln(XAK/β)/ε with β = XA/K.   Source: [BZZDTCC24] Lem. 5.1."""
    return 3 * facts.horizon / facts.epsilon * 2 * math.log(max(facts.episodes, 2))


def _counts(facts: Facts) -> tuple[float, str]:
    """E, and whose it is."""
    if facts.errors.counts is None:
        return printed_count_error(facts), "E in the order printed"
    return facts.errors.counts, "E of the noise in force"


# [QW23] DP-UCBVI ----------------------------------------------------------------------------------------------------


def dp_ucbvi(facts: Facts) -> Bound:
    """√(SAH²T) + S²AH²·E.   Source: [QW23] Thm. 4.1."""
    S, A, H, T = facts.states, facts.actions, facts.horizon, facts.steps
    E, whose = _counts(facts)
    terms = Term("√(SAH²T)", math.sqrt(S * A * H**2 * T)), Term("S²AH²·E", S**2 * A * H**2 * E)
    return _regret(facts, "[QW23] Thm. 4.1", terms, HIDDEN, (whose,))


def dp_ucbvi_proved(facts: Facts) -> Bound:
    """1000·( ι·√(SAH²T) + S²AH²·E·ι² + S²AH³·ι² ), ι = ln(30HSAT/β).   Source: [QW23] Lem. C.9."""
    S, A, H, T = facts.states, facts.actions, facts.horizon, facts.steps
    E, whose = _counts(facts)
    iota = math.log(30 * H * S * A * T / facts.beta)
    terms = (
        Term("1000·ι·√(SAH²T)", 1000 * iota * math.sqrt(S * A * H**2 * T)),
        Term("1000·S²AH²·E·ι²", 1000 * S**2 * A * H**2 * E * iota**2),
        Term("1000·S²AH³·ι²", 1000 * S**2 * A * H**3 * iota**2),
    )
    return _regret(facts, "[QW23] Lem. C.9", terms, PROOF, (whose,))


def _two_terms(facts: Facts, theorem: str, first: str, value: float) -> Bound:
    """A learning term, and the price of private counts that all bounds of Table 1 share."""
    S, A, H, T, epsilon = facts.states, facts.actions, facts.horizon, facts.steps, facts.epsilon
    if facts.model == "local":
        price = Term("S²A√(H⁵T)/ε", S**2 * A * math.sqrt(H**5 * T) / epsilon)
    else:
        price = Term("S²AH³/ε", S**2 * A * H**3 / epsilon)
    return _regret(facts, theorem, (Term(first, value), price))


def dp_ucbvi_private(facts: Facts) -> Bound:
    """√(SAH²T) + S²AH³/ε jointly, √(SAH²T) + S²A√(H⁵T)/ε locally.   Source: [QW23] Thm. 5.2, 5.7."""
    S, A, H, T = facts.states, facts.actions, facts.horizon, facts.steps
    theorem = "[QW23] Thm. 5.7" if facts.model == "local" else "[QW23] Thm. 5.2"
    return _two_terms(facts, theorem, "√(SAH²T)", math.sqrt(S * A * H**2 * T))


def private_ucb_vi(facts: Facts) -> Bound:
    """√(SAH³T) + S²AH³/ε or S²A√(H⁵T)/ε, [CZ22] as quoted.   Source: [QW23] Tab. 1."""
    S, A, H, T = facts.states, facts.actions, facts.horizon, facts.steps
    return _two_terms(facts, "[QW23] Tab. 1", "√(SAH³T)", math.sqrt(S * A * H**3 * T))


def private_ucb_po(facts: Facts) -> Bound:
    """√(S²AH³T) + S²AH³/ε or S²A√(H⁵T)/ε: Private-UCB-PO, PUCB and LDP-OBI as quoted.   Source: [QW23] Tab. 1."""
    S, A, H, T = facts.states, facts.actions, facts.horizon, facts.steps
    return _two_terms(facts, "[QW23] Tab. 1", "√(S²AH³T)", math.sqrt(S**2 * A * H**3 * T))


def no_learner(facts: Facts) -> Bound:
    """√(SAH²T), privacy or not.   Source: [QW23] Tab. 1."""
    S, A, H, T = facts.states, facts.actions, facts.horizon, facts.steps
    return _at_least(facts, "[QW23] Tab. 1", (Term("√(SAH²T)", math.sqrt(S * A * H**2 * T)),))


def no_private_learner(facts: Facts) -> Bound:
    """H√(SAK) + SAH·ln K/ε jointly ([VBKW20]); H√(SAK)/min(e^ε−1, 1) locally ([GPPB21]), both as quoted.

    Source: [BZZDTCC24] Rem. 5.4, 5.10; [WZCW23] Rem. 6.
    """
    S, A, H, K, epsilon = facts.states, facts.actions, facts.horizon, facts.episodes, facts.epsilon
    root = H * math.sqrt(S * A * K)
    if facts.model == "local":
        term = Term("H√(SAK)/min(e^ε−1, 1)", root / min(math.expm1(min(epsilon, 50.0)), 1.0))
        return _at_least(facts, "[BZZDTCC24] Rem. 5.10", (term,))
    price = Term("SAH·ln K/ε", S * A * H * math.log(max(K, 1)) / epsilon)
    return _at_least(facts, "[BZZDTCC24] Rem. 5.4", (Term("H√(SAK)", root), price))


# [WZCW23] Heavy tails -----------------------------------------------------------------------------------------------

TAU = "τ restored in the first two terms, where print takes it for a constant"


def _unit(facts: Facts) -> float:
    """u^{1/(1+v)}, by which rewards are stretched that have the moment u instead of 1."""
    return float(facts.moments.bound ** (1 / (1 + facts.moments.order)))


def heavy_tail_term(facts: Facts) -> Term:
    """What truncated rewards cost.

    joint   u^{1/(1+v)}·(SAH²/ε)^{v/(1+v)}·T^{1/(1+v)}
    local   u^{1/(1+v)}·(SAH³/ε²)^{v/(2+2v)}·T^{(2+v)/(2+2v)}

    Source: [WZCW23] Thm. 2, 3.
    """
    S, A, H, T, epsilon = facts.states, facts.actions, facts.horizon, facts.steps, facts.epsilon
    v, scale = facts.moments.order, _unit(facts)
    if facts.model == "local":
        power = v / (2 * (1 + v))
        value = scale * (S * A * H**3 / epsilon**2) ** power * T ** ((2 + v) / (2 * (1 + v)))
        return Term("u^{1/(1+v)}·(SAH³/ε²)^{v/(2+2v)}·T^{(2+v)/(2+2v)}", value)
    value = scale * (S * A * H**2 / epsilon) ** (v / (1 + v)) * T ** (1 / (1 + v))
    return Term("u^{1/(1+v)}·(SAH²/ε)^{v/(1+v)}·T^{1/(1+v)}", value)


def _heavy(facts: Facts, theorem: str, first: str, power: int) -> Bound:
    S, A, H, T, tau = facts.states, facts.actions, facts.horizon, facts.steps, facts.moments.mean
    if facts.model == "local":
        price = Term("τ·S²A√(H⁵T)/ε", tau * S**2 * A * math.sqrt(H**5 * T) / facts.epsilon)
    else:
        price = Term("τ·S²AH³/ε", tau * S**2 * A * H**3 / facts.epsilon)
    terms = Term(first, tau * math.sqrt(S**power * A * H**3 * T)), price, heavy_tail_term(facts)
    return Bound(theorem, "upper", terms, HIDDEN, 2 * tau * T, (TAU, "for ε up to 1"), facts.epsilon <= 1)


def heavy_ucbvi(facts: Facts) -> Bound:
    """τ√(SAH³T) + τS²AH³/ε (locally τS²A√(H⁵T)/ε) + the tail's term.   Source: [WZCW23] Thm. 2, 3."""
    return _heavy(facts, "[WZCW23] Thm. 3" if facts.model == "local" else "[WZCW23] Thm. 2", "τ√(SAH³T)", 1)


def heavy_ucbpo(facts: Facts) -> Bound:
    """τ√(S²AH³T) + τS²AH³/ε (locally τS²A√(H⁵T)/ε) + the tail's term.   Source: [WZCW23] Thm. 5, 6."""
    return _heavy(facts, "[WZCW23] Thm. 6" if facts.model == "local" else "[WZCW23] Thm. 5", "τ√(S²AH³T)", 2)


def no_heavy_learner(facts: Facts) -> Bound:
    """(SA/ε)^{v/(1+v)}·K^{1/(1+v)} jointly, with ε² for ε locally; times u^{1/(1+v)} where u is not 1.

    Source: [WZCW23] Thm. 8, 9.
    """
    S, A, K, epsilon, v = facts.states, facts.actions, facts.episodes, facts.epsilon, facts.moments.order
    local = facts.model == "local"
    value = _unit(facts) * (S * A / (epsilon**2 if local else epsilon)) ** (v / (1 + v)) * K ** (1 / (1 + v))
    formula = f"u^{{1/(1+v)}}·(SA/ε{'²' if local else ''})^{{v/(1+v)}}·K^{{1/(1+v)}}"
    theorem = "[WZCW23] Thm. 9" if local else "[WZCW23] Thm. 8"
    trivial, met = 2 * facts.moments.mean * facts.steps, epsilon <= 1
    return Bound(theorem, "lower", (Term(formula, value),), HIDDEN, trivial, ("for ε up to 1",), met)


def no_heavy_learner_proved(facts: Facts) -> Bound:
    """What the proofs leave, on their instances, whose u is 1 (else times u^{1/(1+v)}).

    joint   (KΔ/16)·exp(−12·5^{1/v}·εKΔ^{(1+v)/v}/(n(A−1))), n = S−2, at the best Δ < 1/5
    local   ½γ^vK·(1 − 1/(LA) − (e^ε−1)·√(2Kγ^{1+v}/(LA))), γ^{1+v} = min{LA/(32Kε²), ¾}

    Source: [WZCW23] Thm. 7, 8, 9.
    """
    K, A, v = facts.episodes, facts.actions, facts.moments.order
    trivial = 2 * facts.moments.mean * facts.steps
    if facts.model != "local":
        gap = best_joint_gap(facts)
        value, printed = _unit(facts) * joint_lower_bound(facts, gap), printed_joint_gap(facts)
        note = (
            f"at the gap {gap:.3g}; at the printed one, {printed:.3g}, the proof leaves "
            f"{_unit(facts) * joint_lower_bound(facts, printed):.2g}"
        )
        formula = "(KΔ/16)·exp(−12·5^{1/v}·εKΔ^{(1+v)/v}/(n(A−1)))"
        return Bound("[WZCW23] Thm. 8", "lower", (Term(formula, value),), PROOF, trivial, (note,))
    arms = local_leaves(facts) * A
    success = min(arms / (32 * K * facts.epsilon**2), 0.75)
    share = 1 - 1 / arms - math.expm1(min(facts.epsilon, 50.0)) * math.sqrt(2 * K * success / arms)
    value = _unit(facts) * 0.5 * success ** (v / (1 + v)) * K * max(share, 0.0)
    formula = "½γ^vK·(1 − 1/(LA) − (e^ε−1)√(2Kγ^{1+v}/(LA)))"
    notes = ("e^ε−1 where print has its approximation ε", "mean over the place of the best leaf")
    return Bound("[WZCW23] Thm. 9", "lower", (Term(formula, value),), PROOF, trivial, notes)


def local_leaves(facts: Facts) -> float:
    """L, at least (S−2)/2."""
    return float(facts.leaves) if facts.leaves is not None else max((facts.states - 2) / 2, 1.0)


def printed_joint_gap(facts: Facts) -> float:
    """Δ = ((A−1)n/(Kε))^{v/(1+v)}, n = S−2.   Source: [WZCW23] Thm. 7."""
    n, v = max(facts.states - 2, 1), facts.moments.order
    return float(((facts.actions - 1) * n / (facts.episodes * facts.epsilon)) ** (v / (1 + v)))


def joint_lower_bound(facts: Facts, gap: float) -> float:
    """n bandits, each with K/n users with probability ½: (KΔ/16)·exp(−12·5^{1/v}·ε(K/n)Δ^{(1+v)/v}/(A−1)).

    Source: [WZCW23] Thm. 7, 8.
    """
    return facts.episodes * gap / 16 * math.exp(-_joint_rate(facts) * gap ** (1 + 1 / facts.moments.order))


def best_joint_gap(facts: Facts) -> float:
    """The Δ < 1/5 at which `joint_lower_bound` is largest: rate·Δ^{(1+v)/v} = v/(1+v)."""
    v = facts.moments.order
    rate = _joint_rate(facts)
    return 0.2 if rate <= 0 else min(0.2, float((v / (1 + v) / rate) ** (v / (1 + v))))


def _joint_rate(facts: Facts) -> float:
    n, v = max(facts.states - 2, 1), facts.moments.order
    return 12 * 5 ** (1 / v) * facts.epsilon * facts.episodes / (n * max(facts.actions - 1, 1))


# [BZZDTCC24] Adversarial losses -------------------------------------------------------------------------------------


def _support_term(facts: Facts) -> Term:
    return Term("H·C_M·√K", facts.horizon * facts.effective_support * math.sqrt(facts.episodes))


def uc_o_reps(facts: Facts) -> Bound:
    """H·C_M·√K + HX²A·E + H·E_ε.   Source: [BZZDTCC24] Thm. 3.3."""
    X, A, H = facts.x, facts.actions, facts.horizon
    E, whose = _counts(facts)
    drift = facts.errors.loss_range if facts.errors.loss_range is not None else printed_loss_range(facts)
    terms = _support_term(facts), Term("HX²A·E", H * X**2 * A * E), Term("H·E_ε", H * drift)
    return _regret(facts, "[BZZDTCC24] Thm. 3.3", terms, HIDDEN, (whose, *_local_loss_note(facts)))


def _local_loss_note(facts: Facts) -> tuple[str, ...]:
    if facts.model != "local":
        return ()
    return ("the noise of local losses grows with k, so Assumption 3.2 fails unless every sum is padded to K noises",)


def uc_o_reps_regularised(facts: Facts) -> Bound:
    """2H·√(K·ln(XA/H)) + H·E_ε, the part that does not depend on transitions.   Source: [BZZDTCC24] Lem. D.2."""
    H, K = facts.horizon, facts.episodes
    drift = facts.errors.loss_range if facts.errors.loss_range is not None else printed_loss_range(facts)
    root = 2 * H * math.sqrt(K * max(math.log(facts.x * facts.actions / H), 0.0))
    terms = Term("2H√(K·ln(XA/H))", root), Term("H·E_ε", H * drift)
    notes = ("one part of the bound: transitions known", *_local_loss_note(facts))
    return _regret(facts, "[BZZDTCC24] Lem. D.2", terms, PROOF, notes)


def uc_o_reps_private(facts: Facts) -> Bound:
    """H·C_M·√K + X²AH²/ε jointly, H·C_M·√K + X²AH²√K/ε locally.   Source: [BZZDTCC24] Thm. 5.2, 5.8."""
    X, A, H, K = facts.x, facts.actions, facts.horizon, facts.episodes
    price = Term("X²AH²/ε", X**2 * A * H**2 / facts.epsilon)
    if facts.model == "local":
        price = Term("X²AH²√K/ε", price.value * math.sqrt(K))
    theorem = "[BZZDTCC24] Thm. 5.8" if facts.model == "local" else "[BZZDTCC24] Thm. 5.2"
    return _regret(facts, theorem, (_support_term(facts), price), HIDDEN, _local_loss_note(facts))


REFUTED = "the printed estimator has linear regret, so no bound holds for it; the corrected one has this order"


def uob_lbps(facts: Facts) -> Bound:
    """H·C_M·√K + HX⁴A·E + A·E'·√(X³K).   Source: [BZZDTCC24] Thm. 4.2."""
    X, A, H, K = facts.x, facts.actions, facts.horizon, facts.episodes
    E, whose = _counts(facts)
    loss = facts.errors.losses if facts.errors.losses is not None else printed_loss_error(facts)
    terms = (
        _support_term(facts),
        Term("HX⁴A·E", H * X**4 * A * E),
        Term("A·E'·√(X³K)", A * loss * math.sqrt(X**3 * K)),
    )
    return _regret(facts, "[BZZDTCC24] Thm. 4.2", terms, HIDDEN, (whose, REFUTED))


def uob_lbps_private(facts: Facts) -> Bound:
    """H·C_M·√K + AH√(X³K)/ε jointly, H·C_M·√K + X⁴AH²√K/ε locally.   Source: [BZZDTCC24] Thm. 5.2, 5.8."""
    X, A, H, K, epsilon = facts.x, facts.actions, facts.horizon, facts.episodes, facts.epsilon
    if facts.model == "local":
        theorem, price = "[BZZDTCC24] Thm. 5.8", Term("X⁴AH²√K/ε", X**4 * A * H**2 * math.sqrt(K) / epsilon)
        return _regret(facts, theorem, (_support_term(facts), price), HIDDEN, (REFUTED,))
    price = Term("AH√(X³K)/ε", A * H * math.sqrt(X**3 * K) / epsilon)
    dropped = f"print drops HX⁴A·E, here {facts.reward * H * X**4 * A * printed_count_error(facts):.3g}"
    return _regret(facts, "[BZZDTCC24] Thm. 5.2", (_support_term(facts), price), HIDDEN, (dropped, REFUTED))


def no_adversarial_learner(facts: Facts) -> Bound:
    """√(XAHK) with all losses seen.   Source: [BZZDTCC24] Tab. 1."""
    X, A, H, K = facts.x, facts.actions, facts.horizon, facts.episodes
    return _at_least(facts, "[BZZDTCC24] Tab. 1", (Term("√(XAHK)", math.sqrt(X * A * H * K)),))


def no_bandit_learner(facts: Facts) -> Bound:
    """H·√(XAK) with losses along the way.   Source: [BZZDTCC24] Tab. 1."""
    X, A, H, K = facts.x, facts.actions, facts.horizon, facts.episodes
    return _at_least(facts, "[BZZDTCC24] Tab. 1", (Term("H√(XAK)", H * math.sqrt(X * A * K)),))


# [BTZCC25] Shuffled bits --------------------------------------------------------------------------------------------


def sdp_pe(facts: Facts) -> Bound:
    """√(H⁵S²AK) + S³A²H⁵·E.   Source: [BTZCC25] Thm. 6."""
    S, A, H, K = facts.states, facts.actions, facts.horizon, facts.episodes
    E, whose = _counts(facts)
    terms = Term("√(H⁵S²AK)", math.sqrt(H**5 * S**2 * A * K)), Term("S³A²H⁵·E", S**3 * A**2 * H**5 * E)
    return _regret(facts, "[BTZCC25] Thm. 6", terms, HIDDEN, (whose,))


def sdp_pe_summed(facts: Facts) -> Bound:
    """4H + Σ_{b≥2} 8·L_b·( √(H⁵S²Aι/L_{b−1}) + S³A²H⁵Eι/L_{b−1} ), L_b = 2^b until 2ΣL_b = K, ι = ln(2HAK/β).

    Source: [BTZCC25] Eq. 29, with its open constant C = 1.
    """
    S, A, H, K = facts.states, facts.actions, facts.horizon, facts.episodes
    E, whose = _counts(facts)
    iota = math.log(2 * H * A * K / facts.beta)
    learning, noise, length, left = 0.0, 0.0, 4.0, K - 4.0
    while left > 0:
        now = min(length, left / 2)
        learning += 8 * now * math.sqrt(H**5 * S**2 * A * iota / (length / 2))
        noise += 8 * now * S**3 * A**2 * H**5 * E * iota / (length / 2)
        left, length = left - 2 * now, 2 * length
    terms = (
        Term("4H", 4.0 * H),
        Term("Σ 8L_b√(H⁵S²Aι/L_{b−1})", learning),
        Term("Σ 8L_b·S³A²H⁵Eι/L_{b−1}", noise),
    )
    return _regret(
        facts, "[BTZCC25] Eq. 29", terms, "logarithms as in the proof, its open constant C taken as 1", (whose,)
    )


def sdp_pe_private(facts: Facts) -> Bound:
    """√(H⁵S²AK) + S³A²H⁶/ε.   Source: [BTZCC25] Thm. 11."""
    S, A, H, K = facts.states, facts.actions, facts.horizon, facts.episodes
    terms = (
        Term("√(H⁵S²AK)", math.sqrt(H**5 * S**2 * A * K)),
        Term("S³A²H⁶/ε", S**3 * A**2 * H**6 / facts.epsilon),
    )
    return replace(_regret(facts, "[BTZCC25] Thm. 11", terms, HIDDEN, ("for ε below 1",)), holds=facts.epsilon < 1)


def no_shuffle_learner(facts: Facts) -> Bound:
    """√(H³SAK), privacy or not.   Source: [BTZCC25] Sec. V-B."""
    S, A, H, K = facts.states, facts.actions, facts.horizon, facts.episodes
    return _at_least(facts, "[BTZCC25] Sec. V-B", (Term("√(H³SAK)", math.sqrt(H**3 * S * A * K)),))


# [QW22] Learning from logs ------------------------------------------------------------------------------------------


def _offline_error(facts: Facts) -> tuple[float, str]:
    if facts.errors.counts is None:
        return printed_offline_error(facts), "E as printed"
    return facts.errors.counts, "E of the noise in force"


def _covered(facts: Facts) -> Coverage:
    if facts.coverage is None:
        raise ValueError("a bound for learning from logs needs what the logs cover: name an environment with --env")
    return facts.coverage


def dp_apvi_burn_in(facts: Facts) -> float:
    """n > max{H², E}·ι/d̄_m with c₁ = 1, ι = ln(HSA/β).   Source: [QW22] Thm. 3.4."""
    iota = math.log(facts.horizon * facts.states * facts.actions / facts.beta)
    return max(facts.horizon**2, _offline_error(facts)[0]) * iota / _covered(facts).least


def _apvi(facts: Facts, theorem: str, first: Term, rest: float, constants: str) -> Bound:
    covered, (E, whose) = _covered(facts), _offline_error(facts)
    S, H, n = facts.states, facts.horizon, facts.episodes
    terms = (
        first,
        Term(
            "(H³ + SH²E)/(n·d̄_m)" if rest else "SH²E/(n·d̄_m)",
            (rest + S * H**2 * E) / (n * covered.least),
        ),
    )
    stretched = tuple(Term(formula, facts.reward * value) for formula, value in terms)
    needed = dp_apvi_burn_in(facts)
    note = f"for n above {needed:.3g} (c₁ = 1)"
    return Bound(theorem, "upper", stretched, constants, facts.reward * H, (whose, note), n > needed)


def dp_apvi(facts: Facts) -> Bound:
    """4√2·Σ_h Σ d*·√(Var_P(V*)·ι/(n·d^μ)) + (H³ + SH²E)/(n·d̄_m), ι = ln(HSA/β).   Source: [QW22] Thm. 3.4."""
    iota = math.log(facts.horizon * facts.states * facts.actions / facts.beta)
    main = 4 * math.sqrt(2) * _covered(facts).bernstein * math.sqrt(iota / facts.episodes)
    first = Term("4√2·ΣΣ d*√(Var(V*)·ι/(n·d^μ))", main)
    return _apvi(
        facts, "[QW22] Thm. 3.4", first, facts.horizon**3, "first term as stated; those hidden in the second are 1"
    )


def dp_apvi_hoeffding(facts: Facts) -> Bound:
    """H·Σ_h Σ d*·√(1/(n·d^μ)) + SH²E/(n·d̄_m).   Source: [QW22] Eq. 8."""
    first = Term("H·ΣΣ d*√(1/(n·d^μ))", _covered(facts).hoeffding / math.sqrt(facts.episodes))
    return _apvi(facts, "[QW22] Eq. 8", first, 0.0, HIDDEN)


def _linear(facts: Facts) -> tuple[Features, float]:
    if facts.features is None:
        raise ValueError("the bound of dp-vapvi needs features: name the environment linear with --env")
    if facts.rho is None:
        raise ValueError("dp-vapvi adds Gaussian noise: give a delta above 0")
    return facts.features, facts.rho


def vapvi_noise(facts: Facts) -> tuple[float, float]:
    """(L, E) = (2H·√(5Hd·ln(10Hd/β)/ρ), √(10Hd/ρ)·(2 + (ln(5c₁H/β)/(c₂d))^{2/3})), c₁ = c₂ = 1.

    Source: [QW22] Lem. E.2.
    """
    linear, rho = _linear(facts)
    d, H = linear.dimension, facts.horizon
    vectors = 2 * H * math.sqrt(5 * H * d * math.log(10 * H * d / facts.beta) / rho)
    matrices = math.sqrt(10 * H * d / rho) * (2 + (math.log(5 * H / facts.beta) / d) ** (2 / 3))
    return vectors, matrices


def vapvi_burn_in(facts: Facts, ridge: float = 1.0) -> dict[str, float]:
    """M₁ … M₄, of which K must exceed the largest.   Source: [QW22] App. A.2."""
    linear, _ = _linear(facts)
    L, E = vapvi_noise(facts)
    d, H, kappa = linear.dimension, facts.horizon, linear.kappa
    if kappa <= 0:
        return dict.fromkeys(("M1", "M2", "M3", "M4"), math.inf)
    log = math.log(2 * d * H / facts.beta)
    return {
        "M1": max(2 * ridge, 128 * log, 128 * H**4 * log / kappa**2, math.sqrt(2) * L / math.sqrt(d * kappa)),
        "M2": max(H**12 * d**3, H**14 * d) / kappa**5,
        "M3": max(512 * H**4 * log / kappa**2, 4 * ridge * H**2 / kappa),
        "M4": max(H**2 * L**2 / (d * kappa), H**6 * E**2 / kappa**2, H**4 * kappa),
    }


def dp_vapvi(facts: Facts) -> Bound:
    """√d·Σ_h E_{π*}√(φᵀΛ*⁻¹φ) + D·H/K, D = H²L/κ + H⁴E√d/κ^{3/2} + H³√d.   Source: [QW22] Thm. 4.1."""
    linear, _ = _linear(facts)
    L, E = vapvi_noise(facts)
    d, H, K, kappa = linear.dimension, facts.horizon, facts.episodes, linear.kappa
    D = math.inf
    if kappa > 0:
        D = H**2 * L / kappa + H**4 * E * math.sqrt(d) / kappa**1.5 + H**3 * math.sqrt(d)
    terms = (
        Term("√d·Σ_h E√(φᵀΛ*⁻¹φ)", facts.reward * math.sqrt(d) * linear.spread(K)),
        Term("D·H/K", facts.reward * D * H / K),
    )
    needed = max(vapvi_burn_in(facts).values())
    notes = (f"for K above {needed:.3g}", "Λ* in expectation over the log, λ = 1")
    return Bound("[QW22] Thm. 4.1", "upper", terms, HIDDEN, facts.reward * H, notes, needed < K)


# Which theorems speak of which learner ------------------------------------------------------------------------------

_BOUNDED: tuple[Theorem, ...] = (no_learner, no_private_learner)
_HEAVY: tuple[Theorem, ...] = (no_heavy_learner, no_heavy_learner_proved)

#: Learner → its upper bounds and the lower bounds of its setting.
THEOREMS: Mapping[str, tuple[Theorem, ...]] = MappingProxyType(
    {
        "dp-ucbvi": (dp_ucbvi_private, dp_ucbvi, dp_ucbvi_proved, *_BOUNDED),
        "private-ucb-vi": (private_ucb_vi, *_BOUNDED),
        "private-ucb-po": (private_ucb_po, *_BOUNDED),
        "pucb": (private_ucb_po, *_BOUNDED),
        "private-heavy-ucbvi": (heavy_ucbvi, *_HEAVY),
        "private-heavy-ucbpo": (heavy_ucbpo, *_HEAVY),
        "private-uc-o-reps": (uc_o_reps_private, uc_o_reps, uc_o_reps_regularised, no_adversarial_learner),
        "private-uob-lbps": (uob_lbps_private, uob_lbps, no_bandit_learner),
        "sdp-pe": (sdp_pe_private, sdp_pe, sdp_pe_summed, no_shuffle_learner),
        "dp-apvi": (dp_apvi, dp_apvi_hoeffding),
        "dp-vapvi": (dp_vapvi,),
    }
)

#: Nobody has more users.
LARGEST = 1e15


def bounds(name: str, facts: Facts) -> tuple[Bound, ...]:
    """Every bound on a learner, at these sizes."""
    if name not in THEOREMS:
        known = ", ".join(THEOREMS)
        raise ValueError(f"there is no theorem on {name}; the papers bound {known}")
    return tuple(theorem(facts) for theorem in THEOREMS[name])


def informative_from(theorem: Theorem, at: Callable[[float], Facts], largest: float = LARGEST) -> float | None:
    """The fewest episodes (to 1 %) from which an upper bound says more than is true of every policy; None: none do.

    `at(K)` are the facts with K episodes. Bounds grow more slowly than what is trivial, so that one search suffices.
    """
    low, high = 1.0, 2.0
    while theorem(at(high)).vacuous:
        low, high = high, high * 10
        if high > largest:
            return None
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if theorem(at(middle)).vacuous else (low, middle)
    return high
