"""Generates locations of any number of files through the writers of the log: transactions, checkpoints, schemas, tags.

All data files are one Parquet file under many names (hard links), so a million of them need no space of their own.
A location is exported in transactions of a hundred chunks; then each night replaces a few files of a window and seals,
and a tag names the seal.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_assets.catalog import catalog as catalogs
from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog
from snapshot_assets.catalog.log.checkpoints import write_checkpoint
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import checksum_of
from snapshot_assets.catalog.receipts import Receipt, write_receipt
from snapshot_assets.catalog.schemas import describe_schema, write_documents
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.format import actions as act
from snapshot_assets.format.actions import ColumnStatistics, DataFile, RowGroup
from snapshot_assets.format.documents import chunk_checksum, pretty_json, sha256_hex
from snapshot_assets.format.header import FileFormat
from snapshot_assets.format.layout import data_file_stem, receipt_path
from snapshot_assets.format.relations import Column, DatabaseSchema, Schema, Table, TableName
from snapshot_assets.storage.base import ObjectStore
from snapshot_assets.storage.location import parse_location
from snapshot_assets.storage.options import open_store

START = datetime(2020, 1, 1, tzinfo=UTC)
WINDOW = timedelta(minutes=10)
REPLACED = 10
"""Files that a night replaces."""
CHUNKS_OF_A_COMMIT = 100
FILES_IN_MEMORY = 200_000
"""Files after which a checkpoint is written, and the state read from it: those since are Python objects."""
LINKS = 60_000
"""Names of one file; ext4 allows 65,000."""
RUN = "benchmark"


@dataclass(frozen=True)
class Shape:
    """What a location has.

    Attributes:
        objects: Whether data files and receipts exist, as links of one file; the log names them in any case.
        tags: As many nights, each of which is tagged.
    """

    files: int
    windows: int
    tables: int
    tags: int
    objects: bool = True

    @classmethod
    def of(cls, files: int, **others: int) -> Shape:
        """Return the usual shape: a hundred files a window, and a tag for every thousand files."""
        usual = {"windows": files // 100, "tables": min(1000, files // 100), "tags": files // 1000} | others
        return cls(files, usual["windows"], usual["tables"], usual["tags"])


def store_of(folder: str) -> ObjectStore:
    """Return the location in a folder."""
    return open_store(parse_location(f"file://{folder}/location"))


def schema_of(tables: int) -> DatabaseSchema:
    """Return a DuckDB database of tables with four columns."""
    types = {"t": ("TIMESTAMP WITH TIME ZONE", "timestamp[us, tz=UTC]"), "n": ("BIGINT", "int64")}
    types |= {"v": ("DOUBLE", "double"), "s": ("VARCHAR", "string")}
    columns = tuple(Column(name=name, type=own, arrow_type=arrow) for name, (own, arrow) in types.items())
    names = sorted(f"t{number}" for number in range(tables))
    return DatabaseSchema(
        database="duckdb",
        schemas=(Schema(name="main"),),
        tables=tuple(Table(schema_name="main", name=name, columns=columns, time_index="t") for name in names),
    )


class Links:
    """Makes names of one small file below a location."""

    def __init__(self, folder: str, content: bytes) -> None:
        self._root, self._content, self._left, self._source = Path(folder) / "location", content, 0, Path()
        self._folder = folder

    def add(self, path: str) -> None:
        """Give the file another name."""
        if not self._left:
            self._source = Path(self._folder) / f"content-{secrets.token_hex(4)}"
            self._source.write_bytes(self._content)
            os.utime(self._source, (START.timestamp(), START.timestamp()))
            self._left = LINKS
        target = self._root / path
        try:
            os.link(self._source, target)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(self._source, target)
        self._left -= 1


class Generator:
    """Fills one location."""

    def __init__(self, folder: str, shape: Shape) -> None:
        self.shape, self.schema = shape, schema_of(shape.tables)
        table = self.schema.tables[0].arrow_schema()
        sink = pa.BufferOutputStream()
        rows = [[START], [1], [0.5], ["one"]]
        pq.write_table(
            pa.table([pa.array(each, field.type) for each, field in zip(rows, table, strict=True)], table), sink
        )
        self.content = sink.getvalue().to_pybytes()
        self.sha256 = sha256_hex(self.content)
        self.links = Links(folder, self.content)
        self.store = store_of(folder)
        self.catalog = Catalog.open_for_writing(self.store)
        self.catalog.sign_newest_seal = lambda: None  # type: ignore[method-assign]  # of all files, at each seal
        catalogs.CHECKPOINT_INTERVAL = 10**9
        self.live: dict[str, DataFile] = {}

    def make(self) -> None:
        """Export everything, then seal and tag night by night."""
        content, documents = describe_schema(self.schema)
        write_documents(self.store, documents)
        self.catalog.commit(rules.begin(header(self.shape.windows), content))
        waiting = 0
        for first in range(1, self.shape.windows + 1, CHUNKS_OF_A_COMMIT):
            chunks = range(first, min(first + CHUNKS_OF_A_COMMIT, self.shape.windows + 1))
            exported = [action for chunk in chunks for action in self._chunk(chunk, self._files(chunk, "0" * 8))]
            self.catalog.commit(partial(_only, exported))
            waiting += len(exported)
            if waiting > FILES_IN_MEMORY:
                waiting = 0
                self.reread()
        self.reread()
        for night in range(self.shape.tags):
            self._night(night)
        self.catalog.commit(lambda state: [act.Seal(state.revision, checksum_of(state), "run")])
        self.reread()

    def reread(self) -> None:
        """Write a checkpoint, and hold its files in columns from now on."""
        write_checkpoint(self.store, self.catalog.state)
        self.catalog.state = read_state(self.store)

    def _files(self, chunk: int, attempt: str) -> list[DataFile]:
        count = self.shape.files // self.shape.windows
        return [self.data_file(chunk, (chunk * count + number) % self.shape.tables, attempt) for number in range(count)]

    def data_file(self, chunk: int, table: int, attempt: str) -> DataFile:
        """Return a file of one row, with bounds of three columns."""
        name, value = TableName("main", f"t{table}"), chunk * 1000 + table
        bounds = (
            ColumnStatistics("n", 0, value, value + 999),
            ColumnStatistics("v", 0, value / 3, value / 3 + 1),
            ColumnStatistics("s", 0, b"%012d" % value, b"%012d" % (value + 999)),
        )
        path = f"{data_file_stem(chunk, name, attempt)}-0000.parquet"
        if self.shape.objects:
            self.links.add(path)
        size = len(self.content)
        groups = (RowGroup(1, size, bounds),)
        return DataFile(path, "main", name.table, chunk, attempt, 1, size, self.sha256, 1, 0, bounds, groups)

    def _chunk(self, chunk: int, files: list[DataFile]) -> list[act.Action]:
        ref = act.ObjectRef(receipt_path(chunk, "0" * 8), self.sha256, len(self.content))
        if self.shape.objects:
            self.links.add(ref.path)
        return [self._completed(chunk, files, ref), *map(act.AddFile, files)]

    def _completed(self, chunk: int, files: list[DataFile], receipt: act.ObjectRef) -> act.Chunk:
        start = START + (chunk - 1) * WINDOW
        checksum = chunk_checksum((file.path, file.sha256) for file in files)
        done = act.ChunkStatus.COMPLETED
        return act.Chunk(chunk, start, start + WINDOW, done, checksum, len(files), receipts=(receipt,), run=RUN)

    def _night(self, night: int) -> None:
        """Replace some files of a window, seal, and tag the seal."""
        chunk, state = 1 + night % self.shape.windows, self.catalog.state
        known = [known.file for known in state.live_files(chunk)]
        attempt = f"{night + 1:08x}"
        tables = [int(file.table.removeprefix("t")) for file in known[:REPLACED]]
        new = [self.data_file(chunk, table, attempt) for table in tables]
        header, schema = state.header, state.schemas[1].sha256
        receipt = Receipt(
            state.snapshot_id,
            state.revision,
            schema,
            chunk,
            attempt,
            self.catalog.now(),
            {},
            tuple(new),
            supersedes=tuple(sorted({file.attempt for file in known[:REPLACED]})),
            location_id=state.location_id,
            header=header,
        )
        ref = write_receipt(self.store, receipt)
        changes: list[act.Action] = [
            self._completed(chunk, [*known[REPLACED:], *new], ref),
            *(act.RemoveFile(file.path) for file in known[:REPLACED]),
            *map(act.AddFile, new),
        ]
        sealed = self.catalog.commit(lambda state: [*changes, act.Seal(state.revision, "0" * 64, "run")])
        assert sealed is not None
        name, path = f"night-{night}", f"tag/tag-night-{night}-{attempt}"
        self.store.create(path, TAG)
        tag = act.TagCreated(name, sealed, act.ObjectRef(path, sha256_hex(TAG), len(TAG)), self.catalog.now())
        self.catalog.commit(partial(_only, [tag]))


TAG = pretty_json({"version": 1, "manifest": {}})
"""Stands for a tag's object, whose size is that of a manifest."""


def header(windows: int) -> act.Header:
    """Return the header of a snapshot with so many windows."""
    return act.Header(
        name="location",
        source="scale",
        catalog="",
        schemas=("main",),
        start=START,
        end=START + windows * WINDOW,
        chunk_time_window=WINDOW // timedelta(microseconds=1),
        kind="once",
        format=FileFormat().text(),
        schema_only=False,
        time_zone="UTC",
        null_time="fail",
        untimed_tables="skip",
        grace=86_400_000_000,
    )


def _only(actions: list[act.Action], _: State) -> list[act.Action]:
    return actions
