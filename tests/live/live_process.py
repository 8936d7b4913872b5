"""A server as `discreet serve` runs it, in a process group of its own, with the clock of a file and without noise.

A program, too: `python live_process.py '{"toml": …, "port": …, "clock": …, "tick": …}'` serves, and
`python live_process.py` forks such a server for every line on its input, so that a restart does not have to import
everything again. What is simulated is put in from here: no option of the product can do it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ctypes
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from live_people import Clock, Place, Silent, terms

from discreet.device.announcements import Entry
from discreet.device.shuffled import ShuffledEncoder
from discreet.live import desk, helper_server, server, shuffler_server
from discreet.live.charter import LEARNERS, Charter
from discreet.live.desk import Desk
from discreet.live.learning import Course
from discreet.live.sqlite import SqliteStore, SqliteTransaction
from discreet.privacy.noise import NoiseSource
from discreet.vdaf import Prio3Histogram
from ports import free_port
from shuffle_world import bundle, shuffled

REFUSED = 2
#: Seconds after which a server that does not answer will not.
PATIENCE = 120.0
#: A child is killed when its parent dies (prctl).
PR_SET_PDEATHSIG = 1


def simulated(clock: Clock | None, noise: bool, role: str) -> None:
    """Every desk of this process reads this clock, and adds no noise. A shuffler permutes as it would."""
    told: dict[str, Any] = {} if clock is None else {"clock": clock}
    if not noise:
        ShuffledEncoder.silent = bundle  # type: ignore[method-assign]
        if role != "shuffler":
            NoiseSource.secure = staticmethod(Silent)  # type: ignore[assignment, method-assign]
    usual = Desk.__init__

    def begin(self: Desk, *parts: Any, **options: Any) -> None:
        usual(self, *parts, **options | told)

    Desk.__init__ = begin  # type: ignore[method-assign]


def lazy_store() -> None:
    """A mutant: it commits every eighth transaction only, and answers all of them."""

    @contextlib.contextmanager
    def writing(self: SqliteStore) -> Iterator[SqliteTransaction]:
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")
        yield SqliteTransaction(self._db)
        if next(count) % 8 == 0:
            self._db.execute("COMMIT")

    count = itertools.count()
    SqliteStore.writing = writing  # type: ignore[method-assign]


def serve(
    toml: str,
    port: int,
    clock: str | None = None,
    tick: float = 0.02,
    noise: bool = False,
    lazy: bool = False,
    role: str = "leader",
    dumps: bool = False,
) -> int:
    """`lazy` and `dumps` are mutants: the second lets a crash leave a copy of the memory."""
    os.chdir(Path(toml).parent)  # where such a copy would be
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if dumps:
        server.leave_no_dumps = lambda: None
    simulated(None if clock is None else Clock(Path(clock)), noise, role)
    if lazy:
        lazy_store()
    try:
        if role == "helper":
            helper_server.run(toml, port=port)
        elif role == "shuffler":
            shuffler_server.run(toml, port=port)
        else:
            server.run(toml, port=port, tick=tick)
    except ValueError as error:
        sys.stderr.write(f"refused: {error}\n")
        return REFUSED
    return 0


def fork(order: dict[str, Any]) -> int:
    """A server in a child, the leader of its own group."""
    child = os.fork()
    os.setpgid(child, child)  # on both sides: it may be killed at once
    if child:
        return child
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    out = os.open(order.pop("out"), os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    code = 1
    try:
        if held := order.pop("held", None):
            Path(held).read_bytes()  # a pipe: until somebody lets it go
        code = serve(**order)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        os._exit(code)


def warm() -> None:
    """Load what the first plans load, compiled code above all."""
    import granian.server.mp  # noqa: F401

    joint = (terms(learner=learner) for learner, models in LEARNERS.items() if "joint" in models)
    for told in (*joint, shuffled()):
        course = Course.begun(Charter.from_document(tomllib.loads(told)), bytes(32))
        announcement = course.announcement(1, 0)
        empty = np.zeros(announcement.encoder.size, np.int64)
        course.told(announcement).released(1, announcement.size, empty)
    scheme, nonce = Prio3Histogram(2, 5, 2), bytes(16)
    public, (share, _) = scheme.shard(b"", 0, nonce)
    scheme.verify_init(bytes(32), b"", 0, nonce, public, share)


def main() -> None:
    if len(sys.argv) > 1:
        sys.exit(serve(**json.loads(sys.argv[1])))
    warm()
    for line in sys.stdin:
        order = json.loads(line)
        told = os.waitpid(order["wait"], 0)[1] if "wait" in order else fork(order)
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()


# For tests ----------------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), str(Path(desk.__file__).parents[2])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


class Nursery:
    """A process that has imported everything and forks servers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )

    def ask(self, order: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@dataclass
class Server:
    """A served deployment that can be killed and started again."""

    nursery: Nursery
    toml: Path
    clock: Clock | None
    noise: bool = False
    tick: float = 0.02
    lazy: bool = False
    role: str = "leader"
    dumps: bool = False
    pid: int = 0
    port: int = 0
    starts: int = 0
    tracer: subprocess.Popen[bytes] | None = None

    @property
    def out(self) -> Path:
        return self.toml.with_name("server.out")

    def start(self, trace: list[str] | None = None) -> None:
        """`trace`: what strace is told to do to it from its first moment on."""
        self.port = self.port or free_port()
        self.starts += 1
        clock = None if self.clock is None else str(self.clock.path)
        order = {"toml": str(self.toml), "port": self.port, "clock": clock, "tick": self.tick, "out": str(self.out)}
        kind = {"noise": self.noise, "lazy": self.lazy, "role": self.role, "dumps": self.dumps}
        if trace is None:
            self.pid = self.nursery.ask(order | kind)
            return
        held = self.toml.with_name("held")
        held.unlink(missing_ok=True)
        os.mkfifo(held)
        self.pid = self.nursery.ask(order | kind | {"held": str(held)})
        out = self.toml.with_name("strace.out")
        with out.open("wb") as told:
            program = ["strace", "-f", "-o", os.devnull, *trace, "-p", str(self.pid)]
            self.tracer = subprocess.Popen(program, stderr=told)
        while b"attached" not in out.read_bytes():
            assert self.tracer.poll() is None, out.read_text()
            time.sleep(0.01)
        held.write_bytes(b"go")
        held.unlink()

    def ended(self) -> int:
        """Wait for its end: the exit code, negative for a signal."""
        code = os.waitstatus_to_exitcode(self.nursery.ask({"wait": self.pid}))
        if self.tracer is not None:
            self.tracer.wait()
        self.pid, self.tracer = 0, None
        return code

    def kill(self) -> None:
        """kill −9 of the whole group, and wait until nobody of it is left."""
        group = self.pid
        os.killpg(group, signal.SIGKILL)
        self.ended()
        while any(_alive(member) for member in members(group)):
            time.sleep(0.002)

    def stop(self) -> int:
        os.kill(self.pid, signal.SIGTERM)
        return self.ended()


def members(group: int) -> list[int]:
    """Processes of a group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[2]) == group:
                found.append(int(folder.name))
    return found


def _alive(pid: int) -> bool:
    """Its first thread may have ended before others, which hold the port until they have ended, too."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return told[0] not in "ZX" or int(told[17]) > 1  # its state, and how many threads it has


class Down(Exception):
    """No answer, or one that says that nothing was kept."""


class Http:
    """A deployment over HTTP. `broken` counts messages whose answer never came."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self.broken = 0
        self.statuses: dict[int, int] = {}

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One message, once."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            raise Down from None
        try:
            content = b"" if body is None else json.dumps(body).encode()
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: {len(content)}\r\n"
            )
            kind = "Content-Type: application/json\r\n" if body is not None else ""
            writer.write(f"{head}{kind}Authorization: Bearer {self._token}\r\n\r\n".encode() + content)
            await writer.drain()
            answer = await reader.read()
        except OSError:
            self.broken += 1
            raise Down from None
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        header, found, content = answer.partition(b"\r\n\r\n")
        told = [line for line in header.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if not found or not told or len(content) < int(told[0].split(b":")[1]):
            self.broken += 1
            raise Down
        status = int(header.split()[1])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        return status, json.loads(content)

    async def _answered(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The same message until it is answered."""
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(Down):
                    status, told = await self.ask(method, path, body)
                    if status != 503:
                        return status, told
                await asyncio.sleep(0.01)

    async def enrol(self, name: str) -> Place | None:
        status, told = await self._answered("POST", "/v1/enrol", {"user": name})
        assert status == 200, told
        if "spectator" in told:
            return None
        ticket = bytes.fromhex(told["ticket"])
        return Place(ticket, told["epoch"], told["slot"], told["expires"], told["announcement"], told["again"])

    async def report(self, name: str, ticket: bytes, payload: bytes) -> bool | None:
        body = {"user": name, "ticket": ticket.hex(), "payload": base64.b64encode(payload).decode()}
        status, told = await self._answered("POST", "/v1/report", body)
        if status == 410:
            return None
        assert status == 200, told
        return bool(told["again"])

    async def log(self) -> list[Entry]:
        entries: list[Entry] = []
        while True:
            _, told = await self._answered("GET", f"/v1/log?from={len(entries)}")
            if not told["entries"]:
                return entries
            entries += [Entry.from_json(entry) for entry in told["entries"]]

    async def ready(self) -> None:
        await self._answered("GET", "/v1/health")


if __name__ == "__main__":
    main()
