"""Ports for servers of tests."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """One that nobody listens on, below those that the system hands to connections: a server that is killed and
    started again would find one of these taken by whoever has connected to somebody else in between."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
