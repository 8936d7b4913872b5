"""HTTP to one deployment, by the standard library: strict about what it hears, patient with nobody for long."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Bytes of one answer, and how many times as long as its next part the whole of it may take to come.
LONGEST, PARTS = 1 << 26, 10


class Down(Exception):
    """No answer that means anything: later may be better."""


class Rejected(Exception):
    """An answer that will stay the same."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server refuses this with status {status}")
        self.status = status


class Service:
    """A few kept connections. After a failure it asks nobody for `rest` seconds, so that an app never waits long.

    Redirections are not followed: the token is for this host only.
    """

    def __init__(self, url: str, token: str | None, timeout: float, rest: float, plain: bool) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("url must look like https://host:port, without a query")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK and not plain:
            raise ValueError("over plain http tokens and reports can be read by others; use https, or say plain=True")
        self.host, self.port, self.path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        shown = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._headers = {**shown, "Content-Type": "application/json"}
        self._timeout, self._rest, self._plain = timeout, rest, plain
        self._asleep_until = -1.0
        self._idle: list[http.client.HTTPConnection] = []

    def elsewhere(self, url: str) -> Service:
        """Another host, with the same patience and without the token."""
        return Service(url, None, self._timeout, self._rest, self._plain)

    def get(self, path: str) -> dict[str, Any]:
        return self._ask("GET", path, None)

    def post(self, path: str, message: dict[str, Any]) -> dict[str, Any]:
        return self._ask("POST", path, json.dumps(message).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        if time.monotonic() < self._asleep_until:
            raise Down("the server did not answer a moment ago")
        try:
            return self._heard(*self._exchange(method, path, body))
        except Down:
            self._asleep_until = time.monotonic() + self._rest
            raise

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """A kept connection may have been closed meanwhile: then once more, which changes nothing for the server."""
        try:
            return self._over(self._idle.pop(), method, path, body)
        except (IndexError, Down):
            return self._over(self._kind(self.host, self.port, timeout=self._timeout), method, path, body)

    def _over(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, self.path + path, body, self._headers)
            answer = connection.getresponse()
            heard = answer.status, self._read(answer)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Down(f"the server does not answer: {error}") from None
        if len(heard[1]) > LONGEST:
            connection.close()
        else:
            self._idle.append(connection)
        return heard

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        """What is answered, unless it comes drop by drop."""
        parts, size, end = list[bytes](), 0, time.monotonic() + PARTS * self._timeout
        while size <= LONGEST and (part := answer.read1(1 << 16)):
            parts.append(part)
            size += len(part)
            if time.monotonic() > end:
                raise TimeoutError("it comes too slowly")
        if size <= LONGEST and answer.length:
            raise http.client.IncompleteRead(b"".join(parts))
        answer.close()  # so that its connection can be asked again
        return b"".join(parts)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    @staticmethod
    def _heard(status: int, answer: bytes) -> dict[str, Any]:
        if status in (408, 429) or status >= 500 or len(answer) > LONGEST:
            raise Down(f"status {status}")
        if status != 200:
            raise Rejected(status)
        try:
            message = json.loads(answer)
        except (ValueError, RecursionError):
            raise Down("the answer is not JSON") from None
        if not isinstance(message, dict):
            raise Down("the answer is not a JSON object")
        return message
