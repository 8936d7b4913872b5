"""A page for this machine alone: one address with a secret in it, asked by nobody but its own page."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HOST = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
#: Longer addresses are no questions.
LONGEST = 2000

Answer = Callable[[Mapping[str, list[str]]], Mapping[str, Any]]


class Late(Exception):
    """An answer takes longer than anybody waits."""


class Local(ThreadingHTTPServer):
    """Answers on the loopback interface only, under a path that nobody can guess.

    Another site may send requests here but cannot know the path; with a name of its own for this address (DNS
    rebinding) it would give itself away by the Host header, and as a page of another origin by Sec-Fetch-Site.
    """

    daemon_threads = True

    def __init__(self, page: str, policy: str, answer: Answer, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.page, self.policy, self.answer = page, policy, answer
        self.secret = secrets.token_urlsafe(18)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/{self.secret}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is nothing to report; a mistake of ours is."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Local
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "discreet", ""
    timeout = 60  # seconds that an idle connection is kept

    def do_GET(self) -> None:
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            return self._say(403, {"error": "this page is for this machine only"})
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return self._say(403, {"error": "this page answers nobody but itself"})
        asked = urlsplit(self.path[:LONGEST])
        secret, _, place = asked.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(secret.encode(), self.server.secret.encode()) or place not in ("", "answer"):
            return self._say(404, {"error": "there is nothing here"})
        if place == "":
            return self._send(200, "text/html; charset=utf-8", self.server.page)
        try:
            return self._say(200, self.server.answer(parse_qs(asked.query, keep_blank_values=True)))
        except ValueError as error:
            return self._say(400, {"error": str(error)})
        except Late as error:
            return self._say(503, {"error": str(error)})
        except Exception:
            self._say(500, {"error": "something went wrong; the terminal says what"})
            raise

    def _say(self, status: int, document: Mapping[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(document, allow_nan=False))

    def _send(self, status: int, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        told = {"Content-Type": kind, "Content-Length": str(len(content)), **HEADERS}
        for name, value in (told | {"Content-Security-Policy": self.server.policy}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal is for results."""
