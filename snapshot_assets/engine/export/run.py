"""One export run of one plan: everything between opening the location and the seal.

Dagster's assets, the command line and the tests use this class. It needs Spark only through its runner.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from snapshot_assets.catalog import rules
from snapshot_assets.catalog.catalog import Catalog, Token
from snapshot_assets.catalog.iceberg import check_iceberg, publish_iceberg, require_iceberg
from snapshot_assets.catalog.operations.seal import SealDepth, Sealed, seal
from snapshot_assets.catalog.rules import SchemaContent, schema_id_of
from snapshot_assets.catalog.schemas import describe_schema, read_schema
from snapshot_assets.catalog.state.fold import State
from snapshot_assets.catalog.state.totals import refuse_recorded
from snapshot_assets.catalog.verify.altered import refuse_hidden_log
from snapshot_assets.databases.open import kind_of
from snapshot_assets.databases.protocol.source import DatabaseAddress
from snapshot_assets.databases.selection.hidden import hides
from snapshot_assets.databases.spark import KIND as SPARK
from snapshot_assets.engine.export.chunks import Export, Runner, export_chunks
from snapshot_assets.engine.export.division import Portion
from snapshot_assets.engine.export.given_frames import described_frames
from snapshot_assets.engine.export.hidden_values import hiding_values
from snapshot_assets.engine.export.planning import GivenFrames, Planner
from snapshot_assets.engine.export.preflight import checked_schemas, outside_of, require_table_assets
from snapshot_assets.engine.export.source import Source, open_source
from snapshot_assets.engine.export.start_snapshot import header_of, skipped_tables, spelled_plan, start_snapshot
from snapshot_assets.engine.export.tasks import Outcome, Provenance, Task
from snapshot_assets.engine.progress import Stage, silent
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.session import Session, parallel_chunks, parallel_tasks
from snapshot_assets.errors import ConflictError, IcebergError, NoSnapshotError, UsageError
from snapshot_assets.format.actions import Header, RowsOutside
from snapshot_assets.format.layout import UNTIMED_CHUNK
from snapshot_assets.format.names import NameRule, Spellings
from snapshot_assets.format.relations import DatabaseSchema, TableName
from snapshot_assets.plan.plan import Plan
from snapshot_assets.storage.base import ObjectStore


@dataclass(frozen=True)
class ExportRun:
    """Exports one plan's snapshot.

    Attributes:
        plan: The plan, its range resolved.
        address: The source.
        runner: Runs the tasks; called only when there is something to read.
        run_id: Name of the run, in fences and receipts.
        written: The plan as the user wrote it, if its range was not resolved there.
        force: Whether `open` starts a new snapshot in place of the existing one.
        session: Returns the Spark session.
        parallelism: Chunks processed in parallel where the plan does not say; None asks the session.
        most_parts: Most slices of one table's scan; None for as many as the session runs tasks at a time.
        started: When the run started; windows that close later are those of the next run. None for the present.
        check_rows: Whether `open` reads the rows once, to refuse what cannot be exported before anything is written.
        stage: Takes how far the seal is.
    """

    plan: Plan
    address: DatabaseAddress
    store: ObjectStore
    runner: Runner
    run_id: str
    written: Plan | None = None
    force: bool = False
    session: Session = SparkSession.active
    parallelism: int | None = 1
    most_parts: int | None = 2
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    started: datetime | None = None
    check_rows: bool = False
    stage: Stage = silent

    def read_catalog(self) -> Catalog:
        """Open the location for reading, and check that this plan may be exported to it.

        Raises:
            LocationDeletedError: Its snapshot was deleted.
            LostLogError: Its log is hidden.
            SnapshotExistsError: Another plan's snapshot exists; names each field with both values.
        """
        catalog = Catalog.open(self.store)
        if not catalog.state.revision:
            refuse_hidden_log(self.store)
        if catalog.state.header is not None and not self.force:
            header = catalog.require_snapshot().header or catalog.state.header
            rules.check_same_plan(header, self.header(header.schemas), self.names)
        return catalog

    @property
    def names(self) -> NameRule:
        """How the source compares names."""
        return kind_of(self.address.uri).names

    def header(self, schemas: Sequence[str]) -> Header:
        """Return the header of a snapshot that this run starts."""
        return header_of(self.plan, schemas, self.address, self.written or self.plan, self.started or datetime.now(UTC))

    def check_source(self) -> None:
        """Check that the source has what the plan exports; nothing is written.

        Raises:
            DatabaseError: It cannot be opened, or refuses the plan's tables or query.
        """
        with self._open_source(tasks=False) as source:
            checked_schemas(source.database, self.plan)

    @contextmanager
    def _open_source(self, *, tasks: bool = True) -> Iterator[Source]:
        readers = self.runner.readers if tasks and not self.plan.schema_only else None
        how = (self.session, self._most_parts, readers, self.plan.split_by, self._range_bytes)
        with hiding_values(hides(self.plan.selection)), open_source(self.address, *how) as source:
            yield source

    @property
    def _range_bytes(self) -> int:
        return 0 if self.plan.kind == "query" or self.plan.single_file else self.plan.file_size

    def _most_parts(self) -> int:
        return self.most_parts or parallel_tasks(self.session())

    def _parallelism(self) -> int:
        return self.plan.parallelism or self.parallelism or parallel_chunks(self.session())

    @contextmanager
    def look(self) -> Iterator[OpenExport]:
        """Open the source and the snapshot to look for changes: nothing is written, and nothing can be exported.

        Raises:
            DatabaseError: The source cannot be opened.
            NoSnapshotError: There is no snapshot.
            SnapshotExistsError: The snapshot does not fit the plan or the source.
        """
        catalog = self.read_catalog()
        catalog.require_snapshot()
        with self._open_source() as source:
            _, schema = checked_schemas(source.database, self.plan)
            run = replace(self, plan=spelled_plan(self.plan, source.database, schema))
            content, _ = describe_schema(schema)
            seen = (run, catalog, schema, content, catalog.token(), catalog.state.revision)
            yield OpenExport(*seen, source.make_planner, source=source)

    @contextmanager
    def open(self, catalog: Catalog | None = None, *, extend: bool = True) -> Iterator[OpenExport]:
        """Open the source, and start the snapshot or resume it.

        Until the context ends, all tasks of the run read one state of the database, where the database supports it.

        Args:
            catalog: The location as `read_catalog` returned it, if it was read before.
            extend: Whether an existing snapshot gets the source's schema and a continuous plan's new windows. Sealing
                needs neither.

        Raises:
            DatabaseError: The source cannot be opened.
            SnapshotExistsError: The existing snapshot does not fit the plan or the source; nothing was written.
            TaskFailedError: Spark's executors lack what tasks need; nothing was written.
        """
        before = (catalog or self.read_catalog()).refresh()
        with self._open_source(tasks=extend or self.force or _may_hide_timeless_rows(before)) as source:
            existing = None if self.force or not before.has_snapshot else before
            checked = (lambda _: self.plan, existing) if self.check_rows and extend else None
            extracted, schema = checked_schemas(source.database, self.plan, checked)
            if extend:
                self._check_tables(schema)
            source = source if self.plan.schema_only else source.of_tables(schema)
            run = replace(self, plan=spelled_plan(self.plan, source.database, schema))
            # Read once: PostgreSQL's LSN moves on, while the database snapshot that tasks read stays.
            fence = ({"run": self.run_id} if source.held else {}) | source.database.fence()
            if extend and not self.plan.schema_only and (self.force or not before.has_snapshot):
                self.runner.ready()  # resumed, its first task says the same, if there is one
            catalog = self._writable_catalog()
            if extend or self.force or not catalog.state.has_snapshot or _may_hide_timeless_rows(catalog.state):
                content = run._start(catalog, schema, force=self.force, fixed_tables=self.plan.range_kind == "once")
            else:
                content, _ = describe_schema(schema)
            source.check()
            started = (run, catalog, schema, content, catalog.token(), before.revision)
            yield OpenExport(*started, source.make_planner, fence, source, skipped_tables(self.plan, extracted))

    def open_frames(self, chunks: Mapping[int, Mapping[TableName, DataFrame]]) -> OpenExport:
        """Start the snapshot, or resume it, for a user's own DataFrames, by chunk and table; the source is not opened.

        The tables' documents come from the DataFrames and join those of the snapshot.
        """
        before = self.read_catalog().state
        base_revision = before.revision
        committed = self.committed_schema() if before.has_snapshot else DatabaseSchema(database=SPARK.name)
        schema, exact = described_frames(chunks, committed, self.plan.frame_selection)
        self._check_tables(schema)
        self.runner.ready()
        catalog = self._writable_catalog()
        content, make_planner = self._start(catalog, schema), partial(GivenFrames, frames=exact)
        return OpenExport(self, catalog, schema, content, catalog.token(), base_revision, make_planner)

    def _check_tables(self, schema: DatabaseSchema) -> None:
        """Refuse tables that the plan's assets or Iceberg cannot hold, before anything is written."""
        require_table_assets(self.plan, schema)
        if (iceberg := self.plan.iceberg) is not None:
            names = Spellings(self.names, [table.table_name for table in schema.tables])
            chosen = {names.of(name) for name in iceberg.tables}
            check_iceberg(self.store, (each for each in schema.tables if not chosen or each.table_name in chosen))

    def _writable_catalog(self) -> Catalog:
        if self.plan.iceberg is not None:
            require_iceberg()
        return Catalog.open_for_writing(self.store, single_writer=self.plan.single_writer, signing=self.plan.signing)

    def _start(
        self, catalog: Catalog, schema: DatabaseSchema, *, force: bool = False, fixed_tables: bool = False
    ) -> SchemaContent:
        header = self.header([item.name for item in schema.schemas])
        return start_snapshot(catalog, header, schema, force=force, fixed_tables=fixed_tables)

    def seal(self, verify: SealDepth | None = None, suspects: Set[int] = frozenset()) -> Sealed:
        """Seal the existing snapshot as it is; see `OpenExport.seal`.

        The source is opened only to count the rows outside the range, which a sealed snapshot has recorded. An asset
        as the source has none: its windows are its partitions.
        """
        state = self.read_catalog().state
        if state.newest_seal and state.sealed and not self.force:
            outside = state.newest_seal.seal.rows_outside
            if self.plan.fail_on_rows_outside:
                refuse_recorded(state)
            return self._seal(self._writable_catalog(), verify, suspects, rows_outside=outside)
        if self.plan.source_asset:
            if state.header is None:  # a deleted one is refused below
                raise NoSnapshotError(
                    f"There is no snapshot at {self.store.uri}: no partition of the Dagster asset"
                    f" {'/'.join(self.plan.source_asset)!r} was materialised, or the code location does not define it."
                    " Materialise its partitions, then seal.",
                    uri=self.store.uri,
                )
            catalog = self._writable_catalog()
            catalog.require_snapshot()
            return self._seal(catalog, verify, suspects)
        with self.open(extend=False) as export:
            return export.seal(verify, suspects)

    def _seal(
        self,
        catalog: Catalog,
        verify: SealDepth | None,
        suspects: Set[int],
        *,
        token: Token | None = None,
        rows_outside: Sequence[RowsOutside] = (),
    ) -> Sealed:
        sealed = seal(
            catalog,
            token=token,
            rows_outside=rows_outside,
            seal_verify=verify or self.plan.seal_verify,
            suspects=suspects,
            progress=partial(self.stage, "verifying files"),
        )
        if (iceberg := self.plan.iceberg) is None:
            return sealed
        try:
            published = publish_iceberg(catalog.store, tables=iceberg.tables, catalog=iceberg.catalog)
        except UsageError as error:  # the export changed something
            done = f"Revision {sealed.seal.revision} is sealed; only its Iceberg tables were not published"
            raise IcebergError(f"{done}: {error} Then run `snapshots iceberg`.", **error.attributes) from error
        return replace(sealed, iceberg=published)

    def committed_schema(self) -> DatabaseSchema:
        """Return the newest schema in the log, read from the location."""
        state = Catalog.open(self.store).require_snapshot()
        return read_schema(self.store, state.schemas[state.schema_id])


@dataclass(frozen=True)
class OpenExport:
    """A snapshot that a run started or resumed, and all that chunks are exported to it with.

    Attributes:
        catalog: The location, opened for writing.
        schema: The exported tables and views.
        content: The documents of that schema.
        token: The snapshot; nothing is committed to another one.
        base_revision: The newest revision before the source was opened.
        make_planner: Makes the planner of the chunks from the head's state and the schema.
        fence: The state of the database that tasks read.
        source: The open source; None for a user's own DataFrames.
        skipped: Tables of the source that are not exported because they have no time index.
    """

    run: ExportRun
    catalog: Catalog
    schema: DatabaseSchema
    content: SchemaContent
    token: Token
    base_revision: int
    make_planner: Callable[[State, DatabaseSchema], Planner]
    fence: Mapping[str, str] = field(default_factory=dict)
    source: Source | None = None
    skipped: tuple[TableName, ...] = ()

    def export(self, chunks: Sequence[int], *, replace_completed: bool = False) -> Iterator[Outcome]:
        """Export chunks; yields each outcome once it is committed. See `commits`."""
        for outcomes in self.commits(chunks, replace_completed=replace_completed):
            yield from outcomes

    def commits(
        self,
        chunks: Sequence[int],
        *,
        replace_completed: bool = False,
        only: Mapping[int, frozenset[Portion]] | None = None,
    ) -> Generator[Sequence[Outcome], None, None]:
        """Export chunks that are not completed or are damaged, or all of them.

        Yields the outcomes of each transaction's chunks once they are committed. Close it where it is not taken to its
        end: that interrupts the tasks that run.

        Args:
            chunks: Ids of the chunks.
            replace_completed: Whether completed chunks are exported again.
            only: Parts that are exported again, of chunks whose other files stay; such a chunk takes this run's fence.

        Raises:
            ExportFailedError: Some failed; the others are committed.
            SupersededError: Another snapshot was started since this run did.
        """
        rules.check_unchanged(self.catalog.refresh(), self.token)
        run, state = self.run, self.catalog.state
        schema_id = schema_id_of(state, self.content)
        if schema_id is None:
            raise ConflictError(
                "The source's tables changed while another run exported this snapshot. Nothing more was exported; run "
                "again."
            )
        provenance = Provenance(
            location_id=state.location_id,
            snapshot_id=state.snapshot_id,
            base_revision=state.revision,
            schema_id=schema_id,
            schema_sha256=self.content.sha256,
            run=run.run_id,
            tombstones_through=self.base_revision,
            fence=self.fence,
            metadata={"database": run.address.alias, "writer": self.catalog.writer_id},
            header=state.header,
            version=state.format_version,
        )
        address = self.source.address if self.source else run.address
        planner = replace(self.make_planner(state, self.schema), only=only or {})
        export = Export(
            catalog=self.catalog,
            token=self.token,
            task=Task(address, self.catalog.store, provenance, (), run.plan.file_size),
            plan=planner.plans,
            runner=run.runner,
            parallelism=run._parallelism,
            retry=run.retry,
            keep_empty=run.plan.kind == "query" and not run.plan.windowed,
        )
        yield from export_chunks(export, chunks, replace_completed=replace_completed)

    def seal(self, verify: SealDepth | None = None, suspects: Set[int] = frozenset()) -> Sealed:
        """Count the rows outside the range, verify the snapshot, seal it, and write the hints.

        Args:
            verify: What is hashed, if not what the plan says; see `catalog.operations.seal`.
            suspects: Chunks that are hashed in any case.

        Raises:
            IncompleteError: Chunks are missing or damaged.
            SupersededError: Another snapshot was started since this run did.
            RowsOutsideError: There are rows outside the range, and the plan allows none.
            ConflictError: Another run completed the last chunk, and the source's tables changed; run again.
        """
        if _may_hide_timeless_rows(self.catalog.refresh()):
            list(self.export([UNTIMED_CHUNK]))
        source, header = self.source, self.catalog.state.header
        assert source is not None
        assert header is not None
        source.check()
        refused = self.run.plan.fail_on_rows_outside
        rows_outside = outside_of(source.database, header, self.schema, refused=refused, stage=self.run.stage)
        rules.check_unchanged(self.catalog.refresh(), self.token)
        return self.run._seal(self.catalog, verify, suspects, token=self.token, rows_outside=rows_outside)


def _may_hide_timeless_rows(state: State) -> bool:
    """Return whether an empty chunk 0 has yet to prove that no row lacks a time, where the plan forbids such rows."""
    header = state.header
    due = UNTIMED_CHUNK in state.expected_chunks() or state.completed(UNTIMED_CHUNK)
    return header is not None and not due and not header.schema_only and not state.missing()
