"""A Spark cluster on the loopback of this machine, for tests and for a benchmark."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

#: What a worker says when it is ready.
REGISTERED = "Successfully registered with master"


@contextlib.contextmanager
def cluster(folder: Path, cores: int = 1, memory: str = "1g") -> Iterator[str]:
    """Where a master and a worker listen, started from the classes that the wheel brings."""
    import pyspark

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    where = f"spark://127.0.0.1:{port}"
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    master = ("org.apache.spark.deploy.master.Master", *here, "--port", str(port))
    sizes = ("--cores", str(cores), "--memory", memory, "--work-dir", str(folder / "work"))
    worker = ("org.apache.spark.deploy.worker.Worker", where, *here, *sizes)
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with (folder / "cluster.log").open("w") as log, contextlib.ExitStack() as stack:
        for command in (master, worker):
            started = subprocess.Popen((program, *command), env=environment, stdout=log, stderr=log)
            stack.callback(started.wait, 60)
            stack.callback(started.terminate)
        for _ in range(1200):
            if REGISTERED in (folder / "cluster.log").read_text() or started.poll() is not None:
                break
            time.sleep(0.1)
        assert REGISTERED in (folder / "cluster.log").read_text()
        yield where
