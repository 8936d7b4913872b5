"""What the numbers of a reproduced figure say about a paper's claims: pure functions from tables to sentences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
#: A price of privacy of at most this share of what the random policy loses is negligible.
NEGLIGIBLE = 0.05
#: A learner that still loses this share of what the random policy loses has learned nothing.
NOTHING = 0.95


def standard_error(row: Row, name: str) -> float:
    """Of a mean over seeds; of one seed nobody knows it, so that nothing can be told apart."""
    sd = row[f"{name}_sd"]
    return math.inf if sd is None else float(sd) / math.sqrt(row["seeds"])


def clearly_more(one: Row, other: Row, name: str) -> bool:
    """Whether the first mean exceeds the second by more than two standard errors of the difference."""
    spread = math.hypot(standard_error(one, name), standard_error(other, name))
    return bool(one[name] - other[name] > 2 * spread)


def groups(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def one(rows: Iterable[Row], **wanted: Any) -> Row | None:
    """The row with these values, if there is one."""
    return next((row for row in rows if all(row[name] == value for name, value in wanted.items())), None)


# Figure 4 of [WZCW23] -----------------------------------------------------------------------------------------------


def heavy(rows: Sequence[Row]) -> tuple[str, ...]:
    """`late`: regret in the second half of the episodes over that of the random policy there; `ratio`: in all."""
    told: list[str] = []
    for (form, learner), mine in groups(rows, "form", "learner").items():
        twin, where = one(mine, model="none"), f"{form}, {learner}"
        if twin is None:
            continue
        if twin["late"] >= NOTHING:
            told.append(
                f"{where}: nothing is learned even without privacy ({twin['late']:.3f}), so nothing is compared."
            )
            continue
        for model in _FOUND:
            told += _prices(where, model, twin, [row for row in mine if row["model"] == model])
        for model in _FOUND:
            told += _budgets(where, model, [row for row in mine if row["model"] == model])
    return tuple(told)


#: Model → what is said where nothing is learned, where the price is not negligible, and where it is.
_FOUND = {
    "joint": (
        "does not come out, nothing is learned under privacy",
        "does not come out, the price is not negligible at the end",
        "comes out, the price is negligible at the end",
    ),
    "local": (
        "the price stays high, for nothing is learned",
        "comes out, the price stays high",
        "does not come out, the price is negligible",
    ),
}


def _prices(where: str, model: str, twin: Row, rows: Sequence[Row]) -> list[str]:
    """Under joint privacy the price should be negligible at the end, under local privacy it should stay."""
    told, (nothing, high, low) = [], _FOUND[model]
    for row in rows:
        measured = f"{row['late']:.3f} in the second half"
        measured += f", {twin['late']:.3f} without privacy" if model == "joint" else ""
        found, why = (nothing, _why(row)) if row["late"] >= NOTHING else (high, "")
        if row["late"] < NOTHING and row["late"] - twin["late"] <= NEGLIGIBLE:
            found = low
        told.append(f"{where}, {model}, ε = {row['epsilon']:g}: {found} ({measured}){why}.")
    return told


def _why(row: Row) -> str:
    """What is to be found beside the noise that hides it."""
    count, noise = f"{row['count']:,.0f}", f"{row['noise']:,.0f}"
    return f"; the random policy visits the pair that pays most {count} times, under noise of sd {noise}"


def _budgets(where: str, model: str, rows: Sequence[Row]) -> list[str]:
    if len(rows) < 2:
        return []
    low, high = min(rows, key=lambda row: row["epsilon"]), max(rows, key=lambda row: row["epsilon"])
    pair = f"{low['ratio']:.3f} at ε = {low['epsilon']:g}, {high['ratio']:.3f} at ε = {high['epsilon']:g}"
    if min(low["ratio"], high["ratio"]) >= NOTHING:
        verdict = "no order of budgets, for nothing is learned with any"
    elif clearly_more(low, high, "ratio"):
        verdict = "a smaller budget costs more, as claimed"
    elif clearly_more(high, low, "ratio"):
        verdict = "a smaller budget costs less, against the claim"
    else:
        verdict = "the budgets cannot be told apart over these seeds"
    return [f"{where}, {model}: {verdict} ({pair})."]


# Figure 1 of [QW22] -------------------------------------------------------------------------------------------------


def linear_price(rows: Sequence[Row]) -> tuple[str, ...]:
    """Gaps of DP-VAPVI beside those of VAPVI, for the least and the largest log of each instance and form."""
    told: list[str] = []
    for (instance, form), mine in groups(rows, "instance", "form").items():
        for (rho,), private in groups((r for r in mine if r["learner"] == "dp-vapvi"), "rho").items():
            pairs = [(row, twin) for row in private if (twin := one(mine, learner="vapvi", users=row["users"]))]
            if not pairs:
                continue
            row, twin = max(pairs, key=lambda pair: pair[0]["users"])
            extra = (row["gap"] - twin["gap"]) / row["random_gap"]
            measured = f"{row['gap']:.3f} beside {twin['gap']:.3f}"
            head = f"instance {instance}, {form}, ρ = {rho:g}, {row['users']:,} users:"
            if twin["gap"] >= NOTHING * twin["random_gap"]:
                verdict = "nothing is learned even without privacy, so nothing has converged"
            elif row["gap"] >= NOTHING * row["random_gap"]:
                verdict = "does not converge to VAPVI, DP-VAPVI has learned nothing"
            elif extra <= NEGLIGIBLE:
                verdict = "converges to VAPVI"
            else:
                verdict = "does not converge to VAPVI at this size"
            told.append(f"{head} {verdict} (gap {measured}, random policy {row['random_gap']:.3f}).")
    return tuple(told)


def linear_order(rows: Sequence[Row]) -> tuple[str, ...]:
    """In how many places DP-VAPVI is ahead of PEVI with its own penalty, and with a small part of it."""
    told = []
    for form in dict.fromkeys(row["form"] for row in rows if row["learner"] == "dp-vapvi"):
        private = [row for row in rows if row["learner"] == "dp-vapvi" and row["form"] == form]
        for which, rival in (("with its printed penalty", "pevi"), ("with its penalty tuned", "pevi tuned")):
            pairs = [
                (row, other)
                for row in private
                if (other := one(rows, learner=rival, instance=row["instance"], users=row["users"]))
            ]
            if pairs:
                ahead = sum(clearly_more(other, row, "gap") for row, other in pairs)
                behind = sum(clearly_more(row, other, "gap") for row, other in pairs)
                outcome = "in most places ahead of" if ahead > len(pairs) / 2 else "not in most places ahead of"
                told.append(
                    f"DP-VAPVI ({form}) is {outcome} PEVI {which}: clearly ahead in {ahead}, clearly behind in "
                    f"{behind} of {len(pairs)} (instance, size) pairs."
                )
    return tuple(told)


def linear_budgets(rows: Sequence[Row]) -> tuple[str, ...]:
    """Whether a larger budget brings DP-VAPVI nearer to VAPVI, at the largest log."""
    told = []
    for (instance, form), mine in groups((r for r in rows if r["learner"] == "dp-vapvi"), "instance", "form").items():
        most = max(row["users"] for row in mine)
        chosen = sorted((row for row in mine if row["users"] == most), key=lambda row: row["rho"])
        if len(chosen) < 2:
            continue
        gaps = ", ".join(f"{row['gap']:.3f} at ρ = {row['rho']:g}" for row in chosen)
        verdict = _falling(chosen)
        told.append(f"instance {instance}, {form}, {most:,} users: {verdict} ({gaps}).")
    return tuple(told)


def _falling(chosen: Sequence[Row]) -> str:
    """How gaps change from the smallest budget to the largest."""
    least, most = chosen[0], chosen[-1]
    if clearly_more(least, most, "gap"):
        rises = any(clearly_more(after, before, "gap") for before, after in itertools.pairwise(chosen))
        return "a larger budget is nearer to VAPVI" + (", but not at every step" if rises else "")
    if clearly_more(most, least, "gap"):
        return "a larger budget is further from VAPVI, against the claim"
    return "the budgets cannot be told apart over these seeds"


# Tables of theorems -------------------------------------------------------------------------------------------------


def promises(rows: Sequence[Row]) -> tuple[str, ...]:
    """Which upper bound is the least in each column, how far from the lower one, and whether it says anything."""
    told = []
    for (setting, model, users), mine in groups(rows, "setting", "model", "users").items():
        upper = [row for row in mine if row["kind"] == "upper"]
        best = min(upper, key=lambda row: row["value"])
        least = max(row["value"] for row in mine if row["kind"] == "lower")
        useful = "says nothing, for it exceeds what every policy has" if best["vacuous"] else "says something"
        told.append(
            f"{setting}, {model}, {users:,} users: the least bound is that of {best['learner']}, "
            f"{best['value'] / least:,.3g} times the lower one; it {useful}."
        )
    return tuple(told)
