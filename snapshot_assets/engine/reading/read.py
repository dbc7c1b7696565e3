"""`read`: a snapshot's table as a DataFrame, by Spark's own Parquet reader where that reaches the files."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from snapshot_assets.engine.reading.filters import InexpressibleError
from snapshot_assets.engine.reading.hadoop import hadoop_root
from snapshot_assets.engine.reading.hashing import hash_files
from snapshot_assets.engine.reading.native import NativeRead, plan_native
from snapshot_assets.engine.reading.options import ReadOptions, parse_options
from snapshot_assets.engine.reading.planning import PlannedRead, TableRead
from snapshot_assets.engine.reading.source import open_read
from snapshot_assets.engine.session import master_of, send_package, task_frame
from snapshot_assets.errors import PlanError, TaskFailedError, TaskLostError
from snapshot_assets.storage.location import FILE
from snapshot_assets.storage.options import StoreOptions

_log = logging.getLogger(__name__)


def read(
    spark: SparkSession,
    location: str,
    table: str,
    *,
    version: str | None = None,
    columns: Sequence[str] | None = None,
    start: str | datetime | None = None,
    end: str | datetime | None = None,
    verify: bool = True,
    storage: Mapping[str, StoreOptions | None] | None = None,
    **options: str,
) -> DataFrame:
    """Return the rows of a table, or of a metadata table such as `$chunks`, at one version.

    Where Spark's own file system reaches the location, this is Spark's own Parquet DataFrame over exactly the files of
    the version, and deleted rows are filtered out. Else Python tasks read the files, as they do for
    `spark.read.format("snapshot")`; the columns and rows are the same. The DataFrame keeps its version.

    Args:
        spark: The session.
        location: The location's URI.
        table: The table, such as `public.trips`; or a metadata table.
        version: A tag, `savepoint:3`, `rev:12` or a time; the newest seal if omitted.
        columns: The columns, in order; all if omitted.
        start: Only rows from this time on. Files outside the range are not opened.
        end: Only rows before this time.
        verify: Whether files that this session has not hashed yet are hashed first.
        storage: `StoreOptions` by URI scheme, such as `dict(load_configuration().storage)`.
        **options: Further options of the data source, such as `since`, `federation` or `endpoint`.

    Raises:
        PlanError: An option is wrong, or there is no such column.
        LocationUriError: The location is not a valid URI.
        NoSnapshotError: There is no snapshot.
        IncompleteError: No revision is sealed yet.
        VersionNotFoundError: There is no such version.
        UnknownRelationError: There is no such table.
        ChecksumMismatchError: A file is damaged.
        ObjectNotFoundError: A file is missing.
    """
    given = {"path": location, "table": table, "version": version, "columns": _columns_text(columns)}
    given |= {"start": _time_text(start), "end": _time_text(end), "verify": str(bool(verify))}
    given |= {name.lower(): str(value) for name, value in options.items()}
    stores = {scheme: each for scheme, each in (storage or {}).items() if each is not None}
    parsed = parse_options({name: value for name, value in given.items() if value is not None}, stores)
    chosen = open_read(parsed, master_of(spark), os.environ)
    if isinstance(chosen, PlannedRead):
        return _python_frame(spark, chosen)
    local = parsed.location.scheme == FILE
    native = _plan(spark, chosen, parsed)
    if native is None:
        return _python_frame(spark, chosen.planned())
    if verify:
        hash_files(spark, chosen.store, chosen.parts, local=local)
    try:
        return native.frame(spark)
    except (InexpressibleError, TaskFailedError, TaskLostError) as reason:
        _log.warning("Python tasks read %s, because Spark's own file system cannot: %s", parsed.location.uri, reason)
        return _python_frame(spark, chosen.planned())


def _plan(spark: SparkSession, chosen: TableRead, options: ReadOptions) -> NativeRead | None:
    """Plan a read by Spark's own reader; None if that does not reach the files, or might return other rows."""
    root = hadoop_root(spark, options.location, options.store)
    if root is None:
        return None
    try:
        return plan_native(chosen, root)
    except InexpressibleError as reason:
        _log.info("Python tasks read %s of %s: %s", chosen.table.table_name, options.location.uri, reason)
        return None


def _python_frame(spark: SparkSession, planned: PlannedRead) -> DataFrame:
    return task_frame(send_package(spark), planned.work, planned.schema, planned.read)


def _columns_text(columns: Sequence[str] | None) -> str | None:
    if columns is None:
        return None
    if isinstance(columns, str) or not columns:
        raise PlanError(f"columns is {columns!r}; write a list of names, such as ['id', 'fare'], or leave it out")
    return ",".join('"' + name.replace('"', '""') + '"' for name in columns)


def _time_text(time: str | datetime | None) -> str | None:
    return time.isoformat() if isinstance(time, datetime) else time
