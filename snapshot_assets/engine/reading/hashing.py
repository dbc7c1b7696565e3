"""Hashes the files of a read, each once in a session."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import SparkSession

from snapshot_assets.catalog.verify.objects import HASHING_THREADS, hash_object
from snapshot_assets.engine.files.read import check_sha256
from snapshot_assets.engine.reading.parts import FilePart, grouped
from snapshot_assets.engine.session import send_package, spark_errors, task_frame
from snapshot_assets.errors import ObjectNotFoundError
from snapshot_assets.format.files import DataFile
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.in_parallel import hashing_threads, threads

_Known = tuple[str, str, str, datetime | None]
_hashed: WeakKeyDictionary[SparkSession, set[_Known]] = WeakKeyDictionary()
_lock = threading.Lock()


def hash_files(spark: SparkSession, store: ObjectStore, parts: Sequence[FilePart], *, local: bool) -> None:
    """Hash the files that this session has not hashed yet, and compare them with the log.

    A local file counts as another one once its time has changed.

    Args:
        spark: The session.
        store: The location.
        parts: The files.
        local: Whether the files are on this machine: then this process hashes them in threads, else a Spark job does.

    Raises:
        ChecksumMismatchError: A file has another SHA-256; names it and both values.
        ObjectNotFoundError: A file is missing.
        TaskFailedError, TaskLostError: The job failed.
    """
    with _lock:
        known = _hashed.setdefault(spark, set())
    wanted = [(_identity(store, part.file, local), part) for part in parts]
    new = [(identity, part) for identity, part in wanted if identity not in known]
    files = {part.file.path: part.file for _, part in new}
    found = _in_threads(store, files.values()) if local else _in_tasks(spark, store, [part for _, part in new])
    for path, sha256 in found:
        if sha256 is None:
            raise ObjectNotFoundError(f"There is no object {path} in {store.uri}.", uri=f"{store.uri}/{path}")
        check_sha256(files[path], sha256)
    known.update(identity for identity, _ in new)


def forget(spark: SparkSession) -> None:
    """Let a session hash all files again."""
    with _lock:
        _hashed.pop(spark, None)


def _identity(store: ObjectStore, file: DataFile, local: bool) -> _Known:
    return store.uri, file.path, file.sha256, store.head(file.path).modified if local else None


def _in_threads(store: ObjectStore, files: Iterable[DataFile]) -> Iterator[tuple[str, str | None]]:
    with threads(hashing_threads(store, HASHING_THREADS)) as pool:
        yield from pool.map(lambda file: (file.path, _sha256(store, file.path)), files)


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
