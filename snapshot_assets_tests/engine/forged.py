"""Builds hostile snapshots with valid checksums, as an attacker with access to the bucket can.

What the package's own writers refuse to write is written past them, with the same bytes that they would give it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.receipts import Receipt, write_receipt
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import DataFile
from snapshot_assets.format.documents import pretty_json, sha256_hex, sums_line
from snapshot_assets.format.layout import data_file_stem, new_attempt, schema_folder, transaction_path
from snapshot_assets.format.relations import TableName
from snapshot_assets.format.transactions import encode_transaction
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets_tests.catalog.conftest import HEADER as WINDOWS

HEADER = replace(
    WINDOWS, schemas=(), start=None, end=None, untimed_tables="export", requested_start="", requested_end=""
)
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Forged:
    """What a forged snapshot holds.

    Attributes:
        database: Kind of the database that it names as its source.
        tables: Table documents; without further facts of a column's, an untimed table of one integer.
        files: Bytes of data files and their number of rows in the log, by table.
        texts: Bytes of documents that take the place of the ones made here, by name, such as `tables.json`.
        facts: Facts of every data file that the log states otherwise than they are.
    """

    database: str = "duckdb"
    schemas: tuple[Document, ...] = ()
    tables: tuple[Document, ...] = ()
    views: tuple[Document, ...] = ()
    files: tuple[tuple[TableName, bytes, int], ...] = ()
    texts: Mapping[str, bytes] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def write(self, store: ObjectStore) -> None:
        """Write log, documents, files, receipts and hints, sealed."""
        catalog = Catalog.open_for_writing(store)
        catalog.commit(rules.begin(HEADER, self._schema(store)))
        files = tuple(self._file(store, catalog, *each) for each in self.files)
        receipt = Receipt(
            snapshot_id=catalog.state.snapshot_id,
            base_revision=catalog.state.revision,
            schema_sha256=catalog.state.schemas[1].sha256,
            chunk=0,
            attempt=new_attempt(),
            opened_at=datetime.now(UTC),
            fence={"run": "r"},
            files=files,
            run="r",
        )
        done = rules.FinishedChunk(0, files, (write_receipt(store, receipt),), receipt.opened_at, receipt.fence, "r")
        catalog.commit(rules.complete_chunks(catalog.token(), [done], catalog.now))
        seal(catalog)

    def _schema(self, store: ObjectStore) -> rules.SchemaContent:
        common = {"version": 1, "database": self.database}
        content = {
            f"{name}.json": pretty_json(common | {name: getattr(self, name)}) for name in ("schemas", "tables", "views")
        }
        content |= self.texts
        digest = sha256_hex(
            "".join(sums_line(sha256_hex(data), name) for name, data in sorted(content.items())).encode()
        )
        refs = []
        for name, data in sorted(content.items()):
            path = f"{schema_folder(digest)}/{name}"
            store.put(path, data)
            refs.append(act.ObjectRef(path, sha256_hex(data), len(data)))
        return rules.SchemaContent(schema_folder(digest), digest, tuple(refs))

    def _file(self, store: ObjectStore, catalog: Catalog, table: TableName, data: bytes, rows: int) -> DataFile:
        attempt = new_attempt()
        path = f"{data_file_stem(0, table, attempt)}-0000.parquet"
        store.put(path, data)
        facts = {
            "path": path,
            "schema": table.schema,
            "table": table.table,
            "chunk": 0,
            "attempt": attempt,
            "rows": rows,
            "bytes": len(data),
            "sha256": sha256_hex(data),
            "schema_id": 1,
            "tombstones_through": catalog.state.revision,
        }
        return DataFile(**(facts | self.facts))


def append(store: ObjectStore, *actions: act.Action) -> str:
    """Write a transaction of any actions after the head, with a right chain; returns its path."""
    state = read_state(store)
    transaction = act.Transaction(
        location_id=state.location_id,
        revision=state.revision + 1,
        uuid=uuid.uuid4().hex,
        previous_uuid=state.uuid,
        previous_sha256=state.sha256,
        writer_id="attacker",
        committed_at=state.committed_at + timedelta(milliseconds=1),
        actions=actions,
    )
    path = transaction_path(transaction.revision)
    store.put(path, encode_transaction(transaction))
    return path


def column(name: str = "a", type: str = "integer", arrow_type: str = "int32", **facts: Any) -> dict[str, Any]:
    """Return a column's document."""
    return {"name": name, "type": type, "arrow_type": arrow_type, **facts}


def table(schema: str, name: str, columns: Iterable[Document] = (), **facts: Any) -> dict[str, Any]:
    """Return a table's document; without columns, one of an integer `a`."""
    return {"schema": schema, "name": name, "columns": [*columns] or [column()], **facts}


def nested(depth: int) -> bytes:
    """Return a JSON document that is an object of lists inside lists."""
    return b'{"version": 1, "tables": ' + b"[" * depth + b"]" * depth + b"}"


def wide(document: Document, size: int) -> bytes:
    """Return a JSON document padded by a field to a size."""
    short = json.dumps({**document, "padding": ""}).encode()
    return short[:-2] + b"x" * (size - len(short)) + b'"}'
