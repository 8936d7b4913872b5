"""What ε means in odds, rounded so that a promise is never overstated."""

from __future__ import annotations

import math


def factor(epsilon: float) -> str:
    """e^ε, by which anybody's records can move the odds at most: to three digits, rounded up."""
    if epsilon >= 20.0:
        return f"e^{epsilon:g}"
    odds = math.exp(epsilon)
    digits = 2 - math.floor(math.log10(odds))
    return f"{math.ceil(odds * 10.0**digits - 1e-9) / 10.0**digits:g}"


def certainty(epsilon: float) -> str:
    """How sure somebody may be who found it a toss-up before: at most 1/(1 + e^−ε), rounded up, never to 100 %."""
    percent = 100.0 / (1.0 + math.exp(-epsilon))
    for digits in (0, 1):
        if (most := math.ceil(percent * 10**digits - 1e-9) / 10**digits) < 100.0:
            return f"is at most {most:g} % sure"
    return "may be more than 99.9 % sure"
