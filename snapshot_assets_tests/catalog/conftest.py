from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.receipts import Receipt, write_receipt
from snapshot_assets.format.actions import DataFile, Header, ObjectRef
from snapshot_assets.format.documents import sha256_hex
from snapshot_assets.format.layout import data_file_stem, new_attempt
from snapshot_assets.format.relations import Column, DatabaseSchema, Schema, Table, TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store
from snapshot_assets_tests.catalog.tags import sealed_by
from snapshot_assets_tests.schema_documents import write_schema

START = datetime(2025, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
SCHEMA = DatabaseSchema(
    database="duckdb",
    schemas=(Schema(name="main"),),
    tables=(
        Table(
            schema="main",
            name="m",
            time_index="t",
            columns=(Column(name="t", type="TIMESTAMPTZ", arrow_type="timestamp[us, tz=UTC]"),),
        ),
    ),
)
HEADER = Header(
    name="demo",
    source="db",
    catalog="",
    schemas=("main",),
    start=START,
    end=START + 3 * DAY,
    chunk_time_window=86_400_000_000,
    kind="once",
    format="parquet",
    schema_only=False,
    time_zone="UTC",
    null_time="fail",
    untimed_tables="skip",
    grace=86_400_000_000,
    requested_start="2025-01-01T00:00:00Z",
    requested_end="2025-01-04T00:00:00Z",
)


class Writer:
    """A writer of one location, like an export run but without databases and Parquet."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.catalog = Catalog.open_for_writing(store)

    def begin(self, header: Header = HEADER, *, force: bool = False, schema: DatabaseSchema = SCHEMA) -> int | None:
        revision = self.catalog.commit(rules.begin(header, write_schema(self.store, schema), force=force))
        self.token = self.catalog.token()
        return revision

    def file(self, chunk: int, content: bytes = b"rows") -> DataFile:
        attempt = new_attempt()
        path = data_file_stem(chunk, TableName("main", "m"), attempt) + "-0000.parquet"
        self.store.put(path, content)
        base = self.catalog.state.revision
        return DataFile(path, "main", "m", chunk, attempt, 2, len(content), sha256_hex(content), 1, base)

    def receipt(self, chunk: int, *files: DataFile, **changes: object) -> tuple[Receipt, ObjectRef]:
        facts = {
            "snapshot_id": self.catalog.state.snapshot_id,
            "base_revision": self.catalog.state.revision,
            "schema_sha256": self.catalog.state.schemas[1].sha256,
            "chunk": chunk,
            "attempt": new_attempt(),
            "opened_at": datetime.now(UTC),
            "fence": {"run": "r1"},
            "files": files,
            "run": "r1",
            "location_id": self.catalog.state.location_id,
            "header": self.catalog.state.header,
        }
        receipt = Receipt(**(facts | changes))
        return receipt, write_receipt(self.store, receipt)

    def finished(self, chunk: int, *files: DataFile, replaces: tuple[str, ...] | None = None) -> rules.FinishedChunk:
        receipt, ref = self.receipt(chunk, *files)
        return rules.FinishedChunk(chunk, files, (ref,), receipt.opened_at, receipt.fence, "r1", replaces)

    def complete(self, chunk: int, *files: DataFile, replaces: tuple[str, ...] | None = None) -> int | None:
        finished = self.finished(chunk, *files, replaces=replaces)
        if replaces is not None:
            self.token = self.catalog.token()  # like a run that opens its source now
        return self.catalog.commit(rules.complete_chunks(self.token, [finished], self.catalog.now))

    def fill(self) -> None:
        """Complete chunks 1 and 3 with a file each, and chunk 2 without files."""
        self.complete(1, self.file(1))
        self.complete(2)
        self.complete(3, self.file(3, b"other rows"))


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(parse_location(f"file://{tmp_path}/a location"))


@pytest.fixture
def writer(store: ObjectStore) -> Writer:
    writer = Writer(store)
    writer.begin()
    return writer


@pytest.fixture
def sealed(writer: Writer) -> Writer:
    """A location that is sealed at revision 5; tests that need another history have a `sealed` of their own."""
    return sealed_by(writer)
