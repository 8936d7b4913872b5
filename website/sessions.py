"""Commands and what they print, for the pages of the command line.

python website/sessions.py [--check] [NAME …]

A folder of website/sessions holds a session and the files it needs. `# exact` in its first line: `make docs` runs it
again, and a test compares. `# kept: WHY`: it takes long, or differs every time; it is run again by its name.
`# files: PAGE` in its second line: the blocks of that page that have a title are files, too.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from discreet.cli import app

ROOT = Path(__file__).parents[1]
SESSIONS = ROOT / "website" / "sessions"
WIDTH = "80"
PLAIN = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1"}


class Step(NamedTuple):
    """A command as typed, without the program's prompt, and what it printed."""

    command: str
    printed: str


class Session(NamedTuple):
    """Commands that follow each other in one folder."""

    name: str
    kind: str
    page: str  # whose titled blocks are files, "" if there is none
    steps: tuple[Step, ...]

    @property
    def exact(self) -> bool:
        return self.kind == "exact"

    def text(self) -> str:
        head = f"# {self.kind}\n" + (f"# files: {self.page}\n" if self.page else "")
        return head + "".join(f"$ {each.command}\n{each.printed}" for each in self.steps)

    def files(self) -> dict[str, str]:
        """What its commands need: name → text."""
        beside = {path.name: path.read_text() for path in sorted((SESSIONS / self.name).iterdir())}
        page = (ROOT / self.page).read_text() if self.page else ""
        blocks = re.findall(r'^```\w+ title="(.*?)"\n(.*?)^```', page, re.M | re.S)
        return {name: text for name, text in [*beside.items(), *blocks] if name != "session.txt"}


def read(name: str) -> Session:
    head, *parts = re.split(r"^\$ ", (SESSIONS / name / "session.txt").read_text(), flags=re.M)
    kind, *more = (line.removeprefix("# ") for line in head.splitlines())
    page = "".join(more).removeprefix("files: ")
    return Session(name, kind, page, tuple(Step(*part.partition("\n")[::2]) for part in parts))


def every() -> list[Session]:
    return [read(path.parent.name) for path in sorted(SESSIONS.glob("*/session.txt"))]


def played(session: Session) -> Session:
    """The session run again, in a new folder with its files."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name, text in session.files().items():
            Path(name).write_text(text)
        stage = _Stage(Path(folder))
        try:
            steps = [Step(each.command, stage.run(each.command)) for each in session.steps]
        finally:
            stage.close()
        return session._replace(steps=tuple(steps))


class _Stage:
    """Runs commands; those that end with & go on until the session is over."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.servers, self.token = folder, [], ""

    def run(self, command: str) -> str:
        words = shlex.split(command.replace("APP_TOKEN", self.token or "APP_TOKEN"))
        if words[-1] == "&":
            return self.shown(self.started(words[1:-1]))
        if words[0] == "python":
            subprocess.run([sys.executable, *words[1:]], check=True, env=self.env())
            return ""
        done = CliRunner(env=PLAIN).invoke(app, words[1:])
        if done.exit_code:
            raise SystemExit(f"{command} ended with {done.exit_code}: {done.output}")
        if found := re.search(r"^app token: (\S+)", done.output, re.M):
            self.token = found[1]
        return self.shown(done.output)

    def env(self) -> dict[str, str]:
        return {**os.environ, **PLAIN, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}

    def started(self, words: list[str]) -> str:
        """What a server said until it answered."""
        out = self.folder / f"server-{len(self.servers)}.txt"
        with out.open("w") as written:
            program = [sys.executable, "-c", "from discreet.cli import main; main()", *words]
            self.servers.append(subprocess.Popen(program, stdout=written, stderr=written, env=self.env()))
        port, until = int(words[words.index("--port") + 1]), time.monotonic() + 60.0
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        time.sleep(1.0)
        return out.read_text()

    def shown(self, text: str) -> str:
        """Without tokens, and without what is of this machine only."""
        text = re.sub(r"((?:token:|#key=|/)[ ]?[\w-]{8})[\w-]{12,}", r"\1…", text)
        text = text.replace(str(self.folder), "/home/you").replace(str(ROOT), "/home/you/discreet")
        text = re.sub(r"^compiling numerical kernels.*\n", "", text, flags=re.M)
        text = re.sub(r"Linux-\S+", "Linux", text)
        text = text.replace("\r", "\n")
        return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())

    def close(self) -> None:
        for server in self.servers:
            server.terminate()
            server.wait(60)


def comparable(text: str) -> str:
    """Without what differs from one machine to another: how long it took."""
    text = re.sub(r"(episodes per second +│) [\d,]+ +│", r"\1 # │", text)
    return re.sub(r"\b\d+(\.\d+)? (s|ms|seconds|minutes)\b", "# s", text)


def main() -> None:
    named = [word for word in sys.argv[1:] if not word.startswith("-")]
    for session in every():
        if session.name in named or (session.exact and not named):
            again = played(session)
            if comparable(again.text()) == comparable(session.text()):
                continue
            if "--check" in sys.argv:
                raise SystemExit(f"website/sessions/{session.name} is stale; run make docs")
            (SESSIONS / session.name / "session.txt").write_text(again.text())
            print(f"written: {session.name}")


if __name__ == "__main__":
    main()
