"""A served deployment under load: durable reports beside the bare store, latency, memory, and the time of a restart.

As a program it is one of the other processes: `bench_live.py load PORT TOKEN USERS`, `… tickets FILE USERS`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from discreet.live.desk import Desk, Wish, begin
from discreet.live.sqlite import SqliteStore
from discreet.live.store import Changes, Place
from measuring import Row, row

CONNECTIONS = 64
REPORTS = 20_000
TICKETS = 1_000_000
#: CPU of one durable report, and seconds of a restart, that are allowed.
MOST_MICROSECONDS, MOST_SECONDS = 250.0, 2.0
TOML = """
name = "load"
[problem]
states = 6
actions = 2
horizon = 6
pooled = true
start = 0
[privacy]
epsilon = {epsilon}
users = {users}
[learner]
name = "{learner}"
[serving]
patience = "1h"
"""
HOUR = 3_600_000
#: At so small an ε the first epoch of DP-UCBVI takes 50,000 people, so that nobody waits for a release.
ONE_EPOCH = {"epsilon": 1e-4, "learner": "dp-ucbvi"}
#: Hundreds of epochs.
MANY_EPOCHS = {"epsilon": 1.0, "learner": "spotlight"}
#: A server that notes how many were decided together.
SERVER = """
import sys
from discreet.live import server
from discreet.live.desk import Desk
decided, close, sizes = Desk.decided, Desk.close, []
def counted(self, wishes):
    sizes.append(len(wishes))
    return decided(self, wishes)
def closed(self):
    if sizes:
        open(sys.argv[3], "w").write(repr(sizes))
    close(self)
Desk.decided, Desk.close = counted, closed
server.run(sys.argv[1], port=int(sys.argv[2]), page=False, limits=server.Limits(per_token=1e9))
"""


# Load ---------------------------------------------------------------------------------------------------------------


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def asked(streams: Streams, path: str, token: str, body: bytes) -> bytes:
    """One request on a connection that stays open."""
    reader, writer = streams
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    told = await reader.readuntil(b"\r\n\r\n")
    length = int(told.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    answer = await reader.readexactly(length)
    if not told.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{path} was answered by {told[:20]!r} {answer!r}")
    return answer


async def phase(port: int, path: str, token: str, bodies: list[bytes]) -> tuple[list[bytes], list[float], float]:
    """All bodies over 64 connections: answers, milliseconds of each, and seconds of all."""
    answers: list[bytes] = [b""] * len(bodies)
    times = [0.0] * len(bodies)
    waiting = iter(range(len(bodies)))

    async def connection() -> None:
        streams = await asyncio.open_connection("127.0.0.1", port)
        for number in waiting:
            start = time.perf_counter()
            answers[number] = await asked(streams, path, token, bodies[number])
            times[number] = 1e3 * (time.perf_counter() - start)
        streams[1].close()
        await streams[1].wait_closed()

    start = time.perf_counter()
    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return answers, times, time.perf_counter() - start


async def load(port: int, token: str, users: int) -> dict[str, Any]:
    """Everybody enrols, and then reports; the second half is measured."""
    names = [f"user {number}" for number in range(users)]
    enrolments = [json.dumps({"user": name}).encode() for name in names]
    answers, _, _ = await phase(port, "/v1/enrol", token, enrolments)
    episode = base64.b64encode(struct.pack("<20Q", 6, *[0, 1, 2, 3, 4, 5, 5], *[1] * 6, *[0] * 6)).decode()
    reports = [
        json.dumps({"user": name, "ticket": json.loads(answer)["ticket"], "payload": episode}).encode()
        for name, answer in zip(names, answers, strict=True)
    ]
    processes = family(int(os.environ["SERVER"]))
    before = sum(map(cpu_of, processes))
    answers, times, seconds = await phase(port, "/v1/report", token, reports)
    cpu = sum(map(cpu_of, processes)) - before
    if any(answer != b'{"again":false}' for answer in answers):
        raise RuntimeError("a report was not taken as the first")
    times.sort()
    mean, p99 = statistics.fmean(times), times[int(0.99 * len(times))]
    return {"cpu": 1e6 * cpu / users, "rate": users / seconds, "mean": mean, "p99": p99}


def family(process: int) -> list[psutil.Process]:
    """A process and its children."""
    first = psutil.Process(process)
    return [first, *first.children(recursive=True)]


def cpu_of(process: psutil.Process) -> float:
    """Seconds, of user and system."""
    return float(sum(process.cpu_times()[:2]))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def started(arguments: list[str], port: int) -> tuple[subprocess.Popen[bytes], float]:
    """A server, and the seconds of CPU until it answered: a busy machine would make the clock meaningless."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, *arguments])
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/health", timeout=10).read()
            return process, sum(map(cpu_of, family(process.pid)))
        except OSError:
            if process.poll() is not None:
                raise RuntimeError("the server did not start") from None
            time.sleep(0.005)


def stopped(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait()


def under_load(folder: Path) -> list[Row]:
    path, port = folder / "load.toml", free_port()
    path.write_text(TOML.format(users=TICKETS, **ONE_EPOCH))
    token = begin(path).app
    process, _ = started([str(path), str(port), str(folder / "sizes")], port)
    try:
        command = [sys.executable, __file__, "load", str(port), token, str(REPORTS)]
        environment = {**os.environ, "SERVER": str(process.pid)}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
    finally:
        stopped(process)
    found = json.loads(done.stdout)
    sizes = json.loads((folder / "sizes").read_text())
    together = max(1, round(sum(size * size for size in sizes) / sum(sizes)))
    bare = bare_rate(folder, together)
    store = f"the bare store, {together} reports per commit"
    return [
        row("live: durable reports (or the CPU below)", found["rate"], bare, store, "1/s", 0.5),
        row("live: CPU of a durable report", found["cpu"], MOST_MICROSECONDS, "allowed", "µs", 1.0, less=True),
        row("live: p99 of a report, 64 connections", found["p99"], found["mean"], "their mean", "ms", 0.2, less=True),
    ]


def bare_rate(folder: Path, together: int) -> float:
    """Reports per second that the store itself keeps, so many per commit: no server, no decisions."""
    store = SqliteStore(folder / "bare.db", create=True)
    users = [number.to_bytes(16, "big") for number in range(REPORTS)]
    with store.writing() as transaction:
        transaction.write(Changes(places={u: Place(u, 1, slot, 0) for slot, u in enumerate(users)}))
    start = time.perf_counter()
    for first in range(0, REPORTS, together):
        batch = users[first : first + together]
        with store.writing() as transaction:
            transaction.held(batch)
            transaction.write(Changes(items=dict.fromkeys(batch, (1, b"\xff" * 4))))
    rate = REPORTS / (time.perf_counter() - start)
    store.close()
    return rate


# A million tickets --------------------------------------------------------------------------------------------------


def tickets(path: str, users: int) -> dict[str, float]:
    """Hand out so many, every other one with a report, in epochs; memory (MB) after a tenth of them and after all."""
    now, given, memory = 0, 0, [0.0, 0.0]
    desk = Desk.open(path, clock=lambda: now)
    while given < users:
        size = desk.state.open[-1].size
        for first in range(given, given + size, 250):
            people = [number.to_bytes(16, "big") for number in range(first, min(first + 250, given + size))]
            desk.decided([Wish.enrol(user) for user in people])
            desk.decided([Wish.report(user, b"\xff" * 4) for user in people[::2]])
        given += size
        now += HOUR
        desk.release()
        memory[given > users // 10] = psutil.Process().memory_info().rss / 1e6
    epochs = desk.state.released
    assert desk.state.tickets == users
    desk.close()
    return {"first": memory[0], "last": memory[1], "epochs": epochs}


def of_many(folder: Path) -> list[Row]:
    path, port = folder / "many.toml", free_port()
    path.write_text(TOML.format(users=TICKETS, **MANY_EPOCHS).replace('"load"', '"many"'))
    begin(path)
    process, few = started([str(path), str(port), str(folder / "none")], port)
    stopped(process)
    command = [sys.executable, __file__, "tickets", str(path), str(TICKETS)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    process, many = started([str(path), str(port), str(folder / "none")], port)
    stopped(process)
    after = f"after {TICKETS:,} tickets in {found['epochs']:,} epochs"
    first, without = f"after {TICKETS // 10:,}", f"allowed (CPU; {few:.2f} s without any)"
    return [
        row(f"live: memory {after}", found["last"], found["first"], first, "MB", 0.8, less=True),
        row(f"live: restart {after}", many, MOST_SECONDS, without, "s", 1.0, less=True),
    ]


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="discreet-") as folder:
        return under_load(Path(folder)) + of_many(Path(folder))


if __name__ == "__main__":
    if sys.argv[1] == "load":
        print(json.dumps(asyncio.run(load(int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))))
    else:
        print(json.dumps(tickets(sys.argv[2], int(sys.argv[3]))))
