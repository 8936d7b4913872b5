"""Parts of pages that are taken from other pages and from sessions: rows of result tables, audits, errata."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import sessions

DOCS = Path(__file__).parents[1] / "docs"
PAPERS = ("qw23", "wzcw23", "bzzdtcc24", "btzcc25", "qw22")
#: What each refuted mechanism is, and where it is printed.
PRINTED = {
    "paper-local": ("noise of scale 3H/ε on the counts of every user", "[QW23] §5.2, [BZZDTCC24] §5.2"),
    "paper-tree": ("noise of scale 3H·log K/ε on every node of a tree", "[QW23] §5.1, [WZCW23] Lem. 1"),
    "paper-integers": ("one number per user through a shuffler", "[BTZCC25] Alg. 4"),
    "paper-losses": ("noise of scale H/ε on every entry of a loss table", "[BZZDTCC24] Lem. 5.1"),
    "paper-truncation": ("thresholds that follow raw counts", "[WZCW23] Eq. 1, 3"),
}


def gathered(wanted: str, page: str) -> str:
    """What a marker of a page stands for."""
    if wanted == "audits":
        return audits()
    if wanted == "errata":
        return errata(page)
    name, _, pattern = wanted.removeprefix("rows ").partition(": ")
    return rows((DOCS / name).read_text(), pattern.strip(), name)


def rows(text: str, pattern: str, name: str) -> str:
    """The rows of a page's tables that match, each table with its head."""
    found: list[str] = []
    head: list[str] = []
    shown = False
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if not line.startswith("|"):
            head, shown = [], False
        elif not head:
            head = lines[i : i + 2]
        elif line not in head and re.search(pattern, line):
            found += [] if shown else ["", *head]
            found.append(line)
            shown = True
    if not found:
        raise ValueError(f"no row of {name} matches {pattern}")
    return "\n".join(found[1:]) + "\n"


def audits() -> str:
    """Every audit of the session, with the numbers that it printed."""
    lines = ["| what is printed | where | command | claimed ε | shown at least | exact for this attack | verdict |"]
    lines.append("|---|---|---|---|---|---|---|")
    for step in sessions.read("audits").steps:
        name = step.command.split()[2]
        what, where = PRINTED.get(name, ("ours", "–"))
        claimed, shown, exact = (
            re.findall(words + r" ε = (\S+)", step.printed)[0]
            for words in ("claims", "shown to leak at least", "exact for this attack:")
        )
        verdict = "**refuted**" if "REFUTED" in step.printed else "not refuted"
        exact = "∞" if exact == "inf" else exact
        lines.append(f"| {what} | {where} | `{step.command}` | {claimed} | {shown} | {exact} | {verdict} |")
    return "\n".join(lines) + "\n"


def errata(page: str) -> str:
    """The table of every paper's page, with its links as they are from here."""
    parts = []
    for name in PAPERS:
        text = (DOCS / "papers" / f"{name}.md").read_text()
        title = re.match(r"# (.*)", text)
        table = text.split("## Errata\n", 1)[1].split("\n## ", 1)[0].strip()
        here = posixpath.dirname(page)

        def moved(match: re.Match[str], here: str = here) -> str:
            target = posixpath.normpath(posixpath.join("papers", match[1]))
            return f"]({posixpath.relpath(target, here or '.')})"

        table = re.sub(r"\]\((?!#)([^)]+)\)", moved, table)
        parts.append(f"### {title[1]}\n\nLine by line: [{name.upper()}](papers/{name}.md).\n\n{table}\n")
    return "\n".join(parts)
