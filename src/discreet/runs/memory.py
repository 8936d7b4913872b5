"""Whether a computation fits, said before it starts and not by the system in the middle of it."""

from __future__ import annotations

import os
import re
from pathlib import Path


def available() -> float:
    """Bytes that this process may still take, as far as the system tells; infinite where it does not."""
    return min(_free(), _left_in_group(), _left_to_process())


def require(needed: float, what: str, advice: str) -> None:
    """Refuse what would not fit: the numbers first, then what to do."""
    if needed > (free := available()):
        raise ValueError(f"{what} take about {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free; {advice}")


def _free() -> float:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"), re.M)
    if found:
        return 1024.0 * int(found[1])
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _left_in_group() -> float:
    """Under a container's limit, if there is one."""
    limit, used = (_text(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current"))
    return float(max(int(limit) - int(used), 0)) if limit.isdigit() and used.isdigit() else float("inf")


def _left_to_process() -> float:
    """Under `ulimit -v`, if it is set."""
    try:
        import resource
    except ImportError:  # Windows has no limits of this kind
        return float("inf")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    used = _text("/proc/self/statm").split()
    if limit == resource.RLIM_INFINITY or not used:
        return float("inf")
    return float(max(limit - int(used[0]) * os.sysconf("SC_PAGE_SIZE"), 0))


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
