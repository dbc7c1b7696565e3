"""Placeholder until the real writer lands."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.format.files import DataFile
from snapshot_assets.storage.base import ObjectStore


@dataclass(frozen=True)
class FileTarget:
    chunk: int
    schema: str
    table: str
    schema_id: int
    attempt: str
    tombstones_through: int
    stem: str
    metadata: Mapping[str, str] = field(default_factory=dict)


def write_files(
    store: ObjectStore,
    target: FileTarget,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    max_file_size: int,
) -> list[DataFile]:
    table = pa.Table.from_batches(list(batches), schema)
    if not table.num_rows:
        return []
    sink = io.BytesIO()
    pq.write_table(table, sink)
    data = sink.getvalue()
    path = f"{target.stem}-0000.parquet"
    with store.open_writer(path) as writer:
        writer.write(data)
    return [
        DataFile(
            path,
            target.schema,
            target.table,
            target.chunk,
            target.attempt,
            table.num_rows,
            len(data),
            hashlib.sha256(data).hexdigest(),
            target.schema_id,
            target.tombstones_through,
        )
    ]
