"""What all commands share: two streams, one way to fail, a progress bar, a word while code is compiled."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from rich.console import Console
from typer.core import TyperGroup

#: Exit codes; 74 is that of a server whose store has failed.
SAID_NO = 1
WRONG_INPUT = 2
INTERRUPTED = 130
NOBODY_READS = 141
QUERY_STOPPED = "Query interrupted"  # what DuckDB makes of Ctrl-C
#: What an interrupted command leaves, where it is not nothing.
KEPT = dict.fromkeys(("run", "demo", "reproduce", "sweep"), "seeds that were finished are kept")


class Output(Console):
    """Standard output; whether somebody still reads it is for the command to say, not for the console."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def say(*things: Any) -> None:
    """To standard output: results only."""
    Output(highlight=False, soft_wrap=True).print(*things, markup=False)


def show(renderable: Any, wide: bool = False) -> None:
    """A table, to standard output; a wide one is folded for terminals only."""
    console = Output(highlight=False)
    if wide and not console.is_terminal:
        console.width = 200
    console.print(renderable)


_hushed = False


def hush(quiet: bool) -> None:
    """Whether this command is to say its result only."""
    global _hushed
    _hushed = quiet


def note(text: str, always: bool = False) -> None:
    """To standard error: everything that is not a result; with `--quiet` only what must `always` be heard."""
    if always or not _hushed:
        Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)


def warn(text: str) -> None:
    """To standard error, whoever listens."""
    note(f"warning: {text}", always=True)


def say_json(document: Mapping[str, Any]) -> None:
    """Exactly one strict JSON object (no NaN, no Infinity) on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


class Commands(TyperGroup):
    """Turns mistakes of the user, and a disk, a memory or a file that fails, into one sentence and exit code 2; what
    else goes wrong keeps its traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            status = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
        except Exception as error:
            _leave(error.reason if isinstance(error, _Outside) else error, sys.argv[1:] if args is None else args)
        if isinstance(status, int) and status != 0:
            sys.exit(status)
        return status

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """A misspelt command is answered with the nearest one."""
        if args and self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 2)
            raise ValueError(_unknown("option" if args[0].startswith("-") else "command", args[0], near, ctx))
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """A group of commands without one shows its help."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            ctx.get_help()
            raise SystemExit(WRONG_INPUT)
        return super().parse_args(ctx, args)

    def invoke(self, context: Any) -> Any:
        """What typer would end without a word is passed on."""
        try:
            return super().invoke(context)
        except (KeyboardInterrupt, BrokenPipeError) as error:
            raise _Outside(error) from error


class _Outside(Exception):
    """Somebody else ended the command."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(reason)
        self.reason = reason


def _leave(error: BaseException, arguments: Sequence[str]) -> NoReturn:
    """End with one sentence, or raise what nobody expected."""
    if isinstance(error, BrokenPipeError):
        with suppress(OSError):  # what is left in the buffer has no reader either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(NOBODY_READS)
    if interrupted(error):
        kept = [KEPT[name] for name in arguments[:1] if name in KEPT]
        note("; ".join(["interrupted", *kept, *notes(error)]), always=True)
        sys.exit(INTERRUPTED)
    sentence = mistake(error)
    if sentence is None:
        raise error
    note(f"Error: {'; '.join([sentence, *notes(error)])}", always=True)
    sys.exit(WRONG_INPUT)


def notes(error: BaseException) -> list[str]:
    """What was added to an error on its way: that a budget is spent, that nothing was written."""
    return list(getattr(error, "__notes__", ()))


def interrupted(error: BaseException) -> bool:
    """Whether it was Ctrl-C, also as the database says it."""
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, RuntimeError) and str(error) == QUERY_STOPPED)


def mistake(error: BaseException) -> str | None:
    """What the user did wrong or the machine could not do, or None when it was neither.

    Usage errors of the command line know how to describe themselves; a ValueError is the user's when one of our own
    modules raised it to refuse an input (numpy and the like raise them for other reasons). None of the sentences says
    what a file holds.
    """
    if hasattr(error, "possibilities"):
        return _unknown("option", error.option_name, error.possibilities or (), getattr(error, "ctx", None))  # type: ignore[attr-defined]
    if type(error).__name__ == "Abort":
        return "nothing was done, for nobody answered"
    if hasattr(error, "param_type") and (lacks := getattr(error, "param", None)) is not None:
        what = f"the argument {lacks.name.upper()}" if lacks.param_type_name == "argument" else lacks.opts[0]
        return f"{what} is missing ({lacks.help.rstrip('.')})"
    if hasattr(error, "format_message"):
        return _plain(str(error.format_message()))
    if isinstance(error, UnicodeDecodeError):
        return f"a file is not text in {error.encoding} (byte {error.start}); save it as UTF-8"
    if isinstance(error, MemoryError):
        return "there is not enough memory for this; take fewer states, steps or jobs, or pool the steps"
    if isinstance(error, OSError) and error.errno:
        file = f"{error.filename}: " if isinstance(error.filename, (str, os.PathLike)) else ""
        return f"{file}{os.strerror(error.errno)}"
    if isinstance(error, ValueError):
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).startswith("discreet."):
            return str(error)
    return None


def _plain(text: str) -> str:
    """What is wrong with a value, in our words where the parser of the command line has others."""
    found = re.match(r"Invalid value for '(.*?)'.*: Input should be (?:a valid |one of )?(.*?)(?:, unable.*)?$", text)
    return text if found is None else f"{found[1]} has a wrong value; it must be {_kind(found[2])}"


def _kind(words: str) -> str:
    names = {"number": "a number", "integer": "a whole number", "boolean": "yes or no"}
    return names.get(words, words)


def _unknown(what: str, name: str, near: Sequence[str], context: Any) -> str:
    """That there is no such thing, and what may have been meant: first of all what begins like it."""
    if context is not None and what == "option":
        near = [said for option in context.command.params for said in option.opts if said.startswith(name)] or near
    if near:
        return f"there is no {what} {name}; did you mean {' or '.join(list(near)[:2])}?"
    return f"there is no {what} {name}; `{'discreet' if context is None else context.command_path} --help` lists them"


def watched() -> bool:
    """Whether somebody sees the bar."""
    return Console(stderr=True).is_terminal and not _hushed


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar over episodes × seeds on standard error, moved at most ten times a second; none where nobody watches."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not watched()) as bar:
        task = bar.add_task(description, total=total)
        waiting, shown = 0, time.monotonic()

        def advance(episodes: int) -> None:
            nonlocal waiting, shown
            waiting += episodes
            if (now := time.monotonic()) - shown > 0.1:
                bar.advance(task, waiting)
                waiting, shown = 0, now

        yield advance
        bar.advance(task, waiting)


@contextmanager
def working(text: str) -> Iterator[None]:
    """A spinner on standard error while something takes long; none where nobody watches."""
    if not watched():
        yield
        return
    with Console(stderr=True).status(f"{text} …"):
        yield


@contextmanager
def compilation_notice() -> Iterator[None]:
    """Say once why the first run starts slowly."""
    from numba.core import event

    class Notice(event.Listener):
        said = False

        def on_start(self, event: Any) -> None:
            if not self.said:
                self.said = True
                note("compiling numerical kernels (first run only) …")

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Notice()):
        yield
