"""A deployment by hand, over HTTP: it announces what a test says, and fails when a test wants it to."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from discreet.device import Announcement, Entry
from discreet.device.announcements import START
from discreet.device.encoders import Form
from discreet.device.wire import canonical

TOKEN = "an app's token"


class Dropped(Exception):
    """The connection is lost."""


class Fake:
    """`before(path)` and `after(path)`, around every answer, may raise `Dropped` or a `Status`."""

    def __init__(self, charter: dict[str, Any], seed: bytes = bytes(32)) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        key = base64.b64encode(self.public).decode()
        self.entries = [self.signed(0, START, {"event": "opened", "charter": charter, "key": key})]
        self.served: Entry | None = None  # instead of the newest announcement
        self.announcing = True
        self.spectator: str | None = None
        self.nonsense: bytes | None = None  # instead of any answer
        self.reports: dict[str, list[bytes]] = {}
        self.asked: list[tuple[str, Any]] = []
        self.before: Callable[[str], None] = lambda path: None
        self.after: Callable[[str], None] = lambda path: None
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    # The log --------------------------------------------------------------------------------------------------------

    def signed(self, number: int, previous: bytes, event: dict[str, Any]) -> Entry:
        unsigned = Entry(number, previous, canonical(event), b"")
        return Entry(number, previous, unsigned.body, self._key.sign(unsigned.message))

    def append(self, event: dict[str, Any]) -> Entry:
        self.entries.append(self.signed(len(self.entries), self.entries[-1].head, event))
        return self.entries[-1]

    def announce(self, policy: Any, after: Any, encoder: Form) -> Entry:
        epoch = sum(entry.event["event"] == "announced" for entry in self.entries) + 1
        return self.append(Announcement(epoch, None, 100, policy, after, encoder).to_event())

    @property
    def announced(self) -> Entry:
        return next(entry for entry in reversed(self.entries) if entry.event["event"] == "announced")

    # Answers --------------------------------------------------------------------------------------------------------

    def answer(self, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        entry = self.served or self.announced
        if path == "/v1/log":
            start, count = int(query["from"][0]), int(query["count"][0])
            found = self.entries[start : start + count]
            return 200, {"entries": [entry.to_json() for entry in found], "next": start + len(found)}
        if path == "/v1/announcement":
            if not self.announcing:
                return 404, {"error": "nothing has been announced"}
            return 200, entry.to_json() | {"head": entry.name, "epoch": entry.event["epoch"]}
        if path == "/v1/enrol":
            if self.spectator is not None:
                return 200, {"spectator": self.spectator, "announcement": entry.name if self.announcing else None}
            ticket = hashlib.sha256(body["user"].encode()).hexdigest()[:32]
            known = {"epoch": entry.event["epoch"], "slot": 0, "expires": 1 << 50}
            return 200, {"ticket": ticket, **known, "announcement": entry.name, "again": False}
        assert path == "/v1/report"
        known_reports = self.reports.setdefault(body["user"], [])
        known_reports.append(base64.b64decode(body["payload"]))
        return 200, {"again": len(known_reports) > 1}


class Status(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


def _handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            parts = urlsplit(self.path)
            fake.asked.append((parts.path, body))
            try:
                fake.before(parts.path)
                if body is not None and self.headers["Authorization"] != f"Bearer {TOKEN}":
                    raise Status(401)
                status, told = fake.answer(parts.path, parse_qs(parts.query), body)
                fake.after(parts.path)
            except Dropped:
                self.close_connection = True
                return
            except Status as refusal:
                status, told = refusal.status, {"error": "no"}
            message = json.dumps(told).encode() if fake.nonsense is None else fake.nonsense
            self.send_response(status)
            self.send_header("Content-Length", str(len(message)))
            self.end_headers()
            self.wfile.write(message)

    return Handler
