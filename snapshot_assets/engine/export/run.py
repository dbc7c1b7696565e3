"""One export run of one plan: everything between opening the location and the seal.

Dagster's assets, the command line and the tests drive this one class; it needs Spark only through its runner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Token
from snapshot_assets.catalog.log.replay import read_state
from snapshot_assets.catalog.manifest import write_hints
from snapshot_assets.catalog.operations.seal import Sealed, seal
from snapshot_assets.catalog.rules import SchemaContent, schema_id_of
from snapshot_assets.catalog.schemas import read_schema
from snapshot_assets.databases.source import DatabaseAddress, Selection
from snapshot_assets.databases.spark.tables import exact_frame, schema_table
from snapshot_assets.engine.export.begin import (
    RequestedRange,
    begin_snapshot,
    exported_schema,
    header_of,
    requested_range,
    skipped_tables,
)
from snapshot_assets.engine.export.chunks import ChunkPlan, Export, Outcome, Runner, export_chunks
from snapshot_assets.engine.export.source import Session, Source, open_source
from snapshot_assets.engine.export.tasks import ChunkWork, Provenance, Task
from snapshot_assets.engine.parquet.frames import FrameChunk, merged_schema
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.format.actions import Header, RowsOutside
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore


@dataclass
class ExportRun:
    """Exports, and seals, one plan's snapshot.

    Attributes:
        plan: The plan, its range resolved.
        address: The source.
        store: The location.
        runner: Where tasks run; only asked when there is something to read.
        run_id: Name of the run, in fences and receipts.
        requested: The ends as the user wrote them; the plan's own by default.
        force: Begin a new snapshot in place of the one that is there, once.
        session: Returns the Spark session, for a source that is a Spark catalog.
        most_parts: Most slices of one table's scan.
        skipped: Tables of the source that are not exported because they have no time index, once the source is open.
    """

    plan: Plan
    address: DatabaseAddress
    store: ObjectStore
    runner: Runner
    run_id: str
    requested: RequestedRange | None = None
    force: bool = False
    session: Session = SparkSession.active
    most_parts: int = 2
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    skipped: tuple[TableName, ...] = ()
    _catalog: Catalog | None = None
    _source: Source | None = None
    _schema: DatabaseSchema | None = None
    _seen: int = 0
    _content: SchemaContent | None = None
    _fence: Mapping[str, str] = field(default_factory=dict)
    _token: Token | None = None
    _begun_with: DatabaseSchema | None = None
    _resources: ExitStack = field(default_factory=ExitStack)

    @property
    def catalog(self) -> Catalog:
        """The location, opened for writing on first use."""
        if self._catalog is None:
            self._catalog = Catalog.open_for_writing(self.store, single_writer=self.plan.single_writer)
            self.store = self._catalog.store
        return self._catalog

    def _header(self, schemas: Sequence[str]) -> Header:
        requested = self.requested or requested_range(self.plan)
        return header_of(self.plan, schemas, self.address.alias, requested, datetime.now(UTC))

    def _check_plan(self) -> None:
        """Refuse a location whose snapshot was deleted, or was begun by another plan, before anything is read off it.

        Raises:
            LocationDeletedError: It was deleted.
            SnapshotExistsError: Another plan's snapshot is there; names each field with both values.
        """
        state = self.catalog.refresh()
        if state.header is not None and not self.force:
            header = self.catalog.require_snapshot().header or state.header
            rules.check_same_plan(header, self._header(header.schemas))

    def begin(self) -> DatabaseSchema:
        """Begin the snapshot or go on with it, once per run; returns the schema that is exported.

        From here to `close` all tasks of the run read one state of the database, where it has such a means.
        """
        source, schema = self._open()
        if self._begun_with is not schema:
            self._begin(schema, fixed_tables=self.plan.kind == "once")
            source.check()
        return schema

    def _open(self) -> tuple[Source, DatabaseSchema]:
        """Open the source and describe it, once per run; commits nothing."""
        if self._source is None or self._schema is None:
            self._seen = self._head()
            source = self._resources.enter_context(open_source(self.address, self.session, self.most_parts))
            found = source.extract(self.plan.selection)
            schema, self.skipped = exported_schema(self.plan, found), skipped_tables(self.plan, found)
            # Asked once: PostgreSQL's LSN moves on, while the snapshot that is read stays.
            self._fence = {"run": self.run_id, **source.database.fence()} if source.held else {}
            self._source, self._schema = source, schema
        return self._source, self._schema

    def _head(self) -> int:
        """Return the newest revision, without writing anything to a location that may be refused yet."""
        return (read_state(self.store) if self._catalog is None else self._catalog.refresh()).revision

    def _begin(self, schema: DatabaseSchema, *, fixed_tables: bool = False) -> None:
        header = self._header([item.name for item in schema.schemas])
        self._content = begin_snapshot(self.catalog, header, schema, force=self.force, fixed_tables=fixed_tables)
        self._token = self.catalog.token()
        self._begun_with = schema
        self.force = False

    def _begun(self) -> Token:
        """Return what this run began, if it is still there.

        Raises:
            SupersededError: Another snapshot began since.
        """
        assert self._token is not None
        rules.check_unchanged(self.catalog.refresh(), self._token)
        return self._token

    def export(self, chunks: Sequence[int], *, replace_completed: bool = False) -> Iterator[Outcome]:
        """Export chunks that are not completed, or again all of them; yields each outcome once it is committed.

        Raises:
            ExportFailedError: Some failed; the others are committed.
            SupersededError: Another snapshot began since this run did.
        """
        self._check_plan()
        if not (replace_completed or self.force) and all(self.catalog.refresh().completed(chunk) for chunk in chunks):
            yield from (self._skipped(chunk) for chunk in chunks)
            return
        self.begin()
        source, schema = self._open()
        self._begun()
        planner = source.make_planner(self.catalog.state, schema)
        export = self._export(source.address, self._fence, self._seen, replace_completed)
        yield from export_chunks(export, planner.plans, chunks)

    def export_frames(self, chunks: Sequence[FrameChunk], *, replace_completed: bool = False) -> Iterator[Outcome]:
        """Write a user's own DataFrames as chunks; see `export`.

        The tables' documents come from the DataFrames and join those that the snapshot knows.
        """
        seen = self._head()
        tables = {
            name: schema_table(name, frame.schema, Selection(time_columns=self.plan.time_columns))
            for chunk in chunks
            for name, frame in chunk.frames.items()
        }
        known = self.committed_schema() if self.catalog.state.has_snapshot else DatabaseSchema(database="spark")
        self._begin(merged_schema(known, list(tables.values())))
        plans = {
            chunk.chunk: ChunkPlan(
                chunk.chunk,
                window=str(self.catalog.state.window(chunk.chunk)) if chunk.chunk != UNTIMED_CHUNK else "",
                frames=tuple((tables[name], exact_frame(frame, tables[name])) for name, frame in chunk.frames.items()),
            )
            for chunk in chunks
        }
        export = self._export(self.address, {}, seen, replace_completed)
        yield from export_chunks(export, lambda wanted: [plans[chunk] for chunk in wanted], list(plans))

    def _skipped(self, chunk: int) -> Outcome:
        return Outcome(chunk, "skipped", tuple(known.file for known in self.catalog.state.live_files(chunk)))

    def _export(self, address: DatabaseAddress, fence: Mapping[str, str], seen: int, replace_completed: bool) -> Export:
        token, state = self._begun(), self.catalog.state
        assert self._content is not None
        schema_id = schema_id_of(state, self._content)
        assert schema_id is not None
        provenance = Provenance(
            location_id=state.location_id,
            snapshot_id=state.snapshot_id,
            base_revision=state.revision,
            schema_id=schema_id,
            schema_sha256=self._content.sha256,
            run=self.run_id,
            tombstones_through=seen,
            fence=fence,
            metadata={"database": address.alias, "writer": self.catalog.writer_id},
            header=state.header,
            version=state.format_version,
        )

        def make_task(works: Sequence[ChunkWork]) -> Task:
            return Task(address, self.store, provenance, tuple(works), self.plan.max_file_size)

        return Export(
            catalog=self.catalog,
            token=token,
            provenance=provenance,
            runner=self.runner,
            make_task=make_task,
            parallelism=self.plan.parallelism,
            replace=replace_completed,
            retry=self.retry,
        )

    def seal(self) -> Sealed:
        """Count the rows outside the range, verify the snapshot, seal it, and write the hints.

        Raises:
            IncompleteError: Chunks are missing or damaged.
            SupersededError: Another snapshot began since this run did.
        """
        self._check_plan()
        state = self.catalog.state
        if state.sealed and self._source is None and not self.force and self.plan.seal_verify != "full":
            return seal(self.catalog, rows_outside=state.newest_seal.seal.rows_outside if state.newest_seal else ())
        # A snapshot that is there is sealed as it is: neither extended nor given another schema now.
        if not state.has_snapshot or self.force:
            self.begin()
        self._check_timeless()
        rows_outside = self._rows_outside()
        token = self._begun() if self._token else self.catalog.token()
        return seal(self.catalog, token=token, rows_outside=rows_outside, seal_verify=self.plan.seal_verify)

    def _check_timeless(self) -> None:
        """Where rows without a time are forbidden and no chunk 0 is due, an empty chunk 0 proves that there is none."""
        state = self.catalog.state
        due = UNTIMED_CHUNK in state.expected_chunks() or state.completed(UNTIMED_CHUNK)
        if not due and not self.plan.schema_only and not state.missing():
            list(self.export([UNTIMED_CHUNK]))

    def _rows_outside(self) -> list[RowsOutside]:
        (source, schema), header = self._open(), self.catalog.state.header
        source.check()
        assert header is not None
        if header.start is None or header.end is None or header.schema_only:
            return []
        timed = [table for table in schema.tables if table.time_index]
        counts = (
            (table.table_name, source.database.count_outside(table, header.start, header.end, header.time_zone))
            for table in timed
        )
        return [RowsOutside(name.schema, name.table, rows) for name, rows in counts if rows]

    def show_progress(self) -> None:
        """Write the hints of a snapshot that was never sealed, so that manifest.json shows the work in progress."""
        if self._catalog is not None and self._catalog.state.has_snapshot:
            write_hints(self.store, self._catalog.state, self._catalog.refresh)

    def committed_schema(self) -> DatabaseSchema:
        """Return the newest schema that the log knows, read from the location."""
        state = self.catalog.require_snapshot()
        return read_schema(self.store, state.schemas[state.schema_id])

    def close(self) -> None:
        """Close the database and release its snapshot."""
        self._source = self._schema = self._begun_with = None
        self._resources.close()
