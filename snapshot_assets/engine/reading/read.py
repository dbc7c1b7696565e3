"""Returns rows of snapshots as DataFrames: tables (`read`), by Spark's own reader where it reaches them, and chunks."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from snapshot_assets.catalog.schemas import VERIFY, read_schema, read_schemas
from snapshot_assets.catalog.state.file_pruning import deletions, written_schemas
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.verify.objects import hash_object
from snapshot_assets.databases.spark.types import batch_schema, spark_schema
from snapshot_assets.engine.executors import prepare_session
from snapshot_assets.engine.files.read import check_sha256, text_schemas
from snapshot_assets.engine.reading.native import InexpressibleError, NativeRead, plan_native
from snapshot_assets.engine.reading.options import ReadOptions, parse_options
from snapshot_assets.engine.reading.parallel import Hashed, check_parts, unhashed
from snapshot_assets.engine.reading.planning import FilePart, FileRows, TableRead
from snapshot_assets.engine.reading.source import open_read
from snapshot_assets.engine.reading.tasks import PlannedRead, grouped, table_work
from snapshot_assets.engine.session import master_of, send_package, spark_errors, task_frame
from snapshot_assets.errors import IncompleteError, ObjectNotFoundError, PlanError, TaskFailedError, TaskLostError
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.header import format_of
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.name_texts import written_name, yaml_key
from snapshot_assets.format.names import Spellings, rule_of, table_text
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import FILE, Location
from snapshot_assets.storage.options import StoreOptions

_hashed: WeakKeyDictionary[SparkSession, Hashed] = WeakKeyDictionary()
_lock = threading.Lock()


def hash_files(spark: SparkSession, store: ObjectStore, parts: Sequence[FilePart], *, local: bool) -> None:
    """Hash the files that this session has not hashed yet, and compare them with the log.

    Those on this machine (`local`) are hashed by threads of this process, others by a Spark job.

    Raises:
        ChecksumMismatchError: A file has another SHA-256; names it and both values.
        ObjectNotFoundError: A file is missing.
        TaskFailedError, TaskLostError: The job failed.
    """
    with _lock:
        known = _hashed.setdefault(spark, set())
    if local:
        check_parts(store, parts, known)
        return
    new = unhashed(store, parts, known, local=False)
    files = {part.file.path: part.file for part in new.values()}
    for path, sha256 in _in_tasks(spark, store, list(new.values())):  # the first fault ends it
        if sha256 is None:
            raise ObjectNotFoundError(f"There is no object {store.uri}/{path}. {VERIFY}", uri=f"{store.uri}/{path}")
        check_sha256(files[path], sha256)
    known.update(new)


def forget(spark: SparkSession) -> None:
    """Let a session hash all files again."""
    with _lock:
        _hashed.pop(spark, None)


def _in_tasks(spark: SparkSession, store: ObjectStore, parts: Sequence[FilePart]) -> Iterator[tuple[str, str | None]]:
    def read(group: Sequence[FilePart]) -> Iterator[pa.RecordBatch]:
        rows = [(part.file.path, _sha256(store, part.file.path)) for part in group]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, pa.string()) for column in zip(*rows, strict=True)], names=["path", "sha256"]
        )

    if parts:
        with spark_errors():
            rows = task_frame(send_package(spark), grouped(parts), "path string, sha256 string", read).collect()
        yield from ((row.path, row.sha256) for row in rows)


def _sha256(store: ObjectStore, path: str) -> str | None:
    try:
        return hash_object(store, path)[0]
    except ObjectNotFoundError:
        return None


_SCHEMES = {"s3": ("s3", "s3a"), "gs": ("gs",), "oss": ("oss",)}
"""Hadoop's names of a scheme, which a cluster's connectors may have. Azure's need an account, which no URI names."""


def hadoop_root(spark: SparkSession, location: Location, options: StoreOptions) -> str | None:
    """Return a location's path for Spark's own file system; None if that does not reach it.

    Folders are reached: reading one is refused unless Spark's tasks run on this machine. A store is reached if the
    session's Hadoop knows its scheme, and the read names no endpoint and no credentials, of which Hadoop knows nothing.
    The environment completes the options.
    """
    if location.scheme == FILE:
        return f"file://{location.local_path}"
    plain = StoreOptions(retries=options.retries, retry_timeout=options.retry_timeout, region=options.region)
    named = replace(options, requests_per_second=None) != plain
    if named or options.resolved(location.scheme).endpoint is not None:
        return None
    for scheme in _SCHEMES.get(location.scheme, ()):
        if _is_configured(spark, scheme):
            return f"{scheme}://{location.bucket}/{location.prefix}"
    return None


def _is_configured(spark: SparkSession, scheme: str) -> bool:
    """Return whether the session's Hadoop can open a scheme; behind Spark Connect, only settings are known."""
    session, jvm = getattr(spark, "_jsparkSession", None), getattr(spark, "_jvm", None)
    if session is None or jvm is None:
        return bool(spark.conf.get(f"spark.hadoop.fs.{scheme}.impl", None))
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, session.sessionState().newHadoopConf())
    except PySparkException:
        return False
    except Exception as cause:
        # Java's exceptions that PySpark has no name for come through py4j, which not every session has.
        if type(cause).__module__.startswith("py4j."):
            return False
        raise
    return True


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
    for name, time in (("start", start), ("end", end)):
        given[name] = time.isoformat() if isinstance(time, datetime) else time
    given["verify"] = str(bool(verify))
    given |= {name.lower(): str(value) for name, value in options.items()}
    stores = {scheme: each for scheme, each in (storage or {}).items() if each is not None}
    parsed = parse_options({name: value for name, value in given.items() if value is not None}, stores)
    chosen = open_read(parsed, master_of(spark), os.environ)
    if isinstance(chosen, PlannedRead):
        return _python_frame(spark, chosen)
    native = _plan_native(spark, chosen, parsed)
    if native is None:
        return _python_frame(spark, table_work(chosen))
    if verify:
        hash_files(spark, chosen.store, chosen.parts, local=parsed.location.scheme == FILE)
    try:
        return native.frame(spark)
    except (InexpressibleError, TaskFailedError, TaskLostError) as reason:
        _log.warning("Python tasks read %s, because Spark's own file system cannot: %s", parsed.location.uri, reason)
        return _python_frame(spark, table_work(chosen))


def _plan_native(spark: SparkSession, chosen: TableRead, options: ReadOptions) -> NativeRead | None:
    """Return how Spark's own reader reads a table; None if it cannot."""
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


def load_frames(
    spark: SparkSession, store: ObjectStore, state: State, chunks: Sequence[int], table: TableName | None = None
) -> dict[TableName, DataFrame]:
    """Return the rows of completed chunks as one DataFrame for each table, in no order.

    Windows return every timed table and chunk 0 every untimed one, even without rows; `table` selects one. Rows that a
    tombstone deletes are left out. Each task hashes its file before it yields a row.

    Raises:
        IncompleteError: Chunks are not completed; names them.
        PlanError: The chunks do not have that table: windows have the tables with a time index, chunk 0 the others.
    """
    missing = [chunk for chunk in chunks if not state.completed(chunk)]
    if missing:
        raise IncompleteError(
            f"Chunks {missing[:10]} of {store.uri} are not exported; materialise them.", missing=missing
        )
    files: dict[TableName, list[DataFile]] = {}
    for chunk in chunks:
        for known in state.live_files(chunk):
            files.setdefault(TableName(known.file.schema, known.file.table), []).append(known.file)
    schema = read_schema(store, state.schemas[state.schema_id])
    for each in schema.tables:
        if any((chunk == UNTIMED_CHUNK) is (each.time_index is None) for chunk in chunks):
            files.setdefault(each.table_name, [])
    if table is not None:
        files = _only(table, files, schema, store.uri)
    prepare_session(spark)
    documents = read_schemas(store, state) if state.tombstones or format_of(state.header).is_text else {}
    text_of = text_schemas(state.header, documents)
    zone = state.header.time_zone if state.header else "UTC"
    frames = {}
    for name, some in sorted(files.items()):
        gone = deletions(state, name, written_schemas(documents, name))
        left = [
            FilePart(file, deleted=gone.of(file.path), text=text_of(file))
            for file in some
            if file.path not in gone.dropped
        ]
        found = schema.table(name)
        rows = FileRows(store, found, batch_schema(found.arrow_schema()), None, verify=True, zone=zone)
        frames[name] = task_frame(spark, [[part] for part in left], spark_schema(rows.schema), rows)
    return frames


def _only(
    table: TableName, files: dict[TableName, list[DataFile]], schema: DatabaseSchema, uri: str
) -> dict[TableName, list[DataFile]]:
    known_names = {*files, *(each.table_name for each in schema.tables)}
    spelled = Spellings(rule_of(schema), known_names).of(table)
    chosen = {name: some for name, some in files.items() if name == spelled}
    if not chosen:
        known = next((each for each in schema.tables if each.table_name == spelled), None)
        why = "is not in the snapshot"
        if known is not None:
            why = "has no time index, so it is in chunk 0" if known.time_index is None else "is not in chunk 0"
        remedy = f"`time_columns: {{{yaml_key(written_name(*table))}: null}}`"
        raise PlanError(
            f"{table} of {uri} {why}. For an asset of a table without a time index, write {remedy} in the plan:"
            " then the asset has no partitions.",
            table=table_text(table),
        )
    return chosen
