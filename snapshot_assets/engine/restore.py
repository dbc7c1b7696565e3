"""One import of a snapshot into a database: everything between opening the location and the last check.

Dagster's assets, the command line and the tests drive this one class; it needs Spark only through its runner. The
ledger in the target decides what is loaded already, so every step may be repeated after a kill.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from snapshot_assets.catalog.state import State
from snapshot_assets.catalog.verify import Depth
from snapshot_assets.databases.base import AllRows, DatabaseAddress
from snapshot_assets.databases.open import kind_of, target_module
from snapshot_assets.databases.target import Definition, ImportRecord, ImportTarget, LoadedFile, Statement
from snapshot_assets.engine import restore_pins
from snapshot_assets.engine.restore_load import ChunkLoad, ChunkOutcome, Loader
from snapshot_assets.engine.restore_plan import ChunkFiles, FilePlan, Filters, chunk_files, parents_first
from snapshot_assets.engine.restore_source import RestoreSource, open_snapshot
from snapshot_assets.engine.restore_spark import SparkLoader, is_spark, open_import_target
from snapshot_assets.engine.restore_target import (
    check_same_import,
    check_tables,
    definition_for,
    made_by,
    newest_import,
)
from snapshot_assets.engine.retry import RetryPolicy
from snapshot_assets.engine.sources import Session
from snapshot_assets.errors import RestoreError
from snapshot_assets.format.relations import TableName
from snapshot_assets.storage.base import ObjectStore


class RestoreRunner(Protocol):
    """Calls functions with items somewhere; see `engine.runner`."""

    def map(self, function: Any, items: Sequence[Any]) -> Iterable[Any]:
        """Call a function with every item and return all that the calls yielded."""
        ...


@dataclass(frozen=True)
class Prepared:
    """An import that was checked and has changed nothing.

    Attributes:
        record: What the ledger holds of it, or will.
        resumed: Whether the ledger holds it already.
        newest: Id of the newest import into any of the tables, "" for none.
        definition: How the tables are made, and what is lost.
        chunks: All that the import loads, loaded already or not.
        done: Files that the ledger has, by table and path.
        revisions: Which revision an import restored, by its id.
    """

    source: RestoreSource
    record: ImportRecord
    resumed: bool
    newest: str
    definition: Definition
    chunks: tuple[ChunkFiles, ...]
    done: dict[tuple[TableName, str], LoadedFile]
    revisions: dict[str, int] = field(default_factory=dict)

    @property
    def state(self) -> State:
        """The state at the restored revision."""
        return self.source.state

    @property
    def finished(self) -> bool:
        """Whether the ledger says that all of it was done."""
        return self.record.finished

    @property
    def lost(self) -> tuple[str, ...]:
        """What is not carried over, a sentence each."""
        return (*self.source.lost, *self.definition.lost)

    @property
    def has_foreign_keys(self) -> bool:
        """Whether a table that was there before has foreign keys: then parents must be loaded before their children."""
        made = set(self.record.made)
        return any(table.foreign_keys and table.table_name not in made for table in self.definition.tables)

    def to_make(self) -> list[Statement]:
        """Return the statements that are still to be run."""
        if self.finished:
            return []
        before = [] if self.resumed else self.statements(self.definition.before)
        return [*before, *self.statements(self.definition.after)]

    def missing(self, chunk: ChunkFiles) -> tuple[FilePlan, ...]:
        """Return the files of a chunk that the ledger lacks."""
        return tuple(plan for plan in chunk.files if (plan.table.table_name, plan.file.path) not in self.done)

    def holds_deleted(self, plan: FilePlan) -> bool:
        """Tell whether a file was loaded before some of its rows were deleted from the snapshot."""
        entry = self.done.get((plan.table.table_name, plan.file.path))
        return entry is not None and self.revisions.get(entry.import_id, plan.deleted_at) < plan.deleted_at

    def loaded_by_chunk(self) -> dict[int, set[tuple[TableName, str]]]:
        """Return the files of the import's tables that the ledger has, by chunk."""
        tables = {table.table_name for table in self.definition.tables}
        found: dict[int, set[tuple[TableName, str]]] = {}
        for key, entry in self.done.items():
            if key[0] in tables:
                found.setdefault(entry.chunk, set()).add(key)
        return found

    def statements(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return those that make what the import makes; what was there before is left as it is."""
        made = set(self.record.made)
        return [statement for statement in statements if statement.table is None or statement.table in made]


@dataclass(frozen=True)
class ImportSettings:
    """What an import restores, and what it may do.

    Attributes:
        filters: What restricts it.
        version: Version that is restored, as people write it; None for the newest seal.
        into_nonempty: Load into tables that hold rows which the ledger does not know.
        replace: Replace whole chunks that changed since they were loaded.
    """

    filters: Filters = field(default_factory=Filters)
    version: str | None = None
    into_nonempty: bool = False
    replace: bool = False


@dataclass
class ImportRun:
    """Imports one snapshot, or a part of it, into one database.

    Attributes:
        store: The location.
        address: The target.
        runner: Where tasks run; only asked when there is something to load.
        parallelism: Jobs side by side; a target of one writer has one.
        slots: Tasks of one job.
        session: Returns the Spark session; only asked by a target that is a Spark catalog.
    """

    store: ObjectStore
    address: DatabaseAddress
    runner: RestoreRunner
    settings: ImportSettings = field(default_factory=ImportSettings)
    parallelism: int = 1
    slots: int = 2
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    session: Session | None = None
    _prepared: Prepared | None = None

    def prepare(self, *, depth: Depth = "quick") -> Prepared:
        """Verify the snapshot, map its schema, and check the target; changes nothing.

        Args:
            depth: `quick` verifies log, documents and sizes; `full` also reads all data.

        Raises:
            DamageError: The location is damaged; names the objects.
            VersionNotFoundError: There is no such sealed version.
            UnknownRelationError: A chosen schema or table is not in the snapshot.
            TargetNotEmptyError: A target table holds rows that no import put there.
            OtherImportError: The tables were restored with other filters, from elsewhere, or at another revision that
                was not finished.
        """
        filters = self.settings.filters
        with self.target() as target:
            imports = target.imports()
        source = open_snapshot(self.store, filters, self.settings.version, imports, depth=depth)
        definition = definition_for(source.schema, self.address.uri, expressions=filters.expressions)
        tables = tuple(table.table_name for table in definition.tables)
        newest = newest_import(imports, tables)
        check_same_import(newest, source, filters)
        resumed = newest if newest is not None and newest == source.pinned else None
        with self.target() as target:
            existing = target.existing([*tables, *(view.table_name for view in source.schema.views)])
            done = {(each.table, each.path): each for each in target.loaded(source.state.location_id)}
            if target.imports() != imports:  # another run began or finished meanwhile, and may have filled tables
                return self.prepare(depth=depth)
        check_tables(existing, definition, newest, into_nonempty=self.settings.into_nonempty)
        import_id = uuid.uuid4().hex
        record = resumed or ImportRecord(
            id=import_id,
            tag=restore_pins.tag_of(import_id),
            location_id=source.state.location_id,
            location=self.store.uri,
            revision=source.state.revision,
            checksum=source.checksum,
            filters=filters.text(),
            tables=tables,
            made=tuple(sorted(made_by(definition) - set(existing))),
            into_nonempty=newest is None and any(each.has_rows for each in existing.values()),
        )
        return Prepared(
            source=source,
            record=record,
            resumed=resumed is not None,
            newest=newest.id if newest else "",
            definition=definition,
            chunks=tuple(chunk_files(source.state, source.schema, filters)),
            done=done,
            revisions={each.id: each.revision for each in imports},
        )

    def target(self) -> AbstractContextManager[ImportTarget]:
        """Open the target for a few statements: a file of one writer must not be held while tasks load into it."""
        return closing(open_import_target(self.address, self.session))

    def begin(self) -> Prepared:
        """Make the tables and pin the revision, once per run; goes on with an import that was begun."""
        if self._prepared is None:
            prepared = self.prepare()
            if not prepared.resumed:
                prepared = self._begin(prepared)
            if not prepared.finished:
                restore_pins.pin(self.store, prepared.record)
            self._prepared = prepared
        return self._prepared

    def _begin(self, prepared: Prepared) -> Prepared:
        with self.target() as target:
            begun = target.begin(prepared.record, prepared.statements(prepared.definition.before), prepared.newest)
        if begun.id == prepared.record.id:
            return replace(prepared, resumed=True)
        again = self.prepare()  # another run began an import meanwhile: go on with it, or be refused
        if not again.resumed:
            raise RestoreError(
                "Another import into the same tables began at the same moment, and differs from this one. Run again.",
                other=begun.id,
            )
        return again

    def restore(self, only: Sequence[int] = (), *, again: bool = False) -> Iterator[ChunkOutcome]:
        """Load chunks that the ledger lacks; yields each one's outcome once its last file is committed.

        Args:
            only: Chunk ids; empty for all.
            again: Replace the rows of these chunks, whatever the ledger says.

        Raises:
            RestoreFailedError: Some chunks failed; the others are loaded. Names each with its error.
        """
        prepared = self.begin()
        wanted = [parents_first(chunk) for chunk in prepared.chunks if not only or chunk.chunk in only]
        loader = self._loader(prepared)
        loaded = prepared.loaded_by_chunk()
        yield from loader.run(
            [self._load_of(prepared, chunk, loaded.get(chunk.chunk, set()), again) for chunk in wanted]
        )

    def _loader(self, prepared: Prepared) -> Loader:
        in_order = target_module(self.address.uri).ONE_WRITER or prepared.has_foreign_keys
        tables = {table.table_name: table for table in prepared.definition.tables}
        if is_spark(self.address):
            assert self.session is not None  # `begin` has opened the target
            return SparkLoader(
                self.store,
                self.address,
                self.runner,
                prepared.record,
                tables,
                prepared.source.documents,
                slots=self.slots,
                retry=self.retry,
                session=self.session,
            )
        return Loader(
            store=self.store,
            address=self.address,
            runner=self.runner,
            record=prepared.record,
            tables=tables,
            documents=prepared.source.documents,
            same_kind=prepared.source.schema.database == kind_of(self.address.uri),
            parallelism=1 if in_order else self.parallelism,
            slots=1 if in_order else self.slots,
            retry=self.retry,
        )

    def _load_of(
        self, prepared: Prepared, chunk: ChunkFiles, known: set[tuple[TableName, str]], again: bool
    ) -> ChunkLoad:
        """Decide what is to be done with a chunk: nothing, load what is missing, or replace it whole."""
        wanted = {(plan.table.table_name, plan.file.path) for plan in chunk.files}
        changed = bool(known - wanted) or any(prepared.holds_deleted(plan) for plan in chunk.files)
        if changed and not (self.settings.replace or again):
            raise RestoreError(
                f"Chunk {chunk.chunk} was loaded from other files, or before rows of them were deleted, at an earlier"
                " revision: its rows changed in the snapshot since. Give --replace to delete its rows from the target"
                " and load those of now.",
                chunk=chunk.chunk,
            )
        if (changed or again) and prepared.record.into_nonempty:
            raise RestoreError(
                f"Chunk {chunk.chunk} cannot be replaced: the tables held rows of others before this import"
                " (--into-nonempty), and deleting the chunk's window would delete those too.",
                chunk=chunk.chunk,
            )
        if (changed or again) and chunk.unbounded:
            names = ", ".join(sorted(map(str, chunk.unbounded)))
            raise RestoreError(
                f"Chunk {chunk.chunk} cannot be replaced: {names} has no time index, so its rows of this window cannot"
                " be told from others. Drop the tables, give --forget-ledger, and import them anew.",
                chunk=chunk.chunk,
            )
        return ChunkLoad(chunk, prepared.missing(chunk), replace=changed or again)

    def finish(self) -> bool:
        """Make keys, indexes and views, and unpin the revision, if all chunks are loaded.

        Returns:
            Whether the import is finished now.
        """
        prepared = self.begin()
        with self.target() as target:
            done = {(each.table, each.path) for each in target.loaded(prepared.state.location_id)}
            wanted = {(plan.table.table_name, plan.file.path) for chunk in prepared.chunks for plan in chunk.files}
            if not wanted <= done:
                return False
            target.finish(prepared.record, prepared.statements(prepared.definition.after))
        restore_pins.unpin(self.store, prepared.record)
        return True

    def check_counts(self) -> dict[TableName, tuple[int, int]]:
        """Count every restored table's rows in the target.

        Returns:
            Rows expected, as the ledger has them, and rows found, by table.
        """
        prepared = self.begin()
        with self.target() as target:
            loaded = target.loaded(prepared.state.location_id)
            expected: Counter[TableName] = Counter()
            for each in loaded:
                expected[each.table] += each.rows
            return {
                table.table_name: (expected[table.table_name], target.count(table, AllRows()))
                for table in prepared.definition.tables
            }
