"""The pictures of docs/concepts.md, drawn by code: `make docs` writes them into docs/pictures.

Colours are those of the page where a page holds them, light or dark, and plain ones where a picture stands alone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
STYLE = """
svg.picture { font: 14px system-ui, sans-serif; }
.picture text { fill: var(--md-typeset-color, #333); }
.picture .quiet { fill: var(--md-default-fg-color--light, #666); font-size: 12.5px; }
.picture .strong { font-weight: 600; }
.picture .line { stroke: var(--md-default-fg-color--light, #666); stroke-width: 1.5; fill: none; }
.picture .box { stroke: var(--md-default-fg-color--light, #666); fill: var(--md-code-bg-color, #f5f5f5); rx: 8px; }
.picture .person { fill: var(--md-default-fg-color--lighter, #bbb); }
.picture .her { fill: #e07b39; }
.picture .noise { fill: #2a9d8f; }
.picture .wall { fill: #e07b39; }
.picture .tip { fill: var(--md-default-fg-color--light, #666); }
""".strip()


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def lines(x: float, y: float, words: Iterable[str], kind: str = "", anchor: str = "middle", step: float = 17) -> str:
    return "".join(text(x, y + i * step, each, kind, anchor) for i, each in enumerate(words))


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" class="{kind}"/>'


def dot(x: float, y: float, radius: float = 8, kind: str = "person") -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{kind}"/>'


def person(x: float, y: float, kind: str = "person") -> str:
    body = f"M{x - 10:g},{y + 24:g} q0,-16 10,-16 q10,0 10,16 z"
    return dot(x, y, 6.5, kind) + f'<path d="{body}" class="{kind}"/>'


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    angle = math.atan2(y2 - y1, x2 - x1)
    left, right = (angle + turn for turn in (math.pi * 0.85, -math.pi * 0.85))
    tip = " ".join(f"{x2 + 9 * math.cos(each):.1f},{y2 + 9 * math.sin(each):.1f}" for each in (left, right))
    shaft = f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="line"/>'
    return f'{shaft}<polygon points="{x2:g},{y2:g} {tip}" class="tip"/>'


def picture(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", *parts, "</svg>", ""])


def neighbours() -> str:
    """Two worlds that differ in one person, and what everybody sees of either."""
    parts = []
    for row, (name, kind) in enumerate(
        [("the people as they are", "her"), ("another episode in the place of hers", "noise")]
    ):
        y = 50 + 130 * row
        parts += [text(30, y - 24, name, "strong", "start")]
        parts += [person(45 + 44 * i, y + 8, kind if i == 3 else "person") for i in range(8)]
        parts += [arrow(400, y + 14, 450, y + 14), box(455, y - 16, 120, 58)]
        parts += [lines(515, y + 8, ["learner", "with noise"])]
        parts += [arrow(580, y + 14, 630, y + 14), text(640, y + 10, "policies, releases", "", "start")]
        parts += [text(640, y + 28, "what all others see", "quiet", "start")]
    parts += ['<path d="M700,92 V144" class="line"/>', text(712, 124, "≤ e^ε times as likely", "strong", "start")]
    return picture(880, 250, "Neighbours: two worlds that differ in the episode of one person", parts)


def trust() -> str:
    """Where noise is added in the four trust models, and who sees what a person did."""
    parts = []
    models = [
        ("joint", ["operator", "sees the step,", "adds noise once"], ["trusted: the operator"]),
        ("two servers", ["each holds a share", "and adds noise", "of its own"], ["trusted: one of the two"]),
        (
            "shuffle",
            ["bits of all, mixed;", "noise comes with", "everybody's bits"],
            ["trusted: the shuffler,", "and most people"],
        ),
        ("local", ["operator sees", "randomised", "messages only"], ["trusted: nobody"]),
    ]
    for i, (name, who, trusted) in enumerate(models):
        x = 115 + 220 * i
        parts += [text(x, 24, name, "strong")]
        parts += [person(x - 44 + 44 * j, 52, "her" if j == 1 else "person") for j in range(3)]
        if name in ("shuffle", "local"):
            parts += [dot(x - 30 + 44 * j, 48, 5, "noise") for j in range(3)]
        if name == "two servers":
            parts += [
                arrow(x, 84, x - 46, 112),
                arrow(x, 84, x + 46, 112),
                box(x - 94, 116, 90, 62),
                box(x + 4, 116, 90, 62),
            ]
            parts += [
                text(x - 49, 142, "leader"),
                text(x + 49, 142, "helper"),
                dot(x - 49, 160, 6, "noise"),
                dot(x + 49, 160, 6, "noise"),
            ]
        else:
            parts += [arrow(x, 84, x, 112), box(x - 74, 116, 148, 62)]
            if name == "joint":
                parts += [text(x, 142, "operator"), dot(x, 160, 6, "noise")]
            else:
                parts += [text(x, 152, "shuffler" if name == "shuffle" else "operator")]
        parts += [
            arrow(x, 182, x, 206),
            text(x, 226, "release"),
            lines(x, 256, who, "quiet"),
            lines(x, 316, trusted, "strong"),
        ]
    parts += [dot(20, 352, 6, "noise"), text(34, 357, "where noise is added", "quiet", "start")]
    parts += [dot(200, 352, 6, "her"), text(214, 357, "a person whose step is asked for", "quiet", "start")]
    return picture(890, 366, "Four trust models", parts)


def epsilon(scale: float = 2.0) -> str:
    """The law of one released number in both worlds: a count of 20 or of 21, discrete Laplace noise of scale 2."""
    ratio = math.exp(-1.0 / scale)
    law = lambda centre: {x: (1 - ratio) / (1 + ratio) * ratio ** abs(x - centre) for x in range(8, 34)}  # noqa: E731
    here, there = law(20), law(21)
    left, bottom, wide, high = 50.0, 240.0, 29.0, 640.0
    parts = [f'<line x1="{left}" y1="{bottom}" x2="{left + wide * 26}" y2="{bottom}" class="line"/>']
    for x in here:
        at = left + wide * (x - 8)
        for shift, value, kind in ((4, here[x], "her"), (15, there[x], "noise")):
            tall = high * value
            where = f'x="{at + shift:g}" y="{bottom - tall:.1f}" width="10" height="{tall:.1f}"'
            parts.append(f'<rect {where} class="{kind}"/>')
        if x % 2 == 0:
            parts.append(text(at + 14, bottom + 18, str(x), "quiet"))
    worst = max(here[x] / there[x] for x in here)
    parts += [dot(70, 24, 6, "her"), text(84, 29, "true count 20", "", "start")]
    parts += [dot(70, 48, 6, "noise"), text(84, 53, "true count 21: she was there", "", "start")]
    parts += [text(800, 29, f"ratio of neighbouring bars: e^½ = {worst:.2f} everywhere", "", "end")]
    parts += [
        text(800, 53, f"replaced, she moves two counts by one: e^½·e^½ = e¹ = {worst * worst:.2f}", "strong", "end")
    ]
    parts += [
        text(left + wide * 13, bottom + 42, "released number (discrete Laplace noise of scale 2/ε, ε = 1)", "quiet")
    ]
    return picture(860, 295, "What ε bounds: the law of one released count, with her and without", parts)


def wall() -> str:
    """The import graph: what may see episodes, and what sees releases only."""
    raw = [
        ("people/", "episodes, logs, how they are counted"),
        ("privacy/sums, trust, noise", "streams that add noise"),
        ("device/, client/", "what runs on her phone"),
        ("envs/", "simulated worlds"),
    ]
    public = [
        ("releases/", "noisy numbers, their widths"),
        ("agents/, planning, bonuses", "all of learning"),
        ("policy, valuation", "what is published"),
        ("pages/, reports", "what people look at"),
    ]
    parts = [text(175, 26, "sees raw episodes", "strong"), text(665, 26, "sees releases only", "strong")]
    for x, boxes in ((20, raw), (510, public)):
        for i, (name, what) in enumerate(boxes):
            y = 42 + 62 * i
            parts += [box(x, y, 310, 52), text(x + 155, y + 22, name, "strong"), text(x + 155, y + 41, what, "quiet")]
    parts += ['<rect x="405" y="34" width="14" height="256" class="wall"/>']
    parts += [arrow(334, 130, 400, 130), arrow(424, 130, 504, 130), text(412, 312, "a release is all that passes")]
    parts += [text(412, 330, "a test checks that nothing on the right can reach anything on the left", "quiet")]
    return picture(840, 342, "The wall between raw episodes and everything that learns", parts)


def loop() -> str:
    """One epoch, from plan to release."""
    steps = [
        ("plan", ["from earlier releases", "and public numbers"]),
        ("announce", ["policies, targets and size,", "before anybody comes"]),
        ("people act", ["each is in one epoch;", "one report (Spotlight)"]),
        ("add noise", ["once, on every number,", "visited or not"]),
        ("release", ["raw sums are erased;", "all may read it"]),
    ]
    parts = []
    for i, (name, what) in enumerate(steps):
        x = 90 + 172 * i
        parts += [box(x - 76, 40, 152, 84), text(x, 66, name, "strong"), lines(x, 88, what, "quiet")]
        if i < len(steps) - 1:
            parts.append(arrow(x + 78, 82, x + 94, 82))
    parts += [person(90 + 172 * 2, 142, "her"), dot(90 + 172 * 3, 150, 7, "noise")]
    parts += ['<path d="M778,128 C778,226 90,226 90,140" class="line"/>', arrow(90, 146, 90, 130)]
    parts += [text(434, 226, "the next epoch: other people; nobody is in two", "quiet")]
    return picture(872, 240, "The epoch loop", parts)


PICTURES: dict[str, Callable[[], str]] = {
    "neighbours": neighbours,
    "trust": trust,
    "epsilon": epsilon,
    "wall": wall,
    "loop": loop,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, drawn in PICTURES.items():
        path, made = FOLDER / f"{name}.svg", drawn()
        if not path.exists() or path.read_text() != made:
            if "--check" in sys.argv:
                raise SystemExit(f"{path.name} is stale; run make docs")
            path.write_text(made)


if __name__ == "__main__":
    main()
