"""A shuffler and an analyzer, each a process with its own folder and keys, and people whose devices seal every single
bit: make demo-shuffle.

Everything is what operators and apps do: commands begin and serve both, people enrol at the analyzer and send to the
shuffler, and in the end anybody can check that every release counts a whole batch that the shuffler has signed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from demo_two_servers import PROBLEM, demonstrated, learned_together
from discreet.live.people import Visit

ANALYZER = (
    PROBLEM
    + """[privacy]
model = "shuffle"
epsilon = {epsilon}
delta = {delta}
users = {people}
[serving]
patience = "{patience}s"
"""
)
SHUFFLER = """
name = "mixer"
[shuffler]
url = "http://127.0.0.1:{port}"
"""


def learned(
    folder: Path,
    ports: Sequence[int],
    people: int = 2000,
    came: Callable[[], None] = lambda: None,
    door: int | None = None,
    **terms: object,
) -> tuple[Visit, dict[str, Any]]:
    """What people made an analyzer learn through a shuffler, and what the check of its log says."""
    usual = {"states": 6, "horizon": 20, "epsilon": 2.0, "delta": 1e-6, "patience": 2, "people": people}
    told = usual | {"port": ports[1]} | terms
    files = {"river": ANALYZER.format(**told), "mixer": SHUFFLER.format(**told)}
    return learned_together(folder, ports, "shuffler", files, ("url", "key"), people, came, door=door)


def signatures(checked: dict[str, Any]) -> list[str]:
    return [
        str(checked["guarantee"]),
        f"signed by the shuffler with {checked['shuffler_key']}",
        f"{checked['batches_signed']} releases count a whole batch each, as the shuffler has signed it",
    ]


if __name__ == "__main__":
    who = "an analyzer on port {}, a shuffler on port {}, ε = 2 at δ = 10⁻⁶"
    demonstrated(__doc__, (8012, 8013), who, learned, signatures)
