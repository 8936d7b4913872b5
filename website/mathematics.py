"""TeX → MathML when the site is built: browsers show it themselves, without any script.

`pymdownx.arithmatex` marks formulas; one with a command that the converter does not know stops the build. Notes write
letters and relations as they are (`$b ≤ 2H/ε$`), which reads well in a terminal, too.
"""

from __future__ import annotations

import functools
import html
import re

from latex2mathml.converter import convert

MARKED = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.S)
TEX = {
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "∝": r"\propto ",
    "∈": r"\in ",
    "→": r"\to ",
    "·": r"\cdot ",
    "±": r"\pm ",
    "…": r"\dots ",
    "ℤ": r"\mathbb{Z}",
    "⟨": r"\langle ",
    "⟩": r"\rangle ",
    "½": r"\tfrac{1}{2}",
    "⅔": r"\tfrac{2}{3}",
}
#: Characters of TeX from which on a formula may be wider than a phone.
LONG = 45


def rendered(page: str) -> str:
    return MARKED.sub(lambda found: mathml(html.unescape(found[3]).strip(), found[2] == "["), page)


@functools.cache
def mathml(tex: str, block: bool) -> str:
    written = "".join(TEX.get(letter, letter) for letter in tex)
    for side in ("Vert", "vert"):  # what is between bars is one thing, which may have an exponent
        written = written.replace(rf"\l{side}", rf"{{\l{side} ").replace(rf"\r{side}", rf"\r{side}}}")
    made = convert(written, display="block" if block else "inline")
    if left := re.search(r"\\[A-Za-z]+|&(?![#\w]+;)", made):
        raise ValueError(f"{left[0]} in ${tex}$ is nothing that the site can show")
    for bar in ("&#x02016;", "&#x0007C;"):
        made = made.replace(f"<mo>{bar}</mo>", f'<mo stretchy="false" lspace="0" rspace="0">{bar}</mo>')
    made = made.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # the converter takes \\sim for a letter
    if block:
        return f'<div class="formula">{made}</div>'
    return f'<span class="long-formula">{made}</span>' if len(tex) > LONG else made
