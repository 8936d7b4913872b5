"""What has been spent on the people in a log: one line per release, in a file that the holder of the data keeps.

A line is written, under a lock, before any noise of its release is drawn: a crash in between loses budget and never
privacy. Every line names the SHA-256 of the line before it, so that nothing can be changed or taken out in between
without a trace. What is composed, and what a limit is compared with, is everything that the file records: a function
of what was released and not of what the log holds. Which earlier releases were of exactly the same bytes is for the
holder of the data alone, because it says whether anybody's rows have changed since.
"""

from __future__ import annotations

import fcntl
import getpass
import glob
import hashlib
import json
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from discreet.people.episodes import Episodes
from discreet.people.logs import is_dataset, table_of
from discreet.privacy.accounting import (
    TOLERANCE,
    Budget,
    Guarantee,
    Neighbours,
    compose_sequential,
    epsilon_of,
    group,
    no_privacy,
    unit_text,
)

FORMAT = "discreet budget ledger 1"
#: One file `NAME`: beside it, `NAME.spent.jsonl`. Several: `.spent.jsonl` in the folder they have in common.
SUFFIX = ".spent.jsonl"
FIRST = hashlib.sha256(FORMAT.encode()).hexdigest()
OPENING = b'{"kind": "'
KINDS = ("release", "limit")


def cost_of(budget: Budget | None, neighbours: Neighbours) -> Guarantee:
    """What a fit may spend, known before it starts; noise that is not pure is Gaussian and has a ρ."""
    if budget is None or math.inf in (budget.epsilon, budget.rho):
        return replace(no_privacy(), neighbours=neighbours)
    if budget.kind == "pure":
        assert budget.epsilon is not None
        return Guarantee("central", budget.epsilon, neighbours=neighbours)
    rho = budget.total("gaussian")
    epsilon = budget.epsilon
    if epsilon is None:
        epsilon = epsilon_of(rho, budget.delta) if budget.delta > 0.0 else math.inf
    return Guarantee("central", epsilon, budget.delta, rho, neighbours)


def composed(costs: Sequence[Guarantee]) -> Guarantee:
    """All releases together, about the same people.

    Where relations differ the total is of replace-one: to take a person out and to put another in are two steps of
    zero-out, which cost 2ε or 4ρ.
    """
    if any(cost.model == "none" for cost in costs):
        return no_privacy()
    if len({cost.neighbours for cost in costs}) > 1:
        costs = [
            cost if cost.neighbours == "replace" else replace(group(cost, 2), neighbours="replace", unit=unit_text(1))
            for cost in costs
        ]
    return compose_sequential(costs)


# The log's bytes ----------------------------------------------------------------------------------------------------


def files_of(source: Any) -> list[Path]:
    """The files that a source names, in order; none for sources in memory."""
    items = [source] if isinstance(source, (str, Path)) else source
    if not isinstance(items, Sequence) or not items or not all(isinstance(item, (str, Path)) for item in items):
        return []
    found = {Path(path).resolve() for item in items for path in glob.glob(str(item), recursive=True)}
    return sorted(path for path in found if path.is_file())


def beside(source: Any) -> Path | None:
    """Where the ledger of a log is kept unless somebody says otherwise; None for sources in memory."""
    paths = files_of(source)
    if not paths:
        return None
    if len(paths) == 1:
        return paths[0].with_name(paths[0].name + SUFFIX)
    return Path(os.path.commonpath([path.parent for path in paths])) / SUFFIX


def log_digest(source: Any) -> bytes | None:
    """SHA-256 of a log: of its files (length and SHA-256 of each, by name), or of a table's Arrow stream.

    None where bytes cannot be had twice: Spark data frames, streams, Minari datasets.
    """
    if paths := files_of(source):
        found = hashlib.sha256(b"discreet log files 1")
        for path in paths:
            with path.open("rb") as file:
                inner = hashlib.file_digest(file, "sha256").digest()
                found.update(file.tell().to_bytes(8, "big") + inner)
        return found.digest()
    batches = _batches(source)
    if batches is None:
        return None
    schema, parts = batches
    sink = _Hash()
    with pa.PythonFile(sink, mode="w") as file, pa.ipc.new_stream(file, schema) as stream:
        for batch in parts:
            stream.write_batch(batch)
    return sink.hash.digest()


def digest_beside(source: Any) -> Callable[[], bytes | None]:
    """`log_digest`, of files found while their rows are counted; whoever needs it calls for it."""
    if not files_of(source):
        return partial(log_digest, source)
    found: Future[bytes | None] = Future()

    def work() -> None:
        try:
            found.set_result(log_digest(source))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return found.result


class _Hash:
    """A file that keeps the SHA-256 of what is written to it and nothing else."""

    closed = False

    def __init__(self) -> None:
        self.hash = hashlib.sha256(b"discreet log table 1")

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _batches(source: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]] | None:
    module = type(source).__module__.partition(".")[0]
    try:
        if is_dataset(source):
            return source.schema, iter(source.to_batches())
        if isinstance(source, Episodes):
            source = table_of(source)
        elif isinstance(source, Mapping):
            source = pa.table({name: _column(values) for name, values in source.items()})
        elif module in ("pandas", "polars"):
            source = pa.table(source)
    except (pa.ArrowException, TypeError, ValueError):  # what is not a table is refused, in words, when it is read
        return None
    if not isinstance(source, pa.Table):
        return None
    schema = pa.schema([field.with_nullable(True) for field in source.schema])  # promised or not, the same rows
    return schema, iter(source.cast(schema).to_batches())


def _column(values: Any) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    array = np.asarray(values)
    return pa.array(array.tolist() if array.dtype == object else array)


def commitment(salt: bytes, digest: bytes) -> str:
    """SHA-256(salt ‖ digest): hiding while the 32 random bytes of the salt are secret, binding in any case."""
    return hashlib.sha256(salt + digest).hexdigest()


# The file -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """Who releases what, and why: the facts of one line that do not depend on the file."""

    cost: Guarantee
    serial: str
    when: str
    algorithm: str = ""
    unit: str = unit_text(1)
    simulation: bool = False
    operator: str | None = None
    purpose: str | None = None


@dataclass(frozen=True)
class Record:
    """A release that was written down. Only `same` and `same_total` depend on what the log holds."""

    ledger: Path
    line: str  # SHA-256 of the line
    commitment: str | None
    before: int  # releases that the ledger records already
    total: Guarantee  # of all, with this one
    same: int  # earlier releases of exactly these bytes
    same_total: Guarantee  # of these, with this one
    limit: float | None = None
    repaired: bool = False

    def sentences(self) -> tuple[str, ...]:
        """For the holder of the data."""
        recognised = "how many were of exactly these bytes is not known, for the log has none that stay"
        if self.commitment is not None:
            together = self.same_total.sentence()
            recognised = f"{self.same} of the earlier ones were of exactly this log; with this one: {together}"
        if not self.before:
            recognised = ""
        limit = "" if self.limit is None else f"; declared as the most: ε = {self.limit:g}"
        first = f"release {self.before + 1} in {self.ledger}; all together: {self.total.sentence()}{limit}"
        torn = "an unfinished last line was taken out: its release was never made" if self.repaired else ""
        return tuple(line for line in (first, recognised, torn) if line)


def today() -> str:
    """Now, in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def check(ledger: Path, cost: Guarantee, limit: float | None = None) -> None:
    """Refuse, before any data are read, a release that `spend` would refuse after."""
    if limit is not None and not 0.0 < limit < math.inf:
        raise ValueError(f"total_epsilon is {limit}; it must be positive and finite")
    content = b""
    if ledger.exists():
        try:
            content = ledger.read_bytes()
        except OSError as error:
            raise ValueError(f"the ledger {ledger} cannot be read: {error.strerror}") from None
    lines, _ = _lines(ledger, content)
    _admitted(ledger, [*map(_cost, _of(lines, "release")), cost], _limit(lines, limit))


def spend(ledger: Path, release: Release, digest: bytes | None, limit: float | None = None) -> Record:
    """Check the whole ledger and append the release, alone with the file: then, and only then, may noise be drawn."""
    with _locked(ledger) as file:
        content = os.pread(file, os.fstat(file).st_size, 0)
        lines, whole = _lines(ledger, content)
        earlier = _of(lines, "release")
        costs = [_cost(line) for line in earlier]
        allowed = _limit(lines, limit)
        total = _admitted(ledger, [*costs, release.cost], allowed)
        same = [cost for cost, line in zip(costs, earlier, strict=True) if _recognised(line, digest)]
        salt = secrets.token_bytes(32)
        found = None if digest is None else commitment(salt, digest)
        previous = hashlib.sha256(content[:whole].splitlines()[-1]).hexdigest() if lines else FIRST
        added = []
        if limit is not None and limit != _limit(lines, None) and limit == allowed:
            added.append(_line("limit", previous, when=release.when, who=_who(release), total_epsilon=limit))
            previous = hashlib.sha256(added[-1]).hexdigest()
        cost = release.cost
        added.append(
            _line(
                "release",
                previous,
                when=release.when,
                who=_who(release),
                purpose=release.purpose,
                algorithm=release.algorithm,
                model=cost.model,
                epsilon=cost.epsilon if math.isfinite(cost.epsilon) else None,
                delta=cost.delta,
                rho=cost.rho,
                neighbours=cost.neighbours,
                unit=release.unit,
                simulation=release.simulation,
                serial=release.serial,
                commitment=found,
                salt=None if found is None else salt.hex(),
            )
        )
        unfinished = whole < len(content)
        missing = b"" if whole == 0 or content[whole - 1 : whole] == b"\n" else b"\n"
        _append(ledger, file, whole, missing + b"".join(line + b"\n" for line in added))
    return Record(
        ledger,
        hashlib.sha256(added[-1]).hexdigest(),
        found,
        len(earlier),
        total,
        len(same),
        composed([*same, cost]),
        allowed,
        unfinished,
    )


@contextmanager
def _locked(ledger: Path) -> Iterator[int]:
    try:
        file = os.open(ledger, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unrecorded(f"the ledger {ledger} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


class Unrecorded(ValueError):
    """There is no place to write a release down."""


def _append(ledger: Path, file: int, whole: int, text: bytes) -> None:
    """All of the text on the disk, or none of it."""
    try:
        os.ftruncate(file, whole)
        written = 0
        while written < len(text):
            written += os.pwrite(file, text[written:], whole + written)
        os.fsync(file)
    except OSError as error:
        os.ftruncate(file, whole)
        raise ValueError(f"the ledger {ledger} cannot be written: {error.strerror}; nothing was released") from None


def _line(kind: str, previous: str, **facts: Any) -> bytes:
    return json.dumps({"kind": kind, **facts, "previous": previous}, ensure_ascii=False, allow_nan=False).encode()


def _lines(ledger: Path, content: bytes) -> tuple[list[dict[str, Any]], int]:
    """The lines, each following from the one before, and how many bytes are theirs.

    A last line without an end that cannot be read is what a crash left of an entry whose release was never made.
    """
    lines: list[dict[str, Any]] = []
    previous, whole = FIRST, 0
    for number, text in enumerate(content.splitlines(keepends=True), 1):
        bare = text.removesuffix(b"\n")
        try:
            line = json.loads(bare)
            good = isinstance(line, dict) and line["kind"] in KINDS and line["previous"] == previous
            if good:
                _ = _cost(line) if line["kind"] == "release" else float(line["total_epsilon"])
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            if bare == text and (bare.startswith(OPENING) or OPENING.startswith(bare)):
                break
            raise ValueError(
                f"{ledger} is no budget ledger that can be trusted: line {number} cannot be read or does not follow "
                "from the line before it"
            )
        lines.append(line)
        previous, whole = hashlib.sha256(bare).hexdigest(), whole + len(text)
    return lines, whole


def _of(lines: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [line for line in lines if line["kind"] == kind]


def _cost(line: Mapping[str, Any]) -> Guarantee:
    epsilon, rho = line["epsilon"], line["rho"]
    return Guarantee(
        line["model"],
        math.inf if epsilon is None else float(epsilon),
        float(line["delta"]),
        None if rho is None else float(rho),
        line["neighbours"],
    )


def _recognised(line: Mapping[str, Any], digest: bytes | None) -> bool:
    if digest is None or line.get("salt") is None:
        return False
    return bool(commitment(bytes.fromhex(line["salt"]), digest) == line["commitment"])


def committed_here(ledger: Path, found: str, digest: bytes) -> bool:
    """Whether a ledger can show that a commitment is to the log with this digest."""
    lines, _ = _lines(ledger, ledger.read_bytes())
    return any(line["commitment"] == found and _recognised(line, digest) for line in _of(lines, "release"))


def _limit(lines: Sequence[Mapping[str, Any]], limit: float | None) -> float | None:
    """The least that was ever declared."""
    declared = [float(line["total_epsilon"]) for line in _of(lines, "limit")]
    return min([*declared, *(() if limit is None else (limit,))], default=None)


def _admitted(ledger: Path, costs: Sequence[Guarantee], limit: float | None) -> Guarantee:
    total = composed(costs)
    if limit is not None and not total.epsilon <= limit * (1.0 + TOLERANCE):
        if total.model != "none" and total.epsilon == math.inf:
            raise ValueError("a total epsilon was declared, and a rho has an epsilon only at a delta: state one")
        raise ValueError(
            f"with this release {ledger} would come to {total.sentence()}, more than the total epsilon of {limit:g} "
            "that was declared"
        )
    return total


def _who(release: Release) -> str:
    if release.operator is not None:
        return release.operator
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


@contextmanager
def told(record: Record | None) -> Iterator[None]:
    """Whatever goes wrong after a release was written down says that its budget is spent."""
    try:
        yield
    except BaseException as error:
        if record is not None:
            error.add_note(f"the budget of this release is spent ({record.ledger})")
        raise
