"""Lists of seeds as they are written."""

from __future__ import annotations

import re


def seed_list(text: str, name: str = "--seeds") -> list[int]:
    """`0:10` is ten seeds (half-open), `3` is one, `1,5,9` are three."""
    expected = "expected A:B (half-open), one seed, or seeds joined by commas, such as 0:10, 3 or 1,5,9"
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]+)\s*(?::\s*([0-9]+)\s*)?", part)
        if match is None:
            raise ValueError(f"{name} is {text!r}; {expected}")
        first = int(match[1])
        last = first + 1 if match[2] is None else int(match[2])
        if last <= first:
            raise ValueError(f"{name} is {text!r}, and {part.strip()} is empty; {expected}")
        if last > 2**63:
            raise ValueError(f"{name} is {text!r}; seeds must be below 2^63")
        seeds += range(first, last)
    if len(set(seeds)) != len(seeds):
        raise ValueError(f"{name} is {text!r}, which names a seed twice; {expected}")
    return seeds
