"""Where cells are computed: here, in processes of this machine (joblib's loky), on Dask, or on Ray.

A backend hands out futures; the numbers do not depend on which one it is.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

Backend = Literal["loky", "dask", "ray"]
#: What to install for each.
_NEEDS = {"dask": "distributed", "ray": "ray"}


@dataclass(frozen=True)
class Workers:
    """`submit(function, *arguments)` returns a future; `width` futures keep everybody busy."""

    submit: Callable[..., Future[Any]]
    width: int
    broken: tuple[type[BaseException], ...] = ()  # what every future raises once a worker has died
    unsure: tuple[type[BaseException], ...] = ()  # what one raises whose worker died, maybe of another cell it had


def check(backend: str) -> None:
    """Refuse a backend that is unknown or not installed."""
    if backend not in get_args(Backend):
        raise ValueError(f"unknown backend {backend!r}; choose one of {', '.join(get_args(Backend))}")
    package = _NEEDS.get(backend)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ValueError(f"{backend} is not installed; pip install 'discreet[{backend}]', or take the backend loky")


def count(jobs: int) -> int:
    if jobs != -1 and jobs < 1:
        raise ValueError(f"jobs is {jobs}; it must be at least 1, or -1 for every core")
    return jobs if jobs > 0 else os.cpu_count() or 1


@contextmanager
def opened(backend: str, jobs: int, address: str | None = None) -> Iterator[Workers]:
    """Workers of a backend; `address` is that of a Dask scheduler or Ray cluster, and None starts one here."""
    check(backend)
    if backend == "loky" and address is not None:
        raise ValueError("loky works on this machine; leave the address out, or take the backend dask or ray")
    start = {"loky": _loky, "dask": _dask, "ray": _ray}[backend]
    with start(count(jobs), address) as workers:
        yield workers


@contextmanager
def _loky(jobs: int, address: str | None) -> Iterator[Workers]:
    if jobs == 1:
        yield Workers(_here, 1)
        return
    with processes(jobs, width=2 * jobs) as workers:
        yield workers


@contextmanager
def processes(jobs: int, width: int) -> Iterator[Workers]:
    """Fresh processes, ended at the end whatever they do."""
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    pool = ProcessPoolExecutor(max_workers=jobs)
    try:
        yield Workers(pool.submit, width, (BrokenProcessPool,))
    finally:
        pool.shutdown(kill_workers=True)


def _here(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(function(*arguments))
    return future


@contextmanager
def _dask(jobs: int, address: str | None) -> Iterator[Workers]:
    """The client that is current, else one of `address` (or DASK_SCHEDULER_ADDRESS), else a cluster of processes."""
    import dask
    from distributed import Client, LocalCluster, get_client

    address = address or dask.config.get("scheduler-address", None)
    try:
        client = get_client() if address is None else None
    except ValueError:
        client = None
    if client is not None:
        yield _dask_workers(client)
    elif address is not None:
        with Client(address) as connected:
            yield _dask_workers(connected)
    else:
        with (
            LocalCluster(
                n_workers=jobs, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
            ) as cluster,
            Client(cluster) as connected,
        ):
            yield _dask_workers(connected)


def _dask_workers(client: Any) -> Workers:
    from distributed.scheduler import KilledWorker

    threads = sum(client.nthreads().values())
    return Workers(client.get_executor(pure=False).submit, 2 * max(1, threads), unsure=(KilledWorker,))


@contextmanager
def _ray(jobs: int, address: str | None) -> Iterator[Workers]:
    import ray

    ours = not ray.is_initialized()
    if ours:
        address = address or os.environ.get("RAY_ADDRESS")
        told: dict[str, Any] = {"num_cpus": jobs} if address is None else {"address": address}
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False, **told)
    try:
        cores = int(ray.cluster_resources().get("CPU", 1))

        def submit(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
            found: Future[Any] = ray.remote(function).remote(*arguments).future()
            return found

        yield Workers(submit, 2 * max(1, cores))
    finally:
        if ours:
            ray.shutdown()
