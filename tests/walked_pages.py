"""Pages that are walked through as a reader would: every command and program in order, its output beside the page's.

- A block with `title="NAME"` after its language is a file of that name; a second one of that name replaces it.
- Of a block of `console`, lines that begin with `$ ` are typed into one shell per page; the lines after one are all
  that it prints. `# exits with N` says which exit code is meant; without it, 0. What ends in `&` stays running, and
  the walk goes on once it has printed what is shown.
- A block of `python` without a title runs in one namespace per page; one of `text` after it is all that it prints.
- `…` stands for anything within a line and the spaces around it; a line that is nothing else, for any lines.
- Ports 8000 to 8099 are replaced by free ones.
- A block after `<!-- not run -->` is only shown, as are blocks of any other language.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import IO

from ports import free_port

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r'^(<!-- not run -->\n)?```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)
PORT = re.compile(r"\b80\d\d\b")
#: What no page shows: bash on a job that was killed, whenever it notices; the first run of a kernel after installing.
UNSHOWN = re.compile(r"bash: line \d+: +\d+ (Killed|Terminated) |compiling numerical kernels ")
EXIT = re.compile(r"# exits with (\d+)$")
#: No command of a page may take longer.
SECONDS = 300.0


@dataclass(frozen=True)
class Block:
    kind: str
    title: str
    body: str


def blocks(page: str) -> list[Block]:
    return [Block(kind, title, body) for skipped, kind, title, body in BLOCK.findall(page) if not skipped]


def typed(body: str) -> list[tuple[str, list[str]]]:
    """Commands of a block, each with the lines it is shown to print; `\\` goes on in the next line."""
    found: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        if found and not found[-1][1] and found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def agrees(shown: list[str], printed: list[str]) -> bool:
    """All that was printed is shown, where `…` stands for what varies."""
    pattern = ""
    for line in shown:
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(map(re.escape, re.split(" *… *", line.rstrip()))) + "\n"
    return re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in printed)) is not None


def free_ports(page: str) -> dict[str, str]:
    """For every port that the page names, one that nobody uses."""
    return {port: str(free_port()) for port in sorted(set(PORT.findall(page)))}


def shown_of(lines: list[str]) -> list[str]:
    return [line for line in lines if not UNSHOWN.match(line)]


class Shell:
    """One bash, in which variables, jobs and the folder stay from command to command."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.jobs = folder, 0
        here = Path(sys.executable).parent
        path = os.pathsep.join([str(here), os.environ.get("PATH", "")])
        python = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        plain = {"PYTHONUNBUFFERED": "1", "COLUMNS": "120", "PYTEST_ADDOPTS": ""}
        env = {**os.environ, **plain, "PATH": path, "PYTHONPATH": python}
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=env,
            start_new_session=True,
        )

    def end(self, *_: object) -> None:
        """The shell and everything that it has started, which is a process group of its own."""
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(20)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.stream(self.process.stdin).close()
        self.stream(self.process.stdout).close()
        self.process.wait()

    @staticmethod
    def stream(stream: IO[str] | None) -> IO[str]:
        assert stream is not None
        return stream

    def run(self, command: str) -> tuple[list[str], int]:
        """What it prints, and its exit code."""
        wanted, out = self.stream(self.process.stdin), self.stream(self.process.stdout)
        watch = threading.Timer(SECONDS, os.killpg, (self.process.pid, signal.SIGKILL))
        watch.start()
        try:
            wanted.write(f"{command}\nprintf '\\n@@ %s\\n' $?\n")
            wanted.flush()
            lines: list[str] = []
            for line in out:
                if line.startswith("@@ "):
                    # the line break before the mark ends a last line that has none
                    return shown_of(lines[:-1] if lines and not lines[-1] else lines), int(line[3:])
                lines.append(line.rstrip("\n"))
        finally:
            watch.cancel()
        raise AssertionError(
            f"$ {command}\ndid not end within {SECONDS:.0f} s, or ended the shell:\n" + "\n".join(lines)
        )

    def leave_running(self, command: str, shown: list[str]) -> list[str]:
        """Start it, and wait until it has printed what is shown."""
        self.jobs += 1
        output = self.folder / f".job-{self.jobs}"
        self.run(f"{command.removesuffix('&')} > {output} 2>&1 &")
        end = time.monotonic() + SECONDS
        while True:
            printed = shown_of(output.read_text().splitlines()) if output.exists() else []
            if agrees([*shown, "…"], printed) or time.monotonic() > end:
                return printed
            time.sleep(0.05)


@contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    opened = Shell(folder)
    try:
        yield opened
    finally:
        opened.end()


@contextmanager
def prompt(folder: Path) -> Iterator[None]:
    """Programs import what is in the folder, and nobody else does after them."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}"):
                del sys.modules[name]


def differs(what: str, shown: list[str], printed: list[str]) -> str:
    return "\n".join([what, "--- the page shows", *shown, "--- it printed", *printed])


def walk(page: str, folder: Path) -> list[str]:
    """Everything that the page asks for, done in the folder; the commands. Fails where the page is wrong."""
    ports = free_ports(page)
    page = PORT.sub(lambda match: ports[match[0]], page)
    commands: list[str] = []
    names: dict[str, object] = {"__name__": "__main__"}
    found = blocks(page)
    with shell(folder) as bash, prompt(folder):
        for i, block in enumerate(found):
            if block.title:
                (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.title).write_text(block.body)
            elif block.kind == "python":
                said = StringIO()
                with redirect_stdout(said):
                    exec(compile(block.body, f"block {i}", "exec"), names)
                after = found[i + 1] if i + 1 < len(found) else block
                shown = after.body.splitlines() if (after.kind, after.title) == ("text", "") else []
                printed = said.getvalue().splitlines()
                assert agrees(shown, printed), differs(block.body, shown, printed)
            elif block.kind == "console":
                for command, shown in typed(block.body):
                    commands.append(command)
                    if command.endswith("&"):
                        printed, code = bash.leave_running(command, shown), 0
                        shown = [*shown, "…"]
                    else:
                        printed, code = bash.run(command)
                    meant = EXIT.search(command)
                    assert code == int(meant[1] if meant else 0), differs(f"$ {command}: {code}", shown, printed)
                    assert agrees(shown, printed), differs(f"$ {command}", shown, printed)
    return commands
