"""The page of `discreet explore`: sliders whose answers its server computes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from discreet.pages import escaped, filled, script, script_policy, style

WORDS = {
    "users": "users",
    "epsilon": "ε per user",
    "delta": "δ",
    "states": "states S",
    "actions": "actions A",
    "horizon": "steps H",
    "branching": "states that can follow a cell",
}


def page(numbers: Mapping[str, tuple[float, float, float]], models: Sequence[str], origin: str) -> tuple[str, str]:
    """The page and what its browser is told to allow. `numbers`: the least, the largest and the first of each."""
    code = script("explore")
    markup = filled(
        "explore",
        style=style("controls", "explore"),
        controls="".join(_control(name, *limits) for name, limits in numbers.items()),
        models="".join(_choice(model, model == models[0]) for model in models),
        origin=escaped(origin),
        script=code,
    )
    return markup, script_policy(code, "connect-src 'self'", "frame-ancestors 'none'", "form-action 'none'")


def stops(low: float, high: float) -> list[float]:
    """Where a slider stops: 1, 2, 3 or 5 times a power of ten, and both ends."""
    start = low or 1e-9
    powers = [10.0**p for p in range(-9, 10)]
    inside = [float(f"{m * p:.1g}") for p in powers for m in (1, 2, 3, 5) if start <= m * p * 1.0000001 <= high]
    return sorted({low, *inside, high})


def _control(name: str, low: float, high: float, first: float) -> str:
    every = [int(v) if v == int(v) else v for v in stops(low, high)]
    if name in ("states", "actions", "horizon", "branching"):
        every = sorted({int(v) for v in every} | set(range(int(low), 21)))
    return (
        f"<p class='control' data-name='{name}'><label for='{name}'>{escaped(WORDS[name])}</label>"
        f"<input type='number' id='{name}' min='{low:g}' max='{high:.12g}' step='any' value='{first:.12g}' "
        f"required='required'/><input type='range' min='0' max='{len(every) - 1}' value='0' "
        f"aria-label='{escaped(WORDS[name])}, slider' data-stops='{json.dumps(every)}'/></p>"
    )


def _choice(model: str, first: bool) -> str:
    checked = " checked='checked'" if first else ""
    return f"<label><input type='radio' name='model' value='{model}'{checked}/> {model}</label>"
