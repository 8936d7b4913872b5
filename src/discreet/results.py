"""Stored runs as tables, for analysis: `load` has one row per run, `curves` one per run and checkpoint.

A folder of results is one Parquet data set, which pandas, Polars, DuckDB and R open without this package as well;
these functions also read folders of older versions, and leave out what is not one value.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from discreet.runs.results import RunResult

__all__ = ["curves", "load"]

Format = Literal["arrow", "pandas"]
_NOT_ONE_VALUE = frozenset({"checkpoints", "regret", "diagnostics"})


def load(folder: str | Path, format: Format = "arrow") -> Any:
    """One row per run: settings, seed, role, regret_ratio, final_gap, guarantee, seconds, where it comes from."""
    from discreet.runs import results

    kept = [
        {name: cell for name, cell in results.columns(row).items() if name not in _NOT_ONE_VALUE}
        for row in _rows(folder, format)
    ]
    return _as(format, results.arrow(kept))


def curves(folder: str | Path, format: Format = "arrow") -> Any:
    """One row per run and checkpoint: id, seed, role, episode, and the regret so far."""
    from discreet.runs import results

    kept = [
        {
            "id": (row.id, "str"),
            "seed": (row.seed, "int"),
            "role": (row.role, "str"),
            "episode": (int(episode), "int"),
            "regret": (float(regret), "float"),
        }
        for row in _rows(folder, format)
        for episode, regret in zip(row.checkpoints, row.regret, strict=True)
    ]
    return _as(format, results.arrow(kept))


def _rows(folder: str | Path, format: Format) -> list[RunResult]:
    from discreet.runs import results

    if format not in ("arrow", "pandas"):
        raise ValueError(f"unknown format {format!r}; choose one of arrow, pandas")
    if format == "pandas" and importlib.util.find_spec("pandas") is None:
        raise ValueError("pandas is not installed; pip install pandas, or take the format arrow")
    rows = results.read(folder)
    if not rows:
        raise ValueError(f"there are no results in {str(folder)!r}; `discreet run … --out {folder}` writes some")
    return rows


def _as(format: Format, table: Any) -> Any:
    return table.to_pandas() if format == "pandas" else table
