"""Results on disk: one Parquet file per experiment and seed, there in full or not at all."""

from __future__ import annotations

import json
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from discreet import __version__, provenance
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
    version: str = __version__
    types: Mapping[str, str] = field(default_factory=dict)  # of the settings, as columns
    facts: Mapping[str, str] = field(default_factory=dict)  # see `provenance.facts`; older files have none
    role: str | None = None  # "tuning": a seed that constants were chosen with; "reporting"; None: nothing was said
    actions: int | None = None  # of the model; older files have none
    law: str | None = None  # of the rewards that were drawn, or the adversary's losses

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkpoints", frozen(self.checkpoints, np.int64))
        object.__setattr__(self, "regret", frozen(self.regret))

    def __repr__(self) -> str:
        ratio = "" if self.regret_ratio is None else f", regret {self.regret_ratio:.3g} of random"
        return f"RunResult({self.id!r}, seed {self.seed}{ratio}; {self.guarantee.sentence()})"

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


_PLAIN = ("str", "int", "float", "bool")
_SCALARS = {
    "seed": "int",
    "role": "str",
    "actions": "int",
    "law": "str",
    "random_regret": "float",
    "value_optimal": "float",
    "value_random": "float",
    "final_value": "float",
    "switches": "int",
    "seconds": "float",
    "version": "str",
}


#: What can be computed from a run, for those who read its file without us; it is not read back.
_DERIVED: Mapping[str, tuple[str, Callable[[RunResult], Any]]] = {
    "regret_ratio": ("float", lambda row: row.regret_ratio),
    "final_gap": ("float", lambda row: row.final_gap),
    "guarantee_model": ("str", lambda row: row.guarantee.model),
    "guarantee_epsilon": ("float", lambda row: row.guarantee.epsilon if row.guarantee.epsilon < math.inf else None),
    "guarantee_delta": ("float", lambda row: row.guarantee.delta),
    "guarantee_unit": ("str", lambda row: row.guarantee.unit),
    "guarantee_sentence": ("str", lambda row: row.guarantee.sentence()),
    "values_are": ("str", lambda row: "losses" if "comparator_loss" in row.diagnostics else "returns"),
}

#: What a column holds and in what unit, written beside it.
MEANING: Mapping[str, str] = {
    "id": "names everything that determines a run but its seed",
    "seed": "of environment, noise and ties; null: fresh randomness, secure noise",
    "role": "tuning: constants were chosen with this seed; reporting: they were not; null: nothing was said",
    "states": "number of states, S",
    "actions": "number of actions, A",
    "horizon": "steps per episode, H",
    "episodes": "users; everyone plays one episode",
    "law": "law of the rewards that were drawn",
    "epsilon": "privacy budget per user that was asked for, natural logarithms",
    "delta": "probability that the budget may be exceeded with, as asked for",
    "checkpoints": "episodes",
    "regret": "sum of V* - V^policy over the episodes so far at each checkpoint, in units of return, exact",
    "random_regret": "regret of the uniform policy over all episodes, in units of return",
    "value_optimal": "V* per episode, in units of return (of loss per step against an adversary)",
    "value_random": "V of the uniform policy, in the same unit",
    "final_value": "V of the last policy, in the same unit",
    "regret_ratio": "regret / random_regret; 0 is optimal, 1 has learned nothing, null: every policy is optimal",
    "final_gap": "(V* - V^last) / (V* - V^uniform); 0 is optimal, 1 has learned nothing",
    "switches": "consecutive policies that differ",
    "seconds": "CPU seconds of the loop: plan, noise, rollout, update",
    "guarantee": "what is promised, and its ledger, as JSON",
    "guarantee_epsilon": "what the run truly promises; null: nothing",
    "values_are": "returns (larger is better) or losses (smaller is better)",
    "source": "SHA-256 of the program's source",
    "time": "when it was written, UTC",
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


def write(result: RunResult, folder: str | Path, parts: Path | None = None) -> Path:
    """Store a run; the file appears under its name only when it is complete and on the disk.

    Until then it is a hidden file there, or in the folder `parts` of the same file system; such a name may still be
    lost when the power fails, for whoever finds its run missing computes it again.
    """
    path = prepare(folder) if parts is None else Path(folder)
    name = f"seed{result.seed}" if result.seed is not None else f"secure-{secrets.token_hex(6)}"
    target = path / f"{result.id}-{name}.parquet"
    part = (parts or path) / f".{target.name}.{secrets.token_hex(4)}.part"
    try:
        with part.open("xb") as file:
            _write_parquet(stamped(result), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if parts is None:
        _sync_folder(path)
    return target


def read(folder: str | Path, pattern: str = "*.parquet") -> list[RunResult]:
    """All runs in a folder, by experiment and seed. Foreign files are passed over, damaged ones are refused."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(f"there is no folder {str(path)!r}; give one that `discreet run … --out` has written")
    rows = [row for file in sorted(path.glob(pattern)) if (row := _read_parquet(file)) is not None]
    return sorted(rows, key=lambda row: (row.id, row.seed is None, row.seed or 0))


def read_facts(file: Path) -> tuple[str | None, str | None] | None:
    """(source, role) of a stored run, without the rest; None for a foreign file."""
    found = _opened(file)
    if found is None:
        return None
    role = found.read(columns=["role"]).column("role")[0].as_py() if "role" in found.schema_arrow.names else None
    return json.loads(found.schema_arrow.metadata.get(FACTS, b"{}")).get("source"), role


def stored_seeds(folder: str | Path, experiment_id: str, source: str | None = None) -> dict[int, RunResult]:
    """Seeds of this experiment that this source (`provenance.source_digest`; None: any) has already finished."""
    rows = read(folder, f"{experiment_id}-seed*.parquet")
    wanted = (row for row in rows if source is None or row.facts.get("source") == source)
    return {row.seed: row for row in wanted if row.id == experiment_id and row.seed is not None}


def columns(row: RunResult) -> dict[str, tuple[Any, str]]:
    """Every column of a run: its value, and str, int, float, bool, ints or floats. The same for all learners."""
    found: dict[str, tuple[Any, str]] = {"id": (row.id, "str")}
    for name, value in row.settings.items():
        # A setting that is no plain scalar is kept as JSON text.
        kind = row.types.get(name)
        found[name] = (value, kind) if kind in _PLAIN else (json.dumps(value), "str")
    found |= {name: (getattr(row, name), kind) for name, kind in _SCALARS.items()}
    found |= {name: (value(row), kind) for name, (kind, value) in _DERIVED.items()}
    found |= {name: (row.facts.get(name), "str") for name in provenance.FACTS if name not in found}
    found["guarantee"] = json.dumps(row.guarantee.to_json(), allow_nan=False), "str"
    found["diagnostics"] = json.dumps(dict(row.diagnostics), allow_nan=False), "str"
    return found | {"checkpoints": (row.checkpoints, "ints"), "regret": (row.regret, "floats")}


def arrow(rows: Sequence[Mapping[str, tuple[Any, str]]], metadata: Mapping[bytes, bytes] | None = None) -> Any:
    """A table of such columns; what a row does not have is null."""
    import pyarrow as pa

    plain = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    kinds = plain | {"ints": pa.list_(pa.int64()), "floats": pa.list_(pa.float64())}
    names = {name: kind for row in rows for name, (_, kind) in row.items()}
    schema = pa.schema(
        [pa.field(n, kinds[k], metadata={"meaning": MEANING[n]} if n in MEANING else None) for n, k in names.items()],
        metadata=metadata,
    )
    values = ([row[name][0] if name in row else None for row in rows] for name in names)
    return pa.table([pa.array(each, field.type) for each, field in zip(values, schema, strict=True)], schema=schema)


def _write_parquet(row: RunResult, file: Any) -> None:
    import pyarrow.parquet as pq

    metadata = {
        MARK: LAYOUT,
        b"settings": json.dumps(dict(row.types)).encode(),
        FACTS: json.dumps(dict(row.facts)).encode(),
    }
    pq.write_table(arrow([columns(row)], metadata), file)


def _opened(file: Path) -> Any | None:
    """A Parquet file of ours; None for somebody else's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.ParquetFile(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(
            f"{str(file)!r} is damaged or not a Parquet file ({str(error).splitlines()[0]}); remove it and run again"
        ) from None
    metadata = found.schema_arrow.metadata or {}
    if MARK not in metadata or found.metadata.num_rows != 1:
        return None
    if (layout := metadata[MARK]) != LAYOUT:
        raise ValueError(
            f"{str(file)!r} has layout {layout.decode()!r} of another version of discreet, and this one reads "
            f"{LAYOUT.decode()!r}; take another folder"
        )
    return found


def _read_parquet(file: Path) -> RunResult | None:
    found = _opened(file)
    if found is None:
        return None
    metadata = found.schema_arrow.metadata
    table = found.read()
    values = table.to_pylist()[0]
    types = json.loads(metadata[b"settings"])
    return RunResult(
        id=values["id"],
        settings={name: values[name] if kind in _PLAIN else json.loads(values[name]) for name, kind in types.items()},
        checkpoints=values["checkpoints"],
        regret=values["regret"],
        guarantee=_guarantee(json.loads(values["guarantee"])),
        types=types,
        diagnostics=json.loads(values["diagnostics"]),
        facts=json.loads(metadata.get(FACTS, b"{}")),
        **{name: values.get(name) for name in _SCALARS},
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
