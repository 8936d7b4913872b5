"""Pages for people: one look for all of them, nothing loaded from elsewhere, everything that is said escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any


@cache
def asset(name: str) -> str:
    """A file of this folder: a template, a style or a script."""
    return (files(__name__) / name).read_text(encoding="utf-8")


def style(*names: str) -> str:
    """The look that all pages share, then a page's own."""
    return "".join(asset(f"{name}.css") for name in ("look", *names))


def filled(name: str, **parts: str) -> str:
    """A template with its parts, all of which must be markup already."""
    return Template(asset(f"{name}.html")).substitute(parts)


def script(name: str) -> str:
    """A page's script, after the one that all of them share."""
    return asset("theme.js") + asset(f"{name}.js")


def framed(name: str, first: str, title: str, facts: str, styles: Sequence[str], **parts: str) -> str:
    """A whole page around a template: head, look, these styles, the report's script. `first` is its main section."""
    own = script("report")
    return filled(
        "frame",
        title=escaped(title),
        facts=escaped(facts),
        first=first,
        policy=escaped(script_policy(own)),
        style=style("controls", *styles),
        script=own,
        body=filled(name, **parts),
    )


def script_policy(code: str, *others: str) -> str:
    """What a browser is told to allow: this script, and nothing from anywhere else but for `others`."""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    allowed = f"script-src 'sha256-{digest}'", "style-src 'unsafe-inline'", "img-src data:", "base-uri 'none'"
    return "; ".join(("default-src 'none'", *allowed, *others))


def escaped(value: Any) -> str:
    return html.escape(str(value))


def paragraphs(lines: Iterable[str]) -> str:
    return "".join(f"<p>{escaped(line)}</p>" for line in lines)


def listed(lines: Iterable[str], kind: str = "ul") -> str:
    return f"<{kind}>" + "".join(f"<li>{escaped(line)}</li>" for line in lines) + f"</{kind}>"


def facts(mapping: Mapping[str, Any]) -> str:
    """Names and values as a table of two columns."""
    rows = (
        f"<tr><th scope='row'>{escaped(name)}</th><td>{escaped(worded(value))}</td></tr>"
        for name, value in mapping.items()
    )
    return f"<div class='wide'><table>{''.join(rows)}</table></div>"


def table(caption: str, columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A table that can be sorted: numbers by their value, everything else by its text."""
    head = "".join(f"<th scope='col'><button type='button'>{escaped(name)}</button></th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, line))}</tr>" for line in lines)
    return (
        f"<div class='wide'><table class='sortable'><caption>{escaped(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


class Fixed(float):
    """A number that is shown with four decimals, so that a column can be compared at a glance."""


class Range(str):
    """Two numbers in one cell."""


class Command(str):
    """What somebody may type; it is broken between words only."""


def _cell(value: Any) -> str:
    if isinstance(value, Command):
        return f"<td><code>{' '.join(f'<span>{escaped(word)}</span>' for word in value.split(' '))}</code></td>"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        exact = float(value) if isinstance(value, float) else value
        return f"<td class='number' data-value='{exact!r}'>{escaped(worded(value))}</td>"
    look = " class='number'" if isinstance(value, Range) else ""
    return f"<td{look}>{escaped(worded(value))}</td>"


def worded(value: Any) -> str:
    """A value for the eye; what does not exist is a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Fixed):
        return f"{value:.4f}"
    if isinstance(value, float):
        return "∞" if math.isinf(value) else f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return ", ".join(map(worded, value)) if isinstance(value, (list, tuple)) else str(value)
