"""What all commands share: two streams, one way to fail, a progress bar, a word while code is compiled."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from rich.console import Console
from typer.core import TyperGroup

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


def note(text: str) -> None:
    """To standard error: everything that is not a result."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)


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
        note("; ".join(["interrupted", *kept, *notes(error)]))
        sys.exit(INTERRUPTED)
    sentence = mistake(error)
    if sentence is None:
        raise error
    note(f"Error: {'; '.join([sentence, *notes(error)])}")
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
    if hasattr(error, "format_message"):
        return str(error.format_message())
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


def watched() -> bool:
    """Whether somebody sees the bar."""
    return Console(stderr=True).is_terminal


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar over episodes × seeds on standard error, moved at most ten times a second; none where nobody watches."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
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
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(f"{text} …"):
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
