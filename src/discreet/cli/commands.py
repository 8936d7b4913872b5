"""What every command has: `--quiet`, examples at the end of its help, and the old names of its options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from discreet.cli.terminal import Commands, hush, warn

Function = TypeVar("Function", bound=Callable[..., None])

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the result, and warnings: no progress, no notes.")]
#: What an option of a command was called before, and what to say instead. See "Words" in docs/commands.md.
RENAMED: dict[str, dict[str, str]] = {
    "run": {"--mode": "--constants"},
    "results": {"--role": "--only"},
    "suite run": {"--tuning": "--only tuning"},
    "suite compare": {"--csv": "--scores"},
    "calibrate": {"--losses": "--adversarial"},
    "fit": {"--mode": "--constants", "--known-successors": "--successors"},
    "deploy init": {"--check": "--dry-run"},
    "visit": {"--people": "--users"},
}


class Command(TyperCommand):
    """A command that still understands what its options were called, and says so once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        said = translated(ctx.command_path.partition(" ")[2], args, silent=ctx.resilient_parsing)
        return super().parse_args(ctx, said)


def translated(path: str, args: Sequence[str], silent: bool = False) -> list[str]:
    """The words of a command with the names that its options have now."""
    names, found = RENAMED.get(path, {}), list[str]()
    for i, word in enumerate(args):
        old, equals, value = word.partition("=")
        if word == "--":
            return [*found, *args[i:]]
        if new := names.get(old):
            if not silent:
                warn(f"{old} is called {new} now, and the old name will go")
            first, *others = new.split()
            found += [first + equals + value, *others]
        else:
            found.append(word)
    return found


def command(
    app: typer.Typer, name: str, panel: str | None = None, cls: type[TyperCommand] = Command
) -> Callable[[Function], Function]:
    """Make a function a command; what follows `Examples` in its docstring stands at the end of its help."""

    def register(function: Function) -> Function:
        told, examples = parts(inspect.getdoc(function) or "")
        app.command(name, cls=cls, help=told, epilog=examples, rich_help_panel=panel)(quietly(function))
        return function

    return register


def parts(text: str) -> tuple[str, str | None]:
    """Help and examples; lines of a paragraph are joined, for terminals are not as wide as the source."""
    paragraphs = [" ".join(map(str.strip, part.splitlines())) for part in text.split("\n\n")]
    at = next((i for i, part in enumerate(paragraphs) if part.startswith("[bold]Example")), len(paragraphs))
    return "\n\n".join(paragraphs[:at]), "\n\n".join(paragraphs[at:]) or None


def quietly(function: Callable[..., None]) -> Callable[..., None]:
    """The same command with `--quiet`."""

    @functools.wraps(function)
    def run(*given: Any, quiet: bool = False, **named: Any) -> None:
        hush(quiet)
        function(*given, **named)

    own = inspect.signature(function, eval_str=True)
    asked = inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, annotation=Quiet, default=False)
    known = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    run.__signature__ = own.replace(parameters=[*known, asked])  # type: ignore[attr-defined]
    return run


def group(text: str) -> typer.Typer:
    """A command of commands."""
    told, examples = parts(inspect.cleandoc(text))
    return typer.Typer(
        cls=Commands, add_completion=False, rich_markup_mode="rich", no_args_is_help=True, help=told, epilog=examples
    )
