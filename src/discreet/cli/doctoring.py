"""Is everything here that is needed, and does it do what it should? For whoever has just installed it."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import typer

from discreet.cli.options import Json
from discreet.cli.terminal import SAID_NO, compilation_notice, say, say_json

#: Extras beside those for development, and what each is for.
EXTRAS = {
    "live": "discreet serve",
    "icu": "the tables of ICU-Sepsis",
    "dask": "sweeps on Dask",
    "ray": "sweeps on Ray",
    "pandas": "results as frames",
    "spark": "logs on Spark",
}
#: A chi-square below this happens to a sound installation once in a million times.
RARE = 1e-6
DRAWS = 200_000
#: The tiny run, and the digest of its regret; it is among the seeded results that the tests keep.
RUN = {"algorithm": "dp-ucbvi", "states": 3, "horizon": 4, "episodes": 400, "epsilon": 3.0, "pooled": True}
SEED, KNOWN = 11, "4b0d59aef7e33fd0bf80ad229ad4f026503417f1fb83e41e329ed812ad379b96"


class Finding(NamedTuple):
    """What was looked at, what was found, and whether it is as it should be."""

    what: str
    found: str
    fine: bool = True


def doctor(as_json: Json = False) -> None:
    """Look at this installation: versions, compiler, cores, memory, extras; and try it, in about five seconds.

    Noise is drawn as in a release and compared with its exact law by a chi-square, and a tiny seeded run is compared
    with a known one. What is wrong is said in a plain sentence.

    [bold]Exit codes[/bold] 0 all is well, 1 something is wrong.

    [bold]Examples[/bold]

    discreet doctor

    discreet doctor --json
    """
    with compilation_notice():
        found = [examined(name, look) for name, look in CHECKS.items()]
    wrong = [each for each in found if not each.fine]
    if as_json:
        say_json({"fine": not wrong, "findings": [each._asdict() for each in found]})
    else:
        for each in found:
            say(f"{each.what:<13} {'' if each.fine else 'WRONG: '}{each.found}")
        say(
            "all is well"
            if not wrong
            else f"{len(wrong)} of {len(found)} are wrong: {', '.join(e.what for e in wrong)}"
        )
    if wrong:
        raise typer.Exit(SAID_NO)


def examined(name: str, look: Callable[[], str]) -> Finding:
    """What `look` says; what it refuses, and what cannot even be imported, is wrong."""
    try:
        return Finding(name, look())
    except (ValueError, OSError, ImportError) as error:
        return Finding(name, str(error), fine=False)


# What is installed --------------------------------------------------------------------------------------------------


def _python() -> str:
    needed = metadata.metadata("discreet")["Requires-Python"]
    at_least("python", platform.python_version(), needed)
    return f"{platform.python_implementation()} {platform.python_version()} (needed: {needed}), {platform.platform()}"


def _package() -> str:
    from discreet.provenance import PACKAGE, source_digest

    return f"{metadata.version('discreet')}, source {source_digest()[:12]}, in {PACKAGE}"


def _dependencies() -> str:
    needed = requirements("")
    for name, bounds in needed.items():
        at_least(name, installed(name) or "none", bounds)
    pins = pinned(Path(__file__).parents[3] / "constraints.txt")
    other = [
        f"{name} {installed(name)} (pin {pins[name]})"
        for name in needed
        if pins.get(name, installed(name)) != installed(name)
    ]
    known = (
        "as pinned" if pins and not other else f"other than pinned: {', '.join(other)}" if other else "no pins here"
    )
    return f"{len(needed)} of {len(needed)} are there; {known}"


def _extras() -> str:
    there = [name for name in EXTRAS if all(map(installed, requirements(name)))]
    absent = [
        f"{name} for {use} (pip install 'discreet[{name}]')" for name, use in EXTRAS.items() if name not in there
    ]
    return f"{', '.join(there) or 'none'}" + (f"; not installed: {', '.join(absent)}" if absent else "")


def requirements(extra: str) -> dict[str, str]:
    """Packages that an extra needs, or all need, with the bounds on their versions."""
    found = {}
    for line in metadata.requires("discreet") or ():
        package, _, condition = line.partition(";")
        if (re.findall(r"extra == [\"'](\w+)", condition) or [""])[0] == extra:
            name, bounds = re.match(r"([\w.-]+)(?:\[\w+\])?\s*(.*)", package.strip()).groups()  # type: ignore[union-attr]
            found[name] = bounds
    return found


def installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def at_least(name: str, version: str, bounds: str) -> None:
    """Refuse a version below the lower bound."""
    least = re.search(r">=\s*([\d.]+)", bounds)
    if version == "none" or (least and numbers(version) < numbers(least[1])):
        have = "is not installed" if version == "none" else f"is {version}"
        raise ValueError(f"{name} {have}, and {bounds} is needed: pip install '{name}{bounds}'")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", re.split(r"[a-z+]", version)[0])))


def pinned(file: Path) -> dict[str, str]:
    """Versions that the tests have seen; none where the source is not around."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M))


# The machine --------------------------------------------------------------------------------------------------------


def _compiler() -> str:
    from discreet.kernels import jit

    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(jit.__file__).parent / "__pycache__")
    if not jit.writable(folder):
        raise ValueError(f"{folder} cannot be written, so that every start compiles again; set NUMBA_CACHE_DIR")
    number = len(list(folder.rglob("*.nbc")))
    return f"numba {installed('numba')}, {number} compiled kernels in {folder}"


def _cores() -> str:
    import joblib

    return f"{joblib.cpu_count()} for this process, {os.cpu_count()} in the machine"


def _memory() -> str:
    from discreet.runs.memory import available

    free = available()
    if free < 2**30:
        raise ValueError(f"{free / 2**30:.1f} GiB are free, and 1 GiB is needed for the smallest runs")
    return f"{free / 2**30:.1f} GiB are free" if free < float("inf") else "the system does not say what is free"


# What it does -------------------------------------------------------------------------------------------------------


def _noise() -> str:
    """Fresh values of both laws, as a release draws them, against P(x)."""
    from discreet.privacy.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource

    source, told = NoiseSource.secure(), []
    for name, law, values in (
        ("Laplace", DiscreteLaplace(7.0), source.laplace(7.0, DRAWS)),
        ("Gaussian", DiscreteGaussian(7.0), source.gaussian(7.0, DRAWS)),
    ):
        if (p := p_value(values, law.pmf)) < RARE:
            raise ValueError(
                f"{DRAWS:,} {name} values do not follow their law (p = {p:.1g}): release nothing from here"
            )
        told.append(f"{name} p = {p:.2g}")
    return f"{DRAWS:,} secure values each agree with their exact law: {', '.join(told)}"


def p_value(values: object, pmf: Callable[[Any], Any]) -> float:
    """Of Pearson's χ²: one cell per integer that is expected 20 times or more, one for each tail."""
    import numpy as np
    from scipy.special import chdtrc

    drawn = np.asarray(values)
    reach = np.arange(1, 1000)
    edge = int(np.flatnonzero(np.asarray(pmf(reach)) * drawn.size < 20.0)[0])
    inside = np.arange(-edge, edge + 1)
    expected = np.asarray(pmf(inside)) * drawn.size
    tail = (drawn.size - expected.sum()) / 2.0
    counted = np.bincount(np.clip(drawn, -edge - 1, edge + 1) + edge + 1, minlength=2 * edge + 3)
    expected = np.concatenate(([tail], expected, [tail]))
    return float(chdtrc(expected.size - 1, float(((counted - expected) ** 2 / expected).sum())))


def _run() -> str:
    from discreet.runs.experiment import Experiment, run

    start = time.perf_counter()
    result = run(Experiment(**RUN), SEED)  # type: ignore[arg-type]
    seconds = time.perf_counter() - start
    if (digest := digest_of(result.regret, result.final_value, result.switches)) != KNOWN:
        raise ValueError(
            f"a seeded run of dp-ucbvi gives {digest[:12]} instead of {KNOWN[:12]}: its numbers cannot be "
            "compared with published ones; install the pinned versions (constraints.txt)"
        )
    return f"a seeded run of {RUN['episodes']} users gives what it should, in {seconds:.1f} s"


def digest_of(regret: object, value: float, switches: int) -> str:
    """Over eight digits, because the last ones depend on the processor."""
    import hashlib
    import json

    import numpy as np

    parts = [[f"{x:.8g}" for x in np.ravel(np.asarray(each, np.float64)).tolist()] for each in (regret, value)]
    return hashlib.sha256(json.dumps([*parts, int(switches)]).encode()).hexdigest()


CHECKS: Mapping[str, Callable[[], str]] = {
    "python": _python,
    "discreet": _package,
    "dependencies": _dependencies,
    "extras": _extras,
    "compiler": _compiler,
    "cores": _cores,
    "memory": _memory,
    "noise": _noise,
    "run": _run,
}
