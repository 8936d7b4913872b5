"""Shared by the tests that break a deployment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from live_process import Nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """What starts servers quickly."""
    nursery = Nursery()
    yield nursery
    nursery.close()
