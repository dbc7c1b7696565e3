"""Creates the golden locations of the current format version, once for each version.

    python -m snapshot_assets_tests.golden.make

They are kept for ever, as the code of their day wrote them; one that is there is never made again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import duckdb
import pyarrow as pa

from snapshot_assets.catalog import catalog, rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.operations.seal import seal
from snapshot_assets.catalog.pins.objects import create_savepoint
from snapshot_assets.catalog.pins.tags import create_tag, delete_tag, hold_tag, release_tag, rename_tag, replace_tag
from snapshot_assets.catalog.rebuild import rebuild as rebuilding
from snapshot_assets.catalog.rebuild.rebuild import rebuild
from snapshot_assets.catalog.receipts import write_receipt
from snapshot_assets.catalog.schemas import read_schemas
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.engine.compact.options import CompactionOptions
from snapshot_assets.engine.compact.plan import plan_compaction
from snapshot_assets.engine.compact.run import CompactRun
from snapshot_assets.engine.export.copy import copy
from snapshot_assets.engine.export.run import ExportRun
from snapshot_assets.engine.export.tasks import Outcome, Provenance, write_table
from snapshot_assets.engine.runner import InlineRunner
from snapshot_assets.format.actions import Header
from snapshot_assets.format.documents import FORMAT_VERSION
from snapshot_assets.format.header import FileFormat
from snapshot_assets.format.layout import transaction_path
from snapshot_assets.format.relations import Column, DatabaseSchema, PrimaryKey, Schema, Table, TableName
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.execute import collect_garbage, delete_rows, expire, prune, rollback
from snapshot_assets_tests.catalog.tags import delete_savepoint
from snapshot_assets_tests.golden.contents import expected
from snapshot_assets_tests.schema_documents import write_schema

HERE = Path(__file__).parent
START, DAY, NOW = datetime(2025, 1, 1, tzinfo=UTC), timedelta(days=1), timedelta(0)
READINGS, SENSORS = TableName("main", "readings"), TableName("main", "sensors")
_COLUMNS = (
    Column(name="moment", type="TIMESTAMPTZ", arrow_type="timestamp[us, tz=UTC]", nullable=False),
    Column(name="value", type="DOUBLE", arrow_type="double"),
    Column(name="count", type="UBIGINT", arrow_type="uint64"),
    Column(name="price", type="DECIMAL(9,2)", arrow_type="decimal128(9, 2)"),
    Column(name="note", type="VARCHAR", arrow_type="string"),
)
_SENSORS = Table(
    schema="main",
    name="sensors",
    columns=(
        Column(name="id", type="INTEGER", arrow_type="int32", nullable=False),
        Column(name="name", type="VARCHAR", arrow_type="string"),
        Column(name="since", type="DATE", arrow_type="date32[day]"),
    ),
    primary_key=PrimaryKey(name="sensors_pkey", columns=("id",), definition="PRIMARY KEY (id)"),
)
HEADER = Header(
    name="golden",
    source="db",
    catalog="",
    schemas=("main",),
    start=START,
    end=START + 2 * DAY,
    chunk_time_window=DAY // timedelta(microseconds=1),
    kind="continuous",
    format="parquet",
    schema_only=False,
    time_zone="UTC",
    null_time="chunk0",
    untimed_tables="export",
    grace=DAY // timedelta(microseconds=1),
    requested_start="2025-01-01T00:00:00Z",
)


def schema_of(columns: tuple[Column, ...] = _COLUMNS) -> DatabaseSchema:
    """Return the database's schema, with these columns of the timed table."""
    readings = Table(schema="main", name="readings", time_index="moment", columns=columns)
    return DatabaseSchema(database="duckdb", schemas=(Schema(name="main"),), tables=(readings, _SENSORS))


@dataclass
class Exporter:
    """A writer of a location, with generated rows in real files.

    Attributes:
        header: The header of a snapshot that it begins.
    """

    store: ObjectStore
    header: Header = HEADER

    def __post_init__(self) -> None:
        self.catalog = Catalog.open_for_writing(self.store)

    def begin(self, *, force: bool = False) -> None:
        """Begin a snapshot."""
        self.catalog.commit(rules.begin(self.header, write_schema(self.store, schema_of()), force=force))

    def provenance(self) -> Provenance:
        """Return the provenance of files and receipts."""
        state = self.catalog.state
        facts = {"database": "db", "writer": self.catalog.writer_id}
        newest = state.schemas[state.schema_id]
        return Provenance(
            state.location_id,
            state.snapshot_id,
            state.revision,
            newest.schema_id,
            newest.sha256,
            "run",
            state.revision,
            {"snapshot": "1"},
            facts,
            state.header,
            state.format_version,
        )

    def complete(self, chunk: int, first: int = 0, parts: int = 1) -> None:
        """Complete a chunk, or replace it, with three readings in each part, or the two sensors."""
        catalog, origin = self.catalog, self.provenance()
        schema = read_schemas(self.store, catalog.state)[origin.schema_id]
        opened_at, live = datetime.now(UTC), tuple(catalog.state.files.chunk(chunk))
        window = str(catalog.state.window(chunk)) if chunk else ""
        rows = [(READINGS, readings(schema, chunk, first + part)) for part in range(parts if chunk else 0)]
        rows = rows if chunk else [(SENSORS, sensors(schema))]
        files = [
            file
            for name, table in rows
            for file in write_table(self.store, origin, chunk, window, schema.table(name), table.to_batches(), 1 << 28)
        ]
        superseded = sorted({known.file.attempt for known in catalog.state.live_files(chunk)})
        receipt = origin.receipt(Outcome(chunk, "read", tuple(files), opened_at=opened_at), tuple(superseded))
        refs = (write_receipt(self.store, receipt),)
        done = rules.FinishedChunk(chunk, receipt.files, refs, opened_at, receipt.fence, "run", live or None)
        assert catalog.commit(rules.complete_chunks(catalog.token(), [done], catalog.now))


def readings(schema: DatabaseSchema, chunk: int, part: int) -> pa.Table:
    """Return three rows of a window."""
    wanted = schema.table(READINGS).arrow_schema()
    values = {
        "moment": [START + (chunk - 1) * DAY + timedelta(hours=part, minutes=minute) for minute in range(3)],
        "value": [1.5, float("nan"), None],
        "count": [2**64 - 1, 0, 7],
        "price": [Decimal("1.25"), Decimal("-0.10"), None],
        "note": [f"part {part}", "\u00fc", None],
        "extra": [True, None, False],
    }
    return pa.table({field.name: pa.array(values[field.name], field.type) for field in wanted}, schema=wanted)


def sensors(schema: DatabaseSchema) -> pa.Table:
    """Return the two rows of the table without a time index."""
    rows = [{"id": 1, "name": "roof", "since": date(2020, 2, 29)}, {"id": 2, "name": None, "since": None}]
    return pa.Table.from_pylist(rows, schema=schema.table(SENSORS).arrow_schema())


def history(store: ObjectStore) -> None:
    """Every kind of action but those of the other locations; the log is whole from revision 1 on."""
    writer = Exporter(store)
    writer.begin()
    log = writer.catalog
    log.commit(rules.in_progress(log.token(), [0, 1, 2], "run"))
    log.commit(rules.fail_chunk(log.token(), 1, "the database went away", "run"))
    for chunk, parts in ((0, 1), (1, 3), (2, 0)):
        writer.complete(chunk, parts=parts)
    seal(log)
    sealed = log.state.revision
    create_tag(log, "first", sealed)
    create_tag(log, "kept", sealed, 7 * DAY)
    log.commit(rules.extend(log.token(), START + 3 * DAY))
    extra = Column(name="extra", type="BOOLEAN", arrow_type="bool")
    added = write_schema(store, schema_of((*_COLUMNS, extra)))
    log.commit(rules.add_schema(log.token(), added))
    writer.complete(3)
    for first in (3, 6):  # the files of the first replacement become garbage
        writer.complete(1, first=first, parts=3)
    seal(log)
    delete_rows(log, READINGS, "count = 0 and not (note is null) or price in (9.99, 8.00)")
    write_checkpoint(store, log.state)
    catalog = Catalog.open_for_writing(store)
    plan = plan_compaction(store, catalog.require_snapshot(), CompactionOptions(tables=(READINGS,), chunks=(1,)))
    list(CompactRun(catalog, InlineRunner(), "compaction").execute(plan))
    log.refresh()
    delete_tag(log, "first")
    assert collect_garbage(log, grace=NOW, unsafe=True).deleted
    log.commit(rules.in_progress(log.token(), [2], "another run"))
    write_checkpoint(store, log.state)


def rebuilt(store: ObjectStore) -> None:
    """A second snapshot id; then a log with a gap that was rebuilt, sealed and pruned."""
    writer = Exporter(store)
    for force in (False, True):
        writer.begin(force=force)
        for chunk in (0, 1, 2):
            writer.complete(chunk, parts=1)
        seal(writer.catalog)
        create_tag(writer.catalog, "second" if force else "first", writer.catalog.state.revision)
    store.delete(transaction_path(writer.catalog.state.revision - 3))
    assert rebuild(store).committed
    writer = Exporter(store)
    writer.complete(1, first=3)
    seal(writer.catalog)
    write_checkpoint(store, writer.catalog.state)
    assert prune(writer.catalog, grace=NOW, unsafe=True).deleted


def deleted(store: ObjectStore) -> None:
    """A deletion of the snapshot, interrupted after its transaction."""
    writer = Exporter(store)
    writer.begin()
    writer.catalog.commit(rules.delete(writer.catalog.token(), with_tags=True))


def travelled(store: ObjectStore) -> None:
    """Tags renamed and replaced, savepoints, a rollback, and revisions that expired, with and without pins."""
    writer = Exporter(store)
    writer.begin()
    for chunk in (0, 1, 2):
        writer.complete(chunk)
    log, sealed = writer.catalog, []
    for first in (1, 2, 3):
        sealed.append(seal(log).seal.revision)
        writer.complete(1, first=first)
    seal(log)
    create_tag(log, "first", sealed[0], 7 * DAY)
    rename_tag(log, "first", "kept")
    create_tag(log, "moving", sealed[0], automatic=True)
    replace_tag(log, "moving", sealed[1], automatic=True)
    for automatic in (True, False, False):
        create_savepoint(log, log.state.data_revision, automatic=automatic)
    delete_savepoint(log, 3)
    write_checkpoint(store, log.state)
    rollback(log, sealed[0])
    expire(log, keep_last=1)
    write_checkpoint(store, log.state)


def held(store: ObjectStore) -> None:
    """A tag under legal hold whose revision expired, in a checkpoint and after it, and one that was released."""
    writer = Exporter(store)
    writer.begin()
    for chunk in (0, 1, 2):
        writer.complete(chunk)
    log = writer.catalog
    first = seal(log).seal.revision
    for name in ("evidence", "free", "later"):
        create_tag(log, name, first, 7 * DAY)
    hold_tag(log, "evidence", "case 12 of 2025", "counsel")
    hold_tag(log, "free", "a mistake")
    release_tag(log, "free", "it was one")
    writer.complete(1, first=1)
    seal(log)
    expire(log, keep_last=1)
    write_checkpoint(store, log.state)
    hold_tag(log, "later", "case 13 of 2025")


def csv(store: ObjectStore) -> None:
    """Compressed CSV with every option; a chunk in two files, one replaced, and a tombstone."""
    _text(store, FileFormat("csv", "gzip", header=True, delimiter=";", quote="'", escape="\\", null="NULL"))


def json_lines(store: ObjectStore) -> None:
    """Compressed JSON lines; a chunk in two files, one replaced, and a tombstone."""
    _text(store, FileFormat("json", "zstd"))


def _text(store: ObjectStore, written: FileFormat) -> None:
    writer = Exporter(store, replace(HEADER, format=written.check().text()))
    writer.begin()
    for chunk in (0, 1, 2):
        writer.complete(chunk, parts=2)
    seal(writer.catalog)
    create_tag(writer.catalog, "first", writer.catalog.state.revision)
    writer.complete(2, first=3)
    delete_rows(writer.catalog, READINGS, "count = 0")
    seal(writer.catalog)


def copied(store: ObjectStore) -> None:
    """A copy of a query, in CSV."""
    query = "SELECT 1::INTEGER AS id, 'roof' AS name, DATE '2020-02-29' AS since UNION ALL SELECT 2, NULL, NULL"
    with TemporaryDirectory() as folder:
        uri = f"duckdb://{folder}/empty.duckdb"
        duckdb.connect(uri.removeprefix("duckdb://")).close()
        plan = Plan(name="sensors", kind="query", source=uri, to=store.uri, query=query, format="csv")
        copy(ExportRun(plan, DatabaseAddress("db", uri), store, InlineRunner(), "run"))


def _writer() -> str:
    return "snapshot_assets/golden"


LOCATIONS = {
    "history": history,
    "rebuilt": rebuilt,
    "deleted": deleted,
    "travelled": travelled,
    "held": held,
    "csv": csv,
    "json": json_lines,
    "copied": copied,
}


def main() -> None:
    """Create the missing locations."""
    folder = HERE / f"version_{FORMAT_VERSION}"
    for name, make in LOCATIONS.items():
        if not (folder / name).exists():
            store = open_store(parse_location((folder / name).as_uri()))
            with (
                mock.patch.object(catalog, "writer_name", _writer),
                mock.patch.object(rebuilding, "writer_name", _writer),
            ):
                make(store)
            (folder / f"{name}.json").write_text(json.dumps(expected(store), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
