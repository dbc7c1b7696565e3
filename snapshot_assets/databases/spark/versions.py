"""Versions of a Spark catalog's tables: while a table has the same version, none of its rows changed.

Iceberg and Delta number the states of a table. Of tables that are files, the version is what Spark lists: all files of
all partitions, with sizes and modification times. Spark keeps that list for the session, so scans after it read these
files, or fail. A version also has the definition: another location, option or column makes another one.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

_VOLATILE = ("Statistics", "Partition Statistics", "Last Access")
"""Properties of a table that change without its rows."""

_FILE_INDEXES = ("InMemoryFileIndex", "CatalogFileIndex")
"""How Spark lists files of which all are the table's; those of Delta, Hudi and streams have logs that name theirs."""

_FILE = re.compile(r"\bpath=(.*?); isDirectory=false; length=(\d+);.*?; modification_time=(\d+)")
_YOUNG = 2000
"""Milliseconds in which a file could be written twice with the same modification time."""

_DIGITS = 16


def read_version(spark: SparkSession, table: str, details: Mapping[str, str]) -> str | None:
    """Return a table's version, of 16 hexadecimal digits; None if it has none, or may change without another one.

    Rows that are read afterwards are those of this version or of a later one.

    Args:
        spark: The session.
        table: The table's quoted name, with the catalog.
        details: The table's properties in the catalog.
    """
    spark.sql(f"REFRESH TABLE {table}")  # what the session knows of it may be older than the version
    frame, provider = spark.table(table), details.get("Provider", "").lower()
    state: str | list[str] | None
    if provider == "iceberg":
        state = _iceberg(spark, table)
    elif provider == "delta":
        state = _delta(spark, table)
    else:
        state = _files(spark, frame)
    if state is None:
        return None
    defined = {name: text for name, text in details.items() if name not in _VOLATILE}
    content = json.dumps([table, defined, frame.schema.json(), state], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]


def _iceberg(spark: SparkSession, table: str) -> str:
    """Return the newest metadata files: each commit writes one, also one that only changes columns."""
    return str(
        spark.sql(f"SELECT timestamp, file FROM {table}.metadata_log_entries ORDER BY timestamp, file").collect()
    )


def _delta(spark: SparkSession, table: str) -> str:
    """Return the newest version, with its time: a table that was made again counts from 0."""
    return str(spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").select("version", "timestamp", "operation").collect())


def _files(spark: SparkSession, frame: DataFrame) -> list[str] | None:
    """Return the files of a table, and the partitions that they are of; None if it is something else.

    Spark Connect has no access to the list.
    """
    plan, jvm = getattr(frame, "_jdf", None), cast(Any, spark)._jvm
    leaves = plan.queryExecution().analyzed().collectLeaves() if plan is not None else None
    if leaves is None or leaves.size() != 1 or leaves.head().getClass().getSimpleName() != "LogicalRelation":
        return None
    relation = leaves.head().relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None
    index, started = relation.location(), time.time() * 1000
    kind = index.getClass().getSimpleName()
    if kind not in _FILE_INDEXES:
        return None
    if kind == "CatalogFileIndex":
        index = index.filterPartitions(jvm.PythonUtils.toSeq([]))
    found = _FILE.findall(index.allFiles().mkString("\n"))
    young = any(int(modified) + _YOUNG > started for _, _, modified in found)
    if young or len(found) != len(index.inputFiles()):
        return None
    return [index.partitionSpec().toString(), *sorted(" ".join(file) for file in found)]
