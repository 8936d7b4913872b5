"""Results on disk: one Parquet file per experiment and seed, there in full or not at all."""

from __future__ import annotations

import json
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from discreet import provenance
from discreet.mdp import Floats, Ints, frozen
from discreet.privacy.accounting import Guarantee, LedgerEntry

#: Marks a Parquet file as ours and names its layout; files without it are somebody else's.
MARK = b"discreet"
LAYOUT = b"1"
#: Where a file keeps `provenance.facts`.
FACTS = b"provenance"


@dataclass(frozen=True, eq=False)
class RunResult:
    """One run, from its end to the table. Regret and values are computed with the true model: not private."""

    id: str
    settings: Mapping[str, Any]  # of its experiment
    seed: int | None  # None: fresh randomness and secure noise
    checkpoints: Ints  # episodes
    regret: Floats  # cumulative, at the checkpoints
    random_regret: float  # of the uniform policy over all episodes
    value_optimal: float
    value_random: float
    final_value: float
    switches: int  # distinct consecutive policies
    guarantee: Guarantee
    seconds: float  # CPU time of the loop: plan, noise, rollout, update
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    version: str = field(default_factory=lambda: version("discreet"))
    types: Mapping[str, str] = field(default_factory=dict)  # of the settings, as columns
    facts: Mapping[str, str] = field(default_factory=dict)  # see `provenance.facts`; older files have none

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkpoints", frozen(self.checkpoints, np.int64))
        object.__setattr__(self, "regret", frozen(self.regret))

    @property
    def regret_ratio(self) -> float | None:
        """Regret over that of the uniform random policy; None where that policy is optimal."""
        return float(self.regret[-1]) / self.random_regret if self.random_regret > 0 else None

    @property
    def final_gap(self) -> float | None:
        """(V* − V^last)/(V* − V^uniform) of the last policy; None where the uniform random policy is optimal."""
        if self.random_regret <= 0:
            return None
        return (self.value_optimal - self.final_value) / (self.value_optimal - self.value_random)

    @property
    def simulation(self) -> bool:
        """Whether the noise came from a seed, so that the run protects nobody."""
        return self.seed is not None


_SCALARS = {
    "seed": "int",
    "random_regret": "float",
    "value_optimal": "float",
    "value_random": "float",
    "final_value": "float",
    "switches": "int",
    "seconds": "float",
    "version": "str",
}


def stamped(result: RunResult) -> RunResult:
    """The result with where it comes from: this program, here and now, unless it says so already."""
    return result if result.facts else replace(result, facts=provenance.facts())


def prepare(folder: str | Path) -> Path:
    """Create the folder and try to write in it, so that a run that could not be kept is not started."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ValueError(
            f"cannot write results to {str(path)!r}: {reason}; choose a folder you may write to"
        ) from None
    return path


def replaced(path: Path, write: Callable[[Path], object]) -> Path:
    """Write a file beside its place first: under its name it is there in full or not at all."""
    part = path.with_name(f".{path.name}.part")
    write(part)
    return part.replace(path)


def write(result: RunResult, folder: str | Path) -> Path:
    """Store a run; the file appears under its name only when it is complete and on the disk."""
    path = prepare(folder)
    name = f"seed{result.seed}" if result.seed is not None else f"secure-{secrets.token_hex(6)}"
    target = path / f"{result.id}-{name}.parquet"
    part = path / f".{target.name}.{secrets.token_hex(4)}.part"
    try:
        with part.open("xb") as file:
            _write_parquet(stamped(result), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path)
    return target


def read(folder: str | Path, pattern: str = "*.parquet") -> list[RunResult]:
    """All runs in a folder, by experiment and seed. Foreign files are passed over, damaged ones are refused."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(f"there is no folder {str(path)!r}; give one that `discreet run … --out` has written")
    rows = [row for file in sorted(path.glob(pattern)) if (row := _read_parquet(file)) is not None]
    return sorted(rows, key=lambda row: (row.id, row.seed is None, row.seed or 0))


def stored_seeds(folder: str | Path, experiment_id: str, source: str | None = None) -> dict[int, RunResult]:
    """Seeds of this experiment that this source (`provenance.source_digest`; None: any) has already finished."""
    rows = read(folder, f"{experiment_id}-seed*.parquet")
    wanted = (row for row in rows if source is None or row.facts.get("source") == source)
    return {row.seed: row for row in wanted if row.id == experiment_id and row.seed is not None}


def _write_parquet(row: RunResult, file: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    scalar = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    columns: dict[str, tuple[Any, Any]] = {"id": (row.id, pa.string())}
    for name, value in row.settings.items():
        # A setting that is no plain scalar is kept as JSON text.
        known = row.types.get(name) in scalar
        columns[name] = (value, scalar[row.types[name]]) if known else (json.dumps(value), pa.string())
    columns |= {name: (getattr(row, name), scalar[kind]) for name, kind in _SCALARS.items()}
    columns["guarantee"] = json.dumps(row.guarantee.to_json(), allow_nan=False), pa.string()
    columns["diagnostics"] = json.dumps(dict(row.diagnostics), allow_nan=False), pa.string()
    columns["checkpoints"] = row.checkpoints, pa.list_(pa.int64())
    columns["regret"] = row.regret, pa.list_(pa.float64())
    schema = pa.schema(
        [(name, kind) for name, (_, kind) in columns.items()],
        metadata={
            MARK: LAYOUT,
            b"settings": json.dumps(dict(row.types)).encode(),
            FACTS: json.dumps(dict(row.facts)).encode(),
        },
    )
    pq.write_table(pa.table([pa.array([value], kind) for value, kind in columns.values()], schema=schema), file)


def _read_parquet(file: Path) -> RunResult | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file).read()
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(
            f"{str(file)!r} is damaged or not a Parquet file ({str(error).splitlines()[0]}); remove it and run again"
        ) from None
    metadata = table.schema.metadata or {}
    if metadata.get(MARK) != LAYOUT or table.num_rows != 1:
        return None
    values = table.to_pylist()[0]
    types = json.loads(metadata[b"settings"])
    plain = ("str", "int", "float", "bool")
    return RunResult(
        id=values["id"],
        settings={name: values[name] if kind in plain else json.loads(values[name]) for name, kind in types.items()},
        checkpoints=values["checkpoints"],
        regret=values["regret"],
        guarantee=_guarantee(json.loads(values["guarantee"])),
        types=types,
        diagnostics=json.loads(values["diagnostics"]),
        facts=json.loads(metadata.get(FACTS, b"{}")),
        **{name: values[name] for name in _SCALARS},
    )


def _guarantee(stored: dict[str, Any]) -> Guarantee:
    """A guarantee as `Guarantee.to_json` wrote it; infinite numbers are null there."""

    def finite(values: dict[str, Any], name: str) -> dict[str, Any]:
        return values | {name: math.inf if values[name] is None else values[name]}

    told = finite(stored, "epsilon") | {"assumptions": tuple(stored["assumptions"])}
    told["entries"] = tuple(LedgerEntry(**finite(entry, "cost")) for entry in stored["entries"])
    return Guarantee(**{name: value for name, value in told.items() if name != "sentence"})


def _sync_folder(path: Path) -> None:
    """Make the new name itself durable, where folders can be synced."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
