"""What the site is made of besides docs/: proof notes, the pages of the root, and the source that pages link to.

Pages keep links that work in the tree (`../src/discreet/theory.py`); here they become links of the site.
"""

from __future__ import annotations

import ast
import functools
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import gathering
import mathematics
import reference

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "discreet"
PROOFS = "proofs"
ROOT_PAGES = {f"{name}.md": f"{name.lower()}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")}
LINK = re.compile(r"(?<!\\)(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[ \t]*$", re.M | re.S)
#: Tests tell examples apart by a second word after the language, which is none of the reader's concern.
SECOND_WORD = re.compile(r"^(```+\w+) [\w-]+$", re.M)
NOTE_NAME = re.compile(r"(?<![\w/`(\[.-])((?:[\w]+/)*\w+)\.md(?!\w|\))")
CODE_NAME = re.compile(r"`((?:[\w]+/)*\w+\.py)`")
#: A list right below a paragraph is one in the tree; Python-Markdown wants an empty line before it.
LIST_BELOW_TEXT = re.compile(r"^(?![ \t]|[-*] |\d+\. |\||$)(.*\S.*)\n(?=[-*] |1\. )", re.M)
#: Parts of a page that are taken from others when the site is built, so that nothing is written down twice.
MARKER = re.compile(r"^<!-- (rows [\w./-]+: .+|audits|errata) -->$", re.M)
COMMAND = re.compile(r"(?<!\[)`discreet ([a-z -]+?)`(?!\])")
HTML_COMMENT = re.compile(r"<!--.*?-->", re.S)


def notes() -> dict[str, str]:
    """Proof notes: path from the root → page of the site."""
    found = {}
    for path in sorted(SOURCE.rglob("*.md")):
        found[path.relative_to(ROOT).as_posix()] = f"{PROOFS}/{path.stem.replace('_', '-')}.md"
    assert len(set(found.values())) == len(found), "two proof notes have one name"
    return found


@functools.cache
def homes() -> dict[str, str]:
    """Path from the root → page of the site, of all pages that are not in docs/."""
    return {**notes(), **ROOT_PAGES}


@functools.cache
def origins() -> dict[str, str]:
    """Page of the site → path from the root."""
    return {page: path for path, page in homes().items()}


@functools.cache
def reference_pages() -> dict[str, str]:
    return reference.pages()


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """The text with everything changed but fenced code and comments."""
    kept = sorted(
        (match.span() for pattern in (FENCE, HTML_COMMENT) for match in pattern.finditer(markdown)),
    )
    parts, at = [], 0
    for start, end in kept:
        if start < at:
            continue
        parts += [change(markdown[at:start]), markdown[start:end]]
        at = end
    return "".join([*parts, change(markdown[at:])])


# Files ------------------------------------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """`folder/*` in the navigation stands for all pages of that folder that it does not name."""
    config.nav = _unfolded(config.nav or [], set(re.findall(r"[\w/-]+\.md", str(config.nav))))
    return config


def _unfolded(entries: list[Any], named: set[str]) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry.endswith("/*"):
            found += [page for page in _all_of(entry.removesuffix("/*")) if page not in named]
        elif isinstance(entry, dict):
            ((title, inside),) = entry.items()
            inside = _unfolded(inside, named) if isinstance(inside, list) else inside
            found += [{title: inside}] if inside else []
        else:
            found.append(entry)
    return found


def _all_of(folder: str) -> Iterator[str]:
    made = [page for page in (*homes().values(), *reference_pages()) if posixpath.dirname(page) == folder]
    there = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / folder).glob("*.md")]
    yield from sorted({*made, *there}, key=lambda page: (not page.endswith(("/index.md", "/README.md")), page))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, page in homes().items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))
    for page, content in reference_pages().items():
        files.append(File.generated(config, page, content=content))
    for path in sorted(_linked_sources(files)):
        files.append(File.generated(config, _source_page(path), content=_listing(path)))
    files.append(File.generated(config, "site.css", content=(ROOT / "website" / "site.css").read_text()))
    return files


def _source_page(path: str) -> str:
    return f"source/{path}.md"


def _linked_sources(files: Files) -> set[str]:
    """Files of the tree that some page links to and that are no pages themselves."""
    found = set()
    for file in files.documentation_pages():
        for path in _targets(file.src_uri, file.content_string):
            if path not in homes() and not path.startswith("docs/") and (ROOT / path).is_file():
                found.add(path)
    return found


def _targets(page: str, markdown: str) -> Iterator[str]:
    found: list[str] = []

    def look(text: str) -> str:
        found.extend(match[3] for match in LINK.finditer(_with_names(page, text)))
        return text

    outside_code(markdown, look)
    for target in found:
        if (path := _in_tree(page, target.partition("#")[0])) is not None:
            yield path


def _in_tree(page: str, target: str) -> str | None:
    """What a link of a page leads to, as a path from the root; None where it leads out or within the page."""
    if not target or ":" in target or target.startswith("/"):
        return None
    here = posixpath.dirname(origins().get(page, f"docs/{page}"))
    path = posixpath.normpath(posixpath.join(here, target))
    return None if path.startswith("..") else path


def _listing(path: str) -> str:
    text = (ROOT / path).read_text()
    kind = {".py": "python", ".toml": "toml", ".ts": "typescript"}.get(Path(path).suffix, "text")
    fence = "`" * 6
    head = f"---\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n# {Path(path).name}\n\n`{path}`\n\n"
    return f'{head}{fence}{kind} linenums="1"\n{text.rstrip()}\n{fence}\n'


# Links ------------------------------------------------------------------------------------------------------------


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    if here.startswith("source/"):
        return markdown

    markdown = SECOND_WORD.sub(r"\1", markdown)
    if not here.startswith("reference/"):
        markdown = MARKER.sub(lambda match: gathering.gathered(match[1], here), markdown)

    def changed(text: str) -> str:
        spaced = LIST_BELOW_TEXT.sub(r"\1\n\n", _with_names(here, text))
        linked = LINK.sub(lambda match: _of_the_site(here, match), spaced)
        return COMMAND.sub(lambda match: _with_command(here, match), linked)

    return outside_code(markdown, changed)


def _with_command(page: str, match: re.Match[str]) -> str:
    """The name of a command is a link to its page."""
    goal = f"reference/commands/{match[1].replace(' ', '-')}.md"
    if goal not in reference_pages() or goal == page:
        return match[0]
    return f"[{match[0]}]({posixpath.relpath(goal, posixpath.dirname(page) or '.')})"


def _with_names(page: str, text: str) -> str:
    """In proof notes the bare name of a note, or of a module, is a link to it."""
    origin = origins().get(page)
    if origin is None or not page.startswith(f"{PROOFS}/"):
        return text

    def note(match: re.Match[str]) -> str:
        path = _named(origin, f"{match[1]}.md")
        return f"[{match[0]}]({posixpath.relpath(path, posixpath.dirname(origin))})" if path else match[0]

    def module(match: re.Match[str]) -> str:
        path = _named(origin, match[1])
        return f"[{match[0]}]({posixpath.relpath(path, posixpath.dirname(origin))})" if path else match[0]

    return CODE_NAME.sub(module, NOTE_NAME.sub(note, text))


@functools.cache
def _named(origin: str, name: str) -> str | None:
    """The file that a note means: beside it, else the one of that name."""
    for base in (ROOT / posixpath.dirname(origin), SOURCE, ROOT):
        if (base / name).is_file():
            return (base / name).resolve().relative_to(ROOT).as_posix()
    found = [path for path in SOURCE.rglob(Path(name).name) if path.as_posix().endswith(f"/{name}")]
    return found[0].relative_to(ROOT).as_posix() if len(found) == 1 else None


def _of_the_site(page: str, match: re.Match[str]) -> str:
    mark, label, target = match.groups()
    name, hash_mark, anchor = target.partition("#")
    path = _in_tree(page, name)
    if path is None:
        return match[0]
    if path in homes():
        goal = homes()[path]
    elif path.startswith("docs/"):
        goal = path.removeprefix("docs/")
        if (ROOT / path).is_dir():
            goal = f"{goal}/README.md"
            if not (ROOT / "docs" / goal).is_file():
                return label
    elif (ROOT / path).is_file():
        goal = _source_page(path)
        line = line_of(path, label.strip("`")) if path.endswith(".py") else None
        hash_mark, anchor = ("#", f"__codelineno-0-{line}") if line else ("", "")
    else:
        return match[0]
    shown = posixpath.relpath(goal, posixpath.dirname(page) or ".")
    return f"{mark}[{label}]({shown}{hash_mark}{anchor})"


@functools.cache
def _lines(path: str) -> dict[str, int]:
    found: dict[str, int] = {}

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
                found[f"{prefix}{child.name}"] = child.lineno
                walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                found[f"{prefix}{child.target.id}"] = child.lineno

    walk(ast.parse((ROOT / path).read_text()), "")
    return found


def line_of(path: str, symbol: str) -> int | None:
    return _lines(path).get(symbol)


# Mathematics ------------------------------------------------------------------------------------------------------


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    html = LONG_NAME.sub(lambda match: match[0].replace("_", "_<wbr>"), html)
    html = SPOKEN.sub(lambda match: OPTION.sub(r'<span class="option">\g<0></span>', match[0]), html)
    return PICTURE.sub(_drawn, mathematics.rendered(html))


#: Names of tests are as long as sentences; they may be broken after a word.
SPOKEN = re.compile(r"<code>[^<\n]*</code>")
OPTION = re.compile(r"--[a-z][\w-]*|\b[a-z]+-[a-z-]+\b")
LONG_NAME = re.compile(r"<code>test_\w+</code>")


#: A drawing is put into the page, where it has the page's colours, light or dark.
PICTURE = re.compile(r'<p><img alt="[^"]*" src="(?:\.\./)*pictures/(\w+)\.svg" ?/?></p>')


def _drawn(match: re.Match[str]) -> str:
    drawn = (ROOT / "docs" / "pictures" / f"{match[1]}.svg").read_text()
    return f'<figure class="drawn">{drawn}</figure>'
