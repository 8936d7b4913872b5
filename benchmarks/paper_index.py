"""What every page of docs/papers points to: the `Source:` lines of the docstrings, by paper. `make docs` writes them.

python benchmarks/paper_index.py [--check]
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "discreet"
PAGES = ROOT / "docs" / "papers"
#: Papers with a page of their own.
PAPERS = {
    "QW23": "qw23.md",
    "WZCW23": "wzcw23.md",
    "BZZDTCC24": "bzzdtcc24.md",
    "BTZCC25": "btzcc25.md",
    "QW22": "qw22.md",
}
MARK = "<!-- index -->"
REFERENCE = re.compile(r"\[([A-Z][A-Za-z]+\d\d)([^\]]*)\]([^\[;]*)")
PLACE = re.compile(r"(Alg|Algorithm|Eq|Thm|Lem|Lemma|Sec|§|Tab|Rem|App|Fig|bonus|Corollary)[^a-z]")


class Reference(NamedTuple):
    """One docstring that names a paper, and where in it."""

    paper: str
    place: str
    path: str  # from the root
    symbol: str


def docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name, docstring) of every class and function, methods with their class."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
                name = f"{prefix}{child.name}"
                if text := ast.get_docstring(child):
                    yield name, text
                yield from walk(child, f"{name}.")

    yield from walk(tree, "")


def source_of(docstring: str) -> str | None:
    """The sentence after `Source:`, on one line; None where there is none."""
    _, found, rest = docstring.partition("Source:")
    if not found:
        return None
    paragraph = " ".join(line.strip() for line in re.split(r"\n\s*\n", rest)[0].splitlines())
    text = " ".join(paragraph.split("   ")[0].split())
    return re.split(r" (?:Differs|Cost|Guarantee|Width):", text)[0]


def place_of(inside: str, after: str) -> str:
    """Where in the paper: "Thm. 5.2, 5.7", or nothing."""
    text = (inside.strip() or after.strip()).strip(" .,")
    text = re.sub(
        r"(,? and|, without.*|, with its.*|:.*|, quoted.*| as quoted.*|, whose.*|,? COMP.*|, recalled.*)$", "", text
    )
    return text.strip(" .,") if PLACE.match(text + " ") else ""


def references() -> list[Reference]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for symbol, text in docstrings(ast.parse(path.read_text())):
            source = source_of(text)
            for paper, inside, after in REFERENCE.findall(source or ""):
                found.append(Reference(paper, place_of(inside, after), str(path.relative_to(ROOT)), symbol))
    return found


def index(paper: str) -> str:
    """The table of a page: place → symbol, in the order of the paper's letters and numbers."""
    rows = sorted(
        {each for each in references() if each.paper == paper},
        key=lambda each: (_order(each.place), each.path, each.symbol),
    )
    lines = ["| in the paper | in the code |", "|---|---|"]
    lines += [f"| {each.place or '–'} | [`{each.symbol}`](../../{each.path}) |" for each in rows]
    return "\n".join(lines)


def _order(place: str) -> tuple[str, tuple[int, ...]]:
    kind = re.match(r"[^\d]*", place)
    return (kind.group() if kind else ""), tuple(int(n) for n in re.findall(r"\d+", place))


def written(text: str, paper: str) -> str:
    """A page with its index renewed."""
    before, _, rest = text.partition(MARK)
    _, _, after = rest.partition(MARK)
    return f"{before}{MARK}\n{index(paper)}\n{MARK}{after}"


def main() -> None:
    stale = []
    for paper, name in PAPERS.items():
        page = PAGES / name
        new = written(page.read_text(), paper)
        if new != page.read_text():
            stale.append(name)
            if "--check" not in sys.argv:
                page.write_text(new)
    if "--check" in sys.argv and stale:
        sys.exit(f"stale: {', '.join(stale)}; run make docs")


if __name__ == "__main__":
    main()
