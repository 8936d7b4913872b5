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
        told += [_priced(where, twin, row) for model in CLAIMS for row in mine if row["model"] == model]
        told += [_budgets(where, pair) for pair in _pairs(mine)]
    return tuple(told)


def price(twin: Row, row: Row) -> str:
    """Of privacy, in the second half of the episodes: nothing learned, negligible, or high."""
    if row["late"] >= NOTHING:
        return "nothing learned"
    return "negligible" if row["late"] - twin["late"] <= NEGLIGIBLE else "high"


def heavy_summary(rows: Sequence[Row]) -> tuple[str, ...]:
    """The three claims, counted over the curves of each form."""
    told = []
    for (form,), mine in groups(rows, "form").items():
        prices: dict[str, list[str]] = {"joint": [], "local": []}
        orders = []
        for (_,), curves in groups(mine, "learner").items():
            twin = one(curves, model="none")
            if twin is None or twin["late"] >= NOTHING:
                continue
            for model, found in prices.items():
                found += [price(twin, row) for row in curves if row["model"] == model]
            orders += [order(low, high, "ratio") for low, high in _pairs(curves) if not _nothing(low, high)]
        joint, local = prices["joint"], prices["local"]
        told.append(
            f"{form}: under joint privacy the price is negligible at the end in {joint.count('negligible')} of "
            f"{len(joint)} curves, and nothing is learned in {joint.count('nothing learned')}; under local privacy "
            f"it stays high in {len(local) - local.count('negligible')} of {len(local)}, because nothing is learned "
            f"in {local.count('nothing learned')}; a smaller budget clearly costs more in {orders.count('more')} of "
            f"{len(orders)} pairs in which anything is learned."
        )
    return tuple(told)


def order(one: Row, other: Row, name: str) -> str:
    """Whether the first has clearly more, clearly less, or neither."""
    return "more" if clearly_more(one, other, name) else "less" if clearly_more(other, one, name) else "neither"


def _pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The least and the largest budget of each model."""
    found = []
    for model in ("joint", "local"):
        mine = [row for row in rows if row["model"] == model]
        if len(mine) > 1:
            by_budget = sorted(mine, key=lambda row: row["epsilon"])
            found.append((by_budget[0], by_budget[-1]))
    return found


def _nothing(*rows: Row) -> bool:
    return all(row["ratio"] >= NOTHING for row in rows)


#: What a price means for the claim about its model.
CLAIMS = {
    "joint": {
        "nothing learned": "does not come out, nothing is learned under privacy",
        "negligible": "comes out, the price is negligible at the end",
        "high": "does not come out, the price is not negligible at the end",
    },
    "local": {
        "nothing learned": "the price stays high, for nothing is learned",
        "negligible": "does not come out, the price is negligible",
        "high": "comes out, the price stays high",
    },
}


def _priced(where: str, twin: Row, row: Row) -> str:
    found, model = price(twin, row), row["model"]
    beside = f", {twin['late']:.3f} without privacy" if model == "joint" else ""
    measured = f"({row['late']:.3f} in the second half{beside})"
    why = _why(row) if found == "nothing learned" else ""
    return f"{where}, {model}, ε = {row['epsilon']:g}: {CLAIMS[model][found]} {measured}{why}."


def _why(row: Row) -> str:
    """What is to be found beside the noise that hides it."""
    count, noise = f"{row['count']:,.0f}", f"{row['noise']:,.0f}"
    return f"; the random policy visits the pair that pays most {count} times, under noise of sd {noise}"


def _budgets(where: str, pair: tuple[Row, Row]) -> str:
    low, high = pair
    measured = f"{low['ratio']:.3f} at ε = {low['epsilon']:g}, {high['ratio']:.3f} at ε = {high['epsilon']:g}"
    told = {
        "more": "a smaller budget costs more, as claimed",
        "less": "a smaller budget costs less, against the claim",
        "neither": "the budgets cannot be told apart over these seeds",
    }
    verdict = told[order(low, high, "ratio")]
    if _nothing(low, high):
        verdict = "no order of budgets, for nothing is learned with any"
    return f"{where}, {low['model']}: {verdict} ({measured})."


# Figure 1 of [QW22] -------------------------------------------------------------------------------------------------


#: The largest log of the figure in print.
PRINTED_USERS = 1000


def judged(rows: Iterable[Row]) -> list[int]:
    """The largest log that the printed figure has too, and the largest of all."""
    sizes = {row["users"] for row in rows}
    return sorted({max((n for n in sizes if n <= PRINTED_USERS), default=max(sizes)), max(sizes)})


def convergence(row: Row, twin: Row) -> str:
    """Of DP-VAPVI to VAPVI, which reads the same log."""
    if twin["gap"] >= NOTHING * twin["random_gap"]:
        return "nothing is learned even without privacy, so nothing has converged"
    if row["gap"] >= NOTHING * row["random_gap"]:
        return "does not converge to VAPVI, DP-VAPVI has learned nothing"
    near = row["gap"] - twin["gap"] <= NEGLIGIBLE * row["random_gap"]
    return "converges to VAPVI" if near else "does not converge to VAPVI at this size"


def _beside(rows: Sequence[Row], users: int) -> list[tuple[Row, Row]]:
    """DP-VAPVI beside the VAPVI of its instance and form, at one size."""
    private = [row for row in rows if row["learner"] == "dp-vapvi" and row["users"] == users]
    found = []
    for row in private:
        where = {name: row[name] for name in ("instance", "form", "users")}
        if twin := one(rows, learner="vapvi", **where):
            found.append((row, twin))
    return found


def linear_price(rows: Sequence[Row]) -> tuple[str, ...]:
    """Gaps of DP-VAPVI beside those of VAPVI, for each instance, form and budget."""
    told: list[str] = []
    for users in judged(rows):
        for row, twin in _beside(rows, users):
            head = f"instance {row['instance']}, {row['form']}, ρ = {row['rho']:g}, {users:,} users:"
            measured = f"gap {row['gap']:.3f} beside {twin['gap']:.3f}, random policy {row['random_gap']:.3f}"
            told.append(f"{head} {convergence(row, twin)} ({measured}).")
    return tuple(told)


def linear_summary(rows: Sequence[Row]) -> tuple[str, ...]:
    """How often DP-VAPVI has converged, by form and size."""
    told = []
    for form in dict.fromkeys(row["form"] for row in rows if row["learner"] == "dp-vapvi"):
        mine = [row for row in rows if row["form"] == form]
        counts = []
        for users in judged(rows):
            pairs = _beside(mine, users)
            near = sum(convergence(*pair) == "converges to VAPVI" for pair in pairs)
            counts.append(f"{near} of {len(pairs)} (instance, budget) pairs at {users:,} users")
        told.append(f"DP-VAPVI ({form}) has converged to VAPVI in {' and '.join(counts)}.")
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
    """Whether a larger budget brings DP-VAPVI nearer to VAPVI."""
    told = []
    for (instance, form), mine in groups((r for r in rows if r["learner"] == "dp-vapvi"), "instance", "form").items():
        for users in judged(mine):
            chosen = sorted((row for row in mine if row["users"] == users), key=lambda row: row["rho"])
            if len(chosen) > 1:
                gaps = ", ".join(f"{row['gap']:.3f} at ρ = {row['rho']:g}" for row in chosen)
                told.append(f"instance {instance}, {form}, {users:,} users: {_falling(chosen)} ({gaps}).")
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
