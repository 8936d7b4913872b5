"""What a guarantee is, what it costs, and how costs add up: pure functions of public numbers.

Two currencies. Laplace-like mechanisms pay in ε (pure DP), Gaussian ones in ρ (zCDP); a ledger entry carries its
cost in the currency of its mechanism. ε-costs add, ρ-costs add, and an ε₀-DP step costs at most ε₀²/2 in ρ [BS16].

Why adding is valid although every policy, threshold and scale may depend on earlier releases: fix the transcript y
of all noisy values. Everybody but the user in question contributes the same in both worlds, because her data can
reach them only through y; the density of y is a product over noisy values, the factors she does not enter cancel,
and each of the others moves by at most its own cost, whatever came before. (For ρ the same holds with Rényi
divergences conditional on y.)

Why a printed number is an upper bound: scales are enlarged by `MARGIN`, which is more than the excess of the
sampled law over the ideal one plus all floating-point rounding, so costs computed from the *sampled* log-ratio stay
within the budget; `guarantee_of` then prints the budget. Where costs do exceed it, by rounding, the costs
themselves are printed, and beyond one part in 10⁹ nothing is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any, Literal, NamedTuple, get_args

Trust = Literal["joint", "two-servers", "local", "shuffle", "central", "none"]
Neighbours = Literal["replace", "zero-out"]
Mechanism = Literal["laplace", "gaussian"]

#: Relative enlargement of calibrated scales: twice the largest excess (10⁻¹⁰) of a sampled law over the ideal one.
MARGIN = 2e-10
#: Largest relative excess of composed costs over a budget that counts as rounding.
TOLERANCE = 1e-9

#: Balanced noise (`noise.Balanced`) on sums of people each of whom adds numbers ≥ 0 that sum to at most Δ₁/2.
BALANCED_LAPLACE = "balanced-laplace"
_GAUSSIAN = ("gaussian", "discrete-gaussian")
_LAPLACE = ("laplace", "discrete-laplace", BALANCED_LAPLACE)
_NORM_OF = dict.fromkeys(_LAPLACE, "l1") | dict.fromkeys(_GAUSSIAN, "l2")


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} is {value!r}; it must be a number")


def _check_epsilon(epsilon: float) -> None:
    _check_number("epsilon", epsilon)
    if not epsilon > 0.0:
        raise ValueError(f"epsilon is {epsilon:g}; it must be positive (or infinite, for no privacy)")


def _check_rho(rho: float) -> None:
    _check_number("rho", rho)
    if not rho > 0.0:
        raise ValueError(f"rho is {rho:g}; it must be positive")


def _check_delta(delta: float) -> None:
    _check_number("delta", delta)
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta is {delta:g}; it must be at least 0 and below 1")


def _check_target_delta(delta: float) -> None:
    _check_number("delta", delta)
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta is {delta:g}; it must lie strictly between 0 and 1")


def doubt_about(delta: float, users: int) -> str | None:
    """Why a δ promises little, or None: whoever shows one person in 1/δ as she is keeps to (0, δ)."""
    if not (delta < 1.0 <= delta * users):
        return None
    return (
        f"delta is {delta:g}: to publish {delta * users:,.3g} of {users:,} people as they are would keep to it; "
        f"take one far below {1.0 / users:.1g}"
    )


def _check_count(name: str, count: int) -> None:
    if not (int(count) == count and count >= 1):
        raise ValueError(f"{name} must be a whole number of at least 1, got {count}.")


def unit_text(episodes_per_user: int) -> str:
    """The unit of protection in words."""
    _check_count("episodes_per_user", episodes_per_user)
    return f"user ({episodes_per_user} episode{'s' if episodes_per_user > 1 else ''})"


@dataclass(frozen=True)
class LedgerEntry:
    """One mechanism applied to one statistic."""

    statistic: str  # "visits", "transitions", "rewards", "losses", ...
    mechanism: str  # "discrete-laplace", "discrete-gaussian", ...
    norm: Literal["l1", "l2"]
    sensitivity: float  # of one user's contribution, in integer-grid units
    scale: float  # of the noise, in the same units (Laplace: b; Gaussian: sigma)
    uses: int  # noisy values one user's contribution enters (tree: levels)
    cost: float  # epsilon (pure mechanisms) or rho (Gaussian), all uses together
    delta: float = 0.0  # of a mechanism that is only (epsilon, delta)-private by itself, such as shuffled bits

    def __post_init__(self) -> None:
        if self.norm not in ("l1", "l2"):
            raise ValueError(f"norm must be 'l1' or 'l2', got {self.norm!r}.")
        expected = _NORM_OF.get(self.mechanism, self.norm)
        if self.norm != expected:
            raise ValueError(f"{self.mechanism} noise is calibrated in {expected}, got a sensitivity in {self.norm}.")
        if not (self.sensitivity >= 0.0 and math.isfinite(self.sensitivity)):
            raise ValueError(f"sensitivity must be finite and not negative, got {self.sensitivity}.")
        if not (self.scale >= 0.0 and math.isfinite(self.scale)):
            raise ValueError(f"scale must be finite and not negative, got {self.scale}.")
        if not self.cost >= 0.0:
            raise ValueError(f"cost must not be negative, got {self.cost}.")
        if self.mechanism in _NORM_OF and self.scale == 0.0 < self.sensitivity and self.cost < math.inf:
            raise ValueError("Noise of scale 0 hides nothing: its cost is infinite.")
        _check_count("uses", self.uses)
        _check_delta(self.delta)
        if self.delta > 0.0 and self.is_gaussian:
            raise ValueError("Gaussian noise is charged in rho and takes no delta of its own.")

    @property
    def is_gaussian(self) -> bool:
        """Whether `cost` is a ρ (else it is an ε)."""
        return self.mechanism in _GAUSSIAN

    @property
    def rho(self) -> float:
        """The cost in zCDP: each of the `uses` values is (cost/uses)-DP, so together uses·(cost/uses)²/2 [BS16]."""
        if self.is_gaussian:
            return self.cost
        return math.inf if self.delta > 0.0 else self.cost * self.cost / (2.0 * self.uses)

    def to_json(self) -> dict[str, object]:
        """The entry as strict JSON (infinity becomes null)."""
        return {key: _json_number(value) for key, value in asdict(self).items()}


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy statement with everything one needs to read it.

    `epsilon` is infinite where no finite ε holds at the stated `delta` (no privacy, or a ρ not yet converted). It is
    what holds, also where `claimed_epsilon` says that a paper claims another number for the same noise.
    """

    model: Trust
    epsilon: float
    delta: float = 0.0
    rho: float | None = None
    neighbours: Neighbours = "replace"
    unit: str = "user (1 episode)"
    entries: tuple[LedgerEntry, ...] = ()
    assumptions: tuple[str, ...] = ()
    claimed_epsilon: float | None = None  # what a paper says of noise that has its printed scale
    claimed_rho: float | None = None

    def __post_init__(self) -> None:
        if self.model not in get_args(Trust):
            raise ValueError(f"model must be one of {', '.join(get_args(Trust))}, got {self.model!r}.")
        if self.neighbours not in get_args(Neighbours):
            raise ValueError(f"neighbours must be 'replace' or 'zero-out', got {self.neighbours!r}.")
        if self.model == "local" and self.neighbours == "zero-out":
            raise ValueError("Local privacy compares any two users, so it has no zero-out form: use 'replace'.")
        _check_epsilon(self.epsilon)
        _check_delta(self.delta)
        if self.rho is not None:
            _check_rho(self.rho)
        if self.model == "none" and not (self.epsilon == math.inf and self.rho is None):
            raise ValueError("A run without privacy has epsilon = infinity and no rho.")

    @property
    def is_pure(self) -> bool:
        """Whether a finite ε holds with δ = 0."""
        return self.delta == 0.0 and math.isfinite(self.epsilon)

    def sentence(self) -> str:
        """The guarantee in one line; numbers are rounded up, never down."""
        if self.model == "none":
            return "no privacy"
        relation = {"replace": "replace-one", "zero-out": "zero-out-one"}[self.neighbours]
        numbers = []
        if math.isfinite(self.epsilon):
            numbers.append(f"ε = {_rounded_up(self.epsilon)}")
            if self.delta > 0.0:
                numbers.append(f"δ = {_rounded_up(self.delta)}")
        if self.rho is not None:
            numbers.append(f"ρ = {_rounded_up(self.rho)}")
        if not numbers:
            return f"{self.model} model without any privacy (ε = ∞), {relation}"
        kind = "DP" if math.isfinite(self.epsilon) else "zCDP"
        unit = "user" if self.unit == unit_text(1) else self.unit
        claim = "" if self.claimed_epsilon is None else f" (claimed in print: ε = {self.claimed_epsilon:g})"
        claim = claim if self.claimed_rho is None else f" (claimed in print: ρ = {self.claimed_rho:g})"
        return f"{self.model} {kind}, {', '.join(numbers)} per {unit}, {relation}{claim}"

    def to_json(self) -> dict[str, object]:
        """The guarantee as strict JSON (infinity becomes null); a claim is there only beside printed noise."""
        claims = {"claimed_epsilon": self.claimed_epsilon, "claimed_rho": self.claimed_rho}
        return {
            "model": self.model,
            "epsilon": _json_number(self.epsilon),
            **{name: number for name, number in claims.items() if number is not None},
            "delta": _json_number(self.delta),
            "rho": _json_number(self.rho),
            "neighbours": self.neighbours,
            "unit": self.unit,
            "sentence": self.sentence(),
            "entries": [entry.to_json() for entry in self.entries],
            "assumptions": list(self.assumptions),
        }


def no_privacy(*assumptions: str) -> Guarantee:
    """What holds when data are used as they are."""
    return Guarantee(model="none", epsilon=math.inf, assumptions=assumptions)


def _json_number(value: Any) -> object:
    if value is None or isinstance(value, (str, bool)):
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(value) if int(number) == value and not isinstance(value, float) else number


def _rounded_up(value: float) -> str:
    """`value` with six significant digits, rounded up (differences below 10⁻¹² of it are rounding of its own)."""
    text = f"{value:.6g}"
    if float(text) >= value * (1.0 - 1e-12):
        return text
    step = 10.0 ** (math.floor(math.log10(value)) - 5)
    return f"{float(text) + step:.6g}"


# Conversion between ρ and (ε, δ) ------------------------------------------------------------------------------------


def _best_order(objective: Callable[[float], float]) -> float:
    """The minimum over α > 1 of a function of ln(α−1). Every α is valid: a missed optimum is safe."""
    step = 0.25
    grid = [-30.0 + step * i for i in range(401)]
    best = min(grid, key=objective)
    low, high = best - step, best + step
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - golden * (high - low), low + golden * (high - low)
    value_left, value_right = objective(left), objective(right)
    for _ in range(60):
        if value_left <= value_right:
            high, right, value_right = right, left, value_left
            left = high - golden * (high - low)
            value_left = objective(left)
        else:
            low, left, value_left = left, right, value_right
            right = low + golden * (high - low)
            value_right = objective(right)
    return min(objective(best), value_left, value_right)


def _order_penalty(log_order: float, delta: float) -> float:
    """[ln(1/δ) + (α−1)·ln(1−1/α) − ln α]/(α−1) at α = 1 + exp(log_order)."""
    excess = math.exp(log_order)
    log_alpha = math.log1p(excess)
    return (-math.log(delta) - log_alpha) / excess + (log_order - log_alpha)


def epsilon_of(rho: float, delta: float) -> float:
    """The ε of ρ-zCDP at δ with the best order.

    ε = min_{α>1} αρ + [ln(1/δ) + (α−1)·ln(1−1/α) − ln α]/(α−1).   Source: [CKS20] Corollary 13.
    """
    _check_rho(rho)
    _check_target_delta(delta)
    if rho == math.inf:
        return math.inf

    def objective(log_order: float) -> float:
        return (1.0 + math.exp(log_order)) * rho + _order_penalty(log_order, delta)

    return max(0.0, _best_order(objective)) * (1.0 + 1e-13)


def rho_of(epsilon: float, delta: float) -> float:
    """The largest ρ with `epsilon_of(ρ, δ)` ≤ ε: max_{α>1} (ε − penalty(α))/α, less 10⁻¹² for rounding."""
    _check_epsilon(epsilon)
    _check_target_delta(delta)
    if epsilon == math.inf:
        return math.inf

    def objective(log_order: float) -> float:
        return -(epsilon - _order_penalty(log_order, delta)) / (1.0 + math.exp(log_order))

    rho = -_best_order(objective) * (1.0 - 1e-12)
    if not rho > 0.0:
        raise ValueError(f"No positive rho fits in epsilon={epsilon}, delta={delta}.")
    return rho


# Budgets ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Budget:
    """What may be spent: pure ε, zCDP ρ (with an optional δ at which it is also reported), or (ε, δ)."""

    epsilon: float | None = None
    delta: float = 0.0
    rho: float | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            raise ValueError(
                "A budget is either epsilon (with or without delta) or rho: state exactly one of the two."
            )
        _check_delta(self.delta)
        if self.epsilon is not None:
            _check_epsilon(self.epsilon)
        if self.rho is not None:
            _check_rho(self.rho)

    @classmethod
    def pure(cls, epsilon: float) -> Budget:
        """ε-DP."""
        return cls(epsilon=epsilon)

    @classmethod
    def zcdp(cls, rho: float, delta: float | None = None) -> Budget:
        """ρ-zCDP; with `delta`, guarantees also name the ε it implies."""
        if delta is not None:
            _check_target_delta(delta)
        return cls(rho=rho, delta=delta or 0.0)

    @classmethod
    def approximate(cls, epsilon: float, delta: float) -> Budget:
        """(ε, δ)-DP with δ > 0."""
        _check_target_delta(delta)
        return cls(epsilon=epsilon, delta=delta)

    @property
    def kind(self) -> Literal["pure", "zcdp", "approximate"]:
        """The currency of the budget."""
        if self.rho is not None:
            return "zcdp"
        return "approximate" if self.delta > 0.0 else "pure"

    def total(self, noise: Mechanism) -> float:
        """The whole budget in the currency of the noise: ε for Laplace, ρ for Gaussian.

        (ε, δ) buys the largest ρ whose best-order conversion stays within it, or the same ε of Laplace noise;
        ρ buys √(2ρ) of Laplace noise ([BS16]); pure ε buys no Gaussian noise at all.
        """
        if noise not in get_args(Mechanism):
            raise ValueError(f"noise must be 'laplace' or 'gaussian', got {noise!r}.")
        if noise == "laplace":
            if self.epsilon is not None:
                return self.epsilon
            assert self.rho is not None
            return math.sqrt(2.0 * self.rho) * (1.0 - 1e-15)
        if self.rho is not None:
            return self.rho
        assert self.epsilon is not None
        if self.delta == 0.0 and math.isfinite(self.epsilon):
            raise ValueError(
                "Gaussian noise never gives pure epsilon-DP: state a delta or rho, or use Laplace noise."
            )
        return math.inf if self.epsilon == math.inf else rho_of(self.epsilon, self.delta)

    def split(self, weights: Mapping[str, float] | Sequence[str], noise: Mechanism = "laplace") -> dict[str, float]:
        """Shares of `total(noise)` over families, in proportion to `weights` (names alone: equal shares).

        Shares add up to at most the total, also in floating point.
        """
        shares = weights if isinstance(weights, Mapping) else dict.fromkeys(weights, 1.0)
        if isinstance(weights, str) or len(shares) == 0 or len(shares) != len(weights):
            raise ValueError(f"A split needs at least one family and each name once, got {weights!r}.")
        if not all(share > 0.0 and math.isfinite(share) for share in shares.values()):
            raise ValueError(f"Weights of families must be positive and finite, got {dict(shares)}.")
        total = self.total(noise)
        whole = math.fsum(shares.values())
        parts = {name: total * (share / whole) for name, share in shares.items()}
        while math.fsum(parts.values()) > total:
            parts = {name: math.nextafter(part, 0.0) for name, part in parts.items()}
        return parts


# Calibration --------------------------------------------------------------------------------------------------------


def tree_levels(num_prefixes: int) -> int:
    """Most nodes of a binary tree that one leaf enters when prefixes 1..T are released: L = ⌊log₂T⌋ + 1.

    The node made at time t covers (t − 2ⁱ, t] with i the lowest set bit of t, so leaf k lies in the level-i node iff
    bit i of k−1 is 0 and that node is complete by T; leaf 1 attains the maximum. Use T = K−1 when the last release
    comes before episode K is seen, T = K otherwise; never a logarithm of K.
    """
    _check_count("num_prefixes", num_prefixes)
    return int(num_prefixes).bit_length()


def _check_sensitivity(sensitivity: float) -> None:
    if not (sensitivity >= 0.0 and math.isfinite(sensitivity)):
        raise ValueError(f"sensitivity must be finite and not negative, got {sensitivity}.")


def laplace_scale(sensitivity_l1: float, epsilon: float, uses: int = 1, margin: float = MARGIN) -> float:
    """Scale of Laplace noise that spends at most ε over all uses: b = Δ₁·uses/ε·(1 + margin)."""
    _check_sensitivity(sensitivity_l1)
    _check_epsilon(epsilon)
    _check_count("uses", uses)
    return sensitivity_l1 * uses / epsilon * (1.0 + margin)


def gaussian_sigma(sensitivity_l2: float, rho: float, uses: int = 1, margin: float = MARGIN) -> float:
    """Standard deviation of Gaussian noise that spends at most ρ over all uses: σ = Δ₂·√(uses/(2ρ))·(1 + margin)."""
    _check_sensitivity(sensitivity_l2)
    _check_rho(rho)
    _check_count("uses", uses)
    return sensitivity_l2 * math.sqrt(uses / (2.0 * rho)) * (1.0 + margin)


def laplace_entry(
    statistic: str,
    sensitivity_l1: float,
    scale: float,
    uses: int = 1,
    log_ratio: float | None = None,
    mechanism: str = "discrete-laplace",
) -> LedgerEntry:
    """Ledger entry of Laplace noise: cost = Δ₁ × log_ratio × uses.

    `log_ratio` is the largest log-ratio of the *sampled* law per unit shift (1/b for the ideal one).
    """
    _check_sensitivity(sensitivity_l1)
    if log_ratio is None:
        log_ratio = 1.0 / scale if scale > 0.0 else math.inf
    cost = sensitivity_l1 * log_ratio * uses if sensitivity_l1 > 0.0 else 0.0
    return LedgerEntry(statistic, mechanism, "l1", float(sensitivity_l1), float(scale), int(uses), cost)


def gaussian_entry(
    statistic: str, sensitivity_l2: float, sigma: float, uses: int = 1, mechanism: str = "discrete-gaussian"
) -> LedgerEntry:
    """Ledger entry of Gaussian noise, continuous or discrete [CKS20]: cost = Δ₂²/(2σ²) × uses."""
    _check_sensitivity(sensitivity_l2)
    unit_rho = 0.5 / (sigma * sigma) if sigma > 0.0 else math.inf
    cost = sensitivity_l2 * sensitivity_l2 * unit_rho * uses if sensitivity_l2 > 0.0 else 0.0
    return LedgerEntry(statistic, mechanism, "l2", float(sensitivity_l2), float(sigma), int(uses), cost)


# Composition --------------------------------------------------------------------------------------------------------


class Total(NamedTuple):
    """Composed cost of a ledger: pure part (ε, and the δ that comes with it), Gaussian part, everything in ρ."""

    epsilon: float
    delta: float
    gaussian_rho: float
    rho: float


def ledger_total(entries: Sequence[LedgerEntry]) -> Total:
    """Sequential (and adaptive) composition of entries: each currency adds."""
    return Total(
        epsilon=math.fsum(e.cost for e in entries if not e.is_gaussian),
        delta=math.fsum(e.delta for e in entries),
        gaussian_rho=math.fsum(e.cost for e in entries if e.is_gaussian),
        rho=math.fsum(e.rho for e in entries),
    )


def _spent(total: Total, delta: float) -> float:
    """The least ε, by the routes open to a mixed ledger, at total δ (0: only pure entries have one)."""
    if total.gaussian_rho == 0.0:
        routes = [total.epsilon]
    else:
        routes = [math.inf]
        if delta > total.delta and math.isfinite(total.gaussian_rho):
            routes.append(total.epsilon + epsilon_of(total.gaussian_rho, delta - total.delta))
    if total.delta == 0.0 < delta and 0.0 < total.rho < math.inf:
        routes.append(epsilon_of(total.rho, delta))
    return min(routes)


def _within(name: str, spent: float, allowed: float) -> float:
    """`allowed` if what was spent is that up to rounding, else `spent`; an error if it is more."""
    if spent > allowed * (1.0 + TOLERANCE):
        raise ValueError(f"The ledger spends {name} = {spent:.12g}, more than the budget of {allowed:.12g}.")
    return allowed if allowed * (1.0 - TOLERANCE) <= spent <= allowed else spent


def guarantee_of(
    entries: Sequence[LedgerEntry],
    model: Trust,
    neighbours: Neighbours = "replace",
    budget: Budget | None = None,
    *,
    delta: float | None = None,
    episodes_per_user: int = 1,
    assumptions: Sequence[str] = (),
    privacy_loss: bool = False,
) -> Guarantee:
    """The guarantee that the ledger implies, recomputed from its entries and checked against the budget.

    Pure entries alone give (Σε, Σδ). With Gaussian entries ρ adds and is converted at `delta` (default: that of the
    budget); without any δ the guarantee is ρ-zCDP with ε = ∞. `privacy_loss` also tries the privacy-loss distribution
    and keeps the smaller ε. Costs are those of one episode; a user in r episodes is charged by `group` before the
    check.
    """
    entries = tuple(entries)
    total = ledger_total(entries)
    if budget is not None and budget.delta > 0.0 and delta is None:
        delta = budget.delta
    if delta is not None:
        _check_target_delta(delta)
    if model == "none":
        return Guarantee(
            model, math.inf, 0.0, None, neighbours, unit_text(episodes_per_user), entries, tuple(assumptions)
        )
    pure = total.gaussian_rho == 0.0
    reported = total.delta if pure else (delta or 0.0)
    tiny = 5e-324  # a ledger that spends nothing still prints a positive bound
    rho = None if pure and (budget is None or budget.kind != "zcdp") else max(total.rho, tiny)
    if rho == math.inf:
        rho = None
    epsilon = _spent(total, reported)
    if privacy_loss and delta is not None and total.delta == 0.0:
        reported = delta
        epsilon = min(epsilon, pld_epsilon(entries, delta))
    guarantee = Guarantee(
        model, max(epsilon, tiny), reported, rho, neighbours, unit_text(1), entries, tuple(assumptions)
    )
    if episodes_per_user != 1:
        guarantee = group(guarantee, episodes_per_user)
    if budget is None:
        return guarantee
    if budget.rho is not None:
        spent = guarantee.rho if guarantee.rho is not None else math.inf
        rho = _within("rho", spent, budget.rho)
        if not pure and delta is not None:
            return replace(guarantee, rho=rho, epsilon=guarantee.epsilon if privacy_loss else epsilon_of(rho, delta))
        return replace(guarantee, rho=rho)
    assert budget.epsilon is not None
    if guarantee.delta > budget.delta * (1.0 + TOLERANCE):
        raise ValueError(
            f"The ledger spends delta = {guarantee.delta:.6g}, more than the budget of {budget.delta:.6g}."
        )
    return replace(guarantee, epsilon=_within("epsilon", guarantee.epsilon, budget.epsilon))


def _common(guarantees: Sequence[Guarantee]) -> Guarantee:
    if not guarantees:
        raise ValueError("Composition needs at least one guarantee.")
    first = guarantees[0]
    for name in ("model", "neighbours", "unit"):
        values = sorted({getattr(guarantee, name) for guarantee in guarantees})
        if len(values) > 1:
            raise ValueError(f"Guarantees with different {name} do not compose: {', '.join(map(repr, values))}.")
    return first


def _rho_of_guarantee(guarantee: Guarantee) -> float:
    if guarantee.rho is not None:
        return guarantee.rho
    return guarantee.epsilon * guarantee.epsilon / 2.0 if guarantee.is_pure else math.inf


def _merged(guarantees: Sequence[Guarantee]) -> tuple[tuple[LedgerEntry, ...], tuple[str, ...]]:
    entries = tuple(entry for guarantee in guarantees for entry in guarantee.entries)
    assumptions = tuple(dict.fromkeys(text for guarantee in guarantees for text in guarantee.assumptions))
    return entries, assumptions


def compose_sequential(guarantees: Sequence[Guarantee]) -> Guarantee:
    """All releases see the same users, each possibly chosen in view of the earlier ones: ε, δ and ρ add.

    Where every part has a ρ (pure parts: ε²/2) the sum of ρ, converted at the sum of δ, is used if it is smaller.
    """
    first = _common(guarantees)
    entries, assumptions = _merged(guarantees)
    if first.model == "none":
        return replace(first, entries=entries, assumptions=assumptions)
    epsilon = math.fsum(g.epsilon for g in guarantees)
    delta = math.fsum(g.delta for g in guarantees)
    if delta >= 1.0:
        raise ValueError(f"The deltas add up to {delta:.6g}: nothing is left of the guarantee.")
    rho = math.fsum(_rho_of_guarantee(g) for g in guarantees)
    if delta > 0.0 and math.isfinite(rho):
        epsilon = min(epsilon, epsilon_of(rho, delta))
    keep_rho = math.isfinite(rho) and any(g.rho is not None for g in guarantees)
    return replace(
        first, epsilon=epsilon, delta=delta, rho=rho if keep_rho else None, entries=entries, assumptions=assumptions
    )


def compose_parallel(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Every user enters one part only, chosen by a public rule (her index, never her data): the worst part counts.

    Given the transcript, the factors of the parts she is not in are equal in both worlds, also when later parts are
    designed in view of earlier ones. A replaced user stays in her part, so this holds for replace as for zero-out.
    """
    first = _common(guarantees)
    entries, assumptions = _merged(guarantees)
    rho = max(_rho_of_guarantee(g) for g in guarantees)
    keep_rho = math.isfinite(rho) and any(g.rho is not None for g in guarantees)
    return replace(
        first,
        epsilon=max(g.epsilon for g in guarantees),
        delta=max(g.delta for g in guarantees),
        rho=rho if keep_rho and first.model != "none" else None,
        entries=entries,
        assumptions=(*assumptions, "each user is in one part only: costs are the largest over parts, not their sum"),
    )


def group(guarantee: Guarantee, episodes_per_user: int) -> Guarantee:
    """The guarantee of a user who appears in up to r episodes, each protected as stated for one.

    ε → rε; ρ → r²ρ; (ε, δ) → (rε, δ·(e^{rε} − 1)/(e^ε − 1)): r steps from one world to the other. With a ρ, ε is
    converted anew at the same δ. Ledger entries carry r times the sensitivity.
    """
    _check_count("episodes_per_user", episodes_per_user)
    if guarantee.unit != unit_text(1):
        raise ValueError(f"Group privacy starts from one episode per user, got the unit {guarantee.unit!r}.")
    r = int(episodes_per_user)
    entries = tuple(
        replace(entry, sensitivity=entry.sensitivity * r, cost=entry.cost * (r * r if entry.is_gaussian else r))
        for entry in guarantee.entries
    )
    grouped = replace(guarantee, unit=unit_text(r), entries=entries)
    if guarantee.model == "none" or r == 1:
        return grouped
    rho = None if guarantee.rho is None else guarantee.rho * r * r
    epsilon, delta = guarantee.epsilon * r, guarantee.delta
    if delta > 0.0 and rho is not None:
        return replace(grouped, rho=rho, epsilon=epsilon_of(rho, delta))
    if delta > 0.0 and math.isfinite(epsilon):
        if epsilon > 700.0:
            raise ValueError(f"{r} episodes per user at epsilon = {guarantee.epsilon:.6g} leave no meaningful delta.")
        delta *= math.expm1(epsilon) / math.expm1(guarantee.epsilon)
        if delta >= 1.0:
            raise ValueError(f"{r} episodes per user raise delta to {delta:.3g}: nothing is left of the guarantee.")
    return replace(grouped, rho=rho, epsilon=epsilon, delta=delta)


# Privacy-loss distributions -----------------------------------------------------------------------------------------


def _rounding_gap(width_squared: float) -> float:
    """ln(max/min) over y of Σ_k exp(−(k−y)²/(2r²)); the maximum is at y = 0, the minimum at y = ½."""
    reach = int(10.0 * math.sqrt(width_squared)) + 2
    top = math.fsum(math.exp(-k * k / (2.0 * width_squared)) for k in range(-reach, reach + 1))
    bottom = math.fsum(math.exp(-((k - 0.5) ** 2) / (2.0 * width_squared)) for k in range(-reach, reach + 2))
    return max(0.0, math.log(top / bottom)) + 1e-15


def pld_epsilon(entries: Sequence[LedgerEntry], delta: float) -> float:
    """ε at δ of all entries together, from their composed privacy-loss distribution (pessimistic rounding).

    One user moves many counters at once; what she does to each noisy value is dominated by one-dimensional noise:

    * Laplace, ‖shift‖₁ ≤ Δ: the whole shift in one coordinate. With q = e^{−1/b}, discrete Laplace noise shifted by n
      has log-ratios (2j − n)/b, j = 0..n, with masses 1/(1+q), (1−q)qʲ/(1+q) inside, qⁿ/(1+q). Two separate
      shifts adding up to n have the same lattice and mean ratio, less mass at both ends and at least 2(1−q)qʲ/(1+q)²
      at every inner point, which is more: smaller in convex order. Continuous noise is the limit.
    * Balanced Laplace: randomised response, log-ratios ±ε with masses e^ε/(1+e^ε) and 1/(1+e^ε), which dominates
      whatever is ε-DP [KOV15]. Balanced noise on one number attains it.
    * Gaussian, ‖shift‖₂ ≤ Δ: rotation invariance.
    * Discrete Gaussian, integer shifts: up to a factor e^{±η} per changed counter it is the law of rounding
      y ~ N(·, σ²−r²) to x with weights ∝ exp(−(x−y)²/(2r²)), that is, post-processing of a continuous Gaussian of
      variance σ² − r²; at most Δ² counters change, and η (10⁻¹⁶ at r² = 2) is charged twice for each.

    Scales are taken from the costs of the entries, so the excess of the sampled law is charged too. The result is
    never more than what composition of ε and ρ gives. Entries are those of one episode per user; apply `group` after.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    _check_target_delta(delta)
    entries = [entry for entry in entries if entry.cost > 0.0]
    if not entries:
        return 0.0
    if any(entry.cost == math.inf for entry in entries):
        return math.inf
    for entry in entries:
        if entry.mechanism not in _LAPLACE + _GAUSSIAN:
            raise ValueError(f"The privacy-loss distribution of {entry.mechanism!r} is not known here.")
    simple = _spent(ledger_total(entries), delta)
    values = sum(entry.uses for entry in entries)
    interval = max(min(1e-4, simple / 20.0 / values), 1e-7)
    composed, surplus = None, 0.0
    for entry in entries:
        each = entry.cost / entry.uses
        if entry.mechanism == "laplace":
            part = pld.from_laplace_mechanism(1.0 / each, value_discretization_interval=interval)
        elif entry.mechanism == "discrete-laplace":
            steps = max(1, math.ceil(entry.sensitivity))
            part = pld.from_discrete_laplace_mechanism(
                each / entry.sensitivity, sensitivity=steps, value_discretization_interval=interval
            )
        elif entry.mechanism == BALANCED_LAPLACE:
            part = pld.from_privacy_parameters(
                DifferentialPrivacyParameters(each), value_discretization_interval=interval
            )
        else:
            variance = entry.sensitivity**2 / (2.0 * each)
            if entry.mechanism == "discrete-gaussian":
                rounding = min(2.0, variance / 2.0)
                surplus += 2.0 * entry.uses * math.ceil(entry.sensitivity**2) * _rounding_gap(rounding)
                variance -= rounding
            part = pld.from_gaussian_mechanism(
                math.sqrt(variance), sensitivity=entry.sensitivity, value_discretization_interval=interval
            )
        part = part.self_compose(entry.uses)
        composed = part if composed is None else composed.compose(part)
    assert composed is not None
    # P ≤ e^{surplus/2}(e^ε Q' + δ') and Q' ≤ e^{surplus/2} Q: ε grows by the surplus, δ by the factor e^{surplus/2}.
    # The convolutions are rounded: 10⁻¹⁴ of probability is set aside for that.
    target = delta * math.exp(-surplus / 2.0) * (1.0 - 1e-9) - 1e-14
    if target <= 0.0:
        return simple
    exact = float(composed.get_epsilon_for_delta(target)) + surplus
    return min(simple, exact)
