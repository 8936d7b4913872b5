"""What other packages add: entry points of the groups `discreet.envs` and `discreet.algorithms`.

They are looked up when a name is not known here, and when names are listed; nothing is imported before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

#: Names that can be written on a command line and in the name of a file.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

#: Group → what is wrong with its plug-ins, one sentence each; a group is here once it was loaded.
_FAILURES: dict[str, list[str]] = {}


Entry = TypeVar("Entry")


class Known(dict[str, Entry]):
    """Entries by name: ours, and those that were added. Names of ours that are `absent` cannot be taken either."""

    def __init__(self, kind: str, ours: Mapping[str, Entry], absent: Iterable[str] = ()) -> None:
        super().__init__(ours)
        self._kind, self._ours = kind, frozenset((*ours, *absent))

    def check(self, name: Any) -> None:
        """Refuse a name that cannot be written or is somebody else's."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be the name of {self._kind}; expected letters, digits, dots and dashes"
            )
        if name in self or name in self._ours:
            raise ValueError(f"there is {self._kind} named {name!r} already; choose another name")

    def added(self) -> dict[str, Entry]:
        """What calls and plug-ins brought."""
        return {name: entry for name, entry in self.items() if name not in self._ours}

    def include(self, entries: Mapping[str, Entry]) -> None:
        """Know these as well: what another process of the same program has added."""
        self.update({name: entry for name, entry in entries.items() if name not in self})


def load(group: str, add: Callable[[str, Any], None]) -> list[str]:
    """Hand every entry point of a group, by name, to `add`, once; what could not be added, in sentences."""
    if group not in _FAILURES:
        _FAILURES[group] = []
        for point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
            try:
                add(point.name, point.load())
            except (Exception, SystemExit) as error:  # whatever somebody else's code does, the rest must work
                _FAILURES[group].append(_sentence(point, error))
    return list(_FAILURES[group])


def _sentence(point: EntryPoint, error: BaseException) -> str:
    package = point.dist.name if point.dist is not None else "an unknown package"
    reason = " ".join(str(error).split()) or type(error).__name__
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"the plug-in {point.name!r} of {package} could not be loaded ({kind}{reason})"
