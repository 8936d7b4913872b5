"""Names that a shell completes; each list is imported when somebody presses the key."""

from __future__ import annotations

Names = list[tuple[str, str]]


def learners(incomplete: str) -> Names:
    return _learners(incomplete, offline=False)


def learners_from_logs(incomplete: str) -> Names:
    automatic = [("auto", "what fits the log")] if "auto".startswith(incomplete) else []
    return automatic + _learners(incomplete, offline=True)


def _learners(incomplete: str, offline: bool) -> Names:
    from discreet.catalog import ALGORITHMS, load_plugins

    load_plugins()
    found = {name: entry.summary for name, entry in ALGORITHMS.items() if (entry.runner == "offline") == offline}
    return _beginning(incomplete, found)


def environments(incomplete: str) -> Names:
    from discreet.envs.registry import ENVIRONMENTS, load_plugins

    load_plugins()
    return _beginning(incomplete, {name: spec.summary for name, spec in ENVIRONMENTS.items()})


def models(incomplete: str) -> Names:
    from discreet.catalog import TRUST

    return _beginning(incomplete, dict.fromkeys(TRUST, ""))


def mechanisms(incomplete: str) -> Names:
    from discreet.privacy.audit.attacks import MECHANISMS

    return _beginning(incomplete, {name: entry.description for name, entry in MECHANISMS.items()})


def theorems(incomplete: str) -> Names:
    from discreet.theory import THEOREMS

    return _beginning(incomplete, dict.fromkeys(THEOREMS, ""))


def figures(incomplete: str) -> Names:
    from discreet.runs.figures import FIGURES

    return _beginning(incomplete, {name: figure.title for name, figure in FIGURES.items()})


def problems(incomplete: str) -> Names:
    from discreet.runs.suite.problems import suite

    return _beginning(incomplete, {problem.name: "" for problem in suite("v1")})


def _beginning(incomplete: str, names: dict[str, str]) -> Names:
    return [(name, what) for name, what in names.items() if name.startswith(incomplete)]
